"""The event store: one writer, a clear message for a damaged, full, read-only or replaced file, and nothing lost."""

import json
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.errors import BusyError, ConfigurationError, HgldError, InputError, StorageError
from hgld.review.page.serve import log_table_changes
from hgld.review.session import LabelAction
from hgld.review.state import Change, current_decisions, current_groups
from hgld.review.store import copy_store, open_store, read_store
from hgld.taxonomy.decisions import read_decisions
from hgld.taxonomy.groups import Group
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.review.sessions import decide, open_session
from tests.test_storage import CHECKOUT, mounted


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with all kinds of events, in a folder of its own."""
    path = tmp_path / "review/ada.sqlite"
    with open_session(path) as session:
        log_table_changes(session)
        decide(session, LabelAction("drop", comment="no place"), "Q1", "Q2")
        decide(session, LabelAction("group", "lake"), "Q3")
        session.rename_cluster(1, "water", 0)
        session.move({"Q4": 0}, 1)
        session.propose_group("quay", "human-made", "Where boats land.")
        undone = not_none(session.merge_group("lake", "church", 0))
        session.undo(undone)
    return path


def decided(path: Path) -> dict[str, str]:
    return {row.label_id: row.group or row.decision for row in current_decisions(read_store(path)[1], [])}


EVERYTHING = {"Q1": "drop", "Q2": "drop", "Q3": "lake"}


def test_store_has_one_writer_and_one_annotator(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_store(tmp_path / "a.sqlite")
    with open_store(tmp_path / "a.sqlite", "ada"):
        with pytest.raises(BusyError, match="open in another"), open_store(tmp_path / "a.sqlite", "ada"):
            pass
        assert read_store(tmp_path / "a.sqlite")[0] == "ada", "reading is possible meanwhile"
        (tmp_path / "other.sqlite").symlink_to("a.sqlite")
        with pytest.raises(BusyError, match="other.sqlite.*open in another"):
            open_store(tmp_path / "other.sqlite", "ada").__enter__()
    with pytest.raises(ConfigurationError, match='decisions of "ada", not of "ben"'):
        open_store(tmp_path / "a.sqlite", "ben").__enter__()


def test_groups_of_deeper_trees_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "ada.sqlite"
    taxonomy = [Group("Rye", "Food", "", between=("Bread",), levels=("leaf", "b", "a"))]
    with open_session(path, groups=taxonomy) as session:
        session.propose_group("Spelt", "Food > Bread", "Made of spelt.")
        session.rename_group("Rye", "Rye bread", 0)
        expected = session.groups()
    assert [group.path for group in expected.values()] == [("Rye bread", "Bread", "Food"), ("Spelt", "Bread", "Food")]
    assert current_groups(read_store(path)[1], taxonomy) == expected


def test_events_cannot_be_changed_or_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.sqlite", "ada") as store:
        store.append([Change("name", "1", "first")])
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:
        for statement in ("DELETE FROM event", "UPDATE event SET new = 'null'"):
            with pytest.raises(sqlite3.IntegrityError, match="only added"):
                connection.execute(statement)


def test_commits_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # no_wait_for_disk
    with open_store(tmp_path / "ada.sqlite", "ada") as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (3,), "EXTRA"


def sql(*statements: str) -> Callable[[Path], None]:
    """Return the damage that statements do, despite the triggers."""

    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            for trigger in ("no_update", "no_delete"):
                connection.execute(f"DROP TRIGGER {trigger}")
            for statement in statements:
                connection.execute(statement)

    return damage


def other_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty file": (lambda path: path.write_bytes(b""), "is empty"),
    "folder": (folder, "is a folder"),
    "text": (lambda path: path.write_text("label_id,label\n" * 300), "not a store"),
    "short text": (lambda path: path.write_text("x"), "not a store"),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "not a store"),
    "other database": (other_database, "another SQLite file"),
    "no events": (sql("DROP TABLE event"), "no such table: event"),
    "no owner": (sql("DELETE FROM about"), "annotator"),
    "no table about": (sql("DROP TABLE about"), "no such table: about"),
    "no table of labels": (sql("DROP TABLE label"), "no such table: label"),
    "broken JSON": (sql("UPDATE event SET new = substr(new, 1, 9) WHERE id = 2"), "event 2"),
    "no JSON": (sql("UPDATE event SET old = x'00ff' WHERE id = 2"), "event 2"),
    "value of another kind": (sql("""UPDATE event SET new = '{"merged_into": "x"}' WHERE id = 3"""), "event 3"),
    "value of no kind": (sql("UPDATE event SET new = '7' WHERE id = 3"), "event 3"),
    "unknown kind": (sql("UPDATE event SET kind = 'colour' WHERE id = 4"), "event 4"),
    "kind with line breaks": (
        sql("UPDATE event SET kind = 'a' || char(13, 10, 27) || 'b' WHERE id = 4"),
        r"\\r\\n\\x1b",
    ),
    "no Unicode": (sql("UPDATE event SET kind = CAST(x'0aff0a' AS TEXT) WHERE id = 4"), "UTF-8"),
    "owner with line breaks": (sql("UPDATE about SET annotator = char(10, 27)"), r"\\n\\x1b"),
    "name of no cluster": (sql("UPDATE event SET key = 'x' WHERE kind = 'name'"), "event 4"),
    "time after the last year": (sql("UPDATE event SET at = '9999-12-31T23:59:59-12:00' WHERE id = 1"), "event 1"),
    "no time": (sql("UPDATE event SET at = 'noon' WHERE id = 1"), "event 1"),
    "missing event": (sql("DELETE FROM event WHERE id = 2"), "event 2"),
    "missing first event": (sql("DELETE FROM event WHERE id = 1"), "event 1"),
    "exchanged decision": (sql("UPDATE event SET key = 'Q3' WHERE id = 1"), "event 3"),
    "undo of nothing": (sql("UPDATE event SET undoes = 99 WHERE undoes IS NOT NULL"), "undo"),
    "undo of another field": (sql("UPDATE event SET undoes = 1 WHERE undoes IS NOT NULL"), "undo"),
    "step of nothing": (sql("UPDATE event SET step = 9 WHERE id = 2"), "event 2"),
}


@contextmanager
def refused(error: type[HgldError], match: str, path: Path) -> Iterator[None]:
    """Check that an error has a message of one line that names a file."""
    with pytest.raises(error, match=match) as raised:
        yield
    (line,) = str(raised.value).splitlines()
    assert str(path) in line


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_in_one_line_and_the_file_left_alone(store: Path, damage: str) -> None:
    apply, problem = DAMAGES[damage]
    apply(store)
    before = store.read_bytes() if store.is_file() else None
    with refused(HgldError, problem, store), open_store(store, "ada"):
        pytest.fail("the store was opened")
    with refused(InputError, problem, store):
        read_store(store)
    assert (store.read_bytes() if store.is_file() else None) == before


def test_cut_file_is_never_taken_for_a_shorter_review(store: Path) -> None:
    whole = store.read_bytes()
    for size in [*range(0, len(whole), 512), 1, 99, 100, 101, 4095, 4097, len(whole) - 1]:
        store.write_bytes(whole[:size])
        for access in (read_store, lambda path: open_store(path, "ada").__enter__()):
            with refused(HgldError, ".", store):
                access(store)
        assert store.read_bytes() == whole[:size]
    store.write_bytes(whole)
    assert decided(store) == EVERYTHING


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1), noise=st.binary(min_size=1, max_size=2000))
def test_overwritten_bytes_give_a_message_or_a_review(store: Path, at: float, noise: bytes) -> None:
    copy = store.with_name("copy.sqlite")
    whole = bytearray(store.read_bytes())
    start = int(at * (len(whole) - 1))
    whole[start : start + len(noise)] = noise
    copy.write_bytes(whole)
    try:
        read_store(copy)
    except InputError:
        with refused(InputError, ".", copy):
            read_store(copy)


@pytest.mark.parametrize("damage", ["empty file", "broken JSON"])
def test_commands_report_a_damaged_store_in_one_line(
    tables: Callable[..., Path], store: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(*_: object, **__: object) -> None:
        pytest.fail("the page was served")

    monkeypatch.setattr(uvicorn.Server, "run", serve)
    clusters = str(tables())
    DAMAGES[damage][0](store)
    other = store.with_name("ben.csv")
    columns = "label_id,label,decision,group,annotator,decided_at,comment,blind"
    other.write_text(f"{columns}\nQ1,lake,drop,,ben,2026-03-01T12:00:00Z,,\n")
    ada = other.with_name("ada.csv")
    ada.write_text(f"{columns}\nQ1,lake,group,lake,ada,2026-03-01T12:00:00Z,,\n")
    final = str(store.with_name("final.csv"))
    page = ["--clusters", clusters, "--annotator", "ada", "--store", str(store), "--no-open"]
    for command in (
        ["decisions", str(store), "-o", final],
        ["review", clusters, "--annotator", "ada", "--store", str(store), "--no-open"],
        ["adjudicate", str(ada), str(other), "-o", final, *page],
        ["agreement", str(store), str(other)],
        ["adjudicate", str(store), str(other), "-o", final, "--rule", "agree-only"],
    ):
        result = run_hgld(*command, code=1)
        errors = [line for line in result.stderr.splitlines() if " INFO " not in line]
        assert len(errors) == 1, errors
        assert errors[0].startswith("error: "), command
        assert str(store) in errors[0]
    assert not Path(final).exists()


def test_store_in_place_of_a_file_of_decisions_gets_a_hint(store: Path) -> None:
    with refused(InputError, "hgld decisions .*ada.sqlite -o NAME.csv writes its decisions", store):
        read_decisions(store, None)


def test_copied_file_is_complete_while_the_page_is_open(store: Path) -> None:
    """Nothing is in other files beside it, which a copy or a mail would lack."""
    with open_session(store) as session:
        decide(session, LabelAction("unsure"), "Q5")
        assert sorted(path.name for path in store.parent.iterdir()) == [".ada.sqlite.lock", "ada.sqlite"]
        shutil.copy(store, store.with_name("copy.sqlite"))
        assert decided(store.with_name("copy.sqlite")) == EVERYTHING | {"Q5": "unsure"}


def test_decision_that_was_being_written_at_a_crash_is_all_or_nothing(store: Path) -> None:
    crashed = store.with_name("crashed.sqlite")
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # pages go to the file before the end of the transaction
        connection.execute("BEGIN")
        for number in range(1000):
            connection.execute("INSERT INTO label VALUES (?, ?, 0)", (f"X{number}", "x" * 200))
        journal = store.with_name(f"{store.name}-journal")
        assert journal.stat().st_size > 0
        shutil.copy(store, crashed)
        shutil.copy(journal, crashed.with_name(f"{crashed.name}-journal"))
    assert crashed.stat().st_size > store.stat().st_size
    with open_store(crashed, "ada") as opened:
        assert {key for key, field in opened.state.fields("decision").items() if field.value} == set(EVERYTHING)
    assert decided(crashed) == EVERYTHING


def leave_journal(store: Path) -> Path:
    """Leave the journal of a process that was killed while it wrote to a store: the pages as they were before."""
    journal = store.with_name(f"{store.name}-journal")
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        for number in range(100, 1000):
            row = (number, "x" * 200)
            connection.execute("INSERT INTO event VALUES (?, 1, '', '', '', ?, '', '', '', NULL)", row)
        left = journal.read_bytes()
    journal.write_bytes(left)
    return journal


def test_new_store_is_not_rolled_back_to_one_that_was_deleted(store: Path) -> None:
    journal = leave_journal(store)
    store.unlink()
    with open_store(store, "ben"):
        assert not journal.exists()
    assert read_store(store)[1].last_event == 0


def test_copy_is_put_back_without_what_a_killed_process_left(store: Path) -> None:
    copy = store.with_name("copies") / "ada.sqlite"
    copy.parent.mkdir()
    assert copy_store(store, copy)[0] == "ada"
    with open_session(store) as session:
        decide(session, LabelAction("unsure"), "Q5")
    copy_store(store, copy)  # an earlier state of the same store is replaced
    with open_session(store) as session:
        decide(session, LabelAction("drop"), "Q5")
    journal = leave_journal(store)
    left = journal.read_bytes()
    store.write_bytes(store.read_bytes()[:5000])
    with refused(InputError, "hgld copy-store COPY -o .*ada.sqlite --force, .*ada.sqlite-journal", store):
        copy_store(copy, store)
    journal.write_bytes(left)
    result = run_hgld("copy-store", copy, "-o", store, "--force")
    assert result.output == f"4 labels decided by ada\n{store}\n"
    assert decided(store) == EVERYTHING | {"Q5": "unsure"}
    assert sorted(path.name for path in store.parent.glob("*ada*")) == ["ada.sqlite"]


def test_store_that_is_being_written_is_not_called_damaged(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **options | {"timeout": 0}))
    with closing(connect(store)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with refused(BusyError, "another process is writing to it; try again", store):
            read_store(store)


def test_copying_loses_no_decision_without_force(store: Path) -> None:
    copy = store.with_name("copy.sqlite")
    copy_store(store, copy)
    with open_session(store) as session:
        decide(session, LabelAction("unsure"), "Q5")
        with pytest.raises(BusyError, match="open in another"):
            copy_store(copy, store, force=True)
    with refused(ConfigurationError, "holds events that .*copy.sqlite lacks.*`force`", store):
        copy_store(copy, store)
    with pytest.raises(ConfigurationError, match="is an input"):
        copy_store(store, store, force=True)
    assert decided(store) == EVERYTHING | {"Q5": "unsure"}


def use_log(path: Path) -> sqlite3.Connection:
    """Switch a store to a write-ahead log, as other programs do, and return their connection."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode = wal").fetchone() == ("wal",)
    return connection


