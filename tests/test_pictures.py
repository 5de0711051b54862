"""Figures that hold the same as the instructor's are not drawn again, and nobody can tell."""

import base64
import io
import os
import signal

import numpy as np
import pytest
from PIL import Image

from coursegrader.limits import children
from coursegrader.protocol import Cell
from coursegrader.worker import FEW, Worker

GIVEN = "import numpy as np\nimport matplotlib.pyplot as plt\nfrom mlcourse import plotting\nplotting.use_style()"
DRAW = "fig, (left, right) = plt.subplots(ncols=2)\nleft.plot(np.arange(5), {0}, label='curve')\nright.hist({0})\n{1}"
SHOW = "left.legend()\nplt.show()"
# In the sandbox, how many pictures are kept, and what can be read of them
KEPT = "kept = get_ipython().pictures.sealed\nprint(len(kept), any(b'PNG' in one for one in kept.values()))"
NOTICE = """
from matplotlib.figure import Figure
draw = Figure.draw
Figure.draw = lambda *arguments: [print("drawn"), draw(*arguments)]
"""


REFERENCE = [Cell(GIVEN), Cell(DRAW.format("[1, 2, 4, 8, 16]", SHOW)), Cell("assert False", "a-test")]


@pytest.fixture(scope="module", params=[True, False], ids=["in the sandbox", "without a sandbox"])
def workers(request):
    """Return two workers, of which the first knows the instructor's notebook and has graded enough to use it."""
    if request.param:
        request.getfixturevalue("bubblewrap")
    workers = Worker(request.param, REFERENCE), Worker(request.param)
    for _ in range(FEW):
        workers[0].grade([Cell("1")])
    yield workers
    for worker in workers:
        worker.close()


def shown(worker, *sources):
    """Return the pixels of the last picture of a notebook, and what it printed before."""
    result = worker.grade([Cell(GIVEN), *map(Cell, sources)])
    outputs = [output for outputs in result["outputs"] for output in outputs]
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    text = "".join(output.get("text", "") for output in outputs)
    with Image.open(io.BytesIO(base64.b64decode(pictures[-1]))) as picture:
        return np.asarray(picture.convert("RGB")), text


def test_a_figure_that_holds_what_the_instructors_does_is_not_drawn_and_looks_the_same(workers):
    same = "values = 2 ** np.arange(5)\nvalues = values.tolist()"
    sources = [same, NOTICE, DRAW.format("values", SHOW)]
    (kept, said), (drawn, said_then) = (shown(worker, *sources) for worker in workers)
    assert np.array_equal(kept, drawn)
    assert said == "" and "drawn" in said_then


@pytest.mark.parametrize(
    "change",
    [
        DRAW.format("[1, 2, 4, 8, 17]", SHOW),
        DRAW.format("[1, 2, 4, 8, 16]", f"left.set(title='mine')\n{SHOW}"),
        DRAW.format("[1, 2, 4, 8, 16]", f"left.lines[0].set_color('red')\n{SHOW}"),
        DRAW.format("[1, 2, 4, 8, 16]", f"left.transData.invalidate()\nright.set_xlim(0, 99)\n{SHOW}"),
        f"plt.rcParams['axes.unicode_minus'] = False\n{DRAW.format('[-1, 2, 4, 8, 16]', SHOW)}",
        f"plt.rcParams['text.antialiased'] = False\n{DRAW.format('[1, 2, 4, 8, 16]', SHOW)}",
        DRAW.format("[1, 2, 4, 8, 16]", f"left.format_coord = lambda x, y: ''\n{SHOW}"),
    ],
    ids=["data", "title", "colour", "limits", "setting", "another setting", "what cannot be written down"],
)
def test_every_other_figure_is_drawn_as_it_is(workers, change):
    (kept, said), (drawn, _) = (shown(worker, NOTICE, change) for worker in workers)
    assert np.array_equal(kept, drawn)
    assert "drawn" in said


def test_the_instructors_pictures_cannot_be_read_by_who_has_not_drawn_the_same(workers):
    outputs = workers[0].grade([Cell(KEPT)])["outputs"]
    assert outputs[0][0]["text"] == "1 False\n"


def test_a_student_runner_that_had_to_be_started_again_learns_again(workers):
    worker = workers[0]
    # The server's first child; the second is the test runner
    student_runner, _ = children(worker.process.pid)
    os.kill(student_runner, signal.SIGKILL)
    worker.grade([Cell("1")])
    assert worker.grade([Cell(KEPT)])["outputs"][0][0]["text"] == "0 False\n"
    for _ in range(FEW):
        worker.grade([Cell("1")])
    assert worker.grade([Cell(KEPT)])["outputs"][0][0]["text"] == "1 False\n"


@pytest.mark.parametrize(("expected", "kept"), [(FEW, "1 False\n"), (FEW - 1, "0 False\n")])
def test_the_pictures_are_there_for_the_first_of_a_class_and_not_made_for_a_few(bubblewrap, expected, kept):
    worker = Worker(reference=REFERENCE, expected=expected)
    said = worker.grade([Cell(KEPT)])["outputs"][0][0]["text"]
    worker.close()
    assert said == kept


def test_a_worker_that_serves_two_labs_knows_the_pictures_of_both(workers):
    first, other = workers[0].reference, [Cell(GIVEN), Cell(DRAW.format("[3, 1, 4, 1, 5]", SHOW))]
    workers[0].reference = other
    for _ in range(FEW):
        workers[0].grade([Cell("1")])
    for lab in (other, first):
        workers[0].reference = lab
        assert shown(workers[0], NOTICE, lab[1].source)[1] == ""
        assert "drawn" in shown(workers[1], NOTICE, lab[1].source)[1]
