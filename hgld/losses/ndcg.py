"""NDCG as a loss: Smooth-NDCG, Sup-NDCG, and ROD-NDCG, Sup-NDCG made decomposable."""

from __future__ import annotations

from typing import Any

import torch

from hgld.evaluation.relevance import exponential_gain
from hgld.losses.base import Loss
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.step_sums import rank
from hgld.losses.kernels.steps import SIGMOID, Step
from hgld.losses.weighted_sum import WeightedSum, with_decomposability


class SupNDCG(RankLoss):
    """L_Sup-NDCG (paper, Eq. 24), an upper bound of 1 - NDCG.

    The mean over queries of 1 - DCG_s / iDCG with ::

        DCG_s = sum over k in Omega^+ of (2^lv_k - 1) / log2(1 + rank^+(k) + rank_s^-(k))

    and iDCG, the largest DCG of any ranking. It lies between 0 and 1, and is at least 1 - NDCG (Eq. 23) with the
    steps ``eq4`` and ``cfg144``.

    Args:
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        include_query: Count each query as one of its own positives (:class:`~hgld.losses.RankLoss`).

    Raises:
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupNDCG()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.1440)
    """

    def query_losses(
        self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int, relevance: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`RankLoss.query_losses`."""
        ranking = Ranking(scores, levels, n_levels)
        counts = ranking.counts
        gain = exponential_gain(counts) if relevance is None else relevance
        ranks = rank(ranking, plus=self.plus, minus=self.step)
        # the ideal ranking has the finest level first
        discounts = 1 / torch.log2(torch.arange(2, levels.shape[1] + 2, dtype=torch.float64, device=levels.device))
        cumulative = torch.nn.functional.pad(discounts.cumsum(0), (1, 0))
        ends = counts.flip(1).cumsum(1).long()
        ideal = (gain.flip(1) * cumulative[ends].diff(dim=1, prepend=cumulative.new_zeros(len(ends), 1))).sum(1)
        shares = (gain / ideal.unsqueeze(1)).to(scores.dtype)  # 0 / 0 without positives; float32 has no gain of 2^128
        return 1 - (shares.gather(1, levels.clamp(min=0)) / torch.log2(1 + ranks)).sum(1)


class SmoothNDCG(SupNDCG):
    """NDCG (paper, Eq. 23) with sigmoids for all steps.

    As :class:`~hgld.losses.SupNDCG` with other steps; it does not bound 1 - NDCG.

    Args:
        step: Steps h^+ and h^-.
        include_query: Count each query as one of its own positives (:class:`~hgld.losses.RankLoss`).

    Raises:
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothNDCG()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.0373)
    """

    def __init__(self, *, step: Step = SIGMOID, include_query: bool = True) -> None:
        super().__init__(step=step, plus=step, include_query=include_query)


def rod_ndcg(decomposability: Loss, lambda_: float = 0.1, **sup_ndcg: Any) -> WeightedSum:
    """Return L_ROD-NDCG = (1 - lambda) L_Sup-NDCG + lambda L*_DG (paper, Eq. 25).

    Args:
        decomposability: Decomposability loss, L*_DG (:class:`~hgld.losses.ProxyLoss`) in the paper.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_ndcg: Keyword arguments of :class:`~hgld.losses.SupNDCG`.

    Returns:
        Loss with the parts ``sup_ndcg`` and ``decomposability``.

    Raises:
        ConfigurationError: ``lambda_`` is out of range.

    >>> from hgld.losses import ProxyLoss
    >>> rod_ndcg(ProxyLoss(n_classes=4, dim=8)).weights
    {'sup_ndcg': 0.9, 'decomposability': 0.1}
    """
    return with_decomposability("sup_ndcg", SupNDCG(**sup_ndcg), decomposability, lambda_)
