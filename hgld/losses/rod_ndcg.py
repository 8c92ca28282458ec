"""ROD-NDCG, Sup-NDCG made decomposable."""

from __future__ import annotations

from typing import Any

from hgld.losses.base import Loss
from hgld.losses.sup_ndcg import SupNDCG
from hgld.losses.weighted_sum import WeightedSum, with_decomposability


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
