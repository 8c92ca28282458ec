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

#: Orders as the annotator reads them.
ORDER_TITLES: dict[Order, str] = {
    "table": "as in the clusters",
    "landmarks": "most frequent first",
    "uncertain": "least certain first",
    "settling": "most frequent and least certain first",
}
#: Scores in percent that the first suggestion can be asked to be below.
_SCORES = (30, 50, 70, 90, 95)
#: A list of all clusters is cut into parts of so many labels; the page shows the part of the current label.
_MAX_LISTED = 1500
_MAX_HISTORY = 40
#: If more rows than this have changed, the whole list is sent, which browsers replace faster.
_MAX_CHANGED_ROWS = 100


_LANDMARKS = nouns(neutral=False)


@dataclass(frozen=True)
class References:
    """Sources of what the page shows of a label besides its row; the guideline for annotators is in Markdown.

    ``nouns`` are the words for one and for several of what the numbers of labels count, and ``row_nouns`` those for
    the things in the rows of the list, which differ where the list has counts.
    """

    facts: FactBook
    guideline: Path | None = None
    photographs: LabelPhotographs | None = None
    nouns: tuple[str, str] = _LANDMARKS
    row_nouns: tuple[str, str] = _LANDMARKS


class PageRenderer:
    """Renders the page of a session."""

    def __init__(self, lists: LabelLists, references: References) -> None:
        session = self._session = lists.session
        self._lists, self._references = lists, references
        #: Name of the store for the script, which keeps what is not yet saved apart for every store.
        self.store_id = hashlib.sha256(
            str(session.store.path.absolute()).encode(errors="replace")
        ).hexdigest()[:16]
        # An environment of its own: several sessions of one process may be about different things.
        self._environment = page_templates("review").overlay()
        self._environment.globals = self._environment.globals | {
            "noun": lambda number=2: references.nouns[number != 1],
            "row_noun": lambda number=2: references.row_nouns[number != 1],
            "clustering": session.clustering,
        }
        self._macros: dict[str, Any] = {
            name: macro
            for template in ("parts", "lists", "photographs")
            for name, macro in vars(
                self._environment.get_template(f"{template}.html").module
            ).items()
            if isinstance(macro, Macro)
        }

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
            **{"photographs": None} | self._all_parts(position),
            groups=self._groups(search),
            comment=(session.decision_field(position.label).value or {}).get("comment", ""),
        )

    def changes(
        self, position: Position, since: int, *, everything: bool = False
    ) -> dict[str, Any]:
        """Return what has changed after the event ``since``, or everything if that is negative or the list another.

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
        changed = {
            event.key
            for event in events
            if event.kind == "decision" and event.key in session.labels
        }
        if position.view.cluster is not None:
            changed = {key for key in changed if session.cluster(key) == position.view.cluster}
        if kinds & {"cluster", "name", "group"} or len(changed) > _MAX_CHANGED_ROWS:
            parts |= {"head": self._head(position, tree), "list": self._list(position, tree)}
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
        """Return the card of the current label, and its photographs if any are shown with labels."""
        key, photographs = position.label, self._references.photographs
        parts = {"card": self.part("no_card")}
        if key:
            label = label_view(self._session, self._session.labels[key], tree)
            parts = {"card": self.part("card", label, self._references.facts.facts(key))}
        if photographs is not None:
            parts["photographs"] = self.part(
                "beside_card", photographs_view(photographs, self._session, key)
            )
        return parts

    def _summary_parts(self, position: Position) -> dict[str, Markup]:
        """Return the parts that change with every event."""
        session = self._session
        return {
            "status": self.part(
                "status", session.counts.counts[None], open_work(session), session.adjudicating
            ),
            "clusters": self._places(position),
            "history": self.part(
                "history", history(session, _MAX_HISTORY), len(session.state.steps), position
            ),
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
        """Return the rows of the list, or of the part of a long list that has the current label."""
        everything = label_ids = self._lists.label_ids(position.view)
        start = 0
        if position.view.cluster is None:
            current = label_ids.index(position.label) if position.label in label_ids else 0
            start = current - current % _MAX_LISTED
            label_ids = everything[start : start + _MAX_LISTED]
        parts = [
            (title, [self._row(key, position, tree) for key in keys])
            for title, keys in self._sections(position.view, label_ids)
        ]
        html = self.part("list", parts, position)
        if len(label_ids) < len(everything):
            neighbours = [
                everything[n] if 0 <= n < len(everything) else ""
                for n in (start - 1, start + _MAX_LISTED)
            ]
            part = self.part(
                "part_of_list", start, len(label_ids), len(everything), position.view, *neighbours
            )
            html = part + html + part
        return html

    def _sections(self, view: View, label_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return the sections of a list, each with its title; a list that goes across clusters has one without."""
        session = self._session
        if view.cluster is not None:
            # Sub-clusters of two clusters that were merged may have the same number.
            rows = (session.labels[label_id] for label_id in label_ids)
            by_subcluster = groupby(rows, key=lambda row: (row.cluster, row.subcluster))
            return [
                (f"Sub-cluster {number}", [row.label_id for row in part])
                for (_, number), part in by_subcluster
            ]
        if view.order != "table":
            return [("", list(label_ids))] if label_ids else []
        by_cluster = groupby(label_ids, key=session.cluster)
        return [
            (f"{number} · {session.cluster_name(number)}", [*part]) for number, part in by_cluster
        ]

    def _row(self, label_id: str, position: Position, tree: GroupTree) -> Markup:
        """Return the row of a label."""
        label = self._session.labels[label_id]
        return self.part("row", label_view(self._session, label, tree, position.view))

    def _head(self, position: Position, tree: GroupTree) -> Markup:
        session, lists, view = self._session, self._lists, position.view
        filters = self.part(
            "filters",
            view,
            lists.filters,
            lists.counts(),
            tree.titles(),
            {score: f"below {score} %" for score in _SCORES} if lists.shows_suggestions else {},
            {order: ORDER_TITLES[order] for order in lists.orders},
        )
        candidates = "Opinions" if session.adjudicating else "" if session.blind else "Suggestion"
        clusters = cluster_views(session)
        if view.cluster is None:
            label_ids = lists.label_ids(view)
            landmarks = sum(session.labels[label_id].landmarks for label_id in label_ids)
            title = (
                view_title(view, tree.groups),
                ORDER_TITLES[view.order],
                len(label_ids),
                landmarks,
            )
            return self.part("list_head", *title, clusters, position, candidates, filters)
        (cluster,) = (each for each in clusters if each["number"] == view.cluster)
        others = [each for each in clusters if each != cluster]
        return self.part("head", cluster, others, position, candidates, filters)

    def _places(self, position: Position) -> Markup:
        """Return the queue, all labels, the filters that match a label, the groups to settle, and the clusters."""
        session, shown, counts = self._session, position.view.current, self._lists.counts()
        order: Order = "settling" if "settling" in self._lists.orders else "landmarks"
        links = [
            ("Queue", View(filters=("undecided",), order=order), counts["undecided"]),
            ("All labels", View(), len(session.labels)),
        ]
        for name in self._lists.filters:
            view = View(filters=(name,))
            if name not in ("undecided", "decided") and (counts[name] or shown == view):
                links.append((FILTERS[name].title, view, counts[name]))
        to_settle = self.part("to_settle", session.groups_to_settle(), session.groups())
        return (
            self.part("views", links, shown)
            + to_settle
            + self.part("clusters", cluster_views(session), position)
        )


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
