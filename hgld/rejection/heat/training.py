"""Training the residual energy of a prior: contrastive divergence against samples of the corrected density."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import torch

from hgld.errors import ConfigurationError
from hgld.progress import NoProgress, Progress
from hgld.rejection.heat.energies import Prior, ResidualEnergy, normal_noise
from hgld.rejection.heat.settings import LangevinSettings, ResidualSettings

log = logging.getLogger(__name__)
_LOG_INTERVAL_S = 10.0

Energy = Callable[[torch.Tensor], torch.Tensor]


class LangevinStep(NamedTuple):
    """A step of a chain."""

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


class Sampler(Protocol):
    """Draws the features that chains begin at."""

    def sample(self, n: int, generator: torch.Generator) -> torch.Tensor:
        """Return samples, shape (n, d)."""


class NormalSampler:
    """Draws standard normal features, at which chains of the energy of logits begin in the published code."""

    def __init__(self, like: torch.Tensor) -> None:
        self._like = like

    def sample(self, n: int, generator: torch.Generator) -> torch.Tensor:
        """See :class:`Sampler`."""
        return normal_noise((n, self._like.shape[-1]), generator, self._like)


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


def contrastive_loss(residual: Energy, images: torch.Tensor, negatives: torch.Tensor, l2: float) -> ContrastiveLoss:
    """Return the loss of Eq. 5.6: only the residual energy has parameters, so the prior's does not occur in it."""
    of_images, of_negatives = residual(images), residual(negatives.detach())
    divergence = of_images.mean() - of_negatives.mean()
    squares = of_images.square().mean() + of_negatives.square().mean()
    return ContrastiveLoss(divergence, squares, divergence + l2 * squares)


def corrected_energy(prior: Prior, residual: Energy, temperature: float) -> Energy:
    """Return the function ``E_prior(z) / T_G + E_theta(z)`` from features to energies (Eq. 5.2)."""
    return lambda features: prior.energies(features) / temperature + residual(features)


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
    is_code = settings.variant == "code"
    end = start = prior.project(start) if is_code else start
    energy = corrected_energy(prior, residual, settings.temperature)
    project: Callable[[torch.Tensor], torch.Tensor] | None = prior.project if is_code else None
    for step in langevin_steps(energy, start, noise, settings.langevin, project=project):
        end = step.features
    return torch.cat([end, start]) if is_code else end


def train_residual_energy(
    prior: Prior,
    sampler: Sampler,
    inputs: torch.Tensor,
    settings: ResidualSettings,
    *,
    name: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResidualEnergy:
    """Train the residual energy of a prior on the images of an index (Algorithm 2).

    The same seed gives the same network on the same kind of device with the same number of threads.

    Args:
        prior: The prior, on the device to train on.
        sampler: Draws the features that chains begin at.
        inputs: float, shape (n, d): embeddings or standard deviations of the images; may be memory-mapped.
        settings: Hyper-parameters. Of the last batch of an epoch, images that do not fill it are left out.
        name: Name of the prior, for messages.
        seed: Seed of the initial weights, the order of images, and all noise.
        progress: Reporter of the number of epochs done, with the mean loss of the last one.

    Raises:
        ConfigurationError: The loss is not finite any more, or a batch does not fit into the memory of the device.
    """
    progress = progress or NoProgress()
    features = prior.features(inputs[:1])
    device = next(iter(prior.tensors().values())).device
    host = torch.Generator().manual_seed(seed)
    generator = host if device.type == "cpu" else torch.Generator(device).manual_seed(seed)
    residual = ResidualEnergy(
        features.shape[1],
        settings.hidden_dim,
        settings.n_hidden,
        shared_hidden=settings.shared_hidden,
        generator=host,
    ).to(device, features.dtype)
    optimizer = torch.optim.Adam(residual.parameters(), lr=settings.learning_rate, betas=(0.0, 0.999))
    batch_size = min(settings.batch_size, len(inputs))
    logged_at = time.monotonic()
    for epoch in range(settings.epochs):
        if epoch == settings.decay_after:
            optimizer.param_groups[0]["lr"] /= 10
        total = torch.zeros((), device=device)
        batches = torch.randperm(len(inputs), generator=host)[: len(inputs) // batch_size * batch_size]
        for rows in torch.split(batches, batch_size):
            images = prior.features(inputs[rows]).to(device)
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
        progress.advance(1, loss=mean_loss)
        if time.monotonic() - logged_at >= _LOG_INTERVAL_S:
            logged_at = time.monotonic()
            log.info("heat: epoch %d of %d of the prior %s, loss %.4g", epoch + 1, settings.epochs, name, mean_loss)
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
    start = sampler.sample(len(images), generator)
    shape = tuple(start.shape)
    noise = (normal_noise(shape, generator, start) for _ in range(settings.langevin.steps))
    residual.requires_grad_(False)  # the chains need gradients of features only, which are half the work
    negatives = sample_negatives(prior, residual, start, noise, settings)
    residual.requires_grad_(True)
    if settings.input_noise:
        images = images + settings.input_noise * normal_noise(tuple(images.shape), generator, images)
        negatives = negatives + settings.input_noise * normal_noise(tuple(negatives.shape), generator, negatives)
    loss = contrastive_loss(residual, images, negatives, settings.l2).total
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()
