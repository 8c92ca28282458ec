"""Cost estimates: against what trainings really did, and against arithmetic by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.benchmark import cost_estimate, dataset_sizes, step_timing
from hgld.benchmark.assumed_throughput import activation_bytes, assume_throughput, described_slots
from hgld.benchmark.benchmark_settings import BenchmarkSettings, Gldv2Evaluation
from hgld.benchmark.cost_estimate import estimate_cost
from hgld.benchmark.dataset_sizes import count_evaluations, gldv2_size, training_size
from hgld.benchmark.launcher import Slot
from hgld.benchmark.runs import Run, read_benchmark, table_runs
from hgld.benchmark.step_timing import LossTiming, ModelTiming, time_loss, time_model, training_model
from hgld.benchmark.worker import WorkerTask, work
from hgld.cli.summaries.benchmark import format_cost
from hgld.errors import ConfigurationError, InputError
from hgld.losses.base import Loss
from hgld.losses.cross_batch_memory import CrossBatchMemory
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_files import read_checkpoint
from hgld.training.run import training_loss
from hgld.training.run_folder import RunFolder
from hgld.training.training_settings import TrainingSettings
from tests.benchmark.comparisons import N_STEPS, write_comparison, write_data
from tests.training import toy

CPU = torch.device("cpu")
BENCHMARKS = Path(__file__).parents[2] / "pipelines" / "benchmarks"
GB = 10**9


def comparison(folder: Path, **trainings: Any) -> tuple[BenchmarkSettings, tuple[Run, ...]]:
    """ROADMAP and HAPPIER, two seeds each."""
    write_data(folder)
    settings = read_benchmark(write_comparison(folder, seeds=(0, 1), **trainings))
    return settings, tuple(run for runs in table_runs(settings, folder / "out").values() for run in runs)


def plan(settings: BenchmarkSettings, runs: tuple[Run, ...], slots: list[Slot]) -> str:
    return format_cost(estimate_cost(settings, runs, slots))


def time_losses(settings: TrainingSettings) -> LossTiming:
    size = training_size(settings, published=False)
    return time_loss(settings, time_model(settings, CPU).model, size.labels, size.batch, CPU)


@pytest.fixture
def known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model takes 1 s per image in training and 0.5 s otherwise, loss and optimisers 5 s, reading no time."""

    def known_model(settings: TrainingSettings, device: object, n_processes: int) -> ModelTiming:
        model = EmbeddingModel(torch.nn.Identity(), 2048, toy.settings(Path("none")).model.without_head())
        return ModelTiming(model, step_s=settings.batch_size / n_processes, embed_s=0.5, peak_bytes=7 * GB)

    loss = LossTiming(step_s=5.0, peak_bytes=8 * GB, state_bytes=GB, gradient_bytes=4 * GB)
    monkeypatch.setattr(cost_estimate, "time_model", known_model)
    monkeypatch.setattr(cost_estimate, "time_loss", lambda *arguments: loss)
    monkeypatch.setattr(dataset_sizes, "_time_reading", lambda images: 1e-12)


