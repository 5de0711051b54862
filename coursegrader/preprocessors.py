"""The course's own steps for nbgrader, enabled in ``nbgrader_config.py``."""

import atexit
import dataclasses
import functools
import re
import textwrap
from pathlib import Path

from nbconvert.filters import strip_ansi
from nbformat.v4 import new_markdown_cell, new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade
from traitlets import Bool, Dict, Enum, Float, TraitError, Unicode, validate
from traitlets.config import Config

from coursegrader import GradingError, sanitizer
from coursegrader.deadlines import lateness, read_deadlines
from coursegrader.protocol import NOTEBOOK_OUTPUTS, Limits
from coursegrader.result_cache import Index, ResultCache, cells_of, write_outputs
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
        met = Index(root, lab, source, limits).mark(student, secret)
        words, results = secret.words(lab, met["draw"]), ResultCache(root, limits)
        result = results.find(cells, words)
        if result is None:
            result = results.store(cells, words, worker.grade(cells, words))
        if result["late"]:
            self.log.error("%s: a limit of time decided about a cell: type mlcourse grade %s", student, lab)
        write_outputs(nb, result)
        nb.metadata.mlcourse |= {"draw": met["draw"], "handed_in": met["handed_in"]}
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


class SayWhatHappened(NbGraderPreprocessor):
    """Say on the feedback page what was repaired in a notebook, why it was refused or stopped, and that it was late."""

    def preprocess(self, nb, resources):
        happened = nb.metadata.get("mlcourse", {})
        sentences = [*happened.get("repairs", [])]
        if happened.get("refused"):
            sentences.append(f"This notebook could not be graded: {happened['refused']}")
        if happened.get("stopped"):
            sentences.append(f"From one cell on, nothing was run, since {happened['stopped']}.")
        if late := self.lateness(resources["nbgrader"]):
            sentences.append(late)
        if sentences:
            items = "\n".join(f"- {one_line(sentence)}" for sentence in sentences)
            nb.cells.insert(0, new_markdown_cell(f"**Before you read on**\n\n{items}"))
        return nb, resources

    def lateness(self, names):
        """Return a sentence if the submission was late."""
        root = course_folder(self.config)
        with Gradebook(names["db_url"]) as gradebook:
            notebook = gradebook.find_submission_notebook(names["notebook"], names["assignment"], names["student"])
            return lateness(notebook, notebook.score, read_deadlines(root), root, self.config).sentence()


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
        for kind in [kind for kind in data if kind.startswith("text/")]:
            most = sanitizer.HTML_CHARACTERS if kind == "text/html" else OUTPUT_CHARACTERS
            data[kind] = self.fitted(data[kind], most)

    def fitted(self, text, most=OUTPUT_CHARACTERS):
        """Cut a text to the room that is left."""
        text = sanitizer.shortened(text, min(most, self.left))
        self.left = max(0, self.left - len(text))
        return strip_ansi(text) if text.count("\x1b") > ANSI_CODES else text


class ShowRawAsText(NbGraderPreprocessor):
    """Show a raw cell as Jupyter does, as plain text: nbconvert would put it on the page outside of any frame."""

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "raw":
            cell.cell_type, cell.source = "markdown", textwrap.indent(cell.source, " " * 4, lambda line: True)
        return cell, resources


def one_line(sentence):
    """Escape a sentence for Markdown: it may contain the name of a student's file."""
    text = re.sub(r"([`*_{}\[\]<>#|$])|(\\+)", lambda found: f"\\{found[1]}" if found[1] else f"`{found[2]}`", sentence)
    return " ".join(text.split())
