"""A table with the labels of one's own images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hgld.datasets.image_folders import FoundImages, find_images, match_paths
from hgld.datasets.label_columns import split_codes, split_labels
from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import found_image_manifest
from hgld.datasets.splits import check_split_settings, split_at_random
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.io.columns import read_text_columns
from hgld.tables import MANIFEST

#: Split of all images, where there is only one.
ONE_SPLIT = "all"


@dataclass(frozen=True)
class LabelTable:
    """Reader of a CSV or Parquet table with a row per image, and of images in folders or tar files.

    A path of the table is that of an image below the folder or in a tar file, see
    :func:`~hgld.datasets.image_folders.match_paths`. Labels are texts or numbers; each label of a level has one label
    at the next. Several labels of an image are in one cell per level, see :mod:`hgld.datasets.label_columns`.

    Args:
        table: CSV or Parquet file with a row per image.
        levels: Columns with the labels, finest first: product,group,kind. With a code, names of the levels that its
            parts make up, finest first: section,division,category.
        label_separator: Separator between the labels of an image, such as a semicolon, if it may have several. Lists
            in Parquet files need none.
        code: Column with hierarchical codes, such as 05.03.13, that stand for the labels at all levels.
        code_separator: Separator between the parts of a code.
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
        ConfigurationError: ``levels`` is malformed, a separator is empty, ``test_share`` is out of range, or there
            are two kinds of splits.
    """

    table: Path
    levels: str
    label_separator: str | None = None
    code: str | None = None
    code_separator: str = "."
    path: str = "path"
    id: str | None = None
    split: str | None = None
    test_share: float | None = None
    open_set: str | None = None
    seed: int = 0
    skip_missing: bool = False

    def __post_init__(self) -> None:
        parse_levels(self.levels)
        for name, separator in (
            ("label_separator", self.label_separator),
            ("code_separator", self.code_separator),
        ):
            if separator is not None and not separator.strip():
                raise ConfigurationError(f'`{name}` is "{separator}"; expected a character such as ;')
        if self.code is not None and self.label_separator == self.code_separator:
            raise ConfigurationError(
                f'`label_separator` and `code_separator` are both "{self.code_separator}"; expected different ones'
            )
        check_split_settings(self.split, self.test_share, self.open_set)

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {"table": self.table, "images": root}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`.

        Raises:
            InputError: Images are not there or named twice; also see :func:`hgld.io.columns.read_text_columns`
                and :meth:`hgld.datasets.manifest.Manifest.from_arrow`.
        """
        sources = [self.code] if self.code is not None else parse_levels(self.levels)
        facts = list(dict.fromkeys([self.path, *filter(None, (self.id, self.split))]))
        columns = read_text_columns(self.table, list(dict.fromkeys([*facts, *sources])), may_be_lists=sources)
        texts = columns.select(facts).to_pydict()
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
            {name: column.take(pa.array(kept, pa.int64())) for name, column in self._levels(columns).items()},
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

    def _levels(self, columns: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the column of each level: texts, or lists of texts where images may have several labels."""
        names = parse_levels(self.levels)
        levels = {name: columns[name] for name in ([self.code] if self.code is not None else names)}
        if self.label_separator is not None:
            levels = {name: split_labels(column, self.label_separator) for name, column in levels.items()}
        if self.code is None:
            return levels

        def describe_row(row: int) -> str:
            return f"{self.table}: row {row + 1}"

        return split_codes(levels[self.code], self.code_separator, names, describe_row)

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
    if taken := [name for name in levels if name in (*MANIFEST.schema.names, *MANIFEST.optional.names)]:
        raise ConfigurationError(
            f'`levels` has "{taken[0]}", which names another column of manifests; rename it in the table'
        )
    return levels
