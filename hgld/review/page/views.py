"""Plain data for the templates: labels, clusters and decisions as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hgld.review.actions import Candidate
from hgld.review.label_lists import View
from hgld.review.photographs import LabelPhotographs, Photograph
from hgld.review.review_labels import ReviewLabel
from hgld.review.session import ReviewSession
from hgld.review.sheets.rows import example_link
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

    Args:
        label_id: Id of the label.
        label: Text of the label.
        version: Version of the label.
        seen: Version and id, which a form sends back.
        landmarks: Number of landmarks.
        parents: Labels of the superclasses.
        examples: Names and URLs of example categories.
        decision: Present decision.
        candidates: Opinions or suggestions to choose from.
        certainties: ``sure``, ``likely`` or ``unlikely`` for each candidate that can be taken, separated by blanks.
        has_opinions: Whether the candidates are opinions.
        view: View of the list as the query of an address; empty in the list of the label's cluster.
        cluster: Number of the label's cluster in a list of all clusters, else None.
        cluster_name: Name of that cluster, else empty.
    """

    label_id: str
    label: str
    version: int
    seen: str
    landmarks: int
    parents: str
    examples: tuple[tuple[str, str], ...]
    decision: DecisionView
    candidates: tuple[DecisionView, ...]
    certainties: str
    has_opinions: bool
    view: str = ""
    cluster: int | None = None
    cluster_name: str = ""


@dataclass(frozen=True, slots=True)
class BriefLabelView:
    """What a row in the list of labels shows at first, far from the current label; see :class:`LabelView`."""

    label_id: str
    label: str
    version: int
    seen: str
    decision: DecisionView
    certainties: str
    view: str = ""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """An entry in the list of clusters."""

    number: int
    name: str
    labels: int
    decided: int
    settled: int
    landmarks: int
    version: int


def label_view(
    session: ReviewSession, label: ReviewLabel, groups: Mapping[str, Group], view: View | None = None
) -> LabelView:
    """Return the row of a label in the list of a view, or its card."""
    row, candidates = label.row, session.candidates(label, groups)
    cluster = session.cluster(row.label_id) if view is not None and view.cluster is None else None
    return LabelView(
        row.label_id,
        row.label,
        session.version(row.label_id),
        _seen(session, label),
        row.landmarks,
        row.parents,
        tuple(example_link(title) for title in row.examples),
        decision_view(session.decision_value(row.label_id), groups),
        tuple(_candidate_views(candidates, label, groups)),
        _certainties(candidates),
        bool(label.opinions),
        "" if cluster is None or view is None else view.query,
        cluster,
        "" if cluster is None else session.cluster_name(cluster),
    )


def brief_label_view(
    session: ReviewSession, label: ReviewLabel, groups: Mapping[str, Group], view: View
) -> BriefLabelView:
    """Return the row of a label in brief."""
    row = label.row
    value = session.decision_field(row.label_id).value
    decision = DecisionView(None) if value is None else DecisionView(value["decision"], comment=value["comment"])
    query = view.query if view.cluster is None else ""
    version, seen = session.version(row.label_id), _seen(session, label)
    certainties = _certainties(session.candidates(label, groups))
    return BriefLabelView(row.label_id, row.label, version, seen, decision, certainties, query)


def _seen(session: ReviewSession, label: ReviewLabel) -> str:
    """Return what a form sends back of a label; :func:`hgld.review.page.forms.label_versions` reads it."""
    return f"{session.version(label.row.label_id)}:{label.row.label_id}"


def _certainties(candidates: Iterable[Candidate]) -> str:
    return " ".join("sure" if each.sure else "likely" if each.likely else "unlikely" for each in candidates)


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
            candidate.likely,
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


def cluster_views(session: ReviewSession, clusters: Iterable[int]) -> list[ClusterView]:
    """Return the clusters with these numbers."""
    return [
        ClusterView(
            number,
            session.cluster_name(number),
            counts.labels,
            counts.decided,
            counts.settled,
            counts.landmarks,
            session.state.field("name", str(number)).version,
        )
        for number, counts in ((number, session.counts.of_cluster(number)) for number in clusters)
    ]


@dataclass(frozen=True, slots=True)
class PhotographsView:
    """Some photographs of a label, as the templates show them.

    Args:
        label_id: Id of the label.
        label: Text of the label.
        photographs: The photographs.
        total: Number of photographs of the label.
        landmarks: Number of landmarks that these show.
        next_start: Number of the first photograph after these; None if there are no more.
    """

    label_id: str
    label: str
    photographs: tuple[Photograph, ...]
    total: int
    landmarks: int
    next_start: int | None


def photographs_view(
    photographs: LabelPhotographs, session: ReviewSession, label_id: str, start: int = 0, count: int = N_PHOTOGRAPHS
) -> PhotographsView:
    """Return ``count`` photographs of a label from number ``start`` on."""
    counted = photographs.count(label_id)
    items = photographs.of_label(label_id, start, start + count)
    end = start + len(items)
    return PhotographsView(
        label_id,
        session.labels[label_id].row.label,
        tuple(items),
        counted.photographs,
        counted.landmarks,
        end if items and end < counted.photographs else None,
    )
