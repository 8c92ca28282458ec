"""The replica of Commons and Wikidata that comes with the real data."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from hgld.wikimedia.client import ClientConfig
from hgld.wikimedia.scraper import ScrapeConfig


@pytest.fixture(scope="session")
def replica(shared: Path) -> Callable[..., Any]:
    """``replica("washington.json.gz", error_rate=0.1)``: a server to be used in a ``with`` block."""
    if sys.version_info < (3, 11):
        pytest.skip("the replica needs Python 3.11: on an older one its resets leave connections open")
    sys.path.insert(0, str(shared))
    from wikimedia_replica import ReplicaServer

    def start(world: str, **faults: Any) -> Any:
        path = shared / "wikimedia_replica" / "worlds" / world
        return ReplicaServer(world if world.startswith("stress:") else path, **faults)

    return start


@pytest.fixture(scope="session")
def edge_cases(shared: Path) -> list[dict[str, Any]]:
    """Hand-made categories with what a correct scraper returns for each."""
    text = (shared / "wikimedia_replica" / "worlds" / "expected.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases


@pytest.fixture(scope="session")
def washington(shared: Path) -> Path:
    """844 real landmarks in GLDv2's own layout."""
    return shared / "wa_gldv2" / "train_label_to_category.csv"


def write_categories(path: Path, urls: Iterable[str]) -> Path:
    """A ``*_label_to_category.csv`` with landmarks 0, 1, 2, ..."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["landmark_id", "category"])
        writer.writerows(enumerate(urls))
    return path


def config_for(server: Any, source: str = "api", **settings: Any) -> ScrapeConfig:
    """A scrape of ``server`` that does not dawdle."""
    client = {"rate_per_minute": 0, "backoff_s": 0.01, "max_retries": 12, "contact": "tests@example.org"}
    client |= {name: settings.pop(name) for name in list(settings) if name in ClientConfig.__dataclass_fields__}
    urls = (f"{server.base_url}/commons", f"{server.base_url}/wikidata")
    return ScrapeConfig("train", source, client=ClientConfig(*urls, **client), **settings)  # type: ignore[arg-type]
