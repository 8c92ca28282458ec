"""Facts from the JSON documents of the action APIs of Wikidata and Commons."""

from __future__ import annotations

import re
from collections.abc import Iterable
from sys import intern
from typing import Any, NamedTuple

from hgld.errors import SourceError
from hgld.wikimedia.source import ClassFact
from hgld.wikimedia.titles import CATEGORY_PREFIX, is_sendable, normalise_title

#: Properties of Wikidata.
INSTANCE_OF, SUBCLASS_OF, MAIN_TOPIC = "P31", "P279", "P301"
#: Language in which labels are requested; the server falls back to others.
LANGUAGE = "en"

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{\s*([^{}|]+?)\s*\|([^{}]*)\}\}")
#: The template of soft redirects and its aliases on Commons, without spaces and hyphens, in lower case.
_REDIRECT_TEMPLATES = frozenset(
    (
        *("categoryredirect", "categoryredir", "catredirect", "catredir", "catred"),
        *("redirectcategory", "redirectcat", "seecat"),
    )
)


class ItemFact(NamedTuple):
    """An item after entity redirects.

    Args:
        item: Id of the item.
        revision: Last revision.
        instance_of: Best-rank values of P31.
        main_topic: First best-rank value of P301; None without one.
    """

    item: str
    revision: int
    instance_of: tuple[str, ...]
    main_topic: str | None


class PageFact(NamedTuple):
    """The page at which the hard redirects from a title end.

    Args:
        status: ``found``, else the landmark's status: ``missing``, ``invalid_title``, ``redirect_loop`` or
            ``redirect_unresolved``.
        title: Title of that page.
        item: Id of the item that the page names; None without one.
        redirected: Whether a hard redirect was followed.
        soft_redirect: Whether the page is a soft redirect.
    """

    status: str
    title: str
    item: str | None
    redirected: bool
    soft_redirect: bool


class QueryResult(NamedTuple):
    """The parts of a complete response to ``action=query``.

    Args:
        normalized: Normalised titles by requested title.
        redirects: Targets of hard redirects by title.
        pages: Pages by title.
    """

    normalized: dict[str, str]
    redirects: dict[str, str]
    pages: dict[str, dict[str, Any]]


def best_rank_items(statements: Iterable[dict[str, Any]]) -> list[str]:
    """Return the item ids of the best-rank statements, in order.

    These are the preferred statements if there are any, else the normal ones, never the deprecated ones. "No value"
    and "some value" are dropped after the rank is chosen.
    """
    statements = list(statements)
    rank = "preferred" if any(statement["rank"] == "preferred" for statement in statements) else "normal"
    snaks = (statement["mainsnak"] for statement in statements if statement["rank"] == rank)
    return [snak["datavalue"]["value"]["id"] for snak in snaks if snak["snaktype"] == "value"]


def item_fact(entity: dict[str, Any]) -> ItemFact:
    """Return the fact about an item from an entity with the props ``info`` and ``claims``."""
    claims = entity["claims"]
    topics = best_rank_items(claims.get(MAIN_TOPIC, ()))
    return ItemFact(
        entity["id"],
        entity["lastrevid"],
        tuple(map(intern, best_rank_items(claims.get(INSTANCE_OF, ())))),
        topics[0] if topics else None,
    )


def class_fact(item: str, entity: dict[str, Any]) -> ClassFact:
    """Return the fact about a class from an entity with the props ``info``, ``labels`` and ``claims``."""
    if "missing" in entity:
        return ClassFact(item, item, None, (), None)
    label = entity["labels"].get(LANGUAGE, {})
    parents = tuple(map(intern, best_rank_items(entity["claims"].get(SUBCLASS_OF, ()))))
    return ClassFact(
        entity["id"], label.get("value", entity["id"]), label.get("language"), parents, entity["lastrevid"]
    )


def page_fact(requested: str, query: QueryResult) -> PageFact:
    """Follow a requested title through the response: normalisation, hard redirects, the page.

    Raises:
        SourceError: The response does not contain the title.
    """
    title = query.normalized.get(requested, requested)
    visited: set[str] = set()
    while title in query.redirects:
        if title in visited:
            return PageFact("redirect_loop", title, None, True, False)
        visited.add(title)
        title = query.redirects[title]
    page = query.pages.get(title)
    if page is None and visited:  # redirected to another wiki
        return PageFact("redirect_unresolved", title, None, True, False)
    if page is None:
        raise SourceError(f'the response of Commons does not contain "{requested}"')
    if "invalid" in page:
        return PageFact("invalid_title", title, None, False, False)
    if "missing" in page:
        return PageFact("missing", title, None, bool(visited), False)
    item = page.get("pageprops", {}).get("wikibase_item")
    return PageFact("found", title, item, bool(visited), "templates" in page)


def soft_redirect_target(page: dict[str, Any]) -> str | None:
    """Return the category that ``{{Category redirect}}`` names in a page's wikitext; None without a valid one."""
    slots = page.get("revisions", [{}])[0].get("slots", {})
    wikitext = _COMMENT.sub("", slots.get("main", {}).get("content", ""))
    for name, parameters in _TEMPLATE.findall(wikitext):
        if re.sub("[ _-]", "", name).lower() not in _REDIRECT_TEMPLATES:
            continue
        for parameter in parameters.split("|"):
            key, equals, value = parameter.partition("=")
            if not equals or key.strip() == "1":
                title = normalise_title((value if equals else parameter).strip())
                title = title if title.startswith(CATEGORY_PREFIX) else normalise_title(CATEGORY_PREFIX + title)
                return title if title != CATEGORY_PREFIX and is_sendable(title) else None
    return None
