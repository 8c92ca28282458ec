"""Settings of batch samplers, and of the memory that extends batches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from hgld.datasets.samplers import Packing, SmallClasses
from hgld.io.settings import Settings
from hgld.losses.cross_batch_memory import Reduction, StoredType


class ClassBalancedSettings(Settings):
    """Batches of random classes with the same number of images each.

    Args:
        per_class: Number of images per class in a batch.
        packing: How an epoch is divided into batches: ``most`` has as many as possible; ``greedy`` are those of the
            authors, ``independent`` those of pytorch-metric-learning; see
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
            raise ValueError(f"n_batches is a setting of the packing independent, not of {self.packing}")
        if self.packing == "independent" and self.max_per_class is not None:
            raise ValueError("max_per_class is a setting of the packings most and greedy, not of independent")
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


SamplerSettings = Annotated[ClassBalancedSettings | HierarchicalSettings, Field(discriminator="name")]


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
