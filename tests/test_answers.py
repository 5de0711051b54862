"""The checks of every lab grade right work right and wrong work wrong, and say what is wrong.

``tests/answers/LAB.yml`` holds for every solution cell, under its grade_id,

- ``wrong``: answers that students give, each with the test cells that it ``loses`` and words of the message there,
- ``right``: answers that keep every point, although they differ from the instructor's,
- ``equivalent``: the mechanical mutants of the instructor's answer that no test cell can notice, each with the reason.
"""

import copy
import time
from functools import cache
from types import SimpleNamespace

import pytest
import yaml
from nbgrader.preprocessors import ClearSolutions

from mlcourse.grading.labs import read_lab
from mutants import mutants
from paths import LABS, ROOT
from trial import solution_cells, test_cells, try_answers

UNSOLVED = ("is not written yet", "is not defined")

test_cells.__test__ = False


@pytest.fixture(scope="module", params=LABS)
def lab(request):
    return tried(request.param)


@cache
def tried(name):
    """Return the answers to a lab and what its test cells said to each."""
    path = ROOT / "tests" / "answers" / f"{name}.yml"
    if not path.is_file():
        pytest.fail(f"{name} has no file of answers: write {path.relative_to(ROOT)}, see tests/test_answers.py")
    notebook = read_lab(ROOT / "solutions" / f"{name}.md")
    released, _ = ClearSolutions().preprocess(copy.deepcopy(notebook), {})
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    cells, stubs = solution_cells(notebook), solution_cells(released)
    assert set(given) == set(cells), f"{path.name} and the solution cells of {name} do not have the same names"
    mutated = {solution: dict(mutants(cell.source)) for solution, cell in cells.items()}
    answers = {
        solution: {
            ("instructor", ""): cell.source,
            ("unsolved", ""): stubs[solution].source,
            **{("right", answer["name"]): answer["code"] for answer in given[solution]["right"]},
            **{("wrong", answer["name"]): answer["code"] for answer in given[solution]["wrong"]},
            **{("mutant", description): code for description, code in mutated[solution].items()},
        }
        for solution, cell in cells.items()
    }
    begin = time.perf_counter()
    messages = try_answers(notebook, answers)
    return SimpleNamespace(
        name=name,
        given=given,
        messages=messages,
        tests={solution: list(test_cells(notebook, solution)) for solution in cells},
        seconds=time.perf_counter() - begin,
    )


def lost(messages):
    return {test: message for test, message in messages.items() if message is not None}


def is_hint(message, *words):
    """Whether a message was made by `mlcourse.checks` and holds some of the words."""
    return (message or "").startswith("CheckFailed") and any(some in message for some in words)


def of_kind(lab, kind):
    """Yield solution cell, name and lost test cells of every answer of a kind."""
    for solution, answers in lab.messages.items():
        for (its_kind, name), messages in answers.items():
            if its_kind == kind:
                yield solution, name, lost(messages)


def listed(problems):
    """Fail with all problems, one a line."""
    problems = list(problems)
    assert not problems, "\n".join(["", *problems])


def test_every_code_exercise_has_test_cells(lab):
    listed(solution for solution, tests in lab.tests.items() if not tests)


def test_the_instructors_solution_keeps_every_point(lab):
    listed(f"{solution}: {messages}" for solution, _, messages in of_kind(lab, "instructor") if messages)


def test_an_unsolved_exercise_loses_every_point_and_says_why(lab):
    said = {test: message for _, _, messages in of_kind(lab, "unsolved") for test, message in messages.items()}
    listed(f"{test} passes" for tests in lab.tests.values() for test in tests if test not in said)
    listed(f"{test}: {message}" for test, message in said.items() if not is_hint(message, *UNSOLVED))


def test_right_answers_keep_every_point(lab):
    listed(f"{solution}, {name}: {messages}" for solution, name, messages in of_kind(lab, "right") if messages)


def test_wrong_answers_lose_exactly_the_points_that_they_should(lab):
    listed(
        f"{solution}, {answer['name']}: should lose {sorted(answer['loses'])}, loses {messages}"
        for solution, answers in lab.given.items()
        for answer in answers["wrong"]
        if not (messages := lost(lab.messages[solution]["wrong", answer["name"]]))
        or set(messages) != set(answer["loses"])
    )


def test_the_message_to_a_wrong_answer_names_the_mistake(lab):
    listed(
        f"{answer['name']}: expected '{words}' in {test}: {message}"
        for solution, answers in lab.given.items()
        for answer in answers["wrong"]
        for test, words in answer["loses"].items()
        if not is_hint(message := lab.messages[solution]["wrong", answer["name"]].get(test), words)
    )


def test_every_test_cell_has_three_wrong_answers(lab):
    losses = [test for _, _, messages in of_kind(lab, "wrong") for test in messages]
    listed(
        f"{test} is lost by {losses.count(test)} wrong answers, at least 3 are needed"
        for tests in lab.tests.values()
        for test in tests
        if losses.count(test) < 3
    )


def test_every_exercise_has_two_other_right_answers(lab):
    listed(solution for solution, answers in lab.given.items() if len(answers["right"]) < 2)


def test_no_two_answers_of_an_exercise_have_the_same_name(lab):
    names = [
        (solution, kind, answer["name"])
        for solution, answers in lab.given.items()
        for kind in ("right", "wrong")
        for answer in answers[kind]
    ]
    listed(f"{solution}, {kind}: {name}" for solution, kind, name in names if names.count((solution, kind, name)) > 1)


def test_every_mutant_is_caught_or_explained(lab, record_property):
    outcomes = list(of_kind(lab, "mutant"))
    survivors = {(solution, description) for solution, description, messages in outcomes if not messages}
    explained = {(solution, name) for solution, answers in lab.given.items() for name in answers["equivalent"]}
    counted = len(outcomes) - len(survivors & explained)
    caught = len(outcomes) - len(survivors)
    right, wrong = (len(list(of_kind(lab, kind))) for kind in ("right", "wrong"))
    record_property(
        "summary",
        f"{lab.name}: {wrong} wrong answers, {right} right answers; {caught} of {len(outcomes)} mutants caught "
        f"({caught / len(outcomes):.1%}), of those that are no equivalents {caught} of {counted} "
        f"({caught / counted:.1%}); {lab.seconds:.0f} s",
    )
    listed(f"{solution}, survives unexplained: {name}" for solution, name in sorted(survivors - explained))
    listed(
        f"{solution}, explained, but no such mutant survives: {name}"
        for solution, name in sorted(explained - survivors)
    )
    assert caught >= 0.95 * counted
