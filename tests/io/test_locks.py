"""Exclusive locks between threads, and after a process was killed."""

import errno
import math
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hgld.errors import BusyError
from hgld.io.files import exclusive_lock, is_locked


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
        "import sys, time\nfrom pathlib import Path\nfrom hgld.io.files import exclusive_lock, is_locked\n"
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
    def fail(*_: object) -> None:
        raise OSError(code, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", fail)
    for _ in range(2):
        with exclusive_lock(tmp_path / "out"):
            assert not is_locked(tmp_path / "out")
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        f"{tmp_path}: this file system has no locks (Function not implemented)"
    ]
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_locks_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(OSError, match="Input/output error"), exclusive_lock(tmp_path / "out"):
        pass


def test_held_locks_are_seen(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "out")
    with exclusive_lock(tmp_path / "out"):
        assert is_locked(tmp_path / "out")
    (tmp_path / ".out.lock").touch()  # of a process that was killed
    assert not is_locked(tmp_path / "out")
