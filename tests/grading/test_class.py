"""No submission and no failure of the machine stops the grading of the class."""

import contextlib
import csv
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from datetime import datetime
from functools import partial

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI

from course import Lab, make_course
from coursegrader import feedback, grade
from coursegrader.labs import nbgrader_config
from coursegrader.mark import answers
from coursegrader.protocol import Cell, Limits
from coursegrader.result_cache import Index, ResultCache, fingerprint
from coursegrader.submissions import by_date
from mlcourse.cli import main
from paths import ROOT

LAB = "lab-01-toy-regression"
FILE = f"{LAB}.ipynb"
WRITTEN = "best-degree"
HUGE = 40 * 2**30


class Class:
    """A class in the folder `root`, and the instructor's command there."""

    def __init__(self, root, honest, capsys):
        self.root, self.honest, self.capsys = root, honest, capsys

    def hand_in(self, student, **files):
        """Hand in the honest notebook and other files, by the stems of their names; return the folder."""
        folder = self.root / "submitted" / student / LAB
        folder.mkdir(parents=True)
        nbformat.write(self.honest, folder / FILE)
        for name, content in files.items():
            (folder / f"{name}.txt").write_bytes(content)
        return folder

    def type(self, *words):
        """Run a command, and return its exit code and its output."""
        with contextlib.chdir(self.root), pytest.raises(SystemExit) as exit:
            main(list(words))
        said = self.capsys.readouterr()
        code = exit.value.code
        return (1, f"{said.out}{said.err}{code}") if isinstance(code, str) else (code, said.out + said.err)

    def grade(self):
        return self.type("grade", LAB, "--workers", "1")

    def grade_by_nbgrader(self, *program):
        """Grade Ada as the button of the formgrader does, and return the exit code."""
        command = [sys.executable, *(program or ("-m", "nbgrader")), "autograde", LAB, "--student", "ada", "--force"]
        return subprocess.run(command, cwd=self.root, check=False, capture_output=True).returncode

    def start(self, *words, preexec_fn=None, **environment):
        """Start the command as a separate process."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        command = [sys.executable, "-m", "mlcourse.cli", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.root, text=True, env=environment, preexec_fn=preexec_fn, **pipes)  # noqa: PLW1509

    def points(self):
        """Return the automatic points of all students in the gradebook."""
        lab = object.__new__(Lab)
        lab.root, lab.name = self.root, LAB
        scores = lab.read_scores("auto_score")
        return {student: sum(score or 0 for score in grades.values()) for student, grades in scores.items()}


@pytest.fixture(scope="module")
def released(tmp_path_factory, bubblewrap):
    """A course that has graded the honest notebook and a missing one, so neither need run again."""
    root = make_course(tmp_path_factory.mktemp("released"), [LAB])
    lab = Lab(root, LAB)
    known = (root / "gradebook.db").read_bytes()
    (root / "submitted" / "nothing" / LAB).mkdir(parents=True)
    path = root / "submitted" / "perfect" / LAB / FILE
    path.parent.mkdir(parents=True)
    nbformat.write(lab.submitted["perfect"], path)
    grade.grade_class(LAB, root, workers=1)
    (root / "gradebook.db").write_bytes(known)
    full = sum(lab.points[name] for name in lab.tests)
    for folder in ("submitted", "autograded"):
        shutil.rmtree(root / folder)
    return root, lab.submitted["perfect"], full


@pytest.fixture
def full(released):
    """The maximum of the automatic points."""
    return released[2]


def copy(released, root):
    """Copy the course, without submissions, to `root`."""
    shutil.copytree(released[0], root, dirs_exist_ok=True)
    (root / "_build" / "grading.lock").unlink(missing_ok=True)
    return root


@pytest.fixture
def room(released, tmp_path, capsys):
    return Class(copy(released, tmp_path / "course"), released[1], capsys)


def line(said, student):
    """Return the line on a student."""
    (found,) = [line for line in said.splitlines() if line.startswith(f"{student}: ")]
    return found


TIMES = {
    "empty": b"",
    "blank": b" \n \n",
    "year-9999": b"9999-12-31 23:59:59 UTC",
    "year-1": b"0001-01-01 00:00:00 UTC",
    "nul": b"\0" * 24,
    "five-mb": b"2026 " * 10**6,
    "no-utf-8": b"\xff\xfe2026",
}


def test_a_timestamp_that_is_no_date_costs_nobody_anything(room, full):
    for student, content in TIMES.items():
        room.hand_in(student, timestamp=content)
    room.hand_in("ada", timestamp=b"2026-03-02 10:00:00 UTC")
    code, said = room.grade()
    assert (code, room.points()) == (0, dict.fromkeys([*TIMES, "ada"], full))
    for student in TIMES:
        assert "write it into timestamp.txt as in 2026-03-02 10:00:00 UTC" in line(said, student)
    assert "ada: " not in said
    assert f"{len(TIMES) + 1} had not changed" in room.grade()[1]


def sparse(path):
    path.touch()
    os.truncate(path, HUGE)


def bind(path):
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


BESIDE = {
    "sparse": (sparse, "larger than 20 MB"),
    "pipe": (os.mkfifo, "a special file"),
    "socket": (bind, "a special file"),
    "link": (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
    "folder-link": (lambda path: path.symlink_to("/etc"), "a symbolic link"),
    "endless": (lambda path: path.symlink_to(path), "a symbolic link"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
}


def test_whatever_lies_beside_a_notebook_is_named_and_not_opened(room, full):
    for student, (make, _) in BESIDE.items():
        make(room.hand_in(student) / "data.csv")
    room.hand_in("ada", notes=b"fine")
    begin = time.monotonic()
    code, said = room.grade()
    assert (code, room.points()) == (0, dict.fromkeys([*BESIDE, "ada"], full))
    for student, (_, kind) in BESIDE.items():
        assert f"data.csv ({kind})" in line(said, student)
    assert "ada: " not in said
    assert f"{len(BESIDE) + 1} had not changed" in room.grade()[1]
    assert time.monotonic() - begin < 60


def test_whatever_stands_in_the_place_of_a_notebook_is_refused_and_not_opened(room, full, tmp_path):
    nbformat.write(room.honest, tmp_path / "elsewhere.ipynb")
    kinds = {**BESIDE, "answers": (lambda path: path.symlink_to(tmp_path / "elsewhere.ipynb"), "a symbolic link")}
    for student, (make, _) in kinds.items():
        path = room.hand_in(student) / FILE
        path.unlink()
        make(path)
    room.hand_in("ada")
    code, said = room.grade()
    assert (code, room.points()) == (0, {**dict.fromkeys(kinds, 0), "ada": full})
    for student, (_, kind) in kinds.items():
        assert "Refused: " in line(said, student) and kind in line(said, student)


def test_who_cannot_be_graded_is_named_and_a_second_run_finishes(room, full, tmp_path):
    away = room.hand_in("away")
    shutil.move(away, tmp_path / "elsewhere")
    away.symlink_to(tmp_path / "elsewhere")
    linked = room.hand_in("linked").parent
    shutil.move(linked, tmp_path / "linked")
    linked.symlink_to(tmp_path / "linked")
    shutil.rmtree(room.hand_in("file"))
    (room.root / "submitted" / "file" / LAB).write_text("not a folder")
    bytes_alone = room.hand_in(os.fsdecode(b"Zo\xe9")).parent
    for student in ("new\nline", "a[b]*", ".hidden"):
        room.hand_in(student)
    named = room.hand_in("named")
    (named / FILE).rename(named / os.fsdecode(LAB.encode() + b"-\xff.ipynb"))
    (room.root / "submitted" / "README.txt").touch()
    room.hand_in("ada")
    code, said = room.grade()
    assert (code, room.points()) == (1, {"ada": full, "named": full})
    assert f"submitted/away/{LAB} is a symbolic link" in line(said, "away")
    assert "submitted/linked is a symbolic link" in line(said, "linked")
    assert f"submitted/file/{LAB} is a file" in line(said, "file")
    assert "is not text in UTF-8; rename it" in line(said, "Zo\\xe9")
    assert said.count("nbgrader cannot handle the name of the folder") == 3
    assert "7 could not be graded" in said
    for student in ("new\nline", "a[b]*", ".hidden"):
        shutil.rmtree(room.root / "submitted" / student)
    for student in ("away", "linked", "file"):
        path = room.root / "submitted" / student
        path.unlink() if path.is_symlink() else (path / LAB).unlink()
    bytes_alone.rename(bytes_alone.with_name("Zoé"))
    code, said = room.grade()
    assert code == 0 and "Graded 1 submissions" in said and "2 had not changed" in said
    assert room.points() == dict.fromkeys(["ada", "named", "Zoé"], full)


def test_a_folder_whose_name_would_be_code_in_a_page_is_not_graded_until_it_is_renamed(room, full):
    names = {"<img src=x onerror=alert(1)>": "img_src-x_onerror-alert-1", '"-alert(1)-"': "alert-1"}
    for name in [*names, "<>", "ada@example.org", "Ada L"]:
        room.hand_in(name)
    code, said = room.grade()
    assert code == 1 and room.points() == {"ada@example.org": full, "Ada L": full}
    for name, renamed in names.items():
        assert f"submitted/{name}; rename it to {renamed}." in line(said, name)
    assert "submitted/<>; rename it." in line(said, "<>")


def test_while_another_program_uses_the_gradebook_every_command_says_so_in_a_sentence(room, monkeypatch):
    room.hand_in("ada")
    assert room.grade()[0] == 0
    monkeypatch.setattr(grade, "Gradebook", partial(in_a_hurry, grade.Gradebook))
    other = sqlite3.connect(room.root / "gradebook.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for words in (["feedback", LAB], ["report", LAB]):
        code, said = room.type(*words)
        assert code == 1 and "another program uses the gradebook" in said and len(said.splitlines()) == 1
        assert "Traceback" not in said and "db_url" not in said and "make room" not in said
    other.close()
    assert room.type("feedback", LAB)[0] == 0


def in_a_hurry(gradebook, url, *more):
    """Open a gradebook that waits only briefly for another program."""
    return gradebook(f"{url}?timeout=0.1", *more)


def test_what_decides_what_is_graded_is_in_the_mark_of_a_submission(tmp_path):
    def mark(*files):
        paths = []
        for number, (name, text, date) in enumerate(files):
            path = tmp_path / str(number) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            os.utime(path, (date, date))
            paths.append(path)
        return fingerprint(by_date(paths))

    assert mark(("a", "b", 1)) != mark(("ab", "", 1)) and mark(("a", "bc", 1)) != mark(("a", "", 1), ("b", "c", 1))
    older, newer = ("a.ipynb", "", 1), ("b.ipynb", "", 2)
    assert mark(older, newer) == mark(("a.ipynb", "", 5), ("b.ipynb", "", 6)) != mark(("a.ipynb", "", 7), newer)
    assert mark(older, ("x.txt", "", 0)) == mark(older, ("x.txt", "", 9))


def test_a_class_is_collected_whatever_its_folder_holds_and_then_graded(room, full, tmp_path):
    given = tmp_path / "given"
    for student in ("ada", os.fsdecode(b"Zo\xe9"), "pipe", "link", "sparse", "future"):
        (given / student).mkdir(parents=True)
        nbformat.write(room.honest, given / student / FILE)
    for student, make in {
        "pipe": os.mkfifo,
        "link": lambda path: path.symlink_to("/etc/passwd"),
        "sparse": sparse,
    }.items():
        (given / student / FILE).unlink()
        make(given / student / FILE)
    (given / "future" / "timestamp.txt").write_text("9999-12-31 23:59:59 UTC")
    code, said = room.type("collect", LAB, str(given))
    assert code == 1 and "Collected 2 submissions" in said and "4 could not be collected" in said
    assert "Zo\\xe9 is not text in UTF-8: give the student another name" in said
    for student, kind in {"pipe": "a special file", "link": "a symbolic link", "sparse": "larger than 20 MB"}.items():
        assert f"{student}: Left out {FILE}: it is {kind}" in said
    assert "timestamp.txt holds no date" in line(said, "future")
    assert room.grade()[0] == 0
    assert room.points() == {"ada": full, "future": full}


def test_a_name_is_printed_on_a_terminal_that_cannot_show_it(room):
    room.hand_in("Zoé", timestamp=b"")
    room.hand_in(os.fsdecode(b"Zo\xe9"))
    run = room.start("grade", LAB, "--workers", "1", PYTHONIOENCODING="ascii")
    out, err = run.communicate(timeout=120)
    assert run.returncode == 1 and "Traceback" not in err
    assert "Zo\\xe9: timestamp.txt holds no date" in out and "Zo\\xe9: Not graded" in out


def test_an_error_that_nobody_thought_of_is_written_down_and_the_others_are_graded(room, full, monkeypatch):
    for student in ("ada", "ben", "zoe"):
        room.hand_in(student)
    read = grade.read_submission

    def fail(path, *more):
        if "ben" in path.parts:
            raise KeyError("some\udcff\nthing")
        return read(path, *more)

    with monkeypatch.context() as patch:
        patch.setattr(grade, "read_submission", fail)
        code, said = room.grade()
    assert (code, room.points()) == (1, {"ada": full, "zoe": full})
    assert "unexpected KeyError" in line(said, "ben") and "_build/grading.log says more" in line(said, "ben")
    log = (room.root / "_build" / "grading.log").read_text()
    assert f"grade {LAB}: ben" in log and "Traceback" in log and "in fail" in log
    code, said = room.grade()
    assert (code, room.points()) == (0, dict.fromkeys(["ada", "ben", "zoe"], full))


def test_a_gradebook_that_fails_with_one_student_keeps_all_who_wait_although_one_of_them_is_late(
    room, full, monkeypatch
):
    with grade.gradebook_of(nbgrader_config(room.root)) as gradebook:
        gradebook.find_assignment(LAB).duedate = datetime(2026, 3, 1)
        gradebook.db.commit()
    for student in ("ada", "ben", "cleo", "zoe"):
        room.hand_in(student, timestamp=b"2026-03-02 10:00:00 UTC" if student == "ada" else b"2026-02-02 10:00:00 UTC")
    enter = grade.Recorder.enter

    def fail(self, entry):
        if entry.student == "zoe":
            raise RuntimeError("refused")
        enter(self, entry)

    with monkeypatch.context() as patch:
        patch.setattr(grade.Recorder, "enter", fail)
        room.grade()
    everybody = dict.fromkeys(["ada", "ben", "cleo"], full)
    assert room.points() == everybody
    code, said = room.grade()
    assert (code, room.points()) == (0, everybody | {"zoe": full})
    assert "Graded 1 submissions" in said and "3 had not changed" in said


def test_a_gradebook_that_refuses_one_student_keeps_those_before_and_after(room, full, monkeypatch):
    for student in ("ada", "ben", "zoe"):
        room.hand_in(student)
    enter = grade.Recorder.enter

    def fail(self, entry):
        enter(self, entry)
        if entry.student == "ben":
            raise RuntimeError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(grade.Recorder, "enter", fail)
        code, said = room.grade()
    assert (code, room.points()) == (1, {"ada": full, "ben": 0, "zoe": full})
    assert "unexpected RuntimeError (refused)" in line(said, "ben")
    assert "1 submission in lab-01-toy-regression to be graded" in room.type("export")[1]
    code, said = room.grade()
    assert (code, room.points()) == (0, dict.fromkeys(["ada", "ben", "zoe"], full))
    assert "Graded 1 submissions" in said


def test_who_was_refused_is_named_by_every_grading(room):
    room.hand_in("ada")
    (room.hand_in("ben") / FILE).write_text("{")
    for _ in range(2):
        code, said = room.grade()
        assert code == 0 and "Refused: " in line(said, "ben") and "ada: " not in said
    assert "2 had not changed" in said


def test_a_lab_with_other_cells_than_graded_work_had_is_not_released(room, full):
    room.hand_in("ada")
    room.grade()
    solutions = room.root / "solutions" / f"{LAB}.md"
    before = {
        path: path.read_bytes() for folder in ("labs", "source") for path in (room.root / folder).rglob("*.ipynb")
    }
    text = solutions.read_text()
    solutions.write_text(text.replace("grade_id: fit-line-1,", "grade_id: fit-line-9,"))
    for command in ("release", "regrade"):
        code, said = room.type(command, LAB)
        assert (code, "has other cells (fit-line-1, fit-line-9)" in said) == (1, True), said
    solutions.write_text(
        text.replace("grade_id: fit-line, solution: true", "grade_id: fit-line, solution: true, points: 1")
    )
    assert solutions.read_text() != text and "has other cells (fit-line)" in room.type("release", LAB)[1]
    solutions.write_text(text.replace("grade_id: fit-line-1,", "grade_id: fit-line-9,"))
    assert {path: path.read_bytes() for path in before} == before and room.points() == {"ada": full}
    room.type("release", "--sources")
    code, said = room.grade()
    assert code == 1 and "the gradebook has other cells or points of" in said and room.points() == {"ada": full}
    solutions.write_text(text)
    room.type("release")
    assert room.grade()[0] == 0 and room.points() == {"ada": full}


def test_a_lab_is_graded_with_no_other_points_than_those_that_were_released(room, full):
    room.hand_in("ada")
    solutions = room.root / "solutions" / f"{LAB}.md"
    other = solutions.with_name("lab-02-other.md")
    text = solutions.read_text()
    other.write_text(text)
    solutions.write_text(text.replace("grade_id: fit-line-1, points: 1", "grade_id: fit-line-1, points: 5"))
    assert solutions.read_text() != text
    assert room.type("release", other.stem)[0] == 0
    assert room.grade()[0] == 0 and room.points() == {"ada": full}
    room.type("release", "--sources")
    code, said = room.grade()
    assert (
        code == 1
        and "other cells or points of lab-01-toy-regression (fit-line-1)" in said
        and room.points() == {"ada": full}
    )
    room.type("release", LAB)
    assert room.grade()[0] == 0 and room.points() == {"ada": full + 4}


@pytest.mark.nightly
def test_the_points_of_who_was_not_graded_since_are_not_exported(room, full):
    folder = room.hand_in("ada")
    room.hand_in("ben")
    room.grade()
    nbformat.write(nbformat.from_dict({**room.honest, "cells": []}), folder / FILE)
    room.hand_in("cleo")
    code, said = room.type("export")
    assert code == 1 and f"2 submissions in {LAB} to be graded, of ada, cleo" in said
    for command in ("report", "feedback"):
        assert "Not graded since they were handed in: 2, the first is ada" in room.type(command, LAB)[1]
    room.grade()
    assert "to be graded" not in room.type("export")[1]


def test_a_gradebook_that_is_brought_back_gets_what_it_does_not_know(room, full):
    folder = room.hand_in("ada")
    honest = room.honest
    nbformat.write(nbformat.from_dict({**honest, "cells": []}), folder / FILE)
    room.hand_in("ben")
    room.grade()
    before = (room.root / "gradebook.db").read_bytes()
    nbformat.write(honest, folder / FILE)
    room.grade()
    assert room.points() == {"ada": full, "ben": full}
    (room.root / "gradebook.db").write_bytes(before)
    assert room.points() == {"ada": 0, "ben": full}
    code, said = room.grade()
    assert (code, room.points()) == (0, {"ada": full, "ben": full})
    assert "Graded 1 submissions" in said and "1 had not changed" in said


def test_the_button_of_the_formgrader_leaves_a_submission_its_draw(room):
    folder = room.hand_in("ada")
    (folder / "timestamp.txt").write_text("yesterday")
    sparse(folder / "data.csv")
    room.grade()
    room.type("feedback", LAB)
    assert room.grade_by_nbgrader() == 0
    graded = room.root / "autograded" / "ada" / LAB / FILE
    assert nbformat.read(graded, as_version=4).metadata.mlcourse.draw == 1
    assert (folder / "data.csv.unreadable").exists() and "1 had not changed" in room.grade()[1]
    # As `mlcourse collect --worksheet` writes it: graded again, since lateness may count, with the same data
    (folder / "timestamp.txt").write_text("2026-11-02 10:00:00 UTC")
    assert "Graded 1 submissions" in room.grade()[1]
    assert nbformat.read(graded, as_version=4).metadata.mlcourse.draw == 1


def test_no_two_submissions_run_on_one_core():
    with grade.pool(999, True, Limits(), None) as (_, at_a_time):
        assert at_a_time == len(os.sched_getaffinity(0))


def test_the_table_of_the_formgrader_waits_for_no_pipe_and_stops_at_no_text(room):
    folders = {student: room.hand_in(student) for student in ("ada", "ben", "cleo")}
    (folders["ada"] / "timestamp.txt").write_text("yesterday")
    (folders["ben"] / "timestamp.txt").write_text("2026-03-02 10:00:00 UTC")
    config = nbgrader_config(room.root)
    config.CourseDirectory.root = str(room.root)

    def times():
        table = NbGraderAPI(config=config).get_submissions(LAB)
        return {row["student"]: row["timestamp"] for row in table}

    expected = {"ada": None, "ben": "2026-03-02T10:00:00", "cleo": None}
    assert times() == expected
    os.mkfifo(folders["cleo"] / "timestamp.txt")
    assert times() == expected


@pytest.mark.nightly
def test_a_submission_keeps_its_draw_although_what_was_built_is_deleted(room):
    folder = room.hand_in("ada")
    room.grade()
    room.type("feedback", LAB)
    shutil.rmtree(room.root / "_build")
    room.grade()
    graded = room.root / "autograded" / "ada" / LAB / FILE
    assert nbformat.read(graded, as_version=4).metadata.mlcourse.draw == 1
    shutil.rmtree(room.root / "_build")
    (folder / FILE).write_text((folder / FILE).read_text() + "\n")
    room.grade()
    assert nbformat.read(graded, as_version=4).metadata.mlcourse.draw == 2


@pytest.mark.parametrize("command", [("grade", LAB), ("report", LAB), ("export",)], ids=lambda words: words[0])
def test_a_damaged_gradebook_is_named_in_one_sentence(room, command):
    room.hand_in("ada")
    room.grade()
    path = room.root / "gradebook.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\x5a" * (len(whole) - 4096))
    code, said = room.type(*command)
    assert code == 1 and "gradebook" in said.splitlines()[-1] and "Traceback" not in said


def test_a_gradebook_without_the_lab_is_told_how_to_get_it(room):
    room.hand_in("ada")
    (room.root / "gradebook.db").write_bytes(b"")
    code, said = room.grade()
    assert code == 1 and f"the gradebook has no lab {LAB}: type mlcourse release {LAB}" in said


# A full disk


def is_whole(root):
    """Whether all files that were written can be read, and no temporary ones are left."""
    written = [path for folder in ("autograded", "_build") for path in (root / folder).rglob("*") if path.is_file()]
    for path in written:
        if path.suffix in (".ipynb", ".json"):
            json.loads(path.read_text(encoding="utf-8"))
    return not [path.name for path in written if path.name.startswith(".")]


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 16 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk needs root and mount; the limit on the size of a file is tested instead")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def fill(path, left):
    """Fill the disk, except for `left` bytes, and return the file that does so."""
    filler = path / "filler"
    status = os.statvfs(path)
    with filler.open("wb") as file:
        file.write(b"\1" * (status.f_bavail * status.f_frsize - left))
    return filler


@pytest.mark.nightly
@pytest.mark.parametrize("left", [0, 400_000, 700_000, 1_500_000])
def test_a_disk_that_is_full_is_one_sentence_and_a_second_run_finishes(released, small_disk, capsys, full, left):
    room = Class(copy(released, small_disk), released[1], capsys)
    students = [f"student-{number:02}" for number in range(25)]
    for student in students:
        room.hand_in(student)
    filler = fill(small_disk, left)
    run = room.start("grade", LAB, "--workers", "1")
    _, said = run.communicate(timeout=120)
    assert run.returncode == 1 and "make room on the disk, then run the same command again" in said, said
    assert len(said.splitlines()) == 1
    assert is_whole(room.root)
    filler.unlink()
    code, said = room.grade()
    assert code == 0, said
    assert is_whole(room.root)
    assert room.points() == dict.fromkeys(students, full)


def test_a_disk_that_is_full_leaves_pages_and_tables_as_they_were(released, small_disk, tmp_path, capsys):
    room = Class(copy(released, small_disk), released[1], capsys)
    for student in ("ada", "ben"):
        room.hand_in(student)
    assert [room.grade()[0], room.type("report", LAB)[0], room.type("export", "--unfinished")[0]] == [0] * 3
    written = [room.root / "reports" / f"{LAB}.html", room.root / "grades.csv"]
    before = [path.read_bytes() for path in written]
    more = tmp_path / "more"
    shutil.copytree(room.root / "submitted" / "ada" / LAB, more / "zoe")
    filler = fill(small_disk, 0)
    commands = [["report", LAB], ["export", "--unfinished"], ["feedback", LAB], ["collect", LAB, str(more)]]
    for words in commands:
        code, said = room.type(*words)
        assert code == 1 and "make room on the disk" in said and len(said.strip().splitlines()) == 1, said
    assert [path.read_bytes() for path in written] == before
    filler.unlink()
    assert [room.type(*words)[0] for words in commands] == [0] * 4
    assert (room.root / "submitted" / "zoe" / LAB / FILE).exists()
    assert all((room.root / "feedback" / student / LAB / f"{LAB}.html").exists() for student in ("ada", "ben"))


def test_a_file_that_may_not_grow_is_one_sentence_and_a_second_run_finishes(room, full):
    room.hand_in("ada")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # noqa: E731
    run = room.start("grade", LAB, "--workers", "1", preexec_fn=limit)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 1 and "make room on the disk" in err and len(err.splitlines()) == 1, (out, err)
    assert is_whole(room.root)
    assert (room.grade()[0], room.points()) == (0, {"ada": full})


# Several at once


def test_one_grading_runs_at_a_time_and_one_that_was_killed_is_forgotten(room, full):
    slow = nbformat.v4.new_code_cell("import time; time.sleep(100)")
    path = room.hand_in("ada") / FILE
    nbformat.write(nbformat.from_dict({**room.honest, "cells": [*room.honest.cells, slow]}), path)
    first = room.start("grade", LAB, "--workers", "1")
    others, sources = [], [room.root / "source" / LAB / FILE, room.root / "labs" / LAB / FILE]
    before = [path.read_bytes() for path in sources]
    with (room.root / "solutions" / f"{LAB}.md").open("a") as file:
        file.write("\nA new sentence.\n")
    for _ in range(300):
        time.sleep(0.1)
        if (room.root / "_build" / "grading.lock").exists():
            time.sleep(1)
            others = [room.type(command, LAB) for command in ("grade", "release", "regrade", "feedback")]
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert [code for code, _ in others] == [1, 1, 1, 1] and [path.read_bytes() for path in sources] == before
    assert all("another command is running" in said.splitlines()[-1] and "Traceback" not in said for _, said in others)
    nbformat.write(room.honest, path)
    assert (room.grade()[0], room.points()) == (0, {"ada": full})


@pytest.mark.nightly
def test_while_a_slow_submission_runs_a_person_can_store_a_mark(room, full):
    slow = nbformat.v4.new_code_cell("import time; time.sleep(12)")
    room.hand_in("ada")
    nbformat.write(nbformat.from_dict({**room.honest, "cells": [*room.honest.cells, slow]}), room.hand_in("zoe") / FILE)
    run = room.start("grade", LAB, "--workers", "1")
    deadline = time.monotonic() + 60
    while not (room.root / "autograded" / "ada").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    with contextlib.closing(sqlite3.connect(room.root / "gradebook.db", timeout=1)) as gradebook:
        gradebook.execute("begin immediate")
        assert run.poll() is None
        gradebook.rollback()
    run.communicate()
    assert (run.returncode, room.points()) == (0, {"ada": full, "zoe": full})


# After the grading


BROKEN = {
    "cut off": b'{"cells": [',
    "empty": b"",
    "a list": b"[]",
    "no UTF-8": b"\xff\xfe\0",
    "no cells": b'{"cells": 3}',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_graded_notebook_that_somebody_broke_is_named_and_the_others_get_their_pages(room, full, content):
    for student in ("ada", "ben"):
        room.hand_in(student)
    room.grade()
    path = room.root / "autograded" / "ben" / LAB / FILE
    path.write_bytes(content)
    code, said = room.type("feedback", LAB)
    assert code == 1 and f"autograded/ben/{LAB}/{FILE}; type `mlcourse grade {LAB}`" in line(said, "ben")
    assert "_build/grading.log says more" in said and "Traceback" not in said
    assert (room.root / "feedback" / "ada" / LAB / f"{LAB}.html").exists()
    code, said = room.type("report", LAB)
    assert code == 1 and (room.root / "reports" / f"{LAB}.html").exists()
    assert "cannot be read; type `mlcourse grade" in line(said, "ben")
    assert room.type("export", "--unfinished")[0] == 0
    with (room.root / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [row["Student"] for row in csv.DictReader(file)] == ["ada", "ben"]
    assert room.grade()[0] == room.type("feedback", LAB)[0] == 0
    assert (room.root / "feedback" / "ben" / LAB / f"{LAB}.html").exists()
    assert room.points() == {"ada": full, "ben": full}


def test_whoever_has_no_graded_notebook_any_more_gets_it_again_and_is_named_until_then(room, full):
    for student in ("ada", "ben"):
        room.hand_in(student)
    room.grade(), room.type("feedback", LAB)
    shutil.rmtree(room.root / "autograded" / "ben")
    code, said = room.type("feedback", LAB)
    assert code == 1 and "no feedback from" in line(said, "ben")
    code, said = room.grade()
    assert code == 0 and "Graded 1 submissions" in said and "1 had not changed" in said
    assert room.type("feedback", LAB)[0] == 0 and room.points() == {"ada": full, "ben": full}


def test_a_submission_that_was_deleted_gets_no_feedback_and_is_not_marked(room):
    for student in ("ada", "ben"):
        room.hand_in(student)
    room.grade()
    shutil.rmtree(room.root / "submitted" / "ben")
    assert room.type("feedback", LAB)[0] == 0
    assert [path.name for path in (room.root / "feedback").iterdir()] == ["ada"]
    config = nbgrader_config(room.root)
    assert len(answers(LAB, room.root, WRITTEN, config)) == 1
    assert "of ada." in room.type("export")[1]


def test_a_regrading_that_is_stopped_says_whose_marks_moved_so_far(room, full, monkeypatch):
    for student in ("ada", "ben"):
        room.hand_in(student)
    room.grade()
    source = room.root / "solutions" / f"{LAB}.md"
    text = source.read_text("utf-8")
    source.write_text(
        text.replace("grade_id: mean-squared-error-1, points: 1", "grade_id: mean-squared-error-1, points: 2")
    )
    assert source.read_text("utf-8") != text
    stored = ResultCache.find

    def stop_at_the_second(self, *arguments):
        if room.points()["ada"] > full:
            raise KeyboardInterrupt
        return stored(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(grade, "WAITING", 0)
        patch.setattr(ResultCache, "find", stop_at_the_second)
        code, said = room.type("regrade", LAB)
    assert code != 0 and "ada" in said and "ben" not in said
    assert "ben" in room.type("regrade", LAB)[1]
    # A regrade that was killed before the end has not reported ada
    source.write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr("coursegrader.regrade.print_moves", interrupted)
        room.type("regrade", LAB)
    assert room.points() == {"ada": full, "ben": full}
    assert "2 marks of 2 students move" in room.type("regrade", LAB)[1]
    said = room.type("regrade", LAB)[1]
    assert "No mark moves" in said and "not graded again" not in said
    (room.root / "submitted" / "ben").rename(room.root / "elsewhere")
    assert (
        line(room.type("regrade", LAB)[1], "ben") == "ben: not graded again, since nothing of theirs is in submitted/."
    )


def test_a_result_from_outside_of_the_sandbox_is_not_taken_inside(tmp_path):
    cells = [Cell("")]
    ResultCache(tmp_path, Limits(), sandbox=False).store(cells, [1], {"late": False})
    assert ResultCache(tmp_path, Limits()).find(cells, [1]) is None
    source = nbformat.v4.new_notebook()
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        marks = {Index(gradebook, tmp_path, LAB, source, Limits(), sandbox).lab for sandbox in (False, True)}
    assert len(marks) == 2


def test_results_that_were_not_used_for_longer_than_a_term_are_deleted(tmp_path):
    results = ResultCache(tmp_path, Limits())
    old, used = ([Cell(name)] for name in ("old", "used"))
    for cells in (old, used):
        results.store(cells, [1], {"late": False})
    for path in results.folder.iterdir():
        os.utime(path, (0, 0))
    assert results.find(used, [1]) == {"late": False}
    results.prune()
    assert results.find(used, [1]) and results.find(old, [1]) is None


def test_who_was_refused_at_collection_reads_why_until_something_is_collected(room):
    files = room.root / "class"
    for student in ("ada", "ben"):
        (files / student).mkdir(parents=True)
    (files / "ada" / "answers.pdf").write_bytes(b"%PDF")
    nbformat.write(room.honest, files / "ben" / FILE)
    assert room.type("collect", LAB, str(files))[0] == 1
    page = room.root / "feedback" / "ada" / LAB / f"{LAB}.html"
    room.grade()
    code, said = room.type("feedback", LAB)
    assert code == 0 and "ada" not in said
    assert "no notebook that can be read among its files (answers.pdf)" in page.read_text("utf-8")
    nbformat.write(room.honest, files / "ada" / FILE)
    assert room.type("collect", LAB, str(files))[0] == 0
    room.grade()
    room.type("feedback", LAB)
    assert "answers.pdf" not in page.read_text("utf-8") and "What to look at first" in page.read_text("utf-8")


def test_the_pages_of_a_class_that_several_processes_write_are_those_of_one(room, monkeypatch):
    for number in range(4):
        room.hand_in(f"student-{number}")
    room.grade()
    pages = [room.root / "feedback" / f"student-{number}" / LAB / f"{LAB}.html" for number in range(4)]
    assert room.type("feedback", LAB)[0] == 0
    alone = [page.read_bytes() for page in pages]
    monkeypatch.setattr(feedback, "EACH", 2)
    assert room.type("feedback", LAB)[0] == 0
    assert [page.read_bytes() for page in pages] == alone and len({*alone}) == 4


@contextlib.contextmanager
def written_mark(room, student):
    """Yield the gradebook's grade and comment of the written answer, and store what is changed."""
    with grade.gradebook_of(nbgrader_config(room.root)) as gradebook:
        names = (WRITTEN, LAB, LAB, student)
        yield gradebook.find_grade(*names), gradebook.find_comment(*names)
        gradebook.db.commit()


