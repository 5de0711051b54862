"""Where the pages of the book are: on this machine if the book is there, else on the course's site."""

import os
import re
from pathlib import Path

from mlcourse import CourseError
from mlcourse.settings import setting

ROOT = Path(__file__).resolve().parents[1]
COPIES = ("book-offline/book", "book", "_build/html")  # unpacked with a folder and without, built
SEE = re.compile(r"See (\S+) in the book\.$")  # how the sentence about a failed check ends
VARIABLE = "MLCOURSE_SITE"  # the address at which `mlcourse.student.server` shows the copy on this machine


def local_copy(root: Path = ROOT) -> Path | None:
    """Return the folder of the site on this machine, None if there is none, or if a hub runs here for other machines.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course. The site is there if it was built, or if ``book-offline.zip`` was unpacked.
    """
    if "JUPYTERHUB_API_TOKEN" in os.environ:
        return None
    folders = ((root / name).resolve() for name in COPIES)
    return next((folder for folder in folders if (folder / "book" / "index.html").is_file()), None)


def address(place: str, root: Path = ROOT, local: bool = True) -> str | None:
    """Return the address of a place in the book.

    Parameters
    ----------
    place : str
        Page and anchor, for instance ``"introduction/a-line-and-its-loss.html#sec-toy-loss"``.
    root : pathlib.Path
        The folder of the course, with `site` in its settings.
    local : bool
        Whether a copy on this machine comes first.

    Returns
    -------
    str or None
        None if there is no copy on this machine, and the settings do not have the site or cannot be read.
    """
    site = os.environ.get(VARIABLE) if local else None
    if local and not site and (copy := local_copy(root)):
        site = copy.as_uri()
    if not site:
        try:
            site = setting("site", root, default="")
        except CourseError:
            return None
    return f"{site.rstrip('/')}/book/{place}" if site else None
