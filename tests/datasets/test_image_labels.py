import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld import Hierarchy, load_hierarchy
from hgld.datasets.image_labels import ImageLabels, labels_from_landmarks, read_labels
from hgld.errors import ConfigurationError, InputError
from hgld.io.text_array import TextArray
from hgld.tables.embeddings import Embeddings


def embeddings_of(ids: Sequence[str] | None, n: int = 0) -> Embeddings:
    """Embeddings of these images, or of ``n`` without ids."""
    vectors = torch.zeros(n if ids is None else len(ids), 2)
    return Embeddings(vectors, None if ids is None else TextArray(ids), None, Path("q.npy"))


def tree(landmarks: dict[int, tuple[str, str]], split: str = "train") -> Hierarchy:
    columns = {
        "split": [split] * len(landmarks),
        "landmark_id": list(landmarks),
        "hierarchical_label": [group for group, _ in landmarks.values()],
        "natural_or_human_made": [root for _, root in landmarks.values()],
    }
    return Hierarchy.from_arrow(pa.table(columns))


LANDMARKS = tree({7: ("lake", "natural"), 8: ("sea", "natural"), 9: ("church", "human-made")})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | np.ndarray | pa.Table) -> Path:
        if isinstance(content, str):
            path = tmp_path / "labels.csv"
            path.write_text(content)
        elif isinstance(content, pa.Table):
            path = tmp_path / "labels.parquet"
            pq.write_table(content, path)
        else:
            path = tmp_path / "labels.npy"
            np.save(path, content)
        return path

    return write


def as_lists(image_labels: ImageLabels) -> tuple[list[list[int]], tuple[str, ...], list[bool]]:
    assert image_labels.labels.dtype == np.int64
    return image_labels.labels.tolist(), image_labels.level_names, image_labels.labelled.tolist()


def test_classes_are_numbered_from_0_within_each_level(write: Callable[..., Path]) -> None:
    rows = "id,kind,group\na,oak,tree\nb,rose,shrub\nc,elm,tree\nd,oak,tree\n"
    image_labels = read_labels(write(rows), embeddings_of(["a", "x", "c", "b", "d"]))
    classes, n_classes = image_labels.classes, image_labels.n_classes
    assert n_classes == (3, 2)
    assert classes[1].tolist() == [-1, -1]
    assert classes[0].tolist() == classes[4].tolist()
    assert sorted(set(classes[image_labels.labelled, 0].tolist())) == [0, 1, 2]
    assert classes[0, 1] == classes[2, 1] != classes[3, 1]
    landmarks = read_labels(write(ROWS), embeddings_of(["04", "01", "02"]))
    assert landmarks.classes.tolist() == [[1], [2], [0]]


# Landmarks

ROWS = "id,url,landmark_id\n01,u,9\n02,v,7\n03,w,55\n04,x,8\n"


def test_landmarks_without_a_hierarchy_are_the_only_level(write: Callable[..., Path]) -> None:
    image_labels = read_labels(write(ROWS), embeddings_of(["04", "01", "04"]))
    assert as_lists(image_labels) == ([[8], [9], [8]], ("landmark",), [True] * 3)


def test_landmarks_get_the_levels_of_the_hierarchy(write: Callable[..., Path]) -> None:
    image_labels = read_labels(write(ROWS), embeddings_of(["03", "02", "01"]), LANDMARKS)
    # Rows are sorted by landmark, names by letter: church, lake, sea; human-made, natural.
    assert as_lists(image_labels) == (
        [[-1, -1, -1], [0, 1, 1], [2, 0, 0]],
        LANDMARKS.level_names,
        [False, True, True],
    )


def test_all_table_formats_give_the_same_labels(write: Callable[..., Path], tmp_path: Path) -> None:
    clean = "landmark_id,images\n7,02\n9,01\n55,03\n8,  04 05 \n"
    table = pa.table({"landmark_id": pa.array([9, 7, 55, 8, 8], pa.int32()), "id": ["01", "02", "03", "04", "05"]})
    images = embeddings_of(["05", "03", "02", "01", "04"])
    expected = [[1, 2, 1], [-1, -1, -1], [0, 1, 1], [2, 0, 0], [1, 2, 1]]
    for content in (ROWS + "05,y,8\n", clean, table):
        assert read_labels(write(content), images, LANDMARKS).labels.tolist() == expected
    array = write(np.array([8, 55, 7, 9, 8]))
    assert read_labels(array, embeddings_of(None, 5), LANDMARKS).labels.tolist() == expected


def test_the_paths_of_a_manifest_without_splits_are_no_level(tmp_path: Path) -> None:
    path = tmp_path / "manifest.csv"
    path.write_text("id,path,product,kind\n1,a.jpg,gala,fruit\n2,b.jpg,leek,vegetable\n")
    image_labels = read_labels(path, embeddings_of(["1", "2"]))
    assert image_labels.level_names == ("product", "kind")


