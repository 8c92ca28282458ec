"""Commands for annotators' decisions: the review page, sheets, agreement and adjudication."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.application import FIRST_STEPS, app, friendly_errors
from hgld.cli.options import field_options
from hgld.cli.output import LANDMARKS, print_summary, remember
from hgld.cli.render import aligned
from hgld.cli.served_page import Host, OpenBrowser, Port, announced_page
from hgld.cli.shared_options import (
    ClassesBeside,
    CleanBeside,
    ImageLandmarks,
    Images,
    Taxonomy,
    out_file,
    parse_names,
    writable_figure,
    writable_file,
    writable_folder,
)
from hgld.errors import ConfigurationError, counted, indented_list
from hgld.figures.style import Nouns
from hgld.review.settings import AgreementConfig, ExportConfig, ImportConfig

if TYPE_CHECKING:
    from hgld.review.adjudication import AdjudicateSummary, OpenLabel
    from hgld.review.agreement import (
        Agreement,
        Disagreement,
        Estimate,
        GroupAgreement,
        SubsetAgreement,
    )
    from hgld.review.decision_files import DecisionsSummary, GroupConflict
    from hgld.review.sheets.export import ExportSummary
    from hgld.review.sheets.import_sheet import ImportSummary

#: Number of disagreements that are printed.
_MAX_DISAGREEMENTS = 30


@app.command(rich_help_panel=FIRST_STEPS)
def review(
    *,
    annotator: Annotated[str, typer.Option()],
    clusters: Path,
    store: Annotated[Path | None, typer.Option(callback=writable_file())] = None,
    decisions: Path | None = None,
    blind: bool = False,
    clean: CleanBeside = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
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

    Args:
        annotator: Name of the annotator.
        clusters: Clusters from hgld cluster or hgld suggest.
        store: SQLite file of the decisions. Default: review/ANNOTATOR.sqlite beside CLUSTERS.
        decisions: CSV file of decisions to start from, for labels without a decision in --store. If groups were
            renamed or proposed, the taxonomy must be beside it.
        blind: Hide suggestions, and record that decisions were made without them.
    """
    from hgld.io.writable import check_writable_file
    from hgld.pages.server import ServerConfig
    from hgld.review.page.serve import serve_review
    from hgld.taxonomy.decisions import check_annotator

    check_annotator(annotator)
    path = store or clusters.parent / "review" / f"{annotator}.sqlite"
    check_writable_file(path)
    with announced_page(open_browser, path.parent) as announce:

        def on_address(address: str) -> None:
            remember(clusters, "taxonomy", taxonomy)  # the page is open, so it can be used
            announce(address)

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
            image_landmarks=image_landmarks or (),
        )
    typer.echo(f"{path}: everything is saved")


@app.command(rich_help_panel="Review")
def decisions(
    *,
    store: Path,
    out: Annotated[Path, out_file(".csv")],
    force: bool = False,
    taxonomy: Taxonomy = None,
) -> None:
    """Write the decisions of the review page as CSV.

    An output with decisions that never were in STORE, such as decisions of other people, is not overwritten.

    Example: hgld decisions review/ada.sqlite -o annotations/decisions/ada.csv

    Args:
        store: SQLite file from hgld review, e.g. review/ada.sqlite.
        out: CSV file of decisions to write. If groups were proposed or renamed, the changed taxonomy is written
            beside it, as a.taxonomy.csv beside a.csv.
        force: Replace decisions in the output that never were in STORE.
    """
    from hgld.review.decision_files import export_decisions

    summary = export_decisions(store, out, taxonomy=taxonomy, force=force)
    print_summary(out, summary, _format_decisions)


