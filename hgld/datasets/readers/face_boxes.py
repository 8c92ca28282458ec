"""Boxes of faces, extended as those that face recognition networks are trained on."""

from __future__ import annotations

from hgld.errors import ConfigurationError
from hgld.io.images import Box

#: What the authors of VGGFace2 add to the width and height of a box: ReadMe.txt of their models.
PUBLISHED_MARGIN = 0.3


def check_margin(margin: float) -> None:
    """Raise a :class:`ConfigurationError` if a margin is below 0."""
    if margin < 0:
        raise ConfigurationError(f"`margin` is {margin}; expected 0 or more, such as {PUBLISHED_MARGIN}")


def extended_box(left: float, top: float, width: float, height: float, margin: float) -> Box:
    """Return a box extended about its centre: left, top, right and bottom, which may reach out of the image.

    Args:
        left: Left edge in pixels.
        top: Top edge in pixels.
        width: Width in pixels.
        height: Height in pixels.
        margin: What is added to width and height, as a share of them; half of it at each side.

    >>> extended_box(100, 50, 40, 60, margin=0.5)
    (90.0, 35.0, 150.0, 125.0)
    """
    across, down = margin / 2 * width, margin / 2 * height
    return left - across, top - down, left + width + across, top + height + down
