"""The position of the annotator on the page: the view that the list shows, and a label in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from hgld.pages.requests import FormFields
from hgld.review.label_lists import LabelLists, View, parse_view
from hgld.review.labels import ReviewLabel
from hgld.review.session import ReviewSession


@dataclass(frozen=True, slots=True)
class Position:
    """A view and a label in its list; the label is empty if the list is."""

    view: View
    label: str

    @property
    def address(self) -> str:
        """The address of the page with this position."""
        return f"/?{self.view.query}&{urlencode({'label': self.label})}"


def find_position(lists: LabelLists, fields: FormFields) -> Position:
    """Return the position that a request names, or the nearest one that exists.

    A form names it by ``at_view`` and ``at_label``, whose label the page showed in this view; an address by fields
    of a view and ``label``.
    """
    session = lists.session
    was_shown = "at_view" in fields
    view = parse_view(fields["at_view"] if was_shown else fields.multi_items())
    label = fields.get("at_label") or fields.get("label", "")
    is_label = label in session.labels
    if view is not None and view.cluster is None:
        as_of = session.state.last_event if view.as_of is None else view.as_of
        view = replace(lists.offered(view), as_of=as_of)
        if is_label and was_shown:
            return Position(view, label)
        return _in_list(session, view, lists.label_ids(view), label)
    if view is not None and is_label and session.cluster(label) == view.cluster:
        return Position(view, label)
    clusters = session.clusters()
    if view is None or view.cluster not in clusters:
        view = View(session.cluster(label) if is_label else _first_unfinished(session, clusters))
    return _in_list(session, view, lists.label_ids(view), label)


def next_position(lists: LabelLists, position: Position) -> Position:
    """Return the next undecided label of the list if the present one is decided, else the same position."""
    session = lists.session
    if position.label and not session.is_decided(position.label):
        return position
    label_ids = lists.label_ids(position.view)
    index = label_ids.index(position.label) if position.label in label_ids else -1
    undecided = _first_undecided(session, label_ids[index + 1 :] + label_ids[: max(0, index)])
    return Position(position.view, undecided or position.label)


def position_of_step(lists: LabelLists, step: int, position: Position) -> Position:
    """Return where a step changed something.

    Args:
        lists: Lists of the session that the page shows.
        step: Id of the step.
        position: Present position; returned if its label was changed, or if the step changed no label or cluster.

    Returns:
        First label that was changed; if labels were only moved, the first of them that is undecided, if any. The view
        stays if it shows one of the labels, else it is the label's cluster.
    """
    session = lists.session
    events = session.state.steps[step]
    labels = [event.key for event in events if event.kind in ("decision", "cluster") and event.key in session.labels]
    if not labels:
        renamed = next((int(event.key) for event in events if event.kind == "name"), None)
        if renamed is None or renamed not in session.clusters():
            return position
        return _in_list(session, View(renamed), lists.label_ids(View(renamed)), position.label)
    in_view = set(labels).intersection(lists.label_ids(position.view))
    candidates = [label for label in labels if label in in_view] or labels
    label = position.label if position.label in candidates else candidates[0]
    if events[0].kind != "decision":
        label = _first_undecided(session, candidates) or label
    if position.view.cluster is None and label in in_view:
        return Position(position.view, label)
    return Position(View(session.cluster(label)), label)


def _in_list(session: ReviewSession, view: View, label_ids: list[str], label: str) -> Position:
    """Return the position of a label, or of the first undecided one if the list does not have it."""
    if label not in label_ids:
        label = _first_undecided(session, label_ids) or next(iter(label_ids), "")
    return Position(view, label)


def _first_unfinished(session: ReviewSession, clusters: Mapping[int, list[ReviewLabel]]) -> int:
    """Return the first cluster with an undecided label, or the first cluster if there is none."""
    for number, members in clusters.items():
        if _first_undecided(session, (label.label_id for label in members)) is not None:
            return number
    return next(iter(clusters))


def _first_undecided(session: ReviewSession, label_ids: Iterable[str]) -> str | None:
    return next((label_id for label_id in label_ids if not session.is_decided(label_id)), None)
