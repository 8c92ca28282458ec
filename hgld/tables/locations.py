"""Usual places of the tables of a scrape."""

from __future__ import annotations

from pathlib import Path


def classes_path(scraped: Path) -> Path:
    """Return where the table ``classes`` of a scrape is: ``x.classes.parquet`` beside ``x.parquet``."""
    return scraped.with_suffix(".classes.parquet")


def find_scraped_tables(path: Path) -> list[Path]:
    """Return the scraped tables in the folder of ``path`` with usual names, such as ``scraped_train.parquet``."""
    candidates = sorted(path.parent.glob("scraped*.parquet"))
    return [table for table in candidates if table.suffixes[-2:] != [".classes", ".parquet"]]
