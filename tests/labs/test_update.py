"""`mlcourse update` installs new versions of the labs, and keeps everything that a student wrote."""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbgrader.utils import compute_checksum

from coursegrader.labs import _cell_id, grade_id
from mlcourse.cli import main
from mlcourse.student import notebooks
from mlcourse.student import update as module
from mlcourse.student.notebooks import as_given, has_passed, is_test
from mlcourse.student.update import merge
from paths import LABS, ROOT

LAB, OTHER = LABS[:2]
ANSWER = "def mean_squared_error(y, y_hat):\n    return ((y - y_hat) ** 2).mean()"
WRITTEN = "Degree 5, since its test error is the lowest."


def released(name=LAB):
    return nbformat.read(ROOT / "labs" / name / f"{name}.ipynb", as_version=4)


def cell_of(notebook, name):
    return next(cell for cell in notebook.cells if grade_id(cell) == name)


def save(notebook, folder, name=LAB):
    path = folder / "labs" / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def solved(name=LAB):
    """Return the lab as a student left it: two answers, an example changed, a note and an experiment added."""
    notebook = released(name)
    cell_of(notebook, "mean-squared-error").source = ANSWER
    cell_of(notebook, "best-degree").source = WRITTEN
    example = next(cell for cell in notebook.cells if cell.cell_type == "code" and "training points" in cell.source)
    example.source = example.source.replace('"o"', '"s"')
    place = notebook.cells.index(cell_of(notebook, "mean-squared-error")) + 1
    notebook.cells.insert(place, nbformat.v4.new_code_cell("mean_squared_error(np.ones(3), np.zeros(3))"))
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell("Ask about the intercept."))
    return notebook


def next_version(name=LAB, given=()):
    """Return a new version of the lab: another opening, a corrected test, and other given text in some exercises."""
    notebook = released(name)
    notebook.cells[0].source += "\n\nNew this term: a word on units."
    test = next(cell for cell in notebook.cells if grade_id(cell) and cell.metadata.nbgrader.locked)
    test.source += "\n# mended"
    for exercise in given:
        cell_of(notebook, exercise).source += "\n# one line more"
    return stamped(notebook)


def stamped(notebook):
    """Set the checksum or identifier of every cell as a release does."""
    seen = {}
    for cell in notebook.cells:
        if grade_id(cell):
            cell.metadata.nbgrader.checksum = compute_checksum(cell)
        cell.id = _cell_id(cell, seen)
    return notebook


@pytest.fixture
def copy_of_course(tmp_path, monkeypatch):
    """A copy of the course that is not a clone, with one lab begun; it is the current folder."""
    folder = tmp_path / "course"
    save(solved(), folder)
    monkeypatch.chdir(folder)
    return folder


def update(*arguments):
    """Run the command and return its exit: 0, or the message."""
    with pytest.raises(SystemExit) as exit:
        main(["update", *map(str, arguments)])
    return exit.value.code


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


# One lab


@pytest.mark.parametrize("name", LABS)
def test_a_released_lab_is_recognised_as_given_and_merging_it_with_itself_gives_its_bytes(name):
    path = ROOT / "labs" / name / f"{name}.ipynb"
    notebook = notebooks.read(path)
    assert all(as_given(cell) for cell in notebook["cells"])
    assert merge(notebook, notebook, path).text == path.read_text(encoding="utf-8")


def test_solved_cells_changed_examples_and_added_cells_stay_and_given_cells_are_new(copy_of_course, tmp_path):
    save(next_version(), tmp_path / "new")
    before = solved()
    assert update(tmp_path / "new") == 0
    after = nbformat.read(copy_of_course / "labs" / LAB / f"{LAB}.ipynb", as_version=4)
    nbformat.validate(after)
    new = next_version()
    expected = [cell.source for cell in before.cells]
    replaced = {old.source: cell.source for old, cell in zip(released().cells, new.cells, strict=True)}
    assert [cell.source for cell in after.cells] == [replaced.get(source, source) for source in expected]
    assert cell_of(after, "mean-squared-error").metadata == cell_of(new, "mean-squared-error").metadata


