"""Retrieval strips of a comparison: the queries that its two methods of pictures rank most differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hgld.benchmark.benchmark_settings import BenchmarkSettings, SplitEvaluation
from hgld.benchmark.method_results import MethodResults
from hgld.benchmark.run_evaluation import TestImages, test_images
from hgld.hierarchy import load_hierarchy
from hgld.inspection.method_differences import find_method_differences
from hgld.inspection.method_differences_picture import draw_method_differences
from hgld.inspection.photos import Photo, PhotoSource, landmark_titles, manifest_photo
from hgld.inspection.query_pages import write_method_differences_page
from hgld.inspection.thumbnails import images_of_manifest

_METRIC = "H-AP"


def draw_strips(settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path) -> list[Path]:
    """Write ``strips.html`` and ``strips.png`` of two runs with the same seed, the first that both methods have.

    Photographs are read from where the trainings have them; in place of those that are not there stand their ids.

    Args:
        settings: of the comparison.
        methods: what was found of them.
        out: the folder of the comparison.

    Returns:
        What was written. That is nothing where no pictures are wanted, a method of theirs is not there or has no
        H-AP, no query differs, or the images evaluated are not those of the trainings.

    Raises:
        InputError: embeddings of a run or the hierarchy are missing, or a tar file is not the one that was indexed.
        ConfigurationError: the two runs were not evaluated with the same images.
    """
    wanted = settings.pictures
    if wanted is None or not wanted.n_queries or not isinstance(settings.evaluation, SplitEvaluation):
        return []
    named = {method.name: method for method in methods}
    if wanted.baseline not in named or wanted.method not in named:
        return []
    pair = named[wanted.baseline], named[wanted.method]
    runs, others = ({one.run.seed: one for one in method.runs} for method in pair)
    seed = next((seed for seed in runs if seed in others), None)
    if seed is None or not all(_METRIC in one.result.metrics for one in (runs[seed], others[seed])):
        return []
    baseline, method = (
        replace(found[seed].result, name=one.title) for found, one in zip((runs, others), pair, strict=True)
    )
    run = runs[seed].run
    images = test_images(run)
    tasks = images.task(), test_images(others[seed].run).task()
    differences = find_method_differences((baseline, method), tasks, metric=_METRIC, n=wanted.n_queries)
    if differences is None:
        return []
    titles = {}
    if wanted.hierarchy is not None:
        titles = landmark_titles(load_hierarchy(wanted.hierarchy), images.manifest.class_names[0])
    queries, gallery = (_photos(images, rows, titles) for rows in images.rows())
    data = run.settings.data
    find = images_of_manifest(images.manifest, data.root or data.manifest.parent)
    photos = PhotoSource(queries, gallery, find)
    page, picture = out / "strips.html", out / "strips.png"
    title = f"{baseline.name} and {method.name}, seed {seed}: where they differ most"
    write_method_differences_page(differences, page, photos, title=title)
    draw_method_differences(picture, differences, photos)
    return [page, picture]


def _photos(images: TestImages, rows: npt.NDArray[np.int64], titles: Mapping[str, str]) -> Callable[[int], Photo]:
    return lambda position: manifest_photo(images.manifest, int(rows[position]), titles)
