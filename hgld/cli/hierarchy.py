"""Hierarchies and their releases: build, why, compare, stats, complete; release, push-dataset."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.application import FIRST_STEPS, app
from hgld.cli.options import field_options, help_panels
from hgld.cli.output import LANDMARKS, figure_formats, print_figure, print_summary, remember
from hgld.cli.render import aligned
from hgld.cli.shared_options import (
    OUT_FIGURE,
    OUT_FOLDER,
    CorrectionsOfHierarchy,
    DecisionsOfHierarchy,
    FigureFormat,
    Force,
    Json,
    TaxonomyOfHierarchy,
    out_file,
    parse_images,
    writable_file,
    writable_folder,
)
from hgld.completion.settings import CompleteConfig
from hgld.errors import ConfigurationError, counted, indented_list
from hgld.figures.style import Nouns
from hgld.hierarchy.settings import BuildConfig
from hgld.progress import TerminalProgress, byte_size

if TYPE_CHECKING:
    from hgld.completion.complete import CompleteSummary
    from hgld.completion.quality import CompletionQuality
    from hgld.hierarchy.build import BuildSummary, CompletedCounts
    from hgld.hierarchy.changes import Explanation, LandmarkChange
    from hgld.hierarchy.compare import GroupFlow, HierarchyComparison
    from hgld.hierarchy.stats import HierarchyStats, Imbalance
    from hgld.hierarchy.why import Trace
    from hgld.release.publish import ReleaseSummary


#: Largest number of roots that are columns of a table; more roots are rows.
_MOST_ROOT_COLUMNS = 6
_MOST_FLOWS = 20
_MOST_LABELS = 5
_MOST_MISSES = 5
_TRACE_WIDTH = 110


def parse_extra_levels(text: str) -> int:
    """Return the number of levels in ``p279:N``.

    Raises:
        ConfigurationError: The text has another form, or N is 0.

    >>> parse_extra_levels("p279:2")
    2
    """
    match = re.fullmatch(r"p279:([1-9][0-9]?)", text)
    if not match:
        raise ConfigurationError(
            f'`extra_levels` is "{text}"; expected p279 and a number of levels, such as p279:2'
        )
    return int(match[1])


@app.command(rich_help_panel=FIRST_STEPS)
@help_panels(
    {
        "Further levels": ["extra_levels", "levels_from", "classes"],
        "Several labels": ["multi", "scraped", "irrelevant"],
        "Groups from other sources": ["completed", "completed_above", "corrections"],
    }
)
@field_options(
    BuildConfig,
    extra_levels=typer.Option(parser=parse_extra_levels, metavar="p279:N", show_default=False),
    levels_from=typer.Option(metavar="parents[:LEVEL,...]"),
)
def build(
    *,
    clean: Path,
    out: Annotated[Path, out_file(".parquet")],
    decisions: Path | None = None,
    taxonomy: Path | None = None,
    csv: Annotated[Path | None, typer.Option(metavar="FOLDER", callback=writable_folder)] = None,
    classes: list[Path] | None = None,
    scraped: list[Path] | None = None,
    irrelevant: Path | None = None,
    completed: Path | None = None,
    corrections: Path | None = None,
    config: BuildConfig,
    force: Force = False,
) -> None:
    """Build the hierarchy of landmarks or other entities, groups and all levels above these.

    The build stops with a list of labels without a decision, unless --allow-undecided excludes their landmarks. The
    column label_source marks landmarks with a group from --completed or --corrections; the official CSV files leave
    out landmarks with a group from --completed.

    Example: hgld build clean.parquet -o hierarchy.parquet --csv official/

    Args:
        clean: Table from hgld clean.
        out: Hierarchy to write.
        decisions: CSV file of decisions on labels; not used with --levels-from. Default: the decisions of the project
            file hgld.yaml, for GLDv2 annotations/decisions/final.csv.
        taxonomy: CSV file of groups and the levels above them. Default: final.taxonomy.csv beside --decisions
            final.csv if it exists, otherwise the taxonomy of the project file, for GLDv2 annotations/taxonomy.csv.
        csv: Also write the official CSV files of H-GLDv2 to this folder, even if --out is up to date.
        classes: Tables of classes, for --extra-levels and --levels-from. Default: *.classes.parquet beside CLEAN.
        scraped: Scraped tables, for --multi. Default: scraped*.parquet beside CLEAN.
        irrelevant: CSV file of labels to exclude, for --multi. Default: the file of the project, for GLDv2
            annotations/irrelevant_labels.csv.
        completed: Table from hgld complete: groups from photographs, for landmarks without a label.
        corrections: CSV file of decisions that replace earlier decisions, on labels and on single landmarks. The
            label_id of a landmark is split/landmark_id, such as train/161. Decisions that are unsure change nothing.
    """
    from hgld.hierarchy.build import build_file
    from hgld.taxonomy.project import nouns_of

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
        corrections=corrections,
        force=force,
    )
    remember(clean, "decisions", decisions)
    remember(clean, "taxonomy", taxonomy)
    print_summary(out, summary, partial(format_build, nouns=nouns_of(clean)))


@app.command(rich_help_panel="Hierarchy")
def why(
    *,
    hierarchy: Path = Path("hierarchy.parquet"),
    landmark_id: Annotated[str, typer.Argument(metavar="ID")],
    split: str | None = None,
    decisions: DecisionsOfHierarchy = None,
    taxonomy: TaxonomyOfHierarchy = None,
    corrections: CorrectionsOfHierarchy = None,
) -> None:
    """Explain a landmark's group, or which stage excluded it and why.

    Example: hgld why 161 --hierarchy hierarchy.parquet

    Args:
        hierarchy: Hierarchy; beside it are the tables of other stages, as clean.parquet, removed.parquet,
            completed.parquet, clusters.parquet and scraped*.parquet.
        landmark_id: Id of the landmark.
        split: Split of the landmark. Default: all.
    """
    from hgld.hierarchy.why import trace_landmark

    traces = trace_landmark(
        hierarchy,
        landmark_id,
        split,
        decisions=decisions,
        taxonomy=taxonomy,
        corrections=corrections,
    )
    typer.echo("\n\n".join(map(_format_trace, traces)))


@app.command(rich_help_panel="Hierarchy")
def compare(
    *,
    before: Annotated[str, typer.Argument(metavar="A")],
    after: Annotated[str, typer.Argument(metavar="B")],
    before_tables: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    after_tables: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    changes: Annotated[
        Path | None, typer.Option(metavar="CSV", callback=writable_file(".csv"))
    ] = None,
    json: bool = False,
) -> None:
    """Compare two hierarchies: landmarks added, lost and moved, why, and the agreement of their groups.

    Landmarks are matched by split and id. Added landmarks are only in B, lost ones only in A, and moved ones in both
    but in another group. Whether Wikidata or a decision changed is found from the tables of scrape and clean and the
    decisions that a hierarchy was built from; these files are recognised by their digests, whatever their names.

    Example: hgld compare released/ hierarchy.parquet

    Args:
        before: First hierarchy: a Parquet file, an official CSV file, or a folder with these.
        after: Second hierarchy, in any of these formats.
        before_tables: Folder of the tables that A was made from. Default: the folder of A.
        after_tables: Folder of the tables that B was made from. Default: the folder of B.
        changes: CSV file to write with the landmarks added, lost or moved, their causes and revisions.
        json: Print JSON instead of tables, with all flows.
    """
    from hgld.hierarchy.compare import compare_files
    from hgld.taxonomy.project import nouns_of

    comparison = compare_files(
        before, after, before_tables=before_tables, after_tables=after_tables, changes=changes
    )
    _, entities = nouns_of(Path(after))
    typer.echo(comparison.to_json() if json else format_comparison(comparison, entities))


@app.command(rich_help_panel="Hierarchy")
def stats(
    *,
    image_landmarks: Annotated[
        list[Any] | None, typer.Option(metavar="[SPLIT=]FILE", parser=parse_images)
    ] = None,
    hierarchy: str,
    picture: Annotated[Path | None, OUT_FIGURE] = None,
    json: Json = False,
) -> None:
    """Count landmarks and images by root and group, and measure the imbalance of groups.

    Example: hgld stats hierarchy.parquet --image-landmarks train.csv -o stats.png

    Args:
        image_landmarks: Landmark of each image: GLDv2's train.csv, train_clean.csv or index_image_to_landmark.csv;
            may be repeated.
        hierarchy: Hierarchy: a Parquet file, an official CSV file, or a folder with these.
        picture: Image file X.png to write with the sizes of groups; X.tree.png and X.tree.html show sizes as areas.
    """
    from hgld.hierarchy.stats import stats_file
    from hgld.taxonomy.project import nouns_of

    counts = stats_file(hierarchy, image_landmarks=image_landmarks or (), picture=picture)
    _, entities = nouns_of(Path(hierarchy))
    typer.echo(counts.to_json() if json else format_stats(counts, entities))


@app.command(rich_help_panel="Hierarchy")
@help_panels(
    {
        "Landmarks to propose groups for": ["reasons", "removed", "clean"],
        "Proposals": ["method", "k", "encoder", "device"],
        "Calibration": ["calibration_landmarks", "seed"],
    }
)
@field_options(CompleteConfig, k="-k", reasons="--reason", encoder=typer.Option(metavar="NAME"))
def complete(
    *,
    hierarchy: Path,
    out: Annotated[Path, out_file(".parquet")],
    embeddings: Annotated[list[Path], typer.Option()],
    image_landmarks: Annotated[
        list[Any] | None, typer.Option(metavar="[SPLIT=]FILE", parser=parse_images)
    ] = None,
    config: CompleteConfig,
    removed: Path | None = None,
    clean: Path | None = None,
    evaluate: bool = False,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Propose groups for landmarks without a label, from their photographs.

    Every photograph votes for the groups of the photographs or texts nearest to it, and the landmark gets the group
    with the most votes. The score is the probability that the group is right. A proposal is never treated as a
    decision: hgld build --completed takes proposals above a score, and marks their landmarks.

    Example: hgld complete hierarchy.parquet --embeddings photos.npy --image-landmarks train.csv -o completed.parquet

    Args:
        hierarchy: Hierarchy from hgld build.
        out: Table of proposals to write.
        embeddings: Embeddings of photographs, such as from hgld embed-images; may be repeated.
        image_landmarks: Landmark of each photograph: GLDv2's train.csv or index_image_to_landmark.csv; may be
            repeated. Default: the landmark ids in EMBEDDINGS.
        removed: Landmarks that hgld clean removed. Default: removed.parquet beside HIERARCHY.
        clean: Table from hgld clean, for --reason excluded. Default: clean.parquet beside HIERARCHY.
        evaluate: Only print and plot (.coverage.png beside the output) the accuracy of proposals for labelled
            landmarks whose group is hidden.
    """
    from hgld.completion.complete import complete_file
    from hgld.completion.inputs import find_completion_files
    from hgld.completion.quality import evaluate_completion
    from hgld.taxonomy.project import nouns_of

    files = find_completion_files(
        hierarchy, embeddings, image_landmarks or (), config.reasons, removed=removed, clean=clean
    )
    nouns = nouns_of(hierarchy)
    with figure_formats(formats), TerminalProgress("complete", "photographs") as progress:
        if evaluate:
            picture = out.with_suffix(".coverage.png")
            quality = evaluate_completion(files, picture, config, progress=progress)
            typer.echo(_format_completion_quality(quality, nouns))
            print_figure(picture)
        else:
            summary = complete_file(files, out, config, force=force, progress=progress)
            print_summary(out, summary, partial(_format_complete, nouns=nouns))


