"""Downloads of single files, which are resumed after interruptions and verified.

During a download the received bytes are in ``{name}.part``, and ``{name}.part.json`` records the
URL, the size, and the ETag or date of the remote file. A later attempt requests the missing bytes
on condition that the remote file is unchanged (``Range`` with ``If-Range``), so that parts of two
versions are never joined. A server without range requests sends the whole file again.
"""

from __future__ import annotations

import errno
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import requests

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.settings import DownloadConfig
from hgld.io.files import digest_of
from hgld.io.http import (
    BROKEN_CONNECTION,
    CONNECT_TIMEOUT_S,
    RetriesExhaustedError,
    RetryingSession,
    TransientError,
    raise_if_transient,
    received,
    send,
    user_agent,
)
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress, byte_size

T = TypeVar("T")
#: Bytes that must arrive within the time limit; at less a connection counts as broken.
_MIN_BYTES = 2**16
#: Statuses for a file that does not exist; S3 answers 403 for one.
_NOT_FOUND_STATUSES = (403, 404, 410)
#: Number of new bytes that counts as progress.
_MIN_GROWTH = 2**20


def read_md5(path: Path) -> str:
    """Return the MD5, in lower-case hex, from a file in the format of ``md5sum``."""
    text = path.read_text(encoding="utf-8", errors="replace")
    match = re.match(r"[0-9a-fA-F]{32}(?=\s|$)", text)
    if match is None:
        raise SourceError(
            f"{path}: expected an MD5 of 32 hex digits, but the server sent {text[:50]!r}"
        )
    return match[0].lower()


class NotFoundError(SourceError):
    """The server has no such file, or access is restricted."""


class ChecksumError(SourceError):
    """The downloaded file does not match its checksum."""


