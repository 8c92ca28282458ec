"""Write files atomically, check beforehand that they can be written, and compute their digests."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hgld.errors import ConfigurationError
from hgld.progress import byte_size

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block succeeds and is removed when it fails.

    Folders above ``path`` are created. What a process that was killed left behind is overwritten by the next one.

    Raises:
        OSError: The file cannot be written, also where a library such as torch raises another error for that.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with atomic_write(target) as draft:
    ...     _ = draft.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft_of(path)
    try:
        with _claim(draft) as claimed:
            if not claimed:
                draft = _draft_of(path, socket.gethostname(), os.getpid())  # nodes may share a folder without locks
            try:
                yield draft
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
    except Exception as error:
        if (failure := _write_failure(error, draft, path)) is not None:
            raise failure from error
        raise


def _draft_of(path: Path, *marks: str | int) -> Path:
    """Return the temporary path; the suffix stays last, as writers such as matplotlib choose the format by it."""
    return path.with_name(".".join(["", path.stem, *map(str, marks), f"part{path.suffix}"]))


@contextmanager
def _claim(draft: Path) -> Iterator[bool]:
    """Create a file and lock it, so that another process that writes the same file now uses another draft.

    The system releases the lock of a process that dies: its draft can be claimed again.

    Yields:
        Whether this process may write the draft; always False where the system has no such locks.
    """
    if fcntl is None:
        yield False
        return
    with draft.open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock may have renamed the file since it was opened.
            claimed = os.path.samestat(os.fstat(stream.fileno()), draft.stat())
        except (BlockingIOError, FileNotFoundError):
            claimed = False
        except OSError:  # a file system without locks
            claimed = False
            draft.unlink(missing_ok=True)
        yield claimed


def check_writable_file(path: Path) -> None:
    """Check that a file can be written at ``path``, without writing anything.

    Raises:
        ConfigurationError: ``path`` is a folder, or see :func:`check_writable_folder`.

    >>> check_writable_file(Path("/"))
    Traceback (most recent call last):
    hgld.errors.ConfigurationError: / is a folder; name a file in it
    """
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file in it")
    check_writable_folder(path.parent)


def check_writable_folder(path: Path) -> None:
    """Check that files can be written in the folder ``path``, which need not exist yet, without writing anything.

    Raises:
        ConfigurationError: A file stands in its place or in that of a folder above it, the folder or the file system
            is read-only or not on a disk, or the disk is full.
    """
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise ConfigurationError(f"{existing} is a file, so nothing can be written below it; choose another place")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{existing} is read-only; choose another place, or change its permissions")
    usage = shutil.disk_usage(existing)
    if usage.total == 0:
        raise ConfigurationError(f"{existing} is not on a disk, and holds no files; choose another place")
    if usage.free == 0:
        raise ConfigurationError(f"the disk of {existing} is full; free some space, then run the same command again")


def require_free_space(
    folder: Path, n_bytes: float, what: str, advice: str = "free some space, or choose another folder (`out`)"
) -> None:
    """Check that the disk of a folder, or of the closest one above it that exists, has space for files.

    Args:
        folder: Folder to write to.
        n_bytes: Size of the files.
        what: Name of the files in the message, such as ``the images``.
        advice: What the user can do.

    Raises:
        ConfigurationError: The disk is too small.
    """
    free = free_bytes(folder)
    if n_bytes > free:
        raise ConfigurationError(
            f"{folder}: {what} need about {byte_size(n_bytes)}, but the disk has only {byte_size(free)} left; "
            f"{advice}"
        )


def free_bytes(folder: Path) -> int:
    """Return the free space on the disk of a folder, or of the closest one above it that exists."""
    folder = folder.absolute()
    return shutil.disk_usage(folder).free if folder.exists() else free_bytes(folder.parent)


def require_suffix(path: Path, *suffixes: str) -> None:
    """Check that a file to write has the suffix of a format.

    Raises:
        ConfigurationError: The suffix is another one.

    >>> require_suffix(Path("table.txt"), ".csv", ".parquet")
    Traceback (most recent call last):
    hgld.errors.ConfigurationError: table.txt: the suffix is ".txt"; choose .csv or .parquet
    """
    if path.suffix not in suffixes:
        raise ConfigurationError(f'{path}: the suffix is "{path.suffix}"; choose {" or ".join(suffixes)}')


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    return digest_of(path, "sha256")


def digest_of(path: Path, algorithm: str) -> str:
    """Return the digest of a file in hex.

    Args:
        path: File to read.
        algorithm: Name of an algorithm of hashlib, such as ``md5``.
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _write_failure(error: Exception, draft: Path, path: Path) -> OSError | None:
    """Return the failure to write ``draft`` behind an error as one that names ``path``; None if it is another one."""
    if match := re.search(r"\(os error (\d+)\)", str(error)):  # safetensors
        return OSError(int(match[1]), os.strerror(int(match[1])), str(path))
    if isinstance(error, RuntimeError) and "inline_container.cc" in str(error):  # torch.save
        return OSError(errno.EIO, os.strerror(errno.EIO), str(path))
    if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(draft)):
        return OSError(error.errno, os.strerror(error.errno), str(path))
    return None
