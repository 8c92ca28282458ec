"""``hgld index-images``: where in the tar files each photograph is, so that millions of them need not be extracted.

The table ``images`` has a row per photograph, sorted by id; its metadata says how large each tar file was and when it
was last changed. Headers only are read: a tar file of 1 GB takes a fraction of a second once it is on the disk.
"""

from __future__ import annotations

import tarfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.progress import NoProgress, Progress
from hgld.tables import IMAGES, Provenance, is_up_to_date, read_provenance, read_table, repeated_keys, write_table

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
#: What the header of a plain file says; the bytes of any other member are not a photograph's.
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)

#: Size in bytes and time of the last change in nanoseconds, by the path of a tar file.
Stamps = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class IndexSummary:
    """What the table holds.

    Args:
        images: photographs in all.
        shards: tar files in all.
        read: how many of these were new or changed, and read.
        skipped: members of those that are not photographs, such as folders and texts.
        seconds: how long it took.
    """

    images: int
    shards: int
    read: int
    skipped: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.images:,} photographs in {self.shards:,} tar files, {self.read:,} of them read in "
            f"{self.seconds:.1f} s; {self.skipped:,} other members skipped"
        )


@dataclass(frozen=True)
class ShardIndex:
    """The photographs of one tar file: ids, where their bytes begin, how many these are; and the other members."""

    ids: Sequence[str]
    offsets: Sequence[int]
    sizes: Sequence[int]
    skipped: int


def index_images(
    folder: Path, out: Path, *, workers: int = 4, force: bool = False, progress: Progress | None = None
) -> IndexSummary | None:
    """Write the table ``images`` of all tar files below ``folder``.

    Tar files that have the size and date of change that the table at ``out`` names are not read again.

    Args:
        folder: the folder; the table names tar files relative to it.
        out: the table.
        workers: tar files read at once.
        force: read them all.
        progress: told of tar files.

    Returns:
        What was done; None if no tar file is new, changed or gone.

    Raises:
        InputError: there are no tar files, some are cut short or damaged, or an id stands twice.
        ConfigurationError: there are no workers.
    """
    began = time.monotonic()
    if workers < 1:
        raise ConfigurationError(f"{workers} workers; expected at least 1")
    stamps = _stamps(folder)
    provenance = Provenance("index-images", {"shards": stamps})
    if not force and is_up_to_date(out, provenance):
        return None
    known = {} if force else shards_of(out)
    unchanged = [shard for shard, stamp in stamps.items() if known.get(shard) == stamp]
    to_read = [shard for shard in stamps if shard not in unchanged]
    parts, skipped = _read_shards(folder, to_read, workers, progress or NoProgress())
    if unchanged:
        earlier = read_table(out, IMAGES)
        parts.append(earlier.filter(pc.is_in(earlier["shard"], pa.array(unchanged))))
    table = pa.concat_tables(parts).sort_by("id")
    _check_ids(table, folder)
    write_table(out, IMAGES, table, provenance)
    return IndexSummary(len(table), len(stamps), len(to_read), skipped, time.monotonic() - began)


def shards_of(index: Path) -> Stamps:
    """What the table at ``index`` says of the tar files that it was made of; nothing if there is no such table."""
    try:
        found: Any = read_provenance(index).parameters.get("shards", {})
    except InputError:
        return {}
    return dict(found)


def index_shard(path: Path) -> ShardIndex:
    """Read the headers of a tar file.

    Photographs are plain files with one of the endings jpg, jpeg, png and webp; the name without folders and ending
    is the id.

    Raises:
        InputError: the file is not a tar file, is cut short or damaged (with the offset), or a name is not UTF-8.
    """
    ids, offsets, sizes, skipped = [], [], [], 0
    at = 0
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                at = archive.offset
                name = PurePosixPath(member.name)
                if member.type in _PLAIN and name.suffix.lower() in IMAGE_SUFFIXES and not name.name.startswith("."):
                    ids.append(_text(name.stem))
                    offsets.append(member.offset_data)
                    sizes.append(member.size)
                else:
                    skipped += 1
            # tarfile takes a damaged header for the end of the archive.
            at = archive.offset
        with path.open("rb") as stream:
            stream.seek(at)
            block = stream.read(tarfile.BLOCKSIZE)
    except (tarfile.TarError, EOFError, UnicodeError) as error:
        raise InputError(f"{path}: cannot be read from byte {at:,} on: {error}; fetch it again") from error
    if block != bytes(tarfile.BLOCKSIZE):
        what = "is damaged" if len(block) == tarfile.BLOCKSIZE else "is cut short"
        raise InputError(
            f"{path}: {what} at byte {at:,}, after {len(ids) + skipped:,} members: there is neither a header nor the "
            "end of the archive; fetch it again"
        )
    return ShardIndex(ids, offsets, sizes, skipped)


def _text(name: str) -> str:
    """The name, if it can be written as UTF-8; tarfile lets other bytes pass in disguise."""
    name.encode()
    return name


def _stamps(folder: Path) -> dict[str, list[int]]:
    found = {}
    for path in sorted(folder.rglob("*.tar")):
        stat = path.stat()
        found[path.relative_to(folder).as_posix()] = [stat.st_size, stat.st_mtime_ns]
    if not found:
        raise InputError(f"{folder}: no tar files in this folder; fetch some with hgld fetch gldv2 --images")
    return found


def _read_shards(folder: Path, shards: Sequence[str], workers: int, progress: Progress) -> tuple[list[pa.Table], int]:
    """The rows of every tar file, and how many other members there are; all damaged files are reported together."""
    parts, problems, skipped = [IMAGES.schema.empty_table()], [], 0

    def read(shard: str) -> ShardIndex | InputError:
        try:
            return index_shard(folder / shard)
        except InputError as error:
            return error

    progress.start(len(shards))
    with ThreadPoolExecutor(workers) as pool:
        for shard, found in zip(shards, pool.map(read, shards), strict=True):
            progress.advance()
            if isinstance(found, InputError):
                problems.append(str(found))
                continue
            skipped += found.skipped
            columns = [found.ids, [shard] * len(found.ids), found.offsets, found.sizes]
            parts.append(pa.table(columns, schema=IMAGES.schema))
    if problems:
        raise InputError(f"{folder}: {len(problems):,} tar files cannot be indexed:\n{indented_list(problems)}")
    return parts, skipped


def _check_ids(table: pa.Table, folder: Path) -> None:
    repeated = repeated_keys(table, IMAGES)["id"]
    if len(repeated):
        rows = table.filter(pc.is_in(table["id"], repeated.combine_chunks().slice(0, 20)))
        places = [f"{row['id']}: {row['shard']}, byte {row['offset']:,}" for row in rows.to_pylist()]
        raise InputError(
            f"{folder}: {len(repeated):,} photographs stand more than once; an id names one photograph:\n"
            f"{indented_list(places)}"
        )