def format_build(summary: BuildSummary, nouns: Nouns = LANDMARKS) -> str:
    """Return the landmarks read and kept, by root, and the labels of excluded landmarks."""
    n_groups = sum(groups for groups, _ in summary.per_root.values())
    n_built = sum(landmarks for _, landmarks in summary.per_root.values())
    lines = [f"{n_built:,} of {summary.landmarks:,} {nouns[1]} kept, in {n_groups} groups"]
    for root, (groups, landmarks) in summary.per_root.items():
        lines.append(f"  {root}: {landmarks:,} {nouns[1]} in {groups} groups")
    if summary.level_sizes:
        sizes = ", ".join(map(str, summary.level_sizes))
        lines.append(f"  names of the extra levels, finest first: {sizes}")
    if summary.several is not None:
        lines.append(f"  {summary.several.restored:,} had been removed for having several labels")
        lines.append(f"  {summary.several.with_several:,} are in several groups")
        lines += _landmarks_by_label("undecided further labels", summary.several.undecided, nouns)
    if summary.completed is not None:
        lines += _completed_lines(summary.completed)
    corrected = summary.corrected
    if corrected is not None:
        lines.append(
            f"  corrections moved {counted(corrected.moved, *nouns)} to another group, excluded "
            f"{corrected.dropped:,} and decided {counted(corrected.labels, 'label')} again"
        )
        if corrected.unused:
            corrections = counted(corrected.unused, "correction")
            lines.append(f"  {corrections} of labels or {nouns[1]} that CLEAN lacks")
    lines += _landmarks_by_label("excluded, label dropped", summary.dropped, nouns)
    lines += _landmarks_by_label("excluded, label undecided", summary.undecided, nouns)
    return "\n".join(lines)


