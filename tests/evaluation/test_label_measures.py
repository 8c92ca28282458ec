"""Measures beside the metrics of rankings, against slow versions of their definitions."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError
from hgld.evaluation import evaluate_retrieval, grouped_recall, label_noise_ceiling, path_consistency
from hgld.hierarchy.label_matrix import LabelSets
from tests.commands import run_hgld

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def data(n: int, seed: int, n_classes: int = 12) -> tuple[Array, Labels]:
    """Embeddings of classes that overlap, and labels of three levels; scores have no ties."""
    rng = np.random.default_rng(seed)
    finest = rng.integers(n_classes, size=n)
    embeddings = rng.normal(size=(n_classes, 6))[finest] + rng.normal(size=(n, 6))
    return embeddings, np.stack([finest, finest // 3, finest // 6], axis=1)


def nearest_first(query: Array, gallery: Array) -> list[int]:
    order: list[int] = np.argsort(-(gallery @ query) / np.linalg.norm(gallery, axis=1)).tolist()
    return order


def slow_path_consistency(
    queries: Array, query_labels: Labels, gallery: Array, gallery_labels: Labels, k: int, leave_one_out: bool
) -> dict[str, float]:
    """Count the votes of each level, as the definitions say; the tree is the set of paths of the gallery."""
    tree = {tuple(path) for path in gallery_labels.tolist()}
    right, inconsistent = [], []
    for row, query in enumerate(queries):
        ranked = [item for item in nearest_first(query, gallery) if not (leave_one_out and item == row)]
        path = []
        for column in gallery_labels[ranked[:k]].T.tolist():
            votes = Counter(column)
            path.append(max(votes, key=lambda label: (votes[label], -column.index(label))))
        inconsistent.append(tuple(path) not in tree)
        if query_labels[row, 0] in gallery_labels[ranked, 0]:
            right.append(path == query_labels[row].tolist())
    return {f"FPA@{k}": float(np.mean(right)), f"TICE@{k}": float(np.mean(inconsistent))}


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 3), st.booleans())
def test_votes_agree_with_a_slow_count(seed: int, k: int, n_levels: int, leave_one_out: bool) -> None:
    (gallery, others), (queries, own) = data(40, seed), data(40, seed) if leave_one_out else data(15, seed + 1)
    own, others = own[:, :n_levels], others[:, :n_levels]
    expected = slow_path_consistency(queries, own, gallery, others, k, leave_one_out)
    arrays = (queries, torch.from_numpy(own)) if leave_one_out else (queries, own, gallery, others)
    assert path_consistency(*arrays, k=k) == expected


def test_a_single_neighbour_is_consistent_and_full_path_accuracy_its_recall() -> None:
    embeddings, labels = data(40, seed=0)
    recall = evaluate_retrieval(embeddings, labels, metrics=["R@1"]).means["R@1"]
    assert path_consistency(embeddings, labels, k=1) == {"FPA@1": recall, "TICE@1": 0.0}


def test_images_without_labels_or_with_few_neighbours_do_not_vote() -> None:
    embeddings, labels = data(30, seed=3)
    labels[::3] = -1
    known = labels[:, 0] >= 0
    assert path_consistency(embeddings, labels) == path_consistency(embeddings[known], labels[known])
    assert path_consistency(embeddings, labels[:, 0]) == path_consistency(embeddings, labels[:, :1])
    with pytest.raises(ConfigurationError, match="P@20 needs k between 1 and the 19 gallery items that are ranked"):
        path_consistency(embeddings, labels, k=20)
    several = LabelSets.from_lists([np.array([[0, 0], [1, 0]]), np.array([[0, 0]])])
    with pytest.raises(ConfigurationError, match="one label per image and level"):
        path_consistency(embeddings[:2], several, k=1)  # type: ignore[arg-type]


def slow_grouped_recall(embeddings: Array, labels: Labels, groups: list[list[int]], k: int) -> float:
    recalls = []
    for group in groups:
        rows = [row for row in range(len(labels)) if labels[row] in group]
        hits = []
        for row in rows:
            others = [other for other in nearest_first(embeddings[row], embeddings) if other in rows and other != row]
            if any(labels[other] == labels[row] for other in others):
                hits.append(any(labels[other] == labels[row] for other in others[:k]))
        recalls += [np.mean(hits)] if hits else []
    return float(np.mean(recalls))


@given(st.integers(0, 1000), st.integers(2, 6), st.integers(1, 3), st.integers(1, 3))
def test_grouped_recall_agrees_with_a_slow_version(seed: int, n_classes: int, k: int, level: int) -> None:
    embeddings, labels = data(60, seed, n_classes=40)
    column = labels[:, 3 - level]
    classes = np.unique(column)
    order = np.random.default_rng(5).permutation(len(classes))
    groups = [
        classes[order[start : start + n_classes]].tolist()
        for start in range(0, len(classes) - n_classes + 1, n_classes)
    ]
    ours = grouped_recall(embeddings, labels, k=k, level=level, classes_per_group=n_classes, seed=5)
    assert ours == pytest.approx(slow_grouped_recall(embeddings, column, groups, k), abs=1e-12)


def test_a_group_of_all_classes_has_the_recall_of_the_set() -> None:
    embeddings, labels = data(60, seed=0)
    labels[::7] = -1
    expected = evaluate_retrieval(embeddings, labels, metrics=["R@2"]).means["R@2"]
    n_classes = len(np.unique(labels[:, 0])) - 1
    assert grouped_recall(embeddings, labels, k=2, classes_per_group=n_classes) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(
        ConfigurationError, match=r"`classes_per_group` is 13; expected 1 to 12, the number of classes"
    ):
        grouped_recall(embeddings, labels, classes_per_group=13)
    assert math.isnan(grouped_recall(embeddings, np.arange(60), classes_per_group=2))


def test_grouped_recall_does_not_depend_on_the_number_of_classes() -> None:
    rng = np.random.default_rng(0)
    recalls = {}
    for n_classes in (20, 400):
        labels = np.repeat(np.arange(n_classes), 5)
        embeddings = rng.normal(size=(n_classes, 16))[labels] + rng.normal(size=(len(labels), 16))
        recall = evaluate_retrieval(embeddings, labels, metrics=["R@1"]).means["R@1"]
        recalls[n_classes] = recall, grouped_recall(embeddings, labels)
    assert recalls[20][0] - recalls[400][0] > 0.2
    assert recalls[20][1] == pytest.approx(recalls[400][1], abs=0.06)


probabilities = st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda row: sum(row) > 0.01)


@given(st.lists(probabilities, min_size=2, max_size=5))
def test_no_ranking_is_above_the_ceiling(rows: list[list[float]]) -> None:
    """All images, each with the probabilities of its labels; every other image is tried as the first of a ranking."""
    labels = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    agreement = np.mean([sum(own**2) for own in labels])
    best = np.mean(
        [max(sum(own * other) for j, other in enumerate(labels) if j != i) for i, own in enumerate(labels)]
    )
    assert best <= label_noise_ceiling(min(1.0, agreement)) + 1e-12


def test_the_ceiling_is_nearly_reached_where_errors_differ() -> None:
    # Annotators who err give one of many labels; the item ranked first surely has the label that they give most.
    labels, first = np.array([0.7, *[0.001] * 300]), np.array([1.0, *[0.0] * 300])
    ceiling = label_noise_ceiling(float(labels @ labels))
    assert float(labels @ first) == 0.7 < ceiling == pytest.approx(0.7, abs=3e-4)
    assert label_noise_ceiling(1) == 1
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ConfigurationError, match="`agreement` is .*; expected a share between 0 and 1"):
            label_noise_ceiling(wrong)


@pytest.mark.parametrize("accuracy", [0.7, 0.95])
def test_ceiling_of_simulated_annotators(accuracy: float) -> None:
    """A perfect ranking by true classes, measured with labels that annotators gave: its R@1 is their agreement."""
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(8), 150)

    def annotate() -> Labels:
        """Errors are confusions with the next class, which makes agreement on wrong labels frequent."""
        return np.where(rng.random(len(true)) < accuracy, true, (true + 1) % 8)

    agreement = float(np.mean(annotate() == annotate()))
    perfect = np.eye(8)[true] + 0.01 * rng.normal(size=(len(true), 8))
    assert evaluate_retrieval(perfect, true, metrics=["R@1"]).means["R@1"] == 1
    runs = [evaluate_retrieval(perfect, annotate(), metrics=["R@1", "P@20", "mAP@R"]).means for _ in range(5)]
    means = {name: np.mean([run[name] for run in runs]) for name in runs[0]}
    assert means["R@1"] == pytest.approx(agreement, abs=0.02)
    assert means["P@20"] == pytest.approx(agreement, abs=0.02)
    assert means["mAP@R"] < agreement < label_noise_ceiling(agreement)
    assert accuracy <= label_noise_ceiling(agreement) + 0.01


def test_ceiling_does_not_hold_for_labels_of_classes() -> None:
    """Where the images of a landmark share a decision, their neighbours have the same label, right or wrong."""
    landmark = np.repeat(np.arange(40), 5)
    decisions = np.random.default_rng(0).integers(2, size=40)  # annotators that guess agree on half of the landmarks
    embeddings = np.random.default_rng(1).normal(size=(40, 16))[landmark]
    embeddings += 0.01 * np.random.default_rng(2).normal(size=embeddings.shape)
    recall = evaluate_retrieval(embeddings, decisions[landmark], metrics=["R@1"]).means["R@1"]
    assert recall == 1 > label_noise_ceiling(0.5)


def test_unequal_classes_break_the_bound_for_map_at_r() -> None:
    """One image of label 0 before 99 of label 1 serves a query that may have either label."""
    gallery = np.r_[0, np.ones(99, int)]
    cosines = np.linspace(0.9, 0.1, 100)
    items = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    means = [
        evaluate_retrieval(np.eye(1, 2), np.array([label]), items, gallery, metrics=["mAP@R"]).means["mAP@R"]
        for label in (0, 1)
    ]
    assert np.mean(means) > 0.95 > label_noise_ceiling(0.5)


def test_evaluate_says_how_far_recall_is_from_what_labels_allow(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", np.repeat(np.eye(4, dtype=np.float32), 2, axis=0))
    np.save(tmp_path / "l.npy", np.array([0, 0, 1, 1, 2, 2, 2, 3]))
    files = ["--embeddings", str(tmp_path / "e.npy"), "--labels", str(tmp_path / "l.npy")]
    result = run_hgld("evaluate", *files, "--no-intervals", "--agreement", "0.64")
    assert "leave-one-out: R@1 is 85.71 of at most 91.43 that labels of this agreement allow\n" in result.stdout
    result = run_hgld("evaluate", *files, "--agreement", "93", code=1)
    assert result.stderr == "error: --agreement is 93.0; expected a share between 0 and 1\n"
