"""The roster names the class, files find their people, and marks and feedback go back to them."""

import csv
import errno
import io
import json
import re
import shutil
import zipfile
from functools import partial
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from classroom import Classroom
from course import command_in, make_course
from coursegrader import GradingError, canvas
from coursegrader import collect as module
from coursegrader.collect import collect
from coursegrader.export import export
from coursegrader.people import BY_NAME, NOTHING
from coursegrader.report import write_report, write_term_report
from coursegrader.roster import handed_in_nothing, keep_numbers, read_people, read_roster, update_roster, write_roster
from coursegrader.standing import classes
from coursegrader.worksheet import fill_worksheet, write_archive, write_times
from paths import ROOT

LAB = "lab-01-toy-regression"
RELEASED = (ROOT / "labs" / LAB / f"{LAB}.ipynb").read_text(encoding="utf-8")
FILES = "_assignsubmission_file_"
MOODLE = (
    '\ufeff"First name","Last name","ID number","Email address",Groups\n'
    'Ada,Lovelace,1001,ada@example.org,"Group A, Group B"\n'
    "Zoé,O'Brien-Müller,1002,zoe@example.org,\n"
    "Ben,King,1003,ben@example.org,Group A\n"
)
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Lab 1 (4711)\n"
    "    Points Possible,,,,,40\n"
    '"Lovelace, Ada",71,S1,ada,Monday,\n'
    '"King, Ben",72,S2,ben,"Monday and Friday",3\n'
    '"Student, Test",99,,a01b,Monday,\n'
)


@pytest.fixture
def room(tmp_path):
    """A course with one lab of 4 points and an empty gradebook."""
    (tmp_path / "course").mkdir()
    room = Classroom(tmp_path / "course")
    room.add_lab(LAB, {"mean-1": 4})
    (room.root / "source" / LAB).mkdir(parents=True)
    (room.root / "source" / LAB / f"{LAB}.ipynb").write_text(RELEASED, encoding="utf-8")
    return room


@pytest.fixture
def enrol(room, tmp_path):
    """Put the people of a CSV on the roster."""

    def enrol(text):
        return update_roster(written(tmp_path / "people.csv", text), room.gradebook, room.root)

    return enrol


@pytest.fixture
def hand_in(room, tmp_path):
    """Collect a zip with one notebook under each name, and return the identifier and the notes of each student."""

    def hand_in(*names, day=2):
        path = tmp_path / "class.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                content = in_a_zip(notebook(name)) if name.endswith(".zip") else notebook(name)
                archive.writestr(zipfile.ZipInfo(name, (2026, 3, day, 10, 0, 0)), content)
        people = read_roster(room.gradebook, room.root)
        collected = collect(LAB, [path], room.root, people, partial(keep_numbers, people, LAB, root=room.root))
        return {one.student: " ".join(one.notes) for one in collected}

    return hand_in


def written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def in_a_zip(text):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{LAB}.ipynb", text)
    return content.getvalue()


def notebook(text):
    content = json.loads(RELEASED)
    content["cells"].append({"cell_type": "code", "id": "own", "metadata": {}, "outputs": [], "source": text})
    return json.dumps(content)


def in_moodle(name, number):
    return f"{name}_{number}{FILES}/{LAB}.ipynb"


def collected(room):
    return {path.name for path in (room.root / "submitted").iterdir()}


def people(room):
    return {one.student: one for one in read_roster(room.gradebook, room.root)}


# Who is in the class


def test_the_people_of_moodle_are_in_the_gradebook_and_the_rest_is_in_roster_csv(room, enrol):
    assert enrol(MOODLE)[1] == []
    assert {(one.id, one.last_name, one.first_name, one.email) for one in room.gradebook.students} == {
        ("1001", "Lovelace", "Ada", "ada@example.org"),
        ("1002", "O'Brien-Müller", "Zoé", "zoe@example.org"),
        ("1003", "King", "Ben", "ben@example.org"),
    }
    rows = list(csv.DictReader(io.StringIO((room.root / "roster.csv").read_text("utf-8"))))
    assert rows[0] == {"student": "1001", "username": "", "id_number": "1001", "group": "Group A, Group B"}
    assert len(rows) == 3


@pytest.mark.parametrize("sign", [";", "\t", ":"])
def test_moodle_may_separate_columns_by_other_signs_and_say_surname(tmp_path, sign):
    text = sign.join(["First name", "Surname", "Username"]) + "\r\n" + sign.join(["Ada", "Lovelace", "ada"]) + "\r\n"
    ((ada,), _) = read_people(written(tmp_path / "people.csv", text))
    assert (ada.student, ada.first_name, ada.last_name, ada.username) == ("ada", "Ada", "Lovelace", "ada")


def test_who_has_another_email_address_is_no_new_person(room, enrol):
    heading = "First name,Last name,Email address\nAda,Lovelace,ada@example.org\n"
    enrol(f"{heading}Ben,King,ben@example.org\n")
    _, absent, left_out = enrol(f"{heading}Ben,King,king@example.org\nEve,New,e@example.org\n")
    assert absent == [] and people(room).keys() == {"ada@example.org", "ben@example.org", "e@example.org"}
    assert left_out[0].startswith("Ben King is ben@example.org on the roster, but king@example.org in")


def test_an_identifier_is_a_column_that_everybody_has(tmp_path):
    text = MOODLE.replace("1002", "")
    assert [one.student for one in read_people(written(tmp_path / "people.csv", text))[0]] == [
        "ada@example.org",
        "zoe@example.org",
        "ben@example.org",
    ]


def test_the_people_of_canvas_are_read_without_the_rows_that_are_nobodys(room, enrol):
    enrol(CANVAS)
    known = {
        student: (one.last_name, one.first_name, one.lms_user_id, one.id_number, one.group)
        for student, one in people(room).items()
    }
    assert known == {
        "ada": ("Lovelace", "Ada", "71", "S1", "Monday"),
        "ben": ("King", "Ben", "72", "S2", "Monday and Friday"),
    }
    assert room.gradebook.find_student("ada").lms_user_id == "71"


def test_canvas_may_have_a_column_for_each_part_of_the_name(tmp_path):
    text = "LastName,FirstName,ID,SIS Login ID,Section\nLovelace,Ada,71,ada,Monday\n"
    ((ada,), _) = read_people(written(tmp_path / "people.csv", text))
    assert (ada.student, ada.last_name, ada.first_name, ada.lms_user_id) == ("ada", "Lovelace", "Ada", "71")


def test_three_columns_are_enough(room, enrol):
    enrol("id,last name,first name\nada,Lovelace,Ada\n")
    assert people(room)["ada"].name == "Ada Lovelace"


