"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes

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
