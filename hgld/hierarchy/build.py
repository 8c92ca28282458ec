"""The stage ``build``: assign landmarks to the groups decided for their labels, and write the hierarchy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy.files import write_official
from hgld.hierarchy.parents import groups_from_parents, subclass_levels
from hgld.hierarchy.settings import BuildConfig
from hgld.hierarchy.tree import GROUP, ROOT, Hierarchy
from hgld.io.columns import preview
from hgld.labels.class_tree import ClassTree, read_class_tree
from hgld.labels.clean import (
    InstanceOf,
    IrrelevantLabels,
    instance_of_values,
    read_irrelevant_labels,
    read_scraped,
    relevant_values,
)
from hgld.stage import Stage
from hgld.tables.column_values import LabelSource
from hgld.taxonomy.decisions import (
    Decision,
    DecisionIndex,
    corrected_decisions,
    landmark_key,
    read_corrections,
    read_named_decisions,
)
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy
from hgld.taxonomy.label_identity import label_id
from hgld.taxonomy.project import nouns_of, project_file_of

STAGE = Stage(
    "build",
    (tables.HIERARCHY,),
    inputs={
        "clean": tables.CLEAN,
        "completed": tables.COMPLETED,
        "classes": tables.CLASSES,
        "scraped": tables.SCRAPED,
    },
)


@dataclass(frozen=True)
class MultiLabelCounts:
    """Landmarks with several labels.

    Args:
        with_several: Number of landmarks in several groups.
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
class CorrectedCounts:
    """What the corrections changed.

    Args:
        moved: Number of landmarks that a correction put into another group than their label.
        dropped: Number of landmarks that a correction excludes.
        labels: Number of labels of the tables that a correction decides on.
        unused: Number of corrections of landmarks and labels that the tables do not have.
    """

    moved: int
    dropped: int
    labels: int
    unused: int


@dataclass(frozen=True)
class BuildSummary:
    """Numbers of landmarks built and excluded.

    Args:
        landmarks: Number of landmarks of the table ``clean``.
        per_root: Number of groups and number of landmarks built, by root.
        dropped: Number of landmarks by dropped label, in descending order.
        undecided: Number of landmarks by undecided label (with the comment on it), in descending order.
        level_sizes: Number of names at each extra level, finest first.
    """

    landmarks: int
    per_root: Mapping[str, tuple[int, int]]
    dropped: Mapping[str, int]
    undecided: Mapping[str, int]
    level_sizes: Sequence[int] = ()
    several: MultiLabelCounts | None = None
    completed: CompletedCounts | None = None
    corrected: CorrectedCounts | None = None


class Candidate(NamedTuple):
    """A landmark with its labels, the one chosen by ``clean`` first; ``cleaned`` is False if ``clean`` removed it."""

    split: str
    landmark_id: int
    category: str
    labels: Sequence[InstanceOf]
    cleaned: bool


class Proposal(NamedTuple):
    """A group proposed for a landmark, and the probability that it is right."""

    split: str
    landmark_id: int
    category: str
    group: str
    score: float


