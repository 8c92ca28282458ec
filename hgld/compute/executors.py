"""Parts of work, and executors: engines that run processes, each with an output and a log file of its own.

An executor is a few lines around an engine that exists: processes of this machine and tasks of Ray are here, the job
arrays of SLURM in :mod:`hgld.compute.slurm`. A failed process does not stop the others.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hgld.compute.machine import catch_stop_signals
from hgld.errors import ConfigurationError, require_at_least
from hgld.progress import NoProgress, Progress
from hgld.resources import import_extra

log = logging.getLogger(__name__)

T = TypeVar("T")
#: Stands in the arguments of a task for the kind of device that it is to use: ``cuda`` or ``cpu``.
DEVICE = "{device}"
_MAX_ERROR_LINES = 6
_POLL_S = 0.2
#: How often a task is run again whose process was killed, or whose worker or node Ray has lost.
_RAY_RETRIES = 3
_RAY_OPTION = re.compile(r"(num_gpus|num_cpus|memory)=([\d.]+(?:e\d+)?)")
#: Names of these options among the resources of a node.
_RAY_RESOURCES = {"num_gpus": "GPU", "num_cpus": "CPU", "memory": "memory"}


@dataclass(frozen=True)
class Part:
    """One of several parts of nearly the same size, into which work is divided in order.

    Args:
        number: Number of the part, from 1.

    Raises:
        ConfigurationError: The number is not one of 1 to ``count``.
    """

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ConfigurationError(f"`part` is {self}; expected 1/{self.count} to {self.count}/{self.count}")

    @classmethod
    def parse(cls, text: str) -> Part:
        """Return the part that a text such as ``3/16`` names.

        Raises:
            ConfigurationError: The text names no part.

        >>> Part.parse("3/16")
        Part(number=3, count=16)
        """
        match = re.fullmatch(r"(\d+)/([1-9]\d*)", text.strip())
        if match is None:
            raise ConfigurationError(f'`part` is "{text}"; expected a part and the number of parts, such as 3/16')
        return cls(int(match[1]), int(match[2]))

    def of(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items of this part, which are consecutive: all parts together have each item once.

        >>> [Part(number, 3).of("abcdefgh") for number in (1, 2, 3)]
        ['ab', 'cde', 'fgh']
        """
        n_items = len(items)
        return items[n_items * (self.number - 1) // self.count : n_items * self.number // self.count]

    @property
    def file_name(self) -> str:
        """Name of the file of the part without its suffix; the order of the names is that of the parts.

        >>> Part(3, 16).file_name
        '03-of-16'
        """
        return f"{self.number:0{len(str(self.count))}}-of-{self.count}"

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def format_numbers(numbers: Sequence[int]) -> str:
    """Format ascending numbers as SLURM writes the tasks of an array.

    >>> format_numbers([3, 7, 8, 9, 12])
    '3,7-9,12'
    """
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Task:
    """A process that writes an output.

    Args:
        name: Its name in messages, such as ``part 3/16``.
        arguments: What follows ``python -m`` on its command line.
        log: File of its output, from the last time that it ran.
        is_done: Returns whether the output is there.
        prepare: Called before the process is started or submitted.
        saved: Returns a value that can be written as JSON, and changes when the process saves some of its work. One
            that was stopped is run again if it has changed.
        result: What its result depends on. It is not confused with a submitted one that has another.
        retries: How often a process that was stopped is run again although it has saved nothing.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    is_done: Callable[[], bool]
    prepare: Callable[[], None] = _nothing
    saved: Callable[[], object] = _nothing
    result: str = ""
    retries: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Failure:
    """A task that failed: how its process ended, such as ``exit code 1``, and its error message, indented."""

    task: Task
    outcome: str
    error: str

    @property
    def last_line(self) -> str:
        """Last line of the error message."""
        return (self.error.splitlines() or ["no output"])[-1].strip()

    def __str__(self) -> str:
        return f"{self.task} ({self.outcome}, {self.task.log})"


class Executor(Protocol):
    """Runs tasks."""

    def run(self, tasks: Sequence[Task], folder: Path, *, progress: Progress | None = None) -> list[Failure]:
        """Run tasks until each is over, and return those that failed.

        Args:
            folder: Folder for what the executor writes itself.

        Raises:
            KeyboardInterrupt: A signal asked the process to stop.
            ConfigurationError: The engine is not there, or refuses the tasks.
        """


def error_lines(log: Path) -> str:
    """Return the error message in the log of a process, or else the last lines of the log; indented."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    selected = lines[errors[0] :][:_MAX_ERROR_LINES] if errors else lines[-_MAX_ERROR_LINES:]
    return "\n".join(f"    {line}" for line in selected)


@dataclass(frozen=True)
class Slot:
    """Devices that work on one task at a time.

    Args:
        devices: One device per process of the task: ``cpu`` for each, or GPUs such as ``cuda:0``.
    """

    devices: tuple[str, ...]
    threads: int

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command of a task with these arguments."""
        device = "cpu" if self.devices[0] == "cpu" else "cuda"
        python = [sys.executable, "-m"]
        torchrun = [*python, "torch.distributed.run", "--standalone", f"--nproc-per-node={len(self.devices)}", "-m"]
        given = [device if argument == DEVICE else argument for argument in arguments]
        return [*(torchrun if len(self.devices) > 1 else python), *given]

    def environment(self) -> dict[str, str]:
        """Return an environment in which only the GPUs of the slot are visible, the first of them as ``cuda:0``."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        if self.devices[0] != "cpu":
            import torch

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
        per_run: Number of consecutive devices that work on a task, such as a training, together.

    Raises:
        ConfigurationError: There is no such device, or the devices do not form groups of ``per_run``.
    """
    import torch

    require_at_least(1, per_run=per_run)
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
class LocalExecutor:
    """Runs tasks as child processes, one at a time per slot.

    When this process is stopped or dies, its children save their last step and end, if they watch their stdin by
    :func:`~hgld.compute.machine.stop_with_parent`.

    Args:
        slots: Devices, each slot of which takes one task at a time.
    """

    slots: Sequence[Slot]

    @property
    def n_processes(self) -> int:
        """Number of processes that work on a task together."""
        return len(self.slots[0].devices)

    def run(self, tasks: Sequence[Task], folder: Path, *, progress: Progress | None = None) -> list[Failure]:
        """See :meth:`Executor.run`."""
        progress = progress or NoProgress()
        progress.start(len(tasks))
        waiting, free = deque((task, task.retries) for task in tasks), deque(self.slots)
        running: list[_Child] = []
        failed: list[Failure] = []
        with catch_stop_signals() as stop_request, _parent_pipe() as stdin:
            try:
                while (waiting or running) and not stop_request.requested:
                    while waiting and free:
                        running.append(_Child(*waiting.popleft(), free.popleft(), stdin))
                    time.sleep(_POLL_S)
                    for child in [child for child in running if child.process.poll() is not None]:
                        running.remove(child)
                        free.append(child.slot)
                        if child.process.returncode < 0 and child.retries:
                            log.warning("%s was killed; it is run again", child.task)
                            waiting.append((child.task, child.retries - 1))
                            continue
                        failed += child.report()
                        progress.advance(failed=len(failed))
            finally:
                _stop(running)
        if stop_request.requested:
            raise KeyboardInterrupt
        return failed


class _Child:
    """A child process that works on a task.

    It has its own session, so that Ctrl-C in the terminal reaches it only through this process, and only once.
    """

    def __init__(self, task: Task, retries: int, slot: Slot, stdin: int) -> None:
        self.task, self.retries, self.slot = task, retries, slot
        task.prepare()
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - the command has no user input
                slot.command(task.arguments),
                env=slot.environment(),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._start = time.monotonic()
        log.info("%s started on %s; see %s", task, slot, task.log)

    def report(self) -> list[Failure]:
        """Log how long the process took, and return its failure if it failed."""
        task, code, minutes = self.task, self.process.returncode, (time.monotonic() - self._start) / 60
        if not code:
            log.info("%s finished after %.1f min", task, minutes)
            return []
        log.error("%s failed after %.1f min (exit code %d); see %s", task, minutes, code, task.log)
        return [Failure(task, f"exit code {code}", error_lines(task.log))]


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


@dataclass(frozen=True)
class RayExecutor:
    """Runs tasks on a Ray cluster, whose nodes share the file system and the Python environment.

    A task is run again if its process is killed, or if Ray loses its worker or node.

    Args:
        options: What a task needs, as options of ``ray.remote``: ``num_gpus=1 num_cpus=8 memory=8e9``.
        max_running: Largest number of tasks at the same time; None for as many as the cluster takes.

    Raises:
        ConfigurationError: There is no such option, or its value is no number.
    """

    options: str = ""
    max_running: int | None = None

    def __post_init__(self) -> None:
        self._needs()

    def run(self, tasks: Sequence[Task], folder: Path, *, progress: Progress | None = None) -> list[Failure]:
        """See :meth:`Executor.run`; the cluster is the one of ``RAY_ADDRESS``, or the one on this machine."""
        ray, progress = _connected_ray(), progress or NoProgress()
        progress.start(len(tasks))
        remote = ray.remote(max_retries=_RAY_RETRIES)(_run_for_ray)
        waiting = deque((task, _RAY_RETRIES) for task in tasks)
        running, failed = dict[Any, tuple[Task, int]](), list[Failure]()
        with catch_stop_signals() as stop_request, redirect_stdout(sys.stderr):  # Ray prints what it runs again
            self._warn_without_node(ray)
            while (waiting or running) and not stop_request.requested:
                while waiting and len(running) < (self.max_running or len(tasks)):
                    task, retries = waiting.popleft()
                    running[self._submit(remote, task)] = task, retries
                for reference in ray.wait(list(running), timeout=_POLL_S)[0]:
                    task, retries = running.pop(reference)
                    code, outcome = _ray_outcome(ray, reference)
                    if code < 0 and retries:
                        log.warning("%s was killed; it is run again", task)
                        waiting.append((task, retries - 1))
                        continue
                    if code:
                        log.error("%s failed (%s); see %s", task, outcome, task.log)
                        failed.append(Failure(task, outcome, error_lines(task.log)))
                    progress.advance(failed=len(failed))
            for reference in running:
                ray.cancel(reference, force=True)
        ray.shutdown()
        if stop_request.requested:
            raise KeyboardInterrupt
        return failed

    def _submit(self, remote: Any, task: Task) -> Any:
        """Submit a task, and return the reference of its exit code."""
        task.prepare()
        task.log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", *task.arguments]
        options = remote.options(name=task.name, **self._needs())
        return options.remote(command, Path.cwd(), task.log.absolute())

    def _warn_without_node(self, ray: Any) -> None:
        """Warn if no node has what a task needs: it waits until one is added, and Ray says nothing."""
        needs = {_RAY_RESOURCES[name]: amount for name, amount in ({"num_cpus": 1.0} | self._needs()).items()}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes):
            log.warning("no node of the Ray cluster has %s; parts wait for one", self.options or "num_cpus=1")

    def _needs(self) -> dict[str, float]:
        matches = [_RAY_OPTION.fullmatch(option) for option in self.options.split()]
        if not all(matches):
            raise ConfigurationError(f"`ray` is {self.options}; expected num_gpus=1 num_cpus=8 memory=8e9, or a few")
        return {match[1]: float(match[2]) for match in matches if match}


def _connected_ray() -> Any:
    """Return the module ``ray``, connected to a cluster."""
    # Each attempt takes 40 s; with Ray's twenty, a cluster that is gone would seem to be starting for 14 minutes.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    ray = import_extra("ray", name="Ray")
    try:
        ray.init(address="auto", log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"no Ray cluster answers ({reason}); start one (ray start --head), or export RAY_ADDRESS"
        ) from None
    return ray


def _run_for_ray(command: Sequence[str], folder: Path, log: Path) -> int:
    """Run a command in a worker of Ray, with which it ends, and return its exit code."""
    with log.open("wb") as output, _parent_pipe() as stdin:
        return subprocess.run(  # noqa: S603 - the command has no user input
            command, cwd=folder, stdin=stdin, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode


def _ray_outcome(ray: Any, reference: Any) -> tuple[int, str]:
    """Return the exit code of a task, 1 if Ray has given it up, and a description of how it ended."""
    try:
        code = ray.get(reference)
    except ray.exceptions.RayError as error:
        return 1, f"given up by Ray: {str(error).splitlines()[0]}"
    return code, f"exit code {code}"
