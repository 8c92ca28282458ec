"""The stage ``build``: assign landmarks to the groups of their labels, and write the hierarchy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from hgld import tables
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy.candidates import (
    Candidate,
    Proposal,
    cleaned_candidates,
    identity_of,
    read_proposals,
    with_all_labels,
)
from hgld.hierarchy.files import write_official
from hgld.hierarchy.parents import groups_from_parents
from hgld.hierarchy.settings import BuildConfig
from hgld.hierarchy.subclass_levels import subclass_levels
from hgld.hierarchy.tree import GROUP, ROOT, Hierarchy
from hgld.io.columns import preview
from hgld.labels.class_tree import ClassTree, read_class_tree
from hgld.labels.clean import InstanceOf, read_irrelevant_labels, read_scraped
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
    """Numbers of landmarks with several labels.

    Args:
        with_several: Number of landmarks in several groups.
        restored: Number of landmarks that ``clean`` had removed for having several labels.
        undecided: Number of landmarks by undecided label, where another label of the landmark has a
            group.
    """

    with_several: int
    restored: int
    undecided: Mapping[str, int]


@dataclass(frozen=True)
class CompletedCounts:
    """Numbers of landmarks with a group from photographs.

    Args:
        landmarks: Number of landmarks with a group from photographs.
        mean_score: Mean probability that their group is right; NaN without such landmarks.
        already_labelled: Number of unused proposals, for landmarks that have a group from a label
            by now.
    """

    landmarks: int
    mean_score: float
    already_labelled: int


@dataclass(frozen=True)
class CorrectedCounts:
    """Effect of the corrections.

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
        undecided: Number of landmarks by undecided label (with the comment on it), in descending
            order.
        level_sizes: Number of names at each extra level, finest first.
        several: Landmarks with several labels; None unless the hierarchy keeps them.
        completed: Landmarks with a group from photographs; None without a table ``completed``.
        corrected: Effect of the corrections; None without a file of corrections.
    """

    landmarks: int
    per_root: Mapping[str, tuple[int, int]]
    dropped: Mapping[str, int]
    undecided: Mapping[str, int]
    level_sizes: Sequence[int] = ()
    several: MultiLabelCounts | None = None
    completed: CompletedCounts | None = None
    corrected: CorrectedCounts | None = None


class _Paths(NamedTuple):
    """Input files of a hierarchy by their roles in provenance; None or empty if not needed."""

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

    With ``completed`` or ``corrections``, the column label_source says whether the group of a
    landmark comes from its label, from photographs, or from a correction of the landmark. A
    landmark with a group from photographs has no known label, so supercategory repeats the group.
    The official CSV files have no column for the source, and exclude these landmarks.

    Args:
        clean: Table from hgld clean.
        out: Hierarchy to write.
        config: Settings of the hierarchy.
        decisions: CSV file of decisions on labels. Default: the file of the project
            (:mod:`hgld.taxonomy.project`), for GLDv2 annotations/decisions/final.csv; none with
            ``levels_from``.
        taxonomy: CSV file of groups and their roots. Default: final.taxonomy.csv beside
            ``decisions`` final.csv, otherwise the file of the project, for GLDv2
            annotations/taxonomy.csv.
        csv: Also write the official CSV files of H-GLDv2 to this folder, even if ``out`` is up to
            date.
        classes: Tables of classes, for ``extra_levels`` and ``levels_from``. Default:
            ``*.classes.parquet`` beside ``clean``.
        scraped: Scraped tables, for ``multi``. Default: ``scraped*.parquet`` beside ``clean``.
        irrelevant: CSV file of labels to exclude, for ``multi``. Default:
            annotations/irrelevant_labels.csv.
        completed: Table from hgld complete: groups from photographs, for landmarks without a label.
            Default: none.
        corrections: CSV file of decisions that replace others, on labels and on single landmarks,
            whose label_id is split/landmark_id, such as train/161; unsure decisions change nothing.
            Default: none.
        force: Run although the output is up to date.

    Returns:
        The numbers of landmarks, or None if ``out`` was up to date.

    Raises:
        InputError: A file is missing or invalid, labels are undecided but must not be, or no
            landmark is left.
        ConfigurationError: A table that the settings need is neither given nor at its default
            place, or a table is given that they do not need.
    """
    config = config or BuildConfig()
    if csv is not None and tables.is_neutral(clean):
        raise ConfigurationError(
            "`csv` writes the official files of H-GLDv2, which are of GLDv2's landmarks alone"
        )
    given = _Paths(
        clean=clean,
        decisions=decisions,
        taxonomy=taxonomy,
        irrelevant=irrelevant,
        completed=completed,
        corrections=corrections,
        classes=classes or (),
        scraped=scraped or (),
    )
    paths = _find_inputs(given, config)

    def compute() -> tuple[Sequence[pa.Table], BuildSummary]:
        hierarchy, summary = _build_from(paths, config)
        return [hierarchy.to_arrow()], summary

    parameters = dict(vars(config))
    if completed is None:
        del parameters["completed_above"]
    if config.levels_from is None:
        del parameters["levels_from"]
    summary = STAGE.run(
        {"out": out}, compute, inputs=paths._asdict(), parameters=parameters, force=force
    )
    if csv is not None:
        write_official(csv, tables.read_table(out, tables.HIERARCHY))
    return summary


