"""Confidence intervals of means, and of differences of means, of values that come in clusters.

Queries of one class resemble one another, so classes are the independent units, and often they are few and of very
different sizes. Percentiles of a bootstrap over classes are then too narrow. The intervals here invert a test that
flips the sign of whole clusters, a wild cluster bootstrap with Rademacher weights (Cameron, Gelbach and Miller,
Bootstrap-Based Improvements for Inference with Clustered Errors, Review of Economics and Statistics 90, 2008).

A mean over all values has an error per cluster, e_g: the sum of the deviations of the values of cluster g from the
mean, divided by the number of all values. With w_g, the share of the values that are in cluster g, the errors from a
mean that is lower by x are e_g + x w_g, and they add up to x. The statistic of the test divides that sum by the size
of the errors::

    U(x) = |x| / sqrt(sum_g (e_g + x w_g)^2)

If the mean is the true one, each error is as likely as its opposite, so flipping the signs of the observed errors at
random gives the distribution of U. Before that, each error is divided by sqrt(1 - w_g), since a cluster draws the
mean to itself, which makes its own error too small. An interval holds all means that the test does not reject. For
several results, a cluster is flipped for all results together, and the quantile of the largest statistic of all pairs
(max-T; Westfall and Young 1993; Romano and Wolf 2005) gives simultaneous intervals of all pairs.

Two limits are part of the method. With fewer clusters than :func:`smallest_number_of_clusters`, no test can reject at
the level asked for, and there is no interval. Where a few clusters hold most of the values, the test may reject no
mean at all: the interval is then unbounded, from minus infinity to infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.resampling import resample_blocks

#: Standard errors below this are rounding errors of values that do not vary.
_ROUNDING_ERROR = 1e-12


@dataclass(frozen=True)
class PairDifferences:
    """Differences between the means of all pairs of M results; each array is float64 of shape (M, M).

    Args:
        differences: Mean of the row's result minus the mean of the column's result.
        low: Lower end of the interval of each difference; NaN with too few clusters, -inf if it is unbounded.
        high: Upper end of the interval of each difference; NaN with too few clusters, inf if it is unbounded.
        p_values: Probability of a statistic as large as the observed one for any pair, if all results are equal;
            NaN with too few clusters.
    """

    differences: Floats
    low: Floats
    high: Floats
    p_values: Floats


@dataclass(frozen=True)
class _ClusterErrors:
    """Means of M results over G clusters, and what each cluster contributes to their errors.

    Args:
        means: Mean of each result, float64, shape (M,); NaN where a result has no values.
        errors: Sum of the deviations of a cluster's values from the mean, divided by the number of all values of
            the result, float64, shape (G, M).
        shares: Share of a result's values that are in the cluster, float64, shape (G, M).
    """

    means: Floats
    errors: Floats
    shares: Floats


def smallest_number_of_clusters(confidence: float) -> int:
    """Return the number of clusters below which no interval of this confidence exists.

    Of the 2^(G - 1) ways in which the signs of G clusters can differ, one must be rarer than ``1 - confidence``.

    >>> smallest_number_of_clusters(0.95)
    6
    """
    return 1 + math.ceil(math.log2(1 / (1 - confidence)))


def mean_intervals(
    values: Floats, clusters: Integers, *, confidence: float, n_resamples: int, seed: int
) -> Floats:
    """Return a confidence interval of the mean of each column.

    Args:
        values: float64, shape (n, M); NaN where a row has no value.
        clusters: int64, shape (n,); cluster of each row, numbered from 0.
        confidence: Probability with which an interval holds the true mean, between 0 and 1.
        n_resamples: Number of random patterns of signs; where there are fewer patterns, all of them are used.

    Returns:
        Lower and upper ends, float64, shape (2, M). They are NaN for a column whose values are in fewer clusters than
        :func:`smallest_number_of_clusters`, and infinite for an interval that is unbounded.
    """
    ends = np.full((2, values.shape[1]), np.nan)
    by_cluster = _cluster_errors(values, clusters)
    n_clusters = (by_cluster.shares > 0).sum(axis=0)
    columns = np.flatnonzero(n_clusters >= smallest_number_of_clusters(confidence))
    if not len(columns):
        return ends
    statistics = np.concatenate(list(_flipped_statistics(by_cluster, n_resamples, seed)))
    quantiles = np.quantile(statistics, confidence, axis=0)
    for column in columns:
        errors, shares = by_cluster.errors[:, column], by_cluster.shares[:, column]
        ends[:, column] = _accepted(by_cluster.means[column], errors, shares, quantiles[column])
    return ends


def pair_differences(
    values: Floats, clusters: Integers, *, confidence: float, n_resamples: int, seed: int
) -> PairDifferences:
    """Compare the means of all pairs of columns, with simultaneous intervals.

    Args:
        values: float64, shape (n, M); NaN where a row has no value. Each column has a value.
        clusters: int64, shape (n,); cluster of each row, numbered from 0.
        confidence: Probability with which the intervals of all pairs hold, between 0 and 1.
        n_resamples: Number of random patterns of signs; where there are fewer patterns, all of them are used.
    """
    n_results = values.shape[1]
    by_cluster = _cluster_errors(values, clusters)
    differences = by_cluster.means[:, None] - by_cluster.means[None, :]
    shape = (n_results, n_results)
    n_clusters = int((by_cluster.shares > 0).any(axis=1).sum())
    if n_clusters < smallest_number_of_clusters(confidence):
        unknown = np.full(shape, np.nan)
        return PairDifferences(differences, unknown, unknown, unknown)

    blocks = _flipped_pair_statistics(by_cluster, n_resamples, seed)
    largest = np.concatenate([block.max(axis=1, initial=0.0) for block in blocks])
    quantile = float(np.quantile(largest, confidence))
    low, high, p_values = np.zeros(shape), np.zeros(shape), np.ones(shape)
    firsts, seconds = np.triu_indices(n_results, 1)
    for first, second in zip(firsts.tolist(), seconds.tolist(), strict=True):
        difference = differences[first, second]
        errors, shares = _pair_errors(by_cluster, first, second)
        start, end = _accepted(difference, errors, shares, quantile)
        low[first, second], high[first, second] = start, end
        low[second, first], high[second, first] = -end, -start
        if _varies(errors) or abs(difference) > _ROUNDING_ERROR:
            errors_from_zero = errors + difference * shares
            observed = abs(difference) / math.sqrt((errors_from_zero**2).sum())
            n_larger = int((largest >= observed * (1 - 1e-12)).sum())
            p_value = min((1 + n_larger) / (1 + len(largest)), 1.0)
            p_values[first, second] = p_values[second, first] = p_value
    return PairDifferences(differences, low, high, p_values)


def _cluster_errors(values: Floats, clusters: Integers) -> _ClusterErrors:
    n_clusters = int(clusters.max(initial=-1)) + 1
    is_value = ~np.isnan(values)
    n_values = is_value.sum(axis=0)
    divisors = np.maximum(n_values, 1)
    means = np.where(is_value, values, 0).sum(axis=0) / divisors
    means[n_values == 0] = np.nan
    errors = np.zeros((n_clusters, values.shape[1]))
    np.add.at(errors, clusters, np.where(is_value, values - means, 0) / divisors)
    shares = np.zeros_like(errors)
    np.add.at(shares, clusters, is_value / divisors)
    return _ClusterErrors(means, errors, shares)


def _pair_errors(by_cluster: _ClusterErrors, first: int, second: int) -> tuple[Floats, Floats]:
    """Return the error of the difference of two results and the mean of their shares for each cluster, shape (G,)."""
    errors = by_cluster.errors[:, first] - by_cluster.errors[:, second]
    shares = (by_cluster.shares[:, first] + by_cluster.shares[:, second]) / 2
    return errors, shares


def _varies(errors: Floats) -> bool:
    return float(np.sqrt((errors**2).sum())) > _ROUNDING_ERROR


def _accepted(mean: float, errors: Floats, shares: Floats, quantile: float) -> tuple[float, float]:
    """Return the ends of the interval of all means that the test does not reject.

    The mean that is lower than the observed one by x, which may be negative, is accepted if U(x) is at most the
    quantile q, that is, if (1 - q^2 sum w^2) x^2 - 2 q^2 sum(e w) x - q^2 sum e^2 <= 0.
    """
    if not _varies(errors):
        return mean, mean
    square = quantile**2
    leading = 1 - square * float((shares**2).sum())
    if leading <= 0:
        return -math.inf, math.inf
    linear = square * float((errors * shares).sum())
    constant = square * float((errors**2).sum())
    root = math.sqrt(linear**2 + leading * constant)
    return mean - (linear + root) / leading, mean - (linear - root) / leading


def _scaled_errors(errors: Floats, shares: Floats) -> Floats:
    """Return the errors of clusters divided by sqrt(1 - w_g), see the top of this module."""
    return errors / np.sqrt(np.maximum(1 - shares, _ROUNDING_ERROR))


def _flipped_statistics(
    by_cluster: _ClusterErrors, n_resamples: int, seed: int
) -> Iterator[Floats]:
    """Yield the statistic of each result for patterns of signs, in blocks of shape (n_rows, M)."""
    errors = _scaled_errors(by_cluster.errors, by_cluster.shares)
    sizes = np.maximum(np.sqrt((errors**2).sum(axis=0)), _ROUNDING_ERROR)
    for signs in _sign_patterns(len(errors), n_resamples, seed):
        yield np.abs(signs @ errors) / sizes


def _flipped_pair_statistics(
    by_cluster: _ClusterErrors, n_resamples: int, seed: int
) -> Iterator[Floats]:
    """Yield the statistics of all pairs that differ for patterns of signs, in blocks of shape (n_rows, n_pairs)."""
    errors = _scaled_errors(by_cluster.errors, by_cluster.shares)
    first, second = np.triu_indices(errors.shape[1], 1)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    sizes = np.array([_pair_size(errors, i, j) for i, j in pairs])
    differ = sizes > _ROUNDING_ERROR
    first, second, sizes = first[differ], second[differ], sizes[differ]
    for signs in _sign_patterns(len(errors), n_resamples, seed):
        flipped = signs @ errors
        yield np.abs(flipped[:, first] - flipped[:, second]) / sizes


def _pair_size(errors: Floats, first: int, second: int) -> float:
    return float(np.sqrt(((errors[:, first] - errors[:, second]) ** 2).sum()))


def _sign_patterns(n_clusters: int, n_resamples: int, seed: int) -> Iterator[Floats]:
    """Yield signs of clusters in blocks of float64, shape (n_rows, n_clusters): all patterns if there are few enough.

    A pattern and its opposite give the same statistic, so all patterns have the sign +1 for the last cluster.
    """
    if n_clusters - 1 <= math.log2(n_resamples):
        patterns = np.arange(2 ** (n_clusters - 1))
        bits: Booleans = (patterns[:, None] >> np.arange(n_clusters)) & 1 > 0
        yield np.where(bits, -1.0, 1.0)
        return
    rng = np.random.default_rng(seed)
    # A generator yields words of 32 bits: rows of whole words make the patterns independent of the size of blocks.
    n_bytes = 4 * math.ceil(n_clusters / 32)
    for n_rows in resample_blocks(n_resamples, n_clusters):
        drawn = np.frombuffer(rng.bytes(n_rows * n_bytes), np.uint8).reshape(n_rows, n_bytes)
        yield np.where(np.unpackbits(drawn, axis=1, count=n_clusters), -1.0, 1.0)
