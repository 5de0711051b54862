"""Claims that hold for more than the numbers shown: each is a function of the seed, run again for other seeds.

A cell that asserts something about the numbers of a page checks *this draw*. A sentence that is worded as a rule needs
more: a function with `general` above it draws new data from its seed and says whether the sentence holds for them. A
sentence that names a cause needs a function with `reason` above it, which also tries the same without the cause.

Each page runs its claims for the first `SEEDS`; ``mlcourse book sweep`` runs them for a hundred.
"""

import math
import os
from collections.abc import Callable

import numpy as np
from IPython.display import display
from scipy.stats import binom

FIRST_SEED = 1000  # the pages' own draws have smaller seeds
SEEDS = int(os.environ.get("MLCOURSE_CLAIM_SEEDS", "3"))
RESULT = "mlcourse-claim"  # the key of the result in the metadata of the output
STANDARD_ERRORS = 3
ENOUGH = 50  # draws that decide about a claim
# With fewer draws, how improbable so many failures must be, if the claim is true, to refute it
IMPROBABLE = 1e-3


class ClaimError(AssertionError):
    """A claim does not hold as often as it says."""


def general(*, at_least: int | None = None, on_average: bool = False) -> Callable:
    """Check a rule for many seeds.

    Parameters
    ----------
    at_least : int
        In how many of 100 draws the rule must hold. The function returns whether it holds in the draw of its seed.
    on_average : bool
        Instead: the function returns a number, such as a difference of two errors, whose mean over the draws must
        exceed 0 by three standard errors.

    Returns
    -------
    function
        A decorator for a function ``claim(seed)``. Its docstring is the rule in one sentence. It draws everything
        from ``numpy.random.default_rng(seed)``, and the decorator runs it at once.

    Raises
    ------
    ClaimError
        If the rule fails more often than it may.
    TypeError, ValueError
        If the claim is not stated completely.
    """
    if (at_least is None) == (not on_average):
        raise TypeError("say how often the rule must hold: general(at_least=95) or general(on_average=True)")
    _check(at_least)
    return lambda claim: _run("general", claim, at_least)


def reason(*, at_least: int) -> Callable:
    """Check a cause for many seeds, by an experiment that removes it.

    Parameters
    ----------
    at_least : int
        In how many of 100 draws the effect must be there with the cause and gone without it.

    Returns
    -------
    function
        A decorator for a function ``claim(seed)`` that returns two truth values: whether the effect is seen with the
        cause, and whether it is seen without. Its docstring is the reason in one sentence.

    Raises
    ------
    ClaimError
        If the effect is missing with the cause, or stays without it, more often than it may.
    TypeError, ValueError
        If the claim is not stated completely.
    """
    _check(at_least)
    return lambda claim: _run("reason", claim, at_least)


def _check(at_least):
    if at_least is not None and not 50 < at_least <= 100:
        raise ValueError(f"at_least={at_least}: a rule holds in more than 50 and at most 100 of 100 draws")


def _run(kind, claim, at_least):
    """Run a claim for all seeds, show the result, and raise an error if it is refuted."""
    sentence = " ".join((claim.__doc__ or "").split())
    if not sentence:
        raise ValueError(f"{claim.__name__}: state the claim in one sentence, as the docstring of the function")
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
    values = [_value(kind, claim, seed, at_least) for seed in seeds]
    fell = [seed for seed, value in zip(seeds, values, strict=True) if value <= 0]
    refuted = _is_mean_refuted(values) if at_least is None else _is_share_refuted(len(fell), at_least)
    required = "on average over draws" if at_least is None else f"in at least {at_least} of 100 draws"
    counts = f"{SEEDS - len(fell)} of {SEEDS} draws"
    text = f"{kind.capitalize()}, {required}: {sentence} ({counts} here)"
    data = {"kind": kind, "name": claim.__name__, "sentence": sentence, "required": required, "draws": SEEDS}
    result = {RESULT: data | {"fell": fell, "refuted": refuted}}
    display({"text/plain": text}, raw=True, metadata=result)
    if refuted:
        seeds_that_fell = ", ".join(map(str, fell[:10])) or "none"
        raise ClaimError(
            f"{claim.__name__} was to hold {required}, and held in {counts}: {sentence} "
            f"It fell for the seeds {seeds_that_fell}{' and others' if len(fell) > 10 else ''}."
        )
    return claim


def _value(kind, claim, seed, at_least):
    """Return what a claim says of one draw as a number that is above 0 if the claim holds."""
    value = claim(seed)
    truths = (bool, np.bool_)
    if kind == "reason":
        if not (isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, truths) for one in value)):
            raise TypeError(
                f"{claim.__name__}({seed}) returned {value!r}: return two truth values, "
                "whether the effect is there with the cause, and whether it is there without"
            )
        return int(value[0] and not value[1])
    if at_least is not None:
        if not isinstance(value, truths):
            raise TypeError(f"{claim.__name__}({seed}) returned {value!r}: return True or False")
        return int(value)
    if isinstance(value, truths) or not np.isscalar(value) or not math.isfinite(value):
        raise TypeError(f"{claim.__name__}({seed}) returned {value!r}: return a finite number")
    return float(value)


def _is_mean_refuted(values):
    """Whether the mean of the draws is not above 0, or of too few draws, clearly below."""
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    margin = STANDARD_ERRORS * error
    return bool(np.mean(values) <= margin) if len(values) >= ENOUGH else bool(np.mean(values) < -margin)


def _is_share_refuted(failures, at_least):
    """Whether a claim failed more often than it may, or in too few draws, improbably often."""
    if SEEDS >= ENOUGH:
        return failures * 100 > (100 - at_least) * SEEDS
    return bool(failures and binom.sf(failures - 1, SEEDS, 1 - at_least / 100) < IMPROBABLE)
