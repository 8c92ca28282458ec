"""Where an annotator's events are kept: an SQLite file that only grows.

A step is one transaction with ``synchronous=FULL``, so that what was answered is on disk. While a process has the
store open for writing, a lock beside it keeps others from doing so, and tells them; reading is always possible.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.review.events import Change, Event, Fold
from hgld.taxonomy.decisions import parse_time
from hgld.version import __version__

#: "hgld" as a number, which tells the file from other SQLite files.
_APPLICATION_ID = int.from_bytes(b"hgld", "big")
_LAYOUT = 1
_TABLES = (
    "CREATE TABLE about (annotator TEXT NOT NULL)",
    "CREATE TABLE event (id INTEGER PRIMARY KEY, step INTEGER NOT NULL, at TEXT NOT NULL, annotator TEXT NOT NULL, "
    "kind TEXT NOT NULL, key TEXT NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL, tool TEXT NOT NULL, "
    "undoes INTEGER REFERENCES event (id))",
    "CREATE TRIGGER no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'events are only added'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'events are only added'); END",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_LAYOUT}",
)
_INSERT = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Signed:
    """A change that somebody else, or at another time, has made."""

    change: Change
    annotator: str
    at: datetime


class Store:
    """An open store.

    Made by :func:`open_store`; used from one thread at a time.

    Args:
        path: the file.
        annotator: whose it is.
        connection: to the file.
    """

    def __init__(self, path: Path, annotator: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.annotator = annotator
        self.fold = Fold(_events(connection))
        self._connection = connection

    def append(self, changes: Sequence[Change | Signed]) -> int | None:
        """Make changes as one step, all or none.

        Args:
            changes: a cell at most once; those that change nothing are left out.

        Returns:
            The step's id, or None if nothing was to change.

        Raises:
            InputError: the file cannot be written; nothing was changed.
        """
        now = datetime.now(timezone.utc)
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)  # as it is kept
        events: list[Event] = []
        step = self.fold.last + 1
        for entry in changes:
            signed = entry if isinstance(entry, Signed) else Signed(entry, self.annotator, now)
            change = signed.change
            old = self.fold.cell(change.kind, change.key).value
            if old != change.new:
                event = Event(
                    id=step + len(events),
                    step=step,
                    at=signed.at,
                    annotator=signed.annotator,
                    kind=change.kind,
                    key=change.key,
                    old=old,
                    new=change.new,
                    tool=__version__,
                    undoes=change.undoes,
                )
                events.append(event)
        if not events:
            return None
        try:
            with self._connection:  # a transaction
                self._connection.executemany(_INSERT, map(_values, events))
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: cannot be written ({error}); nothing was changed") from error
        for event in events:
            self.fold.add(event)
        return step


@contextmanager
def open_store(path: Path, annotator: str) -> Iterator[Store]:
    """Open a store for writing; make it if it is not there.

    Raises:
        BusyError: another process has it open.
        ConfigurationError: it is another annotator's.
        InputError: the file is no store.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(f"{path}: open in another hgld; use the page that it shows, or stop it first") from None
    try:
        with _connected(path) as connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                _set_up(connection, annotator)
            owner = _owner(connection, path)
            if owner != annotator:
                raise ConfigurationError(
                    f'{path}: holds what "{owner}" decided, not "{annotator}"; name another --store'
                )
            yield Store(path, annotator, connection)
    finally:
        lock.release()


def read_store(path: Path) -> tuple[str, Fold]:
    """Whose store it is, and what the events in it lead to.

    Raises:
        InputError: there is no such file, or it is no store.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected what hgld review wrote, e.g. review/a.sqlite")
    with _connected(path) as connection:
        return _owner(connection, path), Fold(_events(connection))


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection; what SQLite cannot read is told as an InputError."""
    try:
        # The server answers in one thread, but not always in the one that opened the store.
        with closing(sqlite3.connect(path, timeout=10, check_same_thread=False)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: not a store of decisions that can be read ({error})") from error


def _set_up(connection: sqlite3.Connection, annotator: str) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    with connection:
        connection.execute("BEGIN")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES (?)", (annotator,))


def _owner(connection: sqlite3.Connection, path: Path) -> str:
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise InputError(f"{path}: not a store of decisions, but another SQLite file")
    layout = connection.execute("PRAGMA user_version").fetchone()[0]
    if layout != _LAYOUT:
        raise InputError(
            f"{path}: written in layout {layout}, which hgld {__version__} does not know; use a newer one"
        )
    return str(connection.execute("SELECT annotator FROM about").fetchone()[0])


def _events(connection: sqlite3.Connection) -> Iterator[Event]:
    for row in connection.execute("SELECT * FROM event ORDER BY id"):
        event = Event(*row)
        yield replace(event, at=parse_time(row[2]), old=json.loads(row[6]), new=json.loads(row[7]))


def _values(event: Event) -> tuple[object, ...]:
    old, new = (json.dumps(value, ensure_ascii=False, sort_keys=True) for value in (event.old, event.new))
    return (
        *(event.id, event.step, event.at.isoformat(timespec="milliseconds"), event.annotator, event.kind, event.key),
        *(old, new, event.tool, event.undoes),
    )
