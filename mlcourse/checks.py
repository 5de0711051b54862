"""Checks for the test cells of the labs: compare an answer with the expected value, and explain the mistake.

A test cell opens with `testing`, which names the exercise and the section of the book that helps. Inside it, the cell
calls `number`, `array`, `frame`, `raises` or `that`::

    with checks.testing("mean_squared_error", see="introduction.html#loss"):
        checks.number(
            mean_squared_error([1, 2], [1, 4]), 2, "mean_squared_error([1, 2], [1, 4])",
            mistakes={"that is the sum of the squared errors, not their mean": 4},
        )

A failed check raises `CheckFailed` with one sentence: the expected value, the actual value, the likely mistake, and
where to look. A notebook shows only this sentence.

A grader that runs answers in another process than the tests sets three variables. `_elsewhere` is an object with the
methods ``without(borrowed, message)``, which acts on the process of the answers, and ``changed(thing)``, which says
whether an answer changed its copy of an argument, and with the list ``stopped`` of the cells that stopped, the latest
last, in the form of `_stopped_cells`. `_secret` is a tuple of integers that only the instructor knows, and `_cell` the
name of the test cell; `rng` and `seed` mix both into the seeds of the tests.
"""

import contextlib
import hashlib
import inspect
import io
import numbers
import pickle
import re
import sys
import textwrap
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from unittest import mock

import numpy as np
import pandas as pd

__all__ = [
    "CheckFailed",
    "Lookup",
    "alike",
    "array",
    "frame",
    "number",
    "raises",
    "rng",
    "seed",
    "testing",
    "that",
    "unchanged",
    "without",
]

NOT_WRITTEN = (
    "replace the line `raise NotImplementedError()` in the cell of this exercise with your answer and run that cell"
)
WRITTEN_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: the attributes of other classes cannot be replaced
SHOWN = 6  # numbers of an array that a message shows
_elsewhere = None
_secret: tuple[int, ...] = ()
_cell = ""


class CheckFailed(AssertionError):
    """An answer differs from the expected one; the message is for the student."""

    def _render_traceback_(self):
        """Show the sentence alone, with the whole address in the book (IPython asks the exception for its traceback).

        Terminals and notebooks make the address a link.
        """
        from mlcourse.book import SEE, address

        sentence = SEE.sub(lambda see: f"See {address(see[1]) or see[1]} in the book.", str(self))
        return textwrap.wrap(sentence, width=100, break_long_words=False, break_on_hyphens=False)


