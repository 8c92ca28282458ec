"""Take photographs by id out of tar files, or from Wikimedia Commons, to a folder in GLDv2's layout.

The folder gets tar files of photographs and the table ``photographs``, which says of each where it is from, who made
it and under which licence, or why it is absent. Every photograph is recorded in a journal once it is written, so that
a run that was killed at any moment is resumed by the same call.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.gldv2.commons_source import CommonsSource
from hgld.gldv2.download import DownloadConfig
from hgld.gldv2.files import HOST_URL, N_SHARDS
from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.photograph_sources import Photograph, PhotographSource, SourcePlan
from hgld.gldv2.photograph_store import PhotographStore
from hgld.gldv2.tar_source import FolderSource, MirrorSource, mean_image_bytes
from hgld.io.journal import Journal
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress, byte_size
from hgld.tables import PHOTOGRAPHS, Provenance, read_provenance, read_table, write_table
from hgld.wikimedia.client import ClientConfig

#: Name of the table in the folder.
TABLE_NAME = "photographs.parquet"
#: Kind of the journal's facts about photographs: rows of the table by id.
_PHOTOGRAPH = "photograph"
_ROW = pa.struct(
    [field.with_type(pa.string()) if field.name == "uploaded_at" else field for field in PHOTOGRAPHS.schema][1:]
)

Row = dict[str, Any]


@dataclass(frozen=True)
class PhotographsConfig:
    """Where photographs come from.

    Args:
        source: ``commons``; ``shards`` for the tar files of the dataset's host or a mirror; or a folder with tar
            files, or the table of ``hgld index-images`` in one.
        split: Split of the photographs, which names the folder of the tar files.
        width: Width of the thumbnails from Commons in pixels; narrower photographs keep their size.
        shards: Numbers of the tar files to search, for ``shards``.
        base_url: Address of the dataset's host or a mirror, for ``shards``.
        client: Address of Commons, and limits on requests to it.
        download: Time limits and retries of downloads of tar files.

    Raises:
        ConfigurationError: The split is unknown, there is no such source, or ``shards`` are named for another one.
    """

    source: str | Path = "commons"
    split: str = "train"
    width: int = 500
    shards: tuple[int, ...] | None = None
    base_url: str = HOST_URL
    client: ClientConfig | None = None
    download: DownloadConfig = field(default_factory=DownloadConfig)

    def __post_init__(self) -> None:
        if self.split not in N_SHARDS:
            raise ConfigurationError(f'`split` is "{self.split}"; expected one of {", ".join(N_SHARDS)}')
        if self.source == "commons" and self.client is None:
            raise ConfigurationError("`client` is needed for photographs from Commons")
        if self.source not in ("commons", "shards") and not Path(self.source).exists():
            raise ConfigurationError(
                f"{self.source}: no such file or folder; expected commons, shards, a folder of tar files, or the "
                "table of hgld index-images in one"
            )
        if self.source != "shards" and self.shards is not None:
            raise ConfigurationError("`shards` are tar files of a mirror; without one, leave them out")

    def origin(self) -> Row:
        """Return what the photographs of one folder have in common, as JSON."""
        if self.source == "commons":
            assert self.client is not None
            return {"source": "commons", "split": self.split, "width": self.width, "url": self.client.commons_url}
        return {"source": "tar files", "split": self.split}


@dataclass(frozen=True)
class FetchPlan:
    """What a run is going to do.

    Args:
        wanted: Number of photographs in the list.
        there: Number of them that earlier runs put into the folder, or found to be absent.
        work: What the source is going to do for the others.
        disk_bytes: Bytes that it needs on the disk, about.
    """

    wanted: int
    there: int
    work: SourcePlan
    disk_bytes: float


@dataclass(frozen=True)
class PhotographsSummary:
    """Outcome of a run.

    Args:
        statuses: Number of wanted photographs by status.
        fetched: Number of photographs that were added in this run.
        n_bytes: Their size.
        problems: What went wrong, for photographs with the status ``error``.
        seconds: Duration of the run.
    """

    statuses: Mapping[str, int]
    fetched: int
    n_bytes: int
    problems: list[str]
    seconds: float


def plan_photographs(photographs: PhotographList, out: Path, config: PhotographsConfig) -> FetchPlan:
    """Return what :func:`fetch_photographs` is going to do; nothing is written or downloaded."""
    known, _ = _known_rows(out, config)
    path = _journal_path(out)
    if path.exists():
        with Journal(path, config.origin()) as journal:
            return _plan(photographs, known | _recorded(journal), _source(photographs, out, config, journal), config)
    return _plan(photographs, known, _source(photographs, out, config, None), config)


def fetch_photographs(
    photographs: PhotographList,
    out: Path,
    config: PhotographsConfig,
    *,
    force: bool = False,
    announce: Callable[[FetchPlan], None] | None = None,
    progress: Progress | None = None,
) -> PhotographsSummary | None:
    """Write photographs to tar files in a folder, with the table ``photographs``; the same call resumes.

    A folder may be extended by further lists, from the same source. Photographs that do not exist any more are listed
    in the table with the reason.

    Args:
        photographs: Wanted photographs.
        out: Folder of the dataset; the tar files are below it in the folder of the split.
        config: Where the photographs come from.
        force: Remove the photographs of the folder's table, and take all again.
        announce: Called with the plan before anything is downloaded.
        progress: Receives the number of photographs.

    Returns:
        Outcome of the run; None if the same call has finished before.

    Raises:
        ConfigurationError: The folder holds photographs from another source, the disk is too small, or the server
            refuses this client or has never answered.
        SourceError: The server seems to be down; what has arrived is kept.
        BusyError: Another run is writing to ``out``.
    """
    start = time.monotonic()
    parameters = config.origin() | {"shards": config.shards and list(config.shards)}
    provenance = Provenance("fetch", parameters, {"ids": photographs.digest})
    out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        if force:
            _discard(out, config)
        known, made = _known_rows(out, config)
        path = _journal_path(out)
        if made is not None and made.same_work(provenance) and not path.exists():
            return None
        with Journal(path, config.origin()) as journal:
            known |= _recorded(journal)
            source = _source(photographs, out, config, journal)
            try:
                plan = _plan(photographs, known, source, config)
                _check_space(out, plan)
                if announce is not None:
                    announce(plan)
                run = _Run(photographs, out, config, known, journal, progress or NoProgress())
                run.take_from(source)
            finally:
                source.close()
        run.write_table(provenance)
        if not run.problems:
            path.unlink()
    statuses = Counter(run.rows[image_id]["status"] for image_id in photographs.ids)
    return PhotographsSummary(statuses, run.fetched, run.n_bytes, run.problems, time.monotonic() - start)


class _Run:
    """Takes photographs from a source, and records each.

    Attributes:
        rows: Rows of the table by id, those of earlier runs included.
        fetched: Number of photographs that were added.
        n_bytes: Their size.
        problems: What went wrong.
    """

    def __init__(
        self,
        photographs: PhotographList,
        out: Path,
        config: PhotographsConfig,
        known: dict[str, Row],
        journal: Journal,
        progress: Progress,
    ) -> None:
        self._photographs, self._out, self._split = photographs, out, config.split
        self._journal, self._progress = journal, progress
        self.rows = known
        self.fetched = self.n_bytes = 0
        self.problems: list[str] = []

    def take_from(self, source: PhotographSource) -> None:
        """Take all photographs that are neither there nor known to be absent."""
        recorded = {image_id for image_id, row in self.rows.items() if row["status"] == "ok"}
        with PhotographStore(self._out, self._split, recorded) as store:
            for image_id in recorded - store.ids:  # somebody deleted a tar file
                del self.rows[image_id]
            left = [image_id for image_id in self._photographs.ids if image_id not in self.rows]
            self._progress.start(len(self._photographs.ids), len(self._photographs.ids) - len(left))
            for photograph in source.photographs(left):
                self._add(photograph, store)
                self._progress.advance(bytes=self.n_bytes)
            store.finish()

    def write_table(self, provenance: Provenance) -> None:
        """Write the table of all photographs of the folder."""
        rows = [{"id": image_id, **self.rows[image_id]} for image_id in sorted(self.rows)]
        for row in rows:
            if row["uploaded_at"] is not None:
                row["uploaded_at"] = datetime.fromisoformat(row["uploaded_at"].replace("Z", "+00:00"))
        write_table(self._out / TABLE_NAME, PHOTOGRAPHS, pa.Table.from_pylist(rows, PHOTOGRAPHS.schema), provenance)

    def _add(self, photograph: Photograph, store: PhotographStore) -> None:
        names = set(PHOTOGRAPHS.schema.names) - {"id", "shard", "width", "height", "sha1"}
        row = {name: getattr(photograph, name) for name in names}
        row |= {"shard": None, "width": None, "height": None, "sha1": None}
        if (file := photograph.file) is not None:
            sha1 = hashlib.sha1(file.data, usedforsecurity=False).hexdigest()
            row |= {"shard": store.shard, "width": file.width, "height": file.height, "sha1": sha1}
            store.add(photograph.id, file.suffix, file.data)
            self.fetched += 1
            self.n_bytes += len(file.data)
        self.rows[photograph.id] = row
        if photograph.status == "error":
            self.problems.append(f"{photograph.id}: {photograph.problem}")
        else:
            self._journal.append(_PHOTOGRAPH, int(time.time()), {photograph.id: row})


def _plan(
    photographs: PhotographList, known: Mapping[str, Row], source: PhotographSource, config: PhotographsConfig
) -> FetchPlan:
    left = [image_id for image_id in photographs.ids if image_id not in known]
    work = source.plan(left)
    disk_bytes = float(work.n_bytes)
    if work.kind == "mirror":  # one tar file at a time, and what is taken out of it
        disk_bytes = work.n_bytes / max(1, work.shards) + len(left) * mean_image_bytes(config.split)
    return FetchPlan(len(photographs.ids), len(photographs.ids) - len(left), work, disk_bytes)


def _check_space(out: Path, plan: FetchPlan) -> None:
    free = shutil.disk_usage(out).free
    if plan.disk_bytes > free:
        raise ConfigurationError(
            f"{out}: the photographs need about {byte_size(plan.disk_bytes)}, but the disk has only "
            f"{byte_size(free)} left; free some space, or choose another folder (`out`)"
        )


def _source(
    photographs: PhotographList, out: Path, config: PhotographsConfig, journal: Journal | None
) -> PhotographSource:
    if config.source == "commons":
        assert config.client is not None
        return CommonsSource(config.client, photographs, config.width)
    if config.source == "shards":
        folder = out / ".download"
        return MirrorSource(
            config.base_url, config.split, config.shards, folder, photographs, journal, config.download
        )
    return FolderSource(Path(config.source), photographs)


def _journal_path(out: Path) -> Path:
    return out / f"{TABLE_NAME}.journal"


def _known_rows(out: Path, config: PhotographsConfig) -> tuple[dict[str, Row], Provenance | None]:
    """Return the rows of photographs that are there, and the provenance of the folder's table.

    Raises:
        ConfigurationError: The folder holds photographs from another source, or tar files of other origin.
    """
    table, journal = out / TABLE_NAME, _journal_path(out)
    if not table.exists():
        if not journal.exists() and any((out / config.split).glob("*.tar")):
            raise ConfigurationError(
                f"{out / config.split} holds tar files without a table {TABLE_NAME}; choose another folder (`out`)"
            )
        return {}, None
    made = read_provenance(table)
    origin = {name: made.parameters.get(name) for name in config.origin()}
    if origin != config.origin():
        raise ConfigurationError(
            f"{out} holds photographs from {_describe(made.parameters)}, which are not mixed with those from "
            f"{_describe(config.origin())}; choose another folder (`out`)"
        )
    rows = {}
    for row in read_table(table, PHOTOGRAPHS).to_pylist():
        if row["status"] == "ok":
            row["uploaded_at"] = row["uploaded_at"] and row["uploaded_at"].isoformat()
            rows[row.pop("id")] = row
    return rows, made


def _discard(out: Path, config: PhotographsConfig) -> None:
    """Remove the tar files that the folder's table lists, what an interrupted run left, and last the table."""
    table = out / TABLE_NAME
    if table.exists():
        for shard in set(read_table(table, PHOTOGRAPHS)["shard"].to_pylist()) - {None}:
            (out / shard).unlink(missing_ok=True)
    for part in (out / config.split).glob("*.tar.part"):
        part.unlink()
    for path in (_journal_path(out), table):
        path.unlink(missing_ok=True)


def _recorded(journal: Journal) -> dict[str, Row]:
    return {
        image_id: row
        for kind, _, rows in journal.batches(_read_fact)
        if kind == _PHOTOGRAPH
        for image_id, row in rows.items()
    }


def _read_fact(kind: str, fact: Any) -> Any:
    """Return a fact of the journal; raise ValueError or TypeError if it is about a photograph, but no row."""
    if kind == _PHOTOGRAPH:
        if set(fact) != set(_ROW.names):
            raise ValueError("other columns")
        pa.array([fact], _ROW)
    return fact


def _describe(origin: Mapping[str, Any]) -> str:
    """Describe the origin of a folder for a message.

    >>> _describe({"source": "commons", "split": "train", "width": 500, "url": "https://commons.wikimedia.org"})
    'commons (split train, url https://commons.wikimedia.org, width 500)'
    """
    details = ", ".join(
        f"{name} {value}" for name, value in sorted(origin.items()) if name not in ("source", "shards")
    )
    return f"{origin.get('source')} ({details})"
