"""Build the book and serve it: ``python -m mlcourse.book build`` and ``python -m mlcourse.book serve``.

What this adds to ``jupyter-book build``:

- warnings are errors, unknown references are warnings, and a cell that raises fails the build;
- the execution cache is keyed on the helper module, the data and the lock file besides the notebook itself;
- a build with nothing changed ends at once.
"""

import argparse
import contextlib
import functools
import hashlib
import http.server
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[1]
# What a chapter's cells depend on besides the chapter, and what the site depends on besides that.
EXECUTION_INPUTS = ("mlcourse/*.py", "mlcourse/*.mplstyle", "data/*", "requirements.lock")
SITE_INPUTS = (
    "book/**/*",
    "solutions/*.md",
    "mlcourse/site/*.py",
    "pyproject.toml",
    "_config.yml",
    "_toc.yml",
    "references.bib",
)


class BookError(Exception):
    """The book cannot be built or served; the message says why and what to do."""


def fingerprint(root: Path, patterns: Iterable[str]) -> str:
    """Return a hash of the names and contents of the files that match any of the glob patterns."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()}):
        if ".ipynb_checkpoints" not in path.parts:
            digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def build(root: Path = ROOT) -> Path:
    """Build the site, unless nothing has changed since the last build that succeeded.

    Parameters
    ----------
    root : pathlib.Path
        The repository of the course.

    Returns
    -------
    pathlib.Path
        The folder of the site, ``_build/html``.

    Raises
    ------
    BookError
        If a cell raises, a reference is unknown, or the build gives any other warning. The log is in
        ``_build/book.log``.
    """
    output = root / "_build"
    site, stamp, log = output / "html", output / "built", output / "book.log"
    inputs = fingerprint(root, (*EXECUTION_INPUTS, *SITE_INPUTS))
    if stamp.exists() and stamp.read_text() == inputs and (site / "index.html").exists():
        print("The book is up to date.")
        return site
    stamp.unlink(missing_ok=True)
    shutil.rmtree(site / "reports", ignore_errors=True)
    cache = output / ".jupyter_cache" / fingerprint(root, EXECUTION_INPUTS)[:16]
    config = _write_config(root, output, cache)
    print("Building the book (the first time, every chapter is executed) ...", flush=True)
    started = time.perf_counter()
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", "."]
    with log.open("w", encoding="utf-8") as stream:
        result = subprocess.run(
            [*command, "--config", str(config), "-W", "-n", "--keep-going"],
            cwd=root,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if result.returncode:
        # Sphinx would not read the pages that failed again, and so not repeat its warnings at the next build.
        shutil.rmtree(output / ".doctrees", ignore_errors=True)
        raise BookError(_what_failed(root, site, log))
    _export_notebooks(output, cache)
    stamp.write_text(inputs)
    print(f"Built in {time.perf_counter() - started:.0f} s.")
    return site


def serve(port: int, root: Path = ROOT) -> None:
    """Build the site and serve it on this machine until interrupted.

    Raises
    ------
    BookError
        If the port is in use, or the book cannot be built.
    """
    handler = functools.partial(_QuietHandler, directory=str(root / "_build" / "html"))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler, bind_and_activate=False)
        server.allow_reuse_address = sys.platform != "win32"
        server.server_bind()
    except (OSError, OverflowError):
        raise BookError(
            f"port {port} cannot be used, perhaps the book is served already: choose another one, "
            f"for instance with `make serve PORT={port + 1 if port < 65535 else 8001}`"
        ) from None
    with server:
        build(root)
        server.server_activate()
        print(f"Read the book at http://127.0.0.1:{port}/ (stop with Ctrl-C)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        print("\nStopped.")


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print no line for each request."""


def _write_config(root, output, cache):
    """Write the configuration of the book with a cache of its own for every state of what the cells depend on."""
    output.mkdir(exist_ok=True)
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    for old in cache.parent.glob("*"):
        if old != cache:
            shutil.rmtree(old, ignore_errors=True)
    config["execute"]["cache"] = str(cache)
    # Sphinx writes a page, style sheets and images only if a page changed: let it notice what else they depend on.
    context = config["sphinx"]["config"].setdefault("html_context", {})
    context["static_files"] = fingerprint(root, ["book/_static/**/*", "mlcourse/site/*.py", "pyproject.toml"])
    path = output / "config.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _export_notebooks(output, cache):
    """Write the notebooks of the site with all their outputs into ``_build/notebooks``, for nbval.

    Those in ``_build/jupyter_execute`` lack the numbers that were glued into sentences; those in the cache have them,
    but under the name of a hash, beside older ones.
    """
    cached = [nbformat.read(path, as_version=4) for path in cache.rglob("base.ipynb")]
    by_code = {_code(notebook): notebook for notebook in cached}
    shutil.rmtree(output / "notebooks", ignore_errors=True)
    (output / "notebooks").mkdir()
    for path in (output / "jupyter_execute").rglob("*.ipynb"):
        nbformat.write(by_code[_code(nbformat.read(path, as_version=4))], output / "notebooks" / path.name)


def _code(notebook):
    return tuple(cell.source for cell in notebook.cells if cell.cell_type == "code")


def _what_failed(root, site, log):
    """Return what is wrong, in a few lines that end in one sentence: cells that raised, or else the warnings."""
    failed = []
    for report in sorted((site / "reports").rglob("*.err.log")):
        page = report.relative_to(site / "reports").as_posix().removesuffix(".err.log")
        failed += [f"{page}: the cell that failed, and its error:", *_plain(report).rstrip().splitlines()[-25:], ""]
    if failed:
        return "\n".join([*failed, f"the book was not built: a cell raised an error, see above (log: {log})"])
    text = _plain(log).replace(f"{root}/", "")
    lines = re.findall("^.*(?:WARNING|ERROR): .*$", text, re.M) or re.findall(r"^[\w.]+Error: .+$", text, re.M)
    return "\n".join([*sorted(set(lines)), f"the book was not built: warnings are errors, see above (log: {log})"])


def _plain(path):
    """Return the text of a log without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", path.read_text(encoding="utf-8", errors="replace"))


def main(arguments: list[str] | None = None) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m mlcourse.book", description="Build the book, or serve it.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the site into _build/html")
    commands.add_parser("serve", help="build the site and serve it").add_argument("--port", type=int, default=8000)
    options = parser.parse_args(arguments)
    try:
        build() if options.command == "build" else serve(options.port)
    except BookError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("\nStopped before the book was built: start again, nothing is lost.")


if __name__ == "__main__":
    main()
