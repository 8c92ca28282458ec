"""Labels of images in a hierarchy: label matrices, and sets of several labels per image.

A hierarchy has L levels. The papers number them from 1, the coarsest (the root, natural or
human-made), to L, the finest (the landmark); level 0 means "nothing in common". A label matrix has
one *column* per level, the finest first. So level l is column L - l; only :func:`column_of`
converts levels to columns.

A row of -1 is an unlabelled image, never a class: it has nothing in common with any image.
Evaluations exclude such images and count them, rejection scores identify the unlabelled images of
an index, and losses and samplers refuse them.

:class:`LabelSets` describe images with several labels, such as trademarks with the Vienna
classification (thesis, section 4.2.2 and Fig. 6.1). A label is a row of a label matrix: a class of
the finest level together with its ancestors. The level of two labels is the finest level at which
they are equal, and the level of two images is the finest level that any of their labels share. It
is not a tree distance: image a may share a label with b, and b another label with c, while a and c
have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hgld.arrays import AnyIntegers, Booleans, Floats, Integers
from hgld.errors import ConfigurationError, InputError, require_at_least
from hgld.ragged import RaggedIndices

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


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Labels of images that may have several labels each; immutable.

    Args:
        labels: int64, shape (n_labels, L), finest level first: the distinct labels, each with its
            ancestors.
        members: Distinct rows of ``labels`` for each image; the first is the image's main label. An
            image without rows is unlabelled.

    >>> sets = LabelSets.from_lists([np.array([[3, 0], [5, 1]]), np.array([[3, 0]])])
    >>> len(sets), sets.labels.tolist(), sets.of(0).tolist()
    (2, [[3, 0], [5, 1]], [[3, 0], [5, 1]])
    """

    labels: LabelMatrix
    members: RaggedIndices

    def __post_init__(self) -> None:
        for values in (self.labels, self.members.offsets, self.members.columns):
            values.flags.writeable = False

    @classmethod
    def from_lists(cls, images: Sequence[npt.ArrayLike]) -> LabelSets:
        """Create label sets from the labels of each image: integers of shape (n, L).

        Repeated labels of an image count once.
        """
        arrays = [np.asarray(image) for image in images]
        depths = {array.shape[1] for array in arrays if array.ndim == 2}
        for position, array in enumerate(arrays):
            if array.ndim != 2 or len(depths) > 1 or not array.shape[1]:
                raise InputError(
                    f"image {position} has labels of the shape {array.shape}, image 0 of {arrays[0].shape}; expected "
                    "(n, L), with the same number of levels L for all images"
                )
        if not arrays:
            raise InputError("there are no images; expected the labels of at least one")
        counts = np.array([len(array) for array in arrays])
        return cls.from_rows(np.concatenate(arrays).astype(np.int64), counts)

    @classmethod
    def from_rows(cls, rows: LabelMatrix, counts: Integers) -> LabelSets:
        """Create label sets from the labels of all images in one array.

        Repeated labels of an image count once.

        Args:
            rows: int64, shape (n_rows, L).
            counts: int64, shape (N,); number of rows of each image, which add up to n_rows.
        """
        labels, codes = np.unique(rows, axis=0, return_inverse=True)
        codes = codes.reshape(-1)
        images = np.repeat(np.arange(len(counts)), counts)
        _, first = np.unique(images * len(labels) + codes, return_index=True)
        first.sort()  # the order of an image's labels is kept
        offsets = np.searchsorted(images[first], np.arange(len(counts) + 1))
        return cls(labels, RaggedIndices(offsets, codes[first]))

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[LabelMatrix]:
        return map(self.of, range(len(self)))

    @property
    def n_levels(self) -> int:
        """Number of levels, L."""
        return int(self.labels.shape[1])

    def counts(self) -> Integers:
        """Return the number of labels of each image: int64, shape (N,)."""
        return self.members.counts()

    @cached_property
    def most_labels(self) -> int:
        """Largest number of labels of an image, at least 1."""
        return int(self.counts().max(initial=1))

    def of(self, image: int) -> LabelMatrix:
        """Return the labels of an image: int64, shape (n, L)."""
        return self.labels[self.members.row(image)]

    def take(self, images: Integers) -> LabelSets:
        """Return the labels of the given images, in this order, without unused labels."""
        members = self.members.take(images)
        used, columns = np.unique(members.columns, return_inverse=True)
        return LabelSets(self.labels[used], RaggedIndices(members.offsets, columns))

    def first(self) -> LabelMatrix:
        """Return the main label of each image: int64, shape (N, L); all images must have labels."""
        return self.labels[self.members.columns[self.members.offsets[:-1]]]

    def single(self) -> LabelMatrix | None:
        """Return the label matrix, int64 (N, L), if every image has one label; otherwise None."""
        if (self.counts() == 1).all():
            return self.first()
        return None

    def single_column(self, column: int) -> Integers | None:
        """Return the class of each image at a level, int64 (N,), if it is unique; otherwise None.

        It is None if an image has several classes at the level, or no label.

        >>> LabelSets.from_lists([np.array([[3, 0], [5, 0]])]).single_column(1)
        array([0])
        """
        if not self.counts().all():
            return None
        classes = self.labels[self.members.columns, column]
        first_classes = self.first()[:, column]
        if np.array_equal(classes, np.repeat(first_classes, self.counts())):
            return first_classes
        return None

    def rarest(self) -> LabelMatrix:
        """Return the rarest label of each image, the earlier of equally rare labels.

        All images must have labels.

        Returns:
            int64, shape (N, L): of the labels of an image, the label that the fewest images have.
        """
        members = self.members
        n_images = np.bincount(members.columns, minlength=len(self.labels))[members.columns]
        order = np.lexsort((np.arange(len(n_images)), n_images, members.rows()))
        rarest_members = order[members.offsets[:-1]]
        return self.labels[members.columns[rarest_members]]

    def padded(self, images: Integers | None = None) -> Integers:
        """Return labels as one int64 array of shape (n, K, L), padded with -1.

        K is :attr:`most_labels`.

        Args:
            images: int64, shape (n,); images to return. Default: all images.
        """
        members = self.members if images is None else self.members.take(images)
        rows = members.padded(self.most_labels)
        is_label = rows >= 0
        padded = np.full((*rows.shape, self.n_levels), -1)
        padded[is_label] = self.labels[rows[is_label]]
        return padded


