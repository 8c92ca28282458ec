"""Scrape the landmarks of GLDv2's category lists into the tables ``scraped`` and ``classes``.

:func:`scrape_file` asks servers. All responses go to a journal, from which an interrupted run resumes. When nothing
is left to fetch, the tables are computed from the facts and from the rows that an earlier scrape left in the output,
and the journal is removed if no row failed.

:func:`scrape_dump` looks up the landmarks in the extract of a dump, without any request. The tables have the source
``dump`` and, as ``fetched_at``, the date of the dump: when the entity in it that changed last did so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from hgld.errors import ConfigurationError, InputError
from hgld.io.journal import Journal
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress
from hgld.tables import SPLITS, Provenance, classes_path, input_digests, is_up_to_date, read_provenance
from hgld.wikimedia.api_source import ApiSource, UpdateSource
from hgld.wikimedia.client import ClientConfig, WikimediaClient
from hgld.wikimedia.collector import FactCollector
from hgld.wikimedia.dump_extract import items_path, read_extract
from hgld.wikimedia.dump_source import DumpSource
from hgld.wikimedia.html_source import HtmlSource
from hgld.wikimedia.plausibility import (
    DUMP_ADVICE,
    StatusCheck,
    UnlikelyStatusError,
    check_allowed,
    forget_landmarks_without_value,
)
from hgld.wikimedia.scrape_files import (
    NO_SCRAPE,
    EarlierScrape,
    LandmarkCategory,
    read_categories,
    read_earlier,
    write_classes,
    write_scraped,
)
from hgld.wikimedia.source import FactStore, Source

SourceName = Literal["api", "html"]
MAX_WORKERS = 3


@dataclass(frozen=True)
class ScrapeConfig:
    """Settings of the stage ``scrape``.

    Args:
        split: Split to scrape, train or index; their landmark ids are different numbering spaces.
        source: Source: api (fifty landmarks per request) or html (one page per landmark, as in the paper).
        workers: Number of requests in flight, 1 to 3.
        class_depth: Number of steps of "subclass of" (P279) to fetch above the classes of landmarks.
        client: Addresses of the servers, and limits on requests to them.
        allow_frequent: Status in which any number of landmarks may end, where a scrape would stop
            (:data:`hgld.wikimedia.plausibility.UNLIKELY_SHARES`); repeatable.
    """

    split: str
    source: SourceName = "api"
    workers: int = 1
    class_depth: int = 10
    client: ClientConfig = field(default_factory=ClientConfig)
    allow_frequent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_landmark_settings(self.split, self.class_depth, self.allow_frequent)
        if self.source not in get_args(SourceName):
            raise ConfigurationError(f'`source` is "{self.source}"; expected api or html')
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ConfigurationError(f"`workers` is {self.workers}; expected 1 to {MAX_WORKERS}")


def _check_landmark_settings(split: str, class_depth: int, allow_frequent: Sequence[str]) -> None:
    if split not in SPLITS:
        raise ConfigurationError(f'`split` is "{split}"; expected {" or ".join(SPLITS)}')
    if class_depth < 0:
        raise ConfigurationError(f"`class_depth` is {class_depth}; expected 0 or more")
    check_allowed(allow_frequent)


@dataclass(frozen=True)
class SnapshotChanges:
    """Numbers of landmarks by what became of their results, revisions included, since the earlier scrape.

    Those that fail now are not counted, those that failed then are new, and those gone are no longer in the list.
    """

    unchanged: int
    changed: int
    new: int
    gone: int


@dataclass(frozen=True)
class ScrapeSummary:
    """Numbers of landmarks, also by status and by route, and of classes with their ancestors; cost of the run.

    Args:
        taken_over: Number of landmarks whose rows were in the output before.
        changes: What became of the landmarks of an earlier scrape; None without `update`.
        errors: Number of rows and classes that the same call would try again.
        requests: Number of requests sent, repetitions included.
        seconds: Duration of the run.
        dump_date: Date of the dump; None if servers were asked.
    """

    landmarks: int
    statuses: dict[str, int]
    routes: dict[str, int]
    classes: int
    taken_over: int = 0
    changes: SnapshotChanges | None = None
    errors: int = 0
    requests: int = 0
    retries: int = 0
    seconds: float = 0.0
    dump_date: datetime | None = None


def journal_path(scraped: Path) -> Path:
    """Return the path of the journal of an unfinished scrape."""
    return scraped.with_name(f"{scraped.name}.journal")


def scrape_file(
    categories: Path,
    out: Path,
    config: ScrapeConfig,
    *,
    update: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ScrapeSummary | None:
    """Scrape the landmarks of a category list; the same call resumes after an interruption.

    The list may change between calls, finished or not: what is known about the landmarks that stay is used, and only
    new ones and those that failed are fetched.

    Args:
        categories: GLDv2's ``*_label_to_category.csv``, with the columns landmark_id and category.
        out: Table ``scraped`` to write. The source api also writes the table ``classes`` beside it
            (:func:`hgld.tables.classes_path`). If it exists, from the same split, source and servers, landmarks
            with the same category keep their rows.
        config: What to scrape, and how.
        update: Table ``scraped`` from an earlier run, of the same split and servers and the source api, to bring up
            to date: only what has changed since is fetched. The result is that of a full scrape, with the time of the
            check in ``fetched_at`` where nothing has changed. The table stays as it is.
        force: Discard a journal and the table ``out``, and fetch everything.
        progress: Receives the number of resolved landmarks.

    Returns:
        Contents of the tables; None if ``out`` is up to date. If ``errors`` is above 0, some rows have the status
        ``error``, and the same call tries only these again.

    Raises:
        InputError: ``categories`` or ``update`` is invalid, or the journal is from another source or other servers;
            no request was sent.
        BusyError: Another run is writing ``out``.
        SourceError: The servers kept failing, or so many landmarks end in the same status that something must be
            wrong; earlier responses are in the journal.
        ConfigurationError: There is no connection to a server, it refuses this client or asks for a pause of more
            than an hour, or ``out`` or ``update`` is of another split, source or servers.
    """
    start = time.monotonic()
    landmarks = read_categories(categories)
    origin = {
        "source": config.source,
        "commons_url": config.client.commons_url,
        "wikidata_url": config.client.wikidata_url,
    }
    parameters = {"split": config.split, "class_depth": config.class_depth, **origin}
    if update is not None:
        _check_update(update, out, parameters)
    provenance = Provenance("scrape", parameters, input_digests(categories=categories, earlier=update))
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        path = journal_path(out)
        if force:
            path.unlink(missing_ok=True)
        elif is_up_to_date(out, provenance) and not path.exists():
            return None
        existing = NO_SCRAPE if force or not out.exists() else _read_output(out, provenance)
        earlier = None if update is None else read_earlier(update)
        with Journal(path, origin) as journal:
            summary = _scrape(
                landmarks, out, config, provenance, journal, existing, earlier, progress or NoProgress()
            )
        if not summary.errors:
            path.unlink()
    return replace(summary, seconds=time.monotonic() - start)


def scrape_dump(
    categories: Path,
    out: Path,
    extract: Path,
    split: str,
    *,
    class_depth: int = 10,
    allow_frequent: Sequence[str] = (),
    force: bool = False,
    progress: Progress | None = None,
) -> ScrapeSummary | None:
    """Scrape the landmarks of a category list from the extract of a dump.

    Args:
        categories: GLDv2's ``*_label_to_category.csv``, with the columns landmark_id and category.
        out: Table ``scraped`` to write, with the table ``classes`` beside it.
        extract: Folder of the complete extract (:func:`hgld.wikimedia.dump_extract.extract_dump`).
        split: Split to scrape, train or index.
        class_depth: Number of steps of "subclass of" (P279) to follow above the classes of landmarks.
        allow_frequent: Statuses that may be frequent, as in :class:`ScrapeConfig`.
        force: Write the tables even if they are up to date, or a scrape from another source.
        progress: Receives the number of resolved landmarks.

    Returns:
        Contents of the tables; None if ``out`` is up to date.

    Raises:
        InputError: ``categories`` is invalid, or the extract is not complete.
        BusyError: Another run is writing ``out``.
        SourceError: So many landmarks end in the same status that something must be wrong.
        ConfigurationError: A setting is invalid, or ``out`` is a scrape from another source.
    """
    start = time.monotonic()
    _check_landmark_settings(split, class_depth, allow_frequent)
    landmarks = read_categories(categories)
    modified = str(read_extract(extract).parameters["modified"])
    parameters = {"split": split, "class_depth": class_depth, "source": "dump", "modified": modified}
    provenance = Provenance("scrape", parameters, input_digests(categories=categories, extract=items_path(extract)))
    with exclusive_lock(out):
        if not force:
            if is_up_to_date(out, provenance):
                return None
            made = _provenance_of(out) if out.exists() else provenance
            same = {"source": "dump", "split": split}
            if made.command != "scrape" or {key: made.parameters.get(key) for key in same} != same:
                raise ConfigurationError(
                    f"{out} is not a scrape of this split from a dump; choose another output, or use `force` to "
                    "replace it"
                )
        date = datetime.fromisoformat(modified.replace("Z", "+00:00"))
        titles = [landmark.title for landmark in landmarks]
        check = StatusCheck(titles, allow_frequent, DUMP_ADVICE)
        collector = FactCollector(
            DumpSource(extract), FactStore(), titles, {}, check, progress or NoProgress(), clock=date.timestamp
        )
        summary = _write_tables(landmarks, collector, 1, class_depth, out, provenance)
    return replace(summary, seconds=time.monotonic() - start, dump_date=date)


def _check_update(update: Path, out: Path, parameters: Mapping[str, Any]) -> None:
    """Check that the table ``update`` can be brought up to date.

    Raises:
        InputError: It is no table.
        ConfigurationError: It is ``out``, or not from the APIs, or of another split or other servers.
    """
    if parameters["source"] != "api":
        raise ConfigurationError(
            "`update` needs `source` api: category pages do not name revisions; scrape them again without `update`"
        )
    if out.exists() and out.samefile(update):
        raise ConfigurationError(
            f"`update` and `out` are both {out}; choose another output, to keep the earlier scrape"
        )
    if not _is_same_scrape(read_provenance(update), parameters):
        raise ConfigurationError(
            f"`update`: {update} is not a scrape of this split, source and servers, so its revisions say nothing"
        )


def _read_output(out: Path, provenance: Provenance) -> EarlierScrape:
    """Return the scrape in ``out``, whose rows can be taken over.

    Raises:
        ConfigurationError: It is of another split, source or servers, an update of another table, or no scrape.
    """
    existing = _provenance_of(out)
    # A full scrape may use the rows of an update, but an update not those of a scrape that may be old.
    updated = provenance.inputs.get("earlier")
    if not _is_same_scrape(existing, provenance.parameters) or updated not in (None, existing.inputs.get("earlier")):
        raise ConfigurationError(
            f"{out} is not {'an update of this table' if updated else 'a scrape'} of this split, source and servers; "
            "choose another output, or use `force` to replace it"
        )
    return read_earlier(out)


def _provenance_of(out: Path) -> Provenance:
    """Return how a file was made; an empty provenance if it is no table of hgld."""
    try:
        return read_provenance(out)
    except InputError:
        return Provenance("")


def _is_same_scrape(made: Provenance, parameters: Mapping[str, Any]) -> bool:
    """Return whether a table is a scrape of the same split, source and servers; the depth of classes may differ."""
    return made.command == "scrape" and {**made.parameters, "class_depth": parameters["class_depth"]} == parameters


def _scrape(
    landmarks: Sequence[LandmarkCategory],
    out: Path,
    config: ScrapeConfig,
    provenance: Provenance,
    journal: Journal,
    existing: EarlierScrape,
    earlier: EarlierScrape | None,
    progress: Progress,
) -> ScrapeSummary:
    client = WikimediaClient(config.client)
    source: Source = HtmlSource(client) if config.source == "html" else ApiSource(client)
    if earlier is not None:
        source = UpdateSource(client, earlier)
    titles = [landmark.title for landmark in landmarks]
    facts = FactStore()
    if source.class_kind is not None:
        facts.add(source.class_kind, existing.classes, 0)
        facts.add(source.class_kind, {item: existing.classes[goal] for item, goal in existing.redirects.items()}, 0)
    for kind, at, batch in journal.batches(source.from_json):  # the facts that earlier runs received
        facts.add(kind, batch, at)
    check = StatusCheck(titles, config.allow_frequent)
    collector = FactCollector(source, facts, titles, existing.rows, check, progress, client=client, journal=journal)
    try:
        summary = _write_tables(landmarks, collector, config.workers, config.class_depth, out, provenance)
    except UnlikelyStatusError:
        forget_landmarks_without_value(titles, source, facts, journal)
        raise
    return replace(
        summary,
        taken_over=sum(title in existing.rows for title in titles),
        changes=None if earlier is None else _compare(earlier, titles, collector),
        errors=summary.statuses.get("error", 0) + collector.failed_classes,
        requests=client.requests,
        retries=client.retries,
    )


def _write_tables(
    landmarks: Sequence[LandmarkCategory],
    collector: FactCollector,
    workers: int,
    class_depth: int,
    out: Path,
    provenance: Provenance,
) -> ScrapeSummary:
    """Collect what is missing, and write both tables."""
    classes = collector.collect(workers, class_depth)
    if collector.source.class_kind is not None:
        write_classes(classes, collector.class_redirects, classes_path(out), provenance)
    statuses, routes = write_scraped(landmarks, collector.resolution, out, provenance)
    return ScrapeSummary(len(landmarks), statuses, routes, len(classes))


def _compare(earlier: EarlierScrape, titles: Sequence[str], collector: FactCollector) -> SnapshotChanges:
    counts: Counter[str] = Counter()
    for title in titles:
        now, _ = collector.resolution(title)
        if title not in earlier.rows:
            counts["new"] += 1
        elif now.status != "error":
            counts["unchanged" if now == earlier.rows[title][0] else "changed"] += 1
    listed = set(titles)
    gone = sum(title not in listed for title in earlier.titles)
    return SnapshotChanges(counts["unchanged"], counts["changed"], counts["new"], gone)