@app.command(rich_help_panel="Review")
def copy_store(
    *,
    path: Annotated[Path, typer.Argument(metavar="STORE")],
    out: Annotated[Path, out_file()],
    force: bool = False,
) -> None:
    """Copy the file of decisions of the review page, while the page may be open.

    The same command puts a copy back: give the copy as STORE, and the file that it replaces as --out.

    Example: hgld copy-store review/ada.sqlite -o copies/ada.sqlite

    Args:
        path: SQLite file from hgld review, e.g. review/ada.sqlite.
        out: SQLite file to write.
        force: Replace a store that is not an earlier copy of STORE, also a damaged one.
    """
    from hgld.review import store
    from hgld.review.decision_files import DecisionsSummary
    from hgld.review.state import current_decisions

    owner, state = store.copy_store(path, out, force=force)
    n_decisions = len(current_decisions(state, []))
    print_summary(out, DecisionsSummary(owner, n_decisions), _format_decisions)


@app.command(rich_help_panel="Review")
@field_options(
    ExportConfig,
    annotators=typer.Option(
        parser=parse_names, metavar="NAMES", help="Names of the annotators, separated by commas."
    ),
)
def export(
    *,
    clusters: Path,
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable_folder)],
    config: ExportConfig,
    force: bool = False,
    clean: CleanBeside = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
) -> None:
    """Write a review sheet for every annotator, as a workbook and as CSV.

    Example: hgld export clusters.parquet -o review/ --annotators ada,ben

    Args:
        clusters: Clusters from hgld cluster.
        out: Folder for the sheets.
        force: Write new sheets and discard earlier entries.
    """
    from hgld.review.sheets.export import export_sheets
    from hgld.taxonomy.project import nouns_of

    summary = export_sheets(
        clusters, out, config, clean=clean, classes=classes, taxonomy=taxonomy, force=force
    )
    remember(clusters, "taxonomy", taxonomy)
    print_summary(out, summary, partial(format_export, nouns=nouns_of(clusters)))


@app.command(rich_help_panel="Review")
def import_sheet(
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", callback=writable_file(".csv"))] = None,
    sheet: Path,
    config: ImportConfig,
    clusters: Path | None = None,
    force: bool = False,
    taxonomy: Taxonomy = None,
) -> None:
    """Check the entries in a review sheet and write them as decisions.

    All problems are reported together with the addresses of their cells; a sheet with a problem is not imported.

    Example: hgld import-sheet review/ada.xlsx -o decisions/ada.csv

    Args:
        out: CSV file of decisions to write. Default: decisions/ANNOTATOR.csv beside the folder of SHEET.
        sheet: Sheet that was filled in: .xlsx or .csv.
        clusters: Clusters from which the sheet was made. Default: clusters.parquet beside the folder of SHEET.
        force: Discard the decisions in the output.
    """
    from hgld.io.writable import check_writable_file
    from hgld.review.sheets import import_sheet as stage
    from hgld.taxonomy.project import nouns_of

    if out is None:
        out = stage.default_output(sheet, config.annotator)
    check_writable_file(out)
    with friendly_errors(merge="--merge"):  # an option of hgld export
        summary = stage.import_sheet(
            sheet, out, config, clusters=clusters, taxonomy=taxonomy, force=force
        )
    clusters = clusters or stage.clusters_beside(sheet)
    remember(clusters, "taxonomy", taxonomy)
    print_summary(out, summary, partial(format_import, nouns=nouns_of(clusters)))


@app.command(rich_help_panel="Review")
@field_options(AgreementConfig, n_resamples="--resamples", confidence=None)
def agreement(
    *,
    taxonomy: Taxonomy = None,
    decisions: list[Path],
    config: AgreementConfig,
    clusters: Path | None = None,
    out: Annotated[Path | None, out_file(".json")] = None,
    figure: Annotated[Path | None, typer.Option(callback=writable_figure)] = None,
) -> None:
    """Measure inter-annotator agreement, and list the disagreements.

    Example: hgld agreement decisions/ada.csv decisions/ben.csv --clusters clusters.parquet

    Args:
        decisions: A file for each annotator: CSV decisions, or a store (.sqlite).
        clusters: Clusters from hgld cluster, to count landmarks as well as labels. Default: clusters.parquet beside
            the project file hgld.yaml, if both exist.
        out: JSON file to write.
        figure: Image file to write with the groups that two annotators confused.
    """
    from hgld.review.agreement import agreement_files
    from hgld.taxonomy.project import (
        clusters_of_project,
        find_project_file,
        nouns_of,
        read_project,
    )

    clusters = clusters or clusters_of_project(decisions[0])
    result = agreement_files(
        decisions, config, clusters=clusters, taxonomy=taxonomy, out=out, figure=figure
    )
    remember(clusters or decisions[0], "taxonomy", taxonomy)
    if clusters is not None:
        nouns = nouns_of(clusters)
    elif find_project_file(decisions[0]) is not None:
        nouns = read_project(decisions[0]).nouns
    else:
        nouns = LANDMARKS
    typer.echo(format_agreement(result, nouns))
    for path in (out, figure):
        if path is not None:
            typer.echo(path)


