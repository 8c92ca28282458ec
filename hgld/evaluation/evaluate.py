"""Evaluate retrieval tasks, of all images at once or collected in batches: rank, then take the metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from hgld.arrays import Booleans
from hgld.compute.processes import Processes, current_processes
from hgld.compute.scoring import Distance, Precision, Vectors, as_tensor, check_vectors
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.metrics import (
    REVISITED_METRICS,
    LevelWeights,
    Metric,
    Relevance,
    default_metrics,
    needed_ranks,
)
from hgld.evaluation.ranking import RankingConfig, Ties, rank, ranked_items
from hgld.evaluation.ranking_statistics import RankingStatistics, ranking_statistics
from hgld.evaluation.results import RetrievalResult, count_queries, warn_without_positives
from hgld.evaluation.retrieval_task import (
    RetrievalTask,
    WithDistractors,
    leave_one_out_task,
    query_gallery_task,
    split_task,
)
from hgld.evaluation.settings import MetricSettings, RerankSettings, SeveralLabels, as_names
from hgld.hierarchy.label_matrix import Labelling, LabelMatrix, LabelSets, main_labels
from hgld.io.text_array import Ids, TextArray
from hgld.progress import Progress
from hgld.ragged import RaggedIndices

_BEST_LEVEL = "the finest that any label of the query shares with any label of the image"
_GRADED_SETTINGS = {
    "relevance": "the mean, over the labels of the query, of l/L for the finest level l that each shares with any "
    "label of the image (thesis, Algorithm 1)",
    "gain": "the same relevance",
}
#: Largest distance of two embeddings of one image, as a fraction of their length: batches of other sizes are rounded
#: otherwise, most of all by models in 16 bits.
_ROUNDING = 0.02
log = logging.getLogger(__name__)
#: Slice of the queries of a block, and its values by column.
_BlockColumns = tuple[slice, dict[str, npt.NDArray[Any]]]
#: Embeddings, labels, whether each image is a query, and ids; None for what was not given.
_Batch = tuple[Tensor, LabelMatrix, Booleans | None, npt.NDArray[Any] | None]


@dataclass(frozen=True, eq=False)
class EvaluationConfig(MetricSettings):
    """Choice of metrics and of how to rank.

    Metrics are names, see :meth:`hgld.evaluation.metrics.Metric.from_name`; by default those of the task.
    ``several_labels`` has no effect beside ``relevance`` or ``gain``, and concerns H-AP, H-R@k, H-P@k and NDCG: all
    other metrics take the ``best`` level.

    Args:
        relevance: Relevance of H-AP, H-R@k and H-P@k: a function (see :mod:`hgld.evaluation.metrics`), one value
            per level, float (L + 1,), or one per query and level, float (n_query, L + 1). By default that of the
            judgements, or where they have none that of Eq. 20.
        gain: Gain of NDCG, in the same forms; by default that of the judgements, or where they have none 2^l - 1.
        ranking: How to rank.
        processes: This process and those that share the queries with it; every process gets the whole result.
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
        query_embeddings: float16, float32, bfloat16 or float64, shape (n_query, d); an array or a tensor, which may
            be memory-mapped. Embeddings of zeros have a cosine of 0 with all others, and are counted.
        query_labels: Integers, shape (n_query, L), finest first; or (n_query,) for one level; or
            :class:`~hgld.hierarchy.LabelSets` of images with several labels each. Unlabelled images, with -1 at every
            level or without labels, are excluded and counted.
        gallery_embeddings: The same for the gallery, shape (n_gallery, d). Without a gallery every query is ranked
            against all the others (leave-one-out), and never against itself.
        gallery_labels: The same for the gallery, shape (n_gallery, L).
        metrics: Names such as ``H-AP``, ``mAP@100``, ``R@1``, ``AP_l2`` (level 2; the finest is L); by default
            :func:`~hgld.evaluation.metrics.default_metrics`.
        relevance_alpha: Exponent alpha of Eq. 20, which weighs levels in H-AP.
        relevance: Another relevance, see :class:`EvaluationConfig`.
        gain: Another gain of NDCG, likewise.
        level_weights: Weights of the levels in ``wAP``, coarsest first; equal by default.
        several_labels: Relevance of images with several labels, see :class:`EvaluationConfig`.
        query_ids: Ids of the images, texts or integers, shape (n_query,); the index of ``per_query``.
        gallery_ids: Ids of the images, shape (n_gallery,). A gallery item with the id of the query is excluded from
            its ranking; so are copies of an image that share its id.
        ignored: Positions in the gallery, for each query, to exclude from its ranking (junk).
        block_size: Number of queries ranked at once; chosen by memory by default.
        device: ``cpu`` or ``cuda``; by default the device of the query embeddings.
        precision: Precision of scores, see :class:`~hgld.evaluation.ranking.RankingConfig`.
        ties: Which of two items with the same score is ranked first, likewise.
        distance: How embeddings are compared, likewise.
        reranking: Re-ranking; none by default.
        processes: Processes that share the queries, see :mod:`hgld.compute.processes`.
        progress: Progress bar over the queries.

    Returns:
        ``means``, ``per_query``, ``counts``, ``intervals()``.

    Raises:
        InputError: Shapes or ids do not fit each other, labels are not nested, a gallery is empty, or an embedding is
            not finite.
        ConfigurationError: See :func:`evaluate_tasks`.

    >>> embeddings = np.array([[1.0, 0.0], [0.8, 0.3], [0.9, 0.1], [0.0, 1.0]])
    >>> labels = np.array([[0, 0], [0, 0], [1, 0], [2, 1]])  # the third is nearer to the first than the second
    >>> result = evaluate_retrieval(embeddings, labels, metrics=["R@1", "H-AP"])
    >>> result.means
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> result.counts["without_positives_l1"]
    1
    """
    if device is None:
        device = str(query_embeddings.device) if isinstance(query_embeddings, Tensor) else "cpu"
    config = EvaluationConfig(
        metrics=as_names(metrics),
        relevance_alpha=relevance_alpha,
        relevance=relevance,
        gain=gain,
        level_weights=None if level_weights is None else tuple(level_weights),
        several_labels=several_labels,
        ranking=RankingConfig(
            block_size, device, precision, distance, ties, reranking or RerankSettings()
        ),
        processes=processes or Processes(),
        progress=progress,
    )
    junk = None if ignored is None else RaggedIndices.from_lists(ignored)
    task = build_task(
        query_embeddings,
        query_labels,
        gallery_embeddings,
        gallery_labels,
        query_ids,
        gallery_ids,
        junk,
    )
    (result,) = evaluate_tasks([task], config)
    return result


def build_task(
    query_embeddings: Vectors,
    query_labels: Labelling | Tensor,
    gallery_embeddings: Vectors | None,
    gallery_labels: Labelling | Tensor | None,
    query_ids: npt.ArrayLike | Tensor | None = None,
    gallery_ids: npt.ArrayLike | Tensor | None = None,
    ignored: RaggedIndices | None = None,
) -> RetrievalTask:
    """Build the task of :func:`evaluate_retrieval`, leave-one-out where there is no gallery."""
    queries, labels = as_tensor(query_embeddings), label_array(query_labels, "query")
    check_vectors(queries, "query")
    ids = _checked_ids(query_ids, len(labels), "query")
    if gallery_embeddings is None and gallery_labels is None and gallery_ids is None:
        if ignored is not None:
            ignored.check(len(labels), len(labels), "`ignored`")
        return leave_one_out_task(queries, labels, ids=ids, ignored=ignored)
    if gallery_embeddings is None or gallery_labels is None:
        raise ConfigurationError(
            "the gallery is given in part; expected `gallery_embeddings` and `gallery_labels` together (and "
            "`gallery_ids` only with them), or none of them to rank each query against the others"
        )
    if gallery_ids is not None and query_ids is None:
        raise ConfigurationError(
            "`gallery_ids` are given without `query_ids`; expected both, or neither"
        )
    gallery = queries if gallery_embeddings is query_embeddings else as_tensor(gallery_embeddings)
    check_vectors(gallery, "gallery")
    others = label_array(gallery_labels, "gallery")
    if ignored is not None:
        ignored.check(len(labels), len(others), "`ignored`")
    return query_gallery_task(
        queries,
        labels,
        gallery,
        others,
        query_ids=ids,
        gallery_ids=_checked_ids(gallery_ids, len(others), "gallery"),
        ignored=ignored,
    )


def label_array(labels: Labelling | Tensor, role: str) -> Labelling:
    """Return labels as int64, shape (n, L); label sets are returned as they are.

    Raises:
        InputError: They are not integers of shape (n, L) or (n,).
    """
    if isinstance(labels, LabelSets):
        return labels
    try:
        array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError:
        raise InputError(
            f"the {role} labels are lists of different lengths; expected one label per level for each image, or "
            "`LabelSets.from_lists` for several labels per image"
        ) from None
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"the {role} labels have the shape {array.shape} and the type {array.dtype}; expected integers of the "
            "shape (n, L), finest first, such as numbers of the classes of queries and gallery together from "
            "numpy.unique(labels, return_inverse=True)"
        )
    if array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
        raise InputError(
            f"the {role} labels are uint64, such as {array.max()}; expected integers below 2**63, such as numbers of "
            "classes from numpy.unique(labels, return_inverse=True)"
        )
    array = array.astype(np.int64, copy=False)
    return array[:, None] if array.ndim == 1 else array


def _checked_ids(ids: npt.ArrayLike | Tensor | None, n_images: int, role: str) -> Ids | None:
    if ids is None:
        return None
    array = ids if isinstance(ids, TextArray) else _id_array(ids, role)
    if len(array) != n_images:
        raise InputError(
            f"there are {len(array):,} {role} ids, but labels for {n_images:,} {role} images"
        )
    return array


def _id_array(ids: Any, role: str) -> npt.NDArray[Any]:
    """Return ids as an array of texts or integers.

    Those of pandas are arrays of objects, and texts of NumPy may be of the type ``numpy.dtypes.StringDType``.

    Raises:
        InputError: They are neither all texts nor all integers, or not of the shape (n,).
    """
    array = _array(ids)
    if array.ndim != 1:
        raise InputError(
            f"the {role} ids have the shape {array.shape}; expected one id per image, of the shape (n,)"
        )
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype == object:
        for kinds, dtype in ((str, np.str_), ((int, np.integer), np.int64)):
            if all(isinstance(value, kinds) for value in array):
                return array.astype(dtype)
    elif not len(array) or array.dtype.kind in "iuU":
        return array
    types = sorted({type(value).__name__ for value in array})
    raise InputError(
        f"the {role} ids are of the type {' and '.join(types)}; expected all texts, or all integers"
    )


def evaluate_tasks(
    tasks: Sequence[RetrievalTask], config: EvaluationConfig | None = None
) -> list[RetrievalResult]:
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
        names = dict.fromkeys(name for task in tasks for name in task.metrics or ())
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
    if task.query_ids is not None and len(task.query_ids) != n_queries:
        raise InputError(
            f"there are {len(task.query_ids):,} query ids, but labels for {n_queries:,} query images"
        )
    metrics = _choose_metrics(task, config)
    graded = _graded_metrics(task, metrics, config)
    columns, settings = _measure(
        task, [metric for metric in metrics if metric not in graded], config
    )
    if task.graded_judgements is not None:
        settings |= {"level": _BEST_LEVEL}
        if graded:
            values, _ = _measure(replace(task, judgements=task.graded_judgements), graded, config)
            columns |= {metric.name: values[metric.name] for metric in graded}
            settings |= _GRADED_SETTINGS
    names = [metric.name for metric in metrics]
    ids = np.arange(n_queries) if task.query_ids is None else np.asarray(task.query_ids)
    per_query = pd.DataFrame(
        {name: columns[name] for name in [*names, *positives_columns(n_levels)]},
        index=pd.Index(ids, name="query"),
    )
    if task.query_labels is not None:
        classes = main_labels(task.query_labels)[:, 0].tolist()
        if task.label_names:
            classes = [task.label_names[0][code] for code in classes]
        per_query["class"] = classes
    if config.processes.rank == 0:
        # Levels that have relevances of their own may have no items.
        n_needed = n_levels if judgements.relevance is None else 1
        warn_without_positives(task.name, per_query, range(1, n_needed + 1))
    result = RetrievalResult(
        name=task.name,
        per_query=per_query,
        metrics=tuple(names),
        counts=count_queries(per_query)
        | {"gallery": judgements.n_gallery, **task.counts, **_zero_counts(task, config)},
        settings={
            **settings,
            "ties": config.ranking.ties,
            "precision": config.ranking.precision,
            "distance": config.ranking.distance,
            "query_counted": "H-AP_selfcount only",
            **(
                {"re-ranking": reranking}
                if (reranking := config.ranking.reranking.describe())
                else {}
            ),
            **task.settings,
        },
    ).renamed(task.metric_names)
    if task.query_groups is None:
        return [result]
    return [result.part(name, queries) for name, queries in task.query_groups.items()]


def _graded_metrics(
    task: RetrievalTask, metrics: Sequence[Metric], config: EvaluationConfig
) -> list[Metric]:
    """Return the metrics that take the graded judgements of the task."""
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
    """Return the metrics to take, after a check of their cutoffs against the longest ranking."""
    judgements = task.judgements
    n_levels = judgements.n_levels
    most_ranked = int(ranked_items(judgements, task.excluded, task.gallery_mask)[2].max())
    if config.metrics is not None and not task.fixed_metrics:
        chosen = list(dict.fromkeys(config.metrics))
    elif task.metrics is not None:
        chosen = list(task.metrics)
    elif judgements.relevance is None:
        chosen = default_metrics(n_levels, most_ranked)
    else:  # levels with relevances of their own are not semantic levels
        chosen = ["H-AP", "NDCG", "ASI"]
    metrics = []
    for name in chosen:
        if task.fixed_metrics and name in REVISITED_METRICS:
            metrics.append(Metric(name, REVISITED_METRICS[name]))
        else:
            metrics.append(Metric.from_name(name, n_levels))
    for metric in metrics:
        if metric.spec.tree and (
            judgements.relevance is not None or task.graded_judgements is not None
        ):
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


def _measure(
    task: RetrievalTask, metrics: Sequence[Metric], config: EvaluationConfig
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the values of all queries by column, and what the weights of the levels are in words.

    This process ranks its share of the queries and takes the metrics of each block.
    """
    n_levels = task.judgements.n_levels
    own_relevance = task.judgements.relevance
    weights = LevelWeights(
        (task.judgements.n_queries, n_levels + 1),
        relevance_alpha=config.relevance_alpha,
        level_weights=config.level_weights,
        relevance=own_relevance if config.relevance is None else config.relevance,
        gain=own_relevance if config.gain is None else config.gain,
    )
    cutoffs = sorted({metric.k for metric in metrics if metric.k is not None})
    blocks: list[_BlockColumns] = []
    for ranked in rank(
        task,
        config.ranking,
        needed=needed_ranks(metrics),
        part=config.processes.part,
        progress=config.progress,
    ):
        statistics = ranking_statistics(
            ranked.levels,
            n_levels,
            cutoffs,
            n_ranked=ranked.n_ranked,
            positives=ranked.positives,
            ends=ranked.ends,
        )
        if task.n_positives is not None:
            n_positives = torch.from_numpy(task.n_positives[ranked.queries]).to(
                statistics.positives
            )
            statistics = replace(statistics, positives=n_positives)
        columns = block_columns(metrics, ranked.levels, statistics, weights.block(ranked.queries))
        blocks.append((ranked.queries, columns))
    blocks = [block for share in config.processes.gather(blocks) for block in share]
    blocks.sort(key=lambda block: block[0].start)
    columns = {
        name: np.concatenate([values[name] for _, values in blocks]) for name in blocks[0][1]
    }
    return columns, weights.settings


