"""Mahalanobis distance to the nearest class."""

from __future__ import annotations

import torch

from hgld.rejection.gaussian_detector import GaussianDetector


class Mahalanobis(GaussianDetector):
    """The squared Mahalanobis distance to the mean of the nearest landmark (Lee et al., NeurIPS 2018).

    ``min_c (z - mu_c)^T Sigma^-1 (z - mu_c)``, with one covariance for all landmarks, divided by n and not n - 1, and
    without a factor 1/2. pytorch-ood halves it and adds 1e-6 to the diagonal. It is strong against images of other
    kinds (far) and weak against landmarks that the index lacks (near).

    Args:
        shrinkage: Weight from 0 to 1 of a scaled identity in the covariance. Default: none for an invertible
            covariance, else that of Ledoit and Wolf; see :func:`hgld.rejection.gaussians.fit_gaussians`.
    """

    name = "mahalanobis"
    normalize = False

    def __init__(self, shrinkage: float | None = None) -> None:
        self.shrinkage = shrinkage

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.gaussians.nearest_squared_distances(embeddings)
