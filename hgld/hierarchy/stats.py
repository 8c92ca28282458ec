"""Numbers of landmarks and images by split, root and group, and the imbalance of the groups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hgld.arrays import Integers
from hgld.errors import ConfigurationError
from hgld.figures.groups import GroupCount, draw_groups
from hgld.figures.style import Nouns
from hgld.figures.treemap import build_nodes, draw_tree, write_tree_page
from hgld.hierarchy.files import load_hierarchy
from hgld.hierarchy.tree import Hierarchy
from hgld.tables.image_landmarks import read_image_landmarks, split_and_path
from hgld.taxonomy.project import nouns_of


@dataclass(frozen=True)
class Imbalance:
    """Imbalance of group sizes; the measures are defined in :func:`imbalance`."""

    largest: str
    largest_share: float
    ratio_to_median: float | None
    gini: float
    effective_groups: float


@dataclass(frozen=True)
class HierarchyStats:
    """Counts of a hierarchy.

    Args:
        landmarks: Number of landmarks by split and root.
        images: Number of images by split and root, for splits with given images.
        images_elsewhere: Number of images of landmarks that are not in the hierarchy.
        from_photographs: Number of landmarks whose group comes from photographs, by split, for
            splits with such landmarks.
        groups: Counts of each group, the largest group first.
        imbalance: Imbalance over groups of ``landmarks`` (``entities`` in hierarchies of other
            lists) and, if given, of ``images``.
    """

    landmarks: dict[str, dict[str, int]]
    images: dict[str, dict[str, int]]
    images_elsewhere: int
    from_photographs: dict[str, int]
    groups: tuple[GroupCount, ...]
    imbalance: dict[str, Imbalance]

    def to_json(self) -> str:
        """Return all fields as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def stats_file(
    hierarchy: str | Path,
    *,
    image_landmarks: Sequence[Path | tuple[str, Path]] = (),
    picture: Path | None = None,
) -> HierarchyStats:
    """Count the landmarks and images of a hierarchy from a file, and draw the counts.

    Args:
        hierarchy: Hierarchy: a Parquet file, an official CSV file, or a folder with these.
        image_landmarks: Landmark of each image: GLDv2's train.csv, train_clean.csv or
            index_image_to_landmark.csv; see :func:`count_images`. The split of a file must be given
            unless its name begins with a split or the hierarchy has only one.
        picture: Image file X.png to write, of the sizes of groups; X.tree.png and X.tree.html show
            them as areas.
    """
    loaded = load_hierarchy(hierarchy)
    counts = {}
    for item in image_landmarks:
        split, path = split_and_path(item, loaded.split_names)
        if split in counts:
            raise ConfigurationError(f"{path}: images of the split {split} were given already")
        counts[split] = count_images(path)
    stats = hierarchy_stats(loaded, counts)
    if picture is not None:
        nouns = nouns_of(Path(hierarchy))
        draw_groups(picture, stats.groups, nouns)
        draw_hierarchy(picture.with_suffix(f".tree{picture.suffix}"), loaded, nouns)
    return stats


def hierarchy_stats(
    hierarchy: Hierarchy, images: Mapping[str, Mapping[int, int]] | None = None
) -> HierarchyStats:
    """Count landmarks and images by split, root and group.

    Args:
        images: Number of images by split and landmark id.
    """
    images = images or {}
    images_per_landmark = np.zeros(len(hierarchy), np.int64)
    images_elsewhere = 0
    for split, counts in images.items():
        rows = np.flatnonzero(hierarchy.splits == split)
        ids = hierarchy.landmark_ids[rows].tolist()
        images_per_landmark[rows] = [counts.get(landmark_id, 0) for landmark_id in ids]
        images_elsewhere += sum(counts.values()) - int(images_per_landmark[rows].sum())
    level = hierarchy.group_level
    names = hierarchy.names(level)
    codes = hierarchy.labels[:, hierarchy.column(level)]
    n_landmarks = np.bincount(codes, minlength=len(names))
    weighted = np.bincount(codes, weights=images_per_landmark, minlength=len(names))
    n_images = weighted.astype(np.int64)
    groups = []
    for code, name in enumerate(names):
        path = [name, *hierarchy.ancestors(name, level)]
        group_images = int(n_images[code]) if images else None
        groups.append(GroupCount(name, path[-1], int(n_landmarks[code]), group_images))
    imbalances = {hierarchy.nouns[1]: imbalance(names, n_landmarks)}
    if images and n_images.any():
        imbalances["images"] = imbalance(names, n_images)
    ones = np.ones(len(hierarchy), np.int64)
    return HierarchyStats(
        landmarks=_sum_by_split_and_root(hierarchy, ones, hierarchy.split_names),
        images=_sum_by_split_and_root(hierarchy, images_per_landmark, images),
        images_elsewhere=images_elsewhere,
        from_photographs=_count_from_photographs(hierarchy),
        groups=tuple(sorted(groups, key=lambda group: (-group.landmarks, group.group))),
        imbalance=imbalances,
    )


def _count_from_photographs(hierarchy: Hierarchy) -> dict[str, int]:
    """Return the number of landmarks with a group from photographs by split, if not 0."""
    sources = hierarchy.label_sources
    if sources is None:
        return {}
    counts = Counter(hierarchy.splits[sources == "photographs"].tolist())
    return {split: counts[split] for split in hierarchy.split_names if split in counts}


def imbalance(names: Sequence[str], counts: Integers) -> Imbalance:
    """Measure the imbalance of group sizes.

    - ``largest`` and ``largest_share``: the largest group, and its share of the total;
    - ``ratio_to_median``: size of the largest group divided by the median size; None if the median
      is 0;
    - ``gini``: Gini coefficient, half the mean absolute difference of two groups divided by their
      mean: 0 if all groups have the same size, close to 1 if one group has all items;
    - ``effective_groups``: exponential of the entropy in nats, the number of equal groups with the
      same entropy.

    Args:
        names: Names of the n groups.
        counts: int64, shape (n,), not all 0; size of each group.

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
    """Return the number of images of each landmark id in a file of :func:`read_image_landmarks`."""
    _, landmark_ids = read_image_landmarks(path)
    ids, counts = np.unique(landmark_ids, return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def draw_hierarchy(path: Path, hierarchy: Hierarchy, nouns: Nouns) -> None:
    """Draw roots, groups and, if known, the labels of each group as areas by number of landmarks.

    Args:
        path: Image file to write; a page is written beside it.
        nouns: Singular and plural noun for the entities of the hierarchy.
    """
    table = hierarchy.to_arrow()
    names = dict.fromkeys([hierarchy.root_level, hierarchy.group_level, "supercategory", "label"])
    levels = [name for name in names if name in table.column_names]
    counts = table.group_by(levels).aggregate([([], "count_all")]).select([*levels, "count_all"])
    roots = build_nodes(tuple(row.values()) for row in counts.to_pylist())
    draw_tree(path, roots, nouns)
    write_tree_page(path.with_suffix(".html"), roots, nouns)


def _sum_by_split_and_root(
    hierarchy: Hierarchy, weights: Integers, splits: Iterable[str]
) -> dict[str, dict[str, int]]:
    """Sum the weights of landmarks by split and root, for the splits that occur."""
    roots = hierarchy.names(hierarchy.root_level)
    codes = hierarchy.labels[:, hierarchy.column(hierarchy.root_level)]
    sums: dict[str, dict[str, int]] = {}
    for split in splits:
        in_split = hierarchy.splits == split
        if in_split.any():
            sums[split] = {}
            for code, root in enumerate(roots):
                sums[split][root] = int(weights[in_split & (codes == code)].sum())
    return sums
