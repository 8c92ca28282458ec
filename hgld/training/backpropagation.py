"""Gradients of a loss over the whole batch, although no process embeds all of it, or not all at once.

Ranking losses are not sums over images: each image is ranked against all others. So the embeddings of all processes
are gathered (:mod:`hgld.losses.kernels.batches`), and each process computes the loss of the whole batch.

Where the activations of a process's images do not fit into memory, the images are embedded twice (Patel et al.,
Recall@k Surrogate Loss, Sec. 3.3): first without a graph, for the loss and its gradient with respect to the
embeddings; then chunk by chunk, each of which continues the backward pass from there. Batch normalisation that is not
frozen uses the statistics of the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hgld.compute.processes import Processes
from hgld.datasets.loading import Images


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
    loss_function: Callable[[torch.Tensor], torch.Tensor],
    *,
    chunk_size: int | None = None,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    scale: Callable[[torch.Tensor], torch.Tensor] = lambda loss: loss,
) -> torch.Tensor:
    """Add the gradient of a loss to the parameters of the model and of the loss.

    Args:
        model: Model that embeds images; a ``DistributedDataParallel`` where there are several processes.
        images: Images of this process, float, shape (b, 3, h, w); or a list of b images of shape (3, h, w).
        loss_function: Returns the loss given the embeddings of this process, shape (b, d).
        scale: Applied to the loss before the backward pass, such as ``GradScaler.scale``.

    Returns:
        The unscaled loss, detached.
    """

    def embed(batch: Images) -> torch.Tensor:
        with autocast():
            embeddings: torch.Tensor = model(batch)
        return embeddings.float()

    if chunk_size is None or len(images) <= chunk_size:
        loss = loss_function(embed(images))
        scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    chunks = [images[start : start + chunk_size] for start in range(0, len(images), chunk_size)]
    devices = [images[0].device] if images[0].device.type == "cuda" else []
    states, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(_random_state(devices))
            parts.append(embed(chunk))
    embeddings = torch.cat(parts).requires_grad_()
    loss = loss_function(embeddings)
    scale(loss).backward()  # type: ignore[no-untyped-call]
    assert embeddings.grad is not None
    gradients = embeddings.grad.split(chunk_size)  # type: ignore[no-untyped-call]
    for n, (chunk, gradient) in enumerate(zip(chunks, gradients, strict=True)):
        with torch.random.fork_rng(devices), _gradient_sync(model, last=n == len(chunks) - 1):
            _set_random_state(states[n], devices)
            chunk_embeddings = embed(chunk)
            if chunk_embeddings.requires_grad:
                chunk_embeddings.backward(gradient)  # type: ignore[no-untyped-call]
    return loss.detach()


def _gradient_sync(model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Let processes exchange gradients only once, in the backward pass of the last chunk."""
    local = last or not isinstance(model, DistributedDataParallel)
    return nullcontext() if local else model.no_sync()  # type: ignore[operator]  # it is a DistributedDataParallel


def _random_state(devices: Sequence[torch.device]) -> list[torch.Tensor]:
    """Return the state of the generators that dropout uses: that of the CPU, then those of GPUs."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]


def _set_random_state(states: Sequence[torch.Tensor], devices: Sequence[torch.device]) -> None:
    torch.set_rng_state(states[0])
    for state, device in zip(states[1:], devices, strict=True):
        torch.cuda.set_rng_state(state, device)
