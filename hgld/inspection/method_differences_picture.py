"""The queries that two methods rank most differently, as a picture (paper, Fig. 9c, d)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hgld.figures.strips import LevelColour, Strip, StripPhoto, StripQuery, draw_strips
from hgld.inspection.method_differences import MethodDifferences, Side, points
from hgld.inspection.photo_page import Photo, level_styles
from hgld.inspection.thumbnails import FindImage, small

_PIXELS = 240


def draw_method_differences(
    path: Path,
    differing: MethodDifferences,
    *,
    query: Callable[[int], Photo],
    gallery: Callable[[int], Photo],
    image: FindImage,
    per_part: int = 3,
) -> None:
    """Draw queries, each beside two strips of its top results: the baseline's above, the method's below.

    Args:
        path: Picture to write.
        differing: Queries that differ most.
        query: Return the id and the names of the query at a position.
        gallery: Return the id and the names of the gallery item at a position.
        image: Return the photograph of an id; ids stand in place of photographs that are not available.
        per_part: Number of queries drawn of those that the method ranks better, and of those that it ranks worse.
    """

    def strip_photo(photo: Photo) -> StripPhoto:
        return StripPhoto(photo.id, small(image(photo.id), _PIXELS))

    def strip(side: Side, row: int) -> Strip:
        items = zip(side.found.positions[row].tolist(), side.found.levels[row].tolist(), strict=True)
        results = [(strip_photo(gallery(item)), level) for item, level in items if item >= 0]
        score = f"{differing.metric} {100 * side.per_query[differing.metric].iloc[row]:.1f}"
        return Strip(side.name, score, results)

    def strip_query(row: int) -> StripQuery:
        photo = query(int(differing.queries[row]))
        return StripQuery(
            title=" · ".join(photo.names) or photo.id,
            note=f"{differing.metric} {points(differing.differences[row])}",
            photo=strip_photo(photo),
            strips=(strip(differing.baseline, row), strip(differing.method, row)),
        )

    levels = [
        LevelColour(level.number, f"same {level.meaning}" if level.number else level.meaning, level.colour)
        for level in level_styles(differing.n_levels, differing.level_names)
    ]
    parts = differing.parts(per_part)
    draw_strips(path, {heading: [strip_query(row) for row in rows] for heading, rows in parts.items()}, levels)
