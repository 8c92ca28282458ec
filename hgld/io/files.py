"""Write files and folders atomically and in one run at a time; list and digest them; check that they can be written.

Locks are those of the system (``flock``), which end with the process that holds them, however it ends. Over NFS the
server keeps them; Lustre has them where it is mounted with ``flock``. A file system without them is written without
locks after a warning: marker files instead would outlive killed jobs, and keep those that are requeued from resuming.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from hgld.errors import BusyError, ConfigurationError, ConflictError, InputError
from hgld.progress import byte_size

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

#: Errors of file systems without locks, such as Lustre mounted without ``flock`` and NFS without a lock manager.
_WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
#: File that states what the files of a complete set replace; it is written last.
_REPLACED = "replaced.json"
#: Element in the head of every page that hgld writes.
_GENERATOR = '<meta name="generator" content="hgld">'


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
                draft = _draft_of(
                    path, socket.gethostname(), os.getpid()
                )  # nodes may share a folder without locks
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


def _write_failure(error: Exception, draft: Path, path: Path) -> OSError | None:
    """Return the failure to write ``draft`` behind an error as one that names ``path``; None if it is another one."""
    if match := re.search(r"\(os error (\d+)\)", str(error)):  # safetensors
        return OSError(int(match[1]), os.strerror(int(match[1])), str(path))
    if isinstance(error, RuntimeError) and "inline_container.cc" in str(error):  # torch.save
        return OSError(errno.EIO, os.strerror(errno.EIO), str(path))
    if (
        isinstance(error, OSError)
        and error.errno is not None
        and error.filename in (None, str(draft))
    ):
        return OSError(error.errno, os.strerror(error.errno), str(path))
    return None


def _draft_of(path: Path, *marks: str | int) -> Path:
    """Return the temporary path; the suffix stays last, as writers such as matplotlib choose the format by it."""
    return path.with_name(".".join(["", path.stem, *map(str, marks), f"part{path.suffix}"]))


@contextmanager
def _claim(draft: Path) -> Iterator[bool]:
    """Create a file and lock it; yield whether this process may write it, which is False where there are no locks.

    The system releases the lock of a process that dies: its draft can be claimed again.
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


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, atomically."""
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_page(path: Path, html: str) -> None:
    """Write an HTML page, atomically; see :func:`require_own_page`."""
    require_own_page(path)
    write_text(path, html)


def require_own_page(path: Path) -> None:
    """Raise unless a page may be replaced: it does not exist, is empty, or says that hgld generated it.

    Raises:
        ConfigurationError: The page does not say so; hgld 0.2.0 and earlier versions wrote pages that do not.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        head = stream.read(1000)
    if _GENERATOR not in head:
        raise ConfigurationError(
            f"{path}: exists, and hgld did not write it; remove it, or name another file"
        )


def require_own_json(path: Path, keys: Collection[str]) -> None:
    """Raise unless a JSON file may be replaced: it does not exist, is empty, or is an object with these keys.

    Raises:
        ConfigurationError: The file is something else, so hgld never wrote it.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        document = None
    if not isinstance(document, dict) or not {*keys} <= {*document}:
        raise ConfigurationError(
            f"{path}: exists, and hgld did not write it (it lacks the keys {', '.join(keys)}); remove it, or name "
            "another file"
        )


def write_csv(
    path: Path,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    lineterminator: str = "\n",
) -> None:
    """Write rows below a header as a CSV file in UTF-8, atomically; values are quoted where necessary.

    Raises:
        ConfigurationError: The file exists and has other columns.
    """
    require_own_csv(path, columns)
    with atomic_write(path) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator=lineterminator)
        writer.writerow(columns)
        writer.writerows(rows)


def require_own_csv(path: Path, columns: Sequence[str]) -> None:
    """Raise unless a CSV file may be replaced: it does not exist, is empty, or has columns like the new ones.

    At least half of the new columns, and two of them, must be there already: the columns of levels and those of later
    versions differ.

    Raises:
        ConfigurationError: The file has other columns, so hgld never wrote it.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        header = stream.readline(10_000)
    names = next(csv.reader([header]), [])
    n_common = len({*names} & {*columns})
    if n_common < min(2, len(columns)) or 2 * n_common < len(columns):
        raise ConfigurationError(
            f"{path}: exists, and hgld did not write it (its columns are {header.strip()[:100]}; expected "
            f"{','.join(columns)}); remove it, or name another file"
        )


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
        raise ConfigurationError(
            f"{existing} is a file, so nothing can be written below it; choose another place"
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{existing} is read-only; choose another place, or change its permissions"
        )
    usage = shutil.disk_usage(existing)
    if usage.total == 0:
        raise ConfigurationError(
            f"{existing} is not on a disk, and holds no files; choose another place"
        )
    if usage.free == 0:
        raise ConfigurationError(
            f"the disk of {existing} is full; free some space, then run the same command again"
        )


