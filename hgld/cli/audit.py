"""``hgld audit``: what is wrong with a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import App, Taxonomy, app, flag, option, out_file, relative_to, writable_file, writable_folder
from hgld.cli.options import options_of
from hgld.cli.render import aligned, lines
from hgld.errors import ConfigurationError, counted
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.audit import (
        AnnotatorReport,
        AnnotatorsAudit,
        Duplicates,
        DuplicatesConfig,
        LabelErrorsConfig,
        TreeAudit,
    )
    from hgld.review.agreement import AgreementConfig, Estimate

#: Largest number of rows of a table that is printed.
_SHOWN = 5

audit = App(no_args_is_help=True, rich_markup_mode="markdown")


@audit.callback()
def about() -> None:
    """Find what is wrong with a data set.

    Example: hgld audit duplicates manifest.parquet -o duplicates.csv
    """


app.add_typer(audit, name="audit", rich_help_panel="Retrieval")


@audit.command()
@options_of("hgld.audit.duplicates:DuplicatesConfig")
def duplicates(
    *,
    manifest: Annotated[Path, typer.Argument(help="Manifest of the images.")],
    out: Annotated[
        Path,
        out_file("Table to write, for hgld manifest leave-out: .csv or .parquet.", ".csv", ".parquet"),
    ],
    root: Annotated[Path | None, relative_to("MANIFEST")] = None,
    embeddings: Annotated[
        Path | None,
        option("Embeddings of the images, of any model; crops are hardly found without.", default="thumbnails"),
    ] = None,
    index: Annotated[
        Path | None,
        option("Index of these from hgld export-embeddings, for millions of images.", default="exact search"),
    ] = None,
    config: DuplicatesConfig,
    page: Annotated[
        Path | None, option("HTML page to write, with the copies side by side.", callback=writable_file(".html"))
    ] = None,
    recall: Annotated[
        bool, flag("--recall", "Measure how many altered copies of 100 images would be found, by the recorded model.")
    ] = False,
) -> None:
    """Find images that are copies of one another: the same, re-encoded, resized, cropped, mirrored or recoloured.

    All images but one of each group of copies are marked to be left out. Those of the training go first, so that
    nothing of the test remains in it. Edit the table where you decide otherwise.

    Example: hgld audit duplicates manifest.parquet --embeddings embeddings.npy -o duplicates.csv --page copies.html
    """
    from hgld.audit import find_duplicates, measure_recall
    from hgld.audit.pages import write_duplicates_page
    from hgld.datasets.manifest import read_manifest
    from hgld.search.faiss_index import open_index
    from hgld.search.gallery import read_gallery
    from hgld.search.query_model import load_query_model
    from hgld.tables import Provenance, input_digests
    from hgld.tables.embeddings import read_embeddings, rows_of
    from hgld.tables.provenance import write_results

    if embeddings is None and index is not None:
        raise ConfigurationError("`index` is that of `embeddings`, which are not given")
    images, folder = read_manifest(manifest, root), root or manifest.parent
    vectors, neighbours, embed = None, None, None
    if embeddings is not None:
        embedded = read_embeddings(embeddings)
        rows = rows_of(embedded, images.ids.tolist(), "images of the manifest")
        if index is not None and rows.tolist() != list(range(len(embedded))):
            raise ConfigurationError(
                f"{embeddings}: not the images of {manifest} in their order, as `index` requires"
            )
        vectors = embedded.vectors if index is not None else embedded.vectors[rows]
        neighbours = None if index is None else open_index(index, read_gallery(embeddings))
        if recall:
            embed = load_query_model(embeddings, embedded.dim).embed
    with TerminalProgress("audit", "images") as progress:
        found = find_duplicates(images, folder, vectors, config, index=neighbours, progress=progress)
    typer.echo(format_duplicates(found))
    if recall:
        typer.echo(format_recall(measure_recall(found, folder, vectors, embed, config)))
    made_of = Provenance("audit duplicates", vars(config), input_digests(manifest=manifest, embeddings=embeddings))
    write_results(out, found.to_arrow(), "duplicates/1", made_of)
    typer.echo(out)
    if page is not None:
        write_duplicates_page(found, page, folder)
        typer.echo(page)


@audit.command()
@options_of("hgld.audit.label_errors:LabelErrorsConfig")
def labels(
    *,
    manifest: Annotated[Path, typer.Argument(help="Manifest of the images.")],
    embeddings: Annotated[Path, option("Embeddings of the images, of a model that has not learnt these labels.")],
    out: Annotated[Path, out_file("Table to write: .csv or .parquet.", ".csv", ".parquet")],
    root: Annotated[Path | None, relative_to("MANIFEST")] = None,
    config: LabelErrorsConfig,
    page: Annotated[
        Path | None, option("HTML page to write, with photographs.", callback=writable_file(".html"))
    ] = None,
    queue: Annotated[
        Path | None,
        option(
            "Folder to write, for hgld review: landmarks and labels to decide on again; needs --hierarchy.",
            callback=writable_folder,
        ),
    ] = None,
    hierarchy: Annotated[
        Path | None, option("Hierarchy of the manifest, with the tables it was built from beside it.")
    ] = None,
) -> None:
    """Find labels that the nearest images contradict: of single images, and of all images of a class.

    They are ranked, the most contradicted first. What looks wrong need not be wrong; a person decides.

    Example: hgld audit labels manifest.parquet --embeddings embeddings.npy -o labels.csv --page labels.html
    """
    from hgld.audit import find_label_errors, label_errors_table
    from hgld.audit.pages import write_label_errors_page
    from hgld.audit.review_queue import write_review_queue
    from hgld.datasets.manifest import read_manifest
    from hgld.tables import Provenance, input_digests
    from hgld.tables.embeddings import read_embeddings, rows_of
    from hgld.tables.provenance import write_results

    if (queue is None) != (hierarchy is None):
        raise ConfigurationError("`queue` and `hierarchy` go together; one of them is not given")
    images, embedded = read_manifest(manifest, root), read_embeddings(embeddings)
    vectors = embedded.vectors[rows_of(embedded, images.ids.tolist(), "images of the manifest")]
    found = find_label_errors(images, vectors, config)
    for errors in found:
        judged = f"{len(errors.rows):,} {'classes' if errors.level else 'images'}"
        typer.echo(f"{images.level_names[errors.level]}: {errors.n_contradicted:,} of {judged} contradicted")
    made_of = Provenance("audit labels", vars(config), input_digests(manifest=manifest, embeddings=embeddings))
    write_results(out, label_errors_table(images, found), "label_errors/1", made_of)
    typer.echo(out)
    if page is not None:
        write_label_errors_page(found, images, page, root or manifest.parent)
        typer.echo(page)
    if queue is not None and hierarchy is not None:
        n_labels, n_single = write_review_queue(found, images, vectors, hierarchy, queue, config)
        typer.echo(f"to decide again: {counted(n_labels, 'label')}, {counted(n_single, 'single landmark')}")
        typer.echo(queue)


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
    from hgld.tables import Provenance, input_digests
    from hgld.tables.provenance import write_results

    result = audit_annotators(files, config, clusters=clusters, taxonomy=taxonomy)
    typer.echo(format_annotators(result))
    inputs = input_digests(decisions=files, clusters=clusters, taxonomy=taxonomy)
    write_results(out, result.to_arrow(), "disputed_labels/1", Provenance("audit annotators", vars(config), inputs))
    typer.echo(out)


def format_duplicates(found: Duplicates) -> str:
    """Format the numbers of groups and pairs of copies."""
    from hgld.io.columns import preview

    n_images, n_left_out = int((found.groups >= 0).sum()), int(found.left_out.sum())
    return lines(
        f"{len(found.manifest):,} images, {n_images:,} of them in {counted(found.n_groups, 'group')} of copies",
        f"{counted(len(found.pairs), 'pair')}: {found.same_pixels.sum():,} of the same pixels, "
        f"{found.across_splits.sum():,} across splits, {found.across_labels.sum():,} across labels",
        f"to leave out: {counted(n_left_out, 'image')}",
        len(found.unreadable) > 0
        and f"{counted(len(found.unreadable), 'image')} could not be read: {preview([*found.unreadable])}",
    )


def format_recall(shares: Mapping[str, float]) -> str:
    """Format the share of altered copies that would be found."""
    rows = [[name, f"{100 * share:.0f}%"] for name, share in shares.items()]
    return "\n".join(aligned(["altered copies", "found"], rows))


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
