"""Readers of datasets of landmarks and instances: Google's, and SfM-120k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgld.arrays import Booleans, Integers
from hgld.datasets.image_folders import FoundImages, find_images
from hgld.datasets.label_columns import label_columns
from hgld.datasets.manifest import LANDMARK_LEVEL
from hgld.datasets.readers.base import ReaderResult, build_manifest
from hgld.datasets.readers.settings import Gldv1Settings, Gldv2Settings
from hgld.datasets.splits import check_test_share, first_labels, open_set_split
from hgld.errors import InputError, indented_list, require_at_least
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.io.restricted_pickle import read_pickle
from hgld.io.table_rows import parse_whole_number, read_rows
from hgld.io.text_array import TextArray
from hgld.tables import IMAGES, read_table
from hgld.tables.image_landmarks import read_image_landmarks

#: Landmark of GLDv1's images that were withdrawn after the publication of the list.
_WITHDRAWN = "None"


@dataclass(frozen=True)
class Gldv2(Gldv2Settings):
    """Reader of Google Landmarks Dataset v2 and any part of it, with the levels of a hierarchy.

    Images are in the tar files that ``hgld index-images`` indexed, or extracted to ``a/b/c/abc….jpg``.

    The levels are the landmark and the levels of the hierarchy above it. With a hierarchy from ``hgld
    build --multi``, an image has a label for each group of its landmark. Images are excluded if the
    hierarchy lacks their landmark, or the index lacks the image. Without a test share, all images have
    one split: the split of the hierarchy, or train.

    With a test share, training never sees the landmarks of the test split (open set): a random share
    of the landmarks of each label of the level above (their first label, if they have several) goes to
    the split test, the others to train. A fractional number of landmarks is rounded up or down at
    random.
    """

    def __post_init__(self) -> None:
        check_test_share(self.test_share, example=0.5)
        require_at_least(1, min_images=self.min_images)

    def files(self, root: Path) -> Mapping[str, Path]:
        files = {"labels": self.labels}
        if self.images is not None:
            files["images"] = self.images
        if self.hierarchy is not None and self.hierarchy.is_dir():
            for path in sorted(self.hierarchy.rglob("*")):
                if path.suffix in (".csv", ".parquet"):
                    files[f"hierarchy/{path.relative_to(self.hierarchy)}"] = path
        elif self.hierarchy is not None:
            files["hierarchy"] = self.hierarchy
        return files

    def read(self, root: Path) -> ReaderResult:
        ids, landmark_ids = read_image_landmarks(self.labels)
        hierarchy = None
        if self.hierarchy is not None:
            hierarchy = load_hierarchy(self.hierarchy)
        places, is_indexed = self._places(ids)
        in_hierarchy = np.ones(len(ids), np.bool_)
        excluded: Counter[str] = Counter()
        if hierarchy is not None:
            in_hierarchy = hierarchy.contains(landmark_ids, self.split)
            excluded["of landmarks missing from the hierarchy"] = int((~in_hierarchy).sum())
        excluded["missing from the index of images"] = int((in_hierarchy & ~is_indexed).sum())
        rows = np.flatnonzero(in_hierarchy & is_indexed)
        if not len(rows):
            raise InputError(
                f"{self.labels}: none of its {len(ids):,} images remains; is the hierarchy, or the table of images, "
                f"that of another split or dataset? Excluded: {dict(excluded)}"
            )
        landmark_ids = landmark_ids[rows]
        # A text for each landmark, and not for each image.
        codes = pa.array(landmark_ids).dictionary_encode()
        texts = pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary.cast(pa.string()))
        levels = {LANDMARK_LEVEL: texts}
        split = self.split or "train"
        if hierarchy is not None:
            levels |= _levels_above(hierarchy, landmark_ids, self.split)
            split = self.split or hierarchy.splits[0]
        is_kept = pa.array(in_hierarchy & is_indexed)
        columns = {name: column.filter(is_kept) for name, column in places.items()}
        del ids, places
        columns["split"] = pa.repeat(split, len(rows))
        manifest = build_manifest(
            self.labels, columns, levels, lambda row: f"image {rows[row] + 1}"
        )
        landmarks = first_labels(manifest)[:, 0]
        n_images = np.bincount(landmarks)[landmarks]
        has_enough = n_images >= self.min_images
        n_excluded = int((~has_enough).sum())
        excluded[f"of landmarks with fewer than {self.min_images} images"] = n_excluded
        if not has_enough.any():
            raise InputError(
                f"{self.labels}: no landmark has {self.min_images} images, the largest has {n_images.max()}"
            )
        if n_excluded:
            manifest = manifest.take(np.flatnonzero(has_enough))
        if self.test_share is not None:
            is_test = open_set_split(first_labels(manifest), self.test_share, self.seed)
            manifest = replace(manifest, splits=TextArray(["train", "test"], is_test))
        return ReaderResult(manifest, excluded)

    def _places(self, ids: pa.Array) -> tuple[dict[str, pa.Array], Booleans]:
        """Return the columns id, path, offset and size of images, and a mask of the indexed images."""
        if self.images is None:
            folders = [pc.utf8_slice_codeunits(ids, n, n + 1) for n in range(3)]
            file_names = pc.binary_join_element_wise(ids, "jpg", ".")
            paths = pc.binary_join_element_wise(*folders, file_names, "/")
            return {"id": ids, "path": paths}, np.ones(len(ids), np.bool_)
        index = read_table(self.images, IMAGES)
        rows = pc.index_in(ids, value_set=index["id"])
        columns = {
            "id": ids,
            "path": index["shard"].combine_chunks().take(rows),
            "offset": index["offset"].combine_chunks().take(rows),
            "size": index["size"].combine_chunks().take(rows),
        }
        return columns, rows.is_valid().to_numpy(zero_copy_only=False)


def _levels_above(
    hierarchy: Hierarchy, landmark_ids: Integers, split: str | None
) -> dict[str, pa.Array]:
    """Return the columns of the levels above landmarks.

    They hold texts, or lists of texts for landmarks in several groups.
    """
    labels: Labelling
    if hierarchy.hierarchical_labels is None:
        labels = hierarchy.labels_of(landmark_ids, split)[:, 1:]
    else:
        sets = hierarchy.label_sets_of(landmark_ids, split)
        labels = LabelSets(sets.labels[:, 1:], sets.members)
    return label_columns(labels, hierarchy.level_names[1:], hierarchy.nodes)


@dataclass(frozen=True)
class Gldv1(Gldv1Settings):
    """Reader of Google Landmarks Dataset v1 (Noh et al., DELF, 2017).

    It reads ``train.csv``, and finds downloaded images.

    The list has the columns id, url and landmark_id; the only level is the landmark. The dataset was
    published without images, and many of the listed images cannot be downloaded any more. An image of
    the list is a file named by its id, ``….jpg``, in any folder or tar file. Missing images and rows
    whose landmark_id is None are excluded and counted. All images have the split train.

    The Kaggle version of 2018 lists 1.2 million images of 14,951 landmarks. The Recall@k paper (Table 1) gives
    1,060,709 images of 12,894 landmarks, the numbers of the dataset's paper, and does not publish its list. It trains
    on landmarks with four images or more.
    """

    def __post_init__(self) -> None:
        require_at_least(1, min_images=self.min_images)

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"labels": self.labels or root / "train.csv", "images": root}

    def read(self, root: Path) -> ReaderResult:
        path = self.files(root)["labels"]
        landmark_by_image: dict[str, str] = {}

        def parse(line: int, values: Mapping[str, str]) -> None:
            image = values["id"].strip()
            landmark = values["landmark_id"].strip()
            if landmark != _WITHDRAWN:
                parse_whole_number("landmark_id", landmark)
            first_landmark = landmark_by_image.setdefault(image, landmark)
            if first_landmark != landmark:
                raise ValueError(
                    f"the image {image} has the landmarks {first_landmark} and {landmark}"
                )

        read_rows(path, ("id", "landmark_id"), parse)
        found = find_images(root)
        row_by_image = _rows_by_id(root, found, landmark_by_image)
        labelled = [image for image in row_by_image if landmark_by_image[image] != _WITHDRAWN]
        n_images = Counter(landmark_by_image[image] for image in labelled)
        kept = []
        landmarks = []
        for image in labelled:
            landmark = landmark_by_image[image]
            if n_images[landmark] >= self.min_images:
                kept.append(image)
                landmarks.append(landmark)
        if not kept:
            raise InputError(
                f"{path}: none of its {len(landmark_by_image):,} images remains: {len(row_by_image):,} are in "
                f"{root}, where images are named like {found.names[0]}, and no landmark has {self.min_images} of them"
            )
        places = found.places([row_by_image[image] for image in kept])
        columns = {"id": kept, "split": ["train"] * len(kept), **places}
        manifest = build_manifest(path, columns, {LANDMARK_LEVEL: landmarks})
        excluded = {
            "that are not there": len(landmark_by_image) - len(row_by_image),
            "without a landmark": len(row_by_image) - len(labelled),
            f"of landmarks with fewer than {self.min_images} images": len(labelled) - len(kept),
        }
        return ReaderResult(manifest, excluded)


def _rows_by_id(root: Path, found: FoundImages, listed: Mapping[str, str]) -> dict[str, int]:
    """Return the positions of listed images that were found, by id, in the order of the list."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(found.names):
        rows.setdefault(PurePosixPath(name).stem, []).append(row)
    repeated: list[str] = []
    for image in listed:
        rows_of_image = rows.get(image, [])
        if len(rows_of_image) > 1:
            repeated.extend(found.names[row] for row in rows_of_image)
    if repeated:
        raise InputError(
            f"{root}: images of the list are there several times:\n{indented_list(repeated, limit=6)}"
        )
    return {image: rows[image][0] for image in listed if image in rows}


