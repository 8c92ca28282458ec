"""Plain data for the templates: labels, clusters, decisions, the history and the progress as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from hgld.errors import counted
from hgld.review.group_tree import GroupTree, text_above
from hgld.review.label_lists import View
from hgld.review.labels import Candidate, ReviewLabel, example_link
from hgld.review.photographs import LabelPhotographs
from hgld.review.session import ReviewSession, candidates_digest, is_folded
from hgld.review.state import Event
from hgld.taxonomy.groups import Group

#: Number of photographs beside the card.
N_PHOTOGRAPHS = 6


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision, an opinion or a suggestion; missing texts are empty.

    Args:
        decision: One of :data:`hgld.taxonomy.decisions.DECISIONS`; None if undecided.
        above: Names above the group, see :meth:`hgld.review.group_tree.GroupTree.above`.
        number: Number of a candidate, for the action that takes it; 0 for other views.
        likely: Whether the action "accept" takes the candidate.
        folded: Whether the card folds the candidate away, see :func:`hgld.review.session.is_folded`.
    """

    decision: str | None
    group: str = ""
    annotator: str = ""
    comment: str = ""
    score: str = ""
    number: int = 0
    likely: bool = True
    guideline: str = ""
    above: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """An entry of the list from which annotators choose a group.

    Args:
        choice: Value of the form, see :attr:`hgld.review.group_tree.Place.choice`.
        above: Names above the entry; empty if the entry has an icon.
        icon: Name of the icon, natural or human-made; empty without an icon.
        is_inner: Whether groups are below the entry.
    """

    choice: str
    name: str
    above: str
    icon: str
    guideline: str
    is_inner: bool


class SeenLabel(NamedTuple):
    """A label as a page showed it: its version, and the digest of its candidates, empty without candidates."""

    version: int
    candidates: str = ""

    def field(self, label_id: str) -> str:
        """Return the value of a field of a form, ``version:label_id`` or ``version.digest:label_id``."""
        version = f"{self.version}.{self.candidates}" if self.candidates else str(self.version)
        return f"{version}:{label_id}"


def label_view(
    session: ReviewSession,
    label: ReviewLabel,
    tree: GroupTree,
    view: View | None = None,
) -> dict[str, Any]:
    """Return the row of a label in the list of a view, or its card.

    ``seen`` identifies the label in forms, see :class:`SeenLabel`. ``certainties`` has ``sure``, ``likely``,
    ``unlikely`` or ``folded`` for each candidate, separated by blanks. ``view`` is the list as the query of an
    address; in the list of the label's cluster, ``view`` is empty and ``cluster`` is None.
    """
    label_id = label.label_id
    version = session.version(label_id)
    candidates = session.candidates(label, tree.groups)
    query = ""
    cluster = None
    cluster_name = ""
    if view is not None and view.cluster is None:
        query = view.query
        cluster = session.cluster(label_id)
        cluster_name = session.cluster_name(cluster)
    certainties = []
    for number, candidate in enumerate(candidates, 1):
        certainties.append("folded" if is_folded(candidates, number) else candidate.certainty)
    return {
        "label_id": label_id,
        "label": label.label,
        "version": version,
        "seen": SeenLabel(version, candidates_digest(candidates)).field(label_id),
        "decision": decision_view(session.decision_value(label_id), tree),
        "certainties": " ".join(certainties),
        "view": query,
        "landmarks": label.landmarks,
        "parents": label.parents,
        "examples": [example_link(title) for title in label.examples],
        "candidates": _candidate_views(candidates, label, tree),
        "has_opinions": bool(label.opinions),
        "cluster": cluster,
        "cluster_name": cluster_name,
    }


def _candidate_views(
    candidates: Sequence[Candidate], label: ReviewLabel, tree: GroupTree
) -> list[DecisionView]:
    views = []
    for number, candidate in enumerate(candidates, 1):
        view = DecisionView(
            candidate.decision,
            annotator=candidate.annotator,
            comment=candidate.reason,
            score=_percent(candidate.score),
            number=number,
            likely=candidate.certainty != "unlikely",
            folded=is_folded(candidates, number),
        )
        if candidate.group:
            group = tree.groups[candidate.group]
            view = replace(
                view, group=group.name, guideline=group.guideline, above=tree.above(group.key)
            )
        views.append(view)
    if not label.opinions:
        return views
    # One column per annotator in every row, also where an annotator did not decide the label.
    by_annotator = {view.annotator: view for view in views}
    columns = []
    for opinion in label.opinions:
        undecided = DecisionView(None, annotator=opinion.annotator)
        columns.append(by_annotator.get(opinion.annotator, undecided))
    return columns


def _percent(score: float | None) -> str:
    """Return a probability in whole percent, from 1 to 99: nothing is certain.

    >>> _percent(0.998), _percent(0.004)
    ('99 %', '1 %')
    """
    if score is None:
        return ""
    percent = min(99, max(1, round(100 * score)))
    return f"{percent} %"


def decision_view(value: Any, tree: GroupTree) -> DecisionView:
    """Return the value of a decision field as the page shows it."""
    if value is None:
        return DecisionView(None)
    key = value["group"] or ""
    name = _group_name(key, tree.groups)
    return DecisionView(value["decision"], name, comment=value["comment"], above=tree.above(key))


