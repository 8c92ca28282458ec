from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.evaluation import relevance_judgements as module
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.relevance_judgements import (
    LabelJudgements,
    ListJudgements,
    RelevanceJudgements,
    TableJudgements,
)
from hgld.hierarchy import lowest_common_level
from hgld.ragged import RaggedIndices
from tests.evaluation import oracles
from tests.evaluation.helpers import evaluate_judged

#: The leaves of a tree with three levels, finest first.
LEAVES = np.array([[leaf, leaf // 2, leaf // 4] for leaf in range(8)])


def whole(judgements: RelevanceJudgements) -> np.ndarray:
    return judgements.levels(slice(0, judgements.n_queries), slice(0, judgements.n_gallery)).numpy()


def assert_parts_are_the_whole(judgements: RelevanceJudgements) -> None:
    levels = whole(judgements)
    n_queries, n_gallery = levels.shape
    for start, stop in ((0, 1), (n_queries // 2, n_queries)):
        for first, last in ((0, 1), (n_gallery // 3, n_gallery // 3 + 1), (n_gallery // 2, n_gallery)):
            block = judgements.levels(slice(start, stop), slice(first, last))
            assert block.dtype == torch.uint8
            assert block.tolist() == levels[start:stop, first:last].tolist()
    moved = judgements.to(torch.device("cpu"))
    assert whole(moved).tolist() == levels.tolist()
    assert (moved.n_queries, moved.n_gallery, moved.n_levels) == (n_queries, n_gallery, judgements.n_levels)


@pytest.mark.parametrize("n_levels", [1, 2, 3])
def test_levels_of_labels_are_those_of_the_hierarchy(n_levels: int) -> None:
    rng = np.random.default_rng(0)
    queries, gallery = LEAVES[rng.integers(8, size=9)], LEAVES[rng.integers(8, size=20)]
    judgements = LabelJudgements(queries[:, :n_levels], gallery[:, :n_levels])
    assert whole(judgements).tolist() == lowest_common_level(queries[:, :n_levels], gallery[:, :n_levels]).tolist()
    assert judgements.n_levels == n_levels
    assert_parts_are_the_whole(judgements)


def test_labels_are_compared_whatever_their_size() -> None:
    big = np.iinfo(np.int64).max
    judgements = LabelJudgements(np.array([[big, 5]]), np.array([[big, 5], [big - 1, 5], [0, 0]]))
    assert whole(judgements).tolist() == [[2, 1, 0]]


@pytest.mark.parametrize(
    ("queries", "gallery", "message"),
    [
        ([[0, 0]], [[0, 1]], r"not nested: \[0, 0\] and \[0, 1\] agree in column 0, but not in the coarser column 1"),
        ([[0, 0]], [[0]], r"labels have the shapes \(1, 2\) and \(1, 1\); expected"),
        ([[]], [[]], r"labels have the shapes \(1, 0\)"),
        (
            np.zeros((1, 255), np.int64),
            np.zeros((1, 255), np.int64),
            "the labels have 255 levels; expected at most 254",
        ),
    ],
)
def test_invalid_labels_are_refused(queries: Any, gallery: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelJudgements(np.array(queries), np.array(gallery))


def test_254_levels_are_distinguished() -> None:
    shared = np.arange(255)[:, None] <= np.arange(254)  # item i differs from item 0 in the i finest columns
    labels = np.where(shared, 0, np.arange(255)[:, None])
    judgements = LabelJudgements(labels[:1], labels)
    assert whole(judgements).tolist() == [list(range(254, -1, -1))]
    embeddings = torch.stack([torch.ones(255), torch.linspace(0, 1, 255)], dim=1)
    result = evaluate_judged(embeddings[:1], embeddings, judgements, metrics=["AP_l254", "AP_l1", "H-AP", "ASI"])
    expected = oracles.by_name(list(range(254, -1, -1)), 254)
    assert result.means == pytest.approx({name: expected[name] for name in result.metrics})


def test_lists_have_one_level() -> None:
    judgements = ListJudgements(RaggedIndices.from_lists([[4, 0, 4], [], [2, 3]]), 5)
    assert whole(judgements).tolist() == [[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 0]]
    assert_parts_are_the_whole(judgements)
    assert judgements.relevance is None


@pytest.mark.parametrize("position", [-1, 5])
def test_positives_must_be_in_the_gallery(position: int) -> None:
    with pytest.raises(
        InputError, match=rf"list of positives names .* position {position} for query 1; expected 0 to 4"
    ):
        ListJudgements(RaggedIndices.from_lists([[0, 1], [2, position]]), 5)


@pytest.mark.parametrize("items", [[True, False], [0.5], ["a"]])
def test_positions_must_be_integers(items: list[Any]) -> None:
    """A row of a mask would be taken for the positions 0 and 1."""
    with pytest.raises(
        InputError, match=r"list of query 1 has values of the type .*; expected positions in the gallery"
    ):
        RaggedIndices.from_lists([[], items])


@given(st.lists(st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0]), min_size=3, max_size=3), min_size=1, max_size=4))
def test_table_relevances_are_kept(table: list[list[float]]) -> None:
    if not np.any(table):
        with pytest.raises(InputError, match="all relevances are 0; expected some above 0"):
            TableJudgements(table)
        return
    judgements = TableJudgements(table)
    assert judgements.relevance is not None
    assert judgements.relevance[whole(judgements)].tolist() == table
    assert_parts_are_the_whole(judgements)


def test_table_without_zeros_has_level_0() -> None:
    assert whole(TableJudgements([[2.0, 1.0]])).tolist() == [[2, 1]]


def test_table_evaluation_uses_its_relevances() -> None:
    rng = np.random.default_rng(0)
    table = rng.choice([0, 0.2, 0.3, 1], size=(5, 12))
    scores = rng.permutation(60).reshape(5, 12) / 100
    queries = np.concatenate([np.eye(5), np.zeros((5, 1))], axis=1)
    gallery = np.concatenate([scores.T, np.ones((12, 1))], axis=1)
    config = RankingConfig(normalize=False, block_size=2)
    result = evaluate_judged(
        queries, gallery, TableJudgements(table), metrics=["H-AP", "NDCG", "NDCG@3"], config=config
    )
    values = [0, 0.2, 0.3, 1]
    for q in range(5):
        levels = [values.index(relevance) for relevance in table[q][np.argsort(-scores[q])]]
        expected = [oracles.h_ap(levels, values), oracles.ndcg(levels, values), oracles.ndcg(levels, values, 3)]
        assert result.per_query.loc[q, ["H-AP", "NDCG", "NDCG@3"]].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1.0, 2.0], r"relevances have the shape \(2,\); expected \(n_query, n_gallery\)"),
        (np.empty((0, 3)), r"relevances have the shape \(0, 3\)"),
        ([[1.0, 0.0], [0.0, -1.0]], "relevance of item 1 for query 1 is -1.0; expected 0 or more"),
        ([[1.0, np.nan]], "relevance of item 1 for query 0 is nan"),
        ([[np.inf, 1.0]], "relevance of item 0 for query 0 is inf"),
        ([list(range(256))], "relevances have 255 distinct values above 0; expected at most 254: round them"),
    ],
)
def test_invalid_tables_are_refused(table: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TableJudgements(table)


def test_254_relevances_are_distinguished() -> None:
    judgements = TableJudgements([list(range(255))])
    assert judgements.n_levels == 254
    assert whole(judgements).tolist() == [list(range(255))]


@given(st.integers(1, 5), st.integers(0, 6), st.integers(1, 20), st.data())
def test_compiled_levels_are_those_of_torch(
    n_levels: int, n_queries: int, n_gallery: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    labels = np.sort(rng.integers(0, 12, n_queries + n_gallery))[:, None] // (2 ** np.arange(n_levels))
    judgements = LabelJudgements(labels[:n_queries], labels[n_queries:])
    queries, gallery = (
        slice(*sorted(data.draw(st.tuples(*[st.integers(0, n + 2)] * 2)))) for n in (n_queries, n_gallery)
    )
    levels = []
    for is_compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "is_compiled", lambda device, value=is_compiled: value)
            levels.append(judgements.levels(queries, gallery))
    assert levels[0].dtype == levels[1].dtype == torch.uint8
    assert torch.equal(*levels)
