"""The category pages as a source: one request per landmark, as in the paper (section VI-A).

The Wikidata infobox (``table#wdinfobox``) shows the values in its row "Instance of". A page says less than the API:
no ids of most classes, no languages, no revisions, no superclasses, and a label that ends in a parenthesis looks
like a value with a qualifier. A page does not say either whether its infobox shows the category's own item or the
main topic, so the route never has ``topic``. This source is a check on the API source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from hgld.errors import SourceError
from hgld.tables.column_values import RouteStep, ScrapeStatus
from hgld.wikimedia.category_page import ParsedPage, parse_page
from hgld.wikimedia.client import HtmlResponse, WikimediaClient
from hgld.wikimedia.source import FactStore, InstanceOfValue, Resolution, route_of, unique_values
from hgld.wikimedia.titles import is_sendable

PAGE = "page"  # title -> ParsedPage; the only kind of facts
_SHAPE = TypeAdapter(ParsedPage)

#: What a page of MediaWiki says, by its HTTP status. To an invalid title MediaWiki answers 400 or (1.39) 404.
_STATUSES = {
    200: ("found", "missing", "redirect_unresolved"),
    400: ("invalid_title",),
    404: ("missing", "invalid_title"),
}


class HtmlSource:
    """See :class:`hgld.wikimedia.source.Source`.

    Args:
        client: Client of Commons.
    """

    kinds = (PAGE,)
    class_kind = None

    def __init__(self, client: WikimediaClient) -> None:
        self._client = client

    def batch_size(self, kind: str) -> int:
        """See :class:`Source`."""
        return 1

    def fetch(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """See :class:`Source`."""
        return {title: self._client.page(title, _read_page) for title in keys}

    def from_json(self, kind: str, fact: Any) -> Any:
        """See :class:`Source`."""
        return _SHAPE.validate_python(fact)

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """See :class:`Source`; one soft redirect is followed, and each hard redirect that the server follows."""
        if not is_sendable(title):
            return Resolution("invalid_title")
        page: ParsedPage = facts.get(PAGE, title)
        redirects: list[RouteStep] = ["hard_redirect"] * page.redirected
        if page.soft_target is not None:
            visited = {title, page.title}
            if page.soft_target in visited:
                return Resolution("redirect_loop")
            visited.add(page.soft_target)
            page = facts.get(PAGE, page.soft_target)
            redirects.append("soft_redirect")
            redirects += ["hard_redirect"] * page.redirected
            if page.soft_target is not None:
                return Resolution("redirect_loop" if page.soft_target in visited else "redirect_unresolved")
        if page.status != "found":
            return Resolution(page.status)
        if page.values is None:
            return Resolution("no_infobox", page.title)
        values = unique_values(InstanceOfValue(item, label, None) for item, label in page.values)
        status: ScrapeStatus = "ok" if values else "no_instance_of"
        return Resolution(status, page.title, page.item, route_of(redirects), None, values)


def _read_page(response: HtmlResponse) -> ParsedPage:
    """Return the contents of a response.

    A status says something about the landmark only if the page says the same: proxies, wrong addresses and refused
    requests answer 400 and 404 as well.

    Raises:
        ValueError: The status is 200, but this is not a page of MediaWiki, such as that of a network's login.
        SourceError: The status is 400 or 404 for another reason than an invalid title or a missing page.
    """
    try:
        page = parse_page(response.html)
        if page.status not in _STATUSES[response.status]:
            raise ValueError(f'a page of MediaWiki that says "{page.status}"')
    except ValueError as error:
        if response.status == 200:
            raise
        raise SourceError(
            f"{response.url} answered {response.status} for another reason than MediaWiki's: {error}"
        ) from None
    return page
