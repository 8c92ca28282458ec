"""A page to look at what an evaluation ranks worst: queries, what stands first for them, and how near that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hgld.hierarchy import Hierarchy
from hgld.hierarchy.labels import Labels
from hgld.retrieval.thumbnails import FindImage, thumbnail
from hgld.retrieval.worst import Worst
from hgld.tables import replacing
from hgld.wikimedia.titles import PREFIX, title_of_url

_TEMPLATES = Path(__file__).parents[1] / "templates" / "retrieval"


@dataclass(frozen=True)
class Photo:
    """What the page tells of an image.

    Args:
        id: by which the photograph is found.
        names: what it shows, finest first, such as the landmark and its group.
        link: where it comes from; taken only if it is an address of the web.
    """

    id: str
    names: tuple[str, ...] = ()
    link: str | None = None


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

    The page is one file, needs no script, and takes up to about 6 kB per photograph: 3.5 MB for 50 queries with 10
    items each.

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
    thumbnails: dict[str, str | None] = {}

    def shown(photo: Photo) -> dict[str, object]:
        if photo.id not in thumbnails:
            thumbnails[photo.id] = thumbnail(image(photo.id), size)
        link = photo.link if photo.link and photo.link.startswith(("https://", "http://")) else None
        return {"id": photo.id, "names": photo.names, "link": link, "thumbnail": thumbnails[photo.id]}

    rows = []
    for row, position in enumerate(worst.queries.tolist()):
        found = [
            shown(gallery(item))
            | {"level": int(worst.levels[row, column]), "score": float(worst.scores[row, column])}
            for column, item in enumerate(worst.positions[row].tolist())
            if item >= 0
        ]
        values = worst.per_query.iloc[row]
        rows.append({"query": shown(query(position)), "found": found} | _numbers(values, worst))
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("worst.html").render(
        title=title,
        metric=worst.metric,
        rows=rows,
        levels=_legend(worst.n_levels, level_names),
        n_missing=sum(found is None for found in thumbnails.values()),
        n_photos=len(thumbnails),
    )
    with replacing(out) as draft:
        draft.write_text(page, encoding="utf-8")


def names_of(hierarchy: Hierarchy, labels: Labels) -> tuple[str, str]:
    """What a landmark is called, which is the title of its category where that is known, and its group.

    Args:
        hierarchy: of the landmark.
        labels: int64, shape (L,); its row of :meth:`Hierarchy.labels_of`.
    """
    row, group = labels[:2].tolist()
    if hierarchy.categories is None:
        landmark = f"landmark {hierarchy.landmark_ids[row]}"
    else:
        try:
            landmark = title_of_url(hierarchy.categories[row]).removeprefix(PREFIX)
        except ValueError:  # not the URL of a category
            landmark = hierarchy.categories[row]
    return landmark, hierarchy.nodes[0][group]


def _numbers(values: pd.Series[float], worst: Worst) -> dict[str, object]:
    """Of a query: its metric and AP, and how many gallery items there are of each level, finest first."""
    shown = dict.fromkeys([worst.metric, "AP", f"AP_l{worst.n_levels}"])
    metrics = [(name, float(values[name])) for name in shown if name in values]
    or_finer = [int(values[f"positives_l{level}"]) for level in range(worst.n_levels, 0, -1)]
    positives = np.diff(or_finer, prepend=0).tolist()
    return {"metrics": metrics, "positives": list(zip(range(worst.n_levels, 0, -1), positives, strict=True))}


def _legend(n_levels: int, names: Sequence[str] | None) -> list[dict[str, object]]:
    """Number, meaning and colour of the levels, finest first: green, orange to yellow, and red for nothing shared."""
    levels: list[dict[str, object]] = []
    for level in range(n_levels, 0, -1):
        share = (n_levels - 1 - level) / max(n_levels - 2, 1)  # 0 at the finest but one, 1 at the coarsest
        colour = "hsl(140 45% 55%)" if level == n_levels else f"hsl({26 + 24 * share:.0f} 88% {60 - 2 * share:.0f}%)"
        meaning = names[n_levels - level].replace("_", " ") if names else f"of {n_levels}"
        levels.append({"number": level, "meaning": meaning, "colour": colour})
    return [*levels, {"number": 0, "meaning": "nothing shared", "colour": "hsl(4 75% 68%)"}]
