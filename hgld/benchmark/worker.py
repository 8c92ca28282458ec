"""What a child process does: train a run, and evaluate it."""

from __future__ import annotations

from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.run_evaluation import evaluate_run, read_evaluated
from hgld.benchmark.runs import Run
from hgld.compute.processes import Processes
from hgld.io.files import atomic_write
from hgld.io.settings import Settings
from hgld.progress import Progress
from hgld.training.run import is_finished, train
from hgld.training.run_folder import RunFolder
from hgld.training.training_checkpoints import require_same_run


class Task(Settings):
    """A run that is to be done; with all settings, so that nobody has to wait with changing their files.

    Args:
        benchmark: of the comparison.
        run: to train and evaluate.
        anew: whether the run that is in the folder is deleted; else it goes on.
    """

    benchmark: BenchmarkSettings
    run: Run
    anew: bool = False

    def write(self, path: Path) -> None:
        """As JSON, for another process."""
        with atomic_write(path) as draft:
            draft.write_text(self.model_dump_json(by_alias=True, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Task:
        """The inverse of :meth:`write`."""
        return cls.model_validate_json(path.read_text(encoding="utf-8"))


def is_done(benchmark: BenchmarkSettings, run: Run, *, n_processes: int = 1) -> bool:
    """Whether a run is trained and evaluated.

    Args:
        benchmark: of the comparison.
        run: that it is about.
        n_processes: that would go on with it.

    Raises:
        ConfigurationError: the run that is in the folder was begun with other settings, data, or number of processes.
        InputError: the data cannot be read.
    """
    if is_finished(run.settings, run.folder):
        return read_evaluated(benchmark, run) is not None
    folder = RunFolder(run.folder)
    begun = folder.recorded_run()
    if begun is not None and folder.last.exists():
        require_same_run(run.folder, {"processes": begun[1]["processes"]}, {"processes": n_processes})
    return False


def work(
    task: Task, *, device: str = "cpu", processes: Processes | None = None, progress: Progress | None = None
) -> None:
    """Train and evaluate a run, from where it is.

    Args:
        task: what to do.
        device: of this process.
        processes: that do it together.
        progress: of the training, told of images.

    Raises:
        KeyboardInterrupt: someone wanted it to stop; the last step is saved.
        HgldError: as :func:`~hgld.training.run.train` and
            :func:`~hgld.benchmark.run_evaluation.evaluate_run` do.
    """
    processes, run = processes or Processes(), task.run
    if task.anew or not processes.gather(is_finished(run.settings, run.folder))[0]:
        train(
            run.settings,
            run.folder,
            resume=not task.anew,
            force=task.anew,
            device=device,
            processes=processes,
            progress=progress,
        )
    evaluate_run(task.benchmark, run, device=device, processes=processes)
