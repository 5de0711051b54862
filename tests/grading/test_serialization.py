"""Messages of a student's process create only plain data and proxies, no objects with behaviour."""

import copy
import datetime
import decimal
import io
import json
import pickle
import random
import struct
import threading
import time
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.utils import all_estimators

from coursegrader import serialization, test_runner
from coursegrader.protocol import Cell, CellResult, Malformed, failure, read_verdict, verdict

# The base types of plain data, repeated here on purpose: a change of `PLAIN` must be made twice
NUMBERS = {type(None), type(...), bool, int, float, str, bytes}
CONTAINERS = {list, tuple, set, frozenset, dict, range}
TABLES = {pd.DataFrame, pd.Series, pd.Interval, type(pd.NA), type(pd.NaT)}


def all_parts(value):
    """Yield a value and everything in it."""
    yield value
    if type(value) is dict:
        parts = [*value.keys(), *value.values()]
    elif type(value) in (list, tuple, set, frozenset):
        parts = list(value)
    elif type(value) is np.ndarray:
        parts = value.ravel().tolist() if value.dtype.kind == "O" else []
    elif type(value) is pd.DataFrame:
        parts = [value.index, value.columns, *(value.iloc[:, at] for at in range(value.shape[1]))]
        assert not value.attrs
    elif type(value) is pd.Series:
        parts = [value.name, value.index, value.array]
        assert not value.attrs
    elif isinstance(value, pd.MultiIndex):
        parts = [list(value.names), list(value)]
    elif isinstance(value, pd.Index):
        parts = [value.name, value.array]
    elif isinstance(value, pd.Categorical):
        parts = [value.categories, value.codes]
    elif isinstance(value, pd.api.extensions.ExtensionArray):
        parts = list(value) if value.dtype == object else []
    elif type(value) is pd.Interval:
        parts = [value.left, value.right]
    else:
        parts = []
    for part in parts:
        yield from all_parts(part)


def is_plain(value):
    """Whether a value, without its parts, is of a plain type, which has no side effects."""
    kind = type(value)
    if kind in NUMBERS | CONTAINERS | TABLES or kind is StandIn:
        return True
    if kind is np.ndarray or isinstance(value, np.generic):
        return value.dtype.kind in "biufcUSmMO" and value.dtype.metadata is None
    module = kind.__module__.split(".")[0]
    return isinstance(value, (pd.Index, pd.api.extensions.ExtensionArray)) and module == "pandas"


class StandIn:
    """The replacement of a handle in these tests."""


def loaded(message):
    return serialization.loads(message, lambda handle: StandIn())


def as_message(tree, blobs=()):
    parts = [json.dumps(tree).encode(), *blobs]
    return b"".join([struct.pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts)), *parts])


PLAIN = [
    None,
    ...,
    [True, 3, -0.5, "text", b"bytes", bytearray(b"bytes")],
    ({1, 2}, frozenset("ab"), {"a": (1,), 2: None}, range(3, 9, 2)),
    [np.float32(2), np.datetime64("2020-01-01"), np.str_("text"), np.bool_(True)],
    [np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.array([1, None, "x"], dtype=object), np.zeros((0, 3))],
    pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["u", "v"])}, index=[3, 4]),
    pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": pd.array(["x", None], dtype="string")}),
    [pd.Series([1.0, 2.0], name="x", index=pd.date_range("2020-01-01", periods=2)), pd.RangeIndex(3), pd.NA, pd.NaT],
    [pd.MultiIndex.from_tuples([(1, "a"), (2, "b")], names=["x", "y"]), pd.Interval(0, 1), pd.Timestamp("2020-01-01")],
    [{}.keys(), {1: 2}.items(), decimal.Decimal("1.5")],
]


@pytest.mark.parametrize("value", PLAIN)
def test_plain_data_arrive_as_plain_data(value):
    arrived = loaded(serialization.dumps(value, pytest.fail))
    assert all(is_plain(part) for part in all_parts(arrived))
    if type(value) in (pd.DataFrame, pd.Series):
        pd.testing.assert_frame_equal(arrived, value)


