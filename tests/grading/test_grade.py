"""`mlcourse grade` grades a class at once, runs nothing twice, and gives the scores of `nbgrader autograde`."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from distributed import LocalCluster

from course import Lab, make_course
from coursegrader import GradingError
from coursegrader.grade import grade_class, gradebook_of, run, uninterrupted
from coursegrader.labs import nbgrader_config, release
from coursegrader.protocol import Cell
from coursegrader.worker import Worker
from mlcourse.cli import main
from paths import ROOT

LAB = "lab-01-toy-regression"


@pytest.fixture(scope="module")
def worker(bubblewrap):
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory, bubblewrap):
    """A class with submissions: the six of every lab, one without a notebook, and one with an empty folder."""
    lab = Lab(make_course(tmp_path_factory.mktemp("course"), [LAB]), LAB)
    lab.hand_in()
    folder = lab.root / "submitted" / "no-notebook" / LAB
    folder.mkdir(parents=True)
    (folder / f"{LAB}.ipynb").write_text("{", encoding="utf-8")
    (lab.root / "submitted" / "empty" / LAB).mkdir(parents=True)
    return lab


@pytest.fixture(scope="module")
def graded(lab):
    summary = grade_class(LAB, lab.root)
    return lab, summary


def scores(lab):
    with gradebook_of(nbgrader_config(lab.root)) as gradebook:
        found = gradebook.find_assignment(LAB).submissions
        return {one.student_id: {grade.name: grade.auto_score for grade in one.notebooks[0].grades} for one in found}


def test_everybody_is_graded_whatever_they_handed_in(graded):
    lab, summary = graded
    assert summary.graded == len(lab.submitted) + 2 and summary.refused == 2
    assert set(scores(lab)) == {*lab.submitted, "no-notebook", "empty"}
    for student in ("no-notebook", "empty"):
        assert not any(scores(lab)[student].values())
        assert lab.autograded(student).metadata.mlcourse.refused


def test_a_second_run_grades_only_what_changed(graded):
    lab, _ = graded
    again = grade_class(LAB, lab.root)
    assert (again.graded, again.unchanged) == (0, len(lab.submitted) + 2)
    path = lab.root / "submitted" / "half" / LAB / f"{LAB}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("mean_squared_error = None"))
    nbformat.write(notebook, path)
    once_more = grade_class(LAB, lab.root)
    assert (once_more.graded, once_more.unchanged) == (1, len(lab.submitted) + 1)


def test_nbgrader_autograde_records_the_same(graded):
    lab, _ = graded
    before = scores(lab)
    outputs = {student: [cell.get("outputs") for cell in lab.autograded(student).cells] for student in before}
    shutil.rmtree(lab.root / "autograded")
    lab.nbgrader("autograde", LAB)
    assert scores(lab) == before
    # nbgrader does not see a folder without a notebook
    for student in before.keys() - {"empty"}:
        assert [cell.get("outputs") for cell in lab.autograded(student).cells] == outputs[student]


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("\nc.HTMLExporter", "\nc.HTMLExporter.colour = unknown\nc.HTMLExporter"),
        ("coursegrader.preprocessors", "mlcourse.nowhere"),
    ],
    ids=["an unknown name", "a missing package"],
)
def test_nbgrader_runs_nothing_while_the_configuration_with_the_sandbox_cannot_be_read(graded, words, instead):
    lab, _ = graded

    def written():
        return {path: path.stat().st_mtime_ns for path in (lab.root / "autograded").rglob("*")}

    config, before = lab.root / "nbgrader_config.py", written()
    ours = config.read_text(encoding="utf-8")
    config.write_text(ours.replace(words, instead), encoding="utf-8")
    command = [sys.executable, "-m", "nbgrader", "autograde", LAB, "--force"]
    run = subprocess.run(command, cwd=lab.root, capture_output=True, text=True, check=False)
    config.write_text(ours, encoding="utf-8")
    assert run.returncode != 0 and run.stderr.endswith(("'unknown' is not defined\n", "'mlcourse.nowhere'\n"))
    assert written() == before


@pytest.mark.nightly
def test_a_dask_cluster_gives_the_same_scores(graded):
    lab, _ = graded
    here = scores(lab)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        summary = grade_class(LAB, lab.root, again=True, scheduler=cluster.scheduler_address)
    assert summary.graded == len(here)
    assert scores(lab) == here


@pytest.mark.nightly
def test_a_class_that_is_stopped_by_ctrl_c_keeps_what_was_done_and_goes_on(lab, tmp_path):
    course = tmp_path / "course"
    shutil.copytree(lab.root, course, ignore=shutil.ignore_patterns("autograded", "_build", "feedback", "gradebook.db"))
    shutil.copy(ROOT / "nbgrader_config.py", course)
    release(course)
    slow = nbformat.v4.new_code_cell("import time; time.sleep(20)")
    path = course / "submitted" / "wrong" / LAB / f"{LAB}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.write(nbformat.from_dict({**notebook, "cells": [*notebook.cells, slow]}), path)
    command = [sys.executable, "-m", "mlcourse.cli", "grade", LAB, "--workers", "1"]
    # As in a terminal: processes that a shell runs in the background, such as these tests, may ignore Ctrl-C
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    run = subprocess.Popen(command, cwd=course, stderr=subprocess.PIPE, text=True, preexec_fn=listen)  # noqa: PLW1509
    for _ in range(600):
        if (course / "autograded" / "script").exists() or (course / "autograded" / "released").exists():
            break
        time.sleep(0.1)
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    _, message = run.communicate(timeout=30)
    assert run.returncode == 130 and "run the same command again" in message, message
    done = {path.parent.parent.name for path in course.glob(f"autograded/*/{LAB}/{LAB}.ipynb")}
    assert done and "wrong" not in done
    nbformat.write(notebook, path)
    summary = grade_class(LAB, course)
    assert summary.unchanged == len(done) and summary.unchanged + summary.graded == len(lab.submitted) + 2


def test_ctrl_c_waits_until_a_submission_is_recorded():
    done = []

    def record():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("recorded")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            record()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["recorded"]


def test_the_outputs_hold_what_a_marker_reads(graded):
    lab, _ = graded
    outputs = [output for cell in lab.autograded("noisy").cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("text/html" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grade", "lab-99"], "there is no lab lab-99: the labs are lab-01-toy-regression"),
        (["feedback", "lab-99"], "there is no lab lab-99"),
        (["grade", LAB, "--scheduler", "tcp://127.0.0.1:1"], "Dask"),
    ],
)
def test_a_command_that_cannot_be_done_says_why_in_one_sentence(graded, monkeypatch, capsys, arguments, message):
    lab, _ = graded
    monkeypatch.chdir(lab.root)
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert str(exit.value).startswith("Error: ") and message in str(exit.value)
    assert len(str(exit.value).splitlines()) == 1


def test_a_lab_that_nobody_handed_in_is_an_error(tmp_path):
    make_course(tmp_path, [LAB])
    with pytest.raises(GradingError, match="nobody has handed in"):
        grade_class(LAB, tmp_path)


def test_without_bubblewrap_nothing_is_graded_and_the_message_says_what_to_install(lab, tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(GradingError, match="sudo apt-get install bubblewrap"):
        grade_class(LAB, lab.root, again=True)
    assert os.listdir(tools) == []


STUDENTS = ["lab", "update", "submit", "doctor"]
INSTRUCTORS = ["release", "collect", "grade", "regrade", "report", "mark", "feedback", "export", "audit"]


@pytest.mark.parametrize("command", STUDENTS + INSTRUCTORS)
def test_every_command_has_a_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as exit:
        main([command, "--help"])
    assert exit.value.code == 0
    assert f"Example: mlcourse {command}" in " ".join(capsys.readouterr().out.split())


def test_all_that_is_done_for_a_notebook_is_done_on_one_core(bubblewrap):
    cores = "import os\nprint(sorted(os.sched_getaffinity(0)))"
    worker = Worker()
    inside, outside = (outputs[0]["text"] for outputs in worker.grade([Cell(cores), Cell(cores, "a-test")])["outputs"])
    between = os.sched_getaffinity(worker.process.pid)
    worker.close()
    assert inside == outside and len(inside.split()) == 1
    assert between == os.sched_getaffinity(0)


def test_whoever_ends_the_worker_twice_gets_no_point_and_is_graded_once_more():
    worker = Worker()
    worker.command = (sys.executable, "-c", "print('ready', flush=True)\ninput()")
    result = run(worker, [Cell("1"), Cell("2", defers=[]), Cell("assert True", "a-1")], ())
    assert [outputs and outputs[0]["output_type"] for outputs in result["outputs"]] == [[], None, "error"]
    assert result["late"]


@pytest.mark.parametrize(
    "habit",
    [
        *(
            "%matplotlib inline",
            "%matplotlib qt",
            "%matplotlib widget",
            "%pylab inline",
            "%config InlineBackend.figure_format = 'svg'",
        ),
        *(
            "!pip install numpy",
            "%pip install numpy",
            "%conda install numpy",
            "!ls",
            "%ls",
            "files = !ls *.csv\nfiles.sort()",
        ),
        *(
            "%load_ext autoreload\n%autoreload 2",
            "%load_ext a_missing_extension",
            "%run a_missing_file.py",
            "%not_a_magic",
        ),
        "get_ipython().run_line_magic('matplotlib', 'inline')",
        "import multiprocessing\nwith multiprocessing.get_context('spawn').Pool(1) as pool:\n    pool.map(abs, [1])",
    ],
)
def test_what_notebooks_habitually_contain_costs_nothing(worker, habit):
    cells = [Cell(f"{habit}\nanswer = 42"), Cell("assert answer == 42", "a-1")]
    outputs = worker.grade(cells)["outputs"]
    assert "error" not in [one["output_type"] for some in outputs for one in some], outputs


@pytest.mark.parametrize(
    "answer",
    [
        "import concurrent.futures\ndef answer(model, double):\n"
        "    with concurrent.futures.ThreadPoolExecutor(4) as pool:\n"
        "        return list(pool.map(double, range(50))) == list(range(0, 100, 2))",
        "from concurrent.futures import ThreadPoolExecutor\ndef answer(model, double):\n"
        "    def inner():\n"
        "        with ThreadPoolExecutor(4) as pool:\n"
        "            return list(pool.map(double, range(50)))\n"
        "    return model.apply(inner) == list(range(0, 100, 2))",
        "import copy\ndef answer(model, double):\n"
        "    model.fit(None)\n"
        "    shallow, deep = copy.copy(model), copy.deepcopy(model)\n"
        "    return shallow.size_ == deep.size_ == 3 and model.is_shared(shallow) and not model.is_shared(deep)",
        "from sklearn.utils.validation import check_is_fitted\n"
        "def answer(model, double):\n"
        "    try:\n"
        "        check_is_fitted(model)\n"
        "    except ValueError:\n"
        "        return check_is_fitted(model.fit(None)) is None",
        "def answer(model, double):\n    return bool(double) and bool(model or None)",
        "called = []\ndef answer(model, double):\n"
        "    called.append(1)\n"
        "    return len(called) == 1 and callable(checks.number) and isinstance(model, BaseEstimator)",
        "import warnings\nwarnings.filterwarnings('error')\n"
        "def answer(model, double):\n"
        "    return str(np.ones(1) / 0) == '[inf]'",
    ],
    ids=["threads", "threads in turn", "copies", "fitted", "truth", "imports", "warnings"],
)
def test_objects_of_a_test_are_used_as_in_a_notebook(worker, answer):
    test = """
