"""A page to look at what an evaluation ranks worst: queries, what stands first for them, and how near that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate_files import Evaluation
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.retrieval_task import Ids
from hgld.gldv2.tar_images import ImageReader
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.inspection.photo_page import Photo, PhotoPage, level_styles, metrics_shown, names_of, positives_shown
from hgld.inspection.thumbnails import FindImage, images_in_folder, images_in_shards
from hgld.inspection.worst_queries import Worst, find_worst_queries
from hgld.io.columns import column_names, read_columns


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

    The page is one file: 3.5 MB for 50 queries with 10 items each.

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
    page = PhotoPage(query, gallery, image, size)
    rows = []
    for row, position in enumerate(worst.queries.tolist()):
        values = worst.per_query.iloc[row]
        rows.append(
            {
                "query": page.query(position),
                "metrics": metrics_shown(values, worst.metric, worst.n_levels),
                "positives": positives_shown(values, worst.n_levels),
                "found": page.found(worst.found, row),
            }
        )
    levels = level_styles(worst.n_levels, level_names)
    page.write(out, "worst.html", title=title, metric=worst.metric, rows=rows, levels=levels)


def write_worst_queries_page(
    evaluation: Evaluation, out: Path, n: int, *, images: Path | None, sources: Path | None, config: RankingConfig
) -> None:
    """Write a page of the n queries with the lowest H-AP and what stands first for them.

    Args:
        evaluation: that found them.
        out: the HTML file to write.
        n: how many.
        images: a folder of photographs, or the table from ``hgld index-images`` in the folder of the tar files;
            without it the page shows ids.
        sources: a table with the columns id and url, such as GLDv2's ``train.csv``, to link photographs to; a table
            without them links none.
        config: how it was ranked.

    Raises:
        ConfigurationError: the evaluation does not rank by labels, or H-AP was not taken.
        InputError: ``images`` is neither of the two.
    """
    task, hierarchy = evaluation.task, evaluation.hierarchy
    if task is None:
        raise ConfigurationError(
            "this evaluation does not rank by labels of several levels; there is no H-AP to show"
        )
    worst = find_worst_queries(evaluation.results[0], task, n=n, config=config)
    found = worst.found.positions[worst.found.positions >= 0]
    links = _links(sources, {*_ids(task.query_ids, worst.queries), *_ids(task.gallery_ids, found)})

    def photos(ids: Ids | None, labels: LabelMatrix | None) -> Callable[[int], Photo]:
        def photo(position: int) -> Photo:
            (name,) = _ids(ids, np.array([position]))
            names = names_of(hierarchy, labels[position]) if hierarchy is not None and labels is not None else ()
            return Photo(name, names, links.get(name))

        return photo

    worst_page(
        worst,
        out,
        query=photos(task.query_ids, task.query_labels),
        gallery=photos(task.gallery_ids, task.gallery_labels),
        image=_find_images(images),
        level_names=task.level_names,
    )


def _ids(ids: Ids | None, positions: npt.NDArray[np.int64]) -> list[str]:
    return [f"row {position}" for position in positions] if ids is None else ids[positions].tolist()


def _links(path: Path | None, ids: set[str]) -> dict[str, str]:
    """Where photographs come from, by id, as far as a table says it."""
    if path is None or path.suffix not in (".csv", ".parquet") or not {"id", "url"} <= set(column_names(path)):
        return {}
    table = read_columns(path, ("id", "url"), {"id": pa.string(), "url": pa.string()})
    table = table.filter(pc.is_in(table["id"], pa.array(sorted(ids), pa.string())))
    return dict(zip(table["id"].to_pylist(), table["url"].to_pylist(), strict=True))


def _find_images(path: Path | None) -> FindImage:
    if path is None:
        return lambda _: None
    return images_in_folder(path) if path.is_dir() else images_in_shards(ImageReader(path, path.parent))
