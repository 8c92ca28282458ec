from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgld.errors import ConfigurationError, InputError
from hgld.io.files import atomic_write, sha256_of
from hgld.tables import (
    CLASSES,
    CLEAN,
    LABEL_EMBEDDINGS,
    MANIFEST,
    SCRAPED,
    TABLES,
    Provenance,
    column_values,
    input_digests,
    is_neutral,
    is_up_to_date,
    read_provenance,
    read_table,
    write_table,
)
from hgld.tables.parquet import write_results
from hgld.tables.schemas import unlisted_values, values_of

MADE = Provenance("clean", {"keep_multiple": None}, {"scraped": "00ff"})


def clean_table(**changes: Any) -> pa.Table:
    columns = {
        "split": ["train", "index"],
        "landmark_id": [1, 1],
        "category": ["a", "b"],
        "supercategory": ["lake", "mountain"],
        "class_item": ["Q23397", None],
    } | changes
    return pa.table({name: pa.array(columns[name], CLEAN.schema.field(name).type) for name in CLEAN.schema.names})


@pytest.mark.parametrize("table", [clean_table(), CLEAN.schema.empty_table()], ids=["two rows", "empty"])
@pytest.mark.parametrize("in_batches", [False, True])
def test_round_trip(table: pa.Table, in_batches: bool, tmp_path: Path) -> None:
    path = tmp_path / "new" / "clean.parquet"
    write_table(path, CLEAN, iter(table.to_batches(max_chunksize=1)) if in_batches else table, MADE)
    assert read_table(path, CLEAN).to_pylist() == table.to_pylist()
    assert read_provenance(path) == MADE
    assert [p.name for p in path.parent.iterdir()] == ["clean.parquet"]


def test_free_columns(tmp_path: Path) -> None:
    fixed = {"id": ["a"], "path": ["a.jpg"], "offset": pa.nulls(1, pa.int64()), "size": pa.nulls(1, pa.int64())}
    table = pa.table(fixed | {"split": ["train"], "species": ["heron"], "order": ["Pelecaniformes"]})
    write_table(tmp_path / "m.parquet", MANIFEST, table, MADE)
    assert read_table(tmp_path / "m.parquet", MANIFEST).to_pylist() == table.to_pylist()
    for wrong, message in (
        (table.append_column("n", pa.array([1])), '"n" is int64, expected string'),
        (table.append_column("n", pa.nulls(1, pa.string())), '"n" is null in 1 of 1 rows'),
        (table.select(["species", *fixed, "split"]), "columns are"),
    ):
        with pytest.raises(InputError, match=message):
            write_table(tmp_path / "m.parquet", MANIFEST, wrong, MADE)


@pytest.mark.parametrize("dimensions", [3, 384])
def test_embeddings_may_have_any_length(tmp_path: Path, dimensions: int) -> None:
    schema = LABEL_EMBEDDINGS.schema
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), dimensions)
    row = {
        "label_id": "Q1",
        "label": "x",
        "landmarks_train": 1,
        "landmarks_index": 0,
        "embedding": [0.5] * dimensions,
    }
    table = pa.Table.from_pylist([row], schema.set(schema.get_field_index("embedding"), pa.field("embedding", kind)))
    write_table(tmp_path / "e.parquet", LABEL_EMBEDDINGS, table, MADE)
    assert read_table(tmp_path / "e.parquet", LABEL_EMBEDDINGS).to_pylist() == [row]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (clean_table().drop_columns(["category"]), "columns are"),
        (clean_table(supercategory=["lake", None]), r'"supercategory" is null in 1 of 2 rows'),
        (clean_table(split=["train", "train"]), "1 keys are repeated, first split train, landmark_id 1"),
        (clean_table(split=["train", "test"]), '"split" has the values test; expected some of train, index'),
        (clean_table().cast(pa.schema([*list(CLEAN.schema)[:4], ("class_item", pa.large_string())])), "large_string"),
    ],
)
def test_invalid_tables_are_not_written(tmp_path: Path, table: pa.Table, message: str) -> None:
    path = tmp_path / "clean.parquet"
    write_table(path, CLEAN, clean_table(), MADE)
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        write_table(path, CLEAN, table, MADE)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_other_programs_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "clean.parquet"
    pq.write_table(clean_table(), tmp_path / "other.parquet")
    refused = "exists, and hgld did not write it; remove it, or name another file"
    for content in (b"a file", (tmp_path / "other.parquet").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=refused):
            write_table(path, CLEAN, clean_table(), MADE)
        with pytest.raises(ConfigurationError, match=refused):
            write_results(path, clean_table(), "results/1", MADE)
        assert path.read_bytes() == content
    csv = tmp_path / "list.csv"
    csv.write_text("id,count\n1,2\n")
    with pytest.raises(
        ConfigurationError, match=r"hgld did not write it \(its columns are id,count; expected split,"
    ):
        write_results(csv, clean_table(), "results/1", MADE)
    write_results(tmp_path / "results.csv", clean_table(), "results/1", MADE)
    write_results(tmp_path / "results.csv", clean_table().slice(1), "results/1", MADE)


