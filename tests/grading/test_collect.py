"""The notebooks of an LMS or a folder, and nothing else, arrive in submitted/, each with its student."""

import errno
import io
import json
import os
import random
import re
import resource
import shutil
import stat
import struct
import subprocess
import time
import tracemalloc
import unicodedata
import zipfile
from datetime import datetime

import nbformat
import pytest

from coursegrader import GradingError, submissions
from coursegrader import collect as module
from coursegrader.collect import CANVAS_FILE, LATE_IN_CANVAS, collect, identifier
from coursegrader.files import write_whole
from coursegrader.labs import read_lab
from coursegrader.secret import Secret
from paths import ROOT

LAB = "lab-01-toy-regression"
SOURCE = nbformat.writes(read_lab(ROOT / "solutions" / f"{LAB}.md"))
RELEASED = (ROOT / "labs" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
MONDAY, TUESDAY, FRIDAY = ((2026, 3, day, 10, 0, 0) for day in (2, 3, 6))
MOODLE = "_assignsubmission_file_/"


@pytest.fixture
def root(tmp_path):
    """A course folder with one lab."""
    path = tmp_path / "course"
    (path / "source" / LAB).mkdir(parents=True)
    (path / "source" / LAB / f"{LAB}.ipynb").write_text(SOURCE, encoding="utf-8")
    return path


@pytest.fixture
def run(root):
    """Collect twice, check that the second time changes nothing, and return the result for each student."""

    def run(*files):
        collected = collect(LAB, list(files), root)
        before = state(root)
        collect(LAB, list(files), root)
        assert state(root) == before, "a second run changes something"
        for one in collected:
            assert one.path is None or one.path == root / "submitted" / one.student / LAB / f"{LAB}.ipynb"
        assert not [path for path in root.iterdir() if path.name.startswith(".")], "something is left over"
        return {one.student: one for one in collected}

    return run


def state(root):
    """All files in a folder, with their dates."""
    return {
        path.relative_to(root): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def notebook(text="print('hello')"):
    """A notebook of the lab with its own text."""
    content = json.loads(RELEASED)
    content["cells"].append({"cell_type": "code", "id": "own", "metadata": {}, "outputs": [], "source": text})
    return json.dumps(content)


def zipped(path, entries, date=MONDAY):
    """Write a zip from contents by name; a name may be a ZipInfo."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items() if isinstance(entries, dict) else entries:
            info = zipfile.ZipInfo(name, date) if isinstance(name, str) else name
            info.compress_type = info.compress_type or zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return path


def zip_bytes(entries):
    buffer = io.BytesIO()
    zipped(buffer, entries)
    return buffer.getvalue()


def put(path, content, date=MONDAY):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    when = datetime(*date).timestamp()
    os.utime(path, (when, when))
    return path


def submitted(root):
    """The texts of all collected notebooks, by path."""
    folder = root / "submitted"
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def said(one):
    return " ".join(one.notes)


# Names


def test_a_zip_of_moodle_with_a_folder_for_each_student(tmp_path, root, run):
    texts = [notebook(name) for name in "abc"]
    result = run(
        zipped(
            tmp_path / "moodle.zip",
            {
                f"Ada Lovelace_123456{MOODLE}{LAB}.ipynb": texts[0],
                f"Ada Lovelace_123457{MOODLE}my work/{LAB}.ipynb": texts[1],
                f"Participant_9_assignsubmission_file/{LAB}.ipynb": texts[2],
                "Participant_9_assignsubmission_onlinetext/onlinetext.html": "<p>See the file</p>",
            },
        )
    )
    assert submitted(root) == {
        f"Ada-Lovelace_123456/{LAB}/{LAB}.ipynb": texts[0],
        f"Ada-Lovelace_123457/{LAB}/{LAB}.ipynb": texts[1],
        f"Participant_9/{LAB}/{LAB}.ipynb": texts[2],
    }
    assert [one.notes for one in result.values()] == [[], [], []]


def test_a_zip_of_moodle_without_folders(tmp_path, root, run):
    prefix = MOODLE.rstrip("/")
    run(
        zipped(
            tmp_path / "moodle.zip",
            {f"Ada Lovelace_1{prefix}{LAB}.ipynb": notebook("a"), f"Bo_2{prefix}{LAB}.ipynb": notebook("b")},
        )
    )
    assert submitted(root) == {
        f"Ada-Lovelace_1/{LAB}/{LAB}.ipynb": notebook("a"),
        f"Bo_2/{LAB}/{LAB}.ipynb": notebook("b"),
    }


def test_a_zip_of_canvas_with_late_and_anonymous_ones(tmp_path, root, run):
    result = run(
        zipped(
            tmp_path / "canvas.zip",
            {
                f"lovelaceada_12345_678901_{LAB}.ipynb": notebook("a"),
                f"boleyn_LATE_12346_678902_{LAB}.ipynb": notebook("b"),
                f"anon_aB3xZ_678903_{LAB}.ipynb": notebook("c"),
                f"LATE_anon_dE4yW_678904_{LAB}.ipynb": notebook("d"),
                "typist_777_text.html": "<p>My answer</p>",
            },
        )
    )
    assert submitted(root) == {
        f"lovelaceada_12345/{LAB}/{LAB}.ipynb": notebook("a"),
        f"boleyn_12346/{LAB}/{LAB}.ipynb": notebook("b"),
        f"anon_aB3xZ/{LAB}/{LAB}.ipynb": notebook("c"),
        f"anon_dE4yW/{LAB}/{LAB}.ipynb": notebook("d"),
        f"boleyn_12346/{LAB}/{LATE_IN_CANVAS}": "Canvas says that it was late.\n",
        f"anon_dE4yW/{LAB}/{LATE_IN_CANVAS}": "Canvas says that it was late.\n",
        f"lovelaceada_12345/{LAB}/{CANVAS_FILE}": f"lovelaceada_12345_678901_{LAB}.ipynb",
        f"boleyn_12346/{LAB}/{CANVAS_FILE}": f"boleyn_LATE_12346_678902_{LAB}.ipynb",
        f"anon_aB3xZ/{LAB}/{CANVAS_FILE}": f"anon_aB3xZ_678903_{LAB}.ipynb",
        f"anon_dE4yW/{LAB}/{CANVAS_FILE}": f"LATE_anon_dE4yW_678904_{LAB}.ipynb",
    }
    assert [name for name, one in result.items() if "late" in said(one)] == ["anon_dE4yW", "boleyn_12346"]
    assert "no notebook" in said(result["typist_777"])


HAND_IN = f"HAND-IN-{LAB}.ipynb"  # the file that `mlcourse submit` writes


@pytest.mark.parametrize(
    ("names", "students"),
    [
        (
            [f"Ada Lovelace_123456{MOODLE}{HAND_IN}", f"Bo_2{MOODLE.rstrip('/')}{HAND_IN}"],
            ["Ada-Lovelace_123456", "Bo_2"],
        ),
        ([f"lovelaceada_12_345_{HAND_IN}", f"bo_LATE_3_4_{HAND_IN}"], ["lovelaceada_12", "bo_3"]),
        ([f"ada/{HAND_IN}", f"bo/hand-in/{HAND_IN}"], ["ada", "bo"]),
        ([f"class/ada/{HAND_IN}", f"class/bo/{HAND_IN}"], ["ada", "bo"]),
        ([f"ada_{HAND_IN}", f"Bo {HAND_IN}"], ["ada", "Bo"]),
    ],
    ids=["Moodle", "Canvas", "folders", "a folder around folders", "files with names"],
)
def test_the_file_to_hand_in_is_taken_as_it_is(tmp_path, root, run, names, students):
    result = run(zipped(tmp_path / "class.zip", {name: notebook(name) for name in names}))
    beside = (LATE_IN_CANVAS, CANVAS_FILE)
    found = {path: text for path, text in submitted(root).items() if not path.endswith(beside)}
    assert found == {
        f"{student}/{LAB}/{LAB}.ipynb": notebook(name) for student, name in zip(students, names, strict=True)
    }
    assert all(note == "Canvas says that it was late." for one in result.values() for note in one.notes)


def test_the_file_to_hand_in_comes_before_an_older_one_beside_it(tmp_path, root, run):
    folder = tmp_path / "class"
    put(folder / "ada" / f"{LAB}-2026-03-02-100000.ipynb", notebook("old"), FRIDAY)
    put(folder / "ada" / HAND_IN, notebook("new"), MONDAY)
    run(folder)
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook("new")}


def test_files_to_hand_in_without_a_name_are_one_clear_sentence_and_the_others_are_collected(tmp_path, root, run):
    folder = tmp_path / "class"
    for name in (HAND_IN, f"HAND-IN-{LAB} (1).ipynb", f"ada_{HAND_IN}"):
        put(folder / name, notebook(name))
    result = run(folder)
    assert submitted(root).keys() == {f"ada/{LAB}/{LAB}.ipynb"}
    (missed,) = (one for one in result.values() if one.path is None)
    assert missed.notes == [
        "Not collected: its name is that of the lab alone: put the student's name before it, or put it into a folder "
        "with the student's name."
    ]


def test_of_files_handed_in_again_to_canvas_the_highest_number_wins(tmp_path, root, run):
    names = [f"{LAB}.ipynb", f"{LAB}-10.ipynb", f"{LAB}-2.ipynb"]
    entries = {f"ada_1_{90 - number}_{name}": notebook(name) for number, name in enumerate(names)}
    entries[f"ada_1_10_{LAB}-10.ipynb"] = notebook("the same number, uploaded before")
    result = run(zipped(tmp_path / "canvas.zip", entries))
    assert submitted(root) == {
        f"ada_1/{LAB}/{LAB}.ipynb": notebook(f"{LAB}-10.ipynb"),
        f"ada_1/{LAB}/{CANVAS_FILE}": f"ada_1_89_{LAB}-10.ipynb",
    }
    assert "4 times" in said(result["ada_1"])


def test_who_uploads_the_same_notebook_to_canvas_again_gets_feedback_under_the_last_number(tmp_path, root, run):
    for upload in (10, 90, 20):  # the last archive is an old one
        run(zipped(tmp_path / "canvas.zip", {f"ada_1_{upload}_{LAB}.ipynb": notebook()}))
    assert submitted(root)[f"ada_1/{LAB}/{CANVAS_FILE}"] == f"ada_1_90_{LAB}.ipynb"


@pytest.mark.parametrize("wrapped", ["", "submissions/", "CS101-Lab 1-4711/"])
@pytest.mark.parametrize("packed", [True, False])
def test_folders_and_files_of_students(tmp_path, root, run, wrapped, packed):
    entries = {
        f"{wrapped}ada/{LAB}.ipynb": notebook("a"),
        f"{wrapped}bo/{LAB}/{LAB}.ipynb": notebook("b"),
        f"{wrapped}cyd.ipynb": notebook("c"),
        f"{wrapped}dan_{LAB}.ipynb": notebook("d"),
        f"{wrapped}eve-{LAB} (1).ipynb": notebook("e"),
        f"{wrapped}fay.zip": zip_bytes({f"{LAB}.ipynb": notebook("f")}),
        f"{wrapped}__MACOSX/ada/._{LAB}.ipynb": b"resource fork",
        f"{wrapped}ada/.ipynb_checkpoints/{LAB}-checkpoint.ipynb": notebook("old"),
        f"{wrapped}.DS_Store": b"\0",
    }
    for name, content in entries.items():
        put(tmp_path / "class" / name, content)
    result = run(zipped(tmp_path / "class.zip", entries) if packed else tmp_path / "class")
    students = ["ada", "bo", "cyd", "dan", "eve", "fay"]
    assert submitted(root) == {f"{name}/{LAB}/{LAB}.ipynb": notebook(name[0]) for name in students}
    assert [one.notes for one in result.values()] == [[]] * 6


def test_lms_names_in_a_folder_and_a_single_notebook(tmp_path, root, run):
    put(tmp_path / "unpacked" / f"Ada_1{MOODLE}" / f"{LAB}.ipynb", notebook("a"))
    single = put(tmp_path / "bo.ipynb", notebook("b"))
    assert set(run(tmp_path / "unpacked", single)) == {"Ada_1", "bo"}


def test_a_folder_around_the_folder_of_one_student_of_moodle(tmp_path, root, run):
    assert set(run(zipped(tmp_path / "a.zip", {f"CS101/Ada_1{MOODLE}{LAB}.ipynb": notebook()}))) == {"Ada_1"}


OF_A_CLASS = {
    "a file is named after the lab and its student": ["ada.ipynb", "ben.ipynb", "lab-1 eve.ipynb"],
    "every file is": ["lab-1 ada.ipynb", "Lab01_ben.ipynb"],
    "a folder is": ["ada/x.ipynb", "ben/x.ipynb", "Lab1 Eve/x.ipynb"],
    "a file is named after the lab": ["ada.ipynb", "ben.ipynb", f"{LAB}.ipynb"],
    "there is a folder around the folder": ["Lab 1/ada.ipynb", "Lab 1/ben.ipynb"],
    "one handed in no notebook": ["ada/x.ipynb", "ben/x.pdf"],
}


@pytest.mark.parametrize("names", OF_A_CLASS.values(), ids=OF_A_CLASS)
def test_nobody_in_a_folder_of_a_class_is_lost_without_a_word(tmp_path, root, run, names):
    result = run(zipped(tmp_path / "a.zip", {f"class/{name}": notebook(name) for name in names}))
    collected = " ".join(submitted(root).values())
    assert len(result) == len(names)
    for name, one in zip(names, (result[student] for student in sorted(result, key=str.casefold)), strict=True):
        assert name in collected if one.path else "Not collected" in said(one), name
    assert sum(one.path is None for one in result.values()) == sum(f"{LAB}.ipynb" in n or "pdf" in n for n in names)


@pytest.mark.parametrize(
    "names",
    [
        [f"{LAB}.ipynb", f"{LAB} (1).ipynb", f"{LAB}-Copy1.ipynb", "Lab 1.ipynb"],
        [f"{LAB}.ipynb", "data/table.csv"],
        [f"{LAB}/{LAB}.ipynb", f"{LAB}/data/table.csv"],
        ["x.ipynb"],
    ],
)
def test_a_folder_in_which_all_is_named_after_the_lab_is_that_of_one_student(tmp_path, root, run, names):
    result = run(zipped(tmp_path / "a.zip", {f"ada/{name}": notebook() for name in names}))
    assert list(result) == ["ada"] and result["ada"].path


LONG_NAMES = ["-" * 60_000, "_1" * 30_000, "ada_1_" + "9" * 5000 + "_x", "lab1" + "1" * 60_000, "a/" * 30_000 + "x"]


@pytest.mark.parametrize("top", ["", "class/"])
@pytest.mark.parametrize("name", LONG_NAMES, ids=lambda name: name[:7])
def test_a_name_without_end_takes_no_time_and_the_others_are_collected(tmp_path, root, run, top, name):
    began = time.process_time()
    result = run(zipped(tmp_path / "a.zip", {f"{top}{name}.ipynb": notebook(), f"{top}ben.ipynb": notebook()}))
    assert result["ben"].path and len(result) == 2
    assert name[1] == "/" or all("longer than 255 bytes" in said(result[one]) for one in result if one != "ben")
    assert time.process_time() - began < 5


def test_a_student_cannot_hand_in_for_another(tmp_path, root, run):
    entries = {
        f"Eve_1{MOODLE}Ada_2{MOODLE}{LAB}.ipynb": notebook("e"),
        f"Ada_2{MOODLE}{LAB}.ipynb": notebook("a"),
    }
    run(zipped(tmp_path / "moodle.zip", entries))
    canvas = {f"eve_1_2_bo_3_4_{LAB}.ipynb": notebook("e"), f"bo_3_4_{LAB}.ipynb": notebook("b")}
    run(zipped(tmp_path / "canvas.zip", canvas))
    found = {name: text for name, text in submitted(root).items() if not name.endswith(CANVAS_FILE)}
    assert {name.split("/")[0]: json.loads(text)["cells"][-1]["source"] for name, text in found.items()} == {
        "Ada_2": "a",
        "Eve_1": "e",
        f"eve_1_2_bo_3_4_{LAB}": "e",
        "bo_3": "b",
    }


IDENTIFIERS = {
    "Ada Lovelace_12": "Ada-Lovelace_12",
    "Ægir Þórsson": "Ægir-Þórsson",
    "李小龍": "李小龍",
    "अनिता": "अनिता",
    "o'neil, ada (2)": "o-neil-ada-2",
    "ada@example.org": "ada@example.org",
    "..ada": "ada",
    "--ada": "ada",
    "ada*?[x]{y}%z;$(rm)": "ada-x-y-z-rm",
    "a\nb\0c\u202ed": "a-b-c-d",
}


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_an_identifier_is_a_safe_name_of_a_folder(name):
    assert identifier(name) == IDENTIFIERS[name]


@pytest.mark.parametrize("name", ["", ".", "..", "***", " ", "a/b", "../a", "x" * 121, "李" * 50])
def test_a_name_that_no_folder_should_have_is_refused(name):
    with pytest.raises(GradingError):
        identifier(name)


def test_two_students_who_would_get_one_identifier_are_both_named_and_the_others_are_collected(tmp_path, root, run):
    entries = {f"{name}.ipynb": notebook() for name in ("Ann Lee", "ann-lee", "bo")}
    result = run(zipped(tmp_path / "a.zip", entries))
    assert [name for name, one in result.items() if one.path] == ["bo"]
    assert all("'Ann Lee' and 'ann-lee' would both be" in said(result[name]) for name in ("Ann Lee", "ann-lee"))


def test_one_student_with_an_accent_written_in_two_ways_is_one(tmp_path, root, run):
    names = [unicodedata.normalize(form, "Zoé") for form in ("NFC", "NFD")]
    files = [zipped(tmp_path / f"{n}.zip", {f"{name}.ipynb": notebook()}) for n, name in enumerate(names)]
    assert set(run(*files)) == {"Zoé"}


def test_two_students_whose_names_differ_in_the_spelling_of_an_accent_alone_are_both_named(tmp_path, root, run):
    names = [unicodedata.normalize(form, "Zoé") for form in ("NFC", "NFD")]
    result = run(zipped(tmp_path / "a.zip", {f"{name}/{LAB}.ipynb": notebook(name) for name in [*names, "bo"]}))
    assert [name for name, one in result.items() if one.path] == ["bo"]
    assert all("would both be" in said(result[name]) for name in names)


@pytest.mark.parametrize("end", ["_/", "_"])
def test_a_name_with_the_mark_of_moodle_in_it_takes_nobody_else_s_place(tmp_path, root, run, end):
    mine, mark = notebook("Bob's"), "_assignsubmission_file"
    entries = {f"Bob_1{mark}{end}{LAB}.ipynb": mine, f"Bob_1{mark}_x_2{mark}{end}{LAB}.ipynb": notebook("Eve's")}
    result = run(zipped(tmp_path / "a.zip", entries))
    assert submitted(root) == {f"Bob_1/{LAB}/{LAB}.ipynb": mine}
    assert "nobody can tell whose it is" in said(result[f"Bob_1{mark}_x_2"])


@pytest.mark.parametrize(
    ("entry", "student"),
    [
        (f"Bob_1_assignsubmission_file_/.{LAB}.ipynb", "Bob_1"),
        (f"class/bob/.ipynb_checkpoints/{LAB}-checkpoint.ipynb", "bob"),
    ],
)
def test_whoever_handed_in_only_what_a_program_keeps_is_named(tmp_path, root, run, entry, student):
    folder = entry.split("/.")[0]
    others = [folder.replace("Bob_1", name).replace("bob", name) for name in ("ada", "eve")]
    result = run(zipped(tmp_path / "a.zip", {entry: notebook()} | {f"{one}/{LAB}.ipynb": notebook() for one in others}))
    assert len(result) == 3 and "a file that a program keeps for itself" in said(result[student])
    assert result[student].path is None


def test_a_name_that_begins_with_a_dot_is_that_of_a_student(tmp_path, root, run):
    entries = {f"{name}_assignsubmission_file_/{LAB}.ipynb": notebook() for name in (".Bob_1", "Ada_2")}
    assert set(run(zipped(tmp_path / "a.zip", entries))) == {"Bob_1", "Ada_2"}


def test_a_file_that_names_no_student_is_listed_and_the_others_are_collected(tmp_path, root, run):
    entries = {f"{LAB}.ipynb": notebook(), "ada.ipynb": notebook(), "x" * 130 + ".ipynb": notebook()}
    result = run(zipped(tmp_path / "a.zip", entries))
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert all("Not collected" in said(one) for one in result.values() if not one.path)
    assert len(result) == 3


# Which notebook


def test_the_notebook_of_the_lab_is_taken_among_others(tmp_path, root, run):
    entries = {f"ada/{name}": notebook(name) for name in (f"{LAB}.ipynb", "notes.ipynb", f"{LAB} (1).ipynb")}
    result = run(zipped(tmp_path / "a.zip", {**entries, "bo/x.ipynb": notebook()}))
    assert submitted(root)[f"ada/{LAB}/{LAB}.ipynb"] == notebook(f"{LAB}.ipynb")
    assert "notes.ipynb" in said(result["ada"])


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 100, b"PK\x03\x04"])
def test_a_broken_notebook_is_collected_so_that_its_student_gets_the_reason(tmp_path, root, run, content):
    result = run(zipped(tmp_path / "a.zip", {"ada/mine.ipynb": content, "bo/x.ipynb": notebook()}))
    assert result["ada"].path.read_bytes() == content
    assert "mine.ipynb" in said(result["ada"])


def test_a_zip_in_the_place_of_a_notebook_is_opened_but_no_zip_in_that(tmp_path, root, run):
    inner = zip_bytes({f"work/{LAB}.ipynb": notebook("a"), f"__MACOSX/._{LAB}.ipynb": b"", "data.csv": b"1"})
    nested = zip_bytes({"inner.zip": inner})
    result = run(zipped(tmp_path / "a.zip", {f"Ada_1{MOODLE}lab.zip": inner, f"Bo_2{MOODLE}lab.zip": nested}))
    assert submitted(root) == {f"Ada_1/{LAB}/{LAB}.ipynb": notebook("a")}
    assert "no notebook" in said(result["Bo_2"])


def test_a_student_without_a_notebook_is_listed_with_what_there_was(tmp_path, root, run):
    result = run(zipped(tmp_path / "a.zip", {f"Ada_1{MOODLE}report.pdf": b"%PDF", f"Bo_2{MOODLE}x.ipynb": notebook()}))
    assert (result["Ada_1"].path, result["Bo_2"].path is not None) == (None, True)
    assert "report.pdf" in said(result["Ada_1"])


def test_only_the_notebook_is_collected_of_what_a_student_hands_in(tmp_path, root, run):
    other = {f"Ada_1{MOODLE}{name}": b"x" for name in ("numpy.py", "timestamp.txt", "sub/conftest.py")}
    run(zipped(tmp_path / "a.zip", {f"Ada_1{MOODLE}{LAB}.ipynb": notebook(), **other}))
    assert list(submitted(root)) == [f"Ada_1/{LAB}/{LAB}.ipynb"]


# Hostile zips


PATHS = [
    "../../evil.ipynb",
    "/tmp/evil.ipynb",
    "..\\..\\evil.ipynb",
    "C:\\evil.ipynb",
    "C:evil.ipynb",
    "a/../../evil.ipynb",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_leads_out_of_the_zip_is_refused_and_the_others_are_collected(tmp_path, root, run, path):
    before = set(tmp_path.rglob("*"))
    inner = zip_bytes({path: notebook("evil")})
    entries = {
        path: notebook("evil"),
        f"Eve_1{MOODLE}{path}": notebook("evil"),
        f"Fay_2{MOODLE}lab.zip": inner,
        f"Ada_3{MOODLE}{LAB}.ipynb": notebook("good"),
    }
    result = run(zipped(tmp_path / "a.zip", entries))
    good = {name for name, one in result.items() if one.path}
    assert "Ada_3" in good
    assert "leads out" in said(result["Fay_2"])
    new = {path.name for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert new == {"a.zip", f"{LAB}.ipynb"}
    assert not [name for name in good if "evil" in name]


def link(name):
    info = zipfile.ZipInfo(name, MONDAY)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


def test_a_symbolic_link_in_a_zip_is_refused(tmp_path, root, run):
    entries = [
        (link(f"Eve_1{MOODLE}{LAB}.ipynb"), "/etc/passwd"),
        (f"Fay_2{MOODLE}lab.zip", zip_bytes([(link(f"{LAB}.ipynb"), "/etc/passwd")])),
        (f"Ada_3{MOODLE}{LAB}.ipynb", notebook()),
    ]
    result = run(zipped(tmp_path / "a.zip", entries))
    assert list(submitted(root)) == [f"Ada_3/{LAB}/{LAB}.ipynb"]
    assert all("a link" in said(result[name]) for name in ("Eve_1", "Fay_2"))


def test_of_many_files_of_one_kind_that_are_left_out_five_are_named(tmp_path, root, run):
    links = zip_bytes([(link(f"{number}.ipynb"), "/etc/passwd") for number in range(300)])
    uploads = {f"fay_1_{number}_{number % 20}.ipynb": "{}" for number in range(60)}
    result = run(zipped(tmp_path / "a.zip", {"eve_1_2_x.zip": links, **uploads}))
    assert len(result["eve_1"].notes) == 7 and "And 295 more of that kind." in said(result["eve_1"])
    assert said(result["fay_1"]).count("handed in 3 times") == 5 and "And 15 more" in said(result["fay_1"])


def test_a_symbolic_link_in_a_folder_is_not_followed(tmp_path, root, run):
    secret = put(tmp_path / "secret" / f"{LAB}.ipynb", notebook("secret"))
    put(tmp_path / "class" / "ada" / f"{LAB}.ipynb", notebook())
    (tmp_path / "class" / "eve").mkdir()
    (tmp_path / "class" / "eve" / f"{LAB}.ipynb").symlink_to(secret)
    (tmp_path / "class" / "fay").symlink_to(secret.parent)
    os.mkfifo(tmp_path / "class" / "gus.ipynb")
    result = run(tmp_path / "class")
    assert list(submitted(root)) == [f"ada/{LAB}/{LAB}.ipynb"]
    assert set(result) == {"ada", "eve", "fay", "gus"}


def test_an_encrypted_notebook_is_refused(tmp_path, root, run):
    path = zipped(tmp_path / "a.zip", {"ada.ipynb": notebook(), "eve.ipynb": notebook()})
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        content[content.rindex(mark) + offset] |= 1
    path.write_bytes(content)
    result = run(path)
    assert (result["ada"].path is not None, result["eve"].path) == (True, None)
    assert "encrypted" in said(result["eve"])


def test_a_file_that_unpacks_to_more_than_a_notebook_can_be_is_refused(tmp_path, root, run):
    bomb = b"[" * (module.MAX_BYTES + 1)
    entries = {
        f"Eve_1{MOODLE}{LAB}.ipynb": bomb,
        f"Fay_2{MOODLE}lab.zip": zip_bytes({f"{LAB}.ipynb": bomb}),
        f"Ada_3{MOODLE}{LAB}.ipynb": notebook(),
    }
    result = run(zipped(tmp_path / "a.zip", entries))
    assert [name for name, one in result.items() if one.path] == ["Ada_3"]
    assert all("larger than 20 MB" in said(result[name]) for name in ("Eve_1", "Fay_2"))


def test_what_a_student_hands_in_is_counted_in_all_whatever_the_zip_says_of_it(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_STUDENT_BYTES", 200_000)
    many = {f"Eve_1{MOODLE}{number}.ipynb": b" " * 60_000 for number in range(8)}
    path = zipped(tmp_path / "a.zip", {**many, f"Fay_2{MOODLE}{LAB}.ipynb": notebook()})
    result = run(path)
    assert result["Fay_2"].path
    assert said(result["Eve_1"]).count("unpacks to more") == 5


def test_a_zip_that_lies_about_a_size_is_not_believed(tmp_path, root, run):
    path = zipped(tmp_path / "a.zip", {"ada.ipynb": notebook(), "eve.ipynb": b" " * 10**6})
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 24
    content[at : at + 4] = struct.pack("<L", 10)
    path.write_bytes(content)
    result = run(path)
    assert (result["ada"].path is not None, result["eve"].path) == (True, None)


def test_what_some_students_hand_in_leaves_the_others_their_room(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_CLASS_BYTES", 10 * len(notebook()), raising=False)  # there is none
    entries = {f"eve{number}.ipynb": b" " * len(notebook()) for number in range(50)}
    result = run(zipped(tmp_path / "a.zip", {**entries, "zoe.ipynb": notebook()}))
    assert result["zoe"].path


def test_of_notebooks_of_other_names_no_more_are_read_than_one_may_hold(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(submissions, "MAX_BYTES", len(notebook()) + 10)
    read = []
    monkeypatch.setattr(submissions, "_holds", lambda path, source: read.append(path.name))
    run(zipped(tmp_path / "class.zip", {"ada/work.zip": zip_bytes({f"{n}.ipynb": notebook() for n in range(5)})}))
    assert read == ["0.ipynb"] * 2, "it is collected twice"


def test_of_more_notebooks_than_anybody_has_the_first_are_looked_at(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_NOTEBOOKS", 3)
    names = [f"{LAB}.ipynb", *(f"{n}.ipynb" for n in range(9))]
    entries = {"ada/work.zip": zip_bytes(dict.fromkeys(names, notebook("a"))), f"bo/{LAB}.ipynb": notebook("b")}
    result = run(zipped(tmp_path / "class.zip", entries))
    assert set(submitted(root)) == {f"{student}/{LAB}/{LAB}.ipynb" for student in ("ada", "bo")}
    assert "one of more than 3 notebooks" in said(result["ada"]) and "And 2 more of that kind" in said(result["ada"])


def test_a_student_with_more_zips_than_files_may_be_open_is_collected(tmp_path, root, run):
    folder = tmp_path / "class" / "ada"
    folder.mkdir(parents=True)
    for n in range(100):
        (folder / f"{n:03}.zip").write_bytes(zip_bytes({}))
    (folder / "last.zip").write_bytes(zip_bytes({f"{LAB}.ipynb": notebook("a")}))
    (tmp_path / "class" / "bo").mkdir()
    (tmp_path / "class" / "bo" / f"{LAB}.ipynb").write_text(notebook("b"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, limits[1]))
    try:
        result = run(tmp_path / "class")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert set(submitted(root)) == {f"{student}/{LAB}/{LAB}.ipynb" for student in ("ada", "bo")}, result


def test_a_folder_that_becomes_a_link_while_it_is_collected_is_not_followed(tmp_path, root, run, monkeypatch):
    own, other = tmp_path / "class" / "eve" / "work", tmp_path / "instructor"
    for folder, text in ((own, "of eve"), (other, "of the instructor"), (tmp_path / "class" / "bo", "of bo")):
        folder.mkdir(parents=True)
        (folder / f"{LAB}.ipynb").write_text(notebook(text))
    by_student = module._by_student

    def exchanged(*arguments):
        if not own.is_symlink():
            own.rename(tmp_path / "before")
            own.symlink_to(other)
        return by_student(*arguments)

    monkeypatch.setattr(module, "_by_student", exchanged)
    result = run(tmp_path / "class")
    assert set(submitted(root)) == {f"bo/{LAB}/{LAB}.ipynb"}
    assert "cannot be read" in said(result["eve"]) and "Not a directory" in said(result["eve"])


@pytest.mark.parametrize("of_class", [True, False])
def test_a_file_without_a_name_is_named_and_the_others_are_collected(tmp_path, root, run, of_class):
    entries = {f"ada/{LAB}.ipynb": notebook("a"), f"bo/{LAB}.ipynb": notebook("b")}
    data = zip_bytes({**(entries if of_class else {f"{LAB}.ipynb": notebook("a")}), "Q": b"x"})
    at = data.rindex(b"PK\x01\x02") + 46
    data = data[:at] + b"\0" + data[at + 1 :]
    path = tmp_path / "class.zip"
    path.write_bytes(data)
    if not of_class:
        zipped(path, {"ada/work.zip": data, f"bo/{LAB}.ipynb": notebook("b")})
    result = run(path)
    assert {f"{student}/{LAB}/{LAB}.ipynb" for student in ("ada", "bo")} == set(submitted(root))
    assert not of_class or "it has no name" in said(result["file-without-a-name"])


def test_a_zip_with_too_many_files_is_refused(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_CLASS_ENTRIES", 10)
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    many = {f"{number}.ipynb": b"" for number in range(11)}
    with pytest.raises(GradingError, match="11 files"):
        collect(LAB, [zipped(tmp_path / "many.zip", many)], root)
    result = run(zipped(tmp_path / "a.zip", {"eve.zip": zip_bytes(many), "ada.ipynb": notebook()}))
    assert [name for name, one in result.items() if one.path] == ["ada"]


def test_a_student_with_many_files_leaves_the_others_their_room(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    many = {f"eve/venv/{number}.py": b"" for number in range(20)}
    result = run(zipped(tmp_path / "a.zip", {**many, "ada/a.ipynb": notebook()}))
    assert [name for name, one in result.items() if one.path] == ["ada"]


@pytest.mark.parametrize("around", ["class", "around/class"])
@pytest.mark.parametrize("many", [".git/objects", "venv"])
def test_a_folder_with_many_files_beside_a_notebook_is_left_out_and_the_notebook_collected(
    tmp_path, root, run, monkeypatch, around, many
):
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    for name in [f"eve/{many}/{number}.py" for number in range(20)] + [
        f"{who}/{LAB}.ipynb" for who in ("ada", "eve", "zoe")
    ]:
        path = tmp_path / around / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook() if path.suffix == ".ipynb" else "")
    result = run(tmp_path / around.split("/")[0])
    assert [name for name, one in result.items() if one.path] == ["ada", "eve", "zoe"]
    assert "more than 10 files and folders" in said(result["eve"])


def test_the_zips_of_a_student_hold_no_more_files_in_all_than_one_may(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    some = zip_bytes({f"{number}.txt": b"" for number in range(8)})
    files = {f"eve/{name}.zip": some for name in "abc"}
    result = run(zipped(tmp_path / "a.zip", {**files, "ada.ipynb": notebook()}))
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert said(result["eve"]).count("8 files, more than 2") == 2


def list_of_files(n):
    """A zip that lists n files but claims to hold one, without any of them."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    size = n * len(entry)
    return entry * n + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, size, 0, 0)


@pytest.mark.parametrize(
    ("n", "says", "megabytes"), [(300_000, "it holds 300000 files", 40), (1_900_000, "longer than 32 MB", 20)]
)
def test_a_zip_that_lists_more_files_than_it_admits_is_refused_and_takes_no_memory(
    tmp_path, root, run, n, says, megabytes
):
    path = put(tmp_path / "many.zip", list_of_files(n))
    tracemalloc.start()
    with pytest.raises(GradingError, match=says):
        collect(LAB, [path], root)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = run(zipped(tmp_path / "a.zip", {"eve.zip": path.read_bytes(), "ada.ipynb": notebook()}))
    assert most < megabytes * 2**20
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert says in said(result["eve"])


def test_an_extra_field_as_nobody_has_it_is_refused_and_the_others_are_collected(tmp_path, root, run):
    path = tmp_path / "a.zip"
    blocks = struct.pack("<2H", 0xCAFE, 0)
    with zipfile.ZipFile(path, "w") as file:
        for name, n in (("ada", 250), ("eve", 251)):
            entry = zipfile.ZipInfo(f"{LAB}.ipynb", (2026, 1, 1, 0, 0, 0))
            entry.extra = n * blocks
            inner = io.BytesIO()
            with zipfile.ZipFile(inner, "w") as one:
                one.writestr(entry, notebook())
            file.writestr(f"{name}.zip", inner.getvalue())
    result = run(path)
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert "an extra field of more than 1,000 bytes" in said(result["eve"])


def test_a_zip_whose_files_share_their_bytes_is_refused_and_the_others_are_collected(tmp_path, root, run):
    """Else a small zip could be unpacked thousands of times."""
    inner = bytearray(zip_bytes({"0.ipynb": notebook("a" * 3000)}))
    at = inner.index(b"PK\1\2")
    end = inner.index(b"PK\5\6")
    entry = bytes(inner[at:end])
    many = b"".join(entry.replace(b"0.ipynb", b"%d.ipynb" % number) for number in range(9))
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 9, 9, len(many), at, 0)
    result = run(zipped(tmp_path / "a.zip", {"eve.zip": bytes(inner[:at]) + many + last, "ada.ipynb": notebook()}))
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert "its files overlap" in said(result["eve"])


