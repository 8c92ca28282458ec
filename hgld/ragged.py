"""Queries and the gallery items that belong to them, as two flat arrays (compressed sparse rows)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hgld.errors import InputError

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RaggedIndices:
    """Some gallery items of each query, such as its positives, or those to leave out of its ranking.

    Args:
        offsets: int64, shape (n_query + 1,); the items of query i are ``columns[offsets[i]:offsets[i + 1]]``.
        columns: int64, positions in the gallery.
    """

    offsets: Integers
    columns: Integers

    @classmethod
    def of(cls, lists: Iterable[Sequence[int] | Integers]) -> RaggedIndices:
        """From one list of gallery positions per query.

        Raises:
            InputError: they are no integers.

        >>> RaggedIndices.of([[3, 1], [], [2]]).offsets.tolist()
        [0, 2, 2, 3]
        """
        arrays = [np.asarray(items).reshape(-1) for items in lists]
        for query, array in enumerate(arrays):
            if array.size and not np.issubdtype(array.dtype, np.integer):
                raise InputError(
                    f"the list of query {query} has values of the type {array.dtype}; expected positions in the "
                    "gallery, counted from 0"
                )
        arrays = [array.astype(np.int64) for array in arrays]
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(items) for items in arrays], out=offsets[1:])
        return cls(offsets, np.concatenate(arrays) if arrays else np.empty(0, np.int64))

    @classmethod
    def distinct(cls, rows: Integers, columns: Integers, n_queries: int) -> RaggedIndices:
        """From pairs of a query and a gallery position in any order; each counts once.

        >>> RaggedIndices.distinct(np.array([2, 0, 2]), np.array([7, 5, 7]), n_queries=3).columns.tolist()
        [5, 7]
        """
        pairs = np.unique(np.stack([rows, columns], axis=1), axis=0) if len(rows) else np.empty((0, 2), np.int64)
        return cls(np.searchsorted(pairs[:, 0], np.arange(n_queries + 1)), pairs[:, 1])

    def row(self, query: int) -> Integers:
        """The items of one query."""
        return self.columns[self.offsets[query] : self.offsets[query + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self) -> Integers:
        """The query of each item: int64, as long as ``columns``."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def block(self, queries: slice) -> tuple[Integers, Integers]:
        """The pairs of a few queries: rows, counted from the slice's start, and columns; int64 both."""
        start, stop, _ = queries.indices(len(self))
        rows = np.repeat(np.arange(stop - start), np.diff(self.offsets[start : stop + 1]))
        return rows, self.columns[self.offsets[start] : self.offsets[stop]]

    def __or__(self, other: RaggedIndices) -> RaggedIndices:
        """The pairs of both, which are of the same queries."""
        return RaggedIndices.distinct(
            np.concatenate([self.rows(), other.rows()]), np.concatenate([self.columns, other.columns]), len(self)
        )

    def check(self, n_queries: int, n_gallery: int, what: str) -> None:
        """Raise an InputError unless there is a list for each query and every column is in the gallery."""
        if len(self) != n_queries:
            raise InputError(f"{what} has lists for {len(self):,} queries, but there are {n_queries:,} queries")
        wrong = (self.columns < 0) | (self.columns >= n_gallery)
        if wrong.any():
            query = int(np.searchsorted(self.offsets, np.flatnonzero(wrong)[0], side="right")) - 1
            raise InputError(
                f"{what} names the gallery position {self.columns[wrong][0]} for query {query}; expected 0 to "
                f"{n_gallery - 1}"
            )
