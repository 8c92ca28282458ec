"""The machine: its description for measurements, the cores that this process may use, and its memory allocator."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path


def describe_machine() -> str:
    """Return the processor, the number of cores, the memory and the Python version as one line."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else []
    processor = names[0] if names else platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def usable_cores() -> int:
    """Return the number of cores that this process may use, which batch systems often limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


#: Parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


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
