"""``hgld reject``: rejection scores, which say that an image is not in an index: fit, apply and compare them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from hgld.cli.base import (
    OUT_FOLDER,
    App,
    FigureFormat,
    Force,
    Json,
    app,
    friendly_errors,
    option,
    out_file,
    print_summary,
    run_stage,
)
from hgld.cli.images import format_manifest
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines, listed
from hgld.errors import ConfigurationError, indented_list
from hgld.progress import TerminalProgress, byte_size

if TYPE_CHECKING:
    from hgld.benchmark.rejection import RejectionComparison
    from hgld.benchmark.rejection.values import RejectionValues
    from hgld.datasets.manifest_files import ManifestSummary
    from hgld.rejection import Detector
    from hgld.rejection.detector_files import Calibration, Figure
    from hgld.search.calibration import CalibrationFiles
    from hgld.search.detectors import FitSummary, IndexFiles, ScoredFiles, ScoredImages

reject = App(no_args_is_help=True, rich_markup_mode="markdown")

Unknown = Annotated[
    list[str] | None,
    option(
        "Embeddings of images that show no landmark of the index, and what to call them, such as far=food.npy; "
        "may be repeated.",
        metavar="NAME=FILE",
    ),
]


@reject.callback()
def about() -> None:
    """Tell which images are not in an index: fit a rejection score, find thresholds, score images.

    Example: hgld reject fit mahalanobis --embeddings index.npy --labels labels.csv -o detector
    """


app.add_typer(reject, name="reject", rich_help_panel="Retrieval")


def _complete_score(incomplete: str) -> list[str]:
    from hgld.rejection import DETECTORS

    return [name for name in DETECTORS if name.startswith(incomplete)]


@reject.command()
def scores() -> None:
    """List the rejection scores, what they need beside embeddings, and their options with the defaults.

    Example: hgld reject scores
    """
    from hgld.rejection import DETECTORS

    typer.echo("\n".join(_format_score(name, score) for name, score in DETECTORS.items()))


def _format_score(name: str, score: type[Detector]) -> str:
    from hgld.rejection.detector_files import score_summary

    hints = get_type_hints(score.__init__)
    options = [
        f"{key}={parameter.default}{_other_choices(hints[key], parameter.default)}"
        for key, parameter in inspect.signature(score).parameters.items()
    ]
    inputs = [("needs", score.requires), ("takes", score.uses)]
    title = [f"{verb} {', '.join(sorted(names))}" for verb, names in inputs if names]
    if options:
        title.append(", ".join(options))
    description = wrap(
        score_summary(score), 88, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    return lines(f"{name}: {'; '.join(title)}" if title else name, description)


def _other_choices(hint: Any, default: Any) -> str:
    """Return the other values of an option that is one of a few texts, such as " (or code)"."""
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    others = [str(choice) for choice in choices if choice != default]
    return f" (or {', '.join(others)})" if others else ""


@reject.command()
@options_of(
    "hgld.datasets.manifest_files:split_manifest",
    "split_manifest",
    path={"kind": typer.Argument, "metavar": "MANIFEST"},
    out=out_file(".parquet"),
)
def split(*, split_manifest: partial[ManifestSummary | None]) -> None:
    """Divide images into an index, queries for calibration and a test, with classes that the index lacks.

    Half of the queries and of the classes that the index lacks are in the split queries, the other half in the split
    test.

    Example: hgld reject split manifest.parquet -o splits.parquet
    """
    run_stage(split_manifest, format_manifest)


@reject.command()
@options_of("hgld.search.detectors:IndexFiles", "index")
@options_of("hgld.search.calibration:CalibrationFiles", "calibration")
def fit(
    *,
    score: Annotated[str, typer.Argument(autocompletion=_complete_score)],
    index: IndexFiles,
    out: Annotated[Path, OUT_FOLDER],
    option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE")] = None,
    queries: Path | None = None,
    unknown: Unknown = None,
    calibration: Callable[..., CalibrationFiles],
) -> None:
    """Fit a rejection score on the images of an index, and write it to a folder with a card.

    With --queries, a threshold is found for each level of the labels, by which hgld search rejects. The images should
    resemble those to come, in the share of unknown ones above all.

    Example: hgld reject fit soft_vote --embeddings index.npy --labels labels.csv --option k=3 -o detector

    Args:
        score: Rejection score; hgld reject scores lists them.
        out: Folder of the detector to write.
        option: Option of the score, such as k=3; may be repeated.
        queries: Embeddings of calibration images, some of landmarks of the index, on which thresholds are found.
    """
    with friendly_errors(again="run the same command again"):
        from hgld.search.detectors import fit_detector

        files = None
        if queries is not None:
            files = calibration(unknown=named_files(unknown))
        elif unknown or calibration(queries=None).query_labels:
            raise ConfigurationError(
                "`unknown` and `query_labels` are for thresholds; add `queries`, or leave them out"
            )
        options = dict(named_values(option or (), "option"))
        print_summary(out, fit_detector(score, options, index, out, calibration=files), _format_fit)


def _format_fit(summary: FitSummary) -> str:
    detector, record = summary.detector, summary.record
    options = ", ".join(f"{name}={value}" for name, value in detector.options().items())
    return lines(
        f"{detector.name}{f' ({options})' if options else ''} fitted on {record.n_images:,} images of "
        f"{detector.dim:,} dimensions in {summary.seconds:.1f} s, {byte_size(summary.n_bytes)}",
        record.calibration is not None and _format_calibration(record.calibration, record.level_names),
    )


def _format_calibration(calibration: Calibration, level_names: Sequence[str]) -> str:
    from hgld.rejection.detector_files import THRESHOLD_COLUMNS, figure_text, threshold_cells

    thresholds = calibration.thresholds
    rows = [threshold_cells(*level) for level in zip(level_names, thresholds, strict=True)]
    return lines(
        f"calibration images: {listed(calibration.n_images)}; GAP {figure_text(calibration.gap)} %",
        f"thresholds for {thresholds[0].target:.0%} precision, and what they accept of these images:",
        aligned(THRESHOLD_COLUMNS, rows, indent="  "),
        _format_detection(calibration.detection),
    )


def _format_detection(detection: Mapping[str, Mapping[str, Figure]]) -> list[str]:
    from hgld.rejection.detector_files import figure_text

    names = list(next(iter(detection.values())))
    rows = [[name, *(figure_text(figures[name]) for figures in detection.values())] for name in names]
    return aligned(["detection in %", *(f"known from {name}" for name in detection)], rows)


@reject.command()
@options_of("hgld.search.detectors:ScoredFiles", "images")
def score(
    *,
    detector: Path,
    images: Callable[..., ScoredFiles],
    unknown: Unknown = None,
    out: Annotated[Path | None, out_file(".csv", ".parquet")] = None,
    json: Json = False,
) -> None:
    """Score images by a fitted detector: the higher, the less they are like its index.

    With --unknown, the images of --embeddings count as known, and metrics say how well the score tells each kind of
    unknown images from them.

    Example: hgld reject score detector --embeddings queries.npy --unknown far=groceries.npy -o scores.parquet

    Args:
        detector: Folder of a detector from hgld reject fit.
        out: Score of each image to write: .csv or .parquet.
    """
    from hgld.rejection.detector_files import DESCRIPTION
    from hgld.search.detectors import score_images, scores_to_json, write_scores
    from hgld.tables import Provenance, input_digests

    files = images(unknown=named_files(unknown))
    scored = score_images(detector, files)
    typer.echo(scores_to_json(scored) if json else _format_scored(scored))
    if out is not None:
        inputs = input_digests(
            detector=detector / DESCRIPTION,
            embeddings=files.embeddings,
            logits=files.logits,
            deviations=files.deviations,
            **{f"unknown/{name}": path for name, path in files.unknown.items()},
        )
        write_scores(out, scored, Provenance("reject score", {}, inputs))
        typer.echo(out, err=json)


def _format_scored(scored: ScoredImages) -> str:
    from hgld.search.detectors import IMAGES, QUANTILES

    accepted = [f"{level} accepted" for level in scored.accepted(IMAGES) or ()]
    header = ["score", "images", *(f"{100 * share:.0f} %" for share in QUANTILES), *accepted]
    rows = [
        [
            kind,
            len(scores),
            *(f"{value:.4g}" for value in scored.quantiles(kind)),
            *(f"{share:.1%}" for share in (scored.accepted(kind) or {}).values()),
        ]
        for kind, scores in scored.scores.items()
    ]
    detection = scored.detection()
    return lines(aligned(header, rows), _format_detection(detection) if detection else None)


def named_files(texts: Sequence[str] | None) -> dict[str, Path]:
    """Return the files of ``--unknown`` by name."""
    return {name: Path(path) for name, path in named_values(texts or (), "unknown")}


def named_values(texts: Sequence[str], parameter: str) -> list[tuple[str, str]]:
    """Return the names and values of texts such as ``k=3``.

    Args:
        texts: Texts, each with another name.
        parameter: Parameter in error messages.

    Raises:
        ConfigurationError: A text has no name or no value, or names are repeated.

    >>> named_values(["k=3"], "option")
    [('k', '3')]
    """
    pairs: list[tuple[str, str]] = []
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise ConfigurationError(f'`{parameter}` is "{text}"; expected NAME=VALUE')
        if name in dict(pairs):
            raise ConfigurationError(f"`{parameter}` names {name} twice; name each once")
        pairs.append((name, value))
    return pairs


@reject.command()
def compare(
    settings: Path,
    out: Annotated[Path, OUT_FOLDER],
    plan: bool = False,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Compare rejection scores on known, near and far queries: tables, a figure, intervals, confident mistakes.

    Scores that are finished are kept; an interrupted comparison is resumed.

    Example: hgld reject compare washington -o runs/rejection

    Args:
        settings: Settings of the comparison: a YAML file, or one that comes with hgld, such as washington.
        out: Folder of scores and results.
        plan: Print the sets of images, missing files and what is done, then exit.
    """
    from hgld.benchmark.rejection import RejectionComparison, compare_rejection, read_rejection_settings
    from hgld.io.settings import rejection_file

    study = RejectionComparison(read_rejection_settings(rejection_file(settings)), out)
    if plan:
        typer.echo(format_plan(study))
        return
    with TerminalProgress("reject compare", "scores") as progress:
        values, files = compare_rejection(study, force=force, progress=progress)
    typer.echo(lines(format_comparison(study, values), [*map(str, files), str(out)]))


