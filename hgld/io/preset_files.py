"""Presets: the settings files that come with hgld, found by name.

``h-gldv2`` is the comparison in ``pipelines/benchmarks/h-gldv2.yaml``, and ``h-gldv2/happier`` the training in the
row ``happier`` of its ``trainings``, which is referred to as ``h-gldv2.yaml/happier``: what the row says is merged
over the settings under ``shared``. A training's name without a file is one for images of your own: ``happier`` is
``own_images/happier``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hgld.errors import ConfigurationError, InputError, similar_names
from hgld.resources import preset_folder, rejection_folder

#: The file of trainings that are named without it.
OWN_IMAGES = "own_images"
#: Keys of a file's trainings, one row each, and of the settings that they share.
TRAININGS, SHARED = "trainings", "shared"
#: Keys of a row that describe it, and are no settings: the method or the images, and the tables of papers.
DESCRIPTION = ("about", "tables")
_SUFFIXES = (".yaml", ".yml")


@cache
def training_presets() -> Mapping[str, Path]:
    """Return the rows of trainings by name, those for images of your own first.

    >>> list(training_presets())[0].partition("/")[0]
    'own_images'
    """
    paths = {
        f"{path.stem}/{row}": path / row
        for path, values in _preset_files().items()
        for row in values.get(TRAININGS, ())
    }
    return dict(sorted(paths.items(), key=lambda entry: (entry[1].parent.stem != OWN_IMAGES, entry[0])))


@cache
def comparison_presets() -> Mapping[str, Path]:
    """Return the settings files of comparisons by name."""
    return {path.stem: path for path, values in _preset_files().items() if values.keys() - {TRAININGS, SHARED}}


def preset_description(path: Path) -> Mapping[str, str]:
    """Return the values of :data:`DESCRIPTION` of a row of a preset, or of its file's ``shared``."""
    values = _preset_files()[path.parent]
    row = values[SHARED] if path.name == SHARED else values[TRAININGS][path.name]
    return {key: row.get(key, "") for key in DESCRIPTION}


@cache
def _preset_files() -> Mapping[Path, Mapping[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        path: yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 - it is a safe loader
        for path in sorted(preset_folder().glob("*.yaml"))
    }


def training_file(name: str | Path) -> Path:
    """Return the settings file of a training, or its row in one.

    Args:
        name: Name of a preset, such as ``h-gldv2/happier`` or ``happier``, in any case; or path of a file, or of a
            row in one, such as ``mine.yaml/happier``.

    Raises:
        ConfigurationError: There is neither a preset nor a file of this name.
        InputError: There is no such file.

    >>> training_file("happier").parent.name
    'own_images.yaml'
    """
    presets = training_presets()
    return presets.get(f"{OWN_IMAGES}/{name}".lower()) or _find(str(name), presets, comparison_presets(), "training")


def comparison_file(name: str | Path) -> Path:
    """Return the settings file of a comparison; see :func:`training_file`."""
    return _find(str(name), comparison_presets(), training_presets(), "comparison")


def rejection_file(name: str | Path) -> Path:
    """Return the settings file of a comparison of rejection scores, by its name in ``pipelines/rejection`` or path.

    >>> rejection_file("washington").name
    'washington.yaml'
    """
    known = {path.stem: path for path in sorted(rejection_folder().glob("*.yaml"))}
    if str(name) in known:
        return known[str(name)]
    if Path(name).is_file():
        return Path(name)
    raise InputError(f"{name}: no such file; the comparisons that come with hgld are {', '.join(known)}")


def _find(name: str, presets: Mapping[str, Path], others: Mapping[str, Path], kind: str) -> Path:
    path = Path(name)
    if name.lower() in presets:
        return presets[name.lower()]
    if path.is_file() or path.parent.is_file():
        return path
    if path.suffix in _SUFFIXES:
        preset = next((known for known in presets if path.with_suffix("").as_posix().endswith(known)), None)
        raise InputError(f"{path}: no such file" + (f"; the preset is called {preset}" if preset else ""))
    problem = f'there is neither a preset nor a file "{name}"'
    if name in others or f"{OWN_IMAGES}/{name}" in others:
        problem = f'"{name}" is the preset of a {"comparison" if kind == "training" else "training"}, not of a {kind}'
    raise ConfigurationError(f"{problem}; {_suggestion(name, list(presets))}`hgld presets` lists all")


def _suggestion(name: str, presets: Sequence[str]) -> str:
    """Name the presets of which a name is a part, otherwise those with similar names."""
    short_names = [known.removeprefix(f"{OWN_IMAGES}/") for known in presets]
    similar = (
        [known for known in presets if name in known.split("/")]
        or similar_names(name, short_names, 3)
        or [known for known in short_names if name in known]
    )
    *others, last = similar or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}? " if similar else ""
