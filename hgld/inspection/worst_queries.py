"""The queries that an evaluation ranks worst, and what stands first for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.inspection.top_k import Found, query_values, top_k_items


@dataclass(frozen=True, eq=False)
class Worst:
    """The n queries with the lowest values of a metric, lowest first, and their k nearest gallery items.

    Args:
        metric: its name.
        n_levels: L, the level of items that share everything with the query.
        per_query: their rows of the result's table, n of them.
        queries: int64, shape (n,); their positions.
        found: the items.
    """

    metric: str
    n_levels: int
    per_query: pd.DataFrame
    queries: npt.NDArray[np.int64]
    found: Found


def find_worst_queries(
    result: RetrievalResult,
    task: RetrievalTask,
    *,
    metric: str = "H-AP",
    n: int = 50,
    k: int = 10,
    config: RankingConfig | None = None,
) -> Worst:
    """Find the queries of an evaluation with the lowest values of a metric; queries that do not have it do not count.

    Args:
        result: of the evaluation, of all queries.
        task: what was evaluated.
        metric: one of the result's.
        n: how many queries.
        k: how many items for each.
        config: how it was ranked.

    Raises:
        ConfigurationError: the result does not have the metric or is not of these queries, or n or k is less than 1.
    """
    values = query_values(result, task, metric)
    if n < 1:
        raise ConfigurationError(f"the {n} worst queries are asked for; expected 1 or more")
    queries = np.argsort(values, kind="stable")[: min(n, np.count_nonzero(~np.isnan(values)))]
    return Worst(
        metric=metric,
        n_levels=task.judgements.n_levels,
        per_query=result.per_query.iloc[queries],
        queries=queries,
        found=top_k_items(task, queries, k, config),
    )
