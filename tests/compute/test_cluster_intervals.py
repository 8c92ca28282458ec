"""Intervals over clusters, against a test that flips signs by the definition, and against a known truth."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.compute.cluster_intervals import mean_intervals, pair_differences, smallest_number_of_clusters


def errors_of_clusters(values: np.ndarray, clusters: np.ndarray, mean: float) -> list[float]:
    """Sum of the deviations of each cluster's values from a mean, divided by the number of all values."""
    known = ~np.isnan(values)
    return [
        sum(value - mean for value in values[known & (clusters == number)]) / known.sum()
        for number in np.unique(clusters)
    ]


def statistic(errors: list[float]) -> float:
    return abs(sum(errors)) / math.sqrt(sum(error**2 for error in errors))


def quantile_of_flips(columns: list[list[float]], confidence: float) -> float:
    """Quantile of the largest statistic of the columns over all patterns of signs."""
    largest = []
    for signs in itertools.product([1, -1], repeat=len(columns[0])):
        flipped = [[sign * error for sign, error in zip(signs, errors, strict=True)] for errors in columns]
        largest.append(max(statistic(errors) for errors in flipped))
    # Every pattern has an opposite with the same statistic: half of them are the ones that the function draws.
    return float(np.quantile(sorted(largest)[::2], confidence))


def scaled(errors: list[float], sizes: np.ndarray) -> list[float]:
    shares = sizes / sizes.sum()
    return [error / math.sqrt(1 - share) for error, share in zip(errors, shares, strict=True)]


def draw(seed: int, n_clusters: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(n_clusters), rng.integers(1, 6, n_clusters))
    values = rng.normal(size=(n_clusters, n_columns))[clusters] + rng.normal(size=(len(clusters), n_columns))
    return values, clusters


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(6, 8))
def test_interval_of_a_mean_holds_the_means_that_flips_do_not_reject(seed: int, n_clusters: int) -> None:
    values, clusters = draw(seed, n_clusters, 1)
    sizes = np.bincount(clusters)
    mean = values[:, 0].mean()
    quantile = quantile_of_flips([scaled(errors_of_clusters(values[:, 0], clusters, mean), sizes)], 0.9)
    low, high = mean_intervals(values, clusters, confidence=0.9, n_resamples=200, seed=0)[:, 0]
    for end in (low, high):
        if math.isfinite(end):
            assert statistic(errors_of_clusters(values[:, 0], clusters, end)) == pytest.approx(quantile)
        else:
            # Not even a mean far away is rejected.
            far = errors_of_clusters(values[:, 0], clusters, math.copysign(1e6, end))
            assert statistic(far) <= quantile * (1 + 1e-5)
    assert low <= mean <= high


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_intervals_of_pairs_share_the_quantile_of_the_largest_statistic(seed: int) -> None:
    values, clusters = draw(seed, 7, 3)
    sizes = np.bincount(clusters)
    result = pair_differences(values, clusters, confidence=0.9, n_resamples=200, seed=0)
    pairs = [(0, 1), (0, 2), (1, 2)]
    differences = {pair: values[:, pair[0]] - values[:, pair[1]] for pair in pairs}
    columns = [scaled(errors_of_clusters(each, clusters, each.mean()), sizes) for each in differences.values()]
    quantile = quantile_of_flips(columns, 0.9)
    for (first, second), difference in differences.items():
        assert result.differences[first, second] == pytest.approx(difference.mean())
        assert result.low[first, second] == -result.high[second, first]
        for end in (result.low[first, second], result.high[first, second]):
            if math.isfinite(end):
                assert statistic(errors_of_clusters(difference, clusters, end)) == pytest.approx(quantile)
        at_zero = statistic(errors_of_clusters(difference, clusters, 0.0))
        excludes_zero = result.low[first, second] > 0 or result.high[first, second] < 0
        assert excludes_zero == (at_zero > quantile)


def test_missing_values_count_for_the_result_that_lacks_them_only() -> None:
    values, clusters = draw(1, 9, 2)
    values[::4, 1] = np.nan
    known = ~np.isnan(values[:, 1])
    together = mean_intervals(values, clusters, confidence=0.95, n_resamples=1000, seed=0)
    alone = mean_intervals(values[known, 1:], clusters[known], confidence=0.95, n_resamples=1000, seed=0)
    np.testing.assert_allclose(together[:, 1], alone[:, 0], rtol=1e-9)
    differences = pair_differences(values, clusters, confidence=0.95, n_resamples=1000, seed=0).differences
    assert differences[0, 1] == pytest.approx(values[:, 0].mean() - np.nanmean(values[:, 1]))


def test_too_few_clusters_have_no_interval() -> None:
    assert [smallest_number_of_clusters(confidence) for confidence in (0.5, 0.9, 0.95, 0.99)] == [2, 5, 6, 8]
    values, clusters = draw(0, 5, 2)
    assert np.isnan(mean_intervals(values, clusters, confidence=0.95, n_resamples=100, seed=0)).all()
    result = pair_differences(values, clusters, confidence=0.95, n_resamples=100, seed=0)
    assert np.isnan(result.low).all()
    assert np.isnan(result.p_values).all()
    assert not np.isnan(result.differences).any()


def test_one_cluster_with_most_values_makes_the_interval_unbounded() -> None:
    rng = np.random.default_rng(0)
    clusters = np.concatenate([np.zeros(300, np.int64), np.arange(1, 12)])
    values = rng.normal(size=(len(clusters), 2))
    low, high = mean_intervals(values, clusters, confidence=0.95, n_resamples=500, seed=0)
    assert np.isneginf(low).all()
    assert np.isposinf(high).all()
    result = pair_differences(values, clusters, confidence=0.95, n_resamples=500, seed=0)
    assert result.low[0, 1] == -math.inf
    assert result.p_values[0, 1] > 0.05


def test_equal_results_and_results_that_differ_by_a_constant() -> None:
    values, clusters = draw(2, 12, 1)
    columns = np.column_stack([values, values, values - 1])
    result = pair_differences(columns, clusters, confidence=0.95, n_resamples=1000, seed=0)
    assert (result.low[0, 1], result.high[0, 1], result.p_values[0, 1]) == (0, 0, 1)
    assert (result.low[0, 2], result.high[0, 2]) == pytest.approx((1, 1))
    assert result.p_values[0, 2] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("n_clusters", [6, 10, 20, 60])
def test_intervals_hold_as_often_as_they_say_for_clusters_of_unequal_sizes(n_clusters: int) -> None:
    """Models that are equal on average: each has another effect on each class."""
    n_trials, n_models = 600, 3
    n_declared_different = n_held = 0
    for trial in range(n_trials):
        rng = np.random.default_rng((trial, n_clusters))
        sizes = np.minimum(1 + rng.geometric(0.12, n_clusters), 60)
        clusters = np.repeat(np.arange(n_clusters), sizes)
        of_class = rng.normal(0, 0.12, (n_clusters, 1)) + rng.normal(0, 0.06, (n_clusters, n_models))
        values = 0.5 + of_class[clusters] + rng.normal(0, 0.1, (len(clusters), n_models))
        settings_of_trial: dict[str, Any] = {"confidence": 0.95, "n_resamples": 500, "seed": trial}
        low, high = mean_intervals(values, clusters, **settings_of_trial)
        n_held += int(((low <= 0.5) & (high >= 0.5)).sum())
        pairs = pair_differences(values, clusters, **settings_of_trial)
        n_declared_different += bool((pairs.low > 0).any())
    assert 0.93 <= n_held / (n_trials * n_models) <= 0.975
    assert 0.02 <= n_declared_different / n_trials <= 0.075
