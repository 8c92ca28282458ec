"""The event store of an annotator: an SQLite file of events, to which events are only added.

Each step is one transaction with ``synchronous=FULL``: once :meth:`EventStore.append` returns, the step is on disk. A
lock file beside the store keeps a second process from writing to it; reading is always possible.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.io.files import check_writable_file
from hgld.review.events import AttributedChange, Change, Event
from hgld.review.state import ReviewState
from hgld.taxonomy.decisions import parse_time
from hgld.version import __version__

#: "hgld" as a number, which tells the file from other SQLite files.
_APPLICATION_ID = int.from_bytes(b"hgld", "big")
_LAYOUT = 3
_TABLES = (
    "CREATE TABLE about (annotator TEXT NOT NULL)",
    "CREATE TABLE event (id INTEGER PRIMARY KEY, step INTEGER NOT NULL, at TEXT NOT NULL, annotator TEXT NOT NULL, "
    "kind TEXT NOT NULL, key TEXT NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL, tool TEXT NOT NULL, "
    "undoes INTEGER REFERENCES event (id))",
    "CREATE TABLE label (id TEXT PRIMARY KEY, text TEXT NOT NULL, cluster INTEGER NOT NULL)",
    "CREATE TRIGGER no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'events are only added'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'events are only added'); END",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_LAYOUT}",
)
_INSERT = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class EventStore:
    """An event store that is open for writing, made by :func:`open_store`.

    It must not be used by several threads at once.

    Attributes:
        state: State of the review after all events in the store.

    Args:
        path: SQLite file.
        annotator: Owner of the store.
        connection: Open connection to the file.
    """

    def __init__(self, path: Path, annotator: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.annotator = annotator
        self.state = ReviewState(_read_events(connection))
        self._connection = connection

    def append(self, changes: Sequence[Change | AttributedChange]) -> int | None:
        """Write changes as one step, all or none, and apply them to the state.

        Args:
            changes: At most one change per field; changes to the present value are skipped.

        Returns:
            Id of the step, or None if no field changes.

        Raises:
            InputError: The file cannot be written; nothing was changed.
        """
        events = self._new_events(changes)
        if not events:
            return None
        try:
            with self._connection:  # a transaction
                self._connection.executemany(_INSERT, map(_to_row, events))
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: cannot be written ({error}); nothing was changed") from error
        for event in events:
            self.state.apply(event)
        return events[0].step

    def replace_labels(self, labels: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
        """Remember the labels that are reviewed now, and return those of the last session.

        Args:
            labels: Text of every label and number of its cluster in the ``clusters`` table, by label_id.

        Raises:
            InputError: The file cannot be written.
        """
        try:
            with self._connection:
                previous = {row[0]: (row[1], row[2]) for row in self._connection.execute("SELECT * FROM label")}
                if previous != labels:
                    rows = [(label_id, *label) for label_id, label in labels.items()]
                    self._connection.execute("DELETE FROM label")
                    self._connection.executemany("INSERT INTO label VALUES (?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: cannot be written ({error})") from error
        return previous

    def _new_events(self, changes: Sequence[Change | AttributedChange]) -> list[Event]:
        now = datetime.now(timezone.utc)
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)  # the file keeps milliseconds
        events: list[Event] = []
        step = self.state.last_event + 1
        for entry in changes:
            attributed = (
                entry if isinstance(entry, AttributedChange) else AttributedChange(entry, self.annotator, now)
            )
            change = attributed.change
            old = self.state.field(change.kind, change.key).value
            if old == change.new:
                continue
            events.append(
                Event(
                    id=step + len(events),
                    step=step,
                    at=attributed.at,
                    annotator=attributed.annotator,
                    kind=change.kind,
                    key=change.key,
                    old=old,
                    new=change.new,
                    tool=__version__,
                    undoes=change.undoes,
                )
            )
        return events


@contextmanager
def open_store(path: Path, annotator: str) -> Iterator[EventStore]:
    """Open a store for writing; create it if it does not exist.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: The store belongs to another annotator, or a file cannot be written at ``path``.
        InputError: The file is not an event store.
    """
    check_writable_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"{path}: already open in another hgld process; use the page that it serves, or stop it first"
        ) from None
    try:
        with _connect(path) as connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                _create_tables(connection, annotator)
            owner = _read_owner(connection, path)
            if owner != annotator:
                raise ConfigurationError(
                    f'{path}: holds the decisions of "{owner}", not of "{annotator}"; give another `store`'
                )
            yield EventStore(path, annotator, connection)
    finally:
        lock.release()


def read_store(path: Path) -> tuple[str, ReviewState]:
    """Return the owner of a store and the state after its events.

    Raises:
        InputError: There is no such file, or it is not an event store.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a store from hgld review, e.g. review/a.sqlite")
    with _connect(path) as connection:
        return _read_owner(connection, path), ReviewState(_read_events(connection))


@contextmanager
def _connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection; errors of SQLite become an InputError."""
    try:
        # The server answers in one thread, but not always in the one that opened the store.
        with closing(sqlite3.connect(path, timeout=10, check_same_thread=False)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: not a readable store of decisions ({error})") from error


def _create_tables(connection: sqlite3.Connection, annotator: str) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    with connection:
        connection.execute("BEGIN")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES (?)", (annotator,))


def _read_owner(connection: sqlite3.Connection, path: Path) -> str:
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise InputError(f"{path}: not a store of decisions, but another SQLite file")
    layout = connection.execute("PRAGMA user_version").fetchone()[0]
    if layout != _LAYOUT:
        raise InputError(
            f"{path}: written in layout {layout}, but hgld {__version__} has layout {_LAYOUT}; use the version that "
            "wrote it"
        )
    return str(connection.execute("SELECT annotator FROM about").fetchone()[0])


def _read_events(connection: sqlite3.Connection) -> Iterator[Event]:
    for row in connection.execute("SELECT * FROM event ORDER BY id"):
        event = Event(*row)
        yield replace(event, at=parse_time(row[2]), old=json.loads(row[6]), new=json.loads(row[7]))


def _to_row(event: Event) -> tuple[object, ...]:
    old, new = (json.dumps(value, ensure_ascii=False, sort_keys=True) for value in (event.old, event.new))
    return (
        *(event.id, event.step, event.at.isoformat(timespec="milliseconds"), event.annotator, event.kind, event.key),
        *(old, new, event.tool, event.undoes),
    )
