"""Render the review page as HTML: the whole page, or the parts of it that have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from hgld.pages.requests import FormFields
from hgld.pages.templates import page_templates
from hgld.review.actions import StaleError
from hgld.review.label_lists import LabelLists
from hgld.review.page.forms import label_action, label_versions
from hgld.review.page.lists import ListRenderer
from hgld.review.page.position import Position
from hgld.review.page.progress import describe_step, history, review_progress, sentence, undo_title
from hgld.review.page.views import DecisionView, PhotographsView, decision_view, label_view, photographs_view
from hgld.review.references import References
from hgld.review.session import NO_CANDIDATE
from hgld.taxonomy.groups import ROOTS, Group
from hgld.version import __version__

_MAX_HISTORY = 40
#: If more rows than this have changed, the whole list is sent, which browsers replace faster.
_MAX_CHANGED_ROWS = 100
#: Fields of a refused form that are not repeated when it is sent again.
_VERSION_FIELDS = ("label", "focus", "since")


class PageRenderer:
    """Renders the page of a session."""

    def __init__(self, lists: LabelLists, references: References) -> None:
        session = self._session = lists.session
        self._references = references
        #: Name of the store for the script, which keeps what is not yet saved apart for every store.
        self.store_id = hashlib.sha256(str(session.store.path.absolute()).encode(errors="replace")).hexdigest()[:16]
        self._environment = page_templates("review")
        self._macros: Any = self._environment.get_template("parts.html").module
        self._photograph_macros: Any = self._environment.get_template("photographs.html").module
        self._lists = ListRenderer(lists, self._environment)

    def page(self, position: Position, search: str, theme: str, step: int | None = None) -> str:
        """Return the whole page."""
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
            version=__version__,
            adjudicating=session.adjudicating,
            blind=session.blind,
            has_guideline=self._references.guideline is not None,
            **{"photographs": None} | self._all_parts(position),
            groups=self._groups(search),
            comment=(session.decision_field(position.label).value or {}).get("comment", ""),
        )

    def changes(self, position: Position, since: int, *, everything: bool = False) -> dict[str, Any]:
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
        groups = session.groups()
        parts = {"card": self._card(position, groups), **self._photographs(position)}
        if events:
            parts |= self._summary_parts(position)
        if "group" in kinds:
            parts["groups"] = self._groups("")
        changed = {event.key for event in events if event.kind == "decision" and event.key in session.labels}
        if position.view.cluster is not None:
            changed = {key for key in changed if session.cluster(key) == position.view.cluster}
        if kinds & {"cluster", "name", "group"} or len(changed) > _MAX_CHANGED_ROWS:
            parts |= {"head": self._lists.head(position, groups), "list": self._lists.whole_list(position, groups)}
        else:
            answer["rows"] = self._lists.rows(changed, position, groups)
        if everything:
            parts |= self._all_parts(position)
        return answer | {"parts": parts}

    def rows(self, label_ids: Iterable[str], position: Position) -> dict[str, Any]:
        """Return rows of the list in full; labels that do not exist are left out.

        Returns:
            ``last``, id of the last event; ``rows``, rows by label_id.
        """
        rows = self._lists.rows(label_ids, position, self._session.groups())
        return {"last": self._session.state.last_event, "rows": rows}

    def conflict(self, error: StaleError, path: str, form: FormFields) -> Markup:
        """Return both versions of labels that were changed in the meantime, with a form for either way to go on."""
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
            rows.append((label.label, theirs, mine))
        fields = [
            (name, value.partition("@")[0]) for name, value in form.multi_items() if name not in _VERSION_FIELDS
        ]
        all_labels = {label_id: session.version(label_id) for label_id in label_versions(form)}
        unchanged = {label_id: v for label_id, v in all_labels.items() if label_id not in error.label_ids}
        return self._part("conflict", rows, path, fields, all_labels, unchanged)

    def render(self, template: str, **values: Any) -> str:
        """Return a page made from a template."""
        return self._environment.get_template(template).render(values)

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
            "head": self._lists.head(position, groups),
            "list": self._lists.whole_list(position, groups),
            "card": self._card(position, groups),
            **self._photographs(position),
            **self._summary_parts(position),
        }

    def _summary_parts(self, position: Position) -> dict[str, Markup]:
        """Return the parts that change with every event."""
        session = self._session
        return {
            "status": self._part("status", review_progress(session), session.adjudicating),
            "clusters": self._lists.places(position),
            "history": self._part("history", history(session, _MAX_HISTORY), len(session.state.steps), position),
        }

    def _card(self, position: Position, groups: Mapping[str, Group]) -> Markup:
        if not position.label:
            return self._part("no_card")
        label = label_view(self._session, self._session.labels[position.label], groups)
        return self._part("card", label, self._references.facts.facts(position.label))

    def _photographs(self, position: Position) -> dict[str, Markup]:
        """Return the part with photographs of the label, if there are any to show with labels."""
        if self._references.photographs is None:
            return {}
        view = PhotographsView()
        if position.label:
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
        return self._part("groups", matches, versions, ROOTS, groups)
