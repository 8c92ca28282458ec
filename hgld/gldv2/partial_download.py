"""A download in progress: the bytes received so far, and a note of the file that they belong to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import requests

from hgld.io.http import TransientError
from hgld.progress import Progress

#: Number of new bytes that counts as progress.
_MIN_GROWTH = 2**20


def partial_path(path: Path) -> Path:
    """Return where the bytes of ``path`` are kept until the download is complete.

    >>> partial_path(Path("images_000.tar")).name
    'images_000.tar.part'
    """
    return path.with_name(f"{path.name}.part")


@dataclass(frozen=True)
class Origin:
    """The remote file that the received bytes belong to.

    Args:
        url: Address of the file.
        size: Size in bytes; None where the server does not say.
        validator: Value for the header If-Range; None where the server sends none.
    """

    url: str
    size: int | None
    validator: str | None

    @classmethod
    def from_response(cls, url: str, response: requests.Response) -> Origin:
        """Read size and validator from the headers of a response."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            # No encoding was requested, and these headers describe the encoded form, not the file.
            return cls(url, None, None)
        length = response.headers.get("Content-Length")
        return cls(url, int(length) if length else None, _validator(response))


class PartialDownload:
    """The received bytes of a file, and the note of their origin; both survive an interrupted run.

    Attributes:
        url: Address of the file.
        file: Path of the received bytes.
        progress: Progress reports.
        transferred: Number of bytes received by this object, discarded ones included.

    Args:
        path: Destination of the complete file.
        url: Address of the file; bytes from another address are discarded.
        progress: Receives the number of bytes received, and a negative number for bytes discarded.
    """

    def __init__(self, path: Path, url: str, progress: Progress) -> None:
        self.url, self.progress = url, progress
        self.file, self._note, self._path = partial_path(path), path.with_name(f"{path.name}.part.json"), path
        self.transferred = 0
        self._started = self._ended = False
        self._origin = self._read_note()
        if self._origin is None:
            self._remove()
        self._most_bytes = self.n_bytes

    @property
    def n_bytes(self) -> int:
        """Number of bytes received so far."""
        return self.file.stat().st_size if self.file.exists() else 0

    @property
    def complete(self) -> bool:
        """Whether all bytes were received."""
        if self._origin is None:
            return False
        return self._ended if self._origin.size is None else self.n_bytes == self._origin.size

    def resume_headers(self) -> dict[str, str]:
        """Return headers that request the missing bytes on condition that the remote file is unchanged.

        Without a validator the received bytes are discarded and no header is returned.
        """
        if not self.n_bytes:
            return {}
        if self._origin is None or self._origin.validator is None:
            self.discard()
            return {}
        return {"Range": f"bytes={self.n_bytes}-", "If-Range": self._origin.validator}

    def is_continued_by(self, response: requests.Response) -> bool:
        """Return whether a partial response holds the next bytes of the same file."""
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if self._origin is None or match is None or int(match[1]) != self.n_bytes:
            return False
        same_size = match[2] == "*" or self._origin.size in (None, int(match[2]))
        return same_size and _validator(response) in (None, self._origin.validator)

    def restart(self, origin: Origin) -> None:
        """Discard the received bytes and note the origin of those that follow."""
        self.discard()
        self._origin = origin
        self._note.write_text(json.dumps(asdict(origin)), encoding="utf-8")
        self.file.touch()

    def discard(self) -> None:
        """Discard the received bytes and their note."""
        if self._started:
            self.progress.advance(-self.n_bytes)
        self._remove()
        self._origin, self._ended = None, False

    def append(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Append chunks to the file, and yield each one that was written."""
        assert self._origin is not None
        if not self._started:
            self._started = True
            self.progress.start(self._origin.size or 0, self.n_bytes)
        with self.file.open("ab") as stream:
            for chunk in chunks:
                stream.write(chunk)
                self.transferred += len(chunk)
                yield chunk
        self._ended = True

    def check_complete(self) -> None:
        """Raise TransientError unless all bytes were received; bytes beyond the announced size are discarded."""
        if not self.complete:
            assert self._origin is not None
            message = f"{self.url} ended after {self.n_bytes:,} of {self._origin.size:,} bytes"
            if self.n_bytes > (self._origin.size or 0):
                self.discard()
            raise TransientError(message)

    def made_progress(self) -> bool:
        """Return whether the download grew by 1 MiB or more, which resets the retry budget.

        The reference is the largest size at which this method returned True before.
        """
        if self.n_bytes < self._most_bytes + _MIN_GROWTH:
            return False
        self._most_bytes = self.n_bytes
        return True

    def finish(self) -> None:
        """Move the complete file to its destination."""
        self.file.replace(self._path)
        self._note.unlink()

    def _read_note(self) -> Origin | None:
        try:
            origin = Origin(**json.loads(self._note.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):  # no note, or one cut short by a kill
            return None
        return origin if self.file.exists() and origin.url == self.url and origin.validator else None

    def _remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _validator(response: requests.Response) -> str | None:
    """Return a value for If-Range: a strong ETag, else the date of the last change."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")
