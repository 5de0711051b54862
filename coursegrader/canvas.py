"""Write the zip of feedback that Canvas takes back, under the names of the files that it gave away."""

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output

from coursegrader import GradingError
from coursegrader.collect import CANVAS_FILE
from coursegrader.files import read_ordinary, write_whole
from coursegrader.people import Person
from coursegrader.worksheet import MIDNIGHT

MOST_BYTES = 1000
BODY = re.compile(r"<body[^>]*>(.*)</body>", re.DOTALL)


def write_archive(to: Path, lab: str, pages: dict[str, Path], root: Path, people: Sequence[Person] = ()) -> list[str]:
    """Write the zip for "Upload Submissions" of an assignment in Canvas.

    Canvas reads the IDs of the person and of the file that was handed in, the first two parts of a name that are
    numbers, and adds the file to that submission as the attachment of a comment, under the name of what was handed in.
    So the page stands in a notebook if that was a notebook, and in a zip if it was a zip.

    Parameters
    ----------
    to : pathlib.Path
        The zip to write.
    lab : str
    pages : dict of str to pathlib.Path
        The page of each student.
    root : pathlib.Path
        The folder of the course, with ``submitted/``.
    people : sequence of Person
        The roster.

    Returns
    -------
    list of str
        The students of whom no file of Canvas is known, so that their page is not in the zip.

    Raises
    ------
    GradingError
        If no file of Canvas is known at all; nothing is written then.
    """
    ids = {one.student: one.lms_user_id for one in people if one.lms_user_id}
    found = {student: name_of(root / "submitted" / student / lab) for student in pages}
    names = {
        student: name
        for student, name in found.items()
        if name and _numbers(name)[:1] == [ids.get(student, student.rpartition("_")[2])]
    }
    if not names:
        raise GradingError(
            f"no page can go back to Canvas, since no file of Canvas is known: collect {lab} from an archive of Canvas "
            "first"
        )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, name in sorted(names.items()):
            info = zipfile.ZipInfo(name, MIDNIGHT)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, _wrapped(name, lab, pages[student].read_text("utf-8")))
    write_whole(to, content.getvalue())
    return sorted(pages.keys() - names.keys())


def name_of(folder: Path) -> str | None:
    """Return the name that Canvas gave to a submission's file; None if it is of no file, or not known."""
    try:
        name = read_ordinary(folder / CANVAS_FILE, MOST_BYTES).decode("utf-8").strip()
    except (OSError, AttributeError, UnicodeDecodeError):
        return None
    return name if len(_numbers(name)) > 1 and not re.search(r"[/\\\0]", name) else None


def _numbers(name):
    """Return the parts of a name that Canvas takes for IDs."""
    return [part for part in name.split("_") if re.fullmatch("[0-9]+", part)]


def _wrapped(name, lab, page):
    """Return a page as a file of the kind that the name says."""
    if PurePosixPath(name).suffix.lower() == ".zip":
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo(f"{lab}.html", MIDNIGHT), page)
        return content.getvalue()
    shown = new_output("display_data", {"text/html": BODY.search(page)[1], "text/plain": "The feedback is a page."})
    cell = new_code_cell(
        "# Your feedback", outputs=[shown], id="feedback", metadata={"jupyter": {"source_hidden": True}}
    )
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}  # or JupyterLab asks for one
    return nbformat.writes(new_notebook(cells=[cell], metadata={"kernelspec": kernel}))
