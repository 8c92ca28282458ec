"""Fixtures of the tests of scraping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def edge_cases(shared: Path) -> list[dict[str, Any]]:
    """Hand-made categories, each with the result of a correct scraper."""
    text = (shared / "wikimedia_replica" / "worlds" / "expected.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases
