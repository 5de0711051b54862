"""Notebooks to download, which install what they need, and the addresses to launch them elsewhere."""

import ast
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from importlib.metadata import packages_distributions

import nbformat
import pytest

from mlcourse import CourseError
from mlcourse.setup_cell import IMPORTED, setup_cell, students_repository
from paths import CHAPTER_PAGES, LABS, PAGES_OF, ROOT

URL = students_repository()
DOWNLOADED = {name: ROOT / "_build" / "html" / "_sources" / "book" / f"{name}.ipynb" for name in CHAPTER_PAGES}
RELEASED = {name: ROOT / "labs" / name / f"{name}.ipynb" for name in LABS}


@pytest.fixture
def elsewhere(tmp_path):
    """The environment of a computer with the packages but not the course; the course's address leads to a copy."""
    copy = tmp_path / "published"
    files = subprocess.run(["git", "ls-files", "-z", "mlcourse", "data"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, files.stdout.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    git = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "--quiet", "--initial-branch=main"], ["add", "."], ["commit", "--quiet", "-m", "All"]):
        subprocess.run([*git, *command], cwd=copy, check=True)
    (tmp_path / "home").mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_INDEX": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{copy.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": URL,
    }


def run(code, environment):
    # -S leaves out the course, which is installed by a path in site-packages
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(
        command, env=environment, cwd=environment["HOME"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("path", [*DOWNLOADED.values(), *RELEASED.values()], ids=[*DOWNLOADED, *RELEASED])
def test_a_notebook_begins_with_the_cell_that_sets_it_up_and_says_where_it_came_from(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "code" and URL in first.source and path.stem in first.source
    assert 'find_spec("mlcourse")' in first.source


def test_the_first_cell_clones_the_repository_of_students_and_names_no_other(tmp_path):
    (tmp_path / "_config.yml").write_text("title: A course\nrepository: {url: https://example.org/teachers}\n")
    project = (ROOT / "pyproject.toml").read_text("utf-8").replace(URL, "https://example.org/students.git")
    (tmp_path / "pyproject.toml").write_text(project)
    cell = setup_cell("labs/lab-01/lab-01.ipynb", tmp_path).source
    assert 'address = "https://example.org/students.git"' in cell and 'Path.home() / "students"' in cell
    assert "teachers" not in cell


def test_without_the_address_of_that_repository_one_sentence_says_where_to_write_it(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mlcourse"\n')
    with pytest.raises(CourseError, match=r"students.*\[tool\.mlcourse\]"):
        students_repository(tmp_path)


@pytest.mark.nightly
def test_where_the_course_is_missing_the_first_cell_fetches_it_with_its_data_once(elsewhere):
    use = "\nfrom mlcourse import datasets\nprint(datasets.__file__, len(datasets.load_toy_regression('train')[0]))"
    assert "No module named 'mlcourse'" in run(use, elsewhere).stderr
    for _ in range(2):
        result = run(setup_cell("book/introduction/index.md").source + use, elsewhere)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(elsewhere["HOME"]) and result.stdout.endswith(" 20\n")


def test_where_the_course_is_installed_the_first_cell_does_nothing(elsewhere):
    code = setup_cell("book/introduction/index.md").source + "\nimport sys\nprint('subprocess' in sys.modules)"
    result = run(code, {**elsewhere, "PYTHONPATH": f"{elsewhere['PYTHONPATH']}{os.pathsep}{ROOT}"})
    assert (result.stdout, result.stderr) == ("False\n", "") and not os.listdir(elsewhere["HOME"])


def test_the_first_cell_installs_all_that_notebooks_and_what_they_import_of_the_course_need():
    distributions = packages_distributions()
    notebooks = [nbformat.read(path, as_version=4) for path in [*DOWNLOADED.values(), *RELEASED.values()]]
    code = [cell.source for one in notebooks for cell in one.cells if cell.cell_type == "code"]
    own = {name.name for text in code for name in imported_from_course(text)}
    code += [path.read_text("utf-8") for path in (ROOT / "mlcourse").glob("*.py") if path.stem in own]
    needed = {name for text in code for name in imported(text)} - set(sys.stdlib_module_names) - {"mlcourse"}
    brought = {"scipy", "ipython"}  # dependencies of scikit-learn and of every kernel
    assert {distributions[name][0].lower() for name in needed} <= {*IMPORTED, *brought}


def statements(text, kind):
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kind)]


def imported(text):
    names = [name.name for node in statements(text, ast.Import) for name in node.names]
    names += [node.module for node in statements(text, ast.ImportFrom) if not node.level]
    return {name.split(".")[0] for name in names}


def imported_from_course(text):
    return [name for node in statements(text, ast.ImportFrom) if node.module == "mlcourse" for name in node.names]


def test_binder_opens_a_chapter_as_a_notebook(chromium, tmp_path):
    """Do what Binder does: run postBuild once, then open the address of the launch button in JupyterLab."""
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    environment |= {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    environment["JUPYTER_CONFIG_PATH"] = str(tmp_path / "before")
    subprocess.run([ROOT / "postBuild"], env=environment, check=True)
    name = f"book/{PAGES_OF['introduction'][1]}.md"
    (tmp_path / name).parent.mkdir(parents=True)
    shutil.copy(ROOT / name, tmp_path / name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", f"--port={port}"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path}"]
    with open(tmp_path / "log", "w") as log, subprocess.Popen(command, env=environment, stderr=log) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/api")
            page = chromium.new_page()
            page.goto(f"http://127.0.0.1:{port}/lab/tree/{name}")
            # An empty cell stands there before the chapter is read
            page.locator(".jp-Notebook .jp-CodeCell").nth(2).wait_for(timeout=90_000)
            page.locator(".jp-Notebook .jp-MarkdownCell h1").first.wait_for(timeout=90_000)
            page.close()
        finally:
            server.kill()


def wait_for(address, seconds=60):
    for _ in range(seconds):
        try:
            return urllib.request.urlopen(address, timeout=5)
        except OSError:
            time.sleep(1)
    raise TimeoutError(f"{address} did not answer within {seconds} s")
