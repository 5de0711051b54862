"""The results of submissions, stored by what they depend on."""

import functools
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nbformat import NotebookNode, from_dict
from nbgrader.utils import is_grade, is_solution

from coursegrader.files import write_whole
from coursegrader.needed_cells import defer, given_cells
from coursegrader.protocol import Cell, Limits
from coursegrader.worker import ROOT

PACKAGES = ["geopandas", "ipython", "matplotlib", "numpy", "pandas", "scikit-learn", "scipy"]
# What runs a submission; the rest of this package collects, records and shows
EXECUTION = ["channel", "limits", "names", "needed_cells", "protocol", "sandbox", "seccomp", "serialization"]
EXECUTION += ["student_runner", "test_runner", "worker"]
DEPENDS_ON = [f"coursegrader/{name}.py" for name in EXECUTION]
DEPENDS_ON += ["coursegrader/system_calls.txt", "mlcourse/*.py", "mlcourse/*.mplstyle", "data/*", "requirements.lock"]


def cells_of(notebook: NotebookNode, lab: NotebookNode) -> list[Cell]:
    """Return the code cells of a notebook that is ready to be graded, some of them deferred.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
    lab : nbformat.NotebookNode
        The instructor's notebook, which says what is given.
    """
    cells = [Cell(cell.source, grade_id(cell)) for cell in notebook.cells if cell.cell_type == "code"]
    return defer(cells, given_cells(lab))


def grade_id(cell):
    """Return the grade_id of a test cell; None for every other cell."""
    return cell.metadata.nbgrader.grade_id if is_grade(cell) and not is_solution(cell) else None


def write_outputs(notebook: NotebookNode, result: dict) -> None:
    """Put the outputs of a result into the cells of its notebook, and the rest into the notebook's metadata.

    A deferred cell keeps the outputs with which it was handed in, and says so in its metadata.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, (cell, outputs) in enumerate(zip(cells, result["outputs"], strict=True), start=1):
        if outputs is None:
            cell.metadata["mlcourse"] = {"as_handed_in": True}
        else:
            cell.outputs = [from_dict(output) for output in outputs]
            cell.execution_count = number
    notebook.metadata.setdefault("mlcourse", {})
    notebook.metadata["mlcourse"] |= {"seconds": result["seconds"], "stopped": result["stopped"]}


class ResultCache:
    """The results of a course, stored by what they depend on.

    Parameters
    ----------
    root : pathlib.Path
        The folder of the course.
    limits : Limits
        What a submission may take: with other limits another result is possible.
    """

    def __init__(self, root: Path, limits: Limits):
        self.folder, self.limits = Path(root) / "_build" / "graded", limits

    def find(self, cells: list[Cell], words: Sequence[int]) -> dict | None:
        """Return the stored result of a notebook with these words of the secret, or None."""
        try:
            return json.loads(self._path(cells, words).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def store(self, cells: list[Cell], words: Sequence[int], result: dict) -> dict:
        """Store a result and return it. One that a limit of time decided is not stored: a second run may differ."""
        if not result["late"]:
            write_whole(self._path(cells, words), json.dumps(result))
        return result

    def _path(self, cells, words):
        text = json.dumps(
            [list(words), asdict(self.limits), *((cell.source, cell.grade_id, cell.defers) for cell in cells)]
        )
        key = hashlib.sha256((environment_fingerprint() + text).encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{key}.json"


@functools.cache
def environment_fingerprint() -> str:
    """Return a hash of what a result depends on beside the notebook: code that runs it, helper, data, packages."""
    digest = hashlib.sha256(sys.version.encode())
    for name in PACKAGES:
        digest.update(f"{name} {importlib.metadata.version(name)}".encode())
    for pattern in DEPENDS_ON:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()
