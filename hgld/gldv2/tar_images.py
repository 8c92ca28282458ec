"""Index the photographs in tar files, and read them by id, so that millions of them need not be extracted.

The table ``images`` has a row per photograph, sorted by id, with its tar file, offset and size. Its metadata holds
the size and time of modification of each tar file. Only headers are read: a fraction of a second for 1 GB.
"""

from __future__ import annotations

import io
import logging
import os
import tarfile
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from hgld.errors import InputError, indented_list, require_at_least
from hgld.io.columns import preview
from hgld.io.files import files_and_links_below
from hgld.io.images import SUFFIXES
from hgld.progress import NoProgress, Progress
from hgld.stage import Stage
from hgld.tables import IMAGES, read_provenance, read_table, repeated_keys

STAGE = Stage("index-images", (IMAGES,))
log = logging.getLogger(__name__)

#: First bytes of compressed files, and the program that unpacks them.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
#: Types of plain files in tar headers; members of other types hold no photograph.
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE)

#: Size in bytes and time of modification in nanoseconds by the path of a tar file, relative to the indexed folder.
ShardStats = Mapping[str, Sequence[int]]

#: Largest number of tar files that a reader keeps open: more than the 500 of GLDv2's train split, as opening a file
#: for each photograph would be a request to the metadata server of a shared file system each time.
_MAX_OPEN = 512
#: Share of the files that a process may open: there are a reader for training images, one for test images, and pipes.
_SHARE_OF_LIMIT = 0.25


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
    """Photographs of one tar file, in its order, and the number of plain files among the others, by suffix."""

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

    Tar files whose size and time of modification are those in an existing table are not read again.

    Args:
        folder: Folder with tar files at any depth.
        out: Index to write.
        workers: Number of tar files read in parallel.
        force: Read all tar files again.

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
        return [table], IndexSummary(
            len(table), len(stats), len(to_read), skipped, time.monotonic() - start
        )

    return STAGE.run({"out": out}, compute, parameters={"shards": stats}, force=force)


def indexed_shards(index: Path) -> ShardStats:
    """Return the tar files that the table at ``index`` was made of; empty if there is no such table."""
    try:
        shards: Any = read_provenance(index).parameters.get("shards", {})
    except InputError:
        return {}
    return dict(shards)


