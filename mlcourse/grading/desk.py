"""A server process that grades one notebook at a time.

It imports the scientific stack once, starts the box once (`mlcourse.grading.box`, inside bubblewrap), and forks both
for each submission: an examiner here, and a process for the student's code in there. `Desk` starts it and talks to it.
"""

import contextlib
import dataclasses
import gc
import importlib
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
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mlcourse.grading import GradingError
from mlcourse.grading.cells import Cell, Examined, Limits, result_of

ROOT = Path(__file__).resolve().parents[2]
BOX_MEMORY_BYTES = 4 * 2**30
BOX_PROCESSES = 128
START_SECONDS = 120
CLEAN_SECONDS = 30
FEW = 4  # with so many notebooks to come, the instructor's is run as well
# Not with -m, since the outside knows the classes of the box by the name of their module
BOX = [sys.executable, "-c", "from mlcourse.grading.box import main; main()"]
INSTALL = "on Debian and Ubuntu, type: sudo apt-get install bubblewrap"


class DeskEnded(GradingError):
    """The server process has ended in the middle of a notebook."""


class Desk:
    """A server process, started with the first notebook.

    Parameters
    ----------
    sandbox : bool
        False runs the student's code without a box, with all that this user may do.
    reference : list of mlcourse.grading.cells.Cell
        The instructor's notebook: its pictures serve for the figures of students that hold the same. A desk that serves
        several labs gets that of the next notebook as its attribute.
    expected : int
        How many notebooks are known to come. The instructor's is run before the first if they are `FEW` or more, else
        before the one with that number.
    **limits : float
        Seconds, as in `mlcourse.grading.cells.Limits`.
    """

    def __init__(self, sandbox: bool = True, reference: Sequence = (), expected: int = 0, **limits: float):
        self.sandbox, self.reference, self.limits = sandbox, reference, limits
        self.learns_at = 1 if expected >= FEW else FEW
        self.process, self.lock, self.over = None, threading.Lock(), False

    def grade(self, cells) -> dict:
        """Run the code cells of one notebook.

        Parameters
        ----------
        cells : list of mlcourse.grading.cells.Cell

        Returns
        -------
        dict
            The fields of `mlcourse.grading.cells.Result`.

        Raises
        ------
        GradingError
            If there is no box on this machine.
        DeskEnded
            If the server has ended in the middle of this notebook; the next one starts another.
        """
        with self.lock:
            if self.process is None:
                self.start()
            try:
                self.tell(cells)
                return json.loads(self.process.stdout.readline())
            except (OSError, ValueError):
                self.close()
                raise DeskEnded("the grading process has ended by itself: type the same command again") from None
            except BaseException:
                # An answer that nobody reads would be taken for the next student's
                self.close()
                raise

    def start(self):
        if self.over:
            raise GradingError("the grading was stopped")
        options = json.dumps({"sandbox": self.sandbox, "learns_at": self.learns_at, "limits": self.limits})
        command = [sys.executable, "-m", "mlcourse.grading.desk", options]
        environment = {**os.environ, **THREADS, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        answer = self.process.stdout.readline()
        if answer != "ready\n":
            self.close()
            raise GradingError(answer.strip() or "the grading process could not start: see the lines above")

    def tell(self, cells):
        given = [cell for cell in self.reference if cell.grade_id is None]
        message = [[dataclasses.asdict(cell) for cell in notebook] for notebook in (cells, given)]
        print(json.dumps(message), file=self.process.stdin, flush=True)

    def kill(self):
        """End the server at once, and start no other. Whoever waits for its answer gets an error, in another thread."""
        self.over = True
        if self.process is not None:
            self.process.kill()

    def close(self):
        """End the server, and with it the box and whatever runs there."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
            self.process = None


THREADS = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"], "1")


def box_command() -> list[str]:
    """Return the command that starts the box: bubblewrap, and what may be seen inside."""
    shown = {sys.prefix, sys.base_prefix, sysconfig.get_paths()["stdlib"]}
    shown |= {"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/etc/ld.so.cache"}
    shown |= {str(ROOT / "mlcourse"), str(ROOT / "data")}
    shown = sorted(path for path in shown if os.path.exists(path))
    # Named one by one, since bubblewrap makes the folders on the way for the user alone that starts it
    folders = sorted({str(parent) for path in shown for parent in Path(path).parents if str(parent) != "/"})
    folders = [word for folder in folders for word in ("--dir", folder)]
    binds = [word for path in shown for word in ("--ro-bind", path, path)]
    settings = {
        **THREADS,
        "HOME": "/scratch",
        "LANG": "C.UTF-8",
        "MPLCONFIGDIR": "/config",
        "PATH": os.path.dirname(sys.executable),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
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
        *BOX,
    ]


class Server:
    """The server's side: the box, and an examiner for each notebook."""

    def __init__(self, sandbox, learns_at, limits):
        self.sandbox, self.learns_at, self.limits, self.box = sandbox, learns_at, limits, None
        self.done = Counter()
        self.group = make_group()

    def start_box(self):
        self.stop_box()
        self.done.clear()
        if self.sandbox and not shutil.which("bwrap"):
            raise GradingError(f"there is no bubblewrap, which keeps students' code in a box: {INSTALL}")
        self.control, theirs = socket.socketpair()
        command = box_command() if self.sandbox else BOX
        options = [] if self.sandbox else ["--no-sandbox"]
        self.box = subprocess.Popen(
            [*command, str(theirs.fileno()), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            preexec_fn=lambda: enter_group(self.group),  # noqa: PLW1509 (the server has no other thread)
        )
        theirs.close()

    def wait_for_box(self):
        if self.hear(START_SECONDS) != b"ready":
            self.box.kill()
            reason = self.box.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
            raise GradingError(f"the box for students' code could not start: {' '.join(reason)}: {INSTALL}")

    def hear(self, seconds):
        """Return what the box says, or nothing if it has ended or says nothing in that time."""
        self.control.settimeout(seconds)
        try:
            return self.control.recv(5)
        except OSError:
            return b""

    def stop_box(self):
        if self.box is not None:
            self.control.close()
            self.box.kill()
            self.box.wait()
            self.box.stderr.close()
            self.box = None

    def close(self):
        self.stop_box()
        remove_group(self.group)

    def grade(self, cells, reference):
        """Return the result of a notebook, with the pictures of the instructor's from the time on when they pay."""
        from mlcourse.grading import box, examiner

        for cell in cells:
            if cell.grade_id is not None:
                with contextlib.suppress(SyntaxError, ValueError):  # then the examiner says it
                    examiner.compiled(cell.grade_id, cell.source)
        lab = tuple(cell.source for cell in reference)
        self.done[lab] += 1
        if self.done[lab] == self.learns_at and reference:
            self.run(reference, box.LEARN)
        return self.run(cells, box.RUN)

    def run(self, cells, request):
        """Return the result of a notebook, for which everything is done on one core.

        Examiner and box take turns, and to wake the other on another core takes longer than most of their answers.
        """
        from mlcourse.grading import box

        cores, core = os.sched_getaffinity(0), box.libc.sched_getcpu()
        os.sched_setaffinity(0, {core})
        try:
            return self.examined(cells, request + core.to_bytes(2))
        finally:
            os.sched_setaffinity(0, cores)

    def examined(self, cells, request):
        """Fork an examiner for a notebook and return the result."""
        begin = time.monotonic()
        connection = self.admit(request)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                examine(cells, connection, self.limits, writer)
            finally:
                os._exit(0)
        connection.close()
        os.close(writer)
        try:
            lines = self.lines(reader)
        finally:
            os.close(reader)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if self.hear(CLEAN_SECONDS) != b"over!":
            self.start_box()
            self.wait_for_box()
        examined = [Examined(*json.loads(line)) for line in lines]
        return result_of(cells, examined, time.monotonic() - begin)

    def admit(self, request):
        """Let the box begin with the next notebook and return the connection to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self.control, [request], [theirs.fileno()])
            except OSError:
                self.start_box()
                self.wait_for_box()
                socket.send_fds(self.control, [request], [theirs.fileno()])
        return ours

    def lines(self, reader):
        """Return the lines that an examiner has written when it ends, or when it could not be interrupted."""
        poll, text = select.poll(), b""
        poll.register(reader, select.POLLIN)
        poll.register(sys.stdin, 0)
        while events := poll.poll(self.limits.patience * 1000):
            if sys.stdin.fileno() in dict(events):
                sys.exit("nobody waits for the result any more")
            part = os.read(reader, 2**20)
            if not part:
                break
            text += part
        return text.decode().split("\n")[:-1]


def examine(cells, connection, limits, writer):
    """Be the examiner: write a line for every cell as soon as it is done."""
    from mlcourse.grading import box, examiner

    box.prctl(box.PR_SET_PDEATHSIG, signal.SIGKILL)
    # What UTF-8 cannot hold would stop whoever writes the notebook
    with os.fdopen(writer, "w", encoding="utf-8", errors="replace") as file:
        for examined in examiner.examine(cells, connection, limits):
            print(json.dumps(dataclasses.astuple(examined), ensure_ascii=False), file=file, flush=True)


def make_group():
    """Make a group of processes with limits on memory, number and time; return its folders, none where it may not."""
    folders = []
    limits = {
        "/sys/fs/cgroup/memory": {"memory.limit_in_bytes": BOX_MEMORY_BYTES},
        "/sys/fs/cgroup/pids": {"pids.max": BOX_PROCESSES},
        "/sys/fs/cgroup/cpu": {"cpu.cfs_quota_us": 100_000},
        "/sys/fs/cgroup": {
            "memory.max": BOX_MEMORY_BYTES,
            "memory.swap.max": 0,
            "pids.max": BOX_PROCESSES,
            "cpu.max": "100000 100000",
        },
    }
    for parent, files in limits.items():
        if not Path(parent, "cgroup.procs").exists():
            continue
        # Those of servers that were killed
        remove_group(folder for folder in Path(parent).glob("mlcourse-*") if not is_running(folder.name[9:]))
        folder = Path(parent, f"mlcourse-{os.getpid()}")
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            folders.append(folder)
        for file, limit in files.items():
            with contextlib.suppress(OSError):
                (folder / file).write_text(str(limit))
    return folders


def is_running(pid):
    """Return whether a process with this number is there."""
    return Path("/proc", pid).exists()


def enter_group(folders):
    """Put this process into a group, and make it the first that a machine without memory ends."""
    for folder in folders:
        with contextlib.suppress(OSError):
            (folder / "cgroup.procs").write_text(str(os.getpid()))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def remove_group(folders):
    """Remove control groups as soon as their processes have gone."""
    for folder in folders:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.02)


def main() -> None:
    """Read notebooks from standard input, a line each, and write their results to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    server = Server(options["sandbox"], options["learns_at"], Limits(**options["limits"]))
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
    """Grade the notebook that a line of standard input holds, with that of the instructor, until it is closed."""
    from mlcourse.grading import box

    server.start_box()
    for name in [*box.MODULES, "mlcourse.grading.examiner"]:
        importlib.import_module(name)
    box.know_arrays()
    server.wait_for_box()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*box.GARBAGE)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        cells, reference = ([Cell(**cell) for cell in notebook] for notebook in json.loads(line))
        print(json.dumps(dataclasses.asdict(server.grade(cells, reference))), file=answers, flush=True)


if __name__ == "__main__":
    main()
