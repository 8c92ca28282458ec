"""Metrics of rankings, one value per query: binary ones at each semantic level, and hierarchical ones.

Each is a function of :class:`~hgld.evaluation.ranking_statistics.RankingStatistics` and returns float64, shape (n,),
one value per ranking, in [0, 1], or in levels for distances; NaN where a ranking has no item that the metric could
count as positive. Means exclude NaN. The name of a metric fixes its denominator:

=============  =====================================================================================
``AP``         sum of the precisions at the ranks of positives, divided by their number R (Eq. 34)
``mAP@R``      the same over the first R ranks, divided by R (Musgrave et al., ECCV 2020)
``mAP@k``      the same over the first k ranks, divided by min(R, k) (GLDv2, Weyand et al., CVPR 2020)
``R@k``        1 if any of the first k items is positive, else 0 (Eq. 13)
``TR@k``       positives among the first k, divided by min(R, k) (Eq. 14)
``P@k``        positives among the first k, divided by k
``wAP``        weighted sum of the APs of all levels, sum over l of w_l AP_l (Property 1)
``H-AP``       hierarchical AP, for any relevance (Eq. 19)
``H-R@k``      relevance among the first k, divided by that of all items (Eq. 30)
``H-P@k``      hierarchical precision at the item of rank k (Eq. 31); NaN where it is irrelevant
``NDCG``       discounted gain, divided by that of a perfect ranking (Eq. 23)
``NDCG@k``     both over the first k ranks
``SI@k``       overlap of the first k items with those of a perfect ranking, divided by k; NaN where k > N (App. C-A1)
``ASI``        mean over n = 1, ..., N of SI@n, N being the number of items of level 1 or finer (App. C-A1)
=============  =====================================================================================

``level`` selects the positives: the items of that level or finer; the finest level by default.

The following metrics of other fields are defined by the lowest common ancestor (LCA) of two classes in a tree. With
labels at L levels all classes have the same depth, and an item of level l has its LCA with the query l levels below
the root: at height L - l, where the root has the height L.

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

Their similarities are NaN where no item has anything in common with the query; mistake severity and the distances
where no item is of the query's class: no answer would be right. The mean of ``avg_hdist@1`` is that of
``mistake_severity`` times 1 - R@1.

>>> from hgld.evaluation.ranking_statistics import ranking_statistics
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

A metric is a function here and one entry of :data:`METRICS`, which gives it its name.

Relevance (Eq. 20 and Property 1) and the gain of NDCG are functions of the number of items at each level. They map
counts, float64, shape (n_query, L + 1) with level 0 first, to values of the same shape, 0 at level 0. None of them
looks at single items, so all are cheap. Metrics count items by level and never compare relevances: two levels can
have the same relevance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.arrays import Integers
from hgld.compute.machine import parallel_map
from hgld.errors import ConfigurationError, require_at_least, similar_names
from hgld.evaluation.ranking_statistics import RankingStatistics, cutoff_index
from hgld.hierarchy.label_matrix import column_of
from hgld.ragged import RaggedIndices

#: Function from the number of items at each level to the relevance of each level, both float64, (n_query, L + 1).
Relevance = Callable[[Tensor], Tensor]


def hierarchical_relevance(
    counts: Tensor, alpha: float = 1.0, *, count_query: bool = False
) -> Tensor:
    """Relevance (l/L)^alpha / |Omega^(l)| of an item of level l (paper, Eq. 20).

    Args:
        counts: float64, shape (n_query, L + 1); |Omega^(l)|, the number of items of exactly level l.
        alpha: Exponent, 0 or more: 1 in H-AP; larger values favour fine levels.
        count_query: Whether to count the query itself in |Omega^(L)|, as the authors' published code does when
            queries are excluded from their own gallery. It lowers the weight of the finest level.

    Returns:
        float64, shape (n_query, L + 1); 0 for levels without items.

    Raises:
        ConfigurationError: ``alpha`` is negative.

    >>> hierarchical_relevance(torch.tensor([[5.0, 2.0, 1.0]]))
    tensor([[0.0000, 0.2500, 1.0000]], dtype=torch.float64)
    """
    require_at_least(0, alpha=alpha)
    n_levels = counts.shape[1] - 1
    levels = torch.arange(n_levels + 1, dtype=torch.float64, device=counts.device)
    weights = (levels / n_levels) ** alpha
    weights[0] = 0.0  # with alpha = 0 as well
    sizes = counts.to(torch.float64).clone()
    sizes[:, n_levels] += count_query
    return torch.where(counts > 0, weights / sizes.clamp(min=1), 0.0)


def weighted_ap_relevance(counts: Tensor, weights: Sequence[float] | None = None) -> Tensor:
    """Relevance for which H-AP is the weighted sum of the APs of all levels (paper, Property 1).

    The relevance of an item of level l is the sum over p <= l of w_p / |Omega^(+,p)|, where Omega^(+,p) are the items
    of level p or finer. The AP of a level without positives is undefined: it drops out of the sum, and the other
    weights are scaled to add up to 1, which :func:`h_ap` does by itself.

    Args:
        counts: float64, shape (n_query, L + 1), as in :func:`hierarchical_relevance`.
        weights: w_1, ..., w_L, coarsest first, positive. Default: 1/L each.

    Raises:
        ConfigurationError: The number of weights is not L, or one is not positive.

    >>> weighted_ap_relevance(torch.tensor([[5.0, 3.0, 1.0]]), [0.5, 0.5])
    tensor([[0.0000, 0.1250, 0.6250]], dtype=torch.float64)
    """
    n_levels = counts.shape[1] - 1
    weights = [1 / n_levels] * n_levels if weights is None else weights
    check_level_weights(weights, n_levels)
    sizes = counts[:, 1:].to(torch.float64).flip(1).cumsum(1).flip(1)  # of level p or finer
    shares = torch.tensor(list(weights), dtype=torch.float64, device=counts.device) / sizes.clamp(
        min=1
    )
    shares = torch.where(sizes > 0, shares, 0.0)
    return torch.nn.functional.pad(shares.cumsum(1), (1, 0))


def check_level_weights(weights: Sequence[float], n_levels: int) -> None:
    """Check the weights of levels in a weighted sum of APs.

    Raises:
        ConfigurationError: Their number is not the number of levels, or one is not positive and finite.
    """
    if len(weights) != n_levels or not all(0 < weight < math.inf for weight in weights):
        raise ConfigurationError(
            f"`level_weights` are {', '.join(f'{weight:g}' for weight in weights) or 'empty'}; expected {n_levels} "
            "positive ones, coarsest first"
        )


def exponential_gain(counts: Tensor) -> Tensor:
    """Gain 2^l - 1 of an item of level l, whatever the counts, for NDCG (paper, section V-B).

    >>> exponential_gain(torch.tensor([[5.0, 3.0, 1.0]]))
    tensor([[0., 1., 3.]], dtype=torch.float64)
    """
    levels = torch.arange(counts.shape[1], dtype=torch.float64, device=counts.device)
    return (2**levels - 1).expand(len(counts), -1)


def by_level(table: npt.ArrayLike) -> Relevance:
    """Return a relevance with given values per level.

    Args:
        table: float, shape (L + 1,), the same for every query, or (n_query, L + 1); level 0 first, which is 0; none
            negative.

    Raises:
        ConfigurationError: The values are negative, infinite, or not 0 at level 0.

    >>> by_level([0, 1, 2, 4])(torch.tensor([[5.0, 3.0, 1.0, 1.0]]))
    tensor([[0., 1., 2., 4.]], dtype=torch.float64)
    """
    values = torch.from_numpy(np.atleast_2d(np.asarray(table, np.float64)))
    _check_values(values)
    return lambda counts: values.to(counts.device).expand(len(counts), -1)


def checked_relevance(relevance: Relevance) -> Relevance:
    """Return a relevance of one's own that checks its values each time.

    Raises:
        ConfigurationError: (when called) The values have another shape than the counts, are negative, NaN or
            infinite, or not 0 at level 0.
    """
    return partial(_checked_values, relevance)


def _checked_values(relevance: Relevance, counts: Tensor) -> Tensor:
    values = relevance(counts)
    if not isinstance(values, Tensor) or values.shape != counts.shape:
        found = (
            f"the shape {tuple(values.shape)}"
            if isinstance(values, Tensor)
            else type(values).__name__
        )
        raise ConfigurationError(
            f"the relevances have {found}; expected a tensor of the shape {tuple(counts.shape)}, as the counts of "
            "items have"
        )
    _check_values(values)
    return values


def _check_values(values: Tensor) -> None:
    invalid = ~(values.isfinite() & (values >= 0))
    invalid[:, 0] |= values[:, 0] != 0
    if invalid.any():
        row, level = invalid.nonzero()[0].tolist()
        raise ConfigurationError(
            f"the relevance of level {level} is {float(values[row, level]):g} in row {row}; expected 0 at level 0, "
            "and finite numbers of 0 or more at all levels, also at those without items"
        )


class LevelWeights:
    """Weights of the levels for all queries of a task.

    Args:
        shape: (n_query, L + 1).
        relevance_alpha: Exponent alpha of Eq. 20.
        level_weights: Weights of the levels in ``wAP``, coarsest first. Default: equal.
        relevance: Relevance: a function of the numbers of items, or values per level, shape (L + 1,) or ``shape``.
            Default: that of Eq. 20.
        gain: Gain of NDCG, in the same forms. Default: 2^l - 1.

    Attributes:
        settings: The choices in words, for :attr:`RetrievalResult.settings`.

    Raises:
        ConfigurationError: Values have another shape; those of functions are checked when they are called.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        relevance_alpha: float = 1.0,
        level_weights: Sequence[float] | None = None,
        relevance: Relevance | npt.ArrayLike | None = None,
        gain: Relevance | npt.ArrayLike | None = None,
    ) -> None:
        equation_20 = partial(hierarchical_relevance, alpha=relevance_alpha)
        self._relevance = (
            (lambda queries: equation_20)
            if relevance is None
            else _by_block(relevance, shape, "relevance")
        )
        self._self_counting = partial(equation_20, count_query=True) if relevance is None else None
        self._gain = (
            (lambda queries: exponential_gain) if gain is None else _by_block(gain, shape, "gain")
        )
        self._level_weights = level_weights
        self.settings = {
            "relevance": f"(l/L)^{relevance_alpha:g} / |Omega^(l)|" if relevance is None else "own",
            "gain": "2^l - 1" if gain is None else "own",
            "level_weights": "equal"
            if level_weights is None
            else ", ".join(f"{w:g}" for w in level_weights),
        }

    def block(self, queries: slice) -> dict[str, Any]:
        """Return the weights of a block of queries by name.

        ``self_counting_relevance`` counts the query in |Omega^(L)|; None where the relevance is not that of Eq. 20.
        """
        return {
            "relevance": self._relevance(queries),
            "self_counting_relevance": self._self_counting,
            "gain": self._gain(queries),
            "level_weights": self._level_weights,
        }


