"""Small JPEG copies of photographs."""

from __future__ import annotations

import io

from PIL import Image, ImageOps

from hgld.io.images import UnreadableImageError, open_image, upright_rgb

#: Photographs with more pixels are not shown: decoding them would take gigabytes and seconds.
MAX_PIXELS = 64_000_000


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
    image = upright_copy(open_image(data), max(width, height))
    if crop:
        # Towers and summits are above the centre.
        image = ImageOps.fit(image, (width, height), centering=(0.5, 0.4))
    else:
        image.thumbnail((width, height))
    thumbnail = io.BytesIO()
    image.save(thumbnail, "JPEG", quality=quality, optimize=True)
    return thumbnail.getvalue()


def upright_copy(image: Image.Image, size: int) -> Image.Image:
    """Return an upright RGB copy of an opened photograph, for a thumbnail of a size.

    Args:
        image: Opened photograph, whose pixels need not be decoded yet.
        size: Size of the thumbnail in pixels; the copy may be larger.

    Raises:
        UnreadableImageError: The photograph is damaged, or has more than ``MAX_PIXELS`` pixels.
    """
    if (pixels := image.width * image.height) > MAX_PIXELS:
        raise UnreadableImageError(f"too large ({pixels / 1e6:,.0f} megapixels)")
    return upright_rgb(image, size)
