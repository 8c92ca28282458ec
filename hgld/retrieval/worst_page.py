"""A page to look at what an evaluation ranks worst: queries, what stands first for them, and how near that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hgld.retrieval.photo_page import Photo, PhotoPage, levels_shown, metrics_shown, positives_shown
from hgld.retrieval.thumbnails import FindImage
from hgld.retrieval.worst import Worst


def worst_page(
    worst: Worst,
    out: Path,
    *,
    query: Callable[[int], Photo],
    gallery: Callable[[int], Photo],
    image: FindImage,
    title: str = "Worst queries",
    level_names: Sequence[str] | None = None,
    size: int = 128,
) -> None:
    """Write a page of these queries, each with its nearest items in frames that tell their levels.

    The page is one file: 3.5 MB for 50 queries with 10 items each.

    Args:
        worst: the queries.
        out: the HTML file to write or replace.
        query: what to tell of the query at a position.
        gallery: what to tell of the gallery item at a position.
        image: finds photographs; in place of one that is not at hand stands its id.
        title: of the page.
        level_names: of the L levels, finest first, such as :attr:`Hierarchy.level_names`.
        size: of thumbnails, the longer side in pixels.
    """
    page = PhotoPage(query, gallery, image, size)
    rows = []
    for row, position in enumerate(worst.queries.tolist()):
        values = worst.per_query.iloc[row]
        rows.append(
            {
                "query": page.query(position),
                "metrics": metrics_shown(values, worst.metric, worst.n_levels),
                "positives": positives_shown(values, worst.n_levels),
                "found": page.found(worst.found, row),
            }
        )
    levels = levels_shown(worst.n_levels, level_names)
    page.write(out, "worst.html", title=title, metric=worst.metric, rows=rows, levels=levels)
