"""Try answers to a lab in the grader, all in one notebook that is graded like a submission.

At each solution cell, the student's process forks for every answer, so each answer starts from the state of a real
notebook and changes nothing for the next. Test cells run outside this process, as always. Given cells that the
instructor's notebook does not need are deferred: they run only if an answer needs a name that they define.
"""

from coursegrader.labs import grade_id
from coursegrader.protocol import Cell
from coursegrader.result_cache import cells_of
from coursegrader.trial import solution_cells, test_cells

FORK = """
def _try_each_answer_in_a_copy():
    import os, signal
    signal.setitimer(signal.ITIMER_REAL, 0)
    while child := os.fork():
        os.waitpid(child, 0)
_try_each_answer_in_a_copy()
"""
NEXT = "import os\nos._exit(0)"  # ends the fork; the process then forks for the next answer


def try_in_the_sandbox(worker, notebook, answers, secret=()):
    """Do what `coursegrader.trial.try_answers` does, in the grader."""
    cells, places = cells_to_try(notebook, answers)
    result = worker.grade(cells, secret)
    assert not result["stopped"], result["stopped"]
    said = {name: [{} for _ in some] for name, some in answers.items()}
    for cell, place, outputs in zip(cells, places, result["outputs"], strict=True):
        errors = [output["evalue"] for output in outputs or () if output["output_type"] == "error"]
        if cell.grade_id:
            name, number = place
            said[name][number][cell.grade_id] = errors[0] if errors else None
        else:
            assert place or not errors, f"{cell.source}\n{errors}"
    return said


def cells_to_try(notebook, answers):
    """Return the cells to run, and for each the answer that it belongs to: None, or its exercise and number."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    ready = dict(zip(map(id, code), cells_of(notebook, notebook), strict=True))
    solutions, tried = solution_cells(notebook), []
    for number, cell in enumerate(code):
        name = grade_id(cell)
        if name in solutions:
            last = max(code.index(test) for test in test_cells(notebook, name).values())
            tried.append((Cell(FORK), None))
            for at, answer in enumerate(answers[name]):
                exercise = [ready[id(each)] for each in code[number + 1 : last + 1]]
                tried += [(each, (name, at)) for each in [Cell(answer), *exercise]]
                tried.append((Cell(NEXT), None))
        if not ready[id(cell)].grade_id:
            tried.append((ready[id(cell)], None))
    return zip(*tried, strict=True)
