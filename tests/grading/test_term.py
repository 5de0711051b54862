"""A class of 40 goes through Moodle and back: from the list of participants to grades and pages for all of them."""

import csv
import io
import zipfile

import pytest

import classroom
from course import Lab, command_in, make_course

LAB = "lab-01-toy-regression"
HEADER = (
    'Identifier,"Full name","Email address",Status,Grade,"Maximum Grade","Grade can be changed",'
    '"Last modified (submission)","Last modified (grade)","Feedback comments"\r\n'
)


def worksheet(largest):
    """Return Moodle's grading worksheet, as somebody downloads it after the due date."""
    rows = []
    for number in range(1, 41):
        day = 3 if number in (classroom.LATE, classroom.EXTENDED) else 1
        time = (
            "-"
            if number == classroom.NOTHING
            else f'"{["", "Sunday", "", "Tuesday"][day]}, {day} March 2026, 10:00 AM"'
        )
        status = '"No submission"' if number == classroom.NOTHING else '"Submitted for grading, "'
        who = f'"Participant {number}","Given{number} Family{number}",p{number}@example.org'
        rows.append(f"{who},{status},,{largest:.2f},Yes,{time},-,\r\n")
    return "\ufeff" + HEADER + "".join(rows)


@pytest.fixture
def course(tmp_path, capsys, bubblewrap):
    """A course with one lab, its class, and the instructor's command there, which returns what it says."""
    root = tmp_path / "course"
    root.mkdir()
    make_course(root, [LAB])
    with (root / "nbgrader_config.py").open("a") as file:
        file.write(classroom.LATE_RULE)

    run = command_in(root, capsys)

    def type(*words):
        code, said = run(*words)
        assert code in (0, 1), f"{said}{code}"
        return said

    return Lab(root, LAB), type


@pytest.mark.nightly
def test_a_class_of_40_goes_through_moodle_and_back(course, tmp_path):
    lab, type = course
    root, largest = lab.root, sum(lab.points.values())
    # Moodle's three files
    people = [f"Given{n},Family{n},{1000 + n},p{n}@example.org" for n in range(1, 41)]
    (tmp_path / "people.csv").write_text("\n".join(["First name,Last name,ID number,Email address", *people]) + "\n")
    (tmp_path / "sheet.csv").write_bytes(worksheet(largest).encode())
    with zipfile.ZipFile(tmp_path / "class.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for n in set(range(1, 41)) - {classroom.NOTHING}:
            name = f"Given{n} Family{n}_{n}_assignsubmission_file_/HAND-IN-{LAB}.ipynb"
            archive.writestr(name, classroom.handed_in(lab, n))
    deadlines = f"{LAB},,2026-03-02 12:00,Europe/Berlin\n{LAB},{1000 + classroom.EXTENDED},2026-03-04 12:00,\n"
    (root / "deadlines.csv").write_text(f"lab,student,due,time zone\n{deadlines}")

    type("roster", tmp_path / "people.csv")
    type("collect", LAB, tmp_path / "class.zip", "--worksheet", tmp_path / "sheet.csv")
    said = type("grade", LAB)
    assert "1 on the roster handed in nothing" in said and "1 of the class handed in late" in said

    # Marks by hand, then a test is changed
    classroom.mark(lab, [str(1000 + n) for n in set(range(1, 41)) - {classroom.NOTHING, classroom.BROKEN}])
    before = classroom.scores(lab)
    classroom.change_a_check(root)
    type("release", LAB)
    said = type("regrade", LAB)
    assert f"now: {classroom.CHANGED}" in said
    classroom.assert_only_the_changed_check_moved(lab.written, before, classroom.scores(lab))

    # Back to the class
    type("report", LAB)
    type("report", "--all")
    type("feedback", LAB, "--archive", "feedback.zip")
    said = type("export", LAB, "--style", "moodle", "--worksheet", tmp_path / "sheet.csv")
    totals = lab.totals()
    text = (root / "grades.csv").read_bytes().decode("utf-8-sig")
    rows = {row["Identifier"].split()[1]: row for row in csv.DictReader(io.StringIO(text, newline=""))}
    for n in range(1, 41):
        row, points = rows[str(n)], totals.get(str(1000 + n), 0)
        part = 0.9 if n == classroom.LATE else 1.0
        assert row["Grade"] == ("" if n == classroom.NOTHING else f"{round(points * part, 2):g}"), row
        assert ("Read by a person, " + str(1000 + n) in row["Feedback comments"]) == (
            n not in (classroom.NOTHING, classroom.BROKEN)
        )
    assert "handed in nothing" in rows[str(classroom.NOTHING)]["Feedback comments"]
    assert "1 late day" in rows[str(classroom.LATE)]["Feedback comments"]
    assert "late" not in rows[str(classroom.EXTENDED)]["Feedback comments"]
    with zipfile.ZipFile(root / "feedback.zip") as archive:
        pages = {int(name.split("_")[1]): archive.read(name).decode() for name in archive.namelist()}
    assert pages.keys() == set(range(1, 41)) - {classroom.NOTHING}
    for n, page in pages.items():
        assert f"Feedback for Given{n} Family{n}<" in page
        assert ("could not be graded" in page) == (n == classroom.BROKEN)
