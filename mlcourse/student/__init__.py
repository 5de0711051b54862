"""What students run: the labs in JupyterLab, new versions, the file to hand in, and a look at their installation.

Nothing here imports more than the standard library before it is needed, so that every command answers at once.
"""

from pathlib import Path

from mlcourse import CourseError


class StudentError(CourseError):
    """A student's command cannot go on; the message says why and what to do."""


def course_folder(start=None):
    """Return the folder of the course: the first one with labs, from a folder upwards.

    Parameters
    ----------
    start : pathlib.Path, optional
        Where to begin; by default the current folder.

    Raises
    ------
    StudentError
        If neither the folder nor one above it holds ``labs/lab-...``.
    """
    start = Path(start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if any((folder / "labs").glob("lab-*/")):
            return folder
    raise StudentError(f"{start} is not the folder of the course: there is no labs/ in it: go there with `cd` first")
