"""Photo pages of the worst queries of an evaluation, and of the queries that two methods rank most differently."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgld.inspection.level_styles import level_styles
from hgld.inspection.method_differences import MethodDifferences, percentage_points
from hgld.inspection.photo_page import PageQuery, PageRanking, level_counts, query_metrics, write_photo_page
from hgld.inspection.photos import PhotoSource
from hgld.inspection.worst_queries import WorstQueries


def write_worst_queries_page(
    worst: WorstQueries,
    out: Path,
    photos: PhotoSource,
    *,
    title: str = "Worst queries",
    level_names: Sequence[str] | None = None,
    thumbnail_size: int = 128,
) -> None:
    """Write a page of the worst queries, each with its top-k items in frames coloured by level.

    The page takes about 3.5 MB for 50 queries with 10 items each.

    Args:
        worst: The queries.
        out: HTML file to write or replace.
        photos: Descriptions and photographs of the images.
        title: Title of the page.
        level_names: Names of the L levels, finest first, such as :attr:`Hierarchy.level_names`.
        thumbnail_size: Longer side of the thumbnails in pixels.
    """
    queries = []
    for row, position in enumerate(worst.queries.tolist()):
        values = worst.per_query.iloc[row]
        ranking = PageRanking(worst.top_k, row, query_metrics(values, worst.metric, worst.n_levels))
        queries.append(PageQuery(position, level_counts(values, worst.n_levels), [ranking]))
    write_photo_page(
        out,
        {"": queries},
        photos,
        title=title,
        about=f"The {len(queries)} queries with the lowest {worst.metric}, lowest first, with their nearest items.",
        levels=level_styles(worst.n_levels, level_names),
        thumbnail_size=thumbnail_size,
    )


def write_method_differences_page(
    differences: MethodDifferences, out: Path, photos: PhotoSource, *, title: str, thumbnail_size: int = 128
) -> None:
    """Write a page of the queries that two methods rank most differently, with the top-k items of both methods.

    The page takes about 1.5 MB for 12 queries with 10 items each.

    Args:
        differences: The queries.
        out: HTML file to write or replace.
        photos: Descriptions and photographs of the images.
        title: Title of the page.
        thumbnail_size: Longer side of the thumbnails in pixels.
    """
    levels = level_styles(differences.n_levels, differences.level_names)
    write_photo_page(
        out,
        {
            heading: [_page_query(differences, row) for row in rows]
            for heading, rows in differences.sections().items()
        },
        photos,
        title=title,
        about=(
            f"{_summary(differences)} Below are the queries that differ most, in both directions, each "
            f"{levels[0].meaning} at most once."
        ),
        levels=levels,
        thumbnail_size=thumbnail_size,
    )


def _page_query(differences: MethodDifferences, row: int) -> PageQuery:
    rankings = []
    for side in (differences.baseline, differences.method):
        metrics = query_metrics(side.per_query.iloc[row], differences.metric, differences.n_levels)
        rankings.append(PageRanking(side.top_k, row, metrics, method=side.name))
    return PageQuery(
        position=int(differences.queries[row]),
        level_counts=level_counts(differences.method.per_query.iloc[row], differences.n_levels),
        rankings=rankings,
        note=f"{differences.metric} {percentage_points(differences.differences[row])}",
    )


def _summary(differences: MethodDifferences) -> str:
    n_queries = differences.total_improved + differences.total_degraded + differences.total_equal
    return (
        f"Of {n_queries:,} queries, {differences.method.name} has a higher {differences.metric} for "
        f"{differences.total_improved:,} and a lower one for {differences.total_degraded:,}; the mean difference "
        f"from {differences.baseline.name} is {percentage_points(differences.mean_difference)}."
    )