@pytest.mark.parametrize("when", ["before", "while it is open"])
def test_store_is_one_file_also_if_another_program_switched_on_a_log(store: Path, when: str) -> None:
    if when == "before":
        use_log(store).close()
    with open_session(store) as session:
        if when != "before":
            use_log(store).close()
        decide(session, LabelAction("unsure"), "Q5")
        decide(session, LabelAction("unsure"), "Q4")
        assert sorted(path.name for path in store.parent.iterdir()) == [".ada.sqlite.lock", "ada.sqlite"]
        shutil.copy(store, store.with_name("copy.sqlite"))
        assert decided(store.with_name("copy.sqlite")) == EVERYTHING | {"Q5": "unsure", "Q4": "unsure"}


def test_store_whose_log_is_in_use_is_not_opened(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **options | {"timeout": 0}))
    with closing(use_log(store)) as other:
        other.execute("CREATE TABLE notes (text)")  # whose page is in the log only
        with refused(BusyError, "another program has it open.*close that program", store), open_store(store, "ada"):
            pytest.fail("the store was opened")
        assert decided(store) == EVERYTHING, "reading is possible"
    with open_store(store, "ada"):
        pass


#: Decide on Q5 in a store with a write-ahead log, and leave the log as a process does that is killed.
KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from hgld.review import store
store._use_rollback_journal = lambda connection, path: None
from hgld.review.state import Change
with store.open_store(Path(sys.argv[1]), "ada") as opened:
    value = {"label": "label 5", "decision": "drop", "group": None, "comment": "", "blind": False}
    opened.append([Change("decision", "Q5", value)])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_copy_is_put_back_without_the_log_of_a_killed_process(store: Path, is_there: bool) -> None:
    copy = store.with_name("copy.sqlite")
    copy_store(store, copy)
    use_log(store).close()
    subprocess.run([sys.executable, "-c", KILLED, str(store)], cwd=CHECKOUT, check=False)
    assert store.with_name("ada.sqlite-wal").stat().st_size > 0
    if not is_there:
        store.unlink()
    copy_store(copy, store, force=True)
    assert decided(store) == EVERYTHING
    assert sorted(path.name for path in store.parent.glob("ada*")) == ["ada.sqlite"]


