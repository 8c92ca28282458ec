"""Metrics of rankings, one value per query: binary metrics of each level, and hierarchical ones.

Each metric is a function of :class:`~hgld.evaluation.ranking_statistics.RankingStatistics` and one
entry of :data:`METRICS`, which gives it its name. It returns float64, shape (n,), one value per
ranking, in [0, 1], or in levels for distances; NaN where a ranking has no item that the metric
could count as positive. Means exclude NaN. The name of a metric fixes its denominator:

=============  =====================================================================================
``AP``         sum of the precisions at the ranks of positives, divided by their number R (Eq. 34)
``mAP@R``      the same over the first R ranks, divided by R (Musgrave et al., ECCV 2020)
``mAP@k``      the same over the first k ranks, divided by min(R, k) (GLDv2, Weyand et al., CVPR 2020)
``R@k``        1 if any of the first k items is positive, else 0 (Eq. 13)
``TR@k``       positives among the first k, divided by min(R, k) (Eq. 14)
``P@k``        positives among the first k, divided by k
``wAP``        weighted sum of the APs of all levels, sum over l of w_l AP_l (Property 1)
``H-AP``       hierarchical AP, for any relevance (Eq. 19)
``H-R@k``      relevance of the first k items, divided by the relevance of all items (Eq. 30)
``H-P@k``      hierarchical precision at the item of rank k (Eq. 31); NaN where it is irrelevant
``NDCG``       discounted gain, divided by the discounted gain of a perfect ranking (Eq. 23)
``NDCG@k``     both over the first k ranks
``SI@k``       overlap with the first k items of a perfect ranking, divided by k; NaN where k > N (App. C-A1)
``ASI``        mean over n = 1, ..., N of SI@n, N being the number of items of level 1 or finer (App. C-A1)
=============  =====================================================================================

``level`` selects the positives: the items of that level or finer; the finest level by default.

The following metrics of other fields are defined by the lowest common ancestor (LCA) of two classes in a tree. With
labels at L levels all classes have the same depth, and an item of level l has its LCA with the query l levels below
the root: at height L - l, where the root has the height L.

====================  ==============================================================================================
``HP@k``              similarity of the first k items, divided by the largest that k items of the gallery have (Deng
                      et al., CVPR 2011); similarity by the height of the LCA, l / L
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

The similarities are NaN where no item shares a level with the query. Mistake severity and the
distances are NaN where no item has the query's class, so that no answer would be right. The mean of
``avg_hdist@1`` is the mean of ``mistake_severity`` times 1 - R@1.

>>> from hgld.evaluation.ranking_statistics import ranking_statistics
>>> from hgld.evaluation.relevance import by_level
>>> ranked = torch.tensor([[1, 3, 0, 1, 3]], dtype=torch.uint8)  # the bottom ranking of the paper's Fig. 14
>>> statistics = ranking_statistics(ranked, n_levels=3, cutoffs=[1, 2])
>>> average_precision(statistics), recall_at_k(statistics, 1)
(tensor([0.4500], dtype=torch.float64), tensor([0.], dtype=torch.float64))
>>> h_ap(statistics, by_level([0, 1 / 3, 2 / 3, 1]))
tensor([0.6687], dtype=torch.float64)
>>> levels = torch.tensor([[2, 3, 0, 1]], dtype=torch.uint8)
>>> statistics = ranking_statistics(levels, n_levels=3, cutoffs=[2])
>>> hierarchical_precision_at_k(statistics, 2), average_hierarchical_precision(levels, statistics, 2)
(tensor([1.], dtype=torch.float64), tensor([0.8333], dtype=torch.float64))
>>> mistake_severity(levels, statistics), average_hierarchical_distance_at_k(statistics, 2)
(tensor([1.], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hgld.arrays import Integers
from hgld.compute.machine import parallel_map
from hgld.errors import ConfigurationError, similar_names
from hgld.evaluation.ranking_statistics import RankingStatistics, cutoff_index
from hgld.evaluation.relevance import (
    Relevance,
    check_level_weights,
    exponential_gain,
    hierarchical_relevance,
)
from hgld.hierarchy.label_matrix import column_of
from hgld.ragged import RaggedIndices


def average_precision(statistics: RankingStatistics, level: int | None = None) -> Tensor:
    """Average precision at a semantic level (paper, Eq. 34; Eq. 9 at the finest)."""
    axis = _level_index(statistics, level)
    return _ratio(statistics.precision[:, axis, axis], statistics.positives[:, axis])


def weighted_average_precision(
    statistics: RankingStatistics, level_weights: Sequence[float] | None = None
) -> Tensor:
    """Weighted sum of the APs of all levels, the sum of w AP in Table XI (paper, Property 1).

    Equal to :func:`h_ap` with :func:`~hgld.evaluation.relevance.weighted_ap_relevance`. The AP of a
    level without positives is undefined: it drops out of the sum, and the other weights are scaled
    to add up to 1.

    Args:
        statistics: Statistics of n rankings.
        level_weights: w_1, ..., w_L, coarsest first, positive; scaled to add up to 1. Equal by
            default.

    Raises:
        ConfigurationError: The number of weights is not L, or a weight is not positive.

    >>> from hgld.evaluation.ranking_statistics import ranking_statistics
    >>> statistics = ranking_statistics(torch.tensor([[1, 2]], dtype=torch.uint8), n_levels=2)  # AP_l1 1, AP_l2 1/2
    >>> weighted_average_precision(statistics), weighted_average_precision(statistics, [0.2, 0.8])
    (tensor([0.7500], dtype=torch.float64), tensor([0.6000], dtype=torch.float64))
    """
    n_levels = statistics.n_levels
    if level_weights is None:
        level_weights = [1.0] * n_levels
    check_level_weights(level_weights, n_levels)
    weights = torch.tensor(
        list(level_weights), dtype=torch.float64, device=statistics.positives.device
    )
    weights = weights * (statistics.positives > 0)
    precisions = statistics.precision.diagonal(dim1=1, dim2=2) / statistics.positives.clamp(min=1)
    return _ratio((weights * precisions).sum(1), weights.sum(1))


def map_at_r(statistics: RankingStatistics, level: int | None = None) -> Tensor:
    """mAP@R: precisions at the positives among the first R, divided by R (Musgrave et al., ECCV 2020)."""
    axis = _level_index(statistics, level)
    return _ratio(statistics.precision_at_r[:, axis], statistics.positives[:, axis])


def map_at_k(statistics: RankingStatistics, k: int, level: int | None = None) -> Tensor:
    """mAP@k: precisions at positives of the first k, divided by min(R, k) (Weyand et al., CVPR 2020)."""
    axis = _level_index(statistics, level)
    precision = statistics.precision_at[:, axis, cutoff_index(statistics, k)]
    return _ratio(precision, statistics.positives[:, axis].clamp(max=k))


def recall_at_k(statistics: RankingStatistics, k: int, level: int | None = None) -> Tensor:
    """R@k: whether any of the first k items is positive (paper, Eq. 13)."""
    axis = _level_index(statistics, level)
    hit = (statistics.hits(k)[:, axis] > 0).to(torch.float64)
    return torch.where(statistics.positives[:, axis] > 0, hit, torch.nan)


def true_recall_at_k(statistics: RankingStatistics, k: int, level: int | None = None) -> Tensor:
    """TR@k: positives among the first k, divided by min(R, k) (paper, Eq. 14)."""
    axis = _level_index(statistics, level)
    hits = statistics.hits(k)[:, axis]
    return _ratio(hits, statistics.positives[:, axis].clamp(max=k))


def precision_at_k(statistics: RankingStatistics, k: int, level: int | None = None) -> Tensor:
    """P@k: positives among the first k, divided by k."""
    axis = _level_index(statistics, level)
    precision = statistics.hits(k)[:, axis] / k
    return torch.where(statistics.positives[:, axis] > 0, precision, torch.nan)


def h_ap(statistics: RankingStatistics, relevance: Relevance = hierarchical_relevance) -> Tensor:
    """Hierarchical average precision (paper, Eq. 19) for any relevance that depends on the level.

    Equal to AP where L = 1, and to the weighted sum of APs with
    :func:`~hgld.evaluation.relevance.weighted_ap_relevance` (Property 1).
    """
    relevances = relevance(statistics.counts())[:, 1:]
    # exact[l, m] is the sum, over ranks k with an item of exactly level l, of the number of items
    # of exactly level m among the first k, divided by k. Weighted by the lesser relevance, these
    # terms add up to the sum of H-rank^+(k) / k.
    exact = _exact_levels(_exact_levels(statistics.precision, axis=1), axis=2)
    lesser = torch.minimum(relevances[:, :, None], relevances[:, None, :])
    total_relevance = (relevances * statistics.counts()[:, 1:]).sum(1)
    return _ratio((lesser * exact).sum((1, 2)), total_relevance)


def h_recall_at_k(
    statistics: RankingStatistics, k: int, relevance: Relevance = hierarchical_relevance
) -> Tensor:
    """H-R@k: relevance of the first k items, divided by the relevance of all items (paper, Eq. 30)."""
    relevances = relevance(statistics.counts())[:, 1:]
    retrieved = (relevances * _exact_hits(statistics, k)).sum(1)
    total_relevance = (relevances * statistics.counts()[:, 1:]).sum(1)
    return _ratio(retrieved, total_relevance)


def h_precision_at_k(
    statistics: RankingStatistics, k: int, relevance: Relevance = hierarchical_relevance
) -> Tensor:
    """H-P@k: relevance of the first k items, relative to the item at rank k (paper, Eq. 31).

    Defined where the item at rank k is relevant, and NaN elsewhere. H-AP is the sum over k of
    (H-R@k - H-R@(k - 1)) H-P@k (Eq. 32).
    """
    relevances = relevance(statistics.counts())
    level_at_k = statistics.level_at[:, cutoff_index(statistics, k)]
    at_k = relevances.gather(1, level_at_k[:, None])
    total = (torch.minimum(relevances[:, 1:], at_k) * _exact_hits(statistics, k)).sum(1)
    return _ratio(total, k * at_k[:, 0])


def ndcg(statistics: RankingStatistics, gain: Relevance = exponential_gain) -> Tensor:
    """NDCG of the whole ranking (paper, Eq. 23): discount 1 / log2(1 + rank), gain 2^l - 1 by default."""
    steps = _gain_steps(statistics, gain)
    discounted = (steps * statistics.discount).sum(1)
    ideal = (steps * statistics.ideal_discount).sum(1)
    return _ratio(discounted, ideal)


def ndcg_at_k(statistics: RankingStatistics, k: int, gain: Relevance = exponential_gain) -> Tensor:
    """NDCG@k: discounted gain of the first k ranks, divided by the largest gain of k ranks."""
    steps = _gain_steps(statistics, gain)
    index = cutoff_index(statistics, k)
    discounted = (steps * statistics.discount_at[..., index]).sum(1)
    ideal = (steps * statistics.ideal_discount_at[..., index]).sum(1)
    return _ratio(discounted, ideal)


def set_intersection_at_k(statistics: RankingStatistics, k: int) -> Tensor:
    """SI@k: share of the first k items that are also among the first k of a perfect ranking.

    Set intersection (paper, App. C-A1). Items of one level are interchangeable. It is defined for k
    up to the number of items of level 1 or finer; NaN for larger k.
    """
    hits = statistics.hits(k)
    common = (hits + (k - statistics.positives).clamp(min=0)).amin(1)
    return torch.where(statistics.positives[:, 0] >= k, common / k, torch.nan)


def asi(statistics: RankingStatistics) -> Tensor:
    """Average set intersection (paper, App. C-A1).

    The mean over n = 1, ..., N, with N the number of items of level 1 or finer, of SI@n = |A_n & B_n| / n: A_n are
    the first n items, B_n the first n of a perfect ranking, in which items of one level are interchangeable.
    """
    return _ratio(statistics.overlap, statistics.positives[:, 0])


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Return a quotient, and NaN where the denominator is 0."""
    return torch.where(denominator > 0, numerator / denominator, torch.nan)


