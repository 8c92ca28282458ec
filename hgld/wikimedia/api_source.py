"""The APIs of Wikidata and Commons as a source: up to fifty titles or items per request.

Most landmarks take a fiftieth of one request: Wikidata finds the item whose sitelink is the
category (``wbgetentities`` by title). For other landmarks, Commons shows whether the page exists,
its redirects and its item; items and redirect targets are requested in further batches. Each class
is requested once, whatever the number of its landmarks.

A response may lack requested keys, because it would be larger than the API allows or because an
entity is malformed. The missing keys are requested again, without the other keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from hgld.errors import SourceError
from hgld.tables.column_values import RouteStep, ScrapeStatus
from hgld.taxonomy.label_identity import ITEM_ID
from hgld.wikimedia.api_documents import (
    EntitiesDocument,
    PropertyEntity,
    Text,
    read_document,
    require_items,
)
from hgld.wikimedia.api_facts import (
    ClassFact,
    ItemFact,
    PageFact,
    RequestedProperties,
    class_fact,
    item_fact,
    page_fact,
    query_titles,
    sitelink_fact,
    soft_redirect_target,
)
from hgld.wikimedia.client import TooManyValuesError, UnknownEntityError, WikimediaClient
from hgld.wikimedia.source import FactStore, InstanceOfValue, Resolution, route_of
from hgld.wikimedia.titles import REDIRECT_CATEGORIES, is_sendable

log = logging.getLogger(__name__)

# Kinds of facts, with their names in the journal.
SITELINK = "sitelink"  # title -> ItemFact of the item with this Commons sitelink, or None
PAGE = "page"  # title -> PageFact
REDIRECT_TARGET = "target"  # title of a soft redirect -> title of its target, or None
ITEM = "item"  # item id -> ItemFact, or None for a deleted item
CLASS = "class"  # item id -> ClassFact
_SHAPES: dict[str, TypeAdapter[Any]] = {
    SITELINK: TypeAdapter(ItemFact | None),
    PAGE: TypeAdapter(PageFact),
    REDIRECT_TARGET: TypeAdapter(Text | None),
    ITEM: TypeAdapter(ItemFact | None),
    CLASS: TypeAdapter(ClassFact),
}

#: Facts by key, and the description of a malformed entity.
_Answer = tuple[dict[str, Any], str | None]

_REDIRECT_TEMPLATE = "Template:Category redirect"


class ApiSource:
    """The APIs as a :class:`hgld.wikimedia.source.Source`."""

    kinds = (CLASS, ITEM, REDIRECT_TARGET, PAGE, SITELINK)
    class_kind = CLASS

    def __init__(
        self, client: WikimediaClient, requested: RequestedProperties | None = None
    ) -> None:
        self._client = client
        self._requested = requested or RequestedProperties()
        self._batch_size = 50
        self._fetchers: dict[str, Callable[[Sequence[str]], dict[str, Any]]] = {
            SITELINK: self._fetch_sitelinks,
            PAGE: self._fetch_pages,
            REDIRECT_TARGET: self._fetch_redirect_targets,
            ITEM: self._fetch_items,
            CLASS: self._fetch_classes,
        }

    def batch_size(self, kind: str) -> int:
        """See :class:`Source`."""
        return self._batch_size

    def fetch(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return facts by key; keys that a response lacks are requested again.

        A batch is divided into halves if the response has none of its keys. If the server refuses a
        list as too long, later batches have half its length. Truncated responses do not shorten
        later batches: each holds as many entities as a shorter batch would.
        """
        facts: dict[str, Any] = {}
        failure: SourceError | None = None
        pending = [list(keys)]
        while pending:
            batch = pending.pop()
            half = len(batch) // 2
            answered: dict[str, Any] = {}
            try:
                answered = self._fetchers[kind](batch)
            except (TooManyValuesError, UnknownEntityError) as error:
                if not half:
                    failure = error
                    continue
                if isinstance(error, TooManyValuesError):
                    self._batch_size = min(self._batch_size, half)
            except SourceError as error:
                failure = error
                continue
            facts |= answered
            if answered:
                missing = [key for key in batch if key not in answered]
                if missing:
                    pending.append(missing)
            elif half:
                pending.append(batch[half:])
                pending.append(batch[:half])
            else:
                failure = SourceError(f"the response does not contain {batch[0]}")
        if failure is not None:
            if not facts:
                raise failure
            log.warning(
                "%d of %d %s facts could not be fetched: %s",
                len(keys) - len(facts),
                len(keys),
                kind,
                failure,
            )
        return {key: facts[key] for key in keys if key in facts}

    def from_json(self, kind: str, fact: Any) -> Any:
        """Restore a fact of the journal; raise ValueError if it has another shape."""
        return _SHAPES[kind].validate_python(fact)

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """Return the result for a landmark, or raise MissingFactsError."""
        if not title:
            return Resolution("no_item")
        if not is_sendable(title):
            return Resolution("invalid_title")
        outcome = _find_item(title, facts)
        if isinstance(outcome, Resolution):
            return outcome
        return _resolve_item(outcome, facts, self._requested.no_value)

    def _fetch_sitelinks(self, titles: Sequence[str]) -> dict[str, Any]:
        parameters = {
            "sites": "commonswiki",
            "titles": "|".join(titles),
            "sitefilter": "commonswiki",
        }

        def read(entities: dict[str, Any], is_complete: bool) -> _Answer:
            facts, problem = _read_entities(
                entities, lambda _, entity: sitelink_fact(entity, self._requested)
            )
            fact_of_title = dict(facts.values())
            # The API does not say which requested title an entity answers. With an answer for all
            # titles, titles without a fact are unknown to Wikidata or spelled differently: they are
            # looked up on Commons.
            has_all = is_complete and not problem and len(entities) == len(titles)
            answered = {}
            for title in titles:
                if has_all or title in fact_of_title:
                    answered[title] = fact_of_title.get(title)
            return answered, problem

        return self._get_entities(parameters, "info|claims|sitelinks", read)

    def _fetch_items(self, ids: Sequence[str]) -> dict[str, Any]:
        def read(_: str, entity: Any) -> ItemFact | None:
            return item_fact(entity, self._requested)

        return self._get_entities_by_id(ids, {}, "info|claims", read)

    def _fetch_classes(self, ids: Sequence[str]) -> dict[str, Any]:
        parameters = {"languages": "|".join(self._requested.languages), "languagefallback": "1"}

        def read(key: str, entity: Any) -> ClassFact:
            return class_fact(key, entity, self._requested)

        return self._get_entities_by_id(ids, parameters, "info|labels|descriptions|claims", read)

    def _get_entities_by_id(
        self,
        ids: Sequence[str],
        parameters: dict[str, str],
        props: str,
        read: Callable[[str, Any], Any],
    ) -> dict[str, Any]:
        """Call ``wbgetentities`` and read each entity; return facts by requested id."""

        def read_all(entities: dict[str, Any], is_complete: bool) -> _Answer:
            requested = {key: entities[key] for key in ids if key in entities}
            return _read_entities(requested, read)

        return self._get_entities({"ids": "|".join(ids), **parameters}, props, read_all)

    def _get_entities(
        self,
        parameters: dict[str, str],
        props: str,
        read: Callable[[dict[str, Any], bool], _Answer],
    ) -> dict[str, Any]:
        """Call ``wbgetentities`` and read its response.

        Args:
            parameters: Parameters of the call.
            props: Props of the entities.
            read: Reads the entities of a response, and gets whether the response is complete.
        """

        def read_response(value: dict[str, Any]) -> dict[str, Any]:
            document = read_document(EntitiesDocument, value)
            facts, problem = read(document.entities, not document.is_truncated)
            if not facts and not document.is_truncated:
                raise ValueError(problem or "the response contains none of the entities")
            return facts

        call = {"action": "wbgetentities", "props": props, **parameters}
        return self._client.wikidata(call, read_response)

    def _fetch_pages(self, titles: Sequence[str]) -> dict[str, Any]:
        parameters = {
            "prop": "pageprops|templates|categories",
            "ppprop": "wikibase_item",
            "tltemplates": _REDIRECT_TEMPLATE,
            "tllimit": "max",
            "clcategories": "|".join(REDIRECT_CATEGORIES),
            "cllimit": "max",
            "redirects": "1",
        }
        response = query_titles(self._client, titles, parameters)
        facts = {}
        for title in titles:
            fact = page_fact(title, response)
            if fact is not None:
                facts[title] = fact
        return facts

    def _fetch_redirect_targets(self, titles: Sequence[str]) -> dict[str, Any]:
        parameters = {
            "prop": "revisions|links",
            "rvprop": "content",
            "rvslots": "main",
            "plnamespace": "14",
            "pllimit": "max",
        }
        response = query_titles(self._client, titles, parameters)
        targets = {}
        for title in titles:
            page = response.page(title)
            if page is not None and (page.revisions or page.missing):
                targets[title] = soft_redirect_target(page)
        return targets


