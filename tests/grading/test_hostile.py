"""The grader resists hostile cells: `hostile.yml` lists them with the result that each must get.

No attack gets more than an honest wrong answer, sees a hidden test or leaves anything behind. The next submission gets
all its points.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
import yaml

from course import Lab, LiveParts, make_course, text_of
from coursegrader import GradingError
from coursegrader.labs import grade_id, squeezed
from coursegrader.protocol import CUT_OFF, Cell
from coursegrader.test_runner import TOO_LONG
from coursegrader.worker import Worker
from paths import ROOT

LIMITS = {"cell": 2, "test": 3, "call": 5, "grace": 3, "total": 60}
ATTACKS = yaml.safe_load((ROOT / "tests" / "hostile.yml").read_text(encoding="utf-8"))
SECRET = "SECRET-271828"

TOOLS = """
import gc, os, socket, stat, sys

def connection():
    for number in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return socket.socket(fileno=os.dup(number))
        except OSError:
            pass

def session():
    frame = sys._getframe()
    while type(frame.f_locals.get("self")).__name__ != "Session":
        frame = frame.f_back
    return frame.f_locals["self"]

said = []

def say(*words):
    said.append(words)
"""

RIGHT = """
import numpy as np, pandas as pd
from sklearn.linear_model import LinearRegression
def fit_line(x, y):
    w, b = np.polyfit(x, y, 1)
    return w, b
def predict(x): return 2 * np.asarray(x)
def fit_model(X, y): return LinearRegression().fit(X, y)
def table(): return pd.DataFrame({"name": ["a", "b"], "value": [1.0, 2.0]})
def apply(f, v): return f(v) + 1
def centre(x): return x - x.mean()
def residuals(model, X, y): return y - model.predict(X)
def draw(generator, n): return generator.normal(size=n)
def refuse(x): return sum(x)
"""

WRONG = RIGHT.replace("return w, b", "return b, w").replace("2 *", "3 *").replace("+ 1", "+ 2")
WRONG = (
    WRONG.replace("LinearRegression()", "LinearRegression(fit_intercept=False)")
    .replace("2.0]", "3.0]")
    .replace("x - x.mean()", "x")
)
WRONG = WRONG.replace("y - model.predict(X)", "model.predict(X) - y")
WRONG = WRONG.replace("normal", "uniform").replace("sum(x)", "max(x)")

TESTS = {
    "before": "checks.number(double(4), 8, 'double(4)')",
    "line": """
        answer = fit_line(np.array([0.0, 1.0, 2.0]), np.array([-2.0, 1.0, 4.0]))
        checks.that(isinstance(answer, tuple) and len(answer) == 2, "expected two numbers")
        checks.number(answer[0], 3, "the slope")
        checks.number(answer[1], -2, "the intercept")""",
    "predict": """
        x = np.linspace(0, 1, 5)
        expected = 2 * x
        answer = predict(x)
        checks.array(answer, expected, "the predictions")
        checks.that(np.allclose(answer, expected), "expected the same numbers")
        np.testing.assert_allclose(answer, expected)
        assert answer[4] == 2""",
    "model": """
        X = np.arange(6.0).reshape(-1, 1)
        model = fit_model(X, 3 * X[:, 0] - 2)
        checks.that(isinstance(model, LinearRegression), "expected a LinearRegression")
        checks.that(model.fit_intercept, "expected an intercept")
        checks.array(model.coef_, [3], "coef_")
        checks.array(model.predict(X[:2]), [-2, 1], "predict")""",
    "table": "checks.frame(table(), pd.DataFrame({'name': ['a', 'b'], 'value': [1.0, 2.0]}), 'the table')",
    "apply": """
        class Weight:
            secret_ = "of this test"
            def run(self, v): return v * 7
        checks.number(apply(lambda v: v * 7, 2), 15, "apply")
        checks.number(apply(Weight().run, 2), 15, "apply with a method")
        checks.number(apply(lambda v: double(v) + 3, 2), 8, "apply with a function that calls the student's")""",
    "centre": """
        x = np.array([1.0, 2.0, 6.0])
        checks.array(centre(x), [-2, -1, 3], "the centred numbers")
        checks.unchanged(x, np.array([1.0, 2.0, 6.0]), "the numbers that were handed in have changed")""",
    # As once in lab 8, where the copy was made outside, with a class and parameters that the student chose
    "copy": """
        X = np.arange(8.0).reshape(-1, 1)
        model = clone(fit_model(X, 5 * X[:, 0] + 1))
        checks.array(model.fit(X, 4 * X[:, 0] + 1).predict(X[:3]), [1, 5, 9], "the predictions of a copy")
        scores = cross_val_score(fit_model(X, X[:, 0]), X, 2 * X[:, 0] + 1, cv=2, scoring="r2", error_score="raise")
        checks.array(scores, [1, 1], "the scores of copies")""",
    # Three tests that use their own objects only after the call
    "residuals": """
        X, y = np.arange(4.0).reshape(-1, 1), np.array([1.0, 0.0, 5.0, 3.0])
        model = LinearRegression().fit(X, y)
        answer = residuals(model, X, y)
        checks.array(answer, y - model.predict(X), "the residuals")
        checks.that(max(abs(answer)) > 1, "expected residuals of more than 1")""",
    "moved": """
        x = np.array([3.0, 1.0, 2.0])
        checks.array(centre(x), x - x.mean(), "the centred numbers")""",
    "draws": """
        generator, alike = np.random.default_rng(8), np.random.default_rng(8)
        checks.array([draw(generator, 3), draw(generator, 3)], alike.normal(size=(2, 3)), "two draws")
        checks.array(generator.normal(size=3), np.random.default_rng(8).normal(size=3), "a draw of the test")""",
    "raises": """
        try:
            outcome = str(double([1, 2])[5])
        except Exception as error:
            outcome = type(error).__name__
        checks.that(outcome == "IndexError", "expected an error")
        try:
            outcome = str(refuse([1, 2]))
        except Exception as error:
            outcome = type(error).__name__
        checks.that(outcome == "3", "expected a number")""",
    "after": "checks.number(triple(4), 12, 'triple(4)')",
}

LEFT = """
import os
def is_at(number, place):
    try:
        return os.lseek(number, 0, os.SEEK_CUR) == place
    except OSError:
        return False
