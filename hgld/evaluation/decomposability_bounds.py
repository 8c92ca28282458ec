"""Upper bounds of the decomposability gap of AP (paper, appendix A-B, Eqs. 26 and 27).

Both bound the mean AP of the batches minus the AP of the whole set, for batches in which every positive is ranked
first. The worst whole ranking is then the batches one after the other, in the order given (Eq. 26). If the number of
items on the right side of the thresholds of L_DG (Eq. 7) is known, only the others can be out of order (Eq. 27).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.errors import InputError

Counts = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]


def gap_bound(positives: Counts, negatives: Counts) -> Floats:
    """Return the upper bound of the gap for each query, whatever the scores (paper, Eq. 26).

    Args:
        positives: Integers, shape (n_query, K): number of positives of each query in each of K batches.
        negatives: Integers, same shape: number of negatives.

    Returns:
        float64, shape (n_query,), 0 to 1; NaN for queries without positives.

    Raises:
        InputError: The shapes differ.

    >>> gap_bound(np.array([[1, 1]]), np.array([[1, 1]]))  # + - + -: precisions 1 and 2/3
    array([0.16666667])
    """
    _check_shapes(positives, negatives)
    total = _precision_sum(positives, _before(positives), _before(negatives)).sum(axis=1)
    return _one_minus_mean(total, positives)


def calibrated_gap_bound(
    positives: Counts, negatives: Counts, violating_positives: Counts, violating_negatives: Counts
) -> Floats:
    """Return the upper bound of the gap for each query, given how many scores violate L_DG (paper, Eq. 27).

    Args:
        positives: Integers, shape (n_query, K): number of positives of each query in each of K batches.
        negatives: Integers, same shape: number of negatives.
        violating_positives: Integers, same shape: number E^+ of positives with a score of alpha or less.
        violating_negatives: Integers, same shape: number E^- of negatives with a score above beta.

    Returns:
        float64, shape (n_query,), 0 to 1; NaN for queries without positives.

    Raises:
        InputError: The shapes differ, or more items violate than there are.

    >>> ones, none = np.array([[1, 1]]), np.array([[0, 0]])
    >>> calibrated_gap_bound(ones, ones, none, none)
    array([0.])
    """
    _check_shapes(positives, negatives, violating_positives, violating_negatives)
    if (violating_positives > positives).any() or (violating_negatives > negatives).any():
        raise InputError("more positives or negatives violate the thresholds than there are")
    good = positives - violating_positives
    good_precisions = _precision_sum(good, _before(good), _before(violating_negatives))
    violating_precisions = _precision_sum(violating_positives, good + _before(positives), _before(negatives))
    return _one_minus_mean((good_precisions + violating_precisions).sum(axis=1), positives)


def _precision_sum(count: Counts, positives: Counts, negatives: Counts) -> Floats:
    """Return the sum over j = 1, ..., count of (j + positives) / (j + positives + negatives), elementwise."""
    from scipy.special import digamma

    start = (positives + negatives + 1).astype(np.float64)
    result: Floats = count - negatives * (digamma(start + count) - digamma(start))
    return result


def _before(counts: Counts) -> Counts:
    """Return the sums of the columns to the left of each."""
    result: Counts = np.cumsum(counts, axis=1) - counts
    return result


def _one_minus_mean(total: Floats, positives: Counts) -> Floats:
    n_positives = positives.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(n_positives > 0, np.clip(1 - total / n_positives, 0, 1), np.nan)


def _check_shapes(*counts: Counts) -> None:
    shapes = {array.shape for array in counts}
    if len(shapes) > 1 or any(array.ndim != 2 for array in counts):
        raise InputError(f"the counts have the shapes {sorted(shapes)}; expected the same (n_query, K) for all")
