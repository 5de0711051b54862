"""The report on a class shows the gradebook and the autograded notebooks, and runs no student's code."""

import re
import shutil
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from traitlets.config import Config

from classroom import Classroom
from course import ATTACK, LiveParts
from coursegrader import GradingError, result_cache
from coursegrader.people import Person
from coursegrader.report import item_analysis, write_report, write_term_report
from coursegrader.similarity import SimilarPairs, similar_pairs, tokens

LAB = "lab-01-small"
TESTS = {"mean-1": 1, "mean-2": 1, "line-1": 2}
STUB = {
    "mean": 'def mean(x):\n    """Return the mean."""\n    raise NotImplementedError()',
    "line": "raise NotImplementedError()",
}
# Automatic points in mean-1, mean-2 and line-1, marks by hand (None: it waits), hints, and what the grader noted
CLASS = {
    "ada": ((1, 1, 2), 4, {}, {"seconds": 0.5}),
    "ben": ((1, 1, 2), 2, {}, {"seconds": 1.5, "repairs": ["a lost cell was put back"]}),
    "cleo": ((1, 0, 2), None, {"mean-2": "that is the sum"}, {"seconds": 2.5}),
    "dan": ((1, 0, 0), 0, {"mean-2": "that is the sum", "line-1": "write it first"}, {"stopped": "out of memory"}),
    "eve": ((1, 0, 0), None, {"mean-2": "it raised"}, {"refused": "not a notebook"}),
}


@pytest.fixture(scope="module")
def classroom(tmp_path_factory):
    room = Classroom(tmp_path_factory.mktemp("course"))
    room.add_lab(LAB, TESTS, {"essay": 4})
    sections = {
        "Exercise 1 · The mean": ["mean", "mean-1", "mean-2"],
        "Exercise 2 · A $line$": ["line", "line-1"],
        "Exercise 3 · In words": ["essay"],
    }
    room.write_release(LAB, "Lab 1 · Small", sections, STUB)
    for student, (points, by_hand, hints, known) in CLASS.items():
        marks = {} if by_hand is None else {"essay": by_hand}
        room.hand_in(LAB, student, dict(zip(TESTS, points, strict=True)), marks, late=1.0)
        room.write_autograded(LAB, student, STUB, hints, **known)
    return room


@pytest.fixture(scope="module")
def page(classroom):
    path = write_report(LAB, classroom.root, classroom.gradebook)
    assert path == classroom.root / "reports" / f"{LAB}.html"
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def rows(page, caption):
    """Return the rows of a table as lists of texts."""
    (title,) = [one for one in page.find_all("caption") if one.text.startswith(caption)]
    lines = title.find_parent("table").find_all("tr")
    return [[re.sub(r"\s+", " ", cell.text).strip() for cell in line.find_all(["th", "td"])] for line in lines]


def section(page, identifier):
    """Return the text below a heading."""
    text = ""
    for element in page.find(id=identifier).find_next_siblings():
        if element.name == "h2":
            break
        text += " " + " ".join(element.text.split())
    return text


def test_the_totals_are_those_of_the_class_and_leave_out_what_waits(page):
    assert page.h1.text.startswith("Lab 1 · Small")
    assert "5 submissions. 2 written answers of 2 students still wait to be marked by hand." in section(page, "class")
    # Automatic 4, 4, 3, 1, 1: mean 2.6, squared deviations 2 · 1.96 + 0.16 + 2 · 2.56 = 9.2, over 4; then 8, 6 and 1
    assert rows(page, "Totals")[1:] == [
        ["Automatic points", "4", "5", "2.6", "3.0", "1.5"],
        ["All points, with the written answers", "8", "3", "5.0", "6.0", "3.6"],
        # Each less 1 for being late: 7, 5 and 0
        ["Points that count, after late penalties", "8", "3", "4.0", "5.0", "3.6"],
    ]


def test_an_exercise_is_its_title_and_the_mean_share_of_its_points(page):
    assert rows(page, "Mean share")[1:] == [
        ["Exercise 1 · The mean", "2", "70 %", "5"],
        ["Exercise 2 · A $line$", "2", "60 %", "5"],
        ["Exercise 3 · In words", "4", "50 %", "3"],
    ]


