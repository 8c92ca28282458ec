"""Presets and models: presets, train, embed-images, push-model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.application import FIRST_STEPS, SharedCommand, app, friendly_errors
from hgld.cli.options import field_options, help_panels
from hgld.cli.output import print_summary
from hgld.cli.render import aligned
from hgld.cli.shared_options import (
    OUT_FOLDER,
    Force,
    Pretrained,
    parse_numbers,
    part_option,
    writable,
)
from hgld.compute.parts import Part, PartsConfig
from hgld.compute.slurm import current_task
from hgld.datasets.settings import Fit, Interpolation
from hgld.errors import ConfigurationError, counted, indented_list
from hgld.io.writable import check_writable_file, check_writable_folder
from hgld.models.settings import EmbedImagesConfig
from hgld.progress import NoProgress, TerminalProgress, byte_size
from hgld.training.push_settings import PushConfig

if TYPE_CHECKING:
    from hgld.benchmark.presets import ComparisonPreset, ResolvedSetting, TrainingPreset
    from hgld.models.image_embedder import ImageEmbedder
    from hgld.models.image_embedding import EmbedImagesSummary, EmbedPartSummary
    from hgld.training.publish_model import PushSummary
    from hgld.training.run_folder import TrainingSummary
    from hgld.training.training_images import TrainingImages


# Options that hgld train and hgld benchmark share.
Manifest = Annotated[
    Path | None,
    typer.Option(
        help="Manifest, or CSV or Parquet file like one; the same as --set data.manifest=FILE."
    ),
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
    from hgld.io.presets import OWN_IMAGES, training_presets

    names = [preset.removeprefix(f"{OWN_IMAGES}/") for preset in training_presets()]
    return [name for name in names if name.startswith(incomplete)]


def complete_comparison(incomplete: str) -> list[str]:
    """Return the names of comparisons that begin with a text."""
    from hgld.io.presets import comparison_presets

    return [name for name in comparison_presets() if name.startswith(incomplete)]


def with_images(
    overrides: Sequence[str] | None, manifest: Path | None, images: Path | None
) -> list[str]:
    """Return overrides of settings, after overrides for the manifest and the images if given.

    >>> with_images(["seed=1"], Path("a.parquet"), None)
    ['data.manifest="a.parquet"', 'data.root=null', 'seed=1']
    """
    from hgld.io.settings import override

    if images is not None and images.is_file():
        images = images.parent  # paths of images in a tar file start from its folder
    changes = []
    if manifest is not None:
        changes.append(override("data.manifest", manifest))
    if manifest is not None or images is not None:
        changes.append(override("data.root", images))
    return changes + list(overrides or ())


@app.command(rich_help_panel="Retrieval")
def presets(
    name: Annotated[str | None, typer.Argument(autocompletion=complete_training)] = None,
) -> None:
    """List the settings that come with hgld: for the paper's tables, and for images of your own.

    Example: hgld presets h-gldv2/happier

    Args:
        name: Preset whose settings to show, each with the file that it comes from. Default: list all.
    """
    from hgld.benchmark.presets import list_presets, resolve_preset

    if name is None:
        trainings, comparisons = list_presets()
        typer.echo(_format_presets(trainings, comparisons))
    else:
        path, settings = resolve_preset(name)
        typer.echo(_format_resolved(path, settings))


def _format_presets(
    trainings: Sequence[TrainingPreset], comparisons: Sequence[ComparisonPreset]
) -> str:
    training_rows = []
    for training in trainings:
        row = (training.name, training.method, training.tables, training.backbone, training.images)
        training_rows.append(row)
    comparison_rows = []
    for comparison in comparisons:
        n_methods = str(len(comparison.methods))
        comparison_rows.append((comparison.name, n_methods, comparison.title))
    lines = aligned(["hgld train", "method", "table", "backbone", "images"], training_rows)
    lines.append("")
    lines += aligned(["hgld benchmark", "methods", "title"], comparison_rows)
    lines += [
        "",
        "Tables are those of Optimization of Rank Losses for Image Retrieval (Ramzi et al.) unless another paper is",
        "named: ROADMAP, Patel et al. (the recall@k surrogate) or Brown et al. (Smooth-AP). The weights of",
        "efficientnet-lite0, -lite1 and -lite2 come with the extra offline, features from hgld embed-images; weights",
        "of other backbones are downloaded from timm's hub once.",
    ]
    return "\n".join(lines)


def _format_resolved(path: Path, settings: Sequence[ResolvedSetting]) -> str:
    rows = []
    for setting in settings:
        value = setting.value
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False)
        rows.append((setting.key, setting.origin, value))
    return "\n".join([*aligned(["setting", "from", "value"], rows), "", str(path)])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


#: The options of settings that error messages name.
_TRAINING_OPTIONS = {
    "batch_size": "--set batch_size",
    "per_class": "--set sampler.per_class",
    "pretrained": "--set model.pretrained",
}


@app.command(cls=SharedCommand, rich_help_panel=FIRST_STEPS)
def train(
    config: Annotated[str, typer.Argument(autocompletion=complete_training)],
    out: Annotated[Path | None, OUT_FOLDER] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    manifest: Manifest = None,
    images: Images = None,
    loggers: Annotated[list[str] | None, typer.Option("--logger")] = None,
    resume: bool = False,
    force: bool = False,
    device: str | None = None,
    plan: bool = False,
) -> None:
    """Train a model with one of the losses of the papers; evaluate it before, during and after the training.

    Several processes share each batch: torchrun --nproc-per-node 2 -m hgld train ..., or srun --ntasks 2 hgld
    train ...

    Example: hgld train happier --manifest grocery.parquet --images data/grocery -o runs/happier

    Args:
        config: Preset, such as happier or h-gldv2/happier (hgld presets lists all), or file of settings (YAML).
        out: Folder for checkpoints and the history.
        overrides: Override a setting, e.g. loss.lambda=0.3; repeatable.
        loggers: Logger besides history.jsonl: tensorboard or wandb; repeatable. Default: tensorboard.
        resume: Resume the run in the folder, if it exists.
        force: Delete an existing run in the folder, and start again.
        device: Device: cpu, cuda or cuda:N. Default: cuda if available, otherwise cpu.
        plan: Print all settings and the numbers of images and steps, then exit.
    """
    with friendly_errors(again="continue with --resume", **_TRAINING_OPTIONS):
        from hgld.training.run_folder import RunFolder, training_request

        changes = with_images(overrides, manifest, images)
        if loggers:
            changes.append(f"loggers=[{', '.join(loggers)}]")
        request = None
        if current_task() is None and "WORLD_SIZE" not in os.environ:  # a process by itself
            request = training_request(config, changes)
        if out is not None and resume and not (force or plan):
            summary = RunFolder(out).finished_summary(request)
            if summary is not None:
                print_summary(out, summary, format_training)
                return
        from hgld.compute.machine import disable_trimming
        from hgld.compute.processes import (
            default_device,
            joined_processes,
            local_device,
            training_backend,
        )
        from hgld.training import run
        from hgld.training.training_images import TrainingImages

        settings = run.read_training_settings(config, changes)
        if plan:
            typer.echo(format_plan(TrainingImages(settings)))
            return
        if out is None:
            raise ConfigurationError("no folder for the run; name one with --out")
        disable_trimming()
        device = local_device(device or default_device())
        with (
            joined_processes(training_backend(device)) as processes,
            TerminalProgress("train", "images") as bar,
        ):
            progress = NoProgress() if processes.rank else bar
            summary = run.train(
                settings,
                out,
                resume=resume,
                force=force,
                device=device,
                processes=processes,
                progress=progress,
            )
        if request is not None:
            RunFolder(out).record_request(request)
        if processes.rank == 0:
            print_summary(out, summary, format_training)


def format_training(summary: TrainingSummary) -> str:
    """Return a table of the first evaluation and the result, the gain, and skipped images."""
    from hgld.cli.evaluate import format_means
    from hgld.evaluation.metric_units import shown_value

    metric = summary.metric
    result = summary.result
    first = next(iter(summary.test))
    first_means = summary.test[first]
    result_means = summary.test[result]
    gain = shown_value(metric, result_means[metric]) - shown_value(metric, first_means[metric])
    selection = "the last: there is no split val to select one on"
    if summary.val:
        selection = f"the best on val ({shown_value(metric, summary.val[result]):.2f})"
    lines = [
        format_means({first: first_means, result: result_means}),
        f"{summary.n_steps:,} steps; {metric} {gain:+.2f} from {first} to {result}, {selection}",
    ]
    if summary.n_skipped_images:
        images = counted(summary.n_skipped_images, "image")
        lines.append(
            f"{images} could not be read (skipped.csv); "
            f"{summary.n_skipped_batches:,} batches were skipped, with too few images left"
        )
    return "\n".join(lines)


def format_plan(images: TrainingImages) -> str:
    """Return all settings, and the numbers of images, classes, batches and steps."""
    from hgld.io.settings import to_yaml

    batches = f"{images.sampler.n_batches(0):,} batches per epoch"
    if getattr(images.settings.sampler, "packing", None) == "greedy":
        batches = f"about {batches}"
    steps = f"{batches}, {images.n_steps:,} steps"
    return "\n".join([to_yaml(images.settings), format_images(images), steps])


def format_images(images: TrainingImages) -> str:
    """Return the numbers of training images, classes, validation and test images."""
    train = images.train.manifest
    test = images.test.manifest
    class_counts = []
    for n_classes, level_name in zip(train.n_classes, train.level_names, strict=True):
        class_counts.append(f"{n_classes:,} {level_name}")
    lines = [f"train: {len(train):,} images, classes by level: {', '.join(class_counts)}"]
    if images.val is not None:
        lines.append(f"val: {len(images.val):,} images ranked against each other")
    if images.is_query is None:
        lines.append(f"test: {len(test):,} images ranked against each other")
    else:
        n_queries = int(images.is_query.sum())
        n_gallery = len(images.is_query) - n_queries
        lines.append(f"test: {n_queries:,} queries, {n_gallery:,} in the gallery")
    return "\n".join(lines)


def _check_embeddings(path: Path) -> None:
    """Check that embeddings can be written to a file, or to a folder of parts."""
    if path.is_dir() or not path.suffix:
        check_writable_folder(path)
    else:
        check_writable_file(path)


@app.command(rich_help_panel=FIRST_STEPS)
@help_panels(
    {
        "Input of the model": ["size", "resize", "fit", "interpolation", "mean", "std"],
        "Embeddings": ["scales", "center", "with_std"],
        "Speed": ["half", "batch_size", "workers"],
        "Several machines": ["part", "ray", "parts"],
    }
)
@field_options(
    EmbedImagesConfig,
    scales=typer.Option(
        parser=parse_numbers("scales", "1,0.7071,1.4142"), metavar="FACTORS", show_default="1"
    ),
    shard_size=None,
)
@field_options(
    PartsConfig,
    part=part_option(
        "Embed one of several parts of the images, such as 3/16; the same command without --part embeds the "
        "missing images, and joins the parts. Default: all images."
    ),
)
def embed_images(
    *,
    manifest: Path | None = None,
    images: Path | None = None,
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable(_check_embeddings))],
    model: Annotated[str, typer.Option()],
    pretrained: Pretrained = None,
    size: int | None = None,
    resize: int | None = None,
    fit: Fit | None = None,
    interpolation: Interpolation | None = None,
    mean: Annotated[tuple[float, float, float] | None, typer.Option(metavar="R G B")] = None,
    std: Annotated[tuple[float, float, float] | None, typer.Option(metavar="R G B")] = None,
    config: EmbedImagesConfig,
    division: PartsConfig,
    force: Force = False,
) -> None:
    """Embed images with a trained model, or with an untrained backbone.

    An interrupted run resumes where it stopped. Images that cannot be read are listed in OUT.skipped.csv. Jobs of a
    cluster share the images by --part 1/16, --part 2/16 and so on, which the same command without --part joins.

    Example: hgld embed-images --model runs/x --manifest manifest.parquet --images photographs -o embeddings.parquet

    Args:
        manifest: Manifest of the images to embed, or the table from hgld index-images. Default: all images in the
            folder are embedded.
        images: Folder that contains the images, as files or in tar files; or the table from hgld index-images in
            that folder. Default: the folder of the manifest.
        out: Embeddings to write: .parquet, .npy or .safetensors; or a folder with a file for each part, which other
            commands read like a single file.
        model: Model: the folder of a run of hgld train, a checkpoint, hf:OWNER/NAME on the Hugging Face hub;
            untrained: a preset, a timm model, open_clip:NAME or open_clip:NAME/TAG; or a function,
            python:MODULE:FUNCTION or python:FILE.py:FUNCTION.
        size: Input size in pixels. Default: the size of the model; for a preset 224.
        resize: Size in pixels to which images are resized first: the shorter side before a centre crop, both sides
            of squashed images, or the longer side of padded images. Default: the value of the model; for a preset
            256.
        fit: Fit of images of any aspect ratio: the centre crop (crop); the whole image in a square, distorted
            (squash) or padded (pad); or the whole image with a longer side of at most --size (longest). Default: the
            fit of the model; for a preset crop.
        interpolation: Interpolation between pixels. Default: the interpolation of the model; for a preset bilinear.
        mean: Mean of red, green and blue, such as 0.5 0.5 0.5, that is subtracted from pixel values of 0 to 1.
            Default: the mean of the model.
        std: Standard deviation of red, green and blue, by which these differences are divided. Default: the
            standard deviation of the model.
    """
    from hgld.models.embedding_files import (
        embedding_request,
        is_folder_of_parts,
        is_made_by,
        part_file,
        record_request,
    )

    source, folder = _images_to_embed(manifest, images)
    part = division.part
    image_settings: dict[str, Any] = {
        "size": size,
        "resize": resize,
        "fit": fit,
        "interpolation": interpolation,
        "mean": mean,
        "std": std,
    }
    in_folder = is_folder_of_parts(out)
    if force and (part is not None or division.ray is not None):
        raise ConfigurationError(
            "`force` would discard what other parts have written; remove the output instead"
        )
    file = out
    part_in_folder = None
    if in_folder and part is not None:
        file = part_file(out, part)
        part_in_folder = part
    request = embedding_request(source, model, pretrained, image_settings, config, part_in_folder)
    if request is not None and is_made_by(file, request) and not force:
        print_summary(file, None, format_embed_images)
        return
    from hgld.compute.machine import disable_trimming
    from hgld.compute.processes import local_device
    from hgld.models import image_embedding
    from hgld.models.model_loading import load_model

    load = partial(load_model, model, pretrained, **image_settings)
    if division.ray is not None:
        work = partial(_load_and_embed_part, load, source, out, config, folder)
        with TerminalProgress("embed", "parts") as progress:
            division.run_on_ray(work, progress, device=config.device)
        if in_folder:
            typer.echo(out)
            return
    if in_folder and part is None:
        raise ConfigurationError(
            f"{out}: a folder is written in parts; add `part` or `ray`, or name a file"
        )
    disable_trimming()
    embedder = load()
    config = replace(config, device=local_device(config.device))
    summary: EmbedImagesSummary | EmbedPartSummary | None
    with TerminalProgress("embed", "images") as progress:
        if part is None:
            summary = image_embedding.embed_images(
                source, out, embedder, config, root=folder, force=force, progress=progress
            )
        else:
            summary = image_embedding.embed_part(
                source, out, embedder, config, part=part, root=folder, progress=progress
            )
    if isinstance(summary, image_embedding.EmbedPartSummary):
        typer.echo(_format_embed_part(summary))
        return
    if request is not None and (part is None or in_folder):
        record_request(file, request)
    print_summary(file, summary, format_embed_images)


def _images_to_embed(manifest: Path | None, images: Path | None) -> tuple[Path, Path | None]:
    """Return a manifest or folder of images, and the folder of paths in a manifest, if given.

    Raises:
        ConfigurationError: Neither is given, or a manifest is given as images.
    """
    from hgld.io.columns import column_names

    if manifest is not None:
        return manifest, images
    if images is None:
        raise ConfigurationError(
            "no images to embed; give their `manifest`, or their folder as `images`"
        )
    if images.suffix in (".csv", ".parquet") and "shard" not in column_names(images):
        raise ConfigurationError(
            f"{images}: expected a folder of images, or the table of hgld index-images; give a manifest as `manifest`"
        )
    return images, None


def _load_and_embed_part(
    load: Callable[[], ImageEmbedder],
    images: Path,
    out: Path,
    config: EmbedImagesConfig,
    root: Path | None,
    *,
    part: Part,
) -> None:
    """Embed a part of the images, in a process that loads the model."""
    from hgld.models.image_embedding import embed_part

    embed_part(images, out, load(), config, part=part, root=root)


def format_embed_images(summary: EmbedImagesSummary) -> str:
    """Format the counts and the throughput of a run."""
    n_skipped = len(summary.skipped)
    n_zeros = len(summary.zeros)
    images = f"{summary.images:,}"
    verb = "of them"
    if n_skipped:
        images += f" of {summary.images + n_skipped:,}"
        verb = "tried"
    throughput = _throughput(summary, verb)
    lines = [f"{images} images embedded in {summary.dim:,} dimensions{throughput}"]
    if n_zeros:
        lines.append(
            f"{counted(n_zeros, 'image')} with a vector of zeros, whose cosine similarity with all others is 0; "
            f"are they blank?\n{indented_list(summary.zeros, limit=5)}"
        )
    if n_skipped:
        lines.append(
            f"{counted(n_skipped, 'image')} could not be read; see {summary.skipped_file}:\n"
            f"{indented_list(summary.skipped, limit=5)}"
        )
    return "\n".join(lines)


def _format_embed_part(summary: EmbedPartSummary) -> str:
    text = f"part {summary.part}: {summary.images:,} images{_throughput(summary, 'of them')}"
    if summary.skipped:
        skipped = counted(summary.skipped, "image")
        text += f"\n{skipped} could not be read; the list is written when the parts are joined"
    return text


def _throughput(summary: EmbedImagesSummary | EmbedPartSummary, verb: str) -> str:
    if not summary.embedded:  # the parts that other runs have written were joined
        return ""
    rate = summary.embedded / summary.seconds
    text = (
        f"; {summary.embedded:,} {verb} in this run, {summary.seconds:.1f} s, {rate:.1f} images/s"
    )
    if summary.waiting_share is not None:
        text += f", {summary.waiting_share:.0%} of the time waiting for images"
    return text


@app.command(rich_help_panel="Retrieval")
@field_options(PushConfig, evaluations="--evaluation", datasets="--dataset")
def push_model(
    *,
    model: str,
    repository: Annotated[str | None, typer.Argument(metavar="OWNER/NAME")] = None,
    out: Annotated[Path | None, OUT_FOLDER] = None,
    config: PushConfig,
    pretrained: Pretrained = None,
) -> None:
    """Publish a model: weights, settings and a model card, in a folder or on the Hugging Face hub.

    hgld.load_model("hf:OWNER/NAME") loads it again. The hub's own variables apply: HF_TOKEN, and HF_ENDPOINT for
    another server.

    Example: hgld push-model runs/x ada/landmarks --license apache-2.0

    Args:
        model: Model: the folder of a run of hgld train, a checkpoint, or untrained: a preset, a timm model or
            open_clip:NAME. A published model is not accepted: copy its files.
        repository: Repository of the Hugging Face hub to upload to; it is created if it does not exist.
        out: Folder to write the files to.
    """
    from hgld.training import publish_model

    with friendly_errors(again="run the same command again"):
        summary = publish_model.push_model(
            model, repository, out=out, pretrained=pretrained, config=config
        )
        typer.echo(_format_push(summary))
        if out is not None:
            typer.echo(out)
        if summary.url is not None:
            typer.echo(summary.url)


def _format_push(summary: PushSummary) -> str:
    evaluations = counted(summary.evaluations, "evaluation")
    return f"{summary.model}, {byte_size(summary.n_bytes)}, with {evaluations} on its card"
