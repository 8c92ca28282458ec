"""Hierarchical average precision as a loss: Smooth-H-AP, Sup-H-AP, and HAPPIER, Sup-H-AP made decomposable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import torch

from hgld.errors import ConfigurationError, require_at_least
from hgld.evaluation.relevance import Relevance, checked_relevance, hierarchical_relevance, weighted_ap_relevance
from hgld.losses.base import Loss, summed_levels
from hgld.losses.kernels.rank_loss import Pairs, RankLoss
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.step_sums import h_rank_plus, rank
from hgld.losses.kernels.steps import HEAVISIDE, SIGMOID, SUPRANK_STEP, LeakyStep, Step
from hgld.losses.weighted_sum import WeightedSum, with_decomposability

#: Relevances by name: that of Eq. 20, that of Property 1, and that of Algorithm 1 of the thesis.
RelevanceName = Literal["hierarchical", "weighted_ap", "algorithm1"]
#: Steps of H-rank^+ that settings can choose.
FinerStep = Literal["heaviside", "leaky"]
#: None is h^+, as for other items.
_FINER_STEPS: Mapping[str, Step | None] = {"heaviside": None, "leaky": LeakyStep()}


class SupHAP(RankLoss):
    """L_Sup-H-AP (paper, Eq. 21), an upper bound of 1 - H-AP.

    The mean over queries of ::

        1 - 1 / (sum over k in Omega^+ of rel(k)) * sum over k in Omega^+ of H-rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and is at least 1 - H-AP (Eq. 19) with the steps ``eq4`` and ``cfg144``.

    Args:
        alpha: Exponent of the relevance ``(l/L)^alpha / |Omega^(l)|`` (Eq. 20), 0 or more; 3 or 5 in HAPPIER_F.
            ``|Omega^(L)|`` counts the query if the query is in its retrieval set.
        relevance: ``hierarchical`` for Eq. 20; ``weighted_ap`` for that of Property 1, which makes H-AP a weighted
            sum of the APs of all levels and ignores ``alpha`` (Table XI); ``algorithm1`` for that of Algorithm 1 of
            the thesis, the mean of l/L over the query's labels, without ``alpha``; or a function of the level counts.
        level_weights: Weights of the levels' APs with ``weighted_ap``, coarsest first, positive. Default: 1/L each.
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        finer: Step of H-rank^+ for items of finer levels than that of k: ``heaviside``; ``leaky`` for
            :class:`~hgld.losses.LeakyStep`, which gives H-rank^+ a gradient (``with_hrank`` in the authors' settings,
            on in one of HAPPIER_F on SOP); or another step.
        include_query: Count each query as one of its own positives (:class:`~hgld.losses.RankLoss`).

    Raises:
        ConfigurationError: A value is out of range; (when called) the number of ``level_weights`` is not that of
            the levels.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupHAP(alpha=1.0)(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.2004)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        relevance: RelevanceName | Relevance = "hierarchical",
        level_weights: tuple[float, ...] | None = None,
        *,
        step: Step = SUPRANK_STEP,
        plus: Step = HEAVISIDE,
        finer: FinerStep | Step = "heaviside",
        include_query: bool = True,
    ) -> None:
        super().__init__(step=step, plus=plus, include_query=include_query)
        if isinstance(finer, str) and finer not in _FINER_STEPS:
            raise ConfigurationError(f'`finer` is "{finer}"; choose heaviside or leaky')
        self.finer = _FINER_STEPS[finer] if isinstance(finer, str) else finer
        self.relevance = _chosen_relevance(relevance, alpha, level_weights)
        self.sums_labels = relevance == "algorithm1"

    def pairs_of_labels(self, labels: torch.Tensor, reference_labels: torch.Tensor) -> Pairs:
        """See :meth:`RankLoss.pairs_of_labels`; with Algorithm 1, levels are sums over the labels of the query."""
        if not self.sums_labels:
            return super().pairs_of_labels(labels, reference_labels)
        return Pairs(lambda block: summed_levels(labels[block], reference_labels), labels[0].numel())

    def query_losses(
        self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int, relevance: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`RankLoss.query_losses`."""
        ranking = Ranking(scores, levels, n_levels)
        relevance = self.relevance(ranking.counts) if relevance is None else relevance
        rank_plus = h_rank_plus(ranking, relevance.to(scores.dtype), plus=self.plus, finer=self.finer)
        ratios = rank_plus / rank(ranking, plus=self.plus, minus=self.step)
        total = relevance.gather(1, levels.clamp(min=0)).sum(1)
        return 1 - (ratios * (levels > 0)).sum(1) / total.to(scores.dtype)  # 0 / 0 without positives


class SmoothHAP(SupHAP):
    """H-AP with sigmoids for all steps, in the manner of Smooth-AP (baseline of the paper's Table X).

    As :class:`~hgld.losses.SupHAP` with other steps; it does not bound 1 - H-AP.

    Args:
        alpha: Exponent of the relevance ``(l/L)^alpha / |Omega^(l)|`` (paper, Eq. 20), 0 or more.
        relevance: ``hierarchical`` for Eq. 20; ``weighted_ap`` for that of Property 1, which makes H-AP a weighted
            sum of the APs of all levels and ignores ``alpha`` (Table XI); ``algorithm1`` for that of Algorithm 1 of
            the thesis, the mean of l/L over the query's labels, without ``alpha``; or a function of the level counts.
        level_weights: Weights of the levels' APs with ``weighted_ap``, coarsest first, positive. Default: 1/L each.
        step: Steps h^+ and h^-.
        include_query: Count each query as one of its own positives (:class:`~hgld.losses.RankLoss`).

    Raises:
        ConfigurationError: A value is out of range; (when called) the number of ``level_weights`` is not that of
            the levels.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothHAP()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.0029)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        relevance: RelevanceName | Relevance = "hierarchical",
        level_weights: tuple[float, ...] | None = None,
        *,
        step: Step = SIGMOID,
        include_query: bool = True,
    ) -> None:
        super().__init__(alpha, relevance, level_weights, step=step, plus=step, include_query=include_query)


