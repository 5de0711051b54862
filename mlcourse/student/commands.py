"""The students' commands of ``mlcourse`` (see `mlcourse.cli`). Each imports what it needs when it runs."""

from pathlib import Path

EXAMPLES = """
For students:
  mlcourse lab                                       open the labs in JupyterLab
  mlcourse update                                    fetch new versions of the labs, and keep your answers
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


def doctor(options):
    """Look at the installation and say how to mend it."""
    from mlcourse.student.doctor import run_doctor

    return run_doctor()
