"""Read who is in the class from an LMS's CSV, and keep it in the gradebook and in ``roster.csv`` beside it.

These columns are read; case does not matter, and others are ignored:

- Moodle, the table of participants or the export of grades (docs.moodle.org, "Grade export" and "Participants"): "First
  name", "Last name" (or "Surname"), "ID number", "Username", "Email address", "Groups" (or "Group"). The identifier in
  the gradebook is the first of ID number, Username and Email address that everybody has, and remains that in later
  files;
- Canvas, the export of the gradebook (`lib/gradebook_exporter.rb` of Canvas): "Student" as "Last, First", or "LastName"
  and "FirstName", "ID", "SIS User ID", "SIS Login ID", "Section". The identifier is the first of SIS Login ID, SIS User
  ID and ID that everybody has. The rows "Points Possible" and "Student, Test" are nobody's;
- any other table: "id", "last name", "first name", and, if there are such, "email" and "group".

The file may begin with a byte order mark; commas, semicolons, tabs or colons separate its columns, as Moodle offers.
"""

import contextlib
import csv
import io
import os
import re
from collections.abc import Container, Iterable
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry

from coursegrader import GradingError
from coursegrader.collect import REFUSED, identifier
from coursegrader.files import write_whole
from coursegrader.people import Person
from coursegrader.scores import one_line
from coursegrader.submissions import present, shown
from coursegrader.tables import cell, uncelled

FILE = "roster.csv"
IN_GRADEBOOK = ("last_name", "first_name", "email", "lms_user_id")
IN_FILE = ("username", "id_number", "group")
LONGEST = 128  # of a text in the gradebook
# The field of each column, and in which order columns identify a person
MOODLE = {
    "last name": "last_name",
    "surname": "last_name",
    "first name": "first_name",
    "id number": "id_number",
    "username": "username",
    "email address": "email",
    "groups": "group",
    "group": "group",
}
CANVAS = {
    "student": "student",
    "lastname": "last_name",
    "firstname": "first_name",
    "id": "lms_user_id",
    "sis user id": "id_number",
    "sis login id": "username",
    "section": "group",
}
PLAIN = {"id": "student", "last name": "last_name", "first name": "first_name", "email": "email", "group": "group"}
BY = {"moodle": ("id_number", "username", "email"), "canvas": ("username", "id_number", "lms_user_id")}
NAMED = {"student": "an id", "id_number": "an ID number", "username": "a Username", "email": "an Email address"}
NAMED["lms_user_id"] = "an ID of Canvas"
MEND = (
    "save it as CSV with commas and in UTF-8, or put back a copy of it: if you delete it and type "
    "`mlcourse roster FILE` again, Moodle's numbers of what was collected are lost"
)
EXPORT_AGAIN = "export the list of participants again"
NOBODY = re.compile(r"\s+Points Possible|Student, Test", re.IGNORECASE)


def update_roster(file: Path, gradebook: Gradebook, root: Path) -> tuple[list[Person], list[str], list[str]]:
    """Put the people of a CSV on the roster; who is on it already is updated, and nobody leaves it.

    Parameters
    ----------
    file : pathlib.Path
    gradebook : nbgrader.api.Gradebook
    root : pathlib.Path
        The course folder, in which ``roster.csv`` is.

    Returns
    -------
    people : list of Person
        The people of the `file`.
    absent : list of str
        The identifiers of those who are on the roster, but not in the `file`.
    left_out : list of str
        Sentences on the people of the `file` who were left out, since they have no good identifier, or another one than
        the roster has for them.

    Raises
    ------
    GradingError
        If the file cannot be read as a roster, two people have one identifier, or everybody would get another one;
        nothing is written then.
    """
    before = {one.student: one for one in read_roster(gradebook, root)}
    people, left_out = read_people(file, before)
    others = _with_other_identifiers(people, before)
    for one, known in others:
        of = f", that of {before[one.student].name}," if one.student in before else ""
        sentence = (
            f"{known.name} is {known.student} on the roster, but {one.student}{of} in {file}: correct that; if the new "
            f"identifier is right, delete the row of {known.student} in {FILE}, whose points then stay with that name"
        )
        left_out.append((one, sentence))
    if others and not any(one.student in before for one in people):
        one, known = others[0]
        raise GradingError(
            f"{file} would give the people on the roster other identifiers, {known.name} {one.student} in the place of "
            f"{known.student}: {EXPORT_AGAIN} with the columns of before"
        )
    people = [one for one in people if all(one is not other for other, _ in others)]
    absent = sorted(before.keys() - {one.student for one in people})
    for one in people:
        if old := before.get(one.student):
            one.numbers = old.numbers
            for name in (*IN_GRADEBOOK, *IN_FILE):
                setattr(one, name, getattr(one, name) or getattr(old, name))
    everybody = [*people, *(before[student] for student in absent)]
    # They have not left, although the file does not name them well
    unsure = {known.student for _, known in _with_other_identifiers([one for one, _ in left_out], before)}
    unsure |= {one.student for one, _ in left_out}
    _refuse_alike(everybody, file)
    for one in people:
        known = {name: getattr(one, name) for name in IN_GRADEBOOK if getattr(one, name)}
        gradebook.update_or_create_student(one.student, **known)
    write_roster(everybody, root)
    return people, [student for student in absent if student not in unsure], [sentence for _, sentence in left_out]


