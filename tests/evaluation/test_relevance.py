from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.evaluate import EvaluationConfig
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.relevance import (
    Relevance,
    by_level,
    exponential_gain,
    hierarchical_relevance,
    weighted_ap_relevance,
)
from hgld.evaluation.retrieval_task import LabelJudgements, LabelSetJudgements, ListJudgements, RelevanceJudgements
from hgld.hierarchy import LabelSets, lowest_common_level, relevance
from hgld.losses import SmoothHAP, SupHAP
from hgld.ragged import RaggedIndices
from tests.evaluation import oracles
from tests.evaluation.helpers import evaluate_judged

#: Rounding of float64 in a power or a sum of three positive terms, a division, and the same in the oracle.
ROUNDING = 4 * np.finfo(np.float64).eps
LISTS = st.lists(st.integers(0, 3), min_size=1, max_size=20)


def counts(levels: list[int]) -> torch.Tensor:
    return torch.tensor([[levels.count(level) for level in range(4)]], dtype=torch.float64)


@given(LISTS, st.floats(0, 6), st.booleans())
def test_hierarchical_relevance_is_equation_20(levels: list[int], alpha: float, count_query: bool) -> None:
    relevance = hierarchical_relevance(counts(levels), alpha, count_query=count_query)
    expected = oracles.equation_20(levels, 3, alpha, count_query)
    assert relevance.tolist()[0] == pytest.approx(expected, rel=ROUNDING, abs=0)


@given(LISTS, st.lists(st.floats(0.01, 5), min_size=3, max_size=3))
def test_weighted_ap_relevance_is_that_of_property_1(levels: list[int], weights: list[float]) -> None:
    relevance = weighted_ap_relevance(counts(levels), weights).tolist()[0]
    expected = oracles.property_1(levels, weights)
    for level in set(levels):  # of a level without items nothing asks for its relevance
        assert relevance[level] == pytest.approx(expected[level], rel=ROUNDING, abs=0)


def test_relevance_agrees_with_the_hierarchy() -> None:
    rng = np.random.default_rng(0)
    fine = rng.integers(12, size=50)
    labels = np.stack([fine, fine // 3, fine // 6], axis=1)
    queries, gallery = labels[:10], labels[10:]
    levels = (queries[:, None] == gallery[None]).sum(2)
    table = hierarchical_relevance(
        torch.from_numpy(np.stack([(levels == level).sum(1) for level in range(4)], axis=1)).double(), alpha=2.0
    )
    expected = relevance(queries, gallery, alpha=2.0)
    np.testing.assert_allclose(np.take_along_axis(table.numpy(), levels, axis=1), expected, atol=1e-15)


def test_the_gain_is_exponential() -> None:
    assert exponential_gain(counts([0, 3])).tolist() == [[0, 1, 3, 7]]


NOT_FINITE = "expected 0 at level 0, and finite numbers of 0 or more"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (partial(hierarchical_relevance, counts([1]), n), "`alpha` is .*; expected 0 or more")
            for n in (-0.1, np.nan)
        ),
        *(
            (partial(weighted_ap_relevance, counts([1]), weights), "expected 3 positive ones, coarsest first")
            for weights in ([1.0], [0.5, 0.5, 0.0], [1, 1, -1], [1, 1, 1, 1])
        ),
        *(
            (partial(by_level, table), NOT_FINITE)
            for table in ([1, 2, 3, 4], [0, 1, -1, 2], [0, 1, 2, np.nan], [0, 1, np.inf, 2])
        ),
    ],
)
def test_invalid_weights_and_relevances_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            lambda counts: -exponential_gain(counts),
            "the relevance of level 1 is -1 in row 0; expected 0 at level 0, and",
        ),
        (lambda counts: exponential_gain(counts) + 1, "the relevance of level 0 is 1 in row 0"),
        (lambda counts: exponential_gain(counts) * torch.nan, "the relevance of level 0 is nan"),
        (lambda counts: counts[:, 1:], "the relevances have the shape .*; expected a tensor of the shape"),
        (lambda counts: counts.tolist(), "the relevances have list; expected a tensor"),
    ],
)
def test_relevance_functions_are_checked_in_evaluations_and_losses(own: Relevance, message: str) -> None:
    embeddings, labels = torch.eye(4), np.array([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 1, 0]])
    for name in ("relevance", "gain"):
        options: dict[str, Any] = {name: own}
        with pytest.raises(ConfigurationError, match=message):
            evaluate_retrieval(embeddings, labels, metrics=["H-AP", "NDCG"], **options)
    for loss in (SupHAP(relevance=own), SmoothHAP(relevance=own)):
        with pytest.raises(ConfigurationError, match=message):
            loss(embeddings, labels)


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