def mark(room, student, points, comment="well said"):
    """Mark the written answer, as a person does in the formgrader."""
    with written_mark(room, student) as (given, said):
        given.manual_score, given.needs_manual_grade, said.manual_comment = points, False, comment


def marked(room, student):
    """Return points and comment of the written answer, and whether it waits for a person."""
    with written_mark(room, student) as (given, said):
        return given.score, said.comment, given.needs_manual_grade


def answer_anew(path, text):
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == WRITTEN]
    cell.source = text
    nbformat.write(notebook, path)


def change_a_test(room):
    source = room.root / "solutions" / f"{LAB}.md"
    text = source.read_text("utf-8")
    source.write_text(text.replace("checks.number(", "checks.number (", 1))
    assert source.read_text("utf-8") != text


@pytest.mark.nightly
def test_a_regrade_opens_a_written_mark_again_only_if_its_answer_changed(room):
    paths = {student: room.hand_in(student) / FILE for student in ("ada", "ben", "cleo")}
    room.grade()
    assert marked(room, "ada") == (0, None, True)
    for student in ("ada", "ben"):
        mark(room, student, 3)
    change_a_test(room)
    answer_anew(paths["ben"], "A new answer.")
    said = room.type("regrade", LAB)[1]
    assert [marked(room, student) for student in paths] == [
        (3, "well said", False),
        (3, "well said", True),
        (0, None, True),
    ]
    assert line(said, "ben") == f"ben: {grade.REOPENED.format(WRITTEN, 3)}" and "ada: " not in said
    # Marked once more, it stays so, and so does what still waits
    mark(room, "ben", 2)
    source = room.root / "solutions" / f"{LAB}.md"
    source.write_text(source.read_text("utf-8").replace("checks.number (", "checks.number("))
    said = room.type("regrade", LAB)[1]
    assert [marked(room, student)[2] for student in paths] == [False, False, True] and "marked by hand" not in said