def _find_inputs(given: _Paths, config: BuildConfig) -> _Paths:
    """Return the input files that the settings need, by default from their usual places."""
    clean = given.clean
    decisions = given.decisions
    taxonomy = given.taxonomy
    if config.levels_from is None:
        decisions = decisions or project_file_of("decisions", clean)
        if decisions is None:
            raise _no_decisions_error(clean)
        taxonomy = find_taxonomy(taxonomy, clean, decisions)
    elif decisions or taxonomy or given.corrections:
        raise ConfigurationError(
            "`levels_from` takes groups from classes; omit `decisions`, `corrections` and `taxonomy`"
        )
    classes = given.classes
    if config.levels_from is not None:
        classes = _required_tables("levels_from", "classes", classes, clean)
    elif config.extra_levels:
        classes = _required_tables("extra_levels", "classes", classes, clean)
    elif classes:
        raise ConfigurationError("`classes` is used only with `extra_levels`")
    scraped = given.scraped
    irrelevant = None
    if config.multi:
        scraped = _required_tables("multi", "scraped", scraped, clean)
        irrelevant = given.irrelevant or project_file_of("irrelevant", clean)
    elif scraped:
        raise ConfigurationError("`scraped` is used only with `multi`")
    return given._replace(
        decisions=decisions,
        taxonomy=taxonomy,
        classes=classes,
        scraped=scraped,
        irrelevant=irrelevant,
    )


def _no_decisions_error(clean: Path) -> ConfigurationError:
    """Return an error that names files of decisions beside a table, or commands that write one."""
    files = []
    for path in sorted(clean.with_name("decisions").glob("*.csv")):
        if not path.name.endswith(".taxonomy.csv"):
            files.append(path)
    source = "a file of hgld import-sheet, hgld decisions or hgld adjudicate"
    if files:
        source = preview(files, 3)
    return ConfigurationError(
        f"{clean}: no decisions are known for this list; give {source} as `decisions`"
    )


def _required_tables(setting: str, name: str, given: Sequence[Path], clean: Path) -> Sequence[Path]:
    """Return the tables ``classes`` or ``scraped`` that a setting needs.

    Tables are searched for beside the clean table if they are not given.
    """
    if given:
        return given
    if name == "classes":
        found = tables.find_classes_tables(clean)
    else:
        found = tables.find_scraped_tables(clean)
    if not found:
        raise ConfigurationError(
            f"`{setting}` needs tables of hgld scrape that are not beside {clean}; name them with `{name}`"
        )
    return found