def happier(decomposability: Loss, lambda_: float = 0.1, **sup_hap: Any) -> WeightedSum:
    """Return L_HAPPIER = (1 - lambda) L_Sup-H-AP + lambda L*_DG (paper, Eq. 22).

    HAPPIER_F is the same with an ``alpha`` above 1: 5 on SOP, 3 on iNaturalist (section VII-C).

    Args:
        decomposability: Decomposability loss, L*_DG (:class:`~hgld.losses.ProxyLoss`) in the paper.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_hap: Keyword arguments of :class:`~hgld.losses.SupHAP`.

    Returns:
        Loss with the parts ``sup_hap`` and ``decomposability``.

    Raises:
        ConfigurationError: A number is out of range.

    >>> from hgld.losses import ProxyLoss
    >>> happier(ProxyLoss(n_classes=4, dim=8), lambda_=0.5, alpha=5.0).weights
    {'sup_hap': 0.5, 'decomposability': 0.5}
    """
    return with_decomposability("sup_hap", SupHAP(**sup_hap), decomposability, lambda_)


def _chosen_relevance(
    relevance: RelevanceName | Relevance, alpha: float, level_weights: tuple[float, ...] | None
) -> Relevance:
    """Return the relevance that the options of :class:`SupHAP` describe."""
    require_at_least(0, alpha=alpha)
    if relevance == "weighted_ap":
        if level_weights is not None and not all(weight > 0 for weight in level_weights):
            raise ConfigurationError(f"`level_weights` are {list(level_weights)}; expected positive ones")
        return partial(_weighted_ap_relevance, level_weights=level_weights)
    if level_weights is not None:
        raise ConfigurationError("`level_weights` have no effect without the `relevance` weighted_ap")
    if relevance == "algorithm1":
        return _level_shares
    if callable(relevance):
        return checked_relevance(relevance)
    if relevance != "hierarchical":
        raise ConfigurationError(f'`relevance` is "{relevance}"; choose hierarchical, weighted_ap or algorithm1')
    return partial(hierarchical_relevance, alpha=alpha)


def _weighted_ap_relevance(counts: torch.Tensor, level_weights: tuple[float, ...] | None) -> torch.Tensor:
    n_levels = counts.shape[1] - 1
    return weighted_ap_relevance(counts, [1 / n_levels] * n_levels if level_weights is None else level_weights)


def _level_shares(counts: torch.Tensor) -> torch.Tensor:
    """Return l / L: Algorithm 1 up to a factor of each query, of which H-AP does not depend."""
    n_levels = counts.shape[1] - 1
    return (torch.arange(n_levels + 1, dtype=torch.float64, device=counts.device) / n_levels).expand_as(counts)
