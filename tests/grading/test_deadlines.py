"""Who is late is told from ``deadlines.csv``, loses what the rule says, and loses it once."""

import csv
import shutil
from datetime import UTC, datetime

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.preprocessors import AssignLatePenalties
from traitlets.config import Config

from classroom import Classroom
from course import Lab, command_in, make_course
from coursegrader import GradingError
from coursegrader.collect import LATE_IN_CANVAS
from coursegrader.deadlines import LatePenalty, apply_deadlines, lateness, read_deadlines, say_unknown
from coursegrader.export import export
from coursegrader.labs import nbgrader_config
from coursegrader.report import write_report

LAB = "lab-01-toy-regression"
HEADING = "lab,student,due,time zone\n"


def rule(**traits):
    """Return a configuration with a rule for late submissions."""
    return Config(AssignLatePenalties={"plugin_class": LatePenalty}, LatePenalty=traits)


TENTH = rule(per_day=0.1)


@pytest.fixture
def due(tmp_path):
    """Write ``deadlines.csv`` with these rows."""

    def due(*rows, heading=HEADING):
        (tmp_path / "deadlines.csv").write_text(heading + "\n".join(rows), encoding="utf-8")
        return tmp_path

    return due


@pytest.fixture
def room(tmp_path):
    """A class with two labs of 10 points, the first with a written answer."""
    room = Classroom(tmp_path)
    room.add_lab("lab-01", {"mean-1": 6}, {"essay": 4})
    room.add_lab("lab-02", {"fit-1": 10})
    return room


def at(day, hour=12, minute=0):
    return datetime(2026, 11, day, hour, minute)


def seen(room, lab, student, config=TENTH):
    """Return how late a submission is, as the next command that shows it says."""
    deadlines = apply_deadlines(room.gradebook, room.root, config)
    notebook = room.gradebook.find_submission_notebook(lab, lab, student)
    return lateness(notebook, notebook.score, deadlines, room.root, config)


# The file


@pytest.mark.parametrize(
    ("local", "zone", "utc"),
    [
        ("2026-11-02 23:59", "Europe/Berlin", (2026, 11, 2, 22, 59)),
        ("2026-07-01T12:00:30", "Europe/Berlin", (2026, 7, 1, 10, 0, 30)),
        ("2026-11-02 12:00", "Asia/Kolkata", (2026, 11, 2, 6, 30)),
        ("2026-11-02 12:00", "UTC", (2026, 11, 2, 12, 0)),
        # The clocks show 02:30 twice, at 00:30 and at 01:30 UTC; in March they go from 02:00 to 03:00 at 01:00 UTC
        ("2026-10-25 02:30", "Europe/Berlin", (2026, 10, 25, 1, 30)),
        ("2026-03-29 02:30", "Europe/Berlin", (2026, 3, 29, 1, 30)),
    ],
)
def test_a_due_date_is_a_local_time_and_the_later_one_where_the_clocks_change(due, local, zone, utc):
    deadlines = read_deadlines(due(f"lab-01,,{local},{zone}"))
    assert deadlines.due["lab-01"].astimezone(UTC) == datetime(*utc, tzinfo=UTC)


