"""Updates of parameters: frozen layers, optimisers of groups with their schedules, gradients of whole batches.

Ranking losses are not sums over images: each image is ranked against all others. So the embeddings of all processes
are gathered (:mod:`hgld.losses.kernels.batches`), and each process computes the loss of the whole batch.

If the activations of a process's images do not fit into memory, the images are embedded twice (Patel et al.,
Recall@k Surrogate Loss, Sec. 3.3): first without a graph, for the loss and its gradient with respect to the
embeddings; then chunk by chunk, and each chunk continues the backward pass from its part of that gradient. Batch
normalisation that is not frozen uses the statistics of the chunk.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, AdamW, Optimizer

from hgld.compute.processes import Processes
from hgld.datasets.loading import Images
from hgld.errors import ConfigurationError
from hgld.models.embedding_model import EmbeddingModel, batch_norms
from hgld.training.training_settings import GroupSettings, TrainingSettings


@dataclass(frozen=True)
class TrainingLength:
    """Length of a training.

    Args:
        n_epochs: Number of epochs; the last epoch may be incomplete.
        warm_up_epochs: Number of epochs at the beginning in which schedules do not advance.
    """

    n_steps: int
    n_epochs: int
    warm_up_epochs: int = 0


def learning_rate(
    settings: GroupSettings, length: TrainingLength, *, epoch: int, step: int
) -> float:
    """Return the learning rate of a step.

    >>> settings = GroupSettings(lr=1.0, end_lr=0.5)
    >>> [learning_rate(settings, TrainingLength(40, n_epochs=4), epoch=epoch, step=10 * epoch) for epoch in (0, 2)]
    [1.0, 0.75]
    """
    n_done = max(0, epoch - length.warm_up_epochs)
    if settings.schedule == "cosine":
        done = n_done / length.n_epochs if settings.interval == "epoch" else step / length.n_steps
        amplitude = settings.lr - settings.end_lr
        return settings.end_lr + amplitude * (1 + math.cos(math.pi * done)) / 2
    n_factors = 0
    if settings.schedule == "multi_step":
        n_factors = sum(milestone <= n_done for milestone in settings.milestones)
    elif settings.step_epochs is not None:
        n_factors = n_done // settings.step_epochs
    return settings.lr * settings.gamma**n_factors


class Optimisers:
    """One optimiser per parameter group, since each group has an algorithm of its own; empty groups are ignored.

    The learning rate is a function of epoch and step alone. Torch's schedulers would add state to checkpoints, cannot
    express a schedule that starts at 0, and warn whenever the first step is skipped, as in 16-bit precision.
    """

    def __init__(
        self,
        groups: Mapping[str, Iterable[torch.nn.Parameter]],
        settings: Mapping[str, GroupSettings],
        length: TrainingLength,
    ) -> None:
        self._settings: dict[str, GroupSettings] = {}
        self._optimisers: dict[str, Optimizer] = {}
        for name, group in groups.items():
            parameters = list(group)
            if parameters:
                self._settings[name] = settings[name]
                self._optimisers[name] = _build_optimiser(parameters, settings[name])
        self._length = length

    def set_learning_rates(self, epoch: int, step: int) -> dict[str, float]:
        """Set the learning rates of a step of an epoch, both from 0, and return them by group."""
        rates = {}
        for name, settings in self._settings.items():
            rate = learning_rate(settings, self._length, epoch=epoch, step=step)
            for parameters in self._optimisers[name].param_groups:
                parameters["lr"] = rate
            rates[name] = rate
        return rates

    def zero_grad(self) -> None:
        """Reset all gradients to None."""
        for optimiser in self._optimisers.values():
            optimiser.zero_grad(set_to_none=True)

    def step(self, scaler: torch.amp.GradScaler, clip_norm: float | None) -> bool:
        """Update all parameters that have gradients, or no parameter if a gradient is not finite.

        Args:
            clip_norm: Maximum norm of the joint gradient of backbone and head; None for no limit. The gradients of
                proxies, whose learning rates are much larger, are not clipped.

        Returns:
            Whether the parameters were updated. If not, the scaler has reduced its scale.
        """
        ready, parameters, clipped = [], [], []
        for name, optimiser in self._optimisers.items():
            group = _with_gradients(optimiser)
            if not group:
                continue
            scaler.unscale_(optimiser)
            ready.append(optimiser)
            parameters += group
            if name != "proxies":
                clipped += group
        # A scaler alone would skip only the optimisers whose own gradients are not finite.
        if not _are_finite(parameters):
            scaler.update()
            return False
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(clipped, clip_norm)
        for optimiser in ready:
            scaler.step(optimiser)
        scaler.update()
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the states of torch's optimisers by group."""
        return {name: optimiser.state_dict() for name, optimiser in self._optimisers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore states returned by :meth:`state_dict`."""
        for name, optimiser in self._optimisers.items():
            optimiser.load_state_dict(state[name])


def _build_optimiser(parameters: list[torch.nn.Parameter], settings: GroupSettings) -> Optimizer:
    if settings.name == "sgd":
        return SGD(
            parameters,
            settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
        )
    algorithm = AdamW if settings.name == "adamw" else Adam
    return algorithm(parameters, settings.lr, weight_decay=settings.weight_decay)


def _are_finite(parameters: Iterable[torch.nn.Parameter]) -> bool:
    """Return whether the gradients of all parameters are finite, with a single transfer from the device."""
    largest = [parameter.grad.abs().max() for parameter in parameters if parameter.grad is not None]
    return not largest or bool(torch.stack(largest).isfinite().all())


def _with_gradients(optimiser: Optimizer) -> list[torch.nn.Parameter]:
    """Return the parameters of an optimiser that have gradients."""
    parameters = []
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameters.append(parameter)
    return parameters


def freeze_parameters(model: EmbeddingModel, settings: TrainingSettings, epoch: int) -> None:
    """Freeze the backbone during the warm-up, and parameters by ``frozen`` and ``trained`` in every epoch.

    The batch-norm statistics of frozen layers are frozen, too.
    """
    model.freeze_backbone(epoch < settings.warm_up_epochs)
    for name, parameter in model.named_parameters():
        is_frozen = _is_in(name, settings.frozen)
        if settings.trained is not None and _is_in(name, ["backbone"]):
            is_frozen = is_frozen or not _is_in(name, settings.trained)
        if is_frozen:
            parameter.requires_grad_(False)
    model.train(model.training)


def _is_in(name: str, modules: Iterable[str]) -> bool:
    """Return whether a parameter has one of the names, or is below a module with one of the names.

    ``blocks.10`` is not below ``blocks.1``.
    """
    return any(f"{name}.".startswith(f"{module.removesuffix('.')}.") for module in modules)


def require_trainable(
    model: EmbeddingModel, groups: Mapping[str, Sequence[nn.Parameter]], settings: TrainingSettings
) -> None:
    """Raise an error if ``frozen`` or ``trained`` name unknown parameters, or if nothing is left to train.

    If neither the head nor the loss has parameters, the parameters of the model are frozen as in the first epoch
    (:func:`freeze_parameters`).

    Args:
        groups: Parameters of the model and the loss by group: backbone, head and proxies.
    """
    names = [name for name, _ in model.named_parameters()]
    for key in ("frozen", "trained"):
        for module in getattr(settings, key) or ():
            if not any(_is_in(name, [module]) for name in names):
                modules = dict.fromkeys(".".join(name.split(".")[:2]) for name in names)
                raise ConfigurationError(
                    f'{key}: no module or parameter of the model is called "{module}"; there are {", ".join(modules)}'
                )
    if groups["head"] or groups["proxies"]:
        return
    if settings.warm_up_epochs:
        raise ConfigurationError(
            "there is nothing to train in the warm-up: the backbone is frozen, the model has no head and the loss no "
            "parameters; set warm_up_epochs to 0 or model.dim"
        )
    freeze_parameters(model, settings, epoch=0)
    if settings.steps != 0 and not any(parameter.requires_grad for parameter in groups["backbone"]):
        raise ConfigurationError(
            "there is nothing to train: all of the backbone is frozen, the model has no head and the loss no "
            "parameters; set model.dim, or freeze less"
        )


def average_gradients(parameters: Iterable[nn.Parameter], processes: Processes) -> None:
    """Average the gradients of parameters outside ``DistributedDataParallel``, such as the loss's, over processes."""
    if processes.count == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            torch.distributed.all_reduce(parameter.grad)
            parameter.grad /= processes.count


def backpropagate(
    model: nn.Module,
    images: Images,
    loss_function: Callable[[Tensor], Tensor],
    *,
    chunk_size: int | None = None,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    scale: Callable[[Tensor], Tensor] = lambda loss: loss,
) -> Tensor:
    """Add the gradient of a loss to the parameters of the model and of the loss.

    Args:
        model: Model that embeds images; a ``DistributedDataParallel`` if there are several processes.
        images: Images of this process, float, shape (b, 3, h, w); or a list of b images of shape (3, h, w).
        loss_function: Returns the loss given the embeddings of this process, shape (b, d).
        scale: Applied to the loss before the backward pass, such as ``GradScaler.scale``.

    Returns:
        The unscaled loss, detached.
    """

    def embed(batch: Images) -> Tensor:
        with autocast():
            embeddings: Tensor = model(batch)
        return embeddings.float()

    if chunk_size is None or len(images) <= chunk_size:
        loss = loss_function(embed(images))
        scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    if any(module.training for module in batch_norms(model)):
        warnings.warn(
            "chunk_size embeds a batch in chunks, whose means and variances batch norm takes instead of those of the "
            "batch, so gradients differ from those of one pass; set model.frozen_batch_norm to true",
            stacklevel=2,
        )
    chunks = [images[start : start + chunk_size] for start in range(0, len(images), chunk_size)]
    devices = [images[0].device] if images[0].device.type == "cuda" else []
    states, chunk_embeddings = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(_random_state(devices))
            chunk_embeddings.append(embed(chunk))
    embeddings = torch.cat(chunk_embeddings).requires_grad_()
    loss = loss_function(embeddings)
    scale(loss).backward()  # type: ignore[no-untyped-call]
    assert embeddings.grad is not None
    gradients = embeddings.grad.split(chunk_size)  # type: ignore[no-untyped-call]
    for chunk, state, gradient in zip(chunks, states, gradients, strict=True):
        with torch.random.fork_rng(devices), _gradient_sync(model, last=chunk is chunks[-1]):
            _set_random_state(state, devices)
            embedded = embed(chunk)
            if embedded.requires_grad:
                embedded.backward(gradient)  # type: ignore[no-untyped-call]
    return loss.detach()


def _gradient_sync(model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Let processes exchange gradients only once, in the backward pass of the last chunk."""
    if last or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def _random_state(devices: Sequence[torch.device]) -> list[Tensor]:
    """Return the states of the generators that dropout uses: first of the CPU, then of the GPUs."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]


def _set_random_state(states: Sequence[Tensor], devices: Sequence[torch.device]) -> None:
    torch.set_rng_state(states[0])
    for state, device in zip(states[1:], devices, strict=True):
        torch.cuda.set_rng_state(state, device)
