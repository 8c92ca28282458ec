"""Whole scrapes against the replica: results, limits, faults, interruptions and concurrent runs."""

import re
import signal
import subprocess
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from requests import Response, Session

from hgld.errors import BusyError, ConfigurationError, InputError, SourceError
from hgld.io.locks import exclusive_lock
from hgld.progress import NoProgress
from hgld.tables import CLASSES, SCRAPED, classes_path, read_table
from hgld.wikimedia.client import WikimediaClient
from hgld.wikimedia.scraper import journal_path, scrape_file
from hgld.wikimedia.settings import ClientConfig, ScrapeConfig
from tests.child_processes import run_child
from tests.http_servers import BODY_BEGUN, HEADERS_BEGUN, dripping_server, interrupted_soon
from tests.scrapes import (
    N_LANDMARKS,
    N_PAGES,
    command,
    config_for,
    first_landmarks,
    interrupt_scrape,
    run_scrape,
    untimed,
    write_categories,
)

Replica = Callable[..., Any]
#: Waits of the replica that a test can afford.
BRIEF = {"stall_seconds": 0.05, "retry_after": 0.05}
ALL_KINDS = ("http500", "http502", "http503", "reset", "truncate", "garble", "stall", "oddjson")


def labels(out: Path) -> list[list[str]]:
    return [[value["label"] for value in values] for values in read_table(out, SCRAPED)["instance_of"].to_pylist()]


