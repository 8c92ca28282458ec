"""Markdown that hgld writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], n_numeric: int = 0) -> str:
    r"""Return a table whose last ``n_numeric`` columns are aligned to the right.

    >>> print(markdown_table(["metric", "value"], [["R@1", "1.0"]], n_numeric=1))
    | metric | value |
    | --- | --: |
    | R@1 | 1.0 |
    """
    alignment = ["---"] * (len(header) - n_numeric) + ["--:"] * n_numeric
    cells = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, alignment, *cells])


def markdown_link(path: Path, folder: Path) -> str:
    """Return a link to a page, or the picture itself, from a text in a folder."""
    return f"{'!' * (path.suffix == '.png')}[{path.stem}]({path.relative_to(folder).as_posix()})"


def in_words(names: Iterable[str]) -> str:
    """Return names as in a sentence.

    >>> in_words(["genus", "family", "order"])
    'genus, family and order'
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
