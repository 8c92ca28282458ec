"""Render the list of labels as HTML: its head, its rows, and the clusters and views that lead to other lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from hgld.review.label_lists import LabelLists
from hgld.review.page.lists import filter_form, list_head, sections, view_links
from hgld.review.page.position import Position
from hgld.review.page.views import BriefLabelView, LabelView, brief_label_view, cluster_views, label_view
from hgld.taxonomy.groups import Group

_CACHED_ROWS = 20_000
#: Rows that are sent in full before and after the current one; those further away are brief.
_FULL_BEFORE, _FULL_AFTER = 40, 110
#: A list of all clusters is cut into parts of so many labels; the page shows the part of the current label.
_MAX_LISTED = 1500


class ListRenderer:
    """Renders lists of labels.

    Args:
        lists: Lists of the session.
        environment: Environment with the templates.
    """

    def __init__(self, lists: LabelLists, environment: Environment) -> None:
        self._lists = lists
        self._parts: Any = environment.get_template("parts.html").module
        self._macros: Any = environment.get_template("lists.html").module
        self._row = lru_cache(_CACHED_ROWS)(self._render_row)

    def list(self, position: Position, groups: Mapping[str, Group]) -> Markup:
        """Return the rows of the list, those near the current label in full."""
        everything = label_ids = self._lists.label_ids(position.view)
        current = label_ids.index(position.label) if position.label in label_ids else 0
        start = 0
        if position.view.cluster is None:
            start = current - current % _MAX_LISTED
            label_ids, current = everything[start : start + _MAX_LISTED], current - start
        in_full = set(label_ids[max(0, current - _FULL_BEFORE) : current + 1 + _FULL_AFTER])
        rows = {
            label_id: self.row(label_id, position, groups, brief=label_id not in in_full) for label_id in label_ids
        }
        parts = [
            (title, [rows[key] for key in keys]) for title, keys in sections(position.view, label_ids, self._lists)
        ]
        html: Markup = self._parts.list(parts, position)
        if len(label_ids) < len(everything):
            neighbours = [everything[n] if 0 <= n < len(everything) else "" for n in (start - 1, start + _MAX_LISTED)]
            part = self._macros.part_of_list(start, len(label_ids), len(everything), position.view, *neighbours)
            html = part + html + part
        return html

    def row(self, label_id: str, position: Position, groups: Mapping[str, Group], *, brief: bool = False) -> Markup:
        """Return the row of a label, in full or with only what the cursor and the selection need."""
        session, view = self._lists.session, position.view
        label = session.labels[label_id]
        make_view = brief_label_view if brief else label_view
        return self._row(make_view(session, label, groups, view), brief)

    def _render_row(self, data: LabelView | BriefLabelView, brief: bool) -> Markup:
        html: Markup = self._parts.row(data, brief)
        return html

    def rows(self, label_ids: Iterable[str], position: Position, groups: Mapping[str, Group]) -> dict[str, Markup]:
        """Return the rows of labels in full, by label_id; labels that do not exist are left out."""
        return {key: self.row(key, position, groups) for key in label_ids if key in self._lists.session.labels}

    def head(self, position: Position, groups: Mapping[str, Group]) -> Markup:
        """Return the head of the list."""
        session, view = self._lists.session, position.view
        filters = self._macros.filters(filter_form(view, self._lists, groups))
        candidates = "Opinions" if session.adjudicating else "" if session.blind else "Suggestion"
        clusters = cluster_views(session, session.counts.members)
        html: Markup
        if view.cluster is None:
            head = list_head(view, self._lists.label_ids(view), self._lists, groups)
            html = self._macros.list_head(head, clusters, position, candidates, filters)
        else:
            (cluster,) = (each for each in clusters if each.number == view.cluster)
            others = [each for each in clusters if each != cluster]
            html = self._parts.head(cluster, others, position, candidates, filters)
        return html

    def places(self, position: Position) -> Markup:
        """Return the views and clusters that one can go to, and the groups to settle."""
        session = self._lists.session
        views: Markup = self._macros.views(view_links(self._lists, position.view), position.view)
        views += self._macros.to_settle(session.groups_to_settle(), session.groups())
        clusters: Markup = self._parts.clusters(cluster_views(session, session.counts.members), position)
        return views + clusters