def test_an_exercise_that_both_changed_shows_both(copy_of_course, tmp_path, capsys):
    new = next_version(given=["mean-squared-error", "fit-line"])
    save(new, tmp_path / "new")
    assert update(tmp_path / "new") == 0
    assert "both are shown: mean-squared-error" in capsys.readouterr().out
    path = copy_of_course / "labs" / LAB / f"{LAB}.ipynb"
    after = nbformat.read(path, as_version=4)
    place = after.cells.index(cell_of(after, "mean-squared-error"))
    assert after.cells[place].source == ANSWER
    assert cell_of(new, "mean-squared-error").source in after.cells[place - 1].source
    assert cell_of(after, "fit-line").source == cell_of(new, "fit-line").source
    once = path.read_bytes()
    assert update(tmp_path / "new") == 0
    assert path.read_bytes() == once, "the second time there is nothing to do"
    save(next_version(given=["mean-squared-error"] * 2), tmp_path / "new")
    assert update(tmp_path / "new") == 0
    assert sum("`mlcourse update`" in source for source in sources(path)) == 1, "the older note is replaced"


def test_an_answer_to_an_exercise_that_is_gone_stays_as_the_students_own_cell(copy_of_course, tmp_path, capsys):
    new = next_version()
    new.cells = [cell for cell in new.cells if not str(grade_id(cell)).startswith("mean-squared-error")]
    save(new, tmp_path / "new")
    assert update(tmp_path / "new") == 0
    assert "your cell is kept: mean-squared-error" in capsys.readouterr().out
    after = nbformat.read(copy_of_course / "labs" / LAB / f"{LAB}.ipynb", as_version=4)
    (kept,) = [cell for cell in after.cells if cell.source == ANSWER]
    assert not kept.metadata


def test_an_answer_to_an_exercise_that_became_a_given_cell_stays_below_it(copy_of_course, tmp_path):
    new = next_version()
    cell_of(new, "mean-squared-error").metadata.nbgrader.update(solution=False, locked=True)
    save(stamped(new), tmp_path / "new")
    assert update(tmp_path / "new") == 0
    after = nbformat.read(copy_of_course / "labs" / LAB / f"{LAB}.ipynb", as_version=4)
    place = after.cells.index(cell_of(after, "mean-squared-error"))
    assert after.cells[place].source == cell_of(new, "mean-squared-error").source
    assert after.cells[place + 1].source == ANSWER and not after.cells[place + 1].metadata


def test_of_two_answers_to_an_exercise_the_last_counts_and_both_stay(copy_of_course, tmp_path):
    mine = solved()
    again = copy.deepcopy(cell_of(mine, "mean-squared-error"))
    again.update(source=f"{ANSWER}  # better", id="copied")
    mine.cells.append(again)
    path = save(mine, copy_of_course)
    save(next_version(), tmp_path / "new")
    assert update(tmp_path / "new") == 0
    after = nbformat.read(path, as_version=4)
    assert [cell.source for cell in after.cells if grade_id(cell) == "mean-squared-error"] == [again.source]
    assert ANSWER in sources(path)


def test_results_stay_where_nothing_changed_and_a_mended_test_has_none(copy_of_course, tmp_path):
    mine = solved()
    for cell in mine.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", text="it: passed\n")]
    path = save(mine, copy_of_course)
    save(next_version(), tmp_path / "new")
    assert update(tmp_path / "new") == 0
    tests = [cell for cell in notebooks.read(path)["cells"] if is_test(cell)]
    assert [has_passed(cell) for cell in tests] == ["# mended" not in cell["source"] for cell in tests]


def random_release(draw):
    """Return a small lab with a random selection and order of eight exercises and eight texts."""
    cells = []
    for number in draw.sample(range(8), draw.randint(3, 8)):
        version = draw.choice("ab")
        answer = {"solution": True, "locked": False, "grade": False}
        for name, role, text in [
            (f"exercise-{number}", answer, f"# write {number}{version}"),
            (
                f"exercise-{number}-1",
                {"solution": False, "locked": True, "grade": True, "points": 1},
                f"# test {number}",
            ),
        ]:
            metadata = {"nbgrader": {"schema_version": 3, "cell_type": "code", "task": False, "grade_id": name, **role}}
            cells.append(nbformat.v4.new_code_cell(text + draw.choice(["", " new"]), metadata=metadata))
    for number in range(8):
        text = nbformat.v4.new_markdown_cell(f"Text {number}{draw.choice('abc')}")
        cells.insert(draw.randint(0, len(cells)), text)
    return stamped(nbformat.v4.new_notebook(cells=cells))


