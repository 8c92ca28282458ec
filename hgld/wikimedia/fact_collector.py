"""Fetch the facts that landmarks lack, in full batches and with several requests in flight."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any

from hgld.errors import SourceError
from hgld.io.journal import Journal
from hgld.progress import Progress
from hgld.taxonomy.label_identity import ITEM_ID
from hgld.wikimedia.api_facts import ClassFact
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.source import FactStore, MissingFactsError, Resolution, Source
from hgld.wikimedia.status_check import StatusCheck

log = logging.getLogger(__name__)

#: Number of failed batches in a row after which the server is assumed to be down.
_MAX_FAILURES_IN_A_ROW = 10


class FactCollector:
    """Fetches facts until each landmark is resolved, or lacks facts that could not be fetched.

    The keys that waiting landmarks lack are pooled by kind until they fill a request, and each
    batch is written to the journal when it arrives.

    Attributes:
        failed_classes: Number of classes that could not be fetched.
        class_redirects: For items of redirected classes, the class to which they redirect.
        rank_labels: Labels of the ranks of classes, by item.

    Args:
        source: Source of the facts.
        facts: Facts of earlier runs, to which new facts are added.
        titles: Titles of the landmarks.
        resolved: By title, results that need no facts, with their time (milliseconds since 1970).
        statuses: Check of the statuses.
        progress: Progress of the landmarks.
        client: Client of the source.
        journal: Journal of the responses.
    """

    def __init__(
        self,
        source: Source,
        facts: FactStore,
        titles: Sequence[str],
        resolved: Mapping[str, tuple[Resolution, int]],
        statuses: StatusCheck,
        progress: Progress,
        *,
        client: WikimediaClient,
        journal: Journal,
    ) -> None:
        self.source = source
        self._facts = facts
        self._titles = titles
        self._resolved = resolved
        self._statuses = statuses
        self._progress = progress
        self._client = client
        self._journal = journal
        #: Keys to request, in order, by kind.
        self._queued: dict[str, dict[str, None]] = {kind: {} for kind in source.kinds}
        #: Requested keys by kind.
        self._in_flight: dict[str, set[str]] = {kind: set() for kind in source.kinds}
        #: Keys that could not be fetched, by kind.
        self._failed: dict[str, set[str]] = {kind: set() for kind in source.kinds}
        #: Positions of started landmarks that lack facts.
        self._waiting: list[int] = []
        self._failures_in_a_row = 0
        self.failed_classes = 0
        self.class_redirects: dict[str, str] = {}
        self.rank_labels: dict[str, str] = {}

    def collect(self, workers: int, class_depth: int) -> dict[str, ClassFact]:
        """Fetch all missing facts.

        Args:
            workers: Number of requests in flight.
            class_depth: Number of steps of superclasses to fetch.

        Returns:
            Classes of landmarks and their ancestors by item id, with superclasses after redirects.
        """
        unresolved = []
        for position, title in enumerate(self._titles):
            status = self.resolution(title)[0].status
            if status == "error":
                unresolved.append(position)
            elif title not in self._resolved:
                self._statuses.start(position)
                self._statuses.end(position, status)
        self._progress.start(len(self._titles), done=len(self._titles) - len(unresolved))
        executor = ThreadPoolExecutor(workers)
        try:
            self._fetch_all(executor, workers, unresolved)
            self._statuses.finish()
            return self._fetch_ancestors(executor, workers, class_depth)
        finally:
            self._client.close()
            executor.shutdown(wait=True, cancel_futures=True)

    def resolution(self, title: str) -> tuple[Resolution, int]:
        """Return the resolution of a title, with the status ``error`` while facts are missing.

        Returns:
            The resolution, and the time of its most recent fact (milliseconds since 1970).
        """
        if title in self._resolved:
            return self._resolved[title]
        self._facts.latest = 0
        try:
            resolution = self.source.resolve(title, self._facts)
        except MissingFactsError:
            return Resolution("error"), 1000 * int(time.time())
        return resolution, 1000 * (self._facts.latest or int(time.time()))

    def _fetch_all(
        self, executor: ThreadPoolExecutor, workers: int, landmarks: Iterable[int] = ()
    ) -> None:
        """Send batches until no key is missing.

        Args:
            executor: Executor of the requests.
            workers: Number of requests in flight.
            landmarks: Positions of the landmarks to start.
        """
        new_landmarks = iter(landmarks)
        requests: dict[Future[dict[str, Any]], tuple[str, list[str]]] = {}
        while True:
            while len(requests) < workers:
                batch = self._full_batch(new_landmarks)
                if batch is None and not requests:
                    batch = self._largest_batch()
                if batch is None:
                    break
                kind, keys = batch
                requests[executor.submit(self.source.fetch, kind, keys)] = batch
            if not requests:
                return
            for future in wait(requests, return_when=FIRST_COMPLETED).done:
                kind, keys = requests.pop(future)
                self._handle_response(future, kind, keys)

    def _full_batch(self, new_landmarks: Iterator[int]) -> tuple[str, list[str]] | None:
        """Return keys that fill a request; start landmarks while the queued keys do not."""
        while True:
            for kind in self.source.kinds:
                size = self.source.batch_size(kind)
                if len(self._queued[kind]) >= size:
                    return self._take_batch(kind, size)
            position = next(new_landmarks, None)
            if position is None:
                return None
            self._statuses.start(position)
            if not self._advance(position):
                self._waiting.append(position)

    def _largest_batch(self) -> tuple[str, list[str]] | None:
        """Return keys of the kind with the most queued keys; None without queued keys."""
        kind = max(self._queued, key=lambda kind: len(self._queued[kind]))
        if not self._queued[kind]:
            return None
        return self._take_batch(kind, self.source.batch_size(kind))

    def _take_batch(self, kind: str, size: int) -> tuple[str, list[str]]:
        keys = list(islice(self._queued[kind], size))
        for key in keys:
            del self._queued[kind][key]
        self._in_flight[kind].update(keys)
        return kind, keys

    def _handle_response(self, future: Future[dict[str, Any]], kind: str, keys: list[str]) -> None:
        """Store the facts of a batch or note its failure, then advance the waiting landmarks."""
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
        """Return whether a landmark is done; otherwise queue the keys of its missing facts."""
        try:
            status = self.source.resolve(self._titles[position], self._facts).status
        except MissingFactsError as missing:
            kind = missing.kind
            if self._failed[kind].isdisjoint(missing.keys):
                for key in missing.keys:
                    if key not in self._in_flight[kind]:
                        self._queued[kind][key] = None
                return False
        else:
            self._statuses.end(position, status)
        self._progress.advance(requests=self._client.requests, retries=self._client.retries)
        return True

    def _fetch_ancestors(
        self, executor: ThreadPoolExecutor, workers: int, depth: int
    ) -> dict[str, ClassFact]:
        """Fetch the classes of all landmarks, then their superclasses step by step."""
        kind = self.source.class_kind
        if kind is None:
            return {}
        pending = set()
        for title in self._titles:
            for value in self.resolution(title)[0].instance_of:
                if value.item is not None:
                    pending.add(value.item)
        classes: dict[str, ClassFact] = {}
        class_of_item: dict[str, str] = {}
        for _ in range(depth + 1):
            fetched = self._fetch_classes(executor, workers, kind, pending)
            pending = set()
            for item, fact in fetched.items():
                class_of_item[item] = fact.item
                classes[fact.item] = fact
                pending.update(fact.subclass_of)
            pending -= class_of_item.keys()
        ranks = set()
        for fact in classes.values():
            if fact.rank and ITEM_ID.fullmatch(fact.rank):
                ranks.add(fact.rank)
        rank_classes = self._fetch_classes(executor, workers, kind, ranks)
        self.rank_labels = {item: fact.label for item, fact in rank_classes.items()}
        self.class_redirects = {}
        for item in self._facts.keys(kind):
            target = self._facts.get(kind, item).item
            if item != target and target in classes:
                self.class_redirects[item] = target
        resolved = {}
        for item, fact in classes.items():
            parents = dict.fromkeys(
                class_of_item.get(parent, parent) for parent in fact.subclass_of
            )
            resolved[item] = fact._replace(subclass_of=tuple(parents))
        return resolved

    def _fetch_classes(
        self, executor: ThreadPoolExecutor, workers: int, kind: str, items: Collection[str]
    ) -> dict[str, ClassFact]:
        """Return classes by requested item, sorted; count classes that could not be fetched."""
        sorted_items = sorted(items)
        for item in sorted_items:
            if item not in self._facts.keys(kind):
                self._queued[kind][item] = None
        self._fetch_all(executor, workers)
        classes = {}
        for item in sorted_items:
            if item in self._facts.keys(kind):
                classes[item] = self._facts.get(kind, item)
            else:
                self.failed_classes += 1
        return classes
