"""Pictures as pages show them: what a browser needs to draw their pixels, and the number of these.

A browser needs time and memory for each pixel, and a file of 60 kB can have 500 million. It draws them once for each
frame of an animation, and once for each scan of a progressive JPEG. A file can hold more than its pixels: profiles of
colours, texts, other pictures. All of that is left out, so that a browser gets nothing that is not counted. Libraries
of pictures are not used here: some reserve memory for all pixels as soon as they open a file.
"""

import binascii
import re
import struct
from typing import NamedTuple

PAGE_PIXELS = 100_000_000  # of all pictures on a page, as in 8 photographs of a telephone: 3 seconds in a browser
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MOST_PARTS = 20_000  # chunks, segments or blocks of a file
SLOW_PNG = 3  # times the time of another PNG, if it is interlaced or has 16 bits
USUAL_SCANS = 10  # of a progressive JPEG: as many are counted once
UNIT = 32  # pixels of the largest unit of a JPEG: each is drawn as a whole

PNG_PARTS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT"}
WEBP_PARTS = {b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"}  # after the first
WEBP_FLAGS = 0x12  # transparent, and animated
FRAMES = {0xC0, 0xC1, 0xC2}  # the markers of a JPEG that browsers draw
TABLES = {0xC4, 0xDB, 0xDD}  # of Huffman's code and of the quantization, and the interval of restarts
OTHERS = {*range(0xE0, 0xF0), 0xFE}  # of applications, and comments
SCAN, END, EXIF = 0xDA, 0xD9, 0xE1
SEGMENTS = {0xE0: b"JFIF\0", 0xEE: b"Adobe", EXIF: b"Exif\0\0"}  # how those of others begin that are needed
MARKER = re.compile(rb"\xff+([^\xff])", re.DOTALL)
OTHER_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)  # than those within a scan
ORIENTATION = 0x0112


class Picture(NamedTuple):
    """A picture as a page shows it: the file in base64, and the number of pixels that a browser draws for it."""

    data: str
    pixels: int


def picture(kind: str, data: str) -> Picture | None:
    """Return the picture without what a browser does not need to draw it, or None if it is not one of this type.

    Parameters
    ----------
    kind : str
        One of `PICTURE_TYPES`.
    data : str
        The file in base64. It may be cut off after its size.
    """
    try:
        content = binascii.a2b_base64(re.sub(r"\s+", "", data), strict_mode=True)
        parts, pixels = READ[kind](content)
    except (KeyError, IndexError, ValueError, struct.error):
        return None
    return Picture(binascii.b2a_base64(b"".join(parts), newline=False).decode(), pixels) if pixels else None


def _png(content):
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[8:16] != b"\0\0\0\x0dIHDR":
        raise ValueError
    width, height, bits, interlaced = struct.unpack_from(">IIB3xB", content, 16)
    kept, at, part = [content[:8]], 8, None
    while at + 8 <= len(content) and part != b"IEND":
        length, part = struct.unpack_from(">I4s", content, at)
        if part in PNG_PARTS:
            kept.append(content[at : at + 12 + length])
        at += 12 + length
    names = [one[4:8] for one in kept[1:]]
    if len(names) > MOST_PARTS or names.count(b"IHDR") != 1:
        raise ValueError
    is_slow = bits == 16 or interlaced == 1
    return kept, width * height * max(1, names.count(b"fcTL")) * (SLOW_PNG if is_slow else 1)


