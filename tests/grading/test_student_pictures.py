"""Of what students hand in, only pictures are shown that a browser can draw in a short time."""

import io
import zlib
from base64 import b64decode, b64encode

import pytest
from PIL import Image

from coursegrader.pictures import PAGE_PIXELS, PICTURE_TYPES, picture
from coursegrader.protocol import CUT_OFF, OutputBudget, checked_outputs
from coursegrader.sanitizer import clean, clean_output, legible, rendered

SIZE = (320, 192)
TWO = {"save_all": True, "append_images": [Image.new("RGB", SIZE, "red")]}
WAYS = [
    ("image/png", {}),
    ("image/jpeg", {}),
    ("image/jpeg", {"progressive": True, "exif": b"Exif\0\0" + bytes(500)}),
    ("image/gif", {}),
    ("image/gif", {**TWO, "comment": b"x" * 300}),
    ("image/webp", {"lossless": True}),
    ("image/webp", {"lossless": False}),
    ("image/webp", TWO),
    ("image/png", TWO),
]
MODES = {
    "image/png": ["RGB", "RGBA", "L", "P"],
    "image/jpeg": ["RGB", "CMYK", "L"],
    "image/gif": ["RGB", "P", "L"],
    "image/webp": ["RGB", "RGBA"],
}


def encoded(content):
    return b64encode(content).decode()


def drawn(kind, options, size=SIZE):
    file = io.BytesIO()
    Image.new("RGB", size, "navy").save(file, kind.removeprefix("image/"), **options)
    return file.getvalue()


def pixels(kind, data):
    shown = picture(kind, data)
    return shown and shown.pixels


def file_shown(kind, content):
    """Return the file that a page shows for this one."""
    return b64decode(picture(kind, encoded(content)).data)


def png(width, height):
    """Return the bytes of a black and white PNG without its pixels."""
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x01\0\0\0\0"
    chunk = b"IHDR" + head
    return b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")


def tag(kind, content):
    return f'<img src="data:{kind};base64,{encoded(content)}">'


@pytest.mark.parametrize(("kind", "options"), WAYS)
def test_the_number_of_pixels_is_read_from_every_type_of_picture(kind, options):
    content = drawn(kind, options)
    assert pixels(kind, encoded(content)) == SIZE[0] * SIZE[1] * (2 if "save_all" in options else 1)
    assert all(pixels(other, encoded(content)) is None for other in PICTURE_TYPES if other != kind)
    assert clean(tag(kind, content)).startswith("<img")


@pytest.mark.parametrize(("kind", "options"), WAYS)
def test_a_picture_whose_head_is_cut_off_is_none(kind, options):
    content = drawn(kind, options)
    for end in range(12):
        assert pixels(kind, encoded(content[:end])) is None
    found = {pixels(kind, encoded(content[:end])) for end in range(len(content))}
    assert found <= {None, SIZE[0] * SIZE[1], 2 * SIZE[0] * SIZE[1]}


def test_a_gif_counts_as_its_first_frame_to_which_browsers_enlarge_it():
    content = bytearray(drawn("image/gif", {}))
    content[6:10] = bytes([1, 0, 1, 0])  # the screen
    assert pixels("image/gif", encoded(content)) == SIZE[0] * SIZE[1]


@pytest.mark.parametrize(("kind", "options", "mode"), [(*way, mode) for way in WAYS for mode in MODES[way[0]]])
def test_what_is_shown_looks_as_what_was_handed_in(kind, options, mode):
    file, shades = io.BytesIO(), Image.linear_gradient("L").resize(SIZE)
    shades.convert("RGB").convert(mode).save(file, kind.removeprefix("image/"), **options)
    before, after = Image.open(file), Image.open(io.BytesIO(file_shown(kind, file.getvalue())))
    assert after.mode == before.mode and getattr(after, "n_frames", 1) == getattr(before, "n_frames", 1)
    for frame in range(getattr(before, "n_frames", 1)):
        before.seek(frame)
        after.seek(frame)
        assert after.tobytes() == before.tobytes()
    assert after.info.get("transparency") == before.info.get("transparency")


@pytest.mark.parametrize(("kind", "options"), WAYS)
def test_what_is_shown_stays_as_it_is(kind, options):
    content = file_shown(kind, drawn(kind, options))
    assert file_shown(kind, content) == content


