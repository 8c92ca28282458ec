"""Render the review page as HTML: the whole page, or the parts of it that have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2.runtime import Macro
from markupsafe import Markup

from hgld.pages.templates import page_templates
from hgld.review.group_tree import GroupTree
from hgld.review.label_lists import LabelLists, Order, Position, View
from hgld.review.labels import FactBook
from hgld.review.page.views import (
    cluster_views,
    group_choices,
    history,
    label_view,
    open_work,
    photographs_view,
)
from hgld.review.photographs import LabelPhotographs
from hgld.review.state import FILTERS
from hgld.tables import nouns
from hgld.taxonomy.groups import Group
from hgld.version import __version__

#: Descriptions of the orders for the annotator.
ORDER_TITLES: dict[Order, str] = {
    "table": "as in the clusters",
    "landmarks": "most frequent first",
    "uncertain": "least certain first",
    "settling": "most frequent and least certain first",
}
#: Bounds of the filter by the score of the first suggestion, in percent.
_SCORES = (30, 50, 70, 90, 95)
#: Largest number of labels in a part of a list of all clusters; the page shows the part with the current label.
_MAX_LISTED = 1500
_MAX_HISTORY = 40
#: Largest number of changed rows that are sent alone; browsers replace the whole list faster than more rows.
_MAX_CHANGED_ROWS = 100

_LANDMARKS = nouns(neutral=False)


@dataclass(frozen=True)
class References:
    """Sources of the texts and photographs on the page, apart from the rows of labels.

    Args:
        guideline: Guideline for annotators, a file in Markdown.
        nouns: Words for one and for several of the things that the numbers of labels count.
        row_nouns: Words for one and for several rows of the list, which differ from ``nouns`` if the list has counts.
    """

    facts: FactBook
    guideline: Path | None = None
    photographs: LabelPhotographs | None = None
    nouns: tuple[str, str] = _LANDMARKS
    row_nouns: tuple[str, str] = _LANDMARKS


class PageRenderer:
    """Renders the page of a session."""

    def __init__(self, lists: LabelLists, references: References) -> None:
        session = lists.session
        self._session = session
        self._lists = lists
        self._references = references
        store_path = str(session.store.path.absolute())
        #: Id of the store for the script, which keeps unsaved decisions by store.
        self.store_id = hashlib.sha256(store_path.encode(errors="replace")).hexdigest()[:16]
        # A separate environment, because sessions in one process may have different nouns.
        self._environment = page_templates("review").overlay()
        self._environment.globals = self._environment.globals | {
            "noun": lambda number=2: references.nouns[number != 1],
            "row_noun": lambda number=2: references.row_nouns[number != 1],
            "clustering": session.clustering,
        }
        self._macros: dict[str, Any] = {}
        for template in ("parts.html", "lists.html", "photographs.html"):
            module = self._environment.get_template(template).module
            for name, value in vars(module).items():
                if isinstance(value, Macro):
                    self._macros[name] = value

    def render(self, template: str, **values: Any) -> str:
        """Return a page made from a template."""
        return self._environment.get_template(template).render(values)

    def part(self, macro: str, *arguments: object) -> Markup:
        """Return a part of a page."""
        html: Markup = self._macros[macro](*arguments)
        return html

    def page(
        self, position: Position, search: str, *, notice: str = "", clusters_version: str = ""
    ) -> str:
        """Return the whole page.

        Args:
            notice: HTML of a line above the actions.
            clusters_version: Version of the table of the labels, which the script sends back.
        """
        session = self._session
        parts: dict[str, Markup | None] = {"photographs": None}
        parts.update(self._all_parts(position))
        value = session.decision_value(position.label)
        return self.render(
            "page.html",
            annotator=session.store.annotator,
            position=position,
            search=search,
            notice=notice,
            clusters_version=clusters_version,
            last_event=session.state.last_event,
            store_id=self.store_id,
            version=__version__,
            adjudicating=session.adjudicating,
            blind=session.blind,
            has_guideline=self._references.guideline is not None,
            groups=self._groups(search),
            comment="" if value is None else value["comment"],
            **parts,
        )

    def changes(
        self, position: Position, since: int, *, everything: bool = False
    ) -> dict[str, Any]:
        """Return the changes of the page after an event.

        Args:
            position: Position that the page shows now.
            since: Id of the event; all parts of the page are returned if it is negative.
            everything: Return all parts of the page in addition, because it shows another list.

        Returns:
            ``last``, id of the last event; ``view`` and ``label``, the position; ``parts``, new HTML by id of the
            element; ``rows``, new rows by label_id, unless the whole list is among the parts.
        """
        session = self._session
        answer: dict[str, Any] = {
            "last": session.state.last_event,
            "view": position.view.query,
            "label": position.label,
            "rows": {},
        }
        if since < 0:
            return answer | {"parts": self._all_parts(position)}
        events = session.state.events_after(since)
        kinds = {event.kind for event in events}
        tree = session.tree()
        parts = self._label_parts(position, tree)
        if events:
            parts |= self._summary_parts(position)
        if "group" in kinds:
            parts["groups"] = self._groups("")
        changed = set()
        for event in events:
            if event.kind != "decision" or event.key not in session.labels:
                continue
            if position.view.cluster in (None, session.cluster(event.key)):
                changed.add(event.key)
        if kinds & {"cluster", "name", "group"} or len(changed) > _MAX_CHANGED_ROWS:
            parts["head"] = self._head(position, tree)
            parts["list"] = self._list(position, tree)
        else:
            answer["rows"] = {key: self._row(key, position, tree) for key in changed}
        if everything:
            parts |= self._all_parts(position)
        return answer | {"parts": parts}

    # Parts of the page.

    def _all_parts(self, position: Position) -> dict[str, Markup]:
        tree = self._session.tree()
        return {
            "head": self._head(position, tree),
            "list": self._list(position, tree),
            **self._label_parts(position, tree),
            **self._summary_parts(position),
        }

    def _label_parts(self, position: Position, tree: GroupTree) -> dict[str, Markup]:
        """Return the card of the current label, and its photographs if the session has photographs."""
        session = self._session
        label_id = position.label
        parts = {}
        if label_id:
            label = label_view(session, session.labels[label_id], tree)
            parts["card"] = self.part("card", label, self._references.facts.facts(label_id))
        else:
            parts["card"] = self.part("no_card")
        if self._references.photographs is not None:
            view = photographs_view(self._references.photographs, session, label_id)
            parts["photographs"] = self.part("beside_card", view)
        return parts

    def _summary_parts(self, position: Position) -> dict[str, Markup]:
        """Return the parts that change with every event."""
        session = self._session
        counts = session.counts.counts[None]
        steps = history(session, _MAX_HISTORY)
        return {
            "status": self.part("status", counts, open_work(session), session.adjudicating),
            "clusters": self._places(position),
            "history": self.part("history", steps, len(session.state.steps), position),
        }

    def _groups(self, search: str) -> Markup:
        """Return the groups to choose from, and the forms that change groups."""
        session = self._session
        tree = session.tree()
        versions = {key: session.state.field("group", key).version for key in tree.groups}
        parents = list(session.parents())
        if tree.has_icons:
            parents.reverse()  # most groups are human-made
        return self.part(
            "groups", group_choices(tree, search), versions, parents, tree.levels, tree.titles()
        )

    # The list of labels.

    def _list(self, position: Position, tree: GroupTree) -> Markup:
        """Return the rows of the list, or of the part of a long list with the current label."""
        label_ids = self._lists.label_ids(position.view)
        n_labels = len(label_ids)
        start = 0
        end = n_labels
        if position.view.cluster is None:
            if position.label in label_ids:
                current = label_ids.index(position.label)
                start = current - current % _MAX_LISTED
            end = min(start + _MAX_LISTED, n_labels)
        sections = []
        for title, section_ids in self._sections(position.view, label_ids[start:end]):
            rows = [self._row(label_id, position, tree) for label_id in section_ids]
            sections.append((title, rows))
        html = self.part("list", sections, position)
        if end - start < n_labels:
            before = label_ids[start - 1] if start > 0 else ""
            after = label_ids[end] if end < n_labels else ""
            part = self.part(
                "part_of_list", start, end - start, n_labels, position.view, before, after
            )
            html = part + html + part
        return html

    def _sections(self, view: View, label_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return the titles and label ids of the sections of a list.

        A list of one cluster has a section for each sub-cluster, and a list in the order of the table has a section
        for each cluster. Other lists have one section without a title.
        """
        session = self._session
        sections: list[tuple[str, list[str]]] = []
        if view.cluster is not None:
            # Sub-clusters of two clusters that were merged may have the same number.
            labels = [session.labels[label_id] for label_id in label_ids]
            for (_, number), part in groupby(labels, lambda row: (row.cluster, row.subcluster)):
                sections.append((f"Sub-cluster {number}", [row.label_id for row in part]))
        elif view.order == "table":
            for number, ids in groupby(label_ids, session.cluster):
                sections.append((f"{number} · {session.cluster_name(number)}", list(ids)))
        elif label_ids:
            sections.append(("", list(label_ids)))
        return sections

    def _row(self, label_id: str, position: Position, tree: GroupTree) -> Markup:
        """Return the row of a label."""
        label = self._session.labels[label_id]
        return self.part("row", label_view(self._session, label, tree, position.view))

    def _head(self, position: Position, tree: GroupTree) -> Markup:
        """Return the title of the list, its filters, and the actions on its cluster."""
        session = self._session
        lists = self._lists
        view = position.view
        scores = {}
        candidates_title = ""
        if session.adjudicating:
            candidates_title = "Opinions"
        elif not session.blind:
            candidates_title = "Suggestion"
            scores = {score: f"below {score} %" for score in _SCORES}
        orders = {order: ORDER_TITLES[order] for order in lists.orders}
        filters = self.part(
            "filters", view, lists.filters, lists.counts(), tree.titles(), scores, orders
        )
        clusters = cluster_views(session)
        if view.cluster is None:
            label_ids = lists.label_ids(view)
            landmarks = sum(session.labels[label_id].landmarks for label_id in label_ids)
            return self.part(
                "list_head",
                view_title(view, tree.groups),
                ORDER_TITLES[view.order],
                len(label_ids),
                landmarks,
                clusters,
                position,
                candidates_title,
                filters,
            )
        numbers = [cluster["number"] for cluster in clusters]
        shown = clusters.pop(numbers.index(view.cluster))
        return self.part("head", shown, clusters, position, candidates_title, filters)

    def _places(self, position: Position) -> Markup:
        """Return links to the queue, all labels, filters with labels, groups to settle, and clusters."""
        session = self._session
        shown = position.view.current
        counts = self._lists.counts()
        order: Order = "settling" if "settling" in self._lists.orders else "landmarks"
        links = [
            ("Queue", View(filters=("undecided",), order=order), counts["undecided"]),
            ("All labels", View(), len(session.labels)),
        ]
        for name in self._lists.filters:
            view = View(filters=(name,))
            if name not in ("undecided", "decided") and (counts[name] or shown == view):
                links.append((FILTERS[name].title, view, counts[name]))
        views = self.part("views", links, shown)
        to_settle = self.part("to_settle", session.groups_to_settle(), session.groups())
        return views + to_settle + self.part("clusters", cluster_views(session), position)


def view_title(view: View, groups: Mapping[str, Group]) -> str:
    """Return a description of the labels in a list.

    >>> view_title(View(filters=("undecided", "commented"), below=50, text="wood"), {})
    'Undecided, commented, suggestion below 50 %, with “wood”'
    """
    parts = [FILTERS[name].title.lower() for name in view.filters]
    if view.group:
        name = groups[view.group].name if view.group in groups else view.group
        parts.append(f"in {name}")
    if view.below is not None:
        parts.append(f"suggestion below {view.below} %")
    if view.text:
        parts.append(f"with “{view.text}”" if parts else f"labels with “{view.text}”")
    title = ", ".join(parts) or "all labels"
    return title[0].upper() + title[1:]
