"""Confidence intervals: percentiles of resamples, Wilson intervals of shares, and checks of their settings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hgld.arrays import Floats, Integers
from hgld.errors import ConfigurationError

#: The low and the high end of a confidence interval.
Interval = tuple[float, float]

#: Number of draws held in memory at once.
_BLOCK_SIZE = 2**18


def check_resampling(confidence: float, n_resamples: int) -> None:
    """Check the settings of an interval: its confidence, and a number of random draws.

    Raises:
        ConfigurationError: The confidence is not between 0 and 1, or there are no resamples.
    """
    if not 0 < confidence < 1 or n_resamples < 1:
        raise ConfigurationError(
            f"the confidence is {confidence} with {n_resamples} resamples; expected 0 < confidence < 1, and 1 or "
            "more resamples"
        )


def percentile_interval(values: Floats, confidence: float) -> Interval:
    """Return the interval that holds the middle share of values; NaN if no resample has a value.

    Args:
        values: Value of each resample, float64, shape (n_resamples,); NaN for a resample without a value.
        confidence: Share of the values within the interval, between 0 and 1.

    >>> percentile_interval(np.array([4.0, 1.0, np.nan, 2.0, 3.0]), 0.5)
    (1.75, 3.25)
    """
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan"), float("nan")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def resample_blocks(n_resamples: int, n_items: int) -> Iterator[int]:
    """Divide resamples of n items into blocks that fit into memory, and yield the number of resamples of each."""
    rows = max(_BLOCK_SIZE // max(n_items, 1), 1)
    for start in range(0, n_resamples, rows):
        yield min(rows, n_resamples - start)


def wilson(share: Floats, count: Integers | Floats) -> tuple[Floats, Floats]:
    """Return the Wilson score interval (95 %) of shares in samples.

    Args:
        share: Shares, float64, shape (n,).
        count: Sizes of the samples, shape (n,).

    Returns:
        The lower and upper ends, float64, shape (n,) each.

    >>> low, high = wilson(np.array([0.5, 1.0]), np.array([10, 10]))
    >>> low.round(2), high.round(2)
    (array([0.24, 0.72]), array([0.76, 1.  ]))
    """
    z = 1.96
    scale = 1 + z**2 / count
    middle = (share + z**2 / (2 * count)) / scale
    half = z / scale * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    # Rounding may move an end past the share.
    return np.minimum(middle - half, share), np.maximum(middle + half, share)
