"""Differences of methods, against drawing classes one by one."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.benchmark.statistics import Difference, paired_difference, sample_std
from hgld.errors import ConfigurationError


def drawn_one_by_one(
    values: np.ndarray, baseline: np.ndarray, classes: list[str], n_resamples: int, seed: int
) -> list[float]:
    """Return bootstrap means of differences by a naive loop over resampled classes."""
    n_queries = values.shape[1]
    difference = [
        statistics.fmean(values[:, query]) - statistics.fmean(baseline[:, query]) for query in range(n_queries)
    ]
    of_class: dict[str, list[float]] = {}
    for name, value in sorted(zip(classes, difference, strict=True)):
        if not math.isnan(value):
            of_class.setdefault(name, []).append(value)
    rng = np.random.default_rng(seed)
    names = sorted(of_class)
    return [
        statistics.fmean(
            value for number in rng.integers(len(names), size=len(names)) for value in of_class[names[number]]
        )
        for _ in range(n_resamples)
    ]


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 6), st.sampled_from([0.5, 0.9]))
def test_bootstrap_resamples_whole_classes(seed: int, n_queries: int, n_classes: int, confidence: float) -> None:
    rng = np.random.default_rng(seed)
    values, baseline = rng.random((3, n_queries)), rng.random((2, n_queries))
    missing = rng.random(n_queries) < 0.2
    missing[0] = False
    values[:, missing] = baseline[:, missing] = np.nan
    classes = [f"landmark {number}" for number in rng.integers(n_classes, size=n_queries)]
    difference = paired_difference(values, baseline, classes, confidence=confidence, n_resamples=40, seed=seed)
    means = drawn_one_by_one(values, baseline, classes, 40, seed)
    tail = (1 - confidence) / 2
    kept = ~missing
    assert difference == pytest.approx(
        (values[:, kept].mean() - baseline[:, kept].mean(), *np.quantile(means, [tail, 1 - tail]))
    )


def test_copies_of_a_query_narrow_the_interval_only_across_landmarks() -> None:
    """Copies that share a landmark add no information; copies of different landmarks do."""
    rng = np.random.default_rng(0)
    baseline, gain = rng.random((1, 20)), rng.normal(0.05, 0.1, (1, 20))

    def width(classes: list[int], copies: int) -> float:
        names = [str(number) for number in classes]
        interval = paired_difference(np.repeat(baseline + gain, copies, 1), np.repeat(baseline, copies, 1), names)
        return interval.high - interval.low

    once = width(list(range(20)), 1)
    assert width([number // 25 for number in range(500)], 25) == pytest.approx(once, rel=0.05)
    assert width(list(range(500)), 25) == pytest.approx(once / 5, rel=0.1)


def test_block_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    arguments = rng.random((2, 50)), rng.random((2, 50)), [str(n // 5) for n in range(50)]
    whole = paired_difference(*arguments, n_resamples=101)
    monkeypatch.setattr("hgld.benchmark.statistics._BLOCK_SIZE", 70)
    assert paired_difference(*arguments, n_resamples=101) == whole


def test_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(2)
    classes = [str(n // 3) for n in range(180)]
    n_covered = 0
    for seed in range(100):
        gains = 0.03 + np.repeat(rng.normal(0, 0.1, 60), 3) + rng.normal(0, 0.05, 180)
        interval = paired_difference(gains[None], np.zeros((1, 180)), classes, n_resamples=400, seed=seed)
        n_covered += interval.low <= 0.03 <= interval.high
    assert 88 <= n_covered <= 99


def test_difference_without_values_is_nan() -> None:
    nothing = np.full((2, 3), np.nan)
    assert all(map(math.isnan, paired_difference(nothing, nothing, ["a", "b", "c"])))
    assert paired_difference(np.ones((1, 2)), np.ones((1, 2)), ["a", "b"]) == Difference(0, 0, 0)


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"confidence": 0.0}, {"n_resamples": 0}])
def test_invalid_settings_are_errors(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more"):
        paired_difference(np.ones((1, 2)), np.ones((1, 2)), ["a", "b"], **wrong)  # type: ignore[arg-type]


def test_sample_std() -> None:
    assert sample_std([0.1, 0.4, 0.7]) == pytest.approx(statistics.stdev([0.1, 0.4, 0.7]))
    assert math.isnan(sample_std([0.5]))
