"""Markdown that several pages of the reference are written with."""

from __future__ import annotations

import re
from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; line breaks and bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def code(text: object) -> str:
    """Return a text as code; an empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def from_docstring(text: str) -> str:
    """Return text of a docstring, with roles such as ``:class:`~a.b.C``` as code and its code marks as Markdown's.

    >>> from_docstring("see :class:`~hgld.losses.SupAP`, ``k`` is None")
    'see `SupAP`, `k` is None'
    """
    text = re.sub(r":\w+:`~(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
