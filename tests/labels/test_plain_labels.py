"""Plain labels: lists of one's own, whose spellings become one label."""

import csv
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hgld.errors import ConfigurationError, InputError
from hgld.labels.embed import embed_file
from hgld.labels.encoders import NGrams
from hgld.labels.plain_labels import label_file
from hgld.labels.settings import PlainConfig
from hgld.tables import CLEAN, LABEL_EMBEDDINGS, read_table
from tests.commands import run_hgld

LIST = """code,name,n,shop,thing
7,Müsli,3,a,Q271999
8,muesli,1,a,
09,Beach towel,2,b,https://www.wikidata.org/wiki/Q1144593
10,beach towels ,1,a,
11,scredriver,1,a,
12,screwdriver,4,a,
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "list.csv"
    path.write_text(LIST)
    return path


def test_list_becomes_a_clean_table(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "clean.parquet"
    columns = ["--label", "name", "--id", "code", "--count", "n", "--split-column", "shop", "--item", "thing"]
    shown = run_hgld("labels", source, "-o", out, *columns).output
    assert "6 entities (12 counted entities by the column n): 6 spellings of 5 labels" in shown
    assert "1 variants of these:\n  beach towels → Beach towel (plural)" in shown
    proposed = "muesli → Müsli (accents)\n  scredriver → screwdriver (typing mistake)"
    assert f"2 that may be variants, and are labels of their own:\n  {proposed}" in shown
    proposals = (tmp_path / "clean.variants.csv").read_text()
    (tmp_path / "merged.csv").write_text(proposals.replace(",no\n", ",Yes\n"))
    shown = run_hgld("labels", source, "-o", out, *columns, "--variants", tmp_path / "merged.csv").output
    assert "6 entities (12 counted entities by the column n): 6 spellings of 3 labels" in shown
    assert "0 that may be variants" in shown
    table = pq.read_table(out)
    assert table.column_names == ["split", "id", "page", "label", "class_item", "count"]
    assert table["id"].to_pylist() == ["7", "8", "09", "10", "11", "12"]  # a leading zero is text
    assert table["label"].to_pylist() == ["Müsli"] * 2 + ["Beach towel"] * 2 + ["screwdriver"] * 2
    assert table["class_item"].to_pylist() == ["Q271999"] * 2 + ["Q1144593"] * 2 + [None] * 2
    with (tmp_path / "clean.variants.csv").open(encoding="utf-8", newline="") as stream:
        assert [tuple(row.values()) for row in csv.DictReader(stream)] == [
            ("muesli", "Müsli", "accents", "yes"),
            ("beach towels", "Beach towel", "plural", "yes"),
            ("scredriver", "screwdriver", "typing mistake", "yes"),
        ]
    config = PlainConfig("name", "code", None, "shop", "n", "thing")
    assert label_file(source, out, config, variants=tmp_path / "merged.csv") is None  # up to date
    embed_file(out, tmp_path / "embeddings.parquet", load=lambda *_: NGrams())
    embedded = read_table(tmp_path / "embeddings.parquet", LABEL_EMBEDDINGS)
    counts = dict(zip(embedded["label"].to_pylist(), embedded["landmarks_train"].to_pylist(), strict=True))
    assert counts == {"Müsli": 4, "Beach towel": 3, "screwdriver": 5}


def test_ids_and_splits_have_defaults(source: Path, tmp_path: Path) -> None:
    label_file(source, tmp_path / "clean.parquet", PlainConfig("name", keep=["Beach towel,beach towels"]))
    table = read_table(tmp_path / "clean.parquet", CLEAN)
    assert table["landmark_id"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert set(table["split"].to_pylist()) == {"all"}
    labels = ["Müsli", "muesli", "Beach towel", "beach towels", "scredriver", "screwdriver"]
    assert table["supercategory"].to_pylist() == labels


def test_products(shared: Path, tmp_path: Path) -> None:
    folder = shared / "other_domains" / "plain"
    out, config = tmp_path / "clean.parquet", PlainConfig("label", count="count")
    summary = label_file(folder / "products.csv", out, config)
    assert summary is not None
    assert len(summary.labels) == 227
    variants = (tmp_path / "clean.variants.csv").read_text()
    (tmp_path / "merged.csv").write_text(variants.replace(",no\n", ",yes\n"))
    label_file(folder / "products.csv", out, config, variants=tmp_path / "merged.csv")
    table = read_table(tmp_path / "clean.parquet", CLEAN)
    found = dict(zip(table["landmark_id"].to_pylist(), table["supercategory"].to_pylist(), strict=True))
    with (folder / "expected.csv").open(encoding="utf-8", newline="") as stream:
        expected = {row["id"]: row["canonical"] for row in csv.DictReader(stream)}
    pairs = Counter((found[a] == found[b], expected[a] == expected[b]) for a, b in combinations(expected, 2))
    assert pairs[True, False] == 0
    assert pairs[True, True] / (pairs[True, True] + pairs[False, True]) > 0.9


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("label\na\n", {"count": "n"}, "no column n"),
        ("label,count\na,x\nb,2\n", {"count": "count"}, "1 bad row, nothing was done:\n  row 1: "),
        ("label,item\na,berlin\n", {"item": "item"}, 'row 1: "berlin" is no item'),
        ("label,id\na,1\nb,2\nc,1\n", {}, r"list.csv: repeated ids within a split \(1\): 1 \(rows 1 and 3\)"),
        ("label\n\n", {}, "no rows below the header"),
    ],
)
def test_wrong_lists_are_refused(tmp_path: Path, content: str, settings: dict[str, Any], message: str) -> None:
    (tmp_path / "list.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        label_file(tmp_path / "list.csv", tmp_path / "clean.parquet", PlainConfig("label", **settings))
    assert not (tmp_path / "clean.parquet").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "a", "split_column": "b"}, "exclude each other"),
        ({"keep": ["lights"]}, '`keep` is "lights"; expected two labels or more'),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PlainConfig("label", **settings)


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ("variant,label,merged\na,b,maybe\n", 'line 2: merged is "maybe"; expected yes or no'),
        ("variant,label,merged\n,b,yes\n", "line 2: the variant is empty"),
        ("variant,label\na,b\n", "no column merged"),
    ],
)
def test_wrong_decisions_are_refused(source: Path, tmp_path: Path, variants: str, message: str) -> None:
    (tmp_path / "merged.csv").write_text(variants)
    with pytest.raises(InputError, match=message):
        label_file(source, tmp_path / "clean.parquet", PlainConfig("name"), variants=tmp_path / "merged.csv")


def test_labels_to_keep_are_labels_of_the_list(source: Path, tmp_path: Path) -> None:
    config = PlainConfig("name", keep=['"Beach towels", beech towel'])
    with pytest.raises(ConfigurationError, match='names "beech towel", .*did you mean "Beach towel"'):
        label_file(source, tmp_path / "clean.parquet", config)
    edited = tmp_path / "clean.variants.csv"
    edited.write_text("variant,label,merged\n")
    with pytest.raises(ConfigurationError, match="would be replaced; give a copy of it"):
        label_file(source, tmp_path / "clean.parquet", PlainConfig("name"), variants=edited)


def test_a_label_without_visible_characters_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("id,label\n1,a\n2,\u200b\n", encoding="utf-8")
    with pytest.raises(InputError, match="row 2: the label has no visible character"):
        label_file(tmp_path / "list.csv", tmp_path / "clean.parquet", PlainConfig("label"))
