"""Of single queries of a task: their values of a metric, and the items that stand first for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.inspection.search import nearest
from hgld.ragged import RaggedIndices


@dataclass(frozen=True, eq=False)
class Found:
    """The k nearest gallery items of n queries.

    Args:
        scores: float32, shape (n, k), best first; NaN where the gallery has no more.
        positions: int64, shape (n, k), in the gallery; -1 where it has no more.
        levels: int64, shape (n, k).
    """

    scores: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]


def top_k_items(
    task: RetrievalTask, queries: npt.NDArray[np.int64], k: int, config: RankingConfig | None = None
) -> Found:
    """Find what stands first for queries.

    Args:
        task: what is ranked.
        queries: int64, shape (n,): their positions.
        k: how many items for each.
        config: how it is ranked.

    Raises:
        ConfigurationError: k is less than 1.
        InputError: see :func:`~hgld.evaluation.ranking.rank`.
    """
    excluded = task.excluded
    if excluded is not None:
        excluded = RaggedIndices.of(excluded.row(query) for query in queries.tolist())
    scores, positions = nearest(
        task.queries[torch.from_numpy(queries)],
        task.gallery,
        k,
        excluded=excluded,
        gallery_mask=task.gallery_mask,
        config=config,
    )
    levels = np.zeros(positions.shape, np.int64)
    for row, column in np.argwhere(positions >= 0):
        query, item = int(queries[row]), int(positions[row, column])
        levels[row, column] = task.judgements.levels(slice(query, query + 1), slice(item, item + 1)).item()
    return Found(scores, positions, levels)


def query_values(result: RetrievalResult, task: RetrievalTask, metric: str) -> npt.NDArray[np.float64]:
    """The values of a metric by the positions of the queries, float64, shape (n_query,); NaN for those without it.

    Raises:
        ConfigurationError: the result does not have the metric, or is not of these queries.
    """
    if len(result.per_query) != len(task.queries):
        raise ConfigurationError(
            f"the result is of {len(result.per_query):,} queries, but the task has {len(task.queries):,}; give the "
            "result of all queries, not of a part of them"
        )
    if metric not in result.metrics:
        raise ConfigurationError(f"the result has no {metric}; take one of {', '.join(result.metrics)}")
    return result.per_query[metric].to_numpy()
