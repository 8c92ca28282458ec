"""Take photographs by id out of tar files, or from Wikimedia Commons, to a folder in GLDv2's layout.

The folder gets tar files of photographs and the table ``photographs``, which says of each where it is from, who made
it and under which licence, or why it is absent. Every photograph is recorded in a journal once it is written, so that
a run that was killed at any moment is resumed by the same call.
"""

from __future__ import annotations

import hashlib
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.gldv2.photograph_sources import (
    CommonsSource,
    FolderSource,
    MirrorSource,
    Photograph,
    PhotographList,
    PhotographSource,
    SourcePlan,
    mean_image_bytes,
)
from hgld.gldv2.settings import PhotographsConfig
from hgld.gldv2.tar_images import index_shard
from hgld.io.files import exclusive_lock, require_free_space
from hgld.io.journal import Journal
from hgld.progress import NoProgress, Progress
from hgld.tables import PHOTOGRAPHS, Provenance, read_provenance, read_table, write_table

#: Name of the table in the folder.
TABLE_NAME = "photographs.parquet"
#: Kind of the journal's facts about photographs: rows of the table by id.
_PHOTOGRAPH = "photograph"
_ROW = pa.struct(
    [
        field.with_type(pa.string()) if field.name == "uploaded_at" else field
        for field in PHOTOGRAPHS.schema
    ][1:]
)

Row = dict[str, Any]

#: Bytes of a tar file are in blocks of this size.
_BLOCK = tarfile.BLOCKSIZE
#: Two blocks of zeros end a tar file, which is filled up to a multiple of a record.
_RECORD = tarfile.RECORDSIZE


@dataclass(frozen=True)
class FetchPlan:
    """What a run is going to do.

    Args:
        there: Number of them that earlier runs put into the folder, or found to be absent.
        disk_bytes: Bytes that it needs on the disk, about.
    """

    wanted: int
    there: int
    work: SourcePlan
    disk_bytes: float


@dataclass(frozen=True)
class PhotographsSummary:
    """Outcome of a run."""

    statuses: Mapping[str, int]
    fetched: int
    n_bytes: int
    problems: list[str]
    seconds: float


def plan_photographs(
    photographs: PhotographList, out: Path, config: PhotographsConfig
) -> FetchPlan:
    """Return what :func:`fetch_photographs` is going to do; nothing is written or downloaded."""
    known, _ = _known_rows(out, config)
    path = _journal_path(out)
    with Journal(path, config.origin()) if path.exists() else nullcontext() as journal:
        known |= {} if journal is None else _recorded(journal)
        return _plan(photographs, known, _source(photographs, out, config, journal), config)


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
        out: Folder of the dataset; the tar files are below it in the folder of the split.
        force: Remove the photographs of the folder's table, and take all again.
        announce: Called with the plan before anything is downloaded.

    Returns:
        Outcome of the run; None if the same call has finished before.

    Raises:
        ConfigurationError: The folder holds photographs from another source, or the disk is too small.
        SourceError: The server seems to be down; what has arrived is kept.
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
                require_free_space(out, plan.disk_bytes, "the photographs")
                if announce is not None:
                    announce(plan)
                run = _Run(photographs, out, config.split, known, journal, progress or NoProgress())
                run.take_from(source)
            finally:
                source.close()
        run.write_table(provenance)
        if not run.problems:
            path.unlink()
    statuses = Counter(run.rows[image_id]["status"] for image_id in photographs.ids)
    return PhotographsSummary(
        statuses, run.fetched, run.n_bytes, run.problems, time.monotonic() - start
    )


@dataclass
class _Run:
    """Takes photographs from a source, and records each in the rows of the table by id, and in the journal."""

    photographs: PhotographList
    out: Path
    split: str
    rows: dict[str, Row]
    journal: Journal
    progress: Progress
    fetched: int = 0
    n_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def take_from(self, source: PhotographSource) -> None:
        """Take all photographs that are neither there nor known to be absent."""
        recorded, ids = (
            {name for name, row in self.rows.items() if row["status"] == "ok"},
            self.photographs.ids,
        )
        with closing(PhotographStore(self.out, self.split, recorded)) as store:
            for image_id in recorded - store.ids:  # somebody deleted a tar file
                del self.rows[image_id]
            left = [image_id for image_id in ids if image_id not in self.rows]
            self.progress.start(len(ids), len(ids) - len(left))
            for photograph in source.photographs(left):
                self._add(photograph, store)
                self.progress.advance(bytes=self.n_bytes)
            store.finish()

    def write_table(self, provenance: Provenance) -> None:
        """Write the table of all photographs of the folder."""
        rows = [{"id": image_id, **self.rows[image_id]} for image_id in sorted(self.rows)]
        for row in rows:
            if row["uploaded_at"] is not None:
                row["uploaded_at"] = datetime.fromisoformat(
                    row["uploaded_at"].replace("Z", "+00:00")
                )
        write_table(
            self.out / TABLE_NAME,
            PHOTOGRAPHS,
            pa.Table.from_pylist(rows, PHOTOGRAPHS.schema),
            provenance,
        )

    def _add(self, photograph: Photograph, store: PhotographStore) -> None:
        row = {name: getattr(photograph, name, None) for name in _ROW.names}
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
            self.journal.append(_PHOTOGRAPH, int(time.time()), {photograph.id: row})


