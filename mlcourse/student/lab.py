"""Open JupyterLab on the labs, with a page that says which one comes next.

The page, ``labs/start.md``, is written from the student's own notebooks as they were saved last: when JupyterLab
starts, and again whenever it saves a lab. The settings in the folder ``jupyter`` beside this file hold for that
JupyterLab alone: the start page comes first, texts are shown and not edited, the course's buttons stand above a lab
(`mlcourse.student.server` answers them), nothing of nbgrader is shown, and nothing is fetched from another host.

The labs' texts are plain CommonMark with equations, which JupyterLab shows by itself. MyST directives would need
jupyterlab_myst, whose last release, 2.7.0, is refused by the JupyterLab of today.
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from mlcourse.student import StudentError, course_folder
from mlcourse.student.notebooks import LAB_NAME, as_given, grader, has_passed, is_solution, is_test, read, write
from mlcourse.student.submit import where_to_hand_in

SETTINGS = Path(__file__).parent / "jupyter"
PAGE = "start.md"
START = """# Your labs

{next}

{unreadable}| | Lab | Minutes | You practise | Before you start |
|---|---|---|---|---|
{rows}

**How a lab works.** Replace each `raise NotImplementedError()` with your answer, and press *Check exercise*, which \
runs the answer and the checks below it. A check that fails says what is wrong and where to read. The button \
*Validate* above a lab runs all of it and says for each exercise what is still open. A lab that you have begun opens \
at the first exercise that is open.

**Handing in.** Press *Hand in* above the lab, or type `{submit}` in a terminal, with the name or the number of the \
lab. The button and the command say what is still open, and write the file to hand in into the folder `hand-in`. {where}

**In a terminal**, in the folder of the course: `{update}` fetches new versions of the labs and keeps your answers; \
`{doctor}` says what is wrong with your installation.