def test_notebooks_that_cannot_be_read_count_like_others(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_NOTEBOOKS", 3)
    broken = bytearray(zip_bytes({f"{number}.ipynb": notebook() for number in range(9)}))
    for found in re.finditer(b"PK\1\2", bytes(broken)):
        broken[found.start() + 16] ^= 1  # the checksum
    result = run(zipped(tmp_path / "a.zip", {"eve.zip": bytes(broken), "ada.ipynb": notebook()}))
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert "one of more than 3 notebooks" in said(result["eve"])


def test_folders_in_a_zip_count_as_entries(tmp_path, root, run, monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 10)
    folders = zip_bytes({f"{number}/": b"" for number in range(8)})
    result = run(zipped(tmp_path / "a.zip", {f"eve/{name}.zip": folders for name in "ab"} | {"ada.ipynb": notebook()}))
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert "8 files, more than" in said(result["eve"])


def test_a_name_in_a_zip_that_only_claims_to_be_utf_8_is_shown_and_the_others_are_collected(tmp_path, root, run):
    entries = {
        "Zoé.ipynb": notebook(),
        f"bo/{LAB}.ipynb": notebook(),
        "bo/é.ipynb": notebook(),
        "ada.ipynb": notebook(),
    }
    path = zipped(tmp_path / "a.zip", entries)
    content = path.read_bytes()
    for name in (b"Zo\xc3\xa9.ipynb", b"bo/\xc3\xa9.ipynb"):  # each stands before the file and in the list at the end
        assert content.count(name) == 2
        content = content.replace(name, name.replace(b"\xc3\xa9", b"\xff\xfe"))
    path.write_bytes(content)
    result = run(path)
    assert sorted(submitted(root)) == [f"{name}/{LAB}/{LAB}.ipynb" for name in ("ada", "bo")]
    assert "Zo\\xff\\xfe is not text in UTF-8" in said(result["Zo\\xff\\xfe"])
    assert "Left out \\xff\\xfe.ipynb: its name is not text in UTF-8" in said(result["bo"])


def test_a_name_in_a_folder_that_is_no_utf_8_is_shown_and_the_others_are_collected(tmp_path, root, run):
    put(tmp_path / "class" / os.fsdecode(b"Zo\xe9") / f"{LAB}.ipynb", notebook())
    put(tmp_path / "class" / "bo" / os.fsdecode(LAB.encode() + b"\xff.ipynb"), notebook("bo"))
    put(tmp_path / "class" / "ada" / f"{LAB}.ipynb", notebook())
    result = run(tmp_path / "class")
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook(), f"bo/{LAB}/{LAB}.ipynb": notebook("bo")}
    assert "Zo\\xe9 is not text in UTF-8" in said(result["Zo\\xe9"])
    assert f"{LAB}\\xff.ipynb" in said(result["bo"])