def test_a_changed_answer_stays_open_until_a_person_marks_it(room):
    path = room.hand_in("ada") / FILE
    room.grade()
    mark(room, "ada", 3)
    answer_anew(path, "A new answer.")
    room.grade()
    change_a_test(room)
    room.type("regrade", LAB)
    assert marked(room, "ada") == (3, "well said", True)


def test_written_marks_stay_although_what_was_built_is_deleted(room):
    room.hand_in("ada")
    room.grade()
    mark(room, "ada", 3)
    shutil.rmtree(room.root / "_build")
    room.grade()
    assert marked(room, "ada") == (3, "well said", False)


def test_a_grading_that_stops_leaves_no_mark_on_another_answer_and_says_what_waits(room, monkeypatch):
    path = room.hand_in("ada") / FILE
    room.grade()
    mark(room, "ada", 3)
    assert room.type("export")[0] == 0
    shutil.rmtree(room.root / "_build")
    answer_anew(path, "A new answer.")
    for module, name in ((grade.Recorder, "enter"), (grade, "write_whole")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupted)
            assert room.grade()[0] != 0
        code, said = room.type("export")
        assert code == 1 and "1 submission in lab-01-toy-regression to be graded" in said
    room.grade()
    assert marked(room, "ada") == (3, "well said", True)


