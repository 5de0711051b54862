"""Check and repair a submission before it is graded.

`read_submission` turns any file into a notebook that can be graded: the student's own cells, and between them the
cells of the lab as its author wrote them. Two lines in ``nbgrader_config.py`` make nbgrader use it::

    c.Autograde.exporter_class = ReadSubmission
    c.Autograde.pre_convert_hook = before_grading
"""

import copy
import json
import os
import re
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearHiddenTests, ClearMarkScheme, ClearSolutions
from nbgrader.utils import is_grade, is_solution, parse_utc

from coursegrader import GradingError
from coursegrader.files import kind_of, read_ordinary
from coursegrader.pictures import PICTURE_TYPES
from coursegrader.protocol import OUTPUTS, Malformed, OutputBudget, checked_outputs
from coursegrader.sanitizer import CODE_CHARACTERS, TEXT_CHARACTERS
from mlcourse.student.notebooks import HAND_IN, MAX_BYTES

MAX_CELLS = 5000
MAX_LISTS = 1_000_000  # and objects of its JSON
MAX_TEXTS = 1_000_000  # of its JSON, which splits texts into lines
MAX_FILES = 1000  # and folders that nbgrader copies
MAX_NOTEBOOKS = 100  # that are opened if none has the name of the lab
MAX_CHARACTERS = 500_000  # in all cells: longer notebooks take minutes to show
MAX_PICTURES = 200  # in all cells
MAX_TIMESTAMP_BYTES = 1000
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
DAY = 24 * 60 * 60
SECRET = "submission_secret.txt"  # from nbgrader's exchange: the feedback is released under a hash of it
UNREADABLE = ".unreadable"
TYPES = ("code", "markdown", "raw")
NO_TEXT_OF_HTML = re.compile(r"""[<>&"'\\]""")
NO_CHARACTER = re.compile("[\0\ud800-\udfff]")  # invalid in Python source or in UTF-8


@dataclass(frozen=True)
class Submission:
    """The part of a student's work that is graded.

    Attributes
    ----------
    notebook : nbformat.NotebookNode
        A valid notebook in format 4, with every graded, solution and locked cell of the lab once. Cells without points
        keep their outputs, in case they need not run.
    repairs : list of str
        Sentences for the student: what was wrong with the file and how it was repaired.
    refused : str or None
        Why the file cannot be graded. Then `notebook` is the released one, which earns no point.
    """

    notebook: NotebookNode
    repairs: list[str] = field(default_factory=list)
    refused: str | None = None


class _Refusal(Exception):
    """The file cannot be graded; the message says why, to the student."""


@dataclass(eq=False)
class _Cell:
    """The parts of a submitted cell that are kept."""

    type: str
    text: str
    id: str | None
    grade_id: str | None
    attachments: dict
    outputs: list


def read_submission(path: Path, source: NotebookNode, released: NotebookNode | None = None) -> Submission:
    """Read any file that a student handed in as a notebook.

    The student's metadata and the outputs of graded cells are dropped. The cells of the lab get their places from
    `source`, and the locked ones also their text. The other cells stay where they are.

    Parameters
    ----------
    path : pathlib.Path
        The file. A symbolic link is not followed.
    source : nbformat.NotebookNode
        The instructor's notebook of the lab, from `instructor_notebook` or `coursegrader.labs.read_lab`.
    released : nbformat.NotebookNode, optional
        The result of `release_of`, which saves time with many submissions.

    Returns
    -------
    Submission
        Its `repairs` say what the student should know; metadata are repaired without a remark.

    Raises
    ------
    GradingError
        If the file cannot be read from the disk; never because of its content.
    """
    released, repairs = released or release_of(source), []
    try:
        cells = _cells(_document(_bytes(path), repairs), repairs)
    except _Refusal as reason:
        return Submission(copy.deepcopy(released), refused=str(reason))
    return Submission(_repaired(cells, source, released, repairs), repairs)