def _completed_lines(counts: CompletedCounts) -> list[str]:
    line = (
        f"  {counts.landmarks:,} take their group from photographs, as no label of theirs has one"
    )
    if counts.landmarks:
        line += f"; {counts.mean_score:.1%} of these are expected to be right"
    lines = [line]
    if counts.already_labelled:
        lines.append(
            f"  {counts.already_labelled:,} proposals not used, as a label has a group by now"
        )
    return lines


def _landmarks_by_label(title: str, labels: Mapping[str, int], nouns: Nouns) -> list[str]:
    from hgld.hierarchy.build import format_counts

    lines = [f"{title}: {sum(labels.values()):,} {nouns[1]}, {len(labels):,} labels"]
    if labels:
        lines.append(indented_list(format_counts(labels), limit=_MOST_LABELS))
    return lines


def _format_trace(trace: Trace) -> str:
    lines = [f"{trace.split} {trace.landmark_id}"]
    name_width = max(len(name) for name, _ in trace.steps)
    text_width = _TRACE_WIDTH - name_width
    for name, text in trace.steps:
        label = name
        text_lines = textwrap.wrap(text, text_width, break_long_words=False, break_on_hyphens=False)
        for line in text_lines or [""]:
            lines.append(f"  {label:<{name_width}}  {line}")
            label = ""
    return "\n".join(lines)


