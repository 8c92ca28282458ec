"""Settings of a training: the schema of its YAML file.

Defaults are the values of the paper's experiments on H-GLDv2 (Sec. VII-C3 and the authors' settings), if it has any.
The sections ``model``, ``image`` and ``loss`` are defined in :mod:`hgld.models`, :mod:`hgld.datasets` and
:mod:`hgld.losses.registry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from hgld.datasets.samplers import Packing, SmallClasses
from hgld.datasets.splits import OPEN_SET_SHARE
from hgld.datasets.transforms import ImageSettings
from hgld.io.settings import Settings
from hgld.losses.cross_batch_memory import Reduction, StoredType
from hgld.losses.registry import LOSSES, LossSettings, loss_settings
from hgld.models.model_settings import FEATURES, ModelSettings
from hgld.training.loggers import LoggerName

if TYPE_CHECKING:
    AnyLoss = LossSettings
else:
    AnyLoss = Annotated[
        Union[tuple(loss_settings(name) for name in LOSSES)],  # noqa: UP007
        Field(discriminator="name"),
    ]


class RandomSplitSettings(Settings):
    """A random open-set split of all images of a manifest into the splits train and test.

    Args:
        level: Level whose classes are either in the training or in the test split; None for the finest.
        test_share: Share of the classes of each label one level above in the test split; a fractional number is
            rounded up or down at random.
        seed: Seed of the random choice.
    """

    level: str | None = None
    test_share: float = Field(default=OPEN_SET_SHARE, gt=0, lt=1)
    seed: NonNegativeInt = 0


class DataSettings(Settings):
    """Images to train on and to evaluate with.

    Args:
        manifest: Table from ``hgld manifest``, or a CSV or Parquet file with its columns.
        root: Folder that its paths are relative to; None for the folder of the manifest.
        features: Features of all images, from ``hgld embed-images``, to train a head on. The backbone must be
            ``features``, and no images are read.
        train: Split to train on.
        test: Split whose images are ranked against each other (leave-one-out). Alternative to ``queries`` and
            ``gallery``.
        queries: Split of the queries.
        gallery: Split that is ranked for the queries.
        val: Split whose images are ranked against each other to select ``best.pt``; None for ``val``, if there is
            such a split. Without one nothing is selected, as the test images must not select.
        random_split: Random split of all images into the splits train and test; None for the splits of the manifest.
    """

    manifest: Path
    root: Path | None = None
    features: Path | None = None
    train: str = "train"
    test: str | None = None
    queries: str | None = None
    gallery: str | None = None
    val: str | None = None
    random_split: RandomSplitSettings | None = None

    @property
    def other_splits(self) -> tuple[str | None, ...]:
        """Splits that are used to train or to test."""
        return (self.train, self.test, self.queries, self.gallery)

    @model_validator(mode="before")
    @classmethod
    def _require_manifest(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("manifest") is None:
            raise ValueError(
                "no images are named; give their table with `manifest`, see `hgld manifest --help`"
            )
        return values

    @model_validator(mode="after")
    def _require_one_protocol(self) -> DataSettings:
        given = [split is not None for split in (self.test, self.queries, self.gallery)]
        if given not in ([True, False, False], [False, True, True]):
            raise ValueError("give either test (leave-one-out), or queries and gallery")
        if self.val is not None and self.val in self.other_splits:
            raise ValueError(
                f'val is "{self.val}", which is used otherwise; name a split of its own'
            )
        if self.random_split is not None and (self.train, self.test) != ("train", "test"):
            raise ValueError(
                f"random_split makes the splits train and test; train is {self.train}, and test is "
                f"{self.test or 'not set'}"
            )
        return self


class ClassBalancedSettings(Settings):
    """Batches of random classes with the same number of images each.

    Args:
        per_class: Number of images per class in a batch.
        packing: Division of an epoch into batches: ``most`` makes as many batches as possible, ``greedy`` is the
            authors' division, and ``independent`` that by pytorch-metric-learning; see
            :class:`~hgld.datasets.samplers.ClassBalancedSampler`.
        max_per_class: Maximum number of images per class in an epoch; None for no limit.
        small_classes: Whether classes with fewer than ``per_class`` images are excluded or repeat images.
        n_batches: Number of batches per epoch of the packing ``independent``; None for the number of training images
            divided by ``batch_size``.
    """

    name: Literal["class_balanced"] = "class_balanced"
    per_class: PositiveInt = 4
    packing: Packing = "most"
    max_per_class: PositiveInt | None = None
    small_classes: SmallClasses = "exclude"
    n_batches: PositiveInt | None = None

    @model_validator(mode="after")
    def _require_packing(self) -> ClassBalancedSettings:
        if self.packing != "independent" and self.n_batches is not None:
            raise ValueError(
                f"n_batches is a setting of the packing independent, not of {self.packing}"
            )
        if self.packing == "independent" and self.max_per_class is not None:
            raise ValueError(
                "max_per_class is a setting of the packings most and greedy, not of independent"
            )
        return self


class HierarchicalSettings(Settings):
    """Batches from few super-classes (Cakir et al., Deep Metric Learning to Rank).

    Args:
        per_class: Number of images per class in a batch.
        super_classes: Number of super-classes in a batch.
        batches_per_tuple: Number of batches drawn from the same super-classes.
        small_classes: Whether classes with fewer than ``per_class`` images repeat images, and super-classes with too
            few classes make smaller batches, as in the authors' code, or both are excluded.
    """

    name: Literal["hierarchical"] = "hierarchical"
    per_class: PositiveInt = 4
    super_classes: PositiveInt = 2
    batches_per_tuple: PositiveInt = 5
    small_classes: SmallClasses = "repeat"


SamplerSettings = Annotated[
    ClassBalancedSettings | HierarchicalSettings, Field(discriminator="name")
]


class MemorySettings(Settings):
    """Cross-batch memory (Wang et al.): embeddings of earlier batches as additional references of the loss.

    Args:
        size: Number of embeddings in the memory; None for the number of training images.
        weight: Weight of the loss against the memory; the loss within the batch has weight 1.
        reduction: Whether the two are averaged with their weights (``mean``, as in SupRank) or added (``sum``, as in
            ROADMAP and by Wang et al.).
        start_epoch: First epoch that uses the memory, counted from 1, as ``activate`` of SupRank and
            ``activate_after`` of ROADMAP; it is filled from the first step on.
        unique: Whether the memory holds the newest embedding of every training image, as ROADMAP's on SOP and CUB,
            instead of a queue in which an image can be several times, as SupRank's and ROADMAP's on iNaturalist.
        dtype: Type in which embeddings are stored. ``float16`` and ``bfloat16`` take half the memory of ``float32``
            and change scores by at most 2^-11 and 2^-8; losses multiply and add them in float32.
    """

    size: PositiveInt | None = None
    weight: PositiveFloat = 1.0
    reduction: Reduction = "mean"
    start_epoch: PositiveInt = 1
    unique: bool = False
    dtype: StoredType = "float32"

    @model_validator(mode="after")
    def _require_one_size(self) -> MemorySettings:
        if self.unique and self.size is not None:
            raise ValueError(
                f"size is {self.size}, but a memory with unique has one place per training image; omit it"
            )
        return self


class GroupSettings(Settings):
    """Optimiser of a group of parameters.

    Schedules change the learning rate after each epoch that follows the warm-up, as in the authors' code. Epochs of
    the warm-up have the rate of the first epoch, and count for neither ``milestones`` nor ``step_epochs``.

    Args:
        name: Algorithm; ``sgd`` with momentum is Nesterov's.
        lr: Learning rate of the first step.
        weight_decay: Weight decay of every step.
        momentum: Momentum of ``sgd``.
        schedule: Learning rate schedule: ``cosine`` from ``lr`` to ``end_lr``; ``constant``; or a factor ``gamma``
            after every ``step_epochs`` epochs (``step``) or at the ``milestones`` (``multi_step``).
        end_lr: Final learning rate of ``cosine``.
        interval: Interval at which ``cosine`` advances. ``epoch``: after each epoch that follows the warm-up; the
            schedule is as long as the whole training, so it ends short of ``end_lr`` by the length of the warm-up.
            ``step``: after each step of the training, warm-up included, so it reaches ``end_lr``; for trainings of
            few epochs.
        gamma: Factor of ``step`` and ``multi_step``.
        step_epochs: Number of epochs between the factors of ``step``.
        milestones: Numbers of epochs after which ``multi_step`` applies the factor, ascending.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: NonNegativeFloat = 1e-5
    weight_decay: NonNegativeFloat = 1e-4
    momentum: NonNegativeFloat = 0.0
    schedule: Literal["cosine", "constant", "step", "multi_step"] = "cosine"
    end_lr: NonNegativeFloat = 0.0
    interval: Literal["epoch", "step"] = "epoch"
    gamma: PositiveFloat = 0.3
    step_epochs: PositiveInt | None = None
    milestones: tuple[PositiveInt, ...] = ()

    @model_validator(mode="after")
    def _require_sgd_for_momentum(self) -> GroupSettings:
        if self.momentum and self.name != "sgd":
            raise ValueError(f"momentum is a setting of sgd, not of {self.name}")
        return self

    @model_validator(mode="after")
    def _require_schedule(self) -> GroupSettings:
        for name, schedule in (("step_epochs", "step"), ("milestones", "multi_step")):
            given = bool(getattr(self, name))
            if given and self.schedule != schedule:
                raise ValueError(
                    f"{name} is a setting of the schedule {schedule}, not of {self.schedule}"
                )
            if not given and self.schedule == schedule:
                raise ValueError(f"the schedule {schedule} requires {name}")
        if sorted(set(self.milestones)) != list(self.milestones):
            raise ValueError(
                f"milestones are {list(self.milestones)}; expected each once, in ascending order"
            )
        return self


