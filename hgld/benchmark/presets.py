"""Describe presets: their methods and images, the tables of papers that have them, and the origins of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from hgld.io.presets import (
    OWN_IMAGES,
    SHARED,
    comparison_presets,
    preset_description,
    training_file,
    training_presets,
)
from hgld.io.settings import flatten, override, read_origins, to_dict
from hgld.resources import preset_folder

#: Stands for the manifest in presets for images of your own.
_MANIFEST = "MANIFEST"


@dataclass(frozen=True)
class TrainingPreset:
    """A preset of ``hgld train``.

    Args:
        method: Name of the method.
        tables: Numbers of the paper's tables that have the training, such as ``I, II``; tables of another paper with
            its name, such as ``ROADMAP 1, 5``; empty if no table has it.
        backbone: Its backbone: a preset of models or a model of timm.
        images: The images that it is for.
    """

    name: str
    method: str
    tables: str
    backbone: str
    images: str


@dataclass(frozen=True)
class ComparisonPreset:
    """A preset of ``hgld benchmark``."""

    name: str
    title: str
    methods: tuple[str, ...]


class ResolvedSetting(NamedTuple):
    """A setting, its value, and the file, preset of models or default that the value comes from."""

    key: str
    value: Any
    origin: str


def list_presets() -> tuple[list[TrainingPreset], list[ComparisonPreset]]:
    """Return the presets that come with hgld, of trainings and of comparisons."""
    trainings = [_describe(name, path) for name, path in training_presets().items()]
    comparisons = []
    for name, path in comparison_presets().items():
        values = read_origins(path)
        methods = dict.fromkeys(key.split(".")[1] for key in values if key.startswith("methods."))
        comparisons.append(ComparisonPreset(name, values["title"][0], tuple(methods)))
    return trainings, comparisons


def resolve_preset(name: str) -> tuple[Path, list[ResolvedSetting]]:
    """Return the file of a preset, or of a training's settings, and all settings with their origins.

    Where a comparison and a training have the same name, the comparison is meant.

    Raises:
        ConfigurationError: There is no such preset, or settings are invalid.
        InputError: There is no such file.
    """
    # PyTorch takes seconds to import, and the list of presets needs nothing of it.
    from hgld.benchmark.runs import read_benchmark
    from hgld.training.run import read_training_settings

    comparisons = comparison_presets()
    if name in comparisons:
        path = comparisons[name]
        return path, _resolve(read_benchmark(name), read_origins(path))
    path = training_file(name)
    origins = read_origins(path)
    overrides = []
    if "data.manifest" not in origins:
        overrides.append(override("data.manifest", _MANIFEST))
    return path, _resolve(read_training_settings(path, overrides), origins)


def _resolve(settings: BaseModel, origins: Mapping[str, tuple[Any, Path]]) -> list[ResolvedSetting]:
    model_preset, _ = origins.get("model.preset", (None, None))
    resolved = []
    for key, value in flatten(to_dict(settings)).items():
        if key in origins:
            _, file = origins[key]
            origin = _short_path(file)
        elif key.startswith("model.") and model_preset:
            origin = f"model preset {model_preset}"
        elif key in ("image.mean", "image.std"):
            origin = "backbone"
        elif key == "data.manifest":
            origin = "to be given: --manifest"
        else:
            origin = "default"
        if key.endswith(".training"):
            value = _short_path(Path(value))
        resolved.append(ResolvedSetting(key, value, origin))
    return resolved


def _describe(name: str, path: Path) -> TrainingPreset:
    values = read_origins(path)
    backbone, _ = values.get("model.preset") or values["model.backbone"]
    row = preset_description(path)
    images = preset_description(path.with_name(SHARED))["about"]
    short_name = name.removeprefix(f"{OWN_IMAGES}/")
    return TrainingPreset(short_name, row["about"], row["tables"], str(backbone), images)


def _short_path(path: Path) -> str:
    """Return a path as text; the path of a preset is relative to the folder of all presets."""
    folder = preset_folder().resolve()
    if path.resolve().is_relative_to(folder):
        return path.resolve().relative_to(folder).as_posix()
    return str(path)
