"""What launchers of runs share: the files of the process of a run, and the report of failed runs.

::

    OUT/runs/METHOD/seed0.json    task of the process, see hgld.benchmark.worker
    OUT/runs/METHOD/seed0.log     its output, from the last time that it ran
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hgld.benchmark.runs import Run
from hgld.benchmark.worker import WorkerTask
from hgld.errors import ConfigurationError
from hgld.progress import Progress

#: Module that trains and evaluates the run of a task file, which is its first argument; the second one is the device.
WORKER_MODULE = "hgld.cli.benchmark_worker"
_MAX_ERROR_LINES = 6


class Launcher(Protocol):
    """Trains and evaluates runs in processes of their own."""

    @property
    def n_processes(self) -> int:
        """Number of processes that work on a run together."""

    def launch(self, tasks: Sequence[WorkerTask], out: Path, *, progress: Progress | None = None) -> None:
        """Train and evaluate runs.

        Args:
            tasks: Runs in the order in which they start.
            out: Output folder of the comparison.
            progress: Progress in runs.

        Raises:
            KeyboardInterrupt: A signal asked the process to stop.
            ConfigurationError: Runs have failed; the others are done.
        """


@dataclass(frozen=True)
class FailedRun:
    """A run whose process failed.

    Args:
        run: The run.
        outcome: How the process ended, such as ``exit code 1``.
        error: Indented lines of the error message.
    """

    run: Run
    outcome: str
    error: str


def task_file(run: Run) -> Path:
    """Return the file of the task of a run."""
    return run.folder.with_name(f"{run.folder.name}.json")


def log_file(run: Run) -> Path:
    """Return the file of the output of the process of a run."""
    return run.folder.with_name(f"{run.folder.name}.log")


def error_lines(log: Path) -> str:
    """Return the error message in the log of a process, or else the last lines of the log; indented."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    selected = lines[errors[0] :][:_MAX_ERROR_LINES] if errors else lines[-_MAX_ERROR_LINES:]
    return "\n".join(f"    {line}" for line in selected)


def raise_failures(failed: Sequence[FailedRun], n_runs: int) -> None:
    """Raise an error that reports failed runs, if there are any.

    Raises:
        ConfigurationError: Runs have failed.
    """
    if failed:
        errors = "\n".join(f"{each.run} ({each.outcome}, {log_file(each.run)}):\n{each.error}" for each in failed)
        raise ConfigurationError(
            f"{len(failed)} of {n_runs} runs failed, the others are done; fix the errors below and run the same "
            f"command again, which resumes from here, or exclude the methods:\n{errors}"
        )