class Downloader:
    """Downloads files; safe to use from several threads, one file each."""

    def __init__(self, config: DownloadConfig | None = None) -> None:
        self._config = config or DownloadConfig()
        # Sizes and ranges refer to the file itself, not to its compressed form.
        headers = {"User-Agent": user_agent(), "Accept-Encoding": "identity"}
        self._http = RetryingSession(
            headers, max_retries=self._config.max_retries, backoff_s=self._config.backoff_s
        )

    def size(self, url: str) -> int | None:
        """Return the size of the file at ``url`` in bytes, or None if it is not reported."""
        return self._request(url, partial(self._head, url))

    def download(
        self,
        url: str,
        path: Path,
        *,
        md5: str | None = None,
        sha256: str | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> int:
        """Download the file at ``url`` to ``path``, complete and verified.

        An existing file is kept if it matches all given checksums; otherwise it is replaced. If
        several calls, also in other processes, have the same path, one call downloads and the other
        calls wait.

        Args:
            url: Address of the file.
            path: Destination; missing folders are created.
            md5: Expected MD5 in hexadecimal.
            sha256: Expected SHA-256 in hexadecimal.
            replace: Whether to replace an existing file in any case.
            progress: Receives the number of received bytes, negative for discarded bytes.

        Returns:
            Number of bytes transferred; 0 if the existing file was kept.

        Raises:
            ChecksumError: The file had a wrong checksum twice.
            SourceError: The server kept failing; received bytes are kept for the next call.
            ConfigurationError: The server cannot be reached, or the disk is full or not writable.
        """
        expected = {}
        if md5 is not None:
            expected["md5"] = md5.lower()
        if sha256 is not None:
            expected["sha256"] = sha256.lower()
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with exclusive_lock(path, wait_s=math.inf):
                if not replace and path.is_file() and not _checksum_problem(path, expected):
                    return 0
                part = PartialDownload(path, url, progress or NoProgress())
                return self._download(part, expected)

    def md5(self, url: str, path: Path) -> str:
        """Download a file in the format of ``md5sum``, and return its MD5 in lower-case hex."""
        self.download(url, path, replace=True)
        return read_md5(path)

    def close(self) -> None:
        """Stop all downloads in progress; each raises :class:`SourceError` and can be resumed."""
        self._http.close()

    def _download(self, part: PartialDownload, expected: Mapping[str, str]) -> int:
        for _ in range(2):
            while not part.complete:
                self._request(part.url, partial(self._fetch_more, part), part)
            problem = _checksum_problem(part.file, expected)
            if not problem:
                part.finish()
                return part.transferred
            part.discard()
        raise ChecksumError(
            f"{part.url}: {problem}; it was downloaded twice. The file or its checksum is wrong at the server, or "
            "something in between changes it: try again later, or from another place"
        )

    def _request(
        self,
        url: str,
        attempt: Callable[[requests.Session], T],
        part: PartialDownload | None = None,
    ) -> T:
        try:
            return self._http.retry(attempt)
        except RetriesExhaustedError as error:
            message = (
                f"{url}: {error}. If this machine is online and the address right, run the same command again later "
                "to resume"
            )
            if part is not None and part.n_bytes:
                message += f" ({byte_size(part.n_bytes)} are kept)"
            raise RetriesExhaustedError(message) from error
        except requests.RequestException as error:
            raise SourceError(f"{url}: {error}") from error

    def _send(
        self,
        session: requests.Session,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request, and return the response before its body is read."""
        timeout = CONNECT_TIMEOUT_S, self._config.timeout_s
        request = partial(send, session, method, url, headers=headers, stream=True, timeout=timeout)
        return self._http.in_time(url, self._config.timeout_s, request)

    def _head(self, url: str, session: requests.Session) -> int | None:
        with self._send(session, "HEAD", url) as response:
            if response.status_code != 200:
                raise _status_error(response)
            return Origin.from_response(url, response).size

    def _fetch_more(self, part: PartialDownload, session: requests.Session) -> None:
        """Send one request for the missing bytes; raise unless it completes or makes progress."""
        with self._send(session, "GET", part.url, part.resume_headers()) as response:
            if response.status_code == 200:
                part.restart(Origin.from_response(part.url, response))
            elif response.status_code in (206, 416):
                if not part.is_continued_by(response):
                    part.discard()
                    raise TransientError(
                        f"{part.url} has changed, or the server refused to send the rest of it"
                    )
            else:
                raise _status_error(response)
            try:
                n_bytes = 0
                start = time.monotonic()
                for piece in part.append(received(response)):
                    part.progress.advance(len(piece))
                    self._http.check_open()
                    n_bytes += len(piece)
                    if n_bytes >= _MIN_BYTES:
                        n_bytes = 0
                        start = time.monotonic()
                    elif time.monotonic() - start > self._config.timeout_s:
                        raise TransientError(
                            f"{part.url} sent only {n_bytes} bytes in {self._config.timeout_s:g} s"
                        )
                part.check_complete()
            except (TransientError, *BROKEN_CONNECTION):
                if not part.made_progress():
                    raise


def partial_path(path: Path) -> Path:
    """Return the path of the received bytes of an unfinished download."""
    return path.with_name(f"{path.name}.part")


@dataclass(frozen=True)
class Origin:
    """The remote file of the received bytes.

    Args:
        url: Address of the file.
        size: Size in bytes; None if unknown.
        validator: Value for If-Range; None if the server does not send one.
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
        size = None
        if response.headers.get("Content-Length"):
            size = int(response.headers["Content-Length"])
        return cls(url, size, _validator(response))


class PartialDownload:
    """The received bytes of a file, and the note of their origin; both survive an interrupted run.

    Bytes from another address are discarded.

    Attributes:
        file: File of the received bytes.
        transferred: Number of bytes that this object received.
    """

    def __init__(self, path: Path, url: str, progress: Progress) -> None:
        self.url = url
        self.progress = progress
        self.file = partial_path(path)
        self._note = path.with_name(f"{path.name}.part.json")
        self._path = path
        self.transferred = 0
        #: Whether the progress was started.
        self._started = False
        #: Whether a response ended without an error.
        self._ended = False
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
        if self._origin.size is None:
            return self._ended
        return self.n_bytes == self._origin.size

    def resume_headers(self) -> dict[str, str]:
        """Return headers that request the missing bytes if the remote file is unchanged."""
        if not self.n_bytes:
            return {}
        if self._origin is None or self._origin.validator is None:
            self.discard()
            return {}
        return {"Range": f"bytes={self.n_bytes}-", "If-Range": self._origin.validator}

    def is_continued_by(self, response: requests.Response) -> bool:
        """Return whether a partial response holds the next bytes of the same file."""
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if self._origin is None or match is None:
            return False
        first_byte, size = match.groups()
        if int(first_byte) != self.n_bytes:
            return False
        if size != "*" and self._origin.size not in (None, int(size)):
            return False
        return _validator(response) in (None, self._origin.validator)

    def restart(self, origin: Origin) -> None:
        """Discard the received bytes and note the origin of the following bytes."""
        self.discard()
        self._origin = origin
        self._note.write_text(json.dumps(asdict(origin)), encoding="utf-8")
        self.file.touch()

    def discard(self) -> None:
        """Discard the received bytes and their note."""
        if self._started:
            self.progress.advance(-self.n_bytes)
        self._remove()
        self._origin = None
        self._ended = False

    def append(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Append chunks to the file, and yield each written chunk."""
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
        """Raise a TransientError if the size is wrong, and discard a file that is too large."""
        if not self.complete:
            assert self._origin is not None
            message = f"{self.url} ended after {self.n_bytes:,} of {self._origin.size:,} bytes"
            if self.n_bytes > (self._origin.size or 0):
                self.discard()
            raise TransientError(message)

    def made_progress(self) -> bool:
        """Return whether the download grew by 1 MiB or more, which resets the retries."""
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
        except (FileNotFoundError, ValueError, TypeError):  # no note, or truncated by a kill
            return None
        if not self.file.exists() or origin.url != self.url or not origin.validator:
            return None
        return origin

    def _remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _validator(response: requests.Response) -> str | None:
    """Return a value for If-Range: a strong ETag, otherwise the date of the last change."""
    etag = response.headers.get("ETag", "")
    if etag.startswith('"'):
        return etag
    return response.headers.get("Last-Modified")


def _status_error(response: requests.Response) -> Exception:
    """Return the error for an unsuccessful response; raise a TransientError for a transient one."""
    raise_if_transient(response)
    message = f"{response.url} answered {response.status_code}"
    if response.status_code in _NOT_FOUND_STATUSES:
        return NotFoundError(
            f"{message}: the server has no such file, or access is restricted; is the address right?"
        )
    return SourceError(f"{message}; expected a file")


def _checksum_problem(path: Path, expected: Mapping[str, str]) -> str | None:
    """Describe the first checksum that does not match; None if all match."""
    for algorithm, digest in expected.items():
        actual = digest_of(path, algorithm)
        if actual != digest:
            return f"its {algorithm} is {actual}, expected {digest}"
    return None


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except requests.RequestException:  # also an OSError
        raise
    except OSError as error:
        reason = error.strerror
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "the disk is full"
        raise ConfigurationError(
            f"{path} cannot be written: {reason}; correct that or choose another folder, then run again"
        ) from error
