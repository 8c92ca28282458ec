"""Trainings on a random split of all images of a manifest."""

from pathlib import Path

import numpy as np
import pytest

from hgld.datasets.manifest import read_manifest
from hgld.datasets.splits import open_set_split
from hgld.errors import ConfigurationError
from hgld.training.training_images import TrainingImages, read_training_manifest
from hgld.training.training_settings import DataSettings, RandomSplitSettings, TrainingSettings
from tests.benchmark.comparisons import TRAINING, write_data


def data(folder: Path, **split: object) -> DataSettings:
    return DataSettings(
        manifest=folder / "manifest.parquet",
        features=folder / "features.npy",
        test="test",
        random_split=RandomSplitSettings.model_validate(split),
    )


def test_split_is_that_of_the_manifest_command(tmp_path: Path) -> None:
    write_data(tmp_path)
    manifest = read_manifest(tmp_path / "manifest.parquet")
    for seed in (0, 1):
        is_test = open_set_split(manifest.labels, 0.5, seed)
        assert (read_training_manifest(data(tmp_path, seed=seed)).splits == "test").tolist() == is_test.tolist()
    roots = read_training_manifest(data(tmp_path, level="root"))
    assert len(np.unique(roots.labels[roots.splits == "test", 1])) == 1
    settings = TrainingSettings.model_validate(TRAINING | {"data": data(tmp_path, seed=1)})
    images = TrainingImages(settings)
    assert sorted([*images.train.manifest.ids, *images.test.manifest.ids]) == sorted(manifest.ids)
    assert not set(images.train.manifest.class_names[0]) & set(images.test.manifest.class_names[0])


def test_impossible_splits_are_errors(tmp_path: Path) -> None:
    write_data(tmp_path, n_classes=2)
    with pytest.raises(ConfigurationError, match=r'level is "product"; the levels of .*parquet are landmark, root'):
        read_training_manifest(data(tmp_path, level="product"))
    with pytest.raises(ConfigurationError, match="all 8 images are in the training set"):
        read_training_manifest(data(tmp_path, level="root", test_share=0.001))
    for splits in ({"queries": "query", "gallery": "index"}, {"test": "val"}, {"train": "val", "test": "test"}):
        with pytest.raises(ValueError, match="random_split makes the splits train and test"):
            DataSettings.model_validate({"manifest": "m", "random_split": {}, **splits})
