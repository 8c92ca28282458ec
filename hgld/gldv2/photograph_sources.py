"""Where photographs by id come from: tar files in a folder, those of a mirror, or Wikimedia Commons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hgld.gldv2.photograph_list import PhotographList
from hgld.io.images import UnreadableImageError, open_image, upright_rgb
from hgld.tables.column_values import PhotographStatus

_SUFFIX_OF_FORMAT = {"JPEG": ".jpg", "TIFF": ".tif"}


class ImageFile(NamedTuple):
    """The content of an image file, and what decoding it showed.

    Args:
        data: Content of the file.
        suffix: Suffix of its format, such as ``.jpg``.
        width: Width in pixels.
        height: Height in pixels.
    """

    data: bytes
    suffix: str
    width: int
    height: int


@dataclass(frozen=True)
class Photograph:
    """A photograph, or why there is none.

    Args:
        id: Its id.
        status: ``ok``, or the reason: :data:`~hgld.tables.column_values.PHOTOGRAPH_STATUS_MEANINGS`.
        file: Its file; None unless the status is ``ok``.
        url: Address in GLDv2's lists.
        source: Where the content is from: an address, or a tar file.
        page: Page of the file on Commons.
        author: Author, as text.
        licence: Name of the licence.
        licence_url: Address of the licence.
        uploaded_at: When the version of the file on Commons was uploaded, in ISO 8601.
        problem: For the status ``error``, what went wrong.
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
        kind: ``commons``, ``mirror`` or ``folder``.
        place: Address or folder.
        absent: Number of photographs that are known to be absent.
        n_bytes: Bytes to be downloaded or copied.
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
            ConfigurationError: The server refuses this client or has never answered, or a file cannot be written.
        """

    def close(self) -> None:
        """Release what the source holds."""


def read_image_file(data: bytes) -> ImageFile:
    """Decode the content of an image file completely.

    Raises:
        UnreadableImageError: It cannot be decoded.
    """
    opened = open_image(data)
    kind = str(opened.format)
    width, height = upright_rgb(opened).size
    return ImageFile(data, _SUFFIX_OF_FORMAT.get(kind, f".{kind.lower()}"), width, height)


def photograph_from_tar(image_id: str, data: bytes, shard: str, photographs: PhotographList) -> Photograph:
    """Return a photograph of a tar file with what GLDv2's lists say about it."""
    licence = photographs.fact(image_id, "license")
    is_address = licence is not None and licence.startswith(("http://", "https://"))
    try:
        file = read_image_file(data)
    except UnreadableImageError:
        return Photograph(image_id, "unreadable", url=photographs.fact(image_id, "url"), source=shard)
    return Photograph(
        image_id,
        "ok",
        file,
        url=photographs.fact(image_id, "url"),
        source=shard,
        author=photographs.fact(image_id, "author"),
        licence=None if is_address else licence,
        licence_url=licence if is_address else None,
    )
