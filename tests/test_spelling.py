"""Every word of the course is in the British dictionary of `tests/dictionary` or in the course's own list."""

import re
from functools import cache

import pytest
from spylls.hunspell import Dictionary

from paths import ROOT
from prose import words_of

PATTERNS = (
    "*.md",
    "book/**/*.md",
    "solutions/*.md",
    "data/*.md",
    "mlcourse/**/*.py",
    "course*/**/*.py",
    "course*/**/*.html.jinja",
    "course*/**/*.md.jinja",
)
SOURCES = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
WORDS = ROOT / "tests" / "words.txt"
OWN = WORDS.read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def is_british():
    return cache(Dictionary.from_files(str(ROOT / "tests" / "dictionary" / "en_GB-ise")).lookup)


@pytest.fixture(scope="module")
def used():
    """Map each word of the course to the places where it occurs."""
    places = {}
    for path in SOURCES:
        for word, number in words_of(path):
            places.setdefault(word, []).append(f"{path.relative_to(ROOT).as_posix()}:{number}")
    return places


def is_own(word):
    """Whether the list has a word; it may be capitalised, but names in the list must be."""
    return word in OWN or (word[0].isupper() and word.lower() in OWN)


def test_every_word_is_spelt_as_the_dictionary_or_the_list_of_the_course_spells_it(used, is_british):
    unknown = [f"{places[0]}: {word}" for word, places in used.items() if not is_british(word) and not is_own(word)]
    if unknown:
        pytest.fail("\n".join([*unknown, "correct these words, or add them to tests/words.txt"]), pytrace=False)


def test_the_list_is_in_order_and_holds_no_word_twice_or_in_vain(used, is_british):
    assert sorted(set(OWN), key=lambda word: (word.casefold(), word)) == OWN
    needed = {name for word in used if not is_british(word) for name in (word, word.lower())}
    assert not set(OWN) - needed, "delete what no page uses, and what the dictionary has"


def test_american_spelling_is_not_in_the_dictionary(is_british):
    for british, american in (("colour", "color"), ("minimise", "minimize"), ("modelling", "modeling")):
        assert is_british(british) and not is_british(american)


def test_what_is_no_prose_is_left_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    good = [number for number, line in enumerate(PAGE.splitlines(), start=1) for _ in re.findall("good", line)]
    assert [(word, number) for word, number in words_of(page) if word.startswith(("good", "bad"))] == [
        ("good", number) for number in good
    ]


PAGE = """---
bad: front matter
---
# good title
(bad-label)=
A {term}`good <bad>` thing {cite:p}`bad` and `bad
code` and good's $bad$ and [](#bad) [x](bad) bad.name bad_name bad() badName BAD https://bad.org/bad

$$ \\bad $$

```{code-cell} ipython3
---
mystnb:
  figure:
    caption: good caption
    name: bad
tags: [bad]
---
bad = 1  # a comment that is good
bad(bad="this is good in four words", color="bad")
f"a good {bad} text of words"
```
"""
