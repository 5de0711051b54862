"""After a lab is graded again, the instructor reads whose marks changed, and why."""

import pytest

from classroom import Classroom
from coursegrader.regrade import Move, moves, print_moves, snapshot

LAB = "lab-01"


@pytest.fixture
def regraded(tmp_path):
    """Snapshots before and after: ada gains a point, ben loses two, and cleo gets another hint for the same mark."""
    room = Classroom(tmp_path)
    room.add_lab(LAB, {"mean-1": 1, "line-1": 2}, {"essay": 4})
    first = {
        "ada": ({"mean-1": 0, "line-1": 2}, {"mean-1": "that is the sum"}),
        "ben": ({"mean-1": 1, "line-1": 2}, {}),
        "cleo": ({"mean-1": 0, "line-1": 0}, {"mean-1": "too large", "line-1": "write it first"}),
    }
    second = {
        "ada": ({"mean-1": 1, "line-1": 2}, {}),
        "ben": ({"mean-1": 1, "line-1": 0}, {"line-1": "the slope and the intercept are swapped"}),
        "cleo": ({"mean-1": 0, "line-1": 0}, {"mean-1": "that is the sum", "line-1": "write it first"}),
    }
    states = []
    for run in (first, second):
        for student, (points, hints) in run.items():
            room.hand_in(LAB, student, points, {"essay": 3})
            room.write_autograded(LAB, student, {}, hints)
        states.append(snapshot(LAB, room.gradebook, room.root))
    return states


def test_a_snapshot_holds_points_and_hints(regraded):
    assert regraded[0]["ada"] == {"mean-1": (0, "that is the sum"), "line-1": (2, None), "essay": (3, None)}


def test_just_the_marks_that_move_are_listed(regraded):
    assert moves(*regraded) == [
        Move("ada", "mean-1", 0, 1, "that is the sum", None),
        Move("ben", "line-1", 2, 0, None, "the slope and the intercept are swapped"),
    ]
    assert moves(regraded[0], regraded[0]) == []


def test_the_table_says_who_why_and_how_much_in_all(regraded, capsys):
    print_moves(moves(*regraded))
    assert capsys.readouterr().out.splitlines() == [
        "student  cell    before  after  why",
        "ada      mean-1       0      1  no longer: that is the sum",
        "ben      line-1       2      0  now: the slope and the intercept are swapped",
        "2 marks of 2 students move: 1 up by 1 in all, 1 down by 2 in all.",
    ]


def test_no_move_is_said_in_words(capsys):
    print_moves([])
    assert capsys.readouterr().out == "No mark moves.\n"


def test_cells_that_come_and_go_are_moves():
    before, after = {"ada": {"old-1": (2, None)}}, {"ada": {"new-1": (1, None)}}
    assert [(one.grade_id, one.why) for one in moves(before, after)] == [
        ("new-1", "the cell is new"),
        ("old-1", "the cell is gone"),
    ]


def test_a_name_or_a_hint_cannot_drive_the_terminal(tmp_path, capsys):
    room = Classroom(tmp_path)
    room.add_lab(LAB, {"mean-1": 1})
    states = []
    for points, hint in ((1, "fine"), (0, "\x1b[2J\x1b]0;gone\x07 and\nmore\u202e")):
        room.hand_in(LAB, "ada\x1b[31m", {"mean-1": points})
        room.write_autograded(LAB, "ada\x1b[31m", {}, {"mean-1": hint})
        states.append(snapshot(LAB, room.gradebook, room.root))
    print_moves(moves(*states))
    printed = capsys.readouterr().out
    assert printed.count("\n") == 3 and printed.replace("\n", "").isprintable()
