import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hgld
from hgld.compute.scoring import Distance, Precision
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import EvaluationConfig, evaluate_retrieval, evaluate_tasks
from hgld.evaluation.relevance import exponential_gain, hierarchical_relevance
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import LabelJudgements, ListJudgements, items_sharing_ids, leave_one_out_task
from hgld.hierarchy.label_sets import LabelSets
from hgld.io.text_array import TextArray
from hgld.ragged import RaggedIndices
from tests.child_processes import run_in_two_processes
from tests.evaluation import oracles
from tests.evaluation.helpers import evaluate_judged

Array = npt.NDArray[Any]
CUTOFFS = [1, 5]
NAMES = list(oracles.by_name([0] * 5, 3, cutoffs=CUTOFFS))


def data(n: int, seed: int = 0, n_leaves: int = 12, dim: int = 6) -> tuple[Array, Array]:
    """Random embeddings and labels of three levels; scores have no ties, even in float32."""
    rng = np.random.default_rng(seed)
    fine = rng.integers(n_leaves, size=n)
    labels = np.stack([fine, fine // 3, fine // 6], axis=1)
    embeddings = rng.normal(size=(n_leaves, dim))[fine] + rng.normal(size=(n, dim))
    return embeddings.astype(np.float32), labels


def ranked_levels(
    query: int, embeddings: Array, labels: Array, gallery: Array, gallery_labels: Array, excluded: Sequence[int] = ()
) -> list[int]:
    """Rank by cosine in float64 and return the levels."""
    scores = gallery.astype(np.float64) @ embeddings[query] / np.linalg.norm(gallery.astype(np.float64), axis=1)
    order = [int(item) for item in np.argsort(-scores) if item not in set(excluded)]
    return [int((labels[query] == gallery_labels[item]).sum()) for item in order]


def assert_is(result: RetrievalResult, levels: Sequence[Sequence[int]], tolerance: float = 1e-12) -> None:
    """Assert that the result is that of these rankings."""
    assert len(result.per_query) == len(levels)
    expected = [oracles.by_name(ranking, 3, cutoffs=CUTOFFS) for ranking in levels]
    for name in NAMES:
        oracle = [by_name[name] for by_name in expected]
        np.testing.assert_allclose(result.per_query[name], oracle, rtol=0, atol=tolerance, err_msg=name)
    for level in (1, 2, 3):
        positives = [sum(oracles.is_positive(ranking, level)) for ranking in levels]
        assert result.per_query[f"positives_l{level}"].tolist() == positives


@pytest.mark.parametrize("precision", ["float32", "tf32", "float64"])
@pytest.mark.parametrize("block_size", [None, 1, 7])
def test_leave_one_out(precision: Precision, block_size: int | None) -> None:
    embeddings, labels = data(20)
    result = evaluate_retrieval(embeddings, labels, metrics=NAMES, precision=precision, block_size=block_size)
    assert_is(result, [ranked_levels(q, embeddings, labels, embeddings, labels, [q]) for q in range(20)])
    assert result.name == "leave-one-out"
    assert result.per_query.index.tolist() == list(range(20))


def test_queries_and_a_gallery() -> None:
    queries, query_labels = data(9, seed=1)
    gallery, gallery_labels = data(50, seed=2)
    result = evaluate_retrieval(queries, query_labels, gallery, gallery_labels, metrics=NAMES, block_size=4)
    assert_is(result, [ranked_levels(q, queries, query_labels, gallery, gallery_labels) for q in range(9)])
    assert result.name == "retrieval"
    without = {
        f"without_positives_l{level}": int((result.per_query[f"positives_l{level}"] == 0).sum())
        for level in (1, 2, 3)
    }
    excluded = {"queries_without_labels": 0, "gallery_without_labels": 0, "queries_in_gallery": 0}
    assert result.counts == {"queries": 9, "gallery": 50, **without, **excluded}


def test_default_metrics() -> None:
    embeddings, labels = data(30)
    result = evaluate_retrieval(embeddings, labels)
    assert list(result.means) == ["mAP@R", "R@1", "H-AP", "NDCG", "ASI", "AP_l3", "AP_l2", "AP_l1"]
    embeddings, labels = data(101)
    assert next(iter(evaluate_retrieval(embeddings, labels).means)) == "mAP@100"
    named = ["mAP@100", "AP_l2", "mAP@100"]
    assert list(evaluate_retrieval(embeddings, labels, metrics=named).means) == ["mAP@100", "AP_l2"]


def read_only_map(array: Array, folder: Path) -> Array:
    np.save(folder / "embeddings.npy", array)
    mapped: Array = np.load(folder / "embeddings.npy", mmap_mode="r")
    return mapped


@pytest.mark.parametrize(
    "form",
    [
        lambda array, folder: array,
        lambda array, folder: array.astype(np.float64),
        lambda array, folder: array.astype(np.float16),
        lambda array, folder: torch.from_numpy(array),
        lambda array, folder: torch.from_numpy(array).requires_grad_(),
        lambda array, folder: torch.from_numpy(array).to(torch.bfloat16),
        lambda array, folder: np.asfortranarray(array),
        lambda array, folder: np.repeat(array, 2, axis=0)[::2],
        lambda array, folder: array.tolist(),
        read_only_map,
        lambda array, folder: read_only_map(array.astype(np.float16), folder),
    ],
)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_embeddings_may_be_arrays_tensors_lists_or_maps(form: Any, precision: Precision, tmp_path: Path) -> None:
    embeddings, labels = data(30)
    embeddings = np.round(embeddings * 8) / 8  # exact in every type
    before = evaluate_retrieval(embeddings, labels, metrics=NAMES, precision=precision)
    after = evaluate_retrieval(form(embeddings, tmp_path), labels, metrics=NAMES, precision=precision)
    pd.testing.assert_frame_equal(before.per_query, after.per_query, check_exact=True)


@pytest.mark.parametrize("form", [np.int32, np.uint8, torch.from_numpy, np.ndarray.tolist, pd.DataFrame])
def test_labels_may_be_arrays_tensors_lists_or_frames(form: Any) -> None:
    embeddings, labels = data(30)
    other = form(labels) if not isinstance(form, type) or form is pd.DataFrame else labels.astype(form)
    expected = evaluate_retrieval(embeddings, labels).per_query
    pd.testing.assert_frame_equal(evaluate_retrieval(embeddings, other).per_query, expected)


def test_labels_of_one_level_may_be_a_vector() -> None:
    embeddings, labels = data(30)
    flat, column = (evaluate_retrieval(embeddings, labels[:, 0].reshape(shape)) for shape in (-1, (-1, 1)))
    pd.testing.assert_frame_equal(flat.per_query, column.per_query)
    assert list(flat.means)[-1] == "AP_l1"


# Exclusions


def test_items_with_the_id_of_the_query_are_excluded() -> None:
    queries, query_labels = data(4, seed=1)
    gallery, gallery_labels = data(30, seed=2)
    gallery_ids = [f"g{item}" for item in range(30)]
    gallery_ids[3] = gallery_ids[29] = "a"
    gallery_ids[7] = "b"
    ids = ["a", "b", "c", "b"]
    excluded = [[3, 29], [7], [], [7]]
    options: dict[str, Any] = {"metrics": NAMES, "query_ids": ids, "gallery_ids": gallery_ids}
    result = evaluate_retrieval(queries, query_labels, gallery, gallery_labels, **options)
    assert_is(
        result, [ranked_levels(q, queries, query_labels, gallery, gallery_labels, excluded[q]) for q in range(4)]
    )
    assert result.per_query.index.tolist() == ids
    assert result.per_query.index.name == "query"


def test_leave_one_out_excludes_items_with_the_same_id() -> None:
    embeddings, labels = data(20)
    ids = np.arange(20) % 17  # 17, 18 and 19 are copies of 0, 1 and 2
    result = evaluate_retrieval(embeddings, labels, metrics=NAMES, query_ids=ids)
    excluded = [np.flatnonzero(ids == ids[q]).tolist() for q in range(20)]
    assert_is(result, [ranked_levels(q, embeddings, labels, embeddings, labels, excluded[q]) for q in range(20)])


def labels_and_sets(labels: Array) -> tuple[Array, LabelSets]:
    """The same labels as a matrix with rows of -1 and as label sets, of which those are empty."""
    return labels, LabelSets.from_rows(labels[labels[:, 0] >= 0], (labels[:, 0] >= 0).astype(np.int64))


def test_unlabelled_images_are_left_out_and_counted() -> None:
    embeddings, labels = data(40)
    labels[::3] = -1
    kept = np.flatnonzero(labels[:, 0] >= 0)
    ignored = [[(q + 1) % 40, (q + 2) % 40] for q in range(40)]
    inside = [[int(np.searchsorted(kept, item)) for item in ignored[q] if item in kept] for q in kept]
    for own in labels_and_sets(labels):
        few: dict[str, Any] = {"metrics": ["AP", "R@1", "ASI"], "several_labels": "best"}
        whole = evaluate_retrieval(embeddings, own, ignored=ignored, **few)
        expected = evaluate_retrieval(embeddings[kept], labels[kept], ignored=inside, **few)
        np.testing.assert_array_equal(whole.per_query, expected.per_query)
        assert whole.per_query.index.tolist() == kept.tolist()
        assert whole.counts == expected.counts | {"images_without_labels": 14}
        apart = evaluate_retrieval(
            embeddings, own, embeddings, own, query_ids=range(40), gallery_ids=range(40), **few
        )
        alone = evaluate_retrieval(embeddings[kept], labels[kept], **few)
        np.testing.assert_array_equal(apart.per_query, alone.per_query)
        assert (apart.counts["queries_without_labels"], apart.counts["gallery_without_labels"]) == (14, 14)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("distance", ["cosine", "dot"])
def test_embeddings_of_zeros_have_a_score_of_0_and_are_counted(precision: Precision, distance: Distance) -> None:
    queries = np.array([[0.0, 0.0], [1.0, 0.0]])
    gallery, labels = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]), np.array([0, 1, 1])
    options: dict[str, Any] = {"metrics": ["AP"], "precision": precision, "distance": distance}
    result = evaluate_retrieval(queries, np.array([0, 1]), gallery, labels, **options)
    # The first query scores 0 with all, and its positive comes last; for the other, zeros are between 1 and -1.
    assert result.per_query["AP"].tolist() == pytest.approx([1 / 3, (1 / 2 + 2 / 3) / 2])
    assert result.counts["queries_with_zero_embeddings"] == result.counts["gallery_with_zero_embeddings"] == 1
    assert np.isfinite(evaluate_retrieval(gallery * 0, labels, **options).per_query["AP"][1:]).all()


