"""Stochastic gradient Langevin dynamics: samples of the density of an energy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch

from hgld.rejection.heat.settings import LangevinSettings

Energy = Callable[[torch.Tensor], torch.Tensor]


class LangevinStep(NamedTuple):
    """A step of a chain.

    Args:
        gradient: Gradient of the energy where the step began, shape (n, d).
        features: Where it ended, shape (n, d).
    """

    gradient: torch.Tensor
    features: torch.Tensor


def langevin_steps(
    energy: Energy,
    start: torch.Tensor,
    noise: Iterable[torch.Tensor],
    settings: LangevinSettings,
    *,
    project: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Iterator[LangevinStep]:
    """Yield the steps ``z <- z - step grad E(z) + scale w`` of chains, one per row.

    In Eq. 5.4 the step is ``eta / 2`` and the scale ``sqrt(eta)``. The published code subtracts its noise, which is
    symmetric.

    Args:
        energy: Function from features, shape (n, d), to energies, shape (n,).
        start: float, shape (n, d): where the chains begin.
        noise: Standard normal noise w of each step, shape (n, d).
        settings: Number and sizes of the steps.
        project: Function applied to the end of each step. Default: none.
    """
    features = start
    for step, scale, own_noise in zip(settings.gradient_factors(), settings.noise_scales(), noise, strict=False):
        gradient = energy_gradient(energy, features)
        features = features - step * gradient + scale * own_noise
        if project is not None:
            features = project(features)
        yield LangevinStep(gradient, features)


def energy_gradient(energy: Energy, features: torch.Tensor) -> torch.Tensor:
    """Return the gradient of each row's energy with respect to the row, shape (n, d)."""
    with torch.enable_grad():
        features = features.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(energy(features).sum(), features)
    return gradient
