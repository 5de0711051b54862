"""What makes a page light: small pictures, one short style sheet, and scripts that wait for the text.

A picture of a chapter is a PNG of many colours, of which mostly few are needed: it goes onto the site as WebP, with a
palette a third of the size, and is loaded when a reader comes near. The theme loads all of Font Awesome twice, as a
script and as fonts, and styles for everything that Bootstrap has: the site keeps the letters of the fonts and the rules
that it uses, and joins all its style sheets. MathJax comes in the parts that ``_config.yml`` names, without its menu,
and with smaller fonts. What no page loads is not on the site.
"""

import base64
import hashlib
import io
import os
import re
import shutil
from collections.abc import Container, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from PIL import Image, ImageChops
from scipy.spatial import KDTree
from sphinx.transforms import SphinxTransform

PALETTES = (32, 64, 128, 256)
# How much a palette may change any colour of a picture, and of a picture of a quarter of its size, of 255: the eye sees
# a change of an area, such as a part of a colour bar, better than one at the edge of a letter
COLOUR_CHANGE, AREA_CHANGE = 24, 6
THIS_MODULE_CHANGED = Path(__file__).stat().st_mtime
# After the theme's own step, which writes the colours of code
AFTER_THEME = 900
STYLE, SCRIPT = "_static/site.css", "_static/scripts/pydata-sphinx-theme.js"
STYLE_LINK = r'\s*<link (?=[^>]*rel="stylesheet")[^>]*href="([^"?]+)[^"]*"[^>]*>'
RULE = r"([^{}]+)\{([^{}]*)\}"
LETTER = r'"(?:\\([ef][0-9a-f]{3})|([\ue000-\uf8ff]))"'
FONT = r'url\([^)]*\.woff2\) format\("woff2"\),url\(([^)]*\.ttf)\) format\("truetype"\)'
# Names, brackets, blanks and operators: most of a chapter's elements, in the colour of all text
PLAIN_CODE = r'<span class="(?:n|nn|p|w|o)">([^<]*)</span>'
# The theme's script computes the layout anew for each of the elements that it makes reachable by keyboard: here it
# looks at all of them first, and leaves out what is folded away or waits (page.js calls it again when that is shown)
SCROLLING = r"(document\.querySelectorAll\([^()]*\.join\([^()]*\)\))\.forEach\(e=>\{e\.tabIndex=([^{}]*)\}\)"
LOOK_FIRST = (
    r"[...\1].filter(e=>e.checkVisibility({contentVisibilityAuto:true}))"
    r".map(e=>[e,\2]).forEach(([e,index])=>{e.tabIndex=index})"
)
# What the theme's script finds out later, when every colour changes
THEME = '(matchMedia("(prefers-color-scheme:dark)").matches?"dark":"light")'
FORMULA_FONTS = "_static/mathjax/output/chtml/fonts/woff-v2/MathJax_*.woff"
ALL_CODES = range(0x110000)
BEFORE_SYMBOLS = range(0x400)  # Latin and Greek letters, digits, accents
# MathJax put together in other ways, its other output, its menu and its speech; all icons; what debuggers read
NEVER_LOADED = (
    "mathjax/*-*.js",
    "mathjax/latest.js",
    "mathjax/output/svg*/**/*",
    "mathjax/sre/**/*",
    "mathjax/ui/*",
    "scripts/fontawesome.js",
    "**/*.map",
)
# The fonts of MathJax of which formulas need the letters alone, often just one of them; each other font is kept whole
LETTERS_ALONE = {
    "MathJax_AMS-Regular": range(ord("A"), ord("Z") + 1),
    "MathJax_Main-Bold": BEFORE_SYMBOLS,
    "MathJax_Typewriter-Regular": BEFORE_SYMBOLS,
}
# The theme loads the index of the whole site with each page, for a search while one types that is not switched on
SEARCH_SCRIPT = r'\s*<script[^>]* src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"[^>]*></script>'
# MathJax is fetched when nothing else is, and page.js starts it
FORMULA_SCRIPT = r'<script[^>]* src="([^"]*mathjax/startup\.js[^"]*)"[^>]*></script>'
FORMULA_END = r'[(\[]?<span\s[^>]*"math\s[^>]*>[^<]*</span>[.,;:!?)\]]+'
# With what precedes the blank, unless that is code
PER_CENT = r"<(?:pre|code|script)\b.*?</(?:pre|code|script)>|(\d(?:</span>)?) %"
DEPRECATED_ROLE = r' role="doc-biblioentry"| role="list"(?= class="citation-list")'


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


def lighten(page: str, folder: Path, style: str) -> str:
    """Return a page with one style sheet, with pictures that wait for the reader, and scripts that wait for the text.

    A formula and its full stop stay on one line, and so do a number and its per cent sign.

    Parameters
    ----------
    page : str
        The HTML of a page of the site.
    folder : pathlib.Path
        Where it stands: the addresses of pictures begin there.
    style : str
        The address of the style sheet that takes the place of all others, seen from there.
    """
    start = re.search(STYLE_LINK, page).start()
    page = f'{page[:start]}\n<link rel="stylesheet" href="{style}">{re.sub(STYLE_LINK, "", page[start:])}'
    page = re.sub(r'\s*<script[^>]* src="[^"]*/fontawesome\.js[^"]*"[^>]*></script>', "", page)
    page = re.sub(PLAIN_CODE, r"\1", page)
    page = re.sub(DEPRECATED_ROLE, "", page)
    page = re.sub(FORMULA_SCRIPT, r'<link rel="prefetch" as="script" href="\1">', page)
    page = re.sub(FORMULA_END, r'<span class="formula-end">\g<0></span>', page)
    page = re.sub(PER_CENT, lambda one: f"{one[1]}\u00a0%" if one[1] else one[0], page, flags=re.S)
    if "search-results" not in page:
        page = re.sub(SEARCH_SCRIPT, "", page)
        page = re.sub(r'<script(?![^>]*(?:defer|documentation_options))(?=[^>]* src=")', "<script defer", page)
    page = page.replace('<summary aria-label="Toggle hidden content">', "<summary>")  # its text says more
    page = page.replace('getItem("theme") || "auto"', f'getItem("theme") || {THEME}')

    def with_size(tag):
        with Image.open(folder / tag[1]) as picture:
            width, height = picture.size
        return f'<img loading="lazy" width="{width}" height="{height}"{tag[0].removeprefix("<img")}'

    return re.sub(r'<img(?![^>]* loading=)[^>]* src="((?:\.\./)*_images/[^"]+\.(?:png|webp))"', with_size, page)


