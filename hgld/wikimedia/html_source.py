"""The category pages themselves, one request a landmark: what the paper did (section VI-A).

The Wikidata infobox (``table#wdinfobox``) shows the values in its row "Instance of". A page says less than the
API: no ids of most classes, no languages, no revisions, no superclasses, and a label that ends in a parenthesis
cannot be told from a value with a qualifier. Whether an infobox shows the category's own item or its main topic is
not said either, so the route has no ``topic``. It is the check on the other source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from sys import intern
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

from hgld.wikimedia.client import Client
from hgld.wikimedia.source import Answer, Facts, Value, unique_values
from hgld.wikimedia.titles import is_sendable, normalise_title

PAGE = "page"  # title -> HtmlPage

_HEADER = "instance of"
_ITEM_URL = re.compile(r"https?://www\.wikidata\.org/wiki/(Q[1-9][0-9]*)")
_ITEM = re.compile(r"Q[1-9][0-9]*")
#: " (1172–1954)", " (Diocese of Edge)": a qualifier after a value; it may hold parentheses of its own.
_QUALIFIER = re.compile(r"\s*\((?:[^()]|\([^()]*\))*\)$")


class HtmlPage(NamedTuple):
    """What a page shows.

    ``status``: found, missing, invalid_title, or redirect_unresolved for a hard redirect that was not followed
    and a soft one that names no page.
    ``values``: None without an infobox; else the item (where shown) and the label of each value.
    """

    status: str
    title: str | None = None
    redirected: bool = False
    soft_target: str | None = None
    item: str | None = None
    values: tuple[tuple[str | None, str], ...] | None = None


class HtmlSource:
    """See :class:`hgld.wikimedia.source.Source`."""

    kinds = (PAGE,)
    class_kind = None

    def __init__(self, client: Client) -> None:
        self._client = client

    def batch_size(self) -> int:
        """See :class:`Source`."""
        return 1

    def ask(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """See :class:`Source`."""
        return {title: self._ask_page(title) for title in keys}

    def restore(self, kind: str, fact: Any) -> Any:
        """See :class:`Source`."""
        page = HtmlPage(*fact)
        if page.values is None:
            return page
        return page._replace(values=tuple((item, intern(label)) for item, label in page.values))

    def resolve(self, title: str, facts: Facts) -> Answer:
        """See :class:`Source`; one soft redirect is followed, and the one hard redirect that the server follows."""
        if not is_sendable(title):
            return Answer("invalid_title")
        page: HtmlPage = facts.get(PAGE, title)
        hops = ["hard_redirect"] * page.redirected
        if page.soft_target is not None:
            before = {title, page.title}
            if page.soft_target in before:
                return Answer("redirect_loop")
            before.add(page.soft_target)
            page = facts.get(PAGE, page.soft_target)
            hops += ["soft_redirect"] + ["hard_redirect"] * page.redirected
            if page.soft_target is not None:
                return Answer("redirect_loop" if page.soft_target in before else "redirect_unresolved")
        if page.status != "found":
            return Answer(page.status)
        if page.values is None:
            return Answer("no_infobox", page.title)
        values = unique_values(Value(item, label, None) for item, label in page.values)
        route = "+".join(hops) or "direct"
        return Answer("ok" if values else "no_instance_of", page.title, page.item, route, None, values)

    def _ask_page(self, title: str) -> HtmlPage:
        page = self._client.page(title)
        if page.status != 200:
            return HtmlPage("missing" if page.status == 404 else "invalid_title")
        return parse_page(page.html)


def parse_page(html: str) -> HtmlPage:
    """Read a category page."""
    soup = BeautifulSoup(html, "lxml")
    heading = soup.find(id="firstHeading")
    title = heading.get_text() if heading else None
    redirected = soup.find(class_="mw-redirectedfrom") is not None
    if soup.find(class_="redirectMsg"):
        return HtmlPage("redirect_unresolved", title)
    box = soup.find(id="category-redirect")
    if isinstance(box, Tag):
        target = _soft_target(box)
        return HtmlPage("found" if target else "redirect_unresolved", title, redirected, target)
    infobox = soup.find("table", id="wdinfobox")
    if not isinstance(infobox, Tag):
        return HtmlPage("found", title, redirected)
    return HtmlPage("found", title, redirected, None, _item_of(infobox), _values(infobox))


def _soft_target(box: Tag) -> str | None:
    link = box.find("a", href=re.compile("/wiki/Category:", re.IGNORECASE))
    if not isinstance(link, Tag):
        return None
    return normalise_title(unquote(urlsplit(str(link["href"])).path.partition("/wiki/")[2]))


def _item_of(infobox: Tag) -> str | None:
    """The item behind the infobox, from the link that invites to edit it: the last one."""
    links = infobox.select(".wikidatainfobox-edit a[href]")
    match = _ITEM_URL.match(str(links[-1]["href"])) if links else None
    return match[1] if match else None


def _values(infobox: Tag) -> tuple[tuple[str | None, str], ...]:
    for header in infobox.find_all("th"):
        if header.get_text(" ", strip=True).lower() == _HEADER:
            cell = header.find_next_sibling("td")
            if not isinstance(cell, Tag):
                return ()
            return tuple(value for entry in cell.find_all("li") or [cell] if (value := _value(entry))[1])
    return ()


def _value(entry: Tag) -> tuple[str | None, str]:
    """The item of a value, where the page shows it, and its label without qualifiers."""
    # Many landmarks share few labels: each is kept in memory once.
    label = intern(_QUALIFIER.sub("", " ".join(entry.get_text().split())))
    if _ITEM.fullmatch(label):  # a class without a label is shown by its id
        return label, label
    link = entry.find("a", href=_ITEM_URL)
    match = _ITEM_URL.match(str(link["href"])) if isinstance(link, Tag) else None
    return (match[1] if match else None), label
