"""Photographs for the page of clusters: which of them, and how many."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from hgld.review.photographs import MapPhotographs, open_map_photographs
from tests.review.conftest import Label
from tests.review.photograph_files import jpeg, write_photographs

LABELS = (
    Label("Q1", "lake", 1, 1, train=2),
    Label("Q2", "church", 1, 1, train=1),
    Label("Q3", "pond", 1, 1, train=1),
)


@pytest.fixture
def photographs(tmp_path: Path, tables: Callable[..., Path]) -> MapPhotographs:
    """Seven photographs of lakes, one of which is damaged, one of a church, none of a pond."""
    tables(LABELS)
    images = write_photographs(tmp_path / "gldv2", {0: 4, 1: 3, 1000: 1}, {"1-0": jpeg()[:400]})
    opened = open_map_photographs(images, tmp_path / "clean.parquet")
    assert opened is not None
    return opened


def test_labels_take_turns_until_the_limit(photographs: MapPhotographs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        chosen = photographs.of_labels(["Q3", "Q1", "Q2", "Q99"])
    assert {key: [photograph.name for photograph in found] for key, found in chosen.items()} == {
        "Q1": ["Q1 train 0", "Q1 train 0", "Q1 train 1"],
        "Q2": ["Q2 train 0"],
    }
    assert [record.getMessage() for record in caplog.records] == ["the photograph 1-0 is left out: damaged"]
    first = chosen["Q1"][0].url
    assert Image.open(io.BytesIO(base64.b64decode(first.partition("base64,")[2]))).size == (128, 96)
    for limit, expected in ((0, {}), (len(first), {"Q2": 1}), (2 * len(first), {"Q2": 1, "Q1": 1})):
        chosen = photographs.of_labels(["Q2", "Q1"], max_characters=limit)
        assert {key: len(found) for key, found in chosen.items()} == expected
    assert len(photographs.of_labels(["Q1"], per_label=1)["Q1"]) == 1


def test_all_files_that_decide_are_digested(photographs: MapPhotographs, tmp_path: Path) -> None:
    assert set(photographs.digests) == {"photographs.0", "photographs.1", "photographs.2"}
    (tmp_path / "gldv2" / "train.csv").write_text("id,landmark_id\n0-0,0\n")
    changed = open_map_photographs(tmp_path / "gldv2" / "images.parquet", tmp_path / "clean.parquet")
    assert changed is not None
    assert changed.digests != photographs.digests
    assert open_map_photographs(None, tmp_path / "clean.parquet") is None
