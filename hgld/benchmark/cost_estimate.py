"""Cost of a comparison before it runs: steps, images, hours, memory and disk (``hgld benchmark --plan``)."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hgld.benchmark.benchmark_settings import (
    BenchmarkSettings,
    DymlEvaluation,
    Gldv2Evaluation,
    ManifestsEvaluation,
    RevisitedEvaluation,
)
from hgld.benchmark.evaluations.dyml import image_ids
from hgld.benchmark.launcher import Slot
from hgld.benchmark.run_evaluation import read_evaluated
from hgld.benchmark.runs import Run
from hgld.benchmark.step_timing import LossTiming, ModelTiming, time_loss, time_model, torch_threads
from hgld.compute.malloc import disable_trimming
from hgld.datasets.dyml_files import read_test_set
from hgld.datasets.image_sources import read_images
from hgld.errors import InputError
from hgld.evaluation.protocols.gldv2_retrieval import LANDMARKS, SOLUTION
from hgld.gldv2.files import N_IMAGES, N_SHARDS, SHARD_BYTES
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.training.run import is_finished
from hgld.training.training_images import TrainingImages, evaluation_manifest, read_training_manifest
from hgld.training.training_settings import TrainingSettings

#: Landmarks, super-categories and roots of the train split of H-GLDv2 (paper, Sec. VII).
_GLDV2_CLASSES = (46_593, 78, 2)
_READ_IMAGES = 32


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
        device: Name of the GPU that steps were timed on, or the number of CPU threads.
        image_bytes: Bytes of all images in tar files.
        images_per_s: Number of training images that one process reads per second; None where they are missing.
        missing: Error messages about missing files.
    """

    title: str
    runs: tuple[RunCost, ...]
    slots: tuple[Slot, ...]
    device: str
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


@dataclass(frozen=True, eq=False)
class TrainingSize:
    """Numbers of images of a training.

    Args:
        labels: Label matrix of the training images, int64, shape (N, L); without images, a row per landmark.
        batch: Label matrix of a batch, int64, shape (B, L).
        steps: Number of steps.
        n_test: Number of images that an evaluation embeds; 0 without images.
        n_evaluations: Number of evaluations before, during and after the training.
        n_bytes: Bytes of all images in tar files.
        read_s: Seconds that one process needs to read an image; 0 without images.
        missing: Error messages about missing files.
    """

    labels: LabelMatrix
    batch: LabelMatrix
    steps: int
    n_test: int
    n_evaluations: int
    n_bytes: int
    read_s: float
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProtocolSize:
    """Number and bytes of the images that an evaluation embeds, and error messages about missing files."""

    n_images: int = 0
    n_bytes: int = 0
    missing: tuple[str, ...] = ()


def estimate_cost(settings: BenchmarkSettings, runs: Sequence[Run], slots: Sequence[Slot]) -> CostEstimate:
    """Estimate the cost of runs from one timed step of each model and each loss; nothing is written.

    A few training images are read to time reading. GLDv2's published numbers replace those of missing images.

    Args:
        settings: Settings of the comparison.
        runs: Runs of its table and its studies.
        slots: Devices that the runs are shared among; steps are timed on the first one.

    Raises:
        InputError: Images to train on are missing, and they are not GLDv2's.
        ConfigurationError: A batch does not fit into the memory of the GPU, or a run in the output folder has other
            settings.
    """
    disable_trimming()  # as training does
    evaluation = settings.evaluation
    protocol = protocol_size(evaluation) if isinstance(evaluation, Gldv2Evaluation) else None
    if isinstance(evaluation, ManifestsEvaluation):
        protocol = manifests_size(evaluation, runs[0].settings)
    if isinstance(evaluation, RevisitedEvaluation):
        protocol = revisited_size(evaluation)
    if isinstance(evaluation, DymlEvaluation):
        protocol = dyml_size(evaluation)
    shared: dict[TrainingSettings, tuple[TrainingSize, ModelTiming]] = {}
    device, n_processes = torch.device(slots[0].devices[0]), len(slots[0].devices)
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
                shared[key] = size, time_model(training, device, n_processes)
            costs.append(_run_cost(title, group, *shared[key], protocol, settings, slots[0]))
    sizes = [size for size, _ in shared.values()]
    slowest_s = max(size.read_s for size in sizes)
    messages = [message for size in sizes for message in size.missing] + list(protocol.missing if protocol else ())
    return CostEstimate(
        title=settings.title,
        runs=tuple(costs),
        slots=tuple(slots),
        device=_device_text(slots[0]),
        image_bytes=max(size.n_bytes for size in sizes) + (protocol.n_bytes if protocol else 0),
        images_per_s=1 / slowest_s if slowest_s else None,
        missing=tuple(dict.fromkeys(messages)),
    )


