"""Exclusive access to an output: one run at a time, also on several computers that share a file system.

Locks are those of the system (``flock``), which end with the process that holds them, however it ends. Over NFS the
server keeps them; Lustre has them where it is mounted with ``flock``. A file system without them is written without
locks after a warning: marker files instead would outlive killed jobs, and keep those that are requeued from resuming.
"""

from __future__ import annotations

import errno
import logging
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError

log = logging.getLogger(__name__)

#: Errors of file systems without locks, such as Lustre mounted without ``flock`` and NFS without a lock manager.
_WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
#: Seconds to wait for the lock of an output, which parts that start at the same time hold one after the other.
OPENING_WAIT_S = 60


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
    """Return whether another run holds the lock of an output; False where the file system has no locks."""
    if not _lock_path(out).exists():  # the attempt below would create folders above it
        return False
    try:
        with exclusive_lock(out):
            return False
    except BusyError:
        return True


class PartLocks:
    """Locks of the parts of an output, which several jobs write at the same time.

    A run that writes all of an output holds the lock of that output (:func:`hgld.io.locks.exclusive_lock`) to its
    end. A part holds it only until it has a lock of its own. So which parts are running is certain to whoever holds
    the lock of the output.

    Args:
        folder: Folder of the lock files, which are hidden.
        out: The output, for messages.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        self._folder, self._out = folder, out

    def held(self, part: str) -> AbstractContextManager[None]:
        """Lock a part, such as ``3/16``, for this process, or raise a BusyError if another run holds the lock."""
        number, count = part.split("/")
        return exclusive_lock(self._folder / f"{number}_of_{count}", name=f"part {part} of {self._out}")

    def running(self) -> list[str]:
        """Return the parts that are locked, in order."""
        names = [path.name for path in self._folder.glob(".*_of_*.lock")]
        matches = [match for name in names if (match := re.fullmatch(r"\.((\d+)_of_(\d+))\.lock", name))]
        parts = [(int(match[3]), int(match[2])) for match in matches if is_locked(self._folder / match[1])]
        return [f"{number}/{count}" for count, number in sorted(parts)]

    def require_idle(self) -> None:
        """Raise a BusyError if parts are running."""
        if running := self.running():
            raise BusyError(f"{self._out}: {are_running(running)}; wait for the end")


def are_running(parts: list[str]) -> str:
    """Say that some parts are running.

    >>> are_running(["3/16", "4/16"])
    'parts 3/16, 4/16 are still running'
    """
    subject = f"part {parts[0]} is" if len(parts) == 1 else f"parts {', '.join(parts)} are"
    return f"{subject} still running"


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
