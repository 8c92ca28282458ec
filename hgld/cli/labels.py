"""The commands from scraped landmarks to labels ready for review: clean, embed, cluster, suggest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import (
    ClassesBeside,
    FigureFormat,
    Force,
    ImageLandmarks,
    Images,
    Taxonomy,
    app,
    friendly_errors,
    parse_images,
    print_figure,
    print_summary,
    writable_file,
)
from hgld.errors import ConfigurationError
from hgld.progress import TerminalProgress


@app.command(rich_help_panel="Labels")
def clean(
    scraped: Annotated[list[Path], typer.Argument(help="Scraped tables, such as one per split.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Clean table to write.")
    ],
    removed: Annotated[
        Path | None,
        typer.Option(
            callback=writable_file(".parquet"),
            help="Table of removed landmarks to write.",
            show_default="removed.parquet beside the output",
        ),
    ] = None,
    irrelevant: Annotated[
        Path | None,
        typer.Option(
            help="CSV file (item,label,reason) of labels to exclude.",
            show_default="annotations/irrelevant_labels.csv",
        ),
    ] = None,
    keep_multiple: Annotated[
        Literal["first", "most-specific"] | None,
        typer.Option(help="Keep landmarks with several labels, with the first or the most specific label (by P279)."),
    ] = None,
    classes: Annotated[
        list[Path] | None,
        typer.Option(
            help="Tables of classes, for --keep-multiple most-specific.",
            show_default="X.classes.parquet beside X.parquet",
        ),
    ] = None,
    allow_errors: Annotated[
        bool, typer.Option("--allow-errors", help="Treat landmarks whose scrape failed as unlabelled.")
    ] = False,
    force: Force = False,
) -> None:
    """Keep one relevant label per landmark.

    Example: hgld clean scraped_train.parquet scraped_index.parquet -o clean.parquet
    """
    from hgld.cli.summaries.labels import format_clean
    from hgld.labels.clean import CleanConfig, clean_file

    with friendly_errors():
        summary = clean_file(
            scraped,
            out,
            CleanConfig(keep_multiple=keep_multiple, allow_errors=allow_errors),
            removed=removed,
            irrelevant=irrelevant,
            classes=classes,
            force=force,
        )
        print_summary(out, summary, format_clean)


@app.command(rich_help_panel="Labels")
def embed(
    clean: Annotated[Path, typer.Argument(help="Clean table.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Table of label embeddings to write."),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="open_clip:MODEL/TAG, open_clip:MODEL/PATH with a local checkpoint, minilm (no download) or ngrams "
            "(spelling only).",
            show_default="open_clip:ViT-L-14/laion2b_s32b_b82k",
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(
            help="Prompt template with one {} for the label; may be repeated, vectors are then averaged.",
            show_default="A picture of a {}",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Number of labels encoded at once.")] = 256,
    device: Annotated[
        str | None, typer.Option(help="Torch device.", show_default="cuda if available, else cpu")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Encode all labels again.")] = False,
) -> None:
    """Encode each unique label with a text encoder.

    Example: hgld embed clean.parquet -o label_embeddings.parquet --encoder minilm
    """
    from hgld.cli.summaries.labels import format_embed
    from hgld.labels.embed import DEFAULT_TEMPLATE, EmbedConfig, embed_file
    from hgld.labels.encoders import DEFAULT_ENCODER

    with friendly_errors(templates="--template"), TerminalProgress("embed", "labels") as progress:
        config = EmbedConfig(
            encoder=encoder or DEFAULT_ENCODER,
            templates=template or [DEFAULT_TEMPLATE],
            batch_size=batch_size,
            device=device,
        )
        summary = embed_file(clean, out, config, force=force, progress=progress)
        print_summary(out, summary, format_embed)


@app.command(rich_help_panel="Labels")
def cluster(
    embeddings: Annotated[Path, typer.Argument(help="Table of label embeddings.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            callback=writable_file(".parquet"),
            help="Table to write; a .png and a .html file are written beside it.",
        ),
    ],
    n_clusters: Annotated[int, typer.Option("-k", help="Number of clusters.")] = 12,
    subclusters: Annotated[int | None, typer.Option(help="Total number of sub-clusters.", show_default="78")] = None,
    distance_threshold: Annotated[
        float | None,
        typer.Option(help="Cosine distance up to which sub-clusters are merged; replaces --subclusters."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            help="Only print and plot (.sweep.png) inertia and silhouette for each k in this range.",
        ),
    ] = None,
    images: Images = None,
    image_landmarks: ImageLandmarks = None,
    clean: Annotated[
        Path | None,
        typer.Option(
            help="Clean table with the label of each landmark; for --images.",
            show_default="clean.parquet beside EMBEDDINGS",
        ),
    ] = None,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Group labels into clusters and sub-clusters, and draw them.

    With --images, the .html file holds up to three small photographs of a label, 5 MB together.

    Example: hgld cluster label_embeddings.parquet -o clusters.parquet
    """
    from hgld.cli.summaries.labels import format_clusters, format_sweep
    from hgld.labels.clustering import ClusterConfig
    from hgld.labels.clusters import cluster_file

    with friendly_errors(n_subclusters="--subclusters"), TerminalProgress("sweep", "k") as progress:
        if sweep is not None:
            from hgld.labels.cluster_sweep import sweep_file

            picture = out.with_suffix(".sweep.png")
            typer.echo(format_sweep(sweep_file(embeddings, picture, parse_sweep(sweep), seed, progress=progress)))
            print_figure(picture)
            return
        config = ClusterConfig(
            n_clusters=n_clusters,
            n_subclusters=subclusters,
            distance_threshold=distance_threshold,
            seed=seed,
        )
        photographs = None
        if images is not None or image_landmarks:
            from hgld.review.photographs import open_map_photographs

            photographs = open_map_photographs(
                images,
                clean or embeddings.with_name("clean.parquet"),
                [parse_images(text) for text in image_landmarks or ()],
            )
        summary = cluster_file(embeddings, out, config, photographs=photographs, force=force)
        print_summary(out, summary, format_clusters)


