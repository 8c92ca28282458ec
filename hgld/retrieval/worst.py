"""The queries that an evaluation ranks worst, and what was found for them, as a page to look at."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image, ImageOps

from hgld.errors import ConfigurationError, InputError
from hgld.gldv2.images import ImageReader
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.labels import Labels
from hgld.pairs import Pairs
from hgld.retrieval.evaluation import Embeddings
from hgld.retrieval.judgements import Judgements
from hgld.retrieval.ranking import RankingConfig
from hgld.retrieval.results import RetrievalResult
from hgld.retrieval.search import nearest
from hgld.tables import replacing
from hgld.wikimedia.titles import PREFIX, title_of_url

#: A photograph by its id; None where it is not at hand.
FindImage = Callable[[str], Image.Image | None]

_TEMPLATES = Path(__file__).parents[1] / "templates" / "retrieval"
_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, eq=False)
class Worst:
    """The n queries with the lowest values of a metric, lowest first, and their k nearest gallery items.

    Args:
        metric: its name.
        n_levels: L, the level of items that share everything with the query.
        per_query: their rows of the result's table, n of them.
        queries: int64, shape (n,); their positions.
        scores: float32, shape (n, k), best first; NaN where the gallery has no more.
        positions: int64, shape (n, k), in the gallery; -1 where it has no more.
        levels: int64, shape (n, k).
    """

    metric: str
    n_levels: int
    per_query: pd.DataFrame
    queries: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]


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


def find_worst(
    result: RetrievalResult,
    query_embeddings: Embeddings,
    gallery_embeddings: Embeddings,
    judgements: Judgements,
    *,
    metric: str = "H-AP",
    n: int = 50,
    k: int = 10,
    left_out: Pairs | None = None,
    unused: npt.NDArray[np.bool_] | None = None,
    config: RankingConfig | None = None,
) -> Worst:
    """Find the queries of an evaluation with the lowest values of a metric; queries that do not have it do not count.

    Args:
        result: of the evaluation, of all queries.
        query_embeddings: as they were evaluated, and so on: see :func:`~hgld.retrieval.evaluation.evaluate`.
        gallery_embeddings: likewise.
        judgements: likewise.
        metric: one of the result's.
        n: how many queries.
        k: how many items for each.
        left_out: likewise.
        unused: likewise.
        config: likewise.

    Raises:
        ConfigurationError: the result does not have the metric, or n or k is less than 1.
    """
    if metric not in result.metrics:
        raise ConfigurationError(f"the result has no {metric}; take one of {', '.join(result.metrics)}")
    if n < 1:
        raise ConfigurationError(f"the {n} worst queries are asked for; expected 1 or more")
    values = result.per_query[metric].to_numpy()
    queries = np.argsort(values, kind="stable")[: min(n, np.count_nonzero(~np.isnan(values)))]
    if left_out is not None:
        left_out = Pairs.of(left_out.columns[slice(*left_out.offsets[[query, query + 1]])] for query in queries)
    scores, positions = nearest(
        query_embeddings[queries], gallery_embeddings, k, left_out=left_out, unused=unused, config=config
    )
    levels = np.zeros(positions.shape, np.int64)
    for row, column in np.argwhere(positions >= 0):
        query, item = int(queries[row]), int(positions[row, column])
        levels[row, column] = judgements.levels(slice(query, query + 1), slice(item, item + 1)).item()
    return Worst(metric, judgements.n_levels, result.per_query.iloc[queries], queries, scores, positions, levels)


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
            thumbnails[photo.id] = _thumbnail(image(photo.id), size)
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
        n_missing=sum(thumbnail is None for thumbnail in thumbnails.values()),
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


def images_in_folder(folder: Path) -> FindImage:
    """Photographs in a folder as GLDv2's tar files unpack, ``a/b/c/abc….jpg``, or all in one, ``abc….jpg``."""

    def find(image_id: str) -> Image.Image | None:
        if not image_id or Path(image_id).name != image_id:
            return None  # not the name of a file
        for place in (folder.joinpath(*image_id[:3]), folder):
            for suffix in _SUFFIXES:
                path = place / f"{image_id}{suffix}"
                if path.is_file():
                    return _opened(path.read_bytes())
        return None

    return find


def images_in_shards(reader: ImageReader) -> FindImage:
    """Photographs in indexed tar files; those that are not in the index are not at hand.

    What it returns raises an InputError where a tar file is not the one that was indexed.
    """

    def find(image_id: str) -> Image.Image | None:
        try:
            position = int(reader.positions([image_id])[0])
        except InputError:
            return None
        return _opened(reader.read_at(position))

    return find


def _opened(data: bytes) -> Image.Image | None:
    try:
        return Image.open(io.BytesIO(data))
    except (OSError, Image.DecompressionBombError):
        return None


def _thumbnail(image: Image.Image | None, size: int) -> str | None:
    """A small JPEG as an address with the data in it; None where there is no image, or one that is damaged."""
    if image is None:
        return None
    try:
        image.draft("RGB", (2 * size, 2 * size))
        image = ImageOps.exif_transpose(image).convert("RGB")
        image.thumbnail((size, size))
    except OSError:
        return None
    data = io.BytesIO()
    image.save(data, "JPEG", quality=70, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"


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
