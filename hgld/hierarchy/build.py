"""The stage ``build``: from labels and the decisions on them to the hierarchy of landmarks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from hgld import tables
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.official import write_official
from hgld.hierarchy.subclass_levels import p279_levels
from hgld.labels.class_graph import read_class_labels, read_superclasses
from hgld.labels.clean import instance_of_values, read_scraped
from hgld.labels.label_choice import InstanceOf, IrrelevantLabels, read_irrelevant_labels, relevant_values
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Decision, DecisionIndex, read_decisions
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.label_identity import label_id

_EXTRA_LEVELS = re.compile(r"p279:([1-9][0-9]?)")


@dataclass(frozen=True)
class BuildConfig:
    """What is built.

    Args:
        allow_undecided: leave out landmarks whose label is undecided, instead of refusing.
        extra_levels: how many levels to put between group and root (:mod:`hgld.hierarchy.subclass_levels`).
        multi: keep every group of a landmark with several labels, and take landmarks back in that were removed
            for having several.
    """

    allow_undecided: bool = False
    extra_levels: int = 0
    multi: bool = False

    def __post_init__(self) -> None:
        if self.extra_levels < 0:
            raise ConfigurationError(f"extra-levels is {self.extra_levels}; expected 0 or more")


def parse_extra_levels(text: str) -> int:
    """The number in ``p279:2``.

    >>> parse_extra_levels("p279:2")
    2
    """
    found = _EXTRA_LEVELS.fullmatch(text)
    if not found:
        raise ConfigurationError(f'extra-levels is "{text}"; expected p279 and a number of levels, such as p279:2')
    return int(found[1])


class Candidate(NamedTuple):
    """A landmark with its labels, the one that cleaning chose first; ``cleaned`` says whether it chose one."""

    split: str
    landmark_id: int
    category: str
    values: Sequence[InstanceOf]
    cleaned: bool


class _Row(NamedTuple):
    """A landmark of the hierarchy: its label, and its groups, of which the first is that label's."""

    candidate: Candidate
    label: str
    groups: Sequence[str]


@dataclass(frozen=True)
class Several:
    """What came of landmarks with several labels.

    Args:
        with_several: landmarks with several groups.
        back_in: landmarks that cleaning had removed for having several labels.
        undecided: landmarks by label that is undecided, while another label of theirs has a group.
    """

    with_several: int
    back_in: int
    undecided: Mapping[str, int]


