"""Read photographs by id from tar files with the table of :mod:`hgld.gldv2.image_index`."""

from __future__ import annotations

import io
import os
import tarfile
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from hgld.errors import InputError, indented_list
from hgld.gldv2.image_index import indexed_shards
from hgld.tables import IMAGES, read_table

#: Largest number of tar files that a reader keeps open: more than the 500 files of GLDv2's train
#: split. Opening a file for each photograph would be a request to the metadata server of a shared
#: file system each time.
_MAX_OPEN = 512
#: Share of the process's limit of open files for one reader; a training has two readers, and pipes.
_SHARE_OF_LIMIT = 0.25


class ImageReader:
    """Reads photographs by id; safe to use from several threads and worker processes.

    Threads and forked processes share the file descriptors, because each read states its offset.
    Pickling a reader stores the paths only and unpickling loads the index again, which suits
    spawned workers.

    Memory: 20 bytes per photograph and the length of the longest id, which is 180 MB for GLDv2's 5
    million photographs with ids of 16 characters.

    Args:
        index: Table ``images``.
        folder: Folder that was indexed, or a copy of the folder.
        max_open: Number of tar files kept open; the least recently used file is closed first.
            Default: 512, but at most a quarter of the files that the process may open (``ulimit
            -n``).
    """

    def __init__(self, index: Path, folder: Path, *, max_open: int | None = None) -> None:
        self._index = index
        self._folder = folder
        self._max_open = max_open
        table = read_table(index, IMAGES)
        shards = table["shard"].combine_chunks().dictionary_encode()
        self._shards: list[str] = shards.dictionary.to_pylist()
        self._shard: NDArray[np.int32] = shards.indices.to_numpy()
        self._offset: NDArray[np.int64] = table["offset"].to_numpy()
        self._size: NDArray[np.int64] = table["size"].to_numpy()
        self._ids = _fixed_width(table["id"])
        del table, shards
        pa.default_memory_pool().release_unused()  # checking the table takes several times its memory
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
        """Return the int64 index rows of photographs for :meth:`read_at`; ids may be repeated."""
        keys = [image_id.encode() for image_id in ids]
        # Converting to the fixed width may shorten an id, so the untruncated ids are compared
        # below.
        rows = np.searchsorted(self._ids, np.array(keys, dtype=self._ids.dtype))
        absent = []
        for image_id, key, row in zip(ids, keys, rows.tolist(), strict=True):
            if row == len(self._ids) or self._ids[row] != key:
                absent.append(image_id)
        if absent:
            raise InputError(
                f"{self._index}: {len(absent):,} of {len(keys):,} photographs are not in this index; are their tar "
                f"files below {self._folder}? Then run hgld index-images again:\n{indented_list(absent)}"
            )
        return rows.astype(np.int64)

    def find(self, ids: pa.Array) -> NDArray[np.int64]:
        """Return the rows of many photographs in the index: int64, -1 for unknown photographs.

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
        """Open a photograph with Pillow, which decodes it on access to its pixels."""
        data = self.read(image_id)
        try:
            return Image.open(io.BytesIO(data))
        except OSError as error:
            raise InputError(
                f"{self._folder}: the photograph {image_id} cannot be read as an image"
            ) from error


class TarFiles:
    """Tar files below a folder, opened on demand.

    The rules of :class:`ImageReader` for threads and processes apply here too.

    Args:
        folder: Folder of the tar files.
        sizes: Size in bytes of each tar file when it was indexed, by path relative to the folder.
            The size of a file without an entry is not checked.
        max_open: Number of tar files kept open.
    """

    def __init__(
        self, folder: Path, sizes: Mapping[str, int] | None = None, *, max_open: int | None = None
    ) -> None:
        self._folder = folder
        self._sizes = sizes or {}
        self._max_open = max_open
        # The cached function has no reference to this object, so the object can be
        # garbage-collected.
        open_file = partial(_OpenTarFile, folder, sizes=self._sizes)
        self._open = lru_cache(max_open or default_max_open())(open_file)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TarFiles, max_open=self._max_open), (self._folder, self._sizes)

    def read(self, shard: str, offset: int, size: int) -> bytes:
        """Return the bytes at an offset of a tar file, which is named relative to the folder."""
        return self._open(shard).read(offset, size)


class _OpenTarFile:
    """An open tar file, which is closed when the object is garbage-collected."""

    def __init__(self, folder: Path, shard: str, *, sizes: Mapping[str, int]) -> None:
        self._path = folder / shard
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise InputError(
                f"{self._path}: {error.strerror}; fetch it again, or run hgld index-images without it"
            ) from error
        weakref.finalize(self, os.close, self._descriptor)
        size = os.fstat(self._descriptor).st_size
        indexed_size = sizes.get(shard, size)
        if size != indexed_size:
            raise self._changed(f"it has {size:,} bytes, but had {indexed_size:,}")

    def read(self, offset: int, size: int) -> bytes:
        # The header is read with the bytes to check that the photograph still has this size.
        n_header = tarfile.BLOCKSIZE
        data = os.pread(self._descriptor, n_header + size, offset - n_header)
        try:
            header = tarfile.TarInfo.frombuf(data[:n_header], tarfile.ENCODING, "surrogateescape")
        except tarfile.TarError as error:
            raise self._changed(f"there is no header before byte {offset:,} ({error})") from error
        if header.size != size or len(data) != n_header + size:
            raise self._changed(
                f"the photograph at byte {offset:,} has {header.size:,} bytes, but had {size:,}"
            )
        return data[n_header:]

    def _changed(self, reason: str) -> InputError:
        return InputError(
            f"{self._path}: not the tar file that was indexed: {reason}; run hgld index-images again"
        )


def default_max_open() -> int:
    """Return the default number of tar files that a reader keeps open."""
    try:
        import resource
    except ImportError:  # Windows has no such module
        return _MAX_OPEN
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MAX_OPEN
    return max(1, min(_MAX_OPEN, int(limit * _SHARE_OF_LIMIT)))


def _fixed_width(ids: pa.ChunkedArray) -> NDArray[np.bytes_]:
    """Convert ids to bytes of one width, in the same order, in chunks to limit memory."""
    as_bytes = ids.cast(pa.binary())
    width = pc.max(pc.binary_length(as_bytes)).as_py() or 1
    fixed = np.empty(len(ids), dtype=f"S{width}")
    for start in range(0, len(ids), 2**17):
        chunk = as_bytes.slice(start, 2**17)
        fixed[start : start + len(chunk)] = chunk.to_numpy()
    return fixed
