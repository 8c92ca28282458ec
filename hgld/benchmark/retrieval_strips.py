"""Retrieval strips of a comparison: the queries that two of its methods rank most differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hgld.benchmark.benchmark_settings import BenchmarkSettings, SplitEvaluation
from hgld.benchmark.evaluated_images import EvaluatedImages, read_evaluated_images
from hgld.benchmark.method_results import MethodResults
from hgld.benchmark.runs import describe_draw
from hgld.hierarchy import load_hierarchy
from hgld.inspection.method_differences import find_method_differences
from hgld.inspection.method_differences_picture import draw_method_differences
from hgld.inspection.photos import Photo, PhotoSource, landmark_titles, manifest_photo
from hgld.inspection.query_pages import write_method_differences_page
from hgld.inspection.thumbnails import images_of_manifest

_METRIC = "H-AP"


def write_strips(settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path) -> list[Path]:
    """Write ``strips.html`` and ``strips.png`` for the first split and seed that both methods have runs of.

    Ids stand in place of photographs that are not available.

    Args:
        settings: Settings of the comparison.
        methods: Results of the methods.
        out: Output folder.

    Returns:
        The files written. None are written if no figures are requested, one of the two methods is missing or has no
        H-AP, no query differs, or the evaluation does not use the images of the trainings.

    Raises:
        InputError: Embeddings of a run or the hierarchy are missing, or a tar file has changed since it was indexed.
        ConfigurationError: The two runs were not evaluated on the same images.
    """
    figures = settings.pictures
    if figures is None or not figures.n_queries or not isinstance(settings.evaluation, SplitEvaluation):
        return []
    by_name = {method.name: method for method in methods}
    if figures.baseline not in by_name or figures.method not in by_name:
        return []
    pair = by_name[figures.baseline], by_name[figures.method]
    runs, other_runs = ({run.run.draw: run for run in method.runs} for method in pair)
    draw = next((draw for draw in runs if draw in other_runs), None)
    if draw is None or not all(_METRIC in run.result.metrics for run in (runs[draw], other_runs[draw])):
        return []
    baseline, method = (
        replace(by_draw[draw].result, name=results.title)
        for by_draw, results in zip((runs, other_runs), pair, strict=True)
    )
    run = runs[draw].run
    images = read_evaluated_images(run)
    tasks = images.task(), read_evaluated_images(other_runs[draw].run).task()
    differences = find_method_differences((baseline, method), tasks, metric=_METRIC, n=figures.n_queries)
    if differences is None:
        return []
    titles = {}
    if figures.hierarchy is not None:
        titles = landmark_titles(load_hierarchy(figures.hierarchy), images.manifest.class_names[0])
    query, gallery = (_photos(images, rows, titles) for rows in images.rows())
    data = run.settings.data
    photos = PhotoSource(query, gallery, images_of_manifest(images.manifest, data.root or data.manifest.parent))
    page, picture = out / "strips.html", out / "strips.png"
    title = f"{baseline.name} and {method.name}, {describe_draw(draw)}: largest differences"
    write_method_differences_page(differences, page, photos, title=title)
    draw_method_differences(picture, differences, photos)
    return [page, picture]


def _photos(
    images: EvaluatedImages, rows: npt.NDArray[np.int64], titles: Mapping[str, str]
) -> Callable[[int], Photo]:
    return lambda position: manifest_photo(images.manifest, int(rows[position]), titles)
