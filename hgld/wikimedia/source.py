"""What a source of "instance of" values is, and the facts it works on.

A scrape is split in two. A source *asks*: it turns keys (titles, item ids) into facts, fifty at a time, over the
network. And it *resolves*: from a title and the facts known so far it computes a landmark's answer, without any
network, or says which facts are missing. So the table is a function of the input and the facts alone; in
which order they came, in which batches, and in how many runs, makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Value(NamedTuple):
    """One "instance of" value, as in the column ``instance_of`` of the table ``scraped``."""

    item: str | None
    label: str
    language: str | None


class Answer(NamedTuple):
    """What a source says of one landmark; the fields are columns of the table ``scraped``.

    ``status``: ``ok``; ``no_instance_of``, an item without values; ``no_item`` (api) or ``no_infobox`` (html);
    ``item_missing``, the page names an item that was deleted; ``missing``, no such page; ``invalid_title``;
    ``redirect_loop``; ``redirect_unresolved``, further than redirects are followed; ``error``, to be tried again.
    """

    status: str
    resolved_title: str | None = None
    item: str | None = None
    route: str | None = None
    revision: int | None = None
    instance_of: tuple[Value, ...] = ()


class ClassFact(NamedTuple):
    """A class, as in the table ``classes``; one that was deleted has its id for a label."""

    item: str
    label: str
    language: str | None
    subclass_of: tuple[str, ...]


class MissingFactsError(Exception):
    """Raised while resolving: these keys of this kind have to be asked for first."""

    def __init__(self, kind: str, keys: Sequence[str]) -> None:
        super().__init__(kind, keys)
        self.kind, self.keys = kind, keys


class Facts:
    """Everything the servers have said, by kind and key, with the time (seconds since 1970) of the answer."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[Any, int]]] = {}
        #: The time of the latest fact that was read since it was last set.
        self.latest = 0

    def add(self, kind: str, facts: Mapping[str, Any], at: int) -> None:
        """Remember an answer."""
        self._known.setdefault(kind, {}).update((key, (fact, at)) for key, fact in facts.items())

    def known(self, kind: str, key: str) -> bool:
        """Whether there is a fact under this key."""
        return key in self._known.get(kind, ())

    def get(self, kind: str, key: str) -> Any:
        """The fact under ``key``.

        Raises:
            MissingFactsError: there is none yet.
        """
        return self.get_all(kind, (key,))[0]

    def get_all(self, kind: str, keys: Sequence[str]) -> list[Any]:
        """The facts under ``keys``, in their order.

        Raises:
            MissingFactsError: naming all keys that are not known yet.
        """
        known = self._known.get(kind, {})
        missing = [key for key in keys if key not in known]
        if missing:
            raise MissingFactsError(kind, missing)
        found = [known[key] for key in keys]
        self.latest = max(self.latest, *(at for _, at in found)) if found else self.latest
        return [fact for fact, _ in found]


class Source(Protocol):
    """A way to learn what landmarks are instances of."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of facts, those that end a landmark's resolution first."""

    @property
    def class_kind(self) -> str | None:
        """The kind whose facts are :class:`ClassFact`; None for a source that does not know classes."""

    def batch_size(self) -> int:
        """How many keys one request takes."""

    def ask(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """A fact for every key; facts are tuples of JSON values, or None.

        Raises:
            SourceError: the batch was given up.
            ConfigurationError: the whole run has to stop.
        """

    def restore(self, kind: str, fact: Any) -> Any:
        """A fact that was through JSON, in its own type again."""

    def resolve(self, title: str, facts: Facts) -> Answer:
        """The answer for the landmark whose category is ``title``.

        Raises:
            MissingFactsError: facts have to be asked for first.
        """


def unique_values(values: Iterable[Value]) -> tuple[Value, ...]:
    """The values in order, one that is stated twice only once."""
    return tuple(dict.fromkeys(values))