def release_of(source: NotebookNode) -> NotebookNode:
    """Return an instructor's notebook as students get it: without solutions, hidden tests and mark schemes."""
    notebook = copy.deepcopy(source)
    for clear in (ClearSolutions(), ClearHiddenTests(), ClearMarkScheme(enforce_metadata=False)):
        notebook, _ = clear.preprocess(notebook, {})
    return notebook


def present(students: Iterable[str], lab: str, root: Path) -> set[str]:
    """Return who of some students has a submission in ``submitted/``: all if the folder has none of the lab any more.

    The gradebook keeps the points of a submission that was deleted, as of one found under a wrong name.
    """

    def is_gone(path):
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # nobody may look
            pass
        return False

    if not any((root / "submitted").glob(f"*/{lab}")):
        return set(students)
    return {one for one in students if not is_gone(root / "submitted" / one / lab)}


def instructor_notebook(root: Path, lab: str) -> NotebookNode:
    """Return the instructor's notebook of a lab, from ``source/`` in the course folder `root`."""
    path = root / "source" / lab / f"{lab}.ipynb"
    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise GradingError(f"{path}: there is no such lab; run `make labs`, and check the name") from None
    except (OSError, ValueError) as error:
        raise GradingError(f"{path}: cannot be read ({error}); run `make labs`") from error


# From a file to cells


def _bytes(path):
    """Return the content of a regular file of at most `MAX_BYTES`."""
    try:
        if kind := kind_of(path):
            raise _Refusal(f"{shown(path.name)} is not a file, but {kind}.")
        content = read_ordinary(path, MAX_BYTES)
    except FileNotFoundError:
        raise _Refusal(f"No notebook {shown(path.name)} was handed in.") from None
    except OSError as error:
        raise GradingError(f"{shown(str(path))} cannot be read ({error.strerror}); look at its permissions") from error
    if content is None:
        raise _Refusal(f"The file is larger than {MAX_BYTES // 2**20} MB: clear the outputs and hand it in again.")
    return content


def _document(content, repairs):
    """Parse JSON in UTF-8, with or without a byte order mark, or in UTF-16."""
    if not content.strip():
        raise _Refusal("The file is empty.")
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text, expected = content.decode(encoding), "JSON"
    except UnicodeDecodeError:
        text, expected = content.decode(encoding, errors="replace"), "text in UTF-8"
    if text.count("[") + text.count("{") > MAX_LISTS:  # each takes some sixty times its size in memory
        raise _Refusal("The file is not a notebook: it is nested too deeply, or holds too many lists.")
    if text.count('"') - text.count('\\"') > 2 * MAX_TEXTS:
        raise _Refusal(f"The file holds more than {MAX_TEXTS:,} lines: clear the outputs and hand it in again.")
    try:
        document = json.loads(text)
    except RecursionError:
        raise _Refusal("The file is not a notebook: it is nested too deeply.") from None
    except ValueError as error:
        where = f" from line {error.lineno} on" if isinstance(error, json.JSONDecodeError) else ""
        raise _Refusal(f"The file is not a notebook: it is not {expected}{where}, perhaps cut off or edited.") from None
    if expected != "JSON":
        repairs.append("The file was not text in UTF-8: characters that could not be read are shown as \ufffd.")
    return document