def test_levels_without_any_positive_are_told() -> None:
    labels = np.stack([np.arange(6), np.arange(6) // 2], axis=1)
    with pytest.warns(
        UserWarning, match="none of 6 queries has a positive in the gallery at level 2, so metrics of it"
    ):
        result = evaluate_retrieval(data(6)[0], labels, metrics=["AP", "AP_l1"])
    assert np.isnan(result.means["AP"])
    with pytest.warns(UserWarning, match="at level 1, 2, so"):
        evaluate_retrieval(data(6)[0], np.stack([np.arange(6)] * 2, axis=1))


def test_ignored_items_are_excluded_for_their_query_only() -> None:
    embeddings, labels = data(20)
    ignored = [[(q + 1) % 20, (q + 5) % 20, (q + 1) % 20] if q % 2 else [] for q in range(20)]
    result = evaluate_retrieval(embeddings, labels, metrics=NAMES, ignored=ignored)
    excluded = [[q, *ignored[q]] for q in range(20)]
    assert_is(result, [ranked_levels(q, embeddings, labels, embeddings, labels, excluded[q]) for q in range(20)])


def test_masked_items_are_in_no_ranking_and_may_be_excluded_as_well() -> None:
    embeddings, labels = data(20)
    gallery_mask = np.arange(20) % 4 != 0
    itself = RaggedIndices.from_lists([[q] for q in range(20)])
    judgements = LabelJudgements(labels, labels)
    result = evaluate_judged(
        embeddings, embeddings, judgements, metrics=NAMES, excluded=itself, gallery_mask=gallery_mask
    )
    excluded = [[q, *np.flatnonzero(~gallery_mask)] for q in range(20)]
    assert_is(result, [ranked_levels(q, embeddings, labels, embeddings, labels, excluded[q]) for q in range(20)])


def test_k_is_limited_by_the_items_that_are_ranked() -> None:
    embeddings, labels = data(10)
    gallery_mask = np.arange(10) >= 3
    excluded = RaggedIndices.from_lists([[0, 1, 2, 2]] * 10)
    judgements = LabelJudgements(labels, labels)
    options: dict[str, Any] = {"excluded": excluded, "gallery_mask": gallery_mask}
    assert "P@7" in evaluate_judged(embeddings, embeddings, judgements, metrics=["P@7"], **options).means
    with pytest.raises(ConfigurationError, match="P@8 needs k between 1 and the 7 gallery items that are ranked"):
        evaluate_judged(embeddings, embeddings, judgements, metrics=["P@8"], **options)


@given(st.lists(st.integers(0, 4), max_size=6), st.lists(st.integers(0, 4), max_size=8), st.sampled_from([int, str]))
def test_items_sharing_ids(queries: list[int], gallery: list[int], kind: type) -> None:
    shared = items_sharing_ids(np.array(queries).astype(kind), np.array(gallery).astype(kind))
    expected = [[g for g, other in enumerate(gallery) if other == own] for own in queries]
    assert [
        shared.columns[a:b].tolist() for a, b in zip(shared.offsets, shared.offsets[1:], strict=False)
    ] == expected


# Invariances


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 1000), st.sampled_from([np.exp, np.cbrt, np.arctan, lambda x: 5 * x - 3]))
def test_monotone_changes_of_scores_and_the_order_of_images_do_not_matter(seed: int, change: Any) -> None:
    rng = np.random.default_rng(seed)
    _, query_labels = data(5, seed=seed)
    _, gallery_labels = data(25, seed=seed + 1)
    scores = rng.permutation(5 * 25).reshape(5, 25) / 50 - 1

    def evaluated(table: Array, rows: Array, columns: Array) -> Array:
        queries = np.eye(5, 6)[rows]
        gallery = np.concatenate([table.T, np.ones((25, 1))], axis=1)[columns]  # the last dimension: no zero vectors
        labels = query_labels[rows], gallery_labels[columns]
        options: dict[str, Any] = {"metrics": NAMES, "distance": "dot", "query_ids": rows, "block_size": 3}
        result = evaluate_retrieval(queries, labels[0], gallery, labels[1], **options)
        return np.asarray(result.per_query.sort_index())

    before = evaluated(scores, np.arange(5), np.arange(25))
    np.testing.assert_allclose(evaluated(change(scores), np.arange(5), np.arange(25)), before, rtol=0, atol=1e-12)
    np.testing.assert_allclose(evaluated(scores, rng.permutation(5), rng.permutation(25)), before, rtol=0, atol=1e-12)


