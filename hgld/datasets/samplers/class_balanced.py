"""Batches of random classes, with the same number of images of each."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hgld.datasets.samplers.base import (
    IntArray,
    SmallClasses,
    check_sizes,
    class_counts_text,
    epoch_generator,
    images_per_class,
)
from hgld.datasets.samplers.packing import count_greedy_batches, max_batches, pack_greedily, pack_most
from hgld.errors import ConfigurationError
from hgld.hierarchy import LabelMatrix

#: How an epoch is divided into batches, see :class:`ClassBalancedSampler`.
Packing = Literal["most", "greedy", "independent"]


class ClassBalancedSampler:
    """Sampler of m images of each of several classes.

    A batch has ``per_class`` images of each of ``batch_size / per_class`` classes. The epochs differ by ``packing``:

    - ``most``: The images of a class are shuffled and divided into groups of ``per_class``; a smaller remainder is
      not used in this epoch. Random groups form as many batches as possible; surplus groups of large classes, for
      which too few other classes remain, are not used in it.
    - ``greedy``: The same groups, but each batch takes those of the first classes in a random order of this epoch
      that have some left, and the epoch ends when too few have: the sampler of Smooth-AP, Recall@k Surrogate, ROADMAP
      and SupRank. The same classes meet in many batches, and epochs are shorter, which vary in length: with 100
      classes of 59 images and batches of 64 classes, 14 batches instead of 21.
    - ``independent``: Every batch draws its classes, and the images of each, anew: the sampler of
      pytorch-metric-learning, which SupRank takes for several processes. An image may be in several batches.

    Args:
        labels: int64, shape (N, L), finest first.
        batch_size: Number of images per batch.
        per_class: Number of images of each class in a batch, m.
        packing: How an epoch is divided into batches.
        max_per_class: Largest number of images of a class per epoch; not for ``independent``. Default: no limit.
        small_classes: What happens to classes with fewer than ``per_class`` images, see :data:`SmallClasses`; if they
            repeat images, each has one group per epoch.
        n_batches: Number of batches per epoch, only for ``independent``. Default: N / ``batch_size``, rounded down.
        seed: Seed of all random choices.

    Raises:
        ConfigurationError: The sizes are inconsistent, or there are too few classes to fill a batch.
        InputError: Images are unlabelled.

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
        check_sizes(batch_size, per_class)
        if max_per_class is not None and max_per_class < per_class:
            raise ConfigurationError(
                f"`max_per_class` is {max_per_class}, but `per_class` is {per_class}; expected at least as many"
            )
        _check_packing(packing, max_per_class, n_batches)
        self.batch_size, self._per_class, self._packing, self._seed = batch_size, per_class, packing, seed
        self._classes = labels[:, 0]
        self._counts = images_per_class(labels)
        groups = np.minimum(self._counts, max_per_class or len(labels)) // per_class
        if small_classes == "repeat":
            groups = np.maximum(groups, self._counts > 0)
        self._slots = batch_size // per_class
        if (groups > 0).sum() < self._slots:
            raise ConfigurationError(
                f"a batch of {batch_size} with {per_class} images of each class has {self._slots} classes, but "
                f"{class_counts_text(self._counts, per_class)}; lower `per_class` or `batch_size`, or add images"
            )
        self._n_batches = max_batches(groups, self._slots)
        if packing == "independent":
            self._n_batches = n_batches or max(1, len(labels) // batch_size)
        self._groups = groups

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch; only with ``packing="greedy"`` it varies."""
        if self._packing == "greedy":
            return count_greedy_batches(self._groups, self._slots, epoch_generator(self._seed, epoch))
        return self._n_batches

    def batches(self, epoch: int) -> list[IntArray]:
        """Return the rows of each batch of an epoch: int64, ``batch_size`` of them."""
        rng = epoch_generator(self._seed, epoch)
        if self._packing == "independent":
            rows = self._independent_rows(rng)
        else:
            if self._packing == "greedy":
                owners, members = pack_greedily(self._groups, self._slots, rng)
            else:
                groups = np.minimum(self._groups, self._n_batches)
                owners, members = pack_most(groups, self._slots, self._n_batches, rng)
            rows = self._rows_of(owners, rng)[members].reshape(-1, self.batch_size)
        return list(rng.permuted(rows, axis=1))

    def _rows_of(self, owners: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the rows of each group from its class, shape (n_groups, per_class).

        No row is repeated, except for classes with fewer than ``per_class`` rows, which are drawn with replacement.
        """
        shuffled = np.lexsort((rng.random(len(self._classes)), self._classes))
        first = np.searchsorted(self._classes[shuffled], owners)
        # The groups of a class are adjacent; number them within the class.
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        number = np.arange(len(owners)) - np.repeat(starts, np.diff(np.r_[starts, len(owners)]))
        offsets = (number * self._per_class)[:, None] + np.arange(self._per_class)
        small = self._counts[owners] < self._per_class
        if small.any():
            sizes = np.broadcast_to(self._counts[owners[small]][:, None], (int(small.sum()), self._per_class))
            offsets[small] = rng.integers(sizes)
        rows: IntArray = shuffled[first[:, None] + offsets]
        return rows

    def _independent_rows(self, rng: np.random.Generator) -> IntArray:
        """Draw classes of each batch, and rows of each class, shape (n_batches, batch_size)."""
        by_class = np.split(np.argsort(self._classes, kind="stable"), np.cumsum(self._counts)[:-1])
        usable, n = np.flatnonzero(self._groups), self._per_class
        classes = [rng.choice(usable, self._slots, replace=False) for _ in range(self._n_batches)]
        groups = [rng.choice(by_class[c], n, replace=self._counts[c] < n) for c in np.concatenate(classes).tolist()]
        return np.stack(groups).reshape(self._n_batches, self.batch_size)


def _check_packing(packing: Packing, max_per_class: int | None, n_batches: int | None) -> None:
    if packing == "independent" and max_per_class is not None:
        raise ConfigurationError(
            f"`max_per_class` is {max_per_class}, but independent batches have no such limit; omit it"
        )
    if packing != "independent" and n_batches is not None:
        raise ConfigurationError(
            f"`n_batches` is {n_batches}, but the packing {packing} decides that itself; omit it, or set `packing` "
            "to independent"
        )
