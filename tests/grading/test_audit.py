"""An audit reports the mistakes that a lab's tests do not notice, and shows them on a page."""

import copy
import re
import textwrap

import pytest
import yaml

from course import LiveParts, text_of
from coursegrader import GradingError, trial
from coursegrader.audit import audit, run_audit, write_page
from coursegrader.mutants import mutants

LAB = "lab-01-double"
SOURCE = """\
---
kernelspec: {name: python3, display_name: Python 3}
---

```{code-cell} ipython3
:nbgrader: {grade_id: double, solution: true}
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION
```

```{code-cell} ipython3
:nbgrader: {grade_id: double-1, points: 2}
from mlcourse import checks

with checks.testing("double", see="numbers.html#double"):
    checks.number(double(3), 6, "double(3)", mistakes={"that is the square": 9})
```
"""
TEST = SOURCE[SOURCE.index("with checks") : SOURCE.rindex("```")]
DOUBLES_ONE = SOURCE.replace("double(3)", "double(1)").replace("6", "2")
ANSWERS = {
    "wrong": [
        {"name": "the square", "code": "double = lambda x: x**2", "loses": {"double-1": "that is the square"}},
        {"name": "one more", "code": "double = lambda x: x + 1", "loses": {"double-1": "got 4"}},
        {"name": "a print", "code": "double = lambda x: print(2 * x)", "loses": {"double-1": "got None"}},
    ],
    "right": [
        {"name": "a sum", "code": "double = lambda x: x + x"},
        {"name": "the other way round", "code": "double = lambda x: x * 2"},
    ],
    "equivalent": {},
    "promises": {},
}
PROMISING = SOURCE.replace(
    "def double(x):\n",
    '''def double(x):
    """Double a number.

    Parameters
    ----------
    x : float
        Any number.

    Returns
    -------
    float
        Twice the number.
    """
''',
)
DIVISION = "double: `2 * x` -> `2 / x`"


@pytest.fixture
def answers():
    return copy.deepcopy(ANSWERS)


@pytest.fixture
def course(tmp_path):
    """Return a function that writes a course with one lab and returns its folder."""

    def write(answers, source=SOURCE):
        given = answers if isinstance(answers, str) else yaml.safe_dump(answers, sort_keys=False)
        for folder, name, text in (("solutions", f"{LAB}.md", source), ("tests/answers", f"{LAB}.yml", given)):
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / name).write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def problems(course):
    """Return a function that returns the problems that an audit of a lab reports."""

    def find(answers, source=SOURCE):
        return audit(LAB, course({"double": answers}, source)).problems

    return find


def with_test_cell(name, code):
    """Return the lab with one more test cell."""
    return f"{SOURCE}\n```{{code-cell}} ipython3\n:nbgrader: {{grade_id: {name}, points: 1}}\n{code}```\n"


def test_a_lab_whose_tests_notice_everything_has_no_problems(course, answers, capsys):
    root = course({"double": answers})
    assert run_audit(LAB, root) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{LAB}: 3 wrong answers, 2 right answers; 5 of 5 mutants caught (100.0%)")
    assert "; 0 problems: see " in line
    assert "No problems." in (root / "reports" / f"audit-{LAB}.html").read_text(encoding="utf-8")


def test_every_problem_is_printed_on_a_line_and_shown_on_the_page(course, answers, capsys):
    answers["wrong"] = answers["wrong"][:2]
    answers["right"] = answers["right"][:1]
    root = course({"double": answers})
    assert run_audit(LAB, root) == 1
    *found, summary = capsys.readouterr().out.splitlines()
    assert len(found) == 2 and "; 2 problems: see " in summary
    page = text_of(root / "reports" / f"audit-{LAB}.html")
    assert all(problem in page for problem in found)


def test_a_test_cell_that_catches_nothing_is_reported(problems, answers):
    assert problems(answers, with_test_cell("double-2", 'with checks.testing("double", see="x"):\n    double\n')) == [
        "double, the exercise as it is released: should lose double-2, and keeps it",
        "double-2: 0 wrong answers can show that it works: at least 3 should",
    ]


def test_a_brief_audit_finds_the_same_mutants_and_asks_less_of_them(course, answers):
    root = course({"double": answers}, with_test_cell("double-2", "assert double(5) == [10]\n"))
    [whole], [brief] = (audit(LAB, root, brief=is_brief).exercises for is_brief in (False, True))
    assert brief.survivors == whole.survivors
    assert [one.lost for one in brief.of_kind("wrong")] == [one.lost for one in whole.of_kind("wrong")]
    assert max(len(one.lost) for one in brief.of_kind("mutant")) == 1
    assert max(len(one.lost) for one in whole.of_kind("mutant")) == 2


def test_a_mutant_that_survives_is_reported(problems, answers):
    found = problems(answers, DOUBLES_ONE)
    assert any("no test cell notices this mutant" in problem and DIVISION in problem for problem in found)


