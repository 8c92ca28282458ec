"""Evaluate retrieval tasks: rank the gallery for each query, then compute the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from hgld.compute.processes import Processes
from hgld.compute.scoring import Distance, Precision, Vectors
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.metrics import REVISITED_METRICS, Metric, default_metrics, needed_ranks
from hgld.evaluation.ranking import RankingConfig, Ties, rank, ranked_items
from hgld.evaluation.ranking_statistics import RankingStatistics, ranking_statistics
from hgld.evaluation.relevance import LevelWeights, Relevance
from hgld.evaluation.results import RetrievalResult, count_queries, warn_without_positives
from hgld.evaluation.retrieval_task import RetrievalTask, WithDistractors
from hgld.evaluation.settings import MetricSettings, RerankSettings, SeveralLabels, as_names
from hgld.evaluation.task_from_arrays import build_task
from hgld.hierarchy.label_sets import Labelling, main_labels
from hgld.progress import Progress
from hgld.ragged import RaggedIndices

_BEST_LEVEL = "the finest that any label of the query shares with any label of the image"
_GRADED_SETTINGS = {
    "relevance": "the mean, over the labels of the query, of l/L for the finest level l that each shares with any "
    "label of the image (thesis, Algorithm 1)",
    "gain": "the same relevance",
}
#: Values of queries by column, each of shape (n,).
_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class EvaluationConfig(MetricSettings):
    """Metrics to compute, and settings of the ranking.

    Metrics are names, see :meth:`hgld.evaluation.metrics.Metric.from_name`; by default the metrics
    of the task. ``several_labels`` concerns H-AP, H-R@k, H-P@k and NDCG, and has no effect beside
    ``relevance`` or ``gain``; all other metrics use the ``best`` level.

    Args:
        relevance: Relevance of H-AP, H-R@k and H-P@k: a function (see
            :mod:`hgld.evaluation.relevance`), one value per level, float (L + 1,), or one per query
            and level, float (n_query, L + 1). Default: the relevance of the judgements, or Eq. 20
            if the judgements have no relevance.
        gain: Gain of NDCG, in the same forms. Default: the relevance of the judgements, or 2^l - 1.
        ranking: Settings of the ranking.
        processes: This process and the processes that share the queries with it; every process gets
            the whole result.
        progress: Progress bar over the queries of each task.
    """

    relevance: Relevance | npt.ArrayLike | None = None
    gain: Relevance | npt.ArrayLike | None = None
    ranking: RankingConfig = field(default_factory=RankingConfig)
    processes: Processes = field(default_factory=Processes)
    progress: Progress | None = None


def evaluate_retrieval(
    query_embeddings: Vectors,
    query_labels: Labelling | Tensor,
    gallery_embeddings: Vectors | None = None,
    gallery_labels: Labelling | Tensor | None = None,
    *,
    metrics: str | Sequence[str] | None = None,
    relevance_alpha: float = 1.0,
    relevance: Relevance | npt.ArrayLike | None = None,
    gain: Relevance | npt.ArrayLike | None = None,
    level_weights: Sequence[float] | None = None,
    several_labels: SeveralLabels = "mean",
    query_ids: npt.ArrayLike | Tensor | None = None,
    gallery_ids: npt.ArrayLike | Tensor | None = None,
    ignored: Sequence[Sequence[int]] | None = None,
    block_size: int | None = None,
    device: str | None = None,
    precision: Precision = "float32",
    ties: Ties = "pessimistic",
    distance: Distance = "cosine",
    reranking: RerankSettings | None = None,
    processes: Processes | None = None,
    progress: Progress | None = None,
) -> RetrievalResult:
    """Evaluate embeddings of images with hierarchical labels.

    Args:
        query_embeddings: float16, float32, bfloat16 or float64, shape (n_query, d); an array or a
            tensor, which may be memory-mapped. Embeddings of zeros have a cosine of 0 with all
            others, and are counted.
        query_labels: Integers, shape (n_query, L), finest first; or (n_query,) for one level; or
            :class:`~hgld.hierarchy.LabelSets` of images with several labels each. Unlabelled
            images, with -1 at every level or without labels, are excluded and counted.
        gallery_embeddings: Embeddings of the gallery, shape (n_gallery, d). Without a gallery every
            query is ranked against all other queries (leave-one-out), and never against itself.
        gallery_labels: Labels of the gallery, shape (n_gallery, L).
        metrics: Names such as ``H-AP``, ``mAP@100``, ``R@1``, ``AP_l2`` (level 2; the finest is L);
            by default :func:`~hgld.evaluation.metrics.default_metrics`.
        relevance_alpha: Exponent alpha of Eq. 20, which weighs levels in H-AP.
        relevance: Relevance instead of Eq. 20, see :class:`EvaluationConfig`.
        gain: Gain of NDCG instead of 2^l - 1, see :class:`EvaluationConfig`.
        level_weights: Weights of the levels in ``wAP``, coarsest first; equal by default.
        several_labels: Relevance of images with several labels, see :class:`EvaluationConfig`.
        query_ids: Ids of the images, texts or integers, shape (n_query,); the index of
            ``per_query``.
        gallery_ids: Ids of the images, shape (n_gallery,). Gallery items with the id of the query,
            such as copies of its image, are excluded from its ranking.
        ignored: Positions in the gallery, for each query, to exclude from its ranking (junk).
        block_size: Number of queries ranked at once; by default it depends on the memory.
        device: ``cpu`` or ``cuda``; by default the device of the query embeddings.
        precision: Precision of scores, see :class:`~hgld.evaluation.ranking.RankingConfig`.
        ties: Order of items with equal scores, see :class:`~hgld.evaluation.ranking.RankingConfig`.
        distance: Distance of embeddings, see :class:`~hgld.evaluation.ranking.RankingConfig`.
        reranking: Re-ranking; rankings are not re-ranked by default.
        processes: Processes that share the queries, see :mod:`hgld.compute.processes`.
        progress: Progress bar over the queries.

    Returns:
        ``means``, ``per_query``, ``counts``, ``intervals()``.

    Raises:
        InputError: Shapes or ids do not fit each other, labels are not nested, a gallery is empty,
            or an embedding is not finite.
        ConfigurationError: See :func:`evaluate_tasks`.

    >>> embeddings = np.array([[1.0, 0.0], [0.8, 0.3], [0.9, 0.1], [0.0, 1.0]])
    >>> labels = np.array([[0, 0], [0, 0], [1, 0], [2, 1]])  # image 2 is nearer to image 0 than 1 is
    >>> result = evaluate_retrieval(embeddings, labels, metrics=["R@1", "H-AP"])
    >>> result.means
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> result.counts["without_positives_l1"]
    1
    """
    if device is None:
        device = str(query_embeddings.device) if isinstance(query_embeddings, Tensor) else "cpu"
    ranking = RankingConfig(
        block_size, device, precision, distance, ties, reranking or RerankSettings()
    )
    config = EvaluationConfig(
        metrics=as_names(metrics),
        relevance_alpha=relevance_alpha,
        relevance=relevance,
        gain=gain,
        level_weights=None if level_weights is None else tuple(level_weights),
        several_labels=several_labels,
        ranking=ranking,
        processes=processes or Processes(),
        progress=progress,
    )
    task = build_task(
        query_embeddings,
        query_labels,
        gallery_embeddings,
        gallery_labels,
        query_ids,
        gallery_ids,
        None if ignored is None else RaggedIndices.from_lists(ignored),
    )
    (result,) = evaluate_tasks([task], config)
    return result


def evaluate_tasks(
    tasks: Sequence[RetrievalTask], config: EvaluationConfig | None = None
) -> list[RetrievalResult]:
    """Rank the gallery of each task for its queries and compute the metrics.

    One pass per task: a block of queries is scored and sorted once, and all metrics are computed
    from the sorted levels. Memory besides the embeddings: the memory of a block (see
    :class:`~hgld.evaluation.ranking.RankingConfig`), 32 bytes per gallery item, and a float64 per
    query and metric.

    Args:
        tasks: Tasks, one or more.
        config: Metrics and settings of the ranking.

    Returns:
        One result per task, or per group of its queries where it has
        :attr:`RetrievalTask.query_groups`. Where no query has a positive, a warning says so.

    Raises:
        ConfigurationError: A metric or level is unknown or does not belong to the protocol, k is
            beyond the gallery, or a setting is wrong.
        InputError: Embeddings, ids and judgements do not fit each other; see
            :func:`~hgld.evaluation.ranking.rank`.
    """
    config = config or EvaluationConfig()
    if config.metrics is not None and all(task.fixed_metrics for task in tasks):
        protocol_metrics: list[str] = []
        for task in tasks:
            protocol_metrics.extend(task.metrics or ())
        task_names = ", ".join(task.name for task in tasks)
        metric_names = ", ".join(dict.fromkeys(protocol_metrics))
        raise ConfigurationError(
            f"the metrics of {task_names} are {metric_names}, and `metrics` asks for others; leave it out"
        )
    if config.level_weights is not None and "wAP" not in (config.metrics or ()):
        raise ConfigurationError("`level_weights` are those of the metric wAP; add it to `metrics`")
    results: list[RetrievalResult] = []
    for task in tasks:
        results.extend(_evaluate_task(task, config))
    return results


def _evaluate_task(task: RetrievalTask, config: EvaluationConfig) -> list[RetrievalResult]:
    """Evaluate one task; see :func:`evaluate_tasks`."""
    judgements = task.judgements
    n_queries = judgements.n_queries
    n_levels = judgements.n_levels
    if task.query_ids is not None and len(task.query_ids) != n_queries:
        raise InputError(
            f"there are {len(task.query_ids):,} query ids, but labels for {n_queries:,} query images"
        )
    metrics = _choose_metrics(task, config)
    graded = _graded_metrics(task, metrics, config)
    ungraded = [metric for metric in metrics if metric not in graded]
    columns, settings = _query_values(task, ungraded, config)
    if task.graded_judgements is not None:
        settings["level"] = _BEST_LEVEL
        if graded:
            graded_task = replace(task, judgements=task.graded_judgements)
            graded_columns, _ = _query_values(graded_task, graded, config)
            for metric in graded:
                columns[metric.name] = graded_columns[metric.name]
            settings |= _GRADED_SETTINGS

    metric_names = [metric.name for metric in metrics]
    per_query = pd.DataFrame(
        {name: columns[name] for name in [*metric_names, *positives_columns(n_levels)]},
        index=pd.Index(_query_ids(task), name="query"),
    )
    if task.query_labels is not None:
        per_query["class"] = _query_classes(task, task.query_labels)
    if config.processes.rank == 0:
        # Levels that have relevances of their own may have no items.
        n_needed = n_levels if judgements.relevance is None else 1
        warn_without_positives(task.name, per_query, range(1, n_needed + 1))

    counts = count_queries(per_query)
    counts["gallery"] = judgements.n_gallery
    counts.update(task.counts)
    counts.update(_zero_counts(task, config))
    settings["ties"] = config.ranking.ties
    settings["precision"] = config.ranking.precision
    settings["distance"] = config.ranking.distance
    settings["query_counted"] = "H-AP_selfcount only"
    reranking = config.ranking.reranking.describe()
    if reranking is not None:
        settings["re-ranking"] = reranking
    settings.update(task.settings)

    result = RetrievalResult(task.name, per_query, tuple(metric_names), counts, settings)
    result = result.renamed(task.metric_names)
    if task.query_groups is None:
        return [result]
    return [result.part(name, queries) for name, queries in task.query_groups.items()]


def _query_ids(task: RetrievalTask) -> npt.NDArray[Any]:
    """Return the ids of the queries, or their positions if they have no ids."""
    if task.query_ids is None:
        return np.arange(task.judgements.n_queries)
    return np.asarray(task.query_ids)


def _query_classes(task: RetrievalTask, labels: Labelling) -> list[Any]:
    """Return the name, or the number, of the finest class of each query."""
    classes: list[int] = main_labels(labels)[:, 0].tolist()
    if not task.label_names:
        return classes
    names = task.label_names[0]
    return [names[code] for code in classes]


def _graded_metrics(
    task: RetrievalTask, metrics: Sequence[Metric], config: EvaluationConfig
) -> list[Metric]:
    """Return the metrics that are computed from the graded judgements of the task."""
    has_relevance = config.relevance is not None or config.gain is not None
    if task.graded_judgements is None or config.several_labels == "best" or has_relevance:
        return []
    graded = [metric for metric in metrics if metric.is_graded]
    if graded and config.relevance_alpha != 1:
        raise ConfigurationError(
            "`relevance_alpha` belongs to Eq. 20, but images with several labels have the relevance of Algorithm 1; "
            "leave it out, or set `several_labels` to best"
        )
    return graded


def _choose_metrics(task: RetrievalTask, config: EvaluationConfig) -> list[Metric]:
    """Return the metrics to compute, after a check of their cutoffs against the longest ranking."""
    judgements = task.judgements
    n_levels = judgements.n_levels
    n_ranked = ranked_items(judgements, task.excluded, task.gallery_mask)[2]
    most_ranked = int(n_ranked.max())
    if config.metrics is not None and not task.fixed_metrics:
        names = list(dict.fromkeys(config.metrics))
    elif task.metrics is not None:
        names = list(task.metrics)
    elif judgements.relevance is None:
        names = default_metrics(n_levels, most_ranked)
    else:  # levels with relevances of their own are not semantic levels
        names = ["H-AP", "NDCG", "ASI"]
    metrics = []
    for name in names:
        if task.fixed_metrics and name in REVISITED_METRICS:
            metrics.append(Metric(name, REVISITED_METRICS[name]))
        else:
            metrics.append(Metric.from_name(name, n_levels))
    has_own_relevance = judgements.relevance is not None or task.graded_judgements is not None
    for metric in metrics:
        if metric.spec.tree and has_own_relevance:
            raise ConfigurationError(
                f"{metric.name} needs labels that form a tree, with one label per image and level; the relevances "
                "here come from several labels per image"
            )
        if metric.k is not None and not 1 <= metric.k <= most_ranked:
            raise ConfigurationError(
                f"{metric.name} needs k between 1 and the {most_ranked:,} gallery items that are ranked; take "
                "another k"
            )
    return metrics


def _query_values(
    task: RetrievalTask, metrics: Sequence[Metric], config: EvaluationConfig
) -> tuple[_Columns, dict[str, Any]]:
    """Return the values of all queries by column, and the settings of the level weights in words.

    This process ranks its share of the queries and computes the metrics of each block.
    """
    n_levels = task.judgements.n_levels
    relevance = config.relevance
    if relevance is None:
        relevance = task.judgements.relevance
    gain = config.gain
    if gain is None:
        gain = task.judgements.relevance
    weights = LevelWeights(
        (task.judgements.n_queries, n_levels + 1),
        relevance_alpha=config.relevance_alpha,
        level_weights=config.level_weights,
        relevance=relevance,
        gain=gain,
    )
    cutoffs = sorted({metric.k for metric in metrics if metric.k is not None})
    blocks: list[tuple[int, _Columns]] = []  # first query and values of each block
    rankings = rank(
        task,
        config.ranking,
        needed=needed_ranks(metrics),
        part=config.processes.part,
        progress=config.progress,
    )
    for ranked in rankings:
        statistics = ranking_statistics(
            ranked.levels,
            n_levels,
            cutoffs,
            n_ranked=ranked.n_ranked,
            positives=ranked.positives,
            ends=ranked.ends,
        )
        if task.n_positives is not None:
            n_positives = torch.from_numpy(task.n_positives[ranked.queries])
            statistics = replace(statistics, positives=n_positives.to(statistics.positives))
        columns = block_columns(metrics, ranked.levels, statistics, weights.block(ranked.queries))
        blocks.append((ranked.queries.start, columns))

    all_blocks: list[tuple[int, _Columns]] = []
    for blocks_of_process in config.processes.gather(blocks):
        all_blocks.extend(blocks_of_process)
    all_blocks.sort(key=lambda block: block[0])
    values = {}
    for name in all_blocks[0][1]:
        values[name] = np.concatenate([columns[name] for _, columns in all_blocks])
    return values, weights.settings


def block_columns(
    metrics: Sequence[Metric],
    levels: Tensor,
    statistics: RankingStatistics,
    weights: Mapping[str, Any],
) -> _Columns:
    """Return the metrics and the numbers of positives of a block of queries, shape (n,) by column.

    Args:
        metrics: Metrics to compute.
        levels: Levels in ranked order, see :meth:`~hgld.evaluation.metrics.Metric.values`.
        statistics: Statistics of the rankings.
        weights: Weights of the levels by name, from
            :meth:`~hgld.evaluation.relevance.LevelWeights.block`.
    """
    columns = {}
    for metric in metrics:
        columns[metric.name] = metric.values(levels, statistics, weights).cpu().numpy()
    positives = statistics.positives.to(torch.int64).T.cpu().numpy()
    columns.update(zip(positives_columns(statistics.n_levels), positives, strict=True))
    return columns


def positives_columns(n_levels: int) -> list[str]:
    """Return the names of the columns with numbers of positives, coarsest level first."""
    return [f"positives_l{level}" for level in range(1, n_levels + 1)]


def _zero_counts(task: RetrievalTask, config: EvaluationConfig) -> dict[str, int]:
    """Count the embeddings of zeros by role; distractors are not read and not counted."""
    judgements = task.judgements
    if isinstance(judgements, WithDistractors):
        judgements = judgements.judged
    dtype = torch.float64 if config.ranking.precision == "float64" else torch.float32
    n_zeros = {
        "queries": _count_zeros(task.queries, judgements.n_queries, dtype),
        "gallery": _count_zeros(task.gallery, judgements.n_gallery, dtype),
    }
    return {f"{role}_with_zero_embeddings": count for role, count in n_zeros.items() if count}


def _count_zeros(embeddings: Tensor, n_images: int, dtype: torch.dtype) -> int:
    """Count the embeddings among the first ``n_images`` that are zeros in the precision of scores."""
    candidates = (embeddings[:n_images, 0].to(dtype) == 0).nonzero()[:, 0]
    is_zero = (embeddings[candidates].to(dtype) == 0).all(dim=1)
    return int(is_zero.sum())
