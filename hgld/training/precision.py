"""Mixed precision of the model, and the errors of batches that exceed memory or overflow."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch

from hgld.training.training_settings import TrainingSettings

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(settings: TrainingSettings, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of the model's forward pass."""
    dtype = _DTYPES.get(settings.mixed_precision)
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


def backbone_dtype(settings: TrainingSettings) -> torch.dtype:
    """Return the type of images that the backbone computes with in training steps."""
    return _DTYPES.get(settings.mixed_precision, torch.float32)


def divergence_message(step: int, finding: str) -> str:
    """Return the error message of a step whose numbers are not finite, such as "the loss is nan"."""
    return (
        f"at step {step}, {finding}; lower the learning rates, set clip_norm, or try another mixed_precision. The "
        "last checkpoint is intact"
    )


def format_loss(loss: float, parts: Mapping[str, torch.Tensor]) -> str:
    """Return the value of a loss and of its parts for a message.

    >>> format_loss(float("nan"), {"sup_hap": torch.tensor(0.5)})
    'the loss is nan (sup_hap 0.5)'
    """
    values = ", ".join(f"{name} {float(part):.4g}" for name, part in parts.items())
    return f"the loss is {loss}{f' ({values})' if values else ''}"


def out_of_memory_message(settings: TrainingSettings, n_processes: int) -> str:
    """Return the error message of a batch that does not fit into the memory of a GPU."""
    return (
        f"the GPU is out of memory: batch_size {settings.batch_size} in {n_processes} processes, chunk_size "
        f"{settings.chunk_size or 'not set'}, mixed_precision {settings.mixed_precision}. Set chunk_size (the same "
        "gradients with less memory), mixed_precision: bf16, or a smaller batch_size"
    )
