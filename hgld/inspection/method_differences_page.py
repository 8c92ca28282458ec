"""A page to look at where two methods differ: queries, and what stands first for them with each method."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hgld.inspection.method_differences import MethodDifferences, points
from hgld.inspection.photo_page import Photo, PhotoPage, level_styles, metrics_shown, positives_shown
from hgld.inspection.thumbnails import FindImage


def write_method_differences_page(
    differing: MethodDifferences,
    out: Path,
    *,
    query: Callable[[int], Photo],
    gallery: Callable[[int], Photo],
    image: FindImage,
    title: str,
    size: int = 128,
) -> None:
    """Write a page of these queries, each with its nearest items as the baseline and as the method find them.

    The page is one file: 1.5 MB for 12 queries with 10 items each.

    Args:
        differing: the queries.
        out: the HTML file to write or replace.
        query: what to tell of the query at a position.
        gallery: what to tell of the gallery item at a position.
        image: finds photographs; in place of one that is not at hand stands its id.
        title: of the page.
        size: of thumbnails, the longer side in pixels.
    """
    page = PhotoPage(query, gallery, image, size)
    metric, n_levels, differences = differing.metric, differing.n_levels, differing.differences

    def shown(row: int) -> dict[str, object]:
        strips = [
            {
                "name": side.name,
                "metrics": metrics_shown(side.per_query.iloc[row], metric, n_levels),
                "found": page.found(side.found, row),
            }
            for side in (differing.baseline, differing.method)
        ]
        return {
            "query": page.query(int(differing.queries[row])),
            "difference": points(differences[row]),
            "positives": positives_shown(differing.method.per_query.iloc[row], n_levels),
            "strips": strips,
        }

    page.write(
        out,
        "differing.html",
        title=title,
        about=str(differing),
        metric=metric,
        parts={heading: [shown(row) for row in rows] for heading, rows in differing.parts().items()},
        levels=level_styles(n_levels, differing.level_names),
    )
