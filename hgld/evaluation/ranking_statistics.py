"""Sufficient statistics of rankings: sums over the ranked levels that give all metrics.

Write G_m(k) for the number of items of level m or finer among the first k, and R_l for the number of
items of level l or finer in the whole ranking. The sums, computed in one pass, are for levels l and m

    precision[l, m] = sum over ranks k with an item of level >= l of G_m(k) / k
    discount[l]     = sum over ranks k with an item of level >= l of 1 / log2(1 + k)
    overlap         = sum over ranks k <= N of |A_k & B_k| / k,   N = number of items of level >= 1

where A_k are the first k items and B_k the first k of a perfect ranking. So ``precision`` holds sums
of precisions. AP of level l is precision[l, l] / R_l (Eq. 34). H-rank^+ (Eq. 18) adds up
min(rel(k), rel(j)) over the items j up to and including k. An item's relevance depends on its level
only, so differences of ``precision`` give the contribution of each pair of levels, and H-AP follows
for any relevance, which need not be known during the pass.

Each item costs L cumulative counts and one L x L product, for rankings of any length. On a CPU the
pass is compiled; on other devices, and where loops are not compiled, operations of torch compute the
same sums. Both are equal up to the order in which float64 values are added.

The compiled pass reads a few hundred ranks at a time. For each level, one loop counts the items so
far; all other loops multiply and add arrays that fit into a core's first cache. Blocks end at every
rank after which a sum is asked for: the cutoffs and the numbers R_l. The overlap needs only two
levels per rank:

    |A_k & B_k| = min over l of G_l(k) + max(0, k - R_l).

Where R_l >= k, the least G_l(k) belongs to the finest such level. Where R_l < k, the term is k minus
the number of items of level l or finer after rank k, which is least for the coarsest such level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.arrays import Floats, Integers
from hgld.compute.compiled import REORDER_SUMS, compiled, is_compiled
from hgld.compute.machine import parallel_map, thread_count
from hgld.errors import ConfigurationError, require_at_least

Levels = npt.NDArray[np.uint8]
#: Sums over ranked levels by the names of the fields of :class:`RankingStatistics`; all float64.
_Sums = dict[str, Tensor]

#: Elements of a temporary array [rows, L, ranks] of the torch pass, unless a single row has more.
_BLOCK = {"cpu": 3 * 2**16, "cuda": 2**25}
#: Ranks of a block of the compiled pass, whose arrays take 4 kB each: one per level and two more.
COMPILED_WIDTH = 512


@dataclass(frozen=True, eq=False)
class RankingStatistics:
    """Statistics of n rankings: float64 tensors; index l - 1 of an axis of length L is level l.

    Args:
        n_ranked: shape (n,); number of ranked items.
        positives: shape (n, L); R_l, the number of items of level l or finer in the whole ranking.
        precision: shape (n, L, L); sums of precisions, see the module.
        precision_at_r: shape (n, L); precision[l, l], but over the first R_l ranks only.
        discount: shape (n, L); sums of discounts, see the module.
        ideal_discount: shape (n, L); the sum of 1 / log2(1 + k) over the ranks k = 1, ..., R_l.
        overlap: shape (n,); see the module.
        cutoffs: Ascending ranks k; the last axis of the following arrays has one index per cutoff.
    """

    n_ranked: Tensor
    positives: Tensor
    precision: Tensor
    precision_at_r: Tensor
    discount: Tensor
    ideal_discount: Tensor
    overlap: Tensor
    cutoffs: tuple[int, ...]
    hits_at: Tensor
    precision_at: Tensor
    discount_at: Tensor
    ideal_discount_at: Tensor
    level_at: Tensor

    @property
    def n_levels(self) -> int:
        """Number of levels L."""
        return self.positives.shape[1]

    def hits(self, k: int) -> Tensor:
        """Return the number of items of level l or finer up to a cutoff k: float64, shape (n, L)."""
        return self.hits_at[..., cutoff_index(self, k)]

    def counts(self) -> Tensor:
        """Return the number of items of exactly each level, level 0 first: float64, shape (n, L + 1)."""
        at_least = torch.cat([self.n_ranked[:, None], self.positives], dim=1)
        return at_least - torch.nn.functional.pad(self.positives, (0, 1))


class RankTables:
    """Functions of the rank k = 1, ..., n, computed once: float64, shape (n,).

    Attributes:
        inverse: 1 / k.
        discount: 1 / log2(1 + k).
        ideal: Sum of the discounts of the first k ranks, for k = 0, ..., n: shape (n + 1,).
    """

    def __init__(self, n_ranks: int, device: torch.device | str = "cpu") -> None:
        rank = torch.arange(1, n_ranks + 1, dtype=torch.float64, device=device)
        self.inverse = 1 / rank
        self.discount = (1 + rank).log2_().reciprocal_()
        self.ideal = torch.zeros(n_ranks + 1, dtype=torch.float64, device=device)
        torch.cumsum(self.discount, 0, out=self.ideal[1:])


def ranking_statistics(
    ranked_levels: Tensor,
    n_levels: int,
    cutoffs: Sequence[int] = (),
    *,
    n_ranked: Tensor | None = None,
    positives: Tensor | None = None,
    ends: Tensor | None = None,
) -> RankingStatistics:
    """Compute the statistics of rankings; memory is a few MB besides the result.

    If only the first items of a ranking are known, compiled loops give the exact statistics at
    cutoffs, and ``precision_at_r`` too if there are no more positives than known items; all other
    statistics are NaN.

    Args:
        ranked_levels: uint8, shape (n, N); level of the item at each rank, best rank first. Excluded
            items come last, with level 0.
        n_levels: Number of levels L; no level is above it.
        cutoffs: Ranks k of metrics "at k". If k is larger than N, ranks after N count as empty;
            evaluations refuse such a k.
        n_ranked: int64, shape (n,); number of items of each ranking that are not excluded; N by
            default.
        positives: int64, shape (n, L); number of items of level 1, ..., L or finer in the whole
            ranking, if the levels are the levels of the first items only.
        ends: int64, shape (n, N); rank of the item at each place, from 0, if tied items share the
            last rank. Default: its place. It is the rank in all sums except ``overlap``.

    Raises:
        ConfigurationError: A cutoff is below 1.
    """
    device = ranked_levels.device
    n_rows, n_items = ranked_levels.shape
    cutoffs = tuple(sorted(set(cutoffs)))
    require_at_least(1, k=min(cutoffs, default=None))
    n_positives = positives
    if n_positives is None:
        n_positives = _count_positives(ranked_levels, n_levels)
    n_ranks = n_items
    if n_positives.numel():
        n_ranks = max(n_ranks, int(n_positives.max()))
    tables = RankTables(n_ranks, device)
    if is_compiled(device) and ends is None:
        sums = _compiled_sums(ranked_levels, n_positives, cutoffs, tables)
    else:
        sums = _torch_sums(ranked_levels, n_positives, cutoffs, tables, ends)
    if n_ranked is None:
        n_ranked = torch.full((n_rows,), n_items, device=device)
    ks = torch.tensor(cutoffs, dtype=torch.int64, device=device)
    levels_at_cutoffs = ranked_levels[:, ks.clamp(max=n_items) - 1].to(torch.int64)
    statistics = RankingStatistics(
        n_ranked=n_ranked.double(),
        positives=n_positives.to(torch.float64),
        ideal_discount=tables.ideal[n_positives],
        cutoffs=cutoffs,
        **sums,
        ideal_discount_at=tables.ideal[torch.minimum(n_positives[..., None], ks)],
        level_at=torch.where(ks <= n_items, levels_at_cutoffs, 0),
    )
    if positives is None:
        return statistics
    return replace(
        statistics,
        precision=torch.full_like(statistics.precision, torch.nan),
        precision_at_r=statistics.precision_at_r.where(positives <= n_items, torch.nan),
        discount=torch.full_like(statistics.discount, torch.nan),
        ideal_discount=torch.full_like(statistics.ideal_discount, torch.nan),
        overlap=torch.full_like(statistics.overlap, torch.nan),
    )


def cutoff_index(statistics: RankingStatistics, k: int) -> int:
    """Return the index of a cutoff on the axes of the statistics.

    Raises:
        ConfigurationError: The statistics were computed without it.
    """
    if k not in statistics.cutoffs:
        raise ConfigurationError(
            f"the statistics have no cutoff {k}; add it to `cutoffs` of ranking_statistics"
        )
    return statistics.cutoffs.index(k)


def _count_positives(levels: Tensor, n_levels: int) -> Tensor:
    """Return the number of items of level 1, ..., L or finer: int64, shape (n, L)."""
    positives = torch.zeros(len(levels), n_levels, dtype=torch.int64, device=levels.device)
    if is_compiled(levels.device):
        count_levels(levels.contiguous().numpy(), positives.numpy())
    else:
        for level in range(n_levels):
            positives[:, level] = (levels > level).sum(1)
    return positives


def _compiled_sums(
    levels: Tensor, positives: Tensor, cutoffs: tuple[int, ...], tables: RankTables
) -> _Sums:
    """Compute the sums in compiled loops, on a CPU."""
    n_rows, n_levels = positives.shape
    n_cutoffs = len(cutoffs)
    sums = {
        "precision": torch.empty(n_rows, n_levels, n_levels, dtype=torch.float64),
        "precision_at_r": torch.empty(n_rows, n_levels, dtype=torch.float64),
        "discount": torch.empty(n_rows, n_levels, dtype=torch.float64),
        "overlap": torch.empty(n_rows, dtype=torch.float64),
        "hits_at": torch.empty(n_rows, n_levels, n_cutoffs, dtype=torch.float64),
        "precision_at": torch.empty(n_rows, n_levels, n_cutoffs, dtype=torch.float64),
        "discount_at": torch.empty(n_rows, n_levels, n_cutoffs, dtype=torch.float64),
    }
    level_array = levels.contiguous().numpy()
    positives_array = positives.numpy()
    inverse = tables.inverse.numpy()
    discount = tables.discount.numpy()
    ks = np.array(cutoffs, np.int64)

    def add_up(rows: slice) -> None:
        level_sums(
            level_array[rows],
            inverse,
            discount,
            ks,
            COMPILED_WIDTH,
            positives_array[rows],
            sums["precision"][rows].numpy(),
            sums["precision_at_r"][rows].numpy(),
            sums["discount"][rows].numpy(),
            sums["overlap"][rows].numpy(),
            sums["hits_at"][rows].numpy(),
            sums["precision_at"][rows].numpy(),
            sums["discount_at"][rows].numpy(),
        )

    bounds = np.linspace(0, n_rows, thread_count(levels.device) + 1).astype(int).tolist()
    shares = [slice(start, stop) for start, stop in pairwise(bounds)]
    parallel_map(add_up, shares, levels.device)
    return sums


def _torch_sums(
    levels: Tensor,
    positives: Tensor,
    cutoffs: tuple[int, ...],
    tables: RankTables,
    ends: Tensor | None,
) -> _Sums:
    """Compute the sums by operations of torch, on any device; see :func:`ranking_statistics`."""
    n_rows, n_items = levels.shape
    if ends is None:
        ends = torch.arange(n_items, device=levels.device).expand(levels.shape)
    elements_per_row = max(1, positives.shape[1] * n_items)
    step = max(1, _BLOCK[levels.device.type] // elements_per_row)
    blocks = [slice(start, start + step) for start in range(0, max(1, n_rows), step)]

    def sums(rows: slice) -> _Sums:
        return _sums_of_rows(levels[rows], positives[rows], cutoffs, tables, ends[rows])

    parts = parallel_map(sums, blocks, levels.device)
    joined = {}
    for name in parts[0]:
        joined[name] = torch.cat([part[name] for part in parts])
    return joined


def _sums_of_rows(
    levels: Tensor, positives: Tensor, cutoffs: tuple[int, ...], tables: RankTables, ends: Tensor
) -> _Sums:
    """Compute the sums of a block of rankings by operations of torch."""
    device = levels.device
    n_levels = positives.shape[1]
    places = torch.arange(levels.shape[1], device=device)
    level_numbers = torch.arange(1, n_levels + 1, dtype=torch.uint8, device=device)
    member = (levels[:, None] >= level_numbers[:, None]).to(torch.float64)
    seen = member.cumsum(2)
    # The best k items hold min(k, R_l) of level l or finer, and |A_k & B_k| is the least over l of
    # G_l(k) + max(0, k - R_l): the level that rank k has in a perfect ranking limits it.
    n_missing = (places + 1 - positives[..., None]).clamp(min=0)
    overlap = (n_missing + seen).amin(1) * tables.inverse[places]
    seen = seen.gather(2, ends[:, None].expand(member.shape))
    rank = (ends + 1)[:, None]
    weights = member * tables.inverse[ends][:, None]
    gains = member * tables.discount[ends][:, None]
    ks = torch.tensor(cutoffs, device=device)
    within_cutoffs = (rank <= ks[:, None]).to(torch.float64).transpose(1, 2)
    return {
        "precision": weights @ seen.transpose(1, 2),
        "precision_at_r": (weights * seen).masked_fill(rank > positives[..., None], 0.0).sum(2),
        "discount": gains.sum(2),
        "overlap": overlap.masked_fill(places >= positives[:, :1], 0.0).sum(1),
        "hits_at": member @ within_cutoffs,
        "precision_at": (weights * seen) @ within_cutoffs,
        "discount_at": gains @ within_cutoffs,
    }


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
    """Add up the sums of rankings into the given arrays, which are overwritten.

    No term is negative, so a sum of n terms has a relative error of at most about (n + 4) * 2^-53,
    in any order of additions: 1e-10 for a million ranks, and in practice far less. The output arrays
    have the meanings of the fields of :class:`RankingStatistics`.

    Args:
        levels: uint8, shape (n, N); level of the item at each rank, best rank first.
        inverse: float64, at least N values; 1 / k for the ranks k = 1, 2, ...
        discount: float64, at least N values; 1 / log2(1 + k).
        cutoffs: int64, ascending, shape (n_cutoff,).
        width: Number of ranks in a block, which affects rounding and speed only; ``COMPILED_WIDTH``
            is the fastest.
        positives: int64, shape (n, L); number of items of level 1, ..., L or finer, some of which may
            follow rank N.
        precision: float64, shape (n, L, L).
        precision_at_r: float64, shape (n, L).
        discounts: float64, shape (n, L).
        overlap: float64, shape (n,).
        hits_at: float64, shape (n, L, n_cutoff).
        precision_at: float64, shape (n, L, n_cutoff).
        discount_at: float64, shape (n, L, n_cutoff).
    """
    n_rows, n_items = levels.shape
    n_levels = positives.shape[1]
    seen = np.empty((n_levels, width))
    n_seen = np.empty(n_levels, np.int64)
    weights = np.empty(width)
    for row in range(n_rows):
        precision[row] = 0.0
        discounts[row] = 0.0
        precision_at_r[row] = 0.0
        overlap[row] = 0.0
        n_seen[:] = 0
        start = 0
        while start < n_items:
            stop = min(start + width, n_items)
            for end in positives[row]:
                if start < end < stop:
                    stop = end
            for end in cutoffs:
                if start < end < stop:
                    stop = end
            block = levels[row, start:stop]
            _count_seen(block, n_seen, seen)
            if start < positives[row, 0]:
                overlap[row] += _overlap(start, seen, positives[row], inverse[start:stop])
            _add_block(
                block,
                inverse[start:stop],
                discount[start:stop],
                seen,
                weights,
                precision[row],
                discounts[row],
            )
            for level in range(n_levels):
                if positives[row, level] == stop:
                    precision_at_r[row, level] = precision[row, level, level]
            for cutoff in range(len(cutoffs)):
                if min(cutoffs[cutoff], n_items) == stop:  # nothing follows the last rank
                    for level in range(n_levels):
                        hits_at[row, level, cutoff] = n_seen[level]
                        precision_at[row, level, cutoff] = precision[row, level, level]
                        discount_at[row, level, cutoff] = discounts[row, level]
            start = stop


@compiled()
def count_levels(levels: Levels, counts: Integers) -> None:
    """Add the number of items of level 1, ..., L or finer in each row to counts, int64, shape (n, L)."""
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
    """Return the sum of |A_k & B_k| / k over a block; no R_l lies inside the block."""
    n_before = 0  # levels whose R_l is at or after the last rank of the block
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
    levels: Levels,
    inverse: Floats,
    discount: Floats,
    seen: Floats,
    weights: Floats,
    precision: Floats,
    gains: Floats,
) -> None:
    """Add the precisions and discounts of a block of ranks."""
    n_levels = len(gains)
    n_ranks = len(levels)
    for level in range(n_levels):
        n_items = seen[level, n_ranks - 1] - seen[level, 0] + (levels[0] > level)
        if n_items == 0:  # nor has the block items of a finer level
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