def test_a_second_run_updates_and_loses_neither_people_nor_what_the_file_does_not_say(room, enrol, hand_in):
    enrol(MOODLE)
    hand_in(in_moodle("Ada Lovelace", 7))
    _, absent, _ = enrol('First name,Last name,ID number,Username\nAda,"King-Noel",1001,ada\nEve,New,1004,eve\n')
    assert absent == ["1002", "1003"] and set(people(room)) == {"1001", "1002", "1003", "1004"}
    ada = people(room)["1001"]
    assert (ada.last_name, ada.username, ada.numbers) == ("King-Noel", "ada", {LAB: "7"})
    assert (ada.email, ada.group) == ("ada@example.org", "Group A, Group B")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "First name,Groups\nAda,A\n",
            "lacks columns of a roster: it needs First name, Last name and one of ID number",
        ),
        ("Vorname,Nachname,E-Mail\nAda,Lovelace,a@b.c\n", "Moodle, in English"),
        (MOODLE.replace("1002", "1001"), "Ada Lovelace and Zoé O'Brien-Müller have one identifier, 1001"),
        (MOODLE.replace("zoe@", "ADA@"), "have one email, ada@example.org"),
        (CANVAS.replace("72", "71"), "have one ID of Canvas, 71"),
        (MOODLE.encode("utf-16"), 'export the list of participants again, or save it as "CSV UTF-8"'),
        (MOODLE.encode("latin-1", "replace"), "is not text in UTF-8"),
        ("id,last name,first name\n,Lovelace,Ada\n", "line 2 of .*people.csv has nothing that identifies the person"),
        ("id,last name,first name\n", "names nobody"),
    ],
)
def test_a_file_that_is_no_roster_is_refused_in_a_sentence_and_nothing_is_written(room, enrol, text, says):
    enrol("id,last name,first name\neve,New,Eve\n")
    before = (room.root / "roster.csv").read_bytes()
    with pytest.raises(GradingError, match=says):
        enrol(text)
    assert [one.id for one in room.gradebook.students] == ["eve"]
    assert (room.root / "roster.csv").read_bytes() == before


PARTICIPANTS = "First name,Last name,ID number,Username\nAda,Lovelace,1001,ada\nBen,King,1003,ben\n"


@pytest.mark.parametrize("text", [PARTICIPANTS, MOODLE])
def test_one_who_has_no_id_number_yet_is_left_out_and_the_others_stay_who_they_are(room, enrol, text):
    enrol(text)
    before = set(people(room))
    found, absent, (sentence,) = enrol(f"{text}Eve,New,,eve@example.org\n")
    assert set(people(room)) == {one.student for one in found} == before and absent == []
    assert "has nothing that identifies the person (Eve New): give everybody an ID number" in sentence


def test_who_clears_the_own_id_number_is_not_said_to_have_left(room, enrol):
    enrol(PARTICIPANTS)
    _, absent, left_out = enrol(PARTICIPANTS.replace("1001", ""))
    assert absent == [] and len(left_out) == 1 and people(room)["1001"].username == "ada"


def test_who_takes_the_id_number_of_another_gets_neither_record_nor_points(room, enrol):
    enrol(PARTICIPANTS)
    _, absent, (sentence,) = enrol("First name,Last name,ID number,Username\nBen,King,1001,ben\nEve,New,1004,eve\n")
    assert "Ben King is 1003 on the roster, but 1001, that of Ada Lovelace, in " in sentence and absent == []
    assert people(room)["1001"].name == "Ada Lovelace" and set(people(room)) == {"1001", "1003", "1004"}


def test_a_file_that_would_give_everybody_another_identifier_is_refused(room, enrol):
    enrol(PARTICIPANTS)
    with pytest.raises(GradingError, match="other identifiers, Ada Lovelace ada in the place of 1001: export the list"):
        enrol("First name,Last name,Username\nAda,Lovelace,ada\nBen,King,ben\nEve,New,eve\n")
    assert set(people(room)) == {"1001", "1003"}


def test_an_identifier_that_cannot_be_used_costs_only_its_people_their_place(room, enrol):
    addresses = ("ada-x@example.org", "ada+x@example.org", "a/b@example.org", "ben@example.org")
    rows = [f"P{number},Q,{address}" for number, address in enumerate(addresses)]
    found, _, left_out = enrol("\n".join(["First name,Last name,Email address", *rows]))
    assert [one.first_name for one in found] == ["P3"] and set(people(room)) == {"ben@example.org"}
    assert len(left_out) == 3
    assert (
        sum("ada+x@example.org and ada-x@example.org would both be ada-x@example.org" in one for one in left_out) == 2
    )


def test_no_text_in_roster_csv_is_a_formula_and_all_are_read_as_they_were(room, enrol):
    enrol('First name,Last name,ID number,Username,Groups\nAda,Lovelace,"=1+1",@SUM(A1),"=1;=2"\nBen,King,-2,ben,a\n')
    with (room.root / "roster.csv").open(newline="", encoding="utf-8") as file:
        texts = [text for row in csv.reader(file) for text in row]
    assert not [text for text in texts if text.startswith(tuple("=+-@"))] and "'=1;'=2" in texts
    ada = people(room)["1-1"]
    assert (ada.id_number, ada.username, ada.group) == ("=1+1", "@SUM(A1)", "=1;=2")
    before = (room.root / "roster.csv").read_bytes()
    write_roster(list(people(room).values()), room.root)
    assert (room.root / "roster.csv").read_bytes() == before


@pytest.mark.parametrize("group", ["'=1", "''=1", "'x", "=1", "'';'=1", "x; ''-1"])
def test_a_text_that_looks_escaped_is_read_as_it_was(room, enrol, group):
    enrol(f'First name,Last name,ID number,Groups\nAda,Lovelace,1,"{group}"\n')
    assert people(room)["1"].group == group


def test_a_first_line_without_end_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(GradingError, match="is not a CSV .*: export the list of participants again"):
        read_people(written(tmp_path / "people.csv", "x" * 140_000 + ",First name\n1,2\n"))


def test_a_name_cannot_bring_markup_into_the_pages_of_the_gradebook(room, enrol):
    enrol('id,last name,first name\nada,"<img src=""x"">",Ada\n')
    assert not set('<>"') & set(room.gradebook.find_student("ada").last_name)


# Whose files these are


