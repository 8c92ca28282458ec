"""Runs as jobs of SLURM, on a real cluster of two nodes with a core each."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hgld.benchmark.slurm_launcher import SlurmLauncher
from hgld.cli import app
from hgld.errors import ConfigurationError
from tests.benchmark.comparisons import write_comparison, write_data

#: Files of a comparison that hold neither times nor the names of machines.
RESULTS = (
    *("results.md", "results.tex", "results.parquet"),
    *("runs/*/seed*/evaluation/embeddings.npy", "runs/*/seed*/evaluation/per_query.parquet"),
)
#: Changes to a training that takes many seconds, and saves often.
LONG: dict[str, Any] = {"steps": 2000, "checkpoint_steps": 20, "evaluation": {"metrics": ["H-AP"], "every": 10_000}}


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
            SlurmLauncher(**options)  # type: ignore[arg-type]


def test_given_options_replace_defaults_but_not_what_the_launcher_needs() -> None:
    options = SlurmLauncher("--no-requeue --comment='a b'", max_running=3).submit_options(5, Path("/runs/50%"))
    assert options.index("--requeue") < options.index("--no-requeue") < options.index("--array=1-5%3")
    assert "--comment=a b" in options
    assert "--output=/runs/50%%/slurm/%A_%a.out" in options


def test_script_quotes_paths_and_starts_the_processes_of_a_run() -> None:
    task = Path("/mine and yours/seed0.json")
    alone = SlurmLauncher(device="cpu").script([task])
    assert "tasks=('/mine and yours/seed0.json')" in alone
    assert f'\nexec {sys.executable} -m hgld.cli.benchmark_worker "$task" cpu --no-parent\n' in alone
    assert f"\nexec srun --kill-on-bad-exit=1 {sys.executable} -m " in SlurmLauncher(n_processes=4).script([task])


def test_options_of_jobs_need_the_launcher(tmp_path: Path) -> None:
    write_data(tmp_path)
    command = ["benchmark", str(write_comparison(tmp_path)), "-o", str(tmp_path / "out"), "--sbatch", "--time=1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "add --launcher slurm" in result.stderr


def test_machine_without_slurm_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ["benchmark", str(write_comparison(tmp_path)), "-o", str(tmp_path / "out"), "--launcher", "slurm"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "there are no programs of SLURM here" in result.stderr
