"""Queries of an evaluation: their top-k items, the worst queries, and predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.arrays import Floats, Floats32, Integers
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluation_files import Evaluation
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.reranking import first_items
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.gldv2.recognition_ground_truth import write_recognition_predictions
from hgld.gldv2.retrieval_ground_truth import write_retrieval_predictions


@dataclass(frozen=True, eq=False)
class TopK:
    """The k highest-ranked gallery items of n queries.

    Args:
        scores: float32, shape (n, k), best first; NaN after the end of the gallery.
        positions: int64, shape (n, k), positions in the gallery; -1 after its end.
        levels: int64, shape (n, k), levels of relevance; 0 after the end of the gallery.
    """

    scores: Floats32
    positions: Integers
    levels: Integers

    def items(self, row: int) -> Iterator[tuple[int, float, int]]:
        """Iterate over the items of a query: position, score and level."""
        positions = self.positions[row].tolist()
        scores = self.scores[row].tolist()
        levels = self.levels[row].tolist()
        for position, score, level in zip(positions, scores, levels, strict=True):
            if position >= 0:
                yield position, score, level


def top_k_items(
    task: RetrievalTask, queries: Integers, k: int, config: RankingConfig | None = None
) -> TopK:
    """Return the top-k items of some queries of a task.

    Raises:
        ConfigurationError: ``k`` is less than 1.
        InputError: See :func:`~hgld.evaluation.ranking.rank`.
    """
    scores, positions = _first_items(take_queries(task, queries), k, config or RankingConfig())
    levels = np.zeros(positions.shape, np.int64)
    for row, column in np.argwhere(positions >= 0):
        query = int(queries[row])
        item = int(positions[row, column])
        level = task.judgements.levels(slice(query, query + 1), slice(item, item + 1))
        levels[row, column] = level.item()
    return TopK(scores, positions, levels)


def take_queries(task: RetrievalTask, queries: Integers) -> RetrievalTask:
    """Return a task with some of the queries, which may repeat, but the judgements of all queries."""
    return replace(
        task,
        queries=task.queries[torch.from_numpy(queries)],
        query_ids=None if task.query_ids is None else task.query_ids[queries],
        excluded=None if task.excluded is None else task.excluded.take(queries),
        itself=None if task.itself is None else task.itself.take(queries),
    )


def _first_items(task: RetrievalTask, k: int, config: RankingConfig) -> tuple[Floats32, Integers]:
    """Return the scores and positions of the first k items of every query."""
    return first_items(
        task.queries,
        task.gallery,
        k,
        config,
        config.reranking,
        excluded=task.excluded,
        itself=task.itself,
        gallery_mask=task.gallery_mask,
    )


def query_values(result: RetrievalResult, task: RetrievalTask, metric: str) -> Floats:
    """Return the values of a metric by query position: float64, shape (n_query,), may be NaN.

    Raises:
        ConfigurationError: The result lacks the metric, or does not cover the queries of the task.
    """
    if len(result.per_query) != len(task.queries):
        raise ConfigurationError(
            f"the result covers {len(result.per_query):,} queries, but the task has {len(task.queries):,}; give the "
            "result of all queries, not of a subset"
        )
    if metric not in result.metrics:
        raise ConfigurationError(
            f"the result has no metric {metric}; choose one of {', '.join(result.metrics)}"
        )
    return result.per_query[metric].to_numpy()


@dataclass(frozen=True, eq=False)
class WorstQueries:
    """The n queries with the lowest values of a metric, lowest first.

    Args:
        metric: Name of the metric.
        n_levels: Number of levels L; items of level L have the finest label of the query.
        per_query: Rows of these queries in the table of the result.
        queries: int64, shape (n,); positions of the queries.
        top_k: Top-k gallery items of the queries.
    """

    metric: str
    n_levels: int
    per_query: pd.DataFrame
    queries: Integers
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
    """Return the n queries with the lowest values of a metric, with k items each.

    Queries without a value are ignored.

    Raises:
        ConfigurationError: The result lacks the metric or does not cover the queries of the task, or
            ``n`` or ``k`` is less than 1.
    """
    values = query_values(result, task, metric)
    if n < 1:
        raise ConfigurationError(f"`n` is {n}; expected at least 1")
    n_defined = int(np.count_nonzero(~np.isnan(values)))
    queries = np.argsort(values, kind="stable")[: min(n, n_defined)]  # NaN last
    return WorstQueries(
        metric=metric,
        n_levels=task.judgements.n_levels,
        per_query=result.per_query.iloc[queries],
        queries=queries,
        top_k=top_k_items(task, queries, k, config),
    )


def write_predictions(
    evaluation: Evaluation, path: Path, *, k: int = 100, config: RankingConfig | None = None
) -> None:
    """Write the first k gallery items of every query, see :mod:`hgld.gldv2.retrieval_ground_truth`.

    For GLDv2's retrieval protocol, the rankings of all index images are written, and not the rankings
    of images with labels. Items with equal scores are in the order of the gallery. For protocols that
    score an answer to each query, the answers are written, in the other format of that module.

    Raises:
        ConfigurationError: The images have no ids.
        InputError: An id contains whitespace.
    """
    config = config or RankingConfig()
    if evaluation.answers is not None:
        write_recognition_predictions(
            path, evaluation.answers.image_ids, evaluation.answers.predictions
        )
        return
    task = evaluation.tasks[0]
    for candidate in evaluation.tasks:
        if candidate.name == "official":
            task = candidate
    gallery_ids = task.gallery_ids
    if task.query_ids is None or gallery_ids is None or len(gallery_ids) < len(task.gallery):
        raise ConfigurationError(
            "predictions name images by their ids, which these embeddings lack; add a file of ids beside them, "
            "and give distractors as one file"
        )
    _, positions = _first_items(task, k, config)

    def rankings() -> Iterator[list[str]]:
        for row in positions.tolist():
            yield [str(gallery_ids[position]) for position in row if position >= 0]

    write_retrieval_predictions(path, [str(query) for query in task.query_ids], rankings())
