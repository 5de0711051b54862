"""A sentence that is worded as a rule about data of its page has a claim beside it, or a person has decided about it.

A list of words finds such sentences (`rules`): it is enough to ask, and ``rules.yml`` has the answers of people.
"""

import pytest

import rules
from paths import CHAPTER_PAGES

DECIDED = rules.read_decisions()
ANSWERS = {"theorem", "definition", "cited", "this draw", "advice", "how it was made"}
PAGE = """# A page

## One

```{{code-cell}} ipython3
{code}
```

{text}

## Two

Other words.
"""
SHOWN = "print(len([1]))"
CLAIM = '@general(at_least=95)\ndef claim(seed):\n    """The error always falls."""\n    return True'


def asked(text, code=SHOWN):
    return [one.kind for one in rules.open_questions(PAGE.format(text=text, code=code))]


@pytest.mark.parametrize("page", CHAPTER_PAGES)
def test_nobody_left_a_rule_or_a_reason_without_a_claim_or_a_decision(page):
    """Give the sentence a claim, word it as this draw, or write into rules.yml why it needs no claim."""
    left = rules.undecided(rules.text_of(page), DECIDED.get(page, {}))
    assert not left, "\n".join(f"- {one.kind}, {one.section.strip('# ')}: {one.text}" for one in left)


def test_every_decision_is_one_of_the_known_ones_and_belongs_to_a_sentence_that_asks():
    for page, decisions in DECIDED.items():
        asking = [one.text for one in rules.open_questions(rules.text_of(page))]
        for words, answer in decisions.items():
            assert answer in ANSWERS, f"{page}: {answer}"
            assert len({text for text in asking if text.startswith(words)}) == 1, f"{page}: {words}"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("The error always falls.", ["general"]),
        ("It is 2, since the noise is averaged.", ["reason"]),
        ("The more trees, the better it usually is, because they differ.", ["general", "reason"]),
        ("It is 2 here.", []),
        ("`any` is a function.", []),
        ("A first text.\n\nThe error always falls.", ["general"]),
        ("A first text.\n\nIt is 2, since the noise is averaged.", []),
        ("A first text.\n\n## Three\n\nThe error always falls.", []),
        ("A first text.\n\nThe error always falls, to {glue:text}`error`.", ["general"]),
        ("A first text.\n\n## Three\n\n{numref}`fig-one` shows that it always falls.", ["general"]),
        ("$$\n\\text{always}\n$$\n\n| always |\n", []),
    ],
)
def test_a_sentence_asks_if_it_is_worded_as_a_rule_or_gives_a_reason_for_what_the_page_shows(text, kinds):
    assert asked(text) == kinds


def test_a_caption_asks_too():
    figure = "---\nmystnb:\n  figure:\n    caption: The error always\n      falls.\n    name: fig-one\n---\nplt.show()"
    assert asked("Text.", figure) == ["general"]


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        (CLAIM, []),
        (CLAIM.replace("general", "reason"), ["general"]),
        (f"{CLAIM}\n```\n\n## Another section\n\n```{{code-cell}} ipython3\n{SHOWN}", ["general"]),
    ],
)
def test_a_claim_of_that_kind_in_the_same_section_answers(code, kinds):
    assert (
        asked("The error always falls.", f"{SHOWN}\n```\n\n```{{code-cell}} ipython3\n:tags: [claim]\n{code}") == kinds
    )


def test_a_decision_answers_the_sentence_that_begins_with_its_words():
    page = PAGE.format(text="The error always falls.", code=SHOWN)
    assert not rules.undecided(page, {"The error always": "theorem"})
    assert [one.text for one in rules.undecided(page, {"The error never": "theorem"})] == ["The error always falls."]
