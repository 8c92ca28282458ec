"""Parse the forms of the page, and apply them to the session."""

from __future__ import annotations

from collections.abc import Callable

from hgld.pages.requests import FormFields
from hgld.review.actions import InvalidActionError, LabelAction, StaleError, parse_number
from hgld.review.session import ReviewSession

_NO_LINE_BREAKS = str.maketrans("", "", "\r\n")


def label_versions(form: FormFields) -> dict[str, int]:
    """Return the labels that a form is about, with the versions that the annotator saw.

    These are the label of the pressed button, else the ticked labels, else the current label. A label is written as
    ``version:label_id``.

    Raises:
        InvalidActionError: A label is written in another way.
    """
    button = form.get("choose", "").partition("@")[2] if form.get("choose", "").startswith("take:") else ""
    texts = [button] if button else form.getlist("label") or list(filter(None, form.getlist("focus")))
    versions = {}
    for text in texts:
        number, _, label_id = text.partition(":")
        version = parse_number(number)
        if version is None:
            raise InvalidActionError(f'"{text}" is not a label with its version')
        versions[label_id] = version
    return versions


def label_action(form: FormFields) -> LabelAction:
    """Return the action of a form; its field ``choose`` is e.g. ``drop``, ``group:lake`` or ``take:1``.

    The comment of the current label is kept from another label whose button was pressed.
    """
    comment, before = form.get("comment", ""), form.get("comment_was", "")
    # A text field drops line breaks, which a comment from a sheet may have.
    unchanged = comment.translate(_NO_LINE_BREAKS) == before.translate(_NO_LINE_BREAKS)
    new_comment = None if unchanged else comment.strip()
    kind, _, value = form.get("choose", "").partition(":")
    if kind == "take":
        number, _, label = value.partition("@")
        if label and form.get("focus", label).partition(":")[2] != label.partition(":")[2]:
            new_comment = None
        return LabelAction("take", candidate=parse_number(number) or 0, comment=new_comment)
    if kind == "enter":  # in the comment or another field
        return LabelAction("comment", comment=new_comment)
    if kind == "group":
        return LabelAction("unsure" if form.get("guess") else "group", value, comment=new_comment)
    return LabelAction(kind, comment=new_comment)


def int_field(form: FormFields, name: str) -> int:
    """Return the number in a field.

    Raises:
        InvalidActionError: The field does not hold a number.
    """
    text = form.get(name, "")
    number = parse_number(text)
    if number is None:
        raise InvalidActionError(f'"{name}" is "{text}"; expected a number')
    return number


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


def _group_version(form: FormFields) -> tuple[str, int]:
    version, _, key = form.get("group", "").partition(":")
    return key, parse_number(version) or 0


def _rename_group(session: ReviewSession, form: FormFields) -> int | None:
    key, version = _group_version(form)
    return session.rename_group(key, form.get("name", ""), version)


def _merge_group(session: ReviewSession, form: FormFields) -> int | None:
    key, version = _group_version(form)
    return session.merge_group(key, form.get("into", ""), version)


#: Handlers of the forms, by path.
HANDLERS: dict[str, Handler] = {
    "/decide": _decide,
    "/move": _move,
    "/merge": lambda session, form: session.merge(int_field(form, "cluster"), int_field(form, "into")),
    "/rename-cluster": lambda session, form: session.rename_cluster(
        int_field(form, "cluster"), form.get("name", ""), int_field(form, "version")
    ),
    "/propose-group": lambda session, form: session.propose_group(
        form.get("name", ""), form.get("root", ""), form.get("guideline", "")
    ),
    "/rename-group": _rename_group,
    "/merge-group": _merge_group,
    "/undo": _undo,
    "/redo": _redo,
}
