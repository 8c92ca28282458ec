"""One file from a server to a path: resumed where it was cut, verified, there as a whole or not at all.

While a file comes, its bytes are in ``{name}.part``, and ``{name}.part.json`` says of what: the URL, the size, and
the ETag or date that the server gave. A later attempt asks for the rest on condition that these still hold
(``Range`` with ``If-Range``), so that halves of two versions are never glued together; a server that cannot do
that sends the file anew.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import requests

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.partial_download import Origin, Part
from hgld.io.files import digest_of
from hgld.io.http import (
    BROKEN_CONNECTION,
    CONNECT_TIMEOUT_S,
    RetriesExhaustedError,
    RetryingSession,
    TransientError,
    raise_if_transient,
    user_agent,
)
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress, byte_size

T = TypeVar("T")

#: What is read at once, and lost at most when a connection breaks.
_CHUNK = 2**16
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
        self._http = RetryingSession(headers, max_retries=self._config.max_retries, backoff_s=self._config.backoff_s)

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
            with exclusive_lock(path, wait=True):
                if not anew and path.is_file() and not _wrong_checksum(path, expected):
                    return 0
                return self._download(Part(path, url, progress or NoProgress()), expected)

    def close(self) -> None:
        """End every download under way; each raises :class:`SourceError` and can be taken up again."""
        self._http.close()

    def _download(self, part: Part, expected: Mapping[str, str]) -> int:
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

    def _ask(self, url: str, attempt: Callable[[requests.Session], T], part: Part | None = None) -> T:
        try:
            return self._http.repeat(attempt)
        except RetriesExhaustedError as error:
            kept = f" ({byte_size(part.have)} are kept)" if part is not None and part.have else ""
            raise RetriesExhaustedError(
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
            return Origin.of(url, response).size

    def _fetch_more(self, part: Part, session: requests.Session) -> None:
        """One request for what ``part`` lacks; returns when it is complete or has grown well."""
        with session.get(part.url, headers=part.condition(), stream=True, timeout=self._timeout) as response:
            if response.status_code == 200:
                part.begin(Origin.of(part.url, response))
            elif response.status_code in (206, 416):
                if not part.is_continued_by(response):
                    part.begin_anew()
                    raise TransientError(f"{part.url} has changed, or the rest of it could not be had")
            else:
                raise _refusal(response)
            try:
                for chunk in part.write(response.iter_content(_CHUNK)):
                    part.progress.advance(len(chunk))
                    self._http.check_open()
                part.check_end()
            except (TransientError, *BROKEN_CONNECTION):
                if not part.has_grown():
                    raise


def _refusal(response: requests.Response) -> Exception:
    """What an answer means that is not the file."""
    raise_if_transient(response)
    told = f"{response.url} answered {response.status_code}"
    if response.status_code in _ABSENT:
        return AbsentError(f"{told}: the server has no such file, or not for everyone; is the address right?")
    return SourceError(f"{told}; expected a file")


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
