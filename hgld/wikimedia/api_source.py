"""The APIs of Wikidata and Commons as a source: up to fifty titles or items per request.

Most landmarks take a fiftieth of one request: Wikidata knows the item whose sitelink is the category
(``wbgetentities`` by title). For the others Commons says whether the page exists, where it redirects to and which
item it names; items and redirect targets are requested in further batches. Each class is requested once, however many
landmarks have it.

A response may lack some of the keys that were asked for: it would have been larger than the API allows, or a single
entity in it has a shape that the API does not have. Those keys are asked for again, without the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import TypeAdapter

from hgld.errors import SourceError
from hgld.tables.column_values import RouteStep, ScrapeStatus
from hgld.taxonomy.label_identity import ITEM_ID
from hgld.wikimedia.api_facts import (
    ClassFact,
    EntitiesDocument,
    ItemFact,
    PageFact,
    PropertyEntity,
    Query,
    Text,
    class_fact,
    item_fact,
    page_fact,
    query_titles,
    read_document,
    require_items,
    sitelink_fact,
    soft_redirect_target,
)
from hgld.wikimedia.client import TooManyValuesError, UnknownEntityError, WikimediaClient
from hgld.wikimedia.source import FactStore, InstanceOfValue, Resolution, route_of
from hgld.wikimedia.titles import REDIRECT_CATEGORIES, is_sendable

log = logging.getLogger(__name__)

# Kinds of facts, as the journal names them.
SITELINK = "sitelink"  # title -> ItemFact of the item whose Commons sitelink it is, or None
PAGE = "page"  # title -> PageFact
REDIRECT_TARGET = "target"  # title of a soft redirect -> the title that it names, or None
ITEM = "item"  # item id -> ItemFact, or None where the item was deleted
CLASS = "class"  # item id -> ClassFact
_SHAPES: dict[str, TypeAdapter[Any]] = {
    SITELINK: TypeAdapter(ItemFact | None),
    PAGE: TypeAdapter(PageFact),
    REDIRECT_TARGET: TypeAdapter(Text | None),
    ITEM: TypeAdapter(ItemFact | None),
    CLASS: TypeAdapter(ClassFact),
}

#: Facts by key, and the description of an odd entity.
_Answer = tuple[dict[str, Any], str | None]

_REDIRECT_TEMPLATE = "Template:Category redirect"


class ApiSource:
    """The APIs as a :class:`hgld.wikimedia.source.Source`."""

    kinds = (CLASS, ITEM, REDIRECT_TARGET, PAGE, SITELINK)
    class_kind = CLASS

    def __init__(self, client: WikimediaClient, query: Query | None = None) -> None:
        self._client = client
        self._query = query or Query()
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
        """Return facts by key; keys that a response lacks are asked for again, in halves if it has none of them.

        If the server refuses a list as too long, batches are halved from then on. Truncated responses do not shorten
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
            rest = [key for key in batch if key not in answered]
            if answered:
                pending += [rest] if rest else []
            elif half:
                pending += [batch[half:], batch[:half]]
            else:
                failure = SourceError(f"the response does not contain {batch[0]}")
        if not facts and failure is not None:
            raise failure
        if failure is not None:
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
        if not is_sendable(title):
            return Resolution("invalid_title" if title else "no_item")
        outcome = _find_item(title, facts)
        return (
            outcome
            if isinstance(outcome, Resolution)
            else _resolve_item(*outcome, facts, self._query.no_value)
        )

    def _fetch_sitelinks(self, titles: Sequence[str]) -> dict[str, Any]:
        def read(entities: dict[str, Any], is_complete: bool) -> _Answer:
            facts, odd = _read_each(entities, lambda _, entity: sitelink_fact(entity, self._query))
            found = dict(facts.values())
            answered = {title: found[title] for title in titles if title in found}
            # A title that Wikidata spells differently is looked up on Commons, as are those that it does not know.
            if is_complete and not odd and len(entities) == len(titles):
                answered = {title: found.get(title) for title in titles}
            return answered, odd

        return self._get_entities(_of_titles(titles), "info|claims|sitelinks", read)

    def _fetch_items(self, ids: Sequence[str]) -> dict[str, Any]:
        return self._get_entities_by_id(
            ids, {}, "info|claims", lambda _, entity: item_fact(entity, self._query)
        )

    def _fetch_classes(self, ids: Sequence[str]) -> dict[str, Any]:
        parameters = {"languages": "|".join(self._query.languages), "languagefallback": "1"}

        def read(key: str, entity: Any) -> ClassFact:
            return class_fact(key, entity, self._query)

        return self._get_entities_by_id(ids, parameters, "info|labels|descriptions|claims", read)

    def _get_entities_by_id(
        self,
        ids: Sequence[str],
        parameters: dict[str, str],
        props: str,
        read: Callable[[str, Any], Any],
    ) -> dict[str, Any]:
        """Return what ``read`` makes of each entity in the response, by requested id, also of a redirect."""

        def read_all(entities: dict[str, Any], is_complete: bool) -> _Answer:
            return _read_each({key: entities[key] for key in ids if key in entities}, read)

        return self._get_entities({"ids": "|".join(ids)} | parameters, props, read_all)

    def _get_entities(
        self,
        parameters: dict[str, str],
        props: str,
        read: Callable[[dict[str, Any], bool], _Answer],
    ) -> dict[str, Any]:
        """Call ``wbgetentities``, and return what ``read`` makes of the entities in a response that may be cut."""

        def read_response(value: dict[str, Any]) -> dict[str, Any]:
            document = read_document(EntitiesDocument, value)
            facts, odd = read(document.entities, not document.is_truncated)
            if not facts and not document.is_truncated:
                raise ValueError(odd or "the response contains none of the entities")
            return facts

        return self._client.wikidata(
            {"action": "wbgetentities", "props": props} | parameters, read_response
        )

    def _fetch_pages(self, titles: Sequence[str]) -> dict[str, Any]:
        query = query_titles(
            self._client,
            titles,
            {
                "prop": "pageprops|templates|categories",
                "ppprop": "wikibase_item",
                "tltemplates": _REDIRECT_TEMPLATE,
                "tllimit": "max",
                "clcategories": "|".join(REDIRECT_CATEGORIES),
                "cllimit": "max",
                "redirects": "1",
            },
        )
        facts = ((title, page_fact(title, query)) for title in titles)
        return {title: fact for title, fact in facts if fact is not None}

    def _fetch_redirect_targets(self, titles: Sequence[str]) -> dict[str, Any]:
        parameters = {"prop": "revisions|links", "rvprop": "content", "rvslots": "main"}
        query = query_titles(
            self._client, titles, parameters | {"plnamespace": "14", "pllimit": "max"}
        )
        pages = ((title, query.page(title)) for title in titles)
        return {
            title: soft_redirect_target(page)
            for title, page in pages
            if page and (page.revisions or page.missing)
        }