class _Paths(NamedTuple):
    """Files that a hierarchy is built from, by their roles in provenance; None or empty where there are none."""

    clean: Path
    decisions: Path | None
    taxonomy: Path | None
    irrelevant: Path | None
    completed: Path | None
    corrections: Path | None
    classes: Sequence[Path]
    scraped: Sequence[Path]


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
    corrections: Path | None = None,
    force: bool = False,
) -> BuildSummary | None:
    """Write the table ``hierarchy``, sorted by its key; the same inputs give the same bytes.

    With ``completed`` or ``corrections``, the column label_source says which landmarks take their group from
    photographs, or from a correction of the landmark itself. The label of the former is unknown, so supercategory
    repeats the group. The official CSV files have no column for this, and leave them out.

    Args:
        clean: Table from hgld clean.
        out: Hierarchy to write.
        config: Settings of the hierarchy.
        decisions: CSV file of decisions on labels. Default: that of the project (:mod:`hgld.taxonomy.project`), for
            GLDv2 annotations/decisions/final.csv; none with ``levels_from``.
        taxonomy: CSV file of groups and their roots. Default: final.taxonomy.csv beside ``decisions`` final.csv, else
            that of the project, for GLDv2 annotations/taxonomy.csv.
        csv: Also write the official CSV files of H-GLDv2 to this folder, even if ``out`` is up to date.
        classes: Tables of classes, for ``extra_levels`` and ``levels_from``. Default: ``*.classes.parquet`` beside
            ``clean``.
        scraped: Scraped tables, for ``multi``. Default: ``scraped*.parquet`` beside ``clean``.
        irrelevant: CSV file of labels to exclude, for ``multi``. Default: annotations/irrelevant_labels.csv.
        completed: Table from hgld complete: groups from photographs, for landmarks without a label. Default: none.
        corrections: CSV file of decisions that replace others, on labels and on single landmarks, whose label_id is
            split/landmark_id, such as train/161; those that are unsure change nothing. Default: none.
        force: Run although the output is up to date.

    Returns:
        The numbers of landmarks, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, labels are undecided but must not be, or no landmark is left.
        ConfigurationError: A table that the settings need is neither given nor at its default place, or a table is
            given that they do not need.
    """
    config = config or BuildConfig()
    from_parents = config.levels_from is not None
    if not from_parents:
        decisions = decisions or project_file_of("decisions", clean)
        if decisions is None:
            raise ConfigurationError(
                f"{clean}: no decisions are known for this list; give a file of hgld decisions or hgld adjudicate as "
                "`decisions`"
            )
        taxonomy = find_taxonomy(taxonomy, clean, decisions)
    elif decisions or taxonomy or corrections:
        raise ConfigurationError(
            "`levels_from` takes groups from classes; omit `decisions`, `corrections` and `taxonomy`"
        )
    if csv is not None and tables.is_neutral(clean):
        raise ConfigurationError(
            "`csv` writes the official files of H-GLDv2, which are of GLDv2's landmarks alone"
        )
    beside = tables.find_classes_tables(clean)
    setting = "levels_from" if from_parents else "extra_levels"
    classes = _tables_for(
        setting, from_parents or bool(config.extra_levels), "classes", classes, beside, clean
    )
    scraped = _tables_for(
        "multi", config.multi, "scraped", scraped, tables.find_scraped_tables(clean), clean
    )
    irrelevant = (irrelevant or project_file_of("irrelevant", clean)) if config.multi else None
    paths = _Paths(clean, decisions, taxonomy, irrelevant, completed, corrections, classes, scraped)

    def compute() -> tuple[Sequence[pa.Table], BuildSummary]:
        hierarchy, summary = _build_from(paths, config)
        return [hierarchy.to_arrow()], summary

    without_effect = {
        None if completed else "completed_above",
        None if from_parents else "levels_from",
    }
    summary = STAGE.run(
        {"out": out},
        compute,
        inputs=paths._asdict(),
        parameters={
            name: value for name, value in vars(config).items() if name not in without_effect
        },
        force=force,
    )
    if csv is not None:
        write_official(csv, tables.read_table(out, tables.HIERARCHY))
    return summary


def _tables_for(
    setting: str,
    enabled: bool,
    name: str,
    given: Sequence[Path] | None,
    beside: Sequence[Path],
    clean: Path,
) -> Sequence[Path]:
    """Return the tables that a setting needs: those given, else those beside the clean table."""
    if not enabled:
        if given:
            raise ConfigurationError(f"`{name}` is used only with `{setting}`")
        return ()
    if existing := given or beside:
        return existing
    raise ConfigurationError(
        f"`{setting}` needs tables that are not beside {clean}; name them with `{name}`"
    )


