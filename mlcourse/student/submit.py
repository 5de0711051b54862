"""Check a lab before it is handed in, and write the one file to hand in.

The notebook runs as nbgrader's validation runs it: from the top, in a fresh kernel. What is handed in is
the notebook as it was saved; the results of the run are only told.

Check cells that are missing show in the points: each exercise states its own, and they must be those of its cells.
"""

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from mlcourse.settings import setting
from mlcourse.student import StudentError
from mlcourse.student.notebooks import (
    HAND_IN,
    LAB_NAME,
    MAX_BYTES,
    as_given,
    grade_id,
    grader,
    has_passed,
    identifier,
    is_solution,
    is_test,
    parse,
    write,
)

FOLDER = "hand-in"
WHERE = "Hand it in where your instructor told you."
TIME_OUT = 120  # seconds for a cell; a validation of nbgrader stops it after 30, which is too early on a slow machine
HIDDEN = "When your work is graded, hidden checks with other data decide on these points."


@dataclass
class Exercise:
    """An exercise of a lab, and what a run of the notebook says about the answer.

    Attributes
    ----------
    title : str
        As it stands in the notebook, with its number.
    points : int
        All points of the exercise.
    written : bool
        Whether the student wrote into a cell for an answer.
    checks, passed : int
        Check cells, and how many of them pass.
    passed_points : int
        The points of the checks that pass.
    marked_points : int
        The points of written answers, which a person marks.
    problems : list of str
        A sentence for each check that fails, and for whatever is wrong with the cells.
    cell : str or None
        The identifier of the cell with the title.
    """

    title: str
    points: int = 0
    written: bool = False
    checks: int = 0
    passed: int = 0
    passed_points: int = 0
    marked_points: int = 0
    problems: list[str] = field(default_factory=list)
    cell: str | None = None

    @property
    def done(self):
        """Whether an answer is there, and nothing is known to be wrong with it."""
        return self.written and self.passed == self.checks and not self.problems

    @property
    def reach(self):
        """The points that the answer may get as it stands: those of checks that pass, and those that a person gives."""
        return self.passed_points + (self.marked_points if self.written else 0)

    @property
    def state(self):
        """How far the answer is, in a few words."""
        states = [f"{self.passed} of {self.checks} checks pass"] if self.checks else []
        states += ["written, marked by a person"] if self.marked_points else []
        return ", ".join(states) if self.written else "not written yet"

    def told(self):
        """Return the state of the exercise in a line, and a line for each problem."""
        return "\n".join([f"{self.title}: {self.state}", *(f"  - {problem}" for problem in self.problems)])


def find_lab(root, text):
    """Return the lab that a student names, and its notebook.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course.
    text : str
        The name of a lab, its beginning, its number, its folder, or the path of a notebook.

    Returns
    -------
    name : str
    path : pathlib.Path

    Raises
    ------
    StudentError
        If that is no lab, or more than one.
    """
    labs = sorted(path.name for path in (root / "labs").glob("lab-*/") if re.fullmatch(LAB_NAME, path.name))
    path = Path(text).expanduser()
    if path.suffix == ".ipynb":
        named = [name for name in labs if name in path.stem]
        if not path.is_file():
            raise StudentError(
                f"there is no notebook {path}: name a lab instead, for instance `mlcourse submit lab-01`"
            )
        if not named:
            raise StudentError(f"{path} is not named after a lab: give it the name of its lab, such as {labs[0]}.ipynb")
        return max(named, key=len), path
    number = re.fullmatch(r"(?:lab[- ]?)?(\d+)", path.name)
    found = [name for name in labs if number and int(name[4:6]) == int(number[1])]
    found = found or [name for name in labs if name == path.name]
    found = found or [name for name in labs if path.name and name.startswith(path.name)]
    if len(found) > 1:
        raise StudentError(f"{text!r} may be {', '.join(found)}: type more of the name, or the number of the lab")
    if not found:
        raise StudentError(f"there is no lab {text!r}: the labs are {', '.join(labs)}")
    return found[0], root / "labs" / found[0] / f"{found[0]}.ipynb"


