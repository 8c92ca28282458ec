"""Fixtures of the tests of scraping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scrapes import N_PAGES


@pytest.fixture(scope="session")
def edge_cases(shared: Path) -> list[dict[str, Any]]:
    """Hand-made categories, each with the result of a correct scraper."""
    text = (shared / "wikimedia_replica" / "worlds" / "expected.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases


@pytest.fixture(scope="session")
def categories(washington: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Landmarks for scrapes by source: all, or the first ones where each takes a request."""
    rows = washington.read_text(encoding="utf-8").splitlines(keepends=True)
    few = tmp_path_factory.mktemp("few") / "train_label_to_category.csv"
    few.write_text("".join(rows[: N_PAGES + 1]), encoding="utf-8")
    return {"api": washington, "html": few}
