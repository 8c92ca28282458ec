"""Write tables and links in Markdown, and join names in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], n_numeric: int = 0) -> str:
    r"""Return a Markdown table.

    Args:
        header: Name of each column.
        rows: Values of each row.
        n_numeric: Number of columns at the end that are aligned to the right.

    >>> print(markdown_table(["metric", "value"], [["R@1", "1.0"]], n_numeric=1))
    | metric | value |
    | --- | --: |
    | R@1 | 1.0 |
    """
    alignment = ["---"] * (len(header) - n_numeric) + ["--:"] * n_numeric
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join(alignment)} |"]
    for row in rows:
        cells = [text.replace("|", "\\|").replace("\n", " ") for text in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def markdown_link(path: Path, folder: Path) -> str:
    """Return a link from a text in a folder to a file; a PNG file is shown as a picture."""
    link = f"[{path.stem}]({path.relative_to(folder).as_posix()})"
    if path.suffix == ".png":
        return f"!{link}"
    return link


def join_names(names: Iterable[str]) -> str:
    """Join names by commas and "and".

    >>> join_names(["genus", "family", "order"])
    'genus, family and order'
    """
    words = list(names)
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"
