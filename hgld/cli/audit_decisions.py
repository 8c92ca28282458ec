"""``hgld audit`` of what labels rest on: the superclasses behind suggestions, and the annotators."""

from __future__ import annotations

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
    from hgld.audit import AnnotatorsAudit, TreeAudit
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
    from hgld.tables import find_classes_tables

    classes = find_classes_tables(clean) if classes is None else classes
    result = audit_tree(clean, classes, taxonomy)
    typer.echo(format_tree(result))
    write_tree(result, clean, classes, taxonomy, out)


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

    require_other_file(out, files)
    result = audit_annotators(files, config, clusters=clusters, taxonomy=taxonomy)
    typer.echo(format_annotators(result))
    write_annotators(result, files, config, clusters, taxonomy, out)


def write_tree(result: TreeAudit, clean: Path, classes: list[Path], taxonomy: Path | None, out: Path) -> None:
    """Write the table of defects of superclasses, and print its name."""
    from hgld.tables import Provenance, input_digests
    from hgld.tables.provenance import write_results

    made_of = Provenance("audit tree", {}, input_digests(clean=clean, classes=classes, taxonomy=taxonomy))
    write_results(out, result.to_arrow(), "tree_defects/1", made_of)
    typer.echo(out)


def write_annotators(
    result: AnnotatorsAudit,
    files: list[Path],
    config: AgreementConfig,
    clusters: Path | None,
    taxonomy: Path | None,
    out: Path,
) -> None:
    """Write the table of disputed labels, and print its name."""
    from hgld.tables import Provenance, input_digests
    from hgld.tables.provenance import write_results

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
    unknown = len(result.landmarks.keys() - result.names.keys())
    return lines(
        f"{len(result.names):,} classes for {counted(len(result.landmarks), 'label')}",
        unknown > 0 and f"{counted(unknown, 'label')} without a class in the tables",
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
    rows = [
        [
            each.annotator,
            each.labels,
            "–" if isnan(each.seconds) else f"{each.seconds:.1f}",
            _with_interval(each.quality),
        ]
        for each in result.annotators
    ]
    changes = [
        [each.annotator, title, f"{change.first:.2f}", f"{change.second:.2f}", _with_interval(change.difference)]
        for each in result.annotators
        for title, change in each.changes.items()
        if not isnan(change.difference.value)
    ]
    return lines(
        f"{counted(agreement.labels, 'label')} decided by two or more of {len(rows)} annotators, "
        f"{len(agreement.disagreements):,} of them differently",
        ["", *aligned(["Krippendorff's alpha", "by label", "by landmark"][: len(levels[0])], levels)],
        bool(groups) and ["", *aligned(["least agreement", "both", "one only", "agreement"], groups)],
        bool(confused) and ["", *aligned(["confused most", "with", "labels"], confused)],
        ["", *aligned(["annotator", "labels", "seconds", "estimated right"], rows)],
        bool(changes) and ["", *aligned(["annotator", "", "from", "to", "change"], changes)],
        "",
        f"two annotators differ on {_with_interval(difference, 3)} of the labels; to know this to 0.01, "
        f"{result.needed:,} of {counted(result.n_labels, 'label')} must be decided twice",
    )


def _with_interval(estimate: Estimate, digits: int = 2) -> str:
    if isnan(estimate.value):
        return "–"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
