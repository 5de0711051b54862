"""Read the marks of a lab from nbgrader's gradebook, and further results from the autograded notebooks."""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from nbgrader.api import (
    Assignment,
    BaseCell,
    Grade,
    Gradebook,
    MissingEntry,
    Notebook,
    SolutionCell,
    SubmittedAssignment,
    SubmittedNotebook,
)

from coursegrader import GradingError

LONGEST_TEXT = 500


@dataclass
class Autograded:
    """The content of an autograded notebook besides the marks; every part may be missing.

    `hints` holds the message of every test cell that raised, `code` the source of every solution cell, both by
    grade_id. `seconds` is the time that grading took, `draw` the number of the draw of hidden data, `handed_in` hashes
    of the files that were graded, `rest` the hash of all else that the grading depended on.
    """

    seconds: float | None = None
    repairs: list[str] = field(default_factory=list)
    refused: str | None = None
    stopped: str | None = None
    draw: int | None = None
    handed_in: str | None = None
    rest: str | None = None
    hints: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)


def read_scores(lab: str, gradebook: Gradebook) -> pd.DataFrame:
    """Return every mark of a lab.

    Parameters
    ----------
    lab : str
        Name of the lab, as in the gradebook.
    gradebook : nbgrader.api.Gradebook

    Returns
    -------
    DataFrame
        One row for each submission and graded cell, sorted by student, with the columns ``student``, ``grade_id``,
        ``written`` (bool: a person marks it), ``max_score``, ``automatic`` (points of the grader, NaN where it gave
        none), ``score`` (the points that count) and ``waiting`` (bool: not marked yet).

    Raises
    ------
    GradingError
        If the gradebook has no such lab.
    """
    try:
        assignment = gradebook.find_assignment(lab)
    except MissingEntry:
        known = ", ".join(sorted(one.name for one in gradebook.assignments)) or "no lab at all"
        raise GradingError(f"the gradebook has no lab {lab!r}, it has {known}: check the name") from None
    by_hand = {name for (name,) in _cells_of(gradebook, assignment, SolutionCell.name, SolutionCell)}
    rows = (
        gradebook.db.query(
            SubmittedAssignment.student_id,
            BaseCell.name,
            BaseCell.type,
            Grade.max_score,
            Grade.auto_score,
            Grade.score,
            Grade.needs_manual_grade,
        )
        .select_from(Grade)
        .join(SubmittedNotebook, Grade.notebook_id == SubmittedNotebook.id)
        .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(BaseCell, Grade.cell_id == BaseCell.id)
        .filter(SubmittedAssignment.assignment_id == assignment.id)
        .order_by(SubmittedAssignment.student_id)
    )
    columns = ["student", "grade_id", "type", "max_score", "automatic", "score", "waiting"]
    marks = pd.DataFrame([tuple(row) for row in rows], columns=columns)
    marks.insert(2, "written", marks.grade_id.isin(by_hand) | (marks.pop("type") == "TaskCell"))
    return marks.astype({"max_score": float, "automatic": float, "score": float, "waiting": bool})


def automatic_points(lab: str, gradebook: Gradebook) -> dict[str, dict[str, float | None]]:
    """Return the points that the grader gave to each student, by student and grade_id; None where a person marks."""
    points = {}
    for one in read_scores(lab, gradebook).itertuples():
        points.setdefault(one.student, {})[one.grade_id] = None if math.isnan(one.automatic) else one.automatic
    return points


def _cells_of(gradebook, assignment, column, kind):
    return (
        gradebook.db.query(column)
        .select_from(kind)
        .join(Notebook, kind.notebook_id == Notebook.id)
        .join(Assignment, Notebook.assignment_id == Assignment.id)
        .filter(Assignment.id == assignment.id)
    )


def read_autograded(lab: str, student: str, root: Path) -> Autograded | None:
    """Read ``autograded/STUDENT/LAB/LAB.ipynb`` below `root`; return None if it cannot be read.

    The notebook may be malformed: values without the expected type count as missing.
    """
    path = root / "autograded" / student / lab / f"{lab}.ipynb"
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(_mapping(notebook).get("cells"), list):
        return None
    known = _mapping(_mapping(notebook.get("metadata")).get("mlcourse"))
    seconds = known.get("seconds")
    autograded = Autograded(
        seconds=float(seconds) if type(seconds) in (int, float) and 0 <= seconds < 1e9 else None,
        repairs=[one_line(repair) for repair in _sequence(known.get("repairs")) if isinstance(repair, str)],
        refused=_text(known.get("refused")),
        stopped=_text(known.get("stopped")),
        draw=known["draw"] if type(known.get("draw")) is int else None,
        handed_in=_text(known.get("handed_in")),
        rest=_text(known.get("rest")),
    )
    for cell in map(_mapping, notebook["cells"]):
        grader = _mapping(_mapping(cell.get("metadata")).get("nbgrader"))
        grade_id = grader.get("grade_id")
        if cell.get("cell_type") != "code" or not isinstance(grade_id, str):
            continue
        if grader.get("solution"):
            autograded.code[grade_id] = joined(cell.get("source"))
        elif grader.get("grade") and (hint := _hint(cell)):
            autograded.hints[grade_id] = hint
    return autograded


def sections(lab: str, root: Path) -> tuple[str, dict[str, str]]:
    """Return the title of a lab, and the title of the section of each cell with a grade_id, in order.

    They are those of ``source/`` or else ``labs/`` below `root`; without both, the title is the lab's name.

    Raises
    ------
    GradingError
        If the notebook there cannot be read.
    """
    title, section, found = lab, None, {}
    path = f"{lab}/{lab}.ipynb"
    for cell in notebook_cells(root / "source" / path) or notebook_cells(root / "labs" / path):
        source, grader = joined(cell["source"]), cell["metadata"].get("nbgrader", {})
        if cell["cell_type"] == "markdown" and not grader.get("solution"):
            for heading in re.findall(r"^# (.+)", source, re.MULTILINE):
                title = heading
            for heading in re.findall(r"^## (.+)", source, re.MULTILINE):
                section = heading
        if section and grader.get("grade_id"):
            found[grader["grade_id"]] = section
    return title, found


def notebook_cells(path: Path) -> list[dict]:
    """Return the cells of a notebook of the course, none if there is no such file.

    Raises
    ------
    GradingError
        If it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    except (OSError, ValueError, TypeError, KeyError):
        raise GradingError(f"{path} cannot be read as a notebook: make it again with `make labs`") from None


def one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return a text on one line, with at most `longest` characters, unprintable ones replaced."""
    line = " ".join(text.split())
    line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
    return line if len(line) <= longest else f"{line[:longest]} …"


def joined(source) -> str:
    """Return the source of a cell, which a notebook file has as one text or as a list of lines."""
    return source if isinstance(source, str) else "".join(line for line in _sequence(source) if isinstance(line, str))


def _hint(cell):
    for output in map(_mapping, _sequence(cell.get("outputs"))):
        if output.get("output_type") == "error":
            return _text(output.get("evalue")) or _text(output.get("ename"))
    return None


def _text(value):
    return one_line(value) or None if isinstance(value, str) else None


def _mapping(value):
    return value if isinstance(value, dict) else {}


def _sequence(value):
    return value if isinstance(value, list) else []
