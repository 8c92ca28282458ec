"""GLDv2's retrieval protocol: embeddings, against lists ranked and counted one by one, and predictions.

Scores of predictions agree with the published scorer, slow oracles, and the evaluation of embeddings.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import EvaluationConfig, EvaluationFiles, evaluate_files, evaluate_tasks
from hgld.evaluation.evaluation_files import EvaluationInputs
from hgld.evaluation.gldv2_retrieval import (
    GLDV2_RETRIEVAL,
    LANDMARKS,
    SOLUTION,
    labelled_result,
    labelled_task,
    official_results,
)
from hgld.evaluation.results import RetrievalResult
from hgld.gldv2.retrieval_ground_truth import (
    ImageLandmarks,
    RetrievalPredictions,
    RetrievalSolution,
    read_image_to_landmark,
    read_retrieval_predictions,
    read_retrieval_solution,
)
from hgld.hierarchy import Hierarchy
from hgld.inspection.queries import write_predictions
from hgld.io.text_array import TextArray
from hgld.tables.embeddings import Embeddings, write_embeddings
from tests.commands import run_hgld
from tests.evaluation import oracles

N_INDEX, N_LANDMARKS, N_LABELLED = 260, 20, 15
QUERIES = [f"{number:016x}" for number in range(1, 25)]
INDEX = [f"{number:016x}" for number in range(1000, 1000 + N_INDEX)]
LANDMARK_OF = dict(zip(INDEX, np.random.default_rng(7).integers(N_LANDMARKS, size=N_INDEX).tolist(), strict=True))
HIERARCHY = Hierarchy.from_pandas(
    pd.DataFrame(
        {
            "split": "index",
            "landmark_id": range(N_LABELLED),
            "hierarchical_label": [f"group {landmark % 4}" for landmark in range(N_LABELLED)],
            "natural_or_human_made": [
                "natural" if landmark % 4 == 0 else "human-made" for landmark in range(N_LABELLED)
            ],
        }
    )
)
#: Metrics that a list of 100 images defines.
DEFINED = ["mAP@100", "mAP@5_l1", "R@1", "TR@7_l2", "P@3", "H-R@9", "H-P@1", "NDCG@100", "HP@10", "HP_WUP@100"]
DEFINED += ["AHP@100", "AHP_trapezoid@4", "WUP@2", "hF", "mistake_severity", "avg_hdist@6", "min_hdist@6"]


def level(a: int, b: int) -> int:
    """The level of two labelled landmarks: 3 the same, 2 the same group, 1 both natural or both human-made."""
    return 3 if a == b else 2 if a % 4 == b % 4 else int((a % 4 == 0) == (b % 4 == 0))


@pytest.mark.parametrize("number", range(6))
def test_official_numbers_agree_with_the_published_scorer(shared: Path, tmp_path: Path, number: int) -> None:
    case = json.loads((shared / "golden_beyond" / "recognition.json").read_text("utf-8"))["retrieval"][number]
    (tmp_path / "solution.csv").write_text(case["solution_csv"], "utf-8")
    (tmp_path / "predictions.csv").write_text(case["predictions_csv"], "utf-8")
    solution = read_retrieval_solution(tmp_path / "solution.csv", may_lack_positives=True)
    predictions = read_retrieval_predictions(
        tmp_path / "predictions.csv", (*solution.query_ids, *solution.ignored_ids)
    )
    results = {
        result.name.removeprefix("official ").title(): result for result in official_results(predictions, solution)
    }
    for usage in ("Public", "Private"):
        expected = case["expected"].get(usage)
        assert len(results[usage].per_query) == (expected["queries"] if expected else 0)
        if expected:
            assert results[usage].means["map100_official"] == pytest.approx(expected["map100"], abs=1e-12)
            for name in ("mean_position", "median_position"):
                assert results[usage].settings[name] == expected[name]
        assert results[usage].counts["ignored_queries"] == case["expected"]["ignored"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ground truth of test images, of which one is ignored, and index images.

    Landmarks from 15 on have no hierarchical label. The positives listed for a query are not all images of its
    landmark.
    """
    rows = ["id,images,Usage"]
    for number, query in enumerate(QUERIES):
        own = [image for image in INDEX if LANDMARK_OF[image] == number % N_LANDMARKS]
        listed = own[: max(1, len(own) - 2)] * (1 + (number == 5))  # one query lists its positives twice
        if number == 3:  # and one images of two landmarks
            listed.append(next(image for image in INDEX if LANDMARK_OF[image] == 4))
        images = "None" if number == 23 else " ".join(listed)
        rows.append(f"{query},{images},{'Public' if number % 3 else 'Private'}")
    (tmp_path / SOLUTION).write_text("\n".join(rows) + "\n")
    pd.DataFrame({"id": INDEX, "landmark_id": [LANDMARK_OF[image] for image in INDEX]}).to_csv(
        tmp_path / LANDMARKS, index=False
    )
    return tmp_path


