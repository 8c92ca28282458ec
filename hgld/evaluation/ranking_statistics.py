"""Sufficient statistics of rankings: all metrics are functions of a few sums over the levels in ranked order.

Write G_m(k) for the number of items of level m or finer among the first k, and R_l for the number of items of level l
or finer in the whole ranking. The sums, taken in one pass, are for levels l and m

    precision[l, m] = sum over ranks k with an item of level >= l of G_m(k) / k
    discount[l]     = sum over ranks k with an item of level >= l of 1 / log2(1 + k)
    overlap         = sum over ranks k <= N of |A_k & B_k| / k,   N = number of items of level >= 1

where A_k are the first k items and B_k the first k of a perfect ranking. So ``precision`` holds sums of precisions.
AP of level l is precision[l, l] / R_l (Eq. 34). H-rank^+ (Eq. 18) adds up min(rel(k), rel(j)) over the items j up to
and including k; since an item's relevance depends on its level only, differences of ``precision`` give the
contribution of each pair of levels, and H-AP follows for any relevance, which need not be known during the pass. Each
item costs L cumulative counts and one L x L product, whatever the length of the ranking. On a CPU the pass is
compiled; elsewhere, and where loops are not compiled, the same sums are taken by operations of torch. Both are equal
up to the order in which float64 values are added.

The compiled pass reads a few hundred ranks at a time. For each level, one loop counts the items so far; all other
loops multiply and add arrays that fit into a core's first cache. Blocks end at every rank after which a sum is asked
for: the cutoffs and the numbers R_l. The overlap needs two levels per rank only:

    |A_k & B_k| = min over l of G_l(k) + max(0, k - R_l).

Where R_l >= k, the least G_l(k) is that of the finest such level; where R_l < k, the term is k less the number of
items of level l or finer that are still to come, which is least for the coarsest such level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

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

#: Elements of a temporary array [rows, L, ranks] of the pass by operations of torch, unless a single row has more.
_BLOCK = {"cpu": 3 * 2**16, "cuda": 2**25}
#: Ranks of a block of the compiled pass, of which the arrays take 4 kB each, one per level and two more.
COMPILED_WIDTH = 512


@dataclass(frozen=True, eq=False)
class RankingStatistics:
    """Statistics of n rankings: float64 tensors on one device; index l - 1 of an axis of length L is level l.

    Args:
        n_ranked: shape (n,); number of ranked items.
        positives: shape (n, L); R_l, the number of items of level l or finer in the whole ranking.
        precision: shape (n, L, L); sums of precisions, see above.
        precision_at_r: shape (n, L); precision[l, l], but over the first R_l ranks only.
        discount: shape (n, L); see above.
        ideal_discount: shape (n, L); the sum of 1 / log2(1 + k) over the ranks k = 1, ..., R_l.
        overlap: shape (n,); see above.
        cutoffs: Ascending ranks k; the last axis of the following arrays has one index for each.
        hits_at: shape (n, L, n_cutoff); G_l at the cutoff.
        precision_at: shape (n, L, n_cutoff); precision[l, l] over the ranks up to the cutoff.
        discount_at: shape (n, L, n_cutoff); discount[l] over the ranks up to the cutoff.
        ideal_discount_at: shape (n, L, n_cutoff); ideal_discount[l] over the ranks up to the cutoff.
        level_at: int64, shape (n, n_cutoff); level of the item at the cutoff.
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
        """Return the number of items of level l or finer among the first k, a cutoff: float64, shape (n, L)."""
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

    Where only the first items of a ranking are known, compiled loops give the statistics at cutoffs to the last bit,
    and ``precision_at_r`` too if there are no more positives than known items; all others are NaN.

    Args:
        ranked_levels: uint8, shape (n, N); level of the item at each rank, best rank first. Excluded items come last,
            with level 0.
        n_levels: Number of levels L; no level is above it.
        cutoffs: Ranks k of metrics "at k". No item follows rank N where k is larger; evaluations refuse such a k.
        n_ranked: int64, shape (n,); number of items of each ranking that are not excluded; N by default.
        positives: int64, shape (n, L); number of items of level 1, ..., L or finer in the whole ranking, where the
            levels are those of the first items only.
        ends: int64, shape (n, N); rank of the item at each place, from 0, where ties share the rank of the last.
            Default: its place. It is the rank in all sums but ``overlap``.

    Raises:
        ConfigurationError: A cutoff is below 1.
    """
    (n_rows, n_items), device = ranked_levels.shape, ranked_levels.device
    cutoffs = tuple(sorted(set(cutoffs)))
    require_at_least(1, k=min(cutoffs, default=None))
    n_positives = _count_positives(ranked_levels, n_levels) if positives is None else positives
    tables = RankTables(max(n_items, int(n_positives.max()) if n_positives.numel() else 0), device)
    if is_compiled(device) and ends is None:
        sums = _compiled_sums(ranked_levels, n_positives, cutoffs, tables)
    else:
        sums = _torch_sums(ranked_levels, n_positives, cutoffs, tables, ends)
    ks = torch.tensor(cutoffs, dtype=torch.int64, device=device)
    statistics = RankingStatistics(
        n_ranked=torch.full((n_rows,), n_items, dtype=torch.float64, device=device)
        if n_ranked is None
        else n_ranked.double(),
        positives=n_positives.to(torch.float64),
        ideal_discount=tables.ideal[n_positives],
        cutoffs=cutoffs,
        **sums,
        ideal_discount_at=tables.ideal[torch.minimum(n_positives[..., None], ks)],
        level_at=torch.where(
            ks <= n_items, ranked_levels[:, ks.clamp(max=n_items) - 1].to(torch.int64), 0
        ),
    )
    if positives is None:
        return statistics
    names = ("precision", "discount", "ideal_discount", "overlap")
    unknown: dict[str, Any] = {
        name: torch.full_like(getattr(statistics, name), torch.nan) for name in names
    }
    return replace(
        statistics,
        precision_at_r=statistics.precision_at_r.where(positives <= n_items, torch.nan),
        **unknown,
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
    floats, n_levels = partial(torch.empty, dtype=torch.float64), positives.shape[1]
    shape, shape_at = (len(levels), n_levels), (len(levels), n_levels, len(cutoffs))
    sums = {
        "precision": floats(*shape, n_levels),
        "precision_at_r": floats(shape),
        "discount": floats(shape),
        "overlap": floats(len(levels)),
        "hits_at": floats(shape_at),
        "precision_at": floats(shape_at),
        "discount_at": floats(shape_at),
    }
    contiguous, arrays = (
        levels.contiguous().numpy(),
        [tensor.numpy() for tensor in (positives, *sums.values())],
    )
    inverse, discount, ks = (
        tables.inverse.numpy(),
        tables.discount.numpy(),
        np.array(cutoffs, np.int64),
    )

    def add_up(rows: slice) -> None:
        level_sums(
            contiguous[rows],
            inverse,
            discount,
            ks,
            COMPILED_WIDTH,
            *(array[rows] for array in arrays),
        )

    bounds = np.linspace(0, len(levels), thread_count(levels.device) + 1).astype(int)
    parallel_map(add_up, [slice(*pair) for pair in pairwise(bounds.tolist())], levels.device)
    return sums


def _torch_sums(
    levels: Tensor,
    positives: Tensor,
    cutoffs: tuple[int, ...],
    tables: RankTables,
    ends: Tensor | None,
) -> _Sums:
    """Compute the sums by operations of torch, on any device; see :func:`ranking_statistics` for ``ends``."""
    if ends is None:
        ends = torch.arange(levels.shape[1], device=levels.device).expand(levels.shape)
    step = max(1, _BLOCK[levels.device.type] // max(1, positives.shape[1] * levels.shape[1]))
    blocks = [slice(start, start + step) for start in range(0, max(1, len(levels)), step)]

    def sums(rows: slice) -> _Sums:
        return _sums_of_rows(levels[rows], positives[rows], cutoffs, tables, ends[rows])

    parts = parallel_map(sums, blocks, levels.device)
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _sums_of_rows(
    levels: Tensor, positives: Tensor, cutoffs: tuple[int, ...], tables: RankTables, ends: Tensor
) -> _Sums:
    n_levels, places = positives.shape[1], torch.arange(levels.shape[1], device=levels.device)
    at_least = torch.arange(1, n_levels + 1, dtype=torch.uint8, device=levels.device)[:, None]
    member = (levels[:, None] >= at_least).to(torch.float64)
    seen = member.cumsum(2)
    # The best k items hold min(k, R_l) of level l or finer, and |A_k & B_k| is the least over l of
    # G_l(k) + max(0, k - R_l): the level that rank k has in a perfect ranking limits it.
    common = (places + 1 - positives[..., None]).clamp(min=0).add(seen).amin(1) * tables.inverse[
        places
    ]
    seen = seen.gather(2, ends[:, None].expand(member.shape))
    rank = (ends + 1)[:, None]
    weights = member * tables.inverse[ends][:, None]
    gains = member * tables.discount[ends][:, None]
    within = (
        (rank <= torch.tensor(cutoffs, device=levels.device)[:, None])
        .to(torch.float64)
        .transpose(1, 2)
    )
    return {
        "precision": weights @ seen.transpose(1, 2),
        "precision_at_r": (weights * seen).masked_fill(rank > positives[..., None], 0.0).sum(2),
        "discount": gains.sum(2),
        "overlap": common.masked_fill(places >= positives[:, :1], 0.0).sum(1),
        "hits_at": member @ within,
        "precision_at": (weights * seen) @ within,
        "discount_at": gains @ within,
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
    """Add up the sums of rankings.

    No term is negative, so a sum of n terms has a relative error of about (n + 4) * 2^-53 at most, in whatever order
    they are added up: 1e-10 for a million ranks, and in practice far less.

    Args:
        levels: uint8, shape (n, N); level of the item at each rank, best rank first.
        inverse: float64, at least N values; 1 / k for the ranks k = 1, 2, ...
        discount: Likewise; 1 / log2(1 + k).
        cutoffs: int64, ascending, shape (n_cutoff,).
        width: Number of ranks in a block, on which only rounding depends; ``COMPILED_WIDTH`` is the fastest.
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
        precision[row], discounts[row], precision_at_r[row], overlap[row], n_seen[:] = (
            0.0,
            0.0,
            0.0,
            0.0,
            0,
        )
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
    levels: Levels,
    inverse: Floats,
    discount: Floats,
    seen: Floats,
    weights: Floats,
    precision: Floats,
    gains: Floats,
) -> None:
    """Add the precisions and discounts of a block of ranks."""
    n_levels, n_ranks = len(gains), len(levels)
    for level in range(n_levels):
        if (
            seen[level, n_ranks - 1] - seen[level, 0] + (levels[0] > level) == 0
        ):  # nor is there any of a finer level
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
