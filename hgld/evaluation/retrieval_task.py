"""Retrieval tasks: queries, the gallery that is ranked for them, judgements, and exclusions.

Judgements are levels of gallery items for each query. For nested labels the level of a pair is the
level of the lowest common ancestor (1: coarsest, L: finest, 0: no shared level). Lists of positives
have one level; images with several labels have the levels that Algorithm 1 of the thesis
distinguishes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from hgld.arrays import Booleans, Floats, Integers
from hgld.compute.parted import PartedTensor
from hgld.errors import InputError
from hgld.evaluation.settings import SeveralLabels
from hgld.hierarchy.label_matrix import LabelMatrix, nested_codes
from hgld.hierarchy.label_sets import Labelling, LabelSets, labelled_images, take_images
from hgld.io.text_array import Ids, TextArray
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings

Self = TypeVar("Self", bound="RelevanceJudgements")
#: Levels are uint8, and one value is reserved for items excluded from a ranking.
MAX_LEVELS = 254


def check_level_count(n_levels: int) -> None:
    """Raise an InputError if labels have more levels than metrics and losses can count."""
    if n_levels > MAX_LEVELS:
        raise InputError(f"the labels have {n_levels} levels; expected at most {MAX_LEVELS}")


class RelevanceJudgements(ABC):
    """Interface of relevance judgements, whose levels are read block by block.

    Attributes:
        n_queries: Number of queries.
        n_gallery: Number of gallery items.
        n_levels: Largest level L.
        relevance: Relevances that come with the levels, float64, shape (L + 1,) or (n_query, L + 1);
            None if they are not defined by the levels.
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
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, value.to(device))
        moved.device = device
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
        self.n_queries, self.n_levels = queries.shape
        self.n_gallery = len(gallery)

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        # Labels are nested, so the level is the number of equal columns.
        query_codes = self._queries[queries]
        gallery_codes = self._gallery[:, gallery]
        levels = torch.eq(query_codes[:, :1], gallery_codes[0]).view(torch.uint8)
        is_equal = torch.empty_like(levels, dtype=torch.bool)
        for column in range(1, self.n_levels):
            torch.eq(query_codes[:, column, None], gallery_codes[column], out=is_equal)
            levels += is_equal.view(torch.uint8)  # faster than adding bools
        return levels


class ListJudgements(RelevanceJudgements):
    """A single level: the items listed for a query are its positives.

    Args:
        positives: Positions of the positives in the gallery, for each query.
        n_gallery: Number of gallery items.

    Raises:
        InputError: A position is not in the gallery.
    """

    n_levels = 1

    def __init__(self, positives: RaggedIndices, n_gallery: int) -> None:
        positives.check(len(positives), n_gallery, "the list of positives")
        self._positives = positives
        self.n_queries = len(positives)
        self.n_gallery = n_gallery

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        start, stop, _ = gallery.indices(self.n_gallery)
        n_rows = len(range(*queries.indices(self.n_queries)))
        positive_rows, positive_columns = self._positives.block(queries)
        is_inside = (positive_columns >= start) & (positive_columns < stop)
        levels = torch.zeros(n_rows, stop - start, dtype=torch.uint8)
        rows = torch.from_numpy(positive_rows[is_inside])
        columns = torch.from_numpy(positive_columns[is_inside] - start)
        levels[rows, columns] = 1
        return levels.to(self.device)


class WithDistractors(RelevanceJudgements):
    """Judgements of a gallery followed by distractors, which have level 0 for every query.

    Args:
        judged: Judgements of the gallery.
        n_distractors: Number of distractors, which follow the judged gallery items.
    """

    def __init__(self, judged: RelevanceJudgements, n_distractors: int) -> None:
        self.judged = judged
        self.n_queries = judged.n_queries
        self.n_gallery = judged.n_gallery + n_distractors
        self.n_levels = judged.n_levels
        self.relevance = judged.relevance

    def to(self, device: torch.device) -> WithDistractors:
        return WithDistractors(self.judged.to(device), self.n_gallery - self.judged.n_gallery)

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        start, stop, _ = gallery.indices(self.n_gallery)
        n_judged = self.judged.n_gallery
        if start >= n_judged:
            n_rows = len(range(*queries.indices(self.n_queries)))
            return torch.zeros(n_rows, stop - start, dtype=torch.uint8, device=self.judged.device)
        levels = self.judged.levels(queries, slice(start, min(stop, n_judged)))
        n_distractors = stop - start - levels.shape[1]
        return torch.nn.functional.pad(levels, (0, n_distractors))