def test_values_joined_in_a_text_are_checked_one_by_one() -> None:
    field = SCRAPED.schema.field("route")
    routes = pa.chunked_array([["direct", "hard_redirect+topic", None], ["soft_redirect+detour"]])
    assert unlisted_values(routes, field) == ["detour"]


def test_values_that_code_may_write_are_those_that_schemas_explain() -> None:
    types = {frozenset(get_args(kind)) for kind in vars(column_values).values() if get_origin(kind) is Literal}
    explained = set()
    for spec in TABLES.values():
        for field in (*spec.schema, *spec.optional):
            neutral = [other for other in spec.neutral.schema if other.name == field.name]
            explained.add(frozenset(values_of(field)).union(*map(values_of, neutral)))
    explained.discard(frozenset())
    assert types == explained


def test_tables_of_other_lists_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "clean.parquet"
    ids = pa.array(["a", "b"])
    schema = CLEAN.schema.set(CLEAN.schema.get_field_index("landmark_id"), pa.field("landmark_id", pa.string()))
    rows = [
        [split, name, None, "portrait", "Q134307"] for split, name in zip(("x", "y"), ids.to_pylist(), strict=True)
    ]
    batches = [pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True))], schema) for row in rows]
    write_table(path, CLEAN, iter(batches), MADE, neutral=True)
    assert is_neutral(path)
    assert pq.read_table(path).column_names == ["split", "id", "page", "label", "class_item"]
    table = read_table(path, CLEAN)
    assert (table.column_names, table["landmark_id"].to_pylist()) == (CLEAN.schema.names, ["a", "b"])
    with pytest.raises(InputError, match="keys are repeated, first split x, id a"):
        write_table(path, CLEAN, iter(batches[:1] * 2), MADE, neutral=True)


def test_invalid_tables_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(InputError, match="no such file"):
        read_table(path, CLEAN)
    path.write_bytes(b"not parquet")
    with pytest.raises(
        InputError,
        match='x.parquet: not a Parquet file; expected a table "clean/1"; hgld clean or hgld labels writes',
    ):
        read_table(path, CLEAN)
    pq.write_table(clean_table(), path)
    with pytest.raises(InputError, match=r'expected a table "clean/1".*name no table'):
        read_table(path, CLEAN)
    path.unlink()
    write_table(path, CLEAN, clean_table(), MADE)
    with pytest.raises(
        InputError, match='expected a table "classes/3", but it is a table "clean/1"; hgld scrape writes'
    ):
        read_table(path, CLASSES)


def test_up_to_date_means_same_command_parameters_and_inputs(tmp_path: Path) -> None:
    path, source = tmp_path / "clean.parquet", tmp_path / "in"
    source.write_text("one")
    made = Provenance("clean", {"k": 1}, input_digests(scraped=[source], absent=None))
    assert not is_up_to_date(path, made)
    write_table(path, CLEAN, clean_table(), made)
    assert is_up_to_date(path, made)
    assert is_up_to_date(path, Provenance("clean", {"k": 1}, made.inputs, version="0.0.1"))
    assert not is_up_to_date(path, Provenance("clean", {"k": 2}, made.inputs))
    source.write_text("two")
    assert not is_up_to_date(path, Provenance("clean", {"k": 1}, input_digests(scraped=[source])))


def test_added_columns_keep_a_table_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "clean.parquet"
    added = Provenance("suggest", before=MADE)
    write_table(path, CLEAN, clean_table(), added)
    assert read_provenance(path) == added
    assert is_up_to_date(path, added)
    assert is_up_to_date(path, MADE)
    assert not is_up_to_date(path, Provenance("clean", {"keep_multiple": "first"}, MADE.inputs))


