"""Describe validation errors of settings by the keys of the YAML file, and suggest similar names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from hgld.errors import similar_names
from hgld.io.yaml_files import MAX_QUOTED, quote_value


def describe_error(detail: ErrorDetails, kind: type[BaseModel]) -> tuple[tuple[str, ...], str]:
    """Describe a validation error.

    Args:
        detail: The error that pydantic reports.
        kind: The class of the settings.

    Returns:
        The keys that lead to the invalid value, and a message with these keys, the value, and what
        is expected.
    """
    keys, holders = _locate(detail["loc"], kind)
    key = ".".join(keys)
    value = detail["input"]
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            problem = f"there is no such setting{_suggest_setting(keys, holders, kind)}"
        case "missing":
            problem = "is missing"
        case "model_type" | "model_attributes_type":
            problem = f"expected a mapping ('key: value'), found {quote_value(value)}"
        case "union_tag_not_found":
            problem = "its name is missing"
        case "union_tag_invalid":
            key += ".name"
            problem = _describe_choice(context["tag"], context["expected_tags"])
        case "value_error":
            problem = str(context["error"])
        case "literal_error":
            problem = _describe_choice(value, context["expected"])
        case _:
            expected = detail["msg"].replace("Input should be", "expected").partition(", unable")[0]
            problem = f"{expected}, found {quote_value(value)}"
    if key:
        problem = f"{key}: {problem}"
    return keys, problem


def _describe_choice(value: Any, expected: str) -> str:
    """Describe a value that is not among the allowed values; pydantic quotes these in ``expected``."""
    allowed = re.findall(r"'(.*?)'", expected)
    return f"found {quote_value(value)}{suggest(str(value), allowed)}"


def _suggest_setting(
    keys: Sequence[str], holders: Sequence[type[BaseModel]], kind: type[BaseModel]
) -> str:
    """Suggest settings of the same name in other places, or similar names in the same place."""
    name = keys[-1]
    paths = []
    for path in _setting_paths(kind):
        # The same path belongs to another member of a union, such as another loss.
        if path.rpartition(".")[2] == name and path != ".".join(keys) and path not in paths:
            paths.append(path)
    if paths:
        return f"; did you mean {' or '.join(paths)}?"
    return suggest(name, list(_fields_by_key(holders)))


def suggest(name: str, allowed: Sequence[str]) -> str:
    """Return the end of an error message that names the most similar allowed name, or all of them."""
    similar = similar_names(name[:MAX_QUOTED], allowed)
    if similar:
        return f"; did you mean {similar[0]}?"
    return f"; expected one of {', '.join(dict.fromkeys(allowed))}"


def _fields_by_key(models: Sequence[type[BaseModel]]) -> dict[str, FieldInfo]:
    """Return the fields of models by the keys that YAML files use."""
    fields = {}
    for model in models:
        for name, field in model.model_fields.items():
            fields[field.alias or name] = field
    return fields


def _setting_paths(model: type[BaseModel]) -> Iterator[str]:
    """Return the keys of all settings of a model, joined with dots."""
    for key, field in _fields_by_key([model]).items():
        yield key
        for section in _models_in(field.annotation):
            for path in _setting_paths(section):
                yield f"{key}.{path}"


def _locate(
    location: Sequence[int | str], kind: type[BaseModel]
) -> tuple[tuple[str, ...], list[type[BaseModel]]]:
    """Return the keys of a pydantic location, and the models that may hold the last key.

    A location also contains the names of union members and types, which are not keys of the file.
    """
    keys: list[str] = []
    holders = [kind]
    models = [kind]
    for part in map(str, location):
        fields = _fields_by_key(models)
        tags = _union_tags(models)
        if part in fields and (not keys or part not in tags):
            keys.append(part)
            holders = models
            models = list(_models_in(fields[part].annotation))
        elif part in tags:
            models = [model for model in models if part in _union_tags([model])]
        elif not keys or models or part.isdecimal():
            keys.append(part)
            holders = models
            models = []
        # Any other part is the name of a type, such as "int" of int | None.
    return tuple(keys), holders


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Return the models that a type annotation contains, such as the members of a union."""
    is_class = inspect.isclass(annotation) and get_origin(annotation) is None
    if is_class and issubclass(annotation, BaseModel):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _union_tags(models: Sequence[type[BaseModel]]) -> list[str]:
    """Return the values of ``name`` that select one of the models in a discriminated union."""
    tags: list[str] = []
    for model in models:
        field = model.model_fields.get("name")
        if field is not None and get_origin(field.annotation) is Literal:
            tags += map(str, get_args(field.annotation))
    return tags
