"""From GLDv2's list of categories to the tables ``scraped`` and ``classes``.

:class:`_Run` drives a source: landmarks wait for facts, keys of one kind are pooled over all landmarks until they
fill a request, every answered batch goes to the journal, and a batch that was given up turns the landmarks
that need it into ``error`` rows. When nothing is left to ask, the tables are computed from the facts. An
interrupted run goes on from the journal, which is removed when every row has its answer.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from hgld.errors import ConfigurationError, SourceError
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress
from hgld.tables import CLASSES, SCRAPED, SPLITS, Provenance, classes_path, input_digests, is_up_to_date, write_table
from hgld.wikimedia.api_source import ApiSource
from hgld.wikimedia.categories import Landmark, read_categories
from hgld.wikimedia.client import Client, ClientConfig
from hgld.wikimedia.html_source import HtmlSource
from hgld.wikimedia.journal import Journal
from hgld.wikimedia.source import Answer, ClassFact, Facts, MissingFactsError, Source

log = logging.getLogger(__name__)

SourceName = Literal["api", "html"]
MOST_WORKERS = 3
#: So many batches given up in a row mean that the server is down, not that they are bad.
_GIVEN_UP_IN_A_ROW = 10
_ROWS_AT_A_TIME = 5_000


@dataclass(frozen=True)
class ScrapeConfig:
    """What to scrape, and how.

    Args:
        split: train or index; landmark ids of the two are different numbering spaces.
        source: api (fifty landmarks a request) or html (one page a landmark, as the paper did).
        workers: requests under way at once.
        class_depth: how many steps of "subclass of" (P279) are fetched above the classes that landmarks have.
        client: servers and manners.
    """

    split: str
    source: SourceName = "api"
    workers: int = 1
    class_depth: int = 10
    client: ClientConfig = field(default_factory=ClientConfig)

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigurationError(f'the split is "{self.split}"; expected {" or ".join(SPLITS)}')
        if self.source not in get_args(SourceName):
            raise ConfigurationError(f'the source is "{self.source}"; expected api or html')
        if not 1 <= self.workers <= MOST_WORKERS:
            raise ConfigurationError(f"{self.workers} workers; expected 1 to {MOST_WORKERS}")
        if self.class_depth < 0:
            raise ConfigurationError(f"a class depth of {self.class_depth}; expected 0 or more")


@dataclass(frozen=True)
class ScrapeSummary:
    """What came out; ``errors`` counts the rows and classes that the same command would try again."""

    landmarks: int
    statuses: dict[str, int]
    routes: dict[str, int]
    classes: int
    errors: int
    requests: int
    retries: int
    seconds: float

    def __str__(self) -> str:
        per_landmark = f" ({self.requests / self.landmarks:.4f} a landmark)"
        lines = [
            f"{self.landmarks:,} landmarks, {self.classes:,} classes and superclasses; "
            f"{self.requests:,} requests{per_landmark}, {self.retries:,} of them repeated, "
            f"{self.seconds:.1f} s",
        ]
        wide = max(map(len, (*self.statuses, *self.routes)))
        for title, counts in (("status", self.statuses), ("route", self.routes)):
            lines.append(f"{title:<{wide}}   landmarks")
            for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
                lines.append(f"  {name:<{wide}}{count:>10,} {count / self.landmarks:>8.2%}")
        return "\n".join(lines)


def journal_path(scraped: Path) -> Path:
    """Where the journal of an unfinished scrape is."""
    return scraped.with_name(f"{scraped.name}.journal")


def scrape_file(
    categories: Path,
    out: Path,
    config: ScrapeConfig,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> ScrapeSummary | None:
    """Scrape the landmarks of GLDv2's ``*_label_to_category.csv`` into ``out`` and its table of classes.

    Args:
        categories: columns landmark_id and category.
        out: the table ``scraped``; with the source api the table ``classes`` goes beside it (``classes_path``).
        config: what to scrape, and how.
        force: begin anew, dropping a journal and replacing a table of another scrape.
        progress: told of every landmark that has its answer.

    Returns:
        What came out, or None when ``out`` is up to date. ``errors`` above 0 means that rows have the status
        ``error`` and that the same call again tries just those.

    Raises:
        InputError: ``categories`` is not what it should be, or the journal belongs to another scrape; nothing was
            asked of any server.
        BusyError: another run is writing ``out``.
        SourceError: the servers are out of reach; what was answered is in the journal.
        ConfigurationError: a server refuses this client, or ``out`` holds the result of another scrape.
    """
    landmarks = read_categories(categories)
    scrape = {
        "split": config.split,
        "source": config.source,
        "class_depth": config.class_depth,
        "commons_url": config.client.commons_url,
        "wikidata_url": config.client.wikidata_url,
    }
    provenance = Provenance("scrape", scrape, input_digests(categories=categories))
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        journal = journal_path(out)
        if force:
            journal.unlink(missing_ok=True)
        elif is_up_to_date(out, provenance):
            if not journal.exists():
                return None
        elif out.exists():
            raise ConfigurationError(
                f"{out} holds another scrape (other input, split, source or servers); choose another output, or "
                "use --force to replace it"
            )
        with Journal(journal, {**scrape, **provenance.inputs}) as answered:
            summary = _scrape(landmarks, out, config, provenance, answered, progress or NoProgress())
        if not summary.errors:
            journal.unlink()
    return summary


def _scrape(
    landmarks: Sequence[Landmark],
    out: Path,
    config: ScrapeConfig,
    provenance: Provenance,
    journal: Journal,
    progress: Progress,
) -> ScrapeSummary:
    began = time.monotonic()
    client = Client(config.client)
    source: Source = ApiSource(client) if config.source == "api" else HtmlSource(client)
    facts = Facts()
    for kind, at, batch in journal.batches():
        facts.add(kind, {key: source.restore(kind, fact) for key, fact in batch.items()}, at)
    run = _Run(source, client, facts, journal, [landmark.title for landmark in landmarks], progress)
    met = run.finish(config.workers, config.class_depth)
    if source.class_kind is not None:
        classes = [met[item]._asdict() for item in sorted(met)]
        write_table(classes_path(out), CLASSES, pa.Table.from_pylist(classes, CLASSES.schema), provenance)
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(landmarks), _ROWS_AT_A_TIME):
            rows = []
            for landmark in landmarks[start : start + _ROWS_AT_A_TIME]:
                answer, at = run.answer(landmark.title)
                statuses[answer.status] += 1
                routes[answer.route or "none"] += 1
                rows.append(_row(landmark, answer, at, config))
            yield pa.RecordBatch.from_pylist(rows, SCRAPED.schema)

    write_table(out, SCRAPED, batches(), provenance)
    return ScrapeSummary(
        landmarks=len(landmarks),
        statuses=dict(statuses),
        routes=dict(routes),
        classes=len(met),
        errors=statuses["error"] + run.failed_classes,
        requests=client.requests,
        retries=client.retries,
        seconds=time.monotonic() - began,
    )


def _row(landmark: Landmark, answer: Answer, at: int, config: ScrapeConfig) -> dict[str, Any]:
    return {
        "split": config.split,
        "landmark_id": landmark.landmark_id,
        "category": landmark.category,
        "title": landmark.title,
        **answer._asdict(),
        "instance_of": [value._asdict() for value in answer.instance_of],
        "source": config.source,
        "fetched_at": 1000 * at,
    }


class _Run:
    """Asks a source until every landmark has its answer or waits for a batch that was given up."""

    def __init__(
        self,
        source: Source,
        client: Client,
        facts: Facts,
        journal: Journal,
        titles: Sequence[str],
        progress: Progress,
    ) -> None:
        self._source, self._client, self._facts, self._journal = source, client, facts, journal
        self._titles, self._progress = titles, progress
        #: By kind: the keys to ask for, and the landmarks (by position) that wait for each.
        self._queued: dict[str, dict[str, list[int]]] = {kind: {} for kind in source.kinds}
        #: Those of them that are in a request under way.
        self._asked: dict[str, dict[str, list[int]]] = {kind: {} for kind in source.kinds}
        self._failed: dict[str, set[str]] = {kind: set() for kind in source.kinds}
        self._given_up_in_a_row = 0
        self.failed_classes = 0

    def finish(self, workers: int, class_depth: int) -> dict[str, ClassFact]:
        """Ask for everything; returns the classes met and their ancestors, by item."""
        open_landmarks = [n for n, title in enumerate(self._titles) if self.answer(title)[0].status == "error"]
        self._progress.start(len(self._titles), done=len(self._titles) - len(open_landmarks))
        executor = ThreadPoolExecutor(workers)
        try:
            self._ask_all(executor, workers, iter(open_landmarks))
            return self._ask_ancestors(executor, workers, class_depth)
        finally:
            self._client.close()
            executor.shutdown(wait=True, cancel_futures=True)

    def answer(self, title: str) -> tuple[Answer, int]:
        """The answer for a title and the time of the latest fact in it (seconds since 1970).

        The status is ``error`` as long as facts are missing.
        """
        self._facts.latest = 0
        try:
            return self._source.resolve(title, self._facts), self._facts.latest or int(time.time())
        except MissingFactsError:
            return Answer("error"), int(time.time())

    def _ask_all(self, executor: ThreadPoolExecutor, workers: int, landmarks: Iterator[int]) -> None:
        under_way: dict[Future[dict[str, Any]], tuple[str, list[str]]] = {}
        while True:
            while len(under_way) < workers:
                batch = self._full_batch(landmarks) or (None if under_way else self._largest_batch())
                if batch is None:
                    break
                under_way[executor.submit(self._source.ask, *batch)] = batch
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                self._settle(future, *under_way.pop(future))

    def _full_batch(self, landmarks: Iterator[int]) -> tuple[str, list[str]] | None:
        """Keys that fill a request; new landmarks are begun only when no older one can be moved on."""
        size = self._source.batch_size()
        while True:
            for kind in self._source.kinds:
                if len(self._queued[kind]) >= size:
                    return self._take(kind, size)
            position = next(landmarks, None)
            if position is None:
                return None
            self._move_on(position)

    def _largest_batch(self) -> tuple[str, list[str]] | None:
        kind = max(self._queued, key=lambda kind: len(self._queued[kind]))
        return self._take(kind, self._source.batch_size()) if self._queued[kind] else None

    def _take(self, kind: str, size: int) -> tuple[str, list[str]]:
        queued = self._queued[kind]
        keys = [key for key, _ in zip(queued, range(size), strict=False)]
        self._asked[kind].update((key, queued.pop(key)) for key in keys)
        return kind, keys

    def _settle(self, future: Future[dict[str, Any]], kind: str, keys: list[str]) -> None:
        """Take in the outcome of a batch, and move on the landmarks that waited for it."""
        try:
            batch = future.result()
        except SourceError as error:
            self._failed[kind].update(keys)
            self._given_up_in_a_row += 1
            log.warning("%d %s facts were given up: %s", len(keys), kind, error)
            if self._given_up_in_a_row == _GIVEN_UP_IN_A_ROW:
                raise SourceError(
                    f"{_GIVEN_UP_IN_A_ROW} batches in a row were given up, the last one: {error}. What was answered "
                    "before is kept; run the same command again when the servers are in reach"
                ) from error
        else:
            at = int(time.time())
            self._given_up_in_a_row = 0
            self._journal.append(kind, at, batch)
            self._facts.add(kind, batch, at)
        for key in keys:
            for position in self._asked[kind].pop(key):
                self._move_on(position)

    def _move_on(self, position: int) -> None:
        """Resolve a landmark, or let it wait for the facts that it lacks."""
        try:
            self._source.resolve(self._titles[position], self._facts)
        except MissingFactsError as missing:
            kind, keys = missing.kind, missing.keys
            if self._failed[kind].isdisjoint(keys):
                for key in keys:
                    if key not in self._asked[kind]:
                        self._queued[kind].setdefault(key, [])
                waiting = self._asked[kind] if keys[0] in self._asked[kind] else self._queued[kind]
                waiting[keys[0]].append(position)
                return
        self._progress.advance(requests=self._client.requests, retries=self._client.retries)

    def _ask_ancestors(self, executor: ThreadPoolExecutor, workers: int, depth: int) -> dict[str, ClassFact]:
        kind = self._source.class_kind
        if kind is None:
            return {}
        met: dict[str, ClassFact] = {}
        newest = [value.item for title in self._titles for value in self.answer(title)[0].instance_of]
        for steps in range(depth + 1):
            wanted = {item for item in newest if item is not None and item not in met}
            self._queued[kind] = {item: [] for item in sorted(wanted) if not self._facts.known(kind, item)}
            self._ask_all(executor, workers, iter(()))
            known: list[ClassFact] = [
                self._facts.get(kind, item) for item in sorted(wanted) if self._facts.known(kind, item)
            ]
            self.failed_classes += len(wanted) - len(known)
            met |= {fact.item: fact for fact in known}
            newest = [parent for fact in known for parent in fact.subclass_of] if steps < depth else []
        return met
