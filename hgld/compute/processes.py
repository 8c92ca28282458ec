"""Processes that work together, as ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those that work together.

    Args:
        rank: Rank of this process, from 0.
        count: Number of processes.
    """

    rank: int = 0
    count: int = 1

    @property
    def part(self) -> tuple[int, int]:
        """Rank and count: which part of the work is this process's, see :func:`hgld.evaluation.ranking.rank`."""
        return self.rank, self.count

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in rank order, to every process."""
        if self.count == 1:
            return [value]
        values: list[T | None] = [None] * self.count
        torch.distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # no None is left


def current_processes() -> Processes:
    """Return the processes of ``torch.distributed``'s default group, or this process alone without one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Processes(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return Processes()


@contextmanager
def joined_processes(backend: str = "gloo") -> Iterator[Processes]:
    """Join the other processes that ``torchrun`` has started; without it, return this process alone.

    Args:
        backend: Backend of ``torch.distributed``. The default suffices for exchanging results, on GPUs as well.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes()
        return
    torch.distributed.init_process_group(backend)
    try:
        yield current_processes()
    finally:
        torch.distributed.destroy_process_group()


def training_backend(device: str) -> str:
    """Return the backend of processes that exchange gradients on such a device.

    >>> training_backend("cuda:0"), training_backend("cpu")
    ('cpu:gloo,cuda:nccl', 'gloo')
    """
    return "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"


def local_device(device: str) -> str:
    """Return the GPU of this process for ``cuda``: one per process under ``torchrun``, otherwise the first one."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device
