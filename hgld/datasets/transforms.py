"""Pictures, and the transforms that turn them into inputs of a network.

Pillow decodes the pixels of a picture (:mod:`hgld.io.images`) when a transform asks for them, in full
or at a fraction of their size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor

from hgld.datasets.settings import Fit, Interpolation
from hgld.io.images import Box, open_image, upright_rgb, upright_size
from hgld.io.settings import Settings

#: Left and top edge, width and height of a part of a picture, in pixels.
Window: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class Normalisation:
    """Normalise pixels on the device of the model, so that workers send one byte per value, not four.

    Pixel values x become (x / 255 - mean) / std, computed as x * (1 / (255 std)) - mean / std.

    Args:
        mean: Mean of red, green and blue, for values of 0 to 1.
        std: Standard deviation of red, green and blue.

    >>> white = torch.full((3, 1, 1), 255, dtype=torch.uint8)
    >>> Normalisation((0.0, 0.0, 0.5), (1.0, 0.5, 0.5))(white).flatten().tolist()
    [1.0, 2.0, 1.0]
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, pixels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Normalise pixels.

        Args:
            pixels: uint8, shape (..., 3, h, w).
            dtype: Type of the result; values are computed in float32, then rounded.

        Returns:
            Shape (..., 3, h, w), with the colours of a pixel adjacent in memory, as in torch's
            ``channels_last``.
        """
        std = np.array(self.std, np.float32)
        colours_last = pixels.movedim(-3, -1)
        *shape, width, n_colours = colours_last.shape
        # For a whole row, since operations on three values at a time take several times as long.
        factors = np.tile(1 / (255 * std), width)
        offsets = np.tile(np.array(self.mean, np.float32) / std, width)
        values = colours_last.reshape(*shape, width * n_colours).to(torch.float32)
        values *= torch.from_numpy(factors).to(pixels.device)
        values -= torch.from_numpy(offsets).to(pixels.device)
        return values.to(dtype).reshape(*shape, width, n_colours).movedim(-1, -3)


class Picture:
    """A picture, upright and in RGB, that is decoded on demand.

    Args:
        image: Picture that is upright and in RGB, or a JPEG file that was opened by Pillow.
        jpeg: Content of the JPEG file.
    """

    def __init__(self, image: Image.Image, jpeg: bytes | None = None) -> None:
        self._image = image
        self._jpeg = jpeg
        self.width, self.height = image.size if jpeg is None else upright_size(image)

    def decode(self, reduction: int = 1) -> Image.Image:
        """Return the decoded picture.

        Args:
            reduction: 1, 2, 4 or 8, by which width and height may be divided (rounded up) for speed.
        """
        if self._jpeg is None:
            return self._image
        image = open_image(self._jpeg)
        if reduction > 1:
            image.draft(image.mode, (image.width // reduction, image.height // reduction))
        return upright_rgb(image)


def open_picture(data: bytes) -> Picture:
    """Open an image file; JPEG files are decoded later, others at once."""
    image = open_image(data)
    if image.format == "JPEG":
        return Picture(image, data)
    return Picture(upright_rgb(image))


class ImageSettings(Settings):
    """Settings of the image transforms; the defaults are the settings of the papers.

    The evaluation transform is one of four, by ``fit``:

    - ``crop``: resize the shorter side to ``resize``, and take the centre crop of ``size`` x
      ``size``;
    - ``squash``: resize to ``resize`` x ``resize``, without keeping the aspect ratio, and take the
      centre crop of ``size`` x ``size``, which is the whole image if the two are equal;
    - ``pad``: resize the longer side to ``resize``, pad the shorter side with the mean colour, and
      take the centre crop of ``size`` x ``size`` (``border`` of timm);
    - ``longest``: reduce the longer side to ``size``, and keep the aspect ratio. Smaller images stay
      as they are; ``resize`` has no effect. This is the transform of ROxford and RParis (Radenovic
      et al., 2018).

    Args:
        size: Height and width of the input of the model, in pixels; for ``longest``, of its longer side at most.
        resize: For evaluation, length of the shorter side before the centre crop, of both for ``squash``, or of the
            longer one for ``pad``, in pixels.
        fit: For evaluation, how images of any aspect ratio become inputs of the model; see above.
        interpolation: Interpolation between pixels.
        reduced_decoding: Whether to decode large JPEG files at a half, a quarter or an eighth of their width and
            height, if the image or the crop keeps at least the size to which it is resized. Faster, but pixels differ
            slightly from the published code.
        mean: Mean of red, green and blue, subtracted from values of 0 to 1. Default: ImageNet's.
        std: Standard deviation of red, green and blue, by which these differences are divided. Default: ImageNet's.
        train_resize: For training, length of the shorter side before the random crop, in pixels. Default: the crop is
            taken from the image as it is.
        crop_scale: For training, smallest and largest area of the random crop, as a fraction of the image's; None for
            the evaluation transform instead of a random crop.
        crop_ratio: For training, smallest and largest ratio of width to height of the random crop.
        flip: For training, whether to mirror each image with probability 1/2.

    >>> ImageSettings(fit="longest", size=1024).resize  # has no effect, so it may be less than size
    256
    """

    size: int = Field(default=224, ge=1)
    resize: int = Field(default=256, ge=1)
    fit: Fit = "crop"
    interpolation: Interpolation = "bilinear"
    reduced_decoding: bool = False
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
        smallest_crop, largest_crop = self.crop_scale or (1.0, 1.0)
        if not 0 < smallest_crop <= largest_crop <= 1:
            raise ValueError(
                f"crop_scale is {self.crop_scale}; expected two numbers in order, above 0 and at most 1"
            )
        narrowest_crop, widest_crop = self.crop_ratio
        if not 0 < narrowest_crop <= widest_crop:
            raise ValueError(
                f"crop_ratio is {self.crop_ratio}; expected two numbers in order, above 0"
            )
        if self.train_resize is not None and self.crop_scale is None:
            raise ValueError(
                f"train_resize is {self.train_resize}, but crop_scale is null; without a random crop, images to "
                "train on are resized as those of the evaluation are"
            )
        return self

    def describe(self) -> str:
        """Return the evaluation transform in words.

        >>> ImageSettings().describe()
        'resized to shorter side 256 pixels, centre crop 224 x 224, bilinear interpolation'
        """
        resized = {
            "crop": f"resized to shorter side {self.resize} pixels, centre crop {self.size} x {self.size}",
            "squash": f"resized to {self.resize} x {self.resize} pixels, centre crop {self.size} x {self.size}",
            "pad": f"resized to longer side {self.resize} pixels, padded, centre crop {self.size} x {self.size}",
            "longest": f"longer side at most {self.size} pixels, aspect ratio kept",
        }
        return f"{resized[self.fit]}, {self.interpolation} interpolation"

    @property
    def evaluation_values(self) -> dict[str, Any]:
        """The settings that affect the evaluation transform, as JSON values by name."""
        training_only = {"train_resize", "crop_scale", "crop_ratio", "flip"}
        return self.model_dump(mode="json", exclude=training_only)


def training_transform(settings: ImageSettings) -> Transform:
    """Return a transform that takes a random crop and mirrors it at random.

    It draws from torch's CPU generator, which :class:`hgld.datasets.image_dataset.ImageDataset` seeds.
    """
    return Transform(settings, settings.crop_scale, settings.flip)


def evaluation_transform(settings: ImageSettings) -> Transform:
    """Return the transform that ``fit`` describes; see :class:`ImageSettings`."""
    return Transform(settings, None, flips=False)


@dataclass(frozen=True)
class Transform:
    """Function from a picture in RGB to the input of a model: pixels, and their normalisation.

    A box is the part of the picture that counts; it is rounded to whole pixels, and cut out first.
    With ``longest``, it is reduced by the same factor as the whole picture would be.

    Args:
        settings: Settings of the image transforms.
        crop_scale: Smallest and largest area of a random crop; None for the evaluation transform.
        flips: Whether to mirror the picture with probability 1/2.
    """

    settings: ImageSettings
    crop_scale: tuple[float, float] | None
    flips: bool

    @property
    def normalisation(self) -> Normalisation:
        """Function from the pixels to the input of the model."""
        return Normalisation(self.settings.mean, self.settings.std)

    def __call__(self, image: Image.Image, box: Box | None = None) -> Tensor:
        """Transform a picture: float32, shape (3, h, w); (3, size, size) unless ``fit`` is ``longest``."""
        return self.normalisation(self.pixels(Picture(image), box)).contiguous()

    def pixels(self, picture: Picture, box: Box | None = None) -> Tensor:
        """Return the pixels before normalisation: uint8, shape (3, h, w)."""
        region: Window = 0, 0, picture.width, picture.height
        if box is not None:
            left, top, right, bottom = [round(edge) for edge in box]
            region = left, top, right - left, bottom - top
        if self.crop_scale is not None:
            image = self._random_crop(picture, region, self.crop_scale)
        elif self.settings.fit == "longest":
            image = self._reduce_longest(picture, region)
        else:
            image = self._fit(picture, region)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def _random_crop(
        self, picture: Picture, region: Window, crop_scale: tuple[float, float]
    ) -> Image.Image:
        """Return a random crop of a region, resized to the size of the input."""
        from torchvision.transforms import RandomResizedCrop

        settings = self.settings
        output_size = (settings.size, settings.size)
        size = region[2:]
        if settings.train_resize is not None:
            size = _with_shorter_side(region, settings.train_resize)
        shape = torch.empty(3, size[1], size[0], device="meta")  # a tensor without values
        top, left, height, width = RandomResizedCrop.get_params(
            shape, list(crop_scale), list(settings.crop_ratio)
        )
        flips = self._draw_flip()
        if settings.train_resize is None:
            crop = (region[0] + left, region[1] + top, width, height)
            image, crop = self._decode(picture, crop, output_size)
        else:
            image, region = self._decode(picture, region, size)
            image = self._resize(_cut(image, region), size)
            crop = (left, top, width, height)
        return _mirror_if(flips, self._resize(_cut(image, crop), output_size))

    def _fit(self, picture: Picture, region: Window) -> Image.Image:
        """Return the centre crop of a region after resizing, padded to the size of the input."""
        settings = self.settings
        resized_width = resized_height = settings.resize
        if settings.fit == "crop":
            resized_width, resized_height = _with_shorter_side(region, settings.resize)
        elif settings.fit == "pad":
            ratio = max(region[2:]) / settings.resize
            resized_width = max(round(region[2] / ratio), 1)
            resized_height = max(round(region[3] / ratio), 1)
        width = min(resized_width, settings.size)
        height = min(resized_height, settings.size)
        # Half a pixel is rounded to an even number, as in torchvision.
        left = round((resized_width - width) / 2)
        top = round((resized_height - height) / 2)
        flips = self._draw_flip()
        image, region = self._decode(picture, region, (resized_width, resized_height))
        image = self._resize(_cut(image, region), (resized_width, resized_height))
        image = _mirror_if(flips, _cut(image, (left, top, width, height)))
        if width == height == settings.size:
            return image
        red, green, blue = [round(255 * value) for value in settings.mean]
        padded = Image.new("RGB", (settings.size, settings.size), (red, green, blue))
        padded.paste(image, ((settings.size - width) // 2, (settings.size - height) // 2))
        return padded

    def _reduce_longest(self, picture: Picture, region: Window) -> Image.Image:
        """Reduce the longer side of a region by Pillow's ``thumbnail``, as the landmark benchmarks do."""
        settings = self.settings
        side = max(settings.size * max(region[2:]) / max(picture.width, picture.height), 1)
        flips = self._draw_flip()
        image, region = self._decode(picture, region, (side, side), longest=True)
        reduced = _cut(image, region).copy()  # `thumbnail` changes the image, maybe a caller's
        reduced.thumbnail((side, side), Image.Resampling[settings.interpolation.upper()])
        return _mirror_if(flips, reduced)

    def _resize(self, image: Image.Image, size: tuple[int, int]) -> Image.Image:
        """Resize an image with the interpolation of the settings."""
        return image.resize(size, Image.Resampling[self.settings.interpolation.upper()])

    def _draw_flip(self) -> bool:
        return self.flips and bool(torch.rand(1) < 0.5)

    def _decode(
        self, picture: Picture, region: Window, size: tuple[float, float], *, longest: bool = False
    ) -> tuple[Image.Image, Window]:
        """Decode a picture, and return the region in it; both are reduced if the settings allow it.

        The region keeps at least the size to which it is resized; with ``longest``, its longer side.
        """
        if not self.settings.reduced_decoding:
            return picture.decode(), region
        x_factor = region[2] / size[0]
        y_factor = region[3] / size[1]
        factor = max(x_factor, y_factor) if longest else min(x_factor, y_factor)
        reduction = 1
        while reduction < 8 and 2 * reduction <= factor:
            reduction *= 2
        image = picture.decode(reduction)
        if image.size == (picture.width, picture.height):
            return image, region
        left, top, width, height = region
        right = (left + width) * image.width // picture.width
        bottom = (top + height) * image.height // picture.height
        left = left * image.width // picture.width
        top = top * image.height // picture.height
        return image, (left, top, max(right - left, 1), max(bottom - top, 1))


def _with_shorter_side(region: Window, length: int) -> tuple[int, int]:
    """Return the width and height of a region that is resized to a length of its shorter side."""
    width, height = region[2:]
    if width <= height:
        return length, int(length * height / width)
    return int(length * width / height), length


def _cut(image: Image.Image, window: Window) -> Image.Image:
    """Return a part of an image; the image itself if the window is the whole image."""
    left, top, width, height = window
    if window == (0, 0, *image.size):
        return image
    return image.crop((left, top, left + width, top + height))


def _mirror_if(flips: bool, image: Image.Image) -> Image.Image:
    if flips:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image