def _build_from(paths: _Paths, config: BuildConfig) -> tuple[Hierarchy, BuildSummary]:
    """Read the files of a hierarchy, and build it."""
    candidates = cleaned_candidates(tables.read_table(paths.clean, tables.CLEAN))
    tree = read_class_tree(paths.classes)
    groups, decisions = _groups_and_decisions(paths, candidates, tree, config)
    corrections = None
    if paths.corrections is not None:
        corrections = read_corrections(paths.corrections, groups)
    if paths.irrelevant is not None:
        scraped = read_scraped(paths.scraped)
        irrelevant = read_irrelevant_labels(paths.irrelevant)
        candidates = with_all_labels(candidates, scraped, irrelevant)
    proposals = None
    if paths.completed is not None:
        group_names = {group.name for group in groups}
        proposals = read_proposals(paths.completed, config.completed_above, group_names)
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
    paths: _Paths, candidates: Sequence[Candidate], tree: ClassTree, config: BuildConfig
) -> tuple[Sequence[Group], Sequence[Decision]]:
    """Return groups and decisions on labels: from files, or derived from superclasses."""
    if paths.decisions is not None and paths.taxonomy is not None:
        groups = read_taxonomy(paths.taxonomy)
        return groups, read_named_decisions(paths.decisions, groups)
    if not tree.ranks:
        raise InputError(
            f"{', '.join(map(str, paths.classes))}: no class has a rank (P105), by which levels are told apart; "
            "scrape with --parents P171, or decide on labels with hgld review"
        )
    levels = []
    for level in (config.levels_from or "").partition(":")[2].split(","):
        if level.strip():
            levels.append(level.strip())
    labels = [candidate.labels[0] for candidate in candidates]
    return groups_from_parents(labels, tree, levels)


