from pathlib import Path

import pytest

from hgld.compute.slurm import SlurmTask, current_task
from hgld.errors import ConfigurationError

#: Variables that SLURM 22.05 sets for the second task of a step on two nodes.
TASK = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "n[2-3]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
}
#: The same for a batch script of ``--ntasks=2``, which runs once.
BATCH_SCRIPT = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
}


def test_task_of_a_step() -> None:
    expected = SlurmTask(rank=1, count=2, local_rank=0, job_id=17, step_id=3, n_nodes=2, node_list="n[2-3]")
    assert current_task(TASK) == expected


@pytest.mark.parametrize("environment", [{}, BATCH_SCRIPT, {**TASK, "SLURM_STEP_NUM_TASKS": "1"}])
def test_commands_outside_a_step_of_several_tasks_are_alone(environment: dict[str, str]) -> None:
    assert current_task(environment) is None


def task(job_id: int, step_id: int, n_nodes: int = 2) -> SlurmTask:
    return SlurmTask(0, 2, 0, job_id, step_id, n_nodes, "n[2-3]")


def test_neighbouring_jobs_and_their_steps_meet_at_different_ports() -> None:
    ports = {task(job_id, step_id).port for job_id in range(123_400, 124_400) for step_id in range(8)}
    assert len(ports) == 8000
    assert min(ports) > 1024
    assert max(ports) < 32_768  # those that Linux gives to outgoing connections


def test_first_node_is_what_scontrol_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert task(1, 0, n_nodes=1).first_node() == "127.0.0.1"
    with pytest.raises(ConfigurationError, match=r"hostnames n\[2-3\] fails .*scontrol.*; export MASTER_ADDR"):
        task(1, 0).first_node()
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\ntest "$*" = "show hostnames n[2-3]" && echo n2 && echo n3\n')
    program.chmod(0o755)
    assert task(1, 0).first_node() == "n2"