@contextlib.contextmanager
def testing(name: str, see: str) -> Iterator[None]:
    """Run the checks of one exercise, and turn any error inside into one sentence.

    If all checks pass, it prints so. It suppresses warnings and everything that the answer prints: they never change a
    score. It closes all figures at the end, so the cell shows none.

    Parameters
    ----------
    name : str
        What the student is asked to write, by its name in the notebook.
    see : str
        Page and anchor in the book, for instance ``"introduction.html#loss"``.

    Raises
    ------
    CheckFailed
        If a check inside fails, or if the student's code raises any exception.
    """
    try:
        with (
            warnings.catch_warnings(),
            np.printoptions(legacy="1.25"),  # a sentence shows 3, not np.int64(3)
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
        print(f"{name}: passed")
        return
    except CheckFailed as failure:
        message = str(failure)
    except NotImplementedError:
        message = f"{name} is not written yet: {NOT_WRITTEN}"
    except NameError as error:
        message = _missing(name, error)
    except Exception as error:
        reason = _shorten(str(error)).rstrip(".") or "no message"
        message = f"{name}: your code raised {type(error).__name__}: {reason}{_place(error)}"
    finally:
        _close_figures()
    raise CheckFailed(f"{message}. See {see} in the book.") from None


def number(
    actual: object,
    expected: float,
    what: str,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    nan: bool = False,
    mistakes: Mapping[str, float] | Callable[[], Mapping[str, float]] | None = None,
) -> None:
    """Check that `actual` is one plain number close to `expected`.

    Parameters
    ----------
    actual : object
        The answer: any Python or NumPy real number, or an array without dimensions.
    expected : float
        The right value.
    what : str
        What `actual` is, in the student's words, for instance ``"w"`` or ``"predict(3)"``.
    rtol, atol : float
        `actual` is right if it differs from `expected` by at most ``atol + rtol * abs(expected)``.
    nan : bool, optional
        Whether NaN is right where NaN is expected; otherwise it is always wrong.
    mistakes : mapping of str to float, or callable that returns one, optional
        Hints on typical mistakes, each with the value that the mistake gives. A callable is called only if `actual` is
        wrong: ``lambda: {...}`` saves right answers a slow computation.

    Raises
    ------
    CheckFailed
        If `actual` is not one number, or not close enough.
    """
    value = _numbers(actual, what)
    if value.ndim:
        raise CheckFailed(f"{what}: expected one number, got an array of shape {value.shape}")
    _compare(value, np.asarray(expected, dtype=float), what, rtol, atol, mistakes, nan)


def array(
    actual: object,
    expected: object,
    what: str,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    nan: bool = False,
    mistakes: Mapping[str, object] | Callable[[], Mapping[str, object]] | None = None,
) -> None:
    """Check that `actual` holds the same numbers as `expected`, in the same shape.

    Parameters
    ----------
    actual : object
        The answer: an array, a list or tuple of numbers, a Series or a DataFrame of numbers.
    expected : array_like of float
        The right values.
    what, rtol, atol, nan, mistakes
        As for `number`; a mistake may have any shape.

    Raises
    ------
    CheckFailed
        If `actual` does not hold numbers, has another shape, or differs.
    """
    values, expected = _numbers(actual, what), np.asarray(expected, dtype=float)
    _compare(values, expected, what, rtol, atol, mistakes, nan)


def frame(
    actual: object,
    expected: pd.DataFrame,
    what: str,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    nan: bool = False,
) -> None:
    """Check that `actual` is a table with the columns and rows of `expected`, in any order of rows and columns.

    The index does not count.

    Parameters
    ----------
    actual : object
        The answer.
    expected : pandas.DataFrame
        The right table.
    what, rtol, atol
        As for `number`.
    nan : bool, optional
        Whether a value may be missing where one is missing in `expected`; otherwise none may.

    Raises
    ------
    CheckFailed
        If `actual` is no DataFrame, or if columns, number of rows or values differ.
    """
    _refuse_empty(actual, what)
    if not isinstance(actual, pd.DataFrame):
        raise CheckFailed(f"{what}: expected a DataFrame, got {_kind(actual)}")
    # A table that was filled row by row holds its numbers as objects; names may be categories
    actual = actual.infer_objects().set_axis(list(actual.columns), axis=1)
    missing = [str(column) for column in expected.columns if column not in actual.columns]
    if missing or len(actual.columns) != len(expected.columns):
        raise CheckFailed(
            f"{what}: expected the columns {_names(expected.columns)}, got {_names(actual.columns)}: columns are "
            "compared by their names"
        )
    if len(actual) != len(expected):
        raise CheckFailed(f"{what}: expected {len(expected)} rows, got {len(actual)}")
    columns = list(expected.columns)
    for column in columns:
        kind = actual[column].dtype
        is_real = pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind)
        if pd.api.types.is_numeric_dtype(expected[column]) and not is_real:
            raise CheckFailed(
                f"{what}: the column '{column}' should hold numbers, yours holds {kind} values: "
                "convert them, for instance with `.astype(float)`"
            )
    if not nan and (missing := [column for column in columns if actual[column].isna().any()]):
        raise CheckFailed(f"{what}: expected a value in every row, got missing values in {_names(missing)}")
    # Sorted without its index, which may have the name of a column
    plain = [table[columns].reset_index(drop=True) for table in (actual, expected)]
    # Categories may have an order of their own
    plain = [
        table.astype({column: object for column in columns if isinstance(table[column].dtype, pd.CategoricalDtype)})
        for table in plain
    ]
    ordered = [table.sort_values(columns, ignore_index=True) for table in plain]
    try:
        pd.testing.assert_frame_equal(*ordered, check_dtype=False, check_names=False, rtol=rtol, atol=atol)
    except AssertionError:
        wrong = [column for column in columns if not _same_column(*(table[column] for table in ordered), rtol, atol)]
        raise CheckFailed(
            f"{what}: the columns and the number of rows are right, the values differ in {_names(wrong)}"
        ) from None


