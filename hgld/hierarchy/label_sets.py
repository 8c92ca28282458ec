"""Several labels per image, as trademarks have by the Vienna classification (thesis, section 4.2.2 and Fig. 6.1).

A label is a row of a label matrix: a class of the finest level together with its ancestors. Images with one label
each are described by a label matrix with a row per image, images with several by :class:`LabelSets`. Two labels share
the finest level at which they are equal, and two images the finest level that any of their labels share. That level
is no tree distance: a may share a label with b, and b another one with c, while a and c have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, labelled_rows
from hgld.ragged import Integers, RaggedIndices


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Labels of images that may have several each; immutable.

    Args:
        labels: int64, shape (n_labels, L), finest level first: the distinct labels, each with its ancestors.
        members: Rows of ``labels`` for each image, each once; the first is the image's main label. An image without
            any is unlabelled.

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
        """Create label sets from the labels of each image, integers of shape (n, L); repeated labels count once."""
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
        return cls.from_rows(np.concatenate(arrays).astype(np.int64), np.array([len(array) for array in arrays]))

    @classmethod
    def from_rows(cls, rows: LabelMatrix, counts: Integers) -> LabelSets:
        """Create label sets from the labels of all images, one after another; repeated labels of an image count once.

        Args:
            rows: int64, shape (n_rows, L).
            counts: int64, shape (N,); number of rows of each image, which add up to n_rows.
        """
        labels, codes = np.unique(rows, axis=0, return_inverse=True)
        images = np.repeat(np.arange(len(counts)), counts)
        _, first = np.unique(images * len(labels) + codes.reshape(-1), return_index=True)
        first.sort()  # the order of an image's labels is kept
        offsets = np.searchsorted(images[first], np.arange(len(counts) + 1))
        return cls(labels, RaggedIndices(offsets, codes.reshape(-1)[first]))

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

    def take(self, images: npt.NDArray[np.int64]) -> LabelSets:
        """Return the labels of some images, in the given order, without labels that none of them has."""
        members = self.members.take(images)
        used, columns = np.unique(members.columns, return_inverse=True)
        return LabelSets(self.labels[used], RaggedIndices(members.offsets, columns))

    def first(self) -> LabelMatrix:
        """Return the main label of each image: int64, shape (N, L); all images must have labels."""
        return self.labels[self.members.columns[self.members.offsets[:-1]]]

    def single(self) -> LabelMatrix | None:
        """Return the label matrix, int64 (N, L), if every image has exactly one label; else None."""
        return self.first() if (self.counts() == 1).all() else None

    def single_column(self, column: int) -> npt.NDArray[np.int64] | None:
        """Return a column, int64 (N,), if the labels of each image agree in it and all images have labels; else None.

        >>> LabelSets.from_lists([np.array([[3, 0], [5, 0]])]).single_column(1)
        array([0])
        """
        if not self.counts().all():
            return None
        values = self.labels[self.members.columns, column]
        first = self.first()[:, column]
        return first if np.array_equal(values, np.repeat(first, self.counts())) else None

    def rarest(self) -> LabelMatrix:
        """Return the label of each image that the fewest images have, the earlier of equals: int64, shape (N, L).

        All images must have labels.
        """
        sizes = np.bincount(self.members.columns, minlength=len(self.labels))[self.members.columns]
        order = np.lexsort((np.arange(len(sizes)), sizes, self.members.rows()))
        return self.labels[self.members.columns[order[self.members.offsets[:-1]]]]

    def padded(self, images: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Return labels in one array: int64, shape (n, K, L), K the most labels of any of all images; -1 as padding.

        Args:
            images: int64, shape (n,); images to return. Default: all of them.
        """
        members = self.members if images is None else self.members.take(images)
        array = np.full((len(members), self.most_labels, self.n_levels), -1)
        rows = members.rows()
        array[rows, np.arange(len(rows)) - members.offsets[rows]] = self.labels[members.columns]
        return array


#: Labels of images with one each (a row per image, -1 in those of unlabelled images), or with several each.
Labelling: TypeAlias = LabelMatrix | LabelSets


def take_images(labels: Labelling, images: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Labelling:
    """Return the labels of some images, given by their numbers or by a mask."""
    if isinstance(labels, LabelSets):
        return labels.take(np.arange(len(labels))[images])
    return labels[images]


def labelled_images(labels: Labelling) -> npt.NDArray[np.bool_]:
    """Return which images have labels: bool, shape (N,)."""
    if not isinstance(labels, LabelSets):
        return labelled_rows(labels)
    if (labels.labels < 0).any():
        raise InputError("label sets have labels below 0; expected 0 and more, and no label for unlabelled images")
    return labels.counts() > 0


def require_labelled(labels: Labelling) -> None:
    """Raise an :class:`InputError` if images are unlabelled, or a label is invalid."""
    labelled = labelled_images(labels)
    if not labelled.all():
        raise InputError(
            f"{int((~labelled).sum()):,} of {len(labelled):,} images are unlabelled (labels of -1, or none), first "
            f"image {int(labelled.argmin())}; leave them out"
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
    """Return a label of each image: int64, shape (N, L); the first of several, and -1 for unlabelled images.

    >>> main_labels(LabelSets.from_lists([np.array([[3, 0], [5, 1]]), np.array([[4, 0]])]))
    array([[3, 0],
           [4, 0]])
    """
    if not isinstance(labels, LabelSets):
        return labels
    labelled = labels.counts() > 0
    matrix = np.full((len(labels), labels.n_levels), -1)
    matrix[labelled] = labels.labels[labels.members.columns[labels.members.offsets[:-1][labelled]]]
    return matrix


def deviating_parents(sets: LabelSets) -> tuple[int, int, int] | None:
    """Return a class that has other parents in one image than in others, as (column, class, image); else None.

    A class may have several parents, as a landmark is in several groups, but then every image of it has them all.

    >>> deviating_parents(LabelSets.from_lists([np.array([[3, 0], [3, 1]]), np.array([[3, 0]])]))
    (0, 3, 1)
    """
    images = sets.members.rows()
    rows = sets.labels[sets.members.columns]
    for column in range(sets.n_levels - 1):
        pairs, pair_of = np.unique(rows[:, column : column + 2], axis=0, return_inverse=True)
        occurrences = np.unique(np.stack([images, pair_of.reshape(-1)], axis=1), axis=0)
        images_of_pair = np.bincount(occurrences[:, 1], minlength=len(pairs))
        classes, class_of = np.unique(pairs[:, 0], return_inverse=True)
        members = np.unique(np.stack([occurrences[:, 0], class_of[occurrences[:, 1]]], axis=1), axis=0)
        images_of_class = np.bincount(members[:, 1], minlength=len(classes))
        if len(deviating := np.flatnonzero(images_of_pair < images_of_class[class_of])):
            pair = deviating[0]
            with_class = members[members[:, 1] == class_of[pair], 0]
            with_pair = occurrences[occurrences[:, 1] == pair, 0]
            return column, int(pairs[pair, 0]), int(np.setdiff1d(with_class, with_pair)[0])
    return None