@pytest.fixture
def nest(tmp_path, monkeypatch):
    """Return a function that nests folders, and remove them, which pytest cannot."""
    nested = []

    def nest(folder, name, depth):
        folder.mkdir(parents=True, exist_ok=True)
        nested.append(folder)
        monkeypatch.chdir(folder)
        for _ in range(depth):  # the path to the last one would be too long
            os.mkdir(name)
            os.chdir(name)
        os.chdir(tmp_path)

    yield nest
    subprocess.run(["rm", "-rf", *nested], check=True)


@pytest.mark.parametrize(("name", "depth", "says"), [("d", 1200, "more than 20 others"), ("d" * 250, 30, "too long")])
def test_folders_in_folders_without_end_are_left_out_and_everybody_is_collected(
    tmp_path, root, run, nest, name, depth, says
):
    for student in ("ada", "eve", "zoe"):
        put(tmp_path / "class" / student / f"{LAB}.ipynb", notebook(student))
    nest(tmp_path / "class" / "eve" / "nested", name, depth)
    result = run(tmp_path / "class")
    assert submitted(root) == {f"{student}/{LAB}/{LAB}.ipynb": notebook(student) for student in ("ada", "eve", "zoe")}
    assert says in said(result["eve"]) and len(said(result["eve"])) < 500
    assert not result["ada"].notes and not result["zoe"].notes


