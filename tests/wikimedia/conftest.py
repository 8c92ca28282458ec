import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scrapes import N_LANDMARKS, N_PAGES, first_landmarks, write_categories


@pytest.fixture(scope="session")
def edge_cases(shared: Path) -> list[dict[str, Any]]:
    """Hand-made categories, each with the result of a correct scraper."""
    text = (shared / "wikimedia_replica" / "worlds" / "expected.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases


@pytest.fixture(scope="session")
def edge_categories(edge_cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_categories(tmp_path_factory.mktemp("edge") / "categories.csv", (case["url"] for case in edge_cases))


@pytest.fixture(scope="session")
def categories(washington: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The first landmarks of Washington by source: fewer where each takes a request."""
    paths = {}
    for source, number in (("api", N_LANDMARKS), ("html", N_PAGES)):
        path = tmp_path_factory.mktemp(source) / washington.name
        paths[source] = first_landmarks(washington, path, number)
    return paths


@pytest.fixture(scope="session")
def landmarks(categories: dict[str, Path]) -> Path:
    """The first landmarks of Washington, for scrapes of fifty landmarks a request."""
    return categories["api"]


@pytest.fixture
def server(replica: Callable[..., Any]) -> Iterator[Any]:
    """Washington without any fault."""
    with replica("washington.json.gz") as server:
        yield server


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.parquet"
