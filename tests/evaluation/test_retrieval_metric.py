import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hgld
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import evaluate_retrieval
from hgld.hierarchy.label_matrix import LabelSets
from tests.child_processes import run_in_two_processes

METRICS = ["H-AP", "R@1", "mAP@R", "NDCG", "AP_l1"]


def data(n: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings, some of them copies of others so that scores are equal, and labels of three levels."""
    rng = np.random.default_rng(seed)
    finest = rng.integers(12, size=n)
    embeddings = rng.normal(size=(12, 8))[finest] + rng.normal(size=(n, 8))
    embeddings[: n // 6] = embeddings[n // 6 : n // 6 * 2]
    labels = np.stack([finest, finest // 3, finest // 6], axis=1)
    return torch.from_numpy(embeddings.astype(np.float32)), torch.from_numpy(labels)


@given(st.lists(st.integers(0, 60), max_size=5))
def test_batches_do_not_matter(stops: list[int]) -> None:
    embeddings, labels = data()
    metric = hgld.RetrievalMetric(METRICS, relevance_alpha=2.0)
    for start, stop in zip([0, *sorted(stops)], [*sorted(stops), 60], strict=True):  # some batches are empty
        metric.update(embeddings[start:stop], labels[start:stop])
    assert metric.compute() == evaluate_retrieval(embeddings, labels, metrics=METRICS, relevance_alpha=2.0).means


def test_a_metric_can_be_used_again() -> None:
    metric = hgld.RetrievalMetric()
    for seed in (0, 1):
        embeddings, labels = data(seed=seed)
        metric.update(embeddings.requires_grad_(), labels.numpy().astype(np.int32))
        embeddings.detach().zero_()  # the memory of a batch may be used again
        expected = evaluate_retrieval(data(seed=seed)[0], labels).means
        assert metric.compute() == metric.compute() == expected
        metric.reset()
    with pytest.raises(InputError, match="no images were added; call `update`"):
        metric.compute()


@pytest.mark.parametrize("kind", [str, int])
@given(order=st.permutations(range(60)), repeated=st.lists(st.integers(0, 59), max_size=5))
def test_with_ids_neither_order_nor_repeated_images_matter(kind: Any, order: list[int], repeated: list[int]) -> None:
    embeddings, labels = data()
    ids = np.array([kind(1000 + row) for row in range(60)])
    metric = hgld.RetrievalMetric(METRICS)
    for rows in (order[:7], order[7:], repeated):
        metric.update(embeddings[rows], labels[rows], ids=ids[rows])
    assert metric.compute() == evaluate_retrieval(embeddings, labels, metrics=METRICS).means


def test_queries_and_a_gallery() -> None:
    embeddings, labels = data()
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
        ({"labels": torch.zeros(5, 3).long()}, "the arguments of a batch have 6, 5 rows; expected as many"),
        ({"is_query": [True]}, "the arguments of a batch have 6, 6, 1 rows"),
        ({"labels": torch.zeros(6, 3)}, "the query labels have .* the type float32; expected integers"),
        ({"labels": LabelSets.from_lists([np.zeros((1, 3), int)] * 6)}, "one label per image and level"),
    ],
)
def test_inconsistent_batches_are_refused(options: dict[str, Any], message: str) -> None:
    embeddings, labels = data(6)
    with pytest.raises(InputError, match=message):
        hgld.RetrievalMetric().update(**{"embeddings": embeddings, "labels": labels, **options})


@pytest.mark.parametrize("name", ["is_query", "ids"])
def test_all_batches_have_the_same_arguments(name: str) -> None:
    metric = hgld.RetrievalMetric()
    metric.update(*data(6))
    more: dict[str, Any] = {name: np.arange(6)}
    metric.update(*data(6), **more)
    with pytest.raises(InputError, match=f"only some batches have `{name}`; give it with all batches, or none"):
        metric.compute()


def test_unknown_metrics_and_settings_are_refused() -> None:
    metric = hgld.RetrievalMetric(["no-such-metric"])
    metric.update(*data(6))
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
from tests.evaluation.test_retrieval_metric import METRICS, data

embeddings, labels = data(61)
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
    expected = evaluate_retrieval(*data(61), metrics=METRICS).means
    assert [json.loads(printed) for printed in run_in_two_processes("-c", SCRIPT)] == [[expected] * 3] * 2
