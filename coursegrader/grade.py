"""Grade a class: run notebooks in parallel and none twice, and write to the gradebook from one thread."""

import concurrent.futures
import contextlib
import logging
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime
from pathlib import Path

import nbformat
import nbgrader.api
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.utils import compute_checksum, is_solution, parse_utc
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, OperationalError, SQLAlchemyError

from coursegrader import GradingError
from coursegrader.collect import identifier
from coursegrader.deadlines import FILE, apply_deadlines, check_deadlines, lateness, say_unknown, submitted
from coursegrader.files import (
    MAKE_ROOM,
    CannotWrite,
    kind_of,
    one_at_a_time,
    unexpected,
    uninterrupted,
    write_whole,
)
from coursegrader.labs import cells_that_differ, nbgrader_config
from coursegrader.preprocessors import limits_of, the_worker
from coursegrader.protocol import Cell, NotebookResult, failure
from coursegrader.result_cache import Index, ResultCache, answers_of, cells_of, scores_of, write_outputs
from coursegrader.roster import handed_in_nothing, read_roster
from coursegrader.scores import automatic_points, read_autograded
from coursegrader.secret import secret_of
from coursegrader.submissions import (
    SECRET,
    check_timestamp,
    find_notebook,
    instructor_notebook,
    is_text,
    left_out,
    read_secret,
    read_submission,
    release_of,
    shown,
)
from coursegrader.worker import NO_LINUX, Worker, WorkerEnded

LOCKED = "database is locked"  # SQLite's message
IN_USE = "another program uses the gradebook: wait until it is done, or close it, then run the same command again"
REOPENED = (
    "{} was marked by hand, and the answer or its result has changed since: mark it again; until then it keeps {:g} "
    "points."
)
WAITING = 4  # notebooks queued for each worker: enough to keep it busy, few enough to keep memory flat


@dataclass
class Summary:
    """The result of grading a class, and the seconds it took.

    `graded` counts submissions graded now, `unchanged` those graded before. Of those graded now, `refused` were not
    run. In `late` ones a time limit decided a result and they are to be run again; in `late_for_good` ones the result
    counts. `overdue` submissions of the class were handed in late.
    `notes` holds remarks on students' submissions, `missed` the reasons why submissions could not be graded. `silent`
    people are on the roster and handed in nothing.
    """

    graded: int = 0
    unchanged: int = 0
    refused: int = 0
    late: int = 0
    late_for_good: int = 0
    overdue: int = 0
    silent: int = 0
    seconds: float = 0.0
    notes: list[tuple[str, str]] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)

    @property
    def done(self):
        return self.graded + self.unchanged + len(self.missed)


@dataclass
class Prepared:
    """A submission that is ready to be run; `notes` are also shown to the instructor."""

    student: str
    notebook: nbformat.NotebookNode
    cells: list[Cell]
    mark: dict
    words: tuple[int, ...]
    timestamp: str | None
    secret: str | None
    notes: list[str]


