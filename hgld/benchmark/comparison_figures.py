"""The pictures of a comparison of methods.

::

    figures/class_means.png         the classes of a baseline and of a hierarchical method on a plane (Fig. 9a, b)
    figures/precision_recall.png    precision over recall, at each level and hierarchical
    figures/learning.png            metrics over the steps of the trainings
    figures/scores.png              the cosines of pairs, by the level they share
    sweeps/NAME.png                 metrics over the values of a setting (Figs. 6 to 8)

Learning curves and studies show all seeds, the others the runs of the first one. Baselines are dashed, and the two
methods that are shown side by side are thick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgld.benchmark.benchmark_settings import BenchmarkSettings, SplitEvaluation, SweepSettings
from hgld.benchmark.method_results import MethodResults
from hgld.benchmark.run_evaluation import EvaluatedRun, test_images
from hgld.benchmark.runs import SweepPoint
from hgld.figures.class_means import ClassMeans, draw_class_means
from hgld.figures.lines import Line, Panel, Stroke, draw_panels
from hgld.figures.scores import Scores, draw_scores
from hgld.figures.style import LINES
from hgld.figures.tsne import tsne_2d
from hgld.inspection.class_means import N_NEIGHBOURS, class_means, neighbour_agreement
from hgld.inspection.curves import precision_recall
from hgld.inspection.score_distributions import count_scores
from hgld.training.run_folder import RunFolder

#: Recalls, a row for each interval whose mean precision is drawn.
_RECALLS = ((np.arange(250) + 0.5) / 250).reshape(25, 10)
#: Of learning curves, as far as the trainings take them.
_METRICS = ("H-AP", "mAP@100", "ASI")
#: So many labels of the coarsest level have a shape each.
_MOST_ROOTS = 4

#: In percent, by the place on the x axis, then by seed.
Values = dict[float, dict[int, float]]


def draw_pictures(settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path) -> list[Path]:
    """Draw what the settings want, of the methods that are there.

    Args:
        settings: of the comparison.
        methods: that are evaluated, in the order of the table.
        out: the folder of the pictures.

    Returns:
        The pictures; those for which methods or their embeddings are missing are left out.

    Raises:
        InputError: a file of a run cannot be read.
    """
    chosen = settings.pictures
    if chosen is None:
        return []
    by_name = {method.name: method for method in methods}
    wanted = chosen.curves or tuple(settings.methods)
    shown = [method for method in methods if method.name in wanted]
    strokes = {
        name: Stroke(
            LINES[n % len(LINES)], settings.methods[name].baseline, thick=name in (chosen.baseline, chosen.method)
        )
        for n, name in enumerate(wanted)
    }
    drawn = [_draw_learning(shown, strokes, out / "learning.png")]
    if isinstance(settings.evaluation, SplitEvaluation):
        drawn.append(_draw_scores(shown, out / "scores.png"))
        if chosen.baseline in by_name:
            baseline = by_name[chosen.baseline]
            drawn.append(_draw_precision_recall(shown, baseline, strokes, out / "precision_recall.png"))
            if chosen.method in by_name:
                drawn.append(_draw_class_means([baseline, by_name[chosen.method]], out / "class_means.png"))
    return [path for path in drawn if path is not None]


def draw_sweep(
    sweep: SweepSettings, points: Sequence[tuple[SweepPoint, tuple[EvaluatedRun, ...]]], path: Path
) -> Path | None:
    """Draw a study: its metrics over the values, as far as these are evaluated.

    Args:
        sweep: its settings.
        points: the runs of each curve and value that are evaluated.
        path: the picture to write.

    Returns:
        The picture, unless there is nothing to draw.
    """
    places, scale = _places(sweep)
    ticks = {place: value for value, place in places.items()}
    panels = []
    for metric in sweep.metrics:
        curves: dict[str, Values] = {name: {} for name in sweep.curves}
        for point, runs in points:
            of_seed = {one.run.seed: 100 * one.result.means[metric] for one in runs}
            curves[point.curve][places[str(point.value)]] = of_seed
        title = f"{metric} in %"
        if sweep.relative_to is not None:
            curves = _relative(curves, sweep.relative_to)
            title = f"{metric}: % more than {sweep.relative_to}"
        lines = [
            _line(name, Stroke(LINES[n % len(LINES)], dashed=name == sweep.relative_to), values)
            for n, (name, values) in enumerate(curves.items())
            if any(values.values())
        ]
        panels.append(Panel(title, lines, sweep.label, scale=scale, ticks=ticks))
    return _draw(panels, path, title=sweep.title)


def _draw_learning(methods: Sequence[MethodResults], strokes: Mapping[str, Stroke], path: Path) -> Path | None:
    """Metrics over steps, of what was trained at all."""
    lines: dict[str, list[Line]] = {metric: [] for metric in _METRICS}
    for method in methods:
        histories = {one.run.seed: RunFolder(one.run.folder).history("evaluation") for one in method.runs}
        for metric in _METRICS:
            values: Values = {}
            for seed, history in histories.items():
                for row in history:
                    if metric in row:
                        values.setdefault(row["step"], {})[seed] = 100 * row[metric]
            if len(values) > 1:
                lines[metric].append(_line(method.title, strokes[method.name], values))
    return _draw([Panel(f"{metric} in %", curves, "steps") for metric, curves in lines.items()], path)


def _draw_precision_recall(
    methods: Sequence[MethodResults], baseline: MethodResults, strokes: Mapping[str, Stroke], path: Path
) -> Path | None:
    """Precision over recall at each level, finest first, and hierarchical; below, how far above a baseline's."""
    found = {method.name: _precisions(method) for method in methods}
    base = found.get(baseline.name) or _precisions(baseline)
    recalls = 100 * _RECALLS.mean(axis=1)
    upper: list[Panel] = []
    lower: list[Panel] = []
    for title in base:
        curves = [(method.title, strokes[method.name], 100 * found[method.name][title]) for method in methods]
        lines = [Line(name, stroke, recalls, curve[None]) for name, stroke, curve in curves]
        upper.append(Panel(title, lines, y_label="" if upper else "precision in %"))
        lines = [Line(name, stroke, recalls, (curve - 100 * base[title])[None]) for name, stroke, curve in curves]
        lower.append(Panel("", lines, "recall in %", "" if lower else f"points above {baseline.title}"))
    return _draw([*upper, *lower], path, n_columns=len(upper))


