"""Evaluations with distractors, against those of a gallery in one piece, where they are images of other classes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.compute import scoring
from hgld.compute.parted import PartedTensor
from hgld.compute.scoring import Distance
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig, Ties
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask, with_distractors
from hgld.evaluation.task_from_arrays import build_task
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, read_embeddings, write_embeddings
from tests.commands import run_hgld

METRICS = ("H-AP", "NDCG", "ASI", "wAP", "mAP@R", "R@1", "hF", "mistake_severity")


def with_cutoffs(n_ranked: int, n_levels: int) -> tuple[str, ...]:
    k = min(3, n_ranked)
    by_level = [f"AP_l{level}" for level in range(1, n_levels + 1)]
    return (*METRICS, *by_level, f"mAP@{k}", f"NDCG@{k}", f"AHP@{k}", f"H-P@{k}", f"R@{n_ranked}")


class World:
    """A task without and with distractors, and the same gallery in one piece."""

    def __init__(self, seed: int, n: int, n_gallery: int, n_distractors: int, n_levels: int, coarse: bool) -> None:
        rng = np.random.default_rng(seed)

        def embedded(count: int) -> torch.Tensor:
            vectors = rng.integers(-1, 2, (count, 3)) if coarse else rng.normal(size=(count, 6))  # few cosines: ties
            return torch.from_numpy(vectors.astype(np.float32)) / 16  # in the unit ball

        finest = rng.integers(0, 6, n + n_gallery)
        labels = np.stack([finest // 2**level for level in range(n_levels)], axis=1)
        labels[n:][rng.random(n_gallery) < 0.2] = -1
        queries, gallery, distractors = embedded(n), embedded(n_gallery), embedded(n_distractors)
        junk = RaggedIndices.from_lists([rng.integers(0, n_gallery, rng.integers(0, 3)) for _ in range(n)])
        labels[n] = 0  # one is left to rank
        keep = junk.columns != 0
        junk = RaggedIndices.from_pairs(junk.rows()[keep], junk.columns[keep], n)
        task = build_task(queries, labels[:n], gallery, labels[n:], ignored=junk)
        cut = rng.integers(0, n_distractors + 1)
        parts = [part for part in (distractors[:cut], distractors[cut:]) if len(part)]
        self.task = with_distractors(task, Embeddings(PartedTensor(parts), None, None, Path("r1m")))
        others = np.repeat(np.arange(100, 100 + n_distractors)[:, None], n_levels, axis=1)
        whole = torch.cat([gallery, distractors])
        self.whole = build_task(queries, labels[:n], whole, np.concatenate([labels[n:], others]), ignored=junk)


def evaluated(task: RetrievalTask, config: EvaluationConfig) -> RetrievalResult:
    (result,) = evaluate_tasks([task], config)
    return result


def assert_same(result: RetrievalResult, expected: RetrievalResult) -> None:
    pd.testing.assert_frame_equal(result.per_query, expected.per_query, check_exact=True)
    assert result.counts["gallery"] == expected.counts["gallery"]


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 5),
    n_gallery=st.integers(1, 40),
    n_distractors=st.integers(1, 90),
    n_levels=st.integers(1, 3),
    coarse=st.booleans(),
    ties=st.sampled_from(["pessimistic", "optimistic", "heaviside"]),
    distance=st.sampled_from(["cosine", "euclidean", "poincare"]),
    block_size=st.integers(1, 5),
    width=st.integers(1, 50),
)
def test_distractors_in_parts_give_the_numbers_of_one_piece(
    seed: int,
    n: int,
    n_gallery: int,
    n_distractors: int,
    n_levels: int,
    coarse: bool,
    ties: Ties,
    distance: Distance,
    block_size: int,
    width: int,
) -> None:
    world = World(seed, n, n_gallery, n_distractors, n_levels, coarse)
    config = EvaluationConfig(
        with_cutoffs(n_distractors + 1, n_levels),
        ranking=RankingConfig(block_size=block_size, ties=ties, distance=distance),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scoring._WIDTH, "cpu", width)
        patch.setattr("hgld.evaluation.evaluate.warn_without_positives", lambda *arguments: None)
        assert_same(evaluated(world.task, config), evaluated(world.whole, config))


@pytest.mark.parametrize("several_labels", [False, True])
def test_large_galleries(several_labels: bool) -> None:
    """Blocks of real width, ranks far apart, and judgements of images with several labels."""
    rng = np.random.default_rng(3)
    n, n_gallery, n_distractors = 6, 2500, 7000
    queries, gallery, distractors = (
        torch.from_numpy(rng.normal(size=(count, 32)).astype(np.float16)) for count in (n, n_gallery, n_distractors)
    )
    codes = rng.integers(0, 200, n + n_gallery)
    labels = np.stack([codes, codes // 10, codes // 50], axis=1)
    others = np.repeat(np.arange(1000, 1000 + n_distractors)[:, None], 3, axis=1)
    own: Labelling = labels[:n]
    judged: Labelling = labels[n:]
    all_labels: Labelling = np.concatenate([labels[n:], others])
    if several_labels:
        sets = [[row, labels[i % 7]] if row[0] < 1000 else [row] for i, row in enumerate([*own, *all_labels])]
        own, judged, all_labels = map(LabelSets.from_lists, (sets[:n], sets[n : n + n_gallery], sets[n:]))
    task = with_distractors(
        build_task(queries, own, gallery, judged), Embeddings(distractors, None, None, Path("r1m"))
    )
    whole = build_task(queries, own, torch.cat([gallery, distractors]), all_labels)
    config = EvaluationConfig(ranking=RankingConfig(block_size=4))
    assert_same(evaluated(task, config), evaluated(whole, config))


# Files


def run(*arguments: object, code: int = 0) -> str:
    return run_hgld(*arguments, code=code).output


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    """Queries, a gallery and a folder of distractors, whose parts have ids; as options."""
    rng = np.random.default_rng(1)
    ids, rows = [f"i{n}" for n in range(60)], ["id,landmark,group"]
    for name, images in (("q", ids[:10]), ("g", ids[10:])):
        write_embeddings(
            tmp_path / f"{name}.npy", torch.from_numpy(rng.normal(size=(len(images), 8))).float(), images
        )
    rows += [f"{image},{n % 12},{n % 3}" for n, image in enumerate(ids)]
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    for n, count in enumerate((300, 5, 700)):
        path = tmp_path / "r1m" / f"{n}.npy"
        path.parent.mkdir(exist_ok=True)
        write_embeddings(
            path, torch.from_numpy(rng.normal(size=(count, 8))).half(), [f"{n} {i}" for i in range(count)]
        )
    options = ["--query-embeddings", tmp_path / "q.npy", "--gallery-embeddings", tmp_path / "g.npy"]
    return ["evaluate", *options, "--manifest", tmp_path / "labels.csv", "--distractor-embeddings", tmp_path / "r1m"]


def test_distractors_in_a_folder_are_counted_in_the_gallery(files: list[object]) -> None:
    (result,) = json.loads(run(*files, "--json"))["results"]
    assert (result["counts"]["gallery"], result["counts"]["distractors"]) == (1055, 1005)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--worst", "3"], "needs labels of all images, and no --distractor-embeddings"),
        (["--write-predictions", "p.csv"], "give distractors as one file"),
    ],
)
def test_what_distractors_do_not_allow(files: list[object], options: list[str], message: str, tmp_path: Path) -> None:
    options = [str(tmp_path / option) if option == "p.csv" else option for option in options]
    assert message in " ".join(run(*files, *options, code=1).split())


def test_a_gallery_of_parts_gives_the_numbers_of_one_file(files: list[object], tmp_path: Path) -> None:
    """Every image is judged, so that whole rankings are sorted: blocks of queries are compared with all parts."""
    embeddings = read_embeddings(tmp_path / "g.npy")
    assert embeddings.ids is not None
    (tmp_path / "parts").mkdir()
    for n, rows in enumerate([slice(0, 7), slice(7, 48), slice(48, 50)]):
        write_embeddings(tmp_path / "parts" / f"{n}.npy", embeddings.vectors[rows], embeddings.ids[rows])
    plain = files[:-2]
    whole = run(*plain, "--json")
    plain[plain.index(tmp_path / "g.npy")] = tmp_path / "parts"
    assert run(*plain, "--json") == whole
