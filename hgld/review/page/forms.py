"""Read the forms and addresses of the page: the position of the annotator, and what is done to the session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from hgld.pages.server import FormFields, parse_number
from hgld.review.label_lists import LabelLists, View, parse_view
from hgld.review.labels import ReviewLabel
from hgld.review.session import InvalidActionError, LabelAction, ReviewSession, StaleError

_NO_LINE_BREAKS = str.maketrans("", "", "\r\n")


@dataclass(frozen=True, slots=True)
class Position:
    """A view and a label in its list; the label is empty if the list is."""

    view: View
    label: str

    @property
    def address(self) -> str:
        """The address of the page with this position."""
        return f"/?{self.view.query}&{urlencode({'label': self.label})}"


def find_position(lists: LabelLists, fields: FormFields) -> Position:
    """Return the position that a request names, or the nearest one that exists.

    A form names it by ``at_view`` and ``at_label``, whose label the page showed in this view; an address by fields
    of a view and ``label``.
    """
    session = lists.session
    was_shown = "at_view" in fields
    view = parse_view(fields["at_view"] if was_shown else fields.multi_items())
    label = fields.get("at_label") or fields.get("label", "")
    is_label = label in session.labels
    if view is not None and view.cluster is None:
        as_of = session.state.last_event if view.as_of is None else view.as_of
        view = replace(lists.offered(view), as_of=as_of)
        if is_label and was_shown:
            return Position(view, label)
        return _in_list(session, view, lists.label_ids(view), label)
    if view is not None and is_label and session.cluster(label) == view.cluster:
        return Position(view, label)
    clusters = session.clusters()
    if view is None or view.cluster not in clusters:
        view = View(session.cluster(label) if is_label else _first_unfinished(session, clusters))
    return _in_list(session, view, lists.label_ids(view), label)


def next_position(lists: LabelLists, position: Position) -> Position:
    """Return the next undecided label of the list if the present one is decided, else the same position."""
    session = lists.session
    if position.label and not session.is_decided(position.label):
        return position
    label_ids = lists.label_ids(position.view)
    index = label_ids.index(position.label) if position.label in label_ids else -1
    undecided = _first_undecided(session, label_ids[index + 1 :] + label_ids[: max(0, index)])
    return Position(position.view, undecided or position.label)


def position_of_step(lists: LabelLists, step: int, position: Position) -> Position:
    """Return where a step changed something.

    Returns:
        First label that was changed; if labels were only moved, the first of them that is undecided, if any. The view
        stays if it shows one of the labels, else it is the label's cluster.
    """
    session = lists.session
    events = session.state.steps[step]
    labels = [event.key for event in events if event.kind in ("decision", "cluster") and event.key in session.labels]
    if not labels:
        renamed = next((int(event.key) for event in events if event.kind == "name"), None)
        if renamed is None or renamed not in session.clusters():
            return position
        return _in_list(session, View(renamed), lists.label_ids(View(renamed)), position.label)
    in_view = set(labels).intersection(lists.label_ids(position.view))
    candidates = [label for label in labels if label in in_view] or labels
    label = position.label if position.label in candidates else candidates[0]
    if events[0].kind != "decision":
        label = _first_undecided(session, candidates) or label
    if position.view.cluster is None and label in in_view:
        return Position(position.view, label)
    return Position(View(session.cluster(label)), label)


def _in_list(session: ReviewSession, view: View, label_ids: list[str], label: str) -> Position:
    """Return the position of a label, or of the first undecided one if the list does not have it."""
    if label not in label_ids:
        label = _first_undecided(session, label_ids) or next(iter(label_ids), "")
    return Position(view, label)


def _first_unfinished(session: ReviewSession, clusters: Mapping[int, list[ReviewLabel]]) -> int:
    """Return the first cluster with an undecided label, or the first cluster if there is none."""
    for number, members in clusters.items():
        if _first_undecided(session, (label.label_id for label in members)) is not None:
            return number
    return next(iter(clusters))


def _first_undecided(session: ReviewSession, label_ids: Iterable[str]) -> str | None:
    return next((label_id for label_id in label_ids if not session.is_decided(label_id)), None)


def label_versions(form: FormFields) -> dict[str, int]:
    """Return the labels that a form is about, with the versions that the annotator saw.

    These are the label of the pressed button, else the ticked labels, else the current label. A label is written as
    ``version:label_id``.
    """
    kind, _, button = form.get("choose", "").partition("@")
    if button and kind.startswith("take:"):
        texts = [button]
    else:
        texts = form.getlist("label") or list(filter(None, form.getlist("focus")))
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
    """Return the number in a field."""
    text = form.get(name, "")
    number = parse_number(text)
    if number is None:
        raise InvalidActionError(f'"{name}" is "{text}"; expected a number')
    return number


#: Function that applies a form to the session and returns the step, or None if nothing changed.
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
