"""``hgld complete``: groups for landmarks without one, from their photographs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import (
    FigureFormat,
    Force,
    app,
    flag,
    out_file,
    parse_images,
    print_figure,
    print_summary,
)
from hgld.cli.options import options_of
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.completion.config import CompleteConfig


@app.command(rich_help_panel="Hierarchy")
@options_of("hgld.completion.config:CompleteConfig", k="-k", reasons="--reason", encoder={"metavar": "NAME"})
def complete(
    *,
    hierarchy: Annotated[Path, typer.Argument(help="Hierarchy from hgld build.")],
    out: Annotated[Path, out_file("Table of proposals to write.", ".parquet")],
    embeddings: Annotated[
        list[Path],
        typer.Option(help="Embeddings of photographs, such as from hgld embed-images; may be repeated."),
    ],
    images: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SPLIT=]FILE",
            help="Landmark of each photograph: GLDv2's train.csv or index_image_to_landmark.csv; may be repeated.",
            show_default="the landmark ids in EMBEDDINGS",
        ),
    ] = None,
    config: CompleteConfig,
    removed: Annotated[
        Path | None,
        typer.Option(help="Landmarks that hgld clean removed.", show_default="removed.parquet beside HIERARCHY"),
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option(
            help="Table from hgld clean, for --reason excluded.", show_default="clean.parquet beside HIERARCHY"
        ),
    ] = None,
    evaluate: Annotated[
        bool,
        flag(
            "--evaluate",
            "Only print and plot (.coverage.png beside the output) the accuracy of proposals for labelled "
            "landmarks whose group is hidden.",
        ),
    ] = False,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Propose groups for landmarks without a label, from their photographs.

    Every photograph votes for the groups of the photographs or texts nearest to it, and the landmark gets the group
    with the most votes. The score is the probability that it is right. A proposal is never treated as a decision:
    hgld build --completed takes those above a score, and marks them.

    Example: hgld complete hierarchy.parquet --embeddings embeddings.parquet --images train.csv -o completed.parquet
    """
    from hgld.cli.summaries.complete import format_complete, format_completion_quality
    from hgld.completion.complete import complete_file
    from hgld.completion.inputs import find_completion_files
    from hgld.completion.quality import evaluate_completion

    landmarks = [parse_images(text) for text in images or ()]
    files = find_completion_files(hierarchy, embeddings, landmarks, config.reasons, removed=removed, clean=clean)
    with TerminalProgress("complete", "photographs") as progress:
        if evaluate:
            picture = out.with_suffix(".coverage.png")
            typer.echo(format_completion_quality(evaluate_completion(files, picture, config, progress=progress)))
            print_figure(picture)
        else:
            print_summary(out, complete_file(files, out, config, force=force, progress=progress), format_complete)
