"""Several processes that share the queries of an evaluation, as ``torchrun`` starts them."""

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
        rank: which one this is, from 0.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1

    @property
    def part(self) -> tuple[int, int]:
        """What of the work is this process's: see :func:`hgld.evaluation.ranking.rank`."""
        return self.rank, self.count

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks; every process gets them."""
        if self.count == 1:
            return [value]
        values: list[T | None] = [None] * self.count
        torch.distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # all are there now


def current_processes() -> Processes:
    """The processes of ``torch.distributed``'s default group, where there is one; else this process alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Processes(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return Processes()


@contextmanager
def joined_processes(backend: str = "gloo") -> Iterator[Processes]:
    """Join the others that ``torchrun`` has started; without it, be alone.

    Args:
        backend: of torch.distributed; where only results are exchanged, gloo serves for GPUs as well.
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
    """The backend of processes that exchange gradients on such devices."""
    return "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"


def local_device(device: str) -> str:
    """``cuda`` as ``torchrun`` means it: to each process of a machine a GPU of its own; without it, the first."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device
