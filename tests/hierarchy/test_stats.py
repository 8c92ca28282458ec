import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.cli.hierarchy import format_stats
from hgld.errors import ConfigurationError, InputError
from hgld.figures.groups import GroupCount
from hgld.hierarchy.stats import count_images, imbalance, stats_file
from tests.commands import run_hgld

HEADER = "landmark_id,hierarchical_label,natural_or_human_made\n"


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """Both splits, with landmark ids that occur in both."""
    folder = tmp_path / "official"
    folder.mkdir()
    (folder / "train_label_to_hierarchical.csv").write_text(HEADER + "1,lake,natural\n2,church,human-made\n")
    (folder / "index_label_to_hierarchical.csv").write_text(HEADER + "1,church,human-made\n3,church,human-made\n")
    return folder


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_landmarks_and_images_are_counted_by_split_root_and_group(official: Path, tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", "id,url,landmark_id\na,u,1\nb,u,1\nc,u,2\nd,u,9\n")
    index = write(tmp_path / "index_image_to_landmark.csv", "id,landmark_id\ne,1\n")
    result = stats_file(official, image_landmarks=[train, index])
    assert result.landmarks == {"train": {"human-made": 1, "natural": 1}, "index": {"human-made": 2, "natural": 0}}
    assert result.images == {"train": {"human-made": 1, "natural": 2}, "index": {"human-made": 1, "natural": 0}}
    assert result.images_elsewhere == 1
    assert result.groups == (GroupCount("church", "human-made", 3, 2), GroupCount("lake", "natural", 1, 2))
    assert json.loads(result.to_json())["groups"][1]["images"] == 2
    options = ("--image-landmarks", train, "--image-landmarks", f"index={index}")
    assert run_hgld("stats", official, *options, "--json").stdout.strip() == result.to_json()
    assert format_stats(result, "landmarks").splitlines()[:8] == [
        "           split  natural  human-made  all",
        "landmarks  train        1           1    2",
        "landmarks  index        0           2    2",
        "landmarks  all          1           3    4",
        "images     train        2           1    3",
        "images     index        0           1    1",
        "images     all          2           2    4",
        "groups                  1           1    2",
    ]
    of_train = stats_file(official / "train_label_to_hierarchical.csv")
    assert "all" not in format_stats(of_train, "landmarks").splitlines()[2]


def test_image_list_formats_give_equal_counts(tmp_path: Path) -> None:
    short = write(tmp_path / "train_clean.csv", "landmark_id,images\n7,a b c\n9,d\n")
    long = write(tmp_path / "train.csv", "id,landmark_id\na,7\nd,9\nb,7\nc,7\n")
    assert count_images(short) == count_images(long) == {7: 3, 9: 1}
    pq.write_table(pa.table({"id": list("abcd"), "landmark_id": [7, 7, 9, 7]}), tmp_path / "images.parquet")
    assert count_images(tmp_path / "images.parquet") == {7: 3, 9: 1}


def test_image_counts_are_none_without_images(official: Path) -> None:
    result = stats_file(official)
    assert (result.images, result.groups[0].images) == ({}, None)
    assert list(result.imbalance) == ["landmarks"]


def test_split_of_images_is_inferred_or_required(official: Path, tmp_path: Path) -> None:
    images = write(tmp_path / "pictures.csv", "id,landmark_id\na,1\n")
    with pytest.raises(ConfigurationError, match="the split of these images is unknown"):
        stats_file(official, image_landmarks=[images])
    assert stats_file(official, image_landmarks=[("index", images)]).images == {
        "index": {"human-made": 1, "natural": 0}
    }
    only_index = official / "index_label_to_hierarchical.csv"
    assert stats_file(only_index, image_landmarks=[images]).images == {"index": {"human-made": 1}}
    with pytest.raises(ConfigurationError, match="landmarks of index only"):
        stats_file(only_index, image_landmarks=[("train", images)])
    with pytest.raises(ConfigurationError, match="were given already"):
        stats_file(official, image_landmarks=[("index", images), ("index", images)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as a table"),
        ("id,name\na,1\n", "expected the columns landmark_id and id, or landmark_id and images; found id, name"),
        ("id,landmark_id\na,one\n", "CSV conversion error to int64"),
        ("id,landmark_id\na,\nb,2\n", "landmark_id is missing in 1 of 2 rows"),
        ("id,landmark_id\na,1,2\n", "cannot be read as a table"),
    ],
)
def test_invalid_image_lists_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        count_images(write(tmp_path / "train.csv", text))


def test_missing_image_list(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        count_images(tmp_path / "train.csv")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any))
def test_imbalance_matches_definition(counts: list[int]) -> None:
    names = [f"group {n}" for n in range(len(counts))]
    result = imbalance(names, np.array(counts))
    differences = [abs(one - other) for one in counts for other in counts]
    mean = sum(counts) / len(counts)
    assert result.gini == pytest.approx(sum(differences) / len(differences) / 2 / mean)
    shares = [count / sum(counts) for count in counts if count]
    assert result.effective_groups == pytest.approx(math.prod(share**-share for share in shares))
    assert result.largest_share == max(counts) / sum(counts)
    assert counts[names.index(result.largest)] == max(counts)
    median = float(pd.Series(counts).median())
    assert result.ratio_to_median == (pytest.approx(max(counts) / median) if median else None)


def test_stats_command(official: Path, tmp_path: Path) -> None:
    assert "church              3  75.00%" in run_hgld("stats", official, "-o", tmp_path / "stats.png").output
    for name in ("stats.png", "stats.tree.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_stats_of_released_labels(shared: Path) -> None:
    result = stats_file(
        shared / "released", image_landmarks=[shared / "released" / "index_image_to_landmark_part.csv"]
    )
    assert result.landmarks == {"index": {"human-made": 42199, "natural": 13330}}
    assert len(result.groups) == 78
    assert result.groups[0] == GroupCount("church", "human-made", 12871, 9753)
    assert sum(result.images["index"].values()) + result.images_elsewhere == 68482


@pytest.mark.slow
def test_pictures_of_released_labels_name_every_group(shared: Path, tmp_path: Path) -> None:
    result = stats_file(shared / "released", picture=tmp_path / "stats.svg")
    # Text is drawn as outlines; matplotlib names each in a comment.
    drawn = (tmp_path / "stats.svg").read_text()
    for group in result.groups:
        assert f"<!-- {group.group} -->" in drawn
    assert "<!-- natural: 13,330 landmarks, 18 groups -->" in drawn
    assert "<!-- human-made  42,199 landmarks, 60 groups -->" in (tmp_path / "stats.tree.svg").read_text()
