"""The commands that build, inspect and complete a hierarchy: build, why, compare, stats, complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgld.cli.base import (
    Decided,
    DecisionsOfHierarchy,
    FigureFormat,
    Force,
    Json,
    TaxonomyOfDecisions,
    TaxonomyOfHierarchy,
    app,
    flag,
    out_figure,
    out_file,
    parse_images,
    print_figure,
    print_summary,
    writable_file,
    writable_folder,
)
from hgld.cli.options import options_of
from hgld.errors import ConfigurationError
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.completion.config import CompleteConfig
    from hgld.hierarchy.build import BuildConfig


def parse_extra_levels(text: str) -> int:
    """Return the number of levels in ``p279:N``.

    Raises:
        ConfigurationError: The text has another form, or N is 0.

    >>> parse_extra_levels("p279:2")
    2
    """
    match = re.fullmatch(r"p279:([1-9][0-9]?)", text)
    if not match:
        raise ConfigurationError(f'`extra_levels` is "{text}"; expected p279 and a number of levels, such as p279:2')
    return int(match[1])


@app.command(rich_help_panel="Hierarchy")
@options_of(
    "hgld.hierarchy.build:BuildConfig",
    extra_levels={"parser": parse_extra_levels, "metavar": "p279:N", "show_default": False},
)
def build(
    *,
    clean: Annotated[Path, typer.Argument(help="Table from hgld clean.")],
    out: Annotated[Path, out_file("Hierarchy to write.", ".parquet")],
    decisions: Decided = None,
    taxonomy: TaxonomyOfDecisions = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            callback=writable_folder,
            help="Also write the official CSV files of H-GLDv2 to this folder.",
        ),
    ] = None,
    config: BuildConfig,
    classes: Annotated[
        list[Path] | None,
        typer.Option(help="Tables of classes, for --extra-levels.", show_default="*.classes.parquet beside CLEAN"),
    ] = None,
    scraped: Annotated[
        list[Path] | None,
        typer.Option(help="Scraped tables, for --multi.", show_default="scraped*.parquet beside CLEAN"),
    ] = None,
    irrelevant: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of labels to exclude, for --multi.", show_default="annotations/irrelevant_labels.csv"
        ),
    ] = None,
    completed: Annotated[
        Path | None,
        typer.Option(
            help="Table from hgld complete: groups from photographs, for landmarks without a label.",
            show_default="none",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Build the hierarchy of landmarks, groups and roots (natural, human-made).

    The build stops with a list of labels without a decision, unless --allow-undecided excludes their landmarks. The
    column label_source marks landmarks with a group from --completed; the official CSV files leave these out.

    Example: hgld build clean.parquet -o hierarchy.parquet --csv official/
    """
    from hgld.cli.summaries.hierarchy import format_build
    from hgld.hierarchy.build import build_file

    summary = build_file(
        clean,
        out,
        config,
        decisions=decisions,
        taxonomy=taxonomy,
        csv=csv,
        classes=classes,
        scraped=scraped,
        irrelevant=irrelevant,
        completed=completed,
        force=force,
    )
    print_summary(out, summary, format_build)


@app.command(rich_help_panel="Hierarchy")
def why(
    landmark_id: Annotated[int, typer.Argument(help="Id of the landmark.")],
    split: Annotated[
        Literal["train", "index"] | None, typer.Option(help="Split of the landmark.", show_default="both")
    ] = None,
    hierarchy: Annotated[Path, typer.Option(help="Hierarchy; other tables are searched for beside it.")] = Path(
        "hierarchy.parquet"
    ),
    scraped: Annotated[
        list[Path] | None, typer.Option(help="Tables from hgld scrape.", show_default="scraped*.parquet")
    ] = None,
    clean: Annotated[Path | None, typer.Option(help="Table from hgld clean.", show_default="clean.parquet")] = None,
    removed: Annotated[
        Path | None, typer.Option(help="Landmarks that hgld clean removed.", show_default="removed.parquet")
    ] = None,
    clusters: Annotated[
        Path | None, typer.Option(help="Table from hgld cluster.", show_default="clusters.parquet")
    ] = None,
    completed: Annotated[
        Path | None, typer.Option(help="Table from hgld complete.", show_default="completed.parquet")
    ] = None,
    decisions: DecisionsOfHierarchy = None,
    taxonomy: TaxonomyOfHierarchy = None,
) -> None:
    """Explain a landmark's group, or which stage excluded it and why.

    Example: hgld why 161 --hierarchy hierarchy.parquet
    """
    from hgld.cli.summaries.hierarchy import format_traces
    from hgld.hierarchy.why import find_trace_sources, trace_landmark

    sources = find_trace_sources(
        hierarchy,
        scraped=scraped,
        clean=clean,
        removed=removed,
        clusters=clusters,
        completed=completed,
        decisions=decisions,
        taxonomy=taxonomy,
    )
    typer.echo(format_traces(trace_landmark(sources, landmark_id, split)))


