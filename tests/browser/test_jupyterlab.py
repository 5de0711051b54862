"""JupyterLab in a browser: a student runs all cells, gets a hint on a wrong answer, corrects it, and hands in."""

import os
import re
import shutil
import signal
import subprocess
import sys

import nbformat
import pytest
import requests
import yaml

from course import without_markers
from coursegrader.labs import grade_id, grader, read_lab
from jupyterlab_page import Student, grade_id_of
from mlcourse.student.notebooks import has_passed, is_test
from paths import LABS, ROOT
from servers import served, wait_until_ended

LAB = LABS[0]
UNSOLVED = ("is not written yet", "is not defined")
EXERCISE, CHECK = "mean-squared-error", "mean-squared-error-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A student's copy of the course, with the first two labs, and a page of the book."""
    folder = tmp_path_factory.mktemp("student")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "book" / "book" / "introduction").mkdir(parents=True)
    for name in ("index", "introduction/a-line-and-its-loss"):
        (folder / "book" / "book" / f"{name}.html").write_text("<title>A page of the book</title>")
    for name in LABS[:2]:
        shutil.copytree(ROOT / "labs" / name, folder / "labs" / name)
    return folder


@pytest.fixture(scope="module")
def address(folder):
    """The address of the JupyterLab that `make lab` starts, for a user without any settings."""
    log = folder / "server.log"
    ready = f"{sys.prefix}/ready-for-labs"  # skip the set-up: the test is about the command
    options = "OPTIONS=--no-browser --allow-root --IdentityProvider.token= --ServerApp.port=0"
    settings = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("RUNTIME", "CONFIG", "DATA")}
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    with log.open("w") as file:
        server = subprocess.Popen(
            ["make", "lab", f"VENV={sys.prefix}", f"--old-file={ready}", options],
            cwd=folder,
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        )
    try:
        yield served(folder / "runtime", server, log)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        wait_until_ended(server)


@pytest.fixture(scope="module")
def page(chromium, address):
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.foreign = []
    own = (address, "data:", "blob:")
    page.on("request", lambda one: one.url.startswith(own) or page.foreign.append(one.url))
    page.goto(address)
    yield page
    page.close()


@pytest.fixture(scope="module")
def student(page, folder):
    page.get_by_role("link", name="Lab 1").first.click()
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    student = Student(page, folder / "labs" / LAB / f"{LAB}.ipynb")
    student.idle()
    page.locator(".jp-Notebook .jp-Cell").first.click()
    return student


def test_the_start_page_names_the_first_lab_and_nothing_is_in_the_way(page):
    page.get_by_role("link", name="Lab 2").wait_for()
    text = page.locator(".jp-MarkdownViewer").inner_text()
    assert "Next: Lab 1" in text and "Lab 2" in text
    assert page.locator(".jp-Dialog, .jp-toastContainer .jp-toast-message").count() == 0


def test_a_link_of_a_course_page_elsewhere_opens_a_lab_and_no_other_address(address):
    def opened(path):
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        return requests.get(address.rstrip("/") + path, headers=headers, timeout=30, allow_redirects=False).status_code

    assert opened("/lab") == opened(f"/lab/tree/{LAB}/{LAB}.ipynb") == 200
    refused = ("/logout", "/api/status", "/lab/tree/.%2Ftree%2F./logout", f"/lab/tree/{LAB}/{LAB}.ipynb?clone=a")
    assert {path: opened(path) for path in refused} == dict.fromkeys(refused, 403)


def test_texts_and_equations_are_shown_and_not_their_source(student):
    student.page.wait_for_selector("mjx-container")
    for text in student.page.locator(".jp-MarkdownOutput:visible").all_inner_texts():
        assert "$" not in text and ":::" not in text and "|---" not in text
    assert student.page.locator("mjx-merror").count() == 0


def test_run_all_goes_to_the_end_and_says_of_every_exercise_that_it_is_not_written(student):
    student.choose("Run", "Run All Cells")
    cells = student.finished()
    for cell in filter(is_test, cells):
        (error,) = [output for output in cell["outputs"] if output["output_type"] == "error"]
        assert any(words in error["evalue"] for words in UNSOLVED), error["evalue"]
        assert "Traceback" not in "\n".join(error["traceback"])


def test_a_wrong_answer_gets_its_hint_with_a_link_in_the_notebook_and_from_validate(student, address):
    answers = yaml.safe_load((ROOT / "tests" / "answers" / f"{LAB}.yml").read_text("utf-8"))[EXERCISE]["wrong"]
    wrong = next(answer for answer in answers if CHECK in answer["loses"])
    hint = " ".join(wrong["loses"][CHECK].split())
    student.answer(EXERCISE, wrong["code"])
    assert hint in " ".join(student.check(EXERCISE, CHECK).split())
    page = "book/introduction/a-line-and-its-loss.html#sec-toy-loss"
    place = f"{address.replace('127.0.0.1', 'localhost')}/mlcourse/site/{page}"
    assert student.page.locator(".jp-Notebook .jp-OutputArea-output").get_by_role("link", name=place).count()
    results = student.press("Validate")
    exercise = results.get_by_role("listitem").filter(has_text="Exercise 1 ·")
    assert "○" in exercise.inner_text() and "of 3 points" in exercise.inner_text() and hint in exercise.inner_text()
    assert re.fullmatch(r"In reach: \d of 30 points\.", results.locator(".mlcourse-total").inner_text())
    with student.page.context.expect_page() as opened:
        exercise.get_by_role("link", name="Read it in the book").first.click()
    opened.value.wait_for_load_state()
    assert (opened.value.url, opened.value.title()) == (place, "A page of the book")
    opened.value.close()