def format_comparison(comparison: HierarchyComparison, entities: str) -> str:
    """Return the counts by split, the agreement by level and the largest flows between groups.

    Args:
        comparison: The comparison.
        entities: Plural word for the entities of the hierarchies.
    """
    columns = ["split", "before", "after", "added", "lost", "moved", "other root"]
    rows = [astuple(change) for change in comparison.splits]
    lines = [f"before: {comparison.before}", f"after:  {comparison.after}"]
    lines += aligned(columns, rows)
    if comparison.identical:
        lines.append(f"identical: the same {entities} in the same groups")
    if comparison.agreement:
        lines += _agreement_lines(comparison, entities)
    if comparison.flows:
        lines += _flow_lines(comparison.flows, entities)
    if comparison.explanation is not None:
        lines += _format_explanation(comparison.explanation, entities)
    return "\n".join(lines)


def _agreement_lines(comparison: HierarchyComparison, entities: str) -> list[str]:
    columns = [
        "",
        "ARI",
        "AMI",
        "V",
        "homogeneity",
        "completeness",
        "purity after",
        "purity before",
    ]
    rows = []
    for level, agreement in comparison.agreement.items():
        rows.append((level, *astuple(agreement)))
    title = f"agreement over {comparison.common:,} {entities} in both"
    return [title, *aligned(columns, rows)]


def _flow_lines(flows: Sequence[GroupFlow], entities: str) -> list[str]:
    n_moved = sum(flow.landmarks for flow in flows)
    lines = [f"{n_moved:,} {entities} moved, in {len(flows):,} flows between groups"]
    rows = []
    for flow in flows[:_MOST_FLOWS]:
        remark = "renamed" if flow.renamed else ""
        rows.append([flow.landmarks, flow.source, flow.target, remark])
    lines += aligned([entities, "from", "to", ""], rows)
    if len(flows) > _MOST_FLOWS:
        lines.append(f"  … and {len(flows) - _MOST_FLOWS:,} smaller flows")
    return lines