def test_new_store_has_nothing_of_the_log_of_one_that_was_deleted(store: Path) -> None:
    use_log(store).close()
    subprocess.run([sys.executable, "-c", KILLED, str(store)], cwd=CHECKOUT, check=False)
    store.unlink()
    with open_store(store, "ben"):
        assert sorted(path.name for path in store.parent.glob("ada*")) == ["ada.sqlite"]
    assert read_store(store)[1].last_event == 0


def test_log_of_a_killed_process_is_taken_over(store: Path) -> None:
    use_log(store).close()
    subprocess.run([sys.executable, "-c", KILLED, str(store)], cwd=CHECKOUT, check=False)
    with open_store(store, "ada"):
        assert sorted(path.name for path in store.parent.glob("ada*")) == ["ada.sqlite"]
    assert decided(store) == EVERYTHING | {"Q5": "drop"}


def test_copies_have_no_log(store: Path) -> None:
    use_log(store).close()
    copy_store(store, store.with_name("copy.sqlite"))
    assert store.with_name("copy.sqlite").read_bytes()[18:20] == b"\x01\x01", "the format for a rollback journal"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("decisions.csv", b"label_id,label,decision,group,annotator,decided_at,blind,comment\n"),
        ("ada.sqlite", b"label_id,label\n" * 300),
        ("sheet.xlsx", b"PK\x03\x04" + bytes(100)),
        ("places.sqlite", None),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_only_a_store_is_replaced_by_a_copy(store: Path, name: str, content: bytes | None, force: bool) -> None:
    other = store.parent / "others" / name
    other.parent.mkdir()
    if content is None:
        other.touch()
        other_database(other)
    else:
        other.write_bytes(content)
    before = other.read_bytes()
    with refused(HgldError, "not a store of decisions", other):
        copy_store(store, other, force=force)
    assert other.read_bytes() == before


