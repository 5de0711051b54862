"""The number of pixels that a browser draws for a picture, from the file.

A browser needs time and memory for each pixel, and a file of 60 kB can have 500 million. It draws them once for each
frame of an animation, and once for each scan of a progressive JPEG. The profile of colours in a PNG is compressed, and
counts as the pixels that take as long. Libraries of pictures are not used here: some reserve memory for all pixels as
soon as they open a file.
"""

import binascii
import re
import struct

PAGE_PIXELS = 100_000_000  # of all pictures on a page, as in 8 photographs of a telephone: 3 seconds in a browser
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PNG = b"\x89PNG\r\n\x1a\n"
NO_FRAME = {0xC4, 0xC8, 0xCC}  # between 0xC0 and 0xCF, where the other markers of a JPEG begin a frame
WITHOUT_LENGTH = {0x00, 0x01, *range(0xD0, 0xDB)}  # markers without a length, the end, and the pixels
USUAL_SCANS = 10  # of a progressive JPEG: as many are counted once
MOST_PICTURES = 10  # in a JPEG: small ones for lists, and that of the brightness for bright screens
MOST_PARTS = 20_000  # segments before the size, or blocks of a GIF
SLOW_PNG = 3  # times the time of another PNG, if it is interlaced or has 16 bits
COMPRESSED = (b"iCCP", b"zTXt", b"iTXt")  # the profile and the texts of a PNG
UNPACKED = 130  # pixels that take as long as to unpack one byte, which becomes up to 1032 bytes


def pixels(kind: str, data: str) -> int | None:
    """Return the number of pixels of a picture, in all frames, or None if it is not one of this type.

    Parameters
    ----------
    kind : str
        One of `PICTURE_TYPES`.
    data : str
        The file in base64.
    """
    try:
        content = binascii.a2b_base64(re.sub(r"\s+", "", data), strict_mode=True)
        return PIXELS[kind](content) or None
    except (KeyError, IndexError, ValueError, struct.error):
        return None


def _png(content):
    if content[:8] != PNG or content.count(PNG) > 1 or content[12:16] != b"IHDR":
        raise ValueError
    width, height = struct.unpack_from(">II", content, 16)
    if not width * height:
        raise ValueError
    frames, is_slow = max(1, content.count(b"fcTL")), content[24] == 16 or content[28] == 1
    return width * height * frames * (SLOW_PNG if is_slow else 1) + UNPACKED * _compressed(content)


def _compressed(content):
    """Return the number of bytes of a PNG that are neither pixels nor written as they are."""
    at, number = 8, 0
    for _ in range(MOST_PARTS):
        if not content[at + 4 : at + 8].isalpha():  # the end; a browser shows a file that is cut
            return number
        length, part = struct.unpack_from(">I4s", content, at)
        if part in COMPRESSED:
            number += min(length, len(content) - at)
        at += 12 + length
    raise ValueError


def _jpeg(content):
    """Return the number of pixels of all pictures in the file: a browser draws that of the brightness, too."""
    begins = [found.start() for found in re.finditer(rb"\xff\xd8\xff", content)]
    if begins[:1] != [0] or len(begins) > MOST_PICTURES:
        raise ValueError
    return sum(_frame(content, begin) for begin in begins)


def _frame(content, at):
    """Return the number of pixels of the picture that begins here in a JPEG."""
    at += 2
    for _ in range(MOST_PARTS):
        start, marker = content[at], content[at + 1]
        if start != 0xFF or marker in WITHOUT_LENGTH:
            raise ValueError
        if 0xC0 <= marker <= 0xCF and marker not in NO_FRAME:
            height, width = struct.unpack_from(">HH", content, at + 5)
            if not width * height:
                raise ValueError
            return width * height * max(1, content.count(b"\xff\xda") // USUAL_SCANS)
        if marker == 0xFF:
            at += 1
        else:
            at += 2 + struct.unpack_from(">H", content, at + 2)[0]
    raise ValueError


def _gif(content):
    """Return the pixels of all frames on the screen, which browsers enlarge to the first frame."""
    if content[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError
    width, height, flags = struct.unpack_from("<HHB", content, 6)
    at, frames, blocks = 13 + _table(flags), 0, 0
    while content[at : at + 1] in (b"\x21", b"\x2c"):  # an extension, or a frame; a browser shows a file that is cut
        if content[at] == 0x21:
            at += 2
        else:
            left, top, frame_width, frame_height, flags = struct.unpack_from("<HHHHB", content, at + 1)
            if not frames:
                width, height = max(width, left + frame_width), max(height, top + frame_height)
            frames += 1
            at += 11 + _table(flags)
        while content[at : at + 1] not in (b"", b"\0"):  # blocks, the last of which is empty
            at += 1 + content[at]
            blocks += 1
            if blocks > len(content) / 100 + MOST_PARTS:
                raise ValueError
        at += 1
    return width * height * frames


def _table(flags):
    """Return the bytes of the table of colours that follows these flags in a GIF."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _webp(content):
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        raise ValueError
    form = content[12:16]
    if form == b"VP8X":
        return (1 + _number(content, 24, 3)) * (1 + _number(content, 27, 3)) * max(1, content.count(b"ANMF"))
    if form == b"VP8L" and content[20] == 0x2F:
        bits = _number(content, 21, 4)
        return (1 + (bits & 0x3FFF)) * (1 + (bits >> 14 & 0x3FFF))
    if form == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        return (_number(content, 26, 2) & 0x3FFF) * (_number(content, 28, 2) & 0x3FFF)
    raise ValueError


def _number(content, at, size):
    part = content[at : at + size]
    if len(part) < size:
        raise ValueError
    return int.from_bytes(part, "little")


PIXELS = dict(zip(PICTURE_TYPES, (_png, _jpeg, _gif, _webp), strict=True))
