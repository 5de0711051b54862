"""The messages of failed checks, and the answers that pass."""

import contextlib
import copy
import importlib
import linecache
import os
import sys
import warnings
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from scipy.spatial.distance import cdist
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.inspection import permutation_importance
from sklearn.metrics import DistanceMetric
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mlcourse import checks
from mlcourse.book import VARIABLE


def message(check, *args, **options):
    with pytest.raises(checks.CheckFailed) as failure:
        check(*args, **options)
    return str(failure.value)


@pytest.mark.parametrize("two", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), 2 + 1e-9])
def test_any_plain_number_is_accepted(two):
    checks.number(two, 2, "answer")


@pytest.mark.parametrize("wrong", [True, "2", None, ..., [2], 2j, object(), float("nan"), float("inf"), 2.1])
def test_what_is_not_the_number_is_refused(wrong):
    assert "answer" in message(checks.number, wrong, 2, "answer")


def test_a_known_mistake_is_named():
    hint = "that is the sum, not the mean"
    assert message(checks.number, 6, 2, "answer", mistakes={hint: 6}) == f"answer: expected 2, got 6: {hint}"
    assert hint not in message(checks.number, 7, 2, "answer", mistakes={hint: 6})


def test_mistakes_that_take_long_to_compute_are_computed_for_wrong_answers_alone():
    computed = []

    def mistakes():
        computed.append(1)
        return {"that is the sum, not the mean": 6}

    checks.number(2, 2, "answer", mistakes=mistakes)
    checks.array([2], [2], "answer", mistakes=mistakes)
    assert not computed
    assert message(checks.number, 6, 2, "answer", mistakes=mistakes).endswith("got 6: that is the sum, not the mean")
    assert computed == [1]


def test_a_forgotten_return_is_named():
    assert "`return`" in message(checks.number, None, 2, "answer")


@pytest.mark.parametrize("values", [[1, 2], (1.0, 2.0), np.array([1, 2]), pd.Series([1, 2]), pd.Series([1, 2], [5, 6])])
def test_any_sequence_of_the_right_numbers_is_accepted(values):
    checks.array(values, [1, 2], "answer")


@pytest.mark.parametrize("one", [1, 1.0, np.float32(1), np.int64(1)])
def test_numbers_among_objects_are_accepted(one):
    checks.array(np.array([one, 2], dtype=object), [1, 2], "answer")
    checks.array(np.array([None, 2], dtype=object), [np.nan, 2], "answer", nan=True)


@pytest.mark.parametrize(
    "one",
    ["1", b"1", True, np.True_, 1 + 5j, np.complex128(1 + 5j), np.timedelta64(1, "ns"), np.datetime64(1, "ns"), 10**400]
    + [pd.Timedelta(1, "ns"), np.array("1"), np.array(1 + 5j)],
)
def test_what_is_no_real_number_is_refused_among_objects(one):
    values = np.array([None, 2], dtype=object)
    values[0] = one
    for answer in (values, pd.Series(values, dtype=object), pd.DataFrame({"a": values}, dtype=object)["a"]):
        assert "expected numbers" in message(checks.array, answer, [1, 2], "answer")


def test_a_column_instead_of_a_vector_is_told_by_its_shape():
    assert "shape (2,), got shape (2, 1)" in message(checks.array, [[1], [2]], [1, 2], "answer")


def test_ragged_rows_are_refused():
    assert "different lengths" in message(checks.array, [[1, 2], [3]], [1, 2], "answer")


def test_a_mistake_may_have_another_shape_than_the_answer():
    hint = "one value a row is missing"
    assert hint in message(checks.array, [[1], [2]], [1, 2], "answer", mistakes={hint: [[1], [2]]})


def test_nan_is_right_only_where_the_check_expects_it():
    poisoned = [1, float("nan")]
    checks.array(poisoned, poisoned, "answer", nan=True)
    assert "got [ 1., nan]" in message(checks.array, poisoned, poisoned, "answer")
    assert "got [ 1., nan]" in message(checks.array, poisoned, [1, 2], "answer", nan=True)
    checks.number(poisoned[1], poisoned[1], "answer", nan=True)
    assert "got nan" in message(checks.number, poisoned[1], poisoned[1], "answer")
    hint = "that divides by 0"
    assert hint in message(checks.array, poisoned, [1, 2], "answer", mistakes={hint: poisoned})


def test_values_are_missing_from_a_table_only_where_the_check_expects_it():
    gaps = pd.DataFrame({"speed": [40, np.nan], "car": ["a", None]})
    checks.frame(gaps, gaps, "table", nan=True)
    assert "missing values in 'speed', 'car'" in message(checks.frame, gaps, gaps, "table")
    assert "differ in 'speed'" in message(checks.frame, gaps, gaps.assign(speed=[40.0, 50.0]), "table", nan=True)


TABLE = pd.DataFrame({"speed": [40, 50], "car": ["a", "b"]})


def test_a_table_may_have_its_rows_and_columns_in_any_order():
    checks.frame(TABLE.iloc[::-1, ::-1], TABLE, "table")


def test_the_names_of_the_columns_of_a_table_may_be_categories():
    checks.frame(TABLE.set_axis(pd.CategoricalIndex(["speed", "car"]), axis=1), TABLE, "table")


def test_the_index_of_a_table_may_have_the_name_of_a_column():
    checks.frame(TABLE.set_index("car", drop=False).iloc[::-1], TABLE, "table")


def test_a_table_may_hold_its_numbers_as_objects_but_no_complex_ones():
    filled = pd.DataFrame(index=TABLE.index, columns=TABLE.columns)
    for row in TABLE.index:
        filled.loc[row] = TABLE.loc[row].tolist()
    assert filled["speed"].dtype == object
    checks.frame(filled, TABLE, "table")
    assert "should hold numbers" in message(checks.frame, TABLE.assign(speed=TABLE["speed"] + 0j), TABLE, "table")
    assert "should hold numbers" in message(checks.frame, TABLE.astype({"speed": str}), TABLE, "table")


def test_categories_in_an_order_of_their_own_are_the_values_that_they_name():
    turned = TABLE.assign(car=pd.Categorical(["a", "b"], categories=["b", "a"], ordered=True))
    checks.frame(turned, TABLE, "table")
    assert "differ in 'car'" in message(checks.frame, turned.iloc[[0, 0]], TABLE.assign(speed=40), "table")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (TABLE.to_numpy(), "DataFrame"),
        (TABLE[["speed"]], "columns 'speed', 'car'"),
        (TABLE.rename(columns={"car": "vehicle"}), "got 'speed', 'vehicle'"),
        (TABLE.iloc[:1], "expected 2 rows, got 1"),
        (TABLE.assign(speed=["40", "50"]), "should hold numbers"),
        (TABLE.assign(speed=[40, 60]), "differ in 'speed'"),
        (TABLE.assign(car=["a", "c"]), "differ in 'car'"),
        (None, "`return`"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(table, words):
    assert words in message(checks.frame, table, TABLE, "table")


def test_only_the_right_error_refuses_a_call():
    checks.raises(ValueError, lambda: float("x"), "float('x')", "look")
    for call, came in (
        (lambda: None, "None"),
        (ValueError, "one that was returned, not raised"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ):
        assert (
            message(checks.raises, ValueError, call, "call()", "look")
            == f"call(): expected a ValueError, got {came}: look"
        )


class Unshown:
    def __repr__(self):
        raise ValueError("refused")


def test_a_call_has_not_refused_if_showing_what_it_returned_raises_the_error():
    with pytest.raises(ValueError, match="refused"):
        checks.raises(ValueError, Unshown, "call()", "look")


class AlwaysTrue:
    __hash__ = None

    def __bool__(self):
        return True

    def __eq__(self, other):
        return True


def test_only_a_plain_true_satisfies_a_condition():
    checks.that(True, "no")
    checks.that(np.bool_(True), "no")
    for condition in (AlwaysTrue(), 1, "yes", np.bool_(False), None):
        assert message(checks.that, condition, "the reason") == "the reason"


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([], []),
        (np.empty((0, 2)), [1, 2]),
        (1, [1, 1]),
        ([[1, 1]], [1, 1]),
        (np.nan, np.nan),
        (np.inf, np.inf),
        ("1", 1),
        (None, 1),
    ],
)
def test_numbers_are_alike_only_if_there_are_as_many(actual, expected):
    assert not checks.alike(actual, expected)
    assert checks.alike([1, 2 + 1e-7], np.array([1.0, 2.0])) and not checks.alike([1, 2.1], [1, 2])


def failure_of(action):
    with pytest.raises(checks.CheckFailed) as failure, checks.testing("slope", see="page.html#part"):
        action()
    return str(failure.value)


