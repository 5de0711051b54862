"""Outside the box: run the test cells of one submission, with stand-ins for what the student wrote.

A test cell runs here, in a process that the student's code cannot reach. The names that it takes from the notebook are
plain data, or an `Inside`: a stand-in that sends calls into the box and takes plain data back.
"""

import builtins
import contextlib
import copy
import dataclasses
import io
import pickle
import resource
import signal
import socket
import symtable
import sys
import time
import types

import numpy as np
import pandas as pd

from mlcourse import checks
from mlcourse.grading import channel, plain

CELL_SECONDS = 60
TEST_SECONDS = 30
TOTAL_SECONDS = 600
GRACE_SECONDS = 3
MEMORY_BYTES = 4 * 2**30
TESTS = "mlcourse_tests"  # the name of the module that test cells believe to be in
TRUSTED = ("matplotlib", "numpy", "pandas", "sklearn")  # packages whose classes a stand-in may pass for


class Stopped(BaseException):
    """The test cell ends here, and nothing in it can catch that; the message is for the student."""


class Gone(Stopped):
    """The box is gone, and with it the rest of the submission."""


class NotPlain(TypeError):
    """A test needed plain data, and the answer was something else."""


@dataclasses.dataclass
class Cell:
    """A code cell of a notebook: the student's, or a test if it has a `grade_id`."""

    source: str
    grade_id: str | None = None


@dataclasses.dataclass
class Result:
    """What became of a notebook: outputs per cell, seconds, and why it was stopped, if it was."""

    outputs: list[list[dict]]
    seconds: float = 0.0
    stopped: str | None = None


