"""Bring the submissions of a lab from an LMS's zip or a folder to ``submitted/STUDENT/LAB/LAB.ipynb``, for nbgrader.

A zip or a folder may contain

- Moodle's names, ``Ada Lovelace_123456_assignsubmission_file_/lab.ipynb`` or, downloaded without folders,
  ``Ada Lovelace_123456_assignsubmission_file_lab.ipynb``: the student is ``Ada-Lovelace_123456``;
- Canvas's names, ``lovelaceada_12345_678901_lab.ipynb``, also with ``_LATE`` before the numbers and ``-1`` after the
  name of a file that was handed in again: the student is ``lovelaceada_12345``;
- else a folder for each student, ``ada/lab.ipynb``, or a file, ``ada.ipynb`` or ``ada_lab-01-toy-regression.ipynb``:
  the student is ``ada``.

The file that `mlcourse submit` writes, ``HAND-IN-lab-01-toy-regression.ipynb``, may take the place of each notebook.

A folder around all of that, as unpacking a zip makes it, is skipped. It is that of a class if it contains more than one
name and a notebook that is not just named after a lab; otherwise it is the folder of one student.

The number that an LMS adds to a name stays in the student's identifier: it distinguishes students of the same name, and
the export of grades needs it. If the person is on the roster, the identifier is that of the roster instead, see
`coursegrader.people.match`. A zip with the notebook may replace the notebook.

A submission is replaced only by a newer one. The older one, with its graded notebook and feedback, moves to
``replaced/LAB/STUDENT/DATE/``, since nbgrader takes any folder in ``submitted/`` for a student. The ``timestamp.txt``
beside a notebook decides which one is newer, or else the date of the file. In the zip of an LMS, that is the date of
the download, so it is not recorded as the time of handing in: there is a ``timestamp.txt`` only if the student's folder
has one beside the notebook. That Canvas marked a file as late is kept in ``late-in-canvas.txt``, and the name that it
gave to the file, which the way back needs, in ``canvas-file.txt``.
"""

import filecmp
import io
import itertools
import os
import re
import shutil
import stat
import struct
import tempfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from coursegrader import GradingError
from coursegrader.files import (
    MAKE_ROOM,
    NO_ROOM,
    CannotWrite,
    kind_of,
    open_below,
    open_ordinary,
    read_ordinary,
    to_disk,
    unexpected,
    uninterrupted,
    write_whole,
)
from coursegrader.people import NUMBERED, Match, Person, folded, match, names_of
from coursegrader.submissions import (
    MAX_BYTES,
    SECRET,
    check_timestamp,
    choose_notebook,
    instructor_notebook,
    is_possible,
    is_text,
    read_timestamp,
    shown,
)
from mlcourse.student.notebooks import HAND_IN

LATE_IN_CANVAS = "late-in-canvas.txt"
CANVAS_FILE = "canvas-file.txt"
SAYS_LATE = "Canvas says that it was late."
MAX_ENTRIES = 20_000  # of a student
MAX_NOTEBOOKS = 1000  # of a student
MAX_CLASS_ENTRIES = 200_000
MAX_DEPTH = 20  # of nested folders
MAX_DIRECTORY_BYTES = 32 * 2**20  # of the list of files at the end of a zip
MAX_EXTRA_BYTES = 1_000  # of an entry in that list
MAX_STUDENT_BYTES = 5 * MAX_BYTES
MAX_NAME_BYTES = 255  # as in every file system
MAX_IDENTIFIER_BYTES = 120
REFUSED = ".refused.txt"
MOST_NOTES = 5  # of one kind for a student
DIFFERENT = 600  # seconds between two times of handing in that are told
TIMESTAMP = "timestamp.txt"
BESIDE = (TIMESTAMP, SECRET)  # files that are taken with a notebook
# The last of Moodle's marks ends the student's name; students choose their name and that of the file
MARK = "_assignsubmission_"
MOODLE = re.compile(rf"(?P<student>[^/]+){MARK}[a-z]+(?:_?/|_)(?P<file>.+)", re.DOTALL)
_UPLOADED = r"_(?:(?P<upload>\d{1,20})_(?P<file>[^/]+)|(?P<typed>text\.html|link\.html))"
CANVAS = re.compile(r"(?P<name>[^/]+?)(?P<late>_LATE)?(?P<user>_\d{1,20})" + _UPLOADED, re.DOTALL)
CANVAS_END = re.compile(r"(?P<user>_\d{1,20})" + _UPLOADED, re.DOTALL)
CANVAS_ANONYMOUS = re.compile(r"(?P<late>LATE_)?(?P<name>anon)(?P<user>_[^\W_]+)" + _UPLOADED, re.DOTALL)
NAMELESS = "file without a name"
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError, OSError)


