"""Typed settings in YAML files that extend other files, with overrides and errors that name the file and the key.

The settings files that come with hgld, its presets, are found by name. ``h-gldv2`` is the comparison in
``pipelines/benchmarks/h-gldv2.yaml``, and ``h-gldv2/happier`` the training in the row ``happier`` of its
``trainings``, which is referred to as ``h-gldv2.yaml/happier``: what the row says is merged over the settings under
``shared``. A training's name without a file is one for images of your own: ``happier`` is ``own_images/happier``.
Several comparisons of the same trainings are rows of ``comparisons``, which are called by the name of the row alone.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from hgld.errors import ConfigurationError, InputError, indented_list, similar_names
from hgld.resources import preset_folder, rejection_folder

#: The key that names the file which a file extends.
BASE = "base"
#: Most values of a file of settings, each as often as aliases repeat it.
_MAX_VALUES = 100_000
#: Number of characters of a value that error messages show.
_MAX_QUOTED = 100
#: The file of trainings that are named without it.
OWN_IMAGES = "own_images"
#: Keys of a file's trainings, one row each, of the settings that they share, and of comparisons, one row each.
TRAININGS, SHARED, COMPARISONS = "trainings", "shared", "comparisons"
#: Keys of a row that describe it, and are not settings: the method or the images, and the tables of papers.
DESCRIPTION = ("about", "tables")
_SUFFIXES = (".yaml", ".yml")
#: The origin of overridden values in error messages.
_OVERRIDES = "`overrides`"


class Settings(BaseModel):
    """Base class of all settings: typed, immutable, and closed to unknown keys.

    Each room defines its own section of the YAML file. Checks beyond types are validators that raise ``ValueError``;
    :func:`read_settings` shows the message with the key and the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=BaseModel)
Keys = tuple[str, ...]


def read_settings(kind: type[S], path: Path, overrides: Sequence[str] = ()) -> S:
    """Read settings from a YAML file.

    A file whose key ``base`` names another file (relative to its own folder) or a preset of a training is merged over
    that file, mapping by mapping. A mapping whose ``name`` differs from that of the mapping below it, such as another
    loss, replaces it. A file of several trainings has them as rows of ``trainings``; ``FILE.yaml/ROW`` is one of
    them, and is merged over the row that its ``base`` names, or over the file's settings under ``shared``. A row of
    ``comparisons`` likewise, but without ``base`` over nothing.

    Args:
        path: The YAML file, or a row in one.
        overrides: Single values merged over the file, such as ``loss.lambda=0.3``; the values are YAML.

    Raises:
        InputError: A file is missing or not YAML, or files extend each other in a circle.
        ConfigurationError: Settings are invalid; the message lists all of them, with the files they come from.
    """
    layer = _read_layer(path, overrides)
    try:
        return kind.model_validate(layer.values)
    except ValidationError as error:
        problems = [
            _problem(detail, kind, layer, path) for detail in error.errors(include_url=False)
        ]
        raise ConfigurationError(
            f"invalid settings, {len(problems)} in all:\n{indented_list(problems)}"
        ) from None


