"""The results of a comparison in Markdown, as GitHub shows it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hgld.benchmark.benchmark_settings import BenchmarkSettings, Gldv2Evaluation, SweepSettings
from hgld.benchmark.method_results import MethodResults, best_baseline, difference, means_of, spreads_of
from hgld.benchmark.run_evaluation import EvaluatedRun
from hgld.benchmark.runs import SweepPoint
from hgld.benchmark.training_jobs import data_text
from hgld.evaluation.report import marked, metrics_of, notes

_OF_LEVEL = re.compile(r"AP_l\d+")
_NOTHING = "–"
_MEANS = "In %, mean over the seeds ± their standard deviation; the best is bold, the second underlined."
_INTERVALS = """\
How much better a method is than the best baseline, which is the one with the highest mean of the metric: mean of the
differences query by query, each averaged over the seeds, and its 95 % interval of confidence. For the interval
landmarks are drawn with replacement 10,000 times, each with all its queries, as queries of one landmark are alike. It
tells what other landmarks might change; what other seeds might is in the ± above. An interval that holds 0 leaves
open which of the two is better, and of many intervals about one in twenty misses the true difference."""


def results(
    settings: BenchmarkSettings,
    methods: Sequence[MethodResults],
    columns: Sequence[str],
    out: Path,
    *,
    about: Sequence[str] = (),
) -> str:
    """The text of ``results.md``.

    Args:
        settings: of the comparison.
        methods: in the order of the table.
        columns: the metrics that stand first.
        out: its folder, whose pictures are named.
        about: sentences to add to what the numbers depend on.
    """
    there = metrics_of([one.result for method in methods for one in method.runs])
    of_level = [metric for metric in there if _OF_LEVEL.fullmatch(metric)]
    main = [*columns, *(metric for metric in there if metric not in (*columns, *of_level))]
    of_level = [metric for metric in of_level if metric not in main]
    sections = [f"# {settings.title}", _MEANS, _means(methods, main), *_gains(methods, main, _INTERVALS)]
    if of_level:
        said = "Level 1 is the coarsest. Positives are the images that share the level, or a finer one."
        sections += ["## AP of each level", said, _means(methods, of_level), *_gains(methods, of_level)]
    sections += ["## Trainings", _trainings(methods)]
    sections += ["## What the numbers depend on", _list([*_dependences(settings, methods), *about])]
    if links := _links(out):
        sections += ["## Pictures", *links]
    return "\n\n".join(sections)


def study(
    settings: SweepSettings, points: Sequence[tuple[SweepPoint, tuple[EvaluatedRun, ...]]], *, picture: Path
) -> str:
    """The text of ``sweeps/NAME.md``.

    Args:
        settings: of the study.
        points: of its curves, with their runs that are evaluated.
        picture: shown beside it, if it is there.
    """
    means = {(point.curve, point.value): means_of(runs) for point, runs in points}
    spreads = {(point.curve, point.value): spreads_of(runs) for point, runs in points}
    seeds = sorted({one.run.seed for _, runs in points for one in runs})
    sections = [
        f"# {settings.title}",
        f"`{settings.key}`; in %, mean over the seeds {_several(seeds)} ± their standard deviation.",
    ]
    for metric in settings.metrics:
        shown = {key: mean_and_spread(means[key], spreads[key], metric) for key in means}
        sections += [f"## {metric}", _grid(settings, list(settings.curves), shown)]
        if (base := settings.relative_to) is not None:
            relative = {
                (curve, value): _relative(mean.get(metric, math.nan), means[base, value].get(metric, math.nan))
                for (curve, value), mean in means.items()
                if curve != base
            }
            others = [curve for curve in settings.curves if curve != base]
            sections += [f"Relative difference from {base}, in %:", _grid(settings, others, relative)]
    if picture.is_file():
        sections.append(f"![{settings.title}]({picture.name})")
    return "\n\n".join(sections)


def mean_and_spread(means: Mapping[str, float], spreads: Mapping[str, float], metric: str) -> str:
    """A cell such as ``47.21 ± 0.12``, in percent; the mean alone of a single run, a dash where there is none.

    >>> mean_and_spread({"ASI": 0.47211}, {"ASI": 0.0012}, "ASI")
    '47.21 ± 0.12'
    """
    mean = means.get(metric, math.nan)
    return _NOTHING if math.isnan(mean) else f"{100 * mean:.2f}{_plus_minus(spreads, metric)}"


def gain(method: MethodResults, baseline: MethodResults, metric: str) -> str:
    """A cell such as ``+0.52 [-0.10, +1.14]``, in percent; ``0`` of the baseline itself."""
    if method is baseline:
        return "0"
    if metric not in method.metrics:
        return _NOTHING
    found = difference(method, baseline, metric)
    if math.isnan(found.mean):
        return _NOTHING
    return f"{100 * found.mean:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"


def _means(methods: Sequence[MethodResults], metrics: Sequence[str]) -> str:
    columns = [
        marked([method.means.get(metric, math.nan) for method in methods], "**{}**", "<ins>{}</ins>", decimals=2)
        for metric in metrics
    ]
    rows = [
        [
            method.title,
            *(
                f"{cell}{_plus_minus(method.spreads, metric)}" if cell else _NOTHING
                for metric, cell in zip(metrics, cells, strict=True)
            ),
        ]
        for method, *cells in zip(methods, *columns, strict=True)
    ]
    return _table(["Method", *metrics], rows)


def _gains(methods: Sequence[MethodResults], metrics: Sequence[str], said: str | None = None) -> list[str]:
    """The section of differences to the best baseline; nothing if there are no baselines."""
    baselines = {metric: best for metric in metrics if (best := best_baseline(methods, metric)) is not None}
    if not baselines:
        return []
    rows = [["*best baseline*", *(f"*{best.title}*" for best in baselines.values())]]
    for method in methods:
        rows.append([method.title, *(gain(method, best, metric) for metric, best in baselines.items())])
    table = _table(["Method", *baselines], rows)
    return (
        ["## Difference from the best baseline", said, table]
        if said
        else ["Difference from the best baseline:", table]
    )


def _trainings(methods: Sequence[MethodResults]) -> str:
    rows = []
    for method in methods:
        minutes = [training.train_seconds / 60 for training in method.trainings]
        rows.append(
            [
                method.title,
                _several(one.run.seed for one in method.runs),
                _several(f"{training.steps:,}" for training in method.trainings),
                _several(f"{one.run.settings.batch_size:,}" for one in method.runs),
                f"{sum(minutes) / len(minutes):.1f}",
                _several(training.device for training in method.trainings),
            ]
        )
    return _table(["Method", "Seeds", "Steps", "Images a step", "Minutes a run", "Device"], rows)


def _dependences(settings: BenchmarkSettings, methods: Sequence[MethodResults]) -> list[str]:
    """What the numbers depend on, in sentences."""
    runs = [one for method in methods for one in method.runs]
    result = runs[0].result
    n_queries, n_gallery = (f"{result.counts[name]:,}" for name in ("queries", "gallery"))
    if isinstance(settings.evaluation, Gldv2Evaluation):
        said = [
            f"GLDv2's retrieval: {n_queries} test images with hierarchical labels, a gallery of {n_gallery} images.",
            f"map100_official is over {len(result.per_query):,} test images, Public and Private together.",
        ]
    else:
        said = [data_text(data) for data in dict.fromkeys(one.run.settings.data for one in runs)]
        alone = result.name == "leave-one-out"
        said.append(f"{n_queries} queries, each ranks " + ("all others." if alone else f"a gallery of {n_gallery}."))
    without = ", ".join(
        f"{count:,} at level {name.removeprefix('without_positives_l')}"
        for name, count in result.counts.items()
        if name.startswith("without_positives_l")
    )
    said.append(f"Means leave out the queries that have no positive: {without}.")
    said.append("Of each training the last checkpoint is evaluated: the images it is evaluated with chose nothing.")
    trainings = [training for method in methods for training in method.trainings]
    versions = (f"{name} {version}" for training in trainings for name, version in training.versions.items())
    said.append(f"Machine: {_several(training.machine for training in trainings)}. Software: {_several(versions)}.")
    return said + notes([result])


def _links(out: Path) -> list[str]:
    """The pictures and pages that are in the folder of the comparison."""
    pictures = [*sorted((out / "figures").glob("*.png")), *sorted(out.glob("*.png"))]
    pages = [*sorted(out.glob("*.html")), *sorted((out / "sweeps").glob("*.md"))]
    return [
        *(f"![{path.stem}]({path.relative_to(out).as_posix()})" for path in pictures),
        *(f"[{path.stem}]({path.relative_to(out).as_posix()})" for path in pages),
    ]


def _grid(settings: SweepSettings, curves: Sequence[str], cells: Mapping[tuple[str, int | float | str], str]) -> str:
    """A row for each value, a column for each curve."""
    rows = [[str(value), *(cells.get((curve, value), _NOTHING) for curve in curves)] for value in settings.values]
    return _table([settings.label, *curves], rows)


def _relative(mean: float, base: float) -> str:
    return _NOTHING if math.isnan(mean) or not base > 0 else f"{100 * (mean / base - 1):+.2f}"


def _plus_minus(spreads: Mapping[str, float], metric: str) -> str:
    spread = spreads.get(metric, math.nan)
    return "" if math.isnan(spread) else f" ± {100 * spread:.2f}"


def _several(texts: Iterable[object]) -> str:
    """Each once."""
    return ", ".join(dict.fromkeys(map(str, texts)))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
