"""Figures that hold the same as the instructor's are not drawn again, and nobody can tell."""

import base64
import io
import os
import signal

import numpy as np
import pytest
from PIL import Image

from coursegrader.cells import Cell
from coursegrader.desk import FEW, Desk
from coursegrader.limits import children

GIVEN = "import numpy as np\nimport matplotlib.pyplot as plt\nfrom mlcourse import plotting\nplotting.use_style()"
DRAW = "fig, (left, right) = plt.subplots(ncols=2)\nleft.plot(np.arange(5), {0}, label='curve')\nright.hist({0})\n{1}"
SHOW = "left.legend()\nplt.show()"
# In the box, how many pictures are kept, and what can be read of them
KEPT = "kept = get_ipython().pictures.sealed\nprint(len(kept), any(b'PNG' in one for one in kept.values()))"
NOTICE = """
from matplotlib.figure import Figure
draw = Figure.draw
Figure.draw = lambda *arguments: [print("drawn"), draw(*arguments)]
"""


REFERENCE = [Cell(GIVEN), Cell(DRAW.format("[1, 2, 4, 8, 16]", SHOW)), Cell("assert False", "a-test")]


@pytest.fixture(scope="module", params=[True, False], ids=["in the box", "without a box"])
def desks(request):
    """Return two desks, of which the first knows the instructor's notebook and has graded enough to use it."""
    if request.param:
        request.getfixturevalue("bubblewrap")
    desks = Desk(request.param, REFERENCE), Desk(request.param)
    for _ in range(FEW):
        desks[0].grade([Cell("1")])
    yield desks
    for desk in desks:
        desk.close()


def shown(desk, *sources):
    """Return the pixels of the last picture of a notebook, and what it printed before."""
    result = desk.grade([Cell(GIVEN), *map(Cell, sources)])
    outputs = [output for outputs in result["outputs"] for output in outputs]
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    text = "".join(output.get("text", "") for output in outputs)
    with Image.open(io.BytesIO(base64.b64decode(pictures[-1]))) as picture:
        return np.asarray(picture.convert("RGB")), text


def test_a_figure_that_holds_what_the_instructors_does_is_not_drawn_and_looks_the_same(desks):
    same = "values = 2 ** np.arange(5)\nvalues = values.tolist()"
    sources = [same, NOTICE, DRAW.format("values", SHOW)]
    (kept, said), (drawn, said_then) = (shown(desk, *sources) for desk in desks)
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
def test_every_other_figure_is_drawn_as_it_is(desks, change):
    (kept, said), (drawn, _) = (shown(desk, NOTICE, change) for desk in desks)
    assert np.array_equal(kept, drawn)
    assert "drawn" in said


def test_the_instructors_pictures_cannot_be_read_by_who_has_not_drawn_the_same(desks):
    outputs = desks[0].grade([Cell(KEPT)])["outputs"]
    assert outputs[0][0]["text"] == "1 False\n"


def test_a_box_that_had_to_be_started_again_learns_again(desks):
    desk = desks[0]
    # The server's first child; the second is the examiner
    box, _ = children(desk.process.pid)
    os.kill(box, signal.SIGKILL)
    desk.grade([Cell("1")])
    assert desk.grade([Cell(KEPT)])["outputs"][0][0]["text"] == "0 False\n"
    for _ in range(FEW):
        desk.grade([Cell("1")])
    assert desk.grade([Cell(KEPT)])["outputs"][0][0]["text"] == "1 False\n"


@pytest.mark.parametrize(("expected", "kept"), [(FEW, "1 False\n"), (FEW - 1, "0 False\n")])
def test_the_pictures_are_there_for_the_first_of_a_class_and_not_made_for_a_few(bubblewrap, expected, kept):
    desk = Desk(reference=REFERENCE, expected=expected)
    said = desk.grade([Cell(KEPT)])["outputs"][0][0]["text"]
    desk.close()
    assert said == kept


def test_a_desk_that_serves_two_labs_knows_the_pictures_of_both(desks):
    first, other = desks[0].reference, [Cell(GIVEN), Cell(DRAW.format("[3, 1, 4, 1, 5]", SHOW))]
    desks[0].reference = other
    for _ in range(FEW):
        desks[0].grade([Cell("1")])
    for lab in (other, first):
        desks[0].reference = lab
        assert shown(desks[0], NOTICE, lab[1].source)[1] == ""
        assert "drawn" in shown(desks[1], NOTICE, lab[1].source)[1]
