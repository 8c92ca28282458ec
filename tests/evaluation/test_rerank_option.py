"""hgld evaluate --rerank: what it prints, that further outputs follow the new rankings, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from hgld import evaluate_retrieval
from hgld.cli import app
from hgld.evaluation.settings import RerankSettings
from hgld.tables import read_provenance
from hgld.tables.embeddings import read_embeddings, write_embeddings

FILES = ("--embeddings=e.npy", "--labels=l.csv")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images of landmarks; the working directory."""
    rng = np.random.default_rng(3)
    landmarks = rng.integers(0, 10, size=60)
    vectors = torch.from_numpy((rng.normal(size=(10, 6))[landmarks] + rng.normal(size=(60, 6))).astype(np.float32))
    ids = [f"image-{row}" for row in range(60)]
    write_embeddings(tmp_path / "e.npy", vectors, ids)
    pd.DataFrame({"id": ids, "landmark_id": landmarks}).to_csv(tmp_path / "l.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["evaluate", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.output.split())


def test_settings_are_given_printed_and_recorded(folder: Path) -> None:
    options = ("--rerank=k-reciprocal", "--rerank-neighbours=4", "--rerank-candidates=30")
    shown = run(*FILES, *options, "--no-intervals", "--per-query=q.parquet")
    assert "Re-ranking: k-reciprocal, 4 neighbours, the first 30.\n" in shown
    images, table = read_embeddings(folder / "e.npy"), pd.read_csv(folder / "l.csv")
    settings = RerankSettings("k-reciprocal", rerank_neighbours=4, rerank_candidates=30)
    result = evaluate_retrieval(images.vectors, table["landmark_id"].to_numpy(), reranking=settings)
    (given,) = json.loads(run(*FILES, *options, "--json", "--no-intervals"))["results"]
    assert given["means"] == result.means
    assert given["means"] != json.loads(run(*FILES, "--json", "--no-intervals"))["results"][0]["means"]
    assert read_provenance(folder / "q.parquet").parameters["reranking"] == settings.describe()


@pytest.mark.parametrize("method", ["alpha-qe", "dba", "superglobal"])
def test_predictions_are_in_the_order_that_is_scored(folder: Path, method: str) -> None:
    options = (f"--rerank={method}", "--rerank-neighbours=3", "--rerank-candidates=20")
    (given,) = json.loads(
        run(*FILES, *options, "--json", "--no-intervals", "--write-predictions=p.csv", "--metric=P@10")
    )["results"]
    landmarks = pd.read_csv(folder / "l.csv").set_index("id")["landmark_id"].to_dict()
    precisions = []
    for row in pd.read_csv(folder / "p.csv").itertuples():
        first = str(row.images).split()[:10]
        precisions.append(np.mean([landmarks[image] == landmarks[row.id] for image in first]))
    assert np.mean(precisions) == pytest.approx(given["means"]["P@10"])


def test_worst_page_shows_cosines_in_the_new_order(folder: Path) -> None:
    from hgld.evaluation import EvaluationConfig, RankingConfig, evaluate_files
    from hgld.evaluation.settings import EvaluationFiles
    from hgld.inspection.queries import top_k_items

    settings = RerankSettings("diffusion", rerank_neighbours=5, rerank_candidates=15)
    config = EvaluationConfig(("P@5",), ranking=RankingConfig(reranking=settings))
    evaluation = evaluate_files(EvaluationFiles(folder / "e.npy", labels=folder / "l.csv"), config=config)
    (task,), (result,) = evaluation.tasks, evaluation.results
    top = top_k_items(task, np.array([7, 3]), 5, config.ranking)
    assert top.levels.mean(1).tolist() == pytest.approx(result.per_query["P@5"].iloc[[7, 3]].tolist())
    unit = torch.nn.functional.normalize(task.queries).numpy()
    for row, query in enumerate((7, 3)):
        np.testing.assert_allclose(top.scores[row], unit[top.positions[row]] @ unit[query], atol=1e-6)


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    run(*FILES, "--rerank=best", code=2)
    assert "--rerank-neighbours is 0; expected 1 or more" in run(
        *FILES, "--rerank=aqe", "--rerank-neighbours=0", code=1
    )
    assert "--reject scores cosines, which --rerank replaces" in run(
        *FILES, "--rerank=aqe", "--reject=top1_cosine", code=1
    )
    assert "--rerank need embeddings, and no --predictions" in run(
        "--predictions=p.csv", "--ground-truth=.", "--rerank=aqe", code=1
    )
