"""Scrape GLDv2's category lists, and lists of other entities, into the tables ``scraped`` and ``classes``.

All responses go to a journal, from which an interrupted run resumes. When nothing is left to fetch, the tables are
computed from the facts and from the rows that an earlier scrape left in the output, and the journal is removed if no
row failed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import column_names
from hgld.io.files import exclusive_lock
from hgld.io.journal import Journal
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, classes_path, input_digests, is_up_to_date, read_provenance
from hgld.tables.column_values import ScrapeStatus
from hgld.wikimedia.api_facts import PropertyEntity, PropertyError, Query
from hgld.wikimedia.api_source import ApiSource, read_properties
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.html_source import HEADER, HtmlSource
from hgld.wikimedia.scrape_files import (
    NO_SCRAPE,
    EarlierScrape,
    LandmarkCategory,
    read_categories,
    read_earlier,
    read_list,
    write_classes,
    write_scraped,
)
from hgld.wikimedia.settings import ClientConfig, ScrapeConfig
from hgld.wikimedia.source import (
    FactCollector,
    FactStore,
    StatusCheck,
    UnlikelyStatusError,
    forget_landmarks_without_value,
)


@dataclass(frozen=True)
class ScrapeSummary:
    """Numbers of landmarks, also by status and by route, and of classes with their ancestors; cost of the run.

    Args:
        taken_over: Number of landmarks whose rows were in the output before.
        unlabelled: Items of classes of landmarks that have no label in the languages asked for.
        errors: Number of rows and classes that the same call would try again.
        requests: Number of requests sent, repetitions included.
    """

    landmarks: int
    statuses: dict[str, int]
    routes: dict[str, int]
    classes: int
    unlabelled: tuple[str, ...]
    taken_over: int
    errors: int
    requests: int
    retries: int
    seconds: float = 0.0


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

    The list may change between calls, finished or not: what is known about the landmarks that stay is used, and only
    new ones and those that failed are fetched.

    Args:
        categories: GLDv2's ``*_label_to_category.csv``, with the columns landmark_id and category; or a CSV or
            Parquet file with the columns that ``config`` names.
        out: Table ``scraped`` to write. The source api also writes the table ``classes`` beside it
            (:func:`hgld.tables.classes_path`). If it exists, from the same split, source and servers, landmarks
            with the same category keep their rows.
        force: Discard a journal and the table ``out``, and fetch everything.

    Returns:
        Contents of the tables; None if ``out`` is up to date. If ``errors`` is above 0, some rows have the status
        ``error``, and the same call tries only these again.

    Raises:
        InputError: ``categories`` is invalid, or the journal from elsewhere; no request was sent.
        SourceError: The servers kept failing, or so many landmarks end in the same status that something must be
            wrong; earlier responses are in the journal.
        PropertyError: A property does not exist, or its values are not items.
        ConfigurationError: A server cannot be reached or refuses this client, or ``out`` is of another split, source
            or servers.
    """
    start = time.monotonic()
    settings, config = config.client or ClientConfig(), with_entity_column(config, categories)
    landmarks = _read(config, categories)
    origin = {
        "source": config.source,
        "commons_url": settings.commons_url,
        "wikidata_url": settings.wikidata_url,
    }
    parameters = {**config.parameters(), **origin}
    if config.id is not None:
        origin |= {name: parameters[name] for name in ("property_id", "parents", "languages")}
    provenance = Provenance("scrape", parameters, input_digests(categories=categories))
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        path = journal_path(out)
        if force:
            path.unlink(missing_ok=True)
        elif is_up_to_date(out, provenance) and not path.exists():
            return None
        existing = NO_SCRAPE if force or not out.exists() else _read_output(out, parameters)
        client = WikimediaClient(settings)
        properties = _read_properties(client, config)
        try:
            with Journal(path, origin) as journal:
                summary = _scrape(
                    landmarks,
                    out,
                    config,
                    provenance,
                    client,
                    properties,
                    journal,
                    existing,
                    progress or NoProgress(),
                )
        except PropertyError:
            path.unlink()  # or it would be in the way of the right property
            raise
        if not summary.errors:
            path.unlink()
    return replace(summary, seconds=time.monotonic() - start)


def _read_output(out: Path, parameters: Mapping[str, Any]) -> EarlierScrape:
    """Return the scrape in ``out``, whose rows can be taken over."""
    try:
        made = read_provenance(out)
    except InputError:  # not a table of hgld
        made = Provenance("")
    # The depth of classes may differ.
    if (
        made.command != "scrape"
        or {**made.parameters, "class_depth": parameters["class_depth"]} != parameters
    ):
        raise ConfigurationError(
            f"{out} is not a scrape of this split, source and servers; choose another output, or use `force` to "
            "replace it"
        )
    return read_earlier(out)