def _of_titles(titles: Sequence[str]) -> dict[str, str]:
    return {"sites": "commonswiki", "titles": "|".join(titles), "sitefilter": "commonswiki"}


def read_properties(client: WikimediaClient, ids: Sequence[str]) -> dict[str, PropertyEntity]:
    """Return properties by id, with their English labels; raise a PropertyError if the values are not items."""
    parameters = {
        "action": "wbgetentities",
        "ids": "|".join(ids),
        "props": "info|datatype|labels",
        "languages": "en",
    }

    def read(value: dict[str, Any]) -> dict[str, PropertyEntity]:
        entities = read_document(EntitiesDocument, value).entities
        return {key: read_document(PropertyEntity, entities[key]) for key in ids if key in entities}

    found = client.wikidata(parameters, read)
    for key, entity in found.items():
        require_items(key, entity.datatype)
    return found


def _read_each(entities: dict[str, Any], read: Callable[[str, Any], Any]) -> _Answer:
    """Return what ``read`` makes of each entity, and the description of the first odd one, which is left out."""
    facts: dict[str, Any] = {}
    odd: str | None = None
    for key, entity in entities.items():
        try:
            facts[key] = read(key, entity)
        except ValueError as error:
            odd = odd or f"entities.{key}: {error}"
    return facts, odd


def _resolve_item(
    page_title: str,
    item: ItemFact,
    redirects: list[RouteStep],
    facts: FactStore,
    no_value: ScrapeStatus,
) -> Resolution:
    """Return the result for a landmark whose item is known, or raise MissingFactsError.

    The item of a Wikimedia category gives way to its main topic, once, if it has one. ``page_title`` is the title
    after all ``redirects``; ``facts`` are of the kinds :data:`ITEM` and :data:`CLASS`; ``no_value`` is the status of
    an item without values.
    """
    if item.main_topic:
        topic: ItemFact | None = facts.get(ITEM, item.main_topic)
        if topic is not None:
            item = topic
            redirects = [*redirects, "topic"]
    classes: list[ClassFact] = facts.get_all(CLASS, item.instance_of)
    values = tuple(
        dict.fromkeys(InstanceOfValue(fact.item, fact.label, fact.language) for fact in classes)
    )
    status: ScrapeStatus = "ok" if values else no_value
    return Resolution(status, page_title, item.item, route_of(redirects), item.revision, values)


def _find_item(title: str, facts: FactStore) -> Resolution | tuple[str, ItemFact, list[RouteStep]]:
    """Return the final page title, its item and the redirects to it; or the resolution, where there is no item."""
    if ITEM_ID.fullmatch(title):
        item: ItemFact | None = facts.get(ITEM, title)
        return Resolution("item_missing", item=title) if item is None else (title, item, [])
    # One soft redirect is followed, and the hard ones before and after it.
    redirects: list[RouteStep] = []
    item = facts.get(SITELINK, title)
    if item is not None:
        return title, item, redirects
    page: PageFact = facts.get(PAGE, title)
    if page.soft_redirect:
        visited = {title, page.title}
        target: str | None = facts.get(REDIRECT_TARGET, page.title)
        if target is None:
            return Resolution("redirect_unresolved")
        if target in visited:
            return Resolution("redirect_loop")
        redirects += ["hard_redirect"] * page.redirected
        redirects.append("soft_redirect")
        item = facts.get(SITELINK, target)
        if item is not None:
            return target, item, redirects
        page = facts.get(PAGE, target)
        if page.soft_redirect:
            is_loop = page.title in visited or facts.get(REDIRECT_TARGET, page.title) in {
                *visited,
                target,
                page.title,
            }
            return Resolution("redirect_loop" if is_loop else "redirect_unresolved")
    if page.status != "found":
        return Resolution(page.status)
    redirects += ["hard_redirect"] * page.redirected
    if page.item is None:
        return Resolution("no_item", page.title)
    item = facts.get(ITEM, page.item)
    if item is None:
        return Resolution("item_missing", page.title, page.item, route_of(redirects))
    return page.title, item, redirects