@pytest.mark.parametrize("collected", [False, True])
def test_a_mark_that_nbgrader_graded_between_is_not_taken_for_one_of_the_first_answer(room, collected):
    path = room.hand_in("ada") / FILE
    room.grade()
    mark(room, "ada", 2)
    first = path.read_bytes()
    answer_anew(path, "A new answer.")
    assert room.grade_by_nbgrader() == 0
    mark(room, "ada", 3)
    path.write_bytes(first)
    if collected:
        shutil.rmtree(room.root / "autograded" / "ada")  # `mlcourse collect` moves it
    room.grade()
    assert marked(room, "ada") == (3, "well said", True)


def test_a_grading_by_nbgrader_that_stops_leaves_no_mark_on_another_answer(room):
    path = room.hand_in("ada") / FILE
    room.grade()
    mark(room, "ada", 3)
    answer_anew(path, "A new answer.")
    assert room.grade_by_nbgrader("-c", STOPS) == 9
    assert "A new answer." in (room.root / "autograded" / "ada" / LAB / FILE).read_text("utf-8")
    room.grade()
    assert marked(room, "ada") == (3, "well said", True)


def test_after_nbgrader_stopped_the_next_grading_grades_what_had_not_changed(room):
    room.hand_in("ada")
    room.grade()
    mark(room, "ada", 3)
    assert room.grade_by_nbgrader("-c", STOPS) == 9
    assert "1 submission in lab-01-toy-regression to be graded" in room.type("export")[1]
    assert "Graded 1 submissions" in room.grade()[1] and "to be graded" not in room.type("export")[1]