def _by_block(
    weights: Relevance | npt.ArrayLike, shape: tuple[int, int], name: str
) -> Callable[[slice], Relevance]:
    """Return the function from the queries of a block to their function of level counts."""
    if callable(weights):
        relevance = checked_relevance(weights)
        return lambda queries: relevance
    table = np.asarray(weights, np.float64)
    if table.shape not in (shape, shape[1:]):
        raise ConfigurationError(
            f"the {name} has the shape {table.shape}; expected {shape[1:]}, one value per level from level 0 on, or "
            f"{shape}, a row per query"
        )
    return lambda queries: by_level(table if table.ndim == 1 else table[queries])


def average_precision(statistics: RankingStatistics, level: int | None = None) -> Tensor:
    """Average precision at a semantic level (paper, Eq. 34; Eq. 9 at the finest)."""
    axis = _level_index(statistics, level)
    return _ratio(statistics.precision[:, axis, axis], statistics.positives[:, axis])


def weighted_average_precision(
    statistics: RankingStatistics, level_weights: Sequence[float] | None = None
) -> Tensor:
    """Weighted sum of the APs of all levels, written as the sum of w AP in Table XI (paper, Property 1).

    Equal to :func:`h_ap` with :func:`~hgld.evaluation.metrics.weighted_ap_relevance`. The AP of a level without
    positives is undefined: it drops out of the sum, and the other weights are scaled to add up to 1.

    Args:
        level_weights: w_1, ..., w_L, coarsest first, positive; scaled to add up to 1. Equal by default.

    Raises:
        ConfigurationError: The number of weights is not L, or one is not positive.

    >>> from hgld.evaluation.ranking_statistics import ranking_statistics
    >>> statistics = ranking_statistics(torch.tensor([[1, 2]], dtype=torch.uint8), n_levels=2)  # AP_l1 1, AP_l2 1/2
    >>> weighted_average_precision(statistics), weighted_average_precision(statistics, [0.2, 0.8])
    (tensor([0.7500], dtype=torch.float64), tensor([0.6000], dtype=torch.float64))
    """
    n_levels = statistics.n_levels
    chosen = [1.0] * n_levels if level_weights is None else list(level_weights)
    check_level_weights(chosen, n_levels)
    weights = torch.tensor(chosen, dtype=torch.float64, device=statistics.positives.device)
    weights = weights * (statistics.positives > 0)
    precisions = statistics.precision.diagonal(dim1=1, dim2=2) / statistics.positives.clamp(min=1)
    return _ratio((weights * precisions).sum(1), weights.sum(1))


