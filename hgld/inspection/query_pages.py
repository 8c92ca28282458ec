"""Pages and pictures of ranked photographs, such as the worst queries of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hgld.arrays import Integers
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluation_files import Evaluation
from hgld.evaluation.ranking import RankingConfig
from hgld.figures.photographs import Strip, StripPhoto, StripQuery, draw_strips
from hgld.figures.style import LevelStyle, level_styles
from hgld.hierarchy.label_sets import Labelling
from hgld.inspection.method_differences import (
    MethodDifferences,
    MethodRankings,
    percentage_points,
)
from hgld.inspection.photos import (
    FindImage,
    Photo,
    PhotoSource,
    find_images,
    landmark_names_of,
    shrink,
    thumbnail_url,
)
from hgld.inspection.queries import TopK, WorstQueries, find_worst_queries
from hgld.io.columns import column_names, read_columns
from hgld.io.files import write_page
from hgld.io.text_array import Ids
from hgld.pages.templates import page_templates

#: Longer side of thumbnails in pixels; one takes up to about 6 kB.
_THUMBNAIL_SIZE = 128
_EXPLANATION = (
    "Each result shows the level that it shares with the query, its score, and what it depicts. Each query shows the "
    "number of gallery items at each level."
)


@dataclass(frozen=True, eq=False)
class PageRanking:
    """Top-k items of one method for one query.

    Args:
        top_k: Items of several queries.
        row: Row of the query in ``top_k``.
        metrics: Names and values of metrics of the query.
        method: Name of the method, if several are shown.
    """

    top_k: TopK
    row: int
    metrics: Sequence[tuple[str, float]]
    method: str | None = None


@dataclass(frozen=True, eq=False)
class PageQuery:
    """A query of the page, with its rankings, one above the other.

    Args:
        position: Position of the query.
        level_counts: Levels, finest first, with the number of gallery items at each level.
        rankings: Rankings of the query.
        note: Text below the names.
        votes: Labels for which the nearest items vote, with their shares of the votes.
    """

    position: int
    level_counts: Sequence[tuple[int, int]]
    rankings: Sequence[PageRanking]
    note: str | None = None
    votes: Sequence[tuple[str, float]] = ()


def write_photo_page(
    out: Path,
    sections: Mapping[str, Sequence[PageQuery]],
    photos: PhotoSource,
    *,
    title: str,
    about: str,
    levels: Sequence[LevelStyle],
    explanation: str = _EXPLANATION,
) -> None:
    """Write a page of ranked photographs: a single HTML file without scripts, thumbnails included.

    Images without a photograph are shown by their ids.

    Args:
        out: File of the page.
        sections: Queries by the heading above them; an empty heading is not shown.
        photos: Descriptions and photographs of images.
        title: Title of the page.
        about: Text below the title.
        levels: Styles of the levels; results show no level without them.
        explanation: Text that explains the results.
    """
    renderer = _PageRenderer(photos)
    rendered = {}
    for heading, queries in sections.items():
        rendered[heading] = [renderer.query(query) for query in queries]
    thumbnails = list(renderer.thumbnails.values())
    template = page_templates("retrieval").get_template("photo_page.html")
    html = template.render(
        title=title,
        about=about,
        explanation=explanation,
        levels=levels,
        sections=rendered,
        n_photos=len(thumbnails),
        n_missing=thumbnails.count(None),
    )
    write_page(out, html)


def _query_metrics(values: pd.Series[float], metric: str, n_levels: int) -> list[tuple[str, float]]:
    """Return a metric and the AP at the finest level of a query, if its row of values has them."""
    names = dict.fromkeys([metric, "AP", f"AP_l{n_levels}"])
    return [(name, float(values[name])) for name in names if name in values]


def level_counts(values: pd.Series[float], n_levels: int) -> list[tuple[int, int]]:
    """Return the levels, finest first, with numbers of gallery items, from a query's values."""
    levels = range(n_levels, 0, -1)
    at_level_or_finer = [int(values[f"positives_l{level}"]) for level in levels]
    return list(zip(levels, np.diff(at_level_or_finer, prepend=0).tolist(), strict=True))