class LabelSetJudgements(RelevanceJudgements):
    """Levels of images with several labels each (thesis, section 4.2.2).

    Let l*_i be the finest level that the label y^i of a query with n labels shares with any label of
    an image. The level of the pair is either

    - ``mean``: the sum of the l*_i, an integer from 0 to n L, which ``relevance`` divides by n L as
      in Algorithm 1; metrics that weigh items by relevance use it;
    - ``best``: the largest l*_i, 0 to L, as in the losses; metrics of semantic levels use it, such
      as R@1.

    Takes 1 byte per pair of a block and per pair of a query and a distinct label of the gallery.

    Args:
        queries: Labels of the queries, at least one for each query.
        gallery: Labels of the gallery items; items without labels have level 0.
        several_labels: How the levels of the labels are combined.

    Raises:
        InputError: The numbers of levels differ, or L, or n L for ``mean``, is above 254.

    >>> sun, star, fish = [0, 0, 0], [1, 1, 0], [2, 2, 1]  # sun and star are of one category
    >>> queries = LabelSets.from_lists([[sun, fish]])
    >>> gallery = LabelSets.from_lists([[star], [sun, fish]])
    >>> LabelSetJudgements(queries, gallery, "best").levels(slice(0, 1), slice(0, 2)).tolist()
    [[1, 3]]
    >>> mean = LabelSetJudgements(queries, gallery, "mean")
    >>> mean.levels(slice(0, 1), slice(0, 2)).tolist()
    [[1, 6]]
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
        depth = queries.n_levels
        self._combine: Callable[[Tensor, Tensor], Tensor]
        self.n_queries = len(queries)
        self.n_gallery = len(gallery)
        if several_labels == "best":
            check_level_count(depth)
            self.n_levels = depth
            self._combine = torch.maximum
        else:
            n_labels = queries.counts()
            self.n_levels = int(n_labels.max(initial=1)) * depth
            if self.n_levels > MAX_LEVELS:
                raise InputError(
                    f"query {n_labels.argmax()} has {n_labels.max()} labels of {depth} levels; expected n times L of "
                    f"at most {MAX_LEVELS}"
                )
            relevance = np.arange(self.n_levels + 1) / (n_labels[:, None] * depth)
            self.relevance = relevance.clip(max=1.0)  # levels above n L of a query do not occur
            self._combine = torch.add

        # Codes of the distinct labels: equal codes mean equal labels at a level.
        n_query_labels = len(queries.labels)
        codes = np.concatenate([queries.labels, gallery.labels]).T
        for column in range(depth):
            codes[column] = np.unique(codes[column], return_inverse=True)[1]
        table = torch.from_numpy(np.ascontiguousarray(codes, np.int32))  # (L, labels)
        self._query_codes = table[:, :n_query_labels]
        self._gallery_codes = table[:, n_query_labels:]
        # Positions of each image's labels among the distinct labels, padded with -1: (K, images)
        self._queries = torch.from_numpy(queries.members.padded().T)
        self._gallery = torch.from_numpy(gallery.members.padded().T)

    def levels(self, queries: slice, gallery: slice) -> Tensor:
        query_members = self._queries[:, queries]
        gallery_members = self._gallery[:, gallery]
        levels = torch.zeros(
            query_members.shape[1],
            gallery_members.shape[1],
            dtype=torch.uint8,
            device=query_members.device,
        )
        for labels in query_members:
            rows = (labels >= 0).nonzero().view(-1)
            label_levels = self._shared_levels(labels[rows])
            image_levels = _best_of_images(label_levels, gallery_members)
            levels[rows] = self._combine(levels[rows], image_levels)
        return levels

    def _shared_levels(self, labels: Tensor) -> Tensor:
        """Return the finest level that labels of queries share with each label of the gallery.

        Args:
            labels: Positions among the labels of queries, int64, shape (n,).

        Returns:
            uint8, shape (n, labels of the gallery).
        """
        n_gallery_labels = self._gallery_codes.shape[1]
        levels = torch.zeros(len(labels), n_gallery_labels, dtype=torch.uint8, device=labels.device)
        depth = len(self._query_codes)
        for column in reversed(range(depth)):  # finer levels overwrite coarser ones
            query_codes = self._query_codes[column, labels]
            is_shared = query_codes.unsqueeze(1) == self._gallery_codes[column]
            levels[is_shared] = depth - column
        return levels


def _best_of_images(levels: Tensor, images: Tensor) -> Tensor:
    """Return the largest level over the labels of each image: uint8, (n, n_gallery).

    Args:
        levels: Levels of each label of the gallery, uint8, shape (n, labels).
        images: Positions of each image's labels, int64, shape (K, n_gallery), -1 as padding.
    """
    best = torch.zeros(len(levels), images.shape[1], dtype=torch.uint8, device=levels.device)
    for labels in images:
        columns = (labels >= 0).nonzero().view(-1)
        best[:, columns] = torch.maximum(best[:, columns], levels[:, labels[columns]])
    return best


@dataclass(frozen=True, eq=False)
class RetrievalTask:
    """Queries, the gallery that is ranked for them, and further data that an evaluation needs.

    Args:
        name: Name of the result.
        queries: float, shape (n_query, d); may be memory-mapped.
        gallery: float, shape (n_gallery, d); may be the same tensor.
        judgements: Levels of all pairs.
        graded_judgements: Levels with relevances of their own, for the metrics that weigh items by
            relevance or gain (H-AP, H-R@k, H-P@k, NDCG): Algorithm 1 of the thesis, for images with
            several labels. ``judgements`` by default.
        query_ids: Ids of the queries, shape (n_query,); their positions by default.
        gallery_ids: Ids of the gallery items, shape (n_gallery,); the ids of distractors may be
            missing.
        query_labels: Labels of the queries, int64, shape (n_query, L), finest first, or label sets,
            if labels are the judgements.
        gallery_labels: Labels of the gallery, in the same form.
        level_names: Names of the L levels, finest first.
        label_names: Names of the labels at each level, finest first, if files name labels; or ().
        excluded: Gallery items excluded from the ranking of each query: the query itself, copies of
            it, junk.
        itself: The excluded items that are the query itself, or copies of it, which re-ranking must
            not use.
        gallery_mask: bool, shape (n_gallery,); True for the items that are ranked, False for items
            excluded from all rankings. All items are ranked by default.
        n_positives: Number of positives of each query that metrics of a single level divide by,
            int64, shape (n_query, 1), for ground truth that repeats positives. By default the
            positives in the ranking are counted.
        metrics: Names of the metrics of the task; by default
            :func:`~hgld.evaluation.metrics.default_metrics`.
        fixed_metrics: Whether the protocol has these metrics and no others.
        metric_names: Names of metrics in the result, where they differ.
        query_groups: bool masks, shape (n_query,), by name: each group of queries gets a result, and
            all queries together do not.
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
    """Build the task that ranks every labelled image against all other labelled images.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first, -1 in the rows of unlabelled images; or label sets.
        ids: Ids of the images, shape (n,); images that share an id are excluded from each other's
            rankings. Positions by default.
        ignored: Further images to exclude from the ranking of each of the n images.
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are invalid, not nested or not as many as the images, or no image has
            a label.
    """
    n_images = len(labels)
    rows, embeddings, labels, ids = _labelled_queries(embeddings, labels, ids)
    itself = RaggedIndices.identity(len(rows))
    if ids is not None:
        itself |= items_sharing_ids(ids, ids)
    excluded = itself
    if ignored is not None:
        new_positions = np.full(n_images, -1)
        new_positions[rows] = np.arange(len(rows))
        junk = ignored.take(rows)
        columns = new_positions[junk.columns]
        is_labelled = columns >= 0
        excluded |= RaggedIndices.from_pairs(
            junk.rows()[is_labelled], columns[is_labelled], len(rows)
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
    """Build the task that ranks the labelled images of a gallery for the labelled queries.

    Args:
        queries: float, shape (n_query, d).
        query_labels: int64, shape (n_query, L), finest first, -1 in the rows of unlabelled images; or label sets.
        gallery: float, shape (n_gallery, d).
        gallery_labels: Labels of the gallery, in the same form as the labels of the queries.
        query_ids: Ids of the queries, shape (n_query,). Positions by default.
        gallery_ids: Ids of the gallery items, shape (n_gallery,); items with the id of a query are
            excluded from its ranking.
        ignored: Further gallery items to exclude from the ranking of each of the n_query images.
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are invalid, not nested, not as many as the images or differ in depth,
            no query has a label, or ids are not all texts or all integers.
    """
    n_queries = len(query_labels)
    has_ids = query_ids is not None
    rows, queries, query_labels, query_ids = _labelled_queries(queries, query_labels, query_ids)
    excluded = None if ignored is None else ignored.take(rows)
    itself = None
    n_in_gallery = 0
    if has_ids and gallery_ids is not None:
        assert query_ids is not None
        itself = items_sharing_ids(query_ids, gallery_ids)
        n_in_gallery = int(np.count_nonzero(itself.counts()))
        excluded = itself if excluded is None else itself | excluded
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
        itself=itself,
        level_names=level_names,
        gallery_mask=labelled,
        counts={
            "queries_without_labels": n_queries - len(rows),
            "gallery_without_labels": int((~labelled).sum()),
            "queries_in_gallery": n_in_gallery,
        },
    )