#: Labels of images: a row per image, -1 for unlabelled images; or sets of several labels per image.
Labelling: TypeAlias = LabelMatrix | LabelSets


def take_images(labels: Labelling, images: Integers | Booleans) -> Labelling:
    """Return the labels of images that are selected by indices or by a mask."""
    if isinstance(labels, LabelSets):
        return labels.take(np.arange(len(labels))[images])
    return labels[images]


def labelled_images(labels: Labelling) -> Booleans:
    """Return which images have labels: bool, shape (N,)."""
    if not isinstance(labels, LabelSets):
        return labelled_rows(labels)
    if (labels.labels < 0).any():
        raise InputError(
            "label sets have labels below 0; expected 0 and more, and no label for unlabelled images"
        )
    return labels.counts() > 0


def require_labelled(labels: Labelling) -> None:
    """Raise an :class:`InputError` if images are unlabelled, or a label is invalid."""
    labelled = labelled_images(labels)
    if not labelled.all():
        raise InputError(
            f"{int((~labelled).sum()):,} of {len(labelled):,} images are unlabelled (labels of -1, or no labels), "
            f"first image {int(labelled.argmin())}; exclude them"
        )


def single_labels(labels: Labelling) -> LabelMatrix:
    """Return the label matrix of images with one label each: int64, shape (N, L)."""
    if not isinstance(labels, LabelSets):
        return labels
    single = labels.single()
    if single is None:
        n_others = int((labels.counts() != 1).sum())
        raise InputError(
            f"{n_others:,} of the {len(labels):,} images have several labels or none; this is for images with one "
            "label each"
        )
    return single


def main_labels(labels: Labelling) -> LabelMatrix:
    """Return the first label of each image: int64, shape (N, L); -1 for unlabelled images.

    >>> main_labels(LabelSets.from_lists([np.array([[3, 0], [5, 1]]), np.array([[4, 0]])]))
    array([[3, 0],
           [4, 0]])
    """
    if not isinstance(labels, LabelSets):
        return labels
    members = labels.members
    labelled = labels.counts() > 0
    matrix = np.full((len(labels), labels.n_levels), -1)
    matrix[labelled] = labels.labels[members.columns[members.offsets[:-1][labelled]]]
    return matrix


def deviating_parents(sets: LabelSets) -> tuple[int, int, int] | None:
    """Return the first class whose parents differ between images, as (column, class, image).

    A class may have several parents, as a landmark may be in several groups, but every image of the
    class must then have all these parents. Returns None if no class deviates.

    >>> deviating_parents(LabelSets.from_lists([np.array([[3, 0], [3, 1]]), np.array([[3, 0]])]))
    (0, 3, 1)
    """
    import pandas as pd  # not for the help of commands that read hierarchies

    images = sets.members.rows()
    rows = sets.labels[sets.members.columns]
    for column in range(sets.n_levels - 1):
        columns = {"image": images, "class": rows[:, column], "parent": rows[:, column + 1]}
        table = pd.DataFrame(columns).drop_duplicates()
        n_with_class = table.groupby("class")["image"].nunique()
        n_with_parent = table.groupby(["class", "parent"]).size()
        n_expected = n_with_class.reindex(n_with_parent.index, level="class")
        deviating = n_with_parent.index[n_with_parent < n_expected]
        if len(deviating):
            number, parent = deviating[0]
            with_class = table[table["class"] == number]
            with_parent = with_class.loc[with_class["parent"] == parent, "image"]
            image = with_class.loc[~with_class["image"].isin(with_parent), "image"].min()
            return column, int(number), int(image)
    return None
