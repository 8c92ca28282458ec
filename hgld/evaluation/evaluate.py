"""From embeddings and labels to the numbers of a paper's table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.metric_registry import LevelWeights, Metric, default_metrics
from hgld.evaluation.ranking import Precision, RankingConfig, Ties, rank, ranked_items
from hgld.evaluation.ranking_statistics import RankTables, ranking_statistics
from hgld.evaluation.relevance import Relevance
from hgld.evaluation.relevance_judgements import LabelJudgements, RelevanceJudgements
from hgld.evaluation.results import RetrievalResult, count_queries
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.progress import Progress
from hgld.ragged import RaggedIndices

#: Embeddings of images, in memory or memory-mapped.
Vectors = npt.NDArray[Any] | torch.Tensor


def evaluate(
    query_embeddings: Vectors,
    gallery_embeddings: Vectors,
    judgements: RelevanceJudgements,
    *,
    name: str = "retrieval",
    metrics: Sequence[str] | None = None,
    relevance: Relevance | npt.ArrayLike | None = None,
    relevance_alpha: float = 1.0,
    gain: Relevance | npt.ArrayLike | None = None,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    query_ids: Sequence[Any] | npt.NDArray[Any] | None = None,
    config: RankingConfig | None = None,
    processes: Processes | None = None,
    progress: Progress | None = None,
) -> RetrievalResult:
    """Rank the gallery for every query and take the metrics, whatever it is that judges the pairs.

    One pass: a block of queries is scored and sorted once, and all metrics are taken from the sorted levels. Memory
    besides the embeddings: that of a block (see :class:`~hgld.evaluation.ranking.RankingConfig`), 32 bytes per gallery
    item, and a float64 per query and metric.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        judgements: who is how near to whom.
        name: of the result.
        metrics: names, see :meth:`Metric.of`; :func:`default_metrics` unless given.
        relevance: of H-AP, H-R@k and H-P@k: a function (see :mod:`hgld.evaluation.relevance`), one value per level,
            float (L + 1,), or one per query and level, float (n_query, L + 1). Unless given that of the judgements,
            or where they have none Eq. 20.
        relevance_alpha: the alpha of Eq. 20.
        gain: of NDCG, in the same forms. Unless given that of the judgements, or 2^l - 1.
        excluded: for each query the gallery items to leave out of its ranking.
        gallery_mask: bool, shape (n_gallery,); False for the items that are excluded from all rankings.
        query_ids: the index of the result's ``per_query``.
        config: how to rank.
        processes: this one and those that share the queries with it; every process gets the whole result.
        progress: told of the queries.

    Raises:
        ConfigurationError: an unknown metric or level, k beyond the gallery, a bad setting.
        InputError: embeddings and judgements do not fit each other; see :func:`~hgld.evaluation.ranking.rank`.
    """
    config, processes = config or RankingConfig(), processes or Processes()
    n_queries, n_levels = judgements.n_queries, judgements.n_levels
    if query_ids is not None:
        _check_ids(query_ids, n_queries, "query")
    chosen = _choose(metrics, judgements, int(ranked_items(judgements, excluded, gallery_mask).n_ranked.max()))
    names = [metric.name for metric in chosen]
    cutoffs = sorted({metric.k for metric in chosen if metric.k is not None})
    own = judgements.relevance()
    weigh = LevelWeights(
        own if relevance is None else relevance,
        relevance_alpha,
        own if gain is None else gain,
        shape=(n_queries, n_levels + 1),
    )
    # A ranking of nothing: settings that cannot work fail now, and not after a block of queries.
    nothing = ranking_statistics(torch.zeros(1, max(cutoffs, default=1), dtype=torch.uint8), n_levels, cutoffs)
    for metric in chosen:
        metric.values(nothing, weigh.of(slice(0, 1)))
    columns = [f"positives_l{level}" for level in range(1, n_levels + 1)]
    found: list[tuple[slice, dict[str, npt.NDArray[np.float64]]]] = []
    tables = None
    queries = as_tensor(query_embeddings)
    for ranked in rank(
        queries,
        queries if gallery_embeddings is query_embeddings else as_tensor(gallery_embeddings),
        judgements,
        excluded=excluded,
        gallery_mask=gallery_mask,
        config=config,
        part=processes.part,
        progress=progress,
    ):
        tables = tables or RankTables(judgements.n_gallery, ranked.levels.device)
        sums = ranking_statistics(ranked.levels, n_levels, cutoffs, n_ranked=ranked.n_ranked, tables=tables)
        weights = weigh.of(ranked.queries)
        values = {metric.name: metric.values(sums, weights) for metric in chosen}
        values.update(zip(columns, sums.positives.T, strict=True))
        found.append((ranked.queries, {key: value.cpu().numpy() for key, value in values.items()}))

    per_query = pd.DataFrame(
        {key: np.full(n_queries, np.nan) for key in [*names, *columns]},
        index=pd.Index(np.arange(n_queries) if query_ids is None else np.asarray(query_ids), name="query"),
    )
    for rows, block in (pair for pairs in processes.gather(found) for pair in pairs):
        for key, numbers in block.items():
            per_query.iloc[rows, per_query.columns.get_loc(key)] = numbers
    per_query = per_query.astype(dict.fromkeys(columns, np.int64))
    return RetrievalResult(
        name=name,
        per_query=per_query,
        metrics=tuple(names),
        counts=count_queries(per_query) | {"gallery": judgements.n_gallery},
        settings={
            **weigh.settings,
            "ties": config.ties,
            "precision": config.precision,
            "normalize": config.normalize,
            "query_counted": "H-AP_selfcount only",
        },
    )


def evaluate_retrieval(
    query_embeddings: Vectors,
    query_labels: LabelMatrix | torch.Tensor,
    gallery_embeddings: Vectors | None = None,
    gallery_labels: LabelMatrix | torch.Tensor | None = None,
    *,
    metrics: Sequence[str] | None = None,
    relevance_alpha: float = 1.0,
    relevance: Relevance | npt.ArrayLike | None = None,
    gain: Relevance | npt.ArrayLike | None = None,
    query_ids: Sequence[Any] | npt.NDArray[Any] | None = None,
    gallery_ids: Sequence[Any] | npt.NDArray[Any] | None = None,
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
        query_embeddings: float16, float32 or float64, shape (n_query, d); an array or a tensor, also memory-mapped.
        query_labels: integers, shape (n_query, L), finest first; or (n_query,) for one level.
        gallery_embeddings: likewise, shape (n_gallery, d). Without a gallery every query is ranked against all the
            others (leave-one-out), and never against itself.
        gallery_labels: likewise, shape (n_gallery, L).
        metrics: names such as ``H-AP``, ``mAP@100``, ``R@1``, ``AP_l2`` (level 2; the finest is L); those of
            :func:`default_metrics` unless given.
        relevance_alpha: the alpha of Eq. 20, which weighs levels in H-AP.
        relevance: another relevance, see :func:`evaluate`.
        gain: another gain of NDCG, see :func:`evaluate`.
        query_ids: of the images, shape (n_query,); the index of ``per_query``.
        gallery_ids: of the images, shape (n_gallery,). A gallery item with the id of the query is left out of its
            ranking; so are copies of an image, if they are given its id.
        ignored: for each query positions in the gallery to leave out of its ranking (junk).
        block_size: queries ranked at a time.
        device: ``cpu`` or ``cuda``; where the query embeddings are, unless given.
        precision: of scores, see :class:`~hgld.evaluation.ranking.RankingConfig`.
        ties: which of two items with the same score stands first, likewise.
        normalize: scale embeddings to length 1, likewise.
        processes: those that share the queries, see :mod:`hgld.compute.processes`.
        progress: told of the queries.

    Returns:
        ``means``, ``per_query``, ``counts``, ``intervals()``.

    Raises:
        InputError: shapes or ids do not fit each other, labels are not nested, a gallery is empty, or an embedding is
            not finite.
        ConfigurationError: see :func:`evaluate`.

    >>> embeddings = np.array([[1.0, 0.0], [0.8, 0.3], [0.9, 0.1], [0.0, 1.0]])
    >>> labels = np.array([[0, 0], [0, 0], [1, 0], [2, 1]])  # the third is nearer to the first than the second
    >>> result = evaluate_retrieval(embeddings, labels, metrics=["R@1", "H-AP"])
    >>> result.means
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> result.counts["without_positives_l1"]
    1
    """
    labels = _labels(query_labels, "query")
    alone = gallery_embeddings is None
    if alone != (gallery_labels is None) or (alone and gallery_ids is not None):
        raise ConfigurationError(
            "the gallery is given in part; expected gallery_embeddings and gallery_labels together (and gallery_ids "
            "only with them), or none of them to rank each query against the others"
        )
    excluded = RaggedIndices.of([[]] * len(labels))
    if gallery_embeddings is None or gallery_labels is None:
        gallery_embeddings, gallery, gallery_ids = query_embeddings, labels, query_ids
        excluded |= RaggedIndices(np.arange(len(labels) + 1), np.arange(len(labels)))
    else:
        gallery = _labels(gallery_labels, "gallery")
    if query_ids is not None:
        _check_ids(query_ids, len(labels), "query")
    if gallery_ids is not None:
        _check_ids(gallery_ids, len(gallery), "gallery")
        if query_ids is None:
            raise ConfigurationError("gallery_ids are given without query_ids; expected both, or neither")
        excluded |= items_sharing_ids(query_ids, gallery_ids)
    if ignored is not None:
        junk = RaggedIndices.of(ignored)
        junk.check(len(labels), len(gallery), "ignored")
        excluded |= junk
    if device is None:
        device = str(query_embeddings.device) if isinstance(query_embeddings, torch.Tensor) else "cpu"
    return evaluate(
        query_embeddings,
        gallery_embeddings,
        LabelJudgements(labels, gallery),
        name="leave-one-out" if alone else "retrieval",
        metrics=metrics,
        relevance=relevance,
        relevance_alpha=relevance_alpha,
        gain=gain,
        excluded=excluded,
        query_ids=query_ids,
        config=RankingConfig(block_size, device, precision, ties, normalize),
        processes=processes,
        progress=progress,
    )


