"""Relative Mahalanobis distance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from hgld.errors import InputError
from hgld.rejection.gaussian_detector import GaussianDetector
from hgld.rejection.gaussians import ClassGaussians, fit_gaussians
from hgld.rejection.inputs import DetectorInputs

_PREFIX = "background_"


class RelativeMahalanobis(GaussianDetector):
    """The squared Mahalanobis distance to the nearest landmark minus that to one Gaussian of all images.

    ``min_c d_c^2 - d_0^2`` (Ren et al., A simple fix to Mahalanobis distance for improving near-OOD detection, 2021),
    with the global mean and covariance, both of n, for the background. It takes away what all photographs have in
    common, which helps against landmarks that the index lacks. pytorch-ood does not divide the covariance of the
    background by n, which leaves nearly the plain distance.

    Args:
        normalize: Whether to scale embeddings to length 1. Default: as they are, as in the paper.
        shrinkage: Weight of a scaled identity in both covariances; see
            :class:`~hgld.rejection.scores.mahalanobis.Mahalanobis`.
    """

    name = "relative_mahalanobis"
    background: ClassGaussians

    def __init__(self, normalize: bool = False, shrinkage: float | None = None) -> None:
        self.normalize = normalize
        self.shrinkage = shrinkage

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the Gaussians of the landmarks and of the background."""
        return super().state() | {_PREFIX + key: tensor for key, tensor in self.background.tensors().items()}

    def _fit(self, images: DetectorInputs) -> None:
        super()._fit(images)
        if len(self.gaussians.means) < 2:
            raise InputError("all labelled images have the same label; their Gaussian is that of the background")
        assert images.labels is not None
        one_class = np.where(images.labels[:, 0] >= 0, 0, -1)
        self.background = fit_gaussians(
            images.embeddings, one_class, unit_length=self.normalize, shrinkage=self.shrinkage
        )

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        nearest = self.gaussians.nearest_squared_distances(embeddings)
        return nearest - self.background.nearest_squared_distances(embeddings)

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        super()._restore(state)
        prefixed = {key: tensor for key, tensor in state.items() if key.startswith(_PREFIX)}
        self.background = ClassGaussians.from_tensors(
            {key.removeprefix(_PREFIX): tensor for key, tensor in prefixed.items()}
        )