def _scrape(
    landmarks: Sequence[LandmarkCategory],
    out: Path,
    config: ScrapeConfig,
    provenance: Provenance,
    client: WikimediaClient,
    properties: Mapping[str, PropertyEntity],
    journal: Journal,
    existing: EarlierScrape,
    progress: Progress,
) -> ScrapeSummary:
    query = _query(config)
    source: ApiSource | HtmlSource
    if config.source == "html":
        header = (
            properties[query.property_id].labels["en"].value
            if query.property_id in properties
            else HEADER
        )
        source = HtmlSource(client, header, query)
    else:
        source = ApiSource(client, query)
    titles = [landmark.title for landmark in landmarks]
    facts = FactStore()
    if source.class_kind is not None:
        facts.add(source.class_kind, existing.classes, 0)
        facts.add(
            source.class_kind,
            {item: existing.classes[goal] for item, goal in existing.redirects.items()},
            0,
        )
    for kind, at, batch in journal.batches(
        source.from_json
    ):  # the facts that earlier runs received
        facts.add(kind, batch, at)
    check = StatusCheck(titles, config.allow_frequent, config.noun)
    collector = FactCollector(
        source, facts, titles, existing.rows, check, progress, client=client, journal=journal
    )
    unknown = [name for name, entity in properties.items() if entity.datatype is None]
    try:
        statuses, routes, n_classes = _write_tables(
            landmarks, collector, config, out, provenance, unknown
        )
    except UnlikelyStatusError as error:
        if error.status == "no_value" and config.property_id in unknown:
            raise _unknown_property(config.property_id) from None
        forget_landmarks_without_value(titles, source, facts, journal)
        raise
    unlabelled: set[str] = set()
    for title in titles:
        values = collector.resolution(title)[0].instance_of
        unlabelled.update(value.label for value in values if value.label == value.item)
    return ScrapeSummary(
        landmarks=len(landmarks),
        statuses=statuses,
        routes=routes,
        classes=n_classes,
        unlabelled=tuple(sorted(unlabelled)),
        taken_over=sum(title in existing.rows for title in titles),
        errors=statuses.get("error", 0) + collector.failed_classes,
        requests=client.requests,
        retries=client.retries,
    )


def _read_properties(client: WikimediaClient, config: ScrapeConfig) -> dict[str, PropertyEntity]:
    """Return the properties other than P31 and P279 that are asked for."""
    names = {config.property_id, config.parents} - {Query.property_id, Query.parents}
    properties = read_properties(client, sorted(names)) if names else {}
    for name, entity in properties.items():
        if config.source == "html" and "en" not in entity.labels:
            raise ConfigurationError(
                f"`source` html finds values below the English label of their property, and {name} has none; use api"
            )
    return properties


def _unknown_property(name: str) -> PropertyError:
    return PropertyError(f"{name}: there is no such property, and no item has values of it")


def _write_tables(
    landmarks: Sequence[LandmarkCategory],
    collector: FactCollector,
    config: ScrapeConfig,
    out: Path,
    provenance: Provenance,
    unknown: Sequence[str],
) -> tuple[dict[str, int], dict[str, int], int]:
    """Collect what is missing, and write both tables.

    Args:
        unknown: Properties that do not seem to exist.

    Returns:
        Numbers of landmarks by status and by route, and the number of classes.
    """
    classes, query = collector.collect(config.workers, config.class_depth), _query(config)
    values = (collector.resolution(landmark.title)[0].instance_of for landmark in landmarks)
    if query.property_id in unknown and not any(values):
        raise _unknown_property(query.property_id)
    if query.parents in unknown and not any(fact.subclass_of for fact in classes.values()):
        raise _unknown_property(query.parents)
    if collector.source.class_kind is not None:
        ranks = collector.rank_labels if query.ranks else None
        write_classes(classes, collector.class_redirects, classes_path(out), provenance, ranks)
    statuses, routes = write_scraped(
        landmarks, collector.resolution, out, provenance, neutral=config.id is not None
    )
    return statuses, routes, len(classes)


def with_entity_column(config: ScrapeConfig, path: Path) -> ScrapeConfig:
    """Return settings with the column of a list that names items or categories, where they name none."""
    if config.id is None or config.item or config.category:
        return config
    names = column_names(path)
    if "item" in names:
        return replace(config, item="item")
    if "category" in names:
        return replace(config, category="category")
    raise InputError(
        f"{path}: no column item and no column category; found {', '.join(names)}; name the column of entities "
        "on Wikidata in `item`, or on Commons in `category`"
    )


def _read(config: ScrapeConfig, path: Path) -> list[LandmarkCategory]:
    """Read a list."""
    if config.id is None:
        return read_categories(path)
    return read_list(
        path, config.id, item=config.item, category=config.category, split=config.split_column
    )


def _query(config: ScrapeConfig) -> Query:
    """Return what is asked about items."""
    no_value: ScrapeStatus = "no_instance_of" if config.id is None else "no_value"
    return Query(config.property_id, config.parents, tuple(config.languages.split(",")), no_value)
