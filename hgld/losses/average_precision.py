"""Average precision as a loss: Smooth-AP, Sup-AP, and ROADMAP, Sup-AP made decomposable."""

from __future__ import annotations

from typing import Any

import torch

from hgld.losses.base import Loss
from hgld.losses.kernels.rank_loss import Mixup, SingleLevelLoss
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.step_sums import step_sums
from hgld.losses.kernels.steps import SIGMOID, Step
from hgld.losses.weighted_sum import WeightedSum, with_decomposability


class SupAP(SingleLevelLoss):
    """L_Sup-AP (paper, Eq. 11), an upper bound of 1 - AP.

    The mean over queries of ::

        1 - 1 / |Omega^+| * sum over k in Omega^+ of rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and is at least 1 - AP (Eq. 9) with the steps ``eq4`` and ``cfg144``.

    Args:
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: Count each query as one of its own positives (:class:`~hgld.losses.RankLoss`).

    Raises:
        ConfigurationError: (when called) The labels have no such level.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupAP(include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.9565)
    """

    def binary_query_losses(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """See :meth:`SingleLevelLoss.binary_query_losses`."""
        is_positive = levels > 0
        among_positives = scores.new_tensor([[[0, 0], [0, 1]]])
        ranking = Ranking(scores, levels, 1)
        rank_plus = 1 + step_sums(ranking, (among_positives, self.plus))
        rank_minus = step_sums(ranking, (among_positives.flip(2), self.step))
        ratios = rank_plus / (rank_plus + rank_minus)
        return 1 - (ratios * is_positive).sum(1) / is_positive.sum(1)  # 0 / 0 without positives


class SmoothAP(SupAP):
    """L_Smooth-AP (Brown et al., ECCV 2020, Eqs. 5 to 7).

    As :class:`~hgld.losses.SupAP` with sigmoids for all steps; it does not bound 1 - AP.

    Args:
        step: Steps h^+ and h^-.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: Count each query as one of its own positives (:class:`~hgld.losses.RankLoss`).

    Raises:
        ConfigurationError: (when called) The labels have no such level.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothAP(include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        *,
        step: Step = SIGMOID,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(step=step, plus=step, level=level, mixup=mixup, include_query=include_query)


def roadmap(decomposability: Loss, lambda_: float = 0.1, **sup_ap: Any) -> WeightedSum:
    """Return L_ROADMAP = (1 - lambda) L_Sup-AP + lambda L_DG (paper, Eq. 12).

    Args:
        decomposability: :class:`~hgld.losses.ProxyLoss`, which the paper keeps after its Table II, or
            :class:`~hgld.losses.DecomposabilityLoss`; ROADMAP of NeurIPS 2021 is the latter with a lambda of 0.5 and,
            as published, the reduction ``violating``.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_ap: Keyword arguments of :class:`~hgld.losses.SupAP`.

    Returns:
        Loss with the parts ``sup_ap`` and ``decomposability``.

    Raises:
        ConfigurationError: A number is out of range.

    >>> from hgld.losses import ProxyLoss
    >>> roadmap(ProxyLoss(n_classes=4, dim=8), include_query=False).weights
    {'sup_ap': 0.9, 'decomposability': 0.1}
    """
    return with_decomposability("sup_ap", SupAP(**sup_ap), decomposability, lambda_)
