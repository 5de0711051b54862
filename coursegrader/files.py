"""Read students' files, which may be anything, and write the files of the course whole or not at all."""

import contextlib
import errno
import importlib.util
import os
import signal
import stat
import threading
import traceback
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from coursegrader import GradingError
from mlcourse.student.notebooks import write

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither
MAKE_ROOM = "make room on the disk, then run the same command again: what was done is kept"


class CannotWrite(GradingError):
    """A file of the course cannot be written, which concerns all students."""


def kind_of(path: Path, dir_fd: int | None = None) -> str:
    """Describe what a path is, without following it; empty for an ordinary file."""
    mode = os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode
    if stat.S_ISREG(mode):
        return ""
    return "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a special file"


def open_ordinary(path: Path, owner: int | None = None, dir_fd: int | None = None) -> BinaryIO:
    """Open an ordinary file for reading; a relative path is one in the folder of the descriptor, if there is one.

    Raises
    ------
    OSError
        If it is something else, such as a link or a pipe. It is not followed, nor waited for. Also if it belongs to
        another user than `owner`.
    """
    # Opening a device can have effects, so check before; check again after, since the path may have changed meanwhile
    if not kind_of(path, dir_fd):
        file = os.fdopen(os.open(path, os.O_RDONLY | NOT_FOLLOWED, dir_fd=dir_fd), "rb")
        state = os.fstat(file.fileno())
        if stat.S_ISREG(state.st_mode) and owner in (None, state.st_uid):
            return file
        file.close()
        if stat.S_ISREG(state.st_mode):
            raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
    raise OSError(errno.EINVAL, "not an ordinary file", str(path))


def open_below(folder: Path, path: Path) -> BinaryIO:
    """Open an ordinary file at a path below a folder for reading.

    Raises
    ------
    OSError
        If it is something else, or if a folder between is a link: a student who may write there may have put it there
        since the folder was listed.
    """
    if os.open not in os.supports_dir_fd:  # Windows
        return open_ordinary(folder / path)
    with contextlib.ExitStack() as opened:
        above = None
        for part in (folder, *path.parent.parts):
            followed = 0 if above is None else os.O_NOFOLLOW
            above = os.open(part, os.O_RDONLY | os.O_DIRECTORY | followed, dir_fd=above)
            opened.callback(os.close, above)
        return open_ordinary(Path(path.name), dir_fd=above)


def read_ordinary(path: Path, most: int) -> bytes | None:
    """Return the content of an ordinary file; None, without reading it, if it is larger than `most` bytes."""
    with open_ordinary(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            return None
        content = file.read(most + 1)  # it may grow while it is read
    return content if len(content) <= most else None


def write_whole(path: Path, content: str | bytes, encoding: str = "utf-8", errors: str = "strict") -> None:
    """Write a file as a whole, bytes or encoded text: on any error it stays as it was.

    Raises
    ------
    CannotWrite
        If there is no room for it.
    """
    path = Path(os.path.realpath(path))
    content = content.encode(encoding, errors) if isinstance(content, str) else content
    with told_of_room(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # such as /dev/stdout, which nothing may replace
            path.write_bytes(content)
            return
        write(path, content)


def to_disk(path: Path) -> None:
    """Wait until the content of a file is on the disk: its name may be there before, and a power cut between."""
    with path.open("rb+") as file:  # Windows refuses it for a file that is only read
        os.fsync(file.fileno())


@contextlib.contextmanager
def told_of_room(path: Path) -> Iterator[None]:
    """Raise `CannotWrite` if there is no room to write `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise CannotWrite(f"{path} cannot be written ({error.strerror}): {MAKE_ROOM}") from None


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: what stops in a change would leave half of it."""
    before, pressed = signal.getsignal(signal.SIGINT), []
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def one_at_a_time(root: Path) -> Iterator[None]:
    """Let one process at a time grade, collect or release in the course folder `root`; the lock ends with the process.

    The block may be nested. There is no lock without `fcntl`, on Windows, where nothing is graded.

    Raises
    ------
    GradingError
        If another one does.
    """
    if importlib.util.find_spec("fcntl") is None or root in HELD:
        yield
        return
    import fcntl

    path = root / "_build" / "grading.lock"
    with told_of_room(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GradingError(
                f"another command is running in {root}: wait until it is done, then run the same command again"
            ) from None
        HELD.add(root)
        try:
            yield
        finally:
            HELD.remove(root)


HELD = set()


def unexpected(error: Exception, what: str, root: Path) -> str:
    """Log an unexpected error, and return a clause that says where."""
    told = f"unexpected {type(error).__name__} ({' '.join(str(error).split())[:200]})"
    told = told.encode("utf-8", "backslashreplace").decode()
    return f"{told}; {written_down(''.join(traceback.format_exception(error)), what, root)}"


def written_down(text: str, what: str, root: Path) -> str:
    """Add a text to the log of the course, and return a clause that says where it is."""
    path = root / "_build" / "grading.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
            print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {what}", text, sep="\n", file=log)
    except OSError as error:
        return f"{path.relative_to(root)} cannot be written ({error.strerror})"
    return f"{path.relative_to(root)} says more"