def _cells(document, repairs):
    """Return the cells of a notebook in format 4, or in format 3 with its worksheets."""
    given = _inner(document, "cells")
    if given is None and isinstance(sheets := _inner(document, "worksheets"), list):
        lists = [cells for sheet in sheets if isinstance(cells := _inner(sheet, "cells"), list)]
        given = [cell for cells in lists for cell in cells]
    if not isinstance(given, list):
        raise _Refusal("The file is not a notebook: it holds no list of cells.")
    if len(given) > MAX_CELLS:
        raise _Refusal(f"The notebook has {len(given)} cells, more than the {MAX_CELLS} that are graded.")
    cells, odd, left, pictures_left, budget = [], {}, MAX_CHARACTERS, MAX_PICTURES, OutputBudget()
    for number, one in enumerate(given, start=1):
        cell, problems = _cell(one)
        if cell:
            _shorten(cell, left, problems)
            left -= min(left, len(cell.text))
            cell.attachments = _pictures(cell.attachments, pictures_left, problems)
            pictures_left -= len(cell.attachments)
            cell.outputs = budget.fitted(cell.outputs)
            cells.append(cell)
        for problem in problems:
            odd.setdefault(problem, []).append(str(number))
    for problem, numbers in odd.items():
        repairs.append(f"Cell{'s' * (len(numbers) > 1)} {_first_of(numbers)}: {problem}.")
    return cells


def _cell(given):
    """Return the cell to keep, or None, and its problems."""
    if not isinstance(given, dict):
        return None, ["left out, since it could not be read"]
    problems = []
    cell_type = "markdown" if given.get("cell_type") == "heading" else given.get("cell_type")
    if cell_type not in TYPES:
        cell_type = "code" if "outputs" in given or "execution_count" in given else "markdown"
        problems.append(f"without a valid type, taken for {cell_type}")
    text = given.get("source", given.get("input", ""))  # `input` in format 3
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "".join(text)
    if not isinstance(text, str):
        text = ""
        problems.append("its text could not be read")
    if NO_CHARACTER.search(text):
        text = NO_CHARACTER.sub("\ufffd", text)
        problems.append("it held characters that no program can read; they are shown as \ufffd")
    if given.get("cell_type") == "heading":  # of format 3, too
        text = f"# {text}"
    grade_id = _inner(_inner(given.get("metadata"), "nbgrader"), "grade_id")
    names = [name if isinstance(name, str) else None for name in (given.get("id"), grade_id)]
    return _Cell(cell_type, text, *names, given.get("attachments", {}), _outputs(given.get("outputs"))), problems


def _outputs(given):
    """Return the outputs of a cell in the form of the sandbox; none if they are not well formed."""
    try:
        return checked_outputs([_output(one) for one in given])
    except (Malformed, TypeError, KeyError, AttributeError):
        return []


def _output(given):
    """Return the parts of an output that belong to its type, with each text as one string."""
    shape = OUTPUTS[given["output_type"]]
    parts = {key: _text(given[key]) for key in shape.keys() - {"data", "traceback"}}
    if "traceback" in shape:
        parts["traceback"] = [_text(line) for line in given["traceback"]]
    if "data" in shape:
        parts["data"] = {key: _text(value) for key, value in given["data"].items()}
    return {"output_type": given["output_type"], **parts}


def _text(value):
    """Return a text, which may be split into lines, as one string that a file can hold; other values as they are."""
    if isinstance(value, list):
        value = "".join(value)
    return NO_CHARACTER.sub("\ufffd", value) if isinstance(value, str) else value


def _shorten(cell, left, problems):
    """Shorten a cell that is too long, or longer than the number of characters `left`."""
    most = CODE_CHARACTERS if cell.type == "code" else TEXT_CHARACTERS
    if len(cell.text) > most:
        problems.append(f"longer than {most:,} characters, and cut off there: make it shorter and hand it in again")
    elif len(cell.text) > left:
        most = left
        problems.append(
            f"cut off, since all cells together are longer than {MAX_CHARACTERS:,} characters: make them shorter"
        )
    else:
        return
    mark = "# " if cell.type == "code" else ""
    cell.text = f"{cell.text[: min(most, left)]}\n\n{mark}[cut off here, since it is too long]"


def _inner(value, key):
    return value.get(key) if isinstance(value, dict) else None