def raises(error: type[Exception], call: Callable[[], object], what: str, hint: str) -> None:
    """Check that a call raises an exception of the given type.

    Parameters
    ----------
    error : type
        The exception that the call must raise, for instance ``ValueError``.
    call : callable
        Makes the call: ``lambda: fit_line([2, 2], [1, 2])``.
    what : str
        The call in the student's words.
    hint : str
        What to do, without a full stop.

    Raises
    ------
    CheckFailed
        If the call returns, or raises something else.
    """
    try:
        value = call()
    except error:
        return
    except NotImplementedError:
        raise
    except Exception as other:
        outcome = type(other).__name__
    else:  # not above, since showing the value may raise, too
        outcome = "one that was returned, not raised" if isinstance(value, error) else _shorten(repr(value), length=60)
    raise CheckFailed(f"{what}: expected a {error.__name__}, got {outcome}: {hint}")


def that(condition: object, message: str) -> None:
    """Check a condition that the other checks do not cover.

    Parameters
    ----------
    condition : bool
        Python's or NumPy's ``True`` passes; anything else does not.
    message : str
        The sentence for the student, without a full stop: the expected value, the actual value, the likely mistake.

    Raises
    ------
    CheckFailed
        If `condition` is not true.
    """
    if not (isinstance(condition, bool | np.bool_) and condition):
        raise CheckFailed(message)


