"""Make options of a command from the fields of a settings class or the parameters of a function, described once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

F = TypeVar("F", bound=Callable[..., Any])
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
#: References of docstrings that are no help on the command line, such as "; see :func:`read_labels`".
_REFERENCE = re.compile(r"[;,]? \(?(?:see )?:\w+:`[^`]*`\)?")


def options_of(
    source: str | Callable[..., Any],
    parameter: str = "config",
    /,
    *,
    deferred: bool = False,
    panel: str | None = None,
    **changes: Any,
) -> Callable[[F], F]:
    """Give a command an option for each field of a settings dataclass, or each parameter of a library function.

    The function of the command gets the settings, or the function with the values of the options bound to it. The
    option ``--batch-size`` has the type and the default of the field ``batch_size`` and, as help text, its entry in
    ``Args:`` of the docstring, without references, and with options in place of the names of others in double
    backticks; ``Default: ...`` at the end of the entry is shown as default. Flags have no ``--no-...``, fields that
    are sequences are repeated options, fields that are settings dataclasses themselves have no option, and parameters
    of functions without a default are arguments. A field that is also a parameter of the command, or a field of a
    decorator above, gets the value of that option. Error messages that name a field in backticks name the option. The
    options stand in the help where the parameter does::

        @app.command(rich_help_panel="Labels")
        @options_of("hgld.labels.clusters:ClusterConfig", n_clusters="-k", n_subclusters="--subclusters", seed=None)
        def cluster(*, embeddings: Annotated[Path, ...], config: ClusterConfig, force: Force = False) -> None:

    Args:
        source: The class or function, or ``module:Name`` to import it when the command is used. Its module should not
            import torch, lest the help of the command take seconds.
        parameter: Parameter of the decorated function that gets the settings; it needs no default, so the function
            takes keywords only.
        deferred: Pass a callable that returns the settings, and takes fields to change, instead of the settings:
            for classes that cannot be built in every use of the command.
        panel: Title of a group of options in the help.
        **changes: How the option of a field differs: its name, such as ``"--subclusters"``; a mapping of ``name`` and
            of arguments of ``typer.Option``, such as a ``parser``, which returns the value of the field, or with
            ``"kind": typer.Argument`` of this; or None for no option, so that the field keeps its default.
    """

    def decorate(function: F) -> F:
        stub: Any = function if hasattr(function, "settings") else _stub(function)
        stub.function.__annotations__.pop(parameter)  # may be a name that is imported for type checks only
        stub.settings.insert(0, _Source(source, parameter, changes, deferred, panel))
        return stub  # type: ignore[no-any-return]

    return decorate


@dataclass(frozen=True)
class _Source:
    """A settings class or a function whose fields or parameters are options of a command."""

    source: str | Callable[..., Any]
    parameter: str
    changes: Mapping[str, Any]
    deferred: bool
    panel: str | None

    def load(self) -> Callable[..., Any]:
        """Return the class or function."""
        if isinstance(self.source, str):
            module, _, name = self.source.partition(":")
            return getattr(import_module(module), name)  # type: ignore[no-any-return]
        return self.source

    def parameters(self, other_options: Container[str]) -> list[inspect.Parameter]:
        """Return a parameter per field that is an option, described by the docstring."""
        from hgld.io.settings import settings_help

        source = self.load()
        fields = {
            field.name: field
            for field in inspect.signature(source).parameters.values()
            if field.name not in other_options and self.changes.get(field.name, {}) is not None
        }
        types, help_texts = _types(source, fields), settings_help(source)
        parameters = []
        for name, field in fields.items():
            if not is_dataclass(_without_none(types[name])):
                changes = self.changes.get(name, {})
                changes = {"name": changes} if isinstance(changes, str) else changes
                is_argument = not (inspect.isclass(source) or changes or field.default is not field.empty)
                kind = {"kind": typer.Argument} if is_argument else {"rich_help_panel": self.panel}
                parameters.append(_parameter(field, types[name], help_texts.get(name, ""), kind | changes))
        return parameters

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return the settings made of the values of all options by name, or the function bound to them."""
        source = self.load()
        given = {name: values[name] for name in inspect.signature(source).parameters if values.get(name) is not None}
        build = partial(
            source, **{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        )
        return build if self.deferred or not inspect.isclass(source) else build()


def _types(source: Callable[..., Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the types of parameters; others of a function may have types that are imported for type checks only."""
    if inspect.isclass(source):
        return get_type_hints(source)
    annotations = {name: source.__annotations__[name] for name in names}
    return get_type_hints(SimpleNamespace(__annotations__=annotations), vars(inspect.getmodule(source)))


def _stub(function: Callable[..., None]) -> Any:
    """Return a function without parameters that stands for that of a command until the command is used."""

    def stub() -> None: ...

    stub.__name__, stub.__doc__ = function.__name__, function.__doc__
    vars(stub).update(function=function, settings=[])
    return stub


def with_settings(stub: Any) -> Callable[..., None]:
    """Return the function of a command of :func:`options_of`, with the options of its settings in its signature."""
    sources = {source.parameter: source for source in stub.settings}
    own = inspect.signature(stub.function, eval_str=True).parameters
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in own.items():
        added = (
            sources[name].parameters({*own, *parameters}) if name in sources else [parameter.replace(kind=_KEYWORD)]
        )
        parameters |= {each.name: each for each in added}
    _name_options(parameters)

    def run(**values: Any) -> None:
        built = {name: source.build(values) for name, source in sources.items()}
        stub.function(**{name: value for name, value in values.items() if name in own}, **built)

    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _name_options(parameters: Mapping[str, inspect.Parameter]) -> None:
    """Replace names of parameters in double backticks by options and arguments as they are typed."""
    annotations = {name: parameter.annotation for name, parameter in parameters.items()}
    described = {name: hint.__metadata__[0] for name, hint in annotations.items() if get_origin(hint) is Annotated}
    typed = {name: _typed(name, info) for name, info in described.items()}
    for info in described.values():
        for field in ("help", "show_default"):
            if isinstance(text := getattr(info, field), str):
                setattr(info, field, re.sub(r"``(.*?)``", lambda match: typed.get(match[1], match[1]), text))


def _typed(name: str, info: Any) -> str:
    if isinstance(info, ArgumentInfo):
        return info.metavar or name.upper()
    names = [each for each in info.param_decls if each.startswith("--")] or info.param_decls
    return next(iter(names), f"--{name.replace('_', '-')}")


def _parameter(field: inspect.Parameter, hint: Any, text: str, changes: Mapping[str, Any]) -> inspect.Parameter:
    """Return the parameter of a typer function that stands for a field of settings or a parameter of a function."""
    settings = dict(changes)
    kind, name = settings.pop("kind", typer.Option), settings.pop("name", f"--{field.name.replace('_', '-')}")
    help_text, _, shown = _REFERENCE.sub("", text).partition(" Default: ")
    settings = {"help": help_text} | ({"show_default": shown.rstrip(".")} if shown else {}) | settings
    default = None if field.default == () else field.default
    if "parser" in settings:
        hint = str
        if default not in (None, field.empty):
            settings, default = {"show_default": str(default)} | settings, None
    elif get_origin(_without_none(hint)) in (tuple, Sequence):
        hint = list[get_args(_without_none(hint))[0]]  # type: ignore[misc]
    names = [name] if kind is typer.Option else []
    return inspect.Parameter(
        field.name, _KEYWORD, annotation=Annotated[hint, kind(*names, **settings)], default=default
    )


def _without_none(hint: Any) -> Any:
    """Return X of a type ``X | None``."""
    others = [each for each in get_args(hint) if each is not type(None)]
    return others[0] if type(None) in get_args(hint) and len(others) == 1 else hint
