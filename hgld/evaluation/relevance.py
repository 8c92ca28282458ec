"""Relevance of gallery items by their level (paper, Eq. 20 and Property 1), and the gain of NDCG.

A relevance is a function of the number of items at each level. It maps counts, float64, shape (n_query, L + 1) with
level 0 first, to relevances of the same shape, 0 at level 0. None of them looks at single items, so all are cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError

#: Function from the number of items at each level to the relevance of each level, both float64, (n_query, L + 1).
Relevance = Callable[[torch.Tensor], torch.Tensor]


def hierarchical_relevance(counts: torch.Tensor, alpha: float = 1.0, *, count_query: bool = False) -> torch.Tensor:
    """Relevance (l/L)^alpha / |Omega^(l)| of an item of level l (paper, Eq. 20).

    Args:
        counts: float64, shape (n_query, L + 1); |Omega^(l)|, the number of items of exactly level l.
        alpha: Exponent, 0 or more: 1 in H-AP; larger values favour fine levels.
        count_query: Whether to count the query itself in |Omega^(L)|, as the authors' published code does when
            queries are excluded from their own gallery. It lowers the weight of the finest level.

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
    """Relevance for which H-AP is the weighted sum of the APs of all levels (paper, Property 1).

    The relevance of an item of level l is the sum over p <= l of w_p / |Omega^(+,p)|, where Omega^(+,p) are the items
    of level p or finer. The AP of a level without positives is undefined: it drops out of the sum, and the other
    weights are scaled to add up to 1, which :func:`hgld.evaluation.metrics.h_ap` does by itself.

    Args:
        counts: float64, shape (n_query, L + 1), as in :func:`hierarchical_relevance`.
        weights: w_1, ..., w_L, coarsest first, positive.

    Raises:
        ConfigurationError: The number of weights is not L, or one is not positive.

    >>> weighted_ap_relevance(torch.tensor([[5.0, 3.0, 1.0]]), [0.5, 0.5])
    tensor([[0.0000, 0.1250, 0.6250]], dtype=torch.float64)
    """
    n_levels = counts.shape[1] - 1
    check_level_weights(weights, n_levels)
    sizes = counts[:, 1:].to(torch.float64).flip(1).cumsum(1).flip(1)  # of level p or finer
    shares = torch.tensor(list(weights), dtype=torch.float64, device=counts.device) / sizes.clamp(min=1)
    shares = torch.where(sizes > 0, shares, 0.0)
    return torch.nn.functional.pad(shares.cumsum(1), (1, 0))


def check_level_weights(weights: Sequence[float], n_levels: int) -> None:
    """Check the weights of levels in a weighted sum of APs.

    Raises:
        ConfigurationError: Their number is not the number of levels, or one is not positive and finite.
    """
    if len(weights) != n_levels or not all(0 < weight < math.inf for weight in weights):
        raise ConfigurationError(
            f"`level_weights` are {', '.join(f'{weight:g}' for weight in weights) or 'empty'}; expected {n_levels} "
            "positive ones, coarsest first"
        )


def exponential_gain(counts: torch.Tensor) -> torch.Tensor:
    """Gain 2^l - 1 of an item of level l, whatever the counts, for NDCG (paper, section V-B).

    >>> exponential_gain(torch.tensor([[5.0, 3.0, 1.0]]))
    tensor([[0., 1., 3.]], dtype=torch.float64)
    """
    levels = torch.arange(counts.shape[1], dtype=torch.float64, device=counts.device)
    return (2**levels - 1).expand(len(counts), -1)


def by_level(table: npt.ArrayLike) -> Relevance:
    """Return a relevance with given values per level.

    Args:
        table: float, shape (L + 1,), the same for every query, or (n_query, L + 1); level 0 first, which is 0; none
            negative.

    Raises:
        ConfigurationError: The values are negative, infinite, or not 0 at level 0; or, when the relevance is called,
            their shape does not fit the counts.

    >>> by_level([0, 1, 2, 4])(torch.tensor([[5.0, 3.0, 1.0, 1.0]]))
    tensor([[0., 1., 2., 4.]], dtype=torch.float64)
    """
    values = torch.from_numpy(np.atleast_2d(np.asarray(table, np.float64)))
    _check_values(values)

    def relevance(counts: torch.Tensor) -> torch.Tensor:
        if values.shape[1] != counts.shape[1] or len(values) not in (1, len(counts)):
            raise ConfigurationError(
                f"the relevances have the shape {tuple(values.shape)}; expected {counts.shape[1]} levels (level 0 "
                f"first) for one or all of {len(counts)} queries"
            )
        return values.to(counts.device).expand(len(counts), -1)

    return relevance


