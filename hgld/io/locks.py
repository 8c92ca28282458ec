"""Exclusive access to an output: one run at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError


@contextmanager
def exclusive_lock(out: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock an output for this process; the operating system releases the lock if the process dies.

    Args:
        out: File or folder to lock. The lock file ``.{name}.lock`` is beside it while the lock is held; folders above
            it are created.
        wait: Wait while another run holds the lock.

    Raises:
        BusyError: Another run holds the lock, and ``wait`` is False.
    """
    path = out.with_name(f".{out.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise BusyError(f"another run is writing {out}; wait for it to end, or choose another output") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()
