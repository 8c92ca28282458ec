"""Lists of positions, one list a row, as two flat arrays (compressed sparse rows)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Csr(NamedTuple):
    """Row ``i`` holds ``columns[offsets[i] : offsets[i + 1]]``, ascending.

    Args:
        offsets: int64, shape (n_rows + 1,).
        columns: int64, shape (offsets[-1],).
    """

    offsets: Integers
    columns: Integers

    @classmethod
    def of_pairs(cls, rows: Integers, columns: Integers, n_rows: int) -> Csr:
        """Gather the pairs (row, column), which may come in any order.

        >>> Csr.of_pairs(np.array([2, 0, 2]), np.array([9, 4, 7]), 3)
        Csr(offsets=array([0, 1, 1, 3]), columns=array([4, 7, 9]))
        """
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))]).astype(np.int64)
        return cls(offsets, columns[np.lexsort((columns, rows))].astype(np.int64))

    @property
    def rows(self) -> Integers:
        """The row of each column: int64, shape (offsets[-1],)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def row(self, number: int) -> Integers:
        """The columns of one row."""
        return self.columns[self.offsets[number] : self.offsets[number + 1]]

    def union(self, *others: Csr) -> Csr:
        """All together, row by row; no two share a column of a row."""
        parts = (self, *others)
        rows = np.concatenate([part.rows for part in parts])
        return self.of_pairs(rows, np.concatenate([part.columns for part in parts]), len(self.offsets) - 1)