@app.command(rich_help_panel="Hierarchy")
def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A", help="First hierarchy: a Parquet file, an official CSV file, or a folder with these."
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="Second hierarchy, in any of these formats.")],
    out: Annotated[Path | None, out_figure("Image file to write, of the flows between groups.")] = None,
    changes: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            callback=writable_file(".csv"),
            help="CSV file to write, of the landmarks added, lost or moved, with cause and revisions.",
        ),
    ] = None,
    before_tables: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the tables that A was made from.", show_default="that of A"),
    ] = None,
    after_tables: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the tables that B was made from.", show_default="that of B"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables, with all flows.")] = False,
) -> None:
    """Compare two hierarchies: landmarks added, lost and moved, why, and the agreement of their groups.

    Landmarks are matched by split and id. Added landmarks are only in B, lost ones only in A, and moved ones in both
    but in another group. The tables from scrape and clean and the decisions that a hierarchy was built from tell
    whether Wikidata changed or decisions did; they are found by their digests, whatever their names.

    Example: hgld compare released/ hierarchy.parquet -o flows.png
    """
    from hgld.cli.summaries.hierarchy import format_comparison
    from hgld.hierarchy.compare import compare_files

    comparison = compare_files(
        before,
        after,
        before_tables=before_tables,
        after_tables=after_tables,
        picture=out,
        changes=changes,
    )
    typer.echo(comparison.to_json() if json else format_comparison(comparison))


@app.command(rich_help_panel="Hierarchy")
def stats(
    hierarchy: Annotated[
        str, typer.Argument(help="Hierarchy: a Parquet file, an official CSV file, or a folder with these.")
    ],
    images: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SPLIT=]FILE",
            help="Landmark of each image: GLDv2's train.csv, train_clean.csv or index_image_to_landmark.csv.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        out_figure(
            "Image file X.png to write, of the sizes of groups; X.tree.png and X.tree.html show them as areas."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Count landmarks and images by root and group, and measure the imbalance of groups.

    Example: hgld stats hierarchy.parquet --images train.csv -o stats.png
    """
    from hgld.cli.summaries.hierarchy import format_stats
    from hgld.hierarchy.stats import stats_file

    tree = None if out is None else out.with_suffix(f".tree{out.suffix}")
    counts = stats_file(hierarchy, images=[parse_images(text) for text in images or ()], picture=out, tree=tree)
    typer.echo(counts.to_json() if json else format_stats(counts))


@app.command(rich_help_panel="Hierarchy")
@options_of("hgld.completion.config:CompleteConfig", k="-k", reasons="--reason", encoder={"metavar": "NAME"})
def complete(
    *,
    hierarchy: Annotated[Path, typer.Argument(help="Hierarchy from hgld build.")],
    out: Annotated[Path, out_file("Table of proposals to write.", ".parquet")],
    embeddings: Annotated[
        list[Path],
        typer.Option(help="Embeddings of photographs, such as from hgld embed-images; may be repeated."),
    ],
    images: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SPLIT=]FILE",
            help="Landmark of each photograph: GLDv2's train.csv or index_image_to_landmark.csv; may be repeated.",
            show_default="the landmark ids in EMBEDDINGS",
        ),
    ] = None,
    config: CompleteConfig,
    removed: Annotated[
        Path | None,
        typer.Option(help="Landmarks that hgld clean removed.", show_default="removed.parquet beside HIERARCHY"),
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option(
            help="Table from hgld clean, for --reason excluded.", show_default="clean.parquet beside HIERARCHY"
        ),
    ] = None,
    evaluate: Annotated[
        bool,
        flag(
            "--evaluate",
            "Only print and plot (.coverage.png beside the output) the accuracy of proposals for labelled "
            "landmarks whose group is hidden.",
        ),
    ] = False,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Propose groups for landmarks without a label, from their photographs.

    Every photograph votes for the groups of the photographs or texts nearest to it, and the landmark gets the group
    with the most votes. The score is the probability that it is right. A proposal is never treated as a decision:
    hgld build --completed takes those above a score, and marks them.

    Example: hgld complete hierarchy.parquet --embeddings embeddings.parquet --images train.csv -o completed.parquet
    """
    from hgld.cli.summaries.hierarchy import format_complete, format_completion_quality
    from hgld.completion.complete import complete_file
    from hgld.completion.inputs import find_completion_files
    from hgld.completion.quality import evaluate_completion

    landmarks = [parse_images(text) for text in images or ()]
    files = find_completion_files(hierarchy, embeddings, landmarks, config.reasons, removed=removed, clean=clean)
    with TerminalProgress("complete", "photographs") as progress:
        if evaluate:
            picture = out.with_suffix(".coverage.png")
            typer.echo(format_completion_quality(evaluate_completion(files, picture, config, progress=progress)))
            print_figure(picture)
        else:
            print_summary(out, complete_file(files, out, config, force=force, progress=progress), format_complete)
