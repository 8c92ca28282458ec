"""Make the options of a command from its parameters, and from the fields of its settings classes.

An option is described once: by its entry in ``Args:`` of the docstring of the command or of the
settings class. A sentence ``Default: ...`` at the end of the entry is shown as the default.
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
#: References of docstrings that do not help on the command line, such as "; see :func:`read_labels`".
_REFERENCE = re.compile(r"[;,]? \(?(?:see )?:\w+:`[^`]*`\)?")
#: The name of a parameter in double backticks.
_PARAMETER_NAME = re.compile(r"``(.*?)``")


def field_options(kind: type, **changes: str | ParameterInfo | None) -> Callable[[F], F]:
    """Change how a command shows the fields of a settings class as options.

    Args:
        kind: Settings class, which is the type of a parameter of the command.
        **changes: By field, the name of its option, such as ``"--subclusters"``; an option or
            argument of typer; or None for no option, so that the field keeps its default.

    Raises:
        TypeError: The class lacks one of the fields.
    """
    unknown = set(changes) - {field.name for field in fields(kind)}
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")

    def decorate(function: F) -> F:
        vars(function).setdefault("field_options", {})[kind] = changes
        return function

    return decorate


def field_option(kind: type, field: str, *names: str, **settings: Any) -> Any:
    """Return ``typer.Option(*names, **settings)`` with the description of a settings field."""
    return typer.Option(*names, help=described_parameters(kind)[field], **settings)


def help_panels(panels: Mapping[str, Sequence[str]]) -> Callable[[F], F]:
    """Group options of a command below headings in its help.

    Options without a heading come first, then the headings in the given order::

        @help_panels({"Page": ["serve", "host", "port"]})

    Args:
        panels: Names of parameters, or of fields of settings classes, by heading.
    """

    def decorate(function: F) -> F:
        vars(function)["help_panels"] = panels
        return function

    return decorate


def with_field_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function of a command with options in place of its settings objects.

    A parameter whose type is a dataclass is replaced by one option for each field. A field that is
    a dataclass itself has no option, unless :func:`field_options` says how to parse it. The
    function is called with the settings object. The option ``--batch-size`` has the type, the
    default and the description of the field ``batch_size``; a field without a default is a
    required option.

    Other parameters without a default are arguments, and those with a default are options, unless
    ``Annotated`` holds an option or argument of typer. Flags have no ``--no-...``, and sequences
    are repeated options. Descriptions are shown without references, and names of parameters in
    double backticks are shown as options::

        @app.command(rich_help_panel="Labels")
        @field_options(ClusterConfig, n_clusters="-k", n_subclusters="--subclusters")
        def cluster(*, embeddings: Path, config: ClusterConfig) -> None:

    Raises:
        TypeError: Two options have the same name, or :func:`field_options` or :func:`help_panels`
            name a class or an option that the command does not have.
    """
    command = _CommandOptions(function)

    def run(**values: Any) -> None:
        function(**command.with_settings(values))

    options = command.in_order_of_help()
    run.__name__ = function.__name__
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def summary_of(function: Callable[..., None]) -> str:
    """Return the docstring of the function of a command without ``Args:``."""
    return inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")[0]


