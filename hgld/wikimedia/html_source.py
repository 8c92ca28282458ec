"""Category pages of Commons as a source: one request per landmark, as in the paper.

The Wikidata infobox (``table#wdinfobox``) shows the values in its row "Instance of", or under the
English label of another property. A page contains less than the API: it has no ids of most classes,
no languages, no revisions and no superclasses, and a label that ends in a parenthesis looks like a
value with a qualifier. Nor does a page show whether its infobox has the item of the category or the
main topic, so the route never has ``topic``. This source is a check on the API source.

A page of MediaWiki has MediaWiki's heading and content area. Its state (missing page, invalid
title, soft redirect) is read from several independent signs, since skins and templates change:
elements of the page, and the configuration of MediaWiki's scripts in the head
(https://www.mediawiki.org/wiki/Manual:Interface/JavaScript#mw.config).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from sys import intern
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from bs4 import BeautifulSoup, Tag
from bs4.builder import ParserRejectedMarkup
from pydantic import TypeAdapter

from hgld.errors import SourceError
from hgld.tables.column_values import RouteStep
from hgld.wikimedia.api_facts import RequestedProperties
from hgld.wikimedia.client import HtmlResponse, WikimediaClient
from hgld.wikimedia.source import FactStore, InstanceOfValue, Resolution, route_of
from hgld.wikimedia.titles import CATEGORY_PREFIX, REDIRECT_CATEGORIES, is_sendable, normalise_title

#: Header of the values of P31 in an infobox, in lower case.
HEADER = "instance of"
_ITEM_URL = re.compile(r"https?://www\.wikidata\.org/wiki/(Q[1-9][0-9]*)")
_ITEM = re.compile(r"Q[1-9][0-9]*")
#: A qualifier after a value, such as " (1172–1954)"; it may contain parentheses.
_QUALIFIER = re.compile(r"\s*\((?:[^()]|\([^()]*\))*\)$")
#: The box of a soft redirect, in current and earlier markup of its template.
_REDIRECT_BOX = "#category-redirect, .category-redirect, .catredirect"


class ParsedPage(NamedTuple):
    """Contents of a category page.

    Args:
        status: ``found``, or the landmark status to record: ``redirect_unresolved`` for a hard
            redirect that was not followed, and for a soft redirect without a target.
        title: Title of the page.
        redirected: Whether a hard redirect was followed.
        soft_target: Target of a soft redirect.
        item: Item of the infobox.
        values: Items, if shown, and labels of the values; None without an infobox.
    """

    status: Literal["found", "missing", "invalid_title", "redirect_unresolved"]
    title: str | None = None
    redirected: bool = False
    soft_target: str | None = None
    item: str | None = None
    values: tuple[tuple[str | None, str], ...] | None = None


PAGE = "page"  # title -> ParsedPage; the only kind of facts
_SHAPE = TypeAdapter(ParsedPage)

#: Possible states of a page of MediaWiki by HTTP status. For an invalid title, MediaWiki answers
#: 400, or 404 (1.39).
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
        self,
        client: WikimediaClient,
        header: str = HEADER,
        requested: RequestedProperties | None = None,
    ) -> None:
        self._client = client
        self._header = header.lower()
        self._requested = requested or RequestedProperties()

    def batch_size(self, kind: str) -> int:
        """See :class:`Source`."""
        return 1

    def fetch(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """See :class:`Source`."""
        read = partial(_read_page, self._header)
        return {title: self._client.page(title, read) for title in keys}

    def from_json(self, kind: str, fact: Any) -> Any:
        """Restore a fact of the journal; raise ValueError if it has another shape."""
        return _SHAPE.validate_python(fact)

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """Return the result after one soft redirect and the server's hard redirects."""
        if not title:
            return Resolution("no_item")
        if not is_sendable(title):
            return Resolution("invalid_title")
        redirects: list[RouteStep] = []
        page: ParsedPage = facts.get(PAGE, title)
        if page.redirected:
            redirects.append("hard_redirect")
        if page.soft_target is not None:
            visited = {title, page.title}
            if page.soft_target in visited:
                return Resolution("redirect_loop")
            visited.add(page.soft_target)
            page = facts.get(PAGE, page.soft_target)
            redirects.append("soft_redirect")
            if page.redirected:
                redirects.append("hard_redirect")
            if page.soft_target in visited:
                return Resolution("redirect_loop")
            if page.soft_target is not None:
                return Resolution("redirect_unresolved")
        if page.status != "found":
            return Resolution(page.status)
        if page.values is None:
            return Resolution("no_infobox", page.title)
        values = [InstanceOfValue(item, label, None) for item, label in page.values]
        return Resolution(
            status="ok" if values else self._requested.no_value,
            resolved_title=page.title,
            item=page.item,
            route=route_of(redirects),
            instance_of=tuple(dict.fromkeys(values)),
        )


