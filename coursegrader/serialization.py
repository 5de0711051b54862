"""Exchange only plain data with a student's process: no message creates an object with behaviour.

Numbers, texts, bytes, arrays and tables of plain types, and containers of these leave the sandbox of student code as
they are. Everything else stays there and is sent as a `Handle`, which names its type and can be called. `PLAIN` has all
types that `loads` creates.

A message is a JSON text and the raw bytes of the arrays in it. The reader trusts nothing: it checks sizes, shapes,
types and the number of values before it creates any.
"""

import contextlib
import json
import re
import struct
import sys
from collections import deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd

from coursegrader.channel import MAX_BYTES
from coursegrader.protocol import Malformed

MAX_DEPTH = 40
MAX_ITEMS = 1_000_000
MAX_TEXT = 32 * 2**20  # bytes of JSON
MAX_KEYS = 200_000  # in all dictionaries and sets of a message
MAX_ALIKE = 50  # keys of one hash; looking them up takes quadratic time
PANDAS = 50  # values that a column or an index counts for, since it takes as long
MAX_LENGTH = 20 * MAX_ITEMS  # of values whose items need no memory, such as ranges

# Tests compute with real numbers: the square of a complex number can be negative
COMPLEX = "expected real numbers, got complex ones"
_NUMPY_KINDS = "biufUSmM"
# The longest that a unit of time can be; other units are finer than nanoseconds
_NANOSECONDS = {"generic": 1, "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_NANOSECONDS |= {unit: days * 86_400 * 10**9 for unit, days in {"D": 1, "W": 7, "M": 31, "Y": 366}.items()}
_DTYPES = {"string", "str", "boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"}
_DTYPES |= {"Float32", "Float64"}
_DTYPE = re.compile(r"[<>|=]?[biufUSmM]\d{0,9}(\[([1-9]\d{0,8})?[a-zA-Z]{1,2}\])?")
_PANDAS = (pd.DataFrame, pd.Series, pd.RangeIndex, pd.MultiIndex, pd.Interval, type(pd.NA), type(pd.NaT))
PLAIN = (type(None), type(...), bool, int, float, str, bytes, list, tuple, set, frozenset, dict, range)
PLAIN = (*PLAIN, np.ndarray, np.generic, pd.Index, pd.api.extensions.ExtensionArray, *_PANDAS)


class Handle:
    """An object that stays in the sandbox: its number, its kind (function, class or object) and its type.

    Attributes
    ----------
    number : int
    kind : str
    name : str
        The name of its type, or of itself if it is a function or a class.
    bases : list of [str, str]
        Module and name of its type and of the base classes.
    """

    def __init__(self, number, kind, name, bases):
        self.number, self.kind, self.name, self.bases = number, kind, name, bases


def dumps(value: object, handle) -> bytes:
    """Write a value.

    Parameters
    ----------
    value : object
    handle : callable
        Takes a value that is not plain data and returns its `Handle`.

    Returns
    -------
    bytes

    Raises
    ------
    Malformed
        If the value is too large, or refers to itself.
    """
    blobs = []
    text = json.dumps(_Writer(handle, blobs).write(value)).encode("utf-8", "surrogatepass")
    _check_size(text)
    parts = [text, *blobs]
    if sum(map(len, parts)) > MAX_BYTES:
        raise Malformed(f"the answer is larger than {MAX_BYTES // 2**20} MB")
    return b"".join([struct.pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts)), *parts])


def loads(message: bytes, make) -> object:
    """Read what `dumps` wrote.

    Parameters
    ----------
    message : bytes
    make : callable
        Takes a `Handle` and returns the object to use in its place.

    Returns
    -------
    object

    Raises
    ------
    Malformed
        If the message is anything else.
    """
    try:
        if len(message) > MAX_BYTES + 4 * MAX_ITEMS:
            raise Malformed("the message is too large")
        (n,) = struct.unpack_from("<I", message)
        if n * 4 > len(message):
            raise Malformed("the message is cut off")
        sizes = struct.unpack_from(f"<{n}I", message, 4)
        if 4 * (n + 1) + sum(sizes) != len(message):
            raise Malformed("the message is cut off")
        parts, at = [], 4 * (n + 1)
        for size in sizes:
            parts.append(message[at : at + size])
            at += size
        return _Reader(parts[1:], make).read(_tree(parts[0]))
    except Malformed:
        raise
    except (Exception, RecursionError) as error:
        raise Malformed(f"a message that is not well formed: {type(error).__name__}") from None


