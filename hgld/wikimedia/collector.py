"""Collect the facts that landmarks need from a source, in full batches and with several requests in flight."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from hgld.errors import SourceError
from hgld.io.journal import Journal
from hgld.progress import Progress
from hgld.taxonomy.label_identity import ITEM_ID
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.plausibility import StatusCheck
from hgld.wikimedia.source import ClassFact, FactStore, MissingFactsError, Resolution, Source

log = logging.getLogger(__name__)

#: Number of failed batches in a row after which the server is assumed to be down.
_MAX_FAILURES_IN_A_ROW = 10


class FactCollector:
    """Fetches facts until each landmark is resolved or waits for a batch that failed.

    Landmarks wait for facts. Keys of one kind are pooled over all landmarks until they fill a request, and each batch
    is written to the journal when it arrives.

    Attributes:
        class_redirects: By id of an item that statements name, the class to which it redirects.
        rank_labels: Labels of the ranks of classes, by item.

    Args:
        known: By title, results that need no facts, with their time (milliseconds since 1970).
        clock: Returns the time of the facts that are received (seconds since 1970); None for the current time.
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
        client: WikimediaClient | None = None,
        journal: Journal | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.source, self._client, self._facts, self._journal = source, client, facts, journal
        self._clock = clock or (lambda: time.time())
        self._titles, self._known, self._statuses, self._progress = titles, known, statuses, progress
        #: By kind: the keys to request, each with the positions of the landmarks that wait for it.
        self._queued: dict[str, dict[str, list[int]]] = {kind: {} for kind in source.kinds}
        #: The same for the keys in requests in flight.
        self._in_flight: dict[str, dict[str, list[int]]] = {kind: {} for kind in source.kinds}
        self._failed: dict[str, set[str]] = {kind: set() for kind in source.kinds}
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
            if self._client is not None:
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
            return Resolution("error"), 1000 * int(self._clock())
        return resolution, 1000 * (self._facts.latest or int(self._clock()))

    def _fetch_all(self, executor: ThreadPoolExecutor, workers: int, landmarks: Iterator[int]) -> None:
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
            self._advance(position)

    def _largest_batch(self) -> tuple[str, list[str]] | None:
        kind = max(self._queued, key=lambda kind: len(self._queued[kind]))
        return self._take_batch(kind, self.source.batch_size(kind)) if self._queued[kind] else None

    def _take_batch(self, kind: str, size: int) -> tuple[str, list[str]]:
        queued = self._queued[kind]
        keys = [key for key, _ in zip(queued, range(size), strict=False)]
        self._in_flight[kind].update((key, queued.pop(key)) for key in keys)
        return kind, keys

    def _handle_response(self, future: Future[dict[str, Any]], kind: str, keys: list[str]) -> None:
        """Store the facts of a batch or note its failure, then advance the landmarks that waited for it."""
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
            at = int(self._clock())
            self._failures_in_a_row = 0
            if self._journal is not None:
                self._journal.append(kind, at, batch)
            self._facts.add(kind, batch, at)
            self._failed[kind].update(key for key in keys if key not in batch)
        for key in keys:
            for position in self._in_flight[kind].pop(key):
                self._advance(position)

    def _advance(self, position: int) -> None:
        """Resolve a landmark, or queue the facts that it lacks and let it wait for the first of them."""
        try:
            status = self.source.resolve(self._titles[position], self._facts).status
        except MissingFactsError as missing:
            kind, keys = missing.kind, missing.keys
            if self._failed[kind].isdisjoint(keys):
                for key in keys:
                    if key not in self._in_flight[kind]:
                        self._queued[kind].setdefault(key, [])
                waiting = self._in_flight[kind] if keys[0] in self._in_flight[kind] else self._queued[kind]
                waiting[keys[0]].append(position)
                return
        else:
            self._statuses.end(position, status)
        if self._client is None:
            self._progress.advance()
        else:
            self._progress.advance(requests=self._client.requests, retries=self._client.retries)

    def _fetch_ancestors(self, executor: ThreadPoolExecutor, workers: int, depth: int) -> dict[str, ClassFact]:
        """Fetch the classes of all landmarks and their ancestors, one step of "subclass of" after the other."""
        kind = self.source.class_kind
        if kind is None:
            return {}
        classes: dict[str, ClassFact] = {}
        reached: dict[str, str] = {}
        newest = [value.item for title in self._titles for value in self.resolution(title)[0].instance_of]
        for step in range(depth + 1):
            wanted = {item for item in newest if item is not None and item not in reached}
            self._queued[kind] = {item: [] for item in sorted(wanted) if not self._facts.has(kind, item)}
            self._fetch_all(executor, workers, iter(()))
            fetched = {item: self._facts.get(kind, item) for item in sorted(wanted) if self._facts.has(kind, item)}
            self.failed_classes += len(wanted) - len(fetched)
            reached |= {item: fact.item for item, fact in fetched.items()}
            classes |= {fact.item: fact for fact in fetched.values()}
            newest = [parent for fact in fetched.values() for parent in fact.subclass_of] if step < depth else []
        ranks = sorted({fact.rank for fact in classes.values() if fact.rank and ITEM_ID.fullmatch(fact.rank)})
        self._queued[kind] = {item: [] for item in ranks if not self._facts.has(kind, item)}
        self._fetch_all(executor, workers, iter(()))
        known = [item for item in ranks if self._facts.has(kind, item)]
        self.failed_classes += len(ranks) - len(known)
        self.rank_labels = {item: self._facts.get(kind, item).label for item in known}
        named = {item: self._facts.get(kind, item).item for item in self._facts.keys(kind)} | reached
        self.class_redirects = {item: goal for item, goal in named.items() if item != goal and goal in classes}
        return {
            item: fact._replace(subclass_of=tuple(dict.fromkeys(reached.get(up, up) for up in fact.subclass_of)))
            for item, fact in classes.items()
        }