def index_shard(path: Path) -> ShardIndex:
    """Index the photographs of one tar file, plain files with a suffix of images, by reading its headers.

    Raises:
        InputError: It is no tar file, compressed, damaged or cut short, or a name is not UTF-8.
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
                    other_files[PurePosixPath(member.name).suffix.lower()] += (
                        member.type in _PLAIN_TYPES
                    )
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
            raise InputError(
                f"{path}: compressed; images are read from plain tar files: unpack it with {program} -d"
            )


def _is_photograph(member: tarfile.TarInfo) -> bool:
    name = PurePosixPath(member.name)
    return (
        member.type in _PLAIN_TYPES
        and name.suffix.lower() in SUFFIXES
        and not name.name.startswith(".")
    )


def _require_utf8(name: str) -> str:
    """Return the name; raise UnicodeError where tarfile has replaced bytes that are not UTF-8 by surrogates."""
    name.encode()
    return name


def _shard_stats(folder: Path) -> dict[str, list[int]]:
    stats = {}
    found = files_and_links_below(folder)
    broken = [link for link in found.broken_links if link.endswith(".tar")]
    if broken:
        log.warning("%s: left out tar files whose links are broken: %s", folder, preview(broken))
    for file in found.files:
        if file.endswith(".tar"):
            stat = (folder / file).stat()
            stats[file] = [stat.st_size, stat.st_mtime_ns]
    if not stats:
        raise InputError(f"{folder}: no tar files in this folder; download some with hgld fetch")
    return stats


def read_shards(folder: Path) -> pa.Table:
    """Return the table ``images`` of all tar files below a folder, in their order."""
    return pa.concat_tables(_read_shards(folder, list(_shard_stats(folder)), 1, NoProgress())[0])


def _read_shards(
    folder: Path, shards: Sequence[str], workers: int, progress: Progress
) -> tuple[list[pa.Table], int]:
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
        raise InputError(
            f"{folder}: {len(problems):,} tar files cannot be indexed:\n{indented_list(problems)}"
        )
    return tables, skipped


def _check_ids(table: pa.Table, folder: Path) -> None:
    repeated = repeated_keys(table, IMAGES)["id"]
    if len(repeated):
        rows = table.filter(pc.is_in(table["id"], repeated.combine_chunks().slice(0, 20)))
        places = [
            f"{row['id']}: {row['shard']}, byte {row['offset']:,}" for row in rows.to_pylist()
        ]
        raise InputError(
            f"{folder}: {len(repeated):,} ids appear more than once; each must name one photograph:\n"
            f"{indented_list(places)}"
        )


class ImageReader:
    """Reads photographs by id; safe to use from several threads and worker processes.

    Threads and forked processes share the file descriptors, because each read states its offset. Pickling a reader
    stores the paths only and unpickling loads the index again, which suits spawned workers.

    Memory: 20 bytes per photograph and the length of the longest id, which is 180 MB for GLDv2's 5 million
    photographs with ids of 16 characters.

    Args:
        folder: Folder that was indexed, or a copy of it.
        max_open: Number of tar files kept open; the least recently used one is closed first. Default: 512, or a
            quarter of the files that the process may open (``ulimit -n``) where that is fewer.
    """

    def __init__(self, index: Path, folder: Path, *, max_open: int | None = None) -> None:
        self._index, self._folder, self._max_open = index, folder, max_open
        table = read_table(index, IMAGES)
        shards = table["shard"].combine_chunks().dictionary_encode()
        self._shards: list[str] = shards.dictionary.to_pylist()
        self._shard: NDArray[np.int32] = shards.indices.to_numpy()
        self._offset: NDArray[np.int64] = table["offset"].to_numpy()
        self._size: NDArray[np.int64] = table["size"].to_numpy()
        self._ids = _fixed_width(table["id"])
        del table, shards
        pa.default_memory_pool().release_unused()  # checking the table takes several times what is kept
        sizes = {shard: stat[0] for shard, stat in indexed_shards(index).items()}
        self._files = TarFiles(folder, sizes, max_open=max_open)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def shards(self) -> tuple[str, ...]:
        """Tar files of the index, relative to its folder."""
        return tuple(self._shards)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ImageReader, max_open=self._max_open), (self._index, self._folder)

    def positions(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of photographs in the index, int64, for :meth:`read_at`; ids may be repeated."""
        wanted = [image_id.encode() for image_id in ids]
        # Converting to the fixed width may shorten an id, so the untruncated ids are compared below.
        rows = np.searchsorted(self._ids, np.array(wanted, dtype=self._ids.dtype))
        indexed = (
            self._ids[np.minimum(rows, len(self._ids) - 1)].tolist()
            if len(self._ids)
            else [None] * len(wanted)
        )
        absent = [
            image_id
            for image_id, key, match in zip(ids, wanted, indexed, strict=True)
            if key != match
        ]
        if absent:
            raise InputError(
                f"{self._index}: {len(absent):,} of {len(wanted):,} photographs are not in this index; are their tar "
                f"files below {self._folder}? Then run hgld index-images again:\n{indented_list(absent)}"
            )
        return rows.astype(np.int64)

    def find(self, ids: pa.Array) -> NDArray[np.int64]:
        """Return the rows of many photographs in the index, int64, -1 for those that are not in it.

        The ids are hashed: 3 s for the 4 million photographs of GLDv2's train split. For a few ids
        :meth:`positions` is faster.
        """
        rows = pc.index_in(ids.cast(pa.binary()), value_set=pa.array(self._ids, pa.binary()))
        return np.asarray(pc.fill_null(rows, -1).to_numpy(), np.int64)

    def id_at(self, position: int) -> str:
        """Return the id of the photograph in a row of the index."""
        return bytes(self._ids[position]).decode()

    def read(self, image_id: str) -> bytes:
        """Return the bytes of a photograph; see :meth:`read_at`."""
        return self.read_at(int(self.positions([image_id])[0]))

    def read_at(self, position: int) -> bytes:
        """Return the bytes of the photograph in a row of the index.

        Raises:
            InputError: The tar file no longer exists, or is not the one that was indexed.
        """
        shard = self._shards[self._shard[position]]
        return self._files.read(shard, int(self._offset[position]), int(self._size[position]))

    def open(self, image_id: str) -> Image.Image:
        """Open a photograph with Pillow, which decodes it when its pixels are needed (``draft`` reduces the cost)."""
        data = self.read(image_id)
        try:
            return Image.open(io.BytesIO(data))
        except OSError as error:
            raise InputError(
                f"{self._folder}: the photograph {image_id} cannot be read as an image"
            ) from error


