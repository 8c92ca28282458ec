"""Tables, figures and the page of a comparison of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from hgld.benchmark.compared_models import ComparedModels
from hgld.benchmark.statistics import Difference
from hgld.errors import counted
from hgld.evaluation.metric_units import shown_value, with_unit
from hgld.evaluation.results import RetrievalResult, escape_latex, interval_text, setting_notes
from hgld.figures.comparisons import Interval, Scatter, draw_intervals, draw_scatters
from hgld.io.files import write_page, write_text
from hgld.io.markdown import markdown_link, markdown_table
from hgld.pages.templates import page_templates
from hgld.tables import Provenance, write_results

_INTERVALS = """\
Values are percentages; distances are counted in levels. Brackets show 95 % intervals over the classes of the
evaluated images; with fewer than 6 classes, or if a few classes hold most images, there is no interval. A model is
underlined if it is better than every other model by the simultaneous intervals of all pairs of models (max-T)."""
_RANKS = """\
Rank of each model, and in brackets the best and the worst rank that these intervals leave possible."""
_DIFFERENCES = """\
Difference from the model that the row *reference* names for each metric, with simultaneous intervals of all pairs of
models. An interval that contains 0 leaves open which of the two is better."""


@dataclass
class ModelFacts:
    """Facts about a compared model, which a comparison adds as it finds them.

    Args:
        model: What was loaded.
        seen: Whether it was trained on images of the evaluated classes.
        dim: Number of dimensions of the embeddings.
        parameters: Number of parameters; None for embeddings from a file and functions.
        images: How images become inputs; None for embeddings from a file.
        images_per_s: Images embedded per second; None if they were not embedded here.
        skipped: Number of images that could not be read.
        failure: Why the model could not be compared; None if it was.
    """

    name: str
    model: str
    seen: str
    dim: int | None = None
    parameters: int | None = None
    images: str | None = None
    images_per_s: float | None = None
    skipped: int = 0
    failure: str | None = None


@dataclass(frozen=True, eq=False)
class ModelResults:
    """Outcome of a comparison.

    Args:
        table: Rows of :func:`hgld.benchmark.statistics.compare`.
        facts: What is known about each model, those that failed included.
        results: Evaluation of each model after each treatment, by name in tables.
        split: Split that was evaluated; None for all images.
        n_excluded: Number of images of the split that some model has no embedding of.
    """

    table: pd.DataFrame
    facts: tuple[ModelFacts, ...]
    results: Mapping[str, RetrievalResult]
    split: str | None
    n_excluded: int = 0

    @cached_property
    def compared(self) -> ComparedModels:
        """Rows of the table by metric and name."""
        return ComparedModels(self.table.itertuples(index=False))


def write_model_reports(
    outcome: ModelResults, out: Path, provenance: Provenance, *, has_differences: bool
) -> list[Path]:
    """Write the tables, figures and the page, which links ``differences.html`` if there is one; return them."""
    table, rows, metrics = outcome.table, outcome.compared.rows, outcome.compared.metrics
    figures = _draw_figures(outcome, out)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    parquet, markdown, latex = files = [
        out / f"results.{suffix}" for suffix in ("parquet", "md", "tex")
    ]
    write_results(parquet, arrow, "model_comparison/1", provenance)
    write_text(markdown, _markdown(outcome, figures) + "\n")
    write_text(latex, _latex(outcome) + "\n")
    cells = {key: (row.mean, _mean_text(row)) for key, row in rows.items()}
    template = page_templates("retrieval").get_template("models.html")
    page = template.render(
        title="Comparison of models",
        metrics=metrics,
        rows=[
            (name, [cells[metric, name] for metric in metrics]) for name in outcome.compared.names
        ],
        best={key for key, row in rows.items() if _is_best(row)},
        facts=[_fact_cells(each) for each in outcome.facts],
        fact_names=_FACT_NAMES,
        failures=[each for each in outcome.facts if each.failure],
        figures=[path.name for path in figures],
        has_differences=has_differences,
        notes=[_INTERVALS, *_notes(outcome)],
    )
    write_page(out / "index.html", page + "\n")
    return [*files, out / "index.html", *figures]


def _is_best(row: Any) -> bool:
    return bool(row.worst_rank == 1)


def _mean_text(row: Any) -> str:
    mean, low, high = (shown_value(row.metric, value) for value in (row.mean, row.low, row.high))
    return f"{mean:.2f} {interval_text(low, high)}"


def _difference_text(row: Any) -> str:
    if row.name == row.reference:
        return "0"
    return Difference(row.difference, row.difference_low, row.difference_high).text(row.metric)


_FACT_NAMES = (
    "Model",
    "Loaded from",
    "Parameters",
    "Dimensions",
    "Input",
    "Images/s",
    "Saw these classes",
)


def _fact_cells(facts: ModelFacts) -> list[str]:
    return [
        facts.name,
        facts.model,
        "–" if facts.parameters is None else f"{facts.parameters:,}",
        "–" if facts.dim is None else f"{facts.dim:,}",
        facts.images or "–",
        "–" if facts.images_per_s is None else f"{facts.images_per_s:.1f}",
        facts.seen,
    ]


def _notes(outcome: ModelResults) -> list[str]:
    results = list(outcome.results.values())
    images = f"Leave-one-out on {results[0].counts['queries']:,} images of {outcome.split or 'all splits'}."
    excluded = []
    if outcome.n_excluded:
        excluded = [
            f"Images that some model has no embedding of, excluded for all models: {outcome.n_excluded:,}."
        ]
    skipped = [
        f"{each.name}: {counted(each.skipped, 'image')} could not be read."
        for each in outcome.facts
        if each.skipped
    ]
    return [images, *excluded, *skipped, *setting_notes(results)]


def _markdown(outcome: ModelResults, figures: Sequence[Path]) -> str:
    compared = outcome.compared
    rows, metrics, order = compared.rows, compared.metrics, compared.names

    def grid(cell: Callable[[Any], str], *first: list[str]) -> str:
        body = [
            *first,
            *([name, *(cell(rows[metric, name]) for metric in metrics)] for name in order),
        ]
        return markdown_table(["Model", *metrics], body, n_numeric=len(metrics))

    def mean(row: Any) -> str:
        return f"<ins>{_mean_text(row)}</ins>" if _is_best(row) else _mean_text(row)

    def rank(row: Any) -> str:
        return f"{row.rank} [{row.best_rank}, {row.worst_rank}]"

    head = ["*reference*", *(f"*{rows[metric, order[0]].reference}*" for metric in metrics)]
    sections = ["# Comparison of models", _INTERVALS, grid(mean), "## Ranks", _RANKS, grid(rank)]
    if len(order) > 1:
        sections += ["## Differences", _DIFFERENCES, grid(_difference_text, head)]
    sections += [
        "## Models",
        markdown_table(_FACT_NAMES, [_fact_cells(each) for each in outcome.facts]),
    ]
    if failures := [f"- {each.name}: {each.failure}" for each in outcome.facts if each.failure]:
        sections += ["## Failures", "\n".join(failures)]
    sections += ["## Setup", "\n".join(f"- {note}" for note in _notes(outcome))]
    sections += [markdown_link(path, path.parent) for path in figures]
    return "\n\n".join(sections)


def _latex(outcome: ModelResults) -> str:
    """Return the means as a table for the package booktabs."""
    rows, order = outcome.compared.rows, outcome.compared.names

    def cell(row: Any) -> str:
        text = f"{shown_value(row.metric, row.mean):.1f}"
        return rf"\underline{{{text}}}" if _is_best(row) else text

    body = {
        escape_latex(metric): [cell(rows[metric, name]) for name in order]
        for metric in outcome.compared.metrics
    }
    table = pd.DataFrame(body, index=pd.Index([escape_latex(name) for name in order], name="Model"))
    return str(table.reset_index().to_latex(index=False, escape=False))


def _draw_figures(outcome: ModelResults, out: Path) -> list[Path]:
    """Draw intervals of the main metric and of each level, and the main metric against others and against costs."""
    compared = outcome.compared
    rows, order, main = compared.rows, compared.names, compared.main_metric
    levels = [metric for metric in compared.metrics if metric.startswith("AP")]

    def shown(metric: str, name: str, value: str = "mean") -> float:
        return shown_value(metric, getattr(rows[metric, name], value))

    ends = ("mean", "low", "high")
    panels = {
        with_unit(metric): [
            Interval(name, *(shown(metric, name, end) for end in ends)) for name in order
        ]
        for metric in dict.fromkeys([main, *levels])
    }
    draw_intervals(out / "levels.png", panels)
    facts = {each.name: each for each in outcome.facts}
    # Names of models after treatments would cover one another.
    untreated = [name for name in order if name in facts]

    def scatter(label: str, known: Mapping[str, float | None], *, log: bool = False) -> Scatter:
        points = [(name, float(x), shown(main, name)) for name, x in known.items() if x is not None]
        return Scatter(label, with_unit(main), points, log=log)

    scatters = [
        scatter(with_unit(other), {name: shown(other, name) for name in untreated})
        for other in ("mAP@R", "R@1")
        if other != main and other in compared.metrics
    ]
    costs = [
        scatter("dimensions", {name: facts[name].dim for name in untreated}, log=True),
        scatter(
            "images per second", {name: facts[name].images_per_s for name in untreated}, log=True
        ),
    ]
    figures = [out / "levels.png"]
    for name, drawn in (("metrics.png", scatters), ("costs.png", costs)):
        drawn = [each for each in drawn if len(each.points) > 1]
        if drawn:
            draw_scatters(out / name, drawn)
            figures.append(out / name)
    return figures
