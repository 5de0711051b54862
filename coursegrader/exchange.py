"""Collect from nbgrader's exchange, where students write the folders that the instructor reads, and release feedback.

nbgrader follows links in these folders with the instructor's rights, takes a folder in anybody's name and the time that
the student wrote into it, and stops for the whole class at one with an odd name, or at one in which its own files are
missing. `Collect` and `ReleaseFeedback` replace its steps in ``nbgrader_config.py``, for the commands of nbgrader and
for the buttons of the formgrader.
"""

import functools
import glob
import heapq
import itertools
import os
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.exchange.default import ExchangeCollect, ExchangeReleaseFeedback
from nbgrader.utils import notebook_hash

from coursegrader import GradingError
from coursegrader.collect import (
    REFUSED,
    Collected,
    collect_folder,
    date_of,
    first_of,
    keep_refusals,
    no_identifiers,
)
from coursegrader.files import write_whole
from coursegrader.people import Person
from coursegrader.roster import FILE, read_roster
from coursegrader.submissions import SECRET, is_text, read_secret, shown

MAX_ENTRIES = 1000  # of a folder that a student hands in
MEANWHILE = 60  # seconds that a Collect may take
MAX_FOLDER_BYTES = 2**20  # ext4 takes minutes to list a folder that once had millions of files, although it is empty
MAX_FOLDERS = 100  # of a user that are looked into
MOST_FOLDERS = 5  # of a student that are tried
FUSE = Path("/dev/fuse")
MOUNTS = Path("/proc/self/mountinfo")
# XFS exchanges the contents of two files of a user with their times; in memory, only the first write to a mapped file
# has a time
WITHOUT_TIMES = ("xfs", "tmpfs")
MOST_NAMES = 10  # of one student's notebooks, under which the feedback is released


class Collect(ExchangeCollect):
    """Collect as nbgrader does, but take the files in the way of `coursegrader.collect`."""

    def init_src(self):
        if not self.coursedir.course_id:
            self.fail("No course id specified: set c.CourseDirectory.course_id in nbgrader_config.py")
        self.inbound = inbound_of(self)

    def copy_files(self):
        lab, root = self.coursedir.assignment_id, Path(self.coursedir.root)
        folders, notes = latest(self.inbound, lab)
        if fuse_is_open():
            notes.append(
                f"Every user of this machine may open {FUSE}, and with it change a submission without a new time: see "
                "the page On a JupyterHub, and collect right after the deadline."
            )
        if (kind := file_system_of(self.inbound)) in WITHOUT_TIMES:
            notes.append(
                f"The exchange lies on {kind}, where a student can change a submission without a new time: see "
                "the page On a JupyterHub, and collect right after the deadline."
            )
        people, alike, collected = people_of(self), no_identifiers(folders), []
        for student, paths in folders.items():
            if student in alike:
                notes.append(f"Left out {shown(paths[0].name if paths else student)}: {alike[student]}.")
            elif self.coursedir.student_id in ("*", student):
                try:
                    collected += collect_latest(lab, student, paths, root, people)
                except LeftOut as error:
                    notes.append(str(error))
                except GradingError as error:
                    self.fail(str(error))
        keep_refusals(collected, lab, root)
        for one in collected:
            if one.path and read_secret(one.path.parent) is None:
                (one.path.parent / SECRET).write_text(secrets.token_hex(64), encoding="ascii")
                one.notes.append("Handed in without nbgrader, so the feedback cannot be fetched with it.")
        for note in notes:
            self.log.warning(note)
        tell(self, collected)


def people_of(step) -> list[Person]:
    """Return the people on the roster, if there is one, for a step of nbgrader."""
    root = Path(step.coursedir.root)
    if not (root / FILE).exists():
        return []
    with Gradebook(step.coursedir.db_url, step.coursedir.course_id) as gradebook:
        return read_roster(gradebook, root)