left = [name for folder in ("/scratch", "/dev/shm", "/config") for name in os.listdir(folder)]
print(left + [number for number in range(256) if is_at(number, 12345)])
"""


def check_cell(name):
    imports = "import numpy as np\nimport pandas as pd\nfrom sklearn.base import clone\n"
    imports += (
        "from sklearn.linear_model import LinearRegression\nfrom sklearn.model_selection import cross_val_score\n"
    )
    checks = textwrap.indent(textwrap.dedent(TESTS[name]).strip(), "    ")
    source = f"with checks.testing('{name}', see='somewhere'):\n    # {SECRET}\n    secret = '{SECRET}'\n{checks}\n"
    return Cell(f"from mlcourse import checks\n{imports}{source}", name)


def lab(answer):
    """Return the cells of the small lab, with a student's answer in the middle."""
    return [
        Cell(f"{TOOLS}\ndef double(x): return 2 * x"),
        check_cell("before"),
        Cell(answer),
        *(check_cell(name) for name in TESTS if name not in ("before", "after")),
        Cell("def triple(x): return 3 * x\nfor words in said: print(*words)"),
        check_cell("after"),
    ]


def passed(cells, result):
    """Return the names of the checks that passed."""
    return [
        cell.grade_id
        for cell, outputs in zip(cells, result["outputs"], strict=True)
        if cell.grade_id and not any(output["output_type"] == "error" for output in outputs)
    ]


def grade(worker, answer):
    cells = lab(answer)
    result = worker.grade(cells)
    return passed(cells, result), result


def processes(pid):
    """Return the processes below a process, as pairs of number and command."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with_arguments = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        found += [(int(child), with_arguments), *processes(child)]
    return found


def groups():
    return {str(path) for path in Path("/sys/fs/cgroup").glob("**/mlcourse-*")}


@pytest.fixture(scope="module")
def worker(bubblewrap):
    worker = Worker(**LIMITS)
    worker.start()
    yield worker
    worker.close()


def test_the_right_answer_passes_every_check_and_a_wrong_one_none(worker):
    assert grade(worker, RIGHT)[0] == list(TESTS)
    assert grade(worker, WRONG)[0] == ["before", "after"]
    assert grade(worker, "pass")[0] == ["before", "after"]


# This replaces a test: what code that got into the test runner might do
REACH = """
import os, socket
got = []
def reach(name, call):
    try:
        call()
        got.append(name)
    except OSError:
        pass