@pytest.mark.skipif(not os.getuid(), reason="root reads every folder")
def test_a_folder_of_a_student_that_may_not_be_read_is_said_and_the_others_are_collected(tmp_path, root, run):
    put(tmp_path / "class" / "ada" / f"{LAB}.ipynb", notebook())
    closed = tmp_path / "class" / "eve" / "closed"
    closed.mkdir(parents=True)
    closed.chmod(0)
    result = run(tmp_path / "class")
    closed.chmod(0o700)
    assert set(submitted(root)) == {f"ada/{LAB}/{LAB}.ipynb"}
    assert "Left out closed: it cannot be read" in said(result["eve"])


def test_a_file_of_40_gb_is_not_read_to_its_end(tmp_path, root, run):
    files = {"ada": "data.csv", "bo": f"{LAB}.ipynb", "cyd": "timestamp.txt", "dan": "lab.zip"}
    for student, name in files.items():
        put(tmp_path / "class" / student / f"{LAB}.ipynb", notebook())
        os.truncate(put(tmp_path / "class" / student / name, ""), 40 * 2**30)
    result = run(tmp_path / "class")
    assert result["bo"].path is None and f"Left out {LAB}.ipynb: it is larger than 20 MB" in said(result["bo"])
    assert submitted(root) == {f"{student}/{LAB}/{LAB}.ipynb": notebook() for student in ("ada", "cyd", "dan")}
    assert "Left out timestamp.txt" in said(result["cyd"]) and "Left out lab.zip" in said(result["dan"])


