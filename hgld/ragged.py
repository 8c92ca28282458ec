"""Ragged arrays of indices: some gallery items for each query, as two flat arrays (compressed sparse rows)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hgld.arrays import Booleans, Integers
from hgld.errors import InputError


@dataclass(frozen=True, eq=False)
class RaggedIndices:
    """Gallery positions for each query, such as its positives or the items excluded from its ranking.

    Args:
        offsets: int64, shape (n_queries + 1,); the items of query i are ``columns[offsets[i]:offsets[i + 1]]``.
        columns: int64, positions in the gallery.
    """

    offsets: Integers
    columns: Integers

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[int] | Integers]) -> RaggedIndices:
        """Build from one list of gallery positions per query.

        Raises:
            InputError: A list holds values that are not integers.

        >>> RaggedIndices.from_lists([[3, 1], [], [2]]).offsets.tolist()
        [0, 2, 2, 3]
        """
        columns = [np.empty(0, np.int64)]
        offsets = [0]
        for query, items in enumerate(lists):
            array = np.asarray(items).reshape(-1)
            if array.size and not np.issubdtype(array.dtype, np.integer):
                raise InputError(
                    f"the list of query {query} has values of the type {array.dtype}; expected positions in the "
                    "gallery, counted from 0"
                )
            columns.append(array.astype(np.int64))
            offsets.append(offsets[-1] + len(array))
        return cls(np.array(offsets, np.int64), np.concatenate(columns))

    @classmethod
    def from_pairs(cls, rows: Integers, columns: Integers, n_queries: int) -> RaggedIndices:
        """Build from (query, gallery position) pairs in any order; repeated pairs count once.

        Args:
            rows: Query of each pair.
            columns: Gallery position of each pair.
            n_queries: Number of queries.

        Raises:
            InputError: A pair is of another query than 0 to ``n_queries - 1``.

        >>> RaggedIndices.from_pairs(np.array([2, 0, 2]), np.array([7, 5, 7]), n_queries=3).columns.tolist()
        [5, 7]
        """
        outside = (rows < 0) | (rows >= n_queries)
        if outside.any():
            first = int(np.argmax(outside))
            raise InputError(
                f"the pair {first} is of query {rows[first]}; expected 0 to {n_queries - 1}"
            )
        pairs = np.stack([rows, columns], axis=1)
        if len(pairs):
            pairs = np.unique(pairs, axis=0)
        return cls(np.searchsorted(pairs[:, 0], np.arange(n_queries + 1)), pairs[:, 1])

    @classmethod
    def empty(cls, n_queries: int) -> RaggedIndices:
        """Build an array without any item for any of ``n_queries`` queries."""
        return cls(np.zeros(n_queries + 1, np.int64), np.empty(0, np.int64))

    @classmethod
    def from_mask(cls, mask: Booleans) -> RaggedIndices:
        """Build from a bool for each query and gallery item.

        >>> RaggedIndices.from_mask(np.array([[False, True], [True, True]])).columns.tolist()
        [1, 0, 1]
        """
        rows, columns = np.nonzero(mask)
        return cls(np.searchsorted(rows, np.arange(len(mask) + 1)), columns)

    @classmethod
    def identity(cls, n: int) -> RaggedIndices:
        """Build an array that pairs each of ``n`` images with itself.

        >>> RaggedIndices.identity(3).row(1).tolist()
        [1]
        """
        return cls(np.arange(n + 1), np.arange(n))

    def row(self, query: int) -> Integers:
        """Return the items of one query."""
        return self.columns[self.offsets[query] : self.offsets[query + 1]]

    def take(self, queries: Integers) -> RaggedIndices:
        """Return the lists of some queries, in the given order.

        >>> RaggedIndices.from_lists([[3, 1], [], [2]]).take(np.array([2, 0])).columns.tolist()
        [2, 3, 1]
        """
        counts = self.counts()[queries]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        positions = np.repeat(self.offsets[queries], counts) + within
        return RaggedIndices(offsets, self.columns[positions])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def counts(self) -> Integers:
        """Return the number of items of each query: int64, shape (n_queries,)."""
        return np.diff(self.offsets)

    def rows(self) -> Integers:
        """Return the query of each item: int64, as long as ``columns``."""
        return np.repeat(np.arange(len(self)), self.counts())

    def padded(self, width: int | None = None) -> Integers:
        """Return the items of each query as a row: int64, shape (n_queries, width), padded with -1.

        Args:
            width: Length of each row. Default: the largest number of items, at least 1.

        Raises:
            InputError: A query has more than ``width`` items.
        """
        largest = int(self.counts().max(initial=0))
        if width is None:
            width = max(largest, 1)
        if width < largest:
            raise InputError(
                f"the width is {width}; expected at least {largest}, as a query has so many items"
            )
        rows = self.rows()
        array = np.full((len(self), width), -1)
        array[rows, np.arange(len(rows)) - self.offsets[rows]] = self.columns
        return array

    def block(self, queries: slice) -> tuple[Integers, Integers]:
        """Return the pairs of a few queries: int64 queries, counted from the slice's start, and gallery positions."""
        start, stop, _ = queries.indices(len(self))
        rows = np.repeat(np.arange(stop - start), np.diff(self.offsets[start : stop + 1]))
        return rows, self.columns[self.offsets[start] : self.offsets[stop]]

    def __or__(self, other: RaggedIndices) -> RaggedIndices:
        """Return the union, query by query; both must have the same queries."""
        return RaggedIndices.from_pairs(
            np.concatenate([self.rows(), other.rows()]),
            np.concatenate([self.columns, other.columns]),
            len(self),
        )

    def check(self, n_queries: int, n_gallery: int, name: str) -> None:
        """Check that there is a list for each query and that every position is in the gallery.

        Args:
            n_queries: Number of queries.
            n_gallery: Number of gallery items.
            name: Name of the array in messages.

        Raises:
            InputError: The number of lists differs from ``n_queries``, or a position is outside the gallery.
        """
        if len(self) != n_queries:
            raise InputError(
                f"{name} has lists for {len(self):,} queries, but there are {n_queries:,} queries"
            )
        outside = (self.columns < 0) | (self.columns >= n_gallery)
        if outside.any():
            first = int(np.argmax(outside))
            query = int(self.rows()[first])
            raise InputError(
                f"{name} names the gallery position {self.columns[first]} for query {query}; expected 0 to "
                f"{n_gallery - 1}"
            )
