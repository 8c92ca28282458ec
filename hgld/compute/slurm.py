"""SLURM: the tasks that ``srun`` starts as processes that find each other, and jobs that are submitted.

A step started by ``srun`` with several tasks sets ``SLURM_STEP_NUM_TASKS`` and more. A batch script itself, or a
command in ``salloc``, has variables of the whole job only (``SLURM_NTASKS``): it runs once, however many tasks the
job may start.

Jobs are submitted by SLURM's own programs. submitit, which wraps them, learns from ``sacct`` alone that a job has
ended without a result, so that it waits for ever for a killed job where there is no accounting. ``squeue`` knows
ended jobs as well, as long as the controller remembers them (``MinJobAge``); ``sacct`` is asked only about those that
it has forgotten.

:class:`SlurmExecutor` runs tasks as the jobs of an array::

    FOLDER/jobs.json       the tasks of arrays that are not known to be over, and what they work on
    FOLDER/JOB_TASK.out    what SLURM itself says of a task, such as why it was cancelled

The executor submits, then waits; it may end at any time. Jobs go on without it, and the next one finds them in
``jobs.json`` and waits for them again. What counts in the end is the output of a task, not the state of its job.

A job that is preempted, or loses its node, is requeued by SLURM, and resumes. One that is ended in another way, such
as by its time limit, is submitted again if it has saved some of its work since it was submitted, such as a
checkpoint: so tasks may take longer than the limit, and those that make no progress fail. A cancelled job is not
submitted again.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hgld.compute.executors import DEVICE, Failure, Task, error_lines
from hgld.compute.machine import StopRequest, catch_stop_signals
from hgld.errors import ConfigurationError, SourceError, require_at_least
from hgld.io.files import atomic_write
from hgld.progress import NoProgress, Progress

log = logging.getLogger(__name__)

#: Ports below those that Linux gives to outgoing connections (32768 to 60999).
_FIRST_PORT, _N_PORTS = 12_000, 20_000
#: Keeps the steps of a job away from those of the jobs with the next numbers, which may run on the same node.
_PORTS_BETWEEN_STEPS = 1009
#: States of tasks that are over, and are not requeued.
_ENDED = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"),
        *("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED"),
    }
)
#: States of tasks that the cluster has ended, whatever their program did.
_STOPPED = frozenset({"TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED"})
_ANSWER_TIMEOUT_S = 60
_NO_SLURM = "there are no programs of SLURM here; run the command where jobs are submitted, such as on a login node"
_FIELDS = "JobArrayID:|,State:|,exit_code:|,NodeList:|,Reason:|"
#: Seconds between questions to the controller: a twentieth of the waiting time, between these bounds.
_MIN_POLL_S, _MAX_POLL_S = 1.0, 30.0
#: Tasks of an array at most; clusters allow 1,000 by default (``MaxArraySize``).
_MAX_TASKS = 1000
#: Files of a node may be visible here only after the caches of a shared file system are renewed.
_VISIBLE_AFTER_S = 90.0
#: Options of ``sbatch`` that have their own place in the command, in the script, or here.
_OWN_OPTIONS = (
    *("--array", "-a", "--job-name", "-J", "--ntasks", "-n"),
    *("--output", "-o", "--error", "-e", "--parsable"),
)
#: Reasons to wait that need no mention.
_USUAL_REASONS = ("", "None", "Resources", "Priority", "JobArrayTaskLimit", "BeginTime")
_SCRIPT = """\
#!/usr/bin/env bash
commands=(
{commands}
)
logs=(
{logs}
)
exec >"${{logs[SLURM_ARRAY_TASK_ID - 1]}}" 2>&1
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-{threads}}}
[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
eval "{start} ${{commands[SLURM_ARRAY_TASK_ID - 1]}}"
"""


@dataclass(frozen=True)
class SlurmTask:
    """This process as a task of a step.

    Args:
        rank: Rank of the task in the step, from 0.
        count: Number of tasks in the step.
        local_rank: Rank among the tasks on the same node, from 0.
        job_id: Number of the job. Each task of an array has its own.
        step_id: Number of the step in the job.
        n_nodes: Number of nodes of the step.
        node_list: Nodes of the step as SLURM writes them, such as ``n[0-1]``.
    """

    rank: int
    count: int
    local_rank: int
    job_id: int
    step_id: int
    n_nodes: int
    node_list: str

    @property
    def port(self) -> int:
        """Port at which the tasks of the step meet.

        It differs between jobs with neighbouring numbers and between the steps of a job.
        """
        return _FIRST_PORT + (self.job_id + _PORTS_BETWEEN_STEPS * self.step_id) % _N_PORTS

    def first_node(self) -> str:
        """Return the address of the node with the task of rank 0.

        Raises:
            ConfigurationError: SLURM's program ``scontrol``, which expands the list of nodes, cannot be run, as in a
                container.
        """
        if self.n_nodes == 1:
            return "127.0.0.1"
        try:
            command = ["scontrol", "show", "hostnames", self.node_list]
            nodes = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, check=True, timeout=60
            ).stdout.split()
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigurationError(
                f"scontrol show hostnames {self.node_list} fails ({error}); export MASTER_ADDR with the name of the "
                "first node before srun"
            ) from error
        return nodes[0]


def current_task(environment: Mapping[str, str] = os.environ) -> SlurmTask | None:
    """Return this process as a task, or None unless ``srun`` has started it with others.

    Args:
        environment: Environment variables of the process.
    """
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) == 1:
        return None
    return SlurmTask(
        rank=int(environment["SLURM_PROCID"]),
        count=int(environment["SLURM_STEP_NUM_TASKS"]),
        local_rank=int(environment["SLURM_LOCALID"]),
        job_id=int(environment["SLURM_JOB_ID"]),
        step_id=int(environment["SLURM_STEP_ID"]),
        n_nodes=int(environment["SLURM_STEP_NUM_NODES"]),
        node_list=environment["SLURM_STEP_NODELIST"],
    )


@dataclass(frozen=True)
class TaskState:
    """State of a task of an array.

    Args:
        name: State in SLURM's words, such as ``RUNNING``; ``UNKNOWN`` if SLURM has forgotten the task.
        exit_code: Exit code of its script; negative for the signal that ended it.
        nodes: Nodes that it runs on, such as ``n0``; empty if there are none.
        reason: Why it waits, in SLURM's words, such as ``Resources``.
    """

    name: str
    exit_code: int = 0
    nodes: str = ""
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the task is over."""
        return self.name in _ENDED or self.name == "UNKNOWN"

    @property
    def stopped(self) -> bool:
        """Whether the task was ended from outside: by the cluster or by a signal, but not by ``scancel``."""
        by_signal = self.exit_code < 0 or self.exit_code > 128  # a shell adds 128 to the number of the signal
        return self.name in _STOPPED or (self.name == "FAILED" and by_signal)

    def __str__(self) -> str:
        return f"{self.name}, exit code {self.exit_code}" if self.name == "FAILED" else self.name


def submit_array(script: str, options: Sequence[str]) -> str:
    """Submit a batch script as an array, and return the number of the job; its tasks are ``JOB_INDEX``.

    Args:
        script: The script, beginning with ``#!``.
        options: Options of ``sbatch``, among them ``--array``.

    Raises:
        ConfigurationError: There is no SLURM here, or it refuses the job.
    """
    try:
        done = _run(["sbatch", "--parsable", *options], stdin=script)
    except FileNotFoundError:
        raise ConfigurationError(_NO_SLURM) from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            "sbatch does not answer; see whether it has submitted a job, then run again"
        ) from None
    if done.returncode:
        raise ConfigurationError(f"SLURM does not take the job: {_last_line(done.stderr)}")
    return done.stdout.strip().partition(";")[0]  # a federation adds the name of the cluster


