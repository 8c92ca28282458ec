"""Locks of the parts of an output, which several jobs write at the same time."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path

from hgld.errors import BusyError
from hgld.io.locks import exclusive_lock, is_locked

#: Seconds to wait for the lock of an output, which parts that start at the same time hold one after the other.
OPENING_WAIT_S = 60


class PartLocks:
    """Locks of parts, and which of them are held.

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
        """Lock a part for this process.

        Args:
            part: Part as ``3/16``.

        Raises:
            BusyError: Another run holds the lock.
        """
        number, count = part.split("/")
        return exclusive_lock(self._folder / f"{number}_of_{count}", name=f"part {part} of {self._out}")

    def running(self) -> list[str]:
        """Return the parts that are locked, in order."""
        names = [path.name for path in self._folder.glob(".*_of_*.lock")]
        matches = [match for name in names if (match := re.fullmatch(r"\.((\d+)_of_(\d+))\.lock", name))]
        parts = [(int(match[3]), int(match[2])) for match in matches if is_locked(self._folder / match[1])]
        return [f"{number}/{count}" for count, number in sorted(parts)]

    def require_idle(self) -> None:
        """Raise if parts are running.

        Raises:
            BusyError: Parts are running.
        """
        if running := self.running():
            raise BusyError(f"{self._out}: {are_running(running)}; wait for the end")


def are_running(parts: list[str]) -> str:
    """Say that some parts are running.

    >>> are_running(["3/16", "4/16"])
    'parts 3/16, 4/16 are still running'
    """
    subject = f"part {parts[0]} is" if len(parts) == 1 else f"parts {', '.join(parts)} are"
    return f"{subject} still running"
