"""The file with the labels of a review page, which may be written again while the page is open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hgld.review.session import ReviewSession
from hgld.review.store import EventStore


class ClustersFile:
    """The table of labels, clusters and suggestions, which may be written again while the page is open.

    Attributes:
        loaded: Version of the file that the page shows.

    Args:
        path: Table from hgld cluster or hgld suggest.
        open_session: Function that reads the table and returns a session with its labels.
    """

    def __init__(self, path: Path, open_session: Callable[[EventStore], ReviewSession]) -> None:
        self.path = path
        self.open_session = open_session
        self.loaded = ""
        self.loaded = self.version()

    def version(self) -> str:
        """Return the version of the file, which changes when it is written; if missing, ``loaded``."""
        try:
            status = self.path.stat()
        except OSError:
            return self.loaded
        return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