def _pictures(attachments, left, problems):
    """Return at most `left` pictures of a cell: for each name, its data by type."""
    if not isinstance(attachments, dict):
        problems.append("its pictures could not be read")
        return {}
    if len(attachments) > left:
        problems.append(f"some of its pictures left out, since no more than {MAX_PICTURES} are shown")
    pictures = {}
    for name, given in islice(attachments.items(), left):
        types = {"": given}
        if isinstance(given, dict):
            types = {kind: given[kind] for kind in PICTURE_TYPES if kind in given}
        if not all(isinstance(text, str) and not NO_CHARACTER.search(text) for text in (name, *types.values())):
            problems.append("its pictures could not be read")
            return {}
        pictures[name] = types
    return pictures


# From cells to a notebook that can be graded


def _repaired(cells, source, released, repairs):
    """Build the notebook from a student's cells and the lab's."""
    lab = {_grade_id(cell): cell for cell in source.cells if _grade_id(cell)}
    given = {_grade_id(cell): cell.source for cell in released.cells if _grade_id(cell)}
    _recognise(cells, lab)
    if any(cell.grade_id for cell in cells):
        cells = _without_copies(cells, lab, given, repairs)
        _report_changes(cells, lab, given, repairs)
    else:
        repairs.append("The notebook held none of the cells of this lab: all have been put back as they were given.")
    used = {cell.id for cell in lab.values()}
    unused = (f"cell-{number}" for number in count(len(used)))
    nodes = []
    for cell in _arranged(cells, lab, repairs):
        name = cell if isinstance(cell, str) else cell.grade_id
        if name is None:
            nodes.append(_own_node(cell, used, unused))
        elif not is_solution(lab[name]):
            given_cell = not is_grade(lab[name]) and cell is not name
            nodes.append(_lab_node(lab[name], lab[name].source, outputs=cell.outputs if given_cell else ()))
        elif name is cell:
            nodes.append(_lab_node(lab[name], given[name]))
        else:
            nodes.append(_lab_node(lab[name], _plain(cell.text), cell.attachments))
    metadata = copy.deepcopy(source.metadata)
    return nbformat.v4.new_notebook(nbformat_minor=5, metadata=metadata, cells=nodes)


def _grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def _recognise(cells, lab):
    """Drop the grade_id of other labs, and restore a lost one by the identifier of the cell."""
    for cell in cells:
        cell.grade_id = cell.grade_id if cell.grade_id in lab else None
    known = {cell.grade_id for cell in cells}
    by_id = {cell.id: name for name, cell in lab.items() if name not in known}
    for cell in cells:
        cell.grade_id = cell.grade_id or by_id.get(cell.id)


def _without_copies(cells, lab, given, repairs):
    """Keep one cell for each grade_id; turn the copies in which the student wrote into ordinary cells."""
    dropped = set()
    for name, cell in lab.items():
        copies = [one for one in cells if one.grade_id == name]
        if len(copies) < 2:
            continue
        written = {one: None for one in copies if not _is_as_given(one, cell, given[name])}  # in order
        if is_solution(cell):
            kept = list(written or copies)[-1]
            which = "the last one that you changed is graded" if written else "one is left"
        else:
            kept = next((one for one in copies if one not in written), copies[0])
            which = "one is graded"
        for one in copies:
            if one is not kept:
                one.grade_id = None
                dropped |= set() if one in written else {one}
        rest = ", and what you wrote in the others is kept in ordinary cells" if written.keys() - {kept} else ""
        repairs.append(f"The {_role(cell)} {name} was there {len(copies)} times: {which}{rest}.")
    return [cell for cell in cells if cell not in dropped]


def _is_as_given(cell, lab_cell, text):
    """Whether a cell of the lab is unchanged; one without an answer may also match the instructor's version."""
    texts = (text,) if is_solution(lab_cell) else (text, lab_cell.source)
    return cell.text.strip() in {one.strip() for one in texts}