@dataclass(frozen=True)
class BuildSummary:
    """What became of the landmarks.

    Args:
        landmarks: how many came in, from the clean table.
        per_root: groups and landmarks by root.
        dropped: landmarks by dropped label, most first.
        undecided: landmarks by undecided label and what was said of it, most first.
        level_sizes: how many names each extra level has, finest first.
        several: what came of several labels; None unless asked for.
    """

    landmarks: int
    per_root: Mapping[str, tuple[int, int]]
    dropped: Mapping[str, int]
    undecided: Mapping[str, int]
    level_sizes: Sequence[int] = ()
    several: Several | None = None


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
    force: bool = False,
) -> BuildSummary | None:
    """Write the table ``hierarchy``, sorted by its key; the same inputs give the same bytes.

    Args:
        clean: the ``clean`` table.
        out: the table to write.
        config: what is built.
        decisions: the decisions on labels; by default ``annotations/decisions/final.csv``.
        taxonomy: the groups; by default ``annotations/taxonomy.csv``.
        csv: a folder for the official CSV files, one per split that occurs. They are written whenever they
            are asked for, also if ``out`` is up to date.
        classes: tables of classes, for extra levels; by default ``*.classes.parquet`` beside ``clean``.
        scraped: scraped tables, for several labels; by default ``scraped*.parquet`` beside ``clean``.
        irrelevant: labels that say nothing, for several labels; by default ``annotations/irrelevant_labels.csv``.
        force: do the work although ``out`` is up to date.

    Returns:
        What became of the landmarks, or None if ``out`` was up to date.

    Raises:
        InputError: a file is not what it should be, labels are undecided and may not be, or no landmark is left.
        ConfigurationError: a table that the work needs is neither named nor where it is looked for, or one is
            named that it does not need.
    """
    config = config or BuildConfig()
    decisions = decisions or annotation_file("decisions/final.csv")
    taxonomy = taxonomy or annotation_file("taxonomy.csv")
    beside = sorted(clean.parent.glob("*.classes.parquet"))
    classes = _needed("--extra-levels", bool(config.extra_levels), "--classes", classes, beside, clean)
    scraped = _needed("--multi", config.multi, "--scraped", scraped, tables.scraped_beside(clean), clean)
    irrelevant = (irrelevant or annotation_file("irrelevant_labels.csv")) if config.multi else None
    for path in filter(None, (clean, decisions, taxonomy, irrelevant, *classes, *scraped)):
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    inputs = {"clean": clean, "decisions": decisions, "taxonomy": taxonomy, "irrelevant": irrelevant}
    provenance = tables.Provenance(
        "build",
        {"allow_undecided": config.allow_undecided, "extra_levels": config.extra_levels, "multi": config.multi},
        tables.digests(**inputs, classes=classes, scraped=scraped),
    )
    if not force and tables.is_up_to_date(out, provenance):
        if csv is not None:
            write_official(csv, tables.read_table(out, tables.HIERARCHY))
        return None

    groups = read_taxonomy(taxonomy)
    index = DecisionIndex(read_decisions(decisions, {group.name for group in groups}))
    candidates: Iterable[Candidate] = _cleaned(tables.read_table(clean, tables.CLEAN))
    if irrelevant is not None:
        candidates = with_all_labels(candidates, read_scraped(scraped), read_irrelevant_labels(irrelevant))
    hierarchy, summary = build(
        candidates, index, groups, config, parents=read_superclasses(classes), class_labels=read_class_labels(classes)
    )
    table = hierarchy.to_arrow()
    if csv is not None:
        write_official(csv, table)
    tables.write_table(out, tables.HIERARCHY, table, provenance)
    return summary


def build(
    candidates: Iterable[Candidate],
    decisions: DecisionIndex,
    groups: Sequence[Group],
    config: BuildConfig,
    *,
    parents: Mapping[str, Sequence[str]] | None = None,
    class_labels: Mapping[str, str] | None = None,
) -> tuple[Hierarchy, BuildSummary]:
    """Give every landmark the group of its first label that has one.

    A landmark without such a label is left out: as undecided where a label of it is, else as dropped. One that
    cleaning had removed is not counted then: it was out before.

    Args:
        candidates: the landmarks.
        decisions: finds the decision on a label.
        groups: the taxonomy.
        config: what is built.
        parents: P279 by class item, for extra levels.
        class_labels: labels by class item, for extra levels.

    Raises:
        InputError: labels are undecided and may not be, or no landmark is left.
    """
    decision_on: dict[InstanceOf, Decision | None] = {}
    dropped: Counter[str] = Counter()
    undecided: Counter[str] = Counter()
    further: Counter[str] = Counter()
    rows: list[_Row] = []
    landmarks = 0
    for candidate in candidates:
        landmarks += candidate.cleaned
        for value in candidate.values:
            if value not in decision_on:
                decision_on[value] = decisions.find(_id_of(value), value.label)
        grouped = [(value, group) for value in candidate.values if (group := _group_of(decision_on[value]))]
        still_open = [_told(value, decision_on[value]) for value in candidate.values if _is_open(decision_on[value])]
        if grouped:
            rows.append(_Row(candidate, grouped[0][0].label, list(dict.fromkeys(group for _, group in grouped))))
            further.update(still_open)
        elif candidate.cleaned and still_open:
            undecided[still_open[0]] += 1
        elif candidate.cleaned:
            dropped[candidate.values[0].label] += 1
    if undecided and not config.allow_undecided:
        raise InputError(
            f"{undecided.total():,} landmarks have a label without a decision, of {len(undecided):,} labels:\n"
            f"{indented_list(counted(_most_first(undecided)))}\n"
            "decide them and build again, or give --allow-undecided to leave their landmarks out"
        )
    if not rows:
        raise InputError(f"no landmark is left: of {landmarks:,}, none has a label with a group; check the decisions")

    used = {row.groups[0] for row in rows}
    groups = [group for group in groups if group.name in used]
    levels = p279_levels(groups, parents or {}, class_labels or {}, config.extra_levels)
    hierarchy = Hierarchy.from_arrow(_table(rows, groups, levels, config))
    groups_of = Counter(group.root for group in groups)
    summary = BuildSummary(
        landmarks=landmarks,
        per_root={root: (groups_of[root], count) for root, count in hierarchy.counts(1).items()},
        dropped=_most_first(dropped),
        undecided=_most_first(undecided),
        level_sizes=[len(names) for names in hierarchy.nodes[1:-1]],
        several=Several(
            with_several=sum(len(row.groups) > 1 for row in rows),
            back_in=sum(not row.candidate.cleaned for row in rows),
            undecided=_most_first(further),
        )
        if config.multi
        else None,
    )
    return hierarchy, summary