def test_a_regrading_that_stops_opens_no_mark_and_what_is_left_is_graded_again(room, full, monkeypatch):
    for student in ("ada", "ben"):
        room.hand_in(student, timestamp=b"2026-03-02 10:00:00 UTC")
    room.grade()
    for student in ("ada", "ben"):
        mark(room, student, 3)
    source = room.root / "solutions" / f"{LAB}.md"
    one, two = (f"grade_id: mean-squared-error-1, points: {points}" for points in (1, 2))
    source.write_text(source.read_text("utf-8").replace(one, two))
    with monkeypatch.context() as patch:
        patch.setattr(grade, "write_whole", interrupted)
        assert room.type("regrade", LAB)[0] != 0
    assert sorted(room.points().values()) == [full, full + 1]
    # The notebook of one is as old as the points of the other
    assert "Graded 2 submissions" in room.type("regrade", LAB)[1]
    assert room.points() == {"ada": full + 1, "ben": full + 1}
    assert [marked(room, student) for student in ("ada", "ben")] == [(3, "well said", False)] * 2


def test_a_mark_given_after_a_grading_that_stopped_is_of_the_answer_that_was_seen(room, monkeypatch):
    path = room.hand_in("ada") / FILE
    room.grade()
    mark(room, "ada", 3)
    answer_anew(path, "A new answer.")
    with monkeypatch.context() as patch:
        patch.setattr(grade, "write_whole", interrupted)
        assert room.grade()[0] != 0
    mark(room, "ada", 2)  # the graded notebook is still the first one
    assert "mark it again" in room.grade()[1] and marked(room, "ada") == (2, "well said", True)


