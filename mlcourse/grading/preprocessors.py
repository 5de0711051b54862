"""The course's own steps in nbgrader's work, named in ``nbgrader_config.py``."""

import atexit
import functools
import re
import textwrap

import bleach
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade
from traitlets import Bool

from mlcourse.grading.desk import Desk
from mlcourse.grading.results import Results, cells_of, write_outputs

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


class GradeInBox(NbGraderPreprocessor):
    """Run the student's cells in a box and the test cells outside, in place of nbgrader's own `Execute`."""

    sandbox = Bool(True, help="Whether students' code runs in a box").tag(config=True)

    def preprocess(self, nb, resources):
        results = Results(self.coursedir_root, the_desk(self.sandbox))
        cells = cells_of(nb)
        write_outputs(nb, results.find(cells) or results.work_out(cells))
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


def clean(page: str) -> str:
    """Leave of a piece of a page what can be read, and nothing that runs in the reader's browser."""
    page = re.sub(r"<style\b.*?</style>", "", str(page), flags=re.DOTALL | re.IGNORECASE)
    return bleach.clean(page, tags=TAGS, attributes=ATTRIBUTES, protocols={*bleach.ALLOWED_PROTOCOLS, "data"})
