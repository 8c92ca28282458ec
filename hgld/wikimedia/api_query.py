"""Calls of ``action=query`` for a list of titles, whose response may come in several parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hgld.errors import SourceError
from hgld.wikimedia.api_documents import Page, PageTitle, QueryDocument, read_document
from hgld.wikimedia.client import WikimediaClient

#: Limit of the parts of one response, far above what fifty pages need.
_MAX_PARTS = 500


class QueryResult:
    """The response to ``action=query``, collected from all its parts.

    Attributes:
        normalized: Normalised titles by requested title.
        redirects: Targets of hard redirects by title; None for a redirect to another wiki.
        pages: Pages by title.
        odd: Titles of pages that had another shape in one of the parts, with the reason.
    """

    def __init__(self) -> None:
        self.normalized: dict[str, str] = {}
        self.redirects: dict[str, str | None] = {}
        self.pages: dict[str, Page] = {}
        self.odd: dict[str, str] = {}

    def add(self, document: QueryDocument) -> None:
        """Add a part of the response.

        Raises:
            ValueError: No page has the shape of a page, or an odd one has no title. Nothing was added.
        """
        pages, odd = [], {}
        for value in document.query.pages:
            try:
                pages.append(read_document(Page, value))
            except ValueError as error:
                odd[read_document(PageTitle, value).title] = str(error)
        if odd and not pages:
            raise ValueError(f"query.pages: {next(iter(odd.values()))}")
        self.odd |= odd
        self.normalized.update((row.source, row.target) for row in document.query.normalized)
        self.redirects.update((row.source, None if row.interwiki else row.target) for row in document.query.redirects)
        for page in pages:
            known = self.pages.get(page.title)
            self.pages[page.title] = known.merged(page) if known else page

    def page(self, title: str) -> Page | None:
        """Return a page, or None if the response does not contain it, or not all of it."""
        return None if title in self.odd else self.pages.get(title)

    def follow(self, requested: str) -> tuple[str, Literal["redirect_loop", "redirect_unresolved"] | None, bool]:
        """Follow normalisation and hard redirects from a requested title.

        Returns:
            The title where they end; ``redirect_loop`` or ``redirect_unresolved`` if that is no page of this wiki,
            else None; and whether a redirect was followed.
        """
        title = self.normalized.get(requested, requested)
        visited: set[str] = set()
        while title in self.redirects:
            if title in visited:
                return title, "redirect_loop", True
            visited.add(title)
            target = self.redirects[title]
            if target is None:
                return title, "redirect_unresolved", True
            title = target
        return title, None, bool(visited)


def query_titles(client: WikimediaClient, titles: Sequence[str], parameters: Mapping[str, str]) -> QueryResult:
    """Call ``action=query`` of Commons until it is complete: a response, and even a page, may come in several parts.

    Args:
        client: Client of Commons.
        titles: Up to fifty titles.
        parameters: What to ask about them.

    Raises:
        SourceError: The call failed, or its response has too many parts.
    """
    result = QueryResult()
    continuation: dict[str, str] = {}

    def read_part(value: dict[str, Any]) -> dict[str, str]:
        document = read_document(QueryDocument, value)
        following = {name: str(text) for name, text in (document.continuation or {}).items()}
        if following and following == continuation:
            raise ValueError(f"it continues where it began: {following}")
        result.add(document)
        return following

    for _ in range(_MAX_PARTS):
        call = {"action": "query", "titles": "|".join(titles), **parameters, **continuation}
        continuation = client.commons(call, read_part)
        if not continuation:
            return result
    raise SourceError(f"a response of Commons has more than {_MAX_PARTS} parts")
