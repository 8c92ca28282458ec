"""The stage ``index-images``: index the photographs in tar files, so that they can be read by id.

The table ``images`` has a row per photograph, sorted by id, with its tar file, offset and size. Its
metadata has the size and time of modification of each tar file. Only headers are read, which takes
a fraction of a second for 1 GB.
"""

from __future__ import annotations

import logging
import tarfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import InputError, indented_list, require_at_least
from hgld.io.columns import preview
from hgld.io.file_listing import files_and_links_below
from hgld.io.images import SUFFIXES
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage
from hgld.tables import IMAGES, read_provenance, read_table, repeated_keys

STAGE = Stage("index-images", (IMAGES,))
log = logging.getLogger(__name__)

#: First bytes of compressed files, and the program that unpacks them.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
#: Types of plain files in tar headers; members of other types are not photographs.
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE)

#: Size in bytes and time of modification in nanoseconds by the path of a tar file, relative to the
#: indexed folder.
ShardStats = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class IndexSummary:
    """Contents of the table and cost of the run.

    Args:
        images: Number of photographs.
        shards: Number of tar files.
        read: Number of new or changed tar files, which were read.
        skipped: Number of members of these tar files that are not photographs, such as folders and
            texts.
        seconds: Duration of the run.
    """

    images: int
    shards: int
    read: int
    skipped: int
    seconds: float


@dataclass(frozen=True)
class ShardIndex:
    """Photographs of one tar file, in the order of the file.

    Args:
        names: Names of the photographs with folders and suffix.
        offsets: Offset of each photograph in bytes.
        sizes: Size of each photograph in bytes.
        skipped: Number of other members.
        other_files: Number of other plain files by suffix.
    """

    names: Sequence[str]
    offsets: Sequence[int]
    sizes: Sequence[int]
    skipped: int
    other_files: Mapping[str, int]

    @property
    def ids(self) -> list[str]:
        """Ids of the photographs: their names without folders and suffix."""
        return [PurePosixPath(name).stem for name in self.names]


def index_images(
    folder: Path,
    out: Path,
    *,
    workers: int = 4,
    force: bool = False,
    progress: Progress | None = None,
) -> IndexSummary | None:
    """Write the table ``images`` of all tar files below a folder.

    Tar files with the size and time of modification of an existing table are not read again.

    Args:
        folder: Folder with tar files at any depth.
        out: Index to write.
        workers: Number of tar files read in parallel.
        force: Read all tar files again.
        progress: Progress of the tar files.

    Returns:
        Contents of the table; None if no tar file is new, changed or missing.
    """
    start = time.monotonic()
    require_at_least(1, workers=workers)
    stats = _shard_stats(folder)

    def compute() -> tuple[Sequence[pa.Table], IndexSummary]:
        indexed = {} if force else indexed_shards(out)
        unchanged = []
        to_read = []
        for shard, stat in stats.items():
            if indexed.get(shard) == stat:
                unchanged.append(shard)
            else:
                to_read.append(shard)
        tables, skipped = _read_shards(folder, to_read, workers, progress or NoProgress())
        if unchanged:
            previous = read_table(out, IMAGES)
            tables.append(previous.filter(pc.is_in(previous["shard"], pa.array(unchanged))))
        table = pa.concat_tables(tables).sort_by("id")
        _check_ids(table, folder)
        seconds = time.monotonic() - start
        return [table], IndexSummary(len(table), len(stats), len(to_read), skipped, seconds)

    return STAGE.run({"out": out}, compute, parameters={"shards": stats}, force=force)


def indexed_shards(index: Path) -> ShardStats:
    """Return the tar files of a table ``images``; empty if the table does not exist."""
    try:
        shards: Any = read_provenance(index).parameters.get("shards", {})
    except InputError:
        return {}
    return dict(shards)