def read_content(path):
    """Return a saved notebook, as bytes and as `mlcourse.student.notebooks.parse` returns it.

    Raises
    ------
    StudentError
        If it cannot be read or holds no exercise.
    """
    again = "nothing was written; open it in JupyterLab, save it, and type the same again"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise StudentError(
                f"{path} is larger than {MAX_BYTES // 2**20} MB and would not be graded: nothing was written; open it "
                "in JupyterLab, choose Edit, Clear Outputs of All Cells, save it, and type the same again"
            )
        content = path.read_bytes()
    except OSError as error:
        raise StudentError(f"{path} cannot be read ({error.strerror}): {again}") from None
    try:
        notebook = parse(content, path)
    except StudentError as error:
        raise StudentError(f"{error}: {again}") from None
    if not any(map(is_solution, notebook["cells"])):
        raise StudentError(f"{path} holds no exercise of a lab: nothing was written; name the notebook of the lab")
    return content, notebook


def run(notebook):
    """Run a notebook from the top in a fresh kernel, as a validation of nbgrader does, but in an empty folder.

    The grader has the notebook alone, so here, too, no module or file beside it counts.

    Parameters
    ----------
    notebook : dict
        From `mlcourse.student.notebooks.parse`; it is left as it is.

    Returns
    -------
    cells : list of dict
        The cells with their new outputs; without any, after a cell with which the kernel stopped.
    stopped : str or None
        A sentence about that, None if every cell ran.

    Raises
    ------
    StudentError
        If no kernel can be started.
    """
    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import DeadKernelError
    from nbgrader.preprocessors import ClearOutput, Execute
    from nbgrader.utils import setenv
    from traitlets.config import Config

    notebook, stopped = nbformat.from_dict(notebook), None
    ClearOutput().preprocess(notebook, {})
    try:
        with (
            tempfile.TemporaryDirectory() as private,
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            setenv(NBGRADER_VALIDATING="1", NBGRADER_EXECUTION="validate"),
        ):
            config = {"KernelManager": {"transport": "ipc", "ip": f"{private}/kernel"}} if os.name == "posix" else {}
            execute = Execute(
                kernel_name="python3",
                timeout=TIME_OUT,
                iopub_timeout=60,  # seconds for the last output of a cell; 4 are too few for a busy machine
                extra_arguments=["--log-level=ERROR"],
                config=Config(config),  # every user of a machine may listen at a port of it
            )
            execute.preprocess(notebook, {"metadata": {"path": folder}})
    except NoSuchKernel:
        raise StudentError(
            "the lab cannot be run, since Jupyter finds no Python: nothing was written; type `mlcourse doctor`, which "
            "says what is missing"
        ) from None
    except DeadKernelError:
        stopped = "Python itself stopped in the middle of the lab, maybe for want of memory: the rest did not run."
    return notebook.cells, stopped


def judge(cells):
    """Return what the cells of a notebook that ran say about its exercises.

    Parameters
    ----------
    cells : list of dict
        From `run`.

    Returns
    -------
    list of Exercise
        In the order of the notebook.
    """
    names = Counter(map(grade_id, cells))
    copied = {name for name, number in names.items() if name and number > 1}
    return [_judge(title, stated, some, copied) for title, stated, some in _sections(cells)]


def first_open(cells):
    """Return the identifier of the cell with the title of the first exercise that is open.

    Parameters
    ----------
    cells : list of dict
        As the notebook was saved, with the outputs that the cells had then.

    Returns
    -------
    str or None
        None if nothing is open, or nothing is written.
    """
    exercises = judge(cells)
    if not any(one.written for one in exercises):
        return None
    return next((one.cell for one in exercises if not one.done), None)


def _sections(cells):
    """Return the title, the points that it states, and the cells of every exercise."""
    sections = [("Before the first exercise", 0, [])]
    for cell in cells:
        heading = re.search(r"^## (Exercise \d+ · .+)$", cell["source"], re.M)
        if heading and cell["cell_type"] == "markdown":
            points = re.search(r"^\*(\d{1,4}) points?\b", cell["source"], re.M)
            sections.append((heading[1].strip(), int(points[1]) if points else 0, []))
        sections[-1][2].append(cell)
    return [(title, stated, some) for title, stated, some in sections if stated or any(map(is_test, some))]


