"""A file that is still coming: the bytes there are, and a note of what they are bytes of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import requests

from hgld.io.http import TransientError
from hgld.progress import Progress

#: So many new bytes are progress.
_GROWTH = 2**20


def part_of(path: Path) -> Path:
    """Where the bytes of ``path`` are while it comes."""
    return path.with_name(f"{path.name}.part")


@dataclass(frozen=True)
class Origin:
    """What a part is a part of; ``size`` and ``validator`` are None where the server does not tell them."""

    url: str
    size: int | None
    validator: str | None

    @classmethod
    def of(cls, url: str, response: requests.Response) -> Origin:
        """What the headers of an answer say of the file at ``url``."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            # Not asked for: what these headers say is not true of the file.
            return cls(url, None, None)
        length = response.headers.get("Content-Length")
        return cls(url, int(length) if length else None, _validator(response))


class Part:
    """The bytes that have come of a file, and the note of what they are of.

    Args:
        path: where the file goes when it is whole.
        url: where it is from; bytes from elsewhere are dropped.
        progress: told of every byte that comes or is dropped.
    """

    def __init__(self, path: Path, url: str, progress: Progress) -> None:
        self.url, self.progress = url, progress
        self.file, self._note, self._path = part_of(path), path.with_name(f"{path.name}.part.json"), path
        self.transferred = 0
        self._started = self._ended = False
        self._origin = self._read_note()
        if self._origin is None:
            self._remove()
        self._most = self.have

    @property
    def have(self) -> int:
        """How many bytes there are."""
        return self.file.stat().st_size if self.file.exists() else 0

    @property
    def complete(self) -> bool:
        """Whether all bytes are there."""
        if self._origin is None:
            return False
        return self._ended if self._origin.size is None else self.have == self._origin.size

    def condition(self) -> dict[str, str]:
        """The headers that ask for the rest only, if it is still the rest of the same file."""
        if not self.have:
            return {}
        if self._origin is None or self._origin.validator is None:
            self.begin_anew()
            return {}
        return {"Range": f"bytes={self.have}-", "If-Range": self._origin.validator}

    def is_continued_by(self, response: requests.Response) -> bool:
        """Whether a partial answer is what comes next of the same file."""
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if self._origin is None or found is None or int(found[1]) != self.have:
            return False
        same_size = found[2] == "*" or self._origin.size in (None, int(found[2]))
        return same_size and _validator(response) in (None, self._origin.validator)

    def begin(self, origin: Origin) -> None:
        """Drop what there is: a whole file follows."""
        self.begin_anew()
        self._origin = origin
        self._note.write_text(json.dumps(asdict(origin)), encoding="utf-8")
        self.file.touch()

    def begin_anew(self) -> None:
        """Drop what there is."""
        if self._started:
            self.progress.advance(-self.have)
        self._remove()
        self._origin, self._ended = None, False

    def write(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Append the chunks, and pass each on when it is in the file."""
        assert self._origin is not None
        if not self._started:
            self._started = True
            self.progress.start(self._origin.size or 0, self.have)
        with self.file.open("ab") as stream:
            for chunk in chunks:
                stream.write(chunk)
                self.transferred += len(chunk)
                yield chunk
        self._ended = True

    def check_end(self) -> None:
        """Raise TransientError unless the file is complete."""
        if not self.complete:
            assert self._origin is not None
            told = f"{self.url} ended after {self.have:,} of {self._origin.size:,} bytes"
            if self.have > (self._origin.size or 0):
                self.begin_anew()
            raise TransientError(told)

    def has_grown(self) -> bool:
        """Whether many more bytes are there than ever when this was asked: patience may begin anew."""
        if self.have < self._most + _GROWTH:
            return False
        self._most = self.have
        return True

    def become_whole(self) -> None:
        """Put the file where it goes."""
        self.file.replace(self._path)
        self._note.unlink()

    def _read_note(self) -> Origin | None:
        try:
            origin = Origin(**json.loads(self._note.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):  # none, or cut short by a kill
            return None
        return origin if self.file.exists() and origin.url == self.url and origin.validator else None

    def _remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _validator(response: requests.Response) -> str | None:
    """What If-Range takes: a strong ETag, else the date."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")
