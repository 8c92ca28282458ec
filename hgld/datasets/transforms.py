"""From a picture to the pixels that a model takes.

Pictures are decoded as they are: Pillow's ``draft``, which decodes a large JPEG at a half or a quarter of its size,
changes pixels, and crops of a sixth of a photograph want all that it has. The orientation that a camera noted (EXIF)
is not applied, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torchvision.transforms import v2

from hgld.io.settings import Settings

#: float32, shape (3, size, size).
Transform = Callable[[Image.Image], torch.Tensor]


class ImageSettings(Settings):
    """How pictures become tensors; the defaults are the papers'.

    Args:
        size: height and width of what the model gets.
        resize: for tests, the shorter side before the centre of ``size`` is cut out.
        mean: of ImageNet's red, green and blue, which is subtracted from values of 0 to 1.
        std: which they are then divided by.
        crop_scale: for training, the least and greatest part of a picture's area that is cut out.
        flip: for training, whether every other picture, by chance, is mirrored.
    """

    size: int = Field(default=224, ge=1)
    resize: int = Field(default=256, ge=1)
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    crop_scale: tuple[float, float] = (0.16, 1.0)
    flip: bool = True

    @model_validator(mode="after")
    def _check(self) -> ImageSettings:
        if self.resize < self.size:
            raise ValueError(
                f"resize is {self.resize}, less than size, {self.size}; nothing of that size can be cut out"
            )
        if min(self.std) <= 0:
            raise ValueError(f"std is {self.std}; expected numbers above 0")
        least, greatest = self.crop_scale
        if not 0 < least <= greatest <= 1:
            raise ValueError(f"crop_scale is {self.crop_scale}; expected two numbers in order, above 0 and at most 1")
        return self


def training_transform(settings: ImageSettings) -> Transform:
    """A random part of the picture, with an aspect ratio of 3/4 to 4/3, resized and perhaps mirrored.

    It draws from torch's generator of the CPU, which :class:`hgld.datasets.image_dataset.ImageDataset` seeds.
    """
    crop = v2.RandomResizedCrop(settings.size, scale=settings.crop_scale, antialias=True)
    flip = [v2.RandomHorizontalFlip()] if settings.flip else []
    return _then_tensor([crop, *flip], settings)


def evaluation_transform(settings: ImageSettings) -> Transform:
    """The picture with its shorter side resized, and of that the centre."""
    resize = v2.Resize(settings.resize, antialias=True)
    return _then_tensor([resize, v2.CenterCrop(settings.size)], settings)


def _then_tensor(steps: Sequence[Callable[[Image.Image], Image.Image]], settings: ImageSettings) -> Transform:
    transform: Transform = v2.Compose([*steps, _Normalised(settings.mean, settings.std)])
    return transform


@dataclass(frozen=True)
class _Normalised:
    """From a picture to numbers with the mean 0 and the standard deviation 1, in numpy.

    Torch would spread this over threads, which wait for each other: on a machine with other work, ten times as long.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, image: Image.Image) -> torch.Tensor:
        std = np.array(self.std, np.float32)
        pixels = np.asarray(image) * (1 / (255 * std)) - np.array(self.mean, np.float32) / std
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