def test_an_error_that_nobody_thought_of_is_written_down_and_the_others_are_collected(tmp_path, root, monkeypatch):
    choose = module.choose_notebook

    def fail(paths, *more):
        if "unheard-of" in paths[0].read_text():
            raise KeyError("some")
        return choose(paths, *more)

    monkeypatch.setattr(module, "choose_notebook", fail)
    texts = {"ada": "", "eve": "unheard-of", "zoe": ""}
    path = zipped(tmp_path / "a.zip", {f"{name}.ipynb": notebook(text) for name, text in texts.items()})
    result = {one.student: one for one in collect(LAB, [path], root)}
    assert [name for name, one in result.items() if one.path] == ["ada", "zoe"]
    assert "unexpected KeyError ('some'); _build/grading.log says more" in said(result["eve"])
    assert "in fail" in (root / "_build" / "grading.log").read_text()


def test_a_place_that_cannot_be_written_to_is_named_and_the_others_are_collected(tmp_path, root, run):
    put(root / "submitted" / "bo", "a file")
    result = run(zipped(tmp_path / "a.zip", {f"{name}.ipynb": notebook() for name in ("ada", "bo", "cyd")}))
    assert [name for name, one in result.items() if one.path] == ["ada", "cyd"]
    assert "submitted/bo" in said(result["bo"])