def task_states(tasks: Collection[str]) -> Mapping[str, TaskState] | None:
    """Return the states of tasks of arrays; None if the controller does not answer.

    Args:
        tasks: Tasks such as ``12_3``.

    Raises:
        ConfigurationError: There is no SLURM here.
    """
    command = ["squeue", f"--user={os.getuid()}", "--array", "--states=all", "--noheader", f"--Format={_FIELDS}"]
    try:
        done = _run(command)
    except FileNotFoundError:
        raise ConfigurationError(_NO_SLURM) from None
    except subprocess.TimeoutExpired as error:
        log.warning("squeue does not answer: %s", error)
        return None
    if done.returncode:
        log.warning("squeue does not answer: %s", _last_line(done.stderr))
        return None
    states = {}
    for line in done.stdout.splitlines():
        task, name, status, nodes, reason = line.split("|")[:5]
        states[task.strip()] = TaskState(name, _exit_code(int(status)), nodes, reason)
    forgotten = [task for task in tasks if task not in states]
    return states | dict.fromkeys(forgotten, TaskState("UNKNOWN")) | _accounted(forgotten)


def _accounted(tasks: Collection[str]) -> dict[str, TaskState]:
    """Return the states of tasks from the accounting, as far as it has them."""
    if not tasks:
        return {}
    fields = ("--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode")
    try:
        done = _run(["sacct", f"--jobs={','.join(tasks)}", *fields])
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    states = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        task, name, status = line.split("|")
        code, _, signal = status.partition(":")
        if task in tasks:
            states[task] = TaskState(name.split()[0], -int(signal) or int(code))  # "CANCELLED by 1000"
    return states


