"""Metrics of ROxford5k and RParis6k, of one query at a time (Radenovic et al., CVPR 2018)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.ragged import Integers


def revisited_average_precision(ranks: npt.ArrayLike, n_positive: int) -> float:
    """Average precision of one query under the Oxford protocol, by trapezoids.

    The j-th positive (from 0) at rank r (from 0) stands for a step 1 / n_positive of recall, over which precision is
    the mean of that just before it, j / r (1 if r is 0), and that with it, (j + 1) / (r + 1). Eq. 9 of the paper on
    rank losses, and all other APs of hgld, take the second alone, which is never lower: of two positives at ranks 0
    and 3 it makes 0.75, as below, and the trapezoids 0.71.

    Args:
        ranks: Ranks of the retrieved positives, ascending, from 0, shape (n_retrieved,); ignored images do not count.
        n_positive: Number of positives of the query, retrieved or not.

    Returns:
        Value from 0 to 1; NaN for a query without positives.

    Raises:
        ValueError: The ranks are not ascending or negative, or are more than ``n_positive``.

    >>> revisited_average_precision([0, 3], 2)
    0.7083333333333333
    """
    checked = _checked(ranks, n_positive)
    if not n_positive:
        return float("nan")
    before = np.arange(len(checked))
    precision_before = np.where(checked == 0, 1.0, before / np.maximum(checked, 1))
    precision_with = (before + 1) / (checked + 1)
    return float((precision_before + precision_with).sum() / 2 / n_positive)


def revisited_precision_at(ranks: npt.ArrayLike, k: int) -> float:
    """Precision among the first k of one query (mP@k), or up to the last positive where that comes earlier.

    Args:
        ranks: Ranks of all positives, ascending, from 0, shape (n_positive,); ignored images do not count.
        k: Cutoff.

    Returns:
        Value from 0 to 1; NaN for a query without positives.

    Raises:
        ValueError: The ranks are not ascending or negative, or ``k`` is less than 1.

    >>> revisited_precision_at([0, 3], 10)
    0.5
    """
    checked = _checked(ranks)
    if k < 1:
        raise ValueError(f"k is {k}; expected at least 1")
    if not len(checked):
        return float("nan")
    cutoff = min(int(checked[-1]) + 1, k)
    return float((checked < cutoff).sum() / cutoff)


def _checked(ranks: npt.ArrayLike, n_positive: int | None = None) -> Integers:
    array = np.asarray(ranks, np.int64)
    if array.ndim != 1 or (np.diff(array, prepend=-1) <= 0).any():
        raise ValueError("the ranks are not one row of ascending numbers from 0 on")
    if n_positive is not None and len(array) > n_positive:
        raise ValueError(f"{len(array):,} ranks of {n_positive:,} positives")
    return array
