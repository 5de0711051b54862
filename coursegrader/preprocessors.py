"""The course's own steps for nbgrader, enabled in ``nbgrader_config.py``."""

import atexit
import dataclasses
import functools
import re
import textwrap
from pathlib import Path

from nbconvert.filters import strip_ansi
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade
from traitlets import Bool, Dict, Enum, Float, TraitError, Unicode, validate
from traitlets.config import Config

from coursegrader import GradingError, sanitizer
from coursegrader.deadlines import lateness, read_deadlines
from coursegrader.protocol import NOTEBOOK_OUTPUTS, Limits
from coursegrader.result_cache import Index, ResultCache, cells_of, keep_answers, write_outputs
from coursegrader.secret import FILE, secret_of
from coursegrader.submissions import instructor_notebook
from coursegrader.worker import Worker

OUTPUT_CHARACTERS = 100_000  # of a text output
PAGE_CHARACTERS = 1_000_000  # of all outputs of a notebook, without pictures
ANSI_CODES = 1000  # of a text; nbconvert copies the text at each of them
HANDED_IN = "As handed in (no check needs this cell):"
NOT_RUN = "Handed in without an output, and not run (no check needs this cell)."


class GradeInSandbox(NbGraderPreprocessor):
    """Run the student's cells in a sandbox and the test cells outside it, instead of nbgrader's `Execute`."""

    sandbox = Bool(True, help="Whether students' code runs in a sandbox").tag(config=True)
    secret_file = Unicode(FILE, help="The file with the secret on which the data of hidden tests depend").tag(
        config=True
    )
    limits = Dict(
        key_trait=Enum([field.name for field in dataclasses.fields(Limits)]),
        value_trait=Float(),
        help="Limits for a submission, such as {'cell': 120, 'memory': 8}. "
        + "; ".join(f"{one.name}: {one.metadata['what']} ({one.default:g})" for one in dataclasses.fields(Limits)),
    ).tag(config=True)

    @validate("limits")
    def _within_bounds(self, proposal):
        """Refuse limits outside their bounds. NaN fails both comparisons."""
        for one in dataclasses.fields(Limits):
            least, most = one.metadata["least"], one.metadata["most"]
            if not least <= proposal.value.get(one.name, one.default) <= most:
                raise TraitError(
                    f"{one.name} is {proposal.value[one.name]}; take a number from {least:g} to {most:,}, "
                    f"as {one.metadata['what']}"
                )
        return proposal.value

    def preprocess(self, nb, resources):
        root, limits = course_folder(self.config), Limits(**self.limits)
        worker = the_worker(self.sandbox, dataclasses.astuple(limits))
        lab, student = resources["nbgrader"]["assignment"], resources["nbgrader"]["student"]
        source, secret = instructor_notebook(root, lab), secret_of(self.config)
        cells = cells_of(nb, source)
        with Gradebook(resources["nbgrader"]["db_url"]) as gradebook:
            index = Index(gradebook, root, lab, source, limits, self.sandbox)
            met = index.mark(student, secret)
            index.begin(student, met)
        words, results = secret.words(lab, met["draw"]), ResultCache(root, limits, self.sandbox)
        result = results.find(cells, words)
        if result is None:
            result = results.store(cells, words, worker.grade(cells, words))
        if result["late"]:
            self.log.error("%s: a limit of time decided about a cell: type mlcourse grade %s", student, lab)
        write_outputs(nb, result)
        nb.metadata.mlcourse |= {**met, "rest": None if result["late"] else met["rest"]}
        return nb, resources


class KeepAnswers(NbGraderPreprocessor):
    """Store, after the points, which answers a person will mark."""

    def preprocess(self, nb, resources):
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            keep_answers(gradebook, about["assignment"], about["student"], nb)
        return nb, resources


def course_folder(config: Config) -> Path:
    """Return the folder of the course."""
    return Path(config.CourseDirectory.get("root", "."))


def limits_of(config: Config, changed: dict[str, float] | None = None) -> Limits:
    """Return the limits of a submission: ``c.GradeInSandbox.limits`` of a configuration, updated with `changed`."""
    try:
        step = GradeInSandbox(config=config)
        step.limits |= changed or {}
    except TraitError as error:
        raise GradingError(f"the limits of a submission are not well formed: {' '.join(str(error).split())}") from None
    return Limits(**step.limits)


@functools.cache
def the_worker(sandbox, limits):
    """Return the one worker of this process with these limits."""
    worker = Worker(sandbox, **dataclasses.asdict(Limits(*limits)))
    atexit.register(worker.close)
    return worker


