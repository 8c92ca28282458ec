"""Relevance judgements: the level of each gallery item for each query, as a small integer.

Every metric of this package counts items by level and never compares relevances: two levels can have the same
relevance. For nested labels the level is that of the lowest common ancestor (1: coarsest, L: finest, 0: nothing
shared). Lists of positives have one level, images with several labels as many as Algorithm 1 of the thesis
distinguishes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.compiled import compiled, is_compiled
from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, nested_codes
from hgld.hierarchy.label_sets import LabelSets
from hgld.ragged import RaggedIndices

Self = TypeVar("Self", bound="RelevanceJudgements")
#: Levels are uint8, and one value is reserved for items excluded from a ranking.
MAX_LEVELS = 254
#: How the labels of an image with several of them make up one relevance.
SeveralLabels = Literal["mean", "best"]


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
    relevance: npt.NDArray[np.float64] | None = None
    device: torch.device = torch.device("cpu")

    def to(self: Self, device: torch.device) -> Self:
        """Return judgements whose :meth:`levels` are computed on a device."""
        moved = copy(self)
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        vars(moved).update({name: tensor.to(device) for name, tensor in tensors.items()}, device=device)
        return moved

    @abstractmethod
    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
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

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`; as labels are nested, the level is the number of equal columns."""
        query_codes, gallery_codes = self._queries[queries], self._gallery[:, gallery]
        shape = len(query_codes), gallery_codes.shape[1]
        if is_compiled(query_codes.device):
            compiled_levels = np.empty(shape, np.uint8)
            _count_equal(query_codes.numpy(), self._gallery.numpy(), gallery.start or 0, compiled_levels)
            return torch.from_numpy(compiled_levels)
        levels = torch.zeros(shape, dtype=torch.uint8, device=query_codes.device)
        equal = torch.empty(shape, dtype=torch.bool, device=query_codes.device)
        for column in range(self.n_levels):
            torch.eq(query_codes[:, column, None], gallery_codes[column], out=equal)
            levels += equal.view(torch.uint8)  # faster than to add bools
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
        self._positives, self.n_queries, self.n_gallery = positives, len(positives), n_gallery

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        start, stop, _ = gallery.indices(self.n_gallery)
        rows, columns = map(torch.from_numpy, self._positives.block(queries))
        inside = (columns >= start) & (columns < stop)
        levels = torch.zeros(len(range(*queries.indices(self.n_queries))), stop - start, dtype=torch.uint8)
        levels[rows[inside], columns[inside] - start] = 1
        return levels.to(self.device)


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
        InputError: There are no queries or no gallery, a query has no label, the numbers of levels differ, or L, or
            n L for ``mean``, is above 254.

    >>> sun, star, fish = [0, 0, 0], [1, 1, 0], [2, 2, 1]  # sun and star are of one category
    >>> queries, gallery = LabelSets.from_lists([[sun, fish]]), LabelSets.from_lists([[star], [sun, fish]])
    >>> mean, best = (LabelSetJudgements(queries, gallery, how) for how in ("mean", "best"))
    >>> [judgements.levels(slice(0, 1), slice(0, 2)).tolist() for judgements in (mean, best)]
    [[[1, 6]], [[1, 3]]]
    >>> mean.relevance.round(2)[0, [1, 6]]
    array([0.17, 1.  ])
    """

    def __init__(self, queries: LabelSets, gallery: LabelSets, several_labels: SeveralLabels) -> None:
        if not len(queries) or not len(gallery):
            raise InputError(f"there are {len(queries)} queries and {len(gallery)} gallery items")
        if queries.n_levels != gallery.n_levels or not queries.n_levels:
            raise InputError(
                f"queries have labels of {queries.n_levels} levels and the gallery of {gallery.n_levels}; expected "
                "as many, at least one"
            )
        n_labels, depth = queries.counts(), queries.n_levels
        if not n_labels.all():
            raise InputError(f"query {int(n_labels.argmin())} has no label; exclude it")
        self.n_queries, self.n_gallery, self.n_levels = len(queries), len(gallery), depth
        if several_labels == "best":
            check_level_count(depth)
        else:
            self.n_levels = int(n_labels.max()) * depth
            if self.n_levels > MAX_LEVELS:
                raise InputError(
                    f"query {n_labels.argmax()} has {n_labels.max()} labels of {depth} levels; expected n times L of "
                    f"at most {MAX_LEVELS}"
                )
            # Levels above a query's own n L do not occur.
            self.relevance = (np.arange(self.n_levels + 1) / (n_labels[:, None] * depth)).clip(max=1.0)
        self._add = torch.maximum if several_labels == "best" else torch.add
        codes = [
            np.unique(np.concatenate(columns), return_inverse=True)[1]
            for columns in zip(queries.labels.T, gallery.labels.T, strict=True)
        ]
        table = torch.from_numpy(np.stack(codes).astype(np.int32))  # (L, labels of queries, then of the gallery)
        self._query_table, self._gallery_table = table[:, : len(queries.labels)], table[:, len(queries.labels) :]
        self._queries = torch.from_numpy(_padded(queries))
        self._gallery = torch.from_numpy(_padded(gallery))

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        own, others = self._queries[:, queries], self._gallery[:, gallery]
        levels = torch.zeros(own.shape[1], others.shape[1], dtype=torch.uint8, device=own.device)
        for labels in own:
            rows = (labels >= 0).nonzero().view(-1)
            shared = _shared_with_any(self._shared_levels(labels[rows]), others)
            levels[rows] = self._add(levels[rows], shared)
        return levels

    def _shared_levels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the finest level that labels of queries share with each label of the gallery: uint8, (n, labels)."""
        levels = torch.zeros(len(labels), self._gallery_table.shape[1], dtype=torch.uint8, device=labels.device)
        depth = len(self._query_table)
        for column in reversed(range(depth)):  # finer levels overwrite coarser ones
            equal = self._query_table[column, labels].unsqueeze(1) == self._gallery_table[column]
            levels[equal] = depth - column
        return levels


def _shared_with_any(levels: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
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


def _padded(sets: LabelSets) -> npt.NDArray[np.int64]:
    """Return the labels of each image by their rows in ``sets.labels``: int64, shape (K, N), -1 as padding."""
    members = sets.members
    array = np.full((int(members.counts().max(initial=1)), len(members)), -1)
    rows = members.rows()
    array[np.arange(len(rows)) - members.offsets[rows], rows] = members.columns
    return array


@compiled()
def _count_equal(
    query_codes: npt.NDArray[np.int32],
    gallery_codes: npt.NDArray[np.int32],
    start: int,
    levels: npt.NDArray[np.uint8],
) -> None:
    """Count the equal codes of queries, int32, (n_query, L), and gallery items, (L, n_gallery), from ``start`` on."""
    for query in range(len(query_codes)):
        own = levels[query]
        own[:] = 0
        for column in range(len(gallery_codes)):
            code, others = query_codes[query, column], gallery_codes[column, start : start + len(own)]
            for i in range(len(own)):
                own[i] += others[i] == code
