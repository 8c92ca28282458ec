"""Hierarchical metrics on any tree, against independent numbers and against the metrics of ranked levels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from hgld.errors import InputError
from hgld.evaluation.class_tree import (
    ClassTree,
    average_hierarchical_distance,
    average_hierarchical_precision,
    hierarchical_f,
    hierarchical_precision,
    least_hierarchical_distance,
    mean_mistake_severity,
)
from tests.evaluation.helpers import metric_values

NAMES = ("balanced_3_levels", "unbalanced", "flat")
#: Our options of the independent implementation's variants of AHP.
VARIANTS: dict[str, dict[str, Any]] = {"AHP": {"trapezoid": True}, "AHP_mean": {}}


@pytest.fixture(scope="module")
def cases(shared: Path) -> dict[str, dict[str, Any]]:
    read = json.loads((shared / "golden_beyond" / "hierarchy_metrics.json").read_text("utf-8"))["cases"]
    return {case["name"]: case for case in read}


def ranked_similarities(case: dict[str, Any], similarities: npt.NDArray[np.float64]) -> list[tuple[Any, Any]]:
    """The similarities of ranked items without the query, and the expected values, for both galleries of a case."""
    code = {name: row for row, name in enumerate(case["matrices"]["order"])}
    labels = np.array([code[name] for name in case["item_label"]])
    order = np.array(case["ranking_with_query_first"])[:, 1:]
    apart = case["separate_gallery"]
    queries, gallery = (np.array([code[name] for name in apart[key]]) for key in ("query_label", "gallery_label"))
    return [
        (similarities[labels[:, None], labels[order]], case["hierarchical_precision"]["per_query"]),
        (similarities[queries[:, None], gallery[np.array(apart["ranking"])]], apart["per_query"]),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_trees_have_the_expected_distances(cases: dict[str, dict[str, Any]], name: str) -> None:
    case = cases[name]
    tree, classes = ClassTree(case["parent"]), case["matrices"]["order"]
    assert (tree.root, tree.height) == (case["root"], case["height"])
    assert {node: tree.depth(node) for node in case["node_depth"]} == case["node_depth"]
    assert {node: tree.node_height(node) for node in case["node_height"]} == case["node_height"]
    lca = [[tree.lowest_common_ancestor(a, b) for b in classes] for a in classes]
    assert lca == case["matrices"]["lca"]
    for key, matrix in (
        ("wup", tree.wu_palmer_similarities(classes)),
        ("lcs_height_similarity", tree.height_similarities(classes)),
        ("lca_height", tree.lca_heights(classes)),
        ("path_length", tree.path_lengths(classes)),
    ):
        np.testing.assert_allclose(matrix, case["matrices"][key], rtol=0, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_hierarchical_precision_agrees_with_an_independent_implementation(
    cases: dict[str, dict[str, Any]], name: str
) -> None:
    case = cases[name]
    tree, classes = ClassTree(case["parent"]), case["matrices"]["order"]
    matrices = {"WUP": tree.wu_palmer_similarities(classes), "LCS_HEIGHT": tree.height_similarities(classes)}
    n_compared = 0
    for kind, matrix in matrices.items():
        for similarities, per_query in ranked_similarities(case, matrix):
            for key, expected in per_query.items():
                head, cutoff = key.removesuffix(f" ({kind})").partition("@")[::2]
                if not key.endswith(f"({kind})") or expected[0] is None:
                    continue
                k = int(cutoff) if cutoff else None
                if head == "HP":
                    assert k is not None
                    actual = hierarchical_precision(similarities, k)
                elif head == "AHP_unit":  # the same area, divided by its n - 1 steps
                    n_items = similarities.shape[1]
                    actual = average_hierarchical_precision(similarities, trapezoid=True) * n_items / (n_items - 1)
                else:
                    actual = average_hierarchical_precision(similarities, k, **VARIANTS[head])
                np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12, err_msg=key)
                n_compared += 1
    assert n_compared >= 28


@pytest.mark.parametrize("name", ["balanced_3_levels", "flat"])
def test_ranked_levels_agree_with_an_independent_implementation(cases: dict[str, dict[str, Any]], name: str) -> None:
    """Leaves of one depth: a level is the similarity of heights times L."""
    case = cases[name]
    n_levels = case["height"]
    our_heads = {"AHP": "AHP{}_trapezoid", "AHP_mean": "AHP{}", "HP": "HP{}"}
    for similarities, per_query in ranked_similarities(case, np.array(case["matrices"]["lcs_height_similarity"])):
        levels = torch.from_numpy((similarities * n_levels).round().astype(np.uint8))
        known = (levels > 0).any(1).numpy()
        assert known.sum() > 4
        for key, expected in per_query.items():
            head, cutoff = key.partition(" ")[0].partition("@")[::2]
            if head not in our_heads or expected[0] is None:
                continue
            ours = our_heads[head].format("_WUP" if "WUP" in key else "") + (f"@{cutoff}" if cutoff else "")
            values = metric_values(levels, n_levels, [ours], cutoffs=[int(cutoff)] if cutoff else [])[ours]
            assert np.isnan(values[~known]).all()
            np.testing.assert_allclose(values[known], np.array(expected)[known], rtol=0, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_severity_of_a_classifier_agrees_with_an_independent_implementation(
    cases: dict[str, dict[str, Any]], name: str
) -> None:
    case = cases[name]
    tree, expected = ClassTree(case["parent"]), case["classification"]
    true, classes = np.array(expected["y"]), case["leaves"]
    order = np.argsort(-np.array(expected["class_scores"]), axis=1, kind="stable")
    distances = tree.lca_heights(classes)[true[:, None], order]
    similarities = 1 - distances / tree.height
    mistaken = distances[:, 0] > 0
    assert mistaken.sum() == expected["mistakes"]
    assert mean_mistake_severity(distances) == pytest.approx(expected["mistake_severity"], abs=1e-12)
    lengths = tree.path_lengths(classes)[true[:, None], order]
    assert mean_mistake_severity(lengths) == pytest.approx(expected["mistake_severity_path_length"], abs=1e-12)
    wu_palmer = tree.wu_palmer_similarities(classes)[true, order[:, 0]]
    assert wu_palmer.mean() == pytest.approx(expected["mean_wup_top1"], abs=1e-12)
    for k in expected["ks"]:
        actual = {
            "avg_hdist@k": average_hierarchical_distance(distances, k).mean(),
            "min_hdist@k": least_hierarchical_distance(distances, k).mean(),
            "mistakes_avg_hdist@k": average_hierarchical_distance(distances[mistaken], k).mean(),
            "hprecision@k_mean_of_ratios": hierarchical_precision(similarities, k).mean(),
        }
        for key, value in actual.items():
            assert value == pytest.approx(expected[key][str(k)], abs=1e-12), (key, k)
    if name == "unbalanced":
        return
    # The same from ranked levels, as the evaluator has them.
    levels = torch.from_numpy((tree.height - distances).astype(np.uint8))
    names = [
        "mistake_severity",
        "hF",
        "WUP@1",
        *(f"{m}@{k}" for k in expected["ks"] for m in ("avg_hdist", "min_hdist")),
    ]
    values = metric_values(levels, tree.height, names, cutoffs=expected["ks"])
    assert np.nanmean(values["mistake_severity"]) == pytest.approx(expected["mistake_severity"], abs=1e-12)
    assert values["hF"].mean() == pytest.approx(expected["hF"]["leaf"]["without_root"]["hF_macro_mean_of_items"])
    assert values["WUP@1"].mean() == pytest.approx(expected["mean_wup_top1"], abs=1e-12)
    for k in expected["ks"]:
        for key in ("avg_hdist", "min_hdist"):
            assert values[f"{key}@{k}"].mean() == pytest.approx(expected[f"{key}@k"][str(k)], abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_hierarchical_f_agrees_with_an_independent_implementation(
    cases: dict[str, dict[str, Any]], name: str
) -> None:
    case = cases[name]
    tree = ClassTree(case["parent"])
    true = [case["leaves"][row] for row in case["classification"]["y"]]
    for by_node in case["classification"]["hF"].values():
        for key in ("with_root", "without_root"):
            expected = by_node[key]
            actual = hierarchical_f(tree, true, by_node["pred"], with_root=key == "with_root")
            for ours, theirs in ((actual.precision, "hP"), (actual.recall, "hR"), (actual.f, "hF")):
                np.testing.assert_allclose(ours, expected[f"{theirs}_per_item"], rtol=0, atol=1e-12)
            micro = [expected[f"{theirs}_micro"] for theirs in ("hP", "hR", "hF")]
            np.testing.assert_allclose(actual.micro, micro, rtol=0, atol=1e-12)
            assert actual.f.mean() == pytest.approx(expected["hF_macro_mean_of_items"], abs=1e-12)


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ({}, "the tree has 0 roots; expected one node without a parent"),
        ({"a": "b", "b": "a"}, "the tree has 0 roots"),
        ({"a": "r", "b": "s"}, "the tree has 2 roots: r, s; expected one"),
        ({"x": "r", "a": "b", "b": "a"}, 'the node "a" has no path to the root "r", but goes round in a circle'),
    ],
)
def test_what_is_no_tree_is_refused(parents: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClassTree(parents)


def test_unknown_nodes_and_ranks_are_refused() -> None:
    tree = ClassTree({"a": "r", "b": "r"})
    with pytest.raises(InputError, match='the tree has no node "c"'):
        tree.lca_heights(["a", "c"])
    with pytest.raises(InputError, match='the tree has no node "c"'):
        tree.node_height("c")
    with pytest.raises(InputError, match="1 true nodes and 2 predicted ones"):
        hierarchical_f(tree, ["a"], ["a", "b"])
    for k in (0, 3):
        with pytest.raises(InputError, match=f"k is {k}; expected 1 to 2"):
            hierarchical_precision([[1.0, 0.5]], k)
    assert np.isnan(mean_mistake_severity([[0, 1]]))
