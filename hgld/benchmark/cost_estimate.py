"""Cost of a comparison before it runs: runs, steps, images and hours (``hgld benchmark --plan``).

Nothing is timed: hours follow from a throughput that was measured or published elsewhere. GLDv2's published numbers
replace those of missing images.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hgld.benchmark.evaluations import Gldv2Evaluation
from hgld.benchmark.runs import BenchmarkSettings, Run
from hgld.benchmark.worker import read_evaluated
from hgld.errors import ConfigurationError, InputError, require
from hgld.evaluation.metrics import Metric
from hgld.losses.registry import LabelSpace
from hgld.models.embedding_model import EmbeddingModel
from hgld.training.optimisation import require_trainable
from hgld.training.run import is_finished, model_for_checkpoint, training_loss
from hgld.training.training_images import TrainingImages
from hgld.training.training_settings import TrainingSettings

#: Labels of two landmarks at the levels of GLDv2, to check trainings whose images are missing.
_GLDV2_LABELS = np.array([[0, 0, 0], [1, 1, 1]])


@dataclass(frozen=True)
class Gpus:
    """GPUs to plan for.

    Args:
        per_run: Number of GPUs that train a run together.
        images_per_s: Number of images that one of them trains on per second, with loss and optimisers. Embedding,
            without a backward pass but in 32 bits, is assumed to be as fast.

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
        require(self.images_per_s > 0, "more than 0", images_per_s=self.images_per_s)


@dataclass(frozen=True)
class RunCost:
    """Cost of a method's runs, which differ in split and seed.

    Args:
        title: Name of the method, and the changed setting in a sweep.
        n_to_train: Number of runs that have to be trained and evaluated.
        n_to_evaluate: Number of runs that are trained, but have to be evaluated.
        steps: Number of steps of a run.
        batch_size: Number of images of a step.
        n_validated: Number of images that the evaluations of a training embed.
        n_evaluated: Number of images that the evaluation of the trained model embeds.
    """

    title: str
    n_runs: int
    n_to_train: int
    n_to_evaluate: int
    steps: int
    batch_size: int
    n_validated: int
    n_evaluated: int

    @property
    def n_to_do(self) -> int:
        """Number of runs that are not done."""
        return self.n_to_train + self.n_to_evaluate

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
        runs: Costs by method and swept setting.
        missing: Error messages about missing files.
    """

    title: str
    runs: tuple[RunCost, ...]
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
    evaluation, costs = settings.evaluation, []
    n_evaluated, not_evaluated = evaluation.count_images(runs[0].settings) or (None, [])
    missing: dict[str, None] = {}
    # Methods share images and a model, which take long to read; losses and seeds do not change them.
    read_images, build_model = cache(TrainingImages), cache(model_for_checkpoint)
    by_title: dict[str, list[Run]] = {}
    for run in runs:
        by_title.setdefault(" ".join([run.method, ",".join(run.changes)]).rstrip(), []).append(run)
    for title, group in by_title.items():
        training = group[0].settings
        to_train = [run for run in group if not is_finished(run.settings, run.folder)]
        to_evaluate = [run for run in group if run not in to_train and read_evaluated(settings, run) is None]
        shared = training.model_copy(update={"loss": None, "memory": None, "optimiser": None, "seed": 0})
        images = None
        try:
            images = read_images(shared)
        except InputError as error:
            if not isinstance(evaluation, Gldv2Evaluation) or training.steps is None:
                raise
            missing[str(error)] = None
        _check_training(training, images, build_model(shared))
        counts = (len(group), len(to_train), len(to_evaluate))
        costs.append(_run_cost(title, training, images, counts, n_evaluated))
    return CostEstimate(settings.title, tuple(costs), tuple(dict.fromkeys([*missing, *not_evaluated])))


def estimate_training_cost(settings: TrainingSettings) -> CostEstimate:
    """Estimate the cost of a training; nothing is written."""
    images = TrainingImages(settings)
    _check_training(settings, images, model_for_checkpoint(settings))
    return CostEstimate("", (_run_cost("", settings, images, (1, 1, 0), 0),))


def _run_cost(
    title: str,
    settings: TrainingSettings,
    images: TrainingImages | None,
    counts: tuple[int, int, int],
    n_evaluated: int | None,
) -> RunCost:
    """Return the cost of runs; ``counts`` are the numbers of all runs, of those to train, and to evaluate only."""
    if images is None:
        return RunCost(title, *counts, settings.steps or 0, settings.batch_size, 0, n_evaluated or 0)
    n_test, n_val = len(images.test), 0 if images.val is None else len(images.val)
    # before the first step, after each ``every`` epochs, and after the last step
    n_evaluations = 1 + -(-images.n_epochs // settings.evaluation.every)
    return RunCost(
        title,
        *counts,
        steps=images.n_steps,
        batch_size=settings.batch_size,
        n_validated=n_evaluations * (n_val + n_test),
        n_evaluated=n_test if n_evaluated is None else n_evaluated,
    )


def _check_training(settings: TrainingSettings, images: TrainingImages | None, model: EmbeddingModel) -> None:
    """Raise if the loss or a metric of a training cannot be built, or if there is nothing to train."""
    if images is None:
        space, n_images = LabelSpace.from_labels(model.dim, _GLDV2_LABELS), settings.batch_size
    else:
        for name in settings.evaluation.metrics:
            Metric.from_name(name, len(images.test.manifest.level_names))
        space, n_images = images.space(model.dim), len(images.train)
    loss = training_loss(settings, space, n_images, memory_start=0)
    require_trainable(model, {**model.parameter_groups(), "proxies": list(loss.parameters())}, settings)
