r"""Turn what students write and print into HTML that is safe to open.

The HTML makes no requests, uses no class, style or name of the page around it, and links only to other sites. The time
is proportional to the length of the text: text that would take longer is simplified. No text makes it fail. Formulas
stay as they are, for MathJax, or become MathML.
"""

import functools
import html
import importlib.util
import math
import re
import secrets
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import islice, takewhile
from pathlib import Path
from urllib.parse import unquote

import nbgrader
import nh3
from jinja2 import pass_context
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from nbconvert.filters import ansi2html, strip_ansi
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from coursegrader.pictures import PAGE_PIXELS, PICTURE_TYPES, picture

TEXT_CHARACTERS = 50_000  # of a written answer
PAGE_TEXT_CHARACTERS = 200_000  # of all texts in Markdown of a page
CODE_CHARACTERS = 200_000  # of a code cell
COLOURED_CHARACTERS = 50_000  # of a code cell with highlighted syntax
COLOURED_LINE = 500
HTML_CHARACTERS = 200_000  # of a table or other HTML output
DEPTH = 50  # of nested tags
INDENTS = 8  # of nested quotes and lists: more leave no width for text, and each letter takes a line
LAZY_LINES = 10  # of a quote in Markdown that do not begin with `>`: it ends with the last of them
NESTING = 20  # of quotes, lists and brackets in Markdown
COLUMNS = 100  # of a table in Markdown, since each row is extended to the length of the first
TABLE_CELLS = 10_000  # of all tables in Markdown of a page
FORMULA_CHARACTERS = 20_000  # of all formulas of a page that become MathML, as in formulas.js
FORMULA_OVERHEAD = 40  # characters that each formula counts besides its own
SPANNED_CELLS = 2000  # of a table in HTML: the time for a cell that spans many others is quadratic in their number
PLACES_PER_CELL = 3
LINK_CHARACTERS = 2000
ALT_CHARACTERS = 250  # of the words that stand for a picture, which a browser shows of one that it cannot draw
BLOCK_LETTERS = 1000  # other than those that ASCII prints, until a new block begins (`in_blocks`)
GROWTH = 10
READINGS = 10  # of cleaned HTML by an HTML parser, until it writes what it has read
MISSING = "a picture is missing"
TOO_LONG = "[cut off here, since more than {:,} characters are not shown]"

