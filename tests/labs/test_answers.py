"""The checks of every lab accept right answers, refuse wrong ones, and say what is wrong.

The answers of ``tests/answers/LAB.yml`` are tried in the grader: of every second lab, and in `make cold` of all. `make
cold` also tries the mutants of the solution in this process, and all answers in a notebook, where every cell runs, and
compares the results.
"""

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from coursegrader import audit
from coursegrader.labs import read_lab
from differences import EXPLAINED, IN_THE_GRADER
from paths import LABS, ROOT
from sandboxed import try_in_the_sandbox
from unchanged import nightly_but

# An example; the solutions run without a secret, for instance in nbval
SECRET = (314159265, 358979323, 846264338)
OTHER_SECRETS = [(number, number**2, number**3) for number in range(1, 21)]
# Audits run in a fresh process: forking a worker that ran other tests takes several times as long
FRESH = get_context("forkserver")
FRESH.set_forkserver_preload(["coursegrader.audit", "mlcourse.plotting", "sklearn.ensemble"])
ERROR = re.compile(r"\w+(Error|Exception|Exit|Interrupt): ")
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


def audited(*given, **options):
    with ProcessPoolExecutor(1, FRESH) as fresh:
        return fresh.submit(audit.audit, *given, **options).result()


@pytest.fixture(scope="module", params=nightly_but([LABS[9]], LABS))
def lab(request, worker):
    """A lab with the grader's results for all answers but the mutants."""
    lab = audited(request.param, ROOT, SECRET, kinds=[])
    answers = {one.name: one.answers for one in lab.exercises}
    codes = {name: [answer.code for answer in some] for name, some in answers.items()}
    said = try_in_the_sandbox(worker, read_lab(ROOT / "solutions" / f"{lab.lab}.md"), codes, SECRET)
    for name, some in answers.items():
        for answer, messages in zip(some, said[name], strict=True):
            answer.record({test: message and as_raised(message) for test, message in messages.items()})
            answer.expected |= IN_THE_GRADER.get((lab.lab[:6], name, answer.name), {})
    return lab


def as_raised(message):
    """Return the message of a test cell with the name of its error, which the grader omits from a hint."""
    return message if ERROR.match(message) else f"{audit.HINT}{message}"


def listed(problems):
    """Fail with all problems, one per line."""
    problems = list(problems)
    assert not problems, "\n".join(["", *problems])


def test_every_code_exercise_has_test_cells_and_every_test_cell_an_exercise(lab):
    listed(audit.missing_tests(lab))


def test_the_instructors_solution_keeps_every_point(lab):
    listed(audit.lost_by_the_instructor(lab))


def test_an_unsolved_exercise_loses_every_point_and_says_why(lab):
    listed(audit.kept_by_the_unsolved(lab))


def test_right_answers_keep_every_point(lab):
    listed(audit.lost_by_right_answers(lab))


def test_wrong_answers_lose_exactly_the_points_that_they_should(lab):
    listed(audit.other_losses_of_wrong_answers(lab))


def test_the_message_to_a_wrong_answer_names_the_mistake(lab):
    listed(audit.other_hints_to_wrong_answers(lab))


def test_every_test_cell_has_three_wrong_answers(lab):
    listed(audit.cells_without_wrong_answers(lab))


def test_every_exercise_has_two_other_right_answers(lab):
    listed(audit.exercises_without_right_answers(lab))


def test_no_two_answers_of_an_exercise_have_the_same_name(lab):
    listed(audit.repeated_names(lab))


def test_the_audit_applies_no_other_rule_but_to_mutants(lab):
    rules = [rule for rule in audit.RULES if rule is not audit.unexplained_mutants]
    listed(problem for rule in rules for problem in rule(lab))


@pytest.mark.nightly
@pytest.mark.parametrize("name", LABS)
def test_every_mutant_is_caught_or_explained(name, record_property):
    tried = audited(name, ROOT, SECRET, kinds=["mutant"], brief=True)
    record_property("summary", tried.summary)
    listed(audit.unexplained_mutants(tried))
    assert tried.caught >= 0.95 * tried.noticeable


@pytest.mark.nightly
@pytest.mark.parametrize("secret", OTHER_SECRETS)
@pytest.mark.parametrize("name", LABS)
def test_hidden_data_of_other_secrets_tell_right_from_wrong_as_well(name, secret):
    tried = audited(name, ROOT, secret, kinds=["instructor", "right", "wrong"], brief=True)
    rules = [audit.lost_by_the_instructor, audit.lost_by_right_answers, audit.other_losses_of_wrong_answers]
    listed(problem for rule in rules for problem in rule(tried))


@pytest.mark.nightly
def test_a_notebook_takes_the_same_points_as_the_grader_and_says_the_same(lab):
    in_notebook = audited(lab.lab, ROOT, SECRET, kinds=[kind for kind in audit.KINDS if kind != "mutant"])
    for one, other in zip(lab.exercises, in_notebook.exercises, strict=True):
        compared = zip(one.answers, other.answers, strict=True)
        listed(
            f"{one.name}, {graded.kind}, {graded.name}: {test}: in the notebook: {ran.lost.get(test)}\n"
            f"in the grader: {graded.lost.get(test)}"
            for graded, ran in compared
            for test in graded.lost.keys() | ran.lost.keys()
            if not is_same(
                ran.lost.get(test),
                graded.lost.get(test),
                sentences=(lab.lab[:6], one.name, graded.name) not in EXPLAINED,
            )
        )


def is_same(in_notebook, in_grader, sentences):
    """Whether two messages of a test cell give the same points and, if asked, the same text except for rounding."""
    if in_notebook is None or in_grader is None or not sentences:
        return (in_notebook is None) == (in_grader is None)
    # The audit has no lines of the student; addresses and the module of a test's class do not matter
    shown = [re.sub(r" at 0x\w+|\b__main__\.|\bmlcourse_tests\.", "", message) for message in (in_notebook, in_grader)]
    shown[1] = re.sub(r", in your line `.*(?=\. See )", "", shown[1], flags=re.DOTALL)
    words = [re.sub(r"\s", "", NUMBER.sub("#", message)) for message in shown]
    numbers = [[float(number) for number in NUMBER.findall(message)] for message in shown]
    return words[0] == words[1] and numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=1e-8)


def test_every_explained_difference_is_that_of_an_answer(lab):
    answers = {(lab.lab[:6], one.name, answer.name) for one in lab.exercises for answer in one.answers}
    assert IN_THE_GRADER.keys() <= EXPLAINED.keys()
    listed(str(one) for one in EXPLAINED if one[0] == lab.lab[:6] and one not in answers)
