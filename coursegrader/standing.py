"""Say how each person of the class stands in a lab: the points that count, and what still waits or was refused."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from nbgrader.api import BaseCell, Comment, Gradebook, SubmittedAssignment, SubmittedNotebook
from traitlets.config import Config

from coursegrader import GradingError
from coursegrader.collect import refusals
from coursegrader.deadlines import Deadlines, Lateness, apply_deadlines, count, lateness, submitted
from coursegrader.people import NOTHING, Person
from coursegrader.result_cache import not_graded
from coursegrader.roster import handed_in_nothing
from coursegrader.scores import one_line, read_autograded, read_scores
from coursegrader.submissions import shown

MOST_NAMES = 10  # in a sentence
LONGEST_COMMENT = 20_000  # of a grader on an answer


@dataclass
class Result:
    """The result of a student in a lab: the points that count, how late it was, and the graders' comments."""

    points: float
    lateness: Lateness
    comments: str

    @property
    def penalty(self):
        """The points that are deducted for lateness."""
        return self.lateness.penalty

    @property
    def feedback(self):
        """The comments, after a sentence on lateness if there was any."""
        return " ".join(filter(None, [self.lateness.sentence(), self.comments]))


@dataclass
class Standing:
    """How a person stands in a lab.

    `result` is None if nothing is in the gradebook. `unmarked` written answers wait for a mark, `unsure` other cells
    for a look in the formgrader, since they were graded again after a person had marked them. `refused` is the reason
    if the submission was refused. `not_graded` says that what was handed in last was not graded, `nothing` that nothing
    was handed in.
    """

    student: str
    name: str
    last_name: str = ""
    group: str = ""
    result: Result | None = None
    unmarked: int = 0
    unsure: int = 0
    refused: str | None = None
    not_graded: bool = False
    nothing: bool = False

    @property
    def order(self):
        """The key by which the class is sorted."""
        return self.last_name, self.name, self.student

    @property
    def label(self):
        """The name and the identifier, fit to be shown."""
        return shown(self.student if self.name == self.student else f"{self.name} ({self.student})")

    @property
    def finished(self):
        """Whether the points are final: nothing waits."""
        return self.result is not None and not (self.unmarked or self.unsure or self.not_graded)

    def words(self) -> str:
        """Return the state in a few words, with the reason if the submission was refused."""
        if self.nothing:
            return NOTHING
        parts = ["not graded since handed in"] * self.not_graded
        parts += [f"refused: {self.refused}"] if self.refused else []
        parts += [f"{count(self.unmarked, 'written answer')} not marked"] if self.unmarked else []
        parts += [f"{count(self.unsure, 'cell')} to look at again"] if self.unsure else []
        return "; ".join(parts) or "graded"


@dataclass
class Class:
    """How everybody stands in a lab, sorted by name, the largest number of points, and the due date if there is one."""

    lab: str
    largest: float
    due: datetime | None = None
    standings: list[Standing] = field(default_factory=list)

    @property
    def results(self) -> dict[str, Result]:
        """The results of those who are in the gradebook, by student."""
        return {one.student: one.result for one in self.standings if one.result}

    @property
    def silent(self) -> list[Standing]:
        """Those who handed in nothing."""
        return [one for one in self.standings if one.nothing]

    def waiting(self) -> list[str]:
        """Return a clause for each kind of work that is not done, with the names of the students."""
        clauses = []
        if some := [one for one in self.standings if one.unmarked]:
            answers = count(sum(one.unmarked for one in some), "written answer")
            clauses.append(f"{answers} in {self.lab} to be marked, of {names_of(some)}")
        if some := [one for one in self.standings if one.not_graded]:
            clauses.append(f"{count(len(some), 'submission')} in {self.lab} to be graded, of {names_of(some)}")
        if some := [one for one in self.standings if one.unsure and not one.not_graded]:
            cells = count(sum(one.unsure for one in some), "cell")
            clauses.append(f"{cells} in {self.lab} to be looked at again after a new grading, of {names_of(some)}")
        return clauses

    def remarks(self) -> list[str]:
        """Return sentences on what an instructor should know about the points: who was refused, and who was late."""
        sentences = []
        if some := [one for one in self.standings if one.refused]:
            sentences.append(f"{self.lab}: refused, and without points by the grader: {names_of(some)}.")
        if some := [one for one in self.standings if one.result and one.result.penalty]:
            costs = [
                f"{shown(one.student)} ({one.result.lateness.points:.4g} before, {one.result.points:.4g} after)"
                for one in some
            ]
            sentences.append(f"{self.lab}: points deducted for lateness: {_some(costs)}.")
        return sentences


def refuse_unfinished(of: Sequence[Class]) -> None:
    """Refuse classes in which something waits to be marked or graded.

    Raises
    ------
    GradingError
    """
    if waiting := [clause for one in of for clause in one.waiting()]:
        raise GradingError(
            f"still waiting: {'; '.join(waiting)}. Finish this with formgrader or `mlcourse grade`, or export with "
            "--unfinished, which counts what waits as it stands: 0, or the points of before"
        )


