"""``hgld fetch gldv2``: the dataset's files from its host to a folder, each once, verified.

A first pass asks for the sizes of what is missing, so that a disk that is too small is told at once; a second one
fetches. Which files are finished is written down in ``.hgld-fetched.json`` with their size, date and MD5: half a
terabyte need not be read again to know. A tar file that came in another way is verified once.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.gldv2.download import AbsentError, DownloadConfig, Downloader
from hgld.gldv2.files import HOST, N_SHARDS, DatasetFile, metadata_files, read_md5, shard_files
from hgld.gldv2.partial_download import part_of
from hgld.io.files import atomic_write, digest_of
from hgld.io.http import RetriesExhaustedError
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress, byte_size

log = logging.getLogger(__name__)
T = TypeVar("T")

#: So many files given up in a row mean that the server is down, or this machine offline.
_GIVEN_UP_IN_A_ROW = 4


@dataclass(frozen=True)
class FetchConfig:
    """What to fetch, and from where.

    Args:
        split: train, index or test.
        metadata: the CSV files.
        images: the tar files of photographs.
        shards: the numbers of those tar files; None is all.
        workers: files under way at once.
        base_url: the dataset's host, or a mirror of it.
        verify: read again what is there, and fetch anew what is not what it was.
        force: fetch anew what is there.
        download: how patient to be.
    """

    split: str
    metadata: bool = False
    images: bool = False
    shards: Sequence[int] | None = None
    workers: int = 4
    base_url: str = HOST
    verify: bool = False
    force: bool = False
    download: DownloadConfig = field(default_factory=DownloadConfig)

    def __post_init__(self) -> None:
        if self.split not in N_SHARDS:
            raise ConfigurationError(f'the split is "{self.split}"; expected one of {", ".join(N_SHARDS)}')
        if not (self.metadata or self.images):
            raise ConfigurationError("nothing to fetch: ask for --metadata, --images or both")
        if self.shards is not None and not self.images:
            raise ConfigurationError("shards are of photographs: --shards goes with --images")
        if not 1 <= self.workers <= 16:
            raise ConfigurationError(f"{self.workers} workers; expected 1 to 16")
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f'the base URL is "{self.base_url}"; expected a URL such as {HOST}')

    def files(self) -> list[DatasetFile]:
        """The files asked for, metadata first."""
        metadata = metadata_files(self.split) if self.metadata else []
        return metadata + (shard_files(self.split, self.shards) if self.images else [])


@dataclass(frozen=True)
class FetchSummary:
    """What came of every file.

    Args:
        fetched: how many were fetched.
        n_bytes: how many bytes were transferred.
        there: how many were there already.
        verified: how many, of both, were read and compared with an MD5.
        failed: why the others are not there, a message each.
        seconds: how long it took.
    """

    fetched: int
    n_bytes: int
    there: int
    verified: int
    failed: Sequence[str]
    seconds: float

    def __str__(self) -> str:
        n_files = self.fetched + self.there + len(self.failed)
        return (
            f"{n_files:,} files: {self.fetched:,} fetched ({byte_size(self.n_bytes)} in {self.seconds:.1f} s), "
            f"{self.there:,} there already, {self.verified:,} verified by MD5, {len(self.failed):,} failed"
        )


def fetch_gldv2(out: Path, config: FetchConfig, *, progress: Progress | None = None) -> FetchSummary:
    """Bring the files that ``config`` names to the folder ``out``; the same call goes on after an interruption.

    Args:
        out: the folder, laid out as :mod:`hgld.gldv2.files` says.
        config: what to fetch.
        progress: told of bytes.

    Returns:
        What came of them; a file that could not be had is among ``failed`` and does not keep the others away.

    Raises:
        ConfigurationError: the disk is full, or has too little space for what is missing.
        InputError: the record of what is finished is damaged.
        BusyError: another run is writing to ``out``.
    """
    out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        return _Run(out, config, progress or NoProgress()).run()


@dataclass(frozen=True)
class _Task:
    """What is to be done for a file.

    Args:
        file: the file.
        url: where to fetch it from; None to read what is there and compare it with the record.
        n_bytes: how large it is; 0 where the server does not say.
        kept: how many bytes an earlier run left.
        needs: how much space it takes on the disk.
        anew: replace what is there.
    """

    file: DatasetFile
    url: str | None
    n_bytes: int
    kept: int = 0
    needs: int = 0
    anew: bool = False


@dataclass(frozen=True)
class _Done:
    """What came of a file."""

    n_bytes: int = 0
    fetched: bool = False
    verified: bool = False


class _Run:
    """One call of :func:`fetch_gldv2`."""

    def __init__(self, out: Path, config: FetchConfig, progress: Progress) -> None:
        self._out, self._config, self._progress = out, config, progress
        self._downloader = Downloader(config.download)
        self._record = _Record(out)
        self._lock = threading.Lock()
        self._given_up = 0

    def run(self) -> FetchSummary:
        began = time.monotonic()
        pool = ThreadPoolExecutor(self._config.workers)
        try:
            planned = list(pool.map(lambda file: self._try(file, lambda: self._plan(file)), self._config.files()))
            tasks = [task for task in planned if isinstance(task, _Task)]
            self._check_space(tasks)
            self._progress.start(sum(task.n_bytes for task in tasks), sum(task.kept for task in tasks))
            done = list(pool.map(lambda task: self._try(task.file, lambda: self._carry_out(task)), tasks))
        finally:
            self._downloader.close()
            pool.shutdown(cancel_futures=True)
        results = [result for result in [*planned, *done] if isinstance(result, _Done)]
        fetched = sum(result.fetched for result in results)
        return FetchSummary(
            fetched=fetched,
            n_bytes=sum(result.n_bytes for result in results),
            there=len(results) - fetched,
            verified=sum(result.verified for result in results),
            failed=[result for result in [*planned, *done] if isinstance(result, str)],
            seconds=time.monotonic() - began,
        )

    def _try(self, file: DatasetFile, work: Callable[[], T]) -> T | str:
        """What the work returns, or why the file cannot be had; a server that is down is not asked for more."""
        if self._given_up >= _GIVEN_UP_IN_A_ROW:
            return f"{file.path}: not tried, as the server did not answer for the files before"
        given_up = False
        try:
            return work()
        except SourceError as error:
            given_up = isinstance(error, RetriesExhaustedError)
            return str(error)
        finally:
            with self._lock:
                self._given_up = self._given_up + 1 if given_up else 0

    def _plan(self, file: DatasetFile) -> _Task | _Done:
        """What is left to do for a file."""
        if self._config.force or not self._record.holds(file):
            return self._to_fetch(file, anew=self._config.force)
        if self._config.verify:
            return _Task(file, None, (self._out / file.path).stat().st_size)
        return _Done()

    def _to_fetch(self, file: DatasetFile, *, anew: bool) -> _Task:
        url, size = self._locate(file)
        path = self._out / file.path
        part = part_of(path)
        kept = part.stat().st_size if part.exists() else 0
        if path.exists() and file.md5_path is None and path.stat().st_size != size:
            anew = True
        needs = 0 if path.exists() and not anew else max(0, (size or 0) - kept)
        return _Task(file, url, size or 0, kept, needs, anew)

    def _locate(self, file: DatasetFile) -> tuple[str, int | None]:
        """The URL of a file and its size."""
        absent = []
        for place in file.places:
            url = self._url(place)
            try:
                return url, self._downloader.size(url)
            except AbsentError as error:
                absent.append(error)
        raise absent[0]

    def _url(self, place: str) -> str:
        return f"{self._config.base_url.rstrip('/')}/{place}"

    def _check_space(self, tasks: Sequence[_Task]) -> None:
        needed, free = sum(task.needs for task in tasks), shutil.disk_usage(self._out).free
        if needed > free:
            raise ConfigurationError(
                f"{self._out}: {byte_size(needed)} are to come, but the disk has only {byte_size(free)} left; free "
                "some space, choose another folder (-o), or fetch fewer shards (--shards 0:9)"
            )

    def _carry_out(self, task: _Task) -> _Done:
        share = _Share(task, self._progress, self._lock)
        path = self._out / task.file.path
        if task.url is None:
            if digest_of(path, "md5") == self._record.md5(task.file):
                share.end()
                return _Done(verified=True)
            log.warning("%s is not what was fetched; it is fetched anew", path)
            task = self._to_fetch(task.file, anew=True)
        assert task.url is not None
        md5, was_there = self._expected_md5(task.file), path.exists()
        n_bytes = self._downloader.download(task.url, path, md5=md5, anew=task.anew, progress=share)
        self._record.add(task.file, md5 or digest_of(path, "md5"))
        share.end()
        return _Done(n_bytes, fetched=n_bytes > 0 or not was_there, verified=md5 is not None)

    def _expected_md5(self, file: DatasetFile) -> str | None:
        if file.md5_path is None:
            return None
        path = self._out / file.md5_path
        self._downloader.download(self._url(file.md5_path), path, anew=True)
        return read_md5(path)


class _Share:
    """The part that one file has in the progress of all; see :class:`hgld.progress.Progress`."""

    def __init__(self, task: _Task, whole: Progress, lock: threading.Lock) -> None:
        self._whole, self._lock = whole, lock
        self._total, self._done = task.n_bytes, task.kept

    def start(self, total: int, done: int = 0) -> None:
        """The download goes on after ``done`` bytes, which may be fewer than were kept."""
        self.advance(done - self._done)

    def advance(self, units: int = 1, **details: float) -> None:
        self._done += units
        with self._lock:
            self._whole.advance(units, **details)

    def end(self) -> None:
        """The file is there, however it came."""
        self.advance(self._total - self._done)


class _Record:
    """Which files of a folder are finished, with the size, date and MD5 that each had then."""

    _FORMAT = "hgld.fetched/1"

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / ".hgld-fetched.json"
        self._lock = threading.Lock()
        self._files = self._read()

    def holds(self, file: DatasetFile) -> bool:
        """Whether the file is there as it was when it was finished, by size and date."""
        path, entry = self._folder / file.path, self._files.get(file.path)
        if entry is None or not path.is_file():
            return False
        stat = path.stat()
        return (stat.st_size, stat.st_mtime_ns) == (entry["size"], entry["mtime_ns"])

    def md5(self, file: DatasetFile) -> str:
        return str(self._files[file.path]["md5"])

    def add(self, file: DatasetFile, md5: str) -> None:
        """Write down that the file is finished."""
        stat = (self._folder / file.path).stat()
        with self._lock:
            self._files[file.path] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "md5": md5}
            document = {"format": self._FORMAT, "files": self._files}
            with atomic_write(self._path) as draft:
                draft.write_text(json.dumps(document, indent=1), encoding="utf-8")

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            if document["format"] != self._FORMAT:
                raise ValueError(f"its format is {document['format']}, expected {self._FORMAT}")
            return dict(document["files"])
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self._path} is damaged ({error}); delete it, and the files in the folder are verified once more"
            ) from error
