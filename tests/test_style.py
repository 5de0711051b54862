"""Style checks with standard tools: ruff on all code, including cells of chapters and labs, numpydoc on docstrings.

The rules of ruff are in pyproject.toml.
"""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import jupytext
import pytest
from numpydoc.validate import validate

import coursebook
import coursegrader
import mlcourse
from paths import CHAPTER_PAGES, LABS, ROOT

ROOMS = (mlcourse, coursebook, coursegrader)
# Characters of code that fit on a page
CHAPTER_WIDTH = "84"
# Checks of numpydoc: PR for parameters, RT for return values, SS for the summary, GL for the form
EVERYWHERE = {"PR02", "PR03", "PR05", "PR10", "RT05", "SS01", "SS02", "SS03", "SS04"}
EVERYWHERE |= {"GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"}
# Checks of docstrings with more than a summary, in modules that chapters and students use
IN_FULL = {"PR01", "PR07", "RT01", "RT03"}
FOR_STUDENTS = ("mlcourse.checks", "mlcourse.datasets", "mlcourse.plotting")


def ruff(*arguments, config=ROOT / "pyproject.toml"):
    """Return the output of ruff if it finds problems, else an empty string."""
    command = [sys.executable, "-m", "ruff", *arguments, "--config", config, "--no-cache", "--quiet"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout + result.stderr if result.returncode else ""


def hold(found):
    """Fail with the findings of a tool, without a traceback."""
    if found:
        pytest.fail(found, pytrace=False)


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """The first page, chapters and labs as notebooks, which ruff can read."""
    root = tmp_path_factory.mktemp("notebooks")
    pages = ["index", *CHAPTER_PAGES, *(f"labs/{lab}" for lab in LABS)]
    for name in [f"book/{page}" for page in pages] + [f"solutions/{lab}" for lab in LABS]:
        path = root / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(jupytext.reads((ROOT / f"{name}.md").read_text("utf-8"), fmt="md:myst"), path)
    return root


def test_modules_and_tests_follow_the_rules():
    hold(ruff("check", "."))


def test_modules_and_tests_are_formatted():
    hold(ruff("format", "--diff", "."))


@pytest.mark.parametrize("folder", ["book", "solutions"])
def test_the_cells_of_chapters_and_labs_follow_the_rules(notebooks, folder):
    hold(ruff("check", notebooks / folder))


def test_the_cells_of_chapters_are_formatted(notebooks):
    hold(ruff("format", "--diff", "--line-length", CHAPTER_WIDTH, notebooks / "book"))


def test_a_mistake_in_a_cell_would_be_found(tmp_path):
    text = "```{code-cell} ipython3\nimport numpy as np\nx = numpy.ones( 3)\n```\n"
    jupytext.write(jupytext.reads(text, fmt="md:myst"), tmp_path / "trial.ipynb")
    assert "F821" in ruff("check", tmp_path) and "numpy.ones(3)" in ruff("format", "--diff", tmp_path)


def public_functions():
    """Yield the name of every public function and class of the course, with its module."""
    modules = [one for room in ROOMS for one in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    for module in modules:
        for name, thing in inspect.getmembers(importlib.import_module(module.name)):
            is_ours = inspect.isfunction(thing) or inspect.isclass(thing)
            if is_ours and thing.__module__ == module.name and not name.startswith("_"):
                yield f"{module.name}.{name}"


def test_a_docstring_has_the_form_of_numpydoc_and_names_the_parameters_that_there_are():
    names = list(public_functions())
    assert len(names) > 100
    hold("\n".join(f"{name}: {problem}" for name in names for problem in docstring_problems(name)))


def docstring_problems(name):
    found = validate(name)
    asked = EVERYWHERE
    if name.startswith(FOR_STUDENTS) and "\n" in found["docstring"].strip():
        asked = EVERYWHERE | IN_FULL
    elif "\nParameters\n" in found["docstring"]:
        asked = EVERYWHERE | {"PR01"}
    return [f"{code}: {text}" for code, text in found["errors"] if code in asked]
