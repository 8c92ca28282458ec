"""Format the output of ``hgld build``, ``why``, ``compare``, ``stats`` and ``complete``."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from hgld.cli.render import aligned
from hgld.errors import indented_list
from hgld.hierarchy.build import format_counts

if TYPE_CHECKING:
    from hgld.completion.complete import CompleteSummary
    from hgld.completion.quality import CompletionQuality
    from hgld.hierarchy.build import BuildSummary, CompletedCounts
    from hgld.hierarchy.changes import Explanation, LandmarkChange
    from hgld.hierarchy.compare import Comparison
    from hgld.hierarchy.stats import HierarchyStats, Imbalance
    from hgld.hierarchy.why import Trace

_MOST_FLOWS = 20
_MOST_LABELS = 5
_MOST_MISSES = 5
_TRACE_WIDTH = 110


def format_build(summary: BuildSummary) -> str:
    """Return the landmarks read and kept, by root, and the labels of those excluded."""
    n_groups, built = (sum(numbers) for numbers in zip(*summary.per_root.values(), strict=True))
    lines = [f"{built:,} of {summary.landmarks:,} landmarks kept, in {n_groups} groups"]
    lines += [
        f"  {root}: {count:,} landmarks in {groups} groups" for root, (groups, count) in summary.per_root.items()
    ]
    if summary.level_sizes:
        lines.append(f"  names of the extra levels, finest first: {', '.join(map(str, summary.level_sizes))}")
    if summary.several:
        lines.append(f"  {summary.several.restored:,} had been removed for having several labels")
        lines.append(f"  {summary.several.with_several:,} are in several groups")
        lines += _landmarks_by_label("undecided further labels", summary.several.undecided)
    if summary.completed:
        lines += _completed_lines(summary.completed)
    lines += _landmarks_by_label("excluded, label dropped", summary.dropped)
    lines += _landmarks_by_label("excluded, label undecided", summary.undecided)
    return "\n".join(lines)


def _completed_lines(counts: CompletedCounts) -> list[str]:
    lines = [f"  {counts.landmarks:,} take their group from photographs, as no label of theirs has one"]
    if counts.landmarks:
        lines[0] += f"; {counts.mean_score:.1%} of these are expected to be right"
    if counts.already_labelled:
        lines.append(f"  {counts.already_labelled:,} proposals not used, as a label has a group by now")
    return lines


def _landmarks_by_label(title: str, labels: Mapping[str, int]) -> list[str]:
    head = f"{title}: {sum(labels.values()):,} landmarks, {len(labels):,} labels"
    return [head, indented_list(format_counts(labels), limit=_MOST_LABELS)] if labels else [head]


def format_traces(traces: Sequence[Trace]) -> str:
    """Return the stages that landmarks went through, one per line."""
    return "\n\n".join(map(_format_trace, traces))


def _format_trace(trace: Trace) -> str:
    lines = [f"{trace.split} {trace.landmark_id}"]
    width = max(len(name) for name, _ in trace.steps)
    for name, text in trace.steps:
        first, *others = textwrap.wrap(text, _TRACE_WIDTH - width, break_long_words=False, break_on_hyphens=False)
        lines += [f"  {name:<{width}}  {first}", *(f"  {'':<{width}}  {other}" for other in others)]
    return "\n".join(lines)


def format_comparison(comparison: Comparison) -> str:
    """Return the counts by split, the agreement by level and the largest flows between groups."""
    columns = ["split", "before", "after", "added", "lost", "moved", "other root"]
    lines = [
        f"before: {comparison.before}",
        f"after:  {comparison.after}",
        *aligned(columns, [list(asdict(change).values()) for change in comparison.splits]),
    ]
    if comparison.identical:
        lines.append("identical: the same landmarks in the same groups")
    if comparison.agreement:
        columns = ["", "ARI", "AMI", "V", "homogeneity", "completeness", "purity after", "purity before"]
        rows = [[level, *asdict(agreement).values()] for level, agreement in comparison.agreement.items()]
        lines += [f"agreement over {comparison.common:,} landmarks in both", *aligned(columns, rows)]
    if comparison.flows:
        moved, shown = sum(flow.landmarks for flow in comparison.flows), comparison.flows[:_MOST_FLOWS]
        rows = [[flow.landmarks, flow.source, flow.target, "renamed" * flow.renamed] for flow in shown]
        lines += [
            f"{moved:,} landmarks moved, in {len(comparison.flows):,} flows between groups",
            *aligned(["landmarks", "from", "to", ""], rows),
        ]
        if len(comparison.flows) > len(shown):
            lines.append(f"  … and {len(comparison.flows) - len(shown):,} smaller flows")
    if comparison.explanation is not None:
        lines += _format_explanation(comparison.explanation)
    return "\n".join(lines)


def _format_explanation(explanation: Explanation) -> list[str]:
    from hgld.hierarchy.changes import CAUSES

    lines = []
    if explanation.causes:
        columns = ["cause", "moved", "other root", "added", "lost"]
        lines += aligned(columns, [list(asdict(counts).values()) for counts in explanation.causes])
    for counts in explanation.causes:
        causes = counts.cause.split("+")
        meaning = " and ".join(CAUSES[cause] for cause in causes) + " (together, or each by itself)" * (
            len(causes) > 1
        )
        lines.append(f"{counts.cause}: {meaning}")
        lines += [_format_change(change) for change in explanation.examples if change.cause == counts.cause]
    if explanation.same_place:
        lines.append(f"{explanation.same_place:,} landmarks have another label in the same group")
    if explanation.causes:
        lines += [f"not known: {text}" for text in explanation.missing]
    return lines


def _format_change(change: LandmarkChange) -> str:
    place = " → ".join(filter(None, (change.before, change.after)))
    facts = [f"{change.change}: {place}"]
    if change.label_before or change.label_after:
        facts.append(f"label {_before_and_after(change.label_before or 'none', change.label_after or 'none')}")
    if change.item_before or change.item_after:
        items = _before_and_after(change.item_before or "no item", change.item_after or "no item")
        revisions = _before_and_after(change.revision_before or "none", change.revision_after or "none")
        facts.append(f"{items}, revision {revisions}")
    return f"  {change.split} {change.landmark_id} {'; '.join(facts)}"


def _before_and_after(before: object, after: object) -> str:
    return f"{before}" if before == after else f"{before} → {after}"


def format_stats(stats: HierarchyStats) -> str:
    """Return counts by split and root with totals, the imbalance of groups, and a table of each root's groups."""
    roots = sorted({group.root for group in stats.groups}, reverse=True)
    counts: list[list[str | int]] = []
    for quantity, by_split in (("landmarks", stats.landmarks), ("images", stats.images)):
        by_row = {split: [by_root[root] for root in roots] for split, by_root in by_split.items()}
        if len(by_row) > 1:
            by_row["all"] = [sum(column) for column in zip(*by_row.values(), strict=True)]
        counts += [[quantity, name, *row, sum(row)] for name, row in by_row.items()]
    per_root = [sum(group.root == root for group in stats.groups) for root in roots]
    counts.append(["groups", "", *per_root, len(stats.groups)])
    lines = aligned(["", "split", *roots, "all"], counts)
    for split, count in stats.from_photographs.items():
        lines.append(f"{count:,} {split} landmarks take their group from photographs, not from a label")
    if stats.images_elsewhere:
        lines.append(f"{stats.images_elsewhere:,} images are of landmarks that are not in the hierarchy")
    columns = ["over groups", "largest", "its share", "times the median", "Gini", "effective groups"]
    rows = [[quantity, *_imbalance_cells(imbalance)] for quantity, imbalance in stats.imbalance.items()]
    lines += ["", *aligned(columns, rows)]
    for root in roots:
        lines += ["", *_group_table(stats, root)]
    return "\n".join(lines)