@app.command(rich_help_panel="Review")
def adjudicate(
    *,
    out: Annotated[Path, out_file(".csv")],
    rule: Annotated[str | None, typer.Option(metavar="RULE")] = None,
    annotator: str | None = None,
    first: Path,
    second: Path,
    clusters: Path | None = None,
    force: bool = False,
    store: Annotated[Path | None, typer.Option(callback=writable_file())] = None,
    images: Images = None,
    image_landmarks: ImageLandmarks = None,
    port: Port = 0,
    open_browser: OpenBrowser = True,
    taxonomy: Taxonomy = None,
) -> None:
    """Combine the decisions of two annotators into one per label, by a rule or on the review page.

    Groups that the annotators renamed or proposed are combined, too, and written beside the output
    (final.taxonomy.csv).

    The page shows the labels on which the annotators differ, with both opinions side by side; groups can be renamed
    and merged. Stop the page with Ctrl-C to write the file; the same command resumes.

    Example: hgld adjudicate decisions/ada.csv decisions/ben.csv -o decisions/final.csv --rule prefer:ada

    Args:
        out: CSV file of final decisions to write.
        rule: Rule that settles disagreements: agree-only (leaves them open), prefer:NAME, or most-landmarks.
        annotator: Name of the person who settles disagreements on the review page; replaces --rule.
        first: CSV file of decisions of one annotator; the taxonomy is beside it if groups were renamed or proposed.
        second: CSV file of decisions of the other annotator.
        clusters: Clusters from hgld cluster, to count landmarks; required by most-landmarks and the page. Default:
            clusters.parquet beside the project file hgld.yaml, if both exist.
        force: Replace decisions of other people in the output on the same labels.
        store: SQLite file of the decisions on the page. Default: review/ANNOTATOR.final.sqlite.
    """
    from hgld.io.writable import check_writable_file
    from hgld.pages.server import ServerConfig
    from hgld.review.adjudication import AdjudicateConfig, adjudicate_files
    from hgld.review.page.serve import adjudicate_on_page
    from hgld.taxonomy.decisions import check_annotator
    from hgld.taxonomy.project import clusters_of_project

    clusters = clusters or clusters_of_project(first)
    if rule is not None and annotator is None:
        config = AdjudicateConfig(rule)
        summary = adjudicate_files(
            first, second, out, config, clusters=clusters, taxonomy=taxonomy, force=force
        )
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
                clusters=clusters,
                taxonomy=taxonomy,
                force=force,
                store=path,
                annotator=annotator,
                config=ServerConfig(port=port),
                on_address=on_address,
                images=images,
                image_landmarks=image_landmarks or (),
            )
    else:
        raise ConfigurationError(
            "give either --rule, or --annotator to settle disagreements on the page"
        )
    remember(clusters or first, "taxonomy", taxonomy)
    remember(clusters or first, "decisions", out)
    print_summary(out, summary, format_adjudicate)


