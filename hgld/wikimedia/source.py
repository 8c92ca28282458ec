"""Interface of a source of "instance of" values, and the store of the facts that it works on.

A scrape has two parts. A source *fetches*: it turns keys (titles, item ids) into facts over the network, up to fifty
at a time. And it *resolves*: from a title and the facts known so far it computes the result for a landmark without
any network, or names the facts that are missing. The scraped table is therefore a function of the input and the facts
alone: the order, the batches and the number of runs in which the facts arrived make no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from hgld.tables.column_values import ROUTE_SEPARATOR, RouteStep, ScrapeStatus
from hgld.wikimedia.api_documents import ItemId, Revision, Text

S = TypeVar("S")


@dataclass(frozen=True)
class Query:
    """What is asked about items.

    Args:
        parents: Property of the values' superclasses.
        languages: Languages of labels, the preferred one first; the server falls back to others.
        no_value: Status of an item without values.
    """

    property_id: str = "P31"
    parents: str = "P279"
    languages: tuple[str, ...] = ("en",)
    no_value: ScrapeStatus = "no_instance_of"

    @property
    def ranks(self) -> bool:
        """Whether the parents have ranks, as taxa do: P279 goes up any number of steps."""
        return self.parents != "P279"


class InstanceOfValue(NamedTuple):
    """One "instance of" value, as in the table ``scraped``; a class without a label has its id as label."""

    item: str | None
    label: str
    language: str | None


class Resolution(NamedTuple):
    """Result of looking up one landmark; the fields are columns of the table ``scraped``.

    Args:
        status: Whether values were found, or why not: :data:`~hgld.tables.column_values.SCRAPE_STATUS_MEANINGS`.
        resolved_title: Title after all redirects.
        route: Steps from the category to the item, as :func:`route_of` joins them.
    """

    status: ScrapeStatus
    resolved_title: str | None = None
    item: str | None = None
    route: str | None = None
    revision: int | None = None
    instance_of: tuple[InstanceOfValue, ...] = ()


class ClassFact(NamedTuple):
    """A class, as in the table ``classes``; a deleted class has its id as label, and no revision.

    ``rank`` is the item of its taxon rank (P105), or its label if the class is from a table.
    """

    item: ItemId
    label: Text
    language: Text | None
    description: Text | None
    subclass_of: tuple[ItemId, ...]
    revision: Revision | None
    rank: Text | None = None


def best_rank(statements: Sequence[S], rank_of: Callable[[S], str]) -> list[S]:
    """Return the best-rank statements in order: the preferred ones, else the normal ones, never the deprecated ones.

    Statements with the values "no value" and "some value" count, too; callers drop them afterwards.
    """
    ranks = [rank_of(statement) for statement in statements]
    best = "preferred" if "preferred" in ranks else "normal"
    return [statement for statement, rank in zip(statements, ranks, strict=True) if rank == best]


class MissingFactsError(Exception):
    """Raised while resolving: the facts of a kind with these keys must be fetched first."""

    def __init__(self, kind: str, keys: Sequence[str]) -> None:
        super().__init__(kind, keys)
        self.kind, self.keys = kind, keys


class FactStore:
    """All facts received so far, by kind and key, with the time of the response (seconds since 1970).

    Attributes:
        latest: Time of the most recent of the facts that were read since this was last set.
        read: Kind and key of the facts that were read since this was last set; None to keep no account.
    """

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, tuple[Any, int]]] = {}
        self.latest = 0
        self.read: list[tuple[str, str]] | None = None

    def add(self, kind: str, facts: Mapping[str, Any], at: int) -> None:
        """Store the facts of one response by key, with the time of the response."""
        self._facts.setdefault(kind, {}).update((key, (fact, at)) for key, fact in facts.items())

    def has(self, kind: str, key: str) -> bool:
        """Return whether the fact is known."""
        return key in self._facts.get(kind, ())

    def keys(self, kind: str) -> Iterable[str]:
        """Return the keys of all known facts of a kind."""
        return self._facts.get(kind, {}).keys()

    def get(self, kind: str, key: str) -> Any:
        """Return one fact, or raise MissingFactsError."""
        return self.get_all(kind, (key,))[0]

    def get_all(self, kind: str, keys: Sequence[str]) -> list[Any]:
        """Return several facts of one kind, in the order of the keys; a MissingFactsError names all that lack."""
        known = self._facts.get(kind, {})
        missing = [key for key in keys if key not in known]
        if missing:
            raise MissingFactsError(kind, missing)
        entries = [known[key] for key in keys]
        self.latest = max([self.latest, *(at for _, at in entries)])
        if self.read is not None:
            self.read += ((kind, key) for key in keys)
        return [fact for fact, _ in entries]


class Source(Protocol):
    """A way to find out what landmarks are instances of."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of facts, in the order in which full batches are sent: those that finish a landmark come first."""

    @property
    def class_kind(self) -> str | None:
        """Kind whose facts are :class:`ClassFact`; None for a source that does not know classes."""

    def batch_size(self, kind: str) -> int:
        """Return the number of keys of a kind that fit into one request."""

    def fetch(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return facts by key, which are tuples of JSON values, or None; keys that failed are left out."""

    def from_json(self, kind: str, fact: Any) -> Any:
        """Restore a fact that was stored as JSON; raise ValueError if it has another shape."""

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """Return the result for the landmark whose category is ``title``, or raise MissingFactsError."""


def route_of(redirects: Sequence[RouteStep]) -> str:
    """Return the column ``route`` for the steps that were taken, in order.

    >>> route_of(["hard_redirect", "topic"]), route_of([])
    ('hard_redirect+topic', 'direct')
    """
    return ROUTE_SEPARATOR.join(redirects) or "direct"
