"""Sums over the levels of rankings in one compiled pass, for :mod:`hgld.evaluation.ranking_statistics`.

A ranking is read a few hundred ranks at a time. For each level, one loop counts the items so far; all other loops
multiply and add arrays that fit into a core's first cache, several values at a time. Blocks end at every rank after
which a sum is asked for: the cutoffs and the numbers of positives R_l.

The overlap needs two levels per rank only. With A_k the first k items and B_k those of a perfect ranking,

    |A_k & B_k| = min over l of G_l(k) + max(0, k - R_l).

Where R_l >= k, the least G_l(k) is that of the finest such level; where R_l < k, the term is k less the number of
items of level l or finer that are still to come, which is least for the coarsest such level.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.compute.compiled import REORDER_SUMS, compiled

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Levels = npt.NDArray[np.uint8]

#: Ranks of a block, of which the arrays take 4 kB each, one per level and two more.
WIDTH = 512


@compiled(fastmath=REORDER_SUMS)
def level_sums(
    levels: Levels,
    inverse: Floats,
    discount: Floats,
    cutoffs: Integers,
    width: int,
    positives: Integers,
    precision: Floats,
    precision_at_r: Floats,
    discounts: Floats,
    overlap: Floats,
    hits_at: Floats,
    precision_at: Floats,
    discount_at: Floats,
) -> None:
    """Add up the sums of rankings.

    No term is negative, so a sum of n terms has a relative error of about (n + 4) * 2^-53 at most, in whatever order
    they are added up: 1e-10 for a million ranks, and in practice far less.

    Args:
        levels: uint8, shape (n, N); level of the item at each rank, best rank first.
        inverse: float64, at least N values; 1 / k for the ranks k = 1, 2, ...
        discount: Likewise; 1 / log2(1 + k).
        cutoffs: int64, ascending, shape (n_cutoff,).
        width: Number of ranks in a block, on which only rounding depends; :data:`WIDTH` is the fastest.
        positives: int64, shape (n, L); number of items of level 1, ..., L or finer, which may follow rank N.
        precision: float64, shape (n, L, L), overwritten as all that follow, which have the shapes and meanings of the
            fields of :class:`~hgld.evaluation.ranking_statistics.RankingStatistics`.
        precision_at_r: float64, shape (n, L).
        discounts: float64, shape (n, L).
        overlap: float64, shape (n,).
        hits_at: float64, shape (n, L, n_cutoff).
        precision_at: float64, shape (n, L, n_cutoff).
        discount_at: float64, shape (n, L, n_cutoff).
    """
    n_rows, n_items = levels.shape
    n_levels = positives.shape[1]
    seen, n_seen = np.empty((n_levels, width)), np.empty(n_levels, np.int64)
    weights = np.empty(width)
    for row in range(n_rows):
        precision[row], discounts[row], precision_at_r[row], overlap[row], n_seen[:] = 0.0, 0.0, 0.0, 0.0, 0
        start, next_cutoff = 0, 0
        while start < n_items:
            stop = min(start + width, n_items)
            for level in range(n_levels):
                if start < positives[row, level] < stop:
                    stop = positives[row, level]
            if next_cutoff < len(cutoffs) and cutoffs[next_cutoff] < stop:
                stop = cutoffs[next_cutoff]
            block = levels[row, start:stop]
            _count_seen(block, n_seen, seen)
            if start < positives[row, 0]:
                overlap[row] += _overlap(start, seen, positives[row], inverse[start:stop])
            _add_block(
                block, inverse[start:stop], discount[start:stop], seen, weights, precision[row], discounts[row]
            )
            for level in range(n_levels):
                if positives[row, level] == stop:
                    precision_at_r[row, level] = precision[row, level, level]
            if next_cutoff < len(cutoffs) and cutoffs[next_cutoff] == stop:
                for level in range(n_levels):
                    hits_at[row, level, next_cutoff] = n_seen[level]
                    precision_at[row, level, next_cutoff] = precision[row, level, level]
                    discount_at[row, level, next_cutoff] = discounts[row, level]
                next_cutoff += 1
            start = stop
        for cutoff in range(next_cutoff, len(cutoffs)):  # nothing follows the last rank
            for level in range(n_levels):
                hits_at[row, level, cutoff] = positives[row, level]
                precision_at[row, level, cutoff] = precision[row, level, level]
                discount_at[row, level, cutoff] = discounts[row, level]


@compiled()
def count_levels(levels: Levels, counts: Integers) -> None:
    """Add the number of items of level 1, ..., L or finer in each row to the counts, int64, shape (n, L)."""
    for row in range(len(levels)):
        for level in range(counts.shape[1]):
            count = 0
            for i in range(levels.shape[1]):
                count += levels[row, i] > level
            counts[row, level] += count


@compiled()
def _count_seen(levels: Levels, n_seen: Integers, seen: Floats) -> None:
    """Count the items of each level or finer among the first ranks, up to each rank of a block."""
    for level in range(len(n_seen)):
        count = n_seen[level]
        for i in range(len(levels)):
            count += levels[i] > level
            seen[level, i] = count
        n_seen[level] = count


@compiled(fastmath=REORDER_SUMS)
def _overlap(start: int, seen: Floats, positives: Integers, inverse: Floats) -> float:
    """Return the sum of |A_k & B_k| / k over a block, in which no R_l lies before the last rank."""
    n_before = 0  # levels with R_l above the ranks of the block, or at the last of them
    for level in range(len(positives)):
        n_before += positives[level] > start
    total = 0.0
    if n_before == len(positives):
        for i in range(len(inverse)):
            total += seen[n_before - 1, i] * inverse[i]
        return total
    first = float(start + 1 - positives[n_before])
    for i in range(len(inverse)):
        limit = first + i + seen[n_before, i]
        count = seen[n_before - 1, i]
        total += (count if count < limit else limit) * inverse[i]
    return total


@compiled(fastmath=REORDER_SUMS)
def _add_block(
    levels: Levels, inverse: Floats, discount: Floats, seen: Floats, weights: Floats, precision: Floats, gains: Floats
) -> None:
    """Add the precisions and discounts of a block of ranks."""
    n_levels, n_ranks = len(gains), len(levels)
    for level in range(n_levels):
        if seen[level, n_ranks - 1] - seen[level, 0] + (levels[0] > level) == 0:  # nor is there any of a finer level
            return
        gain = 0.0
        for i in range(n_ranks):
            member = np.float64(levels[i] > level)
            weights[i] = inverse[i] * member
            gain += discount[i] * member
        gains[level] += gain
        for other in range(n_levels):
            total = 0.0
            for i in range(n_ranks):
                total += weights[i] * seen[other, i]
            precision[level, other] += total