class _PageRenderer:
    """Renderer of queries as values of the template, with one thumbnail per photograph."""

    def __init__(self, photos: PhotoSource) -> None:
        self._photos = photos
        self.thumbnails: dict[tuple[FindImage, str], str | None] = {}

    def query(self, query: PageQuery) -> dict[str, object]:
        """Return the values of a query."""
        photo = self._photos.query(query.position)
        values = self._photo(photo, self._photos.query_image or self._photos.image)
        rankings = [self._ranking(ranking) for ranking in query.rankings]
        return {**vars(query), **values, "rankings": rankings}

    def _ranking(self, ranking: PageRanking) -> dict[str, object]:
        """Return the values of a ranking."""
        items = []
        for position, score, level in ranking.top_k.items(ranking.row):
            photo = self._photos.gallery(position)
            item = self._photo(photo, self._photos.image)
            item["score"] = score
            item["level"] = level if photo.has_labels else None
            items.append(item)
        return {"method": ranking.method, "metrics": ranking.metrics, "items": items}

    def _photo(self, photo: Photo, find_image: FindImage) -> dict[str, object]:
        """Return the values of an image."""
        key = (find_image, photo.id)
        if key not in self.thumbnails:
            self.thumbnails[key] = thumbnail_url(find_image(photo.id), _THUMBNAIL_SIZE)
        link = photo.link
        if link is not None and not link.startswith(("https://", "http://")):
            link = None
        return {
            "id": photo.id,
            "names": photo.names,
            "link": link,
            "thumbnail": self.thumbnails[key],
        }


def write_worst_queries_page(
    worst: WorstQueries,
    out: Path,
    photos: PhotoSource,
    *,
    title: str = "Worst queries",
    level_names: Sequence[str] | None = None,
) -> None:
    """Write a page of the worst queries, each with its top-k items in frames coloured by level.

    The page takes about 3.5 MB for 50 queries with 10 items each.

    Args:
        worst: The queries.
        out: File of the page.
        photos: Descriptions and photographs of images.
        title: Title of the page.
        level_names: Names of the L levels, finest first.
    """
    queries = []
    for row, position in enumerate(worst.queries.tolist()):
        values = worst.per_query.iloc[row]
        metrics = _query_metrics(values, worst.metric, worst.n_levels)
        ranking = PageRanking(worst.top_k, row, metrics)
        queries.append(PageQuery(position, level_counts(values, worst.n_levels), [ranking]))
    write_photo_page(
        out,
        {"": queries},
        photos,
        title=title,
        about=f"The {len(queries)} queries with the lowest {worst.metric}, lowest first, with their nearest items.",
        levels=level_styles(worst.n_levels, level_names),
    )


def write_method_differences_page(
    differences: MethodDifferences, out: Path, photos: PhotoSource, *, title: str
) -> None:
    """Write a page of the queries that two methods rank most differently, with their top-k items.

    The page takes about 1.5 MB for 12 queries with 10 items each.
    """
    levels = level_styles(differences.n_levels, differences.level_names)
    sections = {}
    for heading, rows in differences.sections().items():
        sections[heading] = [_page_query(differences, row) for row in rows]
    write_photo_page(
        out,
        sections,
        photos,
        title=title,
        about=(
            f"{_summary(differences)} Below are the queries that differ most, in both directions, each "
            f"{levels[0].meaning} at most once."
        ),
        levels=levels,
    )


def _page_query(differences: MethodDifferences, row: int) -> PageQuery:
    """Return a query with the rankings of both methods."""
    rankings = []
    for side in (differences.baseline, differences.method):
        metrics = _query_metrics(side.per_query.iloc[row], differences.metric, differences.n_levels)
        rankings.append(PageRanking(side.top_k, row, metrics, method=side.name))
    return PageQuery(
        position=int(differences.queries[row]),
        level_counts=level_counts(differences.method.per_query.iloc[row], differences.n_levels),
        rankings=rankings,
        note=f"{differences.metric} {percentage_points(differences.differences[row])}",
    )


def _summary(differences: MethodDifferences) -> str:
    """Return the numbers of improved and degraded queries in words."""
    n_queries = differences.total_improved + differences.total_degraded + differences.total_equal
    return (
        f"Of {n_queries:,} queries, {differences.method.name} has a higher {differences.metric} for "
        f"{differences.total_improved:,} and a lower one for {differences.total_degraded:,}; the mean difference "
        f"from {differences.baseline.name} is {percentage_points(differences.mean_difference)}."
    )


#: Longer side of photographs in pictures, in pixels.
_PIXELS = 240


