"""The worst queries, and those that two methods rank most differently, with their picture."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.errors import ConfigurationError
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import LabelJudgements, RetrievalTask
from hgld.figures.style import level_styles
from hgld.inspection.method_differences import find_method_differences
from hgld.inspection.queries import find_worst_queries
from hgld.inspection.query_pages import draw_method_differences
from hgld.ragged import RaggedIndices
from tests.inspection.toy_pages import method_differences, photos


def retrieval_task(embeddings: npt.NDArray[Any], labels: npt.NDArray[Any]) -> RetrievalTask:
    vectors = torch.from_numpy(embeddings)
    return RetrievalTask("alone", vectors, vectors, LabelJudgements(labels, labels))


def test_lowest_queries_come_first_with_their_nearest_items() -> None:
    rng = np.random.default_rng(2)
    embeddings = rng.normal(size=(60, 6)).astype(np.float32)
    rows = np.arange(60)
    labels = np.stack([rows // 3, rows // 15], axis=1)
    labels[-1] = 99  # shares nothing with any other, so its value is NaN
    result = evaluate_retrieval(embeddings, labels)
    excluded = RaggedIndices.from_lists([[row] for row in range(60)])
    gallery_mask = rows % 7 != 0
    task = replace(retrieval_task(embeddings, labels), excluded=excluded, gallery_mask=gallery_mask)
    worst = find_worst_queries(result, task, metric="AP_l1", n=7, k=4)

    values = result.per_query["AP_l1"].to_numpy()
    assert worst.queries.tolist() == sorted(range(59), key=lambda row: values[row])[:7]
    assert worst.per_query.equals(result.per_query.loc[worst.queries])
    lengths = np.linalg.norm(embeddings, axis=1)
    cosines = embeddings @ embeddings.T / lengths / lengths[:, None]
    top_k = worst.top_k
    for query, positions, levels, scores in zip(
        worst.queries, top_k.positions, top_k.levels, top_k.scores, strict=True
    ):
        allowed = [item for item in rows if item != query and gallery_mask[item]]
        assert positions.tolist() == sorted(allowed, key=lambda item, query=query: -cosines[query, item])[:4]  # type: ignore[misc]
        assert levels.tolist() == (labels[positions] == labels[query]).sum(axis=1).tolist()
        np.testing.assert_allclose(scores, cosines[query, positions], atol=1e-6)


def test_fewer_queries_and_items_than_requested() -> None:
    embeddings, labels = np.eye(3), np.array([[0], [0], [1]])
    result = evaluate_retrieval(embeddings, labels)
    excluded = RaggedIndices.from_lists([[0], [1], [2]])
    worst = find_worst_queries(result, replace(retrieval_task(embeddings, labels), excluded=excluded))
    assert worst.queries.tolist() == [0, 1]  # ties keep the order of the queries
    assert worst.top_k.positions[:, :3].tolist() == [[1, 2, -1], [0, 2, -1]]
    assert worst.top_k.levels[:, :3].tolist() == [[1, 0, 0], [1, 0, 0]]


def test_result_of_a_subset_of_the_queries_is_refused() -> None:
    embeddings, labels = np.eye(2), np.array([[0], [0]])
    part = evaluate_retrieval(embeddings, labels).part("public", np.array([False, True]))
    with pytest.raises(ConfigurationError, match="the result covers 1 queries, but the task has 2; give"):
        find_worst_queries(part, retrieval_task(embeddings, labels))


def leave_one_out_task(embeddings: npt.NDArray[Any], labels: npt.NDArray[Any]) -> RetrievalTask:
    vectors, n = torch.from_numpy(embeddings), len(embeddings)
    excluded = RaggedIndices.from_lists([[row] for row in range(n)])
    return RetrievalTask(
        "alone", vectors, vectors, LabelJudgements(labels, labels), query_labels=labels, excluded=excluded
    )


def result(name: str, values: list[float]) -> RetrievalResult:
    return RetrievalResult(name, pd.DataFrame({"H-AP": values}), ("H-AP",), {"queries": len(values)}, {})


def task_of_classes(classes: list[int]) -> RetrievalTask:
    return leave_one_out_task(np.eye(len(classes), dtype=np.float32), np.array(classes)[:, None])


# Which queries


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 0.25, 0.5, np.nan]), st.sampled_from([0.0, 0.2, 0.5]), st.integers(0, 4)
        ),
        min_size=2,
        max_size=12,
    ),
    st.integers(1, 6),
)
def test_largest_gains_and_losses_are_selected_once_per_class(rows: list[tuple[float, float, int]], n: int) -> None:
    baseline, method, classes = ([row[column] for row in rows] for column in range(3))
    task = task_of_classes([int(c) for c in classes])
    selected = find_method_differences((result("a", baseline), result("b", method)), (task, task), n=n, k=2)

    differences = [own - other for own, other in zip(method, baseline, strict=True)]
    remaining = [row for row in range(len(rows)) if abs(differences[row]) > 0]
    better: list[int] = []
    worse: list[int] = []
    while remaining:  # select the one that differs most, then drop all others of its class
        row = max(remaining, key=lambda row: abs(differences[row]))
        part, limit = (better, n - n // 2) if differences[row] > 0 else (worse, n // 2)
        if len(part) < limit:
            part.append(row)
            remaining = [other for other in remaining if classes[other] != classes[row]]
        else:
            remaining.remove(row)
    if not better + worse:
        assert selected is None
        return
    assert selected is not None
    assert selected.queries.tolist() == better + worse
    assert selected.n_improved == len(better)
    known = [difference for difference in differences if not np.isnan(difference)]
    signs = [sum(np.sign(known) == sign) for sign in (1, -1, 0)]
    assert [selected.total_improved, selected.total_degraded, selected.total_equal] == signs
    assert selected.mean_difference == pytest.approx(np.mean(known))
    assert selected.differences.tolist() == [differences[row] for row in selected.queries]


def test_each_method_has_its_own_top_k() -> None:
    rng = np.random.default_rng(3)
    labels = np.stack([np.arange(24) // 3, np.arange(24) // 12], axis=1)
    both = [rng.normal(size=(24, 5)).astype(np.float32) for _ in range(2)]
    results = [
        replace(evaluate_retrieval(vectors, labels), name=name) for vectors, name in zip(both, "ab", strict=True)
    ]
    tasks = leave_one_out_task(both[0], labels), leave_one_out_task(both[1], labels)
    selected = find_method_differences((results[0], results[1]), tasks, n=4, k=3)
    assert selected is not None
    assert (selected.n_levels, len(selected.queries), selected.n_improved) == (2, 4, 2)
    for side, vectors, whole in zip((selected.baseline, selected.method), both, results, strict=True):
        assert side.name == whole.name
        assert side.per_query.equals(whole.per_query.iloc[selected.queries])
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for query, items, levels in zip(selected.queries, side.top_k.positions, side.top_k.levels, strict=True):
            order = [item for item in np.argsort(-unit @ unit[query]) if item != query]
            assert items.tolist() == order[:3]
            assert levels.tolist() == (labels[items] == labels[query]).sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "NDCG"}, "the result has no metric NDCG; choose one of H-AP"),
        ({"n": 0}, "`n` is 0; expected at least 1"),
        ({"k": 0}, "`k` is 0; expected at least 1"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    task, results = task_of_classes([0, 1]), (result("a", [0.5, 0.5]), result("b", [0.6, 0.4]))
    with pytest.raises(ConfigurationError, match=message):
        find_worst_queries(results[0], task, **arguments)
    with pytest.raises(ConfigurationError, match=message):
        find_method_differences(results, (task, task), **arguments)


def test_results_and_tasks_must_match() -> None:
    task, first, second = task_of_classes([0, 1]), result("a", [0.5, 0.5]), result("b", [0.6, 0.4])
    others = replace(second, per_query=second.per_query.set_axis(["x", "y"]))
    with pytest.raises(ConfigurationError, match="a and b were not evaluated with the same images"):
        find_method_differences((first, others), (task, task))
    larger_gallery = RetrievalTask(
        "more", task.queries, torch.eye(3)[:, :2], LabelJudgements(np.zeros((2, 1), int), np.zeros((3, 1), int))
    )
    with pytest.raises(ConfigurationError, match="a and b were not evaluated with the same images"):
        find_method_differences((first, second), (task, larger_gallery))
    with pytest.raises(ConfigurationError, match="`tasks` needs query labels"):
        find_method_differences((first, second), (replace(task, query_labels=None), task))
    with pytest.raises(ConfigurationError, match="the result covers 2 queries, but the task has 3"):
        find_method_differences((first, second), (task_of_classes([0, 1, 2]), task))


# The picture


def colour_mask(path: Path, colour: str) -> npt.NDArray[np.bool_]:
    """Return which pixels of a picture have a colour: bool, shape (h, w)."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return np.asarray((pixels == [int(colour[at : at + 2], 16) for at in (1, 3, 5)]).all(axis=2))