@dataclass(frozen=True)
class Collected:
    """The result of collecting one submission.

    Attributes
    ----------
    student : str
        The student's identifier, or the original name if it cannot be one.
    path : pathlib.Path or None
        The student's notebook in ``submitted/``; None if nothing was collected.
    notes : list of str
        Sentences for the instructor: what is unusual about the submission, or why it was not collected.
    refused : str or None
        Why the student's files cannot be graded, in words for the student.
    is_last : bool
        Whether the notebook at `path` is the one that was collected, not a later one from before.
    """

    student: str
    path: Path | None
    notes: list[str] = field(default_factory=list)
    refused: str | None = None
    is_last: bool = False


class _Unusable(Exception):
    """One or all of a student's files cannot be collected; the message says why."""


@dataclass(frozen=True)
class _File:
    """A file in a zip or a folder: its path there, its date, a function that opens it, and its problem, if any."""

    path: str
    date: float
    open: Callable[[], BinaryIO]
    problem: str | None = None


@dataclass(frozen=True)
class _HandedIn:
    """A file of a student: its name among the student's files, and what the LMS says about it."""

    name: str
    file: _File
    version: tuple[int, int] | None = None  # Canvas: the number after the name, and that of the upload
    late: bool = False
    by_lms: bool = False
    note: str | None = None
    by_student: bool = True


@dataclass
class _Budget:
    """How many bytes and files of a student may still be unpacked."""

    left: int = field(default_factory=lambda: MAX_STUDENT_BYTES)
    entries: int = field(default_factory=lambda: MAX_ENTRIES)

    def spend(self, size):
        self.left -= size
        if self.left < 0:
            raise _Unusable("it unpacks to more than a student's work can be")


def collect(
    lab: str,
    files: list[Path],
    root: Path,
    people: Sequence[Person] = (),
    keep: Callable[[dict[str, str]], None] = lambda numbers: None,
) -> list[Collected]:
    """Collect the submissions of a lab.

    A problem with one student does not affect the others. A second run with the same files changes nothing.

    Parameters
    ----------
    lab : str
        Such as ``lab-01-toy-regression``.
    files : list of pathlib.Path
        Zips, folders or single notebooks, taken in this order.
    root : pathlib.Path
        The course folder, with ``source/``.
    people : sequence of Person
        The roster. Without one, nobody is looked for.
    keep : callable
        Called with Moodle's numbers of people of the roster, by student: before anything is collected with those that
        are new, and after it, with those of before, for whose files could not be collected.

    Returns
    -------
    list of Collected
        For each of the `files`, its students by name.

    Raises
    ------
    GradingError
        If there is no such lab, or if one of the `files` is not a zip, a folder or a notebook; nothing is written then.
    """
    source = instructor_notebook(root, lab)
    with ExitStack() as opened:
        labs = {lab, *(path.name for path in (root / "source").iterdir())}
        ids = {one.lms_user_id: names_of(one) | {folded(one.student)} for one in people if one.lms_user_id}
        classes = [_files(path, opened) for path in files]
        names = [PurePosixPath(file.path).name for some in classes for file in some]
        taken = _ids_of_canvas([*names, *_names_of_canvas(lab, root)])
        classes = [_by_student(some, lab, labs, ids, taken) for some in classes]
        return _collect_classes(classes, lab, source, root, people, keep)


def collect_folder(
    lab: str,
    student: str,
    folder: Path,
    names: Sequence[str],
    time: Callable[[], float],
    root: Path,
    people: Sequence[Person] = (),
) -> Collected:
    """Collect a student's submission of a lab from a folder to which the student may write.

    Only files at the top of the folder are taken. A ``timestamp.txt`` there does not count, since the student can write
    any time into it.

    Parameters
    ----------
    lab : str
    student : str
    folder : pathlib.Path
    names : sequence of str
        Of the files in the folder.
    time : callable
        Returns when it was handed in, in seconds since 1970. It is asked once more after the notebook was read, since
        the student may exchange it meanwhile.
    root : pathlib.Path
        The course folder.
    people : sequence of Person
        The roster.

    Returns
    -------
    Collected

    Raises
    ------
    GradingError
        If there is no such lab.
    OSError
        If the folder cannot be read.
    """
    source = instructor_notebook(root, lab)
    names = sorted(name for name in names if name != TIMESTAMP and not _is_ignored(name))
    # A link of the file system may lead to a file of somebody else, which the student cannot read
    owner = folder.stat().st_uid
    paths = [folder / name for name in names if kind_of(folder / name) != "a folder"]
    files = [_file_of_folder(path, path.name, partial(open_ordinary, path, owner)) for path in paths]
    handed_in = [_HandedIn(file.path, file) for file in files]
    stated, now, note = read_timestamp(folder), time(), None
    if stated and abs(stated.timestamp() - now) > DIFFERENT:
        states = _written(stated.timestamp())
        note = f"Its {TIMESTAMP} says {states}, but it was changed on {_written(now)}, which counts."
    elif not stated:
        note = f"Its {TIMESTAMP} says no time, so {_written(now)} counts, when it was changed."

    def stamp():
        return io.BytesIO(f"{datetime.fromtimestamp(time(), UTC):%Y-%m-%d %H:%M:%S.%f} UTC".encode())

    # `_prepared` reads this file after the notebook
    handed_in.append(_HandedIn(TIMESTAMP, _File(TIMESTAMP, now, stamp), note=note, by_student=False))
    one_class = [{student: handed_in}]
    [collected] = _collect_classes(one_class, lab, source, root, people, lambda numbers: None, accounts=True)
    return collected


