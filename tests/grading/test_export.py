"""Exported tables can be imported: they have the right points for each student, and no formulas."""

import csv

import pytest

from classroom import Classroom
from coursegrader import GradingError
from coursegrader.export import export
from coursegrader.people import Person

DEDUCTED = "Points are deducted for lateness."


@pytest.fixture
def classroom(tmp_path):
    """Two labs of 4 and 10 points; ben is late, and cleo has handed in nothing for the second lab."""
    room = Classroom(tmp_path)
    room.add_lab("lab-01", {"mean-1": 1.5, "mean-2": 2.5})
    room.add_lab("lab-02", {"fit-1": 6}, {"essay": 4})
    room.add_lab("lab-03", {"not-yet-1": 5})
    room.add_student("ada", first_name="Ada", last_name="Lovelace", email="ada@example.org", lms_user_id="71")
    room.add_student("ben", email="ben@example.org")
    room.add_student("=cleo", first_name="@Cleo", last_name="Zé", email="cleo@example.org")
    room.hand_in("lab-01", "ada", {"mean-1": 1.5, "mean-2": 2.5})
    room.hand_in("lab-01", "ben", {"mean-1": 1.5, "mean-2": 0}, late=2)
    room.hand_in("lab-01", "=cleo", {"mean-1": 0, "mean-2": 0})
    room.hand_in("lab-02", "ada", {"fit-1": 6}, {"essay": 3})
    room.hand_in("lab-02", "ben", {"fit-1": 6}, {"essay": 0}, late=1)
    comment = room.gradebook.find_comment("essay", "lab-02", "lab-02", "ada")
    comment.manual_comment = "-1 for the units,\nelse good"
    room.gradebook.db.commit()
    return room


def exported(classroom, style, **options):
    path = export(classroom.root, classroom.gradebook, "grades.csv", style, **options)
    assert path == classroom.root / "grades.csv"
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def test_a_spreadsheet_has_a_row_for_each_student_and_adds_up(classroom):
    assert exported(classroom, "spreadsheet") == [
        [
            "Student",
            "Last name",
            "First name",
            "Email",
            "lab-01 (of 4)",
            "lab-02 (of 10)",
            "Total (of 14)",
            "Percent",
            "Late penalty",
        ],
        ["ben", "", "", "ben@example.org", "0", "5", "5", "35.71", "2.5"],
        ["ada", "Lovelace", "Ada", "ada@example.org", "4", "9", "13", "92.86", "0"],
        ["'=cleo", "Zé", "'@Cleo", "cleo@example.org", "0", "", "0", "0", "0"],
    ]
    assert (classroom.root / "grades.csv").read_bytes().startswith(b"\xef\xbb\xbf")


def test_moodle_gets_an_identifier_and_for_each_lab_points_and_feedback(classroom):
    assert exported(classroom, "moodle") == [
        ["Email address", "lab-01", "lab-01 (feedback)", "lab-02", "lab-02 (feedback)"],
        ["ben@example.org", "0", f"{DEDUCTED} Of 1.5 points, 0 count.", "5", f"{DEDUCTED} Of 6 points, 5 count."],
        ["ada@example.org", "4", "", "9", "essay: -1 for the units, else good"],
        ["cleo@example.org", "0", "", "", ""],
    ]
    assert exported(classroom, "moodle", identifier="ID number", labs=["lab-02"])[:3] == [
        ["ID number", "lab-02", "lab-02 (feedback)"],
        ["ben", "5", f"{DEDUCTED} Of 6 points, 5 count."],
        ["ada", "9", "essay: -1 for the units, else good"],
    ]


def test_canvas_gets_its_columns_and_the_points_possible(classroom):
    assert exported(classroom, "canvas", canvas_ids={"lab-02": "4711"}) == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "lab-01", "lab-02 (4711)"],
        ["    Points Possible", "", "", "", "", "4", "10"],
        ["ben", "", "", "ben", "", "0", "5"],
        ["Lovelace, Ada", "71", "", "ada", "", "4", "9"],
        ["Zé, @Cleo", "", "", "'=cleo", "", "0", ""],
    ]


@pytest.mark.parametrize("style", ["spreadsheet", "moodle", "canvas"])
def test_no_text_is_a_formula(classroom, style):
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\t1", "＝1"]
    for number, name in enumerate(names):
        classroom.add_student(f"dan{number}", first_name=name, last_name=name, email=name, lms_user_id=name)
    cells = {cell for row in exported(classroom, style) for cell in row}
    assert cells >= {f"'{name}" for name in names} and cells.isdisjoint(names)


@pytest.mark.parametrize("sign", [";", "; ", "\t", ';"', "\n;", "\n", ";\u00a0"])
def test_no_part_of_a_text_is_a_formula_to_a_spreadsheet_that_separates_by_another_sign(classroom, sign):
    classroom.add_student("dan", first_name="Dan", last_name=f"x{sign}=1+1{sign}-2", email="-", lms_user_id="-")
    classroom.add_student("eve", last_name=f"{sign}=1+1")
    cells = {cell for row in exported(classroom, "spreadsheet") for cell in row}
    assert f"x{sign}'=1+1{sign}'-2" in cells and "Dan" in cells
    assert f"{sign}'=1+1" in {cell.removeprefix("'") for cell in cells}


