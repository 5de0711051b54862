"""A Sphinx extension for the book's build, named in ``_config.yml``.

- Pages that are no longer in the contents, pictures of earlier builds, and what debuggers read are not on the site.
- Sphinx reads a chapter again if it was executed again, and every page if a module of the course or a version changed.
- In a page, ``{{ times }}`` becomes a table of the times of the last execution of each chapter, and ``{{ claims }}`` a
  table of the claims about many draws.
"""

from pathlib import Path

from coursebook.execution import RUNS, cores, notebook_of, read_runs
from coursebook.sweep import folder_of, page_of_claims, read_last_claims

TIMES, CLAIMS = "{{ times }}", "{{ claims }}"
# The layout leaves out the scripts of Sphinx's search and the one that draws the theme's icons once more; browsers read
# maps for debuggers alone, and the fonts of icons as WOFF2, and Sphinx reads the translations of the theme
NEVER_LOADED = (
    "_static/searchtools.js",
    "_static/language_data.js",
    "_static/scripts/fontawesome.js",
    "_static/vendor/fontawesome/webfonts/*.ttf",
    "_static/**/*.map",
    "_static/locales/**/*.[mp]o",
)


def table_of_times(runs: dict[str, dict]) -> str:
    """Return the times of the chapters as a Markdown table, the slowest first.

    Parameters
    ----------
    runs : dict
        The runs that `coursebook.execution.read_runs` returns.
    """
    rows = ["| chapter | seconds | of these, CPU time |", "|---|---:|---:|"]
    for name, run in sorted(runs.items(), key=lambda item: -item[1]["seconds"]):
        chapter, _, page = name.removeprefix("book/").partition("/")
        link = f"[](/{name}.md)"
        if page and page != "index" and f"book/{chapter}/index" in runs:
            link = f"[](/book/{chapter}/index.md): {link}"
        rows.append(f"| {link} | {run['seconds']:.1f} | {run['cpu']:.1f} |")
    seconds, cpu = (sum(run[key] for run in runs.values()) for key in ("seconds", "cpu"))
    rows.append(f"| **all** | **{seconds:.1f}** | **{cpu:.1f}** |")
    shortest = f"The CPU time of all cells, divided by the {cores()} cores, is {cpu / cores():.0f} seconds"
    return "\n".join([":::{div} times", *rows, "", f"{shortest}: no build of the whole book can be faster.", ":::"])


def setup(app):
    """Connect the extension to Sphinx."""
    output = Path(app.outdir).parent

    def read(app, name, source):
        executed = notebook_of(name, output)
        if executed.exists():
            app.env.note_dependency(str(executed))
        if TIMES in source[0]:
            app.env.note_dependency(str(output / RUNS))
            source[0] = source[0].replace(TIMES, table_of_times(read_runs(output)))
        if CLAIMS in source[0]:
            for path in (output / RUNS, folder_of(output) / RUNS):
                app.env.note_dependency(str(path))
            source[0] = source[0].replace(CLAIMS, page_of_claims(read_last_claims(output), Path(app.srcdir)))

    def remove_old(app, error):
        if error:
            return
        site, shown = Path(app.outdir), {name for _, name in app.env.images.values()}
        old = [path for pattern in NEVER_LOADED for path in site.glob(pattern)]
        old += [path for path in site.glob("_images/*") if path.name not in shown]
        for folder in (site, site / "_sources"):
            pages = [(path, path.relative_to(folder).with_suffix("")) for path in folder.glob("book/**/*.*")]
            old += [path for path, name in pages if name.as_posix() not in app.env.found_docs]
        for path in old:
            path.unlink()

    app.connect("source-read", read)
    app.connect("build-finished", remove_old)
    app.add_config_value("course_fingerprint", "", "env")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
