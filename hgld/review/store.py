"""The event store of an annotator: an SQLite file of events, to which events are only added.

Each step is one transaction with ``synchronous=EXTRA``: once :meth:`EventStore.append` returns, the step is on disk.
It is in the file itself, so that a copy of the file is complete; with a write-ahead log, the last steps would be in a
second file, and a store in a read-only folder could not be read. A lock file beside the store keeps a second process
from writing to it; reading is always possible.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hgld.errors import BusyError, ConfigurationError, InputError, StorageError
from hgld.io.files import check_writable_file
from hgld.review.event_rows import event_to_row, events_from_rows
from hgld.review.events import AttributedChange, Change, Event
from hgld.review.state import ReviewState
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
        state: State after the events in the file.
        connection: Open connection to the file.
    """

    def __init__(self, path: Path, annotator: str, state: ReviewState, connection: sqlite3.Connection) -> None:
        self.path = path
        self.annotator = annotator
        self.state = state
        self._connection = connection
        self._file = path.stat()

    def append(self, changes: Sequence[Change | AttributedChange]) -> int | None:
        """Write changes as one step, all or none, and apply them to the state.

        Args:
            changes: At most one change per field; changes to the present value are skipped.

        Returns:
            Id of the step, or None if no field changes.

        Raises:
            StorageError: The file cannot be written; nothing was changed.
        """
        events = self._new_events(changes)
        if not events:
            return None
        with self._transaction():
            self._connection.executemany(_INSERT, map(event_to_row, events))
        for event in events:
            self.state.apply(event)
        return events[0].step

    def replace_labels(self, labels: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
        """Remember the labels that are reviewed now, and return those of the last session.

        Args:
            labels: Text of every label and number of its cluster in the ``clusters`` table, by label_id.

        Raises:
            StorageError: The file cannot be written.
        """
        previous = {row[0]: (row[1], row[2]) for row in self._connection.execute("SELECT * FROM label")}
        if previous != labels:
            rows = [(label_id, *label) for label_id, label in labels.items()]
            with self._transaction():
                self._connection.execute("DELETE FROM label")
                self._connection.executemany("INSERT INTO label VALUES (?, ?, ?)", rows)
        return previous

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing.

        Raises:
            StorageError: The file cannot be written, or is no longer at its path; nothing was changed.
        """
        if not _is_at(self.path, self._file):
            raise StorageError(
                f"{self.path}: was moved, deleted or replaced while it was open; nothing was changed. Put it back, "
                "or stop hgld and start it again"
            )
        try:
            with self._connection:
                yield
        except sqlite3.Error as error:
            raise _write_failure(self.path, error) from error

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
        InputError: The file is not an event store, or damaged.
        StorageError: The file cannot be created.
    """
    _check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"{path}: already open in another hgld process; use the page that it serves, or stop it first"
        ) from None
    try:
        if not path.exists():
            _create(path, annotator)
        with _connect(path) as connection:
            owner, state = _read(connection, path)
            if owner != annotator:
                raise ConfigurationError(
                    f'{path}: holds the decisions of "{owner}", not of "{annotator}"; give another `store`'
                )
            connection.execute("PRAGMA synchronous = EXTRA")
            yield EventStore(path, annotator, state, connection)
    finally:
        lock.release()


def read_store(path: Path) -> tuple[str, ReviewState]:
    """Return the owner of a store and the state after its events.

    Raises:
        InputError: There is no such file, or it is not an event store, or damaged.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected a store from hgld review, e.g. review/a.sqlite")
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a store from hgld review, e.g. review/a.sqlite")
    with _connect(path) as connection:
        return _read(connection, path)


@contextmanager
def _connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection to an existing file; errors of SQLite become an InputError."""
    if not path.stat().st_size:
        raise InputError(
            f"{path}: is empty, although it was a store of decisions once; restore it from a copy, or delete it to "
            "begin again"
        )
    try:
        # The server answers in one thread, but not always in the one that opened the store.
        with closing(sqlite3.connect(path, timeout=10, check_same_thread=False)) as connection:
            yield connection
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: not a store of decisions, or damaged ({error}); restore it from a copy") from error


def _check_place(path: Path) -> None:
    """Check that a store can be written at ``path``.

    Raises:
        ConfigurationError: The folder or the file cannot be written, or the file is on a disk that is not there.
    """
    check_writable_file(path)
    if path.is_symlink() and not path.exists():
        raise ConfigurationError(f"{path} is a link to {path.readlink()}, which is not there; mount its disk")
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigurationError(f"{path} is read-only; change its permissions, or give another `store`")


def _create(path: Path, annotator: str) -> None:
    """Create a store without events, whole or not at all."""
    draft = path.with_name(f"{path.name}.part")
    draft.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(draft)) as connection, connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("INSERT INTO about VALUES (?)", (annotator,))
        draft.replace(path)
    except sqlite3.Error as error:
        raise _write_failure(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _is_at(path: Path, file: os.stat_result) -> bool:
    """Return whether a path still leads to a file."""
    try:
        return os.path.samestat(path.stat(), file)
    except OSError:
        return False


def _write_failure(path: Path, error: sqlite3.Error) -> StorageError:
    if "disk is full" in str(error):
        reason, remedy = "the disk is full", "Free some space"
    else:
        reason, remedy = str(error), "Check the disk"
    return StorageError(f"{path}: cannot be written ({reason}); nothing was changed. {remedy}, then try again")


def _read(connection: sqlite3.Connection, path: Path) -> tuple[str, ReviewState]:
    """Return the owner of a store and its state, after checks of the whole file."""
    with connection:
        connection.execute("BEGIN")  # so that another process changes nothing meanwhile
        _check_file(connection, path)
        owner = connection.execute("SELECT annotator FROM about").fetchone()
        if owner is None or not isinstance(owner[0], str):
            raise sqlite3.DatabaseError("the name of the annotator is missing")
        connection.execute("SELECT id, text, cluster FROM label")
        try:
            state = ReviewState(events_from_rows(connection.execute("SELECT * FROM event ORDER BY id")))
        except InputError as error:
            raise InputError(f"{path}: {error}; restore the file from a copy") from error
    return owner[0], state


def _check_file(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a file is a store of this version of hgld, and whole."""
    if _pragma(connection, "application_id") != _APPLICATION_ID:
        raise InputError(f"{path}: not a store of decisions, but another SQLite file")
    layout = _pragma(connection, "user_version")
    if layout != _LAYOUT:
        raise InputError(
            f"{path}: written in layout {layout}, but hgld {__version__} has layout {_LAYOUT}; use the version that "
            "wrote it"
        )
    problem = _pragma(connection, "quick_check(1)")
    if problem != "ok":
        raise sqlite3.DatabaseError(" ".join(problem.split()))
    # SQLite reads the missing end of the last page as zeros.
    if path.stat().st_size < _pragma(connection, "page_count") * _pragma(connection, "page_size"):
        raise sqlite3.DatabaseError("the end of the file is missing")


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
