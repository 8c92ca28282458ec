"""A real SLURM cluster of virtual nodes on this machine, for tests of what hgld does on a cluster.

The programs are Debian's: ``apt-get install slurmctld slurmd slurm-client munge``, and for accounting ``slurmdbd
mariadb-server-core``. The cluster itself is started by ``slurm/start_slurm.sh`` of the shared folder.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd")
#: Administrators' programs, which are not on the PATH of all users.
_SEARCH_PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
#: States in which a job is over.
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE"})


class SlurmCluster:
    """A running cluster with the nodes n0, n1, ... and the partitions ``main`` and ``spare``.

    Jobs of ``spare`` are preempted by those of ``main`` and requeued.

    Args:
        folder: Folder of its configuration, state and logs.

    Attributes:
        variables: Environment variables by which programs find the cluster.
        environment: These, and the variables of this process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {"SLURM_CONF": str(folder / "etc" / "slurm.conf")}
        self.environment = os.environ | self.variables

    def run(self, *command: str | Path, timeout: float = 120, check: bool = True) -> str:
        """Run a command that talks to the cluster, and return what it prints on stdout."""
        done = subprocess.run(
            list(map(str, command)),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, script: str, *options: str, environment: Mapping[str, str] | None = None) -> str:
        """Submit a bash script, and return the id of the job."""
        done = subprocess.run(
            # Not into the working folder, which is the checkout, unless the options name another file.
            ["sbatch", "--parsable", f"--output={self.folder}/job-%j.out", *options],
            input=f"#!/usr/bin/env bash\n{script}\n",
            env=self.environment | dict(environment or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().partition(";")[0]

    def facts(self, job: str) -> dict[str, str]:
        """Return what ``scontrol show job`` says of a job, such as JobState, Restarts and ExitCode."""
        fields = self.run("scontrol", "show", "job", job, "--oneliner").split()
        return dict(field.split("=", 1) for field in fields if "=" in field)

    def wait_for(self, job: str, *states: str, timeout: float = 120) -> dict[str, str]:
        """Wait until a job is in one of these states, or over if none is named; return the facts about it."""
        deadline = time.monotonic() + timeout
        while True:
            facts = self.facts(job)
            if facts["JobState"] in (states or ENDED):
                return facts
            assert states == () or facts["JobState"] not in ENDED, facts
            assert time.monotonic() < deadline, facts
            time.sleep(0.2)

    def requeue(self, job: str) -> None:
        """Requeue a running job, and start it again at once instead of after two minutes."""
        self.run("scontrol", "requeue", job)
        self.start_again(job)

    def start_again(self, job: str) -> None:
        """Wait until a job has been requeued, and start it at once instead of after two minutes."""
        deadline = time.monotonic() + 60
        while self.facts(job)["JobState"] != "PENDING":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(2)  # a node refuses a job that starts in the second in which it was killed
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now")


@contextmanager
def slurm_cluster(shared: Path, **settings: int) -> Iterator[SlurmCluster]:
    """Start a cluster, and stop it in the end.

    Its folder is not one of pytest's, which only their owner may enter: munge refuses these.

    Args:
        shared: Folder of real data and reference servers.
        settings: Settings of the cluster: ``nodes`` (2), ``cpus`` (1) and ``memory_mb`` (16000) per node, ``gpus``
            (0, pretended), ``accounting`` (0).
    """
    # A job gets half of its node's memory and is killed beyond it. SLURM counts what processes share, such as torch's
    # libraries, once for each of them: two small ones may reach the 2 GB of a node of the default size.
    settings = {"memory_mb": 16000} | settings
    needed = PROGRAMS + (ACCOUNTING_PROGRAMS if settings.get("accounting") else ())
    if missing := [program for program in needed if shutil.which(program, path=_SEARCH_PATH) is None]:
        pytest.skip(f"SLURM is not installed: no {', '.join(missing)} (see tests/slurm_cluster.py)")
    scripts = shared / "slurm"
    if not scripts.is_dir():
        pytest.skip(f"no cluster to start: {scripts} does not exist")
    environment = os.environ | {f"CLUSTER_{name.upper()}": str(value) for name, value in settings.items()}
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        started = subprocess.run(
            [str(scripts / "start_slurm.sh"), folder],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        assert started.returncode == 0, started.stdout
        try:
            yield SlurmCluster(Path(folder))
        finally:
            subprocess.run([str(scripts / "stop_slurm.sh"), folder], capture_output=True, timeout=120, check=False)