def map_at_r(statistics: RankingStatistics, level: int | None = None) -> Tensor:
    """mAP@R: precisions at the positives among the first R items, divided by R (Musgrave et al., ECCV 2020)."""
    axis = _level_index(statistics, level)
    return _ratio(statistics.precision_at_r[:, axis], statistics.positives[:, axis])


def map_at_k(statistics: RankingStatistics, k: int, level: int | None = None) -> Tensor:
    """mAP@k: precisions at the positives among the first k, divided by min(R, k) (Weyand et al., CVPR 2020)."""
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
    :func:`~hgld.evaluation.metrics.weighted_ap_relevance` (Property 1).
    """
    relevances = relevance(statistics.counts())[:, 1:]
    # exact[l, m] is the sum, over ranks k with an item of exactly level l, of the number of items of exactly level m
    # among the first k, divided by k. Weighted by the lesser relevance, these add up to the sum of H-rank^+(k) / k.
    exact = _exact_levels(_exact_levels(statistics.precision, axis=1), axis=2)
    lesser = torch.minimum(relevances[:, :, None], relevances[:, None, :])
    return _ratio((lesser * exact).sum((1, 2)), (relevances * statistics.counts()[:, 1:]).sum(1))


def h_recall_at_k(
    statistics: RankingStatistics, k: int, relevance: Relevance = hierarchical_relevance
) -> Tensor:
    """H-R@k: relevance of the first k items, divided by that of all items (paper, Eq. 30)."""
    relevances = relevance(statistics.counts())[:, 1:]
    retrieved = (relevances * _exact_hits(statistics, k)).sum(1)
    return _ratio(retrieved, (relevances * statistics.counts()[:, 1:]).sum(1))


def h_precision_at_k(
    statistics: RankingStatistics, k: int, relevance: Relevance = hierarchical_relevance
) -> Tensor:
    """H-P@k: relevance of the first k items, compared with that of the item at rank k (paper, Eq. 31).

    Defined where the item at rank k is relevant, and NaN elsewhere. H-AP is the sum over k of
    (H-R@k - H-R@(k - 1)) H-P@k (Eq. 32).
    """
    relevances = relevance(statistics.counts())
    at_k = relevances.gather(1, statistics.level_at[:, cutoff_index(statistics, k)][:, None])
    total = (torch.minimum(relevances[:, 1:], at_k) * _exact_hits(statistics, k)).sum(1)
    return _ratio(total, k * at_k[:, 0])


def ndcg(statistics: RankingStatistics, gain: Relevance = exponential_gain) -> Tensor:
    """NDCG over the whole ranking (paper, Eq. 23); discount 1 / log2(1 + rank), gain 2^l - 1 by default."""
    steps = _gain_steps(statistics, gain)
    return _ratio((steps * statistics.discount).sum(1), (steps * statistics.ideal_discount).sum(1))


def ndcg_at_k(statistics: RankingStatistics, k: int, gain: Relevance = exponential_gain) -> Tensor:
    """NDCG@k: discounted gain of the first k ranks, divided by the largest that k ranks can have."""
    steps, axis = _gain_steps(statistics, gain), cutoff_index(statistics, k)
    ideal = (steps * statistics.ideal_discount_at[..., axis]).sum(1)
    return _ratio((steps * statistics.discount_at[..., axis]).sum(1), ideal)


def set_intersection_at_k(statistics: RankingStatistics, k: int) -> Tensor:
    """SI@k, set intersection (paper, App. C-A1): share of the first k items that a perfect ranking also has there.

    Items of one level are interchangeable. It is defined for k up to the number of items of level 1 or finer; NaN
    beyond.
    """
    hits = statistics.hits(k)
    common = (hits + (k - statistics.positives).clamp(min=0)).amin(1)
    return torch.where(statistics.positives[:, 0] >= k, common / k, torch.nan)


def asi(statistics: RankingStatistics) -> Tensor:
    """Average set intersection (paper, App. C-A1).

    The mean over n = 1, ..., N, with N the number of items of level 1 or finer, of SI@n = |A_n & B_n| / n: A_n are
    the first n items, B_n those of a perfect ranking, in which items of one level are interchangeable.
    """
    return _ratio(statistics.overlap, statistics.positives[:, 0])


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    return torch.where(denominator > 0, numerator / denominator, torch.nan)


def _level_index(statistics: RankingStatistics, level: int | None) -> int:
    """Return the index of a level on the axes of the statistics; raises for a level that does not exist."""
    level = statistics.n_levels if level is None else level
    column_of(level, statistics.n_levels)  # raises if there is no such level
    return level - 1


def _exact_hits(statistics: RankingStatistics, k: int) -> Tensor:
    """Return the number of items of exactly level 1, ..., L among the first k: shape (n, L)."""
    return _exact_levels(statistics.hits(k), axis=1)


def _exact_levels(sums: Tensor, axis: int) -> Tensor:
    """Return sums over items of exactly level l from sums over items of level l or finer, along an axis of levels."""
    finer = sums.roll(-1, dims=axis)
    finer.select(axis, -1).zero_()  # nothing is finer than the finest level
    return sums - finer


def _gain_steps(statistics: RankingStatistics, gain: Relevance) -> Tensor:
    """Return the difference of each level's gain from that of the level below: shape (n, L)."""
    gains = gain(statistics.counts())
    steps = gains.diff(dim=1)
    if (steps < 0).any() or gains[:, 0].any():
        raise ConfigurationError(
            "the gain is not 0 for level 0, or falls from a level to a finer one; expected 0 for level 0, and no "
            "decrease from level to level"
        )
    return steps


