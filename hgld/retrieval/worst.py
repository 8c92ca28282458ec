"""The queries that an evaluation ranks worst, and what stands first for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.errors import ConfigurationError
from hgld.pairs import Pairs
from hgld.retrieval.evaluation import Embeddings
from hgld.retrieval.judgements import Judgements
from hgld.retrieval.ranking import RankingConfig
from hgld.retrieval.results import RetrievalResult
from hgld.retrieval.search import nearest


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
    query_embeddings: Embeddings,
    gallery_embeddings: Embeddings,
    judgements: Judgements,
    *,
    metric: str = "H-AP",
    n: int = 50,
    k: int = 10,
    left_out: Pairs | None = None,
    unused: npt.NDArray[np.bool_] | None = None,
    config: RankingConfig | None = None,
) -> Worst:
    """Find the queries of an evaluation with the lowest values of a metric; queries that do not have it do not count.

    Args:
        result: of the evaluation, of all queries.
        query_embeddings: as they were evaluated, and so on: see :func:`~hgld.retrieval.evaluation.evaluate`.
        gallery_embeddings: likewise.
        judgements: likewise.
        metric: one of the result's.
        n: how many queries.
        k: how many items for each.
        left_out: likewise.
        unused: likewise.
        config: likewise.

    Raises:
        ConfigurationError: the result does not have the metric or is not of these queries, or n or k is less than 1.
    """
    if len(result.per_query) != len(query_embeddings):
        raise ConfigurationError(
            f"the result is of {len(result.per_query):,} queries, but there are {len(query_embeddings):,} query "
            "embeddings; give the result of all queries, not of a part of them"
        )
    if metric not in result.metrics:
        raise ConfigurationError(f"the result has no {metric}; take one of {', '.join(result.metrics)}")
    if n < 1:
        raise ConfigurationError(f"the {n} worst queries are asked for; expected 1 or more")
    values = result.per_query[metric].to_numpy()
    queries = np.argsort(values, kind="stable")[: min(n, np.count_nonzero(~np.isnan(values)))]
    if left_out is not None:
        left_out = Pairs.of(left_out.columns[slice(*left_out.offsets[[query, query + 1]])] for query in queries)
    scores, positions = nearest(
        query_embeddings[queries], gallery_embeddings, k, left_out=left_out, unused=unused, config=config
    )
    levels = np.zeros(positions.shape, np.int64)
    for row, column in np.argwhere(positions >= 0):
        query, item = int(queries[row]), int(positions[row, column])
        levels[row, column] = judgements.levels(slice(query, query + 1), slice(item, item + 1)).item()
    return Worst(metric, judgements.n_levels, result.per_query.iloc[queries], queries, scores, positions, levels)
