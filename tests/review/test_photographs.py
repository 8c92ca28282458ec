"""Photographs of labels: which are shown first, and inputs that do not fit."""

import base64
import io
import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.errors import ConfigurationError, InputError
from hgld.gldv2.tar_images import ImageReader
from hgld.review.photographs import LabelPhotographs, open_photographs
from hgld.tables import CLEAN, Provenance, write_table
from tests.assertions import not_none
from tests.review.conftest import COMMONS, Label, clean_table
from tests.review.photograph_files import jpeg, label_photographs, write_photographs

LABELS = (Label("Q1", "lake", train=3, index=1), Label("Q2", "church", train=1), Label("Q3", "pond", train=1))


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """Landmarks 0, 1 and 2 are lakes, 1000 is a church, 2000 a pond; landmark 0 of the index is a lake, too."""
    write_table(tmp_path / "clean.parquet", CLEAN, clean_table(LABELS), Provenance("test"))
    return tmp_path / "clean.parquet"


def opened(images: Path, clean: Path, image_landmarks: Sequence[Path | tuple[str, Path]] = ()) -> LabelPhotographs:
    return not_none(open_photographs(images, clean, image_landmarks))


def test_landmarks_take_turns_those_with_many_photographs_first(tmp_path: Path, clean: Path) -> None:
    images = write_photographs(tmp_path / "gldv2", {0: 1, 1: 4, 2: 2, 1000: 1, 777: 5})
    photographs = opened(images, clean)
    ids = [photograph.image_id for photograph in photographs.of_label("Q1")]
    assert ids == ["1-0", "2-0", "0-0", "1-1", "2-1", "1-2", "1-3"]
    assert photographs.count("Q1") == (7, 3)
    assert [photograph.image_id for photograph in photographs.of_label("Q1", 2, 4)] == ["0-0", "1-1"]
    assert photographs.of_label("Q1", 7) == photographs.of_label("Q3") == photographs.of_label("Q99") == []
    assert photographs.count("Q3") == photographs.count("Q99") == (0, 0)
    (church,) = photographs.of_label("Q2")
    assert (church.landmark, church.link) == ("Q2 train 0", f"{COMMONS}Q2_train_0")
    assert photographs.read("1-3") == jpeg()
    for unknown in ("", "1-4", "../train.csv", "a/1-3", "1-3.jpg", "1-3\0", "湖"):
        with pytest.raises(KeyError):
            photographs.read(unknown)


def test_both_splits(tmp_path: Path, clean: Path) -> None:
    write_photographs(tmp_path / "gldv2", {1: 1})
    images = tmp_path / "gldv2" / "images.parquet"
    (tmp_path / "gldv2" / "index_image_to_landmark.csv").write_text("id,landmark_id\n1-0,7\n0-0,0\n")
    photographs = opened(images, clean)
    assert photographs.count("Q1")[0] == 1, "0-0 is not in the tar file"
    images = write_photographs(tmp_path / "index", {0: 2}, split="index")
    photographs = opened(images, clean)
    assert [photograph.landmark for photograph in photographs.of_label("Q1")] == ["Q1 index 0"] * 2


def test_lists_elsewhere_and_images_in_two_of_them(tmp_path: Path, clean: Path) -> None:
    images = write_photographs(tmp_path / "gldv2", {0: 2})
    (tmp_path / "gldv2" / "train.csv").rename(tmp_path / "mine.csv")
    (tmp_path / "train_clean.csv").write_text("landmark_id,images\n0,0-0 0-1\n")
    photographs = opened(images, clean, [("train", tmp_path / "mine.csv"), tmp_path / "train_clean.csv"])
    assert photographs.count("Q1") == (2, 1)


def test_landmark_without_a_commons_category_is_named_by_its_id(tmp_path: Path) -> None:
    table = clean_table(LABELS[1:2])
    for category in ("javascript:alert(1)", "https://example.org/wiki/Category:X", "Café"):
        changed = table.set_column(
            table.schema.get_field_index("category"), CLEAN.schema.field("category"), [[category]]
        )
        write_table(tmp_path / "clean.parquet", CLEAN, changed, Provenance("test"))
        photographs = opened(write_photographs(tmp_path / "gldv2", {0: 1}), tmp_path / "clean.parquet")
        (photograph,) = photographs.of_label("Q2")
        assert (photograph.landmark, photograph.link) == ("landmark 0", "")


N_IMAGES, N_LANDMARKS = 30, 8


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> ImageReader:
    folder = tmp_path_factory.mktemp("images")
    return ImageReader(write_photographs(folder, dict.fromkeys(range(5), 6)), folder)


