"""GLDv2's files at the dataset's host, and downloads of single files.

The names follow the README and ``download-dataset.sh`` of https://github.com/cvdfoundation/google-landmark, version
2.1 of the dataset: 500, 100 and 20 tar files of photographs (``train/images_000.tar``), an MD5 for each
(``md5sum/train/md5.images_000.txt``), CSV files about photographs and landmarks below ``metadata/``, and two
solutions below ``ground_truth/``. In a local folder the CSV files are at the root, where the other commands expect
them, and the rest is laid out as at the host. A server of such a folder can replace the host. Lists of some parts of
the dataset come with hgld, so that results on them can be repeated.

Downloads are resumed after interruptions, verified, and complete or absent at their path. During a download the
received bytes are in ``{name}.part``, and ``{name}.part.json`` notes the URL, the size, and the ETag or date of the
remote file. A later attempt requests the missing bytes on condition that these still hold (``Range`` with
``If-Range``), so that parts of two versions are never joined. A server without range requests sends the whole file
again.
"""

from __future__ import annotations

import errno
import json
import math
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import requests

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.settings import N_SHARDS, DownloadConfig
from hgld.io.files import atomic_write, digest_of, exclusive_lock
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
from hgld.progress import NoProgress, Progress, byte_size
from hgld.resources import subset_file

#: Names of the parts whose lists come with hgld, and their files.
SUBSETS = ("washington",)
_SUBSET_FILES = ("train.csv", "train_label_to_category.csv", "train_label_to_hierarchical.csv")

#: Number of photographs by split, and approximate size of a tar file in bytes, according to the README.
N_IMAGES = {"train": 4_132_914, "index": 761_757, "test": 117_577}
SHARD_BYTES = {"train": 1_000_000_000, "index": 850_000_000, "test": 500_000_000}

_METADATA = {
    "train": (
        "train.csv",
        "train_clean.csv",
        "train_attribution.csv",
        "train_label_to_category.csv",
        "train_label_to_hierarchical.csv",
    ),
    "index": (
        "index.csv",
        "index_image_to_landmark.csv",
        "index_label_to_category.csv",
        "index_label_to_hierarchical.csv",
    ),
    "test": ("test.csv",),
}
_GROUND_TRUTH = {"test": ("recognition_solution_v2.1.csv", "retrieval_solution_v2.1.csv")}

T = TypeVar("T")
#: Bytes that must arrive within the time limit; at less a connection counts as broken.
_MIN_BYTES = 2**16
#: Statuses for a file that does not exist; S3 answers 403 for one.
_NOT_FOUND_STATUSES = (403, 404, 410)
#: Number of new bytes that counts as progress.
_MIN_GROWTH = 2**20


@dataclass(frozen=True)
class DatasetFile:
    """A file of the dataset.

    Args:
        remote_paths: Possible paths relative to the host's URL; the first that exists is used.
        md5_path: Path of the file with its MD5, at the host and in a folder; None for a file without one.
    """

    path: str
    remote_paths: tuple[str, ...]
    md5_path: str | None = None


def metadata_files(split: str) -> list[DatasetFile]:
    """Return the CSV files of a split, including the solutions of the test split."""
    names_by_folder = {"metadata": _METADATA[split], "ground_truth": _GROUND_TRUTH.get(split, ())}
    return [
        DatasetFile(name, (f"{folder}/{name}", name))
        for folder, names in names_by_folder.items()
        for name in names
    ]


def shard_files(split: str, shards: Collection[int] | None = None) -> list[DatasetFile]:
    """Return the tar files of a split's photographs.

    >>> shard_files("train", [3])[0].path
    'train/images_003.tar'
    """
    available = range(N_SHARDS[split])
    unknown = sorted(set(shards or ()) - set(available))
    if unknown:
        raise ConfigurationError(
            f"{split} has no shard {unknown[0]}; its shards are 0 to {available[-1]}"
        )
    names = [
        f"images_{number:03}" for number in (available if shards is None else sorted(set(shards)))
    ]
    return [
        DatasetFile(
            f"{split}/{name}.tar", (f"{split}/{name}.tar",), f"md5sum/{split}/md5.{name}.txt"
        )
        for name in names
    ]


def parse_shards(text: str) -> Sequence[int]:
    """Parse shard numbers and ranges, separated by commas; both ends of a range are included.

    >>> parse_shards("0:4,7")
    [0, 1, 2, 3, 4, 7]
    """
    numbers: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?::([0-9]{1,6}))?\s*", item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ConfigurationError(
                f'`shards` is "{text}"; expected numbers and first:last, such as 0:4 or 0,3'
            )
        numbers += range(first, last + 1)
    return numbers


def read_md5(path: Path) -> str:
    """Return the MD5, in lower-case hex, from a file in the format of ``md5sum``."""
    text = path.read_text(encoding="utf-8", errors="replace")
    match = re.match(r"[0-9a-fA-F]{32}(?=\s|$)", text)
    if match is None:
        raise SourceError(
            f"{path}: expected an MD5 of 32 hex digits, but the server sent {text[:50]!r}"
        )
    return match[0].lower()


