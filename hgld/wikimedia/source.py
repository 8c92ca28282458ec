"""What a source of "instance of" values is, and how the facts that landmarks need are collected from it.

A source *fetches*: it turns keys (titles, item ids) into facts, up to fifty at a time. And it *resolves*: from a
title and the facts known so far it computes the result for a landmark without any network, or names the missing
facts. So the scraped table is a function of the list and the facts, whatever the order and the runs in which they
arrived.

A scrape in which unlikely many landmarks end in the same status is stopped. A wrong address, a server that refuses
requests in its own way, or a template that has changed can look like thousands of missing pages. The authors of
H-GLDv2 found values for 129.1k of 203k landmarks in train and 68.1k of 101k in index ("Optimization of Rank Losses
for Image Retrieval", section VI-A): about a third has any of the other statuses.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, NamedTuple, Protocol

from hgld.errors import SourceError
from hgld.io.journal import Journal
from hgld.progress import Progress
from hgld.tables.column_values import ROUTE_SEPARATOR, RouteStep, ScrapeStatus
from hgld.taxonomy.label_identity import ITEM_ID
from hgld.wikimedia.api_facts import ClassFact
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.settings import UNLIKELY_SHARES

log = logging.getLogger(__name__)

#: Number of consecutive landmarks that are judged together, so that a server that breaks late is noticed as soon.
_BLOCK = 1_000
#: Number of landmarks of a block that must be under way before it is judged, unless there are no more.
_MIN_LANDMARKS = 100
#: Number of landmarks with the status below which nothing is unlikely.
_MIN_UNLIKELY = 20
_MAX_EXAMPLES = 3
#: What may be wrong, and what to do.
_ADVICE = (
    "The server may not be the one that `commons_url` should name (or `wikidata_url`, of items), may refuse "
    "requests, or may have changed its pages: open one of them in a browser. No table was written. When the cause is "
    "removed, run the same command again: it asks again about rows without a value, and keeps the others"
)
#: Number of failed batches in a row after which the server is assumed to be down.
_MAX_FAILURES_IN_A_ROW = 10


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

    def keys(self, kind: str) -> Collection[str]:
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

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """Return the result for the landmark whose category is ``title``, or raise MissingFactsError."""


def route_of(redirects: Sequence[RouteStep]) -> str:
    """Return the column ``route`` for the steps that were taken, in order.

    >>> route_of(["hard_redirect", "topic"]), route_of([])
    ('hard_redirect+topic', 'direct')
    """
    return ROUTE_SEPARATOR.join(redirects) or "direct"


class UnlikelyStatusError(SourceError):
    """Too many landmarks ended in the same status to be true."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class StatusCheck:
    """Counts the statuses of landmarks while they are resolved.

    Landmarks that wait for facts count as likely ones: those without a value are often resolved first.
    """

    def __init__(
        self, titles: Sequence[str], allowed: Collection[str] = (), noun: str = "landmarks"
    ) -> None:
        self._titles = titles
        self._noun = noun
        self._shares = {
            status: share for status, share in UNLIKELY_SHARES.items() if status not in allowed
        }
        self._started: Counter[int] = Counter()
        self._positions: dict[tuple[int, str], list[int]] = {}

    def start(self, position: int) -> None:
        """Count a landmark whose facts are being fetched."""
        self._started[self._block(position)] += 1

    def end(self, position: int, status: str) -> None:
        """Count the status of a landmark that was started; raise UnlikelyStatusError if it became too frequent."""
        if status in self._shares:
            block = self._block(position)
            self._positions.setdefault((block, status), []).append(position)
            if self._started[block] >= _MIN_LANDMARKS:
                self._check(block, status)

    def finish(self) -> None:
        """Judge all blocks, small ones as well; raise UnlikelyStatusError if a status is too frequent."""
        for block, status in self._positions:
            self._check(block, status)

    def _block(self, position: int) -> int:
        """Return the number of a landmark's block; the last one has the landmarks that would not fill another."""
        return min(position, max(0, len(self._titles) - _BLOCK)) // _BLOCK

    def _check(self, block: int, status: str) -> None:
        positions, n_landmarks = self._positions[block, status], self._started[block]
        share = len(positions) / n_landmarks
        if len(positions) < _MIN_UNLIKELY or share <= self._shares[status]:
            return
        examples = ", ".join(
            f'"{self._titles[position]}"' for position in positions[:_MAX_EXAMPLES]
        )
        raise UnlikelyStatusError(
            f"{len(positions)} of {n_landmarks} {self._noun} ended as {status} ({share:.0%}; at most "
            f"{self._shares[status]:.0%} is likely), such as {examples}. {_ADVICE}. If the result is right, "
            f"allow it with `allow_frequent` {status}",
            status,
        )


