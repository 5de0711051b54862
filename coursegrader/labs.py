"""Make the labs: from MyST Markdown in ``solutions/`` to nbgrader's source notebooks and the students' ``labs/``.

``mlcourse release`` regenerates ``source/`` and ``labs/`` and records the labs in the gradebook; with ``--sources`` it
writes ``source/`` alone.

The source of a lab states only what cannot be derived. The metadata key ``nbgrader`` of a cell takes

- ``{grade_id: NAME, solution: true}`` for a cell that the student fills in,
- ``{grade_id: NAME-1, points: 2}`` for a test cell,
- ``{grade_id: NAME, solution: true, points: 3}`` for a written answer, graded by hand,
- ``{grade_id: NAME}`` for a given cell that is locked: the grader restores it if a student changes it.

The last cell, which says how to hand in, is the same in every lab (`LAST_CELL`).

In the text, ``{{ points }}`` stands for the points of the lab and ``{{ points NAME }}`` for those of the cells whose
grade_id is NAME or begins with ``NAME-``.
"""

import ast
import contextlib
import hashlib
import html
import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import jupytext
import nbformat
from nbconvert.filters import strip_ansi
from nbformat import NotebookNode
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from coursegrader import GradingError
from mlcourse.setup_cell import FOLDED, setup_cell
from mlcourse.student.notebooks import HAND_IN
from mlcourse.student.submit import FOLDER, where_to_hand_in

ROOT = Path(__file__).resolve().parents[1]
REGIONS = ("SOLUTION", "HIDDEN TESTS", "MARK SCHEME")
MARKERS = tuple(f"BEGIN {region}" for region in REGIONS)
LEAST = 20  # a line with fewer visible characters is not recognised as secret
GRADER_KEYS = {"grade_id", "solution", "points"}
LAST_CELL = """## Before you hand in

Choose *Kernel → Restart Kernel and Run All Cells* once more, read every message, and save the notebook. Then press the
button *Hand in* above the notebook. Or open a terminal in the folder of the course and type this line:

```sh
mlcourse submit {lab}
```

If you use `make lab`, type `.venv/bin/mlcourse` in place of `mlcourse`. The button and the command do the same: they
say what is still open, and they write the file to hand in, `{file}`. {where}"""


class LabError(GradingError):
    """The source of a lab is not well formed; the message says where and what to do."""


def read_lab(path: Path) -> NotebookNode:
    """Read the source of a lab and return the complete instructor notebook.

    Parameters
    ----------
    path : pathlib.Path
        A MyST Markdown notebook, see the module's docstring.

    Returns
    -------
    nbformat.NotebookNode
        The notebook with nbgrader's full metadata, points filled into the text, cell identifiers derived from the
        content, the setup cell first, and the cell about handing in last.

    Raises
    ------
    LabError
        If the file cannot be read or a cell breaks a rule.
    """
    try:
        notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="md:myst")
    except FileNotFoundError:
        raise LabError(f"{path}: there is no such lab; the labs are the files solutions/lab-*.md") from None
    except Exception as error:
        raise LabError(f"{path}: not a MyST Markdown notebook: {str(error).splitlines()[0]}") from error
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells, start=1):
        try:
            _complete(cell)
            _check(cell)
        except LabError as error:
            raise LabError(f"{path.name}, cell {number}: {error}") from None
    points = {grade_id(cell): cell.metadata.nbgrader.points for cell in notebook.cells if _is_graded(cell)}
    identifiers = [grade_id(cell) for cell in notebook.cells if "nbgrader" in cell.metadata]
    for identifier in identifiers:
        if identifiers.count(identifier) > 1:
            raise LabError(f"{path.name}: two cells have the grade_id {identifier}: give one another name")
    notebook.cells.insert(0, setup_cell(f"labs/{path.stem}/{path.stem}.ipynb"))
    notebook.cells.append(_hand_in_cell(path.stem))
    seen = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"{{ *points *([\w-]*) *}}", lambda at: _points(at[1], points, path), cell.source)
        cell.id = _cell_id(cell, seen)
    return notebook


