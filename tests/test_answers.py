"""The checks of every lab grade right work right and wrong work wrong, and say what is wrong.

`mlcourse.grading.audit` tries the answers of ``tests/answers/LAB.yml`` and the mutants of the solution.
"""

import pytest

from mlcourse.grading import audit
from paths import LABS, ROOT


@pytest.fixture(scope="module", params=LABS)
def lab(request):
    return audit.audit(request.param, ROOT)


def listed(problems):
    """Fail with all problems, one a line."""
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


def test_every_mutant_is_caught_or_explained(lab, record_property):
    record_property("summary", lab.summary)
    listed(audit.unexplained_mutants(lab))
    assert lab.caught >= 0.95 * lab.noticeable


def test_the_audit_applies_no_other_rule(lab):
    listed(lab.problems)
