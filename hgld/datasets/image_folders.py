"""Find the images below a folder, and look up given paths among them.

Images are files at any depth or, if there are no image files, the members of tar files.
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
from hgld.gldv2.image_index import index_shard
from hgld.io.columns import preview
from hgld.io.file_listing import files_and_links_below, files_below
from hgld.io.images import SUFFIXES
from hgld.names import stored_id

_TAR_SUFFIXES = (".tar",)
#: Suffixes of archives from which images are not read.
_ARCHIVES = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".rar")
#: GLDv2's own layout: the names of the folders are the first letters of the image's id.
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
        sizes: Number of the image's bytes in the tar file; None for image files.
        other_files: Number of files that are not images, by suffix in lower case.
        broken_links: Number of links to missing images or tar files, such as the links of git-annex
            and DVC before their content is fetched.
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
        """Return the columns path, offset and size of a manifest, with nulls for images that are None.

        Args:
            rows: Position of each image among the found images, or None.
        """
        indices = pa.array(rows, pa.int64())
        return {
            "path": pa.array(self.files, pa.string()).take(indices),
            "offset": pa.array(self.offsets, pa.int64()).take(indices),
            "size": pa.array(self.sizes, pa.int64()).take(indices),
        }


def find_images(root: Path) -> FoundImages:
    """Find the images below a folder, or in a tar file.

    Tar files are read only if there are no image files. Hidden files and folders are ignored. Linked
    folders are followed, but every folder is read once, by its own path if it is below ``root``.

    Args:
        root: Folder with images or with tar files; or a tar file, whose folder is not searched.

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
    n_broken = 0
    for link in links:
        if _suffix(link) in SUFFIXES or _has_tar_suffix(link):
            n_broken += 1
    images = []
    tars = []
    other_files: Counter[str] = Counter()
    for file in files:
        if _suffix(file) in SUFFIXES:
            images.append(file)
        elif _has_tar_suffix(file):
            tars.append(file)
        else:
            other_files[_suffix(file)] += 1
    if images:
        if tars:
            other_files[".tar"] = len(tars)
        no_places = [None] * len(images)
        return FoundImages(images, images, no_places, no_places, other_files, n_broken)
    found = replace(_read_tars(root, tars, other_files), broken_links=n_broken)
    return _require_images(root, found)


def find_in_tars(root: Path) -> FoundImages:
    """Find the images in the tar files below a folder, and ignore all other files."""
    tars = [file for file in files_below(root) if _has_tar_suffix(file)]
    return _read_tars(root, tars)


def find_images_digest(root: Path) -> str:
    """Return the SHA-256 of the paths, and of the sizes and times of tar files, below a folder."""
    if is_tar(root):
        folder, files = root.parent, [root.name]
    else:
        folder, files = root, files_below(root)
    digest = hashlib.sha256()
    for file in files:
        state = ""
        if _has_tar_suffix(file):
            status = (folder / file).stat()
            state = f"{(status.st_size, status.st_mtime_ns)}"
        digest.update(f"{file}\n{state}\n".encode())
    return digest.hexdigest()


def is_tar(path: Path) -> bool:
    """Return whether a path names a tar file, by its suffix, and is not a folder."""
    return _has_tar_suffix(path.name) and not path.is_dir()


