"""The event store of an annotator: an append-only SQLite file of events.

Each step is one transaction with ``synchronous=EXTRA``: after :meth:`EventStore.append`, the step is on disk, and
in the file itself. With a write-ahead log, the last steps would be in a second file, and a store in a read-only
folder could not be read. Therefore such a log of another program is switched off. While a step is written, the
file is incomplete without its journal; :func:`copy_store` makes complete copies at any time. A lock file beside
the store prevents a second process from writing; reading is always possible.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hgld.errors import BusyError, ConfigurationError, InputError, StorageError
from hgld.io.locks import exclusive_lock
from hgld.io.writable import check_writable_file, require_other_file
from hgld.review.state import Change, Event, FieldKind, ReviewState
from hgld.taxonomy.decisions import check_annotator, parse_time
from hgld.version import __version__

#: "hgld" as a number: the application id of the SQLite files.
_APPLICATION_ID = int.from_bytes(b"hgld", "big")
#: First bytes of an SQLite file.
_SQLITE = b"SQLite format 3\0"
#: Place of the application id in an SQLite file.
_ID_BYTES = slice(68, 72)
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
#: Endings of the files that SQLite keeps beside a store while it writes, and that a killed process leaves.
_LEFT_BESIDE = ("-journal", "-wal", "-shm")
#: Durability mode of SQLite: with EXTRA, changes of the file and its folder survive a power cut.
_SYNCHRONOUS = "EXTRA"
#: Names of the items of a field's value, by kind; a value has the items of one of the alternatives.
_VALUE_KEYS: dict[FieldKind, tuple[set[str], ...]] = {
    "decision": ({"label", "decision", "group", "comment", "blind"},),
    "cluster": ({"cluster", "table_name"},),
    "name": ({"name", "table_name"},),
    "group": (
        {"name", "root", "guideline"},
        {"name", "root", "guideline", "between"},
        {"merged_into"},
    ),
}


def event_to_row(event: Event) -> tuple[object, ...]:
    """Return the row of an event, in the order of its fields."""
    return (
        event.id,
        event.step,
        event.at.isoformat(timespec="milliseconds"),
        event.annotator,
        event.kind,
        event.key,
        json.dumps(event.old, ensure_ascii=False, sort_keys=True),
        json.dumps(event.new, ensure_ascii=False, sort_keys=True),
        event.tool,
        event.undoes,
    )


def events_from_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[Event]:
    """Yield the events of all rows of a store, in the order of their ids.

    Raises:
        InputError: An event is missing, damaged or inconsistent with earlier events. The message lacks the
            name of the file.
    """
    events: dict[int, Event] = {}
    #: Present value of every field, and its text.
    values: dict[tuple[str, str], tuple[Any, str]] = {}
    for number, row in enumerate(rows, 1):
        try:
            old, old_text = values.get((row[4], row[5]), (None, "null"))
            event = _event(row, old, old_text)
            _check_order(event, number, events)
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"event {number} is damaged ({error})") from error
        events[event.id] = event
        values[event.kind, event.key] = event.new, row[7]
        yield event


def _event(row: tuple[Any, ...], old: Any, old_text: str) -> Event:
    """Return the event of a row, given the earlier value of its field, and the text of this value."""
    event_id, step, at, annotator, kind, key, before, new, tool, undoes = row
    for text in (at, annotator, kind, key, before, new, tool):
        if not isinstance(text, str):
            raise TypeError("a text is missing")
    if kind not in _VALUE_KEYS:
        raise ValueError(f'"{kind}" is no kind of event')
    if kind == "name" and not (key.isascii() and key.isdecimal()):
        raise ValueError(f'"{key}" is no cluster')
    if before != old_text:
        raise ValueError("it does not continue the earlier events of its field")
    value = json.loads(new)
    if value is not None and set(value) not in _VALUE_KEYS[kind]:
        raise ValueError(f"its value is not that of a {kind}")
    return Event(event_id, step, parse_time(at), annotator, kind, key, old, value, tool, undoes)


def _check_order(event: Event, number: int, earlier: dict[int, Event]) -> None:
    """Validate an event's id, the id of its step, and the id of the event that it undoes."""
    if event.id != number:
        raise ValueError("it is missing")
    if event.step != number and (number == 1 or event.step != earlier[number - 1].step):
        raise ValueError("it belongs to no step")
    if event.undoes is not None:
        undone = earlier.get(event.undoes)
        if undone is None or (undone.kind, undone.key) != (event.kind, event.key):
            raise ValueError("it undoes an event of another field, or none")