def test_a_spreadsheet_may_write_semicolons_and_a_byte_order_mark_and_empty_rows(due):
    root = due("2026-11-02 23:59;lab-01;Europe/Berlin;", ";;;", heading="\ufeffDue;Lab;Time zone;Student\n")
    assert read_deadlines(root).due["lab-01"].isoformat() == "2026-11-02T23:59:00+01:00"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            ["lab-01,,02.11.2026 23:59,UTC"],
            "line 2 of .*'02.11.2026 23:59' is not a due date: write .* as 2026-",
        ),
        (["lab-01,,2026-11-02,UTC"], "'2026-11-02' is not a due date: write date and time"),
        (["lab-01,,2026-02-30 10:00,UTC"], "'2026-02-30 10:00' is not a due date"),
        (["lab-01,,9999-12-31 23:59,America/New_York"], "'9999-12-31 23:59' is not a due date"),
        (["lab-01,,0001-01-01 00:00,Europe/Berlin"], "'0001-01-01 00:00' is not a due date"),
        (["lab-01,,,UTC"], "'nothing' is not a due date"),
        (["lab-01,,2026-11-02 23:59,Berlin"], "there is no time zone Berlin: write a name such as Europe/Berlin"),
        (["lab-01,,2026-11-02 23:59,../UTC"], "there is no time zone"),
        (["lab-01,,2026-11-02 23:59,"], "has no time zone"),
        ([",ada,2026-11-02 23:59,UTC"], "names no lab"),
        (["lab-01,,2026-11-02 23:59,UTC"] * 2, "line 3 of .* is a second due date of lab-01"),
        (["lab-01,,2026-11-02 23:59,UTC", *["lab-01,ada,2026-11-03 23:59,"] * 2], "second due date of lab-01 for ada"),
        (["lab-01,ada,2026-11-03 23:59,UTC"], "lab-01 has no due date: add a row without a student"),
        (["lab-01,,2026-11-02 23:59,UTC", "lab-01,ada,2026-11-01 23:59,"], "due earlier for ada than for the class"),
        (["lab-1,,2026-11-02 23:59,UTC"], "a due date of lab-1, which is no lab: .* the labs are lab-01, lab-02"),
    ],
)
def test_a_file_that_is_not_well_formed_is_refused_in_a_sentence_and_changes_nothing(room, due, rows, says):
    due("lab-01,,2026-11-02 12:00,UTC")
    room.hand_in("lab-01", "ada", {"mean-1": 6}, {"essay": 4}, at=at(3))
    assert seen(room, "lab-01", "ada").penalty == 1
    with pytest.raises(GradingError, match=says):
        apply_deadlines(room.gradebook, due(*rows), TENTH)
    assert room.gradebook.find_submission("lab-01", "ada").late_submission_penalty == 1


def test_a_file_without_its_columns_is_refused_with_their_names(due):
    with pytest.raises(GradingError, match="lacks the column time zone: write it as a CSV with"):
        read_deadlines(due("lab-01,,2026-11-02 23:59", heading="lab,student,due\n"))


def test_a_date_for_somebody_whom_nobody_knows_is_said(room, due):
    room.hand_in("lab-01", "ada", {})
    root = due("lab-01,,2026-11-02 12:00,UTC", "lab-01,adda,2026-11-03 12:00,", "lab-01,ada,2026-11-03 12:00,")
    (sentence,) = say_unknown(read_deadlines(root), room.gradebook, root)
    assert "a date for adda, but nobody" in sentence


# The rule


@pytest.mark.parametrize(
    ("traits", "hours", "days", "lost"),
    [
        ({}, 100, 5, 0),
        ({"per_day": 0.1}, 0, 0, 0),
        ({"per_day": 0.1}, 0.001, 1, 0.1),
        ({"per_day": 0.1}, 24, 1, 0.1),
        ({"per_day": 0.1}, 24.001, 2, 0.2),
        ({"per_day": 0.1, "grace_minutes": 30}, 0.5, 0, 0),
        ({"per_day": 0.1, "grace_minutes": 30}, 24.5, 1, 0.1),
        ({"per_day": 0.4}, 1000, 42, 1),
        ({"per_day": 0.1, "at_most": 0.25}, 100, 5, 0.25),
        ({"per_day": 0.1, "at_most": 0.25, "last_day": 4}, 100, 5, 1),
        ({"last_day": 0}, 1, 1, 1),
    ],
)
def test_a_late_day_begins_after_the_grace_and_costs_what_the_rule_says(traits, hours, days, lost):
    penalty = LatePenalty(**traits)
    assert (penalty.late_days(3600 * hours), penalty.lost(days)) == (days, pytest.approx(lost))


def test_nothing_is_deducted_unless_the_configuration_says_so(room, due):
    due("lab-01,,2026-11-02 12:00,UTC")
    room.hand_in("lab-01", "ada", {"mean-1": 6}, {"essay": 4}, at=at(3))
    late = seen(room, "lab-01", "ada", nbgrader_config())
    assert (late.penalty, late.words()) == (0, "1 late day")
    assert late.sentence().endswith("due on 2 November 2026, 12:00 UTC: 1 late day. No points are deducted.")


