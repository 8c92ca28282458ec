"""Write photographs one by one to tar files in the layout of GLDv2, and keep them if the run is killed."""

from __future__ import annotations

import math
import os
import tarfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from hgld.gldv2.image_index import index_shard

#: Size in bytes of the blocks of a tar file. A header takes one block, and the bytes of a file fill whole blocks.
_BLOCK = tarfile.BLOCKSIZE
#: Size in bytes of a record. A tar file ends with two blocks of zeros, and with further zeros up to a whole record.
_RECORD = tarfile.RECORDSIZE


class PhotographStore:
    """Writes the photographs of a split to tar files.

    Photographs are appended to a file with the suffix ``.tar.part``. Of the photographs that a killed
    run left in it, those before the first incomplete or unrecorded photograph are kept. The number of
    the finished file is the largest number of a tar file of the split plus one, and 0 for the first:
    ``train/images_000.tar``.

    Args:
        folder: Folder of the dataset.
        split: Split of the photographs.
        recorded: Ids of photographs that earlier runs recorded in the table or the journal.

    Attributes:
        ids: Ids of all photographs in the tar files of the split.
    """

    def __init__(self, folder: Path, split: str, recorded: Collection[str]) -> None:
        self._folder = folder
        self._split = split
        self.ids: set[str] = set()
        self._number = 0
        for shard in (folder / split).glob("images_*.tar"):
            self.ids.update(index_shard(shard).ids)
            number = shard.stem.removeprefix("images_")
            if number.isdecimal():
                self._number = max(self._number, int(number) + 1)
        #: Ids in the unfinished file.
        self._new: list[str] = []
        self._part.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._part.open("r+b" if self._part.exists() else "w+b")
        self._keep(recorded)

    @property
    def shard(self) -> str:
        """Path of the tar file of new photographs, relative to the folder."""
        return f"{self._split}/images_{self._number:03}.tar"

    def add(self, image_id: str, suffix: str, data: bytes) -> None:
        """Append a photograph with the suffix of its name, such as ``.jpg``."""
        header = tarfile.TarInfo("/".join((*image_id[:3], f"{image_id}{suffix}")))
        header.size = len(data)
        padding = bytes(_padded(len(data)) - len(data))
        self._stream.write(header.tobuf(tarfile.USTAR_FORMAT) + data + padding)
        self._stream.flush()
        self._new.append(image_id)
        self.ids.add(image_id)

    def finish(self) -> None:
        """Complete the unfinished file and rename it; a file without photographs is removed."""
        n_end = 2 * _BLOCK
        n_padding = -(self._stream.tell() + n_end) % _RECORD
        self._stream.write(bytes(n_end + n_padding))
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
        """Truncate the unfinished file after its last complete and recorded photograph."""
        size = self._stream.seek(0, os.SEEK_END)
        end = 0
        while end + _BLOCK <= size:
            self._stream.seek(end)
            block = self._stream.read(_BLOCK)
            try:
                header = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
            except tarfile.HeaderError:  # zeros: the run was killed before the file was renamed
                break
            image_id = PurePosixPath(header.name).stem
            next_header = end + _BLOCK + _padded(header.size)
            if next_header > size or image_id not in recorded:
                break
            self._new.append(image_id)
            end = next_header
        self._stream.truncate(end)
        self._stream.seek(end)
        self.ids.update(self._new)


def _padded(size: int) -> int:
    """Return the size in bytes of the blocks that hold a file of ``size`` bytes."""
    return math.ceil(size / _BLOCK) * _BLOCK