def labelled(predictions: RetrievalPredictions, folder: Path, metrics: list[str] | None = None) -> RetrievalResult:
    solution = read_retrieval_solution(folder / SOLUTION)
    landmarks = ImageLandmarks(np.array(INDEX), np.array([LANDMARK_OF[image] for image in INDEX]))
    config = EvaluationConfig(metrics=None if metrics is None else tuple(metrics))
    return labelled_result(predictions, solution, landmarks, HIERARCHY, config)


def expected_values(query: str, images: tuple[str, ...]) -> dict[str, float]:
    """All metrics of the list, continued with the worst items that remain; those at 100 or less do not see them."""
    landmark = QUERIES.index(query) % N_LANDMARKS
    kept = [image for image in images if LANDMARK_OF.get(image, 0) < N_LABELLED][:100]
    levels = [
        level(landmark, LANDMARK_OF[image]) if image in LANDMARK_OF and image not in kept[:rank] else 0
        for rank, image in enumerate(kept)
    ]
    rest = sorted(level(landmark, LANDMARK_OF[image]) for image in INDEX if LANDMARK_OF[image] < N_LABELLED)
    for known in (item for item in levels if item):
        rest.remove(known)
    padding = [0] * (100 - len(levels))
    values = oracles.by_name([*levels, *padding, *rest], 3, cutoffs=[1, 2, 3, 4, 5, 6, 7, 9, 10, 100])
    return {name: values[name if "_l" in name or f"{name}_l3" not in values else f"{name}_l3"] for name in DEFINED}


def test_metrics_of_lists_agree_with_oracles(folder: Path) -> None:
    rng = np.random.default_rng(1)
    predictions = {query: tuple(rng.permutation(INDEX)[: 10 * row]) for row, query in enumerate(QUERIES[:-1])}
    predictions[QUERIES[3]] = ("unknown", INDEX[0], INDEX[0], *INDEX[:60])
    del predictions[QUERIES[4]]
    result = labelled(predictions, folder, DEFINED)
    assert len(result.per_query) == sum(row % N_LANDMARKS < N_LABELLED for row in range(23))
    assert result.counts["predicted_images_that_the_index_lacks"] == 1
    assert result.counts["queries_without_predictions"] == 2
    n_short = sum(
        sum(LANDMARK_OF.get(image, 0) < N_LABELLED for image in predictions.get(query, ())) < 100
        for query in result.per_query.index
    )
    assert result.counts["queries_with_fewer_than_100_labelled_images"] == n_short > 5
    for query, row in result.per_query.rename(columns={"map100_labelled": "mAP@100"}).iterrows():
        for name, value in expected_values(str(query), predictions.get(str(query), ())).items():
            assert row[name] == pytest.approx(value, abs=1e-12, nan_ok=True), (query, name)