def alike(actual: object, expected: object, *, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Return whether `actual` holds the numbers of `expected`, for a condition of `that`.

    NumPy's ``allclose`` also holds for an empty array, and for one number instead of many.

    Parameters
    ----------
    actual, expected : object
        Numbers, as for `array`.
    rtol, atol : float
        As for `number`.

    Returns
    -------
    bool
        False, too, if there is nothing to compare, if the shapes differ, or if a number is infinite or NaN.
    """
    try:
        values, expected = _numbers(actual, ""), _numbers(expected, "")
    except CheckFailed:
        return False
    return expected.size > 0 and bool(np.isfinite(values).all()) and _close(values, expected, rtol, atol, nan=False)


def unchanged(argument: object, before: object, message: str) -> None:
    """Check that an answer has not modified one of its arguments.

    Parameters
    ----------
    argument : numpy.ndarray, pandas.DataFrame, pandas.Series, list, dict, set, numpy.random.Generator or estimator
        The object that was passed, not a copy.
    before : object
        A copy from before the call; for a generator or an estimator, from `copy.deepcopy`.
    message : str
        The sentence for the student, without a full stop.

    Raises
    ------
    CheckFailed
        If `argument` differs from `before`, or if the grader saw the answer change it.
    """
    if _elsewhere is not None and _elsewhere.changed(argument):
        raise CheckFailed(message)
    if isinstance(argument, (pd.DataFrame, pd.Series, pd.Index)):
        same = argument.equals(before)
    elif isinstance(argument, np.ndarray) and argument.dtype.kind in "fc":
        same = np.array_equal(argument, before, equal_nan=True)
    elif isinstance(argument, np.ndarray):
        same = np.array_equal(argument, before)
    elif isinstance(argument, (list, dict, set)):
        same = argument == before
    else:
        same = pickle.dumps(argument) == pickle.dumps(before)
    that(bool(same), message)


def rng(number: int) -> np.random.Generator:
    """Return a generator for test data that students cannot predict.

    Parameters
    ----------
    number : int
        Distinguishes the generators of a test cell. Without a grader, it is the seed.

    Returns
    -------
    numpy.random.Generator
        In the grader, the seed depends on the number, the test cell and the secret of the course: a generator that one
        cell hands over does not draw the data of another.
    """
    if not _secret:
        return np.random.default_rng(number)
    # The hash protects the secret: the data of one test may reveal the seed
    text = " ".join(map(str, [*_secret, _cell, number]))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()))


def seed(number: int) -> int:
    """Return a seed for a test that must pass one on, for instance as ``random_state``.

    Parameters
    ----------
    number : int
        Distinguishes the seeds of a test cell.

    Returns
    -------
    int
        The number itself; in the grader, one from 0 to 2**31 - 1 that depends on the secret of the course.
    """
    return int(rng(number).integers(2**31)) if _secret else number


class Lookup:
    """A function that a test passes to an answer and that returns one of the given values for its first argument.

    A grader that runs answers in another process can copy it there. Each call of a function of the test would cross
    between the processes.

    Parameters
    ----------
    values : list or dict
        The results: ``values[a]`` for the first argument `a`.
    *names : str
        The names of the arguments.

    Examples
    --------
    >>> interval = Lookup([(0, 1), (2, 3)], "m", "n")
    >>> interval(1, 5) == interval(n=5, m=1) == (2, 3)
    True
    """

    def __init__(self, values: list | dict, *names: str):
        self._values, self._names = values, names

    def __call__(self, *arguments, **options):
        """Return the value for the first argument. Raises TypeError if the arguments are not those named."""
        given = dict(zip(self._names, arguments)) | options
        if len(arguments) + len(options) != len(self._names) or given.keys() != set(self._names):
            raise TypeError(f"this function takes the arguments {', '.join(self._names)}")
        return self._values[given[self._names[0]]]


@contextlib.contextmanager
def without(borrowed: type | Callable | tuple, message: str) -> Iterator[None]:
    """Refuse answers that call certain functions or classes of a library.

    Parameters
    ----------
    borrowed : type, function or tuple of these
        Classes and functions of libraries, for instance a classifier of scikit-learn that the student is asked to
        write. A function must be written in Python.
    message : str
        The sentence for the student, without a full stop.

    Yields
    ------
    None
        Inside the block, creating an instance, calling a method of the class, or calling the function under any name
        raises `CheckFailed` with the message. A class that is not written in Python is refused where a module names it.

    Raises
    ------
    TypeError
        If a function is not written in Python.
    """
    borrowed = borrowed if isinstance(borrowed, tuple) else (borrowed,)

    def refuse(*arguments, **options):
        raise CheckFailed(message)

    with contextlib.ExitStack() as patches:
        for one in borrowed:
            if _elsewhere is not None:
                patches.enter_context(_elsewhere.without(one, message))
            elif isinstance(one, type) and not one.__flags__ & WRITTEN_IN_PYTHON:
                meta = type("Refusing", (type,), {"__call__": refuse, "__getattr__": refuse})
                stand_in = meta(one.__name__, (), {})
                for module in list(sys.modules.values()):
                    for name in [name for name, value in getattr(module, "__dict__", {}).items() if value is one]:
                        patches.callback(setattr, module, name, one)
                        setattr(module, name, stand_in)
            elif isinstance(one, type):
                methods = [
                    name for name in dir(one) if not name.startswith("__") and callable(getattr(one, name, None))
                ]
                patches.enter_context(mock.patch.multiple(one, **dict.fromkeys(["__init__", *methods], refuse)))
            else:
                function = inspect.unwrap(one)
                if not isinstance(function, types.FunctionType) or function.__code__.co_freevars:
                    raise TypeError(f"{one!r} is not a function that is written in Python")
                patches.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = _code_that_refuses(message)
        yield


def _code_that_refuses(message):
    """Return code that raises `CheckFailed`, to put into a function: this works under every name of the function."""
    space = {}
    exec(
        f"def refuse(*arguments, **options):\n"
        f"    from mlcourse.checks import CheckFailed\n"
        f"    raise CheckFailed({message!r})",
        space,
    )
    return space["refuse"].__code__


def _close_figures():
    """Close the figures of an answer, if it drew any."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def _compare(actual, expected, what, rtol, atol, mistakes, nan):
    """Raise `CheckFailed` with the hint that fits, unless `actual` equals `expected` within the tolerance."""
    if _close(actual, expected, rtol, atol, nan):
        return
    message = f"{what}: {_difference(actual, expected, rtol, atol, nan)}"
    for hint, wrong in (mistakes() if callable(mistakes) else mistakes or {}).items():
        if _close(actual, np.asarray(wrong, dtype=float), rtol, atol, nan=True):
            raise CheckFailed(f"{message}: {hint}")
    if actual.shape != expected.shape:
        raise CheckFailed(f"{what}: expected an array of shape {expected.shape}, got shape {actual.shape}")
    # Few numbers with few digits may be equal by chance
    decimals = range(1 if expected.size > 2 else 3, 9)
    if np.allclose(actual, expected, rtol=0.05, atol=0) and any(
        np.array_equal(actual, expected.round(n)) for n in decimals
    ):
        raise CheckFailed(f"{message}: those are the right numbers, but rounded: do not round")
    raise CheckFailed(message)


def _close(actual, expected, rtol, atol, nan):
    return actual.shape == expected.shape and np.allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=nan)