def block_columns(
    metrics: Sequence[Metric],
    levels: Tensor,
    statistics: RankingStatistics,
    weights: Mapping[str, Any],
) -> dict[str, npt.NDArray[Any]]:
    """Return the metrics and the numbers of positives of a block of queries: arrays of shape (n,) by column.

    Arguments are those of :meth:`~hgld.evaluation.metrics.Metric.values`.
    """
    columns = {
        metric.name: metric.values(levels, statistics, weights).cpu().numpy() for metric in metrics
    }
    positives = statistics.positives.to(torch.int64).T.cpu().numpy()
    return columns | dict(zip(positives_columns(statistics.n_levels), positives, strict=True))


def positives_columns(n_levels: int) -> list[str]:
    """Return the columns of :attr:`RetrievalResult.per_query` with the numbers of positives, coarsest level first."""
    return [f"positives_l{level}" for level in range(1, n_levels + 1)]


def _zero_counts(task: RetrievalTask, config: EvaluationConfig) -> dict[str, int]:
    """Count the embeddings that scores take for zeros, if there are any; distractors are not read for it."""
    judged = (
        task.judgements.judged if isinstance(task.judgements, WithDistractors) else task.judgements
    )
    dtype = torch.float64 if config.ranking.precision == "float64" else torch.float32
    counts = {}
    for role, embeddings, n in (
        ("queries", task.queries, None),
        ("gallery", task.gallery, judged.n_gallery),
    ):
        candidates = (embeddings[:n, 0].to(dtype) == 0).nonzero()[:, 0]
        if n_zeros := int((embeddings[candidates].to(dtype) == 0).all(dim=1).sum()):
            counts[f"{role}_with_zero_embeddings"] = n_zeros
    return counts


