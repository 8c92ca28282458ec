"""Find copies and near views among images.

Copies come from one exposure: the same file, or a re-encoded, resized, cropped, mirrored, turned,
recoloured or bordered version of it. Near views show one scene at nearly the same time, such as the
frames of a burst. Candidates are the nearest images of each image, by the layouts of thumbnails in all
orientations and of their parts and, if there are any, by embeddings. A comparison of the two
thumbnails decides, independently of all other images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hgld.arrays import Booleans, Floats32, Integers, Pixels
from hgld.audit.alignment import Comparison, compare
from hgld.audit.grey_thumbnails import read_thumbnails, searched_layouts, whole_layouts
from hgld.audit.nearest_images import (
    blocks_of,
    centred,
    mean_direction,
    nearest_images,
    only_itself,
)
from hgld.audit.settings import COPY, NEAR_VIEW, DuplicatesConfig
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.datasets.encoded_images import EncodedImages
from hgld.datasets.manifest import Manifest
from hgld.io.images import open_image, upright_rgb
from hgld.progress import NoProgress, Progress
from hgld.ragged import RaggedIndices

#: Columns of the table of copies, besides the columns of the manifest.
_MARKS = pa.schema(
    [
        ("relation", pa.string()),
        ("duplicate_group", pa.int64()),
        ("same_pixels", pa.bool_()),
        ("kept", pa.bool_()),
        ("leave_out", pa.bool_()),
    ]
)
#: Number of images whose layouts are searched for at once.
_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class DuplicateGroup:
    """An image with its copies, or with its near views.

    Args:
        relation: COPY or NEAR_VIEW.
        kept: Row of the image that is kept.
        others: int64, shape (n,), rows of the other images.
        agreements: float32, shape (n,), share of the details in which each other image agrees with the kept one.
        same_pixels: bool, shape (n,): whether each other image has the pixels of the kept one.
    """

    relation: str
    kept: int
    others: Integers
    agreements: Floats32
    same_pixels: Booleans


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Copies and near views among the N images of a manifest.

    An image is in at most one group of copies. Groups of near views consist of images that are not left
    out as copies.

    Args:
        manifest: The manifest.
        groups: Groups of copies, then groups of near views, by the row of the kept image.
        unreadable: Reasons why images could not be read, by their ids.
    """

    manifest: Manifest
    groups: Sequence[DuplicateGroup]
    unreadable: dict[str, str]

    def of(self, relation: str) -> list[DuplicateGroup]:
        """Return the groups of copies or of near views."""
        return [group for group in self.groups if group.relation == relation]

    def excluded(self, relation: str) -> Booleans:
        """Return a mask of the images of groups that are not kept, bool, shape (N,)."""
        excluded = np.zeros(len(self.manifest), np.bool_)
        for group in self.of(relation):
            excluded[group.others] = True
        return excluded

    def is_across_splits(self, group: DuplicateGroup) -> bool:
        """Return whether another image of a group is in another split than the kept image."""
        splits = self.manifest.splits
        return bool((splits[group.others] != splits[group.kept]).any())

    def is_across_labels(self, group: DuplicateGroup) -> bool:
        """Return whether another image of a group has another finest label than the kept image."""
        labels = self._finest_labels(group.kept)
        return any(self._finest_labels(row) != labels for row in group.others.tolist())

    def to_arrow(self) -> pa.Table:
        """Return a table of the images of all groups.

        Its columns are relation, duplicate_group, id, split, the levels, same_pixels, kept and
        leave_out, which is true for copies that are not kept.
        """
        rows: list[int] = []
        marks: list[dict[str, object]] = []
        for number, group in enumerate(self.groups):
            rows_of_group = [group.kept, *group.others.tolist()]
            same_pixels = [bool(group.same_pixels.any()), *group.same_pixels.tolist()]
            for row, has_same_pixels in zip(rows_of_group, same_pixels, strict=True):
                is_kept = row == group.kept
                mark = {
                    "relation": group.relation,
                    "duplicate_group": number,
                    "same_pixels": has_same_pixels,
                    "kept": is_kept,
                    "leave_out": group.relation == COPY and not is_kept,
                }
                marks.append(mark)
                rows.append(row)
        images = self.manifest.take(np.array(rows, np.int64)).to_arrow()
        table = pa.Table.from_pylist(marks, _MARKS)
        for place, name in enumerate(("id", "split", *self.manifest.level_names), 2):
            table = table.add_column(place, name, images[name])
        return table

    def _finest_labels(self, row: int) -> frozenset[int]:
        """Return the labels of an image at the finest level."""
        n_levels = len(self.manifest.level_names)
        labels = self.manifest.labels_of(row).reshape(-1, n_levels)
        return frozenset(labels[:, 0].tolist())


