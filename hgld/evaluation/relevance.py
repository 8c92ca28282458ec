"""Relevance and gain of items by their level (paper, Eq. 20 and Property 1).

A relevance is a function of the numbers of items at each level. It maps counts, float64, shape
(n_query, L + 1) with level 0 first, to values of the same shape, with 0 at level 0. The gain of
NDCG has the same form. Relevances depend on levels and not on single items, so they are cheap to
compute. Metrics count items by level and never compare relevances: two levels can have the same
relevance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.arrays import Floats
from hgld.errors import ConfigurationError, require_at_least

#: Function from the number of items at each level to the relevance of each level, both float64,
#: shape (n_query, L + 1).
Relevance = Callable[[Tensor], Tensor]


def hierarchical_relevance(
    counts: Tensor, alpha: float = 1.0, *, count_query: bool = False
) -> Tensor:
    """Return the relevance (l/L)^alpha / |Omega^(l)| of an item of level l (paper, Eq. 20).

    Args:
        counts: float64, shape (n_query, L + 1); |Omega^(l)|, the number of items of exactly level l.
        alpha: Exponent, 0 or more: 1 in H-AP; larger values favour fine levels.
        count_query: Whether to count the query itself in |Omega^(L)|, as the authors' published
            code does when queries are excluded from their own gallery. It lowers the weight of the
            finest level.

    Returns:
        float64, shape (n_query, L + 1); 0 for levels without items.

    Raises:
        ConfigurationError: ``alpha`` is negative.

    >>> hierarchical_relevance(torch.tensor([[5.0, 2.0, 1.0]]))
    tensor([[0.0000, 0.2500, 1.0000]], dtype=torch.float64)
    """
    require_at_least(0, alpha=alpha)
    n_levels = counts.shape[1] - 1
    levels = torch.arange(n_levels + 1, dtype=torch.float64, device=counts.device)
    weights = (levels / n_levels) ** alpha
    weights[0] = 0.0  # with alpha = 0 as well
    sizes = counts.to(torch.float64).clone()
    sizes[:, n_levels] += count_query
    return torch.where(counts > 0, weights / sizes.clamp(min=1), 0.0)


def weighted_ap_relevance(counts: Tensor, weights: Sequence[float] | None = None) -> Tensor:
    """Return the relevance for which H-AP is the weighted sum of the APs of all levels (Property 1).

    The relevance of an item of level l is the sum over p <= l of w_p / |Omega^(+,p)|, where
    Omega^(+,p) are the items of level p or finer. The AP of a level without positives is undefined:
    it drops out of the sum, and :func:`~hgld.evaluation.metrics.h_ap` scales the other weights so
    that they add up to 1.

    Args:
        counts: float64, shape (n_query, L + 1), as in :func:`hierarchical_relevance`.
        weights: w_1, ..., w_L, coarsest first, positive. Default: 1/L each.

    Raises:
        ConfigurationError: The number of weights is not L, or a weight is not positive.

    >>> weighted_ap_relevance(torch.tensor([[5.0, 3.0, 1.0]]), [0.5, 0.5])
    tensor([[0.0000, 0.1250, 0.6250]], dtype=torch.float64)
    """
    n_levels = counts.shape[1] - 1
    if weights is None:
        weights = [1 / n_levels] * n_levels
    check_level_weights(weights, n_levels)
    level_weights = torch.tensor(list(weights), dtype=torch.float64, device=counts.device)
    sizes = counts[:, 1:].to(torch.float64).flip(1).cumsum(1).flip(1)  # of level p or finer
    shares = torch.where(sizes > 0, level_weights / sizes.clamp(min=1), 0.0)
    return torch.nn.functional.pad(shares.cumsum(1), (1, 0))


def check_level_weights(weights: Sequence[float], n_levels: int) -> None:
    """Check the weights of levels in a weighted sum of APs.

    Raises:
        ConfigurationError: The number of weights is not the number of levels, or a weight is not
            positive and finite.
    """
    all_positive = all(0 < weight < math.inf for weight in weights)
    if len(weights) != n_levels or not all_positive:
        shown = ", ".join(f"{weight:g}" for weight in weights) or "empty"
        raise ConfigurationError(
            f"`level_weights` are {shown}; expected {n_levels} positive ones, coarsest first"
        )


def exponential_gain(counts: Tensor) -> Tensor:
    """Return the gain 2^l - 1 of an item of level l for NDCG, for any counts (paper, section V-B).

    >>> exponential_gain(torch.tensor([[5.0, 3.0, 1.0]]))
    tensor([[0., 1., 3.]], dtype=torch.float64)
    """
    levels = torch.arange(counts.shape[1], dtype=torch.float64, device=counts.device)
    return (2**levels - 1).expand(len(counts), -1)


def by_level(table: npt.ArrayLike) -> Relevance:
    """Return a relevance with given values per level.

    Args:
        table: float, 0 or more, shape (L + 1,), the same for every query, or (n_query, L + 1);
            level 0 first, whose relevance is 0.

    Raises:
        ConfigurationError: The values are negative, infinite, or not 0 at level 0.

    >>> by_level([0, 1, 2, 4])(torch.tensor([[5.0, 3.0, 1.0, 1.0]]))
    tensor([[0., 1., 2., 4.]], dtype=torch.float64)
    """
    values = torch.from_numpy(np.atleast_2d(np.asarray(table, np.float64)))
    _check_values(values)
    return partial(_expanded, values)


def _expanded(values: Tensor, counts: Tensor) -> Tensor:
    """Return fixed values on the device of the counts, one row per query."""
    return values.to(counts.device).expand(len(counts), -1)


def checked_relevance(relevance: Relevance) -> Relevance:
    """Return a user-defined relevance whose values are checked at every call.

    Raises:
        ConfigurationError: (when called) The values have another shape than the counts, are
            negative, NaN or infinite, or not 0 at level 0.
    """
    return partial(_checked_values, relevance)


def _checked_values(relevance: Relevance, counts: Tensor) -> Tensor:
    """Return the values of a relevance after a check."""
    values = relevance(counts)
    problem = None
    if not isinstance(values, Tensor):
        problem = type(values).__name__
    elif values.shape != counts.shape:
        problem = f"the shape {tuple(values.shape)}"
    if problem is not None:
        raise ConfigurationError(
            f"the relevances have {problem}; expected a tensor of the shape {tuple(counts.shape)}, as the counts of "
            "items have"
        )
    _check_values(values)
    return values


def _check_values(values: Tensor) -> None:
    """Raise a ConfigurationError unless values are finite, 0 or more, and 0 at level 0."""
    invalid = ~(values.isfinite() & (values >= 0))
    invalid[:, 0] |= values[:, 0] != 0
    if invalid.any():
        row, level = invalid.nonzero()[0].tolist()
        raise ConfigurationError(
            f"the relevance of level {level} is {float(values[row, level]):g} in row {row}; expected 0 at level 0, "
            "and finite numbers of 0 or more at all levels, also at those without items"
        )


class LevelWeights:
    """Weights of the levels for all queries of a task: relevance, gain, and weights of APs.

    Args:
        shape: (n_query, L + 1).
        relevance_alpha: Exponent alpha of Eq. 20.
        level_weights: Weights of the levels in ``wAP``, coarsest first. Default: equal.
        relevance: A function of the numbers of items, or values per level, shape (L + 1,) or
            ``shape``. Default: Eq. 20.
        gain: Gain of NDCG, in the same forms. Default: 2^l - 1.

    Attributes:
        settings: The choices in words, for
            :attr:`~hgld.evaluation.results.RetrievalResult.settings`.

    Raises:
        ConfigurationError: Values have another shape. The values of functions are checked when the
            functions are called.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        relevance_alpha: float = 1.0,
        level_weights: Sequence[float] | None = None,
        relevance: Relevance | npt.ArrayLike | None = None,
        gain: Relevance | npt.ArrayLike | None = None,
    ) -> None:
        self._alpha = relevance_alpha
        self._level_weights = level_weights
        self._relevance = _function_or_table(relevance, shape, "relevance")
        self._gain = _function_or_table(gain, shape, "gain")
        self.settings = {
            "relevance": f"(l/L)^{relevance_alpha:g} / |Omega^(l)|",
            "gain": "2^l - 1",
            "level_weights": "equal",
        }
        if relevance is not None:
            self.settings["relevance"] = "own"
        if gain is not None:
            self.settings["gain"] = "own"
        if level_weights is not None:
            self.settings["level_weights"] = ", ".join(f"{weight:g}" for weight in level_weights)

    def block(self, queries: slice) -> dict[str, Any]:
        """Return the weights of a block of queries by name.

        ``self_counting_relevance`` is Eq. 20 with the query counted in |Omega^(L)|; None if another
        relevance was given.
        """
        weights: dict[str, Any] = {
            "relevance": partial(hierarchical_relevance, alpha=self._alpha),
            "self_counting_relevance": None,
            "gain": exponential_gain,
            "level_weights": self._level_weights,
        }
        if self._relevance is None:
            weights["self_counting_relevance"] = partial(weights["relevance"], count_query=True)
        else:
            weights["relevance"] = _relevance_of_block(self._relevance, queries)
        if self._gain is not None:
            weights["gain"] = _relevance_of_block(self._gain, queries)
        return weights


def _function_or_table(
    weights: Relevance | npt.ArrayLike | None, shape: tuple[int, int], name: str
) -> Relevance | Floats | None:
    """Return a function as it is, and values per level as an array after a check of its shape."""
    if weights is None or callable(weights):
        return weights
    table = np.asarray(weights, np.float64)
    if table.shape not in (shape, shape[1:]):
        raise ConfigurationError(
            f"the {name} has the shape {table.shape}; expected {shape[1:]}, one value per level from level 0 on, or "
            f"{shape}, a row per query"
        )
    return table


def _relevance_of_block(weights: Relevance | Floats, queries: slice) -> Relevance:
    """Return the relevance of a block of queries from a function or a table of all queries."""
    if callable(weights):
        return checked_relevance(weights)
    if weights.ndim == 1:
        return by_level(weights)
    return by_level(weights[queries])
