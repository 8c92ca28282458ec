"""Retrieval tasks: queries, the gallery that is ranked for them, relevance judgements and exclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from hgld.compute.parted import PartedTensor
from hgld.errors import InputError
from hgld.evaluation.relevance import LabelJudgements, LabelSetJudgements, RelevanceJudgements, WithDistractors
from hgld.hierarchy.label_matrix import Labelling, LabelMatrix, LabelSets, labelled_images, take_images
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings

if TYPE_CHECKING:
    from hgld.evaluation.metrics import Metric

#: Ids of images: texts or integers, shape (n,).
Ids = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """Queries, the gallery that is ranked for them, and what an evaluation needs to know of both.

    Args:
        name: Name of the result.
        queries: float, shape (n_query, d); may be memory-mapped.
        gallery: float, shape (n_gallery, d); may be the same tensor.
        judgements: Levels of all pairs.
        graded_judgements: Levels with relevances of their own, for the metrics that weigh items by relevance or gain
            (H-AP, H-R@k, H-P@k, NDCG): Algorithm 1 of the thesis, for images with several labels. ``judgements`` by
            default.
        query_ids: Ids of the queries, shape (n_query,); their positions by default.
        gallery_ids: Ids of the gallery items, shape (n_gallery,), of which those of distractors may be missing.
        query_labels: Labels of the queries, int64, shape (n_query, L), finest first, or label sets, where labels are
            the judgements.
        gallery_labels: Labels of the gallery, likewise.
        level_names: Names of the L levels, finest first.
        label_names: Names of the labels at each level, finest first, where files state them as texts; or ().
        excluded: Gallery items excluded from the ranking of each query: itself, copies of it, junk.
        itself: Those of them that are the query itself, or copies of it, which re-ranking must not know.
        gallery_mask: bool, shape (n_gallery,); True for the items that are ranked, False for those excluded from all
            rankings. All are ranked by default.
        n_positives: Number of positives of each query that metrics of a single level divide by, int64,
            shape (n_query, 1), where ground truth lists some repeatedly. Those in the ranking are counted by default.
        metrics: Metrics of the task, by name or as objects; those of
            :func:`~hgld.evaluation.metrics.default_metrics` by default.
        fixed_metrics: Whether the protocol has these metrics and no others.
        metric_names: Names of metrics in the result, where they differ.
        query_groups: bool masks, shape (n_query,), by name: each group of queries gets a result of its own, and
            there is none of all queries together.
        index_labels: Labels of the gallery that rejection scores are fitted on, where they are not
            ``gallery_labels``: int64, shape (n_gallery, L).
        landmark_split: Split of the landmark ids in a hierarchy of several splits, where the protocol says it.
        counts: Further counts of the result, such as of images without labels.
        settings: Further settings of the result.
    """

    name: str
    queries: torch.Tensor
    gallery: torch.Tensor
    judgements: RelevanceJudgements
    graded_judgements: RelevanceJudgements | None = None
    query_ids: Ids | None = None
    gallery_ids: Ids | None = None
    query_labels: Labelling | None = None
    gallery_labels: Labelling | None = None
    level_names: tuple[str, ...] | None = None
    label_names: tuple[Mapping[int, str], ...] = ()
    excluded: RaggedIndices | None = None
    itself: RaggedIndices | None = None
    gallery_mask: npt.NDArray[np.bool_] | None = None
    n_positives: npt.NDArray[np.int64] | None = None
    metrics: Sequence[str | Metric] | None = None
    fixed_metrics: bool = False
    metric_names: Mapping[str, str] = field(default_factory=dict)
    query_groups: Mapping[str, npt.NDArray[np.bool_]] | None = None
    index_labels: LabelMatrix | None = None
    landmark_split: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def leave_one_out_task(
    embeddings: torch.Tensor,
    labels: Labelling,
    *,
    ids: Ids | None = None,
    ignored: RaggedIndices | None = None,
    name: str = "leave-one-out",
    level_names: tuple[str, ...] | None = None,
) -> RetrievalTask:
    """Rank every labelled image against all other labelled images.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first, -1 in the rows of unlabelled images; or label sets.
        ids: Ids of the images, shape (n,); images that share an id are excluded from each other's rankings. Positions
            by default.
        ignored: Further images to exclude from the ranking of each of the n images.
        name: Name of the result.
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are invalid, not nested or not as many as the images, or no image has any.
    """
    n_images = len(labels)
    rows, embeddings, labels, ids = _labelled_images(embeddings, labels, ids, "query")
    itself = RaggedIndices.identity(len(rows))
    itself = excluded = itself if ids is None else itself | items_sharing_ids(ids, ids)
    if ignored is not None:
        positions = np.full(n_images, -1)
        positions[rows] = np.arange(len(rows))
        junk = ignored.take(rows)
        columns = positions[junk.columns]
        excluded |= RaggedIndices.from_pairs(junk.rows()[columns >= 0], columns[columns >= 0], len(rows))
    return RetrievalTask(
        name=name,
        queries=embeddings,
        gallery=embeddings,
        **label_judgements(labels, labels),
        query_ids=ids,
        gallery_ids=ids,
        query_labels=labels,
        gallery_labels=labels,
        excluded=excluded,
        itself=itself,
        level_names=level_names,
        counts={"images_without_labels": n_images - len(rows)},
    )


def query_gallery_task(
    queries: torch.Tensor,
    query_labels: Labelling,
    gallery: torch.Tensor,
    gallery_labels: Labelling,
    *,
    query_ids: Ids | None = None,
    gallery_ids: Ids | None = None,
    ignored: RaggedIndices | None = None,
    name: str = "retrieval",
    level_names: tuple[str, ...] | None = None,
) -> RetrievalTask:
    """Rank the labelled images of a gallery for the labelled queries.

    Args:
        queries: float, shape (n_query, d).
        query_labels: int64, shape (n_query, L), finest first, -1 in the rows of unlabelled images; or label sets.
        gallery: float, shape (n_gallery, d).
        gallery_labels: The same for the gallery; sets if those of the queries are.
        query_ids: Ids of the queries, shape (n_query,). Positions by default.
        gallery_ids: Ids of the gallery items, shape (n_gallery,); those with the id of a query are excluded from its
            ranking.
        ignored: Further gallery items to exclude from the ranking of each of the n_query images.
        name: Name of the result.
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are invalid, not nested, not as many as the images or differ in depth, no query has
            any, or ids are not all texts or all integers.
    """
    n_queries, has_ids = len(query_labels), query_ids is not None
    rows, queries, query_labels, query_ids = _labelled_images(queries, query_labels, query_ids, "query")
    excluded = ignored if ignored is None else ignored.take(rows)
    n_shared, shared = 0, None
    if has_ids and gallery_ids is not None:
        assert query_ids is not None
        shared = items_sharing_ids(query_ids, gallery_ids)
        n_shared = int(np.count_nonzero(shared.counts()))
        excluded = shared if excluded is None else shared | excluded
    labelled = labelled_images(gallery_labels)
    return RetrievalTask(
        name=name,
        queries=queries,
        gallery=gallery,
        **label_judgements(query_labels, gallery_labels),
        query_ids=query_ids,
        gallery_ids=gallery_ids,
        query_labels=query_labels,
        gallery_labels=gallery_labels,
        excluded=excluded,
        itself=shared,
        level_names=level_names,
        gallery_mask=labelled,
        counts={
            "queries_without_labels": n_queries - len(rows),
            "gallery_without_labels": int((~labelled).sum()),
            "queries_in_gallery": n_shared,
        },
    )


def with_distractors(task: RetrievalTask, distractors: Embeddings) -> RetrievalTask:
    """Append images to the gallery that are relevant to no query, and are ranked for all of them, such as R1M.

    Raises:
        InputError: They have another number of dimensions than the gallery.
    """
    n, ids, graded, mask = len(distractors), task.gallery_ids, task.graded_judgements, task.gallery_mask
    if distractors.dim != task.gallery.shape[1]:
        raise InputError(
            f"{distractors.path}: has {distractors.dim:,} dimensions, but the gallery has {task.gallery.shape[1]:,}; "
            "embed both with the same model"
        )
    return replace(
        task,
        gallery=PartedTensor([task.gallery, distractors.vectors]),
        gallery_ids=ids if ids is None or distractors.ids is None else np.concatenate([ids, distractors.ids]),
        judgements=WithDistractors(task.judgements, n),
        graded_judgements=None if graded is None else WithDistractors(graded, n),
        gallery_mask=None if mask is None else np.append(mask, np.ones(n, bool)),
        counts={**task.counts, "distractors": n},
    )


def split_task(
    embeddings: torch.Tensor,
    labels: Labelling,
    is_query: npt.NDArray[np.bool_] | None,
    *,
    ids: Ids | None = None,
    name: str | None = None,
    level_names: tuple[str, ...] | None = None,
) -> RetrievalTask:
    """Rank the images that are not queries for those that are; without a choice of queries, leave one out.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first, or label sets.
        is_query: bool, shape (n,); True for queries, False for the gallery. None to rank every image against all
            others.
        ids: Ids of the images, shape (n,).
        name: Name of the result; ``leave-one-out`` or ``retrieval`` by default.
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are not nested.
    """
    if is_query is None:
        return leave_one_out_task(embeddings, labels, ids=ids, name=name or "leave-one-out", level_names=level_names)
    queries, gallery = np.flatnonzero(is_query), np.flatnonzero(~is_query)
    return query_gallery_task(
        embeddings[torch.from_numpy(queries)],
        take_images(labels, queries),
        embeddings[torch.from_numpy(gallery)],
        take_images(labels, gallery),
        query_ids=None if ids is None else ids[queries],
        gallery_ids=None if ids is None else ids[gallery],
        name=name or "retrieval",
        level_names=level_names,
    )


def _labelled_images(
    embeddings: torch.Tensor, labels: Labelling, ids: Ids | None, role: str
) -> tuple[npt.NDArray[np.int64], torch.Tensor, Labelling, Ids | None]:
    """Return the positions, embeddings, labels and ids of labelled images; positions are ids where some are left out.

    Raises:
        InputError: There are not as many labels as embeddings, a label is invalid, or no image has any.
    """
    if len(embeddings) != len(labels):
        raise InputError(f"there are {len(embeddings):,} {role} embeddings, but labels for {len(labels):,}")
    labelled = labelled_images(labels)
    rows = np.flatnonzero(labelled)
    if labelled.all():
        return rows, embeddings, labels, ids
    if not len(rows):
        raise InputError(f"the {role} labels are those of unlabelled images alone; expected some of 0 or more")
    labels = take_images(labels, rows)
    return rows, embeddings[torch.from_numpy(rows)], labels, rows if ids is None else ids[rows]


def label_judgements(query_labels: Labelling, gallery_labels: Labelling) -> dict[str, Any]:
    """Return the judgements of labels, as arguments of :class:`RetrievalTask`.

    Of images with several labels, the level is the finest that any of their labels share, and metrics that weigh
    items take the relevance of Algorithm 1 of the thesis.

    Args:
        query_labels: int64, shape (n_query, L), finest first, or label sets.
        gallery_labels: The same for the gallery.

    Raises:
        InputError: The labels are not nested, differ in depth, or are sets on one side alone.
    """
    if isinstance(query_labels, LabelSets) and isinstance(gallery_labels, LabelSets):
        return {
            "judgements": LabelSetJudgements(query_labels, gallery_labels, "best"),
            "graded_judgements": LabelSetJudgements(query_labels, gallery_labels, "mean"),
        }
    if isinstance(query_labels, LabelSets) or isinstance(gallery_labels, LabelSets):
        several = "queries" if isinstance(query_labels, LabelSets) else "gallery"
        raise InputError(
            f"only the {several} can have several labels per image; give the labels of both in one form, such as "
            "those of one manifest"
        )
    return {"judgements": LabelJudgements(query_labels, gallery_labels)}


def items_sharing_ids(query_ids: Sequence[Any] | Ids, gallery_ids: Sequence[Any] | Ids) -> RaggedIndices:
    """Return the gallery items that have the id of each query.

    Raises:
        InputError: The ids are not all texts or all integers.

    >>> items_sharing_ids(["b", "x"], ["a", "b", "b"]).columns.tolist()
    [1, 2]
    """
    both = [np.asarray(query_ids), np.asarray(gallery_ids)]
    if not any(all(np.issubdtype(ids.dtype, kind) for ids in both) for kind in (np.integer, np.str_)):
        raise InputError(
            f"the ids of queries are {both[0].dtype} and those of the gallery {both[1].dtype}; expected texts for "
            "both, or integers"
        )
    queries, gallery = (pd.DataFrame({"id": ids}).reset_index() for ids in both)
    shared = queries.merge(gallery, on="id")
    return RaggedIndices.from_pairs(
        shared["index_x"].to_numpy(np.int64), shared["index_y"].to_numpy(np.int64), len(both[0])
    )