# Relevance and gain


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0])
def test_relevance_alpha(alpha: float) -> None:
    embeddings, labels = data(20)
    result = evaluate_retrieval(embeddings, labels, metrics=["H-AP", "H-AP_selfcount"], relevance_alpha=alpha)
    for q in range(20):
        levels = ranked_levels(q, embeddings, labels, embeddings, labels, [q])
        expected = oracles.by_name(levels, 3, alpha)
        for name in result.metrics:
            assert result.per_query.loc[q, name] == pytest.approx(expected[name], abs=1e-12, nan_ok=True)
    assert result.settings["relevance"] == f"(l/L)^{alpha:g} / |Omega^(l)|"


@pytest.mark.parametrize("block_size", [1, 6, 20, None])
def test_custom_relevance_and_gain_in_three_forms(block_size: int | None) -> None:
    embeddings, labels = data(20)
    rng = np.random.default_rng(0)
    names = ["H-AP", "H-R@5", "H-P@1", "NDCG", "NDCG@5"]
    per_level = np.array([0, 0.2, 0.3, 1.0])
    per_query = np.concatenate([np.zeros((20, 1)), rng.random((20, 3)).cumsum(axis=1)], axis=1)
    function = lambda counts: torch.from_numpy(per_level).expand(len(counts), -1)  # noqa: E731
    for own, tables in ((per_level, [per_level] * 20), (function, [per_level] * 20), (per_query, list(per_query))):
        options: dict[str, Any] = {"metrics": names, "relevance": own, "gain": own, "block_size": block_size}
        result = evaluate_retrieval(embeddings, labels, **options)
        assert (result.settings["relevance"], result.settings["gain"]) == ("own", "own")
        for q, table in enumerate(tables):
            levels = ranked_levels(q, embeddings, labels, embeddings, labels, [q])
            expected = [
                oracles.h_ap(levels, table),
                oracles.h_recall_at_k(levels, table, 5),
                oracles.h_precision_at_k(levels, table, 1),
                oracles.ndcg(levels, table),
                oracles.ndcg(levels, table, 5),
            ]
            assert result.per_query.loc[q, names].tolist() == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_the_papers_relevance_and_gain_can_be_given_as_functions() -> None:
    embeddings, labels = data(20)
    options: dict[str, Any] = {"relevance": partial(hierarchical_relevance, alpha=2.0), "gain": exponential_gain}
    expected = evaluate_retrieval(embeddings, labels, relevance_alpha=2.0)
    pd.testing.assert_frame_equal(evaluate_retrieval(embeddings, labels, **options).per_query, expected.per_query)


