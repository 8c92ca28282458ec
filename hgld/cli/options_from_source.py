"""Make options of a command from its parameters, the fields of settings and the parameters of functions.

Each is described once, by its entry in ``Args:`` of the docstring, whose last ``Default: ...`` is shown as default.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Container, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, is_dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from hgld.io.docstrings import described_parameters

F = TypeVar("F", bound=Callable[..., Any])
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
#: References of docstrings that are of no help on the command line, such as "; see :func:`read_labels`".
_REFERENCE = re.compile(r"[;,]? \(?(?:see )?:\w+:`[^`]*`\)?")


def options_of(
    source: str,
    parameter: str = "config",
    /,
    *,
    panel: str | None = None,
    **changes: Any,
) -> Callable[[F], F]:
    """Give a command an option for each field of a settings dataclass, or each parameter of a library function.

    The function of the command gets the settings, or the function with the values of the options bound to it. The
    option ``--batch-size`` has the type and the default of the field ``batch_size`` and, as help text, its entry in
    ``Args:`` of the docstring, without references, and with options in place of the names of others in double
    backticks; ``Default: ...`` at the end of the entry is shown as default. Flags have no ``--no-...``, fields that
    are sequences are repeated options, and parameters of functions without a default are arguments. Of a parameter of
    a function that is a settings dataclass, the fields are options; in a dataclass, such a field has none. A field
    that is also a parameter of the command, or a field of a decorator above, gets the value of that option. Error
    messages that name a field in backticks name the option. The options stand in the help where the parameter does::

        @app.command(rich_help_panel="Labels")
        @options_of("hgld.labels.clean:clean_file", "clean_file", out=out_file(".parquet"), removed="FILE")
        def clean(*, clean_file: partial[CleanSummary | None]) -> None:

    Args:
        source: The class or function, as ``module:Name``; it is imported when the command runs, and for help its
            parameters are read from the file.
        parameter: Parameter of the decorated function that gets the settings; it needs no default, so the function
            takes keywords only. One that is annotated as a ``partial`` or ``Callable`` gets a callable that returns
            the settings, and takes fields to change: for classes that cannot be built in every use of the command.
        panel: Title of a group of options in the help.
        **changes: How the option of a field differs: its name, such as ``"--subclusters"``, or what stands for its
            value, such as ``"FILE"``; an option of typer; a mapping of ``name`` and of arguments of ``typer.Option``,
            such as a ``parser``, which returns the value of the field, or with ``"kind": typer.Argument`` of this; or
            None for no option, so that the field keeps its default.
    """

    def decorate(function: F) -> F:
        stub: Any = deferred_options(function)
        annotation = str(stub.function.__annotations__.pop(parameter))  # imported for type checks only, perhaps
        deferred = annotation.startswith(("partial", "Callable"))
        stub.settings.insert(0, _Source(source, parameter, changes, deferred, panel))
        return stub  # type: ignore[no-any-return]

    return decorate


@dataclass(frozen=True)
class _Source:
    """A settings class or a function whose fields or parameters are options of a command."""

    source: str
    parameter: str
    changes: Mapping[str, Any]
    deferred: bool
    panel: str | None

    def parameters(self, other_options: Container[str]) -> list[inspect.Parameter]:
        """Return a parameter per field that is an option, described by the docstring."""
        return self._parameters(_read(self.source), other_options)

    def _parameters(self, source: Any, other_options: Container[str]) -> list[inspect.Parameter]:
        parameters, help_texts = [], _help_texts(source)
        for name, (field, hint) in self._fields(source, other_options).items():
            if is_dataclass(_without_none(hint)):
                parameters += self._parameters(_without_none(hint), other_options)
                continue
            changes = self.changes.get(name, {})
            if isinstance(changes, ParameterInfo):
                changes = {"kind": lambda info=changes, **_: info}
            elif isinstance(changes, str):
                changes = {"name" if changes.startswith("-") else "metavar": changes}
            is_argument = not (inspect.isclass(source) or changes or field.default is not field.empty)
            kind = {"kind": typer.Argument} if is_argument else {"rich_help_panel": self.panel}
            parameters.append(_field_parameter(field, hint, help_texts.get(name, ""), kind | changes))
        return parameters

    def _fields(self, source: Any, other_options: Container[str]) -> dict[str, tuple[inspect.Parameter, Any]]:
        """Return the fields that are options or, of a function, settings whose fields are, with their types."""
        fields = {
            field.name: field
            for field in inspect.signature(source).parameters.values()
            if field.name not in other_options and self.changes.get(field.name, {}) is not None
        }
        hints = SimpleNamespace(__annotations__={name: field.annotation for name, field in fields.items()})
        types = get_type_hints(hints, source.names)
        return {
            name: (field, types[name])
            for name, field in fields.items()
            if not (inspect.isclass(source) and is_dataclass(_without_none(types[name])))
        }

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return the settings made of the values of all options by name, or the function bound to them."""
        build = self._build(_read(self.source), values)
        return build if self.deferred or not inspect.isclass(build.func) else build()

    def _build(self, source: Any, values: Mapping[str, Any]) -> partial[Any]:
        given = {name: values[name] for name in inspect.signature(source).parameters if values.get(name) is not None}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        for name, (_, hint) in self._fields(source, values).items():
            if is_dataclass(_without_none(hint)):
                given[name] = self._build(_without_none(hint), values)()
        return partial(getattr(import_module(source.names.module), source.__name__), **given)


