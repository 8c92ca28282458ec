"""Retrieval tasks: queries, the gallery that is ranked for them, judgements of relevance, and exclusions.

Judgements are levels of gallery items for each query. For nested labels the level is that of the lowest common
ancestor (1: coarsest, L: finest, 0: nothing shared). Lists of positives have one level, images with several labels as
many as Algorithm 1 of the thesis distinguishes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.parted import PartedTensor
from hgld.errors import InputError
from hgld.evaluation.settings import SeveralLabels
from hgld.hierarchy.label_matrix import (
    Labelling,
    LabelMatrix,
    LabelSets,
    labelled_images,
    nested_codes,
    take_images,
)
from hgld.io.text_array import Ids, TextArray
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings

Self = TypeVar("Self", bound="RelevanceJudgements")
#: Levels are uint8, and one value is reserved for items excluded from a ranking.
MAX_LEVELS = 254


def check_level_count(n_levels: int) -> None:
    """Raise an :class:`~hgld.errors.InputError` if labels have more levels than metrics and losses count exactly."""
    if n_levels > MAX_LEVELS:
        raise InputError(f"the labels have {n_levels} levels; expected at most {MAX_LEVELS}")


class RelevanceJudgements(ABC):
    """Interface of relevance judgements; levels are read block by block.

    Attributes:
        n_queries: Number of queries.
        n_gallery: Number of gallery items.
        n_levels: Largest level L.
        relevance: Relevances that come with the levels, float64, shape (L + 1,) or (n_query, L + 1); None if the
            levels have none of their own.
        device: Device on which levels are computed.
    """

    n_queries: int
    n_gallery: int
    n_levels: int
    relevance: Floats | None = None
    device: torch.device = torch.device("cpu")

    def to(self: Self, device: torch.device) -> Self:
        """Return judgements whose :meth:`levels` are computed on a device."""
        moved = copy(self)
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        vars(moved).update(
            {name: tensor.to(device) for name, tensor in tensors.items()}, device=device
        )
        return moved

    @abstractmethod
    def levels(self, queries: slice, gallery: slice) -> Tensor:
        """Return the levels of a block of pairs: uint8, shape (n_query, n_gallery) of the slices."""


class LabelJudgements(RelevanceJudgements):
    """Levels from label matrices whose levels are nested (paper, section V).

    Args:
        query_labels: int64, shape (n_query, L), finest first.
        gallery_labels: int64, shape (n_gallery, L), finest first.

    Raises:
        InputError: The shapes do not fit, there are more than 254 levels, or the labels are not nested.

    >>> lake, pond, church = [0, 0, 0], [1, 0, 0], [2, 1, 1]
    >>> judgements = LabelJudgements(np.array([lake]), np.array([lake, pond, church]))
    >>> judgements.levels(slice(0, 1), slice(0, 3))
    tensor([[3, 2, 0]], dtype=torch.uint8)
    """

    def __init__(self, query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> None:
        queries, gallery = nested_codes(query_labels, gallery_labels)
        check_level_count(queries.shape[1])
        self._queries = torch.from_numpy(np.ascontiguousarray(queries))
        self._gallery = torch.from_numpy(np.ascontiguousarray(gallery.T))
        (self.n_queries, self.n_levels), self.n_gallery = queries.shape, len(gallery)

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        # Labels are nested, so the level is the number of equal columns.
        query_codes, gallery_codes = self._queries[queries], self._gallery[:, gallery]
        levels = torch.eq(query_codes[:, :1], gallery_codes[0]).view(torch.uint8)
        equal = torch.empty_like(levels, dtype=torch.bool)
        for column in range(1, self.n_levels):
            torch.eq(query_codes[:, column, None], gallery_codes[column], out=equal)
            levels += equal.view(torch.uint8)  # faster than to add bools
        return levels


class ListJudgements(RelevanceJudgements):
    """A single level: the items listed for a query are its positives.

    Args:
        positives: Positions of the positives in the gallery, for each query.

    Raises:
        InputError: A position is not in the gallery.
    """

    n_levels = 1

    def __init__(self, positives: RaggedIndices, n_gallery: int) -> None:
        positives.check(len(positives), n_gallery, "the list of positives")
        self._positives, self.n_queries, self.n_gallery = positives, len(positives), n_gallery

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        start, stop, _ = gallery.indices(self.n_gallery)
        rows, columns = map(torch.from_numpy, self._positives.block(queries))
        inside = (columns >= start) & (columns < stop)
        levels = torch.zeros(
            len(range(*queries.indices(self.n_queries))), stop - start, dtype=torch.uint8
        )
        levels[rows[inside], columns[inside] - start] = 1
        return levels.to(self.device)


class WithDistractors(RelevanceJudgements):
    """Judgements of a gallery, and after it distractors, which are of level 0 for every query."""

    def __init__(self, judged: RelevanceJudgements, n_distractors: int) -> None:
        self.judged, self.n_gallery = judged, judged.n_gallery + n_distractors
        self.n_queries, self.n_levels, self.relevance = (
            judged.n_queries,
            judged.n_levels,
            judged.relevance,
        )

    def to(self, device: torch.device) -> WithDistractors:
        return WithDistractors(self.judged.to(device), self.n_gallery - self.judged.n_gallery)

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        start, stop, _ = gallery.indices(self.n_gallery)
        if start >= self.judged.n_gallery:
            n_rows = len(range(*queries.indices(self.n_queries)))
            return torch.zeros(n_rows, stop - start, dtype=torch.uint8, device=self.judged.device)
        levels = self.judged.levels(queries, slice(start, min(stop, self.judged.n_gallery)))
        return torch.nn.functional.pad(levels, (0, stop - start - levels.shape[1]))


class LabelSetJudgements(RelevanceJudgements):
    """Levels of images with several labels each (thesis, section 4.2.2).

    Let l*_i be the finest level that the label y^i of a query with n labels shares with any label of an image. The
    level of the pair is either

    - ``mean``: the sum of the l*_i, an integer from 0 to n L, which ``relevance`` divides by n L as Algorithm 1 does;
      metrics that weigh items by relevance use it;
    - ``best``: the largest l*_i, 0 to L, as in the losses; metrics of semantic levels use it, such as R@1.

    Takes 1 byte per pair of a block and per pair of a query and a distinct label of the gallery.

    Args:
        queries: Labels of the queries, at least one for each.
        gallery: Labels of the gallery items; level 0 for items without any.
        several_labels: How the levels of the labels are combined.

    Raises:
        InputError: The numbers of levels differ, or L, or n L for ``mean``, is above 254.

    >>> sun, star, fish = [0, 0, 0], [1, 1, 0], [2, 2, 1]  # sun and star are of one category
    >>> queries, gallery = LabelSets.from_lists([[sun, fish]]), LabelSets.from_lists([[star], [sun, fish]])
    >>> mean, best = (LabelSetJudgements(queries, gallery, how) for how in ("mean", "best"))
    >>> [judgements.levels(slice(0, 1), slice(0, 2)).tolist() for judgements in (mean, best)]
    [[[1, 6]], [[1, 3]]]
    >>> mean.relevance.round(2)[0, [1, 6]]
    array([0.17, 1.  ])
    """

    def __init__(
        self, queries: LabelSets, gallery: LabelSets, several_labels: SeveralLabels
    ) -> None:
        if queries.n_levels != gallery.n_levels or not queries.n_levels:
            raise InputError(
                f"queries have labels of {queries.n_levels} levels and the gallery of {gallery.n_levels}; expected "
                "as many, at least one"
            )
        n_labels, depth = queries.counts(), queries.n_levels
        self.n_queries, self.n_gallery, self.n_levels = len(queries), len(gallery), depth
        if several_labels == "best":
            check_level_count(depth)
        else:
            self.n_levels = int(n_labels.max(initial=1)) * depth
            if self.n_levels > MAX_LEVELS:
                raise InputError(
                    f"query {n_labels.argmax()} has {n_labels.max()} labels of {depth} levels; expected n times L of "
                    f"at most {MAX_LEVELS}"
                )
            # Levels above a query's own n L do not occur.
            self.relevance = (np.arange(self.n_levels + 1) / (n_labels[:, None] * depth)).clip(
                max=1.0
            )
        self._add = torch.maximum if several_labels == "best" else torch.add
        codes = [
            np.unique(np.concatenate(columns), return_inverse=True)[1]
            for columns in zip(queries.labels.T, gallery.labels.T, strict=True)
        ]
        table = torch.from_numpy(
            np.stack(codes).astype(np.int32)
        )  # (L, labels of queries, then of the gallery)
        self._query_table, self._gallery_table = (
            table[:, : len(queries.labels)],
            table[:, len(queries.labels) :],
        )
        self._queries = torch.from_numpy(queries.members.padded().T)
        self._gallery = torch.from_numpy(gallery.members.padded().T)

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        own, others = self._queries[:, queries], self._gallery[:, gallery]
        levels = torch.zeros(own.shape[1], others.shape[1], dtype=torch.uint8, device=own.device)
        for labels in own:
            rows = (labels >= 0).nonzero().view(-1)
            shared = _shared_with_any(self._shared_levels(labels[rows]), others)
            levels[rows] = self._add(levels[rows], shared)
        return levels

    def _shared_levels(self, labels: Tensor) -> Tensor:
        """Return the finest level that labels of queries share with each label of the gallery: uint8, (n, labels)."""
        levels = torch.zeros(
            len(labels), self._gallery_table.shape[1], dtype=torch.uint8, device=labels.device
        )
        depth = len(self._query_table)
        for column in reversed(range(depth)):  # finer levels overwrite coarser ones
            equal = self._query_table[column, labels].unsqueeze(1) == self._gallery_table[column]
            levels[equal] = depth - column
        return levels


def _shared_with_any(levels: Tensor, images: Tensor) -> Tensor:
    """Return the largest level over the labels of each image: uint8, (n, n_gallery).

    Args:
        levels: Levels of each label of the gallery, uint8, shape (n, labels).
        images: Labels of each image, int64, shape (K, n_gallery), -1 as padding.
    """
    best = torch.zeros(len(levels), images.shape[1], dtype=torch.uint8, device=levels.device)
    for labels in images:
        columns = (labels >= 0).nonzero().view(-1)
        best[:, columns] = torch.maximum(best[:, columns], levels[:, labels[columns]])
    return best


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
        metrics: Names of the metrics of the task; by default those of
            :func:`~hgld.evaluation.metrics.default_metrics`.
        fixed_metrics: Whether the protocol has these metrics and no others.
        metric_names: Names of metrics in the result, where they differ.
        query_groups: bool masks, shape (n_query,), by name: each group of queries gets a result of its own, and
            there is none of all queries together.
        counts: Further counts of the result, such as of images without labels.
        settings: Further settings of the result.
    """

    name: str
    queries: Tensor
    gallery: Tensor
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
    gallery_mask: Booleans | None = None
    n_positives: Integers | None = None
    metrics: Sequence[str] | None = None
    fixed_metrics: bool = False
    metric_names: Mapping[str, str] = field(default_factory=dict)
    query_groups: Mapping[str, Booleans] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def leave_one_out_task(
    embeddings: Tensor,
    labels: Labelling,
    *,
    ids: Ids | None = None,
    ignored: RaggedIndices | None = None,
    level_names: tuple[str, ...] | None = None,
) -> RetrievalTask:
    """Rank every labelled image against all other labelled images.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first, -1 in the rows of unlabelled images; or label sets.
        ids: Ids of the images, shape (n,); images that share an id are excluded from each other's rankings. Positions
            by default.
        ignored: Further images to exclude from the ranking of each of the n images.
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are invalid, not nested or not as many as the images, or no image has any.
    """
    n_images = len(labels)
    rows, embeddings, labels, ids = _labelled_queries(embeddings, labels, ids)
    itself = RaggedIndices.identity(len(rows))
    itself = excluded = itself if ids is None else itself | items_sharing_ids(ids, ids)
    if ignored is not None:
        positions = np.full(n_images, -1)
        positions[rows] = np.arange(len(rows))
        junk = ignored.take(rows)
        columns = positions[junk.columns]
        excluded |= RaggedIndices.from_pairs(
            junk.rows()[columns >= 0], columns[columns >= 0], len(rows)
        )
    return RetrievalTask(
        name="leave-one-out",
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
    queries: Tensor,
    query_labels: Labelling,
    gallery: Tensor,
    gallery_labels: Labelling,
    *,
    query_ids: Ids | None = None,
    gallery_ids: Ids | None = None,
    ignored: RaggedIndices | None = None,
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
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are invalid, not nested, not as many as the images or differ in depth, no query has
            any, or ids are not all texts or all integers.
    """
    n_queries, has_ids = len(query_labels), query_ids is not None
    rows, queries, query_labels, query_ids = _labelled_queries(queries, query_labels, query_ids)
    excluded = ignored if ignored is None else ignored.take(rows)
    n_shared, shared = 0, None
    if has_ids and gallery_ids is not None:
        assert query_ids is not None
        shared = items_sharing_ids(query_ids, gallery_ids)
        n_shared = int(np.count_nonzero(shared.counts()))
        excluded = shared if excluded is None else shared | excluded
    labelled = labelled_images(gallery_labels)
    return RetrievalTask(
        name="retrieval",
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
    n, ids, graded, mask = (
        len(distractors),
        task.gallery_ids,
        task.graded_judgements,
        task.gallery_mask,
    )
    if distractors.dim != task.gallery.shape[1]:
        raise InputError(
            f"{distractors.path}: has {distractors.dim:,} dimensions, but the gallery has {task.gallery.shape[1]:,}; "
            "embed both with the same model"
        )
    return replace(
        task,
        gallery=PartedTensor([task.gallery, distractors.vectors]),
        gallery_ids=ids
        if ids is None or distractors.ids is None
        else _joined(ids, distractors.ids),
        judgements=WithDistractors(task.judgements, n),
        graded_judgements=None if graded is None else WithDistractors(graded, n),
        gallery_mask=None if mask is None else np.append(mask, np.ones(n, bool)),
        counts={**task.counts, "distractors": n},
    )


def split_task(
    embeddings: Tensor,
    labels: Labelling,
    is_query: Booleans | None,
    *,
    ids: Ids | None = None,
    level_names: tuple[str, ...] | None = None,
) -> RetrievalTask:
    """Rank the images that are not queries for those that are; without a choice of queries, leave one out.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first, or label sets.
        is_query: bool, shape (n,); True for queries, False for the gallery. None to rank every image against all
            others.
        ids: Ids of the images, shape (n,).
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are not nested.
    """
    if is_query is None:
        return leave_one_out_task(embeddings, labels, ids=ids, level_names=level_names)
    queries, gallery = np.flatnonzero(is_query), np.flatnonzero(~is_query)
    return query_gallery_task(
        embeddings[torch.from_numpy(queries)],
        take_images(labels, queries),
        embeddings[torch.from_numpy(gallery)],
        take_images(labels, gallery),
        query_ids=None if ids is None else ids[queries],
        gallery_ids=None if ids is None else ids[gallery],
        level_names=level_names,
    )


def _labelled_queries(
    embeddings: Tensor, labels: Labelling, ids: Ids | None
) -> tuple[Integers, Tensor, Labelling, Ids | None]:
    """Return positions, embeddings, labels and ids of labelled queries; positions are ids where some are excluded.

    Raises:
        InputError: There are not as many labels as embeddings, a label is invalid, or no image has any.
    """
    if len(embeddings) != len(labels):
        raise InputError(
            f"there are {len(embeddings):,} query embeddings, but labels for {len(labels):,}"
        )
    labelled = labelled_images(labels)
    rows = np.flatnonzero(labelled)
    if labelled.all():
        return rows, embeddings, labels, ids
    if not len(rows):
        raise InputError(
            "the query labels are those of unlabelled images alone; expected some of 0 or more"
        )
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


def _joined(ids: Ids, further: TextArray) -> TextArray:
    return TextArray(
        pa.chunked_array([*TextArray(ids).to_arrow().chunks, *further.to_arrow().chunks])
    )


def items_sharing_ids(
    query_ids: Sequence[Any] | Ids, gallery_ids: Sequence[Any] | Ids
) -> RaggedIndices:
    """Return the gallery items that have the id of each query.

    Raises:
        InputError: The ids are not all texts or all integers.

    >>> items_sharing_ids(["b", "x"], ["a", "b", "b"]).columns.tolist()
    [1, 2]
    """
    if isinstance(query_ids, TextArray) and isinstance(gallery_ids, TextArray):
        # Numbers that equal texts share, -1 for texts of no query.
        texts = query_ids
        query_ids, gallery_ids = texts.find(query_ids), texts.find(gallery_ids)
    both = [
        np.asarray(ids, np.str_ if isinstance(ids, TextArray) else None)
        for ids in (query_ids, gallery_ids)
    ]
    if not any(
        all(np.issubdtype(ids.dtype, kind) for ids in both) for kind in (np.integer, np.str_)
    ):
        raise InputError(
            f"the ids of queries are {both[0].dtype} and those of the gallery {both[1].dtype}; expected texts for "
            "both, or integers"
        )
    queries, gallery = (pd.DataFrame({"id": ids}).reset_index() for ids in both)
    shared = queries.merge(gallery[gallery["id"].isin(queries["id"])], on="id")
    return RaggedIndices.from_pairs(
        shared["index_x"].to_numpy(np.int64), shared["index_y"].to_numpy(np.int64), len(both[0])
    )
