"""The Snakemake pipeline of retrieval on a cluster, with real photographs and jobs that are killed."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipelines.retrieval import SLURM_PROFILE, SMALL_JOBS, RetrievalPipeline, washington_settings
from tests.pipelines.test_label_pipeline import run_commands
from tests.slurm_cluster import SlurmCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake_executor_plugin_slurm") is None,
        reason="Snakemake's plugin for SLURM is not installed (pip install '.[slurm]')",
    ),
]


def wait_until(condition: Callable[[], bool], timeout: float = 200) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def jobs_of(cluster: SlurmCluster, rule: str) -> list[str]:
    """Ids of all jobs of a rule, also those that are over; the tasks of an array as ``7_1``."""
    lines = cluster.run("squeue", "--states=all", "--array", "--noheader", "--format=%i %k").splitlines()
    return [line.split()[0] for line in lines if line.split()[1].startswith(f"rule_{rule}")]


def test_killed_and_requeued_parts_end_with_the_bytes_of_the_commands(
    wide_cluster: SlurmCluster, shared: Path, tmp_path: Path
) -> None:
    pipeline = RetrievalPipeline(tmp_path, washington_settings(shared, parts=2), wide_cluster.variables)
    shards = pipeline.out / "washington" / ".tiny.parquet.parts"
    arguments = ("--workflow-profile", str(SLURM_PROFILE), *SMALL_JOBS, "--retries", "0")

    first = pipeline.start(*arguments)
    wait_until(lambda: len(list(shards.glob("*.safetensors"))) > 0)
    one, other = sorted(jobs_of(wide_cluster, "embed_part"))
    assert one.partition("_")[0] == other.partition("_")[0], "the parts are one array"
    wide_cluster.requeue(one)
    wide_cluster.run("scancel", "--signal=KILL", "--full", other)
    output, _ = first.communicate(timeout=300)
    assert first.returncode != 0
    assert "embed_part" in output
    assert wide_cluster.facts(one)["Restarts"] == "1"
    assert not (pipeline.out / "washington" / "tiny.parquet").exists()

    pipeline.run(*arguments)
    assert len(jobs_of(wide_cluster, "embed_part")) == 3, "the part that was requeued is done"
    assert not shards.exists()
    assert not list(pipeline.out.rglob("*.mark"))
    assert pipeline.planned() == {}

    (tmp_path / "expected").mkdir()
    run_commands(
        tmp_path,
        pipeline.process_environment,
        f"embed-images --manifest out/washington/manifest.parquet --images {shared / 'wa_gldv2' / 'train'}"
        f" {pipeline.settings['models']['tiny']} --workers 0 -o expected/tiny.parquet",
    )
    for name in ("tiny.parquet", "tiny.skipped.csv"):
        assert (pipeline.out / "washington" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes(), name