def _build_from(paths: _Paths, config: BuildConfig) -> tuple[Hierarchy, BuildSummary]:
    """Read the files of a hierarchy, and build it."""
    candidates: Iterable[Candidate] = list(
        cleaned_candidates(tables.read_table(paths.clean, tables.CLEAN))
    )
    tree = read_class_tree(paths.classes)
    groups, decisions = _groups_and_decisions(paths, candidates, tree, config)
    corrections = None if paths.corrections is None else read_corrections(paths.corrections, groups)
    if paths.irrelevant is not None:
        scraped = read_scraped(paths.scraped)
        candidates = with_all_labels(candidates, scraped, read_irrelevant_labels(paths.irrelevant))
    proposals = None
    if paths.completed is not None:
        proposals = read_proposals(
            paths.completed, config.completed_above, {group.name for group in groups}
        )
    return build(
        candidates,
        decisions,
        groups,
        config,
        corrections=corrections,
        tree=tree,
        proposals=proposals,
        neutral=tables.is_neutral(paths.clean),
        nouns=nouns_of(paths.clean),
    )


def _groups_and_decisions(
    paths: _Paths, candidates: Iterable[Candidate], tree: ClassTree, config: BuildConfig
) -> tuple[Sequence[Group], Sequence[Decision]]:
    """Return the groups of a taxonomy and the decisions on labels, or those that follow from superclasses."""
    if paths.decisions is not None and paths.taxonomy is not None:
        groups = read_taxonomy(paths.taxonomy)
        return groups, read_named_decisions(paths.decisions, groups)
    if not tree.ranks:
        raise InputError(
            f"{', '.join(map(str, paths.classes))}: no class has a rank (P105), by which levels are told apart; "
            "scrape with --parents P171, or decide on labels with hgld review"
        )
    labels = (label for candidate in candidates for label in candidate.labels)
    levels = (config.levels_from or "").partition(":")[2]
    return groups_from_parents(
        labels, tree, [level.strip() for level in levels.split(",") if level.strip()]
    )


def build(
    candidates: Iterable[Candidate],
    decisions: Sequence[Decision],
    groups: Sequence[Group],
    config: BuildConfig,
    *,
    corrections: Mapping[str, Decision] | None = None,
    tree: ClassTree | None = None,
    proposals: Sequence[Proposal] | None = None,
    neutral: bool = False,
    nouns: tuple[str, str] = ("landmark", "landmarks"),
) -> tuple[Hierarchy, BuildSummary]:
    """Assign every landmark to the group of its first label that has one.

    The levels have the names that they have in the taxonomy, if ``neutral``; else those of H-GLDv2.

    A landmark without such a label is excluded, as undecided if any of its labels is undecided, else as dropped.
    Excluded landmarks that ``clean`` had already removed are not counted. Corrections, which replace decisions on
    labels, are on a single landmark where their key is that of one (:func:`~hgld.taxonomy.decisions.landmark_key`).
    """
    candidates = list(candidates)
    corrections_of_labels = dict(corrections or {})
    keys = (landmark_key(candidate.split, candidate.landmark_id) for candidate in candidates)
    corrections_of_landmarks = {
        key: corrections_of_labels.pop(key) for key in keys if key in corrections_of_labels
    }
    index = DecisionIndex(corrected_decisions(decisions, corrections_of_labels))
    assignment = _assign_groups(candidates, index, corrections_of_landmarks)
    if assignment.undecided and not (config.allow_undecided or config.levels_from):
        raise InputError(_undecided_message(assignment.undecided, nouns))
    rows = assignment.rows
    completed = _add_proposals(rows, proposals) if proposals is not None else None
    if not rows:
        raise InputError(
            f"no landmark is left: of {assignment.landmarks:,}, none has a label with a group; check the decisions"
        )

    corrected = (
        None
        if corrections is None
        else _corrected_counts(assignment, candidates, corrections_of_labels)
    )
    used = {row.groups[0] for row in rows}
    groups = [group for group in groups if group.name in used]
    tree = tree or ClassTree({}, {})
    levels = subclass_levels(groups, tree.superclasses, tree.labels, config.extra_levels)
    with_source = completed is not None or corrected is not None
    table = _hierarchy_table(rows, groups, levels, config, with_source=with_source, neutral=neutral)
    hierarchy = Hierarchy.from_arrow(table)
    return hierarchy, _summary(assignment, hierarchy, groups, config, completed, corrected)


