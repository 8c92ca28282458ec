"""Fetch photographs by id from tar files or Wikimedia Commons to a folder in GLDv2's layout.

The folder gets tar files of photographs and the table ``photographs``, which has the source, author
and licence of each photograph, or the reason why it is missing. Every photograph is recorded in a
journal after it is written, so that the same call resumes a run that was killed at any moment.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.photograph_sources import (
    CommonsSource,
    FolderSource,
    MirrorSource,
    Photograph,
    PhotographSource,
    SourcePlan,
    mean_image_bytes,
)
from hgld.gldv2.photograph_store import PhotographStore
from hgld.gldv2.settings import PhotographsConfig
from hgld.io.journal import Journal
from hgld.io.locks import exclusive_lock
from hgld.io.writable import require_free_space
from hgld.progress import NoProgress, Progress
from hgld.tables import PHOTOGRAPHS, Provenance, read_provenance, read_table, write_table

#: Name of the table in the folder.
TABLE_NAME = "photographs.parquet"
#: Kind of the journal's facts about photographs: rows of the table by id.
_PHOTOGRAPH = "photograph"
#: Type of these rows: columns of the table without the id, with the upload time as text.
_ROW = pa.struct(
    [
        field.with_type(pa.string()) if field.name == "uploaded_at" else field
        for field in list(PHOTOGRAPHS.schema)[1:]
    ]
)

Row = dict[str, Any]


@dataclass(frozen=True)
class FetchPlan:
    """Planned work of a run.

    Args:
        wanted: Number of photographs of the list.
        there: Number of photographs that earlier runs put into the folder or found to be missing.
        work: Planned work of the source.
        disk_bytes: Approximate number of bytes that the run needs on the disk.
    """

    wanted: int
    there: int
    work: SourcePlan
    disk_bytes: float


@dataclass(frozen=True)
class PhotographsSummary:
    """Outcome of a run.

    Args:
        statuses: Number of photographs of the list by status.
        fetched: Number of fetched photographs.
        n_bytes: Number of bytes of the fetched photographs.
        problems: A message for each photograph with an error, which the same call tries again.
        seconds: Duration of the run.
    """

    statuses: Mapping[str, int]
    fetched: int
    n_bytes: int
    problems: list[str]
    seconds: float


def plan_photographs(
    photographs: PhotographList, out: Path, config: PhotographsConfig
) -> FetchPlan:
    """Return the planned work of :func:`fetch_photographs`, without writing or downloading."""
    rows, _ = _read_output(out, config)
    path = _journal_path(out)
    if not path.exists():
        return _plan(photographs, rows, _source(photographs, out, config, None), config)
    with Journal(path, config.origin()) as journal:
        rows |= _recorded_rows(journal)
        return _plan(photographs, rows, _source(photographs, out, config, journal), config)


def fetch_photographs(
    photographs: PhotographList,
    out: Path,
    config: PhotographsConfig,
    *,
    force: bool = False,
    announce: Callable[[FetchPlan], None] | None = None,
    progress: Progress | None = None,
) -> PhotographsSummary | None:
    """Write photographs to tar files and the table ``photographs``; the same call resumes.

    Further lists from the same source may be added to a folder. The table also has photographs that
    no longer exist, with the reason.

    Args:
        photographs: Photographs to fetch.
        out: Folder of the dataset; the tar files are below it in the folder of the split.
        config: Source of the photographs.
        force: Remove the photographs of the folder's table, and fetch all photographs again.
        announce: Called with the plan before downloads begin.
        progress: Progress of the photographs.

    Returns:
        Outcome of the run; None if the same call has finished before.

    Raises:
        ConfigurationError: The folder holds photographs from another source, or the disk is too
            small.
        SourceError: The server seems to be down; received photographs are kept.
    """
    start = time.monotonic()
    parameters = config.origin()
    parameters["shards"] = config.shards and list(config.shards)
    provenance = Provenance("fetch", parameters, {"ids": photographs.digest})
    out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        if force:
            _discard(out, config)
        rows, earlier = _read_output(out, config)
        path = _journal_path(out)
        if earlier is not None and earlier.same_work(provenance) and not path.exists():
            return None
        with Journal(path, config.origin()) as journal:
            rows |= _recorded_rows(journal)
            source = _source(photographs, out, config, journal)
            try:
                plan = _plan(photographs, rows, source, config)
                require_free_space(out, plan.disk_bytes, "the photographs")
                if announce is not None:
                    announce(plan)
                run = _Run(photographs, out, config.split, rows, journal, progress or NoProgress())
                run.fetch_from(source)
            finally:
                source.close()
        run.write_table(provenance)
        if not run.problems:
            path.unlink()
    statuses = Counter(run.rows[image_id]["status"] for image_id in photographs.ids)
    seconds = time.monotonic() - start
    return PhotographsSummary(statuses, run.fetched, run.n_bytes, run.problems, seconds)


@dataclass
class _Run:
    """Fetches photographs from a source, and records them in the table and the journal.

    Args:
        photographs: Photographs to fetch.
        out: Folder of the dataset.
        split: Split of the photographs.
        rows: Rows of the table by id, which the run extends.
        journal: Journal of the photographs.
        progress: Progress of the photographs.
    """

    photographs: PhotographList
    out: Path
    split: str
    rows: dict[str, Row]
    journal: Journal
    progress: Progress
    fetched: int = 0
    n_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def fetch_from(self, source: PhotographSource) -> None:
        """Fetch all photographs that are neither in the folder nor known to be missing."""
        recorded = {image_id for image_id, row in self.rows.items() if row["status"] == "ok"}
        ids = self.photographs.ids
        with closing(PhotographStore(self.out, self.split, recorded)) as store:
            for image_id in recorded - store.ids:  # its tar file was deleted
                del self.rows[image_id]
            remaining = [image_id for image_id in ids if image_id not in self.rows]
            self.progress.start(len(ids), len(ids) - len(remaining))
            for photograph in source.photographs(remaining):
                self._add(photograph, store)
                self.progress.advance(bytes=self.n_bytes)
            store.finish()

    def write_table(self, provenance: Provenance) -> None:
        """Write the table of all photographs of the folder."""
        rows = []
        for image_id in sorted(self.rows):
            row = {"id": image_id, **self.rows[image_id]}
            if row["uploaded_at"] is not None:
                text = row["uploaded_at"].replace("Z", "+00:00")
                row["uploaded_at"] = datetime.fromisoformat(text)
            rows.append(row)
        table = pa.Table.from_pylist(rows, PHOTOGRAPHS.schema)
        write_table(self.out / TABLE_NAME, PHOTOGRAPHS, table, provenance)

    def _add(self, photograph: Photograph, store: PhotographStore) -> None:
        row = {name: getattr(photograph, name, None) for name in _ROW.names}
        file = photograph.file
        if file is not None:
            row["shard"] = store.shard
            row["width"] = file.width
            row["height"] = file.height
            row["sha1"] = hashlib.sha1(file.data, usedforsecurity=False).hexdigest()
            store.add(photograph.id, file.suffix, file.data)
            self.fetched += 1
            self.n_bytes += len(file.data)
        self.rows[photograph.id] = row
        if photograph.status == "error":
            self.problems.append(f"{photograph.id}: {photograph.problem}")
        else:
            self.journal.append(_PHOTOGRAPH, int(time.time()), {photograph.id: row})


def _plan(
    photographs: PhotographList,
    rows: Mapping[str, Row],
    source: PhotographSource,
    config: PhotographsConfig,
) -> FetchPlan:
    """Return the planned work, given the rows of earlier runs."""
    remaining = [image_id for image_id in photographs.ids if image_id not in rows]
    work = source.plan(remaining)
    disk_bytes = float(work.n_bytes)
    if work.kind == "mirror":  # one tar file at a time, and its photographs
        disk_bytes = work.n_bytes / max(1, work.shards)
        disk_bytes += len(remaining) * mean_image_bytes(config.split)
    n_wanted = len(photographs.ids)
    return FetchPlan(n_wanted, n_wanted - len(remaining), work, disk_bytes)


def _source(
    photographs: PhotographList, out: Path, config: PhotographsConfig, journal: Journal | None
) -> PhotographSource:
    """Return the source that the settings name."""
    if config.source == "commons":
        assert config.client is not None
        return CommonsSource(config.client, photographs, config.width)
    if config.source == "shards":
        return MirrorSource(
            config.base_url,
            config.split,
            config.shards,
            out / ".download",
            photographs,
            journal,
            config.download,
        )
    return FolderSource(Path(config.source), photographs)


def _journal_path(out: Path) -> Path:
    return out / f"{TABLE_NAME}.journal"


def _read_output(out: Path, config: PhotographsConfig) -> tuple[dict[str, Row], Provenance | None]:
    """Return the rows of photographs in the folder, and the provenance of the folder's table.

    Raises:
        ConfigurationError: The folder has photographs from another source, or tar files without a
            table.
    """
    table = out / TABLE_NAME
    if not table.exists():
        if not _journal_path(out).exists() and any((out / config.split).glob("*.tar")):
            raise ConfigurationError(
                f"{out / config.split} holds tar files without a table {TABLE_NAME}; choose another folder (`out`)"
            )
        return {}, None
    provenance = read_provenance(table)
    origin = {name: provenance.parameters.get(name) for name in config.origin()}
    if origin != config.origin():
        raise ConfigurationError(
            f"{out} holds photographs from {_describe(provenance.parameters)}, which are not mixed with those from "
            f"{_describe(config.origin())}; choose another folder (`out`)"
        )
    rows = {}
    for row in read_table(table, PHOTOGRAPHS).to_pylist():
        if row["status"] == "ok":
            if row["uploaded_at"] is not None:
                row["uploaded_at"] = row["uploaded_at"].isoformat()
            rows[row.pop("id")] = row
    return rows, provenance


def _discard(out: Path, config: PhotographsConfig) -> None:
    """Remove the tar files of the table, leftovers of an interrupted run, and last the table."""
    table = out / TABLE_NAME
    if table.exists():
        for shard in read_table(table, PHOTOGRAPHS)["shard"].unique().drop_null().to_pylist():
            (out / shard).unlink(missing_ok=True)
    for part in (out / config.split).glob("*.tar.part"):
        part.unlink()
    _journal_path(out).unlink(missing_ok=True)
    table.unlink(missing_ok=True)


def _recorded_rows(journal: Journal) -> dict[str, Row]:
    """Return the rows of photographs in the journal, by id."""
    recorded: dict[str, Row] = {}
    for kind, _, rows in journal.batches(_read_fact):
        if kind == _PHOTOGRAPH:
            recorded |= rows
    return recorded


def _read_fact(kind: str, fact: Any) -> Any:
    """Return a fact of the journal; raise ValueError or TypeError for an invalid row."""
    if kind == _PHOTOGRAPH:
        if set(fact) != set(_ROW.names):
            raise ValueError("other columns")
        pa.array([fact], _ROW)
    return fact


def _describe(origin: Mapping[str, Any]) -> str:
    """Describe the origin of a folder, such as commons (split train, width 500)."""
    details = []
    for name, value in sorted(origin.items()):
        if name not in ("source", "shards"):
            details.append(f"{name} {value}")
    return f"{origin.get('source')} ({', '.join(details)})"
