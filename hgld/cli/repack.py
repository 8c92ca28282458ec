"""``hgld repack``: the images of a manifest, written once at the size of the training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, print_summary, writable_folder
from hgld.progress import TerminalProgress


@app.command(rich_help_panel="Photographs")
def repack(
    manifest: Annotated[Path, typer.Argument(help="Manifest from hgld manifest, or a CSV or Parquet file like it.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            callback=writable_folder,
            help="Folder for the tar files and their manifest.parquet.",
        ),
    ],
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder that the paths in MANIFEST are relative to.",
            show_default="the folder of MANIFEST",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="Shorter side of reduced images in pixels, or of their boxes; smaller ones stay as they are.",
            show_default="images are stored as they are",
        ),
    ] = None,
    quality: Annotated[int, typer.Option(help="Quality of JPEG of reduced images, 1 to 100.")] = 90,
    split: Annotated[str | None, typer.Option(help="Split of the manifest.", show_default="all images")] = None,
    shard_size: Annotated[int, typer.Option(help="Number of images per tar file.")] = 10_000,
    workers: Annotated[int, typer.Option(help="Number of processes that reduce images.")] = 2,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="N/COUNT",
            help="Write one of several parts of the tar files, such as 3/16; then run the command without --part, "
            "which writes the manifest.",
            show_default="all of them",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print how many images, how large and how long, and stop.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify existing tar files by SHA-256, and write damaged ones again.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write all tar files again, and discard those of other settings.")
    ] = False,
) -> None:
    """Write the images of a manifest into tar files, once, at a smaller size, with a manifest of them.

    Splits and labels stay, boxes are scaled. Images that are small already are stored as they are, and images that
    cannot be read are listed in skipped.csv. The same command resumes an interrupted run. The jobs of an array on a
    cluster share the tar files by --part 1/16, --part 2/16 and so on.

    Example: hgld repack gldv2.parquet --images data/gldv2 --size 512 -o data/gldv2_512
    """
    with friendly_errors():
        from hgld.cli.summaries.repack import format_repack_plan, format_repacked
        from hgld.compute.part import Part
        from hgld.datasets.repack import plan_repack, repack_images
        from hgld.datasets.repack_config import RepackConfig

        config = RepackConfig(size=size, quality=quality, split=split, shard_size=shard_size, workers=workers)
        one_part = None if part is None else Part.parse(part)
        if plan:
            typer.echo(format_repack_plan(plan_repack(manifest, out, config, root=images, part=one_part)))
            return
        with TerminalProgress("repack", "images") as progress:
            summary = repack_images(
                manifest,
                out,
                config,
                root=images,
                part=one_part,
                verify=verify,
                force=force,
                announce=lambda plan: typer.echo(format_repack_plan(plan), err=True),
                progress=progress,
            )
        print_summary(out, summary, format_repacked)
