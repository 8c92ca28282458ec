"""The list of labels as HTML: its head, filters and rows, and the views and clusters that lead to other lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from hgld.review.decided_labels import FILTERS
from hgld.review.label_lists import LabelLists, View
from hgld.review.label_order import Order
from hgld.review.page.position import Position
from hgld.review.page.views import LabelView, cluster_views, label_view
from hgld.taxonomy.groups import Group

#: Orders as the annotator reads them.
ORDER_TITLES: dict[Order, str] = {
    "table": "as in the clusters",
    "landmarks": "most landmarks first",
    "uncertain": "least certain first",
    "settling": "what settles most first",
}
#: Scores in percent that the first suggestion can be asked to be below.
_SCORES = (30, 50, 70, 90, 95)
_CACHED_ROWS = 20_000
#: Rows that are sent in full before and after the current one; those further away are brief.
_FULL_BEFORE, _FULL_AFTER = 40, 110
#: A list of all clusters is cut into parts of so many labels; the page shows the part of the current label.
_MAX_LISTED = 1500


class ListRenderer:
    """Renders lists of labels."""

    def __init__(self, lists: LabelLists, environment: Environment) -> None:
        self._lists = lists
        self._parts: Any = environment.get_template("parts.html").module
        self._macros: Any = environment.get_template("lists.html").module
        self._row = lru_cache(_CACHED_ROWS)(self._render_row)

    def whole_list(self, position: Position, groups: Mapping[str, Group]) -> Markup:
        """Return the rows of the list, those near the current label in full."""
        everything = label_ids = self._lists.label_ids(position.view)
        current = label_ids.index(position.label) if position.label in label_ids else 0
        start = 0
        if position.view.cluster is None:
            start = current - current % _MAX_LISTED
            label_ids, current = everything[start : start + _MAX_LISTED], current - start
        in_full = set(label_ids[max(0, current - _FULL_BEFORE) : current + 1 + _FULL_AFTER])
        parts = [
            (title, [self.row(key, position, groups, brief=key not in in_full) for key in keys])
            for title, keys in self._sections(position.view, label_ids)
        ]
        html: Markup = self._parts.list(parts, position)
        if len(label_ids) < len(everything):
            neighbours = [everything[n] if 0 <= n < len(everything) else "" for n in (start - 1, start + _MAX_LISTED)]
            part = self._macros.part_of_list(start, len(label_ids), len(everything), position.view, *neighbours)
            html = part + html + part
        return html

    def _sections(self, view: View, label_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return the sections of a list, each with its title; a list that goes across clusters has one without."""
        session = self._lists.session
        if view.cluster is not None:
            # Sub-clusters of two clusters that were merged may have the same number.
            rows = (session.labels[label_id] for label_id in label_ids)
            by_subcluster = groupby(rows, key=lambda row: (row.cluster, row.subcluster))
            return [(f"Sub-cluster {number}", [row.label_id for row in part]) for (_, number), part in by_subcluster]
        if view.order != "table":
            return [("", list(label_ids))] if label_ids else []
        by_cluster = groupby(label_ids, key=session.cluster)
        return [(f"{number} · {session.cluster_name(number)}", [*part]) for number, part in by_cluster]

    def row(self, label_id: str, position: Position, groups: Mapping[str, Group], *, brief: bool = False) -> Markup:
        """Return the row of a label, in full or with only what the cursor and the selection need."""
        session = self._lists.session
        view = label_view(session, session.labels[label_id], groups, position.view, brief=brief)
        return self._row(view, brief)

    def _render_row(self, view: LabelView, brief: bool) -> Markup:
        html: Markup = self._parts.row(view, brief)
        return html

    def rows(self, label_ids: Iterable[str], position: Position, groups: Mapping[str, Group]) -> dict[str, Markup]:
        """Return the rows of labels in full, by label_id; labels that do not exist are left out."""
        return {key: self.row(key, position, groups) for key in label_ids if key in self._lists.session.labels}

    def head(self, position: Position, groups: Mapping[str, Group]) -> Markup:
        """Return the head of the list."""
        session, view = self._lists.session, position.view
        filters = self._macros.filters(
            view,
            self._lists.filters,
            self._lists.counts(),
            {key: group.name for key, group in groups.items()},
            {score: f"below {score} %" for score in _SCORES} if self._lists.shows_suggestions else {},
            {order: ORDER_TITLES[order] for order in self._lists.orders},
        )
        candidates = "Opinions" if session.adjudicating else "" if session.blind else "Suggestion"
        clusters = cluster_views(session)
        html: Markup
        if view.cluster is None:
            label_ids = self._lists.label_ids(view)
            landmarks = sum(session.labels[label_id].landmarks for label_id in label_ids)
            title = view_title(view, groups), ORDER_TITLES[view.order], len(label_ids), landmarks
            html = self._macros.list_head(*title, clusters, position, candidates, filters)
        else:
            (cluster,) = (each for each in clusters if each.number == view.cluster)
            others = [each for each in clusters if each != cluster]
            html = self._parts.head(cluster, others, position, candidates, filters)
        return html

    def places(self, position: Position) -> Markup:
        """Return the queue, all labels, the filters that match a label, the groups to settle, and the clusters."""
        session, shown, counts = self._lists.session, position.view.current, self._lists.counts()
        order: Order = "settling" if "settling" in self._lists.orders else "landmarks"
        links = [
            ("Queue", View(filters=("undecided",), order=order), counts["undecided"]),
            ("All labels", View(), len(session.labels)),
        ]
        for name in self._lists.filters:
            view = View(filters=(name,))
            if name not in ("undecided", "decided") and (counts[name] or shown == view):
                links.append((FILTERS[name].title, view, counts[name]))
        html: Markup = self._macros.views(links, shown)
        html += self._macros.to_settle(session.groups_to_settle(), session.groups())
        html += self._parts.clusters(cluster_views(session), position)
        return html


def view_title(view: View, groups: Mapping[str, Group]) -> str:
    """Return what the labels in a list have in common.

    >>> view_title(View(filters=("undecided", "commented"), below=50, text="wood"), {})
    'Undecided, commented, suggestion below 50 %, with “wood”'
    """
    parts = [FILTERS[name].title.lower() for name in view.filters]
    if view.group:
        parts.append(f"in {groups[view.group].name if view.group in groups else view.group}")
    if view.below is not None:
        parts.append(f"suggestion below {view.below} %")
    if view.text:
        parts.append(f"with “{view.text}”" if parts else f"labels with “{view.text}”")
    title = ", ".join(parts) or "all labels"
    return title[0].upper() + title[1:]
