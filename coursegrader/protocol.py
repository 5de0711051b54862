"""The messages to and from a worker: the cells of a notebook, its limits, and outputs.

The trusted process reads the messages of the sandboxes here: JSON of limited size in a fixed form. A test cell passes
or fails; a student's cell gives texts and pictures.
"""

import dataclasses
import json
from collections.abc import Sequence

from coursegrader.pictures import PAGE_PIXELS, PICTURE_TYPES, picture

MESSAGE_CHARACTERS = 4000
OUTPUT_BYTES = 8 * 2**20  # of a cell, as JSON
MOST_OUTPUTS = 1000  # of a cell
NOTEBOOK_OUTPUTS = 2000  # of all cells; a cell may always have one
CUT_OFF = "[the rest was cut off]\n"
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines, which writes a notebook, ends a line
SHOWN = ("text/plain", "text/html", "text/markdown", "text/latex", "image/png", "image/jpeg")
DAY = 24 * 60 * 60
OUTPUTS = {
    "stream": {"name": [str], "text": [str]},
    "display_data": {"data": [dict], "metadata": [dict]},
    "execute_result": {"data": [dict], "metadata": [dict], "execution_count": [int, type(None)]},
    "error": {"ename": [str], "evalue": [str], "traceback": [list]},
}


class Malformed(Exception):
    """A message that the reader does not accept, or a value that the writer cannot write."""


@dataclasses.dataclass
class Cell:
    """A code cell of a notebook: the student's, or a test if it has a `grade_id`.

    A cell with a list `defers` runs only if a name in that list is missing.
    """

    source: str
    grade_id: str | None = None
    defers: list[str] | None = None


def limit(default, least, most, what):
    """Return a field of `Limits` between `least` and `most`."""
    return dataclasses.field(default=default, metadata={"least": least, "most": most, "what": what})


@dataclasses.dataclass
class Limits:
    """The limits of a submission. `coursegrader.preprocessors.GradeInSandbox.limits` sets them."""

    cell: float = limit(60, 0.1, DAY, "seconds for a cell of the student")
    test: float = limit(30, 0.1, DAY, "seconds for a test cell with all the calls that it makes")
    call: float = limit(10, 0.1, DAY, "seconds for a call of a student's function")
    total: float = limit(600, 1, DAY, "seconds for a notebook")
    grace: float = limit(3, 0.5, 600, "seconds before a sandbox that does not answer is declared dead")
    memory: float = limit(4, 0.5, 1024, "GB of memory for all processes of a submission together")
    processes: float = limit(128, 8, 10_000, "processes of a submission")
    output: float = limit(20_000_000, 100, 1_000_000_000, "characters of what all cells of a notebook show")

    @property
    def patience(self):
        """Seconds of silence after which a test runner counts as hanging."""
        return max(self.cell, self.test + 2 * self.call) + 6 * self.grace

    @property
    def memory_bytes(self):
        """The memory limit in bytes: whole megabytes, since the kernel counts in pages."""
        return int(self.memory * 2**10) * 2**20


@dataclasses.dataclass
class CellResult:
    """The result of a cell: its outputs, why nothing runs after it, if so, and whether a time limit decided it."""

    outputs: list[dict]
    stopped: str | None = None
    late: bool = False


@dataclasses.dataclass
class NotebookResult:
    """The result of a notebook: outputs per cell, seconds, and why it was stopped, if it was.

    A test cell passed if and only if its outputs contain no error. Every test cell has at least one output. The outputs
    of a deferred cell are None. `late` says that a time limit decided a result: another run may differ.
    """

    outputs: list[list[dict] | None]
    seconds: float = 0.0
    stopped: str | None = None
    late: bool = False


def result_of(cells: list[Cell], results: list[CellResult], seconds: float) -> NotebookResult:
    """Combine the results of the cells into that of the notebook; the last ones may be missing."""
    stopped = results[-1].stopped if results else None
    late = any(cell.late for cell in results)
    if len(results) < len(cells) and not stopped:
        stopped, late = "this check was ended by your answer, so nothing after it could run", True
    rest = [[] if cell.grade_id is None else [failure(f"not run, since {stopped}.")] for cell in cells[len(results) :]]
    outputs = [*(cell.outputs for cell in results), *rest]
    outputs = [None if cell.defers is not None else some for cell, some in zip(cells, outputs, strict=True)]
    return NotebookResult(outputs, seconds, stopped, late)


def failure(message):
    """Return the output of a test cell that failed with this message."""
    message = message if len(message) <= MESSAGE_CHARACTERS else f"{message[:MESSAGE_CHARACTERS]} …"
    return {"output_type": "error", "ename": "CheckFailed", "evalue": message, "traceback": [message]}


# Messages to and from a test runner


def notebook(cells: list[Cell], secret: Sequence[int], limits: Limits) -> bytes:
    """Return the text that tells a test runner what to run."""
    told = {"cells": list(map(dataclasses.asdict, cells)), "secret": list(secret)}
    return json.dumps({**told, "limits": dataclasses.asdict(limits)}).encode()


def read_notebook(text: bytes) -> tuple[list[Cell], tuple[int, ...], Limits]:
    """Parse a message of `notebook`."""
    told = json.loads(text)
    return [Cell(**cell) for cell in told["cells"]], tuple(told["secret"]), Limits(**told["limits"])


