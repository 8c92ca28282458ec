"""Sufficient statistics of rankings: all metrics are functions of a few sums over the levels in ranked order.

Write G_m(k) for the number of items of level m or finer among the first k. The sums, taken in one pass, are for
levels l and m

    precision[l, m] = sum over ranks k with an item of level >= l of G_m(k) / k
    discount[l]     = sum over ranks k with an item of level >= l of 1 / log2(1 + k)
    overlap         = sum over ranks k <= N of |A_k & B_k| / k,   N = number of items of level >= 1

where A_k are the first k items and B_k the first k of a perfect ranking. AP of level l is
precision[l, l] / R_l (Eq. 34). H-rank^+ (Eq. 18) adds up min(rel(k), rel(j)) over the items j before k; since an
item's relevance depends on its level only, differences of ``precision`` give the contribution of each pair of levels,
and H-AP follows for any relevance, which need not be known during the pass. Each item costs L cumulative counts and
one L x L product, whatever the length of the ranking. On a CPU the pass is compiled
(:mod:`hgld.evaluation.level_sums`); elsewhere, and where loops are not compiled, the same sums are taken by
operations of torch. Both are equal up to the order in which float64 values are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from hgld.compute.compiled import is_compiled
from hgld.compute.threads import parallel_map, thread_count
from hgld.errors import ConfigurationError
from hgld.evaluation.level_sums import WIDTH, count_levels, level_sums

#: Elements of a temporary array [rows, L, ranks] of the pass: few enough for a core's cache, or enough to occupy a
#: GPU.
_BLOCK = {"cpu": 3 * 2**16, "cuda": 2**25}
_WIDTH = {"cpu": 2**14, "cuda": 2**18}
_COMPILED_WIDTH = WIDTH


@dataclass(frozen=True, eq=False)
class RankingStatistics:
    """Statistics of n rankings: float64 tensors on one device; index l - 1 of an axis of length L is level l.

    Args:
        n_ranked: shape (n,); number of ranked items.
        positives: shape (n, L); R_l, the number of items of level l or finer in the whole ranking.
        precision: shape (n, L, L); see above.
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

    n_ranked: torch.Tensor
    positives: torch.Tensor
    precision: torch.Tensor
    precision_at_r: torch.Tensor
    discount: torch.Tensor
    ideal_discount: torch.Tensor
    overlap: torch.Tensor
    cutoffs: tuple[int, ...]
    hits_at: torch.Tensor
    precision_at: torch.Tensor
    discount_at: torch.Tensor
    ideal_discount_at: torch.Tensor
    level_at: torch.Tensor

    @property
    def n_levels(self) -> int:
        """Number of levels L."""
        return self.positives.shape[1]

    def counts(self) -> torch.Tensor:
        """Return the number of items of exactly each level, level 0 first: float64, shape (n, L + 1)."""
        at_least = torch.cat([self.n_ranked[:, None], self.positives], dim=1)
        return at_least - torch.nn.functional.pad(self.positives, (0, 1))


class RankTables:
    """Functions of the rank k = 1, ..., n, computed once: float64, shape (n,).

    Attributes:
        rank: k.
        inverse: 1 / k.
        discount: 1 / log2(1 + k).
        ideal: Sum of the discounts of the first k ranks, for k = 0, ..., n: shape (n + 1,).
    """

    def __init__(self, n_ranks: int, device: torch.device | str = "cpu") -> None:
        self.rank = torch.arange(1, n_ranks + 1, dtype=torch.float64, device=device)
        self.inverse = 1 / self.rank
        self.discount = 1 / torch.log2(1 + self.rank)
        self.ideal = torch.nn.functional.pad(self.discount.cumsum(0), (1, 0))


def ranking_statistics(
    ranked_levels: torch.Tensor,
    n_levels: int,
    cutoffs: Sequence[int] = (),
    *,
    n_ranked: torch.Tensor | None = None,
    tables: RankTables | None = None,
) -> RankingStatistics:
    """Compute the statistics of rankings; memory is a few MB besides the result.

    Args:
        ranked_levels: uint8, shape (n, N); level of the item at each rank, best rank first. Excluded items come last,
            with level 0.
        n_levels: Number of levels L; no level is above it.
        cutoffs: Ranks k of metrics "at k". No item follows rank N where k is larger; evaluations refuse such a k.
        n_ranked: shape (n,); number of items of each row that are not excluded; N by default.
        tables: Tables for N ranks or more, to share between calls.

    Raises:
        ConfigurationError: A cutoff is below 1.
    """
    n_rows, n_items = ranked_levels.shape
    device = ranked_levels.device
    tables = tables or RankTables(n_items, device)
    if n_ranked is None:
        n_ranked = torch.full((n_rows,), n_items, device=device)
    positives = _count_positives(ranked_levels, n_levels)
    return _statistics(ranked_levels, positives, n_ranked, cutoffs, tables)


