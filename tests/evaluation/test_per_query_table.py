"""Results with a row per query."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hgld import tables
from hgld.errors import InputError
from hgld.evaluation.reports import read_per_query, write_per_query
from hgld.evaluation.results import RetrievalResult
from tests.evaluation.sample_results import result

PROVENANCE = tables.Provenance("evaluate", {"protocol": "leave-one-out"}, {"embeddings": "0" * 64})


def test_per_query_table_is_read_by_pandas(tmp_path: Path, evaluated: RetrievalResult) -> None:
    write_per_query([evaluated], tmp_path / "per_query.parquet", PROVENANCE)
    table = pd.read_parquet(tmp_path / "per_query.parquet")
    pd.testing.assert_frame_equal(table.set_index("query"), evaluated.per_query)
    assert tables.read_provenance(tmp_path / "per_query.parquet") == PROVENANCE
    assert tables.is_up_to_date(tmp_path / "per_query.parquet", PROVENANCE)
    assert [path.name for path in tmp_path.iterdir()] == ["per_query.parquet"]


def test_parts_with_different_metrics_and_levels_share_a_file(tmp_path: Path) -> None:
    parts = [
        result("labelled", {"map100_labelled": 0.5, "H-AP": math.nan}),
        result("official", {"map100_official": 0.25}, n_levels=1),
    ]
    write_per_query(parts, tmp_path / "per_query.parquet", PROVENANCE)
    table = pd.read_parquet(tmp_path / "per_query.parquet", dtype_backend="pyarrow")
    assert list(table.columns) == [
        "part", "query", "map100_labelled", "H-AP", "map100_official", "positives_l1", "positives_l2", "positives_l3",
    ]  # fmt: skip
    assert table["part"].tolist() == ["labelled"] * 2 + ["official"] * 2
    assert table["query"].tolist() == ["a", "b"] * 2
    assert table["H-AP"].isna().all()
    assert table["map100_labelled"].isna().tolist() == [False, False, True, True]
    assert table["positives_l3"].fillna(-1).tolist() == [2, 2, -1, -1]
    assert str(table["positives_l3"].dtype) == "int64[pyarrow]"


def test_per_query_table_round_trip(tmp_path: Path, evaluated: RetrievalResult) -> None:
    ids = pd.Index([f"image {row}" for row in range(240)], name="query")
    named = evaluated.per_query.set_axis(ids).assign(**{"class": [f"landmark {row // 3}" for row in range(240)]})
    parts = [
        replace(evaluated, per_query=named),
        result("official", {"map100_official": 0.25, "H-AP": math.nan}, n_levels=1),
    ]
    for written in (parts, parts[:1], parts[1:]):
        write_per_query(written, tmp_path / "per_query.parquet", PROVENANCE)
        results = read_per_query(tmp_path / "per_query.parquet")
        assert len(results) == len(written)
        for restored, other in zip(results, written, strict=True):
            pd.testing.assert_frame_equal(restored.per_query, other.per_query)
            assert (restored.name, restored.metrics) == (other.name, other.metrics)
            assert (restored.counts, restored.settings) == (other.counts, other.settings)


def test_other_tables_are_refused(tmp_path: Path) -> None:
    tables.write_table(tmp_path / "images.parquet", tables.IMAGES, tables.IMAGES.schema.empty_table(), PROVENANCE)
    with pytest.raises(InputError, match=r"images.parquet: expected the results of queries"):
        read_per_query(tmp_path / "images.parquet")