class RetrievalMetric:
    """Collect embeddings and labels batch by batch, then evaluate them as :func:`evaluate_retrieval` does.

    It has the methods ``update``, ``compute`` and ``reset`` of torchmetrics, but does not need that package; in
    Lightning, call ``self.log_dict(metric.compute())`` at the end of an epoch. Numbers are exact, not means over
    batches: those of ``evaluate_retrieval`` for all images, in the order of the batches, first those of the first
    process. Where ``torch.distributed`` is initialised, ``compute`` gathers the images of all processes, which share
    the work and all get the result; every process has to call it.

    Embeddings are kept in the memory of the CPU. Samplers for several processes, such as ``DistributedSampler``, may
    repeat images to give each process as many. **Pass ids then**: an image that comes again is counted once, and the
    log says how many do. An id names one image of all batches and processes, such as its row in the whole data set.

    Args:
        metrics: Names such as ``H-AP``; by default :func:`~hgld.evaluation.metrics.default_metrics`.
        **settings: Further settings of :class:`EvaluationConfig`, such as ``relevance_alpha`` or
            ``ranking=RankingConfig(device="cuda")``.

    >>> metric = RetrievalMetric(["R@1", "H-AP"])
    >>> metric.update(torch.tensor([[1.0, 0.0], [0.8, 0.3]]), torch.tensor([[0, 0], [0, 0]]))
    >>> metric.update(torch.tensor([[0.9, 0.1], [0.0, 1.0]]), torch.tensor([[1, 0], [2, 1]]))
    >>> metric.compute()
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> metric.reset()
    """

    def __init__(self, metrics: str | Sequence[str] | None = None, **settings: Any) -> None:
        self._config = EvaluationConfig(as_names(metrics), **settings)
        self._batches: list[_Batch] = []

    def update(
        self,
        embeddings: Vectors,
        labels: Tensor | LabelMatrix,
        *,
        is_query: Tensor | npt.ArrayLike | None = None,
        ids: npt.ArrayLike | Tensor | None = None,
    ) -> None:
        """Add a batch of images.

        Args:
            embeddings: float, shape (B, d), on any device.
            labels: Integers, shape (B, L), finest first; or (B,) for one level. Images with -1 at every level are
                excluded.
            is_query: bool, shape (B,); True for queries, False for the gallery that is ranked for them. By default
                every image is ranked against all others.
            ids: Ids of the images, integers or texts, shape (B,). Images are then in the order of their ids, so that
                results do not depend on batches and processes, and count once.

        Raises:
            InputError: The arguments are not of as many images, embeddings are not of the shape (B, d), labels are
                not integers, or ids neither texts nor integers.
        """
        vectors = as_tensor(embeddings)
        check_vectors(vectors, "query")
        matrix = label_array(labels, "query")
        if isinstance(matrix, LabelSets):
            raise InputError("batches have one label per image and level; found label sets")
        mask = None if is_query is None else _array(is_query).astype(bool).reshape(-1)
        names = None if ids is None else _id_array(ids, "query")
        lengths = [len(part) for part in (vectors, matrix, mask, names) if part is not None]
        if len(set(lengths)) > 1:
            raise InputError(
                f"the arguments of a batch have {', '.join(map(str, lengths))} rows; expected the same number"
            )
        self._batches.append((vectors.to("cpu", copy=True), matrix.copy(), mask, names))

    def compute(self) -> dict[str, float]:
        """Return the mean of each metric over the queries of all batches and processes.

        Raises:
            InputError: There are no images, only some batches have ids or queries, batches differ in the number of
                levels or dimensions, an id belongs to different images, or see :func:`evaluate_retrieval`.
            ConfigurationError: See :func:`evaluate_retrieval`.
        """
        processes = current_processes()
        batches = [batch for share in processes.gather(self._batches) for batch in share]
        if not batches:
            raise InputError("no images were added; call `update` with a batch before `compute`")
        vectors, matrices, masks, names = zip(*batches, strict=True)
        for parts, name in ((masks, "is_query"), (names, "ids")):
            if len({part is None for part in parts}) > 1:
                raise InputError(
                    f"only some batches have `{name}`; give it with all batches, or none"
                )
        _require_one_value("dimensions of embeddings", [part.shape[1] for part in vectors])
        _require_one_value("levels of labels", [part.shape[1] for part in matrices])
        embeddings, labels = torch.cat(vectors), np.concatenate(matrices)
        is_query = None if masks[0] is None else np.concatenate(masks)
        ids = None
        if names[0] is not None:
            kinds = [
                "texts" if part.dtype.kind == "U" else "integers" for part in names if len(part)
            ]
            _require_one_value("ids", kinds)
            ids = np.concatenate([part for part in names if len(part)] or names[:1])
            rows = _distinct_images(ids, is_query, labels, embeddings)
            embeddings, labels, ids = embeddings[torch.from_numpy(rows)], labels[rows], ids[rows]
            is_query = None if is_query is None else is_query[rows]
        task = split_task(embeddings, labels, is_query, ids=ids)
        (result,) = evaluate_tasks([task], replace(self._config, processes=processes))
        return result.means

    def reset(self) -> None:
        """Forget all images."""
        self._batches = []