def _statistics(
    ranked_levels: torch.Tensor,
    positives: torch.Tensor,
    n_ranked: torch.Tensor,
    cutoffs: Sequence[int],
    tables: RankTables,
) -> RankingStatistics:
    """Compute the statistics of rankings, or of their first ranks where there are more positives than in these."""
    device, n_items = ranked_levels.device, ranked_levels.shape[1]
    cutoffs = tuple(sorted(set(cutoffs)))
    if cutoffs and cutoffs[0] < 1:
        raise ConfigurationError(f"k is {cutoffs[0]}; expected 1 or more")
    sums = (_compiled_sums if is_compiled(device) else _torch_sums)(ranked_levels, positives, cutoffs, tables)
    ks = torch.tensor(cutoffs, dtype=torch.int64, device=device)
    return RankingStatistics(
        n_ranked=n_ranked.to(torch.float64),
        positives=positives.to(torch.float64),
        precision=sums.precision,
        precision_at_r=sums.precision_at_r,
        discount=sums.discount,
        ideal_discount=tables.ideal[positives],
        overlap=sums.overlap,
        cutoffs=cutoffs,
        hits_at=sums.hits_at,
        precision_at=sums.precision_at,
        discount_at=sums.discount_at,
        ideal_discount_at=tables.ideal[torch.minimum(positives[..., None], ks)],
        level_at=torch.where(ks <= n_items, ranked_levels[:, ks.clamp(max=n_items) - 1].to(torch.int64), 0),
    )


def truncated_statistics(
    ranked_levels: torch.Tensor,
    positives: torch.Tensor,
    n_ranked: torch.Tensor,
    cutoffs: Sequence[int],
    *,
    tables: RankTables | None = None,
) -> RankingStatistics:
    """Compute the statistics of rankings of which only the first items are known.

    Those at cutoffs are the same to the last bit as of whole rankings, in compiled loops, and so is
    ``precision_at_r`` where no more than these items are positives; all others are NaN.

    Args:
        ranked_levels: uint8, shape (n, k); level of the item at each of the first ranks, 0 where it is unknown.
        positives: int64, shape (n, L); number of items of level 1, ..., L or finer in the whole ranking.
        n_ranked: int64, shape (n,); number of items in the whole ranking.
        cutoffs: Ranks of metrics "at k", at most the number of ranks known.
        tables: Tables for as many ranks as there are positives or more, to share between calls.
    """
    n_known = ranked_levels.shape[1]
    tables = tables or RankTables(max(n_known, int(positives.max()) if positives.numel() else 0))
    known = _statistics(ranked_levels, positives, n_ranked, cutoffs, tables)
    return replace(
        known,
        precision=torch.full_like(known.precision, torch.nan),
        precision_at_r=known.precision_at_r.where(positives <= n_known, torch.nan),
        discount=torch.full_like(known.discount, torch.nan),
        ideal_discount=torch.full_like(known.ideal_discount, torch.nan),
        overlap=torch.full_like(known.overlap, torch.nan),
    )


def cutoff_index(statistics: RankingStatistics, k: int) -> int:
    """Return the index of a cutoff on the axes of the statistics.

    Raises:
        ConfigurationError: The statistics were computed without it.
    """
    if k not in statistics.cutoffs:
        raise ConfigurationError(f"the statistics have no cutoff {k}; add it to `cutoffs` of ranking_statistics")
    return statistics.cutoffs.index(k)


class _Sums(NamedTuple):
    """Sums over ranked levels, see :class:`RankingStatistics`; all float64."""

    precision: torch.Tensor
    precision_at_r: torch.Tensor
    discount: torch.Tensor
    overlap: torch.Tensor
    hits_at: torch.Tensor
    precision_at: torch.Tensor
    discount_at: torch.Tensor


