"""Give grades and feedback files back to a Moodle assignment, in the forms that it takes, and read its times.

All find people by Moodle's number of the participant, which `mlcourse collect` keeps: in ``roster.csv`` for people of
the roster, at the end of the identifier for others. Which columns Moodle reads is in its source,
`mod/assign/feedback/offline/importgradeslib.php`; which names of feedback files, in
`mod/assign/feedback/file/importziplib.php`.
"""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path

from nbgrader.api import Gradebook
from traitlets.config import Config

from coursegrader import GradingError
from coursegrader.deadlines import FILE, read_deadlines, readings
from coursegrader.export import tell_of
from coursegrader.files import write_whole
from coursegrader.people import NOTHING, Person
from coursegrader.standing import classes, refuse_unfinished
from coursegrader.submissions import check_timestamp, read_timestamp, shown
from coursegrader.tables import cell, for_moodle

# A field as RFC 4180 has it and as Moodle's spreadsheet library writes it; one as PHP reads it, in which a backslash
# escapes the next character; and one as PHP wrote it before, with a single quotation mark after a backslash, unless a
# field may end there. If none fits all rows, each is read in the first way that gives it as many fields as the others
FIELDS = [
    re.compile(rf'(?P<text>"(?:{inside})*+"|[^",\r\n]*)(?P<end>,|\r\n|\n|\r|\Z)', re.DOTALL)
    for inside in (r'[^"]++|""', r'\\.|[^"\\]++|""', r'[^"]++|(?<=\\)"(?![,\r\n]|\Z)|""')
]
NUMBER = re.compile(r"(?P<name>.+)_(?P<number>\d{1,20})", re.DOTALL)
READ_BY_PHP = FIELDS[1]
MODIFIED = "Last modified (submission)"
# Moodle's `strftimedaydatetime` in English and in its American variant, with 12 and with 24 hours
FORMS = [f"%A, {date} %Y, {time}" for date in ("%d %B", "%B %d,") for time in ("%I:%M %p", "%H:%M")]
MIDNIGHT = (2000, 1, 1, 0, 0, 0)  # the date of every entry, so that the same pages make the same zip