from mlcourse import checks
from sklearn.base import BaseEstimator
class Model(BaseEstimator):
    def fit(self, X):
        self.size_, self.parts_ = 3, [[]]
        return self
    def apply(self, function):
        return function()
    def is_shared(self, other):
        return self.parts_ is other.parts_
with checks.testing("answer", see="page.html"):
    checks.that(answer(Model(), lambda x: 2 * x) is True, "no")
"""
    cells = [Cell(f"import numpy as np\n{answer}"), Cell(test, "a-1"), Cell("1 + 1")]
    result = worker.grade(cells)
    assert not result["stopped"] and result["outputs"][1][0]["output_type"] == "stream", result["outputs"]


@pytest.mark.parametrize(
    ("argument", "answer", "judge"),
    [
        ("[[1, 2], [3]]", "rows[0].append(5)", "checks.array(returned[0], [1, 2, 5], 'the row')"),
        ("{'x': np.arange(3.0)}", "rows['x'] *= 2", "checks.array(returned['x'], [0, 2, 4], 'x')"),
        (
            "make_pipeline(StandardScaler(), LinearRegression())",
            "rows.fit([[0.0], [2.0]], [0.0, 4.0])",
            "checks.array(returned.predict(np.array([[1.0]])), [2.0], 'the prediction')",
        ),
    ],
)
def test_an_argument_that_comes_back_has_what_the_answer_changed_in_it(worker, argument, answer, judge):
    test = f"""from mlcourse import checks
