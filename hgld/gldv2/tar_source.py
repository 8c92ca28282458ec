"""Photographs out of GLDv2's tar files: a local copy, or a mirror, whose tar files are downloaded one at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError, InputError
from hgld.gldv2.download import DownloadConfig, Downloader
from hgld.gldv2.files import N_IMAGES, N_SHARDS, SHARD_BYTES, DatasetFile, read_md5, shard_files
from hgld.gldv2.image_index import index_shard
from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.photograph_sources import Photograph, SourcePlan, photograph_from_tar
from hgld.gldv2.tar_images import TarFiles
from hgld.io.journal import Journal
from hgld.tables import IMAGES, read_table

#: Kind of the journal's facts about tar files that need not be downloaded again.
_SEARCHED = "shard"


class _Place(NamedTuple):
    """Where the bytes of a photograph are; ordered by tar file and offset, in which they are read fastest."""

    shard: str
    offset: int
    size: int
    id: str


class FolderSource:
    """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`; the tar files of a folder.

    Args:
        place: Folder with tar files at any depth; or the table of ``hgld index-images`` in such a folder, with which
            the tar files need not be searched.
        photographs: Wanted photographs.

    Raises:
        InputError: There are no tar files, or they are damaged.
    """

    def __init__(self, place: Path, photographs: PhotographList) -> None:
        self._place, self._photographs = place, photographs
        wanted = set(photographs.ids)
        self._folder = place if place.is_dir() else place.parent
        places = _search_folder(place, wanted) if place.is_dir() else _search_table(place, wanted)
        self._places = {found.id: found for found in places}
        self._files = TarFiles(self._folder)

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
        found = [self._places[image_id] for image_id in ids if image_id in self._places]
        n_bytes = sum(place.size for place in found)
        shards = len({place.shard for place in found})
        return SourcePlan("folder", str(self._place), len(ids) - len(found), n_bytes, shards=shards)

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
        for shard, offset, size, image_id in sorted(self._places[key] for key in ids if key in self._places):
            yield photograph_from_tar(image_id, self._files.read(shard, offset, size), shard, self._photographs)
        yield from _absent(ids, self._places, self._photographs)

    def close(self) -> None:
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""


class MirrorSource:
    """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`; the tar files of the dataset's host or a mirror.

    Which tar file holds a photograph shows only once it is there: the tar files are downloaded one after the other,
    verified, searched, and deleted. The search ends early when all photographs are found.

    Args:
        base_url: Address of the host.
        split: Split of the photographs.
        shards: Numbers of the tar files to search.
        folder: Folder for the tar file that is being searched.
        photographs: Wanted photographs.
        journal: Journal that knows which tar files were searched for these photographs; None to only plan.
        config: Time limits and retries.

    Raises:
        ConfigurationError: The split has no such tar file, or none are named.
    """

    def __init__(
        self,
        base_url: str,
        split: str,
        shards: Sequence[int] | None,
        folder: Path,
        photographs: PhotographList,
        journal: Journal | None,
        config: DownloadConfig,
    ) -> None:
        if shards is None:
            last = N_SHARDS[split] - 1
            raise ConfigurationError(
                f"which of the {N_SHARDS[split]} tar files of {split} hold these photographs is not known before "
                f"they are downloaded: name those to search in `shards`, or 0:{last} for all, which are "
                f"{N_SHARDS[split] * SHARD_BYTES[split] / 1e9:,.0f} GB"
            )
        self._base_url, self._split, self._folder = base_url.rstrip("/"), split, folder
        self._photographs, self._journal = photographs, journal
        self._files = shard_files(split, shards)
        self._downloader = Downloader(config)

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
        left = len(self._unsearched()) if ids else 0
        n_bytes = left * SHARD_BYTES[self._split]
        return SourcePlan("mirror", self._base_url, 0, n_bytes, requests=2 * left, shards=left)

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
        missing = set(ids)
        for file in self._unsearched():
            if not missing:
                return
            path = self._folder / Path(file.path).name
            self._download(file, path)
            index, files = index_shard(path), TarFiles(self._folder)
            for image_id, offset, size in zip(index.ids, index.offsets, index.sizes, strict=True):
                if image_id in missing:
                    missing.remove(image_id)
                    data = files.read(path.name, offset, size)
                    yield photograph_from_tar(image_id, data, file.path, self._photographs)
            if self._journal is not None:
                self._journal.append(_SEARCHED, int(time.time()), {file.path: self._photographs.digest})
            path.unlink()
        yield from _absent(ids, set(ids) - missing, self._photographs)

    def close(self) -> None:
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
        self._downloader.close()
        for path in self._folder.glob("md5.*.txt"):
            path.unlink()
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _unsearched(self) -> list[DatasetFile]:
        batches = self._journal.batches() if self._journal is not None else ()
        searched = {
            path
            for kind, _, facts in batches
            for path, digest in facts.items()
            if kind == _SEARCHED and digest == self._photographs.digest
        }
        return [file for file in self._files if file.path not in searched]

    def _download(self, file: DatasetFile, path: Path) -> None:
        assert file.md5_path is not None
        md5_file = self._folder / Path(file.md5_path).name
        self._downloader.download(f"{self._base_url}/{file.md5_path}", md5_file, replace=True)
        self._downloader.download(f"{self._base_url}/{file.path}", path, md5=read_md5(md5_file))


def mean_image_bytes(split: str) -> float:
    """Return the mean size of a split's photographs in bytes."""
    return N_SHARDS[split] * SHARD_BYTES[split] / N_IMAGES[split]


def _search_folder(folder: Path, wanted: set[str]) -> Iterator[_Place]:
    shards = sorted(folder.rglob("*.tar"))
    if not shards:
        raise InputError(f"{folder}: no tar files in this folder; fetch them with hgld fetch gldv2 `images`")
    for path in shards:
        index, shard = index_shard(path), path.relative_to(folder).as_posix()
        for image_id, offset, size in zip(index.ids, index.offsets, index.sizes, strict=True):
            if image_id in wanted:
                yield _Place(shard, offset, size, image_id)


def _search_table(path: Path, wanted: set[str]) -> Iterator[_Place]:
    table = read_table(path, IMAGES)
    for row in table.filter(pc.is_in(table["id"], value_set=pa.array(sorted(wanted)))).to_pylist():
        yield _Place(row["shard"], row["offset"], row["size"], row["id"])


def _absent(
    ids: Sequence[str], found: set[str] | dict[str, _Place], photographs: PhotographList
) -> Iterator[Photograph]:
    for image_id in ids:
        if image_id not in found:
            yield Photograph(image_id, "not_in_tar_files", url=photographs.fact(image_id, "url"))