def test_a_long_comment_goes_back_whole(classroom):
    comment = classroom.gradebook.find_comment("essay", "lab-02", "lab-02", "ada")
    comment.manual_comment = "word\n" * 3000 + "the last word"
    classroom.gradebook.db.commit()
    cells = [cell for row in exported(classroom, "moodle", labs=["lab-02"]) for cell in row]
    assert f"essay: {'word ' * 3000}the last word" in cells


def test_a_bonus_below_zero_stays_a_number(classroom):
    grade = classroom.gradebook.find_grade("essay", "lab-02", "lab-02", "ada")
    grade.extra_credit = -0.25
    classroom.gradebook.db.commit()
    assert exported(classroom, "canvas", labs=["lab-02"])[3][-1] == "8.75"


def test_an_answer_that_waits_stops_the_export_unless_asked_for(classroom):
    classroom.hand_in("lab-02", "=cleo", {"fit-1": 6})
    with pytest.raises(GradingError, match="1 written answer in lab-02 to be marked"):
        exported(classroom, "moodle")
    assert exported(classroom, "moodle", labs=["lab-01"])
    assert exported(classroom, "moodle", unfinished=True)[3][3] == "6"


def test_a_submission_that_was_never_graded_stops_the_export(classroom):
    classroom.hand_in("lab-03", "ada", {})
    with pytest.raises(GradingError, match="1 submission in lab-03 to be graded"):
        exported(classroom, "spreadsheet")


def test_what_waits_and_who_was_refused_is_said_with_names_whether_it_stops_the_export_or_not(classroom):
    for student in ("ben", "=cleo", "dan"):
        classroom.hand_in("lab-02", student, {"fit-1": 6})
    classroom.write_autograded("lab-02", "ben", refused="not a notebook")
    (classroom.root / "submitted" / "eve" / "lab-02").mkdir(parents=True)
    grade = classroom.gradebook.find_grade("fit-1", "lab-02", "lab-02", "ada")
    grade.manual_score, grade.needs_manual_grade = 5, True
    classroom.gradebook.db.commit()
    waiting = [
        "3 written answers in lab-02 to be marked, of ben, dan, =cleo",
        "1 submission in lab-02 to be graded, of eve",
        "1 cell in lab-02 to be looked at again after a new grading, of ada",
    ]
    with pytest.raises(GradingError) as error:
        exported(classroom, "canvas", labs=["lab-02"])
    assert f"still waiting: {'; '.join(waiting)}. Finish this" in str(error.value)
    told = []
    exported(classroom, "canvas", labs=["lab-02"], unfinished=True, tell=told.append)
    assert told == [f"Still waiting: {one}." for one in waiting] + [
        "lab-02: refused, and without points by the grader: ben."
    ]


def test_of_many_who_wait_ten_are_named(classroom):
    for number in range(12):
        classroom.hand_in("lab-02", f"s{number:02}", {"fit-1": 6})
    with pytest.raises(GradingError, match="12 written answers .* of s00, .*, s09 and 2 more"):
        exported(classroom, "canvas", labs=["lab-02"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"style": "excel"}, "no style 'excel': choose spreadsheet, moodle, canvas"),
        ({"style": "moodle", "identifier": "Name"}, "choose Email address, ID number, Username"),
        ({"style": "canvas", "labs": ["lab-9"]}, "no lab 'lab-9', it has lab-01, lab-02, lab-03"),
    ],
)
def test_what_it_does_not_know_it_names(classroom, options, says):
    with pytest.raises(GradingError, match=says):
        exported(classroom, **options)


def test_who_is_not_on_the_roster_keeps_nobody_from_being_imported(classroom):
    ada, ben = Person("ada", id_number="1"), Person("ben", id_number="2")
    folder = classroom.root / "submitted" / "=cleo" / "lab-01"

    def names(style, **options):
        said = []
        options |= {"people": [ada, ben], "tell": said.append}
        table = exported(classroom, style, **options)
        return [row[0] for row in table[1:]], [one for one in said if "not on the roster" in one]

    left_out = ["Left out, since they are not on the roster: =cleo."]
    assert names("moodle", identifier="ID number") == (["2", "1"], left_out)
    assert names("moodle") == (["ben@example.org", "ada@example.org"], left_out)
    assert names("canvas") == (["    Points Possible", "ben", "Lovelace, Ada"], left_out)
    assert names("spreadsheet") == (["ben", "ada", "'=cleo"], [])
    folder.rmdir()
    assert names("spreadsheet") == (["ben", "ada"], [])
    assert names("moodle") == (["ben@example.org", "ada@example.org"], [])


def test_moodle_by_email_says_who_has_none(classroom):
    classroom.add_student("zoe")
    with pytest.raises(GradingError, match="1 student has no email in the gradebook, the first is zoe"):
        exported(classroom, "moodle")


def test_an_empty_gradebook_is_said_to_be_empty(tmp_path):
    room = Classroom(tmp_path)
    with pytest.raises(GradingError, match="nothing was handed in"):
        export(room.root, room.gradebook, "grades.csv", "canvas")
    assert not (tmp_path / "grades.csv").exists()
