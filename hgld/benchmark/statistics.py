"""Statistics of comparisons: confidence intervals of differences, and standard deviations.

What an interval covers depends on what varies. On one split, :func:`paired_difference` resamples the classes of the
test: the interval is for these trained models and other test classes. Over several random splits,
:func:`difference_over_splits` also covers the choice of the classes to train on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from hgld.compute.resampling import check_resampling, percentile_interval

#: Number of random draws held in memory at once.
_BLOCK_SIZE = 2**22


class Difference(NamedTuple):
    """Difference of two means and the ends of its confidence interval; NaN without queries."""

    mean: float
    low: float
    high: float


def paired_difference(
    values: npt.NDArray[np.float64],
    baseline: npt.NDArray[np.float64],
    classes: Sequence[str] | npt.NDArray[np.object_],
    *,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Return the difference of two methods' means over the same queries, with a cluster bootstrap interval.

    Whole classes are resampled with all their queries: the queries of a landmark resemble one another, so that
    resampling single queries would give intervals that are too narrow. Values are averaged over the seeds first; the
    interval therefore reflects other landmarks, not other seeds. Its ends are percentiles.

    Args:
        values: Values of the method, float64, shape (n_seeds, n_query).
        baseline: Values of the baseline, float64, shape (n_baseline_seeds, n_query).
        classes: Classes of the queries, shape (n_query,). Queries whose values are NaN are excluded.
        confidence: Confidence level of the interval, between 0 and 1.
        n_resamples: Number of bootstrap samples.
        seed: Seed of the bootstrap.

    Raises:
        ConfigurationError: ``confidence`` is not between 0 and 1, or ``n_resamples`` is less than 1.

    >>> paired_difference(np.array([[0.5, 0.7, 0.9]]), np.array([[0.5, 0.6, 0.7], [0.5, 0.6, 0.9]]), ["a", "a", "b"])
    Difference(mean=0.066..., low=0.049..., high=0.099...)
    """
    check_resampling(confidence, n_resamples)
    differences = values.mean(0) - baseline.mean(0)
    known = ~np.isnan(differences)
    if not known.any():
        return Difference(math.nan, math.nan, math.nan)
    names, rows = np.unique(np.asarray(classes)[known], return_inverse=True)
    sums, counts = np.bincount(rows, differences[known]), np.bincount(rows)
    n_classes, rng = len(names), np.random.default_rng(seed)
    means = []
    for block in np.array_split(np.arange(n_resamples), -(-n_resamples * n_classes // _BLOCK_SIZE)):
        drawn = rng.integers(n_classes, size=(len(block), n_classes))
        means.append(sums[drawn].sum(1) / counts[drawn].sum(1))
    return Difference(float(differences[known].mean()), *percentile_interval(np.concatenate(means), confidence))


def difference_over_splits(
    differences: Sequence[float], *, test_train_ratio: float, confidence: float = 0.95
) -> Difference:
    """Return the mean difference over random splits of the same images, with a corrected t interval.

    Runs of one split resemble one another, so that each split gives one difference, of means over its queries and
    seeds. Random splits share classes, so that their differences are correlated, too, and an ordinary t interval is
    too narrow. If their correlation is rho = n_test / (n_test + n_train), the variance of the mean of J differences
    is (1 / J + n_test / n_train) times their sample variance: the corrected resampled t-test of Nadeau and Bengio
    (Inference for the Generalization Error, Machine Learning 52, 2003), with J - 1 degrees of freedom. For
    open-set splits, rho is exact where a difference is the mean of effects of the test classes.

    Args:
        differences: Difference of each of the J splits; at least 2.
        test_train_ratio: Number of test classes divided by that of training classes; with 0, the ordinary t interval.
        confidence: Confidence level of the interval, between 0 and 1.

    >>> difference_over_splits([0.01, 0.02, 0.03], test_train_ratio=1)
    Difference(mean=0.02, low=-0.029..., high=0.069...)
    """
    n_splits = len(differences)
    mean, variance = float(np.mean(differences)), float(np.var(differences, ddof=1))
    quantile = float(stats.t.ppf((1 + confidence) / 2, n_splits - 1))
    half_width = quantile * math.sqrt((1 / n_splits + test_train_ratio) * variance)
    return Difference(mean, mean - half_width, mean + half_width)


def sample_std(values: Sequence[float]) -> float:
    """Return the sample standard deviation; NaN for a single value.

    >>> sample_std([1.0, 3.0])
    1.4142135623730951
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
