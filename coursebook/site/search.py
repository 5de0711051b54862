"""Search: an index of the sections of all pages and of the terms of the glossary, for ``book/_static/search.js``.

A browser fetches no files where the site is opened from a disk, but it runs scripts: the index is a script, which is
loaded when a reader is about to search. It has what readers see, so it is made from the built pages. A page with
``no-search: true`` in its front matter is left out. Search engines show the first sentences of a page.
"""

import html
import json
import re
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

from bs4 import BeautifulSoup
from docutils import nodes

INDEX = "_static/search-index.js"
DESCRIPTION_CHARACTERS = 155
# Signs, folded code, questions asked again, what a question hides, and what cells print
LEFT_OUT = (
    ".headerlink, .eqno, script, style, .tag_claim, .tag_hide-input > details, .recall, fieldset.quiz details, "
    ".quiz-buttons, .cell_output pre, .cell_output table"
)
IMPORT = re.compile(r"^(?:import|from) .*\n*", re.M)
BLOCKS = ["p", "li", "dt", "dd", "tr", "td", "th", "div", "figcaption", "summary", "legend", "label", "br"]
DRAWN = '<span class="katex-html" aria-hidden="true">'
ACCENTS = {"^": "\u0302", "ˆ": "\u0302", "~": "\u0303", "˜": "\u0303", "ˉ": "\u0304", "¯": "\u0304", "˙": "\u0307"}
# How a definition ends that names other words for its term, or words that lead to it
OTHER_WORDS = {kind: re.compile(rf"\b{kind}:? ([^.;]+)\.") for kind in ("Also called", "Related")}


@dataclass(frozen=True)
class Section:
    """A section of a page, without the sections in it.

    Attributes
    ----------
    page : str
        Address of the page.
    anchor : str
        Where the section starts in the page; empty for what stands before the first section.
    title, text, code : str
        What readers see.
    """

    page: str
    anchor: str
    title: str
    text: str
    code: str


@dataclass(frozen=True)
class Term:
    """A term of the glossary.

    Attributes
    ----------
    page, anchor : str
        Its address.
    name, definition : str
    also, related : list of str
        Other words for it, and words for something else that lead to it.
    """

    page: str
    anchor: str
    name: str
    definition: str
    also: list[str]
    related: list[str]


def sections_of(page: str, text: str) -> list[Section | Term]:
    """Return the sections of a built page, and the terms that it defines.

    Parameters
    ----------
    page : str
        Its address.
    text : str
        Its HTML.
    """
    article = BeautifulSoup(
        _without_drawn_formulas(text[text.index("<article") : text.index("</article>")]), "html.parser"
    )
    for one in article.select(LEFT_OUT):
        one.decompose()
    for formula in article.find_all(class_="katex"):
        formula.replace_with(readable(formula.math))
    for block in article.find_all(BLOCKS):
        block.append(" ")
    terms = []
    for glossary in article.find_all("dl", class_="glossary"):
        terms += [_term(page, name) for name in glossary.find_all("dt")]
        glossary.decompose()
    headings = [one for one in article.find_all(["h1", "h2", "h3", "h4"]) if one.parent.name == "section"]
    # From the last to the first, so that the sections in a section are taken out before it is read
    sections = [_section(page, heading.parent.extract(), heading) for heading in reversed(headings)]
    return sections[::-1] + terms


def _without_drawn_formulas(text):
    """Return HTML with the MathML of its formulas alone: what KaTeX draws is most of a page, and slow to parse."""
    kept, *others = text.split(DRAWN)
    for after in others:
        depth = 1
        for tag in re.finditer(r"<(/?)span\b", after):
            depth += -1 if tag[1] else 1
            if depth == 0:
                kept += after[tag.start() + len("</span>") :]
                break
    return kept


