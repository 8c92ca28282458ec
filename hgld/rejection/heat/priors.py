"""Priors: densities of the features of an index whose energies HEAT corrects (Sec. 5.2.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch.nn import functional

from hgld.rejection.gaussians import ClassGaussians
from hgld.rejection.heat.settings import Variant


class Prior(ABC):
    """The energy of a prior density of features, differentiable with respect to them.

    Attributes:
        unit_length: Whether its features are embeddings, or standard deviations, scaled to length 1.
    """

    unit_length: bool

    @abstractmethod
    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """Return the energy of each row of features, float, shape (n, d) -> (n,)."""

    @abstractmethod
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what it is made of, by name."""

    @abstractmethod
    def to(self, device: torch.device) -> Prior:
        """Return the prior on a device."""

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the features of images from their embeddings or standard deviations, float, shape (n, d)."""
        inputs = inputs.to(next(iter(self.tensors().values())).dtype)
        return functional.normalize(inputs, dim=1) if self.unit_length else inputs

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Return features made non-negative and, where ``unit_length``, scaled to it, as in the published code."""
        features = features.relu()
        return functional.normalize(features, dim=1) if self.unit_length else features


class GaussianPrior(Prior):
    """Gaussians of the classes, with a shared covariance, of features of unit length.

    As in the thesis, ``-log sum_c exp(-d_c^2 / 2)`` for Mahalanobis distances d_c; or as in the published code, the
    negative log-likelihood of the mixture, with classes weighted by their frequencies.

    Args:
        gaussians: The Gaussians.
        variant: ``thesis`` or ``code``.
    """

    unit_length = True

    def __init__(self, gaussians: ClassGaussians, variant: Variant = "thesis") -> None:
        self.gaussians, self.variant = gaussians, variant

    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """See :class:`Prior`."""
        if self.variant == "code":
            return self.gaussians.negative_log_likelihoods(features)
        return self.gaussians.mixture_energies(features)

    def tensors(self) -> dict[str, torch.Tensor]:
        """See :class:`Prior`."""
        return self.gaussians.tensors()

    def to(self, device: torch.device) -> GaussianPrior:
        """See :class:`Prior`."""
        tensors = {name: tensor.to(device) for name, tensor in self.gaussians.tensors().items()}
        return GaussianPrior(ClassGaussians(**tensors), self.variant)


class LogitPrior(Prior):
    """The energy of the logits of a linear classifier, ``-log sum_c exp(f_c(z))``, of embeddings as they are.

    Args:
        weight: float, shape (C, d).
        bias: float, shape (C,).
    """

    unit_length = False

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self.weight, self.bias = weight, bias

    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """See :class:`Prior`."""
        return -torch.logsumexp(functional.linear(features, self.weight, self.bias), dim=1)

    def tensors(self) -> dict[str, torch.Tensor]:
        """See :class:`Prior`."""
        return {"weight": self.weight, "bias": self.bias}

    def to(self, device: torch.device) -> LogitPrior:
        """See :class:`Prior`."""
        return LogitPrior(self.weight.to(device), self.bias.to(device))


class GaussianSampler:
    """Draws samples of the Gaussians of classes.

    Args:
        gaussians: The Gaussians.
        weights: Weight of each class, shape (C,). Default: equal ones.
    """

    def __init__(self, gaussians: ClassGaussians, weights: torch.Tensor | None = None) -> None:
        self._gaussians = gaussians
        self._weights = torch.ones(len(gaussians.means)) if weights is None else weights.cpu()
        # Whitening is (z - origin) A, so that a whitened sample w is that of w A^-1 + origin.
        self._unwhitening = torch.linalg.inv(gaussians.whitening.double()).to(gaussians.whitening.dtype)

    def sample(self, n: int, generator: torch.Generator) -> torch.Tensor:
        """Return samples, shape (n, d), on the device of the Gaussians."""
        means = self._gaussians.means
        weights = self._weights.float().to(generator.device)
        classes = torch.multinomial(weights, n, replacement=True, generator=generator)
        noise = normal_noise((n, means.shape[1]), generator, means)
        samples: torch.Tensor = (means[classes.to(means.device)] + noise) @ self._unwhitening
        return samples + self._gaussians.origin


def normal_noise(shape: tuple[int, ...], generator: torch.Generator, like: torch.Tensor) -> torch.Tensor:
    """Return standard normal noise of the type and on the device of a tensor.

    It is drawn in float32, so that float64 trains on the same noise.
    """
    return torch.randn(shape, generator=generator, device=generator.device).to(like)
