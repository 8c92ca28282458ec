"""Key-value metadata read without pyarrow, beside what pyarrow reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hgld.tables.footer import read_key_values
from tests.child_processes import run_script

TABLE = pa.table(
    {
        "id": pa.array([1, None, 3], pa.int64()),
        "label": ["lake", None, "Église"],
        "own": [True, False, None],
        "vector": pa.array([[0.5, 1.0]] * 3, pa.list_(pa.float32(), 2)),
        "rows": [[{"group": "a", "score": 0.5}], [], None],
        "when": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
    }
)


def pyarrow_metadata(path: Path) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] | None = pq.read_schema(path).metadata
    return metadata or {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metadata=st.dictionaries(st.text(max_size=20), st.text(max_size=300), max_size=20),
    n_rows=st.integers(0, 3),
    store_schema=st.booleans(),
    rows_per_group=st.integers(1, 3),
)
def test_metadata_are_those_that_pyarrow_reads(
    metadata: dict[str, str], n_rows: int, store_schema: bool, rows_per_group: int, tmp_path: Path
) -> None:
    path = tmp_path / "table.parquet"
    table = TABLE.slice(0, n_rows).replace_schema_metadata(metadata or None)
    pq.write_table(table, path, row_group_size=rows_per_group, store_schema=store_schema, compression="zstd")

    assert read_key_values(path) == pyarrow_metadata(path)


def test_metadata_of_many_columns_and_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    table = pa.table({f"column {n}": [1.0, 2.0] for n in range(40)}).replace_schema_metadata({"key": "value" * 1000})
    pq.write_table(table, path, row_group_size=1)
    assert read_key_values(path) == pyarrow_metadata(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), keep=st.integers(0, 10_000))
def test_damaged_files_are_left_to_pyarrow(place: int, byte: int, keep: int, tmp_path: Path) -> None:
    whole, damaged = tmp_path / "whole.parquet", tmp_path / "damaged.parquet"
    if not whole.exists():
        pq.write_table(TABLE.replace_schema_metadata({"key": "value"}), whole)
    data = bytearray(whole.read_bytes())
    data[-1 - place % len(data)] = byte
    damaged.write_bytes(data[len(data) - 1 - keep % len(data) :])

    read = read_key_values(damaged)  # raises nothing
    assert read is None or isinstance(read, dict)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1\x00\x00\x00\x00PAR1", b"id,label\n1,lake\n", b"\xff" * 12 + b"PAR1"]
)
def test_other_files_are_left_to_pyarrow(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_key_values(path) is None


def test_stages_that_are_up_to_date_import_neither_numpy_nor_pyarrow(tmp_path: Path) -> None:
    script = """
import sys
from hgld.labels import clean_file, cluster_file, embed_file, suggest_file
from hgld.tables.provenance import is_up_to_date, Provenance
from hgld.cli.summaries import hierarchy, labels
from hgld.hierarchy.build import build_file
loaded = {"numpy", "pyarrow", "torch", "sklearn", "matplotlib"} & set(sys.modules)
sys.exit(f"loaded {loaded}" if loaded else 0)
"""
    run_script(script)
