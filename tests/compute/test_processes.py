"""Processes that work together, started by torchrun or by SLURM."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch.distributed

from hgld.compute.processes import Processes, current_processes, joined_processes, launched_processes, local_device
from hgld.compute.slurm import SlurmTask, current_task
from hgld.errors import ConfigurationError
from tests.slurm_cluster import SlurmCluster

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


#: Evaluates together with the other processes and alone, in the same process, as threads may change the last bits.
SCRIPT = """
import sys
from pathlib import Path

import numpy as np

from hgld.evaluation import evaluate_retrieval
from hgld.compute.processes import current_processes, joined_processes

with joined_processes() as processes:
    assert current_processes() == processes
    assert processes.gather(processes.rank) == list(range(processes.count))
    rng = np.random.default_rng(0)
    fine = rng.integers(20, size=150)
    labels = np.stack([fine, fine // 4], axis=1)
    embeddings = rng.normal(size=(150, 32)).astype(np.float32)
    for block_size in (7, 100):  # many blocks; or one and a half, so that a third process is idle
        for name, those in (("together", processes), ("alone", None)):
            result = evaluate_retrieval(embeddings, labels, block_size=block_size, processes=those)
            name = f"{processes.count}_{processes.rank}_{block_size}_{name}.pkl"
            result.per_query.to_pickle(Path(sys.argv[1]) / name)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Return the per-query values of two and of three processes by the names of their files."""
    folder = tmp_path_factory.mktemp("processes")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    running = [
        subprocess.Popen([*torchrun, count, str(script), str(folder)], env=environment, stderr=subprocess.PIPE)
        for count in ("2", "3")
    ]
    for process in running:
        errors = process.communicate(timeout=120)[1].decode()
        assert process.returncode == 0, errors
    return {path.stem: pd.read_pickle(path) for path in folder.glob("*.pkl")}


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [7, 100])
@pytest.mark.parametrize(("count", "rank"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_several_processes_return_the_numbers_of_one(
    outputs: dict[str, pd.DataFrame], count: int, rank: int, block_size: int
) -> None:
    together, alone = (outputs[f"{count}_{rank}_{block_size}_{name}"] for name in ("together", "alone"))
    assert alone.notna().all(axis=None)
    pd.testing.assert_frame_equal(together, alone, check_exact=True)
    pd.testing.assert_frame_equal(together, outputs[f"2_0_{block_size}_alone"], check_exact=True)


def test_single_process_does_not_initialise_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_processes() as processes:
        assert processes == current_processes() == Processes(0, 1)
        assert processes.part == (0, 1)
        assert processes.gather("mine") == ["mine"]
    assert not torch.distributed.is_initialized()


def test_current_processes_are_those_of_the_default_group(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        assert current_processes() == Processes(0, 1)
    finally:
        torch.distributed.destroy_process_group()
    assert current_processes() == Processes()


def test_each_local_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert local_device("cuda") == "cuda:0"  # torch.cuda.set_device takes no device without a number
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert local_device("cuda") == "cuda:2"
    assert local_device("cuda:1") == "cuda:1"


@pytest.mark.parametrize(("n_gpus", "device"), [(4, "cuda:1"), (1, "cuda:0")])
def test_tasks_use_the_gpu_of_their_local_rank_or_the_only_one(
    monkeypatch: pytest.MonkeyPatch, n_gpus: int, device: str
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**TASK, "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    assert local_device("cuda") == device


@pytest.mark.parametrize(
    ("environment", "processes"),
    [
        ({}, Processes(0, 1)),
        (TASK, Processes(1, 2)),
        ({**TASK, "RANK": "5", "WORLD_SIZE": "8"}, Processes(5, 8)),  # torchrun on each of two nodes
        ({**TASK, "RANK": "0", "WORLD_SIZE": "1"}, Processes(0, 1)),
        ({**TASK, "WORLD_SIZE": "8"}, Processes(1, 2)),  # a batch script that exports what other programs want
    ],
)
def test_variables_of_torchrun_count_before_those_of_slurm(environment: dict[str, str], processes: Processes) -> None:
    assert launched_processes(environment) == processes


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_tasks_of_srun_work_together(cluster: SlurmCluster, tmp_path: Path, nodes: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    options = (f"--nodes={nodes}", "--ntasks=2", "--overcommit")
    cluster.run("srun", *options, sys.executable, tmp_path / "script.py", tmp_path)
    for rank in range(2):
        for block_size in (7, 100):
            together, alone = (
                pd.read_pickle(tmp_path / f"2_{rank}_{block_size}_{name}.pkl") for name in ("together", "alone")
            )
            pd.testing.assert_frame_equal(together, alone, check_exact=True)


@pytest.mark.slow
def test_torchrun_on_each_node_of_a_step(cluster: SlurmCluster, tmp_path: Path) -> None:
    script = (
        "from hgld.compute.processes import joined_processes\n"
        "with joined_processes() as processes:\n"
        "    print(processes.gather(processes.rank))\n"
    )
    (tmp_path / "script.py").write_text(script)
    printed = cluster.run(
        *("srun", "--nodes=2", "--ntasks=2", "bash", "-c"),
        f"{sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d "
        f"--rdzv-endpoint n0:$((SLURM_JOB_ID + 33000)) --rdzv-id $SLURM_JOB_ID {tmp_path / 'script.py'}",
    )
    # Lines of several processes may run into each other.
    assert printed.replace("\n", "") == "[0, 1, 2, 3]" * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "message"), [("before", "did not meet the others"), ("while", "lost another one, which ended")]
)
def test_process_that_dies_ends_the_others_with_a_message(
    cluster: SlurmCluster, tmp_path: Path, moment: str, message: str
) -> None:
    script = (
        "import os, sys\n"
        "from datetime import timedelta\n"
        "from hgld.compute.processes import joined_processes\n"
        "dies = os.environ['SLURM_PROCID'] == '1'\n"
        "if dies and sys.argv[1] == 'before':\n"
        "    os.kill(os.getpid(), 9)\n"
        "with joined_processes(join_timeout=timedelta(seconds=15)) as processes:\n"
        "    if dies:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    processes.gather(1)\n"
    )
    (tmp_path / "script.py").write_text(script)
    command = ("srun", "--ntasks=2", "--kill-on-bad-exit=0", sys.executable, str(tmp_path / "script.py"), moment)
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert f"ProcessError: process 0 of 2 (counted from 0) {message}" in done.stderr
    assert local_device("cpu") == "cpu"
