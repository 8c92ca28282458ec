"""A table with the labels of one's own images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from hgld.datasets.image_folders import FoundImages, find_images
from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import found_image_manifest
from hgld.datasets.splits import check_split_settings, split_at_random
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.text_columns import read_text_columns
from hgld.tables import MANIFEST

#: Split of all images, where there is only one.
ONE_SPLIT = "all"


@dataclass(frozen=True)
class LabelTable:
    """Reader of a CSV or Parquet table with a row per image, and of images in folders or tar files.

    A path of the table is that of an image below the folder or in a tar file, see :func:`match_paths`. Labels are
    texts or numbers; each label of a level has one label at the next.

    Args:
        table: CSV or Parquet file with a row per image.
        levels: Columns with the labels, finest first: product,group,kind.
        path: Column with the path of each image.
        id: Column with the id of each image. By default, the path.
        split: Column with the split of each image, such as train and test. By default, there is one split, or two at
            random.
        test_share: Share of the images of each class in a random split test; of an open set, share of the classes (by
            default 0.5).
        open_set: Level whose classes are divided between the splits train and test, which then share none.
        seed: Seed of the random split.
        skip_missing: Leave out rows whose image is not there.

    Raises:
        ConfigurationError: ``levels`` is malformed, ``test_share`` is out of range, or there are two kinds of splits.
    """

    table: Path
    levels: str
    path: str = "path"
    id: str | None = None
    split: str | None = None
    test_share: float | None = None
    open_set: str | None = None
    seed: int = 0
    skip_missing: bool = False

    def __post_init__(self) -> None:
        parse_levels(self.levels)
        check_split_settings(self.split, self.test_share, self.open_set)

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {"table": self.table, "images": root}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`.

        Raises:
            InputError: Images are not there or named twice; also see :func:`hgld.io.text_columns.read_text_columns`
                and :meth:`hgld.datasets.manifest.Manifest.from_arrow`.
        """
        levels = parse_levels(self.levels)
        names = dict.fromkeys([self.path, *filter(None, (self.id, self.split)), *levels])
        texts = read_text_columns(self.table, list(names)).to_pydict()
        found = find_images(root)
        matches = match_paths(texts[self.path], found.names)
        kept = [row for row, match in enumerate(matches) if match is not None]
        self._check_matches(root, texts[self.path], found, matches)
        splits = texts[self.split] if self.split else [ONE_SPLIT] * len(matches)
        manifest = found_image_manifest(
            self.table,
            [texts[self.id or self.path][row] for row in kept],
            found,
            [match for match in matches if match is not None],
            [splits[row] for row in kept],
            {name: [texts[name][row] for row in kept] for name in levels},
        )
        excluded = {
            "that are not there": len(matches) - len(kept),
            "that the table does not list": len(found) - len(kept),
        }
        return ReaderResult(
            split_at_random(manifest, self.test_share, self.open_set, self.seed),
            {reason: count for reason, count in excluded.items() if count},
            found.other_files,
        )

    def _check_matches(
        self, root: Path, paths: Sequence[str], found: FoundImages, matches: Sequence[int | None]
    ) -> None:
        """Raise if images are missing, unless they are to be left out, or if two rows name the same image."""
        missing = [path for path, match in zip(paths, matches, strict=True) if match is None]
        if len(missing) == len(paths) or (missing and not self.skip_missing):
            advice = "is it the right folder, and `path` the right column?"
            if len(missing) < len(paths):
                advice = "correct them, or leave these rows out with `skip_missing`"
            raise InputError(
                f"{self.table}: {len(missing):,} of {len(paths):,} paths name no image in {root}, where images are "
                f"named like {found.names[0]}; {advice}\n{indented_list(missing, limit=5)}"
            )
        counts = Counter(match for match in matches if match is not None)
        if repeated := [found.names[match] for match, count in counts.items() if count > 1]:
            raise InputError(
                f"{self.table}: {len(repeated):,} images have several rows; keep one for each\n"
                f"{indented_list(repeated, limit=5)}"
            )


def parse_levels(text: str) -> list[str]:
    """Return the names in ``product,group,kind``.

    Raises:
        ConfigurationError: There is none, one is repeated, or one is the name of another column of manifests.

    >>> parse_levels("product, group")
    ['product', 'group']
    """
    levels = [name.strip() for name in text.split(",")]
    if not all(levels) or len(set(levels)) < len(levels):
        raise ConfigurationError(f'`levels` is "{text}"; expected different names, finest first: product,group,kind')
    if taken := [name for name in levels if name in MANIFEST.schema.names]:
        raise ConfigurationError(
            f'`levels` has "{taken[0]}", which names another column of manifests; rename it in the table'
        )
    return levels


def match_paths(wanted: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Find images by their paths.

    A path is that of an image, or the end of one that no other image shares, with or without suffix; or all of them
    begin with the same folders, which the paths of the images lack. Backslashes count as slashes.

    Args:
        wanted: Paths to find.
        names: Path of each image.

    Returns:
        The position among ``names`` of each wanted path; None where there is none, or several.

    >>> images = ["x/a/1.jpg", "x/b/1.jpg", "x/b/2.png"]
    >>> match_paths(["a/1.jpg", "b/1", "1.jpg", "2"], images)
    [0, 1, None, 2]
    >>> match_paths(["/data/x/a/1.jpg", "/data/x/b/2.png"], images)
    [0, 2]
    """
    names = [normalize("NFC", name) for name in names]  # file systems of macOS decompose letters with accents
    rows: dict[str, int | None] = {name: row for row, name in enumerate(names)}
    keys: Sequence[str] = [PurePosixPath(normalize("NFC", path).replace("\\", "/")).as_posix() for path in wanted]
    for n_parts in {key.count("/") + 1 for key in keys if key not in rows}:
        ends = ["/".join(name.split("/")[-n_parts:]) for name in names]
        for variant in (ends, [end.rpartition(".")[0] for end in ends]):
            counts = Counter(variant)
            for row, end in enumerate(variant):
                rows.setdefault(end, row if counts[end] == 1 else None)
    if not any(key in rows for key in keys):
        keys = _without_common_folders(keys, rows)
    return [rows.get(key) for key in keys]


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