def test_of_two_entries_of_one_name_the_last_is_taken(tmp_path, root, run):
    entries = [(f"ada/{LAB}.ipynb", notebook(name)) for name in "ab"]
    with pytest.warns(UserWarning, match="Duplicate"):
        path = zipped(tmp_path / "a.zip", entries)
    result = run(path)
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook("b")}
    assert "is graded" in said(result["ada"])


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_way_of_packing_that_unpacks_in_one_piece_is_refused(tmp_path, root, run, method):
    info = zipfile.ZipInfo("eve.ipynb", MONDAY)
    info.compress_type = method
    result = run(zipped(tmp_path / "a.zip", [(info, notebook()), ("ada.ipynb", notebook())]))
    assert [name for name, one in result.items() if one.path] == ["ada"]


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x05\x06" + b"\xff" * 18, notebook().encode()])
def test_what_is_not_a_zip_is_an_error_for_the_instructor_and_a_note_for_a_student(tmp_path, root, run, content):
    path = put(tmp_path / "a.zip", content)
    with pytest.raises(GradingError, match="a.zip"):
        collect(LAB, [path], root)
    result = run(zipped(tmp_path / "b.zip", {"eve.zip": content, "ada.ipynb": notebook()}))
    assert [name for name, one in result.items() if one.path] == ["ada"]
    assert "not a zip" in said(result["eve"])


