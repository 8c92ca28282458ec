"""Sources of photographs by id: tar files in a folder or at a mirror, and Wikimedia Commons."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.dataset_files import N_IMAGES, SHARD_BYTES, DatasetFile, shard_files
from hgld.gldv2.download import Downloader
from hgld.gldv2.image_index import index_shard, read_shards
from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.settings import N_SHARDS, DownloadConfig
from hgld.gldv2.tar_images import TarFiles
from hgld.io.http import RetriesExhaustedError
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from hgld.io.journal import Journal
from hgld.tables import IMAGES, read_table
from hgld.tables.column_values import PhotographStatus
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.commons_files import (
    FILES_PER_REQUEST,
    THUMBNAIL_WIDTHS,
    FileFact,
    file_title_of_url,
    request_file_facts,
)
from hgld.wikimedia.settings import ClientConfig

_SUFFIX_OF_FORMAT = {"JPEG": ".jpg", "TIFF": ".tif"}
#: Largest width of thumbnails in pixels; wider thumbnails would exceed the bandwidth of the robot
#: policy.
MAX_WIDTH = 1280
#: Number of failures in a row after which the server is assumed to be down.
_MAX_FAILURES_IN_A_ROW = 5
#: Typical ratio of the height to the width of a photograph, for estimates.
_ASPECT = 0.75
#: Typical number of bytes per pixel of a thumbnail, for estimates.
_BYTES_PER_PIXEL = 0.3
#: Kind of the journal's facts about tar files that were searched.
_SEARCHED = "shard"


class ImageFile(NamedTuple):
    """Content of an image file, suffix of its format, such as ``.jpg``, and size in pixels."""

    data: bytes
    suffix: str
    width: int
    height: int


@dataclass(frozen=True)
class Photograph:
    """A photograph, or the reason why it is missing.

    Args:
        id: Id of the photograph.
        status: ``ok``, or the reason:
            :data:`~hgld.tables.column_values.PHOTOGRAPH_STATUS_MEANINGS`.
        file: Image file; None unless the status is ``ok``.
        url: Address in GLDv2's lists.
        source: Source of the content: an address, or a tar file.
        page: Page of the file on Commons.
        author: Author.
        licence: Name of the licence.
        licence_url: Address of the licence.
        uploaded_at: Upload time of the file's version on Commons, in ISO 8601.
        problem: Description of an error, for messages.
    """

    id: str
    status: PhotographStatus
    file: ImageFile | None = None
    url: str | None = None
    source: str | None = None
    page: str | None = None
    author: str | None = None
    licence: str | None = None
    licence_url: str | None = None
    uploaded_at: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class SourcePlan:
    """Planned work of a source, partly estimated.

    Args:
        kind: Kind of the source: commons, folder or mirror.
        place: Address or folder.
        absent: Number of photographs that are known to be missing.
        n_bytes: Number of bytes of the photographs.
        requests: Number of requests; 0 for a folder.
        seconds: Time at the allowed rate of requests; None if the rate is not the limit.
        width: Width of thumbnails in pixels; None for whole photographs.
        shards: Number of tar files to download or read; 0 for Commons.
    """

    kind: str
    place: str
    absent: int
    n_bytes: int
    requests: int = 0
    seconds: float | None = None
    width: int | None = None
    shards: int = 0


class PhotographSource(Protocol):
    """A place where photographs are found by their ids."""

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        """Return the planned work of :meth:`photographs` for these ids, without downloads."""

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        """Yield each photograph, or the reason why it is missing, in any order.

        Raises:
            SourceError: The server seems to be down; photographs yielded before are valid.
        """

    def close(self) -> None:
        """Release connections and files."""


def read_image_file(data: bytes) -> ImageFile:
    """Decode the content of an image file completely."""
    image = open_image(data)
    image_format = str(image.format)
    suffix = _SUFFIX_OF_FORMAT.get(image_format, f".{image_format.lower()}")
    width, height = upright_rgb(image).size
    return ImageFile(data, suffix, width, height)


def photograph_from_tar(
    image_id: str, data: bytes, shard: str, photographs: PhotographList
) -> Photograph:
    """Return a photograph of a tar file with its facts from GLDv2's lists."""
    url = photographs.fact(image_id, "url")
    try:
        file = read_image_file(data)
    except UnreadableImageError:
        return Photograph(image_id, "unreadable", url=url, source=shard)
    licence = photographs.fact(image_id, "license")
    licence_url = None
    if licence is not None and licence.startswith(("http://", "https://")):
        licence, licence_url = None, licence
    return Photograph(
        image_id,
        "ok",
        file,
        url=url,
        source=shard,
        author=photographs.fact(image_id, "author"),
        licence=licence,
        licence_url=licence_url,
    )