def _same_column(actual, expected, rtol, atol):
    if pd.api.types.is_numeric_dtype(expected):
        return _close(actual.to_numpy(float), expected.to_numpy(float), rtol, atol, nan=True)
    return list(actual) == list(expected)


def _numbers(value, what):
    """Return `value` as an array of floats; refuse anything but real numbers."""
    _refuse_empty(value, what)
    try:
        values = np.asarray(value)
    except ValueError:
        raise CheckFailed(f"{what}: expected numbers, got rows of different lengths") from None
    # NumPy would read numbers from texts and times, and real parts from complex numbers
    if values.dtype.kind == "O" and all(one is None or _is_real(one) for one in values.flat):
        with contextlib.suppress(OverflowError):
            values = values.astype(float)
    if values.dtype.kind not in "iuf":
        raise CheckFailed(f"{what}: expected numbers, got {_kind(value)}")
    return values.astype(float)


def _is_real(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.timedelta64)


def _refuse_empty(value, what):
    if value is None:
        raise CheckFailed(f"{what}: got None: a function returns a value only with `return`")
    if value is Ellipsis:
        raise CheckFailed(f"{what} is still `...`: write your answer in its place")


def _kind(value):
    if isinstance(value, bool | str):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return f"a value of type {type(value).__name__}"


def _names(columns):
    return ", ".join(f"'{column}'" for column in columns) or "none"


def _difference(actual, expected, rtol, atol, nan):
    """Return what was expected and what came, with as many digits as tell the two apart."""
    alike, both = actual.shape == expected.shape, (expected, actual)
    if not alike or expected.size <= SHOWN:
        return "expected {}, got {}".format(*_told_apart(both))
    wrong = np.argwhere(~np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=nan))
    first = tuple(wrong[0])
    texts = _told_apart([values[first] for values in both])
    place = ", ".join(map(str, first))
    where = f"{len(wrong)} of {expected.size} numbers differ, first at [{place}]: expected {texts[0]}, got {texts[1]}"
    return where if expected.ndim > 1 else "expected {}, got {}; {}".format(*map(_show, both), where)


def _told_apart(both):
    for digits in (4, 6, 9, 17):
        texts = [_show(values, digits) for values in both]
        if texts[0] != texts[1]:
            break
    return texts


