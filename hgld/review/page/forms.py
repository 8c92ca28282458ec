"""The page's forms: which labels one is about, and what it wants done with them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request

from hgld.review.session import Choice, RefusedError

Form = ImmutableMultiDict[str, str]


async def read_form(request: Request) -> Form:
    """The fields of a form in the encoding that forms have by default."""
    text = (await request.body()).decode("utf-8", "replace")
    return ImmutableMultiDict(parse_qsl(text, keep_blank_values=True))


def seen_in(form: Form) -> dict[str, int]:
    """The labels that a form is about, with the versions that were seen.

    That is the label of the button, else the ticked ones, else the one that the card shows.
    """
    button = form.get("choose", "").partition("@")[2] if form.get("choose", "").startswith("take:") else ""
    texts = [button] if button else form.getlist("label") or form.getlist("focus")
    seen = {}
    for text in texts:
        version, _, label_id = text.partition(":")
        if not version.isdecimal():
            raise RefusedError(f'"{text}" is no label with its version')
        seen[label_id] = int(version)
    return seen


def choice_in(form: Form) -> Choice:
    """What a form of ``/decide`` asks for: ``choose`` is e.g. ``drop``, ``group:lake`` or ``take:1``."""
    what, _, which = form.get("choose", "").partition(":")
    comment = None if form.get("comment", "") == form.get("comment_was", "") else form["comment"].strip()
    if what == "take":
        number = which.partition("@")[0]
        return Choice("take", offer=int(number) if number.isdecimal() else 0, comment=comment)
    if what == "group":
        return Choice("unsure" if form.get("guess") else "group", which, comment=comment)
    return Choice(what, comment=comment)


def number_in(form: Form, name: str) -> int:
    """The number in a field.

    Raises:
        RefusedError: it holds none.
    """
    text = form.get(name, "")
    if not text.isdecimal():
        raise RefusedError(f'"{name}" is "{text}"; expected a number')
    return int(text)