def _level_index(statistics: RankingStatistics, level: int | None) -> int:
    """Return the index of a level on the axes of the statistics, by default of the finest level.

    Raises:
        ConfigurationError: The level does not exist.
    """
    if level is None:
        return statistics.n_levels - 1
    column_of(level, statistics.n_levels)  # raises if the level does not exist
    return level - 1


def _exact_hits(statistics: RankingStatistics, k: int) -> Tensor:
    """Return the number of items of exactly level 1, ..., L among the first k: shape (n, L)."""
    return _exact_levels(statistics.hits(k), axis=1)


def _exact_levels(sums: Tensor, axis: int) -> Tensor:
    """Return sums over items of exactly level l from sums over items of level l or finer.

    Args:
        sums: float64; one axis holds the levels 1, ..., L.
        axis: The axis of levels.
    """
    finer = sums.roll(-1, dims=axis)
    finer.select(axis, -1).zero_()  # nothing is finer than the finest level
    return sums - finer


def _gain_steps(statistics: RankingStatistics, gain: Relevance) -> Tensor:
    """Return the difference between the gains of each level and of the level below: shape (n, L)."""
    gains = gain(statistics.counts())
    steps = gains.diff(dim=1)
    if (steps < 0).any() or gains[:, 0].any():
        raise ConfigurationError(
            "the gain is not 0 for level 0, or falls from a level to a finer one; expected 0 for level 0, and no "
            "decrease from level to level"
        )
    return steps