def test_beside_an_answer_that_is_no_python_the_checks_show_no_earlier_result(student):
    assert student.saved(CHECK)["outputs"]
    student.answer(EXERCISE, "def mean_squared_error(:")
    student.page.get_by_role("button", name="Check exercise").click()
    student.page.locator(".jp-Notebook .jp-OutputArea-output").filter(has_text="SyntaxError").first.wait_for()
    student.idle()
    assert not student.saved(CHECK)["outputs"]


def test_the_title_of_an_exercise_in_the_results_leads_to_it(student):
    student.page.get_by_role("button", name="Exercise 7 ·").click()
    active = student.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
    active.get_by_role("heading", name="Exercise 7 ·").wait_for()
    assert active.is_visible()


def test_what_an_answer_says_is_shown_as_text(student):
    student.answer(EXERCISE, "def mean_squared_error(y, y_hat):\n    raise ValueError('<img src=x onerror=alert(1)>')")
    results = student.press("Validate")
    assert "<img src=x onerror=alert(1)>" in results.inner_text()
    assert results.locator("img").count() == 0


def test_with_the_right_answers_nothing_is_open_and_the_start_page_says_done(student, folder):
    answers = {
        grade_id(cell): without_markers(cell)
        for cell in read_lab(ROOT / "solutions" / f"{LAB}.md").cells
        if grader(cell).get("solution")
    }
    for name, text in answers.items():
        student.answer(name, text.rstrip("\n"))
    cells = student.run_all_in_a_fresh_kernel()
    assert {grade_id_of(cell): cell["source"] for cell in cells if grade_id_of(cell) in answers} == {
        name: text.rstrip("\n") for name, text in answers.items()
    }
    assert all(has_passed(cell) for cell in cells if is_test(cell))
    results = student.press("Validate")
    assert "Nothing is open." in results.inner_text() and "○" not in results.inner_text()
    student.page.get_by_role("tab", name="start.md").click()
    student.page.locator(".jp-MarkdownViewer").get_by_text("Next: Lab 2").wait_for()


def test_hand_in_writes_the_notebook_and_says_where_it_is(student, folder):
    student.page.get_by_role("tab", name=f"{LAB}.ipynb").click()
    results = student.press("Hand in")
    file = folder / "hand-in" / f"HAND-IN-{LAB}.ipynb"
    assert results.locator(".mlcourse-file").all_inner_texts() == [
        f"The file to hand in: {file}",
        "Hand it in where your instructor told you.",
    ]
    assert file.read_bytes() == student.path.read_bytes()


def test_a_lab_that_was_begun_opens_at_the_first_exercise_that_is_open(page, folder):
    path = folder / "labs" / LABS[1] / f"{LABS[1]}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    second = next(number for number, cell in enumerate(notebook.cells) if "## Exercise 2 ·" in cell.source)
    for cell in notebook.cells[:second]:
        if grader(cell).get("solution"):
            cell.source = "an answer"
        elif grader(cell).get("grade"):
            cell.outputs = [nbformat.v4.new_output("stream", text="something: passed\n")]
    nbformat.write(notebook, path)
    page.get_by_role("tab", name="start.md").click()
    page.get_by_role("link", name="Lab 2").first.click()
    active = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell.jp-mod-active")
    active.get_by_role("heading", name="Exercise 2 ·").wait_for()
    assert active.is_visible() and active.get_attribute("data-windowed-list-index") == str(second)
    # The kernel is new: the cells above the exercises run too
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").get_by_role("button", name="Check exercise").click()
    other, first = Student(page, path), next(i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    for _ in range(60):
        if other.save()[first]["execution_count"] == 1:
            return
        page.wait_for_timeout(500)
    raise TimeoutError("the cells above the exercises did not run")


def test_a_lab_that_was_restored_behind_the_start_page_opens_there_too(page):
    page.get_by_role("tab", name="start.md").click()
    page.wait_for_timeout(2000)  # JupyterLab keeps its tabs a second after a change
    page.goto(re.sub("/lab/.*", "/lab", page.url))  # the address of a file would open that file again, at any moment
    page.locator(".jp-MarkdownViewer").get_by_role("link", name="Lab 2").first.wait_for()
    page.get_by_role("tab", name=f"{LABS[1]}.ipynb").click()
    active = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell.jp-mod-active")
    active.get_by_role("heading", name="Exercise 2 ·").wait_for()
    assert active.is_visible()


def test_nothing_was_asked_of_another_host(page):
    assert page.foreign == []
