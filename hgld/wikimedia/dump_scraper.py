"""Scrape the landmarks of GLDv2's category lists from the extract of a dump, without any request.

The tables are those of a scrape of the APIs, with the source ``dump`` and, as ``fetched_at``, the date of the dump:
when the entity in it that changed last did so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hgld.errors import ConfigurationError, InputError
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress, Progress
from hgld.tables import SPLITS, Provenance, classes_path, input_digests, is_up_to_date, read_provenance
from hgld.wikimedia.categories import read_categories
from hgld.wikimedia.collector import FactCollector
from hgld.wikimedia.dump_extract import items_path, read_extract
from hgld.wikimedia.dump_source import DumpSource
from hgld.wikimedia.plausibility import StatusCheck, check_allowed
from hgld.wikimedia.scraped_tables import write_classes, write_scraped
from hgld.wikimedia.scraper import ScrapeSummary
from hgld.wikimedia.source import FactStore

_ADVICE = "The dump may be a part or a sample of Wikidata, or the list one of other pages. No table was written"


@dataclass(frozen=True)
class DumpScrapeConfig:
    """Settings of a scrape of a dump.

    Args:
        split: Split to scrape, train or index; their landmark ids are different numbering spaces.
        class_depth: Number of steps of "subclass of" (P279) to follow above the classes of landmarks.
        allow_frequent: Statuses that may be frequent, as in :class:`hgld.wikimedia.scraper.ScrapeConfig`.
    """

    split: str
    class_depth: int = 10
    allow_frequent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigurationError(f'`split` is "{self.split}"; expected {" or ".join(SPLITS)}')
        if self.class_depth < 0:
            raise ConfigurationError(f"`class_depth` is {self.class_depth}; expected 0 or more")
        check_allowed(self.allow_frequent)


def scrape_dump(
    categories: Path,
    out: Path,
    extract: Path,
    config: DumpScrapeConfig,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> ScrapeSummary | None:
    """Scrape the landmarks of a category list from the extract of a dump (:func:`extract_dump`).

    Args:
        categories: GLDv2's ``*_label_to_category.csv``, with the columns landmark_id and category.
        out: Table ``scraped`` to write, with the table ``classes`` beside it.
        extract: Folder of the complete extract.
        config: What to scrape.
        force: Write the tables even if they are up to date, or a scrape from another source.
        progress: Receives the number of resolved landmarks.

    Returns:
        Contents of the tables; None if ``out`` is up to date.

    Raises:
        InputError: ``categories`` is invalid, or the extract is not complete.
        BusyError: Another run is writing ``out``.
        SourceError: So many landmarks end in the same status that something must be wrong.
        ConfigurationError: ``out`` is a scrape from another source.
    """
    start = time.monotonic()
    landmarks = read_categories(categories)
    modified = str(read_extract(extract).parameters["modified"])
    parameters = {"split": config.split, "class_depth": config.class_depth, "source": "dump", "modified": modified}
    provenance = Provenance("scrape", parameters, input_digests(categories=categories, extract=items_path(extract)))
    with exclusive_lock(out):
        if not force:
            if is_up_to_date(out, provenance):
                return None
            if out.exists():
                _check_replaceable(out, config.split)
        date = datetime.fromisoformat(modified.replace("Z", "+00:00"))
        titles = [landmark.title for landmark in landmarks]
        collector = FactCollector(
            DumpSource(extract),
            FactStore(),
            titles,
            {},
            StatusCheck(titles, config.allow_frequent, _ADVICE),
            progress or NoProgress(),
            clock=date.timestamp,
        )
        classes = collector.collect(1, config.class_depth)
        write_classes(classes, collector.class_redirects, classes_path(out), provenance)
        statuses, routes = write_scraped(landmarks, collector, out, provenance)
    return ScrapeSummary(
        landmarks=len(landmarks),
        statuses=dict(statuses),
        routes=dict(routes),
        classes=len(classes),
        taken_over=0,
        changes=None,
        errors=0,
        requests=0,
        retries=0,
        seconds=time.monotonic() - start,
        dump_date=date,
    )


def _check_replaceable(out: Path, split: str) -> None:
    """Check that ``out`` is a scrape of a dump of this split.

    Raises:
        ConfigurationError: It is something else, which would be lost.
    """
    try:
        made = read_provenance(out)
    except InputError:
        made = Provenance("")
    if (made.command, made.parameters.get("source"), made.parameters.get("split")) != ("scrape", "dump", split):
        raise ConfigurationError(
            f"{out} is not a scrape of this split from a dump; choose another output, or use `force` to replace it"
        )