def _format_explanation(explanation: Explanation, entities: str) -> list[str]:
    from hgld.hierarchy.changes import CAUSES

    lines = []
    if explanation.causes:
        columns = ["cause", "moved", "other root", "added", "lost"]
        lines += aligned(columns, [astuple(counts) for counts in explanation.causes])
    for counts in explanation.causes:
        causes = counts.cause.split("+")
        meaning = " and ".join(CAUSES[cause] for cause in causes)
        if len(causes) > 1:
            meaning += " (together, or each by itself)"
        lines.append(f"{counts.cause}: {meaning}")
        for change in explanation.examples:
            if change.cause == counts.cause:
                lines.append(_format_change(change))
    if explanation.same_place:
        lines.append(f"{explanation.same_place:,} {entities} have another label in the same group")
    if explanation.causes:
        lines += [f"not known: {text}" for text in explanation.missing]
    return lines


def _format_change(change: LandmarkChange) -> str:
    groups = " → ".join(group for group in (change.before, change.after) if group)
    facts = [f"{change.change}: {groups}"]
    if change.label_before or change.label_after:
        label = _before_and_after(change.label_before, change.label_after, "none")
        facts.append(f"label {label}")
    if change.item_before or change.item_after:
        item = _before_and_after(change.item_before, change.item_after, "no item")
        revision = _before_and_after(change.revision_before, change.revision_after, "none")
        facts.append(f"{item}, revision {revision}")
    return f"  {change.split} {change.landmark_id} {'; '.join(facts)}"


def _before_and_after(before: object, after: object, unknown: str) -> str:
    before = before or unknown
    after = after or unknown
    if before == after:
        return f"{before}"
    return f"{before} → {after}"


def format_stats(stats: HierarchyStats, entities: str) -> str:
    """Return counts by split and root, the imbalance of groups, and a table of each root's groups.

    Args:
        stats: Counts and imbalance.
        entities: Plural word for the entities of the hierarchy.
    """
    roots = sorted({group.root for group in stats.groups}, reverse=True)
    lines = _counts_by_root(stats, roots, entities)
    for split, count in stats.from_photographs.items():
        lines.append(
            f"{count:,} {split} {entities} take their group from photographs, not from a label"
        )
    if stats.images_elsewhere:
        lines.append(
            f"{stats.images_elsewhere:,} images are of {entities} that are not in the hierarchy"
        )
    columns = [
        "over groups",
        "largest",
        "its share",
        "times the median",
        "Gini",
        "effective groups",
    ]
    rows = []
    for quantity, imbalance in stats.imbalance.items():
        title = "images" if quantity == "images" else entities
        rows.append([title, *_imbalance_cells(imbalance)])
    lines += ["", *aligned(columns, rows)]
    for root in roots:
        lines += ["", *_group_table(stats, root, entities)]
    return "\n".join(lines)


def _counts_by_root(stats: HierarchyStats, roots: Sequence[str], entities: str) -> list[str]:
    """Return a table of landmarks, images and groups; many roots are rows instead of columns."""
    titles: list[tuple[str, str]] = []
    counts: list[list[int]] = []
    for quantity, counts_by_split in ((entities, stats.landmarks), ("images", stats.images)):
        totals = [0] * len(roots)
        for split, by_root in counts_by_split.items():
            row = [by_root[root] for root in roots]
            totals = [total + count for total, count in zip(totals, row, strict=True)]
            titles.append((quantity, split))
            counts.append(row)
        if len(counts_by_split) > 1:
            titles.append((quantity, "all"))
            counts.append(totals)
    groups_per_root = Counter(group.root for group in stats.groups)
    titles.append(("groups", ""))
    counts.append([groups_per_root[root] for root in roots])
    for row in counts:
        row.append(sum(row))
    if len(roots) <= _MOST_ROOT_COLUMNS:
        rows = [[*title, *row] for title, row in zip(titles, counts, strict=True)]
        return aligned(["", "split", *roots, "all"], rows)
    header = [""] + [" ".join(title).strip() for title in titles]
    return aligned(header, list(zip([*roots, "all"], *counts, strict=True)))


