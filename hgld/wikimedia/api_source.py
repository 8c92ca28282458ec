"""The APIs of Wikidata and Commons, fifty titles or items a request.

Most landmarks take a fiftieth of one request: Wikidata knows the item whose sitelink is the category
(``wbgetentities`` by title). For the others Commons says whether the page exists, where it redirects to and
which item it names; category items and redirect targets are looked up in further batches; each class is asked
for once, however many landmarks it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from sys import intern
from typing import Any, NamedTuple

from hgld.errors import SourceError
from hgld.wikimedia.client import Client, TooManyValuesError
from hgld.wikimedia.source import Answer, ClassFact, Facts, Value, unique_values
from hgld.wikimedia.titles import CATEGORY_PREFIX, is_sendable, normalise_title

INSTANCE_OF, SUBCLASS_OF, MAIN_TOPIC = "P31", "P279", "P301"
WIKIMEDIA_CATEGORY = "Q4167836"

# Kinds of facts.
SITELINK = "sitelink"  # title -> ItemFact of the item whose Commons sitelink it is, or None
PAGE = "page"  # title -> PageFact
TARGET = "target"  # title of a soft redirect -> the title it names, or None
ITEM = "item"  # item id -> ItemFact, or None where it was deleted
CLASS = "class"  # item id -> ClassFact

_LANGUAGE = "en"
_REDIRECT_TEMPLATE = "Template:Category redirect"
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{\s*([^{}|]+?)\s*\|([^{}]*)\}\}")
#: The template behind soft redirects and its aliases on Commons, without spaces, hyphens and capitals.
_REDIRECT_NAMES = frozenset(
    (
        *("categoryredirect", "categoryredir", "catredirect", "catredir", "catred"),
        *("redirectcategory", "redirectcat", "seecat"),
    )
)


class ItemFact(NamedTuple):
    """An item, after entity redirects: its best-rank P31 values and the first best-rank P301 value."""

    item: str
    revision: int
    instance_of: tuple[str, ...]
    main_topic: str | None


class PageFact(NamedTuple):
    """Where hard redirects from a title end.

    ``status``: ``found``, or what the landmark's status is: ``missing``, ``invalid_title``, ``redirect_loop``,
    ``redirect_unresolved``.
    """

    status: str
    title: str
    item: str | None
    redirected: bool
    soft_redirect: bool


class ApiSource:
    """See :class:`hgld.wikimedia.source.Source`."""

    kinds = (CLASS, ITEM, TARGET, PAGE, SITELINK)
    class_kind = CLASS

    def __init__(self, client: Client) -> None:
        self._client = client
        self._batch_size = 50
        self._asks: dict[str, Callable[[Sequence[str]], dict[str, Any]]] = {
            SITELINK: self._ask_sitelinks,
            PAGE: self._ask_pages,
            TARGET: self._ask_targets,
            ITEM: self._ask_items,
            CLASS: self._ask_classes,
        }

    def batch_size(self) -> int:
        """See :class:`Source`."""
        return self._batch_size

    def ask(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """See :class:`Source`; a list that the server finds too long is halved, now and from now on."""
        try:
            return self._asks[kind](keys)
        except TooManyValuesError:
            if len(keys) == 1:
                raise
            half = len(keys) // 2
            self._batch_size = min(self._batch_size, max(half, 1))
            return self.ask(kind, keys[:half]) | self.ask(kind, keys[half:])

    def restore(self, kind: str, fact: Any) -> Any:
        """See :class:`Source`."""
        if kind in (SITELINK, ITEM) and fact is not None:
            item, revision, instance_of, main_topic = fact
            return ItemFact(item, revision, tuple(map(intern, instance_of)), main_topic)
        if kind == PAGE:
            return PageFact(*fact)
        if kind == CLASS:
            item, label, language, subclass_of = fact
            return ClassFact(item, label, language, tuple(map(intern, subclass_of)))
        return fact

    # -- resolving ------------------------------------------------------------

    def resolve(self, title: str, facts: Facts) -> Answer:
        """See :class:`Source`.

        An item that is a Wikimedia category gives way to its main topic, once, where it has a usable one.
        """
        if not is_sendable(title):
            return Answer("invalid_title")
        found = _find_item(title, facts)
        if isinstance(found, Answer):
            return found
        page_title, item, hops = found
        if WIKIMEDIA_CATEGORY in item.instance_of and item.main_topic:
            topic: ItemFact | None = facts.get(ITEM, item.main_topic)
            if topic is not None:
                item = topic
                hops.append("topic")
        classes: list[ClassFact] = facts.get_all(CLASS, item.instance_of)
        values = unique_values(Value(c.item, c.label, c.language) for c in classes)
        status = "ok" if values else "no_instance_of"
        return Answer(status, page_title, item.item, _route(hops), item.revision, values)

    # -- asking ---------------------------------------------------------------

    def _ask_sitelinks(self, titles: Sequence[str]) -> dict[str, Any]:
        entities = self._entities(
            {"sites": "commonswiki", "titles": "|".join(titles), "sitefilter": "commonswiki"},
            "info|claims|sitelinks",
        )
        found = {
            entity["sitelinks"]["commonswiki"]["title"]: _item(entity)
            for entity in entities.values()
            if "sitelinks" in entity
        }
        # A title that Wikidata spells otherwise is asked of Commons, like those that it does not know.
        return {title: found.get(title) for title in titles}

    def _ask_items(self, ids: Sequence[str]) -> dict[str, Any]:
        entities = self._entities({"ids": "|".join(ids)}, "info|claims")
        return {key: None if "missing" in entities[key] else _item(entities[key]) for key in ids}

    def _ask_classes(self, ids: Sequence[str]) -> dict[str, Any]:
        parameters = {"ids": "|".join(ids), "languages": _LANGUAGE, "languagefallback": "1"}
        entities = self._entities(parameters, "labels|claims")
        return {key: _class(key, entities[key]) for key in ids}

    def _entities(self, parameters: dict[str, str], props: str) -> dict[str, Any]:
        """``wbgetentities``; entity redirects are followed, the key stays the id that was asked for."""
        document = self._client.wikidata({"action": "wbgetentities", "props": props} | parameters)
        entities: dict[str, Any] = document["entities"]
        missing = [key for key in parameters.get("ids", "").split("|") if key and key not in entities]
        if missing:
            raise SourceError(f"Wikidata's answer says nothing of {', '.join(missing)}")
        return entities

    def _ask_pages(self, titles: Sequence[str]) -> dict[str, Any]:
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
        return {title: _page(title, query) for title in titles}

    def _ask_targets(self, titles: Sequence[str]) -> dict[str, Any]:
        query = self._query({"prop": "revisions", "rvprop": "content", "rvslots": "main", "titles": "|".join(titles)})
        return {title: _target(query.pages.get(title, {})) for title in titles}

    def _query(self, parameters: dict[str, str]) -> _Query:
        """``action=query`` to its end: an answer may come in parts, and a page may be spread over them."""
        result = _Query({}, {}, {})
        go_on: dict[str, str] = {}
        while True:
            document = self._client.commons({"action": "query"} | parameters | go_on)
            query = document.get("query", {})
            result.normalized.update((row["from"], row["to"]) for row in query.get("normalized", ()))
            result.redirects.update((row["from"], row["to"]) for row in query.get("redirects", ()))
            for page in query.get("pages", ()):
                result.pages.setdefault(page["title"], {}).update(page)
            if "continue" not in document:
                return result
            go_on = document["continue"]


def _find_item(title: str, facts: Facts) -> Answer | tuple[str, ItemFact, list[str]]:
    """The page in the end, its item and the redirects on the way; or the answer, where there is no item.

    One soft redirect is followed, with the hard ones before and after it.
    """
    hops: list[str] = []
    item: ItemFact | None = facts.get(SITELINK, title)
    if item is not None:
        return title, item, hops
    page: PageFact = facts.get(PAGE, title)
    if page.soft_redirect:
        seen = {title, page.title}
        target: str | None = facts.get(TARGET, page.title)
        if target is None:
            return Answer("redirect_unresolved")
        if target in seen:
            return Answer("redirect_loop")
        hops += ["hard_redirect"] * page.redirected + ["soft_redirect"]
        item = facts.get(SITELINK, target)
        if item is not None:
            return target, item, hops
        page = facts.get(PAGE, target)
        if page.soft_redirect:
            looped = page.title in seen or facts.get(TARGET, page.title) in {*seen, target, page.title}
            return Answer("redirect_loop" if looped else "redirect_unresolved")
    if page.status != "found":
        return Answer(page.status)
    hops += ["hard_redirect"] * page.redirected
    if page.item is None:
        return Answer("no_item", page.title)
    item = facts.get(ITEM, page.item)
    if item is None:
        return Answer("item_missing", page.title, page.item, _route(hops))
    return page.title, item, hops


class _Query(NamedTuple):
    """The parts of an answer of ``action=query``; pages by their title."""

    normalized: dict[str, str]
    redirects: dict[str, str]
    pages: dict[str, dict[str, Any]]


def best_values(statements: Iterable[dict[str, Any]]) -> list[str]:
    """The item ids that the best-rank statements name, in order.

    Preferred statements if there are any, else the normal ones, never deprecated ones. The rank is chosen first;
    "no value" and "some value" are dropped after that.
    """
    statements = list(statements)
    rank = "preferred" if any(s["rank"] == "preferred" for s in statements) else "normal"
    snaks = (s["mainsnak"] for s in statements if s["rank"] == rank)
    return [snak["datavalue"]["value"]["id"] for snak in snaks if snak["snaktype"] == "value"]


def _item(entity: dict[str, Any]) -> ItemFact:
    claims = entity["claims"]
    topics = best_values(claims.get(MAIN_TOPIC, ()))
    return ItemFact(
        entity["id"],
        entity["lastrevid"],
        tuple(map(intern, best_values(claims.get(INSTANCE_OF, ())))),
        topics[0] if topics else None,
    )


def _class(key: str, entity: dict[str, Any]) -> ClassFact:
    if "missing" in entity:
        return ClassFact(key, key, None, ())
    label = entity["labels"].get(_LANGUAGE, {})
    parents = tuple(map(intern, best_values(entity["claims"].get(SUBCLASS_OF, ()))))
    return ClassFact(entity["id"], label.get("value", entity["id"]), label.get("language"), parents)


def _page(asked: str, query: _Query) -> PageFact:
    """Follow one title through an answer of Commons: normalisation, hard redirects, the page."""
    title = query.normalized.get(asked, asked)
    seen: set[str] = set()
    while title in query.redirects:
        if title in seen:
            return PageFact("redirect_loop", title, None, True, False)
        seen.add(title)
        title = query.redirects[title]
    page = query.pages.get(title)
    if page is None and seen:  # out of Commons, to another wiki
        return PageFact("redirect_unresolved", title, None, True, False)
    if page is None:
        raise SourceError(f'the answer of Commons says nothing of "{asked}"')
    if "invalid" in page:
        return PageFact("invalid_title", title, None, False, False)
    if "missing" in page:
        return PageFact("missing", title, None, bool(seen), False)
    item = page.get("pageprops", {}).get("wikibase_item")
    return PageFact("found", title, item, bool(seen), "templates" in page)


def _target(page: dict[str, Any]) -> str | None:
    """The category that a page's ``{{Category redirect}}`` names, from its wikitext."""
    slots = page.get("revisions", [{}])[0].get("slots", {})
    wikitext = _COMMENT.sub("", slots.get("main", {}).get("content", ""))
    for name, parameters in _TEMPLATE.findall(wikitext):
        if re.sub("[ _-]", "", name).lower() not in _REDIRECT_NAMES:
            continue
        for parameter in parameters.split("|"):
            key, named, value = parameter.partition("=")
            if not named or key.strip() == "1":
                title = normalise_title((value if named else parameter).strip())
                title = title if title.startswith(CATEGORY_PREFIX) else normalise_title(CATEGORY_PREFIX + title)
                return title if title != CATEGORY_PREFIX and is_sendable(title) else None
    return None


def _route(hops: Sequence[str]) -> str:
    return "+".join(hops) or "direct"