def test_plan_measures_this_machine_and_writes_nothing(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    before = torch.get_num_threads()
    text = plan(settings, runs, [Slot(("cpu",), 1)])
    assert torch.get_num_threads() == before
    assert text.startswith("Noise: 4 runs, 0 of them done\n")
    assert len(re.findall(rf"^(?:roadmap|happier) +2 +{N_STEPS}(?: +\d+\.\d+){{3}}$", text, re.MULTILINE)) == 2
    assert f"{4 * N_STEPS * 8} training images" in text
    assert "Measured on 1 CPU threads" in text
    assert "Missing" not in text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("throughput", [None, 100.0], ids=["timed", "assumed"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frozen": ["backbone.layer9"]}, 'no parameter of the model has a name that begins with "backbone.layer9"'),
        ({"evaluation": {"metrics": ["H-AP", "mAP@x"]}}, "there is no metric 'mAP@x'"),
    ],
)
def test_plan_finds_settings_that_no_run_survives(
    wrong: dict[str, Any], message: str, throughput: float | None, tmp_path: Path
) -> None:
    settings, runs = comparison(tmp_path, happier=wrong)
    with pytest.raises(ConfigurationError, match=message):
        estimate_cost(settings, runs, [Slot(("cpu",), 1)], images_per_s=throughput)


def test_hours_are_those_of_steps_evaluations_and_slots(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path, happier={"steps": 3600})
    # A batch of 8 takes 8 + 5 s. There are 16 images to train on, two batches an epoch, and 16 to evaluate on, which
    # are embedded in 8 s: before, after each 100 of 1,800 epochs, and once more by the comparison.
    text = plan(settings, runs, [Slot(("cpu",), 1)] * 2)
    hours = (3600 * 13 + (1 + 18 + 1) * 8) / 3600
    assert f"{hours:.2f}" in next(line for line in text.splitlines() if line.startswith("happier"))
    roadmap = (N_STEPS * 13 + 3 * 8) / 3600
    # The two slots take ROADMAP's two runs, then HAPPIER's.
    assert (
        f"{2 * hours + 2 * roadmap:,.1f} hours for the runs to do; {hours + roadmap:,.1f} hours on cpu | cpu" in text
    )


def test_processes_share_images_but_not_the_loss(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path, happier={"steps": 3600})
    text = plan(settings, runs, [Slot(("cpu",) * 4, 1)])
    row = next(line for line in text.splitlines() if line.startswith("happier"))
    assert row.split()[3:] == ["2.000", "5.000", f"{(3600 * 7 + 20 * 8 / 4) / 3600:.2f}"]
    assert "Communication between the processes" in text


def test_finished_runs_are_not_counted(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path)
    work(WorkerTask(benchmark=settings, run=runs[0]))
    text = plan(settings, runs, [Slot(("cpu",), 1)])
    assert text.startswith("Noise: 4 runs, 1 of them done\n")
    assert re.search(r"^roadmap +1 ", text, re.MULTILINE)
    remaining = [(N_STEPS * 13 + 3 * 8) / 3600 for _ in runs[1:]]
    assert f"{sum(remaining):,.1f} hours for the runs to do" in text
    (runs[0].folder / "evaluation" / "per_query.parquet").unlink()
    text = plan(settings, runs, [Slot(("cpu",), 1)])
    assert text.startswith("Noise: 4 runs, 0 of them done\n")
    assert f"{3 * N_STEPS * 8} training images" in text  # the run is trained, but has to be evaluated


@given(st.integers(0, 60), st.integers(1, 7))
def test_count_evaluations_agrees_with_the_loop(n_epochs: int, every: int) -> None:
    count = 1 + sum(epoch % every == 0 or epoch == n_epochs for epoch in range(1, n_epochs + 1))
    assert count_evaluations(n_epochs, every) == count


def test_training_evaluates_as_often_as_estimated(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path, roadmap={"steps": 7, "evaluation": {"every": 3, "metrics": ["H-AP"]}})
    work(WorkerTask(benchmark=settings, run=runs[0]))
    size = training_size(runs[0].settings, published=False)
    assert size.n_evaluations == len(RunFolder(runs[0].folder).history("test"))
    assert size.n_test == 16


def test_checkpoints_are_as_large_as_estimated(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    run = runs[-1]
    work(WorkerTask(benchmark=settings, run=run))
    timing = time_model(run.settings, CPU)
    assert timing.model.dim == 4
    step = time_losses(run.settings)
    checkpoint = read_checkpoint(RunFolder(run.folder).last)
    tensors = [step_timing._tensor_bytes(checkpoint[name]) for name in ("model", "loss", "optimiser")]
    assert step.state_bytes == sum(tensors)
    parameters = 6 * 4 + 4 + 4 * 4  # projection, bias, and a proxy of each landmark
    assert step.gradient_bytes == 4 * parameters


def test_timing_the_loss_leaves_no_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timing, "build_model", toy.build)
    settings = toy.settings(toy.write_images(tmp_path))
    size = training_size(settings, published=False)
    model = time_model(settings, CPU).model
    assert any(parameter.grad is not None for parameter in model.parameters())
    assert time_loss(settings, model, size.labels, size.batch, CPU).step_s > 0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_frozen_parameters_are_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timing, "build_model", toy.build)
    settings = toy.settings(tmp_path / "none", frozen=["backbone.layers.0"], warm_up_epochs=1)
    timing = time_model(settings, CPU)
    trained = {name for name, parameter in timing.model.named_parameters() if parameter.grad is not None}
    assert trained == {"backbone.layers.3.weight", "backbone.layers.3.bias", "projection.weight", "projection.bias"}
    assert timing.step_s > 0
    assert timing.peak_bytes == 0
    untrained = time_model(toy.changed(settings, steps=0, epochs=None), CPU)
    assert untrained.step_s == 0
    assert untrained.embed_s > 0