def _section(page, section, heading):
    anchor = "" if heading.name == "h1" else section["id"]
    title = _words(heading.extract())
    code = "\n".join(cell.extract().get_text().strip() for cell in section.find_all(class_="cell_input"))
    code = IMPORT.sub("", code)  # each page has them: a name is found where it is used
    return Section(page, anchor, title, _words(section), code)


def _term(page, name):
    definition = _words(name.find_next_sibling("dd"))
    also, related = (_listed(pattern.search(definition)) for pattern in OTHER_WORDS.values())
    return Term(page, name["id"], _words(name), definition, also, related)


def _listed(words):
    return re.split(r", | or | and ", words[1]) if words else []


def _words(element):
    return " ".join(element.get_text().split())


def readable(formula) -> str:
    """Return a formula in MathML as a line of plain text, such as ``x²/(n + 1)``."""
    parts = [readable(part) for part in formula.find_all(True, recursive=False)]
    match formula.name:
        case "annotation":
            return ""
        case "mo" if formula.get_text() in "=+−<>≤≥≈∼∈→":
            return f" {formula.get_text()} "
        case "mfrac":
            return "/".join(map(_in_brackets, parts))
        case "msup":
            return parts[0] + {"2": "²", "⊤": "ᵀ"}.get(parts[1], f"^{_in_brackets(parts[1])}")
        case "munder" | "mover" if parts[1] in "⏟⏞":
            return parts[0]
        case "msub" | "munder":
            return f"{parts[0]}_{_in_brackets(parts[1])}"
        case "msubsup" | "munderover":
            return f"{parts[0]}_{_in_brackets(parts[1])}^{_in_brackets(parts[2])}"
        case "mover":
            return parts[0] + ACCENTS.get(parts[1], f"^{parts[1]}")
        case "msqrt":
            return f"√{_in_brackets(''.join(parts))}"
        case "mtd" | "mtr":
            return "".join(parts) + " "
    # Without the signs that stand for a multiplication or a function, and are not seen
    return re.sub("[\u2061-\u2064]", "", "".join(parts) if parts else formula.get_text())


def _in_brackets(part):
    return part if re.fullmatch(r"\w*|.\S?", part) else f"({part.strip()})"


def _write_index(app, error):
    if error:
        return
    pages = [page for page in sorted(app.env.found_docs) if "no-search" not in app.env.metadata[page]]
    found = [
        one
        for page in pages
        for one in sections_of(f"{page}.html", (Path(app.outdir) / f"{page}.html").read_text("utf-8"))
    ]
    index = {
        "sections": [asdict(one) for one in found if isinstance(one, Section)],
        "terms": [asdict(one) for one in found if isinstance(one, Term)],
    }
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    (Path(app.outdir) / INDEX).write_text(f"const SEARCH_INDEX = {text};\n", "utf-8")


def _replace_search_of_sphinx(app):
    # Sphinx then writes neither its index nor its page; `html_additional_pages` names ours
    app.builder.search = False


def _plain(paragraph):
    """Return a paragraph as plain text, with formulas that can be read aloud."""
    text = paragraph.deepcopy()
    for formula in list(text.findall(nodes.math)):
        latex = re.sub(r"\\math\w+{(\w+)}", r"\1", formula.astext())
        formula.replace_self(nodes.Text(re.sub(r"\\(?=\w)", "", latex).replace("{", "(").replace("}", ")")))
    return " ".join(text.astext().split())


def _describe(app, page, template, context, doctree):
    paragraphs = doctree.findall(nodes.paragraph) if doctree else ()
    if first := next((one for one in paragraphs if isinstance(one.parent, nodes.section)), None):
        text = textwrap.shorten(_plain(first), DESCRIPTION_CHARACTERS, placeholder=" …")
        context["metatags"] += f'\n<meta name="description" content="{html.escape(text)}">'


def connect(app):
    """Let Sphinx write the index, and a description into each page."""
    app.connect("builder-inited", _replace_search_of_sphinx)
    app.connect("html-page-context", _describe)
    app.connect("build-finished", _write_index)