def build(
    candidates: Sequence[Candidate],
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
    """Assign every landmark to the group of its first label that has a group.

    A landmark without such a label is excluded: as undecided if any of its labels is undecided,
    otherwise as dropped. Excluded landmarks that ``clean`` had already removed are not counted.

    Args:
        candidates: Landmarks with their labels.
        decisions: Decisions on labels.
        groups: Groups of the taxonomy.
        config: Settings of the hierarchy.
        corrections: Decisions by key that replace decisions on labels, or decide on a single
            landmark if the key is a :func:`~hgld.taxonomy.decisions.landmark_key`.
        tree: Superclasses, for extra levels.
        proposals: Groups from photographs.
        neutral: Whether levels have the names of the taxonomy, in place of the names of H-GLDv2.
        nouns: Singular and plural noun for the entities, for messages.
    """
    corrections_of_labels = dict(corrections or {})
    corrections_of_landmarks = {}
    for candidate in candidates:
        key = landmark_key(candidate.split, candidate.landmark_id)
        if key in corrections_of_labels:
            corrections_of_landmarks[key] = corrections_of_labels.pop(key)
    index = DecisionIndex(corrected_decisions(decisions, corrections_of_labels))
    assignment = _GroupAssignment(index, corrections_of_landmarks)
    for candidate in candidates:
        assignment.assign(candidate)
    if assignment.undecided and not (config.allow_undecided or config.levels_from):
        raise InputError(_undecided_message(assignment.undecided, nouns))
    completed = None
    if proposals is not None:
        completed = assignment.add_proposals(proposals)
    if not assignment.rows:
        raise InputError(
            f"no {nouns[0]} is left: of {assignment.n_landmarks:,}, none has a label with a group; "
            "check the decisions"
        )
    corrected = None
    if corrections is not None:
        corrected = assignment.corrected_counts(candidates, corrections_of_labels)
    used_names = {row.groups[0] for row in assignment.rows}
    used_groups = [group for group in groups if group.name in used_names]
    columns = _landmark_columns(assignment.rows)
    columns |= _level_columns(assignment.rows, used_groups, tree, config, neutral=neutral)
    if config.multi:
        columns["hierarchical_labels"] = [row.groups for row in assignment.rows]
    if completed is not None or corrected is not None:
        columns["label_source"] = [row.source for row in assignment.rows]
    hierarchy = Hierarchy.from_arrow(pa.table(columns))
    return hierarchy, BuildSummary(
        landmarks=assignment.n_landmarks,
        per_root=_counts_per_root(hierarchy, used_groups),
        dropped=_descending(assignment.dropped),
        undecided=_descending(assignment.undecided),
        level_sizes=[len(names) for names in hierarchy.nodes[1:-1]],
        several=assignment.multi_label_counts() if config.multi else None,
        completed=completed,
        corrected=corrected,
    )


def _counts_per_root(hierarchy: Hierarchy, groups: Sequence[Group]) -> dict[str, tuple[int, int]]:
    """Return the number of groups and the number of landmarks of each root."""
    n_groups = Counter(group.root for group in groups)
    n_landmarks = hierarchy.counts(hierarchy.root_level)
    return {root: (n_groups[root], count) for root, count in n_landmarks.items()}


class _Row(NamedTuple):
    """A landmark of the hierarchy with its label and its groups; the first group is the label's."""

    candidate: Candidate
    label: str
    groups: Sequence[str]
    source: LabelSource = "instance_of"


class _GroupAssignment:
    """Assigns landmarks to groups, and counts the labels of landmarks without a group.

    Args:
        decisions: Decisions on labels.
        corrections: Decisions on single landmarks, by landmark key.
    """

    def __init__(self, decisions: DecisionIndex, corrections: Mapping[str, Decision]) -> None:
        self._decisions = decisions
        self._corrections = corrections
        self._decision_of_label: dict[InstanceOf, Decision | None] = {}
        #: Landmarks with a group.
        self.rows: list[_Row] = []
        #: Number of landmarks that are in the table ``clean``.
        self.n_landmarks = 0
        #: Number of landmarks that corrections exclude.
        self.n_excluded = 0
        #: Number of landmarks by dropped label.
        self.dropped: Counter[str] = Counter()
        #: Number of landmarks by undecided label.
        self.undecided: Counter[str] = Counter()
        #: Number of landmarks with a group by undecided label.
        self.further_undecided: Counter[str] = Counter()

    def assign(self, candidate: Candidate) -> None:
        """Add a row for a landmark, or count it as excluded, undecided or dropped."""
        if candidate.cleaned:
            self.n_landmarks += 1
        labels_with_group = []
        groups = []
        undecided = []
        for label in candidate.labels:
            decision = self._find_decision(label)
            if decision is None or decision.decision == "unsure":
                undecided.append(_describe_undecided(label, decision))
            elif decision.decision == "group" and decision.group:
                labels_with_group.append(label.label)
                groups.append(decision.group)
        first_label = labels_with_group[0] if groups else candidate.labels[0].label
        correction = self._corrections.get(landmark_key(candidate.split, candidate.landmark_id))
        if correction is not None and correction.group is None:
            self.n_excluded += 1
        elif correction is not None and correction.group not in groups[:1]:
            corrected_groups = [str(correction.group)]
            self.rows.append(_Row(candidate, first_label, corrected_groups, source="correction"))
        elif groups:
            self.rows.append(_Row(candidate, first_label, list(dict.fromkeys(groups))))
            self.further_undecided.update(undecided)
        elif candidate.cleaned and undecided:
            self.undecided[undecided[0]] += 1
        elif candidate.cleaned:
            self.dropped[first_label] += 1

    def _find_decision(self, label: InstanceOf) -> Decision | None:
        if label not in self._decision_of_label:
            decision = self._decisions.find(identity_of(label), label.label)
            self._decision_of_label[label] = decision
        return self._decision_of_label[label]

    def add_proposals(self, proposals: Sequence[Proposal]) -> CompletedCounts:
        """Add the proposed landmarks that have no row yet, with the group as the label."""
        labelled = {(row.candidate.split, row.candidate.landmark_id) for row in self.rows}
        scores = []
        for split, landmark_id, category, group, score in proposals:
            if (split, landmark_id) not in labelled:
                candidate = Candidate(split, landmark_id, category, (), cleaned=False)
                self.rows.append(_Row(candidate, group, [group], source="photographs"))
                scores.append(score)
        return CompletedCounts(
            landmarks=len(scores),
            mean_score=sum(scores) / len(scores) if scores else float("nan"),
            already_labelled=len(proposals) - len(scores),
        )

    def corrected_counts(
        self, candidates: Sequence[Candidate], corrections: Mapping[str, Decision]
    ) -> CorrectedCounts:
        """Return the effect of the corrections.

        Args:
            candidates: All landmarks.
            corrections: Corrections of labels, and of landmarks that the tables do not have.
        """
        labels: set[str] = set()
        for candidate in candidates:
            labels.update(map(identity_of, candidate.labels))
        return CorrectedCounts(
            moved=sum(row.source == "correction" for row in self.rows),
            dropped=self.n_excluded,
            labels=len(labels & corrections.keys()),
            unused=len(corrections.keys() - labels),
        )

    def multi_label_counts(self) -> MultiLabelCounts:
        """Return the numbers of landmarks with several labels."""
        with_several = 0
        restored = 0
        for row in self.rows:
            with_several += len(row.groups) > 1
            restored += row.source == "instance_of" and not row.candidate.cleaned
        return MultiLabelCounts(with_several, restored, _descending(self.further_undecided))


def _undecided_message(undecided: Counter[str], nouns: tuple[str, str]) -> str:
    """Return a message that lists undecided labels."""
    singular, plural = nouns
    n_landmarks = undecided.total()
    if n_landmarks == 1:
        message = f"1 {singular} has a label without a decision"
    else:
        message = f"{n_landmarks:,} {plural} have a label without a decision"
    if len(undecided) > 1:
        message += f", {len(undecided):,} labels in all"
    listed = indented_list(format_counts(_descending(undecided)))
    return f"{message}:\n{listed}\ndecide and build again, or set `allow_undecided` to exclude these {plural}"


def _describe_undecided(label: InstanceOf, decision: Decision | None) -> str:
    """Return the label with its id, and annotator and comment of an unsure decision."""
    text = f"{label.label} ({identity_of(label)})"
    if decision is not None:
        text += f": unsure, {decision.annotator}"
        if decision.comment:
            text += f': "{decision.comment}"'
    return text


def _landmark_columns(rows: Sequence[_Row]) -> dict[str, list[Any]]:
    return {
        "split": [row.candidate.split for row in rows],
        "landmark_id": [row.candidate.landmark_id for row in rows],
        "category": [row.candidate.category for row in rows],
        "supercategory": [row.label for row in rows],
    }


def _level_columns(
    rows: Sequence[_Row],
    groups: Sequence[Group],
    tree: ClassTree | None,
    config: BuildConfig,
    *,
    neutral: bool,
) -> dict[str, list[Any]]:
    """Return the columns of the levels from the groups to the roots, see :func:`build`."""
    tree = tree or ClassTree({}, {})
    levels_between = subclass_levels(groups, tree.superclasses, tree.labels, config.extra_levels)
    paths = {}
    for group in groups:
        paths[group.name] = [group.name, *levels_between[group.name], *group.path[1:]]
    row_paths = [paths[row.groups[0]] for row in rows]
    columns: dict[str, list[Any]] = {}
    if neutral:
        extra_levels = [f"extra_level_{number + 1}" for number in range(config.extra_levels)]
        group_level, *coarser_levels = groups[0].levels
        for position, name in enumerate([group_level, *extra_levels, *coarser_levels]):
            columns[name] = [path[position] for path in row_paths]
        return columns
    columns[GROUP] = [path[0] for path in row_paths]
    columns[ROOT] = [path[-1] for path in row_paths]
    if len(row_paths[0]) > 2:
        columns["extra_levels"] = [path[1:-1] for path in row_paths]
    return columns


def _descending(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def format_counts(counts: Mapping[str, int]) -> list[str]:
    """Return one line per name, with its count right-aligned before it."""
    width = max((len(f"{count:,}") for count in counts.values()), default=0)
    return [f"{count:>{width},}  {name}" for name, count in counts.items()]