def test_memory_is_timed_when_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[Loss] = []

    def build(*given: Any, **named: Any) -> Loss:
        losses.append(training_loss(*given, **named))
        return losses[-1]

    monkeypatch.setattr(step_timing, "training_loss", build)
    monkeypatch.setattr(step_timing, "build_model", toy.build)
    settings = toy.settings(toy.write_images(tmp_path), memory={"start_epoch": 5})
    time_losses(settings)
    (memory,) = losses
    assert isinstance(memory, CrossBatchMemory)
    assert len(memory.content()[0]) == len(training_size(settings, published=False).labels)
    assert "memory" in memory.parts


def test_full_size_is_estimated_without_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_costs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_benchmark(BENCHMARKS / "h-gldv2.yaml")
    runs = tuple(run for runs in table_runs(settings, tmp_path).values() for run in runs)
    text = plan(settings, runs, [Slot(("cpu",), 2)])
    assert "28 runs, 0 of them done" in text
    assert f"{27 * 55_000 * 256:,} training images" in text
    # 500 files of 1 GB, 100 of 850 MB, 20 of 500 MB; 761,757 + 117,577 embeddings of 2,048 numbers
    embeddings = 28 * 879_334 * 2048 * 4 / 1e9
    assert f"disk: 595.0 GB of images, 28.0 GB of checkpoints, {embeddings:.1f} GB of embeddings" in text
    assert "up to 5.0 GB for parameters, gradients and optimisers, and 8.0 GB more in a step" in text
    assert f"{(55_000 * (256 + 5) + 879_334 / 2) / 3600:,.2f}" in text
    assert "not included: images are missing" in text.replace("\n", " ")
    *_, missing = text.partition("Missing files")
    for name in (
        "train/manifest",
        "test/images",
        "index/images",
        "retrieval_solution",
        "index_label_to_hierarchical",
    ):
        assert name in missing


def test_missing_images_of_other_data_are_an_error(tmp_path: Path, known_costs: None) -> None:
    settings, runs = comparison(tmp_path)
    (tmp_path / "manifest.parquet").unlink()
    with pytest.raises(InputError, match=r"manifest\.parquet: no such file"):
        estimate_cost(settings, runs, [Slot(("cpu",), 1)])