def test_files_of_moodle_go_to_the_person_with_that_name_without_case_accents_and_order(room, enrol, hand_in):
    enrol(MOODLE)
    notes = hand_in(in_moodle("ada lovelace", 7), in_moodle("OBrien-Muller Zoe", 8))
    assert notes == {"1001": BY_NAME, "1002": BY_NAME}
    assert {student: one.numbers for student, one in people(room).items()} == {
        "1001": {LAB: "7"},
        "1002": {LAB: "8"},
        "1003": {},
    }
    before = (room.root / "roster.csv").read_bytes()
    again = hand_in(in_moodle("ada lovelace", 7), in_moodle("OBrien-Muller Zoe", 8))
    assert again == {"1001": "", "1002": ""}, "now the numbers are known"
    assert (room.root / "roster.csv").read_bytes() == before and collected(room) == {"1001", "1002"}


def test_files_of_canvas_go_to_the_person_with_that_id_whatever_the_name(room, enrol, hand_in):
    enrol(CANVAS)
    notes = hand_in(f"lovelaceada_72_500_{LAB}.ipynb", f"x_LATE_71_501_{LAB}.ipynb", f"kingben_73_502_{LAB}.ipynb")
    assert collected(room) == {"ada", "ben", "kingben_73"}
    assert "lovelaceada_72" in next(iter((room.root / "submitted" / "ben" / LAB).iterdir())).read_text("utf-8")
    assert notes["kingben_73"] == "Not on the roster: nobody there has this ID of Canvas."


def test_who_is_not_on_the_roster_is_collected_as_without_one_and_named(room, enrol, hand_in):
    enrol(MOODLE)
    notes = hand_in(in_moodle("Eve New", 9), in_moodle("Ada Lovelace", 7))
    assert notes == {"Eve-New_9": "Not on the roster: nobody there has this name.", "1001": BY_NAME}


def test_those_who_hand_in_under_one_name_in_any_order_all_stay_apart(room, enrol, hand_in):
    enrol(MOODLE)
    notes = hand_in(in_moodle("Ada Lovelace", 7), in_moodle("ÁDA  Lovelace", 8), in_moodle("Lovelace Ada", 9))
    assert collected(room) == {"Ada-Lovelace_7", "ÁDA-Lovelace_8", "Lovelace-Ada_9"}
    assert all("others, too, handed in under the name of 1001" in note for note in notes.values())
    assert people(room)["1001"].numbers == {}


def test_one_of_two_with_a_name_takes_nobodys_place_when_he_comes_alone_with_another_spelling(room, enrol, hand_in):
    enrol(MOODLE)
    hand_in(in_moodle("Ada Lovelace", 7), in_moodle("ADA LOVELACE", 8))
    notes = hand_in(in_moodle("Ada  Lovelace", 8), day=3)
    assert "others, too, handed in under the name of 1001" in notes["Ada-Lovelace_8"]
    assert people(room)["1001"].numbers == {}


def test_two_of_the_roster_with_one_name_get_their_files_by_the_number_alone(room, enrol, hand_in):
    enrol(MOODLE + "Ada,Lovelace,1009,other@example.org,\n")
    assert "1001 and 1009 of the roster have this name" in hand_in(in_moodle("Ada Lovelace", 7))["Ada-Lovelace_7"]


def test_a_number_that_an_instructor_writes_into_the_roster_decides(room, enrol, hand_in):
    enrol(MOODLE)
    path = room.root / "roster.csv"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([f"{lines[0]},{LAB}", f"{lines[1]},8", *(f"{line}," for line in lines[2:])]) + "\n")
    notes = hand_in(in_moodle("Ada Lovelace", 7), in_moodle("Lovelace Ada", 8), in_moodle("Not Known", 9))
    assert collected(room) == {"Ada-Lovelace_7", "1001", "Not-Known_9"}
    assert "Lovelace Ada" in (room.root / "submitted" / "1001" / LAB / f"{LAB}.ipynb").read_text("utf-8")
    assert "1001 of the roster has this name, but Moodle's number 8" in notes["Ada-Lovelace_7"]
    assert "look at this file and at that of 1001" in notes["Ada-Lovelace_7"]
    assert notes["1001"] == "Others, too, handed in under the name of 1001: look at all of them."


def test_who_takes_the_name_of_another_later_does_not_take_their_place(room, enrol, hand_in):
    enrol(MOODLE)
    hand_in(in_moodle("Ada Lovelace", 7))
    kept = (room.root / "submitted" / "1001" / LAB / f"{LAB}.ipynb").read_bytes()
    notes = hand_in(in_moodle("Ada Lovelace", 66), day=3)
    assert collected(room) == {"1001", "Ada-Lovelace_66"} and "Moodle's number 7" in notes["Ada-Lovelace_66"]
    assert (room.root / "submitted" / "1001" / LAB / f"{LAB}.ipynb").read_bytes() == kept


def test_who_took_the_name_of_another_first_is_found_out_when_the_other_hands_in(room, enrol, hand_in):
    enrol(MOODLE)
    assert hand_in(in_moodle("Ada Lovelace", 66), in_moodle("Ben King", 8)) == {"1001": BY_NAME, "1003": BY_NAME}
    kept = (room.root / "submitted" / "1001" / LAB / f"{LAB}.ipynb").read_bytes()
    notes = hand_in(in_moodle("Ada Lovelace", 7), in_moodle("Mallory Mal", 66), in_moodle("Ben King", 8), day=3)
    assert collected(room) == {"1001", "1003", "Ada-Lovelace_7", "Mallory-Mal_66"}
    assert (room.root / "submitted" / "1001" / LAB / f"{LAB}.ipynb").read_bytes() == kept
    assert "look at this file and at that of 1001" in notes["Ada-Lovelace_7"]
    assert "number 66 is that of 1001 in roster.csv, who has another name" in notes["Mallory-Mal_66"]


def test_a_number_is_not_kept_for_files_that_could_not_be_collected(room, enrol, hand_in):
    enrol(MOODLE)
    hand_in(f"Ada Lovelace_66{FILES}/notes.txt")
    assert people(room)["1001"].numbers == {} and not (room.root / "submitted").exists()
    hand_in(in_moodle("Ada Lovelace", 7))
    assert people(room)["1001"].numbers == {LAB: "7"}


def test_names_in_hindi_that_differ_in_their_vowels_are_different(room, enrol, hand_in):
    enrol("First name,Last name,ID number\nराम,सिंह,1\n")
    assert hand_in(in_moodle("रमा सिंह", 77), in_moodle("राम सिंह", 78)) == {
        "रमा-सिंह_77": "Not on the roster: nobody there has this name.",
        "1": BY_NAME,
    }


