"""The command ``push-model``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import Pretrained, app, friendly_errors, writable_folder


@app.command(rich_help_panel="Retrieval")
def push_model(
    model: Annotated[
        str,
        typer.Argument(
            help="Model: the folder of a run of hgld train, a checkpoint, or untrained: a preset, a timm model or "
            "open_clip:NAME."
        ),
    ],
    repository: Annotated[
        str | None,
        typer.Argument(
            metavar="OWNER/NAME", help="Repository of the Hugging Face hub to upload to.", show_default="none"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", callback=writable_folder, help="Folder to write the files to.")
    ] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(
            help="Output of hgld evaluate --json for the model card, in a file named like the data; may be repeated."
        ),
    ] = None,
    pretrained: Pretrained = None,
    license: Annotated[
        str | None, typer.Option(help="Licence of the weights, such as apache-2.0.", show_default="not stated")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Name of a data set on the hub that the model was trained on; may be repeated."),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Create a private repository.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files of something else than this model.")] = False,
) -> None:
    """Publish a model: weights, settings and a model card, in a folder or on the Hugging Face hub.

    hgld.load_model("hf:OWNER/NAME") loads it again. The hub's own variables apply: HF_TOKEN, and HF_ENDPOINT for
    another server.

    Example: hgld push-model runs/x ada/landmarks --license apache-2.0
    """
    with friendly_errors(again="run the same command again", evaluations="--evaluation", datasets="--dataset"):
        from hgld.cli.summaries.models import format_push
        from hgld.training.publish_model import PushConfig, push_model

        config = PushConfig(
            license=license,
            datasets=tuple(dataset or ()),
            evaluations=tuple(evaluation or ()),
            private=private,
            force=force,
        )
        summary = push_model(model, repository, out=out, pretrained=pretrained, config=config)
        typer.echo(format_push(summary))
        for place in (out, summary.url):
            if place is not None:
                typer.echo(str(place))
