"""A cache of results by what they depend on, and an index of the submissions that were graded."""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from nbformat import NotebookNode, from_dict, writes
from nbgrader.api import Gradebook
from nbgrader.utils import determine_grade, is_grade, is_solution
from sqlalchemy import JSON, Column, String
from sqlalchemy.orm import declarative_base

from coursegrader.files import kind_of, read_ordinary, write_whole
from coursegrader.needed_cells import defer, given_cells
from coursegrader.protocol import Cell, Limits
from coursegrader.scores import Autograded, read_autograded
from coursegrader.submissions import by_date
from coursegrader.worker import ROOT
from mlcourse.student.notebooks import MAX_BYTES

PACKAGES = ["geopandas", "ipython", "matplotlib", "numpy", "pandas", "scikit-learn", "scipy"]
KEPT_DAYS = 200  # longer than a term
LATE_GRADINGS = 3  # how often a submission is graded in which a limit of time decides a result
# The modules that run a submission
EXECUTION = ["channel", "limits", "names", "needed_cells", "protocol", "sandbox", "seccomp", "serialization"]
EXECUTION += ["student_runner", "test_runner", "worker"]
DEPENDS_ON = [f"coursegrader/{name}.py" for name in EXECUTION]
DEPENDS_ON += ["coursegrader/system_calls.txt", "mlcourse/*.py", "mlcourse/datasets/*.py", "mlcourse/*.mplstyle"]
DEPENDS_ON += ["data/*", "requirements.lock"]


def cells_of(notebook: NotebookNode, lab: NotebookNode) -> list[Cell]:
    """Return the code cells of a notebook that is ready to be graded, some of them deferred.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
    lab : nbformat.NotebookNode
        The instructor's notebook, which defines the given cells.
    """
    cells = [Cell(cell.source, grade_id(cell)) for cell in notebook.cells if cell.cell_type == "code"]
    return defer(cells, given_cells(lab))


def grade_id(cell):
    """Return the grade_id of a test cell; None for every other cell."""
    return cell.metadata.nbgrader.grade_id if is_grade(cell) and not is_solution(cell) else None


