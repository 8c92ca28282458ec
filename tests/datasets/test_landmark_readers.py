"""Readers of GLDv2, and of the ground truth of ROxford5k and RParis6k."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.cli.images import format_manifest
from hgld.datasets.manifest import read_manifest
from hgld.datasets.manifest_files import make_manifest
from hgld.datasets.readers.landmarks import Gldv2
from hgld.datasets.readers.revisited import SETTINGS, read_ground_truth
from hgld.datasets.splits import open_set_split
from hgld.errors import ConfigurationError, InputError
from hgld.gldv2.image_index import index_images
from tests.assertions import not_none
from tests.commands import run_hgld
from tests.datasets.pictures import assert_readable, picture, save_pictures
from tests.gldv2.test_image_index import write_tar

IDS = [f"{n:016x}" for n in range(0xABC000, 0xABC00C)]
#: Landmark 10 has six images, 20 four, 30 two.
LANDMARKS = [10] * 6 + [20] * 4 + [30] * 2
HIERARCHY = (
    "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\n"
    "10,a,lake,lake,natural\n20,b,hut,house,human-made\n40,c,hut,house,human-made\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return two indexed tar files in GLDv2's layout, without one image of landmark 20, with the CSV files."""
    root = tmp_path / "gldv2"
    for shard, ids in enumerate((IDS[:5], IDS[5:9] + IDS[10:])):
        names = {f"{name[0]}/{name[1]}/{name[2]}/{name}.jpg": picture(name, file_format="JPEG") for name in ids}
        write_tar(root / "train" / f"images_{shard:03}.tar", names)
    index_images(root, tmp_path / "images.parquet")
    rows = [f"{name},http://x/{name},{landmark}\n" for name, landmark in zip(IDS, LANDMARKS, strict=True)]
    (root / "train.csv").write_text("id,url,landmark_id\n" + "".join(rows))
    (root / "train_clean.csv").write_text(
        f"landmark_id,images\n10,{' '.join(IDS[:6])}\n20,{' '.join(IDS[6:10])}\n30,{' '.join(IDS[10:])}\n"
    )
    (tmp_path / "train_label_to_hierarchical.csv").write_text(HIERARCHY)
    return root


@pytest.fixture
def reader(folder: Path) -> Gldv2:
    return Gldv2(
        folder / "train.csv", folder.parent / "images.parquet", folder.parent / "train_label_to_hierarchical.csv"
    )


@pytest.mark.parametrize("labels", ["train.csv", "train_clean.csv"])
def test_images_in_tar_files(folder: Path, reader: Gldv2, labels: str, tmp_path: Path) -> None:
    summary = not_none(make_manifest(replace(reader, labels=folder / labels), folder, tmp_path / "m.parquet"))
    assert format_manifest(summary) == (
        "9 images (9 train) with labels at 3 levels (2 landmark, 2 hierarchical_label, 2 natural_or_human_made)\n"
        "excluded: 2 images of landmarks missing from the hierarchy\n"
        "excluded: 1 images missing from the index of images"
    )
    manifest = read_manifest(tmp_path / "m.parquet")
    assert manifest.ids.tolist() == IDS[:9]
    assert manifest.level_names == ("landmark", "hierarchical_label", "natural_or_human_made")
    assert manifest.class_names == (("10", "20"), ("house", "lake"), ("human-made", "natural"))
    assert manifest.labels.tolist() == [[0, 1, 1]] * 6 + [[1, 0, 0]] * 3
    assert manifest.paths[0] == "train/images_000.tar"
    assert_readable(manifest, folder)


def test_extracted_images_without_a_hierarchy(folder: Path, tmp_path: Path) -> None:
    manifest = Gldv2(folder / "train.csv").read(folder).manifest
    assert manifest.paths[0] == f"0/0/0/{IDS[0]}.jpg"
    assert manifest.offsets.tolist() == [-1] * 12
    assert manifest.level_names == ("landmark",)
    assert manifest.class_names == (("10", "20", "30"),)
    save_pictures(folder, *manifest.paths)
    assert_readable(manifest, folder)


