"""Random splits of images into a training and a test set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hgld.datasets.manifest import Manifest
from hgld.errors import ConfigurationError, require
from hgld.hierarchy import LabelMatrix
from hgld.io.text_array import TextArray

#: Share of the classes in the test set of an open-set split, where none is given.
OPEN_SET_SHARE = 0.5


def check_test_share(test_share: float | None, example: float = 0.2) -> None:
    """Raise a :class:`ConfigurationError` unless a share is between 0 and 1, or None."""
    is_share = test_share is None or 0 < test_share < 1
    require(is_share, f"a number between 0 and 1, such as {example}", test_share=test_share)


def check_split_settings(split: object, test_share: float | None, open_set: str | None) -> None:
    """Raise a :class:`ConfigurationError` if the share is not between 0 and 1, or the dataset has a split already."""
    check_test_share(test_share)
    if split and (test_share is not None or open_set is not None):
        raise ConfigurationError(
            "the images have a split of their own; omit it, or omit `test_share` and `open_set`"
        )


def split_at_random(
    manifest: Manifest, test_share: float | None, open_set: str | None, seed: int
) -> Manifest:
    """Return the manifest with the splits train and test, or unchanged if there is neither share nor level.

    Args:
        test_share: Share of the images of each class in the test set, where an image with several labels counts for
            the one that the fewest images have; with ``open_set``, share of the classes, by default half of them.
        open_set: Level whose classes are either in the training or in the test set, never in both.

    Raises:
        ConfigurationError: There is no such level, images have several labels there, or one of the sets is empty.
    """
    if open_set is None and test_share is None:
        return manifest
    if open_set is None:
        sets = manifest.label_sets
        is_test = closed_set_split(
            manifest.labels if sets is None else sets.rarest(), test_share or 0, seed
        )
    elif open_set in manifest.level_names:
        if manifest.label_column(open_set) is None:
            raise ConfigurationError(
                f"`open_set` divides the classes of {open_set}, but images have several of them, which may be on "
                "both sides; use `test_share` alone"
            )
        column = manifest.level_names.index(open_set)
        is_test = open_set_split(
            first_labels(manifest)[:, column:], test_share or OPEN_SET_SHARE, seed
        )
    else:
        raise ConfigurationError(
            f'`open_set` is "{open_set}"; expected one of the levels {", ".join(manifest.level_names)}'
        )
    if is_test.all() or not is_test.any():
        raise ConfigurationError(
            f"all {len(manifest):,} images are in the {'test' if is_test.all() else 'training'} set; choose another "
            "`test_share` or `seed`, or a level with more classes"
        )
    return replace(manifest, splits=TextArray(["train", "test"], is_test))


def near_and_query_images(
    labels: LabelMatrix, near_share: float, query_share: float, seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Choose the images of classes that an index lacks, and the queries among the others.

    Returns:
        Two arrays of bool, shape (N,). The class of each query has an image in the index, which are all others.
    """
    is_near = open_set_split(labels, near_share, seed)
    is_query = ~is_near
    is_query[is_query] = closed_set_split(labels[is_query], query_share, seed)
    # A class with all images among the queries would not be in the index.
    queries_only = np.setdiff1d(labels[is_query, 0], labels[~is_near & ~is_query, 0])
    return is_near, is_query & ~np.isin(labels[:, 0], queries_only)


def first_labels(manifest: Manifest) -> LabelMatrix:
    """Return the label of each image, or the first one where images have several: int64, shape (N, L)."""
    return manifest.labels if manifest.label_sets is None else manifest.label_sets.first()


def closed_set_split(labels: LabelMatrix, test_share: float, seed: int) -> NDArray[np.bool_]:
    """Choose a random share of the images of each class as test images, such that training sees the same classes.

    A fractional number is rounded up or down at random. Returns whether each image is chosen: bool, shape (N,).

    >>> closed_set_split(np.array([[0], [0], [1], [1]]), 0.5, seed=0).tolist()
    [True, False, True, False]
    """
    images = np.column_stack([np.arange(len(labels)), labels[:, 0]])
    return open_set_split(images, test_share, seed)


def open_set_split(labels: LabelMatrix, test_share: float, seed: int) -> NDArray[np.bool_]:
    """Choose a random share of the classes of each label one level above as test classes, with all images of each.

    If there is one level alone, all classes have the same parent. A fractional number is rounded up or down at
    random. Returns whether each image is chosen: bool, shape (N,).

    >>> open_set_split(np.array([[0, 0], [0, 0], [1, 0], [2, 1], [3, 1]]), 0.5, seed=0).tolist()
    [True, True, False, True, False]
    """
    rng = np.random.default_rng(seed)
    classes, first = np.unique(labels[:, 0], return_index=True)
    parents = labels[first, 1] if labels.shape[1] > 1 else np.zeros(len(classes), np.int64)
    by_parent = np.argsort(parents, kind="stable")
    families = np.split(classes[by_parent], np.flatnonzero(np.diff(parents[by_parent])) + 1)
    members = [
        rng.permutation(family)[: int(len(family) * test_share + rng.random())]
        for family in families
    ]
    return np.isin(labels[:, 0], np.concatenate(members))
