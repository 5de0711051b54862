"""The course's part of the Jupyter server: what it answers, and to whom."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import nbformat
import pytest

from coursegrader.labs import grade_id
from mlcourse.student import StudentError, server
from paths import LABS, ROOT
from servers import served

LAB = LABS[0]
NOTEBOOK = f"{LAB}/{LAB}.ipynb"
WRONG = """import numpy as np

def mean_squared_error(y, y_hat):
    if np.shape(y) != np.shape(y_hat):
        raise ValueError("shapes differ")
    return sum((a - b) ** 2 for a, b in zip(y, y_hat))
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A student's copy of the course, with the first two exercises of a lab, one with a wrong answer, and the book."""
    folder = tmp_path_factory.mktemp("course")
    notebook = nbformat.read(ROOT / "labs" / NOTEBOOK, as_version=4)
    end = next(number for number, cell in enumerate(notebook.cells) if "## Exercise 3" in cell.source)
    del notebook.cells[end:]
    next(cell for cell in notebook.cells if grade_id(cell) == "mean-squared-error").source = WRONG
    (folder / "labs" / LAB).mkdir(parents=True)
    nbformat.write(notebook, folder / "labs" / NOTEBOOK)
    (folder / "book" / "book").mkdir(parents=True)
    (folder / "book" / "book" / "index.html").write_text("the book")
    return folder


@pytest.fixture(scope="module")
def address(course):
    """The address of the server that `mlcourse lab` starts."""
    log = course / "server.log"
    settings = {f"JUPYTER_{name}_DIR": str(course / name.lower()) for name in ("RUNTIME", "CONFIG", "DATA")}
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(course / "ipython")}
    options = ["--no-browser", "--allow-root", "--IdentityProvider.token=known", "--ServerApp.port=0"]
    command = [sys.executable, "-m", "mlcourse.cli", "lab", *options]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=course, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    try:
        yield served(course / "runtime", process, log)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def ask(address, path, body=None, token="known"):
    """Return the status and the text of an answer of the server."""
    headers = {"Authorization": f"token {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/mlcourse/{path}", data, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_check_says_of_each_exercise_how_far_it_is_and_writes_nothing(address, course):
    status, text = ask(address, "check", {"path": NOTEBOOK})
    answer = json.loads(text)
    first, second = answer["exercises"]
    assert status == 200 and answer["summary"][0] == "In reach: 1 of 6 points."
    assert (first["title"], first["done"]) == ("Exercise 1 · The mean squared error", False)
    assert (first["state"], first["points"]) == ("1 of 3 checks pass", "1 of 3 points")
    assert second["state"] == "not written yet" and second["problems"] == []
    problem = first["problems"][0]
    assert problem["text"].endswith("that is the sum of the squared errors, not their mean.")
    assert problem["link"] == f"{address}/mlcourse/site/book/introduction/a-line-and-its-loss.html#sec-toy-loss"
    assert "file" not in answer and not (course / "hand-in").exists()


def test_handing_in_writes_the_file_and_says_where_it_is(address, course):
    _, text = ask(address, "check", {"path": NOTEBOOK, "write": True})
    file = course / "hand-in" / f"HAND-IN-{LAB}.ipynb"
    assert json.loads(text)["file"] == [f"The file to hand in: {file}", "Hand it in where your instructor told you."]
    assert file.read_bytes() == (course / "labs" / NOTEBOOK).read_bytes()


def test_a_lab_that_was_begun_opens_at_the_title_of_the_first_exercise_that_is_open(address, course):
    cells = nbformat.read(course / "labs" / NOTEBOOK, as_version=4).cells
    title = next(cell.id for cell in cells if "## Exercise 1 ·" in cell.source)
    assert json.loads(ask(address, f"place?path={NOTEBOOK}")[1]) == {"cell": title}
    assert json.loads(ask(address, "place?path=other.ipynb")[1]) == {"cell": None}


def test_a_copy_of_a_lab_is_neither_checked_nor_handed_in_in_its_place(address, course):
    copy = course / "labs" / "backup" / NOTEBOOK
    copy.parent.mkdir(parents=True)
    shutil.copy(course / "labs" / NOTEBOOK, copy)
    status, text = ask(address, "check", {"path": f"backup/{NOTEBOOK}", "write": True})
    assert status == 400 and f"backup/{NOTEBOOK} is a copy" in json.loads(text)["error"]
    assert json.loads(ask(address, f"place?path=backup/{NOTEBOOK}")[1]) == {"cell": None}


@pytest.mark.parametrize("path", ["other.ipynb", f"{LAB}/{LAB}-Copy1.ipynb", f"../{LAB}.ipynb", None, 3])
def test_what_is_not_the_notebook_of_a_lab_is_refused_in_a_sentence(address, path):
    status, text = ask(address, "check", {"path": path})
    assert status == 400
    assert "is not the notebook of a lab: open the lab from the start page" in json.loads(text)["error"]


@pytest.mark.parametrize("token", [None, "guessed"])
@pytest.mark.parametrize(("path", "body"), [("check", {"path": NOTEBOOK}), (f"place?path={NOTEBOOK}", None)])
def test_nobody_else_is_answered(address, path, body, token):
    assert ask(address, path, body, token)[0] == 403


def test_the_book_on_this_machine_is_shown_to_the_student_alone_and_no_other_file(address):
    assert ask(address, "site/book/index.html") == (200, "the book")
    assert "the book" not in ask(address, "site/book/index.html", token=None)[1]
    for path in ("site/../labs/start.md", "site/%2e%2e/labs/start.md", "site//etc/hostname"):
        assert ask(address, path)[0] in (403, 404)


def test_a_lab_that_cannot_be_read_is_one_clear_error(tmp_path):
    path = tmp_path / "labs" / NOTEBOOK
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path.write_text("{")
    with pytest.raises(StudentError, match="open it in JupyterLab, save it"):
        server.check(str(tmp_path / "labs"), NOTEBOOK)
