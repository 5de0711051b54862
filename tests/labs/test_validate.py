"""A validation of nbgrader, as which a student's lab runs, gives the messages of the grader."""

import re

import nbformat
import pytest
import yaml
from nbgrader.validator import Validator

from course import without_markers
from coursegrader.labs import grade_id, grader, read_lab
from coursegrader.protocol import Cell
from differences import EXPLAINED
from paths import LABS, ROOT
from unchanged import nightly_but

QUICK = nightly_but([LABS[0]], LABS)


def right_answers(source):
    return {grade_id(cell): without_markers(cell) for cell in source.cells if grader(cell).get("solution")}


def wrong_answers(name):
    """Return a wrong answer to every code exercise: the first to which the grader says the same as a notebook."""
    given = yaml.safe_load((ROOT / "tests" / "answers" / f"{name}.yml").read_text("utf-8"))
    return {
        exercise: next(one["code"] for one in answers["wrong"] if (name[:6], exercise, one["name"]) not in EXPLAINED)
        for exercise, answers in given.items()
    }


def validate(name, answers, folder):
    """Run Validate on a lab with these answers, and return its messages, by the grade_id of the test cell."""
    notebook = nbformat.read(ROOT / "labs" / name / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(grade_id(cell), cell.source)
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    result = Validator().validate(str(path))
    assert result.keys() <= {"failed"}, "given cells were changed"
    names = {cell.source.strip(): grade_id(cell) for cell in notebook.cells}
    return {names[failed["source"]]: sentence(failed["raw_error"]) for failed in result.get("failed", [])}


def grade(worker, source, answers):
    """Grade a lab with these answers in the sandbox, and return the messages of the failed test cells."""
    cells = [cell for cell in source.cells if cell.cell_type == "code"]
    tests = [
        grade_id(cell) if grader(cell).get("grade") and not grader(cell).get("solution") else None for cell in cells
    ]
    sources = [answers.get(grade_id(cell), cell.source) for cell in cells]
    result = worker.grade([Cell(text, test) for text, test in zip(sources, tests, strict=True)])
    assert not result["stopped"], result["stopped"]
    return {
        test: sentence(output["evalue"])
        for test, outputs in zip(tests, result["outputs"], strict=True)
        for output in outputs
        if test and output["output_type"] == "error"
    }


def sentence(message):
    """Return a message without its line breaks, its colours, addresses in memory and the address of the book."""
    text = " ".join(re.sub(r"\x1b\[[\d;]*m", "", message).split())
    return re.sub(r"See \S+/book/(\S+ in the book\.)", r"See \1", re.sub(r" at 0x\w+", "", text))


@pytest.mark.nightly
@pytest.mark.parametrize("name", LABS)
def test_right_answers_pass(name, tmp_path):
    assert validate(name, right_answers(read_lab(ROOT / "solutions" / f"{name}.md")), tmp_path) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("name", LABS)
def test_wrong_answers_get_the_sentences_of_the_grader(name, worker, tmp_path):
    source = read_lab(ROOT / "solutions" / f"{name}.md")
    answers = right_answers(source) | wrong_answers(name)
    said, graded = validate(name, answers, tmp_path), grade(worker, source, answers)
    assert len(said) >= len(wrong_answers(name)) / 2, "too few of the wrong answers are seen by the visible tests"
    assert said == {test: graded.get(test) for test in said}


@pytest.mark.parametrize("name", QUICK)
def test_right_answers_pass_among_wrong_ones_which_get_the_sentences_of_the_grader(name, worker, tmp_path):
    source = read_lab(ROOT / "solutions" / f"{name}.md")
    every_second = dict(list(wrong_answers(name).items())[::2])
    answers = right_answers(source) | every_second
    said, graded = validate(name, answers, tmp_path), grade(worker, source, answers)
    assert said, "none of the wrong answers is seen by the visible tests"
    assert said == {test: graded.get(test) for test in said}
    tests = {grade_id(cell): cell.source for cell in source.cells}
    assert all("### BEGIN HIDDEN TESTS" in tests[test] for test in graded.keys() - said.keys())
