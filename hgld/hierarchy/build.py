"""The stage ``build``: assign landmarks to the groups decided for their labels, and write the hierarchy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from hgld import tables
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy.candidates import Candidate, cleaned_candidates, identity_of, with_all_labels
from hgld.hierarchy.completed import Proposal, read_proposals
from hgld.hierarchy.subclass_levels import subclass_levels
from hgld.labels.class_graph import read_class_labels, read_superclasses
from hgld.labels.clean import read_scraped
from hgld.labels.label_choice import InstanceOf, read_irrelevant_labels
from hgld.resources import annotation_file
from hgld.tables.column_values import LabelSource
from hgld.taxonomy.decisions import Decision, DecisionIndex, read_named_decisions
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy

if TYPE_CHECKING:
    from hgld.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class BuildConfig:
    """Settings of the hierarchy.

    Args:
        allow_undecided: Exclude landmarks whose label is undecided instead of raising an error.
        extra_levels: Number of levels between group and root (:mod:`hgld.hierarchy.subclass_levels`).
        multi: Keep all groups of landmarks with several labels, and include the landmarks that ``clean`` removed
            because they have several.
        completed_above: Lowest score of the proposals that are taken from a table ``completed``.
    """

    allow_undecided: bool = False
    extra_levels: int = 0
    multi: bool = False
    completed_above: float = 0.8

    def __post_init__(self) -> None:
        if self.extra_levels < 0:
            raise ConfigurationError(f"`extra_levels` is {self.extra_levels}; expected 0 or more")
        if not 0 <= self.completed_above <= 1:
            raise ConfigurationError(f"`completed_above` is {self.completed_above}; expected a score from 0 to 1")


@dataclass(frozen=True)
class MultiLabelCounts:
    """Landmarks with several labels.

    Args:
        with_several: Number of landmarks with several groups.
        restored: Number of landmarks that ``clean`` had removed for having several labels.
        undecided: Number of landmarks by undecided label, where another label of the landmark has a group.
    """

    with_several: int
    restored: int
    undecided: Mapping[str, int]


@dataclass(frozen=True)
class CompletedCounts:
    """Landmarks that take their group from photographs.

    Args:
        landmarks: Number of these landmarks.
        mean_score: Mean probability that their group is right; NaN if there are none.
        already_labelled: Number of further proposals, for landmarks with a label that has a group by now.
    """

    landmarks: int
    mean_score: float
    already_labelled: int


@dataclass(frozen=True)
class BuildSummary:
    """Numbers of landmarks built and excluded.

    Args:
        landmarks: Number of landmarks in the clean table.
        per_root: Numbers of groups and landmarks by root.
        dropped: Number of landmarks by dropped label, in descending order.
        undecided: Number of landmarks by undecided label (with the comment on it), in descending order.
        level_sizes: Number of names at each extra level, finest first.
        several: Landmarks with several labels; None unless these were kept.
        completed: Landmarks with a group from photographs; None unless proposals were given.
    """

    landmarks: int
    per_root: Mapping[str, tuple[int, int]]
    dropped: Mapping[str, int]
    undecided: Mapping[str, int]
    level_sizes: Sequence[int] = ()
    several: MultiLabelCounts | None = None
    completed: CompletedCounts | None = None


def build_file(
    clean: Path,
    out: Path,
    config: BuildConfig | None = None,
    *,
    decisions: Path | None = None,
    taxonomy: Path | None = None,
    csv: Path | None = None,
    classes: Sequence[Path] | None = None,
    scraped: Sequence[Path] | None = None,
    irrelevant: Path | None = None,
    completed: Path | None = None,
    force: bool = False,
) -> BuildSummary | None:
    """Write the table ``hierarchy``, sorted by its key; the same inputs give the same bytes.

    With ``completed``, the column label_source says which landmarks take their group from photographs. Their label is
    unknown, so supercategory repeats the group. The official CSV files have no column for this, and leave them out.

    Args:
        clean: ``clean`` table.
        out: Table to write.
        config: Settings of the hierarchy.
        decisions: Decisions on labels; ``annotations/decisions/final.csv`` by default.
        taxonomy: CSV file of groups; by default the one beside ``decisions`` (``final.taxonomy.csv`` beside
            ``final.csv``) if there is one, else ``annotations/taxonomy.csv``.
        csv: Folder for the official CSV files, one per split that occurs; written even if ``out`` is up to date.
        classes: ``classes`` tables for extra levels; ``*.classes.parquet`` beside ``clean`` by default.
        scraped: ``scraped`` tables for several labels; ``scraped*.parquet`` beside ``clean`` by default.
        irrelevant: Irrelevant labels, for several labels; ``annotations/irrelevant_labels.csv`` by default.
        completed: Table from ``hgld complete``; landmarks without a decided label take the groups that it proposes
            from ``config.completed_above`` on. None by default.
        force: Build even if ``out`` is up to date.

    Returns:
        The numbers of landmarks, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, labels are undecided but must not be, or no landmark is left.
        ConfigurationError: A table that the settings need is neither given nor at its default place, or a table is
            given that they do not need.
    """
    config = config or BuildConfig()
    decisions = decisions or annotation_file("decisions/final.csv")
    taxonomy = find_taxonomy(taxonomy, decisions)
    beside = sorted(clean.parent.glob("*.classes.parquet"))
    classes = _tables_for("extra_levels", bool(config.extra_levels), "classes", classes, beside, clean)
    scraped = _tables_for("multi", config.multi, "scraped", scraped, tables.find_scraped_tables(clean), clean)
    irrelevant = (irrelevant or annotation_file("irrelevant_labels.csv")) if config.multi else None
    for path in filter(None, (clean, decisions, taxonomy, irrelevant, completed, *classes, *scraped)):
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    inputs = {"clean": clean, "decisions": decisions, "taxonomy": taxonomy, "irrelevant": irrelevant}
    parameters = {
        "allow_undecided": config.allow_undecided,
        "extra_levels": config.extra_levels,
        "multi": config.multi,
        **({} if completed is None else {"completed_above": config.completed_above}),
    }
    digests = tables.input_digests(**inputs, completed=completed, classes=classes, scraped=scraped)
    provenance = tables.Provenance("build", parameters, digests)
    if not force and tables.is_up_to_date(out, provenance):
        if csv is not None:
            _write_csv(csv, tables.read_table(out, tables.HIERARCHY))
        return None

    groups = read_taxonomy(taxonomy)
    index = DecisionIndex(read_named_decisions(decisions, groups))
    candidates: Iterable[Candidate] = cleaned_candidates(tables.read_table(clean, tables.CLEAN))
    if irrelevant is not None:
        candidates = with_all_labels(candidates, read_scraped(scraped), read_irrelevant_labels(irrelevant))
    hierarchy, summary = build(
        candidates,
        index,
        groups,
        config,
        superclasses=read_superclasses(classes),
        class_labels=read_class_labels(classes),
        proposals=None
        if completed is None
        else read_proposals(completed, config.completed_above, {group.name for group in groups}),
    )
    table = hierarchy.to_arrow()
    if csv is not None:
        _write_csv(csv, table)
    tables.write_table(out, tables.HIERARCHY, table, provenance)
    return summary


def _undecided_message(undecided: Counter[str]) -> str:
    landmarks, labels = undecided.total(), len(undecided)
    counts = "1 landmark has a label" if landmarks == 1 else f"{landmarks:,} landmarks have a label"
    counts += " without a decision" + (f", {labels:,} labels in all" if labels > 1 else "")
    listed = indented_list(format_counts(_descending(undecided)))
    return f"{counts}:\n{listed}\ndecide and build again, or set `allow_undecided` to exclude these landmarks"


def _write_csv(folder: Path, table: pa.Table) -> None:
    from hgld.hierarchy.official import write_official

    write_official(folder, table)


def build(
    candidates: Iterable[Candidate],
    decisions: DecisionIndex,
    groups: Sequence[Group],
    config: BuildConfig,
    *,
    superclasses: Mapping[str, Sequence[str]] | None = None,
    class_labels: Mapping[str, str] | None = None,
    proposals: Sequence[Proposal] | None = None,
) -> tuple[Hierarchy, BuildSummary]:
    """Assign every landmark to the group of its first label that has one.

    A landmark without such a label is excluded, as undecided if any of its labels is undecided, else as dropped.
    Excluded landmarks that ``clean`` had already removed are not counted.

    Args:
        candidates: Landmarks with their labels.
        decisions: Decisions on labels, with the names of groups.
        groups: Groups of the taxonomy.
        config: Settings of the hierarchy.
        superclasses: Direct superclasses (P279) by class item, for extra levels.
        class_labels: Labels by class item, for extra levels.
        proposals: Groups of landmarks without a label that has one; None adds no column label_source.

    Raises:
        InputError: Labels are undecided but must not be, or no landmark is left.
    """
    assignment = _assign_groups(candidates, decisions)
    if assignment.undecided and not config.allow_undecided:
        raise InputError(_undecided_message(assignment.undecided))
    rows = assignment.rows
    completed = _add_proposals(rows, proposals) if proposals is not None else None
    if not rows:
        raise InputError(
            f"no landmark is left: of {assignment.landmarks:,}, none has a label with a group; check the decisions"
        )

    used = {row.groups[0] for row in rows}
    groups = [group for group in groups if group.name in used]
    levels = subclass_levels(groups, superclasses or {}, class_labels or {}, config.extra_levels)
    from hgld.hierarchy.tree import Hierarchy

    hierarchy = Hierarchy.from_arrow(
        _hierarchy_table(rows, groups, levels, config, with_source=completed is not None)
    )
    groups_per_root = Counter(group.root for group in groups)
    summary = BuildSummary(
        landmarks=assignment.landmarks,
        per_root={root: (groups_per_root[root], count) for root, count in hierarchy.counts(1).items()},
        dropped=_descending(assignment.dropped),
        undecided=_descending(assignment.undecided),
        level_sizes=[len(names) for names in hierarchy.nodes[1:-1]],
        several=MultiLabelCounts(
            with_several=sum(len(row.groups) > 1 for row in rows),
            restored=sum(not row.candidate.cleaned for row in rows if row.source == "instance_of"),
            undecided=_descending(assignment.further_undecided),
        )
        if config.multi
        else None,
        completed=completed,
    )
    return hierarchy, summary


class _Row(NamedTuple):
    """A landmark of the hierarchy with its label and its groups; the first group is that of the label."""

    candidate: Candidate
    label: str
    groups: Sequence[str]
    source: LabelSource = "instance_of"


@dataclass
class _Assignment:
    """Landmarks with a group, and counts of the labels of the others; see :class:`BuildSummary`."""

    landmarks: int = 0
    rows: list[_Row] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    further_undecided: Counter[str] = field(default_factory=Counter)


def _assign_groups(candidates: Iterable[Candidate], decisions: DecisionIndex) -> _Assignment:
    cache: dict[InstanceOf, Decision | None] = {}

    def decision_on(label: InstanceOf) -> Decision | None:
        if label not in cache:
            cache[label] = decisions.find(identity_of(label), label.label)
        return cache[label]

    assignment = _Assignment()
    for candidate in candidates:
        assignment.landmarks += candidate.cleaned
        decided = [(label, decision_on(label)) for label in candidate.labels]
        grouped = [(label, group) for label, decision in decided if (group := _group_of(decision))]
        undecided = [_describe_undecided(label, decision) for label, decision in decided if _is_undecided(decision)]
        if grouped:
            groups = list(dict.fromkeys(group for _, group in grouped))
            assignment.rows.append(_Row(candidate, grouped[0][0].label, groups))
            assignment.further_undecided.update(undecided)
        elif candidate.cleaned and undecided:
            assignment.undecided[undecided[0]] += 1
        elif candidate.cleaned:
            assignment.dropped[candidate.labels[0].label] += 1
    return assignment


def _add_proposals(rows: list[_Row], proposals: Sequence[Proposal]) -> CompletedCounts:
    """Add the landmarks that have no row yet, with the group as the label."""
    labelled = {(row.candidate.split, row.candidate.landmark_id) for row in rows}
    taken = [proposal for proposal in proposals if (proposal.split, proposal.landmark_id) not in labelled]
    for split, landmark_id, category, group, _ in taken:
        candidate = Candidate(split, landmark_id, category, (), cleaned=False)
        rows.append(_Row(candidate, group, [group], source="photographs"))
    return CompletedCounts(
        landmarks=len(taken),
        mean_score=sum(proposal.score for proposal in taken) / len(taken) if taken else float("nan"),
        already_labelled=len(proposals) - len(taken),
    )


def _group_of(decision: Decision | None) -> str | None:
    return decision.group if decision is not None and decision.decision == "group" else None


def _is_undecided(decision: Decision | None) -> bool:
    return decision is None or decision.decision == "unsure"


def _describe_undecided(label: InstanceOf, decision: Decision | None) -> str:
    """Return the label with its id and, if an annotator was unsure, who and the comment."""
    text = f"{label.label} ({identity_of(label)})"
    if decision is None:
        return text
    return f"{text}: unsure, {decision.annotator}" + (f': "{decision.comment}"' if decision.comment else "")


def _tables_for(
    setting: str, enabled: bool, name: str, given: Sequence[Path] | None, beside: Sequence[Path], clean: Path
) -> Sequence[Path]:
    """Return the tables that a setting needs: those given, else those beside the clean table."""
    if not enabled:
        if given:
            raise ConfigurationError(f"`{name}` is used only with `{setting}`")
        return ()
    if existing := given or beside:
        return existing
    raise ConfigurationError(f"`{setting}` needs tables that are not beside {clean}; name them with `{name}`")


def _hierarchy_table(
    rows: Sequence[_Row],
    groups: Sequence[Group],
    levels: Mapping[str, tuple[str, ...]],
    config: BuildConfig,
    *,
    with_source: bool,
) -> pa.Table:
    roots = {group.name: group.root for group in groups}
    columns: dict[str, list[object]] = {
        "split": [row.candidate.split for row in rows],
        "landmark_id": [row.candidate.landmark_id for row in rows],
        "category": [row.candidate.category for row in rows],
        "supercategory": [row.label for row in rows],
        "hierarchical_label": [row.groups[0] for row in rows],
        "natural_or_human_made": [roots[row.groups[0]] for row in rows],
    }
    if config.extra_levels:
        columns["extra_levels"] = [levels[row.groups[0]] for row in rows]
    if config.multi:
        columns["hierarchical_labels"] = [row.groups for row in rows]
    if with_source:
        columns["label_source"] = [row.source for row in rows]
    return pa.table(columns)


def _descending(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def format_counts(counts: Mapping[str, int]) -> list[str]:
    """Return one line per name, with its count right-aligned before it."""
    width = max((len(f"{count:,}") for count in counts.values()), default=0)
    return [f"{count:>{width},}  {name}" for name, count in counts.items()]