def test_landmarks_with_few_images_are_excluded(folder: Path, reader: Gldv2) -> None:
    result = replace(reader, min_images=4).read(folder)
    assert result.manifest.class_names[0] == ("10",)
    assert result.excluded["of landmarks with fewer than 4 images"] == 3
    with pytest.raises(InputError, match="no landmark has 7 images, the largest has 6"):
        replace(reader, min_images=7).read(folder)


def test_bad_settings_and_files_are_refused(folder: Path, reader: Gldv2, tmp_path: Path) -> None:
    for wrong in ({"min_images": 0}, {"test_share": 0.0}, {"test_share": 1.0}):
        with pytest.raises(ConfigurationError):
            replace(reader, **wrong)
    (tmp_path / "train_x.csv").write_text(HIERARCHY.replace("10,", "11,").replace("20,", "21,"))
    with pytest.raises(
        InputError, match=r"none of its 12 images remains; .*'of landmarks missing from the hierarchy': 12"
    ):
        replace(reader, hierarchy=tmp_path / "train_x.csv").read(folder)
    (tmp_path / "twice.csv").write_text(f"id,landmark_id\n{IDS[0]},10\n{IDS[1]},10\n{IDS[0]},20\n")
    with pytest.raises(
        InputError, match=rf"(?s)twice.csv: .*image 3 \({IDS[0]}\): the id is already used by image 1"
    ):
        replace(reader, labels=tmp_path / "twice.csv").read(folder)
    (tmp_path / "none.csv").write_text("id,name\na,b\n")
    with pytest.raises(InputError, match="none.csv: expected the columns landmark_id and id"):
        replace(reader, labels=tmp_path / "none.csv").read(folder)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.floats(0.05, 0.95),
    st.integers(0, 2**32),
    st.integers(1, 3),
)
def test_open_set_split_divides_the_classes_of_each_parent(
    sizes: list[int], share: float, seed: int, images: int
) -> None:
    above = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.repeat(np.stack([np.arange(len(above)), above], axis=1), images, axis=0)
    test = open_set_split(labels, share, seed)
    assert np.array_equal(test, open_set_split(labels, share, seed))
    by_class = test.reshape(-1, images)
    assert (by_class == by_class[:, :1]).all(), "all images of a class are in one split"
    for label, size in enumerate(sizes):
        assert abs(by_class[above == label, 0].sum() - share * size) < 1
    assert np.array_equal(test, open_set_split(np.flip(labels, axis=0), share, seed)[::-1]), (
        "the order of rows does not matter"
    )


def test_open_set_split_has_the_expected_mean_share_and_depends_on_the_seed() -> None:
    labels = np.stack([np.arange(600), np.arange(600)], axis=1)  # every class alone below its label
    shares = [open_set_split(labels, 0.3, seed).mean() for seed in range(20)]
    assert abs(np.mean(shares) - 0.3) < 0.02
    assert len(set(shares)) > 1
    assert open_set_split(labels[:, :1], 0.5, 0).sum() == 300


@pytest.mark.slow
def test_washington_with_the_command(shared: Path, tmp_path: Path) -> None:
    root, images, out = shared / "wa_gldv2", tmp_path / "images.parquet", tmp_path / "m.parquet"
    run_hgld("index-images", root, "-o", images)
    command = ["manifest", "gldv2", root, "--images", images, "--labels", root / "train.csv", "-o", out]
    split = ["--min-images", "4", "--test-share", "0.5", "--seed", "3"]
    run_hgld(*command, *split)
    manifest = read_manifest(out)
    train, test = manifest.select_split("train"), manifest.select_split("test")
    assert not set(train.class_names[0]) & set(test.class_names[0])
    assert abs(len(train.class_names[0]) - len(test.class_names[0])) <= 1
    assert np.bincount(manifest.labels[:, 0]).min() == 4
    part = manifest.take(np.arange(0, len(manifest), 100))
    assert_readable(part, root)
    assert run_hgld(*command, *split).output == f"{out}: up to date\n"
    assert "error: --test-share is 2.0" in run_hgld(*command, "--test-share", "2", code=1).stderr


BOX = [1.5, 2.0, 30.0, 40.25]


