"""Runs as jobs of SLURM, on a real cluster of two nodes with a core each."""

import json
import os
import platform
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner, Result

from hgld.cli import app
from hgld.compute import slurm
from hgld.compute.executors import Task
from hgld.compute.slurm import SlurmExecutor
from hgld.errors import ConfigurationError
from tests.benchmark.comparisons import write_comparison, write_data
from tests.commands import run_hgld
from tests.slurm_cluster import SlurmCluster, slurm_cluster

#: Files of a comparison that hold no times.
RESULTS = ("results.tex", "runs/*/seed*/*.pt", "runs/*/seed*/evaluation/*")
#: Changes to a training that takes some seconds, and saves often.
LONG: dict[str, Any] = {"steps": 800, "checkpoint_steps": 20, "evaluation": {"metrics": ["H-AP"], "every": 10_000}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Data in the working folder; what is computed in this process has a thread, as a job on a node with a core."""
    write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture
def on_cluster(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    monkeypatch.setenv("SLURM_CONF", cluster.variables["SLURM_CONF"])
    return cluster


def benchmark(out: str, *options: str) -> Result:
    """Run the comparison in the working folder as jobs."""
    jobs = ("--launcher", "slurm", "--devices", "cpu")
    return CliRunner().invoke(app, ["benchmark", "comparison.yaml", "-o", out, *jobs, *options])


def benchmark_here(out: str, *options: str) -> None:
    """Run the comparison in child processes on this machine."""
    run_hgld("benchmark", "comparison.yaml", "-o", out, "--devices", "cpu", *options)


def results(out: Path) -> dict[str, bytes]:
    """Return the contents of the files that hold no times, by their paths."""
    paths = [path for pattern in RESULTS for path in out.glob(pattern)]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in paths}


def require_same_run(run: Path, other: Path) -> None:
    """Compare the bytes of checkpoints and embeddings."""
    for name in ("last.pt", "evaluation/embeddings.npy"):
        assert (run / name).read_bytes() == (other / name).read_bytes(), name


def n_steps(run: Path) -> int:
    history = run / "history.jsonl"
    return history.read_text().count('"kind": "step"') if history.exists() else 0


def once(condition: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    """Do something in a thread as soon as a condition holds."""

    def wait() -> None:
        while not condition():
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def submitted(out: Path) -> list[str]:
    """Return the recorded tasks of arrays, such as 12_3."""
    return [job["id"] for job in json.loads((out / "slurm" / "jobs.json").read_text())]


def test_invalid_options_are_errors() -> None:
    for options, message in [
        ({"options": "--array=1-9"}, "`sbatch` has the option --array=1-9, which hgld sets itself"),
        ({"options": "--time=1 -J mine"}, "`sbatch` has the option -J, which hgld sets itself"),
        ({"options": "--comment='mine"}, "`sbatch` is --comment='mine: No closing quotation"),
        ({"device": "cuda:1"}, '`devices` are "cuda:1"; expected cuda or cpu'),
        ({"n_processes": 0}, "`per_run` is 0"),
        ({"max_running": 0}, "`max_running` is 0"),
    ]:
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            SlurmExecutor(**options)  # type: ignore[arg-type]


def test_given_options_replace_defaults_but_not_what_the_launcher_needs() -> None:
    executor = SlurmExecutor("--no-requeue --comment='a b'", max_running=3)
    options = executor.submit_options(5, Path("/runs/50%/slurm"))
    assert options.index("--requeue") < options.index("--no-requeue") < options.index("--array=1-5%3")
    assert "--comment=a b" in options
    assert "--output=/runs/50%%/slurm/%A_%a.out" in options


def test_script_quotes_paths_and_starts_the_processes_of_a_run(tmp_path: Path) -> None:
    log = tmp_path / "mine and yours" / "seed0.log"
    log.parent.mkdir()
    task = Task("a run", ("platform", "it's mine", "$HOME"), log, lambda: True)
    alone = SlurmExecutor().script([task])
    subprocess.run(["bash", "-c", alone], env=os.environ | {"SLURM_ARRAY_TASK_ID": "1"}, check=True)
    assert log.read_text().strip() == platform.platform()
    assert '\neval "exec ${commands[' in alone
    assert '\neval "srun --kill-on-bad-exit=0 ${commands[' in SlurmExecutor(n_processes=4).script([task])


def test_options_of_jobs_need_the_launcher(tmp_path: Path) -> None:
    write_data(tmp_path)
    command = ["benchmark", str(write_comparison(tmp_path)), "-o", str(tmp_path / "out"), "--sbatch", "--time=1"]
    assert "add --launcher slurm" in run_hgld(*command, code=1).stderr


def test_machine_without_slurm_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ["benchmark", str(write_comparison(tmp_path)), "-o", str(tmp_path / "out"), "--launcher", "slurm"]
    assert "there are no programs of SLURM here" in run_hgld(*command, code=1).stderr


@pytest.mark.slow
def test_jobs_make_the_files_that_a_run_on_this_machine_makes(folder: Path, on_cluster: SlurmCluster) -> None:
    write_comparison(folder)
    done = benchmark("out", "--max-running", "2", "--sbatch", "--time=10 --comment='two words'")
    assert done.exit_code == 0, done.output
    assert "2 runs, 0 of them done before" in done.stdout
    assert "up to date" in benchmark("out").stdout
    benchmark_here("here")
    here = results(folder / "here")
    assert len(here) == 1 + 2 * 4
    assert results(folder / "out") == here
    rows, rows_here = (pd.read_parquet(folder / out / "results.parquet") for out in ("out", "here"))
    pd.testing.assert_frame_equal(rows.drop(columns="train_seconds"), rows_here.drop(columns="train_seconds"))
    assert submitted(folder / "out") == []
    assert not list((folder / "out" / "slurm").glob("*.out"))  # SLURM had nothing to say


@pytest.mark.slow
def test_command_leaves_jobs_and_finds_them_again_and_a_killed_one_resumes(
    folder: Path, on_cluster: SlurmCluster, caplog: pytest.LogCaptureFixture
) -> None:
    write_comparison(folder, pictures=False, happier=LONG)
    only = ("--method", "happier")
    run = folder / "out" / "runs" / "happier" / "seed0"

    once(lambda: n_steps(run) > 50, lambda: os.kill(os.getpid(), signal.SIGINT))
    first = benchmark("out", *only)
    assert first.exit_code == 130
    (task,) = submitted(folder / "out")
    assert f"jobs that go on: 1; to cancel them: scancel {task.partition('_')[0]}" in caplog.text
    assert on_cluster.facts(task)["JobState"] == "RUNNING"

    write_comparison(folder, pictures=False, happier={**LONG, "steps": 801})
    other = benchmark("out", *only, "--force")
    assert "happier, seed 0" in other.stderr
    assert f"or cancel them (scancel {task})" in other.stderr
    write_comparison(folder, pictures=False, happier=LONG)

    step = n_steps(run)
    once(lambda: n_steps(run) > step + 50, lambda: on_cluster.run("scancel", "--signal=KILL", "--batch", task))
    second = benchmark("out", *only)
    assert second.exit_code == 0, second.output
    assert "stopped (FAILED, exit code -9); it is submitted again" in caplog.text
    benchmark_here("here", *only)
    require_same_run(run, folder / "here" / "runs" / "happier" / "seed0")


@pytest.mark.slow
def test_requeued_run_resumes_and_a_failed_one_is_reported(folder: Path, on_cluster: SlurmCluster) -> None:
    diverging = {"optimiser": {"head": {"lr": 1e30}}, "steps": 20}
    write_comparison(folder, pictures=False, happier=LONG, roadmap=diverging)
    run = folder / "out" / "runs" / "happier" / "seed0"
    tasks: list[str] = []

    def requeue() -> None:
        tasks.extend(submitted(folder / "out"))
        on_cluster.requeue(tasks[-1])

    requeued = once(lambda: n_steps(run) > 50, requeue)
    done = benchmark("out")
    requeued.join(10)
    assert done.exit_code == 1
    assert "1 of 2 runs failed, the others are done" in done.stderr
    failure = r"roadmap, seed 0 \(job \d+_1: FAILED, exit code 1, .*seed0.log\):\n    error: at step 1"
    assert re.search(failure, done.stderr)
    assert on_cluster.facts(tasks[-1])["Restarts"] == "1"
    benchmark_here("here", "--method", "happier")
    require_same_run(run, folder / "here" / "runs" / "happier" / "seed0")


@pytest.mark.slow
def test_processes_of_a_run_are_tasks_of_a_step(folder: Path, on_cluster: SlurmCluster) -> None:
    write_comparison(folder, pictures=False)
    only = ("--method", "happier")
    done = benchmark("out", *only, "--per-run", "2", "--sbatch", "--nodes=2")
    assert done.exit_code == 0, done.output
    record = json.loads((folder / "out" / "runs" / "happier" / "seed0" / "run.json").read_text())
    assert record["processes"] == 2


@pytest.mark.slow
def test_refused_and_cancelled_jobs_are_errors(folder: Path, on_cluster: SlurmCluster) -> None:
    write_comparison(folder, pictures=False)
    refused = benchmark("out", "--sbatch", "--partition=nowhere")
    assert refused.exit_code == 1
    assert refused.stderr.endswith(
        "SLURM does not take the job: Batch job submission failed: Invalid partition name specified\n"
    )
    record = folder / "out" / "slurm" / "jobs.json"
    once(record.is_file, lambda: on_cluster.run("scancel", submitted(folder / "out")[0].partition("_")[0]))
    cancelled = benchmark("out", "--sbatch", "--begin=now+1hour")
    assert cancelled.exit_code == 1
    assert "2 of 2 runs failed" in cancelled.stderr
    assert "CANCELLED" in cancelled.stderr
    assert submitted(folder / "out") == []


@pytest.mark.slow
def test_accounting_knows_tasks_that_the_controller_has_forgotten(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/usr/bin/env bash\nif [ $SLURM_ARRAY_TASK_ID = 2 ]; then exit 3; fi\nkill -9 $$\n"
    with slurm_cluster(shared, accounting=1) as cluster:
        monkeypatch.setenv("SLURM_CONF", cluster.variables["SLURM_CONF"])
        array = slurm.submit_array(script, ["--array=2-3", "--output=/dev/null", "--account=test"])
        tasks = [f"{array}_2", f"{array}_3"]
        for task in tasks:
            cluster.wait_for(task)
        asked = slurm.task_states([*tasks, "77_1"])
        assert asked is not None
        assert asked["77_1"].name == "UNKNOWN"
        assert [(asked[task].name, asked[task].exit_code) for task in tasks] == [("FAILED", 3), ("FAILED", -9)]
        deadline = time.monotonic() + 30
        while (accounted := slurm._accounted(tasks)).keys() != set(tasks):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert [accounted[task].exit_code for task in tasks] == [3, -9]
        assert [accounted[task].stopped for task in tasks] == [False, True]
