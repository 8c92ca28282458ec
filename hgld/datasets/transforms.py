"""Image transforms: from a picture to the input tensor of a model.

Pictures are decoded at full size: Pillow's ``draft``, which decodes a large JPEG at a half or a quarter of its size,
changes pixels, and crops of a sixth of the area need the full resolution. The EXIF orientation is applied when a
picture is decoded (:mod:`hgld.io.images`), unlike in the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torchvision.transforms import InterpolationMode, v2

from hgld.io.images import Box
from hgld.io.settings import Settings

_Step = Callable[[Image.Image], Image.Image]

Fit = Literal["crop", "squash", "longest"]
Interpolation = Literal["bilinear", "bicubic", "lanczos"]


class Transform(Protocol):
    """Function from a picture to float32, shape (3, h, w); (3, size, size) unless ``fit`` is ``longest``.

    A box is the part of the picture that counts; it is rounded to whole pixels, and cut out before anything else.
    With ``longest``, it is reduced by the factor by which the whole picture would be.
    """

    def __call__(self, image: Image.Image, box: Box | None = None) -> torch.Tensor:
        """Transform a picture, or the part of it in the box."""


class ImageSettings(Settings):
    """Settings of the image transforms; the defaults are those of the papers.

    The evaluation transform is one of three, by ``fit``:

    - ``crop``: resize the shorter side to ``resize``, and take the centre crop of ``size`` x ``size``;
    - ``squash``: resize to ``resize`` x ``resize``, whatever the aspect ratio, and take the centre crop of ``size`` x
      ``size``, which is everything if the two are equal;
    - ``longest``: reduce the longer side to ``size``, and keep the aspect ratio. Smaller images stay as they are;
      ``resize`` has no meaning. This is the transform of ROxford and RParis (Radenovic et al., 2018).

    Args:
        size: Height and width of the input of the model, in pixels; for ``longest``, of its longer side at most.
        resize: For evaluation, length of the shorter side before the centre crop, or of both, in pixels.
        fit: For evaluation, how images of any aspect ratio become inputs of the model; see above.
        interpolation: Interpolation between pixels.
        mean: Mean of red, green and blue, subtracted from values of 0 to 1. Default: ImageNet's.
        std: Standard deviation of red, green and blue, by which they are then divided. Default: ImageNet's.
        train_resize: For training, length of the shorter side before the random crop, in pixels. Default: the crop is
            taken from the image as it is.
        crop_scale: For training, smallest and largest area of the random crop, as a fraction of the image's; None for
            the evaluation transform instead of a random crop.
        crop_ratio: For training, smallest and largest ratio of width to height of the random crop.
        flip: For training, whether to mirror each image with probability 1/2.

    >>> ImageSettings(fit="longest", size=1024).resize  # of no meaning here, so it may be less than the size
    256
    """

    size: int = Field(default=224, ge=1)
    resize: int = Field(default=256, ge=1)
    fit: Fit = "crop"
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    train_resize: int | None = Field(default=None, ge=1)
    crop_scale: tuple[float, float] | None = (0.16, 1.0)
    crop_ratio: tuple[float, float] = (0.75, 1.33)
    flip: bool = True

    @model_validator(mode="after")
    def _require_consistency(self) -> ImageSettings:
        if self.fit != "longest" and self.resize < self.size:
            raise ValueError(
                f"resize is {self.resize}, less than size, {self.size}; the crop must fit into the resized picture"
            )
        if min(self.std) <= 0:
            raise ValueError(f"std is {self.std}; expected numbers above 0")
        if self.crop_scale is not None and not 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1:
            raise ValueError(f"crop_scale is {self.crop_scale}; expected two numbers in order, above 0 and at most 1")
        if not 0 < self.crop_ratio[0] <= self.crop_ratio[1]:
            raise ValueError(f"crop_ratio is {self.crop_ratio}; expected two numbers in order, above 0")
        if self.train_resize is not None and self.crop_scale is None:
            raise ValueError(
                f"train_resize is {self.train_resize}, but crop_scale is null; without a random crop, images to "
                "train on are resized as those of the evaluation are"
            )
        return self

    @property
    def evaluation_values(self) -> dict[str, Any]:
        """The settings that affect the evaluation transform, as JSON values by name."""
        training_only = {"train_resize", "crop_scale", "crop_ratio", "flip"}
        return self.model_dump(mode="json", exclude=training_only)


def training_transform(settings: ImageSettings) -> Transform:
    """Return a transform that takes a random crop and mirrors it at random.

    It draws from torch's CPU generator, which :class:`hgld.datasets.image_dataset.ImageDataset` seeds.
    """
    scale = settings.crop_scale
    steps = _fit(settings) if scale is None else _random_crop(settings, scale)
    flip = [v2.RandomHorizontalFlip()] if settings.flip else []
    return _Transform(settings, (*steps, *flip), reduces=scale is None and settings.fit == "longest")


def evaluation_transform(settings: ImageSettings) -> Transform:
    """Return the transform that ``fit`` describes; see :class:`ImageSettings`."""
    return _Transform(settings, tuple(_fit(settings)), reduces=settings.fit == "longest")


def _random_crop(settings: ImageSettings, scale: tuple[float, float]) -> list[_Step]:
    interpolation = InterpolationMode(settings.interpolation)
    resize = [] if settings.train_resize is None else [v2.Resize(settings.train_resize, interpolation)]
    return [*resize, v2.RandomResizedCrop(settings.size, scale, settings.crop_ratio, interpolation)]


def _fit(settings: ImageSettings) -> list[_Step]:
    if settings.fit == "longest":
        return []  # depends on the whole picture, of which the steps may see a part
    # A single number is the length of the shorter side.
    sides = settings.resize if settings.fit == "crop" else (settings.resize, settings.resize)
    return [v2.Resize(sides, InterpolationMode(settings.interpolation)), v2.CenterCrop(settings.size)]


def _reduce_longest(image: Image.Image, size: float, interpolation: Interpolation) -> Image.Image:
    """Reduce the longer side to a length, by Pillow's ``thumbnail``, as the landmark benchmarks are published."""
    reduced = image.copy()
    reduced.thumbnail((max(size, 1), max(size, 1)), Image.Resampling[interpolation.upper()])
    return reduced


@dataclass(frozen=True)
class _Transform:
    """Cut out the box, reduce the longer side if ``reduces`` says so, apply the steps, and normalise."""

    settings: ImageSettings
    steps: tuple[_Step, ...]
    reduces: bool

    def __call__(self, image: Image.Image, box: Box | None = None) -> torch.Tensor:
        settings = self.settings
        part = image if box is None else image.crop(box)
        if self.reduces:
            size = settings.size * max(part.size) / max(image.size)
            part = _reduce_longest(part, size, settings.interpolation)
        for step in self.steps:
            part = step(part)
        return _normalised(part, settings)


def _normalised(image: Image.Image, settings: ImageSettings) -> torch.Tensor:
    """Normalise a picture and convert it to a tensor, in numpy.

    Torch would spread this over threads that wait for each other, which takes ten times as long on a busy machine.
    """
    std = np.array(settings.std, np.float32)
    pixels = np.asarray(image) * (1 / (255 * std)) - np.array(settings.mean, np.float32) / std
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
