"""Memory that a network frees and wants again in every step."""

from __future__ import annotations

import ctypes

#: Of mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def disable_trimming() -> None:
    """Let this process keep the memory that it frees, for what it allocates next.

    The C library of most Linux systems (glibc) gives large pieces back to the system as soon as they are freed, and
    gets them again page by page: on two cores, embedding images with a small network takes twice as long for it.
    What a process holds is then what it held at most. With other libraries, nothing is done.
    """
    mallopt = getattr(ctypes.pythonapi, "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_MMAP_MAX, 0)  # large pieces come from the heap, too
    mallopt(_M_TRIM_THRESHOLD, -1)  # which never shrinks
    mallopt(_M_TOP_PAD, 2**26)  # and grows by 64 MB at least
