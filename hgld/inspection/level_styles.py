"""Colours and meanings of the levels of relevance in pages and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hgld.figures.style import level_colours
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
    """Return the styles of all levels, finest first: blue to yellow, and red for nothing shared.

    Args:
        n_levels: Number of levels L.
        names: Names of the L levels, finest first, such as :attr:`Hierarchy.level_names`.

    >>> [(style.level, style.meaning, style.colour) for style in level_styles(2, ["landmark", "root"])]
    [(2, 'landmark', '#5b9bff'), (1, 'root', '#f7e35a'), (0, 'nothing shared', '#ef6a5a')]
    """
    *colours, nothing = level_colours(n_levels, background=True)
    styles = []
    for level, colour in zip(range(n_levels, 0, -1), colours, strict=True):
        meaning = names[column_of(level, n_levels)].replace("_", " ") if names else f"of {n_levels}"
        styles.append(LevelStyle(level, meaning, colour))
    return [*styles, LevelStyle(0, "nothing shared", nothing)]
