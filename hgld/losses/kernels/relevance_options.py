"""The relevance of H-AP as losses take it: a name that settings can give, or a function."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from hgld.errors import ConfigurationError
from hgld.evaluation.relevance import Relevance, checked_relevance, hierarchical_relevance, weighted_ap_relevance

#: Relevances by name: that of Eq. 20, and that of Property 1.
RelevanceName = Literal["hierarchical", "weighted_ap"]


def chosen_relevance(
    relevance: RelevanceName | Relevance, alpha: float, level_weights: tuple[float, ...] | None
) -> Relevance:
    """Return the relevance that the options of a loss describe.

    Args:
        relevance: ``hierarchical`` for (l/L)^alpha / |Omega^(l)| (paper, Eq. 20), ``weighted_ap`` for the relevance
            with which H-AP is a weighted sum of the APs of all levels (Property 1), or a function of level counts.
        alpha: Exponent of Eq. 20, 0 or more.
        level_weights: Weights w_1, ..., w_L of Property 1, coarsest first, positive. Default: 1/L each.

    Raises:
        ConfigurationError: A value is out of range, or weights are given for another relevance; (when called) the
            number of weights is not L, or see :func:`~hgld.evaluation.relevance.checked_relevance`.

    >>> chosen_relevance("weighted_ap", 1.0, None)(torch.tensor([[5.0, 3.0, 1.0]]))
    tensor([[0.0000, 0.1250, 0.6250]], dtype=torch.float64)
    """
    if not alpha >= 0:
        raise ConfigurationError(f"`alpha` is {alpha}; expected 0 or more")
    if relevance == "weighted_ap":
        if level_weights is not None and not all(weight > 0 for weight in level_weights):
            raise ConfigurationError(f"`level_weights` are {list(level_weights)}; expected positive ones")
        return partial(_weighted_ap_relevance, level_weights=level_weights)
    if level_weights is not None:
        raise ConfigurationError("`level_weights` have no effect without the `relevance` weighted_ap")
    if callable(relevance):
        return checked_relevance(relevance)
    if relevance != "hierarchical":
        raise ConfigurationError(f'`relevance` is "{relevance}"; choose hierarchical or weighted_ap')
    return partial(hierarchical_relevance, alpha=alpha)


def _weighted_ap_relevance(counts: torch.Tensor, level_weights: tuple[float, ...] | None) -> torch.Tensor:
    n_levels = counts.shape[1] - 1
    return weighted_ap_relevance(counts, [1 / n_levels] * n_levels if level_weights is None else level_weights)
