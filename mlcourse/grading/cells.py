"""What goes to a desk, and what comes back: the cells of a notebook, limits of time, and outputs."""

import dataclasses

MESSAGE_CHARACTERS = 4000


@dataclasses.dataclass
class Cell:
    """A code cell of a notebook: the student's, or a test if it has a `grade_id`."""

    source: str
    grade_id: str | None = None


@dataclasses.dataclass
class Limits:
    """How many seconds things may take.

    Attributes
    ----------
    cell : float
        A cell of the student.
    test : float
        A test cell, with all the calls that it makes.
    total : float
        A notebook.
    question : float
        A call that a test makes, or another question that the box is asked.
    grace : float
        What an answer may be late, before the box counts as lost.
    """

    cell: float = 60
    test: float = 30
    total: float = 600
    question: float = 10
    grace: float = 3

    @property
    def patience(self):
        """How long an examiner can be silent at most, unless it hangs itself."""
        return max(self.cell, self.test + 2 * self.question) + 6 * self.grace


@dataclasses.dataclass
class Examined:
    """What became of a cell: its outputs, and why nothing more is run after it, if so."""

    outputs: list[dict]
    stopped: str | None = None


@dataclasses.dataclass
class Result:
    """What became of a notebook: outputs per cell, seconds, and why it was stopped, if it was.

    A test cell passed if and only if its outputs hold no error. Every test cell has at least one output.
    """

    outputs: list[list[dict]]
    seconds: float = 0.0
    stopped: str | None = None


def result_of(cells: list[Cell], examined: list[Examined], seconds: float) -> Result:
    """Return the result of a notebook of which perhaps not every cell was examined."""
    stopped = examined[-1].stopped if examined else None
    if len(examined) < len(cells) and not stopped:
        stopped = "this check ended with your answer in a way that nothing else can follow"
    rest = [[] if cell.grade_id is None else [failure(f"not run, since {stopped}.")] for cell in cells[len(examined) :]]
    return Result([*(cell.outputs for cell in examined), *rest], seconds, stopped)


def failure(message):
    """Return the output of a test cell that failed with this message."""
    message = message if len(message) <= MESSAGE_CHARACTERS else f"{message[:MESSAGE_CHARACTERS]} …"
    return {"output_type": "error", "ename": "CheckFailed", "evalue": message, "traceback": [message]}
