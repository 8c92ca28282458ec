"""Training and evaluation of runs by executors: on this machine, or as jobs of a SLURM cluster.

::

    OUT/runs/METHOD/seed0.json    task of the process, see hgld.benchmark.worker
    OUT/runs/METHOD/seed0.log     its output, from the last time that it ran
    OUT/slurm                     see hgld.compute.slurm
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from hgld.benchmark.runs import Run
from hgld.benchmark.worker import WorkerTask, is_done
from hgld.compute.executors import DEVICE, Executor, LocalExecutor, Slot, Task, parse_slots
from hgld.compute.slurm import SlurmExecutor
from hgld.errors import ConfigurationError
from hgld.progress import Progress
from hgld.training.run_folder import RunFolder

__all__ = ["LocalLauncher", "Slot", "SlurmLauncher", "parse_slots"]

#: Module that trains and evaluates the run of a task file, which is its first argument; the second one is the device.
WORKER_MODULE = "hgld.cli.benchmark_worker"


@dataclass(frozen=True)
class LocalLauncher:
    """Trains and evaluates runs on this machine.

    Args:
        slots: Devices, each slot of which takes one run at a time.
    """

    slots: Sequence[Slot]

    @property
    def n_processes(self) -> int:
        """Number of processes that work on a run together."""
        return len(self.slots[0].devices)

    def launch(self, tasks: Sequence[WorkerTask], out: Path, *, progress: Progress | None = None) -> None:
        """Train and evaluate runs in child processes, one run at a time per slot.

        Raises:
            KeyboardInterrupt: A signal asked the process to stop; the children have saved their last step.
            ConfigurationError: Runs have failed; the others are done.
        """
        executed = [executor_task(task, self.n_processes, DEVICE) for task in tasks]
        _run(LocalExecutor(self.slots), executed, out, progress)


@dataclass(frozen=True)
class SlurmLauncher:
    """Trains and evaluates runs as jobs of SLURM.

    Args:
        options: Options of ``sbatch`` for the job of one run, such as ``--partition=gpu --gpus=1 --time=8:00:00``.
        device: Device of each process: ``cuda``, which is the GPU of its local rank, or ``cpu``.
        n_processes: Number of processes that work on a run together: tasks that ``srun`` starts, on one or several
            nodes.
        max_running: Largest number of runs at the same time; None for as many as SLURM starts.

    Raises:
        ConfigurationError: An option is invalid.
    """

    options: str = ""
    device: str = "cuda"
    n_processes: int = 1
    max_running: int | None = None

    def __post_init__(self) -> None:
        if self.device not in ("cuda", "cpu"):
            raise ConfigurationError(
                f'`devices` are "{self.device}"; expected cuda or cpu, as SLURM chooses the devices of a job'
            )
        _ = self.executor  # which checks the other options

    @cached_property
    def executor(self) -> SlurmExecutor:
        """What submits the jobs."""
        return SlurmExecutor(self.options, self.n_processes, self.max_running)

    def launch(self, tasks: Sequence[WorkerTask], out: Path, *, progress: Progress | None = None) -> None:
        """Submit runs, unless they are submitted already, and wait until their jobs are over.

        Raises:
            KeyboardInterrupt: A signal asked the process to stop; the jobs go on.
            ConfigurationError: Runs have failed, and the others are done; or SLURM refuses the jobs; or a run was
                submitted with other settings.
            SourceError: SLURM does not say what became of jobs that were submitted before.
        """
        executed = [executor_task(task, self.n_processes, self.device, "--no-parent") for task in tasks]
        _run(self.executor, executed, out, progress)


def executor_task(task: WorkerTask, n_processes: int, *options: str) -> Task:
    """Return the process that trains and evaluates a run, with options of the worker."""
    run, benchmark = task.run, task.benchmark
    path = run.folder.with_name(f"{run.folder.name}.json")
    decisive = (run.settings, benchmark.evaluation, benchmark.metrics)  # titles and other runs may change
    return Task(
        name=str(run),
        arguments=(WORKER_MODULE, str(path.absolute()), *options),
        log=path.with_suffix(".log"),
        is_done=partial(_is_done, task, n_processes),
        prepare=partial(task.write, path),
        saved=partial(_checkpoint_time, run),
        result=hashlib.sha256(repr(decisive).encode()).hexdigest(),
    )


def _run(executor: Executor, tasks: Sequence[Task], out: Path, progress: Progress | None) -> None:
    """Run tasks, and raise an error that reports those that failed."""
    failed = executor.run(tasks, out / "slurm", progress=progress)
    if failed:
        errors = "\n".join(f"{each}:\n{each.error}" for each in failed)
        raise ConfigurationError(
            f"{len(failed)} of {len(tasks)} runs failed, the others are done; fix the errors below and run the same "
            f"command again, which resumes from here, or exclude the methods:\n{errors}"
        )


def _is_done(task: WorkerTask, n_processes: int) -> bool:
    try:
        return is_done(task.benchmark, task.run, n_processes=n_processes)
    except ConfigurationError:  # the run with other settings, which the task is to replace
        return False


def _checkpoint_time(run: Run) -> int | None:
    path = RunFolder(run.folder).last
    return path.stat().st_mtime_ns if path.is_file() else None
