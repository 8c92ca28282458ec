"""The page of the most confident mistakes of a score, with photographs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from hgld.benchmark.rejection.image_sets import ImageSet, embed_sets
from hgld.benchmark.rejection.score_parts import ScorePart
from hgld.benchmark.rejection.settings import INDEX, RejectionSettings
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.hierarchy import load_hierarchy
from hgld.inspection.level_styles import level_styles
from hgld.inspection.photo_page import PageQuery, PageRanking, write_photo_page
from hgld.inspection.photos import Photo, PhotoSource, landmark_titles, manifest_photo
from hgld.inspection.thumbnails import images_of_manifest
from hgld.inspection.top_k import TopK

#: Number of nearest images that are shown of each query.
_K = 5
_EXPLANATION = (
    "Each query shows its score and the share of the known queries that have a higher one; beside it are the nearest "
    "images of the index, each with the level that it shares with the query, its cosine, and what it depicts. The "
    "nearest image is the answer."
)


def confident_mistakes(queries: pd.DataFrame, n: int) -> dict[str, pd.DataFrame]:
    """Return the most confident mistakes by kind, with at most one query of each class, most confident first."""
    known, right = queries["kind"] == "known", queries["right"].astype(bool)
    unknown = dict.fromkeys(queries.loc[queries["kind"].isin(["near", "far"]), "set"])
    sections = {f"Accepted although unknown: {name}": queries[queries["set"] == name] for name in unknown}
    sections["Accepted with the wrong landmark, though the index has the right one"] = queries[known & ~right]
    ordered = {heading: rows.sort_values("score", kind="stable") for heading, rows in sections.items()}
    rejected = queries[known & right].sort_values("score", ascending=False, kind="stable")
    ordered["Rejected first although answered right"] = rejected
    return {heading: rows.drop_duplicates("class").head(n) for heading, rows in ordered.items()}


def write_mistakes_page(
    settings: RejectionSettings, part: ScorePart, sets: Mapping[str, ImageSet], out: Path
) -> None:
    """Write the page of the most confident mistakes of a score on a split.

    Raises:
        InputError: Embeddings or the hierarchy cannot be read.
    """
    assert settings.mistakes is not None
    sections = confident_mistakes(part.queries, settings.mistakes.n)
    positions = np.concatenate([rows.index.to_numpy(np.int64) for rows in sections.values()])
    photos = _Queries(sets, settings.mistakes.hierarchy)
    top_k = photos.top_k(positions, settings, part)
    row_of = {position: row for row, position in enumerate(positions.tolist())}
    known_scores = part.queries.loc[part.queries["kind"] == "known", "score"].to_numpy()

    def page_query(position: int, score: float) -> PageQuery:
        higher = float((known_scores > score).mean())
        note = f"score {score:.3f}, {100 * higher:.0f} % of known queries higher"
        return PageQuery(position, (), [PageRanking(top_k, row_of[position], ())], note=note)

    index, embedding = sets[INDEX], settings.embeddings[part.embedding].title
    write_photo_page(
        out,
        {
            heading: [page_query(*query) for query in zip(rows.index.tolist(), rows["score"].tolist(), strict=True)]
            for heading, rows in sections.items()
        },
        PhotoSource(photos.query, photos.gallery, photos.find_image),
        title=f"Most confident mistakes: {settings.score_title(part.score)}",
        about=(
            f"{settings.title}, split {part.split}, embeddings: {embedding}. Of each landmark or class, the query "
            "that is most confidently wrong."
        ),
        levels=level_styles(index.labels.shape[1], index.manifest.level_names),
        explanation=_EXPLANATION,
    )


class _Queries:
    """Queries by their position in the table of scores: set by set, without the index.

    Ids of photographs of other sources than the index begin with the name of the source, so that ids are unique.
    """

    def __init__(self, sets: Mapping[str, ImageSet], hierarchy: Path | None) -> None:
        self._sets, self._index = sets, sets[INDEX]
        self._places = [(images, row) for name, images in sets.items() if name != INDEX for row in range(len(images))]
        names = self._index.manifest.class_names[0]
        self._titles = {} if hierarchy is None else landmark_titles(load_hierarchy(hierarchy), names)
        self._finders = {images.source: images_of_manifest(images.manifest, images.root) for images in sets.values()}

    def query(self, position: int) -> Photo:
        return self._photo(*self._places[position])

    def gallery(self, position: int) -> Photo:
        return self._photo(self._index, position)

    def find_image(self, key: str) -> Image.Image | None:
        source, colon, image_id = key.partition(":")
        return self._finders[source](image_id) if colon and source in self._finders else self._finders[INDEX](key)

    def top_k(self, positions: np.ndarray, settings: RejectionSettings, part: ScorePart) -> TopK:
        """Return the nearest images of the index to some queries, with the levels that they share."""
        embedded = embed_sets(settings.embeddings[part.embedding], self._sets, part.split)
        places = [self._places[position] for position in positions]
        vectors = np.stack([np.asarray(embedded[images.name].vectors[row]) for images, row in places])
        labels = np.stack([images.labels[row] for images, row in places])
        cosines, nearest = nearest_neighbours(vectors, embedded[INDEX].vectors, _K)
        levels = (self._index.labels[nearest] == labels[:, None, :]).sum(2)
        return TopK(cosines.astype(np.float32), nearest, np.where(nearest >= 0, levels, 0))

    def _photo(self, images: ImageSet, position: int) -> Photo:
        titles = self._titles if images.source == INDEX else None
        photo = manifest_photo(images.manifest, int(images.rows[position]), titles)
        key = photo.id if images.source == INDEX else f"{images.source}:{photo.id}"
        return Photo(key, photo.names, photo.link, images.kind != "far")
