"""Readers of datasets of landmarks and instances: Google's, ROxford5k, RParis6k and SfM-120k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hgld.datasets.image_folders import FoundImages, find_images
from hgld.datasets.label_columns import label_columns
from hgld.datasets.manifest import LANDMARK_LEVEL, prefix_input_errors
from hgld.datasets.readers.base import ReaderResult, build_manifest
from hgld.datasets.readers.settings import Gldv1Settings, Gldv2Settings, RevisitedSettings
from hgld.datasets.splits import check_test_share, first_labels, open_set_split
from hgld.errors import ConfigurationError, InputError, indented_list, require_at_least
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.io.restricted_pickle import read_pickle
from hgld.io.table_rows import parse_whole_number, read_rows
from hgld.io.text_array import TextArray
from hgld.ragged import RaggedIndices
from hgld.tables import IMAGES, read_table
from hgld.tables.image_landmarks import read_image_landmarks

#: Landmark of GLDv1's images that were withdrawn after the publication of the list.
_WITHDRAWN = "None"
#: Which images are positives in each setting; those of ``_IGNORED`` are excluded from the ranking, all others are
#: negatives.
_POSITIVES = {"easy": ("easy",), "medium": ("easy", "hard"), "hard": ("hard",)}
_IGNORED = {"easy": ("junk", "hard"), "medium": ("junk",), "hard": ("junk", "easy")}
SETTINGS = tuple(_POSITIVES)
_KINDS = ("easy", "hard", "junk")


@dataclass(frozen=True)
class Gldv2(Gldv2Settings):
    """Reader of Google Landmarks Dataset v2 and any part of it, with the levels of a hierarchy.

    Images are in the tar files that ``hgld index-images`` indexed, or extracted to ``a/b/c/abc….jpg``.

    The levels are the landmark and those of the hierarchy above it. With a hierarchy from ``hgld build --multi``, an
    image has a label for each group of its landmark. Images of landmarks that the hierarchy lacks are excluded, as
    are those that the index lacks. Without a test share, all images have one split: that of the hierarchy, or train.

    With a test share, landmarks are divided such that training never sees those of the test split (open set): a
    random share of the landmarks of each label of the level above, their first one if they have several, goes to the
    split test, the others to train. A fractional number of landmarks is rounded up or down at random.
    """

    def __post_init__(self) -> None:
        check_test_share(self.test_share, example=0.5)
        require_at_least(1, min_images=self.min_images)

    def files(self, root: Path) -> Mapping[str, Path]:
        files = {"labels": self.labels}
        if self.images is not None:
            files["images"] = self.images
        if self.hierarchy is not None and self.hierarchy.is_dir():
            tables = sorted(
                path for path in self.hierarchy.rglob("*") if path.suffix in (".csv", ".parquet")
            )
            files |= {f"hierarchy/{path.relative_to(self.hierarchy)}": path for path in tables}
        elif self.hierarchy is not None:
            files["hierarchy"] = self.hierarchy
        return files

    def read(self, root: Path) -> ReaderResult:
        ids, landmark_ids = read_image_landmarks(self.labels)
        hierarchy = None if self.hierarchy is None else load_hierarchy(self.hierarchy)
        places, is_indexed = self._places(ids)
        in_hierarchy, excluded = np.ones(len(ids), np.bool_), Counter[str]()
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
        codes = pa.array(
            landmark_ids
        ).dictionary_encode()  # a text for each landmark, not for each image
        levels = {
            LANDMARK_LEVEL: pa.DictionaryArray.from_arrays(
                codes.indices, codes.dictionary.cast(pa.string())
            )
        }
        if hierarchy is not None:
            levels |= _levels_above(hierarchy, landmark_ids, self.split)
        split = self.split or (hierarchy.splits[0] if hierarchy is not None else "train")
        is_kept = pa.array(in_hierarchy & is_indexed)
        columns = {name: column.filter(is_kept) for name, column in places.items()}
        del ids, places
        columns["split"] = pa.repeat(split, len(rows))
        manifest = build_manifest(
            self.labels, columns, levels, lambda row: f"image {rows[row] + 1}"
        )
        landmarks = first_labels(manifest)[:, 0]
        n_images = np.bincount(landmarks)[landmarks]
        enough = n_images >= self.min_images
        excluded[f"of landmarks with fewer than {self.min_images} images"] = int((~enough).sum())
        if not enough.any():
            raise InputError(
                f"{self.labels}: no landmark has {self.min_images} images, the largest has {n_images.max()}"
            )
        if not enough.all():
            manifest = manifest.take(np.flatnonzero(enough))
        if self.test_share is not None:
            is_test = open_set_split(first_labels(manifest), self.test_share, self.seed)
            manifest = replace(manifest, splits=TextArray(["train", "test"], is_test))
        return ReaderResult(manifest, excluded)

    def _places(self, ids: pa.Array) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
        """Return the columns id, path, offset and size of images, and whether each is indexed."""
        if self.images is None:
            folders = [pc.utf8_slice_codeunits(ids, n, n + 1) for n in range(3)]
            paths = pc.binary_join_element_wise(
                *folders, pc.binary_join_element_wise(ids, "jpg", "."), "/"
            )
            return {"id": ids, "path": paths}, np.ones(len(ids), np.bool_)
        index = read_table(self.images, IMAGES)
        rows = pc.index_in(ids, value_set=index["id"])
        names = {"path": "shard", "offset": "offset", "size": "size"}
        columns = {
            name: index[source].combine_chunks().take(rows) for name, source in names.items()
        }
        return {"id": ids, **columns}, rows.is_valid().to_numpy(zero_copy_only=False)


def _levels_above(
    hierarchy: Hierarchy, landmark_ids: NDArray[np.int64], split: str | None
) -> dict[str, pa.Array]:
    """Return the columns of the levels above landmarks: texts, or lists of texts for landmarks in several groups."""
    labels: Labelling
    if hierarchy.hierarchical_labels is None:
        labels = hierarchy.labels_of(landmark_ids, split)[:, 1:]
    else:
        sets = hierarchy.label_sets_of(landmark_ids, split)
        labels = LabelSets(sets.labels[:, 1:], sets.members)
    return label_columns(labels, hierarchy.level_names[1:], hierarchy.nodes)


@dataclass(frozen=True)
class Gldv1(Gldv1Settings):
    """Reader of Google Landmarks Dataset v1 (Noh et al., DELF, 2017): ``train.csv``, and downloaded images.

    The list has the columns id, url and landmark_id; the only level is the landmark. It was published without images,
    which everybody downloaded, and many of them are gone. Images are those named by their ids, ``….jpg``, in any
    folder or tar file; those of the list that are not there are excluded and counted, as are rows whose landmark_id
    is None. All images have the split train.

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
        landmark_of: dict[str, str] = {}

        def parse(line: int, values: Mapping[str, str]) -> None:
            image, landmark = values["id"].strip(), values["landmark_id"].strip()
            if landmark != _WITHDRAWN:
                parse_whole_number("landmark_id", landmark)
            if landmark_of.setdefault(image, landmark) != landmark:
                raise ValueError(
                    f"the image {image} has the landmarks {landmark_of[image]} and {landmark}"
                )

        read_rows(path, ("id", "landmark_id"), parse)
        found = find_images(root)
        row_of = _rows_by_id(root, found, landmark_of)
        labelled = [image for image in row_of if landmark_of[image] != _WITHDRAWN]
        n_images = Counter(landmark_of[image] for image in labelled)
        kept = [image for image in labelled if n_images[landmark_of[image]] >= self.min_images]
        if not kept:
            raise InputError(
                f"{path}: none of its {len(landmark_of):,} images remains: {len(row_of):,} are in {root}, where "
                f"images are named like {found.names[0]}, and no landmark has {self.min_images} of them"
            )
        places = found.places([row_of[image] for image in kept])
        levels = {LANDMARK_LEVEL: [landmark_of[image] for image in kept]}
        manifest = build_manifest(
            path, {"id": kept, "split": ["train"] * len(kept), **places}, levels
        )
        excluded = {
            "that are not there": len(landmark_of) - len(row_of),
            "without a landmark": len(row_of) - len(labelled),
            f"of landmarks with fewer than {self.min_images} images": len(labelled) - len(kept),
        }
        return ReaderResult(manifest, excluded)