def test_a_test_cell_has_its_failures_its_difficulty_and_its_discrimination(page):
    # mean-2: those who pass have 3, 3 points in the rest, the others 3, 1, 1: (3 - 5/3) · √(0.4 · 0.6) / √0.96 = 0.67;
    # line-1: 2, 2, 1 against 1, 1: (5/3 - 1) · √(0.6 · 0.4) / √0.24 = 0.67. Everybody passes mean-1.
    assert rows(page, "The test cells")[1:] == [
        ["Exercise 1 · The mean"],
        ["mean-1", "1", "0", "100 %", "–"],
        ["mean-2", "1", "3", "40 %", "0.67"],
        ["Exercise 2 · A $line$"],
        ["line-1", "2", "2", "60 %", "0.67"],
    ]


def test_a_hint_counts_the_students_who_got_it(page):
    assert rows(page, "The most frequent hints")[1:] == [
        ["2", "that is the sum", "mean-2"],
        ["1", "it raised", "mean-2"],
        ["1", "write it first", "line-1"],
    ]


def test_the_slowest_and_the_troubled_submissions_are_named_with_the_reasons(page):
    assert "3 submissions took 0.1 minutes in all, half of them at most 1.50 s" in section(page, "time")
    assert rows(page, "The slowest")[1:] == [["cleo", "2.50"], ["ben", "1.50"], ["ada", "0.50"]]
    assert rows(page, "What happened")[1:] == [
        ["refused", "eve", "not a notebook"],
        ["stopped", "dan", "out of memory"],
        ["repaired", "ben", "a lost cell was put back"],
    ]


def test_untouched_notebooks_are_not_called_alike(page):
    assert "No two submissions stand out." in section(page, "alike")


def test_the_page_needs_nothing_else_and_says_its_figures_in_words(page):
    assert not page.find_all(["script", "link", "img", "iframe"]) and "http" not in str(page).replace("http-equiv", "")
    labels = [figure["aria-label"] for figure in page.find_all("svg", role="img")]
    assert len(labels) == len(page.find_all("svg")) == 5
    assert labels[0].startswith("Automatic points: 5 submissions from 1 to 4 points, half of them at or below 3")
    assert "Exercise 2 · A $line$: 60 %" in labels[3]
    assert all(table.caption and table.find("th", scope="col") for table in page.find_all("table"))
    for svg in page.find_all("svg"):
        named = {element["id"] for element in svg.find_all(id=True)}
        assert set(re.findall(r'(?:url\(|href=")#(\w+)', str(svg))) <= named


@pytest.fixture
def small(tmp_path):
    room = Classroom(tmp_path)
    room.add_lab(LAB, TESTS)
    return room


def test_nothing_from_a_student_runs(small):
    name = "<img src=x onerror=alert(1)>"
    copied = f'def mean(x):\n    y = 0\n    for one in x:\n        y += one\n    return y, """\ud800{ATTACK}"""'
    answers = ["x = 1", "return_", "y[0] = [2, 3]", "import os", "print(sum(range(4)))", copied]
    for student, code in zip("abcdef", answers, strict=True):
        small.hand_in(LAB, student, dict.fromkeys(TESTS, 0))
        small.write_autograded(LAB, student, {"mean": code}, {"mean-1": ATTACK}, repairs=[ATTACK], stopped=ATTACK)
    small.hand_in(LAB, name, dict.fromkeys(TESTS, 0))
    small.write_autograded(LAB, name, {"mean": copied}, {"mean-1": ATTACK}, refused=ATTACK, seconds=3)
    page = write_report(LAB, small.root, small.gradebook).read_text("utf-8")
    assert LiveParts(page).found == []
    soup = BeautifulSoup(page, "html.parser")
    assert not soup.find_all(["img", "a"], src=True) and not soup.find_all(href=re.compile("javascript"))
    assert soup.find("summary").text.startswith(f"{name} and f:")
    assert ATTACK.splitlines()[0] in soup.find("pre").text


