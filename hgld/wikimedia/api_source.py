"""The APIs of Wikidata and Commons as a source: up to fifty titles or items per request.

Most landmarks take a fiftieth of one request: Wikidata knows the item whose sitelink is the category
(``wbgetentities`` by title). For the others Commons says whether the page exists, where it redirects to and which
item it names; items and redirect targets are requested in further batches. Each class is requested once, however many
landmarks have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import intern
from typing import Any

from hgld.errors import SourceError
from hgld.wikimedia.api_facts import (
    LANGUAGE,
    ItemFact,
    PageFact,
    QueryResult,
    class_fact,
    item_fact,
    page_fact,
    soft_redirect_target,
)
from hgld.wikimedia.client import TooManyValuesError, WikimediaClient
from hgld.wikimedia.source import (
    ClassFact,
    FactStore,
    InstanceOfValue,
    Resolution,
    route_of,
    unique_values,
)
from hgld.wikimedia.titles import is_sendable

# Kinds of facts, as the journal names them.
SITELINK = "sitelink"  # title -> ItemFact of the item whose Commons sitelink it is, or None
PAGE = "page"  # title -> PageFact
REDIRECT_TARGET = "target"  # title of a soft redirect -> the title that it names, or None
ITEM = "item"  # item id -> ItemFact, or None where the item was deleted
CLASS = "class"  # item id -> ClassFact

WIKIMEDIA_CATEGORY = "Q4167836"
_REDIRECT_TEMPLATE = "Template:Category redirect"


class ApiSource:
    """See :class:`hgld.wikimedia.source.Source`.

    Args:
        client: Client of both APIs.
    """

    kinds: tuple[str, ...] = (CLASS, ITEM, REDIRECT_TARGET, PAGE, SITELINK)
    class_kind = CLASS

    def __init__(self, client: WikimediaClient) -> None:
        self._client = client
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
        """See :class:`Source`; if the server refuses a list as too long, batches are halved from then on."""
        try:
            return self._fetchers[kind](keys)
        except TooManyValuesError:
            if len(keys) == 1:
                raise
            half = len(keys) // 2
            self._batch_size = min(self._batch_size, max(half, 1))
            return self.fetch(kind, keys[:half]) | self.fetch(kind, keys[half:])

    def from_json(self, kind: str, fact: Any) -> Any:
        """See :class:`Source`."""
        if kind in (SITELINK, ITEM) and fact is not None:
            item, revision, instance_of, main_topic = fact
            return ItemFact(item, revision, tuple(map(intern, instance_of)), main_topic)
        if kind == PAGE:
            return PageFact(*fact)
        if kind == CLASS:
            item, label, language, subclass_of, revision = fact
            return ClassFact(item, label, language, tuple(map(intern, subclass_of)), revision)
        return fact

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """See :class:`Source`; the item of a Wikimedia category gives way to its main topic, once, if it has one."""
        if not is_sendable(title):
            return Resolution("invalid_title")
        outcome = _resolve_item(title, facts)
        if isinstance(outcome, Resolution):
            return outcome
        page_title, item, redirects = outcome
        if WIKIMEDIA_CATEGORY in item.instance_of and item.main_topic:
            topic: ItemFact | None = facts.get(ITEM, item.main_topic)
            if topic is not None:
                item = topic
                redirects.append("topic")
        classes: list[ClassFact] = facts.get_all(CLASS, item.instance_of)
        values = unique_values(InstanceOfValue(fact.item, fact.label, fact.language) for fact in classes)
        status = "ok" if values else "no_instance_of"
        return Resolution(status, page_title, item.item, route_of(redirects), item.revision, values)

    def _fetch_sitelinks(self, titles: Sequence[str]) -> dict[str, Any]:
        entities = self._get_entities(
            {"sites": "commonswiki", "titles": "|".join(titles), "sitefilter": "commonswiki"},
            "info|claims|sitelinks",
        )
        items = {
            entity["sitelinks"]["commonswiki"]["title"]: item_fact(entity)
            for entity in entities.values()
            if "sitelinks" in entity
        }
        # A title that Wikidata spells differently is looked up on Commons, as are those that it does not know.
        return {title: items.get(title) for title in titles}

    def _fetch_items(self, ids: Sequence[str]) -> dict[str, Any]:
        entities = self._get_entities({"ids": "|".join(ids)}, "info|claims")
        return {key: None if "missing" in entities[key] else item_fact(entities[key]) for key in ids}

    def _fetch_classes(self, ids: Sequence[str]) -> dict[str, Any]:
        parameters = {"ids": "|".join(ids), "languages": LANGUAGE, "languagefallback": "1"}
        entities = self._get_entities(parameters, "info|labels|claims")
        return {key: class_fact(key, entities[key]) for key in ids}

    def _get_entities(self, parameters: dict[str, str], props: str) -> dict[str, Any]:
        """Call ``wbgetentities``; entity redirects are followed, and the key stays the requested id."""
        document = self._client.wikidata({"action": "wbgetentities", "props": props} | parameters)
        entities: dict[str, Any] = document["entities"]
        missing = [key for key in parameters.get("ids", "").split("|") if key and key not in entities]
        if missing:
            raise SourceError(f"the response of Wikidata does not contain {', '.join(missing)}")
        return entities

    def _fetch_pages(self, titles: Sequence[str]) -> dict[str, Any]:
        query = self._query(
            {
                "prop": "pageprops|templates",
                "ppprop": "wikibase_item",
                "tltemplates": _REDIRECT_TEMPLATE,
                "tllimit": "max",
                "redirects": "1",
                "titles": "|".join(titles),
            }
        )
        return {title: page_fact(title, query) for title in titles}

    def _fetch_redirect_targets(self, titles: Sequence[str]) -> dict[str, Any]:
        query = self._query({"prop": "revisions", "rvprop": "content", "rvslots": "main", "titles": "|".join(titles)})
        return {title: soft_redirect_target(query.pages.get(title, {})) for title in titles}

    def _query(self, parameters: dict[str, str]) -> QueryResult:
        """Call ``action=query`` until it is complete: a response, and even a page, may come in several parts."""
        result = QueryResult({}, {}, {})
        continuation: dict[str, str] = {}
        while True:
            document = self._client.commons({"action": "query"} | parameters | continuation)
            query = document.get("query", {})
            result.normalized.update((row["from"], row["to"]) for row in query.get("normalized", ()))
            result.redirects.update((row["from"], row["to"]) for row in query.get("redirects", ()))
            for page in query.get("pages", ()):
                result.pages.setdefault(page["title"], {}).update(page)
            if "continue" not in document:
                return result
            continuation = document["continue"]


def _resolve_item(title: str, facts: FactStore) -> Resolution | tuple[str, ItemFact, list[str]]:
    """Return the final page title, its item and the redirects to it; or the resolution, where there is no item.

    One soft redirect is followed, and the hard ones before and after it.
    """
    redirects: list[str] = []
    item: ItemFact | None = facts.get(SITELINK, title)
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
        redirects += ["hard_redirect"] * page.redirected + ["soft_redirect"]
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
