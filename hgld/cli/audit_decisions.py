"""``hgld audit`` of what labels rest on: the superclasses behind suggestions, and the annotators."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.audit import audit
from hgld.cli.base import Taxonomy, option, out_file
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines
from hgld.errors import counted

if TYPE_CHECKING:
    from hgld.audit import AnnotatorReport, AnnotatorsAudit, TreeAudit
    from hgld.review.agreement import AgreementConfig, Estimate

#: Largest number of rows of a table that is printed.
_SHOWN = 5


@audit.command()
def tree(
    *,
    clean: Annotated[Path, typer.Argument(help="Clean table from hgld clean, for the labels.")],
    out: Annotated[Path, out_file("Table to write: .csv or .parquet.", ".csv", ".parquet")],
    classes: Annotated[
        list[Path] | None, option("Tables of classes from hgld scrape.", default="*.classes.parquet beside CLEAN")
    ] = None,
    taxonomy: Taxonomy = None,
) -> None:
    """Find defects of the superclasses that suggestions rest on, and the labels that each of them touches.

    Superclasses are redundant, on a cycle, too general to tell a group, or above or below classes of several groups.

    Example: hgld audit tree clean.parquet -o tree.csv
    """
    from hgld.audit import audit_tree
    from hgld.tables import Provenance, input_digests
    from hgld.tables.provenance import write_results

    classes = sorted(clean.parent.glob("*.classes.parquet")) if classes is None else classes
    result = audit_tree(clean, classes, taxonomy)
    typer.echo(format_tree(result))
    made_of = Provenance("audit tree", {}, input_digests(clean=clean, classes=classes, taxonomy=taxonomy))
    write_results(out, result.to_arrow(), "tree_defects/1", made_of)
    typer.echo(out)


@audit.command()
@options_of("hgld.review.agreement:AgreementConfig", n_resamples="--resamples", confidence=None)
def annotators(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(help="A file for each annotator: a store of hgld review (.sqlite), or CSV decisions."),
    ],
    out: Annotated[Path, out_file("Table of disputed labels to write: .csv or .parquet.", ".csv", ".parquet")],
    clusters: Annotated[
        Path | None,
        option("Clusters with suggestions, also to count landmarks as well as labels.", default="none"),
    ] = None,
    taxonomy: Taxonomy = None,
    config: AgreementConfig,
) -> None:
    """Find what annotators confuse, whether order and suggestions change their decisions, and how good they are.

    From three annotators on, the most probable group of each disputed label is estimated, too (Dawid and Skene).

    Example: hgld audit annotators review/ada.sqlite review/ben.sqlite --clusters clusters.parquet -o disputed.csv
    """
    from hgld.audit import audit_annotators
    from hgld.io.files import require_other_file
    from hgld.tables import Provenance, input_digests
    from hgld.tables.provenance import write_results

    require_other_file(out, files)
    result = audit_annotators(files, config, clusters=clusters, taxonomy=taxonomy)
    typer.echo(format_annotators(result))
    inputs = input_digests(decisions=files, clusters=clusters, taxonomy=taxonomy)
    write_results(out, result.to_arrow(), "disputed_labels/1", Provenance("audit annotators", vars(config), inputs))
    typer.echo(out)


def format_tree(result: TreeAudit) -> str:
    """Format the numbers of defects and labels by problem, and the defects that touch most labels."""
    from hgld.audit.class_tree import PROBLEMS

    totals = []
    for problem, meaning in PROBLEMS.items():
        touched = [defect.labels for defect in result.defects if defect.problem == problem]
        totals.append([problem, len(touched), len(set().union(*touched)), meaning])
    rows = [
        [len(defect.labels), defect.problem, f"{result.names[defect.item]} ({defect.item})", defect.detail]
        for defect in result.defects[:_SHOWN]
    ]
    return lines(
        f"{result.n_classes:,} classes for {counted(result.n_labels, 'label')}",
        result.n_without_class > 0 and f"{counted(result.n_without_class, 'label')} without a class in the tables",
        aligned(["problem", "found", "labels", ""], totals),
        bool(rows) and ["", *aligned(["labels", "problem", "class", ""], rows)],
    )


def format_annotators(result: AnnotatorsAudit) -> str:
    """Format agreement by level, what is confused most, and for each annotator what changes the decisions."""
    agreement, difference = result.agreement, result.difference
    levels = [
        [level, *(_with_interval(measures.alpha) for measures in (each.by_label, each.by_landmark) if measures)]
        for level, each in result.levels.items()
    ]
    groups = [
        [group.category, group.both, group.only_one, _with_interval(group.estimate)]
        for group in agreement.groups[:_SHOWN]
        if group.only_one
    ]
    confused = [[*names, n] for names, n in result.confused[:_SHOWN]]
    rows = [_annotator_row(report) for report in result.annotators]
    changes = [row for report in result.annotators for row in _change_rows(report)]
    return lines(
        f"{counted(agreement.labels, 'label')} decided by two or more of {len(rows)} annotators, "
        f"{len(agreement.disagreements):,} of them differently",
        ["", *aligned(["Krippendorff's alpha", "by label", "by landmark"][: len(levels[0])], levels)],
        bool(groups) and ["", *aligned(["least agreement", "both", "one only", "agreement"], groups)],
        bool(confused) and ["", *aligned(["confused most", "with", "labels"], confused)],
        ["", *aligned(["annotator", "labels", "decided again", "seconds", "estimated right"], rows)],
        bool(changes) and ["", *aligned(["annotator", "", "from", "to", "change"], changes)],
        "",
        f"two annotators differ on {_with_interval(difference, 3)} of the labels; to know this to 0.01, "
        f"{result.needed:,} of {counted(result.n_labels, 'label')} must be decided twice",
    )


def _with_interval(estimate: Estimate | None, digits: int = 2) -> str:
    if estimate is None or isnan(estimate.value):
        return "–"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def _annotator_row(report: AnnotatorReport) -> list[object]:
    again = "–" if report.decided_again is None else report.decided_again
    seconds = "–" if report.seconds is None else f"{report.seconds:.1f}"
    return [report.annotator, report.labels, again, seconds, _with_interval(report.quality)]


def _change_rows(report: AnnotatorReport) -> Iterator[list[object]]:
    """Yield a row for each comparison that there are enough decisions for."""
    comparisons = {
        "seconds, first to last third": report.pace,
        "agreement, first to last third": report.agreement,
        "as suggested, blind to shown": report.suggested,
    }
    for title, comparison in comparisons.items():
        if comparison is not None and not isnan(comparison.difference.value):
            values = (f"{value:.2f}" for value in (comparison.first, comparison.second))
            yield [report.annotator, title, *values, _with_interval(comparison.difference)]