def format_export(summary: ExportSummary, nouns: Nouns = LANDMARKS) -> str:
    """Return counts, the files written, and what happened to earlier entries."""
    from hgld.review.sheets.worksheets import SET_ASIDE

    labels = counted(summary.labels, "label")
    landmarks = counted(summary.landmarks, *nouns)
    lines = [f"{labels} of {landmarks} in {counted(summary.clusters, 'cluster')}"]
    for path in summary.workbooks:
        lines.append(f"  {path} and {path.with_suffix('.csv').name}")
    if summary.kept:
        lines.append(f"entries of {counted(summary.kept, 'label')} kept")
    if summary.set_aside:
        set_aside = counted(summary.set_aside, "label")
        lines.append(f'entries of {set_aside} that no longer exist: see the sheet "{SET_ASIDE}"')
    return "\n".join(lines)


def format_import(summary: ImportSummary, nouns: Nouns = LANDMARKS) -> str:
    """Return counts of the decisions in a sheet, of changes to the output, and the problems of skipped rows."""
    decided = summary.decided
    lines = [
        f"{sum(decided.values()):,} of {counted(summary.labels, 'label')} decided "
        f"({summary.decided_landmarks:,} of {counted(summary.landmarks, *nouns)}): {decided['group']:,} into "
        f"{counted(summary.groups, 'group')}, {decided['drop']:,} dropped, {decided['unsure']:,} unsure",
        f"  {summary.new:,} new, {summary.changed:,} changed, {summary.withdrawn:,} withdrawn",
    ]
    if summary.kept:
        kept = counted(summary.kept, "earlier decision")
        lines.append(f"  {kept} kept, whose rows are missing or were skipped")
    if summary.problems:
        lines.append(f"  rows skipped because of {counted(len(summary.problems), 'problem')}:")
        lines.append(indented_list(summary.problems, limit=len(summary.problems)))
    return "\n".join(lines)


def _format_decisions(summary: DecisionsSummary) -> str:
    text = f"{counted(summary.decisions, 'label')} decided by {summary.annotator}"
    if summary.taxonomy is not None:
        text += f"\ngroups were proposed or renamed: see {summary.taxonomy}"
    return text


def format_adjudicate(summary: AdjudicateSummary) -> str:
    """Return counts of agreed, settled and open labels, of changes to the output, and the open labels."""
    still_open = [_open_label(label, summary) for label in summary.still_open]
    agreed = counted(summary.agreed, "label")
    lines = [f"{agreed} agreed, {summary.settled:,} settled, {len(still_open):,} open"]
    if summary.kept or summary.changed or summary.withdrawn:
        lines.append(
            f"  earlier decisions in the output: {summary.kept:,} kept on labels that neither annotator decided, "
            f"{summary.changed:,} changed, {summary.withdrawn:,} withdrawn"
        )
    if summary.taxonomy is not None:
        lines.append(f"groups were proposed or renamed: see {summary.taxonomy}")
    lines += _group_conflicts(summary.group_conflicts)
    if still_open:
        lines += ["open:", indented_list(still_open, limit=len(still_open))]
    return "\n".join(lines)


def _group_conflicts(conflicts: Sequence[GroupConflict]) -> list[str]:
    """Return the groups that annotators name differently, below a title if any exist."""
    if not conflicts:
        return []
    problems = [f"{conflict.name}: {conflict.problem}" for conflict in conflicts]
    return ["groups to settle:", indented_list(problems)]


def _open_label(label: OpenLabel, summary: AdjudicateSummary) -> str:
    from hgld.review.adjudication import opinion_text

    first_annotator, second_annotator = summary.annotators
    first = opinion_text(first_annotator, label.first, summary.group_names)
    second = opinion_text(second_annotator, label.second, summary.group_names)
    return f"{label.label} ({label.label_id})  {first}, {second}"


def format_agreement(agreement: Agreement, nouns: Nouns = LANDMARKS) -> str:
    """Return tables of the coefficients and the groups, and the first disagreements.

    Args:
        agreement: Agreement of two or more annotators.
        nouns: Words for one and for several entities that have labels.
    """
    title = f"{counted(agreement.labels, 'label')} decided by two or more annotators"
    if agreement.single:
        title += f", {agreement.single:,} by one only"
    lines = [title, ""]
    lines += _all_coefficients(agreement, nouns[0])
    lines.append("")
    lines += _groups(agreement.groups, nouns[0])
    lines.append("")
    lines += _disagreements(agreement, nouns[1])
    lines += _group_conflicts(agreement.group_conflicts)
    return "\n".join(lines)


