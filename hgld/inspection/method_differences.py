"""Queries that two methods rank most differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hgld.arrays import Floats, Integers
from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.hierarchy.label_sets import main_labels
from hgld.inspection.queries import TopK, query_values, top_k_items


@dataclass(frozen=True, eq=False)
class MethodRankings:
    """Rankings of the n selected queries by one method.

    Args:
        name: Name of the method.
        per_query: Rows of the queries in the table of the method's result.
        top_k: Top-k gallery items of the queries.
    """

    name: str
    per_query: pd.DataFrame
    top_k: TopK


@dataclass(frozen=True, eq=False)
class MethodDifferences:
    """The n queries whose values differ most: first improved queries, then degraded queries.

    Args:
        metric: Name of the metric.
        level_names: Names of the L levels, finest first, or None for levels without names.
        n_levels: Number of levels L.
        queries: int64, shape (n,); positions of the queries, in both parts by decreasing difference.
        n_improved: Number of these queries that the method improves.
        baseline: Rankings of the baseline.
        method: Rankings of the method.
        total_improved: Number of all queries with a higher value for the method.
        total_degraded: Number of all queries with a lower value for the method.
        total_equal: Number of all queries with the same value.
        mean_difference: Mean over all queries of the method's value minus the baseline's.
    """

    metric: str
    level_names: tuple[str, ...] | None
    n_levels: int
    queries: Integers
    n_improved: int
    baseline: MethodRankings
    method: MethodRankings
    total_improved: int
    total_degraded: int
    total_equal: int
    mean_difference: float

    @property
    def differences(self) -> Floats:
        """The method's value minus the baseline's for each selected query: float64, shape (n,)."""
        method = self.method.per_query[self.metric].to_numpy()
        baseline = self.baseline.per_query[self.metric].to_numpy()
        differences: Floats = method - baseline
        return differences

    def sections(self, max_queries: int | None = None) -> Mapping[str, range]:
        """Return two headings with the rows of the queries below each, at most ``max_queries`` rows."""
        method = self.method.name
        baseline = self.baseline.name
        improved = range(self.n_improved)
        degraded = range(self.n_improved, len(self.queries))
        return {
            f"{method} ranks better than {baseline}": improved[:max_queries],
            f"{method} ranks worse than {baseline}": degraded[:max_queries],
        }


def find_method_differences(
    results: tuple[RetrievalResult, RetrievalResult],
    tasks: tuple[RetrievalTask, RetrievalTask],
    *,
    metric: str = "H-AP",
    n: int = 12,
    k: int = 10,
    config: RankingConfig | None = None,
) -> MethodDifferences | None:
    """Return the queries that a method ranks most differently from a baseline; None without any.

    Half of the queries, rounded up, gain most, the others lose most; there are fewer if fewer gain or
    lose. Each class of the finest level, such as a landmark, is represented only by its most different
    query, because photographs of one landmark look alike and could otherwise fill the whole selection.
    Queries without a value of the metric are ignored.

    Args:
        results: Results of the baseline and of the method, with all queries of the same images.
        tasks: Tasks of the baseline and of the method.
        metric: Name of the metric.
        n: Number of queries.
        k: Number of items of each query.
        config: Settings of the ranking.

    Raises:
        ConfigurationError: A result lacks the metric or does not cover the queries of its task, the
            tasks have different images, the images have no labels, or ``n`` or ``k`` is less than 1.
    """
    baseline_result, method_result = results
    baseline_task, method_task = tasks
    baseline_values = query_values(baseline_result, baseline_task, metric)
    method_values = query_values(method_result, method_task, metric)
    judgements = baseline_task.judgements
    has_same_queries = baseline_result.per_query.index.equals(method_result.per_query.index)
    if not has_same_queries or judgements.n_gallery != method_task.judgements.n_gallery:
        raise ConfigurationError(
            f"{baseline_result.name} and {method_result.name} were not evaluated with the same images; evaluate both "
            "again"
        )
    labels = baseline_task.query_labels
    if labels is None:
        raise ConfigurationError("queries are selected by class; `tasks` needs query labels")
    if n < 1:
        raise ConfigurationError(f"`n` is {n}; expected at least 1")
    differences = method_values - baseline_values
    improved, degraded = _most_different(
        differences, main_labels(labels)[:, 0], (n - n // 2, n // 2)
    )
    queries = np.array(improved + degraded, np.int64)
    if not len(queries):
        return None

    def rankings(result: RetrievalResult, task: RetrievalTask) -> MethodRankings:
        top_k = top_k_items(task, queries, k, config)
        return MethodRankings(result.name, result.per_query.iloc[queries], top_k)

    defined = differences[~np.isnan(differences)]
    return MethodDifferences(
        metric=metric,
        level_names=baseline_task.level_names,
        n_levels=judgements.n_levels,
        queries=queries,
        n_improved=len(improved),
        baseline=rankings(baseline_result, baseline_task),
        method=rankings(method_result, method_task),
        total_improved=int((defined > 0).sum()),
        total_degraded=int((defined < 0).sum()),
        total_equal=int((defined == 0).sum()),
        mean_difference=float(defined.mean()),
    )


def percentage_points(difference: float) -> str:
    """Format a difference of a metric in percentage points.

    >>> percentage_points(-0.1234)
    '−12.3 points'
    """
    return f"{100 * difference:+.1f} points".replace("-", "−")


def _most_different(
    differences: Floats, classes: Integers, limits: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Return the queries with the largest gains and with the largest losses.

    Args:
        differences: Difference of each query; NaN for queries without a value.
        classes: Class of each query; every class is selected at most once.
        limits: Largest numbers of gains and of losses.
    """
    gains: list[int] = []
    losses: list[int] = []
    most_gains, most_losses = limits
    seen: set[int] = set()
    for query in np.argsort(-np.abs(differences), kind="stable").tolist():  # NaN last
        is_complete = len(gains) == most_gains and len(losses) == most_losses
        if is_complete or not np.abs(differences[query]) > 0:
            break
        if classes[query] in seen:
            continue
        if differences[query] > 0 and len(gains) < most_gains:
            gains.append(query)
            seen.add(classes[query])
        elif differences[query] < 0 and len(losses) < most_losses:
            losses.append(query)
            seen.add(classes[query])
    return gains, losses
