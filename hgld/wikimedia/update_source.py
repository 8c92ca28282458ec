"""The APIs as a source that asks what has changed since an earlier scrape, and fetches only that.

Statements, labels and the link to a Commons category are all part of an item: with the same revision it is the same.
``wbgetentities`` takes fifty ids and, in the same call, fifty titles, so that a request checks a hundred landmarks.
Only Commons knows what became of redirects and of pages without an item, which are requested again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hgld.wikimedia.api_facts import ItemFact, RevisionFact, revision_fact
from hgld.wikimedia.api_source import REVISION, SITELINK, WIKIMEDIA_CATEGORY, ApiSource, read_each
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.earlier import EarlierScrape
from hgld.wikimedia.source import FactStore, Resolution
from hgld.wikimedia.titles import is_sendable


class UpdateSource(ApiSource):
    """See :class:`hgld.wikimedia.source.Source`; the results are those of :class:`ApiSource`.

    The tables hold classes after redirects. Where statements may name an item that redirects to the class, which the
    revision of neither would show, the landmark or class is requested again.

    Args:
        client: Client of both APIs.
        earlier: The scrape to start from.
    """

    kinds = (*ApiSource.kinds, REVISION)

    def __init__(self, client: WikimediaClient, earlier: EarlierScrape) -> None:
        super().__init__(client)
        self._rows, self._classes = earlier.rows, earlier.classes
        self._redirected = set(earlier.redirects.values())
        self._plain_classes = self._classes.keys() - self._redirected - {WIKIMEDIA_CATEGORY}
        self._fetchers[REVISION] = self._fetch_revisions

    def batch_size(self, kind: str) -> int:
        """See :class:`Source`."""
        return super().batch_size(kind) * (2 if kind == REVISION else 1)

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """See :class:`Source`; what the revision implies is added to the facts."""
        row = self._row(title)
        if row is not None and (facts.has(REVISION, title) or not facts.has(SITELINK, title)):
            current: tuple[str, int] | tuple[()] | None = facts.get(REVISION, title)
            if not facts.has(SITELINK, title) and (current is None or current == (row.item, row.revision)):
                # Its time is that of the revision, which was just read.
                facts.add(SITELINK, {title: None if current is None else _item_fact(row)}, 0)
        return super().resolve(title, facts)

    def _row(self, title: str) -> Resolution | None:
        """Return the earlier result if it says which item, if any, was linked to the title."""
        row = self._rows[title][0] if title in self._rows and is_sendable(title) else None
        return row if row is not None and (self._had_link(row, title) or _had_no_link(row)) else None

    def _had_link(self, row: Resolution, title: str) -> bool:
        """Return whether the item of a landmark was that of its category, and its revision tells all about it.

        That of a category item does not tell about its topic.
        """
        classes = {value.item for value in row.instance_of if value.item}
        return (
            row.route == "direct"
            and row.resolved_title == title
            and row.revision is not None
            and classes <= self._plain_classes
        )

    def _fetch_revisions(self, titles: Sequence[str]) -> dict[str, Any]:
        """Ask by title first where there was no item, then as well as by id for the others."""
        item_of = {title: row.item for title in titles if (row := self._row(title)) and self._had_link(row, title)}
        limit = super().batch_size(REVISION)
        by_title = sorted(titles, key=lambda title: title in item_of)
        by_id = [by_title.pop() for _ in range(min(len(item_of), len(titles) // 2))]
        linked: dict[str, tuple[str, int] | None] = {}
        for start in range(0, max(len(by_title), len(by_id)), limit):
            some = by_title[start : start + limit]
            parameters = (
                {"sites": "commonswiki", "titles": "|".join(some), "sitefilter": "commonswiki"} if some else {}
            )
            if ids := [item_of[title] for title in by_id[start : start + limit]]:
                parameters["ids"] = "|".join(dict.fromkeys(filter(None, ids)))
            for fact in self._get_revisions(parameters).values():
                if fact.title is not None:
                    linked[fact.title] = (fact.item, fact.revision) if fact.item and fact.revision else None
        return {title: linked.get(title, ()) for title in titles}

    def _fetch_classes(self, ids: Sequence[str]) -> dict[str, Any]:
        known = [
            item
            for item in ids
            if item in self._classes and self._redirected.isdisjoint(self._classes[item].subclass_of)
        ]
        entities = self._get_revisions({"ids": "|".join(known)}) if known else {}
        unchanged = {
            item: self._classes[item]
            for item in known
            if item in entities
            and (entities[item].item or item, entities[item].revision) == (item, self._classes[item].revision)
        }
        changed = [item for item in ids if item not in unchanged]
        return unchanged | (super()._fetch_classes(changed) if changed else {})

    def _get_revisions(self, parameters: dict[str, str]) -> dict[str, RevisionFact]:
        """Return what the response tells by id, or by another key for titles without an item."""
        return self._get_entities(
            parameters,
            "info|sitelinks",
            lambda entities, _: read_each(entities, lambda _, entity: revision_fact(entity)),
        )


def _had_no_link(row: Resolution) -> bool:
    """Return whether no item was linked to the title itself: there was no page or no item, or a redirect."""
    return row.revision is None or "_redirect" in (row.route or "")


def _item_fact(row: Resolution) -> ItemFact:
    assert row.item is not None
    assert row.revision is not None
    return ItemFact(row.item, row.revision, tuple(value.item for value in row.instance_of if value.item), None)
