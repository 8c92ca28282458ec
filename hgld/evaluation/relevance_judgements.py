"""How near each gallery item is to each query, as a small integer: its level.

Every metric of this package counts items by level and never compares relevances: two levels can have the same
relevance. For nested labels the level is that of the lowest common ancestor (1: coarsest, L: finest, 0: nothing
shared). Lists of positives have one level, labels per image with several concepts as many as Algorithm 1 of the
thesis tells apart, a table of relevances as many as it has values.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, nested_codes
from hgld.ragged import RaggedIndices

#: Levels are uint8; the byte also has to tell the items apart that are left out of a ranking.
MOST_LEVELS = 254


class RelevanceJudgements(Protocol):
    """What an evaluation needs to know of queries and gallery besides their embeddings."""

    @property
    def n_queries(self) -> int:
        """How many queries there are."""

    @property
    def n_gallery(self) -> int:
        """How many gallery items there are."""

    @property
    def n_levels(self) -> int:
        """L, the largest level."""

    def relevance(self) -> npt.NDArray[np.float64] | None:
        """The relevance of each level, (L + 1,) or (n_query, L + 1), where the levels come with one."""

    def to(self, device: torch.device) -> RelevanceJudgements:
        """The same, with what :meth:`levels` reads on a device."""

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """The levels of a part of the gallery for a few queries: uint8, shape (n_query, n_gallery) of the slices."""


class LabelJudgements:
    """Levels from label matrices whose levels are nested (paper, section V).

    Args:
        query_labels: int64, shape (n_query, L), finest first.
        gallery_labels: int64, shape (n_gallery, L), finest first.

    Raises:
        InputError: the shapes do not fit, or the labels are not nested.

    >>> lake, pond, church = [0, 0, 0], [1, 0, 0], [2, 1, 1]
    >>> judgements = LabelJudgements(np.array([lake]), np.array([lake, pond, church]))
    >>> judgements.levels(slice(0, 1), slice(0, 3))
    tensor([[3, 2, 0]], dtype=torch.uint8)
    """

    def __init__(self, query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> None:
        try:
            queries, gallery = nested_codes(query_labels, gallery_labels)
        except ValueError as error:
            raise InputError(str(error)) from error
        if queries.shape[1] > MOST_LEVELS:
            raise InputError(f"the labels have {queries.shape[1]} levels; expected at most {MOST_LEVELS}")
        self._queries = torch.from_numpy(np.ascontiguousarray(queries))
        self._gallery = torch.from_numpy(np.ascontiguousarray(gallery.T))

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return self._queries.shape[0]

    @property
    def n_gallery(self) -> int:
        """How many gallery items there are."""
        return self._gallery.shape[1]

    @property
    def n_levels(self) -> int:
        """L, the largest level."""
        return self._queries.shape[1]

    def relevance(self) -> None:
        """These levels have none of their own."""

    def to(self, device: torch.device) -> LabelJudgements:
        """See :class:`RelevanceJudgements`."""
        moved = copy(self)
        moved._queries, moved._gallery = self._queries.to(device), self._gallery.to(device)
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`. Labels are nested, so the number of equal columns is the level."""
        own, others = self._queries[queries], self._gallery[:, gallery]
        levels = torch.zeros(len(own), others.shape[1], dtype=torch.uint8, device=own.device)
        equal = torch.empty(levels.shape, dtype=torch.bool, device=own.device)
        for column in range(self.n_levels):
            levels += torch.eq(own[:, column, None], others[column], out=equal)
        return levels


class ListJudgements:
    """One level: the items listed for a query are its positives.

    Args:
        positives: of each query.
        n_gallery: how many gallery items there are.

    Raises:
        InputError: a position is not in the gallery.
    """

    n_levels = 1

    def __init__(self, positives: RaggedIndices, n_gallery: int) -> None:
        positives.check(len(positives), n_gallery, "the list of positives")
        self._positives, self.n_gallery = positives, n_gallery
        self._device = torch.device("cpu")

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return len(self._positives)

    def relevance(self) -> None:
        """These levels have none of their own."""

    def to(self, device: torch.device) -> ListJudgements:
        """See :class:`RelevanceJudgements`."""
        moved = copy(self)
        moved._device = device
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        start, stop, _ = gallery.indices(self.n_gallery)
        rows, columns = map(torch.from_numpy, self._positives.block(queries))
        here = (columns >= start) & (columns < stop)
        n_rows = len(range(*queries.indices(self.n_queries)))
        levels = torch.zeros(n_rows, stop - start, dtype=torch.uint8)
        levels[rows[here], columns[here] - start] = 1
        return levels.to(self._device)


