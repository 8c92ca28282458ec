"""Find the images below a folder, and those of given paths among them.

Images are files at any depth or, where there are none, the members of tar files.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import pyarrow as pa

from hgld.errors import InputError, indented_list
from hgld.gldv2.tar_images import index_shard
from hgld.io.columns import preview
from hgld.io.files import files_and_links_below, files_below
from hgld.io.images import SUFFIXES
from hgld.names import stored_id

_TAR_SUFFIXES = (".tar",)
#: Suffixes of archives that images are not read from.
_ARCHIVES = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".rar")
#: GLDv2's own layout, where the names of the folders are the first letters of the image's id.
_GLDV2_PATH = re.compile(
    r"(?:.*/)?(?P<a>[^/])/(?P<b>[^/])/(?P<c>[^/])/(?P<id>(?P=a)(?P=b)(?P=c)[^/]*)\.[^/.]+"
)


@dataclass(frozen=True)
class FoundImages:
    """Images below a folder, sorted by name within the folder or each tar file.

    Args:
        names: Path of each image, relative to the folder or as in its tar file.
        files: The image file, or the tar file that holds the image; relative to the folder.
        offsets: Position of the image's bytes in the tar file; None for image files.
        other_files: Number of files that are not images, by suffix in lower case.
        broken_links: Number of links to images or tar files that are not there, such as those of git-annex and DVC
            before their content is fetched.
    """

    names: Sequence[str]
    files: Sequence[str]
    offsets: Sequence[int | None]
    sizes: Sequence[int | None]
    other_files: Mapping[str, int] = field(default_factory=dict)
    broken_links: int = 0

    def __len__(self) -> int:
        return len(self.names)

    def places(self, rows: Sequence[int | None]) -> dict[str, pa.Array]:
        """Return the columns path, offset and size of a manifest for the images of some rows, nulls for no row."""
        taken = pa.array(rows, pa.int64())
        return {
            "path": pa.array(self.files, pa.string()).take(taken),
            "offset": pa.array(self.offsets, pa.int64()).take(taken),
            "size": pa.array(self.sizes, pa.int64()).take(taken),
        }


def find_images(root: Path) -> FoundImages:
    """Find the images below a folder, or in a tar file.

    Tar files are read only if there are no image files. Hidden files and folders are ignored. Linked folders are
    followed, but every folder is read once, by its own path if it is below ``root``.

    Args:
        root: Folder with images or with tar files; or a tar file, which counts as the only one in its folder.

    Raises:
        InputError: There are no images, a tar file is damaged, or two images in tar files have the same path.
    """
    if is_tar(root):
        if not root.is_file():
            raise InputError(f"{root}: no such file; name a tar file of images, or a folder")
        return _require_images(root, _read_tars(root.parent, [root.name]))
    if not root.is_dir():
        raise InputError(
            f"{root}: no such folder; name the one that contains the images, or a tar file of them"
        )
    files, links = files_and_links_below(root)
    n_broken = sum(
        PurePosixPath(link).suffix.lower() in (*SUFFIXES, *_TAR_SUFFIXES) for link in links
    )
    others = Counter(PurePosixPath(file).suffix.lower() for file in files)
    images = [file for file in files if PurePosixPath(file).suffix.lower() in SUFFIXES]
    if images:
        nones = [None] * len(images)
        return FoundImages(images, images, nones, nones, _without(others, SUFFIXES), n_broken)
    tars = [file for file in files if _has_tar_suffix(file)]
    found = replace(_read_tars(root, tars, _without(others, _TAR_SUFFIXES)), broken_links=n_broken)
    return _require_images(root, found)


def find_in_tars(root: Path) -> FoundImages:
    """Find the images in the tar files below a folder, whatever else is there."""
    return _read_tars(root, [file for file in files_below(root) if _has_tar_suffix(file)])


def find_images_digest(root: Path) -> str:
    """Return the SHA-256 of what :func:`find_images` depends on: paths, and sizes and times of tar files."""
    folder, files = (root.parent, [root.name]) if is_tar(root) else (root, files_below(root))
    digest = hashlib.sha256()
    for file in files:
        stat = (folder / file).stat() if _has_tar_suffix(file) else None
        digest.update(f"{file}\n{(stat.st_size, stat.st_mtime_ns) if stat else ''}\n".encode())
    return digest.hexdigest()


def is_tar(path: Path) -> bool:
    """Return whether a path is that of a tar file, by its suffix, rather than of a folder."""
    return _has_tar_suffix(path.name) and not path.is_dir()


def match_paths(wanted: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Find images by their paths.

    A path is that of an image, or the end of one that no other image shares, with or without suffix; or all of them
    begin with the same folders, which the paths of the images lack. Backslashes count as slashes.

    Returns:
        The position among ``names`` of each wanted path; None where there is none, or several.

    >>> images = ["x/a/1.jpg", "x/b/1.jpg", "x/b/2.png"]
    >>> match_paths(["a/1.jpg", "b/1", "1.jpg", "2"], images)
    [0, 1, None, 2]
    >>> match_paths(["/data/x/a/1.jpg", "/data/x/b/2.png"], images)
    [0, 2]
    """
    names = [stored_id(name) for name in names]
    rows: dict[str, int | None] = {name: row for row, name in enumerate(names)}
    keys: Sequence[str] = [
        PurePosixPath(stored_id(path).replace("\\", "/")).as_posix() for path in wanted
    ]
    for n_parts in {key.count("/") + 1 for key in keys if key not in rows}:
        ends = ["/".join(name.split("/")[-n_parts:]) for name in names]
        for variant in (ends, [end.rpartition(".")[0] for end in ends]):
            counts = Counter(variant)
            for row, end in enumerate(variant):
                rows.setdefault(end, row if counts[end] == 1 else None)
    if not any(key in rows for key in keys):
        keys = _without_common_folders(keys, rows)
    return [rows.get(key) for key in keys]