def _with_other_identifiers(people, before):
    """Return those of a file who seem to have another identifier than before, each with the person of the roster."""
    found = []
    for name in ("id_number", "username", "email", "lms_user_id"):
        known = {getattr(one, name).casefold(): one for one in before.values() if getattr(one, name)}
        for one in people:
            old = known.get(getattr(one, name).casefold())
            if old and old.student != one.student and all(one is not other for other, _ in found):
                found.append((one, old))
    # An email address that is the identifier may change: then nothing but the name tells who it is
    stay = {one.student for one in people}
    gone = {one.name.casefold(): one for one in before.values() if one.student not in stay}
    for one in people:
        old = gone.get(one.name.casefold())
        if old and one.student not in before and all(one is not other for other, _ in found):
            found.append((one, old))
    return found


def read_people(file: Path, before: Container[str] = ()) -> tuple[list[Person], list[tuple[Person, str]]]:
    """Return the people in a CSV of Moodle or Canvas, or in one with the columns id, last name and first name.

    Parameters
    ----------
    file : pathlib.Path
    before : container of str
        The identifiers of the people on the roster: they remain in the column that has most of them.

    Returns
    -------
    people : list of Person
    left_out : list of (Person, str)
        People without an identifier, or with one that cannot be used, each with a sentence.

    Raises
    ------
    GradingError
        If it is not UTF-8, lacks columns, or has nobody with an identifier.
    """
    columns, rows = read_table(file, MOODLE | CANVAS | PLAIN, EXPORT_AGAIN)
    kind, fields = _kind(columns, file)
    people = []
    for line, row in rows:
        texts = {}
        for column, value in zip(columns, row, strict=False):
            if (name := fields.get(column)) and not texts.get(name):
                texts[name] = _text(value)
        raw = row[columns.index("student")] if kind == "canvas" and "student" in columns and row else ""
        if NOBODY.fullmatch(raw) or not any(texts.values()) or (kind == "canvas" and not texts.get("lms_user_id")):
            continue
        if kind == "canvas" and "student" in texts:
            texts["last_name"], _, texts["first_name"] = map(str.strip, texts.pop("student").partition(","))
        people.append((line, texts))
    if not people:
        raise GradingError(f"{file} names nobody: {EXPORT_AGAIN}")
    chosen = "student" if kind == "plain" else _identifying(kind, [texts for _, texts in people], before)
    result, left_out, raw = [], [], {}
    for line, texts in people:
        one = Person(**{**texts, "student": ""})
        if not texts.get(chosen):
            what = f"has nothing that identifies the person ({one.name}): give everybody {NAMED[chosen]}"
            left_out.append((one, f"line {line} of {file} {what}"))
            continue
        try:
            student = identifier(texts[chosen])
        except GradingError as error:
            left_out.append((one, f"line {line} of {file}: {error}"))
            continue
        raw.setdefault(student.casefold(), set()).add(texts[chosen])
        result.append(Person(**{**texts, "student": student}))
    if not result:
        raise GradingError(left_out[0][1])
    for one in result:
        if len(texts := sorted(raw[one.student.casefold()])) > 1:
            both = " and ".join(shown(text) for text in texts[:2])
            left_out.append(
                (one, f"{one.name}: {both} would both be {one.student}: give one of them another identifier")
            )
    result = [one for one in result if len(raw[one.student.casefold()]) == 1]
    _refuse_alike(result, file)
    return result, left_out