#: Similarity of two classes by their lowest common ancestor, of level l: l / L, its height, or
#: (l + 1) / (L + 1), after Wu and Palmer.
Similarity = Literal["height", "wu_palmer"]

#: Number to add to the level l so that the sums are proportional to the similarity.
_OFFSET: dict[Similarity, int] = {"height": 0, "wu_palmer": 1}
#: Elements of a temporary array [rows, ranks], unless a single row has more.
_BLOCK = {"cpu": 2**17, "cuda": 2**24}


def hierarchical_precision_at_k(
    statistics: RankingStatistics, k: int, similarity: Similarity = "height"
) -> Tensor:
    """HP@k: similarity of the first k items, divided by the largest possible (Deng et al., 2011).

    It differs from H-P@k (paper, Eq. 31), see :func:`h_precision_at_k`. NaN where no item is similar
    or fewer than k items are ranked.
    """
    ranks = _OFFSET[similarity] * k
    obtained = statistics.hits(k).sum(1) + ranks
    best = statistics.positives.clamp(max=k).sum(1) + ranks
    return _where_similar(statistics, obtained / best, k)


def average_hierarchical_precision(
    levels: Tensor,
    statistics: RankingStatistics,
    k: int | None = None,
    similarity: Similarity = "height",
    *,
    trapezoid: bool = False,
) -> Tensor:
    """AHP: mean of HP@1, ..., HP@k.

    Memory is a few MB besides the result, for rankings of any length.

    Args:
        levels: uint8, shape (n, N); level of the item at each rank, best rank first.
        statistics: Statistics of the n rankings.
        k: Number of ranks; all ranks by default.
        similarity: Similarity of two classes.
        trapezoid: Whether to take the area under the curve as published code does
            (semantic-embeddings of Barz and Denzler): by the trapezoidal rule with steps of 1/k, so
            that a perfect ranking has (k - 1) / k.
    """
    device = levels.device
    if k is None:
        last_rank = statistics.n_ranked
    else:
        last_rank = torch.full_like(statistics.n_ranked, k)
    levels = levels[:, :k]
    rows_per_block = max(1, _BLOCK[device.type] // levels.shape[1])
    blocks = zip(
        torch.split(levels, rows_per_block),
        torch.split(statistics.positives, rows_per_block),
        torch.split(last_rank, rows_per_block),
        strict=True,
    )
    sums = parallel_map(partial(_precision_sums, offset=_OFFSET[similarity]), blocks, device)
    total = torch.cat([block_total for block_total, _, _ in sums])
    if trapezoid:
        first = torch.cat([block_first for _, block_first, _ in sums])
        last = torch.cat([block_last for _, _, block_last in sums])
        total = total - (first + last) / 2
    return _where_similar(statistics, total / last_rank, last_rank)


def wu_palmer_at_k(statistics: RankingStatistics, k: int) -> Tensor:
    """Mean similarity of Wu and Palmer of the first k items, (l + 1) / (L + 1).

    NaN for rankings without a similar item.
    """
    similarity = (statistics.hits(k).sum(1) / k + 1) / (statistics.n_levels + 1)
    return _where_similar(statistics, similarity, k)


def hierarchical_f(levels: Tensor, statistics: RankingStatistics) -> Tensor:
    """Hierarchical F-measure of the first item's class (Kiritchenko et al., 2006).

    The ancestors of both classes, including the classes and without the root, share l nodes of L
    each: hierarchical precision, recall and F-measure are all l / L. NaN where no item is similar.
    """
    return _where_similar(statistics, levels[:, 0].to(torch.float64) / statistics.n_levels, 1)


def mistake_severity(levels: Tensor, statistics: RankingStatistics) -> Tensor:
    """Height of the LCA with the first item if it is a mistake (Bertinetto et al., CVPR 2020), or NaN."""
    height = statistics.n_levels - levels[:, 0].to(torch.float64)
    return _where_answerable(statistics, torch.where(height > 0, height, torch.nan), 1)


def average_hierarchical_distance_at_k(statistics: RankingStatistics, k: int) -> Tensor:
    """Mean height of the LCA over the first k items (Bertinetto et al., CVPR 2020)."""
    return _where_answerable(statistics, statistics.n_levels - statistics.hits(k).sum(1) / k, k)


def least_hierarchical_distance_at_k(statistics: RankingStatistics, k: int) -> Tensor:
    """Least height of the LCA among the first k items."""
    best_level = (statistics.hits(k) > 0).sum(1)
    return _where_answerable(statistics, (statistics.n_levels - best_level).to(torch.float64), k)


def _precision_sums(
    rows: tuple[Tensor, Tensor, Tensor], *, offset: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum of HP@1, ..., HP@n of each row, and HP@1 and HP@n.

    Args:
        rows: Levels in ranked order, numbers of positives, and last ranks n of a block of rankings.
        offset: Number to add to each level, see ``_OFFSET``.
    """
    levels, positives, last_rank = rows
    rank = torch.arange(1, levels.shape[1] + 1, dtype=torch.float64, device=levels.device)
    best = (offset * rank).repeat(len(levels), 1)
    for level in positives.T:
        best += torch.minimum(level[:, None], rank)
    precision = levels.to(torch.float64).add_(offset).cumsum_(1).div_(best)
    total = precision.masked_fill(rank > last_rank[:, None], 0.0).sum(1)
    ends = last_rank.to(torch.int64).clamp(max=levels.shape[1]) - 1
    return total, precision[:, 0], precision.gather(1, ends[:, None])[:, 0]


def revisited_average_precision(ranks: Integers) -> float:
    """Return the average precision of one query under the Oxford protocol, by trapezoids.

    The j-th positive (from 0) at rank r (from 0) stands for a step of recall of 1 / n_positive. The
    precision over this step is the mean of the precision just before the positive, j / r (1 if r is
    0), and with it, (j + 1) / (r + 1). Eq. 9 of the paper on rank losses, and all other APs of
    hgld, use only the precision with the positive, which is never lower: for two positives at ranks
    0 and 3 they give 0.75, and the trapezoids 0.71.

    Args:
        ranks: Ranks of all positives, ascending, from 0, shape (n_positive,); ignored images are
            not ranked.

    Returns:
        Value from 0 to 1; NaN for a query without positives.

    >>> revisited_average_precision(np.array([0, 3]))
    0.7083333333333333
    """
    if not len(ranks):
        return float("nan")
    before = np.arange(len(ranks))
    precision_before = np.where(ranks == 0, 1.0, before / np.maximum(ranks, 1))
    precision_with = (before + 1) / (ranks + 1)
    return float((precision_before + precision_with).sum() / 2 / len(ranks))


def revisited_precision_at(ranks: Integers, k: int) -> float:
    """Return the precision among the first k of one query (mP@k), at most up to the last positive.

    Args:
        ranks: Ranks of all positives, ascending, from 0, shape (n_positive,); ignored images are
            not ranked.
        k: Number of ranks.

    Returns:
        Value from 0 to 1; NaN for a query without positives.

    >>> revisited_precision_at(np.array([0, 3]), 10)
    0.5
    """
    if not len(ranks):
        return float("nan")
    cutoff = min(int(ranks[-1]) + 1, k)
    return float((ranks < cutoff).sum() / cutoff)


def _by_positive_ranks(
    value: Callable[[Integers], float], ranks: RaggedIndices, statistics: RankingStatistics
) -> Tensor:
    """Return a value of the ranks of each query's positives: float64, shape (n,)."""
    values = [value(ranks.row(query)) for query in range(len(ranks))]
    return torch.tensor(values, dtype=torch.float64)


def _where_similar(statistics: RankingStatistics, values: Tensor, n_ranks: int | Tensor) -> Tensor:
    """Return values of rankings with enough items and a similar one; NaN for other rankings.

    An item is similar if it shares a level with the query.
    """
    is_defined = (statistics.positives[:, 0] > 0) & (statistics.n_ranked >= n_ranks)
    return torch.where(is_defined, values, torch.nan)


def _where_answerable(statistics: RankingStatistics, values: Tensor, n_ranks: int) -> Tensor:
    """Return values of rankings with enough items and one of the query's class; NaN for others."""
    is_defined = (statistics.positives[:, -1] > 0) & (statistics.n_ranked >= n_ranks)
    return torch.where(is_defined, values, torch.nan)


@dataclass(frozen=True)
class MetricSpec:
    """Entry of the registry: how a metric's name becomes a call of its function.

    The function is called as ``function([levels], statistics, [k], [level], [weights])``;
    arguments in brackets are passed if the entry asks for them.

    Args:
        function: Function of :class:`~hgld.evaluation.ranking_statistics.RankingStatistics`.
        ranked_levels: Whether the function takes the levels in ranked order.
        positive_ranks: Whether it takes the ranks of the positives, from 0 and ascending, instead of
            the levels.
        tree: Whether levels must come from a tree of classes, and not be values of relevance.
        first_item: Whether the metric depends on the first item only.
        first_positives: Whether the metric depends on the first R items only, R being the number of
            positives of its level.
        cutoff: Whether the function takes a cutoff k.
        level: Whether it takes a semantic level; the name of the metric may then end in ``_lN``.
        weights: Name of the weights of the levels that it takes, if any.
    """

    function: Callable[..., Tensor]
    ranked_levels: bool = False
    positive_ranks: bool = False
    tree: bool = False
    first_item: bool = False
    first_positives: bool = False
    cutoff: bool = False
    level: bool = False
    weights: Literal["relevance", "self_counting_relevance", "gain", "level_weights"] | None = None


def _ahp_variants(name: str, **options: Any) -> dict[str, MetricSpec]:
    """Return the entries of a variant of AHP, over the whole ranking and at a cutoff."""
    function = partial(average_hierarchical_precision, **options)
    return {
        name: MetricSpec(function, ranked_levels=True, tree=True),
        f"{name}@K": MetricSpec(function, ranked_levels=True, tree=True, cutoff=True),
    }


#: Metrics by name; K stands for the cutoff.
METRICS: dict[str, MetricSpec] = {
    "AP": MetricSpec(average_precision, level=True),
    "wAP": MetricSpec(weighted_average_precision, weights="level_weights"),
    "mAP@R": MetricSpec(map_at_r, level=True, first_positives=True),
    "mAP@K": MetricSpec(map_at_k, cutoff=True, level=True),
    "R@K": MetricSpec(recall_at_k, cutoff=True, level=True),
    "TR@K": MetricSpec(true_recall_at_k, cutoff=True, level=True),
    "P@K": MetricSpec(precision_at_k, cutoff=True, level=True),
    "H-AP": MetricSpec(h_ap, weights="relevance"),
    "H-AP_selfcount": MetricSpec(h_ap, weights="self_counting_relevance"),
    "H-R@K": MetricSpec(h_recall_at_k, cutoff=True, weights="relevance"),
    "H-P@K": MetricSpec(h_precision_at_k, cutoff=True, weights="relevance"),
    "NDCG": MetricSpec(ndcg, weights="gain"),
    "NDCG@K": MetricSpec(ndcg_at_k, cutoff=True, weights="gain"),
    "SI@K": MetricSpec(set_intersection_at_k, cutoff=True),
    "ASI": MetricSpec(asi),
    "HP@K": MetricSpec(hierarchical_precision_at_k, cutoff=True, tree=True),
    "HP_WUP@K": MetricSpec(
        partial(hierarchical_precision_at_k, similarity="wu_palmer"), cutoff=True, tree=True
    ),
    **_ahp_variants("AHP"),
    **_ahp_variants("AHP_WUP", similarity="wu_palmer"),
    **_ahp_variants("AHP_trapezoid", trapezoid=True),
    **_ahp_variants("AHP_WUP_trapezoid", similarity="wu_palmer", trapezoid=True),
    "WUP@K": MetricSpec(wu_palmer_at_k, cutoff=True, tree=True),
    "hF": MetricSpec(hierarchical_f, ranked_levels=True, tree=True, first_item=True),
    "mistake_severity": MetricSpec(
        mistake_severity, ranked_levels=True, tree=True, first_item=True
    ),
    "avg_hdist@K": MetricSpec(average_hierarchical_distance_at_k, cutoff=True, tree=True),
    "min_hdist@K": MetricSpec(least_hierarchical_distance_at_k, cutoff=True, tree=True),
}


def _revisited(value: Callable[[Integers], float]) -> MetricSpec:
    """Return the entry of a metric of one query's positive ranks."""
    return MetricSpec(partial(_by_positive_ranks, value), positive_ranks=True)


#: Metrics of the protocol of ROxford5k and RParis6k by name; other protocols do not have them.
REVISITED_METRICS: dict[str, MetricSpec] = {
    "mAP": _revisited(revisited_average_precision),
    "mP@1": _revisited(partial(revisited_precision_at, k=1)),
    "mP@5": _revisited(partial(revisited_precision_at, k=5)),
    "mP@10": _revisited(partial(revisited_precision_at, k=10)),
}


@dataclass(frozen=True)
class Metric:
    """A metric with its cutoff and level.

    Args:
        name: Name in results, such as ``H-AP``, ``mAP@100``, ``R@1_l2`` (level 2), ``AP_l3``, ``NDCG@10``.
        spec: Entry of :data:`METRICS` or :data:`REVISITED_METRICS`.
        k: Cutoff up to which the ranking statistics are needed; None for a metric without a cutoff.
        level: Semantic level, if the metric takes one.
    """

    name: str
    spec: MetricSpec
    k: int | None = None
    level: int | None = None

    @classmethod
    def from_name(cls, name: str, n_levels: int) -> Metric:
        """Build a metric from its name.

        Args:
            name: Name of an entry of :data:`METRICS`, with a number for K, and ``_lN`` for a level
                N that is not the finest.
            n_levels: Number of levels L.

        Raises:
            ConfigurationError: The metric or the level does not exist.
        """
        stem, level_suffix, level_number = name.partition("_l")
        head, _, cutoff = stem.partition("@")
        has_cutoff = cutoff.isdecimal()
        spec = METRICS.get(f"{head}@K" if has_cutoff else stem)
        if spec is None or spec.cutoff != has_cutoff:
            raise _unknown_metric(name)
        if level_suffix and not (spec.level and level_number.isdecimal()):
            raise _unknown_metric(name)
        level = int(level_number or n_levels)
        column_of(level, n_levels)  # raises for a level that does not exist
        return cls(name, spec, int(cutoff) if has_cutoff else None, level)

    @property
    def is_graded(self) -> bool:
        """Whether it weighs items by their relevance or gain; levels may then be non-semantic."""
        return self.spec.weights in ("relevance", "gain")

    @property
    def n_ranks(self) -> int | None:
        """Number of ranks that it depends on; None if this number varies with the ranking."""
        return 1 if self.spec.first_item else self.k

    def values(
        self, levels: Tensor, statistics: RankingStatistics, weights: Mapping[str, Any]
    ) -> Tensor:
        """Return the values of the metric for n queries: float64, shape (n,).

        Args:
            levels: uint8, shape (n, N); level of the item at each rank, best rank first, up to the
                last needed rank.
            statistics: Statistics of the n rankings.
            weights: Weights of the levels by name, from
                :meth:`~hgld.evaluation.relevance.LevelWeights.block`.

        Raises:
            ConfigurationError: The metric is not defined for the given relevance.
        """
        spec = self.spec
        arguments: list[object] = []
        if spec.ranked_levels:
            arguments.append(levels)
        elif spec.positive_ranks:
            arguments.append(RaggedIndices.from_mask(levels.cpu().numpy() > 0))
        arguments.append(statistics)
        if spec.cutoff:
            arguments.append(self.k)
        if spec.level:
            arguments.append(self.level)
        if spec.weights is not None:
            level_weights = weights[spec.weights]
            if level_weights is None and spec.weights == "self_counting_relevance":
                raise ConfigurationError(
                    f"{self.name} is defined for the relevance of Eq. 20 only, not for one of your own"
                )
            arguments.append(level_weights)
        return spec.function(*arguments)


@dataclass(frozen=True)
class NeededRanks:
    """Ranks on which metrics depend.

    Args:
        first: Number of ranks that all rankings need.
        levels: Levels l for which the first R_l ranks are needed, R_l being the number of items of
            level l or finer.
    """

    first: int
    levels: tuple[int, ...] = ()

    def count(self, positives: Tensor) -> int:
        """Return the number of ranks needed, 1 or more.

        Args:
            positives: int64, shape (n_query, L); number of items of level 1, ..., L or finer.
        """
        n_ranks = max(self.first, 1)
        for level in self.levels:
            n_ranks = max(n_ranks, int(positives[:, level - 1].max()))
        return n_ranks


def needed_ranks(metrics: Sequence[Metric]) -> NeededRanks | None:
    """Return the ranks on which metrics depend; None for whole rankings."""
    first = 0
    levels: set[int] = set()
    for metric in metrics:
        if metric.n_ranks is not None:
            first = max(first, metric.n_ranks)
        elif metric.spec.first_positives and metric.level is not None:
            levels.add(metric.level)
        else:
            return None
    return NeededRanks(first, tuple(sorted(levels)))


def default_metrics(n_levels: int, n_ranked: int) -> list[str]:
    """Return the metrics of the papers: mAP@100, mAP@R, R@1, H-AP, NDCG, ASI, AP of each level.

    Args:
        n_levels: Number of levels L.
        n_ranked: Number of ranked items; mAP@100 needs 100.

    >>> default_metrics(n_levels=2, n_ranked=1000)
    ['mAP@100', 'mAP@R', 'R@1', 'H-AP', 'NDCG', 'ASI', 'AP_l2', 'AP_l1']
    """
    names = ["mAP@R", "R@1", "H-AP", "NDCG", "ASI"]
    if n_ranked >= 100:
        names.insert(0, "mAP@100")
    for level in range(n_levels, 0, -1):
        names.append(f"AP_l{level}")
    return names


def _similar_name(name: str) -> str | None:
    """Return the metric whose name is spelt most like this one; None if no spelling is similar."""
    names = {_spelling(metric): metric for metric in reversed(METRICS) if metric != name}
    similar = similar_names(_spelling(name), names)
    return names[similar[0]] if similar else None


def _spelling(name: str) -> str:
    """Return a name without its level, in lower case, with k for numbers and without punctuation."""
    stem = name.partition("_l")[0].casefold()
    with_k = re.sub(r"[0-9]+", "k", stem)
    return re.sub(r"[^a-z@]", "", with_k)


def _unknown_metric(name: str) -> ConfigurationError:
    """Return the error about a name that is not the name of a metric."""
    similar = _similar_name(name)
    question = f" (did you mean {similar}?)" if similar else ""
    with_level = [metric for metric, spec in METRICS.items() if spec.level]
    without_level = [metric for metric, spec in METRICS.items() if not spec.level]
    return ConfigurationError(
        f"there is no metric {name!r}{question}; expected {', '.join(with_level[:-1])} or {with_level[-1]}, each "
        f"with _lN for a level N that is not the finest, or {', '.join(without_level)}"
    )
