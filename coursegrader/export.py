"""Write the points of a class as CSV: for a spreadsheet, for Moodle's grade import, for Canvas's gradebook import."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook, Student

from coursegrader import GradingError
from coursegrader.files import write_whole
from coursegrader.people import NOTHING, Person
from coursegrader.result_cache import not_graded
from coursegrader.roster import handed_in_nothing
from coursegrader.scores import one_line, read_scores
from coursegrader.submissions import shown

STYLES = ("spreadsheet", "moodle", "canvas")
IDENTIFIERS = ("Email address", "ID number", "Username")
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # first characters of formulas in spreadsheets, also in full width


@dataclass
class Result:
    """The result of a student in a lab: the points that count, the penalty for lateness, and the graders' comments."""

    points: float
    penalty: float
    comments: str


def export(
    root: Path,
    gradebook: Gradebook,
    to: Path,
    style: str,
    labs: list[str] | None = None,
    *,
    identifier: str = "Email address",
    canvas_ids: dict[str, str] | None = None,
    people: Sequence[Person] = (),
    unfinished: bool = False,
) -> Path:
    """Write the points of the class as CSV, a row for each student.

    The points that count are those of the gradebook less the penalty for lateness, never below 0. The cell is empty if
    a student handed in nothing: an import must not turn "nothing yet" into zero points. The table for a spreadsheet
    says "handed in nothing" of those on the roster.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course; a relative `to` starts there.
    gradebook : nbgrader.api.Gradebook
    to : pathlib.Path
        The file to write.
    style : {"spreadsheet", "moodle", "canvas"}
        - spreadsheet: the student, the points of each lab with its maximum in the heading, their total, the percentage
          of the maxima, and the penalty for lateness. UTF-8 with a byte order mark, which Excel needs.
        - moodle: the `identifier`, then for each lab a column of points and one of feedback, the comments on written
          answers, for Grades > Import > CSV file. Moodle asks what each column is; map both columns of a lab.
        - canvas: Student, ID, SIS User ID, SIS Login ID, Section, a column for each lab, and the row "Points Possible".
          ID is nbgrader's ``lms_user_id``, the others are those of the roster, or else SIS Login ID is the student's
          name in the gradebook; Canvas uses the first of them that it knows, then the name.
    labs : list of str, optional
        Names of the labs, in this order. The default is every lab for which anything was handed in, by name.
    identifier : {"Email address", "ID number", "Username"}
        How Moodle knows the students. The email is that of the gradebook, the others are those of the roster, or else
        the student's name in the gradebook.
    canvas_ids : dict of str to str, optional
        Canvas's number of each assignment, by lab: the heading becomes "LAB (number)". Without it, Canvas looks for an
        assignment by name, and makes a new one if there is none.
    people : sequence of Person
        The roster.
    unfinished : bool, default False
        Write the file although answers still wait to be marked; they count 0.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    GradingError
        If answers wait to be marked, or a lab, a style, an identifier or an email is not known.
    """
    if style not in STYLES:
        raise GradingError(f"there is no style {style!r}: choose {', '.join(STYLES)}")
    if identifier not in IDENTIFIERS:
        raise GradingError(f"Moodle does not know students by {identifier!r}: choose {', '.join(IDENTIFIERS)}")
    labs = labs or sorted(one.name for one in gradebook.assignments if _is_handed_in(one, root))
    if not labs:
        raise GradingError("nothing was handed in for any lab, so there is nothing to export")
    if not unfinished:
        refuse_unfinished(labs, gradebook, root)
    largest = {lab: gradebook.find_assignment(lab).max_score for lab in labs}
    results = {lab: results_of(lab, gradebook) for lab in labs}
    roster = {one.student: one for one in people}
    silent = {(one.student, lab) for lab in labs for one in handed_in_nothing(people, lab, gradebook, root)}
    students = sorted(gradebook.students, key=lambda one: (one.last_name or "", one.first_name or "", one.id))
    if style == "spreadsheet":
        rows = _spreadsheet(students, largest, results, silent)
    elif style == "moodle":
        rows = _moodle(students, largest, results, identifier, roster)
    else:
        rows = _canvas(students, largest, results, canvas_ids or {}, roster)
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([cell(value) for value in row] for row in rows)
    write_whole(root / to, table.getvalue(), "utf-8-sig" if style == "spreadsheet" else "utf-8")
    return root / to


def _is_handed_in(assignment, root):
    return bool(assignment.submissions) or any((root / "submitted").glob(f"*/{assignment.name}"))


