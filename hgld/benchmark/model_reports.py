"""Tables, figures and the page of a comparison of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        facts: Facts about each model, also about models that could not be compared.
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

    @property
    def failed(self) -> list[ModelFacts]:
        """Models that could not be compared."""
        return [facts for facts in self.facts if facts.failure]


def write_model_reports(
    outcome: ModelResults, out: Path, provenance: Provenance, *, has_differences: bool
) -> list[Path]:
    """Write the tables, figures and the page, which links ``differences.html`` if there is one; return them."""
    compared = outcome.compared
    figures = _draw_figures(outcome, out)
    arrow = pa.Table.from_pandas(outcome.table, preserve_index=False)
    parquet, markdown, latex = out / "results.parquet", out / "results.md", out / "results.tex"
    write_results(parquet, arrow, "model_comparison/1", provenance)
    write_text(markdown, _markdown(outcome, figures) + "\n")
    write_text(latex, _latex(outcome) + "\n")
    page_rows = []
    for name in compared.names:
        cells = []
        for metric in compared.metrics:
            row = compared.rows[metric, name]
            cells.append((row.mean, _mean_text(row)))
        page_rows.append((name, cells))
    template = page_templates("retrieval").get_template("models.html")
    html = template.render(
        title="Comparison of models",
        metrics=compared.metrics,
        rows=page_rows,
        best={key for key, row in compared.rows.items() if _is_best(row)},
        facts=[_fact_cells(facts) for facts in outcome.facts],
        fact_names=_FACT_NAMES,
        failures=outcome.failed,
        figures=[path.name for path in figures],
        has_differences=has_differences,
        notes=[_INTERVALS, *_notes(outcome)],
    )
    page = out / "index.html"
    write_page(page, html + "\n")
    return [parquet, markdown, latex, page, *figures]


def _is_best(row: Any) -> bool:
    return bool(row.worst_rank == 1)


def _mean_text(row: Any) -> str:
    low, high = shown_value(row.metric, row.low), shown_value(row.metric, row.high)
    return f"{shown_value(row.metric, row.mean):.2f} {interval_text(low, high)}"


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
    n_queries = results[0].counts["queries"]
    notes = [f"Leave-one-out on {n_queries:,} images of {outcome.split or 'all splits'}."]
    if outcome.n_excluded:
        notes.append(
            f"Images that some model has no embedding of, excluded for all models: {outcome.n_excluded:,}."
        )
    for facts in outcome.facts:
        if facts.skipped:
            notes.append(f"{facts.name}: {counted(facts.skipped, 'image')} could not be read.")
    return notes + setting_notes(results)


def _markdown(outcome: ModelResults, figures: Sequence[Path]) -> str:
    rows, metrics, names = outcome.compared.rows, outcome.compared.metrics, outcome.compared.names
    references = ["*reference*"]
    for metric in metrics:
        references.append(f"*{rows[metric, names[0]].reference}*")
    means, ranks, differences = [], [], [references]
    for name in names:
        mean_cells, rank_cells, difference_cells = [name], [name], [name]
        for metric in metrics:
            row = rows[metric, name]
            mean = _mean_text(row)
            mean_cells.append(f"<ins>{mean}</ins>" if _is_best(row) else mean)
            rank_cells.append(f"{row.rank} [{row.best_rank}, {row.worst_rank}]")
            difference_cells.append(_difference_text(row))
        means.append(mean_cells)
        ranks.append(rank_cells)
        differences.append(difference_cells)

    def grid(body: Sequence[Sequence[str]]) -> str:
        return markdown_table(["Model", *metrics], body, n_numeric=len(metrics))

    sections = ["# Comparison of models", _INTERVALS, grid(means), "## Ranks", _RANKS, grid(ranks)]
    if len(names) > 1:
        sections += ["## Differences", _DIFFERENCES, grid(differences)]
    facts_table = markdown_table(_FACT_NAMES, [_fact_cells(facts) for facts in outcome.facts])
    sections += ["## Models", facts_table]
    if outcome.failed:
        failures = [f"- {facts.name}: {facts.failure}" for facts in outcome.failed]
        sections += ["## Failures", "\n".join(failures)]
    sections += ["## Setup", "\n".join(f"- {note}" for note in _notes(outcome))]
    sections += [markdown_link(path, path.parent) for path in figures]
    return "\n\n".join(sections)


def _latex(outcome: ModelResults) -> str:
    """Return the means as a table for the package booktabs."""
    names = outcome.compared.names
    columns = {"Model": [escape_latex(name) for name in names]}
    for metric in outcome.compared.metrics:
        cells = columns[escape_latex(metric)] = []
        for name in names:
            row = outcome.compared.rows[metric, name]
            text = f"{shown_value(metric, row.mean):.1f}"
            cells.append(rf"\underline{{{text}}}" if _is_best(row) else text)
    return str(pd.DataFrame(columns).to_latex(index=False, escape=False))


def _draw_figures(outcome: ModelResults, out: Path) -> list[Path]:
    """Draw intervals of the main metric and of each level, and the main metric against others and against costs."""
    compared = outcome.compared
    main = compared.main_metric
    panels: dict[str, list[Interval]] = {}
    for metric in dict.fromkeys([main, *compared.metrics]):
        if metric != main and not metric.startswith("AP"):
            continue
        intervals = panels[with_unit(metric)] = []
        for name in compared.names:
            row = compared.rows[metric, name]
            low, high = shown_value(metric, row.low), shown_value(metric, row.high)
            intervals.append(Interval(name, shown_value(metric, row.mean), low, high))
    draw_intervals(out / "levels.png", panels)
    facts = {model.name: model for model in outcome.facts}
    # Names of models after treatments would cover one another.
    untreated = [name for name in compared.names if name in facts]

    def mean(metric: str, name: str) -> float:
        return shown_value(metric, compared.rows[metric, name].mean)

    def scatter(label: str, values: Mapping[str, float | None], *, log: bool = False) -> Scatter:
        points = []
        for name, value in values.items():
            if value is not None:
                points.append((name, float(value), mean(main, name)))
        return Scatter(label, with_unit(main), points, log=log)

    metric_scatters = []
    for metric in ("mAP@R", "R@1"):
        if metric != main and metric in compared.metrics:
            means = {name: mean(metric, name) for name in untreated}
            metric_scatters.append(scatter(with_unit(metric), means))
    dimensions = {name: facts[name].dim for name in untreated}
    rates = {name: facts[name].images_per_s for name in untreated}
    cost_scatters = [
        scatter("dimensions", dimensions, log=True),
        scatter("images per second", rates, log=True),
    ]
    figures = [out / "levels.png"]
    for file_name, scatters in (("metrics.png", metric_scatters), ("costs.png", cost_scatters)):
        drawn = [panel for panel in scatters if len(panel.points) > 1]
        if drawn:
            draw_scatters(out / file_name, drawn)
            figures.append(out / file_name)
    return figures
