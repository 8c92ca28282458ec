"""Every setting of trainings and comparisons, from the models that read their files."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from markdown_text import code, from_docstring, table
from option_tables import default_text, description, in_yaml, parsed, type_name
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from sphinx.pycode import ModuleAnalyzer

from hgld.benchmark.rejection.settings import RejectionSettings
from hgld.benchmark.runs import BenchmarkSettings
from hgld.losses.registry import LossSettings
from hgld.release.facts import ReleaseSettings
from hgld.training.training_settings import TrainingSettings

_PAGES: Mapping[str, tuple[str, str, type[BaseModel]]] = {
    "training_settings.md": (
        "Settings of a training",
        "The YAML file that `hgld train` reads; `--set KEY=VALUE` changes one of them, and `base: NAME` extends a "
        "[preset](presets.md). [Guide](../../how-to/train.md).",
        TrainingSettings,
    ),
    "benchmark_settings.md": (
        "Settings of a comparison",
        "The YAML file that `hgld benchmark` reads. [Guide](../../how-to/compare.md).",
        BenchmarkSettings,
    ),
    "rejection_settings.md": (
        "Settings of a comparison of rejection scores",
        "The YAML file that `hgld compare-rejection` reads. [Guide](../../how-to/reject.md).",
        RejectionSettings,
    ),
    "release_settings.md": (
        "Facts of a release",
        "The YAML file that `hgld release` reads, and that `--init` writes with these questions. "
        "[Guide](../../how-to/release.md).",
        ReleaseSettings,
    ),
}


def settings_pages() -> dict[str, str]:
    """Return a page for each file of settings."""
    return {
        name: "\n\n".join([f"# {title}", about, *_sections([""], model, "")]) + "\n"
        for name, (title, about, model) in _PAGES.items()
    }


def _sections(keys: list[str], model: type[BaseModel], kind: str) -> Iterator[str]:
    """Yield the section of a model, and then those of the models in it.

    Args:
        keys: Settings that have the model, several if their sections are alike; empty for the whole file.
        model: Model to describe.
        kind: Which of the kinds of sections it is, as ``name: dyml``; empty if there is one.
    """
    prefix = keys[0] if len(keys) == 1 else f"{keys[0].rpartition('.')[0]}.*"
    heading = "## " + ", ".join(map(code, keys)) + (f" with `{kind}`" if kind else "")
    meanings = _meanings(model)
    rows = []
    inner: dict[type[BaseModel], list[str]] = {}
    kinds: dict[type[BaseModel], str] = {}
    for name, field in model.model_fields.items():
        key = f"{prefix}.{field.alias or name}".removeprefix(".")
        found = dict(_models(key, field.annotation))
        if len(found) > 1:
            kinds |= {each: _kind(each) for each in found}
        for each, path in found.items():
            inner.setdefault(each, []).append(path)
        if kind != f"{name}: {_literal(field.annotation)}":
            default = (
                "required"
                if field.is_required()
                else _default(field.get_default(call_default_factory=True))
            )
            rows.append(
                [
                    code(key),
                    _type_cell(field.annotation, list(found)),
                    default,
                    meanings.get(name, ""),
                ]
            )
    settings = (
        table(["setting", "type", "default", "meaning"], rows)
        if rows
        else "It has no further settings."
    )
    yield "\n\n".join([heading, in_yaml(description(model)), settings] if prefix else [settings])
    # What a union can be follows the section that has it.
    for each, paths in inner.items():
        yield from _sections(paths, each, kinds.get(each, ""))


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what is said about each setting, in the docstring or in the comment ``#:`` above it."""
    comments = ModuleAnalyzer.for_module(model.__module__).find_attr_docs()
    meanings = {
        name: " ".join(lines) for (of, name), lines in comments.items() if of == model.__name__
    }
    meanings |= {
        parameter.arg_name: parameter.description or "" for parameter in parsed(model).params
    }
    return {name: in_yaml(from_docstring(text)) for name, text in meanings.items()}


def _models(key: str, annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the models of a setting and where they are in the file; losses have a page of their own."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if not issubclass(annotation, LossSettings):
            yield annotation, key
        return
    origin = get_origin(annotation)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        key = f"{key}.NAME"
    for argument in get_args(annotation):
        yield from _models(key, argument)


def _kind(model: type[BaseModel]) -> str:
    """Return the setting that tells a section of a kind from the others, as ``name: dyml``."""
    name, value = next(
        (name, _literal(field.annotation)) for name, field in model.model_fields.items()
    )
    return f"{name}: {value}"


def _has_kind(model: type[BaseModel]) -> bool:
    return any(_literal(field.annotation) is not None for field in model.model_fields.values())


def _literal(annotation: Any) -> Any:
    """Return the one value that a setting may have; None if it may have several."""
    values = get_args(annotation)
    return values[0] if get_origin(annotation) is Literal and len(values) == 1 else None


def _type_cell(annotation: Any, models: list[type[BaseModel]]) -> str:
    name = type_name(annotation)
    if "loss" in name.split():
        return "[loss](loss_options.md)"
    return code(name) + (
        f": {' or '.join(code(_kind(model)) for model in models)}" if len(models) > 1 else ""
    )


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        return code(_kind(type(value))) if _has_kind(type(value)) else "its defaults"
    return default_text(value)
