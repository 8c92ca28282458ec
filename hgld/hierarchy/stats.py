"""How many landmarks and images each group has, natural and human-made apart, and how uneven that is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, InputError
from hgld.figures.groups import GroupSize, draw_groups
from hgld.figures.tree import draw_tree, nodes_of
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.checks import GROUP, ROOT
from hgld.io.columns import read_columns
from hgld.tables import SPLITS


@dataclass(frozen=True)
class GroupCount:
    """One group.

    Args:
        group: its name.
        root: what it is below.
        landmarks: how many it has.
        images: of its landmarks; None where no images were given.
    """

    group: str
    root: str
    landmarks: int
    images: int | None


@dataclass(frozen=True)
class Imbalance:
    """How unevenly things are spread over groups; see :func:`imbalance`."""

    largest: str
    largest_share: float
    ratio_to_median: float | None
    gini: float
    effective_groups: float


@dataclass(frozen=True)
class HierarchyStats:
    """The counts of a hierarchy.

    Args:
        landmarks: by split and root.
        images: by split and root, of the splits whose images were given.
        images_elsewhere: images of landmarks that the hierarchy has not.
        groups: every group, by landmarks, most first.
        imbalance: of ``landmarks`` and, if they were given, of ``images`` over groups.
    """

    landmarks: dict[str, dict[str, int]]
    images: dict[str, dict[str, int]]
    images_elsewhere: int
    groups: tuple[GroupCount, ...]
    imbalance: dict[str, Imbalance]

    def to_json(self) -> str:
        """All of it, for programs."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def stats_file(
    hierarchy: str | Path,
    *,
    images: Sequence[str] = (),
    picture: Path | None = None,
    tree: Path | None = None,
) -> HierarchyStats:
    """Count, and draw what was counted.

    Args:
        hierarchy: whatever :func:`hgld.hierarchy.load_hierarchy` reads.
        images: files that name the landmark of each image, see :func:`count_images`; each with its split before
            it (``index=images.csv``) unless the hierarchy has only one or the file's name begins with it.
        picture: where to draw the groups and how uneven they are.
        tree: where to draw roots, groups and labels, see :func:`draw_hierarchy`.

    Raises:
        InputError: the hierarchy or the images cannot be read.
        ConfigurationError: what split images belong to is not known, or the hierarchy has not that split.
    """
    loaded = load_hierarchy(hierarchy)
    counted = {}
    for given in images:
        split, path = _split_and_path(given, loaded)
        if split in counted:
            raise ConfigurationError(f"{path}: images of the split {split} were given already")
        counted[split] = count_images(path)
    found = stats(loaded, counted)
    if picture is not None:
        draw_groups(
            picture, [GroupSize(group.group, group.root, group.landmarks, group.images) for group in found.groups]
        )
    if tree is not None:
        draw_hierarchy(tree, loaded)
    return found


def stats(hierarchy: Hierarchy, images: Mapping[str, Mapping[int, int]] | None = None) -> HierarchyStats:
    """Count landmarks and images by root and group.

    Args:
        hierarchy: the hierarchy.
        images: the number of images by landmark id, by split.
    """
    images = images or {}
    per_landmark = np.zeros(len(hierarchy), np.int64)
    elsewhere = 0
    for split, counts in images.items():
        rows = np.flatnonzero(hierarchy.splits == split)
        per_landmark[rows] = [counts.get(number, 0) for number in hierarchy.landmark_ids[rows].tolist()]
        elsewhere += sum(counts.values()) - int(per_landmark[rows].sum())
    names, of_group = hierarchy.names(GROUP), hierarchy.labels[:, hierarchy.column(GROUP)]
    landmarks = np.bincount(of_group, minlength=len(names))
    shown = np.bincount(of_group, weights=per_landmark, minlength=len(names)).astype(np.int64)
    groups = [
        GroupCount(name, hierarchy.ancestors(name, GROUP)[-1], int(count), int(n_images) if images else None)
        for name, count, n_images in zip(names, landmarks, shown, strict=True)
    ]
    spread = {"landmarks": imbalance(names, landmarks)}
    if images and shown.any():
        spread["images"] = imbalance(names, shown)
    ones = np.ones(len(hierarchy), np.int64)
    return HierarchyStats(
        landmarks=_by_split_and_root(hierarchy, ones, SPLITS),
        images=_by_split_and_root(hierarchy, per_landmark, images),
        images_elsewhere=elsewhere,
        groups=tuple(sorted(groups, key=lambda group: (-group.landmarks, group.group))),
        imbalance=spread,
    )