def write_outputs(notebook: NotebookNode, result: dict) -> None:
    """Put the outputs of a result into the cells of its notebook, and the rest into the notebook's metadata.

    A deferred cell keeps the outputs that were handed in, and its metadata say so.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, (cell, outputs) in enumerate(zip(cells, result["outputs"], strict=True), start=1):
        if outputs is None:
            cell.metadata["mlcourse"] = {"as_handed_in": True}
        else:
            cell.outputs = [from_dict(output) for output in outputs]
            cell.execution_count = number
    notebook.metadata.setdefault("mlcourse", {})
    notebook.metadata["mlcourse"] |= {"seconds": result["seconds"], "stopped": result["stopped"]}


def scores_of(notebook: NotebookNode) -> dict[str, float | None]:
    """Return the points of each graded cell of a graded notebook, by grade_id; None if a person marks it."""
    return {cell.metadata.nbgrader.grade_id: determine_grade(cell)[0] for cell in notebook.cells if is_grade(cell)}


def answers_of(notebook: NotebookNode, scores: dict[str, float | None]) -> dict[str, str]:
    """Return a hash of what a person marks in each graded cell, by grade_id.

    It is of the text and the pictures of a written answer, or of all answers in code and the result of a test.
    """
    found, written = {}, [cell for cell in notebook.cells if is_solution(cell)]
    code = [cell.source for cell in written if cell.cell_type == "code"]
    for cell in filter(is_grade, notebook.cells):
        name = cell.metadata.nbgrader.grade_id
        score = scores.get(name)
        of_test = [code, None if score is None else float(score)]
        marked = [cell.source, cell.get("attachments")] if is_solution(cell) else of_test
        found[name] = hashlib.sha256(json.dumps(marked, sort_keys=True).encode()).hexdigest()
    return found


class ResultCache:
    """A cache of a course's results by what they depend on.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course.
    limits : Limits
        The limits of a submission, on which its result may depend.
    sandbox : bool
        Whether students' code runs in the sandbox.
    """

    def __init__(self, root: Path, limits: Limits, sandbox: bool = True):
        self.folder, self.limits, self.sandbox = Path(root) / "_build" / "graded", limits, sandbox

    def find(self, cells: list[Cell], words: Sequence[int]) -> dict | None:
        """Return the stored result of a notebook with these words of the secret, or None."""
        path = self._path(cells, words)
        try:
            result = json.loads(path.read_text("utf-8", "surrogatepass"))
            os.utime(path)  # `prune` deletes what is not used
        except (OSError, ValueError):
            return None
        return result

    def prune(self) -> None:
        """Delete the results that were not used for `KEPT_DAYS` days."""
        before = time.time() - KEPT_DAYS * 24 * 3600
        for path in self.folder.glob("?" * 64 + ".json"):
            with contextlib.suppress(OSError):  # another grading deleted it
                if path.stat().st_mtime < before:
                    path.unlink()

    def store(self, cells: list[Cell], words: Sequence[int], result: dict) -> dict:
        """Store a result and return it. A result that a time limit decided is not stored: a second run may differ."""
        if not result["late"]:
            text = json.dumps(result, ensure_ascii=False)  # escaped, a character of 4 bytes takes 12
            write_whole(self._path(cells, words), text, errors="surrogatepass")
        return result

    def _path(self, cells, words):
        given = [(cell.source, cell.grade_id, cell.defers) for cell in cells]
        text = json.dumps([list(words), asdict(self.limits), self.sandbox, *given])
        key = hashlib.sha256((environment_fingerprint() + text).encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{key}.json"


@functools.cache
def environment_fingerprint() -> str:
    """Return a hash of what a result depends on besides the notebook: code that runs it, helper, data, packages."""
    digest = hashlib.sha256(sys.version.encode())
    for name in PACKAGES:
        digest.update(f"{name} {importlib.metadata.version(name)}".encode())
    for pattern in DEPENDS_ON:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def fingerprint(paths) -> str:
    """Return a hash of the names and contents of files, in the given order."""
    digest = hashlib.sha256()
    for path in paths:
        kind = kind_of(path)
        content = None if kind else read_ordinary(path, MAX_BYTES)
        name = path.name.encode("utf-8", "surrogateescape")
        what = f"{kind} {path.lstat().st_size}".encode() if content is None else content
        digest.update(f"{len(name)} {len(what)} {content is None} ".encode() + name + what)
    return digest.hexdigest()


def handed_in(student: str, lab: str, root: Path) -> str:
    """Return the hashes of the notebooks that a student handed in and of their time, with a hyphen between."""
    files = sorted((root / "submitted" / student / lab).glob("*"))
    # Other files do not affect the grading, and may be put aside under another name
    notebooks, times = (
        by_date(path for path in files if re.fullmatch(name, path.name, re.IGNORECASE | re.DOTALL))
        for name in (r".*\.ipynb", r"timestamp\.txt(\.unreadable.*)?")
    )
    return f"{fingerprint(notebooks)}-{fingerprint(times)}"


def notebooks_of(handed_in: str | None) -> str | None:
    """Return the hash of the notebooks, on which the draw of hidden data depends, of the hashes of `handed_in`."""
    return handed_in and handed_in.split("-")[0]


def not_graded(lab: str, root: Path) -> Iterator[str]:
    """Yield the students whose present submission was not graded."""
    for folder in (root / "submitted").glob(f"*/{lab}"):
        student = folder.parent.name
        try:
            autograded = read_autograded(lab, student, root)
            graded = autograded and autograded.handed_in == handed_in(student, lab, root)
        except OSError:  # it may not be read any more
            graded = False
        if not graded:
            yield student


class Graded(declarative_base()):
    """What a submission was graded with, in a table of the gradebook, so that it is stored together with the points."""

    __tablename__ = "mlcourse_graded"
    lab = Column(String(128), primary_key=True)
    student = Column(String(128), primary_key=True)
    entry = Column(JSON, nullable=False)


class Index:
    """The submissions of a lab that have been graded, with their marks: what the grading depends on.

    A mark holds the hashes of what was handed in, the number of the draw of hidden data, and the hash of everything
    else. The index also holds points and time in the gradebook, which nbgrader may change, and the hash of each answer,
    since what a person has marked is marked again only if it changed. All of it is in the gradebook.

    Parameters
    ----------
    gradebook : nbgrader.api.Gradebook
    root : pathlib.Path
        The folder of the course.
    lab : str
        The lab's name.
    source : nbformat.NotebookNode
        The instructor's notebook with which submissions are graded.
    limits : Limits
        The limits of a submission.
    sandbox : bool
        Whether students' code runs in the sandbox.
    """

    def __init__(self, gradebook, root, lab, source, limits, sandbox=True):
        self.gradebook, self.root, self.name = gradebook, root, lab
        # Hash `source`, not the file, which may change before a submission is graded
        self.lab = hashlib.sha256(f"{writes(source)} {limits} {sandbox}".encode()).hexdigest()
        Graded.metadata.create_all(gradebook.engine)
        self.look()

    def look(self):
        """Read the entries in the gradebook, by student."""
        rows = self.gradebook.db.query(Graded.student, Graded.entry).filter(Graded.lab == self.name)
        self.entries = {row.student: row.entry for row in rows}

    def mark(self, student, secret, draw=None):
        """Return the mark of a submission as it is now."""
        now = handed_in(student, self.name, self.root)
        if draw is None:
            earlier, notebooks = self._graded_before(student), notebooks_of(now)
            same = (one.get("draw") for one in earlier if notebooks_of(one.get("handed_in")) == notebooks)
            draw = next(filter(None, same), None) or secret.draw(self.name)
        rest = f"{environment_fingerprint()} {self.lab} {secret.words(self.name, draw)}"
        return {"handed_in": now, "draw": draw, "rest": hashlib.sha256(rest.encode()).hexdigest()}

    def _graded_before(self, student):
        """Yield, from earlier times that a student was graded, what was handed in and the draw."""
        yield self.entries.get(student, {})
        yield vars(read_autograded(self.name, student, self.root) or Autograded())

    def holds(self, student, mark, recorded):
        """Return whether a submission was graded with this mark, and is what the gradebook has: points and time."""
        entry = {
            name: value
            for name, value in self.entries.get(student, {}).items()
            if name not in ("answers", "late", "late_of")
        }
        return recorded is not None and entry == {**mark, **recorded}

    def count_late(self, prepared):
        """Count how often a limit of time decided a result; return whether the next grading is to try it again.

        After three, the limit is taken for the student's own doing: each try may take minutes.
        """
        mark, before = prepared.mark, self.entries.get(prepared.student, {})
        mark["late_of"] = mark["rest"]
        is_same = all(before.get(name) == mark[name] for name in ("handed_in", "draw", "late_of"))
        mark["late"] = 1 + (before.get("late", 0) if is_same else 0)
        return mark["late"] < LATE_GRADINGS

    def answers(self, student, recorded):
        """Return `answers_of` the submission for which a person may have given marks; none if that is not certain."""
        if student in self.entries:
            # A grading that stopped left another notebook, or the gradebook is an older one
            entry, graded = self.entries[student], read_autograded(self.name, student, self.root)
            seen = notebooks_of(graded.handed_in) if graded else None
            return entry.get("answers", {}) if seen in (None, notebooks_of(entry["handed_in"])) else {}
        # An older version kept it in a file, which may be of another gradebook
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            entry = json.loads((self.root / "_build" / "graded" / f"{self.name}.json").read_text("utf-8"))[student]
            if {"points": entry["points"], "time": entry["time"]} == recorded:
                return entry["answers"]
        return {}

    def __setitem__(self, student, entry):
        """Put an entry into the session of the gradebook; the next commit stores it."""
        self.gradebook.db.merge(Graded(lab=self.name, student=student, entry=entry))
        self.entries[student] = entry

    def begin(self, student, mark):
        """Store that nbgrader grades a submission: marks in the gradebook may be of other answers until it is done."""
        before = self.entries.get(student, {})
        if before.get("handed_in") != mark["handed_in"]:
            is_same = notebooks_of(before.get("handed_in")) == notebooks_of(mark["handed_in"])
            answers = before.get("answers", {}) if is_same else {}
            self[student] = {"handed_in": mark["handed_in"], "draw": mark["draw"], "answers": answers}
            self.gradebook.db.commit()


def keep_answers(gradebook: Gradebook, lab: str, student: str, notebook: NotebookNode) -> None:
    """Store the answers of a submission that nbgrader has graded, which opened all marks."""
    graded = gradebook.db.get(Graded, (lab, student))
    graded.entry = {**graded.entry, "answers": answers_of(notebook, scores_of(notebook))}
    gradebook.db.commit()
