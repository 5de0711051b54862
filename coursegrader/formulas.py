r"""Turn formulas into MathML, which a browser shows without a script and without a network.

Students write formulas, too: one that is not plain, or not understood, stays as it was written. What is plain stands in
`formulas.js`, which tells the same to the formgrader's MathJax. Of the MathML only the tags in `TAGS` and the
attributes in `ATTRIBUTES` remain, and every text is escaped.
"""

import functools
import html
import re
from pathlib import Path
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element

SETTINGS = Path(__file__).parent / "jupyter" / "nbconvert" / "templates" / "base" / "formulas.js"
MACROS, ENVIRONMENTS = (set(words.split()) for words in re.findall(r"`([^`]*)`", SETTINGS.read_text("utf-8"))[:2])
SIGNS = frozenset("\\{}|,;:!>$%&#_ \t\n")
LONGEST = 2000  # characters of a formula
DEEPEST = 20  # braces within each other
DEEPEST_ELEMENT = 60  # latex2mathml also nests accents without braces
PART = re.compile(r"\\(?:begin|end)\s*\{([^{}]*)\}|\\([A-Za-z]+)|\\.?|[{}%]", re.DOTALL)
LONG_LINE = re.compile(r"\\\\\s*\*?\s*\[[^\]]*\d{3}")

TAGS = {"math", "menclose", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mroot", "mrow", "mspace", "msqrt", "mstyle"}
TAGS |= {"msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover"}
CHILDREN = dict.fromkeys(["mfrac", "mover", "mroot", "msub", "msup", "munder"], 2) | {"msubsup": 3, "munderover": 3}
ATTRIBUTES = {
    "accent",
    "accentunder",
    "columnalign",
    "columnlines",
    "columnspacing",
    "display",
    "displaystyle",
    "fence",
}
ATTRIBUTES |= {"form", "linethickness", "mathvariant", "maxsize", "minsize", "movablelimits", "notation", "rowlines"}
ATTRIBUTES |= {"rowspacing", "scriptlevel", "separator", "stretchy", "width"}
VALUE = re.compile(r"[a-z0-9+. %-]{1,40}")
# What latex2mathml does not know, in words that it knows
SAME = {"aligned": "split", "align": "align*", "eqnarray": "align*", "eqnarray*": "align*"}
SAME |= dict.fromkeys(["gather", "gather*", "gathered", "multline", "multline*"], "displaylines")
RENAMED = re.compile(r"(\\(?:begin|end)\s*)\{(" + "|".join(map(re.escape, SAME)) + r")\}")
OTHERWISE = [
    (RENAMED, lambda found: f"{found[1]}{{{SAME[found[2]]}}}"),
    (re.compile(r"\\(begin|end)\s*\{equation\*?\}|\\(nonumber|notag|hline|nolimits)(?![A-Za-z])"), ""),
    (re.compile(r"\\arg(?![A-Za-z])"), r"\\operatorname{arg}"),
    (re.compile(r"\\operatorname\s*\*?\s*\{([A-Za-z]+)(?:\\[,;:! ])?([A-Za-z]*)\}"), r"\\operatorname{\1\2}"),
]
COMMANDS = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\{[lcr|]*\})?|\\[A-Za-z]+")


@functools.lru_cache(4096)  # the formulas of a lab are the same on every page
def mathml(formula: str, block: bool = False) -> str:
    r"""Return the HTML of a formula.

    Parameters
    ----------
    formula : str
        As in a notebook, with its delimiters: ``$...$``, ``$$...$$``, or from ``\begin{...}`` to ``\end{...}``.
    block : bool, default False
        Show it in a line of its own.

    Returns
    -------
    str
        A ``<math>`` element, or the escaped formula in ``<code>`` if it is not plain or not understood.
    """
    inner = formula.strip("$").strip() if formula.startswith("$") else formula
    block = block or not formula.startswith("$") or formula.startswith("$$")
    if len(formula) <= LONGEST and is_plain(inner):
        for pattern, instead in OTHERWISE:
            inner = pattern.sub(instead, inner)
        try:
            element = convert_to_element(inner, display="block" if block else "inline")
            if _is_deep(element):
                element = Element("math")
        except Exception:  # of a formula that is not complete, for instance
            element = Element("math")
        # latex2mathml shows what it does not know as it was written, or leaves it out
        shown = html.unescape("".join(element.itertext()))
        whole = all(len(one) == CHILDREN.get(one.tag, len(one)) for one in element.iter())
        if (
            shown
            and whole
            and not {"\\", "&"} & set(shown)
            and _n_letters(shown) >= _n_letters(COMMANDS.sub("", inner))
        ):
            return _written(element)
    return f"<code>{html.escape(formula)}</code>"


def _is_deep(element):
    level = [element]
    for _ in range(DEEPEST_ELEMENT):
        level = [inner for one in level for inner in one]
    return bool(level)


def _n_letters(text):
    return sum(sign.isalnum() for sign in text)


def is_plain(formula: str) -> bool:
    """Whether a formula holds nothing but what `formulas.js` allows."""
    if LONG_LINE.search(formula):
        return False
    depth = 0
    for part in PART.finditer(formula):
        sign, (environment, name) = part[0], part.groups()
        if sign == "%":
            return False
        if (environment is not None and environment not in ENVIRONMENTS) or (name and name not in MACROS):
            return False
        if environment is None and not name and sign[0] == "\\" and sign[1:] not in SIGNS:
            return False
        depth += (sign == "{" or name == "left" or sign.startswith("\\begin")) - (
            sign == "}" or name == "right" or sign.startswith("\\end")
        )
        if depth > DEEPEST:
            return False
    return True


def _written(element: Element) -> str:
    """Return the HTML of an element: latex2mathml's own text keeps whatever a formula holds."""
    inside = _escaped(element.text) + "".join(_written(one) + _escaped(one.tail) for one in element)
    if element.tag not in TAGS:
        return inside
    kept = {name: str(value) for name, value in element.attrib.items() if name in ATTRIBUTES}
    parts = "".join(f' {name}="{value}"' for name, value in kept.items() if VALUE.fullmatch(value))
    return f"<{element.tag}{parts}>{inside}</{element.tag}>"


def _escaped(text):
    return html.escape(html.unescape(text or ""), quote=False)