def require_free_space(
    folder: Path,
    n_bytes: float,
    what: str,
    advice: str = "free some space, or choose another folder (`out`)",
) -> None:
    """Check that the disk of a folder, or of the closest one above it that exists, has space for files.

    ``what`` names them in the message, such as ``the images``, and ``advice`` says what the user can do.

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

    >>> require_suffix(Path("table.txt"), ".csv", ".parquet")
    Traceback (most recent call last):
    hgld.errors.ConfigurationError: table.txt: the suffix is ".txt"; choose .csv or .parquet
    """
    if path.suffix not in suffixes:
        raise ConfigurationError(
            f'{path}: the suffix is "{path.suffix}"; choose {" or ".join(suffixes)}'
        )


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not JSON, or not a mapping.
    """
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError("not a mapping")
    return values


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    return digest_of(path, "sha256")


def digest_of(path: Path, algorithm: str) -> str:
    """Return the digest of a file in hex, by an algorithm of hashlib such as ``md5``."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def cache_folder(name: str) -> Path:
    """Return a folder in that of the environment variable HGLD_CACHE, else in ``~/.cache/hgld``; it need not exist.

    >>> cache_folder("h-gldv2").name
    'h-gldv2'
    """
    folder = os.environ.get("HGLD_CACHE")
    return (Path(folder) if folder else Path("~/.cache/hgld").expanduser()) / name


class FilesBelow(NamedTuple):
    """Paths of the files below a folder, and of links to nothing, relative to it and sorted."""

    files: list[str]
    broken_links: list[str]


def path_beside(embeddings: Path, name: str) -> Path:
    """Return the path of the logits or deviations that belong to a file of embeddings.

    >>> path_beside(Path("data/photographs.npy"), "deviations").as_posix()
    'data/photographs.deviations.npy'
    """
    return embeddings.with_suffix(f".{name}{embeddings.suffix}")


def files_below(root: Path) -> list[str]:
    """Return the paths of all files below a folder; see :func:`files_and_links_below`."""
    return files_and_links_below(root).files


def files_and_links_below(root: Path) -> FilesBelow:
    """Return the paths of all files below a folder, relative to it and sorted, alike on every machine.

    Hidden files and folders are left out. Linked folders are followed, but for links to a folder above their own,
    such as ``/``; every folder is read once, by its own path if it is below ``root``.

    Raises:
        InputError: There is no such folder, or a name is not a line of text in UTF-8.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder")
    visited: set[tuple[int, int]] = set()
    links: list[str] = []
    broken_links: list[str] = []

    def walk(folder: str) -> Iterator[str]:
        stat = (root / folder).stat()
        if (stat.st_dev, stat.st_ino) in visited:
            return
        visited.add((stat.st_dev, stat.st_ino))
        with os.scandir(root / folder) as entries:
            children = sorted(
                (entry for entry in entries if entry.name[0] != "."), key=lambda entry: entry.name
            )
        for entry in children:
            path = f"{folder}/{entry.name}" if folder else entry.name
            # Python has surrogates for bytes that are not UTF-8.
            if len(path.splitlines()) != 1 or any(
                "\ud800" <= character <= "\udfff" for character in path
            ):
                raise InputError(
                    f"{root}: the name {path!r} is not a line of text in UTF-8; rename it"
                )
            if entry.is_symlink() and not (root / path).exists():
                broken_links.append(path)
            elif entry.is_dir(follow_symlinks=False):
                yield from walk(path)
            elif entry.is_dir():
                link = root / path
                if link.resolve() not in link.parent.resolve().parents:
                    links.append(path)
            elif entry.is_file():
                yield path

    files = list(walk(""))
    while links:
        files += walk(links.pop(0))
    return FilesBelow(sorted(files), sorted(broken_links))


# Folders, and sets of files in a folder. Callers hold :func:`exclusive_lock` for the folder, so what they find under
# the names of drafts was left by a run that was killed, and never belongs to a run in progress.


@contextmanager
def folder_draft(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``out``, to be filled and given to :func:`replace_folder`; else it is removed.

    Drafts of runs that were killed are removed, and a folder that such a run was about to replace is restored.
    """
    draft, earlier = _beside(out, "part"), _beside(out, "old")
    if earlier.exists() and (not out.exists() or (out.is_dir() and not any(out.iterdir()))):
        earlier.replace(out)
    for leftover in (draft, earlier):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def replace_folder(draft: Path, out: Path) -> None:
    """Rename a draft to ``out``; an existing folder is removed afterwards, or restored if renaming fails."""
    earlier = _beside(out, "old")
    if out.exists():
        out.replace(earlier)
    try:
        draft.replace(out)
    except OSError:
        if earlier.exists():
            earlier.replace(out)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def file_digests(folder: Path, names: Iterable[str]) -> dict[str, str | None]:
    """Return the SHA-256 of files of a folder by name; None for those that do not exist."""
    return {name: sha256_of(folder / name) if (folder / name).exists() else None for name in names}