class OptimiserSettings(Settings):
    """Optimisers of the groups of parameters.

    Args:
        backbone: Parameters of the backbone.
        head: Parameters of the model after the backbone.
        proxies: Parameters of the loss.
    """

    backbone: GroupSettings = GroupSettings()
    head: GroupSettings = GroupSettings()
    proxies: GroupSettings = GroupSettings()


class LoraSettings(Settings):
    """LoRA (Hu et al., 2022): the backbone is frozen, and low-rank changes of its weights are trained.

    The changes are parameters of the group ``backbone``, and part of its weights once the model is loaded for use.
    All linear layers and convolutions of 1 x 1 pixels have a change, unless ``frozen`` or ``trained`` excludes the
    layer.

    Args:
        rank: Rank r of the changes.
        alpha: Changes are scaled by alpha / r, so that another rank needs no other learning rate.
    """

    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0


class EvaluationSettings(Settings):
    """Evaluations during the training; the first precedes it, the last follows it.

    Args:
        every: Number of epochs between evaluations.
        metrics: Names of metrics, as in ``hgld evaluate``; empty for the metrics of the papers.
        best: Metric whose gain is reported, and that selects ``best.pt`` where there are validation images.
        batch_size: Number of images embedded at once by each process.
    """

    every: PositiveInt = 1
    metrics: tuple[str, ...] = ()
    best: str = "H-AP"
    batch_size: PositiveInt = 64

    @model_validator(mode="after")
    def _require_best_metric(self) -> EvaluationSettings:
        if self.metrics and self.best not in self.metrics:
            raise ValueError(f'best is "{self.best}", which is not among the metrics')
        return self