def with_all_labels(
    cleaned: Iterable[Candidate], scraped: pa.Table, irrelevant: IrrelevantLabels
) -> Iterator[Candidate]:
    """Give landmarks all their relevant labels, and add those that have several and were removed for it.

    Args:
        cleaned: the landmarks of the clean table, with one label each, which stays the first.
        scraped: the scraped table with all labels.
        irrelevant: what says nothing of a landmark.

    Raises:
        InputError: the scraped table lacks landmarks of the clean one.
    """
    waiting = {(candidate.split, candidate.landmark_id): candidate for candidate in cleaned}
    # Cleaning has chosen one spelling for each label.
    spelled = {_id_of(value): value for candidate in waiting.values() for value in candidate.values}
    keys = (scraped[name].to_pylist() for name in ("split", "landmark_id", "category"))
    for split, number, category, found in zip(*keys, instance_of_values(scraped), strict=True):
        values = [spelled.get(_id_of(value), value) for value in relevant_values(found, irrelevant)]
        candidate = waiting.pop((split, number), None)
        if candidate is not None:
            yield candidate._replace(values=list(dict.fromkeys([*candidate.values, *values])))
        elif len(values) > 1:
            yield Candidate(split, number, category, values, cleaned=False)
    if waiting:
        first = ", ".join(f"{split} {number}" for split, number in list(waiting)[:5])
        raise InputError(
            f"{len(waiting):,} landmarks of the clean table are in no scraped table (first {first}); name the "
            "tables that it was made of with --scraped"
        )


def _cleaned(clean: pa.Table) -> Iterator[Candidate]:
    for split, number, category, label, item in zip(*(column.to_pylist() for column in clean.columns), strict=True):
        yield Candidate(split, number, category, [InstanceOf(item, label)], cleaned=True)


def _needed(
    option: str, wanted: bool, name: str, given: Sequence[Path] | None, beside: Sequence[Path], clean: Path
) -> Sequence[Path]:
    """The tables that an option needs: those given, or those beside the clean table."""
    if not wanted:
        if given:
            raise ConfigurationError(f"{name} serves {option} only")
        return ()
    if found := given or beside:
        return found
    raise ConfigurationError(f"{option} needs tables that are not beside {clean}; name them with {name}")


def _table(
    rows: Sequence[_Row], groups: Sequence[Group], levels: Mapping[str, tuple[str, ...]], config: BuildConfig
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
    return pa.table(columns)


def _id_of(value: InstanceOf) -> str:
    return label_id(value.label, value.item)


def _group_of(decision: Decision | None) -> str | None:
    return decision.group if decision is not None and decision.decision == "group" else None


def _is_open(decision: Decision | None) -> bool:
    return decision is None or decision.decision == "unsure"


def _told(value: InstanceOf, decision: Decision | None) -> str:
    """A label without a decision, and what is said of it all the same."""
    told = f"{value.label} ({_id_of(value)})"
    if decision is None:
        return told
    return f"{told}: unsure, {decision.annotator}" + (f': "{decision.comment}"' if decision.comment else "")


def _most_first(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def counted(counts: Mapping[str, int]) -> list[str]:
    """One line per name, its count before it, right-aligned."""
    width = max((len(f"{count:,}") for count in counts.values()), default=0)
    return [f"{count:>{width},}  {name}" for name, count in counts.items()]
