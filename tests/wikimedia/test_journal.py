"""Journals that are reopened, truncated or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.wikimedia.journal import Journal

SCRAPE = {"split": "train"}
BATCHES: list[tuple[str, int, dict[str, Any]]] = [
    ("page", 1, {"Category:Ä\n\u2028": ["found", None]}),
    ("item", 2, {"Q1": None, "Q2": [1, ["Q3"]]}),
]


def filled(path: Path) -> Path:
    with Journal(path, SCRAPE) as journal:
        for batch in BATCHES:
            journal.append(*batch)
    return path


def test_appended_batches_are_read_back(tmp_path: Path) -> None:
    with Journal(filled(tmp_path / "j"), SCRAPE) as journal:
        assert list(journal.batches()) == BATCHES
        journal.append("page", 3, {})
        assert list(journal.batches()) == [*BATCHES, ("page", 3, {})]


def test_batch_is_on_disk_before_the_journal_is_closed(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", SCRAPE) as journal:
        journal.append(*BATCHES[0])
        assert "Category:Ä" in (tmp_path / "j").read_text(encoding="utf-8")


@given(cut=st.integers(min_value=0, max_value=400))
def test_truncated_journal_keeps_its_complete_batches(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = filled(tmp_path_factory.mktemp("journal") / "j")
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    kept = max(0, whole[:cut].count(b"\n") - 1)
    with Journal(path, SCRAPE) as journal:
        assert list(journal.batches()) == BATCHES[:kept]
        for batch in BATCHES[kept:]:
            journal.append(*batch)
    assert path.read_bytes() == whole


def test_journal_of_another_scrape_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "j")
    before = path.read_bytes()
    with pytest.raises(InputError, match="belongs to another scrape.*`force`"):
        Journal(path, {"split": "index"})
    assert path.read_bytes() == before


def test_damage_before_the_last_line_is_reported(tmp_path: Path) -> None:
    path = filled(tmp_path / "j")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"\x00\x00", *lines[2:]]))
    with Journal(path, SCRAPE) as journal, pytest.raises(InputError, match="line 2 is damaged"):
        list(journal.batches())
