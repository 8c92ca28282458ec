"""``hgld embed-images``: from images to embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import Force, Pretrained, SharedCommand, app, friendly_errors, print_summary, writable_file
from hgld.errors import ConfigurationError


@app.command(cls=SharedCommand, rich_help_panel="Retrieval")
def embed_images(
    images: Annotated[
        Path,
        typer.Option(
            help="Images to embed: a manifest, the table from hgld index-images, or a folder of images or tar files."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", callback=writable_file(), help="Embeddings to write: .parquet, .npy or .safetensors."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Model: the folder of a run of hgld train, a checkpoint, hf:OWNER/NAME on the Hugging Face hub, or "
            "untrained: a preset, a timm model or open_clip:NAME."
        ),
    ],
    pretrained: Pretrained = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder that the paths in IMAGES are relative to.", show_default="the folder of IMAGES"),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of the manifest to embed.", show_default="all images")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Input size in pixels.", show_default="that of the model")] = None,
    resize: Annotated[
        int | None,
        typer.Option(
            help="Shorter side of images before the centre crop, both sides of squashed ones, or the longer side of "
            "padded ones, in pixels.",
            show_default="that of the model",
        ),
    ] = None,
    fit: Annotated[
        Literal["crop", "squash", "pad", "longest"] | None,
        typer.Option(
            help="How images of any aspect ratio are fitted: the centre crop; the whole image squashed or padded to "
            "a square; or with a longer side of SIZE at most, keeping the aspect ratio.",
            show_default="that of the model",
        ),
    ] = None,
    interpolation: Annotated[
        Literal["bilinear", "bicubic", "lanczos"] | None,
        typer.Option(help="Interpolation between pixels.", show_default="that of the model"),
    ] = None,
    scales: Annotated[
        str, typer.Option(help="Factors of height and width, to embed each image at several: 1,0.7071,1.4142.")
    ] = "1",
    half: Annotated[bool, typer.Option("--half", help="Run the backbone in half precision (16 bits).")] = False,
    center: Annotated[
        bool,
        typer.Option(
            "--center",
            help="Subtract the mean of all embeddings, which those of an untrained backbone share; not for queries "
            "and a gallery in separate files.",
        ),
    ] = False,
    with_std: Annotated[
        bool,
        typer.Option(
            "--with-std",
            help="Also write the standard deviations of the feature maps before pooling, for the score heat: "
            "x.deviations.npy beside x.npy.",
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda or cuda:N.")] = "cpu",
    batch_size: Annotated[int, typer.Option(help="Number of images embedded at once.")] = 32,
    workers: Annotated[int, typer.Option(help="Number of processes that load images.")] = 2,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="N/COUNT",
            help="Embed one of several parts, such as 3/16; --merge joins them.",
            show_default="all images",
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Join the embeddings of all parts, with the options they had otherwise.")
    ] = False,
    force: Force = False,
) -> None:
    """Embed images with a trained model, or with an untrained backbone.

    An interrupted run resumes where it stopped. Images that cannot be read are listed in OUT.skipped.csv. Several
    processes share the images: torchrun --nproc-per-node 2 -m hgld embed-images ... So do the jobs of an array on a
    cluster by --part 1/16, --part 2/16 and so on, which a last one joins by --merge.

    Example: hgld embed-images --model runs/x --images images.parquet -o embeddings.parquet
    """
    with friendly_errors():
        from hgld.cli.summaries.models import format_embed_images, format_embed_part
        from hgld.compute.malloc import disable_trimming
        from hgld.compute.part import Part
        from hgld.compute.processes import joined_processes, local_device
        from hgld.models.image_embedding import EmbedImagesConfig, embed_images, embed_part, merge_parts
        from hgld.models.model_loading import load_model
        from hgld.progress import NoProgress, TerminalProgress

        if (part is not None) + merge + force > 1:
            raise ConfigurationError(
                "choose one of `part`, `merge` and `force`; to embed all again in parts, remove the output first"
            )
        one_part = None if part is None else Part.parse(part)
        disable_trimming()
        embedder = load_model(model, pretrained, size=size, resize=resize, fit=fit, interpolation=interpolation)
        config = EmbedImagesConfig(
            split=split,
            scales=parse_scales(scales),
            half=half,
            center=center,
            with_std=with_std,
            device=local_device(device),
            batch_size=batch_size,
            workers=workers,
        )
        if merge:
            merged = merge_parts(images, out, embedder, config, root=root)
            print_summary(out, merged, format_embed_images)
            return
        with joined_processes() as processes, TerminalProgress("embed", "images") as terminal:
            progress = terminal if processes.rank == 0 else NoProgress()
            if one_part is not None:
                embedded = embed_part(
                    images, out, embedder, one_part, config, root=root, processes=processes, progress=progress
                )
            else:
                summary = embed_images(
                    images, out, embedder, config, root=root, force=force, processes=processes, progress=progress
                )
        if processes.rank == 0 and one_part is not None:
            typer.echo(f"{out}: up to date" if embedded is None else format_embed_part(embedded))
        elif processes.rank == 0:
            print_summary(out, summary, format_embed_images)


def parse_scales(text: str) -> tuple[float, ...]:
    """Return the numbers in ``1,0.7071,1.4142``.

    Raises:
        ConfigurationError: The text is not numbers separated by commas.

    >>> parse_scales("1,0.7071")
    (1.0, 0.7071)
    """
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        raise ConfigurationError(f'`scales` is "{text}"; expected numbers such as 1,0.7071,1.4142') from error