def read_labs(root: Path, lab: str | None = None) -> dict[str, NotebookNode]:
    """Return the instructor's version of every lab in ``solutions/``, by name."""
    paths = sorted((root / "solutions").glob("lab-*.md"))
    if not paths:
        raise LabError(f"{root / 'solutions'}: no file lab-*.md found: run this in the repository of the course")
    return {path.stem: read_lab(path) for path in paths if lab in (None, path.stem)}


def write_sources(root: Path, lab: str | None = None) -> list[str]:
    """Write nbgrader's source folder from ``solutions/``, of one lab or all, and return the names of these labs."""
    return _write_sources(root, read_labs(root, lab), lab)


def _write_sources(root, notebooks, lab):
    shutil.rmtree(root / "source" / lab if lab else root / "source", ignore_errors=True)
    for name, notebook in notebooks.items():
        target = root / "source" / name / f"{name}.ipynb"
        target.parent.mkdir(parents=True)
        nbformat.write(notebook, target)
    return list(notebooks)


def release(root: Path = ROOT, lab: str | None = None) -> list[str]:
    """Generate the student notebooks in ``labs/`` through nbgrader, and record the labs in its gradebook.

    Parameters
    ----------
    root : pathlib.Path
        The folder that holds ``solutions/`` and ``nbgrader_config.py``.
    lab : str, optional
        The one lab to release; by default all of them.

    Returns
    -------
    list of str
        The names of the labs.

    Raises
    ------
    LabError
        If a source is not well formed, nbgrader refuses it, its cells differ from those with which work was graded, or
        students would see something secret.
    """
    from nbgrader.apps.api import NbGraderAPI

    from coursegrader.grade import gradebook_of

    sources, config = read_labs(root, lab), nbgrader_config(root)
    with gradebook_of(config) as gradebook:
        for name, source in sources.items():
            if cells := cells_that_differ(source, gradebook, name, handed_in=True):
                raise LabError(
                    f"{name}: not released, since graded work has other cells ({cells}), and nbgrader cannot "
                    "change the cells of a lab once work is graded: undo that, or begin a new gradebook"
                )
    names = _write_sources(root, sources, lab)
    api = NbGraderAPI(config=config)
    for name in names:
        result = api.generate_assignment(name, force=True)
        if not result["success"]:
            raise LabError(f"{name}: nbgrader could not release it:\n{result.get('log') or result['error']}")
        path = root / "labs" / name / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if _raises_until_solved(cell):
                cell.metadata.setdefault("tags", []).append("raises-exception")
            if cell.cell_type == "code" and _is_graded(cell):
                cell.metadata |= nbformat.from_dict(FOLDED)
        source = nbformat.read(root / "source" / name / path.name, as_version=4)
        secrets = {line for region in REGIONS for line in secret_lines(source, region)}
        if found := leaks(secrets, "\n".join(cell.source for cell in notebook.cells)):
            path.unlink()
            raise LabError(f"{name}: not released, since students would read this line: {found[0]}")
        nbformat.write(notebook, path)
    return names


def cells_that_differ(source: NotebookNode, gradebook, lab: str, handed_in: bool = False) -> str:
    """List the cells that are in only one of the gradebook and an instructor's notebook, or have another type there.

    Without `handed_in`, other points count as well. The list is empty if the gradebook does not have the lab or, with
    `handed_in`, has no submissions to it.
    """
    from nbgrader.api import MissingEntry

    try:
        notebook = gradebook.find_notebook(lab, lab)
    except MissingEntry:
        return ""
    if handed_in and not notebook.submissions:
        return ""
    points = {cell.name: cell.max_score for cell in notebook.grade_cells}
    solutions = {cell.name for cell in notebook.solution_cells}
    before = {(cell.name, points.get(cell.name), cell.name in solutions) for cell in notebook.source_cells}
    cells = [grader(cell) for cell in source.cells if "nbgrader" in cell.metadata]
    now = {(cell["grade_id"], cell["points"] if cell["grade"] else None, cell["solution"]) for cell in cells}
    if handed_in:
        before, now = ({(name, points is None, *rest) for name, points, *rest in some} for some in (before, now))
    return ", ".join(sorted({name for name, *_ in before ^ now}))


