"""Images for training and embedding: manifests, readers of published datasets, loading, samplers and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.datasets.feature_dataset import FeatureDataset
    from hgld.datasets.image_dataset import ImageDataset
    from hgld.datasets.image_labels import ImageLabels, read_labels
    from hgld.datasets.image_sources import read_images
    from hgld.datasets.loading import evaluation_batches, training_batches
    from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
    from hgld.datasets.manifest_files import make_manifest
    from hgld.datasets.readers.gldv2 import Gldv2
    from hgld.datasets.readers.label_table import LabelTable
    from hgld.datasets.readers.nested_folders import NestedFolders
    from hgld.datasets.readers.registry import READERS
    from hgld.datasets.repack import repack_images
    from hgld.datasets.repack_config import RepackConfig
    from hgld.datasets.samplers import ClassBalancedSampler, HierarchicalSampler
    from hgld.datasets.transforms import ImageSettings, evaluation_transform, training_transform


__all__ = [
    "READERS",
    "ClassBalancedSampler",
    "FeatureDataset",
    "Gldv2",
    "HierarchicalSampler",
    "ImageDataset",
    "ImageLabels",
    "ImageSettings",
    "LabelTable",
    "Manifest",
    "NestedFolders",
    "RepackConfig",
    "evaluation_batches",
    "evaluation_transform",
    "make_manifest",
    "read_images",
    "read_labels",
    "read_manifest",
    "repack_images",
    "training_batches",
    "training_transform",
    "write_manifest",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "READERS": "readers.registry",
        "ClassBalancedSampler": "samplers",
        "FeatureDataset": "feature_dataset",
        "Gldv2": "readers.gldv2",
        "HierarchicalSampler": "samplers",
        "ImageDataset": "image_dataset",
        "ImageLabels": "image_labels",
        "ImageSettings": "transforms",
        "LabelTable": "readers.label_table",
        "Manifest": "manifest",
        "NestedFolders": "readers.nested_folders",
        "RepackConfig": "repack_config",
        "evaluation_batches": "loading",
        "evaluation_transform": "transforms",
        "make_manifest": "manifest_files",
        "read_images": "image_sources",
        "read_labels": "image_labels",
        "read_manifest": "manifest",
        "repack_images": "repack",
        "training_batches": "loading",
        "training_transform": "transforms",
        "write_manifest": "manifest",
    },
)
