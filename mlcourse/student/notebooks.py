"""Read the labs of a student and tell what is given from what the student wrote.

A released notebook carries all that is needed for that. nbgrader's cells hold a checksum of what was given, and the
identifier of every other cell is the hash of its text.
"""

import hashlib
import json
import math
import os
import re
import tempfile

from mlcourse.student import StudentError

LAB_NAME = r"lab-\d\d-[a-z0-9-]+"
DEEPEST = 100  # levels of a notebook
MAX_BYTES = 20 * 2**20  # of a notebook that is graded
HAND_IN = "HAND-IN-"  # before the name of a lab in the name of the file to hand in


def parse(text, where):
    """Return a notebook as plain dictionaries, with the source of every cell as one string.

    Parameters
    ----------
    text : str or bytes
        The content of an ``.ipynb`` file.
    where : str or pathlib.Path
        What to call it in a message.

    Raises
    ------
    StudentError
        If it is no notebook in format 4.
    """
    try:
        notebook = json.loads(text)
        if notebook["nbformat"] != 4:
            raise ValueError(f"its format is {notebook['nbformat']}, not 4")
        if not isinstance(notebook["cells"], list):
            raise ValueError("its cells are no list")
        for cell in notebook["cells"]:
            _complete(cell)
        notebook["metadata"].get("kernelspec")
        _refuse_depth(notebook)
    except RecursionError:
        raise StudentError(f"{where} is not a notebook that can be read (it is nested too deeply)") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise StudentError(f"{where} is not a notebook that can be read ({reason})") from None
    return notebook


def write(path, content):
    """Write bytes to a file in one step, so that there is a whole one at any time; never through a link.

    Raises
    ------
    OSError
        If it cannot be written. Then the file is as it was.
    """
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name[:40]}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else the new name may be on the disk before the content, and a power cut between
        os.chmod(draft, path.stat().st_mode if path.exists() else 0o666 & ~_umask())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _umask():
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _complete(cell):
    """Bring a cell into the form that the functions below expect, or raise an error."""
    cell["source"] = "".join(cell["source"])
    cell["source"].encode()
    checksum(cell)
    if not isinstance(grade_id(cell), str | None):
        raise ValueError(f"a cell has the grade_id {grade_id(cell)!r:.40}")
    if not all(isinstance(one, str | None) for one in (cell.get("id"), cell["metadata"].get("id"))):
        raise ValueError("the identifier of a cell is no text")
    if not math.isfinite(grader(cell).get("points") or 0):
        raise ValueError("the points of a cell are no number")
    if cell["cell_type"] not in ("code", "markdown", "raw"):
        raise ValueError(f"a cell is of the unknown type {cell['cell_type']!r:.40}")
    if cell["cell_type"] == "code":
        cell.setdefault("execution_count", None)
        for output in cell.setdefault("outputs", []):
            if not isinstance(output.get("output_type"), str):
                raise ValueError("an output of a cell has no type")
            "".join(output.get("text", ""))
    else:
        cell.pop("outputs", None)


def _refuse_depth(notebook):
    """Raise RecursionError, as nbformat would, for what is nested too deeply; no notebook of Jupyter comes near."""
    level = [notebook]
    for _ in range(DEEPEST):
        level = [child for one in level if isinstance(one, dict | list) for child in _children(one)]
    if level:
        raise RecursionError


def _children(thing):
    return thing.values() if isinstance(thing, dict) else thing


def read(path):
    """Return the notebook in a file, as `parse` does."""
    if path.exists() and not path.is_file():
        raise StudentError(f"{path} cannot be read: it is no file")
    try:
        return parse(path.read_bytes(), path)
    except OSError as error:
        raise StudentError(f"{path} cannot be read: {error.strerror}") from None


def to_text(notebook):
    """Return the content of the ``.ipynb`` file, written as Jupyter writes it."""
    cells = [{**cell, "source": cell["source"].splitlines(keepends=True)} for cell in notebook["cells"]]
    return json.dumps({**notebook, "cells": cells}, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def grader(cell):
    """Return nbgrader's metadata of a cell, empty if it has none."""
    return cell["metadata"].get("nbgrader", {})


def grade_id(cell):
    """Return the grade_id of a cell, None if it has none."""
    return grader(cell).get("grade_id")


def is_solution(cell):
    """Whether the student is asked to write into the cell."""
    return bool(grader(cell).get("solution"))


def is_test(cell):
    """Whether the cell checks an answer and has points."""
    return bool(grader(cell).get("grade")) and not is_solution(cell)


def identifier(cell):
    """Return the identifier of a cell, wherever the editor keeps it; without one, what it would be if it were given."""
    return cell.get("id") or cell["metadata"].get("id") or _digest(cell)


def as_given(cell):
    """Whether a cell still holds the text with which it was released."""
    if grade_id(cell):
        return grader(cell).get("checksum") == checksum(cell)
    return re.sub(r"-\d+$", "", identifier(cell)) == _digest(cell)


def checksum(cell, source=None):
    """Return nbgrader's checksum of a cell, or of what it would be with another source."""
    given = grader(cell)
    grade, solution = bool(given.get("grade")), bool(given.get("solution"))
    locked = not solution and (grade or bool(given.get("locked")))
    parts = [cell["source"] if source is None else source, cell["cell_type"], grade, solution, locked, grade_id(cell)]
    if grade:
        parts.append(float(given.get("points", 0)))
    return hashlib.md5("".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()


def has_passed(cell):
    """Whether a test cell passed when it was run last, as its output says."""
    outputs = cell.get("outputs", [])  # a cell that was turned into text has none
    kinds = {output.get("output_type") for output in outputs}
    said = "".join("".join(output.get("text", "")) for output in outputs)
    return "error" not in kinds and said.rstrip().endswith(": passed")


def _digest(cell):
    return hashlib.sha256(cell["source"].encode()).hexdigest()[:8]
