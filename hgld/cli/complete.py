"""``hgld complete``: groups for landmarks without one, from their photographs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import (
    FigureFormat,
    Force,
    app,
    friendly_errors,
    parse_images,
    print_figure,
    print_summary,
    writable_file,
)
from hgld.progress import TerminalProgress


@app.command(rich_help_panel="Hierarchy")
def complete(
    hierarchy: Annotated[Path, typer.Argument(help="Hierarchy from hgld build.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Table of proposals to write.")
    ],
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
    method: Annotated[
        Literal["neighbours", "zero-shot"],
        typer.Option(help="Compare with photographs of labelled landmarks, or with the texts of labels and groups."),
    ] = "neighbours",
    k: Annotated[
        int, typer.Option("-k", help="Number of photographs or texts that a photograph is compared with.")
    ] = 5,
    reason: Annotated[
        list[str] | None,
        typer.Option(
            help="Landmarks to propose groups for: removed by hgld clean as unlabelled, multiple or irrelevant, "
            "or excluded by hgld build; may be repeated.",
            show_default="unlabelled",
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Text encoder of the model that embedded the photographs, for zero-shot: open_clip:MODEL/TAG, or "
            "open_clip:MODEL/PATH with a local checkpoint.",
            show_default="open_clip:ViT-L-14/laion2b_s32b_b82k",
        ),
    ] = None,
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
    calibration_landmarks: Annotated[
        int, typer.Option(help="Maximum number of labelled landmarks to calibrate scores on, or to evaluate.")
    ] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the choice of these landmarks.")] = 0,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda or cuda:N.")] = "cpu",
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Only print and plot (.coverage.png beside the output) the accuracy of proposals for labelled "
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
    with friendly_errors(reasons="--reason"), TerminalProgress("complete", "photographs") as progress:
        from hgld.cli.summaries.complete import format_complete, format_completion_quality
        from hgld.completion.classifier import CompleteConfig
        from hgld.completion.complete import complete_file
        from hgld.completion.inputs import find_completion_files
        from hgld.completion.quality import evaluate_completion
        from hgld.labels.encoders import DEFAULT_ENCODER

        config = CompleteConfig(
            method=method,
            k=k,
            reasons=reason or ["unlabelled"],
            encoder=encoder or DEFAULT_ENCODER,
            calibration_landmarks=calibration_landmarks,
            seed=seed,
            device=device,
        )
        files = find_completion_files(
            hierarchy,
            embeddings,
            [parse_images(text) for text in images or ()],
            config.reasons,
            removed=removed,
            clean=clean,
        )
        if evaluate:
            picture = out.with_suffix(".coverage.png")
            typer.echo(format_completion_quality(evaluate_completion(files, picture, config, progress=progress)))
            print_figure(picture)
            return
        print_summary(out, complete_file(files, out, config, force=force, progress=progress), format_complete)
