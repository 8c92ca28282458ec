"""Recall at k as a loss: RS@k, Sup-R@k, and ROD-R@k, Sup-R@k made decomposable."""

from __future__ import annotations

from typing import Any

import torch

from hgld.errors import ConfigurationError
from hgld.losses.base import Loss
from hgld.losses.kernels.rank_loss import Mixup, SingleLevelLoss
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.step_sums import rank
from hgld.losses.kernels.steps import HEAVISIDE, SIGMOID, SUPRANK_STEP, Step, check_temperature
from hgld.losses.weighted_sum import WeightedSum, with_decomposability

#: The set K of Patel et al., which the authors of SupRank adopted.
RECALL_KS = (1, 2, 4, 8, 16)


class SupRecall(SingleLevelLoss):
    """L_Sup-R@K (paper, Eq. 16).

    The mean over queries and over the k in K of ::

        1 - 1 / min(|Omega^+|, k) * sum over p in Omega^+ of sigma((k - rank^+(p) - rank_s^-(p)) / tau_star)

    The surrogate bounds the rank from above (with the steps ``eq4`` and ``cfg144``), but the loss does not bound
    1 - TR@k (Eq. 14): its sigmoid also counts a part of each item beyond rank k. So the loss is at most 1, and even
    negative where k is small compared with ``|Omega^+|``.

    Args:
        ks: Cut-offs K, at least one, each 1 or more.
        tau_star: Temperature of the sigmoid, in ranks, at least 1e-8.
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        plus: Step h^+, for positives. Default: Heaviside's, which has no gradient.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: Count each query as one of its own positives (:class:`~hgld.losses.RankLoss`).

    Raises:
        ConfigurationError: A number is out of range, or (when called) the labels have no such level.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupRecall(ks=(2,), include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(1.0000)
    """

    #: Whether the number of positives among the first k is clipped to k.
    clip = False

    def __init__(
        self,
        ks: tuple[int, ...] = RECALL_KS,
        tau_star: float = 1.0,
        *,
        step: Step = SUPRANK_STEP,
        plus: Step = HEAVISIDE,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(step=step, plus=plus, level=level, mixup=mixup, include_query=include_query)
        if not ks or not all(k >= 1 for k in ks):
            raise ConfigurationError(f"`ks` is {list(ks)}; expected at least one k, each 1 or more")
        check_temperature("tau_star", tau_star)
        self.ks = tuple(ks)
        self.tau_star = tau_star

    def binary_query_losses(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """See :meth:`SingleLevelLoss.binary_query_losses`."""
        is_positive = levels > 0
        n_positives = is_positive.sum(1)
        ranks = rank(Ranking(scores, levels, 1), plus=self.plus, minus=self.step)
        recalls = torch.zeros_like(scores[:, 0])
        for k in self.ks:
            hits = (torch.sigmoid((k - ranks) / self.tau_star) * is_positive).sum(1)
            if self.clip:
                hits = hits.clamp(max=k)
            recalls = recalls + hits / n_positives.clamp(max=k)  # 0 / 0 without positives
        return 1 - recalls / len(self.ks)


class SmoothRecall(SupRecall):
    """The recall@k surrogate RS@k (Patel et al., CVPR 2022, Eqs. 5 to 7).

    ``min(|P_q|, k)`` takes the place of ``|P_q|``, as in their section 3.

    As :class:`~hgld.losses.SupRecall` with sigmoids for all steps. ``tau_star`` is tau_1 of that paper, and the
    temperature of ``step`` its tau_2.

    Args:
        ks: Cut-offs K, at least one, each 1 or more. Patel et al. train with 1, 2, 4, 8, 16, and with SiMix with
            1, 2, 4, 8, 12, 16, 20, 24, 28, 32.
        tau_star: Temperature of the outer sigmoid, in ranks, at least 1e-8.
        clip: Clip the number of positives among the first k to k, so that the loss is not negative, as Patel et al.
            do; the authors of SupRank do not.
        step: Steps h^+ and h^-.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: See :class:`~hgld.losses.RankLoss`; Patel et al. exclude the query.
        rank_query: Without ``include_query``, rank the query among the others, but do not count it as a positive:
            every positive has a rank of 2 or more, as in the code of Patel et al., but not in their Eq. 6.

    Raises:
        ConfigurationError: A number is out of range, ``rank_query`` is given together with ``include_query``, or
            (when called) the labels have no such level.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SmoothRecall(ks=(2,), include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.5000)
    """

    def __init__(
        self,
        ks: tuple[int, ...] = RECALL_KS,
        tau_star: float = 1.0,
        *,
        clip: bool = False,
        step: Step = SIGMOID,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
        rank_query: bool = False,
    ) -> None:
        super().__init__(ks, tau_star, step=step, plus=step, level=level, mixup=mixup, include_query=include_query)
        if rank_query and include_query:
            raise ConfigurationError("`rank_query` requires `include_query` false: the query is no positive then")
        self.clip = clip
        self.rank_query = rank_query

    @property
    def query_level(self) -> int | None:
        """See :attr:`~hgld.losses.RankLoss.query_level`."""
        return 0 if self.rank_query else super().query_level


def rod_recall(decomposability: Loss, lambda_: float = 0.5, **sup_recall: Any) -> WeightedSum:
    """Return L_ROD-R@K = (1 - lambda) L_Sup-R@K + lambda L_DG (paper, Eq. 17).

    Args:
        decomposability: :class:`~hgld.losses.ProxyLoss` or :class:`~hgld.losses.DecomposabilityLoss`.
        lambda_: Weight of the decomposability loss, 0 to 1.
        **sup_recall: Keyword arguments of :class:`~hgld.losses.SupRecall`.

    Returns:
        Loss with the parts ``sup_recall`` and ``decomposability``.

    Raises:
        ConfigurationError: A number is out of range.

    >>> from hgld.losses import ProxyLoss
    >>> rod_recall(ProxyLoss(n_classes=4, dim=8), ks=(1, 10)).weights
    {'sup_recall': 0.5, 'decomposability': 0.5}
    """
    return with_decomposability("sup_recall", SupRecall(**sup_recall), decomposability, lambda_)
