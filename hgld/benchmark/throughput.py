"""What training and evaluation cost on this machine, measured on made-up images and embeddings.

The network is measured on a few images, as its time grows in proportion to them; a loss, whose time does not, on a
whole batch. Times are medians of three, fewer where one takes long, after one that does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from hgld.errors import ConfigurationError
from hgld.evaluation import evaluate_retrieval
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.losses.loss_specs import LabelSpace
from hgld.models.embedding_model import EmbeddingModel, build_model
from hgld.training.backpropagation import backpropagate
from hgld.training.optimisation import Optimisers
from hgld.training.run import training_loss
from hgld.training.trainer import autocast, freeze, out_of_memory_message
from hgld.training.training_images import TrainingImages
from hgld.training.training_settings import TrainingSettings

_REPEATS, _ENOUGH_S = 3, 2.0
#: Images that a CPU begins with, whose memory may not hold what a whole batch leaves for the backward pass.
_FEW = 4
_RANKED = (64, 20_000)


@dataclass(frozen=True)
class Cost:
    """Of a piece of work.

    Args:
        seconds: it takes.
        n_bytes: of a GPU's memory that it takes for the time; 0 on a CPU, which does not say.
    """

    seconds: float
    n_bytes: int


@dataclass(frozen=True, eq=False)
class ModelCost:
    """Of a network.

    Args:
        model: the network, with random weights.
        n_images: that were measured at a time.
        training: these images, forward and backward.
        embedding: the same images, forward alone.
    """

    model: EmbeddingModel
    n_images: int
    training: Cost
    embedding: Cost


@dataclass(frozen=True)
class StepCost:
    """Of what comes with the network in a step of training.

    Args:
        loss: of a whole batch, forward and backward.
        optimisers: a step of all parameters.
        held: bytes of parameters, gradients and what optimisers and a memory remember.
        stored: bytes of a checkpoint.
    """

    loss: Cost
    optimisers: Cost
    held: int
    stored: int


def measure_model(settings: TrainingSettings, device: torch.device, n_processes: int = 1) -> ModelCost:
    """Measure the network of a training, after its warm-up.

    Args:
        settings: of the training.
        device: where.
        n_processes: that share each batch. On a GPU all images of a process are measured, or two pieces of them where
            there are pieces (``chunk_size``); on a CPU as many as take a second.

    Raises:
        ConfigurationError: the images do not fit into the memory of the GPU, or there is no such model.
    """
    model = build_model(settings.model.model_copy(update={"pretrained": False})).to(device)
    most = settings.batch_size // n_processes
    if settings.chunk_size is not None:
        most = min(most, 2 * settings.chunk_size)
    n_images = most if device.type == "cuda" else min(most, _FEW)
    try:
        cost = _model_cost(settings, model, n_images, most, device)
        while n_images < most and max(cost.training.seconds, cost.embedding.seconds) < _ENOUGH_S / 2:
            n_images = min(2 * n_images, most)
            cost = _model_cost(settings, model, n_images, most, device)
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigurationError(out_of_memory_message(settings, n_processes)) from error
    return cost


def _model_cost(
    settings: TrainingSettings, model: EmbeddingModel, n_images: int, most: int, device: torch.device
) -> ModelCost:
    """Measure some images; in two pieces, if there would be two of ``most``."""
    features, size = settings.model.n_features, settings.image.size
    images = model.to_device(torch.randn(n_images, *((features,) if features else (3, size, size))))
    in_pieces = settings.chunk_size is not None and settings.chunk_size < most

    def embed() -> None:
        with torch.inference_mode():
            model(images)

    def train() -> None:
        backpropagate(
            model,
            images,
            lambda embeddings: embeddings.sum(),
            chunk_size=-(-n_images // 2) if in_pieces else None,
            autocast=partial(autocast, settings, device),
        )

    model.eval()
    embedding = _cost(embed, device)
    model.train()
    freeze(model, settings, settings.warm_up_epochs)
    if settings.steps == 0:
        training = Cost(0.0, 0)
    elif any(parameter.requires_grad for parameter in model.parameters()):
        training = _cost(train, device)
    else:
        training = embedding
    return ModelCost(model, n_images, training, embedding)


def measure_step(
    settings: TrainingSettings,
    model: EmbeddingModel,
    labels: LabelMatrix,
    batch: LabelMatrix,
    device: torch.device,
    n_processes: int = 1,
) -> StepCost:
    """Measure the loss and the optimisers of a training.

    Args:
        settings: of the training.
        model: its network, see :func:`measure_model`.
        labels: int64, shape (N, L): of the images to train on, numbered from 0 in each column.
        batch: int64, shape (B, L): of a batch of them.
        device: where.
        n_processes: that share each batch, and all take the loss of the whole.

    Raises:
        ConfigurationError: the loss cannot be made, or does not fit into the memory of the GPU.
    """
    loss = training_loss(settings, LabelSpace.from_labels(model.dim, labels), len(labels), n_batches=1).to(device)
    if isinstance(loss, CrossBatchMemory):
        _fill(loss, labels)
    embeddings = _unit_vectors(len(batch), model.dim, device).requires_grad_()
    on_device = torch.from_numpy(batch).to(device)
    optimisers = Optimisers({**model.groups(), "proxies": list(loss.parameters())}, dict(settings.optimiser), 1)
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    learnt = [one for part in (model, loss) for one in part.parameters() if one.requires_grad]
    of_loss = of_optimisers = Cost(0.0, 0)
    try:
        if settings.steps != 0:
            of_loss = _cost(lambda: loss(embeddings, on_device).backward(), device)
            for parameter in learnt:
                parameter.grad = torch.zeros_like(parameter)
            of_optimisers = _cost(lambda: optimisers.step(scaler, settings.clip_norm), device)
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigurationError(out_of_memory_message(settings, n_processes)) from error
    stored = _n_bytes(model.state_dict()) + _n_bytes(loss.state_dict()) + _n_bytes(optimisers.state_dict())
    gradients = sum(parameter.nbytes for parameter in learnt)
    for parameter in learnt:
        parameter.grad = None
    return StepCost(of_loss, of_optimisers, held=stored + gradients, stored=stored)


def measure_ranking(dim: int, device: torch.device) -> float:
    """Seconds of all usual metrics for a query and an image of the gallery, at three levels."""
    n_queries, n_gallery = _RANKED
    vectors = _unit_vectors(n_gallery, dim, device)
    finest = np.arange(n_gallery) // 10
    labels = np.stack([finest, finest % 78, finest % 2], axis=1)
    rank = partial(evaluate_retrieval, vectors[:n_queries], labels[:n_queries], vectors, labels, device=str(device))
    return _cost(rank, device).seconds / (n_queries * n_gallery)


def measure_reading(images: TrainingImages) -> float:
    """Seconds that one process needs for an image to train on; those measured are spread over all of them."""
    rows = np.linspace(0, len(images.train) - 1, 32).astype(int).tolist()
    return _cost(lambda: [images.train[row, 0] for row in rows], torch.device("cpu")).seconds / len(rows)


@contextmanager
def with_threads(n_threads: int) -> Iterator[None]:
    """Let torch use so many threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cost(work: Callable[[], object], device: torch.device) -> Cost:
    on_gpu = device.type == "cuda"
    held = torch.cuda.memory_allocated(device) if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)

    def timed() -> float:
        began = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    timed()
    seconds = [timed()]
    while len(seconds) < _REPEATS and sum(seconds) < _ENOUGH_S:
        seconds.append(timed())
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    return Cost(statistics.median(seconds), peak - held)


def _unit_vectors(n: int, dim: int, device: torch.device) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, dim, device=device), dim=1)


def _fill(memory: CrossBatchMemory, labels: LabelMatrix) -> None:
    """Let a memory be full, and count from the first step on."""
    size, dim = memory.embeddings.shape
    memory.embeddings.copy_(_unit_vectors(size, dim, memory.embeddings.device))
    memory.labels.copy_(torch.from_numpy(labels[np.arange(size) % len(labels)]))
    memory.n_stored.fill_(size)
    memory.start_step = 0


def _n_bytes(state: object) -> int:
    """Of all tensors in a state."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    return sum(map(_n_bytes, state.values())) if isinstance(state, Mapping) else 0