def _precisions(method: MethodResults) -> dict[str, NDArray[np.float64]]:
    """The mean precision in each interval of recalls, by what is searched for."""
    task = test_images(method.runs[0].run).task()
    assert task.level_names is not None
    found = precision_recall(
        task.queries, task.gallery, task.judgements, recall=_RECALLS.ravel(), excluded=task.excluded
    )
    curves = [*found.precision[::-1], found.hierarchical]
    names = [*map(_same, task.level_names), "hierarchical"]
    return {name: curve.reshape(_RECALLS.shape).mean(axis=1) for name, curve in zip(names, curves, strict=True)}


def _draw_scores(methods: Sequence[MethodResults], path: Path) -> Path | None:
    """The cosines of all queries with the gallery."""
    panels = []
    meanings: list[str] = []
    for method in methods:
        task = test_images(method.runs[0].run).task()
        assert task.level_names is not None
        meanings = ["nothing shared", *map(_same, task.level_names[::-1])]
        found = count_scores(task.queries, task.gallery, task.judgements, excluded=task.excluded)
        panels.append(Scores(method.title, found.separation(), found.edges, found.densities()))
    if not panels:
        return None
    draw_scores(path, panels, meanings)
    return path


def _draw_class_means(methods: Sequence[MethodResults], path: Path) -> Path | None:
    """The classes by the labels above them, if there are any."""
    panels = []
    for method in methods:
        images = test_images(method.runs[0].run)
        names, classes = images.manifest.level_names, images.manifest.class_names
        if len(names) < 2:
            return None
        means, labels = class_means(images.embeddings, images.manifest.labels)
        columns = [1, len(names) - 1] if len(names) > 2 and len(classes[-1]) <= _MOST_ROOTS else [1]
        shares = (
            f"{100 * neighbour_agreement(means, labels[:, column]):.0f} % {_same(names[column])}"
            for column in columns
        )
        title = f"{method.title}\nof the {N_NEIGHBOURS} nearest classes\n{', '.join(shares)}"
        categories, roots = ([classes[column][code] for code in labels[:, column]] for column in (1, columns[-1]))
        panels.append(ClassMeans(title, tsne_2d(means), categories, roots if len(columns) > 1 else [""] * len(means)))
    draw_class_means(path, panels)
    return path


def _draw(
    panels: Sequence[Panel], path: Path, *, title: str | None = None, n_columns: int | None = None
) -> Path | None:
    """Draw the panels that have lines."""
    filled = [panel for panel in panels if panel.lines]
    if not filled:
        return None
    draw_panels(path, filled, title=title, n_columns=n_columns)
    return path


def _line(title: str, stroke: Stroke, values: Values) -> Line:
    places = sorted(values)
    seeds = sorted({seed for of_seed in values.values() for seed in of_seed})
    y = np.array([[values[place].get(seed, np.nan) for place in places] for seed in seeds])
    return Line(title, stroke, np.array(places, np.float64), y)


def _relative(curves: Mapping[str, Values], base: str) -> dict[str, Values]:
    """How much more each value is than that of a curve with the same seed, in percent of it, where both are there."""
    return {
        name: {
            place: {seed: 100 * (value / whole - 1) for seed, value in of_seed.items() if (whole := wholes.get(seed))}
            for place, of_seed in values.items()
            if (wholes := curves[base].get(place))
        }
        for name, values in curves.items()
    }


def _places(sweep: SweepSettings) -> tuple[dict[str, float], Literal["linear", "log"]]:
    """Where each value stands on which axis: side by side, if they are no numbers, or have no logarithm."""
    numbers = [float(value) for value in sweep.values if not isinstance(value, str)]
    if len(numbers) < len(sweep.values) or (sweep.scale == "log" and min(numbers) <= 0):
        return {str(value): float(n) for n, value in enumerate(sweep.values)}, "linear"
    return dict(zip(map(str, sweep.values), numbers, strict=True)), sweep.scale


def _same(level: str) -> str:
    return f"same {level.replace('_', ' ')}"