def test_split_of_a_manifest_selects_its_images(write: Callable[..., Path]) -> None:
    path = write("path,split,species\na.jpg,train,3\nb.jpg,test,4\n")
    image_labels = read_labels(path, embeddings_of(["a.jpg", "b.jpg"]), split="test")
    assert as_lists(image_labels) == ([[-1], [4]], ("species",), [False, True])
    with pytest.raises(ConfigurationError, match='`split` is "val", but the manifest has test, train'):
        read_labels(path, embeddings_of(["a.jpg"]), split="val")


def test_split_without_a_hierarchy_or_a_manifest_is_refused(write: Callable[..., Path]) -> None:
    """It would change nothing."""
    for path in (write("id,species\na.jpg,3\n"), write(ROWS), write(np.array([[1, 0]]))):
        with pytest.raises(ConfigurationError, match=r'`split` is "test", which selects .*, and there is neither'):
            read_labels(path, embeddings_of(["a.jpg"]), split="test")


def test_split_selects_the_landmark(write: Callable[..., Path]) -> None:
    other = tree({7: ("church", "human-made"), 55: ("sea", "natural")}, "index")
    both = Hierarchy.from_arrow(pa.concat_tables([LANDMARKS.to_arrow(), other.to_arrow()]))
    images, path = embeddings_of(["02", "03"]), write(ROWS)
    assert both.names(1)[read_labels(path, images, both, split="index").labels[0, 2]] == "human-made"
    image_labels = read_labels(path, images, both, split="train")
    assert both.names(1)[image_labels.labels[0, 2]] == "natural"
    assert image_labels.labelled.tolist() == [True, False]
    with pytest.raises(ConfigurationError, match="several splits"):
        read_labels(path, images, both)


def test_labels_from_landmark_ids() -> None:
    image_labels = labels_from_landmarks(np.array([9, 1, 9]), LANDMARKS)
    assert as_lists(image_labels) == ([[2, 0, 0], [-1] * 3, [2, 0, 0]], LANDMARKS.level_names, [True, False, True])
    assert as_lists(labels_from_landmarks(np.array([9, -1]))) == ([[9], [-1]], ("landmark",), [True, False])
    with pytest.raises(InputError, match="none of the 2 landmarks of the images, such as 3, is in the hierarchy"):
        labels_from_landmarks(np.array([3, 3, 4]), LANDMARKS)


def test_repeated_ids_must_agree(write: Callable[..., Path]) -> None:
    path = write(ROWS + "01,u2,9\n")
    assert read_labels(path, embeddings_of(["01"])).labels.tolist() == [[9]]
    path = write(ROWS + "01,u2,9\n02,v,8\n01,u,7\n01,u,8\n")
    with pytest.raises(InputError, match="2 images have two different labels: 02, 01;"):
        read_labels(path, embeddings_of(["03"]))


def test_images_missing_from_the_file_are_unlabelled(write: Callable[..., Path]) -> None:
    images = embeddings_of(["9", "01", "1"])
    for content in (ROWS, "id,species\n01,9\n02,3\n"):
        assert read_labels(write(content), images).labels.tolist() == [[-1], [9], [-1]]
    several = read_labels(write(pa.table({"id": ["01", "02"], "species": [["9", "3"], ["3"]]})), images).labelling
    assert [labels.tolist() for labels in several] == [[], [[9], [3]], []]
    with pytest.raises(
        InputError, match=r"lists none of the 2 images in q\.npy: 9, 1 \(its ids look like 01, 02, 03\)"
    ):
        read_labels(write(ROWS), embeddings_of(["9", "1"]))


def test_manifests_hold_labels(write: Callable[..., Path]) -> None:
    """The columns that say where images are, and their splits, are not levels."""
    path = write("path,split,species,genus\na.jpg,train,3,1\nb.jpg,test,4,1\n")
    image_labels = read_labels(path, embeddings_of(["b.jpg", "a.jpg"]))
    assert (image_labels.labels.tolist(), image_labels.level_names) == ([[4, 1], [3, 1]], ("species", "genus"))