@given(
    st.lists(st.integers(0, N_LANDMARKS - 1), min_size=1, max_size=N_IMAGES),
    st.lists(st.integers(0, 2), min_size=N_LANDMARKS, max_size=N_LANDMARKS),
    st.randoms(use_true_random=False),
)
def test_rounds_equal_those_made_one_by_one(
    reader: ImageReader, shows: list[int], labels: list[int], chance: object
) -> None:
    """``shows`` has the landmark of each image, ``labels`` the label of each landmark."""
    landmarks = pa.table(
        {
            "landmark_id": range(N_LANDMARKS),
            "category": [f"{COMMONS}{number}" for number in range(N_LANDMARKS)],
            "supercategory": [str(label) for label in labels],
            "class_item": [f"Q{label + 1}" for label in labels],
        }
    )
    order = list(range(len(shows)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    rows = np.array(order)
    photographs = LabelPhotographs(reader, landmarks, rows, np.array(shows)[rows])
    for label in range(3):
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for row, landmark in enumerate(shows):
            if labels[landmark] == label:
                waiting[landmark].append(row)
        in_turn = sorted(waiting, key=lambda landmark: (-len(waiting[landmark]), landmark))
        expected = []
        while any(waiting.values()):
            expected += [reader.id_at(waiting[landmark].pop(0)) for landmark in in_turn if waiting[landmark]]
        assert [photograph.image_id for photograph in photographs.of_label(f"Q{label + 1}")] == expected


def test_inputs_that_do_not_fit(tmp_path: Path, clean: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "gldv2"
    images = write_photographs(folder, {0: 2})
    assert open_photographs(None, clean) is None
    with pytest.raises(ConfigurationError, match="name these in `images`"):
        open_photographs(None, clean, [folder / "train.csv"])
    with pytest.raises(InputError, match="a folder; index its tar files: hgld index-images .*gldv2 -o"):
        open_photographs(folder, clean)
    with pytest.raises(InputError, match="no such file; hgld index-images writes it"):
        open_photographs(tmp_path / "none.parquet", clean)
    with pytest.raises(InputError, match="clean.parquet"):
        open_photographs(clean, clean, [folder / "train.csv"])
    (tmp_path / "others.csv").write_text("id,landmark_id\n0-0,55\n")
    with pytest.raises(InputError, match=r"(?s)no photograph of a landmark .*others.csv\nIndex the tar files"):
        open_photographs(images, clean, [("train", tmp_path / "others.csv")])
    with pytest.raises(ConfigurationError, match="split of these images is unknown.*`image_landmarks`"):
        open_photographs(images, clean, [tmp_path / "others.csv"])
    (folder / "train.csv").rename(tmp_path / "train.csv")
    with pytest.raises(
        ConfigurationError, match="gldv2: has no train.csv or index_image_to_landmark.csv; .*`image_l"
    ):
        open_photographs(images, clean)
    moved = images.rename(tmp_path / "images.parquet")
    with pytest.raises(InputError, match="none of its tar files .train/0.tar. is below"):
        open_photographs(moved, clean)


def test_missing_tar_files_are_named(tmp_path: Path, clean: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "gldv2"
    write_photographs(folder, {0: 2}, split="index")
    images = write_photographs(folder, {1: 2})
    (folder / "index" / "0.tar").unlink()
    with caplog.at_level(logging.WARNING):
        photographs = opened(images, clean)
    assert "no tar file index/0.tar" in caplog.text
    assert photographs.count("Q1")[0] == 4
    with pytest.raises(InputError, match="0.tar"):
        photographs.read("0-0")


MAPPED = (
    Label("Q1", "lake", 1, 1, train=2),
    Label("Q2", "church", 1, 1, train=1),
    Label("Q3", "pond", 1, 1, train=1),
)


@pytest.fixture
def photographs(tmp_path: Path) -> LabelPhotographs:
    """Seven photographs of lakes, one of which is damaged, one of a church, none of a pond."""
    return label_photographs(tmp_path, MAPPED, {0: 4, 1: 3, 1000: 1}, {"1-0": jpeg()[:400]})


def test_labels_take_turns_until_the_limit(photographs: LabelPhotographs, caplog: pytest.LogCaptureFixture) -> None:
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


def test_all_files_that_decide_are_digested(photographs: LabelPhotographs, tmp_path: Path) -> None:
    assert set(photographs.digests) == {"photographs.0", "photographs.1", "photographs.2"}
    (tmp_path / "gldv2" / "train.csv").write_text("id,landmark_id\n0-0,0\n")
    changed = opened(tmp_path / "gldv2" / "images.parquet", tmp_path / "clean.parquet")
    assert changed.digests != photographs.digests
    assert open_photographs(None, tmp_path / "clean.parquet") is None
