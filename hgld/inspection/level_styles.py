"""Colours and meanings of the levels of relevance in pages and pictures."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass

from hgld.hierarchy.label_matrix import column_of


@dataclass(frozen=True)
class LevelStyle:
    """Display style of a level.

    Args:
        level: Number of the level; 0 for nothing shared.
        meaning: Name of the level.
        colour: Background colour for dark text, ``#rrggbb``.
    """

    level: int
    meaning: str
    colour: str


def level_styles(n_levels: int, names: Sequence[str] | None) -> list[LevelStyle]:
    """Return the styles of all levels, finest first: green, orange to yellow, and red for nothing shared.

    Args:
        n_levels: Number of levels L.
        names: Names of the L levels, finest first, such as :attr:`Hierarchy.level_names`.

    >>> [(style.level, style.meaning, style.colour) for style in level_styles(2, ["landmark", "root"])]
    [(2, 'landmark', '#59c07b'), (1, 'root', '#f38d3f'), (0, 'nothing shared', '#eb7870')]
    """
    styles = []
    for level in range(n_levels, 0, -1):
        share = (n_levels - 1 - level) / max(n_levels - 2, 1)  # 0 at the second finest level, 1 at the coarsest
        colour = _rgb(140, 45, 55) if level == n_levels else _rgb(26 + 24 * share, 88, 60 - 2 * share)
        meaning = names[column_of(level, n_levels)].replace("_", " ") if names else f"of {n_levels}"
        styles.append(LevelStyle(level, meaning, colour))
    return [*styles, LevelStyle(0, "nothing shared", _rgb(4, 75, 68))]


def _rgb(hue: float, saturation: float, lightness: float) -> str:
    """Return a colour as ``#rrggbb``, given its hue in degrees, and its saturation and lightness in percent."""
    red_green_blue = colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100)
    return "#" + "".join(f"{round(255 * part):02x}" for part in red_green_blue)