def test_level_weights_are_those_of_the_coarsest_level_first() -> None:
    embeddings, labels = data(20)
    for weights in ([0.2, 0.3, 0.5], [2, 3, 5]):
        result = evaluate_retrieval(
            embeddings, labels, metrics=["wAP", "AP_l1", "AP_l2", "AP_l3"], level_weights=weights
        )
        known = result.per_query.dropna()
        assert len(known) > 5
        expected = 0.2 * known["AP_l1"] + 0.3 * known["AP_l2"] + 0.5 * known["AP_l3"]
        np.testing.assert_allclose(known["wAP"], expected, rtol=0, atol=1e-12)
    assert result.settings["level_weights"] == "2, 3, 5"
    assert evaluate_retrieval(embeddings, labels).settings["level_weights"] == "equal"


def test_lists_of_positives() -> None:
    embeddings, _ = data(12)
    positives = [[1, 5], [], [0, 3, 4, 11]]
    judgements = ListJudgements(RaggedIndices.from_lists(positives), 12)
    result = evaluate_judged(embeddings[:3], embeddings, judgements, metrics=["AP", "mAP@5", "TR@5"])
    for q, own in enumerate(positives):
        scores = embeddings.astype(float) @ embeddings[q] / np.linalg.norm(embeddings.astype(float), axis=1)
        levels = [int(item in own) for item in np.argsort(-scores)]
        expected = [
            oracles.average_precision(levels, 1),
            oracles.map_at_k(levels, 1, 5),
            oracles.true_recall_at_k(levels, 1, 5),
        ]
        assert result.per_query.loc[q, ["AP", "mAP@5", "TR@5"]].tolist() == pytest.approx(expected, nan_ok=True)
    assert result.counts == {"queries": 3, "gallery": 12, "without_positives_l1": 1}