def _report_changes(cells, lab, given, repairs):
    """Report which of the lab's cells are missing, changed or of another type."""
    found = {cell.grade_id: cell for cell in cells if cell.grade_id}
    missing = [name for name in lab if name not in found]
    answers = [name for name in missing if is_solution(lab[name])]
    others = [name for name in missing if name not in answers]
    retyped = {name for name, cell in found.items() if cell.type != lab[name].cell_type}
    turned = [name for name in lab if name in retyped and is_solution(lab[name])]
    changed = [
        name
        for name, cell in found.items()
        if not is_solution(lab[name]) and (name in retyped or not _is_as_given(cell, lab[name], given[name]))
    ]
    _report(answers, lab, "{was} missing and {has} been put back without an answer", repairs)
    _report(others, lab, "{was} missing and {has} been put back", repairs)
    _report(changed, lab, "{was} not as in the present version of the lab and {has} been put back", repairs)
    _report(turned, lab, "{was} of another type; the type has been put back and the text kept", repairs)


def _report(names, lab, what, repairs):
    """Add a sentence on these cells of the lab to `repairs`, one for each role."""
    for role in dict.fromkeys(_role(lab[name]) for name in names):
        those = [name for name in names if _role(lab[name]) == role]
        verbs = {"was": "were", "has": "have"} if len(those) > 1 else {"was": "was", "has": "has"}
        repairs.append(f"The {role}{'s' * (len(those) > 1)} {_listed(those)} {what.format(**verbs)}.")


def _role(cell):
    return "answer cell" if is_solution(cell) else "check cell" if is_grade(cell) else "given cell"


def _listed(names):
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _first_of(names):
    """List the first five of what may be thousands of names."""
    more = [f"{len(names) - 5} more"] if len(names) > 5 else []
    return _listed(names[:5] + more) if names else ""


def _arranged(cells, lab, repairs):
    """Return the student's cells, and the names of the lab's missing cells, in an order that can be graded.

    The lab's cells that are in the right order stay. Between two of them, missing cells come first, so that an empty
    answer does not overwrite one that a student wrote in a cell of their own; check cells and moved cells come last.
    """
    found = {cell.grade_id: cell for cell in cells if cell.grade_id}
    order = list(lab)
    staying = _in_order(list(found), order, lab)
    moved = [name for name in order if name in found and name not in staying]
    _report(moved, lab, "{was} moved and {has} been put back", repairs)
    before = {name: [] for name in [*staying, None]}
    after = {name: [] for name in [*staying, None]}
    previous = None
    for name in order:
        if name in staying:
            previous = name
        elif name in moved or (is_grade(lab[name]) and not is_solution(lab[name])):
            after[previous].append(found.get(name, name))
        else:
            before[previous].append(name)
    arranged, last = [*before[None]], None
    for cell in cells:
        if cell.grade_id is None:
            arranged.append(cell)
        elif cell.grade_id in staying:
            arranged += [*after[last], cell, *before[cell.grade_id]]
            last = cell.grade_id
    return arranged + after[last]


def _in_order(names, order, lab):
    """Return the largest part of `names` that is already in `order`; answers count more than other cells."""
    best = []  # for each name, the weight of the best selection that ends with it, and the selection
    for name in names:
        earlier = [(weight, chosen) for weight, chosen in best if order.index(chosen[-1]) < order.index(name)]
        weight, chosen = max(earlier, key=lambda one: one[0], default=(0, []))
        best.append((weight + (len(order) if is_solution(lab[name]) else 1), [*chosen, name]))
    return max(best, key=lambda one: one[0], default=(0, []))[1]


def _lab_node(cell, text, attachments=None, outputs=()):
    node = copy.deepcopy(cell)
    node.source = text
    if attachments and node.cell_type != "code":
        node.attachments = nbformat.from_dict(attachments)
    if node.cell_type == "code":
        node.outputs, node.execution_count = nbformat.from_dict(list(outputs)), None
    return node


