"""Run the test cells of a submission in their own sandbox, with proxies for what the student wrote.

A test cell runs here, in a process that the student's code cannot reach. The names that it takes from the notebook are
plain data, or a `StudentProxy`, which sends calls into the sandbox and returns plain data. A test passes copies, so the
student's code cannot change the test's own objects.

`coursegrader.worker` starts this program once, in its own bubblewrap. It forks a process for each submission, in a
sandbox without network, writable folders, and files of the course other than this package and `data/`. That process
gets the cells of one notebook and reports for each whether it passed; the server checks the form of these reports and
trusts nothing else about them.
"""

import builtins
import contextlib
import copy
import functools
import gc
import importlib
import io
import json
import os
import pickle
import resource
import signal
import socket
import sys
import time
import types
from collections.abc import Iterator

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from coursegrader import channel, sandbox, serialization, student_runner
from coursegrader.names import imports_of_test, names_of_test
from coursegrader.protocol import (
    MESSAGE_CHARACTERS,
    OUTPUT_BYTES,
    Cell,
    CellResult,
    Limits,
    Malformed,
    OutputBudget,
    checked_outputs,
    failure,
    read_notebook,
    verdict,
)
from mlcourse import checks

TESTS = "mlcourse_tests"  # the module name of test cells
TRUSTED = ("matplotlib", "numpy", "pandas", "sklearn")  # packages whose classes a proxy may pass for
# Classes of plain data: a proxy that passed for one could give another value at each access
PLAIN = (tuple, list, dict, set, frozenset, str, bytes, int, float, complex, np.ndarray, np.generic)
PLAIN = (*PLAIN, pd.DataFrame, pd.Series, pd.Index, pd.api.extensions.ExtensionArray)
# The most frequent types, which never stay here
DATA = {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, np.ndarray, np.float64}
TOO_LONG = "your code took too long: look for a loop that does not end"
TURNS = 20  # how deep a test and the student's code may call each other


class Stopped(BaseException):
    """Ends the test cell, which cannot catch it; the message is for the student."""


class Gone(Stopped):
    """The student's process has ended, and with it the rest of the submission."""


class NotPlain(TypeError):
    """A test needed plain data, and the answer was something else."""


def main() -> None:
    """Fork a process for one submission at each message on the socket with the number `sys.argv[1]`.

    The second argument holds the limits of a submission.
    """
    control, limits = socket.socket(fileno=int(sys.argv[1])), Limits(**json.loads(sys.argv[2]))
    profile = None if "--no-sandbox" in sys.argv else sandbox.Profile(writable=False, limits=limits)
    for name in student_runner.MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*student_runner.GARBAGE)
    files = sandbox.ordinary_files()
    control.sendall(b"ready")
    for core, descriptors in sandbox.requests(control, 2):
        child = os.fork()
        if child == 0:
            sandbox.stay_on(core)
            sandbox.run_sandboxed(serve, descriptors, files, profile)
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(sandbox.outcome(child))


def serve(server: int, student: int) -> None:
    """Read a notebook from the first socket and answer there, cell by cell; the second leads to the sandbox."""
    sandbox.silence()
    server = socket.socket(fileno=server)
    cells, secret, limits = read_notebook(channel.receive(server))
    checks._secret = secret
    for cell, result in zip(cells, run_notebook(cells, socket.socket(fileno=student), limits)):
        channel.send(server, verdict(cell, result))


def run_notebook(cells: list[Cell], connection: socket.socket, limits: Limits) -> Iterator[CellResult]:
    """Run a notebook: the student's cells in the sandbox at the other end of `connection`, the tests here.

    Parameters
    ----------
    cells : list of Cell
    connection : socket.socket
    limits : Limits

    Yields
    ------
    CellResult
        One for each cell, until one of them has stopped.
    """
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    signal.signal(signal.SIGALRM, too_long)
    client, budget = RunnerClient(connection, limits), OutputBudget(limits.output)
    for cell in cells:
        client.late = False
        outputs = run_student(client, cell, budget) if cell.grade_id is None else run_test(client, cell)
        if cell.grade_id is None:
            errors = [output for output in outputs if output["output_type"] == "error"]
            client.stopped += [(cell.source, error["ename"], error["evalue"]) for error in errors]
        yield CellResult(outputs, client.gone, client.late)
        if client.gone:
            return


