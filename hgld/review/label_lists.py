"""Lists of labels, by cluster or by filters, search and order, and positions in the lists.

A view describes a list. It is the query of an address, ``filter=undecided&order=landmarks``, so that a list can
be bookmarked and the server stores no views. A list of all clusters can show an earlier state (``as_of``): labels
in the list of undecided labels stay in the list after their decision.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args
from urllib.parse import parse_qsl, urlencode

from hgld.pages.server import FormFields, parse_number
from hgld.review.labels import ReviewLabel
from hgld.review.session import ReviewSession
from hgld.review.state import FILTERS, DecidedLabel, LabelFilter, certainty

#: ``table``: by cluster and sub-cluster; ``landmarks``: by descending landmarks; ``uncertain``: by ascending
#: certainty of the suggestion; ``settling``: by descending ``landmarks * (1 - certainty)``, the expected number of
#: landmarks with a wrong suggestion.
Order = Literal["table", "landmarks", "uncertain", "settling"]
ORDERS: tuple[Order, ...] = get_args(Order)


#: Orders that follow the scores of suggestions, which a blind review hides.
_ORDERS_BY_SUGGESTION = ("uncertain", "settling")


@dataclass(frozen=True, slots=True)
class View:
    """Description of a list of labels.

    Args:
        cluster: Number of the cluster to show, without filters; None for labels of all clusters.
        filters: Names of filters in :data:`hgld.review.state.FILTERS` that all must match.
        group: Key of the group of the labels, or of a guess; empty for any group.
        below: Exclusive upper bound of the score of the first suggestion in percent; None for no bound.
        text: Words that must occur in a label, its id, its superclasses or its examples; empty for any text.
        as_of: Id of the last event that the filters see; None for all events.
    """

    cluster: int | None = None
    filters: tuple[str, ...] = ()
    group: str = ""
    below: int | None = None
    text: str = ""
    order: Order = "table"
    as_of: int | None = None

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The fields of an address, from which :func:`parse_view` reads the view."""
        if self.cluster is not None:
            return [("cluster", str(self.cluster))]
        fields = [("filter", name) for name in self.filters]
        if self.group:
            fields.append(("group", self.group))
        if self.below is not None:
            fields.append(("below", str(self.below)))
        if self.text:
            fields.append(("q", self.text))
        fields.append(("order", self.order))
        if self.as_of is not None:
            fields.append(("as_of", str(self.as_of)))
        return fields

    @property
    def query(self) -> str:
        """The view as the query of an address."""
        return urlencode(self.fields)

    @property
    def current(self) -> View:
        """The same view of the present state."""
        return replace(self, as_of=None)


def parse_view(fields: str | Iterable[tuple[str, str]]) -> View | None:
    """Return the view in the fields of an address, or None without a view; invalid values are ignored.

    >>> parse_view("filter=undecided&order=landmarks&q=")
    View(cluster=None, filters=('undecided',), group='', below=None, text='', order='landmarks', as_of=None)
    """
    pairs = parse_qsl(fields) if isinstance(fields, str) else list(fields)
    values: dict[str, str] = {}
    for name, value in pairs:
        if value:
            values.setdefault(name, value)
    cluster = parse_number(values.get("cluster", ""))
    if cluster is not None:
        return View(cluster)
    if not values.keys() & {"filter", "group", "below", "q", "order"}:
        return None
    order: Order = "table"
    for known_order in ORDERS:
        if values.get("order") == known_order:
            order = known_order
    return View(
        filters=tuple(name for name in FILTERS if ("filter", name) in pairs),
        group=values.get("group", ""),
        below=parse_number(values.get("below", "")),
        text=" ".join(values.get("q", "").split()),
        order=order,
        as_of=parse_number(values.get("as_of", "")),
    )


