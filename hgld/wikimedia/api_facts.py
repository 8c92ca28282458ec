"""Facts about items, classes and pages, from the documents of the APIs of Wikidata and Commons.

A response to ``action=query`` of Commons, and even a page, may come in several parts, which are
collected first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, Literal, NamedTuple

from hgld.errors import SourceError
from hgld.tables.column_values import ScrapeStatus
from hgld.wikimedia.api_documents import (
    ClassEntity,
    ItemEntity,
    ItemId,
    MissingEntity,
    Page,
    PageTitle,
    QueryDocument,
    Revision,
    SitelinkEntity,
    Statement,
    Term,
    Text,
    read_document,
)
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.titles import CATEGORY_PREFIX, is_sendable, normalise_title

WIKIMEDIA_CATEGORY = "Q4167836"
#: Largest number of parts of one response, far above the number that fifty pages need.
_MAX_PARTS = 500
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{\s*([^{}|]+?)\s*\|([^{}]*)\}\}")
#: The template of soft redirects on Commons and its aliases, without spaces and hyphens, in lower
#: case; most from
#: https://github.com/wikimedia/pywikibot/blob/master/pywikibot/families/commons_family.py.
_REDIRECT_TEMPLATES = frozenset(
    {
        "categoryredirect",
        "categoryredir",
        "catredirect",
        "catredir",
        "catred",
        "redirectcategory",
        "redirectcat",
        "redircat",
        "seecategory",
        "seecat",
    }
)


@dataclass(frozen=True)
class RequestedProperties:
    """Properties and languages that are requested for items.

    Args:
        property_id: Property of the values.
        parents: Property of the values' superclasses.
        languages: Languages of labels in the order of preference; the server falls back to other
            languages.
        no_value: Status of an item without values.
    """

    property_id: str = "P31"
    parents: str = "P279"
    languages: tuple[str, ...] = ("en",)
    no_value: ScrapeStatus = "no_instance_of"

    @property
    def ranks(self) -> bool:
        """Whether the parents have ranks, as taxa do; superclasses by P279 do not."""
        return self.parents != "P279"


class ClassFact(NamedTuple):
    """A class, as in the table ``classes``; a deleted class has its id as label, and no revision.

    Args:
        rank: Item of the taxon rank (P105), or the label of the rank if the class comes from a
            table.
    """

    item: ItemId
    label: Text
    language: Text | None
    description: Text | None
    subclass_of: tuple[ItemId, ...]
    revision: Revision | None
    rank: Text | None = None


class CommonsResponse:
    """The response of Commons to ``action=query``, collected from all its parts."""

    def __init__(self) -> None:
        self._normalized: dict[str, str] = {}
        #: Targets of hard redirects by title; None for a redirect to another wiki.
        self._redirects: dict[str, str | None] = {}
        self._pages: dict[str, Page] = {}
        #: Titles of pages that had another shape in one of the parts.
        self._malformed: set[str] = set()

    def add(self, document: QueryDocument) -> None:
        """Add a part of the response.

        Raises:
            ValueError: All pages are malformed; nothing is added.
        """
        pages = []
        problems: dict[str, str] = {}
        for value in document.query.pages:
            try:
                pages.append(read_document(Page, value))
            except ValueError as error:
                problems[read_document(PageTitle, value).title] = str(error)
        if problems and not pages:
            raise ValueError(f"query.pages: {next(iter(problems.values()))}")
        self._malformed |= problems.keys()
        for mapping in document.query.normalized:
            self._normalized[mapping.source] = mapping.target
        for mapping in document.query.redirects:
            self._redirects[mapping.source] = None if mapping.interwiki else mapping.target
        for page in pages:
            earlier = self._pages.get(page.title)
            self._pages[page.title] = earlier.merged(page) if earlier else page

    def page(self, title: str) -> Page | None:
        """Return a page, or None if the response does not contain the whole page."""
        if title in self._malformed:
            return None
        return self._pages.get(title)

    def follow(
        self, requested: str
    ) -> tuple[str, Literal["redirect_loop", "redirect_unresolved"] | None, bool]:
        """Follow normalisation and hard redirects from a requested title.

        Returns:
            The title where they end; the landmark's status if they do not end at a page; and
            whether a redirect was followed.
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


def query_titles(
    client: WikimediaClient, titles: Sequence[str], parameters: Mapping[str, str]
) -> CommonsResponse:
    """Call ``action=query`` of Commons for up to fifty titles, and collect all parts."""
    response = CommonsResponse()
    continuation: dict[str, str] = {}

    def read_part(value: dict[str, Any]) -> dict[str, str]:
        document = read_document(QueryDocument, value)
        next_part = {name: str(text) for name, text in (document.continuation or {}).items()}
        if next_part and next_part == continuation:
            raise ValueError(f"it continues where it began: {next_part}")
        response.add(document)
        return next_part

    for _ in range(_MAX_PARTS):
        call = {"action": "query", "titles": "|".join(titles), **parameters, **continuation}
        continuation = client.commons(call, read_part)
        if not continuation:
            return response
    raise SourceError(f"a response of Commons has more than {_MAX_PARTS} parts")


class ItemFact(NamedTuple):
    """An item after entity redirects.

    Args:
        values: Items that are the best-rank values of the requested property, P31 by default.
        main_topic: First value of P301, for the item of a Wikimedia category, which has no values
            itself.
    """

    item: ItemId
    revision: Revision
    values: tuple[ItemId, ...]
    main_topic: ItemId | None


class PageFact(NamedTuple):
    """The page at which the hard redirects from a title end.

    Args:
        status: ``found``, or the landmark status to record.
    """

    status: Literal["found", "missing", "invalid_title", "redirect_loop", "redirect_unresolved"]
    title: Text
    item: ItemId | None
    redirected: bool
    soft_redirect: bool


