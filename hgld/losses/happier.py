"""HAPPIER, Sup-H-AP made decomposable."""

from __future__ import annotations

from typing import Any

from hgld.losses.base import Loss
from hgld.losses.sup_hap import SupHAP
from hgld.losses.weighted_sum import WeightedSum, with_decomposability


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