def _tree(text):
    """Parse the JSON of a message; refuse too many values before any of them is created."""
    _check_size(text)
    return json.loads(text.decode("utf-8", "surrogatepass"))


def _check_size(text):
    if len(text) > MAX_TEXT:
        raise Malformed("the message is too large")
    # This also counts characters in texts, of which no answer has so many
    if sum(map(text.count, (b",", b"[", b"{"))) > 4 * MAX_ITEMS:
        raise Malformed(f"a message of more than {MAX_ITEMS} things")


class _Writer:
    def __init__(self, handle, blobs):
        self.handle, self.blobs, self.items, self.keys, self.room = handle, blobs, 0, 0, MAX_BYTES

    def write(self, value, depth=0):
        """Return `value` in a form for JSON: a dict stands for everything but numbers, strings and lists."""
        self._count(1)
        if depth > MAX_DEPTH:
            raise Malformed("the answer holds itself, or is nested too deeply")
        kind = type(value)
        # Call the methods of the base types: a student's class may override them
        if value is None or kind is bool:
            return value
        if value is Ellipsis:
            return {"t": "ellipsis"}
        if isinstance(value, np.generic):
            return self._scalar(value)
        if isinstance(value, int):
            value = int.__index__(value)
            if value.bit_length() > 10_000:
                raise Malformed("the answer holds a number of more than 3000 digits")
            return value
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, str):
            return self._fits(str.__str__(value))
        if isinstance(value, complex):
            raise Malformed(COMPLEX)
        if isinstance(value, (bytes, bytearray)):
            return {"t": "bytes", "b": self._blob(value)}
        if isinstance(value, list):
            return [self.write(item, depth + 1) for item in list.__iter__(value)]
        if isinstance(value, tuple):
            return self._items("tuple", tuple.__iter__(value), depth)
        if isinstance(value, (set, frozenset, dict)):
            self.keys += len(value)
            if self.keys > MAX_KEYS:
                raise Malformed(f"the answer holds dictionaries or sets of more than {MAX_KEYS} keys")
        if isinstance(value, (set, frozenset)):
            base = set if isinstance(value, set) else frozenset
            return {"t": base.__name__, "v": [self._key(item, depth) for item in base.__iter__(value)]}
        if isinstance(value, dict):
            pairs = ((self._key(key, depth), self.write(item, depth + 1)) for key, item in dict.items(value))
            return {"t": "dict", "v": [item for pair in pairs for item in pair]}
        if kind is range:
            return {"t": "range", "v": [value.start, value.stop, value.step]}
        if kind in (type({}.keys()), type({}.values()), type({}.items()), deque):
            return [self.write(item, depth + 1) for item in value]
        if kind in (Decimal, Fraction):
            return float(value)
        if isinstance(value, np.ndarray):
            return self._array(value, depth)
        if kind is np.flatiter:
            return self._array(value.copy(), depth)
        if isinstance(value, pd.DataFrame):
            return self._frame(value, depth)
        if isinstance(value, pd.Series):
            parts = [self._column(value.array, depth), self.write(value.index, depth + 1)]
            return {"t": "series", "v": [*parts, self._label(value.name, depth)]}
        if isinstance(value, pd.MultiIndex):
            levels = [self._labels(level.array, depth) for level in value.levels]
            codes = [self._array(np.asarray(part), depth) for part in value.codes]
            return {"t": "multiindex", "v": [levels, codes, self._label(list(value.names), depth)]}
        if isinstance(value, pd.RangeIndex):
            name = self._label(value.name, depth)
            return {"t": "rangeindex", "v": [value.start, value.stop, value.step, name]}
        if isinstance(value, pd.Index):
            return {"t": "index", "v": [self._labels(value.array, depth), self._label(value.name, depth)]}
        if isinstance(value, pd.api.extensions.ExtensionArray):
            return {"t": "column", "v": self._column(value, depth)}
        if kind is pd.Interval:
            return self._items("interval", [value.left, value.right, value.closed], depth)
        if value is pd.NA:
            return {"t": "na"}
        if value is pd.NaT:
            return {"t": "nat"}
        if kind is pd.Timestamp or kind is pd.Timedelta:
            return self._scalar(value.to_numpy()) if getattr(value, "tz", None) is None else str(value)
        return self._handle(value)

    def _count(self, items):
        self.items += items
        if self.items > MAX_ITEMS:
            raise Malformed(f"the answer holds more than {MAX_ITEMS} things")

    def _handle(self, value):
        handle = self.handle(value)
        return {"t": "handle", "v": [handle.number, handle.kind, handle.name, handle.bases]}

    def _items(self, name, items, depth):
        return {"t": name, "v": [self.write(item, depth + 1) for item in items]}

    def _key(self, value, depth):
        with self._plain_only():
            return self.write(value, depth + 1)

    def _label(self, value, depth):
        """Write a name, or a list of names; as texts if that is no plain data."""
        try:
            return self._key(value, depth)
        except Malformed:
            return self.write(_as_texts(value), depth + 1)

    def _labels(self, array, depth):
        """Write the labels of an index; those that are no plain data, such as dates, as texts: no check needs them."""
        try:
            with self._plain_only():
                return self._column(array, depth)
        except Malformed:
            return self._column(np.array([str(label) for label in array], dtype=object), depth)

    @contextlib.contextmanager
    def _plain_only(self):
        handle, self.handle = self.handle, self._refuse_key
        try:
            yield
        finally:
            self.handle = handle

    def _refuse_key(self, value):
        raise Malformed("the answer holds a dict, a set or a table whose keys are no plain data")

    def _scalar(self, value):
        if value.dtype.kind == "c":
            raise Malformed(COMPLEX)
        if value.dtype.kind not in _NUMPY_KINDS or not value.dtype.isnative:
            return self._handle(value)
        return {"t": "scalar", "d": value.dtype.str, "b": self._blob(value.tobytes())}

    def _array(self, value, depth):
        value = np.ndarray.view(value, np.ndarray)
        if value.dtype.kind == "T":  # texts of any length
            value = value.astype(object)
        if value.nbytes > MAX_BYTES:
            raise Malformed(f"the answer holds an array of shape {value.shape}, larger than {MAX_BYTES // 2**20} MB")
        value = np.array(value, dtype=value.dtype.newbyteorder("="), copy=None, subok=False, order="C")
        shape = list(value.shape)
        if value.dtype.kind == "O":
            if value.size > MAX_ITEMS:
                raise Malformed(f"the answer holds more than {MAX_ITEMS} things")
            return {"t": "objects", "s": shape, "v": [self.write(item, depth + 1) for item in value.ravel().tolist()]}
        if value.dtype.kind == "c":
            raise Malformed(COMPLEX)
        if value.dtype.kind not in _NUMPY_KINDS:
            return self._handle(value)
        return {"t": "array", "d": value.dtype.str, "s": shape, "b": self._blob(value.tobytes())}

    def _column(self, array, depth):
        """Return the name of the pandas type of a column or index, or None for one of NumPy's, and the values."""
        self._count(PANDAS)
        if isinstance(array, pd.Categorical):
            categories = self._labels(array.categories.array, depth)
            return ["category", categories, self._array(np.asarray(array.codes), depth), bool(array.ordered)]
        name = str(array.dtype)
        if name in _DTYPES:
            return [name, self._array(np.asarray(array, dtype=object), depth)]
        return [None, self._array(np.asarray(array), depth)]

    def _frame(self, value, depth):
        if len(value.columns) * max(1, len(value)) > 20 * MAX_ITEMS:
            raise Malformed(f"the answer holds a table of shape {value.shape}")
        columns = [self._column(value.iloc[:, at].array, depth) for at in range(len(value.columns))]
        return {"t": "frame", "v": [self.write(value.columns, depth + 1), self.write(value.index, depth + 1), columns]}

    def _blob(self, data):
        self.blobs.append(bytes(self._fits(data)))
        return len(self.blobs) - 1

    def _fits(self, data):
        """Return text or bytes if they fit into the message."""
        self.room -= len(data)
        if self.room < 0:
            raise Malformed(f"the answer is larger than {MAX_BYTES // 2**20} MB")
        return data


