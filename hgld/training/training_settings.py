"""Settings of a training: the schema of its YAML file.

Defaults are those of the paper's experiments on H-GLDv2 (Sec. VII-C3 and the authors' settings) where it has any.
The sections ``model``, ``image`` and ``loss`` are defined in :mod:`hgld.models`, :mod:`hgld.datasets` and
:mod:`hgld.losses.registry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from hgld.datasets.splits import OPEN_SET_SHARE
from hgld.datasets.transforms import ImageSettings
from hgld.io.settings import Settings
from hgld.losses.registry import LOSSES, LossSettings, loss_settings
from hgld.models.model_settings import FEATURES, ModelSettings
from hgld.training.loggers import LoggerName
from hgld.training.optimiser_settings import OptimiserSettings
from hgld.training.sampler_settings import ClassBalancedSettings, MemorySettings, SamplerSettings

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
        random_split: Random split of all images, in place of the splits of the manifest; None for those. It goes
            with the splits train and test.
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
        """Splits that are used for something else than selecting a checkpoint."""
        return (self.train, self.test, self.queries, self.gallery)

    @model_validator(mode="before")
    @classmethod
    def _require_manifest(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("manifest") is None:
            raise ValueError("no images are named; give their table with `manifest`, see `hgld manifest --help`")
        return values

    @model_validator(mode="after")
    def _require_one_protocol(self) -> DataSettings:
        given = [split is not None for split in (self.test, self.queries, self.gallery)]
        if given not in ([True, False, False], [False, True, True]):
            raise ValueError("give either test (leave-one-out), or queries and gallery")
        if self.val is not None and self.val in self.other_splits:
            raise ValueError(f'val is "{self.val}", which is used otherwise; name a split of its own')
        if self.random_split is not None and (self.train, self.test) != ("train", "test"):
            raise ValueError(
                f"random_split makes the splits train and test; train is {self.train}, and test is "
                f"{self.test or 'not set'}"
            )
        return self


class EvaluationSettings(Settings):
    """Evaluations during the training; the first precedes it, the last follows it.

    Args:
        every: Number of epochs between evaluations.
        metrics: Names of metrics, as in ``hgld evaluate``; empty for those of the papers.
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
        memory: Cross-batch memory; None for none.
        optimiser: Optimisers of the groups of parameters.
        epochs: Number of epochs. Alternative to ``steps``.
        steps: Number of steps; 0 only evaluates the untrained model.
        warm_up_epochs: Number of epochs at the beginning in which the backbone is frozen, and learning rate schedules
            do not advance.
        frozen: Prefixes of the names of parameters that are always frozen, such as ``backbone.blocks.0``. Freezing
            the first layers makes each step faster.
        batch_size: Number of images per step, over all processes.
        chunk_size: Number of images that a process embeds at once; smaller chunks take less memory and more time, and
            give the same gradients (:mod:`hgld.training.backpropagation`). None for all.
        mixed_precision: Precision of the backbone in training steps: ``off`` for float32, or autocast to ``fp16``,
            with a gradient scaler, or to ``bf16``. ``fp16`` is what ``with_autocast`` of ROADMAP and SupRank does,
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
