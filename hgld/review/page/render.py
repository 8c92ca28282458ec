"""Render the review page as HTML: the whole page, or the parts of it that have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hgld.review.actions import StaleError
from hgld.review.page.forms import FormFields, label_action, label_versions
from hgld.review.page.history import describe_step, history, sentence, undo_title
from hgld.review.page.position import Position
from hgld.review.page.progress import review_progress
from hgld.review.page.views import (
    DecisionView,
    LabelView,
    PhotographsView,
    brief_label_view,
    cluster_views,
    decision_view,
    label_view,
    photographs_view,
    subclusters,
)
from hgld.review.references import References
from hgld.review.session import NO_CANDIDATE, ReviewSession
from hgld.taxonomy.groups import ROOTS, Group
from hgld.version import __version__

#: Folder of the templates, the style sheet and the script.
TEMPLATES = Path(__file__).parents[2] / "templates" / "review"
_MAX_HISTORY = 40
_CACHED_ROWS = 20_000
#: If more rows than this have changed, the whole list is sent, which browsers replace faster.
_MAX_CHANGED_ROWS = 100
#: Rows that are sent in full before and after the current one; those further away are brief.
_FULL_BEFORE, _FULL_AFTER = 40, 110
#: Fields of a refused form that are not repeated when it is sent again.
_VERSION_FIELDS = ("label", "focus", "since")


@cache
def _environment() -> Environment:
    """Return the compiled templates, which all pages of a process share."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = "{:,}".format
    return environment


