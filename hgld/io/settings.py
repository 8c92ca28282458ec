"""Read typed settings from YAML files that extend other files.

Single values can be overridden, and errors name the file and the key. A settings file extends the
file or the preset that its key ``base`` names. A file of several trainings has them as rows, which
are merged over the settings under ``shared`` (:mod:`hgld.io.presets`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.presets import (
    COMPARISONS,
    DESCRIPTION,
    SHARED,
    TRAININGS,
    containing_file,
    training_presets,
)
from hgld.io.settings_errors import describe_error, suggest
from hgld.io.yaml_files import load_yaml, read_mapping, require_mapping

#: Key that names the file, the row or the preset that a file extends.
_BASE = "base"
#: Origin of overridden values in error messages.
_OVERRIDES = "`overrides`"


class Settings(BaseModel):
    """Base class of all settings: typed, immutable, and closed to unknown keys.

    Each subpackage defines its own section of the YAML file. Checks beyond types are validators
    that raise ``ValueError``; :func:`read_settings` shows the message with the key and the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=BaseModel)
Keys = tuple[str, ...]


def read_settings(kind: type[S], path: Path, overrides: Sequence[str] = ()) -> S:
    """Read settings from a YAML file.

    A file whose key ``base`` names another file (relative to its own folder) or a preset of a
    training is merged over that file, mapping by mapping. If both mappings have a ``name`` and the
    names differ, as with another loss, the mapping replaces the mapping below it.

    ``FILE.yaml/ROW`` is a row of a file with several trainings or comparisons. The row of a
    training is merged over the row that its ``base`` names, or over the file's settings under
    ``shared``; the row of a comparison is merged only over its ``base``.

    Args:
        kind: The class of the settings.
        path: The YAML file, or a row in a YAML file.
        overrides: Single values merged over the file, such as ``loss.lambda=0.3``; the values are
            YAML.

    Raises:
        InputError: A file is missing or not YAML, or files extend each other in a circle.
        ConfigurationError: Settings are invalid; the message lists all problems with the files they
            come from.
    """
    layer = _read_with_overrides(path, overrides)
    try:
        return kind.model_validate(layer.values)
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = []
    for detail in details:
        keys, problem = describe_error(detail, kind)
        origin = layer.find_origin(keys) or str(path)
        problems.append(f"{origin}: {problem}")
    raise ConfigurationError(
        f"invalid settings, {len(problems)} in all:\n{indented_list(problems)}"
    )