def _collect_classes(classes, lab, source, root, people, keep, accounts=False):
    """Collect the files of each student in each class."""
    found = _matched(classes, list(people), lab, root)
    names = {student: one.person.student if one.person else student for student, one in found.items()}
    alike = of_one_identifier({names.get(student, student) for students in classes for student in students})
    before = {one.student: one.numbers.get(lab) for one in people}
    numbered = {names[student]: one.number for student, one in found.items() if one.person and one.number}
    numbers = {name: number for name, number in numbered.items() if name not in alike and number != before.get(name)}
    keep(numbers)  # the next run needs them if this one is killed
    collected = []
    try:
        for student, handed_in in ((student, one[student]) for one in classes for student in sorted(one)):
            name, matched = names.get(student, student), found.get(student, Match())
            if name in alike:
                collected.append(Collected(shown(student), None, [f"Not collected: {alike[name]}."]))
                continue
            if matched.person is None and not accounts and _is_taken(name, people):
                notes = [*filter(None, [matched.note]), "Not collected: it has the identifier of another: rename it."]
                collected.append(Collected(shown(student), None, notes))
                continue
            with uninterrupted():
                one = _collect_student(name, handed_in, lab, source, root)
                if one.path:
                    numbers.pop(name, None)
            collected.append(replace(one, notes=[*filter(None, [matched.note]), *one.notes]))
    finally:
        keep({name: before.get(name) for name in numbers})
    return collected


def _is_taken(name, people):
    with suppress(GradingError):
        return identifier(name).casefold() in {one.student.casefold() for one in people}
    return False


def _matched(classes, people, lab, root):
    """Return whose of the roster the files of each student are."""
    if not people:
        return {}
    kinds, identifiers = {}, {}
    for student, handed_in in (item for students in classes for item in students.items()):
        lms = all(one.by_lms for one in handed_in)
        kinds[student] = ("canvas" if all(one.version for one in handed_in) else "moodle") if lms else None
        with suppress(GradingError):
            identifiers[student] = identifier(student)
    return match(kinds, identifiers, people, lab, root)


# Files in a zip or a folder


def _files(path: Path, opened: ExitStack) -> list[_File]:
    """Return the files in a zip, a folder or a notebook."""
    try:
        if path.is_dir():
            found = list(_files_of_folder(path))
        elif path.suffix.lower() == ".ipynb" and path.is_file():
            found = [_File(path.name, path.stat().st_mtime, partial(path.open, "rb"))]
        elif path.exists() and not path.is_file():
            raise _Unusable("it is not a file")
        else:
            found, _ = _files_of_zip(path, opened, MAX_CLASS_ENTRIES)
    except OSError as error:
        raise GradingError(f"{path}: cannot be read: {error.strerror}; look at its permissions") from None
    except _Unusable as error:
        raise GradingError(f"{path}: {error}; give a zip as the LMS made it, a folder, or a notebook") from None
    return found


def _files_of_folder(folder: Path) -> Iterator[_File]:
    """Yield the files of a folder; a folder in it that cannot be read is yielded as a file with a problem.

    Of each student, `MAX_ENTRIES` files and folders are looked at, those that programs keep for themselves last.
    """
    waiting, entries = _last_first(folder.iterdir()), Counter()
    around = _folders_around_a_class(folder)
    while waiting:
        path = waiting.pop()
        name = path.relative_to(folder)
        student = name.parts[: around + 1]
        entries[student] += 1
        if entries[student] > MAX_ENTRIES:
            if entries[student] == MAX_ENTRIES + 1:
                rest, problem = "/".join([*student, "the rest"]), f"there are more than {MAX_ENTRIES} files and folders"
                yield _File(rest, 0.0, partial(open_below, folder, name), problem)
            continue
        try:
            if kind_of(path) == "a folder" and len(name.parts) <= MAX_DEPTH:
                waiting += _last_first(itertools.islice(path.iterdir(), MAX_ENTRIES + 1))
                continue
        except OSError:  # the file says so
            pass
        yield _file_of_folder(path, name.as_posix(), partial(open_below, folder, name))


def _last_first(paths):
    return sorted(paths, key=lambda path: (_is_ignored(path.name), path), reverse=True)


def _folders_around_a_class(folder):
    """Return how many folders, each the only one in the one before, lie between a folder and those of the students."""
    for number in range(MAX_DEPTH):
        inside = list(itertools.islice((path for path in folder.iterdir() if not _is_ignored(path.name)), 2))
        try:
            if len(inside) != 1 or kind_of(inside[0]) != "a folder":
                return number
        except OSError:
            return number
        folder = inside[0]
    return MAX_DEPTH


