"""Limits for a submission as a whole: memory, number of processes and time of the processor.

Limits of a single process do not bound the sum: twenty processes may each take as much as one. Two means bound it.

- A control group, where this user may make one: below ``/sys/fs/cgroup`` for root (versions 1 and 2), as a scope of the
  user's systemd for everybody else (version 2, which delegates memory to users). The kernel then enforces the limits.
- The `Supervisor`, everywhere: a few times a second, it adds up the memory of a submission's processes, shared memory
  included, and ends them when it is too much.

No process of a submission can leave the core that it was given (`coursegrader.worker`).
"""

import contextlib
import functools
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from coursegrader.protocol import Limits

GROUPS = Path("/sys/fs/cgroup")
EVENTS = ["memory.oom_control", "memory.failcnt", "memory.events"]  # the first two of version 1
LOOK_SECONDS = 0.25
STOPS = 100  # times that a submission is told to stop
COUNT_SECONDS = 3  # a process that changes its mappings all the time keeps whoever counts its memory waiting
TABLES = (b"VmPTE:",)  # page tables: empty pages far from one another take no other memory
RESIDENT = (b"VmRSS:", b"VmSwap:", *TABLES)
UNCOUNTED = "memory that cannot be counted"
MAPPING_BYTES = 4096  # of kernel memory for each mapping; children inherit the mappings


def sentence(limits: Limits) -> str:
    """Return a sentence on how the limits of a submission are enforced for this user."""
    gigabytes = f"{limits.memory:g} GB of memory and {limits.processes:g} processes for each submission"
    group = Group(limits)
    try:
        if group.holds_memory():
            return f"{gigabytes}, held by the kernel (a control group)"
    finally:
        group.remove()
    if scope(limits.memory_bytes, int(limits.processes)):
        return f"{gigabytes}, held by the kernel (a scope of systemd)"
    return (
        f"{gigabytes}, added up {1 / LOOK_SECONDS:g} times a second by the grader (this user may make no control group)"
    )


