"""``hgld repack``: the images of a manifest, written once at the size of the training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import app, flag, out_folder, print_summary
from hgld.cli.options import options_of
from hgld.compute.part import Part
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.datasets.repack_config import RepackConfig


@app.command(rich_help_panel="Photographs")
@options_of("hgld.datasets.repack_config:RepackConfig")
def repack(
    *,
    manifest: Annotated[Path, typer.Argument(help="Manifest from hgld manifest, or a CSV or Parquet file like it.")],
    out: Annotated[Path, out_folder("Folder for the tar files and their manifest.parquet.")],
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder that the paths in MANIFEST are relative to.",
            show_default="the folder of MANIFEST",
        ),
    ] = None,
    config: RepackConfig,
    part: Annotated[
        Part | None,
        typer.Option(
            parser=Part.parse,
            metavar="N/COUNT",
            help="Write one of several parts of the tar files, such as 3/16; then run the command without --part, "
            "which writes the manifest.",
            show_default="all of them",
        ),
    ] = None,
    plan: Annotated[bool, flag("--plan", "Print how many images, how large and how long, and stop.")] = False,
    verify: Annotated[
        bool, flag("--verify", "Verify existing tar files by SHA-256, and write damaged ones again.")
    ] = False,
    force: Annotated[
        bool, flag("--force", "Write all tar files again, and discard those of other settings.")
    ] = False,
) -> None:
    """Write the images of a manifest into tar files, once, at a smaller size, with a manifest of them.

    Splits and labels stay, boxes are scaled. Images that are small already are stored as they are, and images that
    cannot be read are listed in skipped.csv. The same command resumes an interrupted run. The jobs of an array on a
    cluster share the tar files by --part 1/16, --part 2/16 and so on.

    Example: hgld repack gldv2.parquet --images data/gldv2 --size 512 -o data/gldv2_512
    """
    from hgld.cli.summaries.repack import format_repack_plan, format_repacked
    from hgld.datasets.repack import plan_repack, repack_images

    if plan:
        typer.echo(format_repack_plan(plan_repack(manifest, out, config, root=images, part=part)))
        return
    with TerminalProgress("repack", "images") as progress:
        summary = repack_images(
            manifest,
            out,
            config,
            root=images,
            part=part,
            verify=verify,
            force=force,
            announce=lambda plan: typer.echo(format_repack_plan(plan), err=True),
            progress=progress,
        )
    print_summary(out, summary, format_repacked)