def _all_coefficients(agreement: Agreement, entity: str) -> list[str]:
    """Return the coefficients on all labels, and on blind and other decisions if both exist."""
    config = agreement.config
    lines = _coefficients(agreement, entity)
    blind = agreement.blind
    not_blind = agreement.not_blind
    if blind and not_blind:
        blind_labels = counted(blind.labels, "label")
        lines += ["", f"{blind_labels} decided blind, without suggestions"]
        lines += _coefficients(blind, entity)
        lines += ["", f"the other {counted(not_blind.labels, 'label')}"]
        lines += _coefficients(not_blind, entity)
    elif blind:
        lines.append("all labels were decided blind, without suggestions")
    if agreement.mixed:
        labels = counted(agreement.mixed, "label")
        lines.append(
            f"warning: {labels} decided blind by one annotator and with suggestions by another"
        )
    resamples = counted(config.n_resamples, "resample")
    lines.append(
        f"({config.confidence:.0%} intervals from {resamples} of the labels; none by {entity})"
    )
    return lines


def _coefficients(agreement: Agreement | SubsetAgreement, entity: str) -> list[str]:
    from hgld.taxonomy.decisions import MACHINE

    header = ["", "by label"]
    measures = [agreement.by_label]
    if agreement.by_landmark:
        header.append(f"by {entity}")
        measures.append(agreement.by_landmark)
    annotators: set[str] = set()
    rows = []
    for index, pair in enumerate(agreement.by_label.pairs):
        annotators.update((pair.first, pair.second))
        undefined = "both used one category" if pair.labels else "no label in common"
        raw_row = [f"raw agreement ({pair.first}, {pair.second})"]
        kappa_row = [f"Cohen's kappa ({pair.first}, {pair.second})"]
        for measure in measures:
            raw_row.append(_interval(measure.pairs[index].raw, undefined))
            kappa_row.append(_interval(measure.pairs[index].kappa, undefined))
        rows += [raw_row, kappa_row]
    alpha_row = ["Krippendorff's alpha"]
    n_people = sum(not name.startswith(MACHINE) for name in annotators)
    if 1 < n_people < len(annotators):
        alpha_row = ["Krippendorff's alpha (people)"]
    for measure in measures:
        alpha_row.append(_interval(measure.alpha, "all used one category"))
    return aligned(header, [*rows, alpha_row])


def _interval(estimate: Estimate, undefined: str) -> str:
    """Return an estimate with its interval, if it has one, or why it is undefined."""
    if isnan(estimate.value):
        return f"undefined ({undefined})"
    if isnan(estimate.low):
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _groups(groups: Sequence[GroupAgreement], entity: str) -> list[str]:
    header = ["group", "both", "one only", "agreement"]
    if any(group.specific_by_landmark is not None for group in groups):
        header.append(f"by {entity}")
    rows = []
    for group in groups:
        row = [group.category, group.both, group.only_one]
        for share in (group.specific, group.specific_by_landmark):
            if share is not None:
                row.append(f"{share:.3f}")
        rows.append(row)
    return aligned(header, rows)


def _disagreements(agreement: Agreement, entities: str) -> list[str]:
    if not agreement.disagreements:
        return ["no disagreements"]
    order = f"most {entities} first" if agreement.by_landmark else "by label"
    title = f"{counted(len(agreement.disagreements), 'disagreement')}, {order}:"
    lines = [_disagreement(row) for row in agreement.disagreements]
    return [title, indented_list(lines, limit=_MAX_DISAGREEMENTS)]


def _disagreement(row: Disagreement) -> str:
    line = ""
    if row.landmarks is not None:
        line = f"{row.landmarks:>7,}  "
    opinions = [f"{annotator}: {category}" for annotator, category in row.opinions.items()]
    line += f"{row.label} ({row.label_id})  {', '.join(opinions)}"
    for annotator, comment in row.comments.items():
        line += f"; {annotator} says: {comment}"
    return line
