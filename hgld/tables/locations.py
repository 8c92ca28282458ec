"""Where the tables of a scrape lie beside each other."""

from __future__ import annotations

from pathlib import Path


def classes_beside(scraped: Path) -> Path:
    """Where a scrape's table ``classes`` is: ``scraped_train.classes.parquet`` beside ``scraped_train.parquet``."""
    return scraped.with_suffix(".classes.parquet")


def scraped_beside(path: Path) -> list[Path]:
    """The scraped tables in the folder of ``path`` under their usual names, such as ``scraped_train.parquet``."""
    found = sorted(path.parent.glob("scraped*.parquet"))
    return [scraped for scraped in found if scraped.suffixes[-2:] != [".classes", ".parquet"]]
