"""Relevance and gain of the levels of a task, block by block of its queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from hgld.errors import ConfigurationError
from hgld.evaluation.relevance import Relevance, by_level, checked_relevance, exponential_gain, hierarchical_relevance


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """Weights of the levels for a block of queries.

    Args:
        relevance: Relevance of H-AP, H-R@k and H-P@k.
        self_counting_relevance: The same with the query counted in |Omega^(L)|, for H-AP_selfcount; None where the
            relevance is not that of Eq. 20.
        gain: Gain of NDCG.
        level_weights: Weights of the levels in wAP, coarsest first; None for equal ones.
    """

    relevance: Relevance
    self_counting_relevance: Relevance | None
    gain: Relevance
    level_weights: Sequence[float] | None = None


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
        self._relevance = equation_20 if relevance is None else _checked(relevance, shape, "relevance")
        self._self_counting = partial(equation_20, count_query=True) if relevance is None else None
        self._gain = exponential_gain if gain is None else _checked(gain, shape, "gain")
        self._level_weights = level_weights
        self.settings = {
            "relevance": f"(l/L)^{alpha:g} / |Omega^(l)|" if relevance is None else "own",
            "gain": "2^l - 1" if gain is None else "own",
            "level_weights": "equal" if level_weights is None else ", ".join(f"{w:g}" for w in level_weights),
        }

    def block(self, queries: slice) -> BlockWeights:
        """Return the weights of a block of queries."""
        return BlockWeights(
            _function(self._relevance, queries),
            self._self_counting,
            _function(self._gain, queries),
            self._level_weights,
        )


def _function(weights: Relevance | npt.NDArray[np.float64], queries: slice) -> Relevance:
    """Return the function of level counts for a block of queries."""
    if callable(weights):
        return weights
    return by_level(weights if weights.ndim == 1 else weights[queries])


def _checked(
    weights: Relevance | npt.ArrayLike, shape: tuple[int, int], name: str
) -> Relevance | npt.NDArray[np.float64]:
    if callable(weights):
        return checked_relevance(weights)
    table = np.asarray(weights, np.float64)
    if table.shape not in (shape, shape[1:]):
        raise ConfigurationError(
            f"the {name} has the shape {table.shape}; expected {shape[1:]}, one value per level from level 0 on, or "
            f"{shape}, a row per query"
        )
    return table
