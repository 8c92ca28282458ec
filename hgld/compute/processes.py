"""Processes that work together, as ``torchrun`` or SLURM's ``srun`` starts them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch.distributed
from torch.distributed.rendezvous import rendezvous

from hgld.compute.slurm import current_task
from hgld.errors import ProcessError

T = TypeVar("T")

#: Tasks of a step start within seconds, but reading programs from a shared file system may take minutes.
JOIN_TIMEOUT = timedelta(minutes=5)

#: Only both together are torchrun's: a batch script may export one of them for other programs.
_TORCHRUN_VARIABLES = {"RANK", "WORLD_SIZE"}


@dataclass(frozen=True)
class Processes:
    """This process as one of several that work together.

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

    def broadcast(self, value: T) -> T:
        """Return the value of the first process to every process; the values of the others are ignored."""
        return self.gather(value)[0]


def current_processes() -> Processes:
    """Return the processes of ``torch.distributed``'s default group, or this process alone without one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Processes(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return Processes()


def launched_processes(environment: Mapping[str, str] = os.environ) -> Processes:
    """Return the rank and number of processes that ``torchrun`` or ``srun`` has started, joined or not.

    Args:
        environment: Environment variables of this process. Variables of ``torchrun`` take precedence over SLURM's.
    """
    if environment.keys() >= _TORCHRUN_VARIABLES:
        return Processes(int(environment["RANK"]), int(environment["WORLD_SIZE"]))
    task = current_task(environment)
    return Processes() if task is None else Processes(task.rank, task.count)


@contextmanager
def joined_processes(
    backend: str = "gloo", *, join_timeout: timedelta = JOIN_TIMEOUT
) -> Iterator[Processes]:
    """Join the other processes that ``torchrun`` or ``srun`` has started; without them, return this process alone.

    Under ``srun``, the processes meet at the first node of the step, at a port that follows from the numbers of the
    job and the step; ``MASTER_ADDR`` and ``MASTER_PORT`` override them.

    Args:
        backend: Backend of ``torch.distributed``. The default suffices for exchanging results, on GPUs as well.

    Raises:
        ProcessError: A process did not come in time, or ended while this one worked with it.
        ConfigurationError: The first node cannot be found.
    """
    processes = launched_processes()
    if processes.count == 1:
        yield processes
        return
    _join(processes, backend, join_timeout)
    try:
        yield processes
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        raise ProcessError(
            f"process {processes.rank} of {processes.count} (counted from 0) lost another one, which ended or cannot "
            f"be reached ({_reason(error)}); look for its message, then run the same command again"
        ) from error
    finally:
        torch.distributed.destroy_process_group()


def _join(processes: Processes, backend: str, timeout: timedelta) -> None:
    """Initialise the default group of ``torch.distributed``, once all processes are there."""
    url = _meeting_point(os.environ)
    try:
        store, _, _ = next(rendezvous(url, processes.rank, processes.count, timeout=timeout))
    except RuntimeError as error:
        raise ProcessError(
            f"process {processes.rank} of {processes.count} (counted from 0) did not meet the others at "
            f"{url.removeprefix('tcp://')} within {timeout.total_seconds():.0f} s ({_reason(error)}); look for "
            "their messages, then run the same command again"
        ) from error
    torch.distributed.init_process_group(
        backend, store=store, rank=processes.rank, world_size=processes.count
    )


def _meeting_point(environment: Mapping[str, str]) -> str:
    """Return the URL at which the processes meet, for :func:`torch.distributed.rendezvous`."""
    task = current_task(environment)
    if task is None or environment.keys() >= _TORCHRUN_VARIABLES:
        return "env://"
    address = environment.get("MASTER_ADDR") or task.first_node()
    return f"tcp://{address}:{environment.get('MASTER_PORT') or task.port}"


def _is_lost_connection(error: RuntimeError) -> bool:
    """Return whether an error of torch, gloo or NCCL says that another process is gone."""
    if isinstance(error, torch.distributed.DistNetworkError):
        return True
    reasons = "closed by peer|reset by peer|Broken pipe|Timed out waiting|remote process exited"
    return re.search(reasons, str(error)) is not None


def _reason(error: Exception) -> str:
    """Return the first sentence of an error of torch, without the place in its source that gloo writes before it.

    >>> _reason(RuntimeError("[gloo/pair.cc:561] Connection closed by peer. This is typically caused by a crash."))
    'Connection closed by peer'
    """
    return re.sub(r"^\[\S+\] ", "", str(error).strip()).partition("\n")[0].partition(". ")[0]


def training_backend(device: str) -> str:
    """Return the backend of processes that exchange gradients on such a device.

    >>> training_backend("cuda:0"), training_backend("cpu")
    ('cpu:gloo,cuda:nccl', 'gloo')
    """
    return "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"


def default_device() -> str:
    """Return ``cuda`` where there is a GPU, otherwise ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def local_device(device: str) -> str:
    """Return the GPU of this process for ``cuda``: one per process on a node, otherwise the first one.

    SLURM may show each task its own GPU only (``--gpus-per-task=1``), which then is the first one of the task.
    """
    if device != "cuda":
        return device
    local_rank = os.environ.get("LOCAL_RANK")
    task = current_task()
    if local_rank is None and task is not None and torch.cuda.device_count() != 1:
        local_rank = str(task.local_rank)
    return f"cuda:{local_rank or 0}"
