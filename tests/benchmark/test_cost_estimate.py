"""What a comparison will take: against what trainings really did, and against sums by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.benchmark import cost_estimate, throughput
from hgld.benchmark.benchmark_settings import BenchmarkSettings, Gldv2Evaluation
from hgld.benchmark.cost_estimate import plan
from hgld.benchmark.dataset_sizes import evaluation_data, evaluations, training_data
from hgld.benchmark.launcher import Slot
from hgld.benchmark.runs import Run, read_benchmark, table_runs
from hgld.benchmark.throughput import Cost, ModelCost, StepCost, measure_model, measure_step
from hgld.benchmark.worker import Task, work
from hgld.errors import InputError
from hgld.losses.base import Loss
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.models.checkpoint_files import read_checkpoint
from hgld.models.embedding_model import EmbeddingModel
from hgld.training.run import training_loss
from hgld.training.run_folder import RunFolder
from tests.benchmark.comparisons import N_STEPS, write_comparison, write_data
from tests.training import toy

CPU = torch.device("cpu")
BENCHMARKS = Path(__file__).parents[2] / "pipelines" / "benchmarks"
GB = 10**9


def comparison(folder: Path, **trainings: dict[str, object]) -> tuple[BenchmarkSettings, tuple[Run, ...]]:
    """ROADMAP and HAPPIER, two seeds each."""
    write_data(folder)
    settings = read_benchmark(write_comparison(folder, seeds=(0, 1), **trainings))
    return settings, tuple(run for runs in table_runs(settings, folder / "out").values() for run in runs)


@pytest.fixture
def known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image takes the network 1 s in training and 0.5 s else, a loss takes 2 s, optimisers 3 s, reading none."""

    def network(settings: object, device: torch.device, n_processes: int = 1) -> ModelCost:
        model = EmbeddingModel(torch.nn.Identity(), 2048, toy.settings(Path("none")).model.without_head())
        return ModelCost(model, 4, Cost(4.0, 7 * GB), Cost(2.0, 0))

    step = StepCost(Cost(2.0, 8 * GB), Cost(3.0, 0), held=5 * GB, stored=GB)
    monkeypatch.setattr(cost_estimate, "measure_model", network)
    monkeypatch.setattr(cost_estimate, "measure_step", lambda *given: step)
    monkeypatch.setattr(cost_estimate, "measure_ranking", lambda *given: 0.0)
    monkeypatch.setattr(cost_estimate, "measure_reading", lambda *given: 1e-12)


def test_measured_on_this_machine_and_nothing_is_written(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    before = torch.get_num_threads()
    text = plan(settings, runs, [Slot(("cpu",), 1)])
    assert torch.get_num_threads() == before
    assert text.startswith("Noise: 4 runs, 0 of them done\n")
    assert len(re.findall(rf"^(?:roadmap|happier) +2 +{N_STEPS}(?: +\d+\.\d+){{4}}$", text, re.MULTILINE)) == 2
    assert f"{4 * N_STEPS * 8} images to learn from" in text
    assert "Measured on 1 CPU threads" in text
    assert "Not there yet" not in text
    assert not (tmp_path / "out").exists()


def test_hours_are_those_of_steps_evaluations_and_devices(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path, happier={"steps": 3600})
    # A batch of 8 takes 8 + 2 + 3 s. There are 16 images to train on, two batches an epoch, and 16 for tests, which
    # are embedded in 8 s: before, after each 100 of 1,800 epochs, and once more by the comparison.
    text = plan(settings, runs, [Slot(("cpu",), 1)] * 2)
    hours = (3600 * 13 + (1 + 18 + 1) * 8) / 3600
    assert f"{hours:.2f}" in next(line for line in text.splitlines() if line.startswith("happier"))
    roadmap = (N_STEPS * 13 + 3 * 8) / 3600
    # ROADMAP's two runs go to the two slots, then HAPPIER's.
    assert (
        f"{2 * hours + 2 * roadmap:,.1f} hours for what is to do; {hours + roadmap:,.1f} hours on cpu | cpu" in text
    )


def test_processes_share_the_images_but_not_the_loss(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path, happier={"steps": 3600})
    text = plan(settings, runs, [Slot(("cpu",) * 4, 1)])
    row = next(line for line in text.splitlines() if line.startswith("happier"))
    assert row.split()[3:] == ["2.000", "2.000", "3.000", f"{(3600 * 7 + 20 * 8 / 4) / 3600:.2f}"]
    assert "exchange was not measured" in text


def test_what_is_done_is_not_counted_again(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path)
    work(Task(benchmark=settings, run=runs[0]))
    text = plan(settings, runs, [Slot(("cpu",), 1)])
    assert text.startswith("Noise: 4 runs, 1 of them done\n")
    assert re.search(r"^roadmap +1 ", text, re.MULTILINE)
    left = [needs_h(N_STEPS) for _ in runs[1:]]
    assert f"{sum(left):,.1f} hours for what is to do" in text
    (runs[0].folder / "evaluation" / "per_query.parquet").unlink()
    text = plan(settings, runs, [Slot(("cpu",), 1)])
    assert text.startswith("Noise: 4 runs, 0 of them done\n")
    assert f"{3 * N_STEPS * 8} images to learn from" in text  # it is trained, but has to be evaluated


def needs_h(steps: int) -> float:
    return (steps * 13 + 3 * 8) / 3600


@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 7))
def test_evaluations_are_those_of_the_loop(steps: int, n_batches: int, every: int) -> None:
    count, step, epoch = 1, 0, 0
    while step < steps:
        step, epoch = min(steps, step + n_batches), epoch + 1
        count += epoch % every == 0 or step == steps
    assert evaluations(steps, n_batches, every) == count


