"""A student at the keyboard of JupyterLab, for tests in a browser."""

import bisect
import contextlib

import nbformat
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from coursegrader.labs import grade_id
from mlcourse.student.notebooks import read


class Student:
    """A student at the keyboard, with one lab open in JupyterLab."""

    def __init__(self, page, path):
        self.page, self.path = page, path
        self.cells = nbformat.read(path, as_version=4).cells

    def go_to(self, name):
        """Select a cell by its grade_id."""
        self._focus()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Escape")
        number = [grade_id(cell) for cell in self.cells].index(name)
        # The arrow keys pass over folded cells
        keys = [at for at, cell in enumerate(self.cells) if not cell.metadata.get("jupyter", {}).get("source_hidden")]
        active = self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
        for _ in range(10):
            now = int(active.get_attribute("data-windowed-list-index"))
            if now == number:
                return active
            steps = bisect.bisect_left(keys, number) - bisect.bisect_left(keys, now)
            for _ in range(abs(steps)):
                self.page.keyboard.press("ArrowDown" if steps > 0 else "ArrowUp")
        raise TimeoutError(f"the cursor did not come to {name}")

    def _focus(self):
        self.page.locator(".jp-Notebook:visible").evaluate("notebook => notebook.focus()")

    def answer(self, name, text):
        cell = self.go_to(name)
        self.page.keyboard.press("Enter")
        cell.locator(".cm-content").wait_for()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(text)

    def check(self, name, check):
        """Click the button Check exercise, and return what one of the checks says."""
        before = self.saved(check)["execution_count"] or 0
        self.go_to(name)
        self.page.get_by_role("button", name="Check exercise").click()
        for _ in range(60):
            cell = self.saved(check)
            if (cell["execution_count"] or 0) > before and cell["outputs"]:
                (output,) = cell["outputs"]
                return "\n".join(output["traceback"]) if output["output_type"] == "error" else "".join(output["text"])
            self.page.wait_for_timeout(500)
        raise TimeoutError(f"{check} did not run")

    def saved(self, name):
        """Save the notebook, and return a cell of it by its grade_id."""
        return next(cell for cell in self.save() if grade_id_of(cell) == name)

    def choose(self, menu, item):
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    def idle(self, timeout=120_000):
        """Wait until there is a kernel and it has nothing to do."""
        # The indicator in the toolbar says idle before there is a kernel, and the menus run nothing then
        self.page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for(timeout=timeout)

    def run_all_in_a_fresh_kernel(self):
        """Restart the kernel, run all cells, save the notebook, and return the cells."""
        self.idle()
        self.choose("Kernel", "Restart Kernel and Run All Cells…")
        self.page.get_by_role("button", name="Confirm Kernel Restart").click()
        return self.finished()

    def finished(self):
        """Wait until all cells have run in a fresh kernel, save the notebook, and return the cells."""
        for _ in range(120):
            with contextlib.suppress(PlaywrightTimeout):  # the cells may run for longer
                self.idle(30_000)
            cells = self.save()
            counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
            if counts == list(range(1, len(counts) + 1)):
                return cells
            self.page.wait_for_timeout(1000)
        raise TimeoutError(f"cells that did not run: {counts}")

    def save(self):
        """Save the notebook, again as long as it changes meanwhile, and return its cells."""
        unsaved = self.page.locator(".jp-DirtyIndicator, .lm-mod-current.jp-mod-dirty")
        for _ in range(30):
            self._focus()  # the keys of a tab with results save nothing
            with self.page.expect_response(_is_saved):
                self.page.keyboard.press("ControlOrMeta+s")
            with contextlib.suppress(PlaywrightTimeout):
                unsaved.first.wait_for(state="detached", timeout=1000)
                break
        else:
            raise TimeoutError("the notebook stays unsaved")
        return read(self.path)["cells"]

    def press(self, button):
        """Click Validate or Hand in, and return the tab with the results."""
        self.page.get_by_role("button", name=button, exact=True).click()
        results = self.page.locator(".mlcourse-results")
        results.get_by_text("Running the lab").wait_for()
        results.locator(".mlcourse-total").wait_for(timeout=180_000)
        return results


def grade_id_of(cell):
    """Return the grade_id of a cell as `mlcourse.student.notebooks.read` returns it, None if it has none."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id")


def _is_saved(response):
    return response.request.method == "PUT" and "/api/contents/" in response.url
