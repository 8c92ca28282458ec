"""Figures of a comparison of methods.

::

    figures/class_means.png         classes of a baseline and a hierarchical method in 2-D (paper, Fig. 9a, b)
    figures/precision_recall.png    precision over recall, at each level and hierarchical
    figures/learning.png            metrics over the steps of the trainings
    figures/scores.png              cosine similarities of pairs by the level they share
    strips.html, strips.png         strips of results of the queries that the two methods rank most differently
    sweeps/NAME.png                 metrics over the values of a setting (paper, Figs. 6 to 8)

Learning curves and sweeps show all splits and seeds, the other figures the first run of each method. Baselines are
dashed, and the two methods that the settings single out are thick. A method has the same colour in all figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import Tensor

from hgld.arrays import Floats
from hgld.benchmark.evaluations import (
    SPLIT_EMBEDDINGS,
    Evaluation,
    Gldv2Evaluation,
    ManifestsEvaluation,
    PicturedEvaluation,
    embedding_file,
)
from hgld.benchmark.runs import (
    BenchmarkSettings,
    EvaluatedPoint,
    EvaluatedRun,
    Run,
    SweepSettings,
)
from hgld.benchmark.statistics import MethodResults
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.gldv2_retrieval import GLDV2_RETRIEVAL
from hgld.evaluation.metric_units import shown_value, with_unit
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask, split_task
from hgld.figures.comparisons import (
    ClassMeans,
    Line,
    LineStyle,
    Panel,
    ScoreDensities,
    draw_class_means,
    draw_panels,
    draw_scores,
    tsne_2d,
)
from hgld.figures.style import FAINT, LINES
from hgld.hierarchy import LabelMatrix, load_hierarchy
from hgld.hierarchy.label_sets import main_labels
from hgld.inspection.figure_data import (
    N_NEIGHBOURS,
    class_means,
    count_scores,
    neighbour_agreement,
    precision_recall,
)
from hgld.inspection.method_differences import find_method_differences
from hgld.inspection.photos import (
    Photo,
    PhotoSource,
    find_images,
    landmark_names_of,
    landmark_titles,
    manifest_photos,
)
from hgld.inspection.query_pages import draw_method_differences, write_method_differences_page
from hgld.tables.embeddings import read_embeddings
from hgld.training.run_folder import RunFolder
from hgld.training.training_images import evaluation_manifest, read_training_manifest

#: Recalls, one row for each interval whose mean precision is drawn.
_RECALLS = ((np.arange(250) + 0.5) / 250).reshape(25, 10)
#: Metrics of learning curves, if the trainings compute them.
_LEARNING_METRICS = ("H-AP", "mAP@100", "ASI")
#: Classes of the coarsest level are drawn with different markers up to this number.
_MAX_MARKERS = 4
#: Of more classes, a random sample is drawn: t-SNE of so many takes minutes. The test set of SOP has fewer, 11,316;
#: the index of H-GLDv2 has 55,529.
_MAX_CLASSES = 12_000

#: Colours of methods that many comparisons have, so that figures of different comparisons can be read side by side.
_FIXED_COLOURS = {
    "untrained": FAINT,
    "happier": LINES[0],
    "smooth_ap": LINES[1],
    "csl": LINES[2],
    "sup_ap": LINES[3],
    "roadmap_pairs": LINES[4],
    "roadmap": LINES[5],
}
#: Metric of which the two methods differ most on the queries of strips.
_METRIC = "H-AP"


@dataclass(frozen=True, eq=False)
class EvaluatedImages:
    """Images that a run was evaluated on, without unreadable images.

    Args:
        task: Retrieval task, with labels and ids of queries and gallery.
        class_names: Names of the classes of each level that the labels number, finest first.
        photos: Function from the file of a hierarchy, whose categories name the landmarks, to the descriptions and
            photographs of the images; None to show ids. GLDv2's protocol has a hierarchy of its own.
    """

    task: RetrievalTask
    class_names: tuple[Sequence[str], ...]
    photos: Callable[[Path | None], PhotoSource]

    def embeddings_and_labels(self) -> list[tuple[Tensor, LabelMatrix]]:
        """Return the embeddings and labels of the gallery, and of the queries where they are other images.

        The labels of unlabelled images are -1. An image with several labels has its first label.
        """
        task = self.task
        assert task.query_labels is not None
        assert task.gallery_labels is not None
        parts = [(task.gallery, main_labels(task.gallery_labels))]
        if task.queries is not task.gallery:
            parts.append((task.queries, main_labels(task.query_labels)))
        return parts


def read_evaluated_images(evaluation: Evaluation, run: Run) -> EvaluatedImages:
    """Read the images and embeddings that a run was evaluated with; embeddings in files are memory-mapped.

    By GLDv2's protocol, the task has the labelled images alone. Of several manifests, the last one is read.

    Raises:
        InputError: The run was not evaluated in this way, or a file of the evaluation is missing.
    """
    if isinstance(evaluation, Gldv2Evaluation):
        return _read_gldv2_images(evaluation, run)
    assert isinstance(evaluation, PicturedEvaluation)
    data, name = run.settings.data, SPLIT_EMBEDDINGS
    if isinstance(evaluation, ManifestsEvaluation):
        name, path = list(evaluation.manifests.items())[-1]
        data = data.model_copy(update={"manifest": path})
    folder = data.root or data.manifest.parent
    embeddings = read_embeddings(embedding_file(run.folder, name))
    assert embeddings.ids is not None
    manifest = evaluation_manifest(read_training_manifest(data, folder), data)
    manifest = manifest.take(manifest.ids.find(embeddings.ids))
    task = split_task(
        embeddings.vectors,
        manifest.labelling,
        None if data.queries is None else manifest.splits == data.queries,
        ids=embeddings.ids,
        level_names=manifest.level_names,
    )

    def photos(hierarchy: Path | None) -> PhotoSource:
        titles = {}
        if hierarchy is not None:
            titles = landmark_titles(load_hierarchy(hierarchy), manifest.class_names[0])
        return manifest_photos(manifest, folder, task.query_ids, task.gallery_ids, titles)

    return EvaluatedImages(task, manifest.class_names, photos)


def _read_gldv2_images(evaluation: Gldv2Evaluation, run: Run) -> EvaluatedImages:
    inputs = EvaluationInputs.read(evaluation.evaluation_files(run.folder))
    hierarchy = inputs.hierarchy
    assert hierarchy is not None
    task, _ = GLDV2_RETRIEVAL.build_tasks(inputs)

    def photo(ids: Any, labels: Any, position: int) -> Photo:
        return Photo(str(ids[position]), landmark_names_of(hierarchy, labels, position))

    def photos(_: Path | None) -> PhotoSource:
        return PhotoSource(
            partial(photo, task.query_ids, task.query_labels),
            partial(photo, task.gallery_ids, task.gallery_labels),
            find_images(evaluation.gallery),
            find_images(evaluation.queries),
        )

    landmarks = [str(landmark) for landmark in hierarchy.landmark_ids.tolist()]
    return EvaluatedImages(task, (landmarks, *hierarchy.nodes), photos)


#: Reads the images that the first run of a method was evaluated on.
_ReadImages = Callable[[MethodResults], EvaluatedImages]


def draw_comparison(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path
) -> list[Path]:
    """Draw the figures that the settings request, without figures of missing methods or embeddings."""
    figures = settings.pictures
    if figures is None:
        return []
    by_name = {method.name: method for method in methods}
    names = figures.curves or tuple(settings.methods)
    selected = [method for method in methods if method.name in names]
    styles = {}
    for name, colour in method_colours(settings).items():
        is_thick = name in (figures.baseline, figures.method)
        styles[name] = LineStyle(colour, settings.methods[name].baseline, thick=is_thick)

    def read(method: MethodResults) -> EvaluatedImages:
        return read_evaluated_images(settings.evaluation, method.runs[0])

    drawn = [_draw_learning(selected, styles, out / "learning.png")]
    drawn.append(_draw_scores(selected, read, out / "scores.png"))
    if figures.baseline in by_name:
        baseline = by_name[figures.baseline]
        path = out / "precision_recall.png"
        drawn.append(_draw_precision_recall(selected, baseline, read, styles, path))
        if figures.method in by_name:
            pair = [baseline, by_name[figures.method]]
            drawn.append(_draw_class_means(pair, read, out / "class_means.png"))
    return [path for path in drawn if path is not None]


def draw_sweep(
    sweep: SweepSettings,
    points: Sequence[EvaluatedPoint],
    path: Path,
    colours: Mapping[str, str],
) -> Path | None:
    """Draw the metrics of a sweep over the values of its setting; return None if there is nothing to draw."""
    colour_of = curve_colours(sweep, colours)
    positions, scale = _x_positions(sweep)
    ticks = {position: value for value, position in positions.items()}
    panels = []
    for metric in sweep.metrics:
        curves: dict[str, dict[float, dict[str, float]]] = {name: {} for name in sweep.curves}
        for point, runs in points:
            curves[point.curve][positions[str(point.value)]] = {
                run.split_and_seed: shown_value(metric, run.result.means[metric]) for run in runs
            }
        title, base = with_unit(metric), sweep.relative_to
        tables = {name: pd.DataFrame(curve).T for name, curve in curves.items()}
        if base is not None:  # at the same position, split and seed
            title = f"{metric}: difference from {base} in %"
            reference = tables[base].replace(0, np.nan)
            for name, table in tables.items():
                tables[name] = (100 * (table / reference - 1)).dropna(how="all")
        lines = []
        for name, table in tables.items():
            if table.size:
                style = LineStyle(colour_of[name], dashed=name == base)
                lines.append(_line(name, style, table))
        panels.append(Panel(title, lines, sweep.label, scale=scale, ticks=ticks))
    return _draw_filled(panels, path, title=sweep.title)


def _draw_learning(
    methods: Sequence[MethodResults], styles: Mapping[str, LineStyle], path: Path
) -> Path | None:
    """Draw metrics over steps, without untrained models."""
    lines: dict[str, list[Line]] = {metric: [] for metric in _LEARNING_METRICS}
    for method in methods:
        histories = {}
        for run in method.runs:
            folder = RunFolder(run.folder)
            histories[run.split_and_seed] = folder.history("val") or folder.history("test")
        for metric in _LEARNING_METRICS:
            curves = {}
            for name, history in histories.items():
                curve = {row["step"]: 100 * row[metric] for row in history if metric in row}
                if curve:
                    curves[name] = curve
            table = pd.DataFrame(curves)
            if len(table) > 1:
                lines[metric].append(_line(method.title, styles[method.name], table))
    panels = [Panel(f"{metric} in %", curves, "steps") for metric, curves in lines.items()]
    return _draw_filled(panels, path)


def _draw_precision_recall(
    methods: Sequence[MethodResults],
    baseline: MethodResults,
    read: _ReadImages,
    styles: Mapping[str, LineStyle],
    path: Path,
) -> Path | None:
    """Draw precision over recall of a baseline, at each level and hierarchical; below, differences of all methods.

    Precisions of several methods would coincide but for the width of a line.
    """
    precisions = {method.name: _precisions(read(method)) for method in methods}
    base = precisions.get(baseline.name) or _precisions(read(baseline))
    recalls = 100 * _RECALLS.mean(axis=1)
    upper: list[Panel] = []
    lower = []
    for title in base:
        upper_label = lower_label = ""
        if not upper:
            upper_label = f"precision of {baseline.title} in %"
            lower_label = f"points above {baseline.title}"
        line = Line(baseline.title, styles[baseline.name], recalls, 100 * base[title][None])
        upper.append(Panel(title, [line], y_label=upper_label))
        differences = []
        for method in methods:
            points = 100 * (precisions[method.name][title] - base[title])
            differences.append(Line(method.title, styles[method.name], recalls, points[None]))
        lower.append(Panel("", differences, "recall in %", lower_label))
    return _draw_filled([*upper, *lower], path, n_columns=len(upper))


def _precisions(images: EvaluatedImages) -> dict[str, Floats]:
    """Return the mean precision in each interval of recalls, by title of the panel."""
    task = images.task
    assert task.level_names is not None
    result = precision_recall(task, _RECALLS.ravel())
    curves = {}
    for level, curve in zip(task.level_names, result.precision[::-1], strict=True):
        curves[_same_level(level)] = curve
    curves["hierarchical"] = result.hierarchical
    return {title: curve.reshape(_RECALLS.shape).mean(axis=1) for title, curve in curves.items()}


def _draw_scores(methods: Sequence[MethodResults], read: _ReadImages, path: Path) -> Path | None:
    """Draw the cosine similarities of all queries with the gallery."""
    panels = []
    level_titles = []
    for method in methods:
        task = read(method).task
        assert task.level_names is not None
        level_titles = ["nothing shared"]
        level_titles += [_same_level(level) for level in task.level_names[::-1]]
        counts = count_scores(task)
        densities = counts.densities()
        panels.append(ScoreDensities(method.title, counts.separation(), counts.edges, densities))
    if not panels:
        return None
    draw_scores(path, panels, level_titles)
    return path


def _draw_class_means(
    methods: Sequence[MethodResults], read: _ReadImages, path: Path
) -> Path | None:
    """Draw the finest classes, or a sample, coloured by coarser classes; return None without coarser levels."""
    panels = []
    for method in methods:
        images = read(method)
        names, classes = images.task.level_names, images.class_names
        assert names is not None
        if len(names) < 2:
            return None
        result = class_means(images.embeddings_and_labels(), max_classes=_MAX_CLASSES)
        means, labels = result.means, result.labels
        # Colours tell the classes of the second level apart, and markers the few of the coarsest one.
        markers = [""] * len(means)
        columns = [1]
        if len(names) > 2 and len(classes[-1]) <= _MAX_MARKERS:
            markers = [classes[-1][code] for code in labels[:, -1]]
            columns.append(len(names) - 1)
        shares = []
        for column in columns:
            share = neighbour_agreement(means, labels[:, column])
            shares.append(f"{100 * share:.0f} % {_same_level(names[column])}")
        sampled = "classes"
        if len(means) < result.n_classes:
            sampled = f"of {len(means):,} classes drawn from {result.n_classes:,}"
        title = f"{method.title}\n{', '.join(shares)}\namong the {N_NEIGHBOURS} nearest {sampled}"
        categories = [classes[1][code] for code in labels[:, 1]]
        panels.append(ClassMeans(title, tsne_2d(means), categories, markers))
    draw_class_means(path, panels)
    return path


def _draw_filled(
    panels: Sequence[Panel], path: Path, *, title: str | None = None, n_columns: int | None = None
) -> Path | None:
    """Draw the panels that have lines; without such a panel, write nothing and return None."""
    filled = [panel for panel in panels if panel.lines]
    if not filled:
        return None
    draw_panels(path, filled, title=title, n_columns=n_columns)
    return path


def _line(title: str, style: LineStyle, table: pd.DataFrame) -> Line:
    """Return the line of a table with a row per position on the x axis, and a column per split and seed."""
    ordered = table.sort_index()
    return Line(title, style, ordered.index.to_numpy(np.float64), ordered.to_numpy(np.float64).T)


def _x_positions(sweep: SweepSettings) -> tuple[dict[str, float], Literal["linear", "log"]]:
    """Return the position of each value on the x axis, and its scale.

    Values that are not numbers, or have no logarithm on a logarithmic axis, are spaced equally.
    """
    numbers = [float(value) for value in sweep.values if not isinstance(value, str)]
    if len(numbers) < len(sweep.values) or (sweep.scale == "log" and min(numbers) <= 0):
        return {str(value): float(n) for n, value in enumerate(sweep.values)}, "linear"
    return dict(zip(map(str, sweep.values), numbers, strict=True)), sweep.scale


def _same_level(level: str) -> str:
    return f"same {level.replace('_', ' ')}"


def method_colours(settings: BenchmarkSettings) -> dict[str, str]:
    """Return the colour of each method of a comparison, also of methods that are not drawn.

    Methods without a fixed colour take the remaining colours: first the methods of the figures, then the methods of
    sweeps. Colours repeat if there are more methods than colours.
    """
    names: list[str] = []
    if settings.pictures:
        names += settings.pictures.curves
    for sweep in settings.sweeps.values():
        names += [curve.method for curve in sweep.curves.values()]
    names += settings.methods
    colours = {name: colour for name, colour in _FIXED_COLOURS.items() if name in names}
    free = cycle([colour for colour in LINES if colour not in colours.values()])
    for name in names:
        if name not in colours:
            colours[name] = next(free)
    return colours


def curve_colours(sweep: SweepSettings, colours_of_methods: Mapping[str, str]) -> dict[str, str]:
    """Return the colour of each curve of a sweep.

    The first curve of a method has the colour of the method, further curves have other colours.
    """
    taken = {colours_of_methods[curve.method] for curve in sweep.curves.values()}
    free = cycle([colour for colour in LINES if colour not in taken] or LINES)
    colours: dict[str, str] = {}
    for title, curve in sweep.curves.items():
        colour = colours_of_methods[curve.method]
        if colour in colours.values():
            colour = next(free)
        colours[title] = colour
    return colours


def write_strips(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path
) -> list[Path]:
    """Write ``strips.html`` and ``strips.png`` for the first split and seed that both methods have runs of.

    Ids stand in place of photographs that are not available.

    Returns:
        The files written. Nothing is written if no figures are requested, one of the two methods is missing or has
        no H-AP, or no query differs.

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
    baseline, method = by_name[figures.baseline], by_name[figures.method]
    pair = _first_pair(baseline, method)
    if pair is None:
        return []
    first, second = pair
    images = read_evaluated_images(settings.evaluation, first)
    tasks = images.task, read_evaluated_images(settings.evaluation, second).task
    results = (
        replace(_result_of_task(first.result, tasks[0]), name=baseline.title),
        replace(_result_of_task(second.result, tasks[1]), name=method.title),
    )
    differences = find_method_differences(results, tasks, metric=_METRIC, n=figures.n_queries)
    if differences is None:
        return []
    photos = images.photos(figures.hierarchy)
    page, picture = out / "strips.html", out / "strips.png"
    title = f"{baseline.title} and {method.title}, {first.split_and_seed}: largest differences"
    write_method_differences_page(differences, page, photos, title=title)
    draw_method_differences(picture, differences, photos)
    return [page, picture]


def _first_pair(
    baseline: MethodResults, method: MethodResults
) -> tuple[EvaluatedRun, EvaluatedRun] | None:
    """Return the first run of each method that have the metric, a split and a seed in common."""
    for first in baseline.runs:
        for second in method.runs:
            has_metric = _METRIC in first.result.metrics and _METRIC in second.result.metrics
            if has_metric and first.split_and_seed == second.split_and_seed:
                return first, second
    return None


def _result_of_task(result: RetrievalResult, task: RetrievalTask) -> RetrievalResult:
    """Return the result of the queries of a task alone; GLDv2's protocol has further queries without labels."""
    assert task.query_ids is not None
    queries = pd.Index(np.asarray(task.query_ids))
    if not queries.isin(result.per_query.index).all():
        return result
    return replace(result, per_query=result.per_query.loc[queries])
