"""Collect from nbgrader's exchange, where students write the folders that the instructor reads.

nbgrader follows links in these folders with the instructor's rights, takes a folder in anybody's name, and stops for
the whole class at one with an odd name. `Collect` replaces its step in ``nbgrader_config.py``, for ``nbgrader collect``
and for the button of the formgrader.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.exchange.default import ExchangeCollect

from coursegrader import GradingError
from coursegrader.collect import collect_folders, date_of
from coursegrader.roster import FILE, read_roster
from coursegrader.submissions import SECRET, read_secret, shown


class Collect(ExchangeCollect):
    """Collect as nbgrader does, but take the files in the way of `coursegrader.collect`."""

    def init_src(self):
        if not self.coursedir.course_id:
            self.fail("No course id specified: set c.CourseDirectory.course_id in nbgrader_config.py")
        self.inbound = Path(self.root, self.coursedir.course_id, "inbound")
        if not os.access(self.inbound, os.R_OK | os.X_OK):
            self.fail(f"{self.inbound} cannot be read: release a lab first, as the user who owns the course")

    def copy_files(self):
        lab, root = self.coursedir.assignment_id, Path(self.coursedir.root)
        folders, notes = latest(self.inbound, lab)
        people, collected = self.people(root), []
        for student, path in folders.items():
            if self.coursedir.student_id in ("*", student):
                try:
                    with opened(path, student) as folder:
                        collected += collect_folders(lab, {student: folder}, root, people)
                except OtherOwner as error:
                    notes.append(str(error))
                except GradingError as error:
                    self.fail(str(error))
        for one in collected:
            if one.path and read_secret(one.path.parent) is None:
                (one.path.parent / SECRET).write_text(secrets.token_hex(64), encoding="ascii")
                one.notes.append("Handed in without nbgrader, so the feedback cannot be fetched with it.")
            notes += [f"{shown(one.student)}: {note}" for note in one.notes]
        for note in notes:
            self.log.warning(note)
        taken = sum(one.path is not None for one in collected)
        self.log.info(f"Collected {taken} of {len(collected)} submissions of {lab} in {root / 'submitted'}")

    def people(self, root):
        """Return the people on the roster, if there is one."""
        if not (root / FILE).exists():
            return []
        with Gradebook(self.coursedir.db_url, self.coursedir.course_id) as gradebook:
            return read_roster(gradebook, root)


class OtherOwner(Exception):
    """A folder that is not the student's own; the message says whose it is."""


def latest(inbound: Path, lab: str) -> tuple[dict[str, Path], list[str]]:
    """Return the folder that each student handed in last, and notes on those that cannot be taken.

    Parameters
    ----------
    inbound : pathlib.Path
        With a folder ``STUDENT+LAB+DATE+RANDOM`` for each submission.
    lab : str

    Returns
    -------
    folders : dict of str to pathlib.Path
        By student.
    notes : list of str
    """
    found, notes = {}, []
    for path in sorted(inbound.iterdir()):
        student, *rest = path.name.split("+")
        if len(rest) < 2 or rest[0] != lab:
            continue
        try:
            with opened(path, student) as folder:
                date = date_of(folder)
        except OtherOwner as error:
            notes.append(str(error))
            continue
        if date >= found.get(student, (date, None))[0]:
            found[student] = date, path
    return {student: path for student, (_, path) in found.items()}, notes


@contextmanager
def opened(path: Path, student: str) -> Iterator[Path]:
    """Give a path to a student's folder that stays the same folder, even if the student moves a link to its place.

    Raises
    ------
    OtherOwner
        If it is no folder, or not the student's.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise OtherOwner(f"Left out {shown(path.name)}: it is no folder that can be read ({error.strerror}).") from None
    try:
        owner = name_of(os.fstat(folder).st_uid)
        if owner != student:
            raise OtherOwner(f"Left out {shown(path.name)}: it is in the name of {shown(student)}, but of {owner}.")
        yield Path(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


def name_of(user: int) -> str:
    """Return the name of a user of this machine, or the number of one without a name."""
    import pwd  # Windows has none, and no exchange

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