def work_on(notebook, draw):
    """Change a released lab in all the ways in which students do, and return the text that was added."""
    written = []
    for cell in list(notebook.cells):
        locked = grade_id(cell) and cell.metadata.nbgrader.locked
        text = f"mine {len(written)}"
        happens = draw.random()
        if happens < 0.3 and not locked:
            cell.source = text
        elif happens < 0.5:
            notebook.cells.insert(draw.randint(0, len(notebook.cells)), nbformat.v4.new_code_cell(text))
        elif happens < 0.55 and not locked:
            notebook.cells.append(nbformat.from_dict({**cell, "source": text, "id": f"copy-{len(written)}"}))
        elif happens < 0.6:
            notebook.cells.remove(cell)
            continue
        elif happens < 0.65:
            notebook.cells.insert(0, notebook.cells.pop(notebook.cells.index(cell)))
            continue
        else:
            continue
        written.append(text)
    return [text for text in written if any(cell.source == text for cell in notebook.cells)]


@pytest.mark.parametrize("seed", range(100))
def test_whatever_both_sides_do_every_word_of_the_student_is_there_afterwards(seed, tmp_path):
    draw = random.Random(seed)
    mine, new = random_release(draw), random_release(draw)
    written = work_on(mine, draw)
    both = [notebooks.parse(nbformat.writes(notebook), "trial") for notebook in (mine, new)]
    after = nbformat.reads(merge(*both, tmp_path).text, as_version=4)
    nbformat.validate(after)
    texts = [cell.source for cell in after.cells]
    assert [text for text in written if text not in texts] == []
    graded = [grade_id(cell) for cell in after.cells if grade_id(cell)]
    assert graded == [grade_id(cell) for cell in new.cells if grade_id(cell)]
    for cell in new.cells:
        if grade_id(cell) and cell.metadata.nbgrader.locked:
            assert cell_of(after, grade_id(cell)) | {"execution_count": None} == cell
    assert len({cell.id for cell in after.cells}) == len(after.cells)
    again = merge(notebooks.parse(nbformat.writes(after), "trial"), both[1], tmp_path)
    assert [cell["source"] for cell in json.loads(again.text)["cells"]] == [
        cell["source"] for cell in json.loads(nbformat.writes(after))["cells"]
    ]


# Where new labs come from


def test_a_zip_archive_of_the_repository_is_read_and_a_new_lab_is_added(copy_of_course, tmp_path, capsys):
    archive = tmp_path / "course.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in (LAB, OTHER):
            notebook = nbformat.writes(next_version(name))
            file.writestr(f"course-main/labs/{name}/{name}.ipynb", notebook)
            file.writestr(f"course-main/source/{name}/{name}.ipynb", "the instructor's")
    assert update(archive) == 0
    said = capsys.readouterr().out
    assert f"{LAB}: updated, 2 answers kept." in said and f"{OTHER}: new." in said
    assert sources(copy_of_course / "labs" / OTHER / f"{OTHER}.ipynb")[0].endswith("a word on units.")


def test_what_was_there_before_lies_beside_it(copy_of_course, tmp_path, capsys):
    path = copy_of_course / "labs" / LAB / f"{LAB}.ipynb"
    before = path.read_bytes()
    save(next_version(), tmp_path / "new")
    assert update(tmp_path / "new") == 0
    (backup,) = path.parent.glob(f"before-update-*/{LAB}.ipynb")
    assert backup.read_bytes() == before and backup.parent.name in capsys.readouterr().out


