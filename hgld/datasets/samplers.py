"""Batch samplers, which choose the images of each batch.

A sampler is a pure function of its seed and the number of the epoch: every process computes the same
batches, and takes its share of each batch. Labels are the labels of a manifest, numbered from 0 in
each column; classes are the labels of column 0, the finest level.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapreplace
from itertools import combinations
from math import comb
from typing import Literal, Protocol

import numpy as np

from hgld.arrays import AnyIntegers, Integers
from hgld.errors import ConfigurationError, require, require_at_least
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.label_sets import Labelling, LabelSets, require_labelled

log = logging.getLogger(__name__)

#: Treatment of classes with fewer images than a batch takes of each class: ``repeat`` draws their
#: images with replacement, ``exclude`` never uses them.
SmallClasses = Literal["repeat", "exclude"]


#: Division of an epoch into batches, see :class:`ClassBalancedSampler`.
Packing = Literal["most", "greedy", "independent"]


class BatchSampler(Protocol):
    """The interface of batch samplers."""

    batch_size: int

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, without drawing them."""

    def batches(self, epoch: int) -> list[Integers]:
        """Return the rows of each batch of an epoch: int64, at most ``batch_size`` rows."""


def epoch_generator(seed: int, epoch: int, *further: int) -> np.random.Generator:
    """Return an independent random generator for an epoch or, given further numbers, for its parts."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, *further)))


def _check_sizes(batch_size: int, per_class: int, super_classes: int = 1) -> None:
    """Raise a :class:`ConfigurationError` if a batch cannot have this number of images of each class."""
    sizes = {"batch_size": batch_size, "per_class": per_class, "super_classes": super_classes}
    require(min(sizes.values()) >= 1, "at least 1", **sizes)
    if batch_size % (per_class * super_classes):
        suffix = ""
        if super_classes > 1:
            suffix = f" of each of {super_classes} super-classes"
        raise ConfigurationError(
            f"a batch of {batch_size} cannot be made of {per_class} images of each class{suffix}; "
            f"`batch_size` must be a multiple of {per_class * super_classes}"
        )


def _class_counts_text(counts: Integers, per_class: int) -> str:
    """Return the number of classes with enough images in words, for messages."""
    return (
        f"{(counts >= per_class).sum():,} of {(counts > 0).sum():,} classes have {per_class} images or more, and "
        f"{(counts == 1).sum():,} have only one"
    )


def log_small_classes(labels: Labelling, per_class: int, small_classes: SmallClasses) -> None:
    """Log the number of classes with fewer than ``per_class`` images, and their treatment.

    Samplers do not log this themselves, since :class:`LabelSetSampler` makes a new sampler for each
    epoch. An image with several labels counts for each of its classes.
    """
    counts = _images_per_class(labels)
    n_small = ((counts > 0) & (counts < per_class)).sum()
    if n_small:
        outcome = "their images are repeated within batches"
        if small_classes == "exclude":
            outcome = "excluded"
        log.info(
            "%s of %s classes have fewer than %d images: %s",
            n_small,
            (counts > 0).sum(),
            per_class,
            outcome,
        )


def _images_per_class(labels: Labelling) -> Integers:
    """Return the number of images of each class of column 0: int64, shape (C,)."""
    require_labelled(labels)
    if not isinstance(labels, LabelSets):
        return np.bincount(labels[:, 0])
    classes = labels.labels[labels.members.columns, 0]
    n_classes = int(classes.max()) + 1
    distinct_pairs = np.unique(labels.members.rows() * n_classes + classes)  # image and class
    return np.bincount(distinct_pairs % n_classes)


class ClassBalancedSampler:
    """Sampler of m images of each of several classes.

    A batch has ``per_class`` images of each of ``batch_size / per_class`` classes. Epochs differ by
    ``packing``:

    - ``most``: The images of a class are shuffled and divided into groups of ``per_class``; a smaller
      remainder is not used in this epoch. Random groups form as many batches as possible; surplus
      groups of large classes, for which too few other classes remain, are not used in this epoch.
    - ``greedy``: The same groups, but each batch takes groups of the first classes, in a random order
      of this epoch, that have groups left. The epoch ends when too few classes have groups left. This
      is the sampler of Smooth-AP, Recall@k Surrogate, ROADMAP and SupRank. The same classes meet in
      many batches, and epochs are shorter and vary in length: with 100 classes of 59 images and
      batches of 64 classes, 14 batches instead of 21.
    - ``independent``: Every batch draws its classes, and the images of each class, independently. This
      is the sampler of pytorch-metric-learning, which SupRank uses for several processes. An image
      may be in several batches.

    Args:
        labels: int64, shape (N, L), finest first.
        batch_size: Number of images of a batch.
        per_class: Number of images of each class in a batch, m.
        packing: Division of an epoch into batches, see above.
        max_per_class: Largest number of images of a class per epoch; not for ``independent``. Default:
            no limit.
        small_classes: Treatment of classes with fewer than ``per_class`` images, see
            :data:`SmallClasses`; if they repeat images, each has one group per epoch.
        n_batches: Number of batches per epoch, only for ``independent``. Default: N / ``batch_size``,
            rounded down.
        seed: Seed of the random numbers.

    >>> labels = np.repeat([[0], [1], [2]], 4, axis=0)
    >>> [len(batch) for batch in ClassBalancedSampler(labels, batch_size=4, per_class=2, seed=0).batches(epoch=0)]
    [4, 4, 4]
    """

    def __init__(
        self,
        labels: LabelMatrix,
        batch_size: int,
        per_class: int,
        *,
        packing: Packing = "most",
        max_per_class: int | None = None,
        small_classes: SmallClasses = "exclude",
        n_batches: int | None = None,
        seed: int,
    ) -> None:
        _check_sizes(batch_size, per_class)
        if max_per_class is not None and max_per_class < per_class:
            raise ConfigurationError(
                f"`max_per_class` is {max_per_class}, but `per_class` is {per_class}; expected at least as many"
            )
        if packing == "independent" and max_per_class is not None:
            raise ConfigurationError(
                f"`max_per_class` is {max_per_class}, but independent batches have no such limit; omit it"
            )
        if packing != "independent" and n_batches is not None:
            raise ConfigurationError(
                f"`n_batches` is {n_batches}, but the packing {packing} decides that itself; omit it, or set "
                "`packing` to independent"
            )
        self.batch_size = batch_size
        self._per_class = per_class
        self._packing = packing
        self._seed = seed
        self._classes = labels[:, 0]
        self._counts = _images_per_class(labels)
        groups = np.minimum(self._counts, max_per_class or len(labels)) // per_class
        if small_classes == "repeat":
            groups = np.maximum(groups, self._counts > 0)
        self._slots = batch_size // per_class
        if (groups > 0).sum() < self._slots:
            raise ConfigurationError(
                f"a batch of {batch_size} with {per_class} images of each class has {self._slots} classes, but "
                f"{_class_counts_text(self._counts, per_class)}; lower `per_class` or `batch_size`, or add images"
            )
        self._n_batches = _max_batches(groups, self._slots)
        if packing == "independent":
            self._n_batches = n_batches or max(1, len(labels) // batch_size)
        self._groups = groups

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, which varies only with ``packing="greedy"``."""
        if self._packing == "greedy":
            rng = epoch_generator(self._seed, epoch)
            return _greedy_order(self._groups, self._slots, rng)[2]
        return self._n_batches

    def batches(self, epoch: int) -> list[Integers]:
        """Return the rows of each batch of an epoch: int64, ``batch_size`` rows."""
        rng = epoch_generator(self._seed, epoch)
        if self._packing == "independent":
            rows = self._independent_rows(rng)
        elif self._packing == "greedy":
            owners, members = _pack_greedily(self._groups, self._slots, rng)
            rows = self._group_rows(owners, rng)[members]
        else:
            groups = np.minimum(self._groups, self._n_batches)
            owners, members = _pack_most(groups, self._slots, self._n_batches, rng)
            rows = self._group_rows(owners, rng)[members]
        rows = rows.reshape(-1, self.batch_size).astype(np.int64)
        return list(rng.permuted(rows, axis=1, out=rows))

    def _group_rows(self, owners: Integers, rng: np.random.Generator) -> AnyIntegers:
        """Draw the rows of each group from its class.

        No row is repeated, except for classes with fewer than ``per_class`` rows, which are drawn with
        replacement.

        Args:
            owners: Class of each group, int64, shape (n_groups,); groups of a class are adjacent.
            rng: Random generator of the epoch.

        Returns:
            Shape (n_groups, per_class).
        """
        shuffled = np.lexsort((rng.random(len(self._classes)), self._classes))
        first_of_class = np.r_[0, np.cumsum(self._counts)]
        # Number the groups of each class.
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        n_groups = np.diff(np.r_[starts, len(owners)])
        numbers = np.arange(len(owners)) - np.repeat(starts, n_groups)
        offsets = (numbers * self._per_class)[:, None] + np.arange(self._per_class)
        is_small = self._counts[owners] < self._per_class
        if is_small.any():
            sizes = self._counts[owners[is_small]][:, None]
            offsets[is_small] = rng.integers(np.repeat(sizes, self._per_class, axis=1))
        offsets += first_of_class[owners][:, None]
        rows: AnyIntegers = shuffled[offsets]
        return rows

    def _independent_rows(self, rng: np.random.Generator) -> Integers:
        """Draw classes of each batch, and rows of each class, shape (n_batches * slots, per_class)."""
        rows_by_class = np.split(
            np.argsort(self._classes, kind="stable"), np.cumsum(self._counts)[:-1]
        )
        usable_classes = np.flatnonzero(self._groups)
        classes = [
            rng.choice(usable_classes, self._slots, replace=False) for _ in range(self._n_batches)
        ]
        groups = []
        for number in np.concatenate(classes).tolist():
            rows = rows_by_class[number]
            groups.append(rng.choice(rows, self._per_class, replace=len(rows) < self._per_class))
        return np.stack(groups)


