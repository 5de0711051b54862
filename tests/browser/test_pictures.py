"""Compressing the pictures changes nothing that a reader sees."""

import gzip
import io
import re

import numpy as np
from PIL import Image

from coursebook.site import pictures
from paths import ROOT

BUILT = ROOT / "_build"
# Of 255: small enough that no pixel takes another colour, such as that of the middle of a colour bar at its end.
# The limit for an average over an area is lower.
LARGEST_CHANGE, LARGEST_CHANGE_OF_AREA = 24, 6


def colours(path, size=1):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").reduce(size)).astype(int)


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
    files = [path for path in (BUILT / "html").rglob("*") if path.is_file()]
    assert not [path for path in files if path.stat().st_size > 1_000_000]
    pages = [path for path in files if path.suffix == ".html"]  # with their formulas set, and compressed by a server
    sizes = [path.stat().st_size for path in {*files} - {*pages}] + [
        len(gzip.compress(path.read_bytes())) for path in pages
    ]
    assert sum(sizes) < 20_000_000


def test_every_picture_of_a_cell_has_its_size_so_that_it_keeps_its_place_until_it_is_loaded():
    for page in (BUILT / "html" / "book").rglob("*.html"):
        for tag in re.findall(r'<img[^>]* src="[^"]*_images/[^>]*\.webp"[^>]*>', page.read_text("utf-8")):
            name, width, height = (
                re.search(pattern, tag)[1] for pattern in (r"_images/(.*?)\"", r"width=\"(\d+)", r"height=\"(\d+)")
            )
            with Image.open(BUILT / "html" / "_images" / name) as picture:
                assert picture.size == (int(width), int(height))
