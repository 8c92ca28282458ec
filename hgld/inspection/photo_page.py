"""The page of ranked photographs: queries in sections, each with the top-k items of one or several methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.figures.style import LevelStyle
from hgld.inspection.photos import FindImage, Photo, PhotoSource, thumbnail_url
from hgld.inspection.queries import TopK
from hgld.io.files import atomic_write
from hgld.pages.templates import page_templates

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
    """A query of the page.

    Args:
        position: Position of the query.
        level_counts: Levels, finest first, with the number of gallery items at each.
        rankings: Rankings to show, one above the other.
        note: Text below the names of the query.
        votes: Labels that the nearest items vote for, with the share of the votes of each.
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
    thumbnail_size: int = 128,
) -> None:
    """Write a page of ranked photographs: a single HTML file without scripts, thumbnails included.

    Args:
        out: HTML file to write or replace.
        sections: Queries by the heading above them; "" for no heading.
        photos: Descriptions and photographs; images without a photograph are shown by their ids.
        title: Title of the page.
        about: Paragraph below the title.
        levels: Styles of all levels, in the order of the legend; without any, results show no level.
        explanation: Paragraph that says what queries and results show.
        thumbnail_size: Longer side of the thumbnails in pixels; at 128 a thumbnail takes up to about 6 kB.
    """
    renderer = _PhotoRenderer(photos.image, thumbnail_size)
    query_renderer = renderer if photos.query_image is None else _PhotoRenderer(photos.query_image, thumbnail_size)
    rendered = {
        heading: [_render_query(query, photos, query_renderer, renderer) for query in queries]
        for heading, queries in sections.items()
    }
    thumbnails = [url for each in {renderer, query_renderer} for url in each.thumbnails.values()]
    html = (
        page_templates("retrieval")
        .get_template("photo_page.html")
        .render(
            title=title,
            about=about,
            explanation=explanation,
            levels=levels,
            sections=rendered,
            n_photos=len(thumbnails),
            n_missing=sum(url is None for url in thumbnails),
        )
    )
    with atomic_write(out) as draft:
        draft.write_text(html, encoding="utf-8")


def query_metrics(values: pd.Series[float], metric: str, n_levels: int) -> list[tuple[str, float]]:
    """Return a metric and the AP at the finest level from a row of per-query values, where the row has them."""
    names = dict.fromkeys([metric, "AP", f"AP_l{n_levels}"])
    return [(name, float(values[name])) for name in names if name in values]


def level_counts(values: pd.Series[float], n_levels: int) -> list[tuple[int, int]]:
    """Return the levels, finest first, with the number of gallery items at each, from a row of per-query values."""
    levels = range(n_levels, 0, -1)
    at_level_or_finer = [int(values[f"positives_l{level}"]) for level in levels]
    return list(zip(levels, np.diff(at_level_or_finer, prepend=0).tolist(), strict=True))


class _PhotoRenderer:
    """Renders photos as template values, with one thumbnail per id."""

    def __init__(self, image: FindImage, thumbnail_size: int) -> None:
        self._image, self._thumbnail_size = image, thumbnail_size
        self.thumbnails: dict[str, str | None] = {}

    def render(self, photo: Photo) -> dict[str, object]:
        if photo.id not in self.thumbnails:
            self.thumbnails[photo.id] = thumbnail_url(self._image(photo.id), self._thumbnail_size)
        link = photo.link if photo.link and photo.link.startswith(("https://", "http://")) else None
        thumbnail = self.thumbnails[photo.id]
        return {"id": photo.id, "names": photo.names, "link": link, "thumbnail": thumbnail}


def _render_query(
    query: PageQuery, photos: PhotoSource, query_renderer: _PhotoRenderer, renderer: _PhotoRenderer
) -> dict[str, object]:
    return {
        **query_renderer.render(photos.query(query.position)),
        "note": query.note,
        "votes": query.votes,
        "level_counts": query.level_counts,
        "rankings": [_render_ranking(ranking, photos, renderer) for ranking in query.rankings],
    }


def _render_ranking(ranking: PageRanking, photos: PhotoSource, renderer: _PhotoRenderer) -> dict[str, object]:
    top_k, row = ranking.top_k, ranking.row
    items = []
    for column, position in enumerate(top_k.positions[row].tolist()):
        if position >= 0:
            photo = photos.gallery(position)
            level = int(top_k.levels[row, column]) if photo.has_labels else None
            items.append({**renderer.render(photo), "level": level, "score": float(top_k.scores[row, column])})
    return {"method": ranking.method, "metrics": ranking.metrics, "items": items}
