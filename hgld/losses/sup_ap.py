"""Sup-AP, average precision with the SupRank surrogate of the rank."""

from __future__ import annotations

from hgld.losses.kernels.metric_surrogates import APLoss, Mixup
from hgld.losses.kernels.steps import HEAVISIDE, SUPRANK_STEP, Step


class SupAP(APLoss):
    """L_Sup-AP (paper, Eq. 11), an upper bound of 1 - AP.

    The mean over queries of ::

        1 - 1 / |Omega^+| * sum over k in Omega^+ of rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and is at least 1 - AP (Eq. 9) with the steps ``eq4`` and ``cfg144``.

    Args:
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: (when called) The labels have no such level.
        InputError: (when called) No query has a positive.

    >>> import torch
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupAP(include_query=False)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.9565)
    """

    def __init__(
        self,
        *,
        step: Step = SUPRANK_STEP,
        level: int | None = None,
        mixup: Mixup | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(plus=HEAVISIDE, step=step, level=level, mixup=mixup, include_query=include_query)
