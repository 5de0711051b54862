"""Pictures: those that cells drew go onto the site as WebP, with their sizes, and are loaded when a reader comes near.

A picture of a chapter is a PNG of many colours, of which mostly few are needed: a palette makes it a third of the size.
Beside each stands its partner for the dark theme, which `coursebook.figure_formatter` drew. The style sheet shows one
of them. A figure with sliders gets a list of its colours and their partners; course.js makes dark pictures with it.
"""

import hashlib
import html
import io
import json
import re
from base64 import b64decode
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from docutils import nodes
from matplotlib.colors import to_hex
from nbformat import read as read_notebook
from PIL import Image, ImageChops
from scipy.spatial import KDTree
from sphinx.transforms import SphinxTransform

from coursebook.dark_colours import partner
from coursebook.execution import notebook_of

PALETTES = (32, 64, 128, 256)
# How much a palette may change any colour of a picture, and of a picture of a quarter of its size, of 255: the eye sees
# a change of an area, such as a part of a colour bar, better than one at the edge of a letter
COLOUR_CHANGE, AREA_CHANGE = 24, 6
THIS_MODULE_CHANGED = Path(__file__).stat().st_mtime
EXPLORE, COLOUR = '<div class="explore"', r"#[0-9a-f]{6}\b"
PICTURE = r'<img(?![^>]* loading=)[^>]* src="(?:\.\./)*_images/([^"]+\.(?:png|webp))"'


class DarkPartners(SphinxTransform):
    """Put the partner for the dark theme behind each picture that a cell drew."""

    default_priority = 790  # before `SmallPictures`

    def apply(self, **options):
        """Add the pictures, or to figures with sliders their colours."""
        partners = dark_partners(notebook_of(self.env.docname, Path(self.app.outdir).parent))
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.relfn2path(image["uri"])[1])
            if path.stem in partners:
                name = f"{hashlib.sha256(partners[path.stem]).hexdigest()}.png"
                path.with_name(name).write_bytes(partners[path.stem])
                dark = nodes.image("", **image.attributes)
                dark["uri"], dark["ids"], dark["names"] = str(Path(image["uri"]).with_name(name)), [], []
                for one, theme in ((image, "light"), (dark, "dark")):
                    one["classes"] = [*one["classes"], f"{theme}-figure"]
                image.parent.insert(image.parent.index(image) + 1, dark)
        for raw in list(self.document.findall(nodes.raw)):
            if EXPLORE in raw.astext():
                raw.replace_self(nodes.raw("", with_partners(raw.astext()), **raw.attributes))


def with_partners(figure: str) -> str:
    """Return the HTML of a figure with sliders, with its colours and their partners in the attribute ``data-dark``."""
    colours = sorted({"#000000", *re.findall(COLOUR, unquote(figure))})
    data = html.escape(json.dumps({colour: to_hex(partner(colour)) for colour in colours}))
    return figure.replace(EXPLORE, f'{EXPLORE} data-dark="{data}"')


def dark_partners(notebook: Path) -> dict[str, bytes]:
    """Return the pictures for the dark theme of an executed notebook.

    Parameters
    ----------
    notebook : pathlib.Path
        The notebook, which does not exist for a page without cells.

    Returns
    -------
    dict of str to bytes
        The PNG of each, by the name that MyST-NB gives to the file of the light picture: its hash.
    """
    cells = read_notebook(notebook, as_version=4).cells if notebook.exists() else []
    partners = {}  # a glued picture has a longer type
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        if dark := output.get("metadata", {}).get("image/png", {}).get("dark"):
            light = next(data for kind, data in output["data"].items() if kind.endswith("image/png"))
            partners[hashlib.sha256(b64decode(light)).hexdigest()] = b64decode(dark)
    return partners


class SmallPictures(SphinxTransform):
    """Put a small copy in the place of each picture that a cell drew."""

    default_priority = 800  # before Sphinx notes which pictures there are, at 880

    def apply(self, **options):
        """Change the addresses of the pictures on this page."""
        missing = []
        for image in self.document.findall(nodes.image):
            path = Path(self.env.relfn2path(image["uri"])[1])
            if path.suffix == ".png" and path.parent.name == "jupyter_execute":
                small = path.with_suffix(".webp")
                if not small.exists() or small.stat().st_mtime < THIS_MODULE_CHANGED:
                    missing.append(path)
                image["uri"] = str(Path(image["uri"]).with_suffix(".webp"))
        if missing:
            with ProcessPoolExecutor() as pool:
                for path, small in zip(missing, pool.map(small_picture, missing), strict=True):
                    path.with_suffix(".webp").write_bytes(small)


def small_picture(path: Path) -> bytes:
    """Return a picture as WebP, with the smallest palette that keeps its colours, or else without loss.

    Parameters
    ----------
    path : pathlib.Path
        The picture, in any form that Pillow reads.
    """
    with Image.open(path) as file:
        picture = file.convert("RGB")
    codes = np.asarray(picture) @ np.array([1, 2**8, 2**16], dtype=np.uint32)
    codes, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    colours = codes.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    # All colours in a row, a frequent one with an eighth of its pixels
    sample = Image.fromarray(np.repeat(colours, np.maximum(1, counts // 8), axis=0)[np.newaxis])
    for number in PALETTES:
        # The method keeps rare colours, such as the ends of a colour bar, and the means the most frequent ones
        palette = sample.quantize(number, method=Image.Quantize.MAXCOVERAGE, kmeans=1).getpalette()
        palette = np.array(palette, dtype=np.uint8).reshape(-1, 3)
        nearest = palette[KDTree(palette).query(colours)[1]]
        few = Image.fromarray(nearest[places.reshape(picture.height, picture.width)])
        if _change(few, picture) <= COLOUR_CHANGE and _change(few.reduce(4), picture.reduce(4)) <= AREA_CHANGE:
            picture = few
            break
    stream = io.BytesIO()
    picture.save(stream, "WEBP", lossless=True, method=4, quality=100)
    return stream.getvalue()


def _change(one, other):
    """Return the largest difference of two pictures in any colour."""
    return max(high for _, high in ImageChops.difference(one, other).getextrema())


def _add_sizes(app, page, template, context, doctree):
    """Give each picture its size, which keeps its place until it is loaded."""

    def with_size(tag):
        source = next(path for path, (_, name) in app.env.images.items() if name == tag[1])
        with Image.open(Path(app.srcdir) / source) as picture:
            width, height = picture.size
        return f'<img loading="lazy" width="{width}" height="{height}"{tag[0].removeprefix("<img")}'

    if "body" in context:
        context["body"] = re.sub(PICTURE, with_size, context["body"])


def connect(app):
    """Let Sphinx add dark pictures and make all small when it reads a page, and write their sizes."""
    app.add_transform(DarkPartners)
    app.add_transform(SmallPictures)
    app.connect("html-page-context", _add_sizes)
