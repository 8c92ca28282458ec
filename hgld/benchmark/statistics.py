"""How sure one can be that a method is better than another, and how much its runs differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hgld.evaluation.results import check_resampling

#: Numbers of draws at a time.
_BLOCK = 2**22


class Difference(NamedTuple):
    """How much higher a mean is than another, and the ends of an interval of confidence; NaN without queries."""

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
    """The difference of two methods' means over the same queries, with a bootstrap interval (percentile method).

    Classes are drawn with replacement, and with each all its queries: queries of one landmark are alike, and single
    ones would promise a certainty that is not there. The values of a query are averaged over the seeds, so the
    interval tells of other landmarks, and not of other seeds.

    Args:
        values: shape (n_seeds, n_query).
        baseline: likewise, with perhaps another number of seeds.
        classes: of the queries, shape (n_query,). Queries without a value are left out.
        confidence: the share of resampled differences between the ends.
        n_resamples: how often as many classes as there are are drawn.
        seed: of the draws.

    Raises:
        ConfigurationError: the confidence is not between 0 and 1, or there are no resamples.

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
    for block in np.array_split(np.arange(n_resamples), -(-n_resamples * n_classes // _BLOCK)):
        drawn = rng.integers(n_classes, size=(len(block), n_classes))
        means.append(sums[drawn].sum(1) / counts[drawn].sum(1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Difference(float(differences[known].mean()), float(low), float(high))


def spread(values: Sequence[float]) -> float:
    """The sample standard deviation; NaN of a single value.

    >>> spread([1.0, 3.0])
    1.4142135623730951
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
