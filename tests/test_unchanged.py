"""A test is left out if and only if it passed before with the same inputs."""

import subprocess
import sys

import pytest

import unchanged
from paths import COURSES, LABS, ROOT

LAB, OTHER = LABS[:2]


def inputs(nodeid):
    return set(unchanged.inputs_of(unchanged.unit_of(nodeid)))


def test_a_test_of_one_lab_has_no_other_lab_among_its_inputs():
    own = inputs(f"tests/labs/test_answers.py::test_right_answers_keep_every_point[{LAB}]")
    assert {f"solutions/{LAB}.md", f"tests/answers/{LAB}.yml", "mlcourse/checks.py"} <= own
    assert not [name for name in own if OTHER in name]


def test_labs_that_share_a_course_are_inputs_of_one_another():
    own = inputs(f"tests/labs/test_labs.py::test_nothing_secret_reaches_the_student_notebook[{LAB}]")
    assert {lab for lab in LABS if f"solutions/{lab}.md" in own} == set(next(some for some in COURSES if LAB in some))


@pytest.mark.parametrize(
    ("file", "folders"),
    [
        ("coursegrader/sandbox.py", {"grading", "labs", "browser"}),
        ("coursebook/site/lists.py", {"book", "browser"}),
        ("book/introduction/index.md", {"book", "browser"}),
        ("mlcourse/checks.py", {"helper", "book", "grading", "labs", "browser"}),
        ("tests/hostile.yml", {"grading", "labs", "browser"}),
        ("requirements.lock", {"helper", "book", "grading", "labs", "browser"}),
    ],
)
def test_a_change_runs_the_tests_of_the_rooms_that_depend_on_it(file, folders):
    tests = {folder: next((ROOT / "tests" / folder).glob("test_*.py")).name for folder in unchanged.FOLDERS}
    assert {folder for folder, name in tests.items() if file in inputs(f"tests/{folder}/{name}::test")} == folders


def test_a_notebook_depends_on_itself_and_on_what_labs_import():
    own = inputs(f"source/{LAB}/{LAB}.ipynb::Cell 0")
    assert {"mlcourse/checks.py", "data/README.md", "requirements.lock"} <= own
    assert not [name for name in own if name.startswith(("course", "tests", "solutions"))]


PASSES = "import pathlib\ndef test_it(): assert int(pathlib.Path(__file__).with_name('number.txt').read_text()) < 5\n"


@pytest.fixture
def repository(tmp_path):
    """A repository with one test that reads a number, and a function that runs it and returns pytest's output."""
    (tmp_path / "tests").mkdir()
    for name in ("unchanged.py", "paths.py"):
        (tmp_path / "tests" / name).write_text((ROOT / "tests" / name).read_text())
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["tests"]\n')
    (tmp_path / "_toc.yml").write_text("parts: []\n")
    (tmp_path / ".gitignore").write_text("_build/\n__pycache__/\n.pytest_cache/\n")
    (tmp_path / "tests" / "test_number.py").write_text(PASSES)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)

    def run(number, *options):
        (tmp_path / "tests" / "number.txt").write_text(str(number))
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "--changed", *options, "tests"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()[-1]

    return run


def test_what_passed_is_left_out_until_an_input_changes_and_what_failed_is_not(repository):
    assert "1 passed" in repository(1)[1]
    code, said = repository(1)
    assert code == 0 and "1 passed" not in said
    assert "1 passed" in repository(2)[1]
    for _ in range(2):
        code, said = repository(7)
        assert code == 1 and "1 failed" in said
    assert "1 passed" in repository(2)[1]


def test_quick_leaves_out_what_takes_long_and_finds_nothing_wrong_with_nothing_to_do(repository):
    assert "1 passed" in repository(1, "--quick")[1]
    assert unchanged.is_quick("tests/helper/test_quiz.py::test") and unchanged.is_quick("tests/test_style.py::test")
    assert not unchanged.is_quick("tests/browser/test_site.py::test")
    assert repository(1, "--quick", "--ignore", "tests/test_number.py")[0] == 0


def test_quick_looks_at_the_lab_and_the_chapter_that_are_not_committed(monkeypatch):
    monkeypatch.setattr(unchanged, "uncommitted", lambda: {f"solutions/{LAB}.md", "book/introduction/index.md"})
    tests = "tests/labs/test_answers.py::test_right_answers_keep_every_point[{}]", "source/{0}/{0}.ipynb::Cell 0"
    for test in tests:
        assert unchanged.is_quick(test.format(LAB)) and not unchanged.is_quick(test.format(OTHER))
    assert unchanged.is_quick("_build/notebooks/introduction/index.ipynb::Cell 0")
    assert not unchanged.is_quick("_build/notebooks/linear-models/index.ipynb::Cell 0")


# --- at night ---------------------------------------------------------------------------------------------------------


PAGE = "tests/browser/test_site.py::test_a_page[book/introduction/index]"
MUTANTS = f"tests/labs/test_answers.py::test_every_mutant_is_caught_or_explained[{LAB}]"
HUB = "tests/browser/test_hub.py::test_only_the_instructor_and_students_get_in"


class Item:
    def __init__(self, nodeid, *markers):
        self.nodeid, self.markers = nodeid, markers

    def get_closest_marker(self, name):
        return name if name in self.markers else None


@pytest.mark.parametrize(
    ("nodeid", "its_own", "another"),
    [
        (PAGE, "book/introduction/index.md", "book/introduction/loss.md"),
        (MUTANTS, f"tests/answers/{LAB}.yml", f"tests/answers/{OTHER}.yml"),
        (HUB, "deploy/jupyterhub/jupyterhub_config.py", "coursegrader/grade.py"),
    ],
    ids=["page", "lab", "hub"],
)
def test_what_is_marked_nightly_waits_unless_what_it_is_about_is_not_committed(monkeypatch, nodeid, its_own, another):
    monkeypatch.setattr(unchanged, "NIGHTLY", False)
    for changed, waits in {another: True, its_own: False}.items():
        monkeypatch.setattr(unchanged, "uncommitted", lambda changed=changed: {changed})
        assert unchanged.waits_for_the_night(Item(nodeid, "nightly")) == waits
        assert not unchanged.waits_for_the_night(Item(nodeid))


def test_at_night_nothing_waits(monkeypatch):
    monkeypatch.setattr(unchanged, "uncommitted", set)
    for night in (True, False):
        monkeypatch.setattr(unchanged, "NIGHTLY", night)
        assert unchanged.waits_for_the_night(Item(HUB, "nightly")) != night


def test_at_night_all_names_are_taken_and_by_day_a_few(monkeypatch):
    for night, marked in {False: ["b", "c"], True: ["a", "b", "c"]}.items():
        monkeypatch.setattr(unchanged, "NIGHTLY", night)
        assert [one.values[0] for one in unchanged.nightly_but("a", "abc") if one != "a"] == marked