class HierarchicalSampler:
    """Sampler of batches from few super-classes, whose classes are hard to distinguish.

    From Cakir et al., Deep Metric Learning to Rank, CVPR 2019. For every combination of
    ``super_classes`` labels of column 1 there are ``batches_per_tuple`` batches. Each batch has the
    same number of classes of every super-class, drawn independently, and ``per_class`` images of each
    class. On Stanford Online Products: 2 of 12 super-classes and 5 batches of each pair, hence 330
    batches per epoch.

    With ``small_classes="repeat"``, as in the published samplers, images of a class with fewer than
    ``per_class`` images are drawn with replacement, so a batch may have an image several times, each
    time with another augmentation. A super-class with too few classes gives all its classes, so
    batches with it are smaller. With ``small_classes="exclude"`` such classes and super-classes are
    never used.

    Args:
        labels: int64, shape (N, L), finest first, L at least 2.
        batch_size: Number of images of a batch.
        per_class: Number of images of each class in a batch.
        super_classes: Number of super-classes in a batch.
        batches_per_tuple: Number of batches per combination of super-classes and epoch.
        small_classes: Treatment of small classes and super-classes, see above.
        seed: Seed of the random numbers.
    """

    def __init__(
        self,
        labels: LabelMatrix,
        batch_size: int,
        per_class: int,
        super_classes: int,
        batches_per_tuple: int,
        *,
        small_classes: SmallClasses = "repeat",
        seed: int,
    ) -> None:
        _check_sizes(batch_size, per_class, super_classes)
        require_at_least(1, batches_per_tuple=batches_per_tuple)
        if labels.shape[1] < 2:
            raise ConfigurationError(
                "the hierarchical sampler needs super-classes, but the labels have one level only"
            )
        self.batch_size = batch_size
        self._per_class = per_class
        self._seed = seed
        self._super_classes = super_classes
        self._batches_per_tuple = batches_per_tuple
        self._n_classes = batch_size // per_class // super_classes
        counts = _images_per_class(labels)
        exclude = small_classes == "exclude"
        fewest_images = per_class if exclude else 1
        fewest_classes = self._n_classes if exclude else 1
        by_class = np.argsort(labels[:, 0], kind="stable")
        rows_by_super_class: dict[int, list[Integers]] = {}
        for rows in np.split(by_class, np.cumsum(counts)[:-1]):
            if len(rows) >= fewest_images:
                rows_by_super_class.setdefault(int(labels[rows[0], 1]), []).append(rows)
        #: Rows of each class of each super-class.
        self._members = []
        for _, rows_of_classes in sorted(rows_by_super_class.items()):
            if len(rows_of_classes) >= fewest_classes:
                self._members.append(rows_of_classes)
        if len(self._members) < super_classes:
            if not exclude:
                raise ConfigurationError(
                    f"a batch has classes of {super_classes} super-classes, but there are {len(self._members)}; "
                    "lower `super_classes`"
                )
            raise ConfigurationError(
                f"a batch of {batch_size} with {per_class} images of each class has {self._n_classes} classes of "
                f"each of {super_classes} super-classes, but {len(self._members)} super-classes have that many with "
                f"{per_class} images ({_class_counts_text(counts, per_class)}); lower `per_class`, `batch_size` or "
                "`super_classes`, or repeat images with `small_classes`"
            )

    def n_batches(self, epoch: int) -> int:
        return comb(len(self._members), self._super_classes) * self._batches_per_tuple

    def batches(self, epoch: int) -> list[Integers]:
        rng = epoch_generator(self._seed, epoch)
        batches = []
        for chosen in combinations(self._members, self._super_classes):
            for _ in range(self._batches_per_tuple):
                parts = [self._draw(rows_of_classes, rng) for rows_of_classes in chosen]
                batches.append(np.concatenate(parts))
        order = rng.permutation(len(batches)).tolist()
        return [rng.permutation(batches[number]) for number in order]

    def _draw(self, rows_of_classes: list[Integers], rng: np.random.Generator) -> Integers:
        """Draw rows of some classes of a super-class."""
        n_classes = min(self._n_classes, len(rows_of_classes))
        chosen = rng.choice(len(rows_of_classes), n_classes, replace=False).tolist()
        drawn = []
        for number in chosen:
            rows = rows_of_classes[number]
            drawn.append(rng.choice(rows, self._per_class, replace=len(rows) < self._per_class))
        return np.concatenate(drawn)


