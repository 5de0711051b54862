"""A server process that grades one notebook at a time.

It imports the scientific stack once, starts the box once (`mlcourse.grading.box`, inside bubblewrap), and forks both for
each submission: an examiner here, and a process for the student's code in there. `Desk` starts it and talks to it.
"""

import dataclasses
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from mlcourse.grading import GradingError

ROOT = Path(__file__).resolve().parents[2]
BOX_MEMORY_BYTES = 4 * 2**30
BOX_PROCESSES = 128
START_SECONDS = 120
INSTALL = "on Debian and Ubuntu, type: sudo apt-get install bubblewrap"


class DeskEnded(GradingError):
    """The server process has ended in the middle of a notebook."""


class Desk:
    """A server process, started with the first notebook.

    Parameters
    ----------
    sandbox : bool
        False runs the student's code without a box, with all that this user may do.
    """

    def __init__(self, sandbox: bool = True):
        self.sandbox, self.process = sandbox, None

    def grade(self, cells) -> "examiner.Result":
        """Run the code cells of one notebook.

        Parameters
        ----------
        cells : list of mlcourse.grading.examiner.Cell

        Returns
        -------
        mlcourse.grading.examiner.Result

        Raises
        ------
        GradingError
            If there is no box on this machine.
        DeskEnded
            If the server has ended in the middle of this notebook; the next one starts another.
        """
        if self.process is None:
            self.start()
        try:
            print(json.dumps([dataclasses.asdict(cell) for cell in cells]), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            self.close()
            raise DeskEnded("the grading process has ended by itself: type the same command again")
        return json.loads(answer)

    def start(self):
        command = [sys.executable, "-m", "mlcourse.grading.desk", *([] if self.sandbox else ["--no-sandbox"])]
        environment = {**os.environ, **THREADS, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        answer = self.process.stdout.readline()
        if answer != "ready\n":
            self.close()
            raise GradingError(answer.strip() or "the grading process could not start: see the lines above")

    def kill(self):
        """End the server at once, in the middle of whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.close()

    def close(self):
        """End the server."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
            self.process = None


THREADS = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"], "1")


def box_command(scratch: str) -> list[str]:
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
        *("--dev", "/dev", "--dir", "/scratch", "--bind", scratch, "/config"),
        *("--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *([] if os.getuid() == 0 else ["--unshare-user"]),
        *("--cap-add", "ALL", "--new-session", "--die-with-parent", "--chdir", "/scratch", "--clearenv"),
        *(word for key, value in settings.items() for word in ("--setenv", key, value)),
        *(sys.executable, "-m", "mlcourse.grading.box"),
    ]


class Server:
    """The server's side: the box, and an examiner for each notebook."""

    def __init__(self, sandbox):
        self.sandbox, self.box = sandbox, None
        self.group = make_group()
        self.start_box()

    def start_box(self):
        self.stop_box()
        self.control, theirs = socket.socketpair()
        descriptor = str(theirs.fileno())
        self.scratch = tempfile.TemporaryDirectory(prefix="mlcourse-")
        if self.sandbox and not shutil.which("bwrap"):
            raise GradingError(f"there is no bubblewrap, which keeps students' code in a box: {INSTALL}")
        command = box_command(self.scratch.name) if self.sandbox else [sys.executable, "-m", "mlcourse.grading.box"]
        options = [] if self.sandbox else ["--no-sandbox"]
        self.box = subprocess.Popen(
            [*command, descriptor, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            preexec_fn=lambda: enter_group(self.group),
        )
        theirs.close()
        self.control.settimeout(START_SECONDS)
        if self.control.recv(5) != b"ready":
            reason = self.box.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
            raise GradingError(f"the box for students' code could not start: {' '.join(reason)}: {INSTALL}")

    def stop_box(self):
        if self.box is not None:
            self.control.close()
            self.box.kill()
            self.box.wait()
            self.box.stderr.close()
            self.scratch.cleanup()
            self.box = None

    def grade(self, cells):
        """Fork an examiner for a notebook and return what it says."""
        from mlcourse.grading import examiner

        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self.control, [b"x"], [theirs.fileno()])
        except OSError:
            self.start_box()
            socket.send_fds(self.control, [b"x"], [theirs.fileno()])
        theirs.close()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            result = examiner.examine(cells, ours)
            with os.fdopen(writer, "w") as file:
                json.dump(dataclasses.asdict(result), file)
            os._exit(0)
        ours.close()
        os.close(writer)
        with os.fdopen(reader) as file:
            answer = file.read()
        os.waitpid(child, 0)
        self.control.settimeout(30)
        try:
            clean = self.control.recv(5) == b"over!"
        except OSError:
            clean = False
        if not clean:
            self.start_box()
        return answer


def make_group():
    """Make a group of processes with limits on memory and number, and return its folders; none where that is not ours."""
    folders = []
    name = f"mlcourse-{os.getpid()}"
    limits = {
        "/sys/fs/cgroup/memory": {"memory.limit_in_bytes": BOX_MEMORY_BYTES},
        "/sys/fs/cgroup/pids": {"pids.max": BOX_PROCESSES},
        "/sys/fs/cgroup": {"memory.max": BOX_MEMORY_BYTES, "pids.max": BOX_PROCESSES},
    }
    for parent, files in limits.items():
        folder = Path(parent, name)
        try:
            if not all((Path(parent) / f"cgroup.{word}").exists() for word in ("procs",)):
                continue
            folder.mkdir()
            folders.append(folder)
            for file, limit in files.items():
                (folder / file).write_text(str(limit))
        except OSError:
            continue
    return folders


def enter_group(folders):
    for folder in folders:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def remove_group(folders):
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
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        server = Server(sandbox="--no-sandbox" not in sys.argv)
    except GradingError as error:
        print(" ".join(str(error).split()), file=answers, flush=True)
        sys.exit(1)
    from mlcourse.grading import box, examiner

    for name in box.MODULES:
        importlib.import_module(name)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        cells = [examiner.Cell(**cell) for cell in json.loads(line)]
        print(server.grade(cells), file=answers, flush=True)
    server.stop_box()
    remove_group(server.group)


if __name__ == "__main__":
    main()
