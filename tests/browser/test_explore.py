"""Figures with sliders: the pictures of mlcourse.explore, and their use in a browser."""

import functools
import gzip
import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

from coursebook.dark_colours import BACKGROUND
from coursebook.site.pictures import with_partners
from mlcourse import explore
from paths import CHAPTER_PAGES, ROOT
from unchanged import nightly_but

SCRIPT = ROOT / "book" / "_static" / "course.js"
SITE = ROOT / "_build" / "html" / "book"


def draw(number, shade):
    """Draw a picture whose number of parts depends on the values, not just their places."""
    fig = plt.figure(figsize=(4, 3), layout="none")
    ax = fig.add_axes((0.2, 0.2, 0.7, 0.6))
    ax.plot(np.arange(number + 1), np.arange(number + 1) ** 2, "o-")
    for place in range(number):
        ax.text(place, 1, f"part {place} <&> 100 %")
    ax.imshow(np.full((2, number), 0.3 if shade == "dark" else 0.8), cmap="gray", vmin=0, interpolation="none")
    ax.set(xlim=(0, 5), ylim=(0, 5), aspect="auto", title=f"{number} parts # {shade}")


def say(number, shade):
    return f"{number} parts, {shade}."


SLIDERS = {"number of parts": range(1, 5), "shade": ["dark", "light"]}
figure = functools.partial(explore.figure, draw, SLIDERS, say=say, alt="A line with one to four parts <on grey>.")


@pytest.fixture
def show(chromium, tmp_path):
    """Open a page of figures in the browser."""
    pages = []

    def open_page(*figures, **options):
        body = "\n".join(one if isinstance(one, str) else one._repr_html_() for one in figures)
        path = tmp_path / f"page-{len(pages)}.html"
        path.write_text(f'<!doctype html><meta charset="utf-8">{body}<script>{SCRIPT.read_text("utf-8")}</script>')
        pages.append(chromium.new_page(**options))
        pages[-1].goto(path.as_uri())
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


def picture(page, number=0):
    """Return a screenshot of a picture as PNG, once the browser has decoded it."""
    page.evaluate("Promise.all([...document.images].map((image) => image.decode()))")
    return page.locator("div.explore img").nth(number).screenshot()


def set_to(slider, place):
    slider.press("Home")
    for _ in range(place):
        slider.press("ArrowRight")


@pytest.mark.nightly
def test_moving_the_sliders_gives_the_picture_and_the_sentence_of_that_state(show):
    moved = show(figure(start=(2, "dark")))
    for i, number in enumerate(SLIDERS["number of parts"]):
        for j, shade in enumerate(SLIDERS["shade"]):
            for label, place in (("number of parts", i), ("shade", j)):
                set_to(moved.get_by_role("slider", name=label), place)
            drawn = show(figure(start=(number, shade)))
            assert picture(moved) == picture(drawn), (number, shade)
            assert moved.locator("div.explore p").inner_text() == say(number, shade)


def test_two_figures_on_a_page_leave_one_another_alone(show):
    page = show(figure(start=(1, "dark")), figure(start=(4, "light")))
    second = picture(page, 1)
    set_to(page.get_by_role("slider", name="number of parts").first, 3)
    assert picture(page, 1) == second
    assert page.locator("div.explore p").all_inner_texts() == [say(4, "dark"), say(4, "light")]


def test_the_dark_picture_moves_too_and_its_words_are_light_on_dark(show):
    moved, drawn = (show(with_partners(figure(start=(number, "dark"))._repr_html_())) for number in (2, 4))
    set_to(moved.get_by_role("slider", name="number of parts"), 3)
    assert picture(moved, 1) == picture(drawn, 1) != picture(drawn)
    title = plt.imread(io.BytesIO(picture(moved, 1)))[:40, :, :3]
    np.testing.assert_allclose(title[0, 0], BACKGROUND, atol=0.003)
    assert title.max() > 0.9


def test_without_a_script_there_is_the_first_picture_and_its_sentence_and_nothing_dead(show):
    page = show(figure(start=(3, "light")), java_script_enabled=False)
    assert page.locator("input").count() == 0
    image = page.get_by_role("img", name="A line with one to four parts <on grey>.")
    assert image.bounding_box()["width"] > 300 and page.get_by_text("3 parts, light.").is_visible()


def test_a_figure_is_the_same_at_every_run():
    assert figure(start=(1, "dark"))._repr_html_() == figure(start=(1, "dark"))._repr_html_()
    line = "Figure with sliders: number of parts from 1 to 4, shade from dark to light"
    assert repr(figure(start=(1, "dark"))) == line


def test_axes_stay_where_they_are_in_the_first_picture(show):
    def draw_label(label):
        ax = plt.subplots(figsize=(4, 3), layout="constrained")[1]
        ax.set(xlim=(0, 1), ylim=(0, 1), ylabel=label, facecolor="black")

    def count(label):
        return f"{len(label)} letters"

    labels = {"label": ["y", "three\nlines\nhigh"]}
    page = show(explore.figure(draw_label, labels, start=("y",), say=count, alt="Empty axes."))
    first = black_columns(picture(page))
    set_to(page.get_by_role("slider"), 1)
    assert page.locator("p").inner_text() == "16 letters" and black_columns(picture(page)) == first


