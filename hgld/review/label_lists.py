"""Lists of labels: a cluster, or labels of all clusters by filters, a search and an order; and positions in them.

A view says which list is meant. It is written as the query of an address, ``filter=undecided&order=landmarks``, so
that a list can be bookmarked, and the server keeps nothing about it. A list of all clusters can be that of an earlier
moment (``as_of``): while one decides on undecided labels, they stay in the list.
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

#: ``table``: by cluster and sub-cluster; ``landmarks``: most landmarks first; ``uncertain``: least certain suggestion
#: first; ``settling``: most landmarks that the suggestion, by its score, is expected to leave open first.
Order = Literal["table", "landmarks", "uncertain", "settling"]
ORDERS: tuple[Order, ...] = get_args(Order)


#: Orders that follow the scores of suggestions, which a blind review hides.
_ORDERS_BY_SUGGESTION = ("uncertain", "settling")


@dataclass(frozen=True, slots=True)
class View:
    """What a list shows.

    Args:
        cluster: Number of the cluster, which is then all that counts; None for labels of all clusters.
        filters: Names of filters in :data:`hgld.review.state.FILTERS` that all must match.
        group: Key of the group that the labels are in, or of a guess; empty for any.
        below: Score in percent that the first suggestion must not reach; None for any.
        text: Words that must occur in a label, its id, its superclasses or its examples; empty for any.
        as_of: Id of the last event that counts for filters; None for all events.
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
        fields = [
            *(("filter", name) for name in self.filters),
            ("group", self.group),
            ("below", self.below),
        ]
        fields += [("q", self.text), ("order", self.order), ("as_of", self.as_of)]
        return [(name, str(value)) for name, value in fields if value not in ("", None)]

    @property
    def query(self) -> str:
        """The view as the query of an address."""
        return urlencode(self.fields)

    @property
    def current(self) -> View:
        """The same view as of now."""
        return replace(self, as_of=None)


def parse_view(fields: str | Iterable[tuple[str, str]]) -> View | None:
    """Return the view that an address names; None if it names none. Values that mean nothing are ignored.

    >>> parse_view("filter=undecided&order=landmarks&q=")
    View(cluster=None, filters=('undecided',), group='', below=None, text='', order='landmarks', as_of=None)
    """
    pairs = parse_qsl(fields) if isinstance(fields, str) else list(fields)
    values = dict(reversed([pair for pair in pairs if pair[1]]))  # the first value of each field
    if (cluster := parse_number(values.get("cluster", ""))) is not None:
        return View(cluster)
    if not values.keys() & {"filter", "group", "below", "q", "order"}:
        return None
    chosen = {value for name, value in pairs if name == "filter"}
    return View(
        filters=tuple(name for name in FILTERS if name in chosen),
        group=values.get("group", ""),
        below=parse_number(values.get("below", "")),
        text=" ".join(values.get("q", "").split()),
        order=next((order for order in ORDERS if order == values.get("order")), "table"),
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
        shown = self.shows_suggestions
        return {name: each for name, each in FILTERS.items() if shown or not each.shows_suggestions}

    @property
    def orders(self) -> list[Order]:
        """Orders that the session offers."""
        return [
            order
            for order in ORDERS
            if self.shows_suggestions or order not in _ORDERS_BY_SUGGESTION
        ]

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
        """Return labels in an order; labels that are equal in it are in the order of the table."""
        labels = self.session.labels
        in_table = sorted(label_ids, key=self._table.__getitem__)
        if order == "landmarks":
            return sorted(in_table, key=lambda key: -labels[key].landmarks)
        if order == "uncertain":
            return sorted(
                in_table, key=lambda key: (certainty(labels[key]), -labels[key].landmarks)
            )
        if order == "settling":
            return sorted(
                in_table, key=lambda key: -labels[key].landmarks * (1 - certainty(labels[key]))
            )
        return in_table

    def counts(self) -> dict[str, int]:
        """Return the number of labels that each offered filter matches now."""
        return {name: self.session.counts.matches[name] for name in self.filters}

    def _matches(self, view: View, row: DecidedLabel) -> bool:
        return (
            all(FILTERS[name].matches(row) for name in view.filters)
            and view.group in ("", row.group)
            and (view.below is None or certainty(row.label) < view.below / 100)
            and (not view.text or self._contains(row.label, view.text))
        )

    def _contains(self, label: ReviewLabel, text: str) -> bool:
        if label.label_id not in self._texts:
            texts = (label.label, label.label_id, label.parents, *label.examples)
            self._texts[label.label_id] = fold("\n".join(texts))
        searched = self._texts[label.label_id]
        return all(word in searched for word in fold(text).split())


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

    Returns:
        First label that was changed; if labels were only moved, the first of them that is undecided, if any. The view
        stays if it shows one of the labels, else it is the label's cluster.
    """
    session = lists.session
    events = session.state.steps[step]
    labels = [
        event.key
        for event in events
        if event.kind in ("decision", "cluster") and event.key in session.labels
    ]
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


def fold(text: str) -> str:
    """Return a text without differences of case and accents.

    >>> fold("Église"), fold("STRASSE") == fold("Straße")
    ('eglise', True)
    """
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if not unicodedata.combining(character))
