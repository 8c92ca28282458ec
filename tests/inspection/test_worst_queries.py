from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from hgld.errors import ConfigurationError
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.relevance import LabelJudgements
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.inspection.queries import find_worst_queries
from hgld.ragged import RaggedIndices


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "mAP"}, r"the result has no metric mAP; choose one of mAP@R, R@1"),
        ({"n": 0}, "`n` is 0; expected at least 1"),
        ({"k": 0}, "`k` is 0; expected at least 1"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    embeddings, labels = np.eye(2), np.array([[0], [0]])
    result = evaluate_retrieval(embeddings, labels)
    with pytest.raises(ConfigurationError, match=message):
        find_worst_queries(result, retrieval_task(embeddings, labels), **arguments)


def test_result_of_a_subset_of_the_queries_is_refused() -> None:
    embeddings, labels = np.eye(2), np.array([[0], [0]])
    part = evaluate_retrieval(embeddings, labels).part("public", np.array([False, True]))
    with pytest.raises(ConfigurationError, match="the result covers 1 queries, but the task has 2; give"):
        find_worst_queries(part, retrieval_task(embeddings, labels))