def _read_page(header: str, response: HtmlResponse) -> ParsedPage:
    """Return the contents of a page of MediaWiki.

    Raises:
        ValueError: The response has status 200, and is not a page of MediaWiki.
        SourceError: The response has another status, and is not a page of MediaWiki.
    """
    try:
        # Proxies, wrong addresses and refused requests also answer 400 and 404, and login pages of
        # networks 200.
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
    """Parse a page of MediaWiki, whatever its HTTP status.

    Args:
        html: The page.
        header: Header of the values in the infobox.

    Raises:
        ValueError: It is not a page of MediaWiki, or a special page.
    """
    try:
        soup = BeautifulSoup(html, "lxml")
    except ParserRejectedMarkup as error:
        raise ValueError(f"not HTML: {error}") from error
    heading = soup.find(id="firstHeading")
    content = soup.find(id="mw-content-text")
    if not isinstance(heading, Tag) or not isinstance(content, Tag):
        raise ValueError(f"not a page of MediaWiki: {_first_words(soup)}")
    scripts = _head_scripts(soup)
    title = heading.get_text()
    special = _config_value(scripts, "wgCanonicalSpecialPageName")
    body_classes = soup.body.get_attribute_list("class") if soup.body else []
    if (
        special == "Badtitle"
        or "page-Special_Badtitle" in body_classes
        or title.startswith("Bad title")
    ):
        return ParsedPage("invalid_title")
    if isinstance(special, str):
        raise ValueError(f"the special page {special}: {_first_words(soup)}")
    page_id = _config_value(scripts, "wgArticleId")
    # The page of a category with members but without text has status 200.
    if page_id == 0 or (page_id is None and content.find(class_="noarticletext")):
        return ParsedPage("missing")
    return _parse_category(soup, content, title, _config_value(scripts, "wgCategories"), header)


def _first_words(soup: BeautifulSoup) -> str:
    """Return the first words of a document without its markup, for messages."""
    return repr(" ".join(soup.get_text(" ").split())[:200])


def _head_scripts(soup: BeautifulSoup) -> str:
    """Return the scripts in the head of a page, which set ``mw.config``."""
    if soup.head is None:
        return ""
    return "".join(script.get_text() for script in soup.head.find_all("script"))


def _config_value(scripts: str, name: str) -> Any:
    """Return a value of ``mw.config``; None if it is absent or not JSON."""
    start = re.search(rf'"{name}":\s*', scripts)
    if start is None:
        return None
    try:
        # The whole assignment is JavaScript: older versions write !0 and !1 for booleans.
        value, _ = json.JSONDecoder().raw_decode(scripts, start.end())
    except (ValueError, RecursionError):
        return None
    return value


def _parse_category(
    soup: BeautifulSoup, content: Tag, title: str, categories: Any, header: str
) -> ParsedPage:
    """Parse the page of an existing category.

    Args:
        soup: The page.
        content: Content area of the page.
        title: Title of the page.
        categories: Categories of the page without namespace; None if unknown.
        header: Header of the values in the infobox.
    """
    redirected = soup.find(class_="mw-redirectedfrom") is not None
    if soup.find(class_="redirectMsg"):
        return ParsedPage("redirect_unresolved", title)
    box = content.select_one(_REDIRECT_BOX)
    if box is not None or _has_redirect_category(categories):
        target = _soft_redirect_target(box, content)
        status: Literal["found", "redirect_unresolved"] = (
            "found" if target else "redirect_unresolved"
        )
        return ParsedPage(status, title, redirected, target)
    infobox = soup.find("table", id="wdinfobox")
    if not isinstance(infobox, Tag):
        return ParsedPage("found", title, redirected)
    item = _infobox_item(infobox)
    values = _infobox_values(infobox, header)
    return ParsedPage("found", title, redirected, item=item, values=values)


def _has_redirect_category(categories: Any) -> bool:
    if not isinstance(categories, list):
        return False
    return any(f"{CATEGORY_PREFIX}{name}" in REDIRECT_CATEGORIES for name in categories)


def _soft_redirect_target(box: Tag | None, content: Tag) -> str | None:
    """Return the target of a soft redirect, from its box or from the content; None if ambiguous."""
    if box is not None:
        targets = _linked_categories(box)
        return targets[0] if targets else None
    # In unknown markup, only a single link is certain to lead to the target.
    targets = _linked_categories(content.select_one(".mw-parser-output") or content)
    return targets[0] if len(targets) == 1 else None


def _linked_categories(element: Tag) -> list[str]:
    """Return the distinct titles of the categories that an element links to."""
    titles = []
    for link in element.find_all("a", href=True):
        try:
            url = urlsplit(str(link["href"]))
        except ValueError:
            continue
        title = unquote(url.path.partition("/wiki/")[2])
        if not title:
            # A link to a missing page is /w/index.php?title=Category:...&action=edit&redlink=1.
            title = parse_qs(url.query).get("title", [""])[0]
        title = normalise_title(title)
        if title.startswith(CATEGORY_PREFIX):
            titles.append(title)
    return list(dict.fromkeys(titles))


def _infobox_item(infobox: Tag) -> str | None:
    """Return the item of the infobox, from the last of its edit links."""
    links = infobox.select(".wikidatainfobox-edit a[href]")
    return _linked_item(links[-1]) if links else None


def _infobox_values(infobox: Tag, header: str) -> tuple[tuple[str | None, str], ...]:
    """Return the items, if shown, and labels of the values below a header."""
    values = []
    for row in infobox.find_all("th"):
        if row.get_text(" ", strip=True).lower() == header:
            cell = row.find_next_sibling("td")
            if isinstance(cell, Tag):
                for entry in cell.find_all("li") or [cell]:
                    item, label = _value(entry)
                    if label:
                        values.append((item, label))
            break
    return tuple(values)


def _value(entry: Tag) -> tuple[str | None, str]:
    """Return the item of a value, if the page shows it, and its label without qualifiers."""
    # Many landmarks share few labels; interning keeps each in memory once.
    label = intern(_QUALIFIER.sub("", " ".join(entry.get_text().split())))
    if _ITEM.fullmatch(label):  # the page shows the id of a class without a label
        return label, label
    link = entry.find("a", href=_ITEM_URL)
    return _linked_item(link) if isinstance(link, Tag) else None, label


def _linked_item(link: Tag) -> str | None:
    """Return the id of the item that a link leads to; None for other links."""
    match = _ITEM_URL.match(str(link["href"]))
    return match[1] if match else None