def test_a_mutant_that_survives_with_a_reason_is_no_problem(problems, answers):
    answers["equivalent"] = {DIVISION: "only 1 is doubled"}
    assert not any("mutant" in one for one in problems(answers, DOUBLES_ONE))


def test_a_reason_for_a_mutant_that_is_caught_is_reported(problems, answers):
    answers["equivalent"] = {DIVISION: "only 1 is doubled"}
    assert problems(answers) == [f"double, declared equivalent, but no such mutant survives: {DIVISION}"]


def test_each_promise_of_the_text_is_broken_by_a_wrong_answer_or_it_is_said_why_none_can(course, answers, tmp_path):
    answers["promises"] = {"x: Any": "every answer takes a number", "float: Twice": ["the square", "one more"]}
    result = audit(LAB, course({"double": answers}, PROMISING))
    assert not result.problems
    text = text_of(write_page(result, tmp_path / "audit.html"))
    assert "no answer: every answer takes a number" in text and "the square: double-1" in text


def test_a_promise_that_nothing_holds_is_reported(problems, answers):
    answers["promises"] = {"x: Any": [], "float: Two": "an old sentence"}
    assert problems(answers, PROMISING) == [
        f"double, nothing holds this promise: '{sentence}': name under `promises` the wrong answers that break it, or "
        "say why no answer can"
        for sentence in ("x: Any number.", "float: Twice the number.")
    ] + ["double, not exactly one promise begins with 'float: Two': write more words, or delete it"]


def test_a_right_answer_that_loses_points_is_reported(problems, answers):
    answers["right"][0]["code"] = "double = lambda x: [x + x]"
    [problem] = problems(answers)
    assert problem.startswith("double, right answer 'a sum': loses double-1: CheckFailed: double(3): expected one")


def test_a_wrong_answer_that_keeps_its_points_is_reported_and_shown(course, answers, tmp_path):
    answers["wrong"].append({"name": "x twice", "code": "double = lambda x: x + x", "loses": {"double-1": "got"}})
    result = audit(LAB, course({"double": answers}))
    assert result.problems[0] == "double, wrong answer 'x twice': should lose double-1, loses nothing"
    page = text_of(write_page(result, tmp_path / "audit.html"))
    assert "x twice" in page.partition("Wrong answers that keep every point")[2]


def test_a_hint_that_does_not_name_the_mistake_is_reported(problems, answers):
    answers["wrong"][1]["loses"]["double-1"] = "that is one more"
    [problem] = problems(answers)
    assert "'one more': double-1 should say 'that is one more'; it says: CheckFailed: double(3): expected 6" in problem


def test_a_message_that_the_checks_did_not_write_is_reported(problems, answers):
    found = problems(answers, SOURCE.replace(TEST, "assert double(3) == 6, 'that is the square, got 4, got None'\n"))
    assert any("it says: AssertionError: that is the square" in problem for problem in found)
    assert any(problem.startswith("double-1 should say that double is not written yet") for problem in found)


def test_two_answers_of_one_name_are_both_tried_and_reported(problems, answers):
    answers["wrong"][1]["name"] = "the square"
    assert problems(answers) == ["double: 2 wrong answers have the name 'the square': name them apart"]


def test_an_instructors_answer_that_loses_points_is_reported(problems, answers):
    found = problems(answers, SOURCE.replace("2 * x", "4 * x"))
    assert any(one.startswith("double, instructor answer") and "loses double-1" in one for one in found)


def test_a_test_cell_that_belongs_to_no_exercise_is_reported(problems, answers):
    [problem] = problems(answers, with_test_cell("halve-1", "assert True\n"))
    assert problem.startswith("halve-1: this test cell is tried on no answer")


def test_an_exercise_without_a_test_cell_is_reported(problems, answers):
    found = problems({**answers, "wrong": []}, SOURCE.replace("double-1", "halve-1"))
    assert any(problem.startswith("double: no test cell belongs to it") for problem in found)


def test_an_answer_that_does_not_end_loses_its_points_and_stops_nothing(problems, answers, monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 1)
    answers["wrong"] += [
        {"name": "a loop", "code": "while True: pass", "loses": {"double-1": "too long"}},
        {"name": "an end", "code": "import os; os._exit(0)", "loses": {"double-1": "ended"}},
    ]
    loop, end = problems(answers)
    assert "'a loop'" in loop and "it says: took too long" in loop
    assert "'an end'" in end and "it says: the process ended before the last test cell" in end