BROKEN = {
    "empty": b"",
    "cut off": nbformat.writes(released())[:5000].encode(),
    "conflict markers": b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> origin/main\n",
    "no notebook": b"[1, 2]",
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "an identifier that is a list": b'{"nbformat": 4, "metadata": {}, "cells": '
    b'[{"cell_type": "code", "metadata": {}, "source": "", "id": ["x"]}]}',
    "cells of text": b'{"nbformat": 4, "metadata": {}, "cells": ["print(1)"]}',
    "an old format": b'{"nbformat": 3, "metadata": {}, "worksheets": []}',
    "half a character": b'{"nbformat": 4, "metadata": {}, "cells": '
    b'[{"cell_type": "code", "metadata": {}, "source": "\\ud800"}]}',
    "strange points": b'{"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": "", "metadata": '
    b'{"nbgrader": {"grade_id": "a", "grade": true, "points": []}}}]}',
    "more points than a number can be": b'{"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": '
    b'"", "metadata": {"nbgrader": {"grade_id": "a", "grade": true, "points": 1' + b"0" * 400 + b"}}}]}",
    "nested more deeply than nbformat reads": b'{"nbformat": 4, "cells": [], "metadata": '
    b'{"x": ' + b"[" * 600 + b"]" * 600 + b"}}",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_notebook_is_one_clear_error_and_nothing_changes(copy_of_course, tmp_path, kind):
    path = copy_of_course / "labs" / OTHER / f"{OTHER}.ipynb"
    path.parent.mkdir()
    path.write_bytes(BROKEN[kind])
    for name in (LAB, OTHER):
        save(next_version(name), tmp_path / "new", name)
    before = contents(copy_of_course)
    said = update(tmp_path / "new")
    assert said.startswith("Error: ") and "nothing has been changed" in said and str(path) in said
    assert "rename" in said and len(said.splitlines()) == 1
    assert contents(copy_of_course) == before
    path.unlink()
    (tmp_path / "new" / "labs" / OTHER / f"{OTHER}.ipynb").write_bytes(BROKEN[kind])
    said = update(tmp_path / "new")
    assert f"the new {OTHER}" in said and "nothing has been changed" in said
    assert not path.exists() and contents(copy_of_course) == {key: before[key] for key in before if OTHER not in key}


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".git/" not in str(path)}


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing.zip", "there is no file or folder"), ("text.zip", "not a zip archive"), ("empty", "holds no labs")],
)
def test_a_source_without_labs_is_one_clear_error(copy_of_course, tmp_path, name, message):
    (tmp_path / "text.zip").write_text("no archive")
    (tmp_path / "empty").mkdir()
    said = update(tmp_path / name)
    assert message in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("kind", ["an archive", "a folder"])
def test_a_lab_that_is_larger_than_any_is_one_clear_error(copy_of_course, tmp_path, kind):
    path, size = f"labs/{LAB}/{LAB}.ipynb", 20 * 2**20 + 1
    source = tmp_path / "new.zip"
    if kind == "an archive":
        with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(path, b" " * size)
    else:
        (source / path).parent.mkdir(parents=True)
        (source / path).write_bytes(b" " * size)
    before = contents(copy_of_course)
    said = update(source)
    assert "is larger than 20 MB" in said and "nothing has been changed" in said and len(said.splitlines()) == 1
    assert contents(copy_of_course) == before


@pytest.mark.parametrize("fault", ["damaged", "encrypted", "packed in an unknown way"])
def test_an_archive_whose_files_cannot_be_read_is_one_clear_error(copy_of_course, tmp_path, fault):
    archive = tmp_path / "course.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"labs/{LAB}/{LAB}.ipynb", nbformat.writes(released()))
    content = bytearray(archive.read_bytes())
    listed = content.index(b"PK\x01\x02")
    if fault == "damaged":
        content[100:200] = bytes(100)
    elif fault == "encrypted":
        content[listed + 8] |= 1
    else:
        content[listed + 10] = 99
    archive.write_bytes(content)
    before = contents(copy_of_course)
    said = update(archive)
    assert "is not a zip archive that can be read" in said and len(said.splitlines()) == 1
    assert contents(copy_of_course) == before


