"""Open-set splits of landmarks, near and far images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgld.benchmark.rejection.image_sets import ComparedImages, ImageSet
from hgld.benchmark.rejection.settings import RejectionSettings
from hgld.errors import ConfigurationError
from tests.benchmark.rejection.toy import toy_settings, write_toy


def image_sets(folder: Path, seed: int, **index: Any) -> dict[str, ImageSet]:
    write_toy(folder)
    values = toy_settings(folder)
    values["index"] |= index
    return ComparedImages(RejectionSettings.model_validate(values)).sets(seed)


@pytest.mark.parametrize("split", range(5))
def test_every_image_is_in_one_set_and_near_landmarks_are_not_in_the_index(tmp_path: Path, split: int) -> None:
    sets = image_sets(tmp_path, split)
    rows = np.concatenate([images.rows for images in sets.values() if images.source == "index"])
    assert sorted(rows.tolist()) == list(range(120))
    landmarks = {name: set(images.classes) for name, images in sets.items()}
    assert not landmarks["near"] & landmarks["index"]
    assert landmarks["known"] | landmarks["calibration"] <= landmarks["index"]
    assert {np.unique(sets["near"].labels[:, 1]).size, np.unique(sets["index"].labels[:, 1]).size} == {3}


def test_labels_of_near_and_far_images_are_those_of_no_index_image(tmp_path: Path) -> None:
    sets = image_sets(tmp_path, 0)
    assert (sets["food"].labels == -1).all()
    assert sets["food"].classes[:5].tolist() == ["f0", "f1", "f2", "f3", "f0"]
    assert not np.isin(sets["near"].labels[:, 0], sets["index"].labels[:, 0]).any()
    assert np.isin(sets["near"].labels[:, 1], sets["index"].labels[:, 1]).all()


def test_near_images_of_another_manifest_have_landmarks_of_their_own(tmp_path: Path) -> None:
    write_toy(tmp_path)
    values = toy_settings(tmp_path)
    values["unknown"]["food"]["kind"] = "near"
    sets = ComparedImages(RejectionSettings.model_validate(values)).sets(0)
    assert np.unique(sets["food"].labels[:, 0]).tolist() == [12, 13, 14, 15]
    assert (sets["food"].labels[:, 1] == -1).all()


def test_test_landmarks_are_those_of_trainings_with_the_same_seed(tmp_path: Path) -> None:
    from hgld.training.training_images import read_training_manifest
    from hgld.training.training_settings import DataSettings

    sets = image_sets(tmp_path, 3, test_share=0.5)
    used = {name for images in sets.values() if images.source == "index" for name in images.classes}
    data = DataSettings.model_validate(
        {"manifest": tmp_path / "landmarks.csv", "test": "test", "random_split": {"test_share": 0.5, "seed": 3}}
    )
    assert used == set(read_training_manifest(data).select_split("test").class_names[0])


def test_a_set_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="split 0: no images are left for calibration"):
        image_sets(tmp_path, 0, calibration_share=1e-9)
    with pytest.raises(ConfigurationError, match='no split "test"; expected one of all'):
        image_sets(tmp_path, 0, split="test")