def _imbalance_cells(imbalance: Imbalance) -> tuple[str, ...]:
    ratio = imbalance.ratio_to_median
    return (
        imbalance.largest,
        f"{imbalance.largest_share:.2%}",
        "–" if ratio is None else f"{ratio:.1f}",
        f"{imbalance.gini:.3f}",
        f"{imbalance.effective_groups:.1f}",
    )


def _group_table(stats: HierarchyStats, root: str) -> list[str]:
    columns = [root, "landmarks", "share"] + ["images", "share"] * bool(stats.images)
    all_landmarks = sum(sum(by_root.values()) for by_root in stats.landmarks.values())
    all_images = sum(sum(by_root.values()) for by_root in stats.images.values())
    rows = []
    for group in stats.groups:
        if group.root == root:
            row = [group.group, group.landmarks, f"{group.landmarks / all_landmarks:.2%}"]
            if group.images is not None:
                row += [group.images, f"{group.images / max(all_images, 1):.2%}"]
            rows.append(row)
    return aligned(columns, rows)


def format_complete(summary: CompleteSummary) -> str:
    """Return the numbers of landmarks and proposals, and the accuracy on labelled landmarks."""
    without = summary.landmarks - summary.proposed
    above = ", ".join(f"{count:,} of {score:g}" for score, count in summary.above.items())
    return "\n".join(
        [
            f"{summary.proposed:,} of {summary.landmarks:,} landmarks without a group have a proposal, from "
            f"{summary.photographs:,} photographs; {without:,} have no photographs",
            f"  with a score of at least: {above}",
            f"scores calibrated on {summary.calibrated_on:,} of {summary.labelled:,} labelled landmarks with "
            f"photographs, {summary.accuracy:.1%} of which find their group without their own photographs",
        ]
    )


def format_completion_quality(quality: CompletionQuality) -> str:
    """Return a table of coverage and accuracy by score, the calibration error and the most frequent mistakes."""
    from hgld.completion.quality import N_FOLDS

    n = len(quality.score)
    lines = [
        f"{n:,} labelled landmarks with photographs, a {N_FOLDS}th of them hidden at a time",
        *format_accepted(quality),
    ]
    if quality.misses:
        misses = (f"{proposed} for {hidden} ({count:,})" for hidden, proposed, count in quality.misses[:_MOST_MISSES])
        lines.append(f"most frequent mistakes: {', '.join(misses)}")
    return "\n".join(lines)


def format_accepted(quality: CompletionQuality) -> list[str]:
    """Return a table of coverage and accuracy by score, and the calibration error."""
    from hgld.completion.quality import THRESHOLDS

    rows = []
    for accepted in map(quality.accepted, THRESHOLDS):
        cells = [f"{accepted.threshold:g}", f"{accepted.landmarks:,}", f"{accepted.coverage:.1%}"]
        if accepted.landmarks:
            cells += [f"{accepted.score:.1%}", _with_interval(accepted.group), _with_interval(accepted.root)]
        rows.append([*cells, *[""] * (6 - len(cells))])
    group, root = quality.baseline
    rows.append(["always the most frequent", f"{len(quality.score):,}", "100.0%", "", f"{group:.1%}", f"{root:.1%}"])
    return [
        *aligned(["score of at least", "landmarks", "coverage", "mean score", "group right", "root right"], rows),
        f"expected calibration error {quality.calibration_error():.3f}; intervals are 95 %",
    ]


def _with_interval(values: tuple[float, float, float]) -> str:
    share, low, high = values
    return f"{share:.1%} [{low:.1%}, {high:.1%}]"