def _rows_by_id(root: Path, found: FoundImages, listed: Mapping[str, str]) -> dict[str, int]:
    """Return the positions of those images that are listed and found, by their ids and in the order of the list."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(found.names):
        rows.setdefault(PurePosixPath(name).stem, []).append(row)
    if several := [
        found.names[row] for image in listed if len(rows.get(image, [])) > 1 for row in rows[image]
    ]:
        raise InputError(
            f"{root}: images of the list are there several times:\n{indented_list(several, limit=6)}"
        )
    return {image: rows[image][0] for image in listed if image in rows}


@dataclass(frozen=True)
class Revisited(RevisitedSettings):
    """Reader of ROxford5k or RParis6k (Radenovic et al., CVPR 2018): ``gnd_roxford5k.pkl`` or ``gnd_rparis6k.pkl``.

    The images are in ``jpg``. The splits are query and gallery. A query is the part of its image that the ground
    truth gives as its box. The ground truth itself is no label of an image: ``hgld evaluate`` reads it. The only
    level is the beginning of an image's name, the term by which it was once found, such as all_souls.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        if self.ground_truth is not None:
            return {"ground_truth": self.ground_truth}
        found = sorted(root.glob("gnd_*.pkl"))
        if len(found) > 1:
            raise InputError(
                f"{root}: has {', '.join(path.name for path in found)}; name one as `ground_truth`"
            )
        return {"ground_truth": found[0] if found else root / "gnd_roxford5k.pkl"}

    def read(self, root: Path) -> ReaderResult:
        truth = read_ground_truth(self.files(root)["ground_truth"])
        names = [*truth.query_names, *truth.gallery_names]
        n_queries, n_gallery = len(truth.query_names), len(truth.gallery_names)
        columns = {
            "path": [f"jpg/{name}.jpg" for name in names],
            "split": ["query"] * n_queries + ["gallery"] * n_gallery,
        }
        levels = {"search_term": [name.rpartition("_")[0] or name for name in names]}
        boxes = np.concatenate([truth.boxes, np.full((n_gallery, 4), np.nan)])
        return ReaderResult(replace(build_manifest(root, columns, levels), boxes=boxes))


