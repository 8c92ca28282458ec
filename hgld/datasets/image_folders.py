"""Find the images below a folder: files at any depth or, where there are none, the members of tar files."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hgld.errors import InputError
from hgld.gldv2.image_index import index_shard
from hgld.io.columns import preview
from hgld.io.images import SUFFIXES

log = logging.getLogger(__name__)

#: GLDv2's own layout, where the names of the folders are the first letters of the image's id.
_GLDV2_PATH = re.compile(r"(?:.*/)?(?P<a>[^/])/(?P<b>[^/])/(?P<c>[^/])/(?P<id>(?P=a)(?P=b)(?P=c)[^/]*)\.[^/.]+")


@dataclass(frozen=True)
class FoundImages:
    """Images below a folder, sorted by name within the folder or each tar file.

    Args:
        names: Path of each image, relative to the folder or as in its tar file.
        files: The image file, or the tar file that holds the image; relative to the folder.
        offsets: Position of the image's bytes in the tar file; None for image files.
        sizes: Number of these bytes; None for image files.
        other_files: Number of files that are no images, by suffix in lower case.
    """

    names: Sequence[str]
    files: Sequence[str]
    offsets: Sequence[int | None]
    sizes: Sequence[int | None]
    other_files: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)


def find_images(root: Path) -> FoundImages:
    """Find the images below a folder, or in a tar file.

    Tar files are read only if there are no image files. Hidden files and folders are ignored. Linked folders are
    followed, but every folder is read once, by its own path if it is below ``root``.

    Args:
        root: Folder with images or with tar files; or a tar file, which counts as the only one in its folder.

    Raises:
        InputError: There are no images, there is no such folder, or a tar file is damaged.
    """
    if is_tar(root):
        return _find_in_tars(root, root.parent, [root.name], Counter())
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; name the one that contains the images, or a tar file of them")
    files = sorted(_walk(root))
    images = [file for file in files if PurePosixPath(file).suffix.lower() in SUFFIXES]
    if images:
        others = Counter(PurePosixPath(file).suffix.lower() for file in files)
        nones = [None] * len(images)
        return FoundImages(images, images, nones, nones, _without_images(others))
    tars = [file for file in files if _has_tar_suffix(file)]
    others = Counter(PurePosixPath(file).suffix.lower() for file in files if not _has_tar_suffix(file))
    return _find_in_tars(root, root, tars, others)


def find_images_digest(root: Path) -> str:
    """Return the SHA-256 of what :func:`find_images` depends on: paths, and sizes and times of tar files."""
    folder, files = (root.parent, [root.name]) if is_tar(root) else (root, sorted(_walk(root)))
    digest = hashlib.sha256()
    for file in files:
        stat = (folder / file).stat() if _has_tar_suffix(file) else None
        digest.update(f"{file}\n{(stat.st_size, stat.st_mtime_ns) if stat else ''}\n".encode())
    return digest.hexdigest()


def is_tar(path: Path) -> bool:
    """Return whether a path is that of a tar file, by its suffix, rather than of a folder."""
    return _has_tar_suffix(path.name) and not path.is_dir()


def image_id(name: str) -> str:
    """Return the id of an image without another one: its path, or in GLDv2's own folders its name.

    >>> image_id("Fruit/Apple/1.jpg"), image_id("train/0/a/f/0af3.jpg")
    ('Fruit/Apple/1.jpg', '0af3')
    """
    match = _GLDV2_PATH.fullmatch(name)
    return match["id"] if match else name


def format_suffixes(other_files: Mapping[str, int]) -> str:
    """Format numbers of files by suffix.

    >>> format_suffixes({".txt": 3, "": 1})
    '3 .txt, 1 without suffix'
    """
    counts = sorted(other_files.items(), key=lambda item: (-item[1], item[0]))
    return preview([f"{count:,} {suffix or 'without suffix'}" for suffix, count in counts])


def _find_in_tars(root: Path, folder: Path, tars: Sequence[str], others: Counter[str]) -> FoundImages:
    names, files, offsets, sizes = list[str](), list[str](), list[int | None](), list[int | None]()
    for tar in tars:
        if not (folder / tar).is_file():
            raise InputError(f"{folder / tar}: no such file; name a tar file of images, or a folder")
        index = index_shard(folder / tar)
        names += [str(PurePosixPath(name)) for name in index.names]  # without a leading "./"
        files += [tar] * len(index.names)
        offsets += index.offsets
        sizes += index.sizes
        others.update(index.other_files)
    if not names:
        raise InputError(
            f"{root}: no images in this {'tar file' if is_tar(root) else 'folder or in tar files below it'} "
            f"({', '.join(SUFFIXES)}); found {format_suffixes(others) or 'no files'}"
        )
    return FoundImages(names, files, offsets, sizes, others)


def _has_tar_suffix(name: str) -> bool:
    return name.lower().endswith(".tar")


def _without_images(suffixes: Counter[str]) -> dict[str, int]:
    return {suffix: count for suffix, count in suffixes.items() if suffix not in SUFFIXES}


def _is_text(name: str) -> bool:
    """Return whether a name can be an id: Python has surrogates for bytes that are not UTF-8."""
    return len(name.splitlines()) == 1 and not any("\ud800" <= character <= "\udfff" for character in name)


def _walk(root: Path) -> Iterator[str]:
    """Iterate over the files below a folder by their paths relative to it."""
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
                links.append(path)
            elif entry.is_file():
                yield path

    yield from walk("")
    while links:
        yield from walk(links.pop(0))
