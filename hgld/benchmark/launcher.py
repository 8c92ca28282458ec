"""Runs as child processes, side by side on devices, each with its own log file; and what launchers share.

::

    OUT/runs/METHOD/seed0.json    task of the process, see hgld.benchmark.worker
    OUT/runs/METHOD/seed0.log     its output, from the last time that it ran

A failed process does not stop the others. When this process is stopped or dies, its children save their last step and
exit.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from hgld.benchmark.runs import Run
from hgld.benchmark.worker import WorkerTask
from hgld.compute.stop_signals import catch_stop_signals
from hgld.errors import ConfigurationError
from hgld.progress import NoProgress, Progress

log = logging.getLogger(__name__)

#: Module that trains and evaluates the run of a task file, which is its first argument; the second one is the device.
WORKER_MODULE = "hgld.cli.benchmark_worker"
_MAX_ERROR_LINES = 6
_POLL_S = 0.2


@dataclass(frozen=True)
class FailedRun:
    """A run whose process failed."""

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
    """Raise an error that reports failed runs, if there are any."""
    if failed:
        errors = "\n".join(f"{each.run} ({each.outcome}, {log_file(each.run)}):\n{each.error}" for each in failed)
        raise ConfigurationError(
            f"{len(failed)} of {n_runs} runs failed, the others are done; fix the errors below and run the same "
            f"command again, which resumes from here, or exclude the methods:\n{errors}"
        )


@dataclass(frozen=True)
class Slot:
    """Devices that train one run at a time.

    Args:
        devices: One device per process of the run: ``cpu`` for each, or GPUs such as ``cuda:0``.
        threads: Number of threads per process.
    """

    devices: tuple[str, ...]
    threads: int

    def command(self, task: Path) -> list[str]:
        """Return the command that trains and evaluates the run of a task file."""
        device = "cpu" if self.devices[0] == "cpu" else "cuda"
        python = [sys.executable, "-m"]
        torchrun = [*python, "torch.distributed.run", "--standalone", f"--nproc-per-node={len(self.devices)}", "-m"]
        return [*(torchrun if len(self.devices) > 1 else python), WORKER_MODULE, str(task), device]

    def environment(self) -> dict[str, str]:
        """Return an environment in which only the GPUs of the slot are visible, the first of them as ``cuda:0``."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        if self.devices[0] != "cpu":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = visible.split(",") if visible else list(map(str, range(torch.cuda.device_count())))
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(
                names[int(device.removeprefix("cuda:"))] for device in self.devices
            )
        return environment

    def __str__(self) -> str:
        return " + ".join(self.devices)


def parse_slots(devices: str | None = None, per_run: int = 1) -> tuple[Slot, ...]:
    """Group devices into slots; the CPU cores are divided among all processes.

    Args:
        devices: Devices separated by commas, such as ``cuda:0,cuda:1``; ``cuda`` stands for all GPUs, and each
            ``cpu`` for a process. None for all GPUs, or for the CPU if there is none.
        per_run: Number of consecutive devices that train a run together.

    Raises:
        ConfigurationError: There is no such device, or the devices do not form groups of ``per_run``.
    """
    if per_run < 1:
        raise ConfigurationError(f"`per_run` is {per_run}; expected 1 or more")
    n_gpus = torch.cuda.device_count()
    gpus = [f"cuda:{gpu}" for gpu in range(n_gpus)]
    if devices is None:
        names = gpus or ["cpu"] * per_run
    else:
        names = [name for given in devices.split(",") for name in (gpus if given == "cuda" else [given])]
    for name in names:
        if name not in ("cpu", *gpus):
            available = f"cuda:0 to cuda:{n_gpus - 1}" if n_gpus else "there is no GPU"
            raise ConfigurationError(f'there is no device "{name}"; expected cpu or a GPU ({available})')
    if not names or len(names) % per_run:
        raise ConfigurationError(f"{len(names)} devices cannot be divided into groups of {per_run}")
    groups = [tuple(names[first : first + per_run]) for first in range(0, len(names), per_run)]
    for group in groups:
        if set(group) != {"cpu"} and ("cpu" in group or len(set(group)) < per_run):
            raise ConfigurationError(f"{', '.join(group)}: a run needs different GPUs, or cpu only")
    return tuple(Slot(group, max(1, torch.get_num_threads() // len(names))) for group in groups)


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
        progress = progress or NoProgress()
        progress.start(len(tasks))
        waiting, free = deque(tasks), deque(self.slots)
        running: list[_Child] = []
        failed: list[FailedRun] = []
        with catch_stop_signals() as stop_request, _parent_pipe() as stdin:
            try:
                while (waiting or running) and not stop_request.requested:
                    while waiting and free:
                        running.append(_Child(waiting.popleft(), free.popleft(), stdin))
                    time.sleep(_POLL_S)
                    for child in [child for child in running if child.process.poll() is not None]:
                        running.remove(child)
                        free.append(child.slot)
                        failed += child.report()
                        progress.advance(failed=len(failed))
            finally:
                _stop(running)
        if stop_request.requested:
            raise KeyboardInterrupt
        raise_failures(failed, len(tasks))


class _Child:
    """A child process that trains and evaluates a run.

    It has its own session, so that Ctrl-C in the terminal reaches it only through this process, and only once.
    """

    def __init__(self, task: WorkerTask, slot: Slot, stdin: int) -> None:
        self.task, self.slot = task, slot
        path, self.log = task_file(task.run), log_file(task.run)
        task.write(path)
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - the command has no user input
                slot.command(path),
                env=slot.environment(),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._start = time.monotonic()
        log.info("%s started on %s; see %s", task.run, slot, self.log)

    def report(self) -> list[FailedRun]:
        """Log how long the process took, and return its failure if it failed."""
        run, code, minutes = self.task.run, self.process.returncode, (time.monotonic() - self._start) / 60
        if not code:
            log.info("%s finished after %.1f min", run, minutes)
            return []
        log.error("%s failed after %.1f min (exit code %d); see %s", run, minutes, code, self.log)
        return [FailedRun(run, f"exit code {code}", error_lines(self.log))]


def _stop(children: Sequence[_Child]) -> None:
    """Terminate children and wait until they have saved their last step; a second Ctrl-C does not wait."""
    try:
        for child in children:
            child.process.terminate()
        for child in children:
            child.process.wait()
    except KeyboardInterrupt:
        for child in children:
            child.process.send_signal(signal.SIGINT)
        raise


@contextmanager
def _parent_pipe() -> Iterator[int]:
    """Yield the stdin of the children: a pipe that closes when this process ends for whatever reason."""
    read_end, write_end = os.pipe()
    try:
        yield read_end
    finally:
        os.close(read_end)
        os.close(write_end)
