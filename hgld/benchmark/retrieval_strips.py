"""Retrieval strips of a comparison: the queries that two of its methods rank most differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.evaluated_images import evaluated_photos, read_evaluated_images
from hgld.benchmark.method_results import MethodResults
from hgld.benchmark.runs import describe_draw
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.inspection.queries import find_method_differences
from hgld.inspection.query_pages import draw_method_differences, write_method_differences_page

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
        H-AP, or no query differs.

    Raises:
        InputError: Embeddings of a run or the hierarchy are missing, or a tar file has changed since it was indexed.
        ConfigurationError: The two runs were not evaluated on the same images.
    """
    figures = settings.pictures
    if figures is None or not figures.n_queries:
        return []
    by_name = {method.name: method for method in methods}
    if figures.baseline not in by_name or figures.method not in by_name:
        return []
    pair = by_name[figures.baseline], by_name[figures.method]
    runs, other_runs = ({run.run.draw: run for run in method.runs} for method in pair)
    draw = next((draw for draw in runs if draw in other_runs), None)
    if draw is None or not all(_METRIC in run.result.metrics for run in (runs[draw], other_runs[draw])):
        return []
    tasks = tuple(
        read_evaluated_images(settings.evaluation, by_draw[draw].run).task for by_draw in (runs, other_runs)
    )
    baseline, method = (
        replace(_result_of_task(by_draw[draw].result, task), name=results.title)
        for by_draw, task, results in zip((runs, other_runs), tasks, pair, strict=True)
    )
    differences = find_method_differences(
        (baseline, method), (tasks[0], tasks[1]), metric=_METRIC, n=figures.n_queries
    )
    if differences is None:
        return []
    photos = evaluated_photos(settings.evaluation, runs[draw].run, tasks[0], figures.hierarchy)
    page, picture = out / "strips.html", out / "strips.png"
    title = f"{baseline.name} and {method.name}, {describe_draw(draw)}: largest differences"
    write_method_differences_page(differences, page, photos, title=title)
    draw_method_differences(picture, differences, photos)
    return [page, picture]


def _result_of_task(result: RetrievalResult, task: RetrievalTask) -> RetrievalResult:
    """Return the result of the queries of a task alone: by GLDv2's protocol there are others, without labels."""
    assert task.query_ids is not None
    queries = pd.Index(task.query_ids)
    if not queries.isin(result.per_query.index).all():
        return result
    return replace(result, per_query=result.per_query.loc[queries])
