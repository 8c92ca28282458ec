"""Labels of images in a hierarchy as matrices, and the levels that two labels have in common.

A hierarchy has L levels. The papers number them from 1, the coarsest (the root, natural or
human-made), to L, the finest (the landmark); level 0 means "nothing in common". A label matrix has
one *column* per level, the finest first. So level l is column L - l; only :func:`column_of`
converts levels to columns.

A row of -1 is an unlabelled image, never a class: it has nothing in common with any image.
Evaluations exclude such images and count them, rejection scores identify the unlabelled images of
an index, and losses and samplers refuse them.

Images with several labels each have :mod:`hgld.hierarchy.label_sets`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hgld.arrays import AnyIntegers, Booleans, Floats, Integers
from hgld.errors import ConfigurationError, InputError, require_at_least

#: One row per item and one column per level, the finest first, shape (N, L): int64, or int32 from
#: manifests.
LabelMatrix = AnyIntegers
Codes = npt.NDArray[np.int32]
#: End of messages about labels that are not nested, where the first column has the fewest classes.
REVERSED = "; levels go from the finest to the coarsest, but column 0 has the fewest classes: reverse the columns"


def column_of(level: int, n_levels: int) -> int:
    """Return the column of a label matrix for a level (1: coarsest, ``n_levels``: finest).

    >>> [column_of(level, 3) for level in (3, 2, 1)]
    [0, 1, 2]
    """
    if not 1 <= level <= n_levels:
        raise ConfigurationError(
            f"there is no level {level}; expected 1 (coarsest) to {n_levels} (finest)"
        )
    return n_levels - level


def labelled_rows(labels: LabelMatrix) -> Booleans:
    """Return which images have labels: bool, shape (N,); unlabelled images have -1 at every level.

    Raises:
        InputError: A label is below -1, or -1 at some levels only.

    >>> labelled_rows(np.array([[7, 0], [-1, -1]]))
    array([ True, False])
    """
    labelled: Booleans = (labels != -1).any(axis=1)
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
        Codes of queries and gallery: int32, same shapes; equal where the labels are equal.
        Unlabelled queries have the code -1 and unlabelled gallery items -2, so that they share
        nothing.

    Raises:
        InputError: The shapes do not match, a label is invalid (:func:`labelled_rows`), or the
            labels are not nested: two items with the same label differ at a coarser level.

    >>> nested_codes(np.array([[70, 9]]), np.array([[50, 9], [70, 9], [60, 5]]))[1].tolist()
    [[0, 1], [2, 1], [1, 0]]
    """
    import pandas as pd  # not for the help of commands that read hierarchies

    queries = np.asarray(query_labels)
    gallery = np.asarray(gallery_labels)
    if (
        queries.ndim != 2
        or gallery.ndim != 2
        or queries.shape[1] != gallery.shape[1]
        or not queries.shape[1]
    ):
        raise InputError(
            f"labels have the shapes {queries.shape} and {gallery.shape}; expected (n_query, L) and (n_gallery, L)"
        )
    labels = np.concatenate([queries, gallery])
    unlabelled = ~labelled_rows(labels)
    codes = np.empty(labels.shape, np.int32)
    for column, values in enumerate(labels.T):
        codes[:, column] = pd.factorize(values, sort=True)[0]
    for column, (finer, coarser) in enumerate(pairwise(codes.T)):
        parents = np.empty(finer.max(initial=-1) + 1, np.int32)
        parents[finer] = coarser  # of several parents, the one in the last row remains
        deviating = np.flatnonzero(parents[finer] != coarser)
        if deviating.size:
            first = deviating[0]
            last = np.flatnonzero(finer == finer[first])[-1]
            reversed_order = codes[:, 0].max() < codes[:, -1].max()
            raise InputError(
                f"the labels are not nested: {labels[first].tolist()} and {labels[last].tolist()} agree in column "
                f"{column}, but not in the coarser column {column + 1}{REVERSED * bool(reversed_order)}"
            )
    query_codes, gallery_codes = np.split(codes, [len(queries)])
    query_codes[unlabelled[: len(queries)]] = -1
    gallery_codes[unlabelled[len(queries) :]] = -2
    return query_codes.copy(), gallery_codes  # so that queries do not keep the gallery in memory


def lowest_common_level(query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> Integers:
    """Return the level of the lowest common ancestor of each query and each gallery item.

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


def relevance(query_labels: LabelMatrix, gallery_labels: LabelMatrix, alpha: float = 1.0) -> Floats:
    """Return the relevance of each gallery item for each query (paper, Eq. 20).

    ::

        rel(k) = (l/L)^alpha / |Omega^(l)|

    Omega^(l) is the set of gallery items whose lowest common level with the query is exactly l, so
    the relevances of a level that occurs add up to (l/L)^alpha. Pass a gallery without the query if
    the query is excluded from its own retrieval set. Queries are independent of each other and may
    be passed in blocks.

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
