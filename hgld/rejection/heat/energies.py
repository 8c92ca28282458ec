"""The energies that HEAT adds up: of prior densities of the features of an index, and the residual energy."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional

from hgld.rejection.gaussians import ClassGaussians
from hgld.rejection.heat.settings import Variant
from hgld.rejection.linear_classifier import LinearClassifier

Self = TypeVar("Self", bound="Prior")
_SLOPE = 0.2


class Prior(ABC):
    """The energy of a prior density of features, differentiable with respect to them.

    Attributes:
        unit_length: Whether its features are embeddings, or standard deviations, scaled to length 1.
        density: The tensors of the density.
    """

    unit_length: bool
    density: Any

    @abstractmethod
    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """Return the energy of each row of features, float, shape (n, d) -> (n,)."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what the density is made of, by name."""
        return {part.name: getattr(self.density, part.name) for part in fields(self.density)}

    def to(self: Self, device: torch.device) -> Self:
        """Return the prior on a device."""
        moved = copy.copy(self)
        moved.density = type(self.density)(**{name: tensor.to(device) for name, tensor in self.tensors().items()})
        return moved

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
    density: ClassGaussians

    def __init__(self, gaussians: ClassGaussians, variant: Variant = "thesis") -> None:
        self.density, self.variant = gaussians, variant

    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """See :class:`Prior`."""
        if self.variant == "code":
            return self.density.negative_log_likelihoods(features)
        return self.density.mixture_energies(features)


class LogitPrior(Prior):
    """The energy of the logits of a linear classifier, ``-log sum_c exp(f_c(z))``, of embeddings as they are."""

    unit_length = False
    density: LinearClassifier

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self.density = LinearClassifier(weight, bias)

    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """See :class:`Prior`."""
        return -self.density.logits(features).logsumexp(dim=1)


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


class ResidualEnergy(nn.Module):
    """E_theta(z), a perceptron with LeakyReLU of slope 0.2 and one output.

    With four hidden layers it has six linear layers, as in the thesis. With ``shared_hidden``, one hidden layer is
    applied that many times, with the same weights: so does the published code, perhaps by accident. For 512 inputs
    and 1,024 hidden units that leaves 1,575,937 of 4,724,737 parameters.

    Args:
        dim: Number of features d.
        hidden_dim: Number of hidden units.
        n_hidden: Number of layers between the first and the last one.
        shared_hidden: Whether these are one layer.
        generator: Generator of the initial weights, on the CPU; they are those of :class:`torch.nn.Linear`, uniform
            within ``1 / sqrt(inputs)``. Default: zeros, to be loaded into.
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        n_hidden: int = 4,
        *,
        shared_hidden: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_hidden = n_hidden
        self.first = _linear(dim, hidden_dim, generator)
        n_own = min(n_hidden, 1) if shared_hidden else n_hidden
        self.hidden = nn.ModuleList(_linear(hidden_dim, hidden_dim, generator) for _ in range(n_own))
        self.last = _linear(hidden_dim, 1, generator)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the energy of features, shape (n, d) -> (n,)."""
        values = functional.leaky_relu(self.first(features), _SLOPE)
        for layer in range(self.n_hidden):
            values = functional.leaky_relu(self.hidden[min(layer, len(self.hidden) - 1)](values), _SLOPE)
        energies: torch.Tensor = self.last(values)
        return energies.squeeze(1)


def _linear(n_inputs: int, n_outputs: int, generator: torch.Generator | None) -> nn.Linear:
    layer = nn.Linear(n_inputs, n_outputs)
    bound = 0.0 if generator is None else 1 / math.sqrt(n_inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer
