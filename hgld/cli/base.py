"""The application that commands register with, and what they share: options, errors and logs.

A command takes the options that are fields of a settings class from that class, see :mod:`hgld.cli.options`. Errors
need no handling in commands: every command runs in :func:`friendly_errors`.
"""

from __future__ import annotations

import errno
import logging
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from hgld.cli.options import long_name, summary_of, with_field_options
from hgld.compute.parts import Part
from hgld.compute.slurm import current_task
from hgld.errors import ConfigurationError, HgldError, SourceError, indented_list
from hgld.figures.style import Nouns, also_written_as, check_figure_format, figure_files
from hgld.io.files import require_own_page
from hgld.io.writable import check_writable_file, check_writable_folder, require_suffix
from hgld.version import __version__

if TYPE_CHECKING:
    from hgld.taxonomy.project import Role

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")

#: Words for one and for several of the things that have labels: those for GLDv2.
LANDMARKS: Nouns = ("landmark", "landmarks")
#: The options and arguments of the running command as they are typed, by the name of the parameter.
_options: ContextVar[Mapping[str, str]] = ContextVar("_options", default={})  # noqa: B039

#: Options of earlier versions that have another name now, by command and old name.
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

log = logging.getLogger("hgld")


class Command(TyperCommand):
    """A command whose options error messages can name, with arguments in capitals as help texts write them."""

    #: Whether the processes that torchrun or srun has started together share the work of the command.
    shares_work = False

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for parameter in self.params:
            if parameter.param_type_name == "argument" and parameter.metavar is None:
                parameter.metavar = str(parameter.name).upper()

    def function(self) -> Callable[..., None]:
        """Return the function of the command, which takes settings."""
        function: Callable[..., None] = self.callback.function  # type: ignore[union-attr]
        return function

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the command line. The command gets its options now, as making those of all commands takes long."""
        if not hasattr(self.callback, "function"):
            return super().make_context(info_name, args, parent, **extra)
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command(self.name, cls=type(self), help=self.help)(
            with_field_options(self.function())
        )
        return typer.main.get_command(single).make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line, and refuse repeated options of a single value: the last one alone would count."""
        _options.set({str(parameter.name): _typed_name(parameter) for parameter in self.params})
        with friendly_errors():
            self._refuse_renamed_options(ctx, args)
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        with friendly_errors():
            for option, count in Counter(given).items():
                if (
                    count > 1
                    and isinstance(option, TyperOption)
                    and not (option.multiple or option.is_flag)
                ):
                    raise ConfigurationError(
                        f"{_typed_name(option)} is given {count} times, but takes one value; give it once"
                    )
            return super().parse_args(ctx, args)

    def _refuse_renamed_options(self, ctx: Any, args: Sequence[str]) -> None:
        for argument in args:
            option = argument.partition("=")[0]
            new_name = _RENAMED_OPTIONS.get((str(self.name), option))
            if new_name is not None and any(
                new_name in parameter.opts for parameter in self.params
            ):
                raise ConfigurationError(
                    f"the option {option} of {ctx.command_path} is called {new_name} now"
                )

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with friendly_errors():
            self._require_single_task(ctx.params)
            return super().invoke(ctx)

    def _require_single_task(self, parameters: Mapping[str, Any]) -> None:
        """Refuse to do the same work in several tasks of SLURM, unless each may have a part of its own."""
        task = current_task()
        shares_work = self.shares_work or parameters.get("part") is not None
        if task is not None and (parameters.get("ray") or not shares_work):
            raise ConfigurationError(
                f"srun has started {task.count} tasks of hgld {self.name}, which does not divide its work among "
                "them; use srun --ntasks=1"
            )


def _typed_name(parameter: Any) -> str:
    """Return an option or argument as it is typed."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    return long_name(parameter.opts)


class SharedCommand(Command):
    """A command whose work is shared by the processes that torchrun or srun has started together."""

    shares_work = True


class App(typer.Typer):
    """An application whose commands are of the class :class:`Command`."""

    def command(self, *args: Any, **settings: Any) -> Callable[[F], F]:
        """See :meth:`typer.Typer.command`; fields of settings become options, see :mod:`hgld.cli.options`.

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

#: Heading of the help below which the commands of a first day stand.
FIRST_STEPS = "First steps"