def _file_of_folder(path, name, open_):
    date = 0.0
    try:
        date, kind = path.lstat().st_mtime, kind_of(path)
        problem = f"it is {kind}, which is not followed" if kind else None
        if kind == "a folder":
            problem = f"it is a folder in more than {MAX_DEPTH} others"
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
    return _File(name, date, open_, problem)


def _files_of_zip(path: Path, opened: ExitStack, most: int) -> tuple[list[_File], int]:
    """Return the files in a zip, and the number of entries in its list, folders included."""
    try:
        file = opened.enter_context(path.open("rb"))
        directory = _Directory(file)
        if directory.entries > most:
            raise _Unusable(f"it holds {directory.entries} files, more than {most}")
        archive = opened.enter_context(zipfile.ZipFile(directory))
    except FileNotFoundError:
        raise _Unusable("there is no such file") from None
    except BROKEN as error:
        raise _Unusable(f"it is not a zip ({error})") from None
    entries = archive.infolist()
    if sum(entry.compress_size for entry in entries) > path.stat().st_size:
        raise _Unusable("its files overlap")
    names = [directory.names.get(number, entry.filename) for number, entry in enumerate(entries)]
    paths = [name.replace("\\", "/") or NAMELESS for name in names]
    files = [
        _File(path, _date(entry), partial(archive.open, entry), _problem(entry, path))
        for entry, path in zip(entries, paths, strict=True)
        if not path.endswith("/")
    ]
    return files, directory.entries


