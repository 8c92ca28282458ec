"""Format the output of ``hgld export``, ``import-sheet``, ``decisions``, ``agreement`` and ``adjudicate``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from hgld.cli.render import aligned
from hgld.errors import counted, indented_list
from hgld.review.adjudication import AdjudicateSummary, OpenLabel, opinion_text
from hgld.review.agreement import Agreement, Disagreement, Estimate, GroupAgreement, SubsetAgreement
from hgld.review.decision_export import DecisionsSummary
from hgld.review.merged_taxonomy import GroupConflict
from hgld.review.sheets.export import ExportSummary
from hgld.review.sheets.import_sheet import ImportSummary
from hgld.review.sheets.worksheets import SET_ASIDE

#: Number of disagreements that are printed.
_MAX_DISAGREEMENTS = 30


def format_export(summary: ExportSummary) -> str:
    """Return counts, the files written, and what happened to earlier entries."""
    labels, landmarks = counted(summary.labels, "label"), counted(summary.landmarks, "landmark")
    lines = [f"{labels} of {landmarks} in {counted(summary.clusters, 'cluster')}"]
    lines += [f"  {path} and {path.with_suffix('.csv').name}" for path in summary.workbooks]
    if summary.kept:
        lines.append(f"entries of {counted(summary.kept, 'label')} kept")
    if summary.set_aside:
        labels = counted(summary.set_aside, "label")
        lines.append(f'entries of {labels} that no longer exist: see the sheet "{SET_ASIDE}"')
    return "\n".join(lines)


def format_import(summary: ImportSummary) -> str:
    """Return counts of the decisions in a sheet, of changes to the output, and the problems of skipped rows."""
    decided = summary.decided
    lines = [
        f"{sum(decided.values()):,} of {counted(summary.labels, 'label')} decided "
        f"({summary.decided_landmarks:,} of {counted(summary.landmarks, 'landmark')}): {decided['group']:,} into "
        f"{counted(summary.groups, 'group')}, {decided['drop']:,} dropped, {decided['unsure']:,} unsure",
        f"  {summary.new:,} new, {summary.changed:,} changed, {summary.withdrawn:,} withdrawn",
    ]
    if summary.kept:
        lines.append(f"  {counted(summary.kept, 'earlier decision')} kept, whose rows are missing or were skipped")
    if summary.problems:
        lines.append(f"  rows skipped because of {counted(len(summary.problems), 'problem')}:")
        lines.append(indented_list(summary.problems, limit=len(summary.problems)))
    return "\n".join(lines)


def format_decisions(summary: DecisionsSummary) -> str:
    """Return the number of decisions, and where changed groups and clusters were written."""
    lines = [f"{counted(summary.decisions, 'label')} decided by {summary.annotator}"]
    if summary.taxonomy:
        lines.append(f"groups were proposed or renamed: see {summary.taxonomy}")
    if summary.clusters:
        lines.append(f"clusters with these changes: {summary.clusters}")
    return "\n".join(lines)


def format_adjudicate(summary: AdjudicateSummary) -> str:
    """Return counts of agreed, settled and open labels, of changes to the output, and the open labels."""
    agreed = counted(summary.agreed, "label")
    lines = [f"{agreed} agreed, {summary.settled:,} settled, {len(summary.still_open):,} open"]
    if summary.kept or summary.changed or summary.withdrawn:
        lines.append(
            f"  earlier decisions in the output: {summary.kept:,} kept on labels that neither annotator decided, "
            f"{summary.changed:,} changed, {summary.withdrawn:,} withdrawn"
        )
    if summary.taxonomy:
        lines.append(f"groups were proposed or renamed: see {summary.taxonomy}")
    lines += _group_conflicts(summary.group_conflicts)
    if summary.still_open:
        labels = [_open_label(label, summary) for label in summary.still_open]
        lines += ["open:", indented_list(labels, limit=len(labels))]
    return "\n".join(lines)


def _group_conflicts(conflicts: Sequence[GroupConflict]) -> list[str]:
    """Return the groups that annotators name differently; no lines if there are none."""
    if not conflicts:
        return []
    return ["groups to settle:", indented_list([f"{conflict.name}: {conflict.problem}" for conflict in conflicts])]


def _open_label(label: OpenLabel, summary: AdjudicateSummary) -> str:
    decisions = zip(summary.annotators, (label.first, label.second), strict=True)
    opinions = ", ".join(opinion_text(annotator, row, summary.group_names) for annotator, row in decisions)
    return f"{label.label} ({label.label_id})  {opinions}"


def format_agreement(agreement: Agreement) -> str:
    """Return tables of the coefficients and the groups, and the first disagreements."""
    title = f"{counted(agreement.labels, 'label')} decided by two or more annotators"
    if agreement.single:
        title += f", {agreement.single:,} by one only"
    tables = [*_all_coefficients(agreement), "", *_groups(agreement.groups), "", *_disagreements(agreement)]
    return "\n".join([title, "", *tables, *_group_conflicts(agreement.group_conflicts)])


def _all_coefficients(agreement: Agreement) -> list[str]:
    """Return the coefficients on all labels, and apart on those decided blind and the others if there are both."""
    config = agreement.config
    lines = _coefficients(agreement)
    blind, others = agreement.blind, agreement.not_blind
    if blind and others:
        lines += ["", f"{counted(blind.labels, 'label')} decided blind, without suggestions", *_coefficients(blind)]
        lines += ["", f"the other {counted(others.labels, 'label')}", *_coefficients(others)]
    elif blind:
        lines.append("all labels were decided blind, without suggestions")
    if agreement.mixed:
        labels = counted(agreement.mixed, "label")
        lines.append(f"warning: {labels} decided blind by one annotator and with suggestions by another")
    resamples = counted(config.n_resamples, "resample")
    return [*lines, f"({config.confidence:.0%} intervals from {resamples} of the labels)"]


def _coefficients(agreement: Agreement | SubsetAgreement) -> list[str]:
    columns = [agreement.by_label] + ([agreement.by_landmark] if agreement.by_landmark else [])
    header = ("", "by label", "by landmark")[: len(columns) + 1]
    rows = []
    for pairs in zip(*(measures.pairs for measures in columns), strict=True):
        names = f"{pairs[0].first}, {pairs[0].second}"
        undefined = "both used one category" if pairs[0].labels else "no label in common"
        rows.append((f"raw agreement ({names})", *(_interval(pair.raw, undefined) for pair in pairs)))
        rows.append((f"Cohen's kappa ({names})", *(_interval(pair.kappa, undefined) for pair in pairs)))
    alphas = (_interval(measures.alpha, "all used one category") for measures in columns)
    return aligned(header, [*rows, ("Krippendorff's alpha", *alphas)])


def _interval(estimate: Estimate, undefined: str) -> str:
    """Return an estimate with its interval, or why it is undefined."""
    if isnan(estimate.value):
        return f"undefined ({undefined})"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _groups(groups: tuple[GroupAgreement, ...]) -> list[str]:
    with_landmarks = any(group.specific_by_landmark is not None for group in groups)
    header = ["group", "both", "one only", "agreement"] + ["by landmark"] * with_landmarks
    rows = []
    for group in groups:
        shares = [share for share in (group.specific, group.specific_by_landmark) if share is not None]
        rows.append([group.category, group.both, group.only_one, *(f"{share:.3f}" for share in shares)])
    return aligned(header, rows)


def _disagreements(agreement: Agreement) -> list[str]:
    if not agreement.disagreements:
        return ["no disagreements"]
    order = "most landmarks first" if agreement.by_landmark else "by label"
    lines = indented_list([_disagreement(row) for row in agreement.disagreements], limit=_MAX_DISAGREEMENTS)
    return [f"{counted(len(agreement.disagreements), 'disagreement')}, {order}:", lines]


def _disagreement(row: Disagreement) -> str:
    opinions = ", ".join(f"{annotator}: {category}" for annotator, category in row.opinions.items())
    comments = "".join(f"; {annotator} says: {comment}" for annotator, comment in row.comments.items())
    landmarks = "" if row.landmarks is None else f"{row.landmarks:>7,}  "
    return f"{landmarks}{row.label} ({row.label_id})  {opinions}{comments}"