#: ``height``: l / L, of the height of the lowest common ancestor; ``wu_palmer``: (l + 1) / (L + 1).
Similarity = Literal["height", "wu_palmer"]

#: Added to the level l for numbers in the proportions of the similarity.
_OFFSET: dict[Similarity, int] = {"height": 0, "wu_palmer": 1}
#: Elements of a temporary array [rows, ranks], unless a single row has more.
_BLOCK = {"cpu": 2**17, "cuda": 2**24}


def hierarchical_precision_at_k(
    statistics: RankingStatistics, k: int, similarity: Similarity = "height"
) -> Tensor:
    """HP@k: similarity of the first k items, divided by the largest possible one (Deng et al., CVPR 2011).

    Not to be confused with H-P@k (paper, Eq. 31), see :func:`h_precision_at_k`. NaN where nothing is similar or fewer
    than k items are ranked.
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

    Memory is a few MB besides the result, whatever the length of the rankings.

    Args:
        levels: uint8, shape (n, N); level of the item at each rank, best rank first.
        k: Number of ranks; all of them by default.
        trapezoid: Whether to take the area under the curve as published code does (semantic-embeddings of Barz and
            Denzler): by the trapezoidal rule with steps of 1/k, so that a perfect ranking has (k - 1) / k.
    """
    device = levels.device
    last_rank = statistics.n_ranked if k is None else torch.full_like(statistics.n_ranked, k)
    levels = levels[:, :k]
    step = max(1, _BLOCK[device.type] // levels.shape[1])
    rows = zip(
        *(torch.split(part, step) for part in (levels, statistics.positives, last_rank)),
        strict=True,
    )
    sums = parallel_map(partial(_precision_sums, offset=_OFFSET[similarity]), rows, device)
    total, first, last = (torch.cat(parts) for parts in zip(*sums, strict=True))
    if trapezoid:
        total = total - (first + last) / 2
    return _where_similar(statistics, total / last_rank, last_rank)


def wu_palmer_at_k(statistics: RankingStatistics, k: int) -> Tensor:
    """Mean similarity of Wu and Palmer of the first k items, (l + 1) / (L + 1); NaN where nothing is similar."""
    similarity = (statistics.hits(k).sum(1) / k + 1) / (statistics.n_levels + 1)
    return _where_similar(statistics, similarity, k)


def hierarchical_f(levels: Tensor, statistics: RankingStatistics) -> Tensor:
    """Hierarchical F-measure of the first item's class (Kiritchenko et al., 2006); NaN where nothing is similar.

    The ancestors of both classes, including the classes and without the root, have l nodes in common out of L each:
    hierarchical precision, recall and F-measure are all l / L.
    """
    return _where_similar(statistics, levels[:, 0].to(torch.float64) / statistics.n_levels, 1)


def mistake_severity(levels: Tensor, statistics: RankingStatistics) -> Tensor:
    """Height of the LCA with the first item where that is a mistake (Bertinetto et al., CVPR 2020), else NaN."""
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
    """Return the sum of HP@1, ..., HP@n of each row, HP@1 and HP@n."""
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
    """Average precision of one query under the Oxford protocol, by trapezoids.

    The j-th positive (from 0) at rank r (from 0) stands for a step 1 / n_positive of recall, over which precision is
    the mean of that just before it, j / r (1 if r is 0), and that with it, (j + 1) / (r + 1). Eq. 9 of the paper on
    rank losses, and all other APs of hgld, take the second alone, which is never lower: of two positives at ranks 0
    and 3 it makes 0.75, as below, and the trapezoids 0.71.

    Args:
        ranks: Ranks of all positives, ascending, from 0, shape (n_positive,); ignored images do not count.

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
    """Precision among the first k of one query (mP@k), or up to the last positive where that comes earlier.

    Args:
        ranks: Ranks of all positives, ascending, from 0, shape (n_positive,); ignored images do not count.

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
    return torch.tensor(
        [value(ranks.row(query)) for query in range(len(ranks))], dtype=torch.float64
    )


def _where_similar(statistics: RankingStatistics, values: Tensor, n_ranks: int | Tensor) -> Tensor:
    """Return values of rankings with an item that shares a level with the query, and enough items; NaN elsewhere."""
    return torch.where(
        (statistics.positives[:, 0] > 0) & (statistics.n_ranked >= n_ranks), values, torch.nan
    )


def _where_answerable(statistics: RankingStatistics, values: Tensor, n_ranks: int) -> Tensor:
    """Return values of rankings with an item of the query's class, and enough items; NaN elsewhere."""
    return torch.where(
        (statistics.positives[:, -1] > 0) & (statistics.n_ranked >= n_ranks), values, torch.nan
    )


@dataclass(frozen=True)
class MetricSpec:
    """Entry of the registry: how a metric's name becomes a call of its function.

    The function is called as ``function([levels], statistics, [k], [level], [weights])`` with the arguments that it
    takes.

    Args:
        function: Function of :class:`~hgld.evaluation.ranking_statistics.RankingStatistics`.
        ranked_levels: Whether it takes the levels in ranked order.
        positive_ranks: Whether it takes the ranks of the positives, from 0 and ascending, in their place.
        tree: Whether levels have to be those of a tree of classes, and not values of relevance.
        first_item: Whether it depends on the first item only.
        first_positives: Whether it depends on the first R items only, R being the number of positives of its level.
        cutoff: Whether it takes a cutoff k.
        level: Whether it takes a semantic level; its name may then end in ``_lN``.
        weights: Weights of the levels that it takes, if any.
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


def _ahp(cutoff: bool, **options: Any) -> MetricSpec:
    """Return the entry of a variant of AHP."""
    function = partial(average_hierarchical_precision, **options)
    return MetricSpec(function, ranked_levels=True, tree=True, cutoff=cutoff)


#: Variants of AHP by the end of their names.
_AHP: dict[str, dict[str, Any]] = {
    "": {},
    "_WUP": {"similarity": "wu_palmer"},
    "_trapezoid": {"trapezoid": True},
    "_WUP_trapezoid": {"similarity": "wu_palmer", "trapezoid": True},
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
    **{
        f"AHP{end}{k}": _ahp(bool(k), **options)
        for end, options in _AHP.items()
        for k in ("", "@K")
    },
    "WUP@K": MetricSpec(wu_palmer_at_k, cutoff=True, tree=True),
    "hF": MetricSpec(hierarchical_f, ranked_levels=True, tree=True, first_item=True),
    "mistake_severity": MetricSpec(
        mistake_severity, ranked_levels=True, tree=True, first_item=True
    ),
    "avg_hdist@K": MetricSpec(average_hierarchical_distance_at_k, cutoff=True, tree=True),
    "min_hdist@K": MetricSpec(least_hierarchical_distance_at_k, cutoff=True, tree=True),
}


def _revisited(value: Callable[[Integers], float]) -> MetricSpec:
    return MetricSpec(partial(_by_positive_ranks, value), positive_ranks=True)


#: Metrics of the protocol of ROxford5k and RParis6k by name; other protocols do not have them.
REVISITED_METRICS: dict[str, MetricSpec] = {
    "mAP": _revisited(revisited_average_precision),
    **{f"mP@{k}": _revisited(partial(revisited_precision_at, k=k)) for k in (1, 5, 10)},
}


@dataclass(frozen=True)
class Metric:
    """A metric with its cutoff and level.

    Args:
        name: Name in results, such as ``H-AP``, ``mAP@100``, ``R@1_l2`` (level 2), ``AP_l3``, ``NDCG@10``.
        spec: Its entry in :data:`METRICS`, or one of its own.
        k: Cutoff up to which the ranking statistics are needed; None for a metric without a cutoff.
        level: Semantic level, of a metric that takes one.
    """

    name: str
    spec: MetricSpec
    k: int | None = None
    level: int | None = None

    @classmethod
    def from_name(cls, name: str, n_levels: int) -> Metric:
        """Build a metric from its name.

        Args:
            name: Name of an entry of :data:`METRICS`, with a number for K, and ``_lN`` for a level N that is not the
                finest.

        Raises:
            ConfigurationError: There is no such metric, or no such level.
        """
        stem, level_suffix, number = name.partition("_l")
        head, _, k = stem.partition("@")
        spec = METRICS.get(f"{head}@K" if k.isdecimal() else stem)
        if (
            spec is None
            or spec.cutoff != k.isdecimal()
            or (level_suffix and not (spec.level and number.isdecimal()))
        ):
            similar = _similar_name(name)
            question = f" (did you mean {similar}?)" if similar else ""
            raise ConfigurationError(
                f"there is no metric {name!r}{question}; expected {_expected()}"
            )
        level = int(number or n_levels)
        column_of(level, n_levels)  # raises for a level that does not exist
        return cls(name, spec, int(k) if spec.cutoff else None, level)

    @property
    def is_graded(self) -> bool:
        """Whether it weighs items by their relevance or gain, so that levels need not be semantic."""
        return self.spec.weights in ("relevance", "gain")

    @property
    def n_ranks(self) -> int | None:
        """Number of ranks that it depends on; None if that is not the same number for all rankings."""
        return 1 if self.spec.first_item else self.k

    def values(
        self, levels: Tensor, statistics: RankingStatistics, weights: Mapping[str, Any]
    ) -> Tensor:
        """Return the values of the metric for n queries: float64, shape (n,).

        Args:
            levels: uint8, shape (n, N); level of the item at each rank, best rank first, up to the last needed.
            weights: Relevance and gain of the levels, from :class:`~hgld.evaluation.metrics.LevelWeights`.
        """
        spec = self.spec
        arguments: list[object] = [levels, statistics] if spec.ranked_levels else [statistics]
        if spec.positive_ranks:
            arguments = [RaggedIndices.from_mask(levels.cpu().numpy() > 0), statistics]
        arguments += [self.k] if spec.cutoff else []
        arguments += [self.level] if spec.level else []
        if spec.weights is not None:
            if (
                chosen := weights[spec.weights]
            ) is None and spec.weights == "self_counting_relevance":
                raise ConfigurationError(
                    f"{self.name} is defined for the relevance of Eq. 20 only, not for one of your own"
                )
            arguments.append(chosen)
        return spec.function(*arguments)


@dataclass(frozen=True)
class NeededRanks:
    """Ranks on which metrics depend.

    Args:
        first: Number of ranks that all rankings need.
        levels: Levels l for which the first R_l ranks are needed, R_l being the number of items of level l or finer.
    """

    first: int
    levels: tuple[int, ...] = ()

    def count(self, positives: Tensor) -> int:
        """Return the number of ranks needed, 1 or more, for the number of positives, int64, shape (n_query, L)."""
        return max(self.first, 1, *(int(positives[:, level - 1].max()) for level in self.levels))


def needed_ranks(metrics: Sequence[Metric]) -> NeededRanks | None:
    """Return the ranks on which metrics depend; None for whole rankings."""
    if any(metric.n_ranks is None and not metric.spec.first_positives for metric in metrics):
        return None
    levels = {
        metric.level
        for metric in metrics
        if metric.spec.first_positives and metric.level is not None
    }
    return NeededRanks(
        max((metric.n_ranks or 0 for metric in metrics), default=0), tuple(sorted(levels))
    )


def default_metrics(n_levels: int, n_ranked: int) -> list[str]:
    """Return the metrics that the papers report: mAP@100, mAP@R, R@1, H-AP, NDCG, ASI, AP of each level.

    Args:
        n_ranked: Number of ranked items; mAP@100 needs 100.

    >>> default_metrics(n_levels=2, n_ranked=1000)
    ['mAP@100', 'mAP@R', 'R@1', 'H-AP', 'NDCG', 'ASI', 'AP_l2', 'AP_l1']
    """
    head = ["mAP@100"] if n_ranked >= 100 else []
    return [
        *head,
        "mAP@R",
        "R@1",
        "H-AP",
        "NDCG",
        "ASI",
        *(f"AP_l{level}" for level in range(n_levels, 0, -1)),
    ]


def _similar_name(name: str) -> str | None:
    """Return the metric whose name is spelt almost like this one; None if there is none."""

    def spelling(text: str) -> str:
        return re.sub(r"[^a-z@]", "", re.sub(r"[0-9]+", "k", text.partition("_l")[0].casefold()))

    known = {spelling(metric): metric for metric in reversed(METRICS) if metric != name}
    similar = similar_names(spelling(name), known)
    return known[similar[0]] if similar else None


def _expected() -> str:
    by_level = [name for name, spec in METRICS.items() if spec.level]
    others = [name for name, spec in METRICS.items() if not spec.level]
    return (
        f"{', '.join(by_level[:-1])} or {by_level[-1]}, each with _lN for a level N that is not the finest, or "
        f"{', '.join(others)}"
    )