def test_file_that_is_no_store_gets_no_advice_to_replace_it(store: Path) -> None:
    decisions = store.with_name("ada.csv")
    run_hgld("decisions", store, "-o", decisions)
    result = run_hgld("decisions", decisions, "-o", store.with_name("again.csv"), code=1)
    assert "copy-store" not in result.output
    assert result.output.startswith(
        f"error: {decisions}: not a store of decisions; expected a store from hgld review"
    )


def test_store_is_not_opened_under_two_names(store: Path) -> None:
    link = store.with_name("link.sqlite")
    with open_store(store, "ada"):
        link.hardlink_to(store)
        with refused(ConfigurationError, "one file under 2 names", link), open_store(link, "ada"):
            pytest.fail("the store was opened")
    assert read_store(link)[0] == "ada"
    link.unlink()
    with open_store(store, "ada"):
        pass


def test_write_that_another_program_prevents_names_the_cause(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **options | {"timeout": 0}))
    with open_session(store) as session, closing(connect(store)) as other:
        other.execute("BEGIN IMMEDIATE")
        with refused(StorageError, "another program is writing to it", store):
            decide(session, LabelAction("unsure"), "Q5")
        other.rollback()
        decide(session, LabelAction("unsure"), "Q5")


#: Write events to a store until the process is killed.
WRITE = """
import sys, time
from pathlib import Path
from hgld.review.state import Change
from hgld.review.store import open_store
with open_store(Path(sys.argv[1]), "ada") as store:
    for number in range(10**9):
        value = {"name": f"{number} {'x' * 500}", "table_name": None}
        store.append([Change("name", str(key), value) for key in range(20)])
        time.sleep(0.01)
"""