def with_behaviour():
    """Return objects of many types that are not plain data, among them every estimator of scikit-learn."""
    things = [print, len, StandIn, type, StandIn(), types.ModuleType("x"), io.StringIO(), threading.Lock(), open]
    things += [iter([]), (x for x in []), ValueError("x"), property(), np.random.default_rng(), np.sin, np.dtype("O")]
    things += [pd.Index, pd.Timestamp.now, np.zeros(1, dtype=[("a", "O")]), memoryview(b""), slice(1), lambda: 0]
    for _, estimator in all_estimators():
        try:
            things.append(estimator())
        except TypeError:
            things.append(estimator)
    return things


@pytest.mark.parametrize("thing", with_behaviour(), ids=lambda thing: type(thing).__name__)
def test_everything_else_stays_behind_and_travels_as_a_handle(thing):
    asked = []

    def handle(of):
        asked.append(of)
        return serialization.Handle(7, "object", "x", [])

    arrived = loaded(serialization.dumps([thing, {"deeper": (thing,)}], handle))
    assert all(is_plain(part) for part in all_parts(arrived))
    assert sum(type(part) is StandIn for part in all_parts(arrived)) == 2
    # Of an array, a view
    assert all(of is thing or isinstance(of, np.ndarray) for of in asked)


TAGS = sorted(name[5:] for name in dir(serialization._Reader) if name.startswith("read_"))


def random_tree(rng, depth=0):
    """Return a message of roughly the right form, with any tag that the reader knows."""
    if depth > 4 or rng.random() < 0.3:
        return rng.choice([None, True, 0, 1, 2, -1, 10**20, 1.5, "", "a", "O", "<f8", "|S1", "datetime64", "category"])
    if rng.random() < 0.3:
        return [random_tree(rng, depth + 1) for _ in range(rng.randrange(4))]
    tree = {"t": rng.choice(TAGS)}
    if rng.random() < 0.8:
        tree["v"] = [random_tree(rng, depth + 1) for _ in range(rng.randrange(5))]
    if rng.random() < 0.6:
        tree["d"] = rng.choice(["<f8", "|b1", "<i8", "O", "|O", "<U1", "<M8[D]", "V8", "i4,i4", "(2,)f8", "|S8", 8])
        tree["s"] = [rng.choice([0, 1, 2, 8, -1, 10**18]) for _ in range(rng.randrange(3))]
        tree["b"] = rng.choice([0, 1, -1, "0", None])
    return tree


def changed(rng, tree):
    """Return a message with one random part replaced."""
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.1:
        return random_tree(rng, 2)
    tree = copy.copy(tree)
    key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    tree[key] = changed(rng, tree[key])
    return tree


def messages(rng):
    """Yield random messages, and valid ones with a change."""
    handle = serialization.Handle(1, "function", "print", [])
    proper = [serialization.dumps([value, print], lambda thing: handle) for value in PLAIN]
    for _ in range(10_000):
        yield as_message(random_tree(rng), [bytes(8), b"ab"][: rng.randrange(3)])
        message = rng.choice(proper)
        count, size = struct.unpack_from("<2I", message)
        tree = json.loads(message[4 * (count + 1) :][:size])
        sizes = struct.unpack_from(f"<{count}I", message, 4)
        ends = np.cumsum([4 * (count + 1), *sizes])
        blobs = [message[start:end] for start, end in zip(ends[1:-1], ends[2:], strict=True)]
        yield as_message(changed(rng, tree), blobs)


def test_no_message_whatever_makes_anything_but_plain_data():
    rng, made = random.Random(0), set()
    for message in messages(rng):
        try:
            arrived = loaded(message)
        except Malformed:
            continue
        for part in all_parts(arrived):
            assert is_plain(part), type(part)
            made.add(type(part))
    wanted = {list, tuple, set, dict, range, np.ndarray, StandIn, bytes, pd.DataFrame, pd.Series, pd.Interval}
    assert wanted <= made


COMPLEX = [2j, np.complex64(2j), np.array([1, 2j]), pd.Series([2j]), pd.DataFrame({"a": [1, 2j]}), [1, {"a": 2j}]]


@pytest.mark.parametrize("value", COMPLEX)
def test_complex_numbers_are_refused_since_tests_compute_with_real_ones(value):
    with pytest.raises(Malformed, match="expected real numbers, got complex ones"):
        serialization.dumps(value, None)
    for tree in ({"t": "complex", "v": [0, 2]}, {"t": "array", "d": "<c16", "s": [1], "b": 0}):
        with pytest.raises(Malformed):
            loaded(as_message(tree, [bytes(16)]))


