"""Find the given cells of a notebook that a grading has to run: those that a test or a cell of the student needs.

A lab spends most of its time in given cells that draw, fit and compare, and a test needs few of them. A given cell is
*deferred* if no cell that runs needs a name that it defines or changes. The student's own cells always run. Names are
found by reading the code (`coursegrader.names`), which misses names that are created at run time. A deferred cell
therefore also runs when a name that it defines is missing (`coursegrader.student_runner`).

Some dependencies do not show in names. A given cell with the tag ``run`` always runs, for instance one that sets an
option of a library on which an answer depends.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace

from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution

from coursegrader.names import Names, names_of, names_of_test
from coursegrader.protocol import Cell

ALWAYS = "run"
MAX_CHARACTERS = 100_000  # of the code that is read, besides the checks of the lab
MAX_LOOKUPS = 200_000  # of cells that bind a name; a lab takes a few thousand


def given_cells(notebook: NotebookNode) -> dict[str, bool]:
    """Return the given code cells of an instructor's notebook: their text, and whether they always run."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    given = [cell for cell in code if not is_grade(cell) and not is_solution(cell)]
    return {cell.source: ALWAYS in cell.metadata.get("tags", []) for cell in given}


def defer(cells: list[Cell], given: Mapping[str, bool]) -> list[Cell]:
    """Mark the cells of a submission that need not run.

    Parameters
    ----------
    cells : list of Cell
        The code cells of a submission.
    given : dict
        The `given_cells` of the lab.

    Returns
    -------
    list of Cell
        The same cells. Those that need not run have the names that they define or change as `defers`. All run if the
        names of a cell are not known (`coursegrader.names.names_of`), or if there is more code than a person writes.
    """
    if sum(len(cell.source) for cell in cells if cell.grade_id is None) > MAX_CHARACTERS:
        return cells
    names = [_names_of(cell) for cell in cells]
    if None in names:
        return cells
    bound = _bound(names)
    binders = {}
    for number, some in enumerate(bound):
        for name in some:
            binders.setdefault(name, []).append(number)
    if sum(len(binders.get(name, ())) for some in names for name in some.needs | some.needs_later) > MAX_LOOKUPS:
        return cells
    waiting = [number for number, cell in enumerate(cells) if cell.grade_id or given.get(cell.source, True)]
    runs = set(waiting)
    while waiting:
        for other in needed_by(waiting.pop(), names, binders):
            if other not in runs:
                runs.add(other)
                waiting.append(other)
    return [
        cell if number in runs else replace(cell, defers=sorted(bound[number])) for number, cell in enumerate(cells)
    ]


def _names_of(cell):
    if cell.grade_id is None:
        return names_of(cell.source)
    try:
        return Names(needs=set(names_of_test(cell.source)))
    except (SyntaxError, ValueError):
        return Names()  # the test fails as it runs


def _bound(names):
    """Return the names that each cell binds anew or changes."""
    modules = set().union(*(found.modules for found in names))
    return [found.defines | found.may_define | (found.changes - modules) for found in names]


def needed_by(number: int, names: list[Names], binders: Mapping[str, list[int]]) -> Iterator[int]:
    """Yield the numbers of the cells that define or change what a cell needs.

    Names that it reads as it runs come from the last cells before it. Names that its functions read when they are
    called may come from any cell. Calling a function of a module does not count as changing the module.
    """
    for name in names[number].needs:
        others = binders.get(name, [])
        for at in reversed(range(bisect_left(others, number))):
            yield others[at]
            if name in names[others[at]].defines:
                break
    for name in names[number].needs_later:
        yield from binders.get(name, [])
