"""The number of pixels of a picture, from the head of its file.

A browser needs time and memory for each pixel, and a file of 60 kB can have 500 million. Libraries of pictures are not
used here: some reserve memory for all pixels as soon as they open a file.
"""

import binascii
import re
import struct

PAGE_PIXELS = 100_000_000  # of all pictures on a page, as in 8 photographs of a telephone: 3 seconds in a browser
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
NO_FRAME = {0xC4, 0xC8, 0xCC}  # between 0xC0 and 0xCF, where the other markers of a JPEG begin a frame


def pixels(kind: str, data: str) -> int | None:
    """Return the number of pixels of a picture, or None if it is not one of this type.

    Parameters
    ----------
    kind : str
        One of `PICTURE_TYPES`.
    data : str
        The file in base64. Of an animation, the first frame counts.
    """
    try:
        content = binascii.a2b_base64(re.sub(r"\s+", "", data), strict_mode=True)
        width, height = SIZES[kind](content)
    except (KeyError, IndexError, ValueError, struct.error):
        return None
    return width * height or None


def _png(content):
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR":
        raise ValueError
    return struct.unpack_from(">II", content, 16)


def _jpeg(content):
    if content[:3] != b"\xff\xd8\xff":
        raise ValueError
    at = 2
    while True:
        start, marker = content[at], content[at + 1]
        if start != 0xFF or marker in (0xD9, 0xDA):  # the end, or the pixels
            raise ValueError
        if 0xC0 <= marker <= 0xCF and marker not in NO_FRAME:
            height, width = struct.unpack_from(">HH", content, at + 5)
            return width, height
        if marker == 0xFF:
            at += 1
        else:
            at += 2 + struct.unpack_from(">H", content, at + 2)[0]


def _gif(content):
    """Return the size of the screen, which browsers enlarge to the first frame."""
    if content[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError
    width, height, flags = struct.unpack_from("<HHB", content, 6)
    at = 13 + _table(flags)
    while content[at] == 0x21:  # an extension: its name, then blocks, the last of which is empty
        at += 2
        while content[at]:
            at += 1 + content[at]
        at += 1
    if content[at] != 0x2C:
        raise ValueError
    left, top, frame_width, frame_height = struct.unpack_from("<HHHH", content, at + 1)
    return max(width, left + frame_width), max(height, top + frame_height)


def _table(flags):
    """Return the bytes of the table of colours that follows these flags in a GIF."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _webp(content):
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        raise ValueError
    form = content[12:16]
    if form == b"VP8X":
        return 1 + _number(content, 24, 3), 1 + _number(content, 27, 3)
    if form == b"VP8L" and content[20] == 0x2F:
        bits = _number(content, 21, 4)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if form == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        return _number(content, 26, 2) & 0x3FFF, _number(content, 28, 2) & 0x3FFF
    raise ValueError


def _number(content, at, size):
    part = content[at : at + size]
    if len(part) < size:
        raise ValueError
    return int.from_bytes(part, "little")


SIZES = dict(zip(PICTURE_TYPES, (_png, _jpeg, _gif, _webp), strict=True))