class _Reader:
    def __init__(self, blobs, make):
        self.blobs, self.make, self.items, self.keys, self.room = blobs, make, 0, 0, MAX_BYTES

    def read(self, tree):
        self.items += 1
        if self.items > 2 * MAX_ITEMS:
            raise Malformed(f"a message of more than {2 * MAX_ITEMS} things")
        if isinstance(tree, list):
            return [self.read(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        make = getattr(self, f"read_{tree['t']}", None)
        if make is None:
            raise Malformed("a message with an unknown type")
        return make(tree)

    def _many(self, tree):
        return [self.read(item) for item in tree["v"]]

    def read_ellipsis(self, tree):
        return ...

    def read_bytes(self, tree):
        return self._blob(tree)

    def read_tuple(self, tree):
        return tuple(self._many(tree))

    def read_set(self, tree):
        return set(self._keys(tree))

    def read_frozenset(self, tree):
        return frozenset(self._keys(tree))

    def read_dict(self, tree):
        items = self._keys(tree)
        return dict(zip(items[::2], items[1::2], strict=True))

    def _keys(self, tree):
        """Return the items of a set, or the keys and values of a dict, if looking them up takes a limited time."""
        items = self._many(tree)
        self._count_keys(items[::2] if tree["t"] == "dict" else items)
        return items

    def _count_keys(self, keys):
        self.keys += len(keys)
        if self.keys > MAX_KEYS:
            raise Malformed(f"dictionaries or sets of more than {MAX_KEYS} keys")
        if len(keys) > MAX_ALIKE:
            _, times = np.unique(np.fromiter(map(hash, keys), np.int64), return_counts=True)
            if times.max() > MAX_ALIKE:
                raise Malformed(f"a dict or set with more than {MAX_ALIKE} keys of one hash")

    def read_range(self, tree):
        return self._short(range(*map(int, tree["v"])))

    def _short(self, numbers):
        # Not len(), which has its own limit
        if abs(numbers.stop - numbers.start) // abs(numbers.step) > MAX_LENGTH:
            raise Malformed("a range that is too long")
        return numbers

    def read_interval(self, tree):
        left, right, closed = self._many(tree)
        return pd.Interval(left, right, closed=closed)

    def read_na(self, tree):
        return pd.NA

    def read_nat(self, tree):
        return pd.NaT

    def read_scalar(self, tree):
        [value] = self.read_array({**tree, "s": [1]})
        return value

    def read_array(self, tree):
        shape, dtype = self._shape(tree), self._dtype(tree)
        if dtype.kind == "b":
            # Bytes other than 0 and 1 would give several values of True
            return (np.frombuffer(self._blob(tree), dtype=np.uint8) != 0).reshape(shape)
        values = np.frombuffer(self._blob(tree), dtype=dtype)
        if dtype.kind == "U" and values.size:
            numbers = values.view(np.dtype("u4").newbyteorder(dtype.byteorder))
            if numbers.max(initial=0) > sys.maxunicode:
                raise Malformed("a text with a character that there is not")
        if dtype.kind in "mM":
            self._refuse_far_times(values)
        return values.reshape(shape).copy()

    def _refuse_far_times(self, values):
        # NumPy compares times of two units in the finer one, where large numbers overflow without a word
        unit, count = np.datetime_data(values.dtype)
        numbers = values.astype(values.dtype.newbyteorder("=")).view("i8")[~np.isnat(values)]
        most = (2**63 - 1) // (_NANOSECONDS[unit] * count) if unit in _NANOSECONDS else -1
        if not ((-most <= numbers) & (numbers <= most)).all():
            raise Malformed("a time that is too far away to count it in nanoseconds")

    def read_objects(self, tree):
        shape = self._shape(tree)
        values = np.empty(len(tree["v"]), dtype=object)
        for at, item in enumerate(tree["v"]):
            values[at] = self.read(item)
        return values.reshape(shape)

    def read_series(self, tree):
        values, index, name = tree["v"]
        return pd.Series(self._values(values), index=self._index_of(index), name=self._label(name))

    def read_index(self, tree):
        values, name = tree["v"]
        return pd.Index(self._values(values), name=self._label(name))

    def read_rangeindex(self, tree):
        *numbers, name = tree["v"]
        return pd.RangeIndex(self._short(range(*map(int, numbers))), name=self._label(name))

    def read_multiindex(self, tree):
        levels, codes, names = tree["v"]
        levels = [pd.Index(self._values(level)) for level in levels]
        for level in levels:
            self._count_keys(list(level))
        return pd.MultiIndex(levels, [self.read(part) for part in codes], names=self.read(names))

    def read_column(self, tree):
        return self._values(tree["v"])

    def read_frame(self, tree):
        columns, index, values = tree["v"]
        columns, index = self._index_of(columns), self._index_of(index)
        values = [pd.Series(self._values(column), index=index) for column in values]
        if len(values) != len(columns):
            raise Malformed("a table that is not well formed")
        frame = pd.concat(values, axis=1) if values else pd.DataFrame(index=index)
        frame.columns = columns
        return frame

    def read_handle(self, tree):
        number, kind, name, bases = tree["v"]
        if not (type(number) is int and kind in ("function", "class", "object") and isinstance(name, str)):
            raise Malformed("a handle that is not well formed")
        bases = [(module, of) for module, of in bases[:50]]
        if not all(isinstance(word, str) for base in bases for word in base):
            raise Malformed("a handle that is not well formed")
        return self.make(Handle(number, kind, name[:100], bases))

    def _blob(self, tree):
        at = tree["b"]
        if type(at) is not int or not 0 <= at < len(self.blobs):
            raise Malformed("a message with a part missing")
        # Count a part at each use: a message may use it many times
        self.room -= len(self.blobs[at])
        if self.room < 0:
            raise Malformed(f"a message of more than {MAX_BYTES // 2**20} MB")
        return self.blobs[at]

    def _dtype(self, tree):
        name = tree["d"]
        if type(name) is not str or not _DTYPE.fullmatch(name):
            raise Malformed("an array of an unknown type")
        dtype = np.dtype(name)
        if dtype.kind not in _NUMPY_KINDS or dtype.names or dtype.subdtype or dtype.hasobject:
            raise Malformed("an array of an unknown type")
        return dtype

    def _shape(self, tree):
        shape = tree["s"]
        if len(shape) > 32 or not all(type(length) is int and length >= 0 for length in shape):
            raise Malformed("an array without a proper shape")
        if max(shape, default=0) > MAX_LENGTH:
            raise Malformed("an array that is too long")
        return tuple(shape)

    def _values(self, column):
        name, values, *rest = column
        self.items += PANDAS
        if name == "category":
            codes, ordered = rest
            return pd.Categorical.from_codes(self.read(codes), self._values(values), ordered=bool(ordered))
        values = self.read(values)
        if not isinstance(values, np.ndarray) or values.ndim != 1 or (name is not None and name not in _DTYPES):
            raise Malformed("a column that is not well formed")
        return values if name is None else pd.array(values, dtype=name)

    def _index_of(self, tree):
        index = self.read(tree)
        if not isinstance(index, pd.Index):
            raise Malformed("a table without an index")
        return index

    def _label(self, tree):
        label = self.read(tree)
        hash(label)
        return label


def _as_texts(label):
    return type(label)(map(_as_texts, label)) if type(label) in (list, tuple) else str(label)
