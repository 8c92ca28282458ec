"""Exclusive access to an output: one run at a time, also on several computers that share a file system.

Locks are those of the system (``flock``), which end with the process that holds them, however it ends. Over NFS the
server keeps them; Lustre has them where it is mounted with ``flock``. A file system without them is written without
locks after a warning: marker files instead would outlive killed jobs, and keep those that are requeued from resuming.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError

log = logging.getLogger(__name__)

#: Errors of file systems without locks, such as Lustre mounted without ``flock`` and NFS without a lock manager.
_WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})


@contextmanager
def exclusive_lock(out: Path, *, wait_s: float = 0, name: str | None = None) -> Iterator[None]:
    """Lock an output for this process; the operating system releases the lock if the process dies.

    Args:
        out: File or folder to lock. The lock file ``.{name}.lock`` is beside it while the lock is held; folders above
            it are created.
        wait_s: Seconds to wait while another run holds the lock; ``math.inf`` waits as long as it takes.
        name: What is written, for the message. Default: ``out``.

    Raises:
        BusyError: Another run has held the lock for all of ``wait_s``.
    """
    path = _lock_path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=-1 if wait_s == math.inf else wait_s)
    except Timeout:
        raise BusyError(
            f"another run is writing {name or out}; wait for it to end, or choose another output"
        ) from None
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        _warn_without_locks(path.parent, str(error.strerror))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def is_locked(out: Path) -> bool:
    """Return whether another run holds the lock of an output; False where the file system has no locks.

    Args:
        out: File or folder, see :func:`exclusive_lock`.
    """
    path = _lock_path(out)
    if not path.exists():  # the attempt below would create it
        return False
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
    lock.release()
    return False


def _lock_path(out: Path) -> Path:
    out = out.resolve()  # an output is locked under all of its names
    return out.with_name(f".{out.name}.lock")


@cache
def _warn_without_locks(folder: Path, reason: str) -> None:
    """Warn once per folder."""
    log.warning(
        "%s: this file system has no locks (%s), so nothing stops two runs from writing the same output here; start "
        "one at a time, or mount it with locks (Lustre: -o flock)",
        folder,
        reason,
    )