@pytest.mark.slow
def test_every_copy_of_a_store_that_is_written_is_whole(store: Path) -> None:
    copy = store.with_name("copy.sqlite")
    child = subprocess.Popen([sys.executable, "-c", WRITE, str(store)], cwd=CHECKOUT)
    try:
        events: set[int] = set()
        while len(events) < 20:
            copy_store(store, copy)
            state = read_store(copy)[1]
            assert all(len(step) == 20 for number, step in state.steps.items() if number > 20), "steps are whole"
            events.add(state.last_event)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("way", ["deleted", "replaced"])
def test_file_that_is_replaced_under_an_open_page_is_reported(store: Path, way: str) -> None:
    """Otherwise later decisions would go to a file that has no name any more."""
    copy = store.with_name("copy.sqlite")
    shutil.copy(store, copy)
    with open_session(store) as session:
        copy.replace(store) if way == "replaced" else store.unlink()
        with refused(StorageError, "was moved, deleted or replaced", store):
            decide(session, LabelAction("unsure"), "Q5")
        assert not session.is_decided("Q5")


def test_failed_write_changes_nothing_and_the_next_one_succeeds(store: Path) -> None:
    value = {"label": "label 5", "decision": "drop", "group": None, "comment": "x" * 100_000, "blind": False}
    with open_store(store, "ada") as opened:
        (pages,) = opened._connection.execute("PRAGMA page_count").fetchone()
        opened._connection.execute(f"PRAGMA max_page_count = {pages}")
        last = opened.state.last_event
        with refused(StorageError, "full.*nothing was changed", store):
            opened.append([Change("decision", "Q5", value)])
        assert opened.state.last_event == last
        opened._connection.execute("PRAGMA max_page_count = 100000")
        opened.append([Change("decision", "Q5", value)])
    assert decided(store) == EVERYTHING | {"Q5": "drop"}


