"""Random splits of images into a training and a test set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hgld.arrays import Booleans
from hgld.datasets.manifest import Manifest
from hgld.errors import ConfigurationError, require
from hgld.hierarchy import LabelMatrix
from hgld.io.text_array import TextArray

#: Default share of the classes in the test set of an open-set split.
OPEN_SET_SHARE = 0.5


def check_test_share(test_share: float | None, example: float = 0.2) -> None:
    """Raise a :class:`ConfigurationError` unless a share is between 0 and 1, or None."""
    is_share = test_share is None or 0 < test_share < 1
    require(is_share, f"a number between 0 and 1, such as {example}", test_share=test_share)


def check_split_settings(split: object, test_share: float | None, open_set: str | None) -> None:
    """Raise a :class:`ConfigurationError` for an invalid share, or for a second split of the images."""
    check_test_share(test_share)
    if split and (test_share is not None or open_set is not None):
        raise ConfigurationError(
            "the images have a split of their own; omit it, or omit `test_share` and `open_set`"
        )


def split_at_random(
    manifest: Manifest, test_share: float | None, open_set: str | None, seed: int
) -> Manifest:
    """Return the manifest with the splits train and test, or unchanged without a share and a level.

    Args:
        manifest: The images.
        test_share: Share of the images of each class in the test set, where an image with several
            labels belongs to its rarest class; with ``open_set``, share of the classes, by default
            half of them.
        open_set: Level whose classes are either in the training or in the test set, never in both.
        seed: Seed of the random numbers.

    Raises:
        ConfigurationError: The level does not exist, images have several labels at it, or one of the
            sets is empty.
    """
    if open_set is None and test_share is None:
        return manifest
    if open_set is None:
        sets = manifest.label_sets
        labels = manifest.labels if sets is None else sets.rarest()
        is_test = closed_set_split(labels, test_share or 0, seed)
    elif open_set in manifest.level_names:
        if manifest.label_column(open_set) is None:
            raise ConfigurationError(
                f"`open_set` divides the classes of {open_set}, but images have several of them, which may be on "
                "both sides; use `test_share` alone"
            )
        column = manifest.level_names.index(open_set)
        labels = first_labels(manifest)[:, column:]
        is_test = open_set_split(labels, test_share or OPEN_SET_SHARE, seed)
    else:
        raise ConfigurationError(
            f'`open_set` is "{open_set}"; expected one of the levels {", ".join(manifest.level_names)}'
        )
    if is_test.all() or not is_test.any():
        name = "test" if is_test.all() else "training"
        raise ConfigurationError(
            f"all {len(manifest):,} images are in the {name} set; choose another "
            "`test_share` or `seed`, or a level with more classes"
        )
    return replace(manifest, splits=TextArray(["train", "test"], is_test))


def near_and_query_images(
    labels: LabelMatrix, near_share: float, query_share: float, seed: int
) -> tuple[Booleans, Booleans]:
    """Choose the images of classes that an index lacks, and queries among the other images.

    Args:
        labels: Labels of the images, int64, shape (N, L), finest first.
        near_share: Share of the classes that the index lacks.
        query_share: Share of queries among the other images of each class.
        seed: Seed of the random numbers.

    Returns:
        Two masks, bool, shape (N,): images of classes that the index lacks, and queries. All other
        images are the index, which has an image of the class of each query.
    """
    is_near = open_set_split(labels, near_share, seed)
    is_query = ~is_near
    is_query[is_query] = closed_set_split(labels[is_query], query_share, seed)
    # A class whose images are all queries would not be in the index.
    queries_only = np.setdiff1d(labels[is_query, 0], labels[~is_near & ~is_query, 0])
    return is_near, is_query & ~np.isin(labels[:, 0], queries_only)


def first_labels(manifest: Manifest) -> LabelMatrix:
    """Return the first label of each image: int64, shape (N, L)."""
    if manifest.label_sets is not None:
        return manifest.label_sets.first()
    return manifest.labels


def closed_set_split(labels: LabelMatrix, test_share: float, seed: int) -> Booleans:
    """Choose a random share of the images of each class as test images.

    Training and test images have the same classes. A fractional number of images is rounded up or
    down at random. Returns whether each image is chosen: bool, shape (N,).
    >>> closed_set_split(np.array([[0], [0], [1], [1]]), 0.5, seed=0).tolist()
    [True, False, True, False]
    """
    images = np.column_stack([np.arange(len(labels)), labels[:, 0]])
    return open_set_split(images, test_share, seed)


def open_set_split(labels: LabelMatrix, test_share: float, seed: int) -> Booleans:
    """Choose a random share of the classes of each parent as test classes, with all their images.

    If there is a single level, all classes have the same parent. A fractional number of classes is
    rounded up or down at random. Returns whether each image is chosen: bool, shape (N,).
    >>> open_set_split(np.array([[0, 0], [0, 0], [1, 0], [2, 1], [3, 1]]), 0.5, seed=0).tolist()
    [True, True, False, True, False]
    """
    rng = np.random.default_rng(seed)
    classes, first = np.unique(labels[:, 0], return_index=True)
    parents = np.zeros(len(classes), np.int64)
    if labels.shape[1] > 1:
        parents = labels[first, 1]
    by_parent = np.argsort(parents, kind="stable")
    families = np.split(classes[by_parent], np.flatnonzero(np.diff(parents[by_parent])) + 1)
    chosen = []
    for family in families:
        shuffled = rng.permutation(family)
        n_chosen = int(len(family) * test_share + rng.random())
        chosen.append(shuffled[:n_chosen])
    return np.isin(labels[:, 0], np.concatenate(chosen))
