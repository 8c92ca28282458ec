"""Several labels per image: tables, codes, manifests, splits, the hierarchy of several groups, and evaluation."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hgld.datasets.image_labels import labels_from_landmarks, read_labels
from hgld.datasets.label_columns import split_codes
from hgld.datasets.manifest import Manifest, read_manifest, write_manifest
from hgld.datasets.readers.base import build_manifest
from hgld.datasets.readers.landmarks import Gldv2
from hgld.datasets.splits import split_at_random
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, LabelSets
from hgld.inspection.photos import manifest_photo
from hgld.io.text_array import TextArray
from hgld.tables import HIERARCHY, Provenance, write_table
from hgld.tables.embeddings import Embeddings
from tests.commands import run_hgld
from tests.datasets.logos import save_logos, write_logo_table
from tests.datasets.pictures import manifest_table, save_pictures
from tests.evaluation import oracles

PATHS = ["a.png", "b.png", "c.png"]
CODES = ["--levels", "section,division,category", "--code", "vienna", "--label-separator", ";"]
SETS = [
    [("01.01.02", "01.01", "01"), ("29.01.01", "29.01", "29")],
    [("01.01.02", "01.01", "01")],
    [("01.03.01", "01.03", "01"), ("29.01.01", "29.01", "29"), ("01.01.02", "01.01", "01")],
]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Manifest]:
    """Return a function that runs ``hgld manifest table`` on a table of three images."""
    save_pictures(tmp_path / "images", *PATHS)

    def make(table: str | pa.Table, *options: str) -> Manifest:
        path = tmp_path / ("t.csv" if isinstance(table, str) else "t.parquet")
        if isinstance(table, str):
            path.write_text(table)
        else:
            pq.write_table(table, path)
        out = tmp_path / "m.parquet"
        run_hgld("manifest", "table", path, "--images", tmp_path / "images", *options, "--force", "-o", out)
        return read_manifest(out)

    return make


def names_of(manifest: Manifest) -> list[list[tuple[str, ...]]]:
    """Return the labels of each image, by the names of their classes."""
    assert manifest.label_sets is not None
    return [
        [tuple(names[code] for names, code in zip(manifest.class_names, row, strict=True)) for row in own.tolist()]
        for own in manifest.label_sets
    ]


def test_codes_between_separators(make: Callable[..., Manifest]) -> None:
    table = "path,vienna\na.png,01.01.02; 29.01.01\nb.png,01.01.02\nc.png,01.03.01;29.01.01;01.01.02;01.01.02;\n"
    manifest = make(table, *CODES)
    assert names_of(manifest) == SETS
    assert manifest.level_names == ("section", "division", "category")
    assert manifest.n_classes == (3, 3, 2)
    assert repr(manifest).endswith("2.00 labels per image)")
    assert manifest_photo(manifest, 0).names == ("01.01.02; 29.01.01", "01.01; 29.01", "category 01; category 29")


def test_all_forms_give_one_manifest(make: Callable[..., Manifest], tmp_path: Path) -> None:
    """Columns per level with separators, lists in Parquet, a plain manifest, and the written manifest read again."""
    levels = ["section", "division", "category"]
    cells = [[";".join(column) for column in zip(*own, strict=True)] for own in SETS]
    csv = "".join(f"{path},{','.join(row)}\n" for path, row in zip(PATHS, cells, strict=True))
    by_columns = make(f"path,{','.join(levels)}\n{csv}", "--levels", ",".join(levels), "--label-separator", ";")
    assert names_of(by_columns) == SETS

    lists = {name: [[label[n] for label in own] for own in SETS] for n, name in enumerate(levels)}
    assert names_of(make(pa.table({"path": PATHS, **lists}), "--levels", ",".join(levels))) == SETS
    large = {name: pa.array(values, pa.large_list(pa.large_string())) for name, values in lists.items()}
    pq.write_table(pa.table({"path": PATHS, "split": ["all"] * 3, **large}), tmp_path / "plain.parquet")
    plain = read_manifest(tmp_path / "plain.parquet")
    assert names_of(plain) == SETS

    write_manifest(tmp_path / "again.parquet", plain, Provenance("test"))
    again = read_manifest(tmp_path / "again.parquet")
    assert again.to_arrow() == plain.to_arrow()
    assert pq.read_table(tmp_path / "again.parquet")["category"].to_pylist() == lists["category"]


def test_lists_need_no_separator_and_have_no_missing_codes(make: Callable[..., Manifest], tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", "b"], "x": [["1", "2"], ["3"]], "y": ["5;6", "6"]}), tmp_path / "l.parquet")
    images = Embeddings(torch.eye(2), TextArray("ab"), None, tmp_path / "e.npy")
    labelling = read_labels(tmp_path / "l.parquet", images, separator=";").labelling
    assert isinstance(labelling, LabelSets)
    assert [own.tolist() for own in labelling] == [[[1, 5], [2, 6]], [[3, 6]]]
    with pytest.raises(InputError, match='row 1: the code "" has 0 parts; expected 2'):
        split_codes(pa.chunked_array([[["1.2"], ["1.3", None]]]), ".", ["a", "b"], lambda row: f"row {row}")


def test_texts_of_lists_are_in_nfc() -> None:
    composed, decomposed = "caf\xe9", "cafe\u0301"
    labels = pa.chunked_array([[["x"], [decomposed, "a"]], [[composed]]])
    places = {"path": [f"{decomposed}.png", "b.png"], "split": ["all", "all"]}
    for levels in ({"kind": labels[1:]}, {"kind": labels[1:].combine_chunks()}):
        manifest = build_manifest(Path("labels"), places, levels)
        assert manifest.class_names == (("a", composed),)
        assert manifest.ids[0] == f"{composed}.png"
        assert manifest.paths[0] == f"{decomposed}.png"


def test_a_single_entry_stands_for_all_labels(make: Callable[..., Manifest]) -> None:
    manifest = make(
        "path,section,category\na.png,sun;star,sky\nb.png,fish,sea\nc.png,fish;sun,sea;sky\n",
        *("--levels", "section,category", "--label-separator", ";"),
    )
    assert names_of(manifest) == [
        [("sun", "sky"), ("star", "sky")],
        [("fish", "sea")],
        [("fish", "sea"), ("sun", "sky")],
    ]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("path,vienna\na.png,01.01\nb.png,1.1.1\nc.png,1.1.1\n", CODES, r'row 1: the code "01.01" has 2 parts; exp'),
        ("path,vienna\na.png,1..1\nb.png,1.1.1\nc.png,1.1.1\n", CODES, r'row 1: the code "1..1" has 2 parts'),
        ("path,vienna\na.png,;\nb.png,1.1.1\nc.png,1.1.1\n", CODES, r"1 images have different numbers .* or none"),
        ("path,vienna\na.png,1.1.1\n", [*CODES[:-1], "."], '--label-separator and --code-separator are both "."'),
        ("path,vienna\na.png,1.1.1\n", [*CODES[:-1], " "], '--label-separator is " "; expected a character'),
        (
            "path,x,y\na.png,a;b;c,d;e\nb.png,a,d\nc.png,a,d\n",
            ["--levels", "x,y", "--label-separator", ";"],
            r"1 images have different numbers of labels .*\n  image 1 \(a.png\): 3 of x, 2 of y",
        ),
        (
            "path,x,y\na.png,a;b,d\nb.png,a,e\nc.png,a,d\n",
            ["--levels", "x,y", "--label-separator", ";"],
            r'x "a" has the y .* in image \d \(.*\), but d, e in others; expected the same',
        ),
        (
            "path,vienna\na.png,1.1.1;1.2.1\nb.png,1.1.1\nc.png,1.1.1\n",
            [*CODES, "--open-set", "section"],
            "--open-set divides the classes of section, but images have several of them",
        ),
    ],
)
def test_wrong_tables_are_refused(table: str, options: list[str], message: str, tmp_path: Path) -> None:
    save_pictures(tmp_path / "images", *(PATHS if "c.png" in table else PATHS[:1]))
    (tmp_path / "t.csv").write_text(table)
    command = ("manifest", "table", tmp_path / "t.csv", "--images", tmp_path / "images", "-o", tmp_path / "m.parquet")
    error = run_hgld(*command, *options, code=1).stderr
    assert re.search(message, error), error


def test_consumers_of_single_labels_refuse_in_one_line(make: Callable[..., Manifest]) -> None:
    manifest = make("path,vienna\na.png,1.1.1;1.2.1\nb.png,1.1.1\nc.png,1.1.1\n", *CODES)
    with pytest.raises(
        InputError, match="1 of the 3 images have several labels or none; this is for images with one"
    ):
        _ = manifest.labels
    single = manifest.take(np.array([2, 1]))
    assert single.label_sets is not None
    assert single.labels.tolist() == [[0, 0, 0]] * 2  # sets, but of one label each
    assert single.class_names == (("1.1.1",), ("1.1",), ("1",))
    assert manifest.labels_of(1).tolist() == [[0, 0, 0], [-1] * 3]


def test_missing_values_in_lists_are_refused() -> None:
    table = manifest_table(PATHS, {})
    for values, message in (
        ([["x"], ["x", None], ["y"]], r"kind has a list with a missing value in row 1 \(b.png\)"),
        ([["x"], ["x", " "], ["y"]], r"kind is empty in 1 rows:\n  row 1 \(b.png\)"),
        ([["x"], [], ["y"]], r"row 1 \(b.png\): 0 of kind"),
    ):
        with pytest.raises(InputError, match=message):
            Manifest.from_arrow(table.append_column("kind", pa.array(values, pa.list_(pa.string()))))


def test_random_splits_are_stratified_by_the_rarest_label() -> None:
    labels = [[f"common{n // 20}", f"rare{n // 10}"] for n in range(40)]
    table = manifest_table([f"{n}.png" for n in range(40)], {}).append_column("kind", pa.array(labels))
    manifest = split_at_random(Manifest.from_arrow(table), 0.5, None, seed=0)
    is_test = manifest.splits == "test"
    assert [int(is_test[start : start + 10].sum()) for start in range(0, 40, 10)] == [5] * 4
    table = table.append_column("root", pa.array(["x"] * 20 + ["y"] * 20))
    with pytest.raises(ConfigurationError, match="`open_set` divides the classes of kind, but images have several"):
        split_at_random(Manifest.from_arrow(table), None, "kind", seed=0)
    by_root = split_at_random(Manifest.from_arrow(table), None, "root", seed=0)
    assert sorted(np.unique(by_root.splits[:20]).tolist() + np.unique(by_root.splits[20:]).tolist()) == [
        "test",
        "train",
    ]


@pytest.fixture
def multi_hierarchy(tmp_path: Path) -> Path:
    """Return the table of a hierarchy from ``hgld build --multi``: landmark 10 is a castle with a church."""
    table = pa.table(
        {
            "split": ["train"] * 3,
            "landmark_id": [10, 20, 40],
            "category": ["a", "b", "c"],
            "supercategory": ["castle", "church", "lake"],
            "hierarchical_label": ["castle", "church", "lake"],
            "natural_or_human_made": ["human-made", "human-made", "natural"],
            "hierarchical_labels": [["castle", "church"], ["church"], ["lake", "castle"]],
        }
    )
    path = tmp_path / "hierarchy.parquet"
    write_table(path, HIERARCHY, Hierarchy.from_arrow(table).to_arrow(), Provenance("test"))
    return path


def test_gldv2_with_several_groups(multi_hierarchy: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(
        "id,landmark_id\n" + "".join(f"{n:016x},{n // 4 * 10 + 10}\n" for n in range(16))
    )
    reader = Gldv2(tmp_path / "train.csv", hierarchy=multi_hierarchy)
    manifest = reader.read(tmp_path).manifest
    assert manifest.class_names == (("10", "20", "40"), ("castle", "church", "lake"), ("human-made", "natural"))
    names = names_of(manifest)
    assert names[0] == [("10", "castle", "human-made"), ("10", "church", "human-made")]
    assert names[4] == [("20", "church", "human-made")]
    assert names[-1] == [("40", "lake", "natural"), ("40", "castle", "human-made")]
    assert manifest.landmark_ids().tolist() == [10] * 4 + [20] * 4 + [40] * 4  # type: ignore[union-attr]
    split = Gldv2(tmp_path / "train.csv", hierarchy=multi_hierarchy, test_share=0.5, seed=1).read(tmp_path).manifest
    assert all(len(set(split.splits[start : start + 4])) == 1 for start in (0, 4, 8))

    ids = TextArray([f"{n:016x}" for n in (15, 8, 0)])
    embeddings = Embeddings(torch.eye(3), ids, None, Path("e.npy"))
    hierarchy = Hierarchy.from_arrow(pq.read_table(multi_hierarchy).replace_schema_metadata())
    labels = read_labels(tmp_path / "train.csv", embeddings, hierarchy)
    assert isinstance(labels.labelling, LabelSets)
    assert labels.labelling.counts().tolist() == [2, 0, 2]
    assert labels.labelled.tolist() == [True, False, True]
    assert labels_from_landmarks(np.array([40, 30, 10]), hierarchy).labelled.tolist() == [True, False, True]
    with pytest.raises(InputError, match="3 of the 3 images have several labels or none"):
        _ = labels.labels


def test_trademarks_from_the_command_line(tmp_path: Path) -> None:
    """Codes to manifest to metrics, by the oracle of Algorithm 1; the table itself gives the same numbers."""
    logos = save_logos(tmp_path / "logos", 30)
    table = write_logo_table(tmp_path / "logos.csv", logos)
    manifest, embeddings = tmp_path / "m.parquet", tmp_path / "e.npy"
    output = run_hgld("manifest", "table", table, "--images", tmp_path / "logos", *CODES, "-o", manifest).stdout
    assert output.startswith("30 images (30 all) with ")
    assert "labels per image" in output
    vectors = np.random.default_rng(0).normal(size=(30, 5))
    np.save(embeddings, vectors)
    embeddings.with_suffix(".ids.txt").write_text("\n".join(name for name, _ in logos))

    arguments = ["evaluate", "--embeddings", embeddings, "--json", "--precision", "float64"]
    (result,) = json.loads(run_hgld(*arguments, "--manifest", manifest).stdout)["results"]
    labels = [[[int(code.replace(".", "")[: n * 2]) for n in (3, 2, 1)] for code in codes] for _, codes in logos]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = []
    for q, own in enumerate(labels):
        order = [g for g in np.argsort(-(unit @ unit[q])).tolist() if g != q]
        levels = [round(oracles.algorithm_1(own, labels[g], 3) * len(own) * 3) for g in order]
        expected.append(oracles.h_ap(levels, [level / (len(own) * 3) for level in range(len(own) * 3 + 1)]))
    assert result["means"]["H-AP"] == pytest.approx(np.mean(expected), abs=1e-9)
    assert "Algorithm 1" in result["settings"]["relevance"]
    assert set(result["means"]) >= {"R@1", "mAP@R", "AP_l3", "AP_l1", "NDCG"}

    rows = [f"{name},{';'.join(codes)},{';'.join(code[:2] for code in codes)}\n" for name, codes in logos]
    (tmp_path / "two.csv").write_text("id,section,category\n" + "".join(rows))
    separated = ("--manifest", tmp_path / "two.csv", "--label-separator", ";", "--metric", "R@1")
    (other,) = json.loads(run_hgld(*arguments, *separated).stdout)["results"]
    assert other["means"]["R@1"] == result["means"]["R@1"]
    error = run_hgld(*arguments, "--manifest", manifest, "--alpha", "2", code=1).stderr
    assert "--alpha belongs to Eq. 20" in error
    assert "--several-labels" in error
