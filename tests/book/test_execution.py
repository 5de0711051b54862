"""Executing the chapters: in parallel, and again only if a dependency of the chapter changed."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from coursebook import BookError, execution
from coursebook import build as book
from paths import ROOT

CELL = """```{{code-cell}} ipython3
{code}
```
"""
HEAD = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3, language: python}
---
# A page
"""


@pytest.fixture
def course(tmp_path):
    return Course(tmp_path)


class Course:
    """A course with a page per given cell; `execute` returns the names of the pages that were executed."""

    def __init__(self, root):
        self.root, self.output, self.failed = root, root / "_build", []
        self.write("_config.yml", "execute: {timeout: 60}")
        self.write("requirements.lock", "numpy==2")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def pages(self, **codes):
        files = "".join(f"- file: book/{name}\n" for name in codes)
        self.write("_toc.yml", f"format: jb-book\nroot: book/index\nchapters:\n{files}")
        self.write("book/index.md", "# Not a notebook")
        for name, code in codes.items():
            self.write(f"book/{name}.md", HEAD + CELL.format(code=code))

    def execute(self):
        self.output.mkdir(exist_ok=True)
        runs = execution.execute_what_changed(self.root, self.output, subprocess.DEVNULL)
        self.failed = [run for run in runs if run.error]
        return {run.name.removeprefix("book/") for run in runs}

    def outputs(self, name):
        return json.loads((self.output / "notebooks" / f"{name}.ipynb").read_text())["cells"][0]["outputs"]


def notebook(code):
    """Return the text of a notebook with one cell."""
    return nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]))


MEET = """import pathlib, time
pathlib.Path("{own}").touch()
for _ in range(600):
    if pathlib.Path("{other}").exists():
        break
    time.sleep(0.1)
else:
    raise TimeoutError("the other page did not run")"""


def test_chapters_run_at_the_same_time(course, monkeypatch):
    monkeypatch.setattr(execution, "cores", lambda: 2)
    course.pages(one=MEET.format(own="a", other="b"), two=MEET.format(own="b", other="a"))
    assert course.execute() == {"one", "two"} and not course.failed


@pytest.mark.skipif(os.name != "posix", reason="sockets in a folder are those of POSIX")
def test_a_kernel_takes_no_port_that_another_program_may_take_first(course):
    course.pages(page="from ipykernel.kernelapp import IPKernelApp\nIPKernelApp.instance().transport")
    course.execute()
    assert "'ipc'" in str(course.outputs("page"))


@pytest.mark.skipif(os.name != "posix", reason="sockets in a folder are those of POSIX")
def test_a_kernel_of_nbval_takes_no_port_either(tmp_path):
    ask = "from ipykernel.kernelapp import IPKernelApp\nassert IPKernelApp.instance().transport == 'ipc'"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ask)]), tmp_path / "ask.ipynb")
    options = ["-p", "conftest", "--nbval-lax", "--nbval-current-env", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": "tests", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", *options]
    said = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "1 passed" in said.stdout, said.stdout + said.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp")] == []  # it leaves no folder


def test_a_chapter_is_executed_again_if_and_only_if_something_that_it_depends_on_has_changed(course):
    course.write("data/table.csv", "1")
    course.write("deep.py", "value = 1")
    course.write("helper.py", "from deep import value")
    course.write("unused.py", "")
    course.pages(reads="print(open('../data/table.csv').read())", imports="import helper\nhelper.value", other="1 + 1")
    assert course.execute() == {"reads", "imports", "other"}
    assert course.execute() == set()
    course.write("data/table.csv", "2")
    assert course.execute() == {"reads"} and "2" in str(course.outputs("reads"))
    course.write("deep.py", "value = 3")
    assert course.execute() == {"imports"} and "3" in str(course.outputs("imports"))
    course.write("unused.py", "value = 4")
    course.write("book/other.md", f"{HEAD}Other text.\n\n{CELL.format(code='1 + 1')}")
    assert course.execute() == set()
    course.write("book/other.md", HEAD + CELL.format(code="1 + 2"))
    assert course.execute() == {"other"} and "3" in str(course.outputs("other"))
    course.write("requirements.lock", "numpy==3")
    assert course.execute() == {"reads", "imports", "other"}


def test_the_result_of_a_chapter_whose_data_changed_while_it_ran_is_not_trusted(course):
    course.write("data/table.csv", "1")
    course.pages(page="open('../data/table.csv').read()\nopen('../data/table.csv', 'a').write('2')")
    course.execute()
    assert course.execute() == {"page"}


def test_a_chapter_that_fails_is_named_with_its_error_and_costs_the_others_nothing(course):
    course.pages(good="1 + 1", wrong="undefined_name", dead="import os\nos._exit(1)")
    course.execute()
    assert {run.name for run in course.failed} == {"book/wrong", "book/dead"}
    message = book.failures(course.failed)
    assert "book/wrong: the cell that failed" in message and "name 'undefined_name' is not defined" in message
    assert "book/dead" in message and "died" in message
    course.pages(good="1 + 1", wrong="1", dead="2")
    assert course.execute() == {"wrong", "dead"} and not course.failed


def test_a_chapter_that_left_the_book_leaves_its_notebook_too(course):
    course.pages(one="1", two="2")
    course.execute()
    course.pages(one="1")
    course.execute()
    assert [path.stem for path in (course.output / "notebooks").iterdir()] == ["one"]


def test_every_data_file_is_seen_when_its_loader_reads_it():
    code = f"""
from coursebook import dependency_tracker
from mlcourse import datasets
dependency_tracker.start()
for name, load in vars(datasets).items():
    if name.startswith("load_toy_reg"):
        load("train"), load("test")
    elif name.startswith("load_"):
        load()
print(dependency_tracker.report({str(ROOT)!r}))
"""
    seen = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)["files"]
    files = {f"data/{path.name}" for path in (ROOT / "data").iterdir() if path.suffix != ".md"}
    assert files <= set(seen) and "mlcourse/datasets/__init__.py" in seen


def test_a_cold_run_executes_chapters_and_labs_without_a_cache_and_names_what_failed(course, capsys):
    course.pages(page="1 + 1")
    course.write("source/lab-01-right/lab-01-right.ipynb", notebook("2 + 2"))
    course.write("source/lab-02-wrong/lab-02-wrong.ipynb", notebook("undefined_name"))
    course.execute()
    with pytest.raises(BookError, match="(?s)source/lab-02-wrong: .*undefined_name.*cannot be executed"):
        book.cold(course.root)
    table = capsys.readouterr().out
    assert "book/page " in table and "source/lab-01-right " in table
    failed = [line.split()[0] for line in table.splitlines() if line.endswith("failed")]
    assert failed == ["source/lab-02-wrong"]