class CommonsSource:
    """Thumbnails of one width from Wikimedia Commons, by the addresses in GLDv2's lists.

    Requests are sent one after the other on one connection, at the rate of a scrape. Wikimedia's
    robot policy allows two requests at a time and 25 Mbit/s
    (https://wikitech.wikimedia.org/wiki/Robot_policy). Facts about fifty files are requested first,
    then these files.

    Args:
        config: Address of Commons, and limits on requests.
        photographs: Addresses of the photographs.
        width: Width of the thumbnails in pixels.
    """

    def __init__(self, config: ClientConfig, photographs: PhotographList, width: int) -> None:
        widths = [allowed for allowed in THUMBNAIL_WIDTHS if allowed <= MAX_WIDTH]
        if width not in widths:
            nearest = min(widths, key=lambda allowed: abs(allowed - width))
            raise ConfigurationError(
                f"`width` is {width}, but Wikimedia makes thumbnails of certain widths only; choose {nearest}, or "
                f"another of {', '.join(map(str, widths))}"
            )
        self._client = WikimediaClient(config)
        self._photographs = photographs
        self._width = width
        self._failures_in_a_row = 0

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        titles, absent = self._titles(ids)
        n_requests = len(titles) + math.ceil(len(titles) / FILES_PER_REQUEST)
        n_pixels = len(titles) * self._width**2 * _ASPECT
        rate = self._client.config.rate_per_minute
        return SourcePlan(
            kind="commons",
            place=self._client.config.commons_url,
            absent=len(absent),
            n_bytes=round(n_pixels * _BYTES_PER_PIXEL),
            requests=n_requests,
            seconds=60 * n_requests / rate if rate else None,
            width=self._width,
        )

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        titles, absent = self._titles(ids)
        yield from absent
        items = list(titles.items())
        for start in range(0, len(items), FILES_PER_REQUEST):
            batch = dict(items[start : start + FILES_PER_REQUEST])
            unique_titles = list(dict.fromkeys(batch.values()))
            try:
                facts = request_file_facts(self._client, unique_titles, self._width)
            except SourceError as error:
                self._note_failure(error)
                facts = {}
                problem = str(error)
            else:
                problem = "the response of Commons does not contain this file"
            for image_id, title in batch.items():
                yield self._photograph(image_id, facts.get(title), problem)

    def close(self) -> None:
        self._client.close()

    def _titles(self, ids: Sequence[str]) -> tuple[Mapping[str, str], list[Photograph]]:
        """Return the titles of files by id, and the photographs without a valid address."""
        titles = {}
        absent = []
        for image_id in ids:
            url = self._photographs.fact(image_id, "url")
            if not url:
                absent.append(Photograph(image_id, "no_address", url=url))
                continue
            try:
                titles[image_id] = file_title_of_url(url)
            except ValueError:
                absent.append(Photograph(image_id, "invalid_address", url=url))
        return titles, absent

    def _photograph(self, image_id: str, fact: FileFact | None, problem: str) -> Photograph:
        url = self._photographs.fact(image_id, "url")
        if fact is None:
            return Photograph(image_id, "error", url=url, problem=problem)
        details = fact._asdict()
        address = details.pop("thumbnail_url")
        photograph = Photograph(image_id, url=url, **details)
        if address is None:
            return photograph
        try:
            file = self._client.file(address, _read_image)
        except SourceError as error:
            self._note_failure(error)
            return replace(photograph, status="error", problem=str(error))
        self._failures_in_a_row = 0
        if file is None:
            return replace(photograph, status="missing")
        return replace(photograph, file=file, source=address)

    def _note_failure(self, error: SourceError) -> None:
        """Count a failure; raise SourceError if the server seems to be down."""
        if not isinstance(error, RetriesExhaustedError):
            self._failures_in_a_row = 0
            return
        self._failures_in_a_row += 1
        if self._failures_in_a_row == _MAX_FAILURES_IN_A_ROW:
            raise SourceError(
                f"{_MAX_FAILURES_IN_A_ROW} requests in a row failed, the last one: {error}. What has arrived is "
                "kept; run the same command again when the server can be reached"
            ) from error


def _read_image(data: bytes) -> ImageFile:
    try:
        return read_image_file(data)
    except UnreadableImageError as error:
        raise ValueError(f"{error}: {error.detail}") from error