def test_a_name_in_canvas_that_ends_in_the_number_of_another_takes_nobodys_place(room, enrol, hand_in):
    enrol(CANVAS)
    apart = f"lovelaceada_71_72_901_{LAB}"
    notes = hand_in(f"{apart}.ipynb", f"lovelaceada_71_800_{LAB}.ipynb", day=2)
    assert collected(room) == {apart, "ada"} and "several numbers that may be the student's ID" in notes[apart]
    assert "72_901" not in (room.root / "submitted" / "ada" / LAB / f"{LAB}.ipynb").read_text("utf-8")


@pytest.mark.parametrize("others", [[], [f"kingben_72_41_{LAB}.ipynb"], [f"eve_99_43_{LAB}.ipynb"]])
def test_a_name_in_canvas_that_is_one_of_moodle_takes_nobodys_place(room, enrol, hand_in, others):
    enrol(CANVAS)
    notes = hand_in(f"kingben_102{FILES}x_71_42_{LAB}.ipynb", *others)
    assert (room.root / "submitted" / "ben").exists() == (len(others) == 1 and "kingben" in others[0])
    assert "Left apart" in notes[next(one for one in notes if "102" in one)] and people(room)["ben"].numbers == {}


def test_who_is_not_on_the_roster_takes_nobodys_place_by_a_number_in_the_name(room, enrol, hand_in):
    enrol(CANVAS)
    apart = f"eve_71_777_901_{LAB}"  # a student called eve_71, whose ID of Canvas is 777
    notes = hand_in(f"{apart}.ipynb")
    assert collected(room) == {apart} and "several numbers that may be the student's ID" in notes[apart]
    assert f"x_72_73_74_{LAB}" in hand_in(f"x_72_73_74_{LAB}.ipynb")


def test_numbers_at_the_beginning_of_a_files_name_in_canvas_leave_it_to_its_student(room, enrol, hand_in):
    enrol(CANVAS)
    notes = hand_in(f"lovelaceada_71_800_01_{LAB}.ipynb", f"kingben_72_73_74_{LAB}.ipynb")
    assert collected(room) == {"ada", "ben"} and "only 71 is an ID of Canvas on the roster" in notes["ada"]


@pytest.mark.parametrize("together", [True, False])
def test_a_stranger_in_canvas_with_name_and_number_of_another_does_not_replace_that_persons_file(
    room, enrol, hand_in, together
):
    enrol(CANVAS)
    own, forged = f"lovelaceada_71_800_{LAB}.ipynb", f"lovelaceada_71_777_901_{LAB}.ipynb"
    notes = hand_in(own, forged) if together else hand_in(own) and hand_in(forged, day=3)
    apart = forged.removesuffix(".ipynb")
    assert collected(room) == {"ada", apart} and "several numbers that may be the student's ID" in notes[apart]
    assert "777_901" not in (room.root / "submitted" / "ada" / LAB / f"{LAB}.ipynb").read_text("utf-8")


def test_a_name_in_canvas_with_the_mark_of_moodle_takes_nobodys_place(room, enrol, hand_in):
    enrol(CANVAS)
    forged = f"ada_assignsubmission_file__72_901_{LAB}"
    notes = hand_in(f"{forged}.ipynb", f"lovelaceada_71_800_{LAB}.ipynb", day=2)
    apart = forged.replace("_assignsubmission_", "-")
    assert collected(room) == {apart, "ada"} and "one of Moodle and one of Canvas" in notes[apart]
    assert "72_901" not in (room.root / "submitted" / "ada" / LAB / f"{LAB}.ipynb").read_text("utf-8")
    notes = hand_in(f"ben_assignsubmission_file_/{LAB}.ipynb", day=3)
    assert "without Moodle's number" in notes["ben"] and "the identifier of another" in notes["ben"]
    assert collected(room) == {apart, "ada"}


def test_a_number_of_moodle_under_two_names_is_nobodys(room, enrol, hand_in):
    enrol(MOODLE)
    names = ("Ada Lovelace_33", "Ben King_33", "Somebody Else_33")
    notes = hand_in(*(f"{name}_assignsubmission_file_lab.ipynb" for name in names))
    assert all("files of several names have Moodle's number 33" in note for note in notes.values())
    assert not any(one.numbers for one in read_roster(room.gradebook, room.root))


def test_in_moodle_a_files_name_may_hold_two_numbers(room, enrol, hand_in):
    enrol(MOODLE)
    notes = hand_in("Ada Lovelace_12_assignsubmission_file_lab_2026_11_05.ipynb")
    assert collected(room) == {"1001"} and "Left apart" not in notes["1001"]


def test_a_name_does_not_replace_what_was_collected_otherwise(room, enrol, hand_in):
    enrol(MOODLE)
    assert hand_in(f"1001/{LAB}.ipynb", f"1003/{LAB}.ipynb") == {"1001": "", "1003": ""}
    assert "something else was collected for 1001" in hand_in(in_moodle("Ada Lovelace", 7), day=3)["Ada-Lovelace_7"]


