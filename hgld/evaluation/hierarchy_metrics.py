"""Metrics on trees of classes from other fields: HP@k, AHP, mistake severity, hierarchical distances, Wu-Palmer, hF.

Defined by the lowest common ancestor (LCA) of two classes in a tree. With labels at L levels all classes have
the same depth, and an item of level l has its LCA with the query l levels below the root: at height L - l, where the
root has the height L. So all of them follow from the levels of the ranked items. For trees whose classes differ in
depth see :mod:`hgld.evaluation.class_tree`.

====================  ==============================================================================================
``HP@k``              similarity of the first k items, divided by the largest that k items of the gallery have (Deng
                      et al., CVPR 2011); the similarity is that of the LCA's height, l / L
``HP_WUP@k``          the same with the similarity of Wu and Palmer, (l + 1) / (L + 1)
``AHP``, ``AHP@k``    mean of HP@1, ..., HP@k; without k over the whole ranking. ``AHP_WUP`` likewise
``AHP_trapezoid``     area under HP@1, ..., HP@n by the trapezoidal rule with steps of 1/n, as published code computes
                      it: (n - 1) / n for a perfect ranking. ``AHP_trapezoid@k`` and ``AHP_WUP_trapezoid`` likewise
``WUP@k``             mean similarity of Wu and Palmer of the first k items
``hF``                hierarchical F-measure of the first item's class, the root not counted: l / L
``mistake_severity``  height of the LCA with the first item where that is of another class, 1 to L levels (Bertinetto
                      et al., CVPR 2020)
``avg_hdist@k``       mean height of the LCA over the first k items, 0 to L levels
``min_hdist@k``       least height of the LCA among the first k items, 0 to L levels
====================  ==============================================================================================

Functions return float64, shape (n,), one value per ranking. Similarities are NaN where no item has anything in common
with the query; mistake severity and the distances where no item is of the query's class: no answer would be right.
The mean of ``avg_hdist@1`` is that of ``mistake_severity`` times 1 - R@1.

>>> from hgld.evaluation.ranking_statistics import ranking_statistics
>>> levels = torch.tensor([[2, 3, 0, 1]], dtype=torch.uint8)
>>> statistics = ranking_statistics(levels, n_levels=3, cutoffs=[2])
>>> hierarchical_precision_at_k(statistics, 2), average_hierarchical_precision(levels, statistics, 2)
(tensor([1.], dtype=torch.float64), tensor([0.8333], dtype=torch.float64))
>>> mistake_severity(levels, statistics), average_hierarchical_distance_at_k(statistics, 2)
(tensor([1.], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from hgld.compute.threads import parallel_map
from hgld.evaluation.ranking_statistics import RankingStatistics, cutoff_index

#: ``height``: l / L, of the height of the lowest common ancestor; ``wu_palmer``: (l + 1) / (L + 1).
Similarity = Literal["height", "wu_palmer"]

#: Added to the level l for numbers in the proportions of the similarity.
_OFFSET: dict[Similarity, int] = {"height": 0, "wu_palmer": 1}
#: Elements of a temporary array [rows, ranks], and their ranks.
_BLOCK = {"cpu": 2**17, "cuda": 2**24}
_WIDTH = {"cpu": 2**14, "cuda": 2**18}


def hierarchical_precision_at_k(
    statistics: RankingStatistics, k: int, similarity: Similarity = "height"
) -> torch.Tensor:
    """HP@k: similarity of the first k items, divided by the largest possible one (Deng et al., CVPR 2011).

    Not H-P@k of the paper's Eq. 31, which :func:`~hgld.evaluation.metrics.h_precision_at_k` is. NaN where nothing is
    similar or fewer than k items are ranked.
    """
    ranks = _OFFSET[similarity] * k
    obtained = statistics.hits_at[..., cutoff_index(statistics, k)].sum(1) + ranks
    best = statistics.positives.clamp(max=k).sum(1) + ranks
    return torch.where(_has_similar(statistics) & (statistics.n_ranked >= k), obtained / best, torch.nan)


def average_hierarchical_precision(
    levels: torch.Tensor,
    statistics: RankingStatistics,
    k: int | None = None,
    similarity: Similarity = "height",
    *,
    trapezoid: bool = False,
) -> torch.Tensor:
    """AHP: mean of HP@1, ..., HP@k.

    Memory is a few MB besides the result, whatever the length of the rankings.

    Args:
        levels: uint8, shape (n, N); level of the item at each rank, best rank first.
        statistics: Statistics of these rankings.
        k: Number of ranks; all of them by default.
        similarity: Similarity of HP@k.
        trapezoid: Whether to take the area under the curve as published code does (semantic-embeddings of Barz and
            Denzler): by the trapezoidal rule with steps of 1/k, so that a perfect ranking has (k - 1) / k.
    """
    device = levels.device
    last_rank = statistics.n_ranked if k is None else torch.full_like(statistics.n_ranked, k)
    levels = levels[:, :k]
    width = _WIDTH[device.type]
    step = max(1, _BLOCK[device.type] // max(1, min(width, levels.shape[1])))
    rows = zip(*(torch.split(part, step) for part in (levels, statistics.positives, last_rank)), strict=True)
    sums = parallel_map(partial(_precision_sums, offset=_OFFSET[similarity], width=width), rows, device)
    total, first, last = (torch.cat(parts) for parts in zip(*sums, strict=True))
    if trapezoid:
        total = total - (first + last) / 2
    return torch.where(_has_similar(statistics) & (statistics.n_ranked >= last_rank), total / last_rank, torch.nan)


def wu_palmer_at_k(statistics: RankingStatistics, k: int) -> torch.Tensor:
    """Mean similarity of Wu and Palmer of the first k items, (l + 1) / (L + 1); NaN where nothing is similar."""
    similarity = (statistics.hits_at[..., cutoff_index(statistics, k)].sum(1) / k + 1) / (statistics.n_levels + 1)
    return torch.where(_has_similar(statistics) & (statistics.n_ranked >= k), similarity, torch.nan)


def hierarchical_f(levels: torch.Tensor, statistics: RankingStatistics) -> torch.Tensor:
    """Hierarchical F-measure of the first item's class (Kiritchenko et al., 2006); NaN where nothing is similar.

    The ancestors of both classes, they included and the root not, have l nodes in common out of L each: hierarchical
    precision, recall and F-measure are all l / L.
    """
    shared = levels[:, 0].to(torch.float64) / statistics.n_levels
    return torch.where(_has_similar(statistics), shared, torch.nan)


def mistake_severity(levels: torch.Tensor, statistics: RankingStatistics) -> torch.Tensor:
    """Height of the LCA with the first item where that is a mistake (Bertinetto et al., CVPR 2020), else NaN."""
    height = statistics.n_levels - levels[:, 0].to(torch.float64)
    return torch.where(_has_right_answer(statistics) & (height > 0), height, torch.nan)


def average_hierarchical_distance_at_k(statistics: RankingStatistics, k: int) -> torch.Tensor:
    """Mean height of the LCA over the first k items (Bertinetto et al., CVPR 2020)."""
    height = statistics.n_levels - statistics.hits_at[..., cutoff_index(statistics, k)].sum(1) / k
    return torch.where(_has_right_answer(statistics) & (statistics.n_ranked >= k), height, torch.nan)


def least_hierarchical_distance_at_k(statistics: RankingStatistics, k: int) -> torch.Tensor:
    """Least height of the LCA among the first k items."""
    best_level = (statistics.hits_at[..., cutoff_index(statistics, k)] > 0).sum(1)
    height = (statistics.n_levels - best_level).to(torch.float64)
    return torch.where(_has_right_answer(statistics) & (statistics.n_ranked >= k), height, torch.nan)


def _precision_sums(
    rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor], *, offset: int, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the sum of HP@1, ..., HP@n of each row, HP@1 and HP@n, computed ``width`` ranks at a time.

    Args:
        rows: Levels, the number of positives of each level, and the last rank n.
        offset: See :data:`_OFFSET`.
        width: Number of ranks.
    """
    levels, positives, last_rank = rows
    total, first, last = positives.new_zeros(3, len(levels))
    obtained_before = positives.new_zeros(len(levels), 1)
    for start in range(0, levels.shape[1], width):
        block = levels[:, start : start + width]
        rank = torch.arange(start + 1, start + 1 + block.shape[1], dtype=torch.float64, device=levels.device)
        obtained = block.to(torch.float64).add_(offset).cumsum_(1).add_(obtained_before)
        obtained_before = obtained[:, -1:].clone()
        best = (offset * rank).repeat(len(levels), 1)
        for level in positives.T:
            best += torch.minimum(level[:, None], rank)
        precision = obtained.div_(best)
        if start == 0:
            first = precision[:, 0].clone()
        total += precision.masked_fill_(rank > last_rank[:, None], 0.0).sum(1)
        last += precision.masked_fill_(rank < last_rank[:, None], 0.0).sum(1)
    return total, first, last


def _has_similar(statistics: RankingStatistics) -> torch.Tensor:
    return statistics.positives[:, 0] > 0


def _has_right_answer(statistics: RankingStatistics) -> torch.Tensor:
    return statistics.positives[:, -1] > 0