def with_distractors(task: RetrievalTask, distractors: Embeddings) -> RetrievalTask:
    """Append images to the gallery that are ranked and relevant to no query, such as R1M.

    Raises:
        InputError: The distractors have another number of dimensions than the gallery.
    """
    if distractors.dim != task.gallery.shape[1]:
        raise InputError(
            f"{distractors.path}: has {distractors.dim:,} dimensions, but the gallery has {task.gallery.shape[1]:,}; "
            "embed both with the same model"
        )
    n_distractors = len(distractors)
    gallery_ids = task.gallery_ids
    if gallery_ids is not None and distractors.ids is not None:
        gallery_ids = _joined_ids(gallery_ids, distractors.ids)
    graded_judgements = None
    if task.graded_judgements is not None:
        graded_judgements = WithDistractors(task.graded_judgements, n_distractors)
    gallery_mask = None
    if task.gallery_mask is not None:
        gallery_mask = np.append(task.gallery_mask, np.ones(n_distractors, bool))
    return replace(
        task,
        gallery=PartedTensor([task.gallery, distractors.vectors]),
        gallery_ids=gallery_ids,
        judgements=WithDistractors(task.judgements, n_distractors),
        graded_judgements=graded_judgements,
        gallery_mask=gallery_mask,
        counts={**task.counts, "distractors": n_distractors},
    )


