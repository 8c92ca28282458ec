"""Rejected queries of every kind of task: scores, what is right, and figures of sets of unknown images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.datasets.image_labels import labels_from_landmarks
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import EvaluationConfig, RankingConfig, RetrievalTask, evaluate_tasks
from hgld.evaluation.retrieval_task import ListJudgements, leave_one_out_task, query_gallery_task
from hgld.hierarchy import Hierarchy
from hgld.hierarchy.label_matrix import LabelSets
from hgld.ragged import RaggedIndices
from hgld.rejection import build_detector
from hgld.rejection.neighbours import Margin
from hgld.rejection.rejected_queries import (
    QUERIES_WITHOUT_POSITIVES,
    SCORE,
    RejectedQueries,
    RejectionConfig,
    rejection_report,
    scored_answers,
)
from hgld.tables.embeddings import Embeddings
from tests.assertions import not_none
from tests.rejection.helpers import evaluate_rejected, unknown_answers

CONFIG = EvaluationConfig(metrics=("R@1", "AP", "H-AP"), ranking=RankingConfig(block_size=7, precision="float64"))


def images(n: int, seed: int, n_classes: int = 8) -> tuple[torch.Tensor, Any]:
    """Embeddings around a centre for each class, and their labels at two levels: class and parity."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(n_classes, size=n)
    centres = np.random.default_rng(9).normal(size=(40, 6))
    return torch.from_numpy(centres[classes] + rng.normal(size=(n, 6))), np.stack([classes, classes % 2], axis=1)


def retrieval_task(n: int = 30, level_names: tuple[str, ...] | None = None) -> RetrievalTask:
    """Queries of eight classes and a gallery of the first six."""
    gallery, gallery_labels = images(50, 1, 6)
    queries, labels = images(n, 2)
    return query_gallery_task(queries, labels, gallery, gallery_labels, level_names=level_names)


def cosines(task: RetrievalTask) -> np.ndarray:
    """Cosines of all pairs, -inf for those that are not ranked."""
    parts = [vectors.numpy() / np.linalg.norm(vectors, axis=1)[:, None] for vectors in (task.queries, task.gallery)]
    scores = parts[0] @ parts[1].T
    if task.excluded is not None:
        scores[task.excluded.rows(), task.excluded.columns] = -np.inf
    if task.gallery_mask is not None:
        scores[:, ~task.gallery_mask] = -np.inf
    return np.asarray(scores)


def tasks() -> dict[str, RetrievalTask]:
    """A task of every shape that protocols build."""
    vectors, labels = images(40, 3)
    task = retrieval_task()
    gallery_classes, classes = np.asarray(task.gallery_labels)[:, 0], np.asarray(task.query_labels)[:, 0]
    positives = RaggedIndices.from_lists([np.flatnonzero(gallery_classes == own) for own in classes])
    return {
        "leave-one-out": leave_one_out_task(vectors, labels),
        "copies": leave_one_out_task(vectors, labels, ids=np.repeat(np.arange(20), 2)),
        "retrieval": task,
        "masked": replace(task, gallery_mask=np.arange(50) % 3 > 0),
        "lists": RetrievalTask("lists", task.queries, task.gallery, ListJudgements(positives, 50)),
        "junk": RetrievalTask(
            "junk",
            task.queries,
            task.gallery,
            ListJudgements(positives, 50),
            excluded=RaggedIndices.from_lists([[query] for query in range(30)]),
        ),
        "several labels": leave_one_out_task(vectors, LabelSets(labels, RaggedIndices.identity(40))),
    }


@pytest.mark.parametrize("name", tasks())
def test_the_first_image_is_the_answer_in_every_task(name: str) -> None:
    task = tasks()[name]
    (plain,) = evaluate_tasks([task], CONFIG)
    result = evaluate_rejected(task, RejectionConfig(), CONFIG)
    assert plain.means == result.means
    scores = cosines(task)
    assert result.per_query[SCORE].to_numpy() == pytest.approx(-scores.max(1), abs=1e-12)
    answers = scored_answers(result)
    finest = answers.n_levels
    known = result.per_query[f"positives_l{finest}"].to_numpy() > 0
    assert (answers.known[:, 0] == known).all()
    assert (answers.right[known, 0] == result.per_query["R@1"][known]).all()
    levels = task.judgements.levels(slice(None), slice(None)).numpy()
    first = levels[np.arange(len(scores)), scores.argmax(1)]
    assert (answers.right == (first[:, None] >= np.arange(finest, 0, -1))).all()


