"""Pairs of queries and gallery items that are not ranked, for a block of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from hgld.compute.top_k import Integers


class ExcludedPairs:
    """Excluded pairs of a block of queries, found by the gallery item.

    Args:
        masked: int64, ascending; gallery items excluded for all queries.
        excluded: Rows of the block and gallery items excluded for them, both int64, in any order.
    """

    def __init__(self, masked: Integers, excluded: tuple[Integers, Integers]) -> None:
        self._masked = masked
        order = np.argsort(excluded[1], kind="stable")
        self._rows, self._columns = excluded[0][order], excluded[1][order]

    def any(self, gallery: slice) -> bool:
        """Return whether a pair with an item of a slice of the gallery is excluded."""
        return any(found.stop > found.start for found in self._slices(gallery))

    def fill(self, gallery: slice, block: torch.Tensor, value: float) -> None:
        """Set excluded pairs of a block to a value.

        Args:
            gallery: Slice of the gallery.
            block: Shape (n_query, n_block).
            value: The value.
        """
        masked, pairs = self._slices(gallery)
        if masked.stop > masked.start:
            block[:, torch.from_numpy(self._masked[masked] - gallery.start)] = value
        if pairs.stop > pairs.start:
            rows, columns = self._rows[pairs], self._columns[pairs] - gallery.start
            block[torch.from_numpy(rows), torch.from_numpy(columns)] = value

    def _slices(self, gallery: slice) -> Iterator[Any]:
        """Yield the slices of the masked items and of the pairs that lie in a slice of the gallery."""
        for columns in (self._masked, self._columns):
            yield slice(*np.searchsorted(columns, [gallery.start, gallery.stop]).tolist())