def read_values(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values that :func:`read_settings` validates, without defaults."""
    return _read_layer(path, overrides).values


def read_origins(path: Path) -> dict[str, tuple[Any, Path]]:
    """Return the values that a YAML file and those that it extends set, each with the file that sets it.

    Keys are joined with dots, such as ``loss.lambda``.
    """
    layer = _read_file(path, ())
    origins = {".".join(keys): Path(origin) for keys, origin in layer.origins.items()}
    return {key: (value, origins[key]) for key, value in flatten(layer.values).items()}


def containing_file(path: Path) -> Path:
    """Return the YAML file that has a row, or the path of a file itself."""
    return path.parent if path.parent.is_file() else path


def override(key: str, value: str | Path | None) -> str:
    """Return an override of a setting by a text or a path, which YAML would read as something else where it can.

    >>> override("data.manifest", Path("1e5"))
    'data.manifest="1e5"'
    """
    return f"{key}={json.dumps(None if value is None else str(value), ensure_ascii=False)}"


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
            leaves |= {f"{key}.{inner}": leaf for inner, leaf in flatten(value).items()}
        else:
            leaves[key] = value
    return leaves


# Layers


@dataclass(frozen=True)
class _Layer:
    """Nested values, and the origin (a file or the overrides) of each by its keys."""

    values: dict[str, Any]
    origins: Mapping[Keys, str]

    @classmethod
    def from_mapping(cls, values: dict[str, Any], origin: str) -> _Layer:
        return cls(values, dict.fromkeys(_key_paths(values), origin))

    def overridden_by(self, upper: _Layer) -> _Layer:
        return _Layer(_merged(self.values, upper.values), {**self.origins, **upper.origins})

    def origin(self, keys: Keys) -> str | None:
        """Return the origin of a value, or of the innermost mapping around it where the value is missing."""
        return next(
            (self.origins[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.origins),
            None,
        )


def _read_layer(path: Path, overrides: Sequence[str]) -> _Layer:
    """Read a file merged over its base, and merge overrides over it."""
    layer = _read_file(path, ())
    for override in overrides:
        layer = layer.overridden_by(_parse_override(override))
    return layer


def _key_paths(values: Mapping[str, Any], parents: Keys = ()) -> Iterator[Keys]:
    for key, value in values.items():
        yield (*parents, str(key))
        if isinstance(value, Mapping):
            yield from _key_paths(value, (*parents, str(key)))


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    if upper.get("name", lower.get("name")) != lower.get("name"):
        return dict(upper)
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _merged(below, value)
        merged[key] = value
    return merged


def _read_file(path: Path, extending: tuple[Path, ...]) -> _Layer:
    """Read a file, or a row in one, merged over its base; ``extending`` led to it, outermost first."""
    if path.resolve() in extending:
        raise InputError(f"{path}: extends itself; correct the key {BASE} of {extending[-1]}")
    file = containing_file(path)
    is_row = file != path
    values = _read_yaml(file, extending)
    shared = values.pop(SHARED, {})
    trainings, comparisons = (
        _require_mapping(values.pop(key, {}), file / key) for key in (TRAININGS, COMPARISONS)
    )
    for name in trainings.keys() & comparisons.keys():
        raise InputError(
            f"{file}: {name} is a row of both {TRAININGS} and {COMPARISONS}; rename one of them"
        )
    rows = {SHARED: shared, **trainings, **comparisons}
    if is_row:
        if path.name not in rows:
            raise InputError(
                f"{file}: there is no row {path.name}{_suggestion(path.name, list(rows)[1:])}"
            )
        row = _require_mapping(rows[path.name], path)
        values = {BASE: SHARED if path.name in trainings else None, **row}
        values = {key: value for key, value in values.items() if key not in DESCRIPTION}
    base = values.pop(BASE, None)
    layer = _Layer.from_mapping(values, str(path))
    if base is None:
        return layer
    base_path = (
        file / base
        if is_row and base in rows
        else training_presets().get(str(base), file.parent / str(base))
    )
    return _read_file(base_path, (*extending, path.resolve())).overridden_by(layer)


def _read_yaml(path: Path, extending: tuple[Path, ...]) -> dict[str, Any]:
    try:
        values = deepcopy(_parsed(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        named = f', which {extending[-1]} names as its "{BASE}"' if extending else ""
        raise InputError(f"{path}: no such file{named}") from None
    except (
        OSError,
        ValueError,
        RecursionError,
        yaml.YAMLError,
    ) as error:  # a ValueError: another encoding, or no day
        raise InputError(f"{path}: cannot be read as YAML: {error}") from error
    return _require_mapping(values, path)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Parse a file once for all of its rows, which are read one by one."""
    return _load(text)


def _load(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: The text is not YAML.
        ValueError: A value refers to itself, or aliases repeat values too often.
    """
    value = yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
    if _count_values(value, {}) > _MAX_VALUES:
        raise ValueError(
            f"its aliases (*name) repeat values until there are more than {_MAX_VALUES:,}"
        )
    return value


def _count_values(value: Any, counts: dict[int, int]) -> int:
    """Return the number of values in a value and below it, each as often as aliases repeat it.

    Args:
        value: A mapping, a list or a single value.
        counts: Numbers of the values counted before by ``id``; 0 for one that is being counted.
    """
    if not isinstance(value, dict | list):
        return 1
    if id(value) in counts:
        if not counts[id(value)]:
            raise ValueError("a value refers to itself by its alias (*name)")
        return counts[id(value)]
    counts[id(value)] = 0
    count = 1
    for part in value.values() if isinstance(value, dict) else value:
        count += _count_values(part, counts)
    counts[id(value)] = count
    return count


def _require_mapping(values: Any, path: Path) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: expected settings such as 'batch_size: 256', found {_quoted(values)}"
        )
    return values


def _parse_override(text: str) -> _Layer:
    keys, equals, value = text.partition("=")
    if not equals or not all(keys.split(".")):
        raise ConfigurationError(
            f"{_OVERRIDES} {text}: expected KEY=VALUE, such as loss.lambda=0.3"
        )
    try:
        values = _load(value)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{_OVERRIDES} {text}: the value is not YAML: {error}") from error
    for key in reversed(keys.split(".")):
        values = {key: values}
    return _Layer.from_mapping(values, _OVERRIDES)


#: PyYAML is ten times as fast with libyaml, which its wheels contain.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """A safe loader with the booleans and numbers of YAML 1.2: ``off`` is a string, and ``1e-5`` is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|nan)$"),
    list("-+.0123456789"),
)