def grade_class(
    lab: str,
    root: Path,
    *,
    workers: int | None = None,
    sandbox: bool = True,
    again: bool = False,
    draw: int | None = None,
    limits: dict[str, float] | None = None,
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
        Number of notebooks that run in parallel; at most, and by default, the number of cores.
    sandbox : bool
        False runs students' code without a sandbox.
    again : bool
        Also run what has been run before.
    draw : int, optional
        The draw of hidden data for every submission (`coursegrader.secret`). By default, submissions that have not
        changed since they were graded keep their draw, and the others get the present one.
    limits : dict, optional
        The limits of a submission that differ from ``c.GradeInSandbox.limits``.
    scheduler : str, optional
        The address of a Dask scheduler, whose workers replace those of this machine.
    progress : callable
        Called with the number of finished submissions and the total.

    Raises
    ------
    GradingError
        If there is nothing to grade, no sandbox to grade it in, no room to write to, or if another grading is running.
    """
    with one_at_a_time(root):
        return _grade_class(lab, root, workers, sandbox, again, draw, limits, scheduler, progress)


def _grade_class(lab, root, workers, sandbox, again, draw, limits, scheduler, progress):
    begin, summary = time.monotonic(), Summary()
    config = nbgrader_config(root)
    limits = limits_of(config, limits)
    secret = secret_of(config)
    source = instructor_notebook(root, lab)
    released = release_of(source)
    students, summary.missed = students_of(lab, root)
    everybody = len(students) + len(summary.missed)
    places = pool(workers, sandbox, limits, scheduler)
    with gradebook_of(config) as gradebook, places as (submit, width):
        check_deadlines(gradebook, root)
        people = read_roster(gradebook, root)  # before anything is graded: it may be broken
        graded = Index(gradebook, root, lab, source, limits, sandbox)
        record = Recorder(gradebook, lab, root, graded)
        if cells := cells_that_differ(source, gradebook, lab):
            raise GradingError(
                f"the gradebook has other cells or points of {lab} ({cells}): type mlcourse release {lab}"
            )
        stored = ResultCache(root, limits, sandbox)
        stored.prune()
        running = {}

        def finish(prepared, result):
            if result["late"] and graded.count_late(prepared):
                # The next grading runs it again, with the same draw
                prepared.mark["rest"] = None
                summary.late += 1
            elif result["late"]:
                summary.late_for_good += 1
            with uninterrupted():
                record(prepared, result)
            summary.graded += 1
            summary.notes += [(prepared.student, sentence) for sentence in prepared.notes]
            summary.refused += prepared.notebook.metadata.mlcourse.refused is not None

        @contextlib.contextmanager
        def trying(student):
            """Record an error with one student and go on, unless the disk or the gradebook fails."""
            try:
                yield
            except CannotWrite:
                raise
            except GradingError as error:
                summary.missed[student] = f"Not graded: {error}."
            except Exception as error:
                if is_of_gradebook(error):
                    raise
                summary.missed[student] = f"Not graded: {unexpected(error, f'grade {lab}: {student}', root)}."

        def collect(most):
            while len(running) > most:
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    prepared = running.pop(future)
                    if isinstance(error := future.exception(), GradingError):
                        raise error  # of the worker, not of the student
                    with trying(prepared.student):
                        finish(prepared, stored.store(prepared.cells, prepared.words, future.result()))
                    progress(summary.done, everybody)

        for student in students:
            with trying(student):
                # It renames a file, on which the mark depends
                check_timestamp(root / "submitted" / student / lab)
                mark = graded.mark(student, secret, draw)
                held = graded.holds(student, mark, record.recorded.get(student)) and not again
                before = record.graded(student) if held else None
                if before and (before.handed_in, before.rest) == (mark["handed_in"], mark["rest"]):
                    summary.unchanged += 1
                    summary.notes += [(student, f"Refused: {before.refused}")] if before.refused else []
                else:
                    prepared = prepare(lab, student, root, source, released, mark, secret.words(lab, mark["draw"]))
                    result = None if again else stored.find(prepared.cells, prepared.words)
                    if result is None:
                        running[submit(prepared.cells, prepared.words)] = prepared
                    else:
                        finish(prepared, result)
            progress(summary.done, everybody)
            collect(most=WAITING * width)
        collect(most=0)
        with uninterrupted():
            deadlines = apply_deadlines(gradebook, root, config)
        recorded = submitted(gradebook, gradebook.find_assignment(lab), root)
        summary.overdue = sum(lateness(*one, deadlines, root, config).days > 0 for one in recorded)
        summary.notes += [(FILE, sentence) for sentence in say_unknown(deadlines, gradebook, root)]
        summary.silent = len(handed_in_nothing(people, lab, gradebook, root))
    summary.seconds = time.monotonic() - begin
    return summary


def students_of(lab: str, root: Path) -> tuple[list[str], dict[str, str]]:
    """Return the students with a submission to a lab, and why other submissions cannot be graded."""
    students, missed = [], {}
    place = root / "submitted"
    for student in sorted(os.listdir(place)) if place.is_dir() else []:
        try:
            kinds = [kind_of(place / student), kind_of(place / student / lab)]
        except (FileNotFoundError, NotADirectoryError):
            continue  # nothing for this lab
        except OSError as error:
            missed[student] = f"Not graded: submitted/{shown(student)} cannot be read ({error.strerror})."
            continue
        where = f"submitted/{shown(student)}" if kinds[0] != "a folder" else f"submitted/{shown(student)}/{lab}"
        if kinds != ["a folder", "a folder"]:
            kind = next(kind for kind in kinds if kind != "a folder") or "a file"
            missed[student] = f"Not graded: {where} is {kind}; put a folder with the notebook there."
        elif not is_text(student):
            missed[student] = f"Not graded: the name of the folder {where} is not text in UTF-8; rename it."
        elif (name := _identifier(student)) != student.replace(" ", "_"):
            # nbgrader finds students' folders by a pattern, and does not escape their names on its pages
            missed[student] = (
                f"Not graded: nbgrader cannot handle the name of the folder submitted/{shown(student)}; rename it"
                f"{f' to {name}' if name else ''}."
            )
        else:
            students.append(student)
    if not students and not missed:
        raise GradingError(
            f"nobody has handed in {lab}: no folder submitted/STUDENT/{lab} is there; `mlcourse collect {lab} FILE...` "
            "makes them from a folder or an archive of your learning platform"
        )
    return students, missed


def _identifier(name):
    """Return the identifier that `mlcourse collect` derives from a name; None if it refuses the name."""
    with contextlib.suppress(GradingError):
        return identifier(name.replace(" ", "_"))


@contextlib.contextmanager
def gradebook_of(config) -> Iterator[Gradebook]:
    """Open the gradebook of a course: `db_url` of its configuration, or gradebook.db in its folder."""
    logging.getLogger("tornado.application").addFilter(_not_of_nbgrader)
    root = config.CourseDirectory.root
    url = config.CourseDirectory.get("db_url", f"sqlite:///{os.path.join(root, 'gradebook.db')}")
    try:
        gradebook = Gradebook(url, config.CourseDirectory.get("course_id", ""))
    except (ImportError, SQLAlchemyError) as error:
        if LOCKED in str(error):
            raise CannotWrite(IN_USE) from None
        raise GradingError(
            f"the gradebook does not open: {str(error).splitlines()[0]}: look at c.CourseDirectory.db_url in "
            "nbgrader_config.py (PostgreSQL needs its library: pip install 'psycopg[binary]')"
        ) from None
    try:
        with gradebook:
            yield gradebook
    except DatabaseError as error:
        if LOCKED in str(error.orig):
            raise CannotWrite(IN_USE) from None
        if not isinstance(error, OperationalError) and is_of_gradebook(error):
            raise GradingError(
                f"the gradebook is damaged ({error.orig}): put back a copy of it, then grade every lab again; what was "
                "run is not run twice"
            ) from None
        raise CannotWrite(f"the gradebook cannot be read or written ({error.orig}): {MAKE_ROOM}") from None


def is_of_gradebook(error: Exception) -> bool:
    """Return whether an error concerns the gradebook as a whole, not one submission."""
    return isinstance(error, DatabaseError) and not isinstance(error, (DataError, IntegrityError))


def _not_of_nbgrader(record):
    """Whether a log record is not nbgrader's, which logs a traceback of each error that it also raises."""
    return record.pathname != nbgrader.api.__file__


def prepare(lab, student, root, source, released, mark, words) -> Prepared:
    """Read a submission and make it ready to be run."""
    folder = root / "submitted" / student / lab
    notes = [*filter(None, [check_timestamp(folder)]), *left_out(folder)]
    path, repairs = find_notebook(folder, lab, source)
    submission = read_submission(path or folder / f"{lab}.ipynb", source, released)
    notebook, refused = submission.notebook, submission.refused
    repairs = [*notes, *repairs, *submission.repairs]
    met = {"draw": mark["draw"], "handed_in": mark["handed_in"]}
    notebook.metadata["mlcourse"] = nbformat.from_dict({"repairs": repairs, "refused": refused, **met})
    notes += [f"Refused: {refused}"] if refused else []
    timestamp = None
    with contextlib.suppress(OSError):
        timestamp = (folder / "timestamp.txt").read_text("utf-8")
    cells = cells_of(notebook, source)
    return Prepared(student, notebook, cells, mark, words, timestamp, read_secret(folder), notes)


class Recorder:
    """Write results and what they depend on to the gradebook, and then, as nbgrader does, to ``autograded/``.

    It follows nbgrader's `SaveAutoGrades`; one session records the whole class.
    """

    def __init__(self, gradebook, lab, root, index):
        self.gradebook, self.lab, self.root, self.index = gradebook, lab, root, index
        # We are the only writer: do not expire objects on commit. Keep references to the cells of the lab, since the
        # session holds only weak ones
        gradebook.db().expire_on_commit = False
        try:
            self.notebook = gradebook.find_notebook(lab, lab)
        except MissingEntry:
            raise GradingError(f"the gradebook has no lab {lab}: type mlcourse release {lab}") from None
        self.cells = [*self.notebook.grade_cells, *self.notebook.solution_cells, *self.notebook.task_cells]
        self.checksums = {cell.name: cell.checksum for cell in self.notebook.source_cells}
        self.look()

    def look(self):
        """Read the students in the gradebook, and of each submission the points and the time."""
        self.students = {student.id for student in self.gradebook.students}
        submissions = self.gradebook.find_assignment(self.lab).submissions
        times = {one.student_id: as_text(one.timestamp) for one in submissions}
        points = automatic_points(self.lab, self.gradebook)
        self.recorded = {student: {"points": points.get(student), "time": time} for student, time in times.items()}

    def graded(self, student):
        """Return the autograded notebook of a student who is in the gradebook."""
        return read_autograded(self.lab, student, self.root) if student in self.recorded else None

    def path(self, student):
        return self.root / "autograded" / student / self.lab / f"{self.lab}.ipynb"

    def __call__(self, prepared, result):
        before = self.index.answers(prepared.student, self.recorded.get(prepared.student))
        write_outputs(prepared.notebook, result)
        prepared.notebook.metadata.mlcourse["rest"] = prepared.mark["rest"]
        for cell in prepared.notebook.cells:
            if "nbgrader" in cell.metadata:
                cell.metadata.nbgrader["checksum"] = self.checksums.get(cell.metadata.nbgrader["grade_id"])
        entry = Entry.of(prepared, before)
        try:
            self.enter(entry)
            self.gradebook.db.commit()
        except Exception as error:
            self.gradebook.db.rollback()
            cause = error if is_of_gradebook(error) else error.__context__
            if is_of_gradebook(cause):
                raise cause from None
            self.look()
            self.index.look()
            raise
        # After the gradebook: if the grading stops between, the submission is one that was not graded
        path = self.path(prepared.student)
        write_whole(path, nbformat.writes(prepared.notebook) + "\n")
        for name, text in [("timestamp.txt", prepared.timestamp), (SECRET, prepared.secret)]:
            if text is not None:
                write_whole(path.with_name(name), text)
        prepared.notes += [REOPENED.format(name, points) for name, points in entry.reopened.items()]

    def enter(self, entry):
        """Put the points of a submission into the gradebook, and reopen what a person marked if the answer changed."""
        entry.reopened.clear()
        if entry.student not in self.students:
            self.gradebook.update_or_create_student(entry.student)
            self.students.add(entry.student)
        # None, too: the time of an earlier submission is not that of this one
        when = None if entry.timestamp is None else parse_utc(entry.timestamp.strip())
        with self.gradebook.db.no_autoflush:
            submission = self.gradebook.update_or_create_submission(self.lab, entry.student, timestamp=when)
        self.recorded[entry.student] = {"points": entry.scores, "time": as_text(when)}
        [recorded] = [one for one in submission.notebooks if one.name == self.lab]
        for grade in recorded.grades:
            if grade.name in entry.scores:
                grade.auto_score = entry.scores[grade.name]
                if grade.manual_score is None:
                    grade.needs_manual_grade = grade.auto_score is None
                elif grade.name in entry.changed and not grade.needs_manual_grade:
                    grade.needs_manual_grade = True
                    entry.reopened[grade.name] = grade.manual_score
        for comment in recorded.comments:
            if comment.name in entry.comments:
                comment.auto_comment = entry.comments[comment.name]
        self.index[entry.student] = {
            **entry.mark,
            "points": entry.scores,
            "time": as_text(when),
            "answers": entry.answers,
        }


def as_text(time: datetime | None) -> str | None:
    """Return a time of the gradebook as text for the index."""
    return time and time.isoformat()


@dataclass
class Entry:
    """What the gradebook records of a submission.

    `answers` are those of `answers_of`, and `changed` names the cells in which they are not what was graded before.
    `reopened` has the points of the marks that are to be given again.
    """

    student: str
    timestamp: str | None
    mark: dict
    scores: dict[str, float | None]
    comments: dict[str, str | None]
    answers: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    reopened: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, prepared, before):
        entry = cls(prepared.student, prepared.timestamp, prepared.mark, scores_of(prepared.notebook), {})
        for cell in prepared.notebook.cells:
            if is_solution(cell):
                unchanged = cell.metadata.nbgrader.checksum == compute_checksum(cell)
                entry.comments[cell.metadata.nbgrader.grade_id] = "No response." if unchanged else None
        entry.answers = answers_of(prepared.notebook, entry.scores)
        entry.changed = {name for name, answer in entry.answers.items() if before.get(name) != answer}
        return entry