def run_student(client, cell, budget):
    """Run a cell of the student in the sandbox, or defer it; return its outputs, as far as there is room for them."""
    begin = time.monotonic()
    try:
        if cell.defers is not None:
            client.do("defer", cell.source, cell.defers)
            return []
        return budget.fitted(checked_outputs(client.do("cell", cell.source, budget.left, seconds=client.limits.cell)))
    except (Exception, Stopped) as error:
        return [failure(f"this cell was stopped: {error}")]
    finally:
        # Measure the time here: the cell's own report is not trusted
        client.late = client.late or time.monotonic() - begin >= client.limits.cell


def run_test(client, cell):
    """Run a test cell here and return its outputs: a line that says that it passed, or one error."""
    printed, begin = io.StringIO(), time.monotonic()
    try:
        code, names, imports = compiled(cell.grade_id, cell.source)
        checks._elsewhere, checks._cell = client, cell.grade_id
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), client.limit():
            space = {"__name__": TESTS, "__builtins__": vars(builtins).copy(), **client.names(names, imports)}
            exec(code, space)
        return [{"output_type": "stream", "name": "stdout", "text": printed.getvalue()[:2000] or "passed\n"}]
    except checks.CheckFailed as error:
        return [failure(str(error))]
    except Gone as reason:
        return [failure(f"not passed, since {reason}.")]
    except BaseException as error:
        return [failure(f"not passed: {error or type(error).__name__}")]
    finally:
        checks._elsewhere = None
        client.late = client.late or time.monotonic() - begin >= client.limits.test
        with contextlib.suppress(Exception, Stopped):
            client.forget()


@functools.lru_cache(1000)
def compiled(name, source):
    """Return the code of a test cell, the names that it takes from the notebook, and the imports that students see."""
    return compile(source, f"<test {name}>", "exec"), names_of_test(source), imports_of_test(source)


def too_long(number, frame):
    """Raise Stopped when the alarm rings."""
    raise Stopped("this check took too long with your answer")


