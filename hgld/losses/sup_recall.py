"""Sup-R@k, recall at k with the SupRank surrogate of the rank."""

from __future__ import annotations

from hgld.losses.kernels.metric_surrogates import Mixup, RecallLoss
from hgld.losses.kernels.steps import HEAVISIDE, SUPRANK_STEP, Step

#: The set K of Patel et al., which the authors of SupRank adopted.
RECALL_KS = (1, 2, 4, 8, 16)


class SupRecall(RecallLoss):
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
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: A number is out of range, or (when called) the labels have no such level.
        InputError: (when called) No query has a positive.

    >>> import torch
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupRecall(ks=(2,), include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(1.0000)
    """

    def __init__(
        self,
        ks: tuple[int, ...] = RECALL_KS,
        tau_star: float = 1.0,
        *,
        step: Step = SUPRANK_STEP,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(
            ks,
            tau_star,
            clip=False,
            plus=HEAVISIDE,
            step=step,
            level=level,
            mixup=mixup,
            include_query=include_query,
        )