def _choose(metrics: Sequence[str] | None, judgements: RelevanceJudgements, most_ranked: int) -> list[Metric]:
    """The metrics to take, given how many items the longest ranking has."""
    n_levels = judgements.n_levels
    if isinstance(metrics, str):
        names = [metrics]
    elif metrics is not None:
        names = list(dict.fromkeys(metrics))
    else:
        semantic = judgements.relevance() is None
        names = default_metrics(n_levels, most_ranked) if semantic else ["H-AP", "NDCG", "ASI"]
    chosen = [Metric.of(name, n_levels) for name in names]
    for metric in chosen:
        if metric.k is not None and not 1 <= metric.k <= most_ranked:
            raise ConfigurationError(
                f"{metric.name} needs k between 1 and the {most_ranked:,} gallery items that are ranked; take "
                "another k"
            )
    return chosen


def items_sharing_ids(
    query_ids: Sequence[Any] | npt.NDArray[Any], gallery_ids: Sequence[Any] | npt.NDArray[Any]
) -> RaggedIndices:
    """The gallery items that have the id of a query.

    Raises:
        InputError: they are not both texts or both integers.

    >>> items_sharing_ids(["b", "x"], ["a", "b", "b"]).columns.tolist()
    [1, 2]
    """
    both = [np.asarray(query_ids), np.asarray(gallery_ids)]
    if not any(all(np.issubdtype(ids.dtype, kind) for ids in both) for kind in (np.integer, np.str_)):
        raise InputError(
            f"the ids of queries are {both[0].dtype} and those of the gallery {both[1].dtype}; expected texts for "
            "both, or integers"
        )
    ids, codes = np.unique(np.concatenate(both), return_inverse=True)
    queries, gallery = codes[: len(query_ids)], codes[len(query_ids) :]
    order = np.argsort(gallery, kind="stable")
    starts = np.searchsorted(gallery[order], queries)
    counts = np.bincount(gallery, minlength=len(ids))[queries]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return RaggedIndices(offsets, order[np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, counts)])


def as_tensor(embeddings: Vectors) -> torch.Tensor:
    """A tensor over the same memory. Nothing here writes to it, though it may be mapped read-only.

    Raises:
        InputError: torch has no such arrays, such as those of another byte order.
    """
    if isinstance(embeddings, torch.Tensor):
        return embeddings.detach()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        try:
            return torch.from_numpy(np.asarray(embeddings))
        except (TypeError, ValueError) as error:
            raise InputError(f"the embeddings are no array that torch can read: {error}") from error


def _labels(labels: LabelMatrix | torch.Tensor, what: str) -> LabelMatrix:
    array = labels.cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"the {what} labels have the shape {array.shape} and the type {array.dtype}; expected integers of the "
            "shape (n, L), finest first"
        )
    array = array.astype(np.int64, copy=False)
    return array[:, None] if array.ndim == 1 else array


def _check_ids(ids: Sequence[Any] | npt.NDArray[Any], n_images: int, what: str) -> None:
    if len(ids) != n_images:
        raise InputError(f"there are {len(ids):,} {what} ids, but labels for {n_images:,} {what} images")
