"""The command ``evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgld.cli.base import LandmarkSplit, Levels, SharedCommand, app, friendly_errors, writable_file
from hgld.errors import ConfigurationError
from hgld.evaluation.protocols import PROTOCOL_NAMES

if TYPE_CHECKING:
    from hgld.evaluation import Evaluation, EvaluationFiles
    from hgld.evaluation.rejection_config import RejectionConfig
    from hgld.evaluation.rejection_report import RejectionReport

    ProtocolName = str
else:
    ProtocolName = Literal[PROTOCOL_NAMES]


_metric_option = partial(typer.Option, rich_help_panel="Metrics")
_ranking_option = partial(typer.Option, rich_help_panel="Ranking")
_rejection_option = partial(typer.Option, rich_help_panel="Rejection")
_output_option = partial(typer.Option, rich_help_panel="Output")


@app.command(cls=SharedCommand, rich_help_panel="Retrieval")
def evaluate(
    embeddings: Annotated[
        Path | None, typer.Option(help="Embeddings of all images: .npy, .safetensors or .parquet.")
    ] = None,
    query_embeddings: Annotated[
        Path | None, typer.Option(help="Embeddings of the queries; requires --gallery-embeddings.")
    ] = None,
    gallery_embeddings: Annotated[
        Path | None, typer.Option(help="Embeddings of the gallery, in separate files from the queries.")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Predictions to score instead of embeddings, in the form of the public landmark challenges; "
            "requires --ground-truth. For retrieval: .csv with id and images, ids separated by spaces; for "
            "gldv2-recognition: with id and landmarks, a landmark and its score separated by a space."
        ),
    ] = None,
    distractor_embeddings: Annotated[
        Path | None,
        typer.Option(help="Embeddings of images to add to the gallery of roxford or rparis, such as those of R1M."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels of the images: .csv or .parquet with id and landmark_id (GLDv2's own files) or with id and "
            "a column per level, finest first, such as a manifest, of lists for several labels per image; or .npy, "
            "row by row.",
            show_default="landmark_id of the embeddings",
        ),
    ] = None,
    query_labels: Annotated[
        Path | None, typer.Option(help="Labels of the queries, in the same formats.", show_default="--labels")
    ] = None,
    label_separator: Annotated[
        str | None,
        typer.Option(
            help="Separator between the labels of an image in --labels, such as a semicolon.",
            show_default="one label",
        ),
    ] = None,
    hierarchy: Levels = None,
    split: LandmarkSplit = None,
    protocol: Annotated[
        ProtocolName | None,
        typer.Option(
            help="Evaluation protocol.",
            show_default="leave-one-out; retrieval with a gallery; gldv2-retrieval with predictions",
        ),
    ] = None,
    ground_truth: Annotated[
        Path | None,
        typer.Option(
            help="Ground truth of the protocol: the folder of GLDv2's or DyML's files, gnd_roxford5k.pkl, or "
            "recognition_solution_v2.1.csv."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        _metric_option(
            help="Metric to report; may be repeated: AP, mAP@R, mAP@K, R@K, TR@K, P@K (with _lN for a level N that "
            "is not the finest), wAP, H-AP, H-AP_selfcount, H-R@K, H-P@K, NDCG, NDCG@K, SI@K, ASI, HP@K, AHP, AHP@K, "
            "WUP@K, hF, mistake_severity, avg_hdist@K, min_hdist@K; "
            "docs/reference/metrics.md defines them and their variants.",
            show_default="those of the papers",
        ),
    ] = None,
    alpha: Annotated[float, _metric_option(help="Exponent alpha of the relevance in H-AP (Eq. 20).")] = 1.0,
    level_weights: Annotated[
        str | None,
        _metric_option(
            help="Weights of the levels in wAP, coarsest first and separated by commas, such as 0.2,0.3,0.5; scaled "
            "to add up to 1.",
            show_default="equal",
        ),
    ] = None,
    several_labels: Annotated[
        Literal["mean", "best"],
        _metric_option(
            help="Relevance of images with several labels in H-AP and NDCG: the mean over the labels of the query "
            "(Algorithm 1 of the thesis), or Eq. 20 for the best level that any labels share."
        ),
    ] = "mean",
    device: Annotated[str, _ranking_option(help="Device: cpu, cuda or cuda:N.")] = "cpu",
    precision: Annotated[Literal["float32", "tf32", "float64"], _ranking_option(help="Score precision.")] = "float32",
    ties: Annotated[
        Literal["pessimistic", "optimistic"],
        _ranking_option(help="Order of equal scores: the less or the more relevant item first."),
    ] = "pessimistic",
    block_size: Annotated[
        int | None, _ranking_option(min=1, help="Number of queries ranked at once.", show_default="by memory")
    ] = None,
    reject: Annotated[
        str | None,
        _rejection_option(
            metavar="SCORE|FOLDER",
            help="Score by which queries are rejected as not in the gallery: one of hgld reject scores, fitted on "
            "the gallery, or the folder of a detector from hgld reject fit. Reports risk over coverage, GAP, and the "
            "detection of unknown images.",
            show_default="none; top1_cosine for gldv2-recognition",
        ),
    ] = None,
    reject_option: Annotated[
        list[str] | None,
        _rejection_option(metavar="NAME=VALUE", help="Option of the score, such as k=3; may be repeated."),
    ] = None,
    reject_precision: Annotated[
        float,
        _rejection_option(help="Wanted share of right answers among those that the reported threshold accepts."),
    ] = 0.9,
    unknown: Annotated[
        list[str] | None,
        _rejection_option(
            metavar="NAME=FILE",
            help="Embeddings of images that show no landmark of the gallery, and what to call them, such as "
            "near=near.parquet; may be repeated. Requires --reject.",
        ),
    ] = None,
    intervals: Annotated[
        bool,
        _output_option("--intervals/--no-intervals", help="Print bootstrap 95 % confidence intervals over queries."),
    ] = True,
    json: Annotated[bool, _output_option("--json", help="Print JSON instead of tables.")] = False,
    latex: Annotated[
        bool, _output_option("--latex", help="Print a LaTeX table in the layout of the paper's Table VII.")
    ] = False,
    per_query: Annotated[
        Path | None,
        _output_option(
            callback=writable_file(".parquet"), help="Parquet file to write with the values of every query."
        ),
    ] = None,
    per_label: Annotated[
        Path | None,
        _output_option(
            callback=writable_file(".csv", ".parquet"),
            help=".csv or .parquet file to write with the AP of every label of each level, the lowest first; prints "
            "the lowest.",
        ),
    ] = None,
    write_predictions: Annotated[
        Path | None,
        _output_option(
            callback=writable_file(".csv"),
            help=".csv file to write with the first 100 gallery images of every query, or the landmark of "
            "gldv2-recognition, in the form of --predictions.",
        ),
    ] = None,
    worst: Annotated[
        int | None, _output_option(min=1, help="Number of queries with the lowest H-AP to show on a page.")
    ] = None,
    page: Annotated[
        Path, _output_option(callback=writable_file(".html"), help="HTML file to write with --worst.")
    ] = Path("worst.html"),
    images: Annotated[
        Path | None,
        _output_option(
            help="Images for --worst: their folder, of image files or tar files, or a manifest or the table from "
            "hgld index-images in it."
        ),
    ] = None,
) -> None:
    """Evaluate embeddings: mAP@100, mAP@R, R@1, H-AP, NDCG, ASI, AP of each level.

    Several processes share the queries: torchrun --nproc-per-node 2 -m hgld evaluate ..., or srun --ntasks 2 hgld
    evaluate ...

    Example: hgld evaluate --embeddings embeddings.parquet --labels train.csv --hierarchy hierarchy.parquet
    """
    with friendly_errors(metrics="--metric", relevance_alpha="--alpha", options="--reject-option"):
        from hgld.cli.summaries.evaluation import format_label_table
        from hgld.compute.processes import joined_processes, local_device
        from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
        from hgld.evaluation.evaluate_from_files import rejection_reports
        from hgld.evaluation.per_query_table import write_per_query
        from hgld.inspection.label_table import (
            average_precision_per_label,
            write_label_table,
        )
        from hgld.inspection.queries import write_predictions as write_query_answers
        from hgld.inspection.query_pages import write_evaluation_page
        from hgld.progress import NoProgress, TerminalProgress

        if json and latex:
            raise ConfigurationError("--json and --latex exclude each other; choose one of them")
        if worst and metric and "H-AP" not in metric:
            raise ConfigurationError("--worst requires H-AP; add --metric H-AP, or omit --metric")
        if predictions and (worst or per_label or write_predictions):
            raise ConfigurationError(
                "--worst, --per-label and --write-predictions need embeddings, and no --predictions"
            )
        if protocol == "gldv2-recognition" and (worst or per_label):
            raise ConfigurationError("--worst and --per-label show rankings, which gldv2-recognition does not score")
        files = EvaluationFiles(
            embeddings=embeddings,
            query_embeddings=query_embeddings,
            gallery_embeddings=gallery_embeddings,
            labels=labels,
            query_labels=query_labels,
            hierarchy=hierarchy,
            split=split,
            ground_truth=ground_truth,
            label_separator=label_separator,
            predictions=predictions,
            distractor_embeddings=distractor_embeddings,
        )
        ranking = RankingConfig(block_size, local_device(device), precision, ties=ties)
        with joined_processes() as processes, TerminalProgress("evaluate", "queries") as progress:
            rejection = None
            if reject is not None:
                rejection = rejection_from_options(reject, reject_option, reject_precision, unknown, files)
            elif reject_option or unknown:
                raise ConfigurationError("--reject-option and --unknown are for rejection scores; add --reject")
            config = EvaluationConfig(
                metrics=tuple(metric) if metric else None,
                relevance_alpha=alpha,
                level_weights=parse_level_weights(level_weights) if level_weights is not None else None,
                several_labels=several_labels,
                ranking=ranking,
                rejection=rejection,
                processes=processes,
                progress=NoProgress() if processes.rank else progress,
            )
            evaluation = evaluate_files(files, protocol, config)
        if processes.rank:  # the first process prints
            return
        reports = None
        if rejection is not None:
            reports = rejection_reports(evaluation, config, split=split, intervals=intervals and not latex)
        typer.echo(_results_text(evaluation, metric, reports, intervals=intervals, json=json, latex=latex))
        # The results are on the screen before writing files can fail.
        if per_query:
            write_per_query(evaluation.results, per_query, files.provenance(protocol, config))
            typer.echo(per_query, err=json or latex)
        if per_label:
            table = average_precision_per_label(evaluation, config)
            write_label_table(table, per_label, files.provenance(protocol, config))
            typer.echo(per_label if json or latex else f"{format_label_table(table)}\n{per_label}", err=json or latex)
        if write_predictions:
            write_query_answers(evaluation, write_predictions, config=ranking)
            typer.echo(write_predictions, err=json or latex)
        if worst:
            write_evaluation_page(evaluation, page, worst, images=images, sources=labels, config=ranking)
            typer.echo(page, err=json or latex)


def _results_text(
    evaluation: Evaluation,
    metrics: list[str] | None,
    reports: Sequence[RejectionReport] | None,
    *,
    intervals: bool,
    json: bool,
    latex: bool,
) -> str:
    """Return the results as tables, JSON or LaTeX."""
    from hgld.cli.summaries.evaluation import format_evaluation
    from hgld.cli.summaries.rejected_queries import format_rejection
    from hgld.evaluation.json_report import results_to_json
    from hgld.evaluation.latex_table import results_to_latex
    from hgld.evaluation.rejection_table import rejection_to_latex

    results = evaluation.results
    if latex:
        tables = [results_to_latex(results, metrics=metrics)]
        return "\n\n".join([*tables, *([rejection_to_latex(reports)] if reports else [])])
    bounds = [result.intervals() for result in results] if intervals else None
    if json:
        return results_to_json(results, intervals=bounds, mean=evaluation.mean, rejection=reports)
    tables = [format_evaluation(results, intervals=bounds, mean=evaluation.mean)]
    return "\n\n".join([*tables, *([format_rejection(reports)] if reports else [])])


def rejection_from_options(
    reject: str,
    options: Sequence[str] | None,
    precision: float,
    unknown: Sequence[str] | None,
    files: EvaluationFiles,
) -> RejectionConfig:
    """Return the rejection score of ``--reject``, and the sets of unknown images.

    Raises:
        ConfigurationError: There is no such score, an option is malformed, or a detector or unknown images belong to
            embeddings of another model.
        InputError: A file is missing or malformed.
    """
    from hgld.cli.reject import named_files, named_values
    from hgld.evaluation.rejection_config import RejectionConfig
    from hgld.rejection import DETECTORS, load_detector
    from hgld.search.detector_fit import check_same_model
    from hgld.tables.embeddings import read_embeddings

    chosen = dict(named_values(options or (), "reject_option"))
    paths = named_files(unknown)
    sets = {name: read_embeddings(path) for name, path in paths.items()}
    if reject in DETECTORS:
        return RejectionConfig(reject, chosen, precision=precision, unknown=sets)
    if not Path(reject).is_dir():
        raise ConfigurationError(
            f"there is no rejection score {reject}, nor a folder of that name; hgld reject scores lists them"
        )
    saved = load_detector(Path(reject))
    for path in (files.embeddings, files.query_embeddings, files.gallery_embeddings, *paths.values()):
        if path is not None:
            check_same_model(saved.record.model, path, reject)
    return RejectionConfig(options=chosen, detector=saved.detector, precision=precision, unknown=sets)


def parse_level_weights(text: str) -> tuple[float, ...]:
    """Return the numbers of ``--level-weights``.

    Raises:
        ConfigurationError: A part is no number.

    >>> parse_level_weights("0.2,0.3,0.5")
    (0.2, 0.3, 0.5)
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(
            f'`level_weights` are "{text}"; expected numbers separated by commas, such as 0.2,0.3,0.5'
        ) from None
