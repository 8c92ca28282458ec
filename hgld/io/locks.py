"""Lock an output so that only one run writes it, also on computers that share a file system.

Locks belong to the operating system (``flock``) and end with the process that holds them, however
it ends. Over NFS the server keeps them; Lustre has them where it is mounted with ``flock``. On a
file system without locks, outputs are written without locks after a warning: marker files instead
would outlive killed jobs, and stop them from resuming.
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

#: Errors of file systems without locks, such as Lustre mounted without ``flock`` and NFS without a
#: lock manager.
_WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})


@contextmanager
def exclusive_lock(out: Path, *, wait_s: float = 0, name: str | None = None) -> Iterator[None]:
    """Lock an output for this process; the operating system releases the lock if the process dies.

    Args:
        out: File or folder to lock. The lock file ``.{name}.lock`` is beside it while the lock is
            held; folders above it are created.
        wait_s: Seconds to wait while another run holds the lock; ``math.inf`` waits without a
            limit.
        name: Name of the output in the error message. Default: ``out``.

    Raises:
        BusyError: Another run held the lock during all of ``wait_s``.
    """
    path = _lock_path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False)
    timeout = -1 if wait_s == math.inf else wait_s
    try:
        lock.acquire(timeout=timeout)
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
    """Return whether another run holds the lock of an output; False without locks."""
    # The attempt below would create the folders above the lock file.
    if not _lock_path(out).exists():
        return False
    try:
        with exclusive_lock(out):
            return False
    except BusyError:
        return True


def _lock_path(out: Path) -> Path:
    """Return the path of the lock file, the same for all links to an output."""
    out = out.resolve()
    return out.with_name(f".{out.name}.lock")


@cache
def _warn_without_locks(folder: Path, reason: str) -> None:
    """Log a warning that a file system has no locks, once for each folder."""
    log.warning(
        "%s: this file system has no locks (%s), so nothing stops two runs from writing the same output here; start "
        "one at a time, or mount it with locks (Lustre: -o flock)",
        folder,
        reason,
    )