import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
with checks.testing("change", see="page.html"):
    returned = change({argument})
    {judge}
"""
    outputs = worker.grade([Cell(f"def change(rows):\n    {answer}\n    return rows"), Cell(test, "a-1")])["outputs"]
    assert outputs[1][0]["output_type"] == "stream", outputs


def test_what_a_hidden_test_imports_is_not_known_to_an_answer(worker):
    hidden = "### BEGIN HIDDEN TESTS\nfrom fractions import Fraction\nassert Fraction\n### END HIDDEN TESTS\nanswer()"
    cells = [Cell("def answer():\n    return Fraction(1)"), Cell(f"import decimal\n{hidden}", "a-1")]
    outputs = worker.grade([*cells, Cell("decimal.Decimal(1)"), Cell("Fraction(1)")])["outputs"]
    assert "name 'Fraction' is not defined" in outputs[1][0]["evalue"]
    assert [some[0]["output_type"] for some in outputs[2:]] == ["execute_result", "error"]


def test_warnings_of_a_cell_are_as_the_student_set_them(worker):
    cells = [Cell("import warnings\nwarnings.simplefilter('error')"), Cell("assert True", "a-1")]
    outputs = worker.grade([*cells, Cell("warnings.warn('oh')")])["outputs"]
    assert outputs[2][0]["ename"] == "UserWarning"


def test_a_missing_name_is_explained_by_the_error_of_the_cell_that_defines_it(worker):
    test = "from mlcourse import checks\nwith checks.testing('slope', see='page.html'):\n    {}"
    cells = [
        Cell("import nowhere\nimport numpy as np"),
        Cell("raise NotImplementedError()\nw = 3"),
        Cell("def slope(x):\n    return np.mean(x)"),
        *(Cell(test.format(line), f"a-{line}") for line in ("slope([1, 2])", "w", "b")),
    ]
    told = [outputs[0]["evalue"] for outputs in worker.grade(cells)["outputs"][3:]]
    because = "since the cell that defines it stopped (ModuleNotFoundError: No module named 'nowhere'): mend that cell"
    assert f"name 'np' is not defined, {because}" in told[0]
    assert told[1].startswith("slope is not written yet")
    assert "name 'b' is not defined: write it in the cell of its exercise" in told[2]


def test_a_test_cell_that_cannot_be_read_fails_and_stops_nothing(bubblewrap):
    worker = Worker()
    cells = [Cell("assert (", "a-1"), Cell("assert \0", "a-2"), Cell("assert 1", "a-3")]
    kinds = [outputs[0]["output_type"] for outputs in worker.grade(cells)["outputs"]]
    worker.close()
    assert kinds == ["error", "error", "stream"]
