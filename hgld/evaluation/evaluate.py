"""Rank retrieval tasks and take metrics: the one place where embeddings become numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.level_weights import LevelWeights
from hgld.evaluation.metric_registry import Metric, RankedBlock, default_metrics, needed_ranks
from hgld.evaluation.ranking import Ranked, RankingConfig, rank, ranked_items
from hgld.evaluation.ranking_statistics import RankingStatistics, RankTables, ranking_statistics, truncated_statistics
from hgld.evaluation.rejected_queries import FirstItems, answer_columns, answer_queries, first_items, with_answers
from hgld.evaluation.rejection_config import RejectionConfig
from hgld.evaluation.relevance import Relevance
from hgld.evaluation.results import RetrievalResult, count_queries, warn_without_positives
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.progress import Progress
from hgld.rejection.detector import NeighbourDetector

_BEST_LEVEL = "the finest that any label of the query shares with any label of the image"
_GRADED_SETTINGS = {
    "relevance": "the mean, over the labels of the query, of l/L for the finest level l that each shares with any "
    "label of the image (thesis, Algorithm 1)",
    "gain": "the same relevance",
}
#: How the labels of an image with several of them make up one relevance.
SeveralLabels = Literal["mean", "best"]
#: Values by column for a block of queries.
_Block = tuple[slice | npt.NDArray[np.int64], dict[str, npt.NDArray[np.float64]]]


@dataclass(frozen=True, eq=False)
class EvaluationConfig:
    """Choice of metrics and of how to rank.

    Args:
        metrics: Names of metrics, see :meth:`hgld.evaluation.metric_registry.Metric.from_name`; those of the task by
            default.
        relevance_alpha: Exponent alpha of Eq. 20.
        relevance: Relevance of H-AP, H-R@k and H-P@k: a function (see :mod:`hgld.evaluation.relevance`), one value
            per level, float (L + 1,), or one per query and level, float (n_query, L + 1). By default that of the
            judgements, or where they have none that of Eq. 20.
        gain: Gain of NDCG, in the same forms; by default that of the judgements, or where they have none 2^l - 1.
        level_weights: Weights of the levels in wAP, coarsest first, positive; scaled to add up to 1. Equal if None.
        several_labels: Relevance of images with several labels in H-AP, H-R@k, H-P@k and NDCG, unless ``relevance``
            or ``gain`` is given: ``mean`` over the labels of the query (thesis, Algorithm 1), or that of the ``best``
            level that any labels share. All other metrics take that level.
        ranking: How to rank.
        rejection: Score by which queries can be rejected, if any; its figures are those of
            :mod:`hgld.evaluation.rejection_report`.
        processes: This process and those that share the queries with it; every process gets the whole result.
        progress: Progress bar over the queries of each task.
    """

    metrics: tuple[str, ...] | None = None
    relevance_alpha: float = 1.0
    relevance: Relevance | npt.ArrayLike | None = None
    gain: Relevance | npt.ArrayLike | None = None
    level_weights: tuple[float, ...] | None = None
    several_labels: SeveralLabels = "mean"
    ranking: RankingConfig = field(default_factory=RankingConfig)
    rejection: RejectionConfig | None = None
    processes: Processes = field(default_factory=Processes)
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.several_labels not in get_args(SeveralLabels):
            raise ConfigurationError(
                f'`several_labels` is "{self.several_labels}"; expected {" or ".join(get_args(SeveralLabels))}'
            )


def evaluate_tasks(tasks: Sequence[RetrievalTask], config: EvaluationConfig | None = None) -> list[RetrievalResult]:
    """Rank the gallery of each task for its queries and take the metrics.

    One pass per task: a block of queries is scored and sorted once, and all metrics are taken from the sorted levels.
    Memory besides the embeddings: that of a block (see :class:`~hgld.evaluation.ranking.RankingConfig`), 32 bytes per
    gallery item, and a float64 per query and metric.

    Args:
        tasks: Tasks, one or more.
        config: Metrics, and how to rank.

    Returns:
        One result per task, or per group of its queries where it has :attr:`RetrievalTask.query_groups`. Where no
        query has a positive, a warning says so.

    Raises:
        ConfigurationError: A metric or level is unknown or is not one of the protocol's, k is beyond the gallery, or
            a setting is wrong.
        InputError: Embeddings, ids and judgements do not fit each other; see :func:`~hgld.evaluation.ranking.rank`.
    """
    config = config or EvaluationConfig()
    if config.metrics is not None and all(task.fixed_metrics for task in tasks):
        names = dict.fromkeys(name for task in tasks for name in _names(task.metrics or ()))
        raise ConfigurationError(
            f"the metrics of {', '.join(task.name for task in tasks)} are {', '.join(names)}, and `metrics` asks for "
            "others; leave it out"
        )
    if config.level_weights is not None and "wAP" not in (config.metrics or ()):
        raise ConfigurationError("`level_weights` are those of the metric wAP; add it to `metrics`")
    return [result for task in tasks for result in _evaluate_task(task, config)]


def _evaluate_task(task: RetrievalTask, config: EvaluationConfig) -> list[RetrievalResult]:
    judgements = task.judgements
    n_queries, n_levels = judgements.n_queries, judgements.n_levels
    answers = answer_columns(n_levels) if task.detector is not None else []
    if task.query_ids is not None and len(task.query_ids) != n_queries:
        raise InputError(f"there are {len(task.query_ids):,} query ids, but labels for {n_queries:,} query images")
    metrics = _choose_metrics(task, config)
    names = [metric.name for metric in metrics]
    graded_task = _graded_task(task, metrics, config)
    graded = [metric for metric in metrics if metric.is_graded and graded_task is not None]
    weights = _level_weights(task, config)
    per_query = _per_query(task, [metric for metric in metrics if metric not in graded], weights, config)
    settings = weights.settings
    if graded_task is not None:
        values = _per_query(graded_task, graded, _level_weights(graded_task, config), config)
        per_query = per_query.assign(**{metric.name: values[metric.name].to_numpy() for metric in graded})
        per_query = per_query[[*names, *_positives_columns(n_levels), *answers]]
        settings = settings | _GRADED_SETTINGS
    if task.graded_judgements is not None:
        settings = settings | {"level": _BEST_LEVEL}
    if not config.processes.rank:  # levels with relevances of their own need not occur
        n_needed = n_levels if judgements.relevance() is None else 1
        warn_without_positives(task.name, per_query, range(1, n_needed + 1))
    if task.detector is not None:
        per_query = with_answers(per_query.drop(columns=answers), per_query[answers], n_levels)
    result = RetrievalResult(
        name=task.name,
        per_query=per_query,
        metrics=tuple(names),
        counts=count_queries(per_query) | {"gallery": judgements.n_gallery, **task.counts, **_zero_counts(task)},
        settings={
            **settings,
            "ties": config.ranking.ties,
            "precision": config.ranking.precision,
            "normalize": config.ranking.normalize,
            "query_counted": "H-AP_selfcount only",
            **task.settings,
        },
    ).renamed(task.metric_names)
    if task.query_groups is None:
        return [result]
    return [result.part(name, queries) for name, queries in task.query_groups.items()]


def _graded_task(task: RetrievalTask, metrics: Sequence[Metric], config: EvaluationConfig) -> RetrievalTask | None:
    """Return the task with the judgements for graded metrics; None if there are none, or none of these metrics."""
    if (
        task.graded_judgements is None
        or config.several_labels == "best"
        or config.relevance is not None
        or config.gain is not None
        or not any(metric.is_graded for metric in metrics)
    ):
        return None
    if config.relevance_alpha != 1:
        raise ConfigurationError(
            "`relevance_alpha` belongs to Eq. 20, but images with several labels have the relevance of Algorithm 1; "
            "leave it out, or set `several_labels` to best"
        )
    return replace(task, judgements=task.graded_judgements, graded_judgements=None, detector=None)


def _level_weights(task: RetrievalTask, config: EvaluationConfig) -> LevelWeights:
    own_relevance = task.judgements.relevance()
    return LevelWeights(
        own_relevance if config.relevance is None else config.relevance,
        config.relevance_alpha,
        own_relevance if config.gain is None else config.gain,
        config.level_weights,
        shape=(task.judgements.n_queries, task.judgements.n_levels + 1),
    )


def _choose_metrics(task: RetrievalTask, config: EvaluationConfig) -> list[Metric]:
    """Return the metrics to take, after a check of their cutoffs against the longest ranking."""
    judgements = task.judgements
    n_levels = judgements.n_levels
    most_ranked = int(ranked_items(judgements, task.excluded, task.gallery_mask).n_ranked.max())
    if config.metrics is not None and not task.fixed_metrics:
        chosen: Sequence[str | Metric] = list(dict.fromkeys(config.metrics))
    elif task.metrics is not None:
        chosen = task.metrics
    elif judgements.relevance() is None:
        chosen = default_metrics(n_levels, most_ranked)
    else:  # levels with relevances of their own are not semantic levels
        chosen = ["H-AP", "NDCG", "ASI"]
    metrics = [metric if isinstance(metric, Metric) else Metric.from_name(metric, n_levels) for metric in chosen]
    for metric in metrics:
        if metric.tree and (judgements.relevance() is not None or task.graded_judgements is not None):
            raise ConfigurationError(
                f"{metric.name} needs labels that form a tree, with one label per image and level; the relevances "
                "here come from a table or from several labels per image"
            )
        if metric.k is not None and not 1 <= metric.k <= most_ranked:
            raise ConfigurationError(
                f"{metric.name} needs k between 1 and the {most_ranked:,} gallery items that are ranked; take "
                "another k"
            )
    return metrics


def _per_query(
    task: RetrievalTask, metrics: Sequence[Metric], weights: LevelWeights, config: EvaluationConfig
) -> pd.DataFrame:
    """Return the table of :attr:`RetrievalResult.per_query` for some metrics."""
    blocks = config.processes.gather(_measure(task, metrics, weights, config))
    return _table(task, blocks, [metric.name for metric in metrics])


def _measure(
    task: RetrievalTask, metrics: Sequence[Metric], weights: LevelWeights, config: EvaluationConfig
) -> list[_Block]:
    """Rank this process's share of the queries and take the metrics of each block."""
    n_levels = task.judgements.n_levels
    cutoffs = sorted({metric.k for metric in metrics if metric.k is not None})
    # Metrics of a ranking without positives: wrong settings fail now, and not after a block of queries.
    levels = torch.zeros(1, max(cutoffs, default=1), dtype=torch.uint8)
    block = RankedBlock(levels, ranking_statistics(levels, n_levels, cutoffs), weights.block(slice(0, 1)))
    for metric in metrics:
        metric.values(block)
    blocks: list[_Block] = []
    firsts: list[FirstItems] = []
    tables = None
    for ranked in rank(
        task.queries,
        task.gallery,
        task.judgements,
        excluded=task.excluded,
        gallery_mask=task.gallery_mask,
        config=config.ranking,
        part=config.processes.part,
        n_neighbours=task.detector.n_neighbours if isinstance(task.detector, NeighbourDetector) else 0,
        needed=needed_ranks(metrics),
        progress=config.progress,
    ):
        tables = tables or RankTables(task.judgements.n_gallery, ranked.levels.device)
        statistics = _statistics(ranked, n_levels, cutoffs, tables)
        if task.n_positives is not None:
            positives = torch.from_numpy(task.n_positives[ranked.queries]).to(statistics.positives)
            statistics = replace(statistics, positives=positives)
        block = RankedBlock(ranked.levels, statistics, weights.block(ranked.queries))
        values = {metric.name: metric.values(block) for metric in metrics}
        values.update(zip(_positives_columns(n_levels), statistics.positives.T, strict=True))
        blocks.append((ranked.queries, {column: numbers.cpu().numpy() for column, numbers in values.items()}))
        if task.detector is not None:
            firsts.append(first_items(ranked))
    if firsts:
        blocks.append(answer_queries(task, firsts))
    return blocks


