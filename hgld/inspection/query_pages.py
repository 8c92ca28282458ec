"""Pages and pictures of ranked photographs, such as those of the worst queries of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluation_files import Evaluation
from hgld.evaluation.ranking import RankingConfig
from hgld.figures.photographs import Strip, StripPhoto, StripQuery, draw_strips
from hgld.figures.style import LevelStyle, level_styles
from hgld.hierarchy.label_sets import Labelling
from hgld.inspection.photos import (
    FindImage,
    Photo,
    PhotoSource,
    find_images,
    landmark_names_of,
    shrink,
    thumbnail_url,
)
from hgld.inspection.queries import (
    MethodDifferences,
    MethodRankings,
    TopK,
    WorstQueries,
    find_worst_queries,
    percentage_points,
)
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
    """Top-k items of one method for one query."""

    top_k: TopK
    row: int
    metrics: Sequence[tuple[str, float]]
    method: str | None = None


@dataclass(frozen=True, eq=False)
class PageQuery:
    """A query of the page, with its rankings, one above the other.

    ``level_counts`` are levels, finest first, with the number of gallery items at each; ``votes`` the labels that the
    nearest items vote for, with the share of the votes of each; the note is shown below the names.
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

    Sections are queries by the heading above them, "" for none. Images without a photograph are shown by their ids,
    and results without styles of levels show no level.
    """
    renderer = _PageRenderer(photos)
    rendered = {
        heading: [renderer.query(query) for query in queries]
        for heading, queries in sections.items()
    }
    html = (
        page_templates("retrieval")
        .get_template("photo_page.html")
        .render(
            title=title,
            about=about,
            explanation=explanation,
            levels=levels,
            sections=rendered,
            n_photos=len(renderer.thumbnails),
            n_missing=sum(url is None for url in renderer.thumbnails.values()),
        )
    )
    write_page(out, html)


def _query_metrics(values: pd.Series[float], metric: str, n_levels: int) -> list[tuple[str, float]]:
    """Return a metric and the AP at the finest level from a row of per-query values, where the row has them."""
    names = dict.fromkeys([metric, "AP", f"AP_l{n_levels}"])
    return [(name, float(values[name])) for name in names if name in values]


def level_counts(values: pd.Series[float], n_levels: int) -> list[tuple[int, int]]:
    """Return the levels, finest first, with the number of gallery items at each, from a row of per-query values."""
    levels = range(n_levels, 0, -1)
    at_level_or_finer = [int(values[f"positives_l{level}"]) for level in levels]
    return list(zip(levels, np.diff(at_level_or_finer, prepend=0).tolist(), strict=True))


class _PageRenderer:
    """Renders queries as template values, with one thumbnail per photograph."""

    def __init__(self, photos: PhotoSource) -> None:
        self._photos = photos
        self.thumbnails: dict[tuple[FindImage, str], str | None] = {}

    def query(self, query: PageQuery) -> dict[str, object]:
        photo = self._photo(
            self._photos.query(query.position), self._photos.query_image or self._photos.image
        )
        rankings = [self._ranking(ranking) for ranking in query.rankings]
        return {**vars(query), **photo, "rankings": rankings}

    def _ranking(self, ranking: PageRanking) -> dict[str, object]:
        items = []
        for position, score, level in ranking.top_k.items(ranking.row):
            photo = self._photos.gallery(position)
            shown = level if photo.has_labels else None
            items.append({**self._photo(photo, self._photos.image), "level": shown, "score": score})
        return {"method": ranking.method, "metrics": ranking.metrics, "items": items}

    def _photo(self, photo: Photo, find: FindImage) -> dict[str, object]:
        key = find, photo.id
        if key not in self.thumbnails:
            self.thumbnails[key] = thumbnail_url(find(photo.id), _THUMBNAIL_SIZE)
        link = photo.link if photo.link and photo.link.startswith(("https://", "http://")) else None
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

    The page takes about 3.5 MB for 50 queries with 10 items each. The names of the L levels are finest first.
    """
    queries = []
    for row, position in enumerate(worst.queries.tolist()):
        values = worst.per_query.iloc[row]
        ranking = PageRanking(
            worst.top_k, row, _query_metrics(values, worst.metric, worst.n_levels)
        )
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
    """Write a page of the queries that two methods rank most differently, with the top-k items of both methods.

    The page takes about 1.5 MB for 12 queries with 10 items each.
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
    )


def _page_query(differences: MethodDifferences, row: int) -> PageQuery:
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
    n_queries = differences.total_improved + differences.total_degraded + differences.total_equal
    return (
        f"Of {n_queries:,} queries, {differences.method.name} has a higher {differences.metric} for "
        f"{differences.total_improved:,} and a lower one for {differences.total_degraded:,}; the mean difference "
        f"from {differences.baseline.name} is {percentage_points(differences.mean_difference)}."
    )


_PIXELS = 240


def draw_method_differences(
    path: Path, differences: MethodDifferences, photos: PhotoSource, *, max_queries: int = 3
) -> None:
    """Draw queries, each beside two strips of its top results: the baseline's above, the method's below."""

    def strip_photo(photo: Photo, find: FindImage = photos.image) -> StripPhoto:
        return StripPhoto(photo.id, shrink(find(photo.id), _PIXELS))

    def strip(side: MethodRankings, row: int) -> Strip:
        results = [
            (strip_photo(photos.gallery(item)), level) for item, _, level in side.top_k.items(row)
        ]
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

    levels = level_styles(differences.n_levels, differences.level_names)
    sections = differences.sections(max_queries)
    draw_strips(
        path,
        {heading: [strip_query(row) for row in rows] for heading, rows in sections.items()},
        levels,
    )


def write_evaluation_page(
    evaluation: Evaluation,
    out: Path,
    n: int,
    *,
    images: Path | None,
    sources: Path | None,
    config: RankingConfig,
) -> None:
    """Write a page of the n queries with the lowest H-AP and their top-k items, with photographs from ``images``.

    Photographs link to the URLs of ``sources``, a table with the columns id and url, such as GLDv2's ``train.csv``.

    Raises:
        ConfigurationError: The evaluation does not rank by labels, or lacks H-AP.
        InputError: ``images`` is none of what :func:`~hgld.inspection.photos.find_images` takes.
    """
    task, hierarchy = evaluation.tasks[0], evaluation.hierarchy
    if task.query_labels is None:
        raise ConfigurationError(
            "this evaluation does not rank by labels of several levels, so it has no H-AP"
        )
    worst = find_worst_queries(evaluation.results[0], task, n=n, config=config)
    shown = worst.top_k.positions[worst.top_k.positions >= 0]
    links = _links(sources, {*_ids(task.query_ids, worst.queries), *_ids(task.gallery_ids, shown)})

    def photos(ids: Ids | None, labels: Labelling | None) -> Callable[[int], Photo]:
        def photo(position: int) -> Photo:
            (image_id,) = _ids(ids, np.array([position]))
            names: tuple[str, ...] = ()
            if hierarchy is not None and labels is not None:
                names = landmark_names_of(hierarchy, labels, position)
            return Photo(image_id, names, links.get(image_id))

        return photo

    source = PhotoSource(
        query=photos(task.query_ids, task.query_labels),
        gallery=photos(task.gallery_ids, task.gallery_labels),
        image=(lambda _: None) if images is None else find_images(images),
    )
    write_worst_queries_page(worst, out, source, level_names=task.level_names)


def _ids(ids: Ids | None, positions: npt.NDArray[np.int64]) -> list[str]:
    return (
        [f"row {position}" for position in positions]
        if ids is None
        else [str(name) for name in ids[positions]]
    )


def _links(path: Path | None, ids: set[str]) -> dict[str, str]:
    """Return the URLs of images by id, where a table has them."""
    if (
        path is None
        or path.suffix not in (".csv", ".parquet")
        or not {"id", "url"} <= set(column_names(path))
    ):
        return {}
    table = read_columns(path, ("id", "url"), {"id": pa.string(), "url": pa.string()})
    table = table.filter(pc.is_in(table["id"], pa.array(sorted(ids), pa.string())))
    return dict(zip(table["id"].to_pylist(), table["url"].to_pylist(), strict=True))