@pytest.mark.parametrize("seed", range(60))
def test_no_damage_to_the_zip_of_a_student_stops_the_others(tmp_path, root, run, seed):
    chance = random.Random(seed)
    inner = bytearray(zip_bytes({f"{LAB}.ipynb": notebook(), "ü.txt": b"x" * 50}))
    for _ in range(chance.choice([1, 5, 50])):
        at = chance.choice([chance.randrange(len(inner)), -chance.randrange(1, 200)])
        inner[at] = chance.randrange(256)
    inner = inner[: chance.choice([len(inner), len(inner), chance.randrange(len(inner))])]
    result = run(zipped(tmp_path / "a.zip", {"eve.zip": bytes(inner), "zoe.ipynb": notebook()}))
    assert result["zoe"].path


def test_a_notebook_with_an_endless_name_is_collected(tmp_path, root, run):
    name = f"{'𝒳' * 5000}\n\x07.ipynb"
    result = run(zipped(tmp_path / "a.zip", {f"ada/{name}": notebook()}))
    assert result["ada"].path
    assert said(result["ada"]).isprintable()


@pytest.mark.parametrize("name", ["missing.zip", "missing", "missing.ipynb"])
def test_a_file_that_is_not_there_is_named(tmp_path, root, name):
    with pytest.raises(GradingError, match=name):
        collect(LAB, [tmp_path / name], root)


def test_a_lab_that_is_not_there_is_named(tmp_path, root):
    with pytest.raises(GradingError, match="lab-99"):
        collect("lab-99", [tmp_path], root)


# Again


def test_a_newer_submission_replaces_and_the_older_is_kept_with_what_was_graded(tmp_path, root, run):
    run(zipped(tmp_path / "monday.zip", {"ada.ipynb": notebook("monday")}))
    put(root / "autograded" / "ada" / LAB / f"{LAB}.ipynb", "graded")
    put(root / "feedback" / "ada" / LAB / f"{LAB}.html", "feedback")
    result = run(zipped(tmp_path / "tuesday.zip", {"ada.ipynb": notebook("tuesday")}, TUESDAY))
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook("tuesday")}
    (kept,) = (root / "replaced" / LAB / "ada").iterdir()
    assert kept.name.startswith("2026-03-0")
    assert {path.relative_to(kept).as_posix(): path.read_text() for path in kept.rglob("*") if path.is_file()} == {
        f"submitted/{LAB}.ipynb": notebook("monday"),
        f"autograded/{LAB}.ipynb": "graded",
        f"feedback/{LAB}.html": "feedback",
    }
    assert not (root / "autograded" / "ada" / LAB).exists(), "nbgrader would not grade it again"
    assert "replaces" in said(result["ada"])


def test_what_was_graded_of_a_submission_that_was_deleted_is_not_taken_for_the_next_one(tmp_path, root, run):
    run(zipped(tmp_path / "monday.zip", {"ada.ipynb": notebook("monday")}))
    for step in ("autograded", "feedback"):
        put(root / step / "ada" / LAB / f"{LAB}.ipynb", step)
    shutil.rmtree(root / "submitted" / "ada")
    result = run(zipped(tmp_path / "tuesday.zip", {"ada.ipynb": notebook("tuesday")}, TUESDAY))
    assert "of a submission that was deleted is now in replaced/" in said(result["ada"])
    assert not (root / "autograded" / "ada" / LAB).exists() and not (root / "feedback" / "ada" / LAB).exists()


def test_an_older_submission_does_not_replace_a_newer_one(tmp_path, root, run):
    newer = zipped(tmp_path / "tuesday.zip", {"ada.ipynb": notebook("tuesday")}, TUESDAY)
    older = zipped(tmp_path / "monday.zip", {"ada.ipynb": notebook("monday")})
    run(newer)
    result = run(older)
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook("tuesday")}
    assert "Not taken" in said(result["ada"])
    assert not (root / "replaced").exists()


def test_the_time_of_handing_in_is_not_compared_with_the_date_of_a_file(tmp_path, root, run):
    """Moodle's worksheet says it in the time zone of the course, and the server dates files by its own clock."""
    monday, tuesday = ({f"Ada_1{MOODLE}{LAB}.ipynb": notebook(day)} for day in ("monday", "tuesday"))
    older = zipped(tmp_path / "monday.zip", monday)
    run(older)
    for when in ("2026-03-04 10:00:00 UTC\n", "2026-03-01 10:00:00 UTC\n"):
        (root / "submitted" / "Ada_1" / LAB / "timestamp.txt").write_text(when)
        run(zipped(tmp_path / "tuesday.zip", tuesday, TUESDAY))
        run(older)
        assert submitted(root)[f"Ada_1/{LAB}/{LAB}.ipynb"] == notebook("tuesday")


