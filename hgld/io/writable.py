"""Check before a run that its outputs can be written, without writing anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from hgld.errors import ConfigurationError
from hgld.progress import byte_size


def check_writable_file(path: Path) -> None:
    """Check that a file can be written at ``path``, without writing anything.

    Raises:
        ConfigurationError: ``path`` is a folder, or see :func:`check_writable_folder`.

    >>> check_writable_file(Path("/"))
    Traceback (most recent call last):
    hgld.errors.ConfigurationError: / is a folder; name a file in it
    """
    if os.access(path, os.F_OK) and path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file in it")
    check_writable_folder(path.parent)


def check_writable_folder(path: Path) -> None:
    """Check that files can be written in a folder, which need not exist yet, without writing.

    Raises:
        ConfigurationError: The path or a folder above it is a file, the folder or the file system
            is read-only or not on a disk, or the disk is full.
    """
    existing = _nearest_existing(path)
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
    """Check that the disk of a folder has space for files.

    Args:
        folder: The folder; it need not exist yet.
        n_bytes: Size of the files in bytes.
        what: Name of the files in the error message, such as ``the images``.
        advice: What the user can do, for the error message.

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
    """Return the free space in bytes on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(_nearest_existing(folder)).free


def _nearest_existing(path: Path) -> Path:
    """Return a path, or the nearest folder above it that exists and whose contents can be accessed."""
    existing = path.absolute()
    while not os.access(existing, os.F_OK):  # Path.exists fails below a folder without access
        existing = existing.parent
    return existing


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


def require_other_file(out: Path, inputs: Iterable[Path]) -> None:
    """Raise a :class:`ConfigurationError` if an output is one of the inputs."""
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise ConfigurationError(
                f"{out}: is an input, and would be overwritten; write to another file"
            )
