"""Per-query lookups in an evaluation: the values of a metric, and the top-k items with their levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.ragged import RaggedIndices


@dataclass(frozen=True, eq=False)
class TopK:
    """The k highest-ranked gallery items of n queries.

    Args:
        scores: float32, shape (n, k), best first; NaN past the end of the gallery.
        positions: int64, shape (n, k), positions in the gallery; -1 past its end.
        levels: int64, shape (n, k), levels of relevance; 0 past the end of the gallery.
    """

    scores: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]


def top_k_items(
    task: RetrievalTask, queries: npt.NDArray[np.int64], k: int, config: RankingConfig | None = None
) -> TopK:
    """Return the top-k items of some queries of a task.

    Args:
        task: The retrieval task.
        queries: int64, shape (n,); positions of the queries.
        k: Number of items per query.
        config: Ranking configuration of the evaluation.

    Raises:
        ConfigurationError: ``k`` is less than 1.
        InputError: See :func:`~hgld.evaluation.ranking.rank`.
    """
    excluded = task.excluded
    if excluded is not None:
        excluded = RaggedIndices.from_lists(excluded.row(query) for query in queries.tolist())
    scores, positions = nearest_neighbours(
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
    return TopK(scores, positions, levels)


def query_values(result: RetrievalResult, task: RetrievalTask, metric: str) -> npt.NDArray[np.float64]:
    """Return the values of a metric by query position: float64, shape (n_query,); NaN where a query has none.

    Raises:
        ConfigurationError: The result lacks the metric, or does not cover the queries of the task.
    """
    if len(result.per_query) != len(task.queries):
        raise ConfigurationError(
            f"the result covers {len(result.per_query):,} queries, but the task has {len(task.queries):,}; give the "
            "result of all queries, not of a subset"
        )
    if metric not in result.metrics:
        raise ConfigurationError(f"the result has no metric {metric}; choose one of {', '.join(result.metrics)}")
    return result.per_query[metric].to_numpy()