def match_paths(wanted: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Find images by their paths.

    A path matches an image if it is the image's path, or an end of it that no other image has, with
    or without suffix. If no path matches, the first folders that all paths share are removed.
    Backslashes count as slashes.

    Args:
        wanted: Paths to find.
        names: Paths of the images.

    Returns:
        The position among ``names`` of each wanted path; None if it matches no image, or several.

    >>> images = ["x/a/1.jpg", "x/b/1.jpg", "x/b/2.png"]
    >>> match_paths(["a/1.jpg", "b/1", "1.jpg", "2"], images)
    [0, 1, None, 2]
    >>> match_paths(["/data/x/a/1.jpg", "/data/x/b/2.png"], images)
    [0, 2]
    """
    names = [stored_id(name) for name in names]
    rows: dict[str, int | None] = {name: row for row, name in enumerate(names)}
    paths: Sequence[str] = [_normalised_path(path) for path in wanted]
    for n_parts in {path.count("/") + 1 for path in paths if path not in rows}:
        ends = ["/".join(name.split("/")[-n_parts:]) for name in names]
        _add_unique(rows, ends)
        _add_unique(rows, [end.rpartition(".")[0] for end in ends])
    if not any(path in rows for path in paths):
        paths = _without_common_folders(paths, rows)
    return [rows.get(path) for path in paths]


def _normalised_path(path: str) -> str:
    """Return a path with slashes, in the form of stored ids."""
    return PurePosixPath(stored_id(path).replace("\\", "/")).as_posix()


def _add_unique(rows: dict[str, int | None], keys: Sequence[str]) -> None:
    """Add the row of each key that is not in ``rows``; None for keys of several rows."""
    counts = Counter(keys)
    for row, key in enumerate(keys):
        rows.setdefault(key, row if counts[key] == 1 else None)


def image_id(name: str) -> str:
    """Return the id of an image by its path: the path in NFC, or the file's name in GLDv2's layout.

    >>> image_id("Fruit/Apple/1.jpg"), image_id("train/0/a/f/0af3.jpg")
    ('Fruit/Apple/1.jpg', '0af3')
    """
    match = _GLDV2_PATH.fullmatch(name)
    if match is not None:
        return stored_id(match["id"])
    return stored_id(name)


def places_of_repeated(names: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return the names that occur several times, each with its places, for messages.

    >>> places_of_repeated(["a", "b", "a"], ["1.tar", "1.tar", "2.tar"])
    ['a: 1.tar, 2.tar']
    """
    counts = Counter(names)
    places_by_name: dict[str, list[str]] = {}
    for name, place in zip(names, places, strict=True):
        if counts[name] > 1:
            places_by_name.setdefault(name, []).append(place)
    return [f"{name}: {', '.join(repeated)}" for name, repeated in places_by_name.items()]


def format_suffixes(other_files: Mapping[str, int]) -> str:
    """Format numbers of files by suffix.

    >>> format_suffixes({".txt": 3, "": 1})
    '3 .txt, 1 without suffix'
    """
    counts = sorted(other_files.items(), key=lambda item: (-item[1], item[0]))
    return preview([f"{count:,} {suffix or 'without suffix'}" for suffix, count in counts])


def format_broken_links(count: int) -> str:
    """Return the end of a message about broken links; empty without broken links.

    >>> format_broken_links(1), format_broken_links(0)
    ('; 1 link is broken: fetch the file that it leads to', '')
    """
    if not count:
        return ""
    if count == 1:
        return "; 1 link is broken: fetch the file that it leads to"
    return f"; {count:,} links are broken: fetch the files that they lead to"


def _read_tars(
    folder: Path, tars: Sequence[str], other_files: Mapping[str, int] | None = None
) -> FoundImages:
    """Return the images in tar files.

    Args:
        folder: Folder of the tar files.
        tars: Paths of the tar files, relative to the folder.
        other_files: Number of other files in the folder, by suffix.

    Raises:
        InputError: Two images have the same path.
    """
    names: list[str] = []
    files: list[str] = []
    offsets: list[int | None] = []
    sizes: list[int | None] = []
    all_other_files = Counter(other_files or {})
    for tar in tars:
        index = index_shard(folder / tar)
        names += [str(PurePosixPath(name)) for name in index.names]  # without a leading "./"
        files += [tar] * len(index.names)
        offsets += index.offsets
        sizes += index.sizes
        all_other_files.update(index.other_files)
    repeated = places_of_repeated(names, files)
    if repeated:
        raise InputError(
            f"{folder}: {len(repeated):,} images are in tar files several times; name one tar file, or a folder of "
            f"tar files in which each path names one image\n{indented_list(repeated, limit=5)}"
        )
    return FoundImages(names, files, offsets, sizes, all_other_files)


def _require_images(root: Path, found: FoundImages) -> FoundImages:
    """Return the found images; raise an InputError if no image was found."""
    if len(found):
        return found
    place = "tar file" if is_tar(root) else "folder or in tar files below it"
    advice = ""
    if set(found.other_files).intersection(_ARCHIVES):
        advice = "; unpack the archives"
    raise InputError(
        f"{root}: no images in this {place} "
        f"({', '.join(SUFFIXES)}); found {format_suffixes(found.other_files) or 'no files'}{advice}"
        f"{format_broken_links(found.broken_links)}"
    )


def _suffix(path: str) -> str:
    """Return the suffix of a path in lower case."""
    return PurePosixPath(path).suffix.lower()


def _has_tar_suffix(name: str) -> bool:
    return name.lower().endswith(_TAR_SUFFIXES)


def _without_common_folders(paths: Sequence[str], names: Collection[str]) -> Sequence[str]:
    """Return paths without the first folders that all paths share, if images then have these names."""
    folders = paths[0].split("/")[:-1]
    for n_folders in range(1, len(folders) + 1):
        prefix = "".join(f"{folder}/" for folder in folders[:n_folders])
        if not all(path.startswith(prefix) for path in paths):
            break
        shorter = [path.removeprefix(prefix) for path in paths]
        if any(path in names for path in shorter):
            return shorter
    return paths
