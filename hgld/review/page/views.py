"""Plain data for the templates: labels, clusters and decisions as the page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hgld.review.actions import Candidate
from hgld.review.label_lists import View
from hgld.review.labels import ReviewLabel, example_link
from hgld.review.photographs import LabelPhotographs, Photograph
from hgld.review.session import ReviewSession
from hgld.taxonomy.groups import Group

#: Number of photographs beside the card.
N_PHOTOGRAPHS = 6


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision, an opinion or a suggestion.

    Args:
        decision: One of :data:`hgld.taxonomy.decisions.DECISIONS`; None if undecided.
        group: Name of the group, or empty.
        annotator: Annotator of an opinion, or empty.
        comment: Comment, or evidence for a suggestion.
        score: Probability of a suggestion in percent, or empty.
        number: Number by which a candidate is taken; 0 if it cannot be taken.
        likely: Whether the action "accept" takes it.
        guideline: What belongs to the group; empty without one.
    """

    decision: str | None
    group: str = ""
    annotator: str = ""
    comment: str = ""
    score: str = ""
    number: int = 0
    likely: bool = True
    guideline: str = ""


@dataclass(frozen=True, slots=True)
class LabelView:
    """A row in the list of labels; equal views give equal HTML.

    Rows far from the current label are brief: they have the values without a default.

    Args:
        label_id: Id of the label.
        label: Text of the label.
        version: Version of the label.
        seen: Version and id, which a form sends back.
        decision: Present decision.
        certainties: ``sure``, ``likely`` or ``unlikely`` for each candidate that can be taken, separated by blanks.
        view: View of the list as the query of an address; empty in the list of the label's cluster.
        landmarks: Number of landmarks.
        parents: Labels of the superclasses.
        examples: Names and URLs of example categories.
        candidates: Opinions or suggestions to choose from.
        has_opinions: Whether the candidates are opinions.
        cluster: Number of the label's cluster in a list of all clusters, else None.
        cluster_name: Name of that cluster, else empty.
    """

    label_id: str
    label: str
    version: int
    seen: str
    decision: DecisionView
    certainties: str
    view: str
    landmarks: int = 0
    parents: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    candidates: tuple[DecisionView, ...] = ()
    has_opinions: bool = False
    cluster: int | None = None
    cluster_name: str = ""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """An entry in the list of clusters; ``counts`` are those of :class:`hgld.review.decided_labels.DecidedLabels`."""

    number: int
    name: str
    counts: Counter[str]
    version: int


def label_view(
    session: ReviewSession,
    label: ReviewLabel,
    groups: Mapping[str, Group],
    view: View | None = None,
    *,
    brief: bool = False,
) -> LabelView:
    """Return the row of a label in the list of a view, or its card."""
    label_id, version, candidates = label.label_id, session.version(label.label_id), session.candidates(label, groups)
    query = view.query if view is not None and view.cluster is None else ""
    row = LabelView(
        label_id,
        label.label,
        version,
        f"{version}:{label_id}",
        decision_view(session.decision_value(label_id), groups),
        " ".join(each.certainty for each in candidates),
        query,
    )
    if brief:
        return row
    cluster = session.cluster(label_id) if query else None
    return replace(
        row,
        landmarks=label.landmarks,
        parents=label.parents,
        examples=tuple(example_link(title) for title in label.examples),
        candidates=tuple(_candidate_views(candidates, label, groups)),
        has_opinions=bool(label.opinions),
        cluster=cluster,
        cluster_name="" if cluster is None else session.cluster_name(cluster),
    )


def _candidate_views(
    candidates: Iterable[Candidate], label: ReviewLabel, groups: Mapping[str, Group]
) -> list[DecisionView]:
    views = [
        DecisionView(
            candidate.decision,
            groups[candidate.group].name if candidate.group else "",
            candidate.annotator,
            candidate.reason,
            _percent(candidate.score),
            number,
            candidate.certainty != "unlikely",
            groups[candidate.group].guideline if candidate.group else "",
        )
        for number, candidate in enumerate(candidates, 1)
    ]
    if not label.opinions:
        return views
    # One column per annotator in every row, also where an annotator did not decide the label.
    by_annotator = {view.annotator: view for view in views}
    annotators = [opinion.annotator for opinion in label.opinions]
    return [by_annotator.get(annotator, DecisionView(None, annotator=annotator)) for annotator in annotators]


def _percent(score: float | None) -> str:
    """Return a probability in whole percent, from 1 to 99: nothing is certain.

    >>> _percent(0.998), _percent(0.004)
    ('99 %', '1 %')
    """
    return "" if score is None else f"{min(99, max(1, round(100 * score)))} %"


def decision_view(value: Any, groups: Mapping[str, Group]) -> DecisionView:
    """Return the value of a decision field as the page shows it."""
    if value is None:
        return DecisionView(None)
    key = value["group"]
    name = groups[key].name if key in groups else (key or "")
    return DecisionView(value["decision"], name, comment=value["comment"])


def cluster_views(session: ReviewSession) -> list[ClusterView]:
    """Return all clusters that have labels."""
    counts, names = session.counts, session.state.fields("name")
    return [
        ClusterView(
            number,
            session.cluster_name(number),
            counts.of_cluster(number),
            names[str(number)].version if str(number) in names else 0,
        )
        for number in counts.members
    ]


@dataclass(frozen=True, slots=True)
class PhotographsView:
    """Some photographs of a label, as the templates show them."""

    label_id: str = ""
    label: str = ""
    photographs: tuple[Photograph, ...] = ()
    total: int = 0
    landmarks: int = 0
    next_start: int | None = None


def photographs_view(
    photographs: LabelPhotographs, session: ReviewSession, label_id: str, start: int = 0, count: int = N_PHOTOGRAPHS
) -> PhotographsView:
    """Return ``count`` photographs of a label from number ``start`` on."""
    total, landmarks = photographs.count(label_id)
    items = photographs.of_label(label_id, start, start + count)
    end = start + len(items)
    text = session.labels[label_id].label
    return PhotographsView(label_id, text, tuple(items), total, landmarks, end if items and end < total else None)