def image_id(name: str) -> str:
    """Return the id of an image without another one: its path in NFC, or in GLDv2's own folders its name.

    >>> image_id("Fruit/Apple/1.jpg"), image_id("train/0/a/f/0af3.jpg")
    ('Fruit/Apple/1.jpg', '0af3')
    """
    match = _GLDV2_PATH.fullmatch(name)
    return stored_id(match["id"] if match else name)


def places_of_repeated(names: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return the names that are there several times, each with its places, for messages.

    >>> places_of_repeated(["a", "b", "a"], ["1.tar", "1.tar", "2.tar"])
    ['a: 1.tar, 2.tar']
    """
    counts = Counter(names)
    found: dict[str, list[str]] = {}
    for name, place in zip(names, places, strict=True):
        if counts[name] > 1:
            found.setdefault(name, []).append(place)
    return [f"{name}: {', '.join(own)}" for name, own in found.items()]


def format_suffixes(other_files: Mapping[str, int]) -> str:
    """Format numbers of files by suffix.

    >>> format_suffixes({".txt": 3, "": 1})
    '3 .txt, 1 without suffix'
    """
    counts = sorted(other_files.items(), key=lambda item: (-item[1], item[0]))
    return preview([f"{count:,} {suffix or 'without suffix'}" for suffix, count in counts])


def format_broken_links(count: int) -> str:
    """Return the end of a message that says how many links lead to nothing, if any.

    >>> format_broken_links(1), format_broken_links(0)
    ('; 1 link is broken: fetch the file that it leads to', '')
    """
    if not count:
        return ""
    links = "1 link is broken: fetch the file that it leads to"
    return (
        f"; {links}"
        if count == 1
        else f"; {count:,} links are broken: fetch the files that they lead to"
    )


def _read_tars(
    folder: Path, tars: Sequence[str], others: Mapping[str, int] | None = None
) -> FoundImages:
    """Return the images in tar files; ``others`` are the numbers of files beside these."""
    names, files, offsets, sizes = list[str](), list[str](), list[int | None](), list[int | None]()
    other_files = Counter(others or {})
    for tar in tars:
        index = index_shard(folder / tar)
        names += [str(PurePosixPath(name)) for name in index.names]  # without a leading "./"
        files += [tar] * len(index.names)
        offsets += index.offsets
        sizes += index.sizes
        other_files.update(index.other_files)
    if repeated := places_of_repeated(names, files):
        raise InputError(
            f"{folder}: {len(repeated):,} images are in tar files several times; name one tar file, or a folder of "
            f"tar files in which each path names one image\n{indented_list(repeated, limit=5)}"
        )
    return FoundImages(names, files, offsets, sizes, other_files)


def _require_images(root: Path, found: FoundImages) -> FoundImages:
    if not len(found):
        advice = (
            "; unpack the archives"
            if any(suffix in _ARCHIVES for suffix in found.other_files)
            else ""
        )
        raise InputError(
            f"{root}: no images in this {'tar file' if is_tar(root) else 'folder or in tar files below it'} "
            f"({', '.join(SUFFIXES)}); found {format_suffixes(found.other_files) or 'no files'}{advice}"
            f"{format_broken_links(found.broken_links)}"
        )
    return found


def _has_tar_suffix(name: str) -> bool:
    return name.lower().endswith(_TAR_SUFFIXES)


def _without(suffixes: Mapping[str, int], excluded: Collection[str]) -> dict[str, int]:
    return {suffix: count for suffix, count in suffixes.items() if suffix not in excluded}


def _without_common_folders(paths: Sequence[str], names: Collection[str]) -> Sequence[str]:
    """Return paths without the first folders that all share, if that makes some the names of images."""
    folders = paths[0].split("/")[:-1]
    for n_folders in range(1, len(folders) + 1):
        prefix = "".join(f"{folder}/" for folder in folders[:n_folders])
        if not all(path.startswith(prefix) for path in paths):
            break
        shorter = [path.removeprefix(prefix) for path in paths]
        if any(path in names for path in shorter):
            return shorter
    return paths
