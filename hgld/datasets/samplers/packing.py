"""Packing of groups of images, each of one class, into batches without a class twice in a batch."""

from __future__ import annotations

from heapq import heapreplace

import numpy as np

from hgld.datasets.samplers.base import IntArray


def max_batches(groups: IntArray, slots: int) -> int:
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


def pack_most(groups: IntArray, slots: int, n_batches: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Pack groups into as many batches as possible; surplus groups are excluded at random.

    Args:
        groups: int64, shape (C,): number of groups of each class, at most ``n_batches``.
        slots: Number of groups in a batch.
        n_batches: Number of batches, see :func:`max_batches`.
        rng: Random generator.

    Returns:
        Classes of the packed groups, int64, shape (n,), those of a class side by side; and the groups of each batch,
        int64, shape (n_batches, slots), as indices into them.
    """
    # Draw the groups of this epoch, then order them by class, with the classes in random order.
    chosen = rng.permutation(np.repeat(np.arange(len(groups)), groups))[: slots * n_batches]
    counts = np.bincount(chosen, minlength=len(groups))
    order = rng.permutation(len(counts))
    owners = np.repeat(order, counts[order])
    batch_of = _assign_batches(owners.reshape(slots, n_batches), rng)
    members = np.empty((n_batches, slots), np.int64)
    members[batch_of.ravel(), np.repeat(np.arange(slots), n_batches)] = np.arange(len(owners))
    return owners, members


def greedy_starts(groups: IntArray, slots: int) -> tuple[IntArray, int]:
    """Return the first batch of each class if every batch takes the first classes that have groups left.

    This is list scheduling: each of ``slots`` machines works off a class, one group per batch, then takes the next
    class; the batches end when a machine finds no class.

    Args:
        groups: int64, shape (C,): number of groups of each class, in order, all positive; C at least ``slots``.
        slots: Number of groups in a batch.

    Returns:
        int64, shape (C,), and the number of batches, which may be smaller than some of the first batches.

    >>> greedy_starts(np.array([2, 1, 1, 3]), slots=2)
    (array([0, 0, 1, 2]), 2)
    """
    ends = [0] * slots  # a heap: when each machine is free
    starts = [heapreplace(ends, ends[0] + n) for n in groups.tolist()]
    return np.array(starts), ends[0]


def pack_greedily(groups: IntArray, slots: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Pack groups as the published samplers do: every batch takes the first classes of a random order.

    Args:
        groups: int64, shape (C,): number of groups of each class.
        slots: Number of groups in a batch.
        rng: Random generator.

    Returns:
        As :func:`pack_most`; the batches are in random order.
    """
    order, starts, n_batches = _greedy_order(groups, slots, rng)
    used = np.clip(n_batches - starts, 0, groups[order])
    owners = np.repeat(order, used)
    batch_of = np.repeat(starts - np.r_[0, np.cumsum(used)[:-1]], used) + np.arange(len(owners))
    members = np.argsort(batch_of, kind="stable").reshape(n_batches, slots)
    return owners, rng.permutation(members)


def count_greedy_batches(groups: IntArray, slots: int, rng: np.random.Generator) -> int:
    """Return the number of batches that :func:`pack_greedily` makes with a generator in the same state."""
    return _greedy_order(groups, slots, rng)[2]


def _greedy_order(groups: IntArray, slots: int, rng: np.random.Generator) -> tuple[IntArray, IntArray, int]:
    """Return classes in random order, the first batch of each, and the number of batches."""
    order = rng.permutation(np.flatnonzero(groups))
    return order, *greedy_starts(groups[order], slots)


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
