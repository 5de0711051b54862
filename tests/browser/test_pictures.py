"""The pictures that cells drew: light and dark, and compressed so that no reader sees it."""

import html
import io
import json
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from browser import SHOW_ALL, bytes_sent
from coursebook.dark_colours import BACKGROUND, contrast
from coursebook.site import pictures
from paths import CHAPTER_PAGES, ROOT

BUILT = ROOT / "_build"
# Of 255: small enough that no pixel takes another colour, such as that of the middle of a colour bar at its end.
# The limit for an average over an area is lower.
LARGEST_CHANGE, LARGEST_CHANGE_OF_AREA = 24, 6


# With a picture, a heat map and a figure with sliders
PAGE = "nearest-neighbours/how-many-neighbours"


@pytest.fixture(scope="module")
def pages():
    """Return the HTML of each page of a chapter by its name."""
    return {name: (BUILT / "html" / "book" / f"{name}.html").read_text("utf-8") for name in CHAPTER_PAGES}


@pytest.fixture(scope="module")
def dark_pictures(pages):
    """Return each picture for the dark theme, from 0 to 1, by its name."""
    names = set(re.findall(r"<img[^>]*dark-figure[^>]*_images/([^\"/]+\.webp)", "".join(pages.values())))
    return {name: colours(BUILT / "html" / "_images" / name) / 255 for name in names}


def colours(path, size=1):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").reduce(size)).astype(np.int16)


def test_no_colour_of_a_figure_becomes_another_and_all_weigh_half_at_most():
    pages = "".join(page.read_text("utf-8") for page in (BUILT / "html" / "book").rglob("*.html"))
    names = set(re.findall(r"_images/([^\"/]+)\.webp", pages))
    drawn = {BUILT / "jupyter_execute" / f"{name}.png": BUILT / "html" / "_images" / f"{name}.webp" for name in names}
    assert len(drawn) > 80
    for png, small in drawn.items():
        assert np.abs(colours(png) - colours(small)).max() <= LARGEST_CHANGE, png.name
        assert np.abs(colours(png, 4) - colours(small, 4)).max() <= LARGEST_CHANGE_OF_AREA, png.name
    assert sum(path.stat().st_size for path in drawn.values()) < sum(path.stat().st_size for path in drawn) / 2


def test_a_picture_of_few_colours_gets_a_palette_and_one_of_many_stays_as_it_is(tmp_path):
    many = np.random.default_rng(0).integers(0, 255, size=(60, 80, 3))
    few = many // 128 * 127
    for name, pixels in (("few", few), ("many", many)):
        path = tmp_path / f"{name}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        assert np.array_equal(colours(io.BytesIO(pictures.small_picture(path))), pixels)


def test_the_site_holds_nothing_large_that_no_page_loads():
    sizes = {path: bytes_sent(path) for path in (BUILT / "html").rglob("*") if path.is_file()}
    assert not [path for path, size in sizes.items() if size > 1_000_000]
    assert sum(sizes.values()) < 20_000_000


def test_every_picture_of_a_cell_has_its_size_so_that_it_keeps_its_place_until_it_is_loaded():
    for page in (BUILT / "html" / "book").rglob("*.html"):
        for tag in re.findall(r'<img[^>]* src="[^"]*_images/[^>]*\.webp"[^>]*>', page.read_text("utf-8")):
            name, width, height = (
                re.search(pattern, tag)[1] for pattern in (r"_images/(.*?)\"", r"width=\"(\d+)", r"height=\"(\d+)")
            )
            with Image.open(BUILT / "html" / "_images" / name) as picture:
                assert picture.size == (int(width), int(height))


# --- the dark theme ---------------------------------------------------------------------------------------------------


def test_every_figure_of_a_cell_is_there_for_the_light_and_for_the_dark_theme(pages):
    for name, page in pages.items():
        tags = re.findall(r'<img[^>]* src="[^"]*_images/[^>]*\.webp"[^>]*>', page)
        for light, dark in zip(tags[::2], tags[1::2], strict=True):
            assert 'class="light-figure"' in light and 'class="dark-figure"' in dark, name
            (alt, *size), (alt_of_dark, *size_of_dark) = (
                re.search(r'width="(\d+)" height="(\d+)" alt="([^"]+)"', tag).group(3, 1, 2) for tag in (light, dark)
            )
            assert alt == alt_of_dark
            np.testing.assert_allclose(np.array(size, dtype=int), np.array(size_of_dark, dtype=int), rtol=0.01)
        assert page.count('class="explore"') == page.count('class="explore" data-dark='), name


def test_dark_pictures_have_the_colour_of_the_page_around_them(chromium, dark_pictures, address):
    page = chromium.new_page(color_scheme="dark")
    page.goto(f"{address}/book/{PAGE}.html")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    page.close()
    assert len(dark_pictures) > 80
    for name, picture in dark_pictures.items():
        edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
        assert np.abs(np.median(edge, axis=0) * 255 - colour[:3]).max() <= 1, name


def test_the_words_below_a_dark_picture_can_be_read(dark_pictures):
    """The lowest line of a picture names its axis, or stands in its legend."""
    for name, picture in dark_pictures.items():
        differs = np.abs(picture - BACKGROUND).max(axis=(1, 2)) > 0.1
        [*_, end] = np.flatnonzero(differs)
        line = picture[max(0, end - 24) : end + 1].reshape(-1, 3)
        assert contrast(line[line.sum(axis=1).argmax()], BACKGROUND) > 4.5, name


def test_what_can_be_seen_in_a_figure_with_sliders_can_be_seen_in_the_dark_one(pages):
    found = re.findall(r'data-dark="([^"]+)"', "".join(pages.values()))
    figures = [json.loads(html.unescape(one)) for one in found]
    assert len(figures) > 25
    for light, dark in {pair for figure in figures for pair in figure.items()}:
        on_white = contrast(np.array(to_rgb(light)), np.ones(3))
        assert contrast(np.array(to_rgb(dark)), BACKGROUND) > 0.99 * min(on_white, 4.5), light


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_reader_loads_the_pictures_of_one_theme_until_another_is_chosen(chromium, address, theme):
    page = chromium.new_page(color_scheme=theme)
    loaded = []
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    page.goto(f"{address}/book/{PAGE}.html")
    names = {
        one: page.locator(f"img.{one}-figure[src*=_images]").evaluate_all(
            "(images) => images.map((image) => image.src.split('/').pop())"
        )
        for one in ("light", "dark")
    }
    other = {"light": "dark", "dark": "light"}[theme]
    assert not page.evaluate(SHOW_ALL)
    assert names[theme] and {*names[theme]} <= {*loaded} and not {*names[other]} & {*loaded}
    page.emulate_media(color_scheme=other)
    page.wait_for_function("(theme) => document.documentElement.dataset.theme === theme", arg=other)
    assert not page.evaluate(SHOW_ALL)
    assert {*names[other]} <= {*loaded}
    page.close()
