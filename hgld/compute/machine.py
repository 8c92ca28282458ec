"""This process and its machine: cores, threads, memory, signals to stop, and a description for measurements."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

#: Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
#: Held while the number of threads of the process is changed: torch's, and those of scikit-learn's libraries.
_TORCH_LOCK, _LIBRARIES_LOCK = threading.Lock(), threading.RLock()
S = TypeVar("S")
T = TypeVar("T")


def describe_machine() -> str:
    """Return the processor, the number of cores, the memory and the Python version as one line."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        name = re.search(r"model name\s*: (.+)", cpuinfo.read_text())
        processor = name[1] if name else processor
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {python}"


def usable_cores() -> int:
    """Return the number of cores that this process may use, which batch systems often limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def disable_trimming() -> None:
    """Keep freed memory in this process for later allocations, if the C library is glibc.

    By default, glibc returns large blocks to the system as soon as they are freed, and a network that allocates them
    again in every step fetches them page by page: on two cores, embedding images with a small network takes twice as
    long. Without trimming, the process keeps the memory of its peak.
    """
    mallopt = getattr(ctypes.pythonapi, "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_MMAP_MAX, 0)  # allocate large blocks on the heap, too
    mallopt(_M_TRIM_THRESHOLD, -1)  # never shrink the heap
    mallopt(_M_TOP_PAD, 2**26)  # grow it by at least 64 MiB


def thread_count(device: torch.device) -> int:
    """Return the number of threads that work on a device: torch's number on a CPU, one on a GPU."""
    import torch

    if device.type == "cpu":
        return torch.get_num_threads()
    return 1


def parallel_map(function: Callable[[S], T], items: Iterable[S], device: torch.device) -> list[T]:
    """Return ``[function(item) for item in items]``, computed in :func:`thread_count` threads of one core each.

    Torch's own threads synchronise after every operation, which takes several times as long where another program
    uses one of the cores. Their number may also change the rounding of a matrix product; here it is always one.
    """
    import torch

    n_threads = thread_count(device)
    if n_threads == 1:
        return [function(item) for item in items]
    # Each thread has a mode of its own. Tensors that are created in inference mode need it.
    inference = torch.is_inference_mode_enabled()

    def work(item: S) -> T:
        with torch.inference_mode(inference):
            return function(item)

    with ThreadPoolExecutor(n_threads, initializer=_use_one_core, initargs=(n_threads,)) as pool:
        return list(pool.map(work, items))


def _use_one_core(n_threads: int) -> None:
    """Limit torch to one core in the calling thread alone.

    Torch keeps a number for each thread, and one of the process, which threads take over at their first operation.
    ``set_num_threads`` sets both, so another thread sets the number of the process back.
    """
    import torch

    with _TORCH_LOCK:
        torch.set_num_threads(1)
        torch.get_num_threads()  # takes over the number of the process, which is done once
        other = threading.Thread(target=torch.set_num_threads, args=(n_threads,))
        other.start()
        other.join()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit scikit-learn to one thread, since several add up partial sums in a random order.

    The limit holds for the process, so another thread waits until this block has ended.
    """
    # Only libraries that are loaded already are limited.
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits

    with _LIBRARIES_LOCK, threadpool_limits(limits=1):
        yield


class StopRequest:
    """Record of whether a stop has been requested."""

    def __init__(self) -> None:
        self.requested = False
        self._interrupts = False

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in the block as soon as a stop is requested, as it has nothing to save."""
        self._interrupts = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._interrupts = False

    def _record(self) -> None:
        self.requested = True
        if self._interrupts:
            raise KeyboardInterrupt


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM in the block into a stop request.

    A second Ctrl-C takes effect as usual. Further SIGTERMs are ignored: SLURM and torchrun send several, as they
    signal all processes of a job, some of which pass the signal on; SIGKILL follows when time is up.

    Signals can be caught in the main thread only; in other threads they take effect as usual.
    """
    stop = StopRequest()

    def request_stop(number: int, frame: FrameType | None) -> None:
        if not stop.requested:
            stop._record()
        elif number == signal.SIGINT:
            signal.signal(number, previous[signal.SIGINT])
            signal.raise_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, request_stop)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def ignore_stop_signals() -> None:
    """Ignore Ctrl-C and SIGTERM, in a child process that ends when its parent no longer needs it.

    The terminal and SLURM signal all processes; the parent may need a few more results for its last step.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def return_memory() -> None:
    """Return freed memory, which the allocators of Arrow and glibc hold for later use, to the system."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    malloc_trim = getattr(ctypes.pythonapi, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