def read_table(file: Path, known: Container[str], mend: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the columns of a CSV in small letters, and its rows with the numbers of their lines.

    Commas, semicolons, tabs or colons separate its columns: the sign with which most columns are `known`.

    Raises
    ------
    GradingError
        If it cannot be read, or is not a CSV in UTF-8; the message ends in the clause `mend`, which says what to do.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise GradingError(f'{file} is not text in UTF-8: {mend}, or save it as "CSV UTF-8"') from None
    except OSError as error:
        raise GradingError(f"{file} cannot be read ({error.strerror}): {mend}") from None
    first = text.partition("\n")[0]

    def parsed(sign):
        return [column.strip().casefold() for column in next(csv.reader([first], delimiter=sign), [])]

    try:
        sign = max(",;\t:", key=lambda sign: sum(column in known for column in parsed(sign)))
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign)
        next(reader, None)
        return parsed(sign), [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise GradingError(f"{file} is not a CSV ({error}): {mend}") from None


def _kind(columns, file):
    """Return which system wrote the columns, and the field of each."""
    has = set(columns)
    if has & {"student", "lastname"} and "id" in has:
        return "canvas", CANVAS
    if "first name" in has and has & {"last name", "surname"}:
        if "id" in has:
            return "plain", PLAIN
        if has & {"id number", "username", "email address"}:
            return "moodle", MOODLE
    raise GradingError(
        f"{file} lacks columns of a roster: it needs First name, Last name and one of ID number, Username and Email "
        "address (Moodle, in English), or Student and ID (Canvas), or id, last name and first name"
    )


def _identifying(kind, rows, before):
    """Return the field with most of the people of `before`; else the first that everybody has, or most people have."""
    fields = BY[kind]
    known = {name: sum(_is_known(row.get(name), before) for row in rows) for name in fields}
    if any(known.values()):
        return max(fields, key=known.get)
    complete = [name for name in fields if all(row.get(name) for row in rows)]
    return next(iter(complete), None) or max(fields, key=lambda name: sum(bool(row.get(name)) for row in rows))


def _is_known(text, before):
    with contextlib.suppress(GradingError):
        return bool(text) and identifier(text) in before
    return False


def _text(value):
    # nbgrader's pages do not escape all names
    return re.sub(r'[<>"]', "", one_line(value))[:LONGEST].strip()


def _refuse_alike(people, file):
    for what, key in (("identifier", "student"), ("email", "email"), ("ID of Canvas", "lms_user_id")):
        seen = {}
        for one in people:
            if not (value := getattr(one, key).casefold()):
                continue
            if other := seen.get(value):
                names = f"{other.name} and {one.name}"
                raise GradingError(f"{names} have one {what}, {shown(value)}: give each person another in {file}")
            seen[value] = one


def read_roster(gradebook: Gradebook, root: Path) -> list[Person]:
    """Return the people on the roster; nobody if there is no ``roster.csv``.

    Raises
    ------
    GradingError
        If ``roster.csv`` is not as `update_roster` wrote it.
    """
    path = root / FILE
    if not path.exists():
        return []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = [
                {key: uncelled(text) if isinstance(text, str) else text for key, text in row.items()} for row in reader
            ]
            missing = {"student", *IN_FILE} - set(reader.fieldnames or ())
    except (OSError, ValueError, csv.Error) as error:
        raise GradingError(f"{path} cannot be read ({error}): {MEND}") from None
    if missing:
        raise GradingError(f"{path} lacks the columns {', '.join(sorted(missing))}: {MEND}")
    students = {one.id: one for one in gradebook.students}
    people = []
    for row in rows:
        if not (row["student"] or "").strip():
            continue
        in_gradebook = students.get(row["student"])
        known = {name: getattr(in_gradebook, name, None) or "" for name in IN_GRADEBOOK}
        numbers = {
            lab: value.strip() for lab, value in row.items() if lab and lab not in ("student", *IN_FILE) and value
        }
        texts = {name: row[name] or "" for name in IN_FILE}
        people.append(Person(row["student"], **known, **texts, numbers=numbers))
    _refuse_alike(people, path)
    for lab in {lab for one in people for lab in one.numbers}:
        if len(set(numbers := [one.numbers[lab] for one in people if lab in one.numbers])) < len(numbers):
            raise GradingError(f"{path} has one number twice in the column {lab}: give it to one person only")
    return people


def write_roster(people: list[Person], root: Path) -> None:
    """Write what the gradebook has no field for to ``roster.csv``: a row for each person, a column for each lab."""
    labs = sorted({lab for one in people for lab in one.numbers})
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["student", *IN_FILE, *labs])
    for one in sorted(people, key=lambda one: one.student):
        texts = [getattr(one, name) for name in IN_FILE]
        writer.writerow([*map(cell, (one.student, *texts)), *(one.numbers.get(lab, "") for lab in labs)])
    write_whole(root / FILE, table.getvalue())


def keep_numbers(people: list[Person], lab: str, numbers: dict[str, str | None], root: Path) -> None:
    """Write the numbers that Moodle gave people of the roster in a lab, by student, to ``roster.csv``."""
    new = [one for one in people if one.numbers.get(lab) != numbers.get(one.student, one.numbers.get(lab))]
    for one in new:
        one.numbers = {**one.numbers, lab: numbers[one.student]}
        if one.numbers[lab] is None:
            del one.numbers[lab]
    if new:
        write_roster(people, root)


def handed_in_nothing(people: Iterable[Person], lab: str, gradebook: Gradebook, root: Path) -> list[Person]:
    """Return the people on the roster without a submission to a lab: graded, collected or refused."""
    try:
        graded = present({one.student_id for one in gradebook.find_assignment(lab).submissions}, lab, root)
    except MissingEntry:
        graded = set()
    submitted, kinds = root / "submitted", (lab, f"{lab}{REFUSED}")

    def came(student):  # `os.path.exists` raises nothing where a folder may not be read
        return student in graded or any(os.path.exists(submitted / student / name) for name in kinds)

    return [one for one in people if not came(one.student)]
