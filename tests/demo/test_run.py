"""``hgld demo``: the real stages against the local server, which other terminals can use."""

import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import requests
from typer.testing import CliRunner

from hgld import cli
from hgld.cli.demo import format_demo, format_served
from hgld.demo.run import ANNOTATORS, DemoSummary, run_demo
from hgld.demo.sample import Sample, read_sample, serve_sample
from hgld.resources import sample_file
from hgld.tables import CLEAN, CLUSTERS, HIERARCHY, REMOVED, SCRAPED, SPLITS, read_table
from hgld.wikimedia.scraper import scrape_file
from hgld.wikimedia.settings import ClientConfig, ScrapeConfig
from tests.sheet_files import csv_rows, fill


def expected_labels(sample: Sample, title: str) -> list[str]:
    """Return the labels of a category, read directly from the sample."""
    page = sample.pages.get(title)
    while page and (page.redirect or page.soft_redirect):
        page = sample.pages[page.redirect or page.soft_redirect or ""]
    if page is None or page.item is None:
        return []
    item = sample.items[page.item]
    if item.main_topic:
        item = sample.items[item.main_topic]
    return [sample.items[value].label or value for value in item.preferred or item.instance_of]


def test_scraper_reads_the_sample_from_the_server(tmp_path: Path) -> None:
    sample = read_sample()
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    with serve_sample(sample) as url:
        client = ClientConfig(f"{url}/commons", f"{url}/wikidata", rate_per_minute=0, max_retries=0)
        for split in SPLITS:
            out = tmp_path / f"{split}.parquet"
            categories = sample_file(f"{split}_label_to_category.csv")
            scrape_file(categories, out, ScrapeConfig(split, client=client))
            for row in read_table(out, SCRAPED).to_pylist():
                labels = [value["label"] for value in row["instance_of"]]
                assert labels == expected_labels(sample, row["title"]), row["title"]
                statuses[row["status"]] += 1
                routes[row["route"]] += 1
    assert statuses == {"ok": 319, "no_instance_of": 2, "no_item": 2, "missing": 1, "invalid_title": 1}
    assert routes["hard_redirect"] == 2
    assert routes["soft_redirect"] == 5
    assert routes["soft_redirect+hard_redirect"] == 1
    assert routes["topic"] == 3


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DemoSummary, list[str]]:
    out = tmp_path_factory.mktemp("demo")
    stages: list[str] = []
    return out, run_demo(out, encoder="ngrams", on_stage=lambda stage, _: stages.append(stage)), stages


def test_outputs_are_consistent_with_each_other_and_the_summary(demo: tuple[Path, DemoSummary, list[str]]) -> None:
    out, summary, _ = demo
    clean = read_table(out / "clean.parquet", CLEAN)
    removed = read_table(out / "removed.parquet", REMOVED)
    clusters = read_table(out / "clusters.parquet", CLUSTERS)
    hierarchy = read_table(out / "hierarchy.parquet", HIERARCHY)
    assert len(clean) + len(removed) == 325
    assert set(removed["reason"].to_pylist()) == {"multiple", "irrelevant", "unlabelled"}
    assert set(clean["supercategory"].to_pylist()) == set(clusters["label"].to_pylist())
    assert clusters["suggested_group"].null_count < len(clusters) / 10
    built = {root: Counter(groups) for root, groups in summary.groups.items()}
    assert sum(groups.total() for groups in built.values()) == len(hierarchy)
    for row in hierarchy.to_pylist():
        built[row["natural_or_human_made"]][row["hierarchical_label"]] -= 1
    assert not any(groups.total() for groups in built.values())


def test_summary_lists_groups_and_existing_outputs(demo: tuple[Path, DemoSummary, list[str]]) -> None:
    out, summary, stages = demo
    assert stages == ["scrape train", "scrape index", "clean", "embed", "cluster", "suggest", "export", "build"]
    text = format_demo(summary)
    assert all(group in text for groups in summary.groups.values() for group in groups)
    listed = [
        name for line in text.partition("In ")[2].splitlines()[1:] for name in line[2:].split("  ")[0].split(", ")
    ]
    assert len(listed) == 13
    assert [name for name in listed if not (out / name).is_file()] == []


@pytest.mark.slow
def test_sheet_entries_are_discarded_by_force_only(demo: tuple[Path, DemoSummary, list[str]], tmp_path: Path) -> None:
    shutil.copytree(demo[0], tmp_path, dirs_exist_ok=True)
    sheet = tmp_path / "review" / f"{ANNOTATORS[0]}.csv"
    fill(sheet, **{csv_rows(sheet)[3]["label_id"]: {"decision": "unsure"}})
    run_demo(tmp_path, encoder="ngrams")
    assert csv_rows(sheet)[3]["decision"] == "unsure"
    run_demo(tmp_path, encoder="ngrams", force=True)
    assert not any(row["decision"] for row in csv_rows(sheet))


@pytest.mark.slow
def test_command_prints_stages_and_groups(tmp_path: Path) -> None:
    run = CliRunner().invoke(cli.app, ["demo", "-o", str(tmp_path)])
    assert run.exit_code == 0, run.output
    printed = [line.removeprefix("== ") for line in run.stdout.splitlines() if line.startswith("== ")]
    assert printed == ["scrape train", "scrape index", "clean", "embed", "cluster", "suggest", "export", "build"]
    assert "human-made: " in run.stdout
    assert f"In {tmp_path}" in run.stdout


def test_variables_are_those_of_the_scrape() -> None:
    commons, wikidata, _ = format_served("http://127.0.0.1:8000").splitlines()
    assert commons == "export HGLD_COMMONS_URL=http://127.0.0.1:8000/commons"
    assert wikidata == "export HGLD_WIKIDATA_URL=http://127.0.0.1:8000/wikidata"


@pytest.mark.slow
def test_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hgld", "demo", "--serve"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip().partition("HGLD_COMMONS_URL=")[2]
            call = {"action": "query", "titles": "Category:Matterhorn", "prop": "pageprops"}
            answer = requests.post(f"{url}/w/api.php", call, timeout=10).json()
            assert answer["query"]["pages"][0]["pageprops"]["wikibase_item"]
        finally:
            server.send_signal(signal.SIGINT)
            kill = threading.Timer(30, server.kill)  # a job in the background may have been started to ignore signals
            kill.start()
            _, errors = server.communicate()
            kill.cancel()
    assert (server.returncode, errors) == (0, "")
    assert not any(tmp_path.iterdir())