def tell(step, collected: list[Collected]) -> None:
    """Write to the log of a step of nbgrader what is odd, and how many submissions were collected."""
    for one in collected:
        for note in one.notes:
            step.log.warning(f"{shown(one.student)}: {note}")
    taken, where = sum(one.path is not None for one in collected), Path(step.coursedir.root) / "submitted"
    step.log.info(f"Collected {taken} of {len(collected)} submissions of {step.coursedir.assignment_id} in {where}")


def collect_latest(lab, student, paths, root, people):
    """Collect the first of a student's folders in which there is something to collect."""
    if not paths:
        reason = f"there are more than {MAX_ENTRIES} files beside the notebook."
        return [Collected(student, None, [f"Not collected: {reason}"], reason)]
    collected, before = [], last_collected(lab, student, root)
    for path in paths[:MOST_FOLDERS]:
        with opened(path, student) as folder:
            time_of = functools.partial(last_change, folder)
            collected.append(collect_folder(lab, student, folder, entries(folder), time_of, root, people))
        if collected[-1].path:
            if collected[1:]:
                collected[-1].notes.append("What was handed in last cannot be collected; this is what came before it.")
            is_new = last_collected(lab, student, root) > before
            if is_new and date_of(collected[-1].path.parent) < before - MEANWHILE:
                collected[-1].notes.append(
                    "By its time it was there when you collected before, but it could not be taken then: a program of "
                    "the student may have held it shut, and changed it since."
                )
            return collected[-1:]
    return collected[:1]


def last_collected(lab: str, student: str, root: Path) -> float:
    """Return when a submission of a student was collected, or could not be, in seconds since 1970; 0 if never."""
    place = root / "submitted" / student / lab
    paths = [path for path in (place, place.with_name(f"{lab}{REFUSED}")) if path.exists()]
    return max((path.stat().st_mtime for path in paths), default=0.0)


class ReleaseFeedback(ExchangeReleaseFeedback):
    """Release feedback as nbgrader does: each page under a name that follows from what its student handed in.

    The student's nbgrader asks for the names of the notebooks in the student's own folder, and a student of whom
    nothing could be collected asks, too.
    """

    def copy_files(self):
        lab, released = self.coursedir.assignment_id, 0
        known = names(inbound_of(self), lab)
        excluded = self.coursedir.student_id_exclude.split(",")
        for page in map(Path, sorted(glob.glob(os.path.join(self.src_path, "*.html")))):
            student = page.parent.parent.name
            if student in excluded:
                continue
            submitted = known.get(student, {})
            secret = read_secret(page.parent) or next(reversed(submitted), None)
            if secret is None:
                self.log.warning(f"{shown(student)}: not released, since nothing of theirs is in the exchange.")
                continue
            if submitted.get(secret) == []:
                self.log.warning(f"{shown(student)}: handed in no notebook, so the feedback cannot be fetched.")
            for name in {page.stem, *submitted.get(secret, [])}:
                target = Path(self.dest_path, f"{notebook_hash(secret=secret, notebook_id=name)}.html")
                write_whole(target, page.read_bytes())
                target.chmod(0o644)  # for the student, who knows its name
            released += 1
        self.log.info(f"Released the feedback of {released} students on {lab}")


def inbound_of(step) -> Path:
    """Return the folder to which students hand in, for a step of nbgrader, which fails if it cannot be read."""
    inbound = Path(step.root, step.coursedir.course_id, "inbound")
    if not os.access(inbound, os.R_OK | os.X_OK):
        step.fail(f"{inbound} cannot be read: release a lab first, as the user who owns the course")
    return inbound


class LeftOut(Exception):
    """A folder that is not collected; the message says why."""


