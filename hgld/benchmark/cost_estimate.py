"""Cost of a comparison before it runs: numbers of runs, steps and training images (``hgld benchmark --plan``).

The steps of GLDv2's trainings are settings, so that its images may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hgld.benchmark.evaluations import Gldv2Evaluation
from hgld.benchmark.runs import BenchmarkSettings, Run, is_evaluated
from hgld.errors import InputError
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
class RunCost:
    """Cost of a method's runs, which differ in split and seed.

    Args:
        title: Name of the method, and the changed setting in a sweep.
        n_to_train: Number of runs that have to be trained and evaluated.
        n_to_evaluate: Number of runs that are trained, but have to be evaluated.
        steps: Number of steps of a run.
        batch_size: Number of images of a step.
    """

    title: str
    n_runs: int
    n_to_train: int
    n_to_evaluate: int
    steps: int
    batch_size: int

    @property
    def n_to_do(self) -> int:
        """Number of runs that are not done."""
        return self.n_to_train + self.n_to_evaluate


@dataclass(frozen=True)
class CostEstimate:
    """Cost of a comparison.

    Args:
        runs: Costs by method and swept setting.
        missing: Error messages about missing files.
    """

    title: str
    runs: tuple[RunCost, ...]
    missing: tuple[str, ...]


def estimate_cost(settings: BenchmarkSettings, runs: Sequence[Run]) -> CostEstimate:
    """Count the steps and images of the runs of a comparison; nothing is written.

    Raises:
        InputError: Images to train on are missing, and they are not GLDv2's.
        ConfigurationError: The settings of a training fit neither its model nor its images, or a run in the output
            folder has other settings.
    """
    evaluation, costs = settings.evaluation, []
    missing: dict[str, None] = {}
    # Methods share images and a model, which take long to read; losses and seeds do not change them.
    read_images, build_model = cache(TrainingImages), cache(model_for_checkpoint)
    by_title: dict[str, list[Run]] = {}
    for run in runs:
        changes = ",".join(run.changes)
        by_title.setdefault(f"{run.method} {changes}".rstrip(), []).append(run)
    for title, group in by_title.items():
        training = group[0].settings
        n_to_train = n_to_evaluate = 0
        for run in group:
            if not is_finished(run.settings, run.folder):
                n_to_train += 1
            elif not is_evaluated(settings, run):
                n_to_evaluate += 1
        shared = training.model_copy(
            update={"loss": None, "memory": None, "optimiser": None, "seed": 0}
        )
        images = None
        try:
            images = read_images(shared)
        except InputError as error:
            if not isinstance(evaluation, Gldv2Evaluation) or training.steps is None:
                raise
            missing[str(error)] = None
        _check_training(training, images, build_model(shared))
        steps = training.steps or 0
        if images is not None:
            steps = images.n_steps
        costs.append(
            RunCost(title, len(group), n_to_train, n_to_evaluate, steps, training.batch_size)
        )
    for path in evaluation.files.values():
        if not path.exists():
            missing[f"{path}: no such file"] = None
    return CostEstimate(settings.title, tuple(costs), tuple(missing))


def _check_training(
    settings: TrainingSettings, images: TrainingImages | None, model: EmbeddingModel
) -> None:
    """Raise if the loss or a metric of a training cannot be built, or if there is nothing to train."""
    if images is None:
        space = LabelSpace.from_labels(model.dim, _GLDV2_LABELS)
        n_images = settings.batch_size
    else:
        for name in settings.evaluation.metrics:
            Metric.from_name(name, len(images.test.manifest.level_names))
        space = images.space(model.dim)
        n_images = len(images.train)
    loss = training_loss(settings, space, n_images, memory_start=0)
    groups = {**model.parameter_groups(), "proxies": list(loss.parameters())}
    require_trainable(model, groups, settings)
