"""No test cell passes with the replies of a right answer to other hidden data.

The replies of the instructor's answer to each test cell are recorded under one secret, and replayed to the same test
cell under other secrets. A cell that passes with most of them does not depend on its hidden data: constants would pass.
"""

import pytest

from coursegrader.labs import read_lab
from coursegrader.protocol import Cell
from coursegrader.result_cache import cells_of
from coursegrader.worker import Worker
from paths import LABS, ROOT

pytestmark = pytest.mark.nightly

# Cells with hidden tests that pass nevertheless, with the reason
EXPLAINED = {
    ("lab-01", "plot-prediction-3"): "labels and figures, which do not depend on the data",
    ("lab-01", "braking-physics-1"): "a question with one right number",
    ("lab-07", "importance-of-3"): "shuffles of given data, which are as good for another seed",
    ("lab-08", "k-folds-3"): "shuffles of given numbers, which are as good for another seed",
    ("lab-09", "components-for-3"): "bad input: an error whatever the data, and numbers that all secrets share",
    ("lab-12", "block-labels-3"): "bad input: an error whatever the data, and a length where there is none",
}
# A cell that calls a method until it is fast: how often depends on what else the machine does
TIMED = {"lda-6"}
RECORDED = (271828182, 845904523, 536028747)
OTHER_SECRETS = [(number, number**2, number**3) for number in range(1, 21)]
START = f"import sys\nsys.path.append({str(ROOT / 'tests')!r})\nimport replaying\nreplaying."


@pytest.fixture(scope="module", params=LABS)
def replayed(request, tmp_path_factory):
    """The name of a lab, and the test cells that pass with recorded replies, under the same secret and each other."""
    notebook, folder = read_lab(ROOT / "solutions" / f"{request.param}.md"), str(tmp_path_factory.mktemp("said"))
    cells = cells_of(notebook, notebook)
    tests = [cell for cell in cells if cell.grade_id]
    worker = Worker(sandbox=False)
    try:
        recorded = passed(worker, [Cell(f"{START}record({folder!r})"), *cells], RECORDED)
        assert recorded == {cell.grade_id for cell in tests}
        again = [
            passed(worker, [Cell(f"{START}replay({folder!r})"), *tests], secret)
            for secret in (RECORDED, *OTHER_SECRETS)
        ]
    finally:
        worker.close()
    return request.param, tests, *again


def passed(worker, cells, secret):
    """Return the names of the test cells that pass."""
    result = worker.grade(cells, secret)
    assert not result["stopped"], result["stopped"]
    return {
        cell.grade_id
        for cell, outputs in zip(cells, result["outputs"], strict=True)
        if cell.grade_id and not any(output["output_type"] == "error" for output in outputs)
    }


def test_what_was_recorded_passes_with_the_same_secret(replayed):
    _, tests, same, *_ = replayed
    assert {cell.grade_id for cell in tests} - TIMED == same - TIMED


def test_what_was_recorded_fails_with_most_other_secrets(replayed):
    lab, tests, _, *others = replayed
    hidden = {cell.grade_id for cell in tests if "### BEGIN HIDDEN TESTS" in cell.source}
    passing = {name: sum(name in some for some in others) for name in hidden}
    often = {name for name, times in passing.items() if times > len(others) / 2}
    explained = {cell for of, cell in EXPLAINED if of == lab[:6]}
    assert often == explained, f"{lab}: of {len(others)} other secrets, passed with: {passing}"