def _read(source: str) -> Any:
    """Return the parameters and the docstring of ``module:Name``, in a class or function without its code."""
    module, _, name = source.partition(":")
    return _Names(module)[name]


class _Names(dict[str, Any]):
    """The names of a module, each evaluated when it is looked up, without importing anything of hgld.

    Functions and classes have their parameters and docstrings only, and ``names``, this mapping. So help needs no
    import of torch, which takes seconds. Settings inherit nothing, and what annotations and defaults name is imported
    from the module that defines it, outside ``if TYPE_CHECKING``.
    """

    def __init__(self, module: str) -> None:
        spec = find_spec(module)
        assert spec is not None
        tree = ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))
        self.module = module
        self._statements = {name: statement for statement in tree.body for name in _bound_names(statement)}

    def __missing__(self, name: str) -> Any:
        statement = self._statements[name]
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("hgld."):
            imported = next(alias.name for alias in statement.names if name in (alias.asname, alias.name))
            self[name] = _Names(str(statement.module))[imported]
            return self[name]
        text = ast.unparse(statement)
        if isinstance(statement, ast.ClassDef):
            fields = [ast.unparse(each) for each in statement.body if isinstance(each, ast.AnnAssign)]
            text = f"def {name}({', '.join(['self', *(['*'] if fields else []), *fields])}): ..."
        elif isinstance(statement, ast.FunctionDef):
            text = f"def {name}({ast.unparse(statement.args)}): ..."
        exec(f"from __future__ import annotations\n{text}", self)  # noqa: S102
        if isinstance(statement, ast.ClassDef):
            is_settings = "dataclass" in " ".join(map(ast.unparse, statement.decorator_list))
            self[name] = type(
                name, (), {"__init__": self[name]} | ({"__dataclass_fields__": {}} if is_settings else {})
            )
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            self[name].__doc__, self[name].names = ast.get_docstring(statement), self
        return self[name]


def _bound_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of a module binds."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def deferred_options(function: Callable[..., Any]) -> Any:
    """Return a function without parameters that stands for that of a command until the command is used."""
    if hasattr(function, "settings"):
        return function

    def stub() -> None: ...

    stub.__name__, stub.__doc__ = (
        function.__name__,
        inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")[0],
    )
    vars(stub).update(function=function, settings=[])
    return stub


