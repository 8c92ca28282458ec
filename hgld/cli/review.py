"""Commands for annotators' decisions: the review page, sheets, agreement and adjudication."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import (
    ClassesBeside,
    CleanBeside,
    ImageLandmarks,
    Images,
    Taxonomy,
    app,
    friendly_errors,
    parse_images,
    print_summary,
    writable_figure,
    writable_file,
    writable_folder,
)
from hgld.cli.served_page import Host, OpenBrowser, Port, announced_page
from hgld.errors import ConfigurationError


@app.command(rich_help_panel="Review")
def review(
    clusters: Annotated[Path, typer.Argument(help="Clusters from hgld cluster or hgld suggest.")],
    annotator: Annotated[str, typer.Option(help="Name of the annotator.")],
    store: Annotated[
        Path | None,
        typer.Option(
            help="SQLite file of the decisions.",
            callback=writable_file(),
            show_default="review/ANNOTATOR.sqlite beside CLUSTERS",
        ),
    ] = None,
    clean: CleanBeside = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
    decisions: Annotated[
        Path | None, typer.Option(help="CSV file of decisions to start from, for labels without one in --store.")
    ] = None,
    blind: Annotated[
        bool, typer.Option("--blind", help="Hide suggestions, and record that decisions were made without them.")
    ] = False,
    images: Images = None,
    image_landmarks: ImageLandmarks = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    open_browser: OpenBrowser = True,
) -> None:
    """Serve a local page on which an annotator decides on labels.

    Every decision is saved before the page shows it. Stop with Ctrl-C; the same command resumes. hgld decisions
    writes the decisions as CSV.

    Example: hgld review clusters.parquet --annotator ada
    """
    from hgld.io.files import check_writable_file
    from hgld.pages.server import ServerConfig
    from hgld.review.page.serve import serve_review
    from hgld.taxonomy.decisions import check_annotator

    with friendly_errors():
        check_annotator(annotator)
        path = store or clusters.parent / "review" / f"{annotator}.sqlite"
        check_writable_file(path)
        with announced_page(open_browser, path.parent) as on_address:
            serve_review(
                clusters,
                path,
                annotator,
                ServerConfig(host, port),
                on_address=on_address,
                clean=clean,
                classes=classes,
                taxonomy=taxonomy,
                decisions=decisions,
                blind=blind,
                images=images,
                image_landmarks=[parse_images(text) for text in image_landmarks or ()],
            )
        typer.echo(f"{path}: everything is saved")


@app.command(rich_help_panel="Review")
def decisions(
    store: Annotated[Path, typer.Argument(help="SQLite file from hgld review, e.g. review/ada.sqlite.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write.", callback=writable_file(".csv"))],
    taxonomy: Taxonomy = None,
    clusters: Annotated[Path | None, typer.Option(help="Clusters that the page showed; for --clusters-out.")] = None,
    clusters_out: Annotated[
        Path | None,
        typer.Option(
            help="Table to write: --clusters with the splits, merges and names made on the page.",
            callback=writable_file(".parquet"),
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace decisions in the output that never were in STORE.")
    ] = False,
) -> None:
    """Write the decisions of the review page as CSV.

    An output with decisions that never were in STORE, such as those of other people, is not overwritten. If groups
    were proposed or renamed, the changed taxonomy is written beside OUT: ada.taxonomy.csv beside ada.csv.

    Example: hgld decisions review/ada.sqlite -o annotations/decisions/ada.csv
    """
    from hgld.cli.summaries.review import format_decisions
    from hgld.review.decision_export import export_decisions

    with friendly_errors():
        summary = export_decisions(
            store, out, taxonomy=taxonomy, clusters=clusters, clusters_out=clusters_out, force=force
        )
        print_summary(out, summary, format_decisions)


@app.command(rich_help_panel="Review")
def copy_store(
    store: Annotated[Path, typer.Argument(help="SQLite file from hgld review, e.g. review/ada.sqlite.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="SQLite file to write.", callback=writable_file())],
    force: Annotated[
        bool, typer.Option("--force", help="Replace an output that is not an earlier copy of STORE.")
    ] = False,
) -> None:
    """Copy the file of decisions of the review page, while the page may be open.

    The same command puts a copy back: give the copy as STORE, and the file that it replaces as --out.

    Example: hgld copy-store review/ada.sqlite -o copies/ada.sqlite
    """
    from hgld.cli.summaries.review import format_decisions
    from hgld.review.decision_export import DecisionsSummary
    from hgld.review.state import current_decisions
    from hgld.review.store import copy_store as run

    with friendly_errors():
        owner, state = run(store, out, force=force)
        print_summary(out, DecisionsSummary(owner, len(current_decisions(state, []))), format_decisions)


@app.command(rich_help_panel="Review")
def export(
    clusters: Annotated[Path, typer.Argument(help="Clusters from hgld cluster.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the sheets.", callback=writable_folder)],
    annotators: Annotated[str, typer.Option(help="Names of the annotators, separated by commas.")],
    clean: CleanBeside = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
    merge: Annotated[bool, typer.Option("--merge", help="Keep the entries in existing sheets.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write new sheets and discard earlier entries.")] = False,
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
        print_summary(out, summary, format_export)


@app.command(rich_help_panel="Review")
def import_sheet(
    sheet: Annotated[Path, typer.Argument(help="Sheet that was filled in: .xlsx or .csv.")],
    annotator: Annotated[str, typer.Option(help="Name of the annotator who filled it in.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="CSV file of decisions to write.",
            callback=writable_file(".csv"),
            show_default="decisions/ANNOTATOR.csv beside the folder of SHEET",
        ),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(
            help="Clusters from which the sheet was made.", show_default="clusters.parquet beside the folder of SHEET"
        ),
    ] = None,
    taxonomy: Taxonomy = None,
    valid_rows_only: Annotated[
        bool, typer.Option("--valid-rows-only", help="Import the valid rows of a sheet with problems.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Discard the decisions in the output.")] = False,
) -> None:
    """Check the entries in a review sheet and write them as decisions.

    All problems are reported together with the addresses of their cells; a sheet with a problem is not imported.

    Example: hgld import-sheet review/ada.xlsx --annotator ada -o decisions/ada.csv
    """
    from hgld.cli.summaries.review import format_import
    from hgld.io.files import check_writable_file
    from hgld.review.sheets.import_sheet import ImportConfig, default_output
    from hgld.review.sheets.import_sheet import import_sheet as run

    with friendly_errors(merge="--merge"):
        config = ImportConfig(annotator, valid_rows_only=valid_rows_only)
        out = default_output(sheet, annotator) if out is None else out
        check_writable_file(out)
        summary = run(sheet, out, config, clusters=clusters, taxonomy=taxonomy, force=force)
        print_summary(out, summary, format_import)


@app.command(rich_help_panel="Review")
def agreement(
    decisions: Annotated[list[Path], typer.Argument(help="Files of decisions, one per annotator.")],
    clusters: Annotated[
        Path | None,
        typer.Option(help="Clusters from hgld cluster, to count landmarks as well as labels.", show_default="none"),
    ] = None,
    taxonomy: Taxonomy = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="JSON file to write.", callback=writable_file(".json"), show_default="none"),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Image file to write, of the groups that two annotators confused.",
            callback=writable_figure,
            show_default="none",
        ),
    ] = None,
    resamples: Annotated[int, typer.Option(help="Number of bootstrap samples for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap samples.")] = 0,
) -> None:
    """Measure inter-annotator agreement, and list the disagreements.

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
    first: Annotated[Path, typer.Argument(help="CSV file of decisions of one annotator.")],
    second: Annotated[Path, typer.Argument(help="CSV file of decisions of the other annotator.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="CSV file of final decisions to write.", callback=writable_file(".csv")),
    ],
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="How to settle disagreements: agree-only (not at all), prefer:NAME, or most-landmarks.",
        ),
    ] = None,
    annotator: Annotated[
        str | None,
        typer.Option(help="Name of the person who settles disagreements on the review page; replaces --rule."),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(
            help="Clusters from hgld cluster, to count landmarks; required by most-landmarks and the page.",
            show_default="none",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="SQLite file of the decisions on the page.",
            callback=writable_file(),
            show_default="review/ANNOTATOR.final.sqlite",
        ),
    ] = None,
    images: Images = None,
    image_landmarks: ImageLandmarks = None,
    port: Port = 0,
    open_browser: OpenBrowser = True,
    taxonomy: Taxonomy = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace decisions of other people in the output on the same labels.")
    ] = False,
) -> None:
    """Combine the decisions of two annotators into one per label, by a rule or on the review page.

    Groups that they renamed or proposed are combined too, and written beside the output (final.taxonomy.csv).

    The page shows the labels on which they differ, with both opinions side by side; groups can be renamed and merged.
    Stop it with Ctrl-C to write the file; the same command resumes.

    Example: hgld adjudicate decisions/ada.csv decisions/ben.csv -o decisions/final.csv --rule prefer:ada
    """
    from hgld.cli.summaries.review import format_adjudicate
    from hgld.io.files import check_writable_file
    from hgld.pages.server import ServerConfig
    from hgld.review.adjudication import AdjudicateConfig, adjudicate_files
    from hgld.review.page.serve import adjudicate_on_page
    from hgld.taxonomy.decisions import check_annotator

    with friendly_errors():
        if rule is not None and annotator is None:
            config = AdjudicateConfig(rule)
            summary = adjudicate_files(first, second, out, config, clusters=clusters, taxonomy=taxonomy, force=force)
        elif annotator is not None and rule is None:
            check_annotator(annotator)
            if clusters is None:
                raise ConfigurationError(
                    "the page shows labels with their clusters; give their table with --clusters"
                )
            path = store or clusters.parent / "review" / f"{annotator}.final.sqlite"
            check_writable_file(path)
            with announced_page(open_browser, path.parent) as on_address:
                summary = adjudicate_on_page(
                    first,
                    second,
                    out,
                    clusters,
                    path,
                    annotator,
                    ServerConfig(port=port),
                    on_address=on_address,
                    taxonomy=taxonomy,
                    images=images,
                    image_landmarks=[parse_images(text) for text in image_landmarks or ()],
                    force=force,
                )
        else:
            raise ConfigurationError("give either --rule, or --annotator to settle disagreements on the page")
        print_summary(out, summary, format_adjudicate)