def best_rank_items(statements: Sequence[Statement]) -> tuple[str, ...]:
    """Return the item ids of the best-rank statements, in order.

    The best rank is ``preferred`` if a statement is preferred, otherwise ``normal``, never
    ``deprecated``. The values "no value" and "some value" have a rank, but no item.
    """
    ranks = {statement.rank for statement in statements}
    best_rank = "preferred" if "preferred" in ranks else "normal"
    items = []
    for statement in statements:
        value = statement.mainsnak.datavalue
        if statement.rank == best_rank and value is not None:
            items.append(intern(value.value.id))
    return tuple(items)


def item_fact(entity: Any, requested: RequestedProperties) -> ItemFact | None:
    """Return the fact about an item; None if it was deleted.

    Args:
        entity: Entity with the props ``info`` and ``claims``.
        requested: Requested properties.
    """
    if _as_missing(entity) is not None:
        return None
    return _item_fact(read_document(ItemEntity, entity), requested)


def sitelink_fact(entity: Any, requested: RequestedProperties) -> tuple[str, ItemFact | None]:
    """Return the title on Commons and the fact about its item; None for a title without an item.

    Args:
        entity: Entity with the props ``info``, ``claims`` and ``sitelinks``.
        requested: Requested properties.
    """
    missing = _as_missing(entity)
    if missing is not None:
        return missing.title or "", None
    item = read_document(SitelinkEntity, entity)
    link = item.sitelinks.commonswiki
    if link is None:
        raise ValueError(f"{item.id} has no sitelink to Commons, by which it was found")
    return link.title, _item_fact(item, requested)


def class_fact(key: str, entity: Any, requested: RequestedProperties) -> ClassFact:
    """Return the fact about a class.

    Args:
        key: Requested id.
        entity: Entity with the props ``info``, ``labels``, ``descriptions`` and ``claims``.
        requested: Requested properties and languages.
    """
    if _as_missing(entity) is not None:
        return ClassFact(key, key, None, None, (), None)
    item = read_document(ClassEntity, entity)
    label = _in_first_language(item.labels, requested.languages)
    description = _in_first_language(item.descriptions, requested.languages)
    rank = None
    if requested.ranks:
        rank = next(iter(best_rank_items(item.statements("P105"))), None)
    return ClassFact(
        item=item.id,
        label=label.value if label else item.id,
        language=label.language if label else None,
        description=description.value if description else None,
        subclass_of=best_rank_items(item.statements(requested.parents)),
        revision=item.lastrevid,
        rank=rank,
    )


def _in_first_language(texts: Mapping[str, Term], languages: Sequence[str]) -> Term | None:
    """Return the text in the first language that has a text, otherwise the first fallback.

    A text for all languages (``mul``) and a text in a variant of the language, such as British
    English, count as texts in the language.
    """
    for language in languages:
        text = texts.get(language)
        if text is not None and (text.language == "mul" or _base(text.language) == _base(language)):
            return text
    for language in languages:
        if language in texts:
            return texts[language]
    return None


def _base(language: str) -> str:
    """Return a language without its variant.

    >>> _base("en-gb")
    'en'
    """
    return language.partition("-")[0]


def _as_missing(entity: Any) -> MissingEntity | None:
    """Return a missing entity; None for an existing entity."""
    if isinstance(entity, dict) and "missing" in entity:
        return read_document(MissingEntity, entity)
    return None


def _item_fact(item: ItemEntity, requested: RequestedProperties) -> ItemFact:
    values = best_rank_items(item.statements(requested.property_id))
    main_topic = None
    if WIKIMEDIA_CATEGORY in best_rank_items(item.statements("P31")):
        main_topic = next(iter(best_rank_items(item.statements("P301"))), None)
    return ItemFact(item.id, item.lastrevid, values, main_topic)


def page_fact(requested: str, response: CommonsResponse) -> PageFact | None:
    """Follow a requested title through a response to its page; None if the page is not in it."""
    title, problem, redirected = response.follow(requested)
    if problem is not None:
        return PageFact(problem, title, None, redirected, False)
    page = response.page(title)
    if page is None:
        return None
    if page.invalid:
        return PageFact("invalid_title", title, None, False, False)
    if page.missing:
        return PageFact("missing", title, None, redirected, False)
    # The request asks only for templates and categories of soft redirects, so any of them makes the page one.
    is_soft_redirect = bool(page.templates or page.categories)
    return PageFact("found", title, page.pageprops.wikibase_item, redirected, is_soft_redirect)


def soft_redirect_target(page: Page) -> str | None:
    """Return the category that a soft redirect names; None without a valid category.

    It is the parameter of the redirect template. If the page uses an unknown template, it is the
    only category that the page links to.
    """
    wikitext = ""
    if page.revisions:
        wikitext = _COMMENT.sub("", page.revisions[0].content)
    for name, parameters in _TEMPLATE.findall(wikitext):
        if re.sub("[ _-]", "", name).lower() not in _REDIRECT_TEMPLATES:
            continue
        for parameter in parameters.split("|"):
            key, equals, value = parameter.partition("=")
            if not equals:
                return _category_title(parameter)
            if key.strip() == "1":
                return _category_title(value)
    targets = {link.title for link in page.links}
    if len(targets) == 1:
        return _category_title(targets.pop())
    return None


def _category_title(text: str) -> str | None:
    """Return the normalised title of a category, with or without its namespace; None if invalid."""
    title = normalise_title(text.strip())
    if not title.startswith(CATEGORY_PREFIX):
        title = normalise_title(CATEGORY_PREFIX + title)
    if title == CATEGORY_PREFIX or not is_sendable(title):
        return None
    return title
