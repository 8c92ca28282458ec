"""Every setting of trainings and comparisons, from the models that read their files."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from docstring_parser import Docstring, DocstringStyle, parse
from markdown_text import code, from_docstring, table
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from sphinx.pycode import ModuleAnalyzer

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.rejection.comparison_settings import RejectionSettings
from hgld.losses.registry import LossSettings
from hgld.training.training_settings import TrainingSettings

_PAGES = {
    "training_settings.md": (
        "Settings of a training",
        "The YAML file that `hgld train` reads; `--set KEY=VALUE` changes one of them.",
        TrainingSettings,
    ),
    "benchmark_settings.md": (
        "Settings of a comparison",
        "The YAML file that `hgld benchmark` reads.",
        BenchmarkSettings,
    ),
    "rejection_settings.md": (
        "Settings of a comparison of rejection scores",
        "The YAML file that `hgld reject compare` reads.",
        RejectionSettings,
    ),
}


def settings_pages() -> dict[str, str]:
    """Return a page for each file of settings."""
    return {
        name: "\n\n".join([f"# {title}", about, *_sections("", model)]) + "\n"
        for name, (title, about, model) in _PAGES.items()
    }


def _sections(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    """Yield the section of a model, and then those of the models in it."""
    described = _docstring(model)
    text = from_docstring("\n\n".join(filter(None, (described.short_description, described.long_description))))
    heading = [f"## `{prefix.rstrip('.')}`"] if prefix else []
    meanings = _meanings(model, described)
    rows, inner = [], []
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        models = list(_models(field.annotation))
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        rows.append([code(key), code(_type_name(field.annotation)), default, meanings.get(name, "")])
        inner += [(key, each) for each in models]
    # What a union can be follows the section that has it.
    yield "\n\n".join([*heading, text, table(["setting", "type", "default", "meaning"], rows)])
    for key, each in inner:
        yield from _sections(f"{key}.", each)


def _meanings(model: type[BaseModel], described: Docstring) -> dict[str, str]:
    """Return what is said about each setting, in the docstring or in the comment ``#:`` above it."""
    comments = ModuleAnalyzer.for_module(model.__module__).find_attr_docs()
    meanings = {name: " ".join(lines) for (of, name), lines in comments.items() if of == model.__name__}
    meanings |= {parameter.arg_name: parameter.description or "" for parameter in described.params}
    return {name: from_docstring(text) for name, text in meanings.items()}


def _docstring(model: type[BaseModel]) -> Docstring:
    return parse(inspect.getdoc(model) or "", DocstringStyle.GOOGLE)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of an annotation; those of losses have a page of their own."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if not issubclass(annotation, LossSettings):
            yield annotation
        return
    for argument in get_args(annotation):
        yield from _models(argument)


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        return code(getattr(value, "name", "")) or "see below"
    return code("null" if value is None else list(value) if isinstance(value, tuple) else value)


def _type_name(annotation: Any) -> str:
    """Return the name of a type as a reader of YAML understands it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin in (Union, types.UnionType):
        names = dict.fromkeys(_type_name(argument) for argument in arguments)
        return " or ".join(names)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"mapping of names to {_type_name(arguments[1])}"
    if origin in (tuple, list) or (inspect.isclass(origin) and issubclass(origin, tuple | list)):
        return f"list of {_type_name(arguments[0])}"
    if annotation is type(None):
        return "null"
    if inspect.isclass(annotation):
        if issubclass(annotation, LossSettings):
            return "loss"
        if issubclass(annotation, BaseModel):
            return "section"
        return {Path: "path", str: "text", int: "integer", float: "number", bool: "true or false"}.get(
            annotation, annotation.__name__
        )
    return str(annotation)
