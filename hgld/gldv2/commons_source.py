"""Photographs from Wikimedia Commons, by the addresses in GLDv2's lists, as thumbnails of one width.

Requests follow one another on one connection at the rate of a scrape: fewer than Wikimedia's robot policy allows
(https://wikitech.wikimedia.org/wiki/Robot_policy: two at a time, 25 Mbit/s). Facts about fifty files come first, then
these files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hgld.errors import ConfigurationError, SourceError
from hgld.gldv2.photograph_list import PhotographList
from hgld.gldv2.photograph_sources import ImageFile, Photograph, SourcePlan, read_image_file
from hgld.io.http import RetriesExhaustedError
from hgld.io.images import UnreadableImageError
from hgld.wikimedia.client import ClientConfig, WikimediaClient
from hgld.wikimedia.file_facts import (
    FILES_PER_REQUEST,
    THUMBNAIL_WIDTHS,
    FileFact,
    file_title_of_url,
    request_file_facts,
)

#: A wider thumbnail a request would exceed the bandwidth that the robot policy allows.
MAX_WIDTH = 1280
#: Number of failures in a row after which the server is assumed to be down.
_MAX_FAILURES_IN_A_ROW = 5
#: Rough numbers for estimates: height by width of a photograph, and bytes by pixel of a thumbnail.
_ASPECT, _BYTES_PER_PIXEL = 0.75, 0.3


class CommonsSource:
    """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`.

    Args:
        config: Address of Commons, and limits on requests to it.
        photographs: Wanted photographs.
        width: Width of the thumbnails in pixels.

    Raises:
        ConfigurationError: Wikimedia makes no thumbnails of this width.
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
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
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
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
        titles, absent = self._titles(ids)
        yield from absent
        items = list(titles.items())
        for start in range(0, len(items), FILES_PER_REQUEST):
            batch = dict(items[start : start + FILES_PER_REQUEST])
            try:
                facts = request_file_facts(self._client, list(dict.fromkeys(batch.values())), self._width)
            except SourceError as error:
                self._note_failure(error)
                facts = {}
                problem = str(error)
            else:
                problem = "the response of Commons does not contain this file"
            for image_id, title in batch.items():
                yield self._photograph(image_id, facts.get(title), problem)

    def close(self) -> None:
        """See :class:`~hgld.gldv2.photograph_sources.PhotographSource`."""
        self._client.close()

    def _titles(self, ids: Sequence[str]) -> tuple[Mapping[str, str], list[Photograph]]:
        """Return the titles of files by id, and the photographs whose address names none."""
        titles, absent = {}, []
        for image_id in ids:
            url = self._photographs.fact(image_id, "url")
            try:
                titles[image_id] = file_title_of_url(url or "")
            except ValueError:
                absent.append(Photograph(image_id, "invalid_address" if url else "no_address", url=url))
        return titles, absent

    def _photograph(self, image_id: str, fact: FileFact | None, problem: str) -> Photograph:
        url = self._photographs.fact(image_id, "url")
        if fact is None:
            return Photograph(image_id, "error", url=url, problem=problem)
        photograph = Photograph(
            image_id,
            fact.status,
            url=url,
            page=fact.page,
            author=fact.author,
            licence=fact.licence,
            licence_url=fact.licence_url,
            uploaded_at=fact.uploaded_at,
        )
        if fact.thumbnail_url is None:
            return photograph
        try:
            file = self._client.file(fact.thumbnail_url, _read_image)
        except SourceError as error:
            self._note_failure(error)
            return replace(photograph, status="error", problem=str(error))
        self._failures_in_a_row = 0
        if file is None:
            return replace(photograph, status="missing")
        return replace(photograph, file=file, source=fact.thumbnail_url)

    def _note_failure(self, error: SourceError) -> None:
        """Raise SourceError if the server seems to be down."""
        self._failures_in_a_row = self._failures_in_a_row + 1 if isinstance(error, RetriesExhaustedError) else 0
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