def test_bytes_that_are_no_message_are_refused():
    rng = random.Random(1)
    for message in [b"", b"\x80\x04.", pickle.dumps(LinearRegression()), *map(rng.randbytes, range(1, 200))]:
        with pytest.raises(Malformed):
            loaded(message)


COLUMN = [None, {"t": "array", "d": "<f8", "s": [1000], "b": 0}]
ALIKE = [number * (2**61 - 1) for number in range(1, 150_001)]
GROWING = {
    "a part named sixty times": [[{"t": "array", "d": "|i1", "s": [2_000_000], "b": 0}] * 60, [bytes(2_000_000)]],
    "bytes named sixty times": [[{"t": "bytes", "b": 0}] * 60, [bytes(2_000_000)]],
    "keys of one hash in a dict": [{"t": "dict", "v": [item for key in ALIKE for item in (key, 0)]}],
    "keys of one hash in a set": [{"t": "set", "v": ALIKE}],
    "keys of one hash in many sets": [[{"t": "set", "v": ALIKE[:49]}] * 5000],
    "millions of lists": [[[]] * 5_000_000],
    "lists in lists": [json.loads("[" * 900 + "]" * 900)],
    "a range without end": [{"t": "range", "v": [0, 10**18, 1]}],
    "an index without end": [{"t": "rangeindex", "v": [0, 10**18, 1, None]}],
    "an empty array with a long axis": [{"t": "array", "d": "<f8", "s": [0, 2**62], "b": 0}, [b""]],
    "texts of no width": [{"t": "array", "d": "<U0", "s": [10**9], "b": 0}, [b""]],
    "a number of a million digits": [json.loads("[0]"), [], b"9" * 1_000_000],
}


@pytest.mark.parametrize("name", GROWING)
def test_a_message_that_would_grow_when_it_is_read_is_refused_before_it_does(name):
    tree, blobs, *raw = *GROWING[name], *[[]] * (2 - len(GROWING[name]))
    message = as_message(tree, blobs)
    if raw:
        message = struct.pack("<2I", 1, len(raw[0])) + raw[0]
    begin = time.process_time()
    with pytest.raises(Malformed):
        loaded(message)
    small = as_message([0] * 1_000_000)
    middle = time.process_time()
    loaded(small)
    # Compare with a list of a million numbers, which is an honest answer
    assert middle - begin < 10 * (time.process_time() - middle) + 0.5


@pytest.mark.parametrize(
    "array",
    [
        {"t": "array", "d": "<U2", "s": [1], "b": 0},
        {"t": "array", "d": ">U2", "s": [1], "b": 0},
        {"t": "array", "d": "<M8[0s]", "s": [1], "b": 0},
    ],
    ids=lambda array: array["d"],
)
def test_an_array_of_what_python_or_numpy_cannot_hold_is_refused(array):
    with pytest.raises(Malformed):
        loaded(as_message(array, [b"\xff" * 8]))


def test_texts_of_any_length_come_as_objects():
    texts = np.array([["oak", "pine"], ["a" * 99, ""]], dtype=np.dtypes.StringDType())
    answer = loaded(serialization.dumps(texts, None))
    assert answer.dtype == object and answer.tolist() == texts.tolist()


@pytest.mark.parametrize("dtype", ["<U2", ">U2", "<M8[D]", "<M8[10s]"])
def test_texts_and_dates_of_either_order_of_bytes_come_as_they_were(dtype):
    texts = ["2020-01-01", "2020-01-02"] if "M" in dtype else ["\U0010ffffé", "x"]
    array = np.array(texts, dtype=dtype)
    tree = {"t": "array", "d": dtype, "s": [2], "b": 0}
    assert np.array_equal(loaded(as_message(tree, [array.tobytes()])), array)


# Outside, a proxy replaces an object that stays in the sandbox


class Asked:
    """A client that records requests and does not answer."""

    def __init__(self):
        self.actions = []

    def do(self, action, *arguments, **options):
        self.actions.append(action)


