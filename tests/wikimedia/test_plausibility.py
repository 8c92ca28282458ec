"""Runs that stop because too many landmarks end in the same status."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hgld.errors import ConfigurationError
from hgld.wikimedia.scraper import journal_path, scrape_file
from hgld.wikimedia.status_check import StatusCheck, UnlikelyStatusError
from tests.commands import run_hgld
from tests.scrapes import command, config_for, first_landmarks, interrupt_scrape, run_scrape, untimed

Replica = Callable[..., Any]
N_LANDMARKS = 150


def check(statuses: list[str], waiting: int = 0, allowed: tuple[str, ...] = ()) -> int:
    """Resolve landmarks after others were started; return the number that were resolved before the check stopped."""
    count = StatusCheck([f"Category:{n}" for n in range(len(statuses) + waiting)], allowed)
    for position in range(waiting):
        count.start(position)
    for n, status in enumerate(statuses):
        count.start(waiting + n)
        try:
            count.end(waiting + n, status)
        except UnlikelyStatusError:
            return n + 1
    count.finish()
    return len(statuses)


@pytest.mark.parametrize(
    ("statuses", "n_resolved"),
    [
        (["invalid_title"] * 500, 100),
        (["ok"] * 980 + ["invalid_title"] * 20, 1_000),  # no more than 2 %
        (["ok"] * 1_980 + ["missing"] * 30, 2_010),  # the last landmarks are judged with those before them
        (["ok"] * 950 + ["invalid_title"] * 50, 970),
        (["ok"] * 5_000 + ["missing"] * 5_000, 5_100),  # a server that breaks late
        (["no_item", "ok", "no_item"] * 1_000, 100),
        (["no_item", "ok"] * 1_000, 2_000),
        (["missing"] * 19, 19),
        (["error"] * 500, 500),
        (["ok"] * 500, 500),
    ],
)
def test_run_stops_soon_after_a_status_becomes_unlikely(statuses: list[str], n_resolved: int) -> None:
    assert check(statuses) == n_resolved


def test_landmarks_under_way_count_as_likely() -> None:
    assert check(["missing"] * 33, waiting=100) == 33
    assert check(["missing"] * 100, waiting=100) == 34


def test_small_list_is_judged_at_its_end() -> None:
    with pytest.raises(
        UnlikelyStatusError, match=r"20 of 20 landmarks ended as missing \(100%; at most 25% is likely\)"
    ):
        check(["missing"] * 20)


def test_allowed_status_may_be_frequent() -> None:
    assert check(["missing"] * 500, allowed=("missing",)) == 500
    assert check(["no_item"] * 500, allowed=("missing",)) == 100


def test_unknown_status_cannot_be_allowed(replica: Replica) -> None:
    with (
        replica("edge_cases.json") as server,
        pytest.raises(ConfigurationError, match='`allow_frequent` is "lost"; exp'),
    ):
        config_for(server, allow_frequent=("lost",))


@pytest.fixture
def categories(washington: Path, tmp_path: Path) -> Path:
    """The first landmarks of Washington."""
    return first_landmarks(washington, tmp_path / washington.name, N_LANDMARKS)


@pytest.mark.parametrize(
    ("source", "counter", "n_kept"),
    [("api", "wikidata_titles", 50), pytest.param("html", "commons_pages", 40, marks=pytest.mark.slow)],
)
def test_wrong_answers_are_asked_for_again_and_others_kept(
    replica: Replica, categories: Path, tmp_path: Path, source: str, counter: str, n_kept: int
) -> None:
    out, right = tmp_path / "out.parquet", tmp_path / "right.parquet"
    with replica("washington.json.gz") as server:
        port, config = server.port, config_for(server, source)
        scrape_file(categories, right, config)
        asked = server.stats.snapshot()["asked"][counter]
        interrupt_scrape(1 if source == "api" else n_kept, categories, out, config)
    with replica("edge_cases.json", port=port) as server:
        with pytest.raises(
            UnlikelyStatusError, match=r'landmarks ended as missing .*such as "Category:.*`commons_url`'
        ):
            scrape_file(categories, out, config)
        assert server.stats.snapshot()["requests"] < 100
        assert not out.exists()
    with replica("washington.json.gz", port=port) as server:
        summary = run_scrape(categories, out, config)
        assert server.stats.snapshot()["asked"][counter] == asked - n_kept
    assert summary.errors == 0
    assert untimed(out).equals(untimed(right))
    assert not journal_path(out).exists()


def test_command_stops_and_says_what_to_do(replica: Replica, categories: Path, out: Path) -> None:
    with replica("edge_cases.json") as server:
        run = command(categories, out, server)[3:]
        stopped = run_hgld(*run, code=1)
        assert "of 100 landmarks ended as missing (5" in stopped.stderr
        assert "the one that --commons-url should name" in stopped.stderr
        assert "allow it with --allow-frequent missing" in stopped.stderr
        assert not out.exists()
        run_hgld(*run, "--allow-frequent", "missing")
    assert set(untimed(out)["status"].to_pylist()) == {"missing"}