def raise_(error):
    raise error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotImplementedError(), "slope is not written yet"),
        (NameError("name 'slpoe' is not defined"), "'slpoe' is not defined"),
        (TypeError("unsupported operand"), "your code raised TypeError: unsupported operand"),
        (ValueError(), "your code raised ValueError: no message"),
        (checks.CheckFailed("slope: expected 1, got 2"), "slope: expected 1, got 2."),
    ],
)
def test_whatever_goes_wrong_becomes_one_sentence_that_says_where_to_look(error, words):
    sentence = failure_of(lambda: raise_(error))
    assert words in sentence
    assert sentence.endswith("See page.html#part in the book.")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["import numpy\nimport nowhere\nimport pandas as slope"], "stopped (ModuleNotFoundError: No module named 'no"),
        (
            ["1 / 0\ndef slope(x):\n    return x"],
            "since the cell that defines it stopped (ZeroDivisionError: division by",
        ),
        (["intercept, slope = 1 / 0"], "since the cell that defines it stopped (ZeroDivisionError"),
        (["def slope(x:\n    return x"], "since the cell that defines it stopped (SyntaxError"),
        (["slope = [][1]", "slope = {}[2]"], "stopped (KeyError: 2): mend that cell and run it. See "),
        (["raise NotImplementedError()\nslope = 3"], "slope is not written yet: replace the line"),
        (["1 / 0\nslpoe = 3"], "name 'slope' is not defined: write it in the cell of its exercise, mind the spelling"),
        (["print(slope)\nslope == 3\nf(slope=3)"], "'slope' is not defined: write it in the cell of its exercise"),
    ],
)
def test_a_missing_name_is_explained_by_the_error_of_the_cell_that_defines_it(cells, words, monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell puts a module of its own there
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    test = "from mlcourse import checks\nwith checks.testing('slope', see='page.html'):\n    slope"
    with capture_output():
        for cell in cells:
            shell.run_cell(cell, store_history=True)
    with capture_output() as shown:
        shell.run_cell(test)
    assert words in " ".join(shown.stdout.split())


def test_a_failure_in_a_notebook_shows_its_sentence_with_the_whole_address_and_no_line_of_the_test(monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    monkeypatch.setenv(VARIABLE, "https://example.org/a-site-with-a-long-name/and-a-folder-with-a-long-name")
    shell = InteractiveShell.instance()
    with capture_output() as shown:
        shell.run_cell(
            "from mlcourse import checks\nwith checks.testing('slope', see='page.html#a-part'):\n"
            "    secret = 42\n    checks.number(1, 2, 'slope')"
        )
    place = f"{os.environ[VARIABLE]}/book/page.html#a-part"
    assert shown.stdout.split() == f"slope: expected 2, got 1. See {place} in the book.".split()


@pytest.mark.parametrize(
    ("actual", "expected", "is_rounded"),
    [
        (0.333, 1 / 3, True),
        ([0.33, 0.67, 1.33], [1 / 3, 2 / 3, 4 / 3], True),
        (0.3, 1 / 3, False),
        (0.335, 1 / 3, False),
        ([0, 0, 0], [1e-9, 2e-8, 3e-8], False),
    ],
)
def test_numbers_that_are_right_but_rounded_are_called_so(actual, expected, is_rounded):
    with pytest.raises(checks.CheckFailed) as failure:
        checks.array(actual, expected, "the shares", atol=0)
    assert ("do not round" in str(failure.value)) == is_rounded


def test_an_error_names_the_line_of_the_answer_and_none_of_the_test():
    cells = {"<answer>": "def slope(x):\n    return x - [1]", "<test>": TEST.format(call="slope(2)")}
    sentence = run(cells)
    assert "your code raised TypeError: unsupported operand" in sentence
    assert sentence.endswith("in your line `return x - [1]`, while slope had x = 2. See page.html in the book.")
    sentence = run({"<test>": TEST.format(call="2 - [1]")})
    assert "unsupported operand" in sentence
    assert "in your line" not in sentence
    assert "[1]" not in sentence


TEST = (
    "from mlcourse import checks\nwith checks.testing('slope', see='page.html'):\n    checks.number({call}, 2, 'slope')"
)


def run(cells):
    """Run cells like a notebook, with source lines in tracebacks, and return the error message of the last."""
    names = {}

    def run():
        for name, code in cells.items():
            linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
            exec(compile(code, name, "exec"), names)

    with pytest.raises(checks.CheckFailed) as failure:
        run()
    return str(failure.value)


def test_an_error_names_the_shapes_of_the_arguments():
    answer = "def first(z):\n    return z[5]\n\ndef slope(X, labels, k=3, *, name='a', way=len):\n    return first(X)"
    test = f"import numpy as np\n{TEST.format(call='slope(np.ones((1, 2)), [1, 2])')}"
    assert run({"<answer>": answer, "<test>": test}).endswith(
        ", in your line `return z[5]`, while slope had X of shape (1, 2), labels of length 2, k = 3 and name = 'a'. "
        "See page.html in the book."
    )


@pytest.mark.parametrize(("place", "end"), [(", in your line `return x - [1]`",) * 2, ("", ": no")])
def test_an_error_from_another_process_brings_the_line_of_the_answer_along(place, end):
    error = ValueError("no")
    error.place = place
    assert failure_of(lambda: raise_(error)).removesuffix(". See page.html#part in the book.").endswith(end)


def test_a_sentence_shows_numbers_and_texts_of_numpy_like_those_of_python():
    got = [np.str_("soil"), np.int64(3), np.float64(0.5)]
    said = failure_of(lambda: checks.that(False, f"expected {np.str_('crop')!r}, got {got}"))
    assert said.startswith("expected 'crop', got ['soil', 3, 0.5].")
    said = failure_of(lambda: checks.raises(ValueError, lambda: (np.int64(2), np.float64("nan")), "f(1)", "raise it"))
    assert said.startswith("f(1): expected a ValueError, got (2, nan): raise it.")


def test_a_long_message_keeps_its_end_where_the_advice_often_stands():
    advice = "Reshape your data with reshape(-1, 1)."
    assert advice.rstrip(".") in failure_of(lambda: raise_(ValueError("array=[" + "1 2 3 " * 99 + "] " + advice)))


def test_warnings_and_prints_of_an_answer_do_not_reach_the_test_cell(capsys):
    def noisy():
        warnings.warn("deprecated", stacklevel=1)
        print("debug")
        print("debug", file=sys.stderr)
        return 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with checks.testing("noisy", see="page.html"):
            checks.number(noisy(), 2, "noisy()")
    assert capsys.readouterr() == ("noisy: passed\n", "")


@pytest.mark.parametrize("passes", [True, False])
def test_a_test_cell_leaves_no_figure_behind(passes):
    with contextlib.suppress(checks.CheckFailed), checks.testing("plot", see="page.html"):
        plt.subplots()
        checks.that(passes, "no")
    assert plt.get_fignums() == []


HINT = "LDA: write your own class"


class Inherited(LinearDiscriminantAnalysis):
    pass


class Kept(LinearDiscriminantAnalysis):
    __init__, fit = LinearDiscriminantAnalysis.__init__, LinearDiscriminantAnalysis.fit


FOUR = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
BEFORE = dict(vars(LinearDiscriminantAnalysis))
MADE_BEFORE = LinearDiscriminantAnalysis().fit(*FOUR)


@pytest.mark.parametrize(
    "borrow",
    [
        LinearDiscriminantAnalysis,
        Inherited,
        lambda: MADE_BEFORE.fit([[0.0]], [1]),
        lambda: MADE_BEFORE.transform([[0.0]]),
        lambda: Kept().fit(*FOUR),
    ],
)
def test_the_work_of_a_class_cannot_be_borrowed(borrow):
    with checks.without(LinearDiscriminantAnalysis, HINT):
        assert message(borrow) == HINT


def test_a_class_works_again_after_the_test_even_if_that_failed():
    with pytest.raises(ZeroDivisionError), checks.without(LinearDiscriminantAnalysis, HINT):
        raise ZeroDivisionError
    model = LinearDiscriminantAnalysis().fit(*FOUR)
    assert model.predict([[2.0]]) == [1]
    assert vars(LinearDiscriminantAnalysis) == BEFORE


def test_other_classes_may_be_used_where_one_is_refused():
    with checks.without(LinearDiscriminantAnalysis, HINT):
        assert QuadraticDiscriminantAnalysis().get_params()


HANDED_OVER = {
    "an array": (np.array([1.0, np.nan]), lambda array: array.fill(0)),
    "an array of labels": (np.array(["b", "a"]), lambda array: array.sort()),
    "a table": (TABLE, lambda table: table.insert(0, "n", 1)),
    "a list": ([2, 1], lambda numbers: numbers.sort()),
    "a dictionary": ({"a": 1}, lambda names: names.clear()),
    "a generator": (np.random.default_rng(1), lambda rng: rng.normal()),
    "a model": (QuadraticDiscriminantAnalysis(), lambda model: model.set_params(tol=1)),
    "a model to fit": (make_pipeline(StandardScaler()), lambda model: model.fit([[0.0], [1.0]])),
}


@pytest.mark.parametrize(("argument", "change"), HANDED_OVER.values(), ids=HANDED_OVER)
def test_an_answer_that_changes_what_it_was_handed_is_told(argument, change):
    argument, before = copy.deepcopy(argument), copy.deepcopy(argument)
    checks.unchanged(argument, before, "leave it alone")
    change(argument)
    assert message(checks.unchanged, argument, before, "leave it alone") == "leave it alone"


def test_a_secret_gives_hidden_tests_other_data_and_the_same_data_each_time(monkeypatch):
    plain = checks.rng(3).normal(), checks.seed(3)
    assert plain == (np.random.default_rng(3).normal(), 3)
    monkeypatch.setattr(checks, "_secret", (1, 2))
    secret = checks.rng(3).normal(), checks.seed(3)
    assert secret == (checks.rng(3).normal(), checks.seed(3))
    assert secret[0] != plain[0] and secret[1] != plain[1]
    assert secret != (checks.rng(4).normal(), checks.seed(4))


def test_a_generator_that_one_check_hands_over_does_not_draw_the_data_of_another(monkeypatch):
    monkeypatch.setattr(checks, "_secret", (1, 2))
    drawn = []
    for cell in ("fit-1", "fit-2", "fit-1"):
        monkeypatch.setattr(checks, "_cell", cell)
        drawn.append((checks.rng(3).normal(), checks.seed(3)))
    assert drawn[0] == drawn[2] and drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]


@pytest.mark.parametrize(
    "function", [np.polyfit, cdist, cross_val_score, permutation_importance], ids=lambda one: one.__name__
)
def test_a_function_of_a_library_is_refused_by_whatever_name_it_is_called(function):
    borrowed = [function]
    with pytest.raises(checks.CheckFailed, match="write it yourself"), checks.without(function, "write it yourself"):
        borrowed[0](1, 2, 3)
    with pytest.raises(Exception, match="^(?!write it yourself)"):
        borrowed[0]("no", "data", "no")


@pytest.mark.parametrize(
    "borrow",
    [
        lambda: DistanceMetric.get_metric("euclidean").pairwise([[0.0]], [[1.0]]),
        lambda: sklearn.metrics.DistanceMetric.get_metric("cityblock"),
        lambda: importlib.import_module("sklearn.metrics").DistanceMetric.get_metric("hamming"),
    ],
)
def test_a_compiled_class_is_refused_where_a_module_names_it(borrow):
    kept = DistanceMetric
    with checks.without(kept, HINT):
        assert message(borrow) == HINT
    assert DistanceMetric is kept and sklearn.metrics.DistanceMetric is kept
    assert DistanceMetric.get_metric("euclidean").pairwise([[0.0]], [[1.0]]) == 1


def test_several_things_can_be_refused_at_once():
    for borrow in (lambda: np.polyfit([1, 2], [1, 2], 1), LinearDiscriminantAnalysis):
        with pytest.raises(checks.CheckFailed), checks.without((np.polyfit, LinearDiscriminantAnalysis), "write it"):
            borrow()
    assert np.polyfit([1, 2], [1, 2], 1) == pytest.approx([1, 0]) and LinearDiscriminantAnalysis()


def test_what_is_not_written_in_python_cannot_be_refused():
    with pytest.raises(TypeError, match="written in Python"), checks.without(np.add, "write it"):
        pass


def test_a_grader_that_runs_answers_elsewhere_looks_there(monkeypatch):
    refused, given = [], [1, 2]
    elsewhere = SimpleNamespace(
        without=lambda cls, message: contextlib.nullcontext(refused.append((cls, message))),
        changed=lambda thing: thing is given,
    )
    monkeypatch.setattr(checks, "_elsewhere", elsewhere)
    with checks.without(LinearDiscriminantAnalysis, HINT):
        LinearDiscriminantAnalysis()
    assert refused == [(LinearDiscriminantAnalysis, HINT)]
    checks.unchanged([1, 2], [1, 2], "leave it alone")
    assert message(checks.unchanged, given, [1, 2], "leave it alone") == "leave it alone"


def test_a_lookup_takes_its_arguments_as_a_function_does():
    interval = checks.Lookup([(0, 1), (2, 3)], "m", "n")
    assert interval(1, 5) == interval(1, n=5) == interval(n=5, m=1) == (2, 3)
    for arguments, options in [((1,), {}), ((1, 5), {"n": 5}), ((1, 5, 6), {}), ((1,), {"k": 5})]:
        with pytest.raises(TypeError, match="takes the arguments m, n"):
            interval(*arguments, **options)