def make_proxy(cls):
    bases = [(base.__module__, base.__qualname__) for base in cls.__mro__[:-1]]
    return test_runner.make_proxy(Asked(), serialization.Handle(3, "object", cls.__name__, bases))


@pytest.mark.parametrize(("name", "cls"), all_estimators(), ids=lambda one: one if isinstance(one, str) else "")
def test_no_way_to_copy_a_model_of_a_student_makes_one_outside(name, cls):
    model = make_proxy(cls)
    assert isinstance(model, cls)
    for make in (model.__class__, lambda: model.__class__.__new__(model.__class__), type(model)):
        with pytest.raises((test_runner.NotPlain, TypeError)):
            make()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(test_runner.NotPlain):
            copied(model)
    assert vars(model)["_client"].actions == []
    clone(model)
    assert vars(model)["_client"].actions == ["clone"]


def test_an_object_of_a_student_does_not_stand_for_a_table():
    """It could answer as each check likes, for instance with a table that is empty this once."""
    thing = make_proxy(LinearRegression)
    for name in ("columns", "shape", "iloc", "to_numpy", "values"):
        with pytest.raises(test_runner.NotPlain, match="an array or a table, got an object of type LinearRegression"):
            getattr(thing, name)
    for key in ("effect", ["train", "test"], np.array([True]), (0, 1), ...):
        with pytest.raises(test_runner.NotPlain):
            thing[key]
    assert vars(thing)["_client"].actions == []
    thing[-1], thing[np.int64(0)], thing[:-1], thing.coef_
    assert vars(thing)["_client"].actions == ["item", "item", "item", "get"]


def test_a_proxy_is_of_no_class_that_a_module_would_have_to_be_loaded_for():
    for module, name in [("antigravity", "fly"), ("sklearn", "__getattr__"), ("os", "system"), ("subprocess", "Popen")]:
        made = test_runner.make_proxy(Asked(), serialization.Handle(3, "object", "x", [(module, name)]))
        assert made.__class__ is type(made) and type(made).__mro__[1] is test_runner.StudentProxy


# Between the test runner, which is not trusted either, and the grader

CELLS = [Cell("assert True", "line-1"), Cell("1 + 1")]
SAID = [{"cell": "line-1", "stopped": None, "late": False, "passed": True, "says": "passed"}]
SAID += [{"cell": None, "stopped": None, "late": False, "outputs": []}]


def test_a_verdict_says_of_one_cell_whether_it_passed():
    passed = [{"output_type": "stream", "name": "stdout", "text": "passed\n"}]
    for outputs in (passed, [failure("expected 2, got 3")]):
        result = CellResult(outputs)
        assert read_verdict(CELLS[0], verdict(CELLS[0], result)) == result


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        {"cell": "line-2"},
        {"cell": ["line-1"]},
        {"passed": 1},
        {"passed": "yes", "outputs": [{}]},
        {"points": 100},
        {"late": None},
        {"stopped": 5},
        {"says": None, "outputs": None},
        {"outputs": [{"output_type": "error"}], "passed": None},
        {"outputs": [{"output_type": "stream", "name": "x", "text": "x"}], "says": {}},
        {"outputs": [{"output_type": "display_data", "data": [], "metadata": {}}], "says": []},
    ],
    ids=str,
)
def test_a_verdict_of_any_other_form_is_refused(number, change):
    own = change if number == 0 or "outputs" not in change else {"outputs": change["outputs"]}
    with pytest.raises(Malformed):
        read_verdict(CELLS[number], json.dumps({**SAID[number], **own}).encode())


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"null", b"[" * 100_000, b"\xff", b'"' + b"x" * 9_000_000 + b'"'], ids=len
)
def test_what_is_no_verdict_is_refused(text):
    with pytest.raises(Malformed):
        read_verdict(CELLS[0], text)


def test_a_test_runner_cannot_send_halves_of_characters():
    for said in ({**SAID[0], "says": "\udfff"}, {**SAID[0], "stopped": "\ud800"}):
        with pytest.raises(Malformed):
            read_verdict(CELLS[0], json.dumps(said).encode())