def _own_node(cell, used, unused):
    """Return a cell of the student with its identifier, or if that is invalid or `used`, the next of `unused`."""
    name = cell.id or ""
    while name in used or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        name = next(unused)
    used.add(name)
    # Not new_code_cell: nbformat would validate each cell, and then the notebook again
    more = {"outputs": cell.outputs, "execution_count": None} if cell.type == "code" else {}
    if cell.attachments and cell.type != "code":
        more = {"attachments": cell.attachments}
    return nbformat.from_dict({"cell_type": cell.type, "id": name, "metadata": {}, "source": _plain(cell.text), **more})


def _plain(text):
    """Break the markers of hidden text: nbgrader stops at them in a cell of a student."""
    return re.sub(r"(BEGIN|END) (HIDDEN TESTS|MARK SCHEME)", r"\1  \2", text)


# The folder around the notebook


def find_notebook(folder: Path, lab: str, source: NotebookNode) -> tuple[Path | None, list[str]]:
    """Return the notebook of a lab in a student's folder, whatever its name, and sentences for the student."""
    paths = (path for path in folder.iterdir() if path.suffix.lower() == ".ipynb" and not path.name.startswith("."))
    return choose_notebook(sorted(paths), lab, source)


def choose_notebook(paths: list[Path], lab: str, source: NotebookNode) -> tuple[Path | None, list[str]]:
    """Choose the notebook to grade from those that a student handed in.

    The exact name of the lab, also with the ``HAND-IN-`` of `mlcourse submit`, comes first, then any name that contains
    it, then any notebook with at least half of the lab's cells, of the first hundred and of 20 MB in all. Among equals,
    the newest one is taken.

    Parameters
    ----------
    paths : list of pathlib.Path
    lab : str
    source : nbformat.NotebookNode
        The instructor's notebook.

    Returns
    -------
    chosen : pathlib.Path or None
    repairs : list of str
        What the student should know about the choice.
    """
    exact = [path for path in paths if path.name in (f"{lab}.ipynb", f"{HAND_IN}{lab}.ipynb")]
    files = [path for path in paths if stat.S_ISREG(path.lstat().st_mode)]
    alike = [path for path in files if lab.lower() in re.sub("[ _]+", "-", path.stem.lower())]
    candidates = exact or alike or [path for path in _readable(files) if _holds(path, source)]
    names = _first_of([shown(path.name) for path in paths])
    if not candidates:
        return None, [f"No notebook of {lab} was found, only {names}."] if paths else []
    chosen = by_date(candidates)[-1]
    repairs = [f"Of the notebooks {names}, {shown(chosen.name)} is graded."] if len(paths) > 1 else []
    if not exact:
        repairs.append(f"The notebook was named {shown(chosen.name)}; its name should be {lab}.ipynb.")
    return chosen, repairs


def _readable(files):
    """Give the first files that together are not larger than one may be."""
    left = MAX_BYTES
    for path in files[:MAX_NOTEBOOKS]:
        if (size := path.lstat().st_size) <= left:
            left -= size
            yield path


def by_date(paths: Iterable[Path]) -> list[Path]:
    """Sort notebooks by date, after all other files; files of the same date keep their order.

    A hash of files in this order changes when another notebook would be chosen, and not when a folder is copied.
    """
    return sorted(paths, key=lambda path: path.lstat().st_mtime if path.suffix.lower() == ".ipynb" else 0.0)


def _holds(path, source):
    """Whether a file is a notebook with at least half of a lab's cells."""
    wanted = {_grade_id(cell) for cell in source.cells} - {None}
    try:
        cells = _cells(_document(_bytes(path), []), [])
    except _Refusal:
        return False
    return 2 * len(wanted & {cell.grade_id for cell in cells}) >= len(wanted)


def shown(name: str) -> str:
    """Return the name of a file for use in a sentence; bytes that are not UTF-8 are shown as numbers."""
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    name = "".join(sign if sign.isprintable() else "\ufffd" for sign in name)
    return name if len(name) <= 80 else f"{name[:40]}…{name[-30:]}"


