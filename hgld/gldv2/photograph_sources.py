"""Where photographs by id come from: tar files in a folder, those of a mirror, or Wikimedia Commons.

Lists name the photographs, and say what is known about them: address, author and licence.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError, InputError, SourceError, indented_list
from hgld.gldv2.download import N_IMAGES, SHARD_BYTES, SUBSETS, DatasetFile, Downloader, shard_files
from hgld.gldv2.settings import N_SHARDS, DownloadConfig
from hgld.gldv2.tar_images import TarFiles, index_shard, read_shards
from hgld.io.columns import (
    SPREADSHEETS,
    locate_invalid_byte,
    preview,
    read_columns,
    text_column_names,
)
from hgld.io.http import RetriesExhaustedError
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from hgld.io.journal import Journal
from hgld.tables import IMAGES, read_table
from hgld.tables.column_values import PhotographStatus
from hgld.wikimedia.api_facts import (
    FILES_PER_REQUEST,
    THUMBNAIL_WIDTHS,
    FileFact,
    file_title_of_url,
    request_file_facts,
)
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.settings import ClientConfig

#: Columns of GLDv2's train.csv and train_attribution.csv that say something about a photograph.
_FACTS = ("url", "author", "license")
_ID = re.compile("[0-9a-f]{16}")
_EXPECTED = (
    "expected ids such as 1272ef793ebba7a2, one a line, or a CSV or Parquet file with a column id; "
    f"lists that come with hgld are called {', '.join(SUBSETS)}"
)

_SUFFIX_OF_FORMAT = {"JPEG": ".jpg", "TIFF": ".tif"}
#: A wider thumbnail a request would exceed the bandwidth that the robot policy allows.
MAX_WIDTH = 1280
#: Number of failures in a row after which the server is assumed to be down.
_MAX_FAILURES_IN_A_ROW = 5
#: Rough numbers for estimates: height by width of a photograph, and bytes by pixel of a thumbnail.
_ASPECT, _BYTES_PER_PIXEL = 0.75, 0.3
#: Kind of the journal's facts about tar files that need not be downloaded again.
_SEARCHED = "shard"


@dataclass(frozen=True)
class PhotographList:
    """Ids of photographs, each once, and by id what GLDv2's files have in ``url``, ``author`` and ``license``."""

    ids: Sequence[str]
    facts: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the ids in hexadecimal, whatever their order."""
        return hashlib.sha256("\n".join(sorted(self.ids)).encode()).hexdigest()

    def fact(self, image_id: str, name: str) -> str | None:
        """Return the value of a column for a photograph; None if it is not known."""
        return self.facts.get(image_id, {}).get(name)


def read_photograph_list(path: Path, urls: Path | None = None) -> PhotographList:
    """Read ids of photographs, and what is known about them.

    Args:
        path: A text file of ids, one a line; or a CSV or Parquet file with the column ``id`` and, if it has them,
            ``url``, ``author`` and ``license``, such as a part of GLDv2's train.csv.
        urls: CSV or Parquet file with these columns for the same and any other photographs, such as train.csv or
            train_attribution.csv; its values come first.
    """
    facts: dict[str, dict[str, str]] = {}
    if _is_plain(path):
        ids = list(_plain_ids(path))
    else:
        table = _read(path)
        ids = table["id"].to_pylist()
        _add_facts(facts, table)
    if not ids:
        raise InputError(f"{path}: no ids in this file; {_EXPECTED}")
    if bad := [str(value) for value in ids if value is None or not _ID.fullmatch(value)]:
        raise InputError(
            f"{path}: {len(bad):,} of {len(ids):,} ids are not those of GLDv2, which have 16 hexadecimal digits; "
            f"{_EXPECTED}\n{indented_list(bad)}"
        )
    ids = list(dict.fromkeys(ids))
    if urls is not None:
        table = _read(urls)
        _add_facts(facts, table.filter(pc.is_in(table["id"], value_set=pa.array(ids))))
    return PhotographList(ids, facts)


def _is_plain(path: Path) -> bool:
    """Return whether a file is a list without header: its first line is one word, and not ``id``."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {found}; {_EXPECTED}")
    if path.suffix.lower() in (".parquet", *SPREADSHEETS):
        return False
    with path.open("rb") as stream:
        first = stream.readline(2**16).removeprefix(b"\xef\xbb\xbf").strip()
    return b"," not in first and first.strip(b'"') != b"id"