def test_failed_write_leaves_no_files(tmp_path: Path) -> None:
    def fail() -> Iterator[pa.RecordBatch]:
        yield clean_table().to_batches()[0]
        raise KeyboardInterrupt

    def write_half(draft: Path) -> None:
        draft.write_text("half")
        (tmp_path / "absent" / "b.txt").touch()

    with pytest.raises(KeyboardInterrupt):
        write_table(tmp_path / "clean.parquet", CLEAN, fail(), MADE)
    with pytest.raises(OSError, match="No such"), atomic_write(tmp_path / "a.txt") as draft:
        write_half(draft)
    assert list(tmp_path.iterdir()) == []


def test_layouts_change_only_with_their_version() -> None:
    layouts = {
        spec.schema_id: "; ".join(f"{f.name}: {f.type}{'' if f.nullable else ' !'}" for f in spec.schema)
        for spec in TABLES.values()
    }
    values = "list<element: struct<item: string, label: string not null, language: string> not null>"
    of_landmark = "split: string !; landmark_id: int64 !; category: string !"
    of_label = "label_id: string !; label: string !; landmarks_train: int64 !; landmarks_index: int64 !"
    of_run = (
        "split: int64; seed: int64 !; metric: string !; value: double !; steps: int64 !; train_seconds: double !;"
        " device: string !; machine: string !"
    )
    assert layouts == {
        "scraped/1": f"{of_landmark}; title: string !; resolved_title: string; item: string; route: string; "
        f"revision: int64; instance_of: {values} !; status: string !; source: string !; "
        "fetched_at: timestamp[ms, tz=UTC] !",
        "classes/3": "item: string !; label: string !; language: string; description: string; "
        "subclass_of: list<element: string not null> !; revision: int64; "
        "redirected_from: list<element: string not null>",
        "clean/1": f"{of_landmark}; supercategory: string !; class_item: string",
        "removed/1": f"{of_landmark}; reason: string !; instance_of: {values} !",
        "label_embeddings/1": f"{of_label}; embedding: fixed_size_list<element: float not null>[0] !",
        "clusters/2": f"{of_label}; cluster: int32 !; cluster_name: string !; subcluster: int32 !; "
        "distance: float !; suggested_group: string; suggestion_score: float; "
        "suggestions: list<element: struct<group: string not null, score: float not null, reason: string "
        "not null> not null> !",
        "hierarchy/1": f"{of_landmark}; supercategory: string !; hierarchical_label: string !; "
        "natural_or_human_made: string !",
        "completed/1": f"{of_landmark}; reason: string !; photographs: int64 !; group: string; score: float; "
        "votes: float !; second_group: string; second_votes: float !; "
        "nearest: list<element: struct<name: string not null, group: string not null, similarity: float "
        "not null> not null> !",
        "images/1": "id: string !; shard: string !; offset: int64 !; size: int64 !",
        "photographs/1": "id: string !; status: string !; url: string; page: string; author: string; "
        "licence: string; licence_url: string; uploaded_at: timestamp[ms, tz=UTC]; "
        "source: string; shard: string; width: int64; height: int64; sha1: string",
        "manifest/1": "id: string !; path: string !; offset: int64; size: int64; split: string !",
        "comparison/2": f"method: string !; title: string !; baseline: bool !; {of_run}",
        "study/2": f"curve: string !; setting: string !; method: string !; {of_run}",
    }


def test_tables_in_a_folder_are_digested_one_by_one(tmp_path: Path) -> None:
    for name in ("a.csv", "b.parquet", "data/c.parquet", "d.txt", "other/e.csv"):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_text(name)
    (tmp_path / "file.csv").write_text("f")
    digests = input_digests(truth=tmp_path / "folder", labels=tmp_path / "file.csv")
    assert list(digests) == ["truth/a.csv", "truth/b.parquet", "truth/data/c.parquet", "labels"]
    assert digests["truth/data/c.parquet"] == sha256_of(tmp_path / "folder" / "data" / "c.parquet")
    parts = ["g1.npy", "g2.safetensors"]
    for name in parts:
        (tmp_path / "folder" / name).touch()
    embeddings = input_digests(gallery_embeddings=tmp_path / "folder", truth=tmp_path / "folder")
    assert {name for name in embeddings if "/g" in name} == {f"gallery_embeddings/{name}" for name in parts}