*This page is written anew whenever you save a lab.*
"""


@dataclass
class Progress:
    """A lab, and how far a student has come in it.

    Attributes
    ----------
    name, title, minutes, points, objectives, before : str
        What the lab's opening says; the title with the number, `before` what to read first.
    answered, exercises : int
        Answers that the student wrote, and how many there are to write.
    passed, checks : int
        Check cells that passed when they were run last, and how many there are.
    """

    name: str
    title: str
    minutes: str
    points: str
    objectives: str
    before: str
    answered: int
    exercises: int
    passed: int
    checks: int

    @property
    def done(self):
        """Whether every exercise is answered and every check passed."""
        return self.answered == self.exercises and self.passed == self.checks


def open_lab(root, options):
    """Write the start page, and run JupyterLab in the place of this process.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course.
    options : list of str
        Options of JupyterLab, for instance ``["--no-browser"]``.

    Raises
    ------
    StudentError
        If the page cannot be written.
    """
    write_page(root / "labs")
    environment = dict(os.environ)
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):
        environment[name] = os.pathsep.join(filter(None, [str(SETTINGS), os.environ.get(name)]))
    # -P: nothing in the folder of the labs, such as a `random.py`, stands in for a module of Python
    command = [sys.executable, "-P", "-m", "jupyterlab", *options]
    if os.name == "nt":  # there, a process that replaces itself lets go of the terminal
        import subprocess

        sys.exit(subprocess.run(command, cwd=root / "labs", env=environment, check=False).returncode)
    os.chdir(root / "labs")
    os.execve(sys.executable, command, environment)


def after_saving(model, os_path, **_):
    """Write the start page anew when JupyterLab has saved a lab of the course; never keep it from saving."""
    path = Path(os_path).resolve()
    if model["type"] == "notebook" and re.fullmatch(LAB_NAME, path.stem) and path.parent.name == path.stem:
        try:
            labs = course_folder(path.parent) / "labs"
            if labs == path.parent.parent:  # not a copy elsewhere
                write_page(labs)
        except StudentError as error:
            print(f"The start page could not be written: {error}", file=sys.stderr)


def write_page(labs):
    """Write the start page of a folder of labs.

    Raises
    ------
    StudentError
        If there is no lab, or the folder cannot be written to.
    """
    notebooks = [
        path / f"{path.name}.ipynb" for path in sorted(labs.glob("lab-*/")) if re.fullmatch(LAB_NAME, path.name)
    ]
    labs_read = [read_progress(path) for path in notebooks if path.exists()]
    page = make_page(labs_read, where_to_hand_in(labs.parent))
    try:
        write(labs / PAGE, page.encode())
    except OSError as error:
        raise StudentError(f"{labs / PAGE} cannot be written ({error.strerror}): see `mlcourse doctor`") from None


def read_progress(path):
    """Return what a student's notebook says of itself; of one that cannot be read, its name and the reason.

    Parameters
    ----------
    path : pathlib.Path
        The notebook.

    Returns
    -------
    Progress or str
    """
    try:
        cells = read(path)["cells"]
    except StudentError as error:
        return f"`{path.name}`: {str(error).removeprefix(f'{path} ')}: `mlcourse update` tells what to do"
    # The page opens by itself: nothing that acts or is fetched comes into it from a notebook that may be of others
    opening = re.sub(r"[<>]|!(?=[<>!]*\[)", "", "\n".join(cell["source"] for cell in cells[:5]))
    title = re.search(r"^# (Lab \d+ · .+)$", opening, re.M)
    rows = [line for line in opening.splitlines() if line.startswith("| **") and line.endswith("|")]
    facts = {name: text.rstrip() for name, _, text in (row[4:-1].partition("** | ") for row in rows)}
    solutions = [cell for cell in cells if is_solution(cell)]
    checks = [cell for cell in cells if is_test(cell)]
    return Progress(
        name=path.stem,
        title=title[1] if title else path.stem,
        minutes=next(iter(re.findall(r"\d+", facts.get("Time", ""))), "?"),
        points=str(sum(grader(cell).get("points", 0) for cell in cells if grader(cell).get("grade"))),
        objectives=facts.get("Objectives", ""),
        before=facts.get("Before you start", ""),
        answered=sum(not as_given(cell) for cell in solutions),
        exercises=len(solutions),
        passed=sum(has_passed(cell) for cell in checks),
        checks=len(checks),
    )


def make_page(labs, where):
    """Return the start page, in the Markdown that JupyterLab shows.

    Parameters
    ----------
    labs : list of Progress or str
        The labs in their order, as `read_progress` returns them.
    where : str
        The sentence that says where a lab is handed in.
    """
    unreadable = [lab for lab in labs if isinstance(lab, str)]
    labs = [lab for lab in labs if not isinstance(lab, str)]
    to_do = [lab for lab in labs if not lab.done]
    begun = [lab for lab in to_do if lab.answered]
    following = (begun[-1:] or to_do[:1] or [None])[0]
    rows = [
        f"| {_state(lab, following)} | {_link(lab)} | {lab.minutes} | {lab.objectives} | {lab.before} |" for lab in labs
    ]
    return START.format(
        next=_next(following),
        unreadable="".join(f"- {sentence}\n\n" for sentence in unreadable),
        rows="\n".join(rows),
        submit=command("submit lab-01"),
        where=where,
        update=command("update"),
        doctor=command("doctor"),
    )


def command(name):
    """Return what a student types in the folder of the course to run a command of it."""
    folder = Path(sys.executable).parent
    root = Path(__file__).resolve().parents[2]
    if str(folder) in os.environ.get("PATH", "").split(os.pathsep) or not folder.is_relative_to(root):
        return f"mlcourse {name}"
    return f"{folder.relative_to(root) / 'mlcourse'} {name}"


def _next(lab):
    if lab is None:
        return "**All labs are done.** What is left is to hand them in: see below."
    text = f"**Next: {_link(lab)}**, about {lab.minutes} minutes, {lab.points} points."
    if lab.answered:
        left = lab.exercises - lab.answered
        to_write = "no answer is left to write" if not left else f"{left} of {lab.exercises} answers are left to write"
        return (
            f"{text} You have begun: {to_write}, and {lab.checks - lab.passed} of {lab.checks} checks do not pass yet."
        )
    return f"{text} Before you start, {lab.before}." if lab.before else text


def _state(lab, following):
    if lab.done:
        return "✓\u00a0done"
    mark = "→\u00a0next" if lab is following else ""
    if lab.answered:
        return f"{mark} {lab.passed} of {lab.checks} checks pass".strip()
    return mark


def _link(lab):
    return f"[{lab.title}]({lab.name}/{lab.name}.ipynb)"
