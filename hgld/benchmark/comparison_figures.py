"""Figures of a comparison of methods.

::

    figures/class_means.png         classes of a baseline and a hierarchical method in 2-D (paper, Fig. 9a, b)
    figures/precision_recall.png    precision over recall, at each level and hierarchical
    figures/learning.png            metrics over the steps of the trainings
    figures/scores.png              cosine similarities of pairs by the level they share
    sweeps/NAME.png                 metrics over the values of a setting (paper, Figs. 6 to 8)

Learning curves and sweeps show all splits and seeds, the other figures the first run of each method. Baselines are
dashed, and the two methods that the settings single out are thick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hgld.benchmark.benchmark_settings import BenchmarkSettings, SweepSettings
from hgld.benchmark.evaluated_images import EvaluatedImages, read_evaluated_images
from hgld.benchmark.method_colours import curve_colours, method_colours
from hgld.benchmark.method_results import MethodResults
from hgld.benchmark.run_evaluation import EvaluatedRun
from hgld.benchmark.runs import Draw, SweepPoint
from hgld.evaluation.metric_units import shown_value, with_unit
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
from hgld.inspection.figure_data import N_NEIGHBOURS, class_means, count_scores, neighbour_agreement, precision_recall
from hgld.training.run_folder import RunFolder

#: Recalls, one row for each interval whose mean precision is drawn.
_RECALLS = ((np.arange(250) + 0.5) / 250).reshape(25, 10)
#: Metrics of learning curves, if the trainings compute them.
_LEARNING_METRICS = ("H-AP", "mAP@100", "ASI")
#: Classes of the coarsest level are drawn with different markers up to this number.
_MAX_MARKERS = 4
#: Of more classes, a random sample is drawn: t-SNE of so many takes minutes. The test set of SOP has fewer, 11,316;
#: the index of H-GLDv2 has 55,529.
_MAX_CLASSES = 12_000

#: Metric in percent, or in levels, by position on the x axis, then by split and seed.
_Curve = dict[float, dict[Draw, float]]
#: Reads the images that the first run of a method was evaluated on.
_ReadImages = Callable[[MethodResults], EvaluatedImages]


def draw_comparison(settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path) -> list[Path]:
    """Draw the figures that the settings request.

    Args:
        settings: Settings of the comparison.
        methods: Results in the order of the table.
        out: Folder of the figures.

    Returns:
        The figures drawn, without those for which methods or embeddings are missing.

    Raises:
        InputError: A file of a run cannot be read.
    """
    figures = settings.pictures
    if figures is None:
        return []
    by_name = {method.name: method for method in methods}
    names = figures.curves or tuple(settings.methods)
    selected = [method for method in methods if method.name in names]
    styles = {
        name: LineStyle(colour, settings.methods[name].baseline, thick=name in (figures.baseline, figures.method))
        for name, colour in method_colours(settings).items()
    }
    drawn = [_draw_learning(selected, styles, out / "learning.png")]
    read = partial(_read_images, settings)
    drawn.append(_draw_scores(selected, read, out / "scores.png"))
    if figures.baseline in by_name:
        baseline = by_name[figures.baseline]
        drawn.append(_draw_precision_recall(selected, baseline, read, styles, out / "precision_recall.png"))
        if figures.method in by_name:
            drawn.append(_draw_class_means([baseline, by_name[figures.method]], read, out / "class_means.png"))
    return [path for path in drawn if path is not None]


def draw_sweep(
    sweep: SweepSettings,
    points: Sequence[tuple[SweepPoint, tuple[EvaluatedRun, ...]]],
    path: Path,
    colours: Mapping[str, str],
) -> Path | None:
    """Draw the metrics of a sweep over the values of its setting.

    Args:
        sweep: Settings of the sweep.
        points: Points of its curves, with their evaluated runs.
        path: Figure to write.
        colours: Colours by name of the method, see :func:`~hgld.benchmark.method_colours.method_colours`.

    Returns:
        The figure, or None if there is nothing to draw.
    """
    colour_of = curve_colours(sweep, colours)
    positions, scale = _x_positions(sweep)
    ticks = {position: value for value, position in positions.items()}
    panels = []
    for metric in sweep.metrics:
        curves: dict[str, _Curve] = {name: {} for name in sweep.curves}
        for point, runs in points:
            by_draw = {run.run.draw: shown_value(metric, run.result.means[metric]) for run in runs}
            curves[point.curve][positions[str(point.value)]] = by_draw
        title = with_unit(metric)
        if sweep.relative_to is not None:
            curves = _relative(curves, sweep.relative_to)
            title = f"{metric}: difference from {sweep.relative_to} in %"
        lines = [
            _line(name, LineStyle(colour_of[name], dashed=name == sweep.relative_to), curve)
            for name, curve in curves.items()
            if any(curve.values())
        ]
        panels.append(Panel(title, lines, sweep.label, scale=scale, ticks=ticks))
    return _draw(panels, path, title=sweep.title)


def _draw_learning(methods: Sequence[MethodResults], styles: Mapping[str, LineStyle], path: Path) -> Path | None:
    """Draw metrics over steps, without untrained models."""
    lines: dict[str, list[Line]] = {metric: [] for metric in _LEARNING_METRICS}
    for method in methods:
        histories = {run.run.draw: _evaluations(run.run.folder) for run in method.runs}
        for metric in _LEARNING_METRICS:
            curve: _Curve = {}
            for draw, history in histories.items():
                for row in history:
                    if metric in row:
                        curve.setdefault(row["step"], {})[draw] = 100 * row[metric]
            if len(curve) > 1:
                lines[metric].append(_line(method.title, styles[method.name], curve))
    return _draw([Panel(f"{metric} in %", curves, "steps") for metric, curves in lines.items()], path)


def _evaluations(run: Path) -> list[dict[str, Any]]:
    """Return all evaluations of a training: on the validation images, or on the test images without any."""
    return RunFolder(run).history("val") or RunFolder(run).history("test")


def _read_images(settings: BenchmarkSettings, method: MethodResults) -> EvaluatedImages:
    return read_evaluated_images(settings.evaluation, method.runs[0].run)


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
    lower: list[Panel] = []
    for title in base:
        alone = [Line(baseline.title, styles[baseline.name], recalls, 100 * base[title][None])]
        upper.append(Panel(title, alone, y_label="" if upper else f"precision of {baseline.title} in %"))
        lines = [
            Line(
                method.title, styles[method.name], recalls, 100 * (precisions[method.name][title] - base[title])[None]
            )
            for method in methods
        ]
        lower.append(Panel("", lines, "recall in %", "" if lower else f"points above {baseline.title}"))
    return _draw([*upper, *lower], path, n_columns=len(upper))


def _precisions(images: EvaluatedImages) -> dict[str, NDArray[np.float64]]:
    """Return the mean precision in each interval of recalls, by title of the panel."""
    task = images.task
    assert task.level_names is not None
    result = precision_recall(
        task.queries,
        task.gallery,
        task.judgements,
        recall=_RECALLS.ravel(),
        excluded=task.excluded,
        gallery_mask=task.gallery_mask,
    )
    curves = [*result.precision[::-1], result.hierarchical]
    titles = [*map(_same, task.level_names), "hierarchical"]
    return {title: curve.reshape(_RECALLS.shape).mean(axis=1) for title, curve in zip(titles, curves, strict=True)}


def _draw_scores(methods: Sequence[MethodResults], read: _ReadImages, path: Path) -> Path | None:
    """Draw the cosine similarities of all queries with the gallery."""
    panels = []
    level_titles: list[str] = []
    for method in methods:
        task = read(method).task
        assert task.level_names is not None
        level_titles = ["nothing shared", *map(_same, task.level_names[::-1])]
        counts = count_scores(
            task.queries, task.gallery, task.judgements, excluded=task.excluded, gallery_mask=task.gallery_mask
        )
        panels.append(ScoreDensities(method.title, counts.separation(), counts.edges, counts.densities()))
    if not panels:
        return None
    draw_scores(path, panels, level_titles)
    return path


def _draw_class_means(methods: Sequence[MethodResults], read: _ReadImages, path: Path) -> Path | None:
    """Draw the finest classes, or a sample of them, by the classes above them, if there are coarser levels."""
    panels = []
    for method in methods:
        images = read(method)
        names, classes = images.task.level_names, images.class_names
        assert names is not None
        if len(names) < 2:
            return None
        result = class_means(images.embeddings_and_labels(), max_classes=_MAX_CLASSES)
        means, labels = result.means, result.labels
        columns = [1, len(names) - 1] if len(names) > 2 and len(classes[-1]) <= _MAX_MARKERS else [1]
        shares = (
            f"{100 * neighbour_agreement(means, labels[:, column]):.0f} % {_same(names[column])}"
            for column in columns
        )
        sampled = "classes"
        if len(means) < result.n_classes:
            sampled = f"of {len(means):,} classes drawn from {result.n_classes:,}"
        title = f"{method.title}\n{', '.join(shares)}\namong the {N_NEIGHBOURS} nearest {sampled}"
        categories, roots = ([classes[column][code] for code in labels[:, column]] for column in (1, columns[-1]))
        panels.append(ClassMeans(title, tsne_2d(means), categories, roots if len(columns) > 1 else [""] * len(means)))
    draw_class_means(path, panels)
    return path


def _draw(
    panels: Sequence[Panel], path: Path, *, title: str | None = None, n_columns: int | None = None
) -> Path | None:
    """Draw the panels that have lines; return None without writing if there are none."""
    filled = [panel for panel in panels if panel.lines]
    if not filled:
        return None
    draw_panels(path, filled, title=title, n_columns=n_columns)
    return path


def _line(title: str, style: LineStyle, curve: _Curve) -> Line:
    positions = sorted(curve)
    draws = dict.fromkeys(draw for by_draw in curve.values() for draw in by_draw)
    y = np.array([[curve[position].get(draw, np.nan) for position in positions] for draw in draws])
    return Line(title, style, np.array(positions, np.float64), y)


def _relative(curves: Mapping[str, _Curve], base: str) -> dict[str, _Curve]:
    """Return differences from the base curve at the same position, split and seed, in percent of its value."""
    return {
        name: {
            position: {
                draw: 100 * (value / base_value - 1)
                for draw, value in by_draw.items()
                if (base_value := base_by_draw.get(draw))
            }
            for position, by_draw in curve.items()
            if (base_by_draw := curves[base].get(position))
        }
        for name, curve in curves.items()
    }


def _x_positions(sweep: SweepSettings) -> tuple[dict[str, float], Literal["linear", "log"]]:
    """Return the position of each value on the x axis, and its scale.

    Values that are not numbers, or have no logarithm on a logarithmic axis, are spaced equally.
    """
    numbers = [float(value) for value in sweep.values if not isinstance(value, str)]
    if len(numbers) < len(sweep.values) or (sweep.scale == "log" and min(numbers) <= 0):
        return {str(value): float(n) for n, value in enumerate(sweep.values)}, "linear"
    return dict(zip(map(str, sweep.values), numbers, strict=True)), sweep.scale


def _same(level: str) -> str:
    return f"same {level.replace('_', ' ')}"