@given(st.integers(1, 5), st.integers(0, 6), st.integers(1, 20), st.data())
def test_levels_are_numbers_of_equal_labels(
    n_levels: int, n_queries: int, n_gallery: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    labels = np.sort(rng.integers(0, 12, n_queries + n_gallery))[:, None] // (2 ** np.arange(n_levels))
    judgements = LabelJudgements(labels[:n_queries], labels[n_queries:])
    queries, gallery = (
        slice(*sorted(data.draw(st.tuples(*[st.integers(0, n + 2)] * 2)))) for n in (n_queries, n_gallery)
    )
    own, others = labels[:n_queries][queries], labels[n_queries:][gallery]
    levels = judgements.levels(queries, gallery)
    assert levels.dtype == torch.uint8
    assert levels.tolist() == (own[:, None] == others).sum(2).tolist()


mean_levels = partial(LabelSetJudgements, several_labels="mean")
best_level = partial(LabelSetJudgements, several_labels="best")
IMAGES = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=6)


def sets(*images: Any) -> LabelSets:
    return LabelSets.from_lists([np.asarray(image) for image in images])


def random_sets(n: int, seed: int) -> LabelSets:
    rng = np.random.default_rng(seed)
    return sets(*(LEAVES[rng.choice(8, rng.integers(1, 4), replace=False)] for _ in range(n)))


@given(IMAGES, IMAGES)
def test_levels_are_those_of_slow_oracles(queries: list[list[int]], gallery: list[list[int]]) -> None:
    own_sets, other_sets = sets(*(LEAVES[own] for own in queries)), sets(*(LEAVES[own] for own in gallery))
    multi, best = mean_levels(own_sets, other_sets), best_level(own_sets, other_sets)
    relevances = multi.relevance
    assert relevances is not None
    multi_levels, best_levels = whole(multi), whole(best)
    assert relevances.shape == (len(queries), multi.n_levels + 1)
    for q, own in enumerate(map(set, queries)):
        for g, other in enumerate(map(set, gallery)):
            labels = LEAVES[sorted(own)].tolist(), LEAVES[sorted(other)].tolist()
            assert relevances[q, multi_levels[q, g]] == pytest.approx(oracles.algorithm_1(*labels, 3), abs=1e-12)
            assert best_levels[q, g] == oracles.best_level(*labels)
    assert ((relevances >= 0) & (relevances <= 1)).all()
    assert (np.diff(relevances, axis=1) >= 0).all()
    for judgements in (multi, best):
        assert_parts_are_the_whole(judgements)


@pytest.mark.parametrize("judgements", [mean_levels, best_level])
def test_one_label_each_equals_single_labels(judgements: Any) -> None:
    several = judgements(sets(*LEAVES[:4, None]), sets(*LEAVES[:, None]))
    single = LabelJudgements(LEAVES[:4], LEAVES)
    assert whole(several).tolist() == whole(single).tolist()
    assert several.n_levels == 3


def test_a_landmark_of_two_groups_shares_the_landmark() -> None:
    """A class with two parents: the level is the finest that is equal, not the number of equal columns."""
    church_castle = sets([[7, 0, 0], [7, 1, 0]])
    gallery = sets([[7, 0, 0], [7, 1, 0]], [[8, 1, 0]], [[9, 2, 1]])
    assert whole(mean_levels(church_castle, gallery)).tolist() == [[6, 3, 0]]
    assert whole(best_level(church_castle, gallery)).tolist() == [[3, 2, 0]]
    finest_alone = sets([[7, 5, 1]])  # equal at level 3 only
    assert whole(best_level(church_castle, finest_alone)).tolist() == [[3]]


def test_levels_of_sets_are_not_transitive() -> None:
    images = sets(LEAVES[[0]], LEAVES[[0, 7]], LEAVES[[7]])
    assert whole(best_level(images, images)).tolist() == [[3, 3, 0], [3, 3, 3], [0, 3, 3]]


def test_gallery_images_without_labels_have_level_0() -> None:
    gallery = LabelSets.from_rows(LEAVES[[0, 1]], np.array([1, 0, 1]))
    assert whole(best_level(sets(LEAVES[[0]]), gallery)).tolist() == [[3, 0, 2]]