class EventStore:
    """An event store that is open for writing, made by :func:`open_store`.

    It must not be used by several threads at once.
    """

    def __init__(
        self, path: Path, annotator: str, state: ReviewState, connection: sqlite3.Connection
    ) -> None:
        self.path, self.annotator, self.state = path, annotator, state
        self._connection = connection
        self._file = path.stat()

    def append(self, changes: Sequence[Change]) -> int | None:
        """Write changes as one step, all or none, and apply them to the state.

        Args:
            changes: At most one change per field; changes to the present value are skipped.

        Returns:
            Id of the step, or None if no field changes.

        Raises:
            StorageError: The file cannot be written; nothing was changed.
        """
        now = datetime.now(timezone.utc)
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)  # the file keeps milliseconds
        step = self.state.last_event + 1
        events: list[Event] = []
        for change in changes:
            old = self.state.field(change.kind, change.key).value
            if old == change.new:
                continue
            event = Event(
                id=step + len(events),
                step=step,
                at=change.at or now,
                annotator=change.annotator or self.annotator,
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
        with self._transaction():
            self._connection.executemany(_INSERT, map(event_to_row, events))
        for event in events:
            self.state.apply(event)
        return step

    def replace_labels(self, labels: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
        """Store the labels under review, and return the labels of the last session.

        Args:
            labels: Text of every label and number of its cluster in the ``clusters`` table, by label_id.
        """
        previous = {}
        for label_id, text, cluster in self._connection.execute("SELECT * FROM label"):
            previous[label_id] = text, cluster
        if previous != labels:
            rows = [(label_id, text, cluster) for label_id, (text, cluster) in labels.items()]
            with self._transaction():
                self._connection.execute("DELETE FROM label")
                self._connection.executemany("INSERT INTO label VALUES (?, ?, ?)", rows)
        return previous

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing."""
        try:
            is_there = os.path.samestat(self.path.stat(), self._file)
        except OSError:
            is_there = False
        if not is_there:
            raise StorageError(
                f"{self.path}: was moved, deleted or replaced while it was open; nothing was changed. Put it back, "
                "or stop hgld and start it again"
            )
        try:
            with self._connection:
                yield
        except sqlite3.Error as error:
            raise _write_failure(self.path, error) from error
        with suppress(BusyError):  # what is written is safe; the next time it may succeed
            _use_rollback_journal(self._connection, self.path)


@contextmanager
def open_store(path: Path, annotator: str) -> Iterator[EventStore]:
    """Open a store for writing; create it if it does not exist.

    Raises:
        ConfigurationError: The store belongs to another annotator, or a file cannot be written at ``path``.
    """
    with _locked(path):
        if path.exists() and path.stat().st_nlink > 1:
            raise ConfigurationError(
                f"{path} is one file under {path.stat().st_nlink} names (hard links), and would change under all of "
                f"them; give as `store` a file of its own: hgld copy-store {path} -o OTHER"
            )
        if not path.exists():
            with _new_file(path) as connection, connection:
                connection.execute("BEGIN")
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute("INSERT INTO about VALUES (?)", (annotator,))
        with _opened_file(path) as (connection, owner, state):
            if owner != annotator:
                raise ConfigurationError(
                    f'{path}: holds the decisions of "{owner}", not of "{annotator}"; give another `store`'
                )
            _use_rollback_journal(connection, path)
            connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
            yield EventStore(path, annotator, state, connection)


def read_store(path: Path) -> tuple[str, ReviewState]:
    """Return the owner of a store and the state after its events."""
    with _opened_file(path) as (_, owner, state):
        return owner, state


def copy_store(path: Path, out: Path, *, force: bool = False) -> tuple[str, ReviewState]:
    """Copy a store, even while a page has it open, or restore a store from a copy.

    Files that a killed process left beside an earlier output are removed.

    Args:
        path: SQLite file from hgld review, e.g. review/ada.sqlite.
        out: SQLite file to write.
        force: Replace a store that is not an earlier copy of ``path``, even a damaged store.

    Returns:
        Owner of the store and the state after its events.

    Raises:
        ConfigurationError: ``out`` is the store itself, cannot be written, or holds events that the store lacks.
        InputError: ``out`` is not a store.
    """
    require_other_file(out, [path])
    with _opened_file(path) as (connection, owner, state), _locked(out):
        if out.exists():
            _require_store_file(out)
        if out.exists() and not force:
            _, earlier = read_store(out)
            if not earlier.steps.items() <= state.steps.items():
                raise ConfigurationError(
                    f"{out}: holds events that {path} lacks; write to another file, or replace it with `force`"
                )
        with _new_file(out.resolve()) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # the backup has the mode of the store
    return owner, state


def _require_store_file(path: Path) -> None:
    """Raise an :class:`InputError` unless a file is a store, perhaps damaged, or empty."""
    with path.open("rb") as stream:
        head = stream.read(_ID_BYTES.stop)
    if not head:
        return
    problem = f"{path}: not a store of decisions"
    if not head.startswith(_SQLITE):
        damaged = ""
        if path.suffix == ".sqlite":
            damaged = "; if it was one, delete it and put a copy back with hgld copy-store"
        raise InputError(
            f"{problem}; expected a store from hgld review, e.g. review/a.sqlite{damaged}"
        )
    if int.from_bytes(head[_ID_BYTES], "big") != _APPLICATION_ID:
        raise InputError(f"{problem}, but another SQLite file")


def _use_rollback_journal(connection: sqlite3.Connection, path: Path) -> None:
    """Switch off the write-ahead log of another program, and move the content of the log to the file."""
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError as error:
        raise BusyError(
            f"{path}: another program has it open, with a write-ahead log; close that program, then try again"
        ) from error
    if mode != "delete":
        raise BusyError(
            f"{path}: the write-ahead log of another program cannot be switched off; close that program"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a store against other processes, which may know the file by another name."""
    check_writable_file(path)
    if path.is_symlink() and not path.exists():
        raise ConfigurationError(
            f"{path} is a link to {path.readlink()}, which is not there; mount its disk"
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigurationError(
            f"{path} is read-only; change its permissions, or give another `store`"
        )
    with ExitStack() as locks:
        try:
            locks.enter_context(exclusive_lock(path))
        except BusyError:
            raise BusyError(
                f"{path}: already open in another hgld process; use the page that it serves, or stop it first"
            ) from None
        yield


@contextmanager
def _new_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a draft file that replaces ``path`` at the end, unless an error occurs."""
    draft = path.with_name(f"{path.name}.part")
    draft.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(draft)) as connection:
            connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
            yield connection
        # Left by a process that was killed: SQLite would apply them to the new file.
        for ending in _LEFT_BESIDE:
            path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
        draft.replace(path)
    except sqlite3.Error as error:
        raise _write_failure(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _opened_file(path: Path) -> Iterator[tuple[sqlite3.Connection, str, ReviewState]]:
    """Open an existing store, check it, and yield its connection, its owner and its state.

    The checks find a truncated file and inconsistent events, but no changed letter in a text.
    """
    if not path.is_file():
        problem = " is a folder" if path.is_dir() else ": no such file"
        raise InputError(
            f"{path}{problem}; expected a store from hgld review, e.g. review/a.sqlite"
        )
    # The journal is that of a process that was killed.
    remedy = f"restore it with hgld copy-store COPY -o {path} --force, which also removes {path.name}-journal"
    if not path.stat().st_size:
        raise InputError(
            f"{path}: is empty, but was a store of decisions once; delete it to begin again, or {remedy}"
        )
    _require_store_file(path)
    # The server answers in one thread, but not always in the one that opened the store.
    with closing(sqlite3.connect(path, timeout=10, check_same_thread=False)) as connection:
        try:
            owner, state = _read(connection, path, remedy)
        except InputError as error:
            raise InputError(f"{path}: {_printable(error)}") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if "locked" in str(error):
                raise BusyError(f"{path}: another process is writing to it; try again") from error
            raise InputError(
                f"{path}: not a store of decisions, or damaged ({_printable(error)}); {remedy}"
            ) from error
        yield connection, owner, state


def _read(connection: sqlite3.Connection, path: Path, remedy: str) -> tuple[str, ReviewState]:
    """Check the file of a store; return the owner and the state."""

    def pragma(name: str) -> Any:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    with connection:
        connection.execute("BEGIN")  # so that another process changes nothing meanwhile
        layout = pragma("user_version")
        if layout != _LAYOUT:
            raise InputError(
                f"written in layout {layout}, but hgld {__version__} has layout {_LAYOUT}; use the version that "
                "wrote it"
            )
        problem = pragma("quick_check(1)")
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)
        # SQLite reads the missing end of the last page as zeros. The end may be in the log of another program.
        log = Path(f"{path.resolve()}-wal")
        is_logged = log.exists() and log.stat().st_size > 0
        if not is_logged and path.stat().st_size < pragma("page_count") * pragma("page_size"):
            raise sqlite3.DatabaseError("the end of the file is missing")
        about = connection.execute("SELECT annotator FROM about").fetchone()
        owner = str(about[0]) if about else ""
        try:
            check_annotator(owner)
            connection.execute("SELECT id, text, cluster FROM label")
            rows = connection.execute("SELECT * FROM event ORDER BY id")
            state = ReviewState(events_from_rows(rows))
        except ConfigurationError as error:
            raise sqlite3.DatabaseError(str(error)) from error
        except InputError as error:
            raise InputError(f"{error}; {remedy}") from error
    return owner, state


def _write_failure(path: Path, error: sqlite3.Error) -> StorageError:
    """Return the error for a store that SQLite could not write."""
    if "disk is full" in str(error):
        reason, remedy = "the disk is full", "Free some space"
    elif "locked" in str(error):
        reason, remedy = "another program is writing to it", "Close that program"
    else:
        reason, remedy = str(error), "Check the disk"
    return StorageError(
        f"{path}: cannot be written ({reason}); nothing was changed. {remedy}, then try again"
    )


def _printable(value: object) -> str:
    """Return the text of a value for a message, with unprintable characters as escapes."""
    text = ""
    for character in str(value):
        text += character if character.isprintable() else ascii(character)[1:-1]
    return text