class RunnerClient:
    """The client of the student runner: it sends requests into the sandbox and reads the answers."""

    def __init__(self, connection, limits):
        self.connection, self.limits = connection, limits
        self.end, self.deadline = time.monotonic() + limits.total, None
        self.insides, self.local, self.numbers, self.gone, self.turns = {}, {}, {}, None, 0
        self.late, self.things_changed, self.generators = False, {}, {}
        self.stopped = []  # for `checks._stopped_cells`

    @contextlib.contextmanager
    def limit(self):
        """Limit the block to the time of one test."""
        self.deadline = time.monotonic() + self.limits.test
        # The alarm repeats, since Python drops an exception in some places
        signal.setitimer(signal.ITIMER_REAL, self.limits.test + 2 * self.limits.grace, 1)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.deadline = None

    def do(self, action, *arguments, seconds=None):
        """Send a request into the sandbox and return the result.

        Raises
        ------
        Exception
            What the student's code raised, as the nearest class of Python or a trusted package, with `place`.
        Stopped
            If the time is over.
        Gone
            If the sandbox has ended, or sends a malformed message.
        """
        now = time.monotonic()
        ends = min(self.end, now + (seconds or self.limits.call), self.deadline or self.end)
        if self.gone:
            raise Gone(self.gone)
        if ends <= now:
            self.late = True
            raise Stopped(TOO_LONG)
        message, over = self.pickled([action, ends - now, *arguments]), None
        most = OUTPUT_BYTES if action == "cell" else 2 * channel.MAX_BYTES
        with self.exchange():
            self.send(message, ends)
            while (answer := self.receive(ends, most))[0] == "ask":
                message, stop = self.answer(answer[1])
                over = over or stop
                self.send(message, ends)
        if over:
            raise over
        if answer[0] == "error":
            self.late = self.late or time.monotonic() >= ends  # whatever the error says
            raise error_of(*answer[1])
        return answer[1]

    @contextlib.contextmanager
    def exchange(self):
        """Give the sandbox up if a request stays unanswered: the next one would get its answer."""
        self.turns += 1
        try:
            yield
        except Gone:
            raise
        except channel.Closed:
            raise self.lost("your code ended the process that it ran in, or used more memory than there is") from None
        except (channel.TooLate, Stopped):
            self.late = True
            raise self.lost("your code took too long and could not be interrupted") from None
        except Exception as error:
            raise self.lost(f"your code returned something that cannot be read: {error}") from None
        finally:
            self.turns -= 1

    def pickled(self, message):
        file = io.BytesIO()
        Pickler(file, self).dump(message)
        return file.getvalue()

    def send(self, message, ends):
        channel.send(self.connection, message, ends + self.limits.grace)

    def receive(self, ends, most):
        message = serialization.loads(channel.receive(self.connection, ends + self.limits.grace, most), self.inside)
        if type(message) is not list or not message or type(message[0]) is not str or len(message) != 2:
            raise Malformed("a message that is not well formed")
        kind, content = message
        if (kind == "error" and not is_description(content)) or kind not in ("value", "error", "ask"):
            raise Malformed("a message that is not well formed")
        return message

    def lost(self, reason):
        self.gone = reason
        self.connection.close()
        return Gone(reason)

    def names(self, names, imports):
        found = self.do("names", names, imports)
        if type(found) is not dict:
            raise NotPlain("names that are not well formed")
        # Only the requested names: others could replace Python's own
        return {name: found[name] for name in names if name in found}

    def forget(self):
        self.insides.clear()
        self.local.clear()
        self.numbers.clear()
        self.things_changed.clear()
        self.generators.clear()
        if not self.gone:
            self.do("forget")

    def without(self, borrowed, message):
        self.do("without", borrowed.__module__, borrowed.__qualname__, message)
        return contextlib.nullcontext()

    def changed(self, thing):
        """Whether a call has changed its copy of an argument."""
        return id(thing) in self.things_changed

    def result(self, answer, handed_in):
        """Note which arguments a call has changed, and return its result."""
        if type(answer) is not dict or type(answer.get("changed")) is not list or not answer.keys() & {"is", "value"}:
            raise NotPlain("an answer that is not well formed")
        for way in answer["changed"]:
            # The containers of a changed object have changed, too
            for end in range(1, len(way) + 1):
                thing = thing_at(handed_in, way[:end])
                self.things_changed[id(thing)] = thing
        if "is" not in answer:
            return answer["value"]
        if any(isinstance(key, str) and key.startswith("_") for key in as_list(answer["is"])):
            raise NotPlain("an answer that is private to the test")
        return thing_at(handed_in, answer["is"])

    # What comes from the sandbox

    def inside(self, handle):
        """Return the proxy for a handle, or the test's own object if the handle refers to one."""
        if handle.number < 0:
            return self.local[-1 - handle.number]
        if handle.number not in self.insides:
            self.insides[handle.number] = make_proxy(self, handle)
        return self.insides[handle.number]

    # Questions of the sandbox about objects that stay here

    def reference(self, thing):
        """Return the reference by which the sandbox knows an object of the test."""
        number = self.numbers.setdefault(id(thing), len(self.local))
        self.local[number] = thing
        of = thing if isinstance(thing, type) else type(thing)
        return "outside", number, of.__name__, [[base.__module__, base.__qualname__] for base in of.__mro__[:-1]]

    def generator(self, thing):
        """Return the reference to a generator; the student's copy keeps its state unless the test has drawn since."""
        state = thing.bit_generator.state
        _, number, before = self.generators.get(id(thing), (None, len(self.generators), None))
        self.generators[id(thing)] = thing, number, state
        return ("generator", number) if state == before else ("generator", number, thing.bit_generator)

    def answer(self, question):
        """Return the message that answers a question of the sandbox, and the exception that ends the test, if any."""
        try:
            if self.turns > TURNS:
                raise Stopped("your code and the check call each other without end")
            return self.pickled(["value", self.asked(*question)]), None
        except Gone:
            raise
        except (Stopped, checks.CheckFailed) as over:
            return self.pickled(["error", RuntimeError("the test is over")]), over
        except Exception as error:
            try:
                pickle.dumps(error)
            except Exception:
                error = RuntimeError(str(error))
            return self.pickled(["error", error]), None

    def asked(self, action, number, *arguments):
        thing = self.local[number]
        if action == "call":
            return thing(*arguments[0], **arguments[1])
        if action == "get" and is_public(thing, arguments[0]):
            return getattr(thing, arguments[0])
        if action == "get":
            raise AttributeError(f"{type(thing).__name__!r} object has no attribute {arguments[0]!r}")
        if action == "make" and type(thing).__module__ == TESTS:
            return type(thing)(*arguments[0], **arguments[1])
        if action == "truth":
            return bool(thing)
        if action == "length":
            return len(thing)
        if action == "item":
            return thing[arguments[0]]
        if action in ("copy", "deepcopy"):
            return getattr(copy, action)(thing)
        if action == "fitted":
            return is_fitted(thing)
        raise AttributeError(f"there is no {arguments}")


FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def is_public(thing, name):
    """Return whether the sandbox may read this attribute of an object of the test."""
    if isinstance(thing, FUNCTIONS):
        return name == "__name__"
    return isinstance(name, str) and (not name.startswith("_") or name in ("__sklearn_tags__", "__sklearn_clone__"))


def is_fitted(model):
    """Return whether a model of the test is fitted, as scikit-learn sees it."""
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


class Pickler(pickle.Pickler):
    """Write a message to the sandbox; objects of the test stay here."""

    def __init__(self, file, client):
        super().__init__(file, protocol=5)
        self.client = client

    def persistent_id(self, thing):
        if type(thing) in DATA:
            return None
        # Not isinstance: a proxy passes for something else
        if issubclass(type(thing), StudentProxy):
            return "inside", thing._number
        if type(thing) is np.random.Generator:
            return self.client.generator(thing)
        if isinstance(thing, types.MethodType):
            return self.client.reference(thing) if type(thing.__self__).__module__ == TESTS else None
        if isinstance(thing, (types.FunctionType, type)):
            return self.client.reference(thing) if thing.__module__ == TESTS else None
        if type(thing).__module__ == TESTS:
            return self.client.reference(thing)
        return None


# What arrays and tables have, for which an object that answers as it likes must not stand
OF_TABLES = {"T", "at", "columns", "dtype", "dtypes", "iat", "iloc", "index", "loc", "ndim", "shape", "size"}
OF_TABLES |= {"astype", "item", "items", "keys", "ravel", "reset_index", "sort_values", "to_numpy", "tolist", "values"}


class StudentProxy:
    """A proxy for a function, a class or an object of the student.

    It supports calls, attributes, items and loops. Comparing it, or using it as a number, string, array or table,
    is an error.
    """

    def __init__(self, client, number, says):
        self.__dict__.update(_client=client, _number=number, _says=says, _handed_in={})

    def __call__(self, *arguments, **options):
        answer = self._client.do("call", self._number, list(arguments), options)
        handed_in = {**dict(enumerate(arguments)), **options}
        result = self._client.result(answer, handed_in)
        if issubclass(type(result), StudentProxy):
            result.__dict__["_handed_in"] = handed_in
        return result

    def __getattr__(self, name):
        if name.startswith(("__array", "_repr", "_ipython")):
            raise AttributeError(name)
        if name in OF_TABLES:
            self._refuse()
        return self._client.do("get", self._number, name)

    def __sklearn_clone__(self):
        """Clone in the sandbox: no class or parameter that the student chooses is used here."""
        return self._client.do("clone", self._number)

    def __copy__(self):
        raise NotPlain(f"the test cannot copy {self._says}")

    def __deepcopy__(self, memo):
        raise NotPlain(f"the test cannot copy {self._says}")

    def __reduce_ex__(self, protocol):
        raise NotPlain(f"the test cannot copy {self._says}")

    def __setattr__(self, name, value):
        raise NotPlain(f"the test cannot change {self._says}")

    def __getitem__(self, key):
        if not isinstance(key, (int, np.integer, slice)):
            self._refuse()
        return self._client.do("item", self._number, key)

    def __len__(self):
        length = self._client.do("length", self._number)
        if type(length) is not int:
            raise NotPlain("a length that is not a whole number")
        return length

    def __contains__(self, item):
        return self._client.do("contains", self._number, item) is True

    def __iter__(self):
        iterator = self._client.do("iterate", self._number)
        while items := self._client.result(self._client.do("next", iterator._number), self._handed_in):
            yield items[0]

    def __repr__(self):
        shown = self._client.do("show", self._number)
        if type(shown) is not str:
            raise NotPlain("a text that is not well formed")
        return shown

    def _refuse(self, *arguments):
        raise NotPlain(f"expected plain data such as numbers, an array or a table, got {self._says}")

    __array__ = __bool__ = __bytes__ = __complex__ = __float__ = __int__ = __index__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __pos__ = __abs__ = __invert__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __mod__ = __rmod__ = __floordiv__ = _refuse


