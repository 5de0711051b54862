"""`mlcourse submit` says how far a lab is, and writes the one file to hand in."""

import errno
import json
import os
import time
from pathlib import Path

import nbformat
import pytest

from course import without_markers
from coursegrader import labs
from coursegrader.labs import grade_id, grader, read_lab
from mlcourse.cli import main
from mlcourse.student import submit
from mlcourse.student.notebooks import MAX_BYTES, has_passed, parse
from mlcourse.student.submit import judge
from paths import LABS, ROOT

LAB = LABS[0]
RIGHT = """import numpy as np

def mean_squared_error(y, y_hat):
    y, y_hat = np.asarray(y), np.asarray(y_hat)
    if y.shape != y_hat.shape:
        raise ValueError("shapes differ")
    return ((y - y_hat) ** 2).mean()
"""
NO_MEAN = RIGHT.replace("mean()", "sum()")


def released(name=LAB):
    return nbformat.read(ROOT / "labs" / name / f"{name}.ipynb", as_version=4)


def opening():
    """The first two exercises of the lab, which run quickly."""
    notebook = released()
    end = next(number for number, cell in enumerate(notebook.cells) if "## Exercise 3" in cell.source)
    del notebook.cells[end:]
    return notebook


def cell_of(notebook, name):
    return next(cell for cell in notebook.cells if grade_id(cell) == name)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A student's copy of the course with one lab as it was released and ten empty ones; it is the current folder."""
    for name in LABS:
        save(released() if name == LAB else nbformat.v4.new_notebook(), tmp_path, name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(notebook, root, name=LAB):
    path = root / "labs" / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def hand_in(capsys, *arguments):
    """Run the command and return what it prints; an error is raised with its sentence."""
    with pytest.raises(SystemExit) as exit:
        main(["submit", *arguments])
    if exit.value.code:
        raise AssertionError(exit.value.code)
    return capsys.readouterr().out


def refused(*arguments):
    """Run the command and return the sentence with which it refuses."""
    with pytest.raises(SystemExit) as exit:
        main(["submit", *arguments])
    assert str(exit.value.code).startswith("Error: ") and "\n" not in exit.value.code
    return exit.value.code


def files(root):
    folder = root / "hand-in"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def line(text, number):
    return next(line for line in text.splitlines() if line.startswith(f"Exercise {number} ·"))


def test_of_a_perfect_lab_nothing_is_open_and_the_file_is_the_notebook_as_it_was_saved(course, capsys):
    notebook, source = released(), read_lab(ROOT / "solutions" / f"{LAB}.md")
    for cell in source.cells:
        if grader(cell).get("solution"):
            cell_of(notebook, grade_id(cell)).source = without_markers(cell)
    saved = save(notebook, course).read_bytes()
    text = hand_in(capsys, LAB)
    assert line(text, 1) == "Exercise 1 · The mean squared error: 3 of 3 checks pass"
    assert line(text, 6) == "Exercise 6 · Which degree would you use?: written, marked by a person"
    assert "Your checks pass for 26 of 26 points." in text and "written answers, which have 4 points" in text
    assert "Nothing is open." in text and "  - " not in text
    assert files(course) == {f"HAND-IN-{LAB}.ipynb": saved}
    assert text.endswith(f"{course / 'hand-in' / f'HAND-IN-{LAB}.ipynb'}\nHand it in where your instructor told you.\n")


def test_of_a_half_written_lab_each_failing_check_says_its_sentence_and_the_file_is_written_all_the_same(
    course, capsys
):
    notebook = opening()
    cell_of(notebook, "mean-squared-error").source = NO_MEAN
    save(notebook, course)
    text = hand_in(capsys, "1")
    assert line(text, 1) == "Exercise 1 · The mean squared error: 1 of 3 checks pass"
    problems = [line for line in text.splitlines() if line.startswith("  - ")]
    assert len(problems) == 2 and "that is the sum of the squared errors, not their mean" in problems[0]
    assert "Traceback" not in text
    assert line(text, 2) == "Exercise 2 · The best line, in closed form: not written yet"
    assert "Your checks pass for 1 of 6 points. When your work is graded, hidden checks" in text
    assert "Still open: Exercise 1, Exercise 2. You may hand in all the same" in text
    assert list(files(course)) == [f"HAND-IN-{LAB}.ipynb"]


def test_with_check_no_file_is_written(course, capsys):
    save(opening(), course)
    text = hand_in(capsys, "lab-01", "--check")
    assert "Nothing is written in this notebook: if you wrote answers, save it" in text
    assert "No file was written" in text and files(course) == {}


def test_an_answer_that_is_no_python_is_named_and_the_other_exercises_are_checked(course, capsys):
    notebook = opening()
    cell_of(notebook, "mean-squared-error").source = RIGHT
    cell_of(notebook, "fit-line").source = "def fit_line(x, y:\n    return 1, 2"
    save(notebook, course)
    text = hand_in(capsys, LAB)
    assert "  - The cell of your answer stops: SyntaxError: " in text
    assert line(text, 1).endswith("3 of 3 checks pass") and line(text, 2).endswith("0 of 3 checks pass")


def test_an_answer_that_does_not_end_is_stopped(course, capsys, monkeypatch):
    monkeypatch.setattr(submit, "TIME_OUT", 5)
    notebook = opening()
    cell_of(notebook, "mean-squared-error").source = "while True:\n    pass"
    save(notebook, course)
    text = hand_in(capsys, LAB)
    assert "It ran for more than 5 seconds and was stopped: look for a loop that does not end." in text
    assert list(files(course)) == [f"HAND-IN-{LAB}.ipynb"]


def test_what_ends_python_ends_the_checks_and_not_the_handing_in(course, capsys):
    notebook = opening()
    cell_of(notebook, "mean-squared-error").source = RIGHT
    cell_of(notebook, "fit-line").source = "import os\nos._exit(1)"
    save(notebook, course)
    text = hand_in(capsys, LAB)
    assert "Python itself stopped in the middle of the lab" in text
    assert line(text, 1).endswith("3 of 3 checks pass") and "The check fit-line-1 did not run." in text
    assert list(files(course)) == [f"HAND-IN-{LAB}.ipynb"]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such sockets for Jupyter")
def test_no_other_user_of_the_machine_can_listen_while_a_lab_runs():
    notebook = nbformat.v4.new_notebook()
    ask = "from ipykernel.kernelapp import IPKernelApp\nit = IPKernelApp.instance()\nprint(it.transport, it.ip)"
    notebook.cells = [nbformat.v4.new_code_cell(ask)]
    [cell], stopped = submit.run(notebook)
    transport, place = cell.outputs[0].text.split()
    assert (transport, stopped) == ("ipc", None)
    assert not Path(place).parent.exists()


def test_a_module_beside_the_notebook_counts_as_little_as_in_the_grader(course, capsys):
    notebook = opening()
    cell_of(notebook, "mean-squared-error").source = "from own import mean_squared_error"
    path = save(notebook, course)
    path.with_name("own.py").write_text(RIGHT)
    text = hand_in(capsys, LAB)
    assert "No module named 'own'" in text and line(text, 1).endswith("0 of 3 checks pass")
    assert sorted(one.name for one in path.parent.iterdir()) == [path.name, "own.py"]


# What is wrong with the cells


@pytest.fixture
def passing():
    """The first two exercises of the lab as they are after a run in which every check passed."""
    notebook = opening()
    for cell in notebook.cells:
        if grader(cell).get("solution"):
            cell.source = "an answer"
        elif grader(cell).get("grade"):
            cell.outputs = [nbformat.v4.new_output("stream", text="something: passed\n")]
    return notebook


def test_a_check_that_was_deleted_is_missed_by_its_points(passing):
    passing.cells.remove(cell_of(passing, "fit-line-3"))
    first, second = judge(passing.cells)
    assert first.done and not second.done
    assert (second.passed, second.passed_points, second.points) == (2, 2, 3)
    assert second.problems == ["A check is missing, with 1 point: it is put back when your work is graded."]


def test_a_check_that_was_changed_does_not_count_as_passed(passing):
    cell_of(passing, "fit-line-2").source = "print('fit_line: passed')"
    _, second = judge(passing.cells)
    assert (second.passed, second.checks, second.passed_points) == (2, 3, 2)
    assert second.problems == ["The check fit-line-2 was changed: the check that was given decides."]


def test_a_check_that_was_turned_into_text_does_not_count_as_passed(passing):
    check = cell_of(passing, "fit-line-2")
    check.cell_type = "markdown"
    del check["outputs"], check["execution_count"]
    assert not has_passed(check)
    _, second = judge(passing.cells)
    assert (second.passed, second.checks) == (2, 3)
    assert second.problems == ["The check fit-line-2 was changed: the check that was given decides."]


@pytest.mark.parametrize("outputs", [[1], None, 5, "x", [{"output_type": "stream", "text": 5}], [{"output_type": []}]])
def test_what_stands_for_the_outputs_of_a_check_that_was_turned_into_text_does_not_matter(passing, outputs):
    check = cell_of(passing, "fit-line-2")
    check.cell_type, check.outputs = "markdown", outputs
    read = parse(json.dumps(passing).encode(), "the notebook")["cells"][passing.cells.index(check)]
    assert not has_passed(read)


def test_a_cell_that_was_copied_counts_once(passing):
    check = cell_of(passing, "fit-line-2")
    passing.cells.insert(passing.cells.index(check), check.copy())
    _, second = judge(passing.cells)
    assert (second.passed, second.checks, second.points) == (3, 3, 3)
    assert second.problems == ["The cell fit-line-2 is there more than once, and one counts: delete the copies."]


def test_an_answer_cell_that_was_deleted_is_missed(passing):
    passing.cells.remove(cell_of(passing, "fit-line"))
    _, second = judge(passing.cells)
    assert not second.done
    assert len(second.problems) == 1 and "The cell for the answer is missing" in second.problems[0]


@pytest.mark.parametrize("name", LABS)
def test_of_a_lab_as_it_was_released_no_exercise_is_written_and_nothing_is_wrong(name):
    cells = released(name).cells
    exercises = judge(cells)
    graded = [cell.metadata.nbgrader.points for cell in cells if grader(cell).get("grade")]
    assert sum(one.points for one in exercises) == sum(graded)
    assert [(one.written, one.problems) for one in exercises] == [(False, [])] * len(exercises)
    assert all(one.title.startswith(f"Exercise {number} · ") for number, one in enumerate(exercises, start=1))


def test_each_exercise_states_the_points_of_its_cells():
    for name in LABS:
        cells = released(name).cells
        without = [cell for cell in cells if not grader(cell).get("grade")]
        assert sum(one.points for one in judge(without)) == sum(one.points for one in judge(cells)), name


# The file, the lab, and where it goes


@pytest.fixture
def quick(course, monkeypatch):
    """The copy of the course, where the notebook is not run."""
    monkeypatch.setattr(submit, "run", lambda notebook: (notebook["cells"], None))
    return course


def test_a_second_file_takes_the_place_of_the_first_which_is_kept_with_its_time(quick, capsys):
    path = quick / "labs" / LAB / f"{LAB}.ipynb"
    first = path.read_bytes()
    hand_in(capsys, "1")
    written = quick / "hand-in" / f"HAND-IN-{LAB}.ipynb"
    when = time.mktime((2026, 3, 2, 10, 30, 0, 0, 0, -1))
    os.utime(written, (when, when))
    second = save(opening(), quick).read_bytes()
    text = hand_in(capsys, "1")
    older = f"{LAB}-2026-03-02-103000.ipynb"
    assert files(quick) == {written.name: second, older: first}
    assert f"is kept: {written.with_name(older)}" in text


def test_the_same_notebook_a_second_time_leaves_one_file(quick, capsys):
    hand_in(capsys, "1")
    assert "is kept" not in hand_in(capsys, "1")
    assert list(files(quick)) == [f"HAND-IN-{LAB}.ipynb"]


@pytest.mark.parametrize("name", [LAB, "lab-01", "lab-1", "1", "01", "lab-01-toy", f"labs/{LAB}/"])
def test_a_lab_is_known_by_its_name_its_beginning_its_number_and_its_folder(quick, name, capsys):
    hand_in(capsys, name)
    assert list(files(quick)) == [f"HAND-IN-{LAB}.ipynb"]


def test_a_notebook_is_handed_in_from_wherever_it_lies(quick, capsys):
    copy = quick / f"{LAB}-Copy1.ipynb"
    nbformat.write(opening(), copy)
    hand_in(capsys, copy.name)
    assert files(quick) == {f"HAND-IN-{LAB}.ipynb": copy.read_bytes()}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("99", f"there is no lab '99': the labs are {LAB}, "),
        ("toy", "there is no lab 'toy'"),
        ("lab-0", f"'lab-0' may be {LAB}, {LABS[1]}, "),
        ("", "there is no lab ''"),
        ("other.ipynb", "there is no notebook other.ipynb: name a lab"),
        ("mine.ipynb", f"mine.ipynb is not named after a lab: give it the name of its lab, such as {LAB}.ipynb"),
        ("empty-" + LAB + ".ipynb", "holds no exercise of a lab: nothing was written"),
    ],
)
def test_a_wrong_name_is_one_clear_error_and_nothing_is_written(quick, name, message):
    for path in ("mine.ipynb", f"empty-{LAB}.ipynb"):
        nbformat.write(nbformat.v4.new_notebook(), quick / path)
    assert message in refused(name)
    assert files(quick) == {}