def find_duplicates(
    manifest: Manifest,
    root: Path,
    embeddings: torch.Tensor | None = None,
    config: DuplicatesConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Duplicates:
    """Find copies and near views among the images of a manifest.

    An image takes 17 kB of memory.

    Args:
        manifest: N images.
        root: Folder to which the paths of the manifest are relative.
        embeddings: float, shape (N, d), of any model, for further candidates; their mean, which
            embeddings of untrained networks share, is subtracted. Default: candidates are found by
            thumbnails alone.
        config: Settings.
        progress: Progress in images that are read, then in images that are compared.

    Raises:
        InputError: The folder does not exist, lacks tar files, or has no readable image.
        ConfigurationError: The training split does not exist, and has another name than the default.
    """
    config = config or DuplicatesConfig()
    progress = progress or NoProgress()
    is_training = np.zeros(len(manifest), np.bool_)
    is_default_split = config.train_split == DuplicatesConfig.train_split
    if config.train_split in manifest.split_names or not is_default_split:
        is_training[manifest.rows_of(config.train_split)] = True
    encoded = EncodedImages(manifest, root)
    thumbnails, digests, unreadable = read_thumbnails(encoded, progress)
    pairs = PairRelations(thumbnails, digests, config)
    candidates = [pairs.equal_files()]
    layouts = whole_layouts(thumbnails)
    usable = pairs.is_first_file & (np.abs(layouts).max(axis=1) > 0)
    for block in blocks_of(len(manifest), _BLOCK):
        rows = np.arange(block.start, block.stop)[usable[block]]
        candidates.append(nearest_layouts(thumbnails, rows, layouts, usable, config.neighbours))
    if embeddings is not None:
        vectors = centred(embeddings, mean_direction(embeddings))
        _, neighbours = nearest_images(vectors, config.neighbours, only_itself, usable)
        candidates.append(as_pairs(np.flatnonzero(usable), neighbours[usable]))
    related = pairs.among(np.unique(np.concatenate(candidates), axis=0), progress)
    copies = _groups_of_copies(related[COPY], pairs, is_training)
    # The nearest images of an image may all be copies of it: search again without them.
    for copies_of_image in copies.values():
        usable[copies_of_image] = False
    kept_rows = np.array([row for row in sorted(copies) if usable[row]], np.int64)
    further = nearest_layouts(thumbnails, kept_rows, layouts, usable, config.neighbours)
    related[NEAR_VIEW] += pairs.among(further)[NEAR_VIEW]
    near_views = _groups_of_near_views(related[NEAR_VIEW], copies, pairs, is_training)
    groups = []
    for kept, others in sorted(copies.items()):
        same_pixels = [_same_pixels(encoded, kept, row) for row in others]
        groups.append(pairs.group(COPY, kept, others, same_pixels))
    for kept, others in sorted(near_views.items()):
        groups.append(pairs.group(NEAR_VIEW, kept, others, [False] * len(others)))
    return Duplicates(manifest, groups, unreadable)


def nearest_layouts(
    thumbnails: Pixels,
    rows: Integers,
    layouts: Floats32,
    usable: Booleans,
    k: int,
) -> Integers:
    """Return pairs of images whose layouts are similar, for some of N images.

    Args:
        thumbnails: uint8, shape (N, SIZE, SIZE).
        rows: int64, shape (n,), rows of the images whose layouts, also turned and of parts, are
            searched for.
        layouts: float32, shape (N, d), of whole thumbnails.
        usable: bool, shape (N,): images that may be found.
        k: Number of images to find for each image.

    Returns:
        int64, shape (m, 2), lower row first, each pair once.
    """
    if not len(rows):
        return np.zeros((0, 2), np.int64)
    itself = RaggedIndices(np.arange(len(rows) + 1), rows)
    # Layouts of only zeros, which have no cosines, are masked.
    gallery = torch.from_numpy(np.where(usable[:, None], layouts, np.float32(1)))
    all_scores = []
    all_neighbours = []
    for queries in searched_layouts(thumbnails[rows]):
        scores, neighbours = nearest_neighbours(
            torch.from_numpy(queries), gallery, k, excluded=itself, gallery_mask=usable
        )
        all_scores.append(np.nan_to_num(scores, nan=-np.inf))
        all_neighbours.append(neighbours)
    # A neighbour counts with its best score over all queries of an image.
    scores = np.concatenate(all_scores, axis=1)
    neighbours = np.concatenate(all_neighbours, axis=1)
    best_first = np.argsort(-scores, axis=1, kind="stable")
    ordered = np.take_along_axis(neighbours, best_first, axis=1)
    nearest = np.full((len(rows), k), -1)
    for place, candidates in enumerate(ordered.tolist()):
        distinct = [row for row in dict.fromkeys(candidates) if row >= 0][:k]
        nearest[place, : len(distinct)] = distinct
    return as_pairs(rows, nearest)


def as_pairs(rows: Integers, neighbours: Integers) -> Integers:
    """Return pairs of rows and neighbours, int64, shape (m, 2), lower row first, each pair once.

    Args:
        rows: int64, shape (n,).
        neighbours: int64, shape (n, k); -1 for no neighbour.
    """
    pairs = np.stack([np.repeat(rows, neighbours.shape[1]), neighbours.ravel()], axis=1)
    return np.unique(np.sort(pairs[pairs[:, 1] >= 0], axis=1), axis=0)


class PairRelations:
    """Comparisons of pairs of images, made once for each pair.

    Args:
        thumbnails: uint8, shape (N, SIZE, SIZE).
        digests: Digests of the images, equal for equal files; None for images that are not compared.
        config: Settings.
    """

    def __init__(
        self,
        thumbnails: Pixels,
        digests: Sequence[bytes | None],
        config: DuplicatesConfig,
    ) -> None:
        self._thumbnails = thumbnails
        self._config = config
        self._n_images = len(digests)
        self._comparisons: dict[tuple[int, int], Comparison] = {}
        first_rows: dict[bytes, int] = {}
        self._first_files = np.full(len(digests), -1)
        for row, digest in enumerate(digests):
            if digest is not None:
                self._first_files[row] = first_rows.setdefault(digest, row)

    @property
    def is_first_file(self) -> Booleans:
        """Whether each image is readable and the first image with its digest, bool, shape (N,)."""
        return np.asarray(self._first_files == np.arange(self._n_images), np.bool_)

    def equal_files(self) -> Integers:
        """Return pairs of images with the first image of the same digest, int64, shape (n, 2)."""
        rows = np.flatnonzero((self._first_files >= 0) & ~self.is_first_file)
        return np.stack([self._first_files[rows], rows], axis=1)

    def comparison(self, first: int, second: int) -> Comparison:
        """Compare two images."""
        first, second = sorted((int(self._first_files[first]), int(self._first_files[second])))
        if first == second:
            return Comparison(1.0, 1.0, True)
        if (first, second) not in self._comparisons:
            self._comparisons[first, second] = compare(
                self._thumbnails[first], self._thumbnails[second]
            )
        return self._comparisons[first, second]

    def relation(self, first: int, second: int) -> str | None:
        """Return the relation of two images, or None if they are unrelated."""
        return self._config.relation(self.comparison(first, second))

    def among(
        self, pairs: Integers, progress: Progress | None = None
    ) -> dict[str, list[tuple[int, int]]]:
        """Return the pairs that are copies and the pairs that are near views, by relation."""
        related: dict[str, list[tuple[int, int]]] = {COPY: [], NEAR_VIEW: []}
        progress = progress or NoProgress()
        progress.start(self._n_images)
        n_compared = 0
        for first, second in pairs.tolist():
            progress.advance(first - n_compared)
            n_compared = first
            relation = self.relation(first, second)
            if relation is not None:
                related[relation].append((first, second))
            else:
                self._comparisons.pop((first, second), None)
        progress.advance(self._n_images - n_compared)
        return related

    def group(
        self, relation: str, kept: int, others: Sequence[int], same_pixels: Sequence[bool]
    ) -> DuplicateGroup:
        """Return a group of images that are related to a kept image."""
        agreements = [self.comparison(kept, row).agreement for row in others]
        return DuplicateGroup(
            relation,
            kept,
            np.array(others),
            np.array(agreements, np.float32),
            np.array(same_pixels, np.bool_),
        )


def _groups_of_copies(
    pairs: Sequence[tuple[int, int]], relations: PairRelations, is_training: Booleans
) -> dict[int, list[int]]:
    """Return the rows of the copies of each kept image, by its row.

    Images outside of the training split are kept first, then images with many copies. A kept image is
    compared with all images that chains of copies lead to.
    """
    n_copies = np.bincount(np.array(pairs, np.int64).ravel(), minlength=len(is_training))
    groups = {}
    for rows in _components(pairs, len(is_training)):
        remaining = sorted(rows, key=lambda row: (is_training[row], -n_copies[row], row))
        while len(remaining) > 1:
            kept, *others = remaining
            copies = [row for row in others if relations.relation(kept, row) == COPY]
            if copies:
                groups[kept] = sorted(copies)
            remaining = [row for row in others if row not in copies]
    return groups


def _groups_of_near_views(
    pairs: Iterable[tuple[int, int]],
    copies: dict[int, list[int]],
    relations: PairRelations,
    is_training: Booleans,
) -> dict[int, list[int]]:
    """Return the rows of the near views of each kept image, which stands for its copies.

    Images outside of the training split are kept first, then images with many near views.
    """
    kept_by_copy = {}
    for kept, rows in copies.items():
        for row in rows:
            kept_by_copy[row] = kept
    neighbours: dict[int, set[int]] = {}
    for first, second in pairs:
        first = kept_by_copy.get(first, first)
        second = kept_by_copy.get(second, second)
        if first != second and relations.relation(first, second) == NEAR_VIEW:
            neighbours.setdefault(first, set()).add(second)
            neighbours.setdefault(second, set()).add(first)
    groups = {}
    grouped: set[int] = set()
    for kept in sorted(neighbours, key=lambda row: (is_training[row], -len(neighbours[row]), row)):
        near_views = sorted(neighbours[kept] - grouped)
        if kept not in grouped and near_views:
            groups[kept] = near_views
            grouped.update([kept, *near_views])
    return groups


def _components(pairs: Sequence[tuple[int, int]], n: int) -> list[list[int]]:
    """Return the rows of each connected component of pairs of n images."""
    if not pairs:
        return []
    first, second = np.array(pairs).T
    graph = coo_array((np.ones(len(pairs), np.bool_), (first, second)), shape=(n, n))
    _, components = connected_components(graph, directed=False)
    members: dict[int, list[int]] = {}
    for row in np.unique([first, second]).tolist():
        members.setdefault(int(components[row]), []).append(row)
    return list(members.values())


def _same_pixels(encoded: EncodedImages, first: int, second: int) -> bool:
    """Return whether two images have the same pixels after decoding."""
    first_image = upright_rgb(open_image(encoded.read(first)))
    second_image = upright_rgb(open_image(encoded.read(second)))
    return np.array_equal(np.asarray(first_image), np.asarray(second_image))
