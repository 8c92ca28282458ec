"""Work on a CPU spread over threads that do not wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


def thread_count(device: torch.device) -> int:
    """How many threads work on a device: as many as torch has on a CPU, one on a GPU."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def parallel_map(function: Callable[[S], T], shares: Iterable[S], device: torch.device) -> list[T]:
    """``[function(share) for share in shares]`` in :func:`thread_count` threads; in each of them torch uses one core.

    Torch's own threads meet at the end of every operation, which takes several times as long where another program
    uses one of the cores; and how many they are may change the rounding of a matrix product.
    """
    n_threads = thread_count(device)
    if n_threads == 1:
        return [function(share) for share in shares]
    inference = torch.is_inference_mode_enabled()  # a thread's own, like the arrays that were made in it

    def work(share: S) -> T:
        with torch.inference_mode(inference):
            return function(share)

    torch.set_num_threads(1)  # for the threads that are yet to start
    try:
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(work, shares))
    finally:
        torch.set_num_threads(n_threads)