@dataclass(frozen=True)
class Sfm120k:
    """Reader of SfM-120k (Radenovic et al., TPAMI 2018): ``retrieval-SfM-120k.pkl``.

    The pickle has ``train`` and ``val``, each with ``cids``, the names of images, and ``cluster``,
    their numbers of a 3D model of a landmark, which is the only level. The image ``…abcdef`` is
    ``ims/ef/cd/ab/…abcdef``.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"images": root / "retrieval-SfM-120k.pkl"}

    def read(self, root: Path) -> ReaderResult:
        path = self.files(root)["images"]
        contents = read_pickle(path)
        paths = []
        splits = []
        clusters = []
        try:
            for split in ("train", "val"):
                names = _as_list(contents[split]["cids"])
                numbers = _as_list(contents[split]["cluster"])
                if len(names) != len(numbers):
                    raise ValueError(
                        f"{len(names):,} cids, but {len(numbers):,} values of cluster, in {split}"
                    )
                paths += [f"ims/{name[-2:]}/{name[-4:-2]}/{name[-6:-4]}/{name}" for name in names]
                clusters += [str(int(number)) for number in numbers]
                splits += [split] * len(names)
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{path}: expected train and val, each with cids and cluster ({type(error).__name__}: {error})"
            ) from error
        columns = {"path": paths, "split": splits}
        return ReaderResult(build_manifest(root, columns, {"cluster": clusters}))


def _as_list(values: Any) -> list[Any]:
    """Return a list or array of a pickle as a list."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    return list(values)
