"""Manifests of one's own images: from a table, from nested folders, and written by hand."""

import csv
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import Result

from hgld.datasets.image_dataset import ImageDataset
from hgld.datasets.image_folders import match_paths
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.splits import closed_set_split
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.errors import InputError
from hgld.hierarchy import Hierarchy
from hgld.tables import HIERARCHY, Provenance, write_table
from tests.commands import run_hgld
from tests.datasets.pictures import assert_readable, rows_of, save_pictures

PATHS = ["Fruit/Apple/1.jpg", "Fruit/Apple/2.jpg", "Fruit/Pear/1.jpg", "Dairy/Milk/1.jpg"]
ROWS = """file,product,kind,part
Fruit/Apple/1.jpg,Apple,Fruit,train
Fruit/Apple/2.jpg,Apple,Fruit,test
Fruit/Pear/1.jpg,Pear,Fruit,train
Dairy/Milk/1.jpg,Milk,Dairy,test
"""
LEVELS = ["--levels", "product,kind"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save_pictures(tmp_path / "images", *PATHS)
    return tmp_path / "images"


def write(tmp_path: Path, content: str | bytes | pa.Table, name: str = "labels.csv") -> Path:
    path = tmp_path / name
    if isinstance(content, pa.Table):
        pq.write_table(content, path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def run(*arguments: object, code: int = 0) -> Result:
    return run_hgld("manifest", *arguments, code=code)


def manifest_from(tmp_path: Path, *arguments: object) -> Manifest:
    run(*arguments, "--force", "-o", tmp_path / "m.parquet")
    return read_manifest(tmp_path / "m.parquet")


def test_table_with_any_column_names(root: Path, tmp_path: Path) -> None:
    (root / "notes.txt").touch()
    save_pictures(root, "unlisted.jpg")
    table, out = write(tmp_path, ROWS), tmp_path / "m.parquet"
    command = ["table", table, "--images", root, "--path", "file", *LEVELS, "--split", "part", "-o", out]
    result = run(*command)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "4 images (2 test, 2 train) with labels at 2 levels (3 product, 2 kind)",
        "in test but not in train: 1 product (Milk)",
        "excluded: 1 images that the table does not list",
        "left out: files that are not images (1 .txt)",
        str(out),
    ]
    manifest = read_manifest(out)
    assert rows_of(manifest, "ids") == [
        ("Fruit/Apple/1.jpg", "train", ("Apple", "Fruit")),
        ("Fruit/Apple/2.jpg", "test", ("Apple", "Fruit")),
        ("Fruit/Pear/1.jpg", "train", ("Pear", "Fruit")),
        ("Dairy/Milk/1.jpg", "test", ("Milk", "Dairy")),
    ]
    assert_readable(manifest, root)
    assert run(*command).stdout == f"{out}: up to date\n"
    save_pictures(root, "another.jpg")
    assert "excluded: 2 images" in run(*command).stdout


def test_broken_links_and_labels_that_differ_by_case_are_reported(tmp_path: Path) -> None:
    root, out = tmp_path / "images", tmp_path / "m.parquet"
    save_pictures(root, *(f"Fruit/{name}/1.jpg" for name in ("Apple", "Pear", "apple", "APPLE")))
    for name in ("2.jpg", "3.jpg", "4.txt"):
        (root / "Fruit" / "Apple" / name).symlink_to(f"/absent/annex/{name}")
    command = ["folder", root, "--depth", "2", "--levels", "product,kind", "-o", out]
    assert run(*command).stdout.splitlines()[1:] == [
        "left out: 2 broken links",
        "product that differ by case alone, and are classes of their own: APPLE / Apple / apple",
        str(out),
    ]
    table = write(tmp_path, "path,product,kind\nFruit/Apple/1.jpg,apple,Fruit\nFruit/Apple/2.jpg,pear,Fruit\n")
    message = run("table", table, "--images", root, *LEVELS, "-o", out, code=1).stderr
    assert "; 2 links are broken: fetch the files that they lead to" in message


def test_numbers_keep_their_text(root: Path, tmp_path: Path) -> None:
    columns = {"path": PATHS, "product": [1.0, 1.0, 2.0, 30.0], "kind": [7, 7, 7, 8], "code": ["07", "07", "08", "9"]}
    for name, content in {
        "labels.parquet": pa.table(columns),
        "labels.csv": "path,product,kind,code\n"
        + "".join(",".join(map(str, row)) + "\n" for row in zip(*columns.values(), strict=True)),
    }.items():
        table = write(tmp_path, content, name)
        manifest = manifest_from(
            tmp_path, "table", table, "--images", root, "--levels", "product,kind", "--id", "path"
        )
        assert manifest.class_names == (("1", "2", "30"), ("7", "8"))
        assert manifest.split_names == ("all",)
        manifest = manifest_from(tmp_path, "table", table, "--images", root, "--levels", "code")
        assert manifest.class_names == (("07", "08", "9"),)


COMPOSED = "Ch\u00e2teau"
DECOMPOSED = "Cha\u0302teau"


def test_names_of_a_mac_are_those_of_other_systems(tmp_path: Path) -> None:
    paths = [f"{name}/{number}.jpg" for name, number in ((COMPOSED, 1), (DECOMPOSED, 2), ("Lac", 3))]
    save_pictures(tmp_path / "images", *paths)
    save_pictures(tmp_path / "split", f"train/{DECOMPOSED}/1.jpg", f"test/{COMPOSED}/2.jpg")
    rows = "".join(f"{path},{path.partition('/')[0]}\n" for path in paths)
    table = write(tmp_path, f"path,label\n{rows}")
    for command in (
        ["folder", tmp_path / "images", "--depth", "1"],
        ["table", table, "--images", tmp_path / "images", "--levels", "label"],
        ["folder", tmp_path / "split", "--depth", "1", "--split-folders"],
    ):
        manifest = manifest_from(tmp_path, *command)
        assert manifest.class_names[0][0] == COMPOSED
        assert len(manifest.class_names[0]) == 1 + (command[1] != tmp_path / "split")
        assert all(image.isascii() or COMPOSED in image for image in manifest.ids)
        root = tmp_path / ("split" if "--split-folders" in command else "images")
        assert all((root / path).is_file() for path in manifest.paths)

    by_hand = write(
        tmp_path, f"path,split,label\n{paths[0]},a,{COMPOSED}\n{paths[1]},a,{DECOMPOSED}\n", "manifest.csv"
    )
    manifest = read_manifest(by_hand, tmp_path / "images")
    assert manifest.class_names == ((COMPOSED,),)
    assert list(manifest.paths) == paths[:2]


def test_ids_of_a_mac_are_those_of_a_hierarchy(tmp_path: Path) -> None:
    save_pictures(tmp_path / "images", f"{DECOMPOSED}/1.jpg", f"{COMPOSED}/2.jpg")
    for name in (COMPOSED, DECOMPOSED):
        columns = {"split": ["all"], "id": [name], "page": [None], "label": ["x"], "group": ["castle"], "root": ["r"]}
        schema = pa.schema([(column, pa.string()) for column in columns])
        path = tmp_path / "hierarchy.parquet"
        write_table(path, HIERARCHY, pa.table(columns, schema=schema), Provenance("build"))
        manifest = manifest_from(tmp_path, "folder", tmp_path / "images", "--depth", "1", "--hierarchy", path)
        assert len(manifest) == 2
        assert [len(names) for names in manifest.class_names] == [1, 1, 1]


def test_levels_and_splits_of_a_hierarchy(root: Path, tmp_path: Path) -> None:
    ids, path = ["Apple", "Pear", "Kiwi"], tmp_path / "hierarchy.parquet"
    levels = {"family": ["Rosaceae", "Rosaceae", "Actinidiaceae"], "order": ["Rosales", "Rosales", "Ericales"]}
    hierarchy = Hierarchy.from_arrow(pa.table({"split": ["east", "west", "west"], "id": ids, **levels}))
    rows = hierarchy.to_arrow()
    for name in ("label", "page"):
        rows = rows.add_column(2, name, pa.array([None if name == "page" else "x"] * 3, pa.string()))
    write_table(path, HIERARCHY, rows, Provenance("build"))
    expected = [
        ("Fruit/Apple/1.jpg", "east", ("Apple", "Rosaceae", "Rosales")),
        ("Fruit/Apple/2.jpg", "east", ("Apple", "Rosaceae", "Rosales")),
        ("Fruit/Pear/1.jpg", "west", ("Pear", "Rosaceae", "Rosales")),
    ]
    table = write(tmp_path, ROWS)
    shared = ["--hierarchy", path, "--images", root]
    manifest = manifest_from(tmp_path, "table", table, "--path", "file", "--levels", "product", *shared)
    assert (manifest.level_names, rows_of(manifest, "ids")) == (("product", "family", "order"), expected)
    own = manifest_from(tmp_path, "table", table, "--path", "file", "--levels", "product", "--split", "part", *shared)
    assert own.splits.tolist() == ["train", "test", "train"]
    save_pictures(root.parent / "flat", "Apple/1.jpg", "Pear/2.jpg", "Milk/3.jpg")
    command = ["folder", root.parent / "flat", "--depth", "1", "--hierarchy", path, "-o", tmp_path / "flat.parquet"]
    assert "excluded: 1 images missing from the hierarchy" in run(*command).stdout
    assert [row[1:] for row in rows_of(read_manifest(tmp_path / "flat.parquet"), "ids")] == [
        ("east", ("Apple", "Rosaceae", "Rosales")),
        ("west", ("Pear", "Rosaceae", "Rosales")),
    ]
    for arguments, problem in [
        (["table", table, "--path", "file", "--levels", "kind", *shared], "has none of the ids of the images"),
        (["table", table, "--path", "file", *LEVELS, *shared], "expected one column with ids"),
        (["folder", root, "--depth", "2", "--hierarchy", path], "expected 1, as the other levels are in"),
    ]:
        assert problem in " ".join(run(*arguments, "-o", tmp_path / "x.parquet", code=1).stderr.split())


def test_missing_images_can_be_left_out(root: Path, tmp_path: Path) -> None:
    (root / PATHS[1]).unlink()
    command = ["table", write(tmp_path, ROWS), "--images", root, "--path", "file", *LEVELS]
    out = tmp_path / "m.parquet"
    error = run(*command, "-o", out, code=1).stderr
    assert "1 of 4 paths name no image in" in error
    assert "; correct them, or leave these rows out with --skip-missing\n  Fruit/Apple/2.jpg\n" in error
    assert "\nexcluded: 1 images that are not there\n" in run(*command, "--skip-missing", "-o", out).stdout
    assert len(read_manifest(out)) == 3


def test_images_of_a_table_may_be_in_tar_files(root: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(root, ".")
    table = write(tmp_path, ROWS)
    command = ["table", table, "--path", "file", *LEVELS, "--images"]
    plain = manifest_from(tmp_path, *command, root)
    for place in (tmp_path / "x.tar", tmp_path / "tars"):
        if place.suffix != ".tar":
            place.mkdir()
            (tmp_path / "x.tar").rename(place / "x.tar")
        manifest = manifest_from(tmp_path, *command, place)
        assert rows_of(manifest, "ids") == rows_of(plain, "ids")
        assert set(manifest.paths) == {"x.tar"}
        assert_readable(manifest, place if place.is_dir() else tmp_path)


def test_open_set_shares_no_class_and_test_share_divides_each(root: Path, tmp_path: Path) -> None:
    paths = [f"{kind}/{product}/{n}.jpg" for kind in "ab" for product in range(6) for n in range(4)]
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    text = "path,product,kind\n" + "".join(f"{path},{path[:3]},{path[0]}\n" for path in paths)
    command = ["table", write(tmp_path, text), "--images", root, *LEVELS]
    test = {}
    for seed in (0, 1):
        manifest = manifest_from(tmp_path, *command, "--open-set", "product", "--seed", seed)
        products = {
            split: {row[2][0] for row in rows_of(manifest, "ids") if row[1] == split} for split in ("train", "test")
        }
        assert not products["train"] & products["test"]
        assert [sum(name[0] == kind for name in products["test"]) for kind in "ab"] == [3, 3]
        test[seed] = products["test"]
    assert test[0] != test[1]
    kinds = manifest_from(tmp_path, *command, "--open-set", "kind", "--test-share", "0.4")
    assert len(kinds) == 48
    assert {row[2][1] for row in rows_of(kinds, "ids") if row[1] == "test"} in ({"a"}, {"b"})
    closed = manifest_from(tmp_path, *command, "--test-share", "0.25")
    assert np.bincount(closed.labels[closed.splits == "test", 0]).tolist() == [1] * 12


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.booleans(),
)
def test_closed_set_split_has_the_share_of_each_class(classes: list[int], share: float, flip: bool) -> None:
    labels = np.array(classes)[:, None]
    test = closed_set_split(labels, share, seed=int(flip))
    for name in set(classes):
        expected = share * classes.count(name)
        assert abs(int(test[labels[:, 0] == name].sum()) - expected) < 1 + 1e-9


_NAMES = st.lists(st.sampled_from(["a", "b", "1.x", "2.x", "1.y"]), min_size=1, max_size=3).map("/".join)


@given(st.lists(_NAMES.map(lambda name: f"{name}.jpg"), unique=True, min_size=1, max_size=8), st.data())
def test_paths_are_matched_as_by_trying_every_image(names: list[str], data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(names))
    wanted = "/".join(wanted.split("/")[data.draw(st.integers(0, wanted.count("/"))) :])
    wanted = data.draw(st.sampled_from([wanted, wanted.removesuffix(".jpg")]))
    matches = [name for name in names if name == wanted]
    if not matches:
        matches = [name for name in names if f"/{name}".endswith(f"/{wanted}")]
    if not matches:
        matches = [name for name in names if f"/{name}".endswith(f"/{wanted}.jpg")]
    (row,) = match_paths([wanted], names)
    assert (None if row is None else names[row]) == (matches[0] if len(matches) == 1 else None)


def test_paths_with_folders_that_images_lack() -> None:
    names = ["a/1.jpg", "b/1.jpg"]
    assert match_paths([r"C:\data\b\1.jpg", r"C:\data\a\1.jpg"], names) == [1, 0]
    assert match_paths(["./a/1.jpg"], names) == [0]
    assert match_paths(["caf\xe9.jpg"], ["cafe\u0301.jpg"]) == [0], "composed and decomposed"
    assert match_paths(["x/a/1.jpg", "y/b/1.jpg"], names) == [None, None], "not the same folders"


def test_nested_folders(root: Path, tmp_path: Path) -> None:
    save_pictures(root, "Dairy/Other/1.jpg", "Fruit/Other/below/1.jpg")
    manifest = manifest_from(tmp_path, "folder", root, "--depth", 2, "--levels", "product,kind")
    assert manifest.level_names == ("product", "kind")
    assert rows_of(manifest, "ids") == [
        ("Dairy/Milk/1.jpg", "all", ("Milk", "Dairy")),
        ("Dairy/Other/1.jpg", "all", ("Other (Dairy)", "Dairy")),
        ("Fruit/Apple/1.jpg", "all", ("Apple", "Fruit")),
        ("Fruit/Apple/2.jpg", "all", ("Apple", "Fruit")),
        ("Fruit/Other/below/1.jpg", "all", ("Other (Fruit)", "Fruit")),
        ("Fruit/Pear/1.jpg", "all", ("Pear", "Fruit")),
    ]
    assert_readable(manifest, root)
    splits = manifest_from(tmp_path, "folder", root, "--depth", 1, "--split-folders")
    assert splits.level_names == ("level_1",)
    assert rows_of(splits, "ids")[0] == ("Dairy/Milk/1.jpg", "Dairy", ("Milk",))
    save_pictures(root, "Fruit/stray.jpg")
    error = run("folder", root, "--depth", 2, "-o", tmp_path / "n.parquet", code=1).stderr
    assert "1 of 7 images are in fewer than 2 nested folders; --depth 1 fits all images" in error
    assert "\n  Fruit/stray.jpg\n" in error


@pytest.mark.parametrize("name", ["m.csv", "m.parquet"])
def test_plain_manifests_are_read_like_those_of_hgld(name: str, root: Path, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ROWS)))
    columns: dict[str, list[str]] = {
        "kind_of_product": [row["product"] for row in rows],
        "split": [row["part"] for row in rows],
        "kind": [row["kind"] for row in rows],
        "path": [row["file"] for row in rows],
    }
    for extra in ({}, {"id": list("abcd")}, {"id": list("abcd"), "size": [None] * 4, "offset": [None] * 4}):
        table = pa.table(columns | extra)
        stream = io.StringIO()
        csv.writer(stream).writerows([table.column_names, *(row.values() for row in table.to_pylist())])
        manifest = read_manifest(write(tmp_path, stream.getvalue() if name == "m.csv" else table, name))
        assert manifest.level_names == ("kind_of_product", "kind")
        ids = list("abcd") if extra else PATHS
        assert rows_of(manifest, "ids") == [
            (image_id, row["part"], (row["product"], row["kind"])) for image_id, row in zip(ids, rows, strict=True)
        ]
        assert_readable(manifest, root)


