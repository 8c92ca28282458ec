import datetime
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hgld import tables
from hgld.hierarchy.build import BuildSummary, build_file
from hgld.hierarchy.settings import BuildConfig
from hgld.taxonomy.decisions import Decision, write_decisions
from hgld.taxonomy.groups import Group, write_taxonomy
from tests.assertions import not_none
from tests.labels.label_tables import PROVENANCE, scraped_row

WHEN = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)
#: Items and labels.
LAKE, VOLCANO, MOUNTAIN = ("Q23397", "lake"), ("Q8072", "volcano"), ("Q8502", "mountain")
CHURCH, BRIDGE, ATTRACTION = ("Q16970", "church building"), ("Q12280", "bridge"), ("Q570116", "tourist attraction")
WIDE = ("Q41176", "building")


def write_annotations(folder: Path) -> Path:
    """Write decisions and a taxonomy of five groups; "building" is dropped, "volcano" unsure, all others decided."""
    groups = [
        Group("lake", "natural", "Standing water.", ("Q23397",)),
        Group("mountain", "natural", "High land.", ("Q8502",)),
        Group("volcano", "natural", "Fire.", ("Q8072",)),
        Group("church", "human-made", "For worship.", ("Q16970",)),
        Group("bridge", "human-made", "To cross.", ("Q12280",)),
    ]
    folder.mkdir(exist_ok=True)
    write_taxonomy(folder / "taxonomy.csv", groups)
    decided = [
        Decision("Q23397", "lake", "group", "lake", "ada", WHEN, "clear"),
        Decision("Q8502", "mountain", "group", "mountain", "ada+ben", WHEN),
        Decision("Q8072", "volcano", "unsure", "volcano", "ada", WHEN, "or a mountain?"),
        Decision("Q16970", "church building", "group", "church", "ada", WHEN),
        Decision("Q12280", "bridge", "group", "bridge", "ben", WHEN),
        Decision("Q41176", "building", "drop", None, "ben", WHEN, "too wide"),
    ]
    write_decisions(folder / "decisions.csv", decided)
    (folder / "irrelevant.csv").write_text("item,label,reason\nQ570116,tourist attraction,says nothing\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the test, with the files of :func:`write_annotations`."""
    return write_annotations(tmp_path)


def scraped_file(folder: Path, landmarks: Sequence[Sequence[tuple[str | None, str]]], split: str = "train") -> Path:
    """Write scraped_<split>.parquet: landmarks 1, 2, ... with these values."""
    rows = [
        scraped_row(
            number,
            values,
            split=split,
            resolved_title=f"Category:Landmark {number}",
            item=f"Q{number}",
            route="soft_redirect",
            revision=1,
        )
        for number, values in enumerate(landmarks, 1)
    ]
    path = folder / f"scraped_{split}.parquet"
    table = pa.Table.from_pylist(rows, schema=tables.SCRAPED.schema)
    tables.write_table(path, tables.SCRAPED, table, PROVENANCE)
    return path


@pytest.fixture
def write_scraped(folder: Path) -> Callable[..., Path]:
    """Return :func:`scraped_file` for the folder of the test."""
    return partial(scraped_file, folder)


@pytest.fixture
def write_completed(folder: Path) -> Callable[..., Path]:
    """Write completed.parquet: (split, landmark, group, score) of each proposal, group None without photographs."""

    def write(proposals: Sequence[tuple[str, int, str | None, float | None]]) -> Path:
        rows = [
            {
                "split": split,
                "landmark_id": landmark_id,
                "category": f"http://commons.wikimedia.org/wiki/Category:L{landmark_id}",
                "reason": "unlabelled",
                "photographs": 3 if group else 0,
                "group": group,
                "score": score,
                "votes": 2.5 if group else 0.0,
                "second_group": "bridge" if group else None,
                "second_votes": 0.5 if group else 0.0,
                "nearest": [{"name": "train/1", "group": "lake", "similarity": 0.75}] if group else [],
            }
            for split, landmark_id, group, score in proposals
        ]
        path = folder / "completed.parquet"
        table = pa.Table.from_pylist(rows, schema=tables.COMPLETED.schema)
        tables.write_table(path, tables.COMPLETED, table, PROVENANCE)
        return path

    return write


def run(clean: Path, config: BuildConfig | None = None, **options: Any) -> BuildSummary:
    """Build hierarchy.parquet beside a clean table, with the decisions, groups and labels of :func:`folder`."""
    return not_none(rerun(clean, config, **options))


def rerun(clean: Path, config: BuildConfig | None = None, **options: Any) -> BuildSummary | None:
    """Build like :func:`run`, and return None if the hierarchy is up to date."""
    folder = clean.parent
    files = {"decisions": folder / "decisions.csv", "taxonomy": folder / "taxonomy.csv"}
    if config is not None and config.multi:
        files["irrelevant"] = folder / "irrelevant.csv"
    return build_file(clean, folder / "hierarchy.parquet", config, **(files | options))