def _summary(
    assignment: _Assignment,
    hierarchy: Hierarchy,
    groups: Sequence[Group],
    config: BuildConfig,
    completed: CompletedCounts | None,
    corrected: CorrectedCounts | None,
) -> BuildSummary:
    groups_per_root = Counter(group.root for group in groups)
    several = None
    if config.multi:
        several = MultiLabelCounts(
            with_several=sum(len(row.groups) > 1 for row in assignment.rows),
            restored=sum(
                not row.candidate.cleaned for row in assignment.rows if row.source == "instance_of"
            ),
            undecided=_descending(assignment.further_undecided),
        )
    landmarks_per_root = hierarchy.counts(hierarchy.root_level)
    return BuildSummary(
        landmarks=assignment.landmarks,
        per_root={
            root: (groups_per_root[root], count) for root, count in landmarks_per_root.items()
        },
        dropped=_descending(assignment.dropped),
        undecided=_descending(assignment.undecided),
        level_sizes=[len(names) for names in hierarchy.nodes[1:-1]],
        several=several,
        completed=completed,
        corrected=corrected,
    )


def _corrected_counts(
    assignment: _Assignment, candidates: Iterable[Candidate], on_labels: Collection[str]
) -> CorrectedCounts:
    labels = {identity_of(label) for candidate in candidates for label in candidate.labels}
    return CorrectedCounts(
        moved=sum(row.source == "correction" for row in assignment.rows),
        dropped=assignment.excluded,
        labels=len(labels.intersection(on_labels)),
        unused=len(set(on_labels) - labels),
    )


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
    #: Number of landmarks that corrections exclude.
    excluded: int = 0


def _assign_groups(
    candidates: Iterable[Candidate], decisions: DecisionIndex, corrections: Mapping[str, Decision]
) -> _Assignment:
    @cache
    def decision_on(label: InstanceOf) -> Decision | None:
        return decisions.find(identity_of(label), label.label)

    assignment = _Assignment()
    for candidate in candidates:
        assignment.landmarks += candidate.cleaned
        decided = [(label, decision_on(label)) for label in candidate.labels]
        grouped = [
            (label, decision.group)
            for label, decision in decided
            if decision is not None and decision.decision == "group" and decision.group
        ]
        undecided = [
            _describe_undecided(label, decision)
            for label, decision in decided
            if decision is None or decision.decision == "unsure"
        ]
        correction = corrections.get(landmark_key(candidate.split, candidate.landmark_id))
        if correction is not None and correction.group is None:
            assignment.excluded += 1
        elif correction is not None and correction.group not in [group for _, group in grouped[:1]]:
            label = (grouped[0][0] if grouped else candidate.labels[0]).label
            assignment.rows.append(
                _Row(candidate, label, [str(correction.group)], source="correction")
            )
        elif grouped:
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
    taken = [
        proposal for proposal in proposals if (proposal.split, proposal.landmark_id) not in labelled
    ]
    for split, landmark_id, category, group, _ in taken:
        candidate = Candidate(split, landmark_id, category, (), cleaned=False)
        rows.append(_Row(candidate, group, [group], source="photographs"))
    return CompletedCounts(
        landmarks=len(taken),
        mean_score=sum(proposal.score for proposal in taken) / len(taken)
        if taken
        else float("nan"),
        already_labelled=len(proposals) - len(taken),
    )


def _undecided_message(undecided: Counter[str], nouns: tuple[str, str]) -> str:
    """Return the list of undecided labels; ``nouns`` are the words for one and for several things with labels."""
    landmarks, labels = undecided.total(), len(undecided)
    counts = (
        f"1 {nouns[0]} has a label" if landmarks == 1 else f"{landmarks:,} {nouns[1]} have a label"
    )
    counts += " without a decision" + (f", {labels:,} labels in all" if labels > 1 else "")
    listed = indented_list(format_counts(_descending(undecided)))
    return f"{counts}:\n{listed}\ndecide and build again, or set `allow_undecided` to exclude these {nouns[1]}"


def _describe_undecided(label: InstanceOf, decision: Decision | None) -> str:
    """Return the label with its id and, if an annotator was unsure, who and the comment."""
    text = f"{label.label} ({identity_of(label)})"
    if decision is None:
        return text
    return f"{text}: unsure, {decision.annotator}" + (
        f': "{decision.comment}"' if decision.comment else ""
    )


