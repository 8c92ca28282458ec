"""Scrape the landmarks of GLDv2's category lists into the tables ``scraped`` and ``classes``.

All responses go to a journal, from which an interrupted run resumes. When nothing is left to fetch, the tables are
computed from the facts, and the journal is removed if no row failed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress
from hgld.tables import CLASSES, SCRAPED, SPLITS, Provenance, classes_path, input_digests, is_up_to_date, write_table
from hgld.wikimedia.api_source import ApiSource
from hgld.wikimedia.categories import LandmarkCategory, read_categories
from hgld.wikimedia.client import ClientConfig, WikimediaClient
from hgld.wikimedia.collector import FactCollector
from hgld.wikimedia.html_source import HtmlSource
from hgld.wikimedia.journal import Journal
from hgld.wikimedia.source import ClassFact, FactStore, Resolution, Source

SourceName = Literal["api", "html"]
MAX_WORKERS = 3
_ROWS_PER_BATCH = 5_000


@dataclass(frozen=True)
class ScrapeConfig:
    """Settings of the stage ``scrape``.

    Args:
        split: Split to scrape, train or index; their landmark ids are different numbering spaces.
        source: Source: api (fifty landmarks per request) or html (one page per landmark, as in the paper).
        workers: Number of requests in flight, 1 to 3.
        class_depth: Number of steps of "subclass of" (P279) to fetch above the classes of landmarks.
        client: Addresses of the servers, and limits on requests to them.
    """

    split: str
    source: SourceName = "api"
    workers: int = 1
    class_depth: int = 10
    client: ClientConfig = field(default_factory=ClientConfig)

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigurationError(f'`split` is "{self.split}"; expected {" or ".join(SPLITS)}')
        if self.source not in get_args(SourceName):
            raise ConfigurationError(f'`source` is "{self.source}"; expected api or html')
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ConfigurationError(f"`workers` is {self.workers}; expected 1 to {MAX_WORKERS}")
        if self.class_depth < 0:
            raise ConfigurationError(f"`class_depth` is {self.class_depth}; expected 0 or more")


@dataclass(frozen=True)
class ScrapeSummary:
    """Contents of the tables and cost of the run.

    Args:
        landmarks: Number of landmarks.
        statuses: Number of landmarks by status.
        routes: Number of landmarks by route.
        classes: Number of classes, ancestors included.
        errors: Number of rows and classes that the same call would try again.
        requests: Number of requests sent, repetitions included.
        retries: Number of repetitions.
        seconds: Duration of the run.
    """

    landmarks: int
    statuses: dict[str, int]
    routes: dict[str, int]
    classes: int
    errors: int
    requests: int
    retries: int
    seconds: float


def journal_path(scraped: Path) -> Path:
    """Return the path of the journal of an unfinished scrape."""
    return scraped.with_name(f"{scraped.name}.journal")


def scrape_file(
    categories: Path,
    out: Path,
    config: ScrapeConfig,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> ScrapeSummary | None:
    """Scrape the landmarks of a category list; the same call resumes after an interruption.

    Args:
        categories: GLDv2's ``*_label_to_category.csv``, with the columns landmark_id and category.
        out: Table ``scraped`` to write. The source api also writes the table ``classes`` beside it
            (:func:`hgld.tables.classes_path`).
        config: What to scrape, and how.
        force: Discard a journal, and replace the table of another scrape.
        progress: Receives the number of resolved landmarks.

    Returns:
        Contents of the tables; None if ``out`` is up to date. If ``errors`` is above 0, some rows have the status
        ``error``, and the same call tries only these again.

    Raises:
        InputError: ``categories`` is invalid, or the journal belongs to another scrape; no request was sent.
        BusyError: Another run is writing ``out``.
        SourceError: The servers cannot be reached; earlier responses are in the journal.
        ConfigurationError: A server refuses this client, or ``out`` holds another scrape.
    """
    landmarks = read_categories(categories)
    settings = {
        "split": config.split,
        "source": config.source,
        "class_depth": config.class_depth,
        "commons_url": config.client.commons_url,
        "wikidata_url": config.client.wikidata_url,
    }
    provenance = Provenance("scrape", settings, input_digests(categories=categories))
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        path = journal_path(out)
        if force:
            path.unlink(missing_ok=True)
        elif is_up_to_date(out, provenance):
            if not path.exists():
                return None
        elif out.exists():
            raise ConfigurationError(
                f"{out} holds another scrape (other input, split, source or servers); choose another output, or "
                "use `force` to replace it"
            )
        with Journal(path, {**settings, **provenance.inputs}) as journal:
            summary = _scrape(landmarks, out, config, provenance, journal, progress or NoProgress())
        if not summary.errors:
            path.unlink()
    return summary


def _scrape(
    landmarks: Sequence[LandmarkCategory],
    out: Path,
    config: ScrapeConfig,
    provenance: Provenance,
    journal: Journal,
    progress: Progress,
) -> ScrapeSummary:
    start = time.monotonic()
    client = WikimediaClient(config.client)
    source: Source = ApiSource(client) if config.source == "api" else HtmlSource(client)
    titles = [landmark.title for landmark in landmarks]
    collector = FactCollector(source, client, _replay(journal, source), journal, titles, progress)
    classes = collector.collect(config.workers, config.class_depth)
    if source.class_kind is not None:
        _write_classes(classes, classes_path(out), provenance)
    statuses, routes = _write_scraped(landmarks, collector, out, config, provenance)
    return ScrapeSummary(
        landmarks=len(landmarks),
        statuses=dict(statuses),
        routes=dict(routes),
        classes=len(classes),
        errors=statuses["error"] + collector.failed_classes,
        requests=client.requests,
        retries=client.retries,
        seconds=time.monotonic() - start,
    )


def _replay(journal: Journal, source: Source) -> FactStore:
    """Return the facts that earlier runs received."""
    facts = FactStore()
    for kind, at, batch in journal.batches():
        facts.add(kind, {key: source.from_json(kind, fact) for key, fact in batch.items()}, at)
    return facts


def _write_classes(classes: dict[str, ClassFact], path: Path, provenance: Provenance) -> None:
    rows = [classes[item]._asdict() for item in sorted(classes)]
    write_table(path, CLASSES, pa.Table.from_pylist(rows, CLASSES.schema), provenance)


def _write_scraped(
    landmarks: Sequence[LandmarkCategory],
    collector: FactCollector,
    path: Path,
    config: ScrapeConfig,
    provenance: Provenance,
) -> tuple[Counter[str], Counter[str]]:
    """Write the table ``scraped``; return the numbers of landmarks by status and by route."""
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(landmarks), _ROWS_PER_BATCH):
            rows = []
            for landmark in landmarks[start : start + _ROWS_PER_BATCH]:
                resolution, at = collector.resolution(landmark.title)
                statuses[resolution.status] += 1
                routes[resolution.route or "none"] += 1
                rows.append(_row(landmark, resolution, at, config))
            yield pa.RecordBatch.from_pylist(rows, SCRAPED.schema)

    write_table(path, SCRAPED, batches(), provenance)
    return statuses, routes


def _row(landmark: LandmarkCategory, resolution: Resolution, at: int, config: ScrapeConfig) -> dict[str, Any]:
    return {
        "split": config.split,
        "landmark_id": landmark.landmark_id,
        "category": landmark.category,
        "title": landmark.title,
        **resolution._asdict(),
        "instance_of": [value._asdict() for value in resolution.instance_of],
        "source": config.source,
        "fetched_at": 1000 * at,
    }