def test_published_labels_are_a_tree_of_the_published_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_benchmark(BENCHMARKS / "h-gldv2.yaml")
    (run, *_) = table_runs(settings, tmp_path)["happier"]
    size = training_size(run.settings, published=True)
    assert isinstance(size.labels, np.ndarray)
    assert [len(np.unique(column)) for column in size.labels.T] == [46_593, 78, 2]
    for finer, coarser in zip(size.labels.T, size.labels.T[1:], strict=False):
        assert len(np.unique(np.stack([finer, coarser]), axis=1).T) == len(np.unique(finer))
    assert np.bincount(size.batch[:, 0]).tolist() == [4] * 64
    assert isinstance(settings.evaluation, Gldv2Evaluation)
    assert gldv2_size(settings.evaluation).n_images == 879_334


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_gpu_memory_is_measured(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    text = plan(settings, runs, [Slot(("cuda:0",), 1)])
    assert "GPU-hours" in text
    assert "more in a step" in text


@pytest.fixture
def convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are those of the toy training without dropout."""
    monkeypatch.setattr(step_timing, "build_model", lambda settings: toy.build(settings, dropout=0.0))


@pytest.mark.parametrize(("precision", "n_bytes"), [("off", 4), ("bf16", 2), ("fp16", 2)])
def test_activations_are_those_of_convolutions(
    tmp_path: Path, convolutions: None, precision: str, n_bytes: int
) -> None:
    settings = toy.settings(toy.write_images(tmp_path), mixed_precision=precision)
    model = training_model(settings, CPU)
    # Of an image, a convolution keeps its input of 3 x 16 x 16, and ReLU its output of 8 x 7 x 7, which is also the
    # input of the next convolution.
    per_image = n_bytes * (3 * 16 * 16 + 8 * 7 * 7)
    for n_images in (1, 5):
        assert activation_bytes(settings, model, n_images) == n_images * per_image


def test_frozen_layers_keep_nothing(tmp_path: Path, convolutions: None) -> None:
    settings = toy.settings(toy.write_images(tmp_path), frozen=["backbone"])
    assert activation_bytes(settings, training_model(settings, CPU), 5) == 0


def test_throughput_gives_the_hours_of_gpus_that_are_not_there(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path, happier={"steps": 3600})
    slots = described_slots(4, per_run=2)
    assert [slot.devices for slot in slots] == [("cuda:0", "cuda:1"), ("cuda:2", "cuda:3")]
    text = format_cost(estimate_cost(settings, runs, slots, images_per_s=0.5))
    # Two GPUs share a batch of 8 in 8 s, and embed 16 images in 16 s: before, after each 100 of 1,800 epochs, once
    # more by the comparison.
    happier, roadmap = (3600 * 8 + 20 * 16) / 3600, (N_STEPS * 8 + 3 * 16) / 3600
    row = next(line for line in text.splitlines() if line.startswith("happier"))
    assert row.split() == ["happier", "2", "3,600", "8.000", f"{happier:.2f}"]
    assert f"{4 * (happier + roadmap):,.1f} GPU-hours for the runs to do; {happier + roadmap:,.1f} hours on" in text
    flowed = " ".join(text.split())
    assert "Nothing was timed: each GPU is assumed to train on 0.5 images per second" in flowed
    assert "keep up with 2 images per second on all GPUs" in flowed
    assert "Measured on" not in flowed


def test_bytes_do_not_depend_on_whether_steps_are_timed(tmp_path: Path) -> None:
    settings, runs = comparison(tmp_path)
    timed = estimate_cost(settings, runs, [Slot(("cpu",), 1)])
    assumed = estimate_cost(settings, runs, described_slots(1), images_per_s=100)
    for one, other in zip(timed.runs, assumed.runs, strict=True):
        assert one.loss.state_bytes == other.loss.state_bytes
        assert one.loss.gradient_bytes == other.loss.gradient_bytes
        assert other.loss.step_s == 0
    assert timed.image_bytes == assumed.image_bytes


@pytest.mark.parametrize(("n_gpus", "per_run"), [(8, 3), (0, 1), (2, 4), (4, 0)])
def test_gpus_that_form_no_groups(n_gpus: int, per_run: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{n_gpus} GPUs .* groups of {per_run}"):
        described_slots(n_gpus, per_run)


@pytest.mark.parametrize("throughput", [0, -1, float("nan")])
def test_impossible_throughput(throughput: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="`images_per_s` is .*; expected more than 0"):
        assume_throughput(toy.settings(tmp_path), throughput)
