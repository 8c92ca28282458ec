"""Cosine to the nearest image of the index."""

from __future__ import annotations

import numpy as np
import torch

from hgld.rejection.detector import Cosines, NeighbourDetector, Positions, Scores


class Top1Cosine(NeighbourDetector):
    """The negative cosine of an image to the nearest image of the index.

    >>> import numpy as np
    >>> Top1Cosine().fit(np.eye(2)).score(np.array([[3.0, 0.0], [1.0, -1.0]])).round(2).tolist()
    [-1.0, -0.71]
    """

    name = "top1_cosine"

    @property
    def n_neighbours(self) -> int:
        """One."""
        return 1

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative first cosines; 1, that of a cosine of -1, where all images are excluded."""
        return -np.where(positions[:, 0] >= 0, cosines[:, 0], cosines.dtype.type(-1))
