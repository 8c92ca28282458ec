"""Every number of the papers' tables, from the CSV files in docs/reference/published."""

from __future__ import annotations

import csv
from pathlib import Path

from markdown_text import table

FOLDER = Path(__file__).parents[1] / "reference" / "published"


def published_pages() -> dict[str, str]:
    """Return the page of the published numbers, in the order of ``tables.csv``."""
    _, *listed = _read_rows(FOLDER / "tables.csv")
    parts = [
        "# Published numbers",
        "Numbers that the papers print, in percent; empty cells were not published. The same tables are CSV files in "
        "`docs/reference/published`. [Published results](../published_results.md) lists the commands that repeat "
        "them, and the known differences.",
    ]
    current_paper = None
    for file, paper, title in listed:
        if paper != current_paper:
            parts.append(f"## {paper}")
            current_paper = paper
        header, *rows = _read_rows(FOLDER / file)
        parts += [f"### {title}", table(header, rows)]
    return {"published_numbers.md": "\n\n".join(parts) + "\n"}


def _read_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))