def _plain_ids(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {locate_invalid_byte(path)}; {_EXPECTED}") from error
    return (line.strip() for line in text.splitlines() if line.strip())


def _read(path: Path) -> pa.Table:
    present = text_column_names(path)
    if "id" not in present:
        raise InputError(f"{path}: no column id; found {preview(present)}; {_EXPECTED}")
    names = ("id", *_FACTS)
    return read_columns(path, names, dict.fromkeys(names, pa.string()))


def _add_facts(facts: dict[str, dict[str, str]], table: pa.Table) -> None:
    names = [name for name in _FACTS if name in table.column_names]
    if names:
        for row in table.to_pylist():
            known = {name: row[name] for name in names if row[name]}
            facts[row["id"]] = facts.get(row["id"], {}) | known


class ImageFile(NamedTuple):
    """Content of an image file, the suffix of its format, such as ``.jpg``, and its size in pixels."""

    data: bytes
    suffix: str
    width: int
    height: int


@dataclass(frozen=True)
class Photograph:
    """A photograph, or why there is none.

    Args:
        status: ``ok``, or the reason: :data:`~hgld.tables.column_values.PHOTOGRAPH_STATUS_MEANINGS`.
        file: Its file; None unless the status is ``ok``.
        url: Address in GLDv2's lists.
        source: Where the content is from: an address, or a tar file.
        page: Page of the file on Commons.
        uploaded_at: When the version of the file on Commons was uploaded, in ISO 8601.
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
    """What a source is going to do; estimates where it cannot be known before.

    Args:
        requests: Number of requests; 0 for a folder.
        seconds: Time at the allowed rate of requests; None where that is not the limit.
        width: Width of thumbnails in pixels; None for whole photographs.
        shards: Number of tar files to be downloaded or read; 0 for Commons.
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
        """Return what :meth:`photographs` is going to do for these ids; nothing is downloaded."""

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        """Yield each photograph, or why there is none, in any order.

        Raises:
            SourceError: The server seems to be down; what was yielded before holds.
        """

    def close(self) -> None:
        """Release what the source holds."""


def read_image_file(data: bytes) -> ImageFile:
    """Decode the content of an image file completely."""
    opened = open_image(data)
    kind = str(opened.format)
    width, height = upright_rgb(opened).size
    return ImageFile(data, _SUFFIX_OF_FORMAT.get(kind, f".{kind.lower()}"), width, height)


def photograph_from_tar(
    image_id: str, data: bytes, shard: str, photographs: PhotographList
) -> Photograph:
    """Return a photograph of a tar file with what GLDv2's lists say about it."""
    photograph = Photograph(
        image_id, "unreadable", url=photographs.fact(image_id, "url"), source=shard
    )
    try:
        file = read_image_file(data)
    except UnreadableImageError:
        return photograph
    author, licence = (photographs.fact(image_id, name) for name in ("author", "license"))
    is_address = licence is not None and licence.startswith(("http://", "https://"))
    texts = (None, licence) if is_address else (licence, None)
    return replace(
        photograph, status="ok", file=file, author=author, licence=texts[0], licence_url=texts[1]
    )


class CommonsSource:
    """Photographs from Wikimedia Commons, by the addresses in GLDv2's lists, as thumbnails of one width.

    Requests follow one another on one connection at the rate of a scrape: fewer than Wikimedia's robot policy allows
    (https://wikitech.wikimedia.org/wiki/Robot_policy: two at a time, 25 Mbit/s). Facts about fifty files come first,
    then these files.
    """

    def __init__(self, config: ClientConfig, photographs: PhotographList, width: int) -> None:
        widths = [allowed for allowed in THUMBNAIL_WIDTHS if allowed <= MAX_WIDTH]
        if width not in widths:
            nearest = min(widths, key=lambda allowed: abs(allowed - width))
            raise ConfigurationError(
                f"`width` is {width}, but Wikimedia makes thumbnails of certain widths only; choose {nearest}, or "
                f"another of {', '.join(map(str, widths))}"
            )
        self._client, self._photographs, self._width = WikimediaClient(config), photographs, width
        self._failures_in_a_row = 0

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        titles, absent = self._titles(ids)
        requests = len(titles) + -(-len(titles) // FILES_PER_REQUEST)
        rate = self._client.config.rate_per_minute
        return SourcePlan(
            "commons",
            self._client.config.commons_url,
            len(absent),
            round(len(titles) * self._width**2 * _ASPECT * _BYTES_PER_PIXEL),
            requests=requests,
            seconds=60 * requests / rate if rate else None,
            width=self._width,
        )

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        titles, absent = self._titles(ids)
        yield from absent
        items = list(titles.items())
        for start in range(0, len(items), FILES_PER_REQUEST):
            batch = dict(items[start : start + FILES_PER_REQUEST])
            try:
                facts = request_file_facts(
                    self._client, list(dict.fromkeys(batch.values())), self._width
                )
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
        """Return the titles of files by id, and the photographs whose address names none."""
        titles, absent = {}, []
        for image_id in ids:
            url = self._photographs.fact(image_id, "url")
            try:
                titles[image_id] = file_title_of_url(url or "")
            except ValueError:
                absent.append(
                    Photograph(image_id, "invalid_address" if url else "no_address", url=url)
                )
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
        """Raise SourceError if the server seems to be down."""
        self._failures_in_a_row = (
            self._failures_in_a_row + 1 if isinstance(error, RetriesExhaustedError) else 0
        )
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
        place: Folder with tar files at any depth; or the table of ``hgld index-images`` in such a folder, with which
            the tar files need not be searched.
    """

    def __init__(self, place: Path, photographs: PhotographList) -> None:
        self._place, self._photographs = place, photographs
        self._files = TarFiles(place if place.is_dir() else place.parent)
        table = read_shards(place) if place.is_dir() else read_table(place, IMAGES)
        found = table.filter(
            pc.is_in(table["id"], value_set=pa.array(photographs.ids, pa.string()))
        )
        # In this order they are read fastest.
        rows = found.sort_by([("shard", "ascending"), ("offset", "ascending")]).to_pylist()
        self._rows = {row["id"]: row for row in rows}

    def plan(self, ids: Sequence[str]) -> SourcePlan:
        rows = [self._rows[image_id] for image_id in ids if image_id in self._rows]
        n_bytes, shards = sum(row["size"] for row in rows), len({row["shard"] for row in rows})
        return SourcePlan("folder", str(self._place), len(ids) - len(rows), n_bytes, shards=shards)

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
        wanted = set(ids)
        for image_id, row in self._rows.items():
            if image_id in wanted:
                data = self._files.read(row["shard"], row["offset"], row["size"])
                yield photograph_from_tar(image_id, data, row["shard"], self._photographs)
        yield from _absent(ids, self._rows, self._photographs)

    def close(self) -> None:
        """Do nothing: tar files are closed when they are no longer used."""


class MirrorSource:
    """Photographs in the tar files of the dataset's host or a mirror.

    Which tar file holds a photograph shows only once it is there: the tar files are downloaded one after the other,
    verified, searched, and deleted. The search ends early when all photographs are found.

    Args:
        folder: Folder for the tar file that is being searched.
        journal: Journal that knows which tar files were searched for these photographs; None to only plan.
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
        left = len(self._unsearched()) if ids else 0
        n_bytes = left * SHARD_BYTES[self._split]
        return SourcePlan("mirror", self._base_url, 0, n_bytes, requests=2 * left, shards=left)

    def photographs(self, ids: Sequence[str]) -> Iterator[Photograph]:
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
                self._journal.append(
                    _SEARCHED, int(time.time()), {file.path: self._photographs.digest}
                )
            path.unlink()
        yield from _absent(ids, set(ids) - missing, self._photographs)

    def close(self) -> None:
        """Stop downloads, and remove what is left of them but for a tar file in progress."""
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
        md5 = self._downloader.md5(f"{self._base_url}/{file.md5_path}", md5_file)
        self._downloader.download(f"{self._base_url}/{file.path}", path, md5=md5)


def mean_image_bytes(split: str) -> float:
    """Return the mean size of a split's photographs in bytes."""
    return N_SHARDS[split] * SHARD_BYTES[split] / N_IMAGES[split]


def _absent(
    ids: Sequence[str], found: Collection[str], photographs: PhotographList
) -> Iterator[Photograph]:
    for image_id in ids:
        if image_id not in found:
            yield Photograph(image_id, "not_in_tar_files", url=photographs.fact(image_id, "url"))