@pytest.fixture(scope="module")
def calm(replica: Replica, categories: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The landmarks of each source, scraped without any fault."""
    outs = {source: tmp_path_factory.mktemp("calm") / f"{source}.parquet" for source in ("api", "html")}
    with replica("washington.json.gz") as server:
        for source, out in outs.items():
            scrape_file(categories[source], out, config_for(server, source))
    return outs


# -- results -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["api", "html"])
@pytest.mark.parametrize(
    "faults",
    [
        {"force_continue": 3},
        {"max_entities": 7, "soft_redirect_markup": "class"},
        {"force_continue": 3, "max_entities": 1, "error_rate": 0.2, "error_kinds": ALL_KINDS, **BRIEF},
    ],
)
def test_edge_cases(
    replica: Replica,
    edge_cases: list[dict[str, Any]],
    edge_categories: Path,
    out: Path,
    source: str,
    faults: dict[str, Any],
) -> None:
    with replica("edge_cases.json", **faults) as server:
        summary = run_scrape(edge_categories, out, config_for(server, source))
    assert summary.errors == 0
    rows = read_table(out, SCRAPED).to_pylist()
    assert len(rows) == len(edge_cases)
    actual, expected = {}, {}
    for case, row in zip(edge_cases, rows, strict=True):
        result = {"status": row["status"], "labels": [value["label"] for value in row["instance_of"]]}
        if source == "api":
            result |= {"page": row["resolved_title"], "item": row["item"]}
            result["class_ids"] = [value["item"] for value in row["instance_of"]]
        actual[case["note"]], expected[case["note"]] = result, case[source]
    assert actual == expected


def test_route_revision_and_language(
    replica: Replica, edge_cases: list[dict[str, Any]], edge_categories: Path, out: Path
) -> None:
    with replica("edge_cases.json") as server:
        scrape_file(edge_categories, out, config_for(server))
    rows = dict(zip((c["note"] for c in edge_cases), read_table(out, SCRAPED).to_pylist(), strict=True))
    routes = {note: rows[note]["route"] for note in rows}
    assert routes["one value"] == "direct"
    assert routes["two hard redirects: the API follows both, a page only one"] == "hard_redirect"
    assert routes["soft redirect"] == "soft_redirect"
    assert routes["hard redirect to a soft one"] == "hard_redirect+soft_redirect"
    assert routes["soft redirect to a hard one"] == "soft_redirect+hard_redirect"
    assert routes["category item with a main topic"] == "topic"
    assert routes["no such page"] is None
    languages = {note: [v["language"] for v in rows[note]["instance_of"]] for note in rows}
    assert languages["one value"] == ["en"]
    assert languages["class has a German label only"] == ["de"]
    assert languages["class has a mul label only"] == ["mul"]
    assert languages["class has no label"] == [None]
    # The replica's revisions are derived from the item's number.
    assert rows["category item with a main topic"]["revision"] == 2_000_000_000 + 950_000_036


@pytest.mark.slow
def test_both_sources_agree_on_every_washington_landmark(server: Any, washington: Path, tmp_path: Path) -> None:
    outs = {source: tmp_path / f"{source}.parquet" for source in ("api", "html")}
    for source, out in outs.items():
        scrape_file(washington, out, config_for(server, source))
    assert len(labels(outs["api"])) == 844
    assert labels(outs["api"]) == labels(outs["html"])
    assert sum(map(len, labels(outs["api"]))) == 842
    api, html = (read_table(out, SCRAPED) for out in outs.values())
    for column in ("landmark_id", "title", "resolved_title", "item", "route", "status"):
        assert api[column].to_pylist() == html[column].to_pylist(), column


def test_classes_table_holds_every_class_and_its_ancestors(calm: dict[str, Path]) -> None:
    rows = {row["item"]: row for row in read_table(classes_path(calm["api"]), CLASSES).to_pylist()}
    met = {v["item"] for values in read_table(calm["api"], SCRAPED)["instance_of"].to_pylist() for v in values}
    assert met <= set(rows)
    assert {parent for row in rows.values() for parent in row["subclass_of"]} <= set(rows)
    assert rows["Q207694"]["label"] == "art museum"
    assert "Q33506" in rows["Q207694"]["subclass_of"]  # museum
    assert not classes_path(calm["html"]).exists()


def test_number_of_requests(replica: Replica, tmp_path: Path, out: Path) -> None:
    # The ``replica`` fixture makes it importable.
    from wikimedia_replica.make_stress_world import main  # type: ignore[import-not-found]

    main(["--landmarks", "2500", "--csv", str(tmp_path / "in.csv"), "--classes", "200"])
    with replica("stress:landmarks=2500,classes=200") as server:
        summary = run_scrape(tmp_path / "in.csv", out, config_for(server, workers=3))
        stats = server.stats.snapshot()
        world = server.world
    assert summary.requests / summary.landmarks <= 0.03
    assert stats["requests"] == summary.requests
    assert stats["max_concurrent_requests"] <= 3
    assert stats["asked"]["wikidata_ids"] == stats["asked_distinct"]["wikidata_ids"]
    truth = [list(world.truth(number).labels) for number in range(2500)]
    assert labels(out) == truth


# -- faults and limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["api", "html"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_faults_do_not_change_the_tables(
    replica: Replica, categories: dict[str, Path], calm: dict[str, Path], tmp_path: Path, source: str, seed: int
) -> None:
    faults = {"error_rate": 0.2, "error_kinds": ALL_KINDS, "lag_rate": 0.1, "stall_seconds": 0.05, "max_entities": 20}
    manners = {"max_rps": 400, "rate_retry_after": 0.1, "retry_after": 0.1, "seed": seed}
    with replica("washington.json.gz", **faults, **manners) as server:
        out = tmp_path / "out.parquet"
        summary = run_scrape(categories[source], out, config_for(server, source))
        stats = server.stats.snapshot()
    assert summary.retries > 0
    assert stats["requests_before_retry_after"] == 0
    assert stats["http_403_sent"] == 0
    assert stats["max_concurrent_requests"] == 1
    assert untimed(out).equals(untimed(calm[source]))
    if source == "html":
        assert len(stats["faults"]) == len(ALL_KINDS)


def test_stall_longer_than_the_timeout_is_retried(
    replica: Replica, landmarks: Path, calm: dict[str, Path], out: Path
) -> None:
    with replica("washington.json.gz", error_rate=0.2, error_kinds=("stall",), stall_seconds=1) as server:
        summary = run_scrape(landmarks, out, config_for(server, timeout_s=0.3))
    assert summary.retries > 0
    assert untimed(out).equals(untimed(calm["api"]))


@pytest.mark.parametrize("failure", ["http500", "oddjson"])
def test_failed_batches_become_error_rows_and_are_retried_alone(
    replica: Replica, landmarks: Path, calm: dict[str, Path], tmp_path: Path, out: Path, failure: str
) -> None:
    port: int
    with replica("washington.json.gz", error_rate=0.3, error_kinds=(failure,), seed=3) as server:
        port = server.port
        config = config_for(server, max_retries=0)
        summary = run_scrape(landmarks, out, config)
    assert 0 < summary.statuses["error"] < N_LANDMARKS
    assert journal_path(out).exists()
    rows = untimed(out).to_pylist()
    assert len(rows) == N_LANDMARKS
    for row, right in zip(rows, untimed(calm["api"]).to_pylist(), strict=True):
        assert row == right or (row["status"], row["instance_of"], row["item"]) == ("error", [], None)
    with replica("washington.json.gz", port=port) as server:
        again = run_scrape(landmarks, out, config)
        asked = server.stats.snapshot()["asked"].get("wikidata_titles", 0)
    assert again.errors == 0
    assert asked < N_LANDMARKS
    assert untimed(out).equals(untimed(calm["api"]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.classes.parquet", "out.parquet"]


class BreaksServer(NoProgress):
    """Lets the replica answer with errors only, when the first landmark is resolved."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def advance(self, units: int = 1, **details: float) -> None:
        faults = replace(self.server.faults, error_rate=1, error_kinds=("http500",))
        self.server._plan = type(self.server._plan)(faults)


def test_server_that_is_down_ends_the_run_and_keeps_the_journal(
    replica: Replica, categories: dict[str, Path], calm: dict[str, Path], tmp_path: Path
) -> None:
    out, few = tmp_path / "out.parquet", first_landmarks(categories["html"], tmp_path / "few.csv", 30)
    with replica("washington.json.gz") as server:
        config = config_for(server, "html", max_retries=0)
        port = server.port
        with pytest.raises(SourceError, match="10 batches in a row failed.*run the same command again"):
            scrape_file(few, out, config, progress=BreaksServer(server))
    assert not out.exists()
    kept = journal_path(out).read_bytes()
    with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port} cannot be reached: .*refused"):
        scrape_file(few, out, config)
    assert journal_path(out).read_bytes() == kept
    with replica("washington.json.gz", port=port):
        scrape_file(few, out, config)
    assert untimed(out).equals(untimed(calm["html"]).slice(0, 30))


