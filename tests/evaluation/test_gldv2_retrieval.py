"""GLDv2's protocol on files in the real layout, against lists ranked and counted one by one."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, evaluate_files, evaluate_tasks
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.gldv2_retrieval import GLDV2_RETRIEVAL, LANDMARKS, SOLUTION
from hgld.evaluation.results import RetrievalResult
from hgld.hierarchy import Hierarchy
from hgld.rejection import build_detector
from hgld.rejection.rejected_queries import RejectionConfig
from hgld.tables.embeddings import Embeddings, write_embeddings
from tests.rejection.helpers import rejected_results

N_INDEX, N_LANDMARKS, DIM = 260, 20, 8
QUERIES = [f"{number:016x}" for number in range(1, 25)]
INDEX = [f"{number:016x}" for number in range(1000, 1000 + N_INDEX)]


@pytest.fixture
def images(tmp_path: Path) -> tuple[Embeddings, Embeddings]:
    """Test images, of which one is ignored, and index images, with their ground truth in ``tmp_path``.

    Landmarks 15 to 19 have no hierarchical label. The positives listed for a query are not all images of its landmark
    and one query lists images of two landmarks.
    """
    rng = np.random.default_rng(7)
    landmark_of = rng.integers(N_LANDMARKS, size=N_INDEX)
    landmark_of[:N_LANDMARKS] = np.arange(N_LANDMARKS)
    rows = ["id,images,Usage"]
    for number, query in enumerate(QUERIES):
        own = np.flatnonzero(landmark_of == number % N_LANDMARKS)
        listed = [INDEX[row] for row in own[: max(1, len(own) - 2)]]
        if number == 3:
            listed.append(INDEX[np.flatnonzero(landmark_of == 4)[0]])
        listed_text = "None" if query == QUERIES[-1] else " ".join(listed)
        rows.append(f"{query},{listed_text},{'Public' if number % 3 else 'Private'}")
    (tmp_path / SOLUTION).write_text("\n".join(rows) + "\n")
    table = pd.DataFrame({"id": INDEX, "landmark_id": landmark_of})
    table.to_csv(tmp_path / LANDMARKS, index=False)
    order = rng.permutation(N_INDEX)  # embeddings in another order than the file
    gallery = torch.from_numpy(rng.standard_normal((N_INDEX, DIM)))[order]
    queries = torch.from_numpy(rng.standard_normal((len(QUERIES), DIM)))
    write_embeddings(tmp_path / "q.npy", queries, QUERIES)
    write_embeddings(tmp_path / "g.npy", gallery, np.array(INDEX)[order])
    return (
        Embeddings(queries, np.array(QUERIES), None, tmp_path / "q.npy"),
        Embeddings(gallery, np.array(INDEX)[order], None, tmp_path / "g.npy"),
    )


@pytest.fixture
def hierarchy() -> Hierarchy:
    landmarks = np.arange(15)
    groups = [f"group {landmark % 4}" for landmark in landmarks]
    return Hierarchy.from_pandas(
        pd.DataFrame(
            {
                "split": "index",
                "landmark_id": landmarks,
                "hierarchical_label": groups,
                "natural_or_human_made": ["natural" if group == "group 0" else "human-made" for group in groups],
            }
        )
    )


def evaluate(
    queries: Embeddings, gallery: Embeddings, folder: Path, hierarchy: Hierarchy | None
) -> list[RetrievalResult]:
    files = EvaluationFiles(query_embeddings=queries.path, gallery_embeddings=gallery.path, ground_truth=folder)
    return evaluate_tasks(GLDV2_RETRIEVAL.build_tasks(EvaluationInputs(files, queries, gallery, hierarchy)))


def ap_at_100(ranked: list[str], positives: set[str]) -> float:
    hits, total = 0, 0.0
    for rank, image in enumerate(ranked[:100], start=1):
        if image in positives:
            hits += 1
            total += hits / rank
    return total / min(len(positives), 100)


def ranking(query: np.ndarray, gallery: Embeddings) -> list[str]:
    vectors = gallery.vectors.numpy()
    scores = vectors @ query / np.linalg.norm(vectors, axis=1)
    assert gallery.ids is not None
    return [str(gallery.ids[row]) for row in np.argsort(-scores)]


def test_official_uses_lists_and_labelled_uses_landmarks(
    tmp_path: Path, images: tuple[Embeddings, Embeddings], hierarchy: Hierarchy
) -> None:
    queries, gallery = images
    solution = pd.read_csv(tmp_path / SOLUTION, keep_default_na=False).set_index("id")
    landmark_of = pd.read_csv(tmp_path / LANDMARKS).set_index("id")["landmark_id"]
    official: dict[str, list[float]] = {"Public": [], "Private": []}
    labelled = []
    for query, vector in zip(QUERIES[:-1], queries.vectors.numpy(), strict=False):
        listed = solution.loc[query, "images"].split(" ")
        ranked = ranking(vector, gallery)
        official[solution.loc[query, "Usage"]].append(ap_at_100(ranked, set(listed)))
        landmark = landmark_of[listed[0]]
        if landmark < 15:
            with_labels = [image for image in ranked if landmark_of[image] < 15]
            labelled.append(ap_at_100(with_labels, set(landmark_of.index[landmark_of == landmark])))

    results = evaluate(queries, gallery, tmp_path, hierarchy)

    assert [result.name for result in results] == ["labelled", "official public", "official private"]
    assert results[0].means["map100_labelled"] == pytest.approx(np.mean(labelled))
    assert results[1].metrics == results[2].metrics == ("map100_official",)
    assert results[1].means == pytest.approx({"map100_official": np.mean(official["Public"])})
    assert results[2].means == pytest.approx({"map100_official": np.mean(official["Private"])})
    assert {"H-AP", "NDCG", "ASI", "AP_l1"} <= set(results[0].metrics)
    assert "mAP@100" not in results[0].metrics
    counts = results[0].counts
    assert counts["queries"] == len(labelled)
    assert counts["queries_without_labels"] == len(QUERIES) - 1 - len(labelled)
    assert counts["gallery_without_labels"] == (landmark_of >= 15).sum()
    assert counts["ignored_queries"] == 1
    assert counts["queries_of_several_landmarks"] == 1
    assert results[1].counts["queries"] + results[2].counts["queries"] == len(QUERIES) - 1


@pytest.mark.parametrize("score", ["top1_cosine", "soft_vote", "class_means"])
def test_queries_of_both_readings_can_be_rejected(
    tmp_path: Path, images: tuple[Embeddings, Embeddings], hierarchy: Hierarchy, score: str
) -> None:
    queries, gallery = images
    files = EvaluationFiles(query_embeddings=queries.path, gallery_embeddings=gallery.path, ground_truth=tmp_path)
    inputs, rejection = EvaluationInputs(files, queries, gallery, hierarchy), RejectionConfig(score)
    labelled, *official = (
        result for task in GLDV2_RETRIEVAL.build_tasks(inputs) for result in rejected_results(task, rejection)
    )
    landmark_of = pd.read_csv(tmp_path / LANDMARKS).set_index("id")["landmark_id"]
    assert gallery.ids is not None
    landmarks = landmark_of[gallery.ids].to_numpy()
    # The official reading ranks, and fits on, all index images; the other one those with hierarchical labels.
    for results, rows in ((official, landmarks >= 0), ([labelled], landmarks < 15)):
        fitted = build_detector(score).fit(gallery.vectors[torch.from_numpy(rows)], landmarks[rows])
        expected = dict(zip(QUERIES, fitted.score(queries.vectors).tolist(), strict=True))
        for result in results:
            scores = result.per_query["rejection_score"]
            assert scores.to_numpy() == pytest.approx([expected[query] for query in scores.index], abs=1e-5)
    if score == "top1_cosine":
        assert set(labelled.per_query["right_l1"]) == {True, False}
        for result in official:
            for query, right in result.per_query["right_l1"].items():
                row = QUERIES.index(str(query))
                first = ranking(queries.vectors[row].numpy(), gallery)[0]
                solution = pd.read_csv(tmp_path / SOLUTION, keep_default_na=False).set_index("id")
                assert right == (first in solution.loc[query, "images"].split(" "))


def test_without_a_hierarchy_only_the_official_part_is_evaluated(
    tmp_path: Path, images: tuple[Embeddings, Embeddings]
) -> None:
    files = EvaluationFiles(
        query_embeddings=tmp_path / "q.npy", gallery_embeddings=tmp_path / "g.npy", ground_truth=tmp_path
    )
    evaluation = evaluate_files(files, "gldv2-retrieval", EvaluationConfig())
    assert [result.name for result in evaluation.results] == ["official public", "official private"]
    assert [task.name for task in evaluation.tasks] == ["official"]
    with pytest.raises(ConfigurationError, match="takes `metrics` only with `hierarchy`"):
        evaluate_files(files, "gldv2-retrieval", EvaluationConfig(metrics=("H-AP",)))


def test_missing_and_surplus_embeddings_are_refused(
    tmp_path: Path, images: tuple[Embeddings, Embeddings], hierarchy: Hierarchy
) -> None:
    queries, gallery = images
    assert queries.ids is not None
    assert gallery.ids is not None
    fewer = Embeddings(gallery.vectors[2:], gallery.ids[2:], None, gallery.path)
    with pytest.raises(InputError, match=f"2 of the 260 index images in {LANDMARKS} are not embedded"):
        evaluate(queries, fewer, tmp_path, hierarchy)
    more = Embeddings(
        torch.cat([gallery.vectors, gallery.vectors[:1]]), np.append(gallery.ids, "f" * 16), None, gallery.path
    )
    with pytest.raises(InputError, match="1 embeddings are of images that"):
        evaluate(queries, more, tmp_path, hierarchy)
    other = Embeddings(queries.vectors[:-2], queries.ids[:-2], None, queries.path)
    with pytest.raises(InputError, match="1 of the 23 test images that are scored are not embedded"):
        evaluate(other, gallery, tmp_path, hierarchy)
    nameless = Embeddings(gallery.vectors, None, None, gallery.path)
    with pytest.raises(InputError, match=r"has no ids.*g\.ids\.txt"):
        evaluate(queries, nameless, tmp_path, hierarchy)
