"""A given cell runs at grading if a test or a student's cell needs it; all others are shown as handed in."""

import base64
import io
import json
import time
import tracemalloc

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from coursegrader.labs import nbgrader_config, read_lab
from coursegrader.names import names_of, names_of_test
from coursegrader.needed_cells import defer, given_cells
from coursegrader.preprocessors import HANDED_IN, NOT_RUN, SayAsHandedIn
from coursegrader.protocol import Cell
from coursegrader.result_cache import cells_of, write_outputs
from coursegrader.submissions import read_submission
from coursegrader.worker import Worker
from paths import LABS, ROOT


def deferred(cells, always=()):
    """Return the numbers of the cells that need not run; a cell is a kind (given, student or test) and its code."""
    given = {code: code in always for letter, code in cells if letter == "given"}
    notebook = [Cell(code, "a-test" if letter == "test" else None) for letter, code in cells]
    return [number for number, cell in enumerate(defer(notebook, given)) if cell.defers is not None]


IMPORTS = ("given", "import numpy as np\nimport matplotlib.pyplot as plt")
DRAW = ("given", "plt.plot([1, 2])\nplt.show()")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([IMPORTS, DRAW, ("student", "def f(x): return np.sum(x)"), ("test", "assert f([1])")], [1]),
        ([("given", "x = 1"), ("given", "y = x"), ("given", "z = x"), ("test", "assert y")], [2]),
        ([("given", "x = 1"), ("given", "x = 2"), ("test", "assert x")], [0]),
        ([("given", "x = 1"), ("given", "for x in []: pass"), ("test", "assert x")], []),
        ([("given", "x = [1]"), ("given", "x.append(2)"), ("given", "len(x)"), ("test", "assert x")], [2]),
        ([("given", "x = {}"), ("given", "x['a'] = 2"), ("test", "assert x")], []),
        ([("given", "n = 1"), ("student", "def f(): return n"), ("given", "n = 2"), ("test", "f()")], []),
        ([("given", "n = 1"), ("student", "def f(n): return n"), ("test", "f(1)")], [0]),
        ([("given", "n = 1"), ("student", "[n for n in range(3)]"), ("test", "pass")], [0]),
        ([("given", "n = 1"), ("student", "n += 1"), ("test", "pass")], []),
        ([("given", "n = 1"), ("student", "%matplotlib inline\nn"), ("test", "pass")], []),
        ([("given", "n = 1"), ("student", "class A:\n    m = n"), ("test", "pass")], []),
        ([("given", "n = 1"), ("student", "def f(a=n): pass"), ("test", "pass")], []),
        ([("given", "n = 1"), ("student", "this is no Python"), ("test", "pass")], [0]),
        ([("given", "n = 1"), ("student", "def f(x): return x.query('a > @n')"), ("test", "f")], []),
        ([("given", "n = 1"), ("student", "def f(x): return x.loc['n']"), ("test", "f")], [0]),
        ([("given", "n = 1"), ("student", "def f(): return globals()['n']"), ("test", "f")], []),
        ([("given", "n = 1"), ("student", "import __main__\ndef f(): return __main__.n"), ("test", "f")], []),
        ([("given", "n = 1"), ("student", "from __main__ import n"), ("test", "n")], []),
        ([("given", "n = 1"), ("student", "%matplotlib inline\nm = 2"), ("test", "m")], [0]),
        ([("given", "n = 1"), ("student", "if True:\n    %config a.b = 'svg'\n    m = 2"), ("test", "m")], [0]),
        ([("given", "n = 1"), ("student", "%config a.b = n\nm = 2"), ("test", "m")], []),
        ([("given", "n = 1"), ("student", "%config a.b = 'c' \\\nn = 2"), ("test", "n")], []),
        ([("given", "n = 1"), ("student", "%matplotlib {n}\nm = 2"), ("test", "m")], []),
        ([("given", "n = 1"), ("student", "%matplotlib inline\rm = n"), ("test", "m")], []),
        ([("given", "n = 1"), ("student", "!ls\nm = 2"), ("test", "m")], []),
        ([("given", "n = 1"), ("student", "  m = n\n  k = 2"), ("test", "m")], []),
        ([("given", "n = 1"), ("student", ">>> m = n"), ("test", "m")], []),
        ([("given", "n = 1"), ("student", "%%capture out\nm = 2"), ("test", "m")], []),
        ([("given", "n = 1"), ("student", "%%capture\nm = n"), ("test", "m")], []),
        ([("given", "n = [1]"), ("given", "n.append(2)"), ("student", "%%time\nm = len(n)"), ("test", "m")], []),
        ([("given", "n = 1"), ("test", "n = 2\nassert n")], [0]),
        ([("given", "n = 1"), ("test", "with open('x') as n: pass\ncheck = lambda: n")], [0]),
    ],
)
def test_a_given_cell_runs_only_if_what_runs_needs_a_name_of_it(cells, expected):
    assert deferred(cells) == expected