def _plan(
    photographs: PhotographList,
    known: Mapping[str, Row],
    source: PhotographSource,
    config: PhotographsConfig,
) -> FetchPlan:
    left = [image_id for image_id in photographs.ids if image_id not in known]
    work = source.plan(left)
    disk_bytes = float(work.n_bytes)
    if work.kind == "mirror":  # one tar file at a time, and what is taken out of it
        disk_bytes = work.n_bytes / max(1, work.shards) + len(left) * mean_image_bytes(config.split)
    return FetchPlan(len(photographs.ids), len(photographs.ids) - len(left), work, disk_bytes)


def _source(
    photographs: PhotographList, out: Path, config: PhotographsConfig, journal: Journal | None
) -> PhotographSource:
    if config.source == "commons":
        assert config.client is not None
        return CommonsSource(config.client, photographs, config.width)
    if config.source == "shards":
        folder = out / ".download"
        return MirrorSource(
            config.base_url,
            config.split,
            config.shards,
            folder,
            photographs,
            journal,
            config.download,
        )
    return FolderSource(Path(config.source), photographs)


def _journal_path(out: Path) -> Path:
    return out / f"{TABLE_NAME}.journal"


def _known_rows(out: Path, config: PhotographsConfig) -> tuple[dict[str, Row], Provenance | None]:
    """Return the rows of photographs that are there, and the provenance of the folder's table."""
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
    """Describe the origin of a folder, such as commons (split train, width 500)."""
    details = [
        f"{name} {value}"
        for name, value in sorted(origin.items())
        if name not in ("source", "shards")
    ]
    return f"{origin.get('source')} ({', '.join(details)})"


class PhotographStore:
    """Writes the photographs of a split to tar files in GLDv2's layout, one by one and safe from kills.

    Photographs are appended to a file that is not called ``.tar`` yet. What a run that was killed left there is kept
    up to the last of the recorded photographs. The finished file gets the next free number: ``train/images_000.tar``.
    """

    def __init__(self, folder: Path, split: str, recorded: Collection[str]) -> None:
        self._folder, self._split = folder, split
        shards = sorted((folder / split).glob("images_*.tar"))
        self.ids = {image_id for shard in shards for image_id in index_shard(shard).ids}
        numbers = [
            int(shard.stem[len("images_") :])
            for shard in shards
            if shard.stem[len("images_") :].isdecimal()
        ]
        self._number = max(numbers, default=-1) + 1
        #: Ids in the unfinished file.
        self._new: list[str] = []
        self._part.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._part.open("r+b" if self._part.exists() else "w+b")
        self._keep(recorded)

    @property
    def shard(self) -> str:
        """Path of the tar file that new photographs go to, relative to the folder."""
        return f"{self._split}/images_{self._number:03}.tar"

    def add(self, image_id: str, suffix: str, data: bytes) -> None:
        """Append a photograph; the suffix is that of its name, such as ``.jpg``."""
        header = tarfile.TarInfo("/".join((*image_id[:3], f"{image_id}{suffix}")))
        header.size = len(data)
        padding = bytes(-len(data) % _BLOCK)
        self._stream.write(header.tobuf(tarfile.USTAR_FORMAT) + data + padding)
        self._stream.flush()
        self._new.append(image_id)
        self.ids.add(image_id)

    def finish(self) -> None:
        """End the unfinished file and give it its name; a file without photographs is removed."""
        size = self._stream.tell()
        end = 2 * _BLOCK
        self._stream.write(bytes(end + -(size + end) % _RECORD))
        self._stream.close()
        if self._new:
            self._part.replace(self._folder / self.shard)
        else:
            self._part.unlink()
            if not any(self._part.parent.iterdir()):
                self._part.parent.rmdir()

    def close(self) -> None:
        """Close the unfinished file, which a later store continues."""
        self._stream.close()

    @property
    def _part(self) -> Path:
        return self._folder / f"{self.shard}.part"

    def _keep(self, recorded: Collection[str]) -> None:
        """Cut the unfinished file after its last complete and recorded photograph."""
        size = self._stream.seek(0, 2)
        end = self._stream.seek(0)
        while (block := self._stream.read(_BLOCK)) and len(block) == _BLOCK:
            try:
                header = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
            except (
                tarfile.HeaderError
            ):  # zeros: the run was killed between the end of the file and its new name
                break
            image_id = PurePosixPath(header.name).stem
            following = end + _BLOCK + header.size + -header.size % _BLOCK
            if following > size or image_id not in recorded:
                break
            self._new.append(image_id)
            end = self._stream.seek(following)
        self._stream.truncate(end)
        self._stream.seek(end)
        self.ids.update(self._new)