def test_a_collecting_that_was_interrupted_goes_on_with_the_same_people(room, enrol, hand_in, monkeypatch):
    enrol(MOODLE)
    put, names = module._put, [in_moodle("Ada Lovelace", 7), in_moodle("Ben King", 8)]

    def interrupted(new, date, student, *rest):
        if student == "1003":
            raise KeyboardInterrupt
        return put(new, date, student, *rest)

    monkeypatch.setattr(module, "_put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hand_in(*names)
    monkeypatch.undo()
    assert hand_in(*names) == {"1001": "", "1003": BY_NAME} and collected(room) == {"1001", "1003"}


def test_numbers_are_kept_before_a_long_collecting_that_may_be_killed(room, enrol, hand_in, monkeypatch):
    enrol(MOODLE)
    put, known = module._put, []

    def look(*arguments):
        known.append(sum(bool(one.numbers) for one in people(room).values()))
        return put(*arguments)

    monkeypatch.setattr(module, "_put", look)
    hand_in(in_moodle("Ada Lovelace", 7), in_moodle("Ben King", 8))
    assert known == [2, 2]


def test_the_number_of_whose_file_cannot_be_taken_is_not_kept(room, enrol, hand_in, monkeypatch):
    enrol(MOODLE)

    def broken(*arguments):
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_put", broken)
        hand_in(in_moodle("Ada Lovelace", 7))
    assert people(room)["1001"].numbers == {} and "Left apart" not in str(hand_in(in_moodle("Ada Lovelace", 70)))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_put", broken)
        hand_in(in_moodle("Ada Lovelace", 70), day=3)
    assert people(room)["1001"].numbers == {LAB: "70"}


def test_an_empty_roster_is_refused_in_a_sentence(room):
    written(room.root / "roster.csv", "")
    with pytest.raises(GradingError, match="lacks the columns"):
        read_roster(room.gradebook, room.root)


def test_a_roster_that_a_spreadsheet_saved_in_another_form_is_refused_in_a_sentence(room, enrol):
    enrol(MOODLE)
    path = room.root / "roster.csv"
    path.write_text(path.read_text("utf-8").replace(",", ";"), "utf-8")
    with pytest.raises(GradingError, match="save it as CSV with commas and in UTF-8"):
        people(room)


def test_what_was_collected_before_the_roster_stays_where_it_is(room, enrol, hand_in):
    hand_in(in_moodle("Ada Lovelace", 7))
    enrol(MOODLE)
    notes = hand_in(in_moodle("Ada Lovelace", 7))
    assert collected(room) == {"Ada-Lovelace_7"}
    assert f"delete submitted/Ada-Lovelace_7/{LAB} and collect again" in notes["Ada-Lovelace_7"]


def test_the_name_of_a_file_gives_nobody_the_number_of_another(room, enrol, hand_in):
    enrol(MOODLE)
    hand_in(in_moodle("Ada Lovelace", 7))
    for name in (f"mallory_12_500_x_7{FILES}{LAB}.ipynb", f"Mallory_13{FILES}Ada Lovelace_7{FILES}{LAB}.ipynb"):
        hand_in(name, day=3)
        assert "mallory" not in (room.root / "submitted" / "1001" / LAB / f"{LAB}.ipynb").read_text("utf-8").casefold()


# Who handed in nothing


@pytest.fixture
def marked(room, enrol, hand_in):
    """Ada and Zoé are marked, a stranger too; Ben is on the roster and handed in nothing."""
    enrol(MOODLE)
    hand_in(in_moodle("Ada Lovelace", 7), in_moodle("Zoé O'Brien-Müller", 8), in_moodle("Eve New", 9))
    for student, points in (("1001", 3.5), ("1002", 0), ("Eve-New_9", 4)):
        room.hand_in(LAB, student, {"mean-1": points})
    return room


def table(room, style, **options):
    path = room.root / "grades.csv"
    export(room.root, room.gradebook, path, style, people=list(people(room).values()), unfinished=True, **options)
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row[0]: row for row in csv.reader(file)}


def test_whose_file_could_not_be_collected_is_refused_and_has_not_handed_in_nothing(room, enrol, tmp_path):
    enrol(MOODLE)
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        archive.writestr(f"Ada Lovelace_7{FILES}/work.zip", "no zip")
    known = read_roster(room.gradebook, room.root)
    found = collect(LAB, [tmp_path / "class.zip"], room.root, known, partial(keep_numbers, known, LAB, root=room.root))
    module.keep_refusals(found, LAB, room.root)
    silent = handed_in_nothing(known, LAB, room.gradebook, room.root)
    assert [one.student for one in silent] == ["1002", "1003"]
    [of_lab] = classes([LAB], room.gradebook, room.root, known)
    assert {one.student: one.words()[:9] for one in of_lab.standings} == {
        "1001": "refused: ",
        "1002": NOTHING[:9],
        "1003": NOTHING[:9],
    }


def test_whoever_is_on_the_roster_and_handed_in_nothing_is_in_the_table(marked):
    assert [one.student for one in handed_in_nothing(people(marked).values(), LAB, marked.gradebook, marked.root)] == [
        "1003"
    ]
    assert table(marked, "spreadsheet")["1003"] == ["1003", "King", "Ben", "ben@example.org", NOTHING, "0", "0", "0"]
    assert table(marked, "moodle", identifier="ID number")["1003"] == ["1003", "", ""]
    assert table(marked, "moodle", identifier="ID number")["1002"] == ["1002", "0", ""]


def test_whoever_is_on_the_roster_and_handed_in_nothing_is_on_the_report(marked):
    roster = list(people(marked).values())
    page = write_report(LAB, marked.root, marked.gradebook, people=roster).read_text("utf-8")
    assert "On the roster, 1 handed in nothing: Ben King (1003)." in page
    assert "handed in nothing" not in write_report(LAB, marked.root, marked.gradebook).read_text("utf-8")


def test_who_handed_in_at_last_has_no_comment_that_says_otherwise(marked, tmp_path):
    text, _ = fill(marked, WORKSHEET.replace('10:00 AM",-,', f'10:00 AM",-,{NOTHING}'), tmp_path)
    assert text.count(NOTHING) == 0


def test_a_stranger_whose_folder_is_deleted_is_no_longer_counted(marked):
    roster = list(people(marked).values())

    def counted():
        page = write_report(LAB, marked.root, marked.gradebook, people=roster).read_text("utf-8")
        whole = write_term_report(marked.root, marked.gradebook, people=roster).read_text("utf-8")
        return (
            re.search(r"(\d) submissions", page)[1],
            "Eve-New_9" in page,
            "Eve-New_9" in whole,
            "Eve-New_9" in table(marked, "spreadsheet"),
        )

    assert counted() == ("3", True, True, True)
    shutil.rmtree(marked.root / "submitted" / "Eve-New_9")
    assert counted() == ("2", False, False, False)


def test_who_was_graded_for_a_file_that_was_deleted_has_handed_in_nothing(marked):
    """As for who was found by the name alone, which somebody else had taken."""
    roster = list(people(marked).values())
    shutil.rmtree(marked.root / "submitted" / "1001")
    assert [one.student for one in handed_in_nothing(roster, LAB, marked.gradebook, marked.root)] == ["1001", "1003"]
    page = write_report(LAB, marked.root, marked.gradebook, people=roster).read_text("utf-8")
    assert re.search(r"(\d) submissions", page)[1] == "2"
    assert NOTHING in table(marked, "spreadsheet")["1001"]
    shutil.rmtree(marked.root / "submitted")  # put away at the end of the term
    assert NOTHING not in table(marked, "spreadsheet")["1001"]


def test_what_is_collected_but_not_graded_is_not_nothing(room, enrol, hand_in):
    enrol(MOODLE)
    hand_in(in_moodle("Ada Lovelace", 7))
    silent = handed_in_nothing(people(room).values(), LAB, room.gradebook, room.root)
    assert [one.student for one in silent] == ["1002", "1003"]


# What goes back


def test_canvas_gets_the_ids_of_the_roster(room, enrol):
    enrol(CANVAS)
    room.hand_in(LAB, "ada", {"mean-1": 4})
    rows = table(room, "canvas")
    assert rows["Lovelace, Ada"] == ["Lovelace, Ada", "71", "S1", "ada", "Monday", "4"]
    assert rows["King, Ben"] == ["King, Ben", "72", "S2", "ben", "Monday and Friday", ""]


def test_moodle_is_not_given_a_number_as_a_username(marked):
    with pytest.raises(GradingError, match="3 on the roster have no Username, the first is 100"):
        table(marked, "moodle", identifier="Username")


