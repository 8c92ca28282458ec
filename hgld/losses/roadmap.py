"""ROADMAP, Sup-AP made decomposable."""

from __future__ import annotations

from typing import Any

from hgld.losses.base import Loss
from hgld.losses.sup_ap import SupAP
from hgld.losses.weighted_sum import WeightedSum, with_decomposability


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
