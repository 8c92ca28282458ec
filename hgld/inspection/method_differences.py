"""The queries that two methods rank most differently, and their top-k items with each method (Fig. 9c, d)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.hierarchy.label_sets import main_labels
from hgld.inspection.top_k import TopK, query_values, top_k_items


@dataclass(frozen=True, eq=False)
class MethodRankings:
    """Rankings of the n selected queries by one method.

    Args:
        name: Name of the method, which is that of its result.
        per_query: Rows of these queries in the table of the result, n of them.
        top_k: Their top-k gallery items.
    """

    name: str
    per_query: pd.DataFrame
    top_k: TopK


@dataclass(frozen=True, eq=False)
class MethodDifferences:
    """The n queries whose values of a metric differ most: first those that the method improves, then the others.

    Args:
        metric: Name of the metric.
        level_names: Names of the L levels, finest first, or None where they have none.
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
    queries: npt.NDArray[np.int64]
    n_improved: int
    baseline: MethodRankings
    method: MethodRankings
    total_improved: int
    total_degraded: int
    total_equal: int
    mean_difference: float

    @property
    def differences(self) -> npt.NDArray[np.float64]:
        """The method's value minus the baseline's for each selected query: float64, shape (n,)."""
        method, baseline = (side.per_query[self.metric].to_numpy() for side in (self.method, self.baseline))
        differences: npt.NDArray[np.float64] = method - baseline
        return differences

    def sections(self, max_queries: int | None = None) -> Mapping[str, range]:
        """Return two headings with the rows of the queries below each, at most ``max_queries`` per heading."""
        names = self.method.name, self.baseline.name
        improved, degraded = range(self.n_improved), range(self.n_improved, len(self.queries))
        return {
            "{} ranks better than {}".format(*names): improved[:max_queries],
            "{} ranks worse than {}".format(*names): degraded[:max_queries],
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
    """Return the queries that a method ranks most differently from a baseline, in both directions.

    Half of the queries, rounded up, are those that gain most, the others those that lose most; there are fewer where
    fewer gain or lose. Each class of the finest level, such as a landmark, is represented by its most different
    query only, because photographs of one landmark look alike and could otherwise fill the whole selection.

    Args:
        results: Results of the baseline and of the method, under their display names, with all queries.
        tasks: Evaluated tasks: the same images with the embeddings of each.
        metric: One of the metrics of the results; queries for which it is undefined are ignored.
        n: Number of queries.
        k: Number of items per query.
        config: Ranking configuration of the evaluations.

    Returns:
        The differences, or None where no query differs.

    Raises:
        ConfigurationError: A result lacks the metric or does not cover the queries of its task, the tasks are not of
            the same images, the images have no labels, or ``n`` or ``k`` is less than 1.
    """
    baseline_values, method_values = (
        query_values(result, task, metric) for result, task in zip(results, tasks, strict=True)
    )
    labels, judgements = tasks[0].query_labels, tasks[0].judgements
    same_queries = results[0].per_query.index.equals(results[1].per_query.index)
    if not same_queries or judgements.n_gallery != tasks[1].judgements.n_gallery:
        raise ConfigurationError(
            f"{results[0].name} and {results[1].name} were not evaluated with the same images; evaluate both again"
        )
    if labels is None:
        raise ConfigurationError("queries are selected by class; `tasks` needs query labels")
    if n < 1:
        raise ConfigurationError(f"`n` is {n}; expected at least 1")
    differences = method_values - baseline_values
    known = differences[~np.isnan(differences)]
    improved, degraded = _most_different(differences, main_labels(labels)[:, 0], (n - n // 2, n // 2))
    queries = np.array([*improved, *degraded], np.int64)
    if not len(queries):
        return None
    baseline, method = (
        MethodRankings(result.name, result.per_query.iloc[queries], top_k_items(task, queries, k, config))
        for result, task in zip(results, tasks, strict=True)
    )
    return MethodDifferences(
        metric=metric,
        level_names=tasks[0].level_names,
        n_levels=judgements.n_levels,
        queries=queries,
        n_improved=len(improved),
        baseline=baseline,
        method=method,
        total_improved=int((known > 0).sum()),
        total_degraded=int((known < 0).sum()),
        total_equal=int((known == 0).sum()),
        mean_difference=float(known.mean()),
    )


def percentage_points(difference: float) -> str:
    """Format a difference of a metric in percentage points.

    >>> percentage_points(-0.1234)
    '−12.3 points'
    """
    return f"{100 * difference:+.1f} points".replace("-", "−")


def _most_different(
    differences: npt.NDArray[np.float64], classes: npt.NDArray[np.int64], limits: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Return the queries with the largest gains and losses, up to a limit each; every class occurs once in both."""
    selected: tuple[list[int], list[int]] = ([], [])
    seen: set[int] = set()
    for query in np.argsort(-np.abs(differences), kind="stable").tolist():  # NaN last
        part = int(differences[query] < 0)
        if not np.abs(differences[query]) > 0 or sum(map(len, selected)) == sum(limits):
            break
        if classes[query] not in seen and len(selected[part]) < limits[part]:
            selected[part].append(query)
            seen.add(classes[query])
    return selected