class LabelLists:
    """The lists of a session."""

    def __init__(self, session: ReviewSession) -> None:
        self.session = session
        self._table = {label_id: rank for rank, label_id in enumerate(session.labels)}
        self._texts: dict[str, str] = {}

    @property
    def filters(self) -> dict[str, LabelFilter]:
        """Filters that the session offers, by name."""
        if self.shows_suggestions:
            return FILTERS
        return {name: known for name, known in FILTERS.items() if not known.shows_suggestions}

    @property
    def orders(self) -> list[Order]:
        """Orders that the session offers."""
        if self.shows_suggestions:
            return list(ORDERS)
        return [order for order in ORDERS if order not in _ORDERS_BY_SUGGESTION]

    @property
    def shows_suggestions(self) -> bool:
        """Whether the session shows suggestions: it is neither blind nor an adjudication."""
        return not self.session.blind and not self.session.adjudicating

    def offered(self, view: View) -> View:
        """Return a view without filters and orders that the session does not offer."""
        return replace(
            view,
            filters=tuple(name for name in view.filters if name in self.filters),
            below=view.below if self.shows_suggestions else None,
            order=view.order if view.order in self.orders else "table",
        )

    def label_ids(self, view: View) -> list[str]:
        """Return the ids of the labels in a list, in its order."""
        session = self.session
        if view.cluster is not None:
            return [label.label_id for label in session.clusters().get(view.cluster, [])]
        view = self.offered(view)
        rows = session.counts.rows(view.as_of)
        matching = [label_id for label_id, row in rows.items() if self._matches(view, row)]
        if view.order != "table":
            return self.sort(matching, view.order)
        return sorted(self.sort(matching, "table"), key=session.cluster)

    def sort(self, label_ids: Iterable[str], order: Order) -> list[str]:
        """Return labels in an order; ties are in the order of the table."""

        def sort_key(label_id: str) -> tuple[float, ...]:
            label = self.session.labels[label_id]
            rank = self._table[label_id]
            if order == "landmarks":
                return -label.landmarks, rank
            if order == "uncertain":
                return certainty(label), -label.landmarks, rank
            if order == "settling":
                return -label.landmarks * (1 - certainty(label)), rank
            return (rank,)

        return sorted(label_ids, key=sort_key)

    def counts(self) -> dict[str, int]:
        """Return the number of labels that each offered filter matches now."""
        return {name: self.session.counts.matches[name] for name in self.filters}

    def _matches(self, view: View, row: DecidedLabel) -> bool:
        """Return whether a label belongs to a view of all clusters."""
        if view.group not in ("", row.group):
            return False
        if view.below is not None and certainty(row.label) >= view.below / 100:
            return False
        if not all(FILTERS[name].matches(row) for name in view.filters):
            return False
        return not view.text or self._contains(row.label, view.text)

    def _contains(self, label: ReviewLabel, text: str) -> bool:
        """Return whether the searched texts of a label contain all words of a text."""
        if label.label_id not in self._texts:
            texts = (label.label, label.label_id, label.parents, *label.examples)
            self._texts[label.label_id] = fold("\n".join(texts))
        searched = self._texts[label.label_id]
        return all(word in searched for word in fold(text).split())


@dataclass(frozen=True, slots=True)
class Position:
    """A view and a label in its list; the label is empty if the list is empty."""

    view: View
    label: str

    @property
    def address(self) -> str:
        """The address of the page with this position."""
        return f"/?{self.view.query}&{urlencode({'label': self.label})}"


def find_position(lists: LabelLists, fields: FormFields) -> Position:
    """Return the position in a request, or the nearest position that exists.

    A form has the position of the page in ``at_view`` and ``at_label``. An address has the fields of a view and
    ``label``.
    """
    session = lists.session
    was_shown = "at_view" in fields
    if was_shown:
        view = parse_view(fields["at_view"])
    else:
        view = parse_view(fields.multi_items())
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
        if is_label:
            view = View(session.cluster(label))
        else:
            view = View(_first_unfinished(session, clusters))
    return _in_list(session, view, lists.label_ids(view), label)


def next_position(lists: LabelLists, position: Position) -> Position:
    """Return the position of the next undecided label, or the same position if its label is undecided."""
    session = lists.session
    if position.label and not session.is_decided(position.label):
        return position
    label_ids = lists.label_ids(position.view)
    if position.label in label_ids:
        index = label_ids.index(position.label)
        label_ids = label_ids[index + 1 :] + label_ids[:index]
    undecided = _first_undecided(session, label_ids)
    return Position(position.view, undecided or position.label)


def position_of_step(lists: LabelLists, step: int, position: Position) -> Position:
    """Return the position of the changes of a step.

    Returns:
        Position of the first changed label, or of the first undecided label if the step only moved labels. The
        view stays the same if it shows a changed label; otherwise it is the cluster of the label.
    """
    session = lists.session
    events = session.state.steps[step]
    labels = []
    renamed: list[int] = []
    for event in events:
        if event.kind in ("decision", "cluster") and event.key in session.labels:
            labels.append(event.key)
        elif event.kind == "name":
            renamed.append(int(event.key))
    if not labels:
        if not renamed or renamed[0] not in session.clusters():
            return position
        view = View(renamed[0])
        return _in_list(session, view, lists.label_ids(view), position.label)
    in_view = set(labels).intersection(lists.label_ids(position.view))
    candidates = [label for label in labels if label in in_view] or labels
    label = position.label if position.label in candidates else candidates[0]
    if events[0].kind != "decision":
        label = _first_undecided(session, candidates) or label
    if position.view.cluster is None and label in in_view:
        return Position(position.view, label)
    return Position(View(session.cluster(label)), label)


def _in_list(session: ReviewSession, view: View, label_ids: list[str], label: str) -> Position:
    """Return the position of a label in a list, or of the first undecided label if the list lacks it."""
    if label in label_ids:
        return Position(view, label)
    if not label_ids:
        return Position(view, "")
    return Position(view, _first_undecided(session, label_ids) or label_ids[0])


def _first_unfinished(session: ReviewSession, clusters: Mapping[int, list[ReviewLabel]]) -> int:
    """Return the first cluster with an undecided label, or the first cluster if all are decided."""
    for number, members in clusters.items():
        for label in members:
            if not session.is_decided(label.label_id):
                return number
    return next(iter(clusters))


def _first_undecided(session: ReviewSession, label_ids: Iterable[str]) -> str | None:
    for label_id in label_ids:
        if not session.is_decided(label_id):
            return label_id
    return None


def fold(text: str) -> str:
    """Return a text without differences of case and accents.

    >>> fold("Église"), fold("STRASSE") == fold("Straße")
    ('eglise', True)
    """
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if not unicodedata.combining(character))
