"""Measures beside the metrics of rankings, against slow versions of their definitions."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hgld
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import evaluate_retrieval, grouped_recall, label_noise_ceiling, path_consistency
from hgld.hierarchy.label_matrix import LabelSets
from tests.child_processes import run_in_two_processes
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
    cosines = [float(query @ item / np.linalg.norm(item)) for item in gallery]
    return sorted(range(len(gallery)), key=lambda item: -cosines[item])


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


@given(st.integers(0, 1000), st.integers(1, 12), st.booleans())
def test_votes_agree_with_a_slow_count(seed: int, k: int, leave_one_out: bool) -> None:
    gallery, gallery_labels = data(40, seed)
    queries, query_labels = (gallery, gallery_labels) if leave_one_out else data(15, seed + 1)
    expected = slow_path_consistency(queries, query_labels, gallery, gallery_labels, k, leave_one_out)
    arrays = (queries, query_labels) if leave_one_out else (queries, query_labels, gallery, gallery_labels)
    assert path_consistency(*arrays, k=k) == expected


@given(st.integers(0, 1000))
def test_a_single_neighbour_is_consistent_and_full_path_accuracy_its_recall(seed: int) -> None:
    embeddings, labels = data(40, seed)
    expected = evaluate_retrieval(embeddings, labels, metrics=["R@1"]).means["R@1"]
    assert path_consistency(embeddings, torch.from_numpy(labels), k=1) == {"FPA@1": expected, "TICE@1": 0.0}


@given(st.integers(0, 1000), st.integers(1, 9))
def test_levels_of_one_class_are_consistent(seed: int, k: int) -> None:
    embeddings, labels = data(40, seed)
    one_level = path_consistency(embeddings, labels[:, 0], k=k)
    assert one_level[f"TICE@{k}"] == 0
    # A level more can only add mistakes, and what is inconsistent is wrong.
    all_levels = path_consistency(embeddings, labels, k=k)
    assert all_levels[f"FPA@{k}"] <= one_level[f"FPA@{k}"]


def test_images_without_labels_or_with_few_neighbours_do_not_vote() -> None:
    embeddings, labels = data(30, seed=3)
    labels[::3] = -1
    known = labels[:, 0] >= 0
    assert path_consistency(embeddings, labels) == path_consistency(embeddings[known], labels[known])
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


METRICS = ["H-AP", "R@1", "mAP@R", "NDCG", "AP_l1"]


def batches_data(n: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings, some of them copies of others so that scores are equal, and labels of three levels."""
    rng = np.random.default_rng(seed)
    finest = rng.integers(12, size=n)
    embeddings = rng.normal(size=(12, 8))[finest] + rng.normal(size=(n, 8))
    embeddings[: n // 6] = embeddings[n // 6 : n // 6 * 2]
    labels = np.stack([finest, finest // 3, finest // 6], axis=1)
    return torch.from_numpy(embeddings.astype(np.float32)), torch.from_numpy(labels)


@given(st.lists(st.integers(0, 60), max_size=5))
def test_batches_do_not_matter(stops: list[int]) -> None:
    embeddings, labels = batches_data()
    metric = hgld.RetrievalMetric(METRICS, relevance_alpha=2.0)
    for start, stop in zip([0, *sorted(stops)], [*sorted(stops), 60], strict=True):  # some batches are empty
        metric.update(embeddings[start:stop], labels[start:stop])
    assert metric.compute() == evaluate_retrieval(embeddings, labels, metrics=METRICS, relevance_alpha=2.0).means


def test_a_metric_can_be_used_again() -> None:
    metric = hgld.RetrievalMetric()
    for seed in (0, 1):
        embeddings, labels = batches_data(seed=seed)
        metric.update(embeddings.requires_grad_(), labels.numpy().astype(np.int32))
        embeddings.detach().zero_()  # the memory of a batch may be used again
        expected = evaluate_retrieval(batches_data(seed=seed)[0], labels).means
        assert metric.compute() == metric.compute() == expected
        metric.reset()
    with pytest.raises(InputError, match="no images were added; call `update`"):
        metric.compute()


@pytest.mark.parametrize("kind", [str, int])
@given(order=st.permutations(range(60)), repeated=st.lists(st.integers(0, 59), max_size=5))
def test_with_ids_neither_order_nor_repeated_images_matter(kind: Any, order: list[int], repeated: list[int]) -> None:
    embeddings, labels = batches_data()
    ids = np.array([kind(1000 + row) for row in range(60)])
    metric = hgld.RetrievalMetric(METRICS)
    for rows in (order[:7], order[7:], repeated):
        metric.update(embeddings[rows], labels[rows], ids=ids[rows])
    assert metric.compute() == evaluate_retrieval(embeddings, labels, metrics=METRICS).means


def test_queries_and_a_gallery() -> None:
    embeddings, labels = batches_data()
    is_query = torch.arange(60) % 4 == 0
    rows = (is_query, ~is_query)
    expected = evaluate_retrieval(
        *(part[own] for own in rows for part in (embeddings, labels)), metrics=METRICS
    ).means
    metric = hgld.RetrievalMetric(METRICS)
    for batch in torch.split(torch.arange(60), 9):
        metric.update(embeddings[batch], labels[batch], is_query=is_query[batch])
    assert metric.compute() == expected
    # All images in the gallery, some of them queries as well, which do not find themselves.
    metric.reset()
    ids = torch.arange(60)
    metric.update(embeddings, labels, is_query=torch.zeros(60, dtype=torch.bool), ids=ids)
    metric.update(embeddings[is_query], labels[is_query], is_query=is_query[is_query], ids=ids[is_query])
    both: dict[str, Any] = {"query_ids": ids[is_query].numpy(), "gallery_ids": ids.numpy(), "metrics": METRICS}
    expected = evaluate_retrieval(embeddings[is_query], labels[is_query], embeddings, labels, **both).means
    assert metric.compute() == expected
    assert expected["R@1"] < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": torch.zeros(5, 3).long()}, "the arguments of a batch have 6, 5 rows; expected the same number"),
        ({"is_query": [True]}, "the arguments of a batch have 6, 6, 1 rows"),
        ({"labels": torch.zeros(6, 3)}, "the query labels have .* the type float32; expected integers"),
        ({"labels": LabelSets.from_lists([np.zeros((1, 3), int)] * 6)}, "one label per image and level"),
    ],
)
def test_inconsistent_batches_are_refused(options: dict[str, Any], message: str) -> None:
    embeddings, labels = batches_data(6)
    with pytest.raises(InputError, match=message):
        hgld.RetrievalMetric().update(**{"embeddings": embeddings, "labels": labels, **options})


@pytest.mark.parametrize("name", ["is_query", "ids"])
def test_all_batches_have_the_same_arguments(name: str) -> None:
    metric = hgld.RetrievalMetric()
    metric.update(*batches_data(6))
    more: dict[str, Any] = {name: np.arange(6)}
    metric.update(*batches_data(6), **more)
    with pytest.raises(InputError, match=f"only some batches have `{name}`; give it with all batches, or none"):
        metric.compute()


def test_unknown_metrics_and_settings_are_refused() -> None:
    metric = hgld.RetrievalMetric(["no-such-metric"])
    metric.update(*batches_data(6))
    with pytest.raises(ConfigurationError, match="there is no metric 'no-such-metric'"):
        metric.compute()
    with pytest.raises(TypeError, match="colour"):
        hgld.RetrievalMetric(colour="red")


#: Each process adds its images in batches; by rank as slices, and with ids as DistributedSampler does, which repeats
#: an image so that both have as many. A third time the second process has none.
SCRIPT = """
import json, torch
from torch.utils.data import DistributedSampler
import hgld
from hgld.compute.processes import joined_processes
from tests.evaluation.test_measures import METRICS, batches_data

embeddings, labels = batches_data(61)
with joined_processes() as processes:
    results = []
    for ids, rows in (
        (False, torch.arange(61).tensor_split(2)[processes.rank]),
        (True, torch.tensor([*DistributedSampler(range(61), 2, processes.rank, shuffle=True)])),
        (False, torch.arange(61 * (1 - processes.rank))),
    ):
        metric = hgld.RetrievalMetric(METRICS)
        for batch in rows.split(7):
            if len(batch):
                metric.update(embeddings[batch], labels[batch], ids=batch if ids else None)
        results.append(metric.compute())
    print(json.dumps(results))
"""


@pytest.mark.slow
def test_two_processes_have_the_numbers_of_one() -> None:
    expected = evaluate_retrieval(*batches_data(61), metrics=METRICS).means
    assert [json.loads(printed) for printed in run_in_two_processes("-c", SCRIPT)] == [[expected] * 3] * 2