class _Directory:
    """The file of a zip, with a list of files at its end that `zipfile` can read.

    The entries are counted here, since `zipfile` needs much memory for each. It would also stop at a name that is
    marked as UTF-8 but is not: such a mark is removed, and `names` holds these names by their number.
    """

    def __init__(self, file: BinaryIO):
        self.file, self.start, self.list = file, 0, bytearray()
        self.entries, self.names = 0, {}
        # Find the list as `zipfile` does: another way could find another list
        if not (end := zipfile._EndRecData(file)):
            raise zipfile.BadZipFile("File is not a zip file")
        signature, size, place = end[0], end[5], end[9]
        self.start = place - size - (76 if signature == zipfile.stringEndArchive64 else 0)
        if self.start < 0:
            raise zipfile.BadZipFile("Bad offset for central directory")
        if size > MAX_DIRECTORY_BYTES:
            raise _Unusable(f"its list of files is longer than {MAX_DIRECTORY_BYTES // 2**20} MB")
        file.seek(self.start)
        self.list += file.read(size)
        at = 0
        while at + 46 <= len(self.list):
            (flags,) = struct.unpack_from("<H", self.list, at + 8)
            lengths = struct.unpack_from("<3H", self.list, at + 28)
            if lengths[1] > MAX_EXTRA_BYTES:  # `zipfile` needs quadratic time for its fields
                raise _Unusable(
                    f"an entry in its list of files has an extra field of more than {MAX_EXTRA_BYTES:,} bytes"
                )
            if flags & 0x800:
                name = bytes(self.list[at + 46 : at + 46 + lengths[0]])
                try:
                    name.decode("utf-8")
                except UnicodeDecodeError:
                    self.names[self.entries] = name.decode("utf-8", "surrogateescape")
                    struct.pack_into("<H", self.list, at + 8, flags & ~0x800)
            at += 46 + sum(lengths)
            self.entries += 1

    def read(self, size=-1):
        at = self.file.tell()
        data = self.file.read(size)
        first, last = max(at, self.start), min(at + len(data), self.start + len(self.list))
        if first < last:
            data = data[: first - at] + self.list[first - self.start : last - self.start] + data[last - at :]
        return bytes(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def _date(entry):
    """Return the date of an entry in seconds since 1970; a zip has it in local time."""
    try:
        return datetime(*entry.date_time).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _problem(entry, path):
    if path == NAMELESS:
        return "it has no name"
    if _leads_out(path):
        return "its path leads out of the zip"
    if not is_text(path):
        return "its name is not text in UTF-8"
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
        return "it is a link or a special file"
    # With other methods, a few bytes may unpack to more than fits into memory at once
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "it is packed in an unusual way"
    return "it is encrypted" if entry.flag_bits & 1 else None


def _leads_out(path):
    return path.startswith("/") or re.match("[A-Za-z]:", path) or ".." in path.split("/")


def _is_ignored(path):
    """Whether an operating system, not the student, put a file into the folder."""
    parts = [part for part in path.split("/") if part not in (".", "..")]
    return any(
        part.startswith(".") or part in ("__MACOSX", "__pycache__", "Thumbs.db", "desktop.ini") for part in parts
    )


# Students of the files


def _by_student(
    files: list[_File], lab: str, labs: set[str], ids: dict[str, set[str]], taken: set[str]
) -> dict[str, list[_HandedIn]]:
    """Return the files of each student, by the student's name in the zip or the folder."""
    students, hidden = {}, {}
    seen = [file.path for file in files if not _is_ignored(file.path)]
    top = _common_folder(seen or [file.path for file in files], labs)
    paths = [file.path.removeprefix(top) for file in files]
    # Else a name that a student of Canvas chose could be one of Moodle
    in_canvas = any(_readings_of_canvas(path) and not MOODLE.fullmatch(path) for path in paths if not _is_long(path))
    for file, path in zip(files, paths, strict=True):
        student, handed_in = _assigned(file, path, lab, ids, taken, in_canvas)
        if not _is_ignored(handed_in.name if handed_in.by_lms else path):
            students.setdefault(student, []).append(handed_in)
        elif path.lower().endswith((".ipynb", ".zip")) and (handed_in.by_lms or not _is_ignored(student)):
            refused = replace(file, problem="it is a file that a program keeps for itself")
            hidden.setdefault(student, []).append(replace(handed_in, file=refused))
    students = hidden | students
    # Two spellings in one archive are two people; in two archives they may be the same person
    spellings = Counter(unicodedata.normalize("NFC", student) for student in students)
    names = {student: unicodedata.normalize("NFC", student) for student in students}
    return {names[one] if spellings[names[one]] == 1 else one: some for one, some in students.items()}


def _common_folder(paths, labs):
    """Return the folder around a whole class, as unpacking a zip makes it, with its slash, or an empty text.

    Unless all notebooks are named after labs, every name counts as a student. If that is wrong, the work of one student
    is collected in part and the rest is reported. The opposite error would silently lose all but one of a class.
    """
    top = ""
    for _ in range(MAX_DEPTH):
        parts = [path.removeprefix(top).split("/", 2) for path in paths]
        if len({part[0] for part in parts}) != 1 or MARK in parts[0][0] or min(map(len, parts)) < 2:
            return ""
        top += f"{parts[0][0]}/"
        inside = {part[1] for part in parts if len(part) > 2 or part[1].lower().endswith((".ipynb", ".zip"))}
        if any(MARK in name or (not _is_long(name) and CANVAS.fullmatch(name)) for name in inside):
            return top
        if len(inside) > 1:
            named = {part[1] for part in parts if part[-1].lower().endswith((".ipynb", ".zip"))}
            return "" if named and all(_is_of_lab(name, labs) for name in named) else top
        paths = [path for path, part in zip(paths, parts, strict=True) if len(part) > 2]
    return ""


def _is_of_lab(name, labs):
    """Whether a file or a folder is named after a lab only: ``HAND-IN-lab-01-toy-regression (1).ipynb``, ``Lab 1``."""
    if _is_long(name):
        return False
    named = "|".join(map(re.escape, sorted(labs)))
    pattern = rf"((?:{HAND_IN})?({named})|lab[-_ ]?\d)[-_ ()\d]*(copy[-_ ()\d]*)*(\.ipynb|\.zip)?"
    return bool(re.fullmatch(pattern, name, re.IGNORECASE))


def _is_long(name):
    return len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES


def _assigned(file, path, lab, ids, taken, in_canvas):
    """Return the student to whom a file belongs, and the file as that student's.

    `ids` has the names of the roster by ID of Canvas, `taken` the IDs that are beyond doubt those of other files;
    `in_canvas` says that another name is one of Canvas and none of Moodle.
    """
    folder, _, name = path.partition("/")
    if _is_long(folder):  # a pattern could take long on it, and no student has such a name
        return folder, _HandedIn(name or path, file)
    match, readings = MOODLE.fullmatch(path), _readings_of_canvas(path)
    of_canvas = in_canvas or any(one["user"][1:] in ids for _, _, one in readings)
    if match and readings and (of_canvas or not NUMBERED.fullmatch(match["student"])):
        return _left_apart(file, path, lab, "its name is one of Moodle and one of Canvas")
    if match:
        return match["student"], _HandedIn(match["file"], file, by_lms=True)
    if readings:
        note = None
        if len(readings) > 1:
            (name, _, first), *_ = readings
            number, known = first["user"][1:], [one for one in readings if one[2]["user"][1:] in ids]
            # A student chooses what stands behind the first number, and may have put that at the end of a name
            if known != readings[:1] or folded(name) not in ids[number] or number in taken:
                why = "its name has several numbers that may be the student's ID of Canvas"
                return _left_apart(file, path, lab, why)
            note = (
                f"Its name has several numbers; only {number} is an ID of Canvas on the roster: look whose it is if "
                "students may change their names."
            )
        student, late, match = readings[0]
        name = PurePosixPath(match["file"] or match["typed"])
        again = re.fullmatch(r"(.+)-([1-9]\d{0,3})", name.stem)
        version = (int(again[2]) if again else 0, int(match["upload"] or 0))
        name = f"{again[1]}{name.suffix}" if again else str(name)
        return student + match["user"], _HandedIn(name, file, version, late, by_lms=True, note=note)
    if _leads_out(path):
        return path, _HandedIn(path, file)
    if name:
        return folder, _HandedIn(name, file)
    stem, kind = PurePosixPath(path).stem, PurePosixPath(path).suffix
    student = re.sub(rf"(^|[-_ ]+)({HAND_IN})?{re.escape(lab)}.*", "", stem, flags=re.IGNORECASE | re.DOTALL)
    return student, _HandedIn(f"{lab}{kind}" if kind == ".ipynb" else path, file)


def _left_apart(file, path, lab, why):
    """Return the file as that of a student with the file's whole name, who is nobody of the roster."""
    name = PurePosixPath(path)
    return name.stem.replace(MARK, "-"), _HandedIn(
        f"{lab}{name.suffix.lower()}", file, note=f"Left apart: {why}, see whose it is."
    )


def _readings_of_canvas(path):
    """Return each way to read the name of a file as one of Canvas: the student's name, whether it was late, the rest.

    There are several if numbers stand at the end of the student's name or at the beginning of the file's, both of which
    students choose.
    """
    if not CANVAS.fullmatch(path) and not CANVAS_ANONYMOUS.fullmatch(path):
        return []
    ends = [CANVAS_END.fullmatch(path, at) for at, sign in enumerate(path) if at and sign == "_"]
    readings = {one.start(): (path[: one.start()], one) for one in ends if one}
    if anonymous := CANVAS_ANONYMOUS.fullmatch(path):
        readings[anonymous.start("user")] = (path[: anonymous.start("user")], anonymous)
    return [
        (name.removesuffix("_LATE").removeprefix("LATE_"), name.endswith("_LATE") or name == "LATE_anon", one)
        for name, one in readings.values()
    ]


def _names_of_canvas(lab, root):
    """Yield the names in Canvas of what was collected before."""
    for path in (root / "submitted").glob(f"*/{lab}/{CANVAS_FILE}"):
        yield _name_of_canvas(path.parent)


def _name_of_canvas(folder):
    """Return the name in Canvas of what was collected; an empty text if it is not known."""
    with suppress(OSError):
        return (read_ordinary(folder / CANVAS_FILE, MAX_NAME_BYTES) or b"").decode("utf-8", "replace")
    return ""


def _ids_of_canvas(names):
    """Return the IDs of Canvas of the files whose names can be read in one way."""
    readings = [_readings_of_canvas(name) for name in names if not _is_long(name)]
    return {some[0][2]["user"][1:] for some in readings if len(some) == 1}


def identifier(name: str) -> str:
    """Turn a student's name into a portable name for a folder, with letters of any language.

    Raises
    ------
    GradingError
        If nothing is left of it, or if it is too long.
    """
    name = unicodedata.normalize("NFC", name)
    if not name:
        raise GradingError(
            "its name is that of the lab alone: put the student's name before it, or put it into a folder with the "
            "student's name"
        )
    if "/" in name:
        raise GradingError(f"{shown(name)} is a path, not the name of a student")
    if not is_text(name):
        raise GradingError(f"{shown(name)} is not text in UTF-8: give the student another name")
    if _is_long(name):
        raise GradingError(f"{shown(name)} is longer than {MAX_NAME_BYTES} bytes: give it a shorter name")
    if MARK in name:
        raise GradingError(f"{shown(name)} holds a mark of Moodle's twice, and nobody can tell whose it is: rename it")
    signs = [sign if unicodedata.category(sign)[0] in "LMN" or sign in "_.@" else "-" for sign in name]
    safe = re.sub("-+", "-", "".join(signs)).strip("-.")
    if not safe:
        raise GradingError(f"{shown(name)!r} cannot name a student: put the student's name before that of the lab")
    if len(safe.encode()) > MAX_IDENTIFIER_BYTES:
        raise GradingError(f"{shown(name)} is longer than {MAX_IDENTIFIER_BYTES} bytes: give it a shorter name")
    return safe


def of_one_identifier(students: Collection[str]) -> dict[str, str]:
    """Return a clause for every student who would share an identifier with another."""
    names = {}
    for student in sorted(students):
        with suppress(GradingError):
            names.setdefault(identifier(student).casefold(), []).append(student)
    return {
        student: f"{shown(first)!r} and {shown(second)!r} would both be student {identifier(first)}: rename one of them"
        for first, second, *more in (alike for alike in names.values() if len(alike) > 1)
        for student in (first, second, *more)
    }


def no_identifiers(accounts: Collection[str]) -> dict[str, str]:
    """Return a clause for every account whose name is not the identifier that it would get.

    Whoever may choose the name of an account could else keep out somebody, or hand in for somebody. Of the other
    accounts, nobody can pretend to have another's.
    """
    clauses = {}
    for account in sorted(accounts):
        with suppress(GradingError):
            if (name := identifier(account)) != account:
                clauses[account] = f"{shown(account)!r} would be student {name}, who may be another: rename the account"
    return clauses


# One student


def _collect_student(student, handed_in, lab, source, root):
    try:
        name = identifier(student)
    except GradingError as error:
        return Collected(shown(student or handed_in[0].file.path), None, [f"Not collected: {error}."])
    notes = [SAYS_LATE] if any(one.late for one in handed_in) else []
    notes += first_of(list(dict.fromkeys(one.note for one in handed_in if one.note)))
    try:
        # In the course folder, so that unpacked files only need to be renamed
        with tempfile.TemporaryDirectory(prefix=".collect-", dir=root) as folder:
            new, dated = _prepared(handed_in, Path(folder), lab, source, _Budget(), notes)
            path, is_last = _put(new, dated, name, lab, root, notes)
    except _Unusable as error:
        return Collected(name, None, [*notes, f"Not collected: {error}."], f"{error}.")
    except OSError as error:
        if error.errno in NO_ROOM:
            raise CannotWrite(f"{name} cannot be written to {root} ({error.strerror}): {MAKE_ROOM}") from None
        what = f"{shown(str(error.filename))}: {error.strerror}" if error.filename else str(error)
        return Collected(name, None, [*notes, f"Not collected: {what}; look at the folder and its permissions."])
    except Exception as error:
        return Collected(name, None, [*notes, f"Not collected: {unexpected(error, f'collect {name}', root)}."])
    return Collected(name, path, notes, is_last=is_last)


def refusals(lab: str, root: Path) -> dict[str, str]:
    """Return why files could not be collected for a lab, by student, unless later ones were."""
    paths = (root / "submitted").glob(f"*/{lab}{REFUSED}")
    return {path.parent.name: path.read_text("utf-8").strip() for path in paths}


def keep_refusals(collected: list[Collected], lab: str, root: Path) -> None:
    """Write why files could not be collected, for the students' feedback, and forget it where files now were."""
    for one in collected:
        path = root / "submitted" / one.student / f"{lab}{REFUSED}"
        if one.refused:
            write_whole(path, f"{one.refused}\n", errors="replace")
        elif one.path:
            path.unlink(missing_ok=True)


def _prepared(handed_in, folder, lab, source, budget, notes):
    """Return a folder with just the notebook to grade, under its right name, and the function that tells its date."""
    again, left_out = [], []
    notebooks = _unpacked(_latest(handed_in, again), folder, budget, left_out)
    notes += first_of(again) + first_of(left_out)
    if not notebooks:
        names = ", ".join(sorted({shown(one.name) for one in handed_in})[:5])
        raise _Unusable(f"there is no notebook that can be read among its files ({names})")
    chosen, said = choose_notebook(list(notebooks), lab, source)
    notes += said
    if chosen is None and len(notebooks) > 1:
        raise _Unusable(f"none of its notebooks is one of {lab}")
    chosen = chosen or next(iter(notebooks))
    new, one = folder / "new", notebooks[chosen]
    new.mkdir()
    chosen.rename(new / f"{lab}.ipynb")
    if SAYS_LATE in notes:
        (new / LATE_IN_CANVAS).write_text(f"{SAYS_LATE}\n", encoding="utf-8")
    if one.version:
        (new / CANVAS_FILE).write_text(PurePosixPath(one.file.path).name, encoding="utf-8", errors="replace")
    date = one.file.date if is_possible(one.file.date) else 0.0
    if not date:
        notes.append("The date of the file cannot be right; it counts as older than any other.")
    os.utime(new / f"{lab}.ipynb", (date, date))
    beside = {str(PurePosixPath(one.name).with_name(name)): name for name in BESIDE}
    for other in handed_in:
        if other.name not in beside or other.by_lms:
            continue
        if not other.by_student:  # the time of handing in: without it nobody is late
            _unpack(other.file, new / beside[other.name], MAX_BYTES, _Budget())
            continue
        try:
            _unpack(other.file, new / beside[other.name], MAX_BYTES, budget)
        except _Unusable as error:
            notes.append(f"Left out {shown(other.name)}: {error}.")
    notes += filter(None, [check_timestamp(new)])
    stated = any(beside.get(one.name) == TIMESTAMP and one.by_student for one in handed_in)
    if stated and (time := read_timestamp(new)):
        notes.append(f"It was handed in on {_written(time.timestamp())}, says a {TIMESTAMP} among the student's files.")
    # In an LMS's archive, the date is that of the download, by the clock of the server: no time of handing in compares
    return new, _date_of_files if one.by_lms and not read_timestamp(new) else date_of


def first_of(notes: list[str]) -> list[str]:
    """Return the first notes of a kind, since a student can cause thousands."""
    more = len(notes) - MOST_NOTES
    return [*notes[:MOST_NOTES], f"And {more} more of that kind."] if more > 0 else notes


def _latest(handed_in, notes):
    """Return the files without earlier versions, which the student handed in again under a higher number."""
    latest = {}
    for one in handed_in:
        if one.version and one.version >= latest.get(one.name, one).version:
            latest[one.name] = one
    for name, count in Counter(one.name for one in handed_in if one.version).items():
        if count > 1:
            notes.append(f"{shown(name)} was handed in {count} times; {shown(latest[name].file.path)} is taken.")
    return [one for one in handed_in if one.version is None or latest[one.name] is one]


def _unpacked(handed_in, folder, budget, notes):
    """Unpack each notebook into its own folder, and return the student's file that contained it."""
    notebooks, tried = {}, 0
    # Zips come last: one may use up the budget
    for one in sorted(handed_in, key=lambda one: one.name.lower().endswith(".zip")):
        with ExitStack() as opened:
            for file, name in _notebooks_in(one, folder, opened, budget, notes):
                if tried == MAX_NOTEBOOKS:
                    notes.append(f"Left out {shown(name)}: it is one of more than {MAX_NOTEBOOKS} notebooks.")
                    continue
                tried += 1
                target = folder / f"notebook-{tried}" / shown(PurePosixPath(name).name)[-60:]
                try:
                    target.parent.mkdir(exist_ok=True)
                    _unpack(file, target, MAX_BYTES, budget)
                    notebooks[target] = one
                except _Unusable as error:
                    notes.append(f"Left out {shown(name)}: {error}.")
    return notebooks


def _notebooks_in(one, folder, opened, budget, notes):
    """Return the notebooks in a file, which is a notebook or a zip, with their names."""
    kind = PurePosixPath(one.name).suffix.lower()
    if kind == ".ipynb":
        return [(one.file, one.name)]
    try:
        if kind == ".zip":
            archive = folder / "archive.zip"  # of one zip after the other
            _unpack(one.file, archive, MAX_STUDENT_BYTES, budget)
            files, entries = _files_of_zip(archive, opened, budget.entries)
            budget.entries -= entries
            inside = [file for file in files if not _is_ignored(file.path)]
            return [(file, file.path) for file in inside if file.path.lower().endswith(".ipynb")]
        if one.file.problem:
            raise _Unusable(one.file.problem)
    except _Unusable as error:
        notes.append(f"Left out {shown(one.name)}: {error}.")
    return []


def _unpack(file, target, limit, budget):
    """Write a file to `target` and count the bytes, since a zip may give a wrong size."""
    if file.problem:
        raise _Unusable(file.problem)
    size = 0
    try:
        with target.open("wb") as copy:
            for chunk in _chunks(file):
                size += len(chunk)
                if size > limit:
                    raise _Unusable(f"it is larger than {limit // 2**20} MB")
                budget.spend(len(chunk))
                copy.write(chunk)
    except _Unusable:
        target.unlink()
        raise
    os.utime(target, (file.date, file.date))


def _chunks(file):
    try:
        with file.open() as stream:
            while chunk := stream.read(2**16):
                yield chunk
    except BROKEN as error:
        raise _Unusable(f"it cannot be read ({error})") from None


def _put(new, dated, student, lab, root, notes):
    """Move a submission to its place unless the present one is the same or not older.

    Returns
    -------
    tuple of pathlib.Path and bool
        The notebook, and whether it is that of the submission.
    """
    place = root / "submitted" / student / lab
    notebook = place / f"{lab}.ipynb"
    for path in new.iterdir():
        to_disk(path)
    if os.path.lexists(place):
        if (
            os.path.lexists(notebook)
            and not kind_of(notebook)
            and filecmp.cmp(notebook, new / notebook.name, shallow=False)
        ):
            if _upload(new) > _upload(place):  # feedback goes back beside the last upload
                (new / CANVAS_FILE).replace(place / CANVAS_FILE)
            return notebook, True
        date, present = dated(new), dated(place)
        if date <= present:
            notes.append(
                f"Not taken: it is of {_written(date)}, and the one collected before is of {_written(present)}."
            )
            return notebook, False
        kept = _keep(student, lab, root, present)
        notes.append(
            f"It replaces the one of {_written(present)}, which is now in {kept.relative_to(root)}: grade it again."
        )
    elif any((root / step / student / lab).exists() for step in ("autograded", "feedback")):
        kept = _keep(student, lab, root, dated(new))
        notes.append(f"What was graded of a submission that was deleted is now in {kept.relative_to(root)}.")
    place.parent.mkdir(parents=True, exist_ok=True)
    new.rename(place)
    return notebook, True


def _upload(folder):
    """Return Canvas's number of the uploaded file; 0 if it is not known."""
    readings = _readings_of_canvas(_name_of_canvas(folder))
    return int(readings[0][2]["upload"] or 0) if readings else 0


def _keep(student, lab, root, date):
    """Put a submission aside with its graded notebook and feedback, and return where."""
    place = root / "replaced" / lab / student / datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H-%M-%S")
    kept, number = place, 1
    while kept.exists():
        kept, number = place.with_name(f"{place.name}-{number + 1}"), number + 1
    for step in ("submitted", "autograded", "feedback"):
        if (folder := root / step / student / lab).exists():
            kept.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, kept / step)
    return kept


def date_of(folder):
    """Return when a submission was handed in, or else the date of its newest notebook, in seconds since 1970.

    An impossible date counts as 0, so that any later submission replaces this one.
    """
    date = read_timestamp(folder)
    return date.timestamp() if date else _date_of_files(folder)


def _date_of_files(folder):
    dates = [path.lstat().st_mtime for path in folder.glob("*.ipynb")]
    return max(filter(is_possible, dates), default=0.0)


def _written(date):
    return datetime.fromtimestamp(date).strftime("%d %B %Y, %H:%M") if date else "an unknown date"
