"""The Snakemake pipeline of labels on a cluster, by its profile alone."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hgld.demo import sample
from hgld.demo.sample import read_sample
from tests.pipelines.test_label_pipeline import SNAKEFILE, Pipeline, needs_minilm, run_commands, started_rules
from tests.preloaded import preloaded_hgld
from tests.slurm_cluster import SlurmCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake_executor_plugin_slurm") is None,
        reason="Snakemake's plugin for SLURM is not installed (pip install '.[slurm]')",
    ),
    needs_minilm,
]

PROFILE = SNAKEFILE.parent / "profiles" / "slurm"


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """The pipeline on the bundled sample; its commands start fast."""
    preloaded_folder = tmp_path / "preloaded"
    preloaded_folder.mkdir()
    folder = tmp_path / "work"
    with sample.serve_sample(read_sample()) as base_url, preloaded_hgld(preloaded_folder) as commands:
        yield Pipeline(folder, base_url, commands)


def test_stages_after_the_scrape_are_two_jobs_with_the_results_of_the_commands(
    pipeline: Pipeline, wide_cluster: SlurmCluster
) -> None:
    pipeline = pipeline.with_settings(decisions="annotations/decisions/final.csv")
    targets = ("out/label_embeddings.parquet", "out/hierarchy.parquet")
    arguments = (*targets, "--workflow-profile", str(PROFILE), "--slurm-init-seconds-before-status-checks", "2")
    run = pipeline.run(*arguments, environment=wide_cluster.variables)
    assert run.returncode == 0, run.stderr
    assert sorted(started_rules(run)) == ["scrape", "scrape"], "run on the machine of Snakemake"
    name = next(line.split()[-1] for line in run.stderr.splitlines() if line.startswith("SLURM run ID:"))
    jobs = wide_cluster.run("squeue", "--states=all", f"--name={name}", "--noheader", "--format=%i").split()
    keys = ("JobState", "NumCPUs", "MinMemoryNode", "TimeLimit", "Requeue")
    facts = [tuple(map(wide_cluster.facts(job).get, keys)) for job in sorted(jobs, key=int)]
    assert facts == [
        ("COMPLETED", "4", "8000M", "02:30:00", "1"),  # the most of clean and embed, and their times together
        ("COMPLETED", "1", "4000M", "00:30:00", "1"),  # build
    ]

    expected = pipeline.folder / "expected"
    expected.mkdir()
    for path in pipeline.out.glob("scraped_*.parquet"):
        shutil.copy(path, expected)
    run_commands(
        expected,
        pipeline.environment,
        "clean scraped_train.parquet scraped_index.parquet -o clean.parquet"
        " --irrelevant ../annotations/irrelevant_labels.csv",
        "embed clean.parquet -o label_embeddings.parquet --encoder minilm",
        "build clean.parquet --decisions ../annotations/decisions/final.csv --taxonomy ../annotations/taxonomy.csv"
        " -o hierarchy.parquet",
    )
    for name in ("clean.parquet", "removed.parquet", "label_embeddings.parquet", "hierarchy.parquet"):
        assert (pipeline.out / name).read_bytes() == (expected / name).read_bytes(), name
    again = pipeline.run(*arguments, environment=wide_cluster.variables)
    assert "Nothing to be done" in again.stdout + again.stderr
