"""Scrapes of what was scraped before, with the same list or another: what is asked again, and what is replaced."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from hgld.errors import ConfigurationError
from hgld.tables import CLASSES, SCRAPED, classes_path, read_table
from hgld.wikimedia.scraper import journal_path, scrape_file
from tests.child_processes import run_child
from tests.scrapes import N_PAGES, command, config_for, interrupt_scrape, run_scrape, untimed

Replica = Callable[..., Any]


def changed_list(categories: Path, path: Path) -> Path:
    """The landmarks 100 to 199, of which 150 to 159 have another category, and three new ones; two are the same."""
    header, *rows = categories.read_text(encoding="utf-8").splitlines()
    swapped = [row.split(",", 1) for row in rows[100:200]]
    for n in range(50, 60):
        swapped[n][1] = rows[230 + n].split(",", 1)[1]
    new = [
        f"{number},{row.split(',', 1)[1]}"
        for number, row in zip((990001, 990002, 990003), [*rows[:2], rows[0]], strict=True)
    ]
    path.write_text("\n".join([header, *(",".join(row) for row in swapped), *new, ""]), encoding="utf-8")
    return path


def check_tables(out: Path, fresh: Path, *, with_classes: bool = True) -> None:
    """Check that two scrapes have the same tables."""
    assert untimed(out).equals(untimed(fresh))
    if with_classes:
        assert read_table(classes_path(out), CLASSES).equals(read_table(classes_path(fresh), CLASSES))


@pytest.mark.parametrize("source", ["api", pytest.param("html", marks=pytest.mark.slow)])
def test_finished_scrape_is_used_for_a_changed_list(
    server: Any, categories: dict[str, Path], tmp_path: Path, source: str
) -> None:
    rows = categories["api"].read_text(encoding="utf-8").splitlines(keepends=True)
    first = tmp_path / "first.csv"
    first.write_text("".join([*rows[:1], *rows[101:261]]), encoding="utf-8")
    second = changed_list(categories["api"], tmp_path / "second.csv")
    out, fresh = tmp_path / "out.parquet", tmp_path / "fresh.parquet"
    config = config_for(server, source)
    scrape_file(second, fresh, config)
    run_scrape(first, out, config)
    server.stats.reset()
    summary = run_scrape(second, out, config)
    asked = server.stats.snapshot()["asked"]
    assert (summary.landmarks, summary.taken_over) == (103, 90)
    assert asked["wikidata_titles" if source == "api" else "commons_pages"] == 12  # two of 13 have one category
    assert scrape_file(second, out, config) is None
    check_tables(out, fresh, with_classes=source == "api")
    assert not journal_path(out).exists()


@pytest.mark.parametrize("source", ["api", pytest.param("html", marks=pytest.mark.slow)])
def test_unfinished_scrape_is_used_for_a_changed_list(
    server: Any, categories: dict[str, Path], tmp_path: Path, source: str
) -> None:
    second = changed_list(categories["api"], tmp_path / "second.csv")
    out, fresh = tmp_path / "out.parquet", tmp_path / "fresh.parquet"
    config = config_for(server, source)
    scrape_file(second, fresh, config)
    interrupt_scrape(4 if source == "api" else 140, categories["html"], out, config)
    server.stats.reset()
    run_scrape(second, out, config)
    asked = server.stats.snapshot()["asked"]
    assert asked["wikidata_titles" if source == "api" else "commons_pages"] < 100
    assert untimed(out).equals(untimed(fresh))


def test_kill_of_a_scrape_of_a_changed_list_resumes(
    server: Any, categories: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = changed_list(categories["api"], tmp_path / "second.csv")
    out, fresh = tmp_path / "out.parquet", tmp_path / "fresh.parquet"
    config = config_for(server)
    scrape_file(second, fresh, config)
    scrape_file(categories["html"], out, config)
    before = out.read_bytes()
    interrupt_scrape(1, second, out, config)
    assert out.read_bytes() == before
    with monkeypatch.context() as patch:  # between the two tables
        patch.setattr("hgld.wikimedia.scraper.write_scraped", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            scrape_file(second, out, config)
    assert out.read_bytes() == before
    run_scrape(second, out, config)
    check_tables(out, fresh)


def test_changed_class_depth_asks_for_classes_only(server: Any, landmarks: Path, tmp_path: Path) -> None:
    out, fresh = tmp_path / "out.parquet", tmp_path / "fresh.parquet"
    scrape_file(landmarks, fresh, config_for(server))
    for depth in (1, 10):
        server.stats.reset()
        scrape_file(landmarks, out, config_for(server, class_depth=depth))
    assert server.stats.snapshot()["asked"].get("wikidata_titles", 0) == 0
    check_tables(out, fresh)


def test_other_tables_are_not_replaced(replica: Replica, categories: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with replica("washington.json.gz") as server, replica("washington.json.gz") as other:
        scrape_file(categories["html"], out, config_for(server))
        for config in (config_for(server, "html"), config_for(other), replace(config_for(server), split="index")):
            with pytest.raises(ConfigurationError, match="is not a scrape of this split, source and servers"):
                scrape_file(categories["html"], out, config)
        (tmp_path / "notes.parquet").write_text("mine")
        with pytest.raises(ConfigurationError, match="is not a scrape"):
            scrape_file(categories["html"], tmp_path / "notes.parquet", config_for(server))
        server.stats.reset()
        assert scrape_file(categories["html"], out, config_for(server)) is None
        assert server.stats.snapshot()["requests"] == 0
        summary = run_scrape(categories["html"], out, config_for(server), force=True)
        assert (summary.taken_over, untimed(out).num_rows) == (0, N_PAGES)
        assert summary.requests > 5
        scrape_file(categories["html"], out, config_for(server, "html"), force=True)
    assert read_table(out, SCRAPED)["source"].unique().to_pylist() == ["html"]


@pytest.mark.slow
def test_command_fails_and_says_how_to_retry(replica: Replica, washington: Path, out: Path) -> None:
    with replica("washington.json.gz", error_rate=0.3, error_kinds=("http500",), seed=3) as server:
        port = server.port
        run = command(washington, out, server, "--max-retries", "0")
        failed = run_child(run, exit_code=1)
    assert "rows or classes failed; to try only these again, run\n  hgld scrape " in failed.stderr
    advice = failed.stderr.strip().splitlines()[-1].strip()
    assert shlex.split(advice)[1:] == run[3:]
    with replica("washington.json.gz", port=port):
        run_child([*run[:3], *shlex.split(advice)[1:]])
    assert set(read_table(out, SCRAPED)["status"].to_pylist()) == {"ok", "no_instance_of"}