def secret_lines(source: NotebookNode, region: str) -> set[str]:
    """Return the lines of a lab that students must not see and that are long enough to be recognised.

    Parameters
    ----------
    source : nbformat.NotebookNode
        The instructor's notebook.
    region : str
        One of `REGIONS`.

    Returns
    -------
    set of str
        The lines of at least `LEAST` visible characters in the regions of that name, unless they also occur outside.
    """
    hidden = []
    for cell in source.cells:
        hidden += re.findall(rf"### BEGIN {region}\n(.*?)### END {region}", cell.source, re.DOTALL)
    lines, given = {line.strip() for text in hidden for line in text.splitlines()}, squeezed(given_text(source))
    return {line for line in lines if len(squeezed(line)) >= LEAST and squeezed(line) not in given}


def given_text(source: NotebookNode) -> str:
    """Return the text of an instructor's notebook that stands outside of all regions."""
    region = rf"### BEGIN ({'|'.join(REGIONS)})\n.*?### END \1"
    return "\n".join(re.sub(region, "", cell.source, flags=re.DOTALL) for cell in source.cells)


def leaks(secrets: Iterable[str], text: str) -> list[str]:
    """Return the secret lines and the markers of regions that a text contains.

    Parameters
    ----------
    secrets : iterable of str
        Lines of at least `LEAST` visible characters, as `secret_lines` returns them.
    text : str
        Where to look. White space does not count.

    Returns
    -------
    list of str
    """
    return leak_finder(secrets)(text)


def leak_finder(secrets: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that does what `leaks` does, in one text after another.

    Parameters
    ----------
    secrets : iterable of str
        As for `leaks`.

    Returns
    -------
    callable
        Returns for a text what it contains, as a list of str.
    """
    # Cut a text into parts of half of `LEAST`: wherever a line begins, its first `LEAST` characters hold a whole part
    half, lines = LEAST // 2, {}
    for line in secrets:
        begin = squeezed(line)[:LEAST]
        for place in range(half + 1):
            lines.setdefault(begin[place : place + half], []).append(line)

    def find(text):
        text = squeezed(text)
        parts = {text[place : place + half] for place in range(0, len(text), half)} & lines.keys()
        possible = {line for part in parts for line in lines[part]} | {*MARKERS}
        return sorted(line for line in possible if squeezed(line) in text)

    return find


def text_of(name: str, content: bytes) -> str:
    """Return the text of a file and the texts that a person reads in it, without tags, entities and escapes.

    Parameters
    ----------
    name : str
        The name of the file, which says its format.
    content : bytes
        What is in the file. What is no UTF-8 is left out.

    Returns
    -------
    str
    """
    text = content.decode("utf-8", "ignore")
    if name.lower().endswith((".ipynb", ".json")):
        with contextlib.suppress(ValueError, RecursionError):  # of a damaged file, the raw text remains
            text += "\n" + strip_ansi("\n".join(_texts(json.loads(text))))
    read = html.unescape(re.sub(r"<[^<>]*>", "", text)), text.replace("\\", "").replace('""', '"')
    return "\n".join(dict.fromkeys([text, *read]))


def _texts(content):
    """Give every text in the content of a JSON file: sources, outputs, and the keys and values of metadata."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        yield from content
        content = content.values()
    if not isinstance(content, str | int | float | None):
        for part in content:
            yield from _texts(part)


def squeezed(text: str) -> str:
    """Return a text without its white space."""
    return "".join(text.split())


def nbgrader_config(root: Path = ROOT) -> Config:
    """Return nbgrader's configuration of the course, for the course folder `root`."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()
    config.CourseDirectory.root = str(root)
    return config


def grader(cell: NotebookNode) -> dict:
    """Return nbgrader's metadata of a cell, empty if it has none."""
    return cell.metadata.get("nbgrader", {})


def grade_id(cell: NotebookNode) -> str | None:
    """Return the grade_id of a cell, None if it has none."""
    return grader(cell).get("grade_id")


def _complete(cell):
    """Fill in the nbgrader metadata that follow from the few keys of the source."""
    given = cell.metadata.get("nbgrader")
    if given is None:
        return
    if not isinstance(given, dict):
        raise LabError(f"nbgrader must be a mapping such as {{grade_id: NAME, solution: true}}, not {given!r}")
    if unknown := set(given) - GRADER_KEYS:
        raise LabError(f"unknown nbgrader key {', '.join(sorted(unknown))}: use {', '.join(sorted(GRADER_KEYS))}")
    if not re.fullmatch(r"[a-z0-9-]{1,64}", str(given.get("grade_id", ""))):
        raise LabError("an nbgrader cell needs a grade_id of lower-case letters, digits and hyphens")
    points = given.get("points", 0)
    if "points" in given and not (type(points) is int and points > 0):
        raise LabError(f"{given['grade_id']}: points must be a whole number above 0, not {points!r}")
    solution = bool(given.get("solution", False))
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "cell_type": cell.cell_type,
        "grade_id": given["grade_id"],
        "grade": bool(points),
        "solution": solution,
        "locked": not solution,
        "points": points,
        "task": False,
    }
    if not points:
        del cell.metadata["nbgrader"]["points"]


