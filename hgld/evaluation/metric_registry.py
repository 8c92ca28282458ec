"""Metrics by name, such as ``mAP@100``, ``AP_l2`` and ``H-AP``.

A metric is a function in :mod:`hgld.evaluation.metrics` and one entry of :data:`METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from hgld.errors import ConfigurationError
from hgld.evaluation import hierarchy_metrics, metrics
from hgld.evaluation.first_ranks import NeededRanks
from hgld.evaluation.level_weights import BlockWeights
from hgld.evaluation.ranking_statistics import RankingStatistics
from hgld.hierarchy.label_matrix import column_of


@dataclass(frozen=True, eq=False)
class RankedBlock:
    """Rankings of n queries, from which metrics take their values.

    Args:
        levels: uint8, shape (n, N); level of the item at each rank, best rank first, up to the last that is needed.
        statistics: Statistics of these rankings.
        weights: Relevance and gain of the levels.
    """

    levels: torch.Tensor
    statistics: RankingStatistics
    weights: BlockWeights


@dataclass(frozen=True)
class MetricSpec:
    """Entry of the registry: how a metric's name becomes a call of its function.

    The function is called as ``function([levels], statistics, [k], [level], [weights])`` with the arguments that it
    takes.

    Args:
        function: Function of :class:`~hgld.evaluation.ranking_statistics.RankingStatistics`.
        ranked_levels: Whether it takes the levels in ranked order.
        tree: Whether levels have to be those of a tree of classes, and not values of relevance.
        first_item: Whether it depends on the first item only.
        first_positives: Whether it depends on the first R items only, R being the number of positives of its level.
        cutoff: Whether it takes a cutoff k.
        level: Whether it takes a semantic level; its name may then end in ``_lN``.
        weights: Field of :class:`BlockWeights` that it takes, if any.
    """

    function: Callable[..., torch.Tensor]
    ranked_levels: bool = False
    tree: bool = False
    first_item: bool = False
    first_positives: bool = False
    cutoff: bool = False
    level: bool = False
    weights: Literal["relevance", "self_counting_relevance", "gain", "level_weights"] | None = None


def _ahp(
    similarity: hierarchy_metrics.Similarity = "height", *, cutoff: bool = False, trapezoid: bool = False
) -> MetricSpec:
    """Return the entry of a variant of AHP."""

    def ahp(levels: torch.Tensor, statistics: RankingStatistics, k: int | None = None) -> torch.Tensor:
        return hierarchy_metrics.average_hierarchical_precision(
            levels, statistics, k, similarity, trapezoid=trapezoid
        )

    return MetricSpec(ahp, ranked_levels=True, tree=True, cutoff=cutoff)


#: Metrics by name; K stands for the cutoff.
METRICS: dict[str, MetricSpec] = {
    "AP": MetricSpec(metrics.average_precision, level=True),
    "wAP": MetricSpec(metrics.weighted_average_precision, weights="level_weights"),
    "mAP@R": MetricSpec(metrics.map_at_r, level=True, first_positives=True),
    "mAP@K": MetricSpec(metrics.map_at_k, cutoff=True, level=True),
    "R@K": MetricSpec(metrics.recall_at_k, cutoff=True, level=True),
    "TR@K": MetricSpec(metrics.true_recall_at_k, cutoff=True, level=True),
    "P@K": MetricSpec(metrics.precision_at_k, cutoff=True, level=True),
    "H-AP": MetricSpec(metrics.h_ap, weights="relevance"),
    "H-AP_selfcount": MetricSpec(metrics.h_ap, weights="self_counting_relevance"),
    "H-R@K": MetricSpec(metrics.h_recall_at_k, cutoff=True, weights="relevance"),
    "H-P@K": MetricSpec(metrics.h_precision_at_k, cutoff=True, weights="relevance"),
    "NDCG": MetricSpec(metrics.ndcg, weights="gain"),
    "NDCG@K": MetricSpec(metrics.ndcg_at_k, cutoff=True, weights="gain"),
    "SI@K": MetricSpec(metrics.set_intersection_at_k, cutoff=True),
    "ASI": MetricSpec(metrics.asi),
    "HP@K": MetricSpec(hierarchy_metrics.hierarchical_precision_at_k, cutoff=True, tree=True),
    "HP_WUP@K": MetricSpec(
        partial(hierarchy_metrics.hierarchical_precision_at_k, similarity="wu_palmer"), cutoff=True, tree=True
    ),
    "AHP": _ahp(),
    "AHP@K": _ahp(cutoff=True),
    "AHP_WUP": _ahp("wu_palmer"),
    "AHP_WUP@K": _ahp("wu_palmer", cutoff=True),
    "AHP_trapezoid": _ahp(trapezoid=True),
    "AHP_trapezoid@K": _ahp(trapezoid=True, cutoff=True),
    "AHP_WUP_trapezoid": _ahp("wu_palmer", trapezoid=True),
    "AHP_WUP_trapezoid@K": _ahp("wu_palmer", trapezoid=True, cutoff=True),
    "WUP@K": MetricSpec(hierarchy_metrics.wu_palmer_at_k, cutoff=True, tree=True),
    "hF": MetricSpec(hierarchy_metrics.hierarchical_f, ranked_levels=True, tree=True, first_item=True),
    "mistake_severity": MetricSpec(
        hierarchy_metrics.mistake_severity, ranked_levels=True, tree=True, first_item=True
    ),
    "avg_hdist@K": MetricSpec(hierarchy_metrics.average_hierarchical_distance_at_k, cutoff=True, tree=True),
    "min_hdist@K": MetricSpec(hierarchy_metrics.least_hierarchical_distance_at_k, cutoff=True, tree=True),
}


@dataclass(frozen=True)
class Metric:
    """A metric with its cutoff and level.

    Args:
        name: Name in results, such as ``H-AP``, ``mAP@100``, ``R@1_l2`` (level 2), ``AP_l3``, ``NDCG@10``.
        k: Cutoff up to which the ranking statistics are needed; None for a metric of whole rankings.
        values: Function from the rankings of n queries to the values of the metric, float64, shape (n,).
        tree: Whether levels have to be those of a tree of classes, and not values of relevance.
        is_graded: Whether it weighs items by their relevance or gain, so that levels need not be semantic.
        n_ranks: Number of ranks that it depends on; None if that is not the same number for all rankings.
        positives_level: Level l of a metric that depends on the first R_l ranks; else None.
    """

    name: str
    k: int | None
    values: Callable[[RankedBlock], torch.Tensor]
    tree: bool = False
    is_graded: bool = False
    n_ranks: int | None = None
    positives_level: int | None = None

    @classmethod
    def from_name(cls, name: str, n_levels: int) -> Metric:
        """Build a metric from its name.

        Args:
            name: Name of an entry of :data:`METRICS`, with a number for K, and ``_lN`` for a level N that is not the
                finest.
            n_levels: Number of levels L.

        Raises:
            ConfigurationError: There is no such metric, or no such level.
        """
        stem, level_suffix, number = name.partition("_l")
        head, _, k = stem.partition("@")
        spec = METRICS.get(f"{head}@K" if k.isdecimal() else stem)
        if spec is None or spec.cutoff != k.isdecimal() or (level_suffix and not (spec.level and number.isdecimal())):
            raise ConfigurationError(f"there is no metric {name!r}; expected {_expected()}")
        level = int(number or n_levels)
        column_of(level, n_levels)  # raises for a level that does not exist
        cutoff = int(k) if spec.cutoff else None
        n_ranks = 1 if spec.first_item else cutoff
        is_graded = spec.weights in ("relevance", "gain")
        positives_level = level if spec.first_positives else None
        return cls(name, cutoff, _call(name, spec, cutoff, level), spec.tree, is_graded, n_ranks, positives_level)


def needed_ranks(metrics: Sequence[Metric]) -> NeededRanks | None:
    """Return the ranks on which metrics depend; None for whole rankings."""
    if any(metric.n_ranks is None and metric.positives_level is None for metric in metrics):
        return None
    levels = {metric.positives_level for metric in metrics if metric.positives_level is not None}
    return NeededRanks(max((metric.n_ranks or 0 for metric in metrics), default=0), tuple(sorted(levels)))


def default_metrics(n_levels: int, n_ranked: int) -> list[str]:
    """Return the metrics that the papers report: mAP@100, mAP@R, R@1, H-AP, NDCG, ASI, AP of each level.

    Args:
        n_levels: Number of levels L.
        n_ranked: Number of ranked items; mAP@100 needs 100.

    >>> default_metrics(n_levels=2, n_ranked=1000)
    ['mAP@100', 'mAP@R', 'R@1', 'H-AP', 'NDCG', 'ASI', 'AP_l2', 'AP_l1']
    """
    head = ["mAP@100"] if n_ranked >= 100 else []
    return [*head, "mAP@R", "R@1", "H-AP", "NDCG", "ASI", *(f"AP_l{level}" for level in range(n_levels, 0, -1))]


def _call(name: str, spec: MetricSpec, k: int | None, level: int) -> Callable[[RankedBlock], torch.Tensor]:
    """Return the function that calls a registered one with the arguments it takes."""

    def values(block: RankedBlock) -> torch.Tensor:
        arguments: list[object] = [k] if spec.cutoff else []
        if spec.level:
            arguments.append(level)
        if spec.weights is not None:
            weights = getattr(block.weights, spec.weights)
            if weights is None and spec.weights == "self_counting_relevance":
                raise ConfigurationError(
                    f"{name} is defined for the relevance of Eq. 20 only, not for one of your own"
                )
            arguments.append(weights)
        if spec.ranked_levels:
            return spec.function(block.levels, block.statistics, *arguments)
        return spec.function(block.statistics, *arguments)

    return values


def _expected() -> str:
    by_level = [name for name, spec in METRICS.items() if spec.level]
    others = [name for name, spec in METRICS.items() if not spec.level]
    return (
        f"{', '.join(by_level[:-1])} or {by_level[-1]}, each with _lN for a level N that is not the finest, or "
        f"{', '.join(others)}"
    )
