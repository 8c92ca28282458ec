from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgld.datasets.image_dataset import read_image_index
from hgld.datasets.label_columns import encode_labels
from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
from hgld.datasets.readers.registry import READERS
from hgld.errors import ConfigurationError, InputError
from hgld.gldv2.image_index import index_images
from hgld.io.docstrings import described_parameters
from hgld.tables import MANIFEST, Provenance, read_provenance, read_table, write_table
from tests.child_processes import run_script
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_of, manifest_table
from tests.gldv2.test_image_index import write_tar

PROVENANCE = Provenance("manifest")
PATHS = ["b.jpg", "a.jpg", "c.jpg", "d.jpg"]
LEVELS = {"landmark": ["10", "9", "9", "7"], "kind": ["lake", "hut", "hut", "lake"]}


@pytest.fixture
def manifest() -> Manifest:
    return manifest_of(PATHS, LEVELS, splits=["train", "test", "test", "train"])


def test_second_parent_is_found_among_more_pairs_than_int32_counts() -> None:
    names = [*map(str, range(50_000))]
    levels = {"fine": [*names, "9"], "coarse": [*names, "99"]}
    columns = {name: pa.chunked_array([texts]) for name, texts in levels.items()}
    with pytest.raises(InputError, match=':\n  fine "9" has several coarse: "9" in row 9, "99" in row 50000$'):
        encode_labels(columns, "row {}".format)


def test_manifest_round_trip(tmp_path: Path, manifest: Manifest) -> None:
    path = tmp_path / "manifest.parquet"
    write_manifest(path, manifest, PROVENANCE)
    read = read_manifest(path)
    assert read_provenance(path) == PROVENANCE
    assert read.ids.tolist() == read.paths.tolist() == PATHS
    assert read.splits.tolist() == ["train", "test", "test", "train"]
    assert read.offsets.tolist() == read.sizes.tolist() == [-1] * 4
    assert read.labels.tolist() == [[0, 1], [2, 0], [2, 0], [1, 1]]
    assert read.level_names == ("landmark", "kind")
    assert read.class_names == (("10", "7", "9"), ("hut", "lake"))
    assert read.n_classes == (3, 2)
    assert repr(read) == "Manifest(4 images, 3 landmark, 2 kind)"
    assert pq.read_schema(path).names == ["id", "path", "offset", "size", "split", "landmark", "kind"]


def test_tar_file_locations_round_trip(tmp_path: Path) -> None:
    table = manifest_table(
        ["a", "b"], {"landmark": ["1", "2"]}, path=["t.tar", "b.jpg"], offset=[512, None], size=[0, None]
    )
    write_manifest(tmp_path / "m.parquet", Manifest.from_arrow(table), PROVENANCE)
    read = read_manifest(tmp_path / "m.parquet")
    assert (read.offsets.tolist(), read.sizes.tolist()) == ([512, -1], [0, -1])
    assert read_table(tmp_path / "m.parquet", MANIFEST).to_pylist() == table.to_pylist()


def test_boxes_round_trip(tmp_path: Path) -> None:
    table = manifest_table(PATHS, LEVELS)
    boxes = [None, [1.0, 2.5, 30.0, 40.0], None, [0.0, 0.0, 1.0, 1.0]]
    table = table.add_column(5, "box", pa.array(boxes, MANIFEST.optional.field("box").type))
    write_manifest(tmp_path / "m.parquet", Manifest.from_arrow(table), PROVENANCE)
    assert read_table(tmp_path / "m.parquet", MANIFEST).to_pylist() == table.to_pylist()
    read = read_manifest(tmp_path / "m.parquet")
    assert read.level_names == ("landmark", "kind")
    assert [read.box(row) for row in range(4)] == [None, (1.0, 2.5, 30.0, 40.0), None, (0.0, 0.0, 1.0, 1.0)]
    assert [read.take(np.array([3, 0])).box(row) for row in (0, 1)] == [(0.0, 0.0, 1.0, 1.0), None]
    empty = pa.array([[3.0, 2.0, 3.0, 4.0], *boxes[1:]], MANIFEST.optional.field("box").type)
    with pytest.raises(InputError, match=r"1 boxes are empty; .*:\n  row 0 \(b.jpg\): \[3.0, 2.0, 3.0, 4.0\]"):
        Manifest.from_arrow(table.set_column(5, "box", empty))
    (tmp_path / "m.csv").write_text("path,split,box,kind\na.jpg,train,1 2 3 4,hut\n")
    with pytest.raises(InputError, match="has the column box, which is read only from manifests that hgld manifest"):
        read_manifest(tmp_path / "m.csv")


def test_selected_rows_are_renumbered(manifest: Manifest) -> None:
    part = manifest.select_split("test")
    assert part.ids.tolist() == ["a.jpg", "c.jpg"]
    assert part.labels.tolist() == [[0, 0], [0, 0]]
    assert part.class_names == (("9",), ("hut",))
    assert manifest.split_names == ("test", "train")
    backwards = manifest.take(np.array([3, 0]))
    assert backwards.ids.tolist() == ["d.jpg", "b.jpg"]
    assert backwards.labels.tolist() == [[1, 0], [0, 0]]
    assert backwards.class_names == (("10", "7"), ("lake",))
    with pytest.raises(ConfigurationError, match='no split "query" among the images; expected test or train'):
        manifest.select_split("query")