@dataclass(frozen=True)
class Sfm120k:
    """Reader of SfM-120k (Radenovic et al., TPAMI 2018): ``retrieval-SfM-120k.pkl``.

    The pickle has ``train`` and ``val``, each with ``cids``, names of images, and ``cluster``, a number for each: a
    3D model of a landmark, which is the only level. The image ``…abcdef`` is ``ims/ef/cd/ab/…abcdef``.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        return {"images": root / "retrieval-SfM-120k.pkl"}

    def read(self, root: Path) -> ReaderResult:
        (path,) = self.files(root).values()
        contents = read_pickle(path)
        paths, splits, clusters = [], [], []
        try:
            for split in ("train", "val"):
                names, numbers = (_as_list(contents[split][key]) for key in ("cids", "cluster"))
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
        return ReaderResult(
            build_manifest(root, {"path": paths, "split": splits}, {"cluster": clusters})
        )


def _as_list(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


@dataclass(frozen=True)
class RevisitedGroundTruth:
    """Relevant and ignored gallery images of each query.

    Args:
        boxes: float64, shape (n_query, 4); the part of its image that is the query, in pixels.
        easy: Positions of the gallery images that show the landmark clearly, for each query.
        hard: Positions of those that show it under hard conditions.
        junk: Positions of those that are ignored, since the landmark can hardly be seen.
    """

    gallery_names: tuple[str, ...]
    query_names: tuple[str, ...]
    boxes: npt.NDArray[np.float64]
    easy: RaggedIndices
    hard: RaggedIndices
    junk: RaggedIndices

    def positives(self, setting: str) -> RaggedIndices:
        """Return the positives of each query in a setting: ``easy``, ``medium`` or ``hard``."""
        return self._union(_POSITIVES, setting)

    def ignored(self, setting: str) -> RaggedIndices:
        """Return the gallery images that are excluded from each query's ranking in a setting."""
        return self._union(_IGNORED, setting)

    def _union(self, kinds_by_setting: dict[str, tuple[str, ...]], setting: str) -> RaggedIndices:
        if setting not in kinds_by_setting:
            raise ConfigurationError(
                f'there is no setting "{setting}"; expected one of {", ".join(SETTINGS)}'
            )
        by_kind = {"easy": self.easy, "hard": self.hard, "junk": self.junk}
        return reduce(or_, (by_kind[kind] for kind in kinds_by_setting[setting]))


def read_ground_truth(path: Path) -> RevisitedGroundTruth:
    """Read and check ``gnd_roxford5k.pkl``, ``gnd_rparis6k.pkl`` or a file of the same layout.

    It is a pickle of a dict: ``imlist`` (names of the gallery's images without suffix), ``qimlist`` (those of the
    queries) and ``gnd``, for each query a dict of ``easy``, ``hard``, ``junk`` (positions in ``imlist``, from 0) and
    ``bbx`` (the box of the query in its image: left, top, right, bottom).

    Raises:
        InputError: The file is no such pickle, or positions are beyond the gallery or of two kinds at once.
    """
    content = read_pickle(path)
    with prefix_input_errors(path):
        try:
            gallery, queries, entries = (
                tuple(content["imlist"]),
                tuple(content["qimlist"]),
                content["gnd"],
            )
            boxes = np.array([entry["bbx"] for entry in entries], np.float64).reshape(
                len(queries), 4
            )
            positions = {kind: [np.sort(entry[kind]) for entry in entries] for kind in _KINDS}
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(
                "expected a pickle of a dict with imlist, qimlist and gnd, which has easy, hard, junk and bbx of "
                f"each query ({type(error).__name__}: {error})"
            ) from error
        empty = np.flatnonzero(~((boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])))
        if len(empty):
            box = boxes[empty[0]].tolist()
            raise InputError(
                f"query {queries[empty[0]]}: bbx is {box}; expected left, top, right, bottom"
            )
        easy, hard, junk = (RaggedIndices.from_lists(positions[kind]) for kind in _KINDS)
        for kind, images in zip(_KINDS, (easy, hard, junk), strict=True):
            images.check(len(queries), len(gallery), kind)
        listed = easy | hard | junk
        n_listed = easy.counts() + hard.counts() + junk.counts()
        repeated = np.flatnonzero(listed.counts() < n_listed)
        if len(repeated):
            raise InputError(
                f"positions of the query {queries[repeated[0]]} are repeated in {', '.join(_KINDS)}"
            )
    return RevisitedGroundTruth(gallery, queries, boxes, easy, hard, junk)
