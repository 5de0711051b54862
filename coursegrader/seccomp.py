"""The filter of system calls for code in the sandbox, made by libseccomp from a list of those allowed.

All other calls are refused with EPERM, also those of future kernels: rings of requests, handlers of page faults, keys,
tracing, namespaces, mounts, programs in the kernel, notifications, memory without a file, shared memory of System V,
sockets but the two ends of a pair. The list in `system_calls.txt` holds what Python, NumPy, pandas, Matplotlib and
scikit-learn use, with threads, child processes and pipes.

The C library libseccomp makes the filter once (seccomp_export_bpf(3)), and each process loads it for itself.
"""

import ctypes
import errno
import os
import socket
from pathlib import Path

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
EQUAL, MASKED_EQUAL = 4, 7
NEW_NAMESPACES = 0x7E020000 | 0x80  # the bits CLONE_NEWNS, ..., CLONE_NEWNET and CLONE_NEWTIME of clone(2)
CLONE_VM, CLONE_PARENT, CLONE_THREAD = 0x100, 0x8000, 0x10000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2

LIST = Path(__file__).with_name("system_calls.txt")
# Duplicate a descriptor, read and set its flags: no lock, lease or notification, no larger pipe
FCNTL_COMMANDS = [0, 1, 2, 3, 4, 1030, 1032]
# FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, and the request that detects a terminal
IOCTL_REQUESTS = [0x541B, 0x5421, 0x5451, 0x5450, 0x5401]

# Options of sockets, level SOL_SOCKET: type, error, sizes of the buffers, whether it listens, protocol, family. Not
# the cookie, a counter that all submissions share, and not the process at the other end
SOCKET_OPTIONS = [3, 4, 7, 8, 30, 38, 39]
# PR_SET_NAME and PR_GET_NAME; a process that is to end with its parent cannot change that
PRCTL_OPTIONS = [15, 16]
# Anonymous memory must be private: shared memory counts for no process that has released it. Reserved huge pages are
# counted nowhere
MAP_PRIVATE, MAP_TYPE, MAP_ANONYMOUS, MAP_HUGETLB = 0x02, 0x0F, 0x20, 0x40000

libc = ctypes.CDLL(None, use_errno=True)


class Comparison(ctypes.Structure):
    """A condition on an argument of a system call: ``struct scmp_arg_cmp``."""

    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


def library() -> ctypes.CDLL:
    """Return libseccomp. Raises OSError if it is not there."""
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    seccomp.seccomp_init.argtypes = [ctypes.c_uint32]
    seccomp.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(Comparison),
    ]
    seccomp.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    seccomp.seccomp_release.argtypes = [ctypes.c_void_p]
    seccomp.seccomp_release.restype = None
    return seccomp


def number_of(call: str) -> int:
    """Return the number of a system call on this machine; -1 if it has none."""
    return library().seccomp_syscall_resolve_name(call.encode())


def allowed() -> list[str]:
    """Return the names of the system calls that are allowed whatever their arguments."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [name for line in lines if not line.startswith("#") for name in line.split()]


def program() -> bytes:
    """Return the filter as a program for the kernel.

    Raises
    ------
    OSError
        If libseccomp is not installed, or refuses a rule.
    """
    seccomp = library()
    rules = seccomp.seccomp_init(ERRNO | errno.EPERM)

    def rule(action, call, *conditions):
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # not on this kind of machine
            return
        array = (Comparison * max(1, len(conditions)))(*conditions)
        refused = seccomp.seccomp_rule_add_array(rules, action, number, len(conditions), array)
        if refused:
            raise OSError(-refused, f"libseccomp refuses a rule for {call}")

    try:
        for call in allowed():
            rule(ALLOW, call)
        # A filter cannot see the arguments of clone3; on ENOSYS the C library falls back to clone
        rule(ERRNO | errno.ENOSYS, "clone3")
        # A process that shares its memory with its parent can take it over when the parent ends, faster than a
        # supervisor can count. Allow only threads to share memory; Python falls back to fork.
        never = NEW_NAMESPACES | CLONE_PARENT
        for flags in (0, CLONE_VM | CLONE_THREAD):
            rule(ALLOW, "clone", Comparison(0, MASKED_EQUAL, never | CLONE_VM | CLONE_THREAD, flags))
        rule(ALLOW, "socketpair", Comparison(0, EQUAL, socket.AF_UNIX))
        # To the other end of a pair, since a message with an address may reach a socket in a folder that is shown
        rule(ALLOW, "sendto", Comparison(3, MASKED_EQUAL, socket.MSG_OOB, 0), Comparison(4, EQUAL, 0))
        for command in FCNTL_COMMANDS:
            rule(ALLOW, "fcntl", Comparison(1, EQUAL, command))
        for request in IOCTL_REQUESTS:
            rule(ALLOW, "ioctl", Comparison(1, EQUAL, request))
        for option in SOCKET_OPTIONS:
            rule(ALLOW, "getsockopt", Comparison(1, EQUAL, socket.SOL_SOCKET), Comparison(2, EQUAL, option))
        for option in PRCTL_OPTIONS:
            rule(ALLOW, "prctl", Comparison(0, EQUAL, option))
        for flags, allowed_flags in ((MAP_ANONYMOUS, 0), (MAP_ANONYMOUS | MAP_TYPE, MAP_ANONYMOUS | MAP_PRIVATE)):
            rule(ALLOW, "mmap", Comparison(3, MASKED_EQUAL, flags | MAP_HUGETLB, allowed_flags))
        reader, writer = os.pipe()
        try:
            # A few kilobytes, which a pipe holds
            if refused := seccomp.seccomp_export_bpf(rules, writer):
                raise OSError(-refused, "libseccomp cannot write its filter")
        finally:
            os.close(writer)
            with os.fdopen(reader, "rb") as file:
                text = file.read()
        return text
    finally:
        seccomp.seccomp_release(rules)


def load(text: bytes) -> None:
    """Apply a filter to this process and its children permanently. Raises OSError if the kernel refuses it."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    whole = Program(len(text) // 8, text)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel refuses the filter of system calls: {os.strerror(number)}")
