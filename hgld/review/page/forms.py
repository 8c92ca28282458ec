"""Parse the forms of the page: which labels a form is about, and what to do with them."""

from __future__ import annotations

from hgld.pages.forms import FormFields
from hgld.review.actions import InvalidActionError, LabelAction
from hgld.review.entered_texts import parse_number

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
    return _label_action(form, None if unchanged else comment.strip())


def _label_action(form: FormFields, comment: str | None) -> LabelAction:
    kind, _, value = form.get("choose", "").partition(":")
    if kind == "take":
        number, _, label = value.partition("@")
        if label and form.get("focus", label).partition(":")[2] != label.partition(":")[2]:
            comment = None
        return LabelAction("take", candidate=parse_number(number) or 0, comment=comment)
    if kind == "enter":  # in the comment or another field
        return LabelAction("comment", comment=comment)
    if kind == "group":
        return LabelAction("unsure" if form.get("guess") else "group", value, comment=comment)
    return LabelAction(kind, comment=comment)


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
