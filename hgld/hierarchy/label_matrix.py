"""How near two landmarks are to each other, from their labels alone.

A hierarchy has L levels. The papers number them by l = 1, ..., L, from the coarsest (the root, natural or
human-made) to the finest (the landmark itself); l = 0 stands for "nothing shared". A label matrix has one
*column* per level, the finest first. So level l is column L - l, and :func:`column_of` is the only place that
says so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.errors import ConfigurationError

#: One row per item and one column per level, the finest first: int64, shape (N, L).
LabelMatrix = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


def column_of(level: int, n_levels: int) -> int:
    """The column of a label matrix that holds level ``level`` (1: coarsest, ``n_levels``: finest).

    >>> [column_of(level, 3) for level in (3, 2, 1)]
    [0, 1, 2]

    Raises:
        ConfigurationError: there is no such level.
    """
    if not 1 <= level <= n_levels:
        raise ConfigurationError(f"there is no level {level}; expected 1 (coarsest) to {n_levels} (finest)")
    return n_levels - level


def nested_codes(query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> tuple[Codes, Codes]:
    """The same labels, numbered from 0 within each level, after a check that the levels are nested.

    Args:
        query_labels: int64, shape (n_query, L), finest first.
        gallery_labels: int64, shape (n_gallery, L), finest first.

    Returns:
        The codes of both: int32, same shapes; equal where the labels are equal.

    Raises:
        ValueError: the shapes do not fit, or the labels are not nested: two items that share a label have
            different ones at a coarser level.

    >>> nested_codes(np.array([[70, 9]]), np.array([[50, 9], [70, 9], [60, 5]]))[1].tolist()
    [[0, 1], [2, 1], [1, 0]]
    """
    queries, gallery = np.asarray(query_labels), np.asarray(gallery_labels)
    if queries.ndim != 2 or gallery.ndim != 2 or queries.shape[1] != gallery.shape[1] or not queries.shape[1]:
        raise ValueError(
            f"labels have the shapes {queries.shape} and {gallery.shape}; expected (n_query, L) and (n_gallery, L)"
        )
    labels = np.concatenate([queries, gallery])
    codes = np.empty(labels.shape, np.int32)
    for column in range(labels.shape[1]):
        codes[:, column] = np.unique(labels[:, column], return_inverse=True)[1]
    for column in range(labels.shape[1] - 1):
        parents = np.empty(codes[:, column].max(initial=-1) + 1, np.int32)
        parents[codes[:, column]] = codes[:, column + 1]  # of each label the parent that stands last
        wrong = np.flatnonzero(parents[codes[:, column]] != codes[:, column + 1])
        if wrong.size:
            one = labels[wrong[0]]
            other = labels[np.flatnonzero(codes[:, column] == codes[wrong[0], column])[-1]]
            raise ValueError(
                f"the labels are not nested: {one.tolist()} and {other.tolist()} agree in column {column}, but "
                f"not in the coarser column {column + 1}"
            )
    return codes[: len(queries)], codes[len(queries) :]


def lowest_common_level(query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> npt.NDArray[np.int64]:
    """The finest level that each query shares with each gallery item: the level of their lowest common ancestor.

    Args:
        query_labels: int64, shape (n_query, L), finest first.
        gallery_labels: int64, shape (n_gallery, L), finest first.

    Returns:
        int64, shape (n_query, n_gallery): l of 1 to L, or 0 where nothing is shared. Takes that much memory,
        so give queries in chunks where the gallery is large.

    Raises:
        ValueError: see :func:`nested_codes`.

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
    """How relevant each gallery item is to each query (paper, Eq. 20): rel(k) = (l/L)^alpha / |Omega^(l)|.

    Omega^(l) are the gallery items whose lowest common level with the query is exactly l, so the relevances of
    a level that occurs add up to (l/L)^alpha. They are counted in the gallery given: a query that is to be left
    out of its own retrieval set must not be in it. Queries are independent of each other and may come in chunks.

    Args:
        query_labels: int64, shape (n_query, L), finest first.
        gallery_labels: int64, shape (n_gallery, L), finest first; the whole retrieval set.
        alpha: how fast relevance falls towards coarse levels: 1 in H-AP, more favours fine levels.

    Returns:
        float64, shape (n_query, n_gallery); 0 where nothing is shared.

    Raises:
        ValueError: see :func:`lowest_common_level`, or ``alpha`` is negative.

    >>> labels = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1]])
    >>> relevance(labels[:1], labels).round(3)
    array([[0.5  , 0.5  , 0.667, 0.333, 0.   ]])
    """
    if not alpha >= 0:
        raise ValueError(f"alpha is {alpha}; expected 0 or more")
    levels = lowest_common_level(query_labels, gallery_labels)
    n_levels = np.asarray(query_labels).shape[1]
    weights = np.zeros((len(levels), n_levels + 1))
    for level in range(1, n_levels + 1):
        count = (levels == level).sum(axis=1)
        weights[:, level] = (level / n_levels) ** alpha / np.maximum(count, 1)
    return np.take_along_axis(weights, levels, axis=1)
