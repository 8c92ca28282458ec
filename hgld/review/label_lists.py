"""Lists of labels: a cluster, or labels of all clusters by filters, a search and an order.

A view says which list is meant. It is written as the query of an address, ``filter=undecided&order=landmarks``, so
that a list can be bookmarked, and the server keeps nothing about it. A list of all clusters can be that of an earlier
moment (``as_of``): while one decides on undecided labels, they stay in the list.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

from hgld.review.actions import parse_number
from hgld.review.decided_labels import FILTERS, DecidedLabel, LabelFilter, certainty
from hgld.review.label_order import ORDERS, LabelOrders, Order
from hgld.review.labels import ReviewLabel
from hgld.review.session import ReviewSession


def searchable_text(label: ReviewLabel) -> str:
    """Return the text in which a label is searched: its own, its id, its superclasses and its examples."""
    return fold("\n".join((label.label, label.label_id, label.parents, *label.examples)))


def fold(text: str) -> str:
    """Return a text without differences of case and accents.

    >>> fold("Église"), fold("STRASSE") == fold("Straße")
    ('eglise', True)
    """
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if not unicodedata.combining(character))


#: Orders that follow the scores of suggestions, which a blind review hides.
_ORDERS_BY_SUGGESTION = ("uncertain", "settling")


@dataclass(frozen=True, slots=True)
class View:
    """What a list shows.

    Args:
        cluster: Number of the cluster, which is then all that counts; None for labels of all clusters.
        filters: Names of filters in :data:`hgld.review.decided_labels.FILTERS` that all must match.
        group: Key of the group that the labels are in, or of a guess; empty for any.
        below: Score in percent that the first suggestion must not reach; None for any.
        text: Words that must occur in a label, its id, its superclasses or its examples; empty for any.
        order: Order of the labels.
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
        fields = [*(("filter", name) for name in self.filters), ("group", self.group), ("below", self.below)]
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

    Args:
        fields: Query of the address, or its fields.

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
    """The lists of a session.

    Attributes:
        session: Session with the labels.
    """

    def __init__(self, session: ReviewSession) -> None:
        self.session = session
        self._orders = LabelOrders(session)
        self._texts: dict[str, str] = {}

    @property
    def filters(self) -> dict[str, LabelFilter]:
        """Filters that the session offers, by name."""
        shown = self.shows_suggestions
        return {name: each for name, each in FILTERS.items() if shown or not each.shows_suggestions}

    @property
    def orders(self) -> list[Order]:
        """Orders that the session offers."""
        return [order for order in ORDERS if self.shows_suggestions or order not in _ORDERS_BY_SUGGESTION]

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
            return self._orders.sort(matching, view.order)
        clusters = {label_id: session.cluster(label_id) for label_id in matching}
        return sorted(self._orders.sort(matching, "table"), key=clusters.__getitem__)

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
        if not self._texts:
            self._texts = {key: searchable_text(each) for key, each in self.session.labels.items()}
        searched = self._texts[label.label_id]
        return all(word in searched for word in fold(text).split())