def ground_truth(as_list: Callable[[list[int]], Any] = list, box: Any = BOX) -> dict[str, Any]:
    kinds = [{"easy": [4, 0], "hard": [2], "junk": [1]}, {"easy": [], "hard": [3, 1], "junk": []}]
    return {
        "imlist": ["a", "b", "c", "d", "e"],
        "qimlist": ["all_souls_1", "all_souls_2"],
        "gnd": [{**{kind: as_list(x) for kind, x in entry.items()}, "bbx": box} for entry in kinds],
    }


def write(tmp_path: Path, data: Any, protocol: int = 2) -> Path:
    return write_bytes(tmp_path, pickle.dumps(data, protocol))


def write_bytes(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", [None, "<i8", ">i4", "uint16"])
def test_reads_lists_and_arrays_of_every_protocol(tmp_path: Path, protocol: int, dtype: str | None) -> None:
    contents = ground_truth() if dtype is None else ground_truth(lambda x: np.array(x, dtype), np.array(BOX))
    truth = read_ground_truth(write(tmp_path, contents, protocol))
    assert truth.gallery_names == ("a", "b", "c", "d", "e")
    assert truth.query_names == ("all_souls_1", "all_souls_2")
    assert truth.boxes.tolist() == [BOX, BOX]
    assert [sorted(truth.easy.row(n).tolist()) for n in (0, 1)] == [[0, 4], []]
    assert truth.hard.columns.tolist() == [2, 1, 3]
    assert truth.easy.columns.dtype == np.int64


def test_positives_and_ignored_images_of_each_setting(tmp_path: Path) -> None:
    truth = read_ground_truth(write(tmp_path, ground_truth()))
    actual = {
        setting: [
            [rows.row(n).tolist() for n in (0, 1)] for rows in (truth.positives(setting), truth.ignored(setting))
        ]
        for setting in SETTINGS
    }
    assert actual == {
        "easy": [[[0, 4], []], [[1, 2], [1, 3]]],
        "medium": [[[0, 2, 4], [1, 3]], [[1], []]],
        "hard": [[[2], [1, 3]], [[0, 1, 4], []]],
    }
    with pytest.raises(ConfigurationError, match='no setting "Medium"; expected one of easy, medium, hard'):
        truth.positives("Medium")


def entry(**changes: Any) -> dict[str, Any]:
    contents = ground_truth()
    contents["gnd"][1] |= changes
    return contents


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([1], "expected a pickle of a dict with imlist, qimlist and gnd"),
        ({"imlist": ["a"]}, "expected a pickle of a dict with imlist, qimlist and gnd, .*KeyError: 'qimlist'"),
        (ground_truth() | {"gnd": []}, "expected a pickle of a dict .*ValueError"),
        (ground_truth() | {"gnd": 7}, "expected a pickle of a dict .*TypeError"),
        (ground_truth() | {"gnd": [{}, 7]}, "expected a pickle of a dict .*KeyError: 'bbx'"),
        (entry(easy=[5]), "easy names the gallery position 5 for query 1; expected 0 to 4"),
        (entry(easy=[-1]), "easy names the gallery position -1"),
        (entry(easy=[2**70]), "values of the type object; expected positions"),
        (entry(easy=[True]), "values of the type bool"),
        (entry(easy=[1.0]), "values of the type float64"),
        (entry(easy=["1"]), "values of the type <U1"),
        (entry(easy=1), "expected a pickle of a dict"),
        (entry(easy=[3]), "positions of the query all_souls_2 are repeated in easy, hard, junk"),
        (entry(junk=[0, 0]), "positions of the query all_souls_2 are repeated"),
        (entry(bbx=[1.0, 2.0, 3.0]), "expected a pickle of a dict .*ValueError"),
        (entry(bbx=[1.0, 2.0, 3.0, float("nan")]), "query all_souls_2: bbx is .*nan.*; expected left, top"),
    ],
)  # fmt: skip
def test_malformed_ground_truth_is_refused(tmp_path: Path, contents: Any, message: str) -> None:
    path = write(tmp_path, contents)
    with pytest.raises(InputError, match=message) as caught:
        read_ground_truth(path)
    assert str(path) in str(caught.value)