def fill_worksheet(
    worksheet: Path,
    to: Path,
    lab: str,
    root: Path,
    gradebook: Gradebook,
    people: Sequence[Person] = (),
    *,
    unfinished: bool = False,
    config: Config | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> list[str]:
    """Write Moodle's grading worksheet with the columns "Grade" and "Feedback comments" filled in.

    Only these cells change, and only in the rows of those who handed in; the feedback comment of a person on the roster
    who did not says so, unless there is a comment already. A row stays as it is if its grade cannot be changed, or if
    its email is not that of the roster.

    Parameters
    ----------
    worksheet : pathlib.Path
        What "Download grading worksheet" gives: a CSV in UTF-8 with the columns "Identifier", such as "Participant
        123456", "Grade", often "Maximum Grade", "Grade can be changed" and "Feedback comments", and others.
    to : pathlib.Path
        The file to write, which may be the `worksheet`.
    lab : str
    root : pathlib.Path
        The folder of the course.
    gradebook : nbgrader.api.Gradebook
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
    list of str
        The students with a result for whom no row was filled.

    Raises
    ------
    GradingError
        If answers wait to be marked, or if the file is not such a worksheet, or has another maximum than the lab;
        nothing is written then.
    """
    rows, columns = _worksheet(worksheet, ("Identifier", "Grade"))
    (of_class,) = classes([lab], gradebook, root, people, config)
    if not unfinished:
        refuse_unfinished([of_class])
    results, largest = of_class.results, of_class.largest
    student_of = _students([*results, *(one.student for one in people)], lab, people)
    silent = {one.student for one in of_class.silent}
    filled, kept = set(), []
    for row in rows[1:]:
        texts = dict(zip(columns, map(_plain, row), strict=False))
        student = student_of(texts)
        if student is None or len(row) < len(columns) or texts.get("Grade can be changed", "Yes").casefold() == "no":
            continue
        if student in results:
            _refuse_other_maximum(texts.get("Maximum Grade"), largest, lab, worksheet)
            grade, comments = cell(results[student].points), cell(results[student].feedback)
            row[columns.index("Grade")][0] = str(grade)
            filled.add(student)
        elif student in silent:
            if texts.get("Grade") or texts.get("Feedback comments", NOTHING) not in ("", NOTHING):
                kept.append(student)
            if texts.get("Feedback comments"):
                continue
            comments = NOTHING
        else:
            continue
        present = texts.get("Feedback comments")
        if (comments and present is not None) or present == NOTHING:
            row[columns.index("Feedback comments")][0] = _quoted(comments) if comments else ""
        elif present:
            kept.append(student)
    write_whole(to, "".join(text for row in rows for field in row for text in field))
    tell_of([of_class], tell)
    if kept:
        names = ", ".join(map(shown, kept[:5])) + (f" and {len(kept) - 5} more" if len(kept) > 5 else "")
        tell(
            f"Nothing to write in the place of grades or comments in Moodle: look whether they still hold for {names}."
        )
    return sorted(results.keys() - filled)


def write_times(
    worksheet: Path, lab: str, root: Path, people: Sequence[Person] = (), students: Collection[str] | None = None
) -> list[str]:
    """Write when submissions were handed in, as Moodle's grading worksheet says, to their ``timestamp.txt``.

    Parameters
    ----------
    worksheet : pathlib.Path
        Moodle's grading worksheet, with the column "Last modified (submission)". Its times are in the time zone of
        whoever downloaded it, which has to be that of the lab in ``deadlines.csv``.
    lab : str
    root : pathlib.Path
        The folder of the course, with ``submitted/``.
    people : sequence of Person
        The roster.
    students : collection of str, optional
        Whose submissions are the last that Moodle has, all by default: others keep their times.

    Returns
    -------
    list of str
        The students with a submission whose time is not known.

    Raises
    ------
    GradingError
        If the file is not such a worksheet, or the lab has no due date; nothing is written then.
    """
    rows, columns = _worksheet(worksheet, ("Identifier", MODIFIED))
    if not (due := read_deadlines(root).due.get(lab)):
        raise GradingError(
            f"the times of {worksheet} have no time zone: write a due date of {lab} with its time zone into {FILE}"
        )
    folders = {path.parent.name: path for path in (root / "submitted").glob(f"*/{lab}") if path.is_dir()}
    student_of, times = _students(folders, lab, people), {}
    for row in rows[1:]:
        texts = dict(zip(columns, map(_plain, row), strict=False))
        student, text = student_of(texts), texts.get(MODIFIED, "").strip()
        if student in folders and (students is None or student in students) and text not in ("", "-"):
            times[student] = _time(text, due.tzinfo, worksheet)
    for student, time in times.items():
        check_timestamp(folders[student])  # it puts a link aside
        if read_timestamp(folders[student]) != time:
            write_whole(folders[student] / "timestamp.txt", f"{time:%Y-%m-%d %H:%M:%S} UTC\n")
    kept = {} if students is None else folders.keys() - students
    known = {student for student in kept if read_timestamp(folders[student])}
    return sorted(folders.keys() - times.keys() - known)


def _time(text, zone, worksheet):
    """Return a time of Moodle's in UTC: of two readings, at a change of the clocks, the earlier one."""
    for form in FORMS:
        try:
            return min(readings(datetime.strptime(text, form), zone))
        except ValueError:
            continue
    raise GradingError(
        f"{worksheet}: {shown(text)!r} is not a time as Moodle writes it in English: download the grading worksheet "
        "again with English as your language in Moodle"
    )


def write_archive(to: Path, lab: str, pages: dict[str, Path], people: Sequence[Person] = ()) -> list[str]:
    """Write the zip that Moodle takes as "Upload multiple feedback files in a zip".

    It has a folder for each student, ``Ada Lovelace_123456_assignsubmission_file_``, as in the archive of submissions.
    Moodle reads the number and the last two words; the file may have any name.

    Parameters
    ----------
    to : pathlib.Path
        The zip to write.
    lab : str
    pages : dict of str to pathlib.Path
        The page of each student.
    people : sequence of Person
        The roster.

    Returns
    -------
    list of str
        The students whose number is not known, so that their page is not in the zip.

    Raises
    ------
    GradingError
        If no number is known at all; nothing is written then.
    """
    numbers = numbers_of(pages, lab, people)
    if not numbers:
        raise GradingError(
            f"no page can go back to Moodle, since no number of a participant is known: collect {lab} from an archive "
            "of Moodle first"
        )
    names = {one.student: one.name for one in people}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, number in sorted(numbers.items()):
            name = names.get(student) or NUMBER.fullmatch(student)["name"]
            name = re.sub(r"[^\w.@ -]|_", " ", name).strip(" .") or "Participant"
            info = zipfile.ZipInfo(f"{name}_{number}_assignsubmission_file_/{lab}.html", MIDNIGHT)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, pages[student].read_bytes())
    write_whole(to, content.getvalue())
    return sorted(pages.keys() - numbers.keys())