def _judge(title, stated, cells, copied):
    exercise, graded = Exercise(title, cell=identifier(cells[0]) if cells else None), {}
    answers = [cell for cell in cells if is_solution(cell)]
    exercise.written = not answers or not all(map(as_given, answers))
    if not answers:
        exercise.problems.append(
            "The cell for the answer is missing, and an answer in another cell does not count: undo the deletion, or "
            "get the cell back with `mlcourse update FILE.zip`."
        )
    for answer in answers:
        if not as_given(answer) and (error := _error(answer)) and error.get("ename") != "NotImplementedError":
            exercise.problems.append(f"The cell of your answer stops: {_sentence(error)}")
    for cell in cells:
        if grader(cell).get("grade"):
            graded.setdefault(grade_id(cell), cell)
    for name, cell in graded.items():
        points = int(grader(cell).get("points", 0))
        exercise.points += points
        if not is_test(cell):
            exercise.marked_points += points
            continue
        exercise.checks += 1
        if not as_given(cell):
            exercise.problems.append(f"The check {name} was changed: the check that was given decides.")
        elif has_passed(cell):
            exercise.passed += 1
            exercise.passed_points += points
        elif exercise.written:
            error = _error(cell)
            exercise.problems.append(_sentence(error) if error else f"The check {name} did not run.")
    for name in sorted(copied & set(map(grade_id, cells))):
        exercise.problems.append(f"The cell {name} is there more than once, and one counts: delete the copies.")
    if answers and exercise.points < stated:
        exercise.problems.append(
            f"A check is missing, with {count(stated - exercise.points)}: it is put back when your work is graded."
        )
    exercise.points = max(exercise.points, stated)
    exercise.problems = list(dict.fromkeys(exercise.problems))
    return exercise


def _error(cell):
    """Return the output that says with which error a cell stopped, None if it did not."""
    return next((output for output in cell.get("outputs", []) if output.get("output_type") == "error"), None)


def _sentence(error):
    """Return what an error says, in a line and without its traceback."""
    name, said = str(error.get("ename")), " ".join(str(error.get("evalue", "")).split())
    if name == "CheckFailed":
        return said
    if name in ("KeyboardInterrupt", "CellTimeoutError"):
        return f"It ran for more than {TIME_OUT} seconds and was stopped: look for a loop that does not end."
    return f"{name}: {said}" if said else name


def count(points):
    """Return a number of points in words."""
    return "1 point" if points == 1 else f"{points} points"


def summary(exercises):
    """Return what is certain about the points, and what is open, in sentences for the student."""
    total, marked = (sum(getattr(one, what) for one in exercises) for what in ("points", "marked_points"))
    passed = sum(one.passed_points for one in exercises)
    reach = sum(one.reach for one in exercises)
    told = [f"In reach: {reach} of {count(total)}."]
    told.append(f"Your checks pass for {passed} of {count(total - marked)}. {HIDDEN}")
    if marked:
        told.append(f"A person marks the written answers, which have {count(marked)}.")
    if not any(one.written for one in exercises):
        told.append("Nothing is written in this notebook: if you wrote answers, save it and check it again.")
    elif left := [one.title.split(" · ")[0] for one in exercises if not one.done]:
        told.append(f"Still open: {', '.join(left)}. You may hand in all the same, and again later.")
    else:
        told.append("Nothing is open.")
    return "\n".join(told)


def write_file(root, name, content):
    """Write the file to hand in, and keep an older one beside it.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course.
    name : str
        The lab.
    content : bytes
        The notebook.

    Returns
    -------
    path : pathlib.Path
        ``hand-in/HAND-IN-{name}.ipynb``.
    kept : pathlib.Path or None
        Where an older file with another content is now, with the time at which it was written in its name.

    Raises
    ------
    StudentError
        If it cannot be written. An older file is still there.
    """
    path, kept = root / FOLDER / f"{HAND_IN}{name}.ipynb", None
    try:
        path.parent.mkdir(exist_ok=True)
        if path.exists() and path.read_bytes() == content:
            return path, None
        if path.exists():
            date = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(path.stat().st_mtime))
            kept = path.with_name(f"{name}-{date}.ipynb")
            while kept.exists():
                kept = kept.with_stem(f"{kept.stem}-2")
            shutil.copy2(path, kept)
        write(path, content)
    except OSError as error:
        if kept is not None:
            with contextlib.suppress(OSError):
                kept.unlink()
        raise StudentError(
            f"{path} cannot be written ({error.strerror}): look at the permissions of {path.parent}, then type the "
            "same again"
        ) from None
    return path, kept


def where_to_hand_in(root):
    """Return the instructor's sentence that says where a lab is handed in, `hand-in` in the settings of the course.

    Raises
    ------
    CourseError
        If the settings cannot be read, or the sentence is not text.
    """
    return setting("hand-in", root, default="") or WHERE
