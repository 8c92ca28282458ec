"""The event store of an annotator: an SQLite file of events, to which events are only added.

Each step is one transaction with ``synchronous=EXTRA``: once :meth:`EventStore.append` returns, the step is on disk.
It is in the file itself; with a write-ahead log, the last steps would be in a second file, and a store in a read-only
folder could not be read. While a step is written, the file is not whole without its journal; :func:`copy_store` makes
whole copies at any time. A lock file beside the store keeps a second process from writing to it; reading is always
possible.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from hgld.errors import BusyError, ConfigurationError, InputError, StorageError
from hgld.io.files import check_writable_file
from hgld.review.event_rows import event_to_row
from hgld.review.events import AttributedChange, Change, Event
from hgld.review.output_guard import require_other_file
from hgld.review.state import ReviewState
from hgld.review.store_file import create_file, new_file, opened_file, wait_for_disk, write_failure
from hgld.version import __version__

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
            raise write_failure(self.path, error) from error

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
    with _locked(path):
        if not path.exists():
            create_file(path, annotator)
        with opened_file(path) as (connection, owner, state):
            if owner != annotator:
                raise ConfigurationError(
                    f'{path}: holds the decisions of "{owner}", not of "{annotator}"; give another `store`'
                )
            wait_for_disk(connection)
            yield EventStore(path, annotator, state, connection)


def read_store(path: Path) -> tuple[str, ReviewState]:
    """Return the owner of a store and the state after its events.

    Raises:
        InputError: There is no such file, or it is not an event store, or damaged.
    """
    _check_is_file(path)
    with opened_file(path) as (_, owner, state):
        return owner, state


def copy_store(path: Path, out: Path, *, force: bool = False) -> tuple[str, ReviewState]:
    """Copy a store, while a page may have it open, or put a copy back in the place of a store.

    Args:
        path: Store to copy.
        out: File to write. What a process that was killed left beside an earlier file there is removed.
        force: Replace a file that is not an earlier state of the store.

    Returns:
        Owner of the store and the state after its events.

    Raises:
        BusyError: Another process has ``out`` open.
        ConfigurationError: ``out`` is the store itself, cannot be written, or holds events that the store lacks.
        InputError: One of the files is not an event store, or damaged.
        StorageError: The copy cannot be written.
    """
    require_other_file(out, [path])
    _check_is_file(path)
    with opened_file(path) as (connection, owner, state), _locked(out):
        if out.exists() and not force:
            steps = read_store(out)[1].steps
            if any(state.steps.get(step) != events for step, events in steps.items()):
                raise ConfigurationError(
                    f"{out}: holds events that {path} lacks; write to another file, or replace it with `force`"
                )
        with new_file(out.resolve()) as copy:
            connection.backup(copy)
    return owner, state


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let no other process write to a store, whatever name it knows it by.

    Raises:
        BusyError: Another process has the store open.
        ConfigurationError: See :func:`_check_place`.
    """
    _check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.resolve()
    lock = FileLock(file.with_name(f"{file.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"{path}: already open in another hgld process; use the page that it serves, or stop it first"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _check_is_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected a store from hgld review, e.g. review/a.sqlite")
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a store from hgld review, e.g. review/a.sqlite")


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


def _is_at(path: Path, file: os.stat_result) -> bool:
    """Return whether a path still leads to a file."""
    try:
        return os.path.samestat(path.stat(), file)
    except OSError:
        return False
