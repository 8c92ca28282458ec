"""Metrics by the names that users ask for and results carry, such as ``mAP@100``, ``AP_l2`` and ``H-AP``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError
from hgld.evaluation import metrics as of
from hgld.evaluation.ranking_statistics import RankingStatistics
from hgld.evaluation.relevance import Relevance, by_level, exponential_gain, hierarchical_relevance
from hgld.hierarchy.label_matrix import column_of


@dataclass(frozen=True, eq=False)
class Weights:
    """What hierarchical metrics weigh levels with.

    Args:
        relevance: of H-AP, H-R@k and H-P@k.
        counting_query: the same with the query counted in |Omega^(L)|, for H-AP_selfcount; None where there is no
            such thing.
        gain: of NDCG.
    """

    relevance: Relevance
    counting_query: Relevance | None
    gain: Relevance


@dataclass(frozen=True)
class Metric:
    """A metric by the name that results give it.

    Args:
        name: such as ``H-AP``, ``mAP@100``, ``R@1_l2`` (level 2), ``AP_l3``, ``NDCG@10``.
        k: the cutoff, if it has one.
        values: its values, float64, shape (n,), from the sums of n rankings.
    """

    name: str
    k: int | None
    values: Callable[[RankingStatistics, Weights], torch.Tensor]

    @classmethod
    def of(cls, name: str, n_levels: int) -> Metric:
        """Find a metric by its name.

        Raises:
            ConfigurationError: there is no such metric, or no such level.
        """
        stem, at_level, number = name.partition("_l")
        head, _, k = stem.partition("@")
        kind = f"{head}@" if k.isdecimal() else stem
        takes_k = kind.endswith("@")
        if (
            kind not in _VALUES
            or takes_k != k.isdecimal()
            or (at_level and not (number.isdecimal() and kind in _BINARY))
        ):
            raise ConfigurationError(
                f"there is no metric {name!r}; expected AP, mAP@R, mAP@K, R@K, TR@K or P@K, each with _lN for a "
                "level N that is not the finest, or H-AP, H-AP_selfcount, H-R@K, H-P@K, NDCG, NDCG@K, ASI"
            )
        level = int(number or n_levels)
        column_of(level, n_levels)  # refuses a level that does not exist
        cutoff = int(k) if takes_k else None
        return cls(name, cutoff, partial(_VALUES[kind], level=level, k=cutoff))


def _h_ap_counting_query(sums: RankingStatistics, weights: Weights) -> torch.Tensor:
    if weights.counting_query is None:
        raise ConfigurationError(
            "H-AP_selfcount is defined for the relevance of Eq. 20 only, not for one of your own"
        )
    return of.h_ap(sums, weights.counting_query)


#: By the name without level and number: from sums, weights, level and k to values.
_VALUES: dict[str, Callable[..., torch.Tensor]] = {
    "AP": lambda sums, _, level, k: of.average_precision(sums, level),
    "mAP@R": lambda sums, _, level, k: of.map_at_r(sums, level),
    "mAP@": lambda sums, _, level, k: of.map_at_k(sums, k, level),
    "R@": lambda sums, _, level, k: of.recall_at_k(sums, k, level),
    "TR@": lambda sums, _, level, k: of.true_recall_at_k(sums, k, level),
    "P@": lambda sums, _, level, k: of.precision_at_k(sums, k, level),
    "H-AP": lambda sums, weights, level, k: of.h_ap(sums, weights.relevance),
    "H-AP_selfcount": lambda sums, weights, level, k: _h_ap_counting_query(sums, weights),
    "H-R@": lambda sums, weights, level, k: of.h_recall_at_k(sums, k, weights.relevance),
    "H-P@": lambda sums, weights, level, k: of.h_precision_at_k(sums, k, weights.relevance),
    "NDCG": lambda sums, weights, level, k: of.ndcg(sums, weights.gain),
    "NDCG@": lambda sums, weights, level, k: of.ndcg_at_k(sums, k, weights.gain),
    "ASI": lambda sums, _, level, k: of.asi(sums),
}
#: Those of them that are about one semantic level.
_BINARY = {"AP", "mAP@R", "mAP@", "R@", "TR@", "P@"}


def default_metrics(n_levels: int, n_ranked: int) -> list[str]:
    """What the papers report: mAP@100 (where 100 items are ranked), mAP@R, R@1, H-AP, NDCG, ASI, AP of each level.

    Levels that come with relevances of their own are no semantic levels: for them H-AP, NDCG and ASI serve.

    >>> default_metrics(n_levels=2, n_ranked=1000)
    ['mAP@100', 'mAP@R', 'R@1', 'H-AP', 'NDCG', 'ASI', 'AP_l2', 'AP_l1']
    """
    head = ["mAP@100"] if n_ranked >= 100 else []
    return [*head, "mAP@R", "R@1", "H-AP", "NDCG", "ASI", *(f"AP_l{level}" for level in range(n_levels, 0, -1))]


class LevelWeights:
    """Relevance and gain of a whole evaluation, block by block.

    Args:
        relevance: a function, or values (L + 1,) or (n_query, L + 1); Eq. 20 unless given.
        alpha: of Eq. 20.
        gain: in the same forms; 2^l - 1 unless given.
        shape: (n_query, L + 1).

    Raises:
        ConfigurationError: values are of another shape.
    """

    def __init__(
        self,
        relevance: Relevance | npt.ArrayLike | None,
        alpha: float,
        gain: Relevance | npt.ArrayLike | None,
        *,
        shape: tuple[int, int],
    ) -> None:
        equation_20 = partial(hierarchical_relevance, alpha=alpha)
        self._relevance = equation_20 if relevance is None else _form(relevance, shape, "relevance")
        self._counting_query = partial(equation_20, count_query=True) if relevance is None else None
        self._gain = exponential_gain if gain is None else _form(gain, shape, "gain")
        self.settings = {
            "relevance": f"(l/L)^{alpha:g} / |Omega^(l)|" if relevance is None else "own",
            "gain": "2^l - 1" if gain is None else "own",
        }

    def of(self, queries: slice) -> Weights:
        """What to weigh a block of queries with."""
        return Weights(_function(self._relevance, queries), self._counting_query, _function(self._gain, queries))


def _function(values: Relevance | npt.NDArray[np.float64], queries: slice) -> Relevance:
    """A relevance from any of its forms."""
    if callable(values):
        return values
    return by_level(values if values.ndim == 1 else values[queries])


def _form(
    values: Relevance | npt.ArrayLike, shape: tuple[int, int], what: str
) -> Relevance | npt.NDArray[np.float64]:
    if callable(values):
        return values
    table = np.asarray(values, np.float64)
    if table.shape not in (shape, shape[1:]):
        raise ConfigurationError(
            f"the {what} has the shape {table.shape}; expected {shape[1:]}, one value per level from level 0 on, or "
            f"{shape}, a row per query"
        )
    return table
