"""Evaluate embeddings in memory: :func:`hgld.evaluate_retrieval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.processes import Processes
from hgld.compute.scoring import Precision, Vectors, as_tensor
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.evaluate import EvaluationConfig, SeveralLabels, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.ranking_keys import Ties
from hgld.evaluation.relevance import Relevance
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import Ids, RetrievalTask, leave_one_out_task, query_gallery_task
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.progress import Progress
from hgld.ragged import RaggedIndices


def evaluate_retrieval(
    query_embeddings: Vectors,
    query_labels: Labelling | torch.Tensor,
    gallery_embeddings: Vectors | None = None,
    gallery_labels: Labelling | torch.Tensor | None = None,
    *,
    metrics: Sequence[str] | None = None,
    relevance_alpha: float = 1.0,
    relevance: Relevance | npt.ArrayLike | None = None,
    gain: Relevance | npt.ArrayLike | None = None,
    level_weights: Sequence[float] | None = None,
    several_labels: SeveralLabels = "mean",
    query_ids: Sequence[Any] | Ids | None = None,
    gallery_ids: Sequence[Any] | Ids | None = None,
    ignored: Sequence[Sequence[int]] | None = None,
    block_size: int | None = None,
    device: str | None = None,
    precision: Precision = "float32",
    ties: Ties = "pessimistic",
    normalize: bool = True,
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
            :func:`~hgld.evaluation.metric_registry.default_metrics`.
        relevance_alpha: Exponent alpha of Eq. 20, which weighs levels in H-AP.
        relevance: Another relevance, see :class:`~hgld.evaluation.evaluate.EvaluationConfig`.
        gain: Another gain of NDCG, likewise.
        level_weights: Weights of the levels in ``wAP``, coarsest first; equal by default.
        several_labels: Relevance of images with several labels, see
            :class:`~hgld.evaluation.evaluate.EvaluationConfig`.
        query_ids: Ids of the images, shape (n_query,); the index of ``per_query``.
        gallery_ids: Ids of the images, shape (n_gallery,). A gallery item with the id of the query is excluded from
            its ranking; so are copies of an image that share its id.
        ignored: Positions in the gallery, for each query, to exclude from its ranking (junk).
        block_size: Number of queries ranked at once; chosen by memory by default.
        device: ``cpu`` or ``cuda``; by default the device of the query embeddings.
        precision: Precision of scores, see :class:`~hgld.evaluation.ranking.RankingConfig`.
        ties: Which of two items with the same score is ranked first, likewise.
        normalize: Whether to scale embeddings to length 1.
        processes: Processes that share the queries, see :mod:`hgld.compute.processes`.
        progress: Progress bar over the queries.

    Returns:
        ``means``, ``per_query``, ``counts``, ``intervals()``.

    Raises:
        InputError: Shapes or ids do not fit each other, labels are not nested, a gallery is empty, or an embedding is
            not finite.
        ConfigurationError: See :func:`~hgld.evaluation.evaluate.evaluate_tasks`.

    >>> embeddings = np.array([[1.0, 0.0], [0.8, 0.3], [0.9, 0.1], [0.0, 1.0]])
    >>> labels = np.array([[0, 0], [0, 0], [1, 0], [2, 1]])  # the third is nearer to the first than the second
    >>> result = evaluate_retrieval(embeddings, labels, metrics=["R@1", "H-AP"])
    >>> result.means
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> result.counts["without_positives_l1"]
    1
    """
    if device is None:
        device = str(query_embeddings.device) if isinstance(query_embeddings, torch.Tensor) else "cpu"
    config = EvaluationConfig(
        metrics=(metrics,) if isinstance(metrics, str) else None if metrics is None else tuple(metrics),
        relevance_alpha=relevance_alpha,
        relevance=relevance,
        gain=gain,
        level_weights=None if level_weights is None else tuple(level_weights),
        several_labels=several_labels,
        ranking=RankingConfig(block_size, device, precision, normalize, ties),
        processes=processes or Processes(),
        progress=progress,
    )
    junk = None if ignored is None else RaggedIndices.from_lists(ignored)
    task = _task(query_embeddings, query_labels, gallery_embeddings, gallery_labels, query_ids, gallery_ids, junk)
    (result,) = evaluate_tasks([task], config)
    return result


def _task(
    query_embeddings: Vectors,
    query_labels: Labelling | torch.Tensor,
    gallery_embeddings: Vectors | None,
    gallery_labels: Labelling | torch.Tensor | None,
    query_ids: Sequence[Any] | Ids | None,
    gallery_ids: Sequence[Any] | Ids | None,
    ignored: RaggedIndices | None,
) -> RetrievalTask:
    """Build the task, leave-one-out where there is no gallery."""
    queries, labels = as_tensor(query_embeddings), _labelling(query_labels, "query")
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
        raise ConfigurationError("`gallery_ids` are given without `query_ids`; expected both, or neither")
    gallery = queries if gallery_embeddings is query_embeddings else as_tensor(gallery_embeddings)
    others = _labelling(gallery_labels, "gallery")
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


def _labelling(labels: Labelling | torch.Tensor, role: str) -> Labelling:
    if isinstance(labels, LabelSets):
        return labels
    try:
        array = labels.cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    except ValueError:
        raise InputError(
            f"the {role} labels are lists of different lengths; expected one label per level for each image, or "
            "`LabelSets.from_lists` for several labels per image"
        ) from None
    if array.dtype.kind in "OSTU":
        raise InputError(
            f"the {role} labels are texts or objects; number the classes of queries and gallery together, such as "
            "with numpy.unique(labels, return_inverse=True)"
        )
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"the {role} labels have the shape {array.shape} and the type {array.dtype}; expected integers of the "
            "shape (n, L), finest first"
        )
    array = array.astype(np.int64, copy=False)
    return array[:, None] if array.ndim == 1 else array


def _checked_ids(ids: Sequence[Any] | Ids | None, n_images: int, role: str) -> Ids | None:
    if ids is None:
        return None
    if len(ids) != n_images:
        raise InputError(f"there are {len(ids):,} {role} ids, but labels for {n_images:,} {role} images")
    return np.asarray(ids)
