"""Google Landmarks Dataset v2, and any part of it, with the levels of a hierarchy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.datasets.image_landmarks import read_image_landmarks
from hgld.datasets.manifest import LANDMARK_LEVEL, Manifest
from hgld.datasets.readers.text_lists import Reading
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import LabelMatrix, load_hierarchy
from hgld.tables import IMAGES, MANIFEST, read_table


@dataclass(frozen=True)
class Gldv2:
    """Photographs in the tar files that ``hgld index-images`` indexed, or extracted to ``a/b/c/abc….jpg``.

    The levels are the landmark and those of the hierarchy above it; photographs of landmarks that it lacks are left
    out, as are those that the index lacks. Without a test share, all are of one split: that of the hierarchy, or
    train.

    With one, landmarks are shared out so that those of the test are never seen in training (open set): of each label
    of the level above landmarks that share of its landmarks, by chance, goes to the split test, the others to train.
    Where it is no whole number, chance says whether it is rounded up or down.

    Args:
        labels: ``train.csv``, ``train_clean.csv`` or ``index_image_to_landmark.csv``, or a file with such columns.
        images: the table ``images`` of the folder; None for extracted photographs.
        hierarchy: see :func:`hgld.hierarchy.load_hierarchy`; None for landmarks alone.
        split: of the landmark ids, where the hierarchy has several.
        min_images: landmarks with fewer photographs are left out.
        test_share: above 0 and below 1; None for one split.
        seed: of the shares.
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
                f"the test share is {self.test_share}; expected a number between 0 and 1, such as 0.5"
            )
        if self.min_images < 1:
            raise ConfigurationError(f"at least {self.min_images} photographs of a landmark; expected 1 or more")

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`Reader`."""
        found = {"labels": self.labels}
        if self.images is not None:
            found["images"] = self.images
        if self.hierarchy is not None and self.hierarchy.is_dir():
            parts = sorted(path for path in self.hierarchy.rglob("*") if path.suffix in (".csv", ".parquet"))
            found |= {f"hierarchy/{path.relative_to(self.hierarchy)}": path for path in parts}
        elif self.hierarchy is not None:
            found["hierarchy"] = self.hierarchy
        return found

    def read(self, root: Path) -> Reading:
        """See :class:`Reader`."""
        ids, landmark_ids = read_image_landmarks(self.labels)
        left_out = {}
        known = np.ones(len(ids), np.bool_)
        hierarchy = None if self.hierarchy is None else load_hierarchy(self.hierarchy)
        if hierarchy is not None:
            known = hierarchy.contains(landmark_ids, self.split)
            left_out["of landmarks that the hierarchy lacks"] = int((~known).sum())
        shard, offset, size, there = self._places(ids)
        left_out["not among the indexed ones"] = int((known & ~there).sum())
        rows = np.flatnonzero(known & there)
        if not len(rows):
            raise InputError(
                f"{self.labels}: none of its {len(ids):,} photographs is left; is the hierarchy, or the table of "
                f"images, that of another split or data set? Left out: {left_out}"
            )
        split = self.split or (hierarchy.splits[0] if hierarchy is not None else "train")
        columns: dict[str, pa.Array] = {
            "id": ids,
            "path": shard,
            "offset": offset,
            "size": size,
            "split": pa.array(np.full(len(ids), split, object), pa.string()),
        }
        table = pa.table({name: columns[name] for name in MANIFEST.schema.names}).take(pa.array(rows))
        table = table.append_column(LANDMARK_LEVEL, pa.array(landmark_ids[rows]).cast(pa.string()))
        if hierarchy is not None:
            codes = hierarchy.labels_of(landmark_ids[rows], self.split)
            for column, (name, texts) in enumerate(zip(hierarchy.level_names[1:], hierarchy.nodes, strict=True), 1):
                table = table.append_column(name, pa.array(texts, pa.string()).take(pa.array(codes[:, column])))
        try:
            manifest = Manifest.from_arrow(table, describe_row=lambda row: f"photograph {rows[row] + 1}")
        except InputError as error:
            raise InputError(f"{self.labels}: {error}") from error
        counts = np.bincount(manifest.labels[:, 0])[manifest.labels[:, 0]]
        enough = counts >= self.min_images
        left_out[f"of landmarks with fewer than {self.min_images} images"] = int((~enough).sum())
        if not enough.any():
            raise InputError(
                f"{self.labels}: no landmark has {self.min_images} photographs, the most are {counts.max()}"
            )
        manifest = manifest.take(np.flatnonzero(enough))
        if self.test_share is not None:
            test = open_set(manifest.labels, self.test_share, self.seed)
            manifest = replace(manifest, splits=np.where(test, "test", "train").astype(object))
        return Reading(manifest, {reason: count for reason, count in left_out.items() if count})

    def _places(self, ids: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, NDArray[np.bool_]]:
        """Where photographs are: path, offset, size, and whether they are among the indexed ones."""
        if self.images is None:
            folders = [pc.utf8_slice_codeunits(ids, n, n + 1) for n in range(3)]
            paths = pc.binary_join_element_wise(*folders, pc.binary_join_element_wise(ids, "jpg", "."), "/")
            nowhere = pa.nulls(len(ids), pa.int64())
            return paths, nowhere, nowhere, np.ones(len(ids), np.bool_)
        table = read_table(self.images, IMAGES)
        rows = pc.index_in(ids, value_set=table["id"])
        shard, offset, size = (table[name].combine_chunks().take(rows) for name in ("shard", "offset", "size"))
        return shard, offset, size, rows.is_valid().to_numpy(zero_copy_only=False)


def open_set(labels: LabelMatrix, test_share: float, seed: int) -> NDArray[np.bool_]:
    """Which images are of the classes for the test: a share of the classes of each label above them.

    Args:
        labels: int64, shape (N, L), finest first; all classes are of one label where L is 1.
        test_share: above 0 and below 1.
        seed: of what is drawn.

    Returns:
        bool, shape (N,): alike for all images of a class.
    """
    rng = np.random.default_rng(seed)
    classes, first = np.unique(labels[:, 0], return_index=True)
    above = labels[first, 1] if labels.shape[1] > 1 else np.zeros(len(classes), np.int64)
    chosen = []
    for label in np.unique(above):
        members = rng.permutation(classes[above == label])
        chosen.append(members[: int(len(members) * test_share + rng.random())])
    return np.isin(labels[:, 0], np.concatenate(chosen))
