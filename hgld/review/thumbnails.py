"""Thumbnails of photographs for the page: made in threads, kept in memory up to a number of bytes.

Nothing is kept on disk: a thumbnail takes a few milliseconds, browsers keep those they have seen, and nothing has to
be cleaned up after the server is killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from hgld.errors import InputError
from hgld.figures.photographs import make_thumbnail
from hgld.io.images import UnreadableImageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ThumbnailSize:
    """Size of thumbnails in pixels; see :func:`hgld.figures.photographs.make_thumbnail`."""

    width: int
    height: int
    crop: bool
    quality: int


#: Sizes by name: twice the size in the card, for screens of high resolution; and enlarged.
SIZES = {"small": ThumbnailSize(240, 180, True, 80), "large": ThumbnailSize(1024, 1024, False, 85)}


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A thumbnail, or the reason why there is none.

    Args:
        jpeg: Content; empty if there is none.
        etag: Entity tag of the content, in quotes.
        problem: Short reason, such as ``damaged``, or empty.
    """

    jpeg: bytes
    etag: str
    problem: str = ""


class ThumbnailCache:
    """Thumbnails by photograph and size, to be used from one event loop.

    Args:
        read: Return the content of a photograph; called in threads. May raise an InputError, or a KeyError if there
            is no such photograph.
        max_bytes: Size of all thumbnails that are kept; those that were not asked for longest are dropped first.
        workers: Number of thumbnails made at once. Two leave the server's own thread room to answer on two cores.
    """

    def __init__(self, read: Callable[[str], bytes], *, max_bytes: int = 64 * 2**20, workers: int = 2) -> None:
        self._read, self._max_bytes = read, max_bytes
        self._made: OrderedDict[tuple[str, str], Thumbnail] = OrderedDict()
        self._bytes = 0
        self._turn = asyncio.Semaphore(workers)
        #: Locks of the thumbnails that are being made, so that none is made twice.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._logged: set[str] = set()

    async def get(self, image_id: str, size: str, is_abandoned: Callable[[], Awaitable[bool]]) -> Thumbnail | None:
        """Return the thumbnail of a photograph; None if it is no longer needed when its turn comes.

        Args:
            image_id: Id of the photograph.
            size: Name of the size, one of ``SIZES``.
            is_abandoned: Return whether nobody waits for the thumbnail any more.

        Raises:
            KeyError: There is no such photograph.
        """
        key = (image_id, size)
        if (thumbnail := self._kept(key)) is not None:
            return thumbnail
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock, self._turn:
            # It may have been made for somebody else in the meantime.
            if (thumbnail := self._kept(key)) is not None:
                return thumbnail
            if await is_abandoned():
                return None
            thumbnail = await asyncio.to_thread(self._make, image_id, SIZES[size])
            if thumbnail.jpeg:
                self._keep(key, thumbnail)
            return thumbnail

    def _make(self, image_id: str, size: ThumbnailSize) -> Thumbnail:
        """Return a thumbnail, or the reason for none, which is logged once."""
        try:
            data = self._read(image_id)
            jpeg = make_thumbnail(data, size.width, size.height, crop=size.crop, quality=size.quality)
        except UnreadableImageError as error:
            self._log_once(f"the photograph {image_id} cannot be shown: {error}")
            return Thumbnail(b"", "", str(error))
        except (InputError, OSError, MemoryError) as error:
            self._log_once(f"a photograph cannot be read: {error}")
            return Thumbnail(b"", "", "its file cannot be read")
        return Thumbnail(jpeg, f'"{hashlib.sha256(jpeg).hexdigest()[:32]}"')

    def _kept(self, key: tuple[str, str]) -> Thumbnail | None:
        if key in self._made:
            self._made.move_to_end(key)
        return self._made.get(key)

    def _keep(self, key: tuple[str, str], thumbnail: Thumbnail) -> None:
        self._bytes += len(thumbnail.jpeg)
        self._made[key] = thumbnail
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._made.popitem(last=False)[1].jpeg)

    def _log_once(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.warning("%s", message)