def _imbalance_cells(imbalance: Imbalance) -> tuple[str, ...]:
    ratio = "–"
    if imbalance.ratio_to_median is not None:
        ratio = f"{imbalance.ratio_to_median:.1f}"
    return (
        imbalance.largest,
        f"{imbalance.largest_share:.2%}",
        ratio,
        f"{imbalance.gini:.3f}",
        f"{imbalance.effective_groups:.1f}",
    )


def _group_table(stats: HierarchyStats, root: str, entities: str) -> list[str]:
    columns = [root, entities, "share"]
    if stats.images:
        columns += ["images", "share"]
    n_landmarks = sum(sum(by_root.values()) for by_root in stats.landmarks.values())
    n_images = sum(sum(by_root.values()) for by_root in stats.images.values())
    rows = []
    for group in stats.groups:
        if group.root == root:
            row = [group.group, group.landmarks, f"{group.landmarks / n_landmarks:.2%}"]
            if group.images is not None:
                row += [group.images, f"{group.images / max(n_images, 1):.2%}"]
            rows.append(row)
    return aligned(columns, rows)


def _format_complete(summary: CompleteSummary, nouns: Nouns) -> str:
    without = summary.landmarks - summary.proposed
    above = ", ".join(f"{count:,} of {score:g}" for score, count in summary.above.items())
    return "\n".join(
        [
            f"{summary.proposed:,} of {summary.landmarks:,} {nouns[1]} without a group have a proposal, from "
            f"{summary.photographs:,} photographs; {without:,} have no photographs",
            f"  with a score of at least: {above}",
            f"scores calibrated on {summary.calibrated_on:,} of {summary.labelled:,} labelled {nouns[1]} with "
            f"photographs, {summary.accuracy:.1%} of which find their group without their own photographs",
        ]
    )


def _format_completion_quality(quality: CompletionQuality, nouns: Nouns) -> str:
    from hgld.completion.quality import N_FOLDS

    n_landmarks = len(quality.score)
    lines = [
        f"{n_landmarks:,} labelled {nouns[1]} with photographs, a {N_FOLDS}th of them hidden at a time"
    ]
    lines += format_accepted(quality, nouns)
    misses = []
    for hidden, proposed, count in quality.misses[:_MOST_MISSES]:
        misses.append(f"{proposed} for {hidden} ({count:,})")
    if misses:
        lines.append(f"most frequent mistakes: {', '.join(misses)}")
    return "\n".join(lines)


def format_accepted(quality: CompletionQuality, nouns: Nouns = LANDMARKS) -> list[str]:
    """Return a table of coverage and accuracy by score, and the calibration error."""
    from hgld.completion.quality import THRESHOLDS

    columns = [
        "score of at least",
        nouns[1],
        "coverage",
        "mean score",
        "group right",
        "root right",
    ]
    rows = []
    for threshold in THRESHOLDS:
        accepted = quality.accepted(threshold)
        row = [f"{accepted.threshold:g}", f"{accepted.n_landmarks:,}", f"{accepted.coverage:.1%}"]
        if accepted.n_landmarks:
            row.append(f"{accepted.mean_score:.1%}")
            row.append(_with_interval(accepted.group_accuracy))
            row.append(_with_interval(accepted.root_accuracy))
        rows.append(row)
    group, root = quality.baseline
    n_landmarks = f"{len(quality.score):,}"
    rows.append(
        ["always the most frequent", n_landmarks, "100.0%", "", f"{group:.1%}", f"{root:.1%}"]
    )
    calibration_error = quality.calibration_error()
    note = f"expected calibration error {calibration_error:.3f}; intervals are 95 %"
    return [*aligned(columns, rows), note]


def _with_interval(values: tuple[float, float, float]) -> str:
    share, low, high = values
    return f"{share:.1%} [{low:.1%}, {high:.1%}]"


