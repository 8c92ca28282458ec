"""One run at a time on an output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError


@contextmanager
def exclusive_lock(out: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold ``out`` for this process; the operating system lets go of it when the process dies.

    Args:
        out: the file or folder to hold; a lock file ``.{name}.lock`` is beside it meanwhile.
        wait: wait for another run that holds it.

    Raises:
        BusyError: another run holds it, and ``wait`` is not set.
    """
    path = out.with_name(f".{out.name}.lock")
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