class LabelSetSampler:
    """Sampler of images with several labels, one of which is drawn for each image and epoch.

    Another sampler makes the batches of the drawn labels, so that the images drawn for a class share
    it. Their further labels are not considered: losses get all labels of all images, and find the
    other positives of a batch. Epochs differ in length with the sizes of the drawn classes.

    Args:
        labels: Labels of the images, at least one for each image.
        make_sampler: Function that makes the sampler of an epoch from one label per image, int64
            (N, L).
        seed: Seed of the drawn labels.

    >>> sets = LabelSets.from_lists([[[0], [1]]] * 4 + [[[2]]] * 4)
    >>> sampler = LabelSetSampler(sets, lambda labels: ClassBalancedSampler(labels, 2, 2, seed=0), seed=0)
    >>> all(max(batch) < 4 or min(batch) >= 4 for batch in sampler.batches(epoch=0))
    True
    """

    def __init__(
        self, labels: LabelSets, make_sampler: Callable[[LabelMatrix], BatchSampler], *, seed: int
    ) -> None:
        require_labelled(labels)
        self._labels = labels
        self._make_sampler = make_sampler
        self._seed = seed
        self._epoch = 0
        self._sampler = make_sampler(self._draw_labels(0))
        self.batch_size = self._sampler.batch_size

    def n_batches(self, epoch: int) -> int:
        return self._sampler_of(epoch).n_batches(epoch)

    def batches(self, epoch: int) -> list[Integers]:
        return self._sampler_of(epoch).batches(epoch)

    def _sampler_of(self, epoch: int) -> BatchSampler:
        """Return the sampler of an epoch, which is made once."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._sampler = self._make_sampler(self._draw_labels(epoch))
        return self._sampler

    def _draw_labels(self, epoch: int) -> LabelMatrix:
        """Draw a label of each image: int64, shape (N, L)."""
        members = self._labels.members
        numbers = epoch_generator(self._seed, epoch, 2).integers(members.counts())
        drawn = members.columns[members.offsets[:-1] + numbers]
        labels: LabelMatrix = self._labels.labels[drawn]
        return labels


def _max_batches(groups: Integers, slots: int) -> int:
    """Return the largest number of batches of ``slots`` classes each.

    Args:
        groups: Number of groups of each class.
        slots: Number of classes in a batch.
    """
    low = 1
    high = int(groups.sum()) // slots
    while low < high:
        middle = (low + high + 1) // 2
        # A class has at most one group in each batch.
        if np.minimum(groups, middle).sum() >= slots * middle:
            low = middle
        else:
            high = middle - 1
    return low


def _pack_most(
    groups: Integers, slots: int, n_batches: int, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Pack groups into as many batches as possible; surplus groups are excluded at random.

    Returns:
        Classes of the packed groups, int64, shape (n,), with the groups of a class adjacent; and the
        groups of each batch, int64, shape (n_batches, slots), as indices into these classes.
    """
    # Draw the groups of this epoch, then order them by class, with the classes in random order.
    chosen = rng.permutation(np.repeat(np.arange(len(groups)), groups))[: slots * n_batches]
    counts = np.bincount(chosen, minlength=len(groups))
    order = rng.permutation(len(counts))
    owners = np.repeat(order, counts[order])
    batches = _assign_batches(owners.reshape(slots, n_batches), rng)
    members = np.empty((n_batches, slots), np.int64)
    members[batches.ravel(), np.repeat(np.arange(slots), n_batches)] = np.arange(len(owners))
    return owners, members