def test_images_without_ids_are_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"q\.npy comes without ids; write them, one a line, to q\.ids\.txt"):
        read_labels(write(ROWS), embeddings_of(None, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Empty CSV file"),
        (
            "landmark_id,name\n1,a\n",
            "expected the columns landmark_id and id, or landmark_id and images; found landmark_id, name",
        ),
        ("id,landmark_id\n01,\n", r"landmark_id is missing in 1 of 1 rows: rows 0"),
        ("id,landmark_id\n01,1\n,2\n", "id is missing in 1 of 2 rows: rows 1"),
        ("id,landmark_id\n01,lake\n", "Row #2: .* invalid value 'lake'"),
        ("id,landmark_id\n01,-2\n", r"1 of 1 images have labels below 0, first row 0: \[-2\]"),
        ("id,landmark_id\n01,-1\n", "no image has a label: all are -1"),
        ("landmark_id,images\n1,\n", "images is missing in 1 of 1 rows"),
        ("id\n01\n", "the columns are id; expected id and landmark_id, or id and a column for each level"),
        ("name,genus\n01,a\n", "the columns are name, genus; expected"),
        ("id,genus,genus\n01,a,b\n", "the columns are id, genus, genus; expected"),
        ("id,species,genus\n01,a,\n", "genus is missing in 1 of 1 rows"),
        (
            "id,species,genus\n01,a, \n",
            "genus is missing in 1 of 1 rows; fill it in, or remove the rows: row 1 .01, a",
        ),
        ("id,species,genus\n01,a,A\n02,a,B\n", 'species "a" has several genus: "A" in image 01, "B" in image 02'),
    ],
)
def test_malformed_tables_are_refused(write: Callable[..., Path], text: str, message: str) -> None:
    path = write(text)
    with pytest.raises(InputError, match=message) as caught:
        read_labels(path, embeddings_of(["01"]))
    assert str(caught.value).startswith(f"{path}: ")


def test_washington_labels(shared: Path) -> None:
    train = pd.read_csv(shared / "wa_gldv2" / "train.csv")
    ids = train["id"].sample(1000, random_state=0).tolist()
    landmarks = train.set_index("id")["landmark_id"]
    # Groups for those with even ids only.
    even = sorted({number for number in landmarks if number % 2 == 0})
    hierarchy = tree({number: (f"group {number % 10}", f"root {number % 10 > 4}") for number in even})
    image_labels = read_labels(shared / "wa_gldv2" / "train.csv", embeddings_of(ids), hierarchy)
    assert image_labels.labelled.tolist() == [landmarks[image] % 2 == 0 for image in ids]
    for image, labels, labelled in zip(ids, image_labels.labels, image_labels.labelled, strict=True):
        number = landmarks[image]
        expected = hierarchy.labels_of([number])[0] if labelled else [-1, -1, -1]
        assert labels.tolist() == list(expected)
    by_landmark = read_labels(shared / "wa_gldv2" / "train_clean.csv", embeddings_of(ids), hierarchy)
    assert np.array_equal(by_landmark.labels, image_labels.labels)


def test_released_index_labels(shared: Path) -> None:
    released = shared / "released"
    hierarchy = load_hierarchy(released / "index_label_to_hierarchical.csv")
    table = pd.read_csv(released / "index_image_to_landmark_part.csv")
    image_labels = read_labels(
        released / "index_image_to_landmark_part.csv", embeddings_of(table["id"].tolist()), hierarchy
    )
    assert 0 < image_labels.labelled.sum() < len(table)
    assert np.array_equal(
        hierarchy.landmark_ids[image_labels.labels[image_labels.labelled, 0]],
        table["landmark_id"][image_labels.labelled],
    )
    assert not np.isin(table["landmark_id"][~image_labels.labelled], hierarchy.landmark_ids).any()


