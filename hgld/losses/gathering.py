"""The batch of several processes: embeddings and labels of all of them, for losses that compare each item with all.

Each process computes the loss of the whole batch. The backward pass of the gathering sums gradients over the
processes, which is too large by a factor of their number, and ``DistributedDataParallel`` averages them: parameters
receive the gradient that a single process would have with the whole batch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch.nn.functional import pad

from hgld.compute.processes import current_processes
from hgld.compute.scoring import at_least_float32
from hgld.errors import InputError
from hgld.losses.kernels.autograd import first_derivative_only
from hgld.losses.kernels.batches import Labels, checked_labels


def gather_embeddings(embeddings: torch.Tensor, labels: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the embeddings and labels of all processes in the order of their ranks, with gradients for embeddings.

    All processes have to call this together, with any number of items each. A model in ``DistributedDataParallel``
    then receives the gradient of a single process with the whole batch. Put a loss with proxies into
    ``DistributedDataParallel`` as well, which makes them equal in all processes from the beginning. A loss that draws
    random numbers, such as :class:`~hgld.losses.BlackBoxAP`, has the mean gradient of the processes' draws. A single
    process, with or without ``torch.distributed``, gets its own batch.

    Args:
        embeddings: Float tensor of shape (b, d), those of this process, on a device of the process group's backend.
        labels: Integers of shape (b, L), or (b,) for a single level; or (b, K, L) for label sets, with the same K in
            all processes.

    Returns:
        Embeddings of shape (B, d), at least float32 so that sums of gradients are, and int64 labels of shape (B, L)
        or (B, K, L).

    Raises:
        InputError: The labels are not integers, or not as many as the embeddings.

    >>> embeddings, labels = gather_embeddings(torch.tensor([[0.6, 0.8]]), torch.tensor([3]))
    >>> embeddings, labels
    (tensor([[0.6000, 0.8000]]), tensor([[3]]))
    """
    own_labels = checked_labels(labels, "labels", embeddings.device)
    if len(own_labels) != len(embeddings):
        raise InputError(f"there are {len(embeddings)} `embeddings` and {len(own_labels)} `labels`; expected as many")
    own_embeddings = at_least_float32(embeddings)
    if current_processes().count == 1:
        return own_embeddings, own_labels
    counts = _all_gather(torch.tensor(len(embeddings), device=embeddings.device)).tolist()
    missing = max(counts) - len(embeddings)
    parts_of_embeddings: torch.Tensor = _AllGather.apply(pad(own_embeddings, (0, 0, 0, missing)))
    parts_of_labels = _all_gather(pad(own_labels, (0, 0) * (own_labels.ndim - 1) + (0, missing)))
    return _joined(parts_of_embeddings, counts), _joined(parts_of_labels, counts)


class _AllGather(torch.autograd.Function):
    """Stack the tensors of all processes. Torch deprecates ``torch.distributed.nn.functional.all_gather``."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return _all_gather(tensor)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total)
        return total[torch.distributed.get_rank()]


def _all_gather(tensor: torch.Tensor) -> torch.Tensor:
    """Stack tensors of the same shape of all processes, without gradient."""
    parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, tensor.contiguous())
    return torch.stack(parts)


def _joined(parts: torch.Tensor, counts: list[int]) -> torch.Tensor:
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