def test_points_are_deducted_once_however_often_and_from_all_points_once_they_are_marked(room, due):
    due("lab-01,,2026-11-02 12:00,UTC")
    room.hand_in("lab-01", "ada", {"mean-1": 5}, at=at(3, 13))
    assert [seen(room, "lab-01", "ada").penalty for _ in range(3)] == [1, 1, 1]
    grade = room.gradebook.find_grade("essay", "lab-01", "lab-01", "ada")
    grade.manual_score, grade.needs_manual_grade = 3, False
    room.gradebook.db.commit()
    assert [seen(room, "lab-01", "ada").penalty for _ in range(2)] == [pytest.approx(1.6)] * 2


def test_the_step_of_nbgrader_finds_the_penalty_that_is_there(room, due):
    due("lab-01,,2026-11-02 12:00,UTC", "lab-01,ada,2026-11-03 12:00,")
    config = rule(per_day=0.1, free_days=1)
    for student in ("ada", "ben"):
        room.hand_in("lab-01", student, {"mean-1": 6}, {"essay": 4}, at=at(5))
        found = seen(room, "lab-01", student, config).penalty
        names = {"notebook": "lab-01", "assignment": "lab-01", "student": student}
        known = {"nbgrader": names | {"db_url": f"sqlite:///{room.root / 'gradebook.db'}"}}
        AssignLatePenalties(config=config).preprocess(nbformat.v4.new_notebook(), known)
        room.gradebook.db.expire_all()
        assert room.gradebook.find_submission("lab-01", student).late_submission_penalty == pytest.approx(found)
        assert found == (1 if student == "ada" else 2)


def test_another_date_takes_effect_without_grading_again_and_so_does_its_end(room, due):
    room.hand_in("lab-01", "ada", {"mean-1": 6}, {"essay": 4}, at=at(4))
    found = []
    for rows in (
        ["lab-01,,2026-11-02 12:00,UTC"],
        ["lab-01,,2026-11-03 12:00,UTC"],
        ["lab-01,,2026-11-02 12:00,UTC", "lab-01,ada,2026-11-04 12:00,UTC"],
        ["lab-01,,2026-11-02 12:00,UTC"],
        [],
    ):
        due(*rows)
        found.append(seen(room, "lab-01", "ada").penalty)
    assert found == [2, 1, 0, 2, 0]


def test_an_own_date_is_for_that_person_alone_and_in_a_time_zone_of_its_own_if_it_names_one(room, due):
    due("lab-01,,2026-11-02 12:00,UTC", "lab-01,ada,2026-11-03 07:00,America/New_York")
    for student in ("ada", "ben"):
        room.hand_in("lab-01", student, {"mean-1": 6}, {"essay": 4}, at=at(3))
    late = seen(room, "lab-01", "ada")
    assert (late.penalty, late.words(), late.extended) == (0, "", True)
    assert late.due.isoformat() == "2026-11-03T07:00:00-05:00"
    assert seen(room, "lab-01", "ben").penalty == 1


def test_free_days_are_used_in_the_order_of_the_due_dates_and_not_where_everything_is_lost(room, due):
    due("lab-02,,2026-11-01 12:00,UTC", "lab-01,,2026-11-08 12:00,UTC")
    config = rule(per_day=0.1, free_days=2, last_day=3)
    room.hand_in("lab-02", "ada", {"fit-1": 10}, at=at(2))
    room.hand_in("lab-01", "ada", {"mean-1": 6}, {"essay": 4}, at=at(10))
    room.hand_in("lab-02", "ben", {"fit-1": 10}, at=at(9))
    room.hand_in("lab-01", "ben", {"mean-1": 6}, {"essay": 4}, at=at(10))
    assert [seen(room, lab, "ada", config).words() for lab in ("lab-02", "lab-01")] == [
        "1 late day, free",
        "2 late days, 1 of them free",
    ]
    assert [seen(room, lab, "ada", config).penalty for lab in ("lab-02", "lab-01")] == [0, 1]
    assert [seen(room, lab, "ben", config).penalty for lab in ("lab-02", "lab-01")] == [10, 0]


def test_a_submission_that_was_deleted_uses_no_free_days(room, due):
    due("lab-01,,2026-11-02 12:00,UTC", "lab-02,,2026-11-09 12:00,UTC")
    config = rule(free_days=2, per_day=0.1)
    for student in ("ada", "ben"):
        for lab, day in (("lab-01", 4), ("lab-02", 11)):
            room.hand_in(lab, student, {"mean-1": 6, "fit-1": 10}, {"essay": 4}, at=at(day))
    shutil.rmtree(room.root / "submitted" / "ada" / "lab-01")
    assert [seen(room, "lab-02", student, config).penalty > 0 for student in ("ada", "ben")] == [False, True]


def test_without_a_time_nobody_is_late_and_it_is_said(room, due):
    due("lab-01,,2026-11-02 12:00,UTC")
    for student in ("ada", "ben"):
        room.hand_in("lab-01", student, {"mean-1": 6}, {"essay": 4})
    (room.root / "submitted" / "ben" / "lab-01" / LATE_IN_CANVAS).write_text("")
    late = {student: seen(room, "lab-01", student) for student in ("ada", "ben")}
    assert {student: (one.penalty, one.words(), one.sentence()) for student, one in late.items()} == {
        "ada": (0, "no time", ""),
        "ben": (0, "late in Canvas, no time", ""),
    }


def test_without_the_file_the_due_date_and_the_extension_in_the_gradebook_hold(room):
    room.hand_in("lab-01", "ada", {"mean-1": 6}, {"essay": 4}, at=at(4))
    room.hand_in("lab-01", "ben", {"mean-1": 6}, {"essay": 4}, at=at(4))
    room.gradebook.update_or_create_assignment("lab-01", duedate="2026-11-02 12:00:00 UTC")
    room.gradebook.grant_extension("lab-01", "ben", days=1)
    assert [seen(room, "lab-01", student).penalty for student in ("ada", "ben")] == [2, 1]
    assert seen(room, "lab-01", "ben").due.isoformat() == "2026-11-03T12:00:00+00:00"


# Where it is shown


@pytest.fixture
def marked(room, due):
    """Ada is in time, Ben is two days late, and of Cleo no time is known."""
    due("lab-01,,2026-11-02 12:00,Europe/Berlin")
    for student, when in (("ada", at(1)), ("ben", at(3, 12)), ("cleo", None)):
        room.hand_in("lab-01", student, {"mean-1": 6}, {"essay": 2.5}, at=when)
        room.write_autograded("lab-01", student)
        room.gradebook.find_student(student).email = f"{student}@example.org"
    room.gradebook.db.commit()
    return room


def table(room, style):
    told = []
    path = export(room.root, room.gradebook, "grades.csv", style, config=TENTH, tell=told.append)
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file)), told


def test_exported_points_are_those_after_the_penalty_and_those_before_are_beside_them(marked):
    rows, told = table(marked, "spreadsheet")
    assert [row[4:] for row in rows] == [
        ["lab-01 (of 10)", "lab-01 before late penalty", "lab-01 lateness", "Total (of 10)", "Percent", "Late penalty"],
        ["8.5", "8.5", "", "8.5", "85", "0"],
        ["6.8", "8.5", "2 late days", "6.8", "68", "1.7"],
        ["8.5", "8.5", "no time", "8.5", "85", "0"],
    ]
    assert told == ["lab-01: points deducted for lateness: ben (8.5 before, 6.8 after)."]


def test_moodle_gets_a_sentence_and_canvas_the_points_alone(marked):
    rows, _ = table(marked, "moodle")
    assert [row[1:] for row in rows[1:]] == [
        ["8.5", ""],
        [
            "6.8",
            "Handed in on 3 November 2026, 13:00 CET, due on 2 November 2026, 12:00 CET: 2 late days. "
            "Of 8.5 points, 6.8 count.",
        ],
        ["8.5", ""],
    ]
    rows, told = table(marked, "canvas")
    assert [row[5:] for row in rows] == [["lab-01"], ["10"], ["8.5"], ["6.8"], ["8.5"]]
    assert "ben (8.5 before, 6.8 after)" in told[0]


