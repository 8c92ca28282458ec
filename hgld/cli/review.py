"""From clusters to decisions: on the page or in sheets, by one annotator each; then agreement and adjudication."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import ClassesBeside, CleanBeside, Taxonomy, announcing, app, friendly_errors, tell
from hgld.errors import ConfigurationError


@app.command(rich_help_panel="Review")
def review(
    clusters: Annotated[Path, typer.Argument(help="The clusters, from hgld cluster or hgld suggest.")],
    annotator: Annotated[str, typer.Option(help="Who decides; names the store.")],
    store: Annotated[
        Path | None,
        typer.Option(help="Where decisions are kept.", show_default="review/ANNOTATOR.sqlite beside CLUSTERS"),
    ] = None,
    clean: CleanBeside = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Start from these decisions, where none were made here.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; other than this machine only if you must.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.", min=0, max=65535)] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Decide on labels on a local page.

    Every decision is on disk when the page shows it; stop with Ctrl-C, go on with the same command. What was decided
    becomes a CSV file with hgld decisions.

    Example: hgld review clusters.parquet --annotator ada
    """
    from hgld.review.page.server import ServerConfig, serve_review
    from hgld.taxonomy.decisions import check_annotator

    with friendly_errors():
        check_annotator(annotator)
        path = store or clusters.parent / "review" / f"{annotator}.sqlite"
        serve_review(
            clusters,
            path,
            annotator,
            ServerConfig(host, port),
            started=announcing(open_browser),
            clean=clean,
            classes=classes,
            taxonomy=taxonomy,
            decisions=decisions,
        )
        typer.echo(f"{path}: everything is saved")


@app.command(rich_help_panel="Review")
def decisions(
    store: Annotated[Path, typer.Argument(help="What hgld review keeps, e.g. review/ada.sqlite.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.")],
    taxonomy: Taxonomy = None,
    clusters: Annotated[Path | None, typer.Option(help="The table that the page showed.")] = None,
    clusters_out: Annotated[
        Path | None, typer.Option(help="Where to write it with the clusters as they are on the page.")
    ] = None,
) -> None:
    """Write what was decided on the review page as CSV.

    Groups that were proposed or renamed go, with the rest of the taxonomy, into OUT.taxonomy.csv.

    Example: hgld decisions review/ada.sqlite -o annotations/decisions/ada.csv
    """
    from hgld.cli.summaries.review import format_decisions
    from hgld.review.outcome import write_reviewed

    with friendly_errors():
        summary = write_reviewed(store, out, taxonomy=taxonomy, clusters=clusters, clusters_out=clusters_out)
        tell(out, format_decisions(summary))


@app.command(rich_help_panel="Review")
def export(
    clusters: Annotated[Path, typer.Argument(help="The clusters, from hgld cluster.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the sheets.")],
    annotators: Annotated[str, typer.Option(help="Their names, with commas between; they name the files.")],
    clean: CleanBeside = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
    merge: Annotated[bool, typer.Option("--merge", help="Keep what was entered in earlier sheets.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write new sheets, lose what was entered.")] = False,
) -> None:
    """Write a review sheet for every annotator, as a workbook and as CSV.

    Example: hgld export clusters.parquet -o review/ --annotators ada,ben
    """
    from hgld.cli.summaries.review import format_export
    from hgld.review.sheets.export import ExportConfig, export_sheets

    with friendly_errors():
        names = tuple(name.strip() for name in annotators.split(",") if name.strip())
        summary = export_sheets(
            clusters,
            out,
            ExportConfig(names, merge=merge),
            clean=clean,
            classes=classes,
            taxonomy=taxonomy,
            force=force,
        )
        tell(out, summary and format_export(summary))