def checked_relevance(relevance: Relevance) -> Relevance:
    """Return a relevance of one's own that checks its values each time.

    Raises:
        ConfigurationError: (when called) The values have another shape than the counts, are negative, NaN or
            infinite, or not 0 at level 0.
    """
    return partial(_checked_values, relevance)


def _checked_values(relevance: Relevance, counts: torch.Tensor) -> torch.Tensor:
    values = relevance(counts)
    if not isinstance(values, torch.Tensor) or values.shape != counts.shape:
        found = f"the shape {tuple(values.shape)}" if isinstance(values, torch.Tensor) else type(values).__name__
        raise ConfigurationError(
            f"the relevances have {found}; expected a tensor of the shape {tuple(counts.shape)}, as the counts of "
            "items have"
        )
    _check_values(values)
    return values


def _check_values(values: torch.Tensor) -> None:
    if values.ndim != 2:
        raise ConfigurationError(f"the relevances have the shape {tuple(values.shape)}; expected one per level")
    invalid = ~(values.isfinite() & (values >= 0))
    invalid[:, 0] |= values[:, 0] != 0
    if invalid.any():
        row, level = invalid.nonzero()[0].tolist()
        raise ConfigurationError(
            f"the relevance of level {level} is {float(values[row, level]):g} in row {row}; expected 0 at level 0, "
            "and finite numbers of 0 or more at all levels, also at those without items"
        )


class LevelWeights:
    """Weights of the levels for all queries of a task.

    Args:
        relevance: A function of the level counts, or values of the shape (L + 1,) or (n_query, L + 1); Eq. 20 if
            None.
        alpha: Exponent alpha of Eq. 20.
        gain: Gain in the same forms; 2^l - 1 if None.
        level_weights: Weights of the levels in wAP, coarsest first; equal if None.
        shape: (n_query, L + 1).

    Attributes:
        settings: The choices in words, for :attr:`RetrievalResult.settings`.

    Raises:
        ConfigurationError: Values have another shape; those of functions are checked when they are called.
    """

    def __init__(
        self,
        relevance: Relevance | npt.ArrayLike | None,
        alpha: float,
        gain: Relevance | npt.ArrayLike | None,
        level_weights: Sequence[float] | None = None,
        *,
        shape: tuple[int, int],
    ) -> None:
        equation_20 = partial(hierarchical_relevance, alpha=alpha)
        self._relevance = (
            (lambda queries: equation_20) if relevance is None else _by_block(relevance, shape, "relevance")
        )
        self._self_counting = partial(equation_20, count_query=True) if relevance is None else None
        self._gain = (lambda queries: exponential_gain) if gain is None else _by_block(gain, shape, "gain")
        self._level_weights = level_weights
        self.settings = {
            "relevance": f"(l/L)^{alpha:g} / |Omega^(l)|" if relevance is None else "own",
            "gain": "2^l - 1" if gain is None else "own",
            "level_weights": "equal" if level_weights is None else ", ".join(f"{w:g}" for w in level_weights),
        }

    def block(self, queries: slice) -> dict[str, Any]:
        """Return the weights of a block of queries by name.

        ``self_counting_relevance`` counts the query in |Omega^(L)|; None where the relevance is not that of Eq. 20.
        """
        return {
            "relevance": self._relevance(queries),
            "self_counting_relevance": self._self_counting,
            "gain": self._gain(queries),
            "level_weights": self._level_weights,
        }


def _by_block(weights: Relevance | npt.ArrayLike, shape: tuple[int, int], name: str) -> Callable[[slice], Relevance]:
    """Return the function from the queries of a block to their function of level counts."""
    if callable(weights):
        relevance = checked_relevance(weights)
        return lambda queries: relevance
    table = np.asarray(weights, np.float64)
    if table.shape not in (shape, shape[1:]):
        raise ConfigurationError(
            f"the {name} has the shape {table.shape}; expected {shape[1:]}, one value per level from level 0 on, or "
            f"{shape}, a row per query"
        )
    return lambda queries: by_level(table if table.ndim == 1 else table[queries])
