"""Threads: independent work in parallel, and scikit-learn limited to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

S = TypeVar("S")
T = TypeVar("T")


def thread_count(device: torch.device) -> int:
    """Return the number of threads that work on a device: torch's number on a CPU, one on a GPU."""
    import torch

    return torch.get_num_threads() if device.type == "cpu" else 1


def parallel_map(function: Callable[[S], T], items: Iterable[S], device: torch.device) -> list[T]:
    """Return ``[function(item) for item in items]``, computed in :func:`thread_count` threads of one core each.

    Torch's own threads synchronise after every operation, which takes several times as long where another program
    uses one of the cores. Their number may also change the rounding of a matrix product; here it is always one.
    """
    import torch

    n_threads = thread_count(device)
    if n_threads == 1:
        return [function(item) for item in items]
    inference = torch.is_inference_mode_enabled()  # per thread, and needed for tensors created in it

    def work(item: S) -> T:
        with torch.inference_mode(inference):
            return function(item)

    torch.set_num_threads(1)  # applies to threads that start from now on
    try:
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(n_threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit scikit-learn to one thread, since several add up partial sums in a random order."""
    # Only libraries that are loaded already are limited.
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield
