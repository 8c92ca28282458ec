"""Exclusive access to an output: one run at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError


@contextmanager
def exclusive_lock(out: Path, *, wait_s: float = 0, name: str | None = None) -> Iterator[None]:
    """Lock an output for this process; the operating system releases the lock if the process dies.

    Args:
        out: File or folder to lock. The lock file ``.{name}.lock`` is beside it while the lock is held; folders above
            it are created.
        wait_s: Seconds to wait while another run holds the lock; ``math.inf`` waits as long as it takes.
        name: What is written, for the message. Default: ``out``.

    Raises:
        BusyError: Another run holds the lock, and did so until ``wait_s`` were over.
    """
    path = _lock_path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait_s == math.inf else wait_s)
    except Timeout:
        raise BusyError(
            f"another run is writing {name or out}; wait for it to end, or choose another output"
        ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def is_locked(out: Path) -> bool:
    """Return whether another run holds the lock of an output, see :func:`exclusive_lock`."""
    path = _lock_path(out)
    if not path.exists():  # the attempt below would create it
        return False
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _lock_path(out: Path) -> Path:
    return out.with_name(f".{out.name}.lock")
