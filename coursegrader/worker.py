"""A server process that grades one notebook at a time.

It starts two programs, each in its own bubblewrap: the student runner (`coursegrader.student_runner`) runs
students' code, the test runner (`coursegrader.test_runner`) runs the tests. Both import the scientific stack once and
fork a process for each submission. The server connects the two, reads which cells passed, and trusts neither. `Worker`
starts the server and talks to it.
"""

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from coursegrader import GradingError, channel, limits, seccomp
from coursegrader.protocol import OUTPUT_BYTES, Cell, Limits, Malformed, OutputBudget, notebook, read_verdict, result_of

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK_BYTES = 128 * 2**20  # of all that a test runner sends for a notebook
START_SECONDS = 120
CLEAN_SECONDS = 30
# Not -m: the test runner refers to the classes of the student runner by the name of their module
PROGRAM = f"from {__package__}.{{0}} import main; main()"
NO_LINUX = "grading needs Linux, also without a sandbox: type the same command in a virtual machine or a container"
INSTALL = "on Debian and Ubuntu, type: sudo apt-get install bubblewrap libseccomp2"
ALLOW = "what a machine or a container must allow stands in the book, below 'On which systems'"


class WorkerEnded(GradingError):
    """The server process has ended in the middle of a notebook."""


class Worker:
    """A server process, started with the first notebook.

    Parameters
    ----------
    sandbox : bool
        False runs the student's code without a sandbox, with all rights of this user.
    core : int, optional
        The core that the student's code and the tests run on. Workers with cores of their own cannot slow one another
        down.
    **limits : float
        Limits that differ from the defaults of `coursegrader.protocol.Limits`.
    """

    command = (sys.executable, "-m", "coursegrader.worker")

    def __init__(self, sandbox: bool = True, core: int | None = None, **limits: float):
        self.sandbox, self.core, self.limits = sandbox, core, limits
        self.process, self.lock, self.over = None, threading.Lock(), False

    def grade(self, cells: Sequence[Cell], secret: Sequence[int] = ()) -> dict:
        """Run the code cells of one notebook.

        Parameters
        ----------
        cells : list of coursegrader.protocol.Cell
        secret : sequence of int
            The numbers from which hidden tests draw their data (`coursegrader.secret`).

        Returns
        -------
        dict
            The fields of `coursegrader.protocol.NotebookResult`.

        Raises
        ------
        GradingError
            If this machine cannot make a sandbox.
        WorkerEnded
            If the server has ended in the middle of this notebook; the next call starts another.
        """
        with self.lock:
            if self.process is None:
                self.start()
            try:
                self.tell(cells, secret)
                answer = self.process.stdout.readline()
                if answer and not answer.startswith("{"):
                    raise GradingError(answer.strip())
                return json.loads(answer)
            except (OSError, ValueError):
                self.close()
                raise WorkerEnded("the grading process has ended by itself: run the same command again") from None
            except BaseException:
                # An unread answer would be taken for the next student's
                self.close()
                raise

    def start(self):
        if self.over:
            raise GradingError("the grading was stopped")
        if sys.platform != "linux":
            raise GradingError(NO_LINUX)
        options = {"sandbox": self.sandbox, "core": self.core, "limits": self.limits}
        command = [*self.command, json.dumps(options)]
        environment = {**os.environ, **THREADS, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        answer = self.process.stdout.readline()
        if answer != "ready\n":
            self.close()
            raise GradingError(answer.strip() or "the grading process could not start: see the lines above")

    def tell(self, cells, secret):
        told = [list(map(dataclasses.asdict, cells)), list(secret)]
        print(json.dumps(told), file=self.process.stdin, flush=True)

    def kill(self):
        """Kill the server and start no other. A thread that waits for its answer gets an error."""
        self.over = True
        if self.process is not None:
            self.process.kill()

    def close(self):
        """End the server and the programs that it runs."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
            self.process = None


def missing() -> str | None:
    """Return what this machine lacks for a sandbox, with the command that installs it, or None."""
    if sys.platform != "linux":
        return NO_LINUX
    if not shutil.which("bwrap"):
        return f"there is no bubblewrap, which keeps students' code in a sandbox: {INSTALL}"
    try:
        seccomp.library()
    except OSError:
        return f"there is no libseccomp, which filters the system calls of students' code: {INSTALL}"
    trial = subprocess.run(in_bubblewrap([sys.executable, "-ISc", ""], {}), capture_output=True, text=True, check=False)
    if trial.returncode:
        return f"the kernel refuses a sandbox for students' code ({last_line(trial.stderr)}): {ALLOW}"
    return None


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    return " ".join(text.strip().splitlines()[-1:])


THREADS = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"], "1")


def in_bubblewrap(command: list[str], settings: dict[str, str]) -> list[str]:
    """Return the command that runs a program in bubblewrap, with the files and the environment that it may see."""
    shown = sorted(
        path
        for path in {*python_files(), *LIBRARIES, *(str(ROOT / name) for name in ("mlcourse", "coursegrader", "data"))}
        if os.path.exists(path)
    )
    # Name the parents, too: only the user who starts bubblewrap may enter those that it adds itself
    folders = sorted({str(parent) for path in shown for parent in Path(path).parents if str(parent) != "/"})
    folders = [word for folder in folders for word in ("--dir", folder)]
    binds = [word for path in shown for word in ("--ro-bind", path, path)]
    settings = {
        **settings,
        **THREADS,
        "HOME": "/scratch",
        "LANG": "C.UTF-8",
        "MPLCONFIGDIR": "/config",
        "PATH": os.path.dirname(sys.executable),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": "/scratch",
    }
    return [
        "bwrap",
        *folders,
        *binds,
        *("--dev", "/dev", "--tmpfs", "/scratch", "--tmpfs", "/config"),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *([] if os.getuid() == 0 else ["--unshare-user"]),
        *("--cap-add", "ALL", "--new-session", "--die-with-parent", "--chdir", "/scratch", "--clearenv"),
        *(word for key, value in settings.items() for word in ("--setenv", key, value)),
        *command,
    ]


LIBRARIES = ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/etc/ld.so.cache"]


def python_files() -> set[str]:
    """Return the files and folders of Python and its packages.

    The folder of an installation as a whole is not among them: it may be ``/usr`` or the folder of the course.
    """
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for prefix in map(Path, (sys.prefix, sys.base_prefix)):
        found |= set(map(str, prefix.glob("bin/python*")))
        # conda keeps the data for maps in the last two
        found |= {str(prefix / name) for name in ("lib", "lib64", "pyvenv.cfg", "share/proj", "share/gdal")}
    return {*found, os.path.realpath(sys.executable)}


class Program:
    """One of the two programs in a bubblewrap: it forks a process for each request.

    Parameters
    ----------
    name : str
        The module of `coursegrader` whose function `main` is the program.
    sandbox : bool
        False runs it without bubblewrap.
    settings : dict
        Further environment variables.
    allowed : Limits
        The limits of a submission.
    share : float
        The share of the memory that this program may hold.
    """

    def __init__(self, name: str, sandbox: bool, settings: dict[str, str], allowed: Limits, share: float):
        self.allowed = dataclasses.replace(allowed, memory=share * allowed.memory)
        self.group = limits.Group(self.allowed)
        self.control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", PROGRAM.format(name), str(theirs.fileno())]
            command.append(json.dumps(dataclasses.asdict(allowed)))
            if sandbox:
                command = in_bubblewrap(command, settings)
                if not self.group.holds_memory():
                    command = [*limits.scope(self.allowed.memory_bytes, int(allowed.processes)), *command]
            else:
                command.append("--no-sandbox")
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, **settings},
                pass_fds=[theirs.fileno()],
                preexec_fn=self.group.enter,  # noqa: PLW1509 (another thread only waits for the kernel)
            )

    def wait(self):
        """Wait until the program is ready for requests."""
        if self.hear(START_SECONDS) != b"ready":
            raise GradingError(f"the sandbox for students' code could not start: {self.last_words()}")
        self.supervisor = limits.Supervisor(self.process.pid, self.allowed)

    def last_words(self):
        """End the program, and return the last line that it wrote."""
        self.process.kill()
        return last_line(self.process.stderr.read().decode(errors="replace"))

    def hear(self, seconds):
        """Return the program's next message, empty if it has ended or sends none in that time."""
        self.control.settimeout(seconds)
        try:
            return self.control.recv(5)
        except OSError:
            return b""

    def ask(self, core: int, *connections: socket.socket):
        """Start a notebook on a core, and pass the program these ends of the connections."""
        socket.send_fds(self.control, [core.to_bytes(2)], [one.fileno() for one in connections])

    def outcome(self):
        """Return how the process of a notebook has ended: over!, kill!, fail!, or nothing if the program has ended."""
        return self.hear(CLEAN_SECONDS)

    def close(self):
        """End the program and everything that it runs."""
        self.control.close()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        self.group.remove()


class Server:
    """The server: it starts the student runner and the test runner, and passes on their results."""

    def __init__(self, sandbox, core, limits):
        self.sandbox, self.limits = sandbox, limits
        cores = sorted(os.sched_getaffinity(0))
        self.excess = None  # the limit that the running submission exceeded
        self.core = core if core is not None else cores[os.getpid() % len(cores)]
        self.programs = []

    def start(self):
        """Start or restart the student runner and the test runner."""
        self.close()
        if self.sandbox and (lack := missing()):
            raise GradingError(lack)
        # Sets of texts have the same order in every run of a student's code, and an unpredictable one in the tests
        self.programs = [
            Program("student_runner", self.sandbox, {"PYTHONHASHSEED": "0"}, self.limits, share=1),
            # Its memory counts separately; students' code may fill it with what it returns to a test
            Program("test_runner", self.sandbox, {}, self.limits, share=0.5),
        ]
        for program in self.programs:
            program.wait()

    def close(self):
        while self.programs:
            self.programs.pop().close()

    def run(self, cells, secret):
        """Connect the student runner and the test runner, run a notebook in them, and return the result."""
        begin = time.monotonic()
        try:
            ours = self.admit()
        except OSError:
            self.start()
            ours = self.admit()
        results, self.excess = [], None
        kills = [program.group.kills() for program in self.programs]
        with ours, contextlib.suppress(channel.Closed, channel.TooLate, Malformed):
            channel.send(ours, notebook(cells, secret, self.limits), time.monotonic() + self.limits.patience)
            results.extend(self.verdicts(cells, ours))
        outcomes = list(map(Program.outcome, self.programs))
        if b"fail!" in outcomes:
            reason = self.programs[outcomes.index(b"fail!")].last_words()
            raise GradingError(f"the kernel refuses a sandbox for students' code: {reason}")
        result = result_of(cells, results, time.monotonic() - begin)
        if outcomes != [b"over!"] * 2 and not self.excess:
            # It did not exceed its own memory: the machine had none left, or somebody killed it
            after = [program.group.kills() for program in self.programs]
            result.late = result.late or not any(map(limits.ended_for_its_own, kills, after))
        if outcomes != [b"over!"] * 2:
            # Processes may be left over after a kill
            self.start()
        return result

    def admit(self):
        """Start a notebook in both programs and return the connection to the test runner."""
        student_runner, test_runner = self.programs
        pairs = [socket.socketpair() for _ in range(2)]
        (ours, server), (tests, student) = pairs
        with server, tests, student:
            try:
                student_runner.ask(self.core, student)
                test_runner.ask(self.core, server, tests)
            except OSError:
                ours.close()
                raise
        return ours

    def verdicts(self, cells, connection):
        """Yield the result of each cell, until the test runner ends or cannot be interrupted."""
        poll, data, left, budget = select.poll(), bytearray(), NOTEBOOK_BYTES, OutputBudget(self.limits.output)
        poll.register(connection, select.POLLIN)
        poll.register(sys.stdin, 0)
        looked = time.monotonic()
        last = looked + self.limits.total + self.limits.patience
        for cell in cells:
            ends = min(time.monotonic() + self.limits.patience, last)
            while (text := channel.first(data, OUTPUT_BYTES)) is None:
                events = dict(poll.poll(limits.LOOK_SECONDS * 1000))
                if sys.stdin.fileno() in events:
                    sys.exit("nobody waits for the result any more")
                if (now := time.monotonic()) > ends:
                    raise channel.TooLate
                if now > looked + limits.LOOK_SECONDS:
                    for program in self.programs:
                        reason = program.supervisor.look()
                        if reason != limits.UNCOUNTED:  # an overloaded machine counts slowly, too: grade once more
                            self.excess = reason or self.excess
                    looked = time.monotonic()
                if connection.fileno() in events:
                    try:
                        part = connection.recv(2**20)
                    except OSError:
                        raise channel.Closed from None
                    left -= len(part)
                    if not part or left < 0:
                        raise channel.Closed
                    data += part
            result = read_verdict(cell, text)
            result.outputs = result.outputs if cell.grade_id else budget.fitted(result.outputs)
            yield result


def main() -> None:
    """Read notebooks from standard input, one per line, and write their results to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    server = Server(options["sandbox"], options["core"], Limits(**options["limits"]))
    try:
        serve(server, answers)
    except GradingError as error:
        print(" ".join(str(error).split()), file=answers, flush=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit("nobody waits for the result any more")
    finally:
        server.close()


def serve(server, answers):
    """Grade the notebook in each line of standard input until it is closed."""
    server.start()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        cells, secret = json.loads(line)
        result = server.run([Cell(**cell) for cell in cells], secret)
        print(json.dumps(dataclasses.asdict(result)), file=answers, flush=True)


if __name__ == "__main__":
    main()
