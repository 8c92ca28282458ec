"""Distance to the k-th nearest image of the index."""

from __future__ import annotations

import torch

from hgld.compute.dtypes import at_least_float32
from hgld.errors import InputError
from hgld.rejection.detector import Cosines, NeighbourDetector, Positions, Scores
from hgld.rejection.gaussians import unit_length
from hgld.rejection.inputs import DetectorInputs
from hgld.rejection.option_checks import check_at_least_1


class Knn(NeighbourDetector):
    """The Euclidean distance to the k-th nearest image, of embeddings of length 1 (Sun et al., ICML 2022).

    heatood and OpenOOD return the squared distance, which has the same order, and OpenOOD adds 1e-10 to each feature.
    Where a query has fewer than k neighbours, the last of them counts; where it has none, as all are excluded,
    the score is 2, the largest distance. Distances of embeddings as they are given:
    :class:`~hgld.rejection.scores.knn_raw.KnnRaw`.

    Args:
        k: Which neighbour, counted from 1. The paper has 50 for 5,000 images per class; an index of landmarks has few
            images of each, and beyond those the k-th is another landmark, so the default is 3. With 1 the order is
            that of ``top1_cosine``.

    Raises:
        ConfigurationError: k is less than 1.
    """

    name = "knn"

    def __init__(self, k: int = 3) -> None:
        check_at_least_1(k=k)
        self.k = k

    @property
    def n_neighbours(self) -> int:
        """``k``."""
        return self.k

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return distances to the last of the k first neighbours."""
        last = (positions[:, : self.k] >= 0).sum(axis=1) - 1
        chosen = torch.from_numpy(positions)[torch.arange(len(positions)), torch.from_numpy(last)]
        # The square root of 2 - 2 cosine would lose half of the digits of small distances.
        differences = unit_length(queries) - unit_length(self.index[chosen]).to(at_least_float32(queries).dtype)
        distances: torch.Tensor = torch.linalg.vector_norm(differences, dim=1)
        distances[torch.from_numpy(last < 0)] = 2
        return distances.numpy()

    def _fit(self, images: DetectorInputs) -> None:
        check_index_size(self.k, len(images))
        super()._fit(images)


def check_index_size(k: int, n: int) -> None:
    """Raise an :class:`InputError` if an index has fewer images than neighbours are needed."""
    if n < k:
        raise InputError(f"`k` is {k}, and the index has {n:,} images; lower `k`")