def test_outside_the_course_and_without_git_it_says_what_to_do(copy_of_course, tmp_path, monkeypatch):
    assert "name the folder or the zip archive" in update()
    monkeypatch.chdir(tmp_path)
    assert "is not the folder of the course" in update()


# By git


def git(folder, *arguments):
    names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *names, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A student's clone of a course with two labs, one of them begun; it is the current folder."""
    origin = tmp_path / "origin"
    for name in (LAB, OTHER):
        save(released(name), origin, name)
    (origin / "README.md").write_text("The course\n")
    shutil.copy(ROOT / ".gitignore", origin)
    git(origin, "init", "--quiet")
    commit(origin)
    git(tmp_path, "clone", "--quiet", "origin", "clone")
    save(solved(), tmp_path / "clone")
    monkeypatch.chdir(tmp_path / "clone")
    for name, value in {"NAME": "A", "EMAIL": "a@example.org"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    return tmp_path / "clone"


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=next")


def publish(origin, given=()):
    for name in (LAB, OTHER):
        save(next_version(name, given if name == LAB else ()), origin, name)
    (origin / "README.md").write_text("The course, mended\n")
    (origin / "helper.py").write_text("x = 1\n")
    commit(origin)


@pytest.mark.parametrize("committed", [False, True])
def test_a_clone_is_brought_up_to_date_as_a_whole_with_the_answers_kept(clone, committed, capsys):
    if committed:
        commit(clone)
    publish(clone.parent / "origin", given=["mean-squared-error"])
    assert update() == 0
    assert f"{LAB}: updated, 2 answers kept." in capsys.readouterr().out
    assert (clone / "README.md").read_text() == "The course, mended\n" and (clone / "helper.py").exists()
    mine = sources(clone / "labs" / LAB / f"{LAB}.ipynb")
    assert {ANSWER, WRITTEN, "Ask about the intercept."} <= set(mine)
    assert "New this term" in mine[1]
    theirs = clone.parent / "origin" / "labs" / OTHER / f"{OTHER}.ipynb"
    assert (clone / "labs" / OTHER / f"{OTHER}.ipynb").read_bytes() == theirs.read_bytes()
    assert git(clone, "status", "--porcelain").split() == ["M", f"labs/{LAB}/{LAB}.ipynb"], "and no backup is listed"
    assert update() == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize("committed", [False, True])
def test_in_a_clone_a_lab_of_which_only_tags_are_new_stays_as_the_student_left_it(clone, committed, monkeypatch):
    if committed:
        commit(clone)
    origin, mine = clone.parent / "origin", clone / "labs" / LAB / f"{LAB}.ipynb"
    tagged = released(LAB)
    for cell in tagged.cells:
        cell.metadata["tags"] = ["new"]
    save(tagged, origin)
    (origin / "README.md").write_text("The course, mended\n")
    commit(origin)
    before, merge, backups = mine.read_bytes(), module._merge, []

    def merge_with_a_look(*arguments):  # what is there if the program is killed now
        backups.extend(path.read_bytes() for path in mine.parent.glob("before-update-*/*.ipynb"))
        merge(*arguments)

    monkeypatch.setattr(module, "_merge", merge_with_a_look)
    assert update() == 0
    assert mine.read_bytes() == before and (clone / "README.md").read_text() == "The course, mended\n"
    assert backups == [before] and not [*mine.parent.glob("before-update-*")]


def test_in_a_clone_a_file_beside_a_lab_that_both_changed_alike_costs_no_backup(clone):
    origin, mine = clone.parent / "origin", clone / "labs" / LAB / f"{LAB}.ipynb"
    publish(origin, given=["mean-squared-error"])
    for root in (origin, clone):
        (root / "labs" / LAB / "notes.txt").write_text("the same")
        git(root, "add", "--force", f"labs/{LAB}/notes.txt")
        commit(root)
    before = mine.read_bytes()
    assert update() == 0
    assert [path.read_bytes() for path in mine.parent.glob("before-update-*/*")] == [before]


@pytest.mark.parametrize("committed", [False, True])
def test_in_a_clone_a_broken_notebook_leaves_everything_as_it_was(clone, committed):
    (clone / "labs" / LAB / f"{LAB}.ipynb").write_bytes(BROKEN["cut off"])
    if committed:
        commit(clone)
    publish(clone.parent / "origin")
    before, head = contents(clone), git(clone, "rev-parse", "HEAD")
    assert "nothing has been changed" in update()
    assert contents(clone) == before and git(clone, "rev-parse", "HEAD") == head


def test_another_file_that_both_changed_is_left_to_the_student(clone):
    (clone / "README.md").write_text("My course\n")
    publish(clone.parent / "origin")
    before = contents(clone)
    said = update()
    assert "both changed README.md" in said and contents(clone) == before
    (typed,) = [part for part in said.split("`") if part.startswith("git ")]
    git(clone, *typed.split()[1:])
    assert update() == 0
    assert (clone / "README.md").read_text() == "The course, mended\n"


@pytest.mark.parametrize("committed", [False, True])
def test_a_lab_that_the_course_deleted_stays_with_its_answers_and_later_updates_work(clone, committed):
    if committed:
        commit(clone)
    origin, mine = clone.parent / "origin", clone / "labs" / LAB / f"{LAB}.ipynb"
    before = mine.read_bytes()
    git(origin, "rm", "--quiet", "-r", f"labs/{LAB}")
    commit(origin)
    assert update() == 0
    assert mine.read_bytes() == before
    (origin / "README.md").write_text("The course, mended\n")
    commit(origin)
    assert update() == 0
    assert mine.read_bytes() == before and (clone / "README.md").read_text() == "The course, mended\n"


def test_a_file_in_the_place_of_a_lab_of_the_student_changes_nothing(clone):
    origin, before = clone.parent / "origin", contents(clone)
    git(origin, "rm", "--quiet", "-r", f"labs/{LAB}")
    (origin / "labs" / LAB).write_text("moved")
    git(origin, "add", "--force", "labs")  # git ignores it
    commit(origin)
    said = update()
    assert f"the course has a file labs/{LAB} where you have a folder" in said and contents(clone) == before
    (clone / "labs" / LAB).rename(clone / "labs" / "mine")
    assert update() == 0
    assert (clone / "labs" / "mine" / f"{LAB}.ipynb").read_bytes() == before[str(clone / f"labs/{LAB}/{LAB}.ipynb")]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are Unicode")
def test_a_file_whose_name_is_no_text_does_not_stop_an_update(clone):
    publish(clone.parent / "origin")
    mine = os.path.join(os.fsencode(clone), b"caf\xe9.txt")
    with open(mine, "w", encoding="utf-8") as file:
        file.write("mine")
    assert update() == 0
    assert (clone / "helper.py").exists() and os.path.exists(mine)


def test_in_a_hook_of_git_the_update_is_that_of_the_folder(clone, monkeypatch):
    publish(clone.parent / "origin")
    monkeypatch.setenv("GIT_DIR", str(clone.parent / "origin" / ".git"))
    assert update() == 0
    monkeypatch.delenv("GIT_DIR")
    assert (clone / "helper.py").exists()


def test_after_a_pull_that_failed_it_says_how_to_go_back(clone):
    commit(clone)
    publish(clone.parent / "origin", given=["mean-squared-error"])
    subprocess.run(["git", "pull", "--no-rebase", "--quiet"], cwd=clone, capture_output=True, check=False)
    said = update()
    assert "git merge --abort" in said
    git(clone, "merge", "--abort")
    assert update() == 0
    assert ANSWER in sources(clone / "labs" / LAB / f"{LAB}.ipynb")


def test_a_merge_that_git_refuses_loses_nothing(clone):
    publish(clone.parent / "origin")
    before = contents(clone)
    (clone / ".git" / "index.lock").touch()
    said = update()
    assert "git" in said and "did not work" in said and len(said.splitlines()) == 1
    after = contents(clone)
    assert {name: after[name] for name in before} == before


def test_without_the_course_at_the_other_end_it_says_so(clone):
    shutil.rmtree(clone.parent / "origin")
    assert "git fetch did not work" in update()
    git(clone, "branch", "--unset-upstream")
    assert "--set-upstream-to=origin/main" in update()