@pytest.mark.slow
def test_a_million_images_are_read_in_seconds(tmp_path: Path) -> None:
    n = 1_000_000
    ids = pa.array([f"{(number * 2654435761) % 2**64:016x}" for number in range(n)])
    pq.write_table(pa.table({"id": ids, "landmark_id": np.arange(n) // 20}), tmp_path / "train.parquet")
    wanted = embeddings_of(ids.take(pa.array(np.arange(0, n, 5))).to_numpy(zero_copy_only=False).astype(np.str_))
    began = time.process_time()
    image_labels = read_labels(tmp_path / "train.parquet", wanted)
    assert time.process_time() - began < 8  # 0.9 s
    assert np.array_equal(image_labels.labels[:, 0], np.arange(0, n, 5) // 20)


# Levels in columns


def test_a_name_gets_the_same_integer_in_any_file(write: Callable[..., Path]) -> None:
    path = write("id,species,family\n01,owl,bird\n02,carp,fish\n03,tern, bird\n")
    (tern, owl), names, labelled = as_lists(read_labels(path, embeddings_of(["03", "01"])))
    assert names == ("species", "family")
    assert labelled == [True] * 2
    assert tern[0] != owl[0]
    assert tern[1] == owl[1]
    # So queries and gallery can have files of their own.
    other = write("id,species,family\n04,tern,bird\n05,bird,fish\n")
    fourth, fifth = read_labels(other, embeddings_of(["04", "05"])).labels.tolist()
    assert fourth == tern
    assert fifth[1] not in (tern[1], fifth[0])


def test_integer_labels_are_kept(write: Callable[..., Path]) -> None:
    path = write("id,class,super_class\n01,500,3\n02,12,0\n")
    assert read_labels(path, embeddings_of(["01", "02"])).labels.tolist() == [[500, 3], [12, 0]]
    table = pa.table({"id": [1, 2], "class": pa.array([500, 12], pa.int16()), "super_class": pa.array(["b", "a"])})
    table = table.set_column(2, "super_class", table["super_class"].dictionary_encode())
    (five_hundred, b), (twelve, a) = read_labels(write(table), embeddings_of(["1", "2"])).labels.tolist()
    assert (five_hundred, twelve) == (500, 12)
    assert a != b
    # Texts that only look like numbers are not.
    path = write("id,class\n01,1\n02,01\n")
    (integer,), (zero_padded,) = read_labels(path, embeddings_of(["01", "02"])).labels.tolist()
    assert len({integer, zero_padded, 1}) == 3


@given(
    st.lists(st.tuples(st.integers(0, 30), st.text("ab1 é", min_size=1, max_size=3)), min_size=1, max_size=30),
    st.randoms(),
)
def test_images_share_a_label_if_they_share_its_name(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]], random: object
) -> None:
    # A species is numbered within its genus, so the two are nested.
    genus = [name.strip() or "none" for _, name in rows]
    species = [f"{name}/{number}" for name, (number, _) in zip(genus, rows, strict=True)]
    ids = [str(number) for number in range(len(rows))]
    path = tmp_path_factory.mktemp("labels") / "labels.csv"
    pd.DataFrame({"id": ids, "species": species, "genus": genus}).to_csv(path, index=False)
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    labels = read_labels(path, embeddings_of([ids[row] for row in order])).labels
    for names, column in ((species, labels[:, 0]), (genus, labels[:, 1])):
        for image, label in zip(order, column, strict=True):
            for other, another in zip(order, column, strict=True):
                assert (names[image] == names[other]) == (label == another)


def test_hierarchy_is_refused_if_the_file_has_levels(write: Callable[..., Path]) -> None:
    for content in ("id,species\n01,a\n", np.zeros((1, 2), np.int64)):
        with pytest.raises(ConfigurationError, match="has its own levels"):
            read_labels(write(content), embeddings_of(["01"]), LANDMARKS)


def test_levels_in_the_wrong_order_give_a_short_message(write: Callable[..., Path]) -> None:
    rows = "".join(f"{n},{'ab'[n % 2]},{n}\n" for n in range(1000))
    with pytest.raises(InputError, match='family "a" has several species: "0" in image 0') as caught:
        read_labels(write("id,family,species\n" + rows), embeddings_of(["1"]))
    assert len(str(caught.value)) < 500


# Arrays


def test_label_arrays_are_kept(write: Callable[..., Path]) -> None:
    array = np.array([[5, 1, 0], [-1, -1, -1], [6, 1, 0]], np.int32)
    image_labels = read_labels(write(array), embeddings_of(None, 3))
    assert as_lists(image_labels) == (array.tolist(), ("level 3", "level 2", "level 1"), [True, False, True])
    assert as_lists(read_labels(write(array[:, 0]), embeddings_of(["a", "b", "c"])))[:2] == (
        [[5], [-1], [6]],
        ("landmark",),
    )


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2), np.int64), r"2 rows of labels, but q\.npy has 3 embeddings"),
        (np.zeros((3, 2)), r"float64 of shape \(3, 2\); expected labels as integers"),
        (np.zeros((3, 2), bool), "bool of shape"),
        (np.zeros((3, 0), np.int64), r"int64 of shape \(3, 0\)"),
        (np.zeros((3, 1, 1), np.int64), r"int64 of shape \(3, 1, 1\)"),
        (np.array(["a", "b", "c"], object), "not a whole .npy file"),
        (np.array([[1, 0], [1, 0], [-1, 0]]), r"1 of 3 images have labels below 0, first row 2: \[-1, 0\]"),
        (np.full((3, 2), -1), "no image has a label: all are -1"),
        (np.array([[4, 0], [5, 0], [4, 1]]), 'level 2 "4" has several level 1: "0" in row 0, "1" in row 2'),
    ],
)
def test_malformed_arrays_are_refused(write: Callable[..., Path], array: np.ndarray, message: str) -> None:
    path = write(array)
    with pytest.raises(InputError, match=message) as caught:
        read_labels(path, embeddings_of(None, 3))
    assert str(caught.value).startswith(f"{path}: ")


def test_unknown_suffixes_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'the suffix is "\.txt"; labels are in \.npy, \.csv or \.parquet'):
        read_labels(tmp_path / "labels.txt", embeddings_of(["01"]))
    for suffix in (".npy", ".csv", ".parquet"):
        with pytest.raises(InputError, match="no such file; expected the labels"):
            read_labels(tmp_path / f"labels{suffix}", embeddings_of(["01"]))