def split_task(
    embeddings: Tensor,
    labels: Labelling,
    is_query: Booleans | None,
    *,
    ids: Ids | None = None,
    level_names: tuple[str, ...] | None = None,
) -> RetrievalTask:
    """Build a task from images with a mask of queries; without a mask, leave one out.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first, or label sets.
        is_query: bool, shape (n,); True for queries, False for the gallery. None to rank every image
            against all others.
        ids: Ids of the images, shape (n,).
        level_names: Names of the L levels, finest first.

    Raises:
        InputError: The labels are not nested.
    """
    if is_query is None:
        return leave_one_out_task(embeddings, labels, ids=ids, level_names=level_names)
    queries = np.flatnonzero(is_query)
    gallery = np.flatnonzero(~is_query)
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
    """Return the rows, embeddings, labels and ids of the labelled queries.

    If queries without labels are excluded and there are no ids, the rows become the ids.

    Raises:
        InputError: There are not as many labels as embeddings, a label is invalid, or no image has
            a label.
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
    embeddings = embeddings[torch.from_numpy(rows)]
    labels = take_images(labels, rows)
    ids = rows if ids is None else ids[rows]
    return rows, embeddings, labels, ids


def label_judgements(query_labels: Labelling, gallery_labels: Labelling) -> dict[str, Any]:
    """Return the judgements of labels, as arguments of :class:`RetrievalTask`.

    For images with several labels, the level is the finest level that any of their labels share, and
    metrics that weigh items take the relevance of Algorithm 1 of the thesis.

    Args:
        query_labels: int64, shape (n_query, L), finest first, or label sets.
        gallery_labels: Labels of the gallery, in the same form.

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


def _joined_ids(ids: Ids, further_ids: TextArray) -> TextArray:
    """Return the ids of the gallery and of distractors as one array, without a copy of the texts."""
    chunks = TextArray(ids).to_arrow().chunks + further_ids.to_arrow().chunks
    return TextArray(pa.chunked_array(chunks))


def items_sharing_ids(
    query_ids: Sequence[Any] | Ids, gallery_ids: Sequence[Any] | Ids
) -> RaggedIndices:
    """Return the positions of the gallery items that have the id of each query.

    Raises:
        InputError: The ids are not all texts or all integers.

    >>> items_sharing_ids(["b", "x"], ["a", "b", "b"]).columns.tolist()
    [1, 2]
    """
    if isinstance(query_ids, TextArray) and isinstance(gallery_ids, TextArray):
        # Equal texts get the same number; texts that no query has get -1.
        gallery_ids = query_ids.find(gallery_ids)
        query_ids = query_ids.find(query_ids)
    queries = _plain_ids(query_ids)
    gallery = _plain_ids(gallery_ids)
    both_texts = queries.dtype.kind == "U" and gallery.dtype.kind == "U"
    both_integers = queries.dtype.kind in "iu" and gallery.dtype.kind in "iu"
    if not (both_texts or both_integers):
        raise InputError(
            f"the ids of queries are {queries.dtype} and those of the gallery {gallery.dtype}; expected texts for "
            "both, or integers"
        )
    query_table = pd.DataFrame({"id": queries, "query": np.arange(len(queries))})
    gallery_table = pd.DataFrame({"id": gallery, "item": np.arange(len(gallery))})
    gallery_table = gallery_table[gallery_table["id"].isin(query_table["id"])]
    shared = query_table.merge(gallery_table, on="id")
    return RaggedIndices.from_pairs(
        shared["query"].to_numpy(np.int64), shared["item"].to_numpy(np.int64), len(queries)
    )


def _plain_ids(ids: Sequence[Any] | Ids) -> npt.NDArray[Any]:
    """Return ids as a NumPy array of texts or integers."""
    if isinstance(ids, TextArray):
        return np.asarray(ids, np.str_)
    return np.asarray(ids)