def _count_positives(levels: torch.Tensor, n_levels: int) -> torch.Tensor:
    """Return the number of items of level 1, ..., L or finer: int64, shape (n, L)."""
    device = levels.device
    positives = torch.zeros(len(levels), n_levels, dtype=torch.int64, device=device)
    if is_compiled(device):
        count_levels(levels.contiguous().numpy(), positives.numpy())
        return positives
    at_least = torch.arange(1, n_levels + 1, dtype=torch.uint8, device=device)[:, None]
    width, elements = _WIDTH[device.type], _BLOCK[device.type]
    step = max(1, elements // (n_levels * min(width, max(levels.shape[1], 1))))
    for rows, counts in zip(torch.split(levels, step), torch.split(positives, step), strict=True):
        for block in torch.split(rows, width, dim=1):
            counts += (block[:, None] >= at_least).sum(2, dtype=torch.int32)
    return positives


def _compiled_sums(
    levels: torch.Tensor, positives: torch.Tensor, cutoffs: tuple[int, ...], tables: RankTables
) -> _Sums:
    """Compute the sums in compiled loops, on a CPU."""
    floats, n_levels = partial(torch.empty, dtype=torch.float64), positives.shape[1]
    shape, shape_at = (len(levels), n_levels), (len(levels), n_levels, len(cutoffs))
    sums = _Sums(
        precision=floats(*shape, n_levels),
        precision_at_r=floats(shape),
        discount=floats(shape),
        overlap=floats(len(levels)),
        hits_at=floats(shape_at),
        precision_at=floats(shape_at),
        discount_at=floats(shape_at),
    )
    contiguous, arrays = levels.contiguous().numpy(), [tensor.numpy() for tensor in (positives, *sums)]
    inverse, discount, ks = tables.inverse.numpy(), tables.discount.numpy(), np.array(cutoffs, np.int64)

    def add_up(rows: slice) -> None:
        level_sums(contiguous[rows], inverse, discount, ks, _COMPILED_WIDTH, *(array[rows] for array in arrays))

    bounds = np.linspace(0, len(levels), thread_count(levels.device) + 1).astype(int)
    parallel_map(add_up, [slice(*pair) for pair in pairwise(bounds.tolist())], levels.device)
    return sums


def _torch_sums(levels: torch.Tensor, positives: torch.Tensor, cutoffs: tuple[int, ...], tables: RankTables) -> _Sums:
    """Compute the sums by operations of torch, on any device."""
    n_items, n_levels, device = levels.shape[1], positives.shape[1], levels.device
    elements, width = _BLOCK[device.type], _WIDTH[device.type]
    step = max(1, elements // (n_levels * min(width, max(n_items, 1))))
    parts = list(zip(torch.split(levels, step), torch.split(positives, step), strict=True))
    totals = parallel_map(lambda part: _over_all_ranks(*part, width, tables), parts, device)
    step = max(1, elements // (n_levels * min(max(cutoffs, default=1), n_items)))
    rows = torch.split(levels, step)
    at_cutoffs = parallel_map(lambda part: _up_to_cutoffs(part, n_levels, cutoffs, tables), rows, device)
    joined = [torch.cat(parts) for sums in (totals, at_cutoffs) for parts in zip(*sums, strict=True)]
    return _Sums(**dict(zip(_Sums._fields, joined, strict=True)))


def _over_all_ranks(
    levels: torch.Tensor, positives: torch.Tensor, width: int, tables: RankTables
) -> tuple[torch.Tensor, ...]:
    """Return precision, precision_at_r, discount and overlap, computed ``width`` ranks at a time."""
    (n_rows, n_items), n_levels = levels.shape, positives.shape[1]
    at_least = torch.arange(1, n_levels + 1, dtype=torch.uint8, device=levels.device)[:, None]
    precision = torch.zeros(n_rows, n_levels, n_levels, dtype=torch.float64, device=levels.device)
    precision_at_r, discount = precision.new_zeros(2, n_rows, n_levels)
    overlap = precision.new_zeros(n_rows)
    seen_before = precision.new_zeros(n_rows, n_levels, 1)
    buffers = precision.new_empty(3, n_rows, n_levels, min(width, n_items))
    for start in range(0, n_items, width):
        block = levels[:, start : start + width]
        stop = start + block.shape[1]
        rank, inverse = tables.rank[start:stop], tables.inverse[start:stop]
        member, seen, ideal = buffers[..., : stop - start]
        torch.ge(block[:, None], at_least, out=member)
        torch.cumsum(member, dim=2, out=seen)
        seen += seen_before
        seen_before = seen[..., -1:].clone()
        discount += member @ tables.discount[start:stop]
        if (positives[:, 0] > start).any():
            # The best k items hold min(k, R_l) of level l or finer, and |A_k & B_k| is the least over l of
            # G_l(k) + max(0, k - R_l): the level that rank k has in a perfect ranking limits it.
            torch.sub(rank, positives[..., None], out=ideal).clamp_(min=0).add_(seen)
            common = ideal.amin(1).mul_(inverse)
            overlap += common.masked_fill_(rank > positives[:, :1], 0.0).sum(1)
        member *= inverse
        sums = member @ seen.transpose(1, 2)
        precision += sums
        precision_at_r += torch.where(positives >= stop, sums.diagonal(dim1=1, dim2=2), 0.0)
        rows, ends = ((positives > start) & (positives < stop)).nonzero(as_tuple=True)  # R_l is in this block
        until_r = rank <= positives[rows, ends, None]
        precision_at_r[rows, ends] += (member[rows, ends] * seen[rows, ends] * until_r).sum(1)
    return precision, precision_at_r, discount, overlap


def _up_to_cutoffs(
    levels: torch.Tensor, n_levels: int, cutoffs: tuple[int, ...], tables: RankTables
) -> tuple[torch.Tensor, ...]:
    """Return hits, precisions and discounts summed up to each cutoff, each (n, L, n_cutoff)."""
    last = min(max(cutoffs, default=0), levels.shape[1])
    at_least = torch.arange(1, n_levels + 1, dtype=torch.uint8, device=levels.device)[:, None]
    member = (levels[:, None, :last] >= at_least).to(torch.float64)
    seen = member.cumsum(2)
    precision = (member * seen * tables.inverse[:last]).cumsum(2)
    discount = (member * tables.discount[:last]).cumsum(2)
    indices = torch.tensor(cutoffs, dtype=torch.int64, device=levels.device).clamp(max=last) - 1
    return seen[..., indices], precision[..., indices], discount[..., indices]