@app.command(rich_help_panel="Hierarchy")
def release(
    *,
    hierarchy: Path,
    out: Annotated[Path | None, OUT_FOLDER] = None,
    facts: Path | None = None,
    init: bool = False,
    yes: bool = False,
    with_scraped: bool = False,
    decisions: DecisionsOfHierarchy = None,
    taxonomy: TaxonomyOfHierarchy = None,
    corrections: CorrectionsOfHierarchy = None,
    models: Path | None = None,
    force: bool = False,
) -> None:
    """Write a folder to publish: Parquet, CSV, dataset card, datasheet, Croissant, checksums, licence.

    The same hierarchy, tables beside it and facts give the same bytes. An existing folder is replaced only if hgld
    release wrote everything in it.

    --init prompts for the facts, with one answer per line from a pipe. Suggested values fill the rest, and the
    documents mark them. The file that --init writes holds the further questions of the datasheet.

    Example: hgld release hierarchy.parquet --init, then hgld release hierarchy.parquet -o release/

    Args:
        hierarchy: Hierarchy from hgld build.
        out: Folder to write.
        facts: YAML file with the facts of the release, such as its version. Default: release.yaml beside HIERARCHY.
        init: Ask for the facts, write that file, and stop.
        yes: With --init, take the suggested answers without asking.
        with_scraped: Publish the tables of scraped values and of removed rows, too.
        models: results.parquet from hgld compare-models, for a table of models in the dataset card.
        force: Write the release again if it is up to date, and discard edits of its files.
    """
    from hgld.io.settings import read_settings
    from hgld.release.facts import ReleaseSettings, unanswered, write_questions
    from hgld.release.publish import write_release

    facts = facts or hierarchy.with_name("release.yaml")
    if init:
        write_questions(hierarchy, facts, unanswered if yes else ask)
        typer.echo(facts)
        return
    if out is None:
        raise ConfigurationError(
            "name the folder to write with `out`, or `init` to write the questions"
        )
    if not facts.exists():
        raise ConfigurationError(
            f"{facts}: no such file; `init` writes it, with questions to answer"
        )
    settings = read_settings(ReleaseSettings, facts, ["raw=true"] if with_scraped else [])
    summary = write_release(
        hierarchy,
        out,
        settings,
        decisions=decisions,
        taxonomy=taxonomy,
        corrections=corrections,
        models=models,
        force=force,
    )
    print_summary(out, summary, format_release)


@app.command(rich_help_panel="Hierarchy")
def push_dataset(
    *,
    folder: Path,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME")],
    private: bool = False,
    force: bool = False,
) -> None:
    """Publish a release on the Hugging Face hub, with a tag such as v1.0.0 for its version.

    datasets.load_dataset("OWNER/NAME", revision="v1.0.0") reads it. A tagged version never changes. The hub's own
    variables apply: HF_TOKEN, and HF_ENDPOINT for another server.

    Example: hgld push-dataset release/ ada/birds

    Args:
        folder: Folder from hgld release.
        repository: Repository of the Hugging Face hub to upload to; it is created if it does not exist.
        private: Create a private repository.
        force: Replace files that are not a release of hgld.
    """
    from hgld.release import publish

    summary = publish.push_dataset(folder, repository, private=private, force=force)
    if summary is None:
        typer.echo(f"{repository}: up to date")
        return
    counts = f"{counted(summary.files, 'file')}, {byte_size(summary.n_bytes)}"
    typer.echo(f"{summary.name}, {counts}, tagged {summary.tag}\n{summary.url}")


def ask(question: str, suggestion: str) -> str | None:
    """Ask on the terminal, or take the next line of a pipe; return None at its end.

    An empty answer takes the suggestion.
    """
    if sys.stdin.isatty():
        answer: str = typer.prompt(
            question, default=suggestion, show_default=bool(suggestion), err=True
        )
        return answer
    line = sys.stdin.readline()
    if not line:
        return None
    return line.strip() or suggestion


def format_release(summary: ReleaseSummary) -> str:
    """Format the counts of a release."""
    splits = ", ".join(f"{split} {count:,}" for split, count in summary.landmarks.items())
    unchecked = "Croissant not checked (pip install '.[croissant]' in a clone of hgld)"
    croissant = "valid Croissant" if summary.validated else unchecked
    return f"{splits} {summary.entities} in {summary.groups:,} groups; {summary.files} files, {croissant}"