WORKSHEET = (
    '\ufeffIdentifier,"Full name","Email address",Status,Grade,"Maximum Grade","Grade can be changed",'
    '"Last modified (submission)","Last modified (grade)","Feedback comments"\r\n'
    '"Participant 7","Ada Lovelace",ada@example.org,"Submitted for grading, ",,4.00,Yes,'
    '"Monday, 2 March 2026, 10:00 AM",-,\r\n'
    '"Participant 8","Zoé ""Z"" O\'Brien",zoe@example.org,Submitted,,4.00,Yes,-,-,"old,\r\nremark"\r\n'
    '"Participant 9","Eve New",eve@example.org,Submitted,2.00,4.00,No,-,-,\r\n'
    '"Participant 10","Not Known",n@example.org,"No submission",,4.00,Yes,-,-,\r\n'
)


def fill(room, text, tmp_path, **options):
    path = written(tmp_path / "worksheet.csv", text)
    to = room.root / "grades.csv"
    roster = list(people(room).values())
    left = fill_worksheet(path, to, LAB, room.root, room.gradebook, roster, unfinished=True, **options)
    return to.read_bytes().decode(), left


def test_the_worksheet_of_moodle_comes_back_with_grades_and_is_otherwise_the_same_to_the_byte(marked, tmp_path):
    told = []
    text, left = fill(marked, WORKSHEET, tmp_path, tell=told.append)
    assert "look whether they still hold for 1002." in told[-1]
    expected = WORKSHEET.replace('Submitted for grading, ",,', 'Submitted for grading, ",3.5,').replace(
        "zoe@example.org,Submitted,,", "zoe@example.org,Submitted,0,"
    )
    assert text == expected
    assert left == ["Eve-New_9"]
    rows = {row["Identifier"]: row for row in csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""))}
    assert [rows[f"Participant {number}"]["Grade"] for number in (7, 8, 9, 10)] == ["3.5", "0", "2.00", ""]


def test_a_comment_and_the_word_on_nothing_are_feedback_comments(room, enrol, hand_in, tmp_path):
    room.add_lab("lab-02", {}, {"essay": 4})
    enrol(MOODLE)
    path = room.root / "roster.csv"
    header, *lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([f"{header},lab-02", *(f"{line},{7 + at}" for at, line in enumerate(lines))]) + "\n")
    room.hand_in("lab-02", "1001", {}, {"essay": 3})
    room.gradebook.find_comment("essay", "lab-02", "lab-02", "1001").manual_comment = 'say "why", please'
    room.gradebook.db.commit()
    text = WORKSHEET.replace("eve@example.org,Submitted,2.00,4.00,No", "ben@example.org,No submission,,4.00,Yes")
    sheet, roster = written(tmp_path / "sheet.csv", text), list(people(room).values())
    assert fill_worksheet(sheet, tmp_path / "to.csv", "lab-02", room.root, room.gradebook, roster) == []
    with (tmp_path / "to.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["Identifier"]: row for row in csv.DictReader(file)}
    assert rows["Participant 7"]["Feedback comments"] == 'essay: say "why", please'
    assert rows["Participant 8"]["Feedback comments"] == "old,\r\nremark" and rows["Participant 8"]["Grade"] == ""
    assert rows["Participant 9"]["Feedback comments"] == NOTHING and rows["Participant 9"]["Grade"] == ""


def as_moodle_reads(text):
    """Return the rows of a CSV as PHP reads them, for which a backslash escapes."""
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), escapechar="\\", strict=True))


@pytest.mark.parametrize("comment", ["Write \\alpha, and end a row with \\", 'print(\\"x, y\\")', "\\", '\\"'])
def test_a_backslash_in_a_comment_swallows_nobodys_grade(room, enrol, tmp_path, comment):
    room.add_lab("lab-02", {}, {"essay": 4})
    enrol(MOODLE)
    keep_numbers(list(people(room).values()), "lab-02", {"1001": "7", "1002": "8"}, room.root)
    for student in ("1001", "1002"):
        room.hand_in("lab-02", student, {}, {"essay": 3})
    room.gradebook.find_comment("essay", "lab-02", "lab-02", "1001").manual_comment = comment
    room.gradebook.db.commit()
    roster = list(people(room).values())
    fill_worksheet(written(tmp_path / "s", WORKSHEET), tmp_path / "to", "lab-02", room.root, room.gradebook, roster)
    rows = as_moodle_reads((tmp_path / "to").read_bytes().decode())
    assert {len(row) for row in rows} == {10} and [row[4] for row in rows[1:3]] == ["3", "3"]
    export(room.root, room.gradebook, tmp_path / "table", "moodle", ["lab-02"], people=roster)
    rows = as_moodle_reads((tmp_path / "table").read_bytes().decode())
    assert {len(row) for row in rows} == {3} and sorted(row[1] for row in rows) == ["", "3", "3", "lab-02"]


def test_a_quotation_mark_after_a_backslash_in_a_students_text_stops_no_worksheet(marked, tmp_path):
    sheet = WORKSHEET.replace("Submitted,,", '"print(\\"x\\")",,')
    text, _ = fill(marked, sheet, tmp_path)
    assert '"print(\\"x\\")",0,' in text and {len(row) for row in as_moodle_reads(text)} == {10}


@pytest.mark.parametrize(
    "status",
    [
        '"print(\\""x\\"")"',  # as Moodle's spreadsheet library writes it
        '"x\\"",,30.00,Yes,-,-,\nParticipant 7,a,b"',
        '"Submitted for grading, \\"',
        '"print(\\"x y\\"), \\"',  # as PHP wrote it
        '"x\\\\""',
        '"x\\",,4.00,Yes,-,-,a\r\nb\\" and \\""',
    ],
)
def test_a_backslash_that_moodle_writes_and_cannot_read_is_given_back_so_that_it_can(marked, tmp_path, status):
    text, _ = fill(marked, WORKSHEET.replace('"Submitted for grading, "', status), tmp_path)
    rows = as_moodle_reads(text)
    assert {len(row) for row in rows} == {10} and [row[4] for row in rows[1:3]] == ["3.5", "0"]


def test_two_texts_that_only_different_ways_to_read_can_read_stop_no_worksheet(marked, tmp_path):
    text, _ = fill(
        marked, WORKSHEET.replace("for grading, ", "\\").replace("Submitted,,", '"print(\\"x\\")",,'), tmp_path
    )
    rows = as_moodle_reads(text)
    assert {len(row) for row in rows} == {10} and [row[4] for row in rows[1:3]] == ["3.5", "0"]


