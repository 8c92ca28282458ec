"""Cost of a comparison before it runs: steps, images, hours, memory and disk (``hgld benchmark --plan``)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from hgld.benchmark.assumed_throughput import assume_throughput
from hgld.benchmark.benchmark_settings import BenchmarkSettings, Gldv2Evaluation
from hgld.benchmark.dataset_sizes import EvaluationSize, TrainingSize, evaluation_size, training_size
from hgld.benchmark.launcher import Slot
from hgld.benchmark.run_evaluation import read_evaluated
from hgld.benchmark.runs import Run
from hgld.benchmark.step_timing import LossTiming, ModelTiming, time_loss, time_model, torch_threads
from hgld.compute.malloc import disable_trimming
from hgld.training.run import is_finished
from hgld.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class RunCost:
    """Cost of a method's runs, which differ in split and seed; the first one is measured.

    Args:
        title: Name of the method, and the changed setting in a study.
        n_runs: Number of runs.
        n_to_train: Number of runs that have to be trained and evaluated.
        n_to_evaluate: Number of runs that are trained, but have to be evaluated.
        steps: Number of steps of a run.
        batch_size: Number of images of a step.
        model: Cost of the model.
        loss: Cost of the loss and the optimisers.
        training_h: Hours of a training, with its evaluations.
        evaluation_h: Hours of the evaluation of a trained model.
        n_embedded: Number of images that this evaluation embeds.
        n_checkpoints: Number of checkpoints that a run keeps.
    """

    title: str
    n_runs: int
    n_to_train: int
    n_to_evaluate: int
    steps: int
    batch_size: int
    model: ModelTiming
    loss: LossTiming
    training_h: float
    evaluation_h: float
    n_embedded: int
    n_checkpoints: int

    def hours(self) -> list[float]:
        """Return the hours of each run that is not done."""
        to_train = [self.training_h + self.evaluation_h] * self.n_to_train
        return to_train + [self.evaluation_h] * self.n_to_evaluate


@dataclass(frozen=True)
class CostEstimate:
    """Cost of a comparison.

    Args:
        title: Title of the comparison.
        runs: Costs by method and studied setting.
        slots: Devices that the runs are shared among.
        device: Name of the GPU that steps were timed on, or the number of CPU threads; empty where nothing was timed.
        assumed_images_per_s: Number of images that a GPU is assumed to train on per second; None where steps were
            timed.
        image_bytes: Bytes of all images in tar files.
        images_per_s: Number of training images that one process reads per second; None where they are missing.
        missing: Error messages about missing files.
    """

    title: str
    runs: tuple[RunCost, ...]
    slots: tuple[Slot, ...]
    device: str
    assumed_images_per_s: float | None
    image_bytes: int
    images_per_s: float | None
    missing: tuple[str, ...]

    def total_h(self) -> float:
        """Return the hours of all runs that are not done, one after another."""
        return sum(hours for run in self.runs for hours in run.hours())

    def elapsed_h(self) -> float:
        """Return the hours until all runs are done, if each slot takes the next run as soon as it is free."""
        free = [0.0] * len(self.slots)
        for run in self.runs:
            for hours in run.hours():
                heapq.heapreplace(free, free[0] + hours)
        return max(free)


def estimate_cost(
    settings: BenchmarkSettings, runs: Sequence[Run], slots: Sequence[Slot], *, images_per_s: float | None = None
) -> CostEstimate:
    """Estimate the cost of runs from one timed step of each model and each loss; nothing is written.

    A few training images are read to time reading. GLDv2's published numbers replace those of missing images.

    Args:
        settings: Settings of the comparison.
        runs: Runs of its table and its studies.
        slots: Devices that the runs are shared among; steps are timed on the first one.
        images_per_s: Number of images that one of the GPUs trains on per second, which need not be at hand then, see
            :mod:`hgld.benchmark.assumed_throughput`. Default: steps are timed.

    Raises:
        InputError: Images to train on are missing, and they are not GLDv2's.
        ConfigurationError: A batch does not fit into the memory of the GPU, or a run in the output folder has other
            settings.
    """
    disable_trimming()  # as training does
    evaluation = settings.evaluation
    evaluated = evaluation_size(evaluation, runs[0].settings)
    shared: dict[TrainingSettings, tuple[TrainingSize, ModelTiming]] = {}
    by_title: dict[str, list[Run]] = {}
    for run in runs:
        by_title.setdefault(_title(run), []).append(run)
    costs = []
    with torch_threads(slots[0].threads):
        for title, group in by_title.items():
            training = group[0].settings
            key = training.model_copy(update={"loss": None, "memory": None, "optimiser": None, "seed": 0})
            if key not in shared:
                size = training_size(training, published=isinstance(evaluation, Gldv2Evaluation))
                shared[key] = size, _model_timing(training, slots[0], images_per_s)
            size, model = shared[key]
            step = _step_cost(training, size, model, slots[0], images_per_s)
            costs.append(_run_cost(title, group, size, step, evaluated, settings))
    sizes = [size for size, _ in shared.values()]
    slowest_s = max(size.read_s for size in sizes)
    messages = [message for size in sizes for message in size.missing] + list(evaluated.missing if evaluated else ())
    return CostEstimate(
        title=settings.title,
        runs=tuple(costs),
        slots=tuple(slots),
        device=_device_text(slots[0]) if images_per_s is None else "",
        assumed_images_per_s=images_per_s,
        image_bytes=max(size.n_bytes for size in sizes) + (evaluated.n_bytes if evaluated else 0),
        images_per_s=1 / slowest_s if slowest_s else None,
        missing=tuple(dict.fromkeys(messages)),
    )


def estimate_training_cost(settings: TrainingSettings, slot: Slot, *, images_per_s: float) -> CostEstimate:
    """Estimate the cost of a training on GPUs that need not be at hand; nothing is written.

    Args:
        settings: Settings of the training.
        slot: GPUs that share the training.
        images_per_s: Number of images that each of them trains on per second.

    Raises:
        InputError: Images are missing.
        ConfigurationError: ``images_per_s`` is not above 0, or the loss cannot be built.
    """
    size = training_size(settings, published=False)
    step = _step_cost(settings, size, _model_timing(settings, slot, images_per_s), slot, images_per_s)
    run = RunCost(
        title="",
        n_runs=1,
        n_to_train=1,
        n_to_evaluate=0,
        steps=size.steps,
        batch_size=settings.batch_size,
        model=step.model,
        loss=step.loss,
        training_h=step.training_h(size),
        evaluation_h=0.0,
        n_embedded=0,
        n_checkpoints=size.n_checkpoints,
    )
    return CostEstimate("", (run,), (slot,), "", images_per_s, size.n_bytes, 1 / size.read_s, ())


@dataclass(frozen=True, eq=False)
class _StepCost:
    """Cost of the model, of the loss and optimisers, and seconds of a step and of embedding an image."""

    model: ModelTiming
    loss: LossTiming
    step_s: float
    embed_s: float

    def training_h(self, size: TrainingSize) -> float:
        """Return the hours of a training with its evaluations, all of which test if each is the best so far."""
        n_embedded = size.n_evaluations * (size.n_val + size.n_test)
        return (size.steps * self.step_s + n_embedded * self.embed_s) / 3600


def _model_timing(settings: TrainingSettings, slot: Slot, images_per_s: float | None) -> ModelTiming:
    if images_per_s is not None:
        return assume_throughput(settings, images_per_s, len(slot.devices))
    return time_model(settings, torch.device(slot.devices[0]), len(slot.devices))


def _step_cost(
    settings: TrainingSettings, size: TrainingSize, model: ModelTiming, slot: Slot, images_per_s: float | None
) -> _StepCost:
    n_processes = len(slot.devices)
    if images_per_s is not None:
        # A step has to be made, as optimisers have no state before; its seconds here say nothing of the GPU.
        loss = time_loss(settings, model.model, size.labels, size.batch, torch.device("cpu"), n_processes)
        return _StepCost(model, replace(loss, step_s=0.0), model.step_s, model.embed_s / n_processes)
    device = torch.device(slot.devices[0])
    loss = time_loss(settings, model.model, size.labels, size.batch, device, n_processes)

    def with_reading(computing_s: float, n_images: float) -> float:
        """Workers read the next images beside a GPU, but on the same cores as a CPU."""
        if device.type == "cpu":
            return computing_s + n_images * size.read_s / slot.threads
        return max(computing_s, n_images * size.read_s / max(1, min(settings.workers, slot.threads)))

    step_s = with_reading(model.step_s + loss.step_s, settings.batch_size / n_processes)
    return _StepCost(model, loss, step_s, with_reading(model.embed_s, 1) / n_processes)


def _run_cost(
    title: str,
    runs: Sequence[Run],
    size: TrainingSize,
    step: _StepCost,
    evaluated: EvaluationSize | None,
    benchmark: BenchmarkSettings,
) -> RunCost:
    n_embedded = size.n_test if evaluated is None else evaluated.n_images
    to_train = [run for run in runs if not is_finished(run.settings, run.folder)]
    trained = [run for run in runs if run not in to_train]
    return RunCost(
        title=title,
        n_runs=len(runs),
        n_to_train=len(to_train),
        n_to_evaluate=sum(read_evaluated(benchmark, run) is None for run in trained),
        steps=size.steps,
        batch_size=runs[0].settings.batch_size,
        model=step.model,
        loss=step.loss,
        training_h=step.training_h(size),
        evaluation_h=n_embedded * step.embed_s / 3600,
        n_embedded=n_embedded,
        n_checkpoints=size.n_checkpoints,
    )


def _device_text(slot: Slot) -> str:
    return f"{slot.threads} CPU threads" if slot.devices[0] == "cpu" else torch.cuda.get_device_name(slot.devices[0])


def _title(run: Run) -> str:
    return " ".join([run.method, ",".join(run.changes)]).rstrip()
