"""Worker of a comparison: trains and evaluates one run in a child process."""

from __future__ import annotations

from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.run_evaluation import evaluate_run, read_evaluated
from hgld.benchmark.runs import Run
from hgld.compute.processes import Processes
from hgld.errors import ConfigurationError
from hgld.io.files import atomic_write
from hgld.io.settings import Settings
from hgld.progress import Progress
from hgld.training.run import is_finished, train
from hgld.training.run_folder import RunFolder
from hgld.training.run_identity import require_same_run


class WorkerTask(Settings):
    """A run to train and evaluate; holds all settings, so that their files may be edited meanwhile.

    Args:
        benchmark: Settings of the comparison.
        run: Run to train and evaluate.
        retrain: Delete a run in the folder that has other settings, data, or another number of processes. Where it is
            the same run, which a requeued job of SLURM has begun, it is resumed.
    """

    benchmark: BenchmarkSettings
    run: Run
    retrain: bool = False

    def write(self, path: Path) -> None:
        """Write the task as JSON."""
        with atomic_write(path) as draft:
            draft.write_text(self.model_dump_json(by_alias=True, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> WorkerTask:
        """Read a task that :meth:`write` has written."""
        return cls.model_validate_json(path.read_text(encoding="utf-8"))


def is_done(benchmark: BenchmarkSettings, run: Run, *, n_processes: int = 1) -> bool:
    """Return whether a run is trained and evaluated.

    Raises:
        ConfigurationError: The run in the folder has other settings, data, or another number of processes.
        InputError: The data cannot be read.
    """
    if is_finished(run.settings, run.folder):
        return read_evaluated(benchmark, run) is not None
    folder = RunFolder(run.folder)
    recorded = folder.recorded_run()
    if recorded is not None and folder.last.exists():
        require_same_run(run.folder, {"processes": recorded[1]["processes"]}, {"processes": n_processes})
    return False


def work(
    task: WorkerTask, *, device: str = "cpu", processes: Processes | None = None, progress: Progress | None = None
) -> None:
    """Train and evaluate a run; a run that was interrupted is resumed.

    Raises:
        KeyboardInterrupt: A signal asked the process to stop; the last step is saved.
        HgldError: See :func:`~hgld.training.run.train` and :func:`~hgld.benchmark.run_evaluation.evaluate_run`.
    """
    processes, run = processes or Processes(), task.run
    retrain = task.retrain and processes.gather(_is_other_run(task, processes.count))[0]
    if retrain or not processes.gather(is_finished(run.settings, run.folder))[0]:
        train(
            run.settings,
            run.folder,
            resume=not retrain,
            force=retrain,
            device=device,
            processes=processes,
            progress=progress,
        )
    evaluate_run(task.benchmark, run, device=device, processes=processes)


def _is_other_run(task: WorkerTask, n_processes: int) -> bool:
    """Return whether the run in the folder has other settings, data, or another number of processes."""
    try:
        is_done(task.benchmark, task.run, n_processes=n_processes)
    except ConfigurationError:
        return True
    return False