def make_proxy(client, handle):
    """Return a proxy for `handle` that passes for an instance of the nearest class of a trusted package."""
    base, members = nearest(handle.bases), {}
    if base is not None and handle.kind == "object":
        with contextlib.suppress(Exception):  # some classes, for instance np.ufunc, allow no subclass
            members["__class__"] = claim(base)
    says = {"class": "the class", "function": "the function", "object": "an object of type"}[handle.kind]
    name = handle.name if handle.name.isidentifier() else "object"
    return type(name, (StudentProxy,), members)(client, handle.number, f"{says} {name}")


@functools.cache
def claim(base):
    """Return the ``__class__`` of proxies for objects of a class: a subclass without instances."""

    def refuse(cls, *arguments, **options):
        raise NotPlain(f"the test cannot make another {base.__name__}")

    refusing = type("Refusing", (type(base),), {"__call__": refuse})
    claimed = refusing(base.__name__, (base,), {"__new__": refuse, "__module__": TESTS})
    return property(lambda self: claimed)


def nearest(bases):
    """Return the first class of a trusted package among the names in `bases`."""
    for module, name in bases:
        found = known(module, name) if is_trusted(module) or module == "builtins" else None
        if isinstance(found, type) and is_trusted(found.__module__) and not issubclass(found, PLAIN):
            return found
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return None


def known(module, name):
    """Look a name up in the dict of a loaded module: attribute access makes some modules import others."""
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


def is_trusted(module):
    """Return whether a class of this module may stand in for one of the sandbox."""
    return module.split(".")[0] in TRUSTED


def is_description(content):
    """Whether this describes an error: the names of its classes, its message, its place."""
    if type(content) is not list or [type(part) for part in content] != [list, str, str] or not content[0]:
        return False
    return all(type(name) is list and [type(word) for word in name] == [str, str] for name in content[0])


def error_of(kinds, message, place):
    """Return the error that the sandbox describes, as the nearest class that is known here, with only a text."""
    message, place = message[:MESSAGE_CHARACTERS], place[:MESSAGE_CHARACTERS]
    for module, name in kinds:
        if [module, name] == ["coursegrader.student_runner", "TimeLimit"]:
            return Stopped(TOO_LONG)
        if [module, name] == ["coursegrader.protocol", "Malformed"]:
            return Stopped(message)
        if [module, name] == ["mlcourse.checks", "CheckFailed"]:
            return checks.CheckFailed(message)
        kind = known(module, name) if module == "builtins" or is_trusted(module) else None
        if kind is StopIteration:
            # StopIteration would end a loop of the test; generators raise RuntimeError instead, too (PEP 479)
            kind = RuntimeError
        if not isinstance(kind, type) or not issubclass(kind, Exception) or issubclass(kind, StopIteration):
            continue
        members = {"__init__": lambda self: None, "__str__": lambda self: message, "place": place}
        with contextlib.suppress(Exception):
            # Keep the name of the known class: a test may read it
            error = type(kind.__name__, (kind,), members)()
            error.args = (message,)
            return error
    return Stopped(f"your code raised {kinds[0][1][:MESSAGE_CHARACTERS]}")


def as_list(way):
    """Return a path as a list of keys."""
    return way if type(way) is list else [way]


def thing_at(holder, way):
    """Return the object among the arguments at the path `way`, through containers and models."""
    if way == []:
        raise NotPlain("an answer about everything that was handed over")
    for key in as_list(way):
        # Not isinstance: a proxy passes for a model, but has no attribute that the sandbox may name
        is_model = issubclass(type(holder), BaseEstimator)
        try:
            holder = vars(holder)[key] if is_model else holder[key] if type(holder) in (list, tuple, dict) else {}[key]
        except (LookupError, TypeError):
            raise NotPlain("an answer about something that was not handed over") from None
    return holder
