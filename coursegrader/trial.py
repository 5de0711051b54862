"""Try answers to a lab: run them instead of the instructor's, and read the message of every test cell.

The notebook runs once, in this process and without a kernel. At each solution cell, every answer is tried in a forked
copy of the process, so that it finds the state of a real notebook and leaves nothing behind.
"""

import ast
import contextlib
import io
import multiprocessing
import os
import resource
import signal
import time
from multiprocessing.connection import wait

import matplotlib
import matplotlib.pyplot as plt
from nbformat import NotebookNode
from threadpoolctl import threadpool_limits

from coursegrader import GradingError
from coursegrader.labs import grade_id, grader
from coursegrader.result_cache import cells_of
from mlcourse import checks

SECONDS = 10  # of CPU time, for an answer with its test cells, so that a busy machine changes no result
LONGEST = 6 * SECONDS  # for an answer that waits
TOO_LONG = f"took too long: stopped after {SECONDS} seconds"


def solution_cells(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """Return the solution cells of a lab that hold code, by their grade_id."""
    return {grade_id(cell): cell for cell in notebook.cells if _is_code(cell) and grader(cell).get("solution")}


def test_cells(notebook: NotebookNode, solution: str) -> dict[str, NotebookNode]:
    """Return the test cells of the exercise whose solution cell has the grade_id `solution`, by their grade_id."""
    graded = (cell for cell in notebook.cells if _is_code(cell) and grader(cell).get("grade"))
    return {grade_id(cell): cell for cell in graded if grade_id(cell).startswith(f"{solution}-")}


def try_answers(
    notebook: NotebookNode,
    answers: dict[str, list[str]],
    secret: tuple[int, ...] = (),
    mutants: dict[str, list[str]] | None = None,
    everything: bool = True,
) -> dict[str, list[dict[str, str | None]]]:
    """Try every answer.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        The instructor's version of a lab, from `coursegrader.labs.read_lab`.
    answers : dict
        Code of the answers: ``{grade_id of a solution cell: [code, ...]}``.
    secret : tuple of int
        The secret of a course, on which the data of hidden tests depend (`mlcourse.checks.rng`).
    mutants : dict, optional
        More answers, in the same form; each is tried until the first test cell refuses it.
    everything : bool
        Whether to run given cells that no test needs.

    Returns
    -------
    dict
        The messages to each answer and then to each mutant, in the same order: ``{grade_id of a solution cell:
        [{grade_id of a test cell: message}, ...]}``, where the message of a test cell that passed is None.

    Raises
    ------
    GradingError
        If the notebook itself cannot be run. Its test cells may fail, since they may refuse any answer.
    """
    matplotlib.use("Agg")
    checks._secret = tuple(secret)
    results, state = {}, {"__name__": "__main__"}
    code = [cell for cell in notebook.cells if _is_code(cell)]
    deferred = {number for number, cell in enumerate(cells_of(notebook, notebook)) if cell.defers is not None}
    solutions = solution_cells(notebook)
    _import_all(code)
    with threadpool_limits(1), _silence():
        for number, cell in enumerate(code):
            name = grade_id(cell)
            if name in solutions:
                tests = test_cells(notebook, name)
                last = max((code.index(test) for test in tests.values()), default=number)
                exercise = code[number + 1 : last + 1]
                codes = [(code, False) for code in answers.get(name, [])]
                codes += [(code, True) for code in (mutants or {}).get(name, [])]
                results[name] = _try_all(codes, exercise, tests, state)
            if number in deferred and not everything:
                continue
            checks._cell = name
            with contextlib.suppress(Exception) if grader(cell).get("grade") else naming(cell):
                exec(cell.source, state)
            plt.close("all")
    return results


@contextlib.contextmanager
def naming(cell: NotebookNode):
    """Name the cell of the instructor's version in an error that it raises."""
    try:
        yield
    except Exception as error:
        where = grade_id(cell) or f"the cell that begins with `{cell.source.splitlines()[0]}`"
        raise GradingError(
            f"{where}: the instructor's version cannot be run: {type(error).__name__}: {error}: mend it first"
        ) from error


def _import_all(cells):
    """Load every module that the cells import, once for all processes."""
    for cell in cells:
        with naming(cell):
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    exec(ast.unparse(node), {})


def _try_all(answers, exercise, tests, state):
    """Try answers to one exercise, each in its own process, with one process per core.

    For each answer, `answers` has the code and whether to stop at the first test cell that refuses it.
    """
    fork = multiprocessing.get_context("fork")
    waiting, running, results = list(enumerate(answers)), {}, {}
    while waiting or running:
        while waiting and len(running) < os.cpu_count():
            number, (code, brief) = waiting.pop(0)
            receiver, sender = fork.Pipe(duplex=False)
            process = fork.Process(target=_try_one, args=(code, brief, exercise, state, sender), daemon=True)
            process.start()
            sender.close()
            running[receiver] = number, process, time.monotonic() + LONGEST
        ready = wait(running, timeout=0.1)
        for receiver, (number, process, deadline) in list(running.items()):
            if receiver in ready:
                try:
                    results[number] = receiver.recv()
                except EOFError:
                    process.join()
                    ended = "the process ended before the last test cell"
                    results[number] = dict.fromkeys(tests, TOO_LONG if process.exitcode == -signal.SIGXCPU else ended)
            elif time.monotonic() > deadline:
                process.kill()
                results[number] = dict.fromkeys(tests, TOO_LONG)
            else:
                continue
            process.join()
            receiver.close()
            del running[receiver]
    return [results[number] for number in range(len(answers))]


def _try_one(code, brief, exercise, state, sender):
    """Run one answer and the cells of its exercise, and send the message of every test cell that was run."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))  # a signal at the first
    _run(code, state)
    messages = {}
    for cell in exercise:
        checks._cell = grade_id(cell)
        message = _run(cell.source, state)
        if grader(cell).get("grade"):
            messages[grade_id(cell)] = message
            if brief and message is not None:
                break
    sender.send(messages)


def _run(code, state):
    """Run a cell as Jupyter would; return None, or the name and the message of what it raised."""
    try:
        exec(code, state)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        plt.close("all")
    return None


@contextlib.contextmanager
def _silence():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _is_code(cell):
    return cell.cell_type == "code"
