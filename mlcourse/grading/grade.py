"""Grade a class: many notebooks at a time, one writer to the gradebook, and nothing twice."""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import compute_checksum, determine_grade, is_grade, is_solution, parse_utc
from sqlalchemy.exc import SQLAlchemyError

from mlcourse.grading import GradingError
from mlcourse.grading.cells import Cell, Result, failure
from mlcourse.grading.desk import Desk, DeskEnded
from mlcourse.grading.labs import nbgrader_config
from mlcourse.grading.results import Results, cells_of, circumstances, write_outputs
from mlcourse.grading.secret import secret_of
from mlcourse.grading.submissions import (
    check_timestamp,
    find_notebook,
    instructor_notebook,
    read_submission,
    release_of,
)

WAITING = 4  # notebooks that wait for each worker: enough to keep it busy, few enough to keep memory flat


@dataclass
class Summary:
    """What became of a class, and the seconds it took.

    `graded` counts submissions that were graded now, `unchanged` those graded before; of those graded now, `refused`
    were not run, and in `late` ones a limit of time decided about something.
    """

    graded: int = 0
    unchanged: int = 0
    refused: int = 0
    late: int = 0
    seconds: float = 0.0


@dataclass
class Prepared:
    """A submission that is ready to be run."""

    student: str
    notebook: nbformat.NotebookNode
    cells: list[Cell]
    mark: dict
    words: tuple[int, ...]
    timestamp: str | None


