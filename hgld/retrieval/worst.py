"""The queries that an evaluation ranks worst, and what stands first for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.errors import ConfigurationError
from hgld.pairs import Pairs
from hgld.retrieval.ranking import RankingConfig
from hgld.retrieval.results import RetrievalResult
from hgld.retrieval.search import nearest
from hgld.retrieval.tasks import Task


@dataclass(frozen=True, eq=False)
class Worst:
    """The n queries with the lowest values of a metric, lowest first, and their k nearest gallery items.

    Args:
        metric: its name.
        n_levels: L, the level of items that share everything with the query.
        per_query: their rows of the result's table, n of them.
        queries: int64, shape (n,); their positions.
        scores: float32, shape (n, k), best first; NaN where the gallery has no more.
        positions: int64, shape (n, k), in the gallery; -1 where it has no more.
        levels: int64, shape (n, k).
    """

    metric: str
    n_levels: int
    per_query: pd.DataFrame
    queries: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]


def find_worst(
    result: RetrievalResult,
    task: Task,
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
    if len(result.per_query) != len(task.queries):
        raise ConfigurationError(
            f"the result is of {len(result.per_query):,} queries, but the task has {len(task.queries):,}; give the "
            "result of all queries, not of a part of them"
        )
    if metric not in result.metrics:
        raise ConfigurationError(f"the result has no {metric}; take one of {', '.join(result.metrics)}")
    if n < 1:
        raise ConfigurationError(f"the {n} worst queries are asked for; expected 1 or more")
    values = result.per_query[metric].to_numpy()
    queries = np.argsort(values, kind="stable")[: min(n, np.count_nonzero(~np.isnan(values)))]
    left_out = task.left_out
    if left_out is not None:
        left_out = Pairs.of(left_out.columns[slice(*left_out.offsets[[query, query + 1]])] for query in queries)
    scores, positions = nearest(
        task.queries[torch.from_numpy(queries)], task.gallery, k, left_out=left_out, unused=task.unused, config=config
    )
    levels = np.zeros(positions.shape, np.int64)
    for row, column in np.argwhere(positions >= 0):
        query, item = int(queries[row]), int(positions[row, column])
        levels[row, column] = task.judgements.levels(slice(query, query + 1), slice(item, item + 1)).item()
    per_query = result.per_query.iloc[queries]
    return Worst(metric, task.judgements.n_levels, per_query, queries, scores, positions, levels)