@contextmanager
def replace_together(folder: Path, replaced: Mapping[str, str | None]) -> Iterator[Path]:
    """Yield a folder for new files that replace those of ``folder`` together when the block succeeds.

    If the process is killed, all files of a new folder appear or none. In a folder that exists, the files are renamed
    one by one once all of them are written; what is missing after a kill is done by :func:`finish_replacing`.

    ``replaced`` has the names of the files, with the digests of what they replace (:func:`file_digests`).

    Raises:
        ConflictError: A file was changed since its digest was taken; nothing is replaced.
    """
    staging = _staging_in(folder) if folder.is_dir() else _beside(folder, "part")
    staging.mkdir(parents=True)
    try:
        yield staging
        if folder.is_dir():
            for name, digest in file_digests(folder, replaced).items():
                if digest != replaced[name]:
                    raise ConflictError(
                        f"{folder / name}: changed while its new version was written; run the same command again"
                    )
            with atomic_write(staging / _REPLACED) as draft:
                draft.write_text(json.dumps(replaced), encoding="utf-8")
            finish_replacing(folder)
        else:
            staging.replace(folder)
    finally:
        if not (staging / _REPLACED).exists():
            shutil.rmtree(staging, ignore_errors=True)


def finish_replacing(folder: Path) -> None:
    """Finish what a killed run began to replace in a folder, and remove the files of one that did not get so far.

    Raises:
        ConflictError: A file that remains to be replaced was changed after the kill.
    """
    staging = _staging_in(folder)
    if (staging / _REPLACED).exists():
        for name, digest in json.loads((staging / _REPLACED).read_text(encoding="utf-8")).items():
            if not (staging / name).exists():
                continue
            if file_digests(folder, [name]) != {name: digest}:
                raise ConflictError(
                    f"{folder / name}: changed after a run that was interrupted when about to replace it by "
                    f"{staging / name}; copy what that file lacks into it and move it to {folder / name}, then run "
                    "again"
                )
            (staging / name).replace(folder / name)
        (staging / _REPLACED).unlink()
    for leftover in (staging, _beside(folder, "part")):
        shutil.rmtree(leftover, ignore_errors=True)


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f".{folder.name}.{suffix}")


def _staging_in(folder: Path) -> Path:
    return folder / f".{folder.name}.part"


def require_other_file(out: Path, inputs: Iterable[Path]) -> None:
    """Raise a :class:`ConfigurationError` if an output is one of the inputs."""
    if out.exists() and any(path.exists() and out.samefile(path) for path in inputs):
        raise ConfigurationError(
            f"{out}: is an input, and would be overwritten; write to another file"
        )


# Locks: one run at a time writes an output, also on several computers that share a file system.


@contextmanager
def exclusive_lock(out: Path, *, wait_s: float = 0, name: str | None = None) -> Iterator[None]:
    """Lock an output for this process; the operating system releases the lock if the process dies.

    Args:
        out: File or folder to lock. The lock file ``.{name}.lock`` is beside it while the lock is held; folders above
            it are created.
        wait_s: Seconds to wait while another run holds the lock; ``math.inf`` waits as long as it takes.
        name: What is written, for the message. Default: ``out``.

    Raises:
        BusyError: Another run has held the lock for all of ``wait_s``.
    """
    path = _lock_path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=-1 if wait_s == math.inf else wait_s)
    except Timeout:
        raise BusyError(
            f"another run is writing {name or out}; wait for it to end, or choose another output"
        ) from None
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        _warn_without_locks(path.parent, str(error.strerror))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def is_locked(out: Path) -> bool:
    """Return whether another run holds the lock of an output; False where the file system has no locks."""
    if not _lock_path(out).exists():  # the attempt below would create folders above it
        return False
    try:
        with exclusive_lock(out):
            return False
    except BusyError:
        return True


def _lock_path(out: Path) -> Path:
    out = out.resolve()  # an output is locked under all of its names
    return out.with_name(f".{out.name}.lock")


@cache
def _warn_without_locks(folder: Path, reason: str) -> None:
    """Warn once per folder."""
    log.warning(
        "%s: this file system has no locks (%s), so nothing stops two runs from writing the same output here; start "
        "one at a time, or mount it with locks (Lustre: -o flock)",
        folder,
        reason,
    )
