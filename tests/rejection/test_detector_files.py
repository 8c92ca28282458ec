"""Folders of fitted scores: what is saved is loaded, and damage is one clear line."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hgld.errors import BusyError, ConfigurationError, InputError
from hgld.io.files import exclusive_lock
from hgld.rejection import (
    Detector,
    DetectorModel,
    DetectorRecord,
    build_detector,
    load_detector,
    save_detector,
)
from hgld.rejection.detector_files import is_detector_folder
from tests.rejection.test_detectors import N, index_images, queries

RECORD = DetectorRecord(
    n_images=N,
    index_sha256="ab" * 32,
    model=DetectorModel(name="resnet50", weights_sha256="cd" * 32, settings={"scales": [1.0]}),
    level_names=("landmark", "supercategory"),
    provenance={"command": "reject fit"},
)


def saved(folder: Path, record: DetectorRecord = RECORD) -> Detector:
    detector = build_detector("top1_cosine").fit(**index_images())
    save_detector(folder, detector, record)
    return detector


def test_loaded_scores_are_the_same(fitted: Detector, tmp_path: Path) -> None:
    save_detector(tmp_path / "detector", fitted, RECORD)
    loaded = load_detector(tmp_path / "detector")
    assert loaded.record == RECORD
    assert (loaded.detector.name, loaded.detector.options()) == (fitted.name, fitted.options())
    np.testing.assert_array_equal(loaded.detector.score(**queries()), fitted.score(**queries()))
    card = (tmp_path / "detector" / "README.md").read_text()
    assert "$" not in card
    assert f"`{fitted.name}`" in card
    assert all(f"option `{option}`" in card for option in fitted.options())
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "README.md",
        "detector",
        "detector.json",
        "detector.safetensors",
    ]


def test_tensors_that_share_memory_are_saved(tmp_path: Path) -> None:
    rows = torch.randn(N, 12)[:, :6]  # a view of a wider tensor
    detector = build_detector("top1_cosine").fit(rows[10:])
    save_detector(tmp_path / "detector", detector, RECORD)
    np.testing.assert_array_equal(
        load_detector(tmp_path / "detector").detector.score(rows[:10]), detector.score(rows[:10])
    )


def test_saving_again_replaces_detectors_only(tmp_path: Path) -> None:
    folder = tmp_path / "detector"
    saved(folder)
    saved(folder, RECORD.model_copy(update={"n_images": 7}))
    assert load_detector(folder).record.n_images == 7
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigurationError, match="not those of a detector; name another folder"):
        saved(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").read_text() == "precious"
    with exclusive_lock(folder), pytest.raises(BusyError, match="another run is writing"):
        saved(folder)
    with pytest.raises(ConfigurationError, match="was not fitted"):
        save_detector(tmp_path / "new", build_detector("top1_cosine"), RECORD)
    assert not (tmp_path / "new").exists()


def other_state(folder: Path) -> None:
    saved(folder / "other", RECORD.model_copy(update={"index_sha256": "ef" * 32}))
    shutil.move(folder / "other" / "detector.safetensors", folder / "detector.safetensors")


def change(**values: object) -> Callable[[Path], object]:
    def changed(folder: Path) -> None:
        path = folder / "detector.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return changed


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-20])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "not a detector of hgld reject fit, as it has no detector.json"),
    "no state": (lambda folder: (folder / "detector.safetensors").unlink(), "not whole (no such file)"),
    "half a state": (cut("detector.safetensors"), "detector.safetensors is not whole"),
    "pickle": (lambda folder: torch.save({}, folder / "detector.safetensors"), "detector.safetensors is not whole"),
    "another state": (other_state, "belongs to another detector.json"),
    "half a description": (cut("detector.json"), "not whole JSON"),
    "text": (lambda folder: (folder / "detector.json").write_text("[]"), "not whole JSON (not a mapping)"),
    "bytes": (lambda folder: (folder / "detector.json").write_bytes(b"\xff\xfe"), "not whole JSON"),
    "other format": (change(format="hgld.detector/2"), 'but its format is "hgld.detector/2"; fit it again'),
    "model": (change(format="hgld.model/1"), 'but its format is "hgld.model/1"'),
    "key": (change(colour="red"), "colour: Extra inputs are not permitted"),
    "score": (change(score="oracle"), "there is no score oracle"),
    "options": (change(options={"k": 3}), "option k of the score top1_cosine"),
    "dimension": (change(dim=7), "belongs to another detector.json"),
    "value": (change(dim="many"), "dim: Input should be a valid integer"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_one_line(name: str, tmp_path: Path) -> None:
    saved(tmp_path / "detector")
    damage, message = DAMAGE[name]
    damage(tmp_path / "detector")
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_detector(tmp_path / "detector")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "detector"))


def test_folders_are_recognised(tmp_path: Path) -> None:
    saved(tmp_path / "detector")
    assert is_detector_folder(tmp_path / "detector")
    assert not is_detector_folder(tmp_path)
    change(format="hgld.detector/9")(tmp_path / "detector")
    assert is_detector_folder(tmp_path / "detector")
