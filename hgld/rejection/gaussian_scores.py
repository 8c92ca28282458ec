"""Rejection scores from Mahalanobis distances to the class Gaussians of an index."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from hgld.errors import ConfigurationError, require, require_choice
from hgld.rejection.detector import Detector, DetectorInputs
from hgld.rejection.gaussians import fit_gaussians, unit_length

GmmVariant = Literal["paper", "code"]


@dataclass(eq=False)
class GaussianDetector(Detector):
    """A score of the Gaussians of the landmarks of an index.

    Args:
        shrinkage: Weight from 0 to 1 of a scaled identity in the covariance. Default: 0 for an
            invertible covariance, otherwise the weight of Ledoit and Wolf; see
            :func:`hgld.rejection.gaussians.fit_gaussians`.

    Attributes:
        normalize: Whether embeddings are scaled to length 1.
        gaussians: The Gaussians.
    """

    normalize = False
    shrinkage: float | None = field(default=None, kw_only=True)

    @abstractmethod
    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        """Return the scores of embeddings, which have length 1 if ``normalize`` is true."""

    def _fit(self, images: DetectorInputs) -> None:
        labels = images.required_labels(self.name)
        self.gaussians = fit_gaussians(
            images.embeddings, labels, unit_length=self.normalize, shrinkage=self.shrinkage
        )

    def _score(self, images: DetectorInputs) -> Tensor:
        embeddings = images.embeddings.to(self.gaussians.origin.dtype)
        if self.normalize:
            embeddings = unit_length(embeddings)
        return self._score_embeddings(embeddings)


@dataclass(eq=False)
class Mahalanobis(GaussianDetector):
    """The squared Mahalanobis distance to the nearest landmark (Lee et al., NeurIPS 2018).

    ``min_c (z - mu_c)^T Sigma^-1 (z - mu_c)``, with one covariance for all landmarks, a sum divided
    by n, not n - 1. pytorch-ood multiplies the score by 1/2 and adds 1e-6 to the diagonal. The
    score rejects images of other kinds (far) well, and landmarks that the index lacks (near) badly.
    """

    name: ClassVar[str] = "mahalanobis"

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        return self.gaussians.nearest_squared_distances(embeddings)


@dataclass(eq=False)
class SsdPlus(Mahalanobis):
    """The squared Mahalanobis distance to the nearest landmark, of embeddings of length 1.

    SSD+ (Sehwag et al., ICLR 2021) in the form of the thesis's Table 5.5 and of heatood: the
    classes are the labels. The original SSD has k-means clusters of a self-supervised model as
    classes, and SSD+ has labels.
    """

    name: ClassVar[str] = "ssd_plus"
    normalize = True


@dataclass(eq=False)
class Gmm(GaussianDetector):
    """The energy of a mixture of landmark Gaussians, the feature prior of thesis Sec. 5.2.2.

    ``- T log sum_c exp(-d_c^2 / (2T))``, with d_c the Mahalanobis distance to landmark c and one
    covariance for all landmarks. In many dimensions the nearest landmark dominates, and images are
    ordered nearly as by ``ssd_plus``.

    Args:
        variant: ``paper`` for the formula; ``code`` for the computation of heatood, the negative
            log-likelihood with the frequencies of the landmarks as weights, and all constants.
        inner_temperature: T in the formula. The thesis only mentions "temperature scaling" with T_G
            = 1000, which does not change the order of images as a factor, so the default is 1. With
            a large T the score is nearly the mean distance to all landmarks, which rejects worse.
        normalize: Whether to scale embeddings to length 1, as heatood does.

    Raises:
        ConfigurationError: A number is out of range, or ``inner_temperature`` is given with the
            variant ``code``.
    """

    name: ClassVar[str] = "gmm"
    variant: GmmVariant = "paper"
    inner_temperature: float = 1.0
    normalize: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        require_choice(GmmVariant, variant=self.variant)
        temperature = self.inner_temperature
        require(0 < temperature < math.inf, "a number above 0", inner_temperature=temperature)
        if temperature != 1 and self.variant == "code":
            raise ConfigurationError("`inner_temperature` is an option of the `variant` paper")

    def _score_embeddings(self, embeddings: Tensor) -> Tensor:
        if self.variant == "code":
            return self.gaussians.negative_log_likelihoods(embeddings)
        return self.gaussians.mixture_energies(embeddings, temperature=self.inner_temperature)
