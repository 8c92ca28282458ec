"""Losses that put surrogates of the rank (:mod:`~hgld.losses.kernels.ranks`) into H-AP and NDCG, over all levels.

Losses called Sup have Heaviside's step for h^+, which has no gradient, and for h^- one that bounds it from above: so
they bound 1 minus the metric, with ties counted against the ranking. Losses called Smooth have sigmoids for both.

All of them take embeddings (B, d), labels (B, L), and references if there are any; :class:`RankLoss` says more.
"""

from __future__ import annotations

from functools import partial

import torch

from hgld.errors import ConfigurationError
from hgld.evaluation.relevance import Relevance, exponential_gain, hierarchical_relevance
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.ranks import count_levels, h_rank_plus, rank
from hgld.losses.kernels.steps import Heaviside, Sigmoid, Step, SupRankStep

_SUPRANK = SupRankStep()
_SIGMOID = Sigmoid()


class _HAP(RankLoss):
    def __init__(
        self,
        alpha: float,
        relevance: Relevance | None,
        plus: Step,
        step: Step,
        finer: Step | None,
        include_query: bool,
    ) -> None:
        super().__init__(step=step, include_query=include_query)
        if not alpha >= 0:
            raise ConfigurationError(f"alpha is {alpha}; expected 0 or more")
        self.relevance: Relevance = relevance or partial(hierarchical_relevance, alpha=alpha)
        self.plus = plus
        self.finer = finer

    def per_query(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        relevance = self.relevance(count_levels(levels, n_levels))
        rank_plus = h_rank_plus(scores, levels, relevance.to(scores.dtype), plus=self.plus, finer=self.finer)
        ratios = rank_plus / rank(scores, levels, n_levels, plus=self.plus, minus=self.step)
        total = relevance.gather(1, levels.clamp(min=0)).sum(1)
        return 1 - (ratios * (levels > 0)).sum(1) / total.to(scores.dtype)  # 0 / 0 without positives


class SupHAP(_HAP):
    """L_Sup-H-AP (paper, Eq. 21).

    The mean over queries of ::

        1 - 1 / (sum over k in Omega^+ of rel(k)) * sum over k in Omega^+ of H-rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and nowhere below 1 - H-AP (Eq. 19) with the steps ``eq4`` and ``cfg144``.

    Args:
        alpha: of the relevance (l/L)^alpha / |Omega^(l)| (Eq. 20), 0 or more; HAPPIER_F has 3 or 5. |Omega^(L)|
            counts the query if the query is in its retrieval set.
        relevance: another one, in place of Eq. 20.
        step: H^-.
        finer: the step in H-rank^+ for items of finer levels than that of k, which gives H-rank^+ a gradient; None
            for Heaviside's. See :class:`~hgld.losses.kernels.steps.LeakyStep`.
        include_query: see :class:`RankLoss`.

    Raises:
        ConfigurationError: ``alpha`` is negative.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        relevance: Relevance | None = None,
        *,
        step: Step = _SUPRANK,
        finer: Step | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(alpha, relevance, Heaviside(), step, finer, include_query)


class SmoothHAP(_HAP):
    """:class:`SupHAP` with sigmoids for all steps, in the manner of Smooth-AP; no bound of 1 - H-AP.

    Args:
        alpha: as in :class:`SupHAP`.
        relevance: as in :class:`SupHAP`.
        step: h^+ and h^-.
        include_query: see :class:`RankLoss`.

    Raises:
        ConfigurationError: ``alpha`` is negative.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        relevance: Relevance | None = None,
        *,
        step: Step = _SIGMOID,
        include_query: bool = True,
    ) -> None:
        super().__init__(alpha, relevance, step, step, None, include_query)


class _NDCG(RankLoss):
    def __init__(self, plus: Step, step: Step, include_query: bool) -> None:
        super().__init__(step=step, include_query=include_query)
        self.plus = plus

    def per_query(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        counts = count_levels(levels, n_levels)
        gain = exponential_gain(counts)
        ranks = rank(scores, levels, n_levels, plus=self.plus, minus=self.step)
        dcg = (gain.to(scores.dtype).gather(1, levels.clamp(min=0)) / torch.log2(1 + ranks)).sum(1)
        # the ideal ranking has the finest level first
        discounts = 1 / torch.log2(torch.arange(2, levels.shape[1] + 2, dtype=torch.float64, device=levels.device))
        up_to = torch.nn.functional.pad(discounts.cumsum(0), (1, 0))
        ends = counts.flip(1).cumsum(1).long()
        ideal = (gain.flip(1) * up_to[ends].diff(dim=1, prepend=up_to.new_zeros(len(ends), 1))).sum(1)
        return 1 - dcg / ideal.to(dcg.dtype)  # 0 / 0 without positives


class SupNDCG(_NDCG):
    """L_Sup-NDCG (paper, Eq. 24).

    The mean over queries of 1 - DCG_s / iDCG with ::

        DCG_s = sum over k in Omega^+ of (2^lv_k - 1) / log2(1 + rank^+(k) + rank_s^-(k))

    and iDCG, the largest DCG that a ranking has. It lies between 0 and 1, and nowhere below 1 - NDCG (Eq. 23) with
    the steps ``eq4`` and ``cfg144``.

    Args:
        step: H^-.
        include_query: see :class:`RankLoss`.
    """

    def __init__(self, *, step: Step = _SUPRANK, include_query: bool = True) -> None:
        super().__init__(Heaviside(), step, include_query)


class SmoothNDCG(_NDCG):
    """:class:`SupNDCG` with sigmoids for all steps; no bound of 1 - NDCG.

    Args:
        step: h^+ and h^-.
        include_query: see :class:`RankLoss`.
    """

    def __init__(self, *, step: Step = _SIGMOID, include_query: bool = True) -> None:
        super().__init__(step, step, include_query)
