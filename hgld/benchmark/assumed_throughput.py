"""Timings of a training on GPUs that are not at hand, from a throughput that was measured or published elsewhere.

Seconds follow from the throughput. Bytes do not depend on the device. Those of parameters, gradients and optimisers
are counted as in :mod:`hgld.benchmark.step_timing`. Those of activations are what autograd keeps of a forward pass of
the backbone on torch's meta device, which computes shapes only, in 16 bits where the training has mixed precision. A
GPU needs more than that, for gradients of activations and buffers of its libraries.
"""

from __future__ import annotations

import copy

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from hgld.benchmark.launcher import Slot
from hgld.benchmark.step_timing import ModelTiming, random_images, training_model
from hgld.errors import ConfigurationError
from hgld.models.embedding_model import EmbeddingModel
from hgld.training.precision import backbone_dtype
from hgld.training.training_settings import TrainingSettings


def described_slots(n_gpus: int, per_run: int = 1) -> tuple[Slot, ...]:
    """Return the slots of a machine, or of several, whose GPUs are not at hand.

    Args:
        n_gpus: Number of GPUs.
        per_run: Number of GPUs that train a run together.

    Raises:
        ConfigurationError: The GPUs do not form groups of ``per_run``.
    """
    if n_gpus < 1 or per_run < 1 or n_gpus % per_run:
        raise ConfigurationError(f"{n_gpus} GPUs (`gpus`) cannot be divided into groups of {per_run} (`per_run`)")
    groups = (range(first, first + per_run) for first in range(0, n_gpus, per_run))
    return tuple(Slot(tuple(f"cuda:{gpu}" for gpu in group), threads=1) for group in groups)


def assume_throughput(settings: TrainingSettings, images_per_s: float, n_processes: int = 1) -> ModelTiming:
    """Return the cost of a model on a GPU of known throughput.

    Args:
        settings: Settings of the training.
        images_per_s: Number of images that a GPU trains on per second, with loss and optimisers. Embedding is assumed
            to be as fast: it has no backward pass, but 32 bits.
        n_processes: Number of processes, one per GPU, that share a batch.

    Returns:
        Seconds of a step, which include loss and optimisers, and counted bytes.

    Raises:
        ConfigurationError: ``images_per_s`` is not above 0, or there is no such model.
    """
    if not images_per_s > 0:
        raise ConfigurationError(f"`images_per_s` is {images_per_s}; expected more than 0")
    share = settings.batch_size // n_processes
    model = training_model(settings, torch.device("cpu"))
    trains = settings.steps != 0
    return ModelTiming(
        model=model,
        step_s=share / images_per_s * trains,
        embed_s=1 / images_per_s,
        peak_bytes=activation_bytes(settings, model, min(share, settings.chunk_size or share)) * trains,
    )


def activation_bytes(settings: TrainingSettings, model: EmbeddingModel, n_images: int) -> int:
    """Return the bytes that the backbone keeps for the backward pass of some images, besides its parameters.

    Args:
        settings: Settings of the training.
        model: Model of the training, see :func:`~hgld.benchmark.step_timing.training_model`.
        n_images: Number of images that are embedded at once.
    """
    dtype = backbone_dtype(settings)
    backbone = copy.deepcopy(model.backbone).to("meta", dtype)
    images = random_images(settings, 1).to("meta", dtype)
    kept = {_storage(tensor) for tensor in backbone.state_dict().values()}
    saved: dict[int, int] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        if _storage(tensor) not in kept:
            saved[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        backbone(images.expand(n_images, *images.shape[1:]).contiguous())
    return sum(saved.values())


def _storage(tensor: torch.Tensor) -> int:
    """Return a number of the memory of a tensor that is equal for its views, also on the meta device."""
    return int(StorageWeakRef(tensor.untyped_storage()).cdata)  # type: ignore[no-untyped-call]