@contextlib.contextmanager
def pool(workers, sandbox, limits, scheduler) -> Iterator[tuple[Callable, int]]:
    """Yield a function that submits the cells of a notebook and returns a future, and how many run in parallel."""
    if scheduler is None:
        if sys.platform != "linux":
            raise GradingError(NO_LINUX)
        # Two on one core could take the time from each other
        cores = sorted(os.sched_getaffinity(0))[:workers]
        idle = queue.SimpleQueue()
        every = [Worker(sandbox, core, **asdict(limits)) for core in cores]
        for worker in every:
            idle.put(worker)
        executor = concurrent.futures.ThreadPoolExecutor(len(cores))
        try:
            yield lambda *what: executor.submit(_run_here, idle, *what), len(cores)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for worker in every:
                worker.kill() if sys.exc_info()[0] else worker.close()
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
        yield (
            lambda cells, words: executor.submit(run_there, list(map(asdict, cells)), words, sandbox, astuple(limits)),
            width,
        )


def _run_here(idle, cells, words):
    worker = idle.get()
    try:
        return run(worker, cells, words)
    finally:
        idle.put(worker)


def run_there(cells: list[dict], words: Sequence[int], sandbox: bool, limits: tuple) -> dict:
    """Run a notebook in a process of a Dask cluster, on its one worker, which serves all labs."""
    return run(the_worker(sandbox, limits), [Cell(**cell) for cell in cells], words)


def run(worker: Worker, cells: list[Cell], words: Sequence[int]) -> dict:
    """Run a notebook; if it ends the worker twice, all its tests fail until it is run again."""
    for _ in range(2):
        try:
            return worker.grade(cells, words)
        except WorkerEnded:
            continue
    message = "not run, because this notebook ended the grading process twice."
    outputs = [[failure(message)] if cell.grade_id else None if cell.defers is not None else [] for cell in cells]
    return asdict(NotebookResult(outputs, stopped=message, late=True))
