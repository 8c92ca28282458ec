"""HEAT: prior densities of features, and samplers of the starts of Langevin chains.

"The published code" is https://github.com/MarcLafon/heatood; see
:mod:`hgld.rejection.residual_energy` for the method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from hgld.rejection.classifiers import LinearClassifier
from hgld.rejection.gaussians import ClassGaussians

#: Draws n features, shape (n, d), as starts of chains.
Sampler = Callable[[int, torch.Generator], Tensor]
#: The text of the thesis, or the published code. They differ in the density of the Gaussians, the
#: negatives of the residual energy, the projection of samples, and the presets.
Variant = Literal["thesis", "code"]
PriorName = Literal["gmm", "energy", "gmm_std"]


class Prior(ABC):
    """The energy of a prior density of features, differentiable with respect to the features.

    Attributes:
        unit_length: Whether embeddings or standard deviations are scaled to length 1.
    """

    unit_length: bool

    @property
    @abstractmethod
    def reference(self) -> Tensor:
        """A parameter of the density, which has the dtype and the device of features."""

    @abstractmethod
    def energies(self, features: Tensor) -> Tensor:
        """Return the energy of each row of features, float, shape (n, d) -> (n,)."""

    def features(self, inputs: Tensor) -> Tensor:
        """Return features from embeddings or standard deviations, float, shape (n, d)."""
        return self._scaled(inputs.to(self.reference))

    def project(self, features: Tensor) -> Tensor:
        """Clip features at 0 and scale them if ``unit_length``, as in the published code."""
        return self._scaled(features.relu())

    def _scaled(self, features: Tensor) -> Tensor:
        if self.unit_length:
            return functional.normalize(features, dim=1)
        return features


class GaussianPrior(Prior):
    """Class Gaussians with a shared covariance, of features of unit length.

    The energy is ``-log sum_c exp(-d_c^2 / 2)`` for Mahalanobis distances d_c in the thesis, and
    the negative log-likelihood of the mixture, with classes weighted by their frequencies, in the
    published code.

    Args:
        gaussians: The Gaussians.
        variant: ``thesis`` or ``code``.
    """

    unit_length = True

    def __init__(self, gaussians: ClassGaussians, variant: Variant = "thesis") -> None:
        self.gaussians = gaussians
        self.variant = variant

    @property
    def reference(self) -> Tensor:
        """The means of the classes."""
        return self.gaussians.means

    def energies(self, features: Tensor) -> Tensor:
        """See :class:`Prior`."""
        if self.variant == "code":
            return self.gaussians.negative_log_likelihoods(features)
        return self.gaussians.mixture_energies(features)


class LogitPrior(Prior):
    """The energy of the logits of a linear classifier, ``-log sum_c exp(f_c(z))``."""

    unit_length = False

    def __init__(self, classifier: LinearClassifier) -> None:
        self.classifier = classifier

    @property
    def reference(self) -> Tensor:
        """The weights of the classifier."""
        return self.classifier.weight

    def energies(self, features: Tensor) -> Tensor:
        """See :class:`Prior`."""
        return -self.classifier.logits(features).logsumexp(dim=1)


def gaussian_sampler(gaussians: ClassGaussians, weights: Tensor | None = None) -> Sampler:
    """Return a sampler of class Gaussians, on their device.

    Args:
        gaussians: Class Gaussians.
        weights: Weight of each class, shape (C,). Default: equal weights.
    """
    means = gaussians.means
    class_weights = torch.ones(len(means)) if weights is None else weights.float()
    # Whitening is w = (z - origin) A, so z = w A^-1 + origin.
    unwhitening = torch.linalg.inv(gaussians.whitening.double()).to(means.dtype)

    def sample(n: int, generator: torch.Generator) -> Tensor:
        classes = torch.multinomial(
            class_weights.to(generator.device), n, replacement=True, generator=generator
        )
        noise = normal_noise((n, means.shape[1]), generator, means)
        samples: Tensor = (means[classes.to(means.device)] + noise) @ unwhitening
        return samples + gaussians.origin

    return sample


def normal_sampler(like: Tensor) -> Sampler:
    """Return a sampler of standard normal features, as in the published code for logits."""
    return lambda n, generator: normal_noise((n, like.shape[-1]), generator, like)


def normal_noise(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Return standard normal noise of the dtype and on the device of a tensor.

    Noise is drawn in float32, so that training in float64 has the same noise.
    """
    return torch.randn(shape, generator=generator, device=generator.device).to(like)
