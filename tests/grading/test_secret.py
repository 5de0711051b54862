"""Hidden data depend on a secret of the course, so data seen on a feedback page cannot be used later."""

import json
import re
import shutil
import stat

import nbformat
import pytest
from nbgrader.apps.api import NbGraderAPI

from coursegrader import GradingError
from coursegrader.labs import grade_id, nbgrader_config, release
from coursegrader.secret import Secret
from mlcourse.cli import main
from paths import ROOT

LAB = "lab-01-double"
SOURCE = """\
---
kernelspec: {name: python3, display_name: Python 3}
---

# Doubles

```{code-cell} ipython3
:nbgrader: {grade_id: double, solution: true}
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION
```

```{code-cell} ipython3
:nbgrader: {grade_id: double-1, points: 2}
from mlcourse import checks

with checks.testing("double", see="numbers.html#double"):
    checks.number(double(3), 6, "double(3)")
    ### BEGIN HIDDEN TESTS
    x = int(checks.rng(1).integers(10**9))
    checks.number(double(x), 2 * x, f"double({x})")
    ### END HIDDEN TESTS
```
"""


@pytest.fixture
def course(tmp_path, monkeypatch, bubblewrap):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / f"{LAB}.md").write_text(SOURCE)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    release(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    """Run an instructor's command."""
    with pytest.raises(SystemExit) as exit:
        main([*words])
    assert exit.value.code == 0


def hand_in(course, student, code):
    notebook = nbformat.read(course / "labs" / LAB / f"{LAB}.ipynb", as_version=4)
    for cell in notebook.cells:
        if grade_id(cell) == "double":
            cell.source = code
    path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def graded(course, student):
    """Return the number of a student's draw, and the message of the test, if it failed."""
    notebook = nbformat.read(course / "autograded" / student / LAB / f"{LAB}.ipynb", as_version=4)
    [cell] = [cell for cell in notebook.cells if grade_id(cell) == "double-1"]
    [output] = cell.outputs
    return notebook.metadata.mlcourse.draw, output.get("evalue")


@pytest.mark.nightly
def test_what_feedback_tells_is_worth_nothing_at_the_next_hand_in(course):
    hand_in(course, "honest", "def double(x): return x + x")
    hand_in(course, "sly", "def double(x): return {3: 6}.get(x, 0)")
    run("grade", LAB)
    draw, message = graded(course, "sly")
    assert draw == 1 and graded(course, "honest") == (1, None)
    run("feedback", LAB)
    page = (course / "feedback" / "sly" / LAB / f"{LAB}.html").read_text(encoding="utf-8")
    [x] = {*re.findall(r"double\((\d{4,})\)", page)}
    assert message in page
    hand_in(course, "sly", f"def double(x): return {{3: 6, {x}: {2 * int(x)}}}.get(x, 0)")
    run("grade", LAB)
    draw, message = graded(course, "sly")
    assert draw == 2 and "got 0" in message and f"double({x})" not in message
    # Unchanged submissions keep their draw, also when all are graded again
    run("grade", LAB, "--again")
    assert graded(course, "honest") == (1, None) and graded(course, "sly") == (2, message)
    # An instructor can ask for an earlier draw, in which the table holds
    run("grade", LAB, "--draw", "1")
    assert graded(course, "sly") == (1, None)


@pytest.mark.nightly
def test_what_a_limit_of_time_decided_is_run_again_in_the_same_draw(course, capsys):
    hand_in(course, "quick", "def double(x): return x + x")
    hand_in(course, "slow", "def double(x):\n    while True: pass")
    again = "In 1 of them a limit of time decided about a cell: the same command runs those again."
    for is_tried_again in (True, True, False):
        run("grade", LAB, "--limit", "call=1", "--limit", "test=2")
        said = capsys.readouterr().out
        assert (again in said) == is_tried_again != ("for the third time: that counts" in said)
        assert graded(course, "quick") == (1, None) and "took too long" in graded(course, "slow")[1]
        run("feedback", LAB)
    assert "Graded 1 submissions" in said and "1 had not changed" in said
    assert graded(course, "slow")[0] == 1
    # The third time is the last, until a limit or the answer changes
    run("grade", LAB, "--limit", "call=1", "--limit", "test=2")
    assert "Graded 0 submissions" in capsys.readouterr().out
    run("grade", LAB, "--limit", "call=1", "--limit", "test=3")
    assert again in capsys.readouterr().out
    hand_in(course, "slow", "def double(x):\n    while x: pass")
    run("grade", LAB, "--limit", "call=1", "--limit", "test=2")
    assert again in capsys.readouterr().out


def test_nbgrader_grades_an_unchanged_submission_with_the_same_draw(course):
    api = NbGraderAPI(config=nbgrader_config(course))
    hand_in(course, "ada", "def double(x): return x + x")
    for _ in range(2):
        assert api.autograde(LAB, "ada")["success"]
        assert graded(course, "ada") == (1, None)
        run("feedback", LAB)
    run("grade", LAB)
    assert graded(course, "ada") == (1, None)
    # Once the answer changes, nbgrader's grading is the latest of three
    hand_in(course, "ada", "def double(x): return 2 * x")
    assert api.autograde(LAB, "ada")["success"]
    assert graded(course, "ada") == (2, None)
    run("feedback", LAB)
    run("grade", LAB)
    assert graded(course, "ada") == (2, None)


def test_feedback_that_is_written_twice_begins_one_new_draw(course):
    hand_in(course, "honest", "def double(x): return x + x")
    run("grade", LAB)
    for _ in range(2):
        run("feedback", LAB)
    assert json.loads((course / "secret.json").read_text())["draws"] == {LAB: 2}


def test_a_secret_is_made_once_for_the_eyes_of_its_owner(tmp_path):
    path = tmp_path / "secret.json"
    made = Secret(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Secret(path)
    assert again.words(LAB, 1) == made.words(LAB, 1)
    assert [*tmp_path.iterdir()] == [path]


def test_the_words_differ_from_course_to_course_lab_to_lab_and_draw_to_draw(tmp_path):
    courses = [Secret(tmp_path / name) for name in ("one.json", "two.json")]
    words = [course.words(lab, draw) for course in courses for lab in (LAB, "lab-02") for draw in (1, 2, 12)]
    assert len({word for some in words for word in some}) == 4 * 12
    assert all(0 <= word < 2**32 for some in words for word in some)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"secret": "x", "draws": {}}', '{"secret": "", "draws": {}}', "\0"])
def test_a_secret_that_cannot_be_read_is_an_error_and_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "secret.json"
    path.write_text(text)
    with pytest.raises(GradingError, match="bring it back from a copy, or delete the file"):
        Secret(path)
    assert path.read_text() == text


def test_a_secret_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(GradingError, match="cannot be written"):
        Secret(tmp_path / "nowhere" / "secret.json")
