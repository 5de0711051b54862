"""A student at the keyboard of JupyterLab, for tests in a browser."""

import nbformat

from coursegrader.labs import grade_id
from mlcourse.student.notebooks import read


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