def test_margins_leave_out_the_query_and_need_one_more_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one neighbour no query has two landmarks, and all blocks of queries are completed at once."""
    calls: list[int] = []
    complete = Margin.complete_neighbours

    def counted(detector: Margin, *arguments: Any, **options: Any) -> Any:
        calls.append(len(arguments[0]))
        return complete(detector, *arguments, **options)

    monkeypatch.setattr(Margin, "complete_neighbours", counted)
    task = tasks()["leave-one-out"]
    result = evaluate_rejected(task, RejectionConfig("margin", {"k": "1"}), CONFIG)
    classes = np.asarray(task.query_labels)[:, 0]
    for own, score in zip(cosines(task), result.per_query[SCORE], strict=True):
        first, second = sorted((own[classes == name].max() for name in set(classes)), reverse=True)[:2]
        assert score == pytest.approx(second - first, abs=1e-12)
    assert calls == [40]


def test_votes_are_judged_by_the_label_that_they_answer() -> None:
    task = retrieval_task()
    rejection = RejectionConfig("soft_vote", {"k": "5"})
    result = evaluate_rejected(task, rejection, CONFIG)
    detector = build_detector("soft_vote", {"k": 5}).fit(task.gallery, np.asarray(task.gallery_labels))
    assert result.per_query[SCORE].to_numpy() == pytest.approx(detector.score(task.queries), abs=1e-12)
    scores = cosines(task)
    nearest = np.argsort(-scores, axis=1)[:, :5]
    answers = detector.answers(np.take_along_axis(scores, nearest, 1), nearest)  # type: ignore[attr-defined]
    right = scored_answers(result).right
    assert (right == (answers == task.query_labels)).all()
    assert (right[:, 0] != result.per_query["R@1"].fillna(0)).any()  # the vote differs from the first image


def test_scores_of_levels_have_columns_of_their_own() -> None:
    task = retrieval_task()
    result = evaluate_rejected(task, RejectionConfig("level_agreement"), CONFIG)
    detector = build_detector("level_agreement", {}).fit(task.gallery, np.asarray(task.gallery_labels))
    expected = detector.score_levels(task.queries)
    assert scored_answers(result).level_scores == pytest.approx(expected, abs=1e-12)
    assert f"{SCORE}_l1" in result.per_query


def test_fitted_scores_leave_out_unlabelled_images() -> None:
    task = tasks()["masked"]
    result = evaluate_rejected(task, RejectionConfig("class_means"), CONFIG)
    labels = np.asarray(task.gallery_labels)
    fitted = build_detector("class_means", {}).fit(task.gallery[task.gallery_mask], labels[task.gallery_mask])
    assert result.per_query[SCORE].to_numpy() == pytest.approx(fitted.score(task.queries), abs=1e-12)


def unknown_set(seed: int, *, landmark: int | None = None, dim: int = 6) -> Embeddings:
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(25, dim)))
    landmarks = None if landmark is None else np.full(25, landmark)
    return Embeddings(vectors, None, landmarks, Path("unknown.npy"))


def test_sets_of_unknown_images_are_reported_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgld.rejection.rejected_queries.N_RESAMPLES", 60)
    task = retrieval_task()
    rejection = RejectionConfig(unknown={"near": unknown_set(5), "far": unknown_set(6)})
    result = evaluate_rejected(task, rejection, CONFIG)
    answers = unknown_answers(task, rejection, config=CONFIG)
    for name, own in answers.items():
        expected = -cosines(replace(task, queries=rejection.unknown[name].vectors)).max(1)
        assert own.scores == pytest.approx(expected, abs=1e-12)
        assert not own.right.any()
    report = not_none(rejection_report(result, rejection, answers))
    assert list(report.unknown) == [QUERIES_WITHOUT_POSITIVES, "near", "far"]
    known = result.per_query["positives_l2"].to_numpy() > 0
    scores, right = result.per_query[SCORE].to_numpy(), result.per_query["right_l2"].to_numpy()
    for name, own in answers.items():
        figures = report.unknown[name]
        pairs = scores[known][:, None] < own.scores
        assert figures.detection["auroc"] == pytest.approx(pairs.mean())
        low, high = figures.detection_intervals["auroc"]
        assert low <= pairs.mean() <= high
        gap = gap_oracle(
            np.append(scores[known], own.scores), np.append(right[known], np.zeros(25, bool)), known.sum()
        )
        assert figures.levels[0].gap == pytest.approx(gap)
        assert figures.levels[0].intervals["gap"][0] <= gap <= figures.levels[0].intervals["gap"][1]
        assert (figures.n_known, figures.n_unknown) == (known.sum(), 25)
    # The queries themselves, those without positives among them.
    assert report.levels[0].gap == pytest.approx(gap_oracle(scores, right, known.sum()))
    assert report.unknown[QUERIES_WITHOUT_POSITIVES].n_unknown == (~known).sum()


def gap_oracle(scores: np.ndarray, right: np.ndarray, n_known: int) -> float:
    order = np.argsort(scores, kind="stable")
    hits = [sum(right[order[: rank + 1]]) / (rank + 1) for rank in range(len(order)) if right[order[rank]]]
    return float(sum(hits) / n_known)


def test_metrics_at_a_coverage_are_means_over_the_accepted() -> None:
    rejection = RejectionConfig(precision=0.6, coverages=(1.0, 0.5, 0.01))
    result = evaluate_rejected(retrieval_task(), rejection, CONFIG)
    report = not_none(rejection_report(result, rejection, {}, intervals=False))
    whole, half, none = report.coverages
    order = np.argsort(result.per_query[SCORE].to_numpy())
    accepted = result.per_query.iloc[order[:15]]
    assert whole.means == pytest.approx(result.means)
    assert half.n_accepted == 15
    assert half.means == pytest.approx({name: accepted[name].mean() for name in result.metrics})
    assert half.risk == pytest.approx(1 - accepted["right_l2"].mean())
    assert half.threshold == accepted[SCORE].max()
    assert none.n_accepted == 0
    assert np.isnan([none.risk, *none.means.values()]).all()
    threshold = report.threshold
    assert threshold.precision is not None
    assert threshold.precision >= 0.6
    kept = result.per_query[result.per_query[SCORE] <= threshold.value]
    assert threshold.precision == pytest.approx(kept["right_l2"].mean())
    assert report.means_at_threshold["H-AP"] == pytest.approx(kept["H-AP"].mean())
    assert report.levels[0].intervals == {}


def test_near_images_may_be_right_at_a_coarser_level() -> None:
    landmarks = np.arange(41)
    table = {"split": "train", "landmark_id": landmarks, "natural_or_human_made": "natural"}
    hierarchy = Hierarchy.from_pandas(
        pd.DataFrame(table).assign(hierarchical_label=[f"group {landmark % 2}" for landmark in landmarks])
    )
    vectors, classes = images(50, 1, 6)
    labels = labels_from_landmarks(classes[:, 0], hierarchy)
    assert labels.labels.shape == (50, 3)
    task = query_gallery_task(vectors[:5], labels.labels[:5], vectors, labels.labels, level_names=labels.level_names)

    def near(landmark: int, score: str = "top1_cosine") -> tuple[RetrievalTask, RejectionConfig]:
        rejection = RejectionConfig(score, unknown={"near": unknown_set(5, landmark=landmark)})
        return task, rejection

    first = cosines(replace(task, queries=unknown_set(5).vectors)).argmax(1)
    for score in ("top1_cosine", "class_means"):
        answers = unknown_answers(*near(40, score), hierarchy)["near"]
        assert answers.known.tolist() == [[False, True, True]] * 25
        assert (answers.right[:, 1] == (classes[first, 0] % 2 == 0)).all()
        assert not answers.right[:, 0].any()
    # Without a hierarchy the levels are not those of the task, and nothing is right.
    assert not unknown_answers(*near(40))["near"].right.any()
    with pytest.raises(InputError, match="25 of 25 images of the unknown set near show landmarks of the gallery"):
        unknown_answers(*near(3), hierarchy)


def test_unknown_images_of_landmarks_of_the_gallery_are_refused_where_positives_are_lists() -> None:
    gallery, labels = images(50, 1, 6)
    judgements = ListJudgements(RaggedIndices.from_lists([[0]] * 5), 50)
    task = RetrievalTask("lists", gallery[:5], gallery, judgements, index_labels=labels[:, :1])
    for landmark in (3, 40):
        rejection = RejectionConfig("class_means", unknown={"near": unknown_set(5, landmark=landmark)})
        if landmark == 40:
            assert not unknown_answers(task, rejection)["near"].known.any()
            continue
        with pytest.raises(InputError, match="25 of 25 images of the unknown set near show landmarks of the gallery"):
            unknown_answers(task, rejection)


def test_landmarks_of_unknown_images_are_those_of_the_split_of_the_protocol() -> None:
    table = pd.DataFrame(
        {"landmark_id": np.arange(41), "hierarchical_label": "lake", "natural_or_human_made": "natural"}
    )
    hierarchy = Hierarchy.from_pandas(pd.concat([table.assign(split=split) for split in ("train", "index")]))
    vectors, classes = images(50, 1, 6)
    labels = labels_from_landmarks(classes[:, 0], hierarchy, "index")
    task = query_gallery_task(vectors[:5], labels.labels[:5], vectors, labels.labels, level_names=labels.level_names)
    rejection = RejectionConfig(unknown={"near": unknown_set(5, landmark=40)})
    answers = unknown_answers(replace(task, landmark_split="index"), rejection, hierarchy)
    assert answers["near"].right.tolist() == [[False, True, True]] * 25


@pytest.mark.parametrize(
    ("task", "rejection", "message"),
    [
        ("leave-one-out", {"score": "class_means"}, "not ranked for every query, such as image 0 for query 0"),
        ("lists", {"score": "soft_vote"}, "soft_vote needs one label per image and level, which this gallery lacks"),
        ("several labels", {"score": "soft_vote"}, "soft_vote needs one label per image and level"),
        ("retrieval", {"score": "nothing"}, "there is no score nothing"),
        ("retrieval", {"options": {"k": 2}}, "option k of the score top1_cosine"),
        ("retrieval", {"precision": 1.5}, "the wanted precision is 1.5"),
        ("retrieval", {"coverages": (0.0,)}, "the wanted coverage is 0.0"),
    ],
)
def test_what_cannot_be_scored_gets_one_clear_line(task: str, rejection: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigurationError, InputError), match=message):
        RejectedQueries(tasks()[task], RejectionConfig(**rejection))


def test_fitted_scores_have_to_fit_the_gallery() -> None:
    task = retrieval_task()
    labels = np.asarray(task.gallery_labels)

    def message(detector: Any) -> str:
        with pytest.raises((ConfigurationError, InputError)) as error:
            RejectedQueries(task, RejectionConfig(detector=detector))
        return str(error.value)

    assert "are not the 50 of the gallery" in message(build_detector("top1_cosine", {}).fit(task.queries))
    narrow = build_detector("class_means", {}).fit(task.gallery[:, :4], labels)
    assert "have 6 dimensions, and the score class_means was fitted on 4" in message(narrow)
    other = build_detector("soft_vote", {}).fit(task.gallery, labels + 1)
    assert "was fitted with other labels of its 50 images" in message(other)
    with pytest.raises(ConfigurationError, match="`options` are those of a score to fit"):
        RejectionConfig(options={"k": 2}, detector=other)
    with pytest.raises(InputError, match="has 5 dimensions, and the gallery 6"):
        RejectedQueries(task, RejectionConfig(unknown={"far": unknown_set(1, dim=5)}))
