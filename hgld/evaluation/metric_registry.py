"""Metrics by name, such as ``mAP@100``, ``AP_l2`` and ``H-AP``.

A metric is a function in :mod:`hgld.evaluation.metrics` and one entry of :data:`METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from hgld.errors import ConfigurationError
from hgld.evaluation import metrics
from hgld.evaluation.ranking_keys import NeededRanks
from hgld.evaluation.ranking_statistics import RankingStatistics
from hgld.hierarchy.label_matrix import column_of


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
        weights: Weights of the levels that it takes, if any.
    """

    function: Callable[..., torch.Tensor]
    ranked_levels: bool = False
    tree: bool = False
    first_item: bool = False
    first_positives: bool = False
    cutoff: bool = False
    level: bool = False
    weights: Literal["relevance", "self_counting_relevance", "gain", "level_weights"] | None = None


def _ahp(cutoff: bool, **options: Any) -> MetricSpec:
    """Return the entry of a variant of AHP."""
    function = partial(metrics.average_hierarchical_precision, **options)
    return MetricSpec(function, ranked_levels=True, tree=True, cutoff=cutoff)


#: Variants of AHP by the end of their names.
_AHP: dict[str, dict[str, Any]] = {
    "": {},
    "_WUP": {"similarity": "wu_palmer"},
    "_trapezoid": {"trapezoid": True},
    "_WUP_trapezoid": {"similarity": "wu_palmer", "trapezoid": True},
}
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
    "HP@K": MetricSpec(metrics.hierarchical_precision_at_k, cutoff=True, tree=True),
    "HP_WUP@K": MetricSpec(
        partial(metrics.hierarchical_precision_at_k, similarity="wu_palmer"), cutoff=True, tree=True
    ),
    **{f"AHP{end}{k}": _ahp(bool(k), **options) for end, options in _AHP.items() for k in ("", "@K")},
    "WUP@K": MetricSpec(metrics.wu_palmer_at_k, cutoff=True, tree=True),
    "hF": MetricSpec(metrics.hierarchical_f, ranked_levels=True, tree=True, first_item=True),
    "mistake_severity": MetricSpec(metrics.mistake_severity, ranked_levels=True, tree=True, first_item=True),
    "avg_hdist@K": MetricSpec(metrics.average_hierarchical_distance_at_k, cutoff=True, tree=True),
    "min_hdist@K": MetricSpec(metrics.least_hierarchical_distance_at_k, cutoff=True, tree=True),
}


@dataclass(frozen=True)
class Metric:
    """A metric with its cutoff and level.

    Args:
        name: Name in results, such as ``H-AP``, ``mAP@100``, ``R@1_l2`` (level 2), ``AP_l3``, ``NDCG@10``.
        spec: Its entry in :data:`METRICS`, or one of its own.
        k: Cutoff up to which the ranking statistics are needed; None for a metric of whole rankings.
        level: Semantic level, of a metric that takes one.
    """

    name: str
    spec: MetricSpec
    k: int | None = None
    level: int | None = None

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
        return cls(name, spec, int(k) if spec.cutoff else None, level)

    @property
    def is_graded(self) -> bool:
        """Whether it weighs items by their relevance or gain, so that levels need not be semantic."""
        return self.spec.weights in ("relevance", "gain")

    @property
    def n_ranks(self) -> int | None:
        """Number of ranks that it depends on; None if that is not the same number for all rankings."""
        return 1 if self.spec.first_item else self.k

    def values(self, levels: torch.Tensor, statistics: RankingStatistics, weights: Mapping[str, Any]) -> torch.Tensor:
        """Return the values of the metric for n queries: float64, shape (n,).

        Args:
            levels: uint8, shape (n, N); level of the item at each rank, best rank first, up to the last needed.
            statistics: Statistics of these rankings.
            weights: Relevance and gain of the levels, from :class:`~hgld.evaluation.relevance.LevelWeights`.
        """
        spec = self.spec
        arguments: list[object] = [levels, statistics] if spec.ranked_levels else [statistics]
        arguments += [self.k] if spec.cutoff else []
        arguments += [self.level] if spec.level else []
        if spec.weights is not None:
            if (chosen := weights[spec.weights]) is None and spec.weights == "self_counting_relevance":
                raise ConfigurationError(
                    f"{self.name} is defined for the relevance of Eq. 20 only, not for one of your own"
                )
            arguments.append(chosen)
        return spec.function(*arguments)


def needed_ranks(metrics: Sequence[Metric]) -> NeededRanks | None:
    """Return the ranks on which metrics depend; None for whole rankings."""
    if any(metric.n_ranks is None and not metric.spec.first_positives for metric in metrics):
        return None
    levels = {metric.level for metric in metrics if metric.spec.first_positives and metric.level is not None}
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


def _expected() -> str:
    by_level = [name for name, spec in METRICS.items() if spec.level]
    others = [name for name, spec in METRICS.items() if not spec.level]
    return (
        f"{', '.join(by_level[:-1])} or {by_level[-1]}, each with _lN for a level N that is not the finest, or "
        f"{', '.join(others)}"
    )