# Error messages


def _problem(detail: ErrorDetails, kind: type[BaseModel], layer: _Layer, path: Path) -> str:
    """Describe a validation error: the origin, the key, what was found, and what is expected."""
    keys, models = _resolve(detail["loc"], kind)
    key = ".".join(keys)
    value = _quoted(detail["input"])
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            names = [name for model in models for name in _keys_of(model)]
            places = dict.fromkeys(
                path for path in _paths(kind) if path.rpartition(".")[2] == keys[-1]
            )
            places.pop(key, None)  # that of another member of a union, such as another loss
            elsewhere = f"; did you mean {' or '.join(places)}?"
            problem = (
                f"there is no such setting{elsewhere if places else _suggestion(keys[-1], names)}"
            )
        case "missing":
            problem = "is missing"
        case "model_type" | "model_attributes_type":
            problem = f"expected a mapping ('key: value'), found {value}"
        case "union_tag_not_found":
            problem = "its name is missing"
        case "union_tag_invalid":
            key += ".name"
            names = re.findall(r"'(.*?)'", context["expected_tags"])
            problem = f"found {_quoted(context['tag'])}{_suggestion(str(context['tag']), names)}"
        case "value_error":
            problem = str(context["error"])
        case "literal_error":
            names = re.findall(r"'(.*?)'", context["expected"])
            problem = f"found {value}{_suggestion(str(detail['input']), names)}"
        case _:
            expected = detail["msg"].replace("Input should be", "expected").partition(", unable")[0]
            problem = f"{expected}, found {value}"
    origin = layer.origin(keys) or str(path)
    return f"{origin}: {key}: {problem}" if key else f"{origin}: {problem}"


def _suggestion(name: str, known: Sequence[str]) -> str:
    similar = similar_names(name[:_MAX_QUOTED], known)
    return (
        f"; did you mean {similar[0]}?"
        if similar
        else f"; expected one of {', '.join(dict.fromkeys(known))}"
    )


def _quoted(value: Any) -> str:
    """Return a value for a message, shortened if it is long."""
    if value is None:
        return "nothing"
    text = " ".join(value.split()) if isinstance(value, str) else repr(value)
    if len(text) > _MAX_QUOTED:
        text = f"{text[:_MAX_QUOTED]}…"
    return f'"{text}"' if isinstance(value, str) else text


