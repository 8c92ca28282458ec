"""What the pages of settings, losses and rejection scores share: types, defaults and meanings of options."""

from __future__ import annotations

import inspect
import itertools
import re
import types
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from docstring_parser import Docstring, DocstringStyle, parse
from markdown_text import blocks_from_docstring, code, from_docstring
from pydantic import BaseModel

from hgld.losses.registry import LossSettings

#: Header of the tables of options.
OPTION_HEADER = ("option", "type", "default", "meaning")
_NAMES = {
    Path: "path",
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Any: "any value",
}
_YAML_VALUES = {"None": "null", "True": "true", "False": "false"}
_PYTHON_VALUE = re.compile(r"\b(?:None|True|False)\b(?! of)")
#: Pages that list what a docstring refers to by the name of a constant.
_LISTS = {
    "hgld.rejection.registry.DETECTORS": "rejection_scores.md",
    "PRESETS": "presets.md#models",
}
_REFERENCE = re.compile(r"See :class:`~([\w.]+)\.(\w+)`(?:\.$|[.;,]\s*)")


def parsed(documented: Any) -> Docstring:
    """Return the parsed docstring of a class or function."""
    return parse(inspect.getdoc(documented) or "", DocstringStyle.GOOGLE)


def description(documented: Any) -> str:
    """Return what a docstring says before its sections."""
    long_description = parsed(documented).long_description
    return "\n\n".join(
        filter(None, (summary(documented), blocks_from_docstring(long_description or "")))
    )


def summary(documented: Any) -> str:
    """Return the first line of a docstring."""
    return from_docstring((parsed(documented).short_description or "").removeprefix("Return "))


def parameter_meaning(function: Callable[..., Any], name: str) -> str:
    """Return the meaning of a parameter; that of a base or of another class where the docstring refers to it."""
    documented = inspect.getmro(function) if inspect.isclass(function) else [function]
    for parameter in itertools.chain.from_iterable(parsed(kind).params for kind in documented):
        if parameter.arg_name == name:
            text, inherited = parameter.description or "", ""
            if reference := _REFERENCE.match(text):
                inherited = parameter_meaning(
                    getattr(import_module(reference[1]), reference[2]), name
                )
                rest = text[reference.end() :]
                text = rest[:1].upper() + rest[1:]
            return f"{inherited} {in_yaml(from_docstring(text))}".strip()
    return ""


def in_yaml(text: str) -> str:
    """Return a text about Python values with the values that YAML has.

    >>> in_yaml("None for all; `None` and (True)")
    '`null` for all; `None` and (`true`)'
    """
    for name, page in _LISTS.items():
        text = text.replace(f"`{name}`", f"[list]({page})")
    parts = text.split("`")
    parts[::2] = [
        _PYTHON_VALUE.sub(lambda found: f"`{_YAML_VALUES[found[0]]}`", part) for part in parts[::2]
    ]
    return "`".join(parts)


def default_text(value: Any) -> str:
    """Return a default as YAML has it."""
    return code(yaml_text(value))


def yaml_text(value: Any) -> str:
    """Return a value as YAML has it, in one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value and abs(value) < 1e-3:
        return f"{value:g}"
    value = (
        list(value)
        if isinstance(value, tuple)
        else str(value)
        if isinstance(value, Path)
        else value
    )
    return (
        yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
        .removesuffix("...\n")
        .strip()
    )


def type_name(annotation: Any) -> str:
    """Return the name of a type as a reader of YAML understands it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(type_name, arguments)))
    if origin is Literal:
        return " or ".join(map(yaml_text, arguments))
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"mapping of names to {type_name(arguments[1])}"
    if inspect.isclass(origin) and issubclass(origin, tuple | list):
        return f"list of {type_name(arguments[0])}"
    if annotation is type(None):
        return "null"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "loss" if issubclass(annotation, LossSettings) else "section"
    return _NAMES.get(annotation) or str(getattr(annotation, "__name__", annotation))
