"""Batch samplers: which images form a batch.

A sampler is a pure function of its seed and the number of the epoch: every process computes the same batches, and
takes its share of each. Labels are those of a manifest, numbered from 0 in each column; classes are those of column
0, the finest level. No image is repeated within a batch.
"""

from __future__ import annotations

import logging
from itertools import combinations
from math import comb
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hgld.errors import ConfigurationError
from hgld.hierarchy import LabelMatrix

log = logging.getLogger(__name__)

IntArray = NDArray[np.int64]


class BatchSampler(Protocol):
    """The interface of batch samplers."""

    batch_size: int

    def __len__(self) -> int:
        """Return the number of batches per epoch."""

    def batches(self, epoch: int) -> IntArray:
        """Return the rows of each batch of an epoch: int64, shape (n_batches, batch_size)."""


class ClassBalancedSampler:
    """Sampler of m images of each of several classes, with each image at most once per epoch.

    The images of a class are shuffled and divided into groups of ``per_class``; a smaller remainder is not used in
    this epoch. A batch has one group of each of ``batch_size / per_class`` classes. An epoch has as many batches as
    possible; surplus groups of large classes, for which too few other classes remain, are not used in it. Classes
    with fewer than ``per_class`` images are never used.

    Args:
        labels: int64, shape (N, L), finest first.
        batch_size: Number of images per batch.
        per_class: Number of images of each class in a batch, m.
        max_per_class: Largest number of images of a class per epoch. Default: no limit.
        seed: Seed of all random choices.

    Raises:
        ConfigurationError: The sizes are inconsistent, or there are too few classes to fill a batch.

    >>> labels = np.repeat([[0], [1], [2]], 4, axis=0)
    >>> ClassBalancedSampler(labels, batch_size=4, per_class=2, seed=0).batches(epoch=0).shape
    (3, 4)
    """

    def __init__(
        self, labels: LabelMatrix, batch_size: int, per_class: int, *, max_per_class: int | None = None, seed: int
    ) -> None:
        _check_sizes(batch_size, per_class, 1)
        if max_per_class is not None and max_per_class < per_class:
            raise ConfigurationError(
                f"`max_per_class` is {max_per_class}, but `per_class` is {per_class}; expected at least as many"
            )
        self.batch_size, self._per_class, self._seed = batch_size, per_class, seed
        self._classes = labels[:, 0]
        counts = np.bincount(self._classes)
        groups = np.minimum(counts, max_per_class or len(labels)) // per_class
        slots = batch_size // per_class
        if (groups > 0).sum() < slots:
            raise ConfigurationError(
                f"a batch of {batch_size} with {per_class} images of each class has {slots} classes, but "
                f"{_class_counts_text(counts, per_class)}; lower `per_class` or `batch_size`, or add images"
            )
        _log_small_classes(counts, per_class)
        self._n_batches = _max_batches(groups, slots)
        self._groups = np.minimum(groups, self._n_batches)

    def __len__(self) -> int:
        return self._n_batches

    def batches(self, epoch: int) -> IntArray:
        """Return the rows of each batch of an epoch: int64, shape (n_batches, batch_size)."""
        rng = epoch_generator(self._seed, epoch)
        slots = self.batch_size // self._per_class
        # Draw the groups of this epoch, then order them by class, with the classes in random order.
        chosen = rng.permutation(np.repeat(np.arange(len(self._groups)), self._groups))[: slots * self._n_batches]
        counts = np.bincount(chosen, minlength=len(self._groups))
        order = rng.permutation(len(counts))
        owners = np.repeat(order, counts[order])
        batch_of = _assign_batches(owners.reshape(slots, self._n_batches), rng)
        groups = np.empty((self._n_batches, slots), np.int64)
        groups[batch_of.ravel(), np.repeat(np.arange(slots), self._n_batches)] = np.arange(len(owners))
        rows = self._rows_of(owners, rng)[groups].reshape(self._n_batches, self.batch_size)
        return rng.permuted(rows, axis=1)

    def _rows_of(self, owners: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the rows of each group from its class, shape (n_groups, per_class), without repetition."""
        shuffled = np.lexsort((rng.random(len(self._classes)), self._classes))
        first = np.searchsorted(self._classes[shuffled], owners)
        # The groups of a class are adjacent; number them within the class.
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        number = np.arange(len(owners)) - np.repeat(starts, np.diff(np.r_[starts, len(owners)]))
        rows: IntArray = shuffled[(first + number * self._per_class)[:, None] + np.arange(self._per_class)]
        return rows


class HierarchicalSampler:
    """Sampler of batches from few super-classes, whose classes are hard to distinguish.

    From Cakir et al., Deep Metric Learning to Rank, CVPR 2019. For every combination of ``super_classes`` labels of
    column 1 there are ``batches_per_tuple`` batches, each with the same number of classes of every super-class, drawn
    independently for each batch, and ``per_class`` images of each class. On Stanford Online Products: 2 of 12
    super-classes and 5 batches of each pair, hence 330 batches per epoch. Classes with fewer than ``per_class``
    images are never used, nor are super-classes with too few other classes; the sampler of pytorch-metric-learning
    repeats images of small classes instead.

    Args:
        labels: int64, shape (N, L), finest first, L at least 2.
        batch_size: Number of images per batch.
        per_class: Number of images of each class in a batch.
        super_classes: Number of super-classes in a batch.
        batches_per_tuple: Number of batches per combination of super-classes and epoch.
        seed: Seed of all random choices.

    Raises:
        ConfigurationError: The sizes are inconsistent, there is one level only, or too few super-classes have enough
            classes for their share of a batch.
    """

    def __init__(
        self,
        labels: LabelMatrix,
        batch_size: int,
        per_class: int,
        super_classes: int,
        batches_per_tuple: int,
        *,
        seed: int,
    ) -> None:
        _check_sizes(batch_size, per_class, super_classes)
        if batches_per_tuple < 1:
            raise ConfigurationError(f"`batches_per_tuple` is {batches_per_tuple}; expected at least 1")
        if labels.shape[1] < 2:
            raise ConfigurationError(
                "the hierarchical sampler needs super-classes, but the labels have one level only"
            )
        self.batch_size, self._per_class, self._seed = batch_size, per_class, seed
        self._super_classes, self._batches_per_tuple = super_classes, batches_per_tuple
        self._n_classes = batch_size // per_class // super_classes
        counts = np.bincount(labels[:, 0])
        _log_small_classes(counts, per_class)
        by_class = np.argsort(labels[:, 0], kind="stable")
        rows_of = np.split(by_class, np.cumsum(counts)[:-1])
        members: dict[int, list[IntArray]] = {}
        for rows in rows_of:
            if len(rows) >= per_class:
                members.setdefault(int(labels[rows[0], 1]), []).append(rows)
        self._members = [members[name] for name in sorted(members) if len(members[name]) >= self._n_classes]
        if len(self._members) < super_classes:
            raise ConfigurationError(
                f"a batch of {batch_size} with {per_class} images of each class has {self._n_classes} classes of "
                f"each of {super_classes} super-classes, but {len(self._members)} super-classes have that many with "
                f"{per_class} images ({_class_counts_text(counts, per_class)}); lower `per_class`, "
                "`batch_size` or `super_classes`"
            )

    def __len__(self) -> int:
        return comb(len(self._members), self._super_classes) * self._batches_per_tuple

    def batches(self, epoch: int) -> IntArray:
        """Return the rows of each batch of an epoch: int64, shape (n_batches, batch_size)."""
        rng = epoch_generator(self._seed, epoch)
        batches = [
            np.concatenate([self._draw(members, rng) for members in chosen])
            for chosen in combinations(self._members, self._super_classes)
            for _ in range(self._batches_per_tuple)
        ]
        return rng.permuted(rng.permutation(np.stack(batches)), axis=1)

    def _draw(self, members: list[IntArray], rng: np.random.Generator) -> IntArray:
        """Draw rows of some classes of a super-class."""
        classes = rng.choice(len(members), self._n_classes, replace=False)
        return np.concatenate([rng.choice(members[n], self._per_class, replace=False) for n in classes.tolist()])


def epoch_generator(seed: int, epoch: int, *further: int) -> np.random.Generator:
    """Return an independent random generator for an epoch or, given further numbers, for a part of it."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, *further)))


def _check_sizes(batch_size: int, per_class: int, super_classes: int) -> None:
    if min(batch_size, per_class, super_classes) < 1:
        raise ConfigurationError(
            f"`batch_size` is {batch_size}, `per_class` {per_class} and `super_classes` {super_classes}; "
            "expected at least 1"
        )
    if batch_size % (per_class * super_classes):
        suffix = f" of each of {super_classes} super-classes" if super_classes > 1 else ""
        raise ConfigurationError(
            f"a batch of {batch_size} cannot be made of {per_class} images of each class{suffix}; "
            f"`batch_size` must be a multiple of {per_class * super_classes}"
        )


def _class_counts_text(counts: IntArray, per_class: int) -> str:
    return (
        f"{(counts >= per_class).sum():,} of {(counts > 0).sum():,} classes have {per_class} images or more, and "
        f"{(counts == 1).sum():,} have only one"
    )


def _log_small_classes(counts: IntArray, per_class: int) -> None:
    if small := ((counts > 0) & (counts < per_class)).sum():
        log.info("%s of %s classes have fewer than %d images: excluded", small, (counts > 0).sum(), per_class)


def _max_batches(groups: IntArray, slots: int) -> int:
    """Return the largest number of batches of ``slots`` classes each, given the number of groups of each class."""
    low, high = 1, int(groups.sum()) // slots
    while low < high:
        middle = (low + high + 1) // 2
        # A class has at most one group in each batch.
        if np.minimum(groups, middle).sum() >= slots * middle:
            low = middle
        else:
            high = middle - 1
    return low


def _assign_batches(owners: IntArray, rng: np.random.Generator) -> IntArray:
    """Assign a batch to each group at random, with no class twice in a batch.

    Args:
        owners: int64, shape (slots, n_batches): the class of each group. In row-major order the groups of a class are
            adjacent, and there are at most ``n_batches`` of them, so they are in one row, or at the end of one and
            the beginning of the next.
        rng: Random generator.

    Returns:
        int64, same shape: each row is a permutation of the batches.
    """
    n_batches = owners.shape[1]
    batch_of = np.empty_like(owners)
    for slot, classes in enumerate(owners):
        order = rng.permutation(n_batches)
        if slot:
            taken = batch_of[slot - 1][owners[slot - 1] == classes[0]]
            n_continued = (classes == classes[0]).sum()
            free = np.flatnonzero(~np.isin(order, taken))[:n_continued]
            order = np.concatenate([order[free], np.delete(order, free)])
        batch_of[slot] = order
    return batch_of
