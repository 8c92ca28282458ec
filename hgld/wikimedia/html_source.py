"""The category pages as a source: one request per landmark, as in the paper (section VI-A).

The Wikidata infobox (``table#wdinfobox``) shows the values in its row "Instance of". A page says less than the API:
no ids of most classes, no languages, no revisions, no superclasses, and a label that ends in a parenthesis looks
like a value with a qualifier. A page does not say either whether its infobox shows the category's own item or the
main topic, so the route never has ``topic``. This source is a check on the API source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from sys import intern
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.source import FactStore, InstanceOfValue, Resolution, route_of, unique_values
from hgld.wikimedia.titles import is_sendable, normalise_title

PAGE = "page"  # title -> ParsedPage; the only kind of facts

_HEADER = "instance of"
_ITEM_URL = re.compile(r"https?://www\.wikidata\.org/wiki/(Q[1-9][0-9]*)")
_ITEM = re.compile(r"Q[1-9][0-9]*")
#: A qualifier after a value, such as " (1172–1954)"; it may contain parentheses.
_QUALIFIER = re.compile(r"\s*\((?:[^()]|\([^()]*\))*\)$")


class ParsedPage(NamedTuple):
    """Contents of a category page.

    Args:
        status: ``found``, ``missing``, ``invalid_title``, or ``redirect_unresolved`` for a hard redirect that was not
            followed and a soft one that names no page.
        title: Heading of the page.
        redirected: Whether the server followed a hard redirect.
        soft_target: Title that a soft redirect names.
        item: Id of the item behind the infobox.
        values: Item, where shown, and label of each value; None without an infobox.
    """

    status: str
    title: str | None = None
    redirected: bool = False
    soft_target: str | None = None
    item: str | None = None
    values: tuple[tuple[str | None, str], ...] | None = None


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
        return {title: self._fetch_page(title) for title in keys}

    def from_json(self, kind: str, fact: Any) -> Any:
        """See :class:`Source`."""
        page = ParsedPage(*fact)
        if page.values is None:
            return page
        return page._replace(values=tuple((item, intern(label)) for item, label in page.values))

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """See :class:`Source`; one soft redirect is followed, and each hard redirect that the server follows."""
        if not is_sendable(title):
            return Resolution("invalid_title")
        page: ParsedPage = facts.get(PAGE, title)
        redirects = ["hard_redirect"] * page.redirected
        if page.soft_target is not None:
            visited = {title, page.title}
            if page.soft_target in visited:
                return Resolution("redirect_loop")
            visited.add(page.soft_target)
            page = facts.get(PAGE, page.soft_target)
            redirects += ["soft_redirect"] + ["hard_redirect"] * page.redirected
            if page.soft_target is not None:
                return Resolution("redirect_loop" if page.soft_target in visited else "redirect_unresolved")
        if page.status != "found":
            return Resolution(page.status)
        if page.values is None:
            return Resolution("no_infobox", page.title)
        values = unique_values(InstanceOfValue(item, label, None) for item, label in page.values)
        status = "ok" if values else "no_instance_of"
        return Resolution(status, page.title, page.item, route_of(redirects), None, values)

    def _fetch_page(self, title: str) -> ParsedPage:
        page = self._client.page(title)
        if page.status != 200:
            return ParsedPage("missing" if page.status == 404 else "invalid_title")
        return parse_page(page.html)


def parse_page(html: str) -> ParsedPage:
    """Parse the HTML of a category page."""
    soup = BeautifulSoup(html, "lxml")
    heading = soup.find(id="firstHeading")
    title = heading.get_text() if heading else None
    redirected = soup.find(class_="mw-redirectedfrom") is not None
    if soup.find(class_="redirectMsg"):
        return ParsedPage("redirect_unresolved", title)
    box = soup.find(id="category-redirect")
    if isinstance(box, Tag):
        target = _soft_target(box)
        return ParsedPage("found" if target else "redirect_unresolved", title, redirected, target)
    infobox = soup.find("table", id="wdinfobox")
    if not isinstance(infobox, Tag):
        return ParsedPage("found", title, redirected)
    return ParsedPage("found", title, redirected, None, _infobox_item(infobox), _infobox_values(infobox))


def _soft_target(box: Tag) -> str | None:
    link = box.find("a", href=re.compile("/wiki/Category:", re.IGNORECASE))
    if not isinstance(link, Tag):
        return None
    return normalise_title(unquote(urlsplit(str(link["href"])).path.partition("/wiki/")[2]))


def _infobox_item(infobox: Tag) -> str | None:
    """Return the item behind the infobox, from the last of the links to edit it."""
    links = infobox.select(".wikidatainfobox-edit a[href]")
    match = _ITEM_URL.match(str(links[-1]["href"])) if links else None
    return match[1] if match else None


def _infobox_values(infobox: Tag) -> tuple[tuple[str | None, str], ...]:
    for header in infobox.find_all("th"):
        if header.get_text(" ", strip=True).lower() == _HEADER:
            cell = header.find_next_sibling("td")
            if not isinstance(cell, Tag):
                return ()
            return tuple(value for entry in cell.find_all("li") or [cell] if (value := _value(entry))[1])
    return ()


def _value(entry: Tag) -> tuple[str | None, str]:
    """Return the item of a value, where the page shows it, and its label without qualifiers."""
    # Many landmarks share few labels; interning keeps each in memory once.
    label = intern(_QUALIFIER.sub("", " ".join(entry.get_text().split())))
    if _ITEM.fullmatch(label):  # the page shows the id of a class without a label
        return label, label
    link = entry.find("a", href=_ITEM_URL)
    match = _ITEM_URL.match(str(link["href"])) if isinstance(link, Tag) else None
    return (match[1] if match else None), label
