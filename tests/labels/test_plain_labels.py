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
from hgld.labels.plain_labels import PlainConfig, label_file, unify_spellings
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
    assert "6 rows for 12 things: 6 spellings of 3 labels" in shown
    assert "scredriver → screwdriver (typing mistake)" in shown
    table = pq.read_table(out)
    assert table.column_names == ["split", "id", "page", "label", "class_item", "count"]
    assert table["id"].to_pylist() == ["7", "8", "09", "10", "11", "12"]  # a leading zero is text
    assert table["label"].to_pylist() == ["Müsli"] * 2 + ["Beach towel"] * 2 + ["screwdriver"] * 2
    assert table["class_item"].to_pylist() == ["Q271999"] * 2 + ["Q1144593"] * 2 + [None] * 2
    with (tmp_path / "clean.variants.csv").open(encoding="utf-8", newline="") as stream:
        assert [tuple(row.values()) for row in csv.DictReader(stream)] == [
            ("muesli", "Müsli", "accents or hyphens"),
            ("beach towels", "Beach towel", "plural"),
            ("scredriver", "screwdriver", "typing mistake"),
        ]
    assert label_file(source, out, PlainConfig("name", "code", None, "shop", "n", "thing")) is None  # up to date
    embed_file(out, tmp_path / "embeddings.parquet", load=lambda *_: NGrams())
    embedded = read_table(tmp_path / "embeddings.parquet", LABEL_EMBEDDINGS)
    counts = dict(zip(embedded["label"].to_pylist(), embedded["landmarks_train"].to_pylist(), strict=True))
    assert counts == {"Müsli": 4, "Beach towel": 3, "screwdriver": 5}


def test_ids_and_splits_have_defaults(source: Path, tmp_path: Path) -> None:
    label_file(source, tmp_path / "clean.parquet", PlainConfig("name", keep_mistakes=True))
    table = read_table(tmp_path / "clean.parquet", CLEAN)
    assert table["landmark_id"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert set(table["split"].to_pylist()) == {"all"}
    assert table["supercategory"].to_pylist()[4:] == ["scredriver", "screwdriver"]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Crème brûlée", "creme brulee", True),
        ("t-shirt", "T shirt", True),
        ("straße", "Strasse", True),
        ("cake tins", "cake tin", True),
        ("umbrella stand", "umbrela stand", True),
        ("thermometer", "thermomteer", True),
        ("cookies", "cookie", True),
        ("boots", "boats", False),
        ("tannery", "cannery", False),
        ("old tower mill", "old power mill", False),
        ("umbrella stand", "umbreila stand", False),
        ("cookie sheet", "cooking sheet", False),
        ("garden fork", "garden work", False),
        ("size 10 screw", "size 12 screw", False),
        ("hammer drill", "drill hammer", False),
        ("stationery", "stationary", False),
    ],
)
def test_what_is_one_label(first: str, second: str, same: bool) -> None:
    words = frozenset(("cooking", "cookie", "stationery", "stationary", "umbrella", "thermometer"))
    labels, _ = unify_spellings([first, first, second], [1, 1, 1], words)
    assert (len(set(labels)) == 1) == same


def test_products(shared: Path, tmp_path: Path) -> None:
    folder = shared / "other_domains" / "plain"
    label_file(folder / "products.csv", tmp_path / "clean.parquet", PlainConfig("label", count="count"))
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
        ("label,item\na,berlin\n", {"item": "item"}, 'row 1: the item is "berlin"'),
        ("label,id\na,1\nb,1\n", {}, "keys are repeated, first split all, id 1"),
        ("label\n\n", {}, "no rows below the header"),
    ],
)
def test_wrong_lists_are_refused(tmp_path: Path, content: str, settings: dict[str, Any], message: str) -> None:
    (tmp_path / "list.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        label_file(tmp_path / "list.csv", tmp_path / "clean.parquet", PlainConfig("label", **settings))
    assert not (tmp_path / "clean.parquet").exists()
    with pytest.raises(ConfigurationError, match="exclude each other"):
        PlainConfig("label", split="a", split_column="b")