class TarFiles:
    """Tar files below a folder, opened on demand; see :class:`ImageReader` for threads and processes.

    Args:
        sizes: Size in bytes of each tar file when it was indexed, by path relative to the folder. The size of a file
            without an entry is not checked.
    """

    def __init__(
        self, folder: Path, sizes: Mapping[str, int] | None = None, *, max_open: int | None = None
    ) -> None:
        self._folder, self._sizes, self._max_open = folder, sizes or {}, max_open
        # The cached function holds no reference to this object, which can therefore be collected.
        self._open = lru_cache(max_open or default_max_open())(
            partial(_OpenTarFile, folder, sizes=self._sizes)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TarFiles, max_open=self._max_open), (self._folder, self._sizes)

    def read(self, shard: str, offset: int, size: int) -> bytes:
        """Return the bytes at an offset of a tar file, which is named relative to the folder."""
        return self._open(shard).read(offset, size)


class _OpenTarFile:
    """An open tar file; closed when no thread uses it any more."""

    def __init__(self, folder: Path, shard: str, *, sizes: Mapping[str, int]) -> None:
        self._path = folder / shard
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise InputError(
                f"{self._path}: {error.strerror}; fetch it again, or run hgld index-images without it"
            ) from error
        weakref.finalize(self, os.close, self._descriptor)
        size, indexed_size = os.fstat(self._descriptor).st_size, sizes.get(shard)
        if indexed_size is not None and size != indexed_size:
            raise self._changed(f"it has {size:,} bytes, but had {indexed_size:,}")

    def read(self, offset: int, size: int) -> bytes:
        # The header is read with the bytes: it shows whether this is still a file of that size.
        block = os.pread(self._descriptor, tarfile.BLOCKSIZE + size, offset - tarfile.BLOCKSIZE)
        try:
            header = tarfile.TarInfo.frombuf(
                block[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape"
            )
        except tarfile.TarError as error:
            raise self._changed(f"there is no header before byte {offset:,} ({error})") from error
        if header.size != size or len(block) != tarfile.BLOCKSIZE + size:
            raise self._changed(
                f"the photograph at byte {offset:,} has {header.size:,} bytes, but had {size:,}"
            )
        return block[tarfile.BLOCKSIZE :]

    def _changed(self, reason: str) -> InputError:
        return InputError(
            f"{self._path}: not the tar file that was indexed: {reason}; run hgld index-images again"
        )


def default_max_open() -> int:
    """Return the number of tar files that a reader keeps open."""
    try:
        import resource
    except ImportError:  # Windows has no such module
        return _MAX_OPEN
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MAX_OPEN
    return max(1, min(_MAX_OPEN, int(limit * _SHARE_OF_LIMIT)))


def _fixed_width(ids: pa.ChunkedArray) -> NDArray[np.bytes_]:
    """Convert ids to bytes of one width, in the same order; in chunks, to limit memory."""
    as_bytes = ids.cast(pa.binary())
    width = pc.max(pc.binary_length(as_bytes)).as_py() or 1
    fixed = np.empty(len(ids), dtype=f"S{width}")
    for start in range(0, len(ids), 2**17):
        chunk = as_bytes.slice(start, 2**17)
        fixed[start : start + len(chunk)] = chunk.to_numpy()
    return fixed
