"""Write the feedback: a page for each student, which opens with what to look at first.

It is one file without scripts that needs no network. `FeedbackPage` is nbgrader's exporter for it, so the buttons of
the formgrader write the same pages as ``mlcourse feedback``.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from markupsafe import Markup
from nbconvert.exporters import Exporter
from nbformat.v4 import new_notebook
from nbgrader.utils import is_grade, is_solution
from pygments.formatters import HtmlFormatter

from coursegrader import sanitizer
from coursegrader.formulas import mathml
from coursegrader.preprocessors import HANDED_IN, NOT_RUN, raw_as_markdown
from coursegrader.scores import sections
from mlcourse.book import address
from mlcourse.setup_cell import is_setup_cell

TEMPLATE = Path(__file__).with_name("feedback.html.jinja")
EACH = 40  # students for each process: it takes as long to start one as to write about as many pages
SEE = re.compile(r"(?P<says>.*)\. See (?P<place>[\w/-]+\.html(?:#[\w-]+)?) in the book\.", re.DOTALL)
HEADING = re.compile(r"(</?h)([1-6])")
PICTURES = ("image/png", "image/jpeg")


@dataclass
class Part:
    """A cell as the page shows it: `kind` is "text", "code", "answer" or "test".

    `is_code` tells code from text in an answer. `points` are None where there are none to gain. `failed` is the message
    of a test that failed.
    """

    kind: str
    source: Markup | str
    outputs: list[Markup] = field(default_factory=list)
    grade_id: str = ""
    score: float = 0
    points: float | None = None
    waiting: bool = False
    failed: str | None = None
    see: str | None = None
    comment: Markup | None = None
    is_code: bool = False

    @property
    def lost(self):
        return 0 if self.points is None or self.waiting else max(0, self.points - self.score)


@dataclass
class Exercise:
    """An exercise in which points were lost, with the parts that lost them."""

    title: str
    parts: list[Part]

    @property
    def lost(self):
        return sum(part.lost for part in self.parts)


class FeedbackPage(Exporter):
    """The exporter that nbgrader uses for feedback."""

    file_extension = ".html"
    output_mimetype = "text/html"

    def from_notebook_node(self, nb, resources=None, **kw):
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        return page_of(nb, resources["nbgrader"], Path(self.config.CourseDirectory.get("root", "."))), resources


def write_pages(lab: str, root: Path, students: list[str]) -> dict:
    """Write ``feedback/STUDENT/LAB/LAB.html`` through nbgrader, on all cores if the class is not small.

    Returns
    -------
    dict
        As of nbgrader's API: ``success``, whether all pages were written, and ``log``.
    """
    chunks = [students[at : at + EACH] for at in range(0, len(students), EACH)]
    workers = min(len(chunks), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    write = functools.partial(_write_some, lab, root)
    if workers < 2:
        results = [write(chunk) for chunk in chunks]
    else:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
            results = list(pool.map(write, chunks))
    every = [result for some in results for result in some]
    return {"success": all(one["success"] for one in every), "log": "".join(one.get("log", "") for one in every)}


def _write_some(lab, root, students):
    from nbgrader.apps.api import NbGraderAPI

    from coursegrader.labs import nbgrader_config

    api = NbGraderAPI(config=nbgrader_config(root))
    return [api.generate_feedback(lab, student, force=True) for student in students]


def page_of(notebook, about: dict, root: Path) -> str:
    """Return the page on a notebook that went through the steps of `c.GenerateFeedback.preprocessors`.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
    about : dict
        nbgrader's resources: ``assignment``, and what `ShowMarks` adds.
    root : pathlib.Path
        The folder of the course, for the titles of the exercises and the address of the site.
    """
    title, headings = sections(about["assignment"], root)
    shown = Shown(functools.partial(address, root=root, local=False))
    parts = [
        shown.part(cell) for cell in notebook.cells if "nbgrader" in cell.metadata or not is_setup_cell(cell.source)
    ]
    exercises = {}
    for part in parts:
        if part.lost:
            name = headings.get(part.grade_id, re.sub(r"-\d+$", "", part.grade_id))
            exercises.setdefault(name, Exercise(name, [])).parts.append(part)
    known = notebook.metadata.get("mlcourse", {})
    return _template().render(
        title=title,
        lab=about["assignment"],
        about=about,
        happened={name: known.get(name) for name in ("repairs", "refused", "stopped")},
        first=sorted(exercises.values(), key=lambda one: -one.lost),
        waiting=sum(part.points - part.score for part in parts if part.waiting),
        again=sum(part.score for part in parts if part.waiting),
        comments=[part for part in parts if part.comment],
        headings=headings,
        parts=parts,
    )


def refusal_page(lab: str, root: Path, name: str, max_score: float, reason: str) -> str:
    """Return the page for a student with this name of whom nothing could be collected."""
    notebook = new_notebook(metadata={"mlcourse": {"refused": reason}})
    return page_of(notebook, {"assignment": lab, "name": name, "score": 0, "max_score": max_score}, root)


class Shown:
    """The cells of one page; all its texts together have the limits of `sanitizer`.

    Parameters
    ----------
    address : callable
        Takes a place in the book, and returns its address, or None.
    """

    def __init__(self, address):
        self.address, self.left = address, {}

    def part(self, cell):
        """Return a cell as the page shows it."""
        if cell.cell_type == "raw":
            return Part("text", self.text(raw_as_markdown(cell.source)))
        if cell.cell_type == "markdown":
            part = Part("answer" if is_solution(cell) else "text", self.text(cell.source, cell.get("attachments")))
        elif is_grade(cell) and not is_solution(cell):
            part = Part("test", Markup(code(cell.source)))
            part.failed, part.see = self.hint(cell.outputs)
        else:
            kind = "answer" if is_solution(cell) else "code"
            part = Part(kind, Markup(code(cell.source)), [self.output(one) for one in cell.outputs], is_code=True)
            if cell.metadata.get("mlcourse", {}).get("as_handed_in"):
                part.outputs.insert(0, Markup("<p class=soft>{}</p>").format(HANDED_IN if cell.outputs else NOT_RUN))
        grader = cell.metadata.get("nbgrader", {})
        part.grade_id = grader.get("grade_id", "")
        if is_grade(cell) and "score" in grader:
            part.score, part.points, part.waiting = grader.score, grader.points, grader.waiting
        if grader.get("comment"):
            part.comment = self.text(grader.comment, left={})
        return part

    def text(self, source, attachments=None, left=None):
        """Return the HTML of a text in Markdown, with headings below those of the page."""
        page = sanitizer.rendered(source, attachments, self.left if left is None else left, mathml)
        return Markup(HEADING.sub(lambda tag: f"{tag[1]}{min(6, int(tag[2]) + 1)}", page))

    def hint(self, outputs):
        """Return the message of a test that failed, and the address of the place in the book that it names."""
        message = next((sanitizer.legible(" ".join("\n".join(one.traceback).split())) for one in outputs), None)
        found = SEE.fullmatch(message or "")
        link = self.address(found["place"]) if found else None
        return (f"{found['says']}.", link) if link else (message, None)

    def output(self, output):
        """Return the HTML of an output."""
        if output.output_type == "stream":
            return _printed(output.text)
        if output.output_type == "error":
            return _printed("\n".join(output.traceback))
        data = output.data
        if "text/html" in data:
            return Markup('<div class="html">{}</div>').format(
                Markup(sanitizer.clean(data["text/html"], left=self.left))
            )
        for kind in PICTURES:
            tag = f'<img alt="What the cell drew" src="data:{kind};base64,{data.get(kind, "")}">'
            picture = sanitizer.clean(tag, left=self.left)
            if kind in data and picture.startswith("<img"):
                return Markup(picture)
        if "text/markdown" in data:
            return Markup('<div class="text">{}</div>').format(self.text(data["text/markdown"]))
        return _printed(data.get("text/plain", "[an output that cannot be shown here]"))


@functools.lru_cache(1024)  # the given cells of a lab are the same on every page
def code(source: str) -> str:
    """Return the HTML of code."""
    return sanitizer.highlighted(source)


def _printed(text):
    return Markup("<pre>{}</pre>").format(Markup(sanitizer.coloured(text)))


@functools.cache
def _template():
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["points"] = lambda number: f"{round(number, 2):g}"
    styles = [("", "default"), ("dark", "github-dark")]
    environment.globals["code_style"] = {
        name: HtmlFormatter(style=style, nobackground=True).get_style_defs(".highlight") for name, style in styles
    }
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