TAGS = {"a", "b", "blockquote", "br", "caption", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr"}
TAGS |= {"i", "img", "li", "ol", "p", "pre", "s", "strong", "sub", "sup", "u", "ul"}
TAGS |= {"table", "tbody", "td", "tfoot", "th", "thead", "tr"}
OTHER_LETTER = re.compile(r"[^\x20-\x7e\t\n\r]")
TABLE_PARTS = {"table", "thead", "tbody", "tfoot", "tr"}
EMPTY = {"br", "hr", "img"}
INLINE = {"a", "b", "code", "del", "em", "i", "s", "span", "strong", "sub", "sup", "u"}
BLOCKS = TAGS - INLINE - EMPTY
INDENTED = {"blockquote", "ol", "ul"}
UNSEEN = {"script", "style"}  # removed with their content
ATTRIBUTES = {"a": {"href"}, "img": {"src", "alt"}, "ol": {"start"}, "td": {"colspan", "rowspan"}}
ATTRIBUTES["th"] = ATTRIBUTES["td"]
TAG = re.compile(r"""(<(?:"[^"]*"|[^">])*>)""")  # in cleaned HTML: nh3 before 0.3.7 leaves `>` in an attribute
# No part contains `<`, so that none is read twice
TOKEN = re.compile(r"<(?:(/?)([a-z][a-z0-9]*)((?:[\s/][^<>]*)?)>|!--)", re.IGNORECASE)
PART = re.compile(r"""(?<![\w-])([a-z]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)
NUMBER = re.compile(r"[0-9]{1,3}")
NO_CHARACTER = re.compile(r"&#[0-9]{8,}")
# Not to an address without a dot, of numbers, or of this machine: the reader's Jupyter server may answer there
# Paths of a JupyterHub, and those that it sends on to them
HUB = re.compile(r"/(?:user|user-redirect|hub|services|spawn|spawn-pending|logout|git-pull)(?:[/?#]|$)", re.IGNORECASE)
LINK = re.compile(
    r"mailto:[^\s?@]+@[^\s?@]+|https?://(?![^/?#]*localhost\b)([\w-]+\.)+[a-z]{2,}(:[0-9]+)?([/?#][^\s\\]*)?",
    re.IGNORECASE,
)
JOINED = 16  # marks on a letter, at most
DATA = re.compile(r"data:(image/[a-z]+);base64,", re.IGNORECASE)

MARKDOWN_TAG = re.compile(rf"</?(?:{'|'.join(sorted(TAGS))})(?:[\s/][^<>]*)?>", re.IGNORECASE)
ENVIRONMENT = re.compile(r"\\(begin|end)\{([A-Za-z]{1,30}\*?)\}")
DOLLAR = re.compile(r"(?:[^$\\]|\\.)+", re.DOTALL)


def clean(
    page: str, attachments: Mapping[str, Mapping[str, str]] | None = None, left: dict[str, int] | None = None
) -> str:
    """Keep the readable parts of HTML, and remove everything active.

    Parameters
    ----------
    page : str
        HTML of any kind.
    attachments : mapping, optional
        The pictures that belong to the cell, as in a notebook: for each name, its data by type.
    left : dict, optional
        The number of pixels that pictures may still have, as ``left["pixels"]``. It is updated.

    Returns
    -------
    str
        HTML with the tags and attributes of `TAGS` and `ATTRIBUTES`, all of them closed, which a parser reads as it
        stands, or else the text alone. Pictures are embedded; a sentence replaces one that is missing or has too many
        pixels.
    """
    left = {} if left is None else left
    left.setdefault("pixels", PAGE_PIXELS)
    simple = _simple(legible(str(page)), attachments or {}, left)
    longest = GROWTH * len(simple) + 1000
    cleaned, before = _allowed(simple, _attribute), None
    if len(cleaned) <= longest:
        cleaned = in_blocks(cleaned)
    # An HTML parser can write what it reads otherwise the next time: a browser could close the box around it
    for _ in range(READINGS):
        if cleaned == before:
            return cleaned
        if len(cleaned) > longest:  # HTML opens a link or bold text again in each block that closes it
            break
        cleaned, before = _allowed(cleaned), cleaned
    return in_blocks(TOKEN.sub(" ", simple))


def _allowed(page, attribute=None):
    """Return the HTML of what an HTML parser reads, with the allowed tags and attributes alone."""
    cleaned = nh3.clean(
        page,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=attribute,
        url_schemes={"http", "https", "mailto", "data"},
        # Within JupyterLab, the site of a link that opens in the formgrader's frame could run any of its commands
        set_tag_attribute_values={"a": {"target": "_blank"}},
        link_rel="noopener noreferrer nofollow",
    )
    return cleaned.replace("<pre>\n", "<pre>\n\n")  # a parser drops the first, and nh3 does not write it again


def _simple(page, attachments, left):
    """Return HTML with only the allowed tags, each of them closed, with limited nesting.

    A browser or an HTML parser can take a time that is quadratic in the number of open tags, of attributes of a tag, or
    of tags closed in the wrong order, or of what stands in a table beside its cells. HTML shows the latter before the
    table, and it is put there, without its tags.
    """
    pieces, opened, seen, at, spanned, grid = [], [], set(), 0, 0, Grid()
    tables = []  # for each open table, what belongs before it

    def is_beside_cells():
        return bool(tables) and opened[-1] in TABLE_PARTS

    def put(piece):
        (tables[-1] if is_beside_cells() and piece.strip() else pieces).append(piece)

    while token := TOKEN.search(page, at):
        put(_text(page[at : token.start()]))
        at, name = token.end(), (token[2] or "").lower()
        if not name:
            end = page.find("-->", at)
            at = len(page) if end < 0 else end + 3
        elif name in UNSEEN and not token[1]:
            end = re.compile(f"</{name}", re.IGNORECASE).search(page, at)
            at = end.start() if end else len(page)
        elif name not in TAGS:
            continue
        elif name == "img":
            put(_picture(_parts(name, token[3]), attachments, seen, left))
        elif is_beside_cells() and not token[1] and name not in TABLE_PARTS | {"caption", "td", "th"}:
            tables[-1].append(" ")
        elif name in EMPTY:
            pieces.append(f"<{name}>")
        elif token[1]:
            if name in opened:
                last = None
                while last != name:
                    last = opened.pop()
                    pieces.append(f"</{last}>")
                    grid.closes(last)
                    if last == "table":
                        tables.pop()
        else:
            if opened and opened[-1] == name and name in ("li", "p", "td", "th", "tr"):
                pieces.append(f"</{opened.pop()}>")
            kept = _parts(name, token[3])
            if kept and name in ("td", "th"):
                spanned += _area(kept)
                kept = kept if spanned <= SPANNED_CELLS else {}
            is_too_far_in = name in INDENTED and sum(one in INDENTED for one in opened) >= INDENTS
            if len(opened) < DEPTH and not is_too_far_in and grid.opens(name, kept):
                opened.append(name)
                if name == "table":
                    pieces.append(before := [])
                    tables.append(before)
                parts = "".join(f' {part}="{html.escape(value)}"' for part, value in kept.items())
                pieces.append(f"<{name}{parts}>")
    put(_text(page[at:]))
    pieces = (piece if isinstance(piece, str) else "".join(piece) for piece in pieces)
    return "".join(pieces) + "".join(f"</{name}>" for name in reversed(opened))


class Grid:
    """The number of places in the tables of a page: a browser extends each row to the longest of its table.

    Places are limited to a few times the number of cells, so that their time is proportional to the size of the page.
    """

    def __init__(self):
        # For each open table: its rows, the cells of the longest row, and those of the open row, if any
        self.tables, self.cells, self.before = [], 0, 0

    def opens(self, name, spans):
        """Count one more tag, and return whether there is room for it. There is none for table tags outside tables."""
        if name == "table":
            self.tables.append((0, 0, None))
        elif name in ("caption", "thead", "tbody", "tfoot") and self.tables:
            self.ends_row()
        elif name in ("tr", "td", "th"):
            if not self.tables:
                return False
            *around, (rows, longest, present) = self.tables
            if name == "tr" or present is None:
                rows, present = rows + 1, 0
            if name != "tr":
                colspan = spans.get("colspan", "1")
                present += max(1, int(colspan)) if NUMBER.fullmatch(colspan) else 1
            cells, longest = self.cells + (name != "tr"), max(longest, present)
            places = self.before + sum(rows * longest for rows, longest, _ in around) + rows * longest
            if places > PLACES_PER_CELL * cells + SPANNED_CELLS:
                return False
            self.tables[-1], self.cells = (rows, longest, present), cells
        return True

    def closes(self, name):
        """Count a closed tag."""
        if name == "table":
            rows, longest, _ = self.tables.pop()
            self.before += rows * longest
        elif name in ("tr", "thead", "tbody", "tfoot") and self.tables:
            self.ends_row()

    def ends_row(self):
        """Let the next cell begin another row."""
        rows, longest, _ = self.tables[-1]
        self.tables[-1] = rows, longest, None


def _area(spans):
    """Return how many cells of a table a cell with these spans covers; a span of 0 covers the rest of the table."""
    return math.prod(int(value) or SPANNED_CELLS + 1 for value in spans.values() if NUMBER.fullmatch(value))


def _text(piece):
    """Return the HTML of a text between two tags; no mark at its start joins a letter before the tag."""
    start, run = _joining()
    return html.escape(run.sub(r"\1", start.sub("", _unescaped(piece))), quote=False)


def _unescaped(text):
    """Resolve the character references in a text; Python cannot read numbers of thousands of digits."""
    return html.unescape(NO_CHARACTER.sub("&#0", text))


def legible(text: str) -> str:
    """Return a text without single surrogates, which no file can hold, and with few marks on each letter."""
    if text.isascii():  # such as a picture, which is long
        return text
    return _joining()[1].sub(r"\1", text.encode("utf-8", "replace").decode("utf-8"))


@functools.cache
def _joining():
    """Return the patterns of characters that join the one before them: at the start, and too many of them in a row.

    A browser needs a time for them that grows at least with the square of their number. They are marks, characters
    without a width, a Thai and a Lao vowel, and the colours of emoji. Codes of a terminal may stand between them.
    """
    codes = [*range(0x20000), *range(0xE0000, 0xE0200)]
    marks = "".join(chr(code) for code in codes if unicodedata.category(chr(code)) in ("Mn", "Mc", "Me", "Cf"))
    one = rf"[{re.escape(marks)}\u0e33\u0eb3\U0001f3fb-\U0001f3ff](?:\x1b\[[\d;]*m)*"
    return re.compile(rf"\A(?:{one})+"), re.compile(f"((?:{one}){{{JOINED}}})(?:{one})+")


def in_blocks(page: str) -> str:
    """Return HTML in which no block has more than `BLOCK_LETTERS` letters other than those that ASCII prints.

    A browser needs a time that is at least quadratic in the number of letters of a block if they change their
    direction, or are joined, in a narrow column, and in the length of a word whose letters come from two fonts in
    turns. To a browser a block within bold text or a link is still one block with the text around it, so these end
    before the new block and begin again after it, if that needs few characters.
    """
    if len(page) < BLOCK_LETTERS:
        return page
    letters, open_tags, pieces = 0, [], TAG.split(page)

    def counted(piece, number=1):
        nonlocal letters
        letters += number
        if letters < BLOCK_LETTERS:
            return piece
        letters = 0
        inline = [*takewhile(lambda tag: tag[0] in INLINE, reversed(open_tags))]
        ends, begins = "".join(f"</{name}>" for name, _ in inline), "".join(tag for _, tag in reversed(inline))
        if len(begins) > BLOCK_LETTERS:
            del open_tags[-len(inline) :]
            begins = ""
        return f"{piece}{ends}<div></div>{begins}"

    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            pieces[place] = OTHER_LETTER.sub(lambda letter: counted(letter[0]), piece)
        elif (tag := TOKEN.fullmatch(piece)) and tag[2]:
            name, names = tag[2].lower(), [name for name, _ in open_tags]
            if not tag[1] and name not in EMPTY:
                open_tags.append((name, piece))
            elif tag[1] and name in names:
                del open_tags[len(names) - 1 - names[::-1].index(name) :]
            if name in BLOCKS and INLINE.isdisjoint(names):
                letters = 0
            if name == "img":  # a browser shows the words of one that it cannot draw
                pieces[place] = counted(piece, len(OTHER_LETTER.findall(piece)))
    return "".join(pieces)


def _parts(tag, text):
    """Return the allowed attributes of a tag."""
    allowed = ATTRIBUTES.get(tag, ())
    found = PART.findall(text) if allowed else ()
    parts = {name.lower(): _unescaped(value.strip("\"'")) for name, value in found if name.lower() in allowed}
    return {name: value for name, value in parts.items() if name != "href" or len(value) <= LINK_CHARACTERS}


def _attribute(tag, name, value):
    """Return the value that an attribute keeps, or None."""
    if name == "href":
        return value if LINK.fullmatch(value) and not HUB.search(unquote(value)) else None
    if name == "src":
        return _embedded(value)[0]
    if name in ("start", "colspan", "rowspan"):
        return value if NUMBER.fullmatch(value) else None
    return value


# Pictures


def _picture(parts, attachments, seen, left):
    """Return a picture with embedded data, or a sentence that says why there is none.

    A picture can be missing, already shown (`seen`), or have more pixels than are `left`.
    """
    source, alt = parts.get("src", "").strip(), html.escape(legible(parts.get("alt", ""))[:ALT_CHARACTERS])
    name = "" if source.startswith("data:") else source.removeprefix("attachment:")[:80]
    what = f"The picture {html.escape(name)}" if name else "A picture"
    if source.startswith("attachment:"):
        key = source.removeprefix("attachment:")
        key = key if key in attachments else unquote(key)
        if f"attachment:{key}" in seen:  # otherwise a short text could give a page of gigabytes
            return f"<em>[{what} is shown above.]</em>"
        given = attachments.get(key) if isinstance(attachments.get(key), Mapping) else {}
        source = next((f"data:{kind};base64,{given[kind]}" for kind in PICTURE_TYPES if kind in given), "")
        seen.add(f"attachment:{key}")
    data, pixels = _embedded(source)
    if pixels > left["pixels"]:
        return f"<em>[{what} is too large: all pictures together may have {PAGE_PIXELS // 10**6} million pixels.]</em>"
    if data:
        left["pixels"] -= pixels
        return f'<img src="{html.escape(data)}" alt="{alt}">'
    if MISSING in seen:  # otherwise five characters of a text could give two hundred
        return f"<em>[{what} is missing.]</em>"
    seen.add(MISSING)
    return (
        f"<em>[{what} is missing: paste a PNG, JPEG, GIF or WebP picture into the cell itself, so that it is handed in "
        "with the notebook.]</em>"
    )


def _embedded(address):
    """Return the address with the data of a picture that a page shows, or None, and its number of pixels."""
    start = DATA.match(address)
    shown = start and picture(start[1].lower(), address[start.end() :])
    return (f"data:{start[1].lower()};base64,{shown.data}", shown.pixels) if shown else (None, 0)


# Markdown


def rendered(
    text: str,
    attachments: Mapping[str, Mapping[str, str]] | None = None,
    left: dict[str, int] | None = None,
    formula: Callable[[str, bool], str] | None = None,
) -> str:
    r"""Return the cleaned HTML of a text in Markdown.

    Formulas are between ``$`` or ``$$``, or between ``\begin{...}`` and ``\end{...}``. They stay as they were written,
    unless `formula` returns their safe HTML, from the formula and whether it stands alone. A text that is too long is
    cut off. `left` holds the number of cells that tables may still have, of characters of formulas that become
    HTML and of letters in these other than those that ASCII prints, of texts in Markdown, and of pixels of pictures,
    and is updated.
    """
    left = {} if left is None else left
    left.setdefault("texts", PAGE_TEXT_CHARACTERS)
    left.setdefault("table cells", TABLE_CELLS)
    left.setdefault("formulas", FORMULA_CHARACTERS)
    left.setdefault("letters of formulas", BLOCK_LETTERS)
    text = shortened(text.replace("\0", "\ufffd"), min(TEXT_CHARACTERS, left["texts"]))
    left["texts"] = max(0, left["texts"] - len(text))
    # Nobody can write the words that stand for the formulas until the rest is clean
    env = {"left": left, "ends": {}, "formulas": [] if formula else None, "key": secrets.token_hex(16)}
    try:
        page = _MARKDOWN.render(text, env)
    except Exception:  # too many levels, or a bug of the parser: a student could stop the class with it
        return clean(f"<pre>{html.escape(text)}</pre>", attachments, left)
    page = clean(page, attachments, left)
    return re.sub(rf"{env['key']}-(\d+)-", lambda at: formula(*env["formulas"][int(at[1])]), page) if formula else page


@pass_context
def markdown(context, text: str) -> str:
    """Return the HTML of a text in Markdown in a cell: a filter of nbconvert's templates."""
    left = context["resources"].setdefault("left", {})
    return rendered(text, context.get("cell", {}).get("attachments", {}), left)


@pass_context
def clean_output(context, page: str) -> str:
    """Return the cleaned HTML of an output: a filter of nbconvert's templates."""
    return clean(page, left=context["resources"].setdefault("left", {}))


def _tag(state, silent):
    """Parse an allowed tag in linear time: no attribute contains `<` or `>`."""
    found = MARKDOWN_TAG.match(state.src, state.pos) if state.src[state.pos] == "<" else None
    if found is None:
        return False
    if not silent:
        state.push("html_inline", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _formula(state, silent):
    """Parse a formula within a paragraph, or a dollar sign that begins none."""
    source, start = state.src, state.pos
    if source.startswith("\\$", start):
        end = start + 2  # MathJax reads it as a plain dollar sign
    elif source.startswith("$$", start):
        end = source.find("$$", start + 2) + 2
        end = end if end > start + 4 else 0
    elif source.startswith("$", start):
        inside = DOLLAR.match(source, start + 1)
        end = inside.end() + 1 if inside and source.startswith("$", inside.end()) else 0
    else:
        end = _end_of_environment(state.env, source, start)
    if not end:
        return False
    if not silent:
        state.push("formula", "", 0).content = source[start:end]
    state.pos = end
    return True


def _formula_block(state, first, last, silent):
    """Parse a formula that takes whole lines, blank lines included."""
    start, limit = state.bMarks[first] + state.tShift[first], state.eMarks[last - 1]
    if state.is_code_block(first):
        return False
    if state.src.startswith("$$", start):
        end = state.src.find("$$", start + 2, limit) + 2
        end = end if end > start + 4 else 0
    else:
        end = _end_of_environment(state.env, state.src, start)
    if not end or end > limit:
        return False
    line = bisect_right(state.eMarks, end - 1, first, last)
    if state.src[end : state.eMarks[line]].strip() or min(state.sCount[first : line + 1]) < state.blkIndent:
        return False
    if not silent:
        token = state.push("formula_block", "", 0)
        token.content = state.getLines(first, line + 1, state.blkIndent, False).strip()
        state.line = line + 1
    return True


def _end_of_environment(env, source, start):
    """Return the end of the environment that begins at `start`, or 0."""
    found = ENVIRONMENT.match(source, start)
    if found is None or found[1] == "end":
        return 0
    if source not in env["ends"]:  # one search for all of them, in the whole text and in the label of each picture
        env["ends"][source] = {}
        for end in ENVIRONMENT.finditer(source):
            if end[1] == "end":
                env["ends"][source].setdefault(end[2], []).append(end.end())
    ends = env["ends"][source].get(found[2], [])
    at = bisect_right(ends, start)
    return ends[at] if at < len(ends) else 0


def _small_table(rule):
    """Return the rule for tables with a limited number of cells; further lines are plain text."""

    def table(state, first, last, silent):
        columns = 1 + state.src.count("|", state.bMarks[first], state.eMarks[first])
        rows = state.env["left"]["table cells"] // columns
        if columns > COLUMNS or not rule(state, first, min(last, first + rows), silent):
            return False
        if not silent:
            state.env["left"]["table cells"] -= columns * (state.line - first)
        return True

    return table


def _short_quote(rule):
    """Return the rule for quotes with a limited number of lines without `>`.

    The rule reads on after such a line, but the quote may end there: then the rest is read again at the next quote.
    """

    def quote(state, first, last, silent):
        if not silent:
            starts = ((line, state.bMarks[line] + state.tShift[line]) for line in range(first, last))
            lazy = (line for line, start in starts if not state.src.startswith(">", start))
            last = next(islice(lazy, LAZY_LINES, None), last)
        return rule(state, first, last, silent)

    return quote


def _markdown():
    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": NESTING}).enable(["table", "strikethrough"])
    # Each search for references and for blocks of HTML may read the rest of the text
    parser.disable(["reference", "html_block"])
    # Adjacent texts would be joined one by one, which copies the first each time
    parser.disable(["fragments_join", "text_join"])
    parser.add_render_rule("text_special", RendererHTML.text)
    parser.block.ruler.at("table", _small_table(_rule(parser.block, "table")), {"alt": ["paragraph"]})
    quote, ends = _rule(parser.block, "blockquote"), ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.at("blockquote", _short_quote(quote), {"alt": ends})
    parser.block.ruler.before("table", "formula", _formula_block, {"alt": ["paragraph", "blockquote", "list"]})
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.inline.ruler.at("html_inline", _tag)
    # `clean` checks the addresses
    parser.validateLink = lambda address: True
    parser.normalizeLink = parser.normalizeLinkText = str
    for kind in ("formula", "formula_block"):
        parser.add_render_rule(kind, _write_formula)
    return parser


def _rule(ruler, name):
    return next(rule.fn for rule in ruler.ruler.__rules__ if rule.name == name)


def _write_formula(renderer, tokens, at, options, env):
    content, alone = tokens[at].content, tokens[at].type == "formula_block"
    formula = html.escape(content, quote=False)
    if env["formulas"] is not None:
        env["left"]["formulas"] -= len(content) + FORMULA_OVERHEAD
        env["left"]["letters of formulas"] -= len(OTHER_LETTER.findall(content))
        if content == r"\$":
            formula = "$"
        elif min(env["left"]["formulas"], env["left"]["letters of formulas"]) > 0:
            env["formulas"].append((legible(content), alone))
            formula = f"{env['key']}-{len(env['formulas']) - 1}-"
    return f"<p>{formula}</p>\n" if alone else formula


_MARKDOWN = _markdown()


# The pages

FORMGRADER = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates" / "formgrade"
TEMPLATES = str(Path(__file__).parent / "jupyter")


@functools.cache
def mathjax(name: str) -> str:
    """Return a file of the book's MathJax: a filter of the course's own templates."""
    [folder] = importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations
    return (Path(folder) / "static" / "mathjax" / name).read_text(encoding="utf-8")


def nbgrader_scripts(name: str) -> list[str]:
    """Return the scripts in a template of nbgrader's formgrader, and in its buttons: a filter of the templates."""
    found = re.findall(
        r'<script[^>]*>(.+?)</script>|\bonclick="(.+?)"', (FORMGRADER / name).read_text("utf-8"), re.DOTALL
    )
    return [script or action for script, action in found]


# Code and its output

# These characters can show code in another order than it runs. In square brackets, their names would make the code of a
# terminal after an escape character
TURNING = {
    number: f"<U+{number:04X}>" for number in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
# These can show a comment as lines of code: they end a line, but not in Python
ENDS = {number: f"<U+{number:04X}>" for number in (0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029)}
NAMED = TURNING | ENDS  # in code


def coloured(text: str) -> str:
    """Return the HTML of what a cell prints, with its colours: a filter of nbconvert's templates."""
    text = legible(str(text)).translate(TURNING)
    try:
        return in_blocks(legible(str(ansi2html(text))))  # codes stood between marks that are joined now
    except (IndexError, ValueError):  # the code of a colour is cut off, or its number is too long
        return in_blocks(html.escape(strip_ansi(text)))


def highlighted(source: str, metadata: Mapping | None = None) -> str:
    """Return the HTML of a code cell, in colours unless it is long: a filter of nbconvert's templates."""
    # Pygments reads the following blank lines again at each of them
    lines = [line.rstrip() for line in legible(source).translate(NAMED).splitlines()]
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))
    if len(text) > COLOURED_CHARACTERS or max(map(len, lines), default=0) > COLOURED_LINE:
        return in_blocks(f'<div class="highlight"><pre>{html.escape(shortened(text, CODE_CHARACTERS))}</pre></div>')
    return in_blocks(highlight(text or " ", PythonLexer(), HtmlFormatter(cssclass="highlight hl-ipython3")))


def shortened(text: str, characters: int) -> str:
    """Return a text, or its beginning with a note that it goes on."""
    return text if len(text) <= characters else f"{text[:characters]}\n\n{TOO_LONG.format(characters)}"
