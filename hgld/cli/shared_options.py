"""Options that several commands share, their parsers, and checks of outputs before any work."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hgld.compute.parts import Part
from hgld.errors import ConfigurationError
from hgld.figures.style import check_figure_format
from hgld.io.files import require_own_page
from hgld.io.writable import check_writable_file, check_writable_folder, require_suffix


def writable(*checks: Callable[[Path], None]) -> Callable[[Path | None], Path | None]:
    """Return a callback of an option that runs checks on the path of an output before any work."""

    def check(path: Path | None) -> Path | None:
        if path is not None:
            for check_path in checks:
                check_path(path)
        return path

    return check


def writable_file(*suffixes: str) -> Callable[[Path | None], Path | None]:
    """Return a callback that checks that a file can be written, and that hgld may replace it.

    Args:
        *suffixes: Suffixes that the file may have. Default: any suffix.
    """

    def check_suffix(path: Path) -> None:
        if suffixes:
            require_suffix(path, *suffixes)

    return writable(check_writable_file, check_suffix, _require_own_file)


def _require_own_file(path: Path) -> None:
    """Raise if a file exists that hgld cannot have written, by its suffix and its first bytes.

    Parquet tables and pages are checked here. CSV and JSON files are checked when they are written,
    by their columns and keys, and stores when they are opened. Pictures do not show which program
    wrote them, and are replaced.
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
    """Return the option ``--out`` for a file with one of these suffixes, by default any."""
    return typer.Option("--out", "-o", callback=writable_file(*suffixes))


OUT_FOLDER = typer.Option("--out", "-o", metavar="FOLDER", callback=writable_folder)
OUT_FIGURE = typer.Option("--out", "-o", metavar="PICTURE", callback=writable_figure)


def part_option(text: str) -> Any:
    """Return the option ``--part`` for a :class:`~hgld.compute.parts.Part` of the work."""
    return typer.Option(parser=Part.parse, metavar="N/COUNT", help=text)


def parse_images(text: str) -> Path | tuple[str, Path]:
    """Return the path, with its split if given, of ``[SPLIT=]FILE``.

    >>> parse_images("index=images.csv")
    ('index', PosixPath('images.csv'))
    """
    split, equals, path = text.partition("=")
    if equals and split in ("train", "index"):
        return split, Path(path)
    return Path(text)


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, which are separated by commas.

    >>> parse_names("leaf, shelf")
    ('leaf', 'shelf')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_numbers(parameter: str, example: str) -> Callable[[str], tuple[float, ...]]:
    """Return a parser of numbers that are separated by commas.

    Args:
        parameter: Name of the parameter, for the error message.
        example: Numbers as they are typed, for the error message.

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


Taxonomy = Annotated[
    Path | None,
    option(
        "CSV file of groups and the levels above them. Default: the taxonomy of the project file hgld.yaml, for "
        "GLDv2 annotations/taxonomy.csv."
    ),
]
_BUILT_WITH = (
    "that the hierarchy was built with. Default: the file that the hierarchy was built with, if it is beside the "
    "hierarchy or in decisions/."
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
        "Photographs to show: the table from hgld index-images, in the folder of the tar files. Default: no "
        "photographs."
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
        "Measure that compares embeddings: cosine, inner product, Euclidean distance, or the Poincaré distance of "
        "points of the unit ball. Default: the measure that hgld embed-images recorded for the model, or cosine."
    ),
]
Pretrained = Annotated[
    str | None,
    option(
        "Weights of an untrained model: a file, efficientnet-lite0, -lite1 or -lite2 (from packages), a tag of "
        "open_clip, or none. Default: the weights of the preset, or of timm's hub."
    ),
]

FigureFormatName = Enum("FigureFormatName", {"png": "png", "pdf": "pdf", "svg": "svg"})
FigureFormat = Annotated[
    list[FigureFormatName] | None,
    option(
        "Format in which figures are written besides PNG, for papers; repeatable. Default: png.",
        "--format",
        metavar="png|pdf|svg",
    ),
]
Force = Annotated[bool, option("Run although the output is up to date.")]
Json = Annotated[bool, option("Print JSON instead of text.")]