#: Errors of the storage rather than of hgld, and what the user can do about them.
_STORAGE_ERRORS = {
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


def writable(*checks: Callable[[Path], None]) -> Callable[[Path | None], Path | None]:
    """Return a callback that checks, before any work, what an option names as output."""

    def check(path: Path | None) -> Path | None:
        if path is not None:
            for check_path in checks:
                check_path(path)
        return path

    return check


def writable_file(*suffixes: str) -> Callable[[Path | None], Path | None]:
    """Return a callback that checks that a file in a format of these suffixes, or in any, can be written.

    A file that hgld did not write is refused; see :func:`_require_own_file`.
    """
    checks = [lambda path: require_suffix(path, *suffixes)] if suffixes else []
    return writable(check_writable_file, *checks, _require_own_file)


def _require_own_file(path: Path) -> None:
    """Raise if a file exists that hgld cannot have written, as far as its suffix and its first bytes tell.

    Parquet tables and pages are checked here, before any work. CSV and JSON files are checked when they are written,
    by their columns and keys, and stores when they are opened. Pictures say nothing of their origin and are replaced.
    """
    if path.suffix == ".html":
        require_own_page(path)
    if path.suffix == ".parquet" and path.exists():
        from hgld.tables.parquet import require_own_table  # importing Arrow takes a while

        require_own_table(path)


writable_figure = writable(check_writable_file, check_figure_format)
writable_folder = writable(check_writable_folder)


def option(text: str, *names: str, **settings: Any) -> Any:
    """Return ``typer.Option(*names, **settings)`` with a text such as an entry of ``Args:``."""
    return typer.Option(*names, help=text, **settings)


def out_file(*suffixes: str) -> Any:
    """Return the option ``--out`` for a file in a format of these suffixes, or in any."""
    return typer.Option("--out", "-o", callback=writable_file(*suffixes))


#: The option ``--out`` for a folder, and for an image file.
OUT_FOLDER = typer.Option("--out", "-o", metavar="FOLDER", callback=writable_folder)
OUT_FIGURE = typer.Option("--out", "-o", metavar="PICTURE", callback=writable_figure)


def part_option(text: str) -> Any:
    """Return the option ``--part`` of a command for a :class:`~hgld.compute.parts.Part` of its work."""
    return typer.Option(parser=Part.parse, metavar="N/COUNT", help=text)


def parse_images(text: str) -> Path | tuple[str, Path]:
    """Return the path, with its split if given, of ``[SPLIT=]FILE``.

    >>> parse_images("index=images.csv")
    ('index', PosixPath('images.csv'))
    """
    split, equals, path = text.partition("=")
    return (split, Path(path)) if equals and split in ("train", "index") else Path(text)


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, which are separated by commas.

    >>> parse_names("leaf, shelf")
    ('leaf', 'shelf')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_numbers(parameter: str, example: str) -> Callable[[str], tuple[float, ...]]:
    """Return a parser of numbers that are separated by commas.

    >>> parse_numbers("scales", "1,0.5")("1, 0.7")
    (1.0, 0.7)
    """

    def parse(text: str) -> tuple[float, ...]:
        try:
            return tuple(map(float, text.split(",")))
        except ValueError as error:
            raise ConfigurationError(
                f'`{parameter}` is "{text}"; expected numbers such as {example}'
            ) from error

    return parse


# Options that several commands share.
Taxonomy = Annotated[
    Path | None,
    option(
        "CSV file of groups and the levels above them. Default: that of the project file hgld.yaml, for GLDv2 "
        "annotations/taxonomy.csv."
    ),
]
_BUILT_WITH = (
    "that the hierarchy was built with. Default: the one that the hierarchy was built with, if it is beside it or in "
    "decisions/."
)
DecisionsOfHierarchy = Annotated[Path | None, option(f"Decisions {_BUILT_WITH}")]
CorrectionsOfHierarchy = Annotated[Path | None, option(f"Corrections {_BUILT_WITH}")]
TaxonomyOfHierarchy = Annotated[Path | None, option(f"Taxonomy {_BUILT_WITH}")]
CleanBeside = Annotated[
    Path | None, option("Clean table from hgld clean. Default: clean.parquet beside CLUSTERS.")
]
ClassesBeside = Annotated[
    list[Path] | None,
    option("Tables of classes from hgld scrape. Default: *.classes.parquet beside CLUSTERS."),
]
Images = Annotated[
    Path | None,
    option(
        "Photographs to show: the table from hgld index-images, in the folder of the tar files. Default: none."
    ),
]
ImageLandmarks = Annotated[
    list[Any] | None,
    option(
        "Landmark of each photograph: GLDv2's train.csv, index_image_to_landmark.csv or files like them. Default:"
        " these files beside --images.",
        metavar="[SPLIT=]FILE",
        parser=parse_images,
    ),
]
ComparedBy = Annotated[
    Literal["cosine", "dot", "euclidean", "poincare"] | None,
    option(
        "How embeddings are compared: cosine, inner product, Euclidean distance, or the Poincaré distance of "
        "points of the unit ball. Default: what hgld embed-images recorded that the model is made for, or cosine."
    ),
]
Pretrained = Annotated[
    str | None,
    option(
        "Weights of an untrained model: a file, efficientnet-lite0, -lite1 or -lite2 (from packages), a tag of "
        "open_clip, or none. Default: those of the preset, or of timm's hub."
    ),
]


_Format = Enum("_Format", {"png": "png", "pdf": "pdf", "svg": "svg"})
FigureFormat = Annotated[
    list[_Format] | None,
    option(
        "Format in which figures are written besides PNG, for papers; repeatable. Default: png.",
        "--format",
        metavar="png|pdf|svg",
    ),
]
Force = Annotated[bool, option("Run although the output is up to date.")]
Json = Annotated[bool, option("Print JSON instead of text.")]


@contextmanager
def friendly_errors(
    *, again: str = "run the same command again to resume", **options: str
) -> Iterator[None]:
    """Turn an error of hgld into one message on stderr and exit code 1, and Ctrl-C into exit code 130.

    The library names its parameters in backticks, such as ```query_manifest```. Those that the running command has as
    an option or an argument are printed in that form: ``--query-manifest``. ``again`` says how to resume after
    Ctrl-C, and further keywords are the options of parameters whose names differ from those of the command.
    """
    try:
        yield
    except HgldError as error:
        typer.echo(f"error: {with_typed_names(str(error), options)}", err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        if error.errno not in _STORAGE_ERRORS:
            raise
        typer.echo(f"error: {_storage_message(error)}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {again}", err=True)
        raise typer.Exit(130) from None


def with_typed_names(message: str, options: Mapping[str, str] | None = None) -> str:
    """Replace the names of parameters in backticks by the options of the running command.

    >>> with_typed_names("`labels` has no column id", {"labels": "--labels"})
    '--labels has no column id'
    """
    names = {**_options.get(), **(options or {})}
    return re.sub(r"`(\w+)`", lambda match: names.get(match[1], match[0]), message)


def _storage_message(error: OSError) -> str:
    """Say which file could not be written, why, and what to do."""
    reason = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return f"{reason}; {_STORAGE_ERRORS[error.errno or 0]}"


def figure_formats(formats: Sequence[_Format] | None) -> AbstractContextManager[None]:
    """Return a context in which figures are written in the formats of :data:`FigureFormat`, too."""
    return also_written_as([each.value for each in formats or ()])


def print_figure(path: Path) -> None:
    """Print the path of a figure, and those of its further formats."""
    for file in figure_files(path):
        typer.echo(file)


def print_summary(out: Path, summary: S | None, format_summary: Callable[[S], str]) -> None:
    """Print the summary of a stage and the path of its output, or for None that the output is up to date."""
    if summary is None:
        typer.echo(f"{out}: up to date")
        return
    typer.echo(f"{format_summary(summary)}\n{out}")


def begin_project(
    table: Path, words: tuple[str, str], *, is_new: bool, counts: bool | None = None
) -> None:
    """Write the project file of a list other than GLDv2's (:mod:`hgld.taxonomy.project`), if it has none yet.

    Args:
        table: Table of the list.
        words: Words for one and for several things of the list.
        is_new: Whether the table was not there before; if it was, the project is that of the list.
        counts: Whether the list has a column of counts; None if that is unknown.
    """
    from hgld.taxonomy.project import create_project, find_project_file

    project = create_project(table, *words, counts=counts)
    if project is not None:
        typer.echo(
            f"{project}: says what the list is about; further commands read it, and you may edit it",
            err=True,
        )
    elif is_new:
        known = find_project_file(table)
        typer.echo(
            f"{known}: this list, too, is of {words[1]}; give --entity if it is another one",
            err=True,
        )


def remember(near: Path, role: Role, file: Path | None) -> None:
    """Add a file that was given to the project of a table (:mod:`hgld.taxonomy.project`), if it names none yet."""
    from hgld.taxonomy.project import remember_in_project

    if file is None:
        return
    try:
        project = remember_in_project(near, role, file)
    except ConfigurationError as error:  # the work is done, so it is no failure of the command
        typer.echo(f"note: {error}", err=True)
        return
    if project is not None:
        typer.echo(f"{project}: noted the {role} {file} for further commands", err=True)


def require_none_failed(failures: Sequence[str], outcome: str) -> None:
    """Raise a :class:`SourceError` that lists what failed, such as "files could not be downloaded"."""
    if failures:
        raise SourceError(f"{len(failures):,} {outcome}:\n{indented_list(failures)}\n{try_again()}")


def try_again() -> str:
    """Return a sentence with the command line of this process, which retries what failed."""
    return f"to try only these again, run\n  {shlex.join(['hgld', *sys.argv[1:]])}"


def log_to_stderr(verbose: bool = False) -> None:
    """Log to stderr: hgld at INFO (DEBUG if ``verbose``), third-party packages and warnings at WARNING and above."""
    logging.basicConfig(
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
        level=logging.DEBUG if verbose else logging.INFO,
    )
    warnings.showwarning = lambda message, *_: logging.getLogger("hgld").warning("%s", message)
    for package in (
        "urllib3",
        "matplotlib",
        "PIL",
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "filelock",
    ):
        logging.getLogger(package).setLevel(logging.WARNING)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hgld {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, option("Print the version and exit.", "--version", callback=_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        bool, option("Log details, such as every retry of a request.", "--verbose", "-v")
    ] = False,
) -> None:
    """Set up logging for every command."""
    log_to_stderr(verbose)