def _hierarchy_table(
    rows: Sequence[_Row],
    groups: Sequence[Group],
    levels: Mapping[str, tuple[str, ...]],
    config: BuildConfig,
    *,
    with_source: bool,
    neutral: bool,
) -> pa.Table:
    paths = {group.name: (group.name, *levels[group.name], *group.path[1:]) for group in groups}
    path_of_row = [paths[row.groups[0]] for row in rows]
    columns: dict[str, list[Any]] = {
        "split": [row.candidate.split for row in rows],
        "landmark_id": [row.candidate.landmark_id for row in rows],
        "category": [row.candidate.category for row in rows],
        "supercategory": [row.label for row in rows],
    }
    if neutral:
        group, *above = groups[0].levels
        names = [group, *(f"extra_level_{n}" for n in range(1, config.extra_levels + 1)), *above]
        for name, values in zip(names, zip(*path_of_row, strict=True), strict=True):
            columns[name] = list(values)
    else:
        columns[GROUP] = [path[0] for path in path_of_row]
        columns[ROOT] = [path[-1] for path in path_of_row]
        if len(groups[0].levels) > 2 or config.extra_levels:
            columns["extra_levels"] = [path[1:-1] for path in path_of_row]
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


def cleaned_candidates(clean: pa.Table) -> Iterator[Candidate]:
    """Iterate over the landmarks of a ``clean`` table, with one label each."""
    names = ("split", "landmark_id", "category", "supercategory", "class_item")
    for split, landmark_id, category, label, item in zip(
        *(clean[name].to_pylist() for name in names), strict=True
    ):
        yield Candidate(split, landmark_id, category, [InstanceOf(item, label)], cleaned=True)


def with_all_labels(
    cleaned: Iterable[Candidate], scraped: pa.Table, irrelevant: IrrelevantLabels
) -> Iterator[Candidate]:
    """Add all relevant labels of each landmark, and the landmarks that were removed for having several labels."""
    pending = {(candidate.split, candidate.landmark_id): candidate for candidate in cleaned}
    # The spelling that clean has chosen for each label.
    unified = {
        identity_of(label): label for candidate in pending.values() for label in candidate.labels
    }
    keys = (scraped[name].to_pylist() for name in ("split", "landmark_id", "category"))
    for split, landmark_id, category, values in zip(
        *keys, instance_of_values(scraped), strict=True
    ):
        labels = [
            unified.get(identity_of(value), value) for value in relevant_values(values, irrelevant)
        ]
        candidate = pending.pop((split, landmark_id), None)
        if candidate is not None:
            yield candidate._replace(labels=list(dict.fromkeys([*candidate.labels, *labels])))
        elif len(labels) > 1:
            yield Candidate(split, landmark_id, category, labels, cleaned=False)
    if pending:
        first = ", ".join(f"{split} {landmark_id}" for split, landmark_id in list(pending)[:5])
        raise InputError(
            f"{len(pending):,} landmarks of the clean table are in no scraped table (first {first}); give the "
            "tables that it was made from in `scraped`"
        )


def identity_of(label: InstanceOf) -> str:
    """Return the label id, see :func:`hgld.taxonomy.label_identity.label_id`."""
    return label_id(label.label, label.item)


def read_proposals(path: Path, above: float, groups: Collection[str]) -> list[Proposal]:
    """Read the proposals of at least a score from a table ``completed``, in the order of the table."""
    table = tables.read_table(path, tables.COMPLETED)
    # Scores are float32, and 0.8 in the table is meant to reach a threshold of 0.8.
    reached = pc.greater_equal(table["score"], pc.cast(above, table["score"].type))
    columns = table.filter(reached).select(Proposal._fields)
    proposals = [
        Proposal(*values)
        for values in zip(*(column.to_pylist() for column in columns.columns), strict=True)
    ]
    if unknown := sorted({proposal.group for proposal in proposals} - {*groups}):
        raise InputError(
            f"{path}: proposes groups that the taxonomy does not have: {preview(unknown)}; run hgld complete again "
            "with a hierarchy of this taxonomy"
        )
    return proposals