@pytest.mark.parametrize("metric", ["AP", "wAP", "H-AP", "NDCG", "ASI", "AHP", "mAP@R", "AP_l1", "R@101"])
def test_metrics_of_whole_rankings_are_refused(folder: Path, metric: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{metric} needs more of the ranking than the first 100 images"):
        labelled({QUERIES[0]: tuple(INDEX)}, folder, [metric])


def test_positive_counts_as_often_as_the_solution_lists_it(tmp_path: Path) -> None:
    """The published scorer divides the sum of P(k) rel(k) by min(R, 100), R with repetitions."""
    (tmp_path / SOLUTION).write_text("id,images,Usage\na,x y x,Public\nb,x,Private\n")
    public, _ = official_results({"a": ("x", "z", "x", "y")}, read_retrieval_solution(tmp_path / SOLUTION))
    assert public.means["map100_official"] == pytest.approx((1 + 2 / 4) / 3)


def test_empty_lists_and_lists_without_a_hit_score_0(folder: Path) -> None:
    solution = RetrievalSolution(("a", "b", "c"), ("Public",) * 3, (("x",), ("",), ("y",)))
    public, private = official_results({"a": ("z",), "b": ("x",)}, solution)
    assert public.means["map100_official"] == 0
    assert public.counts["queries_without_predictions"] == 1
    assert len(private.per_query) == 0
    assert math.isnan(private.means["map100_official"])


@pytest.fixture
def images(folder: Path) -> tuple[Embeddings, Embeddings]:
    """Embeddings of the test images, and of the index images in another order than the ground truth."""
    rng = np.random.default_rng(3)
    queries, gallery = (torch.from_numpy(rng.standard_normal((n, 8))) for n in (len(QUERIES), N_INDEX))
    ids = rng.permutation(INDEX)
    write_embeddings(folder / "q.npy", queries, QUERIES)
    write_embeddings(folder / "g.npy", gallery, ids)
    return (
        Embeddings(queries, TextArray(QUERIES), None, folder / "q.npy"),
        Embeddings(gallery, TextArray(ids), None, folder / "g.npy"),
    )


@pytest.fixture
def embedded(folder: Path, images: tuple[Embeddings, Embeddings]) -> dict[str, Any]:
    (folder / "index_label_to_hierarchical.csv").write_text(
        "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\n"
        + "".join(
            f"{n},c{n},s,group {n % 4},{'natural' if n % 4 == 0 else 'human-made'}\n" for n in range(N_LABELLED)
        )
    )
    return {"query_embeddings": images[0].path, "gallery_embeddings": images[1].path, "ground_truth": folder}


def test_predictions_written_from_embeddings_have_their_official_scores(
    folder: Path, embedded: dict[str, Any]
) -> None:
    out = folder / "predictions.csv"
    options = [f"--{name.replace('_', '-')}={path}" for name, path in embedded.items()]
    run_hgld("evaluate", "--no-intervals", "--protocol=gldv2-retrieval", *options, f"--write-predictions={out}")
    ranked = evaluate_files(EvaluationFiles(**embedded), "gldv2-retrieval").results
    scored = evaluate_files(EvaluationFiles(predictions=out, ground_truth=folder)).results
    for ours, theirs in zip(ranked, scored, strict=True):
        pd.testing.assert_frame_equal(ours.per_query[["map100_official"]], theirs.per_query[["map100_official"]])
    read = run_hgld("evaluate", f"--predictions={out}", f"--ground-truth={folder}", "--json", "--no-intervals")
    means = [result["means"] for result in json.loads(read.output)["results"]]
    assert means == [result.means for result in scored]


def test_long_lists_have_the_labelled_scores_of_embeddings(folder: Path, embedded: dict[str, Any]) -> None:
    """With all index images in the lists, the first 100 with labels are those of the ranking by labels."""
    metrics = tuple(DEFINED)
    files = EvaluationFiles(**embedded, hierarchy=folder / "index_label_to_hierarchical.csv")
    evaluation = evaluate_files(files, "gldv2-retrieval", EvaluationConfig(metrics=metrics))
    write_predictions(evaluation, folder / "long.csv", k=N_INDEX)
    long = EvaluationFiles(
        predictions=folder / "long.csv", ground_truth=folder, hierarchy=folder / "index_label_to_hierarchical.csv"
    )
    scored = evaluate_files(long, config=EvaluationConfig(metrics=metrics)).results[0]
    columns = list(scored.metrics)
    pd.testing.assert_frame_equal(
        scored.per_query[columns], evaluation.results[0].per_query[columns], rtol=0, atol=1e-12
    )
    assert scored.counts["queries_with_fewer_than_100_labelled_images"] == 0
    assert scored.counts["without_positives_l3"] == evaluation.results[0].counts["without_positives_l3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--embeddings=e.npy"], "found --embeddings and --predictions"),
        (["--worst=3"], "--worst, --per-label, --write-predictions and --rerank need embeddings"),
        (["--manifest=l.csv"], "the protocol gldv2-retrieval needs --ground-truth"),
        (["--ground-truth=.", "--metric=R@1"], "takes --metric only with --hierarchy"),
    ],
)
def test_options_that_do_not_suit_predictions(arguments: list[str], message: str) -> None:
    assert message in run_hgld("evaluate", "--predictions=p.csv", *arguments, code=1).output