def _require_one_value(name: str, values: Sequence[object]) -> None:
    """Raise an InputError unless all batches have the same."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) > 1:
        raise InputError(
            f"batches differ in their {name}: {' and '.join(map(str, distinct))}; expected the same"
        )


def _distinct_images(
    ids: npt.NDArray[Any], is_query: Booleans | None, labels: LabelMatrix, embeddings: Tensor
) -> npt.NDArray[np.intp]:
    """Return the first row of each image, in the order of ids; an image may be a query and in the gallery.

    Raises:
        InputError: Rows of one id have other labels, or as queries or in the gallery other embeddings.
    """
    codes = np.unique(ids, return_inverse=True)[1].reshape(-1)
    roles = np.zeros(len(ids), bool) if is_query is None else is_query
    rows = pd.Series(np.arange(len(ids)))
    rows_of_role = rows.groupby([codes, roles])
    first_of_image = rows.groupby(codes).transform("first").to_numpy()
    first_of_role = rows_of_role.transform("first").to_numpy()
    repeated = np.flatnonzero(first_of_role != rows)
    copies = embeddings[torch.from_numpy(repeated)].double()
    originals = embeddings[torch.from_numpy(first_of_role[repeated])].double()
    apart = torch.linalg.vector_norm(copies - originals, dim=1)
    lengths = torch.linalg.vector_norm(originals, dim=1)
    has_other_labels = np.flatnonzero((labels != labels[first_of_image]).any(axis=1))
    has_other_embedding = repeated[(apart > _ROUNDING * lengths).numpy()]
    for conflicting, what in ((has_other_labels, "labels"), (has_other_embedding, "embeddings")):
        if len(conflicting):
            row = conflicting[0]
            shown = f": {labels[first_of_image[row]].tolist()} and {labels[row].tolist()}" * (
                what == "labels"
            )
            raise InputError(
                f"{len(np.unique(codes[conflicting])):,} ids have different {what}, such as {ids[row]}{shown}; an id "
                "names one image of all batches and processes, so number the images of the whole data set"
            )
    if len(repeated):
        log.warning(
            "%s of %s images were added again, and are counted once",
            f"{len(repeated):,}",
            f"{len(ids):,}",
        )
    # A copy, as PyTorch warns of arrays that must not be written, such as those that pandas shares.
    first_rows: npt.NDArray[np.intp] = rows_of_role.first().to_numpy(copy=True)
    return first_rows


def _array(values: Any) -> npt.NDArray[Any]:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
