from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from hgld import tables
from tests.labels.label_tables import PROVENANCE, Values, scraped_table


@pytest.fixture
def write_scraped(tmp_path: Path) -> Callable[..., Path]:
    """Write scraped.<split>.parquet with these landmarks' values."""

    def write(landmarks: Sequence[Values], *, split: str = "train", status: str = "ok") -> Path:
        path = tmp_path / f"scraped.{split}.parquet"
        table = scraped_table(landmarks, split=split, status=status)
        tables.write_table(path, tables.SCRAPED, table, PROVENANCE)
        return path

    return write


@pytest.fixture
def write_clean(tmp_path: Path) -> Callable[..., Path]:
    """Write clean.parquet with one landmark per (split, label, item)."""

    def write(landmarks: Sequence[tuple[str, str, str | None]]) -> Path:
        rows = [
            {
                "split": split,
                "landmark_id": number,
                "category": "http://commons.wikimedia.org/wiki/Category:L",
                "supercategory": label,
                "class_item": item,
            }
            for number, (split, label, item) in enumerate(landmarks)
        ]
        path = tmp_path / "clean.parquet"
        table = pa.Table.from_pylist(rows, schema=tables.CLEAN.schema)
        tables.write_table(path, tables.CLEAN, table, PROVENANCE)
        return path

    return write


@pytest.fixture
def write_embeddings(tmp_path: Path) -> Callable[..., Path]:
    """Write label_embeddings.parquet: these vectors, normalised, with Q1, Q2, ... as label_id."""

    def write(vectors: NDArray[np.float64], landmarks: Sequence[int], labels: Sequence[str] | None = None) -> Path:
        n, dimension = vectors.shape
        unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        table = pa.table(
            {
                "label_id": [f"Q{number}" for number in range(1, n + 1)],
                "label": labels or [f"label {number}" for number in range(1, n + 1)],
                "landmarks_train": pa.array(landmarks, pa.int64()),
                "landmarks_index": pa.array([0] * n, pa.int64()),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(unit.ravel()), dimension),
            }
        )
        path = tmp_path / "label_embeddings.parquet"
        tables.write_table(path, tables.LABEL_EMBEDDINGS, table, PROVENANCE)
        return path

    return write