@functools.cache
def scope(memory: int, processes: int) -> tuple[str, ...]:
    """Return the command prefix that sets limits by a scope of the user's systemd; empty if there is none."""
    words = ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
    words += [f"--property=MemoryMax={memory}", "--property=MemorySwapMax=0", f"--property=TasksMax={processes}"]
    if os.getuid() == 0 or shutil.which(words[0]) is None:
        return ()
    # The scope has the limit only where memory is delegated to users
    look = 'cat "/sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -c 4-)/memory.max"'
    try:
        run = subprocess.run([*words, "sh", "-c", look], capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return ()
    return tuple(words) if run.stdout.strip() == str(memory) else ()


class Group:
    """A control group of this process, of version 1 or 2; `folders` are those that could be made."""

    def __init__(self, limits: Limits):
        self.folders, self.memory = [], str(limits.memory_bytes)
        name = f"mlcourse-{os.getpid()}-{secrets.token_hex(4)}"
        processes = int(limits.processes)
        files_of = {
            "memory": {"memory.limit_in_bytes": self.memory},
            "pids": {"pids.max": processes},
            "cpu": {"cpu.cfs_quota_us": 100_000},
            "": {"memory.max": self.memory, "memory.swap.max": 0, "pids.max": processes, "cpu.max": "100000 100000"},
        }
        for controller, files in files_of.items():
            parent = GROUPS / controller
            if not (parent / "cgroup.procs").exists():
                continue
            # Remove the groups of servers that were killed
            remove(folder for folder in parent.glob("mlcourse-*") if not is_running(folder.name.split("-")[1]))
            folder = parent / name
            with contextlib.suppress(OSError):
                folder.mkdir()
                self.folders.append(folder)
            for file, limit in files.items():
                with contextlib.suppress(OSError):
                    (folder / file).write_text(str(limit))

    def holds_memory(self):
        """Whether the kernel has accepted the memory limit."""
        files = [folder / name for folder in self.folders for name in ("memory.limit_in_bytes", "memory.max")]
        return any(file.exists() and file.read_text().strip() == self.memory for file in files)

    def kills(self):
        """Return how many processes the kernel has ended, and how often the group has reached its memory limit.

        The first alone says little: a machine without memory also ends processes of groups within their limits.
        """
        counts = dict.fromkeys(["oom_kill", "oom", "failcnt"], 0)
        for file in (folder / name for folder in self.folders for name in EVENTS):
            for line in file.read_text().splitlines() if file.exists() else ():
                name, number = line.split() if " " in line else ("failcnt", line)
                counts[name] = int(number)
        return counts["oom_kill"], counts["oom"] + counts["failcnt"]

    def enter(self):
        """Put this process into the group, and make it the preferred victim when memory runs out."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                (folder / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500")

    def remove(self):
        """Remove the group as soon as its processes have gone."""
        remove(self.folders)


def remove(folders: Iterable[Path]) -> None:
    """Remove control groups as soon as their processes have gone."""
    for folder in folders:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.02)


def ended_for_its_own(before, after):
    """Return whether a process was ended for its group's memory between two counts of `Group.kills`."""
    return all(now > then for then, now in zip(before, after, strict=True))


def is_running(pid):
    """Return whether a process with this number exists."""
    return Path("/proc", pid).exists()


class Supervisor:
    """Watch all processes that a server starts, and end them when they exceed the limits.

    Parameters
    ----------
    pid : int
        The server. Its present descendants are left alone.
    limits : Limits
    """

    def __init__(self, pid: int, limits: Limits):
        self.pid, self.limits, self.own, self.looks = pid, limits, {pid, *below(pid)}, 0

    def look(self) -> str | None:
        """End the processes of the submission if they exceed a limit or cannot be counted; return why, or None."""
        started = [pid for pid in below(self.pid) if pid not in self.own]
        for pid in set(started).difference(*map(children, self.own)):
            # A machine without memory ends these first, not the servers or other submissions
            with contextlib.suppress(OSError):
                if descends(pid, self.pid):
                    Path("/proc", str(pid), "oom_score_adj").write_text("1000")
        found, reason = [], None
        counting = threading.Thread(target=lambda: found.append(self.too_much(started)), daemon=True)
        if len(started) > self.limits.processes:
            reason = f"more than {self.limits.processes:g} processes"
        else:
            counting.start()
            counting.join(COUNT_SECONDS)
            reason = (list(found) or [UNCOUNTED])[0]  # copied, since the thread may go on
        self.looks += 1
        if reason:
            send(started, self.pid, signal.SIGKILL)
        if counting.is_alive():
            counting.join(COUNT_SECONDS)  # nothing keeps it waiting any more
        return reason

    def too_much(self, started):
        """Return why processes exceed the limit of memory together, or None."""
        most, reason = self.limits.memory_bytes, f"more than {self.limits.memory:g} GB of memory"
        # The first sum counts shared memory in each process; the second counts it once but takes longer
        held, shares = [*map(resident, started)], []
        if exceeds(held, most):
            for pid in started:
                shares.append(proportional(pid))
                if sum(shares) > most:
                    return reason
            # A process that has ended meanwhile may have handed its memory to a child
            if exceeds([share or whole for share, whole in zip(shares, held, strict=True)], most):
                with self.stopped() as stopped:
                    if stopped is None:
                        return UNCOUNTED
                    if exceeds(map(proportional, stopped), most):
                        return reason
        # Counting mappings takes long, and processes that come and go are missed meanwhile
        return reason if self.looks % 8 == 0 and exceeds(map(mappings, started), most / MAPPING_BYTES) else None

    @contextlib.contextmanager
    def stopped(self):
        """Stop the processes of the submission, and give their numbers; None if they do not stay stopped.

        One that ends while others are counted could hand its memory to a child.
        """
        stopped = set()
        try:
            for _ in range(STOPS):
                awake = {pid for pid in stopped if not is_at_rest(pid)}  # before the list: they can still start others
                others = {*below(self.pid)} - self.own - stopped
                if not awake | others:
                    break
                send(awake | others, self.pid, signal.SIGSTOP)
                stopped |= others
                time.sleep(0.001)
            yield None if awake | others else stopped
        finally:
            send(stopped, self.pid, signal.SIGCONT)


def exceeds(amounts: Iterable[float], most: float) -> bool:
    """Return whether the sum of amounts exceeds a limit, without those that are not needed to know it."""
    return any(total > most for total in itertools.accumulate(amounts))


def send(pids: Iterable[int], ancestor: int, number: signal.Signals) -> None:
    """Send a signal to the processes that descend from another one, and to none that took over the number of one."""
    found = []
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        except OSError:  # the kernel or a container has no such handles, or there are too many
            handle = None
        # Ask only now, since the handle may be that of a process that took over the number, and before any gets the
        # signal: of one that it ends, the children would no longer descend from the other one
        if descends(pid, ancestor):
            found.append((pid, handle))
        elif handle is not None:
            os.close(handle)
    for pid, handle in found:
        with contextlib.suppress(OSError):
            if handle is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    for _, handle in found:
        if handle is not None:
            os.close(handle)


def descends(pid: int, ancestor: int) -> bool:
    """Return whether a process was started by another one or by a descendant of it."""
    while pid > 1:
        try:
            pid = int(stat(Path("/proc", str(pid)))[1])
        except OSError:
            return False
        if pid == ancestor:
            return True
    return False


def below(pid: int) -> list[int]:
    """Return the numbers of all processes that a process and its descendants have started."""
    found, waiting = [], [pid]
    while waiting:
        started = children(waiting.pop())
        waiting += started
        found += started
    return found


def children(pid: int) -> list[int]:
    """Return the numbers of the processes that a process has started."""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path("/proc", str(pid), "task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(word) for word in thread.read_text().split()]
    return found


def stat(folder):
    """Return the words on a process or a thread that follow its name, which stands in brackets and may be any bytes."""
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()


def is_at_rest(pid):
    """Return whether all threads of a process are stopped, or have ended, or wait for what is stopped or slow."""
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            if stat(thread)[0] not in (b"T", b"t", b"Z", b"X", b"D"):
                return False
    return True


def resident(pid):
    """Return the bytes of memory that a process uses, shared memory included."""
    return max((kilobytes(thread / "status", RESIDENT) for thread in threads(pid)), default=0) * 1024


def proportional(pid):
    """Return the bytes of memory that a process uses, with its share of shared memory."""
    # A process whose files cannot be read counts in full
    folder = Path("/proc", str(pid))
    mapped = kilobytes(folder / "smaps_rollup", (b"Pss:", b"SwapPss:"))
    if not mapped:
        return resident(pid)
    return (mapped + kilobytes(folder / "status", TABLES)) * 1024


def mappings(pid):
    """Return the number of mappings of a process; 0 if it has ended or cannot be read."""
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            if text := (thread / "maps").read_bytes():
                return text.count(b"\n")
    return 0


def threads(pid):
    """Return the folders of the threads of a process.

    All have the same memory, but a thread that has ended shows none, even the first, whose files are those of the
    process.
    """
    with contextlib.suppress(OSError):
        return list(Path("/proc", str(pid), "task").iterdir())
    return []


def kilobytes(file, names):
    """Return the sum of these lines in a file on a process; 0 if it has ended."""
    try:
        # Skip the first line: it may be the name that a process chose, of any bytes
        lines = [line.split() for line in file.read_bytes().split(b"\n")[1:]]
    except OSError:
        return 0
    return sum(int(words[1]) for words in lines if words and words[0] in names)
