"""The nearest items of each query, kept while a gallery is ranked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hgld.compute.top_k import Floats, Integers, RunningTopK, joined_top_k


class NearestRanked:
    """The k nearest items of each query of a block, which are those that are ranked first.

    They are taken from scores in full precision, and do not depend on levels: of equal scores, the first in the
    gallery is the nearest, whatever the ranking does with ties.

    Args:
        parts: Empty top k for each part of the gallery; these follow one another and may be scored at the same time.
        masked: int64, ascending; gallery items excluded for all queries.
        excluded: Rows of the block and gallery items excluded for them, both int64, in any order.
    """

    def __init__(self, parts: Sequence[RunningTopK], masked: Integers, excluded: tuple[Integers, Integers]) -> None:
        self._parts, self._masked = parts, masked
        order = np.argsort(excluded[1], kind="stable")
        self._rows, self._columns = excluded[0][order], excluded[1][order]

    def add(self, part: int, gallery: slice, scores: torch.Tensor) -> None:
        """Take a block of the gallery into account; scores of excluded items become 0.

        Args:
            part: Index of the part of the gallery that the block belongs to.
            gallery: Slice of the gallery.
            scores: float, shape (n_query, n_block).
        """
        self._set_excluded(gallery, scores, -torch.inf)
        self._parts[part].add(scores, gallery.start)
        self._set_excluded(gallery, scores, 0.0)  # infinities are no keys

    def result(self) -> tuple[Floats, Integers]:
        """Return scores and positions as :func:`hgld.compute.nearest_neighbours.nearest_neighbours` does."""
        return joined_top_k(self._parts)

    def _set_excluded(self, gallery: slice, scores: torch.Tensor, value: float) -> None:
        bounds = [gallery.start, gallery.stop]
        start, stop = np.searchsorted(self._masked, bounds)
        if stop > start:
            scores[:, torch.from_numpy(self._masked[start:stop] - gallery.start)] = value
        start, stop = np.searchsorted(self._columns, bounds)
        if stop > start:
            rows, columns = self._rows[start:stop], self._columns[start:stop] - gallery.start
            scores[torch.from_numpy(rows), torch.from_numpy(columns)] = value