def format_comparison(study: RejectionComparison, values: RejectionValues) -> str:
    """Return the means of GAP and AUROC of each score, and what failed."""
    from hgld.benchmark.rejection.settings import ALL_UNKNOWN

    settings, unknown = study.settings, values.unknown()
    columns = [(unknown[-1], "gap"), *((name, "auroc") for name in unknown if name != ALL_UNKNOWN)]
    tables = []
    for name, embedding in settings.embeddings.items():
        rows = []
        for score in settings.score_settings():
            means = [values.mean((name, score, *column)) for column in columns]
            cells = ["–" if mean is None else f"{100 * mean['value']:.1f}" for mean in means]
            if any(mean is not None for mean in means):
                rows.append([settings.score_title(score), *cells])
        header = [f"{embedding.title}, %", *(f"{metric.upper()} {name}" for name, metric in columns)]
        tables += [*aligned(header, rows), ""]
    reasons = list(map(str, study.failed))
    return lines(
        tables,
        f"{study.n_results:,} scores, {study.n_kept:,} done before",
        len(reasons) > 0 and f"{len(reasons):,} not computed:\n{indented_list(reasons)}",
    )


def format_plan(study: RejectionComparison) -> str:
    """Return the sets of images of each split, what is to do, and the files that are missing."""
    settings, sizes, missing = study.settings, study.sizes(), study.missing()
    names = list(next(iter(sizes.values())))
    rows = [[str(split), *(of_split[name] for name in names)] for split, of_split in sizes.items()]
    n_scores, n_embeddings = len(settings.score_settings()), len(settings.embeddings)
    n_pairs = sum(size["index"] * (sum(size.values()) - size["index"]) for size in sizes.values())
    return lines(
        settings.title,
        "",
        aligned(["split", *names], rows),
        "",
        f"{study.n_results:,} scores ({n_scores} of {n_embeddings} embeddings on {len(sizes)} splits), "
        f"{0 if missing else study.n_finished():,} of them done",
        f"up to {n_pairs * n_embeddings * n_scores:,} comparisons of a query and an image of the index",
        len(missing) > 0 and ["", "Missing files:", indented_list(missing)],
    )
