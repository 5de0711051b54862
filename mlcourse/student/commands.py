"""The students' commands of ``mlcourse`` (see `mlcourse.cli`). Each imports what it needs when it runs."""

from pathlib import Path

EXAMPLES = """
For students:
  mlcourse lab                                       open the labs in JupyterLab
  mlcourse update                                    fetch new versions of the labs, and keep your answers
  mlcourse submit lab-01                             check a lab, and write the file to hand in
  mlcourse doctor                                    say what is wrong with your installation, and how to mend it
"""


def add_commands(command):
    """Add the students' commands.

    Parameters
    ----------
    command : callable
        Adds one: ``command(name, run, says, example)`` returns its parser.
    """
    says = "open the labs in JupyterLab, which takes all further options"
    command("lab", lab, says, "mlcourse lab --no-browser", takes_all=True)

    one = command(
        "update",
        update,
        "fetch new versions of the labs, and keep your answers",
        "mlcourse update, or mlcourse update ~/Downloads/course.zip",
    )
    one.add_argument(
        "source",
        metavar="FROM",
        nargs="?",
        type=Path,
        help="a folder or zip archive with the new labs (default: the branch that your clone follows, by git)",
    )

    one = command(
        "submit",
        submit,
        "check a lab, and write the file to hand in, as the buttons Validate and Hand in do",
        "mlcourse submit lab-01, or mlcourse submit 1 --check",
    )
    one.add_argument("lab", metavar="LAB", help="the lab: its name, its beginning or number, or a notebook's path")
    one.add_argument("--check", action="store_true", help="only check, and write no file")

    command("doctor", doctor, "say what is wrong with your installation, and how to mend it", "mlcourse doctor")


def lab(options):
    """Open JupyterLab on the labs."""
    from mlcourse.student import course_folder
    from mlcourse.student.lab import open_lab

    open_lab(course_folder(), options.others)


def update(options):
    """Fetch changed labs and say what became of each."""
    from mlcourse.student import course_folder
    from mlcourse.student.update import update

    labs, backup = update(course_folder(), options.source)
    for lab in labs:
        print(lab.told())
    if backup:
        print(f"What these notebooks were before lies beside each, in the folder {backup}.")
        print("If JupyterLab is open, choose File > Reload Notebook from Disk in each of them.")
    if not labs:
        print("Your labs are up to date.")


def submit(options):
    """Say how far a lab is, and write the file to hand in."""
    import time

    from mlcourse.student import course_folder
    from mlcourse.student.submit import find_lab, judge, read_content, run, summary, where_to_hand_in, write_file

    root = course_folder()
    name, path = find_lab(root, options.lab)
    where = where_to_hand_in(root)
    content, notebook = read_content(path)
    saved = time.strftime("%d %B %Y, %H:%M", time.localtime(path.stat().st_mtime))
    print(f"Running {path}, as you saved it on {saved} ...", flush=True)
    cells, stopped = run(notebook)
    exercises = judge(cells)
    for exercise in exercises:
        print(exercise.told())
    if stopped:
        print(stopped)
    print(summary(exercises))
    if options.check:
        print("No file was written, since you asked for a check alone.")
        return
    written, kept = write_file(root, name, content)
    if kept:
        print(f"The file that you wrote before is kept: {kept}")
    print(f"The file to hand in: {written}")
    print(where)


def doctor(options):
    """Look at the installation and say how to mend it."""
    from mlcourse.student.doctor import run_doctor

    return run_doctor()
