"""Report whose marks change when a lab is graded again, and why."""

from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook

from coursegrader.labs import ROOT
from coursegrader.scores import one_line, read_autograded, read_scores


@dataclass(frozen=True)
class Move:
    """A mark that has changed; the points of a cell are None before it exists and after it is removed."""

    student: str
    grade_id: str
    before: float | None
    after: float | None
    hint_before: str | None
    hint_after: str | None

    @property
    def change(self) -> float:
        return (self.after or 0) - (self.before or 0)

    @property
    def why(self) -> str:
        """What the test said before, and says now."""
        if self.before is None or self.after is None:
            return "the cell is new" if self.before is None else "the cell is gone"
        if self.hint_before == self.hint_after:
            return f"still: {self.hint_after}" if self.hint_after else "without a hint, before and now"
        said = [f"no longer: {self.hint_before}"] if self.hint_before else []
        says = [f"now: {self.hint_after}"] if self.hint_after else []
        return "; ".join(said + says)


def snapshot(lab: str, gradebook: Gradebook, root: Path = ROOT) -> dict[str, dict[str, tuple[float, str | None]]]:
    """Return the points that count and the hint of every graded cell of a lab, by student and grade_id.

    The hints come from ``autograded/`` below `root`; a cell without one, or a notebook that cannot be read, has None.

    Raises
    ------
    GradingError
        If the gradebook has no such lab.
    """
    result = {}
    for student, marks in read_scores(lab, gradebook).groupby("student"):
        autograded = read_autograded(lab, student, root)
        hints = autograded.hints if autograded else {}
        result[student] = {one.grade_id: (one.score, hints.get(one.grade_id)) for one in marks.itertuples()}
    return result


def moves(before: dict, after: dict) -> list[Move]:
    """Return every mark that differs between two snapshots, sorted by student and grade_id.

    A mark that stays the same is left out, even if its hint differs. For a student in only one snapshot, every mark
    differs.
    """
    found = []
    for student in sorted(before.keys() | after.keys()):
        old, new = before.get(student, {}), after.get(student, {})
        for grade_id in sorted(old.keys() | new.keys()):
            (was, hint_before), (now, hint_after) = old.get(grade_id, (None, None)), new.get(grade_id, (None, None))
            if was is None or now is None or abs(was - now) > 1e-9:
                found.append(Move(student, grade_id, was, now, hint_before, hint_after))
    return found


def print_moves(moves: list[Move]) -> None:
    """Print a line for each changed mark, and the totals."""
    if not moves:
        print("No mark moves.")
        return
    rows = [("student", "cell", "before", "after", "why")]
    rows += [(one_line(one.student), one.grade_id, _points(one.before), _points(one.after), one.why) for one in moves]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for student, cell, was, now, why in rows:
        print(f"{student:{widths[0]}}  {cell:{widths[1]}}  {was:>{widths[2]}}  {now:>{widths[3]}}  {why}")
    up, down = [[one.change for one in moves if sign * one.change > 0] for sign in (1, -1)]
    n_students = len({one.student for one in moves})
    print(
        f"{_count(len(moves), 'mark')} of {_count(n_students, 'student')} {'moves' if len(moves) == 1 else 'move'}: "
        f"{len(up)} up by {sum(up):g} in all, {len(down)} down by {-sum(down):g} in all."
    )


def _points(value):
    return "–" if value is None else f"{value:g}"


def _count(n, what):
    return f"{n} {what}{'' if n == 1 else 's'}"