# Errors

EMBEDDINGS, LABELS = data(6)
GALLERY = {"gallery_embeddings": EMBEDDINGS, "gallery_labels": LABELS}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["H-AB"]}, r"there is no metric 'H-AB' \(did you mean H-AP\?\); expected AP, mAP@R"),
        ({"metrics": ["AP_l4"]}, r"there is no level 4; expected 1 \(coarsest\) to 3 \(finest\)"),
        ({"metrics": ["R@6"]}, "R@6 needs k between 1 and the 5 gallery items that are ranked; take another k"),
        ({"metrics": ["R@0"]}, "R@0 needs k between 1 and the 5 gallery items"),
        ({"level_weights": [1, 2, 3]}, "`level_weights` are those of the metric wAP; add it to `metrics`"),
        (
            {"metrics": ["wAP"], "level_weights": [1, 2]},
            "`level_weights` are 1, 2; expected 3 positive ones, coarsest first",
        ),
        ({"metrics": ["wAP"], "level_weights": [1, 0, 2]}, "`level_weights` are 1, 0, 2; expected 3 positive"),
        ({"metrics": ["wAP"], "level_weights": []}, "`level_weights` are empty; expected 3 positive"),
        ({"metrics": ["wAP"], "level_weights": [1, math.nan, 1]}, "`level_weights` are 1, nan, 1; expected"),
        ({"relevance_alpha": -1.0}, "`relevance_alpha` is -1.0; expected 0 or more"),
        ({"metrics": ["H-AP_selfcount"], "relevance": [0, 1, 2, 3]}, "H-AP_selfcount is defined for .* Eq. 20 only"),
        (
            {"relevance": [0, 1, 2]},
            r"relevance has the shape \(3,\); expected \(4,\), one value per level .* or \(6, 4\)",
        ),
        ({"gain": np.ones((5, 4))}, r"the gain has the shape \(5, 4\); expected"),
        ({"gain": np.ones((7, 4))}, r"the gain has the shape \(7, 4\); expected"),
        ({"relevance": [0, 1, -1, 2]}, "the relevance of level 2 is -1 in row 0; expected 0 at level 0, and finite"),
        ({"gain": [0, 3, 2, 1]}, "falls from a level to a finer one"),
        (
            {"gallery_embeddings": EMBEDDINGS},
            "gallery is given in part; expected `gallery_embeddings` and `gallery_labels`",
        ),
        ({"gallery_labels": LABELS}, "gallery is given in part"),
        ({"gallery_ids": list("abcdef")}, "gallery is given in part"),
        (
            GALLERY | {"gallery_ids": list("abcdef")},
            "`gallery_ids` are given without `query_ids`; expected both, or neither",
        ),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        evaluate_retrieval(EMBEDDINGS, LABELS, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_labels": LABELS[:5]}, "6 query embeddings, but labels for 5"),
        (
            {"query_labels": LABELS.astype(float)},
            "query labels have .* the type float64; expected integers of the shape",
        ),
        ({"query_labels": LABELS[None]}, r"query labels have the shape \(1, 6, 3\)"),
        ({"query_labels": LABELS[:, ::-1]}, "the labels are not nested: .* agree in column .*: reverse the columns"),
        ({"query_labels": LABELS - [[0, 0, 9]]}, r"6 of 6 images have labels below 0, first row 0"),
        ({"query_labels": LABELS * 0 - 1}, "the query labels are those of unlabelled images alone"),
        ({"query_labels": list("aabbcc")}, r"the query labels have the shape .* and the type <U1; .* numpy\.unique"),
        (
            {"query_labels": [[0], [0, 1], [0], [1], [1], [1]]},
            "lists of different lengths; .* `LabelSets.from_lists`",
        ),
        ({"query_embeddings": EMBEDDINGS[0]}, "query embeddings have the shape"),
        (
            {"query_embeddings": LABELS},
            "query embeddings have .* the type torch.int64; expected floating point numbers",
        ),
        ({"query_embeddings": EMBEDDINGS[::-1]}, "the embeddings are not an array that torch can read: .*copy"),
        ({"query_embeddings": [["a"]]}, "the embeddings are not an array that torch can read"),
        ({"query_embeddings": [torch.ones(2, requires_grad=True)]}, "the embeddings are not an array"),
        ({"query_embeddings": 1.0}, r"query embeddings have the shape \(\)"),
        ({"query_embeddings": EMBEDDINGS[:, :0]}, r"query embeddings have the shape \(6, 0\)"),
        (
            {"query_embeddings": torch.eye(6).to_sparse()},
            "query embeddings are a tensor of the layout torch.sparse_coo",
        ),
        (GALLERY | {"gallery_embeddings": EMBEDDINGS[0]}, "gallery embeddings have the shape"),
        (
            {"query_labels": np.full(6, 2**63, np.uint64)},
            r"query labels are uint64, such as 9223372036854775808; expected integers below 2\*\*63",
        ),
        ({"query_ids": np.arange(6) / 2}, "query ids are of the type float64; expected all texts, or all integers"),
        ({"query_ids": ["a", "b", None, "d", "e", "f"]}, "query ids are of the type NoneType and str; expected all"),
        ({"query_ids": pd.Series([1, 2, 3, 4, 5, None])}, "query ids are of the type float64"),
        ({"query_ids": [["a", "b"]] * 6}, r"query ids have the shape \(6, 2\); expected one id per image"),
        (
            {"query_embeddings": EMBEDDINGS * np.nan},
            "6 of 6 query embeddings have NaN, infinite or huge values: rows 0, 1",
        ),
        ({"query_embeddings": EMBEDDINGS[:1], "query_labels": LABELS[:1]}, "no gallery item is left to rank"),
        ({"query_embeddings": EMBEDDINGS[:0], "query_labels": LABELS[:0]}, "there are no queries; expected one row"),
        ({"gallery_embeddings": EMBEDDINGS[:0], "gallery_labels": LABELS[:0]}, "there are no gallery items"),
        (GALLERY | {"gallery_embeddings": EMBEDDINGS[:, :4]}, "have 6 dimensions and the gallery embed"),
        ({"gallery_embeddings": EMBEDDINGS, "gallery_labels": LABELS[:5]}, "6 gallery embeddings, but labels for 5"),
        ({"gallery_embeddings": EMBEDDINGS, "gallery_labels": LABELS[:, :2]}, r"shapes \(6, 3\) and \(6, 2\)"),
        ({"query_ids": list("abcde")}, "there are 5 query ids, but labels for 6 query images"),
        (
            GALLERY | {"query_ids": list("abcdef"), "gallery_ids": list("abcde")},
            "there are 5 gallery ids, but labels for 6 gallery images",
        ),
        ({"ignored": [[1]]}, "`ignored` has lists for 1 queries, but there are 6 queries"),
        (
            {"ignored": [[1], [], [6], [], [], []]},
            "`ignored` names the gallery position 6 for query 2; expected 0 to 5",
        ),
        ({"ignored": [[0, 1, 2, 3, 4, 5]] * 6}, "no gallery item is left to rank for query 0: all 6 items"),
        ({"ignored": np.ones((6, 6), bool)}, "list of query 0 has values of the type bool; expected positions"),
    ],
)
def test_inconsistent_input_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate_retrieval(**{"query_embeddings": EMBEDDINGS, "query_labels": LABELS, **options})


