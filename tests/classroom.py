"""Fictitious classes: one of 40 with its work, and one of which the caller sets every mark, without a run of nbgrader.

Of the class of 40, each person hands in one of four kinds of notebooks, but one nothing, and one a file that is none.
Two are late, of whom one has an extension.
"""

import functools
import json
import tempfile
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook

from coursegrader import result_cache
from coursegrader.labs import nbgrader_config
from coursegrader.scores import read_scores

KINDS = ("perfect", "half", "wrong", "released")  # what they hand in, in turns
NOTHING, BROKEN, LATE, EXTENDED = 39, 40, 5, 9
LATE_RULE = "c.LatePenalty.per_day = 0.1\n"
CHANGED = "this check was changed after the marks"


def handed_in(lab, number):
    """Return what a person of the class of 40 hands in for a lab (`course.Lab`), as the text of a file."""
    return "{" if number == BROKEN else nbformat.writes(lab.submitted[KINDS[(number - 1) % 4]])


def mark(lab, students):
    """Give one point and a comment to each written answer of some students, as a person would."""
    with lab.gradebook() as gradebook:
        for student in students:
            (notebook,) = gradebook.find_submission(lab.name, student).notebooks
            for grade in notebook.grades:
                if grade.name in lab.written:
                    grade.manual_score, grade.needs_manual_grade = 1.0, False
                    comment = gradebook.find_comment(grade.name, lab.name, lab.name, student)
                    comment.manual_comment = f"Read by a person, {student}."
        gradebook.db.commit()


def scores(lab):
    """Return the table of `read_scores`, by student and grade_id."""
    with lab.gradebook() as gradebook:
        return read_scores(lab.name, gradebook).set_index(["student", "grade_id"])


def change_a_check(root):
    """Let a check of lab 1, for the first function that it asks for, fail for everybody, in the lab's source."""
    source = root / "solutions" / "lab-01-toy-regression.md"
    head, line, rest = source.read_text("utf-8").partition('with checks.testing("mean_squared_error"')
    opening, _, rest = rest.partition("\n")
    source.write_text(f"{head}{line}{opening}\n    checks.that(False, {CHANGED!r})\n{rest}", encoding="utf-8")


def assert_only_the_changed_check_moved(written, before, after):
    """Nobody has points in the changed check any more, and the marks of the written answers are as they were."""
    (changed,) = {grade_id for _, grade_id in before.index[before.automatic > after.automatic]}
    assert (after.automatic[:, changed] == 0).all() and (before.automatic[:, changed] > 0).any()
    for name in written:
        assert after.xs(name, level="grade_id").equals(before.xs(name, level="grade_id"))


def put_gradebook(root):
    """Write an empty gradebook into a folder: a copy, since nbgrader takes seconds to make one."""
    (root / "gradebook.db").write_bytes(empty_gradebook())


@functools.cache
def empty_gradebook():
    nbgrader_config()  # it puts on the PATH what nbgrader calls
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gradebook.db")
        Gradebook(f"sqlite:///{path}").close()
        return path.read_bytes()


class Classroom:
    """A gradebook and the folder of its course; the caller sets every mark."""

    def __init__(self, root):
        self.root = root
        put_gradebook(root)
        self.gradebook = Gradebook(f"sqlite:///{root / 'gradebook.db'}")

    def add_lab(self, lab, tests, written=()):
        """Record a lab: the points of its test cells, and of its written answers, by grade_id."""
        self.gradebook.add_assignment(lab)
        self.gradebook.add_notebook(lab, lab)
        for grade_id, points in tests.items():
            self.gradebook.add_grade_cell(grade_id, lab, lab, max_score=points, cell_type="code")
        for grade_id, points in dict(written).items():
            self.gradebook.add_grade_cell(grade_id, lab, lab, max_score=points, cell_type="markdown")
            self.gradebook.add_solution_cell(grade_id, lab, lab)

    def add_student(self, student, **about):
        self.gradebook.update_or_create_student(student, **about)

    def hand_in(self, lab, student, automatic, by_hand=(), late=0.0, at=None):
        """Record a graded submission: automatic points and manual marks; an answer without a mark needs grading.

        `late` is the penalty, and `at` the time of handing in, in UTC.
        """
        (self.root / "submitted" / student / lab).mkdir(parents=True, exist_ok=True)
        if not (self.root / "autograded" / student / lab).exists():
            self.write_autograded(lab, student)
        self.add_student(student)
        with self.gradebook.db.no_autoflush:
            submission = self.gradebook.update_or_create_submission(lab, student, timestamp=at)
        (notebook,) = submission.notebooks
        notebook.late_submission_penalty = late
        by_hand = dict(by_hand)
        for grade in notebook.grades:
            grade.auto_score = automatic.get(grade.name)
            grade.manual_score = by_hand.get(grade.name)
            grade.needs_manual_grade = grade.auto_score is None and grade.manual_score is None
        self.gradebook.db.commit()

    def write_autograded(self, lab, student, code=(), hints=(), **known):
        """Write an autograded notebook: code of solution cells, hints of test cells, and metadata of the grader."""
        cells = [_cell(grade_id, source, solution=True) for grade_id, source in dict(code).items()]
        for grade_id, hint in dict(hints).items():
            error = {"output_type": "error", "ename": "CheckFailed", "evalue": hint, "traceback": []}
            cells.append(_cell(grade_id, "...", solution=False, outputs=[error]))
        _write(
            self.root / "autograded" / student / lab / f"{lab}.ipynb",
            cells,
            {"mlcourse": {"handed_in": result_cache.handed_in(student, lab, self.root), **known}},
        )

    def write_release(self, lab, title, sections, stubs=(), folder="labs"):
        """Write the released lab, or its source: the sections with the graded cells in each, and the code in cells."""
        cells = [{"cell_type": "markdown", "metadata": {}, "source": f"# {title}\n\nA story."}]
        for heading, grade_ids in sections.items():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": [f"## {heading}\n", "\n", "What to do."]})
            for grade_id in grade_ids:
                solution = grade_id in dict(stubs)
                cells.append(_cell(grade_id, dict(stubs).get(grade_id, "..."), solution))
        _write(self.root / folder / lab / f"{lab}.ipynb", cells, {})


def _cell(grade_id, source, solution, outputs=()):
    grader = {"grade_id": grade_id, "grade": not solution, "solution": solution, "schema_version": 3}
    return {"cell_type": "code", "metadata": {"nbgrader": grader}, "source": source, "outputs": list(outputs)}


def _write(path, cells, metadata):
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook), encoding="utf-8")