def test_a_long_text_of_a_student_takes_no_more_memory_than_a_few_copies_of_it(marked, tmp_path):
    resource = pytest.importorskip("resource", reason="Windows limits no memory")
    said = "x" * 20_000_000
    now = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + 30 * len(said), hard))
    try:
        text, _ = fill(
            marked, WORKSHEET.replace("Submitted for grading, ", f"Submitted for grading, {said}", 1), tmp_path
        )
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert said in text


def test_a_worksheet_of_another_assignment_gives_nobody_the_grade_of_another(marked, tmp_path):
    other = WORKSHEET.replace("Participant 7", "Participant 70").replace("Participant 8", "Participant 7")
    text, left = fill(marked, other, tmp_path)
    assert text == other and left == ["1001", "1002", "Eve-New_9"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WORKSHEET.replace("4.00", "100.00"), f"has the maximum 100.00, but {LAB} has 4 points"),
        (WORKSHEET.replace("Identifier", "Kennung"), "has no column Identifier"),
        (WORKSHEET.replace('"Participant 8"', '5" "Participant 8"'), "is not that of a CSV"),
        (WORKSHEET.replace("Submitted,,", "Submitted,,,"), "of Participant 8, is not that of a CSV"),
        ("", "is empty"),
        (WORKSHEET.encode("latin-1", "replace"), "is not text in UTF-8"),
    ],
)
def test_what_is_no_worksheet_of_the_lab_is_refused_and_nothing_is_written(marked, tmp_path, text, says):
    with pytest.raises(GradingError, match=re.escape(says)):
        fill(marked, text, tmp_path)
    assert not (marked.root / "grades.csv").exists()


def of_moodle(path):
    """Return whose page a file of the zip is, as Moodle reads its path: the first part with a number and a plugin."""
    for part in path.split("/"):
        words = part.split("_", 4)
        if len(words) >= 4 and words[1].isdigit() and words[2:4] == ["assignsubmission", "file"]:
            return int(words[1])
    return None


def test_the_archive_of_feedback_has_the_folders_that_moodle_reads(marked, tmp_path):
    pages = {student: written(tmp_path / f"{student}.html", f"page of {student}") for student in ("1001", "1002")}
    pages["Eve-New_9"] = written(tmp_path / "eve.html", "page of eve")
    pages["plain"] = written(tmp_path / "plain.html", "page of plain")
    to = tmp_path / "feedback.zip"
    assert write_archive(to, LAB, pages, list(people(marked).values())) == ["plain"]
    with zipfile.ZipFile(to) as archive:
        read = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {of_moodle(name): text for name, text in read.items()} == {
        7: "page of 1001",
        8: "page of 1002",
        9: "page of eve",
    }
    assert f"Ada Lovelace_7{FILES}/{LAB}.html" in read


def test_an_archive_without_anybody_is_refused(room, tmp_path):
    with pytest.raises(GradingError, match="no number of a participant is known"):
        write_archive(tmp_path / "feedback.zip", LAB, {"ada": tmp_path / "ada.html"})
    assert not (tmp_path / "feedback.zip").exists()


def of_canvas(name):
    """Return the IDs of the person and the file in a name, as `infer_comment_context_from_filename` of Canvas does."""
    return tuple([int(part) for part in name.split("_") if re.fullmatch(r"\d+", part)][:2])


@pytest.mark.parametrize("with_roster", [True, False])
def test_the_archive_of_feedback_for_canvas_has_the_names_that_canvas_gave(room, enrol, hand_in, tmp_path, with_roster):
    if with_roster:
        enrol(CANVAS)
    hand_in(f"lovelaceada_LATE_71_800_{LAB}-2.ipynb", f"kingben_72_801_{LAB}.zip", f"3/{LAB}.ipynb")
    ada, ben = ("ada", "ben") if with_roster else ("lovelaceada_71", "kingben_72")
    pages = {one: written(tmp_path / f"{one}.html", f"<body>page of {one}</body>") for one in (ada, ben, "3", "nobody")}
    to = tmp_path / "feedback.zip"
    assert canvas.write_archive(to, LAB, pages, room.root, list(people(room).values())) == ["3", "nobody"]
    with zipfile.ZipFile(to) as archive:
        read = {of_canvas(name): archive.read(name) for name in archive.namelist()}
        assert {Path(name).suffix for name in archive.namelist()} == {".ipynb", ".zip"}
    assert read.keys() == {(71, 800), (72, 801)}
    [cell] = nbformat.reads(read[71, 800], as_version=4).cells
    assert cell.outputs[0].data["text/html"] == f"page of {ada}"
    with zipfile.ZipFile(io.BytesIO(read[72, 801])) as archive:
        assert archive.read(f"{LAB}.html").decode() == f"<body>page of {ben}</body>"


def test_no_page_goes_back_to_canvas_under_the_number_of_another(room, enrol, hand_in, tmp_path):
    enrol(CANVAS)
    hand_in(f"lovelaceada_71_800_{LAB}.ipynb")
    pages = {"ada": written(tmp_path / "ada.html", "<body>page</body>")}
    for name in ("kingben_72_801_x.ipynb", "a_71.ipynb", "../a_71_800_x.ipynb", "x" * 1001, "x"):
        written(room.root / "submitted" / "ada" / LAB / "canvas-file.txt", name)
        with pytest.raises(GradingError, match="no file of Canvas is known"):
            canvas.write_archive(tmp_path / "feedback.zip", LAB, pages, room.root, list(people(room).values()))
        assert not (tmp_path / "feedback.zip").exists()


@pytest.fixture
def course(tmp_path, capsys, bubblewrap):
    """A course with one lab, and the instructor's command there, which returns its exit code and what it says."""
    root = tmp_path / "course"
    root.mkdir()
    make_course(root, [LAB])

    return root, command_in(root, capsys)


def test_a_roster_that_cannot_be_read_is_said_before_anybody_is_graded(course):
    root, type = course
    assert type("collect", LAB, written(root.parent / "1001.ipynb", RELEASED))[0] == 0
    written(root / "roster.csv", "student;username;id_number;group\n")
    assert "save it as CSV with commas and in UTF-8" in type("grade", LAB, "--workers", "1")[0]
    assert not (root / "autograded").exists()


