"""The queries that two methods rank most differently, as a picture (paper, Fig. 9c, d)."""

from __future__ import annotations

from pathlib import Path

from hgld.figures.strips import LevelColour, Strip, StripPhoto, StripQuery, draw_strips
from hgld.inspection.level_styles import level_styles
from hgld.inspection.method_differences import MethodDifferences, MethodRankings, percentage_points
from hgld.inspection.photos import Photo, PhotoSource
from hgld.inspection.thumbnails import FindImage, shrink

_PIXELS = 240


def draw_method_differences(
    path: Path, differences: MethodDifferences, photos: PhotoSource, *, max_queries: int = 3
) -> None:
    """Draw queries, each beside two strips of its top results: the baseline's above, the method's below.

    Args:
        path: Picture to write.
        differences: Queries that differ most.
        photos: Descriptions and photographs of the images; images without a photograph are shown by their ids.
        max_queries: Maximum number of queries that the method improves, and of those that it degrades.
    """

    def strip_photo(photo: Photo, find: FindImage = photos.image) -> StripPhoto:
        return StripPhoto(photo.id, shrink(find(photo.id), _PIXELS))

    def strip(side: MethodRankings, row: int) -> Strip:
        items = zip(side.top_k.positions[row].tolist(), side.top_k.levels[row].tolist(), strict=True)
        results = [(strip_photo(photos.gallery(item)), level) for item, level in items if item >= 0]
        score = f"{differences.metric} {100 * side.per_query[differences.metric].iloc[row]:.1f}"
        return Strip(side.name, score, results)

    def strip_query(row: int) -> StripQuery:
        photo = photos.query(int(differences.queries[row]))
        return StripQuery(
            title=" · ".join(photo.names) or photo.id,
            note=f"{differences.metric} {percentage_points(differences.differences[row])}",
            photo=strip_photo(photo, photos.query_image or photos.image),
            strips=(strip(differences.baseline, row), strip(differences.method, row)),
        )

    levels = [
        LevelColour(style.level, f"same {style.meaning}" if style.level else style.meaning, style.colour)
        for style in level_styles(differences.n_levels, differences.level_names)
    ]
    sections = differences.sections(max_queries)
    draw_strips(path, {heading: [strip_query(row) for row in rows] for heading, rows in sections.items()}, levels)