@pytest.mark.parametrize(
    ("module", "name"), [("numpy.linalg._linalg", "EigResult"), ("matplotlib.cbook", "silent_list")]
)
def test_a_proxy_passes_for_nothing_whose_content_is_data(module, name):
    made = test_runner.make_proxy(Asked(), serialization.Handle(3, "object", name, [(module, name)]))
    assert not isinstance(made, (tuple, list, dict, str))


def test_a_boolean_is_true_in_one_way():
    array = np.array([0, 1, 2, 255], dtype=np.uint8).view(bool)
    read = serialization.loads(serialization.dumps(array, None), None)
    assert read.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_the_arguments_of_a_test_as_a_whole_are_no_answer():
    with pytest.raises(test_runner.NotPlain):
        test_runner.thing_at({"x": [1]}, [])
    assert test_runner.thing_at({"x": [1]}, ["x", 0]) == 1


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([datetime.date(2004, 1, 1), datetime.date(2004, 1, 2)], dtype=object),
        pd.period_range("2004-01", periods=2, freq="M"),
        pd.Index([Path("a"), Path("b")], dtype=object),
    ],
    ids=["dates", "periods", "paths"],
)
def test_labels_of_an_index_that_are_no_plain_data_arrive_as_texts_and_the_columns_as_they_are(index):
    table = loaded(serialization.dumps(pd.DataFrame({"error": [0.25, 4.0]}, index=index), pytest.fail))
    assert list(table["error"]) == [0.25, 4.0] and [str(one) for one in table.index] == [str(one) for one in index]


@pytest.mark.parametrize("name", [datetime.date(2004, 1, 1), pd.Period("2004-01"), Path("a"), int], ids=str)
def test_a_name_that_is_no_plain_data_arrives_as_a_text_and_the_values_as_they_are(name):
    of_series = loaded(serialization.dumps(pd.Series([0.25, 4.0], name=name), pytest.fail))
    assert (list(of_series), of_series.name) == ([0.25, 4.0], str(name))
    for index in (pd.RangeIndex(2, name=name), pd.Index([1, 2], name=name)):
        assert loaded(serialization.dumps(index, pytest.fail)).name == str(name)
    both = pd.MultiIndex.from_tuples([(name, 1), (name, 2)], names=["day", name])
    both = loaded(serialization.dumps(both, pytest.fail))
    assert (list(both.names), list(both)) == (["day", str(name)], [(str(name), 1), (str(name), 2)])


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    ("kind", "unit", "number"),
    [("m8", "60ns", 2**63 - 1), ("m8", "D", -(2**60)), ("M8", "Y", 300), ("M8", "W", 2**40), ("m8", "as", 1)],
)
def test_times_that_numpy_could_not_compare_in_nanoseconds_do_not_come_out(kind, unit, number, order):
    times = np.array([number, 0], dtype="i8").view(f"{kind}[{unit}]").astype(f"{order}{kind}[{unit}]")
    for value in (times, times[0]):
        with pytest.raises(Malformed, match="too far away"):
            loaded(serialization.dumps(value, pytest.fail))


@pytest.mark.parametrize("kind", ["m8[ns]", "m8[60s]", "m8", "M8[D]", "M8[Y]", "M8[ns]"])
def test_times_within_reach_come_out_as_they_are(kind):
    times = np.array([-200, 0, 200, -(2**63)], dtype="i8").view(kind)
    back = loaded(serialization.dumps(times, pytest.fail))
    assert back.dtype == times.dtype and np.array_equal(back.view("i8"), times.view("i8"))


def test_an_index_of_several_columns_may_have_many_equal_entries():
    index = pd.MultiIndex.from_arrays([np.repeat(["west", None], 750), np.arange(1500) % 5], names=["coast", "block"])
    table = pd.DataFrame({"error": np.arange(1500.0)}, index=index)
    assert loaded(serialization.dumps(table, pytest.fail)).equals(table)


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame(np.zeros((1, 41_000))),
        [np.float64(1)] * 900_000,
        [pd.Series([1.0])] * 45_000,
        pd.Series(range(3), name="a" * 33 * 2**20),
    ],
    ids=["columns", "scalars", "series", "text"],
)
def test_what_the_reader_would_refuse_is_not_sent_so_that_its_own_check_alone_is_lost(value):
    with pytest.raises(Malformed):
        serialization.dumps(value, pytest.fail)
