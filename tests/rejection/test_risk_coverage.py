"""Risk against coverage, against slow oracles by definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute import resampling
from hgld.errors import ConfigurationError, InputError
from hgld.rejection.risk_coverage import area_interval, risk_coverage

SCORES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf]) | st.floats(allow_nan=False)
ANSWERS = st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=25)


def risk_of_accepted(answers: list[tuple[float, bool]], threshold: float) -> float:
    accepted = [right for score, right in answers if score <= threshold]
    return accepted.count(False) / len(accepted)


@given(ANSWERS)
def test_curve_and_areas_are_those_of_the_definitions(answers: list[tuple[float, bool]]) -> None:
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


@given(ANSWERS)
def test_order_and_scale_do_not_count(answers: list[tuple[float, bool]]) -> None:
    scores, right = map(np.array, zip(*answers, strict=True))
    order = np.random.default_rng(len(answers)).permutation(len(answers))
    ranks = np.unique(scores, return_inverse=True)[1]
    curve, other = risk_coverage(scores, right), risk_coverage(3.0 * ranks[order] - 1, right[order])
    np.testing.assert_array_equal(curve.risk, other.risk)
    np.testing.assert_array_equal(curve.coverage, other.coverage)


def test_equal_scores_have_the_risk_of_accepting_all() -> None:
    curve = risk_coverage(np.zeros(4), [True, True, True, False])
    assert curve.area == curve.risk[0] == 0.25
    assert curve.excess_area == pytest.approx(0.25 - 0.25 / 4)


@pytest.mark.parametrize("value", [False, True])
def test_answers_that_are_all_alike(value: bool) -> None:
    curve = risk_coverage([1.0, 2.0, 3.0], [value] * 3)
    assert curve.area == curve.best_area == 1 - value