@pytest.mark.parametrize("turned", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_photograph_stays_turned_and_says_nothing_of_its_place(turned, order):
    exif = Image.Exif()
    exif.endian = order
    exif[0x0112], exif[0x010F], exif[0x8825] = turned, "a camera", {2: (46.0, 30.0, 0.0)}
    content = drawn("image/jpeg", {"exif": exif.tobytes()})
    shown = Image.open(io.BytesIO(file_shown("image/jpeg", content))).getexif()
    assert dict(shown) == ({} if turned == 1 else {0x0112: turned}) and not shown.get_ifd(0x8825)


SECRET = b"\xff\xd8\xff other pictures, texts and profiles"
HIDDEN_IN = [
    ("image/jpeg", {"comment": SECRET}),
    ("image/jpeg", {"exif": b"Exif\0\0" + SECRET}),
    ("image/jpeg", {"icc_profile": SECRET}),
    ("image/png", {"icc_profile": SECRET}),
    ("image/png", {"exif": SECRET}),
    ("image/gif", {"comment": SECRET}),
    ("image/webp", {"icc_profile": SECRET}),
    ("image/webp", {"exif": SECRET}),
    ("image/webp", {"xmp": SECRET}),
]


@pytest.mark.parametrize(("kind", "options"), HIDDEN_IN)
def test_nothing_is_shown_but_the_pixels(kind, options):
    content, plain = drawn(kind, options), drawn(kind, {})
    shown = file_shown(kind, content + SECRET)
    assert len(content) > len(shown) <= len(plain) + 18 and SECRET not in shown


@pytest.mark.parametrize("kind", PICTURE_TYPES)
def test_a_picture_after_the_end_of_another_is_not_shown(kind):
    content = drawn(kind, {})
    assert file_shown(kind, content + drawn(kind, {}, (9000, 9000))) == content


def test_a_jpeg_counts_as_many_pixels_as_the_units_that_are_drawn():
    assert pixels("image/jpeg", encoded(drawn("image/jpeg", {}, (1, 4096)))) == 32 * 4096
    assert pixels("image/jpeg", encoded(drawn("image/jpeg", {}, (4000, 3001)))) == 4000 * 3008


def test_each_scan_of_a_jpeg_beyond_the_usual_number_is_one_more_drawing():
    content = drawn("image/jpeg", {"progressive": True})
    scan = content[content.rindex(b"\xff\xda") : -2]
    assert pixels("image/jpeg", encoded(content[:-2] + 200 * scan + content[-2:])) >= 20 * SIZE[0] * SIZE[1]


@pytest.mark.parametrize("marker", [0x00, 0x01, 0xD0, 0xD7, 0xD8])
def test_a_jpeg_that_a_browser_reads_on_at_another_place_is_none(marker):
    content = drawn("image/jpeg", {})
    small = b"\xff" + bytes([marker]) + b"\0\x0b\xff\xc0\0\x11\x08\0\x01\0\x01"
    assert pixels("image/jpeg", encoded(content[:2] + small + content[2:])) is None


def test_what_is_no_base64_is_no_picture():
    data = encoded(drawn("image/png", {}))
    assert pixels("image/png", f" {data[:50]}\n{data[50:]}\n")
    assert pixels("image/png", f"?{data}") is None and pixels("image/svg+xml", data) is None


@pytest.mark.parametrize("size", [(22_000, 22_000), (1_000_000, 500)])
def test_a_small_file_with_many_pixels_is_not_shown_and_a_sentence_says_why(size):
    page = clean(f"before {tag('image/png', png(*size))} after")
    assert "<img" not in page and page.startswith("before <em>[A picture is too large: all pictures together may have")
    assert page.endswith("</em> after")


def test_all_pictures_of_a_page_together_have_a_limit():
    one = png(10_000, 5_000)
    left = {}
    attachments = {f"{number}.png": {"image/png": encoded(one)} for number in range(6)}
    text = " ".join(f"![photo](attachment:{name})" for name in attachments)
    assert rendered(text, attachments, left).count("<img") == PAGE_PIXELS // 50_000_000
    assert rendered(text, attachments, left).count("<img") == 0


def test_the_pictures_in_the_html_of_all_outputs_of_a_page_have_the_same_limit():
    page = {"resources": {}}
    shown = [clean_output(page, tag("image/png", png(9_000, 9_000))) for _ in range(3)]
    assert [one.startswith("<img") for one in shown] == [True, False, False]


def test_the_pictures_that_code_draws_have_the_same_limit():
    budget, bomb, honest = OutputBudget(), png(22_000, 22_000), drawn("image/png", {})
    for content, is_shown in ((honest, True), (bomb, False), (honest, True)):
        data = {"image/png": encoded(content), "text/plain": "<Figure>"}
        outputs = budget.fitted(checked_outputs([{"output_type": "display_data", "data": data, "metadata": {}}]))
        assert ("image/png" in outputs[0].get("data", {})) == is_shown == (outputs[0].get("text") != CUT_OFF)


def test_data_that_are_no_picture_are_left_out_and_the_text_stays():
    data = {"image/png": encoded(drawn("image/gif", {})), "text/plain": "a figure"}
    (output,) = checked_outputs([{"output_type": "display_data", "data": data, "metadata": {}}])
    assert output["data"] == {"text/plain": "a figure"}


# Characters that a browser joins with the letter before them: its time is proportional to the square of their number

JOINING = ["\u0301", "\u0e33", "\U0001f3fd", "\u200d", "\u0301\u0302", "\u0301\x1b[31m"]


@pytest.mark.parametrize("mark", JOINING)
def test_a_letter_keeps_few_marks(mark):
    kept = legible("e" + mark * 1000 + "x")
    assert kept[0] == "e" and kept[-1] == "x" and len(kept) < 100
    assert legible("e" + mark) == "e" + mark


def test_marks_are_counted_across_tags_and_as_references():
    assert clean("e" + "<b>\u0301</b>" * 1000).count("\u0301") == 0
    assert clean("e" + "&#x301;" * 1000).count("\u0301") == rendered("e" + "\u0301" * 1000).count("\u0301") == 16


@pytest.mark.parametrize(
    "text", ["ï ü ç \u0e01\u0e33", "^" * 80, "-" * 80, "\u2550" * 80, "नमस्ते", "👩🏽‍🔬", "a\u0304\u0301"]
)
def test_what_people_write_stays(text):
    assert legible(text) == text and clean(text) == text
