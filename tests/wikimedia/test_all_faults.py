"""Whole worlds under all faults at once: the tables are those of an undisturbed scrape."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hgld.tables import CLASSES, classes_path, read_table
from hgld.wikimedia.scraper import scrape_file
from tests.scrapes import config_for, run_scrape, untimed, write_categories

pytestmark = pytest.mark.slow

Replica = Callable[..., Any]
ALL_KINDS = ("http500", "http502", "http503", "reset", "truncate", "garble", "stall", "oddjson")
#: Seeds and markups of soft redirects, which Washington does not have.
VARIANTS = {
    "edge_cases.json": [(seed, markup) for seed in range(3) for markup in ("id", "class")],
    "washington.json.gz": [(3, "class")],
}


def faults(seed: int, markup: str) -> dict[str, Any]:
    errors = {"seed": seed, "soft_redirect_markup": markup, "error_rate": 0.15, "error_kinds": ALL_KINDS}
    waits = {"max_rps": 400, "rate_retry_after": 0.05, "retry_after": 0.05, "stall_seconds": 0.02}
    return {**errors, **waits, "lag_rate": 0.1, "max_entities": 7, "force_continue": 5}


def tables(out: Path) -> list[pa.Table]:
    """The tables of a scrape without times."""
    classes = classes_path(out)
    return [untimed(out), *([read_table(classes, CLASSES)] if classes.exists() else [])]


@pytest.fixture
def lists(washington: Path, edge_cases: list[dict[str, Any]], tmp_path: Path) -> dict[str, Path]:
    """Category lists by world."""
    return {
        "washington.json.gz": washington,
        "edge_cases.json": write_categories(tmp_path / "edge.csv", (case["url"] for case in edge_cases)),
    }


@pytest.mark.parametrize("world", VARIANTS)
@pytest.mark.parametrize("source", ["api", "html", "update"])
def test_all_faults_together_do_not_change_the_tables(
    replica: Replica, lists: dict[str, Path], tmp_path: Path, world: str, source: str
) -> None:
    calm = tmp_path / "calm.parquet"
    update = calm if source == "update" else None
    name = "api" if source == "update" else source
    with replica(world) as server:
        port = server.port
        scrape_file(lists[world], calm, config_for(server, name))
    for seed, markup in VARIANTS[world]:
        out = tmp_path / f"{seed}_{markup}.parquet"
        with replica(world, port=port, **faults(seed, markup)) as server:
            config = config_for(server, name, workers=1 + seed % 3)
            summary = run_scrape(lists[world], out, config, update=update)
            stats = server.stats.snapshot()
        assert summary.errors == 0
        assert summary.retries > 0
        assert stats["http_403_sent"] == 0
        assert stats["max_concurrent_requests"] <= 1 + seed % 3
        assert tables(out) == tables(calm)