def subset_list(name: str) -> Path:
    """Return the list of photographs of a part, with the columns of GLDv2's train.csv."""
    return subset_file(f"{name}/{_SUBSET_FILES[0]}")


def copy_subset(name: str, out: Path) -> None:
    """Write the lists of a part to a folder, where the dataset has lists of the same names, which are replaced."""
    for file in _SUBSET_FILES:
        with atomic_write(out / file) as draft:
            shutil.copyfile(subset_file(f"{name}/{file}"), draft)


class NotFoundError(SourceError):
    """The server has no such file, or does not give it to everyone."""


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
        """Return the size in bytes of the file at ``url``, or None where the server does not say."""
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

        An existing file is kept if it matches the given checksums, or if none are given; otherwise it is replaced.
        Of several calls for one path, also in other processes, one downloads and the others wait.

        Args:
            path: Destination; missing folders are created.
            replace: Replace an existing file in any case.
            progress: Receives the number of bytes received, negative where bytes are discarded.

        Returns:
            Number of bytes transferred; 0 if the existing file was kept.

        Raises:
            ChecksumError: The file had a wrong checksum twice.
            SourceError: The server kept failing; received bytes are kept for the next call.
            ConfigurationError: The server cannot be reached, or the disk is full or not writable.
        """
        expected = {
            name: digest.lower()
            for name, digest in (("md5", md5), ("sha256", sha256))
            if digest is not None
        }
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with exclusive_lock(path, wait_s=math.inf):
                if not replace and path.is_file() and not _checksum_problem(path, expected):
                    return 0
                return self._download(
                    PartialDownload(path, url, progress or NoProgress()), expected
                )

    def md5(self, url: str, path: Path) -> str:
        """Download a file in the format of ``md5sum`` to ``path``, and return the MD5 in it, in lower-case hex."""
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
            kept = (
                f" ({byte_size(part.n_bytes)} are kept)"
                if part is not None and part.n_bytes
                else ""
            )
            raise RetriesExhaustedError(
                f"{url}: {error}. If this machine is online and the address right, run the same command again later "
                f"to resume{kept}"
            ) from error
        except requests.RequestException as error:
            raise SourceError(f"{url}: {error}") from error

    def _send(
        self,
        session: requests.Session,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Return the response to a request, whose body is not read yet."""
        timeout = CONNECT_TIMEOUT_S, self._config.timeout_s
        request = partial(send, session, method, url, headers=headers, stream=True, timeout=timeout)
        return self._http.in_time(url, self._config.timeout_s, request)

    def _head(self, url: str, session: requests.Session) -> int | None:
        with self._send(session, "HEAD", url) as response:
            if response.status_code != 200:
                raise _status_error(response)
            return Origin.from_response(url, response).size

    def _fetch_more(self, part: PartialDownload, session: requests.Session) -> None:
        """Send one request for the missing bytes; return when the download is complete or made progress."""
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
                n_bytes, since = 0, time.monotonic()
                for piece in part.append(received(response)):
                    part.progress.advance(len(piece))
                    self._http.check_open()
                    n_bytes += len(piece)
                    if n_bytes >= _MIN_BYTES:
                        n_bytes, since = 0, time.monotonic()
                    elif time.monotonic() - since > self._config.timeout_s:
                        raise TransientError(
                            f"{part.url} sent only {n_bytes} bytes in {self._config.timeout_s:g} s"
                        )
                part.check_complete()
            except (TransientError, *BROKEN_CONNECTION):
                if not part.made_progress():
                    raise


def partial_path(path: Path) -> Path:
    """Return where the bytes of a file are kept until its download is complete."""
    return path.with_name(f"{path.name}.part")


@dataclass(frozen=True)
class Origin:
    """The remote file that the received bytes belong to; the validator is for If-Range, if the server sends one."""

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

    Bytes from another address are discarded; ``transferred`` is the number of all bytes that this object received.
    """

    def __init__(self, path: Path, url: str, progress: Progress) -> None:
        self.url, self.progress = url, progress
        self.file, self._note, self._path = (
            partial_path(path),
            path.with_name(f"{path.name}.part.json"),
            path,
        )
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
        """Return whether the download grew by 1 MiB or more since this was last so, which resets the retries."""
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
        return (
            origin if self.file.exists() and origin.url == self.url and origin.validator else None
        )

    def _remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _validator(response: requests.Response) -> str | None:
    """Return a value for If-Range: a strong ETag, else the date of the last change."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified")


def _status_error(response: requests.Response) -> Exception:
    """Return the error for a response that is not the file; raise TransientError for one that may pass."""
    raise_if_transient(response)
    message = f"{response.url} answered {response.status_code}"
    if response.status_code in _NOT_FOUND_STATUSES:
        return NotFoundError(
            f"{message}: the server has no such file, or not for everyone; is the address right?"
        )
    return SourceError(f"{message}; expected a file")


def _checksum_problem(path: Path, expected: Mapping[str, str]) -> str | None:
    """Describe the first checksum that does not match; None if all do."""
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
        reason = (
            "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        )
        raise ConfigurationError(
            f"{path} cannot be written: {reason}; correct that or choose another folder, then run again"
        ) from error
