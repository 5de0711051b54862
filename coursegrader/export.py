"""Write the points of a class as CSV: for a spreadsheet, for Moodle's grade import, for Canvas's gradebook import."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from nbgrader.api import Gradebook, Student
from traitlets.config import Config

from coursegrader import GradingError
from coursegrader.files import write_whole
from coursegrader.people import NOTHING, Person
from coursegrader.standing import Class, classes, labs_handed_in, names_of, refuse_unfinished
from coursegrader.tables import cell, for_moodle, number

STYLES = ("spreadsheet", "moodle", "canvas")
IDENTIFIERS = ("Email address", "ID number", "Username")


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
    config: Config | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Write the points of the class as CSV, a row for each student.

    The points that count are those of the gradebook less the penalty for lateness, never below 0. The cell is empty if
    a student handed in nothing: an import must not turn "nothing yet" into zero points. The table for a spreadsheet
    says "handed in nothing" of those on the roster. With a roster, the tables for Moodle and Canvas have rows for its
    people alone: Moodle refuses a table with a name that it does not know.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course; a relative `to` starts there.
    gradebook : nbgrader.api.Gradebook
    to : pathlib.Path
        The file to write.
    style : {"spreadsheet", "moodle", "canvas"}
        - spreadsheet: the student, the points of each lab with its maximum in the heading, their total, the percentage
          of the maxima, and the penalty for lateness. A lab with a due date has two more columns: the points before
          the penalty, and how late it was. UTF-8 with a byte order mark, which Excel needs.
        - moodle: the `identifier`, then for each lab a column of points and one of feedback, a sentence on lateness and
          the comments on written answers, for Grades > Import > CSV file. Moodle asks what each column is; map both
          columns of a lab.
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
        Write the file although answers still wait to be marked; they count 0, or the points of before.
    config : traitlets.config.Config, optional
        nbgrader's configuration, which may set the traits of `coursegrader.deadlines.LatePenalty`.
    tell : callable
        Called with a sentence on who was refused, who lost points for lateness, and what still waits.

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
    of_labs = classes(labs or labs_handed_in(gradebook, root), gradebook, root, people, config)
    if not unfinished:
        refuse_unfinished(of_labs)
    roster = {one.student: one for one in people}
    strangers = {one.student: one for of in of_labs for one in of.standings if roster and one.student not in roster}
    rows_of = {*roster, *(strangers if style == "spreadsheet" else ())}
    students = [one for one in gradebook.students if one.id in rows_of or not roster]
    students.sort(key=lambda one: (one.last_name or "", one.first_name or "", one.id))
    if style == "spreadsheet":
        rows = _spreadsheet(students, of_labs)
    elif style == "moodle":
        rows = _moodle(students, of_labs, identifier, roster)
    else:
        rows = _canvas(students, of_labs, canvas_ids or {}, roster)
    table = io.StringIO()
    texts = ([cell(value) for value in row] for row in rows)
    if style == "moodle":
        texts = ([for_moodle(value) if isinstance(value, str) else value for value in row] for row in texts)
    csv.writer(table, lineterminator="\n").writerows(texts)
    write_whole(root / to, table.getvalue(), "utf-8-sig" if style == "spreadsheet" else "utf-8")
    if strangers and style != "spreadsheet":
        tell(f"Left out, since they are not on the roster: {names_of(list(strangers.values()))}.")
    tell_of(of_labs, tell)
    return root / to


def tell_of(of_labs: Sequence[Class], tell: Callable[[str], None]) -> None:
    """Say what an instructor should know about exported points."""
    for one in of_labs:
        for clause in one.waiting():
            tell(f"Still waiting: {clause}.")
        for sentence in one.remarks():
            tell(sentence)


def _spreadsheet(students, of_labs):
    total = sum(one.largest for one in of_labs)
    results = {one.lab: one.results for one in of_labs}
    silent = {one.lab: {person.student for person in one.silent} for one in of_labs}
    due = {lab for lab, of_class in results.items() if any(one.lateness.due for one in of_class.values())}
    headings = []
    for one in of_labs:
        headings.append(f"{one.lab} (of {number(one.largest)})")
        headings += [f"{one.lab} before late penalty", f"{one.lab} lateness"] if one.lab in due else []
    total_heading = f"Total (of {number(total)})"
    yield ["Student", "Last name", "First name", "Email", *headings, total_heading, "Percent", "Late penalty"]
    for student in students:
        cells, own = [], {lab: of_class.get(student.id) for lab, of_class in results.items()}
        for lab, one in own.items():
            cells.append(one.points if one else NOTHING if student.id in silent[lab] else None)
            if lab in due:
                cells += [one.lateness.points, one.lateness.words()] if one else [None, None]
        points = sum(one.points for one in own.values() if one)
        yield [
            *(student.id, student.last_name, student.first_name, student.email),
            *cells,
            *(points, 100 * points / total if total else None, sum(one.penalty for one in own.values() if one)),
        ]


def _moodle(students, of_labs, identifier, roster):
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
    yield [identifier, *(heading for one in of_labs for heading in (one.lab, f"{one.lab} (feedback)"))]
    results = [one.results for one in of_labs]
    for student in students:
        own = [of_class.get(student.id) for of_class in results]
        # No words for somebody who handed in nothing: a comment that is imported overrides the grade in Moodle
        pairs = [(one.points, one.feedback) if one else (None, None) for one in own]
        yield [names[student.id], *(part for pair in pairs for part in pair)]


def _moodle_name(person, identifier):
    """Return a person's name in Moodle, which is that in the gradebook unless the roster knows better."""
    own = {"ID number": person.id_number, "Username": person.username}
    return own[identifier] or ("" if person.student in (*own.values(), person.email) else person.student)


def _canvas(students, of_labs, canvas_ids, roster):
    headings = [f"{one.lab} ({canvas_ids[one.lab]})" if one.lab in canvas_ids else one.lab for one in of_labs]
    yield ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *headings]
    yield ["    Points Possible", "", "", "", "", *(one.largest for one in of_labs)]
    results = [one.results for one in of_labs]
    for student in students:
        own = [of_class.get(student.id) for of_class in results]
        known = roster.get(student.id, Person(student.id))
        login = known.username or student.id
        who = [_canvas_name(student), student.lms_user_id, known.id_number, login, known.group]
        yield who + [one.points if one else None for one in own]


def _canvas_name(student: Student):
    return ", ".join(part for part in (student.last_name, student.first_name) if part) or student.id
