"""Write photographs to tar files in GLDv2's layout, one by one and safe from kills.

Photographs are appended to a file that is not called ``.tar`` yet. What a run that was killed left there is kept up
to the last photograph that its journal knows. The finished file gets the next free number: ``train/images_000.tar``.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from types import TracebackType

from hgld.gldv2.image_index import index_shard

#: Bytes of a tar file are in blocks of this size.
_BLOCK = tarfile.BLOCKSIZE
#: Two blocks of zeros end a tar file, which is filled up to a multiple of a record.
_RECORD = tarfile.RECORDSIZE


class PhotographStore:
    """The photographs of a split in a folder; a context manager.

    Args:
        folder: Folder of the dataset; the tar files are in the folder of the split below it.
        split: Name of the split.
        recorded: Ids of photographs that were recorded after they had been added. Others that an interrupted run
            added are removed.

    Raises:
        InputError: A tar file in the folder is damaged.
    """

    def __init__(self, folder: Path, split: str, recorded: Collection[str]) -> None:
        self._folder, self._split = folder, split
        shards = sorted((folder / split).glob("images_*.tar"))
        self.ids = {image_id for shard in shards for image_id in index_shard(shard).ids}
        numbers = [int(shard.stem[len("images_") :]) for shard in shards if shard.stem[len("images_") :].isdecimal()]
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
        """Append a photograph.

        Args:
            image_id: Its id.
            suffix: Suffix of its name, such as ``.jpg``.
            data: Content of the file.
        """
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
            self._remove_empty_folder()

    def __enter__(self) -> PhotographStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            except tarfile.HeaderError:  # zeros: the run was killed between the end of the file and its new name
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

    def _remove_empty_folder(self) -> None:
        if not any(self._part.parent.iterdir()):
            self._part.parent.rmdir()