def test_a_name_is_there_only_when_its_content_is_on_the_disk(tmp_path, root, run, monkeypatch):
    """Else a power cut leaves an empty file, which the next collecting takes for the same one."""
    archive = zipped(tmp_path / "monday.zip", {"ada.ipynb": notebook()})
    path = root / "a-file"
    write_whole(path, "before")

    def fails(_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        for step in (lambda: write_whole(path, "after"), lambda: Secret(root / "secret.json")):
            with pytest.raises((OSError, GradingError), match="Input/output"):
                step()
        result = run(archive)
    assert path.read_text() == "before" and not (root / "secret.json").exists()
    assert result["ada"].path is None and not submitted(root)
    assert run(archive)["ada"].path


def test_of_two_submissions_of_one_date_the_first_stays(tmp_path, root, run):
    result = run(*(zipped(tmp_path / f"{name}.zip", {"ada.ipynb": notebook(name)}) for name in "ab"))
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook("a")}
    assert "Not taken" in said(result["ada"])


def test_a_date_in_the_zip_of_a_student_does_not_count(tmp_path, root, run):
    ahead = io.BytesIO()
    zipped(ahead, {f"{LAB}.ipynb": notebook("monday")}, (2099, 1, 1, 0, 0, 0))
    run(zipped(tmp_path / "monday.zip", {f"Ada_1{MOODLE}lab.zip": ahead.getvalue()}))
    run(zipped(tmp_path / "tuesday.zip", {f"Ada_1{MOODLE}{LAB}.ipynb": notebook("tuesday")}, TUESDAY))
    assert submitted(root) == {f"Ada_1/{LAB}/{LAB}.ipynb": notebook("tuesday")}


def test_the_same_notebook_in_a_later_zip_stays_as_it_was_graded(tmp_path, root, run):
    run(zipped(tmp_path / "monday.zip", {"ada.ipynb": notebook()}))
    put(root / "autograded" / "ada" / LAB / f"{LAB}.ipynb", "graded")
    before = state(root)
    run(zipped(tmp_path / "friday.zip", {"ada.ipynb": notebook()}, FRIDAY))
    assert state(root) == before


def test_several_zips_at_once_end_with_the_newest(tmp_path, root, run):
    days = {"friday": FRIDAY, "monday": MONDAY, "tuesday": TUESDAY}
    run(*(zipped(tmp_path / f"{day}.zip", {"ada.ipynb": notebook(day)}, date) for day, date in days.items()))
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook("friday")}


def test_two_older_ones_of_the_same_date_are_both_kept(tmp_path, root):
    for day, date in (("monday", MONDAY), ("tuesday", TUESDAY)) * 2:
        collect(LAB, [zipped(tmp_path / f"{day}.zip", {"ada.ipynb": notebook(day)}, date)], root)
        if day == "tuesday":
            shutil.rmtree(root / "submitted")
    assert len(list((root / "replaced" / LAB / "ada").iterdir())) == 2


def test_a_timestamp_beside_the_notebook_comes_along_and_tells_which_is_newer(tmp_path, root, run):
    put(tmp_path / "one" / "ada" / LAB / f"{LAB}.ipynb", notebook("one"), FRIDAY)
    put(tmp_path / "one" / "ada" / LAB / "timestamp.txt", "2026-03-01 10:00:00 UTC")
    put(tmp_path / "one" / "bo" / "timestamp.txt", "no date")
    put(tmp_path / "one" / "bo" / f"{LAB}.ipynb", notebook("one"))
    result = run(tmp_path / "one")
    assert submitted(root)[f"ada/{LAB}/timestamp.txt"] == "2026-03-01 10:00:00 UTC"
    assert submitted(root)[f"bo/{LAB}/timestamp.txt.unreadable"] == "no date"
    assert "timestamp.txt" in said(result["bo"])
    assert "says a timestamp.txt among the student's files" in said(result["ada"])
    run(zipped(tmp_path / "two.zip", {"ada.ipynb": notebook("two")}, MONDAY))
    assert submitted(root)[f"ada/{LAB}/{LAB}.ipynb"] == notebook("two")
    assert f"ada/{LAB}/timestamp.txt" not in submitted(root)


def test_the_date_of_a_download_is_not_taken_for_the_time_of_handing_in(tmp_path, root, run):
    run(zipped(tmp_path / "a.zip", {f"Ada_1{MOODLE}{LAB}.ipynb": notebook(), f"bo_1_2_{LAB}.ipynb": notebook()}))
    assert not [path for path in submitted(root) if "timestamp" in path]


NO_DATES = [
    b"",
    b" \n",
    b"9999-12-31 23:59:59 UTC",
    b"0001-01-01 00:00:00 UTC",
    b"\0" * 24,
    b"2026 " * 10**6,
    b"\xff\xfe",
]


@pytest.mark.parametrize("content", NO_DATES, ids=lambda content: f"{content[:12]!r}")
def test_a_timestamp_that_is_no_date_keeps_no_newer_submission_out(tmp_path, root, run, content):
    for name in ("ada", "bo"):
        put(tmp_path / "one" / name / f"{LAB}.ipynb", notebook("monday"))
    put(tmp_path / "one" / "ada" / "timestamp.txt", content)
    result = run(tmp_path / "one")
    assert "timestamp.txt holds no date" in said(result["ada"]) and result["bo"].notes == []
    run(zipped(tmp_path / "two.zip", {f"{name}.ipynb": notebook("tuesday") for name in ("ada", "bo")}, TUESDAY))
    assert submitted(root) == {f"{name}/{LAB}/{LAB}.ipynb": notebook("tuesday") for name in ("ada", "bo")}


def test_a_pipe_for_a_timestamp_is_not_waited_for(tmp_path, root):
    put(root / "submitted" / "ada" / LAB / f"{LAB}.ipynb", notebook("monday"))
    os.mkfifo(root / "submitted" / "ada" / LAB / "timestamp.txt")
    (one,) = collect(LAB, [zipped(tmp_path / "a.zip", {"ada.ipynb": notebook("tuesday")}, TUESDAY)], root)
    assert "It replaces" in said(one) and one.path.read_text() == notebook("tuesday")


def test_a_file_from_the_future_is_replaced_by_any_other_and_replaces_none(tmp_path, root, run):
    ahead = zipped(tmp_path / "ahead.zip", {"ada.ipynb": notebook("ahead")}, (2099, 1, 1, 0, 0, 0))
    assert "cannot be right" in said(run(ahead)["ada"])
    run(zipped(tmp_path / "monday.zip", {"ada.ipynb": notebook("monday")}))
    assert "Not taken: it is of an unknown date" in said(run(ahead)["ada"])
    assert submitted(root) == {f"ada/{LAB}/{LAB}.ipynb": notebook("monday")}
