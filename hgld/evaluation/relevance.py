"""Relevance of gallery items by their level (paper, Eq. 20 and Property 1), and the gain of NDCG.

A relevance is a function of how many items each level has for each query. It maps counts, float64 of the shape
(n_query, L + 1) with level 0 first, to relevances of the same shape; level 0 has none. All of them are cheap: the
items themselves are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError

#: From the number of items at each level to the relevance of each level, both float64 (n_query, L + 1).
Relevance = Callable[[torch.Tensor], torch.Tensor]


def hierarchical_relevance(counts: torch.Tensor, alpha: float = 1.0, *, count_query: bool = False) -> torch.Tensor:
    """rel(k) = (l/L)^alpha / |Omega^(l)| for an item k of level l (paper, Eq. 20).

    Args:
        counts: float64, shape (n_query, L + 1); |Omega^(l)|, the items of exactly level l.
        alpha: how fast relevance falls towards coarse levels: 1 in H-AP, more favours fine levels.
        count_query: count the query itself in |Omega^(L)|, as the authors' published code does when queries are
            left out of their own gallery. It lowers the weight of the finest level.

    Returns:
        float64, shape (n_query, L + 1); 0 for levels without items.

    Raises:
        ConfigurationError: ``alpha`` is negative.

    >>> hierarchical_relevance(torch.tensor([[5.0, 2.0, 1.0]]))
    tensor([[0.0000, 0.2500, 1.0000]], dtype=torch.float64)
    """
    if not alpha >= 0:
        raise ConfigurationError(f"alpha is {alpha}; expected 0 or more")
    n_levels = counts.shape[1] - 1
    levels = torch.arange(n_levels + 1, dtype=torch.float64, device=counts.device)
    weights = (levels / n_levels) ** alpha
    weights[0] = 0.0  # with alpha = 0 as well
    sizes = counts.to(torch.float64).clone()
    sizes[:, n_levels] += count_query
    return torch.where(counts > 0, weights / sizes.clamp(min=1), 0.0)


def weighted_ap_relevance(counts: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """The relevance that makes H-AP the weighted sum of the APs of all levels (paper, Property 1).

    rel(k) = sum over p <= l of w_p / |Omega^(+,p)| for an item k of level l, where Omega^(+,p) are the items of
    level p or finer. Where a level has no positives for a query, its AP does not exist: it drops out of the sum, and
    the other weights are scaled to add up to 1, which :func:`hgld.evaluation.metrics.h_ap` does by itself.

    Args:
        counts: as in :func:`hierarchical_relevance`.
        weights: w_1, ..., w_L, coarsest first, positive.

    Raises:
        ConfigurationError: the number of weights is not L, or one is not positive.

    >>> weighted_ap_relevance(torch.tensor([[5.0, 3.0, 1.0]]), [0.5, 0.5])
    tensor([[0.0000, 0.1250, 0.6250]], dtype=torch.float64)
    """
    n_levels = counts.shape[1] - 1
    if len(weights) != n_levels or not all(weight > 0 for weight in weights):
        raise ConfigurationError(
            f"the weights are {list(weights)}; expected {n_levels} positive ones, coarsest first"
        )
    sizes = counts[:, 1:].to(torch.float64).flip(1).cumsum(1).flip(1)  # of level p or finer
    shares = torch.tensor(list(weights), dtype=torch.float64, device=counts.device) / sizes.clamp(min=1)
    shares = torch.where(sizes > 0, shares, 0.0)
    return torch.nn.functional.pad(shares.cumsum(1), (1, 0))


def exponential_gain(counts: torch.Tensor) -> torch.Tensor:
    """2^l - 1 for an item of level l, whatever the counts: the gain of NDCG (paper, section V-B).

    >>> exponential_gain(torch.tensor([[5.0, 3.0, 1.0]]))
    tensor([[0., 1., 3.]], dtype=torch.float64)
    """
    levels = torch.arange(counts.shape[1], dtype=torch.float64, device=counts.device)
    return (2**levels - 1).expand(len(counts), -1)


def by_level(table: npt.ArrayLike) -> Relevance:
    """A relevance of one's own: a value per level, level 0 first.

    Args:
        table: shape (L + 1,), the same for every query, or (n_query, L + 1); 0 for level 0, none negative.

    Raises:
        ConfigurationError: the values are not that; or, when used, there are not as many as queries and levels.

    >>> by_level([0, 1, 2, 4])(torch.tensor([[5.0, 3.0, 1.0, 1.0]]))
    tensor([[0., 1., 2., 4.]], dtype=torch.float64)
    """
    array = np.atleast_2d(np.asarray(table, np.float64))
    if array.ndim != 2 or not (np.isfinite(array) & (array >= 0)).all() or array[:, 0].any():
        raise ConfigurationError(f"the relevances are {array}; expected one per level, 0 first, none negative")
    values = torch.from_numpy(array)

    def relevance(counts: torch.Tensor) -> torch.Tensor:
        if values.shape[1] != counts.shape[1] or len(values) not in (1, len(counts)):
            raise ConfigurationError(
                f"the relevances have the shape {tuple(values.shape)}; expected {counts.shape[1]} levels (level 0 "
                f"first) for one or all of {len(counts)} queries"
            )
        return values.to(counts.device).expand(len(counts), -1)

    return relevance
