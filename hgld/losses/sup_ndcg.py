"""Sup-NDCG, the normalised discounted cumulative gain with the SupRank surrogate of the rank."""

from __future__ import annotations

from hgld.losses.kernels.metric_surrogates import NDCGLoss
from hgld.losses.kernels.steps import HEAVISIDE, SUPRANK_STEP, Step


class SupNDCG(NDCGLoss):
    """L_Sup-NDCG (paper, Eq. 24), an upper bound of 1 - NDCG.

    The mean over queries of 1 - DCG_s / iDCG with ::

        DCG_s = sum over k in Omega^+ of (2^lv_k - 1) / log2(1 + rank^+(k) + rank_s^-(k))

    and iDCG, the largest DCG of any ranking. It lies between 0 and 1, and is at least 1 - NDCG (Eq. 23) with the
    steps ``eq4`` and ``cfg144``.

    Args:
        step: Step h^-, see :func:`~hgld.losses.suprank_step`. Default: Eq. 4.
        include_query: See :class:`~hgld.losses.RankLoss`.

    Raises:
        InputError: (when called) No query has a positive.

    >>> import torch
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SupNDCG()(embeddings, torch.tensor([[0, 0], [0, 0], [1, 0]]))
    tensor(0.1440)
    """

    def __init__(self, *, step: Step = SUPRANK_STEP, include_query: bool = True) -> None:
        super().__init__(plus=HEAVISIDE, step=step, include_query=include_query)
