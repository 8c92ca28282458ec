"""HEAT: training of the residual energies that correct the energies of prior densities.

The method is from chapter 5 of Elias Ramzi's thesis, Robust image retrieval with deep learning
(CNAM, 2024), and Lafon et al., Hybrid Energy Based Model in the Feature Space for
Out-of-Distribution Detection, ICML 2023. Section, equation and table numbers refer to the thesis;
"the published code" is https://github.com/MarcLafon/heatood. Training is contrastive divergence
(Eqs. 5.3, 5.5, 5.6) with negatives that are sampled from the corrected density by Langevin dynamics
(Eq. 5.4). The priors are in :mod:`hgld.rejection.heat_priors`.
:class:`hgld.rejection.heat.Heat` is the score, which composes the energies of several priors.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.rejection.heat_priors import Prior, PriorName, Sampler, Variant, normal_noise

log = logging.getLogger(__name__)
_LOG_INTERVAL_S = 10.0
_SLOPE = 0.2

Energy = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LangevinSettings:
    """Number and sizes of the steps of Langevin dynamics.

    Args:
        steps: Number of steps T; with 0, the negatives are the samples of the prior.
        step_size: Step size eta of the first and of the last step.
        noise: Scale of the noise of the first and of the last step. Default: ``sqrt(eta)``, as in
            Eq. 5.4.
        variant: ``thesis``: the gradient is multiplied by eta / 2 (Eq. 5.4), and sizes decay
            linearly, to the last value in the last step. ``code``: it is multiplied by eta, and
            sizes are ``(first - last) (1 - t/T)^2 + last``, which does not reach the last value.
    """

    steps: int = 20
    step_size: tuple[float, float] = (1e-4, 1e-5)
    noise: tuple[float, float] | None = (5e-3, 5e-4)
    variant: Variant = "thesis"

    def step_sizes(self) -> list[float]:
        """Return eta of each step."""
        return self._decay(self.step_size)

    def gradient_factors(self) -> list[float]:
        """Return the factor of the gradient in each step."""
        divisor = 2 if self.variant == "thesis" else 1
        return [size / divisor for size in self.step_sizes()]

    def noise_scales(self) -> list[float]:
        """Return the scale of the noise of each step."""
        if self.noise is None:
            return [math.sqrt(size) for size in self.step_sizes()]
        return self._decay(self.noise)

    def _decay(self, ends: tuple[float, float]) -> list[float]:
        """Return the value of each step between the values of the first and of the last step."""
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
        shared_hidden: Whether the hidden layers share their weights; see :class:`~ResidualEnergy`.
        epochs: Number of passes over the images of the index.
        batch_size: Number of images, and of chains, of each update; the thesis does not state it.
        learning_rate: Learning rate of Adam, whose betas are 0 and 0.999, as in the published code.
        decay_after: Number of epochs after which the learning rate is divided by 10; None for a
            constant rate.
        l2: Weight lambda of the squared residual energies in the loss (Eq. 5.6).
        temperature: Temperature T_G that divides the energy of the prior.
        input_noise: Standard deviation of the noise added to the inputs of the residual energy in
            training.
        langevin: Sampling of negatives.
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


_CODE = ResidualSettings(
    variant="code",
    shared_hidden=True,
    batch_size=1024,
    learning_rate=1e-5,
    decay_after=10,
    langevin=LangevinSettings(steps=40, variant="code"),
)

#: Hyper-parameters of the thesis (Sec. 5.3, the same for all priors except T_G, which applies to
#: Gaussians), and of the published code for CIFAR-10: heat/config/ebm/heat_gmm_c10.yaml,
#: heat_el_c10.yaml, heat_gmm_std_c10.yaml, with the epochs and batch sizes of its README.
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


class ResidualEnergy(nn.Module):
    """E_theta(z), a perceptron with LeakyReLU of slope 0.2 and one output.

    With four hidden layers it has six linear layers, as in the thesis. With ``shared_hidden``, all
    hidden layers have the same weights, as in the published code, perhaps by accident. For 512
    inputs and 1,024 hidden units, this reduces 4,724,737 parameters to 1,575,937.

    Args:
        dim: Number of features d.
        hidden_dim: Number of hidden units.
        n_hidden: Number of hidden layers between the first and the last layer.
        shared_hidden: Whether the hidden layers share their weights.
        generator: Generator of the initial weights, on the CPU. Weights are initialised as in
            :class:`torch.nn.Linear`, uniformly within ``1 / sqrt(inputs)``.
    """

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        n_hidden: int = 4,
        *,
        shared_hidden: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.n_hidden = n_hidden
        self.first = _linear(dim, hidden_dim, generator)
        n_distinct = min(n_hidden, 1) if shared_hidden else n_hidden
        self.hidden = nn.ModuleList()
        for _ in range(n_distinct):
            self.hidden.append(_linear(hidden_dim, hidden_dim, generator))
        self.last = _linear(hidden_dim, 1, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Return the energy of features, shape (n, d) -> (n,)."""
        values = functional.leaky_relu(self.first(features), _SLOPE)
        for number in range(self.n_hidden):
            layer = self.hidden[min(number, len(self.hidden) - 1)]
            values = functional.leaky_relu(layer(values), _SLOPE)
        energies: Tensor = self.last(values)
        return energies.squeeze(1)