def test_the_report_lists_the_class_with_times_and_points_before_and_after(marked):
    path = write_report("lab-01", marked.root, marked.gradebook, config=TENTH)
    page = BeautifulSoup(path.read_text("utf-8"), "html.parser")
    (title,) = [one for one in page.find_all("caption") if one.text.startswith("Everybody")]
    rows = [[cell.text for cell in row.find_all(["th", "td"])] for row in title.find_parent("table").find_all("tr")]
    assert rows[1:] == [
        ["ada", "2026-11-01 13:00 CET", "", "8.5", "8.5", "graded"],
        ["ben", "2026-11-03 13:00 CET", "2 late days", "8.5", "6.8", "graded"],
        ["cleo", "", "no time", "8.5", "8.5", "graded"],
    ]
    text = " ".join(page.text.split())
    assert "The lab was due on 2 November 2026, 12:00 CET. 1 submission was handed in late, and of 1 the time" in text


# With the commands, and nbgrader's own


@pytest.fixture
def course(tmp_path, capsys, bubblewrap):
    """A course with one lab that costs a tenth for each late day, a right submission, and the instructor's command."""
    root = tmp_path / "course"
    root.mkdir()
    make_course(root, [LAB])
    with (root / "nbgrader_config.py").open("a") as file:
        file.write("c.LatePenalty.per_day = 0.1\n")
    lab, run = Lab(root, LAB), command_in(root, capsys)

    def hand_in(student, time=None):
        folder = root / "submitted" / student / LAB
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(lab.submitted["perfect"], folder / f"{LAB}.ipynb")
        (folder / "timestamp.txt").unlink(missing_ok=True)
        if time:
            (folder / "timestamp.txt").write_text(time)

    def type(*words):
        code, said = run(*words)
        return f"{said}{code}"

    return root, hand_in, type


def penalties(root):
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        found = gradebook.find_assignment(LAB).submissions
        return {one.student_id: (one.score, one.late_submission_penalty) for one in found}


@pytest.mark.nightly
def test_from_the_file_to_the_feedback_and_back_without_grading_again(course):
    root, hand_in, type = course
    (root / "deadlines.csv").write_text(f"{HEADING}{LAB},,2026-11-02 12:00,UTC\n")
    hand_in("ada", "2026-11-03 10:00:00 UTC")
    hand_in("ben", "2026-11-01 10:00:00 UTC")
    assert "; 1 of the class handed in late." in type("grade", LAB, "--workers", "1")
    (points, penalty) = penalties(root)["ada"]
    assert penalty == pytest.approx(points / 10) and penalties(root)["ben"] == (points, 0)
    assert NbGraderAPI(config=nbgrader_config(root)).autograde(LAB, "ada", force=True)["success"]
    assert penalties(root)["ada"] == (points, pytest.approx(penalty))
    type("regrade", LAB, "--workers", "1")
    assert penalties(root)["ada"] == (points, pytest.approx(penalty))

    type("feedback", LAB)
    page = {one: (root / "feedback" / one / LAB / f"{LAB}.html").read_text("utf-8") for one in ("ada", "ben")}
    assert f"Of {points:g} points, {points - penalty:g} count." in page["ada"]
    assert "late day" not in page["ben"]

    # Another date, then a submission of which no time is known
    (root / "deadlines.csv").write_text(f"{HEADING}{LAB},,2026-11-02 12:00,UTC\n{LAB},ada,2026-11-04 12:00,\n")
    type("feedback", LAB)
    assert "late day" not in (root / "feedback" / "ada" / LAB / f"{LAB}.html").read_text("utf-8")
    assert penalties(root)["ada"] == (points, 0)
    (root / "deadlines.csv").write_text(f"{HEADING}{LAB},,2026-10-01 12:00,UTC\n{LAB},zoe,2026-11-04 12:00,\n")
    said = type("export", "--unfinished")
    assert f"ben ({points:g} before, 0 after)" in said and "deadlines.csv: It has a date for zoe" in said
    hand_in("ada")
    type("grade", LAB, "--workers", "1")
    assert penalties(root)["ada"] == (points, 0)

    (root / "deadlines.csv").write_text(f"{HEADING}{LAB},,tomorrow,UTC\n")
    shutil.rmtree(root / "autograded")
    for words in (("grade", LAB), ("report", LAB), ("report", "--all"), ("feedback", LAB), ("export",)):
        assert "'tomorrow' is not a due date" in type(*words)
    assert not (root / "autograded").exists()