class MultiLabelJudgements:
    """Levels of images with several labels each (thesis, Algorithm 1).

    A query with the labels y^1, ..., y^n has with an image the relevance sum_i l*_i / (n L), where l*_i is the
    finest level that y^i shares with any label of the image. The level here is the sum of the l*_i, an integer
    from 0 to n L, and :meth:`relevance` divides it.

    Args:
        query_labels: for each query its labels, int64, shape (n, L), finest first; one label at least.
        gallery_labels: for each gallery item likewise.

    Raises:
        InputError: an image has no label, the numbers of levels differ, the labels are not nested, or a query has
            so many labels that n L is above 254.
    """

    def __init__(self, query_labels: Sequence[LabelMatrix], gallery_labels: Sequence[LabelMatrix]) -> None:
        for name, images in (("query", query_labels), ("gallery item", gallery_labels)):
            for position, labels in enumerate(images):
                if np.ndim(labels) != 2 or not len(labels):
                    raise InputError(
                        f"{name} {position} has labels of the shape {np.shape(labels)}; expected (n, L), n > 0"
                    )
        if not len(query_labels) or not len(gallery_labels):
            raise InputError(f"there are {len(query_labels)} queries and {len(gallery_labels)} gallery items")
        try:
            queries, gallery = nested_codes(np.concatenate(query_labels), np.concatenate(gallery_labels))
        except ValueError as error:
            raise InputError(str(error)) from error
        self._depth: int = queries.shape[1]
        self._counts = np.array([len(labels) for labels in query_labels], np.int64)
        if self._counts.max() * self._depth > MOST_LEVELS:
            raise InputError(
                f"query {self._counts.argmax()} has {self._counts.max()} labels of {self._depth} levels; expected n "
                f"times L of at most {MOST_LEVELS}"
            )
        self._queries = np.split(queries, np.cumsum(self._counts)[:-1])
        self._gallery = torch.from_numpy(gallery)
        self._offsets = np.concatenate([[0], np.cumsum([len(labels) for labels in gallery_labels])])
        self._device = torch.device("cpu")

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return len(self._queries)

    @property
    def n_gallery(self) -> int:
        """How many gallery items there are."""
        return len(self._offsets) - 1

    @property
    def n_levels(self) -> int:
        """The largest n L of any query."""
        return int(self._counts.max()) * self._depth

    def relevance(self) -> npt.NDArray[np.float64]:
        """The relevance of each level for each query: float64, shape (n_query, n_levels + 1)."""
        shares: npt.NDArray[np.float64] = np.arange(self.n_levels + 1) / (self._counts[:, None] * self._depth)
        return shares.clip(max=1.0)  # levels above a query's own n L do not occur

    def to(self, device: torch.device) -> MultiLabelJudgements:
        """See :class:`RelevanceJudgements`."""
        moved = copy(self)
        moved._gallery, moved._device = self._gallery.to(device), device
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        start, stop, _ = gallery.indices(self.n_gallery)
        labels = self._gallery[self._offsets[start] : self._offsets[stop]]
        owners = torch.from_numpy(np.repeat(np.arange(stop - start), np.diff(self._offsets[start : stop + 1])))
        owners = owners.to(self._device)
        rows = []
        for own in self._queries[queries]:
            total = torch.zeros(stop - start, dtype=torch.int64, device=self._device)
            for label in torch.from_numpy(own).to(self._device):
                shared = (labels == label).sum(1)
                total += torch.zeros_like(total).scatter_reduce_(0, owners, shared, "amax")
            rows.append(total.to(torch.uint8))
        return torch.stack(rows)


class TableJudgements:
    """Levels from a table of relevances: its distinct values, in order.

    Args:
        relevance: float, shape (n_query, n_gallery), 0 or more; 0 is irrelevant.

    Raises:
        InputError: the table is not two-dimensional, has a negative or not finite value, nothing above 0, or more
            than 254 distinct values above 0.

    >>> judgements = TableJudgements(np.array([[0.5, 0.0, 2.0]]))
    >>> judgements.levels(slice(0, 1), slice(0, 3)), judgements.relevance()
    (tensor([[1, 0, 2]], dtype=torch.uint8), array([0. , 0.5, 2. ]))
    """

    def __init__(self, relevance: npt.ArrayLike) -> None:
        table = np.asarray(relevance, np.float64)
        if table.ndim != 2 or not table.size:
            raise InputError(f"the relevances have the shape {table.shape}; expected (n_query, n_gallery)")
        if not (np.isfinite(table) & (table >= 0)).all():
            row, column = np.argwhere(~(np.isfinite(table) & (table >= 0)))[0]
            raise InputError(
                f"the relevance of item {column} for query {row} is {table[row, column]}; expected 0 or more"
            )
        self._values = np.unique(np.append(table, 0.0))
        if len(self._values) == 1:
            raise InputError("all relevances are 0; expected some above 0")
        if len(self._values) - 1 > MOST_LEVELS:
            raise InputError(
                f"the relevances have {len(self._values) - 1:,} distinct values above 0; expected at most "
                f"{MOST_LEVELS}: round them"
            )
        self._levels = torch.from_numpy(np.searchsorted(self._values, table).astype(np.uint8))

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return self._levels.shape[0]

    @property
    def n_gallery(self) -> int:
        """How many gallery items there are."""
        return self._levels.shape[1]

    @property
    def n_levels(self) -> int:
        """How many distinct values above 0 there are."""
        return len(self._values) - 1

    def relevance(self) -> npt.NDArray[np.float64]:
        """The relevance of each level: float64, shape (n_levels + 1,)."""
        return self._values

    def to(self, device: torch.device) -> TableJudgements:
        """See :class:`RelevanceJudgements`."""
        moved = copy(self)
        moved._levels = self._levels.to(device)
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        return self._levels[queries, gallery]
