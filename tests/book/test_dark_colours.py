"""The dark pictures of figures: their colours, and how cells make them."""

import io
import itertools
import subprocess
from base64 import b64decode

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from IPython.core.pylabtools import print_figure
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.patheffects import withStroke
from PIL import Image

from coursebook.dark_colours import BACKGROUND, FOREGROUND, contrast, dark_colours, partner
from coursebook.execution import Run, execute
from mlcourse import plotting
from paths import ROOT

WHITE = np.ones(3)
GREYS = [str(grey) for grey in np.linspace(0, 1, 21)]
# What people without one kind of cones see (Machado, Oliveira and Fernandes 2009), of linear red, green and blue
COLOUR_BLIND = {
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def rgb(colour):
    return np.array(to_rgba(colour)[:3])


@pytest.fixture
def fig():
    with plt.style.context(plotting.STYLE_FILE):
        yield plt.figure()
    plt.close("all")


def picture(fig):
    with Image.open(io.BytesIO(print_figure(fig, bbox_inches="tight"))) as image:
        return np.asarray(image.convert("RGB")) / 255


@pytest.mark.parametrize("colour", [*plotting.PALETTE, *GREYS, plotting.DARK, "navy", "darkred", "#E8F1F8"])
def test_what_can_be_seen_on_white_can_be_seen_on_the_dark_page(colour):
    assert contrast(rgb(partner(colour)), BACKGROUND) > 0.99 * min(contrast(rgb(colour), WHITE), 4.5)


def test_a_pale_area_becomes_a_deep_one_of_the_same_hue():
    for colour in plotting.PALETTE[:6]:
        pale = 0.2 * rgb(colour) + 0.8
        deep = rgb(partner(tuple(pale)))
        assert deep.argmax() == pale.argmax() and deep.argmin() == pale.argmin()
        assert contrast(deep, BACKGROUND) < 2 and contrast(FOREGROUND, deep) > 7


def test_the_colours_of_the_palette_can_be_told_apart_also_by_the_colour_blind():
    for matrix in (np.eye(3), *COLOUR_BLIND.values()):
        seen = [lightness_and_hue(np.array(matrix) @ linear(rgb(partner(one)))) for one in plotting.PALETTE]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 10


def linear(colour):
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def lightness_and_hue(colour):
    """Return a colour of linear red, green and blue in CIELAB, in which a distance of 2 can just be seen."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(to_xyz @ np.clip(colour, 0, 1) / [0.9505, 1, 1.089], 0.009, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_words_of_a_figure_are_light_on_the_page_of_the_dark_theme(fig):
    ax = fig.add_subplot(title="a title", xlabel="an axis")
    ax.plot([0, 1], label="a line")
    ax.annotate("a note", (0, 0), (0.5, 0.2), arrowprops={"arrowstyle": "->"}, bbox={"facecolor": "white"})
    ax.legend()
    fig.canvas.draw()
    with dark_colours(fig):
        texts = [one for one in fig.findobj(plt.Text) if one.get_text()]
        assert len(texts) > 12
        assert {to_rgba(one.get_color())[:3] for one in texts} == {tuple(FOREGROUND)}
        note, box = ax.texts[0], ax.texts[0].get_bbox_patch()
        for ground in (fig.patch, ax.patch, box, ax.get_legend().get_frame()):
            np.testing.assert_allclose(ground.get_facecolor()[:3], BACKGROUND)
        for edge in (note.arrow_patch, box, ax.spines["left"]):
            np.testing.assert_allclose(edge.get_edgecolor()[:3], FOREGROUND)


def test_a_figure_is_as_before_once_its_dark_picture_is_drawn(fig):
    left, right = fig.subplots(ncols=2)
    left.scatter([1, 2], [1, 2], color=["C0", "black"], edgecolor="white", label="points")
    left.contourf(np.eye(4), colors=["0.9", "C1"])
    left.set_title("a title", path_effects=[withStroke(linewidth=2, foreground="white")])
    left.legend()
    right.bar([1, 2], [1, 2], hatch="/")
    right.plot([1, 2], "k*", markerfacecolor="none")
    picture(fig)  # a second layout may move the axes a little
    before = picture(fig)
    with dark_colours(fig):
        dark = picture(fig)
    assert np.array_equal(picture(fig), before)
    np.testing.assert_allclose(dark[0, 0], BACKGROUND, atol=0.003)
    assert dark.shape == before.shape and np.median(dark) < 0.2 < 0.8 < np.median(before)


@pytest.mark.parametrize("cmap", ["gray_r", "RdBu", plt.get_cmap("viridis", 5)])
def test_an_image_keeps_its_colours_and_so_does_what_is_written_upon_it(fig, cmap):
    ax = fig.add_subplot()
    image = ax.imshow([[0, 1], [2, 3]], cmap=cmap)
    upon, beside = ax.text(0, 0, "upon", color="black"), ax.text(2.5, 0, "beside", color="black")
    ax.set_xlim(-0.5, 4)
    bar = fig.colorbar(image)
    fig.canvas.draw()
    colours = image.to_rgba(np.arange(4)), bar.mappable.to_rgba(np.arange(4))
    with dark_colours(fig):
        assert np.array_equal((image.to_rgba(np.arange(4)), bar.mappable.to_rgba(np.arange(4))), colours)
        assert upon.get_color() == "black" and np.allclose(rgb(beside.get_color()), FOREGROUND)
        assert np.allclose(rgb(bar.ax.get_yticklabels()[0].get_color()), FOREGROUND)


def test_points_and_their_colour_bar_get_the_part_of_a_colour_map_that_can_be_seen(fig):
    ax = fig.add_subplot()
    points = ax.scatter([0, 1, 2], [0, 0, 0], c=[0, 1, 2], cmap="viridis")
    bar = fig.colorbar(points)
    fig.canvas.draw()
    low, middle, high = points.to_rgba([0, 1, 2])
    with dark_colours(fig):
        colours = points.to_rgba(np.linspace(0, 2, 9))
        assert min(contrast(one[:3], BACKGROUND) for one in colours) >= 3
        assert np.array_equal(bar.solids.to_rgba(np.linspace(0, 2, 9)), colours)
        assert np.array_equal(colours[-1], high) and (np.diff([one[:3] @ [0.2, 0.7, 0.1] for one in colours]) > 0).all()
    assert np.array_equal(points.to_rgba([0, 1, 2]), [low, middle, high])
    assert np.array_equal(bar.solids.to_rgba([0, 1, 2]), [low, middle, high])


def test_what_is_transparent_stays_transparent(fig):
    ax = fig.add_subplot()
    box = ax.add_patch(plt.Rectangle((0, 0), 1, 1, facecolor="none", edgecolor="black", alpha=0.7))
    ring = ax.scatter([0], [0], facecolor="none", edgecolor="black", alpha=0.7)
    fig.canvas.draw()
    with dark_colours(fig):
        assert box.get_facecolor()[3] == 0 and not len(ring.get_facecolor())
        np.testing.assert_allclose([box.get_edgecolor(), *ring.get_edgecolor()], [(*FOREGROUND, 0.7)] * 2)
    assert box.get_facecolor()[3] == 0 and not len(ring.get_facecolor())
    assert box.get_edgecolor() == tuple(ring.get_edgecolor()[0]) == (0, 0, 0, 0.7)


def test_areas_in_a_list_of_colours_get_their_partners(fig):
    ax = fig.add_subplot()
    areas = ax.pcolormesh(np.eye(3), cmap=ListedColormap(["0.9", (*rgb("C0"), 0.3)]))
    fig.canvas.draw()
    with dark_colours(fig):
        np.testing.assert_allclose(areas.to_rgba([0, 1]), [partner("0.9"), (*partner("C0")[:3], 0.3)])


def test_a_cell_shows_what_it_shows_in_any_jupyter_and_the_dark_picture_beside_it():
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    run = Run("a page", notebook, ROOT)
    execute([run], ROOT, subprocess.DEVNULL)
    assert not run.error
    [output] = notebook.cells[0].outputs
    assert output.data.keys() == {"image/png", "text/plain"}
    light, dark = (
        np.asarray(Image.open(io.BytesIO(b64decode(png))).convert("RGB")) / 255
        for png in (output.data["image/png"], output.metadata["image/png"]["dark"])
    )
    assert light.shape == dark.shape
    assert (light[0, 0] == 1).all()
    np.testing.assert_allclose(dark[0, 0], BACKGROUND, atol=0.003)
