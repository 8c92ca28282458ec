"""The page of the worst queries of an evaluation of files (``hgld evaluate --worst``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate_from_files import Evaluation
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.retrieval_task import Ids
from hgld.hierarchy.label_sets import Labelling
from hgld.inspection.photos import Photo, PhotoSource, landmark_names_of
from hgld.inspection.query_pages import write_worst_queries_page
from hgld.inspection.thumbnails import find_images
from hgld.inspection.worst_queries import find_worst_queries
from hgld.io.columns import column_names, read_columns


def write_evaluation_page(
    evaluation: Evaluation, out: Path, n: int, *, images: Path | None, sources: Path | None, config: RankingConfig
) -> None:
    """Write a page of the n queries with the lowest H-AP and their top-k items.

    Args:
        evaluation: The evaluation.
        out: HTML file to write or replace.
        n: Number of queries.
        images: Folder of photographs or of tar files, such a tar file, or a manifest or the table from ``hgld
            index-images`` in the folder of the images; without it the page shows ids.
        sources: Table with the columns id and url, such as GLDv2's ``train.csv``, whose URLs the photographs link
            to; there are no links if it lacks these columns.
        config: Ranking configuration of the evaluation.

    Raises:
        ConfigurationError: The evaluation does not rank by labels, or lacks H-AP.
        InputError: ``images`` is none of these.
    """
    task, hierarchy = evaluation.tasks[0], evaluation.hierarchy
    if task.query_labels is None:
        raise ConfigurationError("this evaluation does not rank by labels of several levels, so it has no H-AP")
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
    return [f"row {position}" for position in positions] if ids is None else [str(name) for name in ids[positions]]


def _links(path: Path | None, ids: set[str]) -> dict[str, str]:
    """Return the URLs of images by id, where a table has them."""
    if path is None or path.suffix not in (".csv", ".parquet") or not {"id", "url"} <= set(column_names(path)):
        return {}
    table = read_columns(path, ("id", "url"), {"id": pa.string(), "url": pa.string()})
    table = table.filter(pc.is_in(table["id"], pa.array(sorted(ids), pa.string())))
    return dict(zip(table["id"].to_pylist(), table["url"].to_pylist(), strict=True))
