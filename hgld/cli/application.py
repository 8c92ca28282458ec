"""The application ``hgld`` that commands register with, their error messages, and logs.

Commands need no handling of errors: every command runs in :func:`friendly_errors`. A command takes
the options that are fields of a settings class from that class, see :mod:`hgld.cli.options`.
"""

from __future__ import annotations

import errno
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from hgld.cli.options import long_name, summary_of, with_field_options
from hgld.compute.slurm import current_task
from hgld.errors import ConfigurationError, HgldError
from hgld.version import __version__

F = TypeVar("F", bound=Callable[..., Any])

#: Heading of the help for the commands of a first day.
FIRST_STEPS = "First steps"

#: New names of options of earlier versions, by command and old name.
_RENAMED_OPTIONS = {
    ("embed-images", "--root"): "--images",
    ("evaluate", "--labels"): "--manifest",
    ("evaluate", "--query-labels"): "--query-manifest",
    ("diagnose", "--labels"): "--manifest",
    ("search", "--labels"): "--manifest",
    ("search", "--root"): "--images",
    ("duplicates", "--root"): "--images",
    ("labels", "--root"): "--images",
    ("stats", "--images"): "--image-landmarks",
    ("complete", "--images"): "--image-landmarks",
}

#: Advice about errors of the storage, which are no errors of hgld.
_STORAGE_ADVICE = {
    errno.EACCES: "choose a place that you may read and write",
    errno.EPERM: "choose a place that you may write",
    errno.EROFS: "choose a place that can be written",
    errno.EIO: "the disk may be full or damaged; free some space, then run the same command again",
    errno.ENOSPC: "free some space, then run the same command again",
    errno.EDQUOT: "free some space, then run the same command again",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "name a place below a folder",
    errno.EEXIST: "name a place below a folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}

#: Packages that log too much at INFO.
_CHATTY_PACKAGES = (
    "urllib3",
    "matplotlib",
    "PIL",
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "filelock",
)

#: Options and arguments of the running command as they are typed, by the name of the parameter.
_typed_names: ContextVar[Mapping[str, str]] = ContextVar("_typed_names", default={})  # noqa: B039


class Command(TyperCommand):
    """A command whose error messages name options as they are typed; arguments are in capitals."""

    #: Whether the processes that torchrun or srun has started share the work of the command.
    shares_work = False

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for parameter in self.params:
            if parameter.param_type_name == "argument" and parameter.metavar is None:
                parameter.metavar = str(parameter.name).upper()

    def function(self) -> Callable[..., None]:
        """Return the function of the command, which takes settings objects."""
        function: Callable[..., None] = self.callback.function  # type: ignore[union-attr]
        return function

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the command line, with options that are made now: all commands' options take long."""
        if not hasattr(self.callback, "function"):
            return super().make_context(info_name, args, parent, **extra)
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        register = single.command(self.name, cls=type(self), help=self.help)
        register(with_field_options(self.function()))
        return typer.main.get_command(single).make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; refuse renamed options, and repeated options of a single value."""
        _typed_names.set({str(parameter.name): _typed_name(parameter) for parameter in self.params})
        with friendly_errors():
            self._refuse_renamed_options(ctx, args)
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        with friendly_errors():
            _refuse_repeated_options(given)
            return super().parse_args(ctx, args)

    def _refuse_renamed_options(self, ctx: Any, args: Sequence[str]) -> None:
        option_names = {name for parameter in self.params for name in parameter.opts}
        for argument in args:
            old_name = argument.partition("=")[0]
            new_name = _RENAMED_OPTIONS.get((str(self.name), old_name))
            if new_name in option_names:  # commands of two groups may have the same name
                raise ConfigurationError(
                    f"the option {old_name} of {ctx.command_path} is called {new_name} now"
                )

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with friendly_errors():
            self._require_single_task(ctx.params)
            return super().invoke(ctx)

    def _require_single_task(self, parameters: Mapping[str, Any]) -> None:
        """Refuse to do the same work in several tasks of SLURM."""
        task = current_task()
        if task is None:
            return
        shares_work = self.shares_work or parameters.get("part") is not None
        if parameters.get("ray") or not shares_work:
            raise ConfigurationError(
                f"srun has started {task.count} tasks of hgld {self.name}, which does not divide its work among "
                "them; use srun --ntasks=1"
            )


def _typed_name(parameter: Any) -> str:
    """Return an option or argument as it is typed."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    return long_name(parameter.opts)


def _refuse_repeated_options(given: Sequence[Any]) -> None:
    """Raise if an option of a single value is repeated, as only its last value would count."""
    for option, count in Counter(given).items():
        if not isinstance(option, TyperOption) or option.multiple or option.is_flag:
            continue
        if count > 1:
            raise ConfigurationError(
                f"{_typed_name(option)} is given {count} times, but takes one value; give it once"
            )


class SharedCommand(Command):
    """A command whose work is shared by the processes that torchrun or srun has started."""

    shares_work = True


class App(typer.Typer):
    """An application whose commands are of the class :class:`Command`."""

    def command(self, *args: Any, **settings: Any) -> Callable[[F], F]:
        """See :meth:`typer.Typer.command`; fields of settings become options (:mod:`hgld.cli.options`).

        The application gets a command without options, which makes them when it is used.
        """
        register = super().command(*args, **{"cls": Command} | settings)

        def add(function: F) -> F:
            def without_options() -> None: ...

            without_options.__name__ = function.__name__
            without_options.__doc__ = summary_of(function)
            without_options.function = function  # type: ignore[attr-defined]
            register(without_options)
            return function

        return add


app = App(
    name="hgld",
    help="Hierarchical labels for Google Landmarks v2: from scrape and review to release and evaluation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # lines of a paragraph are joined
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hgld {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Log details, such as every retry of a request."),
    ] = False,
) -> None:
    """Set up logging for every command."""
    log_to_stderr(verbose)


def log_to_stderr(verbose: bool = False) -> None:
    """Log to stderr: hgld at INFO (DEBUG if ``verbose``), other packages at WARNING and above."""
    logging.basicConfig(
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
        level=logging.DEBUG if verbose else logging.INFO,
    )
    warnings.showwarning = _log_warning
    for package in _CHATTY_PACKAGES:
        logging.getLogger(package).setLevel(logging.WARNING)


def _log_warning(message: Warning | str, *_: object, **__: object) -> None:
    logging.getLogger("hgld").warning("%s", message)


@contextmanager
def friendly_errors(
    *, again: str = "run the same command again to resume", **options: str
) -> Iterator[None]:
    """Turn an error of hgld into one message on stderr and exit code 1, and Ctrl-C into code 130.

    The library names its parameters in backticks, such as ```query_manifest```. A parameter that
    the running command has as an option or an argument is printed as it is typed:
    ``--query-manifest``.

    Args:
        again: How to resume after Ctrl-C.
        **options: Options as they are typed, by parameters of the library that the command names
            differently.
    """
    try:
        yield
    except HgldError as error:
        message = with_typed_names(str(error), options)
    except OSError as error:
        if error.errno not in _STORAGE_ADVICE:
            raise
        message = _storage_message(error)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {again}", err=True)
        raise typer.Exit(130) from None
    else:
        return
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


def with_typed_names(message: str, options: Mapping[str, str] | None = None) -> str:
    """Replace the names of parameters in backticks by the options of the running command.

    >>> with_typed_names("`labels` has no column id", {"labels": "--labels"})
    '--labels has no column id'
    """
    names = {**_typed_names.get(), **(options or {})}

    def typed_name(match: re.Match[str]) -> str:
        return names.get(match[1], match[0])

    return re.sub(r"`(\w+)`", typed_name, message)


def _storage_message(error: OSError) -> str:
    """Say which file could not be written, why, and what to do."""
    reason = str(error.strerror)
    if error.filename:
        reason = f"{error.filename}: {reason}"
    return f"{reason}; {_STORAGE_ADVICE[error.errno or 0]}"
