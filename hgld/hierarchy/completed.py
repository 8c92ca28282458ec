"""Landmarks that take their group from photographs: the proposals of ``hgld complete`` from a score on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from hgld import tables
from hgld.errors import InputError


class Proposal(NamedTuple):
    """A group proposed for a landmark, and the probability that it is right."""

    split: str
    landmark_id: int
    category: str
    group: str
    score: float


def read_proposals(path: Path, above: float, groups: Collection[str]) -> list[Proposal]:
    """Read the proposals of at least a score from a table ``completed``, in the order of the table.

    Args:
        path: Table from ``hgld complete``.
        above: Lowest score of a proposal that is taken.
        groups: Names of the groups of the taxonomy.

    Raises:
        InputError: The table cannot be read, or a group is not in the taxonomy.
    """
    table = tables.read_table(path, tables.COMPLETED)
    # Scores are float32, and 0.8 in the table is meant to reach a threshold of 0.8.
    reached = pc.greater_equal(table["score"], pc.cast(above, table["score"].type))
    columns = table.filter(reached).select(Proposal._fields)
    proposals = [
        Proposal(*values) for values in zip(*(column.to_pylist() for column in columns.columns), strict=True)
    ]
    if unknown := sorted({proposal.group for proposal in proposals} - {*groups}):
        from hgld.io.columns import preview

        raise InputError(
            f"{path}: proposes groups that the taxonomy does not have: {preview(unknown)}; run hgld complete again "
            "with a hierarchy of this taxonomy"
        )
    return proposals
