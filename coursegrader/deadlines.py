"""Read when labs are due, and write to the gradebook who is late and what that costs.

``deadlines.csv``, beside ``roster.csv``, is the one place for due dates and extensions:

    lab,student,due,time zone
    lab-01-toy-regression,,2026-11-02 23:59,Europe/Berlin
    lab-01-toy-regression,1001,2026-11-09 23:59,

A row without a student is for everybody; a row with a student's identifier is for that person alone, and has the time
zone of the lab unless it names another. A local time that the clocks show twice, or skip, counts as the later of its
two readings. While there is no such file, the due dates in nbgrader's gradebook hold.

Who is late depends on the ``timestamp.txt`` of the submission. nbgrader's exchange writes it, and so does `mlcourse
collect` from Moodle's grading worksheet (`coursegrader.worksheet.write_times`). The archives of Moodle and Canvas state
no time: the dates in them are those of the download (`lib/content_zipper.rb` of Canvas). Canvas marks files as late;
`mlcourse collect` keeps that in ``late-in-canvas.txt``. A submission without a known time is not late.

`apply_deadlines` writes all of it to the fields that nbgrader has for it: the due date of a lab, the extension and the
late penalty of a submission. It computes every penalty anew from the points as they are, so nothing is deducted twice,
and a changed file takes effect with the next `mlcourse grade`, `report`, `feedback` or `export`.
"""

import math
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from nbgrader.api import Assignment, Grade, Gradebook, SubmittedAssignment, SubmittedNotebook
from nbgrader.plugins import BasePlugin
from nbgrader.preprocessors import AssignLatePenalties
from sqlalchemy import func
from sqlalchemy.orm import contains_eager
from traitlets import Float, Int
from traitlets.config import Config

from coursegrader import GradingError
from coursegrader.collect import LATE_IN_CANVAS, identifier
from coursegrader.roster import read_table
from coursegrader.submissions import present, shown

FILE = "deadlines.csv"
COLUMNS = ("lab", "student", "due", "time zone")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?")
DAY = timedelta(days=1).total_seconds()
MEND = "write it as a CSV with the columns lab, student, due and time zone"


class LatePenalty(BasePlugin):
    """What a late submission costs: nothing by default; lateness is then only shown."""

    grace_minutes = Float(0, min=0, help="Minutes after the due date that still count as in time").tag(config=True)
    free_days = Int(
        0,
        min=0,
        help="Late days of each person in the term that cost nothing, used in the order in which the labs are due",
    ).tag(config=True)
    per_day = Float(
        0, min=0, max=1, help="Part of the points of a submission that it loses for each late day begun"
    ).tag(config=True)
    at_most = Float(1, min=0, max=1, help="Largest part of its points that a submission loses for its late days").tag(
        config=True
    )
    last_day = Int(
        None, min=0, allow_none=True, help="Late days after which a submission loses all of its points (None: never)"
    ).tag(config=True)

    def late_days(self, seconds: float) -> int:
        """Return how many late days have begun: the first one right after the grace, the next one 24 hours later."""
        return math.ceil(max(0, seconds - 60 * self.grace_minutes) / DAY)

    def lost(self, days: int) -> float:
        """Return the part of its points that a submission loses for its late days."""
        if self.last_day is not None and days > self.last_day:
            return 1.0
        return min(self.at_most, days * self.per_day)

    def free(self, days: int, left: int) -> int:
        """Return how many free days a submission uses of those that are `left`: none if it loses all the same."""
        used = min(days, left)
        return used if used and self.lost(days - used) < 1 else 0

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float | None:
        """Return the points that a submission loses, as nbgrader asks for them; None for no penalty."""
        return score * self.lost(self.late_days(total_seconds_late)) or None


