"""One's own images in folders that are named by their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.image_folders import find_images, image_id
from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import disambiguate, found_image_manifest
from hgld.datasets.readers.label_table import ONE_SPLIT, parse_levels
from hgld.datasets.splits import check_split_settings, split_at_random
from hgld.errors import ConfigurationError, InputError, indented_list


@dataclass(frozen=True)
class NestedFolders:
    """Reader of images in folders such as ``Fruit/Apple/Golden-Delicious``, or in tar files with such folders.

    The topmost folders are the coarsest level; folders below the finest level do not count. Folders of the same name
    in different folders are different classes, told apart by the name of the folder above.

    Args:
        depth: Number of levels, which is that of nested folders.
        levels: Names of the levels, finest first: product,group,kind. By default, level_3,level_2,level_1.
        split_folders: The topmost folders are splits, such as train and test, with the levels below them.
        test_share: Share of the images of each class in a random split test; of an open set, share of the classes (by
            default 0.5).
        open_set: Level whose classes are divided between the splits train and test, which then share none.
        seed: Seed of the random split.

    Raises:
        ConfigurationError: ``depth`` or ``test_share`` is out of range, ``levels`` has another number of names, or
            there are two kinds of splits.
    """

    depth: int
    levels: str | None = None
    split_folders: bool = False
    test_share: float | None = None
    open_set: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ConfigurationError(f"`depth` is {self.depth}; expected 1 or more nested folders")
        if len(self._level_names()) != self.depth:
            raise ConfigurationError(
                f'`levels` is "{self.levels}"; expected {self.depth} names, one for each `depth`'
            )
        check_split_settings(self.split_folders, self.test_share, self.open_set)

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {"images": root}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`.

        Raises:
            InputError: There are no images, or some are in fewer folders than levels.
        """
        found = find_images(root)
        folders = [name.split("/")[:-1] for name in found.names]
        self._check_depth(root, found.names, folders)
        splits = [ONE_SPLIT] * len(folders)
        if self.split_folders:
            splits, folders = [parts[0] for parts in folders], [parts[1:] for parts in folders]
        levels = {
            name: [parts[above] for parts in folders]
            for name, above in zip(self._level_names(), reversed(range(self.depth)), strict=True)
        }
        ids = [image_id(name) for name in found.names]
        manifest = found_image_manifest(root, ids, found, range(len(found)), splits, disambiguate(levels))
        manifest = split_at_random(manifest, self.test_share, self.open_set, self.seed)
        return ReaderResult(manifest, other_files=found.other_files)

    def _level_names(self) -> list[str]:
        if self.levels is not None:
            return parse_levels(self.levels)
        return [f"level_{level}" for level in range(self.depth, 0, -1)]

    def _check_depth(self, root: Path, names: Sequence[str], folders: Sequence[Sequence[str]]) -> None:
        """Raise if images are in fewer folders than there are levels, and splits above them."""
        shallow = [
            name for name, parts in zip(names, folders, strict=True) if len(parts) < self.depth + self.split_folders
        ]
        if shallow:
            fitting = min(map(len, folders)) - self.split_folders
            advice = f"`depth` {fitting} fits all images" if fitting > 0 else "move them into folders of their class"
            raise InputError(
                f"{root}: {len(shallow):,} of {len(names):,} images are in fewer than "
                f"{self.depth + self.split_folders} nested folders; {advice}, and hgld manifest table takes any\n"
                f"{indented_list(shallow, limit=5)}"
            )
