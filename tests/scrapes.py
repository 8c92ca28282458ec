"""Inputs and configurations for scrapes of a local server, their interruption and their results."""

import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hgld.io.journal import Journal
from hgld.tables import SCRAPED, read_table
from hgld.wikimedia.scraper import ScrapeSummary, scrape_file
from hgld.wikimedia.settings import ClientConfig, ScrapeConfig

#: Landmarks of scrapes of fifty landmarks a request.
N_LANDMARKS = 300
#: Landmarks of scrapes of single pages.
N_PAGES = 160


def write_categories(path: Path, urls: Iterable[str]) -> Path:
    """Write a ``*_label_to_category.csv`` with landmarks 0, 1, 2, ..."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["landmark_id", "category"])
        writer.writerows(enumerate(urls))
    return path


def first_landmarks(categories: Path, path: Path, number: int) -> Path:
    """Write the first landmarks of a ``*_label_to_category.csv``."""
    rows = categories.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(rows[: number + 1]), encoding="utf-8")
    return path


def config_for(server: Any, source: str = "api", **settings: Any) -> ScrapeConfig:
    """Return the configuration of a scrape of ``server`` without rate limit and with short waits."""
    client = {name: settings.pop(name) for name in list(settings) if name in ClientConfig.__dataclass_fields__}
    return ScrapeConfig("train", source, client=client_config(server, **client), **settings)  # type: ignore[arg-type]


def client_config(server: Any, **changes: Any) -> ClientConfig:
    """Return the configuration of a client of ``server``."""
    client = {"rate_per_minute": 0, "backoff_s": 0.01, "max_retries": 12, "contact": "tests@example.org", **changes}
    urls = {f"{name}_url": f"{server.base_url}/{name}" for name in ("commons", "wikidata")}
    return ClientConfig(**{**urls, **client})


def command(categories: Path, out: Path, server: Any, *options: str) -> list[str]:
    """Return a command that scrapes ``server`` as fast as it answers."""
    urls = ["--commons-url", f"{server.base_url}/commons", "--wikidata-url", f"{server.base_url}/wikidata"]
    run = [sys.executable, "-c", "from hgld.cli import app; app()", "scrape", str(categories), "--split", "train"]
    return [*run, "-o", str(out), "--rate", "0", *urls, *options]


def run_scrape(categories: Path, out: Path, config: ScrapeConfig, **options: Any) -> ScrapeSummary:
    """Scrape, and return the summary of a run that has something to do."""
    summary = scrape_file(categories, out, config, **options)
    assert summary is not None
    return summary


def untimed(out: Path) -> pa.Table:
    """The scraped table without the column that depends on the time."""
    return read_table(out, SCRAPED).drop_columns(["fetched_at"])


def interrupt_scrape(batches: int, categories: Path, out: Path, config: ScrapeConfig, **options: Any) -> None:
    """Scrape, and interrupt it when this number of batches was received and the next one arrives."""
    append, left = Journal.append, batches

    def append_some(self: Journal, kind: str, at: int, facts: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        append(self, kind, at, facts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "append", append_some)
        with pytest.raises(KeyboardInterrupt):
            scrape_file(categories, out, config, **options)