def _hand_in_cell(lab):
    """Return the last cell of a lab. It is not nbgrader's: that would stop the release of labs that were handed in."""
    file = f"{FOLDER}/{HAND_IN}{lab}.ipynb"
    return nbformat.v4.new_markdown_cell(LAST_CELL.format(lab=lab, file=file, where=where_to_hand_in(ROOT)))


def _check(cell):
    """Refuse what nbgrader would accept silently and then release or grade wrongly."""
    for region in REGIONS:
        begin, end = (len(re.findall(rf"^ *### {edge} {region}$", cell.source, re.M)) for edge in ("BEGIN", "END"))
        if begin != end or begin != len(re.findall(f"BEGIN {region}", cell.source)):
            raise LabError(f"every '### BEGIN {region}' needs an '### END {region}', each alone on its line")
    given = grader(cell)
    if given.get("solution") and "### BEGIN SOLUTION" not in cell.source:
        raise LabError(f"{given['grade_id']}: a solution cell needs a '### BEGIN SOLUTION' line")
    if "### BEGIN HIDDEN TESTS" in cell.source and not (given.get("grade") and cell.cell_type == "code"):
        raise LabError("hidden tests must stand in a test cell, one with points and no solution")
    if "### BEGIN MARK SCHEME" in cell.source and not given.get("locked"):
        raise LabError(
            "a mark scheme must stand in a locked cell, `nbgrader: {grade_id: NAME}`: the release removes it"
        )
    if given.get("grade") and cell.cell_type == "code":
        try:
            statements = ast.parse(cell.source).body
        except SyntaxError as error:
            raise LabError(f"{given['grade_id']}: a test cell must hold plain Python: {error}") from None
        if not statements:
            raise LabError(f"{given['grade_id']}: this test cell tests nothing, so everybody would get its points")
        last = statements[-1]
        if isinstance(last, ast.Expr) and not ast.unparse(last).startswith("checks."):
            raise LabError(
                f"{given['grade_id']}: a test cell must not end in an expression: nbgrader takes its value for a score"
            )


def _is_graded(cell):
    return grader(cell).get("grade", False)


def _points(name, points, path):
    chosen = [value for key, value in points.items() if not name or key == name or key.startswith(f"{name}-")]
    if not chosen:
        raise LabError(f"{path.name}: the text asks for the points of {name}, but no graded cell has that name")
    total = sum(chosen)
    return "1 point" if total == 1 else f"{total} points"


def _cell_id(cell, seen):
    """Derive the identifier of a cell from its content, so that `labs/` is the same at every build."""
    if "nbgrader" in cell.metadata:
        return grade_id(cell)
    digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
    seen[digest] = seen.get(digest, 0) + 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def _raises_until_solved(cell):
    """Whether a released cell raises until it is answered; nbval and JupyterLab continue after such a cell."""
    if cell.cell_type != "code":
        return False
    return _is_graded(cell) or re.search(r"^raise NotImplementedError", cell.source, re.M) is not None
