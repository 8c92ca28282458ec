"""The distance to the k-th nearest image of the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import ScoringConfig, at_least_float32
from hgld.errors import InputError, require_at_least
from hgld.rejection.detector import Detector, DetectorInputs
from hgld.rejection.gaussians import unit_length


@dataclass(eq=False)
class Knn(Detector):
    """The distance to the k-th nearest image, of embeddings of length 1 (Sun et al., ICML 2022).

    heatood and OpenOOD return the squared distance, which has the same order, and OpenOOD adds
    1e-10 to each feature.

    Args:
        k: Rank of the neighbour, from 1. The paper uses 50 for 5,000 images per class. An index of
            landmarks has few images per landmark, and farther neighbours show other landmarks, so
            the default is 3. With 1, images are ordered by the cosine to the nearest image.

    >>> Knn(k=1).fit(torch.eye(2)).score(torch.tensor([[3.0, 0.0], [1.0, 1.0]])).round(3).tolist()
    [0.0, 0.7649999856948853]
    """

    name: ClassVar[str] = "knn"
    k: int = 3

    def __post_init__(self) -> None:
        require_at_least(1, k=self.k)

    def _fit(self, images: DetectorInputs) -> None:
        if len(images) < self.k:
            raise InputError(
                f"`k` is {self.k}, and the index has {len(images):,} images; lower `k`"
            )
        self.index = images.embeddings

    def _score(self, images: DetectorInputs) -> Tensor:
        queries = at_least_float32(images.embeddings)
        config = ScoringConfig(precision="float32")
        if queries.dtype == torch.float64:
            config = ScoringConfig(precision="float64")
        _, positions = nearest_neighbours(queries, self.index, self.k, config=config)
        neighbours = self.index[torch.from_numpy(positions[:, -1])]
        # sqrt(2 - 2 cosine) has half of the digits of small distances.
        differences = unit_length(queries) - unit_length(neighbours).to(queries.dtype)
        distances: Tensor = torch.linalg.vector_norm(differences, dim=1)
        return distances