class PageRenderer:
    """Renders the page of a session.

    Args:
        session: Session to show.
        references: What the page shows besides.
    """

    def __init__(self, session: ReviewSession, references: References) -> None:
        self._session = session
        self._references = references
        #: Name of the store for the script, which keeps what is not yet saved apart for every store.
        self.store_id = hashlib.sha256(str(session.store.path.absolute()).encode(errors="replace")).hexdigest()[:16]
        self._environment = _environment()
        self._macros: Any = self._environment.get_template("parts.html").module
        self._photograph_macros: Any = self._environment.get_template("photographs.html").module
        self._row = lru_cache(_CACHED_ROWS)(partial(self._part, "row"))
        self._brief_row = lru_cache(_CACHED_ROWS)(partial(self._part, "row", brief=True))

    def page(self, position: Position, search: str, theme: str, step: int | None = None) -> str:
        """Return the whole page.

        Args:
            position: Current cluster and label.
            search: Text to find groups by, or empty.
            theme: ``auto``, ``light`` or ``dark``.
            step: Id of the step of the last form, which the page describes; None if there was none.
        """
        session = self._session
        known = step if step in session.state.steps else None
        return self._environment.get_template("page.html").render(
            annotator=session.store.annotator,
            position=position,
            search=search,
            message="" if known is None else sentence(describe_step(session, known)),
            step=known,
            undo="" if known is None else undo_title(session, known),
            theme=theme,
            last_event=session.state.last_event,
            store_id=self.store_id,
            estimate=session.updates.last,
            version=__version__,
            adjudicating=session.adjudicating,
            blind=session.blind,
            has_guideline=self._references.guideline is not None,
            **{"photographs": None} | self._all_parts(position),
            groups=self._groups(search),
            comment=(session.decision_field(position.label).value or {}).get("comment", ""),
        )

    def changes(
        self, position: Position, since: int, estimate: int = 0, *, everything: bool = False
    ) -> dict[str, Any]:
        """Return what has changed after the event ``since``, or everything if it is negative.

        Args:
            position: Current cluster and label.
            since: Id of the last event that the page shows.
            estimate: Number of the last estimate of suggestions that the page shows.
            everything: Whether the page shows another cluster, so that all parts of this one are needed.

        Returns:
            ``last``, id of the last event; ``cluster`` and ``label``, the position; ``parts``, new HTML by id of the
            element; ``rows``, new rows by label_id, unless the whole list is among the parts. If suggestions have
            changed, ``suggestions`` with the number of the last ``estimate``, a ``message`` and more ``rows``.
        """
        session = self._session
        answer: dict[str, Any] = {
            "last": session.state.last_event,
            "cluster": position.cluster,
            "label": position.label,
            "rows": {},
        }
        if since < 0:
            suggestions = self._suggestions(position, estimate, with_rows=False)
            return answer | {"parts": self._all_parts(position)} | suggestions
        events = session.state.events_after(since)
        kinds = {event.kind for event in events}
        groups = session.groups()
        parts = {"card": self._card(position, groups), **self._photographs(position)}
        if events:
            parts |= self._summary_parts(position)
        if "group" in kinds:
            parts["groups"] = self._groups("")
        shown = {label.row.label_id for label in session.clusters()[position.cluster]}
        changed = dict.fromkeys(event.key for event in events if event.kind == "decision" and event.key in shown)
        if kinds & {"cluster", "name", "group"} or len(changed) > _MAX_CHANGED_ROWS:
            parts |= {"head": self._head(position), "list": self._list(position, groups)}
        else:
            answer["rows"] = {key: self._row(self._label_view(key, position, groups)) for key in changed}
        if everything:
            parts |= self._all_parts(position)
        return answer | {"parts": parts} | self._suggestions(position, estimate, with_rows="list" not in parts)

    def rows(self, label_ids: Iterable[str]) -> dict[str, Any]:
        """Return rows in full; labels that do not exist are left out.

        Returns:
            ``last``, id of the last event; ``rows``, rows by label_id.
        """
        groups = self._session.groups()
        labels = [self._session.labels[label_id] for label_id in label_ids if label_id in self._session.labels]
        rows = {label.row.label_id: self._row(label_view(self._session, label, groups)) for label in labels}
        return {"last": self._session.state.last_event, "rows": rows}

    def conflict(self, error: StaleError, path: str, form: FormFields) -> Markup:
        """Return both versions of labels that were changed in the meantime, with a form for either way to go on.

        Args:
            error: Labels that were changed.
            path: Path of the refused form.
            form: Fields of the refused form.
        """
        session = self._session
        groups = session.groups()
        rows = []
        for label_id in error.label_ids:
            label = session.labels[label_id]
            mine = DecisionView(None)
            if path == "/decide":
                value = session.resulting_decision(label, label_action(form), groups)
                mine = mine if value is NO_CANDIDATE else decision_view(value, groups)
            theirs = decision_view(session.decision_value(label_id), groups)
            rows.append((label.row.label, theirs, mine))
        fields = [
            (name, value.partition("@")[0]) for name, value in form.multi_items() if name not in _VERSION_FIELDS
        ]
        all_labels = {label_id: session.version(label_id) for label_id in label_versions(form)}
        unchanged = {label_id: v for label_id, v in all_labels.items() if label_id not in error.label_ids}
        return self._part("conflict", rows, path, fields, all_labels, unchanged)

    def render(self, template: str, **values: Any) -> str:
        """Return a page made from a template."""
        return self._environment.get_template(template).render(values)

    def photographs_page(self, view: PhotographsView, theme: str) -> str:
        """Return a page of photographs of a label."""
        return self._environment.get_template("all_photographs.html").render(view=view, theme=theme)

    def photograph_items(self, view: PhotographsView) -> Markup:
        """Return photographs of a label as list items."""
        html: Markup = self._photograph_macros.items(view.photographs)
        return html

    def problem(self, message: str, conflict: Markup, position: Position, theme: str) -> str:
        """Return a page that says why a form was refused."""
        template = self._environment.get_template("problem.html")
        return template.render(message=message, conflict=conflict, position=position, theme=theme)

    def _part(self, macro: str, *arguments: object, **options: object) -> Markup:
        html: Markup = getattr(self._macros, macro)(*arguments, **options)
        return html

    def _all_parts(self, position: Position) -> dict[str, Markup]:
        groups = self._session.groups()
        return {
            "head": self._head(position),
            "list": self._list(position, groups),
            "card": self._card(position, groups),
            **self._photographs(position),
            **self._summary_parts(position),
        }

    def _summary_parts(self, position: Position) -> dict[str, Markup]:
        """Return the parts that change with every event."""
        session = self._session
        return {
            "status": self._part("status", review_progress(session)),
            "clusters": self._part("clusters", cluster_views(session, session.counts.members), position),
            "history": self._part("history", history(session, _MAX_HISTORY), position),
        }

    def _head(self, position: Position) -> Markup:
        views = cluster_views(self._session, self._session.counts.members)
        (cluster,) = (view for view in views if view.number == position.cluster)
        others = [view for view in views if view != cluster]
        candidates = "Opinions" if self._session.adjudicating else "" if self._session.blind else "Suggestion"
        return self._part("head", cluster, others, position, candidates)

    def _list(self, position: Position, groups: Mapping[str, Group]) -> Markup:
        members = self._session.clusters()[position.cluster]
        current = next(n for n, label in enumerate(members) if label.row.label_id == position.label)
        in_full = {
            label.row.label_id for label in members[max(0, current - _FULL_BEFORE) : current + 1 + _FULL_AFTER]
        }
        sections = [
            (
                number,
                [
                    self._row(self._label_view(label.row.label_id, position, groups))
                    if label.row.label_id in in_full
                    else self._brief_row(brief_label_view(self._session, label))
                    for label in labels
                ],
            )
            for number, labels in subclusters(members)
        ]
        return self._part("list", sections, position)

    def _card(self, position: Position, groups: Mapping[str, Group]) -> Markup:
        label = self._label_view(position.label, position, groups)
        return self._part("card", label, self._references.facts.facts(position.label))

    def _label_view(self, label_id: str, position: Position, groups: Mapping[str, Group]) -> LabelView:
        """Return the row of a label; the suggestions of the current one are those that the page shows already."""
        label = self._session.labels[label_id]
        if label_id == position.label and position.seen is not None:
            label = self._session.updates.label_as_seen(label_id, position.seen) or label
        return label_view(self._session, label, groups)

    def _suggestions(self, position: Position, estimate: int, *, with_rows: bool) -> dict[str, Any]:
        """Return what has changed in suggestions after an estimate, if anything has.

        The row of the current label is among the rows: the script shows it when the annotator has left it.
        """
        session, groups = self._session, self._session.groups()
        if estimate >= session.updates.last:
            return {}
        changed = session.updates.changed_after(estimate) if with_rows else []
        rows = {
            label_id: self._row(label_view(session, session.labels[label_id], groups))
            for label_id in changed
            if session.cluster(label_id) == position.cluster
        }
        message = session.updates.message_after(estimate)
        return {"suggestions": {"estimate": session.updates.last, "rows": rows, "message": message}}

    def _photographs(self, position: Position) -> dict[str, Markup]:
        """Return the part with photographs of the label, if there are any to show with labels."""
        if self._references.photographs is None:
            return {}
        view = photographs_view(self._references.photographs, self._session, position.label)
        return {"photographs": self._photograph_macros.beside_card(view)}

    def _groups(self, search: str) -> Markup:
        wanted = search.casefold().strip()
        groups = self._session.groups()
        matches = {
            key: group
            for key, group in groups.items()
            if wanted in group.name.casefold() or wanted in group.guideline.casefold()
        }
        versions = {key: self._session.state.field("group", key).version for key in groups}
        return self._part("groups", matches, versions, ROOTS, groups, self._session.group_notes)
