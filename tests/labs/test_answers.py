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
from paths import LABS, ROOT
from sandboxed import try_in_the_sandbox
from unchanged import nightly_but

# Answers whose message differs between the grader and the notebook. The points never differ.
ROUNDING = "what comes out is rounding, which depends on where in memory an array lies"
POISONED = "the answer makes the arrays NaN from which a notebook computes the hints"
NAMED = "the grader gives an error the name of the class that is known outside"
COUNTERFEIT = "in a notebook a class is seen that merely has the name of another; the grader sees that it takes less"
PLACED = "the message names the module of a class of the check, which is another in the grader"
REMEMBERED = "the answer remembers what the cells of a notebook fitted, of which the grader runs only those it needs"
CHANGED = "the answer changes a list, a table or a generator of the check; the grader hands over a copy"
WRITTEN = "NumPy shows a text as its own or as Python's, whichever array it comes from"
ADDRESS = "the hash of a function comes from its address in memory"
COMPLEX = "the grader takes no complex number"
PLAIN = "the grader takes plain data alone"
UNSEEDED = "the answer draws without a seed: no two runs are the same"
EXPLAINED = {
    ("lab-01", "fit-line", "an error with the name of the right outcome"): NAMED,
    ("lab-05", "pooled-covariance", "an error with the name of a shape"): NAMED,
    ("lab-01", "errors-by-degree", "an object that gives no errors"): PLAIN,
    ("lab-01", "fit-line", "NaN for more than three points, which become NaN, too"): POISONED,
    ("lab-01", "braking-errors", "the distances become NaN, and so do the errors"): POISONED,
    ("lab-02", "mse-gradient", "NaN for more than three instances, which become NaN, too"): POISONED,
    ("lab-03", "fit-ridge", "NaN for more than four instances, which become NaN, too"): POISONED,
    ("lab-04", "cross-entropy", "NaN for more than two instances, which become NaN, too"): POISONED,
    ("lab-05", "class-statistics", "labels turned into whole numbers"): WRITTEN,
    ("lab-05", "compare", "a number for each classifier, whatever it predicts"): ADDRESS,
    ("lab-09", "components-for", "the ratios are taken out of the list"): CHANGED,
    ("lab-02", "fit-least-squares", "the inverse of the Gram matrix"): ROUNDING,
    ("lab-02", "fit-least-squares", "partial least squares of scikit-learn"): ROUNDING,
    ("lab-02", "fit-least-squares", "a QR decomposition with a square R"): ROUNDING,
    ("lab-02", "fit-least-squares", "the intercept is the mean of y"): ROUNDING,
    ("lab-02", "split-errors", "an object that gives no errors"): PLAIN,
    ("lab-02", "split-errors", "clones of one model"): PLACED,
    ("lab-02", "split-errors", "no seed at all"): UNSEEDED,
    ("lab-03", "fit-ridge", "kernel ridge regression"): ROUNDING,
    ("lab-03", "error-curve", "an object that gives no errors"): PLAIN,
    ("lab-04", "accuracy-table", "no row for many instances"): UNSEEDED,
    ("lab-04", "accuracy-table", "not stratified"): ROUNDING,
    ("lab-04", "accuracy-table", "no seed at all"): UNSEEDED,
    ("lab-06", "error-by-k", "no row where all responses are equal"): UNSEEDED,
    ("lab-07", "bagged-prediction", "a generator of its own, without a seed"): UNSEEDED,
    ("lab-08", "make-candidates", "models of one's own with the names of others"): COUNTERFEIT,
    ("lab-09", "pca", "rows of the matrix of eigenvectors"): ROUNDING,
    ("lab-09", "pca", "eig instead of eigh"): COMPLEX,
    ("lab-13", "make-model", "complex probabilities"): COMPLEX,
    ("lab-09", "delete-values", "NumPy's global generator"): UNSEEDED,
    ("lab-10", "coverage", "NumPy's global generator"): UNSEEDED,
    ("lab-10", "coverage", "draws that the exact coverage decides"): CHANGED,
    ("lab-11", "choose", "names are popped"): CHANGED,
    ("lab-12", "far-from-known", "standardised in place"): CHANGED,
    ("lab-12", "make-model", "a memory of the counts from one fit to the next"): REMEMBERED,
    ("lab-13", "evening-before", "the table itself gets new columns"): CHANGED,
    ("lab-13", "make-model", "an unseeded forest"): UNSEEDED,
}
# What the grader says to wrong answers for which the file of answers has the words of the notebook
IN_THE_GRADER = {
    ("lab-09", "pca", "eig instead of eigh"): {"pca-2": "got complex ones", "pca-5": "got complex ones"},
    ("lab-13", "make-model", "complex probabilities"): dict.fromkeys(
        ["make-model-1", "make-model-2", "make-model-3"], "got complex ones"
    ),
    ("lab-01", "fit-line", "an error with the name of the right outcome"): {
        "fit-line-1": "your code raised ValueError: no message",
        "fit-line-2": "your code raised ValueError: no message",
        "fit-line-3": "got a ValueError",
    },
    ("lab-05", "pooled-covariance", "an error with the name of a shape"): {
        "pooled-covariance-3": "got the error ValueError: refuse only if",
    },
    ("lab-08", "make-candidates", "models of one's own with the names of others"): {
        "make-candidates-1": "your code raised ValueError: Invalid parameter",
    },
}
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