@pytest.mark.parametrize("source", ["api", "html"])
@pytest.mark.parametrize("begun", [HEADERS_BEGUN, BODY_BEGUN])
def test_one_interrupt_ends_a_run_that_waits_for_the_server(
    landmarks: Path, out: Path, source: str, begun: bytes
) -> None:
    with dripping_server(begun) as url, interrupted_soon():
        client = ClientConfig(url, url, rate_per_minute=0)
        scrape_file(landmarks, out, ScrapeConfig("train", source, workers=3, client=client))  # type: ignore[arg-type]


def test_refused_user_agent_stops_the_run(
    server: Any, landmarks: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_for(server)
    monkeypatch.setattr("hgld.wikimedia.client.client_user_agent", lambda config: "python-requests/2.0")
    with pytest.raises(ConfigurationError, match="403.*user-agent"):
        scrape_file(landmarks, out, config)
    assert server.stats.snapshot()["requests"] == 1


def test_refused_page_requests_are_no_invalid_titles(
    server: Any, landmarks: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = WikimediaClient._send

    def send_promise(self: WikimediaClient, session: Session, method: str, url: str, **options: Any) -> Response:
        return send(self, session, method, url, headers={"Promise-Non-Write-API-Action": "true"}, **options)

    monkeypatch.setattr(WikimediaClient, "_send", send_promise)
    with pytest.raises(SourceError, match="10 batches in a row.*answered 400.*Promise-Non-Write-API-Action was sent"):
        scrape_file(landmarks, out, config_for(server, "html"))
    assert server.stats.snapshot()["requests"] == 10
    assert not (out).exists()


# -- interruptions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kill", "source"),
    [
        pytest.param(signal.SIGKILL, "api", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, "html", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "html", marks=pytest.mark.slow),
    ],
)
def test_killed_run_resumes(
    replica: Replica,
    categories: dict[str, Path],
    calm: dict[str, Path],
    tmp_path: Path,
    kill: signal.Signals,
    source: str,
) -> None:
    out, n_requests = tmp_path / "out.parquet", 23 if source == "api" else N_PAGES
    with replica("washington.json.gz", latency_ms=40 if source == "api" else 3) as server:
        run = subprocess.Popen(
            command(categories[source], out, server, "--source", source),
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a shell's background
        )
        journal, deadline = journal_path(out), time.monotonic() + 30
        batches = 6 if source == "api" else 60
        while not journal.exists() or journal.read_bytes().count(b"\n") < batches:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        run.send_signal(kill)
        _, stderr = run.communicate(timeout=30)
        assert run.returncode == (-signal.SIGKILL if kill == signal.SIGKILL else 130)
        if kill == signal.SIGINT:
            assert b"run the same command again" in stderr
        assert not out.exists()
        answered = journal.read_bytes().count(b"\n")
        before = server.stats.snapshot()["requests"]
        assert before - answered <= 1, "at most the batch under way may be lost"
        run_child(command(categories[source], out, server, "--source", source))
        total = server.stats.snapshot()["requests"]
    assert total - before < n_requests
    assert total <= n_requests + 1
    assert untimed(out).equals(untimed(calm[source]))


def test_interrupted_run_writes_the_same_bytes(
    server: Any, landmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgld.wikimedia.scraper.time.time", lambda: 1_700_000_000)
    out = tmp_path / "parts.parquet"
    scrape_file(landmarks, tmp_path / "whole.parquet", config_for(server))
    for _ in range(4):
        interrupt_scrape(2, landmarks, out, config_for(server))
    scrape_file(landmarks, out, config_for(server, workers=3))
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert classes_path(out).read_bytes() == classes_path(tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize("damaged", [0, 4, -2, "facts of another shape"])
def test_damaged_journal_does_not_change_the_tables(
    server: Any, landmarks: Path, calm: dict[str, Path], out: Path, damaged: int | str
) -> None:
    interrupt_scrape(8, landmarks, out, config_for(server))
    lines = journal_path(out).read_bytes().split(b"\n")
    if isinstance(damaged, int):
        lines[damaged] = b"\xff" + lines[damaged].replace(b"Q", b"P")
    else:
        changed = re.sub(rb'"facts":\{.*\}', b'"facts":{"Category:Comet Falls":{"item":[]}}', lines[2][9:])
        lines[2] = b"%08x %s" % (zlib.crc32(changed), changed)
    journal_path(out).write_bytes(b"\n".join(lines))
    server.stats.reset()
    scrape_file(landmarks, out, config_for(server))
    assert server.stats.snapshot()["requests"] < 8
    assert untimed(out).equals(untimed(calm["api"]))


def test_output_that_is_locked_is_refused_before_any_request(replica: Replica, landmarks: Path, out: Path) -> None:
    with replica("washington.json.gz") as server, exclusive_lock(out):
        with pytest.raises(BusyError, match="another run is writing"):
            scrape_file(landmarks, out, config_for(server))
        assert server.stats.snapshot()["requests"] == 0
    assert not out.exists()


def test_invalid_input_is_reported_before_any_request(server: Any, tmp_path: Path, out: Path) -> None:
    categories = write_categories(tmp_path / "in.csv", ["https://commons.wikimedia.org/wiki/Category:A", "nonsense"])
    with pytest.raises(InputError, match='line 3: "nonsense" is not a URL of Wikimedia Commons'):
        scrape_file(categories, out, config_for(server))
    assert server.stats.snapshot()["requests"] == 0


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


@pytest.mark.slow
@pytest.mark.parametrize("world", VARIANTS)
@pytest.mark.parametrize("source", ["api", "html"])
def test_all_faults_together_do_not_change_the_tables(
    replica: Replica, washington: Path, edge_categories: Path, tmp_path: Path, world: str, source: str
) -> None:
    categories = edge_categories if world == "edge_cases.json" else washington
    calm = tmp_path / "calm.parquet"
    with replica(world) as server:
        port = server.port
        scrape_file(categories, calm, config_for(server, source))
    for seed, markup in VARIANTS[world]:
        out = tmp_path / f"{seed}_{markup}.parquet"
        with replica(world, port=port, **faults(seed, markup)) as server:
            config = config_for(server, source, workers=1 + seed % 3)
            summary = run_scrape(categories, out, config)
            stats = server.stats.snapshot()
        assert summary.errors == 0
        assert summary.retries > 0
        assert stats["http_403_sent"] == 0
        assert stats["max_concurrent_requests"] <= 1 + seed % 3
        assert tables(out) == tables(calm)
