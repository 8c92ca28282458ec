"""Gradients of a loss that sees the whole batch, though no process embeds all of it, or not at once.

Ranking losses are no sums over images: each image is ranked against all others. So the embeddings of all processes
are gathered, and each process takes the loss of the whole batch. The backward pass of the gathering sums gradients
over the processes, which is as many times too much as there are processes, and ``DistributedDataParallel`` takes
their mean: what arrives at the parameters is the gradient that one process would have with the whole batch.

Where the activations of a process's images do not fit into memory, they are embedded twice (Patel et al., Recall@k
Surrogate Loss, Sec. 3.3): first without a graph, for the loss and its gradient at the embeddings; then chunk by
chunk, each continuing the backward pass from there. Batch normalisation that is not frozen takes its statistics from
the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.nn.functional import pad
from torch.nn.parallel import DistributedDataParallel

Embed = Callable[[torch.Tensor], torch.Tensor]


def gather_embeddings(embeddings: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """The embeddings of all processes in the order of their ranks, with gradients; see the module for their scale.

    Args:
        embeddings: shape (counts[rank], d).
        counts: of the embeddings that each process has.

    Returns:
        The same dtype, shape (sum of counts, d).
    """
    if len(counts) == 1:
        return embeddings
    padded = pad(embeddings, (0, 0, 0, max(counts) - len(embeddings)))
    parts: torch.Tensor = _AllGather.apply(padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _AllGather(torch.autograd.Function):
    """The tensors of all processes, stacked. Torch deprecates ``torch.distributed.nn.functional.all_gather``."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, tensor.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total)
        return total[torch.distributed.get_rank()]


def backpropagate(
    model: nn.Module,
    images: torch.Tensor,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    *,
    chunk_size: int | None = None,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    scale: Callable[[torch.Tensor], torch.Tensor] = lambda loss: loss,
) -> torch.Tensor:
    """Add the gradient of a loss to the parameters of the model and of the loss.

    Args:
        model: embeds images; a ``DistributedDataParallel`` where there are several processes.
        images: of this process, shape (b, 3, h, w).
        loss_of: the loss from the embeddings of this process, shape (b, d).
        chunk_size: images that are embedded at a time; None for all.
        autocast: the context of the model's forward pass.
        scale: what is done to the loss before the backward pass, such as ``GradScaler.scale``.

    Returns:
        The loss, detached.
    """

    def embed(some: torch.Tensor) -> torch.Tensor:
        with autocast():
            embeddings: torch.Tensor = model(some)
        return embeddings.float()

    if chunk_size is None or len(images) <= chunk_size:
        loss = loss_of(embed(images))
        scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    chunks = images.split(chunk_size)  # type: ignore[no-untyped-call]
    drawn, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            drawn.append(_random_state(images.device))
            parts.append(embed(chunk))
    embeddings = torch.cat(parts).requires_grad_()
    loss = loss_of(embeddings)
    scale(loss).backward()  # type: ignore[no-untyped-call]
    assert embeddings.grad is not None
    gradients = embeddings.grad.split(chunk_size)  # type: ignore[no-untyped-call]
    for n, (chunk, gradient) in enumerate(zip(chunks, gradients, strict=True)):
        with _drawing_again(drawn[n], images.device), _exchanging(model, n == len(chunks) - 1):
            again = embed(chunk)
            if again.requires_grad:
                again.backward(gradient)  # type: ignore[no-untyped-call]
    return loss.detach()


def _exchanging(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Processes exchange gradients once, when all are there."""
    alone = last or not isinstance(model, DistributedDataParallel)
    return nullcontext() if alone else model.no_sync()  # type: ignore[operator]  # it is one


def _random_state(device: torch.device) -> list[torch.Tensor]:
    """What dropout draws from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@contextmanager
def _drawing_again(states: list[torch.Tensor], device: torch.device) -> Iterator[None]:
    """Draw in the block what was drawn from the state on, and afterwards what would have been drawn without it."""
    before = _random_state(device)
    _set_random_state(states, device)
    try:
        yield
    finally:
        _set_random_state(before, device)


def _set_random_state(states: list[torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
