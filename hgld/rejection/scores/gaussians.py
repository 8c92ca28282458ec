"""Scores of Gaussians of the classes, fitted on the finest labels.

With C landmarks and n images, the covariance within landmarks has the rank n - C at most; landmarks with one image
add nothing to it. Where it is singular it is shrunk, see :func:`hgld.rejection.gaussians.fit_gaussians`. For an index
where most landmarks have one or two images, fit on labels of a coarser level, such as the super-category.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.rejection.detector import Detector, DetectorInputs, Input, Scores, choice, fitted, option
from hgld.rejection.gaussians import ClassGaussians, fit_gaussians, unit_length

GmmVariant = Literal["paper", "code"]


@dataclass(eq=False)
class GaussianDetector(Detector):
    """A score of the Gaussians of the landmarks of an index.

    Args:
        shrinkage: Weight from 0 to 1 of a scaled identity in the covariance. Default: none for an invertible
            covariance, else that of Ledoit and Wolf; see :func:`hgld.rejection.gaussians.fit_gaussians`.

    Attributes:
        normalize: Whether embeddings are scaled to length 1.
        gaussians: The Gaussians.
    """

    requires: ClassVar[frozenset[Input]] = frozenset({"labels"})
    normalize: bool = field(init=False, default=False)
    shrinkage: float | None = field(default=None, kw_only=True)
    gaussians: ClassGaussians = field(init=False, repr=False, metadata=fitted(ClassGaussians))

    @abstractmethod
    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the scores of embeddings, scaled to length 1 if the score does so."""

    def _fit(self, images: DetectorInputs) -> None:
        assert images.labels is not None
        labels = np.ascontiguousarray(images.labels[:, 0])
        self.gaussians = fit_gaussians(
            images.embeddings, labels, unit_length=self.normalize, shrinkage=self.shrinkage
        )

    def _score(self, images: DetectorInputs) -> Scores:
        embeddings = images.embeddings.to(self.gaussians.origin.dtype)
        return self._score_embeddings(unit_length(embeddings) if self.normalize else embeddings).numpy()


@dataclass(eq=False)
class Mahalanobis(GaussianDetector):
    """The squared Mahalanobis distance to the mean of the nearest landmark (Lee et al., NeurIPS 2018).

    ``min_c (z - mu_c)^T Sigma^-1 (z - mu_c)``, with one covariance for all landmarks, divided by n and not n - 1, and
    without a factor 1/2. pytorch-ood halves it and adds 1e-6 to the diagonal. It is strong against images of other
    kinds (far) and weak against landmarks that the index lacks (near).
    """

    name: ClassVar[str] = "mahalanobis"

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.gaussians.nearest_squared_distances(embeddings)


@dataclass(eq=False)
class SsdPlus(Mahalanobis):
    """The squared Mahalanobis distance to the nearest landmark, of embeddings of length 1.

    SSD+ (Sehwag et al., ICLR 2021) as the thesis's Table 5.5 and heatood have it: the classes are the labels. The
    original has k-means clusters of a self-supervised model in their place (SSD), and labels for SSD+.
    """

    name: ClassVar[str] = "ssd_plus"
    normalize: bool = field(init=False, default=True)


@dataclass(eq=False)
class RelativeMahalanobis(GaussianDetector):
    """The squared Mahalanobis distance to the nearest landmark minus that to one Gaussian of all images.

    ``min_c d_c^2 - d_0^2`` (Ren et al., A simple fix to Mahalanobis distance for improving near-OOD detection, 2021),
    with the global mean and covariance, both of n, for the background. It takes away what all photographs have in
    common, so it is for landmarks that the index lacks (near). Where the covariance is shrunk, the background has the
    shrunk covariance plus that of the means of the landmarks; shrinking each on its own would leave the sign of the
    score to the ratio of the two. pytorch-ood does not divide the covariance of the
    background by n, which leaves nearly the plain distance.
    """

    name: ClassVar[str] = "relative_mahalanobis"
    background: ClassGaussians = field(init=False, repr=False, metadata=fitted(ClassGaussians, prefix="background_"))

    def _fit(self, images: DetectorInputs) -> None:
        super()._fit(images)
        if len(self.gaussians.means) < 2:
            raise InputError("all labelled images have the same label; their Gaussian is that of the background")
        self.background = self.gaussians.background()

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        nearest = self.gaussians.nearest_squared_distances(embeddings)
        return nearest - self.background.nearest_squared_distances(embeddings)


@dataclass(eq=False)
class Gmm(GaussianDetector):
    """The energy of a mixture of Gaussians of the landmarks, the feature prior of thesis Sec. 5.2.2.

    ``- log sum_c exp(-d_c^2 / 2)``, with d_c the Mahalanobis distance to landmark c and one covariance for all. In
    many dimensions the nearest landmark decides, and the order is nearly that of ``ssd_plus``.

    Args:
        variant: ``paper`` for the formula; ``code`` for what heatood computes, the negative log-likelihood with the
            frequencies of the landmarks as weights, and all constants.
        temperature: Temperature T_G of the mixture, 1000 in the thesis. By default it is 1, since as a factor it
            changes no order.
        temperature_inside: The thesis says "temperature scaling" and no more. False divides the energy by T; True
            computes ``- T log sum_c exp(-d_c^2 / (2T))``, for large T nearly the mean distance to all landmarks,
            which rejects worse.
        normalize: Whether to scale embeddings to length 1, as heatood does.

    Raises:
        ConfigurationError: The temperature is to be inside the likelihood of ``code``.
    """

    name: ClassVar[str] = "gmm"
    variant: GmmVariant = choice("paper", GmmVariant)
    temperature: float = option(1.0, "a number above 0")
    temperature_inside: bool = False
    normalize: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature_inside and self.variant == "code":
            raise ConfigurationError("`temperature_inside` is an option of the `variant` paper; heatood divides by T")

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        if self.variant == "code":
            return self.gaussians.negative_log_likelihoods(embeddings) / self.temperature
        if self.temperature_inside:
            return self.gaussians.mixture_energies(embeddings, temperature=self.temperature)
        return self.gaussians.mixture_energies(embeddings) / self.temperature
