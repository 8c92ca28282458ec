"""The nearest items of each query, kept while a gallery is ranked."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hgld.compute.top_k import Floats, Integers, RunningTopK, joined_top_k
from hgld.evaluation.excluded_pairs import ExcludedPairs


class NearestRanked:
    """The k nearest items of each query of a block, which are those that are ranked first.

    They are taken from scores in full precision, and do not depend on levels: of equal scores, the first in the
    gallery is the nearest, whatever the ranking does with ties.

    Args:
        parts: Empty top k for each part of the gallery; these follow one another and may be scored at the same time.
        excluded: Pairs of the block that are not ranked.
    """

    def __init__(self, parts: Sequence[RunningTopK], excluded: ExcludedPairs) -> None:
        self._parts, self._excluded = parts, excluded

    def add(self, part: int, gallery: slice, scores: torch.Tensor) -> None:
        """Take a block of the gallery into account; scores of excluded items become 0.

        Args:
            part: Index of the part of the gallery that the block belongs to.
            gallery: Slice of the gallery.
            scores: float, shape (n_query, n_block).
        """
        self._excluded.fill(gallery, scores, -torch.inf)
        self._parts[part].add(scores, gallery.start)
        self._excluded.fill(gallery, scores, 0.0)  # infinities are no keys

    def result(self) -> tuple[Floats, Integers]:
        """Return scores and positions as :func:`hgld.compute.nearest_neighbours.nearest_neighbours` does."""
        return joined_top_k(self._parts)
