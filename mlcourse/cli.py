"""The command line of the course: ``mlcourse COMMAND ...``.

Students' commands stand here, instructors' in `mlcourse.grading.cli`. Each imports what it needs when it runs.
"""

import argparse
import errno
import sys
from pathlib import Path

EPILOG = """
For students:
  mlcourse lab                                       open the labs in JupyterLab
  mlcourse update                                    fetch new versions of the labs, and keep your answers
  mlcourse doctor                                    say what is wrong with your installation, and how to mend it

For instructors, a lab's way through a term:
  mlcourse release lab-01-toy-regression             make the students' notebook
  mlcourse collect lab-01-toy-regression class.zip   put what they hand in where it is graded
  mlcourse grade lab-01-toy-regression               grade it
  mlcourse report lab-01-toy-regression              see how the class did
  jupyter lab                                        mark the written answers in the formgrader
  mlcourse feedback lab-01-toy-regression            write a page for each student
  mlcourse export                                    write the grades as a table

Exit codes: 0 done; 1 not done, with a message that says why; 2 the command was not understood; 130 stopped by Ctrl-C.
"""


def main(arguments=None):
    """Run one command and exit with its code."""
    from mlcourse.grading import GradingError
    from mlcourse.student import StudentError

    parser = make_parser()
    options, others = parser.parse_known_args(arguments)
    if others and options.run is not lab:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    options.others = others
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may hold what the terminal cannot show
    try:
        sys.exit(options.run(options) or 0)
    except (GradingError, StudentError) as error:
        sys.exit(f"Error: {error}")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.exit(f"Error: the disk is full ({error}): make room, then type the same command again")
    except KeyboardInterrupt:
        print("\nStopped. What was done is kept: type the same command again to go on.", file=sys.stderr)
        sys.exit(130)


def make_parser():
    """Return the parser of the command line."""
    from mlcourse.grading.cli import add_commands

    parser = argparse.ArgumentParser(
        prog="mlcourse",
        description="Open and update the labs of the course, or release, collect and grade them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, run, says, example):
        words = {"help": says, "description": f"{says[0].upper()}{says[1:]}.", "epilog": f"Example: {example}"}
        command = commands.add_parser(name, **words)
        command.set_defaults(run=run)
        return command

    command("lab", lab, "open the labs in JupyterLab, which takes all further options", "mlcourse lab --no-browser")

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
    add_commands(command)
    return parser


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


if __name__ == "__main__":
    main()
