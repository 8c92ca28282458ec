"""Runs as jobs of a SLURM cluster: all runs that are not done are an array, of which each task takes one run.

::

    OUT/runs/METHOD/seed0.json    task of the run, see hgld.benchmark.worker
    OUT/runs/METHOD/seed0.log     its output, from the last time that it ran
    OUT/slurm/jobs.json           the tasks of arrays that are not known to be over, and their runs
    OUT/slurm/JOB_TASK.out        what SLURM itself says of a task, such as why it was cancelled

The launcher submits, then waits; it may end at any time. Jobs go on without it, and the same command finds them in
``jobs.json`` and waits for them again. What counts in the end are the files of a run, not the state of its task.

A job that is preempted, or loses its node, is requeued by SLURM, and resumes from the last checkpoint. One that is
ended in another way, such as by its time limit, is submitted again if it has saved a checkpoint since it was
submitted: so runs may take longer than the limit, and those that make no progress fail. A cancelled job is not
submitted again.
"""

from __future__ import annotations

import json
import logging
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hgld.benchmark.engine import write_text
from hgld.benchmark.launcher import WORKER_MODULE, FailedRun, error_lines, log_file, raise_failures, task_file
from hgld.benchmark.runs import Run
from hgld.benchmark.worker import WorkerTask, is_done
from hgld.compute.slurm import TaskState, submit_array, task_states
from hgld.compute.stop_signals import StopRequest, catch_stop_signals
from hgld.errors import ConfigurationError, SourceError
from hgld.progress import NoProgress, Progress
from hgld.training.run_folder import RunFolder