def draw_method_differences(
    path: Path, differences: MethodDifferences, photos: PhotoSource, *, max_queries: int = 3
) -> None:
    """Draw queries beside strips of their top results: the baseline's above, the method's below."""
    sections: dict[str, Sequence[StripQuery]] = {}
    for heading, rows in differences.sections(max_queries).items():
        sections[heading] = [_strip_query(differences, row, photos) for row in rows]
    levels = level_styles(differences.n_levels, differences.level_names)
    draw_strips(path, sections, levels)


def _strip_query(differences: MethodDifferences, row: int, photos: PhotoSource) -> StripQuery:
    """Return a query with the strips of both methods."""
    metric = differences.metric
    photo = photos.query(int(differences.queries[row]))
    return StripQuery(
        title=" · ".join(photo.names) or photo.id,
        note=f"{metric} {percentage_points(differences.differences[row])}",
        photo=_strip_photo(photo, photos.query_image or photos.image),
        strips=(
            _strip(differences.baseline, metric, row, photos),
            _strip(differences.method, metric, row, photos),
        ),
    )


def _strip(method: MethodRankings, metric: str, row: int, photos: PhotoSource) -> Strip:
    """Return the top results of a method for a query."""
    results = []
    for position, _, level in method.top_k.items(row):
        results.append((_strip_photo(photos.gallery(position), photos.image), level))
    score = f"{metric} {100 * method.per_query[metric].iloc[row]:.1f}"
    return Strip(method.name, score, results)


def _strip_photo(photo: Photo, find_image: FindImage) -> StripPhoto:
    """Return the photograph of an image."""
    return StripPhoto(photo.id, shrink(find_image(photo.id), _PIXELS))


def write_evaluation_page(
    evaluation: Evaluation,
    out: Path,
    n: int,
    *,
    images: Path | None,
    sources: Path | None,
    config: RankingConfig,
) -> None:
    """Write a page of the n queries with the lowest H-AP and their top-k items.

    Args:
        evaluation: Tasks and results.
        out: File of the page.
        n: Number of queries.
        images: Photographs, see :func:`~hgld.inspection.photos.find_images`. Default: no photographs.
        sources: Table with the columns id and url, such as GLDv2's ``train.csv``, to which photographs
            link.
        config: Settings of the ranking.

    Raises:
        ConfigurationError: The evaluation does not rank by labels, or lacks H-AP.
        InputError: ``images`` is unusable, see :func:`~hgld.inspection.photos.find_images`.
    """
    task = evaluation.tasks[0]
    hierarchy = evaluation.hierarchy
    if task.query_labels is None:
        raise ConfigurationError(
            "this evaluation does not rank by labels of several levels, so it has no H-AP"
        )
    worst = find_worst_queries(evaluation.results[0], task, n=n, config=config)
    shown = worst.top_k.positions[worst.top_k.positions >= 0]
    query_ids = _image_ids(task.query_ids, worst.queries)
    gallery_ids = _image_ids(task.gallery_ids, shown)
    links = _links(sources, {*query_ids, *gallery_ids})

    def describe(ids: Ids | None, labels: Labelling | None, position: int) -> Photo:
        (image_id,) = _image_ids(ids, np.array([position]))
        names: tuple[str, ...] = ()
        if hierarchy is not None and labels is not None:
            names = landmark_names_of(hierarchy, labels, position)
        return Photo(image_id, names, links.get(image_id))

    photos = PhotoSource(
        query=partial(describe, task.query_ids, task.query_labels),
        gallery=partial(describe, task.gallery_ids, task.gallery_labels),
        image=(lambda _: None) if images is None else find_images(images),
    )
    write_worst_queries_page(worst, out, photos, level_names=task.level_names)


def _image_ids(ids: Ids | None, positions: Integers) -> list[str]:
    """Return the ids of some images, or their rows in words."""
    if ids is None:
        return [f"row {position}" for position in positions]
    return [str(image_id) for image_id in ids[positions]]


def _links(path: Path | None, ids: set[str]) -> dict[str, str]:
    """Return the URLs of images by id, if a table has them."""
    if path is None or path.suffix not in (".csv", ".parquet"):
        return {}
    if not {"id", "url"} <= set(column_names(path)):
        return {}
    table = read_columns(path, ("id", "url"), {"id": pa.string(), "url": pa.string()})
    table = table.filter(pc.is_in(table["id"], pa.array(sorted(ids), pa.string())))
    return dict(zip(table["id"].to_pylist(), table["url"].to_pylist(), strict=True))
