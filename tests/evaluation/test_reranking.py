import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, evaluate_files, evaluate_retrieval, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.reranking import first_items
from hgld.evaluation.retrieval_task import leave_one_out_task
from hgld.evaluation.settings import RerankMethod, RerankSettings
from hgld.inspection.queries import top_k_items
from hgld.ragged import RaggedIndices
from hgld.search import Searcher
from hgld.tables import read_provenance
from hgld.tables.embeddings import read_embeddings, write_embeddings
from tests.commands import run_hgld
from tests.evaluation import oracles, reranking_oracles
from tests.evaluation.helpers import Given, rank
from tests.search.galleries import gallery_of

METHODS = get_args(RerankMethod)
Array = npt.NDArray[Any]


class Case:
    """Clusters of random vectors; queries are in the gallery or not, with copies, junk and items left out."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n_gallery, dim = int(rng.integers(6, 30)), int(rng.integers(3, 8))
        centres = rng.normal(size=(4, dim)) + 0.5
        self.gallery = centres[rng.integers(4, size=n_gallery)] + rng.normal(size=(n_gallery, dim))
        self.mask = rng.random(n_gallery) < 0.9
        self.mask[:3] = True
        if rng.random() < 0.5:
            self.queries = self.gallery
            self.itself = [[i, *rng.integers(3, n_gallery, size=rng.integers(3))] for i in range(n_gallery)]
        else:
            self.queries = centres[rng.integers(4, size=5)] + rng.normal(size=(5, dim))
            self.itself = [[] for _ in range(5)]
        self.junk = [rng.integers(3, n_gallery, size=rng.integers(3)).tolist() for _ in self.itself]
        self.settings = RerankSettings(
            rerank_neighbours=int(rng.integers(1, 9)),
            rerank_alpha=float(rng.uniform(0, 4)),
        )
        self.block_size = int(rng.integers(1, 9))

    def expected(self, settings: RerankSettings) -> list[list[int]]:
        """The ranking of each query by the oracle, in a gallery without itself; junk is left out afterwards."""
        rankings = []
        for row, query in enumerate(self.queries):
            kept = [i for i in range(len(self.gallery)) if self.mask[i] and i not in self.itself[row]]
            order = reranking_oracles.ranking(query, [self.gallery[i] for i in kept], settings)
            rankings.append([kept[i] for i in order if kept[i] not in self.junk[row]])
        return rankings

    def pairs(self) -> dict[str, Any]:
        itself = RaggedIndices.from_lists(map(sorted, map(set, self.itself)))
        junk = RaggedIndices.from_lists(self.junk)
        return {"itself": itself, "excluded": itself | junk, "gallery_mask": self.mask}

    def config(self, settings: RerankSettings, **changes: Any) -> RankingConfig:
        return RankingConfig(self.block_size, precision="float64", reranking=settings, **changes)

    def found(self, settings: RerankSettings, **changes: Any) -> list[list[int]]:
        queries = torch.from_numpy(self.queries)
        gallery = queries if self.queries is self.gallery else torch.from_numpy(self.gallery)
        config = self.config(settings, **changes)
        _, positions = first_items(queries, gallery, len(gallery), config, settings, **self.pairs())
        return [[position for position in row if position >= 0] for row in positions.tolist()]


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10_000))
def test_rankings_are_those_of_the_oracle(method: RerankMethod, seed: int) -> None:
    case = Case(seed)
    settings = replace(case.settings, rerank=method)
    expected = case.expected(settings)
    assert case.found(settings) == expected
    levels = np.random.default_rng(seed).integers(4, size=(len(case.queries), len(case.gallery)))
    vectors = torch.from_numpy(case.queries), torch.from_numpy(case.gallery)
    blocks = [
        ranked.levels.clone()
        for ranked in rank(*vectors, Given(levels), config=case.config(settings), **case.pairs())
    ]
    for row, (ranked, order) in enumerate(zip(torch.cat(blocks).tolist(), expected, strict=True)):
        assert ranked[: len(order)] == levels[row, order].tolist()
        assert not any(ranked[len(order) :])


@given(seed=st.integers(0, 10_000))
def test_weights_that_vanish_leave_the_ranking(seed: int) -> None:
    case = Case(seed)
    plain = case.found(RerankSettings())
    summing: tuple[RerankMethod, ...] = ("alpha-qe", "dba")
    for method in summing:
        assert case.found(RerankSettings(method, rerank_alpha=1e6)) == plain


@pytest.mark.parametrize("method", METHODS)
def test_all_metrics_of_leave_one_out(method: RerankMethod) -> None:
    """Float32 embeddings, by the public function: each image in a gallery of all others."""
    rng = np.random.default_rng(3)
    fine = rng.integers(12, size=60)
    labels = np.stack([fine, fine // 3, fine // 6], axis=1)
    vectors = (rng.normal(size=(12, 16))[fine] + rng.normal(size=(60, 16))).astype(np.float32)
    settings = RerankSettings(method, rerank_neighbours=5)
    names = ("H-AP", "NDCG", "ASI", "mAP@100_l3", "R@1", "AP_l1")
    result = evaluate_retrieval(
        vectors, labels, metrics=[name.replace("100", "50") for name in names], reranking=settings, block_size=7
    )
    for row in range(60):
        others = [i for i in range(60) if i != row]
        order = reranking_oracles.ranking(vectors[row], [vectors[i] for i in others], settings)
        levels = [int((labels[others[i]] == labels[row]).sum()) for i in order]
        expected = {"R@1": oracles.recall_at_k(levels, 3, 1), **oracles.by_name(levels, 3, cutoffs=[50])}
        for name in result.metrics:
            value = expected["mAP@50_l3" if name == "mAP@50" else name]
            assert result.per_query[name][row] == pytest.approx(value, abs=1e-6, nan_ok=True), name
    assert result.settings["re-ranking"] == settings.describe()


@pytest.mark.parametrize("method", METHODS)
def test_copies_of_a_query_are_not_in_its_gallery_and_junk_is(method: RerankMethod) -> None:
    """Each query evaluated in one run is as if evaluated alone, with a gallery without its copies."""
    rng = np.random.default_rng(5)
    gallery, gallery_labels = rng.normal(size=(40, 6)) + 0.5, rng.integers(5, size=40)
    gallery_ids = rng.integers(15, size=40)
    queries = np.stack([gallery[np.flatnonzero(gallery_ids == i)[0]] for i in range(8)])
    labels, junk = rng.integers(5, size=8), rng.integers(40, size=(8, 3))
    settings = RerankSettings(method, rerank_neighbours=3)
    evaluate = partial(evaluate_retrieval, metrics=["H-AP", "ASI"], precision="float64", reranking=settings)
    ids: dict[str, Any] = {"query_ids": np.arange(8), "gallery_ids": gallery_ids}
    together = evaluate(queries, labels, gallery, gallery_labels, ignored=junk.tolist(), **ids).per_query
    for i in range(8):
        kept = np.flatnonzero(gallery_ids != i)
        ignored = [np.flatnonzero(np.isin(kept, junk[i])).tolist()]
        alone = evaluate(queries[i : i + 1], labels[i : i + 1], gallery[kept], gallery_labels[kept], ignored=ignored)
        np.testing.assert_allclose(together.iloc[i, :2], alone.per_query.iloc[0, :2], atol=1e-12)


def test_evaluation_of_16_bits_and_in_parts() -> None:
    rng = np.random.default_rng(0)
    vectors = torch.from_numpy(rng.normal(size=(80, 8)) + 2 * rng.normal(size=(10, 8)).repeat(8, 0))
    labels = np.arange(80)[:, None] // 8
    for method in METHODS:
        means = []
        for dtype in (torch.float64, torch.float16):
            ranking = RankingConfig(11, reranking=RerankSettings(method))
            task = leave_one_out_task(vectors.to(dtype), labels)
            (result,) = evaluate_tasks([task], EvaluationConfig(("H-AP",), ranking=ranking))
            means.append(result.means["H-AP"])
        assert means[0] == pytest.approx(means[1], abs=2e-3)
    judgements = leave_one_out_task(vectors, labels).judgements
    parts = {
        ranked.queries.start: ranked.levels.clone()
        for part in range(3)
        for ranked in rank(vectors, vectors, judgements, config=ranking, part=(part, 3))
    }
    whole = [ranked.levels.clone() for ranked in rank(vectors, vectors, judgements, config=ranking)]
    torch.testing.assert_close(torch.cat([parts[start] for start in sorted(parts)]), torch.cat(whole))


@pytest.mark.parametrize("method", METHODS)
def test_search_finds_what_the_evaluation_ranks_first(method: RerankMethod) -> None:
    rng = np.random.default_rng(1)
    queries, gallery = (torch.from_numpy(rng.normal(size=(n, 5)).astype(np.float32)) for n in (4, 30))
    config = RankingConfig(reranking=RerankSettings(method, rerank_neighbours=4))
    searcher = Searcher(gallery_of(gallery, [str(row) for row in range(30)]), config=config)
    for k in (3, 20, 40):
        found = searcher.search(queries, k).top_k
        scores, positions = first_items(queries, gallery, k, config, config.reranking)
        np.testing.assert_array_equal(found.positions, positions)
        np.testing.assert_allclose(found.scores, scores, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA knows")
@pytest.mark.parametrize("method", METHODS)
def test_gpu_and_cpu_rank_alike(method: RerankMethod) -> None:
    for seed in range(5):
        case = Case(seed)
        settings = replace(case.settings, rerank=method)
        assert case.found(settings, device="cuda") == case.found(settings)


def test_copies_tie_and_zeros_are_ranked() -> None:
    """Copies have equal ranks, so that ties decide; embeddings of zeros are candidates like others."""
    gallery = torch.tensor([[1.0, 0.2], [1.0, 0.2], [0.0, 0.0], [-1.0, 0.0], [0.5, 1.0]])
    queries = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    judged = Given([[2, 1, 0, 0, 1], [2, 1, 0, 0, 1]])
    for method in METHODS:
        reranking = RerankSettings(method, rerank_neighbours=2)
        first = {}
        for ties in ("pessimistic", "optimistic"):
            config = RankingConfig(ties=ties, reranking=reranking)
            (ranked,) = rank(queries, gallery, judged, config=config)
            first[ties] = ranked.levels[0, :2].tolist()
        assert first == {"pessimistic": [1, 2], "optimistic": [2, 1]}, method


def test_wrong_settings() -> None:
    with pytest.raises(ConfigurationError, match='`rerank` is "best"; choose aqe'):
        RerankSettings("best")  # type: ignore[arg-type]
    for name in ("rerank_neighbours", "rerank_alpha"):
        with pytest.raises(ConfigurationError, match=f"`{name}` is -1; expected"):
            RerankSettings("aqe", **{name: -1})
    with pytest.raises(ConfigurationError, match="`rerank` aqe is for cosines, but `distance` is dot"):
        RankingConfig(distance="dot", reranking=RerankSettings("aqe"))


FILES = ("--embeddings=e.npy", "--manifest=l.csv")


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
    result = run_hgld("evaluate", *arguments, code=code)
    return result.stdout if code == 0 else " ".join(result.output.split())


def test_settings_are_given_printed_and_recorded(folder: Path) -> None:
    options = ("--rerank=alpha-qe", "--rerank-neighbours=4", "--rerank-alpha=2")
    shown = run(*FILES, *options, "--no-intervals", "--per-query=q.parquet")
    assert "Re-ranking: alpha-qe, 4 neighbours, alpha 2.\n" in shown
    images, table = read_embeddings(folder / "e.npy"), pd.read_csv(folder / "l.csv")
    settings = RerankSettings("alpha-qe", rerank_neighbours=4, rerank_alpha=2)
    result = evaluate_retrieval(images.vectors, table["landmark_id"].to_numpy(), reranking=settings)
    (given,) = json.loads(run(*FILES, *options, "--json", "--no-intervals"))["results"]
    assert given["means"] == result.means
    assert given["means"] != json.loads(run(*FILES, "--json", "--no-intervals"))["results"][0]["means"]
    assert read_provenance(folder / "q.parquet").parameters["reranking"] == settings.describe()


@pytest.mark.parametrize("method", METHODS)
def test_predictions_are_in_the_order_that_is_scored(folder: Path, method: str) -> None:
    options = (f"--rerank={method}", "--rerank-neighbours=3")
    (given,) = json.loads(
        run(*FILES, *options, "--json", "--no-intervals", "--write-predictions=p.csv", "--metric=P@10")
    )["results"]
    landmarks = pd.read_csv(folder / "l.csv").set_index("id")["landmark_id"].to_dict()
    precisions = []
    for row in pd.read_csv(folder / "p.csv").itertuples():
        first = str(row.images).split()[:10]
        precisions.append(np.mean([landmarks[image] == landmarks[row.id] for image in first]))
    assert np.mean(precisions) == pytest.approx(given["means"]["P@10"])


def test_worst_page_shows_the_new_order(folder: Path) -> None:
    settings = RerankSettings("dba", rerank_neighbours=5)
    config = EvaluationConfig(("P@5",), ranking=RankingConfig(reranking=settings))
    evaluation = evaluate_files(EvaluationFiles(folder / "e.npy", labels=folder / "l.csv"), config=config)
    (task,), (result,) = evaluation.tasks, evaluation.results
    top = top_k_items(task, np.array([7, 3]), 5, config.ranking)
    assert top.levels.mean(1).tolist() == pytest.approx(result.per_query["P@5"].iloc[[7, 3]].tolist())


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    run(*FILES, "--rerank=best", code=2)
    for arguments, message in (
        ((*FILES, "--rerank-neighbours=0"), "--rerank-neighbours is 0; expected 1 or more"),
        (("--predictions=p.csv", "--ground-truth=."), "--rerank need embeddings, and no --predictions"),
    ):
        assert message in run(*arguments, "--rerank=aqe", code=1)
