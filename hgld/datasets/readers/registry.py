"""The readers by the name of their command, imported on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from hgld.datasets.readers.settings import (
    DymlSettings,
    Gldv1Settings,
    Gldv2Settings,
    INaturalistSettings,
    LabelTableSettings,
    NestedFoldersSettings,
    NoSettings,
    RevisitedSettings,
    VehicleIdSettings,
)

if TYPE_CHECKING:
    from hgld.datasets.readers.base import Reader


@dataclass(frozen=True)
class ReaderEntry:
    """A reader that is imported on demand.

    Args:
        target: Module in this package and class of the reader, as ``module:Class``.
        summary: Help text of the command.
        example: Settings for the usage example of the command.
        argument: Setting that is the argument of the command; the folder of the images is then an
            option.
        settings: Dataclass of the settings, the base class of the reader if it has settings.
    """

    target: str
    summary: str
    example: Mapping[str, str] = field(default_factory=dict)
    argument: str = ""
    settings: type = NoSettings

    def load(self) -> type[Reader]:
        """Import the reader, and return its class."""
        module, _, name = self.target.partition(":")
        reader: type[Reader] = getattr(import_module(f"hgld.datasets.readers.{module}"), name)
        return reader


#: Readers of published layouts and of the user's own images, by the commands of ``hgld manifest``.
READERS: Mapping[str, ReaderEntry] = {
    "table": ReaderEntry(
        "own_images:LabelTable",
        "Images of your own with their labels in a CSV or Parquet table.",
        {"levels": "product,group,kind", "test_share": "0.2"},
        argument="table",
        settings=LabelTableSettings,
    ),
    "folder": ReaderEntry(
        "own_images:NestedFolders",
        "Images of your own in nested folders that are named by their labels.",
        {"depth": "3", "test_share": "0.2"},
        settings=NestedFoldersSettings,
    ),
    "gldv2": ReaderEntry(
        "landmarks:Gldv2",
        "Google Landmarks Dataset v2, in tar files or extracted, with the levels of a hierarchy.",
        {"images": "images.parquet", "labels": "train_clean.csv", "hierarchy": "hierarchy.parquet"},
        settings=Gldv2Settings,
    ),
    "sop": ReaderEntry(
        "fine_grained:StanfordOnlineProducts",
        "Stanford Online Products: Ebay_train.txt and Ebay_test.txt; product and category.",
    ),
    "in-shop": ReaderEntry(
        "fine_grained:InShop",
        "In-Shop Clothes Retrieval: list_eval_partition.txt; item, category and gender.",
    ),
    "inaturalist": ReaderEntry(
        "fine_grained:INaturalist",
        "iNaturalist-2018 with the splits of Smooth-AP: Inat_dataset_splits/, and train2018.json for all levels.",
        {"levels": "full"},
        settings=INaturalistSettings,
    ),
    "cub": ReaderEntry(
        "fine_grained:Cub",
        "CUB-200-2011: images.txt and image_class_labels.txt; species, family and order.",
    ),
    "cars196": ReaderEntry("fine_grained:Cars196", "Cars196: cars_annos.mat; model and type."),
    "vehicle-id": ReaderEntry(
        "fine_grained:VehicleId",
        "PKU VehicleID: train_test_split/train_list.txt and a test_list_….txt; vehicles alone.",
        {"test_list": "2400"},
        settings=VehicleIdSettings,
    ),
    "dyml": ReaderEntry(
        "dyml:Dyml",
        "DyML-Vehicle, -Animal or -Product: label.csv, or query.csv and gallery.csv; fine, middle and coarse.",
        settings=DymlSettings,
    ),
    "gldv1": ReaderEntry(
        "landmarks:Gldv1",
        "Google Landmarks Dataset v1: train.csv, with those of its images that were downloaded; landmarks alone.",
        {"min_images": "4"},
        settings=Gldv1Settings,
    ),
    "revisited": ReaderEntry(
        "revisited:Revisited",
        "ROxford5k or RParis6k: gnd_roxford5k.pkl or gnd_rparis6k.pkl; queries with their boxes, and gallery.",
        settings=RevisitedSettings,
    ),
    "sfm120k": ReaderEntry(
        "landmarks:Sfm120k", "SfM-120k: retrieval-SfM-120k.pkl; clusters alone."
    ),
}
