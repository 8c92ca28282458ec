"""What scores of Gaussians of the classes have in common: one set of Gaussians, fitted on the finest labels.

With C landmarks and n images, the covariance within landmarks has the rank n - C at most; landmarks with one image
add nothing to it. Where it is singular it is shrunk, see :func:`hgld.rejection.gaussians.fit_gaussians`. For an index
where most landmarks have one or two images, fit on labels of a coarser level, such as the super-category.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from hgld.rejection.detector import Detector, Input, Scores
from hgld.rejection.gaussians import ClassGaussians, fit_gaussians, unit_length
from hgld.rejection.inputs import DetectorInputs


class GaussianDetector(Detector):
    """A score of the Gaussians of the landmarks of an index.

    Attributes:
        gaussians: The Gaussians.
    """

    requires: ClassVar[frozenset[Input]] = frozenset({"labels"})
    normalize: bool
    shrinkage: float | None
    gaussians: ClassGaussians

    @abstractmethod
    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the scores of embeddings, scaled to length 1 if the score does so."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the Gaussians."""
        return self.gaussians.tensors()

    def _fit(self, images: DetectorInputs) -> None:
        assert images.labels is not None
        labels = np.ascontiguousarray(images.labels[:, 0])
        self.gaussians = fit_gaussians(
            images.embeddings, labels, unit_length=self.normalize, shrinkage=self.shrinkage
        )

    def _score(self, images: DetectorInputs) -> Scores:
        embeddings = images.embeddings.to(self.gaussians.origin.dtype)
        return self._score_embeddings(unit_length(embeddings) if self.normalize else embeddings).numpy()

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        self.gaussians = ClassGaussians.from_tensors(state)
