"""Collect from ngshare, the exchange of a cluster, and release feedback through it.

ngshare's own steps write every file of a student to the path that the student chose, and stop for the whole class at
one that cannot be written, or at a page of feedback without a time. `Collect` and `ReleaseFeedback` go before them as
base classes in ``deploy/kubernetes/nbgrader_config.py``. Who handed in what, and when, is what the service says.
"""

import base64
import tempfile
from datetime import UTC
from pathlib import Path

from nbgrader.utils import parse_utc

from coursegrader import GradingError
from coursegrader.collect import (
    TIMESTAMP,
    Collected,
    collect_folder,
    first_of,
    identifier,
    keep_refusals,
    no_identifiers,
)
from coursegrader.exchange import MAX_ENTRIES, LeftOut, people_of, tell
from coursegrader.files import unexpected
from coursegrader.submissions import shown


class Collect:
    """Collect the notebooks of each student, in the way of `coursegrader.collect`."""

    def copy_files(self):
        lab, root = self.coursedir.assignment_id, Path(self.coursedir.root)
        students = sorted(one["student_id"] for one in self.src_records)
        people, alike, collected = people_of(self), no_identifiers(students), []
        for student in students:
            if self.coursedir.student_id not in ("*", student):
                continue
            try:
                if student in alike:
                    raise LeftOut(alike[student])
                collected.append(self.collect_student(student, lab, root, people))
            except GradingError as error:
                self.fail(str(error))
            except LeftOut as error:
                collected.append(Collected(shown(student), None, [f"Not collected: {error}."]))
            except Exception as error:
                said = unexpected(error, f"collect {shown(student)}", root)
                collected.append(Collected(shown(student), None, [f"Not collected: {said}."]))
        keep_refusals(collected, lab, root)
        tell(self, collected)

    def collect_student(self, student, lab, root, people):
        """Collect the notebooks at the top of what a student handed in last."""
        submission = self._get_submission(self.coursedir.course_id, lab, student)
        if submission is None:
            raise LeftOut("ngshare did not give it, see above")
        time = parse_utc(submission["timestamp"]).replace(tzinfo=UTC).timestamp()
        with tempfile.TemporaryDirectory(prefix=".collect-", dir=root) as name:
            folder = Path(name)
            notes = write_notebooks(submission["files"], folder)
            (folder / TIMESTAMP).write_text(submission["timestamp"], encoding="utf-8")
            names = [path.name for path in folder.iterdir()]
            one = collect_folder(lab, student, folder, names, lambda: time, root, people)
        one.notes.extend(first_of(notes))
        return one


def write_notebooks(files: list[dict], folder: Path) -> list[str]:
    """Write the notebooks among files that do not stand in another folder, and return notes on those left out.

    Parameters
    ----------
    files : list of dict
        ``path``, which the student chose, and ``content``, in base64.
    folder : pathlib.Path

    Raises
    ------
    LeftOut
        If there are more than `MAX_ENTRIES` files.
    """
    if len(files) > MAX_ENTRIES:
        raise LeftOut(f"there are more than {MAX_ENTRIES} files")
    notes = []
    for file in files:
        name = file["path"]
        if "/" in name or not name.lower().endswith(".ipynb"):
            continue
        try:
            content = base64.b64decode(file["content"])
            (folder / name).write_bytes(content)
        except (OSError, ValueError) as error:
            name = shown(name.encode(errors="backslashreplace").decode())
            notes.append(f"Left out {name}: it cannot be written ({type(error).__name__}).")
    return notes


class ReleaseFeedback:
    """Release the page of each student, also of those of whom nothing could be collected."""

    def copy_files(self):
        lab, released = self.coursedir.assignment_id, 0
        listed = self.ngshare_api_get(f"/submissions/{self.coursedir.course_id}/{lab}")
        if listed is None:
            self.fail("Failed to list submissions.")
        # Of those who share a folder, nobody knows whose page it holds, unless one has its name
        alike, latest = no_identifiers({one["student_id"] for one in listed["submissions"]}), {}
        listed["submissions"].sort(key=lambda one: (one["student_id"] not in alike, parse_utc(one["timestamp"])))
        for one in listed["submissions"]:
            latest[_folder(one["student_id"])] = (one["student_id"], one["timestamp"])
        excluded = self.coursedir.student_id_exclude.split(",")
        for page in sorted(Path(self.coursedir.root).glob(f"{self.coursedir.feedback_directory}/*/{lab}/{lab}.html")):
            folder = page.parent.parent.name
            if folder in excluded or self.coursedir.student_id not in ("*", folder):
                continue
            student, time = latest.get(folder, (folder, None))
            if (page.parent / TIMESTAMP).exists():
                time = (page.parent / TIMESTAMP).read_text("utf-8")
            info = [{"notebook_id": lab, "path": str(page)}]
            if student in alike:
                self.log.warning(f"{shown(student)}: not released, since {alike[student]}.")
            elif time is None or self.post_feedback(student, time, info) is None:
                self.log.warning(f"{shown(student)}: not released.")
            else:
                released += 1
        self.log.info(f"Released the feedback of {released} students on {lab}")


def _folder(student):
    """Return the name of a student's folders."""
    try:
        return identifier(student)
    except GradingError:
        return student