reach("the gradebook", lambda: open({folder!r} + "/gradebook.db"))
reach("a submission", lambda: open({folder!r} + "/submission.ipynb"))
reach("users", lambda: open("/etc/passwd"))
reach("processes", lambda: os.listdir("/proc/1"))
reach("memory", lambda: open("/proc/self/mem"))
reach("the network", lambda: socket.create_connection(("127.0.0.1", {port}), timeout=1))
for folder in ("/", "/scratch", "/config", "/dev/shm", "/dev"):
    reach("to write into " + folder, lambda: open(folder + "/file", "w"))
reach("another process", os.fork)
print(got)
"""


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_nothing_and_leaves_nothing(worker, name):
    attack(worker, name)


def attack(worker, name):
    """Grade an attack and then the right answers, and check that both get what they should."""
    got, result = grade(worker, ATTACKS[name]["code"])
    assert got == ATTACKS[name]["gets"].split(), result["outputs"]
    assert SECRET not in str(result["outputs"])
    assert "GOT" not in str(result["outputs"])
    assert all(result["outputs"][at] for at, cell in enumerate(lab("")) if cell.grade_id)
    assert sum(len(str(outputs)) for outputs in result["outputs"]) < 20_000_000
    assert len(processes(worker.process.pid)) == 6, "two programs, each with bubblewrap and its child: nothing else"
    cells = [*lab(RIGHT), Cell(LEFT)]
    next_one = worker.grade(cells)
    assert passed(cells, next_one) == list(TESTS), "the next student loses something"
    assert next_one["outputs"][-1][0]["text"] == "[]\n", "the next student finds something"


def test_the_tests_have_a_sandbox_with_nothing_in_it(worker, tmp_path):
    for name in ("gradebook.db", "submission.ipynb"):
        (tmp_path / name).write_text("content")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = REACH.format(folder=str(tmp_path), port=server.getsockname()[1])
        cells = [Cell("said = 1"), Cell(code, "a-test")]
        outputs = worker.grade(cells)["outputs"]
    assert outputs[1][0].get("text") == "[]\n", outputs


@pytest.mark.parametrize("name", ["loop", "endless-questions", "endless-answer-within-a-question"])
def test_a_loop_without_end_is_named_as_the_reason(worker, name):
    _, result = grade(worker, ATTACKS[name]["code"])
    said = [output["evalue"] for outputs in result["outputs"] for output in outputs if output["output_type"] == "error"]
    assert "not passed: your code took too long: look for a loop that does not end" in said


@pytest.mark.nightly
def test_whoever_is_graded_beside_an_attack_that_takes_all_it_can_gets_everything(bubblewrap):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("this machine has one core, and grades one notebook at a time")
    beside, honest = (Worker(core=core, **LIMITS) for core in cores[:2])
    try:
        beside.start(), honest.start()
        with ThreadPoolExecutor() as threads:
            attack = threads.submit(grade, beside, ATTACKS["fifty-processes-that-spin"]["code"])
            while not attack.done():
                assert grade(honest, RIGHT)[0] == list(TESTS)
            assert attack.result()[0] == ["before"]
    finally:
        beside.close(), honest.close()


def test_whose_process_is_killed_from_outside_is_graded_once_more(worker):
    servers = {pid for pid, _ in processes(worker.process.pid)}
    with ThreadPoolExecutor() as threads:
        graded = threads.submit(grade, worker, f"import time\ntime.sleep(1.5)\n{RIGHT}")
        for _ in range(100):
            time.sleep(0.01)
            started = [
                pid for pid, name in processes(worker.process.pid) if pid not in servers and "student_runner" in name
            ]
            if len(started) == 2:
                os.kill(started[-1], signal.SIGKILL)
                break
        got, result = graded.result()
    assert got != list(TESTS) and result["late"]
    assert grade(worker, RIGHT)[0] == list(TESTS)


def test_whose_cell_was_interrupted_is_graded_once_more(worker):
    got, result = grade(worker, f"import time\ntime.sleep(5)\n{RIGHT}")
    assert got == ["before", "after"] and result["late"]


def test_whoever_only_says_that_the_time_was_over_is_not(worker):
    got, result = grade(worker, RIGHT.replace("return w, b", f"raise ValueError({TOO_LONG!r})"))
    assert "line" not in got and "predict" in got and not result["late"]


def test_whoever_ends_the_own_process_is_not(worker):
    for name in ("exit-now", "kills-itself", "crash", "memory-of-no-process"):
        assert not grade(worker, ATTACKS[name]["code"])[1]["late"], name


def test_a_sandbox_that_cannot_be_made_stops_the_grading_with_a_sentence(bubblewrap, monkeypatch, tmp_path):
    shown = shutil.which("bwrap")
    tool = tmp_path / "bwrap"
    # Simulate a kernel that lets bubblewrap make namespaces, but not the processes in it
    words = "[word.replace('--cap-add', '--cap-drop') for word in sys.argv[1:]]"
    tool.write_text(f"#!{sys.executable}\nimport os, sys\nos.execv({shown!r}, ['bwrap', *{words}])\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    worker = Worker(**LIMITS)
    with pytest.raises(GradingError, match="refuses a sandbox.*Operation not permitted"):
        worker.grade(lab(RIGHT))
    worker.close()


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0"


def test_the_outputs_of_a_notebook_have_a_limit_as_a_whole(worker):
    png = PNG + bytes(4) + (700_000).to_bytes(4, "big") + b"IDAT"
    show = f"from IPython.display import Image, display\nfor _ in range(4): display(Image({png!r} + bytes(700_004)))"
    cells = [Cell(f"{show}\nprint({number})") for number in range(30)]
    result = worker.grade([*cells, Cell("x = 1"), Cell("assert x == 1", "last")])
    sizes = [len(json.dumps(outputs)) for outputs in result["outputs"]]
    assert sum(sizes) < 21_000_000 and sizes[0] > 1_000_000
    assert result["outputs"][-3] == [{"output_type": "stream", "name": "stderr", "text": CUT_OFF}]
    assert result["outputs"][-1][0]["text"] == "passed\n"


@pytest.mark.parametrize(
    ("value", "test"),
    [
        ("np.zeros(3).flat", "assert list(n()) == [0, 0, 0]"),
        ("np.multiply", "assert n()(2, 3) == 6"),
        ("np.zeros(3).dtype", "assert n() is not None"),
        ("np.nditer(np.zeros(3))", "assert n() is not None"),
    ],
)
def test_what_no_class_can_stand_in_for_costs_nobody_the_other_points(worker, value, test):
    cells = [
        Cell(f"import numpy as np\ndef n(): return {value}"),
        Cell(test, "first"),
        Cell("assert n() is None", "second"),
    ]
    cells += [Cell("m = 1"), Cell("assert m == 1", "third")]
    assert passed(cells, worker.grade(cells)) == ["first", "third"]


@pytest.mark.nightly
def test_a_check_that_nothing_interrupts_ends_the_notebook_and_not_the_class(worker):
    cells = [
        Cell("def n(): return 10**13"),
        Cell("assert n() > 0", "before"),
        Cell("assert sum(range(n())) > 0", "endless"),
        Cell("assert n() > 0", "after"),
    ]
    result = worker.grade(cells)
    assert passed(cells, result) == ["before"]
    assert "not run, since" in result["outputs"][3][0]["evalue"]
    assert grade(worker, RIGHT)[0] == list(TESTS)


def test_a_grading_that_was_interrupted_gives_its_answer_to_nobody_else(worker):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            grade(worker, "while True: pass")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert grade(worker, RIGHT)[0] == list(TESTS)


def test_a_server_that_is_killed_takes_everything_with_it(worker):
    assert grade(worker, RIGHT)[0] == list(TESTS)
    below, group = processes(worker.process.pid), f"mlcourse-{worker.process.pid}"
    os.kill(worker.process.pid, signal.SIGKILL)
    with pytest.raises(GradingError, match="run the same command again"):
        grade(worker, RIGHT)
    assert not left(below)
    assert grade(worker, RIGHT)[0] == list(TESTS)
    assert not [path for path in groups() if path.endswith(group)]


def test_whoever_is_killed_while_grading_leaves_nothing(worker, tmp_path):
    script = """if True:
        from coursegrader.worker import Worker
        from coursegrader.protocol import Cell
        worker = Worker()
        worker.grade([])
        print(worker.process.pid, flush=True)
        worker.grade([Cell("import os\\nwhile True: pass")])
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    server = int(run.stdout.readline())
    time.sleep(0.5)
    below = processes(server)
    run.kill()
    run.wait()
    assert len(below) > 6, "the two programs and what they have forked for the notebook"
    assert not left([(server, "coursegrader.worker"), *below])
    assert not [path for path in groups() if path.endswith(f"mlcourse-{server}")]
    assert not list(tmp_path.iterdir())


