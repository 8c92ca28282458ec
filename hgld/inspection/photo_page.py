"""What pages of retrieved photographs share: what they tell of images and levels, and how a page becomes a file."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hgld.datasets.manifest import Manifest
from hgld.hierarchy import Hierarchy
from hgld.inspection.thumbnails import FindImage, thumbnail
from hgld.inspection.top_k import Found
from hgld.io.files import atomic_write
from hgld.wikimedia.titles import PREFIX, title_of_url

_TEMPLATES = Path(__file__).parents[1] / "templates" / "retrieval"


@dataclass(frozen=True)
class Photo:
    """What a page tells of an image.

    Args:
        id: by which the photograph is found.
        names: what it shows, finest first, such as the landmark and its group.
        link: where it comes from; taken only if it is an address of the web.
    """

    id: str
    names: tuple[str, ...] = ()
    link: str | None = None


@dataclass(frozen=True)
class Level:
    """How a level is shown: its number, what it means, and its colour, ``#rrggbb``, on which text is dark."""

    number: int
    meaning: str
    colour: str


class PhotoPage:
    """A page as it is put together; one file in the end, which needs no script.

    Args:
        query: what to tell of the query at a position.
        gallery: what to tell of the gallery item at a position.
        image: finds photographs; in place of one that is not at hand stands its id.
        size: of thumbnails, the longer side in pixels; at 128 they take up to about 6 kB each.
    """

    def __init__(
        self, query: Callable[[int], Photo], gallery: Callable[[int], Photo], image: FindImage, size: int
    ) -> None:
        self._query, self._gallery, self._image, self._size = query, gallery, image, size
        self._thumbnails: dict[str, str | None] = {}

    def query(self, position: int) -> dict[str, object]:
        """A query as templates show it."""
        return self._shown(self._query(position))

    def found(self, found: Found, row: int) -> list[dict[str, object]]:
        """The items found for one of the queries, likewise."""
        return [
            self._shown(self._gallery(item))
            | {"level": int(found.levels[row, column]), "score": float(found.scores[row, column])}
            for column, item in enumerate(found.positions[row].tolist())
            if item >= 0
        ]

    def write(self, out: Path, template: str, **values: object) -> None:
        """Write or replace the page.

        Args:
            out: the file.
            template: its name.
            values: what it shows.
        """
        environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        page = environment.get_template(template).render(
            **values,
            n_missing=sum(found is None for found in self._thumbnails.values()),
            n_photos=len(self._thumbnails),
        )
        with atomic_write(out) as draft:
            draft.write_text(page, encoding="utf-8")

    def _shown(self, photo: Photo) -> dict[str, object]:
        if photo.id not in self._thumbnails:
            self._thumbnails[photo.id] = thumbnail(self._image(photo.id), self._size)
        link = photo.link if photo.link and photo.link.startswith(("https://", "http://")) else None
        return {"id": photo.id, "names": photo.names, "link": link, "thumbnail": self._thumbnails[photo.id]}


def level_styles(n_levels: int, names: Sequence[str] | None) -> list[Level]:
    """The levels, finest first: green, orange to yellow, and red for nothing shared.

    Args:
        n_levels: L.
        names: of the L levels, finest first, such as :attr:`Hierarchy.level_names`.
    """
    levels = []
    for number in range(n_levels, 0, -1):
        share = (n_levels - 1 - number) / max(n_levels - 2, 1)  # 0 at the finest but one, 1 at the coarsest
        colour = _hex(140, 45, 55) if number == n_levels else _hex(26 + 24 * share, 88, 60 - 2 * share)
        meaning = names[n_levels - number].replace("_", " ") if names else f"of {n_levels}"
        levels.append(Level(number, meaning, colour))
    return [*levels, Level(0, "nothing shared", _hex(4, 75, 68))]


def metrics_shown(values: pd.Series[float], metric: str, n_levels: int) -> list[tuple[str, float]]:
    """Of a query: a metric and its AP, as far as the row of the result's table has them."""
    shown = dict.fromkeys([metric, "AP", f"AP_l{n_levels}"])
    return [(name, float(values[name])) for name in shown if name in values]


def positives_shown(values: pd.Series[float], n_levels: int) -> list[tuple[int, int]]:
    """Of a query: the levels, finest first, and how many gallery items there are of each."""
    numbers = range(n_levels, 0, -1)
    or_finer = [int(values[f"positives_l{number}"]) for number in numbers]
    return list(zip(numbers, np.diff(or_finer, prepend=0).tolist(), strict=True))


def names_of(hierarchy: Hierarchy, labels: npt.NDArray[np.int64]) -> tuple[str, str]:
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


def manifest_photo(manifest: Manifest, row: int, titles: Mapping[str, str] | None = None) -> Photo:
    """What a manifest tells of an image.

    Args:
        manifest: of images.
        row: of the image.
        titles: of the finest classes by their names, as far as they have any. Those that have none, and only a number
            for a name, are called by it and their level.
    """
    classes = [names[label] for names, label in zip(manifest.class_names, manifest.labels[row].tolist(), strict=True)]
    names = [
        f"{level.replace('_', ' ')} {name}" if name.isdecimal() else name
        for level, name in zip(manifest.level_names, classes, strict=True)
    ]
    if titles is not None and classes[0] in titles:
        names[0] = titles[classes[0]]
    return Photo(manifest.ids[row], tuple(names))


def landmark_titles(hierarchy: Hierarchy, names: Sequence[str]) -> dict[str, str]:
    """What landmarks are called, by their ids as text; those that the hierarchy lacks are left out."""
    ids = np.array([int(name) for name in names if name.isdecimal()], np.int64)
    ids = ids[hierarchy.contains(ids)]
    return {
        str(landmark): names_of(hierarchy, labels)[0]
        for landmark, labels in zip(ids.tolist(), hierarchy.labels_of(ids), strict=True)
    }


def _hex(hue: float, saturation: float, lightness: float) -> str:
    """A colour by its hue in degrees, saturation and lightness in percent."""
    red_green_blue = colorsys.hls_to_rgb(hue / 360, lightness / 100, saturation / 100)
    return "#" + "".join(f"{round(255 * part):02x}" for part in red_green_blue)
