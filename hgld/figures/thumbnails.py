"""Small JPEG copies of photographs, also rotated, CMYK, 16-bit, transparent, animated, huge or damaged ones."""

from __future__ import annotations

import io
from contextlib import suppress

from PIL import Image, ImageOps, UnidentifiedImageError

from hgld.errors import InputError

#: Photographs with more pixels are not decoded, which would take gigabytes and seconds.
MAX_PIXELS = 64_000_000
#: Formats that are read, whatever the suffix of the file; decoders of others are never called.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
#: Behind transparent pixels.
_BACKGROUND = "white"


class UnreadableImageError(InputError):
    """A photograph cannot be shown; the message is a short reason, such as ``damaged``."""


def make_thumbnail(data: bytes, width: int, height: int, *, crop: bool = False, quality: int = 80) -> bytes:
    """Return a small JPEG of a photograph.

    Args:
        data: Content of the file.
        width: Largest width in pixels.
        height: Largest height in pixels.
        crop: Whether to fill the whole area, where parts at the longer side are cut off; otherwise the photograph is
            shown completely. A photograph is never enlarged unless it is cropped.
        quality: JPEG quality, 1 to 95.

    Raises:
        UnreadableImageError: The content is no image, damaged, or has more than ``MAX_PIXELS`` pixels.
    """
    try:
        opened = Image.open(io.BytesIO(data), formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableImageError("too large") from error
    except UnidentifiedImageError as error:
        raise UnreadableImageError("not an image") from error
    except Exception as error:  # as in upright_rgb
        raise UnreadableImageError("damaged") from error
    image = upright_rgb(opened, max(width, height))
    if crop:
        # Towers and summits are above the centre.
        image = ImageOps.fit(image, (width, height), centering=(0.5, 0.4))
    else:
        image.thumbnail((width, height))
    thumbnail = io.BytesIO()
    image.save(thumbnail, "JPEG", quality=quality, optimize=True)
    return thumbnail.getvalue()


def upright_rgb(image: Image.Image, size: int) -> Image.Image:
    """Return the first frame of an opened image in RGB, rotated as its EXIF data say.

    Args:
        image: Opened image, whose pixels need not be decoded yet.
        size: Size of the intended copy in pixels: JPEG files are decoded at no more than about twice this size.

    Raises:
        UnreadableImageError: The image is damaged, or has more than ``MAX_PIXELS`` pixels.
    """
    if (pixels := image.width * image.height) > MAX_PIXELS:
        raise UnreadableImageError(f"too large ({pixels / 1e6:,.0f} megapixels)")
    try:
        image.draft("RGB", (2 * size, 2 * size))
        image.load()
        with suppress(Exception):  # damaged EXIF data say nothing
            image = ImageOps.exif_transpose(image)
        return _opaque_rgb(image)
    except Exception as error:  # decoders of damaged files raise errors of many kinds
        raise UnreadableImageError("damaged") from error


def _opaque_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # 16 bits per pixel, which conversion alone would clip.
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, _BACKGROUND)
        background.alpha_composite(image.convert("RGBA"))
        image = background
    return image.convert("RGB")