def _statistics(ranked: Ranked, n_levels: int, cutoffs: Sequence[int], tables: RankTables) -> RankingStatistics:
    if ranked.positives is None:
        return ranking_statistics(ranked.levels, n_levels, cutoffs, n_ranked=ranked.n_ranked, tables=tables)
    return truncated_statistics(ranked.levels, ranked.positives, ranked.n_ranked, cutoffs, tables=tables)


def _table(task: RetrievalTask, blocks: Sequence[Sequence[_Block]], metrics: Sequence[str]) -> pd.DataFrame:
    """Join the blocks of all processes into the table of :attr:`RetrievalResult.per_query`."""
    n_queries = task.judgements.n_queries
    positives = _positives_columns(task.judgements.n_levels)
    answers = [] if task.detector is None else answer_columns(task.judgements.n_levels)
    ids = np.arange(n_queries) if task.query_ids is None else np.asarray(task.query_ids)
    table = pd.DataFrame(
        {column: np.full(n_queries, np.nan) for column in [*metrics, *positives, *answers]},
        index=pd.Index(ids, name="query"),
    )
    for rows, values in (block for process in blocks for block in process):
        for column, numbers in values.items():
            table.iloc[rows, table.columns.get_loc(column)] = numbers
    result: pd.DataFrame = table.astype(dict.fromkeys(positives, np.int64))
    return result


def _zero_counts(task: RetrievalTask) -> dict[str, int]:
    """Count the embeddings of only zeros, if there are any."""
    counts = {}
    for role, embeddings in (("queries", task.queries), ("gallery", task.gallery)):
        candidates = (embeddings[:, 0] == 0).nonzero()[:, 0]
        if n_zeros := int((embeddings[candidates] == 0).all(dim=1).sum()):
            counts[f"{role}_with_zero_embeddings"] = n_zeros
    return counts


def _positives_columns(n_levels: int) -> list[str]:
    return [f"positives_l{level}" for level in range(1, n_levels + 1)]


def _names(metrics: Sequence[str | Metric]) -> list[str]:
    return [metric.name if isinstance(metric, Metric) else metric for metric in metrics]
