from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.review.state import Change
from hgld.review.store import open_store, read_store


def test_store_has_one_writer_and_one_annotator(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.sqlite", "ada"):
        with pytest.raises(BusyError, match="open in another"), open_store(tmp_path / "a.sqlite", "ada"):
            pass
        assert read_store(tmp_path / "a.sqlite")[0] == "ada", "reading is possible meanwhile"
        (tmp_path / "other.sqlite").symlink_to("a.sqlite")
        with (
            pytest.raises(BusyError, match="other.sqlite.*open in another"),
            open_store(tmp_path / "other.sqlite", "ada"),
        ):
            pass
    with (
        pytest.raises(ConfigurationError, match='decisions of "ada", not of "ben"'),
        open_store(tmp_path / "a.sqlite", "ben"),
    ):
        pass


def test_events_cannot_be_changed_or_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.sqlite", "ada") as store:
        store.append([Change("name", "1", "first")])
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    for statement in ("DELETE FROM event", "UPDATE event SET new = 'null'"):
        with pytest.raises(sqlite3.IntegrityError, match="only added"):
            connection.execute(statement)
    connection.close()


def test_other_files_are_not_read_as_stores(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be looked at" * 30)
    connection = sqlite3.connect(tmp_path / "other.sqlite")
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    for name, problem in (
        ("text", "not a store of decisions, or damaged"),
        ("other", "another SQLite file"),
        ("absent", "no such file"),
    ):
        with pytest.raises(InputError, match=problem):
            read_store(tmp_path / f"{name}.sqlite")
    with pytest.raises(InputError, match="another SQLite file"), open_store(tmp_path / "other.sqlite", "ada"):
        pass


def test_commits_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # no_wait_for_disk
    with open_store(tmp_path / "ada.sqlite", "ada") as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (3,), "EXTRA"
