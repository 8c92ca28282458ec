"""Readers of the user's own images: with a table of labels, or in folders named by their labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgld.datasets.image_folders import (
    FoundImages,
    find_images,
    format_broken_links,
    image_id,
    match_paths,
)
from hgld.datasets.label_columns import label_columns, split_codes, split_labels
from hgld.datasets.readers.base import LabelColumn, ReaderResult, build_manifest, disambiguate
from hgld.datasets.readers.settings import LabelTableSettings, NestedFoldersSettings
from hgld.datasets.splits import check_split_settings, split_at_random
from hgld.errors import ConfigurationError, InputError, indented_list, require
from hgld.hierarchy import load_hierarchy
from hgld.io.columns import read_text_columns
from hgld.names import stored_id
from hgld.tables import MANIFEST

#: Name of the split if there is only one.
_ONE_SPLIT = "all"


@dataclass(frozen=True)
class LabelTable(LabelTableSettings):
    """Reader of a CSV or Parquet table with a row per image, and of images in folders or tar files.

    A path of the table names an image below the folder or in a tar file, see
    :func:`~hgld.datasets.image_folders.match_paths`. Labels are texts or numbers; each label of a
    level has one label at the next level. Several labels of an image are in one cell per level, see
    :mod:`hgld.datasets.label_columns`.
    """

    def __post_init__(self) -> None:
        _parse_levels(self.levels)
        separators = {
            "label_separator": self.label_separator,
            "code_separator": self.code_separator,
        }
        for name, separator in separators.items():
            if separator is not None and not separator.strip():
                raise ConfigurationError(
                    f'`{name}` is "{separator}"; expected a character such as ;'
                )
        if self.code is not None and self.label_separator == self.code_separator:
            raise ConfigurationError(
                f'`label_separator` and `code_separator` are both "{self.code_separator}"; expected different ones'
            )
        if self.hierarchy is not None and (self.code or "," in self.levels):
            raise ConfigurationError(
                f'`levels` is "{self.levels}"; expected one column with ids, as the other levels are in `hierarchy`'
            )
        check_split_settings(self.split, self.test_share, self.open_set)

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"table": self.table, "images": root, **_hierarchy_files(self.hierarchy)}

    def read(self, root: Path) -> ReaderResult:
        """Read the table, and find the images."""
        paths, levels, table = self._read_table()
        found = find_images(root)
        matches = match_paths(paths, found.names)
        self._check_matches(root, paths, found, matches)
        matched_rows = []
        matched_images = []
        for row, match in enumerate(matches):
            if match is not None:
                matched_rows.append(row)
                matched_images.append(match)
        rows = pa.array(matched_rows, pa.int64())
        columns = {"id": table[self.id or self.path].take(rows), **found.places(matched_images)}
        columns["split"] = [_ONE_SPLIT] * len(rows)
        if self.split is not None:
            columns["split"] = table[self.split].take(rows)
        labels = {name: column.take(rows) for name, column in levels.items()}
        excluded = {
            "that are not there": len(matches) - len(rows),
            "that the table does not list": len(found) - len(rows),
        }
        return _finish(self, self.table, columns, labels, bool(self.split), excluded, found)

    def _read_table(self) -> tuple[list[str], dict[str, pa.ChunkedArray], pa.Table]:
        """Return the paths of the images, the columns of the levels, and the whole table."""
        if self.code is not None:
            sources = [self.code]
        else:
            sources = _parse_levels(self.levels)
        names = [self.path, *sources]
        if self.id is not None:
            names.append(self.id)
        if self.split is not None:
            names.append(self.split)
        table = read_text_columns(self.table, list(dict.fromkeys(names)), may_be_lists=sources)
        levels = self._levels({name: table[name] for name in sources})
        return table[self.path].to_pylist(), levels, table

    def _levels(self, levels: dict[str, pa.ChunkedArray]) -> dict[str, pa.ChunkedArray]:
        """Return the column of each level: texts, or lists of texts for several labels per image."""
        if self.label_separator is not None:
            levels = {
                name: split_labels(column, self.label_separator) for name, column in levels.items()
            }
        if self.code is None:
            return levels

        def describe(row: int) -> str:
            return f"{self.table}: row {row + 1}"

        level_names = _parse_levels(self.levels)
        return split_codes(levels[self.code], self.code_separator, level_names, describe)

    def _check_matches(
        self, root: Path, paths: Sequence[str], found: FoundImages, matches: Sequence[int | None]
    ) -> None:
        """Raise an InputError if two rows name the same image, or if images that are needed are missing."""
        missing = [path for path, match in zip(paths, matches, strict=True) if match is None]
        if len(missing) == len(paths) or (missing and not self.skip_missing):
            advice = "is it the right folder, and `path` the right column?"
            if len(missing) < len(paths):
                advice = "correct them, or leave these rows out with `skip_missing`"
            raise InputError(
                f"{self.table}: {len(missing):,} of {len(paths):,} paths name no image in {root}, where images are "
                f"named like {found.names[0]}; {advice}{format_broken_links(found.broken_links)}\n"
                f"{indented_list(missing, limit=5)}"
            )
        counts = Counter(match for match in matches if match is not None)
        repeated = [found.names[match] for match, count in counts.items() if count > 1]
        if repeated:
            raise InputError(
                f"{self.table}: {len(repeated):,} images have several rows; keep one for each\n"
                f"{indented_list(repeated, limit=5)}"
            )


@dataclass(frozen=True)
class NestedFolders(NestedFoldersSettings):
    """Reader of images in folders such as ``Fruit/Apple/Golden-Delicious``, or in such tar files.

    The topmost folders are the coarsest level; folders below the finest level are ignored. Folders of
    the same name in different folders are different classes, distinguished by the name of the folder
    above.
    """

    def __post_init__(self) -> None:
        require(self.depth >= 1, "1 or more nested folders", depth=self.depth)
        if len(self._level_names()) != self.depth:
            raise ConfigurationError(
                f'`levels` is "{self.levels}"; expected {self.depth} names, one for each `depth`'
            )
        if self.hierarchy is not None and self.depth != 1:
            raise ConfigurationError(
                f"`depth` is {self.depth}; expected 1, as the other levels are in `hierarchy`"
            )
        check_split_settings(self.split_folders, self.test_share, self.open_set)

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"images": root, **_hierarchy_files(self.hierarchy)}

    def read(self, root: Path) -> ReaderResult:
        """Find the images."""
        found = find_images(root)
        folders = [stored_id(name).split("/")[:-1] for name in found.names]
        self._check_depth(root, found.names, folders)
        splits = [_ONE_SPLIT] * len(folders)
        if self.split_folders:
            splits = [parts[0] for parts in folders]
            folders = [parts[1:] for parts in folders]
        levels = {}
        for number, name in enumerate(self._level_names()):
            depth = self.depth - 1 - number  # finest first
            levels[name] = [parts[depth] for parts in folders]
        ids = [image_id(name) for name in found.names]
        columns = {"id": ids, "split": splits, **found.places(range(len(found)))}
        return _finish(self, root, columns, disambiguate(levels), self.split_folders, {}, found)

    def _level_names(self) -> list[str]:
        """Return the names of the levels, finest first."""
        if self.levels is not None:
            return _parse_levels(self.levels)
        return [f"level_{level}" for level in range(self.depth, 0, -1)]

    def _check_depth(
        self, root: Path, names: Sequence[str], folders: Sequence[Sequence[str]]
    ) -> None:
        """Raise an InputError if images are in fewer folders than the levels and splits need."""
        n_needed = self.depth + self.split_folders
        shallow = []
        for name, parts in zip(names, folders, strict=True):
            if len(parts) < n_needed:
                shallow.append(name)
        if shallow:
            fitting_depth = min(len(parts) for parts in folders) - self.split_folders
            advice = "move them into folders of their class"
            if fitting_depth > 0:
                advice = f"`depth` {fitting_depth} fits all images"
            raise InputError(
                f"{root}: {len(shallow):,} of {len(names):,} images are in fewer than {n_needed} nested folders; "
                f"{advice}, and hgld manifest table takes any\n{indented_list(shallow, limit=5)}"
            )


def _finish(
    reader: LabelTable | NestedFolders,
    source: Path,
    columns: Mapping[str, LabelColumn],
    labels: Mapping[str, LabelColumn],
    own_splits: bool,
    excluded: Mapping[str, int],
    found: FoundImages,
) -> ReaderResult:
    """Add the levels of the hierarchy and the random splits, if the reader's settings ask for them.

    Args:
        reader: Reader with its settings.
        source: File or folder of the labels, for messages.
        columns: Columns of the manifest, except levels.
        labels: Columns of the levels, finest first.
        own_splits: Whether the splits come from the images, and not from the hierarchy.
        excluded: Number of excluded images, by reason.
        found: Images below the folder.
    """
    if reader.hierarchy is not None:
        columns, labels, n_excluded = _join_hierarchy(
            reader.hierarchy, columns, labels, own_splits=own_splits
        )
        excluded = {**excluded, "missing from the hierarchy": n_excluded}
    manifest = build_manifest(source, columns, labels)
    manifest = split_at_random(manifest, reader.test_share, reader.open_set, reader.seed)
    return ReaderResult(manifest, excluded, found.other_files, found.broken_links)


def _join_hierarchy(
    path: Path,
    columns: Mapping[str, LabelColumn],
    levels: Mapping[str, LabelColumn],
    *,
    own_splits: bool,
) -> tuple[dict[str, LabelColumn], dict[str, LabelColumn], int]:
    """Add the levels and splits of a hierarchy, and drop images that it lacks.

    Returns:
        Columns and levels of the remaining images, and the number of dropped images.
    """
    hierarchy = load_hierarchy(path)
    (finest,) = levels
    images = pa.table({**columns, **levels})
    known_ids = [stored_id(str(number)) for number in hierarchy.landmark_ids.tolist()]
    rows = pc.index_in(images[finest], value_set=pa.array(known_ids))
    kept = images.filter(rows.is_valid())
    if not len(kept):
        raise InputError(
            f'{path}: has none of the ids of the images, such as "{images[finest][0]}"; is it that of other images?'
        )
    n_splits = Counter(known_ids)
    repeated = [name for name in pc.unique(kept[finest]).to_pylist() if n_splits[name] > 1]
    if repeated:
        raise InputError(
            f"{path}: has {len(repeated):,} ids of the images in several splits, such as {min(repeated)}"
        )
    hierarchy_rows = rows.drop_null().to_numpy()
    levels_above = label_columns(
        hierarchy.labels[hierarchy_rows, 1:], hierarchy.level_names[1:], hierarchy.nodes
    )
    kept_columns: dict[str, LabelColumn] = {name: kept[name] for name in columns}
    if not own_splits:
        kept_columns["split"] = hierarchy.splits[hierarchy_rows].tolist()
    return kept_columns, {finest: kept[finest], **levels_above}, len(images) - len(kept)


def _hierarchy_files(hierarchy: Path | None) -> Mapping[str, Path]:
    """Return the file of the hierarchy by its role, if there is a hierarchy."""
    if hierarchy is None:
        return {}
    return {"hierarchy": hierarchy}


def _parse_levels(text: str) -> list[str]:
    """Return the names in ``product,group,kind``."""
    levels = [name.strip() for name in text.split(",")]
    if not all(levels) or len(set(levels)) < len(levels):
        raise ConfigurationError(
            f'`levels` is "{text}"; expected different names, finest first: product,group,kind'
        )
    other_columns = {*MANIFEST.schema.names, *MANIFEST.optional.names}
    for name in levels:
        if name in other_columns:
            raise ConfigurationError(
                f'`levels` has "{name}", which names another column of manifests; rename it in the table'
            )
    return levels
