"""Label matrices: the lowest common level and the relevance of items, from their labels alone.

A hierarchy has L levels. The papers number them from 1, the coarsest (the root, natural or human-made), to L, the
finest (the landmark); level 0 means "nothing in common". A label matrix has one *column* per level, the finest first.
So level l is column L - l; :func:`column_of` is the only place that converts between them.

A row of -1 is an unlabelled image, never a class: it shares nothing with any image. Evaluations leave such images out
and count them, rejection scores know which images of an index they are, and losses and samplers refuse them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.errors import ConfigurationError, InputError, require_at_least

#: One row per item and one column per level, the finest first: int64, shape (N, L).
LabelMatrix = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
#: End of messages about labels that are not nested, where the first column has the fewest classes.
REVERSED = "; levels go from the finest to the coarsest, but column 0 has the fewest classes: reverse the columns"


def column_of(level: int, n_levels: int) -> int:
    """Return the column of a label matrix for a level (1: coarsest, ``n_levels``: finest).

    >>> [column_of(level, 3) for level in (3, 2, 1)]
    [0, 1, 2]
    """
    if not 1 <= level <= n_levels:
        raise ConfigurationError(f"there is no level {level}; expected 1 (coarsest) to {n_levels} (finest)")
    return n_levels - level


def labelled_rows(labels: LabelMatrix) -> npt.NDArray[np.bool_]:
    """Return which images have labels: bool, shape (N,); unlabelled ones have -1 at every level.

    Raises:
        InputError: A label is negative, and the image has others, or it is below -1.

    >>> labelled_rows(np.array([[7, 0], [-1, -1]]))
    array([ True, False])
    """
    labelled: npt.NDArray[np.bool_] = (labels != -1).any(axis=1)
    invalid = np.flatnonzero((labels < 0).any(axis=1) & labelled)
    if len(invalid):
        raise InputError(
            f"{len(invalid):,} of {len(labels):,} images have labels below 0, first row {invalid[0]}: "
            f"{labels[invalid[0]].tolist()}; expected 0 and more, or -1 at every level of an unlabelled image"
        )
    return labelled


def nested_codes(query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> tuple[Codes, Codes]:
    """Renumber labels from 0 within each level, and check that the levels are nested.

    Args:
        query_labels: int64, shape (n_query, L), finest level first.
        gallery_labels: int64, shape (n_gallery, L), finest level first.

    Returns:
        Codes of queries and gallery: int32, same shapes; equal where the labels are equal. Unlabelled queries have
        the code -1 and unlabelled gallery items -2, so that they share nothing.

    Raises:
        InputError: The shapes do not match, a label is invalid (:func:`labelled_rows`), or the labels are not nested:
            two items with the same label differ at a coarser level.

    >>> nested_codes(np.array([[70, 9]]), np.array([[50, 9], [70, 9], [60, 5]]))[1].tolist()
    [[0, 1], [2, 1], [1, 0]]
    """
    queries, gallery = np.asarray(query_labels), np.asarray(gallery_labels)
    if queries.ndim != 2 or gallery.ndim != 2 or queries.shape[1] != gallery.shape[1] or not queries.shape[1]:
        raise InputError(
            f"labels have the shapes {queries.shape} and {gallery.shape}; expected (n_query, L) and (n_gallery, L)"
        )
    labels = np.concatenate([queries, gallery])
    unlabelled = ~labelled_rows(labels)
    codes = np.empty(labels.shape, np.int32)
    for column in range(labels.shape[1]):
        codes[:, column] = np.unique(labels[:, column], return_inverse=True)[1]
    for column in range(labels.shape[1] - 1):
        parents = np.empty(codes[:, column].max(initial=-1) + 1, np.int32)
        parents[codes[:, column]] = codes[:, column + 1]  # the parent in the last row with each label
        deviating = np.flatnonzero(parents[codes[:, column]] != codes[:, column + 1])
        if deviating.size:
            labels_a = labels[deviating[0]]
            labels_b = labels[np.flatnonzero(codes[:, column] == codes[deviating[0], column])[-1]]
            reversed_order = codes[:, 0].max() < codes[:, -1].max()
            raise InputError(
                f"the labels are not nested: {labels_a.tolist()} and {labels_b.tolist()} agree in column {column}, "
                f"but not in the coarser column {column + 1}{REVERSED * bool(reversed_order)}"
            )
    codes[: len(queries)][unlabelled[: len(queries)]] = -1
    codes[len(queries) :][unlabelled[len(queries) :]] = -2
    return codes[: len(queries)], codes[len(queries) :]


def lowest_common_level(query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> npt.NDArray[np.int64]:
    """Return the finest level that each query shares with each gallery item, that of their lowest common ancestor.

    Takes O(n_query * n_gallery) memory; pass queries in blocks if the gallery is large.

    Args:
        query_labels: int64, shape (n_query, L), finest level first.
        gallery_labels: int64, shape (n_gallery, L), finest level first.

    Returns:
        int64, shape (n_query, n_gallery); level 1 to L, or 0 where nothing is shared.

    >>> lake, pond, church = [0, 0, 0], [1, 0, 0], [2, 1, 1]
    >>> lowest_common_level(np.array([lake]), np.array([lake, pond, church]))
    array([[3, 2, 0]])
    """
    queries, gallery = nested_codes(query_labels, gallery_labels)
    levels = np.zeros((len(queries), len(gallery)), np.int64)
    for column in range(queries.shape[1]):
        levels += queries[:, column, None] == gallery[None, :, column]
    return levels


def relevance(query_labels: LabelMatrix, gallery_labels: LabelMatrix, alpha: float = 1.0) -> npt.NDArray[np.float64]:
    """Return the relevance of each gallery item for each query (paper, Eq. 20).

    It is ``rel(k) = (l/L)^alpha / |Omega^(l)|``.

    Omega^(l) is the set of gallery items whose lowest common level with the query is exactly l, so the relevances of
    a level that occurs add up to (l/L)^alpha. It is counted in the gallery passed: a query that is excluded from its
    own retrieval set must not be in it. Queries are independent of each other and may be passed in blocks.

    Args:
        query_labels: int64, shape (n_query, L), finest level first.
        gallery_labels: int64, shape (n_gallery, L), finest level first; the whole retrieval set.
        alpha: Exponent; 1 for H-AP, larger values favour fine levels.

    Returns:
        float64, shape (n_query, n_gallery); 0 where nothing is shared.

    >>> labels = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1]])
    >>> relevance(labels[:1], labels).round(3)
    array([[0.5  , 0.5  , 0.667, 0.333, 0.   ]])
    """
    require_at_least(0, alpha=alpha)
    levels = lowest_common_level(query_labels, gallery_labels)
    n_levels = np.asarray(query_labels).shape[1]
    weights = np.zeros((len(levels), n_levels + 1))
    for level in range(1, n_levels + 1):
        count = (levels == level).sum(axis=1)
        weights[:, level] = (level / n_levels) ** alpha / np.maximum(count, 1)
    return np.take_along_axis(weights, levels, axis=1)
