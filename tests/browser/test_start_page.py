"""The start page derives the next lab from the student's notebooks."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import nbformat
import pytest

from coursegrader.labs import grade_id, grader
from mlcourse.student.lab import after_saving, open_lab, read_progress, write_page
from paths import LABS, ROOT


@pytest.fixture
def labs(tmp_path):
    """The folder of the first three released labs."""
    for name in LABS[:3]:
        save(tmp_path / "labs", name, lambda cell: None)
    return tmp_path / "labs"


def save(labs, name, work):
    """Apply `work` to each cell of a lab, and save it."""
    notebook = nbformat.read(ROOT / "labs" / name / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        work(cell)
    path = labs / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def solve(cell):
    """Write an answer into a solution cell, or a passed check into the output of a test cell."""
    if grader(cell).get("solution"):
        cell.source = "an answer"
    elif grader(cell).get("grade"):
        cell.outputs = [nbformat.v4.new_output("stream", text="something: passed\n")]


def half_solve(cell):
    if not str(grade_id(cell)).startswith("mean-squared-error"):
        return
    solve(cell)
    if grade_id(cell) == "mean-squared-error-3":
        cell.outputs = [nbformat.v4.new_output("error", ename="CheckFailed", evalue="no", traceback=["no"])]


def page(labs):
    write_page(labs)
    return (labs / "start.md").read_text("utf-8")


def row(text, number):
    return next(line for line in text.splitlines() if line.startswith("|") and f"[Lab {number} ·" in line)


def test_at_first_the_first_lab_is_next_with_what_to_read_before(labs):
    text = page(labs)
    assert re.search(r"Next: \[Lab 1 .*about \d+ minutes, \d+ points\.\*?\*? Before you start, read the chapter", text)
    assert "next" in row(text, 1) and "next" not in row(text, 2)
    assert re.findall(r"\]\((.*?)\)", row(text, 2)) == [f"{LABS[1]}/{LABS[1]}.ipynb"]


def test_what_is_answered_and_what_passes_is_counted(labs):
    path = save(labs, LABS[0], half_solve)
    progress = read_progress(path)
    assert (progress.answered, progress.passed) == (1, 2)
    text = page(labs)
    assert f"2 of {progress.checks} checks pass" in row(text, 1)
    assert f"{progress.exercises - 1} of {progress.exercises} answers are left" in text


def test_a_lab_that_was_begun_comes_before_one_that_was_not(labs):
    save(labs, LABS[1], lambda cell: solve(cell) if grade_id(cell) == "design-matrix" else None)
    assert "**Next: [Lab 2" in page(labs)
    save(labs, LABS[1], solve)
    assert "**Next: [Lab 1" in page(labs)


def test_the_lab_after_those_that_are_done_is_next_and_in_the_end_none(labs):
    save(labs, LABS[0], solve)
    text = page(labs)
    assert "done" in row(text, 1) and "**Next: [Lab 2" in text
    for name in LABS[1:3]:
        save(labs, name, solve)
    assert "All labs are done" in page(labs)


def test_the_page_says_how_and_where_to_hand_in(labs):
    assert "submit lab-01`" in page(labs) and "Hand it in where your instructor told you." in page(labs)
    (labs.parent / "pyproject.toml").write_text('[tool.mlcourse]\nhand-in = "Upload it in Moodle."\n')
    assert "Upload it in Moodle." in page(labs)


def with_cell(**cell):
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": [], "execution_count": None} | cell
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]})


UNREADABLE = {
    "no list of cells": json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": {}}),
    "no end": "{",
    "nested": "[" * 100_000 + "]" * 100_000,
    "an identifier that is a list": with_cell(id=["x"]),
    "an output that is a number": with_cell(outputs=[5]),
    "an output of a type that is a list": with_cell(outputs=[{"output_type": ["x"]}]),
    "a text that is a number": with_cell(outputs=[{"output_type": "stream", "text": 5}]),
    "points that are a text": with_cell(metadata={"nbgrader": {"grade_id": "a", "points": "2"}}),
    "points without end": with_cell(metadata={"nbgrader": {"grade_id": "a", "points": 1e999}}),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_lab_that_cannot_be_read_is_named_and_the_others_are_listed(labs, content):
    (labs / LABS[0] / f"{LABS[0]}.ipynb").write_text(content)
    text = page(labs)
    assert f"`{LABS[0]}.ipynb`" in text and "**Next: [Lab 2" in text


def test_a_pipe_in_the_place_of_a_lab_keeps_nobody_waiting(labs):
    path = labs / LABS[0] / f"{LABS[0]}.ipynb"
    path.unlink()
    os.mkfifo(path)
    assert "it is no file" in page(labs)


@pytest.mark.parametrize(
    "text", ["![x](//elsewhere/x)", "!<!![x](//elsewhere/x)", "<button data-commandlinker-command='a'>b"]
)
def test_nothing_that_acts_or_is_fetched_comes_from_a_lab_into_the_page(labs, text):
    path = labs / LABS[0] / f"{LABS[0]}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(f"# Lab 1 · {text}"))
    nbformat.write(notebook, path)
    shown = row(page(labs), 1)
    assert "x](" in shown or "button" in shown
    assert not re.search(r"!\[|[<>]", shown)


@pytest.mark.parametrize("text", ["| **a** | " + " " * 60_000 + "x", "| **" + "** | " * 20_000 + "x"])
def test_an_opening_of_whatever_text_is_read_at_once(labs, text):
    path = labs / LABS[0] / f"{LABS[0]}.ipynb"
    notebook = json.loads(path.read_text("utf-8"))
    notebook["cells"][0]["source"] += f"\n{text}\n"
    path.write_text(json.dumps(notebook), "utf-8")
    begin = time.process_time()
    page(labs)
    assert time.process_time() - begin < 3


def test_saving_a_lab_writes_the_page_anew_and_saving_anything_else_does_not(labs, tmp_path, capsys):
    path = save(labs, LABS[0], solve)
    after_saving(model={"type": "notebook"}, os_path=str(path))
    assert "done" in row((labs / "start.md").read_text("utf-8"), 1)
    (tmp_path / "other").mkdir()
    after_saving(model={"type": "notebook"}, os_path=str(tmp_path / "other" / "other.ipynb"))
    assert os.listdir(tmp_path / "other") == []
    copy = labs / "backup" / LABS[0] / f"{LABS[0]}.ipynb"
    copy.parent.mkdir(parents=True)
    shutil.copy(path, copy)
    after_saving(model={"type": "notebook"}, os_path=str(copy))
    assert os.listdir(labs / "backup") == [LABS[0]]
    (labs / "start.md").unlink()
    (labs / "start.md").mkdir()
    after_saving(model={"type": "notebook"}, os_path=str(path))
    assert "could not be written" in capsys.readouterr().err


def test_the_options_after_lab_reach_jupyterlab(labs, monkeypatch):
    started = []
    monkeypatch.setattr(os, "name", "posix")
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    monkeypatch.chdir(labs)
    open_lab(labs.parent, ["--no-browser"])
    ((_, command, environment),) = started
    assert command[-2:] == ["jupyterlab", "--no-browser"] and "jupyter" in environment["JUPYTER_CONFIG_PATH"]


def test_a_file_among_the_labs_stands_in_for_no_module_of_python(labs):
    (labs / "random.py").write_text("raise SystemExit('the file was run')")
    start = (
        "import sys, pathlib; from mlcourse.student.lab import open_lab; open_lab(pathlib.Path.cwd(), ['--version'])"
    )
    command, environment = [sys.executable, "-P", "-c", start], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=labs.parent, env=environment, capture_output=True, text=True, check=False)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", done.stdout), done.stdout + done.stderr


def test_the_commands_for_students_load_no_library_that_is_slow(labs):
    slow = {"numpy", "pandas", "matplotlib", "sklearn", "nbformat", "nbgrader", "jupyterlab"}
    code = (
        "import sys; from mlcourse.cli import make_parser; make_parser()\n"
        "import mlcourse.student.update, mlcourse.student.doctor\n"
        "from mlcourse.student.lab import write_page; from pathlib import Path; write_page(Path('.'))\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=labs, capture_output=True, text=True, check=True)
    assert slow & set(done.stdout.split()) == set()


@pytest.mark.parametrize("name", LABS)
def test_the_texts_of_the_labs_are_what_jupyterlab_shows_without_extensions(name):
    notebook = nbformat.read(ROOT / "labs" / name / f"{name}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert re.findall(r"^\s*(?::{3,}|`{3,}\{).*|\{[\w:-]+\}`|^\([\w-]+\)=$", text, re.M) == []
