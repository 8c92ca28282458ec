from pathlib import Path
from typing import Any

import pytest

from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.benchmark.worker import WorkerTask, is_done, read_evaluated, work
from hgld.errors import ConfigurationError
from hgld.models.model_loading import read_checkpoint
from hgld.training.run_folder import RunFolder
from hgld.training.trainer import Trainer
from tests.benchmark.comparisons import N_STEPS, write_comparison, write_data


def task(folder: Path, *, retrain: bool = False, **training: Any) -> WorkerTask:
    """Return a task of HAPPIER with changed settings."""
    if not (folder / "manifest.parquet").exists():
        write_data(folder)
    benchmark = read_benchmark(write_comparison(folder, happier=training))
    return WorkerTask(benchmark=benchmark, run=table_runs(benchmark, folder / "out")["happier"][0], retrain=retrain)


def done(task: WorkerTask, **processes: int) -> bool:
    return is_done(task.benchmark, task.run, **processes)


def times(task: WorkerTask) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in task.run.folder.rglob("*") if path.is_file()}


def test_run_is_trained_and_evaluated_once(tmp_path: Path) -> None:
    once = task(tmp_path)
    assert not done(once)
    work(once)
    assert done(once)
    evaluated = read_evaluated(once.benchmark, once.run)
    assert evaluated is not None
    (*_, last) = RunFolder(once.run.folder).history("test")
    assert last["step"] == N_STEPS
    assert evaluated.result.means["H-AP"] == pytest.approx(last["H-AP"])
    before = times(once)
    evaluation = {path.name for path in before if path.parent.name == "evaluation"}
    assert evaluation == {"embeddings.npy", "embeddings.ids.txt", "per_query.parquet"}
    work(once)
    assert times(once) == before


def test_trained_run_is_evaluated_without_training(tmp_path: Path) -> None:
    once = task(tmp_path)
    work(once)
    (once.run.folder / "evaluation" / "per_query.parquet").unlink()
    assert not done(once)
    before = (once.run.folder / "last.pt").stat().st_mtime_ns
    work(once)
    assert done(once)
    assert (once.run.folder / "last.pt").stat().st_mtime_ns == before


def test_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = task(tmp_path, checkpoint_steps=1)
    step = Trainer.train_step

    def stopped(self: Trainer, *given: Any) -> float | None:
        if self.step == 2:
            raise KeyboardInterrupt
        return step(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", stopped)
        with pytest.raises(KeyboardInterrupt):
            work(once)
    assert read_checkpoint(once.run.folder / "last.pt")["step"] == 2
    assert not done(once)
    with pytest.raises(ConfigurationError, match="processes: 1 then, 2 now"):
        done(once, n_processes=2)
    work(once)
    assert done(once)
    assert done(once, n_processes=2)  # a finished run is not resumed
    steps = [line["step"] for line in RunFolder(once.run.folder).history("step")]
    assert steps == list(range(1, N_STEPS + 1))


def test_other_settings_require_retraining(tmp_path: Path) -> None:
    work(task(tmp_path))
    other = task(tmp_path, steps=N_STEPS + 1)
    with pytest.raises(ConfigurationError, match=f"steps: {N_STEPS} then, {N_STEPS + 1} now"):
        done(other)
    with pytest.raises(ConfigurationError, match="started with other settings or data"):
        work(other)
    work(task(tmp_path, steps=N_STEPS + 1, retrain=True))
    assert done(other)
    assert read_checkpoint(other.run.folder / "last.pt")["step"] == N_STEPS + 1


def test_other_data_are_an_error(tmp_path: Path) -> None:
    once = task(tmp_path)
    work(once)
    write_data(tmp_path, n_classes=10)
    with pytest.raises(ConfigurationError, match="digests.manifest"):
        done(once)