def left_out(folder: Path) -> list[str]:
    """Return a sentence on what is not opened in a student's folder, since it is not a file or too large."""
    found, own = [], folder / f"{folder.name}.ipynb"
    has_own = os.path.lexists(own)
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        is_notebook = path == own if has_own else path.suffix.lower() == ".ipynb"
        if is_notebook or stat.S_ISDIR(status.st_mode):
            continue  # a notebook that cannot be read is refused with the reason
        kind = kind_of(path) or (f"larger than {MAX_BYTES // 2**20} MB" if status.st_size > MAX_BYTES else "")
        if kind:
            found.append(f"{shown(path.name)} ({kind})")
    return [f"Not opened, since only the notebook is needed: {_first_of(found)}."] if found else []


def is_possible(date: float) -> bool:
    """Whether a date, in seconds since 1970, is possible for a submission; clocks may differ by a day."""
    return EARLIEST <= date <= time.time() + DAY


def is_text(name: str) -> bool:
    """Whether a name is valid text: bytes that are not UTF-8 show up as surrogates."""
    return not re.search("[\ud800-\udfff]", name)


def check_timestamp(folder: Path) -> str | None:
    """Put aside a ``timestamp.txt`` without a possible date, at which nbgrader may stop, and tell the student.

    The file becomes ``timestamp.txt.unreadable``. Every call returns the sentence until there is a new timestamp.
    """
    path = folder / "timestamp.txt"
    try:
        if os.path.lexists(path) and read_timestamp(folder) is None:
            _set_aside(path, folder)
        alone = os.path.lexists(f"{path}{UNREADABLE}") and not os.path.lexists(path)
    except OSError as error:
        raise GradingError(
            f"{shown(str(path))} cannot be put aside ({error.strerror}); look at its permissions"
        ) from error
    if alone:
        return (
            f"{path.name} holds no date between 2000 and today, so the time of handing in is unknown; it is now "
            f"{path.name}{UNREADABLE}. If the time matters, write it into {path.name} as in 2026-03-02 10:00:00 UTC."
        )
    return None


