"""A rule and a reason are run for many seeds, and fail if they fall more often than they say."""

import numpy as np
import pytest

from mlcourse import claims
from mlcourse.claims import ClaimError, general, reason


@pytest.fixture(autouse=True)
def _hundred_draws(monkeypatch):
    monkeypatch.setattr(claims, "SEEDS", 100)


def says(value, sentence="The rule holds."):
    """Return a claim that says `value` of the number of the draw, 0 to 99."""

    def claim(seed):
        return value(seed - claims.FIRST_SEED)

    claim.__doc__ = sentence
    return claim


def test_a_rule_may_fall_as_often_as_it_says_and_not_once_more():
    general(at_least=95)(says(lambda draw: draw >= 5))
    with pytest.raises(ClaimError, match=r"held in 94 of 100 draws: The rule holds. It fell for the seeds 1000, 1001"):
        general(at_least=95)(says(lambda draw: draw >= 6))


def test_a_mean_must_exceed_0_by_three_standard_errors():
    noise = np.random.default_rng(0).standard_normal(100)
    noise = (noise - noise.mean()) / noise.std(ddof=1)  # so the standard error of the mean is 0.1
    general(on_average=True)(says(lambda draw: noise[draw] + 0.31))
    with pytest.raises(ClaimError, match="on average over draws"):
        general(on_average=True)(says(lambda draw: noise[draw] + 0.29))


def test_a_reason_needs_the_effect_with_the_cause_and_not_without():
    reason(at_least=95)(says(lambda draw: (True, draw < 5)))
    for with_cause, without in ((True, True), (False, False)):
        with pytest.raises(ClaimError, match="held in 0 of 100 draws"):
            reason(at_least=95)(says(lambda draw, pair=(with_cause, without): pair))


def test_a_few_draws_refute_only_what_is_clearly_false(monkeypatch):
    monkeypatch.setattr(claims, "SEEDS", 3)
    general(at_least=90)(says(lambda draw: draw > 0))
    general(on_average=True)(says(lambda draw: [-2.0, 1.0, 0.5][draw]))
    with pytest.raises(ClaimError, match="held in 0 of 3 draws"):
        general(at_least=90)(says(lambda draw: False))
    with pytest.raises(ClaimError):
        general(on_average=True)(says(lambda draw: [-1.0, -1.1, -0.9][draw]))


def test_the_page_shows_the_claim_and_how_often_it_held(capsys):
    general(at_least=95)(says(lambda draw: draw != 7))
    shown = capsys.readouterr().out
    assert "General, in at least 95 of 100 draws: The rule holds. (99 of 100 draws here)" in shown


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (general, "say how often"),
        (lambda: general(at_least=95, on_average=True), "say how often"),
        (lambda: general(at_least=50), "more than 50"),
        (lambda: general(at_least=95)(says(lambda draw: 1.5)), "return True or False"),
        (lambda: general(on_average=True)(says(lambda draw: True)), "return a finite number"),
        (lambda: general(on_average=True)(says(lambda draw: float("nan"))), "return a finite number"),
        (lambda: reason(at_least=95)(says(lambda draw: True)), "return two truth values"),
        (lambda: general(at_least=95)(says(lambda draw: True, "")), "in one sentence"),
    ],
)
def test_an_incomplete_claim_gets_one_clear_error(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