class ShowMarks(NbGraderPreprocessor):
    """Put points and comments of the gradebook into a notebook, like nbgrader's `GetGrades`, with few queries.

    Each graded cell also says whether it waits for a person to mark it, and the resources have the student's name.
    """

    def preprocess(self, nb, resources):
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            notebook = gradebook.find_submission_notebook(about["notebook"], about["assignment"], about["student"])
            # Each name of a grade or a comment would be one more query
            cells = [*notebook.notebook.grade_cells, *notebook.notebook.solution_cells, *notebook.notebook.task_cells]
            names = {cell.id: cell.name for cell in cells}
            grades = {names[one.cell_id]: one for one in notebook.grades}
            comments = {names[one.cell_id]: one.comment for one in notebook.comments}
            for cell in (cell for cell in nb.cells if "nbgrader" in cell.metadata):
                grader = cell.metadata.nbgrader
                if grade := grades.get(grader.grade_id):
                    grader |= {"score": grade.score, "points": grade.max_score, "waiting": grade.needs_manual_grade}
                grader["comment"] = comments.get(grader.grade_id)
            penalty = notebook.late_submission_penalty or 0
            about |= {"score": notebook.score - penalty, "max_score": notebook.max_score}
            root = course_folder(self.config)
            about["late"] = lateness(notebook, notebook.score, read_deadlines(root), root, self.config).sentence()
            student = notebook.student
            about["name"] = f"{student.first_name or ''} {student.last_name or ''}".strip() or student.id
        return nb, resources


class ShowHintsOnly(NbGraderPreprocessor):
    """Reduce the output of a failed test to its hint, so that feedback shows no line of a hidden test."""

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "code" and is_grade(cell):
            cell.outputs = [output for output in cell.outputs if output.output_type == "error"]
            for output in cell.outputs:
                sentence = output.evalue or output.ename
                output.traceback = textwrap.wrap(sentence, width=100, break_long_words=False, break_on_hyphens=False)
        return cell, resources


class DrawAnew(NbGraderPreprocessor):
    """Start a new draw: later submissions do not get the hidden data that this feedback mentions."""

    def preprocess(self, nb, resources):
        draw = nb.metadata.get("mlcourse", {}).get("draw")
        if isinstance(draw, int):
            secret_of(self.config).shown(resources["nbgrader"]["assignment"], draw)
        return nb, resources


class SayAsHandedIn(NbGraderPreprocessor):
    """Mark the output of a cell that no check needs as the one that was handed in."""

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "code" and cell.metadata.get("mlcourse", {}).get("as_handed_in"):
            sentence = HANDED_IN if cell.outputs else NOT_RUN
            cell.outputs.insert(0, new_output("display_data", {"text/plain": sentence}))
        return cell, resources


class ShowWithinLimits(NbGraderPreprocessor):
    """Cut the outputs of a notebook to a size that nbconvert and a browser can handle."""

    def preprocess(self, nb, resources):
        self.left, outputs_left = PAGE_CHARACTERS, NOTEBOOK_OUTPUTS
        for cell in (cell for cell in nb.cells if cell.get("outputs")):
            if len(cell.outputs) > (outputs_left or 1):
                note = new_output(
                    "display_data", {"text/plain": f"[more than {NOTEBOOK_OUTPUTS:,} outputs are not shown]"}
                )
                cell.outputs = [*cell.outputs[: outputs_left or 1], note]
            outputs_left = max(0, outputs_left - len(cell.outputs))
        for output in (output for cell in nb.cells for output in cell.get("outputs", [])):
            if output.output_type == "stream":
                output.text = self.fitted(output.text)
            elif output.output_type == "error":
                output.traceback = [self.fitted("\n".join(output.traceback))]
            else:
                self.fit_display(output.data)
        return nb, resources

    def fit_display(self, data):
        page = data.get("text/html", "")
        # Without its styles and check boxes, scikit-learn's HTML of a model adds nothing to the text
        if len(page) > min(sanitizer.HTML_CHARACTERS, self.left) or "sk-top-container" in page:
            del data["text/html"]
            data.setdefault("text/plain", "[a table or the like that is too long to be shown]")
        if "text/latex" in data:  # nbconvert would show it as it is
            data["text/markdown"] = data.pop("text/latex")
        for kind in [kind for kind in data if kind.startswith("text/")]:
            most = sanitizer.HTML_CHARACTERS if kind == "text/html" else OUTPUT_CHARACTERS
            data[kind] = self.fitted(data[kind], most)

    def fitted(self, text, most=OUTPUT_CHARACTERS):
        """Cut a text to the room that is left."""
        text = sanitizer.shortened(text, min(most, self.left))
        self.left = max(0, self.left - len(text))
        # Without the codes that were within others, too
        return strip_ansi(text).replace("\x1b", "") if text.count("\x1b") > ANSI_CODES else text


class ShowRawAsText(NbGraderPreprocessor):
    """Show a raw cell as Jupyter does, as plain text: nbconvert would put it on the page outside of any frame."""

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "raw":
            cell.cell_type, cell.source = "markdown", raw_as_markdown(cell.source)
        return cell, resources


def raw_as_markdown(source: str) -> str:
    """Return the Markdown that shows a raw cell as it was typed."""
    return re.sub("^", " " * 4, source, flags=re.MULTILINE)