IDS = [f"image {row}" for row in (0, 1, 2, 3, 4, 4)]


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series(IDS, index=range(5, -1, -1)),
        pd.Series(IDS, dtype=object),
        pd.Series(IDS, dtype="string"),
        pd.Series(IDS, dtype="category"),
        pd.Index(IDS),
        np.array(IDS, object),
        *([np.array(IDS, np.dtypes.StringDType())] if hasattr(np.dtypes, "StringDType") else []),  # NumPy 2
        tuple(IDS),
        TextArray(IDS),
        pd.Series([0, 1, 2, 3, 4, 4]),
        pd.Series([0, 1, 2, 3, 4, 4], dtype="Int64"),
        pd.Index([0, 1, 2, 3, 4, 4]),
        torch.tensor([0, 1, 2, 3, 4, 4]),
        np.array([0, 1, 2, 3, 4, 4], object),
        np.array([0, 1, 2, 3, 4, 4], np.uint8),
    ],
    ids=lambda ids: f"{type(ids).__name__} of {getattr(ids, 'dtype', 'str')}",
)
def test_ids_in_any_form(ids: Any) -> None:
    embeddings, labels = data(6, seed=3, n_leaves=3)
    for gallery in ({}, {"gallery_embeddings": embeddings, "gallery_labels": labels, "gallery_ids": ids}):
        result = evaluate_retrieval(embeddings, labels, query_ids=ids, metrics=["mAP@R"], **gallery)
        excluded = [[0], [1], [2], [3], [4, 5], [4, 5]]  # the last two images are one
        by_position = evaluate_retrieval(embeddings, labels, embeddings, labels, ignored=excluded, metrics=["mAP@R"])
        assert result.means == by_position.means
        assert [str(each) for each in result.per_query.index] == [str(each) for each in list(np.asarray(ids))]


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("length", [1e-12, 1e-20, 1e-25, 1e-35])
def test_short_embeddings_are_compared_as_others(length: float, precision: Precision) -> None:
    embeddings, labels = data(30)
    embeddings = embeddings.astype(np.float64)
    expected = evaluate_retrieval(embeddings, labels, precision=precision)
    some = np.where(np.arange(30) % 2, 1, length)[:, None]
    for scaled in (embeddings * length, embeddings * some, (embeddings * length).astype(np.float32)):
        for gallery in ((), (scaled, labels)):
            ids: dict[str, Any] = {"query_ids": range(30), "gallery_ids": range(30)} if gallery else {}
            result = evaluate_retrieval(scaled, labels, *gallery, precision=precision, **ids)
            assert result.means == pytest.approx(expected.means, abs=1e-12, nan_ok=True)
            assert "queries_with_zero_embeddings" not in result.counts


