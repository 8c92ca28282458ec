"""The position of the annotator on the page: a cluster, and a label in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hgld.review.page.forms import parse_number
from hgld.review.review_labels import ReviewLabel
from hgld.review.session import ReviewSession


@dataclass(frozen=True, slots=True)
class Position:
    """A cluster and a label of that cluster.

    Args:
        cluster: Number of the cluster.
        label: Id of the label.
        seen: Estimate whose suggestions the page shows for this label; None if it shows none.
    """

    cluster: int
    label: str
    seen: int | None = None


def find_position(session: ReviewSession, fields: Mapping[str, str]) -> Position:
    """Return the position that a request names, or the nearest one that exists.

    Args:
        session: Session that the page shows.
        fields: Fields of a form (``at_cluster``, ``at_label``, ``seen``) or of an address (``cluster``, ``label``).
    """
    label = fields.get("at_label") or fields.get("label", "")
    cluster = fields.get("at_cluster") or fields.get("cluster", "")
    clusters = session.clusters()
    if parse_number(cluster) in clusters:
        number = int(cluster)
    elif label in session.labels:
        number = session.cluster(label)
    else:
        number = _first_unfinished(session, clusters)
    members = [member.row.label_id for member in clusters[number]]
    if label not in members:
        return Position(number, _first_undecided(session, members) or members[0])
    return Position(number, label, parse_number(fields.get("seen", "")))


def next_position(session: ReviewSession, position: Position) -> Position:
    """Return the next undecided label of the cluster if the present one is decided, else the same position."""
    if not session.is_decided(position.label):
        return position
    members = [label.row.label_id for label in session.clusters()[position.cluster]]
    index = members.index(position.label)
    undecided = _first_undecided(session, members[index + 1 :] + members[:index])
    return Position(position.cluster, undecided or position.label)


def position_of_step(session: ReviewSession, step: int, position: Position) -> Position:
    """Return where a step changed something.

    Args:
        session: Session that the page shows.
        step: Id of the step.
        position: Present position; returned if its label was changed, or if the step changed no label or cluster.

    Returns:
        First label that was changed; if labels were only moved, the first of them that is undecided, if any.
    """
    events = session.state.steps[step]
    labels = [event.key for event in events if event.kind in ("decision", "cluster") and event.key in session.labels]
    if labels:
        moved = events[0].kind != "decision"
        label = position.label if position.label in labels else labels[0]
        if moved:
            label = _first_undecided(session, labels) or label
        return Position(session.cluster(label), label)
    renamed = next((event.key for event in events if event.kind == "name"), None)
    return position if renamed is None else find_position(session, {"cluster": renamed, "label": position.label})


def _first_unfinished(session: ReviewSession, clusters: Mapping[int, list[ReviewLabel]]) -> int:
    """Return the first cluster with an undecided label, or the first cluster if there is none."""
    for number, members in clusters.items():
        if _first_undecided(session, (label.row.label_id for label in members)) is not None:
            return number
    return next(iter(clusters))


def _first_undecided(session: ReviewSession, label_ids: Iterable[str]) -> str | None:
    return next((label_id for label_id in label_ids if not session.is_decided(label_id)), None)