def evaluate(queries: Embeddings, gallery: Embeddings, folder: Path) -> list[RetrievalResult]:
    files = EvaluationFiles(query_embeddings=queries.path, gallery_embeddings=gallery.path, ground_truth=folder)
    return evaluate_tasks(GLDV2_RETRIEVAL.build_tasks(EvaluationInputs(files, queries, gallery, HIERARCHY)))


def ap_at_100(ranked: list[str], positives: list[str]) -> float:
    """The published AP, which divides by the length of a list, repeated images included."""
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


def test_official_uses_lists_and_labelled_uses_landmarks(folder: Path, images: tuple[Embeddings, Embeddings]) -> None:
    queries, gallery = images
    solution = pd.read_csv(folder / SOLUTION, keep_default_na=False).set_index("id")
    landmark_of = pd.read_csv(folder / LANDMARKS).set_index("id")["landmark_id"]
    official: dict[str, list[float]] = {"Public": [], "Private": []}
    labelled = []
    for query, vector in zip(QUERIES[:-1], queries.vectors.numpy(), strict=False):
        listed = solution.loc[query, "images"].split(" ")
        ranked = ranking(vector, gallery)
        official[solution.loc[query, "Usage"]].append(ap_at_100(ranked, listed))
        landmark = landmark_of[listed[0]]
        if landmark < 15:
            with_labels = [image for image in ranked if landmark_of[image] < 15]
            labelled.append(ap_at_100(with_labels, landmark_of.index[landmark_of == landmark].tolist()))

    results = evaluate(queries, gallery, folder)

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


def test_without_a_hierarchy_only_the_official_part_is_evaluated(
    embedded: dict[str, Any],
) -> None:
    files = EvaluationFiles(**embedded)
    evaluation = evaluate_files(files, "gldv2-retrieval", EvaluationConfig())
    assert [result.name for result in evaluation.results] == ["official public", "official private"]
    assert [task.name for task in evaluation.tasks] == ["official"]
    with pytest.raises(ConfigurationError, match="takes `metrics` only with `hierarchy`"):
        evaluate_files(files, "gldv2-retrieval", EvaluationConfig(metrics=("H-AP",)))


def test_missing_and_surplus_embeddings_are_refused(folder: Path, images: tuple[Embeddings, Embeddings]) -> None:
    queries, gallery = images
    assert queries.ids is not None
    assert gallery.ids is not None
    fewer = Embeddings(gallery.vectors[2:], gallery.ids[2:], None, gallery.path)
    with pytest.raises(InputError, match=f"2 of the 260 index images in {LANDMARKS} are not embedded"):
        evaluate(queries, fewer, folder)
    more = Embeddings(
        torch.cat([gallery.vectors, gallery.vectors[:1]]), TextArray([*gallery.ids, "f" * 16]), None, gallery.path
    )
    with pytest.raises(InputError, match="1 embeddings are of images that"):
        evaluate(queries, more, folder)
    other = Embeddings(queries.vectors[:-2], queries.ids[:-2], None, queries.path)
    with pytest.raises(InputError, match="1 of the 23 test images that are scored are not embedded"):
        evaluate(other, gallery, folder)
    solution = read_retrieval_solution(folder / SOLUTION)
    landmarks = read_image_to_landmark(folder / LANDMARKS)
    with pytest.raises(InputError, match="1 embeddings are of images that"):
        labelled_task(queries, more, solution, landmarks, HIERARCHY)
    nameless = Embeddings(gallery.vectors, None, None, gallery.path)
    with pytest.raises(InputError, match=r"has no ids.*g\.ids\.txt"):
        evaluate(queries, nameless, folder)
