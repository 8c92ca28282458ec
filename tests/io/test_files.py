"""Atomic writes of files and folders, CSV files, locks and digests."""

import errno
import hashlib
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hgld.errors import BusyError, ConfigurationError, ConflictError
from hgld.io.files import atomic_write, digest_of, sha256_of, write_csv
from hgld.io.folder_replacement import file_digests, finish_replacing, folder_draft, replace_folder, replace_together
from hgld.io.locks import exclusive_lock, is_locked
from hgld.io.writable import check_writable_folder
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


def test_csv_files_are_quoted_where_necessary_and_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [("é,b", 'c"d', 1), ("", "e\nf", 0.5)]
    for lineterminator in ("\r\n", "\n"):
        write_csv(path, ("x", "y", "z"), iter(rows), lineterminator=lineterminator)
        lines = ["x,y,z", '"é,b","c""d",1', ',"e\nf",0.5', ""]
        assert path.read_bytes() == lineterminator.join(lines).encode()
    old = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        write_csv(path, ("x",), ((1 // number,) for number in (1, 0)))
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


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


def break_locks(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Let every attempt to lock a file fail with an error."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", fail)


def test_without_file_locks_every_process_has_its_own_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_locks(monkeypatch, errno.ENOLCK)
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


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has other permissions")
def test_output_below_a_folder_without_access_is_refused() -> None:
    """In a child process, as permissions do not apply to root, who has to become another user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0)
        printed = run_script(NO_ACCESS, f"{folder}/new/out.parquet").splitlines()
        Path(folder).chmod(0o700)
    refusal = f"{folder} is read-only; choose another place, or change its permissions"
    assert printed == [refusal, refusal, "True"]


NO_ACCESS = """
import os, sys
from pathlib import Path
from hgld.errors import ConfigurationError
from hgld.io.writable import check_writable_file, check_writable_folder, free_bytes
if os.geteuid() == 0:
    os.setuid(65534)
out = Path(sys.argv[1])
for check in (check_writable_file, check_writable_folder):
    try:
        check(out)
    except ConfigurationError as error:
        print(error)
print(free_bytes(out) > 0)
"""


def test_second_run_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with exclusive_lock(out):
        assert (tmp_path / ".out.parquet.lock").exists()
        with pytest.raises(BusyError, match="another run is writing .*out.parquet"), exclusive_lock(out):
            pass
        (tmp_path / "link").symlink_to(out)
        with pytest.raises(BusyError, match="another run is writing .*link"), exclusive_lock(tmp_path / "link"):
            pass
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]
    with exclusive_lock(out):
        pass


def test_waiting_run_gets_the_lock(tmp_path: Path) -> None:
    entered = threading.Event()

    def work() -> None:
        with exclusive_lock(tmp_path / "out", wait_s=math.inf):
            entered.set()

    with exclusive_lock(tmp_path / "out"):
        thread = threading.Thread(target=work)
        thread.start()
        assert not entered.wait(0.2)
    thread.join(timeout=10)
    assert entered.is_set()


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom hgld.io.locks import exclusive_lock, is_locked\n"
        "with exclusive_lock(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(BusyError), exclusive_lock(tmp_path / "out"):
            pass
        process.kill()
        process.wait()
        with exclusive_lock(tmp_path / "out"):
            pass


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_systems_without_locks_are_written_after_a_warning(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_locks(monkeypatch, code)
    for _ in range(2):
        with exclusive_lock(tmp_path / "out"):
            assert not is_locked(tmp_path / "out")
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        f"{tmp_path}: this file system has no locks ({os.strerror(code)})"
    ]
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_locks_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_locks(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"), exclusive_lock(tmp_path / "out"):
        pass


def test_held_locks_are_seen(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "out")
    with exclusive_lock(tmp_path / "out"):
        assert is_locked(tmp_path / "out")
    (tmp_path / ".out.lock").touch()  # of a process that was killed
    assert not is_locked(tmp_path / "out")


NAMES = ("a.csv", "a.xlsx", "b.csv")

KILLED_FOLDERS = """
import shutil, sys
from pathlib import Path
from hgld.io.folder_replacement import folder_draft, replace_folder
from tests.kill_points import kill_points

home = Path(sys.argv[1])
out = home / "release"

def prepare():
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    if sys.argv[2] == "existing":
        write("old")

def write(text):
    with folder_draft(out) as draft:
        (draft / "data").mkdir()
        for name in ("README.md", "data/a.csv"):
            (draft / name).write_text(text)
        replace_folder(draft, out)

def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}

def whole(text):
    return {"README.md": text, "data/a.csv": text}

seen = set()
for number in kill_points(lambda: write("new"), home, prepare):
    seen.add("".join(sorted(set(content(out).values()))) if out.exists() else "nothing")
    assert not out.exists() or content(out) in (whole("old"), whole("new")), number
    with folder_draft(out):
        if sys.argv[2] == "existing":
            assert content(out) in (whole("old"), whole("new")), "an interrupted replacement is undone"
    write("newer")
    assert content(out) == whole("newer")
    assert [path.name for path in home.iterdir()] == ["release"], number
print(number, *sorted(seen))
"""

KILLED_SETS = """
import shutil, sys
from pathlib import Path
from hgld.io.folder_replacement import file_digests, finish_replacing, replace_together
from tests.io.test_files import NAMES, content
from tests.kill_points import kill_points

home = Path(sys.argv[1])
out = home / "review"

def prepare():
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    if sys.argv[2] == "existing":
        out.mkdir()
        (out / "notes.txt").write_text("mine")
        for name in NAMES[:2]:
            (out / name).write_text("old")

def write(text="new"):
    finish_replacing(out)
    with replace_together(out, file_digests(out, NAMES)) as staging:
        for name in NAMES:
            (staging / name).write_text(text)

mine = {"notes.txt": "mine"} if sys.argv[2] == "existing" else {}
old = {**mine, **dict.fromkeys(NAMES[:2], "old")} if mine else {}
new = {**mine, **dict.fromkeys(NAMES, "new")}
mixed = 0
for number in kill_points(write, home, prepare):
    mixed += content(out) not in (old, new)
    finish_replacing(out)
    assert content(out) in (old, new), number
    write("newer")
    assert content(out) == {**mine, **dict.fromkeys(NAMES, "newer")}
    assert [path.name for path in home.iterdir()] == ["review"], number
print(number, mixed)
"""


def content(folder: Path) -> dict[str, str]:
    """Return the text of each file that is not hidden."""
    return {path.name: path.read_text() for path in folder.glob("*") if path.is_file()}


@pytest.mark.parametrize(("state", "seen"), [("new", "nothing"), ("existing", "new nothing old")])
def test_killed_write_of_a_folder_leaves_it_whole(tmp_path: Path, state: str, seen: str) -> None:
    number, _, contents = run_script(KILLED_FOLDERS, tmp_path / "home", state).strip().partition(" ")
    assert int(number) >= 4
    assert contents == seen


@pytest.mark.parametrize(("state", "mixed"), [("new", "0"), ("existing", "2")])
def test_killed_replacement_of_files_is_finished_or_undone(tmp_path: Path, state: str, mixed: str) -> None:
    # In an existing folder, files are renamed one by one: kills between the three renames leave both versions.
    number, kills_between = run_script(KILLED_SETS, tmp_path / "home", state).split()
    assert int(number) >= 4
    assert kills_between == mixed


def test_failure_keeps_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "release"
    with folder_draft(out) as draft:
        (draft / "a").write_text("old")
        replace_folder(draft, out)
    with pytest.raises(UnicodeEncodeError), folder_draft(out) as draft:
        (draft / "a").write_text("é", encoding="ascii")
    assert content(out) == {"a": "old"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "review"
    path.mkdir()
    for name in NAMES:
        (path / name).write_text("old")
    return path


def replace(folder: Path, then: Callable[[], object] = lambda: None) -> None:
    """Replace the files by new ones, which are written before ``then`` is called."""
    with replace_together(folder, file_digests(folder, NAMES)) as staging:
        for name in NAMES:
            (staging / name).write_text("new")
        then()


def test_files_saved_meanwhile_are_kept(folder: Path) -> None:
    with pytest.raises(ConflictError, match=r"a\.xlsx: changed while"):
        replace(folder, lambda: (folder / "a.xlsx").write_text("mine"))
    assert content(folder) == {"a.csv": "old", "a.xlsx": "mine", "b.csv": "old"}
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)


def test_files_saved_after_a_kill_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hgld.io.folder_replacement.finish_replacing", interrupt)
        with pytest.raises(KeyboardInterrupt):
            replace(folder)
    (folder / "a.xlsx").write_text("mine")
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"a\.xlsx: changed after .*\.review\.part/a\.xlsx; copy what"):
            finish_replacing(folder)
    assert content(folder) == {"a.csv": "new", "a.xlsx": "mine", "b.csv": "old"}
    (folder / ".review.part" / "a.xlsx").replace(folder / "a.xlsx")
    finish_replacing(folder)
    assert content(folder) == dict.fromkeys(NAMES, "new")
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)


def interrupt(folder: Path) -> None:
    raise KeyboardInterrupt
