"""SLURM: the tasks that ``srun`` starts as processes that find each other, and jobs that are submitted.

A step started by ``srun`` with several tasks sets ``SLURM_STEP_NUM_TASKS`` and more. A batch script itself, or a
command in ``salloc``, has variables of the whole job only (``SLURM_NTASKS``): it runs once, however many tasks the
job may start.

Jobs are submitted by SLURM's own programs. submitit, which wraps them, learns from ``sacct`` alone that a job has
ended without a result, so that it waits for ever for a killed job where there is no accounting. ``squeue`` knows
ended jobs as well, as long as the controller remembers them (``MinJobAge``); ``sacct`` is asked only about those that
it has forgotten.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hgld.errors import ConfigurationError

#: Ports below those that Linux gives to outgoing connections (32768 to 60999).
_FIRST_PORT, _N_PORTS = 12_000, 20_000
#: Keeps the steps of a job away from those of the jobs with the next numbers, which may run on the same node.
_PORTS_BETWEEN_STEPS = 1009


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


log = logging.getLogger(__name__)

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
