"""Trainings of two tasks on a real SLURM cluster that are stopped, and go on by themselves.

Times are all that may differ from an undisturbed run.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hgld.models.model_loading import read_checkpoint
from tests.slurm_cluster import SlurmCluster
from tests.training.test_trainer import leaves

pytestmark = pytest.mark.slow

#: A job that is stopped before its time limit has to requeue itself; one that is preempted is requeued anyway.
BATCH_SCRIPT = """
srun --kill-on-bad-exit=0 {python} -m tests.training.slow_training {manifest} {out}
code=$?
if [ $code = 130 ] || [ $code = 143 ]; then scontrol requeue $SLURM_JOB_ID; fi
exit $code
"""


class Training:
    """A training in a folder, as a job."""

    def __init__(self, cluster: SlurmCluster, manifest: Path, out: Path) -> None:
        self.cluster, self.manifest, self.out = cluster, manifest, out
        self.log = out.with_suffix(".log")

    def submit(self, *options: str) -> str:
        script = BATCH_SCRIPT.format(python=sys.executable, manifest=self.manifest, out=self.out)
        environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        settings = ("--ntasks=2", "--requeue", "--open-mode=append", f"--output={self.log}")
        return self.cluster.submit(script, *settings, *options, environment=environment)

    def wait_for_steps(self, n_steps: int) -> None:
        """Wait until so many more steps are in the history."""
        wanted = self.n_steps() + n_steps
        deadline = time.monotonic() + 200
        while self.n_steps() < wanted:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def n_steps(self) -> int:
        history = self.out / "history.jsonl"
        return sum('"kind": "step"' in line for line in history.read_text().splitlines()) if history.exists() else 0

    def result(self) -> tuple[list[Any], list[torch.Tensor | Any]]:
        """Return the history without times, and the leaves of both checkpoints."""
        lines = [json.loads(line) for line in (self.out / "history.jsonl").read_text().splitlines()]
        kept = [{key: line[key] for key in line if key not in ("images_per_s", "waiting_share")} for line in lines]
        return kept, [leaves(read_checkpoint(self.out / name)) for name in ("last.pt", "best.pt")]


@pytest.fixture(scope="module")
def undisturbed(cluster: SlurmCluster, manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A training of two tasks on one node."""
    training = Training(cluster, manifest, tmp_path_factory.mktemp("undisturbed") / "run")
    job = training.submit("--nodes=1", "--overcommit")
    assert cluster.wait_for(job, timeout=300)["JobState"] == "COMPLETED", training.log.read_text()
    return training


def test_job_that_is_stopped_preempted_and_killed_goes_on(
    cluster: SlurmCluster, undisturbed: Training, tmp_path: Path
) -> None:
    training = Training(cluster, undisturbed.manifest, tmp_path / "run")
    job = training.submit("--nodes=2", "--partition=spare")
    training.wait_for_steps(2)
    cluster.run("scancel", "--signal=TERM", job)  # as at the end of --time with --signal=TERM@60
    cluster.start_again(job)
    assert "interrupted; continue with --resume" in training.log.read_text()
    saved = read_checkpoint(training.out / "last.pt")["step"]
    assert saved >= 2
    training.wait_for_steps(1)
    better = cluster.submit("true", "--nodes=2", "--partition=main")
    cluster.wait_for(better)
    cluster.start_again(job)
    assert read_checkpoint(training.out / "last.pt")["step"] > saved, "preemption left no time to save"
    training.wait_for_steps(1)
    cluster.run("scancel", "--signal=KILL", job)
    cluster.wait_for(job)
    again = training.submit("--nodes=2")
    assert cluster.wait_for(again, timeout=300)["JobState"] == "COMPLETED", training.log.read_text()
    assert training.result() == undisturbed.result()