def test_a_class_graded_by_plain_nbgrader_is_reported(small):
    for student, points in {"ada": 2, "ben": 0}.items():
        small.hand_in(LAB, student, {"mean-1": 1, "mean-2": 1, "line-1": points})
    shutil.rmtree(small.root / "autograded" / "ben")
    page = BeautifulSoup(write_report(LAB, small.root, small.gradebook).read_text("utf-8"), "html.parser")
    assert page.h1.text.startswith(LAB)
    assert "without hints, time and code: ben." in section(page, "class")
    assert [row[0] for row in rows(page, "Mean share")[1:]] == ["line", "mean"]
    assert "do not say how long" in section(page, "time") and "None." in section(page, "notices")


@pytest.mark.parametrize(
    "known",
    [
        {"seconds": "long", "repairs": "all", "refused": 3, "stopped": ["x"]},
        {"seconds": float("nan"), "repairs": [None, {}]},
        {"seconds": 10**400, "stopped": "\ud800 \x1b[2J"},
    ],
)
def test_a_notebook_with_senseless_notes_is_reported(small, known):
    small.hand_in(LAB, "ada", dict.fromkeys(TESTS, 1))
    small.write_autograded(LAB, "ada", {"mean": "\ud800 = '\x00'"}, {"mean-1": "\ud800"}, **known)
    page = write_report(LAB, small.root, small.gradebook).read_text("utf-8")
    assert "do not say how long" in page and "\x1b" not in page