def group_choices(tree: GroupTree, search: str) -> list[GroupChoice]:
    """Return the places for labels whose name, path or guideline contains a text."""
    wanted = search.casefold().strip()
    choices = []
    for place in tree.places():
        above = "" if tree.has_icons else text_above(place.path, is_inner=place.is_inner)
        icon, guideline = "", ""
        if place.key is not None:
            group = tree.groups[place.key]
            guideline = group.guideline
            icon = group.root if tree.has_icons else ""
        if wanted in "\n".join([place.name, above, guideline]).casefold():
            choices.append(
                GroupChoice(place.choice, place.name, above, icon, guideline, place.is_inner)
            )
    return choices


def cluster_views(session: ReviewSession) -> list[dict[str, Any]]:
    """Return the clusters with labels: number, name, version of the name, and counts of DecidedLabels."""
    clusters = []
    for number in session.counts.members:
        cluster = {
            "number": number,
            "name": session.cluster_name(number),
            "counts": session.counts.counts[number],
            "version": session.state.field("name", str(number)).version,
        }
        clusters.append(cluster)
    return clusters


def photographs_view(
    photographs: LabelPhotographs,
    session: ReviewSession,
    label_id: str,
    start: int = 0,
    count: int = N_PHOTOGRAPHS,
) -> dict[str, Any]:
    """Return photographs of a label from number ``start``, and its numbers of photographs and landmarks."""
    total, landmarks = photographs.count(label_id)
    items = photographs.of_label(label_id, start, start + count)
    end = start + len(items)
    return {
        "label_id": label_id,
        "label": session.labels[label_id].label if label_id else "",
        "photographs": items,
        "total": total,
        "landmarks": landmarks,
        "next_start": end if items and end < total else None,
    }


def history(session: ReviewSession, limit: int) -> list[dict[str, Any]]:
    """Return the last steps, newest first."""
    state = session.state
    entries = []
    for step in islice(reversed(state.steps), limit):
        entry = {
            "step": step,
            "at": state.steps[step][0].at,
            "text": describe_step(session, step),
            "can_undo": state.can_undo(step),
        }
        entries.append(entry)
    return entries


def describe_step(session: ReviewSession, step: int) -> str:
    """Return a description of a step."""
    original, in_effect = session.state.original(step)
    if original != step:
        verb = "redone" if in_effect else "undone"
        return f"{verb}: {describe_step(session, original)}"
    events = session.state.steps[step]
    first = events[0]
    if first.kind == "decision":
        return f"{_label_names(session, events)}: {_decisions(session, events)}"
    if first.kind == "group":
        return _describe_group(session, first)
    moved = [event for event in events if event.kind == "cluster"]
    if not moved:
        return f"cluster {first.key} renamed to {first.new['name']}"
    return f"{_label_names(session, moved)}: moved to cluster {moved[0].new['cluster']}"


def sentence(text: str) -> str:
    """Return a description with a capital letter and a full stop.

    >>> sentence("undone: lake: drop")
    'Undone: lake: drop.'
    """
    return f"{text[:1].upper()}{text[1:]}."


def _describe_group(session: ReviewSession, event: Event) -> str:
    original = {group.key: group.name for group in session.taxonomy}
    old_name = (event.old or {}).get("name") or original.get(event.key)
    if "merged_into" in event.new:
        old_name = old_name or event.key
        into = _group_name(event.new["merged_into"], session.groups())
        return f"group {old_name} merged into {into}"
    if old_name is None:
        return f"group {event.new['name']} added"
    return f"group {old_name} renamed to {event.new['name']}"


def _label_names(session: ReviewSession, events: Sequence[Event]) -> str:
    """Return the label of the first event, and the number of other labels."""
    key = events[0].key
    name = session.labels[key].label if key in session.labels else key
    if len(events) == 1:
        return name
    return f"{name} and {len(events) - 1:,} more"


def _decisions(session: ReviewSession, events: Sequence[Event]) -> str:
    groups = session.groups()
    texts = {_describe_decision(session.with_present_group(event.new), groups) for event in events}
    if len(texts) == 1:
        return texts.pop()
    return f"{len(texts)} different decisions"


def _describe_decision(value: Any, groups: Mapping[str, Group]) -> str:
    """Describe the value of a decision field."""
    if value is None:
        return "undecided"
    if value["decision"] is None:
        return "comment" if value["comment"] else "undecided"
    decision = str(value["decision"])
    if value["group"] is None:
        return decision
    name = _group_name(value["group"], groups)
    if decision == "group":
        return name
    return f"{decision}, perhaps {name}"


def _group_name(key: str, groups: Mapping[str, Group]) -> str:
    """Return the name of a group, or its key if the group no longer exists."""
    return groups[key].name if key in groups else key


def open_work(session: ReviewSession) -> str:
    """Return the numbers of unsure labels and of groups to settle, in words."""
    parts = []
    unsure = session.counts.counts[None]["unsure"]
    if unsure:
        parts.append(counted(unsure, "unsure label"))
    groups = session.groups_to_settle()
    if groups:
        parts.append(f"{counted(len(groups), 'group')} to settle")
    return ", ".join(parts)
