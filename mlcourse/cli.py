"""The command line of the course: ``mlcourse COMMAND ...``.

The students' commands are in `mlcourse.student.commands`. Another package brings its own: it names a module in the
entry point group ``mlcourse.commands``. Such a module has a function ``add_commands``, which adds the commands to the
parser, and ``EXAMPLES``, a text for the end of the help. It may have a function ``installation``, which returns a
sentence for ``mlcourse doctor``.
"""

import argparse
import errno
import sys

from mlcourse import CourseError
from mlcourse.student import commands as student

GROUP = "mlcourse.commands"
EXIT_CODES = """
Exit codes: 0 done; 1 not done, with a message that says why; 2 the command was not understood; 130 stopped by Ctrl-C.
"""


def main(arguments=None):
    """Run one command and exit with its code."""
    parser = make_parser()
    options, others = parser.parse_known_args(arguments)
    if others and not options.takes_all:
        parser.error("unrecognized arguments: " + " ".join(others))
    options.others = others
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may contain characters that the terminal lacks
    try:
        sys.exit(options.run(options) or 0)
    except CourseError as error:
        sys.exit(f"Error: {error}")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.exit(f"Error: the disk is full ({error}): make room, then run the same command again")
    except KeyboardInterrupt:
        print("\nStopped. What was done is kept: run the same command again to go on.", file=sys.stderr)
        sys.exit(130)


def make_parser():
    """Return the parser of the command line."""
    modules = command_modules()
    parser = argparse.ArgumentParser(
        prog="mlcourse",
        description="The commands of the course.",
        epilog="\n".join([module.EXAMPLES for module in modules] + [EXIT_CODES]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, run, says, example, takes_all=False):
        words = {"help": says, "description": f"{says[0].upper()}{says[1:]}.", "epilog": f"Example: {example}"}
        command = commands.add_parser(name, **words)
        command.set_defaults(run=run, takes_all=takes_all)
        return command

    for module in modules:
        module.add_commands(command)
    return parser


def command_modules():
    """Return the modules with commands, the students' first; skip packages whose dependencies are missing."""
    found = [student]
    if sys.version_info < (3, 10):  # noqa: UP036 (`mlcourse doctor` then says what to install)
        return found
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found.append(point.load())
        except ModuleNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