def left(below, seconds=5):
    """Return the processes that are still there after a while, except zombies."""
    end = time.monotonic() + seconds
    while running := [pid for pid, _ in below if is_running(pid)]:
        if time.monotonic() > end:
            return running
        time.sleep(0.05)
    return []


def is_running(pid):
    try:
        return not re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False


def test_nothing_is_left_when_the_worker_closes(worker):
    grade(worker, ATTACKS["detached-child"]["code"])
    server, below = worker.process.pid, processes(worker.process.pid)
    worker.close()
    assert not left([(server, "coursegrader.worker"), *below])
    assert not [path for path in groups() if path.endswith(f"mlcourse-{server}")]


def test_without_bubblewrap_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    worker = Worker()
    with pytest.raises(GradingError, match="there is no bubblewrap.*sudo apt-get install bubblewrap"):
        worker.grade([Cell("1")])


HONEST = ["amy", "zoe"]
IN_CLASS = ["counts-of-cells", "exit-now", "output-flood", "runs-in-the-browser", "texts-that-no-file-holds"]


@pytest.fixture(scope="module")
def class_(bubblewrap, tmp_path_factory):
    """A class that nbgrader grades: students with an attack for `fit_line`, and honest ones before and after them."""
    name = "lab-01-toy-regression"
    lab = Lab(make_course(tmp_path_factory.mktemp("course"), [name]), name)
    answers = {grade_id(cell): cell.source for cell in lab.submitted["perfect"].cells if grade_id(cell)}
    submitted = {
        **dict.fromkeys(HONEST, lab.submitted["perfect"]),
        "wrong": lab.filled_in({**answers, "fit-line": "raise NotImplementedError"}),
        **{name: lab.filled_in({**answers, "fit-line": ATTACKS[name]["code"]}) for name in IN_CLASS},
    }
    for student, notebook in submitted.items():
        path = lab.root / "submitted" / student / lab.name / f"{lab.name}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)
    lab.nbgrader("autograde", lab.name)
    lab.nbgrader("generate_feedback", lab.name)
    lab.automatic = lab.read_scores("auto_score")
    return lab


@pytest.mark.nightly
def test_honest_students_beside_them_lose_nothing(class_):
    best = {name: class_.points[name] for name in class_.tests}
    for student in HONEST:
        assert {name: class_.automatic[student][name] for name in class_.tests} == best


@pytest.mark.parametrize("name", IN_CLASS)
def test_in_a_class_an_attack_earns_no_more_than_a_wrong_answer(class_, name):
    assert not any(class_.automatic[name][test] for test in class_.tests if test.startswith("fit-line-"))
    assert class_.totals()[name] <= class_.totals()["wrong"]


@pytest.mark.parametrize("name", IN_CLASS)
def test_the_feedback_page_of_an_attack_runs_nothing_and_shows_no_hidden_test(class_, name):
    page, harmless = (class_.feedback(student) for student in (name, "wrong"))
    assert LiveParts(page.read_text(encoding="utf-8")).found == LiveParts(harmless.read_text(encoding="utf-8")).found
    shown = squeezed(text_of(page))
    assert not [line for line in class_.secrets("HIDDEN TESTS") if squeezed(line) in shown]