def grade_class(
    lab: str,
    root: Path,
    *,
    workers: int | None = None,
    sandbox: bool = True,
    again: bool = False,
    draw: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Summary:
    """Grade what students handed in for a lab, and record it in the gradebook.

    Parameters
    ----------
    lab : str
        The lab's name. Its submissions are ``submitted/STUDENT/LAB/``.
    root : pathlib.Path
        The folder of the course.
    workers : int, optional
        How many notebooks run at a time; by default as many as there are cores.
    sandbox : bool
        False runs students' code without a box.
    again : bool
        Run also what has been run before.
    draw : int, optional
        The draw of hidden data that every submission meets (`mlcourse.grading.secret`). By default those that have not
        changed since they were graded stay with theirs, and the others meet the present one.
    scheduler : str, optional
        The address of a Dask scheduler, whose workers take the place of this machine's.
    progress : callable
        Called with the number of submissions that are done, and of all.

    Raises
    ------
    GradingError
        If there is nothing to grade, or no box to grade it in.
    """
    begin, summary = time.monotonic(), Summary()
    config = nbgrader_config(root)
    secret = secret_of(config)
    source = instructor_notebook(root, lab)
    released = release_of(source)
    students = students_of(lab, root)
    graded = Index(root / "_build" / "graded" / f"{lab}.json")
    expected = len(students) - (0 if again else len(graded.entries))
    places = pool(workers, sandbox, scheduler, cells_of(source), expected)
    with gradebook_of(config) as gradebook, places as (submit, width):
        record = Recorder(gradebook, config, lab, root)
        stored = Results(root, None)
        running = {}

        def finish(prepared, result):
            with uninterrupted():
                record(prepared, result)
                # What a limit of time decided is run again the next time, in the same draw
                graded[prepared.student] = {**prepared.mark, "rest": None} if result["late"] else prepared.mark
            summary.graded += 1
            summary.late += result["late"]
            summary.refused += prepared.notebook.metadata.mlcourse.refused is not None

        def collect(most):
            while len(running) > most:
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    prepared = running.pop(future)
                    finish(prepared, stored.store(prepared.cells, prepared.words, future.result()))
                    progress(summary.graded + summary.unchanged, len(students))

        try:
            for student in students:
                mark = graded.mark(lab, student, root, secret, draw)
                if graded.get(student) == mark and record.has(student) and not again:
                    summary.unchanged += 1
                else:
                    prepared = prepare(lab, student, root, source, released, mark, secret.words(lab, mark["draw"]))
                    result = None if again else stored.find(prepared.cells, prepared.words)
                    if result is None:
                        running[submit(prepared.cells, prepared.words)] = prepared
                    else:
                        finish(prepared, result)
                progress(summary.graded + summary.unchanged, len(students))
                collect(most=WAITING * width)
            collect(most=0)
        finally:
            with uninterrupted():
                record.commit()
                graded.write()
    summary.seconds = time.monotonic() - begin
    return summary


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block: a gradebook stopped in the middle of a change takes no other."""
    before, pressed = signal.getsignal(signal.SIGINT), []
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def students_of(lab: str, root: Path) -> list[str]:
    """Return who handed in something for a lab."""
    students = sorted(path.parent.name for path in (root / "submitted").glob(f"*/{lab}") if path.is_dir())
    if not students:
        raise GradingError(
            f"nobody has handed in {lab}: no folder submitted/STUDENT/{lab} is there; `mlcourse collect {lab} FILE...` "
            "makes them from a folder or an archive of your learning platform"
        )
    return students


def gradebook_of(config) -> Gradebook:
    """Open the gradebook of a course: `db_url` of its configuration, or gradebook.db in its folder."""
    root = config.CourseDirectory.root
    url = config.CourseDirectory.get("db_url", f"sqlite:///{os.path.join(root, 'gradebook.db')}")
    try:
        return Gradebook(url, config.CourseDirectory.get("course_id", ""))
    except (ImportError, SQLAlchemyError) as error:
        raise GradingError(
            f"the gradebook does not open: {str(error).splitlines()[0]}: look at c.CourseDirectory.db_url in "
            "nbgrader_config.py (PostgreSQL needs its library: pip install 'psycopg[binary]')"
        ) from None


def prepare(lab, student, root, source, released, mark, words) -> Prepared:
    """Read a submission and make it ready to be run."""
    folder = root / "submitted" / student / lab
    note = check_timestamp(folder)
    path, repairs = find_notebook(folder, lab, source)
    submission = read_submission(path or folder / f"{lab}.ipynb", source, released)
    notebook = submission.notebook
    repairs = [*([note] if note else []), *repairs, *submission.repairs]
    notebook.metadata["mlcourse"] = nbformat.from_dict({"repairs": repairs, "refused": submission.refused})
    notebook.metadata.mlcourse["draw"] = mark["draw"]
    with contextlib.suppress(OSError):
        timestamp = (folder / "timestamp.txt").read_text("utf-8")
        return Prepared(student, notebook, cells_of(notebook), mark, words, timestamp)
    return Prepared(student, notebook, cells_of(notebook), mark, words, None)


def fingerprint(paths) -> str:
    """Return a hash of the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode("utf-8", "surrogateescape"))
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Index:
    """Which submissions have been graded, by marks: what their grading depends on.

    A mark holds the hash of what was handed in, the number of the draw of hidden data, and the hash of everything else.
    """

    def __init__(self, path):
        self.path, self.entries = path, {}
        with contextlib.suppress(OSError, ValueError):
            self.entries = json.loads(path.read_text(encoding="utf-8"))

    def mark(self, lab, student, root, secret, draw):
        """Return the mark of a submission as it is now."""
        handed_in = fingerprint(sorted((root / "submitted" / student / lab).glob("*")))
        before = self.get(student)
        if draw is None:
            same = isinstance(before, dict) and before.get("handed_in") == handed_in
            draw = before["draw"] if same else secret.draw(lab)
        source = fingerprint([root / "source" / lab / f"{lab}.ipynb"])
        rest = hashlib.sha256(f"{circumstances()} {source} {secret.words(lab, draw)}".encode()).hexdigest()
        return {"handed_in": handed_in, "draw": draw, "rest": rest}

    def get(self, student):
        return self.entries.get(student)

    def __setitem__(self, student, mark):
        self.entries[student] = mark

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.entries), encoding="utf-8")
        part.replace(self.path)