def test_a_submission_that_may_not_be_read_any_more_is_not_graded_and_the_report_goes_on(classroom, monkeypatch):
    def refuse(student, *_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(result_cache, "handed_in", refuse)
    (classroom.root / "submitted" / "eve" / LAB).mkdir(parents=True, exist_ok=True)
    assert "eve" in result_cache.not_graded(LAB, classroom.root)
    write_report(LAB, classroom.root, classroom.gradebook)


def test_a_lone_submission_that_was_not_graded_yet_is_said_to_be(small):
    small.hand_in(LAB, "ada", {})
    page = BeautifulSoup(write_report(LAB, small.root, small.gradebook).read_text("utf-8"), "html.parser")
    assert "1 submission is not graded yet" in section(page, "class")
    assert rows(page, "Totals")[1] == ["Automatic points", "4", "0", "–", "–", "–"]


def test_an_exercise_counts_for_those_of_whom_every_part_is_marked(tmp_path):
    room = Classroom(tmp_path)
    room.add_lab(LAB, {"essay-1": 1}, {"essay": 3})
    room.hand_in(LAB, "ada", {"essay-1": 1}, {"essay": 3})
    room.hand_in(LAB, "ben", {"essay-1": 0})
    page = BeautifulSoup(write_report(LAB, room.root, room.gradebook).read_text("utf-8"), "html.parser")
    assert rows(page, "Mean share")[1:] == [["essay", "4", "100 %", "1"]]


def test_a_lab_of_written_answers_alone_is_reported(tmp_path):
    room = Classroom(tmp_path)
    room.add_lab(LAB, {}, {"essay": 4})
    room.hand_in(LAB, "ada", {}, {"essay": 3})
    page = BeautifulSoup(write_report(LAB, room.root, room.gradebook).read_text("utf-8"), "html.parser")
    assert rows(page, "Totals")[1:] == [["All points, with the written answers", "4", "1", "3.0", "3.0", "–"]]
    assert rows(page, "The test cells")[1:] == []


def test_without_submissions_or_with_another_name_it_says_what_to_do(small):
    with pytest.raises(GradingError, match=f"run `mlcourse grade {LAB}` first"):
        write_report(LAB, small.root, small.gradebook)
    with pytest.raises(GradingError, match=f"no lab 'lab-99', it has {LAB}"):
        write_report("lab-99", small.root, small.gradebook)


def test_a_test_that_the_better_half_fails_discriminates_below_zero():
    points = pd.DataFrame({"a": [1, 1, 0, 0], "b": [0, 0, 2, 2], "c": [0, 1, 2, 3]})
    table = item_analysis(points, pd.Series({"a": 1, "b": 2, "c": 3}))
    assert table.failed.tolist() == [2, 2, 3]
    assert table.discrimination["a"] == pytest.approx(np.corrcoef([1, 1, 0, 0], [0, 1, 4, 5])[0, 1])
    assert table.discrimination["a"] < -0.9


# --- the class, and all labs ---------------------------------------------------------------------------------------


ROSTER = [Person("ada", "Lovelace", "Ada", group="Monday"), Person("ben", "King", "Ben"), Person("zoe", "Zed", "Zoe")]


@pytest.fixture
def term(small):
    """Two labs; Zoe handed in nothing, Ben only for the first; in the second an answer of Eve waits."""
    small.add_lab("lab-02-next", {"fit-1": 6}, {"essay": 4})
    small.add_lab("lab-03-later", {"fit-1": 6})
    for one in ROSTER:
        small.add_student(one.student, first_name=one.first_name, last_name=one.last_name)
    small.write_release(LAB, "Lab 1 · Small", {"The mean": ["mean-1", "mean-2"], "A line": ["line-1"]})
    for student, points in (("ada", (1, 1, 2)), ("ben", (1, 0, 0)), ("eve", (0, 0, 0))):
        small.hand_in(LAB, student, dict(zip(TESTS, points, strict=True)), late=0.5 * (student == "ada"))
        small.write_autograded(LAB, student, refused="not a notebook" if student == "eve" else None)
    small.hand_in("lab-02-next", "ada", {"fit-1": 6}, {"essay": 2})
    small.hand_in("lab-02-next", "eve", {"fit-1": 3})
    (small.root / "submitted" / "fay" / "lab-02-next").mkdir(parents=True)
    return small


def test_the_report_lists_everybody_with_the_state_of_their_work_and_why_it_was_refused(term):
    page = BeautifulSoup(write_report(LAB, term.root, term.gradebook, people=ROSTER).read_text("utf-8"), "html.parser")
    assert rows(page, "Everybody") == [
        ["person", "group", "points", "after penalty", "state"],
        ["eve", "", "0", "0", "refused: not a notebook"],
        ["Ben King (ben)", "", "1", "1", "graded"],
        ["Ada Lovelace (ada)", "Monday", "4", "3.5", "graded"],
        ["Zoe Zed (zoe)", "", "", "", "handed in nothing"],
    ]
    path = write_report("lab-02-next", term.root, term.gradebook, people=ROSTER)
    page = BeautifulSoup(path.read_text("utf-8"), "html.parser")
    assert [row[-1] for row in rows(page, "Everybody")[1:]] == [
        "1 written answer not marked",
        "not graded since handed in",
        "handed in nothing",
        "graded",
        "handed in nothing",
    ]


def test_who_is_neither_on_the_roster_nor_among_the_submissions_any_more_does_not_count(term):
    (term.root / "submitted" / "eve" / LAB).rmdir()
    path = write_report(LAB, term.root, term.gradebook, people=ROSTER)
    page = BeautifulSoup(path.read_text("utf-8"), "html.parser")
    assert [row[0] for row in rows(page, "Everybody")[1:]] == ["Ben King (ben)", "Ada Lovelace (ada)", "Zoe Zed (zoe)"]


def test_the_report_on_the_term_has_every_lab_every_exercise_and_every_person(term):
    path = write_term_report(term.root, term.gradebook, people=ROSTER)
    assert path == term.root / "reports" / "all-labs.html"
    page = BeautifulSoup(path.read_text("utf-8"), "html.parser")
    # Lab 1: 3.5, 1 and 0 of 4; in lab 2, only Ada's 8 of 10 are final
    assert rows(page, "The labs")[1:] == [
        ["Lab 1 · Small", "", "4", "3", "1", "0", "1", "0", "3", "1.5", "1.0"],
        ["lab-02-next", "", "10", "3", "2", "0", "0", "2", "1", "8.0", "8.0"],
    ]
    assert rows(page, "Points of each exercise")[1:] == [
        ["Lab 1 · Small"],
        ["The mean", "2", "3", "1.0", "1.0"],
        ["A line", "2", "3", "0.7", "0.0"],
        ["lab-02-next"],
        ["essay", "4", "1", "2.0", "2.0"],
        ["fit", "6", "2", "4.5", "4.5"],
    ]
    assert rows(page, "Everybody") == [
        ["person", "group", "lab-01", "lab-02", "total of 14", "share"],
        ["eve", "", "0 refused", "3 waits", "3", "21 %"],
        ["fay", "", "–", "not graded", "0", "0 %"],
        ["Ben King (ben)", "", "1", "–", "1", "7 %"],
        ["Ada Lovelace (ada)", "Monday", "3.5", "8", "11.5", "82 %"],
        ["Zoe Zed (zoe)", "", "–", "–", "0", "0 %"],
    ]
    text = section(page, "nothing")
    assert "For no lab at all, 1 person: Zoe Zed (zoe)." in text
    assert "Lab 1 · Small: Zoe Zed (zoe)." in text and "lab-02-next: Ben King (ben), Zoe Zed (zoe)." in text


def test_a_term_without_anything_handed_in_is_said_to_be_one(small):
    with pytest.raises(GradingError, match="nothing was handed in for any lab"):
        write_term_report(small.root, small.gradebook)


def test_no_name_runs_on_the_page_about_the_term(small):
    small.hand_in(LAB, "ada", {})
    people = [Person("ada", first_name="<script>alert(1)</script>", group="<img src=x onerror=alert(1)>")]
    for path in (
        write_term_report(small.root, small.gradebook, people=people),
        write_report(LAB, small.root, small.gradebook, people=people),
    ):
        assert LiveParts(path.read_text("utf-8")).found == []
        assert "&lt;img src=x" in path.read_text("utf-8")


# --- nearly the same code ---------------------------------------------------------------------------------------------

OWN = [
    "return sum(x) / len(x)",
    "total = 0\nfor value in x:\n    total += value\nreturn total / len(x)",
    "import numpy as np\nreturn np.mean(np.asarray(x, dtype=float))",
    "if not len(x):\n    raise ValueError('empty')\nreturn float(pd.Series(x).mean())",
    "n, s = 0, 0.0\nwhile n < len(x):\n    s, n = s + x[n], n + 1\nreturn s / n",
    "from statistics import fmean\nreturn fmean(list(x))",
    "from functools import reduce\nreturn reduce(lambda a, b: a + b, x) / len(x)",
    "w = [1 / len(x)] * len(x)\nreturn sum(a * b for a, b in zip(w, x))",
]


def answer(body):
    return "def mean(x):\n" + "\n".join(f"    {line}" for line in body.splitlines())


def pairs_of(answers):
    code = {f"s{at}": {"mean": answer(body)} for at, body in enumerate(answers)}
    return [pair.students for pair in similar_pairs(code, STUB)]


def test_a_copy_with_other_names_comments_and_layout_is_found():
    assert pairs_of(OWN) == []
    disguised = "# my work\nk, acc = 0, 0.0\nwhile k<len(x):\n  acc, k = (acc + x[k]), k+1\n\nreturn (acc/k)  # done"
    assert pairs_of([*OWN, disguised]) == [("s4", "s8")]


def test_an_answer_that_half_of_the_class_has_says_nothing():
    assert pairs_of([*OWN, *[OWN[0]] * 8]) == []
    assert pairs_of([*OWN, OWN[3]]) == [("s3", "s8")]


def test_an_instructor_sets_which_pairs_the_report_lists(tmp_path):
    room = Classroom(tmp_path)
    room.add_lab(LAB, {"mean-1": 1})
    for number, body in enumerate([*OWN, OWN[3]]):
        room.hand_in(LAB, f"s{number}", {"mean-1": 1})
        room.write_autograded(LAB, f"s{number}", {"mean": answer(body)})

    def listed(**chosen):
        config = Config(SimilarPairs=chosen)
        path = write_report(LAB, room.root, room.gradebook, config=config)
        return len(BeautifulSoup(path.read_text("utf-8"), "html.parser").find_all("summary"))

    assert [listed(), listed(most=0), listed(least_rarity=0, least_alike=0, most=2)] == [1, 0, 2]


def test_comments_of_a_pair_in_letters_that_turn_the_line_stand_in_blocks_that_a_browser_can_set(tmp_path):
    room = Classroom(tmp_path)
    room.add_lab(LAB, {"mean-1": 1})
    turning = "\n".join(f"{OWN[3]}  # " + "\u05d0a" * 99 for _ in range(55))
    for number, body in enumerate([*OWN, f"{OWN[3]}\n{turning}", f"{OWN[3]}\n{turning}"]):
        room.hand_in(LAB, f"s{number}", {"mean-1": 1})
        room.write_autograded(LAB, f"s{number}", {"mean": answer(body)})
    page = BeautifulSoup(write_report(LAB, room.root, room.gradebook).read_text("utf-8"), "html.parser")
    sides = page.select(".sides pre")
    assert len(sides) == 2
    for side in sides:
        letters = [0]
        for one in side.descendants:
            if one.name == "div":
                letters.append(0)
            elif not one.name:
                letters[-1] += len(re.findall(r"[^\x00-\x7f]", one))
        assert sum(letters) > 1200 and max(letters) <= 1000


def test_similar_answers_stand_side_by_side_without_what_was_given_and_the_model_solution(tmp_path):
    room = Classroom(tmp_path)
    room.add_lab(LAB, {"mean-1": 1})
    room.write_release(LAB, "Small", {"The mean": ["mean"]}, STUB)
    model = answer('"""Return the mean."""\ns = 0  # the sum\nfor one in x:\n    s += one\nreturn s / len(x)')
    room.write_release(LAB, "Small", {"The mean": ["mean"]}, {"mean": model}, folder="source")
    own = "s=0\nfor one in x :\n    s += one\nprint('<b>mine</b>')\nreturn s/len(x)  # as I like it"
    for number, body in enumerate([*OWN, own, own]):
        room.hand_in(LAB, f"s{number}", {"mean-1": 1})
        room.write_autograded(LAB, f"s{number}", {"mean": answer(body)})
    page = BeautifulSoup(write_report(LAB, room.root, room.gradebook).read_text("utf-8"), "html.parser")
    assert [one.text for one in page.find("details").find_all("h4")] == ["s8", "s9"]
    left, right = page.find("details").find_all("pre")
    assert str(left) == str(right)
    assert [(part.name, part.text) for part in left.find_all(["code", "em", "b"])] == [
        ("code", "def mean(x):"),
        ("em", "… 3 lines as in the model solution"),
        ("code", "    print('<b>mine</b>')"),
        ("em", "… 1 line as in the model solution"),
    ]


def test_it_does_not_matter_who_is_compared_with_whom():
    answers = [{"mean": answer(body)} for body in OWN]
    everybody = SimilarPairs(least_alike=0, least_rarity=0)
    one = similar_pairs(dict(zip("abcdefgh", answers, strict=True)), STUB, everybody)
    other = similar_pairs(dict(zip("hgfedcba", answers, strict=True)), STUB, everybody)
    assert [pair.rarity for pair in one] == pytest.approx([pair.rarity for pair in other])


def test_among_fewer_than_five_nothing_is_compared():
    assert pairs_of([OWN[3]] * 4) == []


def test_what_was_given_is_nobody_s_own_and_names_and_docstrings_do_not_count():
    given = {"def mean(v):", "raise NotImplementedError()"}
    assert tokens(STUB["mean"], given) == []
    one = tokens('def mean(x):\n    """Return it."""\n    total = sum(x)  # add\n    return total / 2', given)
    assert one == tokens("def mean(values: list):\n    s = (sum(values))\n\n    return s/2", given) and "sum" in one
    assert one != tokens("def mean(x):\n    total = max(x)\n    return total / 2", given)


@pytest.mark.parametrize(
    "code", [f"import {'a.' * 49_000}b", "a = " + "b." * 49_000 + "c", "(" * 99_000, "1+" * 49_000]
)
def test_code_without_end_takes_no_memory_to_compare(code):
    tracemalloc.start()
    tokens(code)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 50 * 2**20


@pytest.mark.parametrize("code", ["def mean(x:\n  return 1", "%timeit 1\nx = 2", "(" * 5000, "\x00", "0x" + "f" * 9000])
def test_code_that_python_cannot_read_is_compared_all_the_same(code):
    assert isinstance(tokens(code), list)
    assert len(similar_pairs({f"s{n}": {"mean": code} for n in range(6)}, {})) == 0