@app.command(rich_help_panel="Review")
def import_sheet(
    sheet: Annotated[Path, typer.Argument(help="A sheet that was filled in: .xlsx, .ods or .csv.")],
    annotator: Annotated[str, typer.Option(help="Whose sheet it is.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file of decisions to write.",
            show_default="decisions/ANNOTATOR.csv beside the folder of SHEET",
        ),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(
            help="The clusters the sheet was made from.",
            show_default="clusters.parquet beside the folder of SHEET",
        ),
    ] = None,
    taxonomy: Taxonomy = None,
    valid_rows_only: Annotated[
        bool, typer.Option("--valid-rows-only", help="Take the good rows of a sheet that has bad ones.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Do not look at what the output holds.")] = False,
) -> None:
    """Check what an annotator entered in a sheet, and write it as decisions.

    All problems are told together, with the addresses of their cells, and then nothing is taken.

    Example: hgld import-sheet review/ada.xlsx --annotator ada -o decisions/ada.csv
    """
    from hgld.cli.summaries.review import format_import
    from hgld.review.sheets.import_sheet import ImportConfig, default_output
    from hgld.review.sheets.import_sheet import import_sheet as run

    with friendly_errors():
        config = ImportConfig(annotator, valid_rows_only=valid_rows_only)
        out = default_output(sheet, annotator) if out is None else out
        summary = run(sheet, out, config, clusters=clusters, taxonomy=taxonomy, force=force)
        tell(out, summary and format_import(summary))


@app.command(rich_help_panel="Review")
def agreement(
    decisions: Annotated[list[Path], typer.Argument(help="Files of decisions, one of each annotator.")],
    clusters: Annotated[
        Path | None, typer.Option(help="The clusters, to count landmarks as well as labels.", show_default="none")
    ] = None,
    taxonomy: Taxonomy = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A JSON file to write everything to.", show_default="none")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="A picture to draw of the groups that two annotators mixed up.", show_default="none"),
    ] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same intervals.")] = 0,
) -> None:
    """Measure how far annotators agree, and list where they do not.

    Example: hgld agreement decisions/ada.csv decisions/ben.csv --clusters clusters.parquet
    """
    from hgld.cli.summaries.review import format_agreement
    from hgld.review.agreement import AgreementConfig, agreement_files

    with friendly_errors():
        result = agreement_files(
            decisions,
            AgreementConfig(n_resamples=resamples, seed=seed),
            clusters=clusters,
            taxonomy=taxonomy,
            out=out,
            figure=figure,
        )
        paths = [str(path) for path in (out, figure) if path is not None]
        typer.echo("\n".join([format_agreement(result), *paths]))


@app.command(rich_help_panel="Review")
def adjudicate(
    first: Annotated[Path, typer.Argument(help="The decisions of one annotator.")],
    second: Annotated[Path, typer.Argument(help="Those of the other.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of final decisions to write.")],
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="How to settle where they differ: agree-only (not at all), prefer:NAME, or most-landmarks.",
        ),
    ] = None,
    annotator: Annotated[
        str | None, typer.Option(help="Instead: who settles on the review page; needs the clusters.")
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(
            help="The clusters, to count landmarks; most-landmarks and the page need them.", show_default="none"
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Where the page keeps decisions.", show_default="review/ANNOTATOR.final.sqlite"),
    ] = None,
    port: Annotated[int, typer.Option(help="Of the page; 0: a free one.", min=0, max=65535)] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    taxonomy: Taxonomy = None,
    force: Annotated[
        bool, typer.Option("--force", help="Lose what the output says of labels that neither decided.")
    ] = False,
) -> None:
    """Make one decision per label out of those of two annotators, by a rule or on the review page.

    The page shows the labels on which they differ, both opinions side by side; the file is written when it is stopped
    with Ctrl-C, and the same command goes on.

    Example: hgld adjudicate decisions/ada.csv decisions/ben.csv -o decisions/final.csv --rule prefer:ada
    """
    from hgld.cli.summaries.review import format_adjudicate
    from hgld.review.adjudicate import AdjudicateConfig, adjudicate_files
    from hgld.review.page.server import ServerConfig, adjudicate_on_page

    with friendly_errors():
        if (rule is None) == (annotator is None):
            raise ConfigurationError("give --rule, or --annotator to settle on the page; one of them")
        if rule is not None:
            config = AdjudicateConfig(rule)
            summary = adjudicate_files(first, second, out, config, clusters=clusters, taxonomy=taxonomy, force=force)
        elif annotator is not None:
            if clusters is None:
                raise ConfigurationError("the page shows the labels of a table of clusters; name it with --clusters")
            summary = adjudicate_on_page(
                first,
                second,
                out,
                clusters,
                store or clusters.parent / "review" / f"{annotator}.final.sqlite",
                annotator,
                ServerConfig(port=port),
                started=announcing(open_browser),
                taxonomy=taxonomy,
                force=force,
            )
        tell(out, summary and format_adjudicate(summary))