def forget_landmarks_without_value(
    titles: Iterable[str], source: Source, facts: FactStore, journal: Journal
) -> None:
    """Forget the facts behind landmarks without a value, and classes without a label; they are fetched again.

    Not only those with the status that stopped the run: a server that fails does so in several ways.
    """
    keys: dict[str, set[str]] = {}
    for title in titles:
        facts.read = []
        try:
            resolution = source.resolve(title, facts)
        except MissingFactsError:
            continue
        unlabelled = {value.item for value in resolution.instance_of if value.label == value.item}
        for kind, key in facts.read:
            if resolution.status in UNLIKELY_SHARES or (
                kind == source.class_kind and key in unlabelled
            ):
                keys.setdefault(kind, set()).add(key)
    for kind in sorted(keys):
        journal.forget(kind, sorted(keys[kind]))


class FactCollector:
    """Fetches facts until each landmark is resolved or lacks some that could not be fetched.

    The keys that waiting landmarks lack are pooled by kind until they fill a request, and each batch is written to
    the journal when it arrives.

    Attributes:
        class_redirects: By id of an item that statements name, the class to which it redirects.
        rank_labels: Labels of the ranks of classes, by item.

    Args:
        known: By title, results that need no facts, with their time (milliseconds since 1970).
    """

    def __init__(
        self,
        source: Source,
        facts: FactStore,
        titles: Sequence[str],
        known: Mapping[str, tuple[Resolution, int]],
        statuses: StatusCheck,
        progress: Progress,
        *,
        client: WikimediaClient,
        journal: Journal,
    ) -> None:
        self.source, self._client, self._facts, self._journal = source, client, facts, journal
        self._titles, self._known, self._statuses, self._progress = (
            titles,
            known,
            statuses,
            progress,
        )
        #: By kind: the keys to request in order, those in flight, and those that could not be fetched.
        self._queued: dict[str, dict[str, None]] = {kind: {} for kind in source.kinds}
        self._in_flight: dict[str, set[str]] = {kind: set() for kind in source.kinds}
        self._failed: dict[str, set[str]] = {kind: set() for kind in source.kinds}
        #: Positions of the landmarks that were started and lack facts.
        self._waiting: list[int] = []
        self._failures_in_a_row = 0
        self.failed_classes = 0
        self.class_redirects: dict[str, str] = {}
        self.rank_labels: dict[str, str] = {}

    def collect(self, workers: int, class_depth: int) -> dict[str, ClassFact]:
        """Fetch everything that is missing, with this number of requests in flight.

        Returns:
            Classes of landmarks and their ancestors up to a depth, by item id; with the superclasses after redirects.
        """
        unresolved = []
        for position, title in enumerate(self._titles):
            status = self.resolution(title)[0].status
            if status == "error":
                unresolved.append(position)
            elif title not in self._known:
                self._statuses.start(position)
                self._statuses.end(position, status)
        self._progress.start(len(self._titles), done=len(self._titles) - len(unresolved))
        executor = ThreadPoolExecutor(workers)
        try:
            self._fetch_all(executor, workers, iter(unresolved))
            self._statuses.finish()
            return self._fetch_ancestors(executor, workers, class_depth)
        finally:
            self._client.close()
            executor.shutdown(wait=True, cancel_futures=True)

    def resolution(self, title: str) -> tuple[Resolution, int]:
        """Return the resolution of a title and the time of the most recent fact in it (milliseconds since 1970).

        The status is ``error`` while facts are missing.
        """
        if title in self._known:
            return self._known[title]
        self._facts.latest = 0
        try:
            resolution = self.source.resolve(title, self._facts)
        except MissingFactsError:
            return Resolution("error"), 1000 * int(time.time())
        return resolution, 1000 * (self._facts.latest or int(time.time()))

    def _fetch_all(
        self, executor: ThreadPoolExecutor, workers: int, landmarks: Iterator[int]
    ) -> None:
        """Send batches until none is left; ``landmarks`` are the positions of those not started yet."""
        requests: dict[Future[dict[str, Any]], tuple[str, list[str]]] = {}
        while True:
            while len(requests) < workers:
                batch = self._full_batch(landmarks) or (None if requests else self._largest_batch())
                if batch is None:
                    break
                requests[executor.submit(self.source.fetch, *batch)] = batch
            if not requests:
                return
            for future in wait(requests, return_when=FIRST_COMPLETED).done:
                self._handle_response(future, *requests.pop(future))

    def _full_batch(self, landmarks: Iterator[int]) -> tuple[str, list[str]] | None:
        """Return keys that fill a request; start new landmarks only while the waiting ones do not fill one."""
        while True:
            for kind in self.source.kinds:
                size = self.source.batch_size(kind)
                if len(self._queued[kind]) >= size:
                    return self._take_batch(kind, size)
            position = next(landmarks, None)
            if position is None:
                return None
            self._statuses.start(position)
            if not self._advance(position):
                self._waiting.append(position)

    def _largest_batch(self) -> tuple[str, list[str]] | None:
        kind = max(self._queued, key=lambda kind: len(self._queued[kind]))
        return self._take_batch(kind, self.source.batch_size(kind)) if self._queued[kind] else None

    def _take_batch(self, kind: str, size: int) -> tuple[str, list[str]]:
        keys = list(islice(self._queued[kind], size))
        for key in keys:
            del self._queued[kind][key]
        self._in_flight[kind].update(keys)
        return kind, keys

    def _handle_response(self, future: Future[dict[str, Any]], kind: str, keys: list[str]) -> None:
        """Store the facts of a batch or note its failure, then advance the landmarks that wait."""
        try:
            batch = future.result()
        except SourceError as error:
            self._failed[kind].update(keys)
            self._failures_in_a_row += 1
            log.warning("%d %s facts could not be fetched: %s", len(keys), kind, error)
            if self._failures_in_a_row == _MAX_FAILURES_IN_A_ROW:
                raise SourceError(
                    f"{_MAX_FAILURES_IN_A_ROW} batches in a row failed, the last one: {error}. Earlier responses are "
                    "kept; run the same command again when the servers can be reached"
                ) from error
        else:
            at = int(time.time())
            self._failures_in_a_row = 0
            self._journal.append(kind, at, batch)
            self._facts.add(kind, batch, at)
            self._failed[kind].update(key for key in keys if key not in batch)
        self._in_flight[kind].difference_update(keys)
        self._waiting = [position for position in self._waiting if not self._advance(position)]

    def _advance(self, position: int) -> bool:
        """Return whether a landmark is done, resolved or not; queue the facts that it lacks otherwise."""
        try:
            status = self.source.resolve(self._titles[position], self._facts).status
        except MissingFactsError as missing:
            kind, keys = missing.kind, missing.keys
            if self._failed[kind].isdisjoint(keys):
                self._queued[kind] |= dict.fromkeys(
                    key for key in keys if key not in self._in_flight[kind]
                )
                return False
        else:
            self._statuses.end(position, status)
        self._progress.advance(requests=self._client.requests, retries=self._client.retries)
        return True

    def _fetch_ancestors(
        self, executor: ThreadPoolExecutor, workers: int, depth: int
    ) -> dict[str, ClassFact]:
        """Fetch the classes of all landmarks and their ancestors, one step of "subclass of" after the other."""
        kind = self.source.class_kind
        if kind is None:
            return {}
        classes: dict[str, ClassFact] = {}
        reached: dict[str, str] = {}
        newest = [
            value.item for title in self._titles for value in self.resolution(title)[0].instance_of
        ]
        for step in range(depth + 1):
            wanted = {item for item in newest if item is not None and item not in reached}
            fetched = self._fetch_classes(executor, workers, kind, wanted)
            reached |= {item: fact.item for item, fact in fetched.items()}
            classes |= {fact.item: fact for fact in fetched.values()}
            newest = (
                [parent for fact in fetched.values() for parent in fact.subclass_of]
                if step < depth
                else []
            )
        ranks = {
            fact.rank for fact in classes.values() if fact.rank and ITEM_ID.fullmatch(fact.rank)
        }
        named = self._fetch_classes(executor, workers, kind, ranks)
        self.rank_labels = {item: fact.label for item, fact in named.items()}
        goals = {
            item: self._facts.get(kind, item).item for item in self._facts.keys(kind)
        } | reached
        self.class_redirects = {
            item: goal for item, goal in goals.items() if item != goal and goal in classes
        }
        return {
            item: fact._replace(
                subclass_of=tuple(dict.fromkeys(reached.get(up, up) for up in fact.subclass_of))
            )
            for item, fact in classes.items()
        }

    def _fetch_classes(
        self, executor: ThreadPoolExecutor, workers: int, kind: str, items: Collection[str]
    ) -> dict[str, ClassFact]:
        """Return classes by requested item, in this order; those that could not be fetched are counted."""
        wanted = sorted(items)
        self._queued[kind] = dict.fromkeys(
            item for item in wanted if item not in self._facts.keys(kind)
        )
        self._fetch_all(executor, workers, iter(()))
        found = {
            item: self._facts.get(kind, item) for item in wanted if item in self._facts.keys(kind)
        }
        self.failed_classes += len(wanted) - len(found)
        return found
