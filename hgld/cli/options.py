"""Make options of a command from the fields of a settings class, their only description."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

F = TypeVar("F", bound=Callable[..., Any])
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def options_of(
    settings: str | type | Callable[[], type], parameter: str = "config", *, deferred: bool = False, **changes: Any
) -> Callable[[F], F]:
    """Give a command an option for each field of a settings dataclass, and its function the settings.

    The option ``--batch-size`` has the type and the default of the field ``batch_size`` and, as help text, its entry
    in ``Args:`` of the class's docstring, without backticks; ``Default: ...`` at the end of the entry is shown as
    default. Flags have no ``--no-...``, fields that are sequences are repeated options, and fields that are settings
    dataclasses themselves have no option. A field that is also a parameter of the function, or a field of the
    settings of a decorator above, gets the value of that option. Error messages that name a field in backticks name
    the option. The options stand in the help where the parameter does::

        @app.command(rich_help_panel="Labels")
        @options_of("hgld.labels.clusters:ClusterConfig", n_clusters="-k", n_subclusters="--subclusters", seed=None)
        def cluster(*, embeddings: Annotated[Path, ...], config: ClusterConfig, force: Force = False) -> None:

    Args:
        settings: The class, or ``module:Class`` or a function that returns it, to import it when the command is used.
            Its module should not import torch, lest the help of the command take seconds.
        parameter: Parameter of the decorated function that gets the settings; it needs no default, so the function
            takes keywords only.
        deferred: Pass a callable that returns the settings, and takes fields to change, instead of the settings:
            for classes that cannot be built in every use of the command.
        **changes: How the option of a field differs: its name, such as ``"--subclusters"``; a mapping of ``name`` and
            of arguments of ``typer.Option``, such as a ``parser``, which returns the value of the field, or with
            ``"kind": typer.Argument`` of this; or None for no option, so that the field keeps its default.
    """

    def decorate(function: F) -> F:
        stub: Any = function if hasattr(function, "settings") else _stub(function)
        stub.function.__annotations__.pop(parameter)  # may be a name that is imported for type checks only
        stub.settings.insert(0, SettingsSource(settings, parameter, changes, deferred))
        return stub  # type: ignore[no-any-return]

    return decorate


@dataclass(frozen=True)
class SettingsSource:
    """A settings class whose fields are options of a command.

    Args:
        settings: The class, or ``module:Class``, which is imported when the command is used.
        parameter: Parameter of the command's function that gets the settings.
        changes: What differs from the default of an option, by field; None for a field without an option.
        deferred: Whether the function gets a callable that returns the settings.
    """

    settings: str | type | Callable[[], type]
    parameter: str
    changes: Mapping[str, Any]
    deferred: bool

    def load(self) -> type:
        """Return the class."""
        if isinstance(self.settings, str):
            module, _, name = self.settings.partition(":")
            return getattr(import_module(module), name)  # type: ignore[no-any-return]
        return self.settings if inspect.isclass(self.settings) else self.settings()

    def parameters(self, other_options: Container[str]) -> list[inspect.Parameter]:
        """Return a parameter per field that is an option, described by the docstring of the class."""
        from hgld.io.settings import settings_help

        kind = self.load()
        types, help_texts = get_type_hints(kind), settings_help(kind)
        parameters = []
        for field in fields(kind):
            hint, changes = types[field.name], self.changes.get(field.name, {})
            if changes is not None and field.name not in other_options and not is_dataclass(_without_none(hint)):
                changes = {"name": changes} if isinstance(changes, str) else changes
                parameters.append(_parameter(field, hint, help_texts.get(field.name, ""), changes))
        return parameters

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return the settings made of the values of all options by name."""
        kind = self.load()
        given = {field.name: values[field.name] for field in fields(kind) if values.get(field.name) is not None}
        build = partial(
            kind, **{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        )
        return build if self.deferred else build()


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

    def run(**values: Any) -> None:
        settings = {name: source.build(values) for name, source in sources.items()}
        stub.function(**{name: value for name, value in values.items() if name in own}, **settings)

    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _parameter(field: Field[Any], hint: Any, text: str, changes: Mapping[str, Any]) -> inspect.Parameter:
    """Return the parameter of a typer function that stands for a field of settings."""
    settings = dict(changes)
    kind, name = settings.pop("kind", typer.Option), settings.pop("name", f"--{field.name.replace('_', '-')}")
    help_text, _, shown = text.replace("``", "").partition(" Default: ")
    settings = {"help": help_text} | ({"show_default": shown.rstrip(".")} if shown else {}) | settings
    default = inspect.Parameter.empty if field.default is field.default_factory is MISSING else field.default
    if default in (MISSING, ()):
        default = None
    if "parser" in settings:
        hint = str
        if default not in (None, inspect.Parameter.empty):
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
