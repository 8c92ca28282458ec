from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from hgld.errors import ConfigurationError
from hgld.hierarchy.label_matrix import single_labels
from hgld.search.gallery import Gallery, export_gallery
from hgld.tables import Provenance
from hgld.tables.embeddings import read_embeddings
from tests.commands import run_hgld
from tests.search.conftest import PATHS
from tests.search.galleries import LEVELS, toy_gallery


def test_exported_table_holds_ids_labels_and_unit_vectors(tmp_path: Path) -> None:
    gallery = toy_gallery()
    single_labels(gallery.labels)[5] = -1
    export_gallery(gallery, tmp_path / "x.parquet", Provenance("export-embeddings"))
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.column_names == ["id", *LEVELS, "embedding"]
    assert table["product"].to_pylist() == [*[f"p{row % 6}" for row in range(5)], None, *[f"p{n}" for n in range(6)]]
    vectors = torch.nn.functional.normalize(gallery.vectors, dim=1).numpy()
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), vectors, atol=1e-6)
    assert read_embeddings(tmp_path / "x.parquet").ids is not None, "hgld reads it, too"


def test_level_with_the_name_of_another_column_is_refused(tmp_path: Path) -> None:
    gallery = Gallery.from_arrays(np.eye(2), ["a", "b"], [["x"], ["y"]], ["embedding"])
    with pytest.raises(ConfigurationError, match="a level is called embedding"):
        export_gallery(gallery, tmp_path / "x.parquet", Provenance("export-embeddings"))


def test_wrong_outputs_end_in_one_line(gallery_folder: Path, tmp_path: Path) -> None:
    embeddings = str(gallery_folder / "all.npy")
    result = run_hgld("export-embeddings", embeddings, "-o", tmp_path / "x.csv", code=1)
    assert 'x.csv: the suffix is ".csv"; choose .faiss or .parquet' in result.stderr


@pytest.mark.slow
def test_hugging_face_datasets_reads_the_export(
    gallery_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    out = tmp_path / "x.parquet"
    result = run_hgld("export-embeddings", gallery_folder / "all.npy", "-o", out)
    assert result.stdout == f"9 embeddings of 96 dimensions with product, kind\n{out}\n"
    loaded = datasets.load_dataset("parquet", data_files=str(out), cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded["id"][:] == PATHS
    assert loaded.features["embedding"].length == 96
    rows = loaded.with_format("numpy")[:]
    np.testing.assert_allclose(rows["embedding"], np.load(gallery_folder / "all.npy"), atol=1e-6)
    assert rows["kind"].tolist() == [path.split("/")[0] for path in PATHS]
