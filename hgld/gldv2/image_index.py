"""Index the photographs in tar files, so that millions of them need not be extracted.

The table ``images`` has a row per photograph, sorted by id, with its tar file, offset and size. Its metadata holds
the size and time of modification of each tar file. Only headers are read: a fraction of a second for 1 GB.
"""

from __future__ import annotations

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
from hgld.io.files import files_below
from hgld.io.images import SUFFIXES
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage
from hgld.tables import IMAGES, read_provenance, read_table, repeated_keys

STAGE = Stage("index-images", (IMAGES,))

#: First bytes of compressed files, and the program that unpacks them.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
#: Types of plain files in tar headers; members of other types hold no photograph.
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE)

#: Size in bytes and time of modification in nanoseconds by the path of a tar file, relative to the indexed folder.
ShardStats = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class IndexSummary:
    """Contents of the table and cost of the run.

    Args:
        read: Number of tar files that were new or changed, and therefore read.
        skipped: Number of members of these that are not photographs, such as folders and texts.
    """

    images: int
    shards: int
    read: int
    skipped: int
    seconds: float


@dataclass(frozen=True)
class ShardIndex:
    """Photographs of one tar file.

    Args:
        names: Names of the photographs with their folders, in the order of the file.
        other_files: Number of those among them that are plain files, by suffix in lower case.
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
    folder: Path, out: Path, *, workers: int = 4, force: bool = False, progress: Progress | None = None
) -> IndexSummary | None:
    """Write the table ``images`` of all tar files below a folder.

    Tar files whose size and time of modification are those in an existing table are not read again.

    Args:
        folder: Folder with tar files at any depth.
        out: Table to write.
        workers: Number of tar files read in parallel.
        force: Read all tar files again.
        progress: Receives the number of tar files.

    Returns:
        Contents of the table; None if no tar file is new, changed or gone.
    """
    start = time.monotonic()
    require_at_least(1, workers=workers)
    stats = _shard_stats(folder)

    def compute() -> tuple[Sequence[pa.Table], IndexSummary]:
        indexed = {} if force else indexed_shards(out)
        unchanged = [shard for shard, stat in stats.items() if indexed.get(shard) == stat]
        to_read = [shard for shard in stats if shard not in unchanged]
        tables, skipped = _read_shards(folder, to_read, workers, progress or NoProgress())
        if unchanged:
            previous = read_table(out, IMAGES)
            tables.append(previous.filter(pc.is_in(previous["shard"], pa.array(unchanged))))
        table = pa.concat_tables(tables).sort_by("id")
        _check_ids(table, folder)
        return [table], IndexSummary(len(table), len(stats), len(to_read), skipped, time.monotonic() - start)

    return STAGE.run({"out": out}, compute, parameters={"shards": stats}, force=force)


def indexed_shards(index: Path) -> ShardStats:
    """Return the tar files that the table at ``index`` was made of; empty if there is no such table."""
    try:
        shards: Any = read_provenance(index).parameters.get("shards", {})
    except InputError:
        return {}
    return dict(shards)


def index_shard(path: Path) -> ShardIndex:
    """Index the photographs of one tar file by reading its headers.

    Photographs are plain files with a suffix of :data:`hgld.io.images.SUFFIXES`.

    Raises:
        InputError: The file is not a tar file, is damaged or cut short (the message gives the offset), or a name is
            not UTF-8; or the tar file is compressed.
    """
    names, offsets, sizes, skipped, other_files = [], [], [], 0, Counter[str]()
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
                else:
                    skipped += 1
                    other_files[PurePosixPath(member.name).suffix.lower()] += member.type in _PLAIN_TYPES
            # tarfile takes a damaged header for the end of the archive.
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
    return ShardIndex(names, offsets, sizes, skipped, +other_files)


def _require_uncompressed(path: Path) -> None:
    """Raise if a tar file is compressed: photographs are read at their offsets."""
    with path.open("rb") as stream:
        start = stream.read(max(map(len, _COMPRESSED)))
    for magic, program in _COMPRESSED.items():
        if start.startswith(magic):
            raise InputError(f"{path}: compressed; images are read from plain tar files: unpack it with {program} -d")


def _is_photograph(member: tarfile.TarInfo) -> bool:
    name = PurePosixPath(member.name)
    return member.type in _PLAIN_TYPES and name.suffix.lower() in SUFFIXES and not name.name.startswith(".")


def _require_utf8(name: str) -> str:
    """Return the name; raise UnicodeError where tarfile has replaced bytes that are not UTF-8 by surrogates."""
    name.encode()
    return name


def _shard_stats(folder: Path) -> dict[str, list[int]]:
    stats = {}
    for file in files_below(folder):
        if file.endswith(".tar"):
            stat = (folder / file).stat()
            stats[file] = [stat.st_size, stat.st_mtime_ns]
    if not stats:
        raise InputError(f"{folder}: no tar files in this folder; download some with hgld fetch")
    return stats


def read_shards(folder: Path) -> pa.Table:
    """Return the table ``images`` of all tar files below a folder, in their order."""
    return pa.concat_tables(_read_shards(folder, list(_shard_stats(folder)), 1, NoProgress())[0])


def _read_shards(folder: Path, shards: Sequence[str], workers: int, progress: Progress) -> tuple[list[pa.Table], int]:
    """Return a table per tar file, and the number of other members; all damaged files are reported together."""
    tables, problems, skipped = [IMAGES.schema.empty_table()], [], 0

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
        raise InputError(f"{folder}: {len(problems):,} tar files cannot be indexed:\n{indented_list(problems)}")
    return tables, skipped


def _check_ids(table: pa.Table, folder: Path) -> None:
    repeated = repeated_keys(table, IMAGES)["id"]
    if len(repeated):
        rows = table.filter(pc.is_in(table["id"], repeated.combine_chunks().slice(0, 20)))
        places = [f"{row['id']}: {row['shard']}, byte {row['offset']:,}" for row in rows.to_pylist()]
        raise InputError(
            f"{folder}: {len(repeated):,} ids appear more than once; each must name one photograph:\n"
            f"{indented_list(places)}"
        )
