"""Settings in YAML files: files that build upon others, single values from the command line, and errors that help."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hgld.errors import ConfigurationError, InputError, listing

#: The key that names the file which a file builds upon.
BASE = "base"
_ON_COMMAND_LINE = "--set"

S = TypeVar("S", bound=BaseModel)
Keys = tuple[str, ...]


def read_settings(kind: type[S], path: Path, overrides: Sequence[str] = ()) -> S:
    """Settings from a YAML file.

    A file whose key ``base`` names another (relative to its own folder) is laid over that one, mapping by mapping. A
    mapping with another ``name`` than below it, such as another loss, takes its place entirely.

    Args:
        kind: what is to be read.
        path: the YAML file.
        overrides: laid over it, such as ``loss.lambda=0.3``; values are YAML.

    Raises:
        InputError: a file is missing or no YAML, or files build upon each other in a circle.
        ConfigurationError: settings are wrong; all of them are told, with the files that they are in.
    """
    tree = _read(path, ())
    for override in overrides:
        tree = tree.under(_override(override))
    try:
        return kind.model_validate(tree.values)
    except ValidationError as error:
        problems = [_problem(detail, kind, tree, path) for detail in error.errors(include_url=False)]
        raise ConfigurationError(f"wrong settings, {len(problems)} in all:\n{listing(problems)}") from None


def to_yaml(settings: BaseModel) -> str:
    """Settings as a YAML file that says everything, defaults as well."""
    return yaml.safe_dump(plain(settings), sort_keys=False, allow_unicode=True, width=100)


def plain(settings: BaseModel) -> dict[str, Any]:
    """Settings as JSON values, with the keys that files have."""
    return settings.model_dump(mode="json", by_alias=True)


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their keys joined with dots.

    >>> flat({"loss": {"name": "happier", "lambda": 0.1}, "seed": 0})
    {'loss.name': 'happier', 'loss.lambda': 0.1, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": one for inner, one in flat(value).items()}
        else:
            found[key] = value
    return found


@dataclass(frozen=True)
class _Tree:
    """Values as YAML has them, and where each comes from, by its keys."""

    values: dict[str, Any]
    origins: Mapping[Keys, str]

    @classmethod
    def of(cls, values: dict[str, Any], origin: str) -> _Tree:
        return cls(values, dict.fromkeys(_paths(values), origin))

    def under(self, upper: _Tree) -> _Tree:
        return _Tree(_laid_over(self.values, upper.values), {**self.origins, **upper.origins})


def _paths(values: Mapping[str, Any], before: Keys = ()) -> Iterator[Keys]:
    for key, value in values.items():
        yield (*before, str(key))
        if isinstance(value, Mapping):
            yield from _paths(value, (*before, str(key)))


def _laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    if upper.get("name", lower.get("name")) != lower.get("name"):
        return dict(upper)
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _laid_over(below, value)
        merged[key] = value
    return merged


def _read(path: Path, above: tuple[Path, ...]) -> _Tree:
    """The file laid over the one it builds upon; ``above`` are those that build upon it."""
    if path.resolve() in above:
        raise InputError(f"{path}: builds upon itself; mend the key {BASE} of {above[-1]}")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - it is a safe loader
    except FileNotFoundError:
        named = f', which {above[-1]} names as its "{BASE}"' if above else ""
        raise InputError(f"{path}: no such file{named}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected settings such as 'batch_size: 256', found {_shown(values)}")
    base = values.pop(BASE, None)
    tree = _Tree.of(values, str(path))
    if base is None:
        return tree
    return _read(path.parent / str(base), (*above, path.resolve())).under(tree)


def _override(text: str) -> _Tree:
    keys, equals, value = text.partition("=")
    if not equals or not all(keys.split(".")):
        raise ConfigurationError(f"{_ON_COMMAND_LINE} {text}: expected KEY=VALUE, such as loss.lambda=0.3")
    try:
        values = yaml.load(value, _Loader)  # noqa: S506 - it is a safe loader
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{_ON_COMMAND_LINE} {text}: the value is no YAML: {error}") from error
    for key in reversed(keys.split(".")):
        values = {key: values}
    return _Tree.of(values, _ON_COMMAND_LINE)


class _Loader(yaml.SafeLoader):
    """YAML 1.2's words for true and false, and its numbers: ``off`` is a text, and ``1e-5`` is not."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|nan)$"),
    list("-+.0123456789"),
)


def _problem(detail: ErrorDetails, kind: type[BaseModel], tree: _Tree, path: Path) -> str:
    """What is wrong, in words: where, what was found, and what would be right."""
    keys, models = _resolve(detail["loc"], kind)
    where = ".".join(keys)
    said = next((tree.origins[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in tree.origins), str(path))
    found = _shown(detail["input"])
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            names = [name for model in models for name in _keys_of(model)]
            problem = f"there is no such setting{_suggestion(keys[-1], names)}"
        case "missing":
            problem = "is missing"
        case "model_type" | "model_attributes_type":
            problem = f"expected settings of its own ('key: value'), found {found}"
        case "union_tag_not_found":
            problem = "its name is missing"
        case "union_tag_invalid":
            where += ".name"
            names = re.findall(r"'(.*?)'", context["expected_tags"])
            problem = f"found {_shown(context['tag'])}{_suggestion(str(context['tag']), names)}"
        case "value_error":
            problem = str(context["error"])
        case "literal_error":
            names = re.findall(r"'(.*?)'", context["expected"])
            problem = f"found {found}{_suggestion(str(detail['input']), names)}"
        case _:
            expected = detail["msg"].replace("Input should be", "expected").partition(", unable")[0]
            problem = f"{expected}, found {found}"
    return f"{said}: {where}: {problem}" if where else f"{said}: {problem}"


def _suggestion(found: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(found, names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(dict.fromkeys(names))}"


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else "nothing" if value is None else repr(value)


def _keys_of(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _resolve(location: Sequence[int | str], kind: type[BaseModel]) -> tuple[Keys, list[type[BaseModel]]]:
    """The keys of a pydantic location, which also names the members of unions, and the models that hold the last."""
    keys: list[str] = []
    models = holders = [kind]
    for part in map(str, location):
        fields = {
            field.alias or name: field.annotation for model in models for name, field in model.model_fields.items()
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
    if inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for inner in get_args(annotation):
            yield from _models_in(inner)


def _tags(models: Sequence[type[BaseModel]]) -> list[str]:
    """What discriminates the members of a union: their ``name``."""
    named = (model.model_fields.get("name") for model in models)
    return [
        str(tag)
        for field in named
        if field is not None and get_origin(field.annotation) is Literal
        for tag in get_args(field.annotation)
    ]