log = logging.getLogger(__name__)

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
# Train and evaluate a run of a comparison.
tasks=({tasks})
task=${{tasks[SLURM_ARRAY_TASK_ID - 1]}}
exec >"${{task%.json}}.log" 2>&1
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-{threads}}}
[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
{command} "$task" {device} --no-parent
"""


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
        for name, number in (("per_run", self.n_processes), ("max_running", self.max_running)):
            if number is not None and number < 1:
                raise ConfigurationError(f"`{name}` is {number}; expected 1 or more")
        try:
            options = shlex.split(self.options)
        except ValueError as error:
            raise ConfigurationError(f"`sbatch` is {self.options}: {error}") from None
        for option in options:
            if option.partition("=")[0] in _OWN_OPTIONS:
                raise ConfigurationError(f"`sbatch` has the option {option}, which hgld sets itself; omit it")

    def script(self, tasks: Sequence[Path]) -> str:
        """Return the batch script of an array whose tasks take these task files in order."""
        python = shlex.join([sys.executable, "-m", WORKER_MODULE])
        return _SCRIPT.format(
            tasks=" ".join(shlex.quote(str(task)) for task in tasks),
            threads="$SLURM_CPUS_ON_NODE" if self.n_processes == 1 else 1,
            # Processes of a step end by themselves when one is lost, and should not be cut off while they save.
            command=f"exec {python}" if self.n_processes == 1 else f"srun --kill-on-bad-exit=0 {python}",
            device=self.device,
        )

    def submit_options(self, n_runs: int, out: Path) -> list[str]:
        """Return the options of ``sbatch`` for an array of so many runs.

        Given options may replace the first two: jobs are requeued, and get SIGTERM two minutes before their limit.
        """
        signal = "B:TERM@120" if self.n_processes == 1 else "TERM@120"  # to the script, or to the tasks of srun
        limit = "" if self.max_running is None else f"%{self.max_running}"
        folder = str(_slurm_folder(out).absolute()).replace("%", "%%")
        return [
            *("--requeue", f"--signal={signal}", *shlex.split(self.options)),
            *(f"--array=1-{n_runs}{limit}", f"--ntasks={self.n_processes}"),
            *(f"--job-name=hgld-{out.name}", f"--output={folder}/%A_%a.out"),
        ]

    def launch(self, tasks: Sequence[WorkerTask], out: Path, *, progress: Progress | None = None) -> None:
        """Submit runs, unless they are submitted already, and wait until their jobs are over.

        Raises:
            KeyboardInterrupt: A signal asked the process to stop; the jobs go on.
            ConfigurationError: Runs have failed, and the others are done; or SLURM refuses the jobs; or a run was
                submitted with other settings.
            SourceError: SLURM does not say what became of jobs that were submitted before.
        """
        progress = progress or NoProgress()
        progress.start(len(tasks))
        failed: list[FailedRun] = []
        with catch_stop_signals() as stop:
            runs = _SubmittedRuns(self, tasks, out)
            started = time.monotonic()
            while runs.jobs and not stop.requested:
                _wait(min(max(_MIN_POLL_S, (time.monotonic() - started) / 20), _MAX_POLL_S), stop)
                n_ended, failures = runs.update()
                failed += failures
                progress.advance(n_ended, failed=len(failed))
            if stop.requested:
                jobs = sorted({job.id.partition("_")[0] for job in runs.jobs})
                log.warning("runs that go on: %d; to cancel them: scancel %s", len(runs.jobs), " ".join(jobs))
                raise KeyboardInterrupt
        raise_failures(failed, len(tasks))


@dataclass
class _Job:
    """A task of an array that works on a run.

    Args:
        id: Its name for SLURM, such as ``12_3``.
        task: Task file, relative to the output folder.
        checkpoint: Time of the last checkpoint when the task was submitted, in nanoseconds; None if there was none.
    """

    id: str
    task: str
    checkpoint: int | None


class _SubmittedRuns:
    """Runs of a comparison that are submitted as tasks of arrays.

    Attributes:
        jobs: Tasks of arrays that are not over, which work on these runs.
    """

    def __init__(self, launcher: SlurmLauncher, tasks: Sequence[WorkerTask], out: Path) -> None:
        self._launcher, self._out = launcher, out
        self._tasks = {task_file(task.run).relative_to(out).as_posix(): task for task in tasks}
        self._record = _slurm_folder(out) / "jobs.json"
        self._logged: dict[str, object] = {}
        self._completed_at: dict[str, float] = {}
        recorded = self._recorded_jobs()
        self.jobs = [job for job in recorded if job.task in self._tasks]
        self._other_jobs = [job for job in recorded if job.task not in self._tasks]
        if self.jobs:
            self._require_same_tasks()
            log.info("waiting for %d runs that are submitted already", len(self.jobs))
        submitted = {job.task for job in self.jobs}
        self._submit([name for name in self._tasks if name not in submitted])

    def update(self) -> tuple[int, list[FailedRun]]:
        """Ask SLURM for the states of the tasks, and submit runs again that were stopped but made progress.

        Returns:
            Number of runs whose tasks are over, and those of them that failed.
        """
        states = task_states([job.id for job in self.jobs])
        if states is None:
            return 0, []
        running, again, failed = [], [], []
        for job in self.jobs:
            state, run = states[job.id], self._tasks[job.task].run
            self._log_state(job, run, state)
            done = state.ended and self._is_done(job)
            if not state.ended or not (done or state.name != "COMPLETED" or self._was_visible_in_time(job)):
                running.append(job)
                continue
            output = _slurm_folder(self._out) / f"{job.id}.out"  # what SLURM itself says
            if done:
                log.info("%s finished", run)
            elif state.stopped and _checkpoint_time(run) not in (None, job.checkpoint):
                log.warning("%s was stopped (%s); it is submitted again to resume", run, state)
                again.append(job.task)
            else:
                error = "\n".join(filter(None, map(error_lines, (log_file(run), output)))) or "    no output"
                failed.append(FailedRun(run, f"job {job.id}: {state}", error))
                log.error("%s failed (%s); see %s", run, state, log_file(run))
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

    def _require_same_tasks(self) -> None:
        """Raise an error if a job was submitted to make another result."""
        others = [job for job in self.jobs if not _same_result(self._out / job.task, self._tasks[job.task])]
        if others:
            runs = ", ".join(str(self._tasks[job.task].run) for job in others)
            raise ConfigurationError(
                f"{len(others)} runs are submitted with other settings ({runs}); wait for them with these settings, "
                f"or cancel them (scancel {' '.join(job.id for job in others)}), then run the same command again"
            )

    def _submit(self, names: Sequence[str]) -> None:
        """Submit task files, given relative to the output folder, and record them."""
        for first in range(0, len(names), _MAX_TASKS):
            chunk = names[first : first + _MAX_TASKS]
            for name in chunk:
                self._tasks[name].write(self._out / name)
            script = self._launcher.script([(self._out / name).absolute() for name in chunk])
            self._record.parent.mkdir(exist_ok=True)
            array = submit_array(script, self._launcher.submit_options(len(chunk), self._out))
            self.jobs += [
                _Job(f"{array}_{index}", name, _checkpoint_time(self._tasks[name].run))
                for index, name in enumerate(chunk, start=1)
            ]
            self._write_record()
            log.info("%d runs are submitted as job %s", len(chunk), array)

    def _write_record(self) -> None:
        jobs = [asdict(job) for job in (*self.jobs, *self._other_jobs)]
        write_text(self._record, json.dumps(jobs, indent=1))

    def _is_done(self, job: _Job) -> bool:
        task = self._tasks[job.task]
        try:
            return is_done(task.benchmark, task.run, n_processes=self._launcher.n_processes)
        except ConfigurationError:  # the run with other settings, which the task was to replace
            return False

    def _was_visible_in_time(self, job: _Job) -> bool:
        """Return whether the files of a completed task would be visible on this machine by now."""
        completed_at = self._completed_at.setdefault(job.id, time.monotonic())
        return time.monotonic() - completed_at >= _VISIBLE_AFTER_S

    def _log_state(self, job: _Job, run: Run, state: TaskState) -> None:
        """Log that a task started, or waits for an unusual reason, once."""
        shown = (state.name, state.nodes, state.reason)
        if self._logged.get(job.id) == shown:
            return
        self._logged[job.id] = shown
        if state.name == "RUNNING":
            log.info("%s runs on %s as job %s; see %s", run, state.nodes, job.id, log_file(run))
        elif state.name == "PENDING" and state.reason not in _USUAL_REASONS:
            log.warning("%s waits as job %s: %s", run, job.id, state.reason)


def _slurm_folder(out: Path) -> Path:
    return out / "slurm"


def _same_result(path: Path, task: WorkerTask) -> bool:
    """Return whether the task in a file makes the same result; titles and other runs of a comparison may change."""
    if not path.is_file():
        return False
    submitted = WorkerTask.read(path)
    before, now = ((one.run.settings, one.benchmark.evaluation, one.benchmark.metrics) for one in (submitted, task))
    return before == now


def _checkpoint_time(run: Run) -> int | None:
    path = RunFolder(run.folder).last
    return path.stat().st_mtime_ns if path.is_file() else None


def _wait(seconds: float, stop: StopRequest) -> None:
    """Wait, or until a stop is requested."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.requested:
        time.sleep(0.2)