def test_a_notebook_that_stays_keeps_its_time_although_another_file_came_later(course, tmp_path):
    root, type = course
    type("roster", written(tmp_path / "people.csv", MOODLE))
    (root / "deadlines.csv").write_text(f"lab,student,due,time zone\n{LAB},,2026-03-01 12:00,Europe/Berlin\n")

    def collect(name, content, sheet):
        with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
            archive.writestr(name, content)
        return type("collect", LAB, tmp_path / "class.zip", "--worksheet", written(tmp_path / "sheet.csv", sheet))

    notebook, later = in_moodle("Ada Lovelace", 7), WORKSHEET.replace("Monday, 2 March", "Friday, 6 March")
    assert collect(notebook, RELEASED, WORKSHEET)[0] == 0
    code, said = collect(notebook.replace(f"{LAB}.ipynb", "report.pdf"), b"no notebook", later)
    assert code == 1 and "1001: Not collected" in said and "no time" not in said
    time = root / "submitted" / "1001" / LAB / "timestamp.txt"
    assert time.read_text() == "2026-03-02 09:00:00 UTC\n"
    assert collect(notebook, RELEASED, later)[0] == 0 and time.read_text() == "2026-03-06 09:00:00 UTC\n"


@pytest.mark.nightly
def test_from_the_list_of_participants_to_grades_and_feedback_in_moodle(course, tmp_path):
    root, type = course
    assert type("roster", written(tmp_path / "people.csv", MOODLE))[0] == 0
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        archive.writestr(in_moodle("Ada Lovelace", 7), RELEASED)
    (root / "deadlines.csv").write_text(f"lab,student,due,time zone\n{LAB},,2026-03-01 12:00,Europe/Berlin\n")
    words = ("collect", LAB, tmp_path / "class.zip", "--worksheet", written(tmp_path / "sheet.csv", WORKSHEET))
    assert type(*words) == (0, f"1001: {BY_NAME}\nCollected 1 submissions in submitted/.\n")
    code, said = type("grade", LAB, "--workers", "1")
    assert code == 0 and said.splitlines()[-1].endswith("; 2 on the roster handed in nothing.")
    assert type("report", LAB)[0] == 0
    page = (root / "reports" / f"{LAB}.html").read_text("utf-8")
    assert "2 handed in nothing: Ben King (1003), Zoé O&#39;Brien-Müller (1002)." in page
    assert "2026-03-02 10:00 CET" in page and "1 late day" in page
    assert "name one lab, or type mlcourse report --all" in type("report")[0]
    assert type("report", "--all") == (0, f"Written: {root / 'reports' / 'all-labs.html'}\n")
    assert type("feedback", LAB, "--archive", "feedback.zip")[0] == 0
    with zipfile.ZipFile(root / "feedback.zip") as archive:
        (name,) = archive.namelist()
        assert of_moodle(name) == 7
        assert archive.read(name) == (root / "feedback" / "1001" / LAB / f"{LAB}.html").read_bytes()
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        largest = gradebook.find_assignment(LAB).max_score
        gradebook.find_submission(LAB, "1001").notebooks[0].grades[0].extra_credit = 1.5
        gradebook.db.commit()
    sheet = written(tmp_path / "sheet.csv", WORKSHEET.replace("4.00", f"{largest:.2f}"))
    words = ("export", LAB, "--style", "moodle", "--worksheet", sheet, "--unfinished")
    assert type(*words) == (0, "Written: grades.csv\n")
    assert (root / "grades.csv").read_bytes().decode().count('grading, ",1.5,') == 1
    code, said = type("export", "--style", "moodle", "--worksheet", sheet)
    assert "a worksheet is of one lab in Moodle" in code


# When it was handed in


@pytest.fixture
def timed(room, enrol, hand_in, tmp_path):
    """Read the times of a worksheet for Ada and Zoé, and for Eve, who is not in it; return whose time is not known."""
    enrol(MOODLE)
    hand_in(in_moodle("Ada Lovelace", 7), in_moodle("Zoé O'Brien-Müller", 8), in_moodle("Eve New", 90))
    (room.root / "deadlines.csv").write_text(f"lab,student,due,time zone\n{LAB},,2026-03-02 12:00,Europe/Berlin\n")
    return lambda text: write_times(written(tmp_path / "times.csv", text), LAB, room.root, list(people(room).values()))


def times(room):
    return {path.parent.parent.name: path.read_text() for path in room.root.glob("submitted/*/*/timestamp.txt")}


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("Monday, 2 March 2026, 10:00 AM", "2026-03-02 09:00:00 UTC\n"),
        ("Monday, 2 March 2026, 12:30 AM", "2026-03-01 23:30:00 UTC\n"),
        ("Monday, March 2, 2026, 1:05 PM", "2026-03-02 12:05:00 UTC\n"),
        ("Thursday, 2 July 2026, 22:15", "2026-07-02 20:15:00 UTC\n"),
        # The clocks show 02:30 twice: the student handed in the first time
        ("Sunday, 25 October 2026, 2:30 AM", "2026-10-25 00:30:00 UTC\n"),
    ],
)
def test_the_worksheet_says_in_the_time_zone_of_the_lab_when_each_was_handed_in(room, timed, text, utc):
    assert timed(WORKSHEET.replace("Monday, 2 March 2026, 10:00 AM", text)) == ["1002", "Eve-New_90"]
    assert times(room) == {"1001": utc}


def test_a_newer_worksheet_brings_newer_times_and_that_of_another_assignment_none(room, timed):
    timed(WORKSHEET)
    timed(WORKSHEET.replace("10:00 AM", "11:00 AM"))
    assert times(room) == {"1001": "2026-03-02 10:00:00 UTC\n"}
    assert "1001" in timed(
        WORKSHEET.replace("Participant 7", "Participant 70").replace("Participant 8", "Participant 7")
    )
    assert times(room) == {"1001": "2026-03-02 10:00:00 UTC\n"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            WORKSHEET.replace("Monday, 2 March 2026, 10:00 AM", "Montag, 2. März 2026"),
            "'Montag, 2. März 2026' is not a",
        ),
        (WORKSHEET.replace("Last modified (submission)", "Zuletzt"), "has no column Last modified (submission)"),
    ],
)
def test_a_worksheet_in_another_language_gives_no_times(room, timed, text, says):
    with pytest.raises(GradingError, match=re.escape(says)):
        timed(text)
    assert times(room) == {}


def test_a_link_in_the_place_of_the_time_is_not_followed(room, timed, tmp_path):
    (tmp_path / "other.txt").write_text("stays")
    (room.root / "submitted" / "1001" / LAB / "timestamp.txt").symlink_to(tmp_path / "other.txt")
    timed(WORKSHEET)
    assert (tmp_path / "other.txt").read_text() == "stays" and times(room) == {"1001": "2026-03-02 09:00:00 UTC\n"}


def test_times_without_a_time_zone_are_not_taken(room, timed):
    (room.root / "deadlines.csv").unlink()
    with pytest.raises(GradingError, match="have no time zone: write a due date of lab-01-toy-regression"):
        timed(WORKSHEET)
