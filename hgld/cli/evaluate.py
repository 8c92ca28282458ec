"""Evaluations: evaluate, diagnose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgld.cli.application import FIRST_STEPS, SharedCommand, app
from hgld.cli.options import field_option, field_options, help_panels
from hgld.cli.render import WIDTH, aligned, percent, wrapped_table
from hgld.cli.shared_options import ComparedBy, Json, parse_numbers, writable_file
from hgld.errors import ConfigurationError
from hgld.evaluation.settings import PROTOCOLS, EvaluationFiles, MetricSettings, RerankSettings
from hgld.losses.settings import DiagnosisConfig

if TYPE_CHECKING:
    import pandas as pd

    from hgld.compute.resampling import Interval
    from hgld.evaluation import Evaluation
    from hgld.evaluation.results import RetrievalResult
    from hgld.losses.diagnosis import Diagnosis

    ProtocolName = str
else:
    ProtocolName = Literal[tuple(PROTOCOLS)]

_DIAGNOSIS_NOTES = (
    "gap: whole set - batches (Eq. 6). The bounds, for AP only, are of batches - whole set, for batches with an AP "
    "of 1, without L_DG (Eq. 26) and with it (Eq. 27).",
    "AP error: mean over queries of |AP with the step - AP|. Gradient: share of score differences at which the slope "
    "of the step is above 0.005: of all, of those of a positive and a negative, and of those whose negative is "
    "ranked before the positive.",
)
_EXCLUDED_QUERIES = (
    "Means exclude queries without a positive at the metric's level; "
    '"no l1" counts queries without any positive, as l1 is the coarsest level.'
)


@app.command(cls=SharedCommand, rich_help_panel=FIRST_STEPS)
@help_panels(
    {
        "Queries and gallery in separate files": [
            "query_embeddings",
            "query_labels",
            "gallery_embeddings",
            "distractor_embeddings",
        ],
        "Protocol": ["protocol", "ground_truth", "predictions"],
        "Metrics": ["metrics", "relevance_alpha", "level_weights", "several_labels"],
        "Ranking": ["device", "precision", "distance", "ties"],
        "Re-ranking": ["rerank", "rerank_neighbours", "rerank_alpha"],
        "Output": ["intervals", "json", "latex", "per_query", "per_label", "write_predictions"],
        "Page of the worst queries": ["worst", "page", "images"],
    }
)
@field_options(
    MetricSettings,
    metrics="--metric",
    relevance_alpha="--alpha",
    level_weights=typer.Option(
        parser=parse_numbers("level_weights", "0.2,0.3,0.5"), metavar="<str>"
    ),
)
@field_options(EvaluationFiles, labels="--manifest", query_labels="--query-manifest")
def evaluate(
    *,
    files: EvaluationFiles,
    protocol: ProtocolName | None = None,
    metric_settings: MetricSettings,
    device: str = "cpu",
    precision: Literal["float32", "tf32", "float64"] = "float32",
    distance: ComparedBy = None,
    ties: Literal["pessimistic", "optimistic", "heaviside"] = "pessimistic",
    reranking: RerankSettings,
    intervals: Annotated[bool, typer.Option("--intervals/--no-intervals")] = True,
    json: bool = False,
    latex: bool = False,
    per_query: Annotated[Path | None, typer.Option(callback=writable_file(".parquet"))] = None,
    per_label: Annotated[
        Path | None, typer.Option(callback=writable_file(".csv", ".parquet"))
    ] = None,
    write_predictions: Annotated[Path | None, typer.Option(callback=writable_file(".csv"))] = None,
    worst: Annotated[int | None, typer.Option(min=1)] = None,
    page: Annotated[Path, typer.Option(callback=writable_file(".html"))] = Path("worst.html"),
    images: Path | None = None,
) -> None:
    """Evaluate embeddings: mAP@100, mAP@R, R@1, H-AP, NDCG, ASI, AP of each level.

    Several processes share the queries: torchrun --nproc-per-node 2 -m hgld evaluate ..., or srun --ntasks 2 hgld
    evaluate ...

    Example: hgld evaluate --embeddings embeddings.parquet --manifest train.csv --hierarchy hierarchy.parquet

    Args:
        protocol: Evaluation protocol. Default: leave-one-out; retrieval with a gallery; gldv2-retrieval with
            predictions.
        device: Device: cpu, cuda or cuda:N.
        precision: Number format in which scores are computed.
        ties: Tie-breaking: pessimistic (the less relevant item first), optimistic (the more relevant item first), or
            heaviside (all tied items get the last rank; H(0) = 1 in Eq. 3 of the paper).
        intervals: Print 95 % confidence intervals over the classes of the queries.
        json: Print JSON instead of tables.
        latex: Print a LaTeX table in the layout of the paper's Table VII.
        per_query: Parquet file to write with the values of every query.
        per_label: .csv or .parquet file to write with the AP of every label of each level, the lowest first; prints
            the lowest.
        write_predictions: .csv file to write with the first 100 gallery images of every query, or the landmark of
            gldv2-recognition, in the form of --predictions.
        worst: Number of queries with the lowest H-AP to show on a page.
        page: HTML file to write with --worst.
        images: Folder that contains the images for --worst, as files or in tar files; or the table from hgld
            index-images in that folder.
    """
    from hgld.compute.processes import joined_processes, local_device
    from hgld.evaluation import EvaluationConfig, RankingConfig, evaluate_files
    from hgld.evaluation.evaluation_files import evaluation_provenance
    from hgld.evaluation.results import write_per_query
    from hgld.models.embedding_files import recorded_distance
    from hgld.progress import NoProgress, TerminalProgress

    if json and latex:
        raise ConfigurationError("--json and --latex exclude each other; choose one of them")
    if worst and metric_settings.metrics and "H-AP" not in metric_settings.metrics:
        raise ConfigurationError("--worst requires H-AP; add --metric H-AP, or omit --metric")
    if files.predictions and (worst or per_label or write_predictions or reranking.rerank):
        raise ConfigurationError(
            "--worst, --per-label, --write-predictions and --rerank need embeddings, and no --predictions"
        )
    if protocol == "gldv2-recognition" and (worst or per_label):
        raise ConfigurationError(
            "--worst and --per-label show rankings, which gldv2-recognition does not score"
        )
    if files.distractor_embeddings and worst:
        raise ConfigurationError(
            "--worst needs labels of all images, and no --distractor-embeddings"
        )
    with joined_processes() as processes, TerminalProgress("evaluate", "queries") as progress:
        if distance is None:
            distance = recorded_distance(files.embeddings or files.gallery_embeddings)
        ranking = RankingConfig(
            device=local_device(device),
            precision=precision,
            distance=distance,
            ties=ties,
            reranking=reranking,
        )
        config = EvaluationConfig(
            **vars(metric_settings),
            ranking=ranking,
            processes=processes,
            progress=NoProgress() if processes.rank else progress,
        )
        evaluation = evaluate_files(files, protocol, config)
    if processes.rank:  # the first process prints
        return
    # The results are printed before writing files can fail.
    metrics = metric_settings.metrics
    typer.echo(_results_text(evaluation, metrics, intervals=intervals, json=json, latex=latex))
    not_text = json or latex  # stdout holds the results only
    provenance = partial(evaluation_provenance, files, protocol, config)
    if per_query:
        write_per_query(evaluation.results, per_query, provenance())
        typer.echo(per_query, err=not_text)
    if per_label:
        from hgld.inspection.label_table import average_precision_per_label, write_label_table

        table = average_precision_per_label(evaluation, config)
        write_label_table(table, per_label, provenance())
        if not not_text:
            typer.echo(format_label_table(table))
        typer.echo(per_label, err=not_text)
    if write_predictions:
        from hgld.inspection.queries import write_predictions as write_query_answers

        write_query_answers(evaluation, write_predictions, config=config.ranking)
        typer.echo(write_predictions, err=not_text)
    if worst:
        from hgld.inspection.query_pages import write_evaluation_page

        write_evaluation_page(
            evaluation, page, worst, images=images, sources=files.labels, config=config.ranking
        )
        typer.echo(page, err=not_text)


def _results_text(
    evaluation: Evaluation,
    metrics: Sequence[str] | None,
    *,
    intervals: bool,
    json: bool,
    latex: bool,
) -> str:
    """Return the results as tables, JSON or LaTeX."""
    from hgld.evaluation.results import results_to_json, results_to_latex

    results = evaluation.results
    if latex:
        return results_to_latex(results, metrics=metrics)
    bounds = [result.intervals() for result in results] if intervals else None
    if json:
        return results_to_json(results, intervals=bounds, mean=evaluation.mean)
    return format_evaluation(results, intervals=bounds, mean=evaluation.mean)


def format_evaluation(
    results: Sequence[RetrievalResult],
    *,
    intervals: Sequence[Mapping[str, Interval]] | None = None,
    mean: Mapping[str, float] | None = None,
    width: int = WIDTH,
) -> str:
    """Format tables of means and of counts, and sentences on the settings of the numbers.

    Args:
        results: Results of the parts of a protocol, which may have different metrics.
        intervals: 95 % intervals of each result by metric, shown below its means.
        mean: Mean over the results by metric, shown in a row of its own.
        width: Largest number of characters of a line.
    """
    from hgld.evaluation.results import WITHOUT_POSITIVES, metric_names, setting_notes

    rows = []
    notes = []
    for index, result in enumerate(results):
        rows.append((result.name, _value_cells(result.means)))
        if intervals is not None:
            low = {metric: interval[0] for metric, interval in intervals[index].items()}
            high = {metric: interval[1] for metric, interval in intervals[index].items()}
            rows.append(("  95 % from", _value_cells(low)))
            rows.append(("  to", _value_cells(high)))
        if any(name.startswith(WITHOUT_POSITIVES) for name in result.counts):
            notes = [_EXCLUDED_QUERIES]
    if mean is not None:
        rows.append(("mean", _value_cells(mean)))
    lines = [
        wrapped_table("mean in %", metric_names(results), rows, width=width),
        _counts_table(results, width),
    ]
    notes += setting_notes(results)
    for note in notes:
        lines += wrap(note, width, break_on_hyphens=False)
    return "\n".join(lines)


def format_means(means: Mapping[str, Mapping[str, float]], *, width: int = WIDTH) -> str:
    """Format means by metric in named rows; the columns are the metrics of the first row.

    Shares are in percent, and distances in levels, as their titles say.
    """
    from hgld.evaluation.metric_units import percent_title

    rows = []
    for name, row in means.items():
        cells = _value_cells(row)
        rows.append((name, {percent_title(metric): cell for metric, cell in cells.items()}))
    first_row = next(iter(means.values()))
    titles = [percent_title(metric) for metric in first_row]
    return wrapped_table("mean in %", titles, rows, width=width)


def format_label_table(table: pd.DataFrame, *, n: int = 5) -> str:
    """Format the number of labels of each level, their mean AP, and the n labels with the lowest."""
    lines = []
    for (_, level_name), labels in table.groupby(["level", "level_name"], sort=False):
        with_ap = labels.dropna(subset="ap")
        title = f"{level_name}: {len(labels):,} labels, "
        if not len(with_ap):
            lines.append(f"{title}none has positives")
            continue
        lines.append(f"{title}mean AP {100 * with_ap['ap'].mean():.2f} %; the lowest:")
        rows = []
        for row in with_ap.head(n).itertuples():
            rows.append([row.label, f"{100 * row.ap:.2f}", row.queries, row.gallery_images])
        lines += aligned(["label", "AP in %", "queries", "images"], rows, indent="  ")
    return "\n".join(lines)


def _counts_table(results: Sequence[RetrievalResult], width: int) -> str:
    """Format the numbers of queries, gallery items, and queries without a positive by level."""
    from hgld.evaluation.results import WITHOUT_POSITIVES

    n_levels = 0
    for result in results:
        n_levels_of_result = sum(name.startswith(WITHOUT_POSITIVES) for name in result.counts)
        n_levels = max(n_levels, n_levels_of_result)
    titles = {"queries": "queries", "gallery": "gallery"}
    for level in range(n_levels, 0, -1):
        titles[f"{WITHOUT_POSITIVES}_l{level}"] = f"no l{level}"
    rows = []
    for result in results:
        cells = {}
        for name, title in titles.items():
            if name in result.counts:
                cells[title] = f"{result.counts[name]:,}"
        rows.append((result.name, cells))
    return wrapped_table("count", list(titles.values()), rows, width=width)


def _value_cells(values: Mapping[str, float]) -> dict[str, str]:
    """Format values in percent, and distances in levels; a dash stands for a missing value."""
    from hgld.evaluation.metric_units import shown_value

    cells = {}
    for name, value in values.items():
        cells[name] = f"{shown_value(name, value):.2f}" if math.isfinite(value) else "–"
    return cells


@app.command(rich_help_panel="Retrieval")
@field_options(
    DiagnosisConfig,
    batch_size=typer.Option(min=2),
    per_class=typer.Option(min=2),
    max_batches=typer.Option(min=1),
    temperatures="--tau",
    seed=typer.Option(min=0),
)
def diagnose(
    *,
    embeddings: Annotated[Path, typer.Option()],
    labels: Annotated[Path | None, field_option(EvaluationFiles, "labels", "--manifest")] = None,
    hierarchy: Annotated[Path | None, field_option(EvaluationFiles, "hierarchy")] = None,
    split: Annotated[str | None, field_option(EvaluationFiles, "split")] = None,
    baseline: Path | None = None,
    config: DiagnosisConfig,
    json: Json = False,
) -> None:
    """Diagnose embeddings in batches: decomposability gap and its bounds, errors and gradients of rank surrogates.

    Example: hgld diagnose --embeddings roadmap.parquet --baseline sup_ap.parquet --manifest manifest.parquet

    Args:
        embeddings: Embeddings of all images: .npy, .safetensors or .parquet.
        baseline: Embeddings of the same images, in the same order, by another model, to compare decomposability gaps
            with.
    """
    from hgld.losses.diagnosis import diagnose_files, diagnosis_to_json

    files = EvaluationFiles(embeddings=embeddings, labels=labels, hierarchy=hierarchy, split=split)
    diagnosis, baseline_diagnosis = diagnose_files(files, baseline, config)
    if json:
        typer.echo(diagnosis_to_json(diagnosis, baseline_diagnosis, config))
    else:
        typer.echo(_format_diagnosis(diagnosis, baseline_diagnosis, config))


def _format_diagnosis(
    diagnosis: Diagnosis, baseline: Diagnosis | None, config: DiagnosisConfig
) -> str:
    from hgld.losses.diagnosis import relative_decrease

    gap_rows = [("embeddings", _gap_cells(diagnosis, config.metric))]
    if baseline is not None:
        gap_rows.append(("baseline", _gap_cells(baseline, config.metric)))
    gap_columns = list(gap_rows[0][1])
    step_rows = []
    for name, step in diagnosis.steps.items():
        cells = {
            "AP error": percent(step.ap_error),
            "gradient: all": percent(step.pairs),
            "ranked": percent(step.ranked_negatives),
            "wrong": percent(step.wrong_negatives),
        }
        step_rows.append((name, cells))
    step_columns = list(step_rows[0][1])
    lines = [
        f"{diagnosis.images:,} images of {diagnosis.classes:,} classes in {diagnosis.batches:,} batches of "
        f"{config.batch_size:,} with {config.per_class} of each class",
        "",
        wrapped_table(f"{config.metric} in %", gap_columns, gap_rows),
    ]
    if baseline is not None:
        decrease = percent(relative_decrease(baseline, diagnosis))
        lines += [f"gap smaller than that of the baseline by {decrease} %", ""]
    lines.append(wrapped_table("step, in %", step_columns, step_rows))
    for note in _DIAGNOSIS_NOTES:
        lines += wrap(note, WIDTH, break_on_hyphens=False)
    return "\n".join(lines)


def _gap_cells(diagnosis: Diagnosis, metric: str) -> dict[str, str]:
    gap = diagnosis.gap
    cells = {
        "whole set": percent(gap.whole),
        "batches": percent(gap.batches),
        "gap": percent(gap.gap),
    }
    if metric == "AP":
        cells["bound"] = percent(diagnosis.bound)
        cells["with L_DG"] = percent(diagnosis.calibrated_bound)
    return cells