def _show(values, digits=4):
    if values.ndim == 0:
        return f"{values:.{max(digits, 6)}g}"
    return np.array2string(values, precision=digits, threshold=SHOWN, edgeitems=3, separator=", ").replace("\n", "")


def _shorten(text, length=200):
    """Return the text on one line; cut the middle of a long one, since messages often end with advice."""
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length // 2]} … {text[-length // 2 :]}"


def _missing(exercise, error):
    """Return why a name is missing: the error of the cell that defines it, or that no cell does."""
    found = re.search(r"name '(\w+)' is not defined", str(error))
    for source, kind, text in _stopped_cells() if found else []:
        if not _defines(source, found[1]):
            continue
        if kind == "NotImplementedError":
            return f"{exercise} is not written yet: {NOT_WRITTEN}"
        reason = _shorten(text if kind == "CheckFailed" else f"{kind}: {text}").rstrip(".: ")
        return f"{exercise}: {error}, since the cell that defines it stopped ({reason}): mend that cell and run it"
    todo = "write it in the cell of its exercise, mind the spelling, and run that cell and those above"
    return f"{exercise}: {error}: {todo}"


def _stopped_cells():
    """Return the source, the class and the message of the error of each cell that stopped, the latest first."""
    if _elsewhere is not None:
        return _elsewhere.stopped[::-1]
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    history = getattr(shell, "history_manager", None)
    errors = getattr(history, "exceptions", {})  # since IPython 9
    sources = history.input_hist_raw if errors else []
    return [
        (sources[number], error["ename"], error["evalue"])
        for number, error in sorted(errors.items(), reverse=True)
        if number < len(sources)
    ]


def _defines(source, name):
    """Return whether a cell that could not be run to its end looks as if it defines a name."""
    for line in source.splitlines():
        words = re.findall(r"\w+", line.partition("#")[0].partition("=")[0])
        is_import, is_assignment = words[:1] in (["import"], ["from"]), re.match(r"[\w, ]+(:[^=]+)?=[^=]", line)
        if (name in words and (is_import or is_assignment)) or words[:2] in (["def", name], ["class", name]):
            return True
    return False


def _place(error):
    """Return where in the student's cells an error was raised, never a line of the test cell.

    An error from another process has the text in its attribute `place`.
    """
    if (place := getattr(error, "place", None)) is not None:
        return place
    # The first frame is that of `testing`, the next that of the test cell
    test = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][1:2]
    return place_of(error, lambda file: file not in test and ("ipykernel_" in file or file.startswith("<")))


def place_of(error: BaseException, is_own: Callable[[str], bool]) -> str:
    """Return the end of a sentence: the student's line that raised an error, and the arguments of its function.

    Parameters
    ----------
    error : BaseException
        Raised, with its traceback.
    is_own : callable
        Says of the name of a file whether it holds the student's code.

    Returns
    -------
    str
        Empty if the traceback has no line of the student.
    """
    frames = [each for each in traceback.walk_tb(error.__traceback__) if is_own(each[0].f_code.co_filename)]
    lines = [frame.line for frame in traceback.StackSummary.extract(iter(frames))]
    if not lines or not lines[-1]:
        return ""
    line, called = f", in your line `{_shorten(lines[-1])}`", frames[0][0]
    code, values = called.f_code, called.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    held = [text for name in names if name in values and (text := _described(name, values[name]))][:SHOWN]
    if not held:
        return line
    return f"{line}, while {code.co_name} had {', '.join(held[:-1])}{' and ' if held[1:] else ''}{held[-1]}"


def _described(name, value):
    """Return the shape, the length or the value of an argument, or "" if none of them says what it is."""
    if isinstance(value, (np.ndarray, pd.DataFrame, pd.Series)):
        return f"{name} of shape {value.shape}"
    if type(value) in (list, tuple, dict, set):
        return f"{name} of length {len(value)}"
    if isinstance(value, np.generic):
        value = value.item()
    return f"{name} = {_shorten(repr(value), 40)}" if type(value) in (bool, int, float, str, type(None)) else ""