def verdict(cell: Cell, result: CellResult) -> bytes:
    """Return the message of a test runner on the result of a cell."""
    said = {"cell": cell.grade_id, "stopped": result.stopped, "late": result.late}
    if cell.grade_id is None:
        said["outputs"] = result.outputs
    else:
        [output] = result.outputs
        said["passed"] = output["output_type"] == "stream"
        said["says"] = output["text"] if said["passed"] else output["evalue"]
    # Replace what UTF-8 cannot encode: the notebook could not be written
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")


def read_verdict(cell: Cell, text: bytes) -> CellResult:
    """Parse a test runner's message on a cell. Its process is not trusted.

    Parameters
    ----------
    cell : Cell
        The cell that comes next.
    text : bytes

    Returns
    -------
    CellResult

    Raises
    ------
    Malformed
        If the text has another form, or names another cell.
    """
    said = parsed(text)
    form = {"cell": type(cell.grade_id), "stopped": (str, type(None)), "late": bool}
    form |= {"outputs": list} if cell.grade_id is None else {"passed": bool, "says": str}
    if (
        type(said) is not dict
        or said.keys() != form.keys()
        or not all(isinstance(said[key], of) for key, of in form.items())
        or said["cell"] != cell.grade_id
    ):
        raise Malformed("the test runner says something that is not well formed")
    stopped = said["stopped"] and said["stopped"][:MESSAGE_CHARACTERS]
    if cell.grade_id is None:
        return CellResult(checked_outputs(said["outputs"]), stopped, said["late"])
    if said["passed"]:
        output = {"output_type": "stream", "name": "stdout", "text": said["says"][:MESSAGE_CHARACTERS]}
    else:
        output = failure(said["says"])
    return CellResult([output], stopped, said["late"])


def parsed(text: bytes) -> object:
    """Parse JSON of limited size."""
    if len(text) > OUTPUT_BYTES:
        raise Malformed(f"outputs of more than {OUTPUT_BYTES // 2**20} MB")
    try:
        said = json.loads(text)
        # JSON can encode single surrogates, with which the notebook could not be written
        json.dumps(said, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Malformed("a message that is not well formed") from None
    return said


def checked_outputs(outputs: object) -> list[dict]:
    """Return the outputs of a student's cell; raise `Malformed` if they are not of nbformat's form.

    A display keeps only the kinds that are shown, pictures as `picture` returns them, and no metadata.
    """
    # Not isinstance: a proxy may pass for something else
    if type(outputs) is not list or len(outputs) > MOST_OUTPUTS or not all(type(output) is dict for output in outputs):
        raise Malformed("outputs that are not well formed")
    for output in outputs:
        kind = output.get("output_type")
        shape = OUTPUTS[kind] if type(kind) is str and kind in OUTPUTS else {}
        lines = output.get("traceback", [])
        if (
            output.keys() != {"output_type", *shape}
            or not all(type(output[key]) in types for key, types in shape.items())
            or output.get("name", "stdout") not in ("stdout", "stderr")
            or not all(type(line) is str for line in lines)
        ):
            raise Malformed("an output that is not well formed")
        if "data" in output:
            shown = {key: output["data"][key] for key in SHOWN if type(output["data"].get(key)) is str}
            pictures = {kind: picture(kind, shown.pop(kind)) for kind in PICTURE_TYPES if kind in shown}
            output["data"] = shown | {kind: one.data for kind, one in pictures.items() if one}
            output["metadata"] = {}
        if "execution_count" in output:
            output["execution_count"] = None  # the cell has the number
    return outputs


class OutputBudget:
    """The numbers of characters and pixels that a notebook may show; the rest is cut off, cell by cell."""

    def __init__(self, characters: float = Limits.output):
        self.left, self.outputs_left, self.pixels_left = characters, NOTEBOOK_OUTPUTS, PAGE_PIXELS

    def fitted(self, outputs: list[dict]) -> list[dict]:
        """Return outputs if there is room for them, else a line that says that they were cut off."""
        size = sum(map(size_of, outputs))
        area = sum(map(area_of, outputs))
        if size > self.left or area > self.pixels_left or len(outputs) > max(1, self.outputs_left):
            return [{"output_type": "stream", "name": "stderr", "text": CUT_OFF}]
        self.left -= size
        self.outputs_left -= len(outputs)
        self.pixels_left -= area
        return outputs


def area_of(output):
    """Return the number of pixels of the pictures that an output shows."""
    data = output.get("data", {})
    pictures = (picture(kind, data[kind]) for kind in PICTURE_TYPES if kind in data)
    return sum(one.pixels for one in pictures if one)


def size_of(thing):
    """Return the number of characters that outputs take in a notebook file, where each part and line takes 20 more."""
    if isinstance(thing, dict):
        return sum(20 + size_of(value) for value in thing.values())
    if isinstance(thing, list):
        return sum(20 + size_of(value) for value in thing)
    if not isinstance(thing, str):
        return 0
    return len(json.dumps(thing, ensure_ascii=False)) + 20 * sum(map(thing.count, LINE_ENDS))
