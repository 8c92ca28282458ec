"""Atomic writes and digests."""

import errno
import hashlib
import os
import socket
from pathlib import Path

import pytest

from hgld.errors import ConfigurationError
from hgld.io.files import atomic_write, check_writable_folder, digest_of, sha256_of
from tests.child_processes import run_script


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.png"
    with atomic_write(path) as draft:
        assert draft.suffix == ".png"
        draft.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic_write(path) as draft:
        draft.write_text("new é", encoding="ascii")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


KILLED = """
import sys
from pathlib import Path
from hgld.io.files import atomic_write
from tests.kill_points import kill_points

path = Path(sys.argv[1])

def write():
    with atomic_write(path) as draft:
        draft.write_text("new")

for number in kill_points(write, path.parent, lambda: path.write_text("old")):
    assert path.read_text() in ("old", "new")
    write()
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path], "the next run removes what is left"
print(number)
"""


def test_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    assert int(run_script(KILLED, tmp_path / "a.csv")) >= 2


def test_runs_at_the_same_time_do_not_write_into_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with atomic_write(path) as first:
        first.write_text("first")
        with atomic_write(path) as second:
            assert second != first
            second.write_text("second")
        assert path.read_text() == "second"
        with pytest.raises(UnicodeEncodeError), atomic_write(path) as third:
            third.write_text("é", encoding="ascii")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_without_file_locks_every_process_has_its_own_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("hgld.io.files.fcntl.flock", fail)
    with atomic_write(tmp_path / "a.csv") as draft:
        assert f"{socket.gethostname()}.{os.getpid()}" in draft.name
        draft.write_text("whole")
    monkeypatch.setattr("hgld.io.files.fcntl", None)
    with atomic_write(tmp_path / "b.csv") as draft:
        draft.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv"]


def test_nodes_that_share_a_folder_without_locks_have_their_own_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes on two nodes may have the same number."""
    monkeypatch.setattr("hgld.io.files.fcntl", None)
    monkeypatch.setattr("hgld.io.files.socket.gethostname", lambda: "n0")
    with atomic_write(tmp_path / "a.csv") as first:
        first.write_text("of n0")
        monkeypatch.setattr("hgld.io.files.socket.gethostname", lambda: "n1")
        with atomic_write(tmp_path / "a.csv") as second:
            second.write_text("of n1")
        assert first.read_text() == "of n0"
    assert (tmp_path / "a.csv").read_text() == "of n0"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_digests_of_a_file_of_several_blocks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(data)
    assert sha256_of(tmp_path / "a") == hashlib.sha256(data).hexdigest()
    assert digest_of(tmp_path / "a", "md5") == hashlib.md5(data).hexdigest()


@pytest.mark.skipif(not os.access("/proc", os.W_OK), reason="only root may write to the folders of /proc")
def test_file_system_without_files_is_not_called_full() -> None:
    with pytest.raises(
        ConfigurationError, match="^/proc is not on a disk, and holds no files; choose another place$"
    ):
        check_writable_folder(Path("/proc"))
