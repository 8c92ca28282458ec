"""``hgld reject``: fit rejection scores, which say that an image is not in an index, and score images with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import (
    App,
    Force,
    GalleryLabels,
    LandmarkSplit,
    Levels,
    app,
    friendly_errors,
    print_summary,
    writable_file,
    writable_folder,
)
from hgld.errors import ConfigurationError

reject = App(no_args_is_help=True, rich_markup_mode="markdown")

Logits = Annotated[
    Path | None,
    typer.Option(
        help="Outputs of a classifier for the images, in a file like that of the embeddings.",
        show_default="x.logits.npy beside x.npy, for scores that need them",
    ),
]
Deviations = Annotated[
    Path | None,
    typer.Option(
        help="Standard deviations of feature maps, from hgld embed-images --with-std.",
        show_default="x.deviations.npy beside x.npy, for scores that need them",
    ),
]
Unknown = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE",
        help="Embeddings of images that show no landmark of the index, and what to call them, such as far=food.npy; "
        "may be repeated.",
    ),
]


@reject.callback()
def about() -> None:
    """Tell which images are not in an index: fit a rejection score, find thresholds, score images.

    Example: hgld reject fit mahalanobis --embeddings index.npy --labels labels.csv -o detector
    """


app.add_typer(reject, name="reject", rich_help_panel="Retrieval")


def complete_score(incomplete: str) -> list[str]:
    """Return the names of scores that begin with a text."""
    from hgld.rejection import DETECTORS

    return [name for name in DETECTORS if name.startswith(incomplete)]


@reject.command()
def scores() -> None:
    """List the rejection scores, what they need beside embeddings, and their options with the defaults.

    Example: hgld reject scores
    """
    from hgld.cli.summaries.rejection import format_scores
    from hgld.rejection import DETECTORS

    typer.echo(format_scores(DETECTORS))


@reject.command()
def split(
    manifest: Annotated[Path, typer.Argument(help="Manifest of images with labels, from hgld manifest.")],
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Manifest to write.")],
    near_share: Annotated[float, typer.Option(help="Share of the finest classes that the index lacks.")] = 0.5,
    query_share: Annotated[
        float, typer.Option(help="Share of the images of the other classes that are queries.")
    ] = 0.4,
    seed: Annotated[int, typer.Option(help="Seed of the random choice.")] = 0,
    force: Force = False,
) -> None:
    """Divide images into an index, queries for calibration and a test, with classes that the index lacks.

    Half of the queries and of the classes that the index lacks are in the split queries, the other half in the split
    test.

    Example: hgld reject split manifest.parquet -o splits.parquet
    """
    with friendly_errors():
        from hgld.cli.summaries.datasets import format_manifest
        from hgld.datasets.manifest_files import split_manifest

        summary = split_manifest(manifest, out, near_share, query_share, seed, force=force)
        print_summary(out, summary, format_manifest)


@reject.command()
def fit(
    score: Annotated[
        str, typer.Argument(help="Rejection score; hgld reject scores lists them.", autocompletion=complete_score)
    ],
    embeddings: Annotated[Path, typer.Option(help="Embeddings of the index.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", callback=writable_folder, help="Folder of the detector to write.")
    ],
    labels: GalleryLabels = None,
    hierarchy: Levels = None,
    split: LandmarkSplit = None,
    logits: Logits = None,
    deviations: Deviations = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of the score, such as k=3; may be repeated."),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Embeddings of calibration images, some of landmarks of the index, on which thresholds are found."
        ),
    ] = None,
    query_labels: Annotated[
        Path | None, typer.Option(help="Labels of --queries.", show_default="as for the images of the index")
    ] = None,
    unknown: Unknown = None,
    precision: Annotated[
        float, typer.Option(help="Wanted share of right answers among those that a threshold accepts.")
    ] = 0.9,
    conservative: Annotated[
        bool,
        typer.Option(
            "--conservative",
            help="Choose thresholds that reach the precision on new images with a confidence of 95 %.",
        ),
    ] = False,
) -> None:
    """Fit a rejection score on the images of an index, and write it to a folder with a card.

    With --queries, a threshold is found for each level of the labels, by which hgld search rejects. The images should
    resemble those to come, in the share of unknown ones above all.

    Example: hgld reject fit soft_vote --embeddings index.npy --labels labels.csv --option k=3 -o detector
    """
    with friendly_errors(again="run the same command again"):
        from hgld.cli.summaries.rejection import format_fit
        from hgld.search.detector_fit import CalibrationFiles, IndexFiles, fit_detector

        calibration = None
        if queries is not None:
            calibration = CalibrationFiles(queries, query_labels, named_files(unknown), precision, conservative)
        elif unknown or query_labels:
            raise ConfigurationError(
                "`unknown` and `query_labels` are for thresholds; add `queries`, or leave them out"
            )
        index = IndexFiles(embeddings, labels, hierarchy, split, logits, deviations)
        options = dict(named_values(option or (), "option"))
        summary = fit_detector(score, options, index, out, calibration=calibration)
        typer.echo(f"{format_fit(summary)}\n{out}")


@reject.command()
def score(
    detector: Annotated[Path, typer.Argument(help="Folder of a detector from hgld reject fit.")],
    embeddings: Annotated[Path, typer.Option(help="Embeddings of the images to score.")],
    logits: Logits = None,
    deviations: Deviations = None,
    unknown: Unknown = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            callback=writable_file(".csv", ".parquet"),
            help="Score of each image to write: .csv or .parquet.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Score images by a fitted detector: the higher, the less they are like its index.

    With --unknown, the images of --embeddings count as known, and metrics say how well the score tells each kind of
    unknown images from them.

    Example: hgld reject score detector --embeddings queries.npy --unknown far=groceries.npy -o scores.parquet
    """
    with friendly_errors():
        from hgld.cli.summaries.rejection import format_scored
        from hgld.rejection.detector_files import DESCRIPTION
        from hgld.search.score_images import (
            ScoredFiles,
            score_images,
            scores_to_json,
            write_scores,
        )
        from hgld.tables import Provenance, input_digests

        files = ScoredFiles(embeddings, logits, deviations, named_files(unknown))
        scored = score_images(detector, files)
        typer.echo(scores_to_json(scored) if json else format_scored(scored))
        if out is not None:
            further = {f"unknown/{name}": path for name, path in files.unknown.items()}
            inputs = input_digests(
                detector=detector / DESCRIPTION,
                embeddings=embeddings,
                logits=logits,
                deviations=deviations,
                **further,
            )
            write_scores(out, scored, Provenance("reject score", {}, inputs))
            typer.echo(out, err=json)


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