def read_properties(client: WikimediaClient, ids: Sequence[str]) -> dict[str, PropertyEntity]:
    """Return properties by id, with their English labels.

    Raises:
        PropertyError: The values of a property are not items.
    """
    parameters = {
        "action": "wbgetentities",
        "ids": "|".join(ids),
        "props": "info|datatype|labels",
        "languages": "en",
    }

    def read(value: dict[str, Any]) -> dict[str, PropertyEntity]:
        entities = read_document(EntitiesDocument, value).entities
        return {key: read_document(PropertyEntity, entities[key]) for key in ids if key in entities}

    properties = client.wikidata(parameters, read)
    for key, entity in properties.items():
        require_items(key, entity.datatype)
    return properties


def _read_entities(entities: dict[str, Any], read: Callable[[str, Any], Any]) -> _Answer:
    """Read each entity; return facts, and the description of the first malformed entity."""
    facts: dict[str, Any] = {}
    problem: str | None = None
    for key, entity in entities.items():
        try:
            facts[key] = read(key, entity)
        except ValueError as error:
            problem = problem or f"entities.{key}: {error}"
    return facts, problem


class _PageItem(NamedTuple):
    """The item of a landmark.

    Args:
        title: Title of the page after all redirects.
        item: Item of the page.
        redirects: Redirects from the landmark's category to the page.
    """

    title: str
    item: ItemFact
    redirects: list[RouteStep]


