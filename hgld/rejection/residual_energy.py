"""HEAT: energies of prior densities, and training the residual energies that correct them.

From chapter 5 of Elias Ramzi's thesis, Robust image retrieval with deep learning (CNAM, 2024), and Lafon et al.,
Hybrid Energy Based Model in the Feature Space for Out-of-Distribution Detection, ICML 2023. Section, equation and
table numbers are those of the thesis; "the published code" is https://github.com/MarcLafon/heatood. Training is
contrastive divergence (Eqs. 5.3, 5.5, 5.6) against samples of the corrected density by Langevin dynamics (Eq. 5.4).
The score itself, which composes the energies of several priors, is :class:`hgld.rejection.heat.Heat`.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.rejection.classifiers import LinearClassifier
from hgld.rejection.gaussians import ClassGaussians

log = logging.getLogger(__name__)
_LOG_INTERVAL_S = 10.0
_SLOPE = 0.2

Energy = Callable[[torch.Tensor], torch.Tensor]
#: Draws n features, shape (n, d), that chains begin at.
Sampler = Callable[[int, torch.Generator], torch.Tensor]
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
    """

    steps: int = 20
    step_size: tuple[float, float] = (1e-4, 1e-5)
    noise: tuple[float, float] | None = (5e-3, 5e-4)
    variant: Variant = "thesis"

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
        shared_hidden: Whether these are one layer; see :class:`~ResidualEnergy`.
        epochs: Number of passes over the images of the index.
        batch_size: Number of images, and of chains, of each update; the thesis names none.
        learning_rate: Learning rate of Adam, whose betas are 0 and 0.999, as in the published code.
        decay_after: Number of epochs after which the learning rate is divided by 10, if at all.
        l2: Weight lambda of the squared residual energies in the loss (Eq. 5.6).
        temperature: Temperature T_G that the energy of the prior is divided by.
        input_noise: Standard deviation of the noise added to the inputs of the residual energy in training.
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


class Prior(ABC):
    """The energy of a prior density of features, differentiable with respect to them.

    Attributes:
        unit_length: Whether its features are embeddings, or standard deviations, scaled to length 1.
    """

    unit_length: bool

    @property
    @abstractmethod
    def reference(self) -> torch.Tensor:
        """A tensor of the density, which has the type and the device of features."""

    @abstractmethod
    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """Return the energy of each row of features, float, shape (n, d) -> (n,)."""

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the features of images from their embeddings or standard deviations, float, shape (n, d)."""
        inputs = inputs.to(self.reference)
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

    @property
    def reference(self) -> torch.Tensor:
        """The means of the classes."""
        return self.gaussians.means

    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """See :class:`Prior`."""
        if self.variant == "code":
            return self.gaussians.negative_log_likelihoods(features)
        return self.gaussians.mixture_energies(features)


class LogitPrior(Prior):
    """The energy of the logits of a linear classifier, ``-log sum_c exp(f_c(z))``, of embeddings as they are."""

    unit_length = False

    def __init__(self, classifier: LinearClassifier) -> None:
        self.classifier = classifier

    @property
    def reference(self) -> torch.Tensor:
        """The weights of the classifier."""
        return self.classifier.weight

    def energies(self, features: torch.Tensor) -> torch.Tensor:
        """See :class:`Prior`."""
        return -self.classifier.logits(features).logsumexp(dim=1)


def gaussian_sampler(gaussians: ClassGaussians, weights: torch.Tensor | None = None) -> Sampler:
    """Return a sampler of the Gaussians of classes, on their device; classes weigh the same by default."""
    means = gaussians.means
    weights = torch.ones(len(means)) if weights is None else weights.float()
    # Whitening is (z - origin) A, so that a whitened sample w is that of w A^-1 + origin.
    unwhitening = torch.linalg.inv(gaussians.whitening.double()).to(means.dtype)

    def sample(n: int, generator: torch.Generator) -> torch.Tensor:
        classes = torch.multinomial(
            weights.to(generator.device), n, replacement=True, generator=generator
        )
        noise = normal_noise((n, means.shape[1]), generator, means)
        samples: torch.Tensor = (means[classes.to(means.device)] + noise) @ unwhitening
        return samples + gaussians.origin

    return sample


def normal_sampler(like: torch.Tensor) -> Sampler:
    """Return a sampler of standard normal features, where the published code begins chains of energies of logits."""
    return lambda n, generator: normal_noise((n, like.shape[-1]), generator, like)


def normal_noise(
    shape: tuple[int, ...], generator: torch.Generator, like: torch.Tensor
) -> torch.Tensor:
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
            within ``1 / sqrt(inputs)``.
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
        n_own = min(n_hidden, 1) if shared_hidden else n_hidden
        self.hidden = nn.ModuleList(
            _linear(hidden_dim, hidden_dim, generator) for _ in range(n_own)
        )
        self.last = _linear(hidden_dim, 1, generator)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the energy of features, shape (n, d) -> (n,)."""
        values = functional.leaky_relu(self.first(features), _SLOPE)
        for layer in range(self.n_hidden):
            values = functional.leaky_relu(
                self.hidden[min(layer, len(self.hidden) - 1)](values), _SLOPE
            )
        energies: torch.Tensor = self.last(values)
        return energies.squeeze(1)