def _run(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of SLURM, which Ctrl-C in the terminal does not reach.

    Variables of a job in which this process runs would become settings of the jobs that it submits.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    return subprocess.run(  # noqa: S603 - the programs are SLURM's
        command,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_ANSWER_TIMEOUT_S,
        start_new_session=True,
        check=False,
    )


def _exit_code(status: int) -> int:
    """Return the exit code of a status as ``wait`` has it; negative for a signal.

    >>> _exit_code(33280), _exit_code(9)
    (130, -9)
    """
    return -(status & 0x7F) or status >> 8


def _last_line(text: str) -> str:
    """Return the last line of an error message, without the name of the program.

    >>> _last_line("sbatch: error: Batch job submission failed: Invalid partition name specified")
    'Batch job submission failed: Invalid partition name specified'
    """
    lines = text.strip().splitlines() or ["no message"]
    return lines[-1].removeprefix("sbatch: ").removeprefix("error: ")


@dataclass(frozen=True)
class SlurmExecutor:
    """Runs tasks as jobs of SLURM.

    Args:
        options: Options of ``sbatch`` for the job of one task, such as ``--partition=gpu --gpus=1 --time=8:00:00``.
        n_processes: Number of processes that work on a task together, which ``srun`` starts on one or several nodes.
        max_running: Largest number of tasks at the same time; None for as many as SLURM starts.
        device: Device of each process: ``cuda``, which is the GPU of its local rank, or ``cpu``.

    Raises:
        ConfigurationError: An option is invalid.
    """

    options: str = ""
    n_processes: int = 1
    max_running: int | None = None
    device: str = "cuda"

    def __post_init__(self) -> None:
        if self.device not in ("cuda", "cpu"):
            raise ConfigurationError(
                f'`devices` are "{self.device}"; expected cuda or cpu, as SLURM chooses the devices of a job'
            )
        require_at_least(1, per_run=self.n_processes, max_running=self.max_running)
        try:
            options = shlex.split(self.options)
        except ValueError as error:
            raise ConfigurationError(f"`sbatch` is {self.options}: {error}") from None
        for option in options:
            if option.partition("=")[0] in _OWN_OPTIONS:
                raise ConfigurationError(f"`sbatch` has the option {option}, which hgld sets itself; omit it")

    def script(self, tasks: Sequence[Task]) -> str:
        """Return the batch script of an array that works on tasks in order."""
        given = ([self.device if argument == DEVICE else argument for argument in task.arguments] for task in tasks)
        commands = (shlex.join([sys.executable, "-m", *arguments]) for arguments in given)
        return _SCRIPT.format(
            commands="\n".join(map(shlex.quote, commands)),
            logs="\n".join(shlex.quote(str(task.log.absolute())) for task in tasks),
            threads="$SLURM_CPUS_ON_NODE" if self.n_processes == 1 else 1,
            # Processes of a step end by themselves when one is lost, and should not be cut off while they save.
            start="exec" if self.n_processes == 1 else "srun --kill-on-bad-exit=0",
        )

    def submit_options(self, n_tasks: int, folder: Path) -> list[str]:
        """Return the options of ``sbatch`` for an array of so many tasks.

        Given options may replace the first two: jobs are requeued, and get SIGTERM two minutes before their limit.
        """
        signal = "B:TERM@120" if self.n_processes == 1 else "TERM@120"  # to the script, or to the tasks of srun
        limit = "" if self.max_running is None else f"%{self.max_running}"
        output = str(folder.absolute()).replace("%", "%%")
        return [
            *("--requeue", f"--signal={signal}", *shlex.split(self.options)),
            *(f"--array=1-{n_tasks}{limit}", f"--ntasks={self.n_processes}"),
            *(f"--job-name=hgld-{folder.parent.name}", f"--output={output}/%A_%a.out"),
        ]

    def run(self, tasks: Sequence[Task], folder: Path, *, progress: Progress | None = None) -> list[Failure]:
        """Submit tasks, unless they are submitted already, and wait until their jobs are over.

        See :meth:`hgld.compute.executors.Executor.run`. When this process is stopped, the jobs go on.

        Raises:
            ConfigurationError: SLURM refuses the jobs, or a task was submitted to make another result.
            SourceError: SLURM does not say what became of jobs that were submitted before.
        """
        progress = progress or NoProgress()
        progress.start(len(tasks))
        failed: list[Failure] = []
        with catch_stop_signals() as stop:
            submitted = _SubmittedTasks(self, tasks, folder)
            started = time.monotonic()
            while submitted.jobs and not stop.requested:
                _wait(min(max(_MIN_POLL_S, (time.monotonic() - started) / 20), _MAX_POLL_S), stop)
                n_ended, failures = submitted.update()
                failed += failures
                progress.advance(n_ended, failed=len(failed))
            if stop.requested:
                jobs = sorted({job.id.partition("_")[0] for job in submitted.jobs})
                log.warning("jobs that go on: %d; to cancel them: scancel %s", len(submitted.jobs), " ".join(jobs))
                raise KeyboardInterrupt
        return failed


@dataclass
class _Job:
    """A task of an array.

    Args:
        id: Its name for SLURM, such as ``12_3``.
        log: Log file of what it works on, relative to the folder.
        result: What its result depends on.
        saved: What :attr:`Task.saved` returned when it was submitted.
        retries: How often it may be submitted again although it has saved nothing.
    """

    id: str
    log: str
    result: str
    saved: object
    retries: int


class _SubmittedTasks:
    """Tasks that are submitted as those of arrays.

    Attributes:
        jobs: Tasks of arrays that are not over, which work on these tasks.
    """

    def __init__(self, executor: SlurmExecutor, tasks: Sequence[Task], folder: Path) -> None:
        self._executor, self._folder = executor, folder
        self._tasks = {Path(os.path.relpath(task.log, folder)).as_posix(): task for task in tasks}
        self._record = folder / "jobs.json"
        self._logged: dict[str, object] = {}
        self._completed_at: dict[str, float] = {}
        recorded = self._recorded_jobs()
        self.jobs = [job for job in recorded if job.log in self._tasks]
        self._other_jobs = [job for job in recorded if job.log not in self._tasks]
        if self.jobs:
            self._require_same_results()
            log.info("waiting for %d jobs that are submitted already", len(self.jobs))
        submitted = {job.log for job in self.jobs}
        self._submit({name: task.retries for name, task in self._tasks.items() if name not in submitted})

    def update(self) -> tuple[int, list[Failure]]:
        """Ask SLURM for the states of the jobs, and submit those again that were stopped but made progress.

        Returns:
            Number of tasks that are over, and those of them that failed.
        """
        states = task_states([job.id for job in self.jobs])
        if states is None:
            return 0, []
        running, again, failed = list[_Job](), dict[str, int](), list[Failure]()
        for job in self.jobs:
            state, task = states[job.id], self._tasks[job.log]
            self._log_state(job, task, state)
            done = state.ended and task.is_done()
            if not state.ended or not (done or state.name != "COMPLETED" or self._was_visible_in_time(job)):
                running.append(job)
                continue
            output = self._folder / f"{job.id}.out"  # what SLURM itself says
            has_saved = task.saved() not in (None, job.saved)
            if done:
                log.info("%s finished", task)
            elif state.stopped and (has_saved or job.retries):
                log.warning("%s was stopped (%s); it is submitted again to resume", task, state)
                again[job.log] = job.retries - (not has_saved)
            else:
                error = "\n".join(filter(None, map(error_lines, (task.log, output)))) or "    no output"
                failed.append(Failure(task, f"job {job.id}: {state}", error))
                log.error("%s failed (%s); see %s", task, state, task.log)
            if output.is_file() and not output.stat().st_size:
                output.unlink()
        n_ended = len(self.jobs) - len(running) - len(again)
        if len(running) < len(self.jobs):
            self.jobs = running
            self._submit(again)
            self._write_record()
        return n_ended, failed

    def _recorded_jobs(self) -> list[_Job]:
        """Return the recorded tasks of arrays that are not over."""
        if not self._record.is_file():
            return []
        jobs = [_Job(**job) for job in json.loads(self._record.read_text(encoding="utf-8"))]
        states = task_states([job.id for job in jobs])
        if states is None:
            raise SourceError(
                f"SLURM does not answer, so that the jobs of {self._record} cannot be found; run the same command "
                "again"
            )
        return [job for job in jobs if not states[job.id].ended]

    def _require_same_results(self) -> None:
        """Raise an error if a job was submitted to make another result."""
        others = [job for job in self.jobs if job.result != self._tasks[job.log].result]
        if others:
            names = ", ".join(str(self._tasks[job.log]) for job in others)
            raise ConfigurationError(
                f"{len(others)} jobs are submitted with other settings ({names}); wait for them with these settings, "
                f"or cancel them (scancel {' '.join(job.id for job in others)}), then run the same command again"
            )

    def _submit(self, retries: Mapping[str, int]) -> None:
        """Submit tasks by name, with how often each may be submitted again, and record them."""
        names = list(retries)
        for first in range(0, len(names), _MAX_TASKS):
            chunk = {name: self._tasks[name] for name in names[first : first + _MAX_TASKS]}
            self._folder.mkdir(parents=True, exist_ok=True)
            for task in chunk.values():
                task.prepare()
                task.log.parent.mkdir(parents=True, exist_ok=True)
            script = self._executor.script([*chunk.values()])
            array = submit_array(script, self._executor.submit_options(len(chunk), self._folder))
            self.jobs += [
                _Job(f"{array}_{index}", name, task.result, task.saved(), retries[name])
                for index, (name, task) in enumerate(chunk.items(), start=1)
            ]
            self._write_record()
            log.info("%d tasks are submitted as job %s", len(chunk), array)

    def _write_record(self) -> None:
        jobs = [asdict(job) for job in (*self.jobs, *self._other_jobs)]
        with atomic_write(self._record) as draft:
            draft.write_text(json.dumps(jobs, indent=1), encoding="utf-8")

    def _was_visible_in_time(self, job: _Job) -> bool:
        """Return whether the files of a completed job would be visible on this machine by now."""
        completed_at = self._completed_at.setdefault(job.id, time.monotonic())
        return time.monotonic() - completed_at >= _VISIBLE_AFTER_S

    def _log_state(self, job: _Job, task: Task, state: TaskState) -> None:
        """Log that a job started, or waits for an unusual reason, once."""
        shown = (state.name, state.nodes, state.reason)
        if self._logged.get(job.id) == shown:
            return
        self._logged[job.id] = shown
        if state.name == "RUNNING":
            log.info("%s runs on %s as job %s; see %s", task, state.nodes, job.id, task.log)
        elif state.name == "PENDING" and state.reason not in _USUAL_REASONS:
            log.warning("%s waits as job %s: %s", task, job.id, state.reason)


def _wait(seconds: float, stop: StopRequest) -> None:
    """Wait, or until a stop is requested."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.requested:
        time.sleep(0.2)