def test_embeddings_that_float32_cannot_hold_are_counted_as_zeros() -> None:
    embeddings, labels = data(30)
    scaled = embeddings.astype(np.float64) * np.where(np.arange(30) < 4, 1e-60, 1)[:, None]
    assert evaluate_retrieval(scaled, labels).counts["queries_with_zero_embeddings"] == 4
    exact = evaluate_retrieval(scaled, labels, precision="float64")
    assert "queries_with_zero_embeddings" not in exact.counts
    assert exact.means == pytest.approx(evaluate_retrieval(embeddings, labels).means, nan_ok=True)


def test_ids_are_checked_before_ranking() -> None:
    judgements = LabelJudgements(LABELS, LABELS)
    with pytest.raises(InputError, match="there are 1 query ids, but labels for 6 query images"):
        evaluate_judged(EMBEDDINGS * np.nan, EMBEDDINGS, judgements, query_ids=np.array(["a"]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA knows")
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-12)])
def test_gpu_and_cpu_agree(precision: Precision, tolerance: float) -> None:
    embeddings, labels = data(500, n_leaves=60, dim=32)
    embeddings = np.round(embeddings * 4)  # inner products are exact in float32
    options: dict[str, Any] = {"metrics": NAMES, "precision": precision, "distance": "dot", "block_size": 64}
    cpu, cuda = (evaluate_retrieval(embeddings, labels, device=device, **options) for device in ("cpu", "cuda"))
    pd.testing.assert_frame_equal(cpu.per_query, cuda.per_query, check_exact=False, rtol=0, atol=tolerance)
    on_gpu = torch.from_numpy(embeddings).cuda()
    other = evaluate_retrieval(on_gpu, torch.from_numpy(labels).cuda(), **options)
    pd.testing.assert_frame_equal(cuda.per_query, other.per_query)