def _jpeg(content):
    if content[:2] != b"\xff\xd8":
        raise ValueError
    kept, at, size, scans = [content[:2]], 2, None, 0
    for _ in range(MOST_PARTS):
        found = MARKER.match(content, at)
        if not found or found[1][0] == END or found.end() + 2 > len(content):  # a browser shows a file that is cut
            return [*kept, b"\xff\xd9"], (size or 0) * max(USUAL_SCANS, scans) // USUAL_SCANS
        marker, at = found[1][0], found.end()
        (length,) = struct.unpack_from(">H", content, at)
        end, start = at + length, SEGMENTS.get(marker, b"")
        if marker in FRAMES and size is None:
            height, width = struct.unpack_from(">HH", content, at + 3)
            size = -(-width // UNIT) * UNIT * -(-height // UNIT) * UNIT
        elif marker == SCAN and size is not None:
            found = OTHER_MARKER.search(content, end)
            end, scans = found.start() if found else len(content), scans + 1
        elif marker not in TABLES | OTHERS:
            raise ValueError
        if length < 2:
            raise ValueError
        if marker not in OTHERS or (start and content[at + 2 : end].startswith(start)):
            segment = b"\xff" + content[at - 1 : end]
            kept.append(_orientation(segment) if marker == EXIF else segment)
        at = end
    raise ValueError


def _orientation(segment):
    """Return a segment of Exif data with nothing but how a photograph is turned, or b"" if it is not."""
    data = segment[10:]
    order = ">" if data[:2] == b"MM" else "<"
    try:
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        (number,) = struct.unpack_from(f"{order}H", data, start)
        entries = [struct.unpack_from(f"{order}H6xH", data, start + 2 + 12 * place) for place in range(number)]
    except struct.error:
        return b""
    turned = dict(entries).get(ORIENTATION, 1)
    if not 2 <= turned <= 8:
        return b""
    content = SEGMENTS[EXIF] + struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, ORIENTATION, 3, 1, turned, 0, 0)
    return struct.pack(">BBH", 0xFF, EXIF, 2 + len(content)) + content


def _gif(content):
    """Count all frames with the size of the screen, which browsers enlarge to the first frame."""
    if content[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError
    width, height, flags = struct.unpack_from("<HHB", content, 6)
    at, frames, blocks = 13 + _table(flags), 0, 0
    kept = [content[:at]]
    while content[at : at + 1] in (b"\x21", b"\x2c"):  # an extension, or a frame; a browser shows a file that is cut
        start = at
        is_frame = content[at] == 0x2C
        if is_frame:
            left, top, frame_width, frame_height, flags = struct.unpack_from("<HHHHB", content, at + 1)
            if not frames:
                width, height = max(width, left + frame_width), max(height, top + frame_height)
            frames += 1
            at += 11 + _table(flags)
        else:
            at += 2
        while content[at : at + 1] not in (b"", b"\0"):  # blocks, the last of which is empty
            at += 1 + content[at]
            blocks += 1
            if blocks > len(content) / 100 + MOST_PARTS:
                raise ValueError
        at += 1
        # Of extensions, the time and the background of a frame, and how often an animation is repeated
        if is_frame or content[start + 1] == 0xF9 or content[start + 1 : start + 14] == b"\xff\x0bNETSCAPE2.0":
            kept.append(content[start:at])
    kept.append(b";")
    return kept, width * height * frames


def _table(flags):
    """Return the bytes of the table of colours that follows these flags in a GIF."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _webp(content):
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        raise ValueError
    size, kept, at, frames = _webp_size(content), [b"WEBP"], 12, 0
    while at + 8 <= len(content) and (at == 12 or content[12:16] == b"VP8X"):
        part, length = struct.unpack_from("<4sI", content, at)
        end = at + 8 + length + length % 2
        if at == 12 and part == b"VP8X":
            kept.append(content[at : at + 8] + bytes([content[at + 8] & WEBP_FLAGS]) + content[at + 9 : end])
        elif at == 12 or part in WEBP_PARTS:
            kept.append(content[at:end])
        frames += part == b"ANMF"
        at = end
    if len(kept) > MOST_PARTS:
        raise ValueError
    return [b"RIFF", struct.pack("<I", sum(map(len, kept))), *kept], size * max(1, frames)


def _webp_size(content):
    """Return the number of pixels of a frame, which the first chunk tells."""
    form = content[12:16]
    if form == b"VP8X" and _number(content, 16, 4) == 10:
        return (1 + _number(content, 24, 3)) * (1 + _number(content, 27, 3))
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


READ = dict(zip(PICTURE_TYPES, (_png, _jpeg, _gif, _webp), strict=True))
