"""Compressing the pages changes nothing that a reader sees."""

import base64
import io
import re

import numpy as np
from fontTools.ttLib import TTFont
from PIL import Image

from coursebook.site import weight
from paths import ROOT

BUILT = ROOT / "_build"
# Of 255: small enough that no pixel takes another colour, such as that of the middle of a colour bar at its end.
# The limit for an average over an area is lower.
LARGEST_CHANGE, LARGEST_CHANGE_OF_AREA = 24, 6


def colours(path, size=1):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").reduce(size)).astype(int)


def test_no_colour_of_a_figure_becomes_another_and_all_weigh_half_at_most():
    pages = "".join(page.read_text("utf-8") for page in (BUILT / "html" / "book").glob("*.html"))
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
        assert np.array_equal(colours(io.BytesIO(weight.small_picture(path))), pixels)


def test_the_one_style_sheet_has_the_letter_of_every_icon_that_it_shows():
    style = (BUILT / "html" / "_static" / "site.css").read_text("utf-8")
    fonts = [base64.b64decode(font) for font in re.findall(r"data:font/woff;base64,([^)]+)", style)]
    letters = {letter for font in fonts for letter in TTFont(io.BytesIO(font)).getBestCmap()}
    shown = {int(escape, 16) if escape else ord(letter) for escape, letter in re.findall(weight.LETTER, style)}
    assert shown and shown <= letters


def test_the_site_holds_nothing_large_that_no_page_loads():
    files = [path for path in (BUILT / "html").rglob("*") if path.is_file()]
    assert not [path for path in files if path.stat().st_size > 1_000_000]
    assert sum(path.stat().st_size for path in files) < 20_000_000


def test_every_icon_of_a_page_has_its_rule_in_the_style_sheet():
    style = (BUILT / "html" / "_static" / "site.css").read_text("utf-8")
    sizes = {"fa-solid", "fa-regular", "fa-brands", "fa-lg", "fa-sm"}
    for page in (BUILT / "html" / "book").glob("*.html"):
        classes = " ".join(re.findall(r'class="([^"]*)"', page.read_text("utf-8"))).split()
        for icon in {one for one in classes if one.startswith("fa-")} - sizes:
            assert f".{icon}:before" in style, f"{page.name}: {icon}"


def test_style_sheets_are_joined_without_the_rules_for_classes_that_no_page_has(tmp_path):
    (tmp_path / "base.css").write_text("/* .gone { } */ p { margin: 0 }\n.kept, .gone { color: red }\n")
    (tmp_path / "own.css").write_text(
        '@import "base.css"; .gone { top: 0 } @media print { .gone p { left: 0 } .kept:hover { right: 0 } }'
    )
    style = "".join(weight.one_style([tmp_path / "own.css"], {"kept"}).split())
    assert style == "p{margin:0}.kept{color:red}@mediaprint{.kept:hover{right:0}}"


def test_a_page_gets_one_style_sheet_and_the_sizes_of_its_pictures_and_its_text_stays(tmp_path):
    (tmp_path / "_images").mkdir()
    Image.new("RGB", (30, 20)).save(tmp_path / "_images" / "a.webp")
    page = (
        '<link rel="stylesheet" href="a.css?v=1" />\n<link rel="icon" href="b.svg"/>\n'
        '<link href="c.css" rel="stylesheet" />\n<script src="d.js"></script>\n<img alt="A" src="_images/a.webp" />'
        '<pre><span class="n">x</span> <span class="o">=</span> <span class="mi">1</span></pre>'
        'of <span class="math notranslate nohighlight">\\(x\\)</span>, and <span>4</span> % <code>5 % 3</code>'
    )
    assert weight.lighten(page, tmp_path, "site.css?v=2").split("\n") == [
        "",
        '<link rel="stylesheet" href="site.css?v=2">',
        '<link rel="icon" href="b.svg"/>',
        '<script defer src="d.js"></script>',
        '<img loading="lazy" width="30" height="20" alt="A" src="_images/a.webp" />'
        '<pre>x = <span class="mi">1</span></pre>'
        'of <span class="formula-end"><span class="math notranslate nohighlight">\\(x\\)</span>,</span> and '
        "<span>4</span>\u00a0% <code>5 % 3</code>",
    ]


PHONE = {"width": 412, "height": 823}


def test_formulas_far_away_wait_for_what_the_reader_does_or_until_all_else_is_done(chromium, address):
    for act in (lambda page: page.keyboard.press("Tab"), lambda page: page.clock.run_for(3000)):
        page = chromium.new_page(viewport=PHONE)
        page.clock.install()
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{address}/book/trees-and-forests.html", wait_until="networkidle")
        assert not [url for url in requests if "mathjax/core" in url]
        act(page)
        page.wait_for_function("MathJax.version")
        page.close()


def test_a_formula_that_a_reader_comes_near_is_set(chromium, address):
    page = chromium.new_page(viewport=PHONE)
    page.goto(f"{address}/book/nearest-neighbours.html")
    assert not page.locator("mjx-container").count()
    page.locator(".math").first.scroll_into_view_if_needed()
    page.wait_for_selector("mjx-container")
    page.close()


def test_a_browser_that_fills_in_forms_finds_no_field_for_text_before_the_page_is_there(chromium, address):
    page = chromium.new_page(viewport=PHONE)
    fields = "document.querySelectorAll('fieldset.quiz input[type=text]').length"
    page.add_init_script(f"addEventListener('DOMContentLoaded', () => {{ found = {fields} }})")
    page.goto(f"{address}/book/linear-models.html")
    assert page.evaluate("found") == 0
    assert page.evaluate(fields) > 0
    page.close()