def with_options(stub: Any) -> Callable[..., None]:
    """Return the function of a command with all of its options in its signature.

    A parameter without a default is an argument, others are options, unless ``Annotated`` says more by an option or
    argument of typer. Flags have no ``--no-...``.
    """
    sources = {source.parameter: source for source in stub.settings}
    own, texts = inspect.signature(stub.function, eval_str=True).parameters, _help_texts(stub.function)
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in own.items():
        added = (
            sources[name].parameters({*own, *parameters})
            if name in sources
            else [_own_parameter(parameter, texts.get(name, ""))]
        )
        parameters |= {each.name: each for each in added}
    _name_options(parameters)

    def run(**values: Any) -> None:
        built = {name: source.build(values) for name, source in sources.items()}
        stub.function(**{name: value for name, value in values.items() if name in own}, **built)

    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _help_texts(source: Callable[..., Any]) -> dict[str, str]:
    return described_parameters(source)


def _own_parameter(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    """Return a parameter of a command as that of a typer function."""
    hint = parameter.annotation
    kind = typer.Argument if parameter.default is parameter.empty else typer.Option
    hint, info = (hint.__origin__, hint.__metadata__[0]) if get_origin(hint) is Annotated else (hint, kind())
    return parameter.replace(kind=_KEYWORD, annotation=Annotated[hint, _described(info, parameter.name, text)])


def _field_parameter(field: inspect.Parameter, hint: Any, text: str, changes: Mapping[str, Any]) -> inspect.Parameter:
    """Return the parameter of a typer function that stands for a field of settings or a parameter of a function."""
    settings = dict(changes)
    kind, names = settings.pop("kind", typer.Option), [name] if (name := settings.pop("name", None)) else []
    info, default = (
        _described(kind(*names, **settings), field.name, text),
        None if field.default == () else field.default,
    )
    if info.parser is not None:
        hint = str
        if default not in (None, field.empty):
            info.show_default, default = str(default) if info.show_default is True else info.show_default, None
    elif get_origin(_without_none(hint)) in (tuple, Sequence):
        hint = list[get_args(_without_none(hint))[0]]  # type: ignore[misc]
    elif str in get_args(_without_none(hint)):  # of str | Path
        hint = str
    return inspect.Parameter(field.name, _KEYWORD, annotation=Annotated[hint, info], default=default)


def _described(info: ParameterInfo, name: str, text: str) -> ParameterInfo:
    """Return an option or argument with its name, and the help and the default that its entry in ``Args:`` shows."""
    info = copy(info)
    info.help, _, shown = _REFERENCE.sub("", info.help or text).partition(" Default: ")
    if shown and info.show_default is True:
        info.show_default = shown.rstrip(".")
    if isinstance(info, OptionInfo) and info.default is ...:  # in Annotated, the first name of an option is there
        info.default = f"--{name.replace('_', '-')}"
    return info


def _name_options(parameters: Mapping[str, inspect.Parameter]) -> None:
    """Replace names of parameters in double backticks by options and arguments as they are typed."""
    described = {name: parameter.annotation.__metadata__[0] for name, parameter in parameters.items()}
    typed = {name: _typed(name, info) for name, info in described.items()}
    for info in described.values():
        for field in ("help", "show_default"):
            if isinstance(text := getattr(info, field), str):
                setattr(info, field, re.sub(r"``(.*?)``", lambda match: typed.get(match[1], match[1]), text))


def _typed(name: str, info: Any) -> str:
    if isinstance(info, ArgumentInfo):
        return info.metavar or name.upper()
    names = (info.default, *(info.param_decls or ()))
    return str(next((each for each in names if each.startswith("--")), names[0]))


def _without_none(hint: Any) -> Any:
    """Return X of a type ``X | None``."""
    others = [each for each in get_args(hint) if each is not type(None)]
    return others[0] if type(None) in get_args(hint) and len(others) == 1 else hint
