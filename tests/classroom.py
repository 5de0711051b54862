"""A fictitious class: a gradebook and autograded notebooks, made without a run of nbgrader."""

import functools
import json
import tempfile
from pathlib import Path

from nbgrader.api import Gradebook

from coursegrader.labs import nbgrader_config


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
        """Record a submission: automatic points and manual marks; a written answer without a mark needs grading.

        `late` is the penalty, and `at` the time of handing in, in UTC.
        """
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
        _write(self.root / "autograded" / student / lab / f"{lab}.ipynb", cells, {"mlcourse": known})

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
