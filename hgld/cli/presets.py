"""Presets: presets; and the options of the commands that take one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors

# Options that hgld train and hgld benchmark share.
Manifest = Annotated[
    Path | None,
    typer.Option(help="Manifest, or CSV or Parquet file like one; the same as --set data.manifest=FILE."),
]
Images = Annotated[
    Path | None,
    typer.Option(
        help="Folder that the paths in the manifest start from, or the tar file; the same as --set data.root=FOLDER.",
        show_default="the folder of --manifest",
    ),
]


def complete_training(incomplete: str) -> list[str]:
    """Return the names of trainings that begin with a text."""
    from hgld.io.preset_files import OWN_IMAGES, training_presets

    return [
        name
        for name in (known.removeprefix(f"{OWN_IMAGES}/") for known in training_presets())
        if name.startswith(incomplete)
    ]


def complete_comparison(incomplete: str) -> list[str]:
    """Return the names of comparisons that begin with a text."""
    from hgld.io.preset_files import comparison_presets

    return [name for name in comparison_presets() if name.startswith(incomplete)]


def with_images(overrides: Sequence[str] | None, manifest: Path | None, images: Path | None) -> list[str]:
    """Return overrides of settings with those for the manifest and the images, if they are given.

    >>> with_images(["seed=1"], Path("a.parquet"), None)
    ['data.manifest="a.parquet"', 'data.root=null', 'seed=1']
    """
    from hgld.io.settings import override

    if images is not None and images.is_file():  # paths of images in a tar file start from its folder
        images = images.parent
    data = [] if manifest is None else [override("data.manifest", manifest)]
    if manifest is not None or images is not None:
        data.append(override("data.root", images))
    return [*data, *(overrides or ())]


@app.command(rich_help_panel="Retrieval")
def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Preset whose settings to show, each with the file that it comes from.",
            show_default="list all",
            autocompletion=complete_training,
        ),
    ] = None,
) -> None:
    """List the settings that come with hgld: those of the paper's tables, and for images of your own.

    Example: hgld presets h-gldv2/happier
    """
    with friendly_errors():
        from hgld.benchmark.presets import list_presets, resolve_preset
        from hgld.cli.summaries.presets import format_presets, format_resolved

        typer.echo(format_resolved(*resolve_preset(name)) if name else format_presets(*list_presets()))
