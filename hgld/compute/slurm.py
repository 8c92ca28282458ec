"""This process as one of the tasks that SLURM's ``srun`` has started together, which find each other.

A step started by ``srun`` with several tasks sets ``SLURM_STEP_NUM_TASKS`` and more. A batch script itself, or a
command in ``salloc``, has variables of the whole job only (``SLURM_NTASKS``): it runs once, however many tasks the
job may start.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
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