def black_columns(png):
    """Return the start and the end of the widest black area of a picture."""
    middle = plt.imread(io.BytesIO(png))[60, :, :3].sum(axis=1)
    return np.flatnonzero(middle < 0.1)[[0, -1]].tolist()


def test_nothing_is_left_open():
    figure(start=(1, "dark"))
    assert not plt.get_fignums()


def test_a_start_that_is_no_value_of_the_sliders_is_named():
    with pytest.raises(ValueError, match=r"starts at \(9, 'dark'\), which is not"):
        figure(start=(9, "dark"))


def test_a_function_that_draws_nothing_is_named():
    with pytest.raises(ValueError, match=r"draw\(1,\) made none: begin it with plt.subplots"):
        explore.figure(lambda _: None, {"one": [1]}, start=(1,), say=str, alt="Nothing.")


# --- the figures of the book, in the built site -----------------------------------------------------------------------


# Skip shadow trees: to search them, Playwright walks through all elements of a page each time
FIGURES = "css:light=div.explore"


WITH_SLIDERS = [
    page for page in CHAPTER_PAGES if "explore.figure(" in (ROOT / "book" / f"{page}.md").read_text("utf-8")
]


@pytest.fixture(params=nightly_but(WITH_SLIDERS[::6], WITH_SLIDERS), scope="module")
def page(request, chromium):
    """A page of a chapter that one reader after the other uses: most of a test's time would go into opening it."""
    page = chromium.new_page(has_touch=True)
    elsewhere, errors = [], []
    page.on("request", lambda request: elsewhere.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((SITE / f"{request.param}.html").as_uri(), wait_until="domcontentloaded")  # until the script has run
    yield page
    page.close()
    assert not errors
    assert all(url.startswith(("file:", "data:")) for url in elsewhere)


def test_a_reader_moves_every_figure_by_keyboard_and_hears_what_it_shows(page):
    page.set_viewport_size({"width": 1440, "height": 900})
    figures = page.locator(FIGURES)
    assert figures.count()
    for figure_ in figures.all():
        sentence, sliders = figure_.locator("p"), figure_.get_by_role("slider").all()
        assert sliders and sentence.get_attribute("aria-live") == "polite"
        sliders[0].focus()
        for slider in sliders:
            assert slider.evaluate("(input) => input === document.activeElement"), "Tab leads from slider to slider"
            for key in ("Home", "ArrowRight", "End"):
                before = picture_text_and_sentence(figure_, slider)
                page.keyboard.press(key)
                after = picture_text_and_sentence(figure_, slider)
                end = slider.evaluate("(input) => ({ Home: input.min, End: input.max })")
                at_the_end = before == after and slider.input_value() == end.get(key)
                assert at_the_end or all(a != b for a, b in zip(before, after)), (slider, key, before[1:], after[1:])
            page.keyboard.press("Tab")


def show_in(page, theme):
    page.emulate_media(media="screen", color_scheme=theme)
    page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)


def picture_text_and_sentence(figure_, slider):
    image = figure_.locator("img:visible")
    assert image.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") > 100
    return image.get_attribute("src"), slider.get_attribute("aria-valuetext"), figure_.locator("p").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_a_finger_moves_a_figure_and_the_page_does_not_scroll_sideways(page, theme):
    page.set_viewport_size({"width": 320, "height": 700})
    show_in(page, theme)
    for figure_ in page.locator(FIGURES).all():
        slider = figure_.get_by_role("slider").first
        slider.press("Home")
        before = picture_text_and_sentence(figure_, slider)
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box["height"] >= 24 and box["width"] > 120, "large enough for a finger"
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert picture_text_and_sentence(figure_, slider)[1:] != before[1:]
        assert figure_.locator("img:visible").get_attribute("class") == f"{theme}-figure"
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_on_paper_there_are_no_sliders(page):
    show_in(page, "light")
    page.emulate_media(media="print")
    for figure_ in page.locator(FIGURES).all():
        assert figure_.locator("img.light-figure").is_visible() and figure_.locator("p").is_visible()
        assert not figure_.get_by_role("slider").first.is_visible()


@pytest.mark.parametrize("name", WITH_SLIDERS)
def test_a_figure_weighs_less_than_60_kilobytes(name, record_property):
    page = (SITE / f"{name}.html").read_text("utf-8")
    figures = re.findall(r'<div class="explore".*?</script>', page, re.S)
    assert figures
    for text in figures:
        weight = len(gzip.compress(text.encode())) / 1000
        states = text.count('",[[') + text.count('",[]')
        record_property("summary", f"{name}: a figure with sliders, {states} pictures, {weight:.0f} kB compressed")
        assert weight < 60
    assert SCRIPT.stat().st_size < 20_000
