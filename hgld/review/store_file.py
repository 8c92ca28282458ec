"""The SQLite file of an event store: create it, and open it after checks that find damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from hgld.errors import BusyError, ConfigurationError, InputError, StorageError
from hgld.review.event_rows import events_from_rows
from hgld.review.state import ReviewState
from hgld.taxonomy.decisions import check_annotator
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


#: How long SQLite waits for the disk: EXTRA, until changes of the file and of its folder would survive a power cut.
_SYNCHRONOUS = "EXTRA"


def wait_for_disk(connection: sqlite3.Connection) -> None:
    """Let each commit wait until its changes are on the disk."""
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")


@contextmanager
def new_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a file that takes the place of ``path`` at the end, whole or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    draft = path.with_name(f"{path.name}.part")
    draft.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(draft)) as connection:
            wait_for_disk(connection)
            yield connection
        # Left by a process that was killed: SQLite would roll it back into the new file.
        _journal(path).unlink(missing_ok=True)
        draft.replace(path)
    except sqlite3.Error as error:
        raise write_failure(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def create_file(path: Path, annotator: str) -> None:
    """Create a store without events, whole or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    with new_file(path) as connection, connection:
        connection.execute("BEGIN")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO about VALUES (?)", (annotator,))


@contextmanager
def opened_file(path: Path) -> Iterator[tuple[sqlite3.Connection, str, ReviewState]]:
    """Open an existing store, check all of it, and yield it with its owner and its state.

    Raises:
        BusyError: Another process has been writing to the file for ten seconds.
        InputError: The file is not an event store, or damaged.
    """
    if not path.stat().st_size:
        raise InputError(
            f"{path}: is empty, but was a store of decisions once; delete it to begin again, or {_restore(path)}"
        )
    with ExitStack() as stack:
        try:
            # The server answers in one thread, but not always in the one that opened the store.
            connection = sqlite3.connect(path, timeout=10, check_same_thread=False)
            stack.enter_context(closing(connection))
            owner, state = _read(connection, path)
        except InputError as error:
            raise InputError(f"{path}: {_printable(error)}") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if "locked" in str(error):
                raise BusyError(f"{path}: another process is writing to it; try again") from error
            raise InputError(
                f"{path}: not a store of decisions, or damaged ({_printable(error)}); {_restore(path)}"
            ) from error
        yield connection, owner, state


def write_failure(path: Path, error: sqlite3.Error) -> StorageError:
    """Return the error for a store that SQLite could not write."""
    if "disk is full" in str(error):
        reason, remedy = "the disk is full", "Free some space"
    else:
        reason, remedy = str(error), "Check the disk"
    return StorageError(f"{path}: cannot be written ({reason}); nothing was changed. {remedy}, then try again")


def _read(connection: sqlite3.Connection, path: Path) -> tuple[str, ReviewState]:
    """Return the owner of a store and its state, after checks of the whole file.

    Raises:
        DatabaseError: The file is not an event store, or damaged.
        InputError: Likewise, with a remedy. The message lacks the name of the file.
        UnicodeDecodeError: The file is damaged.
    """
    with connection:
        connection.execute("BEGIN")  # so that another process changes nothing meanwhile
        _check_file(connection, path)
        owner = connection.execute("SELECT annotator FROM about").fetchone() or ("",)
        try:
            check_annotator(str(owner[0]))
        except ConfigurationError as error:
            raise sqlite3.DatabaseError(str(error)) from error
        connection.execute("SELECT id, text, cluster FROM label")
        try:
            state = ReviewState(events_from_rows(connection.execute("SELECT * FROM event ORDER BY id")))
        except InputError as error:
            raise InputError(f"{error}; {_restore(path)}") from error
    return str(owner[0]), state


def _check_file(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a file is a store of this version of hgld, and whole; see :func:`_read`."""
    if _pragma(connection, "application_id") != _APPLICATION_ID:
        raise InputError("not a store of decisions, but another SQLite file")
    layout = _pragma(connection, "user_version")
    if layout != _LAYOUT:
        raise InputError(
            f"written in layout {layout}, but hgld {__version__} has layout {_LAYOUT}; use the version that wrote it"
        )
    problem = _pragma(connection, "quick_check(1)")
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
    # SQLite reads the missing end of the last page as zeros.
    if path.stat().st_size < _pragma(connection, "page_count") * _pragma(connection, "page_size"):
        raise sqlite3.DatabaseError("the end of the file is missing")


def _restore(path: Path) -> str:
    """Return how to put a copy in the place of a store; the journal is that of a process that was killed."""
    return f"restore it with hgld copy-store COPY -o {path} --force, which also removes {_journal(path).name}"


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _printable(found: object) -> str:
    """Return what was found in a file as text for a message, with line breaks and the like as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(found))
