"""The review page as HTML: whole, or the parts of it that have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hgld.review.page.forms import Form, choice_in, seen_in
from hgld.review.page.views import (
    Verdict,
    cluster_views,
    history,
    progress,
    row_view,
    sections,
    verdict_of,
)
from hgld.review.review_labels import ReviewLabel
from hgld.review.session import NO_OFFER, ReviewSession, StaleError
from hgld.taxonomy.groups import ROOTS, Group
from hgld.version import __version__

#: Templates, style and script.
FILES = Path(__file__).parents[2] / "templates" / "review"
_MOST_STEPS = 40
_ROWS_KEPT = 20_000
#: More changed rows than this are sent as a whole list, which browsers put in place faster.
_MOST_ROWS = 100
_LABEL_FIELDS = ("label", "focus", "since")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the annotator is: a cluster, and a label of it."""

    cluster: int
    label: str


class Page:
    """Renders the page.

    Args:
        desk: what it shows.
    """

    def __init__(self, desk: ReviewSession) -> None:
        self.desk = desk
        self._environment = Environment(
            loader=FileSystemLoader(FILES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters["count"] = "{:,}".format
        self._parts: Any = self._environment.get_template("parts.html").module
        self._row = lru_cache(_ROWS_KEPT)(partial(self._part, "row"))

    def place(self, values: Mapping[str, str]) -> Place:
        """The place that a request names, or the nearest to it.

        Args:
            values: forms name it ``at_cluster`` and ``at_label``, addresses ``cluster`` and ``label``.
        """
        label = values.get("at_label") or values.get("label", "")
        cluster = values.get("at_cluster") or values.get("cluster", "")
        clusters = self.desk.clusters()
        number = int(cluster) if cluster.isdecimal() and int(cluster) in clusters else None
        if number is None:
            number = self.desk.cluster(label) if label in self.desk.labels else self._first_left(clusters)
        members = [member.row.label_id for member in clusters[number]]
        if label not in members:
            label = next((key for key in members if not self.desk.is_decided(key)), members[0])
        return Place(number, label)

    def next_place(self, place: Place) -> Place:
        """The next undecided label of the cluster if this one is decided, else the place itself."""
        if not self.desk.is_decided(place.label):
            return place
        members = [label.row.label_id for label in self.desk.clusters()[place.cluster]]
        here = members.index(place.label)
        following = members[here + 1 :] + members[:here]
        return Place(place.cluster, next((key for key in following if not self.desk.is_decided(key)), place.label))

    def _first_left(self, clusters: Mapping[int, list[ReviewLabel]]) -> int:
        for number, members in clusters.items():
            if not all(self.desk.is_decided(label.row.label_id) for label in members):
                return number
        return next(iter(clusters))

    def whole(self, place: Place, search: str, theme: str) -> str:
        """The page."""
        parts = self._all_parts(place)
        return self._environment.get_template("page.html").render(
            annotator=self.desk.store.annotator,
            place=place,
            search=search,
            theme=theme,
            last=self.desk.fold.last,
            version=__version__,
            settling=self.desk.settling,
            **parts,
            groups=self._groups(search),
            comment=(self.desk.decision(place.label).value or {}).get("comment", ""),
        )

    def changes(self, place: Place, since: int) -> dict[str, Any]:
        """What has changed after the event ``since``.

        Returns:
            ``last``, the last event; ``cluster`` and ``label``, the place; ``parts``, new HTML by the id of the
            element; ``rows``, new rows by label_id, where not the whole list is among the parts.
        """
        events = self.desk.fold.since(since)
        kinds = {event.kind for event in events}
        answer = {"last": self.desk.fold.last, "cluster": place.cluster, "label": place.label, "rows": {}}
        if since < 0:
            return answer | {"parts": self._all_parts(place)}
        groups = self.desk.groups()
        parts = {"card": self._card(place, groups)}
        if events:
            parts |= self._summary_parts(place)
        if "group" in kinds:
            parts["groups"] = self._groups("")
        shown = {label.row.label_id: label for label in self.desk.clusters()[place.cluster]}
        changed = dict.fromkeys(event.key for event in events if event.kind == "decision" and event.key in shown)
        if kinds & {"cluster", "name", "group"} or len(changed) > _MOST_ROWS:
            parts |= {"head": self._head(place), "list": self._list(place, groups)}
        else:
            answer["rows"] = {key: self._row(row_view(self.desk, shown[key], groups)) for key in changed}
        return answer | {"parts": parts}

    def stale(self, error: StaleError, action: str, form: Form) -> Markup:
        """Labels that were changed in the meantime: what they are now, what was asked for, and both ways on."""
        seen = seen_in(form)
        groups = self.desk.groups()
        rows = []
        for label_id in error.label_ids:
            label = self.desk.labels[label_id]
            mine = Verdict(None)
            if action == "/decide":
                value = self.desk.outcome(label, choice_in(form), groups)
                mine = mine if value is NO_OFFER else verdict_of(value, groups)
            theirs = verdict_of(self.desk.decision(label_id).value, groups)
            rows.append((label.row.label, theirs, mine))
        fields = [(name, value.partition("@")[0]) for name, value in form.multi_items() if name not in _LABEL_FIELDS]
        now = {label_id: self.desk.version(label_id) for label_id in seen}
        others = {label_id: version for label_id, version in now.items() if label_id not in error.label_ids}
        return self._part("stale", rows, action, fields, now, others)

    def problem(self, message: str, stale: Markup, place: Place, theme: str) -> str:
        """A page that says what kept a form from being done."""
        template = self._environment.get_template("problem.html")
        return template.render(message=message, stale=stale, place=place, theme=theme)

    def _part(self, name: str, *values: object) -> Markup:
        part: Markup = getattr(self._parts, name)(*values)
        return part

    def _all_parts(self, place: Place) -> dict[str, Markup]:
        groups = self.desk.groups()
        return {
            "head": self._head(place),
            "list": self._list(place, groups),
            "card": self._card(place, groups),
            **self._summary_parts(place),
        }

    def _summary_parts(self, place: Place) -> dict[str, Markup]:
        """What changes with every event."""
        return {
            "status": self._part("status", progress(self.desk)),
            "clusters": self._part("clusters", cluster_views(self.desk, self.desk.clusters()), place),
            "history": self._part("history", history(self.desk, _MOST_STEPS), place),
        }

    def _head(self, place: Place) -> Markup:
        views = cluster_views(self.desk, self.desk.clusters())
        (cluster,) = (view for view in views if view.number == place.cluster)
        return self._part("head", cluster, [view for view in views if view != cluster], place, self.desk.settling)

    def _list(self, place: Place, groups: Mapping[str, Group]) -> Markup:
        rows = [
            (subcluster, [self._row(row_view(self.desk, label, groups)) for label in labels])
            for subcluster, labels in sections(self.desk.clusters()[place.cluster])
        ]
        return self._part("list", rows, place)

    def _card(self, place: Place, groups: Mapping[str, Group]) -> Markup:
        return self._part("card", row_view(self.desk, self.desk.labels[place.label], groups))

    def _groups(self, search: str) -> Markup:
        wanted = search.casefold().strip()
        groups = self.desk.groups()
        found = {
            key: group
            for key, group in groups.items()
            if wanted in group.name.casefold() or wanted in group.guideline.casefold()
        }
        versions = {key: self.desk.fold.cell("group", key).version for key in groups}
        return self._part("groups", found, versions, ROOTS, self.desk.settling)
