"""Find settings files of trainings, comparisons and rejection scores by path or preset name.

A file may hold several trainings as rows of ``trainings``. The row ``happier`` of
``pipelines/benchmarks/h-gldv2.yaml`` is the preset ``h-gldv2/happier``, and its path is
``h-gldv2.yaml/happier``. Trainings for images of your own need no file name: ``happier`` is
``own_images/happier``. A row of ``comparisons`` is a preset under the name of the row alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, InputError, similar_names
from hgld.io.yaml_files import read_mapping, require_mapping
from hgld.resources import preset_folder, rejection_folder

#: Name of the presets for images of your own; their file name may be left out.
OWN_IMAGES = "own_images"
#: Key of a file whose mapping has one training per row.
TRAININGS = "trainings"
#: Key of the settings that all trainings of a file share.
SHARED = "shared"
#: Key of a file whose mapping has one comparison per row.
COMPARISONS = "comparisons"
#: Keys of a row that describe the training and are not settings: its method or images, and the
#: paper's tables.
DESCRIPTION = ("about", "tables")
_SUFFIXES = (".yaml", ".yml")


def containing_file(path: Path) -> Path:
    """Return the YAML file that contains a row; the path itself if it is not the path of a row."""
    if path.parent.is_file():
        return path.parent
    return path


@cache
def _preset_files() -> Mapping[Path, Mapping[str, Any]]:
    """Return the values of the settings files of trainings and comparisons by path."""
    return {path: read_mapping(path) for path in sorted(preset_folder().glob("*.yaml"))}


@cache
def training_presets() -> Mapping[str, Path]:
    """Return the paths of the presets of trainings by name, presets for images of your own first.

    >>> list(training_presets())[0].partition("/")[0]
    'own_images'
    """
    own_presets: dict[str, Path] = {}
    benchmark_presets: dict[str, Path] = {}
    for file, values in _preset_files().items():
        presets = own_presets if file.stem == OWN_IMAGES else benchmark_presets
        for row in values.get(TRAININGS, ()):
            presets[f"{file.stem}/{row}"] = file / row
    return dict(sorted(own_presets.items()) + sorted(benchmark_presets.items()))


@cache
def comparison_presets() -> Mapping[str, Path]:
    """Return the paths of the presets of comparisons by name."""
    presets = {}
    for file, values in _preset_files().items():
        for row in values.get(COMPARISONS, ()):
            presets[row] = file / row
    for file, values in _preset_files().items():
        if _has_own_settings(values):
            presets[file.stem] = file
    return dict(sorted(presets.items()))


def _has_own_settings(values: Mapping[str, Any]) -> bool:
    """Return whether a file is a training or a comparison itself, apart from its rows."""
    return bool(values.keys() - {TRAININGS, SHARED, COMPARISONS})


def preset_description(path: Path) -> Mapping[str, str]:
    """Return the description of a preset.

    Args:
        path: A row of ``trainings`` in a preset file, or its row ``shared``.

    Returns:
        The values of the keys :data:`DESCRIPTION`; "" where the row lacks a key.
    """
    values = _preset_files()[path.parent]
    row = values[SHARED] if path.name == SHARED else values[TRAININGS][path.name]
    return {key: row.get(key, "") for key in DESCRIPTION}


def training_file(name: str | Path) -> Path:
    """Return the path of a training's settings: a file, or a row in a file.

    Args:
        name: Name of a preset in any case, such as ``h-gldv2/happier`` or ``happier``; or the path
            of a file or of a row in a file, such as ``mine.yaml/happier``.

    Raises:
        ConfigurationError: The name is neither a preset nor a file.
        InputError: The name ends like a YAML file, but no such file exists.

    >>> training_file("happier").parent.name
    'own_images.yaml'
    """
    presets = training_presets()
    own_preset = f"{OWN_IMAGES}/{name}".lower()
    if own_preset in presets:
        return presets[own_preset]
    return _find_settings(str(name), presets, comparison_presets(), "training")


def comparison_file(name: str | Path) -> Path:
    """Return the path of a comparison's settings; see :func:`training_file`."""
    return _find_settings(str(name), comparison_presets(), training_presets(), "comparison")


def rejection_file(name: str | Path) -> Path:
    """Return the settings file of a comparison of rejection scores.

    Args:
        name: Name of a file in ``pipelines/rejection`` in any case, or the path of a file.

    Raises:
        ConfigurationError: The name is neither a preset nor a file.
        InputError: The name ends like a YAML file, but no such file exists.

    >>> rejection_file("washington").name
    'washington.yaml'
    """
    presets = {path.stem: path for path in sorted(rejection_folder().glob("*.yaml"))}
    preset = str(name).lower()
    if preset in presets:
        return presets[preset]
    path = Path(name)
    if path.is_file():
        return path
    known = f"the comparisons that come with hgld are {', '.join(presets)}"
    if path.suffix in _SUFFIXES:
        raise InputError(f"{path}: no such file; {known}")
    raise ConfigurationError(f'there is neither a preset nor a file "{name}"; {known}')


def _find_settings(
    name: str, presets: Mapping[str, Path], other_presets: Mapping[str, Path], kind: str
) -> Path:
    """Return the path of a preset, a file or a row.

    Args:
        presets: Paths of the presets of this kind by name.
        other_presets: Paths of the presets of the other kind by name.
        kind: "training" or "comparison".
    """
    path = Path(name)
    if name.lower() in presets:
        return presets[name.lower()]
    if path.is_file():
        _require_own_settings(path, kind)
        return path
    if path.parent.is_file():
        return path
    if path.suffix in _SUFFIXES:
        raise InputError(f"{path}: no such file{_hint_at_preset(path, presets)}")
    problem = f'there is neither a preset nor a file "{name}"'
    lower_name = name.lower()
    if lower_name in other_presets or f"{OWN_IMAGES}/{lower_name}" in other_presets:
        other_kind = "comparison" if kind == "training" else "training"
        problem = f'"{name}" is the preset of a {other_kind}, not of a {kind}'
    raise ConfigurationError(
        f"{problem}; {_hint_at_similar_presets(lower_name, list(presets))}`hgld presets` lists all"
    )


def _require_own_settings(path: Path, kind: str) -> None:
    """Raise an :class:`InputError` that lists the rows if a file has rows and no settings of its own."""
    values = read_mapping(path)
    rows = require_mapping(values.get(f"{kind}s", {}), path / f"{kind}s")
    if rows and not _has_own_settings(values):
        raise InputError(f"{path}: its {kind}s are rows; give one as {path}/ROW: {', '.join(rows)}")


def _hint_at_preset(path: Path, presets: Mapping[str, Path]) -> str:
    """Return the end of an error message that names the preset with the name of a missing file."""
    name = path.with_suffix("").as_posix().lower()
    for preset in presets:
        if f"/{name}".endswith(f"/{preset}"):
            return f"; the preset is called {preset}"
    return ""


def _hint_at_similar_presets(name: str, presets: Sequence[str]) -> str:
    """Return a question that names the presets with a part equal or similar to a name in lower case."""
    short_names = [preset.removeprefix(f"{OWN_IMAGES}/") for preset in presets]
    similar = [preset for preset in presets if name in preset.split("/")]
    if not similar:
        similar = similar_names(name, short_names, 3)
    if not similar:
        similar = [short_name for short_name in short_names if name in short_name]
    if not similar:
        return ""
    alternatives = similar[-1]
    if len(similar) > 1:
        alternatives = f"{', '.join(similar[:-1])} or {similar[-1]}"
    return f"did you mean {alternatives}? "
