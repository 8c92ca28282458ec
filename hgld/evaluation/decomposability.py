"""Decomposability gap: a metric of the whole gallery minus its mean over batches (paper, Eq. 6).

For AP the gap also has upper bounds (paper, appendix A-B, Eqs. 26 and 27). Both bound the mean AP of
the batches minus the AP of the whole set, for batches in which every positive is ranked first. The
worst whole ranking is then the batches one after the other, in the given order (Eq. 26). If the
number of items on the correct side of the thresholds of L_DG (Eq. 7) is known, only the other items
can be out of order (Eq. 27).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hgld.arrays import Floats, Integers
from hgld.compute.scoring import Vectors
from hgld.errors import InputError
from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.hierarchy.label_matrix import LabelMatrix


@dataclass(frozen=True)
class BatchGap:
    """A metric of a whole set of images and of batches of it.

    Args:
        whole: Mean of the metric over all images, each ranked against all others.
        batches: Mean over the batches of the metric within a batch.
    """

    whole: float
    batches: float

    @property
    def gap(self) -> float:
        """DG = ``whole`` - ``batches`` (paper, Eq. 6), mostly negative."""
        return self.whole - self.batches


def batch_decomposability_gap(
    embeddings: Vectors, labels: LabelMatrix, batches: Sequence[Integers], *, metric: str = "AP"
) -> BatchGap:
    """Return the decomposability gap of training batches (paper, Eq. 6).

    The images of a batch are ranked against each other. The whole set is the images of all batches.
    Images that are in a batch several times are ranked once.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first.
        batches: Rows of each batch; batches in which no image has a positive are not counted.
        metric: Name of the metric, see :meth:`hgld.evaluation.metrics.Metric.from_name`.

    Raises:
        InputError: No batch has two images, or no image has a positive; see also
            :func:`~hgld.evaluation.evaluate.evaluate_retrieval`.

    >>> labels = np.array([0, 0, 1, 1])
    >>> embeddings = np.array([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [0.0, 1.0]])
    >>> batch_decomposability_gap(embeddings, labels, [np.array([0, 1]), np.array([2, 3])]).gap
    -0.5833333333333334
    """
    rows_of_batches = [np.unique(batch) for batch in batches]
    all_rows = np.zeros(0, np.int64)
    if rows_of_batches:
        all_rows = np.unique(np.concatenate(rows_of_batches))

    def mean(rows: Integers) -> float:
        result = evaluate_retrieval(embeddings[rows], labels[rows], metrics=[metric])
        return result.means[metric]

    with _without_warnings():
        means = [mean(rows) for rows in rows_of_batches if len(rows) > 1]
    if np.isnan(means).all():
        raise InputError(
            "no batch has two images of a class, so the metric has no value within batches"
        )
    return BatchGap(mean(all_rows), float(np.nanmean(means)))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress the warnings about batches without positives, which are expected."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* has a positive in the gallery")
        yield


Counts = npt.NDArray[np.integer]


def gap_bound(positives: Counts, negatives: Counts) -> Floats:
    """Return the upper bound of the gap of each query for any scores (paper, Eq. 26).

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
    return calibrated_gap_bound(positives, negatives, positives, negatives)


def calibrated_gap_bound(
    positives: Counts, negatives: Counts, violating_positives: Counts, violating_negatives: Counts
) -> Floats:
    """Return the upper bound of the gap of each query, given numbers of violations of L_DG (Eq. 27).

    Args:
        positives: Integers, shape (n_query, K): number of positives of each query in each of K batches.
        negatives: Integers, same shape: number of negatives.
        violating_positives: Integers, same shape: number E^+ of positives with a score of alpha or less.
        violating_negatives: Integers, same shape: number E^- of negatives with a score above beta.

    Returns:
        float64, shape (n_query,), 0 to 1; NaN for queries without positives.

    Raises:
        InputError: The shapes differ, or more items violate the thresholds than exist.

    >>> ones, zeros = np.array([[1, 1]]), np.array([[0, 0]])
    >>> calibrated_gap_bound(ones, ones, zeros, zeros)
    array([0.])
    """
    _check_shapes(positives, negatives, violating_positives, violating_negatives)
    if (violating_positives > positives).any() or (violating_negatives > negatives).any():
        raise InputError("more positives or negatives violate the thresholds than there are")
    good = positives - violating_positives
    good_precisions = _precision_sum(good, _before(good), _before(violating_negatives))
    violating_precisions = _precision_sum(
        violating_positives, good + _before(positives), _before(negatives)
    )
    total = (good_precisions + violating_precisions).sum(axis=1)
    n_positives = positives.sum(axis=1)
    with np.errstate(invalid="ignore"):
        bounds = np.clip(1 - total / n_positives, 0, 1)
    return np.where(n_positives > 0, bounds, np.nan)


def _precision_sum(count: Counts, positives: Counts, negatives: Counts) -> Floats:
    """Return elementwise sums of (j + positives) / (j + positives + negatives) over j = 1, ..., count."""
    from scipy.special import digamma

    start = (positives + negatives + 1).astype(np.float64)
    result: Floats = count - negatives * (digamma(start + count) - digamma(start))
    return result


def _before(counts: Counts) -> Counts:
    """Return, for each column, the sum of the columns to its left."""
    result: Counts = np.cumsum(counts, axis=1) - counts
    return result


def _check_shapes(*counts: Counts) -> None:
    """Raise an InputError unless all arrays have the same shape (n_query, K)."""
    shapes = {array.shape for array in counts}
    if len(shapes) > 1 or any(array.ndim != 2 for array in counts):
        raise InputError(
            f"the counts have the shapes {sorted(shapes)}; expected the same (n_query, K) for all"
        )