def examine(cells: list[Cell], connection: socket.socket) -> Result:
    """Run a notebook: the student's cells in the box at the other end of `connection`, the tests here.

    Parameters
    ----------
    cells : list of Cell
    connection : socket.socket

    Returns
    -------
    Result
        A test cell passed if and only if its outputs hold no error. Every test cell has at least one output.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, too_long)
    begin = time.monotonic()
    box, result = Box(connection, begin + TOTAL_SECONDS), Result([])
    for cell in cells:
        try:
            if result.stopped:
                raise Gone(result.stopped)
            outputs = run_student(box, cell.source) if cell.grade_id is None else run_test(box, cell)
        except Gone as reason:
            result.stopped = str(reason)
            outputs = [] if cell.grade_id is None else [failure(f"not run, since {reason}.")]
        result.outputs.append(outputs)
    result.seconds = time.monotonic() - begin
    return result


def run_student(box, source):
    """Run a cell of the student in the box and return its outputs."""
    try:
        return checked_outputs(box.do("cell", source, seconds=CELL_SECONDS))
    except Gone:
        raise
    except (Exception, Stopped) as error:
        return [failure(f"this cell was stopped: {error}")]


def run_test(box, cell):
    """Run a test cell here and return its outputs: a line that says that it passed, or one error."""
    printed = io.StringIO()
    try:
        names = box.names(free_names(cell.source))
        space = {"__name__": TESTS, "__builtins__": builtins.__dict__.copy(), **names}
        checks._elsewhere = box
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), box.limit(TEST_SECONDS):
            exec(compile(cell.source, f"<test {cell.grade_id}>", "exec"), space)
        return [{"output_type": "stream", "name": "stdout", "text": printed.getvalue()[:2000] or "passed\n"}]
    except checks.CheckFailed as error:
        return [failure(str(error))]
    except Gone as reason:
        box.gone = str(reason)
        return [failure(f"not passed, since {reason}.")]
    except BaseException as error:
        return [failure(f"not passed: {error or type(error).__name__}")]
    finally:
        checks._elsewhere = None
        with contextlib.suppress(Stopped):
            box.forget()


def too_long(number, frame):
    raise Stopped("this check took too long with your answer")


def failure(message):
    return {"output_type": "error", "ename": "CheckFailed", "evalue": message, "traceback": [message]}


def free_names(source):
    """Return the names that a test cell takes from the notebook."""
    used, own = set(), set()

    def visit(table):
        for symbol in table.get_symbols():
            if table.get_type() == "module" and (symbol.is_assigned() or symbol.is_imported()):
                own.add(symbol.get_name())
            elif symbol.is_global() or table.get_type() == "module":
                used.add(symbol.get_name())
        for child in table.get_children():
            visit(child)

    visit(symtable.symtable(source, "<test>", "exec"))
    return sorted(used - own - set(dir(builtins)))


def checked_outputs(outputs):
    """Return the outputs of a student's cell, or raise `Malformed` if they are not of nbformat's form."""
    shapes = {
        "stream": {"name": str, "text": str},
        "display_data": {"data": dict, "metadata": dict},
        "execute_result": {"data": dict, "metadata": dict, "execution_count": int},
        "error": {"ename": str, "evalue": str, "traceback": list},
    }
    for output in outputs:
        shape = shapes[output["output_type"]]
        if output.keys() - {"output_type"} != shape.keys():
            raise plain.Malformed("an output that is not well formed")
        if not all(isinstance(output[key], kind) for key, kind in shape.items()):
            raise plain.Malformed("an output that is not well formed")
        if output.get("name", "stdout") not in ("stdout", "stderr"):
            raise plain.Malformed("an output that is not well formed")
        if not all(isinstance(line, str) for line in output.get("traceback", [])):
            raise plain.Malformed("an output that is not well formed")
        if "data" in output:
            output["data"] = {str(key): value for key, value in output["data"].items() if isinstance(value, str)}
            output["metadata"] = {}
    return outputs


class Box:
    """The other end: what is sent into the box, and what comes back."""

    def __init__(self, connection, end):
        self.connection, self.end, self.deadline = connection, end, None
        self.insides, self.local, self.numbers, self.gone = {}, {}, {}, None

    @contextlib.contextmanager
    def limit(self, seconds):
        """Give everything inside the block `seconds` together."""
        self.deadline = time.monotonic() + seconds
        signal.alarm(seconds + 2 * GRACE_SECONDS)
        try:
            yield
        finally:
            signal.alarm(0)
            self.deadline = None

    def do(self, action, *arguments, seconds=10):
        """Have the box do something and return what came of it.

        Raises
        ------
        Exception
            What the student's code raised: the nearest class of Python or a trusted package, and `line_of_answer`.
        Stopped
            If the time is over, or the answer is no message.
        Gone
            If the box has ended.
        """
        now = time.monotonic()
        ends = min(self.end, now + seconds, self.deadline or self.end)
        if self.gone:
            raise Gone(self.gone)
        if ends <= now:
            raise Stopped("your code took too long: look for a loop that does not end")
        self.send([action, ends - now, *arguments])
        while True:
            kind, *answer = self.receive(ends + GRACE_SECONDS)
            if kind != "ask":
                break
            self.send(self.answer(answer))
        if kind == "error":
            raise error_of(*answer)
        return answer[0]

    def send(self, message):
        file = io.BytesIO()
        Pickler(file, self).dump(message)
        try:
            channel.send(self.connection, file.getvalue())
        except channel.Closed:
            raise self.lost("your code ended the process that it ran in") from None

    def receive(self, ends):
        try:
            message = plain.loads(channel.receive(self.connection, ends))
            if not isinstance(message, list) or not message or message[0] not in ("value", "error", "ask"):
                raise plain.Malformed("a message that is not well formed")
            return self.made(message)
        except channel.Closed:
            raise self.lost("your code ended the process that it ran in, or used more memory than there is") from None
        except channel.TooLate:
            raise self.lost("your code took too long and could not be interrupted") from None
        except plain.Malformed as error:
            raise self.lost(f"your code gave back something that cannot be read: {error}") from None

    def lost(self, reason):
        self.gone = reason
        self.connection.close()
        return Gone(reason)

    def names(self, names):
        return self.do("names", names)

    def forget(self):
        self.insides.clear()
        self.local.clear()
        self.numbers.clear()
        if not self.gone:
            self.do("forget")

    def without(self, cls, message):
        self.do("without", cls.__module__, cls.__qualname__, message)
        return contextlib.nullcontext()

    def lines_run(self, function, *arguments):
        return self.do("lines_run", function._number, list(arguments))

    # What comes from the box

    def made(self, value):
        """Replace the handles in a message by stand-ins."""
        if isinstance(value, plain.Handle):
            return self.inside(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.made(item) for item in value)
        if isinstance(value, dict):
            return {key: self.made(item) for key, item in value.items()}
        if isinstance(value, np.ndarray) and value.dtype == object:
            for at in np.ndindex(value.shape):
                value[at] = self.made(value[at])
        return value

    def inside(self, handle):
        if handle.number < 0:
            return self.local[-1 - handle.number]
        if handle.number not in self.insides:
            self.insides[handle.number] = stand_in(self, handle)
        return self.insides[handle.number]

    # What the box asks of things that stay here

    def reference(self, thing):
        """Return how the box may know a thing of the test that it must not see."""
        number = self.numbers.setdefault(id(thing), len(self.local))
        self.local[number] = thing
        of = thing if isinstance(thing, type) else type(thing)
        return "outside", number, of.__name__, [[base.__module__, base.__qualname__] for base in of.__mro__[:-1]]

    def answer(self, question):
        try:
            action, number, *arguments = question
            thing = self.local[number]
            if action == "call":
                return ["value", thing(*arguments[0], **arguments[1])]
            if isinstance(thing, FUNCTIONS):
                raise AttributeError("this function can only be called")
            if action == "get" and is_public(arguments[0]):
                return ["value", getattr(thing, arguments[0])]
            if action == "length":
                return ["value", len(thing)]
            if action == "item":
                return ["value", thing[arguments[0]]]
            if action == "copy":
                return ["value", copy.deepcopy(thing)]
            raise AttributeError(f"there is no {arguments}")
        except Stopped:
            raise
        except checks.CheckFailed:
            raise
        except Exception as error:
            try:
                pickle.dumps(error)
                return ["error", error]
            except Exception:
                return ["error", RuntimeError(str(error))]


FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def is_public(name):
    return isinstance(name, str) and (not name.startswith("_") or name in ("__sklearn_tags__", "__sklearn_clone__"))


class Pickler(pickle.Pickler):
    """Write a message to the box; whatever belongs to the test stays here."""

    def __init__(self, file, box):
        super().__init__(file, protocol=5)
        self.box = box

    def persistent_id(self, thing):
        # Not isinstance: a stand-in passes for something else
        if issubclass(type(thing), Inside):
            return "inside", thing._number
        if isinstance(thing, types.MethodType):
            return self.box.reference(thing) if type(thing.__self__).__module__ == TESTS else None
        if isinstance(thing, (types.FunctionType, type)):
            return self.box.reference(thing) if thing.__module__ == TESTS else None
        if type(thing).__module__ == TESTS:
            return self.box.reference(thing)
        return None


class Inside:
    """A stand-in for a function, a class or an object of the student.

    It can be called, asked for its attributes and items, and looped over. It is no number, no string and no array, and
    equal to nothing: to take it for one is an error.
    """

    def __init__(self, box, number, says):
        self.__dict__.update(_box=box, _number=number, _says=says)

    def __call__(self, *arguments, **options):
        answer = self._box.do("call", self._number, list(arguments), options)
        handed_in = {**dict(enumerate(arguments)), **options}
        for key, value in answer["changed"].items():
            change(handed_in[key], value)
        return handed_in[answer["is"]] if "is" in answer else answer["value"]

    def __getattr__(self, name):
        if name.startswith(("__array", "_repr", "_ipython")):
            raise AttributeError(name)
        return self._box.do("get", self._number, name)

    def __setattr__(self, name, value):
        raise NotPlain(f"the test cannot change {self!r}")

    def __getitem__(self, key):
        return self._box.do("item", self._number, key)

    def __len__(self):
        length = self._box.do("length", self._number)
        if type(length) is not int:
            raise NotPlain("a length that is not a whole number")
        return length

    def __contains__(self, item):
        return self._box.do("contains", self._number, item) is True

    def __iter__(self):
        iterator = self._box.do("iterate", self._number)
        while item := self._box.do("next", iterator._number):
            yield item[0]

    def __repr__(self):
        return self._says

    def _refuse(self, *arguments):
        raise NotPlain(f"expected plain data such as numbers, an array or a table, got {self!r}")

    __array__ = __bool__ = __bytes__ = __complex__ = __float__ = __int__ = __index__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __pos__ = __abs__ = __invert__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __mod__ = __rmod__ = __floordiv__ = _refuse


def stand_in(box, handle):
    """Return a stand-in for `handle` that passes for an instance of the nearest class of a trusted package."""
    base = nearest(handle.bases)
    members = {} if base is None or handle.kind != "object" else {"__class__": property(lambda self: base)}
    says = {"class": "the class", "function": "the function", "object": "an object of type"}[handle.kind]
    name = handle.name if handle.name.isidentifier() else "object"
    return type(name, (Inside,), members)(box, handle.number, f"{says} {name}")


def nearest(bases):
    """Return the first class of a trusted package among the names in `bases`."""
    for module, name in bases:
        if module.split(".")[0] in TRUSTED and module in sys.modules:
            found = getattr(sys.modules[module], name, None)
            if isinstance(found, type) and not issubclass(found, (np.ndarray, np.generic, pd.DataFrame, pd.Series)):
                return found
    return None


def error_of(kinds, message, line):
    """Return the error that the box describes, as the nearest class that is known here."""
    for module, name in kinds:
        known = module == "builtins" or module.split(".")[0] in TRUSTED
        kind = getattr(sys.modules.get(module), name, None) if known else None
        # A loop of the test would take a StopIteration for its own end
        if not isinstance(kind, type) or not issubclass(kind, Exception) or issubclass(kind, StopIteration):
            if [module, name] == ["mlcourse.grading.box", "TimeLimit"]:
                return Stopped("your code took too long: look for a loop that does not end")
            if [module, name] == ["mlcourse.grading.plain", "Malformed"]:
                return Stopped(str(message))
            if [module, name] == ["mlcourse.checks", "CheckFailed"]:
                return checks.CheckFailed(str(message))
            continue
        try:
            error = kind(message)
        except Exception:
            continue
        error.line_of_answer = str(line)
        return error
    return Stopped(f"your code raised {kinds[0][1]}")


def change(argument, value):
    """Repeat what a call in the box has changed of an argument."""
    if isinstance(argument, np.ndarray):
        argument[...] = value
    elif isinstance(argument, (pd.DataFrame, pd.Series)):
        argument._update_inplace(value)
    elif isinstance(argument, list):
        argument[:] = value
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(value)
    elif isinstance(argument, np.random.Generator):
        argument.bit_generator.state = value
    elif hasattr(argument, "__dict__"):
        vars(argument).clear()
        vars(argument).update(value)