def names_of(standings: Sequence[Standing]) -> str:
    """Return the identifiers of the first of these people."""
    return _some([shown(one.student) for one in standings])


def _some(texts):
    more = f" and {len(texts) - MOST_NAMES} more" if len(texts) > MOST_NAMES else ""
    return ", ".join(texts[:MOST_NAMES]) + more


def classes(
    labs: Sequence[str], gradebook: Gradebook, root: Path, people: Sequence[Person] = (), config: Config | None = None
) -> list[Class]:
    """Return how everybody stands in some labs: those on the roster, and all others who handed in.

    The late penalties in the gradebook are brought up to date before (`coursegrader.deadlines`).

    Parameters
    ----------
    labs : sequence of str
    gradebook : nbgrader.api.Gradebook
    root : pathlib.Path
        The folder of the course.
    people : sequence of Person
        The roster.
    config : traitlets.config.Config, optional
        nbgrader's configuration, which may set the traits of `coursegrader.deadlines.LatePenalty`.

    Raises
    ------
    GradingError
        If the gradebook does not have a lab, or ``deadlines.csv`` is not well formed.
    """
    deadlines = apply_deadlines(gradebook, root, config)
    roster = {one.student: one for one in people}
    known = {one.id: one for one in gradebook.students}
    return [_class(lab, gradebook, root, roster, known, deadlines, config) for lab in labs]


def _class(lab, gradebook, root, roster, known, deadlines, config):
    marks, results = read_scores(lab, gradebook), results_of(lab, gradebook, root, deadlines, config)
    marks = marks[marks.student.isin(results)]
    waits = marks[marks.waiting]
    unmarked = waits[waits.written].groupby("student").size()
    unsure = waits[~waits.written & waits.automatic.notna()].groupby("student").size()
    # An automatic cell without points was never graded
    ungraded = {*waits[~waits.written & waits.automatic.isna()].student, *not_graded(lab, root)}
    silent = {one.student for one in handed_in_nothing(roster.values(), lab, gradebook, root)}
    not_collected = {student: why for student, why in refusals(lab, root).items() if student not in results}
    assignment = gradebook.find_assignment(lab)
    stated = assignment.duedate and assignment.duedate.replace(tzinfo=UTC)
    one_class = Class(lab, assignment.max_score, deadlines.due.get(lab, stated))
    for student in {*results, *ungraded, *roster}:
        autograded = read_autograded(lab, student, root) if student in results else None
        one_class.standings.append(
            Standing(
                student,
                roster[student].name if student in roster else _name(known.get(student), student),
                last_name=getattr(known.get(student), "last_name", None) or "",
                group=roster[student].group if student in roster else "",
                result=results.get(student),
                unmarked=int(unmarked.get(student, 0)),
                unsure=int(unsure.get(student, 0)),
                refused=autograded.refused if autograded else not_collected.get(student),
                not_graded=student in ungraded,
                nothing=student in silent,
            )
        )
    one_class.standings.sort(key=lambda one: one.order)
    return one_class


def results_of(
    lab: str, gradebook: Gradebook, root: Path, deadlines: Deadlines, config: Config | None = None
) -> dict[str, Result]:
    """Return the result of each student who is in the gradebook with a lab (`coursegrader.deadlines.submitted`)."""
    results, comments = {}, _comments(lab, gradebook)
    for notebook, score in submitted(gradebook, gradebook.find_assignment(lab), root):
        student, late = notebook.assignment.student_id, lateness(notebook, score, deadlines, root, config)
        results[student] = Result(max(0, late.points - late.penalty), late, "; ".join(comments.get(student, ())))
    return results


def _comments(lab, gradebook):
    """Return the graders' comments on the answers of each student, by the names of the cells."""
    found = {}
    rows = (
        gradebook.db.query(SubmittedAssignment.student_id, BaseCell.name, Comment.comment)
        .select_from(Comment)
        .join(SubmittedNotebook, Comment.notebook_id == SubmittedNotebook.id)
        .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(BaseCell, Comment.cell_id == BaseCell.id)
        .filter(SubmittedAssignment.assignment_id == gradebook.find_assignment(lab).id)
        .order_by(BaseCell.name)
    )
    for student, name, comment in rows:
        if comment:
            found.setdefault(student, []).append(f"{name}: {one_line(comment, LONGEST_COMMENT)}")
    return found


def labs_handed_in(gradebook: Gradebook, root: Path) -> list[str]:
    """Return the names of the labs for which anything was handed in.

    Raises
    ------
    GradingError
        If there is none.
    """
    labs = sorted(
        one.name for one in gradebook.assignments if one.submissions or any((root / "submitted").glob(f"*/{one.name}"))
    )
    if not labs:
        raise GradingError("nothing was handed in for any lab: type `mlcourse collect LAB FILE...` first")
    return labs


def _name(student, identifier):
    return (f"{student.first_name or ''} {student.last_name or ''}".strip() if student else "") or identifier
