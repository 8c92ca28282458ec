"""Seconds and bytes of a training step on this machine, timed once with random images."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.errors import ConfigurationError
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.losses.loss_specs import LabelSpace
from hgld.models.embedding_model import EmbeddingModel, build_model
from hgld.training.backpropagation import backpropagate
from hgld.training.optimisation import Optimisers, TrainingLength, freeze_parameters, require_trainable
from hgld.training.precision import autocast, out_of_memory_message
from hgld.training.run import training_loss
from hgld.training.training_settings import TrainingSettings

#: Pictures that a CPU embeds at once: the activations of a whole batch may not fit into its memory.
CPU_PICTURES = 8


@dataclass(frozen=True, eq=False)
class ModelTiming:
    """Cost of a model.

    Args:
        model: The model, with random weights.
        step_s: Seconds of a step, forward and backward, for a process's share of a batch.
        embed_s: Seconds per image of the forward pass alone.
        peak_bytes: GPU memory of a step besides the model; 0 on a CPU.
    """

    model: EmbeddingModel
    step_s: float
    embed_s: float
    peak_bytes: int


@dataclass(frozen=True)
class LossTiming:
    """Cost of the loss and the optimisers.

    Args:
        step_s: Seconds of a step: the loss of a whole batch, forward and backward, and the optimisers.
        peak_bytes: GPU memory of a step besides the parameters; 0 on a CPU.
        state_bytes: Bytes of parameters, proxies and the state of optimisers and memory, as a checkpoint has them.
        gradient_bytes: Bytes of the gradients of all trained parameters.
    """

    step_s: float
    peak_bytes: int
    state_bytes: int
    gradient_bytes: int


def time_model(settings: TrainingSettings, device: torch.device, n_processes: int = 1) -> ModelTiming:
    """Time one training step of a model after its warm-up, and the forward pass alone.

    Args:
        settings: Settings of the training; with 0 steps, only the forward pass is timed.
        device: Device to measure on. The model embeds a process's share of a batch, on a CPU at most eight pictures,
            from which the time of the share is extrapolated.
        n_processes: Number of processes that share a batch.

    Raises:
        ConfigurationError: The images do not fit into the memory of the GPU, or there is no such model.
    """
    model = training_model(settings, device)
    share = settings.batch_size // n_processes
    n_images = share if settings.model.n_features or device.type != "cpu" else min(share, CPU_PICTURES)
    images = model.to_device(random_images(settings, n_images))
    in_precision = partial(autocast, settings, device)

    def embed() -> None:
        with torch.inference_mode():
            for start in range(0, n_images, settings.evaluation.batch_size):
                model(images[start : start + settings.evaluation.batch_size])

    def train() -> None:
        backpropagate(model, images, torch.sum, chunk_size=settings.chunk_size, autocast=in_precision)

    step_s, peak_bytes = 0.0, 0
    with _memory_errors(settings, n_processes):
        if settings.steps != 0:
            learns = any(parameter.requires_grad for parameter in model.parameters())
            step_s, peak_bytes = _measure(train if learns else embed, device)
        model.eval()
        embed_s, _ = _measure(embed, device)
    return ModelTiming(model, step_s * share / n_images, embed_s / n_images, peak_bytes)


def training_model(settings: TrainingSettings, device: torch.device) -> EmbeddingModel:
    """Return the model of a training after its warm-up, with random weights."""
    model = build_model(settings.model.model_copy(update={"pretrained": False})).to(device)
    model.train()
    freeze_parameters(model, settings, settings.warm_up_epochs)
    return model


def random_images(settings: TrainingSettings, n_images: int) -> torch.Tensor:
    """Return the input of the model of a training for images of noise."""
    features, size = settings.model.n_features, settings.image.size
    return torch.randn(n_images, *((features,) if features else (3, size, size)))


def time_loss(
    settings: TrainingSettings,
    model: EmbeddingModel,
    labels: Labelling,
    batch: NDArray[np.int64],
    device: torch.device,
    n_processes: int = 1,
) -> LossTiming:
    """Time one step of the loss and the optimisers, against a full memory if the settings have one.

    Args:
        settings: Settings of the training; with 0 steps, only bytes are counted.
        model: Model of the training, see :func:`time_model`.
        labels: Labels of the training images, int64, shape (N, L), or label sets.
        batch: Labels of a batch, int64, shape (B, L); of label sets (B, K, L), padded with -1.
        device: Device to measure on.
        n_processes: Number of processes that share a batch.

    Raises:
        ConfigurationError: The loss cannot be built, or does not fit into the memory of the GPU; there is nothing to
            train, or ``frozen`` names no parameter.
        InputError: Images have several labels, which the loss does not take.
    """
    loss = training_loss(settings, LabelSpace.from_labels(model.dim, labels), len(labels), memory_start=0).to(device)
    if isinstance(loss, CrossBatchMemory):
        _fill(loss, labels)
    groups = {**model.parameter_groups(), "proxies": list(loss.parameters())}
    require_trainable(model, groups, settings)
    optimisers = Optimisers(groups, dict(settings.optimiser), TrainingLength(n_steps=1, n_epochs=1))
    trained = [parameter for part in (model, loss) for parameter in part.parameters() if parameter.requires_grad]
    embeddings = _unit_vectors(len(batch), model.dim, device).requires_grad_()
    batch_labels = torch.from_numpy(batch).to(device)
    unique = isinstance(loss, CrossBatchMemory) and loss.unique
    options = {"indices": torch.arange(len(batch), device=device)} if unique else {}
    scaler = torch.amp.GradScaler(device.type, enabled=False)

    def step() -> None:
        loss(embeddings, batch_labels, **options).backward()
        optimisers.step(scaler, settings.clip_norm)

    step_s, peak_bytes = 0.0, 0
    if settings.steps != 0:
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        with _memory_errors(settings, n_processes):
            step_s, peak_bytes = _measure(step, device)
        for parameter in trained:
            parameter.grad = None
    return LossTiming(
        step_s=step_s,
        peak_bytes=peak_bytes,
        state_bytes=sum(_tensor_bytes(part.state_dict()) for part in (model, loss, optimisers)),
        gradient_bytes=sum(parameter.nbytes for parameter in trained),
    )


@contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Limit torch to a number of threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(work: Callable[[], object], device: torch.device) -> tuple[float, int]:
    """Return the seconds of a second call, and the GPU memory that it takes besides what was allocated before."""
    work()
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start, 0
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before, start = torch.cuda.memory_allocated(device), time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start, torch.cuda.max_memory_allocated(device) - before


@contextmanager
def _memory_errors(settings: TrainingSettings, n_processes: int) -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigurationError(out_of_memory_message(settings, n_processes)) from error


def _unit_vectors(n: int, dim: int, device: torch.device) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, dim, device=device), dim=1)


def _fill(memory: CrossBatchMemory, labels: Labelling) -> None:
    size, dim = memory.embeddings.shape
    memory.embeddings.copy_(_unit_vectors(size, dim, memory.embeddings.device))
    rows = np.arange(size) % len(labels)
    stored = labels.padded(rows) if isinstance(labels, LabelSets) else labels[rows]
    memory.labels.copy_(torch.from_numpy(stored))
    memory.n_stored.fill_(size)
    memory.filled.fill_(True)


def _tensor_bytes(state: object) -> int:
    """Return the bytes of all tensors in a state dictionary."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    return sum(map(_tensor_bytes, state.values())) if isinstance(state, Mapping) else 0