def test_link_to_a_disk_that_is_not_there_is_no_new_store(tmp_path: Path) -> None:
    link = tmp_path / "ada.sqlite"
    link.symlink_to(tmp_path / "disk/ada.sqlite")
    with refused(ConfigurationError, "which is not there", link), open_store(link, "ada"):
        pytest.fail("a store was created")
    assert link.is_symlink()


#: Run commands of hgld, given as JSON, and print the last line of the output of each.
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from hgld.cli import app
for command in json.loads(sys.argv[1]):
    print(CliRunner().invoke(app, command).output.splitlines()[-1])
"""


@pytest.mark.slow
def test_read_only_store_can_be_read(store: Path, tmp_path: Path, tables: Callable[..., Path]) -> None:
    """In a read-only folder, and as a read-only file in a folder that can be written."""
    disk, out = tmp_path / "disk", tmp_path / "out.csv"
    review = ["review", str(tables()), "--annotator", "ada", "--no-open", "--store"]
    commands = [
        ["decisions", f"{disk}/ada.sqlite", "-o", str(out)],
        [*review, f"{disk}/ada.sqlite"],
        [*review, str(store)],
    ]
    script = [
        f"cp {store} {disk}",
        f"mount -o remount,ro {disk}",
        f"mount --bind {store} {store}",
        f"mount -o remount,ro,bind {store}",
        shlex.join([sys.executable, "-c", COMMANDS, json.dumps(commands)]),
    ]
    command = [*mounted(disk, "size=1m"), "sh", "-ec", "\n".join(script)]
    child = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert child.stdout.splitlines() == [
        str(out),
        f"error: {disk} is read-only; choose another place, or change its permissions",
        f"error: {store} is read-only; change its permissions, or give another --store",
    ], child.stderr
    assert len(out.read_text().splitlines()) == 4