def parse_sweep(text: str) -> range:
    """Return the numbers of clusters in ``4:40``, both ends included.

    Raises:
        ConfigurationError: The text is no such range, or begins below 2 (the silhouette needs two clusters).

    >>> parse_sweep("4:6")
    range(4, 7)
    """
    match = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", text)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 2 <= first <= last:
        raise ConfigurationError(f'`sweep` is "{text}"; expected first:last such as 4:40, from 2 on')
    return range(first, last + 1)


@app.command(rich_help_panel="Labels")
def suggest(
    clusters: Annotated[Path, typer.Argument(help="Clusters from hgld cluster.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", callback=writable_file(".parquet"), help="Table to write; may be CLUSTERS itself."
        ),
    ],
    embeddings: Annotated[
        Path | None,
        typer.Option(help="Label embeddings.", show_default="label_embeddings.parquet beside CLUSTERS"),
    ] = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
    vocabulary: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="CSV file (term,group,items) of kinds of landmarks and their groups; may be repeated.",
            show_default="annotations/vocabulary.csv",
        ),
    ] = None,
    no_vocabulary: Annotated[bool, typer.Option("--no-vocabulary", help="Use no vocabulary.")] = False,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="CSV file of decisions on other labels, as evidence; may be repeated."),
    ] = None,
    evaluate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Only print and plot (.reliability.png beside the output) the agreement of suggestions with these "
            "decisions.",
        ),
    ] = None,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Suggest groups for every label, with a score and the reason.

    Suggestions are based on the names and guidelines of the groups, a vocabulary, the superclasses of a label (P279),
    and decisions on other labels. They are shown to annotators and never used as decisions.

    Example: hgld suggest clusters.parquet -o clusters.parquet --decisions annotations/decisions/final.csv
    """
    from hgld.cli.summaries.labels import format_suggestion_quality, format_suggestions
    from hgld.labels.suggest import suggest_file

    with friendly_errors(), TerminalProgress("suggest", "texts") as progress:
        if no_vocabulary and vocabulary:
            raise ConfigurationError("--no-vocabulary excludes --vocabulary; omit one of the two")
        vocabularies = [] if no_vocabulary else vocabulary
        if evaluate is not None:
            if decisions:
                raise ConfigurationError("--evaluate uses its own decisions as evidence; omit --decisions")
            from hgld.labels.suggestion_quality import evaluate_suggestions

            picture = out.with_suffix(".reliability.png")
            quality = evaluate_suggestions(
                clusters,
                evaluate,
                picture,
                embeddings=embeddings,
                classes=classes,
                taxonomy=taxonomy,
                vocabulary=vocabularies,
                progress=progress,
            )
            typer.echo(format_suggestion_quality(quality))
            print_figure(picture)
            return
        summary = suggest_file(
            clusters,
            out,
            embeddings=embeddings,
            classes=classes,
            taxonomy=taxonomy,
            vocabulary=vocabularies,
            decisions=decisions or (),
            force=force,
            progress=progress,
        )
        print_summary(out, summary, format_suggestions)
