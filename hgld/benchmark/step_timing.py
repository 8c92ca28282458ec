"""Seconds and bytes of a training step on this machine, timed once with random images."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from hgld.errors import ConfigurationError
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.losses.loss_specs import LabelSpace
from hgld.models.embedding_model import build_model
from hgld.training.backpropagation import backpropagate
from hgld.training.freezing import freeze_parameters
from hgld.training.optimisation import Optimisers
from hgld.training.precision import autocast, out_of_memory_message
from hgld.training.run import training_loss
from hgld.training.training_settings import TrainingSettings

#: Pictures that a CPU embeds at once: the activations of a whole batch may not fit into its memory.
CPU_PICTURES = 8


@dataclass(frozen=True)
class StepTiming:
    """Cost of a training step.

    Args:
        model_s: Seconds of the model, forward and backward, for a process's share of a batch.
        loss_s: Seconds of the loss of the whole batch, forward and backward, and of the optimisers.
        embed_s: Seconds per image of the forward pass alone.
        dim: Dimension of the embeddings.
        state_bytes: Bytes of parameters, proxies and the state of optimisers and memory, as a checkpoint has them.
        gradient_bytes: Bytes of the gradients of all trained parameters.
        peak_bytes: GPU memory of the step besides the model; 0 on a CPU.
    """

    model_s: float
    loss_s: float
    embed_s: float
    dim: int
    state_bytes: int
    gradient_bytes: int
    peak_bytes: int


def time_step(
    settings: TrainingSettings, labels: LabelMatrix, batch: LabelMatrix, device: torch.device, n_processes: int = 1
) -> StepTiming:
    """Time one training step after the warm-up of a model with random weights.

    The model is timed on a process's share of a batch, on a CPU on eight pictures at most, in proportion to which its
    time grows; the loss, whose time does not, on a whole batch, against a full memory if the settings have one.

    Args:
        settings: Settings of the training; with 0 steps, only the forward pass is timed.
        labels: Label matrix of the training images, int64, shape (N, L).
        batch: Label matrix of a batch, int64, shape (B, L).
        device: Device to measure on.
        n_processes: Number of processes that share a batch.

    Raises:
        ConfigurationError: A batch does not fit into the memory of the GPU, or the model or loss cannot be built.
    """
    model = build_model(settings.model.model_copy(update={"pretrained": False})).to(device)
    loss = training_loss(settings, LabelSpace.from_labels(model.dim, labels), len(labels), n_batches=1).to(device)
    if isinstance(loss, CrossBatchMemory):
        _fill(loss, labels)
    optimisers = Optimisers(
        {**model.parameter_groups(), "proxies": list(loss.parameters())}, dict(settings.optimiser), 1
    )
    model.train()
    freeze_parameters(model, settings, settings.warm_up_epochs)
    trained = [parameter for part in (model, loss) for parameter in part.parameters() if parameter.requires_grad]
    share = settings.batch_size // n_processes
    features, size = settings.model.n_features, settings.image.size
    n_images = share if features or device.type != "cpu" else min(share, CPU_PICTURES)
    images = model.to_device(torch.randn(n_images, *((features,) if features else (3, size, size))))
    embeddings = _unit_vectors(len(batch), model.dim, device).requires_grad_()
    batch_labels = torch.from_numpy(batch).to(device)
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    in_precision = partial(autocast, settings, device)

    def embed() -> None:
        with torch.inference_mode():
            for chunk in torch.split(images, settings.evaluation.batch_size):
                model(chunk)

    def train_model() -> None:
        backpropagate(model, images, torch.sum, chunk_size=settings.chunk_size, autocast=in_precision)

    def train_loss() -> None:
        loss(embeddings, batch_labels).backward()
        optimisers.step(scaler, settings.clip_norm)

    model_s = loss_s = 0.0
    model_bytes = loss_bytes = 0
    try:
        if settings.steps != 0:
            learns = any(parameter.requires_grad for parameter in model.parameters())
            model_s, model_bytes = _measure(train_model if learns else embed, device)
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
            loss_s, loss_bytes = _measure(train_loss, device)
        model.eval()
        embed_s, _ = _measure(embed, device)
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigurationError(out_of_memory_message(settings, n_processes)) from error
    return StepTiming(
        model_s=model_s * share / n_images,
        loss_s=loss_s,
        embed_s=embed_s / n_images,
        dim=model.dim,
        state_bytes=sum(_tensor_bytes(part.state_dict()) for part in (model, loss, optimisers)),
        gradient_bytes=sum(parameter.nbytes for parameter in trained),
        peak_bytes=max(model_bytes, loss_bytes),
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


def _unit_vectors(n: int, dim: int, device: torch.device) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, dim, device=device), dim=1)


def _fill(memory: CrossBatchMemory, labels: LabelMatrix) -> None:
    size, dim = memory.embeddings.shape
    memory.embeddings.copy_(_unit_vectors(size, dim, memory.embeddings.device))
    memory.labels.copy_(torch.from_numpy(labels[np.arange(size) % len(labels)]))
    memory.n_stored.fill_(size)
    memory.start_step = 0


def _tensor_bytes(state: object) -> int:
    """Return the bytes of all tensors in a state dictionary."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    return sum(map(_tensor_bytes, state.values())) if isinstance(state, Mapping) else 0
