"""Settings of readers, in a module that is fast to import for help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class NoSettings:
    """Settings of a reader without settings."""


@dataclass(frozen=True)
class LabelTableSettings:
    """Settings of the reader of a table of images.

    Args:
        table: CSV or Parquet file with a row per image.
        levels: Columns with the labels, finest first: product,group,kind. With a code, names of the levels of its
            parts, finest first: section,division,category.
        label_separator: Separator between the labels of an image, such as a semicolon, if images may have several.
            Lists in Parquet files need no separator.
        code: Column with hierarchical codes, such as 05.03.13, that stand for the labels at all levels.
        code_separator: Separator between the parts of a code.
        path: Column with the path of each image.
        id: Column with the id of each image. By default, the path.
        split: Column with the split of each image, such as train and test. By default, there is one split, or two at
            random.
        hierarchy: Hierarchy from hgld build; ``levels`` is then one column, with an id of the hierarchy for each
            image. The levels above it and, by default, the splits come from the hierarchy. Images with other ids are
            excluded.
        test_share: Share of the images of each class in a random split test; of an open set, share of the classes (by
            default 0.5).
        open_set: Level whose classes are divided between the splits train and test, which then share no class.
        seed: Seed of the random split.
        skip_missing: Leave out rows whose image is missing.
    """

    table: Path
    levels: str
    label_separator: str | None = None
    code: str | None = None
    code_separator: str = "."
    path: str = "path"
    id: str | None = None
    split: str | None = None
    hierarchy: Path | None = None
    test_share: float | None = None
    open_set: str | None = None
    seed: int = 0
    skip_missing: bool = False


@dataclass(frozen=True)
class NestedFoldersSettings:
    """Settings of the reader of nested folders.

    Args:
        depth: Number of levels, which is the number of nested folders.
        levels: Names of the levels, finest first: product,group,kind. By default, level_3,level_2,level_1.
        split_folders: The topmost folders are splits, such as train and test, with the levels below them.
        hierarchy: Hierarchy from hgld build; ``depth`` is then 1, and folders are named by ids of the hierarchy. The
            levels above it and, by default, the splits come from the hierarchy. Images with other ids are excluded.
        test_share: Share of the images of each class in a random split test; of an open set, share of the classes (by
            default 0.5).
        open_set: Level whose classes are divided between the splits train and test, which then share no class.
        seed: Seed of the random split.
    """

    depth: int
    levels: str | None = None
    split_folders: bool = False
    hierarchy: Path | None = None
    test_share: float | None = None
    open_set: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Gldv2Settings:
    """Settings of the reader of Google Landmarks Dataset v2.

    Args:
        labels: Landmark of each image: train.csv, train_clean.csv, index_image_to_landmark.csv or a file with the
            same columns.
        images: Table from hgld index-images. By default, images are files a/b/c/abc….jpg.
        hierarchy: Levels above landmarks: from hgld build, or H-GLDv2's CSV files. By default, landmarks are the
            only level.
        split: Split of the landmark ids, if the hierarchy has several.
        min_images: Exclude landmarks with fewer images.
        test_share: Share of the landmarks of each super-category in the split test, between 0 and 1; the other
            landmarks are in the split train. By default, there is one split.
        seed: Seed of the random split.
    """

    labels: Path
    images: Path | None = None
    hierarchy: Path | None = None
    split: str | None = None
    min_images: int = 1
    test_share: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Gldv1Settings:
    """Settings of the reader of Google Landmarks Dataset v1.

    Args:
        labels: List of the images. By default, train.csv in the folder.
        min_images: Exclude landmarks with fewer images.
    """

    labels: Path | None = None
    min_images: int = 1


@dataclass(frozen=True)
class RevisitedSettings:
    """Settings of the reader of ROxford5k and RParis6k.

    Args:
        ground_truth: Ground truth. By default, the only gnd_*.pkl in the folder.
    """

    ground_truth: Path | None = None


@dataclass(frozen=True)
class INaturalistSettings:
    """Settings of the reader of iNaturalist-2018.

    Args:
        levels: Species and super-category (base), or the seven ranks of taxonomy (full).
    """

    levels: Literal["base", "full"] = "base"


@dataclass(frozen=True)
class VehicleIdSettings:
    """Settings of the reader of PKU VehicleID.

    Args:
        test_list: Number of vehicles in the test list, which is part of its file name.
    """

    test_list: int = 800


@dataclass(frozen=True)
class DymlSettings:
    """Settings of the reader of DyML.

    Args:
        part: The training set, a level's test set (Vehicle, Animal), or the test set (Product).
    """

    part: Literal["train", "fine", "middle", "coarse", "test"] = "train"