def test_evaluation_takes_the_relevance_of_algorithm_1() -> None:
    """As many queries as fall into several blocks, each with its own number of labels."""
    queries, gallery = random_sets(7, 0), random_sets(15, 1)
    embeddings = np.random.default_rng(0).normal(size=(22, 6))
    config = RankingConfig(block_size=3, precision="float64")
    result = evaluate_judged(embeddings[:7], embeddings[7:], mean_levels(queries, gallery), config=config)
    assert result.metrics == ("H-AP", "NDCG", "ASI")
    assert result.settings["relevance"] == "own"
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for q, own in enumerate(queries):
        order = np.argsort(-(unit[7:] @ unit[q]))
        relevances = [oracles.algorithm_1(own.tolist(), gallery.of(g).tolist(), 3) for g in order]
        levels = [round(relevance * len(own) * 3) for relevance in relevances]
        table = [level / (len(own) * 3) for level in range(len(own) * 3 + 1)]
        expected = [oracles.h_ap(levels, table), oracles.ndcg(levels, table), oracles.asi(levels)]
        assert result.per_query.loc[q, list(result.metrics)].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("several_labels", ["mean", "best"])
def test_evaluate_retrieval_takes_label_sets(several_labels: Any) -> None:
    labels = random_sets(25, 2)
    embeddings = np.random.default_rng(1).normal(size=(25, 6))
    metrics = ["R@1_l3", "H-AP", "NDCG@5", "AP_l2", "mAP@R_l3", "ASI", "wAP"]
    ids = ["x", "x", *map(str, range(23))]  # a shared id must not mix up rows
    result = evaluate_retrieval(
        embeddings, labels, metrics=metrics, precision="float64", several_labels=several_labels, query_ids=ids
    )
    assert list(result.per_query.columns) == [*metrics, "positives_l1", "positives_l2", "positives_l3", "class"]
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for q, own in enumerate(labels):
        order = [g for g in np.argsort(-(unit @ unit[q])).tolist() if g != q and {ids[q], ids[g]} != {"x"}]
        levels = [oracles.best_level(own.tolist(), labels.of(g).tolist()) for g in order]
        expected = oracles.by_name(levels, 3, cutoffs=(1, 5))
        if several_labels == "mean":
            relevances = [oracles.algorithm_1(own.tolist(), labels.of(g).tolist(), 3) for g in order]
            graded = [round(relevance * len(own) * 3) for relevance in relevances]
            table = [level / (len(own) * 3) for level in range(len(own) * 3 + 1)]
            expected |= {"H-AP": oracles.h_ap(graded, table), "NDCG@5": oracles.ndcg(graded, table, 5)}
        values = result.per_query.iloc[q][metrics]
        assert values.tolist() == pytest.approx([expected[name] for name in metrics], abs=1e-12, nan_ok=True)
        assert result.per_query.iloc[q]["positives_l3"] == levels.count(3)
    assert ("Algorithm 1" in result.settings["relevance"]) == (several_labels == "mean")


def test_alpha_is_for_equation_20() -> None:
    labels, embeddings = random_sets(5, 0), np.random.default_rng(0).normal(size=(5, 3))
    with pytest.raises(ConfigurationError, match="`relevance_alpha` belongs to Eq. 20.*set `several_labels` to best"):
        evaluate_retrieval(embeddings, labels, relevance_alpha=2)
    evaluate_retrieval(embeddings, labels, relevance_alpha=2, several_labels="best")
    evaluate_retrieval(embeddings, labels, relevance_alpha=2, metrics=["R@1"])
    with pytest.raises(ConfigurationError, match='`several_labels` is "all"; choose mean or best'):
        EvaluationConfig(several_labels="all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queries", "gallery", "message"),
    [
        (sets(LEAVES), sets(LEAVES[:, :2]), "queries have labels of 3 levels and the gallery of 2"),
        (
            sets(np.stack([np.arange(85)] * 3, axis=1)),
            sets(LEAVES),
            "query 0 has 85 labels of 3 levels; expected n times L of at most 254",
        ),
    ],
)
def test_invalid_sets_are_refused(queries: LabelSets, gallery: LabelSets, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mean_levels(queries, gallery)


def test_sets_and_matrices_do_not_mix() -> None:
    with pytest.raises(InputError, match="only the queries can have several labels per image; give the labels"):
        evaluate_retrieval(torch.eye(8), sets(*LEAVES[:, None]), torch.eye(8), LEAVES)
