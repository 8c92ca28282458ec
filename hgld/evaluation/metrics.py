"""Metrics of rankings, binary at each semantic level and hierarchical; one value per query.

All of them are functions of :class:`~hgld.evaluation.ranking_statistics.RankingStatistics`: float64 tensors of the shape (n,), one value
per ranking, in [0, 1]. Where a ranking has no positive that a metric could be about, its value is NaN; means leave it
out. A name fixes a metric's denominator:

=============  =====================================================================================
``AP``         sum of the precisions at the ranks of positives, divided by their number R (Eq. 34)
``mAP@R``      the same over the first R ranks, divided by R (Musgrave et al., ECCV 2020)
``mAP@k``      the same over the first k ranks, divided by min(R, k) (GLDv2, Weyand et al., CVPR 2020)
``R@k``        1 if any of the first k items is positive, else 0 (Eq. 13)
``TR@k``       positives among the first k, divided by min(R, k) (Eq. 14)
``P@k``        positives among the first k, divided by k
``H-AP``       hierarchical AP, for any relevance (Eq. 19)
``H-R@k``      relevance among the first k, divided by that of all items (Eq. 30)
``H-P@k``      hierarchical precision at the item of rank k (Eq. 31); NaN where it is irrelevant
``NDCG``       discounted gain, divided by that of a perfect ranking (Eq. 23)
``NDCG@k``     both over the first k ranks
``ASI``        mean over n = 1, ..., N of the share of the first n items that belong there (App. C-A1)
=============  =====================================================================================

``level`` says who is positive: the items of that level or finer, the finest level unless given.

>>> ranked = torch.tensor([[1, 3, 0, 1, 3]], dtype=torch.uint8)  # the bottom ranking of the paper's Fig. 14
>>> sums = ranking_statistics(ranked, n_levels=3, cutoffs=[1, 2])
>>> average_precision(sums), recall_at_k(sums, 1)
(tensor([0.4500], dtype=torch.float64), tensor([0.], dtype=torch.float64))
>>> h_ap(sums, by_level([0, 1 / 3, 2 / 3, 1]))
tensor([0.6687], dtype=torch.float64)
"""

from __future__ import annotations

import torch

from hgld.errors import ConfigurationError
from hgld.evaluation.ranking_statistics import RankingStatistics, ranking_statistics
from hgld.evaluation.relevance import Relevance, by_level, exponential_gain, hierarchical_relevance
from hgld.hierarchy.label_matrix import column_of

__all__ = [
    "asi",
    "average_precision",
    "by_level",
    "h_ap",
    "h_precision_at_k",
    "h_recall_at_k",
    "map_at_k",
    "map_at_r",
    "ndcg",
    "ndcg_at_k",
    "precision_at_k",
    "ranking_statistics",
    "recall_at_k",
    "true_recall_at_k",
]


def average_precision(sums: RankingStatistics, level: int | None = None) -> torch.Tensor:
    """AP of a semantic level (paper, Eq. 34; Eq. 9 at the finest)."""
    at = _position(sums, level)
    return _ratio(sums.precision[:, at, at], sums.positives[:, at])


def map_at_r(sums: RankingStatistics, level: int | None = None) -> torch.Tensor:
    """mAP@R: precisions at the positives among the first R items, divided by R (Musgrave et al., ECCV 2020)."""
    at = _position(sums, level)
    return _ratio(sums.precision_at_r[:, at], sums.positives[:, at])


def map_at_k(sums: RankingStatistics, k: int, level: int | None = None) -> torch.Tensor:
    """mAP@k: precisions at the positives among the first k, divided by min(R, k) (Weyand et al., CVPR 2020)."""
    at = _position(sums, level)
    return _ratio(sums.precision_at[:, at, _cutoff(sums, k)], sums.positives[:, at].clamp(max=k))


def recall_at_k(sums: RankingStatistics, k: int, level: int | None = None) -> torch.Tensor:
    """R@k: whether any of the first k items is positive (paper, Eq. 13)."""
    at = _position(sums, level)
    hit = (sums.hits_at[:, at, _cutoff(sums, k)] > 0).to(torch.float64)
    return torch.where(sums.positives[:, at] > 0, hit, torch.nan)


def true_recall_at_k(sums: RankingStatistics, k: int, level: int | None = None) -> torch.Tensor:
    """TR@k: positives among the first k, divided by min(R, k) (paper, Eq. 14)."""
    at = _position(sums, level)
    return _ratio(sums.hits_at[:, at, _cutoff(sums, k)], sums.positives[:, at].clamp(max=k))


def precision_at_k(sums: RankingStatistics, k: int, level: int | None = None) -> torch.Tensor:
    """P@k: positives among the first k, divided by k."""
    at = _position(sums, level)
    return torch.where(sums.positives[:, at] > 0, sums.hits_at[:, at, _cutoff(sums, k)] / k, torch.nan)