def test_marks_stay_in_a_gradebook_of_an_older_version_but_not_in_an_old_copy_of_one(room):
    folder, copy = room.hand_in("ada", timestamp=b"2026-03-02 10:00:00 UTC"), room.root / "copy.db"
    room.grade()
    mark(room, "ada", 3)
    with contextlib.closing(sqlite3.connect(room.root / "gradebook.db")) as gradebook:
        ((entry,),) = gradebook.execute("select entry from mlcourse_graded")
        gradebook.execute("drop table mlcourse_graded")
    (room.root / "_build" / "graded" / f"{LAB}.json").write_text(f'{{"ada": {entry}}}')
    shutil.copy(room.root / "gradebook.db", copy)
    shutil.rmtree(room.root / "autograded" / "ada")  # `mlcourse collect` moves it
    assert "Graded 1 submissions" in room.grade()[1] and marked(room, "ada") == (3, "well said", False)
    answer_anew(folder / FILE, "A new answer.")
    (folder / "timestamp.txt").write_text("2026-03-03 10:00:00 UTC")
    room.grade()
    shutil.copy(copy, room.root / "gradebook.db")
    room.grade()
    assert marked(room, "ada") == (3, "well said", True)


# nbgrader, which ends before it writes to the gradebook
STOPS = """
import os
from nbgrader.apps.nbgraderapp import main
from nbgrader.preprocessors import SaveAutoGrades
SaveAutoGrades.preprocess = lambda *_: os._exit(9)
main()
"""