@dataclass(frozen=True)
class Deadlines:
    """Due dates by lab, and those of single persons by lab and student, each in its time zone.

    `stated` says whether there is a file; without one, the due dates in the gradebook hold.
    """

    due: dict[str, datetime] = field(default_factory=dict)
    own: dict[tuple[str, str], datetime] = field(default_factory=dict)
    stated: bool = False

    def extension(self, lab: str, student: str) -> timedelta | None:
        """Return how much later a lab is due for a person than for the class; None if it is not."""
        own = self.own.get((lab, student))
        return None if own is None else own.astimezone(UTC) - self.due[lab].astimezone(UTC)


@dataclass(frozen=True)
class Lateness:
    """When a submission was handed in and due, and what its lateness costs.

    Attributes
    ----------
    handed_in : datetime.datetime or None
        None if the time is not known; the submission is not late then.
    due : datetime.datetime or None
        The person's due date, in the time zone of the deadline.
    extended : bool
        Whether that is later than the due date of the class.
    days, free : int
        The late days begun, and how many of them were free.
    points, penalty : float
        The points before the penalty, and the penalty.
    canvas : bool
        Whether Canvas says that it was late, without saying when it was handed in.
    """

    handed_in: datetime | None
    due: datetime | None
    extended: bool
    days: int
    free: int
    points: float
    penalty: float
    canvas: bool = False

    def words(self) -> str:
        """Return how late it is in a few words; empty if it is not late, or nothing is due."""
        if self.due is None:
            return "late in Canvas" if self.canvas else ""
        if self.handed_in is None:
            return "late in Canvas, no time" if self.canvas else "no time"
        return self._late_days() if self.days else ""

    def sentence(self) -> str:
        """Return a sentence for the student if it was late or lost points; else an empty text."""
        cost = f"Of {points(self.points)} points, {points(self.points - self.penalty)} count." if self.penalty else ""
        if not self.days or self.handed_in is None or self.due is None:
            return f"Points are deducted for lateness. {cost}" if cost else ""
        return (
            f"Handed in on {moment(self.handed_in)}, due on {moment(self.due)}: {self._late_days()}. "
            f"{cost or 'No points are deducted.'}"
        )

    def _late_days(self):
        free = f", {self.free} of them free" if 0 < self.free < self.days else ", free" if self.free else ""
        return f"{count(self.days, 'late day')}{free}"


