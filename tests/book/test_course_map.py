"""The course map: its facts from chapters and labs, and its errors if they are missing."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from coursebook import course_map

CHAPTER = """(sec-soils)=
# Soils

:::{admonition} What you will be able to do
:class: objectives

- **SO-1** Tell sand from clay by feeling,
  and say why. Taught in [](#sec-feeling),
  [](#sec-why).
- **SO-2** Draw a profile. Taught in [](#sec-why).

**Lab:** [Soils](#lab-01).
:::

{{ pages }}
"""
PAGE = """(sec-feeling)=
# By hand

*About 75 minutes.* Optional: nothing later needs this page.

:::{exercise-start} By hand
:label: SO-E1
:::
*Objectives SO-1 and SO-2.* Feel.
:::{exercise-end}
:::

```{code-cell} ipython3
:tags: [quiz, remove-input]
quiz.choice("sand", "Is it sand?", ("yes", True, "It is."), ("no", False, "It is."))
```

```{code-cell} ipython3
:tags: [quiz, remove-input]
quiz.number(
    "grains",
    "How many grains?", 3, "Count.", (2, "One is lost."))
```
"""
TEXT = """# Lab 1 · Soils

| **Time** | about 40 minutes |

## Exercise 1 · Sand

*2 points,
objective SO-1*
"""
GRADER = {"grade_id": "feel-1", "grade": True, "solution": False, "points": 2}
CELLS = [new_markdown_cell(TEXT), new_code_cell("assert True", metadata={"nbgrader": GRADER})]
LAB = nbformat.writes(new_notebook(cells=CELLS), ensure_ascii=False)


@pytest.fixture
def course(tmp_path):
    (tmp_path / "_toc.yml").write_text(
        "parts:\n- numbered: true\n  chapters:\n  - file: book/soils/index\n"
        "    sections:\n    - file: book/soils/feeling\n"
    )
    for name, text in (
        ("book/soils/index.md", CHAPTER),
        ("book/soils/feeling.md", PAGE),
        ("labs/lab-01-soils/lab-01-soils.ipynb", LAB),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_an_objective_comes_with_the_sections_that_teach_it_and_all_that_checks_it(course):
    text = course_map.fill("{{ objectives }}", root=course)
    assert text.startswith("### Soils\n")
    first, second = text.split("**SO-")[1:]
    assert first.startswith("1** Tell sand from clay by feeling, and say why.\n")
    assert "[](#sec-feeling), [](#sec-why)" in first and "{numref}`SO-E1`" in first
    assert "[Lab 1](#lab-01), exercise 1 · Sand (2 points): `feel-1` (2)." in first
    assert "{numref}`SO-E1`" in second and "Lab 1" not in second


@pytest.mark.parametrize(("label", "labs"), [("sec-soils", "lab 1"), ("all", "1 labs")])
def test_the_first_page_has_the_hours_of_each_chapter_and_of_its_labs(course, label, labs):
    text = course_map.fill(f"{{{{ hours of {label} }}}}", root=course)
    assert without_progress(text) == f"1½ h to read, ½ h for {labs}"


def test_hours_of_a_chapter_that_does_not_exist_are_refused(course):
    with pytest.raises(ValueError, match="hours of sec-snow: no chapter"):
        course_map.fill("{{ hours of sec-snow }}", root=course)


def test_the_pages_of_a_chapter_are_listed_with_their_minutes_and_its_labs(course):
    text = course_map.fill(CHAPTER, "book/soils/index", course)
    assert "| [](#sec-feeling) (optional) | 75 |\n| [](#lab-01) | 40 |" in without_progress(text)


@pytest.mark.parametrize(
    ("text", "page"), [("{{ hours of sec-soils }}", "book/index"), ("{{ pages }}", "book/soils/index")]
)
def test_cards_and_tables_name_the_questions_that_a_reader_can_answer(course, text, page):
    assert 'data-questions="sand grains"' in course_map.fill(text, page, course)


def without_progress(text):
    return re.sub(" <small.*?</small>", "", text)


def test_the_page_of_a_lab_has_its_story_and_its_tasks_but_no_code_and_no_check(course):
    text = course_map.fill("{{ lab }}", "book/labs/lab-01-soils", course)
    assert "## Exercise 1 · Sand" in text and "| **Time** | about 40 minutes |" in text and "[SO-1](#" in text
    assert "assert" not in text and "# Lab 1" not in text.splitlines()


def test_a_page_that_asks_for_nothing_stays_as_it_is(course):
    assert course_map.fill("# Soils\n", root=course) == "# Soils\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("book/soils/feeling.md", "About 75 minutes", "A while", "feeling.md: a page opens with"),
        ("book/soils/index.md", ":class: objectives", ":class: note", "index.md: a chapter opens with"),
        ("book/soils/index.md", "#lab-01", "#sec-why", "index.md: a chapter opens with"),
        ("labs/lab-01-soils/lab-01-soils.ipynb", "about 40 minutes", "a while", "lab-01-soils.ipynb: a lab opens with"),
        ("labs/lab-01-soils/lab-01-soils.ipynb", "## Exercise 1 · Sand", "Sand", "feel-1 is graded, but stands below"),
    ],
)
def test_a_source_that_lacks_what_the_map_needs_is_named(course, file, old, new, message):
    path = course / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        course_map.fill("{{ hours of all }}", root=course)
