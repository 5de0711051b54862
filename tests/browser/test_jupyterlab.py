"""JupyterLab in a browser: a student runs all cells, gets a hint on a wrong answer, corrects it, and validates."""

import os
import shutil
import signal
import subprocess
import sys

import nbformat
import pytest
import yaml

from course import without_markers
from coursegrader.labs import grade_id, grader, read_lab
from mlcourse.student.notebooks import has_passed, is_test, read
from paths import LABS, ROOT
from servers import served

LAB = LABS[0]
UNSOLVED = ("is not written yet", "is not defined")
EXERCISE, CHECK = "mean-squared-error", "mean-squared-error-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A student's copy of the course, with the first two labs."""
    folder = tmp_path_factory.mktemp("student")
    shutil.copy(ROOT / "Makefile", folder)
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
        server.wait()


class Student:
    """A student at the keyboard, with one lab open in JupyterLab."""

    def __init__(self, page, path):
        self.page, self.path = page, path
        self.cells = nbformat.read(path, as_version=4).cells

    def go_to(self, name):
        """Select a cell by its grade_id."""
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Escape")
        number = [grade_id(cell) for cell in self.cells].index(name)
        active = self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
        for _ in range(10):
            steps = number - int(active.get_attribute("data-windowed-list-index"))
            if not steps:
                return active
            for _ in range(abs(steps)):
                self.page.keyboard.press("ArrowDown" if steps > 0 else "ArrowUp")
        raise TimeoutError(f"the cursor did not come to {name}")

    def answer(self, name, text):
        cell = self.go_to(name)
        self.page.keyboard.press("Enter")
        cell.locator(".cm-content").wait_for()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(text)

    def run(self, name):
        """Run a cell, and return its output."""
        cell = self.go_to(name)
        self.page.keyboard.press("ControlOrMeta+Enter")
        prompt = cell.locator(".jp-InputPrompt")
        self.page.wait_for_function("prompt => /\\d/.test(prompt.textContent)", arg=prompt.element_handle())
        self.idle()
        return " ".join(cell.locator(".jp-OutputArea-output").all_inner_texts())

    def choose(self, menu, item):
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    def idle(self):
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=120_000)

    def finished(self):
        """Wait until all cells have run in a fresh kernel, save the notebook, and return the cells."""
        for _ in range(120):
            self.idle()
            cells = self.save()
            counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
            if counts == list(range(1, len(counts) + 1)):
                return cells
            self.page.wait_for_timeout(1000)
        raise TimeoutError(f"cells that did not run: {counts}")

    def save(self):
        self.page.keyboard.press("ControlOrMeta+s")
        self.page.locator(".jp-DirtyIndicator, .lm-mod-current.jp-mod-dirty").wait_for(state="detached")
        return read(self.path)["cells"]

    def validate(self):
        """Click the button Validate, and return the text of the dialog."""
        self.page.get_by_role("button", name="Validate").click()
        dialog = self.page.locator(".jp-Dialog-content")
        dialog.wait_for(timeout=180_000)
        said = " ".join(dialog.inner_text().split())
        dialog.locator("button").last.click()
        dialog.wait_for(state="detached")
        self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active .jp-InputPrompt").click()  # the dialog has the focus
        return said


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


def test_a_wrong_answer_gets_its_hint_in_the_notebook_and_from_validate(student):
    answers = yaml.safe_load((ROOT / "tests" / "answers" / f"{LAB}.yml").read_text("utf-8"))[EXERCISE]["wrong"]
    wrong = next(answer for answer in answers if CHECK in answer["loses"])
    hint = " ".join(wrong["loses"][CHECK].split())
    student.answer(EXERCISE, wrong["code"])
    student.run(EXERCISE)
    assert hint in " ".join(student.run(CHECK).split())
    said = student.validate()
    assert "Success" not in said and hint in said


def test_with_the_right_answers_validate_says_success_and_the_start_page_says_done(student, folder):
    answers = {
        grade_id(cell): without_markers(cell)
        for cell in read_lab(ROOT / "solutions" / f"{LAB}.md").cells
        if grader(cell).get("solution")
    }
    for name, text in answers.items():
        student.answer(name, text.rstrip("\n"))
    student.choose("Kernel", "Restart Kernel and Run All Cells…")
    student.page.get_by_role("button", name="Confirm Kernel Restart").click()
    cells = student.finished()
    assert {grade_id_of(cell): cell["source"] for cell in cells if grade_id_of(cell) in answers} == {
        name: text.rstrip("\n") for name, text in answers.items()
    }
    assert all(has_passed(cell) for cell in cells if is_test(cell))
    assert "Success" in student.validate()
    page = (folder / "labs" / "start.md").read_text("utf-8")
    assert "done | [Lab 1" in page and "**Next: [Lab 2" in page


def grade_id_of(cell):
    return cell["metadata"].get("nbgrader", {}).get("grade_id")


def test_nothing_was_asked_of_another_host(page):
    assert page.foreign == []