def read_timestamp(folder: Path) -> datetime | None:
    """Return the date in a folder's ``timestamp.txt``; None if it is not possible."""
    try:
        text = read_ordinary(folder / "timestamp.txt", MAX_TIMESTAMP_BYTES).decode("ascii").strip()
        if not re.match(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d", text):  # dateutil also takes 10:00, of today
            return None
        date = parse_utc(text).replace(tzinfo=UTC)
        return date if len(text) < 100 and text.isprintable() and is_possible(date.timestamp()) else None
    except Exception:  # dateutil raises many kinds
        return None


def let_nbgrader_read_times() -> None:
    """Let nbgrader read a ``timestamp.txt`` as `read_timestamp` does.

    The formgrader reads those of all students for its table: it would wait for a pipe, and show no table for a text
    without a date.
    """
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    def get_existing_timestamp(self, folder):
        date = read_timestamp(Path(folder))
        return date and date.replace(tzinfo=None)

    def get_submitted_timestamp(self, assignment_id, student_id):
        directory = self.coursedir.submitted_directory
        return self.coursedir.get_existing_timestamp(self.coursedir.format_path(directory, student_id, assignment_id))

    CourseDirectory.get_existing_timestamp = get_existing_timestamp
    NbGraderAPI.get_submitted_timestamp = get_submitted_timestamp


def read_secret(folder: Path) -> str | None:
    """Return the text in a folder's ``submission_secret.txt``; None if nbgrader did not write it."""
    try:
        text = read_ordinary(folder / SECRET, MAX_TIMESTAMP_BYTES).decode("ascii")
    except (OSError, AttributeError, UnicodeDecodeError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{128}", text) else None


def _set_aside(path, folder):
    """Move a file into `folder`; replace a link or a special file by a note there on what it was.

    nbgrader ignores the new name: its patterns match no name with a dot in front, and none in a folder with brackets.
    """
    target = _free_name(folder, path.name.lstrip(".") or "file")
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        path.rename(target)
        return
    what = f"a symbolic link to {os.readlink(path)}" if stat.S_ISLNK(mode) else "a special file"
    target.write_text(f"{what}\n", encoding="utf-8", errors="replace")
    path.unlink()


def _free_name(folder, name):
    target, number = folder / f"{name}{UNREADABLE}", 1
    while os.path.lexists(target):
        target, number = folder / f"{name}{UNREADABLE}-{number + 1}", number + 1
    return target


# In nbgrader


def before_grading(assignment: str, student: str, notebooks: list[str]) -> None:
    """Prepare the folder of a submission for nbgrader: its ``pre_convert_hook``.

    A timestamp that is not a date is put aside, and so are links, special files and large files, since nbgrader would
    follow them, wait for them or fill the disk with them. So is what goes beyond `MAX_FILES`, since nbgrader reads a
    folder anew for each file in it. Whatever the notebook is called, it is graded under the lab's name.
    """
    folder = Path(notebooks[0]).parent
    check_timestamp(folder)
    needed, number, more = {f"{folder.name}.ipynb", "timestamp.txt", SECRET}, 0, None
    for parent, folders, files in os.walk(folder):
        is_top = parent == str(folder)
        if is_top:  # nbgrader ignores what was put aside before
            folders[:] = [name for name in folders if UNREADABLE not in name or name.startswith(".")]
        for name in [*sorted(files, key=lambda name: name not in needed), *folders]:
            path, number = Path(parent, name), number + 1
            if number > MAX_FILES:
                if more is None:
                    more = _free_name(folder, "more")
                    more.mkdir()
                path.rename(more / f"{number}-{name[:50]}")
                continue
            status = path.lstat()
            is_file, is_seen = stat.S_ISREG(status.st_mode), is_top and not name.startswith(".")
            is_ignored = is_seen and (path.suffix == ".ipynb" or (is_file and UNREADABLE in name))
            ordinary = stat.S_ISDIR(status.st_mode) or (is_file and status.st_size <= MAX_BYTES)
            if not ordinary and not is_ignored:
                _set_aside(path, folder)
    # Take the lab from the folder: `assignment` is an argument of nbgrader, which may be a pattern
    notebooks[:] = [str(folder / f"{folder.name}.ipynb")]


class ReadSubmission(NotebookExporter):
    """Let nbgrader read what is handed in through `read_submission`: its ``Autograde.exporter_class``.

    The notebook's metadata hold under ``mlcourse`` what was found: ``repairs``, a list of sentences for the student,
    and ``refused``, a sentence or None.
    """

    def from_filename(self, filename, resources=None, **options):
        coursedir, path = self.parent.coursedir, Path(filename)
        ids = resources["nbgrader"]
        if path.parent != Path(coursedir.format_path(coursedir.submitted_directory, ids["student"], ids["assignment"])):
            return super().from_filename(filename, resources, **options)
        if NO_TEXT_OF_HTML.search(ids["student"]):
            name = shown(ids["student"])
            raise GradingError(f"submitted/{name}: nbgrader writes this name into its pages as HTML: rename the folder")
        source = instructor_notebook(Path(coursedir.root), path.stem)
        found, repairs = find_notebook(path.parent, path.stem, source)
        submission = read_submission(found or path, source)
        repairs += [check_timestamp(path.parent), *submission.repairs]
        submission.notebook.metadata["mlcourse"] = {
            "repairs": [sentence for sentence in repairs if sentence],
            "refused": submission.refused,
        }
        resources["metadata"] = {"name": path.stem, "path": str(path.parent)}
        return self.from_notebook_node(submission.notebook, resources, **options)