def colour_share(path: Path, colour: str) -> float:
    return float(colour_mask(path, colour).mean())


def test_frames_of_the_picture_show_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgld.figures.style.DPI", 150)
    path = tmp_path / "strips.png"
    levels = [[[3] * 2, [2] * 2], [[1] * 2, [0] * 2], [[3] * 2, [2] * 2]]
    draw_method_differences(path, method_differences(levels, 2), photos())
    green, orange, yellow, red = (colour_share(path, style.colour) for style in level_styles(3, None))
    assert (
        green == pytest.approx(orange, rel=0.05) == pytest.approx(2 * yellow, rel=0.1)
    )  # the legend has one of each
    assert yellow == pytest.approx(red, rel=0.05)
    draw_method_differences(path, method_differences(levels, 2), photos(), max_queries=1)
    assert colour_share(path, level_styles(3, None)[3].colour) < red / 4  # that query is not drawn


def test_picture_shows_whole_photographs_or_ids(tmp_path: Path) -> None:
    path = tmp_path / "strips.png"
    differences = method_differences([[[3], [3]]], 1, ("a_$b", "c^$"))  # not mathematical text
    draw_method_differences(path, differences, photos(lambda _: Image.new("RGB", (200, 100), "#123456")))
    columns = colour_mask(path, "#123456").any(axis=0)
    query = colour_mask(path, "#123456")[:, : np.flatnonzero(~columns & (np.cumsum(columns) > 0))[0]]
    height, width = (np.ptp(np.flatnonzero(query.any(axis=axis))) + 1 for axis in (1, 0))
    assert width == pytest.approx(2 * height, abs=3)
    draw_method_differences(path, differences, photos(lambda _: None))
    assert colour_share(path, "#123456") == 0
