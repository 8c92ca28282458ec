"""Events of a review: what an annotator did, one changed field per event.

A field holds one fact of the review. There are four kinds:

==========  ===========================  ============================================================
kind        key                          value; None stands for what the input tables say
==========  ===========================  ============================================================
decision    label_id                     {"label", "decision"?, "group"?, "comment", "blind"?}; group by its key
cluster     label_id                     {"cluster": number that the label was moved to, "table_name"}
name        number of a cluster          {"name": new name of the cluster, "table_name"}
group       key of a group               {"name", "root", "guideline"} of a renamed or proposed group, or
                                         {"merged_into": key of the group that takes its labels}
==========  ===========================  ============================================================

``blind`` is whether the annotator saw no suggestions when deciding, null if that is unknown. A decision keeps it as
long as it stays the same, as when a comment is added.

``table_name`` is the name of the cluster in the ``clusters`` table, None for a new cluster. A change counts only as
long as the table has the same name there: after clustering again, the number belongs to another cluster.

The key of a group never changes (:mod:`hgld.taxonomy.groups`). That of a proposed group is made from its first name,
so that it is the same for every annotator who proposes this name. Decisions refer to the key: when a group is renamed
or merged into another, they follow, and keep their annotator and time.

All events of one action, such as a decision on several labels, form a step. The log only grows: a step is undone by
another step of inverse events, each of which names the event that it undoes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

FieldKind = Literal["decision", "cluster", "name", "group"]


@dataclass(frozen=True, slots=True)
class Change:
    """A new value for a field.

    Args:
        kind: Kind of the field.
        key: Key of the field.
        new: JSON value, or None for what the input tables say.
        undoes: Id of the event that the change undoes, if any.
    """

    kind: FieldKind
    key: str
    new: Any
    undoes: int | None = None


@dataclass(frozen=True, slots=True)
class AttributedChange:
    """A change that is recorded under another annotator and time than those of the running session."""

    change: Change
    annotator: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """A recorded change.

    Args:
        id: Number of the event, counted from 1.
        step: Id of the first event of the same step.
        at: Time in UTC.
        annotator: Name of the annotator.
        kind: Kind of the field.
        key: Key of the field.
        old: Value before the change.
        new: Value after the change.
        tool: Version of hgld.
        undoes: Id of the event that this one undoes, if any.
    """

    id: int
    step: int
    at: datetime
    annotator: str
    kind: FieldKind
    key: str
    old: Any
    new: Any
    tool: str
    undoes: int | None
