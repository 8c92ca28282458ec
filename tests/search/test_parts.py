"""Commands that read embeddings take a folder of parts for a file."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from hgld.search.gallery import read_gallery
from hgld.search.searcher import Searcher
from hgld.tables.embeddings import write_embeddings
from tests.commands import run_hgld


def run(*arguments: object) -> str:
    return run_hgld(*arguments).output


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """The same embeddings as a file and as a folder, with labels and queries beside them."""
    rng = np.random.default_rng(0)
    vectors, ids = torch.from_numpy(rng.normal(size=(90, 6)).astype(np.float32)), [f"i{n}" for n in range(90)]
    write_embeddings(tmp_path / "index.npy", vectors, ids)
    (tmp_path / "index").mkdir()
    for n, part in enumerate([slice(0, 40), slice(40, 41), slice(41, 90)]):
        write_embeddings(tmp_path / "index" / f"{n}.npy", vectors[part], ids[part])
    write_embeddings(tmp_path / "queries.npy", vectors[:9] + 0.2, [f"q{n}" for n in range(9)])
    rows = [f"{image},{n % 9},{n % 3}" for n, image in enumerate(ids)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,landmark,group", *rows]))
    return tmp_path / "index.npy", tmp_path / "index"


def test_export_and_rejection(both: tuple[Path, Path], tmp_path: Path) -> None:
    labels, exported, scores, found = ["--labels", tmp_path / "labels.csv"], [], [], []
    for embeddings in both:
        out = tmp_path / "out" / embeddings.name
        run("evaluate", "--embeddings", embeddings, *labels, "--per-query", out.with_suffix(".queries.parquet"))
        run("export-embeddings", embeddings, *labels, "-o", out.with_suffix(".parquet"))
        exported.append(pq.read_table(out.with_suffix(".parquet")).to_pydict())
        run("reject", "fit", "knn", "--embeddings", embeddings, *labels, "-o", out / "knn")
        run("reject", "score", out / "knn", "--embeddings", tmp_path / "queries.npy", "-o", out / "scores.csv")
        scores.append((out / "scores.csv").read_text())
        gallery = read_gallery(embeddings, tmp_path / "labels.csv")
        found.append([*Searcher(gallery).search(np.ones((2, 6), np.float32), 5).results(1)])
    assert exported[0] == exported[1]
    assert scores[0] == scores[1]
    assert found[0] == found[1]
