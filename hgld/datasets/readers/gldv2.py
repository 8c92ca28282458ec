"""Google Landmarks Dataset v2, and any part of it, with the levels of a hierarchy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.datasets.label_columns import label_columns
from hgld.datasets.manifest import LANDMARK_LEVEL, Manifest
from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.splits import first_labels, open_set_split
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.tables import IMAGES, MANIFEST, read_table
from hgld.tables.image_landmarks import read_image_landmarks


@dataclass(frozen=True)
class Gldv2:
    """Reader of images in the tar files that ``hgld index-images`` indexed, or extracted to ``a/b/c/abc….jpg``.

    The levels are the landmark and those of the hierarchy above it. With a hierarchy from ``hgld build --multi``, an
    image has a label for each group of its landmark. Images of landmarks that the hierarchy lacks are excluded, as
    are those that the index lacks. Without a test share, all images have one split: that of the hierarchy, or train.

    With a test share, landmarks are divided such that training never sees those of the test split (open set): a
    random share of the landmarks of each label of the level above, their first one if they have several, goes to the
    split test, the others to train. A fractional number of landmarks is rounded up or down at random.

    Args:
        labels: Landmark of each image: train.csv, train_clean.csv, index_image_to_landmark.csv or a file with the
            same columns.
        images: Table from hgld index-images. By default, images are files a/b/c/abc….jpg.
        hierarchy: Levels above landmarks: from hgld build, or H-GLDv2's CSV files. By default, landmarks are the
            only level.
        split: Split of the landmark ids, if the hierarchy has several.
        min_images: Exclude landmarks with fewer images.
        test_share: Share of the landmarks of each super-category in the split test, between 0 and 1; the others are
            train. By default, there is one split.
        seed: Seed of the random split.

    Raises:
        ConfigurationError: ``test_share`` or ``min_images`` is out of range.
    """

    labels: Path
    images: Path | None = None
    hierarchy: Path | None = None
    split: str | None = None
    min_images: int = 1
    test_share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.test_share is not None and not 0 < self.test_share < 1:
            raise ConfigurationError(
                f"`test_share` is {self.test_share}; expected a number between 0 and 1, such as 0.5"
            )
        if self.min_images < 1:
            raise ConfigurationError(f"`min_images` is {self.min_images}; expected 1 or more")

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        files = {"labels": self.labels}
        if self.images is not None:
            files["images"] = self.images
        if self.hierarchy is not None and self.hierarchy.is_dir():
            tables = sorted(path for path in self.hierarchy.rglob("*") if path.suffix in (".csv", ".parquet"))
            files |= {f"hierarchy/{path.relative_to(self.hierarchy)}": path for path in tables}
        elif self.hierarchy is not None:
            files["hierarchy"] = self.hierarchy
        return files

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        ids, landmark_ids = read_image_landmarks(self.labels)
        hierarchy = None if self.hierarchy is None else load_hierarchy(self.hierarchy)
        locations, is_indexed = self._locate(ids)
        in_hierarchy = np.ones(len(ids), np.bool_)
        excluded = {}
        if hierarchy is not None:
            in_hierarchy = hierarchy.contains(landmark_ids, self.split)
            excluded["of landmarks missing from the hierarchy"] = int((~in_hierarchy).sum())
        excluded["missing from the index of images"] = int((in_hierarchy & ~is_indexed).sum())
        rows = np.flatnonzero(in_hierarchy & is_indexed)
        if not len(rows):
            raise InputError(
                f"{self.labels}: none of its {len(ids):,} images remains; is the hierarchy, or the table of images, "
                f"that of another split or dataset? Excluded: {excluded}"
            )
        manifest = self._manifest(locations, landmark_ids, hierarchy, rows)
        landmarks = first_labels(manifest)[:, 0]
        n_images = np.bincount(landmarks)[landmarks]
        enough = n_images >= self.min_images
        excluded[f"of landmarks with fewer than {self.min_images} images"] = int((~enough).sum())
        if not enough.any():
            raise InputError(
                f"{self.labels}: no landmark has {self.min_images} images, the largest has {n_images.max()}"
            )
        manifest = manifest.take(np.flatnonzero(enough))
        if self.test_share is not None:
            is_test = open_set_split(first_labels(manifest), self.test_share, self.seed)
            manifest = replace(manifest, splits=np.where(is_test, "test", "train").astype(object))
        return ReaderResult(manifest, {reason: count for reason, count in excluded.items() if count})

    def _locate(self, ids: pa.Array) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
        """Return the columns id, path, offset and size of images, and whether each is indexed."""
        if self.images is None:
            folders = [pc.utf8_slice_codeunits(ids, n, n + 1) for n in range(3)]
            paths = pc.binary_join_element_wise(*folders, pc.binary_join_element_wise(ids, "jpg", "."), "/")
            nulls = pa.nulls(len(ids), pa.int64())
            return {"id": ids, "path": paths, "offset": nulls, "size": nulls}, np.ones(len(ids), np.bool_)
        index = read_table(self.images, IMAGES)
        rows = pc.index_in(ids, value_set=index["id"])
        names = {"path": "shard", "offset": "offset", "size": "size"}
        columns = {name: index[source].combine_chunks().take(rows) for name, source in names.items()}
        return {"id": ids, **columns}, rows.is_valid().to_numpy(zero_copy_only=False)

    def _manifest(
        self,
        locations: dict[str, pa.Array],
        landmark_ids: NDArray[np.int64],
        hierarchy: Hierarchy | None,
        rows: NDArray[np.int64],
    ) -> Manifest:
        """Return the manifest of some of the images, with the landmark and the levels above it."""
        split = self.split or (hierarchy.splits[0] if hierarchy is not None else "train")
        splits = pa.array(np.full(len(landmark_ids), split, object), pa.string())
        table = pa.table({**locations, "split": splits}).select(MANIFEST.schema.names).take(pa.array(rows))
        table = table.append_column(LANDMARK_LEVEL, pa.array(landmark_ids[rows]).cast(pa.string()))
        if hierarchy is not None:
            for name, column in _levels_above(hierarchy, landmark_ids[rows], self.split).items():
                table = table.append_column(name, column)
        try:
            return Manifest.from_arrow(table, describe_row=lambda row: f"image {rows[row] + 1}")
        except InputError as error:
            raise InputError(f"{self.labels}: {error}") from error


def _levels_above(hierarchy: Hierarchy, landmark_ids: NDArray[np.int64], split: str | None) -> dict[str, pa.Array]:
    """Return the columns of the levels above landmarks: texts, or lists of texts for landmarks in several groups."""
    labels: Labelling
    if hierarchy.hierarchical_labels is None:
        labels = hierarchy.labels_of(landmark_ids, split)[:, 1:]
    else:
        sets = hierarchy.label_sets_of(landmark_ids, split)
        labels = LabelSets(sets.labels[:, 1:], sets.members)
    return label_columns(labels, hierarchy.level_names[1:], hierarchy.nodes)