def _resolve_item(found: _PageItem, facts: FactStore, no_value: ScrapeStatus) -> Resolution:
    """Return the result for a landmark whose item is known, or raise MissingFactsError.

    The main topic of a Wikimedia category replaces its item, once.

    Args:
        found: Item of the landmark.
        facts: Facts of the kinds :data:`ITEM` and :data:`CLASS`.
        no_value: Status of an item without values.
    """
    item = found.item
    route = list(found.redirects)
    if item.main_topic:
        topic: ItemFact | None = facts.get(ITEM, item.main_topic)
        if topic is not None:
            item = topic
            route.append("topic")
    classes: list[ClassFact] = facts.get_all(CLASS, item.values)
    values = [InstanceOfValue(fact.item, fact.label, fact.language) for fact in classes]
    return Resolution(
        status="ok" if values else no_value,
        resolved_title=found.title,
        item=item.item,
        route=route_of(route),
        revision=item.revision,
        instance_of=tuple(dict.fromkeys(values)),
    )


def _find_item(title: str, facts: FactStore) -> Resolution | _PageItem:
    """Return the item of a landmark, or the resolution of a landmark without an item."""
    item: ItemFact | None
    if ITEM_ID.fullmatch(title):
        item = facts.get(ITEM, title)
        if item is None:
            return Resolution("item_missing", item=title)
        return _PageItem(title, item, [])
    # One soft redirect is followed, and the hard redirects before and after it.
    redirects: list[RouteStep] = []
    item = facts.get(SITELINK, title)
    if item is not None:
        return _PageItem(title, item, redirects)
    page: PageFact = facts.get(PAGE, title)
    if page.soft_redirect:
        visited = {title, page.title}
        target: str | None = facts.get(REDIRECT_TARGET, page.title)
        if target is None:
            return Resolution("redirect_unresolved")
        if target in visited:
            return Resolution("redirect_loop")
        if page.redirected:
            redirects.append("hard_redirect")
        redirects.append("soft_redirect")
        item = facts.get(SITELINK, target)
        if item is not None:
            return _PageItem(target, item, redirects)
        page = facts.get(PAGE, target)
        if page.soft_redirect:
            if page.title in visited:
                return Resolution("redirect_loop")
            visited |= {target, page.title}
            if facts.get(REDIRECT_TARGET, page.title) in visited:
                return Resolution("redirect_loop")
            return Resolution("redirect_unresolved")
    if page.status != "found":
        return Resolution(page.status)
    if page.redirected:
        redirects.append("hard_redirect")
    if page.item is None:
        return Resolution("no_item", page.title)
    item = facts.get(ITEM, page.item)
    if item is None:
        return Resolution("item_missing", page.title, page.item, route_of(redirects))
    return _PageItem(page.title, item, redirects)
