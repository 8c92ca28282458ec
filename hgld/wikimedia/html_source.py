"""The category pages of Commons as a source: one request per landmark, as in the paper (section VI-A).

The Wikidata infobox (``table#wdinfobox``) shows the values in its row "Instance of", or under the English label of
another property. A page says less than the API:
no ids of most classes, no languages, no revisions, no superclasses, and a label that ends in a parenthesis looks
like a value with a qualifier. A page does not say either whether its infobox shows the category's own item or the
main topic, so the route never has ``topic``. This source is a check on the API source.

A page is MediaWiki's if it has MediaWiki's heading and content area. Its state (missing page, invalid title, soft
redirect) is read from several independent signs, since skins and templates change: elements of the page, and the
configuration of MediaWiki's scripts in the head (https://www.mediawiki.org/wiki/Manual:Interface/JavaScript#mw.config).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from sys import intern
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from bs4 import BeautifulSoup, Tag
from bs4.builder import ParserRejectedMarkup
from pydantic import TypeAdapter

from hgld.errors import SourceError
from hgld.tables.column_values import RouteStep, ScrapeStatus
from hgld.wikimedia.api_facts import Query
from hgld.wikimedia.client import HtmlResponse, WikimediaClient
from hgld.wikimedia.source import FactStore, InstanceOfValue, Resolution, route_of
from hgld.wikimedia.titles import CATEGORY_PREFIX, REDIRECT_CATEGORIES, is_sendable, normalise_title

#: What precedes the values of P31 in an infobox, in lower case.
HEADER = "instance of"
_ITEM_URL = re.compile(r"https?://www\.wikidata\.org/wiki/(Q[1-9][0-9]*)")
_ITEM = re.compile(r"Q[1-9][0-9]*")
#: A qualifier after a value, such as " (1172–1954)"; it may contain parentheses.
_QUALIFIER = re.compile(r"\s*\((?:[^()]|\([^()]*\))*\)$")
#: The box of a soft redirect, in the markups that its template has had.
_REDIRECT_BOX = "#category-redirect, .category-redirect, .catredirect"


class ParsedPage(NamedTuple):
    """Contents of a category page; values have an item, where shown, and a label, and are None without an infobox.

    The status is ``found``, else that of the landmark: ``redirect_unresolved`` for a hard redirect that was not
    followed, and for a soft one that names no page.
    """

    status: Literal["found", "missing", "invalid_title", "redirect_unresolved"]
    title: str | None = None
    redirected: bool = False
    soft_target: str | None = None
    item: str | None = None
    values: tuple[tuple[str | None, str], ...] | None = None


PAGE = "page"  # title -> ParsedPage; the only kind of facts
_SHAPE = TypeAdapter(ParsedPage)

#: What a page of MediaWiki says, by its HTTP status. To an invalid title MediaWiki answers 400 or (1.39) 404.
_STATUSES = {
    200: ("found", "missing", "redirect_unresolved"),
    400: ("invalid_title",),
    404: ("missing", "invalid_title"),
}


class HtmlSource:
    """Category pages as a :class:`hgld.wikimedia.source.Source`."""

    kinds = (PAGE,)
    class_kind = None

    def __init__(
        self, client: WikimediaClient, header: str = HEADER, query: Query | None = None
    ) -> None:
        self._client, self._header = client, header.lower()
        self._query = query or Query()

    def batch_size(self, kind: str) -> int:
        """See :class:`Source`."""
        return 1

    def fetch(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """See :class:`Source`."""
        return {
            title: self._client.page(title, partial(_read_page, self._header)) for title in keys
        }

    def from_json(self, kind: str, fact: Any) -> Any:
        """Restore a fact of the journal; raise ValueError if it has another shape."""
        return _SHAPE.validate_python(fact)

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """Return the result; one soft redirect is followed, and each hard redirect that the server follows."""
        if not is_sendable(title):
            return Resolution("invalid_title" if title else "no_item")
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
                return Resolution(
                    "redirect_loop" if page.soft_target in visited else "redirect_unresolved"
                )
        if page.status != "found":
            return Resolution(page.status)
        if page.values is None:
            return Resolution("no_infobox", page.title)
        values = tuple(
            dict.fromkeys(InstanceOfValue(item, label, None) for item, label in page.values)
        )
        status: ScrapeStatus = "ok" if values else self._query.no_value
        return Resolution(status, page.title, page.item, route_of(redirects), None, values)


def _read_page(header: str, response: HtmlResponse) -> ParsedPage:
    """Return the contents of a page of MediaWiki; raise ValueError, or SourceError for other ones with 400 or 404."""
    try:
        # Proxies, wrong addresses and refused requests answer 400 and 404 as well, and a network's login 200.
        page = parse_page(response.html, header)
        if page.status not in _STATUSES[response.status]:
            raise ValueError(f'a page of MediaWiki that says "{page.status}"')
    except ValueError as error:
        if response.status == 200:
            raise
        raise SourceError(
            f"{response.url} answered {response.status} for another reason than MediaWiki's: {error}"
        ) from None
    return page


def parse_page(html: str, header: str = HEADER) -> ParsedPage:
    """Parse a page that MediaWiki sent, with whatever HTTP status; the header is that of the values."""
    try:
        soup = BeautifulSoup(html, "lxml")
    except ParserRejectedMarkup as error:
        raise ValueError(f"not HTML: {error}") from error
    heading, content = soup.find(id="firstHeading"), soup.find(id="mw-content-text")
    if not isinstance(heading, Tag) or not isinstance(content, Tag):
        raise ValueError(f"not a page of MediaWiki: {_first_words(soup)}")
    config = _page_config(soup)
    title = heading.get_text()
    special = config("wgCanonicalSpecialPageName")
    body_classes = soup.body.get_attribute_list("class") if soup.body else []
    if (
        special == "Badtitle"
        or "page-Special_Badtitle" in body_classes
        or title.startswith("Bad title")
    ):
        return ParsedPage("invalid_title")
    if isinstance(special, str):
        raise ValueError(f"the special page {special}: {_first_words(soup)}")
    page_id = config("wgArticleId")
    # The page of a category that has members but no text is sent with status 200.
    if page_id == 0 or (page_id is None and content.find(class_="noarticletext")):
        return ParsedPage("missing")
    return _parse_category(soup, content, title, config("wgCategories"), header)


def _first_words(soup: BeautifulSoup) -> str:
    """Return the first words of a document without its markup, for messages."""
    return repr(" ".join(soup.get_text(" ").split())[:200])


def _page_config(soup: BeautifulSoup) -> Callable[[str], Any]:
    """Return a function that looks up values of ``mw.config`` in the head; None for absent ones."""
    scripts = "".join(
        script.get_text() for script in (soup.head.find_all("script") if soup.head else ())
    )

    def value(name: str) -> Any:
        start = re.search(rf'"{name}":\s*', scripts)
        try:
            # Not all of the assignment, which is JavaScript: older versions write !0 and !1 for booleans.
            return json.JSONDecoder().raw_decode(scripts, start.end())[0] if start else None
        except (ValueError, RecursionError):
            return None

    return value


def _parse_category(
    soup: BeautifulSoup, content: Tag, title: str, categories: Any, header: str
) -> ParsedPage:
    """Parse the page of a category that exists; ``categories`` are its own without namespace, None if unknown."""
    redirected = soup.find(class_="mw-redirectedfrom") is not None
    if soup.find(class_="redirectMsg"):
        return ParsedPage("redirect_unresolved", title)
    names = categories if isinstance(categories, list) else []
    box = content.select_one(_REDIRECT_BOX)
    if box is not None or any(f"{CATEGORY_PREFIX}{name}" in REDIRECT_CATEGORIES for name in names):
        if box is not None:
            targets = _linked_categories(box)[:1]  # the first link leads to the target
        else:  # an unknown markup, of which only a single link is sure to
            targets = _linked_categories(content.select_one(".mw-parser-output") or content)
        target = targets[0] if len(targets) == 1 else None
        return ParsedPage("found" if target else "redirect_unresolved", title, redirected, target)
    infobox = soup.find("table", id="wdinfobox")
    if not isinstance(infobox, Tag):
        return ParsedPage("found", title, redirected)
    return ParsedPage(
        "found", title, redirected, None, _infobox_item(infobox), _infobox_values(infobox, header)
    )


def _linked_categories(element: Tag) -> list[str]:
    """Return the titles of the categories that an element links to, without repetitions."""
    titles = []
    for link in element.find_all("a", href=True):
        try:
            url = urlsplit(str(link["href"]))
        except ValueError:
            continue
        # A link to a page that does not exist is /w/index.php?title=Category:...&action=edit&redlink=1.
        title = (
            unquote(url.path.partition("/wiki/")[2]) or parse_qs(url.query).get("title", [""])[0]
        )
        titles.append(normalise_title(title))
    return [title for title in dict.fromkeys(titles) if title.startswith(CATEGORY_PREFIX)]


def _infobox_item(infobox: Tag) -> str | None:
    """Return the item behind the infobox, from the last of the links to edit it."""
    links = infobox.select(".wikidatainfobox-edit a[href]")
    match = _ITEM_URL.match(str(links[-1]["href"])) if links else None
    return match[1] if match else None


def _infobox_values(infobox: Tag, header: str) -> tuple[tuple[str | None, str], ...]:
    for row in infobox.find_all("th"):
        if row.get_text(" ", strip=True).lower() == header:
            cell = row.find_next_sibling("td")
            if not isinstance(cell, Tag):
                return ()
            return tuple(
                value for entry in cell.find_all("li") or [cell] if (value := _value(entry))[1]
            )
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