def test_plain_manifests_of_tar_files(root: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(root, ".")
    made = manifest_from(tmp_path, "folder", tmp_path / "x.tar", "--depth", 2)
    columns = made.to_arrow().to_pydict()
    text = io.StringIO()
    csv.writer(text).writerows([columns, *zip(*columns.values(), strict=True)])
    plain = read_manifest(write(tmp_path, text.getvalue()))
    assert plain.to_arrow() == made.to_arrow()
    assert_readable(plain, tmp_path)


def test_plain_manifests_find_their_images_in_tar_files(root: Path, tmp_path: Path) -> None:
    """The paths of images are those of members, as of files that were put into tar files later."""
    (tmp_path / "tars").mkdir()
    with tarfile.open(tmp_path / "tars" / "x.tar", "w") as archive:
        archive.add(root, ".")
    rows = ROWS.replace("file", "path").replace("part", "split")
    table = write(tmp_path, rows + "Dairy/Milk/9.jpg,Milk,Dairy,test\n")
    as_files = read_manifest(table)
    assert as_files.paths.tolist() == [*PATHS, "Dairy/Milk/9.jpg"]
    manifest = read_manifest(table, tmp_path / "tars")
    assert manifest.ids.tolist() == [*PATHS, "Dairy/Milk/9.jpg"]
    assert manifest.paths.tolist() == ["x.tar"] * 4 + ["Dairy/Milk/9.jpg"]
    assert_readable(manifest, tmp_path / "tars", range(4))
    dataset = ImageDataset(manifest, tmp_path / "tars", evaluation_transform(ImageSettings(size=4, resize=4)))
    assert "Dairy/Milk/9.jpg: No such file" in str(dataset[4])
    assert read_manifest(table, root).to_arrow() == as_files.to_arrow()
    assert read_manifest(table, tmp_path / "absent").to_arrow() == as_files.to_arrow()


def changed(old: str, new: str) -> str:
    assert old in ROWS
    return ROWS.replace(old, new)


ONES, NUMBERS = {"file": PATHS, "kind": [1] * 4}, [1.0, 2.0, None, 3.0]
#: Tables, options besides those that read ROWS, and messages; further ones are in ``tests/test_wrong_inputs.py``.
WRONG_TABLES: list[tuple[str | pa.Table, str, str]] = [
    ("file,product,kind\n", "", "no rows below the header"),
    (ROWS.replace(",", "\t"), "", r"its columns are separated by '\\t'; save it with commas"),
    (changed("product,kind", "kind,kind"), "", "several columns are named kind; give each"),
    (ROWS, "--path image", "no column image; its columns are file, product, kind, part"),
    (ROWS, "--split fold", "no column fold; its columns are"),
    (ROWS, "--id key", "no column key; its columns are"),
    (
        changed("Pear,Fruit", "Pear,"),
        "",
        r"kind is missing in 1 of 4 rows; fill it in, or remove the rows: row 3 \(Fruit/Pear/1.jpg, Pear",
    ),
    (
        pa.table({**ONES, "product": NUMBERS}),
        "",
        r"product is missing in 1 of 4 rows; fill it in, or remove the rows: row 3 \(Fruit/Pear/1.jpg, 1\)",
    ),
    (pa.table({**ONES, "product": [[["a"]]] * 4}), "", "product is list<.*>; expected texts or numbers"),
    (changed("Fruit,test", "Fruit,"), "--split part", "part is missing in 1 of 4 rows"),
    (ROWS, "--levels ,", '--levels is ","; expected different names, finest first'),
    (ROWS, "--levels kind,kind", "expected different names, finest first"),
    (
        changed("kind", "size"),
        "--levels product,size",
        '--levels has "size", which names another column of manifests; rename it in the table',
    ),
    (
        ROWS,
        "--levels kind,product",
        'one parent; levels are given finest first, which by .*kind "Fruit" has several product',
    ),
    (
        changed("2.jpg,Apple,Fruit", "2.jpg,Apple,Dairy"),
        "",
        r'one parent: .*"Apple" has several kind: "Dairy" in image 2 \(Fruit/Apple/2.jpg\), "Fruit" in image 1',
    ),
    (ROWS, "--id product", r"image 2 \(Apple\): the id is already used by image 1"),
    (changed("Apple/2", "Apple/1"), "", "1 images have several rows; keep one for each"),
    (ROWS, "--images DIR/absent", "absent: no such folder; name the folder that holds"),
    (ROWS, "--images DIR/empty", r"no images in this folder .*; found 1 .heic"),
    (
        ROWS,
        "--path part",
        "4 of 4 paths name no image in .*, where images are named like Dairy/Milk/1.jpg; is it the right folder, "
        "and --path the right column",
    ),
    (ROWS, "--images DIR/damaged.tar", r"damaged.tar: cannot be read from byte 0 on"),
    (ROWS, "--test-share 0", "--test-share is 0.0; expected a number between 0 and 1"),
    (
        ROWS,
        "--split part --test-share 0.2",
        "have a split of their own; omit it, or omit --test-share and --open-set",
    ),
    (ROWS, "--open-set group", '--open-set is "group"; expected one of the levels'),
    (ROWS, "--test-share 0.0001", "all 4 images are in the training set; choose another --test-share or --seed"),
]
#: Other commands.
WRONG = [
    ("table absent.csv --images DIR/images --path file --levels product,kind", "no such file"),
    ("folder DIR/images --depth 0", "--depth is 0; expected 1 or more nested folders"),
    ("folder DIR/images --depth 2 --levels kind", '--levels is "kind"; expected 2 names, one for each --depth'),
    (
        "folder DIR/images --depth 1 --split-folders --open-set level_1",
        "omit it, or omit --test-share and --open-set",
    ),
]


@pytest.fixture
def refused(root: Path, tmp_path: Path) -> Callable[[str, str], None]:
    """Check that a command fails with a message of one line and its examples, and writes nothing."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "1.heic").touch()
    (tmp_path / "labels.csv").write_text(ROWS)
    (tmp_path / "damaged.tar").write_bytes(b"<html>" * 1000)

    def check(command: str, message: str) -> None:
        before = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
        result = run(*f"{command} -o DIR/m.parquet".replace("DIR", str(tmp_path)).split(), code=1)
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        first, *details = result.stderr.splitlines()
        assert all(line.startswith("  ") for line in details), "examples alone follow the message"
        assert re.search(message, " ".join([first, *details])), result.stderr
        assert {path: path.read_bytes() for path in tmp_path.glob("*.*")} == before

    return check


@pytest.mark.parametrize(("content", "options", "message"), WRONG_TABLES)
def test_wrong_tables_are_refused(
    content: str | pa.Table, options: str, message: str, refused: Callable[[str, str], None], tmp_path: Path
) -> None:
    table = write(tmp_path, content, "labels.csv" if isinstance(content, str) else "labels.parquet")
    defaults = {"--images": "DIR/images", "--path": "file", "--levels": "product,kind"}
    given = " ".join(f"{name} {value}" for name, value in defaults.items() if name not in options)
    refused(f"table {table} {given} {options}", message)


@pytest.mark.parametrize(("command", "message"), WRONG)
def test_wrong_commands_are_refused(command: str, message: str, refused: Callable[[str, str], None]) -> None:
    refused(command, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            ROWS,
            "not a manifest: its columns are file, product, kind, part; expected path, split and a column for each",
        ),
        ("path,split\na,b\n", "not a manifest: its columns are path, split; expected .* hgld manifest table"),
        ("path,split,x\na,b,\n", "x is missing in 1 of 1 rows"),
        ("path,split,offset,size,x\na,b,c,1,y\n", "offset: .*'c'.*; expected whole numbers of bytes"),
        ("path,split,offset,size,x\na,b,1,,y\n", r"row 1 \(a\): offset 1, size None; expected both or none"),
        ("path,split,x\n/a,b,y\n", "the path is /a; expected one relative to a folder"),
        ("path,split,x\na,b,y\na,b,y\n", r"row 2 \(a\): the id is already used by row 1"),
    ],
)
def test_wrong_plain_manifests_are_refused(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_manifest(write(tmp_path, content))


@pytest.mark.slow
def test_groceries_in_tar_files_and_in_folders(shared: Path, tmp_path: Path) -> None:
    """5,421 photographs of which file names repeat, 45 of them with paths of more than 100 bytes."""
    grocery = shared / "grocery"
    levels = ["--levels", "product,group,kind", "--split", "split"]
    manifest = manifest_from(tmp_path, "table", grocery / "images.csv", "--images", grocery, *levels)
    assert manifest.n_classes == (81, 43, 3)
    assert {split: int((manifest.splits == split).sum()) for split in manifest.split_names} == {
        "test": 2485,
        "train": 2640,
        "val": 296,
    }
    long = [row for row, image in enumerate(manifest.ids) if len(image.encode()) > 100]
    assert len(long) == 45
    assert_readable(manifest, grocery, [0, len(manifest) - 1, *long])
    by_folder = manifest_from(tmp_path, "folder", grocery, "--depth", 2, "--split-folders")
    assert sorted(zip(by_folder.ids, by_folder.splits, strict=True)) == sorted(
        zip(manifest.ids, manifest.splits, strict=True)
    )
    save_pictures(tmp_path / "extracted", *manifest.ids[::50])
    rows = pq.read_table(tmp_path / "m.parquet").num_rows
    assert rows == 5421
    extracted = manifest_from(
        tmp_path, "table", grocery / "images.csv", "--images", tmp_path / "extracted", *levels, "--skip-missing"
    )
    assert extracted.paths.tolist() == manifest.ids[::50].tolist()


def test_washington_by_the_ids_of_gldv2(shared: Path, tmp_path: Path) -> None:
    folder = shared / "wa_gldv2"
    command = ["table", folder / "train.csv", "--images", folder, "--path", "id", "--levels", "landmark_id"]
    manifest = manifest_from(tmp_path, *command, "--open-set", "landmark_id")
    assert (len(manifest), manifest.n_classes) == (4625, (296,))
    assert_readable(manifest, folder, range(0, 4625, 500))