def training_size(settings: TrainingSettings, *, published: bool) -> TrainingSize:
    """Return the numbers of images of a training, by default GLDv2's published ones if ``published``.

    Raises:
        InputError: The images are missing, and either ``published`` is false or the length is set in epochs.
        ConfigurationError: The images do not fill a batch.
    """
    try:
        images = TrainingImages(settings)
    except InputError as error:
        if not published or settings.steps is None:
            raise
        landmarks, per_class = np.arange(_GLDV2_CLASSES[0]), settings.sampler.per_class
        labels = np.stack([landmarks % n for n in _GLDV2_CLASSES], axis=1)
        batch = np.repeat(labels[: settings.batch_size // per_class], per_class, axis=0)
        n_bytes = N_SHARDS["train"] * SHARD_BYTES["train"]
        return TrainingSize(labels, batch, settings.steps, 0, 0, n_bytes, 0.0, (str(error),))
    train, test = images.train.manifest, images.test.manifest
    return TrainingSize(
        labels=train.labels,
        batch=train.labels[images.sampler.batches(0)[0]],
        steps=images.n_steps,
        n_test=len(test),
        n_evaluations=count_evaluations(images.n_epochs, settings.evaluation.every),
        n_bytes=sum(int(part.sizes[part.sizes > 0].sum()) for part in (train, test)),
        read_s=_time_reading(images),
    )


def count_evaluations(n_epochs: int, every: int) -> int:
    """Return the number of evaluations: before the first step, after each ``every`` epochs, and after the last step.

    Args:
        n_epochs: Number of epochs of the training, of which the last may be incomplete.
        every: Number of epochs between evaluations.

    >>> count_evaluations(n_epochs=10, every=4)  # after 0, 4, 8 and 10 epochs
    4
    """
    return 1 + -(-n_epochs // every)


def protocol_size(evaluation: Gldv2Evaluation) -> ProtocolSize:
    """Return the numbers of GLDv2's protocol, the published ones for images that are missing."""
    n_images, n_bytes, missing = 0, 0, []
    for split, path in (("test", evaluation.queries), ("index", evaluation.gallery)):
        try:
            images = read_images(path)
            n_images, n_bytes = n_images + len(images), n_bytes + int(images.sizes[images.sizes > 0].sum())
        except InputError as error:
            n_images, n_bytes = n_images + N_IMAGES[split], n_bytes + N_SHARDS[split] * SHARD_BYTES[split]
            missing.append(str(error))
    files = (evaluation.ground_truth / SOLUTION, evaluation.ground_truth / LANDMARKS, evaluation.hierarchy)
    missing += [f"{path}: no such file" for path in files if not path.exists()]
    return ProtocolSize(n_images, n_bytes, tuple(missing))


def manifests_size(evaluation: ManifestsEvaluation, training: TrainingSettings) -> ProtocolSize:
    """Return the numbers of the test images of several manifests, which are not in tar files."""
    n_images, missing = 0, []
    for path in evaluation.manifests.values():
        data = training.data.model_copy(update={"manifest": path})
        try:
            n_images += len(evaluation_manifest(read_training_manifest(data), data))
        except InputError as error:
            missing.append(str(error))
    return ProtocolSize(n_images, 0, tuple(missing))


def revisited_size(evaluation: RevisitedEvaluation) -> ProtocolSize:
    """Return the number of the images of ROxford and RParis, at each scale, which are not in tar files."""
    n_images, missing = 0, []
    tables: list[tuple[Path, Path | None]] = [(data.manifest, data.root) for data in evaluation.datasets.values()]
    if evaluation.distractors is not None:
        tables.append((evaluation.distractors, None))
    for path, root in tables:
        try:
            n_images += len(read_images(path, root))
        except InputError as error:
            missing.append(str(error))
    return ProtocolSize(len(evaluation.scales) * n_images, 0, tuple(missing))


def dyml_size(evaluation: DymlEvaluation) -> ProtocolSize:
    """Return the number of the test images of DyML, which are not in tar files."""
    try:
        return ProtocolSize(len(image_ids(read_test_set(evaluation.root))))
    except InputError as error:
        return ProtocolSize(missing=(str(error),))


def _run_cost(
    title: str,
    runs: Sequence[Run],
    size: TrainingSize,
    model: ModelTiming,
    protocol: ProtocolSize | None,
    benchmark: BenchmarkSettings,
    slot: Slot,
) -> RunCost:
    settings, n_processes = runs[0].settings, len(slot.devices)
    device = torch.device(slot.devices[0])
    loss = time_loss(settings, model.model, size.labels, size.batch, device, n_processes)

    def with_reading(computing_s: float, n_images: float) -> float:
        """Workers read the next images beside a GPU, but on the same cores as a CPU."""
        if device.type == "cpu":
            return computing_s + n_images * size.read_s / slot.threads
        return max(computing_s, n_images * size.read_s / max(1, min(settings.workers, slot.threads)))

    step_s = with_reading(model.step_s + loss.step_s, settings.batch_size / n_processes)
    embed_s = with_reading(model.embed_s, 1) / n_processes
    n_embedded = size.n_test if protocol is None else protocol.n_images
    to_train = [run for run in runs if not is_finished(run.settings, run.folder)]
    trained = [run for run in runs if run not in to_train]
    return RunCost(
        title=title,
        n_runs=len(runs),
        n_to_train=len(to_train),
        n_to_evaluate=sum(read_evaluated(benchmark, run) is None for run in trained),
        steps=size.steps,
        batch_size=settings.batch_size,
        model=model,
        loss=loss,
        training_h=(size.steps * step_s + size.n_evaluations * size.n_test * embed_s) / 3600,
        evaluation_h=n_embedded * embed_s / 3600,
        n_embedded=n_embedded,
    )


def _time_reading(images: TrainingImages) -> float:
    """Return the seconds that one process needs for an image, from a sample spread over all of them."""
    rows = np.linspace(0, len(images.train) - 1, _READ_IMAGES).astype(int).tolist()
    start = time.perf_counter()
    for row in rows:
        images.train[row, 0]
    return (time.perf_counter() - start) / len(rows)


def _device_text(slot: Slot) -> str:
    return f"{slot.threads} CPU threads" if slot.devices[0] == "cpu" else torch.cuda.get_device_name(slot.devices[0])


def _title(run: Run) -> str:
    return " ".join([run.method, ",".join(run.changes)]).rstrip()