def imbalance(names: Sequence[str], counts: NDArray[np.int64]) -> Imbalance:
    """How unevenly things are spread over groups.

    - ``largest`` and ``largest_share``: the group with the most, and its part of all;
    - ``ratio_to_median``: how many times what the median group has it has; None where that is nothing;
    - ``gini``: half the mean absolute difference of two groups, divided by their mean: 0 where all have the same,
      towards 1 where one has all;
    - ``effective_groups``: exp of the entropy in nats: as many groups of one size would be as hard to guess.

    Args:
        names: of the groups, n of them.
        counts: int64, shape (n,), not all 0.

    >>> imbalance(["a", "b"], np.array([3, 1])).gini
    0.25
    """
    shares = np.sort(counts) / counts.sum()
    n = len(shares)
    positive = shares[shares > 0]
    median = float(np.median(shares))
    return Imbalance(
        largest=names[int(np.argmax(counts))],
        largest_share=float(shares[-1]),
        ratio_to_median=float(shares[-1] / median) if median else None,
        gini=float(np.sum((2 * np.arange(1, n + 1) - n - 1) * shares) / n),
        effective_groups=float(np.exp(-np.sum(positive * np.log(positive)))),
    )


def count_images(path: Path) -> dict[int, int]:
    """The number of images of every landmark.

    Args:
        path: CSV or Parquet with a row per image and the column ``landmark_id``, such as GLDv2's ``train.csv`` and
            ``index_image_to_landmark.csv``; or a row per landmark and the ids of its images, with spaces between, in
            ``images``, such as ``train_clean.csv``.

    Raises:
        InputError: the file is missing, or not such a file.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the landmark_id of each image, e.g. GLDv2's train.csv")
    table = read_columns(path, ("landmark_id", "images"), {"images": pa.string()})
    if "landmark_id" not in table.column_names:
        raise InputError(f"{path}: no column landmark_id; expected e.g. GLDv2's train.csv or train_clean.csv")
    numbers = table["landmark_id"]
    if not pa.types.is_integer(numbers.type) or numbers.null_count:
        raise InputError(
            f"{path}: landmark_id is {numbers.type}, {numbers.null_count:,} empty; expected whole numbers"
        )
    if "images" in table.column_names:
        per_row = pc.list_value_length(pc.split_pattern(pc.utf8_trim_whitespace(table["images"]), " "))
        table = pa.table({"landmark_id": numbers, "n": per_row})
    else:
        table = pa.table({"landmark_id": numbers, "n": np.ones(len(numbers), np.int64)})
    sums = table.group_by("landmark_id").aggregate([("n", "sum")])
    return dict(zip(sums["landmark_id"].to_pylist(), sums["n_sum"].to_pylist(), strict=True))


def draw_hierarchy(path: Path, hierarchy: Hierarchy) -> None:
    """Draw roots, groups and, where they are known, the labels in each group, as areas by landmarks."""
    table = hierarchy.to_arrow()
    levels = [name for name in (ROOT, GROUP, "supercategory") if name in table.column_names]
    counts = table.group_by(levels).aggregate([([], "count_all")]).select([*levels, "count_all"])
    draw_tree(path, nodes_of(zip(*(column.to_pylist() for column in counts.columns), strict=True)))


def _split_and_path(given: str, hierarchy: Hierarchy) -> tuple[str, Path]:
    """The split of a file of images and its path, from ``split=path`` or the path alone."""
    there = [split for split in SPLITS if split in hierarchy.splits]
    split, equals, path = given.partition("=")
    if not (equals and split in SPLITS):
        path = given
        named = [split for split in SPLITS if Path(given).name.startswith(split)]
        split = (named or there)[0]
        if not named and len(there) > 1:
            raise ConfigurationError(f"{given}: of which split are these images? Say --images {there[0]}={given}")
    if split not in there:
        raise ConfigurationError(
            f"{path}: images of the split {split}, but the hierarchy has landmarks of {' and '.join(there)} only; if "
            f"they are of these, say --images {there[0]}={path}"
        )
    return split, Path(path)


def _by_split_and_root(
    hierarchy: Hierarchy, weights: NDArray[np.int64], splits: Iterable[str]
) -> dict[str, dict[str, int]]:
    """The sum of the landmarks' weights by split and root, of the splits that occur."""
    names, of_root = hierarchy.names(ROOT), hierarchy.labels[:, hierarchy.column(ROOT)]
    return {
        split: {name: int(weights[within & (of_root == root)].sum()) for root, name in enumerate(names)}
        for split in splits
        if (within := hierarchy.splits == split).any()
    }
