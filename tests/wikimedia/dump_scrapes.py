"""Scrapes of the same landmarks from the replica's APIs and from a dump of its world, and how they differ."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hgld.tables import CLASSES, SCRAPED, classes_path, read_table
from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump
from hgld.wikimedia.scraper import ScrapeConfig, ScrapeSummary, scrape_dump, scrape_file
from hgld.wikimedia.source import UNLIKELY_SHARES
from tests.scrapes import config_for

Rows = dict[str, dict[str, Any]]
#: Statuses that a small world may have many of.
FREQUENT = tuple(UNLIKELY_SHARES.keys() - {"no_infobox"})


def from_api(replica: Callable[..., Any], world: str, categories: Path, out: Path) -> Path:
    """Scrape the APIs of a world."""
    with replica(world) as server:
        assert scrape_file(categories, out, config_for(server)) is not None
    return out


def from_dump(
    dump: Path, categories: Path, out: Path, *, languages: Sequence[str] = ("en", "mul"), **settings: Any
) -> ScrapeSummary:
    """Scrape a dump, whose extract is made beside the output."""
    extract = out.with_suffix(".items")
    assert extract_dump(dump, extract, ExtractConfig(languages=tuple(languages), **settings)).complete
    summary = scrape_dump(categories, out, extract, ScrapeConfig("train"))
    assert summary is not None
    return summary


def rows_by_title(path: Path) -> Rows:
    """Return the rows of a table ``scraped`` by title, without the columns that name the source and the time."""
    rows = read_table(path, SCRAPED).drop_columns(["fetched_at", "source"]).to_pylist()
    return {row["title"]: row for row in rows}


def differences(api: Path, dump: Path) -> dict[str, tuple[Any, Any]]:
    """Return the rows that differ by title: the status, item and route from the API and from the dump."""
    expected, found = rows_by_title(api), rows_by_title(dump)
    assert list(expected) == list(found)
    keys = ("status", "item", "route")
    return {
        title: (tuple(expected[title][key] for key in keys), tuple(found[title][key] for key in keys))
        for title in expected
        if expected[title] != found[title]
    }


def classes_of(path: Path) -> list[dict[str, Any]]:
    """Return the table ``classes`` beside a table ``scraped``."""
    rows: list[dict[str, Any]] = read_table(classes_path(path), CLASSES).to_pylist()
    return rows
