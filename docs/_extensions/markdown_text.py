"""Markdown that several pages of the reference are written with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import cleandoc


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, whose rows become paragraphs on phones; line breaks and bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
    # The style sheet cannot read the headers that it hides on phones; defaults need theirs, in the third column.
    classes = (
        "reference-table with-default" if list(header[2:3]) == ["default"] else "reference-table"
    )
    return f":::{{div}} {classes}\n\n{text}\n\n:::"


def code(text: object) -> str:
    """Return a text as code; an empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def from_docstring(text: str) -> str:
    """Return text of a docstring, with roles such as ``:class:`~a.b.C``` as code and its code marks as Markdown's.

    >>> from_docstring("see :class:`~hgld.losses.SupAP`, ``k`` is None")
    'see `SupAP`, `k` is None'
    """
    text = re.sub(r":\w+:`~(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    parts = re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`").split("`")
    parts[::2] = [
        part.replace("_", r"\_") for part in parts[::2]
    ]  # indices in formulas are not emphasis
    return "`".join(parts)


def blocks_from_docstring(text: str) -> str:
    r"""Return paragraphs of a docstring with literal blocks as fences and without examples.

    >>> print(blocks_from_docstring("The mean of ::\n\n    a + b\n\n>>> 1"))
    The mean of
    <BLANKLINE>
    ```text
    a + b
    ```
    """
    blocks = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            blocks.append(f"```text\n{cleandoc(paragraph)}\n```")
        elif not paragraph.startswith(">>>") and (prose := paragraph.removesuffix("::").rstrip()):
            blocks.append(from_docstring(prose))
    return "\n\n".join(blocks)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
