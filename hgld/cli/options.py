"""Make the options of a command from its parameters, and from the fields of the settings classes among them.

Each is described once, by its entry in ``Args:`` of the docstring of the command or of the settings class, whose last
``Default: ...`` is shown as default.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from hgld.io.docstrings import described_parameters

F = TypeVar("F", bound=Callable[..., Any])
#: References of docstrings that are of no help on the command line, such as "; see :func:`read_labels`".
_REFERENCE = re.compile(r"[;,]? \(?(?:see )?:\w+:`[^`]*`\)?")


def field_options(
    kind: type, *, panel: str | None = None, **changes: str | ParameterInfo | None
) -> Callable[[F], F]:
    """Say how the options of a settings class differ from its fields in a command.

    Args:
        kind: Settings class, which is the type of a parameter of the command.
        panel: Title of the group of options in the help.
        **changes: By field, the name of its option, such as ``"--subclusters"``; an option or argument of typer; or
            None for no option, so that the field keeps its default.

    Raises:
        TypeError: The class lacks one of the fields.
    """
    unknown = set(changes) - {field.name for field in fields(kind)}
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")

    def decorate(function: F) -> F:
        vars(function).setdefault("field_options", {})[kind] = (panel, changes)
        return function

    return decorate


def field_option(kind: type, field: str, *names: str, **settings: Any) -> Any:
    """Return ``typer.Option(*names, **settings)`` with the description of one field of a settings class."""
    return typer.Option(*names, help=described_parameters(kind)[field], **settings)


def with_field_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with the options of settings in place of the settings.

    A parameter whose type is a dataclass has an option for each of its fields, except for fields that are dataclasses
    themselves, unless :func:`field_options` says how to parse them; the function gets the settings. The option
    ``--batch-size`` has the type, the default and the description of the field ``batch_size``; a field without a
    default is a required option. Of the other parameters, those without a default are arguments, and the others
    options, unless ``Annotated`` holds an option or argument of typer. Flags have no ``--no-...``, and sequences are
    repeated options. Descriptions are shown without references, and with options in place of the names of others in
    double backticks::

        @app.command(rich_help_panel="Labels")
        @field_options(ClusterConfig, n_clusters="-k", n_subclusters="--subclusters")
        def cluster(*, embeddings: Path, config: ClusterConfig) -> None:

    Raises:
        TypeError: Two options have the same name, or options differ of a class that is the type of no parameter.
    """
    texts = described_parameters(function)
    differences = getattr(function, "field_options", {})
    parameters: dict[str, inspect.Parameter] = {}
    settings: dict[str, tuple[type, list[str]]] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind = parameter.annotation
        if inspect.isclass(kind) and is_dataclass(kind):
            panel, changes = differences.get(kind, (None, {}))
            options = _options_of_fields(kind, panel, changes)
            settings[name] = (kind, [option.name for option in options])
        else:
            options = [_own_option(parameter, texts.get(name, ""))]
        for option in options:
            if option.name in parameters:
                raise TypeError(f"{function.__name__}: there are two options `{option.name}`")
            parameters[option.name] = option
    for kind in differences:
        if kind not in [each for each, _ in settings.values()]:
            raise TypeError(f"{function.__name__} has no parameter of the type {kind.__name__}")
    _write_names_as_typed(parameters)

    def run(**values: Any) -> None:
        for name, (kind, names) in settings.items():
            given = {field: values.pop(field) for field in names}
            values[name] = kind(
                **{field: _as_setting(value) for field, value in given.items() if value is not None}
            )
        function(**values)

    run.__name__ = function.__name__
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def summary_of(function: Callable[..., None]) -> str:
    """Return the docstring of the function of a command without ``Args:``."""
    return inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")[0]


def _as_setting(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _options_of_fields(
    kind: Any, panel: str | None, changes: Mapping[str, str | ParameterInfo | None]
) -> list[inspect.Parameter]:
    """Return an option for each field of a settings class."""
    hints, texts = get_type_hints(kind), described_parameters(kind)
    options = []
    for field in fields(kind):
        hint = hints[field.name]
        unchanged = None if is_dataclass(_without_none(hint)) else typer.Option()
        change = changes.get(field.name, unchanged)
        if change is None:
            continue
        info = typer.Option(change) if isinstance(change, str) else copy(change)
        if isinstance(info, OptionInfo) and info.rich_help_panel is None:
            info.rich_help_panel = panel
        _describe(info, field.name, texts.get(field.name, ""))
        options.append(_field_option(field, hint, info))
    return options


def _field_option(field: Field[Any], hint: Any, info: ParameterInfo) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if default == ():
        default = None
    if info.parser is not None:
        hint = str
        if default is not None and default is not inspect.Parameter.empty:
            if info.show_default is True:
                info.show_default = str(default)
            default = None
    elif get_origin(_without_none(hint)) in (tuple, Sequence):
        hint = list[get_args(_without_none(hint))[0]]  # type: ignore[misc]
    return _keyword(field.name, hint, info, default)


def _own_option(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    hint = parameter.annotation
    if get_origin(hint) is Annotated:
        hint, info = hint.__origin__, copy(hint.__metadata__[0])
    elif parameter.default is parameter.empty:
        info = typer.Argument()
    else:
        info = typer.Option()
    if info.parser is not None and get_origin(_without_none(hint)) is tuple:
        hint = str
    _describe(info, parameter.name, text)
    return _keyword(parameter.name, hint, info, parameter.default)


def _keyword(name: str, hint: Any, info: ParameterInfo, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, info], default=default
    )


def _describe(info: ParameterInfo, name: str, text: str) -> None:
    """Give an option or argument its name, its help, and the default that ends the text."""
    text = _REFERENCE.sub("", info.help or text).replace(
        "\\", "\\\\"
    )  # help is rendered as Markdown
    info.help, _, shown = text.partition(" Default: ")
    if shown and info.show_default is True:
        info.show_default = shown.rstrip(".")
    if (
        isinstance(info, OptionInfo) and info.default is ...
    ):  # in Annotated, the first name of an option is there
        info.default = f"--{name.replace('_', '-')}"


def _write_names_as_typed(parameters: Mapping[str, inspect.Parameter]) -> None:
    """Replace names of parameters in double backticks by options and arguments as they are typed."""
    infos = {name: parameter.annotation.__metadata__[0] for name, parameter in parameters.items()}
    typed = {name: _typed(name, info) for name, info in infos.items()}

    def as_typed(match: re.Match[str]) -> str:
        return typed.get(match[1], match[1])

    for info in infos.values():
        info.help = re.sub(r"``(.*?)``", as_typed, info.help)
        if isinstance(info.show_default, str):
            info.show_default = re.sub(r"``(.*?)``", as_typed, info.show_default)


def _typed(name: str, info: Any) -> str:
    if isinstance(info, ArgumentInfo):
        return info.metavar or name.upper()
    names = (info.default, *(info.param_decls or ()))
    return str(next((each for each in names if each.startswith("--")), names[0]))


def _without_none(hint: Any) -> Any:
    """Return X of a type ``X | None``."""
    others = [each for each in get_args(hint) if each is not type(None)]
    return others[0] if type(None) in get_args(hint) and len(others) == 1 else hint