def test_a_cell_with_the_tag_run_always_runs():
    cells = [IMPORTS, DRAW, ("test", "pass")]
    assert deferred(cells) == [0, 1] and deferred(cells, always=(DRAW[1],)) == []


def test_a_given_cell_that_the_student_changed_is_the_students_and_runs():
    notebook, given = [Cell("x = 1  # changed"), Cell("assert True", "a-test")], {"x = 1": False}
    assert all(cell.defers is None for cell in defer(notebook, given))


def test_code_that_cannot_be_read_has_no_names():
    assert names_of("x = (").defines == set() and names_of("x = \0").needs == set()


N = 100_000
DEEP = {
    "a name with dots": f"import {'a.' * (N // 2)}b",
    "a name with dots in a short cell": f"import {'a.' * 4000}b",
    "a name with dots on many lines": "import " + "a.\\\n" * 2000 + "b",
    "functions in functions": "".join(f"{' ' * i}def f():\n" for i in range(70)) + " " * 70 + "a," * 3000 + "a",
    "signs before a list": f"{'~' * 300}[{'a,' * 4000}]",
    "elif": "if a: pass\n" + "elif a:1\n" * 1000,
    "help lines": "a?\n" * (N // 3),
    "help lines in a short cell": "a?\n" * 3000,
    "commands": "!a\n" * 300,
    "magics": "a = %b\n" * (N // 7),
    "sums": f"{'1+' * (N // 2)}1",
    "form feeds": f"{chr(12) * N}x",
    "a long name with a question mark": "a" * 9900 + " ?\n" + "/f\n" * 9,
    "signs after prompts": ">>> /f\n" * 499 + "a+" * 3200 + "a",
    "signs after prompts in a short cell": ">>> /f\n" * 300 + "a+" * 400 + "a",
    "signs after carriage returns": "/f\r" * 501 + "a+" * 3900 + "a",
    "signs after carriage returns in a short cell": "#\r/f\r" * 400 + "a+" * 400 + "a",
    "signs after form feeds": "/f\x0c/f\x1c" * 400,
    "signs after tabs": "/\t" * 500 + "f\n" + "a+" * 990 + "a",
    "signs that quote words": ",\t" * 400 + "f" + " a" * 1000,
    "ten signs that quote words": "," * 10 + "f" + " a" * 1490,
}
NO_PYTHON = {
    "brackets": "(" * N,
    "brackets in a short cell": "(" * 9000,
    "a command without end": f"!{'a' * 9000}",
    "exclamation marks": "!" * 9000,
    "question marks": "?" * 9000,
    "nulls": "\0" * 9000,
    "surrogates": "\ud800" * 9000,
    "quotes": "'" * 9001,
    "percent signs": "%" * 9000,
    "backslashes": "\\\n" * 4000,
    "prompts": ">>> (\n" * 1500,
    "signs": ";" * 9990 + "x",
    "empty lines": "\n" * 9980 + "( $1",
    "signs on lines": (";" * 90 + "\n") * 100,
}


@pytest.mark.parametrize("code", [*DEEP.values(), *NO_PYTHON.values()], ids=[*DEEP, *NO_PYTHON])
def test_no_code_takes_long_or_much_memory_to_read(code):
    names_of.cache_clear()
    began = time.process_time()
    tracemalloc.start()
    names_of(code)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - began < 5 and most < 50 * 2**20


@pytest.mark.parametrize("code", DEEP.values(), ids=DEEP)
def test_beside_code_that_would_take_long_to_read_every_cell_runs(code):
    assert names_of(code) is None
    assert deferred([("given", "n = 1"), ("student", code), ("test", "pass")]) == []


def test_in_a_notebook_whose_cells_all_change_the_same_names_every_cell_runs():
    cells = [("student", "a.a=b.a=c.a=d.a=0")] * 5000
    began = time.process_time()
    assert deferred([("given", "n = 1"), *cells, ("test", "pass")]) == []
    assert time.process_time() - began < 2


def test_in_a_notebook_with_more_code_than_a_person_writes_every_cell_runs():
    assert deferred([("given", "n = 1"), *[("student", f"x = {'1' * 3000}")] * 40, ("test", "pass")]) == []


def test_an_error_in_reading_a_cell_stops_no_grading(monkeypatch):
    def fail(source):
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr("coursegrader.names.parsed", fail)
    names_of.cache_clear()
    assert names_of("x = 1") is None
    names_of.cache_clear()


def test_many_cells_that_bind_the_same_name_take_no_time():
    wide = [("student", ", ".join(f"a{number}_{cell}" for number in range(800))) for cell in range(10)]
    began = time.process_time()
    assert deferred([("given", "x = 1"), *[("student", "if a: x = 1")] * 3000, *wide, ("test", "x")]) == []
    assert time.process_time() - began < 3


def test_a_test_takes_from_the_notebook_what_it_does_not_define():
    assert names_of_test("import numpy\nx = f(numpy.pi)\nwith g() as h:\n    print([h for k in x])") == ["f", "g"]


@pytest.mark.parametrize("lab", LABS)
def test_most_given_cells_of_every_lab_need_not_run(lab):
    notebook = read_lab(ROOT / "solutions" / f"{lab}.md")
    cells = cells_of(notebook, notebook)
    assert sum(cell.defers is not None for cell in cells) > len(given_cells(notebook)) / 2


# In the grader

SLOW = "import time\ntime.sleep(60)\ntable = {1: 2}"


@pytest.fixture(scope="module")
def worker(bubblewrap):
    worker = Worker(cell=5)
    yield worker
    worker.close()


def said(worker, cells, given):
    """Return the texts of the cells that ran."""
    outputs = worker.grade(defer(cells, given))["outputs"]
    return [
        some if some is None else "".join(one.get("text", one.get("evalue", "")) for one in some) for some in outputs
    ]


def test_a_deferred_cell_does_not_run(worker):
    cells = [Cell(SLOW), Cell("x = 1\nprint(x)"), Cell("assert x == 1", "a-test")]
    assert said(worker, cells, {SLOW: False}) == [None, "1\n", "passed\n"]


@pytest.mark.parametrize(
    "code",
    [
        "def f(): return eval('sho' + 'wn') + 1",
        "def f(): return globals().get('nothing', eval('sho' + 'wn')) + 1",
        "def f():\n    exec('global x; x = sho' + 'wn')\n    return x + 1",
    ],
)
def test_a_deferred_cell_runs_when_code_that_is_made_up_needs_it(worker, code):
    cells = [
        Cell("before = 1"),
        Cell("fig = 'drawn'\nshown = before + 2"),
        Cell(code),
        Cell("assert f() == 4", "a-test"),
    ]
    given = {cells[1].source: False}
    assert said(worker, cells, given) == ["", None, "", "passed\n"]


def test_a_cell_that_misses_a_name_of_a_deferred_cell_runs_again(worker):
    cells = [Cell("fig = 'drawn'\nshown = 3"), Cell("print(eval('sho' + 'wn'))"), Cell("pass", "a-test")]
    assert said(worker, cells, {cells[0].source: False}) == [None, "3\n", "passed\n"]


def test_a_call_that_is_made_again_gets_its_arguments_as_they_were(worker):
    answer = "def f(x):\n    x.append(1)\n    return len(x) + eval('sho' + 'wn')"
    cells = [Cell("shown = 3"), Cell(answer), Cell("x = [1]\nassert f(x) == 5 and x == [1]", "a-test")]
    assert said(worker, cells, {"shown = 3": False}) == [None, "", "passed\n"]


def test_a_name_that_no_cell_defines_is_missing(worker):
    cells = [Cell("shown = 3"), Cell("print(shwon)"), Cell("pass", "a-test")]
    [_, error, passed] = said(worker, cells, {"shown = 3": False})
    assert "shwon" in error and passed == "passed\n"


# The output of a cell that did not run


def picture():
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@pytest.fixture
def handed_in(tmp_path):
    """A lab, and the notebook of a student with outputs."""
    test = {"nbgrader": {"grade_id": "f-1", "grade": True, "solution": False, "locked": True, "points": 1}}
    test["nbgrader"] |= {"schema_version": 3, "cell_type": "code", "task": False}
    lab = new_notebook(cells=[new_code_cell("draw()"), new_code_cell("assert True", metadata=test)])
    own = nbformat.from_dict(lab)
    own.cells[0].outputs = [
        new_output("display_data", {"image/png": picture(), "application/javascript": "alert(1)"}),
        new_output("stream", text="a line\n"),
    ]
    own.cells[1].outputs = [new_output("stream", text="f: passed\n")]
    path = tmp_path / "lab.ipynb"
    nbformat.write(own, path)
    return lab, path


def test_a_cell_that_did_not_run_shows_what_was_handed_in_and_says_so(handed_in):
    lab, path = handed_in
    notebook = read_submission(path, lab).notebook
    kept, tests = list(notebook.cells[0].outputs), notebook.cells[1].outputs
    assert [*kept[0].data] == ["image/png"] and kept[1].text == "a line\n" and tests == []
    write_outputs(notebook, {"outputs": [None, []], "seconds": 1.0, "stopped": None})
    shown = SayAsHandedIn().preprocess_cell(notebook.cells[0], {}, 0)[0].outputs
    assert shown[0].data["text/plain"] == HANDED_IN and shown[1:] == kept


def test_a_flood_of_text_does_not_cut_off_what_says_that_a_cell_did_not_run(handed_in):
    _, path = handed_in
    notebook = nbformat.read(path, as_version=4)
    flood = [new_output("stream", text="x" * 90_000) for _ in range(12)]
    notebook.cells.insert(0, new_code_cell("flood()", outputs=flood))
    notebook.cells[1].metadata["mlcourse"] = {"as_handed_in": True}
    for step in nbgrader_config(ROOT).HTMLExporter.preprocessors:
        notebook, _ = step().preprocess(notebook, {})
    assert notebook.cells[1].outputs[0].data["text/plain"] == HANDED_IN


def test_a_cell_that_was_handed_in_without_an_output_says_that_it_was_not_run(handed_in):
    lab, _ = handed_in
    write_outputs(lab, {"outputs": [None, []], "seconds": 1.0, "stopped": None})
    assert SayAsHandedIn().preprocess_cell(lab.cells[0], {}, 0)[0].outputs[0].data["text/plain"] == NOT_RUN


@pytest.mark.parametrize(
    "outputs",
    [
        "no list",
        [1],
        [{"output_type": "nothing"}],
        [{"output_type": "stream", "name": "stdout"}],
        [{"output_type": "stream", "name": "elsewhere", "text": "x"}],
        [{"output_type": "display_data", "data": [], "metadata": {}}],
        [{"output_type": "error", "ename": "x", "evalue": "y", "traceback": 5}],
        [{"output_type": {}, "text": "x"}],
        None,
    ],
)
def test_outputs_that_are_not_well_formed_are_left_out(handed_in, outputs):
    lab, path = handed_in
    text = nbformat.reads(path.read_text(), as_version=4)
    text.cells[0].outputs = outputs
    path.write_text(json.dumps(text))
    assert read_submission(path, lab).notebook.cells[0].outputs == []


def test_a_doubtful_line_of_a_student_gives_no_warning_without_a_name(recwarn):
    assert "pattern" in names_of('pattern = "\\d"\nfound = pattern is "x"').defines and not recwarn.list