def count(n: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def points(value: float) -> str:
    """Return points as they are exported, with at most two decimals."""
    return f"{round(value, 2):g}"


def moment(time: datetime) -> str:
    """Return a time in words, with its time zone."""
    return f"{time:%d %B %Y, %H:%M %Z}".lstrip("0")


def read_deadlines(root: Path) -> Deadlines:
    """Read ``deadlines.csv`` in the folder of the course, if there is one.

    Raises
    ------
    GradingError
        If it is not as the module's docstring says.
    """
    file = root / FILE
    if not file.exists():
        return Deadlines()
    columns, rows = read_table(file, COLUMNS, MEND)
    if missing := [name for name in COLUMNS if name not in columns]:
        raise GradingError(f"{file} lacks the column {missing[0]}: {MEND}")
    stated = []
    for line, row in rows:
        texts = dict.fromkeys(COLUMNS, "") | {
            name: text.strip() for name, text in zip(columns, row, strict=False) if name in COLUMNS
        }
        if any(texts.values()):
            stated.append((f"line {line} of {file}", texts))
    found = Deadlines(stated=True)
    zones = {}
    for where, texts in stated:
        lab = texts["lab"]
        if not lab:
            raise GradingError(f"{where} names no lab: write its name, such as lab-01-toy-regression")
        if not texts["student"]:
            if lab in zones:
                raise GradingError(f"{where} is a second due date of {lab}: keep one, or name the student it is for")
            if not texts["time zone"]:
                raise GradingError(f"{where} has no time zone: write a name such as Europe/Berlin, or UTC")
            zones[lab] = texts["time zone"]
            found.due[lab] = _instant(texts["due"], texts["time zone"], where)
    for where, texts in stated:
        if not texts["student"]:
            continue
        lab = texts["lab"]
        try:
            student = identifier(texts["student"])
        except GradingError as error:
            raise GradingError(f"{where}: {error}") from None
        if lab not in zones:
            raise GradingError(f"{where} is for {student}, but {lab} has no due date: add a row without a student")
        if (lab, student) in found.own:
            raise GradingError(f"{where} is a second due date of {lab} for {student}: keep one")
        own = _instant(texts["due"], texts["time zone"] or zones[lab], where)
        if own.astimezone(UTC) < found.due[lab].astimezone(UTC):
            raise GradingError(f"{where}: {lab} is due earlier for {student} than for the class: correct the date")
        found.own[lab, student] = own
    return found


def _instant(text, zone, where):
    """Return the time that a person wrote: of two readings, at a change of the clocks, the later one."""
    try:
        zone = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise GradingError(
            f"{where}: there is no time zone {shown(zone)}: write a name such as Europe/Berlin, or UTC"
        ) from None
    try:
        if TIME.fullmatch(text):
            return max(readings(datetime.fromisoformat(text), zone)).astimezone(zone)
    except (ValueError, OverflowError):  # the first and the last day of the calendar are over in some zones
        pass
    raise GradingError(
        f"{where}: {shown(text) or 'nothing'!r} is not a due date: write date and time as 2026-11-02 23:59"
    )


def readings(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the two readings of a local time, in UTC; they differ only where the clocks change."""
    return [local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]


def check_deadlines(gradebook: Gradebook, root: Path) -> Deadlines:
    """Read ``deadlines.csv``, and refuse it if it names a lab that the course does not have.

    Raises
    ------
    GradingError
    """
    deadlines = read_deadlines(root)
    labs = {one.name for one in gradebook.assignments} | {path.stem for path in root.glob("solutions/lab-*.md")}
    if unknown := sorted(deadlines.due.keys() - labs):
        raise GradingError(
            f"{root / FILE} has a due date of {shown(unknown[0])}, which is no lab: correct the name; the labs are "
            f"{', '.join(sorted(labs)) or 'none'}"
        )
    return deadlines


def say_unknown(deadlines: Deadlines, gradebook: Gradebook, root: Path) -> list[str]:
    """Return a sentence if ``deadlines.csv`` has extensions of people whom nobody knows, which may be typing errors."""
    students = {one.id for one in gradebook.students} | {path.name for path in root.glob("submitted/*")}
    if names := sorted({student for _, student in deadlines.own} - students):
        who = ", ".join(map(shown, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        return [f"It has a date for {who}, but nobody of that name is on the roster or has handed in: check the name."]
    return []


def apply_deadlines(gradebook: Gradebook, root: Path, config: Config | None = None) -> Deadlines:
    """Write due dates, extensions and late penalties of all labs to the gradebook, as far as they differ from it.

    Parameters
    ----------
    gradebook : nbgrader.api.Gradebook
    root : pathlib.Path
        The folder of the course, with ``deadlines.csv``.
    config : traitlets.config.Config, optional
        nbgrader's configuration, which may set the traits of `LatePenalty`, or another plug-in.

    Returns
    -------
    Deadlines

    Raises
    ------
    GradingError
        If the file is not well formed, or names an unknown lab; nothing is written then.
    """
    deadlines, rule = check_deadlines(gradebook, root), LatePenalty(config=config)
    step = AssignLatePenalties(config=config)
    step.init_plugin()
    due = {lab: one.astimezone(UTC).replace(tzinfo=None) for lab, one in deadlines.due.items()}
    labs = list(gradebook.assignments)
    if deadlines.stated:
        for assignment in labs:
            _set(assignment, "duedate", due.get(assignment.name))
    else:
        # Without any due date, a penalty in the gradebook was entered by somebody, and stays
        labs = [one for one in labs if one.duedate is not None]
    left = defaultdict(lambda: rule.free_days)
    for assignment in sorted(labs, key=lambda one: (one.duedate is None, one.duedate or datetime.min, one.name)):
        for notebook, score in submitted(gradebook, assignment, root):
            submission, student = notebook.assignment, notebook.assignment.student_id
            if deadlines.stated:
                own = deadlines.extension(assignment.name, student)
                days = rule.late_days(_seconds_late(submission.timestamp, assignment.duedate, own))
                used = rule.free(days, left[student])
                left[student] -= used
                # nbgrader knows no free days: they move the due date
                _set(submission, "extension", (own or timedelta()) + timedelta(days=used) if own or used else None)
            seconds = _seconds_late(submission.timestamp, assignment.duedate, submission.extension)
            lost = step.plugin_inst.late_submission_penalty(student, score, seconds) if seconds else None
            _set(notebook, "late_submission_penalty", None if lost is None else min(max(lost, 0), score))
    gradebook.db.commit()
    return deadlines


def submitted(gradebook: Gradebook, assignment: Assignment, root: Path) -> list[tuple[SubmittedNotebook, float]]:
    """Return the notebooks handed in for a lab, one for each student, with their points before any late penalty.

    A submission that was deleted from ``submitted/`` is left out, although the gradebook keeps its points: it may have
    been found under a wrong name.
    """
    of_lab = SubmittedAssignment.assignment_id == assignment.id
    # nbgrader's own `score` looks through all grades for each notebook
    sums = (
        gradebook.db.query(Grade.notebook_id, func.sum(Grade.score))
        .join(SubmittedNotebook, Grade.notebook_id == SubmittedNotebook.id)
        .join(SubmittedNotebook.assignment)
        .filter(of_lab)
        .group_by(Grade.notebook_id)
    )
    scores = {notebook: score or 0.0 for notebook, score in sums}
    notebooks = (
        gradebook.db.query(SubmittedNotebook)
        .join(SubmittedNotebook.assignment)
        .filter(of_lab)
        .order_by(SubmittedAssignment.student_id)
        .options(contains_eager(SubmittedNotebook.assignment))
        .populate_existing()
    ).all()
    there = present([one.assignment.student_id for one in notebooks], assignment.name, root)
    return [(one, scores.get(one.id, 0.0)) for one in notebooks if one.assignment.student_id in there]


def _set(what, name, value):
    """Set an attribute if it differs, so that a command that changes nothing does not wait for the gradebook."""
    if getattr(what, name) != value:
        setattr(what, name, value)


def _seconds_late(timestamp, duedate, extension):
    if timestamp is None or duedate is None:
        return 0.0
    return max(0.0, (timestamp - duedate - (extension or timedelta())).total_seconds())


def lateness(
    notebook: SubmittedNotebook, score: float, deadlines: Deadlines, root: Path, config: Config | None = None
) -> Lateness:
    """Return when a notebook was handed in and due, and what its lateness costs, as `apply_deadlines` recorded it.

    Parameters
    ----------
    notebook : nbgrader.api.SubmittedNotebook
    score : float
        Its points before any late penalty.
    deadlines : Deadlines
    root : pathlib.Path
        The folder of the course.
    config : traitlets.config.Config, optional
        nbgrader's configuration.
    """
    submission, rule = notebook.assignment, LatePenalty(config=config)
    lab, student = submission.assignment.name, submission.student_id
    extension = deadlines.extension(lab, student) if deadlines.stated else submission.extension
    free = max(0, ((submission.extension or timedelta()) - (extension or timedelta())).days)
    stated = deadlines.own.get((lab, student)) or deadlines.due.get(lab)
    zone = stated.tzinfo if stated else UTC
    due, handed_in = submission.assignment.duedate, submission.timestamp
    return Lateness(
        handed_in=handed_in and handed_in.replace(tzinfo=UTC).astimezone(zone),
        due=due and (due + (extension or timedelta())).replace(tzinfo=UTC).astimezone(zone),
        extended=bool(extension),
        days=rule.late_days(_seconds_late(handed_in, due, extension)),
        free=free,
        points=score,
        penalty=max(0, min(score, notebook.late_submission_penalty or 0)),
        canvas=os.path.exists(root / "submitted" / student / lab / LATE_IN_CANVAS),  # also where nobody may look
    )
