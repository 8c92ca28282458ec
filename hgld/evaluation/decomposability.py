"""Decomposability gap: difference between a metric of the whole gallery and its mean over batches (paper, Eq. 6).

For AP the gap also has upper bounds (paper, appendix A-B, Eqs. 26 and 27). Both bound the mean AP of the batches
minus the AP of the whole set, for batches in which every positive is ranked first. The worst whole ranking is then
the batches one after the other, in the order given (Eq. 26). If the number of items on the right side of the
thresholds of L_DG (Eq. 7) is known, only the others can be out of order (Eq. 27).
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
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.hierarchy.label_matrix import LabelMatrix, require_labelled


def decomposability_gap(
    query_embeddings: Vectors,
    query_labels: LabelMatrix,
    gallery_embeddings: Vectors | None = None,
    gallery_labels: LabelMatrix | None = None,
    *,
    batches: npt.ArrayLike,
    metric: str = "AP",
    relevance_alpha: float = 1.0,
) -> Floats:
    """Decomposability gap of a metric for each query: DG = M - (1/K) sum_b M_b (paper, Eq. 6).

    M is the metric over the whole gallery, M_b that over batch b. Batches score higher than the whole gallery, so the
    gap is mostly negative; appendix A of the paper draws and bounds it with the opposite sign. A batch without
    positives of a query has no M_b: the mean is taken over the K batches that have one.

    Args:
        query_embeddings: float, shape (n_query, d).
        query_labels: int64, shape (n_query, L), finest first.
        gallery_embeddings: float, shape (n_gallery, d). Without a gallery each query is ranked against the others.
        gallery_labels: int64, shape (n_gallery, L).
        batches: Integers, shape (n_gallery,); batch of each gallery item.
        metric: Name of the metric, see :meth:`hgld.evaluation.metrics.Metric.from_name`.
        relevance_alpha: Exponent alpha of Eq. 20, for H-AP; relevances are those within the batch.

    Returns:
        float64, shape (n_query,); NaN where a query has no positives.

    Raises:
        InputError: Images are unlabelled, ``batches`` does not fit the gallery, or without a gallery a batch holds a
            single item; see also :func:`~hgld.evaluation.evaluate.evaluate_retrieval`.
        ConfigurationError: The gallery is given in part; see also that function.

    >>> labels = np.array([0, 1, 0, 1, 0])
    >>> embeddings = np.array([[1.0, 0.0], [0.9, 0.4], [0.8, 0.6], [0.7, 0.7], [0.6, 0.8]])
    >>> decomposability_gap(embeddings[:1], labels[:1], embeddings[1:], labels[1:], batches=[0, 1, 1, 0]).round(3)
    array([-0.25])
    """
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ConfigurationError("the gallery is given in part; expected its embeddings and its labels, or neither")
    leave_one_out = gallery_embeddings is None
    gallery = query_embeddings if gallery_embeddings is None else gallery_embeddings
    labels = query_labels if gallery_labels is None else gallery_labels
    numbers = np.asarray(batches)
    if numbers.shape != (len(labels),):
        raise InputError(
            f"batches has the shape {numbers.shape}; expected one number for each of {len(labels):,} items"
        )
    for own in (query_labels, labels):
        require_labelled(own.reshape(len(own), -1))
    names, sizes = np.unique(numbers, return_counts=True)
    if leave_one_out and (sizes == 1).any():
        raise InputError(f"batch {names[sizes == 1][0]} holds a single item, which cannot be ranked against itself")
    ids = np.arange(len(labels))
    queries = ids if leave_one_out else np.full(len(query_labels), -1)  # excludes a query from its own batch

    def values(items: Integers) -> Floats:
        result = evaluate_retrieval(
            query_embeddings,
            query_labels,
            gallery[items],
            labels[items],
            metrics=[metric],
            relevance_alpha=relevance_alpha,
            query_ids=queries,
            gallery_ids=items,
        )
        return result.per_query[metric].to_numpy()

    with _without_warnings():
        within = np.stack([values(ids[numbers == batch]) for batch in names])
    known = ~np.isnan(within)
    n_known = known.sum(axis=0)
    means = np.where(n_known > 0, np.where(known, within, 0.0).sum(axis=0) / np.maximum(n_known, 1), np.nan)
    gap: Floats = values(ids) - means
    return gap


@dataclass(frozen=True)
class BatchGap:
    """A metric of a whole set and of batches of it.

    Args:
        whole: Mean of the metric over all images, each ranked against all others.
        batches: Mean over the batches of the same within the batch.
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
    """Decomposability gap of batches as training has them, whose images are ranked against each other (paper, Eq. 6).

    The whole set are the images that are in any batch. Images that are in a batch several times are ranked once.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first.
        batches: Rows of each batch; batches in which no image has a positive are not counted.
        metric: Name of the metric, see :meth:`hgld.evaluation.metrics.Metric.from_name`.

    Raises:
        InputError: There are no batches with two images, or no image has a positive; see also
            :func:`~hgld.evaluation.evaluate.evaluate_retrieval`.

    >>> labels = np.array([0, 0, 1, 1])
    >>> embeddings = np.array([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [0.0, 1.0]])
    >>> batch_decomposability_gap(embeddings, labels, [np.array([0, 1]), np.array([2, 3])]).gap
    -0.5833333333333334
    """
    rows = [np.unique(batch) for batch in batches]
    used = np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)

    def mean(items: Integers) -> float:
        return evaluate_retrieval(embeddings[items], labels[items], metrics=[metric]).means[metric]

    with _without_warnings():
        within = [mean(items) for items in rows if len(items) > 1]
    if np.isnan(within).all():
        raise InputError("no batch has two images of a class, so the metric has no value within batches")
    return BatchGap(mean(used), float(np.nanmean(within)))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Ignore that batches lack positives, which is expected."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* has a positive in the gallery")
        yield


Counts = npt.NDArray[np.integer]


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
