"""The limits of a submission hold for all of its processes together, whoever grades."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from coursegrader import GradingError, grade, limits, seccomp, worker
from mlcourse.cli import main
from paths import ROOT

PROGRAM = """
import mmap, os, sys, time
def hold(flag, size): return mmap.mmap(-1, size, flags=flag | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
{prepare}
for _ in range({children}):
    if os.fork() == 0:
        {hold}
        print("x", end="", flush=True)
        time.sleep(1000)
time.sleep(1000)
"""


@pytest.fixture
def watched(monkeypatch):
    """Start a program below this process, and return what the supervisor says of it, and who of it is still there."""
    monkeypatch.setattr(limits, "MEMORY_BYTES", 400 * 2**20)
    monkeypatch.setattr(limits, "PROCESSES", 8)
    started = []

    def look(children, prepare="", hold="pass"):
        program = PROGRAM.format(children=children, prepare=prepare, hold=hold)
        supervisor = limits.Supervisor(os.getpid())
        run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
        started.append(run)
        assert run.stdout.read(children) == b"x" * children
        reason = supervisor.look()
        deadline = time.monotonic() + 5
        while reason and limits.below(run.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        return reason, len(limits.below(run.pid))

    yield look
    for run in started:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        run.stdout.close()


@pytest.mark.parametrize("name", [b"\xff", b"\rVmRSS: -999999", b"\r\r", b"\nVmRSS: 0"], ids=range(4))
def test_a_name_that_a_process_gives_itself_hides_nothing(watched, name):
    prepare = f"import ctypes\nctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)"
    reason, left = watched(4, prepare=prepare, hold="held = hold(mmap.MAP_PRIVATE, 120 * 2**20)")
    assert reason.endswith("GB of memory") and left == 0


def test_children_that_hold_too_much_together_are_ended(watched):
    hold = "held = hold(mmap.MAP_PRIVATE, 120 * 2**20)"
    reason, left = watched(4, hold=hold)
    assert reason.endswith("GB of memory") and left == 0


def test_memory_that_can_be_shared_counts(watched):
    reason, left = watched(4, hold="held = hold(mmap.MAP_SHARED, 120 * 2**20)")
    assert reason.endswith("GB of memory") and left == 0


def test_memory_counts_although_the_first_thread_has_ended(watched):
    thread = "threading.Thread(target=lambda: (hold(mmap.MAP_PRIVATE, 120 * 2**20), write(), time.sleep(1000))).start()"
    prepare = "import ctypes, threading\ndef write(): os.write(1, b'x')"
    reason, left = watched(4, prepare, f"{thread}; time.sleep(0.2); ctypes.CDLL(None).syscall(60, 0)")
    assert reason.endswith("GB of memory") and left == 0


def test_memory_that_children_share_counts_once(watched):
    held = "held = hold(mmap.MAP_SHARED, 200 * 2**20)"
    assert watched(4, prepare=held, hold="sum(held[::4096])") == (None, 4)


def test_more_processes_than_there_may_be_are_ended(watched):
    reason, left = watched(10)
    assert reason == "more than 8 processes" and left == 0


def test_what_was_there_before_is_left_alone(monkeypatch):
    monkeypatch.setattr(limits, "PROCESSES", 0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as before:
        supervisor = limits.Supervisor(os.getpid())
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
            assert supervisor.look() == "more than 0 processes"
            assert later.wait(5) == -signal.SIGKILL
        assert before.poll() is None


def test_doctor_says_what_holds_the_limits(capsys):
    with pytest.raises(SystemExit):
        main(["doctor"])
    [line] = [line for line in capsys.readouterr().out.splitlines() if "4 GB of memory" in line]
    assert re.search(r"128 processes for each submission, (held by the kernel \(.+\)|added up 4 times a second)", line)


def test_without_libseccomp_nothing_is_graded_and_the_message_says_what_to_install(monkeypatch):
    def library():
        raise OSError("libseccomp.so.2: cannot open shared object file")

    monkeypatch.setattr(seccomp, "library", library)
    monkeypatch.setattr(worker.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert "there is no libseccomp" in worker.missing() and "sudo apt-get install" in worker.missing()


def test_the_sandbox_shows_of_a_python_of_the_system_no_more_than_it_needs(monkeypatch):
    monkeypatch.setattr(worker.sys, "prefix", "/usr")
    monkeypatch.setattr(worker.sys, "base_prefix", "/usr")
    words = worker.in_bubblewrap(["true"], {})
    shown = {path for option, path in zip(words, words[1:], strict=False) if option == "--ro-bind"}
    assert "/usr/lib" in shown
    assert not shown & {"/", "/usr", "/usr/bin", "/usr/local", "/usr/share", "/usr/local/share", str(ROOT)}


@pytest.mark.parametrize("sandboxed", [True, False])
def test_other_systems_than_linux_are_told_in_one_sentence_that_grading_needs_it(monkeypatch, sandboxed):
    monkeypatch.setattr(sys, "platform", "darwin")
    for name in ("sched_getaffinity", "sched_setaffinity", "pidfd_open"):
        monkeypatch.delattr(os, name)
    with pytest.raises(GradingError, match="needs Linux"):
        worker.Worker(sandboxed).grade([])
    with pytest.raises(GradingError, match="needs Linux"), grade.pool(None, sandboxed, None):
        pass
    assert "needs Linux" in worker.missing()
