"""Hyper-parameters of a residual energy and its training, and the presets of the thesis and of the published code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from hgld.errors import ConfigurationError

#: Where the thesis's text and the published code differ: the density of the Gaussians, the samples that the residual
#: energy learns from, their projection, and the presets.
Variant = Literal["thesis", "code"]
PriorName = Literal["gmm", "energy", "gmm_std"]


@dataclass(frozen=True)
class LangevinSettings:
    """Number and sizes of the steps of Langevin dynamics.

    Args:
        steps: Number of steps T; 0 leaves the samples of the prior as they are.
        step_size: Step size eta of the first and of the last step.
        noise: Scale of the noise of the first and of the last step. Default: ``sqrt(eta)``, as in Eq. 5.4.
        variant: ``thesis``: the gradient is multiplied by eta / 2 (Eq. 5.4), and sizes decay linearly, to the last
            value in the last step. ``code``: it is multiplied by eta, and sizes are
            ``(first - last) (1 - t/T)^2 + last``, which does not reach the last value.

    Raises:
        ConfigurationError: A value is negative or not finite.
    """

    steps: int = 20
    step_size: tuple[float, float] = (1e-4, 1e-5)
    noise: tuple[float, float] | None = (5e-3, 5e-4)
    variant: Variant = "thesis"

    def __post_init__(self) -> None:
        for name in ("steps", "step_size", "noise"):
            value = getattr(self, name)
            if value is not None and not all(0 <= number < math.inf for number in np.atleast_1d(value)):
                raise ConfigurationError(f"`{name}` is {value}; expected finite numbers of at least 0")

    def step_sizes(self) -> list[float]:
        """Return eta of each step."""
        return self._decay(self.step_size)

    def gradient_factors(self) -> list[float]:
        """Return what the gradient is multiplied by in each step."""
        return [size / 2 if self.variant == "thesis" else size for size in self.step_sizes()]

    def noise_scales(self) -> list[float]:
        """Return the scale of the noise of each step."""
        if self.noise is None:
            return [math.sqrt(size) for size in self.step_sizes()]
        return self._decay(self.noise)

    def _decay(self, ends: tuple[float, float]) -> list[float]:
        first, last = ends
        if self.variant == "thesis":
            return [float(size) for size in np.linspace(first, last, self.steps)]
        return [(first - last) * (1 - step / self.steps) ** 2 + last for step in range(self.steps)]


@dataclass(frozen=True)
class ResidualSettings:
    """Hyper-parameters of the residual energy of one prior.

    Args:
        variant: See :data:`Variant`.
        hidden_dim: Number of hidden units.
        n_hidden: Number of hidden layers between the first and the last.
        shared_hidden: Whether these are one layer; see :class:`~hgld.rejection.heat.energies.ResidualEnergy`.
        epochs: Number of passes over the images of the index.
        batch_size: Number of images, and of chains, of each update; the thesis names none.
        learning_rate: Learning rate of Adam, whose betas are 0 and 0.999, as in the published code.
        decay_after: Number of epochs after which the learning rate is divided by 10, if at all.
        l2: Weight lambda of the squared residual energies in the loss (Eq. 5.6).
        temperature: Temperature T_G that the energy of the prior is divided by.
        input_noise: Standard deviation of the noise added to the inputs of the residual energy in training.
        langevin: Sampling of negatives.

    Raises:
        ConfigurationError: A value is out of range.
    """

    variant: Variant = "thesis"
    hidden_dim: int = 1024
    n_hidden: int = 4
    shared_hidden: bool = False
    epochs: int = 20
    batch_size: int = 256
    learning_rate: float = 5e-6
    decay_after: int | None = None
    l2: float = 10.0
    temperature: float = 1e3
    input_noise: float = 1e-4
    langevin: LangevinSettings = field(default_factory=LangevinSettings)

    def __post_init__(self) -> None:
        lowest = {"hidden_dim": 1, "batch_size": 1, "n_hidden": 0, "epochs": 0, "l2": 0, "input_noise": 0}
        for name, bound in lowest.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= bound):
                raise ConfigurationError(f"`{name}` is {value}; expected a finite number of at least {bound}")
        for name in ("learning_rate", "temperature"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigurationError(f"`{name}` is {value}; expected a finite number above 0")


_CODE = ResidualSettings(
    variant="code",
    shared_hidden=True,
    batch_size=1024,
    learning_rate=1e-5,
    decay_after=10,
    langevin=LangevinSettings(steps=40, variant="code"),
)

#: The thesis's hyper-parameters (Sec. 5.3, the same for all priors, but that T_G is of Gaussians), and those of the
#: published code for CIFAR-10: heat/config/ebm/heat_gmm_c10.yaml, heat_el_c10.yaml, heat_gmm_std_c10.yaml, with the
#: epochs and batch sizes of its README.
PRESETS: Mapping[Variant, Mapping[PriorName, ResidualSettings]] = {
    "thesis": {
        "gmm": ResidualSettings(),
        "energy": ResidualSettings(temperature=1.0),
        "gmm_std": ResidualSettings(),
    },
    "code": {
        "gmm": _CODE,
        "energy": replace(
            _CODE,
            batch_size=256,
            l2=0.1,
            temperature=1.0,
            langevin=LangevinSettings(50, (0.1, 0.01), (0.1, 0.01), "code"),
        ),
        "gmm_std": replace(_CODE, langevin=LangevinSettings(steps=1, variant="code")),
    },
}