def one_style(paths: Sequence[Path], words: set[str]) -> str:
    """Return what some style sheets say, without the rules that apply nowhere, and with just the icons that are shown.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        The style sheets in their order.
    words : set of str
        Whatever may be the name of a class: the words of the pages' class attributes and of all scripts.
    """

    def keep(rule):
        selectors = [one for one in rule[1].split(",") if words.issuperset(re.findall(r"\.(-?[A-Za-z_][\w-]*)", one))]
        return f"{','.join(selectors)}{{{rule[2]}}}" if selectors else ""

    style = "".join(map(_read_style, paths))
    style = re.sub(RULE, lambda rule: rule[0] if "@" in rule[1] or "(" in rule[1] else keep(rule), style)
    codes = {int(escape, 16) if escape else ord(letter) for escape, letter in re.findall(LETTER, style)}

    def letters(font):
        return base64.b64encode(small_font(Path(font[1]), codes)).decode()

    return re.sub(FONT, lambda font: f"url(data:font/woff;base64,{letters(font)})", style)


def _read_style(path):
    """Return a style sheet without comments, with what it imports and with the places of its fonts."""
    style = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    style = re.sub(r'@import "([^"]+)";', lambda name: _read_style(path.parent / name[1]), style)
    return re.sub(FONT, lambda font: font[0].replace(font[1], f"{path.parent}/{font[1]}"), style)


def small_font(path: Path, codes: Container[int]) -> bytes:
    """Return the characters of a font that have one of the code points, as WOFF without hints for coarse screens.

    Parameters
    ----------
    path : pathlib.Path
        The font, in any form that fontTools reads.
    codes : container of int
        The code points to keep.
    """
    font = TTFont(path, recalcTimestamp=False)  # the same file in each build
    options = subset.Options(hinting=False, layout_features=[], drop_tables=["FFTM", "GDEF", "GPOS", "GSUB"])
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[code for code in font.getBestCmap() if code in codes])
    subsetter.subset(font)
    font.flavor = "woff"
    stream = io.BytesIO()
    font.save(stream)
    return stream.getvalue()


def _start_mathjax(app, config):
    config.mathjax_path = "mathjax/startup.js"  # the extension with MathJax has just named the whole of it


def _lighten_site(app, error):
    site = Path(app.outdir)
    if error or app.builder.format != "html":
        return
    for path in [path for pattern in NEVER_LOADED for path in site.glob(f"_static/{pattern}") if path.is_file()]:
        path.unlink()
    # The course's own rules stay, since the page that is printed is made later
    own = [(site / "_static" / name).read_text(encoding="utf-8") for name, _ in app.config.html_css_files]
    words = set(re.findall(r"[\w-]+", " ".join(own)))
    for path in site.glob("_static/**/*.js"):
        if "mathjax" not in path.parts:
            words.update(re.findall(r"[\w-]+", path.read_text(encoding="utf-8")))
    script = site / SCRIPT
    script.write_text(re.sub(SCROLLING, LOOK_FIRST, script.read_text(encoding="utf-8")), encoding="utf-8")
    for path in site.glob(FORMULA_FONTS):
        small = Path(app.doctreedir) / path.name
        if not small.exists() or small.stat().st_mtime < THIS_MODULE_CHANGED:
            small.write_bytes(small_font(path, LETTERS_ALONE.get(path.stem, ALL_CODES)))
        shutil.copyfile(small, path)
    new, styles, shown = {}, [], set()
    for path in site.glob("**/*.html"):
        if "_static" not in path.parts:
            page = path.read_text(encoding="utf-8")
            shown.update(unquote(name) for name in re.findall(r'_images/([^"?#]+)', page))
            words.update(re.findall(r"[\w-]+", " ".join(re.findall('class="([^"]*)"', page))))
            found = [(path.parent / name).resolve() for name in re.findall(STYLE_LINK, page)]
            if found and found != [site / STYLE]:
                new[path] = page
                styles += [style for style in found if style not in styles]
    if new:
        style = one_style(styles, words)
        version = hashlib.sha256(style.encode()).hexdigest()[:8]
        (site / STYLE).write_text(style, encoding="utf-8")
    for path, page in new.items():
        address = f"{os.path.relpath(site / STYLE, path.parent)}?v={version}"
        path.write_text(lighten(page, path.parent, address), encoding="utf-8")
    for picture in site.glob("_images/*"):
        if picture.name not in shown:
            picture.unlink()  # of an earlier build


def connect(app):
    """Let Sphinx make pictures small when it reads a page, and the rest when all pages are written."""
    app.connect("config-inited", _start_mathjax)
    app.add_transform(SmallPictures)
    app.connect("build-finished", _lighten_site, priority=AFTER_THEME)
