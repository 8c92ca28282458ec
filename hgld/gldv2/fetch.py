"""Download the dataset's files to a folder: each file once, in parallel, and verified.

A first pass requests the sizes of the missing files, so that a lack of disk space shows at once; a
second pass downloads them. Finished files are recorded, which avoids reading half a terabyte again
to check it. A tar file that was copied to the folder by other means is verified once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, TypeVar

from hgld.errors import InputError, SourceError
from hgld.gldv2.dataset_files import DatasetFile, metadata_files, shard_files
from hgld.gldv2.download import Downloader, NotFoundError, partial_path
from hgld.gldv2.settings import FetchConfig
from hgld.io.files import atomic_write, digest_of
from hgld.io.http import RetriesExhaustedError
from hgld.io.locks import exclusive_lock
from hgld.io.writable import require_free_space
from hgld.progress import NoProgress, Progress

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Number of files in a row whose retries are exhausted, after which the server is assumed to be
#: down.
_MAX_FAILURES_IN_A_ROW = 4
_RECORD_FORMAT = "hgld.fetched/1"


@dataclass(frozen=True)
class FetchSummary:
    """Numbers of downloaded and existing files.

    Args:
        fetched: Number of downloaded files.
        n_bytes: Number of bytes received.
        existing: Number of files that were already in the folder.
        verified: Number of downloaded or existing files that were compared with an MD5.
        failed: A message for each file that failed.
        seconds: Duration of the run.
    """

    fetched: int
    n_bytes: int
    existing: int
    verified: int
    failed: Sequence[str]
    seconds: float


def fetch_gldv2(
    out: Path, config: FetchConfig, *, progress: Progress | None = None
) -> FetchSummary:
    """Download files of the dataset to a folder; the same call resumes after an interruption.

    Args:
        out: Folder with the layout of :mod:`hgld.gldv2.dataset_files`.
        config: Files to download, and their host.
        progress: Progress of the bytes.

    Returns:
        Numbers of files. A file that fails does not prevent the download of other files.

    Raises:
        ConfigurationError: The disk has too little space for the missing files, or the server
            cannot be reached.
    """
    out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        return _FetchRun(out, config, progress or NoProgress()).run()


@dataclass(frozen=True)
class _Job:
    """Work to do for one file."""

    file: DatasetFile
    #: Address to download from; None to compare the existing file with the record.
    url: str | None
    #: Size of the file in bytes; 0 if the server does not report it.
    n_bytes: int
    #: Number of bytes that an earlier run left.
    kept: int = 0
    #: Number of further bytes needed on the disk.
    disk_space: int = 0
    #: Whether to replace an existing file.
    replace: bool = False


@dataclass(frozen=True)
class _Outcome:
    """Outcome of a successful job."""

    n_bytes: int = 0
    fetched: bool = False
    verified: bool = False


class _FetchRun:
    """One call of :func:`fetch_gldv2`."""

    def __init__(self, out: Path, config: FetchConfig, progress: Progress) -> None:
        self._out = out
        self._config = config
        self._progress = progress
        self._downloader = Downloader(config.download)
        self._record = FetchRecord(out)
        self._lock = threading.Lock()
        self._failures_in_a_row = 0

    def run(self) -> FetchSummary:
        start = time.monotonic()
        # Unlike threads of an executor, threads of a pool that wait for a server do not keep the
        # process alive.
        pool = ThreadPool(self._config.workers)
        jobs: list[_Job] = []
        outcomes: list[_Outcome] = []
        failed: list[str] = []
        try:
            for plan in pool.imap(self._try_plan, files_to_fetch(self._config)):
                if isinstance(plan, _Job):
                    jobs.append(plan)
                elif isinstance(plan, _Outcome):
                    outcomes.append(plan)
                else:
                    failed.append(plan)
            require_free_space(
                self._out,
                sum(job.disk_space for job in jobs),
                "the files",
                "free some space, choose another folder (`out`), or fetch fewer tar files (`shards`)",
            )
            self._progress.start(sum(job.n_bytes for job in jobs), sum(job.kept for job in jobs))
            for result in pool.imap(self._try_job, jobs):
                if isinstance(result, _Outcome):
                    outcomes.append(result)
                else:
                    failed.append(result)
        finally:
            self._downloader.close()
            pool.terminate()
        n_fetched = sum(outcome.fetched for outcome in outcomes)
        return FetchSummary(
            fetched=n_fetched,
            n_bytes=sum(outcome.n_bytes for outcome in outcomes),
            existing=len(outcomes) - n_fetched,
            verified=sum(outcome.verified for outcome in outcomes),
            failed=failed,
            seconds=time.monotonic() - start,
        )

    def _try_plan(self, file: DatasetFile) -> _Job | _Outcome | str:
        return self._try(file, lambda: self._plan(file))

    def _try_job(self, job: _Job) -> _Outcome | str:
        return self._try(job.file, lambda: self._carry_out(job))

    def _try(self, file: DatasetFile, work: Callable[[], T]) -> T | str:
        """Return the result of work for a file, or a message if it fails or the server is down."""
        if self._failures_in_a_row >= _MAX_FAILURES_IN_A_ROW:
            return f"{file.path}: not tried, as the server did not answer for the files before"
        is_exhausted = False
        try:
            return work()
        except SourceError as error:
            is_exhausted = isinstance(error, RetriesExhaustedError)
            return str(error)
        finally:
            with self._lock:
                self._failures_in_a_row = self._failures_in_a_row + 1 if is_exhausted else 0

    def _plan(self, file: DatasetFile) -> _Job | _Outcome:
        """Return the remaining work for a file."""
        if self._config.force or not self._record.is_finished(file):
            return self._plan_download(file, replace=self._config.force)
        if self._config.verify:
            return _Job(file, None, (self._out / file.path).stat().st_size)
        return _Outcome()

    def _plan_download(self, file: DatasetFile, *, replace: bool) -> _Job:
        url, size = self._locate(file)
        path = self._out / file.path
        part = partial_path(path)
        kept = part.stat().st_size if part.exists() else 0
        if path.exists() and file.md5_path is None and path.stat().st_size != size:
            replace = True
        n_bytes = size or 0
        disk_space = 0
        if replace or not path.exists():
            disk_space = max(0, n_bytes - kept)
        return _Job(file, url, n_bytes, kept, disk_space, replace)

    def _locate(self, file: DatasetFile) -> tuple[str, int | None]:
        """Return the address of a file and its size."""
        errors = []
        for remote_path in file.remote_paths:
            url = self._url(remote_path)
            try:
                return url, self._downloader.size(url)
            except NotFoundError as error:
                errors.append(error)
        raise errors[0]

    def _url(self, remote_path: str) -> str:
        return f"{self._config.base_url.rstrip('/')}/{remote_path}"

    def _carry_out(self, job: _Job) -> _Outcome:
        progress = _FileProgress(job, self._progress, self._lock)
        path = self._out / job.file.path
        if job.url is None:
            if digest_of(path, "md5") == self._record.md5(job.file):
                progress.finish()
                return _Outcome(verified=True)
            log.warning("%s has changed since it was downloaded; it is downloaded again", path)
            job = self._plan_download(job.file, replace=True)
        assert job.url is not None
        md5 = self._expected_md5(job.file)
        existed = path.exists()
        n_bytes = self._downloader.download(
            job.url, path, md5=md5, replace=job.replace, progress=progress
        )
        self._record.add(job.file, md5 or digest_of(path, "md5"))
        progress.finish()
        return _Outcome(n_bytes, fetched=n_bytes > 0 or not existed, verified=md5 is not None)

    def _expected_md5(self, file: DatasetFile) -> str | None:
        if file.md5_path is None:
            return None
        return self._downloader.md5(self._url(file.md5_path), self._out / file.md5_path)


class _FileProgress:
    """Progress of one file as a part of the overall progress."""

    def __init__(self, job: _Job, overall: Progress, lock: threading.Lock) -> None:
        self._overall = overall
        self._lock = lock
        self._total = job.n_bytes
        self._done = job.kept

    def start(self, total: int, done: int = 0) -> None:
        """Note that the download resumes after ``done`` bytes, possibly fewer than were kept."""
        self.advance(done - self._done)

    def advance(self, units: int = 1, **details: float) -> None:
        self._done += units
        with self._lock:
            self._overall.advance(units, **details)

    def finish(self) -> None:
        """Count all remaining bytes of the file."""
        self.advance(self._total - self._done)


class FetchRecord:
    """Thread-safe record of finished files: size, modification time and MD5."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / ".hgld-fetched.json"
        self._lock = threading.Lock()
        self._files = self._read()

    def is_finished(self, file: DatasetFile) -> bool:
        """Return whether a file exists with the recorded size and time of modification."""
        path = self._folder / file.path
        entry = self._files.get(file.path)
        if entry is None or not path.is_file():
            return False
        stat = path.stat()
        return bool(stat.st_size == entry["size"] and stat.st_mtime_ns == entry["mtime_ns"])

    def md5(self, file: DatasetFile) -> str:
        """Return the MD5 of a finished file."""
        return str(self._files[file.path]["md5"])

    def add(self, file: DatasetFile, md5: str) -> None:
        """Record a file as finished."""
        stat = (self._folder / file.path).stat()
        with self._lock:
            self._files[file.path] = {
                "size": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
                "md5": md5,
            }
            document = {"format": _RECORD_FORMAT, "files": self._files}
            with atomic_write(self._path) as draft:
                draft.write_text(json.dumps(document, indent=1), encoding="utf-8")

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            if document["format"] != _RECORD_FORMAT:
                raise ValueError(f"its format is {document['format']}, expected {_RECORD_FORMAT}")
            return dict(document["files"])
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self._path} is damaged ({error}); delete it, and the files in the folder are verified once more"
            ) from error


def files_to_fetch(config: FetchConfig) -> list[DatasetFile]:
    """Return the files to download, metadata first."""
    files = []
    if config.metadata:
        files += metadata_files(config.split)
    if config.images:
        files += shard_files(config.split, config.shards)
    return files