def numbers_of(students: Sequence[str], lab: str, people: Sequence[Person]) -> dict[str, str]:
    """Return Moodle's number of each student in a lab, as far as it is known.

    For students who are not on the roster, it is the end of their identifier, unless somebody else has it.
    """
    on_roster = {one.student for one in people}
    known = {one.student: one.numbers[lab] for one in people if lab in one.numbers}
    others = {one: found["number"] for one in set(students) - on_roster if (found := NUMBER.fullmatch(one))}
    often = Counter([*known.values(), *others.values()])
    known |= {student: number for student, number in others.items() if often[number] == 1}
    return {student: number for student, number in known.items() if student in set(students)}


def _students(students, lab, people):
    """Return a function that finds the student of a row of a worksheet; None if the row is not theirs for certain."""
    found = {number: student for student, number in numbers_of(students, lab, people).items()}
    emails = {one.student: one.email.casefold() for one in people}
    # Moodle gave no number to whoever handed in nothing
    without = {email: student for student, email in emails.items() if email and student not in found.values()}

    def student_of(texts):
        email = texts.get("Email address", "").casefold()
        student = found.get(re.sub(r".*\D", "", texts.get("Identifier", "").strip()), without.get(email))
        # With another email, the number is that of another assignment
        return student if not email or emails.get(student, email) in ("", email) else None

    return student_of


def _worksheet(worksheet, needed):
    """Return the rows of Moodle's grading worksheet, and the names of its columns."""
    rows = _rows(_read(worksheet), worksheet)
    columns = [one.strip("\ufeff") for one in map(_plain, rows[0])]
    if missing := [name for name in needed if name not in columns]:
        raise GradingError(
            f"{worksheet} has no column {missing[0]}: download the grading worksheet of Moodle in English"
        )
    return rows, columns


def _read(worksheet):
    try:
        return worksheet.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise GradingError(f"{worksheet} is not text in UTF-8: download the grading worksheet again") from None
    except OSError as error:
        raise GradingError(f"{worksheet} cannot be read ({error.strerror}): name Moodle's grading worksheet") from None


def _rows(text, worksheet):
    """Return the rows of a CSV as lists of fields, each a list of its text as written and of what ends it."""
    mark, text = text[:1] if text.startswith("\ufeff") else "", text.removeprefix("\ufeff")
    for fields in [*([field] for field in FIELDS), FIELDS]:
        rows, end = _reading(text, fields)
        if end == len(text):
            break
    else:
        raise GradingError(_broken(text, end, worksheet))
    if not rows:
        raise GradingError(f"{worksheet} is empty: download the grading worksheet again")
    rows[0][0][0] = mark + rows[0][0][0]
    return rows


def _reading(text, fields):
    """Return the rows of a CSV, each read in the first of some ways that fits, and where that ends."""
    rows, at = [], 0
    while at < len(text):
        for field in fields:
            row, end = _row(text, at, field)
            if row and (not rows or len(row) == len(rows[0]) or row == [["", row[-1][1]]]):
                break
        else:
            break
        for one in row:
            if '\\"' in one[0] and field is not READ_BY_PHP:  # which Moodle would misread
                one[0] = _quoted(_plain(one))
        rows.append(row)
        at = end
    return rows, at


def _row(text, at, field):
    """Return the row of a CSV that begins at a place, and where it ends; None if a field does not fit."""
    row = []
    while found := field.match(text, at):
        row.append([found["text"], found["end"]])
        at = found.end()
        if found["end"] != ",":
            return row, at
    return None, at


def _broken(text, begin, worksheet):
    """Return a sentence on the row that begins at a place of a worksheet."""
    line, who = text.count("\n", 0, begin) + 1, text[begin:].partition(",")[0].strip('"')
    return (
        f"line {line} of {worksheet}, of {shown(who)}, is not that of a CSV: download the grading worksheet again; "
        "if a name or a text in this row ends in a backslash, which Moodle itself cannot read, delete the backslash"
    )


def _plain(field):
    """Return the text of a field without its quotation marks."""
    text = field[0].removeprefix("\ufeff")
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _quoted(text):
    return '"{}"'.format(for_moodle(text).replace('"', '""'))


def _refuse_other_maximum(text, largest, lab, worksheet):
    try:
        same = text is None or abs(float(text.replace(",", ".")) - largest) < 0.005
    except ValueError:
        same = False
    if not same:
        raise GradingError(
            f"{worksheet} has the maximum {text or 'of no number'}, but {lab} has {largest:g} points: set the maximum "
            f"grade of the assignment in Moodle to {largest:g} and download the worksheet again"
        )
