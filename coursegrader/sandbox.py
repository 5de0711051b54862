"""The sandbox of one process: namespaces, an empty file system to write to, no privileges, limits, few system calls.

Two servers run inside bubblewrap and fork a process for each submission: `coursegrader.student_runner` for students'
code, `coursegrader.test_runner` for the tests. Each of these processes enters its own sandbox before it reads a
submission.
"""

import contextlib
import ctypes
import itertools
import os
import random
import resource
import select
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Callable, Iterator

from coursegrader import seccomp
from coursegrader.protocol import Limits

SCRATCH = "/scratch"
SCRATCH_BYTES = 64 * 2**20
FILES = 64
MOST_DESCRIPTORS = 65536
KILLED, FAILED = 3, 4  # exit codes
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
USERS = range(2**30, 2**31)  # user IDs that no machine has assigned

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x08000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_THP_DISABLE = 1, 24, 38, 41
LINUX_CAPABILITY_VERSION_3 = 0x20080522
KEYCTL_JOIN_SESSION_KEYRING = 1

libc = ctypes.CDLL(None, use_errno=True)


class Profile:
    """The settings of a sandbox, prepared once by the server that forks.

    Parameters
    ----------
    writable : bool
        Whether the process may write to its empty folders, and start other processes.
    limits : Limits
        Applied to each process; `coursegrader.limits` holds the sums.
    """

    def __init__(self, writable: bool, limits: Limits):
        self.writable, self.limits = writable, limits
        self.filter, self.keyctl = seccomp.program(), seccomp.number_of("keyctl")


def requests(control: socket.socket, count: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the requests on `control` until it is closed: the number of a core, and `count` file descriptors."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 2, count)
        if not message:
            return
        yield int.from_bytes(message), descriptors


def stay_on(core: int) -> None:
    """Restrict this process and its children to one core. Nothing in a sandbox can change that."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})


def run_sandboxed(
    work: Callable[..., None], descriptors: list[int], files: dict[int, str], profile: Profile | None
) -> None:
    """Do the work for one submission in a sandbox of its own; never return.

    The sandbox ends with the work, or when the other end of the first descriptor, a socket, is closed. Every process in
    it is then killed. The exit code of this process is 0, `KILLED` if the work was killed from outside, or `FAILED` if
    the sandbox could not be made.

    Parameters
    ----------
    work : callable
        Takes the descriptors.
    descriptors : list of int
        The descriptors that the work needs. All other open files are closed.
    files : dict
        The `ordinary_files` that libraries have opened.
    profile : Profile or None
        None runs the work with all rights of this user.
    """
    try:
        keep_only(descriptors, files)
        if profile is not None:
            check(libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            if profile is not None:
                enter(profile)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if profile is not None:
                seccomp.load(profile.filter)
            os.write(writer, b"closed")
            os.close(writer)
            work(*descriptors)
            os._exit(0)
        os.close(writer)
        if not os.read(reader, 6):
            _, status = os.waitpid(child, 0)
            os._exit(KILLED if os.WIFSIGNALED(status) else FAILED)
        over, ends = os.pidfd_open(child), select.poll()
        ends.register(over, select.POLLIN)
        ends.register(descriptors[0], select.POLLRDHUP)
        ended = over in dict(ends.poll())
        # It is the first process of its namespace, so all its descendants end with it
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        # For the same reason, no process inside can kill it
        os._exit(KILLED if ended and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(FAILED)


def outcome(child: int) -> bytes:
    """Wait for a process that runs `run_sandboxed`, and return the message to the server."""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return b"over!" if code == 0 else b"fail!" if code == FAILED else b"kill!"


def ordinary_files() -> dict[int, str]:
    """Map the descriptors of open ordinary files to their paths: libraries keep fonts and tables open.

    There is no ``/proc`` to read them from, so the folders of Python and its packages are searched.
    """
    wanted = {}
    for descriptor in range(3, MOST_DESCRIPTORS):
        with contextlib.suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                wanted.setdefault((status.st_dev, status.st_ino), []).append(descriptor)
    found = {}
    for folder, _, names in itertools.chain.from_iterable(
        map(os.walk, {sys.prefix, sys.base_prefix} if wanted else ())
    ):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                found |= dict.fromkeys(wanted.pop((status.st_dev, status.st_ino), []), path)
        if not wanted:
            break
    return found


def keep_only(descriptors, files):
    """Close all files but the standard ones and these descriptors, and reopen the ordinary files of libraries.

    All submissions share the position and the locks of a file that was opened before the fork.
    """
    kept = sorted({*range(3), *descriptors, *files})
    for before, after in itertools.pairwise([*kept, MOST_DESCRIPTORS]):
        os.closerange(before + 1, after)
    for descriptor, path in files.items():
        anew = os.open(path, os.O_RDONLY)
        if anew != descriptor:  # Matplotlib closes fonts in a process that was forked
            os.dup2(anew, descriptor, inheritable=False)
            os.close(anew)


def enter(profile):
    """Give this process empty folders and limits, and drop its privileges and keys."""
    mount("none", "/", None, MS_REC | MS_PRIVATE, "")
    # A process with a changed root cannot make user namespaces, so it cannot gain privileges
    mount("/", SCRATCH, None, MS_BIND | MS_REC, "")
    os.chroot(SCRATCH)
    # Their owner, who may be this user, could store data in the dates and modes of the terminals
    mount("tmpfs", "/dev/pts", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,mode=755")
    # Shared mappings of /dev/zero count for no process
    mount("/dev/null", "/dev/zero", None, MS_BIND, "")
    # The devices are the machine's own: mounted read-only, their dates cannot store data
    for device in DEVICES:
        mount(None, f"/dev/{device}", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, "")
    flags = MS_NOSUID | MS_NODEV | (0 if profile.writable else MS_RDONLY)
    for folder in (SCRATCH, "/dev/shm", "/config"):
        mount("tmpfs", folder, "tmpfs", flags, f"size={SCRATCH_BYTES},nr_inodes=10000,mode=1777")
    os.chdir(SCRATCH)
    os.setsid()
    libc.syscall(profile.keyctl, KEYCTL_JOIN_SESSION_KEYRING, None)
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if os.getuid() == 0:
        # Take a separate user: the kernel counts processes and keeps keys for each user
        user = random.SystemRandom().choice(USERS)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    # A part of a huge page counts as 4 kB but occupies 2 MB
    prctl(PR_SET_THP_DISABLE, 1)
    for limit, value in [
        (resource.RLIMIT_AS, profile.limits.memory_bytes),
        (resource.RLIMIT_NPROC, int(profile.limits.processes / 2) if profile.writable else 0),
        (resource.RLIMIT_CPU, int(profile.limits.total) + 1),
        (resource.RLIMIT_FSIZE, SCRATCH_BYTES if profile.writable else 0),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 64),
        # core(5): with 0, the kernel would still start a program that takes crashes
        (resource.RLIMIT_CORE, 1),
    ]:
        resource.setrlimit(limit, (value, value))


def silence():
    """Redirect the standard files to the null device."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def mount(source, target, kind, flags, options):
    """Call mount(2), or raise the OSError that it reports."""
    check(libc.mount(*(text and text.encode() for text in (source, target, kind)), flags, options.encode()))


def prctl(option, value):
    """Call prctl(2), or raise the OSError that it reports."""
    check(libc.prctl(option, value, 0, 0, 0))


def check(result):
    """Raise the error of a C function that did not return 0."""
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
