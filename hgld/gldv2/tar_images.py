"""Photographs by their ids, read out of the tar files that ``hgld index-images`` has indexed."""

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
from hgld.gldv2.image_index import shards_of
from hgld.tables import IMAGES, read_table


class ImageReader:
    """Reads photographs by their ids; made to be used from many threads and worker processes.

    Threads share its file descriptors, as a read names its place in the file; so do processes that are forked. A
    pickled reader is the names of its files and loads the index anew, which suits spawned workers.

    Memory: a photograph takes 20 bytes and the length of the longest id, so GLDv2's 5 million, with ids of 16
    characters, take 180 MB.

    Args:
        index: the table ``images``.
        folder: the folder that was indexed, or a copy of it.
        max_open: how many tar files are kept open; the one not used for longest is closed first.

    Raises:
        InputError: ``index`` is not such a table.
    """

    def __init__(self, index: Path, folder: Path, *, max_open: int = 64) -> None:
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
        sizes = {shard: stamp[0] for shard, stamp in shards_of(index).items()}
        self._files = TarFiles(folder, sizes, max_open=max_open)

    def __len__(self) -> int:
        return len(self._ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ImageReader, max_open=self._max_open), (self._index, self._folder)

    def positions(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The rows of the index that photographs have, for :meth:`read_at`.

        Args:
            ids: n ids, in any order, repeated or not.

        Returns:
            int64, shape (n,).

        Raises:
            InputError: some are not in the index.
        """
        wanted = [image_id.encode() for image_id in ids]
        # The array cuts what is too long; whether an id is there is asked of the ids themselves.
        rows = np.searchsorted(self._ids, np.array(wanted, dtype=self._ids.dtype))
        found = self._ids[np.minimum(rows, len(self._ids) - 1)].tolist() if len(self._ids) else [None] * len(wanted)
        absent = [image_id for image_id, one, other in zip(ids, wanted, found, strict=True) if one != other]
        if absent:
            raise InputError(
                f"{self._index}: {len(absent):,} of {len(wanted):,} photographs are not in this index; are their tar "
                f"files below {self._folder}? Then run hgld index-images again:\n{indented_list(absent)}"
            )
        return rows.astype(np.int64)

    def read(self, image_id: str) -> bytes:
        """The bytes of a photograph; see :meth:`read_at`."""
        return self.read_at(int(self.positions([image_id])[0]))

    def read_at(self, position: int) -> bytes:
        """The bytes of the photograph in this row of the index.

        Raises:
            InputError: the tar file is gone, or is not the one that was indexed.
        """
        shard = self._shards[self._shard[position]]
        return self._files.read(shard, int(self._offset[position]), int(self._size[position]))

    def open(self, image_id: str) -> Image.Image:
        """The photograph, which Pillow decodes when its pixels are asked for (``draft`` can make that cheaper).

        Raises:
            InputError: it is no picture, or as :meth:`read_at`.
        """
        data = self.read(image_id)
        try:
            return Image.open(io.BytesIO(data))
        except OSError as error:
            raise InputError(f"{self._folder}: the photograph {image_id} is no picture that can be read") from error


class TarFiles:
    """The tar files below a folder, opened when they are read; see :class:`ImageReader` for threads and processes.

    Args:
        folder: the folder.
        sizes: how many bytes the files had when they were indexed, by their paths relative to the folder; those of
            which this is not known are not asked.
        max_open: how many are kept open; the one not used for longest is closed first.
    """

    def __init__(self, folder: Path, sizes: Mapping[str, int] | None = None, *, max_open: int = 64) -> None:
        self._folder, self._sizes, self._max_open = folder, sizes or {}, max_open
        # The function knows nothing of this object, which can thus go when it is no longer used.
        self._open = lru_cache(max_open)(partial(_OpenShard, folder, sizes=self._sizes))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TarFiles, max_open=self._max_open), (self._folder, self._sizes)

    def read(self, shard: str, offset: int, size: int) -> bytes:
        """The bytes of a member.

        Args:
            shard: the tar file, relative to the folder.
            offset: where the bytes begin.
            size: how many they are.

        Raises:
            InputError: the tar file is gone, or is not the one that was indexed.
        """
        return self._open(shard).read(offset, size)


class _OpenShard:
    """An open tar file; closed when nobody uses it any more, be it in the middle of another thread's read."""

    def __init__(self, folder: Path, shard: str, *, sizes: Mapping[str, int]) -> None:
        self._path = folder / shard
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise InputError(
                f"{self._path}: {error.strerror}; fetch it again, or run hgld index-images without it"
            ) from error
        weakref.finalize(self, os.close, self._descriptor)
        found, indexed = os.fstat(self._descriptor).st_size, sizes.get(shard)
        if indexed is not None and found != indexed:
            raise self._other(f"it has {found:,} bytes, but had {indexed:,}")

    def read(self, offset: int, size: int) -> bytes:
        # With the header before it, which tells that this is still a file of that size.
        block = os.pread(self._descriptor, tarfile.BLOCKSIZE + size, offset - tarfile.BLOCKSIZE)
        try:
            header = tarfile.TarInfo.frombuf(block[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
        except tarfile.TarError as error:
            raise self._other(f"there is no header before byte {offset:,} ({error})") from error
        if header.size != size or len(block) != tarfile.BLOCKSIZE + size:
            raise self._other(f"the photograph at byte {offset:,} has {header.size:,} bytes, but had {size:,}")
        return block[tarfile.BLOCKSIZE :]

    def _other(self, why: str) -> InputError:
        return InputError(f"{self._path}: not the tar file that was indexed: {why}; run hgld index-images again")


def _fixed_width(ids: pa.ChunkedArray) -> NDArray[np.bytes_]:
    """The ids as bytes of one width, sorted as they are in the table; converted in pieces, to need little memory."""
    as_bytes = ids.cast(pa.binary())
    width = pc.max(pc.binary_length(as_bytes)).as_py() or 1
    fixed = np.empty(len(ids), dtype=f"S{width}")
    for start in range(0, len(ids), 2**17):
        piece = as_bytes.slice(start, 2**17)
        fixed[start : start + len(piece)] = piece.to_numpy()
    return fixed
