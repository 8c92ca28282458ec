"""Cost of a comparison before it runs: steps, images, hours, memory and disk (``hgld benchmark --plan``).

Nothing is timed: hours follow from a throughput that was measured or published elsewhere, and bytes from counts of
parameters. GLDv2's published numbers replace those of missing images.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.evaluations import EvaluationSize, Gldv2Evaluation
from hgld.benchmark.runs import Run
from hgld.benchmark.worker import read_evaluated
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.metrics import Metric
from hgld.gldv2.files import N_SHARDS, SHARD_BYTES
from hgld.hierarchy.label_sets import Labelling
from hgld.losses.registry import LabelSpace
from hgld.models.embedding_model import EmbeddingModel
from hgld.training.optimisation import freeze_parameters, require_trainable
from hgld.training.run import empty_model, is_finished, training_loss
from hgld.training.training_images import TrainingImages
from hgld.training.training_settings import GroupSettings, TrainingSettings

#: Landmarks, super-categories and roots of the train split of H-GLDv2 (paper, Sec. VII).
_GLDV2_CLASSES = (46_593, 78, 2)
_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Gpus:
    """GPUs to plan for.

    Args:
        count: Number of GPUs.
        per_run: Number of GPUs that train a run together.
        images_per_s: Number of images that one of them trains on per second, with loss and optimisers. Embedding is
            assumed to be as fast: it has no backward pass, but 32 bits.

    Raises:
        ConfigurationError: The GPUs do not form groups of ``per_run``, or ``images_per_s`` is not above 0.
    """

    count: int
    per_run: int
    images_per_s: float

    def __post_init__(self) -> None:
        if self.count < 1 or self.per_run < 1 or self.count % self.per_run:
            raise ConfigurationError(
                f"{self.count} GPUs (`gpus`) cannot be divided into groups of {self.per_run} (`per_run`)"
            )
        if not self.images_per_s > 0:
            raise ConfigurationError(f"`images_per_s` is {self.images_per_s}; expected more than 0")


@dataclass(frozen=True, eq=False)
class TrainingSize:
    """Numbers of images of a training.

    Args:
        labels: Labels of the training images, int64, shape (N, L), or label sets; without images, a row per landmark.
        steps: Number of steps.
        n_test: Number of test images; 0 without images.
        n_val: Number of validation images.
        n_evaluations: Number of evaluations before, during and after the training.
        n_bytes: Bytes of all images in tar files.
        missing: Error messages about missing files.
    """

    labels: Labelling
    steps: int
    n_test: int = 0
    n_val: int = 0
    n_evaluations: int = 0
    n_bytes: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunCost:
    """Cost of a method's runs, which differ in split and seed.

    Args:
        title: Name of the method, and the changed setting in a sweep.
        n_runs: Number of runs.
        n_to_train: Number of runs that have to be trained and evaluated.
        n_to_evaluate: Number of runs that are trained, but have to be evaluated.
        steps: Number of steps of a run.
        batch_size: Number of images of a step.
        n_validated: Number of images that the evaluations of a training embed.
        n_evaluated: Number of images that the evaluation of the trained model embeds.
        dim: Dimension of the embeddings.
        n_checkpoints: Number of checkpoints that a run keeps: the last, and the best on validation images.
        state_bytes: Bytes of parameters, proxies and the state of optimisers and memory, as a checkpoint has them.
        gradient_bytes: Bytes of the gradients of all trained parameters.
    """

    title: str
    n_runs: int
    n_to_train: int
    n_to_evaluate: int
    steps: int
    batch_size: int
    n_validated: int
    n_evaluated: int
    dim: int
    n_checkpoints: int
    state_bytes: int
    gradient_bytes: int

    @property
    def n_to_do(self) -> int:
        """Number of runs that are not done."""
        return self.n_to_train + self.n_to_evaluate

    @property
    def embedding_bytes(self) -> int:
        """Bytes of the embeddings of all runs."""
        return self.n_runs * self.n_evaluated * self.dim * _FLOAT32_BYTES

    def hours(self, gpus: Gpus) -> list[float]:
        """Return the hours of each run that is not done."""
        images_per_h = 3600 * gpus.images_per_s * gpus.per_run
        trained = self.steps * self.batch_size + self.n_validated + self.n_evaluated
        images = [trained] * self.n_to_train + [self.n_evaluated] * self.n_to_evaluate
        return [n_images / images_per_h for n_images in images]


@dataclass(frozen=True)
class CostEstimate:
    """Cost of a comparison.

    Args:
        title: Title of the comparison.
        runs: Costs by method and swept setting.
        image_bytes: Bytes of all images in tar files.
        missing: Error messages about missing files.
    """

    title: str
    runs: tuple[RunCost, ...]
    image_bytes: int
    missing: tuple[str, ...] = ()

    def elapsed_h(self, gpus: Gpus) -> float:
        """Return the hours until all runs are done, if each free group of GPUs takes the next run at once."""
        free = [0.0] * (gpus.count // gpus.per_run)
        for run in self.runs:
            for hours in run.hours(gpus):
                heapq.heapreplace(free, free[0] + hours)
        return max(free)


def estimate_cost(settings: BenchmarkSettings, runs: Sequence[Run]) -> CostEstimate:
    """Estimate the cost of runs of a comparison; nothing is written.

    Raises:
        InputError: Images to train on are missing, and they are not GLDv2's.
        ConfigurationError: The settings of a training fit neither its model nor its images, or a run in the output
            folder has other settings.
    """
    evaluated, sizes = settings.evaluation.size(runs[0].settings), []
    published = isinstance(settings.evaluation, Gldv2Evaluation)
    sized = cache(lambda training: (training_size(training, published=published), _untrained_model(training)))
    by_title: dict[str, list[Run]] = {}
    for run in runs:
        by_title.setdefault(" ".join([run.method, ",".join(run.changes)]).rstrip(), []).append(run)
    costs = []
    for title, group in by_title.items():
        training = group[0].settings
        size, model = sized(training.model_copy(update={"loss": None, "memory": None, "optimiser": None, "seed": 0}))
        sizes.append(size)
        to_train = [run for run in group if not is_finished(run.settings, run.folder)]
        to_evaluate = [run for run in group if run not in to_train and read_evaluated(settings, run) is None]
        n_evaluated = size.n_test if evaluated is None else evaluated.n_images
        counts = (len(group), len(to_train), len(to_evaluate))
        costs.append(_run_cost(title, training, model, size, counts, n_evaluated))
    evaluated = evaluated or EvaluationSize()
    missing = [*(message for size in sizes for message in size.missing), *evaluated.missing]
    image_bytes = max(size.n_bytes for size in sizes) + evaluated.n_bytes
    return CostEstimate(settings.title, tuple(costs), image_bytes, tuple(dict.fromkeys(missing)))


def estimate_training_cost(settings: TrainingSettings) -> CostEstimate:
    """Estimate the cost of a training; nothing is written."""
    size = training_size(settings, published=False)
    cost = _run_cost("", settings, _untrained_model(settings), size, (1, 1, 0), 0)
    return CostEstimate("", (cost,), size.n_bytes)


def training_size(settings: TrainingSettings, *, published: bool) -> TrainingSize:
    """Return the numbers of images of a training, for missing ones GLDv2's published ones if ``published``.

    Raises:
        InputError: The images are missing, and either ``published`` is false or the length is set in epochs.
        ConfigurationError: The images do not fill a batch, or a metric of the training does not exist.
    """
    try:
        images = TrainingImages(settings)
    except InputError as error:
        if not published or settings.steps is None:
            raise
        landmarks = np.arange(_GLDV2_CLASSES[0])
        labels = np.stack([landmarks % n for n in _GLDV2_CLASSES], axis=1)
        n_bytes = N_SHARDS["train"] * SHARD_BYTES["train"]
        return TrainingSize(labels, settings.steps, n_bytes=n_bytes, missing=(str(error),))
    test = images.test.manifest
    for name in settings.evaluation.metrics:
        Metric.from_name(name, len(test.level_names))
    return TrainingSize(
        labels=images.train.manifest.labelling,
        steps=images.n_steps,
        n_test=len(test),
        n_val=0 if images.val is None else len(images.val),
        # before the first step, after each ``every`` epochs, and after the last step
        n_evaluations=1 + -(-images.n_epochs // settings.evaluation.every),
        n_bytes=sum(int(part.sizes[part.sizes > 0].sum()) for part in (images.train.manifest, test)),
    )


def _untrained_model(settings: TrainingSettings) -> EmbeddingModel:
    """Return the model of a training after its warm-up, with random weights."""
    model = empty_model(settings)
    freeze_parameters(model, settings, settings.warm_up_epochs)
    return model


def _run_cost(
    title: str,
    settings: TrainingSettings,
    model: EmbeddingModel,
    size: TrainingSize,
    counts: tuple[int, int, int],
    n_evaluated: int,
) -> RunCost:
    """Return the cost of runs; ``counts`` are those of all, to train, and to evaluate only."""
    loss = training_loss(settings, LabelSpace.from_labels(model.dim, size.labels), len(size.labels), memory_start=0)
    groups = {**model.parameter_groups(), "proxies": list(loss.parameters())}
    require_trainable(model, groups, settings)
    state_bytes = sum(tensor.nbytes for part in (model, loss) for tensor in part.state_dict().values())
    gradient_bytes = 0
    for name, group in groups.items():
        trained = [parameter for parameter in group if parameter.requires_grad]
        gradient_bytes += sum(parameter.nbytes for parameter in trained)
        if settings.steps != 0:
            optimiser: GroupSettings = getattr(settings.optimiser, name)
            state_bytes += sum(_optimiser_bytes(optimiser, parameter) for parameter in trained)
    return RunCost(
        title,
        *counts,
        steps=size.steps,
        batch_size=settings.batch_size,
        n_validated=size.n_evaluations * (size.n_val + size.n_test),
        n_evaluated=n_evaluated,
        dim=model.dim,
        n_checkpoints=2 if size.n_val else 1,
        state_bytes=state_bytes,
        gradient_bytes=gradient_bytes,
    )


def _optimiser_bytes(settings: GroupSettings, parameter: torch.nn.Parameter) -> int:
    """Return the bytes of the state of a parameter: two moments and the number of the step of Adam, or a momentum."""
    if settings.name == "sgd":
        return parameter.nbytes * (settings.momentum > 0)
    return 2 * parameter.nbytes + _FLOAT32_BYTES