def refuse_unfinished(labs, gradebook, root):
    """Refuse a class in which written answers wait to be marked, or submissions to be graded."""
    parts = []
    for lab in labs:
        marks = read_scores(lab, gradebook)
        answers = int((marks.written & marks.waiting).sum())
        waiting = {*marks[~marks.written & marks.waiting].student, *not_graded(lab, root)}
        if answers:
            parts.append(f"{answers} written answer{'' if answers == 1 else 's'} in {lab} to be marked")
        if waiting:
            count = f"{len(waiting)} submission{'' if len(waiting) == 1 else 's'}"
            parts.append(f"{count} in {lab} to be graded, the first of {shown(min(waiting))}")
    if parts:
        raise GradingError(
            f"still waiting: {', '.join(parts)}; finish this with formgrader or `mlcourse grade`, "
            "or export with --unfinished, which counts what waits as 0"
        )


def results_of(lab: str, gradebook: Gradebook) -> dict[str, Result]:
    """Return the result of each student who handed in a lab."""
    results = {}
    for submission in gradebook.find_assignment(lab).submissions:
        penalty = sum(notebook.late_submission_penalty or 0 for notebook in submission.notebooks)
        points = max(0, submission.score - penalty)
        comments = sorted(
            (comment.name, one_line(comment.comment))
            for notebook in submission.notebooks
            for comment in notebook.comments
            if comment.comment
        )
        text = "; ".join(f"{name}: {comment}" for name, comment in comments)
        results[submission.student_id] = Result(points, submission.score - points, text)
    return results


def _spreadsheet(students, largest, results, silent):
    total = sum(largest.values())
    headings = [f"{lab} (of {_number(points)})" for lab, points in largest.items()]
    total_heading = f"Total (of {_number(total)})"
    yield ["Student", "Last name", "First name", "Email", *headings, total_heading, "Percent", "Late penalty"]
    for student in students:
        own = {lab: results[lab].get(student.id) for lab in largest}
        points = sum(one.points for one in own.values() if one)
        yield [
            *(student.id, student.last_name, student.first_name, student.email),
            *(one.points if one else NOTHING if (student.id, lab) in silent else None for lab, one in own.items()),
            *(points, 100 * points / total if total else None, sum(one.penalty for one in own.values() if one)),
        ]


def _moodle(students, largest, results, identifier, roster):
    if identifier == "Email address":
        names = {one.id: one.email for one in students}
    else:
        names = {one.id: _moodle_name(roster.get(one.id, Person(one.id)), identifier) for one in students}
    if missing := [student for student, name in names.items() if not name]:
        if identifier != "Email address":
            raise GradingError(
                f"{len(missing)} on the roster have no {identifier}, the first is {missing[0]}: choose another "
                f"--identifier of {', '.join(IDENTIFIERS)}"
            )
        who = f"{len(missing)} student{' has' if len(missing) == 1 else 's have'}"
        raise GradingError(
            f"{who} no email in the gradebook, the first is {missing[0]}: add it with "
            "`nbgrader db student add ID --email ADDRESS`, or choose another identifier, ID number or Username"
        )
    yield [identifier, *(heading for lab in largest for heading in (lab, f"{lab} (feedback)"))]
    for student in students:
        own = [results[lab].get(student.id) for lab in largest]
        # No words for somebody who handed in nothing: a comment that is imported overrides the grade in Moodle
        pairs = [(one.points, one.comments) if one else (None, None) for one in own]
        yield [names[student.id], *(part for pair in pairs for part in pair)]


def _moodle_name(person, identifier):
    """Return a person's name in Moodle, which is that in the gradebook unless the roster knows better."""
    own = {"ID number": person.id_number, "Username": person.username}
    return own[identifier] or ("" if person.student in (*own.values(), person.email) else person.student)


def _canvas(students, largest, results, canvas_ids, roster):
    headings = [f"{lab} ({canvas_ids[lab]})" if lab in canvas_ids else lab for lab in largest]
    yield ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *headings]
    yield ["    Points Possible", "", "", "", "", *largest.values()]
    for student in students:
        own = [results[lab].get(student.id) for lab in largest]
        known = roster.get(student.id, Person(student.id))
        login = known.username or student.id
        who = [_canvas_name(student), student.lms_user_id, known.id_number, login, known.group]
        yield who + [one.points if one else None for one in own]


def _canvas_name(student: Student):
    return ", ".join(part for part in (student.last_name, student.first_name) if part) or student.id


def cell(value: str | float | None) -> str | float:
    """Return a value for the file: texts are escaped so that no spreadsheet takes them for formulas."""
    if isinstance(value, str):
        # Many spreadsheets end a cell at a semicolon, and read what follows a quotation mark as its text
        value = re.sub(r"""([;\t|\r\n][\s"']*)(?=[=+@＝＋－＠-])""", r"\1'", value)
        return f"'{value}" if value.startswith(FORMULA) else value
    return "" if value is None else _number(value)


def _number(value):
    rounded = round(float(value), 2)
    return int(rounded) if rounded.is_integer() else rounded
