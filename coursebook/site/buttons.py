"""The menus at the top of a page, through the theme's own list of buttons: download, launch, report.

The theme fills the list. Here the downloaded notebook gets the cell with which it sets itself up, Colab the address
where it finds that notebook (the branch with the built site), and the report link page, section and version. On the
page of a lab the notebook is that of the lab, from the students' repository.
"""

import shutil
from pathlib import Path
from urllib.parse import quote, urlencode

import nbformat
from docutils import nodes

import mlcourse
from mlcourse.setup_cell import STUDENTS_BRANCH, setup_cell, students_repository

DOWNLOADS = {
    "download-notebook-button": "Notebook (.ipynb)",
    "download-source-button": "MyST source (.md)",
    "download-pdf-button": "Print (.pdf)",
}
# After the theme's own, which have 501
AFTER_THEME = 600
REPORT = "Page: {page}\nSection: \nVersion: {version}\n\nWhat is wrong, and what did you expect?\n"


def _change_buttons(app, page, template, context, doctree):
    groups = {one.get("label"): one for one in context.get("header_buttons", ())}
    notebook = context.get("ipynb_source")
    lab = _lab_of(app, page)
    if notebook and lab:
        shutil.copy(Path(app.srcdir) / lab, Path(app.outdir) / "_sources" / notebook)
        places = _places(app, lab)
        buttons = groups["launch-buttons"]["buttons"]
        groups["launch-buttons"]["buttons"] = [
            button | {"url": places[button["text"]]} for button in buttons if button["text"] in places
        ]
    elif notebook:
        _add_setup_cell(Path(app.outdir) / "_sources" / notebook, f"{page}.md")
        for button in groups["launch-buttons"]["buttons"]:
            if button["text"] == "Colab":
                button["url"] = colab_address(app, _repository(app), app.config.site_branch, f"_sources/{notebook}")
    if notebook:
        for button in groups["download-buttons"]["buttons"]:
            button["text"] = DOWNLOADS.get(button["label"], button["text"])
    if page in app.env.all_docs:
        groups["source-buttons"]["buttons"].append(
            {
                "type": "link",
                "url": report_address(app, page),
                "text": "Report a problem",
                "tooltip": "Report a problem with this section",
                "icon": "fas fa-lightbulb",
                "label": "report-button",
            }
        )


def _add_setup_cell(path, source):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, setup_cell(source))
    nbformat.write(notebook, path)


def report_address(app, page: str) -> str:
    """Return the address of a new report on a page; ``book/_static/course.js`` adds the section to it."""
    body = REPORT.format(page=f"{page}.html", version=mlcourse.__version__)
    fields = urlencode({"title": f"Problem on {page}.html", "body": body}, quote_via=quote)
    return f"{_repository(app)}/issues/new?{fields}"


def binder_address(app, repository: str, branch: str, path: str) -> str:
    """Return the address at which Binder opens a file of a branch of a repository on GitHub."""
    name, launch = _name_on_github(repository), app.config.html_theme_options["launch_buttons"]
    return f"{launch['binderhub_url']}/v2/gh/{name}/{branch}?urlpath=lab/tree/{path}"


def colab_address(app, repository: str, branch: str, path: str) -> str:
    """Return the address at which Colab opens a notebook of a branch of a repository on GitHub."""
    name, launch = _name_on_github(repository), app.config.html_theme_options["launch_buttons"]
    return f"{launch['colab_url']}/github/{name}/blob/{branch}/{path}"


def _repository(app):
    return app.config.html_theme_options["repository_url"]


def _name_on_github(repository):
    return repository.removeprefix("https://github.com/").removesuffix(".git")


def _lab_of(app, page):
    """Return the path of the lab whose page it is, in the students' repository, or None."""
    folder, _, name = page.rpartition("/")
    path = f"labs/{name}/{name}.ipynb"
    return path if folder == "book/labs" and (Path(app.srcdir) / path).exists() else None


def _places(app, path):
    """Return the addresses at which Binder and Colab open a notebook of the students' repository."""
    repository = students_repository()
    return {
        "Binder": binder_address(app, repository, STUDENTS_BRANCH, path),
        "Colab": colab_address(app, repository, STUDENTS_BRANCH, path),
    }


def _add_ways_to_open(app, doctree, page):
    """Say at the top of the page of a lab how to open it."""
    if path := _lab_of(app, page):
        binder, colab = (
            nodes.reference("", name, refuri=address, internal=False) for name, address in _places(app, path).items()
        )
        words = [
            nodes.Text("Type "),
            nodes.literal("", "make lab"),
            nodes.Text(" in the folder of the labs ("),
            nodes.reference("", "how to get it", refuri="../setting-up.html", internal=True),
            nodes.Text(") to solve it in JupyterLab, or open it "),
        ]
        words += [nodes.Text("without installing anything on "), binder, nodes.Text(" or "), colab]
        download = nodes.reference("", "download it", refuri=f"../../_sources/{page}.ipynb", internal=True)
        words += [nodes.Text(", or "), download, nodes.Text(".")]
        section = next(doctree.findall(nodes.section))
        section.insert(1, nodes.paragraph("", "", *words, classes=["launch-lab"]))


def connect(app):
    """Let Sphinx change the buttons after the theme made them."""
    app.connect("html-page-context", _change_buttons, priority=AFTER_THEME)
    app.connect("doctree-resolved", _add_ways_to_open)
