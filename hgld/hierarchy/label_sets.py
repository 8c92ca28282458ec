"""Labels of images that may have several labels each.

Trademarks with the Vienna classification have several labels, for example (thesis, section 4.2.2
and Fig. 6.1). A label is a row of a label matrix: a class of the finest level together with its
ancestors. The level of two labels is the finest level at which they are equal, and the level of two
images is the finest level that any of their labels share. It is not a tree distance: image a may
share a label with b, and b another label with c, while a and c have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hgld.arrays import Booleans, Integers
from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, labelled_rows
from hgld.ragged import RaggedIndices


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
