"""Decisions of several annotators on the same labels, and checks that writing decisions loses none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from hgld.errors import ConfigurationError, InputError, counted, indented_list
from hgld.io.columns import preview
from hgld.review.labels import Opinion, ReviewLabel
from hgld.review.merged_taxonomy import MergedTaxonomy, changed_groups, merge_taxonomies
from hgld.review.state import current_decisions, current_groups
from hgld.review.store import read_store
from hgld.taxonomy.decisions import DROP, MACHINE, Decision, read_decisions
from hgld.taxonomy.groups import Group

UNSURE = "(unsure)"


@dataclass(frozen=True)
class Opinions:
    """All decisions of one annotator."""

    annotator: str
    decisions: Mapping[str, Decision]

    @property
    def is_machine(self) -> bool:
        """Whether the annotator is a model."""
        return self.annotator.startswith(MACHINE)


def read_opinions(
    paths: Sequence[Path],
    taxonomy: Sequence[Group],
    *,
    settled: Sequence[Group] = (),
    preferred: str | None = None,
    may_be_unseen: bool = False,
) -> tuple[list[Opinions], MergedTaxonomy]:
    """Read decisions of several annotators; a model has the name in its file.

    Args:
        paths: Two or more files: CSV, named after the annotator, with the taxonomy beside it if the annotator changed
            groups; or event stores (``.sqlite``).

    Returns:
        Decisions of each annotator, which refer to groups by key, and the groups of all annotators.
    """
    stores = {path: read_store(path) for path in paths if is_store(path)}
    names = [stores[path][0] if path in stores else path.stem for path in paths]
    if len(names) < 2:
        raise ConfigurationError("agreement needs the decisions of two annotators; give two or more files")
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f'two files are called "{name}", after an annotator; rename one')
    groups_by_annotator = {
        name: list(current_groups(stores[path][1], taxonomy).values()) if path in stores else changed_groups(path)
        for name, path in zip(names, paths, strict=True)
    }
    merged = merge_taxonomies(taxonomy, groups_by_annotator, settled=settled, preferred=preferred)
    opinions = []
    for name, path in zip(names, paths, strict=True):
        if path in stores:
            rows = current_decisions(stores[path][1], taxonomy)
            if unknown := {row.group for row in rows if row.group} - merged.keys:
                raise InputError(
                    f"{path}: the taxonomy has no group {preview(sorted(unknown))}; give it as `taxonomy`"
                )
        else:
            rows = read_decisions(path, merged.keys, may_be_unseen=may_be_unseen)
        models = {row.annotator for row in rows if row.unseen}
        annotator = models.pop() if len(models) == 1 else name
        opinions.append(Opinions(annotator, {row.label_id: row for row in merged.with_survivors(rows)}))
    return opinions, merged


def is_store(path: Path) -> bool:
    """Return whether a file is called like an event store, and not like a table of decisions."""
    return path.suffix == ".sqlite"


def category(decision: Decision) -> str:
    """Return the category of a decision: the key of its group, ``DROP`` or ``UNSURE``; a guess does not count."""
    if decision.decision == "group":
        assert decision.group is not None
        return decision.group
    return DROP if decision.decision == "drop" else UNSURE


def landmarks_by_label(clusters: pa.Table) -> dict[str, int]:
    """Return the number of landmarks of each label in a ``clusters`` table, both splits together, by label_id."""
    columns = (clusters[name].to_pylist() for name in ("label_id", "landmarks_train", "landmarks_index"))
    return {label_id: train + index for label_id, train, index in zip(*columns, strict=True)}


def require_landmark_counts(
    label_ids: Sequence[str], opinions: Sequence[Opinions], landmarks: Mapping[str, int]
) -> None:
    """Check that the number of landmarks of every label is known."""
    labels = {key: row.label for annotator in opinions for key, row in annotator.decisions.items()}
    unknown = [f'{label_id} ("{labels[label_id]}")' for label_id in label_ids if label_id not in landmarks]
    if unknown:
        raise InputError(
            f"the table of clusters lacks {counted(len(unknown), 'label')}, whose landmarks cannot be counted:\n"
            f"{indented_list(unknown)}\ngive the table that the sheets were made from"
        )


def require_nothing_lost(out: Path, lost: Sequence[Decision]) -> None:
    """Check that writing ``out`` loses no decision."""
    if lost:
        annotators = ", ".join(sorted({row.annotator for row in lost}))
        raise ConfigurationError(
            f"{out}: holds decisions by {annotators}, which would be lost ({len(lost):,} of its labels, such as "
            f'"{lost[0].label}"); write to another file, or replace them with `force`'
        )


def made_by_others(decision: Decision, annotators: Collection[str]) -> bool:
    """Return whether somebody who is not among ``annotators`` signed the decision."""
    return not set(decision.annotator.split("+")) <= set(annotators)


def with_opinions(
    labels: Iterable[ReviewLabel], opinions: Sequence[Opinions], label_ids: Collection[str]
) -> list[ReviewLabel]:
    """Return the labels among ``label_ids``, each with the decisions of all annotators in the order given."""
    return [
        replace(
            label,
            opinions=tuple(
                Opinion(annotator.annotator, annotator.decisions.get(label.label_id)) for annotator in opinions
            ),
        )
        for label in labels
        if label.label_id in label_ids
    ]
