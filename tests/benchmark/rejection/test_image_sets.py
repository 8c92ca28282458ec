"""Open-set splits of landmarks, near and far images."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from hgld.benchmark.rejection.settings import RejectionSettings
from hgld.benchmark.rejection.split_scores import ComparedImages
from hgld.errors import ConfigurationError
from tests.benchmark.rejection.toy import toy_settings, write_toy


class ImageSet(NamedTuple):
    """Rows and labels of the images of a set."""

    rows: pd.DataFrame
    labels: np.ndarray


def read_sets(values: dict[str, Any], seed: int) -> dict[str, ImageSet]:
    images = ComparedImages(RejectionSettings.model_validate(values)).split(seed)
    return {str(name): ImageSet(rows, images.labels[rows.index]) for name, rows in images.table.groupby("set")}


def image_sets(folder: Path, seed: int, **index: Any) -> dict[str, ImageSet]:
    write_toy(folder)
    values = toy_settings(folder)
    values["index"] |= index
    return read_sets(values, seed)


@pytest.mark.parametrize("split", range(5))
def test_every_image_is_in_one_set_and_near_landmarks_are_not_in_the_index(tmp_path: Path, split: int) -> None:
    sets = image_sets(tmp_path, split)
    rows = [row for images in sets.values() for row in images.rows.query("source == 'index'")["row"]]
    assert sorted(rows) == list(range(120))
    landmarks = {name: set(images.rows["class"]) for name, images in sets.items()}
    assert not landmarks["near"] & landmarks["index"]
    assert landmarks["known"] | landmarks["calibration"] <= landmarks["index"]
    assert {np.unique(sets["near"].labels[:, 1]).size, np.unique(sets["index"].labels[:, 1]).size} == {3}


def test_labels_of_near_and_far_images_are_those_of_no_index_image(tmp_path: Path) -> None:
    sets = image_sets(tmp_path, 0)
    assert (sets["food"].labels == -1).all()
    assert sets["food"].rows["class"].tolist()[:5] == ["f0", "f1", "f2", "f3", "f0"]
    assert not np.isin(sets["near"].labels[:, 0], sets["index"].labels[:, 0]).any()
    assert np.isin(sets["near"].labels[:, 1], sets["index"].labels[:, 1]).all()


def test_near_images_of_another_manifest_have_landmarks_of_their_own(tmp_path: Path) -> None:
    write_toy(tmp_path)
    values = toy_settings(tmp_path)
    values["unknown"]["food"]["kind"] = "near"
    sets = read_sets(values, 0)
    assert np.unique(sets["food"].labels[:, 0]).tolist() == [12, 13, 14, 15]
    assert (sets["food"].labels[:, 1] == -1).all()


def test_test_landmarks_are_those_of_trainings_with_the_same_seed(tmp_path: Path) -> None:
    from hgld.training.training_images import read_training_manifest
    from hgld.training.training_settings import DataSettings

    sets = image_sets(tmp_path, 3, test_share=0.5)
    used = {name for images in sets.values() for name in images.rows.query("source == 'index'")["class"]}
    data = DataSettings.model_validate(
        {"manifest": tmp_path / "landmarks.csv", "test": "test", "random_split": {"test_share": 0.5, "seed": 3}}
    )
    assert used == set(read_training_manifest(data).select_split("test").class_names[0])


def test_a_set_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="split 0: no images are left for calibration"):
        image_sets(tmp_path, 0, calibration_share=1e-9)
    with pytest.raises(
        ConfigurationError, match=r'landmarks\.csv: there is no split "test" among the images; expected all'
    ):
        image_sets(tmp_path, 0, split="test")
