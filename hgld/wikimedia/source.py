"""The interface of sources of "instance of" values, and the store of the facts that they fetch.

A source *fetches*: it turns keys (titles, item ids) into facts, up to fifty at a time. And it
*resolves*: from a title and the facts known so far it computes the result for a landmark without
network access, or names the missing facts. So the scraped table is a function of the list and the
facts, independent of the order in which facts arrived, and of the number of runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hgld.tables.column_values import ROUTE_SEPARATOR, RouteStep, ScrapeStatus


class InstanceOfValue(NamedTuple):
    """An "instance of" value of the table ``scraped``; an unlabelled class has its id as label."""

    item: str | None
    label: str
    language: str | None


class Resolution(NamedTuple):
    """Result of looking up one landmark; the fields are columns of the table ``scraped``.

    Args:
        status: ``ok`` with values, or the reason without values, see
            :data:`~hgld.tables.column_values.SCRAPE_STATUS_MEANINGS`.
        resolved_title: Title after all redirects.
        item: Item on Wikidata.
        route: Steps from the category to the item, joined by :func:`route_of`.
        revision: Revision of the item.
        instance_of: Values.
    """

    status: ScrapeStatus
    resolved_title: str | None = None
    item: str | None = None
    route: str | None = None
    revision: int | None = None
    instance_of: tuple[InstanceOfValue, ...] = ()


class MissingFactsError(Exception):
    """Facts with these keys must be fetched before a landmark can be resolved."""

    def __init__(self, kind: str, keys: Sequence[str]) -> None:
        super().__init__(kind, keys)
        self.kind = kind
        self.keys = keys


class FactStore:
    """All facts received so far, by kind and key, with the time of the response.

    Times are in seconds since 1970.

    Attributes:
        latest: Time of the most recent fact that was read since this attribute was last set.
        read: Kind and key of the facts that were read since this attribute was last set; None to
            record nothing.
    """

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, tuple[Any, int]]] = {}
        self.latest = 0
        self.read: list[tuple[str, str]] | None = None

    def add(self, kind: str, facts: Mapping[str, Any], at: int) -> None:
        """Store the facts of one response by key, with the time of the response."""
        facts_of_kind = self._facts.setdefault(kind, {})
        for key, fact in facts.items():
            facts_of_kind[key] = fact, at

    def keys(self, kind: str) -> Collection[str]:
        """Return the keys of all known facts of a kind."""
        return self._facts.get(kind, {}).keys()

    def get(self, kind: str, key: str) -> Any:
        """Return one fact, or raise :class:`MissingFactsError`."""
        return self.get_all(kind, (key,))[0]

    def get_all(self, kind: str, keys: Sequence[str]) -> list[Any]:
        """Return several facts of one kind, in the order of the keys.

        Raises:
            MissingFactsError: Facts are missing; the error has all their keys.
        """
        facts_of_kind = self._facts.get(kind, {})
        missing = [key for key in keys if key not in facts_of_kind]
        if missing:
            raise MissingFactsError(kind, missing)
        facts = []
        for key in keys:
            fact, at = facts_of_kind[key]
            facts.append(fact)
            self.latest = max(self.latest, at)
            if self.read is not None:
                self.read.append((kind, key))
        return facts


class Source(Protocol):
    """A source of the "instance of" values of landmarks."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of facts in the order of full batches: last steps of landmarks come first."""

    @property
    def class_kind(self) -> str | None:
        """Kind of facts about classes; None for a source without classes."""

    def batch_size(self, kind: str) -> int:
        """Return the number of keys of a kind that fit into one request."""

    def fetch(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return facts by key, as tuples of JSON values or None; failed keys are left out."""

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """Return the result for a landmark by its title, or raise :class:`MissingFactsError`."""


def route_of(redirects: Sequence[RouteStep]) -> str:
    """Return the value of the column ``route`` for the steps from a category to its item.

    >>> route_of(["hard_redirect", "topic"]), route_of([])
    ('hard_redirect+topic', 'direct')
    """
    return ROUTE_SEPARATOR.join(redirects) or "direct"