class Recorder:
    """Write results where nbgrader writes them: to ``autograded/`` and the gradebook.

    The rules are those of nbgrader's `SaveAutoGrades` and `AssignLatePenalties`; one session records the whole class.
    """

    def __init__(self, gradebook, config, lab, root):
        self.gradebook, self.config, self.lab, self.root = gradebook, config, lab, root
        # The only writer need not read again what it has written, nor for every submission the cells of the lab, of
        # which the session keeps no more than is held somewhere
        gradebook.db().expire_on_commit = False
        self.notebook = gradebook.find_notebook(lab, lab)
        self.cells = [*self.notebook.grade_cells, *self.notebook.solution_cells, *self.notebook.task_cells]
        self.checksums = {cell.name: cell.checksum for cell in self.notebook.source_cells}
        self.students = {student.id for student in gradebook.students}
        self.submitted = {one.student_id for one in gradebook.find_assignment(lab).submissions}
        self.waiting = 0

    def has(self, student):
        return student in self.submitted and self.path(student).exists()

    def path(self, student):
        return self.root / "autograded" / student / self.lab / f"{self.lab}.ipynb"

    def __call__(self, prepared, result):
        notebook, student = prepared.notebook, prepared.student
        write_outputs(notebook, result)
        for cell in notebook.cells:
            if "nbgrader" in cell.metadata:
                cell.metadata.nbgrader["checksum"] = self.checksums.get(cell.metadata.nbgrader["grade_id"])
        self._write(prepared)
        if student not in self.students:
            self.gradebook.update_or_create_student(student)
            self.students.add(student)
        when = {} if prepared.timestamp is None else {"timestamp": parse_utc(prepared.timestamp.strip())}
        with self.gradebook.db.no_autoflush:
            submission = self.gradebook.update_or_create_submission(self.lab, student, **when)
        self.submitted.add(student)
        [recorded] = [one for one in submission.notebooks if one.name == self.lab]
        grades = {grade.name: grade for grade in recorded.grades}
        comments = {comment.name: comment for comment in recorded.comments}
        for cell in notebook.cells:
            if is_grade(cell):
                grade = grades[cell.metadata.nbgrader.grade_id]
                grade.auto_score, _ = determine_grade(cell)
                grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
            if is_solution(cell):
                unchanged = cell.metadata.nbgrader.checksum == compute_checksum(cell)
                comments[cell.metadata.nbgrader.grade_id].auto_comment = "No response." if unchanged else None
        if submission.total_seconds_late > 0:
            self.commit()
            names = {"notebook": self.lab, "assignment": self.lab, "student": student}
            resources = {"nbgrader": {**names, "db_url": str(self.gradebook.engine.url)}}
            AssignLatePenalties(config=self.config).preprocess(notebook, resources)
        self.waiting += 1
        if self.waiting >= 20:
            self.commit()

    def _write(self, prepared):
        path = self.path(prepared.student)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        nbformat.write(prepared.notebook, part)
        part.replace(path)
        if prepared.timestamp is not None:
            (path.parent / "timestamp.txt").write_text(prepared.timestamp, encoding="utf-8")

    def commit(self):
        self.gradebook.db.commit()
        self.waiting = 0


@contextlib.contextmanager
def pool(workers, sandbox, scheduler, reference, expected) -> Iterator[tuple[Callable, int]]:
    """Give a function that runs the cells of a notebook somewhere and returns a future, and how many run at a time."""
    if scheduler is None:
        workers = workers or len(os.sched_getaffinity(0))
        desks = queue.SimpleQueue()
        cores = sorted(os.sched_getaffinity(0))
        every = [
            Desk(sandbox, reference, expected // workers, core)
            for core in itertools.islice(itertools.cycle(cores), workers)
        ]
        for desk in every:
            desks.put(desk)
        executor = concurrent.futures.ThreadPoolExecutor(workers)
        try:
            yield lambda *what: executor.submit(_run_here, desks, *what), workers
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for desk in every:
                desk.kill() if sys.exc_info()[0] else desk.close()
        return
    try:
        from distributed import Client
    except ImportError:
        raise GradingError("a Dask cluster needs its library: type pip install distributed") from None
    try:
        client = Client(scheduler, timeout="10s")
    except OSError as error:
        raise GradingError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    with client, client.get_executor(pure=False) as executor:
        width = sum(client.nthreads().values()) or 1
        there = [asdict(cell) for cell in reference]
        yield lambda cells, words: executor.submit(run_there, list(map(asdict, cells)), words, there, sandbox), width


def _run_here(desks, cells, words):
    desk = desks.get()
    try:
        return run(desk, cells, words)
    finally:
        desks.put(desk)


def run_there(cells: list[dict], words: Sequence[int], reference: list[dict], sandbox: bool) -> dict:
    """Run a notebook on a worker of a cluster, at its one desk, which serves all labs."""
    from mlcourse.grading.preprocessors import the_desk

    desk = the_desk(sandbox)
    desk.reference = [Cell(**cell) for cell in reference]
    return run(desk, [Cell(**cell) for cell in cells], words)


def run(desk: Desk, cells: list[Cell], words: Sequence[int]) -> dict:
    """Run a notebook; if that ends the desk itself twice, every test of it has failed."""
    for _ in range(2):
        try:
            return desk.grade(cells, words)
        except DeskEnded:
            continue
    message = "not run, since this notebook ended the grading process twice."
    return asdict(Result([[failure(message)] if cell.grade_id else [] for cell in cells], stopped=message))
