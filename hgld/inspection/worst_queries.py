"""The queries of an evaluation with the lowest values of a metric, and their top-k items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.inspection.top_k import TopK, query_values, top_k_items


@dataclass(frozen=True, eq=False)
class WorstQueries:
    """The n queries with the lowest values of a metric, lowest first.

    Args:
        metric: Name of the metric.
        n_levels: Number of levels L, which is the level of items that share everything with the query.
        per_query: Rows of these queries in the table of the result, n of them.
        queries: int64, shape (n,); positions of the queries.
        top_k: Their top-k gallery items.
    """

    metric: str
    n_levels: int
    per_query: pd.DataFrame
    queries: npt.NDArray[np.int64]
    top_k: TopK


def find_worst_queries(
    result: RetrievalResult,
    task: RetrievalTask,
    *,
    metric: str = "H-AP",
    n: int = 50,
    k: int = 10,
    config: RankingConfig | None = None,
) -> WorstQueries:
    """Return the queries with the lowest values of a metric; queries for which it is undefined are ignored.

    Args:
        result: Result of the evaluation, with all queries.
        task: The evaluated task.
        metric: One of the metrics of the result.
        n: Maximum number of queries.
        k: Number of items per query.
        config: Ranking configuration of the evaluation.

    Raises:
        ConfigurationError: The result lacks the metric or does not cover the queries of the task, or ``n`` or ``k``
            is less than 1.
    """
    values = query_values(result, task, metric)
    if n < 1:
        raise ConfigurationError(f"`n` is {n}; expected at least 1")
    queries = np.argsort(values, kind="stable")[: min(n, np.count_nonzero(~np.isnan(values)))]
    return WorstQueries(
        metric=metric,
        n_levels=task.judgements.n_levels,
        per_query=result.per_query.iloc[queries],
        queries=queries,
        top_k=top_k_items(task, queries, k, config),
    )
