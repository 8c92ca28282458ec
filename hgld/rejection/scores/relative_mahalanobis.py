"""Relative Mahalanobis distance."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hgld.errors import InputError
from hgld.rejection.gaussian_detector import GaussianDetector
from hgld.rejection.gaussians import ClassGaussians
from hgld.rejection.inputs import DetectorInputs

_PREFIX = "background_"


class RelativeMahalanobis(GaussianDetector):
    """The squared Mahalanobis distance to the nearest landmark minus that to one Gaussian of all images.

    ``min_c d_c^2 - d_0^2`` (Ren et al., A simple fix to Mahalanobis distance for improving near-OOD detection, 2021),
    with the global mean and covariance, both of n, for the background. It takes away what all photographs have in
    common, so it is for landmarks that the index lacks (near). Where the covariance is shrunk, the background has the
    shrunk covariance plus that of the means of the landmarks; shrinking each on its own would leave the sign of the
    score to the ratio of the two. pytorch-ood does not divide the covariance of the
    background by n, which leaves nearly the plain distance.

    Args:
        normalize: Whether to scale embeddings to length 1. Default: as they are, as in the paper.
        shrinkage: See :class:`~hgld.rejection.scores.mahalanobis.Mahalanobis`.
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
        self.background = self.gaussians.background()

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        nearest = self.gaussians.nearest_squared_distances(embeddings)
        return nearest - self.background.nearest_squared_distances(embeddings)

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        super()._restore(state)
        prefixed = {key: tensor for key, tensor in state.items() if key.startswith(_PREFIX)}
        self.background = ClassGaussians.from_tensors(
            {key.removeprefix(_PREFIX): tensor for key, tensor in prefixed.items()}
        )
