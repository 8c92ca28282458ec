"""The page of the most confident mistakes of a score, with photographs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.benchmark.rejection.comparison_settings import INDEX, RejectionSettings
from hgld.benchmark.rejection.image_sets import ImageSet
from hgld.benchmark.rejection.model_embeddings import embed_sets
from hgld.benchmark.rejection.score_parts import ScorePart
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.figures.style import level_styles
from hgld.hierarchy import load_hierarchy
from hgld.inspection.photo_page import PageQuery, PageRanking, write_photo_page
from hgld.inspection.photos import FindImage, Photo, PhotoSource, images_of_manifest, landmark_titles, manifest_photo
from hgld.inspection.queries import TopK

#: Number of nearest images that are shown of each query.
_K = 5
_EXPLANATION = (
    "Each query shows its score and the share of the known queries that have a higher one; beside it are the nearest "
    "images of the index, each with the level that it shares with the query, its cosine, and what it depicts. The "
    "nearest image is the answer."
)


def confident_mistakes(queries: pd.DataFrame, n: int) -> dict[str, pd.DataFrame]:
    """Return the most confident mistakes by kind, with at most one query of each class, most confident first.

    Args:
        queries: See :class:`~hgld.benchmark.rejection.score_parts.ScorePart`.
        n: Largest number of queries of each kind.
    """
    known = queries["kind"] == "known"
    sections = {
        f"Accepted although unknown: {name}": queries[queries["set"] == name].sort_values("score", kind="stable")
        for name in dict.fromkeys(queries.loc[queries["kind"].isin(["near", "far"]), "set"])
    }
    sections["Accepted with the wrong landmark, though the index has the right one"] = queries[
        known & ~queries["right"]
    ].sort_values("score", kind="stable")
    sections["Rejected first although answered right"] = queries[known & queries["right"]].sort_values(
        "score", ascending=False, kind="stable"
    )
    return {heading: rows.drop_duplicates("class").head(n) for heading, rows in sections.items()}


def write_mistakes_page(
    settings: RejectionSettings, part: ScorePart, sets: Mapping[str, ImageSet], out: Path
) -> None:
    """Write the page of the most confident mistakes of a score on a split.

    Args:
        settings: Settings of the comparison, with ``mistakes``.
        part: Scores of the split.
        sets: Its sets of images.
        out: HTML file to write or replace.

    Raises:
        InputError: Embeddings or the hierarchy cannot be read.
    """
    assert settings.mistakes is not None
    sections = confident_mistakes(part.queries, settings.mistakes.n)
    positions = np.concatenate([rows.index.to_numpy(np.int64) for rows in sections.values()])
    top_k = _top_k(settings, part, sets, positions)
    known_scores = part.queries.loc[part.queries["kind"] == "known", "score"].to_numpy()
    row_of = {position: row for row, position in enumerate(positions.tolist())}

    def page_query(position: int, score: float) -> PageQuery:
        higher = float((known_scores > score).mean())
        note = f"score {score:.3f}, {100 * higher:.0f} % of known queries higher"
        return PageQuery(position, (), [PageRanking(top_k, row_of[position], ())], note=note)

    index = sets[INDEX]
    embedding = settings.embeddings[part.embedding].title
    score = settings.score_settings()[part.score].title or part.score
    write_photo_page(
        out,
        {
            heading: [
                page_query(int(position), float(value))
                for position, value in zip(rows.index, rows["score"], strict=True)
            ]
            for heading, rows in sections.items()
        },
        _photos(sets, settings.mistakes.hierarchy),
        title=f"Most confident mistakes: {score}",
        about=(
            f"{settings.title}, split {part.split}, embeddings: {embedding}. Of each landmark or class, the query "
            "that is most confidently wrong."
        ),
        levels=level_styles(index.labels.shape[1], index.manifest.level_names),
        explanation=_EXPLANATION,
    )


def _top_k(settings: RejectionSettings, part: ScorePart, sets: Mapping[str, ImageSet], positions: np.ndarray) -> TopK:
    """Return the nearest images of the index to some queries, with the levels that they share."""
    embedded = embed_sets(settings.embeddings[part.embedding], sets, part.split)
    others = [images for name, images in sets.items() if name != INDEX]
    offsets = np.cumsum([0, *(len(images) for images in others)])
    which = np.searchsorted(offsets, positions, side="right") - 1
    inside = positions - offsets[which]
    pairs = list(zip(which.tolist(), inside.tolist(), strict=True))
    vectors = np.stack([np.asarray(embedded[others[number].name].vectors[row]) for number, row in pairs])
    labels = np.stack([others[number].labels[row] for number, row in pairs])
    cosines, nearest = nearest_neighbours(vectors, embedded[INDEX].vectors, _K)
    levels = (sets[INDEX].labels[nearest] == labels[:, None, :]).sum(2)
    return TopK(cosines.astype(np.float32), nearest, np.where(nearest >= 0, levels, 0))


def _photos(sets: Mapping[str, ImageSet], hierarchy: Path | None) -> PhotoSource:
    others = [images for name, images in sets.items() if name != INDEX]
    index = sets[INDEX]
    titles = {} if hierarchy is None else landmark_titles(load_hierarchy(hierarchy), index.manifest.class_names[0])
    offsets = np.cumsum([0, *(len(images) for images in others)])

    def photo(images: ImageSet, position: int) -> Photo:
        names = titles if images.source == INDEX else None
        described = manifest_photo(images.manifest, int(images.rows[position]), names)
        return Photo(_key(images, described.id), described.names, described.link, images.kind != "far")

    def query(position: int) -> Photo:
        number = int(np.searchsorted(offsets, position, side="right")) - 1
        return photo(others[number], position - int(offsets[number]))

    finders = {images.source: images_of_manifest(images.manifest, images.root) for images in sets.values()}
    return PhotoSource(query, lambda position: photo(index, position), _finder(finders))


def _key(images: ImageSet, image_id: str) -> str:
    """Return an id that is unique among the sources of images."""
    return image_id if images.source == INDEX else f"{images.source}:{image_id}"


def _finder(finders: Mapping[str, Callable[[str], object]]) -> FindImage:
    def find(key: str):  # type: ignore[no-untyped-def]
        source, colon, image_id = key.partition(":")
        return finders[source](image_id) if colon and source in finders else finders[INDEX](key)

    return find
