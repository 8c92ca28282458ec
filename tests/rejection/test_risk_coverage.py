"""Risk against coverage, and thresholds for a wanted precision: oracles, and simulations of what they promise."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hgld.compute import resampling
from hgld.errors import ConfigurationError, InputError
from hgld.rejection.risk_coverage import (
    area_interval,
    exact_binomial_interval,
    risk_coverage,
    threshold_for_precision,
)

Floats = npt.NDArray[np.float64]
Answers = list[tuple[float, bool]]
SCORES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf]) | st.floats(allow_nan=False)
ANSWERS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=25)


def risk_of_accepted(answers: Answers, threshold: float) -> float:
    accepted = [right for score, right in answers if score <= threshold]
    return accepted.count(False) / len(accepted)


@given(ANSWERS)
def test_curve_and_areas_are_those_of_the_definitions(answers: Answers) -> None:
    scores, right = zip(*answers, strict=True)
    curve = risk_coverage(scores, right)
    thresholds = sorted(set(scores))
    assert curve.thresholds.tolist() == thresholds
    assert curve.risk.tolist() == pytest.approx([risk_of_accepted(answers, threshold) for threshold in thresholds])
    shares = [sum(score <= threshold for score in scores) / len(scores) for threshold in thresholds]
    assert curve.coverage.tolist() == pytest.approx(shares)
    area = sum(risk_of_accepted(answers, score) for score in scores) / len(scores)
    assert curve.area == pytest.approx(area, abs=1e-12)
    best = risk_coverage(np.arange(len(right)), np.array(sorted(right, reverse=True)))
    assert curve.best_area == pytest.approx(best.area, abs=1e-12)
    assert best.excess_area == pytest.approx(0, abs=1e-12)
    assert curve.excess_area >= -1e-12


def test_intervals_equal_resampling_images_one_draw_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores, right = rng.normal(size=80).round(1), rng.random(80) < 0.5
    known = np.arange(80) < 30
    right[30:] = False
    for kinds, together in (([np.arange(80)], None), ([np.arange(30), np.arange(30, 80)], known)):
        draws = []
        for _ in range(400):
            rows = np.concatenate([rng.choice(kind, len(kind)) for kind in kinds])
            draws.append(risk_coverage(scores[rows], right[rows]).area)
        interval = area_interval(scores, right, known=together, n_resamples=2000)
        assert interval == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.02)
    few = area_interval(scores, right, known=known, n_resamples=9)
    monkeypatch.setattr(resampling, "_BLOCK_SIZE", 160)
    assert area_interval(scores, right, known=known, n_resamples=9) == few
    assert area_interval(scores, right, known=known, n_resamples=9, seed=1) != few
    with pytest.raises(ConfigurationError, match="the confidence is 1"):
        area_interval(scores, right, confidence=1)


def test_wrong_answers_are_one_line() -> None:
    for right, message in (
        ([True], r"`right` has the shape \(1,\) and the type bool; expected bool of the shape \(2,\)"),
        ([1, 0], "the type int64; expected bool"),
    ):
        with pytest.raises(InputError, match=message):
            risk_coverage([0.1, 0.2], right)
    for known in ([True], [1, 0], True):
        with pytest.raises(InputError, match="`known` has the shape .* expected bool of the shape"):
            area_interval([0.1, 0.2], [True, False], known=known)
    with pytest.raises(InputError, match="`scores` is empty"):
        risk_coverage([], np.empty(0, bool))
    with pytest.raises(InputError, match="`scores` has 1 NaN of 2"):
        risk_coverage([math.nan, 0.0], [True, True])


PRECISIONS = st.sampled_from([0.25, 0.5, 2 / 3, 0.75, 0.9, 1.0])


def highest_threshold(answers: Answers, precision: float) -> float | None:
    suitable = []
    for threshold, _ in answers:
        accepted = [right for score, right in answers if score <= threshold]
        if accepted.count(True) / len(accepted) >= precision:
            suitable.append(threshold)
    return max(suitable, default=None)


@given(ANSWERS, PRECISIONS)
def test_threshold_and_costs_are_those_of_the_definitions(answers: Answers, precision: float) -> None:
    scores, right = map(np.array, zip(*answers, strict=True))
    threshold = threshold_for_precision(scores, right, precision)
    assert threshold.value == highest_threshold(answers, precision)
    accepted = threshold.accepts(scores)
    assert threshold.n_accepted == accepted.sum()
    assert threshold.coverage == accepted.mean()
    if threshold.value is None:
        assert not accepted.any()
        assert threshold.precision is None
        assert threshold.interval == (0, 1)
        assert threshold.highest < precision
    else:
        assert threshold.precision is not None
        assert threshold.precision == right[accepted].mean()
        assert threshold.precision >= precision
        assert threshold.highest >= threshold.precision
        assert threshold.interval[0] <= threshold.precision <= threshold.interval[1]
    if right.any():
        assert threshold.right_rejected == pytest.approx((right & ~accepted).sum() / right.sum())


@given(ANSWERS, PRECISIONS, PRECISIONS, st.booleans())
def test_a_higher_precision_accepts_no_more(
    answers: Answers, first: float, second: float, conservative: bool
) -> None:
    scores, right = map(np.array, zip(*answers * 40, strict=True))
    low, high = (
        threshold_for_precision(scores, right, target, conservative=conservative)
        for target in sorted((first, second))
    )
    if conservative:  # fewer thresholds are tried for a lower precision: nothing is promised but that both hold
        assert all(limit.precision is None or limit.precision > limit.target for limit in (low, high))
    else:
        assert high.coverage <= low.coverage
        assert not (high.accepts(scores) & ~low.accepts(scores)).any()


@given(ANSWERS, PRECISIONS)
def test_the_conservative_threshold_accepts_no_more(answers: Answers, precision: float) -> None:
    scores, right = map(np.array, zip(*answers * 10, strict=True))
    threshold = threshold_for_precision(scores, right, precision)
    conservative = threshold_for_precision(scores, right, precision, conservative=True)
    assert conservative.coverage <= threshold.coverage
    assert conservative.highest <= threshold.highest


def test_conservative_threshold_is_the_highest_tried_that_is_proven() -> None:
    n, n_right = 400, 300
    right = np.arange(n) < n_right
    threshold = threshold_for_precision(np.arange(n), right, 0.9, conservative=True)
    # 400 / 2 ** (j / 4) images are tried for j = 0, 1, ..., as long as there are 29: fewer cannot prove 0.9.
    tried = [math.floor(n / 2 ** (j / 4)) for j in range(100) if n / 2 ** (j / 4) >= math.log(0.05) / math.log(0.9)]
    error, proven, bounds = 0.0, 0, []
    for k in reversed(tried):
        error += 0.05 / len(tried)
        bounds.append(stats.beta.ppf(error, min(k, n_right), k - min(k, n_right) + 1))
        if stats.binom.sf(min(k, n_right) - 1, k, 0.9) <= error:
            proven = k
        else:
            error = 0.0
    assert len(tried) == 16
    assert threshold.n_accepted == proven == 282
    assert threshold.value == 281
    assert threshold.highest == pytest.approx(max(bounds))


def test_what_cannot_be_reached_is_a_result() -> None:
    scores, right = np.arange(20.0), np.arange(20) % 2 == 1
    threshold = threshold_for_precision(scores, right, 0.9)
    assert (threshold.value, threshold.precision, threshold.n_accepted, threshold.coverage) == (None, None, 0, 0)
    assert threshold.right_rejected == 1
    assert threshold.highest == 0.5
    assert not threshold.accepts([-math.inf, 0.0]).any()
    # All answers are right, but twenty of them prove no more than 0.86; a precision of 1 is never proven.
    for target in (0.9, 1.0):
        assert threshold_for_precision(scores, np.ones(20, bool), target, conservative=True).value is None
        assert threshold_for_precision(scores, np.ones(20, bool), target).value == 19
    assert threshold_for_precision(scores, np.zeros(20, bool), 0.1).right_rejected == 0


@given(st.integers(0, 30), st.integers(1, 30), st.sampled_from([0.5, 0.9, 0.95]))
def test_exact_interval_is_where_tails_have_half_the_error(n_right: int, n_wrong: int, confidence: float) -> None:
    n, tail = n_right + n_wrong, (1 - confidence) / 2
    low, high = exact_binomial_interval(n_right, n, confidence)
    if n_right:
        assert stats.binom.sf(n_right - 1, n, low) == pytest.approx(tail)
    else:
        assert low == 0
    assert stats.binom.cdf(n_right, n, high) == pytest.approx(tail)


def test_wrong_inputs_are_one_line() -> None:
    for precision in (0.0, 1.1, -1.0, math.nan):
        with pytest.raises(ConfigurationError, match="the wanted precision is"):
            threshold_for_precision([1.0], [True], precision)
    with pytest.raises(InputError, match="`scores` has 1 NaN"):
        threshold_for_precision([math.nan], [True], 0.9)


N_CALIBRATIONS = 2000


def calibrate(n: int, right_probability: Callable[[Floats], Floats]) -> dict[bool, Floats]:
    """Return the thresholds of many calibrations for 0.9, 0 where none is found, by ``conservative``."""
    rng = np.random.default_rng(0)
    values: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(N_CALIBRATIONS):
        scores = rng.random(n)
        right = rng.random(n) < right_probability(scores)
        for conservative, chosen in values.items():
            chosen.append(threshold_for_precision(scores, right, 0.9, conservative=conservative).value or 0.0)
    return {conservative: np.array(chosen) for conservative, chosen in values.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "coverage"), [(200, 0.067), (1000, 0.43), (5000, 0.487)])
def test_how_often_precision_on_new_images_is_below_the_wanted_one(n: int, coverage: float) -> None:
    chosen = calibrate(n, lambda scores: 1 - scores**2)
    too_low = {kind: np.mean(1 - values**2 / 3 < 0.9) for kind, values in chosen.items()}
    assert too_low[False] == pytest.approx(0.52, abs=0.02)
    assert too_low[True] <= 0.004
    # Scores are uniform: a threshold is the share of new answers that it accepts. Ideally, it is the root of 0.3.
    assert chosen[False].mean() == pytest.approx(0.3**0.5, abs=0.005)
    assert chosen[True].mean() == pytest.approx(coverage, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 1000, 5000])
def test_confidence_holds_where_precision_does_not_depend_on_the_score(n: int) -> None:
    chosen = calibrate(n, lambda scores: np.full(len(scores), 0.899))
    assert np.mean(chosen[False] > 0) > 0.97
    assert np.mean(chosen[True] > 0) < 0.02