def _linear(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(n_inputs, n_outputs)
    bound = 1 / math.sqrt(n_inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def langevin_steps(
    energy: Energy,
    start: Tensor,
    noise: Iterable[Tensor],
    settings: LangevinSettings,
    *,
    project: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Tensor]:
    """Yield the features of chains after each step ``z <- z - step grad E(z) + scale w``.

    In Eq. 5.4 the step is ``eta / 2`` and the scale ``sqrt(eta)``. The published code subtracts the
    noise, which is symmetric.

    Args:
        energy: Function from features, shape (n, d), to energies, shape (n,).
        start: float, shape (n, d): starts of the chains.
        noise: Standard normal noise w of each step, shape (n, d).
        project: Function applied to the features after each step. Default: none.
    """
    features = start
    steps = zip(settings.gradient_factors(), settings.noise_scales(), noise, strict=False)
    for step, scale, step_noise in steps:
        features = features - step * energy_gradient(energy, features) + scale * step_noise
        if project is not None:
            features = project(features)
        yield features


def energy_gradient(energy: Energy, features: Tensor) -> Tensor:
    """Return the gradient of each row's energy with respect to the row, shape (n, d)."""
    with torch.enable_grad():
        features = features.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(energy(features).sum(), features)
    return gradient


class ContrastiveLoss(NamedTuple):
    """The loss of a residual energy (Eq. 5.6) and its terms.

    Args:
        divergence: Mean residual energy of images minus mean residual energy of negatives (Eq.
            5.3).
        squares: Sum of the mean squared residual energies of images and of negatives (Eq. 5.5).
        total: ``divergence + l2 * squares``.
    """

    divergence: Tensor
    squares: Tensor
    total: Tensor


def contrastive_loss(
    residual: Energy, images: Tensor, negatives: Tensor, l2: float
) -> ContrastiveLoss:
    """Return the loss of Eq. 5.6, which does not contain the energy of the prior.

    The energy of the prior has no parameters.
    """
    image_energies = residual(images)
    negative_energies = residual(negatives.detach())
    divergence = image_energies.mean() - negative_energies.mean()
    squares = image_energies.square().mean() + negative_energies.square().mean()
    return ContrastiveLoss(divergence, squares, divergence + l2 * squares)


@dataclass(frozen=True, eq=False)
class CorrectedEnergy:
    """The energy of a prior with its correction, ``E_prior(z) / T_G + E_theta(z)`` (Eq. 5.2).

    Args:
        prior: The prior.
        residual: The residual energy E_theta.
        temperature: T_G.
    """

    prior: Prior
    residual: Energy
    temperature: float

    def __call__(self, features: Tensor) -> Tensor:
        """Return the energy of features, float, shape (n, d) -> (n,)."""
        return self.prior.energies(features) / self.temperature + self.residual(features)


def sample_negatives(
    prior: Prior,
    residual: ResidualEnergy,
    start: Tensor,
    noise: Iterator[Tensor],
    settings: ResidualSettings,
) -> Tensor:
    """Return samples whose residual energy should increase.

    In the thesis, the negatives are the ends of chains. In the published code, the negatives are
    the ends and the starts of chains, and features are projected after every step; see
    :meth:`Prior.project`.

    Args:
        prior: Prior density.
        residual: Residual energy.
        start: Starts of the chains, float, shape (n, d).
        noise: Standard normal noise of each step, shape (n, d).
        settings: Settings of training.

    Returns:
        float, shape (n, d), or (2n, d) as in the published code.
    """
    energy = CorrectedEnergy(prior, residual, settings.temperature)
    project = None
    if settings.variant == "code":
        project = prior.project
        start = project(start)
    end = start
    for features in langevin_steps(energy, start, noise, settings.langevin, project=project):
        end = features
    if settings.variant == "code":
        return torch.cat([end, start])
    return end


def train_residual_energy(
    prior: Prior,
    sampler: Sampler,
    inputs: Tensor,
    settings: ResidualSettings,
    *,
    name: str,
    seed: int = 0,
) -> ResidualEnergy:
    """Train the residual energy of a prior on the images of an index (Algorithm 2).

    The same seed gives the same network on the same kind of device with the same number of threads.
    An incomplete last batch of an epoch is dropped.

    Args:
        prior: Prior density.
        sampler: Sampler of the starts of chains.
        inputs: Embeddings or standard deviations of the index, float, shape (n, d).
        settings: Settings of training.
        name: Name of the prior, for messages.
        seed: Seed of the initial weights, of batches and of noise.

    Raises:
        ConfigurationError: The loss diverges, or a batch does not fit into the memory of the
            device.
    """
    device = prior.reference.device
    host_generator = torch.Generator().manual_seed(seed)
    generator = host_generator
    if device.type != "cpu":
        generator = torch.Generator(device).manual_seed(seed)
    residual = ResidualEnergy(
        inputs.shape[1],
        settings.hidden_dim,
        settings.n_hidden,
        shared_hidden=settings.shared_hidden,
        generator=host_generator,
    ).to(prior.reference)
    optimizer = torch.optim.Adam(
        residual.parameters(), lr=settings.learning_rate, betas=(0.0, 0.999)
    )
    batch_size = min(settings.batch_size, len(inputs))
    logged_at = time.monotonic()
    for epoch in range(settings.epochs):
        if epoch == settings.decay_after:
            optimizer.param_groups[0]["lr"] /= 10
        total = torch.zeros((), device=device)
        n_used = len(inputs) // batch_size * batch_size
        order = torch.randperm(len(inputs), generator=host_generator)[:n_used]
        for rows in torch.split(order, batch_size):
            images = prior.features(inputs[rows])
            try:
                loss = _update(prior, residual, optimizer, images, sampler, settings, generator)
            except torch.cuda.OutOfMemoryError as error:
                raise ConfigurationError(
                    f"a batch of {batch_size} images does not fit into the memory of {device}; choose a smaller "
                    "`batch_size`"
                ) from error
            total += loss * len(rows) / n_used
        mean_loss = total.item()
        with torch.no_grad():  # the last update may diverge
            is_finite = residual(images).isfinite().all() and math.isfinite(mean_loss)
        if not is_finite:
            raise _divergence_error(name, epoch, mean_loss, settings)
        if time.monotonic() - logged_at >= _LOG_INTERVAL_S:
            logged_at = time.monotonic()
            log.info(
                "heat: epoch %d of %d of the prior %s, loss %.4g",
                epoch + 1,
                settings.epochs,
                name,
                mean_loss,
            )
    return residual.eval().requires_grad_(False)


def _divergence_error(
    name: str, epoch: int, loss: float, settings: ResidualSettings
) -> ConfigurationError:
    """Return an error that names the settings which make the training of a prior converge."""
    return ConfigurationError(
        f"the residual energy of the prior {name} diverges in epoch {epoch + 1} of {settings.epochs}, with a loss of "
        f"{loss:.3g}; set a smaller `learning_rate` ({settings.learning_rate:g}) or `step_size` "
        f"({settings.langevin.step_size[0]:g}), or a larger `temperature` ({settings.temperature:g})"
    )


def _update(
    prior: Prior,
    residual: ResidualEnergy,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    sampler: Sampler,
    settings: ResidualSettings,
    generator: torch.Generator,
) -> Tensor:
    """Update the residual energy with a batch of images, and return the loss."""
    start = sampler(len(images), generator)
    noise = (_noise_like(start, generator) for _ in range(settings.langevin.steps))
    residual.requires_grad_(False)  # chains only need gradients of features: half of the work
    negatives = sample_negatives(prior, residual, start, noise, settings)
    residual.requires_grad_(True)
    if settings.input_noise:
        images = images + settings.input_noise * _noise_like(images, generator)
        negatives = negatives + settings.input_noise * _noise_like(negatives, generator)
    loss = contrastive_loss(residual, images, negatives, settings.l2).total
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def _noise_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    return normal_noise(tuple(tensor.shape), generator, tensor)
