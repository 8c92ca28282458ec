"""All settings of a training, as its YAML file has them.

The defaults are those of the paper's experiments on H-GLDv2 (Sec. VII-C3 and the authors' settings) where there are
any. Sections of other rooms: ``model`` (:mod:`hgld.models`), ``image`` (:mod:`hgld.datasets`),
``loss`` (:mod:`hgld.losses.registry`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from hgld.datasets.transforms import ImageSettings
from hgld.io.settings import Settings
from hgld.losses.registry import LOSSES, LossSettings, loss_settings
from hgld.models.model_settings import FEATURES, ModelSettings

if TYPE_CHECKING:
    AnyLoss = LossSettings
else:
    AnyLoss = Annotated[
        Union[tuple(loss_settings(name) for name in LOSSES)],  # noqa: UP007
        Field(discriminator="name"),
    ]


class DataSettings(Settings):
    """Which images are trained on, and which ones show what was learned.

    Args:
        manifest: the table from ``hgld manifest``.
        root: the folder that its paths are relative to; None for the folder of the manifest.
        features: of all images, from ``hgld embed-images``; then nothing but what follows the backbone is trained,
            which is ``features``, and pictures are not read at all.
        train: the split to train on.
        test: the split whose images are ranked for each other (leave-one-out); or
        queries: the split of the queries, and
        gallery: the split that is ranked for them.
    """

    manifest: Path
    root: Path | None = None
    features: Path | None = None
    train: str = "train"
    test: str | None = None
    queries: str | None = None
    gallery: str | None = None

    @model_validator(mode="after")
    def _one_protocol(self) -> DataSettings:
        both = (self.queries is not None, self.gallery is not None)
        if both not in ((True, True), (False, False)) or both[0] == (self.test is not None):
            raise ValueError("give either test (leave-one-out), or queries and gallery")
        return self


class ClassBalancedSettings(Settings):
    """Batches of classes that are drawn at random, with as many images of each.

    Args:
        per_class: images of a class in a batch.
        max_per_class: images of a class in an epoch, at most.
    """

    name: Literal["class_balanced"] = "class_balanced"
    per_class: PositiveInt = 4
    max_per_class: PositiveInt | None = None


class HierarchicalSettings(Settings):
    """Batches from few super-classes (Cakir et al., Deep Metric Learning to Rank).

    Args:
        per_class: images of a class in a batch.
        super_classes: in a batch.
        batches_per_tuple: that are drawn from the same super-classes.
    """

    name: Literal["hierarchical"] = "hierarchical"
    per_class: PositiveInt = 4
    super_classes: PositiveInt = 2
    batches_per_tuple: PositiveInt = 5


class MemorySettings(Settings):
    """A cross-batch memory (Wang et al.) that the loss is taken against, too.

    Args:
        size: embeddings that it holds; None for as many as there are images to train on.
        weight: of the loss against the memory; that within the batch has 1.
        start_epoch: the epoch, from 0, with which it begins.
    """

    size: PositiveInt | None = None
    weight: PositiveFloat = 1.0
    start_epoch: NonNegativeInt = 0


class GroupSettings(Settings):
    """How a group of parameters is optimised.

    Args:
        name: of the optimiser; ``sgd`` is Nesterov's where it has momentum.
        lr: the learning rate at the first step.
        weight_decay: likewise for every step.
        momentum: of ``sgd``.
        schedule: how the learning rate goes on from there.
        end_lr: what ``cosine`` ends with.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: NonNegativeFloat = 1e-5
    weight_decay: NonNegativeFloat = 1e-4
    momentum: NonNegativeFloat = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    end_lr: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _momentum_of_sgd(self) -> GroupSettings:
        if self.momentum and self.name != "sgd":
            raise ValueError(f"momentum is a setting of sgd, not of {self.name}")
        return self


class OptimiserSettings(Settings):
    """The groups of parameters.

    Args:
        backbone: of the model.
        head: what follows the backbone.
        proxies: the parameters of the loss.
    """

    backbone: GroupSettings = GroupSettings()
    head: GroupSettings = GroupSettings()
    proxies: GroupSettings = GroupSettings()


class EvaluationSettings(Settings):
    """Evaluations during the training, of which there is always one before it and one after it.

    Args:
        every: so many epochs.
        metrics: by the names that ``hgld evaluate`` knows; those of the papers if there are none.
        best: the metric that chooses ``best.pt``.
        batch_size: images of a process that are embedded at a time.
    """

    every: PositiveInt = 1
    metrics: tuple[str, ...] = ()
    best: str = "H-AP"
    batch_size: PositiveInt = 64

    @model_validator(mode="after")
    def _best_is_taken(self) -> EvaluationSettings:
        if self.metrics and self.best not in self.metrics:
            raise ValueError(f'"{self.best}" is to choose the best, but it is not among the metrics')
        return self


class TrainingSettings(Settings):
    """A training.

    Args:
        model: what embeds images.
        image: what becomes of an image before.
        data: the images.
        sampler: what comes into a batch.
        loss: what is made small.
        memory: embeddings of former batches.
        optimiser: of each group of parameters.
        epochs: how long; or
        steps: how long; 0 evaluates the model as it is.
        warm_up_epochs: at the beginning, in which the backbone stays as it is.
        frozen: beginnings of names of the model's parameters that always stay as they are, such as
            ``backbone.blocks.0``; where these are the first layers, each step is the faster for it.
        batch_size: images of a step, of all processes together.
        chunk_size: images of a process that are embedded at a time; fewer take less memory and more time, and make
            no other difference (:mod:`hgld.training.backpropagation`). None for all.
        mixed_precision: of the model; losses work in float32 in any case.
        clip_norm: the longest gradient of the model's parameters; longer ones are shortened. None for any length.
        evaluation: during the training.
        checkpoint_steps: a checkpoint each so many steps, besides those after epochs.
        seed: of everything that is drawn at random.
        workers: processes that read images, of each process that trains.
    """

    model: ModelSettings
    image: ImageSettings = ImageSettings()
    data: DataSettings
    sampler: Annotated[ClassBalancedSettings | HierarchicalSettings, Field(discriminator="name")] = (
        ClassBalancedSettings()
    )
    loss: AnyLoss
    memory: MemorySettings | None = None
    optimiser: OptimiserSettings = OptimiserSettings()
    epochs: PositiveInt | None = None
    steps: NonNegativeInt | None = None
    warm_up_epochs: NonNegativeInt = 0
    frozen: tuple[str, ...] = ()
    batch_size: PositiveInt = 256
    chunk_size: PositiveInt | None = None
    mixed_precision: Literal["off", "bf16", "fp16"] = "off"
    clip_norm: PositiveFloat | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint_steps: PositiveInt = 1000
    seed: NonNegativeInt = 0
    workers: NonNegativeInt = 4

    @model_validator(mode="after")
    def _one_length(self) -> TrainingSettings:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps")
        if (self.data.features is None) == (self.model.backbone == FEATURES):
            raise ValueError(
                f"data.features goes with the backbone {FEATURES}, and with no other; it is "
                f"{self.data.features or 'not set'}, and the backbone is {self.model.backbone}"
            )
        if self.batch_size % self.sampler.per_class:
            raise ValueError(f"batch_size {self.batch_size} is no multiple of {self.sampler.per_class} per class")
        return self
