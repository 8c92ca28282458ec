"""What each form of the page does to the session."""

from __future__ import annotations

from collections.abc import Callable

from hgld.pages.forms import FormFields
from hgld.review.actions import InvalidActionError, StaleError
from hgld.review.entered_texts import parse_number
from hgld.review.page.forms import int_field, label_action, label_versions
from hgld.review.session import ReviewSession

#: Applies a form to the session and returns the step, or None if nothing changed.
Handler = Callable[[ReviewSession, FormFields], "int | None"]


def _decide(session: ReviewSession, form: FormFields) -> int | None:
    if form.get("choose") == "enter" and form.get("name"):
        return _move(session, form)  # Enter was pressed in the name of a new cluster
    action = label_action(form)
    versions = label_versions(form)
    try:
        return session.decide(versions, action)
    except StaleError as error:
        # A form whose answer was lost is sent again; what it did the first time is no conflict.
        if "again" not in form or not all(session.is_done(label_id, action) for label_id in error.label_ids):
            raise
        others = {label_id: version for label_id, version in versions.items() if label_id not in error.label_ids}
        return session.decide(others, action) if others else None


def _move(session: ReviewSession, form: FormFields) -> int | None:
    cluster = int_field(form, "into") if form.get("into") else None
    return session.move(label_versions(form), cluster, form.get("name", ""))


def _merge(session: ReviewSession, form: FormFields) -> int | None:
    return session.merge(int_field(form, "cluster"), int_field(form, "into"))


def _rename_cluster(session: ReviewSession, form: FormFields) -> int | None:
    return session.rename_cluster(int_field(form, "cluster"), form.get("name", ""), int_field(form, "version"))


def _propose_group(session: ReviewSession, form: FormFields) -> int | None:
    return session.propose_group(form.get("name", ""), form.get("root", ""), form.get("guideline", ""))


def _rename_group(session: ReviewSession, form: FormFields) -> int | None:
    key, version = _group_version(form)
    return session.rename_group(key, form.get("name", ""), version)


def _merge_group(session: ReviewSession, form: FormFields) -> int | None:
    key, version = _group_version(form)
    return session.merge_group(key, form.get("into", ""), version)


def _group_version(form: FormFields) -> tuple[str, int]:
    version, _, key = form.get("group", "").partition(":")
    return key, parse_number(version) or 0


def _undo(session: ReviewSession, form: FormFields) -> int | None:
    step = int_field(form, "step") if form.get("step") else session.state.next_undo
    if step is None:
        raise InvalidActionError("there is nothing to undo")
    return session.undo(step)


def _redo(session: ReviewSession, _: FormFields) -> int | None:
    step = session.state.next_redo
    if step is None:
        raise InvalidActionError("there is nothing to redo")
    return session.undo(step)


#: Handlers of the forms, by path.
HANDLERS: dict[str, Handler] = {
    "/decide": _decide,
    "/move": _move,
    "/merge": _merge,
    "/rename-cluster": _rename_cluster,
    "/propose-group": _propose_group,
    "/rename-group": _rename_group,
    "/merge-group": _merge_group,
    "/undo": _undo,
    "/redo": _redo,
}