def test_a_training_is_evaluated_as_often_as_is_said(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path, roadmap={"steps": 7, "evaluation": {"every": 3, "metrics": ["H-AP"]}})
    work(Task(benchmark=settings, run=runs[0]))
    data = training_data(runs[0].settings, published=False)
    done = RunFolder(runs[0].folder).history("evaluation")
    assert data.besides.n_images == len(done) * data.test.n_images == len(done) * 16
    assert data.test.n_pairs == 16**2


def test_checkpoints_are_as_large_as_is_said(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    run = runs[-1]
    work(Task(benchmark=settings, run=run))
    data = training_data(run.settings, published=False)
    network = measure_model(run.settings, CPU)
    step = measure_step(run.settings, network.model, data.labels, data.batch, CPU)
    found = read_checkpoint(RunFolder(run.folder).last)
    tensors = [throughput._n_bytes(found[name]) for name in ("model", "loss", "optimiser")]
    assert step.stored == sum(tensors)
    parameters = 6 * 4 + 4 + 4 * 4  # projection, bias, and a proxy of each landmark
    assert step.held - step.stored == 4 * parameters
    assert all(parameter.grad is None for parameter in network.model.parameters())


def test_what_is_frozen_is_measured_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "build_model", toy.build)
    settings = toy.settings(tmp_path / "none", frozen=["backbone.layers.0"], warm_up_epochs=1, batch_size=64)
    network = measure_model(settings, CPU)
    learnt = {name for name, parameter in network.model.named_parameters() if parameter.grad is not None}
    assert learnt == {"backbone.layers.3.weight", "backbone.layers.3.bias", "projection.weight", "projection.bias"}
    assert network.n_images == 64  # as this takes no second
    assert network.embedding.n_bytes == 0
    untrained = measure_model(toy.changed(settings, steps=0, epochs=None), CPU)
    assert untrained.training.seconds == 0


def test_a_memory_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Loss] = []

    def spied(*given: Any, **named: Any) -> Loss:
        made.append(training_loss(*given, **named))
        return made[-1]

    monkeypatch.setattr(throughput, "training_loss", spied)
    monkeypatch.setattr(throughput, "build_model", toy.build)
    settings = toy.settings(toy.images(tmp_path), memory={"start_epoch": 5})
    data = training_data(settings, published=False)
    measure_step(settings, measure_model(settings, CPU).model, data.labels, data.batch, CPU)
    (memory,) = made
    assert isinstance(memory, CrossBatchMemory)
    assert len(memory.content()[0]) == len(data.labels)
    assert "memory" in memory.parts


def test_the_full_size_is_planned_before_the_photographs_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_costs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_benchmark(BENCHMARKS / "h-gldv2.yaml")
    runs = [run for runs in table_runs(settings, tmp_path).values() for run in runs]
    text = plan(settings, runs, [Slot(("cpu",), 2)])
    assert "28 runs, 0 of them done" in text
    assert f"{27 * 55_000 * 256:,} images to learn from" in text
    # 500 files of 1 GB, 100 of 850 MB, 20 of 500 MB; 761,757 + 117,577 embeddings of 2,048 numbers
    embeddings = 28 * 879_334 * 2048 * 4 / 1e9
    assert f"disk: 595.0 GB of images, 56.0 GB of checkpoints, {embeddings:.1f} GB of embeddings" in text
    assert "up to 5.0 GB for parameters, gradients and optimisers, and 8.0 GB more in a step" in text
    assert f"{(55_000 * (256 + 5) + 879_334 / 2) / 3600:,.2f}" in text
    assert "Not in them before the images to train on are there" in text
    *_, missing = text.partition("Not there yet")
    for name in (
        "train/manifest",
        "test/images",
        "index/images",
        "retrieval_solution",
        "index_label_to_hierarchical",
    ):
        assert name in missing


def test_other_images_have_to_be_there(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path)
    (tmp_path / "manifest.parquet").unlink()
    with pytest.raises(InputError, match=r"manifest\.parquet: no such file"):
        plan(settings, runs, [Slot(("cpu",), 1)])


def test_made_up_labels_are_a_tree_of_the_published_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_benchmark(BENCHMARKS / "h-gldv2.yaml")
    (run, *_) = table_runs(settings, tmp_path)["happier"]
    data = training_data(run.settings, published=True)
    assert [len(np.unique(column)) for column in data.labels.T] == [46_593, 78, 2]
    for finer, coarser in zip(data.labels.T, data.labels.T[1:], strict=False):
        assert len(np.unique(np.stack([finer, coarser]), axis=1).T) == len(np.unique(finer))
    assert np.bincount(data.batch[:, 0]).tolist() == [4] * 64
    assert isinstance(settings.evaluation, Gldv2Evaluation)
    assert evaluation_data(settings.evaluation).test.n_images == 879_334


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_a_gpu_says_what_it_takes(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    text = plan(settings, runs, [Slot(("cuda:0",), 1)])
    assert "GPU-hours" in text
    assert "more in a step" in text
