"""Facts from the JSON documents of the action APIs of Wikidata and Commons.

Readers of entities raise ValueError if an entity has another shape. A response to ``action=query`` of Commons, and
even a page, may come in several parts, which are collected first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from sys import intern
from typing import Any, Literal, NamedTuple

from hgld.errors import SourceError
from hgld.wikimedia.api_documents import (
    ClassEntity,
    ItemEntity,
    ItemId,
    MissingEntity,
    Page,
    PageTitle,
    QueryDocument,
    Revision,
    RevisionEntity,
    SitelinkEntity,
    Statement,
    Term,
    Text,
    read_document,
)
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.source import ClassFact, Query, best_rank
from hgld.wikimedia.titles import CATEGORY_PREFIX, is_sendable, normalise_title

WIKIMEDIA_CATEGORY = "Q4167836"
#: Limit of the parts of one response, far above what fifty pages need.
_MAX_PARTS = 500
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{\s*([^{}|]+?)\s*\|([^{}]*)\}\}")
#: The template of soft redirects on Commons and its aliases, without spaces and hyphens, in lower case; most
#: from https://github.com/wikimedia/pywikibot/blob/master/pywikibot/families/commons_family.py.
_REDIRECT_TEMPLATES = frozenset(
    (
        *("categoryredirect", "categoryredir", "catredirect", "catredir", "catred"),
        *("redirectcategory", "redirectcat", "redircat", "seecategory", "seecat"),
    )
)


class QueryResult:
    """The response to ``action=query``, collected from all its parts."""

    def __init__(self) -> None:
        self._normalized: dict[str, str] = {}
        #: Targets of hard redirects by title; None for a redirect to another wiki.
        self._redirects: dict[str, str | None] = {}
        self._pages: dict[str, Page] = {}
        #: Titles of pages that had another shape in one of the parts.
        self._malformed: set[str] = set()

    def add(self, document: QueryDocument) -> None:
        """Add a part of the response; if no page in it has the shape of a page, raise ValueError and add nothing."""
        pages, malformed = [], dict[str, str]()
        for value in document.query.pages:
            try:
                pages.append(read_document(Page, value))
            except ValueError as error:
                malformed[read_document(PageTitle, value).title] = str(error)
        if malformed and not pages:
            raise ValueError(f"query.pages: {next(iter(malformed.values()))}")
        self._malformed |= malformed.keys()
        query = document.query
        self._normalized.update((row.source, row.target) for row in query.normalized)
        self._redirects.update((row.source, None if row.interwiki else row.target) for row in query.redirects)
        for page in pages:
            known = self._pages.get(page.title)
            self._pages[page.title] = known.merged(page) if known else page

    def page(self, title: str) -> Page | None:
        """Return a page, or None if the response does not contain it, or not all of it."""
        return None if title in self._malformed else self._pages.get(title)

    def follow(self, requested: str) -> tuple[str, Literal["redirect_loop", "redirect_unresolved"] | None, bool]:
        """Follow normalisation and hard redirects from a requested title.

        Returns:
            The title where they end; ``redirect_loop`` or ``redirect_unresolved`` if that is no page of this wiki,
            else None; and whether a redirect was followed.
        """
        title = self._normalized.get(requested, requested)
        visited: set[str] = set()
        while title in self._redirects:
            if title in visited:
                return title, "redirect_loop", True
            visited.add(title)
            target = self._redirects[title]
            if target is None:
                return title, "redirect_unresolved", True
            title = target
        return title, None, bool(visited)


def query_titles(client: WikimediaClient, titles: Sequence[str], parameters: Mapping[str, str]) -> QueryResult:
    """Call ``action=query`` of Commons for up to fifty titles until all parts of the response are there."""
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


class ItemFact(NamedTuple):
    """An item after entity redirects, with its best-rank values of a property.

    ``main_topic`` is the first value of P301 of the item of a Wikimedia category, whose topic has the values.
    """

    item: ItemId
    revision: Revision
    instance_of: tuple[ItemId, ...]
    main_topic: ItemId | None


class RevisionFact(NamedTuple):
    """The item of an id or a title, after redirects, with its title on Commons; None for what does not exist."""

    item: str | None
    revision: int | None
    title: str | None


class PageFact(NamedTuple):
    """The page at which the hard redirects from a title end.

    Args:
        status: ``found``, else the landmark's status.
        soft_redirect: Whether the page is a soft redirect, by its template or by its categories.
    """

    status: Literal["found", "missing", "invalid_title", "redirect_loop", "redirect_unresolved"]
    title: Text
    item: ItemId | None
    redirected: bool
    soft_redirect: bool


def best_rank_items(statements: Sequence[Statement]) -> tuple[str, ...]:
    """Return the item ids of the best-rank statements, in order."""
    values = (statement.mainsnak.datavalue for statement in best_rank(statements, attrgetter("rank")))
    return tuple(intern(value.value.id) for value in values if value is not None)


def item_fact(entity: Any, query: Query) -> ItemFact | None:
    """Return the fact about an item from an entity with the props ``info`` and ``claims``; None if it was deleted."""
    if _missing(entity):
        return None
    return _item_fact(read_document(ItemEntity, entity), query)


def sitelink_fact(entity: Any, query: Query) -> tuple[str, ItemFact | None]:
    """Return the title on Commons and the fact from an entity with the props ``info``, ``claims`` and ``sitelinks``.

    The fact is None for a title without an item.
    """
    if missing := _missing(entity):
        return missing.title or "", None
    item = read_document(SitelinkEntity, entity)
    if item.commons_title is None:
        raise ValueError(f"{item.id} has no sitelink to Commons, by which it was found")
    return item.commons_title, _item_fact(item, query)


def revision_fact(entity: Any) -> RevisionFact:
    """Return the fact from an entity with the props ``info`` and ``sitelinks``."""
    if missing := _missing(entity):
        return RevisionFact(None, None, missing.title)
    item = read_document(RevisionEntity, entity)
    return RevisionFact(item.id, item.lastrevid, item.commons_title)


def class_fact(key: str, entity: Any, query: Query) -> ClassFact:
    """Return the fact about the class with a requested id.

    The entity has the props ``info``, ``labels``, ``descriptions`` and ``claims``.
    """
    if _missing(entity):
        return ClassFact(key, key, None, None, (), None)
    item = read_document(ClassEntity, entity)
    label, description = (_in_first_language(texts, query.languages) for texts in (item.labels, item.descriptions))
    ranks = best_rank_items(item.statements("P105")) if query.ranks else ()
    return ClassFact(
        item.id,
        label.value if label else item.id,
        label.language if label else None,
        description.value if description else None,
        best_rank_items(item.statements(query.parents)),
        item.lastrevid,
        next(iter(ranks), None),
    )


def _in_first_language(texts: Mapping[str, Term], languages: Sequence[str]) -> Term | None:
    """Return the text in the first language that has one, else the first to which the server fell back."""
    found = {language: texts[language] for language in languages if language in texts}
    own = (text for language, text in found.items() if text.language == language)
    return next(own, next(iter(found.values()), None))


def _missing(entity: Any) -> MissingEntity | None:
    return read_document(MissingEntity, entity) if isinstance(entity, dict) and "missing" in entity else None


def _item_fact(item: ItemEntity, query: Query) -> ItemFact:
    is_category = WIKIMEDIA_CATEGORY in best_rank_items(item.statements("P31"))
    topics = best_rank_items(item.statements("P301")) if is_category else ()
    return ItemFact(
        item.id, item.lastrevid, best_rank_items(item.statements(query.property_id)), next(iter(topics), None)
    )


def page_fact(requested: str, query: QueryResult) -> PageFact | None:
    """Follow a requested title through the response to its page; None if the response does not contain it."""
    title, problem, redirected = query.follow(requested)
    if problem is not None:
        return PageFact(problem, title, None, redirected, False)
    page = query.page(title)
    if page is None:
        return None
    if page.invalid:
        return PageFact("invalid_title", title, None, False, False)
    if page.missing:
        return PageFact("missing", title, None, redirected, False)
    is_soft_redirect = bool(page.templates or page.categories)
    return PageFact("found", title, page.pageprops.wikibase_item, redirected, is_soft_redirect)


def soft_redirect_target(page: Page) -> str | None:
    """Return the category that a soft redirect names; None without a valid one.

    It is the parameter of the template. If the page uses a template that is not known here, it is the only category
    that the page links to.
    """
    wikitext = _COMMENT.sub("", page.revisions[0].slots.main.content if page.revisions else "")
    for name, parameters in _TEMPLATE.findall(wikitext):
        if re.sub("[ _-]", "", name).lower() in _REDIRECT_TEMPLATES:
            for parameter in parameters.split("|"):
                key, equals, value = parameter.partition("=")
                if not equals or key.strip() == "1":
                    return _category_title(value if equals else parameter)
    targets = {link.title for link in page.links}
    return _category_title(targets.pop()) if len(targets) == 1 else None


def _category_title(text: str) -> str | None:
    """Return the normalised title of a category, with or without its namespace; None if it is invalid."""
    title = normalise_title(text.strip())
    title = title if title.startswith(CATEGORY_PREFIX) else normalise_title(CATEGORY_PREFIX + title)
    return title if title != CATEGORY_PREFIX and is_sendable(title) else None
