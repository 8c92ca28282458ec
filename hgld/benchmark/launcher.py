"""Trainings as child processes, side by side on devices; each has a log of its own beside its folder.

::

    OUT/runs/METHOD/seed0.json    what the process was asked to do, see hgld.benchmark.worker
    OUT/runs/METHOD/seed0.log     what it said, the last time that it ran

A process that fails does not stop the others. When this one is asked to stop, or dies, its children save what they
learned and end.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from hgld.benchmark.worker import Task
from hgld.compute.stop_signals import catch_stop_signals
from hgld.errors import ConfigurationError
from hgld.progress import NoProgress, Progress

log = logging.getLogger(__name__)

_MODULE = "hgld.cli.benchmark_work"
_POLL_S = 0.2
_MOST_LINES = 6


@dataclass(frozen=True)
class Slot:
    """Where one run at a time is trained.

    Args:
        devices: one for each process of the run: ``cpu`` each, or GPUs such as ``cuda:0``.
        threads: of each process.
    """

    devices: tuple[str, ...]
    threads: int

    def command(self, task: Path) -> list[str]:
        """That trains and evaluates what the file of a task says."""
        device = "cpu" if self.devices[0] == "cpu" else "cuda"
        alone = [sys.executable, "-m"]
        together = [*alone, "torch.distributed.run", "--standalone", f"--nproc-per-node={len(self.devices)}", "-m"]
        return [*(together if len(self.devices) > 1 else alone), _MODULE, str(task), device]

    def environment(self) -> dict[str, str]:
        """In which a process of the run sees the GPUs of its slot only, the first of them as ``cuda:0``."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        if self.devices[0] != "cpu":
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = visible.split(",") if visible else list(map(str, range(torch.cuda.device_count())))
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(names[_number(device)] for device in self.devices)
        return environment

    def __str__(self) -> str:
        return " + ".join(self.devices)


def parse_slots(devices: str | None = None, per_run: int = 1) -> tuple[Slot, ...]:
    """Where runs are trained side by side; the cores are shared by all their processes.

    Args:
        devices: with commas between them, such as ``cuda:0,cuda:1``; ``cuda`` are all GPUs, and each ``cpu`` is a
            process. None for all GPUs, or for the cores where there is none.
        per_run: how many of them, in their order, train a run together.

    Raises:
        ConfigurationError: there is no such device, or they cannot be shared out.
    """
    if per_run < 1:
        raise ConfigurationError(f"there are to be {per_run} devices for each run; expected 1 or more")
    n_gpus = torch.cuda.device_count()
    gpus = [f"cuda:{gpu}" for gpu in range(n_gpus)]
    if devices is None:
        names = gpus or ["cpu"] * per_run
    else:
        names = [name for given in devices.split(",") for name in (gpus if given == "cuda" else [given])]
    for name in names:
        if name not in ("cpu", *gpus):
            there = f"cuda:0 to cuda:{n_gpus - 1}" if n_gpus else "there is no GPU"
            raise ConfigurationError(f'"{name}" is none of the devices; expected cpu or a GPU ({there})')
    if not names or len(names) % per_run:
        raise ConfigurationError(f"{len(names)} devices cannot be shared out {per_run} to each run")
    groups = [tuple(names[first : first + per_run]) for first in range(0, len(names), per_run)]
    for group in groups:
        if set(group) != {"cpu"} and ("cpu" in group or len(set(group)) < per_run):
            raise ConfigurationError(f"{', '.join(group)}: a run needs different GPUs, or cpu only")
    return tuple(Slot(group, max(1, torch.get_num_threads() // len(names))) for group in groups)


def launch(tasks: Sequence[Task], slots: Sequence[Slot], *, progress: Progress | None = None) -> None:
    """Train and evaluate, as many runs at a time as there are slots.

    Args:
        tasks: in the order in which they begin.
        slots: where.
        progress: told of runs.

    Raises:
        KeyboardInterrupt: someone wanted it to stop; what was learned is saved.
        ConfigurationError: runs have failed; the others are done.
    """
    progress = progress or NoProgress()
    progress.start(len(tasks))
    waiting, free = deque(tasks), deque(slots)
    running: list[_Child] = []
    failed: list[_Child] = []
    with catch_stop_signals() as wish, _lifeline() as lifeline:
        try:
            while (waiting or running) and not wish.requested:
                while waiting and free:
                    running.append(_Child(waiting.popleft(), free.popleft(), lifeline))
                time.sleep(_POLL_S)
                for child in [child for child in running if child.process.poll() is not None]:
                    running.remove(child)
                    free.append(child.slot)
                    failed += [child] if child.tell_end() else []
                    progress.advance(failed=len(failed))
        finally:
            _stop(running)
    if wish.requested:
        raise KeyboardInterrupt
    if failed:
        said = "\n".join(
            f"{child.task.run} (exit code {child.process.returncode}, {child.log}):\n{child.last_words()}"
            for child in failed
        )
        raise ConfigurationError(
            f"{len(failed)} of {len(tasks)} runs failed, the others are done; mend what they say and run the same "
            f"command again, which goes on from here, or leave their methods out:\n{said}"
        )


class _Child:
    """A run under way.

    It is in a session of its own: the terminal's Ctrl-C reaches it through this process only, and so but once.
    """

    def __init__(self, task: Task, slot: Slot, lifeline: int) -> None:
        self.task, self.slot = task, slot
        folder = task.run.folder
        path, self.log = folder.with_name(f"{folder.name}.json"), folder.with_name(f"{folder.name}.log")
        task.write(path)
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - a command of ours
                slot.command(path),
                env=slot.environment(),
                stdin=lifeline,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._began = time.monotonic()
        log.info("%s begins on %s; see %s", task.run, slot, self.log)

    def tell_end(self) -> bool:
        """Log that the process has ended; whether it failed."""
        code, minutes = self.process.returncode, (time.monotonic() - self._began) / 60
        if code:
            log.error("%s failed after %.1f min (exit code %d); see %s", self.task.run, minutes, code, self.log)
        else:
            log.info("%s is done after %.1f min", self.task.run, minutes)
        return bool(code)

    def last_words(self) -> str:
        """The error that the process told, or else the end of what it said."""
        lines = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        told = [number for number, line in enumerate(lines) if line.startswith("error: ")]
        some = lines[told[0] :][:_MOST_LINES] if told else lines[-_MOST_LINES:]
        return "\n".join(f"    {line}" for line in some)


def _stop(children: Sequence[_Child]) -> None:
    """Let them save what they have learned, and wait; Ctrl-C does not let them."""
    try:
        for child in children:
            child.process.terminate()
        for child in children:
            child.process.wait()
    except KeyboardInterrupt:
        for child in children:
            child.process.terminate()
        raise


@contextmanager
def _lifeline() -> Iterator[int]:
    """The stdin of children: a pipe that ends when this process does, however that comes about."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


def _number(device: str) -> int:
    return int(device.removeprefix("cuda:"))