@pytest.mark.parametrize("content", ["", "{", '{"nbformat": 3}'])
def test_a_broken_notebook_is_one_clear_error_and_nothing_is_written(course, content):
    (course / "labs" / LAB / f"{LAB}.ipynb").write_text(content)
    assert "nothing was written; open it in JupyterLab, save it, and type the same again" in refused("1")
    assert files(course) == {}


def test_a_notebook_that_is_too_large_to_be_graded_is_one_clear_error_and_nothing_is_written(course):
    path = course / "labs" / LAB / f"{LAB}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    code = next(cell for cell in notebook.cells if cell.cell_type == "code")
    code.outputs = [nbformat.v4.new_output("stream", text="x" * MAX_BYTES)]
    nbformat.write(notebook, path)
    assert "is larger than 20 MB" in (said := refused("1")) and "Clear Outputs of All Cells" in said
    assert files(course) == {}


def test_a_file_in_the_place_of_the_folder_is_one_clear_error(quick):
    (quick / "hand-in").write_text("mine")
    assert "cannot be written" in refused("1")
    assert (quick / "hand-in").read_text() == "mine"


def test_a_full_disk_leaves_the_older_file_as_it_was(quick, capsys, monkeypatch):
    hand_in(capsys, "1")
    before = files(quick)
    save(opening(), quick)

    def no_room(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(submit, "write", no_room)
    assert "cannot be written (No space left on device)" in refused("1")
    assert files(quick) == before


def test_what_a_link_in_the_place_of_the_file_points_to_stays_as_it_is(quick, capsys):
    mine = quick / "mine"
    mine.write_text("mine")
    written = quick / "hand-in" / f"HAND-IN-{LAB}.ipynb"
    written.parent.mkdir()
    written.symlink_to(mine)
    hand_in(capsys, "1")
    assert mine.read_text() == "mine" and not written.is_symlink()
    assert written.read_bytes() == (quick / "labs" / LAB / f"{LAB}.ipynb").read_bytes()


def test_the_sentence_of_the_instructor_ends_what_is_printed(quick, capsys):
    (quick / "pyproject.toml").write_text('[tool.mlcourse]\nhand-in = "Upload it in Moodle, in the task Lab 1."\n')
    assert hand_in(capsys, "1").endswith("\nUpload it in Moodle, in the task Lab 1.\n")


@pytest.mark.parametrize("setting", ["hand-in = 3", "hand-in = Moodle"])
def test_a_sentence_that_is_no_text_is_one_clear_error_and_nothing_is_written(quick, setting):
    (quick / "pyproject.toml").write_text(f"[tool.mlcourse]\n{setting}\n")
    assert "pyproject.toml" in refused("1")
    assert files(quick) == {}


@pytest.mark.parametrize("name", LABS)
def test_the_last_cell_of_a_lab_says_what_to_type_and_which_file_to_hand_in(name):
    last = released(name).cells[-1].source
    assert f"\nmlcourse submit {name}\n" in last and f"`hand-in/HAND-IN-{name}.ipynb`" in last
    assert last.endswith(submit.where_to_hand_in(ROOT))


def test_a_release_writes_the_sentence_of_the_instructor_into_the_last_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(labs, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.mlcourse]\nhand-in = "Upload it in Moodle."\n')
    assert labs.read_lab(ROOT / "solutions" / f"{LAB}.md").cells[-1].source.endswith(" Upload it in Moodle.")