def _linear(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(n_inputs, n_outputs)
    bound = 1 / math.sqrt(n_inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def langevin_steps(
    energy: Energy,
    start: torch.Tensor,
    noise: Iterable[torch.Tensor],
    settings: LangevinSettings,
    *,
    project: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Iterator[torch.Tensor]:
    """Yield the features after each step ``z <- z - step grad E(z) + scale w`` of chains, one per row.

    In Eq. 5.4 the step is ``eta / 2`` and the scale ``sqrt(eta)``. The published code subtracts its noise, which is
    symmetric.

    Args:
        energy: Function from features, shape (n, d), to energies, shape (n,).
        start: float, shape (n, d): where the chains begin.
        noise: Standard normal noise w of each step, shape (n, d).
        project: Function applied to the end of each step. Default: none.
    """
    features = start
    for step, scale, own_noise in zip(
        settings.gradient_factors(), settings.noise_scales(), noise, strict=False
    ):
        features = features - step * energy_gradient(energy, features) + scale * own_noise
        if project is not None:
            features = project(features)
        yield features


def energy_gradient(energy: Energy, features: torch.Tensor) -> torch.Tensor:
    """Return the gradient of each row's energy with respect to the row, shape (n, d)."""
    with torch.enable_grad():
        features = features.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(energy(features).sum(), features)
    return gradient


class ContrastiveLoss(NamedTuple):
    """The loss of a residual energy (Eq. 5.6) and its terms.

    Args:
        divergence: Mean residual energy of images less that of negatives (Eq. 5.3).
        squares: Mean squared residual energy of images, plus that of negatives (Eq. 5.5).
        total: ``divergence + l2 * squares``.
    """

    divergence: torch.Tensor
    squares: torch.Tensor
    total: torch.Tensor


def contrastive_loss(
    residual: Energy, images: torch.Tensor, negatives: torch.Tensor, l2: float
) -> ContrastiveLoss:
    """Return the loss of Eq. 5.6: only the residual energy has parameters, so the prior's does not occur in it."""
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

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        """Return the energy of features, float, shape (n, d) -> (n,)."""
        return self.prior.energies(features) / self.temperature + self.residual(features)


def sample_negatives(
    prior: Prior,
    residual: ResidualEnergy,
    start: torch.Tensor,
    noise: Iterator[torch.Tensor],
    settings: ResidualSettings,
) -> torch.Tensor:
    """Return samples that the residual energy should raise.

    As in the thesis, the ends of chains that begin at ``start``. As in the published code, these and then the starts,
    after every step of which the features are projected; see :meth:`Prior.project`.

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
    return torch.cat([end, start]) if settings.variant == "code" else end


def train_residual_energy(
    prior: Prior,
    sampler: Sampler,
    inputs: torch.Tensor,
    settings: ResidualSettings,
    *,
    name: str,
    seed: int = 0,
) -> ResidualEnergy:
    """Train the residual energy of a prior on the images of an index (Algorithm 2).

    The same seed gives the same network on the same kind of device with the same number of threads. Of the last batch
    of an epoch, images that do not fill it are left out.

    Raises:
        ConfigurationError: The loss is not finite any more, or a batch does not fit into the memory of the device.
    """
    device = prior.reference.device
    host = torch.Generator().manual_seed(seed)
    generator = host if device.type == "cpu" else torch.Generator(device).manual_seed(seed)
    residual = ResidualEnergy(
        inputs.shape[1],
        settings.hidden_dim,
        settings.n_hidden,
        shared_hidden=settings.shared_hidden,
        generator=host,
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
        batches = torch.randperm(len(inputs), generator=host)[
            : len(inputs) // batch_size * batch_size
        ]
        for rows in torch.split(batches, batch_size):
            images = prior.features(inputs[rows])
            try:
                loss = _update(prior, residual, optimizer, images, sampler, settings, generator)
            except torch.cuda.OutOfMemoryError as error:
                raise ConfigurationError(
                    f"a batch of {batch_size} images does not fit into the memory of {device}; choose a smaller "
                    "`batch_size`"
                ) from error
            total += loss * len(rows) / len(batches)
        mean_loss = total.item()
        with torch.no_grad():  # the last update may be the one that diverges
            finite = residual(images).isfinite().all() and math.isfinite(mean_loss)
        if not finite:
            raise ConfigurationError(
                f"the residual energy of the prior {name} diverges in epoch {epoch + 1} of {settings.epochs}, with a "
                f"loss of {mean_loss:.3g}; set a smaller `learning_rate` ({settings.learning_rate:g}) or `step_size` "
                f"({settings.langevin.step_size[0]:g}), or a larger `temperature` ({settings.temperature:g})"
            )
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


def _update(
    prior: Prior,
    residual: ResidualEnergy,
    optimizer: torch.optim.Optimizer,
    images: torch.Tensor,
    sampler: Sampler,
    settings: ResidualSettings,
    generator: torch.Generator,
) -> torch.Tensor:
    """Update the residual energy with a batch of images; returns the loss."""
    start = sampler(len(images), generator)
    shape = tuple(start.shape)
    noise = (normal_noise(shape, generator, start) for _ in range(settings.langevin.steps))
    residual.requires_grad_(
        False
    )  # the chains need gradients of features only, which are half the work
    negatives = sample_negatives(prior, residual, start, noise, settings)
    residual.requires_grad_(True)
    if settings.input_noise:
        images = images + settings.input_noise * normal_noise(
            tuple(images.shape), generator, images
        )
        negatives = negatives + settings.input_noise * normal_noise(
            tuple(negatives.shape), generator, negatives
        )
    loss = contrastive_loss(residual, images, negatives, settings.l2).total
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()