class FolderSource:
    """Photographs in the tar files of a folder.

    Args:
        place: Folder with tar files at any depth; or the table of ``hgld index-images`` in such a
            folder, which avoids a search of the tar files.
        photographs: Photographs to find.
    """

    def __init__(self, place: Path, photographs: PhotographList) -> None:
        self._place = place
        self._photographs = photographs
        if place.is_dir():
            self._files = TarFiles(place)
            table = read_shards(place)
        else:
            self._files = TarFiles(place.parent)
            table = read_table(place, IMAGES)
        ids = pa.array(photographs.ids, pa.string())
        matches = table.filter(pc.is_in(table["id"], value_set=ids))
        # Photographs are read fastest in the order of their offsets.
        rows = matches.sort_by([("shard", "ascending"), ("offset", "ascending")]).to_pylist()
        self._rows = {row["id"]: row for row in rows}

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        rows = [self._rows[image_id] for image_id in ids if image_id in self._rows]
        return SourcePlan(
            kind="folder",
            place=str(self._place),
            absent=len(ids) - len(rows),
            n_bytes=sum(row["size"] for row in rows),
            shards=len({row["shard"] for row in rows}),
        )

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        wanted = set(ids)
        for image_id, row in self._rows.items():
            if image_id in wanted:
                data = self._files.read(row["shard"], row["offset"], row["size"])
                yield photograph_from_tar(image_id, data, row["shard"], self._photographs)
        yield from _absent(ids, self._rows, self._photographs)

    def close(self) -> None:
        """Do nothing, as tar files are closed by garbage collection."""


class MirrorSource:
    """Photographs in the tar files of the dataset's host or a mirror.

    The tar file of a photograph is unknown before the download: tar files are downloaded one after
    the other, verified, searched, and deleted. The search ends early when all photographs are
    found.

    Args:
        base_url: Address of the host or mirror.
        split: Split of the photographs.
        shards: Numbers of the tar files to search.
        folder: Folder for the tar file that is being searched.
        photographs: Photographs to find.
        journal: Journal of the tar files that were searched for these photographs; None to only
            plan.
        config: Time limits and retries of downloads.
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
            n_shards = N_SHARDS[split]
            raise ConfigurationError(
                f"which of the {n_shards} tar files of {split} hold these photographs is not known before they are "
                f"downloaded: name those to search in `shards`, or 0:{n_shards - 1} for all, which are "
                f"{n_shards * SHARD_BYTES[split] / 1e9:,.0f} GB"
            )
        self._base_url = base_url.rstrip("/")
        self._split = split
        self._folder = folder
        self._photographs = photographs
        self._journal = journal
        self._files = shard_files(split, shards)
        self._downloader = Downloader(config)

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        n_shards = len(self._unsearched()) if ids else 0
        return SourcePlan(
            kind="mirror",
            place=self._base_url,
            absent=0,
            n_bytes=n_shards * SHARD_BYTES[self._split],
            requests=2 * n_shards,
            shards=n_shards,
        )

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        missing = set(ids)
        for file in self._unsearched():
            if not missing:
                return
            path = self._folder / Path(file.path).name
            self._download(file, path)
            index = index_shard(path)
            files = TarFiles(self._folder)
            for image_id, offset, size in zip(index.ids, index.offsets, index.sizes, strict=True):
                if image_id in missing:
                    missing.remove(image_id)
                    data = files.read(path.name, offset, size)
                    yield photograph_from_tar(image_id, data, file.path, self._photographs)
            if self._journal is not None:
                searched = {file.path: self._photographs.digest}
                self._journal.append(_SEARCHED, int(time.time()), searched)
            path.unlink()
        yield from _absent(ids, set(ids) - missing, self._photographs)

    def close(self) -> None:
        """Stop downloads, and remove their files except a tar file in progress."""
        self._downloader.close()
        for path in self._folder.glob("md5.*.txt"):
            path.unlink()
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _unsearched(self) -> list[DatasetFile]:
        """Return the tar files that were not yet searched for these photographs."""
        if self._journal is None:
            return self._files
        searched = set()
        for kind, _, facts in self._journal.batches():
            for path, digest in facts.items():
                if kind == _SEARCHED and digest == self._photographs.digest:
                    searched.add(path)
        return [file for file in self._files if file.path not in searched]

    def _download(self, file: DatasetFile, path: Path) -> None:
        assert file.md5_path is not None
        md5_file = self._folder / Path(file.md5_path).name
        md5 = self._downloader.md5(f"{self._base_url}/{file.md5_path}", md5_file)
        self._downloader.download(f"{self._base_url}/{file.path}", path, md5=md5)


def mean_image_bytes(split: str) -> float:
    """Return the mean size of a split's photographs in bytes."""
    return N_SHARDS[split] * SHARD_BYTES[split] / N_IMAGES[split]


def _absent(
    ids: Sequence[str], present: Collection[str], photographs: PhotographList
) -> Iterator[Photograph]:
    """Yield the photographs that are not in the tar files."""
    for image_id in ids:
        if image_id not in present:
            yield Photograph(image_id, "not_in_tar_files", url=photographs.fact(image_id, "url"))