def test_metrics_on_trees_need_levels_of_a_tree() -> None:
    several = LabelSets.from_lists([np.array([[0, 0], [1, 0]]), np.array([[0, 0]]), np.array([[1, 0]])])
    task = leave_one_out_task(torch.eye(3), several)
    for metric in ("HP@2", "mistake_severity", "hF", "AHP"):
        with pytest.raises(ConfigurationError, match=rf"{metric} needs labels that form a tree, with one label per"):
            evaluate_tasks([task], EvaluationConfig(metrics=(metric,)))


# Images in batches

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


def test_batches_of_queries_and_a_gallery() -> None:
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
        ({"is_query": True}, "the arguments of a batch have"),
        ({"ids": 7}, r"the query ids have the shape \(\); expected one id per image"),
        ({"embeddings": torch.tensor(1.0)}, r"the query embeddings have the shape \(\)"),
        ({"labels": torch.zeros(6, 3)}, "the query labels have .* the type float32; expected integers"),
        ({"labels": LabelSets.from_lists([np.zeros((1, 3), int)] * 6)}, "one label per image and level"),
    ],
)
def test_inconsistent_batches_are_refused(options: dict[str, Any], message: str) -> None:
    embeddings, labels = batches_data(6)
    with pytest.raises(InputError, match=message):
        hgld.RetrievalMetric().update(**{"embeddings": embeddings, "labels": labels, **options})


def test_images_that_share_an_id_are_refused() -> None:
    embeddings, labels = batches_data(21)
    metric = hgld.RetrievalMetric(METRICS)
    for rank in range(2):  # ids are counted within the share of each process
        own = torch.arange(21)[rank::2]
        metric.update(embeddings[own], labels[own], ids=torch.arange(len(own)))
    with pytest.raises(
        InputError, match=r"\d+ ids have different labels, such as \d+: \[.+\] and \[.+\]; an id names"
    ):
        metric.compute()
    metric.reset()
    same_labels = labels[:1].repeat(21, 1)
    metric.update(embeddings, same_labels, ids=[str(row % 20) for row in range(21)])
    with pytest.raises(InputError, match="1 ids have different embeddings, such as 0; an id names one image"):
        metric.compute()
    metric.reset()
    # A query and the gallery item with its id are one image, possibly embedded otherwise.
    metric.update(embeddings[:9], labels[:9], is_query=torch.ones(9, dtype=torch.bool), ids=torch.arange(9))
    metric.update(embeddings[9:], labels[9:], is_query=torch.zeros(12, dtype=torch.bool), ids=torch.arange(12))
    with pytest.raises(InputError, match="ids have different labels"):
        metric.compute()


def test_repeated_images_are_counted_once_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    embeddings, labels = batches_data(21)
    metric = hgld.RetrievalMetric(METRICS)
    metric.update(embeddings, labels, ids=range(21))
    assert metric.compute() == evaluate_retrieval(embeddings, labels, metrics=METRICS).means
    assert not caplog.messages
    metric.update(embeddings[:3] * (1 + 1e-3), labels[:3], ids=range(3))  # batches are rounded otherwise
    assert metric.compute() == evaluate_retrieval(embeddings, labels, metrics=METRICS).means
    assert caplog.messages == ["3 of 24 images were added again, and are counted once"]


def test_batches_that_do_not_fit_each_other_are_refused() -> None:
    embeddings, labels = batches_data(6)
    for options, message in (
        ({"labels": labels[:, :2]}, "batches differ in their levels of labels: 3 and 2"),
        ({"embeddings": embeddings[:, :5]}, "batches differ in their dimensions of embeddings: 8 and 5"),
        ({"ids": list("abcdef")}, "batches differ in their ids: integers and texts"),
    ):
        metric = hgld.RetrievalMetric()
        batch: dict[str, Any] = {"embeddings": embeddings, "labels": labels, "ids": range(6)}
        metric.update(**batch)
        metric.update(**{**batch, **options})
        with pytest.raises(InputError, match=message):
            metric.compute()


def test_a_metric_takes_arrays_and_one_name() -> None:
    embeddings, labels = batches_data()
    metric = hgld.RetrievalMetric("H-AP")
    ids = pd.Series([f"image {row:02}" for row in range(60)])  # sorted, so that sums are equal to the last bit
    metric.update(embeddings.numpy(), labels.numpy(), ids=ids)
    assert metric.compute() == evaluate_retrieval(embeddings, labels, metrics="H-AP").means


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
from tests.evaluation.test_evaluate import METRICS, batches_data

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
