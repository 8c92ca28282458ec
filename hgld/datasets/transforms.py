"""Image transforms: from a picture to the input tensor of a model.

Pictures are decoded at full size: Pillow's ``draft``, which decodes a large JPEG at a half or a quarter of its size,
changes pixels, and crops of a sixth of the area need the full resolution. The EXIF orientation is applied when a
picture is decoded (:mod:`hgld.io.images`), unlike in the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torchvision.transforms import InterpolationMode, v2

from hgld.io.settings import Settings

#: Function from a picture to float32, shape (3, size, size).
Transform = Callable[[Image.Image], torch.Tensor]


class ImageSettings(Settings):
    """Settings of the image transforms; the defaults are those of the papers.

    Args:
        size: Height and width of the input of the model, in pixels.
        resize: For evaluation, length of the shorter side before the centre crop, in pixels.
        squash: For evaluation, whether to resize to size x size, whatever the aspect ratio, instead of cropping.
        interpolation: Interpolation between pixels.
        mean: Mean of red, green and blue, subtracted from values of 0 to 1. Default: ImageNet's.
        std: Standard deviation of red, green and blue, by which they are then divided. Default: ImageNet's.
        crop_scale: For training, smallest and largest area of the random crop, as a fraction of the picture's.
        flip: For training, whether to mirror each picture with probability 1/2.
    """

    size: int = Field(default=224, ge=1)
    resize: int = Field(default=256, ge=1)
    squash: bool = False
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    crop_scale: tuple[float, float] = (0.16, 1.0)
    flip: bool = True

    @model_validator(mode="after")
    def _require_consistency(self) -> ImageSettings:
        if self.resize < self.size:
            raise ValueError(
                f"resize is {self.resize}, less than size, {self.size}; the crop must fit into the resized picture"
            )
        if min(self.std) <= 0:
            raise ValueError(f"std is {self.std}; expected numbers above 0")
        smallest, largest = self.crop_scale
        if not 0 < smallest <= largest <= 1:
            raise ValueError(f"crop_scale is {self.crop_scale}; expected two numbers in order, above 0 and at most 1")
        return self


def training_transform(settings: ImageSettings) -> Transform:
    """Return a transform that takes a random crop with an aspect ratio of 3/4 to 4/3, and mirrors it at random.

    It draws from torch's CPU generator, which :class:`hgld.datasets.image_dataset.ImageDataset` seeds.
    """
    interpolation = InterpolationMode(settings.interpolation)
    crop = v2.RandomResizedCrop(settings.size, scale=settings.crop_scale, interpolation=interpolation, antialias=True)
    flip = [v2.RandomHorizontalFlip()] if settings.flip else []
    return _compose([crop, *flip], settings)


def evaluation_transform(settings: ImageSettings) -> Transform:
    """Return a transform that resizes the shorter side and takes the centre crop, or squashes."""
    interpolation = InterpolationMode(settings.interpolation)
    if settings.squash:
        return _compose([v2.Resize((settings.size, settings.size), interpolation, antialias=True)], settings)
    resize = v2.Resize(settings.resize, interpolation, antialias=True)
    return _compose([resize, v2.CenterCrop(settings.size)], settings)


def _compose(steps: Sequence[Callable[[Image.Image], Image.Image]], settings: ImageSettings) -> Transform:
    transform: Transform = v2.Compose([*steps, _Normalise(settings.mean, settings.std)])
    return transform


@dataclass(frozen=True)
class _Normalise:
    """Normalise a picture and convert it to a tensor, in numpy.

    Torch would spread this over threads that wait for each other, which takes ten times as long on a busy machine.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, image: Image.Image) -> torch.Tensor:
        std = np.array(self.std, np.float32)
        pixels = np.asarray(image) * (1 / (255 * std)) - np.array(self.mean, np.float32) / std
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
