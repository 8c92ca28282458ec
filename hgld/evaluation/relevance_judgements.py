"""Relevance judgements: the level of each gallery item for each query, as a small integer.

Every metric of this package counts items by level and never compares relevances: two levels can have the same
relevance. For nested labels the level is that of the lowest common ancestor (1: coarsest, L: finest, 0: nothing
shared). Lists of positives have one level, images with several labels as many as Algorithm 1 of the thesis
distinguishes (:mod:`hgld.evaluation.label_set_judgements`), a table of relevances as many as it has distinct values.
"""

from __future__ import annotations

from copy import copy
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.compiled import compiled, is_compiled
from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, nested_codes
from hgld.ragged import RaggedIndices

#: Levels are uint8, and one value is reserved for items excluded from a ranking.
MAX_LEVELS = 254


def check_level_count(n_levels: int) -> None:
    """Raise an :class:`~hgld.errors.InputError` if labels have more levels than metrics and losses count exactly."""
    if n_levels > MAX_LEVELS:
        raise InputError(f"the labels have {n_levels} levels; expected at most {MAX_LEVELS}")


class RelevanceJudgements(Protocol):
    """Interface of relevance judgements; levels are read block by block."""

    @property
    def n_queries(self) -> int:
        """Number of queries."""

    @property
    def n_gallery(self) -> int:
        """Number of gallery items."""

    @property
    def n_levels(self) -> int:
        """Largest level L."""

    def relevance(self) -> npt.NDArray[np.float64] | None:
        """Return relevances that come with the levels: float64, shape (L + 1,) or (n_query, L + 1); or None."""

    def to(self, device: torch.device) -> RelevanceJudgements:
        """Return judgements whose :meth:`levels` are computed on a device."""

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """Return the levels of a block of pairs: uint8, shape (n_query, n_gallery) of the slices."""


class LabelJudgements:
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

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self._queries.shape[0]

    @property
    def n_gallery(self) -> int:
        """Number of gallery items."""
        return self._gallery.shape[1]

    @property
    def n_levels(self) -> int:
        """Largest level L."""
        return self._queries.shape[1]

    def relevance(self) -> npt.NDArray[np.float64] | None:
        """Return None: these levels have no relevances of their own."""
        return None

    def to(self, device: torch.device) -> LabelJudgements:
        """See :class:`RelevanceJudgements`."""
        moved = copy(self)
        moved._queries, moved._gallery = self._queries.to(device), self._gallery.to(device)
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`; as labels are nested, the level is the number of equal columns."""
        query_codes, gallery_codes = self._queries[queries], self._gallery[:, gallery]
        if is_compiled(query_codes.device):
            start, stop, _ = gallery.indices(self.n_gallery)
            compiled_levels = np.empty((len(query_codes), max(stop - start, 0)), np.uint8)
            _count_equal(query_codes.numpy(), self._gallery.numpy(), start, compiled_levels)
            return torch.from_numpy(compiled_levels)
        shape = len(query_codes), gallery_codes.shape[1]
        levels = torch.zeros(shape, dtype=torch.uint8, device=query_codes.device)
        equal = torch.empty(shape, dtype=torch.bool, device=query_codes.device)
        for column in range(self.n_levels):
            levels += torch.eq(query_codes[:, column, None], gallery_codes[column], out=equal)
        return levels


class ListJudgements:
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
        self._positives, self.n_gallery = positives, n_gallery
        self._device = torch.device("cpu")

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self._positives)

    def relevance(self) -> npt.NDArray[np.float64] | None:
        """Return None: these levels have no relevances of their own."""
        return None

    def to(self, device: torch.device) -> ListJudgements:
        """See :class:`RelevanceJudgements`."""
        moved = copy(self)
        moved._device = device
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        start, stop, _ = gallery.indices(self.n_gallery)
        rows, columns = map(torch.from_numpy, self._positives.block(queries))
        inside = (columns >= start) & (columns < stop)
        n_rows = len(range(*queries.indices(self.n_queries)))
        levels = torch.zeros(n_rows, stop - start, dtype=torch.uint8)
        levels[rows[inside], columns[inside] - start] = 1
        return levels.to(self._device)


class TableJudgements:
    """Levels from a table of relevances: the ranks of its distinct values.

    Args:
        relevance: float, shape (n_query, n_gallery), 0 or more; 0 is irrelevant.

    Raises:
        InputError: The table is not two-dimensional, has a negative or infinite value or NaN, no value above 0, or
            more than 254 distinct values above 0.

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
        if len(self._values) - 1 > MAX_LEVELS:
            raise InputError(
                f"the relevances have {len(self._values) - 1:,} distinct values above 0; expected at most "
                f"{MAX_LEVELS}: round them"
            )
        self._levels = torch.from_numpy(np.searchsorted(self._values, table).astype(np.uint8))

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self._levels.shape[0]

    @property
    def n_gallery(self) -> int:
        """Number of gallery items."""
        return self._levels.shape[1]

    @property
    def n_levels(self) -> int:
        """Number of distinct values above 0."""
        return len(self._values) - 1

    def relevance(self) -> npt.NDArray[np.float64]:
        """Return the relevance of each level: float64, shape (n_levels + 1,)."""
        return self._values

    def to(self, device: torch.device) -> TableJudgements:
        """See :class:`RelevanceJudgements`."""
        moved = copy(self)
        moved._levels = self._levels.to(device)
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        return self._levels[queries, gallery]


@compiled()
def _count_equal(
    query_codes: npt.NDArray[np.int32],
    gallery_codes: npt.NDArray[np.int32],
    start: int,
    levels: npt.NDArray[np.uint8],
) -> None:
    """Count the equal codes of pairs of queries and gallery items.

    Args:
        query_codes: int32, shape (n_query, L).
        gallery_codes: int32, shape (L, n_gallery).
        start: First gallery item.
        levels: uint8, shape (n_query, n_block), overwritten.
    """
    for query in range(len(query_codes)):
        own = levels[query]
        own[:] = 0
        for column in range(len(gallery_codes)):
            code, others = query_codes[query, column], gallery_codes[column, start : start + len(own)]
            for i in range(len(own)):
                own[i] += others[i] == code
