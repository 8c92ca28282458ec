"""Landmarks that may enter a hierarchy: with labels, or with groups from photographs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError
from hgld.io.columns import preview
from hgld.labels.clean import InstanceOf, IrrelevantLabels, instance_of_values, relevant_values
from hgld.taxonomy.label_identity import label_id


class Candidate(NamedTuple):
    """A landmark with its labels.

    Args:
        labels: Relevant labels, the one chosen by ``clean`` first.
        cleaned: Whether the landmark is in the table ``clean``; False if ``clean`` removed it.
    """

    split: str
    landmark_id: int
    category: str
    labels: Sequence[InstanceOf]
    cleaned: bool


class Proposal(NamedTuple):
    """A group proposed for a landmark from its photographs, with its probability as the score."""

    split: str
    landmark_id: int
    category: str
    group: str
    score: float


def identity_of(label: InstanceOf) -> str:
    """Return the label id, see :func:`hgld.taxonomy.label_identity.label_id`."""
    return label_id(label.label, label.item)


def cleaned_candidates(clean: pa.Table) -> list[Candidate]:
    """Return the landmarks of a ``clean`` table, with one label each."""
    candidates = []
    names = ("split", "landmark_id", "category", "supercategory", "class_item")
    columns = [clean[name].to_pylist() for name in names]
    for split, landmark_id, category, label, item in zip(*columns, strict=True):
        labels = [InstanceOf(item, label)]
        candidates.append(Candidate(split, landmark_id, category, labels, cleaned=True))
    return candidates


def with_all_labels(
    cleaned: Iterable[Candidate], scraped: pa.Table, irrelevant: IrrelevantLabels
) -> list[Candidate]:
    """Return landmarks with all their relevant labels.

    Args:
        cleaned: Landmarks of the table ``clean``.
        scraped: Scraped landmarks, including all landmarks of ``clean``.
        irrelevant: Labels to exclude.

    Returns:
        The landmarks of ``clean``, and the landmarks that ``clean`` removed because they have
        several labels.

    Raises:
        InputError: A landmark of ``clean`` was not scraped.
    """
    pending = {}
    spellings = {}  # the spelling that clean chose for each label
    for candidate in cleaned:
        pending[candidate.split, candidate.landmark_id] = candidate
        for label in candidate.labels:
            spellings[identity_of(label)] = label
    candidates = []
    columns = [scraped[name].to_pylist() for name in ("split", "landmark_id", "category")]
    rows = zip(*columns, instance_of_values(scraped), strict=True)
    for split, landmark_id, category, values in rows:
        labels = []
        for value in relevant_values(values, irrelevant):
            labels.append(spellings.get(identity_of(value), value))
        known = pending.pop((split, landmark_id), None)
        if known is not None:
            unique_labels = dict.fromkeys([*known.labels, *labels])
            candidates.append(known._replace(labels=list(unique_labels)))
        elif len(labels) > 1:
            candidates.append(Candidate(split, landmark_id, category, labels, cleaned=False))
    if pending:
        first = ", ".join(f"{split} {landmark_id}" for split, landmark_id in list(pending)[:5])
        raise InputError(
            f"{len(pending):,} rows of the clean table are in no scraped table (first {first}); "
            "give the tables that it was made from in `scraped`"
        )
    return candidates


def read_proposals(path: Path, above: float, groups: Collection[str]) -> list[Proposal]:
    """Read the proposals of a table ``completed`` in the order of the table.

    Args:
        above: Lowest score of the proposals that are returned.
        groups: Names of the groups of the taxonomy.

    Raises:
        InputError: A proposed group is not in the taxonomy.
    """
    table = tables.read_table(path, tables.COMPLETED)
    # Scores are float32: compared as float32, a score of 0.8 reaches a threshold of 0.8.
    is_reached = pc.greater_equal(table["score"], pc.cast(above, table["score"].type))
    rows = table.filter(is_reached).select(Proposal._fields).to_pylist()
    proposals = [Proposal(**row) for row in rows]
    unknown = {proposal.group for proposal in proposals}.difference(groups)
    if unknown:
        raise InputError(
            f"{path}: proposes groups that the taxonomy does not have: {preview(sorted(unknown))}; run hgld complete "
            "again with a hierarchy of this taxonomy"
        )
    return proposals
