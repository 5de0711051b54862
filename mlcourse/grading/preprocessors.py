"""The course's own steps in nbgrader's work, named in ``nbgrader_config.py``."""

import atexit
import functools
import re
import textwrap
from pathlib import Path

import bleach
from nbconvert.exporters import HTMLExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter
from nbformat.v4 import new_markdown_cell
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade
from traitlets import Bool, Unicode

from mlcourse.grading.desk import Desk
from mlcourse.grading.results import Results, cells_of, write_outputs
from mlcourse.grading.secret import FILE, secret_of
from mlcourse.grading.submissions import instructor_notebook

# Headings, tables and pictures come on top of what bleach lets through by default
TAGS = bleach.ALLOWED_TAGS | {"br", "del", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "p", "pre", "s"}
TAGS |= {"caption", "span", "sub", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
ATTRIBUTES = {
    "*": ["class", "id", "title"],
    "a": ["href"],
    "img": ["src", "alt", "width", "height"],
    "td": ["colspan", "rowspan"],
    "th": ["colspan", "rowspan"],
}
WITHOUT_TEXT = re.compile(r"<img\b(?![^>]*\salt=)")
NO_TEXT = "No description has been provided for this image"


class GradeInBox(NbGraderPreprocessor):
    """Run the student's cells in a box and the test cells outside, in place of nbgrader's own `Execute`."""

    sandbox = Bool(True, help="Whether students' code runs in a box").tag(config=True)
    secret_file = Unicode(FILE, help="The file with the secret on which the data of hidden tests depend").tag(
        config=True
    )

    def preprocess(self, nb, resources):
        root, desk, cells = Path(self.coursedir_root), the_desk(self.sandbox), cells_of(nb)
        lab, secret = resources["nbgrader"]["assignment"], secret_of(self.config)
        draw = secret.draw(lab)
        words, results = secret.words(lab, draw), Results(root, desk)
        result = results.find(cells, words)
        if result is None:
            desk.reference = cells_of(instructor_notebook(root, lab))
            result = results.work_out(cells, words)
        write_outputs(nb, result)
        nb.metadata.mlcourse["draw"] = draw
        return nb, resources

    @property
    def coursedir_root(self):
        return self.config.CourseDirectory.get("root", ".")


@functools.cache
def the_desk(sandbox):
    """Return the one desk of this process."""
    desk = Desk(sandbox)
    atexit.register(desk.close)
    return desk


class ShowHintsOnly(NbGraderPreprocessor):
    """Leave of a failed test just its sentence, so that a feedback page shows no line of a hidden test."""

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "code" and is_grade(cell):
            cell.outputs = [output for output in cell.outputs if output.output_type == "error"]
            for output in cell.outputs:
                sentence = output.evalue or output.ename
                output.traceback = textwrap.wrap(sentence, width=100, break_long_words=False, break_on_hyphens=False)
        return cell, resources


class DrawAnew(NbGraderPreprocessor):
    """Let whoever hands in again meet other hidden data than those that this feedback speaks of."""

    def preprocess(self, nb, resources):
        draw = nb.metadata.get("mlcourse", {}).get("draw")
        if isinstance(draw, int):
            secret_of(self.config).shown(resources["nbgrader"]["assignment"], draw)
        return nb, resources


class SayWhatHappened(NbGraderPreprocessor):
    """Say on the feedback page what was repaired in a notebook, and why it was refused or stopped."""

    def preprocess(self, nb, resources):
        happened = nb.metadata.get("mlcourse", {})
        sentences = [*happened.get("repairs", [])]
        if happened.get("refused"):
            sentences.append(f"This notebook could not be graded: {happened['refused']}")
        if happened.get("stopped"):
            sentences.append(f"From one cell on, nothing was run, since {happened['stopped']}.")
        if sentences:
            items = "\n".join(f"- {one_line(sentence)}" for sentence in sentences)
            nb.cells.insert(0, new_markdown_cell(f"**Before you read on**\n\n{items}"))
        return nb, resources


class WriteFeedback(HTMLExporter):
    """Write a feedback page as nbconvert does, but without reading it again, which takes longer than to write it.

    nbconvert does that for pictures without a text, and for a template that nbgrader does not use.
    """

    def from_notebook_node(self, nb, resources=None, **options):
        resources = self._init_resources(resources)
        self.register_filter("highlight_code", Highlight2HTML(parent=self))
        self.register_filter("filter_data_type", WidgetsDataTypeFilter(self._nb_metadata, resources, parent=self))
        page, resources = super(HTMLExporter, self).from_notebook_node(nb, resources, **options)
        return WITHOUT_TEXT.sub(f'<img alt="{NO_TEXT}"', page), resources


def one_line(sentence):
    """Return a sentence as plain text for Markdown, since it may hold the name of a student's file."""
    return re.sub(r"([\\`*_{}\[\]<>#|$])", r"\\\1", " ".join(sentence.split()))


def clean(page: str) -> str:
    """Leave of a piece of a page what can be read, and nothing that runs in the reader's browser."""
    page = re.sub(r"<style\b.*?</style>", "", str(page), flags=re.DOTALL | re.IGNORECASE)
    return bleach.clean(page, tags=TAGS, attributes=ATTRIBUTES, protocols={*bleach.ALLOWED_PROTOCOLS, "data"})
