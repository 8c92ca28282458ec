"""The stage ``scrape``: look up the "instance of" values of landmarks or other entities.

All responses go to a journal, from which an interrupted run resumes. When all facts have been
fetched, the tables are computed from the facts and from the rows of an earlier scrape in the
output. The journal is removed if no row failed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import column_names
from hgld.io.journal import Journal
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress
from hgld.tables import Provenance, classes_path, input_digests, is_up_to_date, read_provenance
from hgld.tables.column_values import ScrapeStatus
from hgld.wikimedia.api_documents import PropertyEntity, PropertyError
from hgld.wikimedia.api_facts import RequestedProperties
from hgld.wikimedia.api_source import ApiSource, read_properties
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.fact_collector import FactCollector
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
from hgld.wikimedia.source import FactStore
from hgld.wikimedia.status_check import (
    StatusCheck,
    UnlikelyStatusError,
    forget_landmarks_without_value,
)


@dataclass(frozen=True)
class ScrapeSummary:
    """Numbers of landmarks and classes, and the cost of the run.

    Args:
        landmarks: Number of landmarks.
        statuses: Number of landmarks by status.
        routes: Number of landmarks by route.
        classes: Number of classes and their ancestors.
        unlabelled: Items of classes of landmarks without a label in the requested languages.
        taken_over: Number of landmarks whose rows come from an earlier scrape in the output.
        errors: Number of rows and classes that the same call would try again.
        requests: Number of requests sent, including retries.
        retries: Number of retries.
        seconds: Duration of the run.
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

    The list may change between calls, also between unfinished ones: results of landmarks that are
    still in the list are used, and only new and failed landmarks are fetched.

    Args:
        categories: GLDv2's ``*_label_to_category.csv``, with the columns landmark_id and category;
            or a CSV or Parquet file with the columns that ``config`` names.
        out: Table ``scraped`` to write. The source api also writes the table ``classes`` beside it
            (:func:`hgld.tables.classes_path`). If it exists, from the same split, source and
            servers, landmarks with the same category keep their rows.
        config: Settings of the scrape.
        force: Discard a journal and the table ``out``, and fetch all landmarks.
        progress: Progress of the landmarks.

    Returns:
        Contents of the tables; None if ``out`` is up to date. If ``errors`` is above 0, some rows
        have the status ``error``, and the same call only tries these rows again.

    Raises:
        InputError: ``categories`` is invalid, or the journal is from another scrape; no request was
            sent.
        SourceError: The servers kept failing, or implausibly many landmarks end in the same status;
            earlier responses are in the journal.
        PropertyError: A property does not exist, or its values are not items.
        ConfigurationError: A server cannot be reached or refuses this client, or ``out`` is from
            another split, source or servers.
    """
    start = time.monotonic()
    client_config = config.client or ClientConfig()
    config = with_entity_column(config, categories)
    landmarks = _read_landmarks(config, categories)
    origin = {
        "source": config.source,
        "commons_url": client_config.commons_url,
        "wikidata_url": client_config.wikidata_url,
    }
    parameters = {**config.parameters(), **origin}
    if config.id is not None:
        origin["property_id"] = config.property_id
        origin["parents"] = config.parents
        origin["languages"] = config.languages
    provenance = Provenance("scrape", parameters, input_digests(categories=categories))
    out.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out):
        path = journal_path(out)
        if force:
            path.unlink(missing_ok=True)
        elif is_up_to_date(out, provenance) and not path.exists():
            return None
        existing = NO_SCRAPE
        if out.exists() and not force:
            existing = _read_output(out, parameters)
        client = WikimediaClient(client_config)
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
            path.unlink()  # a run with another property would refuse the journal
            raise
        if not summary.errors:
            path.unlink()
    return replace(summary, seconds=time.monotonic() - start)


def _read_output(out: Path, parameters: Mapping[str, Any]) -> EarlierScrape:
    """Return the earlier scrape in ``out``.

    Raises:
        ConfigurationError: ``out`` has other parameters; the depth of classes may differ.
    """
    try:
        provenance = read_provenance(out)
    except InputError:  # not a table of hgld
        provenance = Provenance("")
    output_parameters = {**provenance.parameters, "class_depth": parameters["class_depth"]}
    if provenance.command != "scrape" or output_parameters != parameters:
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
    """Collect the facts of all landmarks, and write the tables."""
    requested = _requested_properties(config)
    source: ApiSource | HtmlSource
    if config.source == "html":
        header = HEADER
        if requested.property_id in properties:
            header = properties[requested.property_id].labels["en"].value
        source = HtmlSource(client, header, requested)
    else:
        source = ApiSource(client, requested)
    titles = [landmark.title for landmark in landmarks]
    facts = FactStore()
    if source.class_kind is not None:
        redirected = {item: existing.classes[to] for item, to in existing.redirects.items()}
        facts.add(source.class_kind, existing.classes, 0)
        facts.add(source.class_kind, redirected, 0)
    for kind, at, batch in journal.batches(source.from_json):  # facts of earlier runs
        facts.add(kind, batch, at)
    check = StatusCheck(titles, config.allow_frequent, config.noun)
    collector = FactCollector(
        source, facts, titles, existing.rows, check, progress, client=client, journal=journal
    )
    unknown_properties = [name for name, entity in properties.items() if entity.datatype is None]
    try:
        statuses, routes, n_classes = _write_tables(
            landmarks, collector, config, out, provenance, unknown_properties
        )
    except UnlikelyStatusError as error:
        if error.status == "no_value" and config.property_id in unknown_properties:
            raise _unknown_property(config.property_id) from None
        forget_landmarks_without_value(titles, source, facts, journal)
        raise
    unlabelled: set[str] = set()
    for title in titles:
        for value in collector.resolution(title)[0].instance_of:
            if value.label == value.item:
                unlabelled.add(value.label)
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
    """Return the requested properties other than P31 and P279."""
    names = {config.property_id, config.parents} - {
        RequestedProperties.property_id,
        RequestedProperties.parents,
    }
    if not names:
        return {}
    properties = read_properties(client, sorted(names))
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
    unknown_properties: Sequence[str],
) -> tuple[dict[str, int], dict[str, int], int]:
    """Collect missing facts, and write both tables.

    Args:
        landmarks: Landmarks in the order of the table.
        collector: Collector of the facts.
        config: Settings of the scrape.
        out: Table ``scraped`` to write.
        provenance: Provenance of the tables.
        unknown_properties: Requested properties that Wikidata does not know.

    Returns:
        Numbers of landmarks by status and by route, and the number of classes.

    Raises:
        PropertyError: A property is unknown, and no landmark or class has a value of it.
    """
    classes = collector.collect(config.workers, config.class_depth)
    requested = _requested_properties(config)
    if requested.property_id in unknown_properties:
        values = (collector.resolution(landmark.title)[0].instance_of for landmark in landmarks)
        if not any(values):
            raise _unknown_property(requested.property_id)
    has_parents = any(fact.subclass_of for fact in classes.values())
    if requested.parents in unknown_properties and not has_parents:
        raise _unknown_property(requested.parents)
    if collector.source.class_kind is not None:
        ranks = collector.rank_labels if requested.ranks else None
        write_classes(classes, collector.class_redirects, classes_path(out), provenance, ranks)
    statuses, routes = write_scraped(
        landmarks, collector.resolution, out, provenance, neutral=config.id is not None
    )
    return statuses, routes, len(classes)


def with_entity_column(config: ScrapeConfig, path: Path) -> ScrapeConfig:
    """Return settings with the column of items or categories of the list, if not configured."""
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


def _read_landmarks(config: ScrapeConfig, path: Path) -> list[LandmarkCategory]:
    if config.id is None:
        return read_categories(path)
    return read_list(
        path, config.id, item=config.item, category=config.category, split=config.split_column
    )


def _requested_properties(config: ScrapeConfig) -> RequestedProperties:
    """Return the properties and languages to request."""
    no_value: ScrapeStatus = "no_instance_of" if config.id is None else "no_value"
    languages = tuple(config.languages.split(","))
    return RequestedProperties(config.property_id, config.parents, languages, no_value)