def test_with_an_older_gradebook_a_mark_is_not_taken_for_one_that_was_handed_in_later(room):
    folder, copy = room.hand_in("ada", timestamp=b"2026-03-02 10:00:00 UTC"), room.root / "copy.db"
    room.grade()
    mark(room, "ada", 3)
    shutil.copy(room.root / "gradebook.db", copy)
    answer_anew(folder / FILE, "A new answer.")
    (folder / "timestamp.txt").write_text("2026-03-03 10:00:00 UTC")
    room.grade()
    mark(room, "ada", 4)
    shutil.copy(copy, room.root / "gradebook.db")
    assert "Graded 1 submissions" in room.grade()[1] and marked(room, "ada") == (3, "well said", True)
    assert "1 had not changed" in room.grade()[1]


def test_with_an_older_gradebook_a_mark_is_not_taken_for_one_of_the_present_answer(room):
    path, copy = room.hand_in("ada") / FILE, room.root / "copy.db"
    room.grade()
    mark(room, "ada", 3)
    shutil.copy(room.root / "gradebook.db", copy)
    answer_anew(path, "A new answer.")
    room.grade()
    mark(room, "ada", 4)
    shutil.copy(copy, room.root / "gradebook.db")
    room.grade()
    assert marked(room, "ada") == (3, "well said", True)


@pytest.mark.nightly
def test_points_given_to_a_test_by_hand_are_opened_again_if_its_result_changed(room):
    room.hand_in("ada")
    room.grade()
    source = room.root / "solutions" / f"{LAB}.md"
    text = source.read_text("utf-8")
    with grade.gradebook_of(nbgrader_config(room.root)) as gradebook:
        gradebook.find_grade("mean-squared-error-1", LAB, LAB, "ada").manual_score = 0.5
        gradebook.db.commit()
    change_a_test(room)
    assert "marked by hand" not in room.type("regrade", LAB)[1]
    test = 'with checks.testing("mean_squared_error"'
    source.write_text(text.replace(test, f"raise ValueError\n{test}", 1))
    assert line(room.type("regrade", LAB)[1], "ada") == f"ada: {grade.REOPENED.format('mean-squared-error-1', 0.5)}"


def interrupted(*_):
    raise KeyboardInterrupt
