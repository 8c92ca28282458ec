"""Inputs and configurations for scrapes of a local server."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hgld.wikimedia.client import ClientConfig
from hgld.wikimedia.scraper import ScrapeConfig


def write_categories(path: Path, urls: Iterable[str]) -> Path:
    """Write a ``*_label_to_category.csv`` with landmarks 0, 1, 2, ..."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["landmark_id", "category"])
        writer.writerows(enumerate(urls))
    return path


def config_for(server: Any, source: str = "api", **settings: Any) -> ScrapeConfig:
    """Return the configuration of a scrape of ``server`` without rate limit and with short waits."""
    client = {"rate_per_minute": 0, "backoff_s": 0.01, "max_retries": 12, "contact": "tests@example.org"}
    client |= {name: settings.pop(name) for name in list(settings) if name in ClientConfig.__dataclass_fields__}
    urls = (f"{server.base_url}/commons", f"{server.base_url}/wikidata")
    return ScrapeConfig("train", source, client=ClientConfig(*urls, **client), **settings)  # type: ignore[arg-type]
