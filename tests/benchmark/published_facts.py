"""Published settings as facts: keys of hgld's settings, their published values, and where these are published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """A published value, and its source: a file of the authors' code or a section of the paper."""

    value: Any
    source: str


#: Facts by the keys of hgld's settings.
Facts = Mapping[str, Fact]


def facts(source: str, values: Mapping[str, Any]) -> dict[str, Fact]:
    """Return facts of one source."""
    return {key: Fact(value, source) for key, value in values.items()}


def group(prefix: str, /, **values: Any) -> dict[str, Any]:
    """Return the settings of the optimiser of a group of parameters."""
    return {f"optimiser.{prefix}.{key}": value for key, value in values.items()}


def both_groups(**values: Any) -> dict[str, Any]:
    """Return the settings of an optimiser of all parameters of the model."""
    return group("backbone", **values) | group("head", **values)


def multi_step(*milestones: int) -> dict[str, Any]:
    return {"schedule": "multi_step", "milestones": list(milestones), "gamma": 0.3}


#: Batches of the samplers that ROADMAP and the recall@k surrogate took over from Smooth-AP.
BALANCED: dict[str, Any] = {
    "sampler.name": "class_balanced",
    "sampler.per_class": 4,
    "sampler.packing": "greedy",
    "sampler.small_classes": "exclude",
    "sampler.max_per_class": None,
}
#: Augmentation of the training images of the recall@k surrogate and Smooth-AP, and their evaluation transform.
AUGMENTATION: dict[str, Any] = {
    "image.size": 224,
    "image.resize": 256,
    "image.fit": "crop",
    "image.train_resize": None,
    "image.crop_scale": [0.08, 1.0],  # the default of torchvision
    "image.crop_ratio": [0.75, 1.3333],
    "image.flip": True,
    "image.interpolation": "bilinear",
    "image.mean": [0.485, 0.456, 0.406],
    "image.std": [0.229, 0.224, 0.225],
}
