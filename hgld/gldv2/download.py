"""One file from a server to a path: resumed where it was cut, verified, there as a whole or not at all.

While a file comes, its bytes are in ``{name}.part``, and ``{name}.part.json`` says of what: the URL, the size, and
the ETag or date that the server gave. A later attempt asks for the rest on condition that these still hold
(``Range`` with ``If-Range``), so that halves of two versions are never glued together; a server that cannot do
that sends the file anew.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import requests

from hgld.errors import ConfigurationError, SourceError
from hgld.http import (
    BROKEN_CONNECTION,
    CONNECT_TIMEOUT_S,
    GivenUpError,
    PassingError,
    PatientHttp,
    raise_if_passing,
    user_agent,
)
from hgld.locks import only_run
from hgld.progress import Progress, Silent, byte_size
from hgld.tables import digest_of

T = TypeVar("T")

#: What is read at once, and lost at most when a connection breaks.
_CHUNK = 2**16
#: So many new bytes are progress.
_GROWTH = 2**20
#: What a server answers for a file that it has not; S3 says 403 for it.
_ABSENT = (403, 404, 410)


@dataclass(frozen=True)
class DownloadConfig:
    """How patient to be with the server.

    Args:
        max_retries: how often in a row a request may fail, without any new byte, before the file is given up.
        timeout_s: how long a server may stay silent.
        backoff_s: the wait before the first repetition; it doubles with each.
    """

    max_retries: int = 5
    timeout_s: float = 60.0
    backoff_s: float = 1.0

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.timeout_s <= 0 or self.backoff_s < 0:
            raise ConfigurationError("retries, timeout and backoff cannot be negative")


class AbsentError(SourceError):
    """The server has no such file, or not for everyone."""


class ChecksumError(SourceError):
    """What the server sends is not what the checksum says."""


def download(
    url: str,
    path: Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    config: DownloadConfig | None = None,
    progress: Progress | None = None,
) -> int:
    """Bring the file at ``url`` to ``path``; see :meth:`Downloader.download`, which is for many files."""
    return Downloader(config).download(url, path, md5=md5, sha256=sha256, progress=progress)


class Downloader:
    """Downloads files; safe to use from several threads, one file each.

    Args:
        config: how patient to be.
    """

    def __init__(self, config: DownloadConfig | None = None) -> None:
        self._config = config or DownloadConfig()
        # Sizes and ranges are those of the file itself, not of its compressed form.
        headers = {"User-Agent": user_agent(), "Accept-Encoding": "identity"}
        self._http = PatientHttp(headers, max_retries=self._config.max_retries, backoff_s=self._config.backoff_s)

    def size(self, url: str) -> int | None:
        """How many bytes the file at ``url`` has; None where the server does not say.

        Raises:
            AbsentError: there is no such file.
            SourceError: the server cannot be reached, or answers something else.
        """
        return self._ask(url, partial(self._head, url))

    def download(
        self,
        url: str,
        path: Path,
        *,
        md5: str | None = None,
        sha256: str | None = None,
        anew: bool = False,
        progress: Progress | None = None,
    ) -> int:
        """Bring the file at ``url`` to ``path``, whole and verified.

        A file that is there is left alone if its checksums are those given, or none are; one with others is
        replaced. Of several calls for one path, in any processes, one does the work and the others wait.

        Args:
            url: the file's address.
            path: where it goes; folders are made.
            md5: its MD5, in hex.
            sha256: its SHA-256, in hex.
            anew: replace what is there in any case.
            progress: told of bytes; a negative number of them when the file has to be begun anew.

        Returns:
            How many bytes were transferred; 0 if the file was there.

        Raises:
            AbsentError: the server has no such file.
            ChecksumError: the file had another checksum, twice.
            SourceError: the server cannot be reached or kept failing; what has come is kept for the next call.
            ConfigurationError: the disk is full.
        """
        expected = {name: digest.lower() for name, digest in (("md5", md5), ("sha256", sha256)) if digest is not None}
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with only_run(path, wait=True):
                if not anew and path.is_file() and not _wrong_checksum(path, expected):
                    return 0
                return self._download(_Part(path, url, progress or Silent()), expected)

    def close(self) -> None:
        """End every download under way; each raises :class:`SourceError` and can be taken up again."""
        self._http.close()

    def _download(self, part: _Part, expected: Mapping[str, str]) -> int:
        for _ in range(2):
            while not part.complete:
                self._ask(part.url, partial(self._fetch_more, part), part)
            wrong = _wrong_checksum(part.file, expected)
            if not wrong:
                part.become_whole()
                return part.transferred
            part.begin_anew()
        raise ChecksumError(
            f"{part.url}: {wrong}; it was downloaded twice. The file or its checksum is wrong at the server, or "
            "something in between changes it: try again later, or from another place"
        )

    def _ask(self, url: str, attempt: Callable[[requests.Session], T], part: _Part | None = None) -> T:
        try:
            return self._http.repeat(attempt)
        except GivenUpError as error:
            kept = f" ({byte_size(part.have)} are kept)" if part is not None and part.have else ""
            raise GivenUpError(
                f"{url}: {error}. If this machine is online and the address right, run the same command again later "
                f"to go on{kept}"
            ) from error
        except requests.RequestException as error:
            raise SourceError(f"{url}: {error}") from error

    @property
    def _timeout(self) -> tuple[float, float]:
        return CONNECT_TIMEOUT_S, self._config.timeout_s

    def _head(self, url: str, session: requests.Session) -> int | None:
        with session.head(url, timeout=self._timeout, allow_redirects=True) as response:
            if response.status_code != 200:
                raise _refusal(response)
            return _Origin.of(url, response).size

    def _fetch_more(self, part: _Part, session: requests.Session) -> None:
        """One request for what ``part`` lacks; returns when it is complete or has grown well."""
        with session.get(part.url, headers=part.condition(), stream=True, timeout=self._timeout) as response:
            if response.status_code == 200:
                part.begin(_Origin.of(part.url, response))
            elif response.status_code in (206, 416):
                if not part.is_continued_by(response):
                    part.begin_anew()
                    raise PassingError(f"{part.url} has changed, or the rest of it could not be had")
            else:
                raise _refusal(response)
            try:
                for chunk in part.write(response.iter_content(_CHUNK)):
                    part.progress.advance(len(chunk))
                    self._http.check_open()
                part.check_end()
            except (PassingError, *BROKEN_CONNECTION):
                if not part.has_grown():
                    raise


@dataclass(frozen=True)
class _Origin:
    """What a part is a part of; ``size`` and ``validator`` are None where the server does not tell them."""

    url: str
    size: int | None
    validator: str | None

    @classmethod
    def of(cls, url: str, response: requests.Response) -> _Origin:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            # Not asked for: what these headers say is not true of the file.
            return cls(url, None, None)
        length = response.headers.get("Content-Length")
        return cls(url, int(length) if length else None, _validator(response))


class _Part:
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
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if self._origin is None or found is None or int(found[1]) != self.have:
            return False
        same_size = found[2] == "*" or self._origin.size in (None, int(found[2]))
        return same_size and _validator(response) in (None, self._origin.validator)

    def begin(self, origin: _Origin) -> None:
        """Drop what there is: a whole file follows."""
        self.begin_anew()
        self._origin = origin
        self._note.write_text(json.dumps(asdict(origin)), encoding="utf-8")
        self.file.touch()

    def begin_anew(self) -> None:
        if self._started:
            self.progress.advance(-self.have)
        self._remove()
        self._origin, self._ended = None, False

    def write(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Append the chunks, and pass each on when it is in the file."""
        if not self._started:
            assert self._origin is not None
            self._started = True
            self.progress.start(self._origin.size or 0, self.have)
        with self.file.open("ab") as stream:
            for chunk in chunks:
                stream.write(chunk)
                self.transferred += len(chunk)
                yield chunk
        self._ended = True

    def check_end(self) -> None:
        """Raise PassingError unless the file is complete."""
        if not self.complete:
            assert self._origin is not None
            told = f"{self.url} ended after {self.have:,} of {self._origin.size:,} bytes"
            if self.have > (self._origin.size or 0):
                self.begin_anew()
            raise PassingError(told)

    def has_grown(self) -> bool:
        """Whether many more bytes are there than ever when this was asked: patience may begin anew."""
        if self.have < self._most + _GROWTH:
            return False
        self._most = self.have
        return True

    def become_whole(self) -> None:
        self.file.replace(self._path)
        self._note.unlink()

    def _read_note(self) -> _Origin | None:
        try:
            origin = _Origin(**json.loads(self._note.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):  # none, or cut short by a kill
            return None
        return origin if self.file.exists() and origin.url == self.url and origin.validator else None

    def _remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """Where the bytes of ``path`` are while it comes."""
    return path.with_name(f"{path.name}.part")


def _refusal(response: requests.Response) -> Exception:
    """What an answer means that is not the file."""
    raise_if_passing(response)
    told = f"{response.url} answered {response.status_code}"
    if response.status_code in _ABSENT:
        return AbsentError(f"{told}: the server has no such file, or not for everyone; is the address right?")
    return SourceError(f"{told}; expected a file")


def _validator(response: requests.Response) -> str | None:
    """What If-Range takes: a strong ETag, else the date."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")


def _wrong_checksum(path: Path, expected: Mapping[str, str]) -> str | None:
    """What is wrong with the file, in words."""
    for algorithm, digest in expected.items():
        found = digest_of(path, algorithm)
        if found != digest:
            return f"its {algorithm} is {found}, expected {digest}"
    return None


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except requests.RequestException:  # an OSError, too
        raise
    except OSError as error:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise ConfigurationError(
            f"{path} cannot be written: {why}; mend that or choose another folder, then run again"
        ) from error