def read_values(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values that :func:`read_settings` validates, without defaults."""
    return _read_with_overrides(path, overrides).values


def read_origins(path: Path) -> dict[str, tuple[Any, Path]]:
    """Return the values that a YAML file and its bases set, each with the file that sets the value.

    Keys are joined with dots, such as ``loss.lambda``.
    """
    layer = _read_file(path, ())
    origins = {".".join(keys): Path(origin) for keys, origin in layer.origins.items()}
    return {key: (value, origins[key]) for key, value in flatten(layer.values).items()}


def override(key: str, value: str | Path | None) -> str:
    """Return an override that sets a key to a text or a path, quoted so that YAML reads it as text.

    >>> override("data.manifest", Path("1e5"))
    'data.manifest="1e5"'
    """
    text = None if value is None else str(value)
    return f"{key}={json.dumps(text, ensure_ascii=False)}"


def to_yaml(settings: BaseModel) -> str:
    """Return settings, including defaults, as the text of a YAML file."""
    return yaml.safe_dump(to_dict(settings), sort_keys=False, allow_unicode=True, width=100)


def to_dict(settings: BaseModel) -> dict[str, Any]:
    """Return settings as JSON values under the keys that YAML files use."""
    return settings.model_dump(mode="json", by_alias=True)


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of nested mappings, their keys joined with dots.

    >>> flatten({"loss": {"name": "happier", "lambda": 0.1}, "seed": 0})
    {'loss.name': 'happier', 'loss.lambda': 0.1, 'seed': 0}
    """
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            for inner_key, leaf in flatten(value).items():
                leaves[f"{key}.{inner_key}"] = leaf
        else:
            leaves[key] = value
    return leaves


@dataclass(frozen=True)
class _Layer:
    """Nested values, and the origin of each value (a file or the overrides) by its keys."""

    values: dict[str, Any]
    origins: Mapping[Keys, str]

    @classmethod
    def from_mapping(cls, values: dict[str, Any], origin: str) -> _Layer:
        return cls(values, dict.fromkeys(_key_paths(values), origin))

    def overridden_by(self, upper: _Layer) -> _Layer:
        values = _merge(self.values, upper.values)
        return _Layer(values, {**self.origins, **upper.origins})

    def find_origin(self, keys: Keys) -> str | None:
        """Return the origin of a value, or of the innermost mapping around it if the value is missing."""
        for n_keys in range(len(keys), 0, -1):
            if keys[:n_keys] in self.origins:
                return self.origins[keys[:n_keys]]
        return None


def _key_paths(values: Mapping[str, Any], parents: Keys = ()) -> Iterator[Keys]:
    """Iterate over the keys that lead to each value of nested mappings, and to each mapping."""
    for key, value in values.items():
        path = (*parents, str(key))
        yield path
        if isinstance(value, Mapping):
            yield from _key_paths(value, path)


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a mapping over another; a mapping of another ``name`` replaces the lower mapping."""
    if "name" in upper and upper["name"] != lower.get("name"):
        return dict(upper)
    merged = dict(lower)
    for key, value in upper.items():
        lower_value = lower.get(key)
        if isinstance(lower_value, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(lower_value, value)
        else:
            merged[key] = value
    return merged


def _read_with_overrides(path: Path, overrides: Sequence[str]) -> _Layer:
    """Read a file merged over its base, and merge overrides over it."""
    layer = _read_file(path, ())
    for text in overrides:
        layer = layer.overridden_by(_parse_override(text))
    return layer


def _parse_override(text: str) -> _Layer:
    """Return the layer of an override such as ``loss.lambda=0.3``."""
    key, equals, value_text = text.partition("=")
    keys = key.split(".")
    if not equals or not all(keys):
        raise ConfigurationError(
            f"{_OVERRIDES} {text}: expected KEY=VALUE, such as loss.lambda=0.3"
        )
    try:
        values = load_yaml(value_text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{_OVERRIDES} {text}: the value is not YAML: {error}") from error
    for name in reversed(keys):
        values = {name: values}
    return _Layer.from_mapping(values, _OVERRIDES)


def _read_file(path: Path, extended_by: tuple[Path, ...]) -> _Layer:
    """Read a file, or a row in a file, merged over its base.

    Args:
        extended_by: Resolved paths of the files and rows that extend this one, outermost first.
    """
    if path.resolve() in extended_by:
        raise InputError(f"{path}: extends itself; correct the key {_BASE} of {extended_by[-1]}")
    file = containing_file(path)
    values = read_mapping(file, extended_by[-1] if extended_by else None)
    rows = _pop_rows(values, file)
    if file != path:
        if path.name not in rows:
            names = [name for name in rows if name != SHARED]
            raise InputError(f"{file}: there is no row {path.name}{suggest(path.name, names)}")
        values = require_mapping(rows[path.name].values, path)
        values = {key: value for key, value in values.items() if key not in DESCRIPTION}
        values.setdefault(_BASE, rows[path.name].default_base)
    base = values.pop(_BASE, None)
    layer = _Layer.from_mapping(values, str(path))
    if base is None:
        return layer
    if file != path and base in rows:
        base_path = file / base
    else:
        base_path = training_presets().get(str(base), file.parent / str(base))
    return _read_file(base_path, (*extended_by, path.resolve())).overridden_by(layer)


@dataclass(frozen=True)
class _Row:
    """Values of a row as the file has them, and the row that it extends if it names no base."""

    values: Any
    default_base: str | None


def _pop_rows(values: dict[str, Any], file: Path) -> dict[str, _Row]:
    """Remove the rows from the values of a file, and return them by name; ``shared`` comes first."""
    rows = {SHARED: _Row(values.pop(SHARED, {}), None)}
    trainings = require_mapping(values.pop(TRAININGS, {}), file / TRAININGS)
    comparisons = require_mapping(values.pop(COMPARISONS, {}), file / COMPARISONS)
    for name, row in trainings.items():
        rows[name] = _Row(row, SHARED)
    for name, row in comparisons.items():
        if name in trainings:
            raise InputError(
                f"{file}: {name} is a row of both {TRAININGS} and {COMPARISONS}; rename one of them"
            )
        rows[name] = _Row(row, None)
    return rows