def index_shard(path: Path) -> ShardIndex:
    """Index the photographs of one tar file, plain files with a suffix of images, by its headers.

    Raises:
        InputError: The file is not a tar file, compressed, damaged or truncated, or a name is not
            UTF-8.
    """
    names = []
    offsets = []
    sizes = []
    skipped = 0
    other_files: Counter[str] = Counter()
    offset = 0
    _require_uncompressed(path)
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                offset = archive.offset
                if _is_photograph(member):
                    names.append(_require_utf8(member.name))
                    offsets.append(member.offset_data)
                    sizes.append(member.size)
                    continue
                skipped += 1
                if member.type in _PLAIN_TYPES:
                    other_files[PurePosixPath(member.name).suffix.lower()] += 1
            # tarfile mistakes a damaged header for the end of the archive.
            offset = archive.offset
        with path.open("rb") as stream:
            stream.seek(offset)
            block = stream.read(tarfile.BLOCKSIZE)
    except (tarfile.TarError, EOFError, UnicodeError) as error:
        raise InputError(
            f"{path}: cannot be read from byte {offset:,} on: {error}; fetch it again, or make it again"
        ) from error
    if block != bytes(tarfile.BLOCKSIZE):
        damage = "is damaged" if len(block) == tarfile.BLOCKSIZE else "is cut short"
        raise InputError(
            f"{path}: {damage} at byte {offset:,}, after {len(names) + skipped:,} members: there is neither a header "
            "nor the end of the archive; fetch it again, or make it again"
        )
    return ShardIndex(names, offsets, sizes, skipped, other_files)


def _require_uncompressed(path: Path) -> None:
    """Raise an InputError for a compressed tar file, as photographs are read at their offsets."""
    with path.open("rb") as stream:
        start = stream.read(max(map(len, _COMPRESSED)))
    for magic, program in _COMPRESSED.items():
        if start.startswith(magic):
            raise InputError(
                f"{path}: compressed; images are read from plain tar files: unpack it with {program} -d"
            )


def _is_photograph(member: tarfile.TarInfo) -> bool:
    name = PurePosixPath(member.name)
    if member.type not in _PLAIN_TYPES or name.name.startswith("."):
        return False
    return name.suffix.lower() in SUFFIXES


def _require_utf8(name: str) -> str:
    """Return the name; raise UnicodeError if tarfile substituted surrogates for invalid bytes."""
    name.encode()
    return name


def _shard_stats(folder: Path) -> dict[str, list[int]]:
    """Return size in bytes and time of modification of the tar files below a folder."""
    stats = {}
    listing = files_and_links_below(folder)
    broken = [link for link in listing.broken_links if link.endswith(".tar")]
    if broken:
        log.warning("%s: left out tar files whose links are broken: %s", folder, preview(broken))
    for file in listing.files:
        if file.endswith(".tar"):
            stat = (folder / file).stat()
            stats[file] = [stat.st_size, stat.st_mtime_ns]
    if not stats:
        raise InputError(f"{folder}: no tar files in this folder; download some with hgld fetch")
    return stats


def read_shards(folder: Path) -> pa.Table:
    """Return the table ``images`` of all tar files below a folder, in the order of the files."""
    tables, _ = _read_shards(folder, list(_shard_stats(folder)), 1, NoProgress())
    return pa.concat_tables(tables)


def _read_shards(
    folder: Path, shards: Sequence[str], workers: int, progress: Progress
) -> tuple[list[pa.Table], int]:
    """Return a table per tar file, and the number of members that are not photographs.

    Raises:
        InputError: Tar files cannot be read; the message lists all of these files.
    """
    tables = [IMAGES.schema.empty_table()]
    problems = []
    skipped = 0

    def read(shard: str) -> ShardIndex | InputError:
        try:
            return index_shard(folder / shard)
        except InputError as error:
            return error

    progress.start(len(shards))
    with ThreadPoolExecutor(workers) as pool:
        for shard, result in zip(shards, pool.map(read, shards), strict=True):
            progress.advance()
            if isinstance(result, InputError):
                problems.append(str(result))
                continue
            skipped += result.skipped
            columns = [result.ids, [shard] * len(result.ids), result.offsets, result.sizes]
            tables.append(pa.table(columns, schema=IMAGES.schema))
    if problems:
        raise InputError(
            f"{folder}: {len(problems):,} tar files cannot be indexed:\n{indented_list(problems)}"
        )
    return tables, skipped


def _check_ids(table: pa.Table, folder: Path) -> None:
    repeated = repeated_keys(table, IMAGES)["id"]
    if len(repeated):
        rows = table.filter(pc.is_in(table["id"], repeated.combine_chunks().slice(0, 20)))
        places = []
        for row in rows.to_pylist():
            places.append(f"{row['id']}: {row['shard']}, byte {row['offset']:,}")
        raise InputError(
            f"{folder}: {len(repeated):,} ids appear more than once; each must name one photograph:\n"
            f"{indented_list(places)}"
        )