def greedy_starts(groups: Integers, slots: int) -> tuple[Integers, int]:
    """Return the first batch of each class if batches take the first classes that have groups left.

    This is list scheduling: each of ``slots`` machines processes a class, one group per batch, then
    takes the next class; the batches end when a machine finds no class.

    Args:
        groups: int64, shape (C,): number of groups of each class, in order, all positive; C at least ``slots``.
        slots: Number of groups in a batch.

    Returns:
        int64, shape (C,), and the number of batches, which may be smaller than some first batches.

    >>> greedy_starts(np.array([2, 1, 1, 3]), slots=2)
    (array([0, 0, 1, 2]), 2)
    """
    ends = [0] * slots  # a heap of the batches from which machines are free
    starts = [heapreplace(ends, ends[0] + n_groups) for n_groups in groups.tolist()]
    return np.array(starts), ends[0]


def _pack_greedily(
    groups: Integers, slots: int, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Pack groups as the published samplers do: every batch takes the first classes of a random order.

    Returns the same as :func:`_pack_most`, with the batches in random order.
    """
    order, starts, n_batches = _greedy_order(groups, slots, rng)
    used = np.clip(n_batches - starts, 0, groups[order])
    owners = np.repeat(order, used)
    first_groups = np.r_[0, np.cumsum(used)[:-1]]
    batches = np.repeat(starts - first_groups, used) + np.arange(len(owners))
    members = np.argsort(batches, kind="stable").reshape(n_batches, slots)
    return owners, rng.permutation(members)


def _greedy_order(
    groups: Integers, slots: int, rng: np.random.Generator
) -> tuple[Integers, Integers, int]:
    """Return classes in random order, the first batch of each class, and the number of batches."""
    order = rng.permutation(np.flatnonzero(groups))
    starts, n_batches = greedy_starts(groups[order], slots)
    return order, starts, n_batches


def _assign_batches(owners: Integers, rng: np.random.Generator) -> Integers:
    """Assign a batch to each group at random, such that no class is twice in a batch.

    In row-major order the groups of a class are adjacent, and there are at most ``n_batches`` of
    them, so they are in one row, or at the end of one row and the start of the next.

    Args:
        owners: Class of each group, int64, shape (slots, n_batches).
        rng: Random generator of the epoch.

    Returns:
        Batch of each group, in the same shape; each row is a permutation of the batches.
    """
    n_batches = owners.shape[1]
    batches = np.empty_like(owners)
    for slot, classes in enumerate(owners):
        order = rng.permutation(n_batches)
        if slot:
            taken = batches[slot - 1][owners[slot - 1] == classes[0]]
            n_continued = (classes == classes[0]).sum()
            free = np.flatnonzero(~np.isin(order, taken))[:n_continued]
            order = np.concatenate([order[free], np.delete(order, free)])
        batches[slot] = order
    return batches