def test_manifest_is_immutable(manifest: Manifest) -> None:
    with pytest.raises(ValueError, match="read-only"):
        manifest.labels[0, 0] = 5


@pytest.mark.parametrize(
    ("levels", "changes", "message"),
    [
        (
            LEVELS | {"kind": ["lake", "hut", "pond", "lake"]},
            {},
            r'landmark "9" has several kind: "hut" in row 1 \(a.jpg\)',
        ),
        (LEVELS | {"kind": ["lake", "hut", "hut", " "]}, {}, r"kind is empty in 1 rows:\n  row 3 \(d.jpg\)"),
        (LEVELS | {"kind": ["lake", "hut", "hut", "-1"]}, {}, "kind has the label -1, which stands for unlabelled"),
        ({}, {}, "expected a column for each level after split"),
        (LEVELS, {"id": ["a", "b", "a", "a"]}, r"row 2 \(a\): the id is already used by row 0 \(a\)\n  row 3"),
        (LEVELS, {"path": ["a", "b", "/c", "d"]}, r"row 2 \(c.jpg\): the path is /c; expected one relative"),
        (
            LEVELS,
            {"offset": [None, 512, None, None]},
            r"row 1 \(a.jpg\): offset 512, size None; expected both or none",
        ),
    ],
)
def test_bad_rows_are_reported(levels: dict[str, list[str]], changes: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        manifest_of(PATHS, levels, None, **changes)


def test_empty_manifest_is_refused() -> None:
    with pytest.raises(InputError, match="no images"):
        manifest_of([], {"landmark": []})


def test_missing_files_and_malformed_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    with pytest.raises(InputError, match="no such file"):
        read_manifest(path)
    table = manifest_table(PATHS, {"landmark": ["1", "2", "3", "4"], "kind": ["x", "y", "z", None]})
    with pytest.raises(InputError, match='"kind" is null in 1 of 4 rows'):
        write_table(path, MANIFEST, table, PROVENANCE)
    write_table(path, MANIFEST, table.drop_columns(["landmark", "kind"]), PROVENANCE)
    with pytest.raises(
        InputError, match=r"m\.parquet: the columns are id, path, offset, size, split; expected a column"
    ):
        read_manifest(path)


def test_image_index_is_a_manifest_without_levels(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"x/b.jpg": b"123", "x/a.jpg": b"4567"})
    index_images(tmp_path, tmp_path / "images.parquet")
    index = read_image_index(tmp_path / "images.parquet")
    assert index.ids.tolist() == ["a", "b"]
    assert index.sizes.tolist() == [4, 3]
    assert index.labels.shape == (2, 0)
    assert index.take(np.array([1])).labels.shape == (1, 0)
    assert index.n_classes == ()


@pytest.mark.parametrize("name", READERS)
def test_every_setting_of_a_reader_is_a_documented_option(name: str) -> None:
    reader: Any = READERS[name].load()
    names = [field.name for field in fields(reader)]
    assert names == [field.name for field in fields(READERS[name].settings)]
    assert sorted(described_parameters(READERS[name].settings)) == sorted(names)
    result = run_hgld("manifest", name, "--help", env={"COLUMNS": "200", "TERM": "dumb"})
    argument = READERS[name].argument
    assert f"Example: hgld manifest {name} {f'{argument.upper()} --images ' * bool(argument)}DIR" in result.output
    for setting in names:
        assert (setting.upper() if setting == argument else f"--{setting.replace('_', '-')} ") in result.output


def test_listing_the_readers_imports_none_of_them() -> None:
    script = (
        "import sys\nfrom hgld.cli import app\n"
        "try: app(['manifest', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(', '.join({'torch', 'pyarrow', 'numpy'} & set(sys.modules)) or 0)\n"
    )
    output = run_script(script)
    assert all(name in output for name in READERS)


def test_settings_reach_the_reader_and_errors_name_options(tmp_path: Path) -> None:
    (tmp_path / "train_test_split").mkdir()
    for name in ("train_list", "test_list_1600"):
        (tmp_path / "train_test_split" / f"{name}.txt").write_text(f"{name} 1\n")
    command = ["manifest", "vehicle-id", str(tmp_path), "-o", str(tmp_path / "m.parquet")]
    result = run_hgld(*command, "--test-list", "1600")
    assert result.output.startswith("2 images (1 test, 1 train) with labels at 1 levels (1 vehicle)\n")
    wrong = run_hgld("manifest", "dyml", tmp_path, "--part", "fine", "-o", tmp_path / "d.parquet", code=1)
    assert 'for the test set of DyML-Product, set --part to "test"' in wrong.stderr
    run_hgld("manifest", "unknown", code=2)