class _CommandOptions:
    """The options and arguments of a command, made from the parameters of its function."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._command = function.__name__
        self._panels: Mapping[str, Sequence[str]] = getattr(function, "help_panels", {})
        self._options: dict[str, inspect.Parameter] = {}
        #: The class, and the fields that are options, of each parameter that is a settings object.
        self._settings: dict[str, tuple[type, list[str]]] = {}
        descriptions = described_parameters(function)
        changes_by_class = dict(getattr(function, "field_options", {}))
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            kind = parameter.annotation
            if inspect.isclass(kind) and is_dataclass(kind):
                self._add_settings(name, kind, changes_by_class.pop(kind, {}))
            else:
                self._add(_option_of_parameter(parameter, descriptions.get(name, "")))
        for kind in changes_by_class:
            raise TypeError(f"{self._command} has no parameter of the type {kind.__name__}")
        _write_names_as_typed(self._options)

    def _add_settings(
        self, name: str, kind: type, changes: Mapping[str, str | ParameterInfo | None]
    ) -> None:
        options = _options_of_fields(kind, changes)
        for option in options:
            self._add(option)
        self._settings[name] = (kind, [option.name for option in options])

    def _add(self, option: inspect.Parameter) -> None:
        if option.name in self._options:
            raise TypeError(f"{self._command}: there are two options `{option.name}`")
        self._options[option.name] = option

    def in_order_of_help(self) -> list[inspect.Parameter]:
        """Return the options without a heading, then the options of each heading."""
        without_heading = dict(self._options)
        with_heading = []
        for heading, names in self._panels.items():
            for name in names:
                if name not in without_heading:
                    raise TypeError(f'{self._command} has no option {name} for "{heading}"')
                option = without_heading.pop(name)
                _typer_info(option).rich_help_panel = heading
                with_heading.append(option)
        return [*without_heading.values(), *with_heading]

    def with_settings(self, values: dict[str, Any]) -> dict[str, Any]:
        """Replace the values of options by the settings objects that the function takes."""
        for name, (kind, names_of_fields) in self._settings.items():
            settings = {}
            for field in names_of_fields:
                value = values.pop(field)
                if isinstance(value, list):
                    value = tuple(value)
                if value is not None:
                    settings[field] = value
            values[name] = kind(**settings)
        return values


def _options_of_fields(
    kind: Any, changes: Mapping[str, str | ParameterInfo | None]
) -> list[inspect.Parameter]:
    """Return the options of the fields of a settings class."""
    hints = get_type_hints(kind)
    descriptions = described_parameters(kind)
    options = []
    for field in fields(kind):
        hint = hints[field.name]
        change = changes.get(field.name, "")
        is_parsed = isinstance(change, ParameterInfo)
        if change is None or (is_dataclass(_without_none(hint)) and not is_parsed):
            continue
        if isinstance(change, ParameterInfo):
            info = copy(change)
        elif change:
            info = typer.Option(change)
        else:
            info = typer.Option()
        _describe(info, field.name, descriptions.get(field.name, ""))
        options.append(_option_of_field(field, hint, info))
    return options


def _option_of_field(field: Field[Any], hint: Any, info: ParameterInfo) -> inspect.Parameter:
    default = field.default
    if default is MISSING:
        default = inspect.Parameter.empty
    elif default == ():
        default = None
    value_hint = _without_none(hint)
    if info.parser is not None:
        hint = str
        if default is not None and default is not inspect.Parameter.empty:
            if info.show_default is True:
                info.show_default = str(default)
            default = None
    elif get_origin(value_hint) in (tuple, Sequence):
        hint = list[get_args(value_hint)[0]]  # type: ignore[misc]
    return _keyword(field.name, hint, info, default)


def _option_of_parameter(parameter: inspect.Parameter, description: str) -> inspect.Parameter:
    hint = parameter.annotation
    if get_origin(hint) is Annotated:
        info = copy(hint.__metadata__[0])
        hint = hint.__origin__
    elif parameter.default is parameter.empty:
        info = typer.Argument()
    else:
        info = typer.Option()
    if info.parser is not None and get_origin(_without_none(hint)) is tuple:
        hint = str
    _describe(info, parameter.name, description)
    return _keyword(parameter.name, hint, info, parameter.default)


def _keyword(name: str, hint: Any, info: ParameterInfo, default: Any) -> inspect.Parameter:
    annotation = Annotated[hint, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _typer_info(option: inspect.Parameter) -> Any:
    """Return the option or argument of typer, which :func:`_keyword` put in the annotation."""
    return option.annotation.__metadata__[0]


def _describe(info: ParameterInfo, name: str, description: str) -> None:
    """Set the name of an option or argument, its help, and the default that ends the help."""
    text = _REFERENCE.sub("", info.help or description)
    text = text.replace("\\", "\\\\")  # help is rendered as Markdown
    info.help, _, default = text.partition(" Default: ")
    if default and info.show_default is True:
        info.show_default = default.rstrip(".")
    # Within Annotated, typer keeps the first name of an option in `default`.
    if isinstance(info, OptionInfo) and info.default is ...:
        info.default = f"--{name.replace('_', '-')}"


def _write_names_as_typed(options: Mapping[str, inspect.Parameter]) -> None:
    """Replace names of parameters in double backticks by options and arguments as they are typed."""
    typed_names = {name: _typed_name(option) for name, option in options.items()}

    def typed_name(match: re.Match[str]) -> str:
        return typed_names.get(match[1], match[1])

    for option in options.values():
        info = _typer_info(option)
        info.help = _PARAMETER_NAME.sub(typed_name, info.help)
        if isinstance(info.show_default, str):
            info.show_default = _PARAMETER_NAME.sub(typed_name, info.show_default)


def _typed_name(option: inspect.Parameter) -> str:
    info = _typer_info(option)
    if isinstance(info, ArgumentInfo):
        return info.metavar or option.name.upper()
    names = (info.default, *(info.param_decls or ()))
    return long_name(names)


def long_name(names: Sequence[str]) -> str:
    """Return the first name that begins with two dashes, or the first name.

    >>> long_name(["-o", "--out"])
    '--out'
    """
    for name in names:
        if name.startswith("--"):
            return name
    return names[0]


def _without_none(hint: Any) -> Any:
    """Return X of a type ``X | None``."""
    types = [kind for kind in get_args(hint) if kind is not type(None)]
    is_optional = type(None) in get_args(hint)
    if is_optional and len(types) == 1:
        return types[0]
    return hint