class TrainingSettings(Settings):
    """Settings of a training.

    Args:
        model: Model that embeds images.
        image: Transforms of the images.
        data: Images to train on and to evaluate with.
        sampler: Sampler of training batches.
        loss: Training objective.
        memory: Cross-batch memory; None to train without it.
        optimiser: Optimisers of the groups of parameters.
        epochs: Number of epochs. Alternative to ``steps``.
        steps: Number of steps; 0 only evaluates the untrained model.
        warm_up_epochs: Number of epochs at the beginning in which the backbone is frozen, and learning rate schedules
            do not advance.
        frozen: Names of parameters, or of modules with all of theirs, that are always frozen, such as
            ``backbone.blocks.0``. Freezing the first layers makes each step faster. Their batch-norm statistics are
            frozen, too.
        trained: Likewise the only ones of the backbone that are not frozen, such as ``backbone.blocks.11``; None for
            all.
        lora: Changes of low rank of the backbone, in place of its weights; None to train the weights.
        batch_size: Number of images per step, over all processes.
        chunk_size: Number of images that a process embeds at once; smaller chunks take less memory and more time, and
            give the same gradients (:mod:`hgld.training.optimisation`), unless batch norm learns its statistics. None
            for all.
        mixed_precision: Precision of the backbone in training steps: ``off`` for float32, or autocast to ``fp16``,
            with a gradient scaler, or to ``bf16``. ``fp16`` is ``with_autocast`` of ROADMAP and SupRank,
            except that they compute the projection, the scores of the loss and the embeddings of evaluations in 16
            bits as well, where hgld uses float32. Smooth-AP and Recall@k Surrogate are trained in float32.
        clip_norm: Maximum norm of the gradient of the model's parameters; None for no limit.
        evaluation: Evaluations during the training.
        checkpoint_steps: Number of steps between checkpoints, in addition to one after every epoch.
        seed: Seed of all random numbers.
        workers: Number of processes that read images, per training process; no more than there are cores.
        loggers: Where the history is logged besides ``history.jsonl``, see :mod:`hgld.training.loggers`.
    """

    model: ModelSettings
    image: ImageSettings = ImageSettings()
    data: DataSettings
    sampler: SamplerSettings = ClassBalancedSettings()
    loss: AnyLoss
    memory: MemorySettings | None = None
    optimiser: OptimiserSettings = OptimiserSettings()
    epochs: PositiveInt | None = None
    steps: NonNegativeInt | None = None
    warm_up_epochs: NonNegativeInt = 0
    frozen: tuple[str, ...] = ()
    trained: tuple[str, ...] | None = None
    lora: LoraSettings | None = None
    batch_size: PositiveInt = 256
    chunk_size: PositiveInt | None = None
    mixed_precision: Literal["off", "bf16", "fp16"] = "off"
    clip_norm: PositiveFloat | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint_steps: PositiveInt = 1000
    seed: NonNegativeInt = 0
    workers: NonNegativeInt = 4
    loggers: tuple[LoggerName, ...] = ("tensorboard",)

    @model_validator(mode="after")
    def _require_consistency(self) -> TrainingSettings:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                f"epochs is {self.epochs} and steps is {self.steps}; give one of them, and set the other to null"
            )
        if (self.data.features is None) == (self.model.backbone == FEATURES):
            raise ValueError(
                f"data.features and the backbone {FEATURES} require each other; data.features is "
                f"{self.data.features or 'not set'}, and the backbone is {self.model.backbone}"
            )
        if self.batch_size % self.sampler.per_class:
            raise ValueError(
                f"batch_size is {self.batch_size}; expected a multiple of per_class {self.sampler.per_class}"
            )
        return self
