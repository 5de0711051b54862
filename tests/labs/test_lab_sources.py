"""The sources of all labs follow the rules that a program can check."""

import ast
import re

import nbformat
import pytest

from coursegrader.labs import grade_id, read_lab
from mlcourse.student.notebooks import is_test
from paths import LABS, ROOT

HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", re.S)


@pytest.fixture(scope="module", params=LABS)
def lab(request):
    return read_lab(ROOT / "solutions" / f"{request.param}.md")


@pytest.fixture(scope="module", params=LABS)
def text(request):
    return (ROOT / "solutions" / f"{request.param}.md").read_text("utf-8")


@pytest.fixture(scope="module")
def exercises(text):
    found = re.findall(r"^## Exercise \d+ .*?\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found
    return found


def is_written(exercise):
    return "written answer" in exercise.strip().split("\n\n")[0]


def test_a_lab_opens_with_its_story_and_what_a_student_wants_to_know(text):
    opening = re.search(r"^# Lab \d+ · .+?\n\n(.*?)^(?=\+\+\+|## )", text, re.M | re.S)[1]
    story, table, how = re.fullmatch(r"(.*?)\n\n(\|.*?)\n\n(.*)", opening, re.S).groups()
    assert len(story.split()) >= 40
    rows = dict(re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \|$", table, re.M))
    assert list(rows) == ["Objectives", "Before you start", "Time", "Points"]
    minutes, sittings = re.fullmatch(r"about (\d+) minutes(, in two sittings: .+)?", rows["Time"]).groups()
    assert 60 <= int(minutes) / (2 if sittings else 1) <= 120
    assert "**How to work.**" in how and "**What is graded.**" in how


def test_an_exercise_gives_an_example(exercises):
    for exercise in exercises:
        assert "**Example.**" in exercise or is_written(exercise), exercise[:200]


def test_an_exercise_is_graded_by_several_cells_that_show_the_contract_and_draw_other_data(exercises):
    for exercise in exercises:
        if is_written(exercise):
            assert "### BEGIN MARK SCHEME" in exercise, f"how is this marked? {exercise[:200]}"
            continue
        tests = re.findall(r"^:nbgrader: \{grade_id: \S+, points: \d+\}\n(.*?)^```$", exercise, re.M | re.S)
        assert len(tests) >= 2, f"partial work should earn a part of the points: {exercise[:200]}"
        assert any("checks." in HIDDEN.sub("", test).partition(":\n")[2] for test in tests), exercise[:200]
        assert any(HIDDEN.search(test) for test in tests), f"nothing draws other data: {exercise[:200]}"


SCORED = {"cross_val_score", "cross_validate", "permutation_importance", "GridSearchCV", "learning_curve"}


def test_a_test_cell_believes_no_score_that_a_model_of_a_student_gives_itself(lab):
    """With ``scoring``, scikit-learn computes the score from predictions."""
    for cell in lab.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade"):
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in SCORED:
                    assert any(one.arg == "scoring" for one in node.keywords), f"{grade_id(cell)}: {ast.unparse(node)}"


def test_a_test_cell_compares_no_answer_with_what_holds_for_an_empty_array(lab):
    """``np.allclose`` does, and it takes one number for many: use `checks.alike`."""
    for cell in lab.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade"):
            calls = [ast.unparse(node) for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Attribute)]
            assert "np.allclose" not in calls, grade_id(cell)


def test_what_a_student_writes_has_a_docstring(lab):
    for cell in lab.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    assert ast.get_docstring(node), f"{grade_id(cell)}: say what {node.name} takes and returns"


def test_generators_that_are_handed_over_in_turn_draw_nothing_else(text):
    """An answer that keeps a copy of each would know the data of the tests that use the same numbers."""
    turns = [range(*map(int, ends)) for ends in re.findall(r"for (?:seed|number) in range\((\d+), (\d+)\)", text)]
    single = [range(int(number), int(number) + 1) for number in re.findall(r"checks\.(?:rng|seed)\((\d+)\)", text)]
    for i, turn in enumerate(turns):
        for other in turns[i + 1 :] + single:
            assert not set(turn) & set(other), f"{turn} and {other}: give the range numbers of its own"


@pytest.mark.parametrize("name", LABS)
def test_students_see_the_code_of_a_check_folded_and_every_other_cell_open(name):
    cells = nbformat.read(ROOT / "labs" / name / f"{name}.ipynb", as_version=4).cells
    folded = {cell.id for cell in cells if cell.metadata.get("jupyter", {}).get("source_hidden")}
    assert folded == {cell.id for cell in cells if is_test(cell) or "set-up" in cell.metadata.get("tags", [])}
