"""Questions that a reader answers in the page, with answer keys that the chapter's cells compute.

A cell ends in `choice` or `number`. The cell computes from the chapter's data which options are right, so a key cannot
be wrong. If a new version of a library changes the right answer, the build fails. ``book/_static/course.js`` checks the
answers. Without it, the answer and every explanation unfold; in print they stand below the question.
"""

import hashlib
import math
import re
from dataclasses import dataclass
from html import escape

import numpy as np
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin


@dataclass(frozen=True)
class Answer:
    """An answer that a reader may give: its text in Markdown, whether it is right, and why (or which mistake it is)."""

    text: str
    is_right: bool
    why: str

    @property
    def key(self) -> str:
        """Hash of the text, which the reader's browser stores: an edited answer gets a new key."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Quiz:
    """A question with its answers, which Jupyter shows as HTML.

    Attributes
    ----------
    name : str
        The browser stores the answer under this name, and later chapters recall the question by it.
    question : str
        Markdown with ``$math$``, in one paragraph.
    answers : tuple of Answer
        In display order. Exactly one is right.
    decimals : int or None
        Number of decimals of the answer; None for a choice among the answers.
    unit : str
        Unit of the number.
    """

    name: str
    question: str
    answers: tuple[Answer, ...]
    decimals: int | None = None
    unit: str = ""

    def __repr__(self):
        return f"<quiz {self.name}>"

    def _repr_html_(self):
        field = self._radio_buttons() if self.decimals is None else self._text_field()
        explanations = "".join(map(self._explanation, self.answers))
        return (
            f'<fieldset class="quiz" id="quiz-{self.name}">'
            f'<legend><span class="quiz-title">Question</span> {_html(self.question)}</legend>\n'
            f'<div class="quiz-answers">{field}</div>\n'
            '<p class="quiz-buttons" hidden><button type="button" class="quiz-check">Check</button></p>\n'
            '<div class="quiz-verdict"></div>\n'
            f"<details><summary>Answer</summary>\n<ul>\n{explanations}</ul></details>\n"
            "</fieldset>"
        )

    def _radio_buttons(self):
        return "".join(
            f'\n<label><input type="radio" name="quiz-{self.name}" value="{one.key}"> '
            f"<span>{_html(one.text)}</span></label>"
            for one in self.answers
        )

    def _text_field(self):
        wanted = {0: "a whole number", 1: "to 1 decimal"}.get(self.decimals, f"to {self.decimals} decimals")
        return (
            f'<label>Your answer ({wanted}): <input type="text" inputmode="decimal" autocomplete="off" size="9" '
            f'data-tolerance="{0.5 * 10.0**-self.decimals:g}"> {_html(self.unit)}</label>'
        )

    def _explanation(self, answer):
        mark, verdict = ("✓", "Right.") if answer.is_right else ("✗", "Not right.")
        value = "" if self.decimals is None else f' data-value="{answer.text}"'
        unit = f" {_html(self.unit)}" if self.unit else ""
        return (
            f'<li data-key="{answer.key}"{value}><span class="quiz-text">{_html(answer.text)}{unit}</span> '
            f'<span class="quiz-why {"right" if answer.is_right else "wrong"}">'
            f'<span class="quiz-mark" aria-hidden="true">{mark}</span> <strong>{verdict}</strong> '
            f"{_html(answer.why)}</span></li>\n"
        )


def choice(name: str, question: str, *options: tuple[str, bool, str]) -> Quiz:
    """Return a question with one right answer among several.

    The order of the options in the call does not matter: if all begin with a number, they are sorted by it, otherwise
    by a hash of their texts.

    Parameters
    ----------
    name : str
        Lower-case letters, digits and hyphens; unique in the book.
    question : str
        Markdown with ``$math$``, in one paragraph.
    *options : tuple of (str, bool, str)
        The text, whether it is right, and why; for a wrong one, the mistake that leads to it. Both texts in Markdown.
        Compute the truth value from the data or the models of the chapter.

    Raises
    ------
    ValueError
        If not exactly one option is right, a truth value is not a bool, a text or an explanation is missing, or two
        options have the same text.
    """
    _check_name(name)
    for text, is_right, _ in options:
        if not isinstance(is_right, bool | np.bool_):
            raise ValueError(f"quiz {name}: whether '{text}' is right must be True or False, not {is_right!r}")
    answers = [Answer(text.strip(), bool(is_right), why.strip()) for text, is_right, why in options]
    right = [answer.text for answer in answers if answer.is_right]
    if len(right) != 1 or len(answers) < 2:
        raise ValueError(
            f"quiz {name}: exactly one of at least two options must be right, not {len(right)} of {len(answers)} "
            f"{right}: see what the code that computes the key gives now"
        )
    return Quiz(name, question, _checked(name, sorted(answers, key=_place(name, answers))))


def number(
    name: str,
    question: str,
    answer: float,
    why: str,
    *mistakes: tuple[float, str],
    decimals: int = 2,
    unit: str = "",
) -> Quiz:
    """Return a question whose answer is a number.

    Parameters
    ----------
    name, question : str
        As for `choice`.
    answer : float
        The right number, computed. A reader's number is right if it agrees after rounding.
    why : str
        How to get it.
    *mistakes : tuple of (float, str)
        The results of typical mistakes, computed too, each with an explanation of the mistake.
    decimals : int
        Number of decimals that the reader gives.
    unit : str
        Shown after the number.

    Raises
    ------
    ValueError
        If a number is not finite, a mistake gives the right number or that of another mistake, there is no mistake, or
        an explanation is missing.
    """
    _check_name(name)
    if not mistakes or not all(math.isfinite(value) for value in (answer, *(value for value, _ in mistakes))):
        raise ValueError(f"quiz {name}: needs finite numbers, the right one and that of at least one mistake")
    given = [(answer, True, why), *((value, False, reason) for value, reason in mistakes)]
    answers = [Answer(_rounded(value, decimals), is_right, reason.strip()) for value, is_right, reason in given]
    return Quiz(name, question, _checked(name, answers), decimals, unit)


def _check_name(name):
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"quiz {name!r}: a name has small letters, digits and hyphens, such as 'int-training-error'")


def _rounded(value, decimals):
    return f"{round(float(value), decimals) + 0.0:.{decimals}f}"


def _checked(name, answers):
    texts = [answer.text for answer in answers]
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice:
        raise ValueError(f"quiz {name}: two of its answers are the same: {', '.join(twice)}")
    for answer in answers:
        if not answer.text or not answer.why:
            raise ValueError(f"quiz {name}: the answer {answer.text!r} lacks its text or its explanation")
    return tuple(answers)


def _place(name, answers):
    """Return the sort key: the number at the start of the text if all have one, else a hash of name and text."""
    numbers = {one: re.match(r"\$?([-−]?\d[\d,]*(?:\.\d+)?)(?![\w.])", one.text) for one in answers}
    if all(numbers.values()):
        return lambda one: float(numbers[one][1].replace(",", "").replace("−", "-"))
    return lambda one: hashlib.sha256(f"{name} {one.text}".encode()).digest()


def _html(text):
    """Convert a line of Markdown to HTML, with formulas in the form that both Sphinx and JupyterLab typeset."""
    return _MARKDOWN.renderInline(" ".join(text.split()))


def _formula(text, options):
    left, right = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
    return f"{left}{escape(text)}{right}"


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).use(dollarmath_plugin, allow_labels=False, renderer=_formula)