def h_ap(sums: RankingStatistics, relevance: Relevance = hierarchical_relevance) -> torch.Tensor:
    """Hierarchical average precision (paper, Eq. 19) for any relevance that depends on the level.

    Equal to AP where L = 1, and to the weighted sum of APs with
    :func:`~hgld.evaluation.relevance.weighted_ap_relevance` (Property 1).
    """
    relevances = relevance(sums.counts())[:, 1:]
    # From "level l or finer" to "exactly level l", on both axes.
    exact = sums.precision - torch.nn.functional.pad(sums.precision, (0, 0, 0, 1))[:, 1:]
    exact = exact - torch.nn.functional.pad(exact, (0, 1))[:, :, 1:]
    lesser = torch.minimum(relevances[:, :, None], relevances[:, None, :])
    return _ratio((lesser * exact).sum((1, 2)), (relevances * sums.counts()[:, 1:]).sum(1))


def h_recall_at_k(sums: RankingStatistics, k: int, relevance: Relevance = hierarchical_relevance) -> torch.Tensor:
    """H-R@k: the relevance of the first k items, divided by that of all (paper, Eq. 30)."""
    relevances = relevance(sums.counts())[:, 1:]
    found = (relevances * _exact_hits(sums, k)).sum(1)
    return _ratio(found, (relevances * sums.counts()[:, 1:]).sum(1))


def h_precision_at_k(sums: RankingStatistics, k: int, relevance: Relevance = hierarchical_relevance) -> torch.Tensor:
    """H-P@k: how relevant the first k items are, compared with the one at rank k (paper, Eq. 31).

    It is defined where the item at rank k is relevant, and NaN elsewhere. H-AP is the sum over k of
    (H-R@k - H-R@(k - 1)) H-P@k (Eq. 32).
    """
    relevances = relevance(sums.counts())
    own = relevances.gather(1, sums.level_at[:, _cutoff(sums, k)][:, None])
    total = (torch.minimum(relevances[:, 1:], own) * _exact_hits(sums, k)).sum(1)
    return _ratio(total, k * own[:, 0])


def ndcg(sums: RankingStatistics, gain: Relevance = exponential_gain) -> torch.Tensor:
    """NDCG over the whole ranking (paper, Eq. 23), discount 1 / log2(1 + rank), gain 2^l - 1 unless given."""
    steps = _gain_steps(sums, gain)
    return _ratio((steps * sums.discount).sum(1), (steps * sums.ideal_discount).sum(1))


def ndcg_at_k(sums: RankingStatistics, k: int, gain: Relevance = exponential_gain) -> torch.Tensor:
    """NDCG over the first k ranks: the gain found there, divided by the most that k ranks can hold."""
    steps, at = _gain_steps(sums, gain), _cutoff(sums, k)
    return _ratio((steps * sums.discount_at[..., at]).sum(1), (steps * sums.ideal_discount_at[..., at]).sum(1))


def asi(sums: RankingStatistics) -> torch.Tensor:
    """Average set intersection (paper, App. C-A1).

    The mean over n = 1, ..., N, with N the number of items of level 1 or finer, of |A_n & B_n| / n: A_n are the first
    n items, B_n those of a perfect ranking, in which items of one level may stand for each other.
    """
    return _ratio(sums.overlap, sums.positives[:, 0])


def _ratio(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    return torch.where(denominator > 0, numerator / denominator, torch.nan)


def _position(sums: RankingStatistics, level: int | None) -> int:
    """Where a level stands on the axes of the sums; :func:`column_of` refuses one that does not exist."""
    level = sums.n_levels if level is None else level
    return sums.n_levels - 1 - column_of(level, sums.n_levels)


def _cutoff(sums: RankingStatistics, k: int) -> int:
    if k not in sums.cutoffs:
        raise ConfigurationError(f"the rankings were not summed up to rank {k}; name it among the cutoffs")
    return sums.cutoffs.index(k)


def _exact_hits(sums: RankingStatistics, k: int) -> torch.Tensor:
    """The items of exactly level 1, ..., L among the first k: shape (n, L)."""
    hits = sums.hits_at[..., _cutoff(sums, k)]
    return hits - torch.nn.functional.pad(hits, (0, 1))[:, 1:]


def _gain_steps(sums: RankingStatistics, gain: Relevance) -> torch.Tensor:
    """What each level adds to the gain of the one below: shape (n, L)."""
    gains = gain(sums.counts())
    steps = gains.diff(dim=1)
    if (steps < 0).any() or gains[:, 0].any():
        raise ConfigurationError(
            "the gain is not 0 for level 0, or falls from a level to a finer one; expected 0 for level 0, then more "
            "and more"
        )
    return steps
