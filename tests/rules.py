"""Find the sentences of pages that are worded as a rule, or give a reason, and are about data of the page.

``python tests/rules.py PAGE ...`` prints those that nothing answers yet: no claim in their section that runs for many
seeds (`mlcourse.claims`), and no decision in ``tests/book/rules.yml``.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from paths import CHAPTER_PAGES, ROOT
from prose import CELL, OPTIONS

DECISIONS = ROOT / "tests" / "book" / "rules.yml"
MORE = "more|less|larger|smaller|higher|lower|fewer|longer|shorter|better|worse|closer|further|stronger|weaker"
# These speak of rules wherever they stand in a section with an output, and the others if a number or an output is near
STRONG = re.compile(
    r"\b(?:always|never|typically|usually|generally|in general|(?<!plain )as a rule|no matter|each time|tends? to"
    rf"|(?:grow|rise|fall|shrink|increase|decrease)s? with|the (?:{MORE})\b[^.;]* the (?:{MORE}))\b",
    re.I,
)
WORDS = {
    "general": re.compile(
        rf"{STRONG.pattern}|\b(?:whatever|(?<!without )(?<!than )any(?! (?:two|one|time|more)\b)"
        r"|(?:with|at|on|in|of|by|nearly) every|^every)\b",
        re.I,
    ),
    "reason": re.compile(
        r"\b(?:because|since|due to|owing to|(?:that|which) is why|the (?:cause|reason)|explains)\b", re.I
    ),
}
# Front matter, other code, formulas, labels, the lines of directives with their options, tables, and objectives
NO_SENTENCES = re.compile(
    r"\A---\n.*?^---$|^```.*?^```$|\$\$.*?\$\$|^\([\w-]+\)=$|^:::.*?$|^:[\w-]+:.*?$|^\|.*?$"
    r"|^\* - .*?(?=\n\n|\Z)|^- \*\*[A-Z]{2,3}-\d\*\*.*?$",
    re.M | re.S,
)
SHORT = (
    (r"\{glue:?\w*\}`[^`]*`|\{numref\}`[^`]*`", "…"),
    (r"\{[\w:]+\}`([^`<]*)(?:<[^`]*>)?`", r"\1"),
    (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
    (r"\s+", " "),
)


@dataclass
class Sentence:
    """A sentence that asks for a claim, ``general`` or ``reason``, in its section; numbers and figures are dots."""

    text: str
    kind: str
    section: str


def open_questions(text: str) -> list[Sentence]:
    """Return the sentences of a page, in MyST Markdown, that ask for a claim which their section does not have."""
    asked, answered = [], set()
    for section, what, part in parts_of(text):
        if what == "code":
            answered |= {(section, kind) for kind in re.findall(r"^@(general|reason)\(", part, re.M)}
            continue
        for sentence in sentences_of(part):
            words = re.sub(r"`[^`]*`|\*\w+\*", "", sentence)
            if what == "near" or "…" in sentence:
                asked += [Sentence(sentence, kind, section) for kind, word in WORDS.items() if word.search(words)]
            elif what in ("caption", "later") and STRONG.search(words):
                asked.append(Sentence(sentence, "general", section))
    return [one for one in asked if (one.section, one.kind) not in answered]


def parts_of(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, the kind and the text of each part of a page.

    The kinds are the ``code`` of a cell, a ``caption`` or an alternative text, and a ``text``; the first text after an
    output is ``near``, and those after it come ``later``, up to the end of the section.
    """
    section, place, end = "", "text", 0
    for cell in [*CELL.finditer(text), None]:
        before = text[end : cell.start() if cell else None]
        for paragraph in re.split(r"\n\s*\n|\n(?=- |\d+\. |#)", NO_SENTENCES.sub("\n\n", before)):
            if paragraph.startswith("#"):
                section, place = paragraph, "text"
            elif paragraph.strip():
                yield section, place, paragraph
                place = "later" if place == "near" else place
        if cell:
            options, code = re.match(rf"({OPTIONS.pattern})(.*)", cell[1], re.M | re.S).groups()
            yield section, "code", code
            for caption in re.findall(r"^ +(?:caption|alt): (.*(?:\n {6,}.*)*)", options, re.M):
                yield section, "caption", caption
            if not re.search(r"\b(?:claim|quiz|earlier)\b", options) and shows(code):
                place = "near"
            end = cell.end()


def shows(code: str) -> bool:
    """Whether a cell draws or prints something, or ends in an expression."""
    try:
        last = ast.parse(code).body[-1]
    except SyntaxError:  # a magic command
        return True
    return bool(re.search(r"\bprint\(", code)) or (isinstance(last, ast.Expr) and "use_style" not in ast.unparse(last))


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text."""
    for pattern, short in SHORT:
        text = re.sub(pattern, short, text)
    return [one.strip() for one in re.split(r"(?<=[.!?])[*)\"]*\s+(?=[A-Z(*\[\"“`…])", text)]


def undecided(text: str, decided: dict[str, str]) -> list[Sentence]:
    """Return the open questions of a page that do not begin with the words of a decision."""
    return [one for one in open_questions(text) if not one.text.startswith(tuple(decided))]


def text_of(page: str) -> str:
    """Return the text of a page such as ``model-selection/index``."""
    return (ROOT / "book" / f"{page}.md").read_text("utf-8")


def read_decisions() -> dict[str, dict[str, str]]:
    """Return the decisions of ``rules.yml`` by page: the first words of a sentence, and why it needs no claim."""
    return yaml.safe_load(DECISIONS.read_text("utf-8"))


if __name__ == "__main__":
    decided = read_decisions()
    for page in sys.argv[1:] or CHAPTER_PAGES:
        for one in undecided(text_of(page), decided.get(page, {})):
            print(f"{page}, {one.section.lstrip('# ')} ({one.kind}): {one.text}\n")