def _keys_of(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _paths(model: type[BaseModel]) -> Iterator[str]:
    """Return the keys of all settings of a model, joined with dots."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield key
        for inner in _models_in(field.annotation):
            yield from (f"{key}.{path}" for path in _paths(inner))


def _resolve(
    location: Sequence[int | str], kind: type[BaseModel]
) -> tuple[Keys, list[type[BaseModel]]]:
    """Return the keys of a pydantic location, and the models that hold the last one.

    A location also names the members of unions, which are not keys of the file.
    """
    keys: list[str] = []
    models = holders = [kind]
    for part in map(str, location):
        fields = {
            field.alias or name: field.annotation
            for model in models
            for name, field in model.model_fields.items()
        }
        if part in fields and not (keys and part in _tags(models)):
            holders, models = models, list(_models_in(fields[part]))
        elif part in _tags(models):
            models = [model for model in models if part in _tags([model])]
            continue
        elif not keys or models or part.isdecimal():
            holders, models = models, []
        else:
            continue  # the name of a type, such as "int" of int | None
        keys.append(part)
    return tuple(keys), holders


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if (
        inspect.isclass(annotation)
        and get_origin(annotation) is None
        and issubclass(annotation, BaseModel)
    ):
        yield annotation
    else:
        for inner in get_args(annotation):
            yield from _models_in(inner)


def _tags(models: Sequence[type[BaseModel]]) -> list[str]:
    """Return the values of ``name`` that select one of the models in a discriminated union."""
    name_fields = (model.model_fields.get("name") for model in models)
    return [
        str(tag)
        for field in name_fields
        if field is not None and get_origin(field.annotation) is Literal
        for tag in get_args(field.annotation)
    ]


# Presets


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
    return dict(
        sorted(paths.items(), key=lambda entry: (entry[1].parent.stem != OWN_IMAGES, entry[0]))
    )


@cache
def comparison_presets() -> Mapping[str, Path]:
    """Return the settings files of comparisons, and rows in files of several, by name."""
    paths = {
        row: path / row
        for path, values in _preset_files().items()
        for row in values.get(COMPARISONS, ())
    }
    for path, values in _preset_files().items():
        if _has_own_settings(values):
            paths[path.stem] = path
    return dict(sorted(paths.items()))


def _has_own_settings(values: Mapping[str, Any]) -> bool:
    """Return whether a file is a training or a comparison itself, besides those in its rows."""
    return bool(values.keys() - {TRAININGS, SHARED, COMPARISONS})


def preset_description(path: Path) -> Mapping[str, str]:
    """Return the values of :data:`DESCRIPTION` of a row of a preset, or of its file's ``shared``."""
    values = _preset_files()[path.parent]
    row = values[SHARED] if path.name == SHARED else values[TRAININGS][path.name]
    return {key: row.get(key, "") for key in DESCRIPTION}


@cache
def _preset_files() -> Mapping[Path, Mapping[str, Any]]:
    return {
        path: yaml.load(path.read_text(encoding="utf-8"), _SafeLoader)  # noqa: S506 - it is a safe loader
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
    return presets.get(f"{OWN_IMAGES}/{name}".lower()) or _find_preset(
        str(name), presets, comparison_presets(), "training"
    )


def comparison_file(name: str | Path) -> Path:
    """Return the settings file of a comparison; see :func:`training_file`."""
    return _find_preset(str(name), comparison_presets(), training_presets(), "comparison")


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
    raise InputError(
        f"{name}: no such file; the comparisons that come with hgld are {', '.join(known)}"
    )


def _find_preset(
    name: str, presets: Mapping[str, Path], others: Mapping[str, Path], kind: str
) -> Path:
    path = Path(name)
    if name.lower() in presets:
        return presets[name.lower()]
    if path.is_file():
        _require_own_settings(path, kind)
        return path
    if path.parent.is_file():
        return path
    if path.suffix in _SUFFIXES:
        preset = next(
            (known for known in presets if path.with_suffix("").as_posix().endswith(known)), None
        )
        raise InputError(
            f"{path}: no such file" + (f"; the preset is called {preset}" if preset else "")
        )
    problem = f'there is neither a preset nor a file "{name}"'
    if name in others or f"{OWN_IMAGES}/{name}" in others:
        problem = f'"{name}" is the preset of a {"comparison" if kind == "training" else "training"}, not of a {kind}'
    raise ConfigurationError(
        f"{problem}; {_similar_presets(name, list(presets))}`hgld presets` lists all"
    )


def _require_own_settings(path: Path, kind: str) -> None:
    """Raise an :class:`InputError` that names the rows of a kind if a file has nothing else."""
    values = _read_yaml(path, ())
    rows = _require_mapping(values.get(f"{kind}s", {}), path / f"{kind}s")
    if rows and not _has_own_settings(values):
        raise InputError(f"{path}: its {kind}s are rows; give one as {path}/ROW: {', '.join(rows)}")


def _similar_presets(name: str, presets: Sequence[str]) -> str:
    """Name the presets of which a name is a part, otherwise those with similar names."""
    short_names = [known.removeprefix(f"{OWN_IMAGES}/") for known in presets]
    similar = (
        [known for known in presets if name in known.split("/")]
        or similar_names(name, short_names, 3)
        or [known for known in short_names if name in known]
    )
    *others, last = similar or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}? " if similar else ""