def latest(inbound: Path, lab: str) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the folders that each student handed in, and notes on those that cannot be taken.

    Parameters
    ----------
    inbound : pathlib.Path
        With a folder ``STUDENT+LAB+DATE+RANDOM`` for each submission.
    lab : str

    Returns
    -------
    folders : dict of str to list of pathlib.Path
        By student, the latest first; none of those that hold too many files, of which a student may have no others.
    notes : list of str
        A few for the folders of one user, and how many more there are.
    """
    found, notes = {}, {}
    for student, path, owner in of_lab(inbound, lab, notes):
        try:
            with opened(path, student) as folder:
                try:
                    time_of = changed(folder)
                except LeftOut:
                    found.setdefault(student, [])
                    raise
                found.setdefault(student, []).append((time_of, path))
        except LeftOut as error:
            notes.setdefault(owner, []).append(str(error))
    folders = {student: [path for _, path in sorted(some, reverse=True)] for student, some in found.items()}
    return folders, [note for some in notes.values() for note in first_of(some)]


def names(inbound: Path, lab: str) -> dict[str, dict[str, list[str]]]:
    """Return the names of the notebooks that each student handed in, by student and secret, the latest last."""
    found = {}
    for student, path, _ in of_lab(inbound, lab, {}):
        with suppress(LeftOut), opened(path, student) as folder:
            try:
                stems = [Path(name).stem for name in entries(folder) if name.endswith(".ipynb") and is_text(name)]
                time_of = changed(folder)
            except LeftOut:  # too many files to look for other names
                stems, time_of = [lab], os.stat(folder).st_ctime
            found.setdefault(student, []).append((time_of, read_secret(folder), sorted(stems)[:MOST_NAMES]))
    for some in found.values():
        some.sort(key=lambda one: one[0])
    return {student: {secret: stems for _, secret, stems in some if secret} for student, some in found.items()}


def of_lab(inbound: Path, lab: str, notes: dict[int | str, list[str]]) -> Iterator[tuple[str, Path, int | str]]:
    """Yield the folders in the exchange that have the name of a submission of a lab: student, path and owner.

    Of each owner, these are the latest `MAX_FOLDERS`; if there are more, `notes` says so.
    """
    latest, counts, mounted, name_once = {}, Counter(), mounted_in(inbound), functools.cache(name_of)
    with os.scandir(inbound) as entries:  # a student can make any number of them
        for entry in entries:
            student, *rest = entry.name.split("+")
            if len(rest) < 2 or rest[0] != lab:
                continue
            if entry.name in mounted:
                notes.setdefault(student, []).append(
                    f"Left out {shown(entry.name)}: a file system is mounted in it, and whoever serves it need not "
                    "answer."
                )
                continue
            try:
                state = entry.stat(follow_symlinks=False)
                owner, time_of = state.st_uid, state.st_ctime
            except FileNotFoundError:
                continue
            except OSError:  # a file system that a student mounted there may refuse everybody else, root included
                owner, time_of = student, 0.0
            if isinstance(owner, int) and name_once(owner) is None:
                owner = None  # whoever has subordinate numbers can make folders of thousands of these
            counts[owner] += 1
            some = latest.setdefault(owner, [])
            heapq.heappush(some, (time_of, entry.name, student))
            if len(some) > MAX_FOLDERS:
                heapq.heappop(some)
    if some := latest.pop(None, []):
        notes[None] = [f"Left out {counts[None]} folders whose owners are no users of this machine: {names_in(some)}."]
    for owner, some in sorted(latest.items(), key=lambda item: min(name for _, name, _ in item[1])):
        if counts[owner] > MAX_FOLDERS:
            who = shown(owner) if isinstance(owner, str) else name_of(owner)
            notes.setdefault(owner, []).append(
                f"{who} has {counts[owner]} folders in the exchange; the latest {MAX_FOLDERS} are looked into."
            )
        for _, name, student in sorted(some):
            yield student, inbound / name, owner


def mounted_in(inbound: Path) -> set[str]:
    """Return the names of the folders in the exchange in which a file system is mounted."""
    folder = inbound.resolve()
    within = [path.relative_to(folder) for path, _ in mounts() if path.is_relative_to(folder)]
    return {path.parts[0] for path in within if path.parts}


def file_system_of(folder: Path) -> str | None:
    """Return the type of the file system in which a folder lies, such as ext4; None if the machine does not say."""
    folder = folder.resolve()
    around = [
        (len(path.parts), number, kind) for number, (path, kind) in enumerate(mounts()) if folder.is_relative_to(path)
    ]
    return max(around)[2] if around else None  # of two at one place, the later one is seen


def mounts() -> list[tuple[Path, str]]:
    """Return where file systems are mounted, and their types.

    Whoever may mount chooses names of folders. The kernel writes only blanks, tabs, line feeds and backslashes as
    numbers: every other sign is part of a name.
    """
    lines = [line.split(b" ") for line in MOUNTS.read_bytes().split(b"\n") if line] if MOUNTS.exists() else []
    points = [re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), line[4]) for line in lines]
    kinds = [line[line.index(b"-") + 1] for line in lines]
    return [(Path(os.fsdecode(point)), os.fsdecode(kind)) for point, kind in zip(points, kinds, strict=True)]


@contextmanager
def opened(path: Path, student: str) -> Iterator[Path]:
    """Give a path to a student's folder that stays the same folder, even if the student moves a link to its place.

    Raises
    ------
    LeftOut
        If it is no folder that can be read, or not the student's.
    """
    folder = None
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        state = os.fstat(folder)
        if name_of(state.st_uid) != student:
            whose = name_of(state.st_uid) or f"user {state.st_uid}"
            raise LeftOut(f"Left out {shown(path.name)}: it is in the name of {shown(student)}, but of {whose}.")
        if 512 * state.st_blocks > MAX_FOLDER_BYTES:  # some file systems add the files to the size
            raise LeftOut(f"Left out {shown(path.name)}: it has, or had, more than {MAX_ENTRIES} files.")
        yield Path(f"/proc/self/fd/{folder}")
    except OSError as error:
        raise LeftOut(f"Left out {shown(path.name)}: it is no folder that can be read ({error.strerror}).") from None
    finally:
        if folder is not None:
            os.close(folder)


def entries(folder: Path) -> list[str]:
    """Return the names in a folder.

    Raises
    ------
    LeftOut
        If there are more than `MAX_ENTRIES`.
    """
    with os.scandir(folder) as found:
        names = [entry.name for entry in itertools.islice(found, MAX_ENTRIES + 1)]
    if len(names) > MAX_ENTRIES:
        whose = name_of(os.stat(folder).st_uid)
        raise LeftOut(f"Left out a folder of {whose}: it has more than {MAX_ENTRIES} files.")
    return names


def changed(folder: Path) -> float:
    """Return when a folder or a file in it was last changed, in seconds since 1970.

    This is the kernel's time of change (``st_ctime``): whoever owns a file can set its date, but not this one. The
    kernel does not note every change. What a program writes through a mapping of the file has the time of the first
    write, until the kernel stores it, some 30 seconds later. A single write has the time at which it began, and a
    program can make it last for minutes. From a file system that the owner serves through FUSE, the bytes arrive
    whenever the owner likes. XFS exchanges files with their times, and in memory no later write has a time. So the time
    is right of what was collected soon after it.

    Raises
    ------
    LeftOut
        If it has more than `MAX_ENTRIES` files.
    OSError
        If it cannot be read.
    """
    times = [os.stat(folder).st_ctime]
    for name in entries(folder):
        with suppress(FileNotFoundError):  # the student removed it meanwhile
            times.append(os.lstat(folder / name).st_ctime)
    return max(times)


def fuse_is_open() -> bool:
    """Return whether every user of this machine may serve a file system, see `changed`."""
    try:
        return bool(FUSE.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def last_change(folder: Path) -> float:
    """Return when a folder was last changed, or now if the student is changing it so that this cannot be told."""
    try:
        return changed(folder)
    except (LeftOut, OSError):
        return time.time()


def names_in(some: list[tuple]) -> str:
    """Return the first names of a list of folders, as `of_lab` keeps them."""
    names = sorted(shown(name) for _, name, _ in some)
    return ", ".join(names[:MOST_FOLDERS]) + (", ..." if names[MOST_FOLDERS:] else "")


def name_of(user: int) -> str | None:
    """Return the name of a user of this machine, None for a number without a name."""
    import pwd  # Windows has none, and no exchange

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return None
