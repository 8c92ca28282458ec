"""List the files below a folder in the same order on every machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from hgld.errors import InputError


class FilesBelow(NamedTuple):
    """Paths of files and of broken symbolic links below a folder, relative to it and sorted."""

    files: list[str]
    broken_links: list[str]


def files_below(root: Path) -> list[str]:
    """Return the paths of all files below a folder; see :func:`files_and_links_below`."""
    return files_and_links_below(root).files


def files_and_links_below(root: Path) -> FilesBelow:
    """Return the paths of all files below a folder, relative to it and sorted.

    Hidden files and folders are left out. Linked folders are followed, except links to a folder
    above the link, such as ``/``. Every folder is read once, by its own path if it is below
    ``root``.

    Raises:
        InputError: The folder does not exist, or a name is not a line of text in UTF-8.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder")
    walk = _FolderWalk(root)
    walk.add_folder("")
    while walk.linked_folders:
        walk.add_folder(walk.linked_folders.pop(0))
    return FilesBelow(sorted(walk.files), sorted(walk.broken_links))


class _FolderWalk:
    """Collects the files below ``root``, and the linked folders that remain to be read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: list[str] = []
        self.linked_folders: list[str] = []
        self.broken_links: list[str] = []
        self._visited: set[tuple[int, int]] = set()

    def add_folder(self, folder: str) -> None:
        """Add the files below a folder that was not read before, given by its path relative to ``root``."""
        stat = (self.root / folder).stat()
        identity = (stat.st_dev, stat.st_ino)
        if identity in self._visited:
            return
        self._visited.add(identity)
        with os.scandir(self.root / folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in sorted(visible, key=lambda entry: entry.name):
            path = f"{folder}/{entry.name}" if folder else entry.name
            self._require_text(path)
            if entry.is_symlink() and not (self.root / path).exists():
                self.broken_links.append(path)
            elif entry.is_dir(follow_symlinks=False):
                self.add_folder(path)
            elif entry.is_dir():
                link = self.root / path
                if link.resolve() not in link.parent.resolve().parents:
                    self.linked_folders.append(path)
            elif entry.is_file():
                self.files.append(path)

    def _require_text(self, path: str) -> None:
        """Raise an InputError if a path is not a line of text in UTF-8."""
        # Python has surrogates for bytes that are not UTF-8.
        has_surrogates = any("\ud800" <= character <= "\udfff" for character in path)
        if has_surrogates or len(path.splitlines()) != 1:
            raise InputError(
                f"{self.root}: the name {path!r} is not a line of text in UTF-8; rename it"
            )
