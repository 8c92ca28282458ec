"""ROD-R@k, Sup-R@k made decomposable."""

from __future__ import annotations

from typing import Any

from hgld.losses.base import Loss
from hgld.losses.sup_recall import SupRecall
from hgld.losses.weighted_sum import WeightedSum, with_decomposability


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
