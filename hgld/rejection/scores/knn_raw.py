"""Distance to the k-th nearest image of the index, of embeddings of any length."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hgld.compute.dtypes import at_least_float32
from hgld.rejection.detector import Detector, Scores
from hgld.rejection.inputs import DetectorInputs
from hgld.rejection.option_checks import check_at_least_1
from hgld.rejection.scores.knn import check_index_size

_DISTANCES = 2**24  # distances computed at once
_QUERIES = 1024
_ROWS = 65536


class KnnRaw(Detector):
    """The Euclidean distance to the k-th nearest image, of embeddings as they are given (Sun et al., ICML 2022).

    The variant without normalisation of :class:`~hgld.rejection.scores.knn.Knn`, which the paper finds worse. Its
    neighbours are not those of a ranking by cosine, so it takes a search of its own.

    Args:
        k: Which neighbour, counted from 1; see :class:`~hgld.rejection.scores.knn.Knn`.

    Raises:
        ConfigurationError: k is less than 1.
    """

    name = "knn_raw"
    index: torch.Tensor
    origin: torch.Tensor

    def __init__(self, k: int = 3) -> None:
        check_at_least_1(k=k)
        self.k = k

    def state(self) -> dict[str, torch.Tensor]:
        """Return the embeddings of the index and their mean."""
        return {"index": self.index, "origin": self.origin}

    def _fit(self, images: DetectorInputs) -> None:
        check_index_size(self.k, len(images))
        self.index = images.embeddings
        # In blocks, as torch would copy the whole index to float64.
        total = torch.stack([block.double().sum(dim=0) for block in torch.split(self.index, _ROWS)]).sum(dim=0)
        self.origin = (total / len(self.index)).to(at_least_float32(self.index[:0]).dtype)

    def _score(self, images: DetectorInputs) -> Scores:
        blocks = [self._distances(block) for block in torch.split(images.embeddings, _QUERIES)]
        return torch.cat(blocks).numpy()

    def _distances(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the k-th distances: neighbours by squared distances, which round, and then the distance itself."""
        own = queries.to(self.origin.dtype) - self.origin
        nearest = torch.empty(len(own), 0, dtype=own.dtype)
        positions = torch.empty(len(own), 0, dtype=torch.int64)
        width = max(1, _DISTANCES // len(own))
        for start in range(0, len(self.index), width):
            block = self.index[start : start + width].to(own.dtype) - self.origin
            # Up to the squared length of the query, which changes no order.
            squared = torch.addmm(block.square().sum(dim=1), own, block.T, alpha=-2)
            candidates = torch.cat([nearest, squared], dim=1)
            numbers = torch.arange(start, start + len(block)).expand(len(own), -1)
            nearest, columns = candidates.topk(min(self.k, candidates.shape[1]), dim=1, largest=False)
            positions = torch.cat([positions, numbers], dim=1).gather(1, columns)
        neighbours = self.index[positions[:, -1]].to(own.dtype)
        distances: torch.Tensor = torch.linalg.vector_norm(queries.to(own.dtype) - neighbours, dim=1)
        return distances

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        self.index, self.origin = state["index"], state["origin"]
