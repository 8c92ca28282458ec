"""List the files below a folder, through links, in the same order on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hgld.errors import InputError


def files_below(root: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to it and sorted.

    Hidden files and folders are left out. Linked folders are followed, but for links to a folder above their own,
    such as ``/``; every folder is read once, by its own path if it is below ``root``.

    Raises:
        InputError: There is no such folder, or a name is not a line of text in UTF-8.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder")
    return sorted(_walk(root))


def _walk(root: Path) -> Iterator[str]:
    visited: set[tuple[int, int]] = set()
    links: list[str] = []

    def walk(folder: str) -> Iterator[str]:
        stat = (root / folder).stat()
        if (stat.st_dev, stat.st_ino) in visited:
            return
        visited.add((stat.st_dev, stat.st_ino))
        with os.scandir(root / folder) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
        for entry in children:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith("."):
                continue
            if not _is_text(path):
                raise InputError(f"{root}: the name {path!r} is not a line of text in UTF-8; rename it")
            if entry.is_dir(follow_symlinks=False):
                yield from walk(path)
            elif entry.is_dir():
                link = root / path
                if link.resolve() not in link.parent.resolve().parents:
                    links.append(path)
            elif entry.is_file():
                yield path

    yield from walk("")
    while links:
        yield from walk(links.pop(0))


def _is_text(name: str) -> bool:
    """Return whether a name can be an id: Python has surrogates for bytes that are not UTF-8."""
    return len(name.splitlines()) == 1 and not any("\ud800" <= character <= "\udfff" for character in name)