WITHOUT_LOSES = {**ANSWERS, "wrong": [{"name": "the square", "code": "double = None"}]}
OF_ANOTHER_CELL = {**ANSWERS, "wrong": [{**ANSWERS["wrong"][0], "loses": {"double-7": "square"}}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("double: [", "this is not YAML: while parsing"),
        ("- double", "the file must be a mapping, not ['double']"),
        ("", "the file must be a mapping, not None"),
        ({}, "the solution cell double has no answers: write some under its name"),
        ({"double": ANSWERS, "halve": ANSWERS}, "the lab has no solution cell 'halve': write one of double"),
        ({"double": None}, "double must be a mapping, not None"),
        ({"double": {"right": []}}, "double must have the keys wrong, right, equivalent, promises, not right"),
        ({"double": {**ANSWERS, "right": None}}, "double, right must be a list, not None"),
        ({"double": {**ANSWERS, "equivalent": {"a": None}}}, "double, equivalent, a must be a text, not None"),
        ({"double": WITHOUT_LOSES}, "double, wrong answer 1 must have the keys name, code, loses, not name, code"),
        ({"double": OF_ANOTHER_CELL}, "the exercise has no test cell 'double-7': write one of double-1"),
    ],
)
def test_a_file_of_answers_that_is_not_well_formed_is_refused_with_its_name(course, content, message):
    with pytest.raises(GradingError, match=re.escape(message)) as refusal:
        audit(LAB, course(content))
    assert f"{LAB}.yml: " in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_missing_file_of_answers_is_named(course):
    root = course("")
    (root / "tests" / "answers" / f"{LAB}.yml").unlink()
    with pytest.raises(GradingError, match=f"{LAB}.yml: there is no such file"):
        audit(LAB, root)


def test_a_lab_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(GradingError, match="there is no such lab"):
        audit("lab-99", tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("return 2 * x", "return 2 *", "double: the instructor's version cannot be run: SyntaxError"),
        ("def double", "1 / 0\ndef double", "double: the instructor's version cannot be run: ZeroDivisionError"),
        ("from mlcourse import checks", "import no_module", "double-1: .* ModuleNotFoundError"),
    ],
)
def test_an_instructors_version_that_cannot_be_run_is_refused(course, answers, before, after, message):
    with pytest.raises(GradingError, match=message):
        audit(LAB, course({"double": answers}, SOURCE.replace(before, after)))


def test_the_page_shows_each_answer_the_sentence_it_gets_and_each_change(course, answers):
    answers["equivalent"] = {DIVISION: "only 1 is doubled"}
    root = course({"double": answers}, DOUBLES_ONE)
    page = text_of(write_page(audit(LAB, root), root / "audit.html"))
    for answer in answers["wrong"] + answers["right"]:
        assert answer["name"] in page and answer["code"] in page
    assert "double(1): expected 2, got 1" in page
    assert "-    return 2 * x" in page and "+    return 2 / x" in page
    assert "only 1 is doubled" in page


def test_nothing_on_the_page_runs_or_comes_from_another_host(course, answers):
    attack = "</code><script>alert(1)</script><img src=x onerror=alert(1)>"
    answers["wrong"][0] |= {"name": attack, "code": f"double = lambda x: 9  # {attack}"}
    answers["right"][0]["code"] += f"  # {attack}"
    answers["equivalent"] = {attack: attack}
    root = course({"double": answers}, SOURCE.replace("that is the square", f"that is the square {attack}"))
    page = write_page(audit(LAB, root), root / "audit.html").read_text(encoding="utf-8")
    assert LiveParts(page).found == []
    assert page.count("alert(1)") > 10, "the answers should still be readable"
    assert "//" not in page and "url(" not in page and "<img" not in page and "<link" not in page


def test_mutants_change_what_runs_and_neither_signatures_nor_docstrings_nor_errors():
    code = textwrap.dedent('''\
        import numpy as np

        def scale(x, factor=2):
            """Return 3 * x."""
            if factor < 0:
                raise ValueError(f"{factor + 1} is below 0")
            return np.sum(x) * factor
    ''')
    changed = dict(mutants(code))
    assert {
        "scale: `factor < 0` -> `factor <= 0`",
        "scale: `np.sum` -> `np.mean`",
        "scale: `np.sum(x) * factor` -> `np.sum(x) / factor`",
    } <= changed.keys()
    assert "factor = 2" in changed["`x, factor=2` -> `factor = 2`"]
    for mutated in changed.values():
        assert 'import numpy as np\n\ndef scale(x, factor=2):\n    """Return 3 * x."""' in mutated
        assert "raise ValueError(f'{factor + 1} is below 0')" in mutated or "raise" not in mutated


@pytest.mark.parametrize(
    ("statement", "mutated"),
    [
        ("return y == y_hat", "return np.isclose(y, y_hat)"),
        ("return np.asarray(y) / 2", "return y / 2"),
        ("y = y.copy()", "y = y"),
        ("return [one + 1 for one in y]", "return [one + 1 for one in sorted(y)]"),
        ("self.classes_ = y", "type(self).classes_ = y"),
    ],
)
def test_mutants_compare_loosely_change_their_arguments_assume_an_order_and_share_their_state(statement, mutated):
    code = f"def model(self, y, y_hat):\n    {statement}\n"
    assert any(f"    {mutated}\n" in one for one in (text + "\n" for _, text in mutants(code)))
